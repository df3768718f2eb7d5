/* SPDX-License-Identifier: MIT */
/* attention_tile.cu - attention of bf16 by tensor cores with scores that never leave registers: heads of 64 numbers at most.
 *
 * Four warps have a tile of 64 rows, each 16 of them, and go through tiles of 64 columns. A product of two tiles is
 * a step m16n8k16 for each 8 columns; how its sums lie in the threads is how the next product wants its left operand,
 * so weights are made and rounded to bf16 in place. Forward's rows are queries; so are those of the gradient of queries. The
 * gradients of keys and values have keys as rows: their scores are made transposed. Nobody adds to what another block
 * adds to, so scores are made twice in backward.
 *
 * A thread's part of 16 x 8 sums c: rows g and g + 8, columns 2t and 2t + 1, where g = lane / 4 and t = lane % 4:
 * c[0], c[1] of row g, c[2], c[3] of row g + 8. Weights are powers of two: scores are scaled by log2(e), too.
 */
#include "kernel/cuda/attention.cuh"
#include "kernel/cuda/mma.cuh"

enum { SIDE = 64, TILE_WARPS = 4, TILE_THREADS = TILE_WARPS * WARP, EIGHTS = SIDE / 8 };

static const float LOG2_E = 1.44269504F, LN_2 = 0.69314718F;

template <int D> struct tile {
    enum { ROW = D + 8, STEPS = D / 16, PARTS = D / 8, ELEMENTS = SIDE * ROW };

    /* Rows [row0, row0 + 64) of a head, zeros past the last token and the head's last number. */
    __device__ static void load(bf16 *to, const bf16 *from, int row0, int row,
                                const struct heads &h)
    {
        for (int i = threadIdx.x; i < SIDE * (D / 8); i += TILE_THREADS) {
            const int r = i / (D / 8), d = i % (D / 8) * 8;
            uint4 x = make_uint4(0, 0, 0, 0);
            if (row0 + r < h.tokens && d < h.size)
                x = *(const uint4 *)(from + (int64_t)(row0 + r) * row + d);
            *(uint4 *)(to + r * ROW + d) = x;
        }
    }

    /* This warp's 16 rows, as left operands. */
    __device__ static void take_rows(uint32_t a[STEPS][4], const bf16 *rows)
    {
        const int lane = threadIdx.x % WARP, matrix = lane / 8;
        const int row = threadIdx.x / WARP * 16 + matrix % 2 * 8 + lane % 8;

#pragma unroll
        for (int s = 0; s < STEPS; s++)
            load_four(a[s], rows + row * ROW + s * 16 + matrix / 2 * 8);
    }

    /* c (16, 64) = a (16, D) b' of a tile b (64, D). */
    __device__ static void scores(float c[EIGHTS][4], const uint32_t a[STEPS][4], const bf16 *b)
    {
        const int lane = threadIdx.x % WARP, matrix = lane / 8;
        const bf16 *own = b + (matrix / 2 * 8 + lane % 8) * ROW + matrix % 2 * 8;

#pragma unroll
        for (int j = 0; j < EIGHTS; j++)
            c[j][0] = c[j][1] = c[j][2] = c[j][3] = 0;
#pragma unroll
        for (int s = 0; s < STEPS; s++) {
#pragma unroll
            for (int j = 0; j < EIGHTS; j += 2) {
                uint32_t part[4];
                load_four(part, own + j * 8 * ROW + s * 16);
                multiply(c[j], a[s], part[0], part[1]);
                multiply(c[j + 1], a[s], part[2], part[3]);
            }
        }
    }

    /* out (16, D) += p x of weights p (16, 64), rounded here, and a tile x (64, D). */
    __device__ static void add(float out[PARTS][4], const float p[EIGHTS][4], const bf16 *x)
    {
        const int lane = threadIdx.x % WARP, matrix = lane / 8;
        const bf16 *own = x + (matrix % 2 * 8 + lane % 8) * ROW + matrix / 2 * 8;

#pragma unroll
        for (int k = 0; k < SIDE / 16; k++) {
            const uint32_t a[4] = { pair_of(p[2 * k][0], p[2 * k][1]),
                                    pair_of(p[2 * k][2], p[2 * k][3]),
                                    pair_of(p[2 * k + 1][0], p[2 * k + 1][1]),
                                    pair_of(p[2 * k + 1][2], p[2 * k + 1][3]) };
#pragma unroll
            for (int j = 0; j < PARTS; j += 2) {
                uint32_t part[4];
                load_four_across(part, own + k * 16 * ROW + j * 8);
                multiply(out[j], a, part[0], part[1]);
                multiply(out[j + 1], a, part[2], part[3]);
            }
        }
    }

    __device__ static void clear(float out[PARTS][4])
    {
#pragma unroll
        for (int j = 0; j < PARTS; j++)
            out[j][0] = out[j][1] = out[j][2] = out[j][3] = 0;
    }

    /* Sums of this warp's rows to memory, rows g times by[0] and g + 8 times by[1]. */
    __device__ static void store(bf16 *to, const float out[PARTS][4], const float by[2],
                                 int row0, int row, const struct heads &h)
    {
        const int lane = threadIdx.x % WARP;
        const int first = row0 + threadIdx.x / WARP * 16 + lane / 4;

#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int i = first + half * 8;
#pragma unroll
            for (int j = 0; j < PARTS; j++) {
                if (i < h.tokens && j * 8 < h.size)
                    *(uint32_t *)(to + (int64_t)i * row + j * 8 + lane % 4 * 2) =
                        pair_of(out[j][2 * half] * by[half], out[j][2 * half + 1] * by[half]);
            }
        }
    }
};

/* Row and column, within a tile, of sum e of eight j. */
__device__ __forceinline__ int row_of(int e)
{
    return threadIdx.x / WARP * 16 + threadIdx.x % WARP / 4 + e / 2 * 8;
}
__device__ __forceinline__ int column_of(int j, int e)
{
    return j * 8 + threadIdx.x % 4 * 2 + e % 2;
}

/* Is there a query in these tiles that does not see a key? */
__device__ __forceinline__ bool has_hidden(const struct heads &h, int row0, int key0)
{
    return h.ids || row0 + SIDE > h.tokens || key0 + SIDE > h.tokens ||
           (h.causal && key0 + SIDE > row0);
}

__device__ __forceinline__ float over_four(float x, bool adds)
{
    const float y = __shfl_xor_sync(0xffffffffU, x, 1);
    x = adds ? x + y : fmaxf(x, y);
    const float z = __shfl_xor_sync(0xffffffffU, x, 2);
    return adds ? x + z : fmaxf(x, z);
}

template <int D>
__global__ void __launch_bounds__(TILE_THREADS)
    attend_tile(struct heads h, const bf16 *qkv, bf16 *y, float *lse)
{
    typedef tile<D> tile;
    __shared__ __align__(16) bf16 keys[tile::ELEMENTS], values[tile::ELEMENTS];
    const int n = blockIdx.y, head = blockIdx.z;
    const int row0 = (int)(gridDim.x - 1 - blockIdx.x) * SIDE; /* the longest first */
    const int end = h.causal && row0 + SIDE < h.tokens ? row0 + SIDE : h.tokens;
    const float scale = h.scale * LOG2_E;
    float out[tile::PARTS][4], largest[2] = { -INFINITY, -INFINITY }, total[2] = { 0, 0 };
    uint32_t queries[tile::STEPS][4];

    tile::clear(out);
    tile::load(keys, part_of(h, qkv, n, head, 0), row0, h.row, h);
    __syncthreads();
    tile::take_rows(queries, keys);
    for (int key0 = 0; key0 < end; key0 += SIDE) {
        float s[EIGHTS][4], most[2] = { -INFINITY, -INFINITY };

        __syncthreads();
        tile::load(keys, part_of(h, qkv, n, head, 1), key0, h.row, h);
        tile::load(values, part_of(h, qkv, n, head, 2), key0, h.row, h);
        __syncthreads();
        tile::scores(s, queries, keys);
        const bool hides = has_hidden(h, row0, key0);
#pragma unroll
        for (int j = 0; j < EIGHTS; j++) {
#pragma unroll
            for (int e = 0; e < 4; e++) {
                s[j][e] *= scale;
                if (hides && !sees(h, n, row0 + row_of(e), key0 + column_of(j, e)))
                    s[j][e] = -INFINITY;
                most[e / 2] = fmaxf(most[e / 2], s[j][e]);
            }
        }
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const float now = fmaxf(largest[half], over_four(most[half], false));
            const float base = now > -INFINITY ? now : 0;
            const float before = largest[half] > -INFINITY ? exp2f(largest[half] - base) : 0;
            float sum = 0;

            largest[half] = now;
#pragma unroll
            for (int j = 0; j < EIGHTS; j++) {
#pragma unroll
                for (int e = 2 * half; e < 2 * half + 2; e++) {
                    s[j][e] = exp2f(s[j][e] - base);
                    sum += s[j][e];
                }
            }
            total[half] = total[half] * before + sum;
#pragma unroll
            for (int j = 0; j < tile::PARTS; j++) {
                out[j][2 * half] *= before;
                out[j][2 * half + 1] *= before;
            }
        }
        tile::add(out, s, values);
    }
    float by[2];
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const float sum = over_four(total[half], true);
        const int i = row0 + row_of(2 * half);
        by[half] = sum > 0 ? 1 / sum : 0;
        if (threadIdx.x % 4 == 0 && i < h.tokens)
            lse[((int64_t)n * h.tokens + i) * h.heads + head] =
                sum > 0 ? (largest[half] + log2f(sum)) * LN_2 : FLT_MAX;
    }
    tile::store(output_of(h, y, n, head), out, by, row0, h.out_row, h);
}

/* lse, in powers of two, and delta of query i. */
__device__ __forceinline__ float2 numbers_of(const struct heads &h,
                                             const struct rows_of_weights &w, int n, int head,
                                             int i)
{
    const int64_t at = ((int64_t)n * h.tokens + i) * h.heads + head;

    return i < h.tokens ? make_float2(w.lse[at] * LOG2_E, w.delta[at])
                        : make_float2(INFINITY, 0);
}

template <int D>
__global__ void __launch_bounds__(TILE_THREADS)
    key_grad_tile(struct heads h, struct rows_of_weights w, const bf16 *dy, const bf16 *qkv,
                  bf16 *dqkv)
{
    typedef tile<D> tile;
    __shared__ __align__(16) bf16 queries[tile::ELEMENTS], flows[tile::ELEMENTS];
    __shared__ float2 numbers[SIDE];
    const int n = blockIdx.y, head = blockIdx.z, key0 = blockIdx.x * SIDE;
    const float scale = h.scale * LOG2_E, one[2] = { 1, 1 };
    uint32_t keys[tile::STEPS][4], values[tile::STEPS][4];
    float dk[tile::PARTS][4], dv[tile::PARTS][4];

    tile::clear(dk);
    tile::clear(dv);
    tile::load(queries, part_of(h, qkv, n, head, 1), key0, h.row, h);
    tile::load(flows, part_of(h, qkv, n, head, 2), key0, h.row, h);
    __syncthreads();
    tile::take_rows(keys, queries);
    tile::take_rows(values, flows);
    for (int row0 = h.causal ? key0 : 0; row0 < h.tokens; row0 += SIDE) {
        float p[EIGHTS][4], ds[EIGHTS][4];

        __syncthreads();
        tile::load(queries, part_of(h, qkv, n, head, 0), row0, h.row, h);
        tile::load(flows, output_of(h, dy, n, head), row0, h.out_row, h);
        if (threadIdx.x < SIDE)
            numbers[threadIdx.x] = numbers_of(h, w, n, head, row0 + threadIdx.x);
        __syncthreads();
        tile::scores(p, keys, queries);
        tile::scores(ds, values, flows);
        const bool hides = has_hidden(h, row0, key0);
#pragma unroll
        for (int j = 0; j < EIGHTS; j++) {
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const int query = column_of(j, e);
                const float2 of = numbers[query];
                p[j][e] = exp2f(p[j][e] * scale - of.x);
                if (hides && !sees(h, n, row0 + query, key0 + row_of(e)))
                    p[j][e] = 0;
                ds[j][e] = p[j][e] * (ds[j][e] - of.y) * h.scale;
            }
        }
        tile::add(dv, p, flows);
        tile::add(dk, ds, queries);
    }
    tile::store(part_of(h, dqkv, n, head, 1), dk, one, key0, h.row, h);
    tile::store(part_of(h, dqkv, n, head, 2), dv, one, key0, h.row, h);
}

template <int D>
__global__ void __launch_bounds__(TILE_THREADS)
    query_grad_tile(struct heads h, struct rows_of_weights w, const bf16 *dy, const bf16 *qkv,
                    bf16 *dqkv)
{
    typedef tile<D> tile;
    __shared__ __align__(16) bf16 keys[tile::ELEMENTS], values[tile::ELEMENTS];
    const int n = blockIdx.y, head = blockIdx.z;
    const int row0 = (int)(gridDim.x - 1 - blockIdx.x) * SIDE;
    const int end = h.causal && row0 + SIDE < h.tokens ? row0 + SIDE : h.tokens;
    const float scale = h.scale * LOG2_E, one[2] = { 1, 1 };
    const float2 of[2] = { numbers_of(h, w, n, head, row0 + row_of(0)),
                           numbers_of(h, w, n, head, row0 + row_of(2)) };
    uint32_t queries[tile::STEPS][4], flows[tile::STEPS][4];
    float dq[tile::PARTS][4];

    tile::clear(dq);
    tile::load(keys, part_of(h, qkv, n, head, 0), row0, h.row, h);
    tile::load(values, output_of(h, dy, n, head), row0, h.out_row, h);
    __syncthreads();
    tile::take_rows(queries, keys);
    tile::take_rows(flows, values);
    for (int key0 = 0; key0 < end; key0 += SIDE) {
        float p[EIGHTS][4], ds[EIGHTS][4];

        __syncthreads();
        tile::load(keys, part_of(h, qkv, n, head, 1), key0, h.row, h);
        tile::load(values, part_of(h, qkv, n, head, 2), key0, h.row, h);
        __syncthreads();
        tile::scores(p, queries, keys);
        tile::scores(ds, flows, values);
        const bool hides = has_hidden(h, row0, key0);
#pragma unroll
        for (int j = 0; j < EIGHTS; j++) {
#pragma unroll
            for (int e = 0; e < 4; e++) {
                float weight = exp2f(p[j][e] * scale - of[e / 2].x);
                if (hides && !sees(h, n, row0 + row_of(e), key0 + column_of(j, e)))
                    weight = 0;
                ds[j][e] = weight * (ds[j][e] - of[e / 2].y) * h.scale;
            }
        }
        tile::add(dq, ds, keys);
    }
    tile::store(part_of(h, dqkv, n, head, 0), dq, one, row0, h.row, h);
}

/* Launches ----------------------------------------------------------------------------- */

static dim3 grid_of(const struct heads &h)
{
    return dim3(blocks_of(h.tokens, SIDE), (unsigned)h.sequences, (unsigned)h.heads);
}

template <int D>
static void launch_attend(const struct kernel_call *call, const struct heads &h)
{
    attend_tile<D><<<grid_of(h), TILE_THREADS, 0, stream_of(call)>>>(
        h, (const bf16 *)call->in[0], (bf16 *)call->out[0], (float *)call->out[1]);
    stream_check(call->stream, "attention");
}

template <int D> static void launch_grads(const struct kernel_call *call, const struct heads &h)
{
    const struct rows_of_weights w = { (const float *)call->in[3],
                                       (const float *)call->scratch };
    const bf16 *dy = (const bf16 *)call->in[0], *qkv = (const bf16 *)call->in[1];
    bf16 *dqkv = (bf16 *)call->out[0];

    run_deltas<bf16>(call, h);
    key_grad_tile<D><<<grid_of(h), TILE_THREADS, 0, stream_of(call)>>>(h, w, dy, qkv, dqkv);
    query_grad_tile<D><<<grid_of(h), TILE_THREADS, 0, stream_of(call)>>>(h, w, dy, qkv, dqkv);
    stream_check(call->stream, "attention_grad");
}

static bool fits(const struct kernel_problem *p, int qkv)
{
    const int64_t size = size_of_heads(p, qkv);

    return p->in[qkv].dtype == DTYPE_BF16 && size % 8 == 0 && size <= 64;
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

    if (h.size <= 32)
        launch_attend<32>(call, h);
    else
        launch_attend<64>(call, h);
}

static void run_attention_grad(const struct kernel_call *call)
{
    const struct kernel_problem *p = call->problem;
    const struct heads h = heads_of(p, &p->in[1].shape, p->n_in > 4 ? call->in[4] : NULL);

    if (h.size <= 32)
        launch_grads<32>(call, h);
    else
        launch_grads<64>(call, h);
}

extern "C" const struct kernel cuda_attention_tile_rows[] = {
    { "attention", "tile", attention_can_run, NULL, NULL, NULL, run_attention },
    { "attention_grad", "tile", attention_grad_can_run, attention_grad_scratch, NULL, NULL,
      run_attention_grad },
    { NULL, NULL, NULL, NULL, NULL, NULL, NULL },
};
