/* SPDX-License-Identifier: MIT */
/* watch.h - what rank 0 knows of all ranks' time: who makes others wait, what is hidden, how many bytes
 * move. Private to train/.
 *
 * Now and then every rank sends its sums so far to rank 0, by a message, which works within a
 * machine and between several. Rank 0 takes differences.
 */
#ifndef TRAIN_WATCH_H
#define TRAIN_WATCH_H

#include <stdbool.h>

#include "exec/exec.h"
#include "transport/transport.h"

struct watch;

/* Of one rank, in seconds of a lane: sums of its lanes over their number. */
struct watch_rank {
    double compute, comm, wait, evaluate, load;
    double wire;   /* transfers to and from other machines were under way */
    double hidden; /* part of comm and wire while a lane computed */
    double bytes;
    double made_wait; /* what other ranks together waited for this one */
};

/* A stretch of steps, over all ranks; NaN where there is nothing to say. */
struct watch_interval {
    double hidden_share; /* of communication, between nodes included */
    double bytes;
    int slowest;          /* the rank that others waited for most; -1: none */
    double slowest_share; /* of the time, on average over the others */
};

/* Collective. */
MUST_CHECK enum status watch_create(struct transport *transport, int lanes, struct watch **out);
void watch_destroy(struct watch *watch); /* NULL is allowed */

/* Collective: brings the sums so far to rank 0; load: seconds that the loop waited for samples. */
MUST_CHECK enum status watch_collect(struct watch *watch, const struct exec *exec, double load);
/* The same with the numbers that exec_times and exec_waited_for give. */
MUST_CHECK enum status watch_bring(struct watch *watch, const struct exec_times *times,
                                   const double *waited_for, double load);

/* The rest is for rank 0. What happened between the last two calls of watch_next, the last of which is
 * now; `seconds` is how long that took by the clock, not by what ranks worked. Shares are from 0 to 1. */
struct watch_interval watch_next(struct watch *watch, double seconds);
/* part / whole, from 0 to 1: a wait that began before the interval is in its sums, so that the quotient may
 * be more than 1. NaN where the whole is nothing. */
double watch_share(double part, double whole);
/* A rank that has been slower than the others in each of the last intervals; -1 if there is none, and
 * when this was said before. */
int watch_straggler(struct watch *watch);
/* Sums since the beginning, or since exec_reset_times. */
struct watch_rank watch_rank(const struct watch *watch, int rank);

#endif /* TRAIN_WATCH_H */
