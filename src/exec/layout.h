/* SPDX-License-Identifier: MIT */
/* layout.h - what the graph says of the memory of a step: vectors, records, tables. Private to
 * exec/.
 *
 * Made before the shared memory is; constant after creation, so that any thread reads it.
 */
#ifndef EXEC_LAYOUT_H
#define EXEC_LAYOUT_H

#include "exec/plan.h"
#include "exec/vectors.h"
#include "sched/facts.h"

struct exec_config;
struct exec_model;
struct exec_topology;

/* A bucket that holds one linear layer, whose gradient is made from factors. */
struct factored {
    int64_t k, n;               /* of the weight; its bias, if any, follows at `bias` */
    int64_t bias;               /* elements from the beginning of the bucket; 0: none */
    size_t x, dy;               /* bytes, in a shard's record */
    const struct node *forward; /* if its columns belong to lanes: the layer (columns.c) */
    size_t y;                   /* then its output, in a shard's record */
};

/* A bucket that holds a table of which a step touches some rows (rows.c). */
struct row_sum {
    int64_t rows, width;     /* of the table */
    int64_t most;            /* ids of a shard, at most */
    bool is_near;            /* dy of all shards is small enough to stay in L2 */
    size_t order, begin, dy; /* bytes, in a shard's record */
};

/* The memory that the graph asks for in a step. Constant after creation. */
struct exec_layout {
    struct step_facts facts;
    struct plan_buckets buckets;
    size_t vector;                        /* elements of a flat vector, all buckets */
    struct bucket updates[GRAPH_NODE_IN]; /* one a bucket */
    int n_states;
    struct factored factored[GRAPH_NODE_IN]; /* one a bucket */
    struct row_sum row_sums[GRAPH_NODE_IN];  /* one a bucket */
    struct plan_factors factors;
    struct shape *largest; /* of every value of the training graph, by id: the most in a step */
    size_t record;         /* bytes of a shard's factors */
    struct plan_gathers gathers;
    size_t tables_bytes; /* of all gathers */
    bool has_columns;    /* some layer's columns belong to lanes */
    bool releases;       /* gradients give their memory back (release.c) */
    uint64_t compressed; /* buckets whose gradients go to other nodes compressed */
    size_t window;       /* bytes of gradients, or of parameters, that are under way at once */
};

/* Is bucket b made of records of every shard, not of gradients that are summed? */
static inline bool bucket_is_gathered(const struct exec_layout *layout, int b)
{
    return facts_is_gathered(&layout->facts, b);
}

static inline bool bucket_is_factored(const struct exec_layout *layout, int b)
{
    return layout->facts.buckets[b].kind == BUCKET_FACTORS;
}

/* Is bucket b a table whose rows go to the nodes that own them (net_rows.c)? */
static inline bool bucket_is_served(const struct exec_layout *layout, int b)
{
    return layout->facts.buckets[b].kind == BUCKET_SERVED;
}

/* Is bucket b a table of which a step touches some rows? */
static inline bool bucket_is_table(const struct exec_layout *layout, int b)
{
    return layout->facts.buckets[b].kind == BUCKET_ROWS || bucket_is_served(layout, b);
}

/* Does its gradient go to other nodes compressed? Then all nodes update all of it. */
static inline bool bucket_is_compressed(const struct exec_layout *layout, int b)
{
    return layout->compressed >> b & 1;
}

/* Gives a place in every shard's record to a value; one that serves several buckets has one. */
MUST_CHECK enum status layout_place_factor(struct exec_layout *layout,
                                           const struct value *value, int bucket,
                                           size_t *out_offset);
/* Places in records for the factors, and for the ids and dy of tables, that sums are made from. */
MUST_CHECK enum status layout_place_records(struct exec_layout *layout,
                                            const struct exec_model *model, int64_t shards);

/* Finds the layer of a factored bucket, if its columns can belong to lanes. */
MUST_CHECK enum status columns_find(struct exec_layout *layout, int bucket);

/* Finds the shape of a table, and gives its ids and dy places in records. */
MUST_CHECK enum status rows_find(struct exec_layout *layout, int64_t shards, int b);

/* Finds the graph's gathers and gives them their places. */
MUST_CHECK enum status gathers_find(const struct exec_config *config,
                                    const struct exec_topology *topology,
                                    struct exec_layout *layout);
/* Refuses lanes that have several shards if there are gathers. */
MUST_CHECK enum status gathers_check(const struct exec_config *config,
                                     const struct exec_topology *topology,
                                     const struct exec_layout *layout);
/* Shard `shard` has no samples: its table of gather g is zero. */
void gather_write_zeros(const struct exec_layout *layout, char *tables, int g, int64_t shard);

#endif /* EXEC_LAYOUT_H */
