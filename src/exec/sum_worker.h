/* SPDX-License-Identifier: MIT */
/* sum_worker.h - what a thread that sums and updates has of its own. Private to exec/.
 *
 * A lane and an inter-node thread have one each; no other thread touches it during a step.
 */
#ifndef EXEC_SUM_WORKER_H
#define EXEC_SUM_WORKER_H

#include <stdint.h>

#include "kernel/update.h"

struct pool;
struct sums;

/* A lane's columns of such a layer's weight: k rows, `stride` apart, in memory that no other lane
 * touches. Numbers of a row beyond its columns mean nothing. */
struct columns {
    int64_t first, count, stride;
    float *param;
    float *state[KERNEL_STATES];
};

/* A thread that sums: a lane, or an inter-node thread, which works on what its caller names. */
struct sum_worker {
    const struct sums *sums;
    int number;              /* of a lane, among all lanes of this node */
    struct pool *pool;       /* threads that share its work, or NULL */
    float *scratch;          /* reduce_scratch bytes for each of its threads */
    struct columns *columns; /* one a bucket */
};

#endif /* EXEC_SUM_WORKER_H */
