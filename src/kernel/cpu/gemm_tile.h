/* SPDX-License-Identifier: MIT */
/* gemm_tile.h - the innermost products, one table for each instruction set.
 *
 * A tile is up to 14 rows by up to 4 vectors of C, kept in registers while it
 * walks down the shared dimension: C[i][j] = sum over t of A(i, t) B[t][j], each
 * element one chain of fused multiply-adds in the order of t. So bits depend on
 * neither the tile's shape nor the instruction set, only on where a chain is cut.
 *
 * The shared dimension comes in segments of `depth` steps. A is reached in one of
 * two ways: by rows (row i's steps are adjacent: x of a linear layer, pixels of a
 * convolution) or by columns (the rows of one step are adjacent: gradients of
 * weights, packed blocks). B's rows lie b_step apart through all segments.
 *
 * Threads: tables are constant; tiles of different outputs may run at once.
 */
#ifndef KERNEL_CPU_GEMM_TILE_H
#define KERNEL_CPU_GEMM_TILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TILE_ROWS = 14, TILE_VECS = 4 };

struct tile {
    const float *a[TILE_ROWS]; /* by rows: each row's first step; by columns: a[0] */
    const ptrdiff_t *segment;  /* what is added to A's pointers for each segment */
    int n_segments;
    int depth;        /* steps in a segment */
    ptrdiff_t a_step; /* by columns: from step to step */
    const float *b;
    ptrdiff_t b_step;
    float *c[TILE_ROWS]; /* row i of C; rows do not overlap */
    int last;            /* columns in the last vector, 1..lanes */
    bool b_full;         /* B's rows may be read (and are zero) past `last` */
    bool accumulate;     /* add what C holds; else C is only written */
    bool fetch;          /* C lies far: its lines are asked for while the sums are made */
    ptrdiff_t ahead; /* by rows: what lies so far after A's rows is asked for as well, or 0 */
    bool relu;
    const float *bias; /* one a column, or NULL; added before relu */
};

/* A tile whose rows are windows of four, each reduced to its largest value. */
struct tile_pool {
    float *y[TILE_ROWS / 4];       /* one row a window */
    uint8_t *index[TILE_ROWS / 4]; /* which of the four; 255 where relu left nothing */
};

/* Panels side by side, the first `wide` of them vecs + 1 vectors wide, the others vecs. */
struct tile_panels {
    int count, wide, vecs;
};

struct tile_isa {
    int lanes;                  /* floats in a vector */
    int vecs;                   /* largest number of vectors in a tile */
    int rows[TILE_VECS + 1];    /* largest number of rows for so many vectors, by rows */
    int columns[TILE_VECS + 1]; /* the same, by columns */
    int slivers[TILE_VECS + 1]; /* the same, by columns that pack_slivers has made */
    int windows[TILE_VECS + 1]; /* the same, by_rows_pool; not above rows[] */
    void (*by_rows)(const struct tile *tile, int n_rows, int n_vecs);
    void (*by_columns)(const struct tile *tile, int n_rows, int n_vecs);
    /* by_rows, but C is reduced in windows and only read (tile->accumulate). n_rows is 4 or 8.
     */
    void (*by_rows_pool)(const struct tile *tile, const struct tile_pool *pool, int n_rows,
                         int n_vecs);
    /* to[j][i] = from[i][j]; with `pad`, rows of `to` are filled with zeros up to whole
     * vectors. */
    void (*transpose)(const float *from, ptrdiff_t from_step, int n_rows, int n_columns,
                      float *to, ptrdiff_t to_step, bool pad);
    /* to[i][0..n) = from[i][0..n), zeros up to `width`, which is whole vectors. */
    void (*pack)(const float *from, ptrdiff_t from_step, int n_rows, int n, float *to,
                 int width);
    /* The first n columns of `depth` rows, panel after panel, each row after row, zeros up to whole
     * vectors. Where sums is not NULL, it gets what column_sums makes of them. */
    void (*pack_panels)(const float *from, ptrdiff_t from_step, int depth, int n,
                        const struct tile_panels *panels, float *to, bool add, float *sums);
    /* The n columns of `depth` rows, cut into n_slivers that differ by at most one in width,
     * sliver after sliver, each row after row, to_step apart: lanes, or half as many. */
    void (*pack_slivers)(const float *from, ptrdiff_t from_step, int depth, int n,
                         int n_slivers, float *to, int to_step);
    /* sums[j] = (add ? sums[j] : 0) + from[0][j] + from[1][j] + ... in this order */
    void (*column_sums)(const float *from, ptrdiff_t from_step, int64_t n_rows, int n, bool add,
                        float *sums);
    /* sums[j] = sum of from[i][j] for all i whose index[i][j] is not 255, in this order */
    void (*window_sums)(const float *from, const uint8_t *index, int64_t n_rows, int n,
                        float *sums);
    /* Undoes one row of a 2x2 max pool: pixel 2x + i of `to` gets dy of window x where its
     * index is 2 * row + i, and 0 elsewhere; n channels a pixel. */
    void (*expand)(const float *dy, const uint8_t *index, int row, int64_t n_windows, int n,
                   float *to);
};

extern const struct tile_isa tile_avx2;
extern const struct tile_isa tile_avx512;

/* The table for kernel_isa(); NULL for "generic". */
const struct tile_isa *tile_current(void);

#endif /* KERNEL_CPU_GEMM_TILE_H */
