/* SPDX-License-Identifier: MIT */
/* reference_batch_norm.c - batch normalization, a channel at a time. */
#include <math.h>

#include "kernel/cpu/reference.h"

/* Images as `places` rows of `channels` numbers. */
struct extents {
    int64_t images, places, channels;
};

static struct extents extents_of(const struct kernel_tensor *x)
{
    const struct shape *shape = &x->shape;

    return (struct extents){ shape->dim[0], shape_count(shape) / shape->dim[1], shape->dim[1] };
}

static float activate(enum activation activation, float x)
{
    if (activation != ACTIVATION_NONE && x < 0)
        return 0; /* NaN stays NaN */
    return activation == ACTIVATION_RELU6 && x > 6 ? 6 : x;
}

static bool lets_through(enum activation activation, float y)
{
    return activation == ACTIVATION_NONE || (y > 0 && (activation == ACTIVATION_RELU || y < 6));
}

/* y of one channel, from numbers that are the same at all its places. */
static void normalize(const struct kernel_call *call, int64_t c, double mean, double rstd,
                      const float *residual)
{
    const struct extents e = extents_of(&call->problem->in[0]);
    const float *x = call->in[0], *gamma = call->in[1], *beta = call->in[2];
    float *y = call->out[0];

    for (int64_t i = c; i < e.places * e.channels; i += e.channels) {
        const double sum = (double)gamma[c] * ((double)x[i] - mean) * rstd + (double)beta[c];
        y[i] = activate(call->problem->attrs.activation,
                        (float)(residual ? sum + (double)residual[i] : sum));
    }
}

void reference_batch_norm(const struct kernel_call *call)
{
    const struct extents e = extents_of(&call->problem->in[0]);
    const double n = (double)e.places, share = (double)e.images * (double)call->step->inv_batch;
    const float *x = call->in[0], *residual = call->problem->n_in > 3 ? call->in[3] : NULL;
    float *saved = call->out[1], *seen_mean = call->out[2], *seen_variance = call->out[3];

    for (int64_t c = 0; c < e.channels; c++) {
        double mean = 0, squares = 0;

        for (int64_t i = c; i < e.places * e.channels; i += e.channels)
            mean += (double)x[i] / n;
        for (int64_t i = c; i < e.places * e.channels; i += e.channels)
            squares += ((double)x[i] - mean) * ((double)x[i] - mean);
        const double rstd = 1 / sqrt(squares / n + (double)call->problem->attrs.epsilon);
        saved[c] = (float)mean;
        saved[e.channels + c] = (float)rstd;
        seen_mean[c] = (float)(mean * share);
        seen_variance[c] = (float)(squares / (n > 1 ? n - 1 : 1) * share);
        normalize(call, c, mean, rstd, residual);
    }
}

void reference_batch_norm_apply(const struct kernel_call *call)
{
    const struct extents e = extents_of(&call->problem->in[0]);
    const float *mean = call->in[3], *variance = call->in[4];
    const float *residual = call->problem->n_in > 5 ? call->in[5] : NULL;

    for (int64_t c = 0; c < e.channels; c++) {
        const double rstd =
            1 / sqrt((double)variance[c] + (double)call->problem->attrs.epsilon);
        normalize(call, c, (double)mean[c], rstd, residual);
    }
}

void reference_batch_norm_grad(const struct kernel_call *call)
{
    const struct extents e = extents_of(&call->problem->in[0]);
    const enum activation activation = call->problem->attrs.activation;
    const double n = (double)e.places;
    const float *dy = call->in[0], *x = call->in[1], *gamma = call->in[2], *saved = call->in[3];
    const float *y = call->problem->n_in > 4 ? call->in[4] : NULL;
    float *dx = call->out[0], *dgamma = call->out[1], *dbeta = call->out[2];
    float *dresidual = call->problem->n_out > 3 ? call->out[3] : NULL;

    for (int64_t c = 0; c < e.channels; c++) {
        const double mean = (double)saved[c], rstd = (double)saved[e.channels + c];
        double sum = 0, product = 0;

        for (int64_t i = c; i < e.places * e.channels; i += e.channels) {
            const double d = !y || lets_through(activation, y[i]) ? (double)dy[i] : 0;
            sum += d;
            product += d * ((double)x[i] - mean) * rstd;
        }
        dgamma[c] = (float)product;
        dbeta[c] = (float)sum;
        for (int64_t i = c; i < e.places * e.channels; i += e.channels) {
            const double d = !y || lets_through(activation, y[i]) ? (double)dy[i] : 0;
            const double xhat = ((double)x[i] - mean) * rstd;
            dx[i] = (float)((double)gamma[c] * rstd * (d - sum / n - xhat * product / n));
            if (dresidual)
                dresidual[i] = (float)d;
        }
    }
}
