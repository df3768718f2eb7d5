/* SPDX-License-Identifier: MIT */
/* column.cuh - private to the plug-in: sums over the rows of a matrix, for each of its columns.
 *
 * Rows are cut into parts; a block has 32 columns of one part, a thread every eighth row of it. Partial sums
 * are doubles, (part, sum, column) in scratch; a second launch adds them and hands them to `finish`. How many
 * parts there are follows from the extents alone, so the order of additions does. Few rows are one launch: a block has
 * all of them for 32 columns. What makes the numbers is
 * a functor: void operator()(row, column, double sums[K]), called once for each element, which
 * may write something on the way. One that has also begin(column) and four(row, column, A sums[K][AT_ONCE]) may be
 * summed with four columns a thread, which moves memory at nearly its speed; begin is told of these before any row.
 */
#ifndef KERNEL_CUDA_COLUMN_CUH
#define KERNEL_CUDA_COLUMN_CUH

#include "kernel/cuda/device.cuh"

enum {
    COLUMN_WIDTH = 32,
    COLUMN_DEPTH = 8,
    COLUMN_BLOCKS = 1024,
    COLUMN_ROWS = 32,
    FINISH_DEPTH = 32,
    FINISH_WIDTH =
        8, /* columns of a block that adds parts: few, so that many parts are on their way at once */
    FEW_ROWS = 1024,
    FLOAT_ROWS = 32
};

/* Parts of blocks that have so many columns. */
static inline int64_t parts_of_blocks(int64_t rows, int64_t columns, int64_t width)
{
    const int64_t across = (columns + width - 1) / width;
    const int64_t most = COLUMN_BLOCKS / across > 1 ? COLUMN_BLOCKS / across : 1;
    const int64_t wanted = (rows + COLUMN_ROWS - 1) / COLUMN_ROWS;

    return wanted < most ? wanted : most;
}

static inline int64_t column_parts(int64_t rows, int64_t columns)
{
    return parts_of_blocks(rows, columns, COLUMN_WIDTH);
}

/* Threads of a block along the columns, each with four; a power of two. */
static inline int64_t wide_lanes(int64_t columns)
{
    int64_t lanes = 4;

    while (lanes < WARP && lanes * AT_ONCE < columns)
        lanes *= 2;
    return lanes;
}

static inline int64_t wide_parts(int64_t rows, int64_t columns)
{
    return parts_of_blocks(rows, columns, wide_lanes(columns) * AT_ONCE);
}

static inline size_t column_scratch(int64_t rows, int64_t columns, int sums)
{
    const int64_t narrow = column_parts(rows, columns), wide = wide_parts(rows, columns);

    return (size_t)((narrow > wide ? narrow : wide) * columns * sums) * sizeof(double);
}

/* Adds what the threads of a column have, in the order of their rows; valid where threadIdx.y is 0. */
template <int K, int DEPTH> __device__ void add_depth(double sums[K])
{
    __shared__ double all[K][DEPTH][COLUMN_WIDTH];

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

template <int K, class F>
__global__ void sum_parts(F f, int64_t rows, int64_t columns, int64_t parts, double *partial)
{
    const int64_t column = (int64_t)blockIdx.x * COLUMN_WIDTH + threadIdx.x;
    const int64_t part = blockIdx.y, begin = rows * part / parts,
                  end = rows * (part + 1) / parts;
    double sums[K] = { 0 };

    if (column < columns) {
#pragma unroll 4 /* so that several rows are on their way */
        for (int64_t row = begin + threadIdx.y; row < end; row += COLUMN_DEPTH)
            f(row, column, sums);
    }
    add_depth<K, COLUMN_DEPTH>(sums);
    if (threadIdx.y == 0 && column < columns) {
        for (int k = 0; k < K; k++)
            partial[(part * K + k) * columns + column] = sums[k];
    }
}

/* The same with four columns a thread; blocks are lanes by as many rows as there are threads left. A thread's own sums are
 * of type A: float for functors of bf16, as conversions to double are slow; every FLOAT_ROWS of its rows they are added to
 * doubles, which lie in shared memory: with more registers fewer blocks would run at a time. */
template <int K, class A, class F>
__global__ void sum_parts_wide(F f, int64_t rows, int64_t columns, int64_t parts,
                               double *partial)
{
    __shared__ double all[K][AT_ONCE][THREADS];
    const int64_t column = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * AT_ONCE;
    const int64_t part = blockIdx.y, begin = rows * part / parts,
                  end = rows * (part + 1) / parts;
    const unsigned own = threadIdx.y * blockDim.x + threadIdx.x;

    for (int k = 0; k < K; k++) {
        for (int j = 0; j < AT_ONCE; j++)
            all[k][j][own] = 0;
    }
    if (column < columns)
        f.begin(column);
    for (int64_t row = begin + threadIdx.y; column < columns && row < end;) {
        const int64_t left = end - row, at_once = (int64_t)FLOAT_ROWS * blockDim.y;
        const int64_t past = sizeof(A) < sizeof(double) && left > at_once ? row + at_once : end;
        A sums[K][AT_ONCE] = {};
#pragma unroll(K > 4 ? 1 : K > 1 ? 4 : 8)
        for (; row < past; row += blockDim.y)
            f.four(row, column, sums);
        for (int k = 0; k < K; k++) {
            for (int j = 0; j < AT_ONCE; j++) {
                volatile double *sum = &all[k][j][own]; /* else it is kept in registers */
                *sum = *sum + (double)sums[k][j];
            }
        }
    }
    __syncthreads();
    if (threadIdx.y > 0 || column >= columns)
        return;
    for (int k = 0; k < K; k++) {
        for (int j = 0; j < AT_ONCE; j++) {
            double sum = 0;
            for (unsigned i = 0; i < blockDim.y; i++)
                sum += all[k][j][i * blockDim.x + threadIdx.x];
            partial[(part * K + k) * columns + column + j] = sum;
        }
    }
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
    const int64_t column = (int64_t)blockIdx.x * COLUMN_WIDTH + threadIdx.x;
    double sums[K] = { 0 };

    if (column < columns) {
#pragma unroll 8
        for (int64_t row = threadIdx.y; row < rows; row += FINISH_DEPTH)
            f(row, column, sums);
    }
    add_depth<K, FINISH_DEPTH>(sums);
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

    sum_parts<K, F>
        <<<grid, block, 0, stream->cuda>>>(f, rows, columns, parts, (double *)scratch);
    launch_finish<K>(stream, finish, columns, parts, (const double *)scratch);
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
    const int64_t parts = wide_parts(rows, columns), lanes = wide_lanes(columns);
    const dim3 block((unsigned)lanes, (unsigned)(THREADS / lanes));
    const dim3 grid(blocks_of(columns, lanes * AT_ONCE), (unsigned)parts);

    sum_parts_wide<K, A, F>
        <<<grid, block, 0, stream->cuda>>>(f, rows, columns, parts, (double *)scratch);
    launch_finish<K>(stream, finish, columns, parts, (const double *)scratch);
}

#endif /* KERNEL_CUDA_COLUMN_CUH */
