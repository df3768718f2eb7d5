/* SPDX-License-Identifier: MIT */
/* narrow.cu - gradients of the weights of convolutions with few channels, in bf16 by tensor cores.
 *
 * dw (taps and channels of x, channels of y) is so small that a block has all of it in registers, and pixels of y are what
 * is shared among blocks: each takes some images at a time into shared memory, the next ones on their way, and a
 * product's step of 16 pixels finds what a tap sees by the address of its rows; outside of the image that is a row of
 * zeros. A tile of ones behind the last tap sums up the bias's gradient. Blocks' sums are added in order.
 */
#include "kernel/cuda/column_sums.h"
#include "kernel/cuda/mma.cuh"

enum {
    WARPS_DOWN =
        4, /* warps share the taps and channels of x in turn, the channels of y in two halves */
    WARPS_ALONG = 2,
    ALL = WARPS_DOWN * WARPS_ALONG * WARP,
    STEP = 16,
    GAP = 8,       /* elements between rows, so that eight of them lie in different banks */
    PIXELS = 200,  /* of y that a block takes at once, if images are small */
    PARTS = 128,   /* blocks at most: partial sums are all of dw each */
    SUM_DEPTH = 8, /* threads that share an element's partial sums */
    ROW_BITS = 12
};

struct narrow {
    int n, c, h, w, o, kw, oh, ow;
    int stride[2], pad[2];
    int group; /* images that a block takes at once */
    int tiles; /* of 16 rows of dw */
};

static int64_t at_most(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Shapes of the convolution that goes from image to flow. */
static struct narrow narrow_of(const struct kernel_problem *p, const struct shape *image,
                               const struct shape *flow, const struct shape *w)
{
    const int64_t pixels = flow->dim[2] * flow->dim[3];
    struct narrow g = {};

    g.n = (int)image->dim[0];
    g.c = (int)image->dim[1];
    g.h = (int)image->dim[2];
    g.w = (int)image->dim[3];
    g.o = (int)flow->dim[1];
    g.kw = (int)w->dim[3];
    g.oh = (int)flow->dim[2];
    g.ow = (int)flow->dim[3];
    for (int i = 0; i < 2; i++) {
        g.stride[i] = p->attrs.stride[i];
        g.pad[i] = p->attrs.pad[i];
    }
    g.group = pixels >= PIXELS ? 1 : (int)at_most(PIXELS / pixels, 64);
    while (g.group > 1 &&
           (int64_t)g.group * g.h * g.w > 1 << 17) /* there is no room for more */
        g.group /= 2;
    g.tiles = (int)(w->dim[2] * w->dim[3]) * g.c / 16;
    return g;
}

__host__ __device__ static int zeros_of(const struct narrow &g)
{
    return (g.c > g.o ? g.c : g.o) + GAP;
}

/* Elements that images and what flows back of a group take. */
__host__ __device__ static int stage_of(const struct narrow &g)
{
    return g.group * (g.h * g.w * (g.c + GAP) + g.oh * g.ow * (g.o + GAP));
}

static size_t shared_of(const struct narrow &g)
{
    return (size_t)(zeros_of(g) + 2 * stage_of(g)) * sizeof(bf16) +
           (size_t)(g.group * g.oh * g.ow) * sizeof(uint32_t);
}

static int64_t parts_of(const struct narrow &g)
{
    return at_most(((int64_t)g.n + g.group - 1) / g.group, PARTS);
}

/* Rows of `channels`, which is a multiple of 8, from memory to rows that are further apart. */
__device__ static void take_rows(bf16 *to, const bf16 *from, int rows, int channels)
{
    const int packs = channels / 8;

    for (int i = threadIdx.x; i < rows * packs; i += ALL)
        copy_later(to + i / packs * (channels + GAP) + i % packs * 8, from + (int64_t)i * 8);
}

/* Images of a group that there are. */
__device__ static int images_of(const struct narrow &g, int round)
{
    const int left = g.n - round * g.group;

    return left < g.group ? left : g.group;
}

__device__ static void take_group(const struct narrow &g, int round, bf16 *stage,
                                  const bf16 *image, const bf16 *flow)
{
    const int64_t first = (int64_t)round * g.group;
    const int count = images_of(g, round), seen = g.h * g.w, pixels = g.oh * g.ow;

    take_rows(stage, image + first * seen * g.c, count * seen, g.c);
    take_rows(stage + g.group * seen * (g.c + GAP), flow + first * pixels * g.o, count * pixels,
              g.o);
}

/* Where a pixel's window begins, without padding: image, row and column. */
__device__ static uint32_t corner_of(const struct narrow &g, int pixel)
{
    const int line = pixel / g.ow, image = line / g.oh;

    return (uint32_t)image << (2 * ROW_BITS) |
           (uint32_t)((line - image * g.oh) * g.stride[0]) << ROW_BITS |
           (uint32_t)((pixel - line * g.ow) * g.stride[1]);
}

/* What a tile of a warp sees: which tap, and which channels. */
struct tap {
    int row, column, channel;
};

/* DOWN tiles of 16 rows a warp, ALONG tiles of 8 channels of y. */
template <int DOWN, int ALONG>
__global__ void __launch_bounds__(ALL)
    weights(struct narrow g, const bf16 *image, const bf16 *flow, float *partial)
{
    extern __shared__ __align__(16) bf16 shared[];
    const int lane = threadIdx.x % WARP, matrix = lane / 8, warp = threadIdx.x / WARP;
    const int down = warp % WARPS_DOWN, first_o = warp / WARPS_DOWN * ALONG * 8;
    const int rounds = (g.n + g.group - 1) / g.group, pixels = g.oh * g.ow;
    constexpr int mask = (1 << ROW_BITS) - 1;
    bf16 *zeros = shared, *stages = shared + zeros_of(g);
    uint32_t *corners = (uint32_t *)(stages + 2 * stage_of(g));
    struct tap taps[DOWN];
    float c[DOWN][ALONG][4] = {};

    for (int i = threadIdx.x; i < zeros_of(g); i += ALL)
        put(&zeros[i], 0);
    for (int i = threadIdx.x; i < g.group * pixels; i += ALL)
        corners[i] = corner_of(g, i);
#pragma unroll
    for (int i = 0; i < DOWN; i++) {
        const int row = (down + i * WARPS_DOWN) * 16, number = row / g.c;
        taps[i] = { number / g.kw - g.pad[0], number % g.kw - g.pad[1],
                    row - number * g.c + matrix % 2 * 8 };
    }
    take_group(g, blockIdx.x, stages, image, flow);
    copies_end();
    int turn = 0;
    for (int round = blockIdx.x; round < rounds; round += gridDim.x, turn ^= 1) {
        const bf16 *seen = stages + turn * stage_of(g);
        const bf16 *flows = seen + g.group * g.h * g.w * (g.c + GAP);
        const int count = images_of(g, round) * pixels;

        if (round + (int)gridDim.x < rounds)
            take_group(g, round + (int)gridDim.x, stages + (turn ^ 1) * stage_of(g), image,
                       flow);
        copies_end();
        await_copies<1>();
        __syncthreads();
        for (int step = 0; step < count; step += STEP) {
            const int left = step + matrix / 2 * 8 + lane % 8;
            const int right = step + matrix % 2 * 8 + lane % 8;
            const bf16 *flow_row = right < count ? flows + right * (g.o + GAP) : zeros;
            const uint32_t corner = corners[left < count ? left : 0];
            const int row = (int)(corner >> ROW_BITS) & mask, column = (int)corner & mask;
            const int base = (int)(corner >> (2 * ROW_BITS)) * g.h;
            uint32_t b[ALONG / 2][4];

#pragma unroll
            for (int j = 0; j < ALONG / 2; j++)
                load_four_across(b[j], flow_row + first_o + j * 16 + matrix / 2 * 8);
#pragma unroll
            for (int i = 0; i < DOWN; i++) {
                const int tile = down + i * WARPS_DOWN;
                uint32_t a[4] = { 0x3f803f80U, 0x3f803f80U, 0x3f803f80U, 0x3f803f80U };
                if (tile > g.tiles)
                    break;
                if (tile < g.tiles) {
                    const int y = row + taps[i].row, x = column + taps[i].column;
                    const bool inside = left < count && y >= 0 && y < g.h && x >= 0 && x < g.w;
                    load_four_across(a, inside ? seen + ((base + y) * g.w + x) * (g.c + GAP) +
                                                     taps[i].channel
                                               : zeros);
                }
#pragma unroll
                for (int j = 0; j < ALONG; j++)
                    multiply(c[i][j], a, b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
            }
        }
        __syncthreads();
    }
    partial += (int64_t)blockIdx.x * (g.tiles + 1) * 16 * g.o;
#pragma unroll
    for (int i = 0; i < DOWN; i++) {
        const int tile = down + i * WARPS_DOWN;
        if (tile > g.tiles)
            break;
#pragma unroll
        for (int j = 0; j < ALONG; j++) {
#pragma unroll
            for (int half = 0; half < 2; half++)
                *(float2 *)(partial + (tile * 16 + lane / 4 + half * 8) * g.o + first_o +
                            j * 8 + lane % 4 * 2) =
                    make_float2(c[i][j][2 * half], c[i][j][2 * half + 1]);
        }
    }
}

/* Adds blocks' sums: the first of them to each thread in turn, then threads' in order. */
__global__ void __launch_bounds__(WARP *SUM_DEPTH)
    add_blocks(const float *partial, int64_t stride, int64_t parts, int64_t weights, int64_t o,
               bool inward, float *dw, float *db)
{
    __shared__ double sums[SUM_DEPTH][WARP];
    const int64_t i = (int64_t)blockIdx.x * WARP + threadIdx.x;
    const int64_t count = weights + (db != NULL ? o : 0);
    double sum = 0;

    if (i < count) {
#pragma unroll 8
        for (int64_t part = threadIdx.y; part < parts; part += SUM_DEPTH)
            sum += (double)partial[part * stride + i];
    }
    sums[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y != 0 || i >= count)
        return;
    for (int y = 1; y < SUM_DEPTH; y++)
        sum += sums[y][threadIdx.x];
    if (i < weights)
        dw[inward ? i % o * (weights / o) + i / o : i] = (float)sum;
    else
        db[i - weights] = (float)sum;
}

/* A transposed convolution goes from dy to x. */
static bool is_transposed(const struct kernel_problem *p)
{
    return p->op[6] == '_' && p->op[7] == 't';
}

static struct narrow problem_of(const struct kernel_problem *p)
{
    const int image = is_transposed(p) ? 1 : 0;

    return narrow_of(p, &p->in[image].shape, &p->in[1 - image].shape, &p->out[0].shape);
}

static bool can_run(const struct kernel_problem *p)
{
    const int64_t *w = p->out[0].shape.dim;
    const struct shape *image = &p->in[is_transposed(p) ? 1 : 0].shape;

    if (p->in[0].dtype != DTYPE_BF16 || p->in[1].dtype != DTYPE_BF16 || p->attrs.groups > 1 ||
        w[1] % 16 != 0 || (w[0] != 32 && w[0] != 64) || w[2] * w[3] < 2 ||
        w[2] * w[3] * w[1] / 16 >= (w[0] == 32 ? 3 : 5) * WARPS_DOWN ||
        image->dim[2] >= 1 << (ROW_BITS - 2) || image->dim[3] >= 1 << (ROW_BITS - 2) ||
        p->attrs.pad[0] >= 1 << (ROW_BITS - 2) || p->attrs.pad[1] >= 1 << (ROW_BITS - 2))
        return false;
    return shared_of(problem_of(p)) <= cuda_shared_bytes;
}

static size_t sums_bytes(const struct narrow &g)
{
    return (size_t)(parts_of(g) * (g.tiles + 1) * 16 * g.o) * sizeof(float);
}

static size_t scratch_bytes(const struct kernel_problem *p)
{
    const struct narrow g = problem_of(p);
    const size_t bias = is_transposed(p) && p->n_out > 1
                            ? column_sums_scratch((int64_t)g.n * g.h * g.w, g.c)
                            : 0;

    return sums_bytes(g) + bias;
}

template <int DOWN, int ALONG>
static void launch(const struct kernel_call *call, const struct narrow &g)
{
    const int image = is_transposed(call->problem) ? 1 : 0;
    const size_t shared = shared_of(g);

    if (cudaFuncSetAttribute((const void *)weights<DOWN, ALONG>,
                             cudaFuncAttributeMaxDynamicSharedMemorySize,
                             (int)shared) != cudaSuccess)
        stream_check(call->stream, "conv2d_grad_weight");
    weights<DOWN, ALONG><<<(unsigned)parts_of(g), ALL, shared, stream_of(call)>>>(
        g, (const bf16 *)call->in[image], (const bf16 *)call->in[1 - image],
        (float *)call->scratch);
}

static void run(const struct kernel_call *call)
{
    const struct kernel_problem *p = call->problem;
    const struct narrow g = problem_of(p);
    const int64_t count = (int64_t)g.tiles * 16 * g.o;
    float *db = p->n_out > 1 ? (float *)call->out[1] : NULL;

    if (g.o == 32)
        launch<3, 2>(call, g);
    else
        launch<5, 4>(call, g);
    add_blocks<<<blocks_of(count + g.o, WARP), dim3(WARP, SUM_DEPTH), 0, stream_of(call)>>>(
        (const float *)call->scratch, count + (int64_t)16 * g.o, parts_of(g), count, g.o,
        p->out[0].layout == LAYOUT_OHWI, (float *)call->out[0], is_transposed(p) ? NULL : db);
    if (is_transposed(p) && db)
        column_sums(call->stream, call->in[1], DTYPE_BF16, (int64_t)g.n * g.h * g.w, g.c, db,
                    (char *)call->scratch + sums_bytes(g));
    stream_check(call->stream, "conv2d_grad_weight");
}

extern "C" const struct kernel cuda_narrow_rows[] = {
    { "conv2d_grad_weight", "narrow", can_run, scratch_bytes, NULL, NULL, run },
    { "conv2d_transpose_grad_weight", "narrow", can_run, scratch_bytes, NULL, NULL, run },
    { NULL, NULL, NULL, NULL, NULL, NULL, NULL },
};
