/* SPDX-License-Identifier: MIT */
/* walk.h - how long a step takes, found by walking the tasks of its program.
 *
 * One lane and the inter-node threads of one node stand for all: every node runs the same program
 * at the same time. A lane runs computations in program order, for one shard after the other, and
 * sums as soon as their waits are over; transfers go over the node's link one after the other, the
 * most urgent first, beside the lane. So what is hidden and what is waited for follows from the
 * dependencies. Several steps are walked; the time between two is the prediction.
 *
 * Pure arithmetic: seconds of nodes, of a byte that is added or updated, and links go in.
 */
#ifndef SCHED_WALK_H
#define SCHED_WALK_H

#include "sched/cost.h"
#include "sched/program.h"
#include "sched/work.h"

struct walk_config {
    const struct program *program;
    const struct graph *graph;     /* that was lowered */
    const struct task_work *works; /* of each task: program_work */
    const double *node_seconds; /* of a shard on one lane, by place of a node; of factor_sum and
                                       row_sum what one shard adds to the work of all lanes */
    const struct cost_work *work; /* shards, add, update */
    const struct cost_cluster *cluster;
    double team; /* how many times as fast a lane's threads do a shard together as one does */
};

struct walk_result {
    double seconds; /* of a step */
    double compute; /* of these a lane computes, sums and updates so long */
    double link;    /* and the node's link is busy */
    double bytes;   /* that a rank sends, or reads from others */
};

/* STATUS_USAGE: a lane would have no shard. STATUS_MISMATCH: the program cannot end. */
MUST_CHECK enum status walk_run(const struct walk_config *config, struct walk_result *out);

#endif /* SCHED_WALK_H */
