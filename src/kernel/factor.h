/* SPDX-License-Identifier: MIT */
/* factor.h - rows of a linear layer's weight gradient, from the two factors it is the product of.
 *
 * dW = x^T dy of x (m, k) and dy (m, n) is kept as [k][n]. Where m is small the factors are much
 * smaller than dW, so who needs only some rows of dW makes them from the factors.
 * The bits are those of the kernel "own" of linear_grad_weight.
 */
#ifndef KERNEL_FACTOR_H
#define KERNEL_FACTOR_H

#include <stddef.h>
#include <stdint.h>

/* Bytes of scratch for kernel_factor_rows of at most `count` rows. */
size_t kernel_factor_scratch(int64_t k, int64_t n, int64_t count, int64_t m);
/* out[i][j] = sum over the m samples s of x[s][first + i] dy[s][j], for i < count, j < n.
 * m may be 0. */
void kernel_factor_rows(const float *x, const float *dy, int64_t m, int64_t k, int64_t n,
                        int64_t first, int64_t count, float *out, void *scratch);
/* out[j] = sum over the samples of dy[s][j]: the bias's gradient. */
void kernel_factor_bias(const float *dy, int64_t m, int64_t n, float *out);

#endif /* KERNEL_FACTOR_H */
