/* SPDX-License-Identifier: MIT */
/* depthwise.cu - convolutions of each channel by itself with windows of 3 x 3, padding 1 and stride 1 or 2, and their gradients.
 *
 * Memory bounds them. A thread has four channels of a column of y and goes down the rows with the window in registers, so
 * that a row of x is read three times, by neighbours, and twice of these from the cache. With stride 1 the gradient of x is the
 * convolution of dy with the window turned round; with stride 2 a thread has four pixels of x, which four of dy have seen. The
 * weights' gradient goes down the columns of some images with nine sums a channel; threads' sums are added in order, then
 * those of blocks (column.cuh).
 */
#include "kernel/cuda/column.cuh"
#include "kernel/cuda/column_sums.h"

enum { SIDE = 3, NINE = SIDE * SIDE, STRIP = 8, WEIGHT_LANES = 64, WEIGHT_BLOCKS = 1024 };

struct depthwise {
    int n, c, h, w, oh, ow, stride;
};

/* x is a shape (N,C,H,W). */
static struct depthwise depthwise_of(const struct kernel_problem *p, const struct shape *x)
{
    const int stride = p->attrs.stride[0];
    const struct depthwise g = { (int)x->dim[0],
                                 (int)x->dim[1],
                                 (int)x->dim[2],
                                 (int)x->dim[3],
                                 (int)(x->dim[2] - 1) / stride + 1,
                                 (int)(x->dim[3] - 1) / stride + 1,
                                 stride };
    return g;
}

/* w is a shape (O,C/groups,kh,kw). */
static bool is_depthwise(const struct kernel_problem *p, const struct shape *x,
                         const struct shape *w)
{
    const struct attrs *a = &p->attrs;

    return a->groups > 1 && a->groups == x->dim[1] && w->dim[0] == x->dim[1] &&
           w->dim[1] == 1 && w->dim[2] == SIDE && w->dim[3] == SIDE && a->pad[0] == 1 &&
           a->pad[1] == 1 && a->stride[0] == a->stride[1] && a->stride[0] <= 2 &&
           x->dim[1] % AT_ONCE == 0;
}

struct numbers {
    float x[AT_ONCE];
};

template <class T> __device__ __forceinline__ struct numbers take(const T *from, bool there)
{
    struct numbers out = {};

    if (there) {
        const four<T> in = *(const four<T> *)from;
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++)
            out.x[k] = number(in.x[k]);
    }
    return out;
}

template <class T> __device__ __forceinline__ void give(T *to, const struct numbers &x)
{
    four<T> out;

#pragma unroll
    for (int k = 0; k < AT_ONCE; k++)
        put(&out.x[k], x.x[k]);
    *(four<T> *)to = out;
}

/* sums += a b */
__device__ __forceinline__ void add(struct numbers &sums, const struct numbers &a,
                                    const struct numbers &b)
{
#pragma unroll
    for (int k = 0; k < AT_ONCE; k++)
        sums.x[k] = fmaf(a.x[k], b.x[k], sums.x[k]);
}

/* Three pixels side by side of a row of an image, the middle one in `column`; zeros beside the image. */
template <class T>
__device__ __forceinline__ void take_row(struct numbers out[SIDE], const T *image, int row,
                                         int column, int h, int w, int c)
{
    const bool there = row >= 0 && row < h;
    const T *middle = image + ((int64_t)row * w + column) * c;

    out[0] = take(middle - c, there && column > 0);
    out[1] = take(middle, there);
    out[2] = take(middle + c, there && column + 1 < w);
}

/* Where a thread works: four channels of a column of an image, and rows from `first` on. */
struct strip {
    int channel, column, first;
};

__device__ __forceinline__ struct strip strip_of(int c)
{
    const unsigned at = (blockIdx.x * THREADS + threadIdx.x) * AT_ONCE;
    const struct strip s = { (int)(at % (unsigned)c), (int)(at / (unsigned)c),
                             (int)blockIdx.y * STRIP };
    return s;
}

/* Forward, and backward with stride 1: then taps come the other way round. */
template <class T, int STRIDE, bool TURNED>
__global__ void __launch_bounds__(THREADS)
    slide(struct depthwise g, const T *x, const T *w, const float *bias,
          enum activation activation, T *y)
{
    const struct strip s = strip_of(g.c);
    const T *image = x + (int64_t)blockIdx.z * g.h * g.w * g.c + s.channel;
    T *out = y + (int64_t)blockIdx.z * g.oh * g.ow * g.c + s.channel;
    struct numbers window[SIDE][SIDE], taps[NINE], start = {};

    if (s.column >= g.ow)
        return;
#pragma unroll
    for (int i = 0; i < NINE; i++)
        taps[i] = take(w + (TURNED ? NINE - 1 - i : i) * g.c + s.channel, true);
    for (int k = 0; bias && k < AT_ONCE; k++)
        start.x[k] = bias[s.channel + k];
#pragma unroll
    for (int r = 0; r < SIDE - STRIDE; r++)
        take_row(window[r], image, s.first * STRIDE - 1 + r, s.column * STRIDE, g.h, g.w, g.c);
#pragma unroll
    for (int i = 0; i < STRIP; i++) {
        const int u = s.first + i;
        struct numbers sums = start;
        if (u >= g.oh)
            return;
#pragma unroll
        for (int r = SIDE - STRIDE; r < SIDE; r++)
            take_row(window[r], image, u * STRIDE - 1 + r, s.column * STRIDE, g.h, g.w, g.c);
#pragma unroll
        for (int r = 0; r < SIDE; r++) {
#pragma unroll
            for (int k = 0; k < SIDE; k++)
                add(sums, window[r][k], taps[r * SIDE + k]);
        }
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++)
            sums.x[k] = activate(activation, sums.x[k]);
        give(out + ((int64_t)u * g.ow + s.column) * g.c, sums);
#pragma unroll
        for (int r = 0; r < SIDE - STRIDE; r++) {
#pragma unroll
            for (int k = 0; k < SIDE; k++)
                window[r][k] = window[r + STRIDE][k];
        }
    }
}

/* Backward with stride 2: a thread has the pixels of x from twice its own of dy on. */
template <class T>
__global__ void __launch_bounds__(THREADS)
    spread_two(struct depthwise g, const T *dy, const T *w, T *dx)
{
    const struct strip s = strip_of(g.c);
    const T *flows = dy + (int64_t)blockIdx.z * g.oh * g.ow * g.c + s.channel;
    T *out = dx + (int64_t)blockIdx.z * g.h * g.w * g.c + s.channel;
    struct numbers taps[NINE], here[2], below[2];
    const bool right = s.column + 1 < g.ow, wide = 2 * s.column + 1 < g.w;

    if (s.column >= g.ow)
        return;
#pragma unroll
    for (int i = 0; i < NINE; i++)
        taps[i] = take(w + i * g.c + s.channel, true);
    const T *first = flows + ((int64_t)s.first * g.ow + s.column) * g.c;
    below[0] = take(first, s.first < g.oh);
    below[1] = take(first + g.c, s.first < g.oh && right);
#pragma unroll
    for (int i = 0; i < STRIP; i++) {
        const int u = s.first + i;
        if (u >= g.oh)
            return;
        const T *next = flows + ((int64_t)(u + 1) * g.ow + s.column) * g.c;
        T *to = out + ((int64_t)2 * u * g.w + 2 * s.column) * g.c;
        struct numbers sums[4] = {};
        here[0] = below[0];
        here[1] = below[1];
        below[0] = take(next, u + 1 < g.oh);
        below[1] = take(next + g.c, u + 1 < g.oh && right);
        add(sums[0], here[0], taps[4]);
        add(sums[1], here[1], taps[3]);
        add(sums[1], here[0], taps[5]);
        add(sums[2], below[0], taps[1]);
        add(sums[2], here[0], taps[7]);
        add(sums[3], below[1], taps[0]);
        add(sums[3], below[0], taps[2]);
        add(sums[3], here[1], taps[6]);
        add(sums[3], here[0], taps[8]);
        give(to, sums[0]);
        if (wide)
            give(to + g.c, sums[1]);
        if (2 * u + 1 < g.h)
            give(to + (int64_t)g.w * g.c, sums[2]);
        if (2 * u + 1 < g.h && wide)
            give(to + (int64_t)(g.w + 1) * g.c, sums[3]);
    }
}

/* Blocks of strips of y. */
static dim3 strips_of(const struct depthwise *g)
{
    return dim3(blocks_of((int64_t)g->ow * g->c, THREADS * AT_ONCE), blocks_of(g->oh, STRIP),
                (unsigned)g->n);
}

template <class T> static void launch_forward(const struct kernel_call *call)
{
    const struct kernel_problem *p = call->problem;
    const struct depthwise g = depthwise_of(p, &p->in[0].shape);
    const T *x = (const T *)call->in[0], *w = (const T *)call->in[1];
    const float *bias = p->n_in > 2 ? (const float *)call->in[2] : NULL;
    T *y = (T *)call->out[0];

    if (g.stride == 1)
        slide<T, 1, false><<<strips_of(&g), THREADS, 0, stream_of(call)>>>(
            g, x, w, bias, p->attrs.activation, y);
    else
        slide<T, 2, false><<<strips_of(&g), THREADS, 0, stream_of(call)>>>(
            g, x, w, bias, p->attrs.activation, y);
    stream_check(call->stream, "conv2d");
}

template <class T> static void launch_backward(const struct kernel_call *call)
{
    const struct kernel_problem *p = call->problem;
    const struct depthwise g = depthwise_of(p, &p->out[0].shape);
    const T *dy = (const T *)call->in[0], *w = (const T *)call->in[1];
    T *dx = (T *)call->out[0];

    if (g.stride == 1)
        slide<T, 1, true><<<strips_of(&g), THREADS, 0, stream_of(call)>>>(g, dy, w, NULL,
                                                                          ACTIVATION_NONE, dx);
    else
        spread_two<T><<<strips_of(&g), THREADS, 0, stream_of(call)>>>(g, dy, w, dx);
    stream_check(call->stream, "conv2d_grad_input");
}

/* The weights' gradient ----------------------------------------------------------------- */

/* How threads of a block lie: lanes along the channels, in fours, and columns of y beside each other. */
struct lanes {
    int along, columns, blocks; /* blocks along the channels */
    int64_t parts;              /* of all columns of all images */
};

static struct lanes lanes_of(const struct depthwise *g)
{
    const int fours = g->c / AT_ONCE, blocks = (fours + WEIGHT_LANES - 1) / WEIGHT_LANES;
    const int along = (fours + blocks - 1) / blocks;
    const int64_t columns = THREADS / along, all = (int64_t)g->n * g->ow;
    const int64_t wanted = (all + columns - 1) / columns, most = WEIGHT_BLOCKS / blocks;
    const struct lanes l = { along, (int)columns, blocks,
                             wanted < most ? wanted
                             : most > 1    ? most
                                           : 1 };
    return l;
}

template <class T, int STRIDE>
__global__ void __launch_bounds__(THREADS, 2)
    slide_weights(struct depthwise g, const T *x, const T *dy, int64_t parts, double *partial)
{
    __shared__ float all[THREADS][AT_ONCE];
    const int channel = (int)(blockIdx.x * blockDim.x + threadIdx.x) * AT_ONCE;
    const int64_t columns = (int64_t)g.n * g.ow, part = blockIdx.y;
    const int64_t end = columns * (part + 1) / parts;
    const bool there = channel < g.c;
    struct numbers sums[NINE] = {};

    for (int64_t at = columns * part / parts + threadIdx.y; there && at < end;
         at += blockDim.y) {
        const int64_t n = divided(at, g.ow);
        const int v = (int)(at - n * g.ow);
        const T *image = x + n * g.h * g.w * g.c + channel;
        const T *flows = dy + (n * g.oh * g.ow + v) * g.c + channel;
        struct numbers window[SIDE][SIDE];

#pragma unroll
        for (int r = 0; r < SIDE - STRIDE; r++)
            take_row(window[r], image, r - 1, v * STRIDE, g.h, g.w, g.c);
#pragma unroll 4
        for (int u = 0; u < g.oh; u++) {
            const struct numbers flow = take(flows + (int64_t)u * g.ow * g.c, true);
#pragma unroll
            for (int r = SIDE - STRIDE; r < SIDE; r++)
                take_row(window[r], image, u * STRIDE - 1 + r, v * STRIDE, g.h, g.w, g.c);
#pragma unroll
            for (int i = 0; i < NINE; i++)
                add(sums[i], window[i / SIDE][i % SIDE], flow);
#pragma unroll
            for (int r = 0; r < SIDE - STRIDE; r++) {
#pragma unroll
                for (int k = 0; k < SIDE; k++)
                    window[r][k] = window[r + STRIDE][k];
            }
        }
    }
#pragma unroll
    for (int i = 0; i < NINE; i++) {
        const int own = (int)(threadIdx.y * blockDim.x + threadIdx.x);
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++)
            all[own][k] = sums[i].x[k];
        __syncthreads();
        if (threadIdx.y == 0 && there) {
            for (int k = 0; k < AT_ONCE; k++) {
                double sum = 0;
                for (unsigned row = 0; row < blockDim.y; row++)
                    sum += (double)all[row * blockDim.x + threadIdx.x][k];
                partial[(part * NINE + i) * g.c + channel + k] = sum;
            }
        }
        __syncthreads();
    }
}

struct give_nine {
    float *dw;
    int64_t channels;
    __device__ void operator()(int64_t c, const double sums[NINE]) const
    {
        for (int tap = 0; tap < NINE; tap++)
            dw[tap * channels + c] = (float)sums[tap];
    }
};

static size_t weights_bytes(const struct depthwise *g)
{
    return ((size_t)(lanes_of(g).parts * NINE * g->c) * sizeof(double) + 255) / 256 * 256;
}

/* Blocks' sums, then those of the bias's gradient. */
static size_t weights_scratch(const struct kernel_problem *p)
{
    const struct depthwise g = depthwise_of(p, &p->in[0].shape);

    return weights_bytes(&g) +
           (p->n_out > 1 ? column_sums_scratch((int64_t)g.n * g.oh * g.ow, g.c) : 0);
}

template <class T> static void launch_weights(const struct kernel_call *call)
{
    const struct kernel_problem *p = call->problem;
    const struct depthwise g = depthwise_of(p, &p->in[0].shape);
    const struct lanes l = lanes_of(&g);
    const dim3 grid((unsigned)l.blocks, (unsigned)l.parts),
        block((unsigned)l.along, (unsigned)l.columns);
    const T *x = (const T *)call->in[0], *dy = (const T *)call->in[1];
    double *partial = (double *)call->scratch;

    if (g.stride == 1)
        slide_weights<T, 1><<<grid, block, 0, stream_of(call)>>>(g, x, dy, l.parts, partial);
    else
        slide_weights<T, 2><<<grid, block, 0, stream_of(call)>>>(g, x, dy, l.parts, partial);
    launch_finish<NINE>(call->stream, give_nine{ (float *)call->out[0], g.c }, g.c, l.parts,
                        partial);
    stream_check(call->stream, "conv2d_grad_weight");
    if (p->n_out > 1)
        column_sums(call->stream, dy, p->in[1].dtype, (int64_t)g.n * g.oh * g.ow, g.c,
                    (float *)call->out[1], (char *)call->scratch + weights_bytes(&g));
}

/* The ops ------------------------------------------------------------------------------ */

/* Of x: an image a block along z, strips along y. */
static bool fits_grid(const struct shape *x)
{
    return x->dim[0] <= GRID_MAX && x->dim[2] <= (int64_t)GRID_MAX * STRIP;
}

static bool forward_can_run(const struct kernel_problem *p)
{
    return is_depthwise(p, &p->in[0].shape, &p->in[1].shape) && fits_grid(&p->in[0].shape);
}

static bool backward_can_run(const struct kernel_problem *p)
{
    return is_depthwise(p, &p->out[0].shape, &p->in[1].shape) && fits_grid(&p->out[0].shape);
}

static bool weights_can_run(const struct kernel_problem *p)
{
    return is_depthwise(p, &p->in[0].shape, &p->out[0].shape);
}

static void run_forward(const struct kernel_call *call)
{
    BY_TYPE(call->problem->in[0], launch_forward, call);
}

static void run_backward(const struct kernel_call *call)
{
    BY_TYPE(call->problem->in[0], launch_backward, call);
}

static void run_weights(const struct kernel_call *call)
{
    BY_TYPE(call->problem->in[0], launch_weights, call);
}

extern "C" const struct kernel cuda_depthwise_rows[] = {
    { "conv2d", "depthwise", forward_can_run, NULL, NULL, NULL, run_forward },
    { "conv2d_grad_input", "depthwise", backward_can_run, NULL, NULL, NULL, run_backward },
    { "conv2d_grad_weight", "depthwise", weights_can_run, weights_scratch, NULL, NULL,
      run_weights },
    { NULL, NULL, NULL, NULL, NULL, NULL, NULL },
};
