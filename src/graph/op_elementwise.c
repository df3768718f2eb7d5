/* SPDX-License-Identifier: MIT */
/* op_elementwise.c - ops that treat elements one by one, and those that only move them. */
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

/* din[i] = op(dy, ...) for one wanted input. */
static struct value *one(struct graph *graph, const struct op *op, const char *name,
                         struct value *a, struct value *b, const struct attrs *attrs)
{
    struct value *const in[] = { a, b };
    struct node *node = graph_add(graph, op, name, in, 2, attrs);
    return node ? node->out[0] : NULL;
}

/* bias --------------------------------------------------------------------------------- */

/* Channels of images, else the last extent; 0 if there is none beside the samples. */
static int64_t features_of(const struct shape *x)
{
    return x->rank < 2 ? 0 : x->rank == 4 ? x->dim[1] : x->dim[x->rank - 1];
}

static enum status infer_bias(const struct node *node, struct op_shapes *s)
{
    const struct shape *x = s->in[0], *b = s->in[1];

    (void)node;
    if (x->rank < 2 || b->rank != 1 || b->dim[0] != features_of(x))
        return FAIL(STATUS_USAGE, "bias of %lld for %lld features", (long long)b->dim[0],
                    (long long)features_of(x));
    s->out[0] = *x;
    return STATUS_OK;
}

static void gradient_bias(struct graph *graph, const struct node *node,
                          struct value *const *dout, const bool *wanted, struct value **din)
{
    if (wanted[0])
        din[0] = dout[0];
    if (wanted[1])
        din[1] = one(graph, &op_bias_grad, node->in[1]->name, dout[0], NULL, NULL);
}

static const struct op_way ways_bias[] = {
    { .name = "features", .in = { AXIS_FEATURES, AXIS_0 }, .out = { AXIS_FEATURES } },
    { .name = "places", .in = { AXIS_PLACES }, .out = { AXIS_PLACES } },
    { 0 },
};

const struct op op_bias = {
    .name = "bias",
    .summary = "adds a number to each feature or channel",
    .min_in = 2,
    .max_in = 2,
    .min_out = 1,
    .max_out = 1,
    .split = { SPLIT_ROWS },
    .may_overwrite = true,
    .by_rows = true,
    .infer = infer_bias,
    .gradient = gradient_bias,
    .ways = ways_bias,
};

static enum status infer_bias_grad(const struct node *node, struct op_shapes *s)
{
    (void)node;
    if (s->in[0]->rank < 2)
        return FAIL(STATUS_USAGE, "gradient has no features");
    s->out[0] = shape_1(features_of(s->in[0]));
    return STATUS_OK;
}

const struct op op_bias_grad = {
    .name = "bias_grad",
    .summary = "sums over everything but the feature",
    .min_in = 1,
    .max_in = 1,
    .min_out = 1,
    .max_out = 1,
    .split = { SPLIT_SUM },
    .by_rows = true,
    .infer = infer_bias_grad,
};

/* relu --------------------------------------------------------------------------------- */

static void gradient_relu(struct graph *graph, const struct node *node,
                          struct value *const *dout, const bool *wanted, struct value **din)
{
    if (wanted[0])
        din[0] = one(graph, &op_relu_grad, node->name, dout[0], node->out[0], NULL);
}

const struct op op_relu = {
    .name = "relu",
    .summary = "max(x, 0)",
    .min_in = 1,
    .max_in = 1,
    .min_out = 1,
    .max_out = 1,
    .split = { SPLIT_ROWS },
    .may_overwrite = true,
    .infer = infer_same,
    .gradient = gradient_relu,
    .ways = op_ways_each,
};

const struct op op_relu_grad = {
    .name = "relu_grad",
    .summary = "dy where y > 0",
    .min_in = 2,
    .max_in = 2,
    .min_out = 1,
    .max_out = 1,
    .split = { SPLIT_ROWS },
    .may_overwrite = true,
    .infer = infer_same,
};

/* relu6, sigmoid ------------------------------------------------------------------------ */

static void gradient_relu6(struct graph *graph, const struct node *node,
                           struct value *const *dout, const bool *wanted, struct value **din)
{
    if (wanted[0])
        din[0] = one(graph, &op_relu6_grad, node->name, dout[0], node->out[0], NULL);
}

const struct op op_relu6 = {
    .name = "relu6",
    .summary = "x, not below 0 and not above 6",
    .min_in = 1,
    .max_in = 1,
    .min_out = 1,
    .max_out = 1,
    .split = { SPLIT_ROWS },
    .may_overwrite = true,
    .infer = infer_same,
    .gradient = gradient_relu6,
    .ways = op_ways_each,
};

const struct op op_relu6_grad = {
    .name = "relu6_grad",
    .summary = "dy where 0 < y < 6",
    .min_in = 2,
    .max_in = 2,
    .min_out = 1,
    .max_out = 1,
    .split = { SPLIT_ROWS },
    .may_overwrite = true,
    .infer = infer_same,
};

static void gradient_sigmoid(struct graph *graph, const struct node *node,
                             struct value *const *dout, const bool *wanted, struct value **din)
{
    if (wanted[0])
        din[0] = one(graph, &op_sigmoid_grad, node->name, dout[0], node->out[0], NULL);
}

/* Some twenty operations for the exponential. */
static double flops_sigmoid(const struct node *node, const struct shape *const *in,
                            const struct shape *out)
{
    (void)node;
    (void)out;
    return 20.0 * (double)shape_count(in[0]);
}

const struct op op_sigmoid = {
    .name = "sigmoid",
    .summary = "1 / (1 + exp(-x))",
    .min_in = 1,
    .max_in = 1,
    .min_out = 1,
    .max_out = 1,
    .split = { SPLIT_ROWS },
    .may_overwrite = true,
    .infer = infer_same,
    .gradient = gradient_sigmoid,
    .flops = flops_sigmoid,
    .ways = op_ways_each,
};

const struct op op_sigmoid_grad = {
    .name = "sigmoid_grad",
    .summary = "dy y (1 - y)",
    .min_in = 2,
    .max_in = 2,
    .min_out = 1,
    .max_out = 1,
    .split = { SPLIT_ROWS },
    .may_overwrite = true,
    .infer = infer_same,
};

/* add ---------------------------------------------------------------------------------- */

static void gradient_add(struct graph *graph, const struct node *node,
                         struct value *const *dout, const bool *wanted, struct value **din)
{
    (void)graph;
    (void)node;
    for (int i = 0; i < 2; i++) {
        if (wanted[i])
            din[i] = dout[0];
    }
}

const struct op op_add = {
    .name = "add",
    .summary = "a + b",
    .min_in = 2,
    .max_in = 2,
    .min_out = 1,
    .max_out = 1,
    .split = { SPLIT_ROWS },
    .may_overwrite = true,
    .keeps_sums = true,
    .infer = infer_same,
    .gradient = gradient_add,
    .ways = op_ways_both,
};

/* dropout ------------------------------------------------------------------------------ */

static enum status infer_dropout(const struct node *node, struct op_shapes *s)
{
    if (!(node->attrs.rate >= 0 && node->attrs.rate < 1))
        return FAIL(STATUS_USAGE, "rate %g is not in [0, 1)", (double)node->attrs.rate);
    return infer_same(node, s);
}

/* The mask is drawn anew from the same counters, so nothing has to be kept. */
static void gradient_dropout(struct graph *graph, const struct node *node,
                             struct value *const *dout, const bool *wanted, struct value **din)
{
    if (wanted[0])
        din[0] = one(graph, &op_dropout, node->name, dout[0], NULL, &node->attrs);
}

/* A slice's elements draw what they would in the whole. */
static void cut_dropout(struct attrs *attrs, const struct shape_slice *slice)
{
    attrs->slice = *slice;
}

static const struct op_way ways_dropout[] = {
    { .name = "features",
      .in = { AXIS_FEATURES },
      .out = { AXIS_FEATURES },
      .cut = cut_dropout },
    { .name = "places", .in = { AXIS_PLACES }, .out = { AXIS_PLACES }, .cut = cut_dropout },
    { 0 },
};

const struct op op_dropout = {
    .name = "dropout",
    .summary = "zeroes a share of the elements, scales the rest",
    .min_in = 1,
    .max_in = 1,
    .min_out = 1,
    .max_out = 1,
    .split = { SPLIT_ROWS },
    .may_overwrite = true,
    .infer = infer_dropout,
    .gradient = gradient_dropout,
    .ways = ways_dropout,
};

/* reshape ------------------------------------------------------------------------------ */

static enum status infer_reshape(const struct node *node, struct op_shapes *s)
{
    const struct shape *x = s->in[0], *sample = &node->attrs.sample;
    struct shape *out = &s->out[0];

    if (sample->rank < 0 || sample->rank >= SHAPE_MAX)
        return FAIL(STATUS_USAGE, "samples of %d extents", sample->rank);
    out->rank = sample->rank + 1;
    out->dim[0] = x->dim[0];
    for (int i = 0; i < sample->rank; i++)
        out->dim[i + 1] = sample->dim[i];
    if (x->rank < 1 || shape_count(out) != shape_count(x)) {
        char a[SHAPE_TEXT], b[SHAPE_TEXT];
        return FAIL(STATUS_USAGE, "%s has not as many elements as %s", shape_print(x, a),
                    shape_print(out, b));
    }
    return STATUS_OK;
}

static void gradient_reshape(struct graph *graph, const struct node *node,
                             struct value *const *dout, const bool *wanted, struct value **din)
{
    const struct shape *x = &node->in[0]->shape;
    struct attrs attrs = { .sample = { .rank = x->rank - 1 } };

    for (int i = 1; i < x->rank; i++)
        attrs.sample.dim[i - 1] = x->dim[i];
    if (wanted[0])
        din[0] = one(graph, &op_reshape, node->name, dout[0], NULL, &attrs);
}

/* Images in a row of features: those of a channel stay together. */
static bool is_flatten(const struct node *node, int count)
{
    (void)count;
    return node->in[0]->shape.rank == 4 && node->attrs.sample.rank == 1;
}

static void cut_flatten(struct attrs *attrs, const struct shape_slice *slice)
{
    const int64_t pixels = attrs->sample.dim[0] / slice->whole;

    attrs->sample.dim[0] = slice_extent(slice, slice->whole) * pixels;
}

static const struct op_way ways_reshape[] = {
    { .name = "channels",
      .in = { AXIS_FEATURES },
      .out = { AXIS_FEATURES },
      .parts = 1,
      .can = is_flatten,
      .cut = cut_flatten },
    { 0 },
};

const struct op op_reshape = {
    .name = "reshape",
    .summary = "the same elements under other extents",
    .min_in = 1,
    .max_in = 1,
    .min_out = 1,
    .max_out = 1,
    .split = { SPLIT_ROWS },
    .is_view = true,
    .infer = infer_reshape,
    .gradient = gradient_reshape,
    .ways = ways_reshape,
};

/* reorder ------------------------------------------------------------------------------ */

static void gradient_reorder(struct graph *graph, const struct node *node,
                             struct value *const *dout, const bool *wanted, struct value **din)
{
    const struct attrs attrs = { .layout = node->in[0]->layout };

    if (wanted[0])
        din[0] = one(graph, &op_reorder, node->name, dout[0], NULL, &attrs);
}

const struct op op_reorder = {
    .name = "reorder",
    .summary = "the same elements in another order in memory",
    .min_in = 1,
    .max_in = 1,
    .min_out = 1,
    .max_out = 1,
    .split = { SPLIT_ROWS },
    .infer = infer_same,
    .gradient = gradient_reorder,
    .ways = op_ways_pixels,
};
