/* SPDX-License-Identifier: MIT */
/* shared.h - memory that the ranks of a node share. Private to exec/.
 *
 * The addresses are constant after creation. On every rank the same lies there:
 *
 *   counters      one of each task of the step program that another thread waits for (sched/program.h)
 *   arrivals      of every lane at every counter: when, and how often (account.c)
 *   losses        two steps' worth (even, odd) of one loss and one count a shard
 *   parameters    one flat vector: bucket 0, bucket 1, ...
 *   state         one such vector a state of the optimizer
 *   gradients     of every lane of every rank: one such vector a partial sum it may hold; none if there
 *                 is one shard and no clipping: buckets pass through the lane's arena then (plan.h)
 *   tables        of every gather: what each shard gives to all in the middle of a step (gather.c)
 *   records       of every shard: the factors of gradients that are not summed but made from them, and the
 *                 ids and dy of tables
 *   sum, squares  with clipping, LARS and LAMB: the summed gradient, of tables the rows that occur, and sums of
 *                 squares (norms.c)
 *
 * A layer whose columns belong to lanes (columns.c) has its weight, and the weight's state, with
 * the lanes from the first step after a settle until the next; the flat vectors are then stale.
 *
 * In a job on several machines each node has such a block: parameters and state whole, gradients of
 * its own lanes, records and tables of all shards. Inter-node threads (net.c) bring what the others
 * have.
 *
 * The step program says which thread may write what, and after what. Counters only grow; a task of
 * step s is awaited as (s + 1) times the members that raise its counter.
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
