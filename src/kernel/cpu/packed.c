/* SPDX-License-Identifier: MIT */
/* packed.c - panels of a matrix that is used many times, and products with them.
 *
 * A block of a panel (up to 128 KiB) is read by every row tile in turn from the second cache; where B
 * is larger than that, as 4 MiB for an LSTM of 512 units, it comes from the third once for all rows.
 */
#include "kernel/cpu/packed.h"

#include <string.h>

struct packed packed_of(const struct tile_isa *isa, enum packed_order order, int64_t depth,
                        int64_t columns, int64_t n_gates, int64_t rows)
{
    struct packed packed = {
        .isa = isa, .order = order, .depth = depth, .columns = columns, .n_gates = n_gates
    };

    packed.n_panels = order == PACKED_GATES ? gemm_ceil(columns / n_gates, isa->lanes)
                                            : gemm_panels(isa, isa->rows, rows, columns);
    return packed;
}

/* Vectors of all panels. */
static int64_t vectors_of(const struct packed *packed)
{
    return packed->order == PACKED_GATES ? packed->n_panels * packed->n_gates
                                         : gemm_ceil(packed->columns, packed->isa->lanes);
}

int64_t packed_floats(const struct packed *packed)
{
#ifdef HAVE_AMX
    if (packed->by_amx)
        return packed_amx_floats(packed);
#endif
    return vectors_of(packed) * packed->isa->lanes * packed->depth;
}

int64_t packed_columns(const struct packed *packed)
{
    return packed->order == PACKED_GATES ? vectors_of(packed) * packed->isa->lanes
                                         : packed->columns;
}

/* Panel p: its first column in C, and how wide it is. */
static int64_t panel_at(const struct packed *packed, int64_t p, int64_t *width)
{
    int64_t first;

    *width = gemm_part(vectors_of(packed), packed->n_panels, p, &first) * packed->isa->lanes;
    return first * packed->isa->lanes;
}

struct filling {
    const struct packed *packed;
    const float *b;
};

/* Columns of all gates of the same units, side by side, row after row. */
static void fill_gates(const struct packed *packed, const float *b, int64_t p, float *to)
{
    const int64_t units = packed->columns / packed->n_gates, lanes = packed->isa->lanes;
    const int64_t left = units - p * lanes, n = left < lanes ? left : lanes;
    const float *from = b + p * lanes;

    for (int64_t k = 0; k < packed->depth; k++, from += packed->columns) {
        for (int64_t g = 0; g < packed->n_gates; g++, to += lanes) {
            memcpy(to, from + g * units, (size_t)n * sizeof *to);
            if (n < lanes)
                memset(to + n, 0, (size_t)(lanes - n) * sizeof *to);
        }
    }
}

static void fill_panel(void *arg, size_t p)
{
    const struct filling *filling = arg;
    const struct packed *packed = filling->packed;
    int64_t width;
    const int64_t first = panel_at(packed, (int64_t)p, &width);
    const int64_t left = packed->columns - first;
    const int n = (int)(left < width ? left : width);
    float *to = packed->panels + first * packed->depth;

    if (packed->order == PACKED_GATES)
        fill_gates(packed, filling->b, (int64_t)p, to);
    else if (packed->order == PACKED_STRAIGHT)
        packed->isa->pack(filling->b + first, packed->columns, (int)packed->depth, n, to,
                          (int)width);
    else
        packed->isa->transpose(filling->b + first * packed->depth, packed->depth, n,
                               (int)packed->depth, to, width, true);
}

void packed_fill(const struct packed *packed, const float *b, struct pool *pool)
{
    struct filling filling = { packed, b };

#ifdef HAVE_AMX
    if (packed->by_amx) {
        packed_amx_fill(packed, b, pool);
        return;
    }
#endif
    pool_for(pool, (size_t)packed->n_panels, fill_panel, &filling);
}

/* One panel by some rows. */
struct product {
    const float *a;
    int64_t a_row, rows;
    const float *b; /* (depth, width) */
    int64_t depth, width;
    float *c;
    int64_t c_row;
    int last; /* columns in the panel's last vector */
    bool accumulate;
};

/* Vectors [first, first + vecs) of a panel, steps [k0, k0 + depth). */
static void multiply_block(const struct tile_isa *isa, const struct product *p, int64_t k0,
                           int depth, int64_t first, int vecs)
{
    static const ptrdiff_t no_offset[1] = { 0 };
    const bool is_last = (first + vecs) * isa->lanes == p->width;
    struct tile tile = {
        .segment = no_offset,
        .n_segments = 1,
        .depth = depth,
        .b = p->b + k0 * p->width + first * isa->lanes,
        .b_step = p->width,
        .last = is_last ? p->last : isa->lanes,
        .b_full = true,
        .accumulate = p->accumulate || k0 > 0,
    };
    const int64_t n_tiles = gemm_ceil(p->rows, isa->rows[vecs]);

    for (int64_t t = 0; t < n_tiles; t++) {
        int64_t at;
        const int count = (int)gemm_part(p->rows, n_tiles, t, &at);

        for (int i = 0; i < count; i++) {
            tile.a[i] = p->a + (at + i) * p->a_row + k0;
            tile.c[i] = p->c + (at + i) * p->c_row + first * isa->lanes;
        }
        isa->by_rows(&tile, count, vecs);
    }
}

static void multiply_panel(const struct tile_isa *isa, const struct product *p)
{
    const int64_t n_blocks = gemm_ceil(p->depth, PACKED_DEPTH), vecs = p->width / isa->lanes;
    const int64_t n_cuts = gemm_ceil(vecs, isa->vecs);

    for (int64_t block = 0; block < n_blocks; block++) {
        int64_t k0, first;
        const int depth = (int)gemm_part(p->depth, n_blocks, block, &k0);

        for (int64_t cut = 0; cut < n_cuts; cut++) {
            const int64_t some = gemm_part(vecs, n_cuts, cut, &first);
            multiply_block(isa, p, k0, depth, first, (int)some);
        }
    }
}

void packed_multiply(const struct packed *packed, const float *a, int64_t a_row, int64_t rows,
                     float *c, int64_t c_row, bool accumulate)
{
    const int64_t columns = packed_columns(packed);

#ifdef HAVE_AMX
    if (packed->by_amx) {
        packed_amx_multiply(packed, a, a_row, rows, c, c_row, accumulate);
        return;
    }
#endif
    for (int64_t p = 0; p < packed->n_panels; p++) {
        int64_t width;
        const int64_t first = panel_at(packed, p, &width), left = columns - first;

        multiply_panel(packed->isa, &(struct product){
                                        .a = a,
                                        .a_row = a_row,
                                        .rows = rows,
                                        .b = packed->panels + first * packed->depth,
                                        .depth = packed->depth,
                                        .width = width,
                                        .c = c + first,
                                        .c_row = c_row,
                                        .last = (int)((left < width ? left : width) -
                                                      (width - packed->isa->lanes)),
                                        .accumulate = accumulate,
                                    });
    }
}
