/* SPDX-License-Identifier: MIT */
/* cost_link.h - seconds of messages over a link. Private to cost*.c. */
#ifndef SCHED_COST_LINK_H
#define SCHED_COST_LINK_H

#include "sched/cost.h"

/* Every one of n has `bytes` and sends each other one a part of it: sums to their owners, or
 * results to all. */
static inline double cost_link_exchange(const struct cost_link *link, int n, double bytes,
                                        double times)
{
    if (n < 2 || times < 1)
        return 0;
    return times * (link->latency + (n - 1) * link->message) +
           bytes * (n - 1) / n / link->bandwidth;
}

static inline double cost_link_send(const struct cost_link *link, double bytes)
{
    return link->latency + bytes / link->bandwidth;
}

#endif /* SCHED_COST_LINK_H */
