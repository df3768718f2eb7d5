/* SPDX-License-Identifier: MIT */
/* boxes.h - private to the plug-in: maps of tensors for the copy engine (TMA), which hopper.cuh's box_load and box_store take. */
#ifndef KERNEL_CUDA_BOXES_H
#define KERNEL_CUDA_BOXES_H

#include <cuda.h>

#include "kernel/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    BOX_COLUMNS = 64, /* of bf16: 128 bytes, the widest that is swizzled */
    BOX_RANK = 5
};

/* A matrix of bf16 whose rows lie one behind the other, in boxes of so many rows by BOX_COLUMNS, swizzled by 128 bytes. A
 * map that cannot be made is noted with the stream: false, and nothing should be launched with it. */
bool box_map(struct device_stream *stream, CUtensorMap *out, const void *matrix, int64_t rows,
             int64_t columns, int box_rows);

/* The same of a tensor of so many extents, innermost first, which lie one behind the other; so are the box's, the first BOX_COLUMNS. */
bool box_map_of(struct device_stream *stream, CUtensorMap *out, const void *tensor, int rank,
                const int64_t *extents, const int *box);

#ifdef __cplusplus
}
#endif

#endif /* KERNEL_CUDA_BOXES_H */
