/* SPDX-License-Identifier: MIT */
/* packed.h - C = A B for a B that is used many times: packed once into panels, then multiplied by the
 * rows of each step of a recurrent layer.
 *
 * B is (depth, columns). Its panels are as wide as a tile and contiguous. Each element of C is a sum of
 * chains of multiply-adds, cut every PACKED_DEPTH steps or a little less: its bits depend on neither
 * the rows that are multiplied together nor the width of panels.
 *
 * Threads: packed_fill shares the panels among a pool; packed_multiply runs in the calling thread, and
 * several threads may multiply different rows at once.
 */
#ifndef KERNEL_CPU_PACKED_H
#define KERNEL_CPU_PACKED_H

#include <stdbool.h>

#include "kernel/cpu/gemm.h"

enum { PACKED_DEPTH = 512 };

enum packed_order {
    PACKED_STRAIGHT, /* B lies as (depth, columns) */
    PACKED_TURNED,   /* B lies as (columns, depth) */
    /* B lies as (depth, columns), which are those of several gates of as many units each. C's come in
     * another order: the gates' vectors of the same units side by side. There are
     * packed_columns() of them, as every vector is whole. */
    PACKED_GATES,
};

struct packed {
    const struct tile_isa *isa;
    enum packed_order order;
    int64_t depth, columns;
    int64_t n_gates; /* PACKED_GATES */
    int64_t n_panels;
    bool by_amx;   /* to be set by the caller before anything else: other bits, see amx.h */
    float *panels; /* the caller's, packed_floats() of them, aligned to 64 bytes */
};

/* `rows` is about how many are multiplied at once: it decides the panels' width, and no bits. */
struct packed packed_of(const struct tile_isa *isa, enum packed_order order, int64_t depth,
                        int64_t columns, int64_t n_gates, int64_t rows);
int64_t packed_floats(const struct packed *packed);
/* Columns of C. */
int64_t packed_columns(const struct packed *packed);
/* Rows of B as it lies are contiguous. */
void packed_fill(const struct packed *packed, const float *b, struct pool *pool);
/* Rows of A and C are a_row and c_row apart. With `accumulate`, what C holds is added. */
void packed_multiply(const struct packed *packed, const float *a, int64_t a_row, int64_t rows,
                     float *c, int64_t c_row, bool accumulate);

/* The same by AMX: what these call if by_amx is set. */
int64_t packed_amx_floats(const struct packed *packed);
void packed_amx_fill(const struct packed *packed, const float *b, struct pool *pool);
void packed_amx_multiply(const struct packed *packed, const float *a, int64_t a_row,
                         int64_t rows, float *c, int64_t c_row, bool accumulate);

#endif /* KERNEL_CPU_PACKED_H */
