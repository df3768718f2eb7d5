/* SPDX-License-Identifier: MIT */
/* build.h - layers: what models are written in.
 *
 * A layer makes its parameters, named "NAME.weight" and "NAME.bias" as PyTorch does, with
 * PyTorch's default initial values, and adds its nodes. NULL in gives NULL out, so that a
 * model needs no checks; graph_status tells at the end.
 */
#ifndef GRAPH_BUILD_H
#define GRAPH_BUILD_H

#include "graph/graph.h"

/* x (N, features) or (N, places, features), or images, which are flattened first. */
struct value *build_linear(struct graph *graph, const char *name, struct value *x,
                           int64_t outputs);

/* The same by a weight (outputs, features) that is there, without bias: a head tied to a table. */
struct value *build_linear_tied(struct graph *graph, const char *name, struct value *x,
                                struct value *weight);

/* Rows of a new table (rows, width) by ids (N, T): (N, T, width). -1 is padding: zeros. */
struct value *build_embedding(struct graph *graph, const char *name, struct value *ids,
                              int64_t rows, int64_t width);
/* Rows of a table that is there. */
struct value *build_embedding_of(struct graph *graph, const char *name, struct value *ids,
                                 struct value *table);
/* Their mean over each sample's ids, padding left out: (N, width). */
struct value *build_embedding_mean(struct graph *graph, const char *name, struct value *ids,
                                   int64_t rows, int64_t width);

struct build_conv {
    int64_t channels; /* of the output */
    int kernel, stride, pad;
    bool no_bias;
    int groups;     /* the channels are split into so many; 0 is 1 */
    int output_pad; /* transposed: rows and columns more, which the stride left open */
};
struct value *build_conv2d(struct graph *graph, const char *name, struct value *x,
                           struct build_conv conv);
/* To (h-1)*stride - 2*pad + kernel + output_pad rows, and as many columns of the width. */
struct value *build_conv2d_transpose(struct graph *graph, const char *name, struct value *x,
                                     struct build_conv conv);
/* Along sequences (N, T, C) -> (N, T-kernel+1, filters); a shorter sequence is followed by zeros. */
struct value *build_conv1d(struct graph *graph, const char *name, struct value *x,
                           int64_t filters, int kernel);
/* (N, T, C) -> (N, C): the largest along T. */
struct value *build_max_over_time(struct graph *graph, const char *name, struct value *x);
/* Up to GRAPH_IN values side by side, along their last extent. */
struct value *build_concat(struct graph *graph, const char *name, struct value *const *parts,
                           int count);
struct value *build_relu(struct graph *graph, const char *name, struct value *x);
struct value *build_relu6(struct graph *graph, const char *name, struct value *x);
struct value *build_sigmoid(struct graph *graph, const char *name, struct value *x);
struct value *build_tanh(struct graph *graph, const char *name, struct value *x);
struct value *build_gelu(struct graph *graph, const char *name, struct value *x);
struct value *build_gelu_tanh(struct graph *graph, const char *name, struct value *x);
struct value *build_softmax(struct graph *graph, const char *name, struct value *x);
/* stride 0 means window */
struct value *build_max_pool(struct graph *graph, const char *name, struct value *x, int window,
                             int stride, int pad);
struct value *build_avg_pool(struct graph *graph, const char *name, struct value *x, int window,
                             int stride, int pad);
/* The mean over each channel's places: (N, C). */
struct value *build_global_pool(struct graph *graph, const char *name, struct value *x);
struct value *build_flatten(struct graph *graph, const char *name, struct value *x);
struct value *build_add(struct graph *graph, const char *name, struct value *a,
                        struct value *b);
/* Rate 0 adds nothing. */
struct value *build_dropout(struct graph *graph, const char *name, struct value *x, float rate);

/* x (N, C, H, W). Parameters NAME.weight and NAME.bias; the running averages NAME.running_mean
 * and NAME.running_var, which training (statistics of each shard) changes and evaluation reads. */
struct value *build_batch_norm(struct graph *graph, const char *name, struct value *x,
                               bool training);

/* Over the last extent. Parameters NAME.weight and NAME.bias. */
struct value *build_layer_norm(struct graph *graph, const char *name, struct value *x,
                               float epsilon);
/* Row t of `table`, or row first + t, added to token t of x (N, T, D); `first` (N) may be NULL. */
struct value *build_positions(struct graph *graph, const char *name, struct value *x,
                              struct value *table, struct value *first);
/* The first row of `table`, added to every token. */
struct value *build_row(struct graph *graph, const char *name, struct value *x,
                        struct value *table);
/* A number that is there, added to each feature. */
struct value *build_bias(struct graph *graph, const char *name, struct value *x,
                         struct value *bias);
/* qkv (N, T, 3D), ids (N, T) or NULL: keys with an id below 0 are not seen. Gives (N, T, D). */
struct value *build_attention(struct graph *graph, const char *name, struct value *qkv,
                              struct value *ids, int heads, bool causal);
/* Of tokens that come after `first` (N) others, whose keys and values `cache` (N, C, 2D) has. */
struct value *build_attention_step(struct graph *graph, const char *name, struct value *qkv,
                                   struct value *cache, struct value *first, int heads);

/* What a decoder attends to: (N, S, E), keys (N, S, A) made of it, and the ids (N, S) of its places,
 * negative where there is nothing to see. */
struct build_memory {
    struct value *contents, *keys, *ids;
};
struct build_recurrent {
    int64_t units;
    int layers;
    float dropout;                     /* of what goes from one layer to the next */
    struct value *const *state;        /* of each layer before the first step; NULL: zeros */
    const struct build_memory *memory; /* what the first layer attends to, or NULL */
    struct value **last; /* gets each layer's state after the last step; NULL: not wanted */
};
/* x (N, T, D) to (N, T, units), the last layer's outputs. Where ids (N, T) are negative a sequence is
 * over: its states stay as they are. A state is (N, 2 * units), h then c. Parameters are PyTorch's
 * NAME.weight_ih_l0, NAME.weight_hh_l0, NAME.bias_ih_l0, NAME.bias_hh_l0 and so on. A layer that
 * attends needs a state, and has besides NAME.weight_ch_l0, of the context (the last columns of a
 * weight_ih that sees it joined to the input), NAME.attention.query.weight and
 * NAME.attention.score.weight. */
struct value *build_lstm(struct graph *graph, const char *name, struct value *x,
                         struct value *ids, struct build_recurrent how);
/* The same; a state is (N, units), and no layer attends. */
struct value *build_gru(struct graph *graph, const char *name, struct value *x,
                        struct value *ids, struct build_recurrent how);

/* The ends of a model: set the graph's roles. */
void build_classifier_loss(struct graph *graph, struct value *logits, struct value *labels);
/* logits (N, T, vocabulary), labels (N, T): the mean over the labels that are not below 0. */
void build_token_loss(struct graph *graph, struct value *logits, struct value *labels);
/* Has the classifier's loss spread a share of each label evenly over the classes; 0 changes
 * nothing. Any other loss fails the graph. */
void build_label_smoothing(struct graph *graph, float share);
void build_mse_loss(struct graph *graph, struct value *output, struct value *target);
/* Mean squared difference from the graph's input, which is flattened if the output is. */
void build_reconstruction_loss(struct graph *graph, struct value *output);

#endif /* GRAPH_BUILD_H */
