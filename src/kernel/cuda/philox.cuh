/* SPDX-License-Identifier: MIT */
/* philox.cuh - private to the plug-in: the random words of base/rng.h, by counter. */
#ifndef KERNEL_CUDA_PHILOX_CUH
#define KERNEL_CUDA_PHILOX_CUH

#include "kernel/cuda/device.cuh"

__device__ __forceinline__ uint4 philox(uint64_t key, uint4 x)
{
    uint32_t key0 = (uint32_t)key, key1 = (uint32_t)(key >> 32);

    for (int round = 0; round < 10; round++) {
        const uint64_t a = (uint64_t)0xd2511f53U * x.x, b = (uint64_t)0xcd9e8d57U * x.z;
        x = make_uint4((uint32_t)(b >> 32) ^ x.y ^ key0, (uint32_t)b,
                       (uint32_t)(a >> 32) ^ x.w ^ key1, (uint32_t)a);
        key0 += 0x9e3779b9U;
        key1 += 0xbb67ae85U;
    }
    return x;
}

#endif /* KERNEL_CUDA_PHILOX_CUH */
