/* SPDX-License-Identifier: MIT */
/* op_batch_norm.c - batch normalization of images, with what may be joined to it.
 *
 * y = activation(gamma * (x - mean) * rstd + beta [+ residual]), mean and rstd = 1/sqrt(variance +
 * epsilon) of each channel over all places of all samples of the shard. Two more outputs are what
 * this shard saw, for the running averages: summands, as each is weighted by the shard's samples.
 * batch_norm_apply is the same with the averages in place of the shard's statistics.
 */
#include "graph/op.h"

/* Inputs 1 to `last` are a number a channel each; a residual is as large as x. */
static enum status check_inputs(const struct node *node, const struct op_shapes *s, int last)
{
    const struct shape *x = s->in[0];

    if (x->rank != 4)
        return FAIL(STATUS_USAGE, "needs images");
    for (int i = 1; i <= last; i++) {
        if (s->in[i]->rank != 1 || s->in[i]->dim[0] != x->dim[1])
            return FAIL(STATUS_USAGE, "%lld numbers for %lld channels",
                        (long long)s->in[i]->dim[0], (long long)x->dim[1]);
    }
    if (s->in[last + 1] && !shape_equal(s->in[last + 1], x)) {
        char a[SHAPE_TEXT], b[SHAPE_TEXT];
        return FAIL(STATUS_USAGE, "shapes %s and %s differ", shape_print(x, a),
                    shape_print(s->in[last + 1], b));
    }
    if (node->attrs.activation == ACTIVATION_SIGMOID)
        return FAIL(STATUS_USAGE, "a sigmoid cannot be joined");
    return STATUS_OK;
}

static enum status infer_batch_norm(const struct node *node, struct op_shapes *s)
{
    TRY(check_inputs(node, s, 2));
    s->out[0] = *s->in[0];
    s->out[1] = shape_2(2, s->in[0]->dim[1]);
    s->out[2] = s->out[3] = shape_1(s->in[0]->dim[1]);
    return STATUS_OK;
}

/* One node makes all: what flows into the residual is what its sums are made of. */
static void gradient_batch_norm(struct graph *graph, const struct node *node,
                                struct value *const *dout, const bool *wanted,
                                struct value **din)
{
    const bool is_active = node->attrs.activation != ACTIVATION_NONE;
    const bool with_residual = node->n_in > 3 && wanted[3];
    const struct attrs attrs = { .activation = node->attrs.activation,
                                 .with_residual = with_residual && is_active };
    struct value *const in[] = { dout[0], node->in[0], node->in[1], node->out[1],
                                 is_active ? node->out[0] : NULL };
    struct node *grad = graph_add(graph, &op_batch_norm_grad, node->name, in, 5, &attrs);

    if (!grad)
        return;
    for (int i = 0; i < 3; i++)
        din[i] = grad->out[i];
    if (with_residual)
        din[3] = is_active ? grad->out[3] : dout[0];
}

/* For an element: two sums, scale and shift, the activation. */
static double flops_batch_norm(const struct node *node, const struct shape *const *in,
                               const struct shape *out)
{
    (void)node;
    (void)out;
    return 6.0 * (double)shape_count(in[0]);
}

static const struct op_way ways_batch_norm[] = {
    { .name = "channels",
      .in = { AXIS_FEATURES, AXIS_0, AXIS_0 },
      .out = { AXIS_FEATURES, AXIS_1, AXIS_0, AXIS_0 } },
    { 0 },
};

const struct op op_batch_norm = {
    .name = "batch_norm",
    .summary = "zero mean and unit variance a channel, then scale, shift and activation",
    .min_in = 3,
    .max_in = 4,
    .min_out = 4,
    .max_out = 4,
    .split = { SPLIT_ROWS, SPLIT_SHARD, SPLIT_SUM, SPLIT_SUM },
    .across_samples = true,
    .infer = infer_batch_norm,
    .gradient = gradient_batch_norm,
    .flops = flops_batch_norm,
    .ways = ways_batch_norm,
};

static enum status infer_batch_norm_grad(const struct node *node, struct op_shapes *s)
{
    const struct shape *dy = s->in[0], *x = s->in[1], *gamma = s->in[2], *saved = s->in[3];
    const struct shape *y = s->in[4], *more = s->in[5];

    if (dy->rank != 4 || !shape_equal(dy, x) || (more && !shape_equal(dy, more)) ||
        (y && !shape_equal(dy, y) && !shape_equal(gamma, y)))
        return FAIL(STATUS_USAGE, "gradient and images have different shapes");
    if (gamma->rank != 1 || gamma->dim[0] != x->dim[1] || saved->rank != 2 ||
        saved->dim[0] != 2 || saved->dim[1] != x->dim[1])
        return FAIL(STATUS_USAGE, "scale or statistics are not of %lld channels",
                    (long long)x->dim[1]);
    if ((y != NULL) != (node->attrs.activation != ACTIVATION_NONE) ||
        node->attrs.activation == ACTIVATION_SIGMOID)
        return FAIL(STATUS_USAGE, "needs the output if there is an activation, else none");
    if (y && node->n_out > 3 && !shape_equal(dy, y))
        return FAIL(STATUS_USAGE, "a residual's gradient needs the output");
    s->out[0] = s->out[3] = *x;
    s->out[1] = s->out[2] = *gamma;
    return STATUS_OK;
}

static double flops_batch_norm_grad(const struct node *node, const struct shape *const *in,
                                    const struct shape *out)
{
    (void)node;
    (void)out;
    return 9.0 * (double)shape_count(in[0]);
}

/* Inputs: dy, x, gamma, saved; with an activation its output, or beta, from which it can be made again where there was no
 * residual; then a second summand of dy (pass/join.c). */
const struct op op_batch_norm_grad = {
    .name = "batch_norm_grad",
    .summary = "gradients of batch_norm for images, scale, shift and residual",
    .min_in = 4,
    .max_in = 6,
    .min_out = 3,
    .max_out = 4,
    .split = { SPLIT_ROWS, SPLIT_SUM, SPLIT_SUM, SPLIT_ROWS },
    .across_samples = true,
    .infer = infer_batch_norm_grad,
    .flops = flops_batch_norm_grad,
};

static enum status infer_batch_norm_apply(const struct node *node, struct op_shapes *s)
{
    TRY(check_inputs(node, s, 4));
    s->out[0] = *s->in[0];
    return STATUS_OK;
}

static const struct op_way ways_apply[] = {
    { .name = "channels",
      .in = { AXIS_FEATURES, AXIS_0, AXIS_0, AXIS_0, AXIS_0 },
      .out = { AXIS_FEATURES } },
    { 0 },
};

const struct op op_batch_norm_apply = {
    .name = "batch_norm_apply",
    .summary = "batch_norm with running averages as the statistics",
    .min_in = 5,
    .max_in = 6,
    .min_out = 1,
    .max_out = 1,
    .split = { SPLIT_ROWS },
    .infer = infer_batch_norm_apply,
    .ways = ways_apply,
};
