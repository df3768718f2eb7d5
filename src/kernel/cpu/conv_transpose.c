/* SPDX-License-Identifier: MIT */
/* conv_transpose.c - transposed convolution by the kernels of conv2d.
 *
 * Weights (C, O, kh, kw) of the transposed op are those of a conv2d that makes its x of its y, so
 *
 *   conv2d_transpose               x, w -> y     is conv2d_grad_input   dy, w -> dx, and then
 *                                                bias and activation where y lies
 *   conv2d_transpose_grad_input    dy, w -> dx   is conv2d              x, w -> y
 *   conv2d_transpose_grad_weight   x, dy -> dw   is conv2d_grad_weight  x = dy, dy = x -> dw, and
 *                                                db the sums of dy
 *
 * A row here for each kernel of these ops that is worth it, under the same name.
 */
#include <string.h>

#include "kernel/cpu/conv.h"
#include "kernel/cpu/finish.h"
#include "kernel/cpu/processor.h"
#include "kernel/cpu/rows.h"

enum { FINISH_FLOATS = 16 << 10 /* of a task */ };

struct derived {
    const struct kernel *kernel;
    struct kernel_problem problem;
};

/* The kernel for `op`: the first in its rows. */
static const struct kernel *row_of(const struct kernel *rows, const char *op)
{
    while (strcmp(rows->op, op) != 0)
        rows++;
    return rows;
}

static struct derived derive(const struct kernel *rows, const struct kernel_problem *problem)
{
    struct derived d = { .problem = *problem };

    d.problem.attrs.activation = ACTIVATION_NONE;
    d.problem.op = "conv2d_grad_input";
    d.problem.n_in = 2;
    if (strcmp(problem->op, "conv2d_transpose_grad_input") == 0) {
        d.problem.op = "conv2d";
    } else if (strcmp(problem->op, "conv2d_transpose_grad_weight") == 0) {
        d.problem.op = "conv2d_grad_weight";
        d.problem.in[0] = problem->in[1];
        d.problem.in[1] = problem->in[0];
        d.problem.n_out = 1;
    }
    d.kernel = row_of(rows, d.problem.op);
    return d;
}

static const struct finish_isa *finish_current(void)
{
    return processor_current() >= PROCESSOR_AVX512 ? &finish_avx512 : &finish_avx2;
}

struct finishing {
    const struct kernel_call *call;
    int64_t pixels, channels, grain;
};

static void finish_some(void *arg, size_t task)
{
    const struct finishing *f = arg;
    const struct kernel_problem *problem = f->call->problem;
    const int64_t first = (int64_t)task * f->grain;
    const int64_t left = f->pixels - first;

    finish_current()->run((float *)f->call->out[0] + first * f->channels,
                          left < f->grain ? left : f->grain, f->channels,
                          problem->n_in > 2 ? f->call->in[2] : NULL, problem->attrs.activation);
}

/* Bias and activation over y. */
static void finish(const struct kernel_call *call)
{
    const struct shape *y = &call->problem->out[0].shape;
    struct finishing f = { .call = call,
                           .pixels = y->dim[0] * y->dim[2] * y->dim[3],
                           .channels = y->dim[1] };

    if (call->problem->n_in == 2 && call->problem->attrs.activation == ACTIVATION_NONE)
        return;
    f.grain = gemm_ceil(FINISH_FLOATS, f.channels);
    pool_for(call->pool, (size_t)gemm_ceil(f.pixels, f.grain), finish_some, &f);
}

static bool can_run(const struct kernel *rows, const struct kernel_problem *problem)
{
    const struct derived d = derive(rows, problem);

    return tile_current() != NULL && d.kernel->can_run(&d.problem);
}

static size_t scratch_bytes(const struct kernel *rows, const struct kernel_problem *problem)
{
    const struct derived d = derive(rows, problem);

    return d.kernel->scratch_bytes != NULL ? d.kernel->scratch_bytes(&d.problem) : 0;
}

static enum status prepare(const struct kernel *rows, const struct kernel_problem *problem,
                           void **out_state)
{
    const struct derived d = derive(rows, problem);

    *out_state = NULL;
    return d.kernel->prepare != NULL ? d.kernel->prepare(&d.problem, out_state) : STATUS_OK;
}

static void run(const struct kernel *rows, const struct kernel_call *call)
{
    const struct derived d = derive(rows, call->problem);
    const bool is_weight = strcmp(d.problem.op, "conv2d_grad_weight") == 0;
    struct kernel_call inner = *call;

    inner.problem = &d.problem;
    if (is_weight) {
        inner.in[0] = call->in[1];
        inner.in[1] = call->in[0];
    }
    d.kernel->run(&inner);
    if (!is_weight)
        finish(call); /* nothing to do for the gradient */
    else if (call->problem->n_out > 1) {
        const struct shape *dy = &call->problem->in[1].shape;
        finish_current()->sum(call->in[1], dy->dim[0] * dy->dim[2] * dy->dim[3], dy->dim[1],
                              call->out[1]);
    }
}

/* The functions of a row for each kernel, which differ in `rows` alone. */
#define DELEGATE(name, rows)                                                                   \
    static bool can_run_##name(const struct kernel_problem *problem)                           \
    {                                                                                          \
        return can_run(rows, problem);                                                         \
    }                                                                                          \
    static size_t scratch_bytes_##name(const struct kernel_problem *problem)                   \
    {                                                                                          \
        return scratch_bytes(rows, problem);                                                   \
    }                                                                                          \
    static enum status prepare_##name(const struct kernel_problem *problem, void **out_state)  \
    {                                                                                          \
        return prepare(rows, problem, out_state);                                              \
    }                                                                                          \
    static void release_##name(void *state)                                                    \
    {                                                                                          \
        const struct kernel *kernel = row_of(rows, "conv2d");                                  \
        if (kernel->release != NULL)                                                           \
            kernel->release(state);                                                            \
    }                                                                                          \
    static void run_##name(const struct kernel_call *call)                                     \
    {                                                                                          \
        run(rows, call);                                                                       \
    }

#define ROW(op, name)                                                                          \
    {                                                                                          \
        op, #name, can_run_##name, scratch_bytes_##name, prepare_##name, release_##name,       \
            run_##name                                                                         \
    }

DELEGATE(own, kernel_conv_rows)
DELEGATE(matrix, kernel_conv_matrix_rows)
DELEGATE(grey, kernel_conv_grey_rows)
#ifdef HAVE_ONEDNN
DELEGATE(onednn, kernel_onednn_rows)
#endif

const struct kernel kernel_conv_transpose_rows[] = {
    ROW("conv2d_transpose", own),
    ROW("conv2d_transpose_grad_input", own),
    ROW("conv2d_transpose_grad_weight", own),
    ROW("conv2d_transpose", matrix),
    ROW("conv2d_transpose_grad_input", matrix),
    ROW("conv2d_transpose_grad_weight", matrix),
    ROW("conv2d_transpose", grey),
    ROW("conv2d_transpose_grad_input", grey),
    ROW("conv2d_transpose_grad_weight", grey),
#ifdef HAVE_ONEDNN
    ROW("conv2d_transpose", onednn),
    ROW("conv2d_transpose_grad_input", onednn),
    ROW("conv2d_transpose_grad_weight", onednn),
#endif
    { 0 },
};
