/* SPDX-License-Identifier: MIT */
/* embedding.cu - rows of a table by number, their mean, their gradients, and their order.
 *
 * Ids are sorted by digits of 8 bits, the lowest first, each pass stable: blocks count the digits of their
 * tile, a block a digit makes places among its own of the counts, blocks send their pairs there. Within a tile a warp has a
 * stretch of its own and goes along it, so equal digits keep their order. The gradient of a table then adds rows of dy
 * by segments of the sorted list, which have the same length, so that frequent rows are the work of many blocks: what
 * belongs to one row inside a segment is added in the order of places, and parts of a row that several segments have are
 * added in the order of these. No atomics.
 */
#include "kernel/cuda/device.cuh"

/* Rows --------------------------------------------------------------------------------- */

/* A thread has V numbers of a row that lie side by side. */
template <class T, int V>
__global__ void embedding(const int32_t *ids, const T *table, T *y, int64_t count, int64_t rows,
                          int64_t columns)
{
    struct alignas(V * sizeof(T)) part {
        T x[V];
    };
    const int64_t i = thread_number() * V;

    if (i >= count * columns)
        return;
    const int64_t at = divided(i, columns);
    const int32_t id = ids[at];
    part out;
    if (id >= 0 && id < rows) {
        out = *(const part *)(table + id * columns + i - at * columns);
    } else {
#pragma unroll
        for (int k = 0; k < V; k++)
            put(&out.x[k], id < 0 ? 0 : NAN);
    }
    *(part *)(y + i) = out;
}

template <class T, int V> static void launch_rows(const struct kernel_call *call)
{
    const struct kernel_problem *p = call->problem;
    const int64_t count = shape_count(&p->in[0].shape), *table = p->in[1].shape.dim;

    embedding<T, V><<<blocks_of(count * table[1], THREADS * V), THREADS, 0, stream_of(call)>>>(
        (const int32_t *)call->in[0], (const T *)call->in[1], (T *)call->out[0], count,
        table[0], table[1]);
    stream_check(call->stream, "embedding");
}

template <class T> static void launch_embedding(const struct kernel_call *call)
{
    const int64_t columns = call->problem->in[1].shape.dim[1];
    const bool packed = is_packed((const T *)call->in[1]) && is_packed((const T *)call->out[0]);

    if (packed && columns % pack<T>::N == 0)
        launch_rows<T, pack<T>::N>(call);
    else if (packed && columns % 2 == 0)
        launch_rows<T, 2>(call);
    else
        launch_rows<T, 1>(call);
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

enum { MEAN_COLUMNS = 64, MEAN_GROUPS = 8, MEAN_AHEAD = 8 };

/* A block a sample, a thread V columns side by side and every eighth of the ids. */
template <class T, int V>
__global__ void embedding_mean(const int32_t *ids, const T *table, T *y, int64_t length,
                               int64_t rows, int64_t columns)
{
    struct alignas(V * sizeof(T)) part {
        T x[V];
    };
    __shared__ float parts[MEAN_GROUPS][MEAN_COLUMNS][V];
    const int32_t *own = ids + blockIdx.x * length;
    const int count = counted(own, length);
    const int lane = threadIdx.x % MEAN_COLUMNS, group = threadIdx.x / MEAN_COLUMNS;

    for (int64_t first = 0; first < columns; first += MEAN_COLUMNS * V) {
        const int64_t j = first + lane * V;
        float sum[V] = {};
        for (int64_t t0 = group; j < columns && t0 < length; t0 += MEAN_GROUPS * MEAN_AHEAD) {
            part in[MEAN_AHEAD];
            int32_t id[MEAN_AHEAD];
#pragma unroll
            for (int k = 0; k < MEAN_AHEAD; k++) {
                const int64_t t = t0 + k * MEAN_GROUPS;
                id[k] = t < length ? own[t] : -1;
                if (id[k] >= 0 && id[k] < rows)
                    in[k] = *(const part *)(table + id[k] * columns + j);
            }
#pragma unroll
            for (int k = 0; k < MEAN_AHEAD; k++) {
#pragma unroll
                for (int v = 0; v < V; v++)
                    sum[v] += id[k] < 0 ? 0 : id[k] < rows ? number(in[k].x[v]) : NAN;
            }
        }
#pragma unroll
        for (int v = 0; v < V; v++)
            parts[group][lane][v] = sum[v];
        __syncthreads();
        for (int v = 0; group == 0 && v < V; v++) {
            float all = 0;
            for (int g = 0; g < MEAN_GROUPS; g++)
                all += parts[g][lane][v];
            if (j < columns)
                put(&y[blockIdx.x * columns + j + v], count ? all / (float)count : 0.0F);
        }
        __syncthreads();
    }
}

template <class T, int V> static void launch_mean(const struct kernel_call *call)
{
    const struct kernel_problem *p = call->problem;
    const int64_t *dim = p->in[0].shape.dim, *table = p->in[1].shape.dim;

    embedding_mean<T, V><<<(unsigned)dim[0], MEAN_COLUMNS * MEAN_GROUPS, 0, stream_of(call)>>>(
        (const int32_t *)call->in[0], (const T *)call->in[1], (T *)call->out[0], dim[1],
        table[0], table[1]);
    stream_check(call->stream, "embedding_mean");
}

template <class T> static void launch_embedding_mean(const struct kernel_call *call)
{
    if (call->problem->in[1].shape.dim[1] % 2 == 0 && is_packed((const T *)call->in[1]))
        launch_mean<T, 2>(call);
    else
        launch_mean<T, 1>(call);
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

enum { DIGITS = 256, SORT_WARPS = 8, SORT_EACH = 4, TILE = SORT_WARPS * WARP * SORT_EACH };

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

/* Of all threads before this one, and of all; a block of DIGITS threads. */
__device__ static uint32_t sum_before(uint32_t own, uint32_t *all)
{
    __shared__ uint32_t warps[DIGITS / WARP];
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    uint32_t sum = own;

    for (int apart = 1; apart < WARP; apart *= 2) {
        const uint32_t other = __shfl_up_sync(0xffffffffU, sum, apart);
        sum += lane >= apart ? other : 0;
    }
    __syncthreads();
    if (lane == WARP - 1)
        warps[warp] = sum;
    __syncthreads();
    uint32_t before = sum - own;
    *all = 0;
    for (int w = 0; w < DIGITS / WARP; w++) {
        before += w < warp ? warps[w] : 0;
        *all += warps[w];
    }
    return before;
}

/* A block a digit: each tile's count becomes the sum of those before it; totals are those of the digits. */
__global__ void sum_tiles(uint32_t *counts, int64_t tiles, uint32_t *totals)
{
    uint32_t before = 0, all;

    counts += blockIdx.x * tiles;
    for (int64_t begin = 0; begin < tiles; begin += DIGITS) {
        const int64_t i = begin + threadIdx.x;
        const uint32_t own = i < tiles ? counts[i] : 0;
        const uint32_t here = sum_before(own, &all);
        if (i < tiles)
            counts[i] = before + here;
        before += all;
    }
    if (threadIdx.x == 0)
        totals[blockIdx.x] = before;
}

/* Pairs to their places. */
__global__ void send_pairs(const uint2 *pairs, int64_t count, int shift, const uint32_t *places,
                           const uint32_t *totals, uint2 *out)
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
    uint32_t all; /* a thread a digit */
    uint32_t at = sum_before(totals[threadIdx.x], &all) +
                  places[(int64_t)threadIdx.x * gridDim.x + blockIdx.x];
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

/* Two lists of pairs, then counts and totals. */
static size_t sort_bytes(int64_t count)
{
    return 2 * up((size_t)count * sizeof(uint2)) +
           up((size_t)((tiles_of(count) + 1) * DIGITS) * sizeof(uint32_t));
}

/* Sorted pairs of the ids, in scratch. per_sample: 0, or ids of a sample, whose number is the place. */
static const uint2 *sort_ids(const struct kernel_call *call, const int32_t *ids, int64_t count,
                             int64_t rows, int64_t per_sample)
{
    const size_t list = up((size_t)count * sizeof(uint2));
    const unsigned tiles = (unsigned)tiles_of(count);
    uint2 *from = (uint2 *)call->scratch, *to = (uint2 *)((char *)call->scratch + list);
    uint32_t *counts = (uint32_t *)((char *)call->scratch + 2 * list);
    uint32_t *totals = counts + tiles_of(count) * DIGITS;

    make_pairs<<<blocks_of(count, THREADS), THREADS, 0, stream_of(call)>>>(ids, count, rows,
                                                                           per_sample, from);
    for (int pass = 0; pass < passes_for(rows); pass++) {
        uint2 *other = from;
        count_digits<<<tiles, DIGITS, 0, stream_of(call)>>>(from, count, 8 * pass, counts);
        sum_tiles<<<DIGITS, DIGITS, 0, stream_of(call)>>>(counts, tiles, totals);
        send_pairs<<<tiles, SORT_WARPS * WARP, 0, stream_of(call)>>>(from, count, 8 * pass,
                                                                     counts, totals, to);
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

enum {
    AHEAD = 16,
    SEGMENT = 64
}; /* rows that are read before they are added; pairs of a segment */

/* Does pair i have the id of the one before it? */
__device__ __forceinline__ bool goes_on(const uint2 *pairs, int64_t count, int64_t i)
{
    return i > 0 && i < count && pairs[i].x == pairs[i - 1].x;
}

/* A block a segment, a thread a column; dw is 0 where nothing is known of a row, and with `adds` has what rows are added
 * to. What is of a row that other segments have, too, goes to partial: of each segment what it has of one that
 * began before, then of one that goes on. */
template <class T>
__global__ void add_segments(const uint2 *pairs, int64_t count, int64_t rows, const T *dy,
                             int64_t columns, bool adds, float *partial, float *dw)
{
    __shared__ uint2 own[SEGMENT];
    __shared__ bool goes[SEGMENT + 1]; /* on from the pair before */
    const int64_t begin = (int64_t)blockIdx.x * SEGMENT;
    const int size = (int)(count - begin < SEGMENT ? count - begin : SEGMENT);

    for (int i = threadIdx.x; i <= size; i += blockDim.x) {
        goes[i] = goes_on(pairs, count, begin + i);
        if (i < size)
            own[i] = pairs[begin + i];
    }
    __syncthreads();
    for (int64_t j = threadIdx.x; j < columns; j += blockDim.x) {
        bool before = goes[0];
        float sum = 0;
        for (int i0 = 0; i0 < size; i0 += AHEAD) {
            float part[AHEAD];
#pragma unroll
            for (int k = 0; k < AHEAD;
                 k++) { /* read in any case, so that no load waits for a branch */
                const uint2 pair = own[i0 + k < size ? i0 + k : 0];
                part[k] = number(dy[(pair.x < rows ? pair.y : 0) * columns + j]);
            }
#pragma unroll
            for (int k = 0; k < AHEAD; k++) {
                const int i = i0 + k;
                if (i >= size || own[i].x >= rows)
                    continue;
                sum += part[k];
                if (goes[i + 1] && i + 1 < size)
                    continue;
                float *to = &dw[own[i].x * columns + j];
                if (before || goes[i + 1])
                    partial[((int64_t)blockIdx.x * 2 + (before ? 0 : 1)) * columns + j] = sum;
                else
                    *to = adds ? *to + sum : sum;
                sum = 0;
                before = false;
            }
        }
    }
}

/* The parts of the row that begins in this block's segment and goes on. */
__global__ void join_segments(const uint2 *pairs, int64_t count, int64_t rows, int64_t columns,
                              const float *partial, float *dw)
{
    const int64_t begin = (int64_t)blockIdx.x * SEGMENT, end = begin + SEGMENT;

    if (!goes_on(pairs, count, end))
        return;
    const uint32_t row = pairs[end - 1].x;
    if (row >= rows || (pairs[begin].x == row && goes_on(pairs, count, begin)))
        return;
    const int64_t last = (first_from(pairs, count, row + 1) - 1) / SEGMENT;
    for (int64_t j = threadIdx.x; j < columns; j += blockDim.x) {
        float sum = partial[((int64_t)blockIdx.x * 2 + 1) * columns + j];
#pragma unroll 16
        for (int64_t s = (int64_t)blockIdx.x + 1; s <= last; s++)
            sum += partial[s * 2 * columns + j];
        dw[row * columns + j] += sum;
    }
}

static int64_t segments_of(int64_t count)
{
    return (count + SEGMENT - 1) / SEGMENT;
}

/* The sort's, then what segments leave. */
static size_t embedding_grad_scratch(const struct kernel_problem *p)
{
    const int64_t count = shape_count(&p->in[1].shape);

    return sort_bytes(count) +
           (size_t)(segments_of(count) * 2 * p->out[0].shape.dim[1]) * sizeof(float);
}

/* What rows are added to. */
static void begin_table(const struct kernel_call *call, const void *base)
{
    const size_t bytes = (size_t)shape_count(&call->problem->out[0].shape) * sizeof(float);
    const cudaError_t error =
        base == NULL           ? cudaMemsetAsync(call->out[0], 0, bytes, stream_of(call))
        : base == call->out[0] ? cudaSuccess
                               : cudaMemcpyAsync(call->out[0], base, bytes,
                                                 cudaMemcpyDeviceToDevice, stream_of(call));

    if (error != cudaSuccess)
        stream_note(call->stream, "embedding_grad", cudaGetErrorString(error));
}

static unsigned threads_of_columns(int64_t columns)
{
    return columns >= 512 ? 512 : (unsigned)((columns + WARP - 1) / WARP * WARP);
}

template <class T> static void launch_embedding_grad(const struct kernel_call *call)
{
    const struct kernel_problem *p = call->problem;
    const int64_t count = shape_count(&p->in[1].shape), *table = p->out[0].shape.dim;
    const int64_t per_sample = p->in[0].shape.rank == 3 ? 0 : p->in[1].shape.dim[1];
    const uint2 *pairs =
        sort_ids(call, (const int32_t *)call->in[1], count, table[0], per_sample);

    float *partial = (float *)((char *)call->scratch + sort_bytes(count));
    const unsigned segments = (unsigned)segments_of(count),
                   threads = threads_of_columns(table[1]);

    begin_table(call, p->n_in > 2 ? call->in[2] : NULL);
    add_segments<T><<<segments, threads, 0, stream_of(call)>>>(
        pairs, count, table[0], (const T *)call->in[0], table[1], p->n_in > 2, partial,
        (float *)call->out[0]);
    join_segments<<<segments, threads, 0, stream_of(call)>>>(pairs, count, table[0], table[1],
                                                             partial, (float *)call->out[0]);
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
