/* SPDX-License-Identifier: MIT */
/* slope.cu - gelu's slope on a product's result, and the sums of that over rows, in one look at it.
 *
 * cuBLASLt has an epilogue for the slope, whose kernel is slower than a plain product and this together, and sums of it in an order
 * that is nobody's. A thread has a pack of columns of every eighth row of 256, so its f32 sums are of 32 rows; partial sums are doubles,
 * added as column.cuh adds them.
 */
#include "kernel/cuda/column.cuh"
#include "kernel/cuda/column_sums.h"
#include "kernel/cuda/gelu.cuh"

enum { DEPTH = 8, ROWS = DEPTH * FLOAT_ROWS, AHEAD = 2 };

static int64_t parts_of(int64_t rows)
{
    return (rows + ROWS - 1) / ROWS;
}

size_t slope_sums_scratch(int64_t rows, int64_t columns)
{
    return (size_t)(parts_of(rows) * columns) * sizeof(double);
}

template <class T>
__global__ void __launch_bounds__(DEPTH *WARP, 5)
    slope_parts(T *x, const T *kept, int64_t rows, int64_t columns, double *partial)
{
    enum { N = pack<T>::N };
    __shared__ float all[DEPTH][N][WARP];
    const int64_t column = ((int64_t)blockIdx.x * WARP + threadIdx.x) * N;
    const int64_t begin = (int64_t)blockIdx.y * ROWS;
    const int64_t end = begin + ROWS < rows ? begin + ROWS : rows;
    float sums[N] = {};

    for (int64_t row = begin + threadIdx.y; column < columns && row < end;
         row += AHEAD * DEPTH) {
        pack<T> flow[AHEAD], in[AHEAD];

#pragma unroll
        for (int r = 0; r < AHEAD; r++) {
            const int64_t at = (row + r * DEPTH) * columns + column;
            if (row + r * DEPTH < end) {
                flow[r] = *(const pack<T> *)(x + at);
                in[r] = *(const pack<T> *)(kept + at);
            }
        }
#pragma unroll
        for (int r = 0; r < AHEAD; r++) {
            const int64_t at = (row + r * DEPTH) * columns + column;
            if (row + r * DEPTH >= end)
                continue;
            float made[N];
#pragma unroll
            for (int k = 0; k < N; k++) {
                made[k] = number(flow[r].x[k]) * gelu_tanh_slope<T>(number(in[r].x[k]));
                sums[k] += made[k];
            }
            put_all(&flow[r], made);
            *(pack<T> *)(x + at) = flow[r];
        }
    }
#pragma unroll
    for (int k = 0; k < N; k++)
        all[threadIdx.y][k][threadIdx.x] = sums[k];
    __syncthreads();
    for (int k = (int)threadIdx.y; k < N && column < columns; k += DEPTH) {
        double sum = 0;
        for (int i = 0; i < DEPTH; i++)
            sum += (double)all[i][k][threadIdx.x];
        partial[blockIdx.y * columns + column + k] = sum;
    }
}

struct give_sum {
    float *out;
    __device__ void operator()(int64_t column, const double sums[1]) const
    {
        out[column] = (float)sums[0];
    }
};

template <class T>
static void run_slope(struct device_stream *stream, void *x, const void *kept, int64_t rows,
                      int64_t columns, float *sums, void *scratch)
{
    const dim3 grid(blocks_of(columns, pack<T>::N * WARP), (unsigned)parts_of(rows));

    slope_parts<T><<<grid, dim3(WARP, DEPTH), 0, stream->cuda>>>((T *)x, (const T *)kept, rows,
                                                                 columns, (double *)scratch);
    launch_finish<1>(stream, give_sum{ sums }, columns, parts_of(rows),
                     (const double *)scratch);
    stream_check(stream, "linear_grad_through");
}

bool slope_sums_can_run(const struct kernel_problem *p)
{
    const int64_t pack = p->out[0].dtype == DTYPE_F32 ? 4 : 8;

    return p->attrs.activation == ACTIVATION_GELU_TANH && p->n_out > 1 &&
           p->out[0].shape.dim[1] % pack == 0 && parts_of(p->out[0].shape.dim[0]) <= GRID_MAX;
}

void slope_sums(struct device_stream *stream, void *x, const void *kept, enum dtype dtype,
                int64_t rows, int64_t columns, float *sums, void *scratch)
{
    if (dtype == DTYPE_BF16)
        run_slope<bf16>(stream, x, kept, rows, columns, sums, scratch);
    else if (dtype == DTYPE_F16)
        run_slope<f16>(stream, x, kept, rows, columns, sums, scratch);
    else
        run_slope<float>(stream, x, kept, rows, columns, sums, scratch);
}
