/* SPDX-License-Identifier: MIT */
/* precision_test.c - numbers of 16 bits: how they are rounded and drawn, and which tensors of a problem have them. */
#include "kernel/precision.h"

#include <math.h>

#include "base/test.h"

/* Over all words the mean of what is drawn is the number itself. */
static void what_is_drawn_is_right_in_the_mean(struct rng *rng)
{
    const float x = (rng_float(rng) - 0.5F) * ldexpf(1, (int)rng_below(rng, 40) - 20);
    const float near = kernel_from_bf16(kernel_to_bf16(x));
    const uint64_t seed = rng_u64(rng), step = rng_u64(rng), element = rng_u64(rng);
    double sum = 0;

    for (uint32_t word = 0; word < 65536; word++) {
        const float drawn = kernel_draw_bf16(x, word << 16 | rng_u32(rng) >> 16);
        CHECK(kernel_from_bf16(kernel_to_bf16(drawn)) == drawn);
        CHECK(fabs((double)drawn - (double)x) <= fabs((double)x) / 128);
        CHECK(kernel_draw_bf16(near, word << 16) == near);
        sum += (double)drawn;
    }
    CHECK(sum / 65536 == (double)x);
    CHECK(isinf(kernel_draw_bf16(INFINITY, UINT32_MAX)));
    CHECK(isnan(kernel_draw_bf16(NAN, UINT32_MAX)));
    const uint32_t word = kernel_rounding_word(seed, step, 3, element);
    CHECK(word == kernel_rounding_word(seed, step, 3, element));
    CHECK(word != kernel_rounding_word(seed + 1, step, 3, element));
    CHECK(word != kernel_rounding_word(seed, step + 1, 3, element));
    CHECK(word != kernel_rounding_word(seed, step, 4, element));
    CHECK(word != kernel_rounding_word(seed, step, 3, element + 1));
}

/* What is bf16 and what is not, of some ops. */
static void mixed_precision_keeps_sums_wide(void)
{
    struct kernel_problem p;

    CHECK_OK(kernel_parse("linear_grad_weight 64x784 64x250 -> 250x784 250", &p));
    kernel_as_bf16(&p);
    CHECK(p.in[0].dtype == DTYPE_BF16 && p.in[1].dtype == DTYPE_BF16);
    CHECK(p.out[0].dtype == DTYPE_F32 && p.out[1].dtype == DTYPE_F32);
    CHECK_OK(kernel_parse("batch_norm 16x24x33x31 24 24 relu6", &p));
    kernel_as_bf16(&p);
    CHECK(p.in[0].dtype == DTYPE_BF16 && p.in[1].dtype == DTYPE_F32);
    CHECK(p.out[0].dtype == DTYPE_BF16 && p.out[1].dtype == DTYPE_F32);
    CHECK_OK(kernel_parse("gru 33x7x195 195x65 195 33x7 33x65", &p));
    kernel_as_bf16(&p);
    CHECK(p.in[0].dtype == DTYPE_F32 && p.in[3].dtype == DTYPE_I32);
    CHECK(kernel_from_bf16(kernel_to_bf16(1.00390625F)) == 1); /* a tie, to even */
    CHECK(kernel_from_bf16(kernel_to_bf16(-3.5F)) == -3.5F);
    CHECK(isnan(kernel_from_bf16(kernel_to_bf16(NAN))));
    CHECK(isinf(kernel_from_bf16(kernel_to_bf16(INFINITY))));
    CHECK_OK(kernel_parse("linear 64x784 250x784 250 relu", &p));
    kernel_narrow(&p, DTYPE_F16);
    CHECK(p.in[0].dtype == DTYPE_F16 && p.in[2].dtype == DTYPE_F16);
    CHECK(p.out[0].dtype == DTYPE_F16);
}

/* f16: ties to even, what is too large or too small, and every number of it comes back. */
static void numbers_are_rounded_to_f16(void)
{
    static const struct {
        float from, to;
    } cases[] = {
        { 1 + 0x1p-11F, 1 },        { 1 + 0x3p-11F, 1 + 0x1p-9F },
        { -2048.5F, -2048 },        { 65519.996F, 65504 },
        { 65520, INFINITY },        { -INFINITY, -INFINITY },
        { 0x1p-24F, 0x1p-24F },     { 0x1p-25F, 0 },
        { 0x1.8p-25F, 0x1p-24F },   { 0x1.ff8p-15F, 0x1.ff8p-15F },
        { 0x1.ffcp-15F, 0x1p-14F },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        CHECK(kernel_from_f16(kernel_to_f16(cases[i].from)) == cases[i].to);
    CHECK(isnan(kernel_from_f16(kernel_to_f16(NAN))));
    CHECK(signbit(kernel_from_f16(kernel_to_f16(-0.0F))));
    for (int i = 0; i <= UINT16_MAX; i++) {
        const float number = kernel_from_f16((uint16_t)i);
        if (!isnan(number))
            CHECK_INT(i, kernel_to_f16(number));
    }
}

const struct test tests[] = {
    { .name = "what is drawn is right in the mean",
      .property = what_is_drawn_is_right_in_the_mean },
    { .name = "numbers are rounded to f16", .run = numbers_are_rounded_to_f16 },
    { .name = "mixed precision keeps sums wide", .run = mixed_precision_keeps_sums_wide },
    { 0 },
};
