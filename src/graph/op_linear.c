/* SPDX-License-Identifier: MIT */
/* op_linear.c - y = x W^T + b, and its gradients.
 *
 * x (m, k) or (samples, places, k), W (n, k) as PyTorch writes it, b (n), y (m, n) likewise; with
 * attrs.activation the activation is applied before y is stored. dx = dy W, dW = dy^T x, db = column
 * sums of dy. W lies output innermost, or row by row if it is a table that embeddings share.
 */
#include "graph/op.h"

/* Rows of features: samples, or the places of samples. */
static bool is_rows(const struct shape *x)
{
    return x->rank == 2 || x->rank == 3;
}

static int64_t features_of(const struct shape *x)
{
    return x->dim[x->rank - 1];
}

/* x with other features. */
static struct shape with_features(const struct shape *x, int64_t features)
{
    struct shape shape = *x;
    shape.dim[x->rank - 1] = features;
    return shape;
}

static enum status infer_linear(const struct node *node, struct op_shapes *s)
{
    const struct shape *x = s->in[0], *w = s->in[1], *b = s->in[2];

    (void)node;
    if (!is_rows(x) || w->rank != 2 || features_of(x) != w->dim[1])
        return FAIL(STATUS_USAGE, "input of %lld features, weight for %lld",
                    (long long)features_of(x), (long long)features_of(w));
    if (b && (b->rank != 1 || b->dim[0] != w->dim[0]))
        return FAIL(STATUS_USAGE, "bias of %lld for %lld outputs", (long long)b->dim[0],
                    (long long)w->dim[0]);
    s->out[0] = with_features(x, w->dim[0]);
    return STATUS_OK;
}

static double flops_linear(const struct node *node, const struct shape *const *in,
                           const struct shape *out)
{
    (void)node;
    return 2.0 * (double)features_of(in[0]) * (double)shape_count(&out[0]);
}

/* dy before the activation, from dy after it. */
static struct value *through_activation(struct graph *graph, const struct node *node,
                                        struct value *dy)
{
    if (node->attrs.activation == ACTIVATION_NONE)
        return dy;
    struct value *const in[] = { dy, node->out[0] };
    struct node *grad = graph_add(graph, &op_relu_grad, node->name, in, 2, NULL);
    return grad ? grad->out[0] : NULL;
}

static void gradient_linear(struct graph *graph, const struct node *node,
                            struct value *const *dout, const bool *wanted, struct value **din)
{
    struct value *dy = through_activation(graph, node, dout[0]);

    if (wanted[1]) {
        const struct attrs attrs = { .with_bias = node->n_in > 2 && wanted[2],
                                     .is_plain = node->in[1]->layout == LAYOUT_PLAIN };
        struct value *const in[] = { node->in[0], dy };
        struct node *grad =
            graph_add(graph, &op_linear_grad_weight, node->in[1]->name, in, 2, &attrs);
        din[1] = grad ? grad->out[0] : NULL;
        din[2] = grad && attrs.with_bias ? grad->out[1] : NULL;
    }
    if (wanted[0]) {
        struct value *const in[] = { dy, node->in[1] };
        struct node *grad = graph_add(graph, &op_linear_grad_input, node->name, in, 2, NULL);
        din[0] = grad ? grad->out[0] : NULL;
    }
}

/* Outputs are cut, or inputs. */
static const struct op_way ways_linear[] = {
    { .name = "columns", .in = { AXIS_NONE, AXIS_0 }, .out = { AXIS_FEATURES } },
    { .name = "rows", .in = { AXIS_FEATURES, AXIS_1 }, .out = { AXIS_SUM } },
    { 0 },
};

const struct op op_linear = {
    .name = "linear",
    .summary = "x W^T + b, then the activation",
    .min_in = 2,
    .max_in = 3,
    .min_out = 1,
    .max_out = 1,
    .split = { SPLIT_ROWS },
    .by_rows = true,
    .infer = infer_linear,
    .gradient = gradient_linear,
    .flops = flops_linear,
    .ways = ways_linear,
};

static enum status infer_grad_input(const struct node *node, struct op_shapes *s)
{
    const struct shape *dy = s->in[0], *w = s->in[1];

    (void)node;
    if (!is_rows(dy) || w->rank != 2 || features_of(dy) != w->dim[0])
        return FAIL(STATUS_USAGE, "gradient and weight do not fit");
    s->out[0] = with_features(dy, w->dim[1]);
    return STATUS_OK;
}

const struct op op_linear_grad_input = {
    .name = "linear_grad_input",
    .summary = "gradient of linear for its input: dy W",
    .min_in = 2,
    .max_in = 2,
    .min_out = 1,
    .max_out = 1,
    .split = { SPLIT_ROWS },
    .by_rows = true,
    .infer = infer_grad_input,
    .flops = flops_linear,
};

static enum status infer_grad_weight(const struct node *node, struct op_shapes *s)
{
    const struct shape *x = s->in[0], *dy = s->in[1];

    (void)node;
    if (!is_rows(x) || !is_rows(dy) ||
        shape_count(x) / features_of(x) != shape_count(dy) / features_of(dy))
        return FAIL(STATUS_USAGE, "input and gradient have different rows");
    s->out[0] = shape_2(features_of(dy), features_of(x));
    s->out[1] = shape_1(features_of(dy));
    return STATUS_OK;
}

static double flops_grad_weight(const struct node *node, const struct shape *const *in,
                                const struct shape *out)
{
    (void)node;
    (void)out;
    return 2.0 * (double)shape_count(in[0]) * (double)features_of(in[1]);
}

const struct op op_linear_grad_weight = {
    .name = "linear_grad_weight",
    .summary = "gradients of linear for its weight and bias",
    .min_in = 2,
    .max_in = 2,
    .min_out = 1,
    .max_out = 2,
    .split = { SPLIT_SUM, SPLIT_SUM },
    .by_rows = true,
    .infer = infer_grad_weight,
    .flops = flops_grad_weight,
};
