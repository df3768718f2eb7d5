/* SPDX-License-Identifier: MIT */
/* attention_mma.cu - attention of bf16 by tensor cores, forward and backward.
 *
 * As attention.cu, with tiles of 64 queries and 64 keys in shared memory as bf16 and products by warp-wide
 * 16 x 16 x 16 steps with f32 sums. Eight warps share the 16 x 16 parts of a product. Scores go through shared memory,
 * where four threads have a row: weights are made in f32 and rounded to bf16 for the next product. Forward adds the
 * products of tiles to sums of its threads, which are scaled as the largest score grows; backward's sums stay in the
 * warps. Heads have a multiple of 8 numbers, 65 to 128; what is missing to D is zeros. Smaller ones are attention_tile.cu's.
 */
#include <mma.h>

#include "kernel/cuda/attention.cuh"

using namespace nvcuda;

enum {
    BLOCK = 64, /* queries, keys */
    MMA_THREADS = 256,
    WARPS = MMA_THREADS / WARP,
    STEP = 16,                   /* of a product */
    LANES = MMA_THREADS / BLOCK, /* threads of a row */
    EACH = BLOCK / LANES,        /* columns of a thread */
    S_ROW = BLOCK + 4,           /* floats from row to row of scores */
    P_ROW = BLOCK + 8,           /* bf16 from row to row of weights */
    VECTOR = 8                   /* bf16 that are read at once */
};

typedef wmma::fragment<wmma::accumulator, STEP, STEP, STEP, float> sums_fragment;

template <int D> struct block {
    enum { ROW = D + 8, OUT_ROW = D + 4, PARTS = BLOCK / STEP * (D / STEP) / WARPS };

    /* Rows [row0, row0 + 64) of a head, zeros past the last token and the head's last number. */
    __device__ static void load(bf16 *to, const bf16 *from, int row0, int row,
                                const struct heads &h)
    {
        for (int i = threadIdx.x; i < BLOCK * (D / VECTOR); i += MMA_THREADS) {
            const int r = i / (D / VECTOR), d = i % (D / VECTOR) * VECTOR;
            uint4 x = make_uint4(0, 0, 0, 0);
            if (row0 + r < h.tokens && d < h.size)
                x = *(const uint4 *)(from + (int64_t)(row0 + r) * row + d);
            *(uint4 *)(to + r * ROW + d) = x;
        }
    }

    /* s (64,64) = a b' of two blocks of rows. */
    __device__ static void scores(float *s, const bf16 *a, const bf16 *b)
    {
        const int warp = threadIdx.x / WARP;

        for (int part = warp; part < BLOCK / STEP * (BLOCK / STEP); part += WARPS) {
            const int i = part / (BLOCK / STEP) * STEP, j = part % (BLOCK / STEP) * STEP;
            sums_fragment sum;
            wmma::fill_fragment(sum, 0.0F);
#pragma unroll
            for (int d = 0; d < D; d += STEP) {
                wmma::fragment<wmma::matrix_a, STEP, STEP, STEP, bf16, wmma::row_major> x;
                wmma::fragment<wmma::matrix_b, STEP, STEP, STEP, bf16, wmma::col_major> y;
                wmma::load_matrix_sync(x, a + i * ROW + d, ROW);
                wmma::load_matrix_sync(y, b + j * ROW + d, ROW);
                wmma::mma_sync(sum, x, y, sum);
            }
            wmma::store_matrix_sync(s + i * S_ROW + j, sum, S_ROW, wmma::mem_row_major);
        }
    }

    /* Rows and columns of this warp's part k of a (64, D) result. */
    __device__ static int row_of(int k)
    {
        return (threadIdx.x / WARP + k * WARPS) / (D / STEP) * STEP;
    }
    __device__ static int column_of(int k)
    {
        return (threadIdx.x / WARP + k * WARPS) % (D / STEP) * STEP;
    }

    /* sums += p x, or p' x if ACROSS, of weights p (64,64) and a block of rows x. */
    template <bool ACROSS>
    __device__ static void add(sums_fragment sums[PARTS], const bf16 *p, const bf16 *x)
    {
        typedef typename std::conditional<ACROSS, wmma::col_major, wmma::row_major>::type order;

#pragma unroll
        for (int k = 0; k < PARTS; k++) {
            const int i = row_of(k), j = column_of(k);
#pragma unroll
            for (int c = 0; c < BLOCK; c += STEP) {
                wmma::fragment<wmma::matrix_a, STEP, STEP, STEP, bf16, order> a;
                wmma::fragment<wmma::matrix_b, STEP, STEP, STEP, bf16, wmma::row_major> b;
                wmma::load_matrix_sync(a, ACROSS ? p + c * P_ROW + i : p + i * P_ROW + c,
                                       P_ROW);
                wmma::load_matrix_sync(b, x + c * ROW + j, ROW);
                wmma::mma_sync(sums[k], a, b, sums[k]);
            }
        }
    }

    __device__ static void clear(sums_fragment sums[PARTS])
    {
#pragma unroll
        for (int k = 0; k < PARTS; k++)
            wmma::fill_fragment(sums[k], 0.0F);
    }

    __device__ static void put_out(float *to, const sums_fragment sums[PARTS])
    {
#pragma unroll
        for (int k = 0; k < PARTS; k++)
            wmma::store_matrix_sync(to + row_of(k) * OUT_ROW + column_of(k), sums[k], OUT_ROW,
                                    wmma::mem_row_major);
    }

    /* Sums to memory, through shared memory that nobody else uses any more. */
    __device__ static void store(bf16 *to, const sums_fragment sums[PARTS], float *through,
                                 int row0, int row, const struct heads &h)
    {
        __syncthreads();
        put_out(through, sums);
        __syncthreads();
        for (int i = threadIdx.x; i < BLOCK * D; i += MMA_THREADS) {
            const int r = i / D, d = i % D;
            if (row0 + r < h.tokens && d < h.size)
                put(&to[(int64_t)(row0 + r) * row + d], through[r * OUT_ROW + d]);
        }
    }
};

/* Over the four threads of a row. */
__device__ __forceinline__ float four_max(float x)
{
    x = fmaxf(x, __shfl_xor_sync(0xffffffffU, x, 1));
    return fmaxf(x, __shfl_xor_sync(0xffffffffU, x, 2));
}

__device__ __forceinline__ float four_sum(float x)
{
    x += __shfl_xor_sync(0xffffffffU, x, 1);
    return x + __shfl_xor_sync(0xffffffffU, x, 2);
}

template <int D>
__global__ void __launch_bounds__(MMA_THREADS)
    attend_mma(struct heads h, const bf16 *qkv, bf16 *y, float *lse)
{
    typedef block<D> block;
    extern __shared__ __align__(128) char shared[];
    bf16 *queries = (bf16 *)shared, *keys = queries + BLOCK * block::ROW;
    bf16 *values = keys + BLOCK * block::ROW, *p = values + BLOCK * block::ROW;
    float *s = (float *)(p + BLOCK * P_ROW), *out = s + BLOCK * S_ROW;
    const int n = blockIdx.y, head = blockIdx.z, row0 = blockIdx.x * BLOCK;
    const int r = threadIdx.x / LANES, lane = threadIdx.x % LANES, i = row0 + r;
    const int end = h.causal && row0 + BLOCK < h.tokens ? row0 + BLOCK : h.tokens;
    float sums[D / LANES] = { 0 }, largest = -INFINITY, total = 0;

    block::load(queries, part_of(h, qkv, n, head, 0), row0, h.row, h);
    for (int key0 = 0; key0 < end; key0 += BLOCK) {
        sums_fragment product[block::PARTS];
        float most = -INFINITY, sum = 0;

        __syncthreads();
        block::load(keys, part_of(h, qkv, n, head, 1), key0, h.row, h);
        block::load(values, part_of(h, qkv, n, head, 2), key0, h.row, h);
        __syncthreads();
        block::scores(s, queries, keys);
        __syncthreads();
        float score[EACH];
#pragma unroll
        for (int k = 0; k < EACH; k++) {
            const int j = lane + LANES * k;
            score[k] = sees(h, n, i, key0 + j) ? s[r * S_ROW + j] * h.scale : -INFINITY;
            most = fmaxf(most, score[k]);
        }
        most = fmaxf(largest, four_max(most));
        const float before = largest > -INFINITY ? expf(largest - most) : 0;
#pragma unroll
        for (int k = 0; k < EACH; k++) {
            const float weight = score[k] > -INFINITY ? expf(score[k] - most) : 0;
            sum += weight;
            put(&p[r * P_ROW + lane + LANES * k], weight);
        }
        total = total * before + four_sum(sum);
        largest = most;
        __syncthreads();
        block::clear(product);
        block::template add<false>(product, p, values);
        block::put_out(out, product);
        __syncthreads();
#pragma unroll
        for (int k = 0; k < D / LANES; k++)
            sums[k] = fmaf(sums[k], before, out[r * block::OUT_ROW + lane + LANES * k]);
    }
    if (i >= h.tokens)
        return;
    const float factor = total > 0 ? 1 / total : 0;
    if (lane == 0)
        lse[((int64_t)n * h.tokens + i) * h.heads + head] =
            total > 0 ? largest + logf(total) : FLT_MAX;
#pragma unroll
    for (int k = 0; k < D / LANES; k++) {
        const int d = lane + LANES * k;
        if (d < h.size)
            put(&output_of(h, y, n, head)[(int64_t)i * h.out_row + d], sums[k] * factor);
    }
}

/* Weights p and ds of the scores and dp of a tile, rounded to bf16; p may be NULL. */
__device__ __forceinline__ void make_weights(const struct heads &h,
                                             const struct rows_of_weights &w, int n, int head,
                                             int row0, int key0, const float *s,
                                             const float *dp, bf16 *p, bf16 *ds)
{
    const int r = threadIdx.x / LANES, lane = threadIdx.x % LANES, i = row0 + r;
    const float delta = delta_of(h, w, n, head, i);

#pragma unroll
    for (int k = 0; k < EACH; k++) {
        const int j = lane + LANES * k;
        const float weight = weight_of(h, w, n, head, i, key0 + j, s[r * S_ROW + j]);
        if (p)
            put(&p[r * P_ROW + j], weight);
        put(&ds[r * P_ROW + j], weight * (dp[r * S_ROW + j] - delta) * h.scale);
    }
}

/* What both gradients have in shared memory. */
template <int D> struct room {
    bf16 *queries, *flows, *keys, *values, *p, *ds;
    float *s, *dp; /* side by side: sums leave through both */

    __device__ room(char *shared)
    {
        queries = (bf16 *)shared;
        flows = queries + BLOCK * block<D>::ROW;
        keys = flows + BLOCK * block<D>::ROW;
        values = keys + BLOCK * block<D>::ROW;
        p = values + BLOCK * block<D>::ROW;
        ds = p + BLOCK * P_ROW;
        s = (float *)(ds + BLOCK * P_ROW);
        dp = s + BLOCK * S_ROW;
    }
    enum {
        BYTES = 4 * BLOCK * block<D>::ROW * 2 + 2 * BLOCK * P_ROW * 2 + 2 * BLOCK * S_ROW * 4
    };
};

template <int D>
__global__ void __launch_bounds__(MMA_THREADS)
    key_grad_mma(struct heads h, struct rows_of_weights w, const bf16 *dy, const bf16 *qkv,
                 bf16 *dqkv)
{
    typedef block<D> block;
    extern __shared__ __align__(128) char shared[];
    const room<D> m(shared);
    const int n = blockIdx.y, head = blockIdx.z, key0 = blockIdx.x * BLOCK;
    sums_fragment dk[block::PARTS], dv[block::PARTS];

    block::clear(dk);
    block::clear(dv);
    block::load(m.keys, part_of(h, qkv, n, head, 1), key0, h.row, h);
    block::load(m.values, part_of(h, qkv, n, head, 2), key0, h.row, h);
    for (int row0 = h.causal ? key0 : 0; row0 < h.tokens; row0 += BLOCK) {
        __syncthreads();
        block::load(m.queries, part_of(h, qkv, n, head, 0), row0, h.row, h);
        block::load(m.flows, output_of(h, dy, n, head), row0, h.out_row, h);
        __syncthreads();
        block::scores(m.s, m.queries, m.keys);
        block::scores(m.dp, m.flows, m.values);
        __syncthreads();
        make_weights(h, w, n, head, row0, key0, m.s, m.dp, m.p, m.ds);
        __syncthreads();
        block::template add<true>(dv, m.p, m.flows);
        block::template add<true>(dk, m.ds, m.queries);
    }
    block::store(part_of(h, dqkv, n, head, 1), dk, m.s, key0, h.row, h);
    block::store(part_of(h, dqkv, n, head, 2), dv, m.s, key0, h.row, h);
}

template <int D>
__global__ void __launch_bounds__(MMA_THREADS)
    query_grad_mma(struct heads h, struct rows_of_weights w, const bf16 *dy, const bf16 *qkv,
                   bf16 *dqkv)
{
    typedef block<D> block;
    extern __shared__ __align__(128) char shared[];
    const room<D> m(shared);
    const int n = blockIdx.y, head = blockIdx.z, row0 = blockIdx.x * BLOCK;
    const int end = h.causal && row0 + BLOCK < h.tokens ? row0 + BLOCK : h.tokens;
    sums_fragment dq[block::PARTS];

    block::clear(dq);
    block::load(m.queries, part_of(h, qkv, n, head, 0), row0, h.row, h);
    block::load(m.flows, output_of(h, dy, n, head), row0, h.out_row, h);
    for (int key0 = 0; key0 < end; key0 += BLOCK) {
        __syncthreads();
        block::load(m.keys, part_of(h, qkv, n, head, 1), key0, h.row, h);
        block::load(m.values, part_of(h, qkv, n, head, 2), key0, h.row, h);
        __syncthreads();
        block::scores(m.s, m.queries, m.keys);
        block::scores(m.dp, m.flows, m.values);
        __syncthreads();
        make_weights(h, w, n, head, row0, key0, m.s, m.dp, NULL, m.ds);
        __syncthreads();
        block::template add<false>(dq, m.ds, m.keys);
    }
    block::store(part_of(h, dqkv, n, head, 0), dq, m.s, row0, h.row, h);
}

/* Launches ----------------------------------------------------------------------------- */

static dim3 grid_of(const struct heads &h)
{
    return dim3(blocks_of(h.tokens, BLOCK), (unsigned)h.sequences, (unsigned)h.heads);
}

template <int D>
static void launch_attend_mma(const struct kernel_call *call, const struct heads &h)
{
    const size_t bytes = 3 * BLOCK * block<D>::ROW * sizeof(bf16) +
                         BLOCK * P_ROW * sizeof(bf16) + BLOCK * S_ROW * sizeof(float) +
                         BLOCK * block<D>::OUT_ROW * sizeof(float);

    allow_shared(call, attend_mma<D>, bytes);
    attend_mma<D><<<grid_of(h), MMA_THREADS, bytes, stream_of(call)>>>(
        h, (const bf16 *)call->in[0], (bf16 *)call->out[0], (float *)call->out[1]);
    stream_check(call->stream, "attention");
}

template <int D>
static void launch_grads_mma(const struct kernel_call *call, const struct heads &h)
{
    const struct rows_of_weights w = { (const float *)call->in[3],
                                       (const float *)call->scratch };
    const bf16 *dy = (const bf16 *)call->in[0], *qkv = (const bf16 *)call->in[1];
    bf16 *dqkv = (bf16 *)call->out[0];

    run_deltas<bf16>(call, h);
    allow_shared(call, key_grad_mma<D>, room<D>::BYTES);
    allow_shared(call, query_grad_mma<D>, room<D>::BYTES);
    key_grad_mma<D>
        <<<grid_of(h), MMA_THREADS, room<D>::BYTES, stream_of(call)>>>(h, w, dy, qkv, dqkv);
    query_grad_mma<D>
        <<<grid_of(h), MMA_THREADS, room<D>::BYTES, stream_of(call)>>>(h, w, dy, qkv, dqkv);
    stream_check(call->stream, "attention_grad");
}

static bool fits(const struct kernel_problem *p, int qkv)
{
    const int64_t size = size_of_heads(p, qkv);

    return p->in[qkv].dtype == DTYPE_BF16 && size % VECTOR == 0 && size > 64 && size <= 128;
}

static bool attention_can_run(const struct kernel_problem *p)
{
    return fits(p, 0);
}

static bool attention_grad_can_run(const struct kernel_problem *p)
{
    return fits(p, 1);
}

static void run_attention(const struct kernel_call *call)
{
    const struct kernel_problem *p = call->problem;
    const struct heads h = heads_of(p, &p->in[0].shape, p->n_in > 1 ? call->in[1] : NULL);

    launch_attend_mma<128>(call, h);
}

static void run_attention_grad(const struct kernel_call *call)
{
    const struct kernel_problem *p = call->problem;
    const struct heads h = heads_of(p, &p->in[1].shape, p->n_in > 4 ? call->in[4] : NULL);

    launch_grads_mma<128>(call, h);
}

extern "C" const struct kernel cuda_attention_mma_rows[] = {
    { "attention", "mma", attention_can_run, NULL, NULL, NULL, run_attention },
    { "attention_grad", "mma", attention_grad_can_run, attention_grad_scratch, NULL, NULL,
      run_attention_grad },
    { NULL, NULL, NULL, NULL, NULL, NULL, NULL },
};
