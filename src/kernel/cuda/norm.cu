/* SPDX-License-Identifier: MIT */
/* norm.cu - layer norm and softmax: a block a row, of as many warps as the row is long.
 *
 * A row is read from memory once and found in the cache after that. The gradients of layer norm's gamma and
 * beta are sums over rows (column.cuh). Rows of up to 1024 elements that come in packs are a warp's, which keeps them
 * in registers; its gradient has one look at dy and x for all three results: a warp goes through its rows, keeps sums of each
 * column, and blocks' sums are added in order. What flows around the norm is added where its gradient is written, maybe
 * over it.
 */
#include "kernel/cuda/column.cuh"

template <class T>
__global__ void layer_norm(const T *x, const float *gamma, const float *beta, T *y,
                           float *saved, int64_t features, float epsilon)
{
    const int64_t row = blockIdx.x;
    float sum = 0, squares = 0;

    x += row * features;
    y += row * features;
    for (int64_t j = threadIdx.x; j < features; j += blockDim.x)
        sum += number(x[j]);
    const float mean = block_sum(sum) / (float)features;
    for (int64_t j = threadIdx.x; j < features; j += blockDim.x) {
        const float apart = number(x[j]) - mean;
        squares = fmaf(apart, apart, squares);
    }
    const float variance = block_sum(squares) / (float)features;
    const float rstd = (float)(1 / sqrt((double)variance + (double)epsilon));
    for (int64_t j = threadIdx.x; j < features; j += blockDim.x)
        put(&y[j], fmaf((number(x[j]) - mean) * rstd, gamma[j], beta[j]));
    if (threadIdx.x == 0) {
        saved[2 * row] = mean;
        saved[2 * row + 1] = rstd;
    }
}

enum { KEPT = 8 }; /* elements of a row that a thread keeps */

/* The same for rows that the threads can keep: x is read once. */
template <class T>
__global__ void layer_norm_kept(const T *x, const float *gamma, const float *beta, T *y,
                                float *saved, int features, float epsilon)
{
    const int64_t row = blockIdx.x;
    float own[KEPT], sum = 0, squares = 0;

    x += row * features;
    y += row * features;
#pragma unroll
    for (int k = 0; k < KEPT; k++) {
        const int j = (int)threadIdx.x + k * (int)blockDim.x;
        own[k] = j < features ? number(x[j]) : 0;
        sum += own[k];
    }
    const float mean = block_sum(sum) / (float)features;
#pragma unroll
    for (int k = 0; k < KEPT; k++) {
        const int j = (int)threadIdx.x + k * (int)blockDim.x;
        const float apart = j < features ? own[k] - mean : 0;
        squares = fmaf(apart, apart, squares);
    }
    const float variance = block_sum(squares) / (float)features;
    const float rstd = (float)(1 / sqrt((double)variance + (double)epsilon));
#pragma unroll
    for (int k = 0; k < KEPT; k++) {
        const int j = (int)threadIdx.x + k * (int)blockDim.x;
        if (j < features)
            put(&y[j], fmaf((own[k] - mean) * rstd, gamma[j], beta[j]));
    }
    if (threadIdx.x == 0) {
        saved[2 * row] = mean;
        saved[2 * row + 1] = rstd;
    }
}

/* Rows of a warp ----------------------------------------------------------------------- */

enum { ROW_WARPS = THREADS / WARP, ROWS_A_WARP = 8, ROW_BLOCKS = 1024 };

/* Packs that a lane has of a row, 0 if it has too many or rows are no packs. */
template <class T> static int packs_of(int64_t features)
{
    const int64_t packs = features / pack<T>::N;

    return features % pack<T>::N == 0 && packs <= 4 * WARP ? (int)((packs + WARP - 1) / WARP)
                                                           : 0;
}

/* A lane's numbers of gamma or beta. */
template <class T, int P>
__device__ __forceinline__ void take_numbers(float own[P][pack<T>::N], const float *from,
                                             int packs)
{
    enum { N = pack<T>::N, M = pack<float>::N };

#pragma unroll
    for (int p = 0; p < P; p++) {
        const int at = (int)threadIdx.x % WARP + p * WARP;
#pragma unroll
        for (int k = 0; k < N; k += M) {
            pack<float> in = {};
            if (at < packs)
                in = *(const pack<float> *)(from + at * N + k);
#pragma unroll
            for (int m = 0; m < M; m++)
                own[p][k + m] = in.x[m];
        }
    }
}

template <class T, int P>
__global__ void __launch_bounds__(THREADS)
    layer_norm_rows(const T *x, const float *gamma, const float *beta, T *y, float *saved,
                    int64_t rows, int features, float epsilon)
{
    enum { N = pack<T>::N };
    const int lane = threadIdx.x % WARP, packs = features / N;
    float slope[P][N], shift[P][N];

    take_numbers<T, P>(slope, gamma, packs);
    take_numbers<T, P>(shift, beta, packs);
    for (int64_t row = (int64_t)blockIdx.x * ROW_WARPS + threadIdx.x / WARP; row < rows;
         row += (int64_t)gridDim.x * ROW_WARPS) {
        float own[P][N], sum = 0, squares = 0;

#pragma unroll
        for (int p = 0; p < P; p++) {
            const int at = lane + p * WARP;
            pack<T> in = {};
            if (at < packs)
                in = *(const pack<T> *)(x + row * features + at * N);
#pragma unroll
            for (int k = 0; k < N; k++) {
                own[p][k] = number(in.x[k]);
                sum += own[p][k];
            }
        }
        const float mean = warp_sum(sum) / (float)features;
#pragma unroll
        for (int p = 0; p < P; p++) {
            const bool there = lane + p * WARP < packs;
#pragma unroll
            for (int k = 0; k < N; k++) {
                const float apart = there ? own[p][k] - mean : 0;
                squares = fmaf(apart, apart, squares);
            }
        }
        const float variance = warp_sum(squares) / (float)features;
        const float rstd = (float)(1 / sqrt((double)variance + (double)epsilon));
#pragma unroll
        for (int p = 0; p < P; p++) {
            const int at = lane + p * WARP;
            pack<T> out;
            if (at >= packs)
                continue;
#pragma unroll
            for (int k = 0; k < N; k++)
                put(&out.x[k], fmaf((own[p][k] - mean) * rstd, slope[p][k], shift[p][k]));
            *(pack<T> *)(y + row * features + at * N) = out;
        }
        if (lane == 0) {
            saved[2 * row] = mean;
            saved[2 * row + 1] = rstd;
        }
    }
}

/* Blocks of the gradient, which follow from the rows alone. */
static int64_t row_blocks(int64_t rows)
{
    const int64_t wanted = (rows + ROW_WARPS * ROWS_A_WARP - 1) / (ROW_WARPS * ROWS_A_WARP);

    return wanted < ROW_BLOCKS ? wanted : ROW_BLOCKS;
}

/* What a lane has of a row: dy, x, and what flows around the norm. */
template <class T, int P> struct row_packs {
    pack<T> flow[P], in[P], around[P];

    __device__ __forceinline__ void take(const T *dy, const T *x, const T *base, int64_t row,
                                         int features)
    {
        const int packs = features / pack<T>::N;

#pragma unroll
        for (int p = 0; p < P; p++) {
            const int at = (int)threadIdx.x % WARP + p * WARP;
            flow[p] = in[p] = around[p] = {};
            if (at < packs) {
                const int64_t from = row * features + at * pack<T>::N;
                flow[p] = *(const pack<T> *)(dy + from);
                in[p] = *(const pack<T> *)(x + from);
                if (base != NULL)
                    around[p] = *(const pack<T> *)(base + from);
            }
        }
    }
};

/* The next row is on its way while one is worked on, as far as registers last. */
template <class T, int P>
__global__ void __launch_bounds__(THREADS, P <= 3 ? 2 : 1)
    layer_norm_grad_rows(const T *dy, const T *x, const float *gamma, const float *saved,
                         const T *base, T *dx, int64_t rows, int features, double *partial)
{
    enum { N = pack<T>::N, AHEAD = P <= 2 };
    extern __shared__ __align__(
        16) float parts[]; /* [warp][feature], then gamma, by a pack's k-th */
    float *slopes = parts + ROW_WARPS * features;
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, packs = features / N;
    float dgamma[P][N] = {}, dbeta[P][N] = {};

    for (int j = threadIdx.x; j < features; j += THREADS)
        slopes[j % N * packs + j / N] = gamma[j];
    __syncthreads();
    const int64_t first = (int64_t)blockIdx.x * ROW_WARPS + warp;
    const int64_t stride = (int64_t)gridDim.x * ROW_WARPS;
    struct row_packs<T, P> next;

    if (AHEAD && first < rows)
        next.take(dy, x, base, first, features);
    for (int64_t row = first; row < rows; row += stride) {
        const float mean = saved[2 * row], rstd = saved[2 * row + 1];
        struct row_packs<T, P> own;
        float sum = 0, product = 0;

        if (AHEAD)
            own = next;
        else
            own.take(dy, x, base, row, features);
        if (AHEAD && row + stride < rows)
            next.take(dy, x, base, row + stride, features);
#pragma unroll
        for (int p = 0; p < P; p++) {
            const int at = lane + p * WARP;
            if (at >= packs)
                continue;
#pragma unroll
            for (int k = 0; k < N; k++) {
                const float d = number(own.flow[p].x[k]), g = d * slopes[k * packs + at];
                const float place = (number(own.in[p].x[k]) - mean) * rstd;
                sum += g;
                product = fmaf(g, place, product);
                dgamma[p][k] = fmaf(d, place, dgamma[p][k]);
                dbeta[p][k] += d;
            }
        }
        sum = warp_sum(sum) / (float)features;
        product = warp_sum(product) / (float)features;
#pragma unroll
        for (int p = 0; p < P; p++) {
            const int at = lane + p * WARP;
            pack<T> out;
            if (at >= packs)
                continue;
#pragma unroll
            for (int k = 0; k < N; k++) {
                const float g = number(own.flow[p].x[k]) * slopes[k * packs + at];
                const float place = (number(own.in[p].x[k]) - mean) * rstd;
                put(&out.x[k],
                    fmaf(rstd, g - sum - place * product, number(own.around[p].x[k])));
            }
            *(pack<T> *)(dx + row * features + at * N) = out;
        }
    }
    for (int which = 0; which < 2; which++) {
        __syncthreads();
#pragma unroll
        for (int p = 0; p < P; p++) {
            const int at = lane + p * WARP;
            for (int k = 0; at < packs && k < N; k++)
                parts[warp * features + at * N + k] = which ? dbeta[p][k] : dgamma[p][k];
        }
        __syncthreads();
        for (int j = threadIdx.x; j < features; j += THREADS) {
            double sum = 0;
            for (int w = 0; w < ROW_WARPS; w++)
                sum += (double)parts[w * features + j];
            partial[((int64_t)blockIdx.x * 2 + which) * features + j] = sum;
        }
    }
}

/* What the gradient is added to, NULL if it is all. */
template <class T> static const T *base_of(const struct kernel_call *call)
{
    return call->problem->n_in > 4 ? (const T *)call->in[4] : NULL;
}

template <class T> static bool is_by_rows(const struct kernel_call *call)
{
    bool packed = is_packed((const T *)call->out[0]) && is_packed(base_of<T>(call));

    for (int i = 0; i < 3; i++)
        packed =
            packed && is_packed((const T *)call->in[i]); /* also gamma and beta: 16 bytes */
    return packed && packs_of<T>(call->problem->in[0].shape.dim[1]) > 0;
}

template <class T, int P> static void launch_norm_rows(const struct kernel_call *call)
{
    const int64_t *dim = call->problem->in[0].shape.dim;

    layer_norm_rows<T, P><<<blocks_of(dim[0], ROW_WARPS * 4), THREADS, 0, stream_of(call)>>>(
        (const T *)call->in[0], (const float *)call->in[1], (const float *)call->in[2],
        (T *)call->out[0], (float *)call->out[1], dim[0], (int)dim[1],
        call->problem->attrs.epsilon);
    stream_check(call->stream, "layer_norm");
}

template <class T> static void norm_by_rows(const struct kernel_call *call)
{
    const int packs = packs_of<T>(call->problem->in[0].shape.dim[1]);

    if (packs == 1)
        launch_norm_rows<T, 1>(call);
    else if (packs == 2)
        launch_norm_rows<T, 2>(call);
    else if (packs == 3)
        launch_norm_rows<T, 3>(call);
    else
        launch_norm_rows<T, 4>(call);
}

template <class T> static void launch_layer_norm(const struct kernel_call *call)
{
    const int64_t *dim = call->problem->in[0].shape.dim;
    const unsigned threads = dim[1] <= KEPT * 128 ? 128 : threads_for(dim[1]);

    if (is_by_rows<T>(call)) {
        norm_by_rows<T>(call);
        return;
    }
    if (dim[1] <= (int64_t)KEPT * threads)
        layer_norm_kept<T><<<(unsigned)dim[0], threads, 0, stream_of(call)>>>(
            (const T *)call->in[0], (const float *)call->in[1], (const float *)call->in[2],
            (T *)call->out[0], (float *)call->out[1], (int)dim[1],
            call->problem->attrs.epsilon);
    else
        layer_norm<T><<<(unsigned)dim[0], threads, 0, stream_of(call)>>>(
            (const T *)call->in[0], (const float *)call->in[1], (const float *)call->in[2],
            (T *)call->out[0], (float *)call->out[1], dim[1], call->problem->attrs.epsilon);
    stream_check(call->stream, "layer_norm");
}

static void run_layer_norm(const struct kernel_call *call)
{
    BY_TYPE(call->problem->in[0], launch_layer_norm, call);
}

template <class T>
__global__ void layer_norm_grad(const T *dy, const T *x, const float *gamma, const float *saved,
                                const T *base, T *dx, int64_t features)
{
    const int64_t row = blockIdx.x;
    const float mean = saved[2 * row], rstd = saved[2 * row + 1];
    float sum = 0, product = 0;

    dy += row * features;
    x += row * features;
    dx += row * features;
    for (int64_t j = threadIdx.x; j < features; j += blockDim.x) {
        const float g = number(dy[j]) * gamma[j];
        sum += g;
        product = fmaf(g, (number(x[j]) - mean) * rstd, product);
    }
    sum = block_sum(sum) / (float)features;
    product = block_sum(product) / (float)features;
    for (int64_t j = threadIdx.x; j < features; j += blockDim.x) {
        const float g = number(dy[j]) * gamma[j];
        const float around = base != NULL ? number(base[row * features + j]) : 0;
        put(&dx[j], fmaf(rstd, g - sum - (number(x[j]) - mean) * rstd * product, around));
    }
}

template <class T> struct add_layer_slopes {
    const T *dy, *x;
    const float *saved;
    int64_t features;
    __device__ void operator()(int64_t row, int64_t j, double sums[2]) const
    {
        const float d = number(dy[row * features + j]);
        const float at = (number(x[row * features + j]) - saved[2 * row]) * saved[2 * row + 1];
        sums[0] = fma((double)d, (double)at, sums[0]);
        sums[1] += (double)d;
    }
};

struct give_layer_slopes {
    float *dgamma, *dbeta;
    __device__ void operator()(int64_t j, const double sums[2]) const
    {
        dgamma[j] = (float)sums[0];
        dbeta[j] = (float)sums[1];
    }
};

static size_t layer_norm_grad_scratch(const struct kernel_problem *p)
{
    const int64_t rows = p->in[0].shape.dim[0], features = p->in[0].shape.dim[1];
    const size_t by_rows = (size_t)(row_blocks(rows) * 2 * features) * sizeof(double);
    const size_t by_columns = column_scratch(rows, features, 2);

    return by_rows > by_columns ? by_rows : by_columns;
}

template <class T, int P> static void launch_grad_rows(const struct kernel_call *call)
{
    const int64_t *dim = call->problem->in[0].shape.dim;
    const int64_t blocks = row_blocks(dim[0]);
    const size_t shared = (size_t)((ROW_WARPS + 1) * dim[1]) * sizeof(float);
    const struct give_layer_slopes give = { (float *)call->out[1], (float *)call->out[2] };

    layer_norm_grad_rows<T, P><<<(unsigned)blocks, THREADS, shared, stream_of(call)>>>(
        (const T *)call->in[0], (const T *)call->in[1], (const float *)call->in[2],
        (const float *)call->in[3], base_of<T>(call), (T *)call->out[0], dim[0], (int)dim[1],
        (double *)call->scratch);
    launch_finish<2>(call->stream, give, dim[1], blocks, (const double *)call->scratch);
    stream_check(call->stream, "layer_norm_grad");
}

template <class T> static void grad_by_rows(const struct kernel_call *call)
{
    const int packs = packs_of<T>(call->problem->in[0].shape.dim[1]);

    if (packs == 1)
        launch_grad_rows<T, 1>(call);
    else if (packs == 2)
        launch_grad_rows<T, 2>(call);
    else if (packs == 3)
        launch_grad_rows<T, 3>(call);
    else
        launch_grad_rows<T, 4>(call);
}

template <class T> static void launch_layer_norm_grad(const struct kernel_call *call)
{
    const int64_t *dim = call->problem->in[0].shape.dim;
    const T *dy = (const T *)call->in[0], *x = (const T *)call->in[1];
    const float *saved = (const float *)call->in[3];
    const struct add_layer_slopes<T> slopes = {
        dy, x, saved, dim[1]
    };
    const struct give_layer_slopes give = { (float *)call->out[1], (float *)call->out[2] };

    if (is_by_rows<T>(call)) {
        grad_by_rows<T>(call);
        return;
    }
    sum_columns<2>(call->stream, slopes, give, dim[0], dim[1],
                   call->scratch); /* dx may lie over dy */
    layer_norm_grad<T><<<(unsigned)dim[0], threads_for(dim[1]), 0, stream_of(call)>>>(
        dy, x, (const float *)call->in[2], saved, base_of<T>(call), (T *)call->out[0], dim[1]);
    stream_check(call->stream, "layer_norm_grad");
}

static void run_layer_norm_grad(const struct kernel_call *call)
{
    BY_TYPE(call->problem->in[0], launch_layer_norm_grad, call);
}

template <class T> __global__ void softmax(const T *x, T *y, int64_t features)
{
    float largest = -INFINITY, sum = 0;

    x += blockIdx.x * features;
    y += blockIdx.x * features;
    for (int64_t j = threadIdx.x; j < features; j += blockDim.x)
        largest = fmaxf(largest, number(x[j]));
    largest = block_max(largest);
    for (int64_t j = threadIdx.x; j < features; j += blockDim.x)
        sum += expf(number(x[j]) - largest);
    sum = block_sum(sum);
    for (int64_t j = threadIdx.x; j < features; j += blockDim.x)
        put(&y[j], expf(number(x[j]) - largest) / sum);
}

template <class T> static void launch_softmax(const struct kernel_call *call)
{
    const int64_t *dim = call->problem->in[0].shape.dim;

    softmax<T><<<(unsigned)dim[0], threads_for(dim[1]), 0, stream_of(call)>>>(
        (const T *)call->in[0], (T *)call->out[0], dim[1]);
    stream_check(call->stream, "softmax");
}

static void run_softmax(const struct kernel_call *call)
{
    BY_TYPE(call->problem->in[0], launch_softmax, call);
}

template <class T>
__global__ void softmax_grad(const T *dy, const T *y, T *dx, int64_t features)
{
    float sum = 0;

    dy += blockIdx.x * features;
    y += blockIdx.x * features;
    dx += blockIdx.x * features;
    for (int64_t j = threadIdx.x; j < features; j += blockDim.x)
        sum = fmaf(number(dy[j]), number(y[j]), sum);
    sum = block_sum(sum);
    for (int64_t j = threadIdx.x; j < features; j += blockDim.x)
        put(&dx[j], number(y[j]) * (number(dy[j]) - sum));
}

template <class T> static void launch_softmax_grad(const struct kernel_call *call)
{
    const int64_t *dim = call->problem->in[0].shape.dim;

    softmax_grad<T><<<(unsigned)dim[0], threads_for(dim[1]), 0, stream_of(call)>>>(
        (const T *)call->in[0], (const T *)call->in[1], (T *)call->out[0], dim[1]);
    stream_check(call->stream, "softmax_grad");
}

static void run_softmax_grad(const struct kernel_call *call)
{
    BY_TYPE(call->problem->in[0], launch_softmax_grad, call);
}

#define ROW(op, scratch)                                                                       \
    {                                                                                          \
#op, "own", NULL, scratch, NULL, NULL, run_##op                                        \
    }
extern "C" const struct kernel cuda_norm_rows[] = {
    ROW(layer_norm, NULL),   ROW(layer_norm_grad, layer_norm_grad_scratch), ROW(softmax, NULL),
    ROW(softmax_grad, NULL), { NULL, NULL, NULL, NULL, NULL, NULL, NULL },
};
