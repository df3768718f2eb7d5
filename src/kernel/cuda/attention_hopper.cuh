/* SPDX-License-Identifier: MIT */
/* attention_hopper.cuh - private to the plug-in: what kernels of attention on Hopper share: products of tiles of 64 tokens by 64 numbers, how their sums
 * go to memory, and what a gradient wants to know of a query. How sums lie in threads: hopper.cuh. */
#ifndef KERNEL_CUDA_ATTENTION_HOPPER_CUH
#define KERNEL_CUDA_ATTENTION_HOPPER_CUH

#include "kernel/cuda/attention.cuh"
#include "kernel/cuda/boxes.h"
#include "kernel/cuda/tiles.cuh"

enum {
    SIDE = 64, /* tokens, numbers of a tile */
    TILE = SIDE * SIDE,
    TILE_BYTES = TILE * (int)sizeof(bf16),
    STEPS = SIDE / 16,
    SUMS = SIDE / 2, /* of a tile in a thread */
    GROUP_WARPS = 4,
    GROUP = GROUP_WARPS * WARP,
};

static const float LOG2_E = 1.44269504F, LN_2 = 0.69314718F;

/* Products ------------------------------------------------------------------------------ */

/* 16 more numbers along k are so much further in a tile; across: 16 more rows. */
enum { ALONG = 16 * (int)sizeof(bf16) >> 4, ACROSS = 16 * SIDE * (int)sizeof(bf16) >> 4 };

/* Made anew for each product: kept, all of them together would take a quarter of the registers. */
__device__ __forceinline__ uint64_t matrix_of(const bf16 *tile)
{
    const uint64_t matrix = matrix_at(tile, 16, 8 * SIDE * sizeof(bf16));
    uint32_t low = (uint32_t)matrix;

    asm volatile("" : "+r"(low));
    return matrix >> 32 << 32 | low;
}

/* c (64, 64) = a b' of two tiles, begun. */
__device__ __forceinline__ void begin_scores(float (&c)[SUMS], const bf16 *a, const bf16 *b)
{
#pragma unroll
    for (int k = 0; k < STEPS; k++)
        wide<SIDE>::multiply<0, 0>(c, matrix_of(a) + ALONG * k, matrix_of(b) + ALONG * k,
                                   k > 0);
}

/* c = p x, or c += p x, of weights p and a tile x, begun. */
__device__ __forceinline__ void begin_rows(float (&c)[SUMS], const uint32_t (&p)[STEPS][4],
                                           const bf16 *x, bool adds)
{
#pragma unroll
    for (int k = 0; k < STEPS; k++)
        wide<SIDE>::multiply<1>(c, p[k], matrix_of(x) + ACROSS * k, adds || k > 0);
}

/* Row and column, within a tile, of a thread's first sum. */
__device__ __forceinline__ int row_of_thread()
{
    return (int)threadIdx.x / WARP % GROUP_WARPS * 16 + (int)threadIdx.x % WARP / 4;
}
__device__ __forceinline__ int column_of_thread()
{
    return (int)threadIdx.x % 4 * 2;
}

/* Of four lanes each has two numbers of four eights; afterwards each has an eight. */
__device__ __forceinline__ uint4 to_eights(const uint32_t pairs[4])
{
    const bool odd = threadIdx.x & 1, high = threadIdx.x & 2;
    uint32_t a = pairs[0], b = pairs[1], c = pairs[2], d = pairs[3];

    uint32_t x = __shfl_xor_sync(~0U, odd ? a : b, 1);
    uint32_t y = __shfl_xor_sync(~0U, odd ? c : d, 1);
    a = odd ? x : a, b = odd ? b : x, c = odd ? y : c, d = odd ? d : y;
    x = __shfl_xor_sync(~0U, high ? a : c, 2);
    y = __shfl_xor_sync(~0U, high ? b : d, 2);
    return high ? make_uint4(x, y, c, d) : make_uint4(a, b, x, y);
}

/* Sums of tile t to memory: the thread's first row times by[0], that eight further on times by[1]. */
__device__ __forceinline__ void store_tile(bf16 *to, const float (&sums)[SUMS],
                                           const float (&by)[2], int t, int row,
                                           const struct heads &h)
{
    const int eight = (int)threadIdx.x % 4;

#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int i = t * SIDE + row_of_thread() + half * 8;
#pragma unroll
        for (int d = 0; d < SIDE; d += SIDE / 2) {
            uint32_t pairs[4];
#pragma unroll
            for (int k = 0; k < 4; k++) {
                const int n = d / 2 + k * 4 + half * 2;
                pairs[k] = pair_of(sums[n] * by[half], sums[n + 1] * by[half]);
            }
            const uint4 numbers = to_eights(pairs);
            if (i < h.tokens && d + eight * 8 < h.size)
                *(uint4 *)(to + (int64_t)i * row + d + eight * 8) = numbers;
        }
    }
}

/* A warp arrives, once all of its lanes are here. */
__device__ __forceinline__ void warp_arrives(uint64_t *barrier)
{
    __syncwarp();
    if (threadIdx.x % WARP == 0)
        barrier_arrive(barrier);
}

/* Queries -------------------------------------------------------------------------------- */

/* dy y of eight numbers. */
__device__ __forceinline__ float dot(const uint4 &a, const uint4 &b)
{
    const __nv_bfloat162 *x = (const __nv_bfloat162 *)&a, *y = (const __nv_bfloat162 *)&b;
    float sum = 0;

#pragma unroll
    for (int k = 0; k < 4; k++) {
        const float2 u = __bfloat1622float2(x[k]), v = __bfloat1622float2(y[k]);
        sum = fmaf(u.y, v.y, fmaf(u.x, v.x, sum));
    }
    return sum;
}

/* lse and delta of this warp's 16 queries from `first` on, four at a time, eight lanes each, with all loads on their way at once: the
 * keepers wait for this. A lane has those of query first + 4 (lane % 4) + lane / 8. */
__device__ __forceinline__ float2 numbers_of(const struct heads &h, const bf16 *dy,
                                             const bf16 *y, const float *lse, int n, int head,
                                             int first)
{
    const int lane = (int)threadIdx.x % WARP, d = lane % 8 * 8;
    const int own = first + lane % 4 * 4 + lane / 8;
    float power = INFINITY, sum[4];
    uint4 a[4], b[4];

    const int i = first + lane / 8;
    const int64_t at = ((int64_t)n * h.tokens + i) * h.out_row + head * h.size + d;
    dy += at;
    y += at;
#pragma unroll
    for (int k = 0; k < 4; k++, dy += 4 * h.out_row, y += 4 * h.out_row) {
        a[k] = b[k] = make_uint4(0, 0, 0, 0);
        if (i + k * 4 < h.tokens && d < h.size) {
            a[k] = *(const uint4 *)dy;
            b[k] = *(const uint4 *)y;
        }
    }
    if (own < h.tokens)
        power = lse[((int64_t)n * h.tokens + own) * h.heads + head] * LOG2_E;
#pragma unroll
    for (int k = 0; k < 4; k++) {
        sum[k] = dot(a[k], b[k]);
#pragma unroll
        for (int apart = 4; apart > 0; apart /= 2)
            sum[k] += __shfl_xor_sync(~0U, sum[k], apart);
    }
    return make_float2(power, lane % 4 < 2 ? (lane % 2 ? sum[1] : sum[0])
                                           : (lane % 2 ? sum[3] : sum[2]));
}

/* Maps ----------------------------------------------------------------------------------- */

/* Heads of qkv (parts 3) or dy (1), in tiles. */
static bool map_heads(const struct kernel_call *call, CUtensorMap *map, const void *data,
                      int parts, const struct heads &h)
{
    const int64_t extents[] = { h.size, parts * h.heads, h.tokens, h.sequences };
    const int box[] = { SIDE, 1, SIDE, 1 };

    return box_map_of(call->stream, map, data, 4, extents, box);
}

#endif /* KERNEL_CUDA_ATTENTION_HOPPER_CUH */
