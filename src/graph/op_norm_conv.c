/* SPDX-License-Identifier: MIT */
/* op_norm_conv.c - convolutions that do the work of the batch norms before and after them.
 *
 *   x -> conv2d -> z -> batch_norm -> a -> conv2d -> ...      as it was
 *   x -> conv2d_stats -> z, saved -> norm_conv2d -> ...       as fuse makes it
 *
 * conv2d_stats also makes the mean and rstd of each channel of z, norm_conv2d normalizes what it reads, and
 * norm_conv2d_stats does both, so that a lies nowhere. z and saved are differentiated each with the other held:
 * dz is what flows into z through the normalization alone, dsaved what flows into mean and rstd, and who made z adds
 *
 *     dz + dmean / n - drstd rstd^3 (z - mean) / n
 *
 * before it goes on.
 */
#include "graph/op.h"

/* Inputs: x, w, and of the norm gamma, beta and saved. */
enum { IN_GAMMA = 2, IN_SAVED = 4, N_NORM = 3 };

static bool is_normed(const struct op *op)
{
    return op == &op_norm_conv2d || op == &op_norm_conv2d_stats;
}

static enum status infer_norm_conv(const struct node *node, struct op_shapes *s)
{
    const struct shape *x = s->in[0], *w = s->in[1];

    for (int i = IN_GAMMA; is_normed(node->op) && i <= IN_SAVED; i++) {
        const struct shape *numbers = s->in[i];
        const int last = numbers->rank - 1;
        if (numbers->rank != (i == IN_SAVED ? 2 : 1) || x->rank != 4 ||
            numbers->dim[last] != x->dim[1] || (last > 0 && numbers->dim[0] != 2))
            return FAIL(STATUS_USAGE, "the norm's numbers do not fit the image");
    }
    if (node->attrs.activation > (is_normed(node->op) ? ACTIVATION_RELU6 : ACTIVATION_NONE))
        return FAIL(STATUS_USAGE, "%s cannot be joined",
                    activation_name(node->attrs.activation));
    struct op_shapes plain = { .in = { x, w } };
    TRY(op_conv2d.infer(node, &plain));
    s->out[0] = plain.out[0];
    s->out[1] = shape_2(2, w->dim[0]);
    s->out[2] = s->out[3] = shape_1(w->dim[0]);
    return STATUS_OK;
}

/* One node makes all gradients, as each of them needs the same images. */
static void gradient_norm_conv(struct graph *graph, const struct node *node,
                               struct value *const *dout, const bool *wanted,
                               struct value **din)
{
    const bool has_norm = is_normed(node->op);
    const bool has_stats = node->n_out > 1 && dout[1] != NULL;
    struct attrs attrs = node->attrs;

    if (!has_norm && !has_stats) { /* nobody looks at the statistics */
        op_conv2d.gradient(graph, node, dout, wanted, din);
        return;
    }
    attrs.epsilon = 0;
    struct value *in[GRAPH_IN] = { dout[0], node->in[1], node->in[0] };
    int n = 3;
    for (int i = 0; has_norm && i < N_NORM; i++)
        in[n++] = node->in[IN_GAMMA + i];
    if (has_stats) {
        in[n++] = node->out[0];
        in[n++] = node->out[1];
        in[n++] = dout[1];
    }
    const struct op *op = !has_norm   ? &op_conv2d_stats_grad
                          : has_stats ? &op_norm_conv2d_stats_grad
                                      : &op_norm_conv2d_grad;
    struct node *grad = graph_add(graph, op, node->name, in, n, &attrs);
    for (int i = 0; grad && i < grad->n_out; i++)
        din[i] = grad->out[i];
}

static double flops_norm_conv(const struct node *node, const struct shape *const *in,
                              const struct shape *out)
{
    const double norm = is_normed(node->op) ? 3.0 * (double)shape_count(in[0]) : 0;
    const double stats = node->n_out > 1 ? 3.0 * (double)shape_count(&out[0]) : 0;

    return op_conv2d.flops(node, in, out) + norm + stats;
}

const struct op op_conv2d_stats = {
    .name = "conv2d_stats",
    .summary = "conv2d, and mean and rstd of each channel of what it makes",
    .min_in = 2,
    .max_in = 2,
    .min_out = 4,
    .max_out = 4,
    .split = { SPLIT_ROWS, SPLIT_SHARD, SPLIT_SUM, SPLIT_SUM },
    .across_samples = true,
    .infer = infer_norm_conv,
    .gradient = gradient_norm_conv,
    .flops = flops_norm_conv,
};

const struct op op_norm_conv2d = {
    .name = "norm_conv2d",
    .summary = "conv2d of the normalized input, after its activation",
    .min_in = 5,
    .max_in = 5,
    .min_out = 1,
    .max_out = 1,
    .split = { SPLIT_ROWS },
    .infer = infer_norm_conv,
    .gradient = gradient_norm_conv,
    .flops = flops_norm_conv,
};

const struct op op_norm_conv2d_stats = {
    .name = "norm_conv2d_stats",
    .summary = "norm_conv2d, and mean and rstd of each channel of what it makes",
    .min_in = 5,
    .max_in = 5,
    .min_out = 4,
    .max_out = 4,
    .split = { SPLIT_ROWS, SPLIT_SHARD, SPLIT_SUM, SPLIT_SUM },
    .across_samples = true,
    .infer = infer_norm_conv,
    .gradient = gradient_norm_conv,
    .flops = flops_norm_conv,
};

/* Gradients ---------------------------------------------------------------------------------- */

static enum status infer_grad(const struct node *node, struct op_shapes *s)
{
    const struct shape *dz = s->in[0], *w = s->in[1], *x = s->in[2];
    struct op_shapes plain = { .in = { x, w } };

    TRY(op_conv2d.infer(node, &plain));
    if (!shape_equal(&plain.out[0], dz))
        return FAIL(STATUS_USAGE, "gradient and images have different shapes");
    const struct shape channels = shape_1(x->dim[1]), saved = shape_2(2, x->dim[1]);
    const struct shape made = shape_2(2, w->dim[0]);
    const struct shape *const numbers[] = { &channels, &channels, &saved, dz, &made, &made };
    const int first = node->op == &op_conv2d_stats_grad ? N_NORM : 0;
    const int end = node->op == &op_norm_conv2d_grad ? N_NORM : 2 * N_NORM;
    for (int i = first; i < end; i++) { /* after dz, w and x */
        if (!shape_equal(s->in[3 + i - first], numbers[i]))
            return FAIL(STATUS_USAGE, "a norm's numbers do not fit the images");
    }
    s->out[0] = *x;
    s->out[1] = *w;
    s->out[2] = s->out[3] = channels;
    s->out[4] = saved;
    return STATUS_OK;
}

static double flops_grad(const struct node *node, const struct shape *const *in,
                         const struct shape *out)
{
    const struct shape *w = in[1];
    const bool is_normed = node->op != &op_conv2d_stats_grad;

    return 4.0 * (double)(w->dim[1] * w->dim[2] * w->dim[3]) * (double)shape_count(in[0]) +
           (is_normed ? 8.0 : 0.0) * (double)shape_count(&out[0]) +
           (node->op != &op_norm_conv2d_grad ? 4.0 : 0.0) * (double)shape_count(in[0]);
}

const struct op op_conv2d_stats_grad = {
    .name = "conv2d_stats_grad",
    .summary = "gradients of conv2d_stats for its input and weight",
    .min_in = 6,
    .max_in = 6,
    .min_out = 2,
    .max_out = 2,
    .split = { SPLIT_ROWS, SPLIT_SUM },
    .across_samples = true,
    .infer = infer_grad,
    .flops = flops_grad,
};

const struct op op_norm_conv2d_grad = {
    .name = "norm_conv2d_grad",
    .summary = "gradients of norm_conv2d for its inputs",
    .min_in = 6,
    .max_in = 6,
    .min_out = 5,
    .max_out = 5,
    .split = { SPLIT_ROWS, SPLIT_SUM, SPLIT_SUM, SPLIT_SUM, SPLIT_SHARD },
    .across_samples = true,
    .infer = infer_grad,
    .flops = flops_grad,
};

const struct op op_norm_conv2d_stats_grad = {
    .name = "norm_conv2d_stats_grad",
    .summary = "gradients of norm_conv2d_stats for its inputs",
    .min_in = 9,
    .max_in = 9,
    .min_out = 5,
    .max_out = 5,
    .split = { SPLIT_ROWS, SPLIT_SUM, SPLIT_SUM, SPLIT_SUM, SPLIT_SHARD },
    .across_samples = true,
    .infer = infer_grad,
    .flops = flops_grad,
};
