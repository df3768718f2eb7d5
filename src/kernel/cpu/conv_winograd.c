/* SPDX-License-Identifier: MIT */
/* conv_winograd.c - 3x3 convolutions of stride 1 and 2, and the gradient of their input, by
 * Winograd's method (winograd.h).
 *
 * A unit is some tiles of the batch in their order, whatever image they belong to. Channels are cut
 * into blocks on the side that is summed over and panels on the side that comes out. For each
 * unit and panel, block after block:
 *
 *   V[place][tile][block]  = B^T d B       from the image
 *   U[place][block][panel] = G g G^T       from the weights
 *   M[place][tile][panel] += V[place] U[place], one product a place
 *
 * and at the end y = A^T M A, bias, relu, 2x2 pooling. V, U and M of so much stay in L2; making V
 * again for each panel and U for each unit takes less time than fetching them from L3.
 * The gradient of the input is the same with dy, its weights turned and taken backwards.
 *
 * A kernel of stride 2 falls into four of stride 1, its phases: taps 0 and 2 of a row meet the odd
 * pixels of x, tap 1 the even ones, and so in columns. Phases of 2x2, 2x1, 1x2 and 1x1 taps take
 * 25, 20, 20 and 16 products for 4x4 outputs, where the plain sum takes 144; dimensions of one
 * tap are not transformed, and their places share one U. Phases of x add up to y; phases of dx,
 * and of the weights' gradient, are pixels and taps of their own. A unit goes through one phase
 * after the other, so that V and M of one stay in L2.
 *
 * Work: 36/16 products an output instead of 9 (9/4 for 2x2 images); transforms of about
 * 150 operations a tile and vector of channels. Traffic: x once a panel, w once a unit, y
 * once, with phases four times. Rounding errors are some ten times those of the plain sum; the
 * kernel's name is "winograd", so that a run says so.
 */
#include "kernel/cpu/winograd_plan.h"

enum { TASKS = 64 /* small enough that threads end together */ };

static int64_t turned_floats(const struct winograd_plan *plan)
{
    return plan->is_turned ? 9 * plan->block * plan->panel : 0;
}

static void size_correlation(struct winograd_plan *plan)
{
    const int64_t places = plan->phases[0].places;

    plan->keeps_u = plan->n_units > 1;
    for (int i = 0; i < plan->n_phases && plan->keeps_u; i++) {
        plan->phases[i].u_first = plan->kept_floats;
        plan->kept_floats +=
            plan->n_blocks * plan->n_panels * winograd_u_floats(plan, &plan->phases[i]);
    }
    plan->slots = at_most(plan->n_units * plan->n_panels, GEMM_TASKS);
    plan->n_tasks = at_most(at_least(plan->n_units, plan->slots), TASKS);
    plan->task_floats =
        places * (plan->n_blocks * plan->v_step + plan->m_step) + turned_floats(plan);
    if (!plan->keeps_u)
        plan->task_floats += winograd_u_floats(plan, &plan->phases[0]);
}

static struct winograd_plan forward_plan(const struct kernel_problem *problem)
{
    const struct conv conv = conv_of(problem, &problem->in[0].shape, &problem->in[1].shape);
    const int64_t window = problem->attrs.window[0] > 0 ? 2 : 1;
    const struct winograd_in x = winograd_image_of(conv.h, conv.w, conv.c, false);
    struct winograd_plan plan = {
        .n_phases = 1,
        .images = conv.n,
        .in = conv.c,
        .out = conv.o,
        .relu = problem->attrs.activation == ACTIVATION_RELU,
        .pool = window == 2,
        .adds_up = true,
        .x_image = winograd_image_floats(&x, false),
        .y_image = conv.oh / window * (conv.ow / window) * conv.o,
        .y_row = conv.ow / window * conv.o,
        .y_pixel = conv.o,
    };

    if (conv.sh == 2)
        winograd_cut_phases(&plan, &conv, x);
    else
        plan.phases[0] = winograd_whole_phase(&conv, x, conv.oh / window * window,
                                              conv.ow / window * window, false);
    winograd_shape_plan(&plan, WINOGRAD_PANEL);
    size_correlation(&plan);
    return plan;
}

static struct winograd_plan input_plan(const struct kernel_problem *problem)
{
    const bool is_pooled = conv_is_pooled(problem);
    const struct conv conv =
        conv_of(problem, &problem->out[0].shape, &problem->in[is_pooled ? 2 : 1].shape);
    const struct winograd_in dy = winograd_image_of(conv.oh, conv.ow, conv.o, is_pooled);
    struct winograd_plan plan = {
        .n_phases = 1,
        .images = conv.n,
        .in = conv.o,
        .out = conv.c,
        .is_turned = true,
        .x_image = winograd_image_floats(&dy, is_pooled),
        .y_image = conv.h * conv.w * conv.c,
        .y_row = conv.sh * conv.w * conv.c,
        .y_pixel = conv.sw * conv.c,
    };

    if (conv.sh == 2)
        winograd_cut_phases(&plan, &conv, dy);
    else
        plan.phases[0] = winograd_whole_phase(&conv, dy, conv.h, conv.w, true);
    winograd_shape_plan(&plan, WINOGRAD_PANEL);
    size_correlation(&plan);
    return plan;
}

static size_t correlation_scratch(const struct winograd_plan *plan)
{
    return (size_t)(plan->kept_floats + plan->slots * plan->task_floats) * sizeof(float);
}

static int parts_of(const struct winograd_plan *plan, int64_t n)
{
    return gemm_panels(plan->isa, plan->isa->rows, plan->tiles, n);
}

/* U of a slice: for each part of the panel [place][block][width]. */
static void turn_weights(const struct winograd_plan *plan, const struct winograd_phase *phase,
                         const struct winograd_slice *slice, float *u, float *turned)
{
    const int parts = parts_of(plan, slice->n);
    const int64_t size = plan->in * plan->out;
    const int *taps = phase->form->taps;
    const float *g = plan->w + (3 * phase->tap[0] + phase->tap[1]) * size;
    int64_t step = plan->out, row = 3 * phase->tap_step[0] * size,
            column = phase->tap_step[1] * size;

    if (plan->is_turned) { /* w is [tap][out][in] */
        const int64_t turned_size = slice->depth * slice->n;
        g += slice->first * plan->in + slice->k0;
        for (int64_t t = 0; t < (int64_t)taps[0] * taps[1]; t++)
            plan->isa->transpose(g + t / taps[1] * row + t % taps[1] * column, plan->in,
                                 (int)slice->n, (int)slice->depth, turned + t * turned_size,
                                 slice->n, false);
        g = turned;
        step = slice->n;
        row = taps[1] * turned_size;
        column = turned_size;
    } else {
        g += slice->k0 * step + slice->first;
    }
    for (int p = 0; p < parts; p++) {
        int64_t first;
        int n;
        const int width =
            winograd_vecs_at(plan, slice->n, parts, p, &first, &n) * plan->isa->lanes;
        float *to = u + first * slice->depth;

        for (int64_t i = 0; i < slice->depth; i++)
            phase->form->weight(g + i * step + first, row, column, n, to + i * width,
                                plan->u_step);
    }
}

/* M += V U for all places; M = V U for the first block. */
static void multiply(const struct winograd_plan *plan, const struct winograd_phase *phase,
                     int64_t tiles, const struct winograd_slice *slice, const float *v,
                     const float *u, float *m)
{
    static const ptrdiff_t no_offset[1] = { 0 };
    const int parts = parts_of(plan, slice->n);

    for (int i = 0; i < phase->places * parts; i++) {
        const int64_t place = i / parts;
        int64_t first;
        int n;
        const int vecs = winograd_vecs_at(plan, slice->n, parts, i % parts, &first, &n);
        struct tile tile = {
            .segment = no_offset,
            .n_segments = 1,
            .depth = (int)slice->depth,
            .b = u + winograd_weights_at(phase->form, place) * plan->u_step +
                 first * slice->depth,
            .b_step = vecs * plan->isa->lanes,
            .last = n - (vecs - 1) * plan->isa->lanes,
            .b_full = true,
            .accumulate = slice->k0 > 0,
        };
        const int64_t n_tiles = gemm_ceil(tiles, plan->isa->rows[vecs]);
        for (int64_t t = 0; t < n_tiles; t++) {
            int64_t at;
            const int count = (int)gemm_part(tiles, n_tiles, t, &at);

            for (int r = 0; r < count; r++) {
                tile.a[r] = v + place * plan->v_step + (at + r) * plan->block;
                tile.c[r] = m + place * plan->m_step + (at + r) * plan->panel + first;
            }
            plan->isa->by_rows(&tile, count, vecs);
        }
    }
}

/* y of a panel from M, tile by tile. */
static void turn_back(const struct winograd_plan *plan, const struct winograd_phase *phase,
                      const struct winograd_unit *unit, const struct winograd_slice *slice,
                      const float *m)
{
    const int window = plan->pool ? 2 : 1, size = phase->form->out / window;
    const int64_t rows = phase->rows / window, columns = phase->columns / window;
    const bool is_last = !plan->adds_up || phase == &plan->phases[plan->n_phases - 1];
    struct winograd_out out = {
        .row = plan->y_row,
        .pixel = plan->y_pixel,
        .bias = is_last && plan->bias != NULL ? plan->bias + slice->first : NULL,
        .relu = is_last && plan->relu,
        .accumulate = plan->adds_up && phase != plan->phases,
    };

    for (int64_t t = 0; t < unit->tiles; t++) {
        int64_t y, x;
        const int64_t image = winograd_place_tile(plan, unit->first + t, &y, &x);

        y /= window;
        x /= window;
        const int64_t at = image * plan->y_image + phase->y_first + y * plan->y_row +
                           x * plan->y_pixel + slice->first;
        out.rows = (int)at_most(size, rows - y);
        out.columns = (int)at_most(size, columns - x);
        out.y = plan->y + at;
        out.index = plan->pool ? plan->index + at : NULL;
        phase->form->output(m + t * plan->panel, plan->m_step, (int)slice->n, &out);
    }
}

/* Scratch of a thread. */
struct own {
    float *v, *m, *turned, *u;
};

static struct own own_at(const struct winograd_plan *plan, size_t slot)
{
    struct own own;

    own.v = plan->scratch + plan->kept_floats + (int64_t)slot * plan->task_floats;
    own.m = own.v + plan->phases[0].places * plan->n_blocks * plan->v_step;
    own.turned = own.m + plan->phases[0].places * plan->m_step;
    own.u = own.turned + turned_floats(plan);
    return own;
}

static float *kept_at(const struct winograd_plan *plan, const struct winograd_phase *phase,
                      int64_t slice)
{
    return plan->scratch + phase->u_first + slice * winograd_u_floats(plan, phase);
}

/* U of some slices, kept for all units. */
static void keep_weights(void *arg, size_t task, size_t slot)
{
    const struct winograd_plan *plan = arg;
    const int64_t n_slices = plan->n_blocks * plan->n_panels;
    int64_t i;
    const int64_t n = gemm_part(n_slices, at_most(n_slices, plan->n_tasks), (int64_t)task, &i);

    for (const int64_t end = i + n; i < end; i++) {
        const struct winograd_slice slice =
            winograd_slice_at(plan, i / plan->n_blocks, i % plan->n_blocks);
        for (int p = 0; p < plan->n_phases; p++)
            turn_weights(plan, &plan->phases[p], &slice, kept_at(plan, &plan->phases[p], i),
                         own_at(plan, slot).turned);
    }
}

/* One panel of one unit and phase; its V is there. */
static void run_panel(const struct winograd_plan *plan, const struct winograd_phase *phase,
                      const struct winograd_unit *unit, int64_t panel, const struct own *own)
{
    struct winograd_slice slice = { 0 };

    for (int64_t block = 0; block < plan->n_blocks; block++) {
        const float *u = own->u;

        slice = winograd_slice_at(plan, panel, block);
        if (plan->keeps_u)
            u = kept_at(plan, phase, panel * plan->n_blocks + block);
        else
            turn_weights(plan, phase, &slice, own->u, own->turned);
        multiply(plan, phase, unit->tiles, &slice,
                 own->v + block * phase->places * plan->v_step, u, own->m);
    }
    turn_back(plan, phase, unit, &slice, own->m);
}

/* Panels [from, to) of one unit. */
static void run_unit(const struct winograd_plan *plan, const struct winograd_unit *unit,
                     int64_t from, int64_t to, const struct own *own)
{
    for (int p = 0; p < plan->n_phases; p++) {
        const struct winograd_phase *phase = &plan->phases[p];

        for (int64_t block = 0; block < plan->n_blocks; block++) {
            const struct winograd_slice slice = winograd_slice_at(plan, 0, block);
            winograd_turn_inputs(plan, phase, unit->first, unit->first,
                                 unit->first + unit->tiles, slice.k0, slice.depth,
                                 own->v + block * phase->places * plan->v_step);
        }
        for (int64_t panel = from; panel < to; panel++)
            run_panel(plan, phase, unit, panel, own);
    }
}

/* Some panels of some units. */
static void run_task(void *arg, size_t task, size_t slot)
{
    const struct winograd_plan *plan = arg;
    const struct own own = own_at(plan, slot);
    const int64_t together = plan->n_units >= plan->n_tasks ? plan->n_panels : 1;
    int64_t i;
    const int64_t n_items = together * gemm_part(plan->n_units * plan->n_panels / together,
                                                 plan->n_tasks, (int64_t)task, &i);

    i *= together;
    for (const int64_t end = i + n_items; i < end;) {
        const struct winograd_unit unit = winograd_unit_at(plan, i / plan->n_panels);
        const int64_t from = i % plan->n_panels;
        const int64_t to = at_most(plan->n_panels, from + end - i);

        run_unit(plan, &unit, from, to, &own);
        i += to - from;
    }
}

static void run_correlation(struct winograd_plan *plan, const struct kernel_call *call)
{
    const bool is_pooled = plan->is_turned && conv_is_pooled(call->problem);

    if (plan->images * plan->tiles_y * plan->tiles_x == 0)
        return;
    for (int i = 0; i < plan->n_phases; i++) {
        struct winograd_in *x = &plan->phases[i].x;
        x->x = (const float *)call->in[0] + x->first;
        x->index = is_pooled ? call->in[1] : NULL;
    }
    plan->w = call->in[is_pooled ? 2 : 1];
    plan->y = call->out[0];
    plan->scratch = call->scratch;
    if (call->pool == NULL)
        plan->n_tasks = 1;
    if (plan->keeps_u)
        pool_for_slots(call->pool,
                       (size_t)at_most(plan->n_blocks * plan->n_panels, plan->n_tasks),
                       (size_t)plan->slots, keep_weights, plan);
    pool_for_slots(call->pool, (size_t)plan->n_tasks, (size_t)plan->slots, run_task, plan);
}

bool winograd_can_run(const struct kernel_problem *problem)
{
    return winograd_can_shape(problem, &problem->in[1].shape);
}

bool winograd_can_run_input(const struct kernel_problem *problem)
{
    return winograd_can_shape(problem, &problem->in[conv_is_pooled(problem) ? 2 : 1].shape);
}

size_t winograd_scratch(const struct kernel_problem *problem)
{
    const struct winograd_plan plan = forward_plan(problem);

    return correlation_scratch(&plan);
}

void winograd_run(const struct kernel_call *call)
{
    struct winograd_plan plan = forward_plan(call->problem);

    plan.bias = call->problem->n_in > 2 ? call->in[2] : NULL;
    plan.index = plan.pool ? call->out[1] : NULL;
    run_correlation(&plan, call);
}

size_t winograd_input_scratch(const struct kernel_problem *problem)
{
    const struct winograd_plan plan = input_plan(problem);

    return correlation_scratch(&plan);
}

void winograd_input_run(const struct kernel_call *call)
{
    struct winograd_plan plan = input_plan(call->problem);

    run_correlation(&plan, call);
}
