/* SPDX-License-Identifier: MIT */
/* attention.cuh - private to the plug-in: what kernels of attention share: where heads lie, who sees whom, and what a
 * gradient makes of forward's lse. */
#ifndef KERNEL_CUDA_ATTENTION_CUH
#define KERNEL_CUDA_ATTENTION_CUH

#include <float.h>

#include "kernel/cuda/device.cuh"

struct heads {
    int sequences, tokens, heads, size;
    int row, out_row; /* elements from token to token: of qkv, of y */
    bool causal;
    float scale;
    const int32_t *ids; /* or NULL */
};

static struct heads heads_of(const struct kernel_problem *p, const struct shape *qkv,
                             const void *ids)
{
    struct heads h = {};

    h.sequences = (int)qkv->dim[0];
    h.tokens = (int)qkv->dim[1];
    h.heads = p->attrs.heads;
    h.row = (int)qkv->dim[2];
    h.out_row = h.row / 3;
    h.size = h.out_row / h.heads;
    h.causal = p->attrs.causal != 0;
    h.scale = (float)(1 / sqrt((double)h.size));
    h.ids = (const int32_t *)ids;
    return h;
}

/* Where a head's queries, keys (1) or values (2) begin, and its part of y. */
template <class T>
__device__ __forceinline__ T *part_of(const struct heads &h, T *qkv, int n, int head, int part)
{
    return qkv + (int64_t)n * h.tokens * h.row + part * h.out_row + head * h.size;
}

template <class T>
__device__ __forceinline__ T *output_of(const struct heads &h, T *y, int n, int head)
{
    return y + (int64_t)n * h.tokens * h.out_row + head * h.size;
}

__device__ __forceinline__ bool sees(const struct heads &h, int n, int i, int j)
{
    return i < h.tokens && j < h.tokens && !(h.causal && j > i) &&
           !(h.ids && h.ids[(int64_t)n * h.tokens + j] < 0);
}

/* delta = dy y of each token and head: a warp each. */
template <class T>
__global__ void make_deltas(struct heads h, const T *dy, const T *y, float *delta)
{
    const int64_t at = thread_number() / WARP;
    const int lane = threadIdx.x % WARP;
    float sum = 0;

    if (at >= (int64_t)h.sequences * h.tokens * h.heads)
        return;
    for (int d = lane; d < h.size; d += WARP)
        sum = fmaf(number(dy[at * h.size + d]), number(y[at * h.size + d]), sum);
    sum = warp_sum(sum);
    if (lane == 0)
        delta[at] = sum;
}

struct rows_of_weights {
    const float *lse, *delta;
};

/* p and ds of query i and key j, from their score and dp. */
__device__ __forceinline__ float weight_of(const struct heads &h,
                                           const struct rows_of_weights &w, int n, int head,
                                           int i, int j, float score)
{
    if (!sees(h, n, i, j))
        return 0;
    return expf(score * h.scale - w.lse[((int64_t)n * h.tokens + i) * h.heads + head]);
}

__device__ __forceinline__ float
delta_of(const struct heads &h, const struct rows_of_weights &w, int n, int head, int i)
{
    return i < h.tokens ? w.delta[((int64_t)n * h.tokens + i) * h.heads + head] : 0;
}

/* All deltas, into scratch. */
template <class T> static void run_deltas(const struct kernel_call *call, const struct heads &h)
{
    const int64_t rows = (int64_t)h.sequences * h.tokens * h.heads;

    make_deltas<T><<<blocks_of(rows, THREADS / WARP), THREADS, 0, stream_of(call)>>>(
        h, (const T *)call->in[0], (const T *)call->in[2], (float *)call->scratch);
}

template <class F>
static void allow_shared(const struct kernel_call *call, F *function, size_t bytes)
{
    if (cudaFuncSetAttribute((const void *)function,
                             cudaFuncAttributeMaxDynamicSharedMemorySize,
                             (int)bytes) != cudaSuccess)
        stream_check(call->stream, "attention");
}

static int64_t size_of_heads(const struct kernel_problem *p, int qkv)
{
    return p->in[qkv].shape.dim[2] / 3 / p->attrs.heads;
}

static inline size_t attention_grad_scratch(const struct kernel_problem *p)
{
    return (size_t)shape_count(&p->in[3].shape) * sizeof(float);
}

#endif /* KERNEL_CUDA_ATTENTION_CUH */
