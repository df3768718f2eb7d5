/* SPDX-License-Identifier: MIT */
/* gemm.c - blocks and panels around the tiles.
 *
 * C is cut into panels of columns (as wide as a tile) and row tiles; the shared dimension into
 * blocks of at most GEMM_DEPTH. A block of a panel of B (up to 64 KiB) is read by every row
 * tile in turn from the nearest cache. Traffic beyond L2 for m <= 64: A and C once or twice, B
 * once. For larger problems the panels of B are first copied so that they are contiguous
 * (strides of a power of two would fall into one set of the cache, and each row into another
 * page), and A of a gradient of weights likewise, in blocks that stay in L2.
 */
#include "kernel/cpu/gemm.h"

#include <string.h>

#include "kernel/kernel.h"

enum {
    PACK_B_BYTES = 512 << 10, /* packed panels of B that are used together */
    PACK_A_ROWS = 240,        /* rows of A packed together; whole tiles of 12, 8 and 6 */
    FETCH_FLOATS = 32 << 10,  /* B of so many is worth fetching ahead */
    LINE_BYTES = 64,
    MANY_ROWS = 384, /* rows that read a group of panels before the next rows do */
};

const struct tile_isa *tile_current(void)
{
    const char *isa = kernel_isa();

    return strcmp(isa, "avx512") == 0 ? &tile_avx512
           : strcmp(isa, "avx2") == 0 ? &tile_avx2
                                      : NULL;
}

/* Eighths of the cycles that a step of a tile takes: multiply-adds, loads or latency,
 * whichever is most; the loop; and a little for what it takes of B from L2. */
static int64_t tile_cost(int64_t rows, int64_t vecs)
{
    int64_t cost = rows * vecs;

    if (rows + vecs > cost)
        cost = rows + vecs;
    return 4 * (cost < 8 ? 8 : cost) + 4 + vecs;
}

static int64_t panel_cost(int64_t m, int limit, int64_t vecs)
{
    const int64_t tiles = gemm_ceil(m, limit), more = m % tiles;

    return more * tile_cost(m / tiles + 1, vecs) + (tiles - more) * tile_cost(m / tiles, vecs);
}

int gemm_panels(const struct tile_isa *isa, const int *limit, int64_t m, int64_t n)
{
    const int64_t vecs = gemm_ceil(n, isa->lanes);
    int64_t best = 0, best_cost = 0;

    for (int64_t panels = gemm_ceil(vecs, isa->vecs); panels <= gemm_ceil(vecs, 2); panels++) {
        const int64_t width = vecs / panels, more = vecs % panels;
        int64_t cost = (panels - more) * panel_cost(m, limit[width], width);
        if (more > 0)
            cost += more * panel_cost(m, limit[width + 1], width + 1);
        if (best == 0 || cost < best_cost) {
            best = panels;
            best_cost = cost;
        }
    }
    return (int)best;
}

struct plan {
    const struct tile_isa *isa;
    const struct gemm *g;
    bool pack_a, pack_b;
    bool by_columns;
    const int *limit; /* rows of a tile by its vectors */
    int n_panels;
    int group;                      /* panels packed and used together */
    int64_t n_blocks;               /* of the shared dimension */
    int64_t row_parts, panel_parts; /* tasks */
    size_t a_floats, b_floats;      /* scratch of a thread */
    float *scratch;
};

/* Columns of panel p: *first in columns, *vecs wide, *n columns of which exist. */
static void panel_at(const struct plan *plan, int p, int64_t *first, int *vecs, int *n)
{
    const int lanes = plan->isa->lanes;
    int64_t first_vec;

    *vecs = (int)gemm_part(gemm_ceil(plan->g->n, lanes), plan->n_panels, p, &first_vec);
    *first = first_vec * lanes;
    *n = (int)(plan->g->n - *first < (int64_t)*vecs * lanes ? plan->g->n - *first
                                                            : (int64_t)*vecs * lanes);
}

static struct plan make_plan(const struct tile_isa *isa, const struct gemm *g, int threads)
{
    struct plan plan = { .isa = isa, .g = g };
    const int64_t depth = g->k < GEMM_DEPTH ? g->k : GEMM_DEPTH;

    plan.by_columns = g->a_column != 1;
    plan.limit = plan.by_columns ? isa->columns : isa->rows;
    plan.n_panels = gemm_panels(isa, plan.limit, g->m, g->n);
    plan.n_blocks = gemm_ceil(g->k, GEMM_DEPTH);
    plan.pack_b = g->b_column != 1 || (g->m >= 96 && g->k * g->n >= 64 * 1024);
    plan.pack_a = plan.by_columns && g->n >= 96 && depth * g->a_column >= 96 * 1024;
    plan.group = plan.n_panels;
    if (plan.pack_b) {
        const int64_t panel_bytes = depth * isa->vecs * isa->lanes * 4;
        const int64_t most = PACK_B_BYTES / panel_bytes;
        plan.group = (int)(plan.n_panels < most ? plan.n_panels : most);
        plan.b_floats = (size_t)(plan.group * panel_bytes / 4);
    }
    if (plan.pack_a)
        plan.a_floats = (size_t)(depth * PACK_A_ROWS);
    /* Twice as many tasks as threads, whole panels first. */
    const int64_t wanted = threads == 1               ? 1
                           : 2 * threads < GEMM_TASKS ? 2 * threads
                                                      : GEMM_TASKS;
    const int64_t most_rows = gemm_ceil(g->m, 32);
    plan.panel_parts = plan.n_panels < wanted ? plan.n_panels : wanted;
    if (plan.panel_parts < 1)
        plan.panel_parts = 1; /* no columns, nothing to do */
    plan.row_parts = wanted / plan.panel_parts;
    if (plan.row_parts > most_rows)
        plan.row_parts = most_rows;
    return plan;
}

size_t gemm_scratch_bytes(const struct tile_isa *isa, const struct gemm *gemm)
{
    const struct plan plan = make_plan(isa, gemm, 1);

    return (plan.a_floats + plan.b_floats) * sizeof(float) * GEMM_TASKS;
}

/* Panels [p0, p1) of block [k0, k0 + depth) of B, one after another. */
static void pack_panels(const struct plan *plan, int p0, int p1, int64_t k0, int depth,
                        float *to)
{
    const struct gemm *g = plan->g;

    for (int p = p0; p < p1; p++) {
        int64_t first;
        int vecs, n;

        panel_at(plan, p, &first, &vecs, &n);
        const int width = vecs * plan->isa->lanes;
        if (g->b_column == 1)
            plan->isa->pack(g->b + k0 * g->b_row + first, g->b_row, depth, n, to, width);
        else
            plan->isa->transpose(g->b + first * g->b_column + k0, g->b_column, n, depth, to,
                                 width, true);
        to += (ptrdiff_t)depth * width;
    }
}

/* Rows [i0, i0 + rows) of a transposed A, for the same steps: tile after tile, step after step.
 */
static void pack_rows(const struct plan *plan, int64_t i0, int rows, int64_t k0, int depth,
                      float *to)
{
    const struct gemm *g = plan->g;
    const float *from = g->a + k0 * g->a_column + i0;

    for (int t = 0; t < depth; t++) {
        memcpy(to, from, (size_t)rows * sizeof(float));
        from += g->a_column;
        to += PACK_A_ROWS;
    }
}

struct part {
    int64_t row, n_rows;
    int panel, end_panel;
    float *a_pack, *b_pack;
};

/* One panel of one block for rows [i0, i0 + rows). */
static void run_panel(const struct plan *plan, const struct part *part, int p, int64_t i0,
                      int64_t rows, int64_t k0, int depth, const float *b_pack)
{
    static const ptrdiff_t no_offset[1] = { 0 };
    const struct gemm *g = plan->g;
    const bool is_last = k0 + depth == g->k;
    int64_t first;
    int vecs, n;

    panel_at(plan, p, &first, &vecs, &n);
    struct tile tile = {
        .segment = no_offset,
        .n_segments = 1,
        .depth = depth,
        .a_step = plan->pack_a ? PACK_A_ROWS : g->a_column,
        .b = plan->pack_b ? b_pack : g->b + k0 * g->b_row + first,
        .b_step = plan->pack_b ? vecs * plan->isa->lanes : g->b_row,
        .last = n - (vecs - 1) * plan->isa->lanes,
        .accumulate = k0 > 0,
        .relu = g->relu && is_last,
        .bias = g->bias != NULL && is_last ? g->bias + first : NULL,
    };
    tile.b_full = plan->pack_b || tile.last == plan->isa->lanes;
    const int64_t n_tiles = gemm_ceil(rows, plan->limit[vecs]);
    for (int64_t t = 0; t < n_tiles; t++) {
        int64_t at;
        const int count = (int)gemm_part(rows, n_tiles, t, &at);

        for (int i = 0; i < count; i++)
            tile.c[i] = g->c + (i0 + at + i) * g->c_row + first;
        if (plan->by_columns) {
            tile.a[0] = plan->pack_a ? part->a_pack + at : g->a + i0 + at + k0 * g->a_column;
            plan->isa->by_columns(&tile, count, vecs);
        } else {
            for (int i = 0; i < count; i++)
                tile.a[i] = g->a + (i0 + at + i) * g->a_row + k0;
            plan->isa->by_rows(&tile, count, vecs);
        }
    }
}

/* Asks for part i of `parts` of block `block` of B, as it lies. Weights that another core has just
 * updated come line by line across the chip; the rows of a panel are too short and too far
 * apart for the processor to guess. */
static void fetch_block(const struct plan *plan, int64_t block, int64_t parts, int64_t i)
{
    const struct gemm *g = plan->g;
    int64_t k0, first;

    if (plan->pack_b || block >= plan->n_blocks || g->k * g->n < FETCH_FLOATS)
        return;
    const int64_t depth = gemm_part(g->k, plan->n_blocks, block, &k0);
    const int64_t rows = gemm_part(depth, parts, i, &first);
    const char *from = (const char *)(g->b + (k0 + first) * g->b_row);
    const char *end = from + rows * g->b_row * (int64_t)sizeof(float);

    for (; from < end; from += LINE_BYTES)
        __builtin_prefetch(from, 0, 2);
}

static void run_part(const struct plan *plan, const struct part *part)
{
    const int64_t most = plan->pack_a ? PACK_A_ROWS : plan->pack_b ? MANY_ROWS : part->n_rows;
    const int64_t row_blocks = gemm_ceil(part->n_rows, most);

    for (int p0 = part->panel; p0 < part->end_panel; p0 += plan->group) {
        const int p1 = p0 + plan->group < part->end_panel ? p0 + plan->group : part->end_panel;

        for (int64_t block = 0; block < plan->n_blocks; block++) {
            int64_t k0;
            const int depth = (int)gemm_part(plan->g->k, plan->n_blocks, block, &k0);

            if (plan->pack_b)
                pack_panels(plan, p0, p1, k0, depth, part->b_pack);
            if (block == 0 && p0 == part->panel)
                fetch_block(plan, 0, 1, 0);
            for (int64_t r = 0; r < row_blocks; r++) {
                int64_t i0;
                const int64_t rows = gemm_part(part->n_rows, row_blocks, r, &i0);
                const float *b = part->b_pack;

                i0 += part->row;
                if (plan->pack_a)
                    pack_rows(plan, i0, (int)rows, k0, depth, part->a_pack);
                for (int p = p0; p < p1; p++) {
                    int64_t first;
                    int vecs, n;

                    if (r == 0)
                        fetch_block(plan, block + 1, p1 - p0, p - p0);
                    run_panel(plan, part, p, i0, rows, k0, depth, b);
                    panel_at(plan, p, &first, &vecs, &n);
                    if (plan->pack_b)
                        b += (ptrdiff_t)depth * vecs * plan->isa->lanes;
                }
            }
        }
    }
}

static void run_task(void *arg, size_t i, size_t slot)
{
    const struct plan *plan = arg;
    struct part part;
    int64_t panel;

    part.n_rows =
        gemm_part(plan->g->m, plan->row_parts, (int64_t)i / plan->panel_parts, &part.row);
    const int64_t n_panels =
        gemm_part(plan->n_panels, plan->panel_parts, (int64_t)i % plan->panel_parts, &panel);
    part.panel = (int)panel;
    part.end_panel = (int)(panel + n_panels);
    part.a_pack = plan->scratch;
    if (plan->a_floats + plan->b_floats > 0)
        part.a_pack += slot * (plan->a_floats + plan->b_floats);
    part.b_pack = plan->pack_b ? part.a_pack + plan->a_floats : NULL;
    run_part(plan, &part);
}

void gemm_run(const struct tile_isa *isa, const struct gemm *gemm, struct pool *pool,
              void *scratch)
{
    if (gemm->m == 0 || gemm->n == 0)
        return;
    struct plan plan = make_plan(isa, gemm, pool == NULL ? 1 : pool_size(pool));
    plan.scratch = scratch;
    pool_for_slots(pool, (size_t)(plan.row_parts * plan.panel_parts), GEMM_TASKS, run_task,
                   &plan);
}
