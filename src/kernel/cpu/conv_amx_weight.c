/* SPDX-License-Identifier: MIT */
/* conv_amx_weight.c - the gradient of a convolution's weights as a plain sum by AMX (amx.h).
 *
 *     dw(tap) += x(pixel of the tap)^T dy(pixel), a product over images, for each pixel of dy
 *
 * A step of the shared dimension is 32 images at one pixel, so that a tap is another pixel of x, as in
 * conv_amx.c. The batch is taken in pieces, 32 images by some rows of dy: all threads pack a piece of x, turned, and
 * of dy; then the piece's sum is made in tile registers for each block of dw, 32 channels of x by 32 of dy of
 * one tap, and added. Blocks are shared among threads, the order of a block's sum is that of pieces and pixels.
 *
 * Traffic: x and dy once from memory and for each block from L2; dw once a piece.
 */
#include "kernel/cpu/conv_amx.h"

#include <string.h>

enum {
    PIECE_PIXELS = 64, /* of dy in a piece, about */
    MOST_ROWS = 64,    /* of a piece, at most */
};

static int64_t at_most(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t at_least(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

struct plan {
    struct conv conv;
    bool is_short;
    int64_t step;               /* bf16 of a packed step */
    int64_t c_blocks, o_blocks; /* of 32 channels */
    int64_t rows;               /* of dy in a full piece */
    int64_t x_rows;             /* of x that a full piece needs, at most */
    const float *x, *dy;
    float *dw;
    uint16_t *x_pack,
        *dy_pack; /* [block of channels][row][pixel]; row r of x lies at r % x_rows */
    /* The piece that is worked on. */
    int64_t image, n_images, row, n_rows;
    int64_t x_row, n_x_rows; /* of x, that are to be packed: rows before are there */
};

static struct plan plan_of(const struct kernel_problem *problem, bool is_short)
{
    const struct conv c = conv_of(problem, &problem->in[0].shape, &problem->out[0].shape);
    struct plan plan = {
        .conv = c,
        .is_short = is_short,
        .step = is_short ? AMX_SHORT : AMX_PACKED,
        .c_blocks = gemm_ceil(c.c, AMX_SIDE),
        .o_blocks = gemm_ceil(c.o, AMX_SIDE),
        .rows = at_most(at_most(c.oh, MOST_ROWS), gemm_ceil(PIECE_PIXELS, c.ow)),
    };

    plan.x_rows = at_most(c.h, (plan.rows - 1) * c.sh + c.kh);
    return plan;
}

static int64_t x_steps(const struct plan *plan)
{
    return plan->c_blocks * plan->x_rows * plan->conv.w;
}

static int64_t dy_steps(const struct plan *plan)
{
    return plan->o_blocks * plan->rows * plan->conv.ow;
}

size_t conv_amx_weight_scratch(const struct kernel_problem *problem, bool is_short)
{
    const struct plan plan = plan_of(problem, is_short);

    return (size_t)((x_steps(&plan) + dy_steps(&plan)) * plan.step) * sizeof(uint16_t);
}

/* Pixels (row, 0) to (row, columns) of a block of channels; those that `stride` and `taps` leave out are
 * not packed. */
struct line {
    const float *from; /* the first image's */
    int64_t image_floats, channels, columns;
    int64_t pad, stride, taps;
    bool is_b;
};

static void pack_row(const struct plan *plan, const struct line *line, int64_t channel,
                     uint16_t *to)
{
    struct amx_side side = {
        .line_step = 1,
        .k_step = line->image_floats,
        .n_lines = line->channels,
        .is_b = line->is_b,
        .is_short = plan->is_short,
    };

    for (int64_t p = 0; p < line->columns; p++, to += plan->step) {
        if ((p + line->pad) % line->stride >= line->taps)
            continue;
        side.from = line->from + p * line->channels;
        amx_pack_lines(&side, channel, 0, plan->n_images, to);
        amx_pack_lines(&side, channel + AMX_SIDE / 2, 0, plan->n_images, to + 512);
    }
}

/* A row of the piece, x's rows first, of one block of channels. */
static void pack_piece(void *arg, size_t task)
{
    const struct plan *plan = arg;
    const struct conv *c = &plan->conv;
    const int64_t of_x = plan->n_x_rows * plan->c_blocks, i = (int64_t)task;

    if (i < of_x) {
        const int64_t row = plan->x_row + i / plan->c_blocks, block = i % plan->c_blocks;
        const int64_t image_floats = c->h * c->w * c->c;
        const struct line line = {
            .from = plan->x + plan->image * image_floats + row * c->w * c->c,
            .image_floats = image_floats,
            .channels = c->c,
            .columns = c->w,
            .pad = c->pw,
            .stride = c->sw,
            .taps = c->kw,
        };
        if ((row + c->ph) % c->sh < c->kh)
            pack_row(plan, &line, block * AMX_SIDE,
                     plan->x_pack +
                         (block * plan->x_rows + row % plan->x_rows) * c->w * plan->step);
        return;
    }
    const int64_t row = (i - of_x) / plan->o_blocks, block = (i - of_x) % plan->o_blocks;
    const int64_t image_floats = c->oh * c->ow * c->o;
    const struct line line = {
        .from = plan->dy + plan->image * image_floats + (plan->row + row) * c->ow * c->o,
        .image_floats = image_floats,
        .channels = c->o,
        .columns = c->ow,
        .stride = 1,
        .taps = 1,
        .is_b = true,
    };
    pack_row(plan, &line, block * AMX_SIDE,
             plan->dy_pack + (block * plan->rows + row) * c->ow * plan->step);
}

/* Pixels of dy, from *first on, for which tap t is inside of x. */
static int64_t inside(int64_t t, int64_t stride, int64_t pad, int64_t source, int64_t out,
                      int64_t *first)
{
    *first = at_least(0, gemm_ceil(pad - t, stride));
    return at_least(
        0, at_most(out, source + pad > t ? (source - 1 + pad - t) / stride + 1 : 0) - *first);
}

/* Adds the piece to all blocks of one row of taps: of `c_block` by `o_block`. */
static void add_piece(void *arg, size_t task)
{
    const struct plan *plan = arg;
    const struct conv *c = &plan->conv;
    const int64_t ky = (int64_t)task % c->kh, blocks = (int64_t)task / c->kh;
    const int64_t c_block = blocks / plan->o_blocks, o_block = blocks % plan->o_blocks;
    const int64_t channel = c_block * AMX_SIDE, out = o_block * AMX_SIDE;
    const uint16_t *x = plan->x_pack + c_block * plan->x_rows * c->w * plan->step;
    const uint16_t *dy = plan->dy_pack + o_block * plan->rows * c->ow * plan->step;
    _Alignas(64) float sum[AMX_SIDE * AMX_SIDE];
    struct amx_stretch stretches[MOST_ROWS];
    struct amx_product product = {
        .stretches = stretches,
        .is_short = plan->is_short,
        .begin = AMX_ZERO,
        .c = sum,
        .c_row = AMX_SIDE,
    };

    amx_begin();
    for (int64_t kx = 0; kx < c->kw; kx++) {
        int64_t first;
        const int64_t n = inside(kx, c->sw, c->pw, c->w, c->ow, &first);

        product.n_stretches = 0;
        for (int64_t r = 0; r < plan->n_rows && n > 0; r++) {
            const int64_t row = (plan->row + r) * c->sh - c->ph + ky;
            if (row < 0 || row >= c->h)
                continue;
            stretches[product.n_stretches++] = (struct amx_stretch){
                .a = x + (row % plan->x_rows * c->w + first * c->sw - c->pw + kx) * plan->step,
                .b = dy + (r * c->ow + first) * plan->step,
                .steps = n,
                .a_step = c->sw * plan->step,
                .b_step = plan->step,
            };
        }
        amx_multiply_stretches(&product);
        amx_add(sum, at_most(AMX_SIDE, c->c - channel), at_most(AMX_SIDE, c->o - out),
                plan->dw + ((ky * c->kw + kx) * c->c + channel) * c->o + out, c->o);
    }
    amx_end();
}

void conv_amx_weight_run(const struct kernel_call *call, bool is_short)
{
    struct plan plan = plan_of(call->problem, is_short);
    const struct conv *c = &plan.conv;

    plan.x = call->in[0];
    plan.dy = call->in[1];
    plan.dw = call->out[0];
    memset(plan.dw, 0, (size_t)(c->kh * c->kw * c->c * c->o) * sizeof(float));
    plan.x_pack = call->scratch;
    plan.dy_pack = plan.x_pack + x_steps(&plan) * plan.step;
    for (; plan.image < c->n; plan.image += AMX_SIDE) {
        plan.n_images = at_most(AMX_SIDE, c->n - plan.image);
        plan.x_row = plan.n_x_rows = 0;
        for (plan.row = 0; plan.row < c->oh; plan.row += plan.rows) {
            plan.n_rows = at_most(plan.rows, c->oh - plan.row);
            plan.x_row = at_least(plan.x_row + plan.n_x_rows, plan.row * c->sh - c->ph);
            const int64_t end =
                at_most(c->h, (plan.row + plan.n_rows - 1) * c->sh - c->ph + c->kh);
            plan.n_x_rows = at_least(0, end - plan.x_row);
            pool_for(call->pool,
                     (size_t)(plan.n_x_rows * plan.c_blocks + plan.n_rows * plan.o_blocks),
                     pack_piece, &plan);
            pool_for(call->pool, (size_t)(plan.c_blocks * plan.o_blocks * c->kh), add_piece,
                     &plan);
        }
    }
    if (call->problem->n_out > 1)
        gemm_column_sums(tile_current(), call->in[1], c->o, c->n * c->oh * c->ow, c->o,
                         call->pool, call->out[1]);
}
