/* SPDX-License-Identifier: MIT */
/* mma.cuh - private to the plug-in: products of bf16 by tensor cores, a step m16n8k16 of a warp. store_four and its like are
 * Hopper's.
 *
 * A thread's part of 16 x 8 sums c: rows g and g + 8, columns 2t and 2t + 1, where g = lane / 4 and t = lane % 4:
 * c[0], c[1] of row g, c[2], c[3] of row g + 8.
 */
#ifndef KERNEL_CUDA_MMA_CUH
#define KERNEL_CUDA_MMA_CUH

#include "kernel/cuda/device.cuh"

__device__ __forceinline__ uint32_t address_of(const bf16 *shared)
{
    return (uint32_t)__cvta_generic_to_shared(shared);
}

/* Four 8 x 8 matrices; lane l names the row l % 8 of matrix l / 8. */
__device__ __forceinline__ void load_four(uint32_t out[4], const bf16 *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"(address_of(row)));
}

__device__ __forceinline__ void load_four_across(uint32_t out[4], const bf16 *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"(address_of(row)));
}

/* The opposites: four 8 x 8 matrices to rows that lanes name as above. */
__device__ __forceinline__ void store_four(bf16 *row, const uint32_t x[4])
{
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                     address_of(row)),
                 "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3])
                 : "memory");
}

__device__ __forceinline__ void store_four_across(bf16 *row, const uint32_t x[4])
{
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                     address_of(row)),
                 "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3])
                 : "memory");
}

/* c += a b: 16 x 16 times 16 x 8. */
__device__ __forceinline__ void multiply(float c[4], const uint32_t a[4], uint32_t b0,
                                         uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
                 "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ __forceinline__ uint32_t pair_of(float low, float high)
{
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return *(const uint32_t *)&pair;
}

#endif /* KERNEL_CUDA_MMA_CUH */
