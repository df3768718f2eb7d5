/* SPDX-License-Identifier: MIT */
/* gemm.h - C = A B, or C += A B, for row-major matrices, with bias and relu.
 *
 * A is (m,k), B is (k,n), C is (m,n). A may lie transposed (gradients of
 * weights), B may lie transposed (gradients of inputs); C's rows are contiguous.
 * Each element of C is a sum of chains of multiply-adds, cut into equal parts of at most GEMM_DEPTH
 * steps: its bits depend on k alone, not on how anything is packed or shared.
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

enum { GEMM_DEPTH = 400, GEMM_TASKS = 16 };

struct gemm {
    int64_t m, n, k;
    const float *a;
    int64_t a_row, a_column; /* steps between rows and columns; one of them is 1 */
    const float *b; /* what gemm_pack_b made, if b_packed; its steps are not looked at */
    int64_t b_row, b_column; /* likewise */
    bool b_packed;
    float *c;
    int64_t c_row;
    bool accumulate;   /* C is added to the product; else only written */
    const float *bias; /* (n) or NULL */
    bool relu;
    float *b_sums; /* (n) or NULL: the sums of the columns of a B with b_column 1, not packed */
};

/* Bytes of scratch for gemm_run; pointers are not looked at. */
size_t gemm_scratch_bytes(const struct tile_isa *isa, const struct gemm *gemm);
void gemm_run(const struct tile_isa *isa, const struct gemm *gemm, struct pool *pool,
              void *scratch);

/* B that many products share (a recurrence's weights) is packed once for A's whose rows are
 * contiguous (a_column 1) and whatever m. `to` has gemm_packed_bytes(isa, n, k), aligned to 64;
 * of `gemm` n, k, b, b_row and b_column count. */
size_t gemm_packed_bytes(const struct tile_isa *isa, int64_t n, int64_t k);
void gemm_pack_b(const struct tile_isa *isa, const struct gemm *gemm, struct pool *pool,
                 float *to);

/* sums[j] = from[0][j] + from[1][j] + ... of n_rows rows, in this order. */
void gemm_column_sums(const struct tile_isa *isa, const float *from, int64_t from_step,
                      int64_t n_rows, int64_t n, struct pool *pool, float *sums);

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
