/* SPDX-License-Identifier: MIT */
/* op.h - the meaning of an op: arity, shapes, gradient, how it may be split, cost.
 *
 * One struct an op, in the file of its family; one row in ops.c. The code that
 * computes it lives in kernel/ under the same name.
 */
#ifndef GRAPH_OP_H
#define GRAPH_OP_H

#include "graph/graph.h"

/* What an output of a shard is to the step's, when the samples are split. */
enum op_split {
    SPLIT_NONE,  /* no such output */
    SPLIT_ROWS,  /* this shard's rows */
    SPLIT_SUM,   /* summands of a sum over shards */
    SPLIT_WHOLE, /* the op takes whole values and gives whole ones */
    SPLIT_SHARD, /* of this shard alone: neither rows nor a summand */
    SPLIT_SAME,  /* made from all shards' values, the same for each of them */
};

/* Shapes and types going into infer and coming out of it. */
struct op_shapes {
    const struct shape *in[GRAPH_IN]; /* NULL where absent */
    struct shape out[GRAPH_OUT];
    enum dtype dtype[GRAPH_OUT]; /* f32 unless infer says otherwise */
};

/* Along which axis a value is cut where ranks share the work of a layer (tensor parallelism): along
 * none, so that each of them has all of it; along one by number; along features (channels of images, else
 * the last axis); along the places of sequences. Or each of them has a summand of it. */
enum op_axis { AXIS_NONE, AXIS_0, AXIS_1, AXIS_FEATURES, AXIS_PLACES, AXIS_SUM };

/* One way of sharing an op's work: how its inputs must be cut, and how its outputs are then. */
struct op_way {
    const char *name;
    enum op_axis in[GRAPH_IN], out[GRAPH_OUT];
    int parts; /* of the cut features of input 0: each is cut; 0: it does not matter */
    /* May so many ranks share this node's work so? NULL: always. */
    bool (*can)(const struct node *node, int count);
    /* Makes the attributes those of a slice: that of input 0, or of output 0 if that is whole. NULL:
     * they stay. */
    void (*cut)(struct attrs *attrs, const struct shape_slice *slice);
};

struct op {
    const char *name, *summary;
    int min_in, max_in;   /* max_in > GRAPH_IN: a list, inferred from the first GRAPH_IN */
    int min_out, max_out; /* max_out > min_out: the last output is made if the op is asked to */
    enum dtype in_dtype[GRAPH_IN]; /* f32 where it says nothing else */
    enum op_split split[GRAPH_OUT];
    bool across_samples; /* looks at several samples at once: batch statistics */
    bool is_view;        /* the output is the input's memory */
    bool
        may_overwrite; /* elementwise: the output may take input 0's memory, and lies as it does */
    int overwrites;    /* the output of which that is so, if it is not the first */
    int extends; /* above 0: if it has this input, its last, output 0 is that with more added, and
                     takes its memory if nobody else needs it */
    bool by_rows;    /* blind to what rows are: kernels see matrices (kernel_as_matrices) */
    bool any_dtype;  /* takes values of any type; output 0 has the type of input 0 */
    bool keeps_sums; /* linear in all inputs: of summands it makes a summand */
    bool meets;      /* all shards come together here, so it runs once a step: exec/ runs it */
    bool talks;      /* of ranks that share layers: exec/ runs it, by messages between them */
    const struct op_way *ways; /* how ranks may share its work, ended by one without name; NULL:
                                  each of them does all of it */
    bool moves;                /* to or from another rank, the same bytes: exec/ runs it */

    /* Fills out[] from in[], or fails with a text that says which extents do not fit. */
    MUST_CHECK enum status (*infer)(const struct node *node, struct op_shapes *shapes);

    /* Adds nodes that make the gradients of the inputs from those of the outputs; dout[i] is NULL
     * where nothing flows back. Sets din[i] for each i with wanted[i]; NULL means none.
     * NULL slot: not differentiable. */
    void (*gradient)(struct graph *graph, const struct node *node, struct value *const *dout,
                     const bool *wanted, struct value **din);

    /* Floating-point operations; NULL: one an output element. */
    double (*flops)(const struct node *node, const struct shape *const *in,
                    const struct shape *out);
};

extern const struct op *const graph_ops[];        /* ended by NULL */
const struct op *graph_find_op(const char *name); /* NULL if there is none */

/* The families; a row each in ops.c. */
extern const struct op op_linear, op_linear_grad_input, op_linear_grad_weight, op_linear_gelu,
    op_linear_add, op_linear_grad_through;
extern const struct op op_conv2d, op_conv2d_grad_input, op_conv2d_grad_weight, op_conv2d_pool,
    op_conv2d_pool_grad_input, op_conv2d_pool_grad_weight;
extern const struct op op_conv2d_transpose, op_conv2d_transpose_grad_input,
    op_conv2d_transpose_grad_weight;
extern const struct op op_conv1d, op_conv1d_grad_input, op_conv1d_grad_weight, op_conv1d_max,
    op_conv1d_max_grad_input, op_conv1d_max_grad_weight;
extern const struct op op_max_over_time, op_max_over_time_grad, op_concat, op_columns;
extern const struct op op_max_pool, op_max_pool_grad, op_avg_pool, op_avg_pool_grad;
extern const struct op op_bias, op_bias_grad, op_sum_rows, op_relu, op_relu_grad, op_add,
    op_dropout;
extern const struct op op_relu6, op_relu6_grad, op_sigmoid, op_sigmoid_grad;
extern const struct op op_reshape, op_reorder;
extern const struct op op_tanh, op_tanh_grad, op_gelu, op_gelu_grad, op_gelu_tanh,
    op_gelu_tanh_grad;
extern const struct op op_layer_norm, op_layer_norm_grad, op_softmax, op_softmax_grad;
extern const struct op op_add_positions, op_positions_grad, op_attention, op_attention_grad,
    op_attention_step;
extern const struct op op_batch_norm, op_batch_norm_grad, op_batch_norm_apply;
extern const struct op op_batch_norm_stats, op_shard_gather, op_batch_norm_join,
    op_batch_norm_normalize, op_batch_norm_grad_sums, op_batch_norm_grad_spread;
extern const struct op op_conv2d_stats, op_norm_conv2d, op_norm_conv2d_stats,
    op_conv2d_stats_grad, op_norm_conv2d_grad, op_norm_conv2d_stats_grad;
extern const struct op op_softmax_cross_entropy, op_softmax_cross_entropy_grad, op_softmax_loss;
extern const struct op op_mse, op_mse_grad, op_accuracy;
extern const struct op op_token_cross_entropy, op_token_cross_entropy_grad, op_token_accuracy,
    op_linear_token_loss;
extern const struct op op_embedding, op_embedding_grad, op_embedding_mean,
    op_embedding_mean_grad, op_rows_sort;
extern const struct op op_lstm, op_lstm_grad, op_gru, op_gru_grad, op_lstm_attend,
    op_lstm_attend_grad;
extern const struct op op_sgd_update, op_adam_update, op_average_update, op_clip_norm,
    op_anchor;
extern const struct op op_lars_update, op_lamb_update, op_lamb_direction, op_trust_ratio;
extern const struct op op_send, op_receive;
extern const struct op op_shard_sum, op_factor_sum, op_row_sum, op_all_reduce,
    op_reduce_scatter, op_all_gather, op_push, op_pull, op_worker_mean, op_center_pull;

/* Between ranks that share layers (op_tensor.c). */
extern const struct op op_tp_copy, op_tp_sum, op_tp_slice, op_tp_gather, op_tp_sum_slice,
    op_tp_ids, op_tp_token_loss, op_tp_token_accuracy;

/* Ways that several ops have (ways.c). */
extern const struct op_way op_ways_each[];   /* blind to where an element stands */
extern const struct op_way op_ways_both[];   /* likewise, of two inputs */
extern const struct op_way op_ways_pixels[]; /* blind to channels: pools */
/* The axis of a value that is meant; -1: none. */
int op_axis_of(enum op_axis axis, const struct shape *shape);

/* How output i of a node, of this shape, lies in memory. */
enum layout op_output_layout(const struct node *node, int i, const struct shape *shape);

/* Extent of a convolution's or a pool's output along one axis; 0 if the window does not fit or the
 * numbers make no sense. */
int64_t op_window_out(int64_t in, int64_t window, int stride, int pad);

/* The gradient before a node's activation, from dy, that after it. */
struct value *op_before_activation(struct graph *graph, const struct node *node,
                                   struct value *dy);

#endif /* GRAPH_OP_H */
