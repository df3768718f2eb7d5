/* SPDX-License-Identifier: MIT */
/* packed_amx.c - packed.h by AMX (amx.h): panels of 32 columns, three bf16 a number.
 *
 * A step of a recurrence has few rows: some 64 of them are packed, and each panel of B, which comes from the
 * third cache, is used by all of them while the next one is asked for.
 */
#include "kernel/cpu/amx.h"
#include "kernel/cpu/packed.h"

enum { SIXTEEN = 16, TILES = 2 /* of rows at once */, STEPS = 16 /* likewise */ };

static int64_t at_most(int64_t value, int64_t most)
{
    return value < most ? value : most;
}

/* 16 columns each. */
static int64_t registers_of(const struct packed *packed)
{
    return gemm_ceil(packed_columns(packed), SIXTEEN);
}

static int64_t steps_of(const struct packed *packed)
{
    return gemm_ceil(packed->depth, AMX_STEP);
}

int64_t packed_amx_floats(const struct packed *packed)
{
    return gemm_ceil(registers_of(packed), 2) * steps_of(packed) * AMX_PACKED / 2;
}

/* The columns of register r, in C's order. */
static struct amx_side columns_of(const struct packed *packed, const float *b, int64_t r)
{
    struct amx_side side = { .line_step = 1, .k_step = packed->columns, .is_b = true };

    if (packed->order == PACKED_GATES) {
        const int64_t units = packed->columns / packed->n_gates;
        const int64_t unit = r / packed->n_gates * SIXTEEN;
        side.from = b + r % packed->n_gates * units + unit;
        side.n_lines = units - unit;
        return side;
    }
    side.n_lines = packed->columns - r * SIXTEEN;
    if (packed->order == PACKED_TURNED) {
        side.line_step = packed->depth;
        side.k_step = 1;
    }
    side.from = b + r * SIXTEEN * side.line_step;
    return side;
}

struct filling {
    const struct packed *packed;
    const float *b;
};

static void fill_panel(void *arg, size_t p)
{
    const struct filling *filling = arg;
    const struct packed *packed = filling->packed;
    const int64_t steps = steps_of(packed), n_registers = registers_of(packed);
    uint16_t *to = (uint16_t *)packed->panels + (ptrdiff_t)p * steps * AMX_PACKED;

    for (int64_t i = 0; i < 2; i++) {
        const int64_t r = 2 * (int64_t)p + i;
        struct amx_side side = columns_of(packed, filling->b, r < n_registers ? r : 0);
        if (r >= n_registers)
            side.n_lines = 0;
        for (int64_t s = 0; s < steps; s++)
            amx_pack_lines(&side, 0, s * AMX_STEP, packed->depth,
                           to + s * AMX_PACKED + i * SIXTEEN * AMX_STEP);
    }
}

void packed_amx_fill(const struct packed *packed, const float *b, struct pool *pool)
{
    struct filling filling = { packed, b };

    pool_for(pool, (size_t)gemm_ceil(registers_of(packed), 2), fill_panel, &filling);
}

/* Asks for a panel's steps: the processor does not guess where the next panel's part begins. */
static void fetch(const uint16_t *from, int64_t steps)
{
    for (int64_t i = 0; i < steps * AMX_PACKED; i += 32)
        __builtin_prefetch(from + i, 0, 2);
}

void packed_amx_multiply(const struct packed *packed, const float *a, int64_t a_row,
                         int64_t rows, float *c, int64_t c_row, bool accumulate)
{
    _Alignas(64) uint16_t a_pack[TILES * STEPS * AMX_PACKED];
    const struct amx_side side = { a, a_row, 1, rows, false, false };
    const int64_t steps = steps_of(packed), columns = packed_columns(packed);
    const int64_t n_panels = gemm_ceil(registers_of(packed), 2);

    amx_begin();
    for (int64_t row = 0; row < rows; row += TILES * AMX_SIDE) {
        const int64_t n_tiles = at_most(gemm_ceil(rows - row, AMX_SIDE), TILES);
        for (int64_t step = 0; step < steps; step += STEPS) {
            const int64_t n_steps = at_most(steps - step, STEPS);
            const enum amx_begin begin = accumulate || step > 0 ? AMX_ADD : AMX_ZERO;
            const uint16_t *b = (const uint16_t *)packed->panels + step * AMX_PACKED;
            for (int64_t t = 0; t < 2 * n_tiles; t++) {
                for (int64_t s = 0; s < n_steps; s++)
                    amx_pack_lines(&side, row + t * SIXTEEN, (step + s) * AMX_STEP,
                                   packed->depth,
                                   a_pack + (t / 2 * n_steps + s) * AMX_PACKED +
                                       t % 2 * SIXTEEN * AMX_STEP);
            }
            for (int64_t p = 0; p < n_panels; p++, b += steps * AMX_PACKED) {
                if (p + 1 < n_panels)
                    fetch(b + steps * AMX_PACKED, n_steps);
                for (int64_t t = 0; t < n_tiles; t++) {
                    const int64_t at = row + t * AMX_SIDE, column = p * AMX_SIDE;
                    amx_block(a_pack + t * n_steps * AMX_PACKED, b, n_steps, begin, NULL,
                              c + at * c_row + column, c_row, at_most(rows - at, AMX_SIDE),
                              at_most(columns - column, AMX_SIDE));
                }
            }
        }
    }
    amx_end();
}
