/* SPDX-License-Identifier: MIT */
/* conv_hopper.cu - convolutions of 64 channels of 32x32 by windows of 3x3, stride 1 and padding 1, in bf16 with f32 sums, on Hopper:
 * forward, also with what a batch norm wants to know of it, and gradients of input and filters.
 *
 * A tile is eight columns of an image, 256 pixels. It comes into shared memory once, by the copy engine, with a pixel more on each side:
 * zeros where the image ends. Pixels are rows of 128 bytes, eight of them one behind the other are what wgmma takes for a core matrix, and as
 * swizzling goes by addresses, these may begin at any pixel: so all nine taps read the same tile, each from its own place.
 *
 * Forward, y' = w x': rows of the product are 64 output channels, columns the 256 pixels, and all nine taps are summed without
 * leaving registers. Filters stay in shared memory. Two warpgroups have a tile each and take turns with the tensor cores, one multiplies while the other rounds,
 * transposes in the place of its tile and has it stored. A channel's sums over pixels are then sums over a thread's own registers. Input's
 * gradient is the same with the taps in the opposite order and filters across. Filters' gradient, dw = dy' x: three warpgroups have a row of three taps each, which
 * are 192 columns of one product, and keep their sums for all tiles of the block; blocks are added up by another launch.
 *
 * Blocks are as many as an H200 has multiprocessors, on whatever runs it: sums over blocks have one order.
 */
#include "kernel/cuda/batch_norm.h"
#include "kernel/cuda/boxes.h"
#include "kernel/cuda/hopper.cuh"

#include <string.h>

enum { CHANNELS = 64, SIDE = 32, TAPS = 9, WINDOW = 3 };
enum { TILES = SIDE / TILE_WIDTH, WIDTH = TILE_WIDTH + 2, HEIGHT = SIDE + 2 };
enum { PIXEL = CHANNELS * 2, ATOM = 8 * PIXEL }; /* bytes; swizzling repeats by ATOM */
enum {
    TILE_BYTES = WIDTH * HEIGHT * PIXEL,
    TILE_ROOM = (TILE_BYTES + ATOM - 1) / ATOM * ATOM,
    OUT_BYTES = TILE_WIDTH * SIDE * PIXEL,
    TAP_BYTES = CHANNELS * PIXEL,
    FILTER_COUNT = TAPS * CHANNELS * CHANNELS
};
enum { GROUP = 4 * WARP, BLOCKS = 132, SLOTS = 3, K = 16, STEPS = CHANNELS / K };

/* Where the n-th tile of a block is. */
struct tile {
    int number, image, column;
};

__device__ static struct tile tile_of(int n)
{
    const int number = (int)blockIdx.x + n * (int)gridDim.x;
    const struct tile tile = { number, number / TILES, number % TILES * TILE_WIDTH };

    return tile;
}

__device__ static int tiles_of_block(int tiles)
{
    return (tiles - (int)blockIdx.x + (int)gridDim.x - 1) / (int)gridDim.x;
}

/* Tiles of shared memory in turn: the n-th is full, or free again. */
struct ring {
    uint64_t full[SLOTS], empty[SLOTS];
};

__device__ static void ring_make(struct ring *ring, int readers)
{
    for (int i = 0; i < SLOTS; i++) {
        barrier_make(&ring->full[i], 1);
        barrier_make(&ring->empty[i], readers);
    }
}

__device__ static void ring_await_full(struct ring *ring, int n)
{
    barrier_wait(&ring->full[n % SLOTS], n / SLOTS % 2);
}

__device__ static void ring_await_empty(struct ring *ring, int n)
{
    if (n >= SLOTS)
        barrier_wait(&ring->empty[n % SLOTS], (n / SLOTS - 1) % 2);
}

__device__ static char *align_up(char *at)
{
    return at + (ATOM - shared_address(at) % ATOM) % ATOM;
}

/* Forward and input's gradient --------------------------------------------------------------- */

struct maps {
    CUtensorMap x, w, y;
};

/* What a block has in shared memory, from an address that ATOM divides. */
struct room {
    char filters[TAPS * TAP_BYTES];
    char tiles[SLOTS][TILE_ROOM];
    struct ring ring;
    uint64_t filters_there;
};

enum { PAIR = 2, THREADS_OF_PAIR = PAIR * GROUP + WARP };
enum { TURN = 1, INSIDE = TURN + PAIR }; /* names of barriers, each for PAIR */

/* inward: filters are (O,kh,kw,C), else (kh,kw,C,O). */
__device__ static void fetch(const struct maps &maps, struct room *room, int count, bool inward)
{
    for (int n = 0; n < count; n++) {
        const struct tile tile = tile_of(n);
        uint64_t *full = &room->ring.full[n % SLOTS];

        ring_await_empty(&room->ring, n);
        barrier_expect(full, TILE_BYTES);
        box_load(room->tiles[n % SLOTS], &maps.x, full, 0, tile.column - 1, -1, tile.image);
        if (n > 0)
            continue;
        barrier_expect(&room->filters_there, sizeof room->filters);
        for (int tap = 0; tap < TAPS; tap++)
            box_load(room->filters + tap * TAP_BYTES, &maps.w, &room->filters_there,
                     inward ? tap * CHANNELS : 0, inward ? 0 : tap * CHANNELS);
    }
}

/* Of 64 channels, as rows, and 256 pixels. BACK: taps in the opposite order. */
template <bool BACK, int ACROSS>
__device__ static void multiply(float (&sums)[128], const char *filters, const char *pixels)
{
    products_begin();
#pragma unroll
    for (int tap = 0; tap < TAPS; tap++) {
        const char *a = filters + (BACK ? TAPS - 1 - tap : tap) * TAP_BYTES;
        const char *b = pixels + (tap / WINDOW * WIDTH + tap % WINDOW) * PIXEL;
#pragma unroll
        for (int k = 0; k < STEPS; k++)
            wide<256>::multiply<ACROSS, 0>(
                sums, matrix_at(a + k * K * (ACROSS ? PIXEL : 2), 0, ATOM, ROWS_OF_128),
                matrix_at(b + k * K * 2, 0, WIDTH * PIXEL, ROWS_OF_128), tap + k > 0);
    }
    products_end();
}

/* A sum over pixels of what is stored, and of its squares. */
struct moment {
    float sum, squares;
    __device__ void add(float x)
    {
        sum += x;
        squares = fmaf(x, x, squares);
    }
};

/* Rounds a warp's 16 channels of all pixels and puts them pixel by pixel where a box of 64 channels is stored from; of[0] and
 * of[1] are of the thread's channels, row by row, as batch_norm.h has it. */
template <bool SUMS>
__device__ static void round_across(const float (&sums)[128], char *to, struct moment of[2])
{
    const int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP % 4;
    const int chunk = warp * 2 + lane / 8 % 2, pixel = lane % 8;
    const uint32_t at =
        shared_address(to) + lane / 16 * ATOM + pixel * PIXEL + (chunk ^ pixel) * 16;

#pragma unroll
    for (int row = 0; row < SIDE; row += 2) {
        uint32_t pairs[4];
#pragma unroll
        for (int m = 0; m < 4; m++) {
            const float *two = &sums[(row + m / 2) * 4 + m % 2 * 2];
            asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pairs[m]) : "f"(two[1]), "f"(two[0]));
            if (SUMS) {
                of[m % 2].add(__uint_as_float(pairs[m] << 16));
                of[m % 2].add(__uint_as_float(pairs[m] & 0xffff0000U));
            }
        }
        asm volatile(
            "stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                at + row * ATOM),
            "r"(pairs[0]), "r"(pairs[1]), "r"(pairs[2]), "r"(pairs[3])
            : "memory");
    }
}

/* A tile's sums of channels, then of squares, go to 2 * CHANNELS numbers. */
__device__ static void give_moments(struct moment of[2], float *to)
{
    const int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP % 4;

#pragma unroll
    for (int m = 0; m < 2; m++) {
#pragma unroll
        for (int apart = 1; apart < 4; apart *= 2) {
            of[m].sum += __shfl_xor_sync(~0U, of[m].sum, apart);
            of[m].squares += __shfl_xor_sync(~0U, of[m].squares, apart);
        }
        if (lane % 4 == 0) {
            to[warp * 16 + m * 8 + lane / 4] = of[m].sum;
            to[CHANNELS + warp * 16 + m * 8 + lane / 4] = of[m].squares;
        }
    }
}

/* moments: (tile, 2, CHANNELS), with SUMS. */
template <bool BACK, int ACROSS, bool SUMS>
__global__ void __launch_bounds__(THREADS_OF_PAIR, 1)
    convolve(const __grid_constant__ struct maps maps, int tiles, bool inward, float *moments)
{
    extern __shared__ char raw[];
    struct room *room = (struct room *)align_up(raw);
    const int count = tiles_of_block(tiles), own = (int)threadIdx.x / GROUP;
    const bool is_first = threadIdx.x % GROUP == 0;

    if (threadIdx.x == 0) {
        ring_make(&room->ring, 1);
        barrier_make(&room->filters_there, 1);
        barriers_made();
    }
    __syncthreads();
    if (own == PAIR) {
        if (is_first)
            fetch(maps, room, count, inward);
        return;
    }
    if (own == 1)
        meet_passing(TURN, PAIR * GROUP); /* the other begins */
    barrier_wait(&room->filters_there, 0);
    for (int n = own; n < count; n += PAIR) {
        const struct tile tile = tile_of(n);
        char *pixels = room->tiles[n % SLOTS];
        struct moment of[2] = {};
        float sums[128];

        ring_await_full(&room->ring, n);
        meet(TURN + own, PAIR * GROUP);
        multiply<BACK, ACROSS>(sums, room->filters, pixels);
        if (n + 1 < count)
            meet_passing(TURN + 1 - own, PAIR * GROUP);
        products_wait<0>();
        meet(INSIDE + own, GROUP); /* all four warps have read the tile */
        round_across<SUMS>(sums, pixels, of);
        stores_to_engines();
        meet(INSIDE + own, GROUP);
        if (is_first) {
            box_store(&maps.y, pixels, 0, tile.column, 0, tile.image);
            boxes_end();
        }
        if (SUMS)
            give_moments(of, moments + (int64_t)tile.number * 2 * CHANNELS);
        if (is_first) {
            boxes_read<0>();
            barrier_arrive(&room->ring.empty[n % SLOTS]);
        }
    }
    if (is_first)
        boxes_stored();
}

/* Filters' gradient -------------------------------------------------------------------------- */

struct weight_room {
    struct {
        char x[TILE_ROOM], dy[OUT_BYTES];
    } tiles[SLOTS];
    struct ring ring;
};

enum { THREADS_OF_ROWS = WINDOW * GROUP + WARP, ROW_COLUMNS = WINDOW * CHANNELS };

/* Sums over a block's tiles, (O,kh,kw,C), block after block. */
__global__ void __launch_bounds__(THREADS_OF_ROWS, 1)
    sum_filters(const __grid_constant__ struct maps maps, int tiles, float *partial)
{
    extern __shared__ char raw[];
    struct weight_room *room = (struct weight_room *)align_up(raw);
    const int count = tiles_of_block(tiles), row = (int)threadIdx.x / GROUP;
    const int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP % 4;
    float sums[96];

    if (threadIdx.x == 0) {
        ring_make(&room->ring, WINDOW);
        barriers_made();
    }
    __syncthreads();
    if (row == WINDOW) {
        for (int n = 0; lane == 0 && n < count; n++) {
            const struct tile tile = tile_of(n);
            uint64_t *full = &room->ring.full[n % SLOTS];

            ring_await_empty(&room->ring, n);
            barrier_expect(full, TILE_BYTES + OUT_BYTES);
            box_load(room->tiles[n % SLOTS].x, &maps.x, full, 0, tile.column - 1, -1,
                     tile.image);
            box_load(room->tiles[n % SLOTS].dy, &maps.y, full, 0, tile.column, 0, tile.image);
        }
        return;
    }
#pragma unroll
    for (int i = 0; i < 96; i++)
        sums[i] = 0;
    for (int n = 0; n < count; n++) {
        const char *x = room->tiles[n % SLOTS].x + row * WIDTH * PIXEL;
        const char *dy = room->tiles[n % SLOTS].dy;

        ring_await_full(&room->ring, n);
        products_begin();
#pragma unroll
        for (int k = 0; k < SIDE * TILE_WIDTH / K; k++) /* two rows of eight pixels each */
            wide<192>::multiply<1, 1>(
                sums, matrix_at(dy + k * K * PIXEL, 0, ATOM, ROWS_OF_128),
                matrix_at(x + 2 * k * WIDTH * PIXEL, PIXEL, WIDTH * PIXEL, ROWS_OF_128), 1);
        products_end();
        products_wait<0>();
        if (threadIdx.x % GROUP == 0)
            barrier_arrive(&room->ring.empty[n % SLOTS]);
    }
    float *to = partial + (int64_t)blockIdx.x * FILTER_COUNT +
                (warp * 16 + lane / 4) * TAPS * CHANNELS + row * ROW_COLUMNS + lane % 4 * 2;
#pragma unroll
    for (int j = 0; j < ROW_COLUMNS / 8; j++) {
        *(float2 *)(to + j * 8) = make_float2(sums[4 * j], sums[4 * j + 1]);
        *(float2 *)(to + 8 * TAPS * CHANNELS + j * 8) =
            make_float2(sums[4 * j + 2], sums[4 * j + 3]);
    }
}

/* Parts of the blocks that threads of a block add, the parts one after the other. */
enum { PARTS = 4, COLUMNS = THREADS / PARTS };

__global__ void __launch_bounds__(THREADS)
    add_filters(const float *partial, int blocks, bool inward, float *dw)
{
    __shared__ float all[PARTS][COLUMNS];
    const int column = (int)threadIdx.x % COLUMNS, part = (int)threadIdx.x / COLUMNS;
    const int i = (int)blockIdx.x * COLUMNS + column, o = i / (TAPS * CHANNELS);
    float sum = 0;

#pragma unroll 11
    for (int b = blocks * part / PARTS; b < blocks * (part + 1) / PARTS; b++)
        sum += partial[(int64_t)b * FILTER_COUNT + i];
    all[part][column] = sum;
    __syncthreads();
    for (int p = 1; part == 0 && p < PARTS; p++)
        sum += all[p][column];
    if (part == 0)
        dw[inward ? i : i % (TAPS * CHANNELS) * CHANNELS + o] = sum;
}

/* The ops ------------------------------------------------------------------------------------ */

static bool is_image(const struct kernel_tensor *t)
{
    const int64_t *dim = t->shape.dim;

    return t->dtype == DTYPE_BF16 && dim[0] < INT32_MAX / TILES && dim[1] == CHANNELS &&
           dim[2] == SIDE && dim[3] == SIDE;
}

static bool is_filter(const struct kernel_tensor *t, enum dtype dtype)
{
    const int64_t *dim = t->shape.dim;

    return t->dtype == dtype && dim[0] == CHANNELS && dim[1] == CHANNELS && dim[2] == WINDOW &&
           dim[3] == WINDOW;
}

/* Filters are (O,kh,kw,C) in memory. */
static bool is_inward(const struct kernel_tensor *)
{
    return false;
}

static bool is_plain(const struct kernel_problem *p)
{
    const struct attrs *a = &p->attrs;

    return cuda_capability == CAPABILITY_HOPPER && p->n_in == 2 && a->groups <= 1 &&
           a->activation == ACTIVATION_NONE && a->stride[0] == 1 && a->stride[1] == 1 &&
           a->pad[0] == 1 && a->pad[1] == 1;
}

static bool can_convolve(const struct kernel_problem *p)
{
    return is_plain(p) && is_image(&p->in[0]) && is_image(&p->out[0]) &&
           is_filter(&p->in[1], DTYPE_BF16) && sizeof(struct room) + ATOM <= cuda_shared_bytes;
}

static bool can_sum_filters(const struct kernel_problem *p)
{
    return is_plain(p) && p->n_out == 1 && is_image(&p->in[0]) && is_image(&p->in[1]) &&
           is_filter(&p->out[0], DTYPE_F32) &&
           sizeof(struct weight_room) + ATOM <= cuda_shared_bytes;
}

static void map_images(struct device_stream *stream, CUtensorMap *map, const void *images,
                       int64_t n, int width, int height)
{
    const int64_t extents[] = { CHANNELS, SIDE, SIDE, n };
    const int box[] = { CHANNELS, width, height, 1 };

    box_map_of(stream, map, images, 4, extents, box);
}

static unsigned blocks_for(int tiles)
{
    return (unsigned)(tiles < BLOCKS ? tiles : BLOCKS);
}

template <bool BACK, int ACROSS, bool SUMS>
static void launch(const struct kernel_call *call, const struct maps &maps, bool inward)
{
    const int tiles = (int)call->problem->in[0].shape.dim[0] * TILES;
    const size_t shared = sizeof(struct room) + ATOM;

    if (cudaFuncSetAttribute((const void *)convolve<BACK, ACROSS, SUMS>,
                             cudaFuncAttributeMaxDynamicSharedMemorySize,
                             (int)shared) == cudaSuccess)
        convolve<BACK, ACROSS, SUMS>
            <<<blocks_for(tiles), THREADS_OF_PAIR, shared, stream_of(call)>>>(
                maps, tiles, inward, (float *)call->scratch);
    stream_check(call->stream, call->problem->op);
}

template <bool BACK, bool SUMS> static void run_of(const struct kernel_call *call)
{
    const struct kernel_problem *p = call->problem;
    const int64_t n = p->in[0].shape.dim[0];
    const bool inward = is_inward(&p->in[1]);
    struct maps maps;

    map_images(call->stream, &maps.x, call->in[0], n, WIDTH, HEIGHT);
    map_images(call->stream, &maps.y, call->out[0], n, TILE_WIDTH, SIDE);
    box_map(call->stream, &maps.w, call->in[1], inward ? CHANNELS : TAPS * CHANNELS,
            inward ? TAPS * CHANNELS : CHANNELS, CHANNELS);
    if (inward == BACK)
        launch<BACK, 1, SUMS>(call, maps, inward);
    else
        launch<BACK, 0, SUMS>(call, maps, inward);
}

static void run_forward(const struct kernel_call *call)
{
    run_of<false, false>(call);
}

static void run_input(const struct kernel_call *call)
{
    run_of<true, false>(call);
}

static size_t stats_scratch(const struct kernel_problem *p)
{
    return batch_norm_moments_scratch(&p->out[0]);
}

static void run_stats(const struct kernel_call *call)
{
    run_of<false, true>(call);
    batch_norm_finish_tiles(call, &call->problem->out[0], (const float *)call->scratch, 1);
}

static size_t weight_scratch(const struct kernel_problem *)
{
    return (size_t)BLOCKS * FILTER_COUNT * sizeof(float);
}

static void run_weight(const struct kernel_call *call)
{
    const struct kernel_problem *p = call->problem;
    const int64_t n = p->in[0].shape.dim[0];
    const int tiles = (int)n * TILES;
    const size_t shared = sizeof(struct weight_room) + ATOM;
    float *partial = (float *)call->scratch;
    struct maps maps;

    map_images(call->stream, &maps.x, call->in[0], n, WIDTH, HEIGHT);
    map_images(call->stream, &maps.y, call->in[1], n, TILE_WIDTH, SIDE);
    maps.w = maps.y; /* there is none */
    if (cudaFuncSetAttribute((const void *)sum_filters,
                             cudaFuncAttributeMaxDynamicSharedMemorySize,
                             (int)shared) == cudaSuccess)
        sum_filters<<<blocks_for(tiles), THREADS_OF_ROWS, shared, stream_of(call)>>>(
            maps, tiles, partial);
    add_filters<<<FILTER_COUNT / COLUMNS, THREADS, 0, stream_of(call)>>>(
        partial, (int)blocks_for(tiles), is_inward(&p->out[0]), (float *)call->out[0]);
    stream_check(call->stream, p->op);
}

extern "C" const struct kernel cuda_conv_hopper_rows[] = {
    { "conv2d", "hopper", can_convolve, NULL, NULL, NULL, run_forward },
    { "conv2d_stats", "hopper", can_convolve, stats_scratch, NULL, NULL, run_stats },
    { "conv2d_grad_input", "hopper", can_convolve, NULL, NULL, NULL, run_input },
    { "conv2d_grad_weight", "hopper", can_sum_filters, weight_scratch, NULL, NULL, run_weight },
    { NULL, NULL, NULL, NULL, NULL, NULL, NULL },
};
