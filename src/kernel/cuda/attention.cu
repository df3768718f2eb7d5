/* SPDX-License-Identifier: MIT */
/* attention.cu - attention in tiles, its gradient, and attention of new tokens to a cache.
 *
 * A block of 16 x 16 threads has a tile of B = 16 R queries (or keys) of one head and goes along the tiles of
 * the keys (or queries); thread (ty, tx) has R rows from ty R on and every 16th column from tx on.
 * Weights never reach memory: forward keeps the largest score and the sum of each row as it goes; backward
 * makes them again from lse. The gradient takes three launches: delta = dy y of each row, then dk and dv
 * by tiles of keys, then dq by tiles of queries; each adds in the order of the tiles. Numbers are f32 in
 * shared memory, products are of f32.
 */
#include "kernel/cuda/attention.cuh"

enum { SIDE = 16, TILE_THREADS = SIDE * SIDE, HEAD_MAX = 256 };

/* A tile has rows of W numbers, of which the last one is never looked at: it keeps banks apart. */
template <int DC, int R> struct tile {
    enum { B = SIDE * R, D = SIDE * DC, W = D + 1, PW = B + 1 };

    template <class T>
    __device__ static void load(float *to, const T *from, int row0, int row,
                                const struct heads &h)
    {
        for (int i = threadIdx.x; i < B * D; i += TILE_THREADS) {
            const int r = i / D, d = i % D;
            to[r * W + d] = row0 + r < h.tokens && d < h.size
                                ? number(from[(int64_t)(row0 + r) * row + d])
                                : 0;
        }
    }

    /* out[i][j] = a's row ty R + i times b's row tx + 16 j. */
    __device__ static void dot(float out[R][R], const float *a, const float *b)
    {
        const int tx = threadIdx.x % SIDE, ty = threadIdx.x / SIDE;

        for (int i = 0; i < R; i++) {
            for (int j = 0; j < R; j++)
                out[i][j] = 0;
        }
#pragma unroll 8
        for (int d = 0; d < D; d++) {
            float p[R], q[R];
#pragma unroll
            for (int i = 0; i < R; i++)
                p[i] = a[(ty * R + i) * W + d];
#pragma unroll
            for (int j = 0; j < R; j++)
                q[j] = b[(tx + SIDE * j) * W + d];
#pragma unroll
            for (int i = 0; i < R; i++) {
#pragma unroll
                for (int j = 0; j < R; j++)
                    out[i][j] = fmaf(p[i], q[j], out[i][j]);
            }
        }
    }

    /* out[i][j] += sum over c of p[ty R + i][c] v[c][tx + 16 j]. */
    __device__ static void add(float out[R][DC], const float *p, const float *v)
    {
        const int tx = threadIdx.x % SIDE, ty = threadIdx.x / SIDE;

#pragma unroll 4
        for (int c = 0; c < B; c++) {
            float weight[R];
#pragma unroll
            for (int i = 0; i < R; i++)
                weight[i] = p[(ty * R + i) * PW + c];
#pragma unroll
            for (int j = 0; j < DC; j++) {
                const float value = v[c * W + tx + SIDE * j];
#pragma unroll
                for (int i = 0; i < R; i++)
                    out[i][j] = fmaf(weight[i], value, out[i][j]);
            }
        }
    }

    /* Writes rows of a tile's sums, times a factor for each. */
    template <class T>
    __device__ static void store(T *to, const float sums[R][DC], const float factor[R],
                                 int row0, int row, const struct heads &h)
    {
        const int tx = threadIdx.x % SIDE, ty = threadIdx.x / SIDE;

        for (int i = 0; i < R; i++) {
            for (int j = 0; j < DC; j++) {
                const int r = row0 + ty * R + i, d = tx + SIDE * j;
                if (r < h.tokens && d < h.size)
                    put(&to[(int64_t)r * row + d], sums[i][j] * factor[i]);
            }
        }
    }
};

/* Over the 16 threads that share rows. */
__device__ __forceinline__ float row_max(float x)
{
    for (int apart = SIDE / 2; apart > 0; apart /= 2)
        x = fmaxf(x, __shfl_xor_sync(0xffffffffU, x, apart));
    return x;
}

__device__ __forceinline__ float row_sum(float x)
{
    for (int apart = SIDE / 2; apart > 0; apart /= 2)
        x += __shfl_xor_sync(0xffffffffU, x, apart);
    return x;
}

template <class T, int DC, int R>
__global__ void __launch_bounds__(TILE_THREADS)
    attend(struct heads h, const T *qkv, T *y, float *lse)
{
    typedef tile<DC, R> tile;
    extern __shared__ float shared[];
    float *queries = shared, *keys = queries + tile::B * tile::W, *p = keys + tile::B * tile::W;
    const int n = blockIdx.y, head = blockIdx.z, row0 = blockIdx.x * tile::B;
    const int tx = threadIdx.x % SIDE, ty = threadIdx.x / SIDE;
    const int end = h.causal && row0 + tile::B < h.tokens ? row0 + tile::B : h.tokens;
    float sums[R][DC] = { { 0 } }, largest[R], total[R], factor[R];

    for (int i = 0; i < R; i++) {
        largest[i] = -INFINITY;
        total[i] = 0;
    }
    tile::load(queries, part_of(h, qkv, n, head, 0), row0, h.row, h);
    for (int key0 = 0; key0 < end; key0 += tile::B) {
        float scores[R][R];

        __syncthreads(); /* nobody looks at the last values and weights any more */
        tile::load(keys, part_of(h, qkv, n, head, 1), key0, h.row, h);
        __syncthreads();
        tile::dot(scores, queries, keys);
        for (int i = 0; i < R; i++) {
            float most = -INFINITY, sum = 0;
            for (int j = 0; j < R; j++) {
                const bool seen = sees(h, n, row0 + ty * R + i, key0 + tx + SIDE * j);
                scores[i][j] = seen ? scores[i][j] * h.scale : -INFINITY;
                most = fmaxf(most, scores[i][j]);
            }
            most = fmaxf(largest[i], row_max(most));
            const float before = largest[i] > -INFINITY ? expf(largest[i] - most) : 0;
            for (int j = 0; j < R; j++) {
                const float weight = scores[i][j] > -INFINITY ? expf(scores[i][j] - most) : 0;
                sum += weight;
                p[(ty * R + i) * tile::PW + tx + SIDE * j] = weight;
            }
            total[i] = total[i] * before + row_sum(sum);
            largest[i] = most;
            for (int j = 0; j < DC; j++)
                sums[i][j] *= before;
        }
        __syncthreads();
        tile::load(keys, part_of(h, qkv, n, head, 2), key0, h.row, h); /* the values */
        __syncthreads();
        tile::add(sums, p, keys);
    }
    for (int i = 0; i < R; i++) {
        const int r = row0 + ty * R + i;
        factor[i] = total[i] > 0 ? 1 / total[i] : 0;
        if (tx == 0 && r < h.tokens)
            lse[((int64_t)n * h.tokens + r) * h.heads + head] =
                total[i] > 0 ? largest[i] + logf(total[i]) : FLT_MAX;
    }
    tile::store(output_of(h, y, n, head), sums, factor, row0, h.out_row, h);
}

/* Gradients ---------------------------------------------------------------------------- */

/* dk and dv of a tile of keys. Rows of the tiles of weights are keys. */
template <class T, int DC, int R>
__global__ void __launch_bounds__(TILE_THREADS)
    key_grad(struct heads h, struct rows_of_weights w, const T *dy, const T *qkv, T *dqkv)
{
    typedef tile<DC, R> tile;
    extern __shared__ float shared[];
    float *keys = shared, *values = keys + tile::B * tile::W;
    float *queries = values + tile::B * tile::W, *flows = queries + tile::B * tile::W;
    float *p = flows + tile::B * tile::W, *ds = p + tile::B * tile::PW;
    const int n = blockIdx.y, head = blockIdx.z, key0 = blockIdx.x * tile::B;
    const int tx = threadIdx.x % SIDE, ty = threadIdx.x / SIDE;
    float dk[R][DC] = { { 0 } }, dv[R][DC] = { { 0 } }, one[R];

    tile::load(keys, part_of(h, qkv, n, head, 1), key0, h.row, h);
    tile::load(values, part_of(h, qkv, n, head, 2), key0, h.row, h);
    for (int row0 = h.causal ? key0 : 0; row0 < h.tokens; row0 += tile::B) {
        float scores[R][R], dp[R][R];

        __syncthreads();
        tile::load(queries, part_of(h, qkv, n, head, 0), row0, h.row, h);
        tile::load(flows, output_of(h, dy, n, head), row0, h.out_row, h);
        __syncthreads();
        tile::dot(scores, keys, queries);
        tile::dot(dp, values, flows);
        for (int i = 0; i < R; i++) {
            for (int j = 0; j < R; j++) {
                const int query = row0 + tx + SIDE * j, key = key0 + ty * R + i;
                const float weight = weight_of(h, w, n, head, query, key, scores[i][j]);
                const int at = (ty * R + i) * tile::PW + tx + SIDE * j;
                p[at] = weight;
                ds[at] = weight * (dp[i][j] - delta_of(h, w, n, head, query)) * h.scale;
            }
        }
        __syncthreads();
        tile::add(dv, p, flows);
        tile::add(dk, ds, queries);
    }
    for (int i = 0; i < R; i++)
        one[i] = 1;
    tile::store(part_of(h, dqkv, n, head, 1), dk, one, key0, h.row, h);
    tile::store(part_of(h, dqkv, n, head, 2), dv, one, key0, h.row, h);
}

template <class T, int DC, int R>
__global__ void __launch_bounds__(TILE_THREADS)
    query_grad(struct heads h, struct rows_of_weights w, const T *dy, const T *qkv, T *dqkv)
{
    typedef tile<DC, R> tile;
    extern __shared__ float shared[];
    float *queries = shared, *flows = queries + tile::B * tile::W;
    float *keys = flows + tile::B * tile::W, *values = keys + tile::B * tile::W;
    float *ds = values + tile::B * tile::W;
    const int n = blockIdx.y, head = blockIdx.z, row0 = blockIdx.x * tile::B;
    const int tx = threadIdx.x % SIDE, ty = threadIdx.x / SIDE;
    const int end = h.causal && row0 + tile::B < h.tokens ? row0 + tile::B : h.tokens;
    float dq[R][DC] = { { 0 } }, one[R];

    tile::load(queries, part_of(h, qkv, n, head, 0), row0, h.row, h);
    tile::load(flows, output_of(h, dy, n, head), row0, h.out_row, h);
    for (int key0 = 0; key0 < end; key0 += tile::B) {
        float scores[R][R], dp[R][R];

        __syncthreads();
        tile::load(keys, part_of(h, qkv, n, head, 1), key0, h.row, h);
        tile::load(values, part_of(h, qkv, n, head, 2), key0, h.row, h);
        __syncthreads();
        tile::dot(scores, queries, keys);
        tile::dot(dp, flows, values);
        for (int i = 0; i < R; i++) {
            const int query = row0 + ty * R + i;
            const float delta = delta_of(h, w, n, head, query);
            for (int j = 0; j < R; j++) {
                const int key = key0 + tx + SIDE * j;
                const float weight = weight_of(h, w, n, head, query, key, scores[i][j]);
                ds[(ty * R + i) * tile::PW + tx + SIDE * j] =
                    weight * (dp[i][j] - delta) * h.scale;
            }
        }
        __syncthreads();
        tile::add(dq, ds, keys);
    }
    for (int i = 0; i < R; i++)
        one[i] = 1;
    tile::store(part_of(h, dqkv, n, head, 0), dq, one, row0, h.row, h);
}

/* Launches ----------------------------------------------------------------------------- */

template <class T, int DC, int R>
static void launch_attend(const struct kernel_call *call, const struct heads &h)
{
    typedef tile<DC, R> tile;
    const size_t bytes = (2 * tile::B * tile::W + tile::B * tile::PW) * sizeof(float);
    const dim3 grid(blocks_of(h.tokens, tile::B), (unsigned)h.sequences, (unsigned)h.heads);

    allow_shared(call, attend<T, DC, R>, bytes);
    attend<T, DC, R><<<grid, TILE_THREADS, bytes, stream_of(call)>>>(
        h, (const T *)call->in[0], (T *)call->out[0], (float *)call->out[1]);
    stream_check(call->stream, "attention");
}

template <class T, int DC, int R>
static void launch_grads(const struct kernel_call *call, const struct heads &h)
{
    typedef tile<DC, R> tile;
    const size_t tiles = 4 * tile::B * tile::W * sizeof(float);
    const size_t weights = tile::B * tile::PW * sizeof(float);
    const dim3 grid(blocks_of(h.tokens, tile::B), (unsigned)h.sequences, (unsigned)h.heads);
    const struct rows_of_weights w = { (const float *)call->in[3],
                                       (const float *)call->scratch };
    const T *dy = (const T *)call->in[0], *qkv = (const T *)call->in[1];
    T *dqkv = (T *)call->out[0];

    allow_shared(call, key_grad<T, DC, R>, tiles + 2 * weights);
    allow_shared(call, query_grad<T, DC, R>, tiles + weights);
    key_grad<T, DC, R>
        <<<grid, TILE_THREADS, tiles + 2 * weights, stream_of(call)>>>(h, w, dy, qkv, dqkv);
    query_grad<T, DC, R>
        <<<grid, TILE_THREADS, tiles + weights, stream_of(call)>>>(h, w, dy, qkv, dqkv);
    stream_check(call->stream, "attention_grad");
}

/* Calls LAUNCH with tiles for the size of the heads. */
#define BY_SIZE(T, LAUNCH, call, h)                                                            \
    do {                                                                                       \
        if ((h).size <= 32)                                                                    \
            LAUNCH<T, 2, 4>(call, h);                                                          \
        else if ((h).size <= 64)                                                               \
            LAUNCH<T, 4, 4>(call, h);                                                          \
        else if ((h).size <= 128)                                                              \
            LAUNCH<T, 8, 4>(call, h);                                                          \
        else                                                                                   \
            LAUNCH<T, 16, 2>(call, h);                                                         \
    } while (0)

static bool attention_can_run(const struct kernel_problem *p)
{
    return size_of_heads(p, 0) <= HEAD_MAX;
}

template <class T> static void launch_attention(const struct kernel_call *call)
{
    const struct kernel_problem *p = call->problem;
    const struct heads h = heads_of(p, &p->in[0].shape, p->n_in > 1 ? call->in[1] : NULL);

    BY_SIZE(T, launch_attend, call, h);
}

static void run_attention(const struct kernel_call *call)
{
    BY_TYPE(call->problem->in[0], launch_attention, call);
}

static bool attention_grad_can_run(const struct kernel_problem *p)
{
    return size_of_heads(p, 1) <= HEAD_MAX;
}

template <class T> static void launch_attention_grad(const struct kernel_call *call)
{
    const struct kernel_problem *p = call->problem;
    const struct heads h = heads_of(p, &p->in[1].shape, p->n_in > 4 ? call->in[4] : NULL);

    run_deltas<T>(call, h);
    BY_SIZE(T, launch_grads, call, h);
}

static void run_attention_grad(const struct kernel_call *call)
{
    BY_TYPE(call->problem->in[0], launch_attention_grad, call);
}

/* New tokens --------------------------------------------------------------------------- */

/* A block has one new token of one head; its scores lie in scratch. */
template <class T>
__global__ void attend_step(struct heads h, const T *qkv, const T *cache, const int32_t *first,
                            int64_t places, T *y, float *scores)
{
    const int i = blockIdx.x, n = blockIdx.y, head = blockIdx.z;
    const int64_t before = first[n] < 0 ? 0 : first[n] > places ? places : first[n];
    const int64_t count = before + i + 1;
    const T *q = part_of(h, qkv, n, head, 0) + (int64_t)i * h.row;
    const T *keys = part_of(h, qkv, n, head, 1);
    const T *old = cache + (int64_t)n * places * 2 * h.out_row + head * h.size;
    float *own = scores + (((int64_t)n * h.heads + head) * h.tokens + i) * (places + h.tokens);
    float largest = -INFINITY, sum = 0;

    for (int64_t j = threadIdx.x; j < count; j += blockDim.x) {
        const T *k = j < before ? old + j * 2 * h.out_row : keys + (j - before) * h.row;
        float score = 0;
        for (int d = 0; d < h.size; d++)
            score = fmaf(number(q[d]), number(k[d]), score);
        own[j] = score * h.scale;
        largest = fmaxf(largest, own[j]);
    }
    largest = block_max(largest);
    for (int64_t j = threadIdx.x; j < count; j += blockDim.x) {
        own[j] = expf(own[j] - largest);
        sum += own[j];
    }
    sum = block_sum(sum); /* also a barrier: all scores are there */
    for (int d = threadIdx.x; d < h.size; d += blockDim.x) {
        float mean = 0;
        for (int64_t j = 0; j < count; j++) { /* a value lies behind its key */
            const T *k = j < before ? old + j * 2 * h.out_row : keys + (j - before) * h.row;
            mean = fmaf(own[j], number(k[h.out_row + d]), mean);
        }
        put(&output_of(h, y, n, head)[(int64_t)i * h.out_row + d], mean / sum);
    }
}

static size_t attention_step_scratch(const struct kernel_problem *p)
{
    const int64_t *dim = p->in[0].shape.dim;
    return (size_t)(dim[0] * dim[1] * p->attrs.heads * (dim[1] + p->in[1].shape.dim[1])) *
           sizeof(float);
}

template <class T> static void launch_attention_step(const struct kernel_call *call)
{
    const struct kernel_problem *p = call->problem;
    const struct heads h = heads_of(p, &p->in[0].shape, NULL);
    const dim3 grid((unsigned)h.tokens, (unsigned)h.sequences, (unsigned)h.heads);

    attend_step<T><<<grid, 128, 0, stream_of(call)>>>(
        h, (const T *)call->in[0], (const T *)call->in[1], (const int32_t *)call->in[2],
        p->in[1].shape.dim[1], (T *)call->out[0], (float *)call->scratch);
    stream_check(call->stream, "attention_step");
}

static void run_attention_step(const struct kernel_call *call)
{
    BY_TYPE(call->problem->in[0], launch_attention_step, call);
}

extern "C" const struct kernel cuda_attention_rows[] = {
    { "attention", "own", attention_can_run, NULL, NULL, NULL, run_attention },
    { "attention_grad", "own", attention_grad_can_run, attention_grad_scratch, NULL, NULL,
      run_attention_grad },
    { "attention_step", "own", NULL, attention_step_scratch, NULL, NULL, run_attention_step },
    { NULL, NULL, NULL, NULL, NULL, NULL, NULL },
};
