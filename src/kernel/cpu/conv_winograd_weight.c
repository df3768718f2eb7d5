/* SPDX-License-Identifier: MIT */
/* conv_winograd_weight.c - the gradient of the weights of a 3x3 convolution by Winograd's method,
 * cut as conv_winograd.c says.
 *
 * The gradient of the weights is dg = G^T [sum over tiles of V (A dy A^T)] G. Here the sums of one
 * block of input and one panel of output channels grow unit by unit, in order; a few sums of
 * parts of the units are added at the end. Channels of zeros give zeros; taps that meet no pixel
 * are set to zero (docs/decisions/0072-zeros-in-winograd.md).
 */
#include <string.h>

#include "kernel/cpu/winograd_plan.h"

enum {
    KEPT_UNITS = 4,           /* whose transforms are kept between blocks and panels */
    SHARED = 8,               /* tasks that a gradient of weights is worth being cut into */
    PHASE_WEIGHT_PANEL = 128, /* channels that come out together, with phases */
    TAPS = 9,
};

static struct winograd_plan weight_plan(const struct kernel_problem *problem)
{
    const bool is_pooled = conv_is_pooled(problem);
    const struct conv conv = conv_of(problem, &problem->in[0].shape, &problem->out[0].shape);
    const struct winograd_in x = winograd_image_of(conv.h, conv.w, conv.c, false);
    struct winograd_plan plan = {
        .n_phases = 1,
        .images = conv.n,
        .in = conv.c,
        .out = conv.o,
        .x_image = winograd_image_floats(&x, false),
        .dy = winograd_image_of(conv.oh, conv.ow, conv.o, is_pooled),
    };

    plan.dy_image = winograd_image_floats(&plan.dy, is_pooled);
    if (conv.sh == 2)
        winograd_cut_phases(&plan, &conv, plan.dy);
    else
        plan.phases[0] = winograd_whole_phase(&conv, x, conv.oh, conv.ow, false);
    winograd_shape_plan(&plan, plan.n_phases > 1 ? PHASE_WEIGHT_PANEL : WINOGRAD_PANEL);
    return plan;
}

bool winograd_can_run_weight(const struct kernel_problem *problem)
{
    return winograd_can_shape(problem, &problem->out[0].shape);
}

/* V of one block and M of all panels are kept for all units if that is not much; then each is
 * made once. */
static bool keeps_turned(const struct winograd_plan *plan)
{
    return plan->n_units <= KEPT_UNITS;
}

/* Else units are cut into parts with sums of their own, which are added in order, where slices are
 * too few to be shared among threads. */
static int64_t weight_parts(const struct winograd_plan *plan)
{
    const int64_t slices = plan->n_blocks * plan->n_panels;

    return keeps_turned(plan)
               ? 1
               : at_least(1, at_most(gemm_ceil(SHARED, slices), plan->n_units / 2));
}

/* What the gradient of the weights has in scratch. */
struct room {
    int64_t parts, slots; /* threads that take part */
    int64_t n_u, n_v, n_m;
};

static struct room room_of(const struct winograd_plan *plan)
{
    const int64_t slices = plan->n_blocks * plan->n_panels;
    struct room room = { .parts = weight_parts(plan) };

    if (keeps_turned(plan)) {
        room.slots = room.n_u = at_most(plan->n_panels, GEMM_TASKS);
        room.n_v = plan->n_units;
        room.n_m = plan->n_units * plan->n_panels;
    } else {
        room.slots = room.n_v = room.n_m = at_most(slices * room.parts, GEMM_TASKS);
        room.n_u = room.parts > 1 ? slices * room.parts : room.slots;
    }
    return room;
}

size_t winograd_weight_scratch(const struct kernel_problem *problem)
{
    const struct winograd_plan plan = weight_plan(problem);
    const struct room room = room_of(&plan);

    return (size_t)(room.n_u * winograd_u_floats(&plan, plan.phases) +
                    plan.phases->places * (room.n_v * plan.v_step + room.n_m * plan.m_step)) *
           sizeof(float);
}

struct walk {
    const struct winograd_plan *plan;
    const struct winograd_phase *phase;
    struct room room;
    int64_t block; /* whose V is kept */
    float *u, *v, *m, *dw;
};

static float *u_at(const struct walk *walk, int64_t i)
{
    return walk->u + i * winograd_u_floats(walk->plan, walk->plan->phases);
}

static float *v_at(const struct walk *walk, int64_t i)
{
    return walk->v + i * walk->plan->phases->places * walk->plan->v_step;
}

static float *m_at(const struct walk *walk, int64_t i)
{
    return walk->m + i * walk->plan->phases->places * walk->plan->m_step;
}

/* A dy A^T of channels [first, first + n) of tiles [from, to), the first of a unit being `begin`. */
static void turn_outputs(const struct winograd_plan *plan, const struct winograd_phase *phase,
                         int64_t begin, int64_t from, int64_t to, int64_t first, int64_t n,
                         float *m)
{
    struct winograd_in dy = plan->dy;

    for (int64_t t = from; t < to; t++) {
        const int64_t at =
            winograd_place_tile(plan, t, &dy.top, &dy.left) * plan->dy_image + first;

        dy.x = plan->dy.x + at;
        dy.index = plan->dy.index != NULL ? plan->dy.index + at : NULL;
        phase->form->output_grad(&dy, (int)n, m + (t - begin) * plan->panel, plan->m_step);
    }
}

/* Adds V^T M of one place to the sums of its weights. */
static void multiply_place(const struct winograd_plan *plan, const struct winograd_slice *slice,
                           int64_t tiles, const float *v, const float *m, float *u,
                           bool accumulate)
{
    static const ptrdiff_t no_offset[1] = { 0 };
    const int parts = gemm_panels(plan->isa, plan->isa->columns, slice->depth, slice->n);

    for (int p = 0; p < parts; p++) {
        int64_t first;
        int n;
        const int vecs = winograd_vecs_at(plan, slice->n, parts, p, &first, &n);
        struct tile tile = {
            .segment = no_offset,
            .n_segments = 1,
            .depth = (int)tiles,
            .a_step = plan->block,
            .b = m + first,
            .b_step = plan->panel,
            .last = n - (vecs - 1) * plan->isa->lanes,
            .accumulate = accumulate,
        };
        tile.b_full = tile.last == plan->isa->lanes;
        const int64_t n_tiles = gemm_ceil(slice->depth, plan->isa->columns[vecs]);
        for (int64_t t = 0; t < n_tiles; t++) {
            int64_t at;
            const int count = (int)gemm_part(slice->depth, n_tiles, t, &at);

            tile.a[0] = v + at;
            for (int r = 0; r < count; r++)
                tile.c[r] = u + (at + r) * plan->panel + first;
            plan->isa->by_columns(&tile, count, vecs);
        }
    }
}

/* The same for all places, in order: those that share weights add up. */
static void multiply_places(const struct winograd_plan *plan,
                            const struct winograd_phase *phase,
                            const struct winograd_slice *slice, int64_t tiles, const float *v,
                            const float *m, float *u, bool accumulate)
{
    const int *side = phase->form->side, *weight_side = phase->form->weight_side;

    for (int64_t place = 0; place < phase->places; place++) {
        const bool is_first =
            place / side[1] < weight_side[0] && place % side[1] < weight_side[1];

        multiply_place(plan, slice, tiles, v + place * plan->v_step, m + place * plan->m_step,
                       u + winograd_weights_at(phase->form, place) * plan->u_step,
                       accumulate || !is_first);
    }
}

/* dw of input channels [from, to) of a slice. */
static void turn_sums(const struct walk *walk, const struct winograd_slice *slice,
                      const float *u, int64_t from, int64_t to)
{
    const struct winograd_plan *plan = walk->plan;
    const struct winograd_phase *phase = walk->phase;
    const int64_t tap = plan->in * plan->out;
    float *dw = walk->dw + (3 * phase->tap[0] + phase->tap[1]) * tap + slice->first;

    for (int64_t c = from; c < to; c++)
        phase->form->weight_grad(u + c * plan->panel, plan->u_step, (int)slice->n,
                                 dw + (slice->k0 + c) * plan->out, 3 * phase->tap_step[0] * tap,
                                 phase->tap_step[1] * tap);
}

enum { TURN_TILES = 8 }; /* of a task */

/* Some tiles of a unit: V of this block, and with the first block M of all panels. */
static void turn_kept(void *arg, size_t task)
{
    const struct walk *walk = arg;
    const struct winograd_plan *plan = walk->plan;
    const int64_t chunks = gemm_ceil(plan->tiles, TURN_TILES), i = (int64_t)task / chunks;
    const struct winograd_unit unit = winograd_unit_at(plan, i);
    const int64_t end = unit.first + unit.tiles;
    const int64_t from = unit.first + (int64_t)task % chunks * TURN_TILES;
    const int64_t to = at_most(from + TURN_TILES, end);
    const struct winograd_slice slice = winograd_slice_at(plan, 0, walk->block);

    winograd_turn_inputs(plan, walk->phase, unit.first, from, to, slice.k0, slice.depth,
                         v_at(walk, i));
    for (int64_t panel = 0; panel < plan->n_panels && walk->block == 0; panel++) {
        const struct winograd_slice out = winograd_slice_at(plan, panel, 0);
        turn_outputs(plan, walk->phase, unit.first, from, to, out.first, out.n,
                     m_at(walk, i * plan->n_panels + panel));
    }
}

/* dw of one panel and this block, whose V and M are there. */
static void run_kept(void *arg, size_t panel, size_t slot)
{
    const struct walk *walk = arg;
    const struct winograd_plan *plan = walk->plan;
    const struct winograd_slice slice = winograd_slice_at(plan, (int64_t)panel, walk->block);
    float *u = u_at(walk, (int64_t)slot);

    for (int64_t i = 0; i < plan->n_units; i++)
        multiply_places(plan, walk->phase, &slice, winograd_unit_at(plan, i).tiles,
                        v_at(walk, i), m_at(walk, i * plan->n_panels + (int64_t)panel), u,
                        i > 0);
    turn_sums(walk, &slice, u, 0, slice.depth);
}

/* The sums of one part of the units for one slice; dw if that is all of them. */
static void run_units(void *arg, size_t task, size_t slot)
{
    const struct walk *walk = arg;
    const struct winograd_plan *plan = walk->plan;
    const int64_t parts = walk->room.parts, i = (int64_t)task / parts;
    const struct winograd_slice slice =
        winograd_slice_at(plan, i % plan->n_panels, i / plan->n_panels);
    float *u = u_at(walk, (int64_t)(parts > 1 ? task : slot));
    float *v = v_at(walk, (int64_t)slot), *m = m_at(walk, (int64_t)slot);
    int64_t first;
    const int64_t n = gemm_part(plan->n_units, parts, (int64_t)task % parts, &first);

    for (int64_t k = first; k < first + n; k++) {
        const struct winograd_unit unit = winograd_unit_at(plan, k);
        const int64_t end = unit.first + unit.tiles;

        winograd_turn_inputs(plan, walk->phase, unit.first, unit.first, end, slice.k0,
                             slice.depth, v);
        turn_outputs(plan, walk->phase, unit.first, unit.first, end, slice.first, slice.n, m);
        multiply_places(plan, walk->phase, &slice, unit.tiles, v, m, u, k > first);
    }
    if (parts == 1)
        turn_sums(walk, &slice, u, 0, slice.depth);
}

enum { JOIN_CHANNELS = 8 }; /* of a task */

/* Adds the parts' sums for some input channels of a slice, in order; dw of these. */
static void join_parts(void *arg, size_t task)
{
    const struct walk *walk = arg;
    const struct winograd_plan *plan = walk->plan;
    const int64_t parts = walk->room.parts, chunks = gemm_ceil(plan->block, JOIN_CHANNELS);
    const int64_t i = (int64_t)task / chunks, from = (int64_t)task % chunks * JOIN_CHANNELS;
    const struct winograd_slice slice =
        winograd_slice_at(plan, i % plan->n_panels, i / plan->n_panels);
    const int64_t to = at_most(from + JOIN_CHANNELS, slice.depth);
    float *sum = u_at(walk, i * parts);

    for (int64_t part = 1; part < parts; part++) {
        const float *u = u_at(walk, i * parts + part);
        for (int64_t place = 0; place < walk->phase->weight_places; place++) {
            const int64_t at = place * plan->u_step;
            for (int64_t c = at + from * plan->panel; c < at + to * plan->panel; c++)
                sum[c] += u[c];
        }
    }
    turn_sums(walk, &slice, sum, from, to);
}

static void run_weight(struct walk *walk, struct pool *pool)
{
    const struct winograd_plan *plan = walk->plan;
    const int64_t slices = plan->n_blocks * plan->n_panels, parts = walk->room.parts;

    if (!keeps_turned(plan)) {
        pool_for_slots(pool, (size_t)(slices * parts), (size_t)walk->room.slots, run_units,
                       walk);
        if (parts > 1)
            pool_for(pool, (size_t)(slices * gemm_ceil(plan->block, JOIN_CHANNELS)), join_parts,
                     walk);
        return;
    }
    for (walk->block = 0; walk->block < plan->n_blocks; walk->block++) {
        pool_for(pool, (size_t)(plan->n_units * gemm_ceil(plan->tiles, TURN_TILES)), turn_kept,
                 walk);
        pool_for_slots(pool, (size_t)plan->n_panels, (size_t)walk->room.slots, run_kept, walk);
    }
}

/* Does tap k of one dimension meet a pixel of an input of n, for one of `outputs`? */
static bool meets_pixel(int k, int64_t outputs, int64_t stride, int64_t pad, int64_t n)
{
    for (int64_t i = 0; i < outputs; i++) {
        const int64_t at = i * stride + k - pad;

        if (at >= 0 && at < n)
            return true;
    }
    return false;
}

struct unused {
    float *dw;
    size_t tap;    /* weights of a tap */
    unsigned taps; /* a bit for each */
};

static unsigned unused_taps(const struct conv *conv, const struct winograd_in *dy)
{
    unsigned taps = 0;

    for (int i = 0; i < TAPS; i++)
        if (!meets_pixel(i / 3, dy->rows, conv->sh, conv->ph, conv->h) ||
            !meets_pixel(i % 3, dy->columns, conv->sw, conv->pw, conv->w))
            taps |= 1u << i;
    return taps;
}

static void clear_tap(void *arg, size_t i)
{
    const struct unused *unused = arg;

    if (unused->taps >> i & 1)
        memset(unused->dw + i * unused->tap, 0, unused->tap * sizeof *unused->dw);
}

/* Writes zeros for taps that meet no pixel, where the transforms leave rounding errors. */
static void clear_unused_taps(const struct conv *conv, const struct winograd_in *dy, float *dw,
                              struct pool *pool)
{
    struct unused unused = {
        .dw = dw,
        .tap = (size_t)(conv->c * conv->o),
        .taps = unused_taps(conv, dy),
    };

    if (unused.taps != 0)
        pool_for(pool, TAPS, clear_tap, &unused);
}

enum { BIAS_CHANNELS = 32 }; /* of a task */

static void sum_channels(void *arg, size_t task)
{
    const struct kernel_call *call = arg;
    const struct shape *dy = &call->problem->in[1].shape;
    const int64_t first = (int64_t)task * BIAS_CHANNELS, channels = dy->dim[1];

    tile_current()->column_sums(
        (const float *)call->in[1] + first, channels, dy->dim[0] * dy->dim[2] * dy->dim[3],
        (int)at_most(BIAS_CHANNELS, channels - first), false, (float *)call->out[1] + first);
}

void winograd_weight_run(const struct kernel_call *call)
{
    struct winograd_plan plan = weight_plan(call->problem);
    const bool is_pooled = conv_is_pooled(call->problem);
    const struct conv conv =
        conv_of(call->problem, &call->problem->in[0].shape, &call->problem->out[0].shape);
    struct kernel_call copy = *call;
    struct walk walk = {
        .plan = &plan, .room = room_of(&plan), .u = call->scratch, .dw = call->out[0]
    };

    walk.v = u_at(&walk, walk.room.n_u);
    walk.m = v_at(&walk, walk.room.n_v);
    plan.dy.x = call->in[1];
    plan.dy.index = is_pooled ? call->in[2] : NULL;
    for (int p = 0; p < plan.n_phases; p++) {
        struct winograd_in *x = &plan.phases[p].x;

        x->x = (const float *)call->in[0] + x->first;
        walk.phase = &plan.phases[p];
        run_weight(&walk, call->pool);
    }
    clear_unused_taps(&conv, &plan.dy, call->out[0], call->pool);
    if (call->problem->n_out > 1 && !is_pooled)
        pool_for(call->pool, (size_t)gemm_ceil(plan.out, BIAS_CHANNELS), sum_channels, &copy);
    else if (call->problem->n_out > 1)
        plan.isa->window_sums(plan.dy.x, plan.dy.index,
                              plan.images * (plan.dy.rows / 2) * (plan.dy.columns / 2),
                              (int)plan.out, call->out[1]);
}
