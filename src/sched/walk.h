/* SPDX-License-Identifier: MIT */
/* walk.h - how long a step takes, found by walking the tasks of its program.
 *
 * One lane and the inter-node threads of one node stand for all: every node runs the same program
 * at the same time. A lane runs computations in program order, for one shard after the other, and
 * sums as soon as their waits are over; transfers go over the node's link one after the other, the
 * most urgent first, beside the lane. So what is hidden and what is waited for follows from the
 * dependencies. Several steps are walked; the time between two is the prediction.
 *
 * A pipeline is one such walk for each stage, joined by sends and receives (walk_pipe).
 *
 * Pure arithmetic: seconds of nodes, of a byte that is added or updated, and links go in.
 */
#ifndef SCHED_WALK_H
#define SCHED_WALK_H

#include "pass/schedule.h"
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
    double
        crowding; /* threads for each core, where there are more threads than cores; else 1 */
    const struct cost_link *link;  /* of the inter-node threads */
    const struct cost_link *peers; /* between ranks that share layers; NULL: there are none */
    int tensor;                    /* that is so many */
};

struct walk_result {
    double seconds; /* of a step */
    double compute; /* of these a lane computes, sums and updates so long */
    double link;    /* and the node's link is busy */
    double bytes;   /* that a rank sends, or reads from others */
};

/* STATUS_USAGE: a lane would have no shard. STATUS_MISMATCH: the program cannot end. */
MUST_CHECK enum status walk_run(const struct walk_config *config, struct walk_result *out);

/* Pipelines ------------------------------------------------------------------------------ */

/* The stages of one copy of the model. Each runs the actions of its schedule over the segments of
 * its program; a receive ends when what the matching send gave has crossed the link. All begin a
 * step when the last has ended the one before. */
struct walk_pipe_config {
    const struct walk_config *stages; /* pipe.stages of them */
    struct pipe_config pipe;
    const struct cost_link *link; /* from stage to stage */
    int at_once;                  /* stages that have a core at a time; 0: all */
};

/* One thing that a stage did in the first step. */
struct walk_event {
    double begin, end;
    int64_t shard; /* WALK_SUM, WALK_UPDATE: of all shards */
    int stage, piece;
    bool is_backward;
};
enum { WALK_SUM = -1, WALK_UPDATE = -2 };

struct walk_timeline {
    double seconds;            /* of a step */
    struct walk_event *events; /* a stage's in order */
    int64_t n_events;
};
void walk_timeline_release(struct walk_timeline *timeline);

struct walk_pipe_result {
    double seconds; /* of a step */
    double compute; /* that the stage computes which has most to do */
    double bubble;  /* share of the time of all actions in which stages do none, on average */
    double bytes;   /* that a rank of the stage with most sends, or reads from others */
};

/* Fails as pipe_check and walk_run do. STATUS_MISMATCH: a message lacks an end, or stages wait for
 * each other. timeline: NULL, or is filled. */
MUST_CHECK enum status walk_pipe(const struct walk_pipe_config *config,
                                 struct walk_pipe_result *out, struct walk_timeline *timeline);

#endif /* SCHED_WALK_H */
