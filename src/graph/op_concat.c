/* SPDX-License-Identifier: MIT */
/* op_concat.c - rows put side by side, and columns taken out of them, which is its gradient. */
#include <limits.h>

#include "graph/op.h"

/* (.., A), (.., B), ... -> (.., A + B + ...) */
static enum status infer_concat(const struct node *node, struct op_shapes *s)
{
    struct shape sum = *s->in[0];
    const int last = sum.rank - 1;

    (void)node;
    if (sum.rank != 2 && sum.rank != 3)
        return FAIL(STATUS_USAGE, "rows of rank %d, not 2 or 3", sum.rank);
    for (int i = 1; i < GRAPH_IN && s->in[i]; i++) {
        struct shape more = *s->in[i];
        if (more.rank == sum.rank) {
            const int64_t columns = more.dim[last];
            more.dim[last] = sum.dim[last];
            if (shape_equal(&more, &sum)) {
                sum.dim[last] += columns;
                continue;
            }
        }
        return FAIL(STATUS_USAGE, "inputs differ in more than their last extent");
    }
    if (sum.dim[last] > INT_MAX)
        return FAIL(STATUS_USAGE, "%lld columns", (long long)sum.dim[last]);
    s->out[0] = sum;
    return STATUS_OK;
}

static void gradient_concat(struct graph *graph, const struct node *node,
                            struct value *const *dout, const bool *wanted, struct value **din)
{
    int first = 0;

    for (int i = 0; i < node->n_in; i++) {
        const struct shape *shape = &node->in[i]->shape;
        const int columns = (int)shape->dim[shape->rank - 1];
        const struct attrs attrs = { .extent = { first, columns } };
        if (wanted[i]) {
            struct node *grad = graph_add(graph, &op_columns, node->name, dout, 1, &attrs);
            din[i] = grad ? grad->out[0] : NULL;
        }
        first += columns;
    }
}

const struct op op_concat = {
    .name = "concat",
    .summary = "rows side by side",
    .min_in = 1,
    .max_in = 8, /* as kernels have it */
    .min_out = 1,
    .max_out = 1,
    .split = { SPLIT_ROWS },
    .by_rows = true,
    .infer = infer_concat,
    .gradient = gradient_concat,
};

static enum status infer_columns(const struct node *node, struct op_shapes *s)
{
    const int64_t first = node->attrs.extent[0], count = node->attrs.extent[1];
    const int rank = s->in[0]->rank;

    if ((rank != 2 && rank != 3) || first < 0 || count < 1 ||
        first + count > s->in[0]->dim[rank - 1])
        return FAIL(STATUS_USAGE, "no columns %lld to %lld", (long long)first,
                    (long long)(first + count));
    s->out[0] = *s->in[0];
    s->out[0].dim[rank - 1] = count;
    return STATUS_OK;
}

/* Such a gradient is a row of zeros around what flows back, which no model needs. */
const struct op op_columns = {
    .name = "columns",
    .summary = "some columns of each row",
    .min_in = 1,
    .max_in = 1,
    .min_out = 1,
    .max_out = 1,
    .split = { SPLIT_ROWS },
    .by_rows = true,
    .infer = infer_columns,
};
