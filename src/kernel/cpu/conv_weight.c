/* SPDX-License-Identifier: MIT */
/* conv_weight.c - gradient of a convolution's weights: dw(tap,c,o) = sum over pixels x dy.
 *
 * A = the plane of x by columns: for one kernel row ky the kw*C values of (kx,c) that a pixel
 * of dy meets lie side by side, so a tile takes up to 12 of them as rows; B = dy as it lies,
 * one row a pixel. The shared dimension is pixels: a segment is a row of dy, a block some
 * rows (of some images) whose dy fits in L1 beside the part of x it meets. Blocks are summed
 * in order in dw itself, images in order.
 *
 * Images are cut into parts, a number of the problem alone, so bits do not depend on the pool. The
 * first part's sums are dw itself, those of the others lie in scratch and are added in order.
 *
 * Traffic: x about twice, dy twice (once for db), dw once a block (in L2 where kh*kw*C*O is
 * small). A dy that comes as a 2x2 max pool left it is spread out in scratch unit by unit.
 */
#include "kernel/cpu/conv.h"

enum {
    PLANE_BYTES = 256 << 10, /* of a group of images or a strip of one */
    BLOCK_PIXELS = 128,
    GROUP_PIXELS = 256,
    SEGMENTS = 128,         /* of a block */
    PARTS = 8,              /* at most */
    PART_PIXELS = 512,      /* of dy, at least */
    PARTS_FLOATS = 2 << 20, /* of more than two parts' sums, at most */
    SUM_FLOATS = 4096,      /* of a task */
};

struct plan {
    const struct tile_isa *isa;
    struct conv conv;
    struct plane plane;
    int64_t taps_y, step_y;
    int64_t run;                  /* values of (kx, c) side by side */
    int64_t group, strip, strips; /* images and rows of dy in a unit */
    int n_panels;
    struct plane dy; /* only if pooled: spread out unit by unit */
    bool is_pooled;
    int64_t plane_floats, dy_floats; /* scratch of a thread */
    int64_t n_units, parts; /* groups of images times strips; into how many they are cut */
    int64_t sum_floats;     /* of a part: dw, then db */
};

static int64_t at_most(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t plane_rows(const struct plan *l, int64_t rows)
{
    return (rows - 1) * l->step_y + l->taps_y;
}

static struct plan plan_of(const struct kernel_problem *problem, const float *x)
{
    struct plan l = { .isa = tile_current() };
    const struct conv conv = conv_of(problem, &problem->in[0].shape, &problem->out[0].shape);
    const bool stacks = conv_stacks(&conv);
    const int64_t columns = (conv.ow - 1) * conv.sw + conv.kw;

    l.conv = conv;
    l.taps_y = stacks ? 1 : conv.kh;
    l.step_y = stacks ? 1 : conv.sh;
    l.plane = stacks ? plane_of(x, conv.h, conv.w, conv.c, conv.ph, conv.pw, conv.oh, columns,
                                conv.kh, conv.sh)
                     : plane_of(x, conv.h, conv.w, conv.c, conv.ph, conv.pw,
                                (conv.oh - 1) * conv.sh + conv.kh, columns, 1, 1);
    l.run = conv.kw * plane_pixel(&l.plane);
    l.group = 1;
    l.strip = conv.oh;
    const int64_t row_bytes = plane_row(&l.plane) * 4;
    if (plane_rows(&l, conv.oh) * row_bytes > PLANE_BYTES) {
        const int64_t most = (PLANE_BYTES / row_bytes - l.taps_y) / l.step_y;
        l.strip = gemm_ceil(conv.oh, gemm_ceil(conv.oh, most < 1 ? 1 : most));
    } else {
        l.group = gemm_ceil(GROUP_PIXELS, conv.oh * conv.ow);
        l.group = at_most(l.group, conv.n);
    }
    l.strips = gemm_ceil(conv.oh, l.strip);
    l.n_panels = gemm_panels(l.isa, l.isa->columns, l.run, conv.o);
    if (!l.plane.is_direct)
        l.plane_floats = (l.strips > 1 ? plane_rows(&l, l.strip) : l.group * l.plane.rows) *
                         plane_row(&l.plane);
    l.plane_floats = gemm_ceil(l.plane_floats, 16) * 16;
    l.is_pooled = conv_is_pooled(problem);
    if (l.is_pooled) {
        l.dy = plane_of(NULL, conv.oh, conv.ow, conv.o, 0, 0, conv.oh, conv.ow, 1, 1);
        plane_pool(&l.dy);
        l.dy_floats = gemm_ceil(l.group * l.strip * conv.ow * conv.o, 16) * 16;
    }
    l.n_units = gemm_ceil(conv.n, l.group) * l.strips;
    l.sum_floats = gemm_ceil((conv.kh * conv.kw * conv.c + 1) * conv.o, 16) * 16;
    l.parts = PARTS;
    while (l.parts > 1 &&
           (l.n_units < l.parts || conv.n * conv.oh * conv.ow < l.parts * PART_PIXELS ||
            (l.parts > 2 && l.parts * l.sum_floats > PARTS_FLOATS)))
        l.parts /= 2;
    return l;
}

size_t conv_weight_scratch(const struct kernel_problem *problem)
{
    const struct plan l = plan_of(problem, NULL);

    if (conv_is_stem(&l.conv, problem))
        return conv_stem_scratch(&l.conv);
    if (conv_is_narrow_weight(&l.conv, problem))
        return conv_narrow_scratch(&l.conv);
    return (size_t)(l.parts * (l.plane_floats + l.dy_floats) + (l.parts - 1) * l.sum_floats) *
           sizeof(float);
}

/* Some rows of dy: what one walk of a tile covers. */
struct block {
    ptrdiff_t segment[SEGMENTS];
    int n_segments, depth;
    const float *dy;
};

struct walk {
    const struct plan *l;
    struct block block;
    const float *plane;
    float *dw;
    bool accumulate;
};

/* Where (kx, ky, c) = value i of the run of kernel row ky goes in dw. */
static float *target(const struct plan *l, float *dw, int64_t ky, int64_t i)
{
    const struct conv *conv = &l->conv;

    if (l->plane.stack > 1) {
        const int64_t pixel = plane_pixel(&l->plane);
        const int64_t kx = i / pixel, row = i % pixel / conv->c, c = i % conv->c;
        return dw + ((row * conv->kw + kx) * conv->c + c) * conv->o;
    }
    return dw + (ky * l->run + i) * conv->o;
}

/* All of one panel for one kernel row. */
static void run_panel(const struct walk *walk, int64_t task)
{
    const struct plan *l = walk->l;
    const struct tile_isa *isa = l->isa;
    const int64_t ky = task % l->taps_y;
    int64_t vec;
    const int vecs =
        (int)gemm_part(gemm_ceil(l->conv.o, isa->lanes), l->n_panels, task / l->taps_y, &vec);
    const int64_t first = vec * isa->lanes;
    const int n = (int)at_most(l->conv.o - first, (int64_t)vecs * isa->lanes);
    struct tile tile = {
        .segment = walk->block.segment,
        .n_segments = walk->block.n_segments,
        .depth = walk->block.depth,
        .a_step = l->conv.sw * plane_pixel(&l->plane),
        .b = walk->block.dy + first,
        .b_step = l->conv.o,
        .last = n - (vecs - 1) * isa->lanes,
        .accumulate = walk->accumulate,
    };
    tile.b_full = tile.last == isa->lanes;

    const int64_t n_tiles = gemm_ceil(l->run, isa->columns[vecs]);
    for (int64_t t = 0; t < n_tiles; t++) {
        int64_t at;
        const int count = (int)gemm_part(l->run, n_tiles, t, &at);

        tile.a[0] = walk->plane + ky * plane_row(&l->plane) + at;
        for (int i = 0; i < count; i++)
            tile.c[i] = target(l, walk->dw, ky, at + i) + first;
        isa->by_columns(&tile, count, vecs);
    }
}

/* The blocks of a unit whose plane is ready: some rows of one strip or of whole images. */
static void run_unit(struct walk *walk, const float *dy, int64_t rows, int64_t image_rows)
{
    const struct plan *l = walk->l;
    const int64_t ow = l->conv.ow, row = plane_row(&l->plane);
    const int64_t pieces = gemm_ceil(ow, BLOCK_PIXELS);
    const int64_t most = at_most(SEGMENTS, BLOCK_PIXELS / gemm_ceil(ow, pieces));
    const int64_t n_blocks = gemm_ceil(rows, most < 1 ? 1 : most);
    struct block *block = &walk->block;

    for (int64_t b = 0; b < n_blocks; b++) {
        int64_t r;
        const int64_t n_rows = gemm_part(rows, n_blocks, b, &r);

        /* A row longer than a block is cut; then a block has pieces of one row. */
        for (int64_t p = 0; p < pieces; p++) {
            int64_t x;
            block->depth = (int)gemm_part(ow, pieces, p, &x);
            block->n_segments = (int)n_rows;
            block->dy = dy + (r * ow + x) * l->conv.o;
            for (int64_t s = 0; s < n_rows; s++)
                block->segment[s] =
                    ((r + s) / image_rows * l->plane.rows + (r + s) % image_rows * l->step_y) *
                        row +
                    x * l->conv.sw * plane_pixel(&l->plane);
            for (int64_t i = 0; i < l->taps_y * l->n_panels; i++)
                run_panel(walk, i);
            walk->accumulate = true;
        }
    }
}

/* The part of dy that a unit meets: where it lies, or spread out in scratch. */
static const float *unit_dy(const struct plan *l, const struct kernel_call *call, int64_t image,
                            int64_t n_images, int64_t r, int64_t n_rows, float *to)
{
    const int64_t row = l->conv.ow * l->conv.o;

    if (!l->is_pooled)
        return (const float *)call->in[1] + (image * l->conv.oh + r) * row;
    for (int64_t i = 0; i < n_images; i++)
        plane_copy(&l->dy, image + i, r, n_rows, to + i * n_rows * row);
    return to;
}

struct job {
    const struct plan *l;
    const struct kernel_call *call;
    float *sums; /* of the parts but the first */
};

static float *part_dw(const struct job *job, int64_t part)
{
    return part == 0 ? job->call->out[0] : job->sums + (part - 1) * job->l->sum_floats;
}

static float *part_db(const struct job *job, int64_t part)
{
    const struct conv *conv = &job->l->conv;

    if (job->call->problem->n_out < 2)
        return NULL;
    return part == 0 ? job->call->out[1]
                     : part_dw(job, part) + conv->kh * conv->kw * conv->c * conv->o;
}

/* Adds unit u to a part's sums. */
static void add_unit(const struct job *job, int64_t u, struct walk *walk, float *db, float *own)
{
    const struct plan *l = job->l;
    const struct conv *conv = &l->conv;
    const int64_t image = u / l->strips * l->group, r = u % l->strips * l->strip;
    const int64_t n_images = at_most(l->group, conv->n - image);
    const int64_t n_rows = at_most(l->strip, conv->oh - r);
    const float *dy = unit_dy(l, job->call, image, n_images, r, n_rows, own + l->plane_floats);

    if (db != NULL)
        l->isa->column_sums(dy, conv->o, n_images * n_rows * conv->ow, (int)conv->o,
                            walk->accumulate, db);
    for (int64_t i = 0; i < n_images; i++) {
        float *to = l->plane_floats > 0 ? own + i * l->plane.rows * plane_row(&l->plane) : own;
        const float *plane =
            plane_copy(&l->plane, image + i, r * l->step_y, plane_rows(l, n_rows), to);
        if (i == 0)
            walk->plane = plane;
    }
    run_unit(walk, dy, n_images * n_rows, n_rows);
}

static void run_part(void *arg, size_t part, size_t slot)
{
    const struct job *job = arg;
    const struct plan *l = job->l;
    struct walk walk = { .l = l, .dw = part_dw(job, (int64_t)part) };
    float *db = part_db(job, (int64_t)part), *own = job->call->scratch;
    int64_t u;
    const int64_t n = gemm_part(l->n_units, l->parts, (int64_t)part, &u);

    if (l->plane_floats + l->dy_floats > 0)
        own += (int64_t)slot * (l->plane_floats + l->dy_floats);
    for (const int64_t end = u + n; u < end; u++)
        add_unit(job, u, &walk, db, own);
}

/* Adds some of all parts' dw to the first one's. */
static void add_parts(void *arg, size_t task)
{
    const struct job *job = arg;
    const struct conv *conv = &job->l->conv;
    const int64_t count = conv->kh * conv->kw * conv->c * conv->o;
    const int64_t begin = (int64_t)task * SUM_FLOATS, end = at_most(begin + SUM_FLOATS, count);
    float *dw = part_dw(job, 0);

    for (int64_t part = 1; part < job->l->parts; part++) {
        const float *more = part_dw(job, part);
        for (int64_t i = begin; i < end; i++)
            dw[i] += more[i];
    }
}

static void add_biases(const struct job *job)
{
    float *db = part_db(job, 0);

    for (int64_t part = 1; part < job->l->parts && db != NULL; part++) {
        const float *more = part_db(job, part);
        for (int64_t i = 0; i < job->l->conv.o; i++)
            db[i] += more[i];
    }
}

void conv_weight_run(const struct kernel_call *call)
{
    struct plan l = plan_of(call->problem, call->in[0]);
    const struct conv *conv = &l.conv;
    struct job job = { .l = &l, .call = call };

    if (conv_is_stem(conv, call->problem)) {
        conv_stem_weight_run(conv, call);
        return;
    }
    if (conv_is_narrow_weight(conv, call->problem)) {
        conv_narrow_weight_run(conv, call);
        return;
    }
    l.dy.x = call->in[1];
    l.dy.index = l.is_pooled ? call->in[2] : NULL;
    if (l.parts > 1)
        job.sums = (float *)call->scratch + l.parts * (l.plane_floats + l.dy_floats);
    pool_for_slots(call->pool, (size_t)l.parts, (size_t)l.parts, run_part, &job);
    if (l.parts > 1)
        pool_for(call->pool,
                 (size_t)gemm_ceil(conv->kh * conv->kw * conv->c * conv->o, SUM_FLOATS),
                 add_parts, &job);
    add_biases(&job);
}
