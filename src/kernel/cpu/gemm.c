/* SPDX-License-Identifier: MIT */
/* gemm.c - blocks and panels around the tiles.
 *
 * C is cut into panels of columns (as wide as a tile) and row tiles; the shared dimension into
 * blocks of at most GEMM_DEPTH. A block of a panel of B is read by every row tile in turn, from L1 or
 * L2. Traffic beyond L2 for m <= 64: A and C once or twice, B once. For larger problems:
 *
 *   blocks of the shared dimension
 *     groups of panels, some 500 KiB: they are packed, row by row of B
 *       blocks of rows, which with the group stay in L2; a transposed A is packed in slivers
 *         panels, row tiles: C's lines are asked for, the sums made, and added to C
 *
 * So A passes once a group, C twice a block (first only written), B and its packed form once. A
 * whose rows are contiguous is read as it lies: a tile's rows are streams of their own.
 */
#include "kernel/cpu/gemm.h"

#include <string.h>

#include "kernel/cpu/processor.h"

enum {
    PACK_B_BYTES = 640 << 10, /* packed panels of B that are used together */
    ROWS_BYTES = 256 << 10,  /* rows of A that read a group of panels before the next rows do */
    FETCH_FLOATS = 32 << 10, /* B, or C, of so many is worth fetching ahead */
    LINE_BYTES = 64,
    PAGE_FLOATS = 1024, /* steps of so many meet in one set of L1 */
    MANY_COLUMNS = 192,
    DEEP = 96, /* of C and of the product: worth to pack a transposed A */
    MANY_ROWS = 96,
    MANY_FLOATS = 8 << 10, /* of C and of B: worth to pack B */
    SOME_ROWS = 24,
    LARGE_FLOATS = 2 << 20, /* likewise */
    PACKED_ROWS = 48,       /* panels that are packed once are cut as for so many rows */
    PACKED_PANELS = 8,      /* of them packed by a task */
    SUM_COLUMNS = 256,
};

const struct tile_isa *tile_current(void)
{
    const enum processor processor = processor_current();

    return processor >= PROCESSOR_AVX512 ? &tile_avx512
           : processor == PROCESSOR_AVX2 ? &tile_avx2
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
    int64_t n_vecs;   /* of a row of C */
    int n_panels;
    int group;                      /* panels packed and used together, at most */
    int64_t block_rows;             /* rows that a group meets together, at most */
    int tile_rows;                  /* rows of a tile of the widest panel, at most */
    int sliver;                     /* floats of a step of packed A */
    int64_t n_blocks;               /* of the shared dimension */
    int64_t row_parts, panel_parts; /* tasks */
    size_t a_floats, b_floats;      /* scratch of a thread */
    float *scratch;
};

static int64_t at_most(int64_t value, int64_t most)
{
    return value < most ? value : most;
}

/* Where panel p begins, in columns. */
static int64_t panel_first(const struct plan *plan, int p)
{
    int64_t first;

    gemm_part(plan->n_vecs, plan->n_panels, p, &first);
    return first * plan->isa->lanes;
}

static int panel_vecs(const struct plan *plan, int p)
{
    int64_t first;

    return (int)gemm_part(plan->n_vecs, plan->n_panels, p, &first);
}

/* A B that lies as it is used: rows that are no whole lines take twice the loads, and a large one is
 * thrown out of the caches by its stride. */
static bool is_worth_packing(const struct gemm *g)
{
    const int64_t count = g->k * g->n;

    return (g->m >= MANY_ROWS && count >= MANY_FLOATS) ||
           (g->m >= SOME_ROWS && count >= LARGE_FLOATS);
}

static void plan_tasks(struct plan *plan, int threads)
{
    const struct gemm *g = plan->g;
    /* Twice as many tasks as threads. A task packs what it needs of A and B, so the longer side of
     * C is cut first. */
    const int64_t wanted = threads == 1 ? 1 : at_most(2 * (int64_t)threads, GEMM_TASKS);
    const int64_t most_rows = gemm_ceil(g->m, 32);

    if (plan->pack_a && g->m > g->n) {
        plan->row_parts = at_most(wanted, most_rows);
        plan->panel_parts = at_most(wanted / plan->row_parts, plan->n_panels);
    } else {
        plan->panel_parts = at_most(wanted, plan->n_panels);
        plan->row_parts = at_most(wanted / plan->panel_parts, most_rows);
    }
}

static struct plan make_plan(const struct tile_isa *isa, const struct gemm *g, int threads)
{
    struct plan plan = { .isa = isa, .g = g, .by_columns = g->a_column != 1 };
    const int64_t depth =
        g->k > 0 ? at_most(g->k, GEMM_DEPTH) : 1; /* scratch of no step at all */

    plan.n_vecs = gemm_ceil(g->n, isa->lanes);
    plan.n_blocks = gemm_ceil(g->k, GEMM_DEPTH);
    plan.pack_a = plan.by_columns && g->n >= MANY_COLUMNS &&
                  (depth >= DEEP || g->a_column % PAGE_FLOATS == 0);
    plan.limit = plan.pack_a ? isa->slivers : plan.by_columns ? isa->columns : isa->rows;
    plan.n_panels = gemm_panels(isa, plan.limit, g->b_packed ? PACKED_ROWS : g->m, g->n);
    const int64_t widest = gemm_ceil(plan.n_vecs, plan.n_panels);
    plan.tile_rows = plan.limit[widest];
    plan.sliver = plan.tile_rows <= isa->lanes / 2 ? isa->lanes / 2 : isa->lanes;
    plan.pack_b = !g->b_packed && (g->b_column != 1 || is_worth_packing(g));
    plan.group = plan.n_panels;
    plan.block_rows = g->m;
    if (plan.pack_b || g->b_packed) {
        const int64_t panel_floats = depth * widest * isa->lanes;
        plan.group = (int)at_most(plan.n_panels, PACK_B_BYTES / 4 / panel_floats);
        if (plan.pack_b)
            plan.b_floats = (size_t)(plan.group * panel_floats);
    }
    if (plan.pack_b || g->b_packed || plan.pack_a)
        plan.block_rows = at_most(g->m, ROWS_BYTES / 4 / depth);
    if (plan.pack_a)
        plan.a_floats =
            (size_t)(gemm_ceil(plan.block_rows, plan.tile_rows) * depth * plan.sliver);
    plan_tasks(&plan, threads);
    return plan;
}

size_t gemm_scratch_bytes(const struct tile_isa *isa, const struct gemm *gemm)
{
    if (gemm->m == 0 || gemm->n == 0)
        return 0;
    const struct plan plan = make_plan(isa, gemm, 1);

    return (plan.a_floats + plan.b_floats) * sizeof(float) * GEMM_TASKS;
}

/* Packing ------------------------------------------------------------------------------ */

/* Panels [p0, p1) of block [k0, k0 + depth) of B, one after another. */
static void pack_panels(const struct plan *plan, int p0, int p1, int64_t k0, int depth,
                        float *sums, float *to)
{
    const struct gemm *g = plan->g;
    const int64_t first = panel_first(plan, p0);

    if (g->b_column == 1) {
        struct tile_panels panels = { .count = p1 - p0, .vecs = panel_vecs(plan, p1 - 1) };
        while (panels.wide < panels.count && panel_vecs(plan, p0 + panels.wide) > panels.vecs)
            panels.wide++;
        const int64_t n = at_most(panel_first(plan, p1), g->n) - first;
        plan->isa->pack_panels(g->b + k0 * g->b_row + first, g->b_row, depth, (int)n, &panels,
                               to, k0 > 0, sums != NULL ? sums + first : NULL);
        return;
    }
    for (int p = p0; p < p1; p++) {
        const int64_t begin = panel_first(plan, p);
        const int64_t end = at_most(panel_first(plan, p + 1), g->n);
        const int width = panel_vecs(plan, p) * plan->isa->lanes;

        plan->isa->transpose(g->b + begin * g->b_column + k0, g->b_column, (int)(end - begin),
                             depth, to, width, true);
        to += (ptrdiff_t)depth * width;
    }
}

/* Parts of C --------------------------------------------------------------------------- */

struct part {
    int64_t row, n_rows;
    int panel, end_panel;
    float *a_pack, *b_pack;
};

/* What the tiles of a panel and a block of rows share. */
struct stretch {
    int64_t row, n_rows, n_tiles;
    int64_t k0;
    int depth;
    const float *a_pack;
    bool first_panel;
};

/* The tiles of panel p, whose packed form is b_pack if there is one. */
static void run_panel(const struct plan *plan, const struct stretch *s, int p,
                      const float *b_pack)
{
    static const ptrdiff_t no_offset[1] = { 0 };
    const struct gemm *g = plan->g;
    const bool is_last = s->k0 + s->depth == g->k;
    const int64_t first = panel_first(plan, p);
    const int vecs = panel_vecs(plan, p), lanes = plan->isa->lanes;
    const int64_t n = at_most(g->n - first, (int64_t)vecs * lanes);
    struct tile tile = {
        .segment = no_offset,
        .n_segments = 1,
        .depth = s->depth,
        .a_step = g->a_column,
        .b = b_pack != NULL ? b_pack : g->b + s->k0 * g->b_row + first,
        .b_step = b_pack != NULL ? vecs * lanes : g->b_row,
        .last = (int)n - (vecs - 1) * lanes,
        .accumulate = s->k0 > 0 || g->accumulate,
        .fetch = g->m * g->n >= FETCH_FLOATS,
        .relu = g->relu && is_last,
        .bias = g->bias != NULL && is_last ? g->bias + first : NULL,
    };
    tile.b_full = b_pack != NULL || tile.last == lanes;
    const int64_t n_tiles = plan->pack_a ? s->n_tiles : gemm_ceil(s->n_rows, plan->limit[vecs]);
    for (int64_t t = 0; t < n_tiles; t++) {
        int64_t at;
        const int count = (int)gemm_part(s->n_rows, n_tiles, t, &at);

        for (int i = 0; i < count; i++)
            tile.c[i] = g->c + (s->row + at + i) * g->c_row + first;
        if (plan->pack_a) {
            tile.a[0] = s->a_pack + t * s->depth * plan->sliver;
            tile.a_step = plan->sliver;
            plan->isa->by_columns(&tile, count, vecs);
        } else if (plan->by_columns) {
            tile.a[0] = g->a + s->row + at + s->k0 * g->a_column;
            plan->isa->by_columns(&tile, count, vecs);
        } else {
            for (int i = 0; i < count; i++)
                tile.a[i] = g->a + (s->row + at + i) * g->a_row + s->k0;
            tile.ahead = s->first_panel ? count * g->a_row : 0;
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

    if (plan->pack_b || g->b_packed || block >= plan->n_blocks || g->k * g->n < FETCH_FLOATS)
        return;
    const int64_t depth = gemm_part(g->k, plan->n_blocks, block, &k0);
    const int64_t rows = gemm_part(depth, parts, i, &first);
    const char *from = (const char *)(g->b + (k0 + first) * g->b_row);
    const char *end = from + rows * g->b_row * (int64_t)sizeof(float);

    for (; from < end; from += LINE_BYTES)
        __builtin_prefetch(from, 0, 2);
}

/* Panels [p0, p1) of one block, all rows of the part. */
static void run_group(const struct plan *plan, const struct part *part, int p0, int p1,
                      int64_t block)
{
    const struct gemm *g = plan->g;
    const int64_t row_blocks = gemm_ceil(part->n_rows, plan->block_rows);
    const int64_t first = panel_first(plan, p0);
    const float *packed = NULL; /* where panel p0 lies */
    struct stretch s = { .a_pack = part->a_pack };

    s.depth = (int)gemm_part(g->k, plan->n_blocks, block, &s.k0);
    if (g->b_packed)
        packed = g->b + s.k0 * plan->n_vecs * plan->isa->lanes + first * s.depth;
    if (plan->pack_b) {
        float *sums = g->b_column == 1 && part->row == 0 ? g->b_sums : NULL;
        pack_panels(plan, p0, p1, s.k0, s.depth, sums, part->b_pack);
        packed = part->b_pack;
    }
    if (block == 0 && p0 == part->panel)
        fetch_block(plan, 0, 1, 0);
    for (int64_t r = 0; r < row_blocks; r++) {
        s.n_rows = gemm_part(part->n_rows, row_blocks, r, &s.row);
        s.row += part->row;
        s.n_tiles = gemm_ceil(s.n_rows, plan->tile_rows);
        if (plan->pack_a && (row_blocks > 1 || p0 == part->panel))
            plan->isa->pack_slivers(g->a + s.k0 * g->a_column + s.row, g->a_column, s.depth,
                                    (int)s.n_rows, (int)s.n_tiles, part->a_pack, plan->sliver);
        for (int p = p0; p < p1; p++) {
            if (r == 0)
                fetch_block(plan, block + 1, p1 - p0, p - p0);
            s.first_panel = p == p0;
            run_panel(plan, &s, p,
                      packed != NULL ? packed + (panel_first(plan, p) - first) * s.depth
                                     : NULL);
        }
    }
}

static void run_part(const struct plan *plan, const struct part *part)
{
    const int n_panels = part->end_panel - part->panel;
    const int64_t n_groups = gemm_ceil(n_panels, plan->group);

    for (int64_t block = 0; block < plan->n_blocks; block++) {
        for (int64_t i = 0; i < n_groups; i++) {
            int64_t first;
            const int count = (int)gemm_part(n_panels, n_groups, i, &first);
            const int p0 = part->panel + (int)first;

            run_group(plan, part, p0, p0 + count, block);
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

/* Calls ---------------------------------------------------------------------------------- */

struct columns {
    const struct tile_isa *isa;
    const float *from;
    int64_t from_step, n_rows, n;
    float *sums;
};

static void sum_columns(void *arg, size_t i)
{
    const struct columns *columns = arg;
    const int64_t first = (int64_t)i * SUM_COLUMNS;

    columns->isa->column_sums(columns->from + first, columns->from_step, columns->n_rows,
                              (int)at_most(columns->n - first, SUM_COLUMNS), false,
                              columns->sums + first);
}

void gemm_column_sums(const struct tile_isa *isa, const float *from, int64_t from_step,
                      int64_t n_rows, int64_t n, struct pool *pool, float *sums)
{
    struct columns columns = { isa, from, from_step, n_rows, n, sums };

    pool_for(pool, (size_t)gemm_ceil(n, SUM_COLUMNS), sum_columns, &columns);
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
    if (gemm->b_sums != NULL && !plan.pack_b)
        gemm_column_sums(isa, gemm->b, gemm->b_row, gemm->k, gemm->n, pool, gemm->b_sums);
}

/* Of a B that is packed once. */
static struct plan packed_plan(const struct tile_isa *isa, const struct gemm *g)
{
    struct plan plan = { .isa = isa, .g = g };

    plan.n_vecs = gemm_ceil(g->n, isa->lanes);
    plan.n_blocks = gemm_ceil(g->k, GEMM_DEPTH);
    plan.n_panels = gemm_panels(isa, isa->rows, PACKED_ROWS, g->n);
    return plan;
}

size_t gemm_packed_bytes(const struct tile_isa *isa, int64_t n, int64_t k)
{
    return (size_t)(gemm_ceil(n, isa->lanes) * isa->lanes * k) * sizeof(float);
}

struct packing {
    struct plan plan;
    float *to;
};

static void pack_block(void *arg, size_t i)
{
    const struct packing *packing = arg;
    const struct plan *plan = &packing->plan;
    const int64_t groups = gemm_ceil(plan->n_panels, PACKED_PANELS);
    int64_t k0, p0;
    const int depth = (int)gemm_part(plan->g->k, plan->n_blocks, (int64_t)i / groups, &k0);
    const int64_t count = gemm_part(plan->n_panels, groups, (int64_t)i % groups, &p0);

    pack_panels(plan, (int)p0, (int)(p0 + count), k0, depth, NULL,
                packing->to + k0 * plan->n_vecs * plan->isa->lanes +
                    panel_first(plan, (int)p0) * depth);
}

void gemm_pack_b(const struct tile_isa *isa, const struct gemm *gemm, struct pool *pool,
                 float *to)
{
    struct packing packing = { .plan = packed_plan(isa, gemm), .to = to };
    const int64_t groups = gemm_ceil(packing.plan.n_panels, PACKED_PANELS);

    pool_for(pool, (size_t)(packing.plan.n_blocks * groups), pack_block, &packing);
}
