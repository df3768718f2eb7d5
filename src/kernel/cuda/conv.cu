/* SPDX-License-Identifier: MIT */
/* conv.cu - convolutions of images and of sequences as matrix products that are never laid out.
 *
 * x lies (N,H,W,C), w (kh,kw,C,O), y (N,oh,ow,O), as cpu/reference_conv.c has them; a sequence is an image of
 * height 1. Forward: y (pixels of y, O) = windows of x times w. Input's gradient: dx (pixels of x, C) =
 * what of dy saw a pixel, times w. Weight's: dw (taps and C, O) = windows of x across, times dy, cut along
 * the pixels into parts whose sums are added in order. A transposed convolution is the gradient of the input.
 * A max pool's gradient is read through its index. Groups are products of their own; convolutions of each
 * channel by itself have plain kernels, and quick ones for usual windows in depthwise.cu.
 */
#include "kernel/cuda/column.cuh"
#include "kernel/cuda/column_sums.h"
#include "kernel/cuda/conv1d.h"
#include "kernel/cuda/product.cuh"

struct conv {
    int n, c, h, w, o, kh, kw, oh, ow;
    int c_group, o_group, groups;
    int stride[2], pad[2];
};

/* x and w are shapes (N,C,H,W) and (O,C/groups,kh,kw). */
static struct conv conv2d_of(const struct kernel_problem *p, const struct shape *x,
                             const struct shape *w)
{
    const struct attrs *a = &p->attrs;
    const int groups = a->groups > 1 ? a->groups : 1;
    struct conv g = {};

    g.n = (int)x->dim[0];
    g.c = (int)x->dim[1];
    g.h = (int)x->dim[2];
    g.w = (int)x->dim[3];
    g.o = (int)w->dim[0];
    g.kh = (int)w->dim[2];
    g.kw = (int)w->dim[3];
    g.oh = (g.h + 2 * a->pad[0] - g.kh) / a->stride[0] + 1;
    g.ow = (g.w + 2 * a->pad[1] - g.kw) / a->stride[1] + 1;
    g.c_group = (int)w->dim[1];
    g.o_group = g.o / groups;
    g.groups = groups;
    for (int i = 0; i < 2; i++) {
        g.stride[i] = a->stride[i];
        g.pad[i] = a->pad[i];
    }
    return g;
}

/* x (N,T,C), w (O,C,k). Where T < k there is one place, whose window reaches past the end. */
static struct conv conv1d_of(const struct shape *x, const struct shape *w)
{
    struct conv g = {};

    g.n = (int)x->dim[0];
    g.c = g.c_group = (int)x->dim[2];
    g.h = g.kh = g.oh = g.groups = g.stride[0] = g.stride[1] = 1;
    g.w = (int)x->dim[1];
    g.o = g.o_group = (int)w->dim[0];
    g.kw = (int)w->dim[2];
    g.ow = g.w < g.kw ? 1 : g.w - g.kw + 1;
    return g;
}

static int64_t x_pixels(const struct conv *g)
{
    return (int64_t)g->n * g->h * g->w;
}

static int64_t y_pixels(const struct conv *g)
{
    return (int64_t)g->n * g->oh * g->ow;
}

static bool is_depthwise(const struct conv *g)
{
    return g->groups > 1 && g->c_group == 1 && g->o_group == 1;
}

/* The gradient of y, as it is or as a max pool of the windows side by side left it. */
template <class T> struct gradient {
    const T *dy;
    const uint8_t *index; /* NULL: not pooled */
    int window[2], ph, pw;

    __device__ float at(const struct conv &g, int n, int u, int v, int o) const
    {
        if (index == NULL)
            return number(dy[(((int64_t)n * g.oh + u) * g.ow + v) * g.o + o]);
        const int row = u / window[0], column = v / window[1];
        if (row >= ph || column >= pw)
            return 0;
        const int64_t i = (((int64_t)n * ph + row) * pw + column) * g.o + o;
        return index[i] == u % window[0] * window[1] + v % window[1] ? number(dy[i]) : 0;
    }
};

template <class T> static struct gradient<T> plain_gradient(const void *dy) {
    struct gradient<T> d = {
    };

    d.dy = (const T *)dy;
    return d;
}

template <class T>
static struct gradient<T> pooled_gradient(const struct kernel_problem *p, const struct conv *g,
                                          const void *dy, const void *index) {
    struct gradient<T> d = plain_gradient<T>(dy);

    d.index = (const uint8_t *)index;
    d.window[0] = p->attrs.window[0];
    d.window[1] = p->attrs.window[1];
    d.ph = g->oh / d.window[0];
    d.pw = g->ow / d.window[1];
    return d;
}

/* Forward: m a pixel of y, n an output channel of a group, k a tap and an input channel ---- */

struct pixel {
    int image, row, column; /* image < 0: past the end */
};

struct tap {
    int r, s, channel; /* r < 0: past the end */
};

__device__ __forceinline__ struct pixel pixel_of(int64_t at, int64_t count, int height,
                                                 int width)
{
    const int64_t rest = divided(at, width);
    const struct pixel p = { at < count ? (int)divided(rest, height) : -1,
                             (int)left_over(rest, height), (int)(at - rest * width) };
    return p;
}

__device__ __forceinline__ struct tap tap_of(int64_t k, int64_t end, int kw, int channels)
{
    const int at = (int)divided(k, channels);
    const struct tap t = { k < end ? at / kw : -1, at % kw, (int)(k - (int64_t)at * channels) };
    return t;
}

/* Y: the type of y, which a pool of windows reads in float. */
template <class T, class Y> struct forward {
    enum { A_ALONG_K = true, B_ALONG_K = false };
    typedef struct pixel m_state;
    typedef struct tap ak_state;
    typedef int n_state;
    typedef int64_t bk_state;
    int64_t m, n;
    struct conv g;
    const T *x, *w;
    const float *bias;
    Y *y;
    enum activation activation;
    int group;

    __device__ void begin(int z)
    {
        group = z;
    }
    __device__ int64_t k_begin() const
    {
        return 0;
    }
    __device__ int64_t k_end() const
    {
        return (int64_t)g.kh * g.kw * g.c_group;
    }
    __device__ m_state a_m(int64_t at) const
    {
        struct pixel p = pixel_of(at, m, g.oh, g.ow);
        p.row = p.row * g.stride[0] - g.pad[0];
        p.column = p.column * g.stride[1] - g.pad[1];
        return p;
    }
    __device__ ak_state a_k(int64_t k, int64_t end) const
    {
        return tap_of(k, end, g.kw, g.c_group);
    }
    __device__ float a(m_state p, ak_state t) const
    {
        const int row = p.row + t.r, column = p.column + t.s;
        if (p.image < 0 || t.r < 0 || row < 0 || row >= g.h || column < 0 || column >= g.w)
            return 0;
        return number(x[(((int64_t)p.image * g.h + row) * g.w + column) * g.c +
                        group * g.c_group + t.channel]);
    }
    __device__ n_state b_n(int64_t at) const
    {
        return at < n ? group * g.o_group + (int)at : -1;
    }
    __device__ bk_state b_k(int64_t k, int64_t end) const
    {
        return k < end ? k : -1;
    }
    __device__ float b(n_state o, bk_state k) const
    {
        return o < 0 || k < 0 ? 0 : number(w[k * g.o + o]);
    }
    __device__ void store(int64_t at, int64_t column, float sum) const
    {
        const int o = group * g.o_group + (int)column;
        put(&y[at * g.o + o], activate(activation, bias ? sum + bias[o] : sum));
    }
};

template <class T, class Y>
__global__ void forward_depthwise(struct conv g, const T *x, const T *w, const float *bias,
                                  enum activation activation, Y *y, int64_t count)
{
    const int64_t i = thread_number();

    if (i >= count)
        return;
    const int c = (int)left_over(i, g.c);
    const struct pixel p = pixel_of(divided(i, g.c), count, g.oh, g.ow);
    float sum = bias ? bias[c] : 0;
    for (int r = 0; r < g.kh; r++) {
        const int row = p.row * g.stride[0] - g.pad[0] + r;
        for (int s = 0; s < g.kw && row >= 0 && row < g.h; s++) {
            const int column = p.column * g.stride[1] - g.pad[1] + s;
            if (column >= 0 && column < g.w)
                sum = fmaf(number(x[(((int64_t)p.image * g.h + row) * g.w + column) * g.c + c]),
                           number(w[(r * g.kw + s) * g.c + c]), sum);
        }
    }
    put(&y[i], activate(activation, sum));
}

struct layer {
    const void *x, *w, *bias; /* bias may be NULL */
    void *y;
    enum activation activation;
};

template <class T, class Y>
static void run_forward(const struct conv *g, const struct layer *l,
                        struct device_stream *stream)
{
    if (is_depthwise(g)) {
        const int64_t count = y_pixels(g) * g->o;
        forward_depthwise<T, Y><<<blocks_of(count, THREADS), THREADS, 0, stream->cuda>>>(
            *g, (const T *)l->x, (const T *)l->w, (const float *)l->bias, l->activation,
            (Y *)l->y, count);
    } else {
        struct forward<T, Y> f = {
        };
        f.m = y_pixels(g);
        f.n = g->o_group;
        f.g = *g;
        f.x = (const T *)l->x;
        f.w = (const T *)l->w;
        f.bias = (const float *)l->bias;
        f.y = (Y *)l->y;
        f.activation = l->activation;
        run_product(f, g->groups, stream);
    }
    stream_check(stream, "conv2d");
}

/* Input's gradient: m a pixel of x, n an input channel of a group, k a tap and an output channel */

template <class T> struct backward {
    enum { A_ALONG_K = true, B_ALONG_K = true };
    typedef struct pixel m_state;
    typedef struct tap ak_state;
    typedef int n_state;
    typedef struct tap bk_state;
    int64_t m, n;
    struct conv g;
    struct gradient<T> dy;
    const T *w;
    const float *bias;
    T *dx;
    enum activation activation;
    int group;

    __device__ void begin(int z)
    {
        group = z;
    }
    __device__ int64_t k_begin() const
    {
        return 0;
    }
    __device__ int64_t k_end() const
    {
        return (int64_t)g.kh * g.kw * g.o_group;
    }
    __device__ m_state a_m(int64_t at) const
    {
        struct pixel p = pixel_of(at, m, g.h, g.w);
        p.row += g.pad[0];
        p.column += g.pad[1];
        return p;
    }
    __device__ ak_state a_k(int64_t k, int64_t end) const
    {
        return tap_of(k, end, g.kw, g.o_group);
    }
    __device__ float a(m_state p, ak_state t) const
    {
        const int down = p.row - t.r, right = p.column - t.s;
        if (p.image < 0 || t.r < 0 || down < 0 || right < 0 || down % g.stride[0] != 0 ||
            right % g.stride[1] != 0)
            return 0;
        const int u = down / g.stride[0], v = right / g.stride[1];
        return u < g.oh && v < g.ow ? dy.at(g, p.image, u, v, group * g.o_group + t.channel)
                                    : 0;
    }
    __device__ n_state b_n(int64_t at) const
    {
        return at < n ? (int)at : -1;
    }
    __device__ bk_state b_k(int64_t k, int64_t end) const
    {
        return tap_of(k, end, g.kw, g.o_group);
    }
    __device__ float b(n_state c, bk_state t) const
    {
        return c < 0 || t.r < 0 ? 0
                                : number(w[((int64_t)(t.r * g.kw + t.s) * g.c_group + c) * g.o +
                                           group * g.o_group + t.channel]);
    }
    __device__ void store(int64_t at, int64_t column, float sum) const
    {
        const int c = group * g.c_group + (int)column;
        put(&dx[at * g.c + c], activate(activation, bias ? sum + bias[c] : sum));
    }
};

template <class T>
__global__ void backward_depthwise(struct conv g, struct gradient<T> dy, const T *w, T *dx,
                                   int64_t count)
{
    const int64_t i = thread_number();

    if (i >= count)
        return;
    const int c = (int)left_over(i, g.c);
    const struct pixel p = pixel_of(divided(i, g.c), count, g.h, g.w);
    float sum = 0;
    for (int r = 0; r < g.kh; r++) {
        const int down = p.row + g.pad[0] - r, u = down / g.stride[0];
        for (int s = 0; s < g.kw && down >= 0 && down % g.stride[0] == 0 && u < g.oh; s++) {
            const int right = p.column + g.pad[1] - s, v = right / g.stride[1];
            if (right >= 0 && right % g.stride[1] == 0 && v < g.ow)
                sum =
                    fmaf(dy.at(g, p.image, u, v, c), number(w[(r * g.kw + s) * g.c + c]), sum);
        }
    }
    put(&dx[i], sum);
}

template <class T>
static void run_backward(const struct conv *g, struct gradient<T> dy, const struct layer *l,
                         struct device_stream *stream)
{
    if (is_depthwise(g)) {
        const int64_t count = x_pixels(g) * g->c;
        backward_depthwise<T><<<blocks_of(count, THREADS), THREADS, 0, stream->cuda>>>(
            *g, dy, (const T *)l->w, (T *)l->y, count);
    } else {
        struct backward<T> b = {
        };
        b.m = x_pixels(g);
        b.n = g->c_group;
        b.g = *g;
        b.dy = dy;
        b.w = (const T *)l->w;
        b.bias = (const float *)l->bias;
        b.dx = (T *)l->y;
        b.activation = l->activation;
        run_product(b, g->groups, stream);
    }
    stream_check(stream, "conv2d_grad_input");
}

/* Weight's gradient: m a tap and an input channel, n an output channel, k a pixel of y ------ */

enum { SPLIT_PIXELS = 512, SPLIT_BLOCKS = 1056 };

/* Into how many parts the pixels are cut. */
static int64_t splits_of(const struct conv *g)
{
    const int64_t tiles = (((int64_t)g->kh * g->kw * g->c_group + 63) / 64) *
                          ((g->o_group + 63) / 64) * g->groups;
    const int64_t most = SPLIT_BLOCKS / tiles > 1 ? SPLIT_BLOCKS / tiles : 1;
    const int64_t wanted = (y_pixels(g) + SPLIT_PIXELS - 1) / SPLIT_PIXELS;

    return wanted < most ? wanted : most;
}

static int64_t weights_of(const struct conv *g)
{
    return (int64_t)g->kh * g->kw * g->c_group * g->o;
}

template <class T> struct weights {
    enum { A_ALONG_K = false, B_ALONG_K = false };
    typedef struct tap m_state;
    typedef struct pixel ak_state;
    typedef int n_state;
    typedef struct pixel bk_state;
    int64_t m, n, splits, pixels;
    struct conv g;
    const T *x;
    struct gradient<T> dy;
    float *dw; /* of each part */
    int group, split;

    __device__ void begin(int z)
    {
        group = z % g.groups;
        split = z / g.groups;
    }
    __device__ int64_t k_begin() const
    {
        return pixels * split / splits;
    }
    __device__ int64_t k_end() const
    {
        return pixels * (split + 1) / splits;
    }
    __device__ m_state a_m(int64_t at) const
    {
        return tap_of(at, m, g.kw, g.c_group);
    }
    __device__ ak_state a_k(int64_t k, int64_t end) const
    {
        return pixel_of(k, end, g.oh, g.ow);
    }
    __device__ float a(m_state t, ak_state p) const
    {
        const int row = p.row * g.stride[0] - g.pad[0] + t.r;
        const int column = p.column * g.stride[1] - g.pad[1] + t.s;
        if (p.image < 0 || t.r < 0 || row < 0 || row >= g.h || column < 0 || column >= g.w)
            return 0;
        return number(x[(((int64_t)p.image * g.h + row) * g.w + column) * g.c +
                        group * g.c_group + t.channel]);
    }
    __device__ n_state b_n(int64_t at) const
    {
        return at < n ? group * g.o_group + (int)at : -1;
    }
    __device__ bk_state b_k(int64_t k, int64_t end) const
    {
        return pixel_of(k, end, g.oh, g.ow);
    }
    __device__ float b(n_state o, bk_state p) const
    {
        return o < 0 || p.image < 0 ? 0 : dy.at(g, p.image, p.row, p.column, o);
    }
    __device__ void store(int64_t at, int64_t column, float sum) const
    {
        dw[(split * m + at) * g.o + group * g.o_group + column] = sum;
    }
};

__global__ void add_splits(const float *parts, int64_t splits, int64_t count, float *out)
{
    const int64_t i = thread_number();
    float sum = 0;

    if (i >= count)
        return;
    for (int64_t part = 0; part < splits; part++)
        sum += parts[part * count + i];
    out[i] = sum;
}

/* Depthwise: a column is a tap and a channel, a row a pixel of y. */
template <class T> struct add_depthwise {
    struct conv g;
    const T *x;
    struct gradient<T> dy;
    __device__ void operator()(int64_t at, int64_t column, double sums[1]) const
    {
        const struct pixel p = pixel_of(at, INT64_MAX, g.oh, g.ow);
        const int c = (int)(column % g.c), tap = (int)(column / g.c);
        const int row = p.row * g.stride[0] - g.pad[0] + tap / g.kw;
        const int at_column = p.column * g.stride[1] - g.pad[1] + tap % g.kw;
        if (row >= 0 && row < g.h && at_column >= 0 && at_column < g.w)
            sums[0] = fma(
                (double)number(x[(((int64_t)p.image * g.h + row) * g.w + at_column) * g.c + c]),
                (double)dy.at(g, p.image, p.row, p.column, c), sums[0]);
    }
};

struct give_weight {
    float *dw;
    __device__ void operator()(int64_t column, const double sums[1]) const
    {
        dw[column] = (float)sums[0];
    }
};

/* The bias's: all of dy, or of a pool what it sends somewhere. */
template <class T> struct add_pooled {
    const T *dy;
    const uint8_t *index;
    int64_t columns;
    __device__ void operator()(int64_t row, int64_t column, double sums[1]) const
    {
        const int64_t i = row * columns + column;
        if (index[i] != 255)
            sums[0] += (double)number(dy[i]);
    }
};

static size_t up(size_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

static size_t weights_scratch_of(const struct conv *g)
{
    if (is_depthwise(g))
        return up(column_scratch(y_pixels(g), weights_of(g), 1));
    return splits_of(g) > 1 ? up((size_t)(splits_of(g) * weights_of(g)) * sizeof(float)) : 0;
}

/* Parts of the weight's gradient, then those of the bias's over `rows` rows of `columns`. */
static size_t grad_weight_bytes(const struct conv *g, int64_t rows, int64_t columns)
{
    return weights_scratch_of(g) + column_scratch(rows, columns, 1);
}

template <class T>
static void run_weights(const struct conv *g, const void *x, struct gradient<T> dy, void *dw,
                        void *scratch, struct device_stream *stream)
{
    const int64_t splits = splits_of(g);

    if (is_depthwise(g)) {
        const struct add_depthwise<T> add = {
            *g, (const T *)x, dy
        };
        sum_columns<1>(stream, add, give_weight{ (float *)dw }, y_pixels(g), weights_of(g),
                       scratch);
    } else {
        struct weights<T> s = {
        };
        s.m = (int64_t)g->kh * g->kw * g->c_group;
        s.n = g->o_group;
        s.splits = splits;
        s.pixels = y_pixels(g);
        s.g = *g;
        s.x = (const T *)x;
        s.dy = dy;
        s.dw = (float *)(splits > 1 ? scratch : dw);
        run_product(s, g->groups * splits, stream);
        if (splits > 1)
            add_splits<<<blocks_of(weights_of(g), THREADS), THREADS, 0, stream->cuda>>>(
                (const float *)scratch, splits, weights_of(g), (float *)dw);
    }
    stream_check(stream, "conv2d_grad_weight");
}

template <class T>
static void run_pooled_bias(const struct kernel_call *call, struct gradient<T> dy, int64_t rows,
                            int64_t columns, void *db, void *scratch)
{
    const struct add_pooled<T> add = {
        dy.dy, dy.index, columns
    };

    sum_columns<1>(call->stream, add, give_weight{ (float *)db }, rows, columns, scratch);
    stream_check(call->stream, "conv2d_grad_weight");
}

/* The ops ------------------------------------------------------------------------------ */

template <class T> static void launch_conv2d(const struct kernel_call *call)
{
    const struct kernel_problem *p = call->problem;
    const struct conv g = conv2d_of(p, &p->in[0].shape, &p->in[1].shape);
    const struct layer l = { call->in[0], call->in[1], p->n_in > 2 ? call->in[2] : NULL,
                             call->out[0], p->attrs.activation };

    run_forward<T, T>(&g, &l, call->stream);
}

static void run_conv2d(const struct kernel_call *call)
{
    BY_TYPE(call->problem->in[0], launch_conv2d, call);
}

template <class T> static void launch_conv2d_grad_input(const struct kernel_call *call)
{
    const struct kernel_problem *p = call->problem;
    const struct conv g = conv2d_of(p, &p->out[0].shape, &p->in[1].shape);
    const struct layer l = { NULL, call->in[1], NULL, call->out[0], ACTIVATION_NONE };

    run_backward(&g, plain_gradient<T>(call->in[0]), &l, call->stream);
}

static void run_conv2d_grad_input(const struct kernel_call *call)
{
    BY_TYPE(call->problem->in[0], launch_conv2d_grad_input, call);
}

static size_t conv2d_grad_weight_scratch(const struct kernel_problem *p)
{
    const struct conv g = conv2d_of(p, &p->in[0].shape, &p->out[0].shape);
    return grad_weight_bytes(&g, y_pixels(&g), g.o);
}

template <class T> static void launch_conv2d_grad_weight(const struct kernel_call *call)
{
    const struct kernel_problem *p = call->problem;
    const struct conv g = conv2d_of(p, &p->in[0].shape, &p->out[0].shape);

    run_weights(&g, call->in[0], plain_gradient<T>(call->in[1]), call->out[0], call->scratch,
                call->stream);
    if (p->n_out > 1)
        column_sums(call->stream, call->in[1], p->in[1].dtype, y_pixels(&g), g.o,
                    (float *)call->out[1], (char *)call->scratch + weights_scratch_of(&g));
}

static void run_conv2d_grad_weight(const struct kernel_call *call)
{
    BY_TYPE(call->problem->in[0], launch_conv2d_grad_weight, call);
}

template <class T> static void launch_conv2d_transpose(const struct kernel_call *call)
{
    const struct kernel_problem *p = call->problem;
    const struct conv g = conv2d_of(p, &p->out[0].shape, &p->in[1].shape);
    const struct layer l = { NULL, call->in[1], p->n_in > 2 ? call->in[2] : NULL, call->out[0],
                             p->attrs.activation };

    run_backward(&g, plain_gradient<T>(call->in[0]), &l, call->stream);
}

static void run_conv2d_transpose(const struct kernel_call *call)
{
    BY_TYPE(call->problem->in[0], launch_conv2d_transpose, call);
}

static size_t transpose_grad_weight_scratch(const struct kernel_problem *p)
{
    const struct conv g = conv2d_of(p, &p->in[1].shape, &p->out[0].shape);
    return grad_weight_bytes(&g, x_pixels(&g), g.c);
}

template <class T>
static void launch_conv2d_transpose_grad_weight(const struct kernel_call *call)
{
    const struct kernel_problem *p = call->problem;
    const struct conv g = conv2d_of(p, &p->in[1].shape, &p->out[0].shape);

    run_weights(&g, call->in[1], plain_gradient<T>(call->in[0]), call->out[0], call->scratch,
                call->stream);
    if (p->n_out > 1)
        column_sums(call->stream, call->in[1], p->in[1].dtype, x_pixels(&g), g.c,
                    (float *)call->out[1], (char *)call->scratch + weights_scratch_of(&g));
}

static void run_conv2d_transpose_grad_weight(const struct kernel_call *call)
{
    BY_TYPE(call->problem->in[0], launch_conv2d_transpose_grad_weight, call);
}

/* A max pool of windows side by side over what the convolution left in scratch. */
template <class T>
__global__ void pool_windows(struct conv g, int wh, int ww, const float *x, bool relu, T *y,
                             uint8_t *index)
{
    const int ph = g.oh / wh, pw = g.ow / ww;
    const int64_t i = thread_number(), count = (int64_t)g.n * ph * pw * g.o;
    float best = 0;
    int place = -1;

    if (i >= count)
        return;
    const int o = (int)left_over(i, g.o);
    const struct pixel p = pixel_of(divided(i, g.o), count, ph, pw);
    for (int at = 0; at < wh * ww; at++) {
        const int row = p.row * wh + at / ww, column = p.column * ww + at % ww;
        const float value = x[(((int64_t)p.image * g.oh + row) * g.ow + column) * g.o + o];
        if (place < 0 || value > best) {
            best = value;
            place = at;
        }
    }
    if (relu && best <= 0) {
        best = 0;
        place = 255;
    }
    put(&y[i], best);
    index[i] = (uint8_t)place;
}

static size_t conv2d_pool_scratch(const struct kernel_problem *p)
{
    const struct conv g = conv2d_of(p, &p->in[0].shape, &p->in[1].shape);
    return (size_t)(y_pixels(&g) * g.o) * sizeof(float);
}

template <class T> static void launch_conv2d_pool(const struct kernel_call *call)
{
    const struct kernel_problem *p = call->problem;
    const struct conv g = conv2d_of(p, &p->in[0].shape, &p->in[1].shape);
    const struct layer l = { call->in[0], call->in[1], p->n_in > 2 ? call->in[2] : NULL,
                             call->scratch, ACTIVATION_NONE };
    const int64_t count = shape_count(&p->out[0].shape);

    run_forward<T, float>(&g, &l, call->stream);
    pool_windows<T><<<blocks_of(count, THREADS), THREADS, 0, stream_of(call)>>>(
        g, p->attrs.window[0], p->attrs.window[1], (const float *)call->scratch,
        p->attrs.activation == ACTIVATION_RELU, (T *)call->out[0], (uint8_t *)call->out[1]);
    stream_check(call->stream, "conv2d_pool");
}

static void run_conv2d_pool(const struct kernel_call *call)
{
    BY_TYPE(call->problem->in[0], launch_conv2d_pool, call);
}

template <class T> static void launch_conv2d_pool_grad_input(const struct kernel_call *call)
{
    const struct kernel_problem *p = call->problem;
    const struct conv g = conv2d_of(p, &p->out[0].shape, &p->in[2].shape);
    const struct layer l = { NULL, call->in[2], NULL, call->out[0], ACTIVATION_NONE };

    run_backward(&g, pooled_gradient<T>(p, &g, call->in[0], call->in[1]), &l, call->stream);
}

static void run_conv2d_pool_grad_input(const struct kernel_call *call)
{
    BY_TYPE(call->problem->in[0], launch_conv2d_pool_grad_input, call);
}

static int64_t pooled_rows(const struct kernel_problem *p)
{
    return shape_count(&p->in[1].shape) / p->in[1].shape.dim[1];
}

static size_t pool_grad_weight_scratch(const struct kernel_problem *p)
{
    const struct conv g = conv2d_of(p, &p->in[0].shape, &p->out[0].shape);
    return grad_weight_bytes(&g, pooled_rows(p), g.o);
}

template <class T> static void launch_conv2d_pool_grad_weight(const struct kernel_call *call)
{
    const struct kernel_problem *p = call->problem;
    const struct conv g = conv2d_of(p, &p->in[0].shape, &p->out[0].shape);
    const struct gradient<T> dy = pooled_gradient<T>(p, &g, call->in[1], call->in[2]);

    run_weights(&g, call->in[0], dy, call->out[0], call->scratch, call->stream);
    if (p->n_out > 1)
        run_pooled_bias(call, dy, pooled_rows(p), g.o, call->out[1],
                        (char *)call->scratch + weights_scratch_of(&g));
}

static void run_conv2d_pool_grad_weight(const struct kernel_call *call)
{
    BY_TYPE(call->problem->in[0], launch_conv2d_pool_grad_weight, call);
}

/* Sequences ---------------------------------------------------------------------------- */

template <class T> static void launch_conv1d(const struct kernel_call *call)
{
    const struct kernel_problem *p = call->problem;
    const struct conv g = conv1d_of(&p->in[0].shape, &p->in[1].shape);
    const struct layer l = { call->in[0], call->in[1], p->n_in > 2 ? call->in[2] : NULL,
                             call->out[0], p->attrs.activation };

    run_forward<T, T>(&g, &l, call->stream);
}

static void run_conv1d(const struct kernel_call *call)
{
    BY_TYPE(call->problem->in[0], launch_conv1d, call);
}

template <class T> static void launch_conv1d_grad_input(const struct kernel_call *call)
{
    const struct kernel_problem *p = call->problem;
    const struct conv g = conv1d_of(&p->out[0].shape, &p->in[1].shape);
    const struct layer l = { NULL, call->in[1], NULL, call->out[0], ACTIVATION_NONE };

    run_backward(&g, plain_gradient<T>(call->in[0]), &l, call->stream);
}

static void run_conv1d_grad_input(const struct kernel_call *call)
{
    BY_TYPE(call->problem->in[0], launch_conv1d_grad_input, call);
}

static size_t conv1d_grad_weight_scratch(const struct kernel_problem *p)
{
    const struct conv g = conv1d_of(&p->in[0].shape, &p->out[0].shape);
    return grad_weight_bytes(&g, y_pixels(&g), g.o);
}

template <class T> static void launch_conv1d_grad_weight(const struct kernel_call *call)
{
    const struct kernel_problem *p = call->problem;
    const struct conv g = conv1d_of(&p->in[0].shape, &p->out[0].shape);

    run_weights(&g, call->in[0], plain_gradient<T>(call->in[1]), call->out[0], call->scratch,
                call->stream);
    if (p->n_out > 1)
        column_sums(call->stream, call->in[1], p->in[1].dtype, y_pixels(&g), g.o,
                    (float *)call->out[1], (char *)call->scratch + weights_scratch_of(&g));
}

static void run_conv1d_grad_weight(const struct kernel_call *call)
{
    BY_TYPE(call->problem->in[0], launch_conv1d_grad_weight, call);
}

template <class T> static void launch_sums(const struct kernel_call *call, float *sums)
{
    const struct kernel_problem *p = call->problem;
    const struct conv g = conv1d_of(&p->in[0].shape, &p->in[1].shape);
    const struct layer l = { call->in[0], call->in[1], NULL, sums, ACTIVATION_NONE };

    run_forward<T, float>(&g, &l, call->stream);
}

void conv1d_sums(const struct kernel_call *call, float *sums)
{
    if (call->problem->in[0].dtype == DTYPE_BF16)
        launch_sums<bf16>(call, sums);
    else if (call->problem->in[0].dtype == DTYPE_F16)
        launch_sums<f16>(call, sums);
    else
        launch_sums<float>(call, sums);
}

#define ROW(op, scratch, run)                                                                  \
    {                                                                                          \
        op, "own", NULL, scratch, NULL, NULL, run                                              \
    }
extern "C" const struct kernel cuda_conv_rows[] = {
    ROW("conv2d", NULL, run_conv2d),
    ROW("conv2d_grad_input", NULL, run_conv2d_grad_input),
    ROW("conv2d_grad_weight", conv2d_grad_weight_scratch, run_conv2d_grad_weight),
    ROW("conv2d_transpose", NULL, run_conv2d_transpose),
    ROW("conv2d_transpose_grad_input", NULL, run_conv2d),
    ROW("conv2d_transpose_grad_weight", transpose_grad_weight_scratch,
        run_conv2d_transpose_grad_weight),
    ROW("conv2d_pool", conv2d_pool_scratch, run_conv2d_pool),
    ROW("conv2d_pool_grad_input", NULL, run_conv2d_pool_grad_input),
    ROW("conv2d_pool_grad_weight", pool_grad_weight_scratch, run_conv2d_pool_grad_weight),
    ROW("conv1d", NULL, run_conv1d),
    ROW("conv1d_grad_input", NULL, run_conv1d_grad_input),
    ROW("conv1d_grad_weight", conv1d_grad_weight_scratch, run_conv1d_grad_weight),
    { NULL, NULL, NULL, NULL, NULL, NULL, NULL },
};
