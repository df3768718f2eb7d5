/* SPDX-License-Identifier: MIT */
/* factor.c - by own tiles where the processor has them, else by plain loops. */
#include "kernel/factor.h"

#include <string.h>

#ifdef HAVE_FAST
#include "kernel/cpu/gemm.h"

static struct gemm block_gemm(const struct kernel_factors *f, const struct kernel_block *block)
{
    return (struct gemm){ .m = block->rows,
                          .n = block->columns,
                          .k = f->m,
                          .a_row = 1,
                          .a_column = f->k,
                          .b_row = f->n,
                          .b_column = 1,
                          .c_row = block->stride };
}

static struct gemm columns_gemm(const struct kernel_columns *c)
{
    return (struct gemm){ .m = c->m,
                          .n = c->columns,
                          .k = c->k,
                          .a = c->x,
                          .a_row = c->k,
                          .a_column = 1,
                          .b = c->w,
                          .b_row = c->w_stride,
                          .b_column = 1,
                          .c = c->y,
                          .c_row = c->y_stride,
                          .bias = c->bias,
                          .relu = c->relu };
}
#endif

size_t kernel_factor_scratch(const struct kernel_factors *factors,
                             const struct kernel_block *block)
{
#ifdef HAVE_FAST
    if (tile_current()) {
        const struct gemm gemm = block_gemm(factors, block);
        return gemm_scratch_bytes(tile_current(), &gemm);
    }
#endif
    (void)factors, (void)block;
    return 0;
}

void kernel_factor_block(const struct kernel_factors *factors, const struct kernel_block *block,
                         float *out, void *scratch)
{
    const float *x = factors->x + block->row;
    const float *dy = factors->dy + block->column;

    if (factors->m == 0) {
        for (int64_t i = 0; i < block->rows; i++)
            memset(out + i * block->stride, 0, (size_t)block->columns * sizeof *out);
        return;
    }
#ifdef HAVE_FAST
    if (tile_current()) {
        struct gemm gemm = block_gemm(factors, block);
        gemm.a = x;
        gemm.b = dy;
        gemm.c = out;
        gemm_run(tile_current(), &gemm, NULL, scratch);
        return;
    }
#endif
    (void)scratch;
    for (int64_t i = 0; i < block->rows; i++) {
        for (int64_t j = 0; j < block->columns; j++) {
            float sum = 0;
            for (int64_t s = 0; s < factors->m; s++)
                sum += x[s * factors->k + i] * dy[s * factors->n + j];
            out[i * block->stride + j] = sum;
        }
    }
}

void kernel_factor_bias(const float *dy, int64_t m, int64_t n, float *out)
{
#ifdef HAVE_FAST
    if (tile_current()) {
        tile_current()->column_sums(dy, n, m, (int)n, false, out);
        return;
    }
#endif
    for (int64_t j = 0; j < n; j++) {
        out[j] = 0;
        for (int64_t s = 0; s < m; s++)
            out[j] += dy[s * n + j];
    }
}

size_t kernel_columns_scratch(const struct kernel_columns *columns)
{
#ifdef HAVE_FAST
    if (tile_current()) {
        const struct gemm gemm = columns_gemm(columns);
        return gemm_scratch_bytes(tile_current(), &gemm);
    }
#endif
    (void)columns;
    return 0;
}

void kernel_columns_run(const struct kernel_columns *columns, struct pool *pool, void *scratch)
{
    const struct kernel_columns *c = columns;

#ifdef HAVE_FAST
    if (tile_current()) {
        const struct gemm gemm = columns_gemm(c);
        gemm_run(tile_current(), &gemm, pool, scratch);
        return;
    }
#endif
    (void)pool, (void)scratch;
    for (int64_t i = 0; i < c->m; i++) {
        for (int64_t j = 0; j < c->columns; j++) {
            float sum = 0;
            for (int64_t s = 0; s < c->k; s++)
                sum += c->x[i * c->k + s] * c->w[s * c->w_stride + j];
            sum += c->bias ? c->bias[j] : 0;
            c->y[i * c->y_stride + j] = c->relu && sum < 0 ? 0 : sum;
        }
    }
}
