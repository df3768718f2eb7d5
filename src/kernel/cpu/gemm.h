/* SPDX-License-Identifier: MIT */
/* gemm.h - C = A B for row-major matrices, with bias and relu.
 *
 * A is (m,k), B is (k,n), C is (m,n). A may lie transposed (gradients of
 * weights), B may lie transposed (gradients of inputs); C's rows are contiguous.
 * Each element of C is a sum of chains of multiply-adds, cut every GEMM_DEPTH steps or
 * a little less, as gemm_cut says: its bits depend on k alone.
 *
 * Threads: blocks of C are shared among the pool; each is computed by one thread.
 */
#ifndef KERNEL_CPU_GEMM_H
#define KERNEL_CPU_GEMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/pool.h"
#include "kernel/cpu/gemm_tile.h"

enum { GEMM_DEPTH = 256, GEMM_TASKS = 16 };

struct gemm {
    int64_t m, n, k;
    const float *a;
    int64_t a_row, a_column; /* steps between rows and columns; one of them is 1 */
    const float *b;
    int64_t b_row, b_column; /* likewise */
    float *c;
    int64_t c_row;
    const float *bias; /* (n) or NULL */
    bool relu;
};

/* Bytes of scratch for gemm_run; pointers are not looked at. */
size_t gemm_scratch_bytes(const struct tile_isa *isa, const struct gemm *gemm);
void gemm_run(const struct tile_isa *isa, const struct gemm *gemm, struct pool *pool,
              void *scratch);

/* Part i of `total` cut into `parts` that differ by at most one: *first, and its size. */
static inline int64_t gemm_part(int64_t total, int64_t parts, int64_t i, int64_t *first)
{
    const int64_t size = total / parts, more = total % parts;

    *first = i * size + (i < more ? i : more);
    return size + (i < more ? 1 : 0);
}

static inline int64_t gemm_ceil(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* Into how many panels, each at most isa->vecs vectors wide, n columns are best cut when the
 * tiles of a panel cover m rows; limit[v] is the largest number of rows for v vectors. */
int gemm_panels(const struct tile_isa *isa, const int *limit, int64_t m, int64_t n);

#endif /* KERNEL_CPU_GEMM_H */
