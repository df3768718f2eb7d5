/* SPDX-License-Identifier: MIT */
/* lower.h - lowers the graph of a step to a step program.
 *
 * Call program_lower once a rank, after the strategy's passes. It is a pure function: every rank, and
 * `tutti graph`, can make the program of any node.
 *
 *   const struct lower_topology topology = { .nodes = 2, .ranks = 4, .lanes = 2, .rails = 2 };
 *   TRY(program_lower(graph, &(struct lower_config){ .topology = topology }, &program));
 */
#ifndef SCHED_LOWER_H
#define SCHED_LOWER_H

#include "pass/pass.h"
#include "sched/program.h"

struct lower_config {
    struct lower_topology topology;
    struct lower_workers workers;
    bool compresses; /* gradients between nodes, but running averages */
    bool gives;      /* to servers: the graph's push and pull are met by a client */
    bool is_direct;  /* lanes' partial sums go to servers as they are */
    bool is_device;  /* the step runs on a device: lanes have no tasks but barriers */
    bool releases;   /* gradients are given back as soon as they are summed (ZeRO-2) */
    /* Then bytes of gradients that may be resident at once; 0: all of them, as a lane has several
     * shards. */
    size_t window;
    bool has_steps;     /* else there are barriers alone: an executor for evaluations */
    bool clips_samples; /* DP-SGD: a shard's gradients are final together, at its end */
    bool in_arena; /* gradients stay in the lane's arena: buckets are final in their order */
    bool shares_tensor; /* ranks that share layers do so in memory, not by messages */
    struct pass_pipeline pipeline; /* whose nodes this rank runs; no stages: all */
};

MUST_CHECK enum status program_lower(const struct graph *graph,
                                     const struct lower_config *config, struct program **out);

/* The linear layer of a factored bucket whose columns belong to lanes on one node: it reads the samples,
 * so its input needs no gradient, and nothing else reads its weight. NULL: there is none. */
const struct node *lower_column_layer(const struct graph *graph, int bucket);

#endif /* SCHED_LOWER_H */
