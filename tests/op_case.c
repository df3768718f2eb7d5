/* SPDX-License-Identifier: MIT */
/* op_case.c - random legal uses of every op. N samples, C channels, H x W pixels, O outputs. */
#include "op_case.h"

#include <string.h>

static int between(struct rng *rng, int low, int high)
{
    return low + (int)rng_below(rng, (uint64_t)(high - low + 1));
}

static bool chance(struct rng *rng)
{
    return rng_below(rng, 2) == 0;
}

/* What the cases are drawn from. Windows fit, and none lies in the padding alone. */
struct draw {
    int N, C, H, W, O;
    struct attrs attrs;
    int oh, ow;
};

static struct draw draw(struct rng *rng)
{
    struct draw d = { .N = between(rng, 2, 6),
                      .C = between(rng, 1, 5),
                      .H = between(rng, 3, 9),
                      .W = between(rng, 3, 9),
                      .O = between(rng, 1, 6) };

    for (int i = 0; i < 2; i++) {
        d.attrs.window[i] = between(rng, 1, 3);
        d.attrs.stride[i] = between(rng, 1, 3);
        d.attrs.pad[i] = between(rng, 0, d.attrs.window[i] / 2);
    }
    d.oh = (int)op_window_out(d.H, d.attrs.window[0], d.attrs.stride[0], d.attrs.pad[0]);
    d.ow = (int)op_window_out(d.W, d.attrs.window[1], d.attrs.stride[1], d.attrs.pad[1]);
    return d;
}

static struct value *rows(struct graph *graph, const char *name, struct shape shape)
{
    return graph_input(graph, name, DTYPE_F32, shape);
}

static struct value *labels(struct graph *graph, int count)
{
    return graph_input(graph, "labels", DTYPE_I32, shape_1(count));
}

static struct value *param(struct graph *graph, const char *name, struct shape shape)
{
    return graph_param(graph, name, shape, 1);
}

/* Two or four extents, for ops that take both. */
static struct shape any_shape(const struct draw *d, struct rng *rng)
{
    return chance(rng) ? shape_2(d->N, d->C) : shape_4(d->N, d->C, d->H, d->W);
}

static struct node *add(struct graph *graph, const struct op *op, struct value *a,
                        struct value *b, struct value *c, const struct attrs *attrs)
{
    struct value *const in[] = { a, b, c };
    return graph_add(graph, op, "case", in, 3, attrs);
}

/* The cases ---------------------------------------------------------------------------- */

static struct node *add_linear(struct graph *graph, const struct op *op, struct rng *rng)
{
    const struct draw d = draw(rng);
    const struct attrs attrs = { .activation =
                                     chance(rng) ? ACTIVATION_RELU : ACTIVATION_NONE };

    return add(graph, op, rows(graph, "x", shape_2(d.N, d.H)),
               param(graph, "w", shape_2(d.O, d.H)),
               chance(rng) ? param(graph, "b", shape_1(d.O)) : NULL, &attrs);
}

static struct node *add_linear_grad_input(struct graph *graph, const struct op *op,
                                          struct rng *rng)
{
    const struct draw d = draw(rng);

    return add(graph, op, rows(graph, "dy", shape_2(d.N, d.O)),
               param(graph, "w", shape_2(d.O, d.H)), NULL, NULL);
}

/* Products that end with more. */
static struct node *add_linear_joined(struct graph *graph, const struct op *op, struct rng *rng)
{
    const struct draw d = draw(rng);
    const bool is_gradient = op == &op_linear_grad_through;
    const struct attrs attrs = { .activation = !is_gradient  ? ACTIVATION_NONE
                                               : chance(rng) ? ACTIVATION_RELU
                                                             : ACTIVATION_GELU_TANH,
                                 .with_bias = is_gradient && chance(rng) };
    struct value *in[GRAPH_IN] = { rows(graph, "x", shape_2(d.N, is_gradient ? d.O : d.H)),
                                   param(graph, "w", shape_2(d.O, d.H)) };
    int n = 2;

    if (is_gradient)
        in[n++] = rows(graph, "kept", shape_2(d.N, d.H));
    else
        in[n++] = param(graph, "b", shape_1(d.O));
    if (op == &op_linear_add)
        in[n++] = rows(graph, "residual", shape_2(d.N, d.O));
    return graph_add(graph, op, "case", in, n, &attrs);
}

static struct node *add_linear_grad_weight(struct graph *graph, const struct op *op,
                                           struct rng *rng)
{
    const struct draw d = draw(rng);
    const struct attrs attrs = { .with_bias = chance(rng) };

    return add(graph, op, rows(graph, "x", shape_2(d.N, d.H)),
               rows(graph, "dy", shape_2(d.N, d.O)), NULL, &attrs);
}

static struct value *kernel_of(struct graph *graph, const struct draw *d)
{
    const int groups = d->attrs.groups ? d->attrs.groups : 1;

    return param(graph, "w",
                 shape_4(d->O, d->C / groups, d->attrs.window[0], d->attrs.window[1]));
}

/* Splits the channels into groups, in half of the cases of an op that knows them. */
static void split_channels(const struct op *op, struct draw *d, struct rng *rng)
{
    if ((op != &op_conv2d && op != &op_conv2d_grad_input && op != &op_conv2d_grad_weight) ||
        chance(rng))
        return;
    d->attrs.groups = between(rng, 1, 3);
    d->C = d->attrs.groups * between(rng, 1, 2);
    d->O = d->attrs.groups * between(rng, 1, 2);
}

static struct node *add_conv2d(struct graph *graph, const struct op *op, struct rng *rng)
{
    struct draw d = draw(rng);
    split_channels(op, &d, rng);
    struct value *w = kernel_of(graph, &d);

    d.attrs.activation = chance(rng) ? ACTIVATION_RELU : ACTIVATION_NONE;
    d.attrs.window[0] = op == &op_conv2d_pool ? between(rng, 1, d.oh < 3 ? d.oh : 3) : 0;
    d.attrs.window[1] = op == &op_conv2d_pool ? between(rng, 1, d.ow < 3 ? d.ow : 3) : 0;
    return add(graph, op, rows(graph, "x", shape_4(d.N, d.C, d.H, d.W)), w,
               chance(rng) ? param(graph, "b", shape_1(d.O)) : NULL, &d.attrs);
}

static struct node *add_conv2d_grad_input(struct graph *graph, const struct op *op,
                                          struct rng *rng)
{
    struct draw d = draw(rng);
    split_channels(op, &d, rng);
    struct value *w = kernel_of(graph, &d);

    d.attrs.extent[0] = d.H;
    d.attrs.extent[1] = d.W;
    d.attrs.window[0] = d.attrs.window[1] = 0;
    return add(graph, op, rows(graph, "dy", shape_4(d.N, d.O, d.oh, d.ow)), w, NULL, &d.attrs);
}

static struct node *add_conv2d_grad_weight(struct graph *graph, const struct op *op,
                                           struct rng *rng)
{
    struct draw d = draw(rng);

    split_channels(op, &d, rng);
    for (int i = 0; i < 2; i++) {
        d.attrs.extent[i] = d.attrs.window[i];
        d.attrs.window[i] = 0;
    }
    d.attrs.with_bias = chance(rng);
    return add(graph, op, rows(graph, "x", shape_4(d.N, d.C, d.H, d.W)),
               rows(graph, "dy", shape_4(d.N, d.O, d.oh, d.ow)), NULL, &d.attrs);
}

/* The image with H x W pixels and C channels is y; x has O channels. */
static struct node *add_conv2d_transpose(struct graph *graph, const struct op *op,
                                         struct rng *rng)
{
    struct draw d = draw(rng);
    struct value *w = kernel_of(graph, &d);

    d.attrs.extent[0] = d.H;
    d.attrs.extent[1] = d.W;
    d.attrs.window[0] = d.attrs.window[1] = 0;
    d.attrs.activation = chance(rng) ? ACTIVATION_RELU : ACTIVATION_NONE;
    return add(graph, op, rows(graph, "x", shape_4(d.N, d.O, d.oh, d.ow)), w,
               chance(rng) ? param(graph, "b", shape_1(d.C)) : NULL, &d.attrs);
}

static struct node *add_conv2d_transpose_grad_input(struct graph *graph, const struct op *op,
                                                    struct rng *rng)
{
    struct draw d = draw(rng);
    struct value *w = kernel_of(graph, &d);

    d.attrs.window[0] = d.attrs.window[1] = 0;
    return add(graph, op, rows(graph, "dy", shape_4(d.N, d.C, d.H, d.W)), w, NULL, &d.attrs);
}

static struct node *add_conv2d_transpose_grad_weight(struct graph *graph, const struct op *op,
                                                     struct rng *rng)
{
    struct draw d = draw(rng);

    for (int i = 0; i < 2; i++) {
        d.attrs.extent[i] = d.attrs.window[i];
        d.attrs.window[i] = 0;
    }
    d.attrs.with_bias = chance(rng);
    return add(graph, op, rows(graph, "x", shape_4(d.N, d.O, d.oh, d.ow)),
               rows(graph, "dy", shape_4(d.N, d.C, d.H, d.W)), NULL, &d.attrs);
}

/* What flows back into a pooled convolution is of the pool's size. */
static struct node *add_conv2d_pool_grad(struct graph *graph, const struct op *op,
                                         struct rng *rng)
{
    struct draw d = draw(rng);
    struct value *w = op == &op_conv2d_pool_grad_input ? kernel_of(graph, &d) : NULL;
    struct value *x = w ? NULL : rows(graph, "x", shape_4(d.N, d.C, d.H, d.W));

    d.attrs.extent[0] = w ? d.H : d.attrs.window[0];
    d.attrs.extent[1] = w ? d.W : d.attrs.window[1];
    d.attrs.with_bias = !w && chance(rng);
    d.attrs.window[0] = between(rng, 1, d.oh < 3 ? d.oh : 3);
    d.attrs.window[1] = between(rng, 1, d.ow < 3 ? d.ow : 3);
    const struct shape y =
        shape_4(d.N, d.O, d.oh / d.attrs.window[0], d.ow / d.attrs.window[1]);
    struct value *dy = rows(graph, "dy", y), *index = graph_input(graph, "index", DTYPE_U8, y);
    return w ? add(graph, op, dy, index, w, &d.attrs) : add(graph, op, x, dy, index, &d.attrs);
}

static struct node *add_pool(struct graph *graph, const struct op *op, struct rng *rng)
{
    const struct draw d = draw(rng);

    return add(graph, op, rows(graph, "x", shape_4(d.N, d.C, d.H, d.W)), NULL, NULL, &d.attrs);
}

static struct node *add_pool_grad(struct graph *graph, const struct op *op, struct rng *rng)
{
    struct draw d = draw(rng);
    const struct shape y = shape_4(d.N, d.C, d.oh, d.ow);
    struct value *index =
        op == &op_max_pool_grad ? graph_input(graph, "index", DTYPE_U8, y) : NULL;

    d.attrs.extent[0] = d.H;
    d.attrs.extent[1] = d.W;
    return add(graph, op, rows(graph, "dy", y), index, NULL, &d.attrs);
}

static struct node *add_bias(struct graph *graph, const struct op *op, struct rng *rng)
{
    const struct draw d = draw(rng);

    return add(graph, op, rows(graph, "x", any_shape(&d, rng)), param(graph, "b", shape_1(d.C)),
               NULL, NULL);
}

/* One input, or two of the same shape. */
static struct node *add_elementwise(struct graph *graph, const struct op *op, struct rng *rng)
{
    const struct draw d = draw(rng);
    const struct shape shape = any_shape(&d, rng);
    struct value *second = op->min_in == 2 ? rows(graph, "b", shape) : NULL;

    return add(graph, op, rows(graph, "a", shape), second, NULL, NULL);
}

static struct node *add_dropout(struct graph *graph, const struct op *op, struct rng *rng)
{
    const struct draw d = draw(rng);
    const struct attrs attrs = { .rate = 0.25F * (float)between(rng, 0, 3),
                                 .stream = (uint32_t)between(rng, 0, 9) };

    return add(graph, op, rows(graph, "x", any_shape(&d, rng)), NULL, NULL, &attrs);
}

/* With several channels: with one, the plain order and that of images are the same. */
static struct draw draw_images(struct rng *rng)
{
    struct draw d = draw(rng);
    d.C++;
    return d;
}

static struct node *add_reshape(struct graph *graph, const struct op *op, struct rng *rng)
{
    const struct draw d = draw_images(rng);
    const struct attrs flat = { .sample = { .rank = 1, .dim = { d.C * d.H * d.W } } };
    const struct attrs image = { .sample = { .rank = 3, .dim = { d.C, d.H, d.W } } };

    if (chance(rng))
        return add(graph, op, rows(graph, "x", shape_2(d.N, d.C * d.H * d.W)), NULL, NULL,
                   &image);
    struct value *x = rows(graph, "x", shape_4(d.N, d.C, d.H, d.W));
    if (x)
        x->layout = LAYOUT_PLAIN;
    return add(graph, op, x, NULL, NULL, &flat);
}

static struct node *add_reorder(struct graph *graph, const struct op *op, struct rng *rng)
{
    const struct draw d = draw_images(rng);
    const bool to_plain = chance(rng);
    const struct attrs attrs = { .layout = to_plain ? LAYOUT_PLAIN : LAYOUT_NHWC };
    struct value *x = rows(graph, "x", shape_4(d.N, d.C, d.H, d.W));

    if (x)
        x->layout = to_plain ? LAYOUT_NHWC : LAYOUT_PLAIN;
    return add(graph, op, x, NULL, NULL, &attrs);
}

static enum activation any_activation(struct rng *rng)
{
    static const enum activation all[] = { ACTIVATION_NONE, ACTIVATION_RELU, ACTIVATION_RELU6 };
    return all[rng_below(rng, 3)];
}

/* batch_norm or batch_norm_apply. */
static struct node *add_batch_norm(struct graph *graph, const struct op *op, struct rng *rng)
{
    const struct draw d = draw(rng);
    const struct shape shape = shape_4(d.N, d.C, d.H, d.W), channels = shape_1(d.C);
    const struct attrs attrs = { .epsilon = 1e-5F, .activation = any_activation(rng) };
    struct value *in[GRAPH_IN] = { rows(graph, "x", shape), param(graph, "gamma", channels),
                                   param(graph, "beta", channels) };
    int n = 3;

    if (op == &op_batch_norm_apply) {
        in[n++] = graph_average(graph, "mean", channels, 0);
        in[n++] = graph_average(graph, "variance", channels, 1);
    }
    if (chance(rng))
        in[n++] = rows(graph, "residual", shape);
    return graph_add(graph, op, "case", in, n, &attrs);
}

static struct node *add_batch_norm_grad(struct graph *graph, const struct op *op,
                                        struct rng *rng)
{
    const struct draw d = draw(rng);
    const struct shape shape = shape_4(d.N, d.C, d.H, d.W);
    const struct attrs attrs = { .activation = any_activation(rng),
                                 .with_residual = chance(rng) };
    struct value *const saved = graph_average(graph, "saved", shape_2(2, d.C), 0);
    struct value *in[GRAPH_IN] = { rows(graph, "dy", shape), rows(graph, "x", shape),
                                   param(graph, "gamma", shape_1(d.C)), saved };
    int n = 4;

    if (attrs.activation != ACTIVATION_NONE) {
        in[n++] = !attrs.with_residual && chance(rng) ? param(graph, "beta", shape_1(d.C))
                                                      : rows(graph, "y", shape);
        if (chance(rng))
            in[n++] = rows(graph, "more", shape);
    }
    return graph_add(graph, op, "case", in, n, &attrs);
}

/* Not a value for each sample. */
static struct value *whole(struct graph *graph, const char *name, struct shape shape)
{
    return graph_average(graph, name, shape, 0);
}

/* The parts of a batch norm over several shards. */
static struct node *add_norm_part(struct graph *graph, const struct op *op, struct rng *rng)
{
    const struct draw d = draw(rng);
    const struct shape shape = shape_4(d.N, d.C, d.H, d.W), channels = shape_1(d.C);
    const bool has_activation = op != &op_batch_norm_stats && op != &op_batch_norm_join;
    const struct attrs attrs = {
        .epsilon = op == &op_batch_norm_join ? 1e-5F : 0,
        .activation = has_activation ? any_activation(rng) : ACTIVATION_NONE,
        .with_residual = op == &op_batch_norm_grad_sums && chance(rng),
        .shards = op == &op_batch_norm_normalize ? d.O : 0,
    };
    const bool has_y = attrs.activation != ACTIVATION_NONE && op != &op_batch_norm_normalize;
    struct value *in[GRAPH_IN] = { NULL };
    int n = 0;

    if (op == &op_batch_norm_join) {
        in[n++] = whole(graph, "all", shape_3(d.O, 3, d.C));
        in[n++] = whole(graph, "own", shape_2(3, d.C));
        return graph_add(graph, op, "case", in, n, &attrs);
    }
    if (op == &op_batch_norm_grad_sums || op == &op_batch_norm_grad_spread)
        in[n++] = rows(graph, "dy", shape);
    in[n++] = rows(graph, "x", shape);
    if (op == &op_batch_norm_normalize || op == &op_batch_norm_grad_spread)
        in[n++] = param(graph, "gamma", channels);
    if (op == &op_batch_norm_normalize)
        in[n++] = param(graph, "beta", channels);
    if (op != &op_batch_norm_stats)
        in[n++] = whole(graph, "saved", shape_2(2, d.C));
    if (op == &op_batch_norm_grad_spread)
        in[n++] = whole(graph, "sums", shape_3(d.O, 3, d.C));
    if (has_y)
        in[n++] = rows(graph, "y", shape);
    if (op == &op_batch_norm_normalize && chance(rng))
        in[n++] = rows(graph, "residual", shape);
    return graph_add(graph, op, "case", in, n, &attrs);
}

/* Convolutions with batch norms before and after them; half of them depthwise, half 1x1. */
static struct node *add_norm_conv(struct graph *graph, const struct op *op, struct rng *rng)
{
    struct draw d = draw(rng);
    const bool has_norm = strncmp(op->name, "norm_", 5) == 0;
    const bool is_back = strstr(op->name, "_grad") != NULL;
    struct value *in[GRAPH_IN] = { NULL };
    int n = 0;

    split_channels(&op_conv2d, &d, rng);
    if (chance(rng))
        d.attrs.groups = d.O = d.C = between(rng, 2, 5);
    if (chance(rng)) {
        for (int i = 0; i < 2; i++) {
            d.attrs.window[i] = d.attrs.stride[i] = 1;
            d.attrs.pad[i] = 0;
        }
        d.oh = d.H;
        d.ow = d.W;
    }
    const struct shape made = shape_4(d.N, d.O, d.oh, d.ow);
    struct value *w = kernel_of(graph, &d), *x = rows(graph, "x", shape_4(d.N, d.C, d.H, d.W));
    d.attrs.window[0] = d.attrs.window[1] = 0;
    d.attrs.activation = has_norm ? any_activation(rng) : ACTIVATION_NONE;
    d.attrs.epsilon = is_back ? 0 : 1e-5F;
    in[n++] = is_back ? rows(graph, "dz", made) : x;
    in[n++] = w;
    if (is_back)
        in[n++] = x;
    if (has_norm) {
        in[n++] = param(graph, "gamma", shape_1(d.C));
        in[n++] = param(graph, "beta", shape_1(d.C));
        in[n++] = whole(graph, "saved", shape_2(2, d.C));
    }
    if (is_back && strstr(op->name, "_stats")) {
        in[n++] = rows(graph, "z", made);
        in[n++] = whole(graph, "saved_z", shape_2(2, d.O));
        in[n++] = whole(graph, "dsaved_z", shape_2(2, d.O));
    }
    return graph_add(graph, op, "case", in, n, &d.attrs);
}

/* Logits or probabilities, and labels. */
static struct node *add_classes(struct graph *graph, const struct op *op, struct rng *rng)
{
    const struct draw d = draw(rng);
    const struct attrs attrs = { .smoothing = op != &op_accuracy && chance(rng) ? 0.25F : 0 };

    return add(graph, op, rows(graph, "logits", shape_2(d.N, d.O + 1)), labels(graph, d.N),
               NULL, &attrs);
}

/* Logits of tokens, and their labels; for the gradient the logarithms of the sums between them. */
static struct node *add_tokens(struct graph *graph, const struct op *op, struct rng *rng)
{
    const struct draw d = draw(rng);
    const struct attrs attrs = { .smoothing =
                                     op != &op_token_accuracy && chance(rng) ? 0.25F : 0 };
    struct value *logits = rows(graph, "logits", shape_3(d.N, d.H, d.O + 1));
    struct value *targets = graph_input(graph, "labels", DTYPE_I32, shape_2(d.N, d.H));

    if (op != &op_token_cross_entropy_grad)
        return add(graph, op, logits, targets, NULL, &attrs);
    return add(graph, op, logits, rows(graph, "lse", shape_3(d.N, d.H, 1)), targets, &attrs);
}

static struct node *add_linear_token_loss(struct graph *graph, const struct op *op,
                                          struct rng *rng)
{
    const struct draw d = draw(rng);
    const struct attrs attrs = { .smoothing = chance(rng) ? 0.25F : 0 };

    return add(graph, op, rows(graph, "x", shape_3(d.N, d.H, d.C)),
               graph_param_table(graph, "w", shape_2(d.O + 1, d.C), 1),
               graph_input(graph, "labels", DTYPE_I32, shape_2(d.N, d.H)), &attrs);
}

/* Rows of a matrix or of sequences. */
static struct shape any_rows(const struct draw *d, struct rng *rng)
{
    return chance(rng) ? shape_2(d->N, d->C + 1) : shape_3(d->N, d->H, d->C + 1);
}

static struct node *add_layer_norm(struct graph *graph, const struct op *op, struct rng *rng)
{
    const struct draw d = draw(rng);
    const struct shape shape = any_rows(&d, rng);
    const int64_t features = shape.dim[shape.rank - 1];
    const struct attrs attrs = { .epsilon = op == &op_layer_norm ? 0.125F : 0,
                                 .with_bias = op == &op_layer_norm_grad && chance(rng) };
    struct shape saved = shape;
    struct value *in[GRAPH_IN] = { NULL };
    int n = 0;

    saved.dim[shape.rank - 1] = 2;
    if (op == &op_layer_norm_grad)
        in[n++] = rows(graph, "dy", shape);
    in[n++] = rows(graph, "x", shape);
    in[n++] = param(graph, "gamma", shape_1(features));
    if (op == &op_layer_norm)
        in[n++] = param(graph, "beta", shape_1(features));
    else
        in[n++] = rows(graph, "saved", saved);
    if (op == &op_layer_norm_grad && chance(rng))
        in[n++] = rows(graph, "base", shape);
    return graph_add(graph, op, "case", in, n, &attrs);
}

static struct node *add_softmax(struct graph *graph, const struct op *op, struct rng *rng)
{
    const struct draw d = draw(rng);
    const struct shape shape = any_rows(&d, rng);

    return add(graph, op, rows(graph, "a", shape),
               op == &op_softmax_grad ? rows(graph, "b", shape) : NULL, NULL, NULL);
}

static struct node *add_positions(struct graph *graph, const struct op *op, struct rng *rng)
{
    const struct draw d = draw(rng);
    const bool is_grad = op == &op_positions_grad;
    const struct attrs attrs = { .extent = { is_grad ? d.H + d.O : 0 },
                                 .period = chance(rng) ? between(rng, 1, d.H) : 0 };
    struct value *x = rows(graph, "x", shape_3(d.N, d.H, d.C));

    if (is_grad)
        return add(graph, op, x, NULL, NULL, &attrs);
    return add(graph, op, x, graph_param_table(graph, "p", shape_2(d.H + d.O, d.C), 1), NULL,
               &attrs);
}

static struct node *add_attention(struct graph *graph, const struct op *op, struct rng *rng)
{
    const struct draw d = draw(rng);
    const int heads = between(rng, 1, 2), width = heads * d.C;
    const struct attrs attrs = { .heads = heads,
                                 .causal = op != &op_attention_step && chance(rng) };
    struct value *in[GRAPH_IN] = { NULL };
    int n = 0;

    if (op == &op_attention_grad)
        in[n++] = rows(graph, "dy", shape_3(d.N, d.H, width));
    in[n++] = rows(graph, "qkv", shape_3(d.N, d.H, 3 * width));
    if (op == &op_attention_grad) {
        in[n++] = rows(graph, "y", shape_3(d.N, d.H, width));
        in[n++] = rows(graph, "lse", shape_3(d.N, d.H, heads));
    }
    if (op == &op_attention_step) {
        in[n++] = rows(graph, "cache", shape_3(d.N, d.H + d.O, 2 * width));
        in[n++] = graph_input(graph, "first", DTYPE_I32, shape_1(d.N));
    } else if (chance(rng)) {
        in[n++] = graph_input(graph, "ids", DTYPE_I32, shape_2(d.N, d.H));
    }
    return graph_add(graph, op, "case", in, n, &attrs);
}

/* Ids, of H each, and a table of W rows. */
static struct node *add_embedding(struct graph *graph, const struct op *op, struct rng *rng)
{
    const struct draw d = draw(rng);
    const bool is_sort = op == &op_rows_sort, is_grad = op == &op_embedding_grad;
    const struct attrs attrs = { .rows = is_sort || is_grad ? d.W : 0,
                                 .by_sample = is_sort && chance(rng) };
    struct value *ids = graph_input(graph, "ids", DTYPE_I32, shape_2(d.N, d.H));

    if (is_sort)
        return add(graph, op, ids, NULL, NULL, &attrs);
    if (is_grad || op == &op_embedding_mean_grad) {
        const struct shape dy =
            is_grad && chance(rng) ? shape_3(d.N, d.H, d.O) : shape_2(d.N, d.O);
        return add(graph, op, rows(graph, "dy", dy), ids, NULL, &attrs);
    }
    struct value *table = graph_param_table(graph, "table", shape_2(d.W, d.O), 1);
    return add(graph, op, ids, table, NULL, &attrs);
}

/* A layer of O units over sequences of H steps. */
static struct node *add_recurrent(struct graph *graph, const struct op *op, struct rng *rng)
{
    const struct draw d = draw(rng);
    const int gates = (op == &op_lstm ? 4 : 3) * d.O, states = (op == &op_lstm ? 2 : 1) * d.O;
    struct value *const in[] = {
        rows(graph, "gates", shape_3(d.N, d.H, gates)),
        param(graph, "w", shape_2(gates, d.O)),
        param(graph, "b", shape_1(gates)),
        graph_input(graph, "ids", DTYPE_I32, shape_2(d.N, d.H)),
        chance(rng) ? rows(graph, "state", shape_2(d.N, states)) : NULL,
    };

    return graph_add(graph, op, "case", in, 5, NULL);
}

static struct node *add_recurrent_grad(struct graph *graph, const struct op *op,
                                       struct rng *rng)
{
    const struct draw d = draw(rng);
    const bool is_lstm = op == &op_lstm_grad, with_y = chance(rng);
    const int gates = (is_lstm ? 4 : 3) * d.O, states = (is_lstm ? 2 : 1) * d.O;
    const struct shape y = shape_3(d.N, d.H, d.O);
    const struct attrs attrs = { .with_state = chance(rng) };
    struct value *in[GRAPH_IN] = {
        rows(graph, "acts", shape_3(d.N, d.H, gates)),
        param(graph, "w", shape_2(gates, d.O)),
        graph_input(graph, "ids", DTYPE_I32, shape_2(d.N, d.H)),
        rows(graph, "kept", y),
    };
    int n = 4;

    if (!is_lstm)
        in[n++] = rows(graph, "before", y);
    if (with_y)
        in[n++] = rows(graph, "dy", y);
    if (!with_y || chance(rng))
        in[n++] = rows(graph, "dlast", shape_2(d.N, states));
    return graph_add(graph, op, "case", in, n, &attrs);
}

/* conv1d or conv1d_max; at times the window is longer than the sequence. */
static struct node *add_conv1d(struct graph *graph, const struct op *op, struct rng *rng)
{
    const struct draw d = draw(rng);
    const struct attrs attrs = { .activation =
                                     chance(rng) ? ACTIVATION_RELU : ACTIVATION_NONE };

    return add(graph, op, rows(graph, "x", shape_3(d.N, d.H, d.C)),
               param(graph, "w", shape_3(d.O, d.C, between(rng, 1, 4))),
               chance(rng) ? param(graph, "b", shape_1(d.O)) : NULL, &attrs);
}

static struct node *add_conv1d_grad(struct graph *graph, const struct op *op, struct rng *rng)
{
    const struct draw d = draw(rng);
    const int k = between(rng, 1, 4), places = d.H < k ? 1 : d.H - k + 1;
    const bool largest = op == &op_conv1d_max_grad_input || op == &op_conv1d_max_grad_weight;
    const bool weight = op == &op_conv1d_grad_weight || op == &op_conv1d_max_grad_weight;
    const struct attrs attrs = { .extent = { weight ? k : 0 },
                                 .with_bias = weight && chance(rng) };
    const struct shape y = largest ? shape_2(d.N, d.O) : shape_3(d.N, places, d.O);
    struct value *x = rows(graph, "x", shape_3(d.N, d.H, d.C));
    struct value *in[GRAPH_IN] = { NULL };
    int n = 0;

    if (weight)
        in[n++] = x;
    in[n++] = rows(graph, "dy", y);
    if (largest)
        in[n++] = graph_input(graph, "index", DTYPE_I32, y);
    if (!weight) {
        in[n++] = param(graph, "w", shape_3(d.O, d.C, k));
        in[n++] = x;
    }
    if (op == &op_conv1d_max_grad_input && chance(rng))
        in[n++] = rows(graph, "base", x ? x->shape : shape_1(1));
    return graph_add(graph, op, "case", in, n, &attrs);
}

static struct node *add_max_over_time(struct graph *graph, const struct op *op, struct rng *rng)
{
    const struct draw d = draw(rng);
    struct value *x = rows(graph, "x", shape_3(d.N, d.H, d.C));

    if (op == &op_max_over_time)
        return add(graph, op, x, NULL, NULL, NULL);
    return add(graph, op, rows(graph, "dy", shape_2(d.N, d.C)),
               graph_input(graph, "index", DTYPE_I32, shape_2(d.N, d.C)), x, NULL);
}

static struct node *add_concat(struct graph *graph, const struct op *op, struct rng *rng)
{
    static const char *const names[] = { "a", "b", "c" };
    const struct draw d = draw(rng);
    const bool sequences = chance(rng);
    struct value *in[3] = { NULL };
    const int count = between(rng, 1, 3);

    for (int i = 0; i < count; i++) {
        const int columns = between(rng, 1, 5);
        in[i] = rows(graph, names[i],
                     sequences ? shape_3(d.N, d.H, columns) : shape_2(d.N, columns));
    }
    return graph_add(graph, op, "case", in, count, NULL);
}

static struct node *add_columns(struct graph *graph, const struct op *op, struct rng *rng)
{
    const struct draw d = draw(rng);
    const int first = between(rng, 0, d.W - 1);
    const struct attrs attrs = { .extent = { first, between(rng, 1, d.W - first) } };

    return add(graph, op,
               rows(graph, "x", chance(rng) ? shape_3(d.N, d.H, d.W) : shape_2(d.N, d.W)), NULL,
               NULL, &attrs);
}

/* A layer of O units that attends to sources of W places, with keys of C numbers. */
static struct node *add_attend(struct graph *graph, const struct op *op, struct rng *rng)
{
    const struct draw d = draw(rng);
    const int gates = 4 * d.O, memory = between(rng, 1, 5);
    const struct shape y = shape_3(d.N, d.H, d.O);
    struct value *all = rows(graph, "gates", shape_3(d.N, d.H, gates));
    struct value *ids = graph_input(graph, "ids", DTYPE_I32, shape_2(d.N, d.H));
    struct value *weight = param(graph, "w", shape_2(gates, d.O));
    struct value *context = param(graph, "context", shape_2(gates, memory));
    struct value *query = param(graph, "query", shape_2(d.C, d.O));
    struct value *score = param(graph, "score", shape_1(d.C));
    struct value *keys = rows(graph, "keys", shape_3(d.N, d.W, d.C));
    struct value *contents = rows(graph, "memory", shape_3(d.N, d.W, memory));

    if (op == &op_lstm_attend_grad) {
        struct value *const in[] = { all,
                                     weight,
                                     ids,
                                     rows(graph, "kept", y),
                                     context,
                                     query,
                                     score,
                                     keys,
                                     contents,
                                     rows(graph, "queries", shape_3(d.N, d.H, d.C)),
                                     rows(graph, "weights", shape_3(d.N, d.H, d.W)),
                                     rows(graph, "dy", y) };
        return graph_add(graph, op, "case", in, 12, NULL);
    }
    struct value *const in[] = { all,
                                 weight,
                                 param(graph, "b", shape_1(gates)),
                                 ids,
                                 rows(graph, "state", shape_2(d.N, 2 * d.O)),
                                 context,
                                 query,
                                 score,
                                 keys,
                                 contents,
                                 graph_input(graph, "source", DTYPE_I32, shape_2(d.N, d.W)) };
    return graph_add(graph, op, "case", in, 11, NULL);
}

static const struct row {
    const struct op *op;
    struct node *(*add)(struct graph *graph, const struct op *op, struct rng *rng);
} table[] = {
    { &op_linear, add_linear },
    { &op_linear_grad_input, add_linear_grad_input },
    { &op_linear_grad_weight, add_linear_grad_weight },
    { &op_linear_gelu, add_linear_joined },
    { &op_linear_add, add_linear_joined },
    { &op_linear_grad_through, add_linear_joined },
    { &op_conv2d, add_conv2d },
    { &op_conv2d_grad_input, add_conv2d_grad_input },
    { &op_conv2d_grad_weight, add_conv2d_grad_weight },
    { &op_conv2d_transpose, add_conv2d_transpose },
    { &op_conv2d_transpose_grad_input, add_conv2d_transpose_grad_input },
    { &op_conv2d_transpose_grad_weight, add_conv2d_transpose_grad_weight },
    { &op_conv2d_pool, add_conv2d },
    { &op_conv2d_pool_grad_input, add_conv2d_pool_grad },
    { &op_conv2d_pool_grad_weight, add_conv2d_pool_grad },
    { &op_conv1d, add_conv1d },
    { &op_conv1d_grad_input, add_conv1d_grad },
    { &op_conv1d_grad_weight, add_conv1d_grad },
    { &op_conv1d_max, add_conv1d },
    { &op_conv1d_max_grad_input, add_conv1d_grad },
    { &op_conv1d_max_grad_weight, add_conv1d_grad },
    { &op_max_over_time, add_max_over_time },
    { &op_max_over_time_grad, add_max_over_time },
    { &op_concat, add_concat },
    { &op_columns, add_columns },
    { &op_max_pool, add_pool },
    { &op_max_pool_grad, add_pool_grad },
    { &op_avg_pool, add_pool },
    { &op_avg_pool_grad, add_pool_grad },
    { &op_bias, add_bias },
    { &op_bias_grad, add_elementwise },
    { &op_sum_rows, add_softmax },
    { &op_relu, add_elementwise },
    { &op_relu_grad, add_elementwise },
    { &op_add, add_elementwise },
    { &op_dropout, add_dropout },
    { &op_reshape, add_reshape },
    { &op_reorder, add_reorder },
    { &op_relu6, add_elementwise },
    { &op_relu6_grad, add_elementwise },
    { &op_sigmoid, add_elementwise },
    { &op_sigmoid_grad, add_elementwise },
    { &op_tanh, add_elementwise },
    { &op_tanh_grad, add_elementwise },
    { &op_gelu, add_elementwise },
    { &op_gelu_grad, add_elementwise },
    { &op_gelu_tanh, add_elementwise },
    { &op_gelu_tanh_grad, add_elementwise },
    { &op_layer_norm, add_layer_norm },
    { &op_layer_norm_grad, add_layer_norm },
    { &op_softmax, add_softmax },
    { &op_softmax_grad, add_softmax },
    { &op_add_positions, add_positions },
    { &op_positions_grad, add_positions },
    { &op_attention, add_attention },
    { &op_attention_grad, add_attention },
    { &op_attention_step, add_attention },
    { &op_batch_norm, add_batch_norm },
    { &op_batch_norm_grad, add_batch_norm_grad },
    { &op_batch_norm_apply, add_batch_norm },
    { &op_batch_norm_stats, add_norm_part },
    { &op_batch_norm_join, add_norm_part },
    { &op_batch_norm_normalize, add_norm_part },
    { &op_batch_norm_grad_sums, add_norm_part },
    { &op_batch_norm_grad_spread, add_norm_part },
    { &op_conv2d_stats, add_norm_conv },
    { &op_norm_conv2d, add_norm_conv },
    { &op_norm_conv2d_stats, add_norm_conv },
    { &op_conv2d_stats_grad, add_norm_conv },
    { &op_norm_conv2d_grad, add_norm_conv },
    { &op_norm_conv2d_stats_grad, add_norm_conv },
    { &op_softmax_cross_entropy, add_classes },
    { &op_softmax_cross_entropy_grad, add_classes },
    { &op_softmax_loss, add_classes },
    { &op_accuracy, add_classes },
    { &op_token_cross_entropy, add_tokens },
    { &op_token_cross_entropy_grad, add_tokens },
    { &op_token_accuracy, add_tokens },
    { &op_linear_token_loss, add_linear_token_loss },
    { &op_mse, add_elementwise },
    { &op_mse_grad, add_elementwise },
    { &op_lstm, add_recurrent },
    { &op_lstm_grad, add_recurrent_grad },
    { &op_gru, add_recurrent },
    { &op_gru_grad, add_recurrent_grad },
    { &op_lstm_attend, add_attend },
    { &op_lstm_attend_grad, add_attend },
    { &op_embedding, add_embedding },
    { &op_embedding_grad, add_embedding },
    { &op_embedding_mean, add_embedding },
    { &op_embedding_mean_grad, add_embedding },
    { &op_rows_sort, add_embedding },
};

static const struct row *row_of(const struct op *op)
{
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        if (table[i].op == op)
            return &table[i];
    }
    return NULL;
}

bool op_case_exists(const struct op *op)
{
    return row_of(op) != NULL;
}

struct node *op_case_add(struct graph *graph, const struct op *op, struct rng *rng)
{
    return row_of(op)->add(graph, op, rng);
}

/* Contents ----------------------------------------------------------------------------- */

/* A place of window number `at` along one axis that lies within the image. */
static int place_inside(const struct attrs *a, int axis, int64_t at, struct rng *rng)
{
    const int start = (int)at * a->stride[axis] - a->pad[axis];
    const int first = start < 0 ? -start : 0;
    const int end =
        start + a->window[axis] < a->extent[axis] ? a->window[axis] : a->extent[axis] - start;
    return between(rng, first, end - 1);
}

static void fill_index(const struct attrs *a, const struct shape *shape, struct rng *rng,
                       uint8_t *index)
{
    const int64_t channels = shape->dim[1], width = shape->dim[3];

    for (int64_t i = 0; i < shape_count(shape); i++) {
        const int row = place_inside(a, 0, i / channels / width % shape->dim[2], rng);
        const int column = place_inside(a, 1, i / channels % width, rng);
        index[i] = rng_below(rng, 8) ? (uint8_t)(row * a->window[1] + column) : 255;
    }
}

/* Rows of the table that ids are numbers of. */
static int table_rows(const struct node *node)
{
    const bool has_table = node->op == &op_embedding || node->op == &op_embedding_mean;

    return has_table          ? (int)node->in[1]->shape.dim[0]
           : node->attrs.rows ? (int)node->attrs.rows
                              : 3;
}

/* How many places conv1d_max or max_over_time had to choose from. */
static int places_of(const struct node *node)
{
    const bool weight = node->op == &op_conv1d_max_grad_weight;
    const int t = (int)node->in[weight                               ? 0
                                : node->op == &op_max_over_time_grad ? 2
                                                                     : 3]
                      ->shape.dim[1];
    const int k = weight                               ? node->attrs.extent[0]
                  : node->op == &op_max_over_time_grad ? 1
                                                       : (int)node->in[2]->shape.dim[2];
    return t < k ? 1 : t - k + 1;
}

static bool has_places(const struct node *node)
{
    return node->op == &op_conv1d_max_grad_input || node->op == &op_conv1d_max_grad_weight ||
           node->op == &op_max_over_time_grad;
}

static bool is_recurrent(const struct node *node)
{
    const struct row *row = row_of(node->op);

    return row->add == add_recurrent || row->add == add_attend ||
           row->add == add_recurrent_grad;
}

void op_case_fill(const struct node *node, const struct value *value, const struct shape *shape,
                  struct rng *rng, void *data)
{
    const int64_t count = shape_count(shape);

    if (value->dtype == DTYPE_U8 && node->op != &op_max_pool_grad) {
        for (int64_t i = 0; i < count; i++) /* the pool of a convolution has no padding */
            ((uint8_t *)data)[i] =
                rng_below(rng, 8)
                    ? (uint8_t)between(rng, 0,
                                       node->attrs.window[0] * node->attrs.window[1] - 1)
                    : 255;
    } else if (value->dtype == DTYPE_U8) {
        fill_index(&node->attrs, shape, rng, data);
    } else if (value->dtype == DTYPE_I32 && has_places(node)) {
        const int lowest = node->op == &op_max_over_time_grad ? 0 : -1; /* nowhere */
        for (int64_t i = 0; i < count; i++)
            ((int32_t *)data)[i] = between(rng, lowest, places_of(node) - 1);
    } else if (value->dtype == DTYPE_I32 && node->op == &op_attention_step) {
        for (int64_t i = 0; i < count; i++) /* as many places as are left in the cache */
            ((int32_t *)data)[i] =
                between(rng, 0, (int)(node->in[1]->shape.dim[1] - node->in[0]->shape.dim[1]));
    } else if (value->dtype == DTYPE_I32 &&
               (node->op == &op_attention || node->op == &op_attention_grad ||
                is_recurrent(node))) {
        for (int64_t i = 0; i < count; i++) /* some tokens are none */
            ((int32_t *)data)[i] = between(rng, -1, 4);
    } else if (value->dtype == DTYPE_I32 && row_of(node->op)->add == add_embedding) {
        for (int64_t i = 0; i < count; i++)
            ((int32_t *)data)[i] = between(rng, -1, table_rows(node) - 1);
    } else if (value->dtype == DTYPE_I32) {
        const struct shape *logits = &node->in[0]->shape;
        const int lowest = strstr(node->op->name, "token_") ? -1 : 0; /* no label */
        const int64_t classes = node->op == &op_linear_token_loss
                                    ? node->in[1]->shape.dim[0]
                                    : logits->dim[logits->rank - 1];
        for (int64_t i = 0; i < count; i++)
            ((int32_t *)data)[i] = between(rng, lowest, (int)classes - 1);
    } else {
        /* Gates beyond 1 would make differences grow from step to step, whoever computes them. */
        const float most = is_recurrent(node) ? 512 : 128;
        for (int64_t i = 0; i < count; i++)
            ((float *)data)[i] = (float)(2 * between(rng, -128, 127) + 1) / most;
    }
    if (node->op == &op_batch_norm_apply && value == node->in[4]) {
        for (int64_t i = 0; i < count; i++) /* a variance is not negative */
            ((float *)data)[i] *= ((float *)data)[i];
    }
    if (node->op == &op_batch_norm_grad_spread && value == node->in[4]) {
        const int64_t channels = shape->dim[2];
        for (int64_t i = 0; i < count; i++) /* the third row counts places, the same for all */
            if (i / channels % 3 == 2)
                ((float *)data)[i] = (float)(1 + i / channels);
    }
}
