/* SPDX-License-Identifier: MIT */
/* shared.h - memory that the ranks of a node share. Private to exec/.
 * state.h says what lies there. The addresses are constant after creation; who may write what, and
 * after what, the step program says.
 */
#ifndef EXEC_SHARED_H
#define EXEC_SHARED_H

#include "kernel/tree.h"
#include "kernel/update.h"
#include "transport/transport.h"

/* Memory that the ranks of this node share. */
struct exec_shared {
    void *block;
    size_t bytes;
    struct transport_counter *counters; /* one a signal of the program */
    uint32_t *flags;          /* [2][ranks]: what ranks say to each other with a step */
    float *losses, *corrects; /* [2][shards] */
    float *param;
    float *state[KERNEL_STATES];
    float *anchor, *shift; /* written between steps; NULL: the graph has none */
    float *kept;           /* exec_keep_gradient, or NULL */
    char *records;         /* every shard's factors */
    char *tables;          /* of every gather, every shard's */
    float *sum;
    struct tree_part *parts; /* of all lanes, in the order of shards, and of other nodes */
    int n_parts, own_parts;  /* own: of this rank's lanes */
};

#endif /* EXEC_SHARED_H */
