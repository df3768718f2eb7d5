/* SPDX-License-Identifier: MIT */
/* column_sums.cu - sums of columns: in double; and in the order of row_parts (column.cuh), with gelu's slope on what is summed, in one
 * look at it.
 *
 * Of the latter a block has a part of the rows, a thread the same columns of each.
 */
#include "kernel/cuda/column.cuh"
#include "kernel/cuda/column_sums.h"
#include "kernel/cuda/gelu.cuh"

/* In double ---------------------------------------------------------------------------- */

template <class T> struct add_column {
    enum { AHEAD = 16 };
    const T *x;
    int64_t columns;
    __device__ void operator()(int64_t row, int64_t column, double sums[1]) const
    {
        sums[0] += (double)number(x[row * columns + column]);
    }
    __device__ void begin(int64_t) const
    {
    }
    template <class A>
    __device__ void four(int64_t row, int64_t column, A sums[1][AT_ONCE]) const
    {
        const ::four<T> in = *(const ::four<T> *)(x + row * columns + column);
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++)
            sums[0][k] += (A)number(in.x[k]);
    }
};

struct give_column {
    float *out;
    __device__ void operator()(int64_t column, const double sums[1]) const
    {
        out[column] = (float)sums[0];
    }
};

size_t column_sums_scratch(int64_t rows, int64_t columns)
{
    return column_scratch(rows, columns, 1);
}

template <class T>
static void column_sums_of(struct device_stream *stream, const T *x, int64_t rows,
                           int64_t columns, float *out, void *scratch)
{
    const struct add_column<T> add = {
        x, columns
    };

    if (columns % AT_ONCE == 0 && is_aligned(x))
        sum_columns_wide<1, typename sums_of<T>::type>(stream, add, give_column{ out }, rows,
                                                       columns, scratch);
    else
        sum_columns<1>(stream, add, give_column{ out }, rows, columns, scratch);
}

void column_sums(struct device_stream *stream, const void *x, enum dtype dtype, int64_t rows,
                 int64_t columns, float *out, void *scratch)
{
    if (dtype == DTYPE_BF16)
        column_sums_of(stream, (const bf16 *)x, rows, columns, out, scratch);
    else if (dtype == DTYPE_F16)
        column_sums_of(stream, (const f16 *)x, rows, columns, out, scratch);
    else
        column_sums_of(stream, (const float *)x, rows, columns, out, scratch);
    stream_check(stream, "column_sums");
}

/* Rows and columns of bias_grad's dy: channels of images are innermost. */
static void matrix_of(const struct kernel_tensor *dy, int64_t *rows, int64_t *columns)
{
    const struct shape *shape = &dy->shape;

    *columns = shape->dim[dy->layout == LAYOUT_NHWC ? 1 : shape->rank - 1];
    *rows = shape_count(shape) / *columns;
}

static size_t bias_grad_scratch(const struct kernel_problem *p)
{
    int64_t rows, columns;

    matrix_of(&p->in[0], &rows, &columns);
    return column_scratch(rows, columns, 1);
}

static void run_bias_grad(const struct kernel_call *call)
{
    int64_t rows, columns;

    matrix_of(&call->problem->in[0], &rows, &columns);
    column_sums(call->stream, call->in[0], call->problem->in[0].dtype, rows, columns,
                (float *)call->out[0], call->scratch);
}

/* In the order of row_parts -------------------------------------------------------------- */

enum { ROWS_AHEAD = 4, ROW_THREADS = 256 };

size_t sum_rows_scratch(int64_t rows, int64_t columns)
{
    return (size_t)(row_parts(rows) * columns) * sizeof(float);
}

int64_t sum_rows_part(int64_t rows)
{
    return part_rows(rows);
}

void sum_rows_finish(struct device_stream *stream, const float *partial, int64_t rows,
                     int64_t columns, float *out)
{
    launch_finish<1>(stream, give_column{ out }, columns, row_parts(rows), partial);
    stream_check(stream, "sum_rows");
}

/* So many elements that lie side by side. */
template <class T, int N> struct alignas(N * sizeof(T)) some {
    T x[N];
};

template <class T, int N, bool SLOPE>
__global__ void __launch_bounds__(ROW_THREADS)
    part_sums(T *x, const T *kept, int64_t rows, int64_t columns, float *partial)
{
    typedef some<T, N> many;
    const int64_t column = ((int64_t)blockIdx.y * blockDim.x + threadIdx.x) * N;
    const int64_t each = part_rows(rows), begin = blockIdx.x * each,
                  end = begin + each < rows ? begin + each : rows;
    float sums[N] = {};

    if (column >= columns)
        return;
    for (int64_t row = begin; row < end; row += ROWS_AHEAD) {
        many own[ROWS_AHEAD], in[ROWS_AHEAD];

#pragma unroll
        for (int r = 0; r < ROWS_AHEAD; r++) {
            const int64_t at = (row + r < end ? row + r : end - 1) * columns + column;
            own[r] = *(const many *)(x + at);
            if (SLOPE)
                in[r] = *(const many *)(kept + at);
        }
#pragma unroll
        for (int r = 0; r < ROWS_AHEAD; r++) {
            if (row + r >= end)
                break;
#pragma unroll
            for (int k = 0; k < N; k++) {
                if (SLOPE)
                    put(&own[r].x[k],
                        number(own[r].x[k]) * gelu_tanh_slope<T>(number(in[r].x[k])));
                sums[k] += number(own[r].x[k]);
            }
            if (SLOPE)
                *(many *)(x + (row + r) * columns + column) = own[r];
        }
    }
    *(some<float, N> *)(partial + blockIdx.x * columns + column) = *(some<float, N> *)sums;
}

template <class T, int N, bool SLOPE>
static void launch(struct device_stream *stream, T *x, const T *kept, int64_t rows,
                   int64_t columns, float *out, float *scratch)
{
    const int64_t across = (columns + N - 1) / N;
    const int64_t threads =
        across < ROW_THREADS ? (across + WARP - 1) / WARP * WARP : (int64_t)ROW_THREADS;
    const dim3 grid((unsigned)row_parts(rows), blocks_of(across, threads));

    part_sums<T, N, SLOPE>
        <<<grid, (unsigned)threads, 0, stream->cuda>>>(x, kept, rows, columns, scratch);
    sum_rows_finish(stream, scratch, rows, columns, out);
}

template <class T>
static void sums_of_rows(struct device_stream *stream, void *x, const void *kept, int64_t rows,
                         int64_t columns, float *out, float *scratch)
{
    enum { N = pack<T>::N };
    T *own = (T *)x;
    const T *in = (const T *)kept;
    const bool wide = columns % N == 0 && is_packed(own) && is_packed(in);

    if (in != NULL && wide)
        launch<T, N, true>(stream, own, in, rows, columns, out, scratch);
    else if (in != NULL)
        launch<T, 1, true>(stream, own, in, rows, columns, out, scratch);
    else if (wide)
        launch<T, N, false>(stream, own, in, rows, columns, out, scratch);
    else
        launch<T, 1, false>(stream, own, in, rows, columns, out, scratch);
}

void sum_rows(struct device_stream *stream, void *x, const void *kept, enum dtype dtype,
              int64_t rows, int64_t columns, float *out, void *scratch)
{
    if (dtype == DTYPE_BF16)
        sums_of_rows<bf16>(stream, x, kept, rows, columns, out, (float *)scratch);
    else if (dtype == DTYPE_F16)
        sums_of_rows<f16>(stream, x, kept, rows, columns, out, (float *)scratch);
    else
        sums_of_rows<float>(stream, x, kept, rows, columns, out, (float *)scratch);
}

static size_t scratch_of(const struct kernel_problem *p)
{
    return sum_rows_scratch(p->in[0].shape.dim[0], p->in[0].shape.dim[1]);
}

static void run_sum_rows(const struct kernel_call *call)
{
    const struct kernel_tensor *x = &call->problem->in[0];

    sum_rows(call->stream, (void *)call->in[0], NULL, x->dtype, x->shape.dim[0],
             x->shape.dim[1], (float *)call->out[0], call->scratch);
}

extern "C" const struct kernel cuda_column_sums_rows[] = {
    { "bias_grad", "own", NULL, bias_grad_scratch, NULL, NULL, run_bias_grad },
    { "sum_rows", "own", NULL, scratch_of, NULL, NULL, run_sum_rows },
    { NULL, NULL, NULL, NULL, NULL, NULL, NULL },
};
