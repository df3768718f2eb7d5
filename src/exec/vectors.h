/* SPDX-License-Identifier: MIT */
/* vectors.h - the flat vectors that hold parameters, gradients and each state of the optimizer.
 *
 * Bucket after bucket, each of several parameters or of one table of embeddings. Everything that is done
 * once a step is done to buckets: executors sum and update them, servers keep slices of them. It is
 * a function of the training graph alone, so that whoever has that knows it.
 */
#ifndef EXEC_VECTORS_H
#define EXEC_VECTORS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "graph/graph.h"
#include "kernel/update.h"
#include "optim/optim.h"

/* How a bucket is updated. */
struct bucket {
    const struct kernel_update *kernel;
    struct attrs attrs;
    bool is_average;     /* not trained: has no state and no part in the gradient's norm */
    int64_t rows, width; /* of a table whose gradient has the rows that occur; else 0 */
    int64_t most;        /* then: ids of a shard, at most */
};

struct vectors {
    int count;                        /* of buckets */
    int64_t begin[GRAPH_NODE_IN + 1]; /* elements; begin[count] is the vector's length */
    struct bucket buckets[GRAPH_NODE_IN];
    int n_states; /* of the optimizer: vectors as long */
};

/* The graph is one after a strategy's passes. */
MUST_CHECK enum status vectors_read(const struct graph *train, const struct optim_config *optim,
                                    struct vectors *out);

/* A parameter that is trained, in its bucket. */
struct vectors_param {
    int bucket;
    int64_t at, count; /* elements, from the bucket's first */
};
/* All of them, in the model's order; the caller frees the list. */
MUST_CHECK enum status vectors_list_params(const struct graph *train,
                                           struct vectors_param **out, int *out_count);

#endif /* EXEC_VECTORS_H */
