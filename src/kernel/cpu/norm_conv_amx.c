/* SPDX-License-Identifier: MIT */
/* norm_conv_amx.c - the products of norm_conv.h by tile registers, with two bf16 a float (amx.h): rough.
 *
 * A register of A has 16 places of a chunk. Weights are packed once a call, rows once a product; the gradient of the weights
 * packs both sides, a step being 32 places.
 */
#include "kernel/cpu/amx.h"
#include "kernel/cpu/norm_conv.h"
#include "kernel/cpu/processor.h"
#include "kernel/cpu/rows.h"

enum { CHANNELS = 16 }; /* fewer leave registers empty */

/* Of n numbers along the side or the depth of a block: both have 32. */
static int64_t blocks(int64_t n)
{
    return gemm_ceil(n, AMX_SIDE);
}

static size_t step_bytes(int64_t steps)
{
    return (size_t)(steps * AMX_SHORT) * sizeof(uint16_t);
}

static size_t packed_bytes(int64_t k, int64_t n)
{
    return step_bytes(blocks(k) * blocks(n));
}

/* 32 lines from `line`, all steps of k. */
static void pack_side(const struct amx_side *side, int64_t line, int64_t k, uint16_t *to)
{
    for (int64_t k0 = 0; k0 < k; k0 += AMX_STEP, to += AMX_SHORT) {
        amx_pack_lines(side, line, k0, k, to);
        amx_pack_lines(side, line + AMX_SIDE / 2, k0, k, to + 512);
    }
}

struct packing {
    struct amx_side side;
    int64_t k;
    uint16_t *to;
};

static void pack_panel(void *arg, size_t i)
{
    const struct packing *packing = arg;

    pack_side(&packing->side, (int64_t)i * AMX_SIDE, packing->k,
              packing->to + (int64_t)i * blocks(packing->k) * AMX_SHORT);
}

static void pack(const float *w, int64_t row, int64_t column, int64_t k, int64_t n,
                 struct pool *pool, void *to)
{
    struct packing packing = { .side = { .from = w,
                                         .line_step = column,
                                         .k_step = row,
                                         .n_lines = n,
                                         .is_b = true,
                                         .is_short = true },
                               .k = k,
                               .to = to };

    pool_for(pool, (size_t)blocks(n), pack_panel, &packing);
}

static size_t room_bytes(int64_t rows, int64_t c, int64_t o, bool is_back)
{
    const int64_t multiply = blocks(rows) * blocks(is_back ? o : c);
    const int64_t weight = is_back ? blocks(rows) * (blocks(c) + blocks(o)) : 0;

    return step_bytes(multiply > weight ? multiply : weight);
}

static int64_t at_most(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* A block of 32 by 32, of which so many rows and columns are there. */
static void multiply_block(const uint16_t *a, const uint16_t *b, int64_t steps,
                           enum amx_begin begin, float *c, int64_t c_row, int64_t rows,
                           int64_t columns)
{
    const struct amx_stretch stretch = { a, b, steps, AMX_SHORT, AMX_SHORT };
    const struct amx_product product = {
        .stretches = &stretch,
        .n_stretches = 1,
        .is_short = true,
        .begin = begin,
        .c = c,
        .c_row = c_row,
    };

    amx_multiply_some(&product, at_most(rows, AMX_SIDE), at_most(columns, AMX_SIDE));
}

static void multiply(const float *a, int64_t rows, int64_t k, const void *packed, int64_t n,
                     float *to, void *room)
{
    const struct amx_side side = {
        .from = a, .line_step = k, .k_step = 1, .n_lines = rows, .is_short = true
    };
    const int64_t steps = blocks(k);
    const uint16_t *panels = packed;
    uint16_t *lines = room;

    for (int64_t i = 0; i < blocks(rows); i++)
        pack_side(&side, i * AMX_SIDE, k, lines + i * steps * AMX_SHORT);
    for (int64_t j = 0; j < blocks(n); j++) {
        for (int64_t i = 0; i < blocks(rows); i++)
            multiply_block(lines + i * steps * AMX_SHORT, panels + j * steps * AMX_SHORT, steps,
                           AMX_ZERO, to + i * AMX_SIDE * n + j * AMX_SIDE, n,
                           rows - i * AMX_SIDE, n - j * AMX_SIDE);
    }
}

static void add_weight(const float *a, const float *dz, int64_t rows, int64_t c, int64_t o,
                       float *dw, void *room)
{
    const struct amx_side left = {
        .from = a, .line_step = 1, .k_step = c, .n_lines = c, .is_short = true
    };
    const struct amx_side right = {
        .from = dz, .line_step = 1, .k_step = o, .n_lines = o, .is_b = true, .is_short = true
    };
    const int64_t steps = blocks(rows);
    uint16_t *lines = room, *panels = lines + blocks(c) * steps * AMX_SHORT;

    for (int64_t i = 0; i < blocks(c); i++)
        pack_side(&left, i * AMX_SIDE, rows, lines + i * steps * AMX_SHORT);
    for (int64_t j = 0; j < blocks(o); j++)
        pack_side(&right, j * AMX_SIDE, rows, panels + j * steps * AMX_SHORT);
    for (int64_t i = 0; i < blocks(c); i++) {
        for (int64_t j = 0; j < blocks(o); j++)
            multiply_block(lines + i * steps * AMX_SHORT, panels + j * steps * AMX_SHORT, steps,
                           AMX_ADD, dw + i * AMX_SIDE * o + j * AMX_SIDE, o, c - i * AMX_SIDE,
                           o - j * AMX_SIDE);
    }
}

static const struct norm_products products = {
    .packed_bytes = packed_bytes,
    .pack = pack,
    .room_bytes = room_bytes,
    .multiply = multiply,
    .add_weight = add_weight,
    .begin = amx_begin,
    .end = amx_end,
    .row_grain = AMX_SIDE,
};

static bool can_run(const struct kernel_problem *problem)
{
    const struct shape *w = &problem->in[1].shape;

    return processor_current() >= PROCESSOR_AMX && norm_conv_can_run(problem) &&
           norm_conv_is_pixel(problem) && w->dim[0] >= CHANNELS && w->dim[1] >= CHANNELS;
}

static size_t scratch_bytes(const struct kernel_problem *problem)
{
    return norm_conv_scratch(problem, &products);
}

static void run(const struct kernel_call *call)
{
    norm_conv_run(call, &products);
}

#define ROW(text)                                                                              \
    {                                                                                          \
        .op = (text), .name = "amx_pairs", .can_run = can_run, .scratch_bytes = scratch_bytes, \
        .run = run                                                                             \
    }

const struct kernel kernel_norm_conv_amx_rows[] = {
    ROW("conv2d_stats"),
    ROW("norm_conv2d"),
    ROW("norm_conv2d_stats"),
    ROW("conv2d_stats_grad"),
    ROW("norm_conv2d_grad"),
    ROW("norm_conv2d_stats_grad"),
    { 0 },
};
