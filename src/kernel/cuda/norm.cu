/* SPDX-License-Identifier: MIT */
/* norm.cu - layer norm and softmax: a block a row, of as many warps as the row is long.
 *
 * A row is read from memory once and found in the cache after that. The gradients of layer norm's gamma and
 * beta are sums over rows (column.cuh). Rows of up to 1024 elements that come in packs are a warp's, which keeps them
 * in registers; gradients have one look at dy and x for all results. What flows around the norm is added where its gradient is written, maybe
 * over it.
 */
#include "kernel/cuda/column.cuh"
#include "kernel/cuda/column_sums.h"

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

enum { ROW_WARPS = THREADS / WARP, PACKS = 4 * WARP };

/* Packs that a lane has of a row. */
template <class T> static int packs_of(int64_t features)
{
    return (int)((features / pack<T>::N + WARP - 1) / WARP);
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

/* Gradients: a block has a part of the rows, a thread the same pack of each. It keeps sums of its columns, so nobody adds up but over parts. Some
 * rows are looked at together, so that their sums over the row are brought together at once; the next ones are on their way into shared memory meanwhile,
 * where every thread finds what it asked for itself.
 */
enum { GRAD_ROWS = 4, GRAD_STAGES = 2, GRAD_THREADS = 256, ANY_SHARED = 47 << 10 };

/* What a thread has of some rows: dy, x, and what flows around the norm. */
template <class T> struct grad_rows {
    enum { FLOW, IN, AROUND, KINDS };
    pack<T> *
        room; /* of this thread: a pack of every kind, row and stage, as far apart as there are threads */

    __device__ __forceinline__ pack<T> &at(int stage, int kind, int r) const
    {
        return room[((stage * KINDS + kind) * GRAD_ROWS + r) * (int)blockDim.x];
    }
    __device__ __forceinline__ void ask(int stage, const T *dy, const T *x, const T *base,
                                        int64_t row, int64_t end, int features, int column)
    {
#pragma unroll
        for (int r = 0; r < GRAD_ROWS; r++) {
            const int64_t from = (row + r) * features + column;
            if (row + r >= end || column >= features)
                break;
            copy_later(&at(stage, FLOW, r), dy + from);
            copy_later(&at(stage, IN, r), x + from);
            if (base != NULL)
                copy_later(&at(stage, AROUND, r), base + from);
        }
        copies_end();
    }
};

/* Where x stands between its row's others: mean 0, variance 1. */
template <class T> __device__ __forceinline__ float place_of(float x, float mean, float rstd)
{
    return sizeof(T) < sizeof(float) ? fmaf(x, rstd, -mean * rstd) : (x - mean) * rstd;
}

/* SUMS: also those of dx. */
template <class T, bool SUMS>
__global__ void __launch_bounds__(GRAD_THREADS, 2)
    layer_norm_grad_rows(const T *dy, const T *x, const float *gamma, const float *saved,
                         const T *base, T *dx, int64_t rows, int features, float *partial)
{
    enum { N = pack<T>::N, WARPS = GRAD_THREADS / WARP, K = SUMS ? 3 : 2 };
    typedef grad_rows<T> kinds;
    extern __shared__ __align__(16) char room[];
    __shared__ float2 shares[2][GRAD_ROWS][WARPS]; /* in turn, so that one wait is enough */
    __shared__ float2 moments[PART_MOST];          /* mean and rstd of all rows */
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const int at = (int)threadIdx.x * N, warps = (int)blockDim.x / WARP;
    const int64_t each = part_rows(rows), begin = blockIdx.x * each,
                  end = begin + each < rows ? begin + each : rows;
    const float share_of_one = 1 / (float)features;
    float slope[N] = {}, sums[K][N] = {};
    kinds own = { (pack<T> *)room + threadIdx.x };
    int turn = 0;

    for (int s = 0; s < GRAD_STAGES; s++)
        own.ask(s, dy, x, base, begin + s * GRAD_ROWS, end, features, at);
#pragma unroll
    for (int k = 0; k < N; k += pack<float>::N) {
        if (at < features)
            *(pack<float> *)(slope + k) = *(const pack<float> *)(gamma + at + k);
    }
    for (int64_t row = begin + threadIdx.x; row < end; row += blockDim.x)
        moments[row - begin] = make_float2(saved[2 * row], saved[2 * row + 1]);
    __syncthreads();
    for (int64_t row = begin; row < end; row += GRAD_ROWS, turn ^= 1) {
        await_copies<GRAD_STAGES - 1>();
#pragma unroll
        for (int r = 0; r < GRAD_ROWS; r++) {
            float2 share = { 0, 0 }; /* sums of g, and of g times its place */
            if (row + r < end && at < features) {
                const float2 of = moments[row + r - begin];
                const pack<T> flow = own.at(turn, kinds::FLOW, r),
                              in = own.at(turn, kinds::IN, r);
#pragma unroll
                for (int k = 0; k < N; k++) {
                    const float d = number(flow.x[k]), g = d * slope[k];
                    const float place = place_of<T>(number(in.x[k]), of.x, of.y);
                    share.x += g;
                    share.y = fmaf(g, place, share.y);
                    sums[0][k] = fmaf(d, place, sums[0][k]);
                    sums[1][k] += d;
                }
            }
            share = { warp_sum(share.x), warp_sum(share.y) };
            if (lane == 0)
                shares[turn][r][warp] = share;
        }
        __syncthreads();
#pragma unroll
        for (int r = 0; r < GRAD_ROWS; r++) {
            float sum = 0, product = 0, made[N];

            if (row + r >= end || at >= features)
                continue;
            for (int w = 0; w < warps; w++) {
                sum += shares[turn][r][w].x;
                product += shares[turn][r][w].y;
            }
            sum *= share_of_one;
            product *= share_of_one;
            /* rstd (g - sum - place product), as a line in x where that is exact enough */
            const float mean = moments[row + r - begin].x, rstd = moments[row + r - begin].y;
            const float rise = -rstd * product * rstd, shift = -rstd * sum - rise * mean;
            const pack<T> flow = own.at(turn, kinds::FLOW, r), in = own.at(turn, kinds::IN, r);
            pack<T> around = {}, out;
            if (base != NULL)
                around = own.at(turn, kinds::AROUND, r);
#pragma unroll
            for (int k = 0; k < N; k++) {
                const float in_k = number(in.x[k]), around_k = number(around.x[k]);
                const float g = number(flow.x[k]) * slope[k];
                made[k] = sizeof(T) < sizeof(float)
                              ? fmaf(rstd, g, fmaf(rise, in_k, around_k + shift))
                              : fmaf(rstd, g - sum - (in_k - mean) * rstd * product, around_k);
            }
            put_all(&out, made);
#pragma unroll
            for (int k = 0; SUMS && k < N; k++)
                sums[K - 1][k] += number(out.x[k]);
            *(pack<T> *)(dx + (row + r) * features + at) = out;
        }
        own.ask(turn, dy, x, base, row + GRAD_STAGES * GRAD_ROWS, end, features, at);
    }
    for (int which = 0; at < features && which < K; which++) {
        float *to = partial + ((int64_t)blockIdx.x * K + which) * features + at;
#pragma unroll
        for (int k = 0; k < N; k += pack<float>::N)
            *(pack<float> *)(to + k) = *(const pack<float> *)(sums[which] + k);
    }
}

/* What the gradient is added to, NULL if it is all. */
template <class T> static const T *base_of(const struct kernel_call *call)
{
    return call->problem->n_in > 4 ? (const T *)call->in[4] : NULL;
}

/* Are rows packs, and no more than so many? */
template <class T> static bool is_by_rows(const struct kernel_call *call, int most)
{
    const int64_t features = call->problem->in[0].shape.dim[1];
    bool packed = is_packed((const T *)call->out[0]) && is_packed(base_of<T>(call));

    for (int i = 0; i < 3; i++)
        packed =
            packed && is_packed((const T *)call->in[i]); /* also gamma and beta: 16 bytes */
    return packed && features % pack<T>::N == 0 && features / pack<T>::N <= most;
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

    if (is_by_rows<T>(call, PACKS)) {
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
    float *dgamma, *dbeta, *all; /* all: NULL, or the sums of dx */
    __device__ void operator()(int64_t j, const double *sums) const
    {
        dgamma[j] = (float)sums[0];
        dbeta[j] = (float)sums[1];
        if (all != NULL)
            all[j] = (float)sums[2];
    }
};

static bool has_sums(const struct kernel_problem *p)
{
    return p->n_out > 3;
}

static size_t layer_norm_grad_scratch(const struct kernel_problem *p)
{
    const int64_t rows = p->in[0].shape.dim[0], features = p->in[0].shape.dim[1];
    const size_t by_rows = (size_t)(row_parts(rows) * 3 * features) * sizeof(float);
    const size_t by_columns = column_scratch(rows, features, 2);

    return by_rows > by_columns ? by_rows : by_columns;
}

template <class T> static unsigned grad_threads(int64_t features)
{
    return blocks_of(features, pack<T>::N * WARP) * WARP;
}

template <class T> static size_t grad_bytes(unsigned threads)
{
    return GRAD_STAGES * grad_rows<T>::KINDS * GRAD_ROWS * threads * sizeof(pack<T>);
}

template <class T, bool SUMS> static void grad_by_rows(const struct kernel_call *call)
{
    const int64_t *dim = call->problem->in[0].shape.dim;
    const int64_t blocks = row_parts(dim[0]);
    const unsigned threads = grad_threads<T>(dim[1]);
    const size_t bytes = grad_bytes<T>(threads);
    const struct give_layer_slopes give = { (float *)call->out[1], (float *)call->out[2],
                                            SUMS ? (float *)call->out[3] : NULL };

    if (bytes > ANY_SHARED)
        (void)cudaFuncSetAttribute((const void *)layer_norm_grad_rows<T, SUMS>,
                                   cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
    layer_norm_grad_rows<T, SUMS><<<(unsigned)blocks, threads, bytes, stream_of(call)>>>(
        (const T *)call->in[0], (const T *)call->in[1], (const float *)call->in[2],
        (const float *)call->in[3], base_of<T>(call), (T *)call->out[0], dim[0], (int)dim[1],
        (float *)call->scratch);
    launch_finish<SUMS ? 3 : 2>(call->stream, give, dim[1], blocks,
                                (const float *)call->scratch);
    stream_check(call->stream, "layer_norm_grad");
}

template <class T> static void launch_layer_norm_grad(const struct kernel_call *call)
{
    const int64_t *dim = call->problem->in[0].shape.dim;
    const T *dy = (const T *)call->in[0], *x = (const T *)call->in[1];
    const float *saved = (const float *)call->in[3];
    const struct add_layer_slopes<T> slopes = {
        dy, x, saved, dim[1]
    };
    const struct give_layer_slopes give = { (float *)call->out[1], (float *)call->out[2],
                                            NULL };

    if (is_by_rows<T>(call, GRAD_THREADS) &&
        grad_bytes<T>(grad_threads<T>(dim[1])) + ANY_SHARED / 8 <= cuda_shared_bytes) {
        if (has_sums(call->problem))
            grad_by_rows<T, true>(call);
        else
            grad_by_rows<T, false>(call);
        return;
    }
    sum_columns<2>(call->stream, slopes, give, dim[0], dim[1],
                   call->scratch); /* dx may lie over dy */
    layer_norm_grad<T><<<(unsigned)dim[0], threads_for(dim[1]), 0, stream_of(call)>>>(
        dy, x, (const float *)call->in[2], saved, base_of<T>(call), (T *)call->out[0], dim[1]);
    stream_check(call->stream, "layer_norm_grad");
    if (has_sums(call->problem))
        sum_rows(call->stream, call->out[0], NULL, call->problem->out[0].dtype, dim[0], dim[1],
                 (float *)call->out[3], call->scratch);
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
