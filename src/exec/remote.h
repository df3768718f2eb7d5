/* SPDX-License-Identifier: MIT */
/* remote.h - sums of gradients that go to servers. Private to exec/.
 *
 * Called by lanes.
 */
#ifndef EXEC_REMOTE_H
#define EXEC_REMOTE_H

#include <stdatomic.h>

#include "exec/exec.h"
#include "graph/graph.h"
#include "kernel/tree.h"

struct lane_clock;
struct sums;

/* The rows that one thread has put together for servers. */
struct row_range {
    int64_t at, count; /* rows, from the sum's first */
};

/* Sums that go to servers. */
struct remote {
    int n_sums;
    struct tree_part sums[2 * TREE_DEPTH];
    bool is_direct;              /* the sums are the lanes' partial sums themselves */
    float *data[2 * TREE_DEPTH]; /* else: where they are put together */
    int32_t *ids[GRAPH_NODE_IN]; /* of each table: of each shard its most, and their rows */
    float *rows[GRAPH_NODE_IN];
    struct row_range *ranges[GRAPH_NODE_IN]; /* of each sum, of each thread */
    _Atomic uint32_t arrived[GRAPH_NODE_IN]; /* lanes, since creation */
};

/* Makes what is needed to give sums to servers, when lanes have their rows. */
MUST_CHECK enum status remote_create(const struct sums *sums, struct remote **out);
void remote_destroy(struct remote *remote);
/* The parts that lanes hold have their places. */
void remote_start(struct remote *remote, const struct tree_part *parts);
/* Puts the sums of [at, at + count) together. */
void remote_sum(const struct sums *sums, size_t at, size_t count, float *scratch);
/* This lane has done what it does for bucket b; the last one gives it. */
MUST_CHECK enum status remote_arrive(const struct sums *sums, struct lane_clock *clock, int b);
/* Waits for the bucket's parameters. */
MUST_CHECK enum status remote_await(const struct exec_remote *from, struct lane_clock *clock,
                                    int b);

#endif /* EXEC_REMOTE_H */
