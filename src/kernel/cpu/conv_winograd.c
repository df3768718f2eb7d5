/* SPDX-License-Identifier: MIT */
/* conv_winograd.c - 3x3 convolutions of stride 1 and 2 by Winograd's method (winograd.h).
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
 * The gradient of the weights is dg = G^T [sum over tiles of V (A dy A^T)] G. Here the sums of one
 * block of input and one panel of output channels grow unit by unit, in order; a few sums of
 * parts of the units are added at the end.
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
#include "kernel/cpu/conv.h"
#include "kernel/cpu/winograd.h"

enum {
    TILES = 64,          /* of a unit, at 64 channels */
    MOST_TILES = 256,    /* of a unit with few channels */
    PANEL = 64,          /* channels that come out together */
    BLOCK_PLACES = 2304, /* channels summed over together, times places: 64 of 36, 256 of 9 */
    GRAIN = 16,          /* channels are cut at multiples of it */
    KEPT_UNITS = 4,      /* whose transforms are kept between blocks and panels */
    TASKS = 64,          /* small enough that threads end together */
    SHARED = 8,          /* tasks that a gradient of weights is worth being cut into */
    SKEW = 16, /* floats between places, so that they do not share sets of the cache */
    PHASES = 4,
    PHASE_BLOCK = 128,        /* channels summed over together: a phase has at most 25 places */
    PHASE_WEIGHT_PANEL = 128, /* that come out together, for the gradient of the weights */
};

/* A convolution of stride 1: all there is to do, or one of the four it falls into. */
struct phase {
    const struct winograd_form *form;
    int64_t places, weight_places;
    struct winograd_in x;        /* the image: of the whole batch */
    int64_t top, left;           /* zeros before it */
    int64_t rows, columns;       /* of the output that are wanted */
    int64_t y_first;             /* floats of y before them */
    int64_t tap[2], tap_step[2]; /* row and column of the first tap in w, and to the next */
    int64_t u_first;             /* where its kept U begins */
};

struct plan {
    const struct tile_isa *isa;
    struct phase phases[PHASES]; /* the first has the most places */
    int n_phases;
    int64_t images, in, out;
    int64_t tiles_y, tiles_x; /* of an image */
    int64_t n_units, tiles;   /* tiles of a full unit */
    int64_t n_blocks, n_panels;
    int64_t block, panel;           /* channels of a full one */
    int64_t v_step, m_step, u_step; /* between places */
    int64_t n_tasks, slots;         /* not of the weights' gradient; threads that take part */
    int64_t task_floats;            /* scratch of a thread */
    int64_t kept_floats;            /* of U, before it */
    bool keeps_u;                   /* several units: U is made once a call, not on the way */
    bool is_turned;
    bool adds_up;              /* phases make the same pixels of y */
    struct winograd_in dy;     /* of the whole batch, for the gradient of the weights */
    int64_t x_image, dy_image; /* floats between images */
    int64_t y_image, y_row, y_pixel;
    /* The call. */
    const float *w, *bias;
    float *y;
    uint8_t *index;
    bool relu, pool;
    float *scratch;
};

static int64_t at_most(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t at_least(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Part i of n channels in `parts`, whole grains but for the last: *first, and its size. */
static int64_t channels_at(int64_t n, int64_t parts, int64_t i, int64_t *first)
{
    const int64_t grains = gemm_part(gemm_ceil(n, GRAIN), parts, i, first);

    *first *= GRAIN;
    return at_most(grains * GRAIN, n - *first);
}

static int64_t most_channels(int64_t n, int64_t parts)
{
    return gemm_ceil(gemm_ceil(n, GRAIN), parts) * GRAIN;
}

/* An image of (rows, columns, channels), or what a 2x2 max pool left of it. */
static struct winograd_in image_of(int64_t rows, int64_t columns, int64_t channels,
                                   bool is_pooled)
{
    const int64_t window = is_pooled ? 2 : 1;

    return (struct winograd_in){
        .row = columns / window * channels,
        .pixel = channels,
        .rows = rows / window * window,
        .columns = columns / window * window,
    };
}

static int64_t image_floats(const struct winograd_in *image, bool is_pooled)
{
    return image->rows / (is_pooled ? 2 : 1) * image->row;
}

static const struct winograd_isa *winograd_current(void)
{
    return tile_current() == &tile_avx512 ? &winograd_avx512 : &winograd_avx2;
}

/* A kernel of stride 1 over x, an image of (h,w): all of it is one phase. */
static struct phase whole_phase(const struct conv *conv, struct winograd_in x, int64_t rows,
                                int64_t columns, bool is_turned)
{
    const struct winograd_isa *winograd = winograd_current();
    const bool is_whole = x.rows == 2 && x.columns == 2 && rows == 2 && columns == 2 &&
                          conv->ph == 1 && conv->pw == 1;

    return (struct phase){
        .form = is_whole ? &winograd->whole : &winograd->tiles,
        .x = x,
        .top = is_turned ? 2 - conv->ph : conv->ph,
        .left = is_turned ? 2 - conv->pw : conv->pw,
        .rows = rows,
        .columns = columns,
        .tap = { is_turned ? 2 : 0, is_turned ? 2 : 0 },
        .tap_step = { is_turned ? -1 : 1, is_turned ? -1 : 1 },
    };
}

/* One dimension of a phase of a kernel of stride 2 with a row of zeros around the image: taps 0
 * and 2, a pair, meet its odd pixels, tap 1 the even ones. */
struct half {
    int64_t first, count;  /* pixels of n */
    int64_t before;        /* zeros before the first: of x, or of dy if turned */
    int64_t tap, tap_step; /* of w, backwards if turned */
};

static struct half half_of(int64_t n, bool is_pair, bool is_turned)
{
    return (struct half){
        .first = is_pair ? 1 : 0,
        .count = is_pair ? n / 2 : (n + 1) / 2,
        .before = is_pair && !is_turned ? 1 : 0,
        .tap = !is_pair    ? 1
               : is_turned ? 2
                           : 0,
        .tap_step = is_turned ? -2 : 2,
    };
}

/* The phases of a kernel of stride 2: of x, or of dx if turned, which comes from `dy`. */
static void cut_phases(struct plan *plan, const struct conv *conv, struct winograd_in dy)
{
    const struct winograd_in wide = image_of(conv->h, conv->w, conv->c, false);

    for (int i = 0; i < PHASES; i++) {
        const bool pair_y = i < 2, pair_x = i % 2 == 0;
        const struct half y = half_of(conv->h, pair_y, plan->is_turned);
        const struct half x = half_of(conv->w, pair_x, plan->is_turned);
        const int64_t first = y.first * wide.row + x.first * wide.pixel;
        const struct winograd_in part = {
            .first = first,
            .row = 2 * wide.row,
            .pixel = 2 * wide.pixel,
            .rows = y.count,
            .columns = x.count,
        };

        plan->phases[i] = (struct phase){
            .form = &winograd_current()->phases[pair_y][pair_x],
            .x = plan->is_turned ? dy : part,
            .top = y.before,
            .left = x.before,
            .rows = plan->is_turned ? y.count : conv->oh,
            .columns = plan->is_turned ? x.count : conv->ow,
            .y_first = plan->is_turned ? first : 0,
            .tap = { y.tap, x.tap },
            .tap_step = { y.tap_step, x.tap_step },
        };
    }
    plan->n_phases = PHASES;
}

/* Tiles, units, blocks and panels of at most `panel`, when phases are known. */
static void shape_plan(struct plan *plan, int64_t panel)
{
    const struct winograd_form *form = plan->phases[0].form;
    int64_t rows = 0, columns = 0;

    for (int i = 0; i < plan->n_phases; i++) {
        struct phase *phase = &plan->phases[i];

        phase->places = (int64_t)phase->form->side[0] * phase->form->side[1];
        phase->weight_places =
            (int64_t)phase->form->weight_side[0] * phase->form->weight_side[1];
        rows = at_least(rows, phase->rows);
        columns = at_least(columns, phase->columns);
    }
    plan->isa = tile_current();
    plan->tiles_y = gemm_ceil(rows, form->out);
    plan->tiles_x = gemm_ceil(columns, form->out);
    const int64_t block =
        plan->n_phases > 1 ? PHASE_BLOCK : BLOCK_PLACES / plan->phases[0].places;
    plan->n_blocks = at_least(1, gemm_ceil(plan->in, block));
    plan->n_panels = at_least(1, gemm_ceil(plan->out, panel));
    plan->block = most_channels(plan->in, plan->n_blocks);
    plan->panel = most_channels(plan->out, plan->n_panels);
    const int64_t total = plan->images * plan->tiles_y * plan->tiles_x;
    const int64_t most = at_most(
        MOST_TILES, at_least(TILES, TILES * PANEL / at_least(plan->block, plan->panel)));
    plan->n_units = gemm_ceil(total, most);
    plan->tiles = gemm_ceil(total, at_least(1, plan->n_units));
    plan->v_step = plan->tiles * plan->block + SKEW;
    plan->m_step = plan->tiles * plan->panel + SKEW;
    plan->u_step = plan->block * plan->panel + SKEW;
}

static bool is_three_by_three(const struct kernel_problem *problem, const struct shape *w)
{
    return conv_can_run(problem) && w->dim[2] == 3 && w->dim[3] == 3 &&
           problem->attrs.stride[0] == problem->attrs.stride[1] &&
           (problem->attrs.stride[0] == 1 ||
            (problem->attrs.stride[0] == 2 && problem->attrs.pad[0] == 1 &&
             problem->attrs.pad[1] == 1 && !conv_is_pooled(problem)));
}

/* Some tiles of the batch. */
struct unit {
    int64_t first, tiles;
};

static struct unit unit_at(const struct plan *plan, int64_t i)
{
    struct unit unit;

    unit.tiles =
        gemm_part(plan->images * plan->tiles_y * plan->tiles_x, plan->n_units, i, &unit.first);
    return unit;
}

/* Image, row and column of the output where tile t begins. */
static int64_t place_tile(const struct plan *plan, int64_t t, int64_t *row, int64_t *column)
{
    const int out = plan->phases[0].form->out;

    *column = t % plan->tiles_x * out;
    *row = t / plan->tiles_x % plan->tiles_y * out;
    return t / plan->tiles_x / plan->tiles_y;
}

/* V of channels [first, first + n) of tiles [from, to), the first of a unit being `begin`. */
static void turn_inputs(const struct plan *plan, const struct phase *phase, int64_t begin,
                        int64_t from, int64_t to, int64_t first, int64_t n, float *v)
{
    struct winograd_in in = phase->x;

    for (int64_t t = from; t < to; t++) {
        int64_t row, column;
        const int64_t at = place_tile(plan, t, &row, &column) * plan->x_image + first;

        in.x = phase->x.x + at;
        in.index = phase->x.index != NULL ? phase->x.index + at : NULL;
        in.top = row - phase->top + phase->form->before;
        in.left = column - phase->left + phase->form->before;
        phase->form->input(&in, (int)n, v + (t - begin) * plan->block, plan->v_step);
    }
}

/* Vectors of part p of `n` columns in `parts`: *first column, and existing columns. */
static int vecs_at(const struct plan *plan, int64_t n, int parts, int p, int64_t *first,
                   int *columns)
{
    const int lanes = plan->isa->lanes;
    const int vecs = (int)gemm_part(gemm_ceil(n, lanes), parts, p, first);

    *first *= lanes;
    *columns = (int)at_most(n - *first, (int64_t)vecs * lanes);
    return vecs;
}

/* Forward and gradient of the input -------------------------------------------------------- */

/* Floats of U of one slice, and of the turned weights it comes from. */
static int64_t u_floats(const struct plan *plan, const struct phase *phase)
{
    return phase->weight_places * plan->u_step;
}

static int64_t turned_floats(const struct plan *plan)
{
    return plan->is_turned ? 9 * plan->block * plan->panel : 0;
}

static void size_correlation(struct plan *plan)
{
    const int64_t places = plan->phases[0].places;

    plan->keeps_u = plan->n_units > 1;
    for (int i = 0; i < plan->n_phases && plan->keeps_u; i++) {
        plan->phases[i].u_first = plan->kept_floats;
        plan->kept_floats += plan->n_blocks * plan->n_panels * u_floats(plan, &plan->phases[i]);
    }
    plan->slots = at_most(plan->n_units * plan->n_panels, GEMM_TASKS);
    plan->n_tasks = at_most(at_least(plan->n_units, plan->slots), TASKS);
    plan->task_floats =
        places * (plan->n_blocks * plan->v_step + plan->m_step) + turned_floats(plan);
    if (!plan->keeps_u)
        plan->task_floats += u_floats(plan, &plan->phases[0]);
}

static struct plan forward_plan(const struct kernel_problem *problem)
{
    const struct conv conv = conv_of(problem, &problem->in[0].shape, &problem->in[1].shape);
    const int64_t window = problem->attrs.window[0] > 0 ? 2 : 1;
    const struct winograd_in x = image_of(conv.h, conv.w, conv.c, false);
    struct plan plan = {
        .n_phases = 1,
        .images = conv.n,
        .in = conv.c,
        .out = conv.o,
        .relu = problem->attrs.activation == ACTIVATION_RELU,
        .pool = window == 2,
        .adds_up = true,
        .x_image = image_floats(&x, false),
        .y_image = conv.oh / window * (conv.ow / window) * conv.o,
        .y_row = conv.ow / window * conv.o,
        .y_pixel = conv.o,
    };

    if (conv.sh == 2)
        cut_phases(&plan, &conv, x);
    else
        plan.phases[0] =
            whole_phase(&conv, x, conv.oh / window * window, conv.ow / window * window, false);
    shape_plan(&plan, PANEL);
    size_correlation(&plan);
    return plan;
}

static struct plan input_plan(const struct kernel_problem *problem)
{
    const bool is_pooled = conv_is_pooled(problem);
    const struct conv conv =
        conv_of(problem, &problem->out[0].shape, &problem->in[is_pooled ? 2 : 1].shape);
    const struct winograd_in dy = image_of(conv.oh, conv.ow, conv.o, is_pooled);
    struct plan plan = {
        .n_phases = 1,
        .images = conv.n,
        .in = conv.o,
        .out = conv.c,
        .is_turned = true,
        .x_image = image_floats(&dy, is_pooled),
        .y_image = conv.h * conv.w * conv.c,
        .y_row = conv.sh * conv.w * conv.c,
        .y_pixel = conv.sw * conv.c,
    };

    if (conv.sh == 2)
        cut_phases(&plan, &conv, dy);
    else
        plan.phases[0] = whole_phase(&conv, dy, conv.h, conv.w, true);
    shape_plan(&plan, PANEL);
    size_correlation(&plan);
    return plan;
}

static size_t correlation_scratch(const struct plan *plan)
{
    return (size_t)(plan->kept_floats + plan->slots * plan->task_floats) * sizeof(float);
}

/* One panel for one block of channels. */
struct slice {
    int64_t k0, depth; /* of the side that is summed over */
    int64_t first, n;  /* of the side that comes out */
};

static struct slice slice_at(const struct plan *plan, int64_t panel, int64_t block)
{
    struct slice slice;

    slice.depth = channels_at(plan->in, plan->n_blocks, block, &slice.k0);
    slice.n = channels_at(plan->out, plan->n_panels, panel, &slice.first);
    return slice;
}

static int parts_of(const struct plan *plan, int64_t n)
{
    return gemm_panels(plan->isa, plan->isa->rows, plan->tiles, n);
}

/* U of a slice: for each part of the panel [place][block][width]. */
static void turn_weights(const struct plan *plan, const struct phase *phase,
                         const struct slice *slice, float *u, float *turned)
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
        const int width = vecs_at(plan, slice->n, parts, p, &first, &n) * plan->isa->lanes;
        float *to = u + first * slice->depth;

        for (int64_t i = 0; i < slice->depth; i++)
            phase->form->weight(g + i * step + first, row, column, n, to + i * width,
                                plan->u_step);
    }
}

/* Which of U a place takes. */
static int64_t weights_at(const struct winograd_form *form, int64_t place)
{
    const int64_t y = at_most(place / form->side[1], form->weight_side[0] - 1);
    const int64_t x = at_most(place % form->side[1], form->weight_side[1] - 1);

    return y * form->weight_side[1] + x;
}

/* M += V U for all places; M = V U for the first block. */
static void multiply(const struct plan *plan, const struct phase *phase, int64_t tiles,
                     const struct slice *slice, const float *v, const float *u, float *m)
{
    static const ptrdiff_t no_offset[1] = { 0 };
    const int parts = parts_of(plan, slice->n);

    for (int i = 0; i < phase->places * parts; i++) {
        const int64_t place = i / parts;
        int64_t first;
        int n;
        const int vecs = vecs_at(plan, slice->n, parts, i % parts, &first, &n);
        struct tile tile = {
            .segment = no_offset,
            .n_segments = 1,
            .depth = (int)slice->depth,
            .b = u + weights_at(phase->form, place) * plan->u_step + first * slice->depth,
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
static void turn_back(const struct plan *plan, const struct phase *phase,
                      const struct unit *unit, const struct slice *slice, const float *m)
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
        const int64_t image = place_tile(plan, unit->first + t, &y, &x);

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

static struct own own_at(const struct plan *plan, size_t slot)
{
    struct own own;

    own.v = plan->scratch + plan->kept_floats + (int64_t)slot * plan->task_floats;
    own.m = own.v + plan->phases[0].places * plan->n_blocks * plan->v_step;
    own.turned = own.m + plan->phases[0].places * plan->m_step;
    own.u = own.turned + turned_floats(plan);
    return own;
}

static float *kept_at(const struct plan *plan, const struct phase *phase, int64_t slice)
{
    return plan->scratch + phase->u_first + slice * u_floats(plan, phase);
}

/* U of some slices, kept for all units. */
static void keep_weights(void *arg, size_t task, size_t slot)
{
    const struct plan *plan = arg;
    const int64_t n_slices = plan->n_blocks * plan->n_panels;
    int64_t i;
    const int64_t n = gemm_part(n_slices, at_most(n_slices, plan->n_tasks), (int64_t)task, &i);

    for (const int64_t end = i + n; i < end; i++) {
        const struct slice slice = slice_at(plan, i / plan->n_blocks, i % plan->n_blocks);
        for (int p = 0; p < plan->n_phases; p++)
            turn_weights(plan, &plan->phases[p], &slice, kept_at(plan, &plan->phases[p], i),
                         own_at(plan, slot).turned);
    }
}

/* One panel of one unit and phase; its V is there. */
static void run_panel(const struct plan *plan, const struct phase *phase,
                      const struct unit *unit, int64_t panel, const struct own *own)
{
    struct slice slice = { 0 };

    for (int64_t block = 0; block < plan->n_blocks; block++) {
        const float *u = own->u;

        slice = slice_at(plan, panel, block);
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
static void run_unit(const struct plan *plan, const struct unit *unit, int64_t from, int64_t to,
                     const struct own *own)
{
    for (int p = 0; p < plan->n_phases; p++) {
        const struct phase *phase = &plan->phases[p];

        for (int64_t block = 0; block < plan->n_blocks; block++) {
            const struct slice slice = slice_at(plan, 0, block);
            turn_inputs(plan, phase, unit->first, unit->first, unit->first + unit->tiles,
                        slice.k0, slice.depth, own->v + block * phase->places * plan->v_step);
        }
        for (int64_t panel = from; panel < to; panel++)
            run_panel(plan, phase, unit, panel, own);
    }
}

/* Some panels of some units. */
static void run_task(void *arg, size_t task, size_t slot)
{
    const struct plan *plan = arg;
    const struct own own = own_at(plan, slot);
    const int64_t together = plan->n_units >= plan->n_tasks ? plan->n_panels : 1;
    int64_t i;
    const int64_t n_items = together * gemm_part(plan->n_units * plan->n_panels / together,
                                                 plan->n_tasks, (int64_t)task, &i);

    i *= together;
    for (const int64_t end = i + n_items; i < end;) {
        const struct unit unit = unit_at(plan, i / plan->n_panels);
        const int64_t from = i % plan->n_panels;
        const int64_t to = at_most(plan->n_panels, from + end - i);

        run_unit(plan, &unit, from, to, &own);
        i += to - from;
    }
}

static void run_correlation(struct plan *plan, const struct kernel_call *call)
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
    const bool is_pooled = conv_is_pooled(problem);
    const struct conv conv = conv_of(problem, &problem->in[0].shape, &problem->out[0].shape);
    const struct winograd_in x = image_of(conv.h, conv.w, conv.c, false);
    struct plan plan = {
        .n_phases = 1,
        .images = conv.n,
        .in = conv.c,
        .out = conv.o,
        .x_image = image_floats(&x, false),
        .dy = image_of(conv.oh, conv.ow, conv.o, is_pooled),
    };

    plan.dy_image = image_floats(&plan.dy, is_pooled);
    if (conv.sh == 2)
        cut_phases(&plan, &conv, plan.dy);
    else
        plan.phases[0] = whole_phase(&conv, x, conv.oh, conv.ow, false);
    shape_plan(&plan, plan.n_phases > 1 ? PHASE_WEIGHT_PANEL : PANEL);
    return plan;
}

bool winograd_can_run_weight(const struct kernel_problem *problem)
{
    return is_three_by_three(problem, &problem->out[0].shape);
}

/* V of one block and M of all panels are kept for all units if that is not much; then each is
 * made once. */
static bool keeps_turned(const struct plan *plan)
{
    return plan->n_units <= KEPT_UNITS;
}

/* Else units are cut into parts with sums of their own, which are added in order, where slices are
 * too few to be shared among threads. */
static int64_t weight_parts(const struct plan *plan)
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

static struct room room_of(const struct plan *plan)
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
    const struct plan plan = weight_plan(problem);
    const struct room room = room_of(&plan);

    return (size_t)(room.n_u * u_floats(&plan, plan.phases) +
                    plan.phases->places * (room.n_v * plan.v_step + room.n_m * plan.m_step)) *
           sizeof(float);
}

struct walk {
    const struct plan *plan;
    const struct phase *phase;
    struct room room;
    int64_t block; /* whose V is kept */
    float *u, *v, *m, *dw;
};

static float *u_at(const struct walk *walk, int64_t i)
{
    return walk->u + i * u_floats(walk->plan, walk->plan->phases);
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
static void turn_outputs(const struct plan *plan, const struct phase *phase, int64_t begin,
                         int64_t from, int64_t to, int64_t first, int64_t n, float *m)
{
    struct winograd_in dy = plan->dy;

    for (int64_t t = from; t < to; t++) {
        const int64_t at = place_tile(plan, t, &dy.top, &dy.left) * plan->dy_image + first;

        dy.x = plan->dy.x + at;
        dy.index = plan->dy.index != NULL ? plan->dy.index + at : NULL;
        phase->form->output_grad(&dy, (int)n, m + (t - begin) * plan->panel, plan->m_step);
    }
}

/* Adds V^T M of one place to the sums of its weights. */
static void multiply_place(const struct plan *plan, const struct slice *slice, int64_t tiles,
                           const float *v, const float *m, float *u, bool accumulate)
{
    static const ptrdiff_t no_offset[1] = { 0 };
    const int parts = gemm_panels(plan->isa, plan->isa->columns, slice->depth, slice->n);

    for (int p = 0; p < parts; p++) {
        int64_t first;
        int n;
        const int vecs = vecs_at(plan, slice->n, parts, p, &first, &n);
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
static void multiply_places(const struct plan *plan, const struct phase *phase,
                            const struct slice *slice, int64_t tiles, const float *v,
                            const float *m, float *u, bool accumulate)
{
    const int *side = phase->form->side, *weight_side = phase->form->weight_side;

    for (int64_t place = 0; place < phase->places; place++) {
        const bool is_first =
            place / side[1] < weight_side[0] && place % side[1] < weight_side[1];

        multiply_place(plan, slice, tiles, v + place * plan->v_step, m + place * plan->m_step,
                       u + weights_at(phase->form, place) * plan->u_step,
                       accumulate || !is_first);
    }
}

/* dw of input channels [from, to) of a slice. */
static void turn_sums(const struct walk *walk, const struct slice *slice, const float *u,
                      int64_t from, int64_t to)
{
    const struct plan *plan = walk->plan;
    const struct phase *phase = walk->phase;
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
    const struct plan *plan = walk->plan;
    const int64_t chunks = gemm_ceil(plan->tiles, TURN_TILES), i = (int64_t)task / chunks;
    const struct unit unit = unit_at(plan, i);
    const int64_t end = unit.first + unit.tiles;
    const int64_t from = unit.first + (int64_t)task % chunks * TURN_TILES;
    const int64_t to = at_most(from + TURN_TILES, end);
    const struct slice slice = slice_at(plan, 0, walk->block);

    turn_inputs(plan, walk->phase, unit.first, from, to, slice.k0, slice.depth, v_at(walk, i));
    for (int64_t panel = 0; panel < plan->n_panels && walk->block == 0; panel++) {
        const struct slice out = slice_at(plan, panel, 0);
        turn_outputs(plan, walk->phase, unit.first, from, to, out.first, out.n,
                     m_at(walk, i * plan->n_panels + panel));
    }
}

/* dw of one panel and this block, whose V and M are there. */
static void run_kept(void *arg, size_t panel, size_t slot)
{
    const struct walk *walk = arg;
    const struct plan *plan = walk->plan;
    const struct slice slice = slice_at(plan, (int64_t)panel, walk->block);
    float *u = u_at(walk, (int64_t)slot);

    for (int64_t i = 0; i < plan->n_units; i++)
        multiply_places(plan, walk->phase, &slice, unit_at(plan, i).tiles, v_at(walk, i),
                        m_at(walk, i * plan->n_panels + (int64_t)panel), u, i > 0);
    turn_sums(walk, &slice, u, 0, slice.depth);
}

/* The sums of one part of the units for one slice; dw if that is all of them. */
static void run_units(void *arg, size_t task, size_t slot)
{
    const struct walk *walk = arg;
    const struct plan *plan = walk->plan;
    const int64_t parts = walk->room.parts, i = (int64_t)task / parts;
    const struct slice slice = slice_at(plan, i % plan->n_panels, i / plan->n_panels);
    float *u = u_at(walk, (int64_t)(parts > 1 ? task : slot));
    float *v = v_at(walk, (int64_t)slot), *m = m_at(walk, (int64_t)slot);
    int64_t first;
    const int64_t n = gemm_part(plan->n_units, parts, (int64_t)task % parts, &first);

    for (int64_t k = first; k < first + n; k++) {
        const struct unit unit = unit_at(plan, k);
        const int64_t end = unit.first + unit.tiles;

        turn_inputs(plan, walk->phase, unit.first, unit.first, end, slice.k0, slice.depth, v);
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
    const struct plan *plan = walk->plan;
    const int64_t parts = walk->room.parts, chunks = gemm_ceil(plan->block, JOIN_CHANNELS);
    const int64_t i = (int64_t)task / chunks, from = (int64_t)task % chunks * JOIN_CHANNELS;
    const struct slice slice = slice_at(plan, i % plan->n_panels, i / plan->n_panels);
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
    const struct plan *plan = walk->plan;
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
    struct plan plan = weight_plan(call->problem);
    const bool is_pooled = conv_is_pooled(call->problem);
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
    if (call->problem->n_out > 1 && !is_pooled)
        pool_for(call->pool, (size_t)gemm_ceil(plan.out, BIAS_CHANNELS), sum_channels, &copy);
    else if (call->problem->n_out > 1)
        plan.isa->window_sums(plan.dy.x, plan.dy.index,
                              plan.images * (plan.dy.rows / 2) * (plan.dy.columns / 2),
                              (int)plan.out, call->out[1]);
}
