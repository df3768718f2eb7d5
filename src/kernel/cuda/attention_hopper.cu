/* SPDX-License-Identifier: MIT */
/* attention_hopper.cu - causal attention of bf16 over short sequences, by products of four warps (wgmma) of what the copy engine brings:
 * 256 tokens and heads of 64 numbers at most.
 *
 * All of a head fits into shared memory, in tiles of 64 tokens by 64 numbers, zeros past the last token and the head's last number. A
 * group of four warps has a head and begins when a quarter of it is there; three such groups share a multiprocessor.
 *
 * How sums lie in threads: hopper.cuh. Weights are powers of two: scores are scaled by log2(e), too.
 */
#include <limits.h>

#include "kernel/cuda/attention.cuh"
#include "kernel/cuda/boxes.h"
#include "kernel/cuda/hopper.cuh"
#include "kernel/cuda/mma.cuh"

enum {
    SIDE = 64, /* tokens, numbers of a tile */
    TILE = SIDE * SIDE,
    TILE_BYTES = TILE * (int)sizeof(bf16),
    TILES = 4, /* of a sequence, at most */
    STEPS = SIDE / 16,
    SUMS = SIDE / 2, /* of a tile in a thread */
    GROUP_WARPS = 4,
    GROUP = GROUP_WARPS * WARP,
    TOGETHER = 3, /* groups of a multiprocessor */
};

static const float LOG2_E = 1.44269504F, LN_2 = 0.69314718F;

/* Tiles --------------------------------------------------------------------------------- */

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

/* Where a lane has its 8 numbers of 16 x 16 of its warp's rows, the k-th from the left: rows are swizzled. */
__device__ __forceinline__ bf16 *corner_of(bf16 *tile, int k)
{
    const int lane = (int)threadIdx.x % WARP;
    const int row = (int)threadIdx.x / WARP % GROUP_WARPS * 16 + lane % 16;

    return tile + row * SIDE + ((k * 2 + lane / 16) ^ row % 8) * 8;
}

/* Forward ------------------------------------------------------------------------------- */

struct forward_room {
    bf16 keys[TILES][TILE], values[TILES][TILE], queries[TILE];
    uint64_t there[TILES], queries_there;
};

/* What 64 queries have seen: sums of values, the largest scores of a thread's two rows, sums of its weights. */
struct seen {
    float sums[SUMS], largest[2], total[2];
};

__device__ __forceinline__ float over_four(float x, bool adds)
{
    const float y = __shfl_xor_sync(~0U, x, 1);
    x = adds ? x + y : fmaxf(x, y);
    const float z = __shfl_xor_sync(~0U, x, 2);
    return adds ? x + z : fmaxf(x, z);
}

/* COUNT tiles of keys from `first` on, of which the last is that of the queries if this ENDS. The last product is left under way. */
template <int COUNT, bool BEGINS, bool ENDS>
__device__ __forceinline__ void see(struct seen &x, const struct forward_room &m,
                                    const uint32_t (&q)[STEPS][4], int first, float scale)
{
    float s[COUNT * SUMS], base[2], total[2][2] = {};
    uint32_t p[COUNT][STEPS][4];

    products_begin();
#pragma unroll
    for (int k = 0; k < STEPS; k++)
        wide<COUNT * SIDE>::template multiply<0>(s, q[k], matrix_of(m.keys[first]) + ALONG * k,
                                                 k > 0);
    products_end();
    products_wait<0>();
    products_made(s);
    if (ENDS) {
        /* through a shuffle, or the compiler keeps what all tiles compare in registers */
        const int before =
            __shfl_sync(~0U, row_of_thread() - column_of_thread(), (int)threadIdx.x % WARP);
#pragma unroll
        for (int n = 0; n < SUMS; n++) {
            if (n / 4 * 8 + n % 2 - n % 4 / 2 * 8 > before)
                s[(COUNT - 1) * SUMS + n] = -INFINITY;
        }
    }
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float most = BEGINS ? -INFINITY : x.largest[half];
#pragma unroll
        for (int j = 0; j < COUNT; j++) {
#pragma unroll
            for (int n = 2 * half; n < SUMS; n += 4)
                most = fmaxf(most, fmaxf(s[j * SUMS + n], s[j * SUMS + n + 1]));
        }
        most = over_four(most, false);
        if (!BEGINS) {
            const float before = quick_power((x.largest[half] - most) * scale);
            x.total[half] *= before;
#pragma unroll
            for (int n = 2 * half; n < SUMS; n += 4) {
                x.sums[n] *= before;
                x.sums[n + 1] *= before;
            }
        }
        x.largest[half] = most;
        base[half] = most * scale;
    }
#pragma unroll
    for (int j = 0; j < COUNT; j++) {
#pragma unroll
        for (int n = 0; n < SUMS; n++) {
            s[j * SUMS + n] = quick_power(fmaf(s[j * SUMS + n], scale, -base[n % 4 / 2]));
            total[n % 4 / 2][n % 2] += s[j * SUMS + n];
        }
#pragma unroll
        for (int n = 0; n < SUMS; n += 2)
            p[j][n / 8][n / 2 % 4] = pair_of(s[j * SUMS + n], s[j * SUMS + n + 1]);
    }
    products_begin();
#pragma unroll
    for (int j = 0; j < COUNT; j++)
        begin_rows(x.sums, p[j], m.values[first + j], !BEGINS || j > 0);
    products_end();
#pragma unroll
    for (int half = 0; half < 2; half++)
        x.total[half] = (BEGINS ? 0 : x.total[half]) + (total[half][0] + total[half][1]);
}

__device__ __forceinline__ void ask_queries(struct forward_room &m, const CUtensorMap *qkv,
                                            int t, int n, int head)
{
    barrier_expect(&m.queries_there, TILE_BYTES);
    box_load(m.queries, qkv, &m.queries_there, 0, head, t * SIDE, n);
}

/* The queries of tile LAST, which is the last that they see. The next are asked for as soon as these are in registers. */
template <int LAST>
__device__ __forceinline__ void attend(struct forward_room &m, const CUtensorMap *qkv,
                                       const struct heads &h, int n, int head, bf16 *y,
                                       float *lse)
{
    const float scale = h.scale * LOG2_E;
    struct seen x;
    float by[2];
    uint32_t q[STEPS][4];

    barrier_wait(&m.queries_there, LAST & 1);
#pragma unroll
    for (int k = 0; k < STEPS; k++)
        load_four(q[k], corner_of(m.queries, k));
    __syncthreads();
    if (threadIdx.x == 0 && (LAST + 1) * SIDE < h.tokens)
        ask_queries(m, qkv, LAST + 1, n, head);
    barrier_wait(&m.there[LAST], 0);
    if (LAST >= 2) {
        see<2, true, false>(x, m, q, 0, scale);
        products_wait<0>();
        products_made(x.sums);
    }
    see<LAST % 2 + 1, (LAST < 2), true>(x, m, q, LAST / 2 * 2, scale);
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const float total = over_four(x.total[half], true);
        const int i = LAST * SIDE + row_of_thread() + half * 8;
        by[half] = quick_inverse(total);
        if (threadIdx.x % 4 == 0 && i < h.tokens)
            lse[(int64_t)i * h.heads] = (x.largest[half] * scale + __log2f(total)) * LN_2;
    }
    products_wait<0>();
    products_made(x.sums);
    store_tile(y, x.sums, by, LAST, h.out_row, h);
}

__global__ void __launch_bounds__(GROUP, TOGETHER)
    attend_short(const __grid_constant__ CUtensorMap qkv, struct heads h, bf16 *y, float *lse)
{
    extern __shared__ __align__(1024) char shared[];
    struct forward_room &m = *(struct forward_room *)shared;
    const int head = (int)blockIdx.x % h.heads, n = (int)blockIdx.x / h.heads;
    const int tiles = (h.tokens + SIDE - 1) / SIDE;

    y = output_of(h, y, n, head);
    lse += (int64_t)n * h.tokens * h.heads + head;
    if (threadIdx.x == 0) {
        barrier_make(&m.queries_there, 1);
        for (int t = 0; t < TILES; t++)
            barrier_make(&m.there[t], 1);
        barriers_made();
        ask_queries(m, &qkv, 0, n, head);
        for (int t = 0; t < tiles; t++) {
            barrier_expect(&m.there[t], 2 * TILE_BYTES);
            box_load(m.keys[t], &qkv, &m.there[t], 0, h.heads + head, t * SIDE, n);
            box_load(m.values[t], &qkv, &m.there[t], 0, 2 * h.heads + head, t * SIDE, n);
        }
    }
    __syncthreads();
    for (int t = 0; t < tiles; t++) {
        if (t == 0)
            attend<0>(m, &qkv, h, n, head, y, lse);
        else if (t == 1)
            attend<1>(m, &qkv, h, n, head, y, lse);
        else if (t == 2)
            attend<2>(m, &qkv, h, n, head, y, lse);
        else
            attend<3>(m, &qkv, h, n, head, y, lse);
    }
}

/* The op -------------------------------------------------------------------------------- */

static bool can_run(const struct kernel_problem *p)
{
    const struct shape *qkv = &p->in[0].shape;
    const int64_t size = size_of_heads(p, 0), tokens = qkv->dim[1];

    return cuda_capability == CAPABILITY_HOPPER && p->in[0].dtype == DTYPE_BF16 &&
           p->attrs.causal && p->n_in == 1 && size % 8 == 0 && size > SIDE / 2 &&
           size <= SIDE && tokens > SIDE && tokens <= TILES * SIDE &&
           qkv->dim[0] * p->attrs.heads <= INT_MAX;
}

static void run(const struct kernel_call *call)
{
    const struct heads h = heads_of(call->problem, &call->problem->in[0].shape, NULL);
    const int64_t extents[] = { h.size, 3 * h.heads, h.tokens, h.sequences };
    const int box[] = { SIDE, 1, SIDE, 1 };
    CUtensorMap qkv;

    if (!box_map_of(call->stream, &qkv, call->in[0], 4, extents, box))
        return;
    allow_shared(call, attend_short, sizeof(struct forward_room));
    attend_short<<<h.sequences * h.heads, GROUP, sizeof(struct forward_room),
                   stream_of(call)>>>(qkv, h, (bf16 *)call->out[0], (float *)call->out[1]);
    stream_check(call->stream, "attention");
}

extern "C" const struct kernel cuda_attention_hopper_rows[] = {
    { "attention", "hopper", can_run, NULL, NULL, NULL, run },
    { NULL, NULL, NULL, NULL, NULL, NULL, NULL },
};
