/* SPDX-License-Identifier: MIT */
/* batch_norm.h - private to the plug-in: statistics of images. */
#ifndef KERNEL_CUDA_BATCH_NORM_H
#define KERNEL_CUDA_BATCH_NORM_H

#include "kernel/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What a batch norm keeps of x, images like `image`, goes to the call's outputs from `first` on: saved, and what the step saw. Of
 * the call's scratch batch_norm_moments_scratch bytes are used. */
void batch_norm_moments(const struct kernel_call *call, const struct kernel_tensor *image,
                        const void *x, int first);
size_t batch_norm_moments_scratch(const struct kernel_tensor *image);

/* The same from sums that lie (tile, 2, channel). So they are made wherever it is, of bf16 images that a convolution sums as it makes them
 * (conv_hopper.cu), that a norm which is apart from it sees the same bits: a tile is TILE_WIDTH columns of an image, tile after tile; in it
 * four sums, each of two columns side by side, row by row, of the elements and of their squares, in f32; those of columns 0 to 3 and 4 to 7 are
 * added first. */
enum { TILE_WIDTH = 8, TILE_CHANNELS = 64 };
void batch_norm_finish_tiles(const struct kernel_call *call, const struct kernel_tensor *image,
                             const float *partial, int first);

/* to = dz + (dmean - drstd rstd^3 (z - mean)) / n: dz with what flows into z through its statistics, of n places a channel; all are
 * images like `image`. */
void batch_norm_flow_back(struct device_stream *stream, const struct kernel_tensor *image,
                          const void *dz, const void *z, const float *saved,
                          const float *dsaved, void *to);

#ifdef __cplusplus
}
#endif

#endif /* KERNEL_CUDA_BATCH_NORM_H */
