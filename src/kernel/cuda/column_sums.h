/* SPDX-License-Identifier: MIT */
/* column_sums.h - private to the plug-in: sums over the rows of a matrix. */
#ifndef KERNEL_CUDA_COLUMN_SUMS_H
#define KERNEL_CUDA_COLUMN_SUMS_H

#include "kernel/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

/* out[j] = sum over i of x[i][j], in double, in an order that the extents fix. */
void column_sums(struct device_stream *stream, const void *x, enum dtype dtype, int64_t rows,
                 int64_t columns, float *out, void *scratch);
size_t column_sums_scratch(int64_t rows, int64_t columns);

/* The same in the order of row_parts (column.cuh). */
void sum_rows(struct device_stream *stream, const void *x, enum dtype dtype, int64_t rows,
              int64_t columns, float *out, void *scratch);

/* Piece by piece of the rows, as they are made. kept: x[i][j] is multiplied by the slope of gelu_tanh at kept[i][j] first, where it
 * lies; NULL: it is not. After the last piece sums are in out. */
struct row_sums {
    void *x;
    const void *kept;
    enum dtype dtype;
    int64_t rows, columns;
    float *out;
    void *scratch;
};
void sum_piece(struct device_stream *stream, const struct row_sums *sums, int piece,
               int pieces);
/* How many pieces stay in the cache each: all have as many rows, which come in eights. */
int sum_pieces(int64_t rows, int64_t columns, enum dtype dtype);
size_t sum_rows_scratch(int64_t rows, int64_t columns);

#ifdef __cplusplus
}
#endif

#endif /* KERNEL_CUDA_COLUMN_SUMS_H */
