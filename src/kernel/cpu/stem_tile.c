/* SPDX-License-Identifier: MIT */
/* stem_tile.c - the loops of stem.h for one instruction set.
 *
 * Compiled once with AVX2 and once with AVX-512; STEM_TABLE is the name of the table. A
 * window takes 16 broadcasts and 36 multiply-adds a vector, forward and backward; with
 * AVX-512 two vectors keep 18 weights (or sums) and 8 sums in 32 registers.
 */
#include "kernel/cpu/stem.h"

#include "kernel/cpu/isa.h"

#ifdef ISA_AVX512
enum { VECS = 2 };
#else
enum { VECS = 1 };
#endif

INLINE vec load(const float *from, int n)
{
    return n == LANES ? vec_load(from) : vec_load_part(from, vec_first(n));
}

INLINE void store(float *to, vec v, int n)
{
    if (n == LANES)
        vec_store(to, v);
    else
        vec_store_part(to, v, vec_first(n));
}

/* One window: acc[output of the window][vector]. */
INLINE void multiply_window(const float *p, ptrdiff_t row, vec w[9][VECS], const int n_vecs,
                            vec acc[4][VECS])
{
#pragma GCC unroll 16
    for (int i = 0; i < 4 * n_vecs; i++)
        acc[i / n_vecs][i % n_vecs] = vec_zero();
#pragma GCC unroll 16
    for (int at = 0; at < 16; at++) {
        const vec v = vec_set(p[at / 4 * row + at % 4]);

#pragma GCC unroll 16
        for (int i = 0; i < 4; i++) {
            const int ky = at / 4 - i / 2, kx = at % 4 - i % 2;
            if (ky < 0 || ky > 2 || kx < 0 || kx > 2)
                continue;
#pragma GCC unroll 2
            for (int j = 0; j < n_vecs; j++)
                acc[i][j] = vec_fma(v, w[ky * 3 + kx][j], acc[i][j]);
        }
    }
}

/* The last of the vectors has `last` channels. */
INLINE void pool_vecs(const struct stem *stem, int first, const int n_vecs, const int last,
                      const float *weights, const float *biases, bool relu, float *y,
                      uint8_t *index)
{
    vec w[9][VECS], bias[VECS];

#pragma GCC unroll 18
    for (int i = 0; i < 9 * n_vecs; i++)
        w[i / n_vecs][i % n_vecs] =
            load(weights + i / n_vecs * stem->channels + first + i % n_vecs * LANES,
                 i % n_vecs == n_vecs - 1 ? last : LANES);
#pragma GCC unroll 2
    for (int j = 0; j < n_vecs; j++)
        bias[j] = biases == NULL
                      ? vec_zero()
                      : load(biases + first + j * LANES, j == n_vecs - 1 ? last : LANES);
    y += first;
    index += first;
    for (int64_t r = 0; r < stem->rows; r++) {
        const float *p = stem->plane + 2 * r * stem->row;

        for (int64_t x = 0; x < stem->columns; x++) {
            vec acc[4][VECS];

            multiply_window(p, stem->row, w, n_vecs, acc);
#pragma GCC unroll 2
            for (int j = 0; j < n_vecs; j++) {
                const int n = j == n_vecs - 1 ? last : LANES;
                vec best = vec_add(acc[0][j], bias[j]);
                vec_int where = int_set(0);

#pragma GCC unroll 4
                for (int i = 1; i < 4; i++) {
                    const vec next = vec_add(acc[i][j], bias[j]);
                    const vec_mask better = vec_greater(next, best);
                    best = vec_choose(better, best, next);
                    where = int_choose(better, where, int_set(i));
                }
                if (relu) {
                    where = int_choose(vec_not_greater(best, vec_zero()), where, int_set(255));
                    best = vec_relu(best);
                }
                store(y + j * LANES, best, n);
                int_store_bytes(index + j * LANES, where, n);
            }
            p += 2;
            y += stem->channels;
            index += stem->channels;
        }
    }
}

static void pool(const struct stem *stem, int first, int n, const float *w, const float *bias,
                 bool relu, float *y, uint8_t *index)
{
    if (n == VECS * LANES)
        pool_vecs(stem, first, VECS, LANES, w, bias, relu, y, index);
    else if (n > LANES)
        pool_vecs(stem, first, VECS, n - LANES, w, bias, relu, y, index);
    else
        pool_vecs(stem, first, 1, n, w, bias, relu, y, index);
}

INLINE void weight_vecs(const struct stem *stem, int first, const int n_vecs, const int last,
                        const float *dy, const uint8_t *index, float *dw, float *db)
{
    vec sum[9][VECS], bias[VECS];

#pragma GCC unroll 18
    for (int i = 0; i < 9 * n_vecs; i++)
        sum[i / n_vecs][i % n_vecs] = vec_zero();
#pragma GCC unroll 2
    for (int j = 0; j < n_vecs; j++)
        bias[j] = vec_zero();
    dy += first;
    index += first;
    for (int64_t r = 0; r < stem->rows; r++) {
        const float *p = stem->plane + 2 * r * stem->row;

        for (int64_t x = 0; x < stem->columns; x++) {
            vec d[VECS];
            vec_int where[VECS];

#pragma GCC unroll 2
            for (int j = 0; j < n_vecs; j++) {
                const int n = j == n_vecs - 1 ? last : LANES;
                d[j] = load(dy + j * LANES, n);
                where[j] = int_load_bytes(index + j * LANES, n);
                bias[j] = vec_add(bias[j], vec_unless_equal(where[j], int_set(255), d[j]));
            }
#pragma GCC unroll 4
            for (int i = 0; i < 4; i++) {
                vec part[VECS]; /* what this output of the window gets */

#pragma GCC unroll 2
                for (int j = 0; j < n_vecs; j++)
                    part[j] = vec_where_equal(where[j], int_set(i), d[j]);
#pragma GCC unroll 9
                for (int tap = 0; tap < 9; tap++) {
                    const vec v = vec_set(p[(i / 2 + tap / 3) * stem->row + i % 2 + tap % 3]);
#pragma GCC unroll 2
                    for (int j = 0; j < n_vecs; j++)
                        sum[tap][j] = vec_fma(v, part[j], sum[tap][j]);
                }
            }
            p += 2;
            dy += stem->channels;
            index += stem->channels;
        }
    }
#pragma GCC unroll 2
    for (int j = 0; j < n_vecs; j++) {
        const int n = j == n_vecs - 1 ? last : LANES;

#pragma GCC unroll 9
        for (int tap = 0; tap < 9; tap++) {
            float *to = dw + tap * stem->channels + first + j * LANES;
            store(to, vec_add(load(to, n), sum[tap][j]), n);
        }
        if (db != NULL)
            store(db + first + j * LANES, vec_add(load(db + first + j * LANES, n), bias[j]), n);
    }
}

static void weight(const struct stem *stem, int first, int n, const float *dy,
                   const uint8_t *index, float *dw, float *db)
{
    if (n == VECS * LANES)
        weight_vecs(stem, first, VECS, LANES, dy, index, dw, db);
    else if (n > LANES)
        weight_vecs(stem, first, VECS, n - LANES, dy, index, dw, db);
    else
        weight_vecs(stem, first, 1, n, dy, index, dw, db);
}

const struct stem_isa STEM_TABLE = {
    .width = VECS * LANES,
    .pool = pool,
    .weight = weight,
};
