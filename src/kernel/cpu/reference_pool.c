/* SPDX-License-Identifier: MIT */
/* reference_pool.c - max and average pooling and their gradients, images (N, H, W, C). */
#include <string.h>

#include "kernel/cpu/reference.h"

/* x is the image that windows move over, y has one pixel a window. */
struct windows {
    int64_t n, c, h, w, oh, ow;
    const struct attrs *attrs;
};

static struct windows windows_of(const struct kernel_problem *problem, const struct shape *x,
                                 const struct shape *y)
{
    return (struct windows){ .n = x->dim[0],
                             .c = x->dim[1],
                             .h = x->dim[2],
                             .w = x->dim[3],
                             .oh = y->dim[2],
                             .ow = y->dim[3],
                             .attrs = &problem->attrs };
}

/* Element of x at place `i` of the window of element `at` of y; -1 in the padding. */
static int64_t element_under(const struct windows *g, int64_t at, int i)
{
    const struct attrs *a = g->attrs;
    const int64_t c = at % g->c, v = at / g->c % g->ow, u = at / g->c / g->ow % g->oh;
    const int64_t n = at / g->c / g->ow / g->oh;
    const int64_t row = u * a->stride[0] - a->pad[0] + i / a->window[1];
    const int64_t column = v * a->stride[1] - a->pad[1] + i % a->window[1];

    if (row < 0 || row >= g->h || column < 0 || column >= g->w)
        return -1;
    return ((n * g->h + row) * g->w + column) * g->c + c;
}

void reference_max_pool(const struct kernel_call *call)
{
    const struct kernel_problem *problem = call->problem;
    const struct windows g = windows_of(problem, &problem->in[0].shape, &problem->out[0].shape);
    const int area = problem->attrs.window[0] * problem->attrs.window[1];
    const float *x = call->in[0];
    float *y = call->out[0];
    uint8_t *index = call->out[1];

    for (int64_t at = 0; at < g.n * g.oh * g.ow * g.c; at++) {
        int place = -1;
        for (int i = 0; i < area; i++) {
            const int64_t from = element_under(&g, at, i);
            if (from >= 0 && (place < 0 || x[from] > y[at])) {
                y[at] = x[from];
                place = i;
            }
        }
        index[at] = (uint8_t)place;
    }
}

void reference_max_pool_grad(const struct kernel_call *call)
{
    const struct kernel_problem *problem = call->problem;
    const struct windows g = windows_of(problem, &problem->out[0].shape, &problem->in[0].shape);
    const float *dy = call->in[0];
    const uint8_t *index = call->in[1];
    float *dx = call->out[0];

    memset(dx, 0, (size_t)(g.n * g.h * g.w * g.c) * sizeof *dx);
    for (int64_t at = 0; at < g.n * g.oh * g.ow * g.c; at++) {
        if (index[at] != 255)
            dx[element_under(&g, at, index[at])] += dy[at];
    }
}

void reference_avg_pool(const struct kernel_call *call)
{
    const struct kernel_problem *problem = call->problem;
    const struct windows g = windows_of(problem, &problem->in[0].shape, &problem->out[0].shape);
    const int area = problem->attrs.window[0] * problem->attrs.window[1];
    const float *x = call->in[0];
    float *y = call->out[0];

    for (int64_t at = 0; at < g.n * g.oh * g.ow * g.c; at++) {
        float sum = 0; /* in float: other kernels add in the same order and get the same bits */
        for (int i = 0; i < area; i++) {
            const int64_t from = element_under(&g, at, i);
            if (from >= 0)
                sum += x[from];
        }
        y[at] = sum / (float)area;
    }
}

void reference_avg_pool_grad(const struct kernel_call *call)
{
    const struct kernel_problem *problem = call->problem;
    const struct windows g = windows_of(problem, &problem->out[0].shape, &problem->in[0].shape);
    const int area = problem->attrs.window[0] * problem->attrs.window[1];
    const float *dy = call->in[0];
    float *dx = call->out[0];

    memset(dx, 0, (size_t)(g.n * g.h * g.w * g.c) * sizeof *dx);
    for (int64_t at = 0; at < g.n * g.oh * g.ow * g.c; at++) {
        for (int i = 0; i < area; i++) {
            const int64_t to = element_under(&g, at, i);
            if (to >= 0)
                dx[to] += dy[at] / (float)area;
        }
    }
}
