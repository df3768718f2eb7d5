/* SPDX-License-Identifier: MIT */
/* build.c - layers. */
#include "graph/build.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>

#include "graph/op.h"

enum { NAME_MAX_BYTES = 128 };

static struct value *first(const struct node *node)
{
    return node ? node->out[0] : NULL;
}

struct full_name {
    char text[NAME_MAX_BYTES];
};

static struct full_name full_name(const char *name, const char *part)
{
    struct full_name full;
    snprintf(full.text, sizeof full.text, "%s.%s", name, part);
    return full;
}

/* A parameter "NAME.PART"; PyTorch draws weights and biases uniformly in +-1/sqrt(fan in). */
static struct value *parameter(struct graph *graph, const char *name, const char *part,
                               struct shape shape, int64_t fan_in)
{
    return graph_param(graph, full_name(name, part).text, shape,
                       (float)(1.0 / sqrt((double)fan_in)));
}

struct value *build_linear(struct graph *graph, const char *name, struct value *x,
                           int64_t outputs)
{
    if (x && x->shape.rank == 4)
        x = build_flatten(graph, name, x);
    if (!x)
        return NULL;
    const int64_t inputs = x->shape.dim[x->shape.rank - 1];
    struct value *w = parameter(graph, name, "weight", shape_2(outputs, inputs), inputs);
    struct value *b = parameter(graph, name, "bias", shape_1(outputs), inputs);
    struct value *const in[] = { x, w };
    struct value *y = first(graph_add(graph, &op_linear, name, in, 2, NULL));
    struct value *const with_bias[] = { y, b };
    return first(graph_add(graph, &op_bias, name, with_bias, 2, NULL));
}

struct value *build_linear_tied(struct graph *graph, const char *name, struct value *x,
                                struct value *weight)
{
    struct value *const in[] = { x, weight };
    return first(graph_add(graph, &op_linear, name, in, 2, NULL));
}

/* PyTorch draws a table of embeddings from a normal distribution. */
static struct value *add_lookup(struct graph *graph, const struct op *op, const char *name,
                                struct value *ids, int64_t rows, int64_t width)
{
    struct value *table =
        graph_param_table(graph, full_name(name, "weight").text, shape_2(rows, width), 1);
    struct value *const in[] = { ids, table };

    return first(graph_add(graph, op, name, in, 2, NULL));
}

struct value *build_embedding(struct graph *graph, const char *name, struct value *ids,
                              int64_t rows, int64_t width)
{
    return add_lookup(graph, &op_embedding, name, ids, rows, width);
}

struct value *build_embedding_of(struct graph *graph, const char *name, struct value *ids,
                                 struct value *table)
{
    struct value *const in[] = { ids, table };
    return first(graph_add(graph, &op_embedding, name, in, 2, NULL));
}

struct value *build_embedding_mean(struct graph *graph, const char *name, struct value *ids,
                                   int64_t rows, int64_t width)
{
    return add_lookup(graph, &op_embedding_mean, name, ids, rows, width);
}

struct value *build_conv2d(struct graph *graph, const char *name, struct value *x,
                           struct build_conv conv)
{
    const struct attrs attrs = { .stride = { conv.stride, conv.stride },
                                 .pad = { conv.pad, conv.pad },
                                 .groups = conv.groups };

    if (!x)
        return NULL;
    const int64_t groups = conv.groups > 1 ? conv.groups : 1;
    const int64_t channels = x->shape.rank == 4 ? x->shape.dim[1] / groups : 0;
    const int64_t fan_in = channels * conv.kernel * conv.kernel;
    struct value *w =
        parameter(graph, name, "weight",
                  shape_4(conv.channels, channels, conv.kernel, conv.kernel), fan_in);
    struct value *const in[] = { x, w };
    struct value *y = first(graph_add(graph, &op_conv2d, name, in, 2, &attrs));
    if (conv.no_bias)
        return y;
    struct value *const with_bias[] = { y, parameter(graph, name, "bias",
                                                     shape_1(conv.channels), fan_in) };
    return first(graph_add(graph, &op_bias, name, with_bias, 2, NULL));
}

/* PyTorch counts the second extent of a weight as its fan in: here the outputs. */
struct value *build_conv2d_transpose(struct graph *graph, const char *name, struct value *x,
                                     struct build_conv conv)
{
    struct attrs attrs = { .stride = { conv.stride, conv.stride },
                           .pad = { conv.pad, conv.pad },
                           .groups = conv.groups };

    if (!x)
        return NULL;
    const bool is_image = x->shape.rank == 4;
    const int64_t fan_in = conv.channels * conv.kernel * conv.kernel;
    for (int i = 0; is_image && i < 2; i++) {
        const int64_t extent = (x->shape.dim[2 + i] - 1) * conv.stride - 2 * (int64_t)conv.pad +
                               conv.kernel + conv.output_pad;
        attrs.extent[i] = extent > 0 && extent <= INT_MAX ? (int)extent : 0;
    }
    struct value *w = parameter(
        graph, name, "weight",
        shape_4(is_image ? x->shape.dim[1] : 0, conv.channels, conv.kernel, conv.kernel),
        fan_in);
    struct value *const in[] = { x, w };
    struct value *y = first(graph_add(graph, &op_conv2d_transpose, name, in, 2, &attrs));
    if (conv.no_bias)
        return y;
    struct value *const with_bias[] = { y, parameter(graph, name, "bias",
                                                     shape_1(conv.channels), fan_in) };
    return first(graph_add(graph, &op_bias, name, with_bias, 2, NULL));
}

struct value *build_relu(struct graph *graph, const char *name, struct value *x)
{
    return first(graph_add(graph, &op_relu, name, &x, 1, NULL));
}

struct value *build_relu6(struct graph *graph, const char *name, struct value *x)
{
    return first(graph_add(graph, &op_relu6, name, &x, 1, NULL));
}

struct value *build_sigmoid(struct graph *graph, const char *name, struct value *x)
{
    return first(graph_add(graph, &op_sigmoid, name, &x, 1, NULL));
}

struct value *build_tanh(struct graph *graph, const char *name, struct value *x)
{
    return first(graph_add(graph, &op_tanh, name, &x, 1, NULL));
}

struct value *build_gelu(struct graph *graph, const char *name, struct value *x)
{
    return first(graph_add(graph, &op_gelu, name, &x, 1, NULL));
}

struct value *build_gelu_tanh(struct graph *graph, const char *name, struct value *x)
{
    return first(graph_add(graph, &op_gelu_tanh, name, &x, 1, NULL));
}

struct value *build_softmax(struct graph *graph, const char *name, struct value *x)
{
    return first(graph_add(graph, &op_softmax, name, &x, 1, NULL));
}

static struct value *pool(struct graph *graph, const struct op *op, const char *name,
                          struct value *x, int window, int stride, int pad)
{
    const int step = stride ? stride : window;
    const struct attrs attrs = { .window = { window, window },
                                 .stride = { step, step },
                                 .pad = { pad, pad } };
    return first(graph_add(graph, op, name, &x, 1, &attrs));
}

struct value *build_max_pool(struct graph *graph, const char *name, struct value *x, int window,
                             int stride, int pad)
{
    return pool(graph, &op_max_pool, name, x, window, stride, pad);
}

struct value *build_avg_pool(struct graph *graph, const char *name, struct value *x, int window,
                             int stride, int pad)
{
    return pool(graph, &op_avg_pool, name, x, window, stride, pad);
}

struct value *build_global_pool(struct graph *graph, const char *name, struct value *x)
{
    if (!x || x->shape.rank != 4)
        return x;
    const int rows = (int)x->shape.dim[2], columns = (int)x->shape.dim[3];
    const struct attrs attrs = { .window = { rows, columns }, .stride = { rows, columns } };
    return build_flatten(graph, name,
                         first(graph_add(graph, &op_avg_pool, name, &x, 1, &attrs)));
}

struct value *build_flatten(struct graph *graph, const char *name, struct value *x)
{
    if (!x || x->shape.rank <= 2)
        return x;
    /* Weights expect channel, row, column order; images lie channels innermost. */
    if (x->layout == LAYOUT_NHWC && x->shape.dim[1] > 1 &&
        x->shape.dim[2] * x->shape.dim[3] > 1) {
        const struct attrs plain = { .layout = LAYOUT_PLAIN };
        x = first(graph_add(graph, &op_reorder, name, &x, 1, &plain));
        if (!x)
            return NULL;
    }
    struct attrs attrs = { .sample = { .rank = 1, .dim = { 1 } } };
    for (int i = 1; i < x->shape.rank; i++)
        attrs.sample.dim[0] *= x->shape.dim[i];
    return first(graph_add(graph, &op_reshape, name, &x, 1, &attrs));
}

struct value *build_add(struct graph *graph, const char *name, struct value *a, struct value *b)
{
    struct value *const in[] = { a, b };
    return first(graph_add(graph, &op_add, name, in, 2, NULL));
}

struct value *build_dropout(struct graph *graph, const char *name, struct value *x, float rate)
{
    if (rate == 0 || !x)
        return x;
    /* Each dropout of a model draws from a stream of its own. */
    const struct attrs attrs = { .rate = rate, .stream = (uint32_t)x->id };
    return first(graph_add(graph, &op_dropout, name, &x, 1, &attrs));
}

struct value *build_batch_norm(struct graph *graph, const char *name, struct value *x,
                               bool training)
{
    const struct attrs attrs = { .epsilon = 1e-5F };

    if (!x)
        return NULL;
    const struct shape shape = shape_1(x->shape.rank > 1 ? x->shape.dim[1] : 1);
    struct value *gamma = graph_param_constant(graph, full_name(name, "weight").text, shape, 1);
    struct value *beta = graph_param_constant(graph, full_name(name, "bias").text, shape, 0);
    struct value *mean = graph_average(graph, full_name(name, "running_mean").text, shape, 0);
    struct value *variance =
        graph_average(graph, full_name(name, "running_var").text, shape, 1);
    struct value *const in[] = { x, gamma, beta, mean, variance };
    if (!training)
        return first(graph_add(graph, &op_batch_norm_apply, name, in, 5, &attrs));
    struct node *node = graph_add(graph, &op_batch_norm, name, in, 3, &attrs);
    if (!node)
        return NULL;
    mean->gradient = node->out[2];
    variance->gradient = node->out[3];
    return node->out[0];
}

struct value *build_layer_norm(struct graph *graph, const char *name, struct value *x,
                               float epsilon)
{
    const struct attrs attrs = { .epsilon = epsilon };

    if (!x)
        return NULL;
    const struct shape shape = shape_1(x->shape.dim[x->shape.rank - 1]);
    struct value *gamma = graph_param_constant(graph, full_name(name, "weight").text, shape, 1);
    struct value *beta = graph_param_constant(graph, full_name(name, "bias").text, shape, 0);
    struct value *const in[] = { x, gamma, beta };
    return first(graph_add(graph, &op_layer_norm, name, in, 3, &attrs));
}

struct value *build_positions(struct graph *graph, const char *name, struct value *x,
                              struct value *table, struct value *begin)
{
    struct value *const in[] = { x, table, begin };
    return first(graph_add(graph, &op_add_positions, name, in, 3, NULL));
}

struct value *build_attention(struct graph *graph, const char *name, struct value *qkv,
                              struct value *ids, int heads, bool causal)
{
    const struct attrs attrs = { .heads = heads, .causal = causal };
    struct value *const in[] = { qkv, ids };
    return first(graph_add(graph, &op_attention, name, in, 2, &attrs));
}

struct value *build_attention_step(struct graph *graph, const char *name, struct value *qkv,
                                   struct value *cache, struct value *begin, int heads)
{
    const struct attrs attrs = { .heads = heads };
    struct value *const in[] = { qkv, cache, begin };
    return first(graph_add(graph, &op_attention_step, name, in, 3, &attrs));
}

void build_classifier_loss(struct graph *graph, struct value *logits, struct value *labels)
{
    struct graph_roles *roles = graph_roles(graph);
    struct value *const in[] = { logits, labels };

    roles->output = logits;
    roles->correct = first(graph_add(graph, &op_accuracy, "accuracy", in, 2, NULL));
    roles->loss = first(graph_add(graph, &op_softmax_cross_entropy, "loss", in, 2, NULL));
}

void build_token_loss(struct graph *graph, struct value *logits, struct value *labels)
{
    struct graph_roles *roles = graph_roles(graph);
    struct value *const in[] = { logits, labels };

    roles->output = logits;
    roles->correct = first(graph_add(graph, &op_token_accuracy, "accuracy", in, 2, NULL));
    roles->loss = first(graph_add(graph, &op_token_cross_entropy, "loss", in, 2, NULL));
}

void build_label_smoothing(struct graph *graph, float share)
{
    const struct value *loss = graph_roles(graph)->loss;

    if (share == 0 || !loss)
        return;
    if (loss->maker->op != &op_softmax_cross_entropy &&
        loss->maker->op != &op_token_cross_entropy)
        graph_fail(graph, FAIL(STATUS_USAGE, "label smoothing: %s learns from no labels",
                               graph_name(graph)));
    else if (!(share > 0 && share <= 1))
        graph_fail(graph,
                   FAIL(STATUS_USAGE, "label smoothing %g is not in [0, 1]", (double)share));
    else
        loss->maker->attrs.smoothing = share;
}

void build_mse_loss(struct graph *graph, struct value *output, struct value *target)
{
    struct graph_roles *roles = graph_roles(graph);
    struct value *const in[] = { output, target };

    roles->output = output;
    roles->loss = first(graph_add(graph, &op_mse, "loss", in, 2, NULL));
}

void build_reconstruction_loss(struct graph *graph, struct value *output)
{
    struct value *input = graph_roles(graph)->input;

    if (output && output->shape.rank == 2)
        input = build_flatten(graph, "original", input);
    build_mse_loss(graph, output, input);
}
