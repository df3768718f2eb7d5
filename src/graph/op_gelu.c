/* SPDX-License-Identifier: MIT */
/* op_gelu.c - smooth activations: tanh and GELU in its two forms.
 *
 * GELU is x Phi(x), Phi being the normal distribution function; gelu_tanh is the approximation
 * x / (1 + exp(-2u)), u = sqrt(2/pi) (x + 0.044715 x^3), which GPT-2 has. Their gradients start from
 * x, that of tanh from y.
 */
#include "graph/op.h"

static enum status infer_same(const struct node *node, struct op_shapes *s)
{
    (void)node;
    if (s->in[1] && !shape_equal(s->in[0], s->in[1])) {
        char a[SHAPE_TEXT], b[SHAPE_TEXT];
        return FAIL(STATUS_USAGE, "shapes %s and %s differ", shape_print(s->in[0], a),
                    shape_print(s->in[1], b));
    }
    s->out[0] = *s->in[0];
    return STATUS_OK;
}

/* dx = op(dy, kept). */
static void gradient_from(struct graph *graph, const struct op *op, const struct node *node,
                          struct value *dy, struct value *kept, struct value **dx)
{
    struct value *const in[] = { dy, kept };
    struct node *grad = graph_add(graph, op, node->name, in, 2, NULL);

    *dx = grad ? grad->out[0] : NULL;
}

static void gradient_tanh(struct graph *graph, const struct node *node,
                          struct value *const *dout, const bool *wanted, struct value **din)
{
    if (wanted[0])
        gradient_from(graph, &op_tanh_grad, node, dout[0], node->out[0], &din[0]);
}

static void gradient_gelu(struct graph *graph, const struct node *node,
                          struct value *const *dout, const bool *wanted, struct value **din)
{
    const struct op *op = node->op == &op_gelu ? &op_gelu_grad : &op_gelu_tanh_grad;

    if (wanted[0])
        gradient_from(graph, op, node, dout[0], node->in[0], &din[0]);
}

/* An exponential, a division, and a polynomial or two. */
static double flops_smooth(const struct node *node, const struct shape *const *in,
                           const struct shape *out)
{
    (void)node;
    (void)out;
    return 30.0 * (double)shape_count(in[0]);
}

#define ELEMENTWISE(n)                                                                         \
    .min_in = (n), .max_in = (n), .min_out = 1, .max_out = 1, .split = { SPLIT_ROWS },         \
    .may_overwrite = true, .infer = infer_same, .flops = flops_smooth

const struct op op_tanh = {
    .name = "tanh",
    .summary = "hyperbolic tangent",
    ELEMENTWISE(1),
    .gradient = gradient_tanh,
    .ways = op_ways_each,
};

const struct op op_tanh_grad = {
    .name = "tanh_grad",
    .summary = "dy (1 - y^2)",
    ELEMENTWISE(2),
};

const struct op op_gelu = {
    .name = "gelu",
    .summary = "x times the normal distribution function of x",
    ELEMENTWISE(1),
    .gradient = gradient_gelu,
    .ways = op_ways_each,
};

const struct op op_gelu_grad = {
    .name = "gelu_grad",
    .summary = "gradient of gelu from dy and x",
    ELEMENTWISE(2),
};

const struct op op_gelu_tanh = {
    .name = "gelu_tanh",
    .summary = "gelu by its approximation with tanh",
    ELEMENTWISE(1),
    .gradient = gradient_gelu,
    .ways = op_ways_each,
};

const struct op op_gelu_tanh_grad = {
    .name = "gelu_tanh_grad",
    .summary = "gradient of gelu_tanh from dy and x",
    ELEMENTWISE(2),
};
