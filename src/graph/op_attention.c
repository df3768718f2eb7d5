/* SPDX-License-Identifier: MIT */
/* op_attention.c - what tokens of a sequence see of each other, and where they stand.
 *
 * qkv (N, T, 3D) holds query, key and value of a token one after another, each of `heads` parts
 * of D/heads numbers. In a head, token i gets the mean of all values v_j weighted by
 * softmax_j(q_i k_j / sqrt(D/heads)); with `causal` of those with j <= i. A key whose id is negative
 * is not seen; a token that sees nothing gets zeros. lse (N, T, heads) is the logarithm of the sum of
 * exponentials, from which backward makes the weights again: none of them is kept.
 *
 * attention_step is the same for T tokens that come after those whose keys and values are in a cache
 * (N, C, 2D): token i of sample n stands at first[n] + i and sees what is before it.
 */
#include "graph/op.h"

/* N and T agree; qkv has `parts` times the features of what `features` says, or of the heads. */
static enum status check_qkv(const struct node *node, const struct shape *qkv)
{
    const int heads = node->attrs.heads;

    if (qkv->rank != 3)
        return FAIL(STATUS_USAGE, "needs sequences");
    if (heads < 1 || qkv->dim[2] % (3 * (int64_t)heads) != 0)
        return FAIL(STATUS_USAGE, "%lld features are not queries, keys and values of %d heads",
                    (long long)qkv->dim[2], heads);
    return STATUS_OK;
}

static enum status check_ids(const struct shape *qkv, const struct shape *ids)
{
    if (ids && (ids->rank != 2 || ids->dim[0] != qkv->dim[0] || ids->dim[1] != qkv->dim[1]))
        return FAIL(STATUS_USAGE, "ids are not those of %lld sequences of %lld tokens",
                    (long long)qkv->dim[0], (long long)qkv->dim[1]);
    return STATUS_OK;
}

static enum status infer_attention(const struct node *node, struct op_shapes *s)
{
    const struct shape *qkv = s->in[0];

    TRY(check_qkv(node, qkv));
    TRY(check_ids(qkv, s->in[1]));
    s->out[0] = shape_3(qkv->dim[0], qkv->dim[1], qkv->dim[2] / 3);
    s->out[1] = shape_3(qkv->dim[0], qkv->dim[1], node->attrs.heads);
    return STATUS_OK;
}

static void gradient_attention(struct graph *graph, const struct node *node,
                               struct value *const *dout, const bool *wanted,
                               struct value **din)
{
    struct value *const in[] = { dout[0], node->in[0], node->out[0], node->out[1],
                                 node->n_in > 1 ? node->in[1] : NULL };

    if (!wanted[0])
        return;
    struct node *grad = graph_add(graph, &op_attention_grad, node->name, in, 5, &node->attrs);
    din[0] = grad ? grad->out[0] : NULL;
}

/* Products of `count` matrices of a token and what it sees. */
static double flops_products(const struct node *node, const struct shape *qkv, double count)
{
    const double pairs =
        (double)qkv->dim[1] * ((double)qkv->dim[1] + 1) / (node->attrs.causal ? 2 : 1);

    return count * 2.0 * (double)qkv->dim[0] * pairs * (double)qkv->dim[2] / 3;
}

static double flops_attention(const struct node *node, const struct shape *const *in,
                              const struct shape *out)
{
    (void)out;
    return flops_products(node, in[0], 2);
}

/* A rank has some heads: their queries, keys and values. */
static bool can_share_heads(const struct node *node, int count)
{
    return node->attrs.heads % count == 0;
}

static void cut_heads(struct attrs *attrs, const struct shape_slice *slice)
{
    attrs->heads /= slice->count;
}

static const struct op_way ways_attention[] = {
    { .name = "heads",
      .in = { AXIS_FEATURES },
      .out = { AXIS_FEATURES, AXIS_FEATURES },
      .parts = 3,
      .can = can_share_heads,
      .cut = cut_heads },
    { 0 },
};

const struct op op_attention = {
    .name = "attention",
    .summary = "tokens of a sequence take what they see of each other",
    .min_in = 1,
    .max_in = 2,
    .min_out = 2,
    .max_out = 2,
    .in_dtype = { DTYPE_F32, DTYPE_I32 },
    .split = { SPLIT_ROWS, SPLIT_ROWS },
    .infer = infer_attention,
    .gradient = gradient_attention,
    .flops = flops_attention,
    .ways = ways_attention,
};

static enum status infer_attention_grad(const struct node *node, struct op_shapes *s)
{
    const struct shape *dy = s->in[0], *qkv = s->in[1], *y = s->in[2], *lse = s->in[3];

    TRY(check_qkv(node, qkv));
    TRY(check_ids(qkv, s->in[4]));
    const struct shape out = shape_3(qkv->dim[0], qkv->dim[1], qkv->dim[2] / 3);
    const struct shape sums = shape_3(qkv->dim[0], qkv->dim[1], node->attrs.heads);
    if (!shape_equal(dy, &out) || !shape_equal(y, &out) || !shape_equal(lse, &sums))
        return FAIL(STATUS_USAGE, "gradient, output or sums are not of these sequences");
    s->out[0] = *qkv;
    return STATUS_OK;
}

static double flops_attention_grad(const struct node *node, const struct shape *const *in,
                                   const struct shape *out)
{
    (void)out;
    return flops_products(node, in[1], 5);
}

const struct op op_attention_grad = {
    .name = "attention_grad",
    .summary = "gradient of attention for queries, keys and values",
    .min_in = 4,
    .max_in = 5,
    .min_out = 1,
    .max_out = 1,
    .in_dtype = { DTYPE_F32, DTYPE_F32, DTYPE_F32, DTYPE_F32, DTYPE_I32 },
    .split = { SPLIT_ROWS },
    .infer = infer_attention_grad,
    .flops = flops_attention_grad,
};

static enum status infer_attention_step(const struct node *node, struct op_shapes *s)
{
    const struct shape *qkv = s->in[0], *cache = s->in[1], *first = s->in[2];

    TRY(check_qkv(node, qkv));
    if (cache->rank != 3 || cache->dim[0] != qkv->dim[0] ||
        cache->dim[2] != qkv->dim[2] / 3 * 2 || cache->dim[1] < qkv->dim[1])
        return FAIL(STATUS_USAGE, "cache does not hold keys and values of these sequences");
    if (first->rank != 1 || first->dim[0] != qkv->dim[0])
        return FAIL(STATUS_USAGE, "%lld places for %lld sequences", (long long)first->dim[0],
                    (long long)qkv->dim[0]);
    s->out[0] = shape_3(qkv->dim[0], qkv->dim[1], qkv->dim[2] / 3);
    return STATUS_OK;
}

static double flops_attention_step(const struct node *node, const struct shape *const *in,
                                   const struct shape *out)
{
    (void)node;
    return 4.0 * (double)shape_count(&out[0]) * (double)in[1]->dim[1];
}

const struct op op_attention_step = {
    .name = "attention_step",
    .summary = "attention of new tokens to those in a cache and to each other",
    .min_in = 3,
    .max_in = 3,
    .min_out = 1,
    .max_out = 1,
    .in_dtype = { DTYPE_F32, DTYPE_F32, DTYPE_I32 },
    .split = { SPLIT_ROWS },
    .infer = infer_attention_step,
    .flops = flops_attention_step,
};

/* positions ---------------------------------------------------------------------------- */

/* Rows of the table that sequences of so many tokens need; 0 if the period makes no sense. */
static int64_t rows_needed(const struct node *node, int64_t tokens)
{
    const int period = node->attrs.period;
    return period < 0 ? 0 : period > 0 && period < tokens ? period : tokens;
}

static enum status infer_add_positions(const struct node *node, struct op_shapes *s)
{
    const struct shape *x = s->in[0], *p = s->in[1], *first = s->in[2];

    if (x->rank != 3 || p->rank != 2 || p->dim[1] != x->dim[2] || node->attrs.period < 0)
        return FAIL(STATUS_USAGE, "positions are not of the features of sequences");
    if (p->dim[0] < rows_needed(node, x->dim[1]))
        return FAIL(STATUS_USAGE, "%lld positions for sequences of %lld tokens",
                    (long long)p->dim[0], (long long)x->dim[1]);
    if (first && (first->rank != 1 || first->dim[0] != x->dim[0]))
        return FAIL(STATUS_USAGE, "%lld places for %lld sequences", (long long)first->dim[0],
                    (long long)x->dim[0]);
    s->out[0] = *x;
    return STATUS_OK;
}

static void gradient_add_positions(struct graph *graph, const struct node *node,
                                   struct value *const *dout, const bool *wanted,
                                   struct value **din)
{
    const struct attrs attrs = { .extent = { (int)node->in[1]->shape.dim[0] },
                                 .period = node->attrs.period };

    if (node->n_in > 2) {
        graph_fail(graph,
                   FAIL(STATUS_USAGE, "%s: sequences that begin anywhere are not trained",
                        node->name));
        return;
    }
    if (wanted[0])
        din[0] = dout[0];
    if (!wanted[1])
        return;
    struct node *grad =
        graph_add(graph, &op_positions_grad, node->in[1]->name, &dout[0], 1, &attrs);
    din[1] = grad ? grad->out[0] : NULL;
}

const struct op op_add_positions = {
    .name = "add_positions",
    .summary = "adds to token t row t of a matrix, or row first + t",
    .min_in = 2,
    .max_in = 3,
    .min_out = 1,
    .max_out = 1,
    .in_dtype = { DTYPE_F32, DTYPE_F32, DTYPE_I32 },
    .split = { SPLIT_ROWS },
    .may_overwrite = true,
    .infer = infer_add_positions,
    .gradient = gradient_add_positions,
};

static enum status infer_positions_grad(const struct node *node, struct op_shapes *s)
{
    const struct shape *dy = s->in[0];

    if (dy->rank != 3 || node->attrs.period < 0 || node->attrs.extent[0] < 1 ||
        node->attrs.extent[0] < rows_needed(node, dy->dim[1]))
        return FAIL(STATUS_USAGE, "%d positions for the gradient", node->attrs.extent[0]);
    s->out[0] = shape_2(node->attrs.extent[0], dy->dim[2]);
    return STATUS_OK;
}

const struct op op_positions_grad = {
    .name = "positions_grad",
    .summary = "sums over the sequences; zeros for positions that none has",
    .min_in = 1,
    .max_in = 1,
    .min_out = 1,
    .max_out = 1,
    .split = { SPLIT_SUM },
    .infer = infer_positions_grad,
};
