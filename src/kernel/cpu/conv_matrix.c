/* SPDX-License-Identifier: MIT */
/* conv_matrix.c - convolutions that are a matrix product as they lie.
 *
 * If a window is one pixel (1x1, stride 1) or the whole image (no padding, one place), then x
 * of NHWC is a matrix with a row for each place, HWIO weights lie as a linear layer's do, and y
 * is the product. The linear kernels do it: oneDNN's, or our own where that is not built in.
 */
#include <string.h>

#include "kernel/cpu/conv.h"
#include "kernel/cpu/rows.h"

/* Row of `rows` for an op: the first, which is "own" in ours. */
static const struct kernel *row_of(const struct kernel *rows, const char *op)
{
    while (strcmp(rows->op, op) != 0)
        rows++;
    return rows;
}

static const struct kernel *linear_row(const char *op)
{
#ifdef HAVE_ONEDNN
    return row_of(kernel_onednn_rows, op);
#else
    return row_of(kernel_linear_rows, op);
#endif
}

static bool is_matrix(const struct kernel_problem *problem, const struct shape *x,
                      const struct shape *w)
{
    const struct conv conv = conv_of(problem, x, w);
    const bool is_pixel = conv.kh == 1 && conv.kw == 1 && conv.sh == 1 && conv.sw == 1;
    const bool is_whole = conv.kh == conv.h && conv.kw == conv.w;

    return conv_can_run(problem) && conv.ph == 0 && conv.pw == 0 && (is_pixel || is_whole);
}

/* The linear layer's problem: m places, k inputs and n outputs of each. */
struct derived {
    const struct kernel *kernel;
    struct kernel_problem problem;
};

static struct kernel_tensor matrix_of(int64_t rows, int64_t columns, enum layout layout)
{
    return (struct kernel_tensor){ DTYPE_F32, layout, shape_2(rows, columns) };
}

static struct derived derive(const struct kernel_problem *problem, const struct shape *x,
                             const struct shape *w, const char *op)
{
    const struct conv conv = conv_of(problem, x, w);
    const int64_t m = conv.n * conv.oh * conv.ow, k = conv.kh * conv.kw * conv.c, n = conv.o;
    const struct kernel_tensor input = matrix_of(m, k, LAYOUT_PLAIN),
                               output = matrix_of(m, n, LAYOUT_PLAIN),
                               weight = matrix_of(n, k, LAYOUT_IO);
    struct derived d = { .kernel = linear_row(op),
                         .problem = { .op = op,
                                      .n_in = problem->n_in,
                                      .n_out = problem->n_out,
                                      .in = { input, weight },
                                      .out = { output },
                                      .attrs.activation = problem->attrs.activation } };

    d.problem.in[2] = problem->in[2];
    d.problem.out[1] = problem->out[1];
    if (strcmp(op, "linear_grad_input") == 0) {
        d.problem.in[0] = output;
        d.problem.out[0] = input;
    } else if (strcmp(op, "linear_grad_weight") == 0) {
        d.problem.in[1] = output;
        d.problem.out[0] = weight;
    }
    return d;
}

static struct derived derive_any(const struct kernel_problem *problem)
{
    if (strcmp(problem->op, "conv2d_grad_input") == 0)
        return derive(problem, &problem->out[0].shape, &problem->in[1].shape,
                      "linear_grad_input");
    if (strcmp(problem->op, "conv2d_grad_weight") == 0)
        return derive(problem, &problem->in[0].shape, &problem->out[0].shape,
                      "linear_grad_weight");
    return derive(problem, &problem->in[0].shape, &problem->in[1].shape, "linear");
}

static bool can_run_forward(const struct kernel_problem *problem)
{
    return is_matrix(problem, &problem->in[0].shape, &problem->in[1].shape);
}

static bool can_run_input(const struct kernel_problem *problem)
{
    return is_matrix(problem, &problem->out[0].shape, &problem->in[1].shape);
}

static bool can_run_weight(const struct kernel_problem *problem)
{
    return is_matrix(problem, &problem->in[0].shape, &problem->out[0].shape);
}

static size_t scratch_bytes(const struct kernel_problem *problem)
{
    const struct derived d = derive_any(problem);

    return d.kernel->scratch_bytes != NULL ? d.kernel->scratch_bytes(&d.problem) : 0;
}

static enum status prepare(const struct kernel_problem *problem, void **out_state)
{
    const struct derived d = derive_any(problem);

    *out_state = NULL;
    return d.kernel->prepare != NULL ? d.kernel->prepare(&d.problem, out_state) : STATUS_OK;
}

static void release(void *state)
{
    const struct kernel *kernel = linear_row("linear");

    if (kernel->release != NULL)
        kernel->release(state);
}

static void run(const struct kernel_call *call)
{
    const struct derived d = derive_any(call->problem);
    struct kernel_call inner = *call;

    inner.problem = &d.problem;
    d.kernel->run(&inner);
}

const struct kernel kernel_conv_matrix_rows[] = {
    { "conv2d", "matrix", can_run_forward, scratch_bytes, prepare, release, run },
    { "conv2d_grad_input", "matrix", can_run_input, scratch_bytes, prepare, release, run },
    { "conv2d_grad_weight", "matrix", can_run_weight, scratch_bytes, prepare, release, run },
    { 0 },
};
