/* SPDX-License-Identifier: MIT */
/* thin.cu - convolutions of images with few channels, such as a model's first one, and the gradient of their weights, in bf16 by
 * tensor cores.
 *
 * What a window sees are 31 numbers at most, so a product has two steps along them, and nothing is gained by more channels
 * than there are, which is what cuDNN wants. A warp has 16 pixels of y at a time: each thread takes what the product wants of it
 * of x straight from memory, or rather its cache, where neighbours find it, too. Forward has all weights in registers and
 * writes y with bias and relu; a thread's columns of the product are neighbouring channels, so that it writes 16 bytes.
 * The gradient has pixels along the product, and a row of ones behind the window's numbers, which sums up the bias's
 * gradient; warps of a block add what they have in order, then blocks (column.cuh). A transposed convolution to so few channels has a thread a
 * pixel, which looks up what of x reaches it; its gradients are those of the convolution, with x and y exchanged.
 */
#include "kernel/cuda/column.cuh"
#include "kernel/cuda/column_sums.h"
#include "kernel/cuda/mma.cuh"

enum {
    SEEN = 32,   /* numbers of a window, filled up */
    PIXELS = 16, /* of a warp */
    WARPS = 8,
    TILES_EACH = 8, /* of pixels that a warp of the gradient has at least */
    PARTS_MAX = 528
};

struct thin {
    int n, c, h, w, o, kh, kw, oh, ow;
    int stride[2], pad[2];
    int64_t pixels; /* of y */
    int seen;
};

/* x and w are shapes (N,C,H,W) and (O,C,kh,kw). */
static struct thin thin_of(const struct kernel_problem *p, const struct shape *x,
                           const struct shape *w)
{
    struct thin g = {};

    g.n = (int)x->dim[0];
    g.c = (int)x->dim[1];
    g.h = (int)x->dim[2];
    g.w = (int)x->dim[3];
    g.o = (int)w->dim[0];
    g.kh = (int)w->dim[2];
    g.kw = (int)w->dim[3];
    for (int i = 0; i < 2; i++) {
        g.stride[i] = p->attrs.stride[i];
        g.pad[i] = p->attrs.pad[i];
    }
    g.oh = (g.h + 2 * g.pad[0] - g.kh) / g.stride[0] + 1;
    g.ow = (g.w + 2 * g.pad[1] - g.kw) / g.stride[1] + 1;
    g.pixels = (int64_t)g.n * g.oh * g.ow;
    g.seen = g.kh * g.kw * g.c;
    return g;
}

static bool is_thin(const struct kernel_problem *p, const struct shape *x,
                    const struct shape *w)
{
    return p->in[0].dtype == DTYPE_BF16 && p->attrs.groups <= 1 && x->dim[1] <= 4 &&
           p->attrs.activation <= ACTIVATION_RELU && w->dim[2] * w->dim[3] * x->dim[1] < SEEN &&
           (w->dim[0] == 16 || w->dim[0] == 32 || w->dim[0] == 64) &&
           x->dim[2] * x->dim[3] * x->dim[1] < INT_MAX;
}

/* Which of a window's numbers: its tap and channel, and how far it is from the window's corner. */
struct number_of_window {
    int row, column, from;
    bool is_one; /* behind the last: 1, others 0 */
};

__device__ static struct number_of_window number_at(const struct thin &g, int k)
{
    const int tap = k / g.c;
    const struct number_of_window s = { k < g.seen ? tap / g.kw : -1, tap % g.kw,
                                        (tap / g.kw * g.w + tap % g.kw) * g.c + k % g.c,
                                        k == g.seen };
    return s;
}

/* A pixel's window: where its corner lies. image is NULL past the end. */
struct corner {
    const bf16 *image;
    int row, column;
};

__device__ __forceinline__ struct corner corner_of(const struct thin &g, const bf16 *x,
                                                   int64_t pixel)
{
    const int64_t line = divided(pixel, g.ow), n = divided(line, g.oh);
    const struct corner at = {
        pixel < g.pixels ? x + n * g.h * g.w * g.c : NULL,
        (int)(line - n * g.oh) * g.stride[0] - g.pad[0],
        (int)(pixel - line * g.ow) * g.stride[1] - g.pad[1],
    };
    return at;
}

/* What a window sees, as bits; `ones`: with the number behind the last. */
__device__ __forceinline__ uint32_t seen_at(const struct thin &g, const struct corner &at,
                                            const struct number_of_window &s, bool ones)
{
    const int row = at.row + s.row, column = at.column + s.column;

    if (at.image == NULL)
        return 0;
    if (s.row < 0)
        return ones && s.is_one ? 0x3f80U : 0;
    if (row < 0 || row >= g.h || column < 0 || column >= g.w)
        return 0;
    return *(const uint16_t *)(at.image + (at.row * g.w + at.column) * g.c + s.from);
}

/* Which channel column n of a product's tile j is: a thread has those that lie side by side. */
template <int TILES> __device__ __forceinline__ int channel_of(int j, int n)
{
    return n / 2 * (2 * TILES) + 2 * j + n % 2;
}

template <int TILES>
__global__ void __launch_bounds__(WARPS *WARP)
    forward(struct thin g, const bf16 *x, const bf16 *w, const float *bias, bool relu, bf16 *y)
{
    enum { O = 8 * TILES };
    const int lane = threadIdx.x % WARP, row = lane / 4, t = lane % 4;
    const int64_t all = (int64_t)gridDim.x * WARPS;
    struct number_of_window numbers[SEEN / 4];
    uint32_t weights[TILES][SEEN / 8];
    float shift[TILES][2];

#pragma unroll
    for (int i = 0; i < SEEN / 4; i++) /* k = 16 step + 8 half + 2 t + e */
        numbers[i] = number_at(g, i / 4 * 16 + i / 2 % 2 * 8 + 2 * t + i % 2);
#pragma unroll
    for (int j = 0; j < TILES; j++) {
#pragma unroll
        for (int i = 0; i < SEEN / 8; i++) {
            const int k = i / 2 * 16 + i % 2 * 8 + 2 * t, o = channel_of<TILES>(j, row);
            const uint32_t low = k < g.seen ? *(const uint16_t *)(w + k * O + o) : 0;
            const uint32_t high = k + 1 < g.seen ? *(const uint16_t *)(w + (k + 1) * O + o) : 0;
            weights[j][i] = low | high << 16;
        }
#pragma unroll
        for (int e = 0; e < 2; e++)
            shift[j][e] = bias ? bias[channel_of<TILES>(j, 2 * t + e)] : 0;
    }
    for (int64_t tile = (int64_t)blockIdx.x * WARPS + threadIdx.x / WARP;
         tile * PIXELS < g.pixels; tile += all) {
        const struct corner at[2] = { corner_of(g, x, tile * PIXELS + row),
                                      corner_of(g, x, tile * PIXELS + row + 8) };
        float c[TILES][4] = {};

#pragma unroll
        for (int step = 0; step < SEEN / 16; step++) {
            uint32_t a[4]; /* rows g and g + 8, then the same of the second eight of k */
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const struct number_of_window *of = &numbers[step * 4 + i / 2 * 2];
                a[i] = seen_at(g, at[i % 2], of[0], false) | seen_at(g, at[i % 2], of[1], false)
                                                                 << 16;
            }
#pragma unroll
            for (int j = 0; j < TILES; j++)
                multiply(c[j], a, weights[j][2 * step], weights[j][2 * step + 1]);
        }
#pragma unroll
        for (int half = 0; half < 2; half++) {
            __align__(16) uint32_t out[TILES];
            bf16 *to = y + (tile * PIXELS + row + 8 * half) * O + t * 2 * TILES;
#pragma unroll
            for (int j = 0; j < TILES; j++) {
                float pair[2];
#pragma unroll
                for (int e = 0; e < 2; e++) {
                    pair[e] = c[j][2 * half + e] + shift[j][e];
                    pair[e] = relu && pair[e] < 0 ? 0 : pair[e];
                }
                out[j] = pair_of(pair[0], pair[1]);
            }
            if (at[half].image == NULL)
                continue;
#pragma unroll
            for (int j = 0; j < TILES; j += TILES < 4 ? 2 : 4) {
                if (TILES < 4)
                    *(uint2 *)(to + 2 * j) = *(const uint2 *)&out[j];
                else
                    *(uint4 *)(to + 2 * j) = *(const uint4 *)&out[j];
            }
        }
    }
}

/* The weights' gradient: a product's rows are a window's numbers, its columns channels, along pixels. */
template <int TILES>
__global__ void __launch_bounds__(WARPS *WARP)
    weights(struct thin g, const bf16 *x, const bf16 *dy, double *partial)
{
    enum { O = 8 * TILES, ROW = O + 8 };
    __shared__ __align__(16) bf16 flows[WARPS][PIXELS * ROW];
    __shared__ float sums[SEEN][O];
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, row = lane / 4;
    const int t = lane % 4, matrix = lane / 8;
    const int64_t all = (int64_t)gridDim.x * WARPS;
    bf16 *own = flows[warp];
    const bf16 *right = own + (matrix % 2 * 8 + lane % 8) * ROW + matrix / 2 * 8;
    struct number_of_window numbers[SEEN / 8];
    float c[SEEN / 16][TILES][4] = {};

#pragma unroll
    for (int i = 0; i < SEEN / 8; i++)
        numbers[i] = number_at(g, i * 8 + row);
    for (int64_t tile = (int64_t)blockIdx.x * WARPS + warp; tile * PIXELS < g.pixels;
         tile += all) {
        const int64_t pixel = tile * PIXELS;
        struct corner at[4];

        __syncwarp();
#pragma unroll
        for (int i = lane; i < PIXELS * TILES; i += WARP) { /* eight channels each */
            const int64_t from = pixel + i / TILES;
            uint4 in = make_uint4(0, 0, 0, 0);
            if (from < g.pixels)
                in = *(const uint4 *)(dy + from * O + i % TILES * 8);
            *(uint4 *)(own + i / TILES * ROW + i % TILES * 8) = in;
        }
#pragma unroll
        for (int i = 0; i < 4; i++) /* pixels 2 t, 2 t + 1, and eight behind them */
            at[i] = corner_of(g, x, pixel + i / 2 * 8 + 2 * t + i % 2);
        __syncwarp();
#pragma unroll
        for (int m = 0; m < SEEN / 16; m++) {
            uint32_t a[4];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const struct number_of_window *of = &numbers[2 * m + i % 2];
                a[i] = seen_at(g, at[i / 2 * 2], *of, true) |
                       seen_at(g, at[i / 2 * 2 + 1], *of, true) << 16;
            }
#pragma unroll
            for (int j = 0; j < TILES; j += 2) {
                uint32_t b[4];
                load_four_across(b, right + j * 8);
                multiply(c[m][j], a, b[0], b[1]);
                multiply(c[m][j + 1], a, b[2], b[3]);
            }
        }
    }
    for (int turn = 0; turn < WARPS; turn++) {
        if (warp == turn) {
#pragma unroll
            for (int m = 0; m < SEEN / 16; m++) {
#pragma unroll
                for (int j = 0; j < TILES; j++) {
#pragma unroll
                    for (int e = 0; e < 4; e++) {
                        float *sum = &sums[m * 16 + row + e / 2 * 8][j * 8 + 2 * t + e % 2];
                        *sum = turn == 0 ? c[m][j][e] : *sum + c[m][j][e];
                    }
                }
            }
        }
        __syncthreads();
    }
    for (int i = threadIdx.x; i < SEEN * O; i += WARPS * WARP)
        partial[(int64_t)blockIdx.x * SEEN * O + i] = (double)sums[i / O][i % O];
}

/* Which pixel of y saw row or column `at` of the image by tap `tap`; -1: none. */
__device__ __forceinline__ int seen_by(int at, int tap, int stride, int pad, int extent)
{
    const int from = at + pad - tap, place = from / stride;

    return from >= 0 && place * stride == from && place < extent ? place : -1;
}

/* The transposed convolution: x is what y of the convolution is, `image` what its x is. */
template <int C>
__global__ void __launch_bounds__(THREADS)
    transpose(struct thin g, const bf16 *x, const bf16 *w, const float *bias, bool relu,
              bf16 *image)
{
    extern __shared__ float taps[]; /* as w lies */
    const int64_t pixel = thread_number(), line = divided(pixel, g.w), n = divided(line, g.h);
    const int row = (int)(line - n * g.h), column = (int)(pixel - line * g.w);
    float sums[C];

    for (int i = threadIdx.x; i < g.seen * g.o; i += THREADS)
        taps[i] = number(w[i]);
    __syncthreads();
    if (pixel >= (int64_t)g.n * g.h * g.w)
        return;
#pragma unroll
    for (int c = 0; c < C; c++)
        sums[c] = bias ? bias[c] : 0;
    for (int r = 0; r < g.kh; r++) {
        const int u = seen_by(row, r, g.stride[0], g.pad[0], g.oh);
        for (int s = 0; u >= 0 && s < g.kw; s++) {
            const int v = seen_by(column, s, g.stride[1], g.pad[1], g.ow);
            if (v < 0)
                continue;
            const bf16 *from = x + ((n * g.oh + u) * g.ow + v) * g.o;
            const float *tap = taps + (r * g.kw + s) * C * g.o;
            for (int o = 0; o < g.o; o += pack<bf16>::N) {
                const pack<bf16> in = *(const pack<bf16> *)(from + o);
#pragma unroll
                for (int k = 0; k < pack<bf16>::N; k++) {
#pragma unroll
                    for (int c = 0; c < C; c++)
                        sums[c] = fmaf(number(in.x[k]), tap[c * g.o + o + k], sums[c]);
                }
            }
        }
    }
#pragma unroll
    for (int c = 0; c < C; c++)
        put(&image[pixel * C + c], relu && sums[c] < 0 ? 0 : sums[c]);
}

/* Columns are a window's number and a channel; behind the last number is the bias. */
struct give_weights {
    float *dw, *db;
    int64_t weights, channels;
    __device__ void operator()(int64_t at, const double sums[1]) const
    {
        if (at < weights)
            dw[at] = (float)sums[0];
        else if (db && at < weights + channels)
            db[at - weights] = (float)sums[0];
    }
};

static int64_t tiles_of(const struct thin *g)
{
    return (g->pixels + PIXELS - 1) / PIXELS;
}

/* Blocks of the gradient, which follow from the extents alone. */
static int64_t parts_of(const struct thin *g)
{
    const int64_t wanted = (tiles_of(g) + WARPS * TILES_EACH - 1) / (WARPS * TILES_EACH);

    return wanted < PARTS_MAX ? wanted : PARTS_MAX;
}

template <int TILES> static void launch_forward(const struct kernel_call *call)
{
    const struct kernel_problem *p = call->problem;
    const struct thin g = thin_of(p, &p->in[0].shape, &p->in[1].shape);
    const unsigned blocks = blocks_of(tiles_of(&g), WARPS * TILES_EACH);

    forward<TILES><<<blocks, WARPS * WARP, 0, stream_of(call)>>>(
        g, (const bf16 *)call->in[0], (const bf16 *)call->in[1],
        p->n_in > 2 ? (const float *)call->in[2] : NULL, p->attrs.activation == ACTIVATION_RELU,
        (bf16 *)call->out[0]);
    stream_check(call->stream, "conv2d");
}

template <int C> static void launch_transpose(const struct kernel_call *call)
{
    const struct kernel_problem *p = call->problem;
    const struct thin g = thin_of(p, &p->out[0].shape, &p->in[1].shape);

    transpose<C><<<blocks_of((int64_t)g.n * g.h * g.w, THREADS), THREADS,
                   (size_t)(g.seen * g.o) * sizeof(float), stream_of(call)>>>(
        g, (const bf16 *)call->in[0], (const bf16 *)call->in[1],
        p->n_in > 2 ? (const float *)call->in[2] : NULL, p->attrs.activation == ACTIVATION_RELU,
        (bf16 *)call->out[0]);
    stream_check(call->stream, "conv2d_transpose");
}

/* image: the input that is the convolution's x, a transposed one's dy, whose bias goes along that. */
template <int TILES> static void launch_weights(const struct kernel_call *call, int image)
{
    const struct kernel_problem *p = call->problem;
    const struct thin g = thin_of(p, &p->in[image].shape, &p->out[0].shape);
    const int64_t parts = parts_of(&g), columns = (int64_t)SEEN * g.o;
    float *db = p->n_out > 1 ? (float *)call->out[1] : NULL;
    const struct give_weights give = { (float *)call->out[0], image == 0 ? db : NULL,
                                       (int64_t)g.seen * g.o, g.o };

    weights<TILES><<<(unsigned)parts, WARPS * WARP, 0, stream_of(call)>>>(
        g, (const bf16 *)call->in[image], (const bf16 *)call->in[1 - image],
        (double *)call->scratch);
    launch_finish<1>(call->stream, give, columns, parts, (const double *)call->scratch);
    if (image == 1 && db)
        column_sums(call->stream, call->in[1], DTYPE_BF16, (int64_t)g.n * g.h * g.w, g.c, db,
                    (double *)call->scratch + parts * columns);
    stream_check(call->stream, "conv2d_grad_weight");
}

static bool forward_can_run(const struct kernel_problem *p)
{
    return is_thin(p, &p->in[0].shape, &p->in[1].shape);
}

static void run_forward(const struct kernel_call *call)
{
    const int64_t channels = call->problem->in[1].shape.dim[0];

    if (channels == 16)
        launch_forward<2>(call);
    else if (channels == 32)
        launch_forward<4>(call);
    else
        launch_forward<8>(call);
}

static bool weights_can_run(const struct kernel_problem *p)
{
    return is_thin(p, &p->in[0].shape, &p->out[0].shape);
}

static size_t weights_scratch(const struct kernel_problem *p)
{
    const struct thin g = thin_of(p, &p->in[0].shape, &p->out[0].shape);

    return (size_t)(parts_of(&g) * SEEN * g.o) * sizeof(double);
}

static void weights_from(const struct kernel_call *call, int image)
{
    const int64_t channels = call->problem->out[0].shape.dim[0];

    if (channels == 16)
        launch_weights<2>(call, image);
    else if (channels == 32)
        launch_weights<4>(call, image);
    else
        launch_weights<8>(call, image);
}

static void run_weights(const struct kernel_call *call)
{
    weights_from(call, 0);
}

static bool transpose_can_run(const struct kernel_problem *p)
{
    return is_thin(p, &p->out[0].shape, &p->in[1].shape);
}

static void run_transpose(const struct kernel_call *call)
{
    const int64_t channels = call->problem->out[0].shape.dim[1];

    if (channels == 1)
        launch_transpose<1>(call);
    else if (channels == 2)
        launch_transpose<2>(call);
    else if (channels == 3)
        launch_transpose<3>(call);
    else
        launch_transpose<4>(call);
}

static bool transpose_weights_can_run(const struct kernel_problem *p)
{
    return is_thin(p, &p->in[1].shape, &p->out[0].shape);
}

static size_t transpose_weights_scratch(const struct kernel_problem *p)
{
    const struct thin g = thin_of(p, &p->in[1].shape, &p->out[0].shape);

    return (size_t)(parts_of(&g) * SEEN * g.o) * sizeof(double) +
           column_sums_scratch((int64_t)g.n * g.h * g.w, g.c);
}

static void run_transpose_weights(const struct kernel_call *call)
{
    weights_from(call, 1);
}

extern "C" const struct kernel cuda_thin_rows[] = {
    { "conv2d", "thin", forward_can_run, NULL, NULL, NULL, run_forward },
    { "conv2d_grad_weight", "thin", weights_can_run, weights_scratch, NULL, NULL, run_weights },
    { "conv2d_transpose", "thin", transpose_can_run, NULL, NULL, NULL, run_transpose },
    { "conv2d_transpose_grad_input", "thin", forward_can_run, NULL, NULL, NULL, run_forward },
    { "conv2d_transpose_grad_weight", "thin", transpose_weights_can_run,
      transpose_weights_scratch, NULL, NULL, run_transpose_weights },
    { NULL, NULL, NULL, NULL, NULL, NULL, NULL },
};
