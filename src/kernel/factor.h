/* SPDX-License-Identifier: MIT */
/* factor.h - parts of a linear layer: blocks of its weight gradient from the two factors it is the
 * product of, and some of its outputs.
 *
 * dW = x^T dy of x (m, k) and dy (m, n) is kept as [k][n]. Where m is small the factors are much
 * smaller than dW, so who needs only a block of dW makes it from the factors.
 * The bits are those of the kernel "own" of linear and linear_grad_weight.
 */
#ifndef KERNEL_FACTOR_H
#define KERNEL_FACTOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/pool.h"

struct kernel_factors {
    const float *x, *dy;
    int64_t m, k, n; /* m may be 0 */
};

/* Rows [row, row + rows) and columns [column, column + columns) of dW. */
struct kernel_block {
    int64_t row, rows, column, columns;
    int64_t stride; /* between the rows of the result */
};

/* Bytes of scratch for kernel_factor_block; pointers are not looked at. */
size_t kernel_factor_scratch(const struct kernel_factors *factors,
                             const struct kernel_block *block);
/* out[i][j] = sum over the m samples s of x[s][row + i] dy[s][column + j]. */
void kernel_factor_block(const struct kernel_factors *factors, const struct kernel_block *block,
                         float *out, void *scratch);
/* out[j] = sum over the samples of dy[s][j]: the bias's gradient. */
void kernel_factor_bias(const float *dy, int64_t m, int64_t n, float *out);

/* Some columns of a linear layer. */
struct kernel_columns {
    int64_t m, k, columns;
    const float *x;    /* (m, k) */
    const float *w;    /* k rows, w_stride apart */
    const float *bias; /* or NULL */
    float *y;          /* m rows, y_stride apart */
    int64_t w_stride, y_stride;
    bool relu;
};
size_t kernel_columns_scratch(const struct kernel_columns *columns);
/* y = x w + bias, then relu if asked. */
void kernel_columns_run(const struct kernel_columns *columns, struct pool *pool, void *scratch);

#endif /* KERNEL_FACTOR_H */
