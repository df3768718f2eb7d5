/* SPDX-License-Identifier: MIT */
/* pool.cu - max and average pooling, the maximum over time, and their gradients.
 *
 * A thread has one element of the output, or four, or a pack, channels innermost, so that neighbours read neighbours. A gradient
 * looks at the windows that cover its element, in their order: sums are those of the CPU's reference.
 */
#include "kernel/cuda/device.cuh"

/* x is the image that windows move over, y has one pixel a window. */
struct windows {
    int n, c, h, w, oh, ow;
    int window[2], stride[2], pad[2];
};

static struct windows windows_of(const struct kernel_problem *p, const struct shape *x,
                                 const struct shape *y)
{
    struct windows g = {};

    g.n = (int)x->dim[0];
    g.c = (int)x->dim[1];
    g.h = (int)x->dim[2];
    g.w = (int)x->dim[3];
    g.oh = (int)y->dim[2];
    g.ow = (int)y->dim[3];
    for (int i = 0; i < 2; i++) {
        g.window[i] = p->attrs.window[i];
        g.stride[i] = p->attrs.stride[i];
        g.pad[i] = p->attrs.pad[i];
    }
    return g;
}

struct element {
    int n, row, column, c;
};

__device__ __forceinline__ struct element element_of(int64_t i, int height, int width,
                                                     int channels)
{
    const int64_t pixel = divided(i, channels), line = divided(pixel, width);
    const int n = (int)divided(line, height);
    const struct element e = { n, (int)(line - (int64_t)n * height),
                               (int)(pixel - line * width), (int)(i - pixel * channels) };
    return e;
}

/* Calls f(x's element, place in the window) for what is under a window, in order. */
template <class F>
__device__ __forceinline__ void under(const struct windows &g, const struct element &e, F f)
{
    for (int r = 0; r < g.window[0]; r++) {
        const int row = e.row * g.stride[0] - g.pad[0] + r;
        for (int s = 0; s < g.window[1] && row >= 0 && row < g.h; s++) {
            const int column = e.column * g.stride[1] - g.pad[1] + s;
            if (column >= 0 && column < g.w)
                f((((int64_t)e.n * g.h + row) * g.w + column) * g.c + e.c, r * g.window[1] + s);
        }
    }
}

/* Calls f(y's element, place of x's in its window) for all windows over an element of x. */
template <class F>
__device__ __forceinline__ void over(const struct windows &g, const struct element &e, F f)
{
    const int down = e.row + g.pad[0], right = e.column + g.pad[1];
    const int u0 = down < g.window[0] ? 0 : (down - g.window[0]) / g.stride[0] + 1;
    const int v0 = right < g.window[1] ? 0 : (right - g.window[1]) / g.stride[1] + 1;

    for (int u = u0; u < g.oh && u * g.stride[0] <= down; u++) {
        for (int v = v0; v < g.ow && v * g.stride[1] <= right; v++)
            f((((int64_t)e.n * g.oh + u) * g.ow + v) * g.c + e.c,
              (down - u * g.stride[0]) * g.window[1] + right - v * g.stride[1]);
    }
}

template <class T>
__global__ void max_pool(struct windows g, const T *x, T *y, uint8_t *index, int64_t count)
{
    const int64_t i = thread_number();
    float best = 0;
    int place = -1;

    if (i >= count)
        return;
    under(g, element_of(i, g.oh, g.ow, g.c), [&](int64_t from, int at) {
        const float value = number(x[from]);
        if (place < 0 || value > best) {
            best = value;
            place = at;
        }
    });
    put(&y[i], best);
    index[i] = (uint8_t)place;
}

/* Windows of 2 x 2 side by side, of images without a rest: a thread has a pack of channels of a window. */
template <int N> struct alignas(N) places {
    uint8_t x[N];
};

/* Where a pack's window begins in x. */
template <class T>
__device__ __forceinline__ int64_t corner_of(const struct windows &g, int64_t number)
{
    const struct element e = element_of(number * pack<T>::N, g.oh, g.ow, g.c);

    return (((int64_t)e.n * g.h + 2 * e.row) * g.w + 2 * e.column) * g.c + e.c;
}

template <class T>
__global__ void max_pool_two(struct windows g, const T *x, T *y, uint8_t *index, int64_t packs)
{
    enum { N = pack<T>::N };
    const int64_t i = thread_number();
    pack<T> in[4], out;
    places<N> best;

    if (i >= packs)
        return;
    const int64_t from = corner_of<T>(g, i);
#pragma unroll
    for (int at = 0; at < 4; at++)
        in[at] = *(const pack<T> *)(x + from + ((int64_t)(at / 2) * g.w + at % 2) * g.c);
#pragma unroll
    for (int k = 0; k < N; k++) {
        best.x[k] = 0;
        out.x[k] = in[0].x[k];
#pragma unroll
        for (int at = 1; at < 4; at++) {
            const bool larger = number(in[at].x[k]) > number(out.x[k]);
            best.x[k] = larger ? (uint8_t)at : best.x[k];
            out.x[k] = larger ? in[at].x[k] : out.x[k];
        }
    }
    *(pack<T> *)(y + i * N) = out;
    *(places<N> *)(index + i * N) = best;
}

template <class T>
__global__ void max_pool_grad_two(struct windows g, const T *dy, const uint8_t *index, T *dx,
                                  int64_t packs)
{
    enum { N = pack<T>::N };
    const int64_t i = thread_number();

    if (i >= packs)
        return;
    const pack<T> in = *(const pack<T> *)(dy + i * N);
    const places<N> best = *(const places<N> *)(index + i * N);
    const int64_t to = corner_of<T>(g, i);
#pragma unroll
    for (int at = 0; at < 4; at++) {
        pack<T> out;
#pragma unroll
        for (int k = 0; k < N; k++)
            put(&out.x[k], best.x[k] == at ? number(in.x[k]) : 0.0F);
        *(pack<T> *)(dx + to + ((int64_t)(at / 2) * g.w + at % 2) * g.c) = out;
    }
}

template <class T>
static bool are_two(const struct windows *g, const void *x, const void *y, const void *index)
{
    return g->window[0] == 2 && g->window[1] == 2 && g->stride[0] == 2 && g->stride[1] == 2 &&
           g->pad[0] == 0 && g->pad[1] == 0 && g->h == 2 * g->oh && g->w == 2 * g->ow &&
           g->c % pack<T>::N == 0 && is_packed((const T *)x) && is_packed((const T *)y) &&
           (uintptr_t)index % pack<T>::N == 0;
}

template <class T>
__global__ void max_pool_fours(struct windows g, const T *x, T *y, uint8_t *index,
                               int64_t count)
{
    const int64_t i = thread_number() * AT_ONCE;
    float best[AT_ONCE] = { 0 };
    four<uint8_t> place = {};
    four<T> out;
    bool is_first = true;

    if (i >= count)
        return;
    under(g, element_of(i, g.oh, g.ow, g.c), [&](int64_t from, int at) {
        const four<T> in = *(const four<T> *)(x + from);
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            const float value = number(in.x[k]);
            if (is_first || value > best[k]) {
                best[k] = value;
                place.x[k] = (uint8_t)at;
            }
        }
        is_first = false;
    });
#pragma unroll
    for (int k = 0; k < AT_ONCE; k++)
        put(&out.x[k], best[k]);
    *(four<T> *)(y + i) = out;
    *(four<uint8_t> *)(index + i) = place;
}

template <class T> static void launch_max_pool(const struct kernel_call *call)
{
    const struct kernel_problem *p = call->problem;
    const int64_t count = shape_count(&p->out[0].shape);
    const struct windows g = windows_of(p, &p->in[0].shape, &p->out[0].shape);

    if (are_two<T>(&g, call->in[0], call->out[0], call->out[1])) {
        const int64_t packs = count / pack<T>::N;
        max_pool_two<T><<<blocks_of(packs, THREADS), THREADS, 0, stream_of(call)>>>(
            g, (const T *)call->in[0], (T *)call->out[0], (uint8_t *)call->out[1], packs);
        stream_check(call->stream, "max_pool");
        return;
    }
    if (p->in[0].shape.dim[1] % AT_ONCE == 0 && is_aligned((const T *)call->in[0]) &&
        is_aligned((T *)call->out[0]) && is_aligned((uint8_t *)call->out[1])) {
        max_pool_fours<T><<<blocks_of(count, THREADS * AT_ONCE), THREADS, 0, stream_of(call)>>>(
            windows_of(p, &p->in[0].shape, &p->out[0].shape), (const T *)call->in[0],
            (T *)call->out[0], (uint8_t *)call->out[1], count);
        stream_check(call->stream, "max_pool");
        return;
    }
    max_pool<T><<<blocks_of(count, THREADS), THREADS, 0, stream_of(call)>>>(
        windows_of(p, &p->in[0].shape, &p->out[0].shape), (const T *)call->in[0],
        (T *)call->out[0], (uint8_t *)call->out[1], count);
    stream_check(call->stream, "max_pool");
}

static void run_max_pool(const struct kernel_call *call)
{
    BY_TYPE(call->problem->in[0], launch_max_pool, call);
}

template <class T>
__global__ void max_pool_grad(struct windows g, const T *dy, const uint8_t *index, T *dx,
                              int64_t count)
{
    const int64_t i = thread_number();
    float sum = 0;

    if (i >= count)
        return;
    over(g, element_of(i, g.h, g.w, g.c), [&](int64_t from, int at) {
        if (index[from] == at)
            sum += number(dy[from]);
    });
    put(&dx[i], sum);
}

template <class T>
__global__ void max_pool_grad_fours(struct windows g, const T *dy, const uint8_t *index, T *dx,
                                    int64_t count)
{
    const int64_t i = thread_number() * AT_ONCE;
    float sum[AT_ONCE] = { 0 };
    four<T> out;

    if (i >= count)
        return;
    over(g, element_of(i, g.h, g.w, g.c), [&](int64_t from, int at) {
        const four<uint8_t> place = *(const four<uint8_t> *)(index + from);
        const four<T> in = *(const four<T> *)(dy + from);
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            if (place.x[k] == at)
                sum[k] += number(in.x[k]);
        }
    });
#pragma unroll
    for (int k = 0; k < AT_ONCE; k++)
        put(&out.x[k], sum[k]);
    *(four<T> *)(dx + i) = out;
}

template <class T> static void launch_max_pool_grad(const struct kernel_call *call)
{
    const struct kernel_problem *p = call->problem;
    const int64_t count = shape_count(&p->out[0].shape);
    const struct windows g = windows_of(p, &p->out[0].shape, &p->in[0].shape);

    if (are_two<T>(&g, call->out[0], call->in[0], call->in[1])) {
        const int64_t packs = shape_count(&p->in[0].shape) / pack<T>::N;
        max_pool_grad_two<T><<<blocks_of(packs, THREADS), THREADS, 0, stream_of(call)>>>(
            g, (const T *)call->in[0], (const uint8_t *)call->in[1], (T *)call->out[0], packs);
        stream_check(call->stream, "max_pool_grad");
        return;
    }
    if (p->out[0].shape.dim[1] % AT_ONCE == 0 && is_aligned((const T *)call->in[0]) &&
        is_aligned((const uint8_t *)call->in[1]) && is_aligned((T *)call->out[0])) {
        max_pool_grad_fours<T>
            <<<blocks_of(count, THREADS * AT_ONCE), THREADS, 0, stream_of(call)>>>(
                windows_of(p, &p->out[0].shape, &p->in[0].shape), (const T *)call->in[0],
                (const uint8_t *)call->in[1], (T *)call->out[0], count);
        stream_check(call->stream, "max_pool_grad");
        return;
    }
    max_pool_grad<T><<<blocks_of(count, THREADS), THREADS, 0, stream_of(call)>>>(
        windows_of(p, &p->out[0].shape, &p->in[0].shape), (const T *)call->in[0],
        (const uint8_t *)call->in[1], (T *)call->out[0], count);
    stream_check(call->stream, "max_pool_grad");
}

static void run_max_pool_grad(const struct kernel_call *call)
{
    BY_TYPE(call->problem->in[0], launch_max_pool_grad, call);
}

template <class T> __global__ void avg_pool(struct windows g, const T *x, T *y, int64_t count)
{
    const int64_t i = thread_number();
    float sum = 0;

    if (i >= count)
        return;
    under(g, element_of(i, g.oh, g.ow, g.c),
          [&](int64_t from, int) { sum += number(x[from]); });
    put(&y[i], sum / (float)(g.window[0] * g.window[1]));
}

template <class T> static void launch_avg_pool(const struct kernel_call *call)
{
    const struct kernel_problem *p = call->problem;
    const int64_t count = shape_count(&p->out[0].shape);

    avg_pool<T><<<blocks_of(count, THREADS), THREADS, 0, stream_of(call)>>>(
        windows_of(p, &p->in[0].shape, &p->out[0].shape), (const T *)call->in[0],
        (T *)call->out[0], count);
    stream_check(call->stream, "avg_pool");
}

static void run_avg_pool(const struct kernel_call *call)
{
    BY_TYPE(call->problem->in[0], launch_avg_pool, call);
}

template <class T>
__global__ void avg_pool_grad(struct windows g, const T *dy, T *dx, int64_t count)
{
    const float area = (float)(g.window[0] * g.window[1]);
    const int64_t i = thread_number();
    float sum = 0;

    if (i >= count)
        return;
    over(g, element_of(i, g.h, g.w, g.c),
         [&](int64_t from, int) { sum += number(dy[from]) / area; });
    put(&dx[i], sum);
}

/* The same with a pack of channels a thread. */
template <class T>
__global__ void avg_pool_grad_packs(struct windows g, const T *dy, T *dx, int64_t packs)
{
    enum { N = pack<T>::N };
    const int64_t i = thread_number() * N;
    const float area = (float)(g.window[0] * g.window[1]);
    float sums[N] = { 0 };
    pack<T> out;

    if (i >= packs * N)
        return;
    over(g, element_of(i, g.h, g.w, g.c), [&](int64_t from, int) {
        const pack<T> in = *(const pack<T> *)(dy + from);
#pragma unroll
        for (int k = 0; k < N; k++)
            sums[k] += number(in.x[k]) / area;
    });
    put_all(&out, sums);
    *(pack<T> *)(dx + i) = out;
}

/* May threads have packs of channels? */
template <class T> static bool in_packs(const struct kernel_call *call)
{
    return call->problem->out[0].shape.dim[1] % pack<T>::N == 0 &&
           is_packed((const T *)call->in[0]) && is_packed((const T *)call->out[0]);
}

template <class T> static void launch_avg_pool_grad(const struct kernel_call *call)
{
    const struct kernel_problem *p = call->problem;
    const int64_t count = shape_count(&p->out[0].shape);

    if (in_packs<T>(call)) {
        const int64_t packs = count / pack<T>::N;
        avg_pool_grad_packs<T><<<blocks_of(packs, THREADS), THREADS, 0, stream_of(call)>>>(
            windows_of(p, &p->out[0].shape, &p->in[0].shape), (const T *)call->in[0],
            (T *)call->out[0], packs);
        stream_check(call->stream, "avg_pool_grad");
        return;
    }
    avg_pool_grad<T><<<blocks_of(count, THREADS), THREADS, 0, stream_of(call)>>>(
        windows_of(p, &p->out[0].shape, &p->in[0].shape), (const T *)call->in[0],
        (T *)call->out[0], count);
    stream_check(call->stream, "avg_pool_grad");
}

static void run_avg_pool_grad(const struct kernel_call *call)
{
    BY_TYPE(call->problem->in[0], launch_avg_pool_grad, call);
}

/* Over time: x (N,T,C) ------------------------------------------------------------------ */

struct times {
    int64_t samples, length, channels;
};

static struct times times_of(const struct shape *x)
{
    const struct times t = { x->dim[0], x->dim[1], x->dim[2] };
    return t;
}

template <class T>
__global__ void max_over_time(struct times s, const T *x, T *y, int32_t *index)
{
    const int64_t i = thread_number();

    if (i >= s.samples * s.channels)
        return;
    const T *first = x + i / s.channels * s.length * s.channels + i % s.channels;
    T best = *first;
    int32_t place = 0;
    for (int64_t t = 1; t < s.length; t++) {
        if (number(first[t * s.channels]) > number(best)) {
            best = first[t * s.channels];
            place = (int32_t)t;
        }
    }
    y[i] = best;
    index[i] = place;
}

template <class T> static void launch_max_over_time(const struct kernel_call *call)
{
    const struct times s = times_of(&call->problem->in[0].shape);

    max_over_time<T><<<blocks_of(s.samples * s.channels, WARP), WARP, 0, stream_of(call)>>>(
        s, (const T *)call->in[0], (T *)call->out[0], (int32_t *)call->out[1]);
    stream_check(call->stream, "max_over_time");
}

static void run_max_over_time(const struct kernel_call *call)
{
    BY_TYPE(call->problem->in[0], launch_max_over_time, call);
}

template <class T>
__global__ void max_over_time_grad(struct times s, const T *dy, const int32_t *index, T *dx)
{
    const int64_t i = thread_number(), c = i % s.channels, t = i / s.channels % s.length;
    const int64_t n = i / s.channels / s.length;

    if (n < s.samples)
        put(&dx[i], index[n * s.channels + c] == t ? number(dy[n * s.channels + c]) : 0.0F);
}

template <class T> static void launch_max_over_time_grad(const struct kernel_call *call)
{
    const struct times s = times_of(&call->problem->out[0].shape);

    max_over_time_grad<T><<<blocks_of(s.samples * s.length * s.channels, THREADS), THREADS, 0,
                            stream_of(call)>>>(s, (const T *)call->in[0],
                                               (const int32_t *)call->in[1], (T *)call->out[0]);
    stream_check(call->stream, "max_over_time_grad");
}

static void run_max_over_time_grad(const struct kernel_call *call)
{
    BY_TYPE(call->problem->in[0], launch_max_over_time_grad, call);
}

#define ROW(op)                                                                                \
    {                                                                                          \
#op, "own", NULL, NULL, NULL, NULL, run_##op                                           \
    }
extern "C" const struct kernel cuda_pool_rows[] = {
    ROW(max_pool),
    ROW(max_pool_grad),
    ROW(avg_pool),
    ROW(avg_pool_grad),
    ROW(max_over_time),
    ROW(max_over_time_grad),
    { NULL, NULL, NULL, NULL, NULL, NULL, NULL },
};
