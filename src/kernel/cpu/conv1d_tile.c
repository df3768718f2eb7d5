/* SPDX-License-Identifier: MIT */
/* conv1d_tile.c - the tiles of conv1d.h for one instruction set.
 *
 * Compiled once with AVX2 and once with AVX-512 (cpu/fast.cmake); CONV1D_TABLE is the
 * name of the table. A step of a tile of f filters and v vectors loads v vectors of x, most of them
 * across a cache line, broadcasts f weights and does f*v multiply-adds: 24 with AVX-512 (6x4), 12
 * with AVX2 (6x2), which is more than it loads.
 */
#include "kernel/cpu/conv1d.h"

#include <stdbool.h>

#include "kernel/cpu/isa.h"

struct acc {
    vec v[CONV1D_FILTERS][CONV1D_VECS];
};

INLINE struct acc multiply(const struct conv1d_tile *tile, const int filters, const int vecs)
{
    const float *w = tile->w;
    const int64_t channels = tile->channels;
    struct acc acc;

#pragma GCC unroll 16
    for (int f = 0; f < filters; f++) {
#pragma GCC unroll 16
        for (int v = 0; v < vecs; v++)
            acc.v[f][v] = vec_zero();
    }
    for (int64_t tap = 0; tap < tile->taps; tap++) {
        const float *x = tile->x + tap;

        for (int64_t c = 0; c < channels; c++) {
            vec xv[CONV1D_VECS];

#pragma GCC unroll 16
            for (int v = 0; v < vecs; v++)
                xv[v] = vec_load(x + v * LANES);
#pragma GCC unroll 16
            for (int f = 0; f < filters; f++) {
                const vec wv = vec_set(w[f]);

#pragma GCC unroll 16
                for (int v = 0; v < vecs; v++)
                    acc.v[f][v] = vec_fma(wv, xv[v], acc.v[f][v]);
            }
            x += tile->x_row;
            w += filters;
        }
    }
    return acc;
}

INLINE void raise_best(const struct acc *acc, const struct conv1d_tile *tile, const int filters,
                       const int vecs)
{
    const vec_int steps = int_steps();

#pragma GCC unroll 16
    for (int f = 0; f < filters; f++) {
        vec best = vec_load(tile->best + (ptrdiff_t)f * LANES);
        vec_int place = int_load(tile->place + (ptrdiff_t)f * LANES);

#pragma GCC unroll 16
        for (int v = 0; v < vecs; v++) {
            const int left = (int)tile->count - v * LANES;
            vec sums = acc->v[f][v];
            if (left < LANES) /* no places beyond the last */
                sums = vec_or_else(sums, vec_first(left), vec_set(-__builtin_inff()));
            const vec_mask better = vec_greater(sums, best);
            best = vec_choose(better, best, sums);
            place = int_choose(better, place,
                               int_add(steps, int_set((int)tile->first + v * LANES)));
        }
        vec_store(tile->best + (ptrdiff_t)f * LANES, best);
        int_store(tile->place + (ptrdiff_t)f * LANES, place);
    }
}

INLINE void largest_of(const struct conv1d_tile *tile, const int filters, const int vecs)
{
    const struct acc acc = multiply(tile, filters, vecs);

    raise_best(&acc, tile, filters, vecs);
}

#define SHAPE(filters, vecs) ((vecs)*16 + (filters))
/* One instantiation, its shape constant. */
#define CASE(filters, vecs)                                                                    \
    case SHAPE(filters, vecs):                                                                 \
        largest_of(tile, filters, vecs);                                                       \
        break

static void largest(const struct conv1d_tile *tile, int filters, int vecs)
{
    switch (SHAPE(filters, vecs)) {
        CASE(1, 1);
        CASE(2, 1);
        CASE(3, 1);
        CASE(4, 1);
        CASE(5, 1);
        CASE(6, 1);
        CASE(1, 2);
        CASE(2, 2);
        CASE(3, 2);
        CASE(4, 2);
        CASE(5, 2);
        CASE(6, 2);
#ifdef ISA_AVX512
        CASE(1, 3);
        CASE(2, 3);
        CASE(3, 3);
        CASE(4, 3);
        CASE(5, 3);
        CASE(6, 3);
        CASE(1, 4);
        CASE(2, 4);
        CASE(3, 4);
        CASE(4, 4);
        CASE(5, 4);
        CASE(6, 4);
#endif
    }
}

/* A lane without a number has -infinity and the place -1, which as an unsigned number is last. */
static void reduce(const float *best, const int32_t *place, int64_t filters, float *y,
                   int32_t *index)
{
    for (int64_t f = 0; f < filters; f++, best += LANES, place += LANES) {
        y[f] = vec_largest(vec_load(best));
        index[f] = int_first_where(vec_load(best), y[f], int_load(place));
    }
}

/* to += factor * from */
INLINE void add_scaled(float *to, const float *from, float factor, int64_t count)
{
    const vec scale = vec_set(factor);
    int64_t i = 0;

    for (; i + 4 * LANES <= count; i += 4 * LANES) {
#pragma GCC unroll 4
        for (int v = 0; v < 4; v++)
            vec_store(to + i + v * LANES, vec_fma(scale, vec_load(from + i + v * LANES),
                                                  vec_load(to + i + v * LANES)));
    }
    for (; i < count; i += LANES) {
        const vec_part part = vec_first((int)(count - i < LANES ? count - i : LANES));
        vec_store_part(
            to + i, vec_fma(scale, vec_load_part(from + i, part), vec_load_part(to + i, part)),
            part);
    }
}

static void gather(const struct conv1d_sample *s, const float *x, float *rows, int64_t row)
{
    for (int64_t f = 0; f < s->filters; f++) {
        if (s->index[f] >= 0 && s->dy[f] != 0)
            add_scaled(rows + f * row, x + s->index[f] * s->step, s->dy[f], s->depth);
    }
}

static void scatter(const struct conv1d_sample *s, const float *rows, int64_t row, float *dx)
{
    for (int64_t f = 0; f < s->filters; f++) {
        if (s->index[f] >= 0 && s->dy[f] != 0)
            add_scaled(dx + s->index[f] * s->step, rows + f * row, s->dy[f], s->depth);
    }
}

const struct conv1d_isa CONV1D_TABLE = {
    .lanes = LANES,
    .filters = CONV1D_FILTERS,
#ifdef ISA_AVX512
    .vecs = 4,
#else
    .vecs = 2,
#endif
    .largest = largest,
    .reduce = reduce,
    .gather = gather,
    .scatter = scatter,
};
