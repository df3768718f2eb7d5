/* SPDX-License-Identifier: MIT */
/* embedding.cu - rows of a table by number, their mean, their gradients, and their order.
 *
 * Ids are sorted by digits of 8 bits, the lowest first, each pass stable: blocks count the digits of their
 * tile, one block makes places of the counts, blocks send their pairs there. Within a tile a warp has a
 * stretch of its own and goes along it, so equal digits keep their order. The gradient of a table then adds,
 * row by row, the rows of dy that belong to it in the order of their places: no atomics.
 */
#include "kernel/cuda/device.cuh"

/* Rows --------------------------------------------------------------------------------- */

/* One number of a table's row: 0 for padding, NaN for a row that is not there. */
template <class T>
__device__ __forceinline__ float number_of(const T *table, int64_t rows, int64_t columns,
                                           int32_t id, int64_t column)
{
    return id < 0 ? 0 : id >= rows ? NAN : number(table[id * columns + column]);
}

template <class T>
__global__ void embedding(const int32_t *ids, const T *table, T *y, int64_t count, int64_t rows,
                          int64_t columns)
{
    const int64_t i = thread_number();

    if (i >= count * columns)
        return;
    const int64_t at = divided(i, columns);
    put(&y[i], number_of(table, rows, columns, ids[at], i - at * columns));
}

template <class T> static void launch_embedding(const struct kernel_call *call)
{
    const struct kernel_problem *p = call->problem;
    const int64_t count = shape_count(&p->in[0].shape), *table = p->in[1].shape.dim;

    embedding<T><<<blocks_of(count * table[1], THREADS), THREADS, 0, stream_of(call)>>>(
        (const int32_t *)call->in[0], (const T *)call->in[1], (T *)call->out[0], count,
        table[0], table[1]);
    stream_check(call->stream, "embedding");
}

static void run_embedding(const struct kernel_call *call)
{
    BY_TYPE(call->problem->out[0], launch_embedding, call);
}

/* How many ids of a sample are not padding; the whole block counts. */
__device__ static int counted(const int32_t *ids, int64_t length)
{
    int count = 0;

    for (int64_t t = threadIdx.x; t < length; t += blockDim.x)
        count += ids[t] >= 0;
    return block_sum(count);
}

/* A block a sample, a thread a column. */
template <class T>
__global__ void embedding_mean(const int32_t *ids, const T *table, T *y, int64_t length,
                               int64_t rows, int64_t columns)
{
    const int32_t *own = ids + blockIdx.x * length;
    const int count = counted(own, length);

    for (int64_t j = threadIdx.x; j < columns; j += blockDim.x) {
        float sum = 0;
        for (int64_t t = 0; t < length; t++)
            sum += number_of(table, rows, columns, own[t], j);
        put(&y[blockIdx.x * columns + j], count ? sum / (float)count : 0.0F);
    }
}

template <class T> static void launch_embedding_mean(const struct kernel_call *call)
{
    const struct kernel_problem *p = call->problem;
    const int64_t *dim = p->in[0].shape.dim, *table = p->in[1].shape.dim;

    embedding_mean<T><<<(unsigned)dim[0], threads_for(table[1]), 0, stream_of(call)>>>(
        (const int32_t *)call->in[0], (const T *)call->in[1], (T *)call->out[0], dim[1],
        table[0], table[1]);
    stream_check(call->stream, "embedding_mean");
}

static void run_embedding_mean(const struct kernel_call *call)
{
    BY_TYPE(call->problem->out[0], launch_embedding_mean, call);
}

template <class T>
__global__ void embedding_mean_grad(const T *dy, const int32_t *ids, T *share, int64_t length,
                                    int64_t columns)
{
    const int count = counted(ids + blockIdx.x * length, length);

    for (int64_t j = threadIdx.x; j < columns; j += blockDim.x)
        put(&share[blockIdx.x * columns + j],
            count ? number(dy[blockIdx.x * columns + j]) / (float)count : 0.0F);
}

template <class T> static void launch_embedding_mean_grad(const struct kernel_call *call)
{
    const struct kernel_problem *p = call->problem;
    const int64_t columns = p->in[0].shape.dim[1], *dim = p->in[1].shape.dim;

    embedding_mean_grad<T><<<(unsigned)dim[0], threads_for(columns), 0, stream_of(call)>>>(
        (const T *)call->in[0], (const int32_t *)call->in[1], (T *)call->out[0], dim[1],
        columns);
    stream_check(call->stream, "embedding_mean_grad");
}

static void run_embedding_mean_grad(const struct kernel_call *call)
{
    BY_TYPE(call->problem->in[0], launch_embedding_mean_grad, call);
}

/* Order -------------------------------------------------------------------------------- */

enum { DIGITS = 256, SORT_WARPS = 8, SORT_EACH = 16, TILE = SORT_WARPS * WARP * SORT_EACH };

/* x is the id, or `rows` for one that is none of them; y its place. */
__global__ void make_pairs(const int32_t *ids, int64_t count, int64_t rows, int64_t per_sample,
                           uint2 *pairs)
{
    const int64_t i = thread_number();

    if (i < count) {
        const bool known = ids[i] >= 0 && ids[i] < rows;
        pairs[i] = make_uint2(known ? (uint32_t)ids[i] : (uint32_t)rows,
                              (uint32_t)(per_sample ? i / per_sample : i));
    }
}

/* counts[digit][tile]: whole numbers, so the order of additions does not matter. */
__global__ void count_digits(const uint2 *pairs, int64_t count, int shift, uint32_t *counts)
{
    __shared__ uint32_t digits[DIGITS];
    const int64_t begin = (int64_t)blockIdx.x * TILE;

    digits[threadIdx.x] = 0;
    __syncthreads();
    for (int64_t i = begin + threadIdx.x; i < begin + TILE && i < count; i += DIGITS)
        atomicAdd(&digits[pairs[i].x >> shift & (DIGITS - 1)], 1U);
    __syncthreads();
    counts[(int64_t)threadIdx.x * gridDim.x + blockIdx.x] = digits[threadIdx.x];
}

/* One block: every number becomes the sum of those before it. */
__global__ void sum_before(uint32_t *counts, int64_t count)
{
    __shared__ uint32_t warps[WARP];
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    uint32_t before = 0;

    for (int64_t begin = 0; begin < count; begin += blockDim.x) {
        const int64_t i = begin + threadIdx.x;
        const uint32_t own = i < count ? counts[i] : 0;
        uint32_t sum = own;
        for (int apart = 1; apart < WARP; apart *= 2) {
            const uint32_t other = __shfl_up_sync(0xffffffffU, sum, apart);
            sum += lane >= apart ? other : 0;
        }
        if (lane == WARP - 1)
            warps[warp] = sum;
        __syncthreads();
        uint32_t of_warps = 0, all = 0;
        for (int w = 0; w < (int)(blockDim.x / WARP); w++) {
            of_warps += w < warp ? warps[w] : 0;
            all += warps[w];
        }
        if (i < count)
            counts[i] = before + of_warps + sum - own;
        before += all;
        __syncthreads();
    }
}

/* Pairs to their places. */
__global__ void send_pairs(const uint2 *pairs, int64_t count, int shift, const uint32_t *places,
                           uint2 *out)
{
    __shared__ uint32_t next[SORT_WARPS][DIGITS];
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const int64_t begin = (int64_t)blockIdx.x * TILE + warp * WARP * SORT_EACH;
    uint2 own[SORT_EACH];

    for (int d = lane; d < DIGITS; d += WARP)
        next[warp][d] = 0;
    __syncwarp();
    for (int k = 0; k < SORT_EACH; k++) { /* how many of each digit this warp has */
        const int64_t i = begin + k * WARP + lane;
        const bool is_one = i < count;
        own[k] = is_one ? pairs[i] : make_uint2(0, 0);
        const uint32_t digit = is_one ? own[k].x >> shift & (DIGITS - 1) : DIGITS;
        const uint32_t same = __match_any_sync(0xffffffffU, digit);
        if (is_one && lane == __ffs((int)same) - 1)
            next[warp][digit] += (uint32_t)__popc(same);
        __syncwarp();
    }
    __syncthreads();
    uint32_t at = places[(int64_t)threadIdx.x * gridDim.x + blockIdx.x]; /* a thread a digit */
    for (int w = 0; w < SORT_WARPS; w++) {
        const uint32_t here = next[w][threadIdx.x];
        next[w][threadIdx.x] = at;
        at += here;
    }
    __syncthreads();
    for (int k = 0; k < SORT_EACH; k++) {
        const bool is_one = begin + k * WARP + lane < count;
        const uint32_t digit = is_one ? own[k].x >> shift & (DIGITS - 1) : DIGITS;
        const uint32_t same = __match_any_sync(0xffffffffU, digit);
        const uint32_t first = is_one ? next[warp][digit] : 0;
        __syncwarp();
        if (is_one)
            out[first + (uint32_t)__popc(same & ((1U << lane) - 1))] = own[k];
        if (is_one && lane == __ffs((int)same) - 1)
            next[warp][digit] = first + (uint32_t)__popc(same);
        __syncwarp();
    }
}

static int passes_for(int64_t rows)
{
    int passes = 1;

    while (passes < 4 && rows >> (8 * passes) != 0)
        passes++;
    return passes;
}

static int64_t tiles_of(int64_t count)
{
    return (count + TILE - 1) / TILE;
}

static size_t up(size_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

/* Two lists of pairs, then counts. */
static size_t sort_bytes(int64_t count)
{
    return 2 * up((size_t)count * sizeof(uint2)) +
           up((size_t)(tiles_of(count) * DIGITS) * sizeof(uint32_t));
}

/* Sorted pairs of the ids, in scratch. per_sample: 0, or ids of a sample, whose number is the place. */
static const uint2 *sort_ids(const struct kernel_call *call, const int32_t *ids, int64_t count,
                             int64_t rows, int64_t per_sample)
{
    const size_t list = up((size_t)count * sizeof(uint2));
    const unsigned tiles = (unsigned)tiles_of(count);
    uint2 *from = (uint2 *)call->scratch, *to = (uint2 *)((char *)call->scratch + list);
    uint32_t *counts = (uint32_t *)((char *)call->scratch + 2 * list);

    make_pairs<<<blocks_of(count, THREADS), THREADS, 0, stream_of(call)>>>(ids, count, rows,
                                                                           per_sample, from);
    for (int pass = 0; pass < passes_for(rows); pass++) {
        uint2 *other = from;
        count_digits<<<tiles, DIGITS, 0, stream_of(call)>>>(from, count, 8 * pass, counts);
        sum_before<<<1, 1024, 0, stream_of(call)>>>(counts, (int64_t)tiles * DIGITS);
        send_pairs<<<tiles, SORT_WARPS * WARP, 0, stream_of(call)>>>(from, count, 8 * pass,
                                                                     counts, to);
        from = to;
        to = other;
    }
    return from;
}

/* The first pair whose id is at least `id`. */
__device__ static int64_t first_from(const uint2 *pairs, int64_t count, uint32_t id)
{
    int64_t low = 0, high = count;

    while (low < high) {
        const int64_t middle = (low + high) / 2;
        if (pairs[middle].x < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

__global__ void give_order(const uint2 *pairs, int64_t count, int64_t rows, int32_t *order,
                           int32_t *begin)
{
    const int64_t i = thread_number(), block = (rows + ROWS_BLOCKS - 1) / ROWS_BLOCKS;

    if (i < count) {
        const bool known = pairs[i].x < rows;
        order[2 * i] = known ? (int32_t)pairs[i].x : -1;
        order[2 * i + 1] = known ? (int32_t)pairs[i].y : -1;
    }
    if (i <= ROWS_BLOCKS) {
        const int64_t id = i * block < rows ? i * block : rows;
        begin[i] = (int32_t)first_from(pairs, count, (uint32_t)id);
    }
}

static size_t rows_sort_scratch(const struct kernel_problem *p)
{
    return sort_bytes(shape_count(&p->in[0].shape));
}

static void run_rows_sort(const struct kernel_call *call)
{
    const struct kernel_problem *p = call->problem;
    const int64_t count = shape_count(&p->in[0].shape), rows = p->attrs.rows;
    const uint2 *pairs = sort_ids(call, (const int32_t *)call->in[0], count, rows,
                                  p->attrs.by_sample ? p->in[0].shape.dim[1] : 0);
    const int64_t threads = count > ROWS_BLOCKS + 1 ? count : ROWS_BLOCKS + 1;

    give_order<<<blocks_of(threads, THREADS), THREADS, 0, stream_of(call)>>>(
        pairs, count, rows, (int32_t *)call->out[0], (int32_t *)call->out[1]);
    stream_check(call->stream, "rows_sort");
}

/* A table's gradient ------------------------------------------------------------------- */

enum { AHEAD = 8 }; /* rows that are read before they are added */

/* A block a row of the table, a thread a column. base may be dw. */
template <class T>
__global__ void add_rows(const uint2 *pairs, int64_t count, const T *dy, int64_t columns,
                         const float *base, float *dw)
{
    const uint32_t row = blockIdx.x;
    const int64_t begin = first_from(pairs, count, row),
                  end = first_from(pairs, count, row + 1);

    for (int64_t j = threadIdx.x; j < columns; j += blockDim.x) {
        float sum = base ? base[row * columns + j] : 0;
        for (int64_t i = begin; i < end; i += AHEAD) {
            float part[AHEAD];
#pragma unroll
            for (int k = 0; k < AHEAD; k++)
                part[k] = i + k < end ? number(dy[pairs[i + k].y * columns + j]) : 0;
#pragma unroll
            for (int k = 0; k < AHEAD; k++) {
                if (i + k < end)
                    sum += part[k];
            }
        }
        dw[row * columns + j] = sum;
    }
}

static size_t embedding_grad_scratch(const struct kernel_problem *p)
{
    return sort_bytes(shape_count(&p->in[1].shape));
}

template <class T> static void launch_embedding_grad(const struct kernel_call *call)
{
    const struct kernel_problem *p = call->problem;
    const int64_t count = shape_count(&p->in[1].shape), *table = p->out[0].shape.dim;
    const int64_t per_sample = p->in[0].shape.rank == 3 ? 0 : p->in[1].shape.dim[1];
    const uint2 *pairs =
        sort_ids(call, (const int32_t *)call->in[1], count, table[0], per_sample);

    add_rows<T><<<(unsigned)table[0], threads_for(table[1]), 0, stream_of(call)>>>(
        pairs, count, (const T *)call->in[0], table[1],
        p->n_in > 2 ? (const float *)call->in[2] : NULL, (float *)call->out[0]);
    stream_check(call->stream, "embedding_grad");
}

static void run_embedding_grad(const struct kernel_call *call)
{
    BY_TYPE(call->problem->in[0], launch_embedding_grad, call);
}

#define ROW(op, scratch)                                                                       \
    {                                                                                          \
#op, "own", NULL, scratch, NULL, NULL, run_##op                                        \
    }
extern "C" const struct kernel cuda_embedding_rows[] = {
    ROW(embedding, NULL),
    ROW(embedding_mean, NULL),
    ROW(embedding_mean_grad, NULL),
    ROW(embedding_grad, embedding_grad_scratch),
    ROW(rows_sort, rows_sort_scratch),
    { NULL, NULL, NULL, NULL, NULL, NULL, NULL },
};
