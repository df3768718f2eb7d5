/* SPDX-License-Identifier: MIT */
/* linear_hopper.cu - linear layers of few inputs and many outputs in bf16, on Hopper: with gelu, and gradients of inputs, with gelu's slope and
 * the sums that a bias wants.
 *
 * Of so short sums, up to 384, memory is the floor, and what a library's tiles read again and again from the second cache is several times as much. Here
 * a block keeps the weights of 192 outputs, a panel, in shared memory for all of its rows, which come by 64 from the copy engine. Two
 * groups of four warps have 64 rows each and take turns with the tensor cores: one multiplies while the other rounds, activates and has its
 * rows stored.
 *
 * A slope is multiplied with the rounded product, and what is stored is summed up in the order of column.cuh: the bits are those of
 * linear_grad_input, gelu_tanh_grad and sum_rows, which a pipeline's cut may keep apart.
 */
#include <limits.h>

#include "kernel/cuda/boxes.h"
#include "kernel/cuda/column_sums.h"
#include "kernel/cuda/gelu.cuh"
#include "kernel/cuda/tiles.cuh"

enum { SIDE = BOX_COLUMNS, TILE = SIDE * SIDE, TILE_BYTES = TILE * 2, ROW_BYTES = SIDE * 2 };
enum {
    BOXES = 3, /* of a panel, side by side */
    PANEL = BOXES * SIDE,
    SUMS = PANEL / 2, /* of 64 rows in a thread */
    DEPTH = 6,        /* tiles along the sums, at most */
    SLOTS = 4,
    STEP = 16,   /* of a product, along the sums */
    BLOCKS = 132 /* as many as an H200 has multiprocessors; no bit depends on it */
};
enum { WARPS_OF_GROUP = 4, GROUP = WARPS_OF_GROUP * WARP, PAIR = 2 };
enum {
    THREADS_OF_ALL = (PAIR + 1) * GROUP
}; /* with the one that brings tiles, most of whose registers are for the others */
enum { PAIR_REGISTERS = 224, BRINGER_REGISTERS = 56 };
enum { TURN = 1, INSIDE = TURN + PAIR }; /* names of barriers, each for PAIR */

/* What becomes of a product. */
enum ending { STORED, WITH_GELU, WITH_SLOPE };

struct sizes {
    int rows, columns;
    int tiles, panels, depth; /* of rows; of columns; along the sums */
    int part;                 /* rows that are summed up together */
};

/* kept: gelu's argument, which is made or read. */
struct maps {
    CUtensorMap x, w, kept, y;
};

/* What a block has in shared memory, from an address that ATOM divides. */
struct linear_room {
    bf16 weights[DEPTH][BOXES][TILE];
    bf16 rows[SLOTS][TILE];
    bf16 results[PAIR][BOXES][TILE];
    struct ring<SLOTS> ring;
    uint64_t weights_there[DEPTH], kept_there[PAIR];
};

/* The panel's weights, tile by tile with the first rows; then the rows of all tiles. ACROSS: weights of an output lie
 * one below the other. */
template <int ACROSS>
__device__ static void fetch(const struct maps &maps, struct linear_room *room,
                             const struct sizes &e, const struct share &share)
{
    for (int n = 0; n < share.count * e.depth; n++) {
        const int row = (share.first + n / e.depth * share.apart) * SIDE, d = n % e.depth;
        uint64_t *full = &room->ring.full[n % SLOTS];

        if (n < e.depth)
            barrier_expect(&room->weights_there[d], BOXES * TILE_BYTES);
        for (int b = 0; n < e.depth && b < BOXES; b++) {
            const int column = share.kind * PANEL + b * SIDE;
            box_load(room->weights[d][b], &maps.w, &room->weights_there[d],
                     ACROSS ? column : d * SIDE, ACROSS ? d * SIDE : column);
        }
        room->ring.await_empty(n);
        barrier_expect(full, TILE_BYTES);
        box_load(room->rows[n % SLOTS], &maps.x, full, d * SIDE, row);
    }
}

/* sums = or += 64 rows times a panel, begun: a tile along the sums. */
template <int ACROSS>
__device__ __forceinline__ void begin_product(float (&sums)[SUMS], const bf16 *rows,
                                              const bf16 *weights, bool add)
{
    products_begin();
#pragma unroll
    for (int k = 0; k < SIDE; k += STEP)
        wide<PANEL>::multiply<0, ACROSS>(
            sums, matrix_at(rows + k, 0, ATOM),
            matrix_at(weights + (ACROSS ? k * SIDE : k), ACROSS ? TILE_BYTES : 0, ATOM),
            add || k > 0);
    products_end();
}

/* The n-th 64 rows of this block, whose turn it is; who comes next may begin once all products are. BEGUN: sums have begun. */
template <int ACROSS, bool BEGUN>
__device__ __forceinline__ void multiply(float (&sums)[SUMS], struct linear_room *room,
                                         const struct sizes &e, int n, bool is_first)
{
    for (int d = 0; d < e.depth; d++) {
        const int at = n * e.depth + d;

        if (n < PAIR)
            barrier_wait(&room->weights_there[d], 0);
        room->ring.await_full(at);
        begin_product<ACROSS>(sums, room->rows[at % SLOTS], room->weights[d][0],
                              BEGUN || d > 0);
        if (d > 0)
            products_wait<1>();
        if (d > 0 && is_first)
            barrier_arrive(&room->ring.empty[(at - 1) % SLOTS]);
    }
}

/* Results ------------------------------------------------------------------------------------- */

/* 16 columns, the k-th of the panel. */
__device__ __forceinline__ bf16 *corner_of_panel(bf16 (*results)[TILE], int k)
{
    return corner_of(results[k / (SIDE / STEP)], k % (SIDE / STEP));
}

__device__ __forceinline__ float2 two_of(uint32_t pair)
{
    return __bfloat1622float2(*(const __nv_bfloat162 *)&pair);
}

/* What all threads of a group have put there goes to memory, by the first of them. */
__device__ static void store_panel(const CUtensorMap *map, bf16 (*results)[TILE], int own,
                                   int column, int row, bool is_first)
{
    stores_to_engines();
    meet(INSIDE + own, GROUP);
    if (!is_first)
        return;
    for (int b = 0; b < BOXES; b++)
        box_store(map, results[b], column + b * SIDE, row);
    boxes_end();
}

/* Until what was stored last has been read. */
__device__ static void await_stored(int own, bool is_first)
{
    if (is_first)
        boxes_read<0>();
    meet(INSIDE + own, GROUP);
}

__device__ static void store_product(const float (&sums)[SUMS], bf16 (*results)[TILE])
{
#pragma unroll
    for (int k = 0; k < PANEL / STEP; k++) {
        uint32_t pairs[4];
#pragma unroll
        for (int m = 0; m < 4; m++)
            pairs[m] = pair_of(sums[k * 8 + m * 2], sums[k * 8 + m * 2 + 1]);
        store_four(corner_of_panel(results, k), pairs);
    }
}

/* Sums begin with the bias. A thread has the same two of each eight columns in both its rows. */
__device__ static void begin_with(float (&sums)[SUMS], const bf16 *bias, int columns)
{
    const int own = (int)threadIdx.x % 4 * 2;

#pragma unroll
    for (int j = 0; j < PANEL / 8; j++) {
        const float2 first = j * 8 + own < columns
                                 ? two_of(*(const uint32_t *)(bias + j * 8 + own))
                                 : make_float2(0, 0);
        sums[j * 4] = sums[j * 4 + 2] = first.x;
        sums[j * 4 + 1] = sums[j * 4 + 3] = first.y;
    }
    products_made(sums);
}

/* gelu_tanh of what lies there, in pairs: it may still be on its way to memory. */
__device__ static void activate_all(bf16 (*results)[TILE], uint32_t (&pairs)[SUMS / 2])
{
#pragma unroll
    for (int k = 0; k < PANEL / STEP; k++) {
        uint32_t kept[4];

        load_four(kept, corner_of_panel(results, k));
#pragma unroll
        for (int m = 0; m < 4; m++) {
            const float2 x = two_of(kept[m]);
            pairs[k * 4 + m] =
                pair_of(x.x * gelu_share<bf16>(x.x), x.y * gelu_share<bf16>(x.y));
        }
    }
}

__device__ static void store_pairs(const uint32_t (&pairs)[SUMS / 2], bf16 (*results)[TILE])
{
#pragma unroll
    for (int k = 0; k < PANEL / STEP; k++) {
        const uint32_t four[4] = { pairs[k * 4], pairs[k * 4 + 1], pairs[k * 4 + 2],
                                   pairs[k * 4 + 3] };
        store_four(corner_of_panel(results, k), four);
    }
}

/* The rounded product times the slope at what lies there, in its place. */
__device__ static void slope_all(const float (&sums)[SUMS], bf16 (*results)[TILE])
{
#pragma unroll
    for (int k = 0; k < PANEL / STEP; k++) {
        bf16 *const corner = corner_of_panel(results, k);
        uint32_t pairs[4];

        load_four(pairs, corner);
#pragma unroll
        for (int m = 0; m < 4; m++) {
            const float2 x = two_of(pairs[m]);
            const float2 flow = two_of(pair_of(sums[k * 8 + m * 2], sums[k * 8 + m * 2 + 1]));
            pairs[m] = pair_of(flow.x * gelu_tanh_slope<bf16>(x.x),
                               flow.y * gelu_tanh_slope<bf16>(x.y));
        }
        store_four(corner, pairs);
    }
}

/* Sums of parts of `left` rows; a warp has 64 columns of a part. partial: (part, column) from the tile's first part and the panel's first
 * column on. */
__device__ static void sum_parts_of(const bf16 (*results)[TILE], const struct sizes &e,
                                    int left, int columns_left, float *partial)
{
    const int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP % WARPS_OF_GROUP;

    for (int n = warp; n < BOXES * (SIDE / e.part); n += WARPS_OF_GROUP) {
        const int b = n % BOXES, part = n / BOXES, first = part * e.part;
        const int end = first + e.part < left ? first + e.part : left;
        const char *from = (const char *)results[b] + lane % 4 * 4;
        float2 sum = make_float2(0, 0);

#pragma unroll 8
        for (int row = first; row < end; row++) {
            const float2 x =
                two_of(*(const uint32_t *)(from + row * ROW_BYTES + (lane / 4 ^ row % 8) * 16));
            sum.x += x.x;
            sum.y += x.y;
        }
        if (first < left && b * SIDE + lane * 2 < columns_left)
            *(float2 *)(partial + (int64_t)part * e.columns + b * SIDE + lane * 2) = sum;
    }
}

/* The kernel ---------------------------------------------------------------------------------- */

/* bias: WITH_GELU. partial: WITH_SLOPE, NULL if nobody wants sums. */
template <enum ending ENDING, int ACROSS>
__global__ void __launch_bounds__(THREADS_OF_ALL, 1)
    linear_panels(const __grid_constant__ struct maps maps, struct sizes e, const bf16 *bias,
                  float *partial)
{
    extern __shared__ char raw[];
    struct linear_room *room = (struct linear_room *)align_up(raw);
    const struct share share(e.panels, e.tiles);
    const int own = (int)threadIdx.x / GROUP, column = share.kind * PANEL;
    const int columns_left = e.columns - column;
    const bool is_first = threadIdx.x % GROUP == 0;

    if (threadIdx.x == 0) {
        room->ring.make(1);
        for (int d = 0; d < DEPTH; d++)
            barrier_make(&room->weights_there[d], 1);
        for (int g = 0; g < PAIR; g++)
            barrier_make(&room->kept_there[g], 1);
        barriers_made();
    }
    __syncthreads();
    if (own == PAIR) {
        registers_give<BRINGER_REGISTERS>();
        if (is_first)
            fetch<ACROSS>(maps, room, e, share);
        return;
    }
    registers_take<PAIR_REGISTERS>();
    if (own == 1)
        meet_passing(TURN, PAIR * GROUP); /* the other begins */
    bf16(*const results)[TILE] = room->results[own];
    for (int n = own; n < share.count; n += PAIR) {
        const int row = (share.first + n * share.apart) * SIDE;
        float sums[SUMS];

        if (ENDING == WITH_GELU)
            begin_with(sums, bias + column, columns_left);
        if (ENDING == WITH_SLOPE && is_first) {
            boxes_read<0>();
            barrier_expect(&room->kept_there[own], BOXES * TILE_BYTES);
            for (int b = 0; b < BOXES; b++)
                box_load(results[b], &maps.kept, &room->kept_there[own], column + b * SIDE,
                         row);
        }
        meet(TURN + own, PAIR * GROUP);
        multiply<ACROSS, ENDING == WITH_GELU>(sums, room, e, n, is_first);
        if (n + 1 < share.count)
            meet_passing(TURN + 1 - own, PAIR * GROUP);
        products_wait<0>();
        products_made(sums);
        if (is_first)
            barrier_arrive(&room->ring.empty[(n * e.depth + e.depth - 1) % SLOTS]);
        if (ENDING == STORED) {
            await_stored(own, is_first);
            store_product(sums, results);
            store_panel(&maps.y, results, own, column, row, is_first);
        } else if (ENDING == WITH_GELU) {
            uint32_t pairs[SUMS / 2];

            await_stored(own, is_first);
            store_product(sums, results);
            store_panel(&maps.kept, results, own, column, row, is_first);
            activate_all(results, pairs);
            await_stored(own, is_first);
            store_pairs(pairs, results);
            store_panel(&maps.y, results, own, column, row, is_first);
        } else {
            barrier_wait(&room->kept_there[own], n / PAIR & 1);
            slope_all(sums, results);
            store_panel(&maps.y, results, own, column, row, is_first);
            if (partial != NULL) {
                sum_parts_of(results, e, e.rows - row, columns_left,
                             partial + (int64_t)(row / e.part) * e.columns + column);
                reads_before_engines();
                meet(INSIDE + own, GROUP); /* all have read what the next is put on */
            }
        }
    }
    if (is_first)
        boxes_stored();
}

/* The ops ------------------------------------------------------------------------------------- */

/* Does y (m,n) of sums over k fit, and is it worth it? */
static bool fits(int64_t m, int64_t n, int64_t k)
{
    enum { LEAST_ROWS = 1024 };

    return cuda_capability == CAPABILITY_HOPPER && m >= LEAST_ROWS && m <= INT_MAX / 2 &&
           k >= SIDE && k <= DEPTH * SIDE && k % 8 == 0 && n % 8 == 0 && n >= 2 * k &&
           n <= PANEL * BLOCKS;
}

static bool are_bf16(const struct kernel_problem *p, int inputs)
{
    bool all = p->out[0].dtype == DTYPE_BF16;

    for (int i = 0; i < inputs; i++)
        all = all && p->in[i].dtype == DTYPE_BF16;
    return all;
}

static bool can_gelu(const struct kernel_problem *p)
{
    const int64_t *x = p->in[0].shape.dim;

    return are_bf16(p, 3) && fits(x[0], p->out[0].shape.dim[1], x[1]);
}

static bool can_grad(const struct kernel_problem *p)
{
    const int64_t *dy = p->in[0].shape.dim;

    return are_bf16(p, 2) && fits(dy[0], p->out[0].shape.dim[1], dy[1]);
}

static bool can_slope(const struct kernel_problem *p)
{
    return can_grad(p) && p->in[2].dtype == DTYPE_BF16 &&
           p->attrs.activation == ACTIVATION_GELU_TANH;
}

template <enum ending ENDING, int ACROSS>
static void launch(const struct kernel_call *call, const struct maps &maps,
                   const struct sizes &e, const bf16 *bias, float *partial)
{
    const int shares = BLOCKS / e.panels < e.tiles ? BLOCKS / e.panels : e.tiles;
    const size_t shared = sizeof(struct linear_room) + ATOM;

    if (cudaFuncSetAttribute((const void *)linear_panels<ENDING, ACROSS>,
                             cudaFuncAttributeMaxDynamicSharedMemorySize,
                             (int)shared) == cudaSuccess)
        linear_panels<ENDING, ACROSS>
            <<<(unsigned)(shares * e.panels), THREADS_OF_ALL, shared, stream_of(call)>>>(
                maps, e, bias, partial);
    stream_check(call->stream, call->problem->op);
}

/* across: numbers of one k lie side by side in w. */
template <enum ending ENDING>
static void run(const struct kernel_call *call, bool across, const void *kept, const void *bias,
                float *partial)
{
    const int64_t m = call->problem->in[0].shape.dim[0], k = call->problem->in[0].shape.dim[1];
    const int64_t n = call->problem->out[0].shape.dim[1];
    const struct sizes e = { (int)m,
                             (int)n,
                             (int)blocks_of(m, SIDE),
                             (int)blocks_of(n, PANEL),
                             (int)blocks_of(k, SIDE),
                             (int)sum_rows_part(m) };
    struct maps maps;

    if (!box_map(call->stream, &maps.x, call->in[0], m, k, SIDE) ||
        !box_map(call->stream, &maps.w, call->in[1], across ? k : n, across ? n : k, SIDE) ||
        !box_map(call->stream, &maps.kept, kept ? kept : call->out[0], m, n, SIDE) ||
        !box_map(call->stream, &maps.y, call->out[0], m, n, SIDE))
        return;
    if (across)
        launch<ENDING, 1>(call, maps, e, (const bf16 *)bias, partial);
    else
        launch<ENDING, 0>(call, maps, e, (const bf16 *)bias, partial);
}

static bool is_plain(const struct kernel_call *call)
{
    return call->problem->in[1].layout == LAYOUT_PLAIN;
}

static void run_gelu(const struct kernel_call *call)
{
    run<WITH_GELU>(call, !is_plain(call), call->out[1], call->in[2], NULL);
}

static void run_grad(const struct kernel_call *call)
{
    run<STORED>(call, is_plain(call), NULL, NULL, NULL);
}

static size_t slope_scratch(const struct kernel_problem *p)
{
    const int64_t *dx = p->out[0].shape.dim;

    return p->n_out > 1 ? sum_rows_scratch(dx[0], dx[1]) : 0;
}

static void run_slope(const struct kernel_call *call)
{
    const int64_t *dx = call->problem->out[0].shape.dim;
    float *partial = call->problem->n_out > 1 ? (float *)call->scratch : NULL;

    run<WITH_SLOPE>(call, is_plain(call), call->in[2], NULL, partial);
    if (partial != NULL)
        sum_rows_finish(call->stream, partial, dx[0], dx[1], (float *)call->out[1]);
}

extern "C" const struct kernel cuda_linear_hopper_rows[] = {
    { "linear_gelu", "hopper", can_gelu, NULL, NULL, NULL, run_gelu },
    { "linear_grad_input", "hopper", can_grad, NULL, NULL, NULL, run_grad },
    { "linear_grad_through", "hopper", can_slope, slope_scratch, NULL, NULL, run_slope },
    { NULL, NULL, NULL, NULL, NULL, NULL, NULL },
};
