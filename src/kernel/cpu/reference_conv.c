/* SPDX-License-Identifier: MIT */
/* reference_conv.c - convolution, its gradients, and convolution with max pooling.
 *
 * x lies as (N, H, W, C), y as (N, oh, ow, O), w as (kh, kw, C, O). Output pixel (u, v) sees
 * input pixel (u*stride - pad + r, v*stride - pad + s) through tap (r, s) of the window. With
 * groups, w has the C/groups input channels of one group, and output channel o sees those of
 * group o / (O/groups).
 *
 * A transposed convolution is the gradient of the input of the convolution that makes x of y.
 */
#include <math.h>

#include "kernel/cpu/reference.h"

struct conv {
    int64_t n, c, h, w, o, kh, kw, oh, ow;
    int64_t c_group, o_group; /* channels of a group */
    int stride[2], pad[2];
};

static struct conv conv_of(const struct kernel_problem *problem, const struct shape *x,
                           const struct shape *w)
{
    const struct attrs *a = &problem->attrs;
    const int64_t groups = a->groups > 1 ? a->groups : 1;

    return (struct conv){
        .n = x->dim[0],
        .c = x->dim[1],
        .h = x->dim[2],
        .w = x->dim[3],
        .o = w->dim[0],
        .c_group = w->dim[1],
        .o_group = w->dim[0] / groups,
        .kh = w->dim[2],
        .kw = w->dim[3],
        .oh = (x->dim[2] + 2 * a->pad[0] - w->dim[2]) / a->stride[0] + 1,
        .ow = (x->dim[3] + 2 * a->pad[1] - w->dim[3]) / a->stride[1] + 1,
        .stride = { a->stride[0], a->stride[1] },
        .pad = { a->pad[0], a->pad[1] },
    };
}

/* Input row and column under tap (r, s) of output pixel (u, v); false in the padding. */
static bool pixel_under(const struct conv *g, int64_t u, int64_t v, int64_t r, int64_t s,
                        int64_t *out_row, int64_t *out_column)
{
    *out_row = u * g->stride[0] - g->pad[0] + r;
    *out_column = v * g->stride[1] - g->pad[1] + s;
    return *out_row >= 0 && *out_row < g->h && *out_column >= 0 && *out_column < g->w;
}

static int64_t x_at(const struct conv *g, int64_t n, int64_t row, int64_t column, int64_t c)
{
    return ((n * g->h + row) * g->w + column) * g->c + c;
}

/* c counts within o's group. */
static int64_t w_at(const struct conv *g, int64_t r, int64_t s, int64_t c, int64_t o)
{
    return ((r * g->kw + s) * g->c_group + c) * g->o + o;
}

/* The first input channel that output channel o sees. */
static int64_t first_c(const struct conv *g, int64_t o)
{
    return o / g->o_group * g->c_group;
}

static int64_t y_at(const struct conv *g, int64_t n, int64_t u, int64_t v, int64_t o)
{
    return ((n * g->oh + u) * g->ow + v) * g->o + o;
}

/* One element of the output, bias included, before the activation. */
static double conv_element(const struct conv *g, const struct kernel_call *call, int64_t n,
                           int64_t u, int64_t v, int64_t o)
{
    const float *x = call->in[0], *w = call->in[1];
    double sum = call->problem->n_in > 2 ? (double)((const float *)call->in[2])[o] : 0.0;

    for (int64_t r = 0; r < g->kh; r++) {
        for (int64_t s = 0; s < g->kw; s++) {
            int64_t row, column;
            if (!pixel_under(g, u, v, r, s, &row, &column))
                continue;
            for (int64_t c = 0; c < g->c_group; c++)
                sum += (double)x[x_at(g, n, row, column, first_c(g, o) + c)] *
                       (double)w[w_at(g, r, s, c, o)];
        }
    }
    return sum;
}

static double activate(enum activation activation, double sum)
{
    switch (activation) {
    case ACTIVATION_RELU:
        return sum < 0 ? 0 : sum;
    case ACTIVATION_RELU6:
        return sum < 0 ? 0 : sum > 6 ? 6 : sum;
    case ACTIVATION_SIGMOID:
        return 1 / (1 + exp(-sum));
    default:
        return sum;
    }
}

void reference_conv2d(const struct kernel_call *call)
{
    const struct kernel_problem *problem = call->problem;
    const struct conv g = conv_of(problem, &problem->in[0].shape, &problem->in[1].shape);
    float *y = call->out[0];

    for (int64_t n = 0; n < g.n; n++) {
        for (int64_t u = 0; u < g.oh; u++) {
            for (int64_t v = 0; v < g.ow; v++) {
                for (int64_t o = 0; o < g.o; o++) {
                    const double sum = conv_element(&g, call, n, u, v, o);
                    y[y_at(&g, n, u, v, o)] = (float)activate(problem->attrs.activation, sum);
                }
            }
        }
    }
}

/* The gradient of the convolution's output, as it is or as a max pool left it. */
struct gradient {
    const float *dy;
    const uint8_t *index; /* NULL: not pooled */
    const int *window;
};

static double gradient_at(const struct conv *g, const struct gradient *gradient, int64_t n,
                          int64_t u, int64_t v, int64_t o)
{
    const int *window = gradient->window;

    if (gradient->index == NULL)
        return (double)gradient->dy[y_at(g, n, u, v, o)];

    const int64_t ph = g->oh / window[0], pw = g->ow / window[1];
    const int64_t row = u / window[0], column = v / window[1];
    const int64_t at = ((n * ph + row) * pw + column) * g->o + o;
    if (row >= ph || column >= pw ||
        gradient->index[at] != u % window[0] * window[1] + v % window[1])
        return 0;
    return (double)gradient->dy[at];
}

/* One element of dx: all taps (r, s) through which input pixel (row, column) was seen. */
static double grad_input_element(const struct conv *g, const struct gradient *gradient,
                                 const float *w, int64_t n, int64_t row, int64_t column,
                                 int64_t c)
{
    const int64_t first_o = c / g->c_group * g->o_group;
    double sum = 0;

    for (int64_t r = 0; r < g->kh; r++) {
        for (int64_t s = 0; s < g->kw; s++) {
            const int64_t down = row + g->pad[0] - r, right = column + g->pad[1] - s;
            const int64_t u = down / g->stride[0], v = right / g->stride[1];
            if (down < 0 || right < 0 || down % g->stride[0] != 0 ||
                right % g->stride[1] != 0 || u >= g->oh || v >= g->ow)
                continue;
            for (int64_t o = first_o; o < first_o + g->o_group; o++)
                sum += gradient_at(g, gradient, n, u, v, o) *
                       (double)w[w_at(g, r, s, c % g->c_group, o)];
        }
    }
    return sum;
}

static void grad_input(const struct conv *g, const struct gradient *gradient, const float *w,
                       float *dx)
{
    for (int64_t n = 0; n < g->n; n++) {
        for (int64_t row = 0; row < g->h; row++) {
            for (int64_t column = 0; column < g->w; column++) {
                for (int64_t c = 0; c < g->c; c++)
                    dx[x_at(g, n, row, column, c)] =
                        (float)grad_input_element(g, gradient, w, n, row, column, c);
            }
        }
    }
}

void reference_conv2d_grad_input(const struct kernel_call *call)
{
    const struct kernel_problem *problem = call->problem;
    const struct conv g = conv_of(problem, &problem->out[0].shape, &problem->in[1].shape);
    const struct gradient gradient = { .dy = call->in[0] };

    grad_input(&g, &gradient, call->in[1], call->out[0]);
}

void reference_conv2d_pool_grad_input(const struct kernel_call *call)
{
    const struct kernel_problem *problem = call->problem;
    const struct conv g = conv_of(problem, &problem->out[0].shape, &problem->in[2].shape);
    const struct gradient gradient = { call->in[0], call->in[1], problem->attrs.window };

    grad_input(&g, &gradient, call->in[2], call->out[0]);
}

/* One element of dw: all output pixels, each times the input pixel under tap (r, s). */
static double grad_weight_element(const struct conv *g, const float *x,
                                  const struct gradient *gradient, int64_t r, int64_t s,
                                  int64_t c, int64_t o)
{
    double sum = 0;

    for (int64_t n = 0; n < g->n; n++) {
        for (int64_t u = 0; u < g->oh; u++) {
            for (int64_t v = 0; v < g->ow; v++) {
                int64_t row, column;
                if (pixel_under(g, u, v, r, s, &row, &column))
                    sum += (double)x[x_at(g, n, row, column, first_c(g, o) + c)] *
                           gradient_at(g, gradient, n, u, v, o);
            }
        }
    }
    return sum;
}

static double grad_bias_element(const struct conv *g, const struct gradient *gradient,
                                int64_t o)
{
    double sum = 0;

    for (int64_t n = 0; n < g->n; n++) {
        for (int64_t u = 0; u < g->oh; u++) {
            for (int64_t v = 0; v < g->ow; v++)
                sum += gradient_at(g, gradient, n, u, v, o);
        }
    }
    return sum;
}

/* db may be NULL. */
static void grad_weight(const struct conv *g, const float *x, const struct gradient *gradient,
                        float *dw, float *db)
{
    for (int64_t r = 0; r < g->kh; r++) {
        for (int64_t s = 0; s < g->kw; s++) {
            for (int64_t c = 0; c < g->c_group; c++) {
                for (int64_t o = 0; o < g->o; o++)
                    dw[w_at(g, r, s, c, o)] =
                        (float)grad_weight_element(g, x, gradient, r, s, c, o);
            }
        }
    }
    for (int64_t o = 0; db != NULL && o < g->o; o++)
        db[o] = (float)grad_bias_element(g, gradient, o);
}

void reference_conv2d_grad_weight(const struct kernel_call *call)
{
    const struct kernel_problem *problem = call->problem;
    const struct conv g = conv_of(problem, &problem->in[0].shape, &problem->out[0].shape);
    const struct gradient gradient = { .dy = call->in[1] };

    grad_weight(&g, call->in[0], &gradient, call->out[0],
                problem->n_out > 1 ? call->out[1] : NULL);
}

void reference_conv2d_pool_grad_weight(const struct kernel_call *call)
{
    const struct kernel_problem *problem = call->problem;
    const struct conv g = conv_of(problem, &problem->in[0].shape, &problem->out[0].shape);
    const struct gradient gradient = { call->in[1], call->in[2], problem->attrs.window };

    grad_weight(&g, call->in[0], &gradient, call->out[0],
                problem->n_out > 1 ? call->out[1] : NULL);
}

void reference_conv2d_transpose(const struct kernel_call *call)
{
    const struct kernel_problem *problem = call->problem;
    const struct conv g = conv_of(problem, &problem->out[0].shape, &problem->in[1].shape);
    const struct gradient gradient = { .dy = call->in[0] };
    const float *b = problem->n_in > 2 ? call->in[2] : NULL;
    float *y = call->out[0];

    for (int64_t at = 0; at < g.n * g.h * g.w * g.c; at++) {
        const int64_t c = at % g.c, column = at / g.c % g.w, row = at / g.c / g.w % g.h;
        const int64_t n = at / g.c / g.w / g.h;
        const double sum = grad_input_element(&g, &gradient, call->in[1], n, row, column, c);
        y[at] = (float)activate(problem->attrs.activation, sum + (b ? (double)b[c] : 0));
    }
}

void reference_conv2d_transpose_grad_weight(const struct kernel_call *call)
{
    const struct kernel_problem *problem = call->problem;
    const struct conv g = conv_of(problem, &problem->in[1].shape, &problem->out[0].shape);
    const struct gradient gradient = { .dy = call->in[0] };
    const float *dy = call->in[1];
    float *db = problem->n_out > 1 ? call->out[1] : NULL;

    grad_weight(&g, dy, &gradient, call->out[0], NULL);
    for (int64_t c = 0; db != NULL && c < g.c; c++) {
        double sum = 0;
        for (int64_t pixel = 0; pixel < g.n * g.h * g.w; pixel++)
            sum += (double)dy[pixel * g.c + c];
        db[c] = (float)sum;
    }
}

/* Each output of the convolution is in one pooling window at most, so none is computed twice.
 */
void reference_conv2d_pool(const struct kernel_call *call)
{
    const struct kernel_problem *problem = call->problem;
    const struct conv g = conv_of(problem, &problem->in[0].shape, &problem->in[1].shape);
    const int *window = problem->attrs.window;
    const bool relu = problem->attrs.activation == ACTIVATION_RELU;
    const int64_t ph = g.oh / window[0], pw = g.ow / window[1];
    float *y = call->out[0];
    uint8_t *index = call->out[1];

    for (int64_t at = 0; at < g.n * ph * pw * g.o; at++) {
        const int64_t o = at % g.o, v = at / g.o % pw, u = at / g.o / pw % ph;
        const int64_t n = at / g.o / pw / ph;
        float best = 0;
        int place = -1;

        for (int i = 0; i < window[0] * window[1]; i++) {
            const int64_t row = u * window[0] + i / window[1];
            const int64_t column = v * window[1] + i % window[1];
            const float value = (float)conv_element(&g, call, n, row, column, o);
            if (place < 0 || value > best) {
                best = value;
                place = i;
            }
        }
        if (relu && best <= 0) {
            best = 0;
            place = 255;
        }
        y[at] = best;
        index[at] = (uint8_t)place;
    }
}
