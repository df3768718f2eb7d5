/* SPDX-License-Identifier: MIT */
/* ptx.cuh - private to the plug-in: instructions that CUDA C has no word for, as functions. Those of tensor cores are in mma.cuh, those of
 * Hopper in hopper.cuh; no other source has any, so that these three are all that a machine without a GPU has to do otherwise
 * (tests/cuda_on_cpu). */
#ifndef KERNEL_CUDA_PTX_CUH
#define KERNEL_CUDA_PTX_CUH

#include <cuda_runtime.h>
#include <stdint.h>

/* 2^x and 1 / x to some 22 bits, one instruction each. */
__device__ __forceinline__ float quick_power(float x)
{
    float y;

    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
__device__ __forceinline__ float quick_inverse(float x)
{
    float y;

    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* x, but not below low and not above high; NaN stays NaN. Without branches. */
__device__ __forceinline__ float between(float low, float x, float high)
{
    float above, out;

    asm("max.NaN.f32 %0, %1, %2;" : "=f"(above) : "f"(x), "f"(low));
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(out) : "f"(above), "f"(high));
    return out;
}

/* 16 bytes of memory come to shared memory by themselves. */
__device__ __forceinline__ void copy_later(void *shared, const void *from)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(
                     (uint32_t)__cvta_generic_to_shared(shared)),
                 "l"(from)
                 : "memory");
}

/* The copies that this thread has asked for since the last time are one group. */
__device__ __forceinline__ void copies_end()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

/* Until all but the last LEFT groups of copies of this thread are there. */
template <int LEFT> __device__ __forceinline__ void await_copies()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
}

#endif /* KERNEL_CUDA_PTX_CUH */
