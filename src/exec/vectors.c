/* SPDX-License-Identifier: MIT */
/* vectors.c - what a training graph says of the flat vectors: buckets, tables, updates. */
#include "exec/vectors.h"

#include "base/mem.h"
#include "exec/plan.h"
#include "graph/op.h"
#include "pass/pass.h"

/* A table's bucket: its gradient has the rows that occur. */
static void read_rows(const struct node *node, struct bucket *out)
{
    const struct shape *dy = &node->in[2]->shape;

    out->rows = node->attrs.rows;
    out->width = dy->dim[dy->rank - 1];
    out->most = shape_count(&node->in[0]->shape) / 2; /* pairs of id and place */
}

enum status vectors_read(const struct graph *train, const struct optim_config *optim,
                         struct vectors *out)
{
    struct vectors vectors = { .count = pass_bucket_count(train),
                               .n_states = optim_states(optim) };
    int n_updates = 0;

    for (int b = 0; b < vectors.count; b++)
        vectors.begin[b + 1] =
            vectors.begin[b] + shape_count(&pass_bucket_value(train, b, "param")->shape);
    for (int n = 0; n < graph_node_count(train); n++) {
        const struct node *node = graph_node(train, n);
        struct bucket *bucket = &vectors.buckets[node->attrs.bucket];

        if (node->op->split[0] != SPLIT_WHOLE)
            continue;
        if (node->op == &op_row_sum)
            read_rows(node, bucket);
        if (!kernel_update_find(node->op->name))
            continue;
        bucket->kernel = kernel_update_find(node->op->name);
        bucket->attrs = node->attrs;
        bucket->is_average = node->op == &op_average_update;
        n_updates++;
    }
    if (n_updates != vectors.count)
        return FAIL(STATUS_MISMATCH, "graph %s has %d updates of %d buckets", graph_name(train),
                    n_updates, vectors.count);
    *out = vectors;
    return STATUS_OK;
}

enum status vectors_list_params(const struct graph *train, struct vectors_param **out,
                                int *out_count)
{
    const int n_values = graph_value_count(train);
    struct vectors_param *params;
    int count = 0;

    TRY(mem_alloc((size_t)n_values + 1, sizeof *params, &params));
    for (int i = 0; i < n_values; i++) {
        const struct value *value = graph_value(train, i);
        if (value->kind == VALUE_PARAM && value->flat) /* others are of other stages */
            params[count++] = (struct vectors_param){ .bucket = plan_bucket_of(value->flat),
                                                      .at = value->offset,
                                                      .count = shape_count(&value->shape) };
    }
    *out = params;
    *out_count = count;
    return STATUS_OK;
}
