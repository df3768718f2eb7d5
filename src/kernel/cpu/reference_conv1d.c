/* SPDX-License-Identifier: MIT */
/* reference_conv1d.c - convolution along sequences, the maximum over time, and gradients.
 *
 * x (N,T,C), w (O,C,k) which lies (k,C,O). A window that reaches past the end of a short sequence
 * meets zeros there.
 */
#include <math.h>
#include <string.h>

#include "kernel/cpu/reference.h"

struct conv {
    int64_t n, t, c, o, k, places;
};

static struct conv conv_of(const struct shape *x, const struct shape *w)
{
    const int64_t t = x->dim[1], k = w->dim[2];

    return (struct conv){ x->dim[0], t, x->dim[2], w->dim[0], k, t < k ? 1 : t - k + 1 };
}

/* The taps of a window, some of which may lie past the end. */
static int64_t taps_of(const struct conv *v)
{
    return v->k < v->t ? v->k : v->t;
}

static double window_sum(const struct conv *v, const float *x, const float *w, int64_t o)
{
    double sum = 0;

    for (int64_t i = 0; i < taps_of(v) * v->c; i++)
        sum += (double)x[i] * (double)w[i * v->o + o];
    return sum;
}

void reference_conv1d(const struct kernel_call *call)
{
    const struct kernel_problem *p = call->problem;
    const struct conv v = conv_of(&p->in[0].shape, &p->in[1].shape);
    const float *bias = p->n_in > 2 ? call->in[2] : NULL;
    float *y = call->out[0];

    for (int64_t n = 0; n < v.n; n++) {
        for (int64_t t = 0; t < v.places; t++) {
            const float *x = (const float *)call->in[0] + (n * v.t + t) * v.c;
            for (int64_t o = 0; o < v.o; o++, y++) {
                *y = (float)(window_sum(&v, x, call->in[1], o) +
                             (bias != NULL ? (double)bias[o] : 0));
                if (p->attrs.activation == ACTIVATION_RELU && *y < 0)
                    *y = 0;
            }
        }
    }
}

/* Adds dy times the filter to a window of dx. */
static void send_back(const struct conv *v, const float *w, int64_t o, float dy, float *dx)
{
    for (int64_t i = 0; i < taps_of(v) * v->c; i++)
        dx[i] += dy * w[i * v->o + o];
}

/* Adds dy times a window of x to the filter's gradient. */
static void take_in(const struct conv *v, const float *x, int64_t o, float dy, float *dw)
{
    for (int64_t i = 0; i < taps_of(v) * v->c; i++)
        dw[i * v->o + o] += dy * x[i];
}

void reference_conv1d_grad_input(const struct kernel_call *call)
{
    const struct kernel_problem *p = call->problem;
    const struct conv v = conv_of(&p->out[0].shape, &p->in[1].shape);
    const float *dy = call->in[0];
    float *dx = call->out[0];

    memset(dx, 0, (size_t)(v.n * v.t * v.c) * sizeof *dx);
    for (int64_t n = 0; n < v.n; n++) {
        for (int64_t t = 0; t < v.places; t++) {
            for (int64_t o = 0; o < v.o; o++)
                send_back(&v, call->in[1], o, *dy++, dx + (n * v.t + t) * v.c);
        }
    }
}

void reference_conv1d_grad_weight(const struct kernel_call *call)
{
    const struct kernel_problem *p = call->problem;
    const struct conv v = conv_of(&p->in[0].shape, &p->out[0].shape);
    const float *x = call->in[0], *dy = call->in[1];
    float *dw = call->out[0], *db = p->n_out > 1 ? call->out[1] : NULL;

    memset(dw, 0, (size_t)(v.k * v.c * v.o) * sizeof *dw);
    if (db != NULL)
        memset(db, 0, (size_t)v.o * sizeof *db);
    for (int64_t n = 0; n < v.n; n++) {
        for (int64_t t = 0; t < v.places; t++) {
            for (int64_t o = 0; o < v.o; o++, dy++) {
                take_in(&v, x + (n * v.t + t) * v.c, o, *dy, dw);
                if (db != NULL)
                    db[o] += *dy;
            }
        }
    }
}

/* The first largest of the numbers, in double as the sums are; -1 if none is a number. */
void reference_conv1d_max(const struct kernel_call *call)
{
    const struct kernel_problem *p = call->problem;
    const struct conv v = conv_of(&p->in[0].shape, &p->in[1].shape);
    const float *bias = p->n_in > 2 ? call->in[2] : NULL;
    float *y = call->out[0];
    int32_t *index = call->out[1];

    for (int64_t n = 0; n < v.n; n++) {
        const float *x = (const float *)call->in[0] + n * v.t * v.c;
        for (int64_t o = 0; o < v.o; o++, y++, index++) {
            double largest = -INFINITY;

            *index = -1;
            for (int64_t t = 0; t < v.places; t++) {
                const double sum = window_sum(&v, x + t * v.c, call->in[1], o);
                if (sum > largest) {
                    largest = sum;
                    *index = (int32_t)t;
                }
            }
            *y = *index < 0 ? NAN : (float)(largest + (bias != NULL ? (double)bias[o] : 0));
            if (p->attrs.activation == ACTIVATION_RELU && !(*y > 0)) {
                *y = *y <= 0 ? 0 : *y;
                *index = -1;
            }
        }
    }
}

void reference_conv1d_max_grad_input(const struct kernel_call *call)
{
    const struct kernel_problem *p = call->problem;
    const struct conv v = conv_of(&p->out[0].shape, &p->in[2].shape);
    const size_t bytes = (size_t)(v.n * v.t * v.c) * sizeof(float);
    const float *dy = call->in[0];
    const int32_t *index = call->in[1];
    float *dx = call->out[0];

    if (p->n_in == 4)
        memset(dx, 0, bytes);
    else if (call->in[4] != call->out[0])
        memcpy(dx, call->in[4], bytes);
    for (int64_t n = 0; n < v.n; n++) {
        for (int64_t o = 0; o < v.o; o++, dy++, index++) {
            if (*index >= 0)
                send_back(&v, call->in[2], o, *dy, dx + (n * v.t + *index) * v.c);
        }
    }
}

void reference_conv1d_max_grad_weight(const struct kernel_call *call)
{
    const struct kernel_problem *p = call->problem;
    const struct conv v = conv_of(&p->in[0].shape, &p->out[0].shape);
    const float *x = call->in[0], *dy = call->in[1];
    const int32_t *index = call->in[2];
    float *dw = call->out[0], *db = p->n_out > 1 ? call->out[1] : NULL;

    memset(dw, 0, (size_t)(v.k * v.c * v.o) * sizeof *dw);
    if (db != NULL)
        memset(db, 0, (size_t)v.o * sizeof *db);
    for (int64_t n = 0; n < v.n; n++) {
        for (int64_t o = 0; o < v.o; o++, dy++, index++) {
            if (*index < 0)
                continue;
            take_in(&v, x + (n * v.t + *index) * v.c, o, *dy, dw);
            if (db != NULL)
                db[o] += *dy;
        }
    }
}

void reference_max_over_time(const struct kernel_call *call)
{
    const int64_t *dim = call->problem->in[0].shape.dim;
    float *y = call->out[0];
    int32_t *index = call->out[1];

    for (int64_t n = 0; n < dim[0]; n++) {
        const float *x = (const float *)call->in[0] + n * dim[1] * dim[2];
        for (int64_t c = 0; c < dim[2]; c++, y++, index++) {
            *y = x[c];
            *index = 0;
            for (int64_t t = 1; t < dim[1]; t++) {
                if (x[t * dim[2] + c] > *y) {
                    *y = x[t * dim[2] + c];
                    *index = (int32_t)t;
                }
            }
        }
    }
}

void reference_max_over_time_grad(const struct kernel_call *call)
{
    const int64_t *dim = call->problem->out[0].shape.dim;
    const float *dy = call->in[0];
    const int32_t *index = call->in[1];
    float *dx = call->out[0];

    memset(dx, 0, (size_t)(dim[0] * dim[1] * dim[2]) * sizeof *dx);
    for (int64_t n = 0; n < dim[0]; n++) {
        for (int64_t c = 0; c < dim[2]; c++, dy++, index++)
            dx[(n * dim[1] + *index) * dim[2] + c] = *dy;
    }
}

/* Rows side by side, and some columns of them. */
void reference_concat(const struct kernel_call *call)
{
    const struct kernel_problem *p = call->problem;
    float *y = call->out[0];

    for (int64_t row = 0; row < p->out[0].shape.dim[0]; row++) {
        for (int i = 0; i < p->n_in; i++) {
            const int64_t columns = p->in[i].shape.dim[1];
            const float *x = (const float *)call->in[i] + row * columns;
            for (int64_t j = 0; j < columns; j++)
                *y++ = x[j];
        }
    }
}

void reference_columns(const struct kernel_call *call)
{
    const struct kernel_problem *p = call->problem;
    const float *x = call->in[0];
    float *y = call->out[0];

    for (int64_t row = 0; row < p->out[0].shape.dim[0]; row++) {
        for (int64_t j = 0; j < p->out[0].shape.dim[1]; j++)
            *y++ = x[row * p->in[0].shape.dim[1] + p->attrs.extent[0] + j];
    }
}
