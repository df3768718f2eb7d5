/* SPDX-License-Identifier: MIT */
/* profile.h - how long the nodes of a shard take on this machine.
 *
 * An executor of one rank runs some steps of the graph, each lane one shard, and every instruction is timed where it
 * stands: with its inputs in the caches as they are in training, and with the other lanes beside it. So the
 * times hold for ranks that compute side by side, too, which share the machine's memory just as lanes do.
 *
 * Times of nodes are lower quartiles of several: what else the machine does only adds to them; those of steps are medians.
 *
 * Threads: one thread calls; call from a process that may start threads.
 */
#ifndef EXEC_PROFILE_H
#define EXEC_PROFILE_H

#include "exec/exec.h"

struct profile_config {
    const struct graph
        *graph; /* after a strategy's passes for one rank; borrowed, as all below */
    const struct batch *
        batch; /* lanes * rows samples, for profile_steps shards * rows, for profile_open open * rows */
    int lanes;      /* shards side by side */
    int64_t shards; /* of profile_steps: a step's, a multiple of lanes */
    int64_t open;   /* of profile_open: shards that a lane has under way at a time */
    int threads;    /* of each lane */
    struct optim_config optim;
    const struct kernel_choices *choices;
    uint64_t seed;
    double seconds; /* about so long, but some steps at least */
};

struct profile {
    double
        *nodes;  /* seconds of each node of the graph in running order, 0 if no shard runs it */
    double step; /* of a step among others */
    double sums; /* of that a lane adds gradients and updates */
    double made; /* and makes gradients of what all shards have, rows or factors, and updates */
    double
        rest; /* of that nothing above has: waits, layers that lanes make together; below 0 where steps overlap */
    int steps;
    size_t arena; /* bytes of activations of a lane */
};

MUST_CHECK enum status profile_run(const struct profile_config *config, struct profile *out);
void profile_release(struct profile *profile);

/* Seconds of a step, nothing in it timed. With one shard a lane and with two it tells what one more shard takes, and so what
 * of a step is for the meeting of lanes, however many shards they have. */
MUST_CHECK enum status profile_steps(const struct profile_config *config, double *out);

/* Seconds of each node, in running order, where a lane goes forward with all open shards before it goes backward with the first, as
 * stages of a pipeline do: what a shard keeps has left the caches when it is read. Lanes are executors of their own.
 * STATUS_UNSUPPORTED: shards of this graph meet. */
MUST_CHECK enum status profile_open(const struct profile_config *config, double *out);

/* Seconds of each node of a graph's forward and backward, in running order, each kernel by itself on one thread: for
 * graphs that need other ranks to run. What ranks do together, and what no kernel does, is 0. */
MUST_CHECK enum status profile_kernels(const struct graph *graph,
                                       const struct kernel_choices *choices, double *out);

/* Bytes of activations that a lane needs for a shard of `rows`, without having them. */
MUST_CHECK enum status profile_arena(const struct graph *graph, int64_t rows,
                                     const struct kernel_choices *choices, size_t *out);

#endif /* EXEC_PROFILE_H */
