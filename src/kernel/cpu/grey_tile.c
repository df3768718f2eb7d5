/* SPDX-License-Identifier: MIT */
/* grey_tile.c - the loops of grey.h for one instruction set.
 *
 * Compiled once with AVX2 and once with AVX-512 (cpu/fast.cmake); GREY_TABLE is the name of the
 * table. Forward, four places go together so that four chains hide each other's latency; for the
 * weights there are nine chains anyway.
 */
#include "kernel/cpu/grey.h"

#include <string.h>

#include "kernel/cpu/isa.h"

enum { SIDE = 3, TAPS = 9, PLACES = 4 };

static void copy(const struct grey *g, const float *image, float *plane)
{
    float *to = plane + g->ph * g->plane_w + g->pw;

    for (int64_t r = 0; r < g->h; r++) {
        int64_t i = 0;

        for (; i + LANES <= g->w; i += LANES)
            vec_store(to + i, vec_load(image + i));
        if (i < g->w) {
            const vec_part part = vec_first((int)(g->w - i));
            vec_store_part(to + i, vec_load_part(image + i, part), part);
        }
        image += g->w;
        to += g->plane_w;
    }
}

/* Some places side by side, the first seeing `x`. */
INLINE void forward_places(const struct grey *g, const float *x, const vec w[TAPS], vec bias,
                           vec_part part, const int places, float *y)
{
    vec acc[PLACES];

#pragma GCC unroll 4
    for (int p = 0; p < places; p++)
        acc[p] = bias;
#pragma GCC unroll 9
    for (int t = 0; t < TAPS; t++) {
        const float *at = x + t / SIDE * g->plane_w + t % SIDE;

#pragma GCC unroll 4
        for (int p = 0; p < places; p++)
            acc[p] = vec_fma(vec_set(at[p * g->sw]), w[t], acc[p]);
    }
#pragma GCC unroll 4
    for (int p = 0; p < places; p++)
        vec_store_part(y + p * g->o, vec_cut(acc[p], vec_set(g->low), vec_set(g->high)), part);
}

static void forward(const struct grey *g, const float *plane, const float *w, const float *bias,
                    float *y)
{
    for (int64_t o = 0; o < g->o; o += LANES) {
        const vec_part part = vec_first((int)(g->o - o < LANES ? g->o - o : LANES));
        const vec start = bias != NULL ? vec_load_part(bias + o, part) : vec_zero();
        vec taps[TAPS];

#pragma GCC unroll 9
        for (int t = 0; t < TAPS; t++)
            taps[t] = vec_load_part(w + t * g->o + o, part);
        for (int64_t oy = 0; oy < g->oh; oy++) {
            const float *x = plane + oy * g->sh * g->plane_w;
            float *to = y + oy * g->ow * g->o + o;
            int64_t ox = 0;

            for (; ox + PLACES <= g->ow; ox += PLACES)
                forward_places(g, x + ox * g->sw, taps, start, part, PLACES, to + ox * g->o);
            for (; ox < g->ow; ox++)
                forward_places(g, x + ox * g->sw, taps, start, part, 1, to + ox * g->o);
        }
    }
}

static void weight(const struct grey *g, const float *plane, const float *dy, bool is_biased,
                   float *sums)
{
    for (int64_t o = 0; o < g->o; o += LANES) {
        const vec_part part = vec_first((int)(g->o - o < LANES ? g->o - o : LANES));
        vec acc[TAPS], total = vec_zero();

#pragma GCC unroll 9
        for (int t = 0; t < TAPS; t++)
            acc[t] = vec_zero();
        for (int64_t oy = 0; oy < g->oh; oy++) {
            const float *x = plane + oy * g->sh * g->plane_w;
            const float *from = dy + oy * g->ow * g->o + o;

            for (int64_t ox = 0; ox < g->ow; ox++) {
                const vec v = vec_load_part(from, part);

#pragma GCC unroll 9
                for (int t = 0; t < TAPS; t++)
                    acc[t] = vec_fma(vec_set(x[t / SIDE * g->plane_w + t % SIDE]), v, acc[t]);
                total = vec_add(total, v);
                x += g->sw;
                from += g->o;
            }
        }
#pragma GCC unroll 9
        for (int t = 0; t < TAPS; t++) {
            float *at = sums + t * g->o + o;
            vec_store_part(at, vec_add(vec_load_part(at, part), acc[t]), part);
        }
        if (is_biased) {
            float *at = sums + TAPS * g->o + o;
            vec_store_part(at, vec_add(vec_load_part(at, part), total), part);
        }
    }
}

/* Lanes [first, end). */
INLINE vec_part lanes_between(int first, int end)
{
#ifdef ISA_AVX512
    return (vec_part)(vec_first(end) & (vec_part)~vec_first(first));
#else
    return _mm256_andnot_si256(vec_first(first), vec_first(end));
#endif
}

INLINE int cut_to_lanes(int64_t at)
{
    return (int)(at < 0 ? 0 : at > LANES ? LANES : at);
}

/* a0 b0 a1 b1 ... */
INLINE void interleave(vec a, vec b, vec *low, vec *high)
{
#ifdef ISA_AVX512
    const __m512i first =
        _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    *low = _mm512_permutex2var_ps(a, first, b);
    *high = _mm512_permutex2var_ps(a, _mm512_add_epi32(first, _mm512_set1_epi32(8)), b);
#else
    const vec even = _mm256_unpacklo_ps(a, b), odd = _mm256_unpackhi_ps(a, b);
    *low = _mm256_permute2f128_ps(even, odd, 0x20);
    *high = _mm256_permute2f128_ps(even, odd, 0x31);
#endif
}

/* What a row of dx gets: at most three kernel rows, and where their z begin. */
struct senders {
    const float *z[SIDE]; /* of the row's first place, tap 0 of the kernel row */
    int n;
};

static struct senders senders_of(const struct grey *g, const float *z, ptrdiff_t step,
                                 int64_t row)
{
    struct senders senders = { .n = 0 };

    for (int64_t ky = (row + g->ph) % g->sh; ky < SIDE && ky <= row + g->ph; ky += g->sh) {
        const int64_t oy = (row + g->ph - ky) / g->sh;

        if (oy < g->oh)
            senders.z[senders.n++] = z + ky * SIDE * step + oy * g->ow;
    }
    return senders;
}

/* Pixels first, first + stride, ...: the sum of what their taps send. */
INLINE vec gather_vec(const struct grey *g, const struct senders *senders, ptrdiff_t step,
                      int64_t first, const int stride)
{
    vec sum = vec_zero();

    for (int64_t kx = (first + g->pw) % stride; kx < SIDE; kx += stride) {
        const int64_t ox = (first + g->pw - kx) / stride; /* exact, may be negative */
        const vec_part part = lanes_between(cut_to_lanes(-ox), cut_to_lanes(g->ow - ox));

        for (int i = 0; i < senders->n; i++)
            sum = vec_add(sum, vec_load_part(senders->z[i] + (kx * step + ox), part));
    }
    return sum;
}

INLINE void put_first(float *to, vec v, int64_t n)
{
    if (n > 0)
        vec_store_part(to, v, vec_first(n < LANES ? (int)n : LANES));
}

static void gather(const struct grey *g, const float *z, ptrdiff_t step, float *dx)
{
    for (int64_t row = 0; row < g->h; row++) {
        const struct senders senders = senders_of(g, z, step, row);
        float *to = dx + row * g->w;

        if (g->sw == 1) {
            for (int64_t x = 0; x < g->w; x += LANES)
                put_first(to + x, gather_vec(g, &senders, step, x, 1), g->w - x);
            continue;
        }
        for (int64_t x = 0; x < g->w; x += 2 * LANES) {
            vec low, high;

            interleave(gather_vec(g, &senders, step, x, 2),
                       gather_vec(g, &senders, step, x + 1, 2), &low, &high);
            put_first(to + x, low, g->w - x);
            put_first(to + x + LANES, high, g->w - x - LANES);
        }
    }
}

const struct grey_isa GREY_TABLE = {
    .copy = copy, .forward = forward, .weight = weight, .gather = gather
};
