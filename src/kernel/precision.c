/* SPDX-License-Identifier: MIT */
/* precision.c - which tensors of a problem have 16 bits; f16. */
#include "kernel/precision.h"

#include <string.h>

#include "base/rng.h"
#include "kernel/update.h"

/* Inputs and outputs, by number, of rank 2 and more that stay f32. */
static const struct {
    const char *op, *in, *out;
} wide[] = {
    { "linear_grad_weight", "", "0" },
    { "conv2d_grad_weight", "", "0" },
    { "conv2d_transpose_grad_weight", "", "0" },
    { "conv2d_pool_grad_weight", "", "0" },
    { "conv1d_grad_weight", "", "0" },
    { "conv1d_max_grad_weight", "", "0" },
    { "embedding_grad", "2", "0" },
    { "positions_grad", "", "0" },
    { "layer_norm", "", "1" },
    { "layer_norm_grad", "3", "" },
    { "batch_norm", "", "1" },
    { "batch_norm_grad", "3", "" },
    { "batch_norm_stats", "", "0" },
    { "batch_norm_join", "01", "0" },
    { "batch_norm_normalize", "3", "" },
    { "batch_norm_grad_sums", "2", "2" },
    { "batch_norm_grad_spread", "34", "" },
    { "conv2d_stats", "", "1" },
    { "norm_conv2d", "4", "" },
    { "norm_conv2d_stats", "4", "1" },
    { "conv2d_stats_grad", "45", "1" },
    { "norm_conv2d_grad", "5", "14" },
    { "norm_conv2d_stats_grad", "578", "14" },
    { "attention", "", "1" },
    { "attention_grad", "3", "" },
    { "token_cross_entropy", "", "1" },
    { "token_cross_entropy_grad", "1", "" },
    { "linear_token_loss", "", "3" },
};

/* Narrows tensors but vectors and those in the list of digits. */
static void narrow(struct kernel_tensor *tensors, int count, enum dtype half, const char *stay)
{
    for (int i = 0; i < count; i++) {
        if (tensors[i].dtype == DTYPE_F32 && tensors[i].shape.rank > 1 &&
            !strchr(stay, '0' + i))
            tensors[i].dtype = half;
    }
}

void kernel_narrow(struct kernel_problem *problem, enum dtype half)
{
    const char *in = "", *out = "";

    problem->rounds = true;
    if (strncmp(problem->op, "lstm", 4) == 0 || strncmp(problem->op, "gru", 3) == 0)
        return;
    for (size_t i = 0; i < sizeof wide / sizeof wide[0]; i++) {
        if (strcmp(wide[i].op, problem->op) == 0) {
            in = wide[i].in;
            out = wide[i].out;
        }
    }
    if (strncmp(problem->op, "linear", 6) == 0 && strstr(problem->op, "grad") == NULL &&
        problem->n_in > 2 && problem->in[2].dtype == DTYPE_F32)
        problem->in[2].dtype = half; /* a product's epilogue adds what y can hold */
    narrow(problem->in, problem->n_in, half, in);
    narrow(problem->out, problem->n_out, half, out);
}

bool kernel_begins_backward(const char *op)
{
    static const char *const ops[] = { "softmax_cross_entropy_grad", "token_cross_entropy_grad",
                                       "softmax_loss", "linear_token_loss", "mse_grad" };

    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        if (strcmp(op, ops[i]) == 0)
            return true;
    }
    return false;
}

/* Four elements share a block of words. */
uint32_t kernel_rounding_word(uint64_t seed, uint64_t step, uint32_t parameter,
                              uint64_t element)
{
    const uint64_t block = element / 4;
    const uint32_t counter[4] = { (uint32_t)block, parameter, (uint32_t)step,
                                  (uint32_t)(block >> 32) };

    return rng_philox((seed ^ KERNEL_ROUNDING_KEY) + (step >> 32), counter).word[element % 4];
}

/* f16: a sign, 5 bits of exponent (bias 15), 10 of mantissa ------------------------------------- */

/* Shifts right and rounds to the nearest, ties to even. */
static uint32_t shifted(uint32_t bits, int by)
{
    const uint32_t half = UINT32_C(1) << (by - 1), rest = bits & (2 * half - 1);

    return (bits >> by) + (rest > half || (rest == half && (bits >> by & 1)));
}

uint16_t kernel_to_f16(float x)
{
    enum { BIAS = 127 - 15, MANTISSA = 23, LOST = 13 };
    enum { LEAST = 127 - 25 }; /* exponent of half of the smallest */
    union {
        float number;
        uint32_t bits;
    } u = { .number = x };
    const uint32_t sign = u.bits >> 16 & 0x8000, size = u.bits & 0x7fffffff;
    const int exponent = (int)(size >> MANTISSA);

    if (size > 0x7f800000)
        return (uint16_t)(sign | 0x7e00); /* not a number */
    if (exponent > BIAS) {
        const uint32_t rounded = shifted(size - ((uint32_t)BIAS << MANTISSA), LOST);
        return (uint16_t)(sign | (rounded < 0x7c00 ? rounded : 0x7c00));
    }
    if (exponent < LEAST)
        return (uint16_t)sign;
    /* A multiple of 2^-24, of which there are at most 1024. */
    const uint32_t whole = (size & 0x7fffff) | 0x800000;
    return (uint16_t)(sign | shifted(whole, LOST + 1 + BIAS - exponent));
}

float kernel_from_f16(uint16_t x)
{
    const uint32_t sign = (uint32_t)(x & 0x8000) << 16, size = x & 0x7fffU;
    union {
        uint32_t bits;
        float number;
    } u = { .bits = sign | (size << 13) };

    if (size < 0x400) { /* below the normal ones */
        u.number = (float)size * 0x1p-24F;
        u.bits |= sign;
    } else {
        u.bits += size < 0x7c00 ? UINT32_C(112) << 23 : UINT32_C(224) << 23;
    }
    return u.number;
}
