/* SPDX-License-Identifier: MIT */
/* conv.c - conv2d, conv2d_pool and conv2d_grad_input as correlations over a plane.
 *
 * Forward: y(oy,ox) = sum over taps of x(oy*sh + ky - ph, ox*sw + kx - pw) w(ky,kx).
 *
 * Gradient of the input: pixel iy gets dy(oy) w(ky) for all iy + ph = oy*sh + ky. With a
 * stride, the pixels whose (iy + ph) mod sh is the same use the same taps, every sh-th of the
 * kernel; so for each of the sh*sw classes it is a correlation of stride 1 over dy, with the
 * taps in falling order (as oy rises) and weights turned to [tap][o][c].
 */
#include <string.h>

#include "kernel/cpu/conv.h"
#include "kernel/cpu/rows.h"

static struct correlate forward(const struct kernel_problem *problem)
{
    const struct conv conv = conv_of(problem, &problem->in[0].shape, &problem->in[1].shape);
    const bool stacks = conv_stacks(&conv), pool = problem->attrs.window[0] > 0;
    const int64_t pooled_w = pool ? conv.ow / 2 : conv.ow,
                  pooled_h = pool ? conv.oh / 2 : conv.oh;
    const int64_t columns = (conv.ow - 1) * conv.sw + conv.kw;

    return (struct correlate){
        .isa = tile_current(),
        .plane = stacks ? plane_of(NULL, conv.h, conv.w, conv.c, conv.ph, conv.pw, conv.oh,
                                   columns, conv.kh, conv.sh)
                        : plane_of(NULL, conv.h, conv.w, conv.c, conv.ph, conv.pw,
                                   (conv.oh - 1) * conv.sh + conv.kh, columns, 1, 1),
        .images = conv.n,
        .rows = conv.oh,
        .columns = conv.ow,
        .taps_y = stacks ? 1 : conv.kh,
        .taps_x = conv.kw,
        .step_y = stacks ? 1 : conv.sh,
        .step_x = conv.sw,
        .kw = conv.kw,
        .wc = conv.c,
        .wo = conv.o,
        .tap_y_step = 1,
        .tap_x_step = 1,
        .y_image = pooled_h * pooled_w * conv.o,
        .y_row = pooled_w * conv.o,
        .y_pixel = conv.o,
        .relu = problem->attrs.activation == ACTIVATION_RELU,
        .pool = pool,
    };
}

static size_t forward_scratch(const struct kernel_problem *problem)
{
    const struct conv conv = conv_of(problem, &problem->in[0].shape, &problem->in[1].shape);
    const struct correlate cor = forward(problem);

    return conv_is_stem(&conv, problem)     ? conv_stem_scratch(&conv)
           : conv_is_narrow(&conv, problem) ? conv_narrow_scratch(&conv)
                                            : correlate_scratch_bytes(&cor);
}

static void forward_run(const struct kernel_call *call)
{
    const struct kernel_problem *problem = call->problem;
    const struct conv conv = conv_of(problem, &problem->in[0].shape, &problem->in[1].shape);
    struct correlate cor = forward(problem);

    if (conv_is_stem(&conv, problem)) {
        conv_stem_run(&conv, call);
        return;
    }
    if (conv_is_narrow(&conv, problem)) {
        conv_narrow_run(&conv, call);
        return;
    }
    cor.plane.x = call->in[0];
    cor.w = call->in[1];
    cor.bias = problem->n_in > 2 ? call->in[2] : NULL;
    cor.y = call->out[0];
    cor.index = cor.pool ? call->out[1] : NULL;
    correlate_run(&cor, call->pool, call->scratch);
}

/* One of the two coordinates of a class of pixels. */
struct phase {
    int64_t taps, tap;    /* how many, and the first: the last of the kernel */
    int64_t first, count; /* pixels of the input */
    int64_t before;       /* zeros before dy's first row */
};

static struct phase phase_of(int64_t a, int64_t k, int64_t stride, int64_t pad, int64_t extent)
{
    struct phase phase = { .taps = a < k ? (k - a + stride - 1) / stride : 0 };

    phase.tap = a + (phase.taps - 1) * stride;
    phase.first = ((a - pad) % stride + stride) % stride;
    phase.count = phase.first < extent ? (extent - phase.first + stride - 1) / stride : 0;
    phase.before = phase.taps - 1 - (phase.first + pad - a) / stride;
    return phase;
}

static struct conv backward_conv(const struct kernel_problem *problem)
{
    const int slot = conv_is_pooled(problem) ? 2 : 1;

    return conv_of(problem, &problem->out[0].shape, &problem->in[slot].shape);
}

/* The correlation for class (a, b); false if it has no taps or no pixels. */
static bool backward(const struct kernel_problem *problem, int64_t a, int64_t b,
                     struct correlate *out)
{
    const struct conv conv = backward_conv(problem);
    const struct phase y = phase_of(a, conv.kh, conv.sh, conv.ph, conv.h);
    const struct phase x = phase_of(b, conv.kw, conv.sw, conv.pw, conv.w);

    if (y.taps == 0 || x.taps == 0 || y.count == 0 || x.count == 0)
        return false;
    *out = (struct correlate){
        .isa = tile_current(),
        .plane = plane_of(NULL, conv.oh, conv.ow, conv.o, y.before, x.before,
                          y.count + y.taps - 1, x.count + x.taps - 1, 1, 1),
        .images = conv.n,
        .rows = y.count,
        .columns = x.count,
        .taps_y = y.taps,
        .taps_x = x.taps,
        .step_y = 1,
        .step_x = 1,
        .kw = conv.kw,
        .wc = conv.c,
        .wo = conv.o,
        .tap_y = y.tap,
        .tap_y_step = -conv.sh,
        .tap_x = x.tap,
        .tap_x_step = -conv.sw,
        .is_turned = true,
        .y_image = conv.h * conv.w * conv.c,
        .y_row = conv.sh * conv.w * conv.c,
        .y_pixel = conv.sw * conv.c,
    };
    if (conv_is_pooled(problem))
        plane_pool(&out->plane);
    return true;
}

static size_t input_scratch(const struct kernel_problem *problem)
{
    const struct conv conv = backward_conv(problem);
    size_t most = 0;

    if (conv_is_narrow_input(&conv, problem))
        return conv_narrow_scratch(&conv);
    for (int64_t a = 0; a < conv.sh; a++) {
        for (int64_t b = 0; b < conv.sw; b++) {
            struct correlate cor;
            if (!backward(problem, a, b, &cor))
                continue;
            const size_t bytes = correlate_scratch_bytes(&cor);
            most = bytes > most ? bytes : most;
        }
    }
    return most;
}

/* Pixels that no tap reaches: some class has none, or the stride skips the last rows. */
static bool leaves_gaps(const struct conv *conv)
{
    return conv->kh < conv->sh || conv->kw < conv->sw;
}

static void input_run(const struct kernel_call *call)
{
    const struct kernel_problem *problem = call->problem;
    const struct conv conv = backward_conv(problem);
    const bool is_pooled = conv_is_pooled(problem);
    float *dx = call->out[0];

    if (conv_is_narrow_input(&conv, problem)) {
        conv_narrow_input_run(&conv, call);
        return;
    }
    if (leaves_gaps(&conv))
        memset(dx, 0, (size_t)(conv.n * conv.h * conv.w * conv.c) * sizeof(float));
    for (int64_t a = 0; a < conv.sh; a++) {
        for (int64_t b = 0; b < conv.sw; b++) {
            struct correlate cor;
            if (!backward(problem, a, b, &cor))
                continue;
            const struct phase y = phase_of(a, conv.kh, conv.sh, conv.ph, conv.h);
            const struct phase x = phase_of(b, conv.kw, conv.sw, conv.pw, conv.w);
            cor.plane.x = call->in[0];
            cor.plane.index = is_pooled ? call->in[1] : NULL;
            cor.w = call->in[is_pooled ? 2 : 1];
            cor.y = dx + (y.first * conv.w + x.first) * conv.c;
            correlate_run(&cor, call->pool, call->scratch);
        }
    }
}

const struct kernel kernel_conv_rows[] = {
    { .op = "conv2d",
      .name = "own",
      .can_run = conv_can_run,
      .scratch_bytes = forward_scratch,
      .run = forward_run },
    { .op = "conv2d_pool",
      .name = "own",
      .can_run = conv_can_run,
      .scratch_bytes = forward_scratch,
      .run = forward_run },
    { .op = "conv2d_grad_input",
      .name = "own",
      .can_run = conv_can_run,
      .scratch_bytes = input_scratch,
      .run = input_run },
    { .op = "conv2d_grad_weight",
      .name = "own",
      .can_run = conv_can_run,
      .scratch_bytes = conv_weight_scratch,
      .run = conv_weight_run },
    { .op = "conv2d",
      .name = "winograd",
      .can_run = winograd_can_run,
      .scratch_bytes = winograd_scratch,
      .run = winograd_run },
    { .op = "conv2d_pool",
      .name = "winograd",
      .can_run = winograd_can_run,
      .scratch_bytes = winograd_scratch,
      .run = winograd_run },
    { .op = "conv2d_grad_input",
      .name = "winograd",
      .can_run = winograd_can_run_input,
      .scratch_bytes = winograd_input_scratch,
      .run = winograd_input_run },
    { .op = "conv2d_grad_weight",
      .name = "winograd",
      .can_run = winograd_can_run_weight,
      .scratch_bytes = winograd_weight_scratch,
      .run = winograd_weight_run },
    { 0 },
};

const struct kernel kernel_conv_pool_rows[] = {
    { .op = "conv2d_pool_grad_input",
      .name = "own",
      .can_run = conv_can_run,
      .scratch_bytes = input_scratch,
      .run = input_run },
    { .op = "conv2d_pool_grad_weight",
      .name = "own",
      .can_run = conv_can_run,
      .scratch_bytes = conv_weight_scratch,
      .run = conv_weight_run },
    { .op = "conv2d_pool_grad_input",
      .name = "winograd",
      .can_run = winograd_can_run_input,
      .scratch_bytes = winograd_input_scratch,
      .run = winograd_input_run },
    { .op = "conv2d_pool_grad_weight",
      .name = "winograd",
      .can_run = winograd_can_run_weight,
      .scratch_bytes = winograd_weight_scratch,
      .run = winograd_weight_run },
    { 0 },
};
