/* SPDX-License-Identifier: MIT */
/* attr.h - the constants that an op carries besides its tensors.
 *
 * Open data, shared by the graph (which sets and prints them) and the kernels
 * (which read them). A field that an op does not use is zero.
 */
#ifndef TENSOR_ATTR_H
#define TENSOR_ATTR_H

#include <stdbool.h>
#include <stdint.h>

#include "tensor/shape.h"
#include "tensor/slice.h"

#ifdef __cplusplus
extern "C" {
#endif

/* rows_sort: ranges of ids, all as long as ROWS_BLOCKS of them cover a table, whose beginnings it
 * notes. */
enum { ROWS_BLOCKS = 256 };

/* worker_mean: workers whose parameters it takes besides its own, at most. */
enum { ATTR_OFFSETS = 16 };

enum activation {
    ACTIVATION_NONE,
    ACTIVATION_RELU,
    ACTIVATION_RELU6,
    ACTIVATION_SIGMOID,
    ACTIVATION_GELU_TANH /* of linear_grad_through alone */
};

/* "none", "relu", ...: also the name of the op that does it alone. */
static inline const char *activation_name(enum activation activation)
{
    static const char *const names[] = { "none", "relu", "relu6", "sigmoid", "gelu_tanh" };
    return names[activation];
}

/* Conditions of parameter servers. push: before they apply it. pull: before they answer it. */
enum attr_when {
    WHEN_UNSTATED,
    WHEN_STEP,    /* every worker's push of the step */
    WHEN_AT_ONCE, /* nothing */
    WHEN_BOUNDED  /* pull: the slowest worker, until it is at most `bound` steps behind */
};

/* "step", "at_once", "bounded" */
static inline const char *attr_when_name(enum attr_when when)
{
    static const char *const names[] = { "unstated", "step", "at_once", "bounded" };
    return names[when];
}

struct attrs {
    int stride[2], pad[2]; /* convolution and pooling: vertical, horizontal */
    int window[2];         /* pooling */
    int heads, causal;     /* attention: heads; a token sees none that come after it */
    int period;    /* positions: rows of the table that are used again and again; 0: all */
    int groups;    /* convolution: channels are split into so many; 0 is 1 */
    int extent[2]; /* gradients of windowed ops: height and width of the input, or of
                                   the kernel for a weight's gradient */
    struct shape sample; /* reshape: the output's extents after the first */
    enum layout layout;  /* reorder: the output's; conv2d_grad_weight: LAYOUT_OHWI, or hwio */
    int is_plain;        /* linear_grad_weight: the weight is a table, its rows contiguous */
    int with_bias;       /* weight gradients: make the bias's too */
    int with_residual;   /* gradients of batch norm: make the residual's too */
    int with_state;      /* gradients of recurrent layers: make the first state's too */
    int64_t shards;      /* shard_gather, batch_norm_normalize: of a step */
    enum activation activation;   /* applied to the output before it is stored */
    float rate;                   /* dropout: the share that is zeroed */
    uint32_t stream;              /* dropout: which stream of random numbers */
    float momentum, weight_decay; /* optimizers */
    float beta1, beta2;           /* Adam */
    float epsilon;                /* Adam, batch norm */
    float smoothing;              /* cross-entropy: the share of the labels spread evenly */
    int nesterov, decoupled;      /* SGD: Nesterov's form; Adam: AdamW's decay */
    float max_norm;               /* clipping; 0 is off */
    float trust;                  /* LARS: the trust coefficient */
    int adapts_all;               /* LARS, LAMB: biases and norms have a trust ratio, too */
    int bucket;                   /* collectives and updates: which flat range */
    /* worker_mean: worker w averages with workers w + offset, modulo their number; none: with
     * all of them */
    int n_offsets, offset[ATTR_OFFSETS];
    int64_t rows;   /* embedding_grad, rows_sort: of the table */
    bool served;    /* embedding_grad, row_sum: goes to the nodes that own its rows */
    bool densified; /* embedding_grad: has all rows, though few occur */
    int by_sample;  /* rows_sort: dy has a row a sample, not an id */
    struct shape_slice
        slice; /* what of a value this rank has, or is meant: ops between ranks that share
                           a layer; dropout: of x; cross-entropy of tokens: of the classes */
    int sums;  /* tp_gather: what flows back are summands, to be summed */
    int peer,
        slot; /* send, receive: the rank of the pipeline at the other end; number of the pair */
    bool once; /* send, receive: of a parameter, once a step; else every shard */
    /* reduce_scatter, all_gather, all_reduce, shard_gather: the exchange goes on between nodes,
     * after that of the ranks of each; else it is among ranks of one node */
    bool between_nodes;
    enum attr_when when; /* push, pull */
    int bound;           /* WHEN_BOUNDED: steps, above 0 */
};

#ifdef __cplusplus
}
#endif

#endif /* TENSOR_ATTR_H */
