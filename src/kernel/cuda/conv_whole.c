/* SPDX-License-Identifier: MIT */
/* conv_whole.c - convolutions whose window is the whole image, or one pixel of it, as linear layers.
 *
 * With one pixel of y, x (N,H,W,C) is a matrix of N rows and w (kh,kw,C,O) one of as many rows as x has columns: y = x w,
 * dx = dy w', dw = x' dy, and nothing is turned or copied first. With windows of one pixel all pixels are rows. A transposed
 * convolution of one pixel is dx of that. Only bf16: of f32 sums are wider elsewhere.
 */
#include <string.h>

#include "kernel/cuda/column_sums.h"
#include "kernel/cuda/gemm.h"

enum kind { FORWARD, INPUT, WEIGHT };

/* Which tensors of a problem are x, w and y of the convolution; OUTPUT: its output. */
struct parts {
    const char *op;
    enum kind kind;
    int x, w, y;
};

enum { OUTPUT = -1 };

static const struct parts parts[] = {
    { "conv2d", FORWARD, 0, 1, OUTPUT },
    { "conv2d_grad_input", INPUT, OUTPUT, 1, 0 },
    { "conv2d_grad_weight", WEIGHT, 0, OUTPUT, 1 },
    { "conv2d_transpose", INPUT, OUTPUT, 1, 0 },
    { "conv2d_transpose_grad_input", FORWARD, 0, 1, OUTPUT },
    { "conv2d_transpose_grad_weight", WEIGHT, 1, OUTPUT, 0 },
};

static const struct parts *parts_of(const struct kernel_problem *p)
{
    size_t i = 0;

    while (strcmp(parts[i].op, p->op) != 0)
        i++;
    return &parts[i];
}

static const struct shape *shape_at(const struct kernel_problem *p, int at)
{
    return at == OUTPUT ? &p->out[0].shape : &p->in[at].shape;
}

enum { EIGHT = 8 }; /* elements of 16 bytes, which rows of products begin at */

/* Is a window one pixel, and every pixel one? */
static bool is_pixel(const struct kernel_problem *p, const struct shape *x,
                     const struct shape *w)
{
    return w->dim[2] == 1 && w->dim[3] == 1 && p->attrs.stride[0] == 1 &&
           p->attrs.stride[1] == 1 && x->dim[1] % EIGHT == 0 && w->dim[0] % EIGHT == 0;
}

static bool can_run(const struct kernel_problem *p)
{
    const struct parts *part = parts_of(p);
    const struct shape *x = shape_at(p, part->x), *w = shape_at(p, part->w);
    const struct shape *y = shape_at(p, part->y);
    const bool is_whole =
        y->dim[2] == 1 && y->dim[3] == 1 && x->dim[2] == w->dim[2] && x->dim[3] == w->dim[3];

    return p->in[0].dtype == DTYPE_BF16 && p->attrs.groups <= 1 &&
           p->attrs.activation <= ACTIVATION_RELU && p->attrs.pad[0] == 0 &&
           p->attrs.pad[1] == 0 && (is_whole || is_pixel(p, x, w));
}

/* Of a transposed convolution a bias goes along its pixels, not along a row of the product. */
static bool is_finished_apart(const struct kernel_problem *p)
{
    return parts_of(p)->kind == INPUT &&
           (p->n_in > 2 || p->attrs.activation == ACTIVATION_RELU);
}

static int64_t pixels_of(const struct shape *image)
{
    return image->dim[0] * image->dim[2] * image->dim[3];
}

static struct gemm_form form_of(const struct kernel_problem *p)
{
    const struct parts *part = parts_of(p);
    const struct shape *x = shape_at(p, part->x), *w = shape_at(p, part->w);
    const int64_t seen = x->dim[1] * w->dim[2] * w->dim[3], o = w->dim[0];
    const int64_t rows = pixels_of(shape_at(p, part->y));
    struct gemm_form form = { .of = p->in[0].dtype, .into = p->out[0].dtype };

    if (part->kind == FORWARD) {
        form.m = rows;
        form.n = form.b_row = form.c_row = o;
        form.k = form.a_row = seen;
        form.with_bias = p->n_in > 2;
        form.relu = p->attrs.activation == ACTIVATION_RELU;
    } else if (part->kind == INPUT) {
        form.m = rows;
        form.n = form.c_row = seen;
        form.k = form.a_row = form.b_row = o;
        form.b_across = true;
    } else {
        form.m = form.a_row = seen;
        form.n = form.b_row = form.c_row = o;
        form.k = rows;
        form.a_across = true;
    }
    return form;
}

/* The tensor that a bias's gradient is summed up from: rows are pixels. */
static const struct kernel_tensor *summed(const struct kernel_problem *p)
{
    return &p->in[1]; /* dy of both weights' gradients */
}

static size_t scratch_bytes(const struct kernel_problem *p)
{
    const struct gemm_form form = form_of(p);
    size_t sums = 0;

    if (parts_of(p)->kind == WEIGHT && p->n_out > 1)
        sums = column_sums_scratch(pixels_of(&summed(p)->shape), summed(p)->shape.dim[1]);
    return gemm_scratch(&form) + sums;
}

static enum status prepare(const struct kernel_problem *p, void **out)
{
    const struct gemm_form form = form_of(p);
    return gemm_create(&form, (struct gemm **)out);
}

static void release(void *state)
{
    gemm_destroy(state);
}

/* Bias and relu of a transposed convolution's pixels. */
static void finish(const struct kernel_call *call)
{
    const struct kernel_problem *p = call->problem;
    const int64_t channels = p->out[0].shape.dim[1];
    const struct gemm_form form = { .m = pixels_of(&p->out[0].shape),
                                    .n = channels,
                                    .c_row = channels,
                                    .with_bias = p->n_in > 2,
                                    .relu = p->attrs.activation == ACTIVATION_RELU,
                                    .into = p->out[0].dtype };
    const struct gemm_data data = { .bias = p->n_in > 2 ? call->in[2] : NULL,
                                    .c = call->out[0] };

    gemm_finish(call->stream, &form, &data);
}

static void run(const struct kernel_call *call)
{
    const struct kernel_problem *p = call->problem;
    const struct parts *part = parts_of(p);
    const struct gemm_form form = form_of(p);
    const struct gemm_data data = { .a = call->in[part->kind == INPUT ? part->y : part->x],
                                    .b = call->in[part->kind == WEIGHT ? part->y : part->w],
                                    .bias = form.with_bias ? call->in[2] : NULL,
                                    .c = call->out[0],
                                    .scratch = call->scratch };

    gemm_run(call->state, call->stream, &data);
    if (is_finished_apart(p))
        finish(call);
    if (part->kind == WEIGHT && p->n_out > 1)
        column_sums(call->stream, call->in[1], summed(p)->dtype, pixels_of(&summed(p)->shape),
                    summed(p)->shape.dim[1], call->out[1],
                    (char *)call->scratch + gemm_scratch(&form));
}

#define ROW(name_of_op)                                                                        \
    {                                                                                          \
        .op = (name_of_op), .name = "whole", .can_run = can_run,                               \
        .scratch_bytes = scratch_bytes, .prepare = prepare, .release = release, .run = run     \
    }

const struct kernel cuda_conv_whole_rows[] = {
    ROW("conv2d"),
    ROW("conv2d_grad_input"),
    ROW("conv2d_grad_weight"),
    ROW("conv2d_transpose"),
    ROW("conv2d_transpose_grad_input"),
    ROW("conv2d_transpose_grad_weight"),
    { 0 },
};
