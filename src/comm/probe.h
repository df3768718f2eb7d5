/* SPDX-License-Identifier: MIT */
/* probe.h - a short measurement of what messages between machines take, for choices at the start of
 * a job. bench comm is the long one (measure.h).
 */
#ifndef COMM_PROBE_H
#define COMM_PROBE_H

#include "comm/comm.h"

/* Time of an exchange in which every node has `bytes` for each other one: us + bytes * us_per_byte. */
struct probe {
    double us, us_per_byte;
};

/* Collective, some tenths of a second on a slow link: the first `rails` ranks of every node have a
 * part each and talk to their counterparts. The same on every rank: that of the slowest. Nodes have
 * `rails` ranks at least. */
MUST_CHECK enum status probe_nodes(struct comm *comm, int rails, struct probe *out);

static inline double probe_us(const struct probe *probe, double bytes)
{
    return probe->us + bytes * probe->us_per_byte;
}

#endif /* COMM_PROBE_H */
