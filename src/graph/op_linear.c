/* SPDX-License-Identifier: MIT */
/* op_linear.c - y = x W^T + b, and its gradients.
 *
 * x (m, k) or (samples, places, k), W (n, k) as PyTorch writes it, b (n), y (m, n) likewise; with
 * attrs.activation the activation is applied before y is stored. dx = dy W, dW = dy^T x, db = column
 * sums of dy. W lies output innermost, or row by row if it is a table that embeddings share.
 *
 * Where a device's products can end with more (pass_config.epilogues): linear_gelu has y = gelu_tanh(pre) and keeps
 * pre = x W^T + b for backward, linear_add adds a residual, and linear_grad_through multiplies dx by the slope of the
 * activation that x came through.
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

/* Gradients of x, W and b from that of x W^T + b. */
static void gradient_product(struct graph *graph, const struct node *node, struct value *dy,
                             const bool *wanted, struct value **din)
{
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

static void gradient_linear(struct graph *graph, const struct node *node,
                            struct value *const *dout, const bool *wanted, struct value **din)
{
    gradient_product(graph, node, through_activation(graph, node, dout[0]), wanted, din);
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

/* Products that end with more ------------------------------------------------------------ */

static enum status infer_linear_gelu(const struct node *node, struct op_shapes *s)
{
    TRY(infer_linear(node, s));
    s->out[1] = s->out[0];
    return STATUS_OK;
}

static void gradient_linear_gelu(struct graph *graph, const struct node *node,
                                 struct value *const *dout, const bool *wanted,
                                 struct value **din)
{
    struct value *const in[] = { dout[0], node->out[1] };
    struct node *grad = graph_add(graph, &op_gelu_tanh_grad, node->name, in, 2, NULL);

    if (grad)
        gradient_product(graph, node, grad->out[0], wanted, din);
}

const struct op op_linear_gelu = {
    .name = "linear_gelu",
    .summary = "gelu_tanh(x W^T + b), and what it is of",
    .min_in = 3,
    .max_in = 3,
    .min_out = 2,
    .max_out = 2,
    .split = { SPLIT_ROWS, SPLIT_ROWS },
    .by_rows = true,
    .infer = infer_linear_gelu,
    .gradient = gradient_linear_gelu,
    .flops = flops_linear,
};

static enum status infer_linear_add(const struct node *node, struct op_shapes *s)
{
    TRY(infer_linear(node, s));
    if (!shape_equal(s->in[3], &s->out[0]))
        return FAIL(STATUS_USAGE, "what is added has another shape");
    return STATUS_OK;
}

static void gradient_linear_add(struct graph *graph, const struct node *node,
                                struct value *const *dout, const bool *wanted,
                                struct value **din)
{
    gradient_product(graph, node, dout[0], wanted, din);
    if (wanted[3])
        din[3] = dout[0];
}

const struct op op_linear_add = {
    .name = "linear_add",
    .summary = "x W^T + b + residual",
    .min_in = 4,
    .max_in = 4,
    .min_out = 1,
    .max_out = 1,
    .split = { SPLIT_ROWS },
    .by_rows = true,
    .infer = infer_linear_add,
    .gradient = gradient_linear_add,
    .flops = flops_linear,
};

static enum status infer_grad_through(const struct node *node, struct op_shapes *s)
{
    TRY(infer_grad_input(node, s));
    if (!shape_equal(s->in[2], &s->out[0]))
        return FAIL(STATUS_USAGE, "what the activation had has another shape");
    s->out[1] = shape_1(features_of(&s->out[0]));
    return STATUS_OK;
}

/* attrs.with_bias: also its sums over rows, which are a bias's (pass/join.c). */
const struct op op_linear_grad_through = {
    .name = "linear_grad_through",
    .summary = "gradient of linear for what its input was an activation of",
    .min_in = 3,
    .max_in = 3,
    .min_out = 1,
    .max_out = 2,
    .split = { SPLIT_ROWS, SPLIT_SUM },
    .by_rows = true,
    .infer = infer_grad_through,
    .flops = flops_linear,
};
