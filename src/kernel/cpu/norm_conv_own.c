/* SPDX-License-Identifier: MIT */
/* norm_conv_own.c - the products of norm_conv.h by tiles of AVX (gemm.h), and the rows that are made of them. */
#include "kernel/cpu/gemm.h"
#include "kernel/cpu/norm_conv.h"
#include "kernel/cpu/rows.h"

static size_t tile_packed_bytes(int64_t k, int64_t n)
{
    return gemm_packed_bytes(tile_current(), n, k);
}

static void tile_pack(const float *w, int64_t row, int64_t column, int64_t k, int64_t n,
                      struct pool *pool, void *to)
{
    const struct gemm gemm = { .n = n, .k = k, .b = w, .b_row = row, .b_column = column };

    gemm_pack_b(tile_current(), &gemm, pool, to);
}

static struct gemm weight_product(int64_t rows, int64_t c, int64_t o)
{
    return (struct gemm){
        .m = c,
        .n = o,
        .k = rows,
        .a_row = 1,
        .a_column = c,
        .b_row = o,
        .b_column = 1,
        .c_row = o,
        .accumulate = true,
    };
}

/* Of fewer rows panels are shorter, more of them fit into the room for all, and that may be a little more. */
static size_t tile_room_bytes(int64_t rows, int64_t c, int64_t o, bool is_back)
{
    size_t most = 0;

    for (int64_t few = is_back ? 1 : rows + 1; few <= rows; few++) {
        const struct gemm gemm = weight_product(few, c, o);
        const size_t bytes = gemm_scratch_bytes(tile_current(), &gemm) / GEMM_TASKS;
        most = bytes > most ? bytes : most;
    }
    return most;
}

static void tile_multiply(const float *a, int64_t rows, int64_t k, const void *packed,
                          int64_t n, float *to, void *room)
{
    const struct gemm gemm = {
        .m = rows,
        .n = n,
        .k = k,
        .a = a,
        .a_row = k,
        .a_column = 1,
        .b = packed,
        .b_packed = true,
        .c = to,
        .c_row = n,
    };

    gemm_run(tile_current(), &gemm, NULL, room);
}

static void tile_add_weight(const float *a, const float *dz, int64_t rows, int64_t c, int64_t o,
                            float *dw, void *room)
{
    struct gemm gemm = weight_product(rows, c, o);

    gemm.a = a;
    gemm.b = dz;
    gemm.c = dw;
    gemm_run(tile_current(), &gemm, NULL, room);
}

static const struct norm_products products = {
    .packed_bytes = tile_packed_bytes,
    .pack = tile_pack,
    .room_bytes = tile_room_bytes,
    .multiply = tile_multiply,
    .add_weight = tile_add_weight,
    .row_grain = 1,
};

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
        .op = (text), .name = "own", .can_run = norm_conv_can_run,                             \
        .scratch_bytes = scratch_bytes, .run = run                                             \
    }

const struct kernel kernel_norm_conv_rows[] = {
    ROW("conv2d_stats"),
    ROW("norm_conv2d"),
    ROW("norm_conv2d_stats"),
    ROW("conv2d_stats_grad"),
    ROW("norm_conv2d_grad"),
    ROW("norm_conv2d_stats_grad"),
    { 0 },
};
