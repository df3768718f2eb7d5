/* SPDX-License-Identifier: MIT */
/* narrow_tile.c - the loops of narrow.h for one instruction set.
 *
 * Compiled once with AVX2 and once with AVX-512; NARROW_TABLE is the name of the table. The
 * forward pass keeps two rows of two vectors of pixels for each of some output channels: a
 * tap loads four vectors, broadcasts a weight a channel and does four multiply-adds with it.
 */
#include "kernel/cpu/narrow.h"

#include "kernel/cpu/isa.h"

#ifdef ISA_AVX512
enum { CHANNELS = 6 }; /* that go together: 24 sums of 32 registers */
#else
enum { CHANNELS = 2 };
#endif
enum { SIDE = 5, VECS = NARROW_RUN / LANES };

/* The largest of each window of two rows of pixels, and where it was first. */
INLINE void store_windows(vec sum[2][2], float bias, bool relu, int n, int channels, float *y,
                          uint8_t *index)
{
    const vec from[4] = { vec_even(sum[0][0], sum[0][1]), vec_odd(sum[0][0], sum[0][1]),
                          vec_even(sum[1][0], sum[1][1]), vec_odd(sum[1][0], sum[1][1]) };
    vec best = vec_add(from[0], vec_set(bias));
    vec_int where = int_set(0);
    float values[LANES];
    uint8_t places[LANES];

#pragma GCC unroll 4
    for (int i = 1; i < 4; i++) {
        const vec next = vec_add(from[i], vec_set(bias));
        const vec_mask better = vec_greater(next, best);
        best = vec_choose(better, best, next);
        where = int_choose(better, where, int_set(i));
    }
    if (relu) {
        where = int_choose(vec_not_greater(best, vec_zero()), where, int_set(255));
        best = vec_relu(best);
    }
    vec_store(values, best);
    int_store_bytes(places, where, LANES);
    for (int i = 0; i < n; i++) {
        y[(ptrdiff_t)i * channels] = values[i];
        index[(ptrdiff_t)i * channels] = places[i];
    }
}

/* n windows of one row of them, for channels [first, first + count). */
INLINE void pool_some(const struct narrow *narrow, const float *plane, const float *w,
                      const float *bias, bool relu, int first, const int count, int n, float *y,
                      uint8_t *index)
{
    vec sum[CHANNELS][2][2];

#pragma GCC unroll 6
    for (int o = 0; o < count; o++)
        sum[o][0][0] = sum[o][0][1] = sum[o][1][0] = sum[o][1][1] = vec_zero();
    for (int ky = 0; ky < SIDE; ky++) {
        const float *above = plane + ky * narrow->row, *below = above + narrow->row;

        for (int kx = 0; kx < SIDE; kx++) {
            const vec a = vec_load(above + kx), b = vec_load(above + kx + LANES);
            const vec c = vec_load(below + kx), d = vec_load(below + kx + LANES);
            const float *tap = w + (ptrdiff_t)(ky * SIDE + kx) * narrow->out + first;

#pragma GCC unroll 6
            for (int o = 0; o < count; o++) {
                const vec weight = vec_set(tap[o]);
                sum[o][0][0] = vec_fma(a, weight, sum[o][0][0]);
                sum[o][0][1] = vec_fma(b, weight, sum[o][0][1]);
                sum[o][1][0] = vec_fma(c, weight, sum[o][1][0]);
                sum[o][1][1] = vec_fma(d, weight, sum[o][1][1]);
            }
        }
    }
#pragma GCC unroll 6
    for (int o = 0; o < count; o++)
        store_windows(sum[o], bias != NULL ? bias[first + o] : 0.0f, relu, n, narrow->out,
                      y + first + o, index + first + o);
}

static void pool(const struct narrow *narrow, const float *plane, const float *w,
                 const float *bias, bool relu, float *y, uint8_t *index)
{
    for (int64_t r = 0; r < narrow->rows; r++) {
        for (int64_t x = 0; x < narrow->columns; x += LANES) {
            const int64_t left = narrow->columns - x;
            const int n = left < LANES ? (int)left : LANES;
            const float *from = plane + 2 * r * narrow->row + 2 * x;
            const ptrdiff_t at = (r * narrow->columns + x) * narrow->out;
            int o = 0;

            for (; o + CHANNELS <= narrow->out; o += CHANNELS)
                pool_some(narrow, from, w, bias, relu, o, CHANNELS, n, y + at, index + at);
            for (; o < narrow->out; o++)
                pool_some(narrow, from, w, bias, relu, o, 1, n, y + at, index + at);
        }
    }
}

/* Where in a plane the pixel of a window lies that its index names. */
INLINE ptrdiff_t pixel_at(const struct narrow *narrow, int64_t row, int64_t column, int place)
{
    return (2 * row + place / 2) * narrow->row + (2 * column + place % 2) * narrow->in;
}

INLINE void weight_some(const struct narrow *narrow, const float *plane, const float *dy,
                        const uint8_t *index, const int kh, const int vecs, float *sums,
                        float *out_sum)
{
    vec acc[SIDE][VECS];
    float sum = *out_sum;

#pragma GCC unroll 5
    for (int ky = 0; ky < kh; ky++) {
#pragma GCC unroll 4
        for (int v = 0; v < vecs; v++)
            acc[ky][v] = vec_load(sums + ky * NARROW_RUN + v * LANES);
    }
    for (int64_t r = 0; r < narrow->rows; r++) {
        for (int64_t x = 0; x < narrow->columns; x++) {
            const float d = *index == 255 ? 0.0f : *dy;
            const float *from = plane + pixel_at(narrow, r, x, *index % 4);
            const vec value = vec_set(d);

            sum += d;
#pragma GCC unroll 5
            for (int ky = 0; ky < kh; ky++) {
#pragma GCC unroll 4
                for (int v = 0; v < vecs; v++)
                    acc[ky][v] = vec_fma(value, vec_load(from + ky * narrow->row + v * LANES),
                                         acc[ky][v]);
            }
            dy += narrow->out;
            index += narrow->out;
        }
    }
#pragma GCC unroll 5
    for (int ky = 0; ky < kh; ky++) {
#pragma GCC unroll 4
        for (int v = 0; v < vecs; v++)
            vec_store(sums + ky * NARROW_RUN + v * LANES, acc[ky][v]);
    }
    *out_sum = sum;
}

static void weight(const struct narrow *narrow, const float *plane, const float *dy,
                   const uint8_t *index, int o, float *sums, float *sum)
{
    const int vecs = (narrow->kw * narrow->in + LANES - 1) / LANES;

    dy += o;
    index += o;
    if (narrow->kh == 3 && vecs == 1)
        weight_some(narrow, plane, dy, index, 3, 1, sums, sum);
    else if (narrow->kh == 3)
        weight_some(narrow, plane, dy, index, 3, VECS, sums, sum);
    else if (vecs == 1)
        weight_some(narrow, plane, dy, index, SIDE, 1, sums, sum);
    else
        weight_some(narrow, plane, dy, index, SIDE, VECS, sums, sum);
}

static void input(const struct narrow *narrow, const float *dy, const uint8_t *index,
                  const float *w, float *plane)
{
    const int vecs = (narrow->kw * narrow->in + LANES - 1) / LANES;

    for (int64_t r = 0; r < narrow->rows; r++) {
        for (int64_t x = 0; x < narrow->columns; x++) {
            for (int o = 0; o < narrow->out; o++) {
                if (index[o] == 255)
                    continue;
                float *to = plane + pixel_at(narrow, r, x, index[o]);
                const float *from = w + (ptrdiff_t)o * narrow->kh * NARROW_RUN;
                const vec value = vec_set(dy[o]);

                for (int ky = 0; ky < narrow->kh; ky++) {
                    for (int v = 0; v < vecs; v++) {
                        float *at = to + ky * narrow->row + v * LANES;
                        vec_store(at, vec_fma(value, vec_load(from + v * LANES), vec_load(at)));
                    }
                    from += NARROW_RUN;
                }
            }
            dy += narrow->out;
            index += narrow->out;
        }
    }
}

const struct narrow_isa NARROW_TABLE = { .pool = pool, .weight = weight, .input = input };
