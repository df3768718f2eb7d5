/* SPDX-License-Identifier: MIT */
/* now.h - the step that runs now. Private to exec/.
 *
 * The thread that calls the executor writes it between steps; lanes and the inter-node thread read
 * it during a step.
 */
#ifndef EXEC_NOW_H
#define EXEC_NOW_H

#include "data/loader.h"
#include "exec/topology.h"
#include "kernel/update.h"

/* The step that runs now. */
struct exec_now {
    const struct batch *batch; /* NULL between steps: the caller's again */
    uint64_t step;             /* its number, which stays for messages */
    struct kernel_update_step numbers;
    uint32_t steps;     /* done since creation: what counters are compared with */
    int64_t weight;     /* what means are divided by */
    bool columns_taken; /* the lanes' columns are newer than the flat vectors */
};

/* The samples of shard v: how many, where in the step they begin. */
struct samples {
    int64_t begin, rows;
};
struct samples now_samples(const struct exec_now *now, const struct exec_topology *topology,
                           int64_t v);

#endif /* EXEC_NOW_H */
