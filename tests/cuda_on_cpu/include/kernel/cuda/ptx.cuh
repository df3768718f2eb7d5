/* SPDX-License-Identifier: MIT */
/* ptx.cuh - what src/kernel/cuda/ptx.cuh promises, without PTX. */
#ifndef KERNEL_CUDA_PTX_CUH
#define KERNEL_CUDA_PTX_CUH

#include <cuda_pipeline.h>

static inline float quick_power(float x)
{
    return exp2f(x);
}
static inline float quick_inverse(float x)
{
    return 1 / x;
}
static inline float between(float low, float x, float high)
{
    return x < low ? low : x > high ? high : x;
}
static inline void copy_later(void *shared, const void *from)
{
    __pipeline_memcpy_async(shared, from, 16);
}
static inline void copies_end()
{
    __pipeline_commit();
}
template <int LEFT> static inline void await_copies()
{
    __pipeline_wait_prior(LEFT);
}

#endif /* KERNEL_CUDA_PTX_CUH */
