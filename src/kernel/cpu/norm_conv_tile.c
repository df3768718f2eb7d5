/* SPDX-License-Identifier: MIT */
/* norm_conv_tile.c - the rows of norm_conv.h for one instruction set.
 *
 * Compiled once with AVX2 and once with AVX-512 (cpu/fast.cmake); NORM_TABLE is the name of the table.
 * What has no sums goes row by row, in the order of memory. Sums are made of blocks of rows by a few vectors,
 * in float within a block and in double across blocks, so their bits depend on the rows alone. The variance
 * of a block is that around its own mean, and blocks are joined as Chan, Golub and LeVeque (1983) do.
 */
#include "kernel/cpu/norm_conv.h"

#include "kernel/cpu/isa.h"

enum {
    BLOCK_ROWS = 32,
    VECTORS = 4,
    BLOCK_LANES = VECTORS * LANES,
    AHEAD =
        1024, /* floats: what comes from memory is asked for a page ahead, where the processor stops guessing */
};

INLINE vec get(const float *from, const bool whole, vec_part part)
{
    return whole ? vec_load(from) : vec_load_part(from, part);
}

INLINE void put(float *to, vec v, const bool whole, vec_part part)
{
    if (whole)
        vec_store(to, v);
    else
        vec_store_part(to, v, part);
}

/* Copies past the caches, in the order of memory, which is half as fast again as by columns; whole vectors alone. */
static void stream(const float *from, int64_t count, float *to)
{
    for (int64_t i = 0; i < count; i += LANES)
        vec_stream(to + i, vec_load(from + i));
}

INLINE vec affine(const struct norm_numbers *n, vec x, int64_t j, const bool whole,
                  vec_part part)
{
    return vec_fma(vec_sub(x, get(n->mean + j, whole, part)), get(n->scale + j, whole, part),
                   get(n->shift + j, whole, part));
}

static void normalize(const struct norm_numbers *numbers, const float *x, int64_t rows,
                      int64_t c, float *a)
{
    const struct norm_numbers n = *numbers;
    const vec low = vec_set(n.low), high = vec_set(n.high);
    const vec_part part = vec_first((int)(c % LANES));

    for (int64_t r = 0; r < rows; r++, x += c, a += c) {
        int64_t j = 0;
        for (; j + LANES <= c; j += LANES) {
            __builtin_prefetch(x + j + AHEAD, 0, 3);
            vec_store(a + j, vec_cut(affine(&n, vec_load(x + j), j, true, part), low, high));
        }
        if (j < c)
            vec_store_part(
                a + j,
                vec_cut(affine(&n, vec_load_part(x + j, part), j, false, part), low, high),
                part);
    }
}

static void spread(const struct norm_numbers *numbers, const float *dz, const float *z,
                   int64_t rows, int64_t c, float *to)
{
    const struct norm_numbers n = *numbers;
    const vec_part part = vec_first((int)(c % LANES));

    for (int64_t r = 0; r < rows; r++, dz += c, z += c, to += c) {
        int64_t j = 0;
        for (; j + LANES <= c; j += LANES) {
            __builtin_prefetch(dz + j + AHEAD, 0, 3);
            __builtin_prefetch(z + j + AHEAD, 0, 3);
            vec_store(to + j,
                      vec_add(vec_load(dz + j), affine(&n, vec_load(z + j), j, true, part)));
        }
        if (j < c)
            vec_store_part(to + j,
                           vec_add(vec_load_part(dz + j, part),
                                   affine(&n, vec_load_part(z + j, part), j, false, part)),
                           part);
    }
}

/* Moments ---------------------------------------------------------------------------------- */

/* What a block has in each lane: about its mean, and sums around that of differences, which say what rounding
 * has left over, and of their squares. */
struct block {
    float mean[BLOCK_LANES], differences[BLOCK_LANES], squares[BLOCK_LANES];
};

INLINE void block_moments(const float *z, int64_t rows, int64_t c, const int vectors,
                          const bool whole, vec_part part, struct block *out)
{
    const vec inverse = vec_set(1 / (float)rows);
    vec mean[VECTORS], sum[VECTORS], square[VECTORS];

#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++)
        mean[v] = sum[v] = square[v] = vec_zero();
    for (int64_t r = 0; r < rows; r++) {
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++)
            mean[v] = vec_add(mean[v], get(z + r * c + v * LANES, whole, part));
    }
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++)
        mean[v] = vec_mul(mean[v], inverse);
    for (int64_t r = 0; r < rows; r++) {
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) {
            const vec d = vec_sub(get(z + r * c + v * LANES, whole, part), mean[v]);
            sum[v] = vec_add(sum[v], d);
            square[v] = vec_fma(d, d, square[v]);
        }
    }
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++) {
        vec_store(out->mean + v * LANES, mean[v]);
        vec_store(out->differences + v * LANES, sum[v]);
        vec_store(out->squares + v * LANES, square[v]);
    }
}

/* Joins a block of `more` rows to `n` others. */
INLINE void join_block(double n, double more, int lanes, const struct block *block,
                       double *mean, double *squares)
{
    const double weight = more / (n + more), spread = n * weight, inverse = 1 / more;

    for (int l = 0; l < lanes; l++) {
        const double rest = (double)block->differences[l], part = rest * inverse;
        const double delta = (double)block->mean[l] + part - mean[l];
        mean[l] += delta * weight;
        squares[l] += (double)block->squares[l] - rest * part + delta * delta * spread;
    }
}

static void moments(const float *z, int64_t rows, int64_t c, int64_t seen, double *mean,
                    double *squares, float *far)
{
    struct block block;

    for (int64_t r = 0; r < rows; r += BLOCK_ROWS, seen += BLOCK_ROWS) {
        const int64_t n = rows - r < BLOCK_ROWS ? rows - r : BLOCK_ROWS;
        const float *from = z + r * c;
        int64_t j = 0;

        if (far)
            stream(from, n * c, far + r * c);
        for (; j + BLOCK_LANES <= c; j += BLOCK_LANES) {
            block_moments(from + j, n, c, VECTORS, true, vec_first(LANES), &block);
            join_block((double)seen, (double)n, BLOCK_LANES, &block, mean + j, squares + j);
        }
        for (; j + LANES <= c; j += LANES) {
            block_moments(from + j, n, c, 1, true, vec_first(LANES), &block);
            join_block((double)seen, (double)n, LANES, &block, mean + j, squares + j);
        }
        if (j < c) {
            block_moments(from + j, n, c, 1, false, vec_first((int)(c - j)), &block);
            join_block((double)seen, (double)n, (int)(c - j), &block, mean + j, squares + j);
        }
    }
}

/* Back ------------------------------------------------------------------------------------- */

struct back {
    const struct norm_numbers *numbers;
    const float *da, *x;
    float *dx;
    int64_t rows, c;
};

/* A block of rows, `vectors` vectors from column j on. */
INLINE void back_block(const struct back *b, int64_t j, const int vectors, const bool whole,
                       vec_part part, float *sum, float *product)
{
    const vec low = vec_set(b->numbers->low), high = vec_set(b->numbers->high);
    vec mean[VECTORS], scale[VECTORS], shift[VECTORS], sums[VECTORS], products[VECTORS];

#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++) {
        const int64_t at = j + v * LANES;
        mean[v] = get(b->numbers->mean + at, whole, part);
        scale[v] = get(b->numbers->scale + at, whole, part);
        shift[v] = get(b->numbers->shift + at, whole, part);
        sums[v] = products[v] = vec_zero();
    }
    for (int64_t r = 0; r < b->rows; r++) {
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) {
            const int64_t at = r * b->c + j + v * LANES;
            const vec x = vec_sub(get(b->x + at, whole, part), mean[v]);
            const vec a = vec_fma(x, scale[v], shift[v]);
            vec d = get(b->da + at, whole, part);
            d = vec_choose(vec_not_greater(a, low), d, vec_zero());
            d = vec_choose(vec_not_greater(high, a), d, vec_zero());
            put(b->dx + at, vec_mul(d, scale[v]), whole, part);
            sums[v] = vec_add(sums[v], d);
            products[v] = vec_fma(d, x, products[v]);
        }
    }
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++) {
        vec_store(sum + v * LANES, sums[v]);
        vec_store(product + v * LANES, products[v]);
    }
}

INLINE void add_sums(int lanes, const float *sum, const float *product, double *sums,
                     double *products)
{
    for (int l = 0; l < lanes; l++) {
        sums[l] += (double)sum[l];
        products[l] += (double)product[l];
    }
}

static void back_rows(const struct back *b, double *sums, double *products)
{
    float sum[BLOCK_LANES], product[BLOCK_LANES];
    int64_t j = 0;

    for (; j + BLOCK_LANES <= b->c; j += BLOCK_LANES) {
        back_block(b, j, VECTORS, true, vec_first(LANES), sum, product);
        add_sums(BLOCK_LANES, sum, product, sums + j, products + j);
    }
    for (; j + LANES <= b->c; j += LANES) {
        back_block(b, j, 1, true, vec_first(LANES), sum, product);
        add_sums(LANES, sum, product, sums + j, products + j);
    }
    if (j < b->c) {
        back_block(b, j, 1, false, vec_first((int)(b->c - j)), sum, product);
        add_sums((int)(b->c - j), sum, product, sums + j, products + j);
    }
}

static void back(const struct norm_numbers *numbers, float *da, const float *x, int64_t rows,
                 int64_t c, bool is_far, float *dx, double *sums, double *products)
{
    for (int64_t r = 0; r < rows; r += BLOCK_ROWS) {
        const struct back b = { .numbers = numbers,
                                .da = da + r * c,
                                .x = x + r * c,
                                .dx = is_far ? da + r * c : dx + r * c,
                                .rows = rows - r < BLOCK_ROWS ? rows - r : BLOCK_ROWS,
                                .c = c };
        back_rows(&b, sums, products);
        if (is_far)
            stream(b.dx, b.rows * c, dx + r * c);
    }
}

static void end_far(void)
{
    _mm_sfence();
}

const struct norm_isa NORM_TABLE = {
    .normalize = normalize,
    .spread = spread,
    .moments = moments,
    .back = back,
    .end_far = end_far,
};
