/* SPDX-License-Identifier: MIT */
/* norm.cu - layer norm and softmax: a block a row, of as many warps as the row is long.
 *
 * A row is read from memory once and found in the cache after that. The gradients of layer norm's gamma and
 * beta are sums over rows (column.cuh).
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

template <class T> static void launch_layer_norm(const struct kernel_call *call)
{
    const int64_t *dim = call->problem->in[0].shape.dim;
    const unsigned threads = dim[1] <= KEPT * 128 ? 128 : threads_for(dim[1]);

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
                                T *dx, int64_t features)
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
        put(&dx[j], rstd * (g - sum - (number(x[j]) - mean) * rstd * product));
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
    return column_scratch(p->in[0].shape.dim[0], p->in[0].shape.dim[1], 2);
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

    layer_norm_grad<T><<<(unsigned)dim[0], threads_for(dim[1]), 0, stream_of(call)>>>(
        dy, x, (const float *)call->in[2], saved, (T *)call->out[0], dim[1]);
    sum_columns<2>(call->stream, slopes, give, dim[0], dim[1], call->scratch);
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
