/* SPDX-License-Identifier: MIT */
/* column.cuh - private to the plug-in: sums over the rows of a matrix, for each of its columns.
 *
 * Rows are cut into parts; a block has 32 columns of one part, a thread every eighth row of it. Partial sums
 * are doubles, (part, sum, column) in scratch. The block that comes last of a group of parts adds those of the group, the one
 * that comes last of all groups adds theirs and hands the sums to `finish`: who that is depends on time, what it adds and in
 * which order does not, as parts follow from the extents alone. Few rows need no parts: a block has
 * all of them for 32 columns. What makes the numbers is
 * a functor: void operator()(row, column, double sums[K]), called once for each element, which
 * may write something on the way. One that has also begin(column) and four(row, column, A sums[K][AT_ONCE]) may be
 * summed with four columns a thread, which moves memory at nearly its speed; begin is told of these before any row, AHEAD
 * is how many rows are read at once.
 */
#ifndef KERNEL_CUDA_COLUMN_CUH
#define KERNEL_CUDA_COLUMN_CUH

#include "kernel/cuda/device.cuh"

enum {
    COLUMN_WIDTH = 32,
    COLUMN_DEPTH = 8,
    COLUMN_BLOCKS = 512, /* nearly four for each of an H200's multiprocessors: all at once */
    COLUMN_ROWS = 32,
    FINISH_DEPTH = 32,
    FINISH_WIDTH =
        8, /* columns of a block that adds parts: few, so that many parts are on their way at once */
    FEW_ROWS = 1024,
    FLOAT_ROWS = 32,
    LANES_MAX = 32,
    GROUP = 32 /* parts that one block adds */
};

static inline int64_t column_parts(int64_t rows, int64_t columns)
{
    const int64_t across = (columns + COLUMN_WIDTH - 1) / COLUMN_WIDTH;
    const int64_t most = COLUMN_BLOCKS / across > 1 ? COLUMN_BLOCKS / across : 1;
    const int64_t wanted = (rows + COLUMN_ROWS - 1) / COLUMN_ROWS;

    return wanted < most ? wanted : most;
}

/* Threads of a block along the columns, each with four: so that all blocks have about as many columns, and begin where what
 * memory moves at once does. */
static inline int64_t wide_lanes(int64_t columns)
{
    const int64_t fours = (columns + AT_ONCE - 1) / AT_ONCE;
    const int64_t across = (fours + LANES_MAX - 1) / LANES_MAX;
    const int64_t lanes = (fours + across - 1) / across;

    return across == 1 ? lanes : (lanes + 3) / 4 * 4;
}

/* Rows that a block reads at once, `ahead` a thread: parts are made of these, as the rest of a loop is read row by row, each waiting
 * for the one before. */
__host__ __device__ static inline int64_t wide_unit(int64_t depth, int ahead)
{
    return depth * ahead;
}

static inline int64_t wide_parts(int64_t rows, int64_t columns, int ahead)
{
    const int64_t lanes = wide_lanes(columns), unit = wide_unit(THREADS / lanes, ahead);
    const int64_t across = (columns + lanes * AT_ONCE - 1) / (lanes * AT_ONCE);
    const int64_t most = COLUMN_BLOCKS / across > 1 ? COLUMN_BLOCKS / across : 1;
    const int64_t units = (rows + unit - 1) / unit;

    return units < most ? units : most;
}

__host__ __device__ static inline int64_t groups_of(int64_t parts)
{
    return (parts + GROUP - 1) / GROUP;
}

static inline size_t column_scratch(int64_t rows, int64_t columns, int sums)
{
    const int64_t narrow = column_parts(rows, columns),
                  wide = wide_parts(rows, columns, 1); /* at most */
    const int64_t parts = narrow > wide ? narrow : wide;

    return (size_t)((parts + groups_of(parts)) * columns * sums) * sizeof(double);
}

/* Sums where their summands are made ----------------------------------------------------- */

enum { PART_LEAST = 16, PART_MOST = 64, PARTS_WANTED = 528 };

/* Sums over rows that several ops can give (layer_norm_grad, linear_grad_through, sum_rows) have one order, whoever makes them: parts
 * of rows that follow each other, 16, 32 or 64 as follows from the rows alone, so that tiles of 64 have whole parts; in a part one f32 sum of
 * what is stored, row by row; parts as finish_parts adds them. */
__host__ __device__ static inline int64_t part_rows(int64_t rows)
{
    int64_t each = PART_LEAST;

    while (each < PART_MOST && rows > each * PARTS_WANTED)
        each *= 2;
    return each;
}

static inline int64_t row_parts(int64_t rows)
{
    return (rows + part_rows(rows) - 1) / part_rows(rows);
}

/* Parts that are added at once ---------------------------------------------------------- */

/* Where a block of a grid of `parts` by blocks of columns stands. */
struct place {
    int64_t columns, parts;
    double *partial;    /* (part, sum, column), then the same of groups */
    unsigned *counters; /* of the stream: zero before and after a launch */
};

/* Is this block the last of so many to come here? Then it sees what the others have written. */
__device__ static bool is_last(unsigned *counter, int64_t of)
{
    __shared__ bool last;

    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0 && threadIdx.y == 0) {
        last = atomicAdd(counter, 1U) == (unsigned)(of - 1);
        if (last)
            *counter = 0;
        __threadfence();
    }
    __syncthreads();
    return last;
}

/* A column's sum over rows of partial sums, past the first cache: others have written them. */
__device__ static double add_rows(const double *from, int64_t apart, int64_t rows)
{
    double sum = 0;

#pragma unroll 16
    for (int64_t row = 0; row < rows; row++)
        sum += __ldcg(from + row * apart);
    return sum;
}

/* After a block has written its part of columns [first, first + width): the last ones go on. `room` has K * width numbers of
 * shared memory that nobody uses any more. */
template <int K, class G>
__device__ void finish_last(G finish, const struct place &at, int64_t first, int width,
                            double *room)
{
    const int64_t groups = groups_of(at.parts), group = blockIdx.y / GROUP;
    const int64_t begin = group * GROUP,
                  end = begin + GROUP < at.parts ? begin + GROUP : at.parts;
    const int64_t apart = K * at.columns;
    const int own = (int)(threadIdx.y * blockDim.x + threadIdx.x),
              threads = (int)(blockDim.x * blockDim.y);
    unsigned *counters = at.counters + blockIdx.x * (groups + 1);
    const double *from = at.partial + begin * apart;
    int64_t rows = end - begin;

    if (at.parts == 1)
        __syncthreads();
    else if (!is_last(counters + group, rows))
        return;
    if (groups > 1) {
        double *of_groups = at.partial + at.parts * apart;
        for (int n = own; n < K * width; n += threads) {
            const int64_t column = n / width * at.columns + first + n % width;
            if (first + n % width < at.columns)
                of_groups[group * apart + column] = add_rows(from + column, apart, rows);
        }
        if (!is_last(counters + groups, groups))
            return;
        from = of_groups;
        rows = groups;
    }
    for (int n = own; n < K * width; n += threads) {
        const int64_t column = n / width * at.columns + first + n % width;
        if (first + n % width < at.columns)
            room[n] = add_rows(from + column, apart, rows);
    }
    __syncthreads();
    for (int n = own; n < width && first + n < at.columns; n += threads) {
        double sums[K];
        for (int k = 0; k < K; k++)
            sums[k] = room[k * width + n];
        finish(first + n, sums);
    }
}

/* Adds what the threads of a column have, in the order of their rows; valid where threadIdx.y is 0. */
template <int K, int DEPTH>
__device__ void add_depth(double (*all)[DEPTH][COLUMN_WIDTH], double sums[K])
{
    for (int k = 0; k < K; k++)
        all[k][threadIdx.y][threadIdx.x] = sums[k];
    __syncthreads();
    if (threadIdx.y == 0) {
        for (int k = 0; k < K; k++) {
            sums[k] = 0;
            for (int i = 0; i < DEPTH; i++)
                sums[k] += all[k][i][threadIdx.x];
        }
    }
}

template <int K, class F, class G>
__global__ void sum_parts(F f, G finish, int64_t rows, struct place at)
{
    __shared__ double all[K][COLUMN_DEPTH][COLUMN_WIDTH];
    const int64_t first = (int64_t)blockIdx.x * COLUMN_WIDTH, column = first + threadIdx.x;
    const int64_t part = blockIdx.y, begin = rows * part / at.parts,
                  end = rows * (part + 1) / at.parts;
    double sums[K] = { 0 };

    if (column < at.columns) {
#pragma unroll 4 /* so that several rows are on their way */
        for (int64_t row = begin + threadIdx.y; row < end; row += COLUMN_DEPTH)
            f(row, column, sums);
    }
    add_depth<K, COLUMN_DEPTH>(all, sums);
    if (threadIdx.y == 0 && column < at.columns) {
        for (int k = 0; k < K; k++)
            at.partial[(part * K + k) * at.columns + column] = sums[k];
    }
    finish_last<K>(finish, at, first, COLUMN_WIDTH, &all[0][0][0]);
}

/* The same with four columns a thread; blocks are lanes by as many rows as there are threads left. A thread's own sums are
 * of type A: float for functors of bf16, as conversions to double are slow; every FLOAT_ROWS of its rows they are added to
 * doubles, which lie in shared memory: with more registers fewer blocks would run at a time. */
template <int K, class A, class F, class G>
__global__ void __launch_bounds__(THREADS, 4)
    sum_parts_wide(F f, G finish, int64_t rows, struct place at)
{
    __shared__ double all[K][AT_ONCE][THREADS];
    const int width = (int)blockDim.x * AT_ONCE;
    const int64_t first = (int64_t)blockIdx.x * width, column = first + threadIdx.x * AT_ONCE;
    const int64_t step = blockDim.y, unit = wide_unit(step, F::AHEAD),
                  units = (rows + unit - 1) / unit;
    const int64_t part = blockIdx.y, begin = units * part / at.parts * unit,
                  past_end = units * (part + 1) / at.parts * unit,
                  end = past_end < rows ? past_end : rows;
    const unsigned own = threadIdx.y * blockDim.x + threadIdx.x;
    const int threads = (int)(blockDim.x * blockDim.y);

    for (int k = 0; k < K; k++) {
        for (int j = 0; j < AT_ONCE; j++)
            all[k][j][own] = 0;
    }
    if (column < at.columns)
        f.begin(column);
    for (int64_t row = begin + threadIdx.y; column < at.columns && row < end;) {
        const int64_t left = end - row, at_once = FLOAT_ROWS * step;
        const int64_t past = sizeof(A) < sizeof(double) && left > at_once ? row + at_once : end;
        A sums[K][AT_ONCE] = {};
        /* By hand: of a loop whose step it does not know the compiler leaves each row to wait. */
        for (; row + (F::AHEAD - 1) * step < past; row += F::AHEAD * step) {
#pragma unroll
            for (int i = 0; i < F::AHEAD; i++)
                f.four(row + i * step, column, sums);
        }
        for (; row < past; row += step)
            f.four(row, column, sums);
        for (int k = 0; k < K; k++) {
            for (int j = 0; j < AT_ONCE; j++) {
                volatile double *sum = &all[k][j][own]; /* else it is kept in registers */
                *sum = *sum + (double)sums[k][j];
            }
        }
    }
    __syncthreads();
    for (int n = (int)own; n < K * width; n += threads) {
        const int k = n / width, j = n % width % AT_ONCE, lane = n % width / AT_ONCE;
        double sum = 0;
        for (unsigned i = 0; i < blockDim.y; i++)
            sum += all[k][j][i * blockDim.x + lane];
        if (first + n % width < at.columns)
            at.partial[(part * K + k) * at.columns + first + n % width] = sum;
    }
    finish_last<K>(finish, at, first, width, &all[0][0][0]);
}

/* What a thread adds elements of type T in. */
template <class T> struct sums_of {
    typedef double type;
};
template <> struct sums_of<bf16> {
    typedef float type;
};
template <> struct sums_of<f16> {
    typedef float type;
};

/* Threads of a block beside each other: a warp's worth of warps, or half. */
template <int K> struct finish_depth {
    enum { WARPS = K <= 4 ? WARP : WARP / 2, DEPTH = WARPS * WARP / FINISH_WIDTH };
};

/* Adds a column's parts: a thread some, then those of a warp, then warps, each time two by two. */
template <int K, class F, class P>
__global__ void __launch_bounds__(finish_depth<K>::WARPS *WARP)
    finish_parts(F finish, int64_t columns, int64_t parts, const P *partial)
{
    enum { WARPS = finish_depth<K>::WARPS };
    __shared__ double all[K][FINISH_WIDTH][WARPS];
    const int64_t first = (int64_t)blockIdx.x * FINISH_WIDTH;
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, own = lane % FINISH_WIDTH;
    double sums[K] = { 0 };

    if (first + own < columns) {
#pragma unroll(K > 4 ? 2 : 8)
        for (int64_t part = threadIdx.x / FINISH_WIDTH; part < parts;
             part += finish_depth<K>::DEPTH) {
            for (int k = 0; k < K; k++)
                sums[k] += (double)partial[(part * K + k) * columns + first + own];
        }
    }
    for (int k = 0; k < K; k++) {
        for (int apart = FINISH_WIDTH; apart < WARP; apart *= 2)
            sums[k] += __shfl_xor_sync(~0U, sums[k], apart);
        if (lane < FINISH_WIDTH)
            all[k][lane][warp] = sums[k];
    }
    __syncthreads();
    if (warp >= FINISH_WIDTH)
        return;
    for (int k = 0; k < K; k++) {
        sums[k] = lane < WARPS ? all[k][warp][lane] : 0;
        for (int apart = WARPS / 2; apart > 0; apart /= 2)
            sums[k] += __shfl_xor_sync(~0U, sums[k], apart);
    }
    if (lane == 0 && first + warp < columns)
        finish(first + warp, sums);
}

template <int K, class F, class P>
static void launch_finish(struct device_stream *stream, F finish, int64_t columns,
                          int64_t parts, const P *partial)
{
    finish_parts<K, F, P>
        <<<blocks_of(columns, FINISH_WIDTH), finish_depth<K>::WARPS * WARP, 0, stream->cuda>>>(
            finish, columns, parts, partial);
}

/* All rows of 32 columns. */
template <int K, class F, class G>
__global__ void sum_few(F f, G finish, int64_t rows, int64_t columns)
{
    __shared__ double all[K][FINISH_DEPTH][COLUMN_WIDTH];
    const int64_t column = (int64_t)blockIdx.x * COLUMN_WIDTH + threadIdx.x;
    double sums[K] = { 0 };

    if (column < columns) {
#pragma unroll 8
        for (int64_t row = threadIdx.y; row < rows; row += FINISH_DEPTH)
            f(row, column, sums);
    }
    add_depth<K, FINISH_DEPTH>(all, sums);
    if (threadIdx.y == 0 && column < columns)
        finish(column, sums);
}

template <int K> static inline bool are_few(int64_t rows)
{
    return K <= 2 && rows <= FEW_ROWS;
}

template <int K, class F, class G>
static void sum_of_few(struct device_stream *stream, F f, G finish, int64_t rows,
                       int64_t columns)
{
    if constexpr (K <= 2)
        sum_few<K, F, G><<<blocks_of(columns, COLUMN_WIDTH), dim3(COLUMN_WIDTH, FINISH_DEPTH),
                           0, stream->cuda>>>(f, finish, rows, columns);
}

template <int K, class F, class G>
static void sum_columns(struct device_stream *stream, F f, G finish, int64_t rows,
                        int64_t columns, void *scratch)
{
    if (are_few<K>(rows)) {
        sum_of_few<K>(stream, f, finish, rows, columns);
        return;
    }
    const int64_t parts = column_parts(rows, columns);
    const dim3 block(COLUMN_WIDTH, COLUMN_DEPTH);
    const dim3 grid(blocks_of(columns, COLUMN_WIDTH), (unsigned)parts);

    const struct place at = { columns, parts, (double *)scratch, stream->counters };

    sum_parts<K, F, G><<<grid, block, 0, stream->cuda>>>(f, finish, rows, at);
}

/* Four columns a thread: columns come in fours, and the functor's rows are aligned to that. */
template <int K, class A = double, class F, class G>
static void sum_columns_wide(struct device_stream *stream, F f, G finish, int64_t rows,
                             int64_t columns, void *scratch)
{
    if (are_few<K>(rows)) {
        sum_of_few<K>(stream, f, finish, rows, columns);
        return;
    }
    const int64_t parts = wide_parts(rows, columns, F::AHEAD), lanes = wide_lanes(columns);
    const dim3 block((unsigned)lanes, (unsigned)(THREADS / lanes));
    const dim3 grid(blocks_of(columns, lanes * AT_ONCE), (unsigned)parts);

    const struct place at = { columns, parts, (double *)scratch, stream->counters };

    sum_parts_wide<K, A, F, G><<<grid, block, 0, stream->cuda>>>(f, finish, rows, at);
}

#endif /* KERNEL_CUDA_COLUMN_CUH */
