/* SPDX-License-Identifier: MIT */
/* rows.h - the arrays of kernels that kernel.c joins to one table, each ended by { 0 }. */
#ifndef KERNEL_CPU_ROWS_H
#define KERNEL_CPU_ROWS_H

#include "kernel/kernel.h"
#include "kernel/update.h"

/* Plain C, every op: what all others are compared with. */
extern const struct kernel kernel_reference_rows[];

/* "own" kernels of the memory-bound ops. Their sources are compiled once for each instruction
 * set (cpu/simd.h), and kernel.c takes those of kernel_isa(). */
extern const struct kernel kernel_elementwise_rows_generic[];
extern const struct kernel kernel_dropout_rows_generic[];
extern const struct kernel kernel_reorder_rows_generic[];
extern const struct kernel kernel_pool_rows_generic[];
extern const struct kernel kernel_loss_rows_generic[];
extern const struct kernel kernel_batch_norm_rows_generic[];
extern const struct kernel kernel_gelu_rows_generic[];
extern const struct kernel kernel_layer_norm_rows_generic[];
extern const struct kernel kernel_positions_rows_generic[];
extern const struct kernel kernel_attention_step_rows_generic[];
extern const struct kernel kernel_embedding_rows_generic[];
extern const struct kernel kernel_sequence_rows_generic[];
extern const struct kernel kernel_elementwise_rows_avx2[];
extern const struct kernel kernel_dropout_rows_avx2[];
extern const struct kernel kernel_reorder_rows_avx2[];
extern const struct kernel kernel_pool_rows_avx2[];
extern const struct kernel kernel_loss_rows_avx2[];
extern const struct kernel kernel_batch_norm_rows_avx2[];
extern const struct kernel kernel_gelu_rows_avx2[];
extern const struct kernel kernel_layer_norm_rows_avx2[];
extern const struct kernel kernel_positions_rows_avx2[];
extern const struct kernel kernel_attention_step_rows_avx2[];
extern const struct kernel kernel_embedding_rows_avx2[];
extern const struct kernel kernel_sequence_rows_avx2[];
extern const struct kernel kernel_elementwise_rows_avx512[];
extern const struct kernel kernel_dropout_rows_avx512[];
extern const struct kernel kernel_reorder_rows_avx512[];
extern const struct kernel kernel_pool_rows_avx512[];
extern const struct kernel kernel_loss_rows_avx512[];
extern const struct kernel kernel_batch_norm_rows_avx512[];
extern const struct kernel kernel_gelu_rows_avx512[];
extern const struct kernel kernel_layer_norm_rows_avx512[];
extern const struct kernel kernel_positions_rows_avx512[];
extern const struct kernel kernel_attention_step_rows_avx512[];
extern const struct kernel kernel_embedding_rows_avx512[];
extern const struct kernel kernel_sequence_rows_avx512[];

/* What kernel/update.h offers, likewise compiled once for each instruction set. */
struct kernel_update_code {
    kernel_update_fn *sgd, *adam, *average, *lars, *lamb;
    kernel_direction_fn *lamb_direction;
    void (*add)(float *out, const float *a, const float *b, size_t count);
    double (*sum_squares)(const float *data, size_t count);
    void (*fetch_to_write)(float *const *vectors, int n_vectors, size_t at, size_t count);
    void (*sum_rows)(const struct kernel_row_list *lists, int n_lists, size_t width,
                     float *out);
};

extern const struct kernel_update_code kernel_update_code_generic;
extern const struct kernel_update_code kernel_update_code_avx2;
extern const struct kernel_update_code kernel_update_code_avx512;

/* Matrix products and convolutions; cpu/fast.cmake says which of them are built. */
extern const struct kernel kernel_linear_rows[];
extern const struct kernel kernel_attention_rows[];
extern const struct kernel kernel_conv_rows[];
extern const struct kernel kernel_conv_pool_rows[];   /* windows of 2x2 */
extern const struct kernel kernel_depthwise_rows[];   /* a group a channel */
extern const struct kernel kernel_conv_matrix_rows[]; /* 1x1, and the whole image */
extern const struct kernel kernel_conv_grey_rows[];   /* 3x3 over one channel */
extern const struct kernel kernel_conv_amx_rows[];    /* by tile registers */
extern const struct kernel kernel_conv_transpose_rows[];
extern const struct kernel kernel_recurrent_rows[]; /* LSTM and GRU over sequences */
extern const struct kernel kernel_attend_rows[];    /* LSTM that attends to a source */
extern const struct kernel kernel_conv1d_rows[];    /* along sequences */
extern const struct kernel kernel_norm_conv_rows[]; /* 1x1 and depthwise, with batch norms */
extern const struct kernel kernel_norm_conv_amx_rows[];
extern const struct kernel kernel_onednn_rows[];
extern const struct kernel kernel_openblas_rows[];

#endif /* KERNEL_CPU_ROWS_H */
