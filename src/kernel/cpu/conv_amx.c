/* SPDX-License-Identifier: MIT */
/* conv_amx.c - conv2d and the gradient of its input as plain sums by AMX (amx.h).
 *
 * A block of C is one pixel of 32 images by 32 output channels. A register of A then is 16 images at one
 * pixel of x: whatever the kernel's size, its stride and the image's borders, a tap is another pixel of x, and
 * taps outside of x are left out, not multiplied by zero (of a 3x3 kernel on 4x4 images three in ten).
 *
 *   x    32 images, [row][pixel][steps of channels], packed row by row as the output goes down; as many
 *        rows are kept as a group of output rows needs
 *   w    [panel of 32 outputs][taps][steps of channels], packed once a call
 *   y    for each group of rows, panel and pixel a sum over taps and channels in tile registers
 *
 * Many channels are cut into chunks, so that a panel of w and the rows of x stay in L2; y then holds the
 * sum so far. The gradient of the input is the same sum over dy with w turned: pixel q gets dy(p) w(t) for
 * all q + pad = p * stride + t. Taps of one class t mod stride lie side by side, backwards, so that p rises
 * with them.
 *
 * Work: the products of the plain sum less those of borders, at six (three if short) of the sixteen a cycle
 * that AMX has over AVX-512. Traffic: x and y once, w once a group from L3 where it is larger than L2. Bits of y depend
 * on the channels and the pixel alone.
 */
#include "kernel/cpu/conv_amx.h"

enum {
    CHUNK_BYTES = 448 << 10, /* of a panel of w for one chunk, packed */
    ROWS_BYTES = 1 << 20, /* of the rows of x that are kept, unless an output row needs more */
    TASKS = 16,           /* small enough that threads end together */
    MOST_TAPS = 16,       /* of a column of the kernel */
};

static int64_t at_most(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t at_least(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* One dimension of the problem. */
struct side {
    int64_t taps, stride, pad;
    int64_t source, out; /* pixels that are read, and written */
    bool is_turned;
};

struct plan {
    struct side y, x;
    bool is_turned, is_short, relu;
    int64_t images, in, out;      /* channels summed over, and those that come out */
    int64_t step;                 /* bf16 of a packed step */
    int64_t chunk, n_chunks;      /* steps of channels */
    int64_t panels;               /* of 32 outputs */
    int64_t n_blocks, bands;      /* of 32 images, of rows */
    int64_t group;                /* rows of the output that go through all panels together */
    int64_t kept_rows, row_steps; /* of packed x: rows there is room for, steps of one */
    int64_t w_panel_steps;        /* of packed w of one chunk and panel */
    const float *source, *w, *bias;
    float *y_out;
    uint16_t *w_pack, *x_pack; /* x_pack: of the first slot */
};

/* Pixels of the source that a pixel of the output sums over: `n` from `first` on, the first of which
 * meets the tap in place `tap` of the packed order. */
struct reach {
    int64_t first, tap, n;
};

/* Taps of class `class`: t = class, class + stride, ... */
static int64_t class_taps(const struct side *side, int64_t class)
{
    return class < side->taps ? gemm_ceil(side->taps - class, side->stride) : 0;
}

static struct reach reach_of(const struct side *side, int64_t q)
{
    struct reach reach = { .first = q * side->stride - side->pad, .n = side->taps };

    if (side->is_turned) {
        const int64_t class = (q + side->pad) % side->stride;

        reach.n = class_taps(side, class);
        for (int64_t i = 0; i < class; i++)
            reach.tap += class_taps(side, i);
        reach.first = (q + side->pad - class) / side->stride - (reach.n - 1);
    }
    const int64_t before = at_least(0, -reach.first);
    const int64_t end = at_most(reach.n, side->source - reach.first);
    reach.first += before;
    reach.tap += before;
    reach.n = at_least(0, end - before);
    return reach;
}

/* The tap in a place of the packed order. */
static int64_t tap_at(const struct side *side, int64_t place)
{
    int64_t class = 0;

    if (!side->is_turned)
        return place;
    for (; place >= class_taps(side, class); class ++)
        place -= class_taps(side, class);
    return class + (class_taps(side, class) - 1 - place) * side->stride;
}

/* Is any tap on this pixel of the source? */
static bool is_met(const struct side *side, int64_t p)
{
    return side->is_turned || (p + side->pad) % side->stride < side->taps;
}

/* Rows of x that some rows of the output need, at most. */
static int64_t kept_rows(const struct plan *plan, int64_t rows)
{
    const struct side *y = &plan->y;
    const int64_t needed = y->is_turned ? gemm_ceil(rows + y->taps - 1, y->stride) + 1
                                        : (rows - 1) * y->stride + y->taps;

    return at_least(1, at_most(needed, y->source));
}

static void shape_plan(struct plan *plan, bool is_short)
{
    const int64_t steps = gemm_ceil(plan->in, AMX_STEP), taps = plan->y.taps * plan->x.taps;

    plan->is_short = is_short;
    plan->step = is_short ? AMX_SHORT : AMX_PACKED;
    const int64_t most = at_least(1, CHUNK_BYTES / (taps * plan->step * 2));
    plan->n_chunks = gemm_ceil(steps, most);
    plan->chunk = gemm_ceil(steps, plan->n_chunks);
    plan->panels = gemm_ceil(plan->out, AMX_SIDE);
    plan->n_blocks = gemm_ceil(plan->images, AMX_SIDE);
    plan->bands = at_most(plan->y.out, gemm_ceil(TASKS, plan->n_blocks));
    plan->row_steps = plan->x.source * plan->chunk;
    plan->group = 1;
    while (plan->group < plan->y.out &&
           kept_rows(plan, 2 * plan->group) * plan->row_steps * plan->step * 2 <= ROWS_BYTES)
        plan->group *= 2;
    plan->kept_rows = kept_rows(plan, plan->group);
    plan->w_panel_steps = taps * plan->chunk;
}

static struct plan forward_plan(const struct kernel_problem *problem, bool is_short)
{
    const struct conv c = conv_of(problem, &problem->in[0].shape, &problem->in[1].shape);
    struct plan plan = {
        .y = { c.kh, c.sh, c.ph, c.h, c.oh, false },
        .x = { c.kw, c.sw, c.pw, c.w, c.ow, false },
        .images = c.n,
        .in = c.c,
        .out = c.o,
        .relu = problem->attrs.activation == ACTIVATION_RELU,
    };

    shape_plan(&plan, is_short);
    return plan;
}

static struct plan input_plan(const struct kernel_problem *problem, bool is_short)
{
    const struct conv c = conv_of(problem, &problem->out[0].shape, &problem->in[1].shape);
    struct plan plan = {
        .y = { c.kh, c.sh, c.ph, c.oh, c.h, true },
        .x = { c.kw, c.sw, c.pw, c.ow, c.w, true },
        .is_turned = true,
        .images = c.n,
        .in = c.o,
        .out = c.c,
    };

    shape_plan(&plan, is_short);
    return plan;
}

static int64_t slots_of(const struct plan *plan)
{
    return at_most(plan->n_blocks * plan->bands, GEMM_TASKS);
}

static size_t scratch_of(const struct plan *plan)
{
    const int64_t w_steps = plan->n_chunks * plan->panels * plan->w_panel_steps;

    return (size_t)((w_steps + slots_of(plan) * plan->kept_rows * plan->row_steps) *
                    plan->step) *
           sizeof(uint16_t);
}

/* 32 lines from `line`, the chunk's steps. */
static void pack_steps(const struct plan *plan, const struct amx_side *side, int64_t line,
                       int64_t chunk, uint16_t *to)
{
    for (int64_t s = 0; s < plan->chunk; s++, to += plan->step) {
        const int64_t k0 = (chunk * plan->chunk + s) * AMX_STEP;
        amx_pack_lines(side, line, k0, plan->in, to);
        amx_pack_lines(side, line + AMX_SIDE / 2, k0, plan->in, to + 512);
    }
}

/* One panel of one chunk of w. */
static void pack_weights(void *arg, size_t i)
{
    const struct plan *plan = arg;
    const int64_t chunk = (int64_t)i / plan->panels, panel = (int64_t)i % plan->panels;
    const int64_t taps = plan->y.taps * plan->x.taps;
    uint16_t *to = plan->w_pack + (int64_t)i * plan->w_panel_steps * plan->step;

    for (int64_t place = 0; place < taps; place++, to += plan->chunk * plan->step) {
        const int64_t tap = tap_at(&plan->y, place / plan->x.taps) * plan->x.taps +
                            tap_at(&plan->x, place % plan->x.taps);
        const struct amx_side side = {
            .from = plan->w + tap * plan->in * plan->out,
            .line_step = plan->is_turned ? plan->in : 1,
            .k_step = plan->is_turned ? 1 : plan->out,
            .n_lines = plan->out,
            .is_b = true,
            .is_short = plan->is_short,
        };
        pack_steps(plan, &side, panel * AMX_SIDE, chunk, to);
    }
}

/* What a task works on. */
struct work {
    const struct plan *plan;
    int64_t image, n_images; /* of the block */
    int64_t chunk;
    uint16_t *rows; /* packed x: row r lies at r % kept_rows */
};

static uint16_t *row_at(const struct work *work, int64_t r)
{
    const struct plan *plan = work->plan;

    return work->rows + r % plan->kept_rows * plan->row_steps * plan->step;
}

static void pack_row(const struct work *work, int64_t r)
{
    const struct plan *plan = work->plan;
    const int64_t pixels = plan->x.source;
    uint16_t *to = row_at(work, r);
    struct amx_side side = {
        .line_step = plan->y.source * pixels * plan->in,
        .k_step = 1,
        .n_lines = work->n_images,
        .is_short = plan->is_short,
    };

    for (int64_t p = 0; p < pixels; p++, to += plan->chunk * plan->step) {
        if (!is_met(&plan->x, p))
            continue;
        side.from = plan->source + work->image * side.line_step + (r * pixels + p) * plan->in;
        pack_steps(plan, &side, 0, work->chunk, to);
    }
}

static void bend(float *c, int64_t c_row, int64_t rows, int64_t columns)
{
    for (int64_t i = 0; i < rows; i++, c += c_row) {
        for (int64_t j = 0; j < columns; j++)
            c[j] = c[j] < 0 ? 0 : c[j]; /* a NaN stays */
    }
}

/* The stretches of a block: one for each row of the kernel that is inside. */
static int stretches_of(const struct work *work, const struct reach *y, const struct reach *x,
                        int64_t panel, struct amx_stretch *to)
{
    const struct plan *plan = work->plan;
    const int64_t taps = plan->chunk * plan->step; /* bf16 of a pixel, or a tap */
    const uint16_t *w =
        plan->w_pack + (work->chunk * plan->panels + panel) * plan->w_panel_steps * plan->step;
    int n = 0;

    for (int64_t i = 0; i < y->n && x->n > 0; i++)
        to[n++] = (struct amx_stretch){
            .a = row_at(work, y->first + i) + x->first * taps,
            .b = w + ((y->tap + i) * plan->x.taps + x->tap) * taps,
            .steps = x->n * plan->chunk,
            .a_step = plan->step,
            .b_step = plan->step,
        };
    return n;
}

/* One row of one panel of the output; the rows of x it needs are packed. */
static void run_row(const struct work *work, int64_t row, int64_t panel)
{
    const struct plan *plan = work->plan;
    const struct reach y = reach_of(&plan->y, row);
    const bool is_last = work->chunk + 1 == plan->n_chunks;
    const int64_t image_floats = plan->y.out * plan->x.out * plan->out;
    const int64_t first = panel * AMX_SIDE, columns = at_most(AMX_SIDE, plan->out - first);
    struct amx_stretch stretches[MOST_TAPS];
    struct amx_product product = {
        .stretches = stretches,
        .is_short = plan->is_short,
        .is_far = true,
        .begin = work->chunk > 0      ? AMX_ADD
                 : plan->bias != NULL ? AMX_BIAS
                                      : AMX_ZERO,
        .bias = plan->bias != NULL ? plan->bias + first : NULL,
        .c_row = image_floats,
    };

    product.c =
        plan->y_out + work->image * image_floats + row * plan->x.out * plan->out + first;
    for (int64_t q = 0; q < plan->x.out; q++, product.c += plan->out) {
        const struct reach x = reach_of(&plan->x, q);
        product.n_stretches = stretches_of(work, &y, &x, panel, stretches);
        amx_multiply_some(&product, work->n_images, columns);
        if (plan->relu && is_last)
            bend(product.c, product.c_row, work->n_images, columns);
    }
}

/* Some rows of the output, of which those of x before *packed are there or not needed. */
static void run_group(const struct work *work, int64_t begin, int64_t end, int64_t *packed)
{
    const struct plan *plan = work->plan;

    for (int64_t row = begin; row < end; row++) {
        const struct reach y = reach_of(&plan->y, row);
        for (*packed = at_least(*packed, y.first); *packed < y.first + y.n; ++*packed)
            pack_row(work, *packed);
    }
    for (int64_t panel = 0; panel < plan->panels; panel++) {
        for (int64_t row = begin; row < end; row++)
            run_row(work, row, panel);
    }
}

/* One band of rows of a block of images. */
static void run_band(void *arg, size_t task, size_t slot)
{
    const struct plan *plan = arg;
    const int64_t block = (int64_t)task / plan->bands;
    int64_t begin;
    const int64_t n = gemm_part(plan->y.out, plan->bands, (int64_t)task % plan->bands, &begin);
    struct work work = {
        .plan = plan,
        .image = block * AMX_SIDE,
        .n_images = at_most(AMX_SIDE, plan->images - block * AMX_SIDE),
        .rows = plan->x_pack + (int64_t)slot * plan->kept_rows * plan->row_steps * plan->step,
    };

    amx_begin();
    for (; work.chunk < plan->n_chunks; work.chunk++) {
        int64_t packed = 0;
        for (int64_t row = begin; row < begin + n; row += plan->group)
            run_group(&work, row, at_most(row + plan->group, begin + n), &packed);
    }
    amx_end();
}

static void run(struct plan *plan, const struct kernel_call *call)
{
    plan->source = call->in[0];
    plan->w = call->in[1];
    plan->y_out = call->out[0];
    plan->w_pack = call->scratch;
    plan->x_pack =
        plan->w_pack + plan->n_chunks * plan->panels * plan->w_panel_steps * plan->step;
    if (call->pool == NULL)
        plan->bands = 1;
    pool_for(call->pool, (size_t)(plan->n_chunks * plan->panels), pack_weights, plan);
    pool_for_slots(call->pool, (size_t)(plan->n_blocks * plan->bands), (size_t)slots_of(plan),
                   run_band, plan);
}

bool conv_amx_can_run(const struct kernel_problem *problem)
{
    return conv_can_run(problem) && processor_current() >= PROCESSOR_AMX &&
           shape_count(&problem->out[0].shape) > 0 && shape_count(&problem->in[0].shape) > 0 &&
           shape_count(&problem->in[1].shape) > 0 && conv_weights(problem)->dim[2] <= MOST_TAPS;
}

size_t conv_amx_scratch(const struct kernel_problem *problem, bool is_short)
{
    const struct plan plan = forward_plan(problem, is_short);

    return scratch_of(&plan);
}

void conv_amx_run(const struct kernel_call *call, bool is_short)
{
    struct plan plan = forward_plan(call->problem, is_short);

    plan.bias = call->problem->n_in > 2 ? call->in[2] : NULL;
    run(&plan, call);
}

size_t conv_amx_input_scratch(const struct kernel_problem *problem, bool is_short)
{
    const struct plan plan = input_plan(problem, is_short);

    return scratch_of(&plan);
}

void conv_amx_input_run(const struct kernel_call *call, bool is_short)
{
    struct plan plan = input_plan(call->problem, is_short);

    run(&plan, call);
}
