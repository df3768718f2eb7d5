/* SPDX-License-Identifier: MIT */
/* thin.cu - convolutions of images with few channels, such as a model's first one, and the gradient of their weights, in bf16 by
 * tensor cores.
 *
 * What a window sees are 31 numbers at most, so a product has two steps along them, and nothing is gained by more channels
 * than there are, which is what cuDNN wants. A block has a strip of rows of an image, whose part of x lies in shared memory with zeros
 * around it, so that a number is found by its distance from the window's corner and nothing is asked about edges. A warp has
 * 16 pixels of y at a time. Forward has all weights in registers and
 * writes y with bias and relu; a thread's columns of the product are neighbouring channels, so that it writes 16 bytes.
 * The gradient has pixels along the product, dy of the next ones on its way, and a row of ones behind the window's numbers, which sums up the bias's
 * gradient; warps of a block add what they have in order, then blocks (column.cuh). With a max pool of 2 x 2 behind it, pixels are
 * counted window by window: a thread and its neighbour have a window's four, the largest is written, and backward its gradient is
 * put in one of four rows. A transposed convolution to so few channels has a thread a
 * pixel, which looks up what of x reaches it; its gradients are those of the convolution, with x and y exchanged.
 */
#include "kernel/cuda/column.cuh"
#include "kernel/cuda/column_sums.h"
#include "kernel/cuda/mma.cuh"

enum {
    SEEN = 32,   /* numbers of a window, filled up */
    PIXELS = 16, /* of a warp */
    WARPS = 8,
    STRIP = 1024,   /* pixels of y, about */
    STAGED = 20480, /* bytes of x, at most */
    PARTS_MAX = 528,
    BLOCKS = 264 /* that run at once on an H200 */
};

struct thin {
    int n, c, h, w, o, kh, kw, oh, ow;
    int stride[2], pad[2];
    int seen;
    int line;              /* numbers of a row of x with what is around it */
    int rows, strips;      /* of y in a strip, of pools an even number; of an image */
    float of_line, of_row; /* inverse of line, and of pixels of a row, or windows of a pool */
};

/* Of what so many rows of y see. */
static size_t staged_bytes(const struct thin *g, int rows)
{
    return (size_t)((rows - 1) * g->stride[0] + g->kh) * (size_t)g->line * sizeof(bf16);
}

/* x and w are shapes (N,C,H,W) and (O,C,kh,kw). */
static struct thin thin_of(const struct kernel_problem *p, const struct shape *x,
                           const struct shape *w, bool pools)
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
    g.seen = g.kh * g.kw * g.c;
    g.line = (g.w + 2 * g.pad[1]) * g.c;
    const int least = pools ? 2 : 1;
    g.rows = g.ow * least < STRIP ? STRIP / g.ow / least * least : least;
    while (g.rows > least && (g.rows > g.oh || staged_bytes(&g, g.rows) > STAGED))
        g.rows -= least;
    g.strips = (g.oh + g.rows - 1) / g.rows;
    g.of_line = 1 / (float)g.line;
    g.of_row = 1 / (float)(pools ? g.ow / 2 : g.ow);
    return g;
}

static bool is_thin(const struct kernel_problem *p, const struct shape *x,
                    const struct shape *w)
{
    return p->in[0].dtype == DTYPE_BF16 && p->attrs.groups <= 1 && x->dim[1] <= 4 &&
           p->attrs.activation <= ACTIVATION_RELU && w->dim[2] * w->dim[3] * x->dim[1] < SEEN &&
           (w->dim[0] == 16 || w->dim[0] == 32 || w->dim[0] == 64) &&
           x->dim[2] * x->dim[3] * x->dim[1] < INT_MAX &&
           w->dim[2] * (x->dim[3] + 2 * p->attrs.pad[1]) * x->dim[1] * 2 <= STAGED;
}

/* One of a window's numbers: how far it is from the window's corner, in elements. */
struct number_of_window {
    int from;
    bool is_there, is_one; /* behind the last: 1, others 0 */
};

__device__ static struct number_of_window number_at(const struct thin &g, int k)
{
    const int tap = k / g.c;
    const bool is_there = k < g.seen;
    const struct number_of_window s = {
        is_there ? tap / g.kw * g.line + tap % g.kw * g.c + k % g.c : 0, is_there, k == g.seen
    };
    return s;
}

/* i / n for numbers of a strip, which are small, by 1 / n: a division of whole numbers takes as long as all else. */
__device__ __forceinline__ int share_of(int i, float inverse)
{
    return (int)(((float)i + 0.5F) * inverse);
}

/* A block's strip: where it lies in y, and how many pixels it has. */
struct strip {
    int n, row, pixels;
};

__device__ __forceinline__ struct strip strip_of(const struct thin &g, int number)
{
    const int n = number / g.strips, row = (number - n * g.strips) * g.rows;
    const int rows = row + g.rows < g.oh ? g.rows : g.oh - row;
    const struct strip s = { n, row, rows * g.ow };
    return s;
}

/* What the strip sees goes to shared memory; loads wait for no branch. */
__device__ static void stage(const struct thin &g, const struct strip &s, const bf16 *x,
                             uint16_t *staged)
{
    const int first = s.row * g.stride[0] - g.pad[0], width = g.w * g.c;
    const int count = ((g.rows - 1) * g.stride[0] + g.kh) * g.line;
    const uint16_t *image = (const uint16_t *)x + (int64_t)s.n * g.h * width;

#pragma unroll 4
    for (int i = threadIdx.x; i < count; i += WARPS * WARP) {
        const int r = share_of(i, g.of_line), row = first + r,
                  at = i - r * g.line - g.pad[1] * g.c;
        const bool inside = row >= 0 && row < g.h && at >= 0 && at < width;
        const uint16_t bits = image[inside ? row * width + at : 0];
        staged[i] = inside ? bits : (uint16_t)0;
    }
}

/* Where a pixel's window begins; of pixels past the end, that of the first. POOLS: pixels are counted window by window of the
 * pool. */
template <bool POOLS>
__device__ __forceinline__ const uint16_t *
corner_of(const struct thin &g, const struct strip &s, const uint16_t *staged, int pixel)
{
    const int of = POOLS ? pixel / 4 : pixel, width = POOLS ? g.ow / 2 : g.ow;
    const int r = share_of(of, g.of_row);
    const int row = POOLS ? 2 * r + pixel / 2 % 2 : r;
    const int column = POOLS ? 2 * (of - r * width) + pixel % 2 : of - r * width;

    return staged +
           (pixel < s.pixels ? row * g.stride[0] * g.line + column * g.stride[1] * g.c : 0);
}

__device__ __forceinline__ uint32_t seen_at(const uint16_t *corner,
                                            const struct number_of_window &s)
{
    const uint32_t bits = corner[s.from];

    return s.is_there ? bits : 0;
}

/* Which channel column n of a product's tile j is: a thread has eight that lie side by side, four threads 32 of these. */
template <int TILES> __device__ __forceinline__ int channel_of(int j, int n)
{
    enum { SIDE = TILES < 4 ? TILES : 4 };

    return j / SIDE * 8 * SIDE + n / 2 * 2 * SIDE + 2 * (j % SIDE) + n % 2;
}

/* A pixel, whose numbers are c[.][FIRST] and the next one. */
template <int TILES, int FIRST>
__device__ __forceinline__ void give_pixel(const float c[TILES][4], const float shift[TILES][2],
                                           bool relu, bool is_there, bf16 *y)
{
    __align__(16) uint32_t out[TILES];

#pragma unroll
    for (int j = 0; j < TILES; j++) {
        float pair[2];
#pragma unroll
        for (int e = 0; e < 2; e++) {
            pair[e] = c[j][FIRST + e] + shift[j][e];
            pair[e] = relu && pair[e] < 0 ? 0 : pair[e];
        }
        out[j] = pair_of(pair[0], pair[1]);
    }
    if (!is_there)
        return;
#pragma unroll
    for (int j = 0; j < TILES; j += TILES < 4 ? 2 : 4) {
        bf16 *to = y + channel_of<TILES>(j, threadIdx.x % 4 * 2);
        if (TILES < 4)
            *(uint2 *)to = *(const uint2 *)&out[j];
        else
            *(uint4 *)to = *(const uint4 *)&out[j];
    }
}

enum { CLOSED = 255 }; /* index of what relu kept back */

/* What a thread has of two rows, and its neighbour of the two beside them, is a window each of a pool: the largest, and the
 * first of these. A thread writes half of the channels of both. */
template <int TILES>
__device__ __forceinline__ void give_largest(const float c[TILES][4],
                                             const float shift[TILES][2], bool relu,
                                             bool is_there, bf16 *y, uint8_t *index)
{
    enum { HALF = TILES / 2, TO_NEIGHBOUR = 4 };
    const int odd = threadIdx.x / 4 % 2;
    float best[TILES][2];
    unsigned lower = 0; /* a bit a channel: the lower pixel is the larger one */

#pragma unroll
    for (int i = 0; i < 2 * TILES; i++) {
        const float up = c[i / 2][i % 2] + shift[i / 2][i % 2];
        const float down = c[i / 2][2 + i % 2] + shift[i / 2][i % 2];
        best[i / 2][i % 2] = down > up ? down : up;
        lower |= down > up ? 1U << i : 0;
    }
    const unsigned theirs = __shfl_xor_sync(~0U, lower, TO_NEIGHBOUR);
    __align__(8) uint8_t places[TILES];
    __align__(16) bf16 out[TILES];
#pragma unroll
    for (int i = 0; i < TILES; i++) {
        const float left = best[i / 2][i % 2], right = best[i / 2 + HALF][i % 2];
        const float mine = odd ? right : left;
        const float other = __shfl_xor_sync(~0U, odd ? left : right, TO_NEIGHBOUR);
        const int bit = i + odd * TILES;
        const int here = 2 * (int)(lower >> bit & 1) + odd;
        const int there = 2 * (int)(theirs >> bit & 1) + 1 - odd;
        const bool is_other = other > mine || (other == mine && there < here);
        const float largest = is_other ? other : mine;
        const bool is_closed = relu && largest <= 0;
        put(&out[i], is_closed ? 0 : largest);
        places[i] = (uint8_t)(is_closed ? CLOSED : is_other ? there : here);
    }
    if (!is_there)
        return;
    y += channel_of<TILES>(odd * HALF, threadIdx.x % 4 * 2);
    index += channel_of<TILES>(odd * HALF, threadIdx.x % 4 * 2);
    if (TILES == 8) {
        *(uint4 *)y = *(const uint4 *)out;
        *(uint2 *)index = *(const uint2 *)places;
    } else if (TILES == 4) {
        *(uint2 *)y = *(const uint2 *)out;
        *(uint32_t *)index = *(const uint32_t *)places;
    } else {
        *(uint32_t *)y = *(const uint32_t *)out;
        *(uint16_t *)index = *(const uint16_t *)places;
    }
}

/* index: of a pool, else NULL. */
template <int TILES, bool POOLS>
__global__ void __launch_bounds__(WARPS *WARP)
    forward(struct thin g, const bf16 *x, const bf16 *w, const float *bias, bool relu, bf16 *y,
            uint8_t *index)
{
    enum { O = 8 * TILES };
    extern __shared__ __align__(16) uint16_t staged[];
    const int lane = threadIdx.x % WARP, row = lane / 4, t = lane % 4;
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
    for (int number = (int)blockIdx.x; number < g.n * g.strips; number += (int)gridDim.x) {
        const struct strip s = strip_of(g, number);
        const int64_t first = ((int64_t)s.n * g.oh + s.row) * g.ow * O / (POOLS ? 4 : 1);

        __syncthreads();
        stage(g, s, x, staged);
        __syncthreads();
        for (int tile = threadIdx.x / WARP; tile * PIXELS < s.pixels; tile += WARPS) {
            const int pixel = tile * PIXELS + (POOLS ? row / 2 * 4 + row % 2 : row);
            const int below = pixel + (POOLS ? 2 : 8);
            const uint16_t *const at[2] = { corner_of<POOLS>(g, s, staged, pixel),
                                            corner_of<POOLS>(g, s, staged, below) };
            float c[TILES][4] = {};

#pragma unroll
            for (int step = 0; step < SEEN / 16; step++) {
                uint32_t a[4]; /* rows g and g + 8, then the same of the second eight of k */
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    const struct number_of_window *of = &numbers[step * 4 + i / 2 * 2];
                    a[i] = seen_at(at[i % 2], of[0]) | seen_at(at[i % 2], of[1]) << 16;
                }
#pragma unroll
                for (int j = 0; j < TILES; j++)
                    multiply(c[j], a, weights[j][2 * step], weights[j][2 * step + 1]);
            }
            if constexpr (POOLS) {
                const int64_t window = first + pixel / 4 * O;
                give_largest<TILES>(c, shift, relu, pixel < s.pixels, y + window,
                                    index + window);
            } else {
                bf16 *const to = y + first;
                give_pixel<TILES, 0>(c, shift, relu, pixel < s.pixels, to + pixel * O);
                give_pixel<TILES, 2>(c, shift, relu, below < s.pixels, to + below * O);
            }
        }
    }
}

/* A warp's next 16 pixels of dy, eight channels a load. */
template <int TILES, bool POOLS> struct flow {
    enum { EACH = PIXELS * TILES / WARP, O = 8 * TILES, ROW = O + 8 };
    uint4 in[EACH];

    __device__ void take(const bf16 *dy, const uint8_t *, int pixel, int pixels)
    {
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            const int at = i * WARP + threadIdx.x % WARP, from = pixel + at / TILES;
            in[i] = make_uint4(0, 0, 0, 0);
            if (from < pixels)
                in[i] = *(const uint4 *)(dy + from * O + at % TILES * 8);
        }
    }
    __device__ void keep(bf16 *to) const
    {
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            const int at = i * WARP + threadIdx.x % WARP;
            *(uint4 *)(to + at / TILES * ROW + at % TILES * 8) = in[i];
        }
    }
};

/* Four windows of a pool, each of whose numbers belongs to one of four pixels. */
template <int TILES> struct flow<TILES, true> {
    enum { O = 8 * TILES, ROW = O + 8 };
    uint4 in;
    uint2 places;

    __device__ void take(const bf16 *dy, const uint8_t *index, int pixel, int pixels)
    {
        const int lane = threadIdx.x % WARP, from = pixel / 4 + lane / TILES;

        in = make_uint4(0, 0, 0, 0);
        places = make_uint2(0, 0);
        if (lane < 4 * TILES && 4 * from < pixels) {
            in = *(const uint4 *)(dy + from * O + lane % TILES * 8);
            places = *(const uint2 *)(index + from * O + lane % TILES * 8);
        }
    }
    __device__ void keep(bf16 *to) const
    {
        const int lane = threadIdx.x % WARP;

        if (lane >= 4 * TILES)
            return;
#pragma unroll
        for (unsigned place = 0; place < 4; place++) {
            const unsigned low = __vcmpeq4(places.x, place * 0x01010101U);
            const unsigned high = __vcmpeq4(places.y, place * 0x01010101U);
            const uint4 out = { in.x & __byte_perm(low, 0, 0x1100),
                                in.y & __byte_perm(low, 0, 0x3322),
                                in.z & __byte_perm(high, 0, 0x1100),
                                in.w & __byte_perm(high, 0, 0x3322) };
            *(uint4 *)(to + (lane / TILES * 4 + place) * ROW + lane % TILES * 8) = out;
        }
    }
};

/* The weights' gradient: a product's rows are a window's numbers, its columns channels, along pixels. */
template <int TILES, bool POOLS>
__global__ void __launch_bounds__(WARPS *WARP, 2)
    weights(struct thin g, const bf16 *x, const bf16 *dy, const uint8_t *index, double *partial)
{
    enum { O = 8 * TILES, ROW = flow<TILES, POOLS>::ROW };
    extern __shared__ __align__(16) uint16_t staged[];
    __shared__ __align__(16) bf16 flows[WARPS][PIXELS * ROW];
    __shared__ float sums[SEEN][O];
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, row = lane / 4;
    const int t = lane % 4, matrix = lane / 8;
    bf16 *own = flows[warp];
    const bf16 *right = own + (matrix % 2 * 8 + lane % 8) * ROW + matrix / 2 * 8;
    struct number_of_window numbers[SEEN / 8];
    float c[SEEN / 16][TILES][4] = {};

#pragma unroll
    for (int i = 0; i < SEEN / 8; i++)
        numbers[i] = number_at(g, i * 8 + row);
    for (int number = (int)blockIdx.x; number < g.n * g.strips; number += (int)gridDim.x) {
        const struct strip s = strip_of(g, number);
        const int64_t first = ((int64_t)s.n * g.oh + s.row) * g.ow * O / (POOLS ? 4 : 1);
        flow<TILES, POOLS> next;

        next.take(dy + first, index + first, warp * PIXELS, s.pixels);
        __syncthreads();
        stage(g, s, x, staged);
        __syncthreads();
        for (int tile = warp; tile * PIXELS < s.pixels; tile += WARPS) {
            uint32_t a[SEEN / 16][4];

            __syncwarp();
            next.keep(own);
            next.take(dy + first, index + first, (tile + WARPS) * PIXELS, s.pixels);
#pragma unroll
            for (int i = 0; i < 2; i++) { /* pixels 2 t and 2 t + 1, then eight behind them */
                const int pixel = tile * PIXELS + i * 8 + 2 * t;
                const uint16_t *const at[2] = { corner_of<POOLS>(g, s, staged, pixel),
                                                corner_of<POOLS>(g, s, staged, pixel + 1) };
                const uint32_t mask = pixel >= s.pixels       ? 0
                                      : pixel + 1 >= s.pixels ? 0xffffU
                                                              : ~0U;
#pragma unroll
                for (int m = 0; m < SEEN / 8; m++) {
                    const uint32_t both =
                        numbers[m].is_one
                            ? 0x3f803f80U
                            : seen_at(at[0], numbers[m]) | seen_at(at[1], numbers[m]) << 16;
                    a[m / 2][2 * i + m % 2] = both & mask;
                }
            }
            __syncwarp();
#pragma unroll
            for (int j = 0; j < TILES; j += 2) {
                uint32_t b[4];
                load_four_across(b, right + j * 8);
#pragma unroll
                for (int m = 0; m < SEEN / 16; m++) {
                    multiply(c[m][j], a[m], b[0], b[1]);
                    multiply(c[m][j + 1], a[m], b[2], b[3]);
                }
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

/* Blocks of the gradient, which follow from the extents alone. */
static int64_t parts_of(const struct thin *g)
{
    const int64_t strips = (int64_t)g->n * g->strips;

    return strips < PARTS_MAX ? strips : PARTS_MAX;
}

template <int TILES, bool POOLS> static void launch_forward(const struct kernel_call *call)
{
    const struct kernel_problem *p = call->problem;
    const struct thin g = thin_of(p, &p->in[0].shape, &p->in[1].shape, POOLS);
    const unsigned blocks = g.n * g.strips < BLOCKS ? (unsigned)(g.n * g.strips) : BLOCKS;

    forward<TILES, POOLS><<<blocks, WARPS * WARP, staged_bytes(&g, g.rows), stream_of(call)>>>(
        g, (const bf16 *)call->in[0], (const bf16 *)call->in[1],
        p->n_in > 2 ? (const float *)call->in[2] : NULL, p->attrs.activation == ACTIVATION_RELU,
        (bf16 *)call->out[0], POOLS ? (uint8_t *)call->out[1] : NULL);
    stream_check(call->stream, p->op);
}

template <int C> static void launch_transpose(const struct kernel_call *call)
{
    const struct kernel_problem *p = call->problem;
    const struct thin g = thin_of(p, &p->out[0].shape, &p->in[1].shape, false);

    transpose<C><<<blocks_of((int64_t)g.n * g.h * g.w, THREADS), THREADS,
                   (size_t)(g.seen * g.o) * sizeof(float), stream_of(call)>>>(
        g, (const bf16 *)call->in[0], (const bf16 *)call->in[1],
        p->n_in > 2 ? (const float *)call->in[2] : NULL, p->attrs.activation == ACTIVATION_RELU,
        (bf16 *)call->out[0]);
    stream_check(call->stream, "conv2d_transpose");
}

/* image: the input that is the convolution's x, a transposed one's dy, whose bias goes along that. */
template <int TILES, bool POOLS>
static void launch_weights(const struct kernel_call *call, int image)
{
    const struct kernel_problem *p = call->problem;
    const struct thin g = thin_of(p, &p->in[image].shape, &p->out[0].shape, POOLS);
    const int64_t parts = parts_of(&g), columns = (int64_t)SEEN * g.o;
    float *db = p->n_out > 1 ? (float *)call->out[1] : NULL;
    const struct give_weights give = { (float *)call->out[0], image == 0 ? db : NULL,
                                       (int64_t)g.seen * g.o, g.o };

    weights<TILES, POOLS>
        <<<(unsigned)parts, WARPS * WARP, staged_bytes(&g, g.rows), stream_of(call)>>>(
            g, (const bf16 *)call->in[image], (const bf16 *)call->in[1 - image],
            POOLS ? (const uint8_t *)call->in[2] : NULL, (double *)call->scratch);
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

template <bool POOLS> static void forward_of(const struct kernel_call *call)
{
    const int64_t channels = call->problem->in[1].shape.dim[0];

    if (channels == 16)
        launch_forward<2, POOLS>(call);
    else if (channels == 32)
        launch_forward<4, POOLS>(call);
    else
        launch_forward<8, POOLS>(call);
}

static void run_forward(const struct kernel_call *call)
{
    forward_of<false>(call);
}

static bool weights_can_run(const struct kernel_problem *p)
{
    return is_thin(p, &p->in[0].shape, &p->out[0].shape);
}

static size_t weights_scratch(const struct kernel_problem *p)
{
    const struct thin g = thin_of(p, &p->in[0].shape, &p->out[0].shape, false);

    return (size_t)(parts_of(&g) * SEEN * g.o) * sizeof(double);
}

template <bool POOLS> static void weights_from(const struct kernel_call *call, int image)
{
    const int64_t channels = call->problem->out[0].shape.dim[0];

    if (channels == 16)
        launch_weights<2, POOLS>(call, image);
    else if (channels == 32)
        launch_weights<4, POOLS>(call, image);
    else
        launch_weights<8, POOLS>(call, image);
}

static void run_weights(const struct kernel_call *call)
{
    weights_from<false>(call, 0);
}

/* With a pool of 2 x 2 without a rest. */
static bool is_thin_pool(const struct kernel_problem *p, const struct shape *x,
                         const struct shape *w)
{
    if (!is_thin(p, x, w) || p->attrs.window[0] != 2 || p->attrs.window[1] != 2)
        return false;
    const struct thin g = thin_of(p, x, w, true);

    return g.oh % 2 == 0 && g.ow % 2 == 0 && staged_bytes(&g, g.rows) <= STAGED;
}

static bool pool_can_run(const struct kernel_problem *p)
{
    return is_thin_pool(p, &p->in[0].shape, &p->in[1].shape);
}

static void run_pool(const struct kernel_call *call)
{
    forward_of<true>(call);
}

static bool pool_weights_can_run(const struct kernel_problem *p)
{
    return is_thin_pool(p, &p->in[0].shape, &p->out[0].shape);
}

static size_t pool_weights_scratch(const struct kernel_problem *p)
{
    const struct thin g = thin_of(p, &p->in[0].shape, &p->out[0].shape, true);

    return (size_t)(parts_of(&g) * SEEN * g.o) * sizeof(double);
}

static void run_pool_weights(const struct kernel_call *call)
{
    weights_from<true>(call, 0);
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
    const struct thin g = thin_of(p, &p->in[1].shape, &p->out[0].shape, false);

    return (size_t)(parts_of(&g) * SEEN * g.o) * sizeof(double) +
           column_sums_scratch((int64_t)g.n * g.h * g.w, g.c);
}

static void run_transpose_weights(const struct kernel_call *call)
{
    weights_from<false>(call, 1);
}

extern "C" const struct kernel cuda_thin_rows[] = {
    { "conv2d", "thin", forward_can_run, NULL, NULL, NULL, run_forward },
    { "conv2d_grad_weight", "thin", weights_can_run, weights_scratch, NULL, NULL, run_weights },
    { "conv2d_pool", "thin", pool_can_run, NULL, NULL, NULL, run_pool },
    { "conv2d_pool_grad_weight", "thin", pool_weights_can_run, pool_weights_scratch, NULL, NULL,
      run_pool_weights },
    { "conv2d_transpose", "thin", transpose_can_run, NULL, NULL, NULL, run_transpose },
    { "conv2d_transpose_grad_input", "thin", forward_can_run, NULL, NULL, NULL, run_forward },
    { "conv2d_transpose_grad_weight", "thin", transpose_weights_can_run,
      transpose_weights_scratch, NULL, NULL, run_transpose_weights },
    { NULL, NULL, NULL, NULL, NULL, NULL, NULL },
};
