/* SPDX-License-Identifier: MIT */
/* sum_rows.cu - sums over rows in the order of row_parts (column.cuh), and gelu's slope on what is summed, in one look at it.
 *
 * A block has a part of the rows, a thread the same columns of each. cuBLASLt has an epilogue for the slope, whose kernel
 * is slower than a plain product and this together where what they share stays in the cache, and sums of it in an order that is nobody's.
 */
#include "kernel/cuda/column.cuh"
#include "kernel/cuda/column_sums.h"
#include "kernel/cuda/gelu.cuh"

enum { ROWS_AHEAD = 4, ROW_THREADS = 256, CACHED = 32 << 20, ALIGNED = 8 };

size_t sum_rows_scratch(int64_t rows, int64_t columns)
{
    return (size_t)(row_parts(rows) * columns) * sizeof(float);
}

/* So many elements that lie side by side. */
template <class T, int N> struct alignas(N * sizeof(T)) some {
    T x[N];
};

/* Parts of all, from the first on as many as there are blocks. */
struct range {
    int64_t first, all;
};

template <class T, int N, bool SLOPE>
__global__ void __launch_bounds__(ROW_THREADS)
    part_sums(T *x, const T *kept, int64_t rows, int64_t columns, struct range parts,
              float *partial)
{
    typedef some<T, N> many;
    const int64_t column = ((int64_t)blockIdx.y * blockDim.x + threadIdx.x) * N;
    const int64_t part = parts.first + blockIdx.x, end = rows * (part + 1) / parts.all;
    float sums[N] = {};

    if (column >= columns)
        return;
    for (int64_t row = rows * part / parts.all; row < end; row += ROWS_AHEAD) {
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
    *(some<float, N> *)(partial + part * columns + column) = *(some<float, N> *)sums;
}

struct give_sum {
    float *out;
    __device__ void operator()(int64_t column, const double sums[1]) const
    {
        out[column] = (float)sums[0];
    }
};

template <class T, int N, bool SLOPE>
static void launch(struct device_stream *stream, const struct row_sums *sums, int piece,
                   int pieces)
{
    const int64_t across = (sums->columns + N - 1) / N, parts = row_parts(sums->rows);
    const int64_t threads =
        across < ROW_THREADS ? (across + WARP - 1) / WARP * WARP : (int64_t)ROW_THREADS;
    const struct range range = { parts * piece / pieces, parts };
    const int64_t end = parts * (piece + 1) / pieces;
    const dim3 grid((unsigned)(end - range.first), blocks_of(across, threads));

    part_sums<T, N, SLOPE><<<grid, (unsigned)threads, 0, stream->cuda>>>(
        (T *)sums->x, (const T *)sums->kept, sums->rows, sums->columns, range,
        (float *)sums->scratch);
}

template <class T>
static void sum_some(struct device_stream *stream, const struct row_sums *sums, int piece,
                     int pieces)
{
    enum { N = pack<T>::N };
    const bool wide = sums->columns % N == 0 && is_packed((const T *)sums->x) &&
                      is_packed((const T *)sums->kept);

    if (sums->kept != NULL && wide)
        launch<T, N, true>(stream, sums, piece, pieces);
    else if (sums->kept != NULL)
        launch<T, 1, true>(stream, sums, piece, pieces);
    else if (wide)
        launch<T, N, false>(stream, sums, piece, pieces);
    else
        launch<T, 1, false>(stream, sums, piece, pieces);
}

void sum_piece(struct device_stream *stream, const struct row_sums *sums, int piece, int pieces)
{
    if (sums->dtype == DTYPE_BF16)
        sum_some<bf16>(stream, sums, piece, pieces);
    else if (sums->dtype == DTYPE_F16)
        sum_some<f16>(stream, sums, piece, pieces);
    else
        sum_some<float>(stream, sums, piece, pieces);
    if (piece == pieces - 1)
        launch_finish<1>(stream, give_sum{ sums->out }, sums->columns, row_parts(sums->rows),
                         (const float *)sums->scratch);
    stream_check(stream, "sum_rows");
}

void sum_rows(struct device_stream *stream, const void *x, enum dtype dtype, int64_t rows,
              int64_t columns, float *out, void *scratch)
{
    const struct row_sums sums = { (void *)x, NULL, dtype, rows, columns, out, scratch };

    sum_piece(stream, &sums, 0, 1);
}

int sum_pieces(int64_t rows, int64_t columns, enum dtype dtype)
{
    const int64_t bytes = rows * columns * (dtype == DTYPE_F32 ? 4 : 2);
    int pieces = 1;

    while (bytes / pieces > CACHED && rows % (2 * pieces * ALIGNED) == 0 &&
           row_parts(rows) % (2 * pieces) == 0)
        pieces *= 2;
    return pieces;
}

static size_t scratch_of(const struct kernel_problem *p)
{
    return sum_rows_scratch(p->in[0].shape.dim[0], p->in[0].shape.dim[1]);
}

static void run_sum_rows(const struct kernel_call *call)
{
    const struct kernel_tensor *x = &call->problem->in[0];

    sum_rows(call->stream, call->in[0], x->dtype, x->shape.dim[0], x->shape.dim[1],
             (float *)call->out[0], call->scratch);
}

extern "C" const struct kernel cuda_sum_rows_rows[] = {
    { "sum_rows", "own", NULL, scratch_of, NULL, NULL, run_sum_rows },
    { NULL, NULL, NULL, NULL, NULL, NULL, NULL },
};
