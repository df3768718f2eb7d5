/* SPDX-License-Identifier: MIT */
/* op_layer_norm.c - what is done to each row of features: layer norm and softmax.
 *
 * A row is the last extent of x: of a matrix (N, D), or of sequences (N, T, D). Layer norm is
 * y = gamma (x - mean) rstd + beta with the mean and rstd = 1/sqrt(variance + epsilon) of the
 * row, which backward takes as they were (saved: the two numbers of each row).
 */
#include "graph/op.h"

/* Are these rows of features, no image? */
static bool has_rows(const struct shape *x)
{
    return x->rank == 2 || x->rank == 3;
}

/* The shape of x with `last` numbers a row. */
static struct shape a_row(const struct shape *x, int64_t last)
{
    struct shape shape = *x;
    shape.dim[x->rank - 1] = last;
    return shape;
}

static bool is_vector(const struct shape *v, int64_t count)
{
    return v->rank == 1 && v->dim[0] == count;
}

static enum status infer_layer_norm(const struct node *node, struct op_shapes *s)
{
    const struct shape *x = s->in[0];

    if (!has_rows(x))
        return FAIL(STATUS_USAGE, "needs rows of features");
    for (int i = 1; i < 3; i++) {
        if (!is_vector(s->in[i], x->dim[x->rank - 1]))
            return FAIL(STATUS_USAGE, "scale or shift is not of %lld features",
                        (long long)x->dim[x->rank - 1]);
    }
    if (!(node->attrs.epsilon >= 0))
        return FAIL(STATUS_USAGE, "epsilon %g is negative", (double)node->attrs.epsilon);
    s->out[0] = *x;
    s->out[1] = a_row(x, 2);
    return STATUS_OK;
}

static void gradient_layer_norm(struct graph *graph, const struct node *node,
                                struct value *const *dout, const bool *wanted,
                                struct value **din)
{
    struct value *const in[] = { dout[0], node->in[0], node->in[1], node->out[1] };
    struct node *grad = graph_add(graph, &op_layer_norm_grad, node->name, in, 4, NULL);

    for (int i = 0; grad && i < 3; i++)
        din[i] = wanted[i] ? grad->out[i] : NULL;
}

static double flops_norm(const struct node *node, const struct shape *const *in,
                         const struct shape *out)
{
    (void)node;
    (void)out;
    return 8.0 * (double)shape_count(in[0]);
}

static const struct op_way ways_layer_norm[] = {
    { .name = "places", .in = { AXIS_PLACES }, .out = { AXIS_PLACES, AXIS_PLACES } },
    { 0 },
};

const struct op op_layer_norm = {
    .name = "layer_norm",
    .summary = "zero mean and unit variance a row, then scale and shift",
    .min_in = 3,
    .max_in = 3,
    .min_out = 2,
    .max_out = 2,
    .split = { SPLIT_ROWS, SPLIT_ROWS },
    .by_rows = true,
    .infer = infer_layer_norm,
    .gradient = gradient_layer_norm,
    .flops = flops_norm,
    .ways = ways_layer_norm,
};

static enum status infer_layer_norm_grad(const struct node *node, struct op_shapes *s)
{
    const struct shape *dy = s->in[0], *x = s->in[1], *gamma = s->in[2], *saved = s->in[3];

    (void)node;
    if (!has_rows(x) || !shape_equal(dy, x))
        return FAIL(STATUS_USAGE, "gradient and input have different shapes");
    const struct shape numbers = a_row(x, 2);
    if (!is_vector(gamma, x->dim[x->rank - 1]) || !shape_equal(saved, &numbers))
        return FAIL(STATUS_USAGE, "scale or statistics are not of these rows");
    if (s->in[4] && !shape_equal(s->in[4], x))
        return FAIL(STATUS_USAGE, "what is added to has another shape");
    s->out[0] = *x;
    s->out[1] = s->out[2] = s->out[3] = *gamma;
    return STATUS_OK;
}

/* attrs.with_bias: also the sums of the input's gradient over rows, which are a bias's (pass/join.c). */
const struct op op_layer_norm_grad = {
    .name = "layer_norm_grad",
    .summary = "gradients of layer_norm for input, scale and shift",
    .min_in = 4,
    .max_in = 5,
    .extends = 4, /* what flows around the norm */
    .min_out = 3,
    .max_out = 4,
    .split = { SPLIT_ROWS, SPLIT_SUM, SPLIT_SUM, SPLIT_SUM },
    .by_rows = true,
    .infer = infer_layer_norm_grad,
    .flops = flops_norm,
};

/* sum_rows ----------------------------------------------------------------------------- */

static enum status infer_sum_rows(const struct node *node, struct op_shapes *s)
{
    (void)node;
    if (!has_rows(s->in[0]))
        return FAIL(STATUS_USAGE, "needs rows of features");
    s->out[0] = shape_1(s->in[0]->dim[s->in[0]->rank - 1]);
    return STATUS_OK;
}

/* Made by pass/join.c alone, so that a bias's gradient has one order of summands whether or not what makes them is near. */
const struct op op_sum_rows = {
    .name = "sum_rows",
    .summary = "sums over everything but the feature, as gradients before it would give them",
    .min_in = 1,
    .max_in = 1,
    .min_out = 1,
    .max_out = 1,
    .split = { SPLIT_SUM },
    .by_rows = true,
    .infer = infer_sum_rows,
};

/* softmax ------------------------------------------------------------------------------ */

static enum status infer_softmax(const struct node *node, struct op_shapes *s)
{
    (void)node;
    if (!has_rows(s->in[0]) || (s->in[1] && !shape_equal(s->in[0], s->in[1])))
        return FAIL(STATUS_USAGE, "needs rows of features");
    s->out[0] = *s->in[0];
    return STATUS_OK;
}

static void gradient_softmax(struct graph *graph, const struct node *node,
                             struct value *const *dout, const bool *wanted, struct value **din)
{
    struct value *const in[] = { dout[0], node->out[0] };

    if (!wanted[0])
        return;
    struct node *grad = graph_add(graph, &op_softmax_grad, node->name, in, 2, NULL);
    din[0] = grad ? grad->out[0] : NULL;
}

static double flops_softmax(const struct node *node, const struct shape *const *in,
                            const struct shape *out)
{
    (void)node;
    (void)out;
    return 20.0 * (double)shape_count(in[0]);
}

const struct op op_softmax = {
    .name = "softmax",
    .summary = "exponentials of a row, divided by their sum",
    .min_in = 1,
    .max_in = 1,
    .min_out = 1,
    .max_out = 1,
    .split = { SPLIT_ROWS },
    .by_rows = true,
    .infer = infer_softmax,
    .gradient = gradient_softmax,
    .flops = flops_softmax,
};

const struct op op_softmax_grad = {
    .name = "softmax_grad",
    .summary = "y (dy - the row's sum of dy y)",
    .min_in = 2,
    .max_in = 2,
    .min_out = 1,
    .max_out = 1,
    .split = { SPLIT_ROWS },
    .by_rows = true,
    .infer = infer_softmax,
};
