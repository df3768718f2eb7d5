/* SPDX-License-Identifier: MIT */
/* attention_long.cu - gradients of causal attention of bf16 over sequences of any length, heads of 64 numbers at most, on Hopper.
 *
 * A block has a head at a time and goes through its keys by 128, and for these through all tiles of 64 queries that see them. Two groups of
 * four warps, keepers, have 64 keys each, whose gradients and those of their values stay in registers; scores are made transposed, as the products after
 * them want their left operand. Slopes of scores go to shared memory, of which a third group makes what these 128 keys give the
 * gradient of the queries, and adds it to what the keys before gave: sums that only its own threads read, in f32, in memory that the second cache
 * holds. The keys that come last for a query are its own, so that is when its gradient is done. All sums have one order, and nothing is as
 * large as scores are many.
 *
 * The third group also asks for tiles. Who has given slopes of tile n has done with all that it has of tile n - 1; so once these slopes are used,
 * tile n + 2 may take the place of n - 1, its slopes that of n's, and keys that come with it those of the lot before the last. That it is there says so to
 * the keepers. A tile comes with lse and delta of its queries, which a launch before has made.
 */
#include <limits.h>

#include "kernel/cuda/attention_hopper.cuh"

enum {
    KEEPERS = 2, /* a third one would let two tiles pass, of which there may be one */
    GROUPS = KEEPERS + 1,
    KEEPER_REGISTERS = 208, /* of what they are launched with, 168 each */
    MAKER_REGISTERS = 88,
    AHEAD = 2,
    STAGES = AHEAD + 1, /* tiles of queries in shared memory */
    TURNS = 2,          /* of keys and of slopes */
    BLOCKS = 132,       /* as many as an H200 has multiprocessors; no bit depends on it */
};

struct long_room {
    bf16 keys[TURNS][KEEPERS][TILE], values[TURNS][KEEPERS][TILE];
    bf16 queries[STAGES][TILE], flows[STAGES][TILE];
    bf16 slopes[TURNS][KEEPERS][TILE]; /* of scores: a row a key, of 64 queries */
    float2 numbers[STAGES][SIDE];      /* of a query: lse, in powers of two, and delta */
    uint64_t there[STAGES], keys_there[TURNS], slopes_there[TURNS];
};

/* Where a group is: the head, the first of its tiles of keys, the tile of queries; how many tiles of queries and how many lots of keys
 * came before. */
struct walk {
    int at, key, query, n, lot;
    __device__ walk() : at((int)blockIdx.x), key(0), query(0), n(0), lot(0)
    {
    }
    __device__ bool goes_on(const struct heads &h) const
    {
        return at < h.sequences * h.heads;
    }
    __device__ bool begins_lot() const
    {
        return query == key;
    }
    __device__ void next(int tiles)
    {
        n++;
        if (++query < tiles)
            return;
        lot++;
        key += KEEPERS;
        if (key >= tiles) {
            key = 0;
            at += (int)gridDim.x;
        }
        query = key;
    }
};

/* The n-th time that a barrier of `turns` in turn is waited for. */
__device__ __forceinline__ void await(uint64_t *barriers, int turns, int n)
{
    barrier_wait(&barriers[n % turns], n / turns & 1);
}

/* Queries ---------------------------------------------------------------------------------- */

/* lse and delta of 64 queries a block, (sequence, head, query): queries past the last one weigh nothing. */
__global__ void __launch_bounds__(GROUP)
    make_numbers(struct heads h, int tiles, const bf16 *dy, const bf16 *y, const float *lse,
                 float2 *numbers)
{
    const int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP;
    const int at = (int)blockIdx.x / tiles, first = (int)blockIdx.x % tiles * SIDE + warp * 16;
    const float2 own = numbers_of(h, dy, y, lse, at / h.heads, at % h.heads, first);

    if (lane % 8 < 4)
        numbers[(int64_t)at * tiles * SIDE + first + lane % 4 * 4 + lane / 8] = own;
}

struct maps {
    CUtensorMap qkv, flows;
};

/* A tile of queries, and with the first one of a lot its keys. */
__device__ static void ask(struct long_room &m, const struct maps &maps, const struct heads &h,
                           int tiles, const float2 *numbers, const struct walk &to)
{
    const int head = to.at % h.heads, n = to.at / h.heads, s = to.n % STAGES;
    const int first = to.query * SIDE, k = to.lot % TURNS;

    barrier_expect(&m.there[s], 2 * TILE_BYTES + sizeof m.numbers[s]);
    box_load(m.queries[s], &maps.qkv, &m.there[s], 0, head, first, n);
    box_load(m.flows[s], &maps.flows, &m.there[s], 0, head, first, n);
    bytes_load(m.numbers[s], numbers + (int64_t)to.at * tiles * SIDE + first,
               sizeof m.numbers[s], &m.there[s]);
    if (!to.begins_lot())
        return;
    barrier_expect(&m.keys_there[k], 2 * KEEPERS * TILE_BYTES);
    for (int g = 0; g < KEEPERS; g++) {
        const int key = (to.key + g) * SIDE;
        box_load(m.keys[k][g], &maps.qkv, &m.keys_there[k], 0, h.heads + head, key, n);
        box_load(m.values[k][g], &maps.qkv, &m.keys_there[k], 0, 2 * h.heads + head, key, n);
    }
}

/* sums: of this block, a tile of queries after the other, each thread's own. */
__device__ static void make_queries(struct long_room &m, const struct maps &maps,
                                    const struct heads &h, int tiles, const float2 *numbers,
                                    float4 *sums, bf16 *dqkv)
{
    const int own = (int)threadIdx.x % GROUP;
    const float one[2] = { 1, 1 };
    struct walk ahead;

    for (int t = 0; own == 0 && t < AHEAD && ahead.goes_on(h); t++, ahead.next(tiles))
        ask(m, maps, h, tiles, numbers, ahead);
    for (struct walk now; now.goes_on(h); now.next(tiles)) {
        const int turn = now.n % TURNS, k = now.lot % TURNS;
        float4 *const before = sums + (int64_t)now.query * (SUMS / 4) * GROUP + own;
        float dq[SUMS];

#pragma unroll
        for (int i = 0; i < SUMS / 4; i++) {
            const float4 four =
                now.key > 0 ? __ldcg(before + i * GROUP) : make_float4(0, 0, 0, 0);
            dq[4 * i] = four.x, dq[4 * i + 1] = four.y;
            dq[4 * i + 2] = four.z, dq[4 * i + 3] = four.w;
        }
        if (now.begins_lot())
            await(m.keys_there, TURNS, now.lot);
        await(m.slopes_there, TURNS, now.n);
        products_made(dq);
        products_begin();
#pragma unroll
        for (int g = 0; g < KEEPERS; g++) {
#pragma unroll
            for (int i = 0; i < STEPS; i++)
                wide<SIDE>::multiply<1, 1>(dq, matrix_of(m.slopes[turn][g]) + ACROSS * i,
                                           matrix_of(m.keys[k][g]) + ACROSS * i, 1);
        }
        products_end();
        products_wait<0>();
        products_made(dq);
        if (own == 0 && ahead.goes_on(h))
            ask(m, maps, h, tiles, numbers, ahead);
        __syncwarp();
        ahead.next(tiles);
        if (now.query < now.key + KEEPERS) { /* their own keys, which are the last */
            bf16 *to = part_of(h, dqkv, now.at / h.heads, now.at % h.heads, 0);
            store_tile(to, dq, one, now.query, h.row, h);
            continue;
        }
#pragma unroll
        for (int i = 0; i < SUMS / 4; i++)
            before[i * GROUP] =
                make_float4(dq[4 * i], dq[4 * i + 1], dq[4 * i + 2], dq[4 * i + 3]);
    }
}

/* Keys ------------------------------------------------------------------------------------- */

/* Weights of 64 keys for a tile of queries from their scores. hides: these are the queries' own keys. */
__device__ __forceinline__ void weigh(float (&p)[SUMS], const struct heads &h,
                                      const float4 *numbers, bool hides)
{
    const float scale = h.scale * LOG2_E;

#pragma unroll
    for (int n = 0; n < SUMS; n += 4) {
        const float4 two = numbers[n];
#pragma unroll
        for (int e = n; e < n + 4; e++)
            p[e] = quick_power(fmaf(p[e], scale, e % 2 ? -two.z : -two.x));
    }
    if (!hides)
        return;
#pragma unroll
    for (int e = 0; e < SUMS; e++) {
        if (row_of_thread() + e % 4 / 2 * 8 > e / 4 * 8 + column_of_thread() + e % 2)
            p[e] = 0;
    }
}

/* Weights and slopes as left operands. */
__device__ __forceinline__ void slope(const float (&p)[SUMS], const float (&ds)[SUMS],
                                      const struct heads &h, const float4 *numbers,
                                      uint32_t (&weights)[STEPS][4],
                                      uint32_t (&slopes)[STEPS][4])
{
#pragma unroll
    for (int n = 0; n < SUMS; n += 4) {
        const float4 two = numbers[n];
#pragma unroll
        for (int e = n; e < n + 4; e += 2) {
            weights[n / 8][e / 2 % 4] = pair_of(p[e], p[e + 1]);
            slopes[n / 8][e / 2 % 4] = pair_of(p[e] * (ds[e] - two.y) * h.scale,
                                               p[e + 1] * (ds[e + 1] - two.w) * h.scale);
        }
    }
}

__device__ __forceinline__ void give_slopes(struct long_room &m, int g, const struct walk &now,
                                            const uint32_t (&slopes)[STEPS][4])
{
#pragma unroll
    for (int i = 0; i < STEPS; i++)
        store_four(corner_of(m.slopes[now.n % TURNS][g], i), slopes[i]);
    stores_to_engines();
    warp_arrives(&m.slopes_there[now.n % TURNS]);
}

/* A tile of queries that do not see the keys of group g. */
__device__ static void pass(struct long_room &m, int g, const struct walk &now)
{
    const uint32_t none[STEPS][4] = {};

    await(m.there, STAGES, now.n);
    give_slopes(m, g, now, none);
}

/* All tiles of queries that see 64 keys, from the first, which are these tokens' own; `now` is past them then. Products of a tile
 * are waited for when scores of the next are. */
__device__ static void add_queries(struct long_room &m, const struct heads &h, int tiles, int g,
                                   struct walk &now, float (&dk)[SUMS], float (&dv)[SUMS])
{
    const int lot = now.lot, k = lot % TURNS;
    uint32_t weights[STEPS][4], slopes[STEPS][4];
    bool begins = true;

    for (; now.lot == lot; now.next(tiles), begins = false) {
        const int s = now.n % STAGES;
        const float4 *numbers = (const float4 *)(m.numbers[s] + column_of_thread());
        float p[SUMS], ds[SUMS];

        await(m.there, STAGES, now.n);
        products_begin();
        begin_scores(p, m.keys[k][g], m.queries[s]);
        products_end();
        begin_scores(ds, m.values[k][g], m.flows[s]);
        products_end();
        products_wait<1>();
        products_made(p);
        products_made(dv);
        products_made(dk);
        weigh(p, h, numbers, begins);
        products_wait<0>();
        products_made(ds);
        slope(p, ds, h, numbers, weights, slopes);
        give_slopes(m, g, now, slopes); /* before a product has these registers */
        products_begin();
        begin_rows(dv, weights, m.flows[s], !begins);
        begin_rows(dk, slopes, m.queries[s], !begins);
        products_end();
    }
    products_wait<0>();
    products_made(dv);
    products_made(dk);
}

/* Group g of those that have keys: the tile of queries that the g keepers before it have alone goes by. */
__device__ static void keep(struct long_room &m, const struct heads &h, int tiles, int g,
                            bf16 *dqkv)
{
    const float one[2] = { 1, 1 };

    for (struct walk now; now.goes_on(h);) {
        const int lot = now.lot, key = now.key + g;
        bf16 *const to = part_of(h, dqkv, now.at / h.heads, now.at % h.heads, 1);
        float dk[SUMS], dv[SUMS];

        await(m.keys_there, TURNS, lot);
        for (int i = 0; i < g; i++, now.next(tiles))
            pass(m, g, now);
        if (now.lot != lot) /* there are no such keys */
            continue;
        add_queries(m, h, tiles, g, now, dk, dv);
        store_tile(to, dk, one, key, h.row, h);
        store_tile(to + h.out_row, dv, one, key, h.row, h);
    }
}

__global__ void __launch_bounds__(GROUPS *GROUP, 1)
    grads_long(const __grid_constant__ struct maps maps, struct heads h, int tiles,
               const float2 *numbers, float4 *sums, bf16 *dqkv)
{
    extern __shared__ char raw[];
    struct long_room &m = *(struct long_room *)align_up(raw);
    const int group = (int)threadIdx.x / GROUP;

    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; s++)
            barrier_make(&m.there[s], 1);
        for (int turn = 0; turn < TURNS; turn++) {
            barrier_make(&m.keys_there[turn], 1);
            barrier_make(&m.slopes_there[turn], KEEPERS * GROUP_WARPS);
        }
        barriers_made();
    }
    __syncthreads();
    if (group == KEEPERS) {
        registers_give<MAKER_REGISTERS>();
        make_queries(m, maps, h, tiles, numbers,
                     sums + (int64_t)blockIdx.x * tiles * (SUMS / 4) * GROUP, dqkv);
    } else {
        registers_take<KEEPER_REGISTERS>();
        keep(m, h, tiles, group, dqkv);
    }
}

/* The op ----------------------------------------------------------------------------------- */

static int tiles_of(const struct kernel_problem *p)
{
    return (int)blocks_of(p->in[1].shape.dim[1], SIDE);
}

static int64_t heads_in(const struct kernel_problem *p)
{
    return p->in[1].shape.dim[0] * p->attrs.heads;
}

static bool can_run(const struct kernel_problem *p)
{
    const int64_t size = size_of_heads(p, 1), tokens = p->in[1].shape.dim[1];

    return cuda_capability == CAPABILITY_HOPPER && p->in[1].dtype == DTYPE_BF16 &&
           p->attrs.causal && p->n_in == 4 && size % 8 == 0 && size > SIDE / 2 &&
           size <= SIDE && tokens > SIDE && heads_in(p) * tiles_of(p) <= INT_MAX;
}

static size_t numbers_bytes(const struct kernel_problem *p)
{
    return (size_t)(heads_in(p) * tiles_of(p) * SIDE) * sizeof(float2);
}

static int64_t blocks_for(const struct kernel_problem *p)
{
    return heads_in(p) < BLOCKS ? heads_in(p) : BLOCKS;
}

static size_t scratch_bytes(const struct kernel_problem *p)
{
    return numbers_bytes(p) + (size_t)(blocks_for(p) * tiles_of(p) * TILE) * sizeof(float);
}

static void run(const struct kernel_call *call)
{
    const struct kernel_problem *p = call->problem;
    const struct heads h = heads_of(p, &p->in[1].shape, NULL);
    const int tiles = tiles_of(p);
    const size_t bytes = sizeof(struct long_room) + ATOM;
    float2 *numbers = (float2 *)call->scratch;
    struct maps maps;

    if (!map_heads(call, &maps.qkv, call->in[1], 3, h) ||
        !map_heads(call, &maps.flows, call->in[0], 1, h))
        return;
    make_numbers<<<(unsigned)(heads_in(p) * tiles), GROUP, 0, stream_of(call)>>>(
        h, tiles, (const bf16 *)call->in[0], (const bf16 *)call->in[2],
        (const float *)call->in[3], numbers);
    allow_shared(call, grads_long, bytes);
    grads_long<<<(unsigned)blocks_for(p), GROUPS * GROUP, bytes, stream_of(call)>>>(
        maps, h, tiles, numbers, (float4 *)((char *)numbers + numbers_bytes(p)),
        (bf16 *)call->out[0]);
    stream_check(call->stream, p->op);
}

extern "C" const struct kernel cuda_attention_long_rows[] = {
    { "attention_grad", "hopper_long", can_run, scratch_bytes, NULL, NULL, run },
    { NULL, NULL, NULL, NULL, NULL, NULL, NULL },
};
