/* SPDX-License-Identifier: MIT */
/* reference.h - plain C kernels, one function an op: what the fast ones are compared with.
 *
 * They follow kernel.h to the letter, run in the calling thread and add in double.
 */
#ifndef KERNEL_CPU_REFERENCE_H
#define KERNEL_CPU_REFERENCE_H

#include "kernel/kernel.h"
#include "kernel/update.h"

void reference_linear(const struct kernel_call *call);
void reference_linear_grad_input(const struct kernel_call *call);
void reference_linear_grad_weight(const struct kernel_call *call);
void reference_linear_gelu(const struct kernel_call *call);
/* out[j] = sum of x[i][j] over rows. */
void reference_sums(const float *x, int64_t rows, int64_t columns, float *out);
void reference_sum_rows(const struct kernel_call *call);
void reference_linear_add(const struct kernel_call *call);
void reference_linear_grad_through(const struct kernel_call *call);

/* gelu_tanh and its slope at x. */
double reference_gelu_tanh_at(double x);
double reference_gelu_tanh_slope(double x);

void reference_conv2d(const struct kernel_call *call);
void reference_conv2d_grad_input(const struct kernel_call *call);
void reference_conv2d_grad_weight(const struct kernel_call *call);
void reference_conv2d_transpose(const struct kernel_call *call);
void reference_conv2d_transpose_grad_weight(const struct kernel_call *call);
void reference_conv2d_pool(const struct kernel_call *call);
void reference_conv2d_pool_grad_input(const struct kernel_call *call);
void reference_conv2d_pool_grad_weight(const struct kernel_call *call);

void reference_max_pool(const struct kernel_call *call);
void reference_max_pool_grad(const struct kernel_call *call);
void reference_avg_pool(const struct kernel_call *call);
void reference_avg_pool_grad(const struct kernel_call *call);

void reference_bias(const struct kernel_call *call);
void reference_bias_grad(const struct kernel_call *call);
void reference_relu(const struct kernel_call *call);
void reference_relu_grad(const struct kernel_call *call);
void reference_add(const struct kernel_call *call);
void reference_reorder(const struct kernel_call *call);
void reference_dropout(const struct kernel_call *call);

void reference_relu6(const struct kernel_call *call);
void reference_relu6_grad(const struct kernel_call *call);
void reference_sigmoid(const struct kernel_call *call);
void reference_sigmoid_grad(const struct kernel_call *call);

void reference_batch_norm(const struct kernel_call *call);
void reference_batch_norm_grad(const struct kernel_call *call);
void reference_batch_norm_apply(const struct kernel_call *call);
void reference_batch_norm_stats(const struct kernel_call *call);
void reference_batch_norm_join(const struct kernel_call *call);
void reference_batch_norm_normalize(const struct kernel_call *call);
void reference_batch_norm_grad_sums(const struct kernel_call *call);
void reference_batch_norm_grad_spread(const struct kernel_call *call);

void reference_tanh(const struct kernel_call *call);
void reference_tanh_grad(const struct kernel_call *call);
void reference_gelu(const struct kernel_call *call);
void reference_gelu_grad(const struct kernel_call *call);
void reference_gelu_tanh(const struct kernel_call *call);
void reference_gelu_tanh_grad(const struct kernel_call *call);
void reference_layer_norm(const struct kernel_call *call);
void reference_layer_norm_grad(const struct kernel_call *call);
void reference_softmax(const struct kernel_call *call);
void reference_softmax_grad(const struct kernel_call *call);
void reference_add_positions(const struct kernel_call *call);
void reference_positions_grad(const struct kernel_call *call);
size_t reference_attention_scratch(const struct kernel_problem *problem);
void reference_attention(const struct kernel_call *call);
size_t reference_attention_grad_scratch(const struct kernel_problem *problem);
void reference_attention_grad(const struct kernel_call *call);
size_t reference_attention_step_scratch(const struct kernel_problem *problem);
void reference_attention_step(const struct kernel_call *call);

void reference_softmax_cross_entropy(const struct kernel_call *call);
void reference_softmax_cross_entropy_grad(const struct kernel_call *call);
void reference_mse(const struct kernel_call *call);
void reference_mse_grad(const struct kernel_call *call);
void reference_conv1d(const struct kernel_call *call);
void reference_conv1d_grad_input(const struct kernel_call *call);
void reference_conv1d_grad_weight(const struct kernel_call *call);
void reference_conv1d_max(const struct kernel_call *call);
void reference_conv1d_max_grad_input(const struct kernel_call *call);
void reference_conv1d_max_grad_weight(const struct kernel_call *call);
void reference_max_over_time(const struct kernel_call *call);
void reference_max_over_time_grad(const struct kernel_call *call);
void reference_concat(const struct kernel_call *call);
void reference_columns(const struct kernel_call *call);
void reference_accuracy(const struct kernel_call *call);
size_t reference_token_loss_scratch(const struct kernel_problem *problem);
void reference_softmax_loss(const struct kernel_call *call);
void reference_linear_token_loss(const struct kernel_call *call);
void reference_token_cross_entropy(const struct kernel_call *call);
void reference_token_cross_entropy_grad(const struct kernel_call *call);

void reference_embedding(const struct kernel_call *call);
void reference_embedding_grad(const struct kernel_call *call);
void reference_embedding_mean(const struct kernel_call *call);
void reference_embedding_mean_grad(const struct kernel_call *call);
void reference_rows_sort(const struct kernel_call *call);

void reference_recurrent(const struct kernel_call *call); /* lstm, gru */
void reference_recurrent_grad(const struct kernel_call *call);
size_t reference_recurrent_grad_scratch(const struct kernel_problem *problem);
void reference_attend(const struct kernel_call *call); /* lstm_attend */
void reference_attend_grad(const struct kernel_call *call);
size_t reference_attend_grad_scratch(const struct kernel_problem *problem);

void reference_norm_conv(
    const struct kernel_call *call); /* conv2d_stats, norm_conv2d, ..._stats */
void reference_norm_conv_grad(const struct kernel_call *call);
size_t reference_norm_conv_scratch(const struct kernel_problem *problem); /* of both */

kernel_update_fn reference_sgd_update, reference_adam_update, reference_average_update;
kernel_update_fn reference_lars_update, reference_lamb_update;
kernel_direction_fn reference_lamb_direction;

#endif /* KERNEL_CPU_REFERENCE_H */
