/* SPDX-License-Identifier: MIT */
/* gemm_tile.c - the tiles of gemm_tile.h for one instruction set.
 *
 * Compiled once with AVX2 and once with AVX-512 (cpu/fast.cmake); TILE_TABLE is
 * the name of the table. A step of a tile of r rows and v vectors loads v vectors of
 * B, broadcasts r values of A and does r*v multiply-adds. Two of these start a
 * cycle and take four, so a tile needs at least 8 accumulators, and few enough
 * that they stay in registers: at most 24 of 32 with AVX-512 (8x3, 6x4), 12
 * of 16 with AVX2 (6x2, 4x3). Then r+v loads are at most two a cycle as well.
 *
 * A shape's loops are constant after inlining, so that accumulators live in
 * registers; a switch picks the instantiation.
 */
#include "kernel/cpu/gemm_tile.h"

#include "kernel/cpu/isa.h"

struct acc {
    vec v[TILE_ROWS][TILE_VECS];
};

/* The last vector of a row of B. A mask takes a multiply-add's place. */
INLINE vec load_last(const float *from, bool full, vec_part part)
{
    return full ? vec_load(from) : vec_load_part(from, part);
}

enum { FETCH_STEPS = 8 };

/* Asks for the lines of a row of C, if there are still some to ask for, and returns the step at
 * which to come again: all at once would keep those of B waiting. */
INLINE ptrdiff_t fetch_row(const struct tile *tile, const int n_rows, const int n_vecs,
                           int *fetched, ptrdiff_t t)
{
    if (*fetched == n_rows)
        return tile->depth;
    const float *c = tile->c[(*fetched)++];
#pragma GCC unroll 16
    for (int j = 0; j < n_vecs; j++)
        __builtin_prefetch(c + j * LANES, 1, 3);
    __builtin_prefetch(c + n_vecs * LANES - 1, 1, 3);
    return tile->depth - t < FETCH_STEPS ? tile->depth : t + FETCH_STEPS;
}

INLINE struct acc multiply_rows(const struct tile *tile, const int n_rows, const int n_vecs,
                                const bool full)
{
    struct acc acc;
    const vec_part part = vec_first(tile->last);
    const float *b = tile->b;
    const ptrdiff_t b_step = tile->b_step, depth = tile->depth;
    int fetched = tile->fetch ? 0 : n_rows;

#pragma GCC unroll 16
    for (int i = 0; i < n_rows; i++) {
#pragma GCC unroll 16
        for (int j = 0; j < n_vecs; j++)
            acc.v[i][j] = vec_zero();
    }
    for (int s = 0; s < tile->n_segments; s++) {
        const ptrdiff_t offset = tile->segment[s];
        const float *a[TILE_ROWS];

#pragma GCC unroll 16
        for (int i = 0; i < n_rows; i++)
            a[i] = tile->a[i] + offset;
        for (ptrdiff_t t = 0, end; t < depth; t = end) {
            end = fetch_row(tile, n_rows, n_vecs, &fetched, t);
            if (tile->ahead != 0) {
                end = depth - t < FETCH_STEPS ? depth : t + FETCH_STEPS;
#pragma GCC unroll 16
                for (int i = 0; i < n_rows; i++)
                    __builtin_prefetch(a[i] + tile->ahead + t, 0, 2);
            }
            for (; t < end; t++) {
                vec bv[TILE_VECS];

#pragma GCC unroll 16
                for (int j = 0; j < n_vecs - 1; j++)
                    bv[j] = vec_load(b + j * LANES);
                bv[n_vecs - 1] = load_last(b + (n_vecs - 1) * LANES, full, part);
#pragma GCC unroll 16
                for (int i = 0; i < n_rows; i++) {
                    const vec av = vec_set(a[i][t]);

#pragma GCC unroll 16
                    for (int j = 0; j < n_vecs; j++)
                        acc.v[i][j] = vec_fma(av, bv[j], acc.v[i][j]);
                }
                b += b_step;
            }
        }
    }
    return acc;
}

INLINE struct acc multiply_columns(const struct tile *tile, const int n_rows, const int n_vecs,
                                   const bool full)
{
    struct acc acc;
    const vec_part part = vec_first(tile->last);
    const float *b = tile->b;
    const ptrdiff_t a_step = tile->a_step, b_step = tile->b_step;
    int fetched = tile->fetch ? 0 : n_rows;

#pragma GCC unroll 16
    for (int i = 0; i < n_rows; i++) {
#pragma GCC unroll 16
        for (int j = 0; j < n_vecs; j++)
            acc.v[i][j] = vec_zero();
    }
    for (int s = 0; s < tile->n_segments; s++) {
        const float *a = tile->a[0] + tile->segment[s];

        for (ptrdiff_t t = 0, end; t < tile->depth; t = end) {
            end = fetch_row(tile, n_rows, n_vecs, &fetched, t);
            for (; t < end; t++) {
                vec bv[TILE_VECS];

#pragma GCC unroll 16
                for (int j = 0; j < n_vecs - 1; j++)
                    bv[j] = vec_load(b + j * LANES);
                bv[n_vecs - 1] = load_last(b + (n_vecs - 1) * LANES, full, part);
#pragma GCC unroll 16
                for (int i = 0; i < n_rows; i++) {
                    const vec av = vec_set(a[i]);

#pragma GCC unroll 16
                    for (int j = 0; j < n_vecs; j++)
                        acc.v[i][j] = vec_fma(av, bv[j], acc.v[i][j]);
                }
                a += a_step;
                b += b_step;
            }
        }
    }
    return acc;
}

/* Adds C's old value and the bias, applies relu. */
INLINE void finish(struct acc *acc, const struct tile *tile, const int n_rows, const int n_vecs)
{
    const vec_part part = vec_first(tile->last);

    if (tile->accumulate) {
#pragma GCC unroll 16
        for (int i = 0; i < n_rows; i++) {
#pragma GCC unroll 16
            for (int j = 0; j < n_vecs; j++) {
                const float *c = tile->c[i] + j * LANES;
                acc->v[i][j] = vec_add(acc->v[i][j],
                                       j < n_vecs - 1 ? vec_load(c) : vec_load_part(c, part));
            }
        }
    }
    if (tile->bias != NULL) {
#pragma GCC unroll 16
        for (int j = 0; j < n_vecs; j++) {
            const float *at = tile->bias + j * LANES;
            const vec bias = j < n_vecs - 1 ? vec_load(at) : vec_load_part(at, part);

#pragma GCC unroll 16
            for (int i = 0; i < n_rows; i++)
                acc->v[i][j] = vec_add(acc->v[i][j], bias);
        }
    }
    if (tile->relu) {
#pragma GCC unroll 16
        for (int i = 0; i < n_rows; i++) {
#pragma GCC unroll 16
            for (int j = 0; j < n_vecs; j++)
                acc->v[i][j] = vec_relu(acc->v[i][j]);
        }
    }
}

INLINE void store(const struct acc *acc, const struct tile *tile, const int n_rows,
                  const int n_vecs)
{
    const vec_part part = vec_first(tile->last);
    const bool whole = tile->last == LANES;

#pragma GCC unroll 16
    for (int i = 0; i < n_rows; i++) {
        float *c = tile->c[i];
#pragma GCC unroll 16
        for (int j = 0; j < n_vecs - 1; j++)
            vec_store(c + j * LANES, acc->v[i][j]);
        if (whole)
            vec_store(c + (n_vecs - 1) * LANES, acc->v[i][n_vecs - 1]);
        else
            vec_store_part(c + (n_vecs - 1) * LANES, acc->v[i][n_vecs - 1], part);
    }
}

/* The largest of each four rows and where it was first. */
INLINE void reduce_windows(const struct acc *acc, const struct tile *tile,
                           const struct tile_pool *pool, const int n_rows, const int n_vecs)
{
#pragma GCC unroll 16
    for (int w = 0; w < n_rows / 4; w++) {
#pragma GCC unroll 16
        for (int j = 0; j < n_vecs; j++) {
            const int n = j < n_vecs - 1 ? LANES : tile->last;
            vec best = acc->v[4 * w][j];
            vec_int where = int_set(0);

#pragma GCC unroll 16
            for (int i = 1; i < 4; i++) {
                const vec_mask better = vec_greater(acc->v[4 * w + i][j], best);
                best = vec_choose(better, best, acc->v[4 * w + i][j]);
                where = int_choose(better, where, int_set(i));
            }
            if (tile->relu)
                where = int_choose(vec_not_greater(best, vec_zero()), where, int_set(255));
            if (n == LANES)
                vec_store(pool->y[w] + j * LANES, best);
            else
                vec_store_part(pool->y[w] + j * LANES, best, vec_first(n));
            int_store_bytes(pool->index[w] + j * LANES, where, n);
        }
    }
}

INLINE void rows_tile(const struct tile *tile, const int n_rows, const int n_vecs)
{
    struct acc acc;

    if (tile->b_full)
        acc = multiply_rows(tile, n_rows, n_vecs, true);
    else
        acc = multiply_rows(tile, n_rows, n_vecs, false);
    finish(&acc, tile, n_rows, n_vecs);
    store(&acc, tile, n_rows, n_vecs);
}

INLINE void columns_tile(const struct tile *tile, const int n_rows, const int n_vecs)
{
    struct acc acc;

    if (tile->b_full)
        acc = multiply_columns(tile, n_rows, n_vecs, true);
    else
        acc = multiply_columns(tile, n_rows, n_vecs, false);
    finish(&acc, tile, n_rows, n_vecs);
    store(&acc, tile, n_rows, n_vecs);
}

INLINE void pool_tile(const struct tile *tile, const struct tile_pool *pool, const int n_rows,
                      const int n_vecs)
{
    struct acc acc = multiply_rows(tile, n_rows, n_vecs, true);

    finish(&acc, tile, n_rows, n_vecs);
    reduce_windows(&acc, tile, pool, n_rows, n_vecs);
}

#define SHAPE(rows, vecs) ((vecs)*16 + (rows))
/* One instantiation of `body`, a call of an inlined function with constant shape. */
#define CASE(rows, vecs, body)                                                                 \
    case SHAPE(rows, vecs):                                                                    \
        body;                                                                                  \
        break

static void by_rows(const struct tile *tile, int n_rows, int n_vecs)
{
    switch (SHAPE(n_rows, n_vecs)) {
        CASE(1, 1, rows_tile(tile, 1, 1));
        CASE(2, 1, rows_tile(tile, 2, 1));
        CASE(3, 1, rows_tile(tile, 3, 1));
        CASE(4, 1, rows_tile(tile, 4, 1));
        CASE(5, 1, rows_tile(tile, 5, 1));
        CASE(6, 1, rows_tile(tile, 6, 1));
        CASE(7, 1, rows_tile(tile, 7, 1));
        CASE(8, 1, rows_tile(tile, 8, 1));
        CASE(1, 2, rows_tile(tile, 1, 2));
        CASE(2, 2, rows_tile(tile, 2, 2));
        CASE(3, 2, rows_tile(tile, 3, 2));
        CASE(4, 2, rows_tile(tile, 4, 2));
        CASE(5, 2, rows_tile(tile, 5, 2));
        CASE(6, 2, rows_tile(tile, 6, 2));
        CASE(1, 3, rows_tile(tile, 1, 3));
        CASE(2, 3, rows_tile(tile, 2, 3));
        CASE(3, 3, rows_tile(tile, 3, 3));
        CASE(4, 3, rows_tile(tile, 4, 3));
#ifdef ISA_AVX512
        CASE(7, 2, rows_tile(tile, 7, 2));
        CASE(8, 2, rows_tile(tile, 8, 2));
        CASE(5, 3, rows_tile(tile, 5, 3));
        CASE(6, 3, rows_tile(tile, 6, 3));
        CASE(7, 3, rows_tile(tile, 7, 3));
        CASE(8, 3, rows_tile(tile, 8, 3));
        CASE(1, 4, rows_tile(tile, 1, 4));
        CASE(2, 4, rows_tile(tile, 2, 4));
        CASE(3, 4, rows_tile(tile, 3, 4));
        CASE(4, 4, rows_tile(tile, 4, 4));
        CASE(5, 4, rows_tile(tile, 5, 4));
        CASE(6, 4, rows_tile(tile, 6, 4));
#endif
    }
}

static void by_columns(const struct tile *tile, int n_rows, int n_vecs)
{
    switch (SHAPE(n_rows, n_vecs)) {
        CASE(1, 1, columns_tile(tile, 1, 1));
        CASE(2, 1, columns_tile(tile, 2, 1));
        CASE(3, 1, columns_tile(tile, 3, 1));
        CASE(4, 1, columns_tile(tile, 4, 1));
        CASE(5, 1, columns_tile(tile, 5, 1));
        CASE(6, 1, columns_tile(tile, 6, 1));
        CASE(7, 1, columns_tile(tile, 7, 1));
        CASE(8, 1, columns_tile(tile, 8, 1));
        CASE(1, 2, columns_tile(tile, 1, 2));
        CASE(2, 2, columns_tile(tile, 2, 2));
        CASE(3, 2, columns_tile(tile, 3, 2));
        CASE(4, 2, columns_tile(tile, 4, 2));
        CASE(5, 2, columns_tile(tile, 5, 2));
        CASE(6, 2, columns_tile(tile, 6, 2));
        CASE(1, 3, columns_tile(tile, 1, 3));
        CASE(2, 3, columns_tile(tile, 2, 3));
        CASE(3, 3, columns_tile(tile, 3, 3));
        CASE(4, 3, columns_tile(tile, 4, 3));
#ifdef ISA_AVX512
        CASE(9, 1, columns_tile(tile, 9, 1));
        CASE(10, 1, columns_tile(tile, 10, 1));
        CASE(11, 1, columns_tile(tile, 11, 1));
        CASE(12, 1, columns_tile(tile, 12, 1));
        CASE(7, 2, columns_tile(tile, 7, 2));
        CASE(8, 2, columns_tile(tile, 8, 2));
        CASE(9, 2, columns_tile(tile, 9, 2));
        CASE(10, 2, columns_tile(tile, 10, 2));
        CASE(11, 2, columns_tile(tile, 11, 2));
        CASE(12, 2, columns_tile(tile, 12, 2));
        CASE(13, 1, columns_tile(tile, 13, 1));
        CASE(14, 1, columns_tile(tile, 14, 1));
        CASE(13, 2, columns_tile(tile, 13, 2));
        CASE(14, 2, columns_tile(tile, 14, 2));
        CASE(5, 3, columns_tile(tile, 5, 3));
        CASE(6, 3, columns_tile(tile, 6, 3));
        CASE(7, 3, columns_tile(tile, 7, 3));
        CASE(8, 3, columns_tile(tile, 8, 3));
        CASE(1, 4, columns_tile(tile, 1, 4));
        CASE(2, 4, columns_tile(tile, 2, 4));
        CASE(3, 4, columns_tile(tile, 3, 4));
        CASE(4, 4, columns_tile(tile, 4, 4));
        CASE(5, 4, columns_tile(tile, 5, 4));
        CASE(6, 4, columns_tile(tile, 6, 4));
#endif
    }
}

static void by_rows_pool(const struct tile *tile, const struct tile_pool *pool, int n_rows,
                         int n_vecs)
{
    switch (SHAPE(n_rows, n_vecs)) {
        CASE(4, 1, pool_tile(tile, pool, 4, 1));
        CASE(8, 1, pool_tile(tile, pool, 8, 1));
        CASE(4, 2, pool_tile(tile, pool, 4, 2));
        CASE(4, 3, pool_tile(tile, pool, 4, 3));
#ifdef ISA_AVX512
        CASE(8, 2, pool_tile(tile, pool, 8, 2));
        CASE(8, 3, pool_tile(tile, pool, 8, 3));
        CASE(4, 4, pool_tile(tile, pool, 4, 4));
#endif
    }
}

static void transpose(const float *from, ptrdiff_t from_step, int n_rows, int n_columns,
                      float *to, ptrdiff_t to_step, bool pad)
{
    for (int i = 0; i < n_rows; i += LANES) {
        const int rows = n_rows - i < LANES ? n_rows - i : LANES;
        const vec_part row_part = vec_first(rows);

        for (int j = 0; j < n_columns; j += LANES) {
            const int columns = n_columns - j < LANES ? n_columns - j : LANES;
            const float *at = from + i * from_step + j;
            float *out = to + j * to_step + i;
            vec r[LANES];

            if (rows == LANES && columns == LANES) {
#pragma GCC unroll 16
                for (int s = 0; s < LANES; s++)
                    r[s] = vec_load(at + s * from_step);
                vec_transpose(r);
#pragma GCC unroll 16
                for (int s = 0; s < LANES; s++)
                    vec_store(out + s * to_step, r[s]);
                continue;
            }
            const vec_part column_part = vec_first(columns);
#pragma GCC unroll 16
            for (int s = 0; s < LANES; s++)
                r[s] = s < rows ? vec_load_part(at + s * from_step, column_part) : vec_zero();
            vec_transpose(r);
#pragma GCC unroll 16
            for (int s = 0; s < LANES; s++) {
                if (s >= columns)
                    break;
                if (pad)
                    vec_store(out + s * to_step, r[s]);
                else
                    vec_store_part(out + s * to_step, r[s], row_part);
            }
        }
    }
}

static void pack(const float *from, ptrdiff_t from_step, int n_rows, int n, float *to,
                 int width)
{
    const int whole = n / LANES * LANES;
    const vec_part part = vec_first(n - whole);

    for (int i = 0; i < n_rows; i++) {
        int j = 0;

        for (; j < whole; j += LANES)
            vec_store(to + j, vec_load(from + j));
        for (; j < width; j += LANES)
            vec_store(to + j, j < n ? vec_load_part(from + j, part) : vec_zero());
        from += from_step;
        to += width;
    }
}

enum { PACK_ROWS = 4 }; /* at once */

/* Rows of one panel, `left` of whose columns exist; in *sum their sums. */
INLINE void pack_rows(const float *from, ptrdiff_t from_step, int n_rows, const int vecs,
                      int left, float *to, vec sum[TILE_VECS])
{
    vec_part part[TILE_VECS];

#pragma GCC unroll 16
    for (int j = 0; j < vecs; j++) {
        const int n = left - j * LANES;
        part[j] = vec_first(n >= LANES ? LANES : n > 0 ? n : 0);
    }
    for (int i = 0; i < n_rows; i++) {
#pragma GCC unroll 16
        for (int j = 0; j < vecs; j++) {
            const vec v = vec_load_part(from + j * LANES, part[j]);
            __builtin_prefetch(from + PACK_ROWS * from_step + j * LANES, 0, 3);
            vec_store(to + j * LANES, v);
            sum[j] = vec_add(sum[j], v);
        }
        from += from_step;
        to += vecs * LANES;
    }
}

/* The same with all that is around it; a panel's sums are read and written in part. */
INLINE void pack_panel(const float *from, ptrdiff_t from_step, int n_rows, const int vecs,
                       int left, float *to, bool add, float *sums)
{
    vec sum[TILE_VECS];

#pragma GCC unroll 16
    for (int j = 0; j < vecs; j++) {
        const int n = left - j * LANES;
        sum[j] = add && sums != NULL && n > 0
                     ? vec_load_part(sums + j * LANES, vec_first(n >= LANES ? LANES : n))
                     : vec_zero();
    }
    pack_rows(from, from_step, n_rows, vecs, left, to, sum);
    if (sums == NULL)
        return;
#pragma GCC unroll 16
    for (int j = 0; j < vecs; j++) {
        const int n = left - j * LANES;
        if (n > 0)
            vec_store_part(sums + j * LANES, sum[j], vec_first(n >= LANES ? LANES : n));
    }
}

/* Some rows through all panels, then the next: what is read is a stream, and so is what is
 * written to each panel. */
static void pack_panels(const float *from, ptrdiff_t from_step, int depth, int n,
                        const struct tile_panels *panels, float *to, bool add, float *sums)
{
    for (int t = 0; t < depth; t += PACK_ROWS) {
        const int rows = depth - t < PACK_ROWS ? depth - t : PACK_ROWS;
        float *panel = to;
        int first = 0;

        for (int p = 0; p < panels->count; p++) {
            const int vecs = panels->vecs + (p < panels->wide ? 1 : 0);
            const float *at = from + first;
            float *out = panel + (ptrdiff_t)t * vecs * LANES;
            float *sum = sums != NULL ? sums + first : NULL;
            const int left = n - first;

            switch (vecs) {
            case 1:
                pack_panel(at, from_step, rows, 1, left, out, add || t > 0, sum);
                break;
            case 2:
                pack_panel(at, from_step, rows, 2, left, out, add || t > 0, sum);
                break;
            case 3:
                pack_panel(at, from_step, rows, 3, left, out, add || t > 0, sum);
                break;
            default:
                pack_panel(at, from_step, rows, 4, left, out, add || t > 0, sum);
                break;
            }
            panel += (ptrdiff_t)depth * vecs * LANES;
            first += vecs * LANES;
        }
        from += PACK_ROWS * from_step;
    }
}

/* A whole row of a sliver is a vector, or half of one, of which what is past its columns is the
 * next sliver's. */
static void pack_slivers(const float *from, ptrdiff_t from_step, int depth, int n,
                         int n_slivers, float *to, int to_step)
{
    const int width = n / n_slivers, wide = n % n_slivers;
    const vec_part part = vec_first(to_step);

    for (int t = 0; t < depth; t += PACK_ROWS) {
        const int rows = depth - t < PACK_ROWS ? depth - t : PACK_ROWS;
        float *out = to + (ptrdiff_t)t * to_step;
        int first = 0;

        for (int s = 0; s < n_slivers; s++) {
            const int left = n - first;
            const vec_part there = left < to_step ? vec_first(left) : part;

            for (int i = 0; i < rows; i++)
                vec_store_part(out + i * to_step,
                               vec_load_part(from + i * from_step + first, there), part);
            first += width + (s < wide ? 1 : 0);
            out += (ptrdiff_t)depth * to_step;
        }
        from += PACK_ROWS * from_step;
    }
}

/* Four vectors side by side hide the latency of the chains. */
static void column_sums(const float *from, ptrdiff_t from_step, int64_t n_rows, int n, bool add,
                        float *sums)
{
    enum { VECS = 4 };

    for (int j = 0; j < n; j += VECS * LANES) {
        vec_part part[VECS];
        vec sum[VECS];

#pragma GCC unroll 4
        for (int v = 0; v < VECS; v++) {
            const int left = n - j - v * LANES;
            part[v] = vec_first(left >= LANES ? LANES : left > 0 ? left : 0);
            sum[v] = add ? vec_load_part(sums + j + v * LANES, part[v]) : vec_zero();
        }
        for (int64_t i = 0; i < n_rows; i++) {
            const float *row = from + i * from_step + j;

#pragma GCC unroll 4
            for (int v = 0; v < VECS; v++)
                sum[v] = vec_add(sum[v], vec_load_part(row + v * LANES, part[v]));
        }
#pragma GCC unroll 4
        for (int v = 0; v < VECS; v++)
            vec_store_part(sums + j + v * LANES, sum[v], part[v]);
    }
}

static void window_sums(const float *from, const uint8_t *index, int64_t n_rows, int n,
                        float *sums)
{
    const vec_int none = int_set(255);

    for (int j = 0; j < n; j += LANES) {
        const int count = n - j < LANES ? n - j : LANES;
        const vec_part part = vec_first(count);
        vec sum = vec_zero();

        for (int64_t i = 0; i < n_rows; i++) {
            const vec v = vec_load_part(from + i * n + j, part);
            const vec_int where = int_load_bytes(index + i * n + j, count);
            sum = vec_add(sum, vec_unless_equal(where, none, v));
        }
        vec_store_part(sums + j, sum, part);
    }
}

INLINE void expand_vec(const float *dy, const uint8_t *index, int row, int channels, float *to,
                       int n)
{
    const vec_int where = int_load_bytes(index, n);
    const vec v = n == LANES ? vec_load(dy) : vec_load_part(dy, vec_first(n));
    const vec left = vec_where_equal(where, int_set(2 * row), v);
    const vec right = vec_where_equal(where, int_set(2 * row + 1), v);

    if (n == LANES) {
        vec_store(to, left);
        vec_store(to + channels, right);
    } else {
        vec_store_part(to, left, vec_first(n));
        vec_store_part(to + channels, right, vec_first(n));
    }
}

static void expand(const float *dy, const uint8_t *index, int row, int64_t n_windows, int n,
                   float *to)
{
    for (int64_t x = 0; x < n_windows; x++) {
        int c = 0;

        for (; c + LANES <= n; c += LANES)
            expand_vec(dy + c, index + c, row, n, to + c, LANES);
        if (c < n)
            expand_vec(dy + c, index + c, row, n, to + c, n - c);
        dy += n;
        index += n;
        to += 2 * n;
    }
}

const struct tile_isa TILE_TABLE = {
    .lanes = LANES,
#ifdef ISA_AVX512
    .vecs = 4,
    .rows = { 0, 8, 8, 8, 6 },
    .columns = { 0, 12, 12, 8, 6 },
    .slivers = { 0, 14, 14, 8, 6 },
    .windows = { 0, 8, 8, 8, 4 },
#else
    .vecs = 3,
    .rows = { 0, 8, 6, 4, 0 },
    .columns = { 0, 8, 6, 4, 0 },
    .slivers = { 0, 8, 6, 4, 0 },
    .windows = { 0, 8, 4, 4, 0 },
#endif
    .by_rows = by_rows,
    .by_columns = by_columns,
    .by_rows_pool = by_rows_pool,
    .transpose = transpose,
    .pack = pack,
    .pack_panels = pack_panels,
    .pack_slivers = pack_slivers,
    .column_sums = column_sums,
    .window_sums = window_sums,
    .expand = expand,
};
