/* SPDX-License-Identifier: MIT */
/* conv_winograd.c - 3x3 convolutions of stride 1 by Winograd's F(4x4, 3x3).
 *
 * A unit is some images, or a strip of one, with about TILES tiles. For each unit:
 *
 *   V[place][tile][in]   = B^T d B       from the padded plane of each image
 *   M[place][tile][out]  = V[place] U[place], 36 products, U = G g G^T made once a call
 *   y                    = A^T M A, bias, relu, 2x2 pooling
 *
 * The gradient of the input is the same with dy, its weights turned and taken backwards. The
 * gradient of the weights is dg = G^T [sum over tiles of V (A dy A^T)] G: the sums, kept for
 * all places (36*C*O floats), grow unit by unit in order.
 *
 * Work: 36/16 products an output instead of 9, and transforms of about 150 operations a tile
 * and vector of channels; traffic: V and M (36*(C+O) floats a tile) through L2. Rounding errors
 * are some ten times those of the plain sum; the kernel's name is "winograd", so that a run
 * says so.
 */
#include "kernel/cpu/conv.h"
#include "kernel/cpu/winograd.h"

enum {
    TILES = 64,
    SKEW = 16, /* floats between places, so that they do not share sets of the cache */
};

/* One correlation by tiles, or for the weights both its sides. */
struct plan {
    const struct tile_isa *isa;
    const struct winograd_isa *winograd;
    struct plane plane;
    int64_t images, in, out;
    int64_t rows, columns;    /* of the output that are wanted */
    int64_t tiles_y, tiles_x; /* of an image */
    int64_t group, strip, strips;
    int64_t n_units, n_tasks;
    int64_t tiles;                  /* of a full unit */
    int64_t v_step, m_step, u_step; /* between places */
    int n_panels;
    int64_t u_floats, plane_floats, task_floats;
    struct plane dy; /* weights, if pooled: spread out image by image */
    int64_t dy_floats;
    bool is_turned;
    /* The call. */
    const float *w, *bias;
    float *y;
    uint8_t *index;
    bool relu, pool;
    float *u, *turned, *tasks;
};

static int64_t at_most(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t round_up(int64_t n)
{
    return gemm_ceil(n, 16) * 16;
}

static const struct winograd_isa *current(const struct tile_isa *isa)
{
    return isa == &tile_avx512 ? &winograd_avx512 : &winograd_avx2;
}

/* Shapes of x * w: x is (h,w,in) with `top` and `left` zeros before it, y (rows,columns,out).
 */
static void shape_plan(struct plan *plan, int64_t h, int64_t w, int64_t top, int64_t left)
{
    plan->isa = tile_current();
    plan->winograd = current(plan->isa);
    plan->tiles_y = gemm_ceil(plan->rows, WINOGRAD_OUT);
    plan->tiles_x = gemm_ceil(plan->columns, WINOGRAD_OUT);
    plan->plane = plane_of(NULL, h, w, plan->in, top, left, plan->tiles_y * WINOGRAD_OUT + 2,
                           plan->tiles_x * WINOGRAD_OUT + 2, 1, 1);
    const int64_t per_image = plan->tiles_y * plan->tiles_x;
    plan->group = at_most(plan->images, per_image > TILES ? 1 : TILES / per_image);
    plan->strip = per_image > TILES ? gemm_ceil(TILES, plan->tiles_x) : plan->tiles_y;
    plan->strip = at_most(plan->strip, plan->tiles_y);
    plan->strips = gemm_ceil(plan->tiles_y, plan->strip);
    plan->n_units = gemm_ceil(plan->images, plan->group) * plan->strips;
    plan->n_tasks = at_most(plan->n_units, GEMM_TASKS);
    plan->tiles = plan->group * plan->strip * plan->tiles_x;
    plan->v_step = round_up(plan->tiles * plan->in) + SKEW;
    plan->m_step = round_up(plan->tiles * plan->out) + SKEW;
    plan->plane_floats = round_up((plan->strip * WINOGRAD_OUT + 2) * plane_row(&plan->plane));
}

static bool is_three_by_three(const struct kernel_problem *problem, const struct shape *w)
{
    return conv_can_run(problem) && w->dim[2] == 3 && w->dim[3] == 3 &&
           problem->attrs.stride[0] == 1 && problem->attrs.stride[1] == 1;
}

/* The unit's images [*image, + *n_images) and tile rows [*row, + *n_rows). */
struct unit {
    int64_t image, n_images, row, n_rows, tiles;
};

static struct unit unit_at(const struct plan *plan, int64_t i)
{
    struct unit unit;

    unit.image = i / plan->strips * plan->group;
    unit.n_images = at_most(plan->group, plan->images - unit.image);
    unit.row = i % plan->strips * plan->strip;
    unit.n_rows = at_most(plan->strip, plan->tiles_y - unit.row);
    unit.tiles = unit.n_images * unit.n_rows * plan->tiles_x;
    return unit;
}

/* V of image i of the unit. */
static void turn_image(const struct plan *plan, const struct unit *unit, int64_t i,
                       float *plane, float *v)
{
    const float *from = plane_copy(&plan->plane, unit->image + i, unit->row * WINOGRAD_OUT,
                                   unit->n_rows * WINOGRAD_OUT + 2, plane);
    const int64_t row = plane_row(&plan->plane);

    v += i * unit->n_rows * plan->tiles_x * plan->in;
    for (int64_t y = 0; y < unit->n_rows; y++) {
        for (int64_t x = 0; x < plan->tiles_x; x++) {
            plan->winograd->input(from + (y * row + x * plan->in) * WINOGRAD_OUT, row, plan->in,
                                  (int)plan->in, v, plan->v_step);
            v += plan->in;
        }
    }
}

/* Forward and gradient of the input -------------------------------------------------------- */

static void size_correlation(struct plan *plan)
{
    plan->n_panels = gemm_panels(plan->isa, plan->isa->rows, plan->tiles, plan->out);
    plan->u_step =
        round_up(plan->in * gemm_ceil(plan->out, plan->isa->lanes) * plan->isa->lanes) + SKEW;
    plan->u_floats = WINOGRAD_PLACES * plan->u_step;
    plan->task_floats = plan->plane_floats + WINOGRAD_PLACES * (plan->v_step + plan->m_step);
}

static struct plan forward_plan(const struct kernel_problem *problem)
{
    const struct conv conv = conv_of(problem, &problem->in[0].shape, &problem->in[1].shape);
    const bool pool = problem->attrs.window[0] > 0;
    struct plan plan = {
        .images = conv.n,
        .in = conv.c,
        .out = conv.o,
        .rows = pool ? conv.oh / 2 * 2 : conv.oh,
        .columns = pool ? conv.ow / 2 * 2 : conv.ow,
        .relu = problem->attrs.activation == ACTIVATION_RELU,
        .pool = pool,
    };

    shape_plan(&plan, conv.h, conv.w, conv.ph, conv.pw);
    size_correlation(&plan);
    return plan;
}

static struct plan input_plan(const struct kernel_problem *problem)
{
    const int slot = conv_is_pooled(problem) ? 2 : 1;
    const struct conv conv = conv_of(problem, &problem->out[0].shape, &problem->in[slot].shape);
    struct plan plan = {
        .images = conv.n,
        .in = conv.o,
        .out = conv.c,
        .rows = conv.h,
        .columns = conv.w,
        .is_turned = true,
    };

    shape_plan(&plan, conv.oh, conv.ow, 2 - conv.ph, 2 - conv.pw);
    size_correlation(&plan);
    if (conv_is_pooled(problem))
        plane_pool(&plan.plane);
    return plan;
}

static int64_t turned_floats(const struct plan *plan)
{
    return plan->is_turned ? round_up(9 * plan->in * plan->out) : 0;
}

static size_t correlation_scratch(const struct plan *plan)
{
    return (size_t)(plan->u_floats + turned_floats(plan) + plan->n_tasks * plan->task_floats) *
           sizeof(float);
}

/* First column, vectors and existing columns of panel p. */
static void panel_at(const struct plan *plan, int64_t p, int64_t *first, int *vecs, int *n)
{
    const int lanes = plan->isa->lanes;
    int64_t vec;

    *vecs = (int)gemm_part(gemm_ceil(plan->out, lanes), plan->n_panels, p, &vec);
    *first = vec * lanes;
    *n = (int)at_most(plan->out - *first, (int64_t)*vecs * lanes);
}

/* U of one panel, [place][in][width]; turned weights are in the other order of taps. */
static void turn_weights(void *arg, size_t p)
{
    const struct plan *plan = arg;
    const int64_t tap = plan->in * plan->out;
    int64_t first;
    int vecs, n;

    panel_at(plan, (int64_t)p, &first, &vecs, &n);
    float *u = plan->u + first * plan->in;
    for (int64_t i = 0; i < plan->in; i++) {
        if (plan->is_turned)
            plan->winograd->weight(plan->turned + 8 * tap + i * plan->out + first, -3 * tap,
                                   -tap, n, u, plan->u_step);
        else
            plan->winograd->weight(plan->w + i * plan->out + first, 3 * tap, tap, n, u,
                                   plan->u_step);
        u += vecs * plan->isa->lanes;
    }
}

/* M = V U for all places. */
static void multiply(const struct plan *plan, int64_t tiles, const float *v, float *m)
{
    static const ptrdiff_t no_offset[1] = { 0 };
    const int64_t n_blocks = gemm_ceil(plan->in, GEMM_DEPTH);

    for (int64_t i = 0; i < WINOGRAD_PLACES * plan->n_panels * n_blocks; i++) {
        const int64_t place = i / n_blocks / plan->n_panels;
        int64_t first, k0;
        int vecs, n;
        const int depth = (int)gemm_part(plan->in, n_blocks, i % n_blocks, &k0);

        panel_at(plan, i / n_blocks % plan->n_panels, &first, &vecs, &n);
        const int width = vecs * plan->isa->lanes;
        struct tile tile = {
            .segment = no_offset,
            .n_segments = 1,
            .depth = depth,
            .b = plan->u + place * plan->u_step + first * plan->in + k0 * width,
            .b_step = width,
            .last = n - (vecs - 1) * plan->isa->lanes,
            .b_full = true,
            .accumulate = k0 > 0,
        };
        const int64_t n_tiles = gemm_ceil(tiles, plan->isa->rows[vecs]);
        for (int64_t t = 0; t < n_tiles; t++) {
            int64_t at;
            const int count = (int)gemm_part(tiles, n_tiles, t, &at);

            for (int r = 0; r < count; r++) {
                tile.a[r] = v + place * plan->v_step + (at + r) * plan->in + k0;
                tile.c[r] = m + place * plan->m_step + (at + r) * plan->out + first;
            }
            plan->isa->by_rows(&tile, count, vecs);
        }
    }
}

/* y from M, tile by tile. */
static void turn_back(const struct plan *plan, const struct unit *unit, const float *m)
{
    const int window = plan->pool ? 2 : 1, size = WINOGRAD_OUT / window;
    const int64_t rows = plan->rows / window, columns = plan->columns / window;
    struct winograd_out out = {
        .row = columns * plan->out,
        .pixel = plan->out,
        .bias = plan->bias,
        .relu = plan->relu,
    };

    for (int64_t i = 0; i < unit->n_images * unit->n_rows; i++) {
        const int64_t image = unit->image + i / unit->n_rows;
        const int64_t y = (unit->row + i % unit->n_rows) * size;

        for (int64_t x = 0; x < columns; x += size) {
            const int64_t at = ((image * rows + y) * columns + x) * plan->out;
            out.rows = (int)at_most(size, rows - y);
            out.columns = (int)at_most(size, columns - x);
            out.y = plan->y + at;
            out.index = plan->pool ? plan->index + at : NULL;
            plan->winograd->output(m, plan->m_step, (int)plan->out, &out);
            m += plan->out;
        }
    }
}

static void run_units(void *arg, size_t task)
{
    const struct plan *plan = arg;
    float *plane = plan->tasks + (int64_t)task * plan->task_floats;
    float *v = plane + plan->plane_floats, *m = v + WINOGRAD_PLACES * plan->v_step;
    int64_t first;
    const int64_t n_units = gemm_part(plan->n_units, plan->n_tasks, (int64_t)task, &first);

    for (int64_t u = first; u < first + n_units; u++) {
        const struct unit unit = unit_at(plan, u);

        for (int64_t i = 0; i < unit.n_images; i++)
            turn_image(plan, &unit, i, plane, v);
        multiply(plan, unit.tiles, v, m);
        turn_back(plan, &unit, m);
    }
}

static void turn_tap(void *arg, size_t tap)
{
    const struct plan *plan = arg;
    const int64_t floats = plan->in * plan->out, at = (int64_t)tap * floats;

    plan->isa->transpose(plan->w + at, plan->in, (int)plan->out, (int)plan->in,
                         plan->turned + at, plan->out, false);
}

static void run_correlation(struct plan *plan, const struct kernel_call *call)
{
    if (plan->images == 0 || plan->rows == 0 || plan->columns == 0)
        return;
    plan->plane.x = call->in[0];
    plan->plane.index = plan->plane.is_pooled ? call->in[1] : NULL;
    plan->w = call->in[plan->plane.is_pooled ? 2 : 1];
    plan->y = call->out[0];
    plan->u = call->scratch;
    plan->turned = plan->u + plan->u_floats;
    plan->tasks = plan->turned + turned_floats(plan);
    if (call->pool == NULL)
        plan->n_tasks = 1;
    if (plan->is_turned)
        pool_for(call->pool, 9, turn_tap, plan);
    pool_for(call->pool, (size_t)plan->n_panels, turn_weights, plan);
    pool_for(call->pool, (size_t)plan->n_tasks, run_units, plan);
}

bool winograd_can_run(const struct kernel_problem *problem)
{
    return is_three_by_three(problem, &problem->in[1].shape);
}

bool winograd_can_run_input(const struct kernel_problem *problem)
{
    return is_three_by_three(problem, &problem->in[conv_is_pooled(problem) ? 2 : 1].shape);
}

size_t winograd_scratch(const struct kernel_problem *problem)
{
    const struct plan plan = forward_plan(problem);

    return correlation_scratch(&plan);
}

void winograd_run(const struct kernel_call *call)
{
    struct plan plan = forward_plan(call->problem);

    plan.bias = call->problem->n_in > 2 ? call->in[2] : NULL;
    plan.index = plan.pool ? call->out[1] : NULL;
    run_correlation(&plan, call);
}

size_t winograd_input_scratch(const struct kernel_problem *problem)
{
    const struct plan plan = input_plan(problem);

    return correlation_scratch(&plan);
}

void winograd_input_run(const struct kernel_call *call)
{
    struct plan plan = input_plan(call->problem);

    run_correlation(&plan, call);
}

/* Gradient of the weights ------------------------------------------------------------------ */

static struct plan weight_plan(const struct kernel_problem *problem)
{
    const struct conv conv = conv_of(problem, &problem->in[0].shape, &problem->out[0].shape);
    struct plan plan = {
        .images = conv.n,
        .in = conv.c,
        .out = conv.o,
        .rows = conv.oh,
        .columns = conv.ow,
    };

    shape_plan(&plan, conv.h, conv.w, conv.ph, conv.pw);
    plan.n_panels = gemm_panels(plan.isa, plan.isa->columns, plan.in, plan.out);
    plan.u_step = round_up(plan.in * plan.out) + SKEW;
    plan.u_floats = WINOGRAD_PLACES * plan.u_step;
    plan.dy_floats = 0;
    if (conv_is_pooled(problem)) {
        plan.dy = plane_of(NULL, conv.oh, conv.ow, conv.o, 0, 0, conv.oh, conv.ow, 1, 1);
        plane_pool(&plan.dy);
        plan.dy_floats = round_up(plan.strip * WINOGRAD_OUT * conv.ow * conv.o);
    }
    return plan;
}

bool winograd_can_run_weight(const struct kernel_problem *problem)
{
    return is_three_by_three(problem, &problem->out[0].shape);
}

size_t winograd_weight_scratch(const struct kernel_problem *problem)
{
    const struct plan plan = weight_plan(problem);

    return (size_t)(plan.u_floats + WINOGRAD_PLACES * (plan.v_step + plan.m_step) +
                    plan.group * (plan.plane_floats + plan.dy_floats)) *
           sizeof(float);
}

struct weight_walk {
    const struct plan *plan;
    struct unit unit;
    const float *dy;
    float *v, *m, *planes, *dw;
    bool accumulate;
};

/* V and A dy A^T of one image of the unit. */
static void turn_both(void *arg, size_t i)
{
    const struct weight_walk *walk = arg;
    const struct plan *plan = walk->plan;
    const struct unit *unit = &walk->unit;
    const int64_t image = unit->image + (int64_t)i, per_image = unit->n_rows * plan->tiles_x;
    const int64_t first = unit->row * WINOGRAD_OUT;
    const int64_t n_rows = at_most(unit->n_rows * WINOGRAD_OUT, plan->rows - first);
    const int64_t row = plan->columns * plan->out;
    float *m = walk->m + (int64_t)i * per_image * plan->out;
    float *own = walk->planes + (int64_t)i * (plan->plane_floats + plan->dy_floats);
    const float *dy = plan->dy.is_pooled ? plane_copy(&plan->dy, image, first, n_rows,
                                                      own + plan->plane_floats)
                                         : walk->dy + (image * plan->rows + first) * row;

    turn_image(plan, unit, (int64_t)i, own, walk->v);
    for (int64_t t = 0; t < per_image; t++) {
        const int64_t y = t / plan->tiles_x * WINOGRAD_OUT,
                      x = t % plan->tiles_x * WINOGRAD_OUT;

        plan->winograd->output_grad(dy + y * row + x * plan->out, row, plan->out,
                                    (int)at_most(WINOGRAD_OUT, n_rows - y),
                                    (int)at_most(WINOGRAD_OUT, plan->columns - x),
                                    (int)plan->out, m, plan->m_step);
        m += plan->out;
    }
}

/* Adds V^T M of one place to its sums. */
static void multiply_place(void *arg, size_t place)
{
    static const ptrdiff_t no_offset[1] = { 0 };
    const struct weight_walk *walk = arg;
    const struct plan *plan = walk->plan;

    for (int p = 0; p < plan->n_panels; p++) {
        int64_t first;
        int vecs, n;

        panel_at(plan, p, &first, &vecs, &n);
        struct tile tile = {
            .segment = no_offset,
            .n_segments = 1,
            .depth = (int)walk->unit.tiles,
            .a_step = plan->in,
            .b = walk->m + (int64_t)place * plan->m_step + first,
            .b_step = plan->out,
            .last = n - (vecs - 1) * plan->isa->lanes,
            .accumulate = walk->accumulate,
        };
        tile.b_full = tile.last == plan->isa->lanes;
        const int64_t n_tiles = gemm_ceil(plan->in, plan->isa->columns[vecs]);
        for (int64_t t = 0; t < n_tiles; t++) {
            int64_t at;
            const int count = (int)gemm_part(plan->in, n_tiles, t, &at);

            tile.a[0] = walk->v + (int64_t)place * plan->v_step + at;
            for (int r = 0; r < count; r++)
                tile.c[r] =
                    plan->u + (int64_t)place * plan->u_step + (at + r) * plan->out + first;
            plan->isa->by_columns(&tile, count, vecs);
        }
    }
}

void winograd_weight_run(const struct kernel_call *call)
{
    struct plan plan = weight_plan(call->problem);
    struct weight_walk walk = { .plan = &plan, .dy = call->in[1], .dw = call->out[0] };

    plan.plane.x = call->in[0];
    plan.dy.x = call->in[1];
    plan.dy.index = plan.dy.is_pooled ? call->in[2] : NULL;
    plan.u = call->scratch;
    walk.v = plan.u + plan.u_floats;
    walk.m = walk.v + WINOGRAD_PLACES * plan.v_step;
    walk.planes = walk.m + WINOGRAD_PLACES * plan.m_step;
    for (int64_t u = 0; u < plan.n_units; u++) {
        walk.unit = unit_at(&plan, u);
        pool_for(call->pool, (size_t)walk.unit.n_images, turn_both, &walk);
        pool_for(call->pool, WINOGRAD_PLACES, multiply_place, &walk);
        walk.accumulate = true;
    }
    for (int64_t c = 0; c < plan.in; c++)
        plan.winograd->weight_grad(plan.u + c * plan.out, plan.u_step, (int)plan.out,
                                   walk.dw + c * plan.out, plan.in * plan.out);
    if (call->problem->n_out > 1 && !plan.dy.is_pooled)
        plan.isa->column_sums(walk.dy, plan.out, plan.images * plan.rows * plan.columns,
                              (int)plan.out, false, call->out[1]);
    else if (call->problem->n_out > 1)
        plan.isa->window_sums(walk.dy, plan.dy.index,
                              plan.images * (plan.rows / 2) * (plan.columns / 2), (int)plan.out,
                              call->out[1]);
}
