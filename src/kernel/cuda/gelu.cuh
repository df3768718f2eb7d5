/* SPDX-License-Identifier: MIT */
/* gelu.cuh - private to the plug-in: gelu_tanh and its slope, of numbers that come from elements of type T. */
#ifndef KERNEL_CUDA_GELU_CUH
#define KERNEL_CUDA_GELU_CUH

#include "kernel/cuda/device.cuh"

/* 1 / (1 + exp(-2u)) of gelu_tanh. */
template <class T> __device__ __forceinline__ float gelu_share(float x)
{
    return quotient<T>(1, 1 + exp_of<T>(-1.59576912F * (x + 0.044715F * x * x * x)));
}

template <class T> __device__ __forceinline__ float gelu_tanh_slope(float x)
{
    const float share = gelu_share<T>(x);
    return share + x * share * (1 - share) * 1.59576912F * (1 + 3 * 0.044715F * x * x);
}

#endif /* KERNEL_CUDA_GELU_CUH */
