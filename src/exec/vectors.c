/* SPDX-License-Identifier: MIT */
/* vectors.c - what a training graph says of the flat vectors: buckets, tables, updates. */
#include "exec/vectors.h"

#include "base/mem.h"
#include "exec/plan.h"
#include "graph/op.h"
#include "pass/pass.h"
#include "sched/facts.h"

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
    struct step_facts facts;
    int n_updates = 0;

    TRY(facts_read(train, &(struct facts_job){ .nodes = 1, .ranks = 1 }, &facts));
    for (int b = 0; b < vectors.count; b++) {
        const struct bucket_facts *of = &facts.buckets[b];
        struct bucket *bucket = &vectors.buckets[b];

        vectors.begin[b + 1] =
            vectors.begin[b] + shape_count(&pass_bucket_value(train, b, "param")->shape);
        if (of->kind == BUCKET_ROWS)
            read_rows(of->sum, bucket);
        if (!of->update)
            continue;
        bucket->kernel = kernel_update_find(of->update->op->name);
        bucket->attrs = of->update->attrs;
        bucket->is_average = of->is_average;
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
