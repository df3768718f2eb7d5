/* SPDX-License-Identifier: MIT */
/* simd.h - for the sources that are compiled once for each instruction set.
 *
 * Those sources are plain loops over floats, marked `#pragma omp simd` (of OpenMP only the
 * pragma, no run time): it promises that iterations are independent, also where an output is
 * an input's buffer. Each operation on an element is the same in vector and scalar code, and
 * sums go by SIMD_LANES lanes whatever the registers' width, so all instruction sets give
 * the same bits. Only the tables at the end of a source are visible outside, under
 * SIMD_TABLE's name.
 */
#ifndef KERNEL_CPU_SIMD_H
#define KERNEL_CPU_SIMD_H

#ifdef __x86_64__
#include <immintrin.h>
#endif
#include <math.h>
#include <string.h>

#include "kernel/kernel.h"

#if defined __AVX512F__
#define SIMD_TABLE(name) name##_avx512
#elif defined __AVX2__
#define SIMD_TABLE(name) name##_avx2
#else
#define SIMD_TABLE(name) name##_generic
#endif

/* Lanes of a sum. */
enum { SIMD_LANES = 16 };
/* Elements worth a task of the pool: some microseconds. */
enum { SIMD_GRAIN = 16384 };

static inline size_t simd_min(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Part [from, to) of a call's work. */
typedef void simd_range_fn(const struct kernel_call *call, size_t from, size_t to);

struct simd_ranges {
    const struct kernel_call *call;
    simd_range_fn *fn;
    size_t count, grain;
};

static inline void simd_run_range(void *arg, size_t i)
{
    const struct simd_ranges *ranges = arg;
    const size_t from = i * ranges->grain;

    ranges->fn(ranges->call, from, simd_min(from + ranges->grain, ranges->count));
}

/* Cuts `count` independent items of `item` elements each into tasks. */
static inline void simd_for(const struct kernel_call *call, size_t count, size_t item,
                            simd_range_fn *fn)
{
    const size_t grain = item < SIMD_GRAIN ? SIMD_GRAIN / item : 1;
    struct simd_ranges ranges = { call, fn, count, grain };

    if (count <= grain)
        fn(call, 0, count);
    else
        pool_for(call->pool, (count + grain - 1) / grain, simd_run_range, &ranges);
}

/* Lanes added up, always in this order: halves onto halves. The lanes are used up. */
static inline float simd_sum(float lane[SIMD_LANES])
{
    for (int width = SIMD_LANES / 2; width > 0; width /= 2) {
        for (int l = 0; l < width; l++)
            lane[l] += lane[l + width];
    }
    return lane[0];
}

static inline double simd_sum_double(double lane[SIMD_LANES])
{
    for (int width = SIMD_LANES / 2; width > 0; width /= 2) {
        for (int l = 0; l < width; l++)
            lane[l] += lane[l + width];
    }
    return lane[0];
}

static inline float simd_largest(float lane[SIMD_LANES])
{
    for (int width = SIMD_LANES / 2; width > 0; width /= 2) {
        for (int l = 0; l < width; l++)
            lane[l] = lane[l + width] > lane[l] ? lane[l + width] : lane[l];
    }
    return lane[0];
}

/* exp(x) for x <= 0, relative error below 2e-7; 0 below -87.3, where floats get denormal.
 *
 * x = n ln 2 + r, |r| <= ln 2 / 2 (Cody and Waite); exp(r) by its Taylor polynomial;
 * adding 1.5 * 2^23 rounds to a whole n and leaves n in the low bits. */
static inline float simd_exp_not_positive(float x)
{
    const float magic = 0x1.8p23f;
    const float shifted = fmaf(x, 0x1.715476p0f, magic); /* 1 / ln 2 */
    const float n = shifted - magic;
    float r = fmaf(n, -0x1.62e4p-1f, x); /* ln 2 in two parts; n times the first is exact */
    float p, scale;
    uint32_t bits;

    r = fmaf(n, -0x1.7f7d1cp-20f, r);
    p = fmaf(r, 1.0f / 720, 1.0f / 120);
    p = fmaf(r, p, 1.0f / 24);
    p = fmaf(r, p, 1.0f / 6);
    p = fmaf(r, p, 0.5f);
    p = fmaf(r, p, 1.0f);
    p = fmaf(r, p, 1.0f);

    memcpy(&bits, &shifted, sizeof bits);
    bits = (bits + 127) << 23; /* 2^n: the low bits of `shifted` are n + 0 */
    memcpy(&scale, &bits, sizeof scale);
    return x < -87.3f ? 0 : p * scale;
}

/* log(s) for s >= 1: s = 2^k m, m near 1, log m = 2 artanh((m - 1) / (m + 1)). NaN gives NaN.
 */
static inline double simd_log_from_one(double s)
{
    static const double inverse[] = { 1.0,      1.0 / 3,  1.0 / 5,  1.0 / 7,  1.0 / 9, 1.0 / 11,
                                      1.0 / 13, 1.0 / 15, 1.0 / 17, 1.0 / 19, 1.0 / 21 };
    const double ln2 = 0x1.62e42fefa39efp-1;
    uint64_t bits;
    double m, sum;
    int k;

    if (!(s >= 1 && s <= 0x1p60))
        return NAN;
    memcpy(&bits, &s, sizeof bits);
    k = (int)(bits >> 52) - 1023;
    bits = (bits & 0xfffffffffffff) | (uint64_t)1023 << 52;
    memcpy(&m, &bits, sizeof m);
    if (m > 0x1.6a09e667f3bcdp0) { /* above sqrt 2 */
        m /= 2;
        k++;
    }
    const double t = (m - 1) / (m + 1), square = t * t; /* square < 0.03 */
    sum = 1.0 / 23;
    for (int i = 10; i >= 0; i--)
        sum = sum * square + inverse[i];
    return (double)k * ln2 + 2 * t * sum;
}

#endif /* KERNEL_CPU_SIMD_H */
