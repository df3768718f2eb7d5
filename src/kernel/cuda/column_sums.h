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

/* Sums of columns in the order of row_parts (column.cuh): of a part in f32, of parts in double. kept: x[i][j] is multiplied by the slope of gelu_tanh at kept[i][j] first, where
 * it lies; NULL: it is not. */
void sum_rows(struct device_stream *stream, void *x, const void *kept, enum dtype dtype,
              int64_t rows, int64_t columns, float *out, void *scratch);
size_t sum_rows_scratch(int64_t rows, int64_t columns);
/* Who makes x may sum up its parts: so many rows each, 16, 32 or 64, the last ones what is left; partial is (part, column). */
int64_t sum_rows_part(int64_t rows);
void sum_rows_finish(struct device_stream *stream, const float *partial, int64_t rows,
                     int64_t columns, float *out);

#ifdef __cplusplus
}
#endif

#endif /* KERNEL_CUDA_COLUMN_SUMS_H */
