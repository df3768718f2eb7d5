/* SPDX-License-Identifier: MIT */
/* op_conv1d.c - convolution along sequences, alone or with the maximum over time after it, and
 * gradients.
 *
 * x (N, T, C), w (O, C, k), b (O), y (N, T-k+1, O); no padding, but a sequence that is shorter than
 * the window is read as if zeros followed. conv1d_max does conv1d, the activation and
 * max_over_time in one go, so that y never reaches memory; its second output says where each
 * maximum stood, and its gradients touch these places alone. T is taken from x, so that one graph
 * serves sequences of any length.
 */
#include "graph/op.h"

/* Places that a window of k has along T; 0 if the numbers make no sense. */
static int64_t places_of(int64_t t, int64_t k)
{
    return t < 1 || k < 1 ? 0 : t < k ? 1 : t - k + 1;
}

static enum status infer_conv1d(const struct node *node, struct op_shapes *s)
{
    const struct shape *x = s->in[0], *w = s->in[1], *b = s->in[2];

    (void)node;
    if (x->rank != 3 || w->rank != 3)
        return FAIL(STATUS_USAGE, "a sequence and a weight of rank %d and %d, not 3", x->rank,
                    w->rank);
    if (x->dim[2] != w->dim[1])
        return FAIL(STATUS_USAGE, "sequence of %lld features, weight for %lld",
                    (long long)x->dim[2], (long long)w->dim[1]);
    if (b && (b->rank != 1 || b->dim[0] != w->dim[0]))
        return FAIL(STATUS_USAGE, "bias of %lld for %lld filters", (long long)b->dim[0],
                    (long long)w->dim[0]);
    s->out[0] = shape_3(x->dim[0], places_of(x->dim[1], w->dim[2]), w->dim[0]);
    return STATUS_OK;
}

static double flops_conv1d(const struct node *node, const struct shape *const *in,
                           const struct shape *out)
{
    const struct shape *w = in[1];

    (void)node;
    return 2.0 * (double)(w->dim[1] * w->dim[2]) * (double)shape_count(&out[0]);
}

/* The gradient of the weight, with the bias's if that is wanted; `index` NULL: from dy of a plain
 * output. */
static void weight_gradients(struct graph *graph, const struct node *node, struct value *dy,
                             struct value *index, const bool *wanted, struct value **din)
{
    const struct attrs attrs = { .extent = { (int)node->in[1]->shape.dim[2] },
                                 .with_bias = node->n_in > 2 && wanted[2] };
    struct value *const in[] = { node->in[0], dy, index };
    const struct op *op = index ? &op_conv1d_max_grad_weight : &op_conv1d_grad_weight;
    struct node *grad = graph_add(graph, op, node->in[1]->name, in, 3, &attrs);

    din[1] = grad ? grad->out[0] : NULL;
    din[2] = grad && attrs.with_bias ? grad->out[1] : NULL;
}

static void gradient_conv1d(struct graph *graph, const struct node *node,
                            struct value *const *dout, const bool *wanted, struct value **din)
{
    struct value *dy = op_before_activation(graph, node, dout[0]);
    struct value *const in[] = { dy, node->in[1], node->in[0] };

    if (wanted[1])
        weight_gradients(graph, node, dy, NULL, wanted, din);
    if (wanted[0]) {
        struct node *grad = graph_add(graph, &op_conv1d_grad_input, node->name, in, 3, NULL);
        din[0] = grad ? grad->out[0] : NULL;
    }
}

static const struct op_way ways_conv1d[] = {
    { .name = "columns", .in = { AXIS_NONE, AXIS_0 }, .out = { AXIS_FEATURES } },
    { .name = "rows", .in = { AXIS_FEATURES, AXIS_1 }, .out = { AXIS_SUM } },
    { 0 },
};

const struct op op_conv1d = {
    .name = "conv1d",
    .summary = "convolution along sequences, bias, then the activation",
    .min_in = 2,
    .max_in = 3,
    .min_out = 1,
    .max_out = 1,
    .split = { SPLIT_ROWS },
    .infer = infer_conv1d,
    .gradient = gradient_conv1d,
    .flops = flops_conv1d,
    .ways = ways_conv1d,
};

/* x is there for its shape. */
static enum status infer_grad_input(const struct node *node, struct op_shapes *s)
{
    const struct shape *dy = s->in[0], *w = s->in[1], *x = s->in[2];

    (void)node;
    if (dy->rank != 3 || w->rank != 3 || x->rank != 3 || dy->dim[0] != x->dim[0] ||
        dy->dim[1] != places_of(x->dim[1], w->dim[2]) || dy->dim[2] != w->dim[0] ||
        x->dim[2] != w->dim[1])
        return FAIL(STATUS_USAGE, "gradient, weight and sequence do not fit");
    s->out[0] = *x;
    return STATUS_OK;
}

static double flops_grad_input(const struct node *node, const struct shape *const *in,
                               const struct shape *out)
{
    const struct shape *w = in[1];

    (void)node;
    (void)out;
    return 2.0 * (double)(w->dim[1] * w->dim[2]) * (double)shape_count(in[0]);
}

const struct op op_conv1d_grad_input = {
    .name = "conv1d_grad_input",
    .summary = "gradient of conv1d for the sequence",
    .min_in = 3,
    .max_in = 3,
    .min_out = 1,
    .max_out = 1,
    .split = { SPLIT_ROWS },
    .infer = infer_grad_input,
    .flops = flops_grad_input,
};

static enum status infer_grad_weight(const struct node *node, struct op_shapes *s)
{
    const struct shape *x = s->in[0], *dy = s->in[1];
    const int64_t k = node->attrs.extent[0];

    if (x->rank != 3 || dy->rank != 3 || x->dim[0] != dy->dim[0] || k < 1 ||
        dy->dim[1] != places_of(x->dim[1], k))
        return FAIL(STATUS_USAGE, "sequence and gradient do not fit a window of %lld",
                    (long long)k);
    s->out[0] = shape_3(dy->dim[2], x->dim[2], k);
    s->out[1] = shape_1(dy->dim[2]);
    return STATUS_OK;
}

static double flops_grad_weight(const struct node *node, const struct shape *const *in,
                                const struct shape *out)
{
    (void)out;
    return 2.0 * (double)(in[0]->dim[2] * node->attrs.extent[0]) * (double)shape_count(in[1]);
}

const struct op op_conv1d_grad_weight = {
    .name = "conv1d_grad_weight",
    .summary = "gradients of conv1d for the weight and the bias",
    .min_in = 2,
    .max_in = 2,
    .min_out = 1,
    .max_out = 2,
    .split = { SPLIT_SUM, SPLIT_SUM },
    .infer = infer_grad_weight,
    .flops = flops_grad_weight,
};

/* With the maximum over time ------------------------------------------------------------- */

static enum status infer_conv1d_max(const struct node *node, struct op_shapes *s)
{
    if (node->attrs.activation != ACTIVATION_NONE && node->attrs.activation != ACTIVATION_RELU)
        return FAIL(STATUS_USAGE, "activation %s before a maximum",
                    activation_name(node->attrs.activation));
    TRY(infer_conv1d(node, s));
    s->out[0] = s->out[1] = shape_2(s->out[0].dim[0], s->out[0].dim[2]);
    s->dtype[1] = DTYPE_I32;
    return STATUS_OK;
}

static void gradient_conv1d_max(struct graph *graph, const struct node *node,
                                struct value *const *dout, const bool *wanted,
                                struct value **din)
{
    struct value *index = node->out[1];
    struct value *const in[] = { dout[0], index, node->in[1], node->in[0] };

    if (wanted[1])
        weight_gradients(graph, node, dout[0], index, wanted, din);
    if (wanted[0]) {
        struct node *grad =
            graph_add(graph, &op_conv1d_max_grad_input, node->name, in, 4, NULL);
        din[0] = grad ? grad->out[0] : NULL;
    }
}

static double flops_conv1d_max(const struct node *node, const struct shape *const *in,
                               const struct shape *out)
{
    return flops_conv1d(node, in, out) * (double)places_of(in[0]->dim[1], in[1]->dim[2]);
}

const struct op op_conv1d_max = {
    .name = "conv1d_max",
    .summary = "convolution along sequences, bias, activation, the largest over time",
    .min_in = 2,
    .max_in = 3,
    .min_out = 2,
    .max_out = 2,
    .split = { SPLIT_ROWS, SPLIT_ROWS },
    .infer = infer_conv1d_max,
    .gradient = gradient_conv1d_max,
    .flops = flops_conv1d_max,
};

/* dy (N, O), its index, w, x for its shape, and what it is added to. */
static enum status infer_max_grad_input(const struct node *node, struct op_shapes *s)
{
    const struct shape *dy = s->in[0], *w = s->in[2], *x = s->in[3], *base = s->in[4];

    (void)node;
    if (dy->rank != 2 || !shape_equal(dy, s->in[1]) || w->rank != 3 || x->rank != 3 ||
        dy->dim[0] != x->dim[0] || dy->dim[1] != w->dim[0] || x->dim[2] != w->dim[1] ||
        (base && !shape_equal(base, x)))
        return FAIL(STATUS_USAGE, "gradient, weight and sequence do not fit");
    s->out[0] = *x;
    return STATUS_OK;
}

static double flops_max_grad_input(const struct node *node, const struct shape *const *in,
                                   const struct shape *out)
{
    (void)node;
    (void)out;
    return 2.0 * (double)(in[2]->dim[1] * in[2]->dim[2]) * (double)shape_count(in[0]);
}

const struct op op_conv1d_max_grad_input = {
    .name = "conv1d_max_grad_input",
    .summary = "gradient of conv1d_max for the sequence",
    .min_in = 4,
    .max_in = 5,
    .min_out = 1,
    .max_out = 1,
    .in_dtype = { DTYPE_F32, DTYPE_I32 },
    .split = { SPLIT_ROWS },
    .extends = 4,
    .infer = infer_max_grad_input,
    .flops = flops_max_grad_input,
};

static enum status infer_max_grad_weight(const struct node *node, struct op_shapes *s)
{
    const struct shape *x = s->in[0], *dy = s->in[1];
    const int64_t k = node->attrs.extent[0];

    if (x->rank != 3 || dy->rank != 2 || x->dim[0] != dy->dim[0] || k < 1 ||
        !shape_equal(dy, s->in[2]))
        return FAIL(STATUS_USAGE, "sequence and gradient do not fit a window of %lld",
                    (long long)k);
    s->out[0] = shape_3(dy->dim[1], x->dim[2], k);
    s->out[1] = shape_1(dy->dim[1]);
    return STATUS_OK;
}

const struct op op_conv1d_max_grad_weight = {
    .name = "conv1d_max_grad_weight",
    .summary = "gradients of conv1d_max for the weight and the bias",
    .min_in = 3,
    .max_in = 3,
    .min_out = 1,
    .max_out = 2,
    .in_dtype = { DTYPE_F32, DTYPE_F32, DTYPE_I32 },
    .split = { SPLIT_SUM, SPLIT_SUM },
    .infer = infer_max_grad_weight,
    .flops = flops_grad_weight,
};

/* The maximum alone ---------------------------------------------------------------------- */

static enum status infer_max_over_time(const struct node *node, struct op_shapes *s)
{
    const struct shape *x = s->in[0];

    (void)node;
    if (x->rank != 3)
        return FAIL(STATUS_USAGE, "input of rank %d is no batch of sequences", x->rank);
    s->out[0] = s->out[1] = shape_2(x->dim[0], x->dim[2]);
    s->dtype[1] = DTYPE_I32;
    return STATUS_OK;
}

static void gradient_max_over_time(struct graph *graph, const struct node *node,
                                   struct value *const *dout, const bool *wanted,
                                   struct value **din)
{
    struct value *const in[] = { dout[0], node->out[1], node->in[0] };

    if (wanted[0]) {
        struct node *grad = graph_add(graph, &op_max_over_time_grad, node->name, in, 3, NULL);
        din[0] = grad ? grad->out[0] : NULL;
    }
}

static double flops_max_over_time(const struct node *node, const struct shape *const *in,
                                  const struct shape *out)
{
    (void)node;
    (void)out;
    return (double)shape_count(in[0]);
}

const struct op op_max_over_time = {
    .name = "max_over_time",
    .summary = "largest of each feature along a sequence, and where it stood",
    .min_in = 1,
    .max_in = 1,
    .min_out = 2,
    .max_out = 2,
    .split = { SPLIT_ROWS, SPLIT_ROWS },
    .infer = infer_max_over_time,
    .gradient = gradient_max_over_time,
    .flops = flops_max_over_time,
    .ways = op_ways_pixels,
};

/* x is there for its shape. */
static enum status infer_max_over_time_grad(const struct node *node, struct op_shapes *s)
{
    const struct shape *dy = s->in[0], *x = s->in[2];

    (void)node;
    if (dy->rank != 2 || !shape_equal(dy, s->in[1]) || x->rank != 3 ||
        dy->dim[0] != x->dim[0] || dy->dim[1] != x->dim[2])
        return FAIL(STATUS_USAGE, "gradient does not fit the sequence");
    s->out[0] = *x;
    return STATUS_OK;
}

const struct op op_max_over_time_grad = {
    .name = "max_over_time_grad",
    .summary = "sends each gradient to where the maximum stood",
    .min_in = 3,
    .max_in = 3,
    .min_out = 1,
    .max_out = 1,
    .in_dtype = { DTYPE_F32, DTYPE_I32 },
    .split = { SPLIT_ROWS },
    .infer = infer_max_over_time_grad,
};
