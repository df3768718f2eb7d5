/* SPDX-License-Identifier: MIT */
/* sum_rows.h - sums of rows of a table, by number; for sources compiled once for each instruction set.
 *
 * A sum stays in registers, up to SUM_BLOCKS blocks of columns at a time. Rows stand anywhere in
 * the table, so those that come next are asked for while one is added. Every sum begins with 0 and
 * goes on in the list's order, whatever the instruction set.
 */
#ifndef KERNEL_CPU_SUM_ROWS_H
#define KERNEL_CPU_SUM_ROWS_H

#include "kernel/cpu/simd_block.h"
#include "kernel/update.h"

#define INLINE static inline __attribute__((always_inline))

/* Blocks of a sum that registers hold, and how many rows ahead are asked for. */
#ifdef __AVX512F__
enum { SUM_BLOCKS = 8 };
#else
enum { SUM_BLOCKS = 4 };
#endif
enum { SUM_AHEAD = 12, LINE = 16 /* floats */ };

INLINE void fetch_row(const float *row, size_t columns)
{
    for (size_t j = 0; j < columns; j += LINE)
        __builtin_prefetch(row + j, 0, 3);
    __builtin_prefetch(row + columns - 1, 0, 3);
}

/* Adds columns [column, column + width) of the rows of a list, the last of them in the last block. */
INLINE void add_list(const struct kernel_row_list *rows, size_t step, size_t d, size_t column,
                     size_t width, const size_t blocks, struct simd_floats sum[SUM_BLOCKS])
{
    const size_t last = width - (blocks - 1) * SIMD_LANES;

    for (size_t i = 0; i < rows->count; i++) {
        const int32_t row = rows->number[i * step];
        const float *x = rows->table + (size_t)row * d + column;

        if (i + SUM_AHEAD < rows->listed && rows->number[(i + SUM_AHEAD) * step] >= 0)
            fetch_row(rows->table + (size_t)rows->number[(i + SUM_AHEAD) * step] * d + column,
                      width);
        if (row < 0)
            continue;
        for (size_t b = 0; b < blocks - 1; b++)
            sum[b] = simd_add(sum[b], simd_load(x + b * SIMD_LANES, SIMD_LANES, 0));
        sum[blocks - 1] =
            simd_add(sum[blocks - 1], simd_load(x + (blocks - 1) * SIMD_LANES, last, 0));
    }
}

/* These columns of the sum of one list, or of the sums of two, divided. */
INLINE void sum_blocks(const struct kernel_row_list *rows, int n_lists, size_t step, size_t d,
                       size_t column, size_t width, const size_t blocks, float divisor,
                       float *out)
{
    const size_t last = width - (blocks - 1) * SIMD_LANES;
    struct simd_floats sum[SUM_BLOCKS], other[SUM_BLOCKS];

    for (size_t b = 0; b < blocks; b++)
        sum[b] = simd_set(0);
    add_list(&rows[0], step, d, column, width, blocks, sum);
    if (n_lists == 2) {
        for (size_t b = 0; b < blocks; b++)
            other[b] = simd_set(0);
        add_list(&rows[1], step, d, column, width, blocks, other);
        for (size_t b = 0; b < blocks; b++)
            sum[b] = simd_add(sum[b], other[b]);
    }
    for (size_t b = 0; b < blocks; b++)
        simd_store(divisor == 1 ? sum[b] : simd_divide(sum[b], divisor),
                   b < blocks - 1 ? SIMD_LANES : last, out + column + b * SIMD_LANES);
}

/* out[0..d) = the sum of rows of one list, or of the sums of two, divided by a number. */
INLINE void sum_rows(const struct kernel_row_list *rows, int n_lists, size_t step, size_t d,
                     float divisor, float *out)
{
    for (size_t column = 0; column < d; column += SUM_BLOCKS * SIMD_LANES) {
        const size_t width = simd_min(d - column, SUM_BLOCKS * SIMD_LANES);

        switch ((width + SIMD_LANES - 1) / SIMD_LANES) {
        case 1:
            sum_blocks(rows, n_lists, step, d, column, width, 1, divisor, out);
            break;
        case 2:
            sum_blocks(rows, n_lists, step, d, column, width, 2, divisor, out);
            break;
        case 3:
            sum_blocks(rows, n_lists, step, d, column, width, 3, divisor, out);
            break;
        case 4:
            sum_blocks(rows, n_lists, step, d, column, width, 4, divisor, out);
            break;
#ifdef __AVX512F__
        case 5:
            sum_blocks(rows, n_lists, step, d, column, width, 5, divisor, out);
            break;
        case 6:
            sum_blocks(rows, n_lists, step, d, column, width, 6, divisor, out);
            break;
        case 7:
            sum_blocks(rows, n_lists, step, d, column, width, 7, divisor, out);
            break;
        default:
            sum_blocks(rows, n_lists, step, d, column, width, 8, divisor, out);
#endif
        }
    }
}

#endif /* KERNEL_CPU_SUM_ROWS_H */
