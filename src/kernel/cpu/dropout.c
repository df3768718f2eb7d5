/* SPDX-License-Identifier: MIT */
/* dropout.c - zeroes a share of the elements, chosen by Philox4x32-10 from seed and sample.
 *
 * Counter e/4 of a row gives the four words of elements e .. e+3 (kernel.h). Vectors of 64-bit
 * lanes hold one 32-bit word of a counter each, which is what the multiplier of vectors takes:
 * a product's high half is one shift away. BLOCKS counters are worked on at once, so that the
 * multiplier is kept busy; then their words are laid out in the elements' order.
 */
#include "base/rng.h"
#include "kernel/cpu/rows.h"
#include "kernel/cpu/simd.h"

#if defined __AVX512F__
enum { WIDE_BYTES = 64 };
#elif defined __AVX2__
enum { WIDE_BYTES = 32 };
#else
enum { WIDE_BYTES = 16 };
#endif
typedef uint64_t wide __attribute__((vector_size(WIDE_BYTES)));

enum { LANES = WIDE_BYTES / 8, WIDES = 4, ROUNDS = 10 };
enum { BLOCKS = WIDES * LANES, WORDS = 4 * BLOCKS };

/* Product of the low halves of the lanes. */
static inline wide multiply(wide a, uint64_t b)
{
    const wide all = (wide){ 0 } + b;
#if defined __AVX512F__
    return (wide)_mm512_mul_epu32((__m512i)a, (__m512i)all);
#elif defined __AVX2__
    return (wide)_mm256_mul_epu32((__m256i)a, (__m256i)all);
#elif defined __SSE2__
    return (wide)_mm_mul_epu32((__m128i)a, (__m128i)all);
#else
    return (a & 0xffffffff) * all;
#endif
}

/* Words of counters { first + b, rest... }, b < BLOCKS; Salmon et al. 2011, as base/rng.c. Only
 * low halves of lanes count until the end. */
static void philox_blocks(uint64_t key, uint32_t first, const uint32_t rest[3],
                          uint32_t words[WORDS])
{
    wide c0[WIDES], c1[WIDES], c2[WIDES], c3[WIDES];
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    uint64_t low[BLOCKS], high[BLOCKS], pairs[2 * BLOCKS];

    for (uint32_t b = 0; b < BLOCKS; b++)
        low[b] = first + b;
    for (int i = 0; i < WIDES; i++) {
        memcpy(&c0[i], low + i * LANES, sizeof c0[i]);
        c1[i] = (wide){ 0 } + rest[0];
        c2[i] = (wide){ 0 } + rest[1];
        c3[i] = (wide){ 0 } + rest[2];
    }
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < WIDES; i++) {
            const wide p0 = multiply(c0[i], 0xd2511f53), p1 = multiply(c2[i], 0xcd9e8d57);
            c0[i] = p1 >> 32 ^ c1[i] ^ k0;
            c1[i] = p1;
            c2[i] = p0 >> 32 ^ c3[i] ^ k1;
            c3[i] = p0;
        }
        k0 += 0x9e3779b9;
        k1 += 0xbb67ae85;
    }
    for (int i = 0; i < WIDES; i++) {
        const wide c01 = (c0[i] & 0xffffffff) | c1[i] << 32;
        const wide c23 = (c2[i] & 0xffffffff) | c3[i] << 32;
        memcpy(low + i * LANES, &c01, sizeof c01);
        memcpy(high + i * LANES, &c23, sizeof c23);
    }
    for (int b = 0; b < BLOCKS; b++) {
        pairs[2 * b] = low[b];
        pairs[2 * b + 1] = high[b];
    }
    memcpy(words, pairs, sizeof pairs); /* little-endian: the low word first */
}

/* y[i] = kept ? x[i] * scale : 0; n <= WORDS. */
static void apply(const float *x, const uint32_t words[WORDS], float rate, float scale,
                  size_t n, float *y)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++) {
        const float chance = (float)(int32_t)(words[i] >> 8) * 0x1p-24f; /* rng_to_float */
        y[i] = chance >= rate ? x[i] * scale : 0;
    }
}

static void dropout_rows(const struct kernel_call *call, size_t from, size_t to)
{
    const struct attrs *attrs = &call->problem->attrs;
    const struct shape *shape = &call->problem->in[0].shape;
    const size_t columns = (size_t)(shape_count(shape) / shape->dim[0]);
    const float scale = 1 / (1 - attrs->rate);

    for (size_t row = from; row < to; row++) {
        const float *x = (const float *)call->in[0] + row * columns;
        float *y = (float *)call->out[0] + row * columns;
        const uint64_t position = call->step->first_sample + row;
        const uint32_t rest[3] = { attrs->stream, (uint32_t)position,
                                   (uint32_t)(position >> 32) };
        uint32_t words[WORDS];

        for (size_t e = 0; e < columns; e += WORDS) {
            philox_blocks(call->step->seed, (uint32_t)(e / 4), rest, words);
            if (columns - e >= WORDS)
                apply(x + e, words, attrs->rate, scale, WORDS, y + e);
            else
                apply(x + e, words, attrs->rate, scale, columns - e, y + e);
        }
    }
}

static void run_dropout(const struct kernel_call *call)
{
    const struct shape *shape = &call->problem->in[0].shape;

    simd_for(call, (size_t)shape->dim[0], (size_t)(shape_count(shape) / shape->dim[0]),
             dropout_rows);
}

/* A slice's elements do not stand in a row in the whole. */
static bool can_run(const struct kernel_problem *problem)
{
    return problem->attrs.slice.count == 0;
}

const struct kernel SIMD_TABLE(kernel_dropout_rows)[] = {
    { .op = "dropout", .name = "own", .can_run = can_run, .run = run_dropout },
    { 0 },
};
