/* SPDX-License-Identifier: MIT */
/* conv_hopper.cu - convolutions of 64 channels of 32x32, or 128 of 16x16, by windows of 3x3, stride 1 and padding 1, in bf16 with f32 sums, on
 * Hopper: forward, also with what a batch norm wants to know of it, and gradients of input and filters.
 *
 * A tile is eight columns of an image. 64 of its channels, a plane, come into shared memory once, by the copy engine, with a pixel more on each
 * side: zeros where the image ends. Pixels are rows of 128 bytes, eight of them one behind the other are what wgmma takes for a core matrix, and
 * as swizzling goes by addresses, these may begin at any pixel: so all nine taps read the same tile, each from its own place.
 *
 * Forward, y' = w x': a block has 64 output channels, which are rows of the product; columns are a tile's pixels, and all taps of all planes are
 * summed without leaving registers. The block's filters stay in shared memory. Two warpgroups have a tile each and take turns with the tensor
 * cores: one multiplies while the other rounds, transposes in the place of its last plane and has it stored. A channel's sums over
 * pixels are sums over a thread's own registers. Input's gradient is the same with the taps in the opposite order and filters across.
 *
 * Filters' gradient, dw = dy' x: a block has 64 output and 64 input channels, each of three warpgroups a row of three taps, which are 192
 * columns of one product, and keeps its sums for all tiles of the block; blocks are added up by another launch.
 *
 * Blocks are as many as an H200 has multiprocessors, on whatever runs it: sums over blocks have one order.
 */
#include "kernel/cuda/batch_norm.h"
#include "kernel/cuda/boxes.h"
#include "kernel/cuda/tiles.cuh"

#include <string.h>

enum { TAPS = 9, WINDOW = 3, WIDTH = TILE_WIDTH + 2, PLANE = TILE_CHANNELS };
enum { PIXEL = PLANE * 2 }; /* bytes */
enum { TAP_BYTES = PLANE * PIXEL, PAIR_COUNT = TAPS * PLANE * PLANE };
enum { GROUP = 4 * WARP, BLOCKS = 132, K = 16 };

/* Images of P planes. */
template <int P> struct form {
    enum {
        CHANNELS = P * PLANE,
        SIDE = 32 / P,
        TILES = SIDE / TILE_WIDTH,
        HEIGHT = SIDE + 2,
        PIXELS = TILE_WIDTH * SIDE,
        PLANE_BYTES = WIDTH * HEIGHT * PIXEL,
        PLANE_ROOM = (PLANE_BYTES + ATOM - 1) / ATOM * ATOM,
        OUT_BYTES = PIXELS * PIXEL
    };
};

/* Where a tile is. */
struct tile {
    int number, image, column;
};

template <int P> __device__ static struct tile tile_at(int number)
{
    enum { TILES = form<P>::TILES };
    const struct tile tile = { number, number / TILES, number % TILES * TILE_WIDTH };

    return tile;
}

/* Forward and input's gradient --------------------------------------------------------------- */

struct maps {
    CUtensorMap x, w, y;
};

enum { PAIR = 2, THREADS_OF_PAIR = PAIR * GROUP + WARP, SLOTS = 3 };
enum { TURN = 1, INSIDE = TURN + PAIR }; /* names of barriers, each for PAIR */

/* What a block has in shared memory, from an address that ATOM divides. */
template <int P> struct conv_room {
    char filters[P][TAPS][TAP_BYTES];
    char planes[SLOTS][form<P>::PLANE_ROOM];
    struct ring<SLOTS> ring;
    uint64_t filters_there;
};

/* The block's filters, for output channels of plane `own`, or with BACK for input channels of it. inward: they lie (O,kh,kw,C), else
 * (kh,kw,C,O). */
template <int P, bool BACK>
__device__ static void fetch_filters(const CUtensorMap *map, struct conv_room<P> *room, int own,
                                     bool inward)
{
    barrier_expect(&room->filters_there, sizeof room->filters);
    for (int p = 0; p < P; p++) {
        const int o = (BACK ? p : own) * PLANE, c = (BACK ? own : p) * PLANE;
        for (int tap = 0; tap < TAPS; tap++) {
            const int along = tap * form<P>::CHANNELS + c;
            box_load(room->filters[p][tap], map, &room->filters_there, inward ? along : o,
                     inward ? o : along);
        }
    }
}

template <int P, bool BACK>
__device__ static void fetch(const struct maps &maps, struct conv_room<P> *room,
                             const struct share &share, bool inward)
{
    for (int n = 0; n < share.count * P; n++) {
        const struct tile tile = tile_at<P>(share.first + n / P * share.apart);
        uint64_t *full = &room->ring.full[n % SLOTS];

        room->ring.await_empty(n);
        barrier_expect(full, form<P>::PLANE_BYTES);
        box_load(room->planes[n % SLOTS], &maps.x, full, n % P * PLANE, tile.column - 1, -1,
                 tile.image);
        if (n == 0)
            fetch_filters<P, BACK>(&maps.w, room, share.kind, inward);
    }
}

/* Of 64 channels, as rows, and a tile's pixels. BACK: taps in the opposite order. */
template <int PIXELS, bool BACK, int ACROSS>
__device__ static void multiply(float (&sums)[PIXELS / 2], const char (*filters)[TAP_BYTES],
                                const char *pixels, bool add)
{
    products_begin();
#pragma unroll
    for (int tap = 0; tap < TAPS; tap++) {
        const char *a = filters[BACK ? TAPS - 1 - tap : tap];
        const char *b = pixels + (tap / WINDOW * WIDTH + tap % WINDOW) * PIXEL;
#pragma unroll
        for (int k = 0; k < PLANE; k += K)
            wide<PIXELS>::template multiply<ACROSS, 0>(
                sums, matrix_at(a + k * (ACROSS ? PIXEL : 2), 0, ATOM),
                matrix_at(b + k * 2, 0, WIDTH * PIXEL), add || tap + k > 0);
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
template <int PIXELS, bool SUMS>
__device__ static void round_across(const float (&sums)[PIXELS / 2], char *to,
                                    struct moment of[2])
{
    const int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP % 4;
    const int chunk = warp * 2 + lane / 8 % 2, pixel = lane % 8;
    char *at = to + lane / 16 * ATOM + pixel * PIXEL + (chunk ^ pixel) * 16;

#pragma unroll
    for (int row = 0; row < PIXELS / TILE_WIDTH; row += 2) {
        uint32_t pairs[4];
#pragma unroll
        for (int m = 0; m < 4; m++) {
            const float *two = &sums[(row + m / 2) * 4 + m % 2 * 2];
            pairs[m] = pair_of(two[0], two[1]);
            if (SUMS) {
                of[m % 2].add(__uint_as_float(pairs[m] << 16));
                of[m % 2].add(__uint_as_float(pairs[m] & 0xffff0000U));
            }
        }
        store_four_across((bf16 *)(at + row * ATOM), pairs);
    }
}

/* A tile's sums of 64 channels go to `to`, those of squares to `squares`. */
__device__ static void give_moments(struct moment of[2], float *to, float *squares)
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
            squares[warp * 16 + m * 8 + lane / 4] = of[m].squares;
        }
    }
}

/* moments: (tile, 2, CHANNELS), with SUMS. */
template <int P, bool BACK, int ACROSS, bool SUMS>
__global__ void __launch_bounds__(THREADS_OF_PAIR, 1)
    convolve(const __grid_constant__ struct maps maps, int tiles, bool inward, float *moments)
{
    enum { CHANNELS = form<P>::CHANNELS, PIXELS = form<P>::PIXELS };
    extern __shared__ char raw[];
    struct conv_room<P> *room = (struct conv_room<P> *)align_up(raw);
    const struct share share(P, tiles);
    const int own = (int)threadIdx.x / GROUP;
    const bool is_first = threadIdx.x % GROUP == 0;

    if (threadIdx.x == 0) {
        room->ring.make(1);
        barrier_make(&room->filters_there, 1);
        barriers_made();
    }
    __syncthreads();
    if (own == PAIR) {
        if (is_first)
            fetch<P, BACK>(maps, room, share, inward);
        return;
    }
    if (own == 1)
        meet_passing(TURN, PAIR * GROUP); /* the other begins */
    barrier_wait(&room->filters_there, 0);
    for (int n = own; n < share.count; n += PAIR) {
        const struct tile tile = tile_at<P>(share.first + n * share.apart);
        const int last = n * P + P - 1;
        char *out = room->planes[last % SLOTS];
        struct moment of[2] = {};
        float sums[PIXELS / 2];

        meet(TURN + own, PAIR * GROUP);
#pragma unroll
        for (int p = 0; p < P; p++) {
            const int at = n * P + p;
            room->ring.await_full(at);
            multiply<PIXELS, BACK, ACROSS>(sums, room->filters[p], room->planes[at % SLOTS],
                                           p > 0);
            if (p > 0)
                products_wait<1>();
            if (p > 0 && is_first)
                barrier_arrive(&room->ring.empty[(at - 1) % SLOTS]);
        }
        if (n + 1 < share.count)
            meet_passing(TURN + 1 - own, PAIR * GROUP);
        products_wait<0>();
        products_made(sums);
        meet(INSIDE + own, GROUP); /* all four warps have read the plane */
        round_across<PIXELS, SUMS>(sums, out, of);
        stores_to_engines();
        meet(INSIDE + own, GROUP);
        if (is_first) {
            box_store(&maps.y, out, share.kind * PLANE, tile.column, 0, tile.image);
            boxes_end();
        }
        if (SUMS) {
            float *to = moments + (int64_t)tile.number * 2 * CHANNELS + share.kind * PLANE;
            give_moments(of, to, to + CHANNELS);
        }
        if (is_first) {
            boxes_read<0>();
            barrier_arrive(&room->ring.empty[last % SLOTS]);
        }
    }
    if (is_first)
        boxes_stored();
}

/* Filters' gradient -------------------------------------------------------------------------- */

template <int P> struct weight_room {
    enum { SLOTS = P == 1 ? 3 : 5 };
    struct {
        char x[form<P>::PLANE_ROOM], dy[form<P>::OUT_BYTES];
    } tiles[SLOTS];
    struct ring<SLOTS> ring;
};

enum { THREADS_OF_ROWS = WINDOW * GROUP + WARP, ROW_COLUMNS = WINDOW * PLANE };

/* A block's kind: its planes of output and input channels. */
template <int P> __device__ static int o_plane(int kind)
{
    return kind / P * PLANE;
}
template <int P> __device__ static int c_plane(int kind)
{
    return kind % P * PLANE;
}

/* Sums over a block's tiles, of its planes (O,kh,kw,C), block after block. */
template <int P>
__global__ void __launch_bounds__(THREADS_OF_ROWS, 1)
    sum_filters(const __grid_constant__ struct maps maps, int tiles, float *partial)
{
    enum { SLOTS = weight_room<P>::SLOTS };
    extern __shared__ char raw[];
    struct weight_room<P> *room = (struct weight_room<P> *)align_up(raw);
    const struct share share(P * P, tiles);
    const int row = (int)threadIdx.x / GROUP;
    const int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP % 4;
    float sums[ROW_COLUMNS / 2];

    if (threadIdx.x == 0) {
        room->ring.make(WINDOW);
        barriers_made();
    }
    __syncthreads();
    if (row == WINDOW) {
        for (int n = 0; lane == 0 && n < share.count; n++) {
            const struct tile tile = tile_at<P>(share.first + n * share.apart);
            uint64_t *full = &room->ring.full[n % SLOTS];

            room->ring.await_empty(n);
            barrier_expect(full, form<P>::PLANE_BYTES + form<P>::OUT_BYTES);
            box_load(room->tiles[n % SLOTS].x, &maps.x, full, c_plane<P>(share.kind),
                     tile.column - 1, -1, tile.image);
            box_load(room->tiles[n % SLOTS].dy, &maps.y, full, o_plane<P>(share.kind),
                     tile.column, 0, tile.image);
        }
        return;
    }
#pragma unroll
    for (int i = 0; i < ROW_COLUMNS / 2; i++)
        sums[i] = 0;
    for (int n = 0; n < share.count; n++) {
        const char *x = room->tiles[n % SLOTS].x + row * WIDTH * PIXEL;
        const char *dy = room->tiles[n % SLOTS].dy;

        room->ring.await_full(n);
        products_begin();
#pragma unroll
        for (int k = 0; k < form<P>::PIXELS; k += K) /* two rows of eight pixels each */
            wide<ROW_COLUMNS>::multiply<1, 1>(
                sums, matrix_at(dy + k * PIXEL, 0, ATOM),
                matrix_at(x + k / TILE_WIDTH * WIDTH * PIXEL, PIXEL, WIDTH * PIXEL), 1);
        products_end();
        products_wait<0>();
        products_made(sums);
        if (threadIdx.x % GROUP == 0)
            barrier_arrive(&room->ring.empty[n % SLOTS]);
    }
    float *to = partial + (int64_t)blockIdx.x * PAIR_COUNT +
                (warp * 16 + lane / 4) * TAPS * PLANE + row * ROW_COLUMNS + lane % 4 * 2;
#pragma unroll
    for (int j = 0; j < ROW_COLUMNS / 8; j++) {
        *(float2 *)(to + j * 8) = make_float2(sums[4 * j], sums[4 * j + 1]);
        *(float2 *)(to + 8 * TAPS * PLANE + j * 8) =
            make_float2(sums[4 * j + 2], sums[4 * j + 3]);
    }
}

/* Blocks in turn are parts that a thread adds, and then those of a column; all loads of a part are on their way at once. */
enum { PARTS = 4, COLUMNS = THREADS / PARTS };

template <int P>
__global__ void __launch_bounds__(THREADS)
    add_filters(const float *partial, int blocks, bool inward, float *dw)
{
    enum { CHANNELS = form<P>::CHANNELS, EACH = (BLOCKS / (P * P) + PARTS - 1) / PARTS };
    __shared__ float all[PARTS][COLUMNS];
    const int column = (int)threadIdx.x % COLUMNS, part = (int)threadIdx.x / COLUMNS;
    const int i = (int)blockIdx.x * COLUMNS + column, kind = i / PAIR_COUNT;
    const int in_pair = i % PAIR_COUNT, tap = in_pair / PLANE % TAPS;
    const int o = o_plane<P>(kind) + in_pair / (TAPS * PLANE);
    const int c = c_plane<P>(kind) + in_pair % PLANE;
    float in[EACH], sum = 0;

#pragma unroll
    for (int n = 0; n < EACH; n++) {
        const int b = n * PARTS + part;
        in[n] = b < blocks ? partial[(int64_t)(b * P * P + kind) * PAIR_COUNT + in_pair] : 0;
    }
#pragma unroll
    for (int n = 0; n < EACH; n++)
        sum += in[n];
    all[part][column] = sum;
    __syncthreads();
    for (int p = 1; part == 0 && p < PARTS; p++)
        sum += all[p][column];
    if (part == 0)
        dw[inward ? (o * TAPS + tap) * CHANNELS + c : (tap * CHANNELS + c) * CHANNELS + o] =
            sum;
}

/* The ops ------------------------------------------------------------------------------------ */

/* Planes of the images, 0: they have no form here. */
static int planes_of(const struct kernel_tensor *image)
{
    const int64_t *dim = image->shape.dim;

    if (image->dtype != DTYPE_BF16 || dim[0] >= INT32_MAX / form<1>::TILES || dim[2] != dim[3])
        return 0;
    for (int planes = 1; planes <= 2; planes++) {
        if (dim[1] == planes * form<1>::CHANNELS && dim[2] == form<1>::SIDE / planes)
            return planes;
    }
    return 0;
}

static bool is_filter(const struct kernel_tensor *t, int planes, enum dtype dtype)
{
    const int64_t *dim = t->shape.dim;

    return t->dtype == dtype && dim[0] == planes * PLANE && dim[1] == dim[0] &&
           dim[2] == WINDOW && dim[3] == WINDOW;
}

static bool is_inward(const struct kernel_tensor *filter)
{
    return filter->layout == LAYOUT_OHWI;
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
    const int planes = planes_of(&p->in[0]);

    return is_plain(p) && planes > 0 && planes_of(&p->out[0]) == planes &&
           is_filter(&p->in[1], planes, DTYPE_BF16);
}

static bool can_sum_filters(const struct kernel_problem *p)
{
    const int planes = planes_of(&p->in[0]);

    return is_plain(p) && p->n_out == 1 && planes > 0 && planes_of(&p->in[1]) == planes &&
           is_filter(&p->out[0], planes, DTYPE_F32);
}

template <int P>
static bool map_images(struct device_stream *stream, CUtensorMap *map, const void *images,
                       int64_t n, int width, int height)
{
    const int64_t extents[] = { form<P>::CHANNELS, form<P>::SIDE, form<P>::SIDE, n };
    const int box[] = { PLANE, width, height, 1 };

    return box_map_of(stream, map, images, 4, extents, box);
}

/* Blocks for `kinds` of work on each of the tiles, as many of each kind. */
static int blocks_for(int tiles, int kinds)
{
    return tiles < BLOCKS / kinds ? tiles * kinds : BLOCKS;
}

template <int P, bool BACK, int ACROSS, bool SUMS>
static void launch(const struct kernel_call *call, const struct maps &maps, bool inward)
{
    const int tiles = (int)call->problem->in[0].shape.dim[0] * form<P>::TILES;
    const size_t shared = sizeof(struct conv_room<P>) + ATOM;

    if (cudaFuncSetAttribute((const void *)convolve<P, BACK, ACROSS, SUMS>,
                             cudaFuncAttributeMaxDynamicSharedMemorySize,
                             (int)shared) == cudaSuccess)
        convolve<P, BACK, ACROSS, SUMS>
            <<<(unsigned)blocks_for(tiles, P), THREADS_OF_PAIR, shared, stream_of(call)>>>(
                maps, tiles, inward, (float *)call->scratch);
    stream_check(call->stream, call->problem->op);
}

template <int P, bool BACK, bool SUMS> static void run_planes(const struct kernel_call *call)
{
    enum { CHANNELS = form<P>::CHANNELS };
    const struct kernel_problem *p = call->problem;
    const int64_t n = p->in[0].shape.dim[0];
    const bool inward = is_inward(&p->in[1]);
    struct maps maps;

    if (!map_images<P>(call->stream, &maps.x, call->in[0], n, WIDTH, form<P>::HEIGHT) ||
        !map_images<P>(call->stream, &maps.y, call->out[0], n, TILE_WIDTH, form<P>::SIDE) ||
        !box_map(call->stream, &maps.w, call->in[1], inward ? CHANNELS : TAPS * CHANNELS,
                 inward ? TAPS * CHANNELS : CHANNELS, PLANE))
        return;
    if (inward == BACK)
        launch<P, BACK, 1, SUMS>(call, maps, inward);
    else
        launch<P, BACK, 0, SUMS>(call, maps, inward);
}

template <bool BACK, bool SUMS> static void run_of(const struct kernel_call *call)
{
    if (planes_of(&call->problem->in[0]) == 1)
        run_planes<1, BACK, SUMS>(call);
    else
        run_planes<2, BACK, SUMS>(call);
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
    return (size_t)BLOCKS * PAIR_COUNT * sizeof(float);
}

template <int P> static void sum_planes(const struct kernel_call *call)
{
    const struct kernel_problem *p = call->problem;
    const int64_t n = p->in[0].shape.dim[0];
    const int tiles = (int)n * form<P>::TILES, blocks = blocks_for(tiles, P * P);
    const size_t shared = sizeof(struct weight_room<P>) + ATOM;
    float *partial = (float *)call->scratch;
    struct maps maps;

    if (!map_images<P>(call->stream, &maps.x, call->in[0], n, WIDTH, form<P>::HEIGHT) ||
        !map_images<P>(call->stream, &maps.y, call->in[1], n, TILE_WIDTH, form<P>::SIDE))
        return;
    maps.w = maps.y; /* there is none */
    if (cudaFuncSetAttribute((const void *)sum_filters<P>,
                             cudaFuncAttributeMaxDynamicSharedMemorySize,
                             (int)shared) == cudaSuccess)
        sum_filters<P><<<(unsigned)blocks, THREADS_OF_ROWS, shared, stream_of(call)>>>(
            maps, tiles, partial);
    add_filters<P><<<P * P * PAIR_COUNT / COLUMNS, THREADS, 0, stream_of(call)>>>(
        partial, blocks / (P * P), is_inward(&p->out[0]), (float *)call->out[0]);
    stream_check(call->stream, p->op);
}

static void run_weight(const struct kernel_call *call)
{
    if (planes_of(&call->problem->in[0]) == 1)
        sum_planes<1>(call);
    else
        sum_planes<2>(call);
}

extern "C" const struct kernel cuda_conv_hopper_rows[] = {
    { "conv2d", "hopper", can_convolve, NULL, NULL, NULL, run_forward },
    { "conv2d_stats", "hopper", can_convolve, stats_scratch, NULL, NULL, run_stats },
    { "conv2d_grad_input", "hopper", can_convolve, NULL, NULL, NULL, run_input },
    { "conv2d_grad_weight", "hopper", can_sum_filters, weight_scratch, NULL, NULL, run_weight },
    { NULL, NULL, NULL, NULL, NULL, NULL, NULL },
};
