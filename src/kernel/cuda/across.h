/* SPDX-License-Identifier: MIT */
/* across.h - private to the plug-in: a matrix turned across, from one type of elements to another; channels added
 * and taken away. */
#ifndef KERNEL_CUDA_ACROSS_H
#define KERNEL_CUDA_ACROSS_H

#include "kernel/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

/* to (columns, rows) = from (rows, columns) turned across; f32 or bf16. */
void turn_across(struct device_stream *stream, void *to, enum dtype to_dtype, const void *from,
                 enum dtype from_dtype, int64_t rows, int64_t columns);

/* Rows of bf16 of from_c channels become rows of to_c: zeros are added, or the last ones left out. */
void pad_channels(struct device_stream *stream, void *to, int64_t to_c, const void *from,
                  int64_t from_c, int64_t rows);

/* A filter of `taps` places, real_c channels in and real_o out, and what cuDNN has in its place: more of both,
 * which are zero. */
struct padded_filter {
    int64_t taps, c, o, real_c, real_o;
};
/* to (o, taps, c) of bf16 = from (taps, real_c, real_o) of bf16. */
void pad_filter(struct device_stream *stream, const struct padded_filter *filter, void *to,
                const void *from);
/* to (taps, real_c, real_o) of f32 = from (o, taps, c) of f32 or bf16. */
void unpad_filter(struct device_stream *stream, const struct padded_filter *filter, float *to,
                  const void *from, enum dtype from_dtype);

#ifdef __cplusplus
}
#endif

#endif /* KERNEL_CUDA_ACROSS_H */
