/* SPDX-License-Identifier: MIT */
/* ops.c - the table of ops. */
#include <string.h>

#include "graph/op.h"

const struct op *const graph_ops[] = {
    &op_linear,
    &op_linear_grad_input,
    &op_linear_grad_weight,
    &op_conv2d,
    &op_conv2d_grad_input,
    &op_conv2d_grad_weight,
    &op_conv2d_transpose,
    &op_conv2d_transpose_grad_input,
    &op_conv2d_transpose_grad_weight,
    &op_conv2d_pool,
    &op_conv2d_pool_grad_input,
    &op_conv2d_pool_grad_weight,
    &op_max_pool,
    &op_max_pool_grad,
    &op_avg_pool,
    &op_avg_pool_grad,
    &op_bias,
    &op_bias_grad,
    &op_relu,
    &op_relu_grad,
    &op_add,
    &op_dropout,
    &op_reshape,
    &op_reorder,
    &op_relu6,
    &op_relu6_grad,
    &op_sigmoid,
    &op_sigmoid_grad,
    &op_batch_norm,
    &op_batch_norm_grad,
    &op_batch_norm_apply,
    &op_batch_norm_stats,
    &op_shard_gather,
    &op_batch_norm_join,
    &op_batch_norm_normalize,
    &op_batch_norm_grad_sums,
    &op_batch_norm_grad_spread,
    &op_softmax_cross_entropy,
    &op_softmax_cross_entropy_grad,
    &op_mse,
    &op_mse_grad,
    &op_accuracy,
    &op_lstm,
    &op_lstm_grad,
    &op_gru,
    &op_gru_grad,
    &op_shard_sum,
    &op_factor_sum,
    &op_all_reduce,
    &op_reduce_scatter,
    &op_all_gather,
    &op_clip_norm,
    &op_sgd_update,
    &op_adam_update,
    &op_average_update,
    NULL,
};

const struct op *graph_find_op(const char *name)
{
    for (int i = 0; graph_ops[i]; i++) {
        if (strcmp(graph_ops[i]->name, name) == 0)
            return graph_ops[i];
    }
    return NULL;
}
