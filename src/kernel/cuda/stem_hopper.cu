/* SPDX-License-Identifier: MIT */
/* stem_hopper.cu - first convolutions of colour images on Hopper: 3 channels of 32x32 to 64, windows of 3x3, stride 1 and padding 1, in bf16;
 * forward, also with what a batch norm wants to know of it, and filters' gradient.
 *
 * A window is 27 numbers. Of a tile, eight columns of an image, threads lay the 256 windows out in shared memory, 32 numbers each with
 * zeros at the end, which is little beside the 64 channels that are written or read of each pixel: memory bounds both. Then
 * it is one product: filters by windows, or dy by windows. Three blocks of a multiprocessor, or two, wait for memory in turn.
 */
#include "kernel/cuda/conv_hopper.cuh"

enum {
    COLOURS = 3,
    SEEN = TAPS * COLOURS,  /* of a window */
    FILLED = 32,            /* with zeros */
    RUN = WINDOW * COLOURS, /* numbers of a window that follow each other in an image */
    ROW = WIDTH * COLOURS,  /* of a tile's row, with a pixel more on each side */
    SIDE = form<1>::SIDE,
    PIXELS = form<1>::PIXELS,
    NUMBERS = ROW * form<1>::HEIGHT,
    EACH = (NUMBERS + GROUP - 1) / GROUP, /* of a thread */
    CHUNK = 8, /* numbers of 16 bytes: a plane of windows has these */
    CHUNKS = FILLED / CHUNK,
    WINDOWS_BYTES = PIXELS * FILLED * 2,
    PLANE_OF_WINDOWS = PIXELS * CHUNK * 2,
    PLANE_OF_FILTERS = PLANE * CHUNK * 2,
    CORE = 8 * CHUNK * 2,
};

/* A thread's part of a tile of x, on its way from memory. */
struct ahead {
    uint16_t x[EACH];
    __device__ void take(const uint16_t *images, int number)
    {
        const struct tile tile = tile_at<1>(number);

#pragma unroll
        for (int i = 0; i < EACH; i++) {
            const int at = i * GROUP + (int)threadIdx.x, row = at / ROW - 1, along = at % ROW;
            const int column = tile.column - 1 + along / COLOURS;
            const bool is_inside =
                at < NUMBERS && row >= 0 && row < SIDE && column >= 0 && column < SIDE;
            const int64_t from =
                ((int64_t)(tile.image * SIDE + row) * SIDE + tile.column - 1) * COLOURS + along;
            x[i] = is_inside ? images[from] : 0;
        }
    }
    __device__ void put(uint16_t *numbers) const
    {
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            if (i * GROUP + (int)threadIdx.x < NUMBERS)
                numbers[i * GROUP + threadIdx.x] = x[i];
        }
    }
};

/* All windows of a tile, in planes of CHUNK of their numbers, each (pixel, CHUNK). */
__device__ static void lay_windows(const uint16_t *numbers, char *windows)
{
#pragma unroll
    for (int n = 0; n < PIXELS / GROUP; n++) {
        const int pixel = n * GROUP + (int)threadIdx.x;
        const uint16_t *first =
            numbers + pixel / TILE_WIDTH * ROW + pixel % TILE_WIDTH * COLOURS;
        uint32_t pairs[FILLED / 2] = {};

#pragma unroll
        for (int k = 0; k < SEEN; k++)
            pairs[k / 2] |= (uint32_t)first[k / RUN * ROW + k % RUN] << k % 2 * 16;
#pragma unroll
        for (int c = 0; c < CHUNKS; c++)
            *(uint4 *)(windows + c * PLANE_OF_WINDOWS + pixel * CHUNK * 2) =
                make_uint4(pairs[4 * c], pairs[4 * c + 1], pairs[4 * c + 2], pairs[4 * c + 3]);
    }
}

/* Forward ------------------------------------------------------------------------------------ */

struct stem_room {
    char out[form<1>::OUT_BYTES];
    char windows[WINDOWS_BYTES];
    char filters[PLANE * FILLED * 2];
    uint16_t numbers[NUMBERS];
};

enum { AT_A_TIME = 3, AT_A_TIME_BACK = 2 }; /* blocks of a multiprocessor */

/* Filters (kh,kw,C,O) in planes of CHUNK numbers, each (O, CHUNK). */
__device__ static void lay_filters(const uint16_t *w, char *filters)
{
    for (int n = (int)threadIdx.x; n < PLANE * FILLED; n += GROUP) {
        const int o = n % PLANE, k = n / PLANE;
        uint16_t *to = (uint16_t *)(filters + k / CHUNK * PLANE_OF_FILTERS) + o * CHUNK;
        to[k % CHUNK] = k < SEEN ? w[k * PLANE + o] : 0;
    }
}

/* moments: (tile, 2, 64), with SUMS. */
template <bool SUMS>
__global__ void __launch_bounds__(GROUP, AT_A_TIME)
    convolve_stem(const uint16_t *x, const uint16_t *w, const __grid_constant__ CUtensorMap y,
                  int tiles, float *moments)
{
    extern __shared__ char raw[];
    struct stem_room *room = (struct stem_room *)align_up(raw);
    struct ahead ahead;

    lay_filters(w, room->filters);
    ahead.take(x, (int)blockIdx.x);
    for (int n = (int)blockIdx.x; n < tiles; n += (int)gridDim.x) {
        const struct tile tile = tile_at<1>(n);
        struct moment of[2] = {};
        float sums[PIXELS / 2];

        ahead.put(room->numbers);
        __syncthreads(); /* and all have multiplied what was laid out before */
        if (n + (int)gridDim.x < tiles)
            ahead.take(x, n + (int)gridDim.x);
        lay_windows(room->numbers, room->windows);
        stores_to_engines();
        if (threadIdx.x == 0)
            boxes_read<0>();
        __syncthreads();
        products_begin();
#pragma unroll
        for (int c = 0; c < CHUNKS; c += K / CHUNK)
            wide<PIXELS>::multiply<0, 0>(sums,
                                         matrix_at(room->filters + c * PLANE_OF_FILTERS,
                                                   PLANE_OF_FILTERS, CORE, ROWS_PLAIN),
                                         matrix_at(room->windows + c * PLANE_OF_WINDOWS,
                                                   PLANE_OF_WINDOWS, CORE, ROWS_PLAIN),
                                         c > 0);
        products_end();
        products_wait<0>();
        round_across<PIXELS, SUMS>(sums, room->out, of);
        stores_to_engines();
        __syncthreads();
        if (threadIdx.x == 0) {
            box_store(&y, room->out, 0, tile.column, 0, tile.image);
            boxes_end();
        }
        if (SUMS) {
            float *to = moments + (int64_t)n * 2 * PLANE;
            give_moments(of, to, to + PLANE);
        }
    }
    if (threadIdx.x == 0)
        boxes_stored();
}

/* Filters' gradient -------------------------------------------------------------------------- */

enum { SLOTS = 2, PART_COUNT = PLANE * FILLED, BLOCKS_BACK = AT_A_TIME_BACK * BLOCKS };

struct stem_weight_room {
    char dy[SLOTS][form<1>::OUT_BYTES];
    char windows[WINDOWS_BYTES];
    uint64_t full[SLOTS];
    uint16_t numbers[NUMBERS];
};

/* Of the n-th of a block's tiles. */
__device__ static void fetch_dy(struct stem_weight_room *room, const CUtensorMap *map, int n)
{
    const struct tile tile = tile_at<1>((int)blockIdx.x + n * (int)gridDim.x);

    barrier_expect(&room->full[n % SLOTS], form<1>::OUT_BYTES);
    box_load(room->dy[n % SLOTS], map, &room->full[n % SLOTS], 0, tile.column, 0, tile.image);
}

/* Sums over a block's tiles, (O, FILLED), block after block. */
__global__ void __launch_bounds__(GROUP, AT_A_TIME_BACK)
    sum_stem(const uint16_t *x, const __grid_constant__ CUtensorMap dy, int tiles,
             float *partial)
{
    extern __shared__ char raw[];
    struct stem_weight_room *room = (struct stem_weight_room *)align_up(raw);
    const int first = (int)blockIdx.x, apart = (int)gridDim.x;
    const int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP;
    struct ahead ahead;
    float sums[FILLED / 2] = {};

    if (threadIdx.x == 0) {
        for (int i = 0; i < SLOTS; i++)
            barrier_make(&room->full[i], 1);
        barriers_made();
        fetch_dy(room, &dy, 0);
    }
    ahead.take(x, first);
    for (int n = 0; first + n * apart < tiles; n++) {
        const bool is_last = first + (n + 1) * apart >= tiles;
        const char *rows = room->dy[n % SLOTS];

        ahead.put(room->numbers);
        __syncthreads(); /* and all have multiplied what was laid out before */
        if (threadIdx.x == 0 && !is_last)
            fetch_dy(room, &dy, n + 1);
        if (!is_last)
            ahead.take(x, first + (n + 1) * apart);
        lay_windows(room->numbers, room->windows);
        stores_to_engines();
        __syncthreads();
        barrier_wait(&room->full[n % SLOTS], n / SLOTS % 2);
        products_begin();
#pragma unroll
        for (int k = 0; k < PIXELS; k += K)
            wide<FILLED>::multiply<1, 1>(
                sums, matrix_at(rows + k * PIXEL, 0, ATOM, ROWS_OF_128),
                matrix_at(room->windows + k * CHUNK * 2, CORE, PLANE_OF_WINDOWS, ROWS_PLAIN),
                1);
        products_end();
        products_wait<0>();
    }
    float *to = partial + (int64_t)blockIdx.x * PART_COUNT + (warp * 16 + lane / 4) * FILLED +
                lane % 4 * 2;
#pragma unroll
    for (int j = 0; j < FILLED / 8; j++) {
        *(float2 *)(to + j * 8) = make_float2(sums[4 * j], sums[4 * j + 1]);
        *(float2 *)(to + 8 * FILLED + j * 8) = make_float2(sums[4 * j + 2], sums[4 * j + 3]);
    }
}

/* Blocks in turn are parts of a column, a warp each. */
__global__ void __launch_bounds__(THREADS) add_stem(const float *partial, int blocks, float *dw)
{
    enum { PARTS = THREADS / WARP, AHEAD = (BLOCKS_BACK + PARTS - 1) / PARTS };
    __shared__ float all[PARTS][WARP];
    const int lane = (int)threadIdx.x % WARP, part = (int)threadIdx.x / WARP;
    const int i = (int)blockIdx.x * WARP + lane, o = i / FILLED, k = i % FILLED;
    float in[AHEAD], sum = 0;

#pragma unroll
    for (int n = 0; n < AHEAD; n++) {
        const int b = n * PARTS + part;
        in[n] = b < blocks ? partial[(int64_t)b * PART_COUNT + i] : 0;
    }
#pragma unroll
    for (int n = 0; n < AHEAD; n++)
        sum += in[n];
    all[part][lane] = sum;
    __syncthreads();
    for (int p = 1; part == 0 && p < PARTS; p++)
        sum += all[p][lane];
    if (part == 0 && k < SEEN)
        dw[k * PLANE + o] = sum;
}

/* The ops ------------------------------------------------------------------------------------ */

static bool is_image(const struct kernel_tensor *t, int channels)
{
    const int64_t *dim = t->shape.dim;

    return t->dtype == DTYPE_BF16 && dim[0] < INT32_MAX / (SIDE * SIDE) && dim[1] == channels &&
           dim[2] == SIDE && dim[3] == SIDE;
}

static bool is_filter(const struct kernel_tensor *t, enum dtype dtype)
{
    const int64_t *dim = t->shape.dim;

    return t->dtype == dtype && t->layout != LAYOUT_OHWI && dim[0] == PLANE &&
           dim[1] == COLOURS && dim[2] == WINDOW && dim[3] == WINDOW;
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
    return is_plain(p) && is_image(&p->in[0], COLOURS) && is_image(&p->out[0], PLANE) &&
           is_filter(&p->in[1], DTYPE_BF16);
}

static bool can_sum(const struct kernel_problem *p)
{
    return is_plain(p) && p->n_out == 1 && is_image(&p->in[0], COLOURS) &&
           is_image(&p->in[1], PLANE) && is_filter(&p->out[0], DTYPE_F32);
}

static int tiles_of(const struct kernel_call *call)
{
    return (int)call->problem->in[0].shape.dim[0] * form<1>::TILES;
}

static int blocks_for(int tiles, int most)
{
    return tiles < most ? tiles : most;
}

template <bool SUMS> static void launch(const struct kernel_call *call)
{
    const int tiles = tiles_of(call), blocks = blocks_for(tiles, AT_A_TIME * BLOCKS);
    const size_t shared = sizeof(struct stem_room) + ATOM;
    CUtensorMap y;

    map_images<1>(call->stream, &y, call->out[0], call->problem->in[0].shape.dim[0], TILE_WIDTH,
                  SIDE);
    if (cudaFuncSetAttribute((const void *)convolve_stem<SUMS>,
                             cudaFuncAttributeMaxDynamicSharedMemorySize,
                             (int)shared) == cudaSuccess)
        convolve_stem<SUMS><<<(unsigned)blocks, GROUP, shared, stream_of(call)>>>(
            (const uint16_t *)call->in[0], (const uint16_t *)call->in[1], y, tiles,
            (float *)call->scratch);
    stream_check(call->stream, call->problem->op);
}

static void run_forward(const struct kernel_call *call)
{
    launch<false>(call);
}

static size_t stats_scratch(const struct kernel_problem *p)
{
    return batch_norm_moments_scratch(&p->out[0]);
}

static void run_stats(const struct kernel_call *call)
{
    launch<true>(call);
    batch_norm_finish_tiles(call, &call->problem->out[0], (const float *)call->scratch, 1);
}

static size_t weight_scratch(const struct kernel_problem *)
{
    return (size_t)BLOCKS_BACK * PART_COUNT * sizeof(float);
}

static void run_weight(const struct kernel_call *call)
{
    const int tiles = tiles_of(call), blocks = blocks_for(tiles, BLOCKS_BACK);
    const size_t shared = sizeof(struct stem_weight_room) + ATOM;
    float *partial = (float *)call->scratch;
    CUtensorMap dy;

    map_images<1>(call->stream, &dy, call->in[1], call->problem->in[0].shape.dim[0], TILE_WIDTH,
                  SIDE);
    if (cudaFuncSetAttribute((const void *)sum_stem,
                             cudaFuncAttributeMaxDynamicSharedMemorySize,
                             (int)shared) == cudaSuccess)
        sum_stem<<<(unsigned)blocks, GROUP, shared, stream_of(call)>>>(
            (const uint16_t *)call->in[0], dy, tiles, partial);
    add_stem<<<PART_COUNT / WARP, THREADS, 0, stream_of(call)>>>(partial, blocks,
                                                                 (float *)call->out[0]);
    stream_check(call->stream, call->problem->op);
}

extern "C" const struct kernel cuda_stem_hopper_rows[] = {
    { "conv2d", "stem", can_convolve, NULL, NULL, NULL, run_forward },
    { "conv2d_stats", "stem", can_convolve, stats_scratch, NULL, NULL, run_stats },
    { "conv2d_grad_weight", "stem", can_sum, weight_scratch, NULL, NULL, run_weight },
    { NULL, NULL, NULL, NULL, NULL, NULL, NULL },
};
