/* SPDX-License-Identifier: MIT */
/* op_embedding.c - rows of a table by number: embeddings, their mean over a sequence, their gradients.
 *
 * ids (N, T) are numbers of rows of a table (V, D), or -1: padding, which is a row of zeros without
 * gradient and has no part in a mean. The table lies plain, a row after the other.
 *
 * The gradient of a table is a sum of rows of dy, one an id: dense, it is the table's size, most of it
 * zero. rows_sort brings a shard's ids into the order in which these sums are made row by row,
 * which is what takes its place where only some rows change (pass/split_batch.c).
 */
#include "graph/op.h"

static enum status check_ids(const struct shape *ids)
{
    if (ids->rank != 2)
        return FAIL(STATUS_USAGE, "needs ids (samples, length)");
    return STATUS_OK;
}

static enum status infer_embedding(const struct node *node, struct op_shapes *s)
{
    const struct shape *ids = s->in[0], *table = s->in[1];

    TRY(check_ids(ids));
    if (table->rank != 2)
        return FAIL(STATUS_USAGE, "the table is no matrix");
    s->out[0] = node->op == &op_embedding_mean
                    ? shape_2(ids->dim[0], table->dim[1])
                    : shape_3(ids->dim[0], ids->dim[1], table->dim[1]);
    return STATUS_OK;
}

/* The table's gradient from dy, of each id or of each sample. */
static struct value *add_table_gradient(struct graph *graph, const struct node *node,
                                        struct value *dy)
{
    const struct attrs attrs = { .rows = node->in[1]->shape.dim[0] };
    struct value *const in[] = { dy, node->in[0] };
    struct node *grad = graph_add(graph, &op_embedding_grad, node->in[1]->name, in, 2, &attrs);

    return grad ? grad->out[0] : NULL;
}

static void gradient_embedding(struct graph *graph, const struct node *node,
                               struct value *const *dout, const bool *wanted,
                               struct value **din)
{
    if (wanted[1])
        din[1] = add_table_gradient(graph, node, dout[0]);
}

static double flops_embedding(const struct node *node, const struct shape *const *in,
                              const struct shape *out)
{
    (void)node, (void)out;
    return (double)shape_count(in[0]) * (double)in[1]->dim[1];
}

/* A rank has some rows of the table, or some columns. */
static const struct op_way ways_embedding[] = {
    { .name = "vocabulary", .in = { AXIS_NONE, AXIS_0 }, .out = { AXIS_SUM } },
    { .name = "columns", .in = { AXIS_NONE, AXIS_1 }, .out = { AXIS_FEATURES } },
    { 0 },
};

const struct op op_embedding = {
    .name = "embedding",
    .summary = "rows of a table by their numbers",
    .min_in = 2,
    .max_in = 2,
    .min_out = 1,
    .max_out = 1,
    .in_dtype = { DTYPE_I32, DTYPE_F32 },
    .split = { SPLIT_ROWS },
    .infer = infer_embedding,
    .gradient = gradient_embedding,
    .flops = flops_embedding,
    .ways = ways_embedding,
};

/* dy has a row an id, or a row a sample that all of its ids share. */
static enum status infer_embedding_grad(const struct node *node, struct op_shapes *s)
{
    const struct shape *dy = s->in[0], *ids = s->in[1], *base = s->in[2];

    TRY(check_ids(ids));
    if (dy->rank < 2 || dy->rank > 3 || dy->dim[0] != ids->dim[0] ||
        (dy->rank == 3 && dy->dim[1] != ids->dim[1]))
        return FAIL(STATUS_USAGE, "gradient and ids do not fit");
    if (node->attrs.rows < 1)
        return FAIL(STATUS_USAGE, "a table of %lld rows", (long long)node->attrs.rows);
    s->out[0] = shape_2(node->attrs.rows, dy->dim[dy->rank - 1]);
    if (base && !shape_equal(base, &s->out[0]))
        return FAIL(STATUS_USAGE, "what is added to has another shape");
    return STATUS_OK;
}

static double flops_embedding_grad(const struct node *node, const struct shape *const *in,
                                   const struct shape *out)
{
    (void)node;
    return (double)shape_count(in[1]) * (double)out[0].dim[1];
}

const struct op op_embedding_grad = {
    .name = "embedding_grad",
    .summary = "gradient of a table of embeddings, all rows of it",
    .min_in = 2,
    .max_in = 3,
    .min_out = 1,
    .max_out = 1,
    .in_dtype = { DTYPE_F32, DTYPE_I32, DTYPE_F32 },
    .split = { SPLIT_SUM },
    .extends = 2,
    .infer = infer_embedding_grad,
    .flops = flops_embedding_grad,
};

static void gradient_embedding_mean(struct graph *graph, const struct node *node,
                                    struct value *const *dout, const bool *wanted,
                                    struct value **din)
{
    struct value *const in[] = { dout[0], node->in[0] };

    if (!wanted[1])
        return;
    struct node *share = graph_add(graph, &op_embedding_mean_grad, node->name, in, 2, NULL);
    din[1] = share ? add_table_gradient(graph, node, share->out[0]) : NULL;
}

static const struct op_way ways_embedding_mean[] = {
    { .name = "columns", .in = { AXIS_NONE, AXIS_1 }, .out = { AXIS_FEATURES } },
    { 0 },
};

const struct op op_embedding_mean = {
    .name = "embedding_mean",
    .summary = "mean of rows of a table, by their numbers",
    .min_in = 2,
    .max_in = 2,
    .min_out = 1,
    .max_out = 1,
    .in_dtype = { DTYPE_I32, DTYPE_F32 },
    .split = { SPLIT_ROWS },
    .infer = infer_embedding,
    .gradient = gradient_embedding_mean,
    .flops = flops_embedding,
    .ways = ways_embedding_mean,
};

static enum status infer_embedding_mean_grad(const struct node *node, struct op_shapes *s)
{
    (void)node;
    TRY(check_ids(s->in[1]));
    if (s->in[0]->rank != 2 || s->in[0]->dim[0] != s->in[1]->dim[0])
        return FAIL(STATUS_USAGE, "gradient and ids do not fit");
    s->out[0] = *s->in[0];
    return STATUS_OK;
}

const struct op op_embedding_mean_grad = {
    .name = "embedding_mean_grad",
    .summary = "gradient of a mean of embeddings for each of them",
    .min_in = 2,
    .max_in = 2,
    .min_out = 1,
    .max_out = 1,
    .in_dtype = { DTYPE_F32, DTYPE_I32 },
    .split = { SPLIT_ROWS },
    .infer = infer_embedding_mean_grad,
};

/* Pairs of an id and its row of dy; and where in them each of ROWS_BLOCKS ranges of ids begins. */
static enum status infer_rows_sort(const struct node *node, struct op_shapes *s)
{
    const struct shape *ids = s->in[0];

    TRY(check_ids(ids));
    if (node->attrs.rows < 1 || node->attrs.rows > INT32_MAX)
        return FAIL(STATUS_USAGE, "ids of %lld rows", (long long)node->attrs.rows);
    if (shape_count(ids) > INT32_MAX / 2)
        return FAIL(STATUS_USAGE,
                    "a shard has %lld ids, at most %d can be sorted: use a smaller --batch or "
                    "more --shards",
                    (long long)shape_count(ids), INT32_MAX / 2);
    s->out[0] = shape_3(ids->dim[0], ids->dim[1], 2);
    s->out[1] = shape_1(ROWS_BLOCKS + 1);
    s->dtype[0] = s->dtype[1] = DTYPE_I32;
    return STATUS_OK;
}

const struct op op_rows_sort = {
    .name = "rows_sort",
    .summary = "ids of a shard in ascending order, with their places",
    .min_in = 1,
    .max_in = 1,
    .min_out = 2,
    .max_out = 2,
    .in_dtype = { DTYPE_I32 },
    .split = { SPLIT_SHARD, SPLIT_SHARD },
    .across_samples = true,
    .infer = infer_rows_sort,
};
