/* SPDX-License-Identifier: MIT */
/* winograd_plan.c - phases, units, blocks and panels of a convolution by Winograd's method. */
#include "kernel/cpu/winograd_plan.h"

enum {
    TILES = 64,          /* of a unit, at 64 channels */
    MOST_TILES = 256,    /* of a unit with few channels */
    BLOCK_PLACES = 2304, /* channels summed over together, times places: 64 of 36, 256 of 9 */
    GRAIN = 16,          /* channels are cut at multiples of it */
    SKEW = 16,         /* floats between places, so that they do not share sets of the cache */
    PHASE_BLOCK = 128, /* channels summed over together: a phase has at most 25 places */
};

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

struct winograd_in winograd_image_of(int64_t rows, int64_t columns, int64_t channels,
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

int64_t winograd_image_floats(const struct winograd_in *image, bool is_pooled)
{
    return image->rows / (is_pooled ? 2 : 1) * image->row;
}

static const struct winograd_isa *winograd_current(void)
{
    return tile_current() == &tile_avx512 ? &winograd_avx512 : &winograd_avx2;
}

struct winograd_phase winograd_whole_phase(const struct conv *conv, struct winograd_in x,
                                           int64_t rows, int64_t columns, bool is_turned)
{
    const struct winograd_isa *winograd = winograd_current();
    const bool is_whole = x.rows == 2 && x.columns == 2 && rows == 2 && columns == 2 &&
                          conv->ph == 1 && conv->pw == 1;

    return (struct winograd_phase){
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

void winograd_cut_phases(struct winograd_plan *plan, const struct conv *conv,
                         struct winograd_in dy)
{
    const struct winograd_in wide = winograd_image_of(conv->h, conv->w, conv->c, false);

    for (int i = 0; i < WINOGRAD_PHASES; i++) {
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

        plan->phases[i] = (struct winograd_phase){
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
    plan->n_phases = WINOGRAD_PHASES;
}

void winograd_shape_plan(struct winograd_plan *plan, int64_t panel)
{
    const struct winograd_form *form = plan->phases[0].form;
    int64_t rows = 0, columns = 0;

    for (int i = 0; i < plan->n_phases; i++) {
        struct winograd_phase *phase = &plan->phases[i];

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
    const int64_t most =
        at_most(MOST_TILES,
                at_least(TILES, TILES * WINOGRAD_PANEL / at_least(plan->block, plan->panel)));
    plan->n_units = gemm_ceil(total, most);
    plan->tiles = gemm_ceil(total, at_least(1, plan->n_units));
    plan->v_step = plan->tiles * plan->block + SKEW;
    plan->m_step = plan->tiles * plan->panel + SKEW;
    plan->u_step = plan->block * plan->panel + SKEW;
}

bool winograd_can_shape(const struct kernel_problem *problem, const struct shape *w)
{
    return conv_can_run(problem) && w->dim[2] == 3 && w->dim[3] == 3 &&
           problem->attrs.stride[0] == problem->attrs.stride[1] &&
           (problem->attrs.stride[0] == 1 ||
            (problem->attrs.stride[0] == 2 && problem->attrs.pad[0] == 1 &&
             problem->attrs.pad[1] == 1 && !conv_is_pooled(problem)));
}

struct winograd_unit winograd_unit_at(const struct winograd_plan *plan, int64_t i)
{
    struct winograd_unit unit;

    unit.tiles =
        gemm_part(plan->images * plan->tiles_y * plan->tiles_x, plan->n_units, i, &unit.first);
    return unit;
}

int64_t winograd_place_tile(const struct winograd_plan *plan, int64_t t, int64_t *row,
                            int64_t *column)
{
    const int out = plan->phases[0].form->out;

    *column = t % plan->tiles_x * out;
    *row = t / plan->tiles_x % plan->tiles_y * out;
    return t / plan->tiles_x / plan->tiles_y;
}

void winograd_turn_inputs(const struct winograd_plan *plan, const struct winograd_phase *phase,
                          int64_t begin, int64_t from, int64_t to, int64_t first, int64_t n,
                          float *v)
{
    struct winograd_in in = phase->x;

    for (int64_t t = from; t < to; t++) {
        int64_t row, column;
        const int64_t at = winograd_place_tile(plan, t, &row, &column) * plan->x_image + first;

        in.x = phase->x.x + at;
        in.index = phase->x.index != NULL ? phase->x.index + at : NULL;
        in.top = row - phase->top + phase->form->before;
        in.left = column - phase->left + phase->form->before;
        phase->form->input(&in, (int)n, v + (t - begin) * plan->block, plan->v_step);
    }
}

int winograd_vecs_at(const struct winograd_plan *plan, int64_t n, int parts, int p,
                     int64_t *first, int *columns)
{
    const int lanes = plan->isa->lanes;
    const int vecs = (int)gemm_part(gemm_ceil(n, lanes), parts, p, first);

    *first *= lanes;
    *columns = (int)at_most(n - *first, (int64_t)vecs * lanes);
    return vecs;
}

struct winograd_slice winograd_slice_at(const struct winograd_plan *plan, int64_t panel,
                                        int64_t block)
{
    struct winograd_slice slice;

    slice.depth = channels_at(plan->in, plan->n_blocks, block, &slice.k0);
    slice.n = channels_at(plan->out, plan->n_panels, panel, &slice.first);
    return slice;
}

int64_t winograd_u_floats(const struct winograd_plan *plan, const struct winograd_phase *phase)
{
    return phase->weight_places * plan->u_step;
}

int64_t winograd_weights_at(const struct winograd_form *form, int64_t place)
{
    const int64_t y = at_most(place / form->side[1], form->weight_side[0] - 1);
    const int64_t x = at_most(place % form->side[1], form->weight_side[1] - 1);

    return y * form->weight_side[1] + x;
}
