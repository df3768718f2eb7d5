/* SPDX-License-Identifier: MIT */
/* precision.h - problems in mixed precision, for devices that compute in bf16.
 *
 * Of an op in bf16, activations, their gradients, weights and biases of linear layers are bf16. Everything that sums go into or that
 * is small stays f32: other vectors, gradients of weights, statistics, losses. Sums are f32 or wider. Recurrent
 * layers stay f32 whole, as their states go through many steps; their products may round operands to TF32.
 */
#ifndef KERNEL_PRECISION_H
#define KERNEL_PRECISION_H

#include "kernel/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Makes an f32 problem the mixed one. kernel_check and the CPU's kernels know f32 alone. */
void kernel_as_bf16(struct kernel_problem *problem);

/* To the nearest bf16, ties to even; NaN stays one. And back. */
static inline uint16_t kernel_to_bf16(float x)
{
    union {
        float number;
        uint32_t bits;
    } u = { .number = x };

    if ((u.bits & 0x7fffffffU) > 0x7f800000U)
        return (uint16_t)(u.bits >> 16 | 0x40);
    return (uint16_t)((u.bits + 0x7fff + (u.bits >> 16 & 1)) >> 16);
}

static inline float kernel_from_bf16(uint16_t x)
{
    union {
        uint32_t bits;
        float number;
    } u = { .bits = (uint32_t)x << 16 };

    return u.number;
}

#ifdef __cplusplus
}
#endif

#endif /* KERNEL_PRECISION_H */
