/* SPDX-License-Identifier: MIT */
/* boxes.h - private to the plug-in: maps of tensors for the copy engine (TMA), which hopper.cuh's box_load and box_store
 * take. */
#ifndef KERNEL_CUDA_BOXES_H
#define KERNEL_CUDA_BOXES_H

#include <cuda.h>

#include "kernel/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { BOX_RANK = 4, BOX_COLUMNS = 64 }; /* of bf16: 128 bytes, the widest that is swizzled */

/* A tensor of bf16 whose numbers lie one behind the other, in boxes; extents and box: innermost first. Rows of a box are
 * swizzled by 128 bytes, so it has BOX_COLUMNS of them. A map that cannot be made is noted with the stream. */
void box_map(struct device_stream *stream, CUtensorMap *out, const void *data, int rank,
             const int64_t *extents, const int *box);

#ifdef __cplusplus
}
#endif

#endif /* KERNEL_CUDA_BOXES_H */
