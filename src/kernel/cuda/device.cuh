/* SPDX-License-Identifier: MIT */
/* device.cuh - private to the plug-in: what its kernels share.
 *
 * Elements are of a type T, float, bf16 or f16, and become float when they are loaded. Sums of threads go along
 * butterflies, whose order is that of the lanes. The sources are compiled without contraction; a fused
 * multiply-add is written fmaf.
 */
#ifndef KERNEL_CUDA_DEVICE_CUH
#define KERNEL_CUDA_DEVICE_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "kernel/cuda/cuda.h"
#include "kernel/cuda/ptx.cuh"

typedef __nv_bfloat16 bf16;
typedef __half f16;

enum { THREADS = 256, WARP = 32, AT_ONCE = 4 };
enum { GRID_MAX = 65535 }; /* blocks of a grid along y and z */

/* Blocks of `per` that cover `count`. */
static inline unsigned blocks_of(int64_t count, int64_t per)
{
    return (unsigned)((count + per - 1) / per);
}

__device__ __forceinline__ int64_t thread_number()
{
    return (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
}

/* Of numbers that 32 bits can hold, as nearly all are, division takes a fraction of the time. */
__device__ __forceinline__ int64_t divided(int64_t i, int64_t by)
{
    return (i | by) >> 32 == 0 ? (int64_t)((uint32_t)i / (uint32_t)by) : i / by;
}
__device__ __forceinline__ int64_t left_over(int64_t i, int64_t by)
{
    return (i | by) >> 32 == 0 ? (int64_t)((uint32_t)i % (uint32_t)by) : i % by;
}

/* Elements ----------------------------------------------------------------------------- */

__device__ __forceinline__ float number(float x)
{
    return x;
}
__device__ __forceinline__ float number(bf16 x)
{
    return __bfloat162float(x);
}
__device__ __forceinline__ float number(f16 x)
{
    return __half2float(x);
}
__device__ __forceinline__ void put(float *to, float x)
{
    *to = x;
}
__device__ __forceinline__ void put(bf16 *to, float x)
{
    *to = __float2bfloat16_rn(x);
}
__device__ __forceinline__ void put(f16 *to, float x)
{
    *to = __float2half_rn(x);
}
/* What is left of x in an element. */
template <class T> __device__ __forceinline__ float rounded(float x)
{
    T element;

    put(&element, x);
    return number(element);
}

/* Four elements that are read or written at once. */
template <class T> struct alignas(AT_ONCE * sizeof(T)) four {
    T x[AT_ONCE];
};

template <class T> static inline bool is_aligned(const T *p)
{
    return (uintptr_t)p % sizeof(four<T>) == 0;
}

/* As many elements as the widest load has. */
template <class T> struct alignas(16) pack {
    enum { N = 16 / sizeof(T) };
    T x[N];
};

template <class T> static inline bool is_packed(const T *p)
{
    return (uintptr_t)p % sizeof(pack<T>) == 0;
}

/* A pack of these numbers, two at a time where there is a way. */
template <class T>
__device__ __forceinline__ void put_all(pack<T> *to, const float x[pack<T>::N])
{
#pragma unroll
    for (int k = 0; k < pack<T>::N; k++)
        put(&to->x[k], x[k]);
}
template <>
__device__ __forceinline__ void put_all(pack<bf16> *to, const float x[pack<bf16>::N])
{
#pragma unroll
    for (int k = 0; k < pack<bf16>::N; k += 2)
        *(__nv_bfloat162 *)&to->x[k] = __floats2bfloat162_rn(x[k], x[k + 1]);
}

/* Of numbers that come from 16 bits, or go into them, the quick ways are exact enough. */
template <class T> __device__ __forceinline__ float exp_of(float x)
{
    return sizeof(T) == sizeof(float) ? expf(x) : __expf(x);
}
template <class T> __device__ __forceinline__ float quotient(float a, float b)
{
    return sizeof(T) == sizeof(float) ? a / b : __fdividef(a, b);
}

/* Sums over threads -------------------------------------------------------------------- */

template <class N> __device__ __forceinline__ N warp_sum(N x)
{
    for (int apart = WARP / 2; apart > 0; apart /= 2)
        x += __shfl_xor_sync(0xffffffffU, x, apart);
    return x;
}

__device__ __forceinline__ float warp_max(float x)
{
    for (int apart = WARP / 2; apart > 0; apart /= 2)
        x = fmaxf(x, __shfl_xor_sync(0xffffffffU, x, apart));
    return x;
}

/* Of all threads of a block, which is made of whole warps; the same in every thread. Those that call it
 * twice in a row are kept apart. */
template <class N> __device__ N block_sum(N x)
{
    __shared__ N parts[WARP];
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;

    x = warp_sum(x);
    __syncthreads();
    if (lane == 0)
        parts[warp] = x;
    __syncthreads();
    return warp_sum(lane < (int)(blockDim.x / WARP) ? parts[lane] : N(0));
}

__device__ static float block_max(float x)
{
    __shared__ float parts[WARP];
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;

    x = warp_max(x);
    __syncthreads();
    if (lane == 0)
        parts[warp] = x;
    __syncthreads();
    return warp_max(lane < (int)(blockDim.x / WARP) ? parts[lane] : -INFINITY);
}

/* Of numbers [first, first + count), each of all ranks in their order. By a whole block, as block_sum is. */
__device__ static double joint_total(const struct joint_parts &parts, size_t first,
                                     size_t count)
{
    double sum = 0;

    for (size_t i = first + threadIdx.x; i < first + count; i += blockDim.x) {
        double number = 0;
        for (int r = 0; r < parts.count; r++)
            number += ((const double *)parts.of[r])[i];
        sum += number;
    }
    return block_sum(sum);
}

/* Threads for rows of so many elements: whole warps. */
static inline unsigned threads_for(int64_t columns)
{
    return columns <= 64 ? 32 : columns <= 512 ? 128 : columns <= 4096 ? 256 : 1024;
}

__device__ __forceinline__ float sigmoid_of(float x)
{
    return 1 / (1 + expf(-x));
}

__device__ __forceinline__ float activate(enum activation activation, float x)
{
    switch (activation) {
    case ACTIVATION_RELU:
        return x < 0 ? 0 : x; /* NaN stays NaN */
    case ACTIVATION_RELU6:
        return x < 0 ? 0 : x > 6 ? 6 : x;
    case ACTIVATION_SIGMOID:
        return sigmoid_of(x);
    default:
        return x;
    }
}

/* Calls LAUNCH<float>, LAUNCH<bf16> or LAUNCH<f16> by the type of a tensor. */
#define BY_TYPE(tensor, LAUNCH, call)                                                          \
    do {                                                                                       \
        if ((tensor).dtype == DTYPE_BF16)                                                      \
            LAUNCH<bf16>(call);                                                                \
        else if ((tensor).dtype == DTYPE_F16)                                                  \
            LAUNCH<f16>(call);                                                                 \
        else                                                                                   \
            LAUNCH<float>(call);                                                               \
    } while (0)

#endif /* KERNEL_CUDA_DEVICE_CUH */
