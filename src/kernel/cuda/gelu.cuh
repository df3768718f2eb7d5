/* SPDX-License-Identifier: MIT */
/* gelu.cuh - private to the plug-in: gelu_tanh and its slope, of numbers that come from elements of type T.
 *
 * Of 16 bits as few instructions as there are: with those that exactness takes a slope costs more than the memory it is read
 * from. */
#ifndef KERNEL_CUDA_GELU_CUH
#define KERNEL_CUDA_GELU_CUH

#include "kernel/cuda/device.cuh"

/* 1 / (1 + exp(-2u)) of gelu_tanh. */
template <class T> __device__ __forceinline__ float gelu_share(float x)
{
    if (sizeof(T) < sizeof(float)) /* the factors times log2 e */
        return quick_inverse(1 + quick_power(x * fmaf(-0.10294324F, x * x, -2.30220819F)));
    return quotient<T>(1, 1 + exp_of<T>(-1.59576912F * (x + 0.044715F * x * x * x)));
}

template <class T> __device__ __forceinline__ float gelu_tanh_slope(float x)
{
    const float share = gelu_share<T>(x);

    if (sizeof(T) < sizeof(float))
        return share * fmaf(1 - share, x * fmaf(0.21406445F, x * x, 1.59576912F), 1);
    return share + x * share * (1 - share) * 1.59576912F * (1 + 3 * 0.044715F * x * x);
}

#endif /* KERNEL_CUDA_GELU_CUH */
