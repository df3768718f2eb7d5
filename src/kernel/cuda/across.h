/* SPDX-License-Identifier: MIT */
/* across.h - private to the plug-in: a matrix turned across, from one type of elements to another. */
#ifndef KERNEL_CUDA_ACROSS_H
#define KERNEL_CUDA_ACROSS_H

#include "kernel/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

/* to (columns, rows) = from (rows, columns) turned across; f32 or bf16. */
void turn_across(struct device_stream *stream, void *to, enum dtype to_dtype, const void *from,
                 enum dtype from_dtype, int64_t rows, int64_t columns);

#ifdef __cplusplus
}
#endif

#endif /* KERNEL_CUDA_ACROSS_H */
