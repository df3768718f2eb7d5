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

/* to = dz + (dmean - drstd rstd^3 (z - mean)) / n: dz with what flows into z through its statistics, of n places a channel; all are
 * images like `image`. */
void batch_norm_flow_back(struct device_stream *stream, const struct kernel_tensor *image,
                          const void *dz, const void *z, const float *saved,
                          const float *dsaved, void *to);

#ifdef __cplusplus
}
#endif

#endif /* KERNEL_CUDA_BATCH_NORM_H */
