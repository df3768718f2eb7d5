/* SPDX-License-Identifier: MIT */
/* build_recurrent.c - stacks of LSTM and GRU layers. */
#include <math.h>
#include <stdio.h>

#include "graph/build.h"
#include "graph/op.h"

enum { NAME_MAX_BYTES = 128 };

struct full_name {
    char text[NAME_MAX_BYTES];
};

/* "NAME.PART_lLAYER", as PyTorch calls what belongs to a layer. */
static struct full_name layer_name(const char *name, const char *part, int layer)
{
    struct full_name full;
    snprintf(full.text, sizeof full.text, "%s.%s_l%d", name, part, layer);
    return full;
}

/* PyTorch draws all weights and biases of a recurrent layer uniformly in +-1/sqrt(units). */
static struct value *parameter(struct graph *graph, const char *name, const char *part,
                               int layer, struct shape shape, int64_t units)
{
    return graph_param(graph, layer_name(name, part, layer).text, shape,
                       (float)(1.0 / sqrt((double)units)));
}

/* What the input says to the gates, of all steps at once. */
static struct value *add_gates(struct graph *graph, const char *name, int layer,
                               struct value *x, struct value *weight, struct value *bias)
{
    const struct full_name node = layer_name(name, "gates", layer);
    struct value *const in[] = { x, weight };
    struct node *linear = graph_add(graph, &op_linear, node.text, in, 2, NULL);
    struct value *const with_bias[] = { linear ? linear->out[0] : NULL, bias };
    struct node *sum = graph_add(graph, &op_bias, node.text, with_bias, 2, NULL);
    return sum ? sum->out[0] : NULL;
}

/* Inputs of an op that attends, after those of lstm. Linear layers draw in +-1/sqrt(inputs). */
static void add_attention(struct graph *graph, const char *name, int layer, int64_t units,
                          const struct build_memory *memory, struct value **in)
{
    const int64_t keys = memory->keys ? memory->keys->shape.dim[2] : 1;
    const int64_t contents = memory->contents ? memory->contents->shape.dim[2] : 1;
    char query[NAME_MAX_BYTES], score[NAME_MAX_BYTES];

    snprintf(query, sizeof query, "%s.attention.query.weight", name);
    snprintf(score, sizeof score, "%s.attention.score.weight", name);
    in[0] = parameter(graph, name, "weight_ch", layer, shape_2(4 * units, contents), units);
    in[1] = graph_param(graph, query, shape_2(keys, units), (float)(1 / sqrt((double)units)));
    in[2] = graph_param(graph, score, shape_1(keys), (float)(1 / sqrt((double)keys)));
    in[3] = memory->keys;
    in[4] = memory->contents;
    in[5] = memory->ids;
}

static struct value *add_layer(struct graph *graph, const struct op *op, const char *name,
                               int layer, struct value *x, struct value *ids,
                               const struct build_recurrent *how)
{
    const int64_t units = how->units, gates = (op == &op_gru ? 3 : 4) * units;
    const struct shape of_x = shape_2(gates, x->shape.dim[x->shape.rank - 1]);
    struct value *weight_ih = parameter(graph, name, "weight_ih", layer, of_x, units);
    struct value *weight_hh =
        parameter(graph, name, "weight_hh", layer, shape_2(gates, units), units);
    struct value *bias_ih = parameter(graph, name, "bias_ih", layer, shape_1(gates), units);
    struct value *bias_hh = parameter(graph, name, "bias_hh", layer, shape_1(gates), units);
    struct value *in[11] = { add_gates(graph, name, layer, x, weight_ih, bias_ih), weight_hh,
                             bias_hh, ids, how->state ? how->state[layer] : NULL };

    if (op == &op_lstm_attend)
        add_attention(graph, name, layer, units, how->memory, in + 5);
    struct node *node = graph_add(graph, op, layer_name(name, "y", layer).text, in, 11, NULL);
    if (how->last)
        how->last[layer] = node ? node->out[1] : NULL;
    return node ? node->out[0] : NULL;
}

static struct value *build_stack(struct graph *graph, const struct op *op, const char *name,
                                 struct value *x, struct value *ids, struct build_recurrent how)
{
    for (int layer = 0; layer < how.layers && x; layer++) {
        if (layer > 0)
            x = build_dropout(graph, layer_name(name, "dropout", layer - 1).text, x,
                              how.dropout);
        x = add_layer(graph, how.memory && layer == 0 ? &op_lstm_attend : op, name, layer, x,
                      ids, &how);
    }
    return x;
}

struct value *build_lstm(struct graph *graph, const char *name, struct value *x,
                         struct value *ids, struct build_recurrent how)
{
    return build_stack(graph, &op_lstm, name, x, ids, how);
}

struct value *build_gru(struct graph *graph, const char *name, struct value *x,
                        struct value *ids, struct build_recurrent how)
{
    if (how.memory) {
        graph_fail(graph, FAIL(STATUS_USAGE, "%s: attention goes with LSTM cells: choose those",
                               name));
        return NULL;
    }
    return build_stack(graph, &op_gru, name, x, ids, how);
}
