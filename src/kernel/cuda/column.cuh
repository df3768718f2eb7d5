/* SPDX-License-Identifier: MIT */
/* column.cuh - private to the plug-in: sums over the rows of a matrix, for each of its columns.
 *
 * Rows are cut into parts; a block has 32 columns of one part, a thread every eighth row of it. Partial sums
 * are doubles, (part, sum, column) in scratch; a second launch adds them and hands them to `finish`. How many
 * parts there are follows from the extents alone, so the order of additions does. What makes the numbers is
 * a functor: void operator()(row, column, double sums[K]), called once for each element, which
 * may write something on the way.
 */
#ifndef KERNEL_CUDA_COLUMN_CUH
#define KERNEL_CUDA_COLUMN_CUH

#include "kernel/cuda/device.cuh"

enum { COLUMN_WIDTH = 32, COLUMN_DEPTH = 8, COLUMN_BLOCKS = 1024, COLUMN_ROWS = 32 };

static inline int64_t column_parts(int64_t rows, int64_t columns)
{
    const int64_t across = (columns + COLUMN_WIDTH - 1) / COLUMN_WIDTH;
    const int64_t most = COLUMN_BLOCKS / across > 1 ? COLUMN_BLOCKS / across : 1;
    const int64_t wanted = (rows + COLUMN_ROWS - 1) / COLUMN_ROWS;

    return wanted < most ? wanted : most;
}

static inline size_t column_scratch(int64_t rows, int64_t columns, int sums)
{
    return (size_t)(column_parts(rows, columns) * columns * sums) * sizeof(double);
}

/* Adds what the threads of a column have, in the order of their rows; valid where threadIdx.y is 0. */
template <int K> __device__ void add_depth(double sums[K])
{
    __shared__ double all[K][COLUMN_DEPTH][COLUMN_WIDTH];

    for (int k = 0; k < K; k++)
        all[k][threadIdx.y][threadIdx.x] = sums[k];
    __syncthreads();
    if (threadIdx.y == 0) {
        for (int k = 0; k < K; k++) {
            sums[k] = 0;
            for (int i = 0; i < COLUMN_DEPTH; i++)
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
    add_depth<K>(sums);
    if (threadIdx.y == 0 && column < columns) {
        for (int k = 0; k < K; k++)
            partial[(part * K + k) * columns + column] = sums[k];
    }
}

template <int K, class F>
__global__ void finish_parts(F finish, int64_t columns, int64_t parts, const double *partial)
{
    const int64_t column = (int64_t)blockIdx.x * COLUMN_WIDTH + threadIdx.x;
    double sums[K] = { 0 };

    if (column < columns) {
        for (int64_t part = threadIdx.y; part < parts; part += COLUMN_DEPTH) {
            for (int k = 0; k < K; k++)
                sums[k] += partial[(part * K + k) * columns + column];
        }
    }
    add_depth<K>(sums);
    if (threadIdx.y == 0 && column < columns)
        finish(column, sums);
}

template <int K, class F, class G>
static void sum_columns(struct device_stream *stream, F f, G finish, int64_t rows,
                        int64_t columns, void *scratch)
{
    const int64_t parts = column_parts(rows, columns);
    const dim3 block(COLUMN_WIDTH, COLUMN_DEPTH);
    const dim3 grid(blocks_of(columns, COLUMN_WIDTH), (unsigned)parts);

    sum_parts<K, F>
        <<<grid, block, 0, stream->cuda>>>(f, rows, columns, parts, (double *)scratch);
    finish_parts<K, G>
        <<<grid.x, block, 0, stream->cuda>>>(finish, columns, parts, (const double *)scratch);
}

#endif /* KERNEL_CUDA_COLUMN_CUH */
