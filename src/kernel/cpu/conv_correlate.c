/* SPDX-License-Identifier: MIT */
/* conv_correlate.c - convolution forward, and its gradient with respect to the input.
 *
 * B is the weights, copied once a call into panels as wide as a tile: [panel][tap,
 * channel][width]. A unit is a few images, or a strip of rows of one, whose plane fits in L2.
 * For each unit, panel and block of the shared dimension every tile of 4 to 8 pixels walks the
 * block; which pixels are in a tile does not matter, so tiles cross rows and images and pixels
 * are found through a table of offsets. When pooling, the table lists the four pixels of a
 * window together and the tile reduces them in registers.
 *
 * Traffic: x about twice, y once, weights once a call plus once a unit from L2.
 */
#include "kernel/cpu/conv.h"

enum {
    PLANE_BYTES = 256 << 10, /* of a unit */
    UNIT_PIXELS = 128,       /* a unit takes more images until it has so many */
    DEPTH = 320,             /* of a block */
    SEGMENTS = 16,           /* of a block */
    TASKS = 64,              /* small enough that threads end together */
};

struct plan {
    const struct correlate *cor;
    int64_t in, out; /* channels: of a pixel of the plane, of y */
    int n_panels;
    const int *limit;
    int64_t group, strip; /* images and grid rows (pairs of rows when pooling) of a unit */
    int64_t strips;       /* of an image */
    int64_t n_units, n_tasks;
    int64_t slots; /* threads that take part, with scratch each */
    int64_t row_blocks, pixel_blocks, channel_blocks; /* how the taps and channels are cut */
    int64_t pixels;                                   /* grid pixels of a full unit */
    int64_t cells; /* places in y of a full unit: pixels or windows */
    int64_t plane_floats, sum_floats;
    /* Scratch. */
    float *weights;
    ptrdiff_t *source, *target; /* offsets of pixels in the plane, of cells in y */
    float *tasks;
};

static int64_t at_most(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t round_up(int64_t n)
{
    return gemm_ceil(n, 16) * 16;
}

static int64_t plane_rows(const struct correlate *cor, int64_t grid_rows)
{
    return (grid_rows - 1) * cor->step_y + cor->taps_y;
}

static struct plan plan_of(const struct correlate *cor)
{
    struct plan l = { .cor = cor };
    const int window = cor->pool ? 2 : 1;
    const int64_t rows = cor->rows / window, columns = cor->columns / window;

    l.in = plane_pixel(&cor->plane);
    l.out = cor->is_turned ? cor->wc : cor->wo;
    l.limit = cor->pool ? cor->isa->windows : cor->isa->rows;

    const int64_t row_bytes = plane_row(&cor->plane) * 4;
    l.group = 1;
    l.strip = rows;
    if (plane_rows(cor, rows * window) * row_bytes > PLANE_BYTES) {
        const int64_t most = (PLANE_BYTES / row_bytes - cor->taps_y) / cor->step_y / window;
        l.strip = gemm_ceil(rows, gemm_ceil(rows, most < 1 ? 1 : most));
    } else {
        const int64_t bytes = cor->plane.rows * row_bytes;
        l.group = gemm_ceil(UNIT_PIXELS, rows * columns * window * window);
        l.group = at_most(at_most(l.group, gemm_ceil(PLANE_BYTES, bytes)), cor->images);
    }
    l.strips = gemm_ceil(rows, l.strip);
    l.n_units = gemm_ceil(cor->images, l.group) * l.strips;
    l.n_tasks = at_most(l.n_units, TASKS);
    l.slots = at_most(l.n_tasks, GEMM_TASKS);
    l.cells = l.group * l.strip * columns;
    l.pixels = l.cells * window * window;
    l.n_panels = gemm_panels(cor->isa, l.limit, l.pixels, l.out);

    const int64_t run = cor->taps_x * l.in;
    l.row_blocks = cor->taps_y;
    l.pixel_blocks = l.channel_blocks = 1;
    if (run <= DEPTH)
        l.row_blocks = gemm_ceil(cor->taps_y, at_most(DEPTH / run, SEGMENTS));
    else if (l.in <= DEPTH)
        l.pixel_blocks = gemm_ceil(cor->taps_x, DEPTH / l.in);
    else {
        l.pixel_blocks = cor->taps_x;
        l.channel_blocks = gemm_ceil(l.in, DEPTH);
    }

    if (!cor->plane.is_direct)
        l.plane_floats = round_up(
            (l.strips > 1 ? plane_rows(cor, l.strip * window) : l.group * cor->plane.rows) *
            plane_row(&cor->plane));
    if (cor->pool && l.row_blocks * l.pixel_blocks * l.channel_blocks > 1)
        l.sum_floats = round_up(l.pixels * cor->isa->vecs * cor->isa->lanes);
    return l;
}

static int64_t weight_floats(const struct plan *l)
{
    const struct correlate *cor = l->cor;

    return cor->taps_y * cor->taps_x * l->in * gemm_ceil(l->out, cor->isa->lanes) *
           cor->isa->lanes;
}

size_t correlate_scratch_bytes(const struct correlate *cor)
{
    const struct plan l = plan_of(cor);

    return (size_t)round_up(weight_floats(&l)) * sizeof(float) +
           (size_t)round_up(l.pixels + l.cells) * sizeof(ptrdiff_t) +
           (size_t)(l.slots * (l.plane_floats + l.sum_floats)) * sizeof(float);
}

static void place_scratch(struct plan *l, void *scratch)
{
    l->weights = scratch;
    l->source = (ptrdiff_t *)(l->weights + round_up(weight_floats(l)));
    l->target = l->source + l->pixels;
    l->tasks = (float *)(l->source + round_up(l->pixels + l->cells));
}

/* Panel p: first column of y, vectors, existing columns; and where its weights begin. */
static const float *panel_at(const struct plan *l, int p, int64_t *first, int *vecs, int *n)
{
    const struct correlate *cor = l->cor;
    const int lanes = cor->isa->lanes;
    int64_t vec;

    *vecs = (int)gemm_part(gemm_ceil(l->out, lanes), l->n_panels, p, &vec);
    *first = vec * lanes;
    *n = (int)at_most(l->out - *first, (int64_t)*vecs * lanes);
    return l->weights + *first * cor->taps_y * cor->taps_x * l->in;
}

static void pack_weights(void *arg, size_t p)
{
    const struct plan *l = arg;
    const struct correlate *cor = l->cor;
    const struct tile_isa *isa = cor->isa;
    const int64_t stack = cor->plane.stack;
    const int64_t taps_y = stack > 1 ? stack : cor->taps_y;
    int64_t first;
    int vecs, n;
    float *to = l->weights + (panel_at(l, (int)p, &first, &vecs, &n) - l->weights);
    const int width = vecs * isa->lanes;
    const int64_t rows = cor->is_turned ? cor->wo : cor->wc; /* of a tap */

    for (int64_t ty = 0; ty < taps_y; ty++) {
        for (int64_t tx = 0; tx < cor->taps_x; tx++) {
            const int64_t ky = cor->tap_y + ty * cor->tap_y_step;
            const int64_t kx = cor->tap_x + tx * cor->tap_x_step;
            const float *tap = cor->w + (ky * cor->kw + kx) * cor->wc * cor->wo;
            const int64_t place = stack > 1 ? tx * stack + ty : ty * cor->taps_x + tx;
            float *at = to + place * rows * width;

            if (cor->is_turned)
                isa->transpose(tap + first * cor->wo, cor->wo, n, (int)rows, at, width, true);
            else
                isa->pack(tap + first, cor->wo, (int)rows, n, at, width);
        }
    }
}

static void fill_tables(const struct plan *l)
{
    const struct correlate *cor = l->cor;
    const int window = cor->pool ? 2 : 1;
    const int64_t columns = cor->columns / window;
    const int64_t pixel = plane_pixel(&cor->plane), row = plane_row(&cor->plane);
    ptrdiff_t *source = l->source, *target = l->target;

    for (int64_t image = 0; image < l->group; image++) {
        for (int64_t r = 0; r < l->strip; r++) {
            for (int64_t x = 0; x < columns; x++) {
                for (int64_t i = 0; i < window * window; i++)
                    *source++ = image * cor->plane.rows * row +
                                (r * window + i / window) * cor->step_y * row +
                                (x * window + i % window) * cor->step_x * pixel;
                *target++ = image * cor->y_image + r * cor->y_row + x * cor->y_pixel;
            }
        }
    }
}

struct block {
    ptrdiff_t segment[SEGMENTS];
    int n_segments, depth;
    int64_t b_row; /* of the panel's weights */
};

/* Block b of the shared dimension. */
static void block_at(const struct plan *l, int64_t b, struct block *block)
{
    const struct correlate *cor = l->cor;
    const int64_t row = plane_row(&cor->plane);
    const int64_t per_row = l->pixel_blocks * l->channel_blocks;
    int64_t ky, kx, c;
    const int64_t n_rows = gemm_part(cor->taps_y, l->row_blocks, b / per_row, &ky);
    const int64_t n_pixels =
        gemm_part(cor->taps_x, l->pixel_blocks, b % per_row / l->channel_blocks, &kx);
    const int64_t n_channels = gemm_part(l->in, l->channel_blocks, b % l->channel_blocks, &c);

    for (int64_t s = 0; s < n_rows; s++)
        block->segment[s] = (ky + s) * row + kx * l->in + c;
    block->n_segments = (int)n_rows;
    block->depth = (int)(n_pixels * n_channels);
    block->b_row = (ky * cor->taps_x + kx) * l->in + c;
}

struct unit {
    const float *plane;
    float *y, *sums;
    uint8_t *index;
    int64_t cells;
};

static void run_tiles(const struct plan *l, const struct unit *unit, struct tile *tile,
                      int64_t first, int vecs)
{
    const struct correlate *cor = l->cor;
    const int64_t n_tiles = gemm_ceil(unit->cells, l->limit[vecs]);

    for (int64_t t = 0; t < n_tiles; t++) {
        int64_t at;
        const int count = (int)gemm_part(unit->cells, n_tiles, t, &at);

        for (int i = 0; i < count; i++) {
            tile->a[i] = unit->plane + l->source[at + i];
            tile->c[i] = unit->y + l->target[at + i] + first;
        }
        cor->isa->by_rows(tile, count, vecs);
    }
}

/* The same for windows. Sums of all but the last block wait in unit->sums. */
static void run_windows(const struct plan *l, const struct unit *unit, struct tile *tile,
                        int64_t first, int vecs, bool is_last)
{
    const struct correlate *cor = l->cor;
    const int64_t n_tiles = gemm_ceil(unit->cells, l->limit[vecs] / 4);

    for (int64_t t = 0; t < n_tiles; t++) {
        struct tile_pool pool;
        int64_t at;
        const int count = (int)gemm_part(unit->cells, n_tiles, t, &at);

        for (int i = 0; i < 4 * count; i++) {
            tile->a[i] = unit->plane + l->source[4 * at + i];
            tile->c[i] = unit->sums;
            if (unit->sums != NULL)
                tile->c[i] += (4 * at + i) * vecs * cor->isa->lanes;
        }
        for (int i = 0; i < count; i++) {
            pool.y[i] = unit->y + l->target[at + i] + first;
            pool.index[i] = unit->index + l->target[at + i] + first;
        }
        if (is_last)
            cor->isa->by_rows_pool(tile, &pool, 4 * count, vecs);
        else
            cor->isa->by_rows(tile, 4 * count, vecs);
    }
}

static void run_unit(const struct plan *l, const struct unit *unit)
{
    const struct correlate *cor = l->cor;
    const int64_t n_blocks = l->row_blocks * l->pixel_blocks * l->channel_blocks;

    for (int p = 0; p < l->n_panels; p++) {
        int64_t first;
        int vecs, n;
        const float *weights = panel_at(l, p, &first, &vecs, &n);
        const int width = vecs * cor->isa->lanes;

        for (int64_t b = 0; b < n_blocks; b++) {
            const bool is_last = b == n_blocks - 1;
            struct block block;

            block_at(l, b, &block);
            struct tile tile = {
                .segment = block.segment,
                .n_segments = block.n_segments,
                .depth = block.depth,
                .b = weights + block.b_row * width,
                .b_step = width,
                .last = n - (vecs - 1) * cor->isa->lanes,
                .b_full = true,
                .accumulate = b > 0,
                .relu = is_last && cor->relu,
                .bias = is_last && cor->bias != NULL ? cor->bias + first : NULL,
            };
            if (cor->pool)
                run_windows(l, unit, &tile, first, vecs, is_last);
            else
                run_tiles(l, unit, &tile, first, vecs);
        }
    }
}

static void run_task(void *arg, size_t task, size_t slot)
{
    const struct plan *l = arg;
    const struct correlate *cor = l->cor;
    const int window = cor->pool ? 2 : 1;
    const int64_t rows = cor->rows / window, columns = cor->columns / window;
    float *own = l->tasks + (int64_t)slot * (l->plane_floats + l->sum_floats);
    int64_t u;
    const int64_t n_units = gemm_part(l->n_units, l->n_tasks, (int64_t)task, &u);

    for (const int64_t end = u + n_units; u < end; u++) {
        const int64_t image = u / l->strips * l->group, r = u % l->strips * l->strip;
        const int64_t n_images = at_most(l->group, cor->images - image);
        const int64_t n_rows = at_most(l->strip, rows - r);
        struct unit unit = {
            .y = cor->y + image * cor->y_image + r * cor->y_row,
            .sums = l->sum_floats > 0 ? own + l->plane_floats : NULL,
            .index = cor->pool ? cor->index + image * cor->y_image + r * cor->y_row : NULL,
            .cells = n_images * n_rows * columns,
        };

        for (int64_t i = 0; i < n_images; i++) {
            const float *plane = plane_copy(&cor->plane, image + i, r * window * cor->step_y,
                                            plane_rows(cor, n_rows * window),
                                            own + i * cor->plane.rows * plane_row(&cor->plane));
            if (i == 0)
                unit.plane = plane;
        }
        run_unit(l, &unit);
    }
}

void correlate_run(const struct correlate *cor, struct pool *pool, void *scratch)
{
    struct plan l = plan_of(cor);

    if (cor->images == 0 || l.cells == 0)
        return;
    place_scratch(&l, scratch);
    if (pool == NULL)
        l.n_tasks = 1;
    pool_for(pool, (size_t)l.n_panels, pack_weights, &l);
    fill_tables(&l);
    pool_for_slots(pool, (size_t)l.n_tasks, (size_t)l.slots, run_task, &l);
}
