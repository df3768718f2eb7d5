/* SPDX-License-Identifier: MIT */
/* attention_short.cu - gradients of attention of bf16 for sequences that fit a multiprocessor: 256 tokens and heads of 64 numbers at most.
 *
 * A block has a head of a sequence: queries, keys, values and dy lie in shared memory, and each of sixteen warps has 16 keys, of which it keeps
 * the gradients, and those of the values, in registers. Queries come by 64, as soon as they are there. Scores are made
 * transposed, as in attention_tile.cu, so that weights go into the next products as they lie; their gradients also go to shared memory, of which the
 * warps make the gradients of the 64 queries. So scores are made once, and nobody adds to what another adds to.
 */
#include "kernel/cuda/attention.cuh"
#include "kernel/cuda/mma.cuh"

enum {
    SHORT_MOST = 256, /* tokens */
    SHORT_SIZE = 64,  /* numbers of a head */
    SHORT_WARPS = SHORT_MOST / 16,
    SHORT_THREADS = SHORT_WARPS * WARP,
    SIDE = 64, /* queries that are looked at together */
    TILES = SHORT_MOST / SIDE,
    HALF = SIDE / 2, /* of which scores are made at once */
    ROW = SHORT_SIZE + 8,
    PARTS = SHORT_SIZE / 8,
    EACH = 8 /* bf16 that are copied at once */
};

struct short_room {
    bf16 queries[SHORT_MOST * ROW], flows[SHORT_MOST * ROW];
    bf16 keys[SHORT_MOST * ROW], values[SHORT_MOST * ROW];
    bf16 slopes[SHORT_MOST * ROW]; /* of scores: a row a key, of 64 queries */
    float lse[SHORT_MOST], delta[SHORT_MOST];
};

/* Asks for a head's rows [row0, row0 + 64), a copy a thread; zeros past the last token and the head's last number. */
__device__ __forceinline__ void ask_rows(bf16 *to, const bf16 *from, int row0, int row,
                                         const struct heads &h)
{
    const int r = row0 + (int)threadIdx.x / EACH, d = (int)threadIdx.x % EACH * EACH;
    const bool there = r < h.tokens && d < h.size;

    copy_later(to + r * ROW + d, there ? from + (int64_t)r * row + d : from, there);
}

/* delta = dy y of 64 queries: eight threads each. */
__device__ __forceinline__ void make_delta(float *delta, const bf16 *dy, const bf16 *y,
                                           int row0, const struct heads &h)
{
    const int r = row0 + (int)threadIdx.x / EACH, d = (int)threadIdx.x % EACH * EACH;
    float sum = 0;

    if (r < h.tokens && d < h.size) {
        const pack<bf16> a = *(const pack<bf16> *)(dy + (int64_t)r * h.out_row + d);
        const pack<bf16> b = *(const pack<bf16> *)(y + (int64_t)r * h.out_row + d);
#pragma unroll
        for (int k = 0; k < EACH; k++)
            sum = fmaf(number(a.x[k]), number(b.x[k]), sum);
    }
    for (int apart = EACH / 2; apart > 0; apart /= 2)
        sum += __shfl_xor_sync(~0U, sum, apart);
    if (d == 0)
        delta[r] = sum;
}

/* c (16, 32) = a b' of 16 rows a and 32 rows b. */
__device__ __forceinline__ void make_scores(float c[HALF / 8][4], const bf16 *a, const bf16 *b)
{
    const int lane = threadIdx.x % WARP, matrix = lane / 8;
    const bf16 *left = a + (matrix % 2 * 8 + lane % 8) * ROW + matrix / 2 * 8;
    const bf16 *right = b + (matrix / 2 * 8 + lane % 8) * ROW + matrix % 2 * 8;

#pragma unroll
    for (int j = 0; j < HALF / 8; j++)
        c[j][0] = c[j][1] = c[j][2] = c[j][3] = 0;
#pragma unroll
    for (int s = 0; s < SHORT_SIZE; s += 16) {
        uint32_t rows[4];
        load_four(rows, left + s);
#pragma unroll
        for (int j = 0; j < HALF / 8; j += 2) {
            uint32_t part[4];
            load_four(part, right + j * 8 * ROW + s);
            multiply(c[j], rows, part[0], part[1]);
            multiply(c[j + 1], rows, part[2], part[3]);
        }
    }
}

/* out (16, 64) += p x of weights p (16, 32), rounded here, and 32 rows x. */
__device__ __forceinline__ void add_rows(float out[PARTS][4], const float p[HALF / 8][4],
                                         const bf16 *x)
{
    const int lane = threadIdx.x % WARP, matrix = lane / 8;
    const bf16 *right = x + (matrix % 2 * 8 + lane % 8) * ROW + matrix / 2 * 8;

#pragma unroll
    for (int k = 0; k < HALF / 16; k++) {
        const uint32_t rows[4] = { pair_of(p[2 * k][0], p[2 * k][1]),
                                   pair_of(p[2 * k][2], p[2 * k][3]),
                                   pair_of(p[2 * k + 1][0], p[2 * k + 1][1]),
                                   pair_of(p[2 * k + 1][2], p[2 * k + 1][3]) };
#pragma unroll
        for (int j = 0; j < PARTS; j += 2) {
            uint32_t part[4];
            load_four_across(part, right + k * 16 * ROW + j * 8);
            multiply(out[j], rows, part[0], part[1]);
            multiply(out[j + 1], rows, part[2], part[3]);
        }
    }
}

/* What this warp's 16 keys from key0 on have of 32 queries, which begin at `half` of the tile at row0. */
__device__ __forceinline__ void add_queries(struct short_room &m, const struct heads &h,
                                            int key0, int row0, int half, float dk[PARTS][4],
                                            float dv[PARTS][4])
{
    const int lane = threadIdx.x % WARP, query0 = row0 + half;
    const int key = key0 + lane / 4, column = lane % 4 * 2;
    const float scale = h.scale * 1.44269504F; /* weights are powers of two */
    const bool hides =
        (h.causal && key0 + 15 > query0) || query0 + HALF > h.tokens || key0 + 16 > h.tokens;
    float p[HALF / 8][4], ds[HALF / 8][4];

    make_scores(p, m.keys + key0 * ROW, m.queries + query0 * ROW);
    make_scores(ds, m.values + key0 * ROW, m.flows + query0 * ROW);
#pragma unroll
    for (int j = 0; j < HALF / 8; j++) {
        const float2 lse = *(const float2 *)(m.lse + query0 + j * 8 + column);
        const float2 delta = *(const float2 *)(m.delta + query0 + j * 8 + column);
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const int i = query0 + j * 8 + column + e % 2, k = key + e / 2 * 8;
            p[j][e] = quick_power(fmaf(p[j][e], scale, e % 2 ? -lse.y : -lse.x));
            if (hides && (i >= h.tokens || k >= h.tokens || (h.causal && k > i)))
                p[j][e] = 0;
            ds[j][e] = p[j][e] * (ds[j][e] - (e % 2 ? delta.y : delta.x)) * h.scale;
        }
#pragma unroll
        for (int e = 0; e < 4; e += 2)
            *(uint32_t *)(m.slopes + (key + e / 2 * 8) * ROW + half + j * 8 + column) =
                pair_of(ds[j][e], ds[j][e + 1]);
    }
    add_rows(dv, p, m.flows + query0 * ROW);
    add_rows(dk, ds, m.queries + query0 * ROW);
}

/* 16 rows of `to` from the sums of a warp, of COUNT eights of columns. */
template <int COUNT>
__device__ __forceinline__ void put_rows(bf16 *to, const float sums[COUNT][4], int first,
                                         int column0, int row, const struct heads &h)
{
    const int lane = threadIdx.x % WARP;

#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int i = first + lane / 4 + half * 8;
#pragma unroll
        for (int j = 0; j < COUNT; j++) {
            if (i < h.tokens && column0 + j * 8 < h.size)
                *(uint32_t *)(to + (int64_t)i * row + column0 + j * 8 + lane % 4 * 2) =
                    pair_of(sums[j][2 * half], sums[j][2 * half + 1]);
        }
    }
}

/* The gradient of 16 of the tile's queries, and 16 of their numbers, from slopes by keys before `end`. */
__device__ __forceinline__ void
make_query_grad(const struct short_room &m, const struct heads &h, int row0, int end, bf16 *dq)
{
    const int lane = threadIdx.x % WARP, matrix = lane / 8, warp = threadIdx.x / WARP;
    const int query = warp / 4 * 16, column = warp % 4 * 16;
    const bf16 *left = m.slopes + (matrix / 2 * 8 + lane % 8) * ROW + query + matrix % 2 * 8;
    const bf16 *right = m.keys + (matrix % 2 * 8 + lane % 8) * ROW + column + matrix / 2 * 8;
    float sums[2][4] = {};

#pragma unroll 4
    for (int k = 0; k < end; k += 16) {
        uint32_t rows[4], part[4];
        load_four_across(rows, left + k * ROW);
        load_four_across(part, right + k * ROW);
        multiply(sums[0], rows, part[0], part[1]);
        multiply(sums[1], rows, part[2], part[3]);
    }
    put_rows<2>(dq, sums, row0 + query, column, h.row, h);
}

__device__ __forceinline__ void await_tiles(int left)
{
    if (left >= 3)
        await_copies<3>();
    else if (left == 2)
        await_copies<2>();
    else if (left == 1)
        await_copies<1>();
    else
        await_copies<0>();
}

__global__ void __launch_bounds__(SHORT_THREADS, 1)
    short_grads(struct heads h, const bf16 *dy, const bf16 *qkv, const bf16 *y,
                const float *lse, bf16 *dqkv)
{
    extern __shared__ __align__(128) char shared[];
    struct short_room &m = *(struct short_room *)shared;
    const int head = blockIdx.x, n = blockIdx.y, key0 = (int)threadIdx.x / WARP * 16;
    const int tiles = (h.tokens + SIDE - 1) / SIDE;
    float dk[PARTS][4] = {}, dv[PARTS][4] = {};

    for (int t = 0; t < tiles; t++) {
        ask_rows(m.keys, part_of(h, qkv, n, head, 1), t * SIDE, h.row, h);
        ask_rows(m.values, part_of(h, qkv, n, head, 2), t * SIDE, h.row, h);
        ask_rows(m.queries, part_of(h, qkv, n, head, 0), t * SIDE, h.row, h);
        ask_rows(m.flows, output_of(h, dy, n, head), t * SIDE, h.out_row, h);
        copies_asked();
    }
#pragma unroll
    for (int t = 0; t < TILES; t++)
        make_delta(m.delta, output_of(h, dy, n, head), output_of(h, y, n, head), t * SIDE, h);
    if (threadIdx.x < SHORT_MOST)
        m.lse[threadIdx.x] =
            (int)threadIdx.x < h.tokens
                ? lse[((int64_t)n * h.tokens + threadIdx.x) * h.heads + head] * 1.44269504F
                : INFINITY;
    for (int t = 0; t < tiles; t++) {
        const int row0 = t * SIDE, end = h.causal ? row0 + SIDE : tiles * SIDE;

        await_tiles(h.causal ? tiles - 1 - t : 0);
        __syncthreads();
        if (key0 < end) {
            add_queries(m, h, key0, row0, 0, dk, dv);
            add_queries(m, h, key0, row0, HALF, dk, dv);
        }
        __syncthreads();
        make_query_grad(m, h, row0, end, part_of(h, dqkv, n, head, 0));
    }
    put_rows<PARTS>(part_of(h, dqkv, n, head, 1), dk, key0, 0, h.row, h);
    put_rows<PARTS>(part_of(h, dqkv, n, head, 2), dv, key0, 0, h.row, h);
}

static bool attention_grad_can_run(const struct kernel_problem *p)
{
    const int64_t size = size_of_heads(p, 1), tokens = p->in[1].shape.dim[1];

    return p->in[1].dtype == DTYPE_BF16 && p->n_in == 4 && size % EACH == 0 && size > 32 &&
           size <= SHORT_SIZE && tokens > SIDE && tokens <= SHORT_MOST &&
           p->in[1].shape.dim[0] <= GRID_MAX && sizeof(struct short_room) <= cuda_shared_bytes;
}

static void run_attention_grad(const struct kernel_call *call)
{
    const struct kernel_problem *p = call->problem;
    const struct heads h = heads_of(p, &p->in[1].shape, NULL);

    allow_shared(call, short_grads, sizeof(struct short_room));
    short_grads<<<dim3((unsigned)h.heads, (unsigned)h.sequences), SHORT_THREADS,
                  sizeof(struct short_room), stream_of(call)>>>(
        h, (const bf16 *)call->in[0], (const bf16 *)call->in[1], (const bf16 *)call->in[2],
        (const float *)call->in[3], (bf16 *)call->out[0]);
    stream_check(call->stream, "attention_grad");
}

extern "C" const struct kernel cuda_attention_short_rows[] = {
    { "attention_grad", "short", attention_grad_can_run, NULL, NULL, NULL, run_attention_grad },
    { NULL, NULL, NULL, NULL, NULL, NULL, NULL },
};
