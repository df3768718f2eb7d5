/* SPDX-License-Identifier: MIT */
/* conv1d.h - private to the plug-in: what a convolution of sequences leaves to the maximum over time. */
#ifndef KERNEL_CUDA_CONV1D_H
#define KERNEL_CUDA_CONV1D_H

#include "kernel/cuda/cuda.h"

/* Of conv1d_max's x and w: the convolution (N, places, O) in f32, before the bias. */
void conv1d_sums(const struct kernel_call *call, float *sums);

#endif /* KERNEL_CUDA_CONV1D_H */
