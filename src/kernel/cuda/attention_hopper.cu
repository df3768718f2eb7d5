/* SPDX-License-Identifier: MIT */
/* attention_hopper.cu - causal attention of bf16 and its gradients over short sequences, by products of four warps (wgmma) of what the copy
 * engine brings: 256 tokens and heads of 64 numbers at most.
 *
 * All of a head fits into shared memory, in tiles of 64 tokens by 64 numbers, zeros past the last token and the head's last number. Forward,
 * a group of four warps has a head and begins when a quarter of it is there; three such groups share a multiprocessor.
 *
 * Backward, a block has a head at a time while the next is on its way. One group brings tiles and makes lse and delta of their queries. Two have
 * keys, the first those of tiles 0 and 3, the other those of 1 and 2, which is as much work: who is early is seen by more. They go
 * through the queries, a tile at a time; scores are made transposed, so that weights are where the products that make gradients of keys and
 * values want them, and those sums stay in registers. The slopes of scores also go to shared memory, of which one of the two makes the
 * gradient of the tile's queries. Nobody adds to what another adds to, so sums have one order.
 *
 * How sums lie in threads: hopper.cuh. Weights are powers of two: scores are scaled by log2(e), too.
 */
#include <limits.h>

#include "kernel/cuda/attention_hopper.cuh"

enum {
    TILES = 4,    /* of a sequence, at most */
    TOGETHER = 3, /* groups of a multiprocessor */
};

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
    reads_before_engines(); /* the next tile's queries come to the same place */
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

/* Backward ------------------------------------------------------------------------------- */

enum {
    KEEPERS = 2,               /* groups that have keys */
    BACK_GROUPS = KEEPERS + 1, /* and the one that brings tiles */
    KEEPER_REGISTERS = 224,    /* of what they are launched with, 168 each */
    BRINGER_REGISTERS = 56,
    BLOCKS = 132, /* as many as an H200 has multiprocessors; no bit depends on it */
};

/* Where the two meet: slopes of a row are there; the one that made queries of them reads them no more, a barrier for each: who is a
 * tile ahead and waits for the other's would be taken for the other that waits for its own. And a group by itself. */
enum { SLOPES_THERE = 1, SLOPES_FREE, OWN = SLOPES_FREE + KEEPERS };

struct backward_room {
    bf16 keys[2][TILES][TILE], values[2][TILES][TILE]; /* of this head and the next */
    bf16 queries[TILES][TILE], flows[TILES][TILE];
    bf16 slopes[TILES][TILE];     /* of scores: a row a key, of 64 queries */
    float2 numbers[TILES * SIDE]; /* of a query: lse, in powers of two, and delta */
    /* Tile t of queries and all that comes with it is there, is not needed any more. Who has left that of a head has left all keys of
     * the head before, whose place the next but one takes. */
    uint64_t there[TILES], free[TILES];
};

/* Tiles t of a head, into the k-th place for keys and values. */
__device__ __forceinline__ void ask_tiles(struct backward_room &m, const CUtensorMap *qkv,
                                          const CUtensorMap *dy, const struct heads &h, int at,
                                          int t, int k)
{
    const int head = at % h.heads, n = at / h.heads;

    barrier_expect(&m.there[t], 4 * TILE_BYTES);
    box_load(m.keys[k][t], qkv, &m.there[t], 0, h.heads + head, t * SIDE, n);
    box_load(m.queries[t], qkv, &m.there[t], 0, head, t * SIDE, n);
    box_load(m.values[k][t], qkv, &m.there[t], 0, 2 * h.heads + head, t * SIDE, n);
    box_load(m.flows[t], dy, &m.there[t], 0, head, t * SIDE, n);
}

template <int COUNT>
__device__ __forceinline__ void bring(struct backward_room &m, const CUtensorMap *qkv,
                                      const CUtensorMap *flows, const struct heads &h,
                                      const bf16 *dy, const bf16 *y, const float *lse)
{
    const int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP % GROUP_WARPS;
    const bool asks = warp == 0 && lane == 0;
    int k = 0;

    for (int t = 0; t < COUNT && asks; t++)
        ask_tiles(m, qkv, flows, h, (int)blockIdx.x, t, 0);
    for (int at = (int)blockIdx.x; at < h.sequences * h.heads; at += (int)gridDim.x, k++) {
        const int head = at % h.heads, n = at / h.heads;
#pragma unroll 1
        for (int t = 0; t < COUNT; t++) {
            const int first = t * SIDE + warp * 16;
            const float2 numbers = numbers_of(h, dy, y, lse, n, head, first);

            barrier_wait(&m.free[t], (k + 1) & 1);
            if (asks && k > 0)
                ask_tiles(m, qkv, flows, h, at, t, k & 1);
            if (lane % 8 < 4)
                m.numbers[first + lane % 4 * 4 + lane / 8] = numbers;
            warp_arrives(&m.there[t]);
        }
    }
}

/* What 64 keys have of tile i of queries: their gradients and the slopes, which go to shared memory once those of the
 * row before are not needed any more. HIDES: these are the queries' own keys. `waits`: the OTHER group may still read. */
template <bool HIDES, int OTHER>
__device__ __forceinline__ void add_queries(struct backward_room &m, const struct heads &h,
                                            const bf16 *keys, const bf16 *values, int i,
                                            float (&dk)[SUMS], float (&dv)[SUMS], bf16 *slopes,
                                            bool &waits)
{
    const float scale = h.scale * LOG2_E;
    const float4 *numbers = (const float4 *)(m.numbers + i * SIDE + column_of_thread());
    float p[SUMS], ds[SUMS];
    uint32_t weights[STEPS][4], down[STEPS][4];

    products_begin();
    begin_scores(p, keys, m.queries[i]);
    products_end();
    begin_scores(ds, values, m.flows[i]);
    products_end();
    products_wait<1>();
    products_made(p);
#pragma unroll
    for (int n = 0; n < SUMS; n += 4) {
        const float4 two = numbers[n];
#pragma unroll
        for (int e = n; e < n + 4; e++) {
            p[e] = quick_power(fmaf(p[e], scale, e % 2 ? -two.z : -two.x));
            if (HIDES && row_of_thread() + e % 4 / 2 * 8 > n * 2 + column_of_thread() + e % 2)
                p[e] = 0;
        }
    }
    products_wait<0>();
    products_made(ds);
#pragma unroll
    for (int n = 0; n < SUMS; n += 4) {
        const float4 two = numbers[n];
#pragma unroll
        for (int e = n; e < n + 4; e += 2) {
            weights[n / 8][e / 2 % 4] = pair_of(p[e], p[e + 1]);
            down[n / 8][e / 2 % 4] = pair_of(p[e] * (ds[e] - two.y) * h.scale,
                                             p[e + 1] * (ds[e + 1] - two.w) * h.scale);
        }
    }
    if (waits)
        meet(SLOPES_FREE + OTHER, KEEPERS * GROUP);
    else
        meet(OWN + 1 - OTHER, GROUP); /* all of this group have read them */
    waits = false;
#pragma unroll
    for (int k = 0; k < STEPS; k++) /* before a product has these registers */
        store_four(corner_of(slopes, k), down[k]);
    stores_to_engines();
    products_made(dv);
    products_made(dk);
    products_begin();
    begin_rows(dv, weights, m.flows[i], !HIDES);
    begin_rows(dk, down, m.queries[i], !HIDES);
    products_end();
    products_wait<0>();
    products_made(dv);
    products_made(dk);
}

/* The gradient of tile i of queries, from slopes of all keys that they see, by group WHICH. */
template <int WHICH>
__device__ __forceinline__ void make_queries(struct backward_room &m, const struct heads &h,
                                             const bf16 (*keys)[TILE], int i, bf16 *to)
{
    const float one[2] = { 1, 1 };
    float dq[SUMS];

    meet(SLOPES_THERE, KEEPERS * GROUP);
    products_begin();
#pragma unroll
    for (int j = 0; j <= i; j++) {
#pragma unroll
        for (int k = 0; k < STEPS; k++)
            wide<SIDE>::multiply<1, 1>(dq, matrix_of(m.slopes[j]) + ACROSS * k,
                                       matrix_of(keys[j]) + ACROSS * k, j + k > 0);
    }
    products_end();
    products_wait<0>();
    products_made(dq);
    meet_passing(SLOPES_FREE + WHICH, KEEPERS * GROUP);
    store_tile(to, dq, one, i, h.row, h);
}

/* WHICH of the two groups that have keys, of sequences of COUNT tiles. */
template <int WHICH, int COUNT>
__device__ __forceinline__ void keep(struct backward_room &m, const struct heads &h, bf16 *dqkv)
{
    enum { OTHER = 1 - WHICH };
    const float one[2] = { 1, 1 };
    bool waits = false; /* the other group makes gradients of the queries before these */
    int k = 0;

    for (int at = (int)blockIdx.x; at < h.sequences * h.heads; at += (int)gridDim.x, k++) {
        const bf16(*keys)[TILE] = m.keys[k & 1], (*values)[TILE] = m.values[k & 1];
        bf16 *to = part_of(h, dqkv, at / h.heads, at % h.heads, 0);
        float dk[2][SUMS], dv[2][SUMS];

#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            barrier_wait(&m.there[i], k & 1);
#pragma unroll
            for (int c = 0; c < 2; c++) {
                const int j = c == 0 ? WHICH : TILES - 1 - WHICH;
                if (j > i)
                    continue;
                if (j == i)
                    add_queries<true, OTHER>(m, h, keys[j], values[j], i, dk[c], dv[c],
                                             m.slopes[j], waits);
                else
                    add_queries<false, OTHER>(m, h, keys[j], values[j], i, dk[c], dv[c],
                                              m.slopes[j], waits);
                if (i < COUNT - 1)
                    continue;
                store_tile(to + h.out_row, dk[c], one, j, h.row, h);
                store_tile(to + 2 * h.out_row, dv[c], one, j, h.row, h);
            }
            warp_arrives(&m.free[i]);
            if (waits)
                meet(SLOPES_FREE + OTHER, KEEPERS * GROUP);
            waits = WHICH != (i == 0 || i == TILES - 1); /* the other has less to do */
            if (waits)
                meet_passing(SLOPES_THERE, KEEPERS * GROUP);
            else
                make_queries<WHICH>(m, h, keys, i, to);
        }
    }
    if (waits) /* nobody is left at a barrier */
        meet(SLOPES_FREE + OTHER, KEEPERS * GROUP);
}

template <int COUNT>
__global__ void __launch_bounds__(BACK_GROUPS *GROUP, 1)
    grads_short(const __grid_constant__ CUtensorMap qkv,
                const __grid_constant__ CUtensorMap flows, struct heads h, const bf16 *dy,
                const bf16 *y, const float *lse, bf16 *dqkv)
{
    extern __shared__ __align__(1024) char shared[];
    struct backward_room &m = *(struct backward_room *)shared;
    const int group = (int)threadIdx.x / GROUP;

    if (threadIdx.x == 0) {
        for (int t = 0; t < TILES; t++) {
            barrier_make(&m.there[t], 1 + GROUP_WARPS);
            barrier_make(&m.free[t], KEEPERS * GROUP_WARPS);
        }
        barriers_made();
    }
    __syncthreads();
    if (group == KEEPERS) {
        registers_give<BRINGER_REGISTERS>();
        bring<COUNT>(m, &qkv, &flows, h, dy, y, lse);
    } else if (group == 0) {
        registers_take<KEEPER_REGISTERS>();
        keep<0, COUNT>(m, h, dqkv);
    } else {
        registers_take<KEEPER_REGISTERS>();
        keep<1, COUNT>(m, h, dqkv);
    }
}

/* The ops ------------------------------------------------------------------------------- */

static bool fits(const struct kernel_problem *p, int qkv, int inputs)
{
    const int64_t size = size_of_heads(p, qkv), tokens = p->in[qkv].shape.dim[1];

    return cuda_capability == CAPABILITY_HOPPER && p->in[qkv].dtype == DTYPE_BF16 &&
           p->attrs.causal && p->n_in == inputs && size % 8 == 0 && size > SIDE / 2 &&
           size <= SIDE && tokens > SIDE && tokens <= TILES * SIDE &&
           p->in[qkv].shape.dim[0] * p->attrs.heads <= INT_MAX;
}

static bool attention_can_run(const struct kernel_problem *p)
{
    return fits(p, 0, 1);
}

static bool attention_grad_can_run(const struct kernel_problem *p)
{
    return fits(p, 1, 4);
}

static void run_attention(const struct kernel_call *call)
{
    const struct heads h = heads_of(call->problem, &call->problem->in[0].shape, NULL);
    CUtensorMap qkv;

    if (!map_heads(call, &qkv, call->in[0], 3, h))
        return;
    allow_shared(call, attend_short, sizeof(struct forward_room));
    attend_short<<<h.sequences * h.heads, GROUP, sizeof(struct forward_room),
                   stream_of(call)>>>(qkv, h, (bf16 *)call->out[0], (float *)call->out[1]);
    stream_check(call->stream, "attention");
}

template <int COUNT>
static void launch_grads(const struct kernel_call *call, const struct heads &h)
{
    const int heads = h.sequences * h.heads, blocks = heads < BLOCKS ? heads : BLOCKS;
    const size_t bytes = sizeof(struct backward_room);
    CUtensorMap qkv, flows;

    if (!map_heads(call, &qkv, call->in[1], 3, h) ||
        !map_heads(call, &flows, call->in[0], 1, h))
        return;
    allow_shared(call, grads_short<COUNT>, bytes);
    grads_short<COUNT><<<blocks, BACK_GROUPS * GROUP, bytes, stream_of(call)>>>(
        qkv, flows, h, (const bf16 *)call->in[0], (const bf16 *)call->in[2],
        (const float *)call->in[3], (bf16 *)call->out[0]);
    stream_check(call->stream, "attention_grad");
}

static void run_attention_grad(const struct kernel_call *call)
{
    const struct heads h = heads_of(call->problem, &call->problem->in[1].shape, NULL);

    if (h.tokens <= 2 * SIDE)
        launch_grads<2>(call, h);
    else
        launch_grads<TILES>(call, h);
}

extern "C" const struct kernel cuda_attention_hopper_rows[] = {
    { "attention", "hopper", attention_can_run, NULL, NULL, NULL, run_attention },
    { NULL, NULL, NULL, NULL, NULL, NULL, NULL },
};

extern "C" const struct kernel cuda_attention_hopper_grad_rows[] = {
    { "attention_grad", "hopper", attention_grad_can_run, NULL, NULL, NULL,
      run_attention_grad },
    { NULL, NULL, NULL, NULL, NULL, NULL, NULL },
};
