/* SPDX-License-Identifier: MIT */
/* finish_tile.c - bias and activation for one instruction set.
 *
 * Compiled once with AVX2 and once with AVX-512 (cpu/fast.cmake); FINISH_TABLE is the name of
 * the table. Channels that divide a vector's lanes are repeated in it, and the pixels go by as
 * one long row; with others a row is a pixel.
 *
 * sigmoid(x) = 1 / (1 + exp(-x)); exp(t) = 2^n exp(r) with n = t log2(e) rounded, r = t - n ln(2)
 * in two parts (Cody and Waite), and the first terms of exp's series for |r| <= ln(2)/2, whose
 * rest is below 2e-9. t is cut to what keeps 2^n a normal number.
 */
#include "kernel/cpu/finish.h"

#include <math.h>

#include "kernel/cpu/isa.h"

#ifdef ISA_AVX512
INLINE vec vec_round(vec v)
{
    return _mm512_roundscale_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
/* 2^n for whole n of a normal number */
INLINE vec vec_power(vec n)
{
    return _mm512_scalef_ps(_mm512_set1_ps(1), n);
}
INLINE vec vec_divide(vec a, vec b)
{
    return _mm512_div_ps(a, b);
}
#else
INLINE vec vec_round(vec v)
{
    return _mm256_round_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
INLINE vec vec_power(vec n)
{
    const __m256i exponent = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
    return _mm256_castsi256_ps(_mm256_slli_epi32(exponent, 23));
}
INLINE vec vec_divide(vec a, vec b)
{
    return _mm256_div_ps(a, b);
}
#endif

INLINE vec sigmoid(vec x)
{
    static const float series[] = { 1.0F / 5040, 1.0F / 720, 1.0F / 120, 1.0F / 24,
                                    1.0F / 6,    0.5F,       1.0F,       1.0F };
    const vec t = vec_cut(vec_sub(vec_zero(), x), vec_set(-87.0F), vec_set(87.0F));
    const vec n = vec_round(vec_mul(t, vec_set(1.44269504F)));
    const vec r = vec_fma(n, vec_set(2.12194440e-4F), vec_fma(n, vec_set(-0.693359375F), t));
    vec sum = vec_set(series[0]);

#pragma GCC unroll 8
    for (int i = 1; i < 8; i++)
        sum = vec_fma(sum, r, vec_set(series[i]));
    return vec_divide(vec_set(1), vec_fma(sum, vec_power(n), vec_set(1)));
}

/* n elements; bias is the same vector all along, or NULL: channel i of element i. */
struct row {
    const float *bias;
    vec repeated;
    vec low, high;
    bool is_sigmoid;
};

INLINE vec finish(const struct row *row, vec v, vec bias)
{
    v = vec_add(v, bias);
    return row->is_sigmoid ? sigmoid(v) : vec_cut(v, row->low, row->high);
}

static void finish_row(const struct row *row, float *y, int64_t n)
{
    int64_t i = 0;

    for (; i + LANES <= n; i += LANES)
        vec_store(y + i, finish(row, vec_load(y + i),
                                row->bias != NULL ? vec_load(row->bias + i) : row->repeated));
    if (i < n) {
        const vec_part part = vec_first((int)(n - i));
        const vec bias = row->bias != NULL ? vec_load_part(row->bias + i, part) : row->repeated;
        vec_store_part(y + i, finish(row, vec_load_part(y + i, part), bias), part);
    }
}

static void run(float *y, int64_t pixels, int64_t channels, const float *bias,
                enum activation activation)
{
    struct row row = { .bias = bias,
                       .repeated = vec_zero(),
                       .low = vec_set(activation == ACTIVATION_NONE ? -INFINITY : 0.0F),
                       .high = vec_set(activation == ACTIVATION_RELU6 ? 6.0F : INFINITY),
                       .is_sigmoid = activation == ACTIVATION_SIGMOID };

    if (bias == NULL && activation == ACTIVATION_NONE)
        return;
    if (bias == NULL || LANES % channels == 0) {
        float lanes[LANES];
        for (int64_t i = 0; bias != NULL && i < LANES; i++)
            lanes[i] = bias[i % channels];
        if (bias != NULL)
            row.repeated = vec_load(lanes);
        row.bias = NULL;
        finish_row(&row, y, pixels * channels);
        return;
    }
    for (int64_t p = 0; p < pixels; p++)
        finish_row(&row, y + p * channels, channels);
}

/* Sums of elements i, i + LANES, ... of n in lane i; four vectors hide the latency. */
static void sum_lanes(const float *from, int64_t n, float lanes[LANES])
{
    vec sum[4] = { vec_zero(), vec_zero(), vec_zero(), vec_zero() };
    int64_t i = 0;

    for (; i + 4 * LANES <= n; i += 4 * LANES) {
#pragma GCC unroll 4
        for (int v = 0; v < 4; v++)
            sum[v] = vec_add(sum[v], vec_load(from + i + v * LANES));
    }
    for (; i < n; i += LANES) {
        const vec_part part = vec_first((int)(n - i < LANES ? n - i : LANES));
        sum[0] = vec_add(sum[0], vec_load_part(from + i, part));
    }
    vec_store(lanes, vec_add(vec_add(sum[0], sum[1]), vec_add(sum[2], sum[3])));
}

/* Channels [c, c + n), a vector at most. */
static void sum_channels(const float *from, int64_t pixels, int64_t channels, int n,
                         float *sums)
{
    const vec_part part = vec_first(n);
    vec sum[4] = { vec_zero(), vec_zero(), vec_zero(), vec_zero() };
    int64_t p = 0;

    for (; p + 4 <= pixels; p += 4) {
#pragma GCC unroll 4
        for (int v = 0; v < 4; v++)
            sum[v] = vec_add(sum[v], vec_load_part(from + (p + v) * channels, part));
    }
    for (; p < pixels; p++)
        sum[0] = vec_add(sum[0], vec_load_part(from + p * channels, part));
    vec_store_part(sums, vec_add(vec_add(sum[0], sum[1]), vec_add(sum[2], sum[3])), part);
}

static void sum(const float *dy, int64_t pixels, int64_t channels, float *sums)
{
    if (LANES % channels != 0) {
        for (int64_t c = 0; c < channels; c += LANES)
            sum_channels(dy + c, pixels, channels,
                         (int)(channels - c < LANES ? channels - c : LANES), sums + c);
        return;
    }
    float lanes[LANES];
    sum_lanes(dy, pixels * channels, lanes);
    for (int64_t c = 0; c < channels; c++) {
        sums[c] = 0;
        for (int64_t i = c; i < LANES; i += channels)
            sums[c] += lanes[i];
    }
}

const struct finish_isa FINISH_TABLE = { .run = run, .sum = sum };
