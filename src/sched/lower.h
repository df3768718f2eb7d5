/* SPDX-License-Identifier: MIT */
/* lower.h - lowers the graph of a step to a step program.
 *
 * Call program_lower once a rank, after the strategy's passes. It is a pure function: every rank,
 * and `tutti graph`, can make the program of any node.
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

/* A slice of a bucket that parameter servers hold. */
struct lower_slice {
    int number, bucket;
    bool is_table;
    bool is_trained;     /* else it holds running averages, which are no part of a norm */
    int server, replica; /* that serves it; that has the second replica, -1: none */
};

/* A parameter server, and its degree of synchrony. */
struct lower_server {
    int server, servers, workers;
    bool shares_memory; /* with all workers */
    bool joins;         /* all pushes of a clock make one update, else each push does */
    int backup;         /* with joins: workers that are not waited for */
    int bound;          /* clocks that a worker may be ahead of the slowest; 0: any */
    bool is_center;     /* elastic averaging */
    bool clips;
    const struct lower_slice *slices; /* of all servers */
    int n_slices;
};

MUST_CHECK enum status program_lower_server(const struct lower_server *config,
                                            struct program **out);

#endif /* SCHED_LOWER_H */
