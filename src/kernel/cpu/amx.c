/* SPDX-License-Identifier: MIT */
/* amx.c - the linear layer and its gradients by AMX (amx.h).
 *
 * Of A and B the one with fewer lines (rows of A, columns of B) is `kept`, the other one passes:
 *
 *   blocks of what is kept and of the shared dimension, some 4 MiB packed: all threads pack it
 *     groups of what passes, some 700 KiB packed: a thread packs what it uses next, in L2
 *       32 lines of what is kept, which come from the third cache once a group
 *         32 lines of the group: 32 x 32 of C, held in tile registers through the block
 *
 * The sum so far of an element of C goes on through all blocks, so its bits depend on neither their
 * sizes nor on who computes it.
 */
#include "kernel/cpu/amx.h"

#include <string.h>

#include "kernel/cpu/processor.h"
#include "kernel/cpu/rows.h"

enum {
    DEPTH_STEPS = 16,        /* of a block, at most: 512 of the shared dimension */
    KEPT_BYTES = 4608 << 10, /* of a block, packed */
    GROUP_BYTES = 768 << 10, /* of a group, packed */
    SIXTEEN = 16,
};

static int64_t at_most(int64_t value, int64_t most)
{
    return value < most ? value : most;
}

struct plan {
    const struct gemm *g;
    struct amx_side kept, passing;
    bool is_short;                    /* two parts */
    int64_t packed;                   /* bf16 of a side's packed form a step */
    int64_t steps;                    /* of the shared dimension */
    int64_t block_steps;              /* of a block, at most */
    int64_t n_kept, n_passing;        /* 32 lines each */
    int64_t block_tiles, group;       /* of a block, of a group, at most */
    uint16_t *kept_pack, *group_pack; /* group_pack: of the first task */
    /* The block that is worked on */
    int64_t step, n_steps, tile, n_tiles, n_tasks;
};

/* Bytes of 32 lines in a block. */
static int64_t side_bytes(const struct plan *plan)
{
    return plan->block_steps * plan->packed * (int64_t)sizeof(uint16_t);
}

static struct plan make_plan(const struct gemm *g, bool is_short)
{
    const struct amx_side a = { g->a, g->a_row, g->a_column, g->m, false, is_short };
    const struct amx_side b = { g->b, g->b_column, g->b_row, g->n, true, is_short };
    struct plan plan = {
        .g = g,
        .kept = g->m > g->n ? b : a,
        .passing = g->m > g->n ? a : b,
        .is_short = is_short,
        .packed = is_short ? AMX_SHORT : AMX_PACKED,
        .steps = gemm_ceil(g->k, AMX_STEP),
    };

    plan.n_kept = gemm_ceil(plan.kept.n_lines, AMX_SIDE);
    plan.n_passing = gemm_ceil(plan.passing.n_lines, AMX_SIDE);
    plan.block_steps = gemm_ceil(plan.steps, gemm_ceil(plan.steps, DEPTH_STEPS));
    plan.block_tiles = at_most(plan.n_kept, KEPT_BYTES / side_bytes(&plan));
    plan.group = at_most(plan.n_passing, GROUP_BYTES / side_bytes(&plan));
    return plan;
}

static size_t kept_bytes(const struct plan *plan)
{
    return (size_t)(plan->block_tiles * side_bytes(plan));
}

static size_t group_bytes(const struct plan *plan)
{
    return (size_t)(plan->group * side_bytes(plan));
}

size_t amx_scratch_bytes(const struct gemm *gemm, bool is_short)
{
    if (gemm->m == 0 || gemm->n == 0 || gemm->k == 0)
        return 0;
    const struct plan plan = make_plan(gemm, is_short);

    return kept_bytes(&plan) + group_bytes(&plan) * (size_t)at_most(GEMM_TASKS, plan.n_passing);
}

void amx_pack_lines(const struct amx_side *side, int64_t line, int64_t k0, int64_t k,
                    uint16_t *to)
{
    const int64_t lines = at_most(side->n_lines - line, SIXTEEN);
    const int64_t first = at_most(k - k0, SIXTEEN), second = k - k0 - first;
    const float *from = side->from + line * side->line_step + k0 * side->k_step;
    const bool by_lines = side->k_step == 1; /* a row as it lies is a line */
    struct amx_lines rows = {
        .first = from,
        .row = by_lines ? side->line_step : side->k_step,
        .n_first = (int)(by_lines ? lines : first),
        .columns_first = (int)(by_lines ? first : lines),
        .turn = by_lines == side->is_b,
        .is_short = side->is_short,
    };

    if (lines <= 0 || first <= 0) {
        for (int part = 0; part < (side->is_short ? 2 : AMX_PARTS); part++)
            memset(to + (ptrdiff_t)part * 2 * 512, 0, 512 * sizeof *to);
        return;
    }
    rows.second = second > 0 ? from + SIXTEEN * side->k_step : from;
    rows.n_second = (int)(by_lines ? lines : at_most(second, SIXTEEN));
    rows.columns_second = (int)(by_lines ? at_most(second, SIXTEEN) : lines);
    if (second <= 0)
        rows.n_second = rows.columns_second = 0;
    amx_pack(&rows, to);
}

/* 32 lines from `line`, all steps of the block. */
static void pack_side(const struct plan *plan, const struct amx_side *side, int64_t line,
                      uint16_t *to)
{
    for (int64_t s = plan->step; s < plan->step + plan->n_steps; s++, to += plan->packed) {
        amx_pack_lines(side, line, s * AMX_STEP, plan->g->k, to);
        amx_pack_lines(side, line + SIXTEEN, s * AMX_STEP, plan->g->k, to + 512);
    }
}

static void pack_kept(void *arg, size_t i)
{
    const struct plan *plan = arg;

    pack_side(plan, &plan->kept, (plan->tile + (int64_t)i) * AMX_SIDE,
              plan->kept_pack + (ptrdiff_t)i * plan->n_steps * plan->packed);
}

static void bend(float *c, int64_t c_row, int64_t rows, int64_t columns)
{
    for (int64_t i = 0; i < rows; i++, c += c_row) {
        for (int64_t j = 0; j < columns; j++)
            c[j] = c[j] < 0 ? 0 : c[j]; /* a NaN stays */
    }
}

/* Through a copy of the whole block. */
static void multiply_part(const struct amx_product *product, int64_t rows, int64_t columns)
{
    _Alignas(64) float copy[AMX_SIDE * AMX_SIDE], some[AMX_SIDE];
    const size_t bytes = (size_t)columns * sizeof(float);
    struct amx_product p = *product;

    memset(copy, 0, sizeof copy);
    memset(some, 0, sizeof some);
    for (int64_t i = 0; i < rows && p.begin == AMX_ADD; i++)
        memcpy(copy + i * AMX_SIDE, p.c + i * p.c_row, bytes);
    if (p.begin == AMX_BIAS)
        memcpy(some, p.bias, bytes);
    p.bias = some;
    p.c = copy;
    p.c_row = AMX_SIDE;
    amx_multiply_stretches(&p);
    for (int64_t i = 0; i < rows; i++)
        memcpy(product->c + i * product->c_row, copy + i * AMX_SIDE, bytes);
}

void amx_multiply_some(const struct amx_product *product, int64_t rows, int64_t columns)
{
    if (rows == AMX_SIDE && columns == AMX_SIDE)
        amx_multiply_stretches(product);
    else
        multiply_part(product, rows, columns);
}

void amx_block(const uint16_t *a, const uint16_t *b, int64_t steps, enum amx_begin begin,
               const float *bias, float *c, int64_t c_row, int64_t rows, int64_t columns)
{
    const struct amx_stretch stretch = { a, b, steps, AMX_PACKED, AMX_PACKED };
    const struct amx_product product = { &stretch, 1, false, true, begin, bias, c, c_row };

    amx_multiply_some(&product, rows, columns);
}

/* The block of C at (row, column). */
static void multiply_block(const struct plan *plan, const uint16_t *a, const uint16_t *b,
                           int64_t row, int64_t column)
{
    const struct gemm *g = plan->g;
    const int64_t rows = at_most(g->m - row, AMX_SIDE),
                  columns = at_most(g->n - column, AMX_SIDE);
    const enum amx_begin begin = plan->step > 0 || g->accumulate ? AMX_ADD
                                 : g->bias != NULL               ? AMX_BIAS
                                                                 : AMX_ZERO;
    const struct amx_stretch stretch = { a, b, plan->n_steps, plan->packed, plan->packed };
    const struct amx_product product = {
        .stretches = &stretch,
        .n_stretches = 1,
        .is_short = plan->is_short,
        .is_far = true,
        .begin = begin,
        .bias = begin == AMX_BIAS ? g->bias + column : NULL,
        .c = g->c + row * g->c_row + column,
        .c_row = g->c_row,
    };

    amx_multiply_some(&product, rows, columns);
    if (g->relu && plan->step + plan->n_steps == plan->steps)
        bend(product.c, g->c_row, rows, columns);
}

/* The lines of one task: those that pass. */
static void run_task(void *arg, size_t i)
{
    const struct plan *plan = arg;
    const bool keeps_b = plan->kept.is_b;
    const ptrdiff_t packed = plan->n_steps * plan->packed;
    uint16_t *group = plan->group_pack + i * (group_bytes(plan) / sizeof *group);
    int64_t at;
    const int64_t count = gemm_part(plan->n_passing, plan->n_tasks, (int64_t)i, &at);
    const int64_t end = at + count;

    amx_begin();
    for (int64_t n; at < end; at += n) {
        n = at_most(end - at, plan->group);
        for (int64_t p = 0; p < n; p++)
            pack_side(plan, &plan->passing, (at + p) * AMX_SIDE, group + p * packed);
        for (int64_t t = 0; t < plan->n_tiles; t++) {
            const uint16_t *kept = plan->kept_pack + t * packed;
            const int64_t line = (plan->tile + t) * AMX_SIDE;
            for (int64_t p = 0; p < n; p++) {
                const uint16_t *passing = group + p * packed;
                if (keeps_b)
                    multiply_block(plan, passing, kept, (at + p) * AMX_SIDE, line);
                else
                    multiply_block(plan, kept, passing, line, (at + p) * AMX_SIDE);
            }
        }
    }
    amx_end();
}

void amx_run(const struct gemm *gemm, bool is_short, struct pool *pool, void *scratch)
{
    struct plan plan = make_plan(gemm, is_short);
    const int64_t threads = pool == NULL ? 1 : pool_size(pool);
    const int64_t n_blocks = gemm_ceil(plan.steps, plan.block_steps);
    const int64_t n_kept_blocks = gemm_ceil(plan.n_kept, plan.block_tiles);

    plan.kept_pack = scratch;
    plan.group_pack = plan.kept_pack + kept_bytes(&plan) / sizeof *plan.kept_pack;
    plan.n_tasks = at_most(threads == 1 ? 1 : at_most(2 * threads, GEMM_TASKS), plan.n_passing);
    for (int64_t r = 0; r < n_kept_blocks; r++) {
        plan.n_tiles = gemm_part(plan.n_kept, n_kept_blocks, r, &plan.tile);
        for (int64_t b = 0; b < n_blocks; b++) {
            plan.n_steps = gemm_part(plan.steps, n_blocks, b, &plan.step);
            pool_for(pool, (size_t)plan.n_tiles, pack_kept, &plan);
            pool_for(pool, (size_t)plan.n_tasks, run_task, &plan);
        }
    }
}
