/* SPDX-License-Identifier: MIT */
/* precision.h - problems in mixed precision, for devices that compute in bf16 or f16.
 *
 * Of such an op, activations, their gradients, weights and biases of linear layers have 16 bits. Everything that sums go into or that
 * is small stays f32: other vectors, gradients of weights, statistics, losses. Sums are f32 or wider. Recurrent
 * layers stay f32 whole, as their states go through many steps; their products may round operands to TF32.
 *
 * f16 has numbers from 6e-8 to 65504: gradients of losses, where backward begins, are scaled there (device.h).
 */
#ifndef KERNEL_PRECISION_H
#define KERNEL_PRECISION_H

#include "kernel/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Makes an f32 problem the mixed one of this type. kernel_check and the CPU's kernels know f32 alone. */
void kernel_narrow(struct kernel_problem *problem, enum dtype half);
static inline void kernel_as_bf16(struct kernel_problem *problem)
{
    kernel_narrow(problem, DTYPE_BF16);
}

/* Is it one of 16 bits? */
static inline bool kernel_is_half(enum dtype dtype)
{
    return dtype == DTYPE_BF16 || dtype == DTYPE_F16;
}

/* Does backward begin with this op, the gradient of a loss? */
bool kernel_begins_backward(const char *op);

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

/* One of the two bf16 beside x, so drawn by 16 bits of the word that over all words it is x in the mean. What is a bf16 stays it. */
static inline float kernel_draw_bf16(float x, uint32_t word)
{
    union {
        float number;
        uint32_t bits;
    } u = { .number = x };

    if ((u.bits & 0x7f800000U) == 0x7f800000U) /* infinity, or no number */
        return kernel_from_bf16(kernel_to_bf16(x));
    u.bits = (u.bits + (word >> 16)) & 0xffff0000U;
    return u.number;
}

/* The word for an element of a parameter, by their numbers in the model, in a step: the same wherever it is updated. */
uint32_t kernel_rounding_word(uint64_t seed, uint64_t step, uint32_t parameter,
                              uint64_t element);

/* The same of f16; what is too large becomes infinity. */
uint16_t kernel_to_f16(float x);
float kernel_from_f16(uint16_t x);

/* Of either. */
static inline uint16_t kernel_to_half(enum dtype dtype, float x)
{
    return dtype == DTYPE_F16 ? kernel_to_f16(x) : kernel_to_bf16(x);
}

static inline float kernel_from_half(enum dtype dtype, uint16_t x)
{
    return dtype == DTYPE_F16 ? kernel_from_f16(x) : kernel_from_bf16(x);
}

#ifdef __cplusplus
}
#endif

#endif /* KERNEL_PRECISION_H */
