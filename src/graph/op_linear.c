/* SPDX-License-Identifier: MIT */
/* op_linear.c - y = x W^T + b, and its gradients.
 *
 * x (m, k), W (n, k) as PyTorch writes it, b (n), y (m, n); with attrs.activation the
 * activation is applied before y is stored. dx = dy W, dW = dy^T x, db = column sums of dy.
 */
#include "graph/op.h"

static enum status infer_linear(const struct node *node, struct op_shapes *s)
{
    const struct shape *x = s->in[0], *w = s->in[1], *b = s->in[2];

    (void)node;
    if (x->rank != 2 || w->rank != 2 || x->dim[1] != w->dim[1])
        return FAIL(STATUS_USAGE, "input of %lld features, weight for %lld",
                    (long long)x->dim[x->rank - 1], (long long)w->dim[w->rank - 1]);
    if (b && (b->rank != 1 || b->dim[0] != w->dim[0]))
        return FAIL(STATUS_USAGE, "bias of %lld for %lld outputs", (long long)b->dim[0],
                    (long long)w->dim[0]);
    s->out[0] = shape_2(x->dim[0], w->dim[0]);
    return STATUS_OK;
}

static double flops_linear(const struct node *node, const struct shape *const *in,
                           const struct shape *out)
{
    (void)node;
    return 2.0 * (double)in[0]->dim[1] * (double)shape_count(&out[0]);
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
        const struct attrs attrs = { .with_bias = node->n_in > 2 && wanted[2] };
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

const struct op op_linear = {
    .name = "linear",
    .summary = "x W^T + b, then the activation",
    .min_in = 2,
    .max_in = 3,
    .min_out = 1,
    .max_out = 1,
    .split = { SPLIT_ROWS },
    .infer = infer_linear,
    .gradient = gradient_linear,
    .flops = flops_linear,
};

static enum status infer_grad_input(const struct node *node, struct op_shapes *s)
{
    const struct shape *dy = s->in[0], *w = s->in[1];

    (void)node;
    if (dy->rank != 2 || w->rank != 2 || dy->dim[1] != w->dim[0])
        return FAIL(STATUS_USAGE, "gradient and weight do not fit");
    s->out[0] = shape_2(dy->dim[0], w->dim[1]);
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
    .infer = infer_grad_input,
    .flops = flops_linear,
};

static enum status infer_grad_weight(const struct node *node, struct op_shapes *s)
{
    const struct shape *x = s->in[0], *dy = s->in[1];

    (void)node;
    if (x->rank != 2 || dy->rank != 2 || x->dim[0] != dy->dim[0])
        return FAIL(STATUS_USAGE, "input and gradient have different rows");
    s->out[0] = shape_2(dy->dim[1], x->dim[1]);
    s->out[1] = shape_1(dy->dim[1]);
    return STATUS_OK;
}

static double flops_grad_weight(const struct node *node, const struct shape *const *in,
                                const struct shape *out)
{
    (void)node;
    return 2.0 * (double)in[0]->dim[0] * (double)shape_count(&out[0]);
}

const struct op op_linear_grad_weight = {
    .name = "linear_grad_weight",
    .summary = "gradients of linear for its weight and bias",
    .min_in = 2,
    .max_in = 2,
    .min_out = 1,
    .max_out = 2,
    .split = { SPLIT_SUM, SPLIT_SUM },
    .infer = infer_grad_weight,
    .flops = flops_grad_weight,
};
