/* SPDX-License-Identifier: MIT */
/* reference_batch_norm.c - batch normalization, a channel at a time. */
#include <math.h>

#include "kernel/cpu/reference.h"

/* Images as `places` rows of `channels` numbers. */
struct counts {
    int64_t images, places, channels;
};

static struct counts extents_of(const struct kernel_tensor *x)
{
    const struct shape *shape = &x->shape;

    return (struct counts){ shape->dim[0], shape_count(shape) / shape->dim[1], shape->dim[1] };
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
    const struct counts e = extents_of(&call->problem->in[0]);
    const float *x = call->in[0], *gamma = call->in[1], *beta = call->in[2];
    float *y = call->out[0];

    for (int64_t i = c; i < e.places * e.channels; i += e.channels) {
        const double sum = (double)gamma[c] * ((double)x[i] - mean) * rstd + (double)beta[c];
        y[i] = activate(call->problem->attrs.activation,
                        (float)(residual ? sum + (double)residual[i] : sum));
    }
}

struct moments {
    double n, mean, squares; /* squares around the mean */
};

/* Moments of one channel. */
static struct moments moments_of(const struct kernel_call *call, int64_t c)
{
    const struct counts e = extents_of(&call->problem->in[0]);
    const float *x = call->in[0];
    struct moments m = { .n = (double)e.places };

    for (int64_t i = c; i < e.places * e.channels; i += e.channels)
        m.mean += (double)x[i] / m.n;
    for (int64_t i = c; i < e.places * e.channels; i += e.channels)
        m.squares += ((double)x[i] - m.mean) * ((double)x[i] - m.mean);
    return m;
}

/* Fills what a channel has of saved, seen_mean and seen_variance, which begin at output `first`.
 * Gives rstd. */
static double give_moments(const struct kernel_call *call, int first, int64_t channels,
                           int64_t c, struct moments m, double share)
{
    float *saved = call->out[first], *seen_mean = call->out[first + 1];
    float *seen_variance = call->out[first + 2];
    const double rstd = 1 / sqrt(m.squares / m.n + (double)call->problem->attrs.epsilon);

    saved[c] = (float)m.mean;
    saved[channels + c] = (float)rstd;
    seen_mean[c] = (float)(m.mean * share);
    seen_variance[c] = (float)(m.squares / (m.n > 1 ? m.n - 1 : 1) * share);
    return rstd;
}

void reference_batch_norm(const struct kernel_call *call)
{
    const struct counts e = extents_of(&call->problem->in[0]);
    const double share = (double)e.images * (double)call->step->inv_batch;
    const float *residual = call->problem->n_in > 3 ? call->in[3] : NULL;

    for (int64_t c = 0; c < e.channels; c++) {
        const struct moments m = moments_of(call, c);
        const double rstd = give_moments(call, 1, e.channels, c, m, share);
        normalize(call, c, m.mean, rstd, residual);
    }
}

void reference_batch_norm_apply(const struct kernel_call *call)
{
    const struct counts e = extents_of(&call->problem->in[0]);
    const float *mean = call->in[3], *variance = call->in[4];
    const float *residual = call->problem->n_in > 5 ? call->in[5] : NULL;

    for (int64_t c = 0; c < e.channels; c++) {
        const double rstd =
            1 / sqrt((double)variance[c] + (double)call->problem->attrs.epsilon);
        normalize(call, c, (double)mean[c], rstd, residual);
    }
}

/* Gradient ----------------------------------------------------------------------------- */

/* What a gradient is made of; more, y or beta, and dresidual may be NULL. */
struct slopes {
    const float *dy, *more, *x, *y, *saved;
    const float *gamma, *beta; /* from which y is made again */
    float *dresidual;
};

/* Sums over one channel's places: of d, dy through the activation, and of d times normalized x. */
struct sums {
    double sum, product;
};

static double through(const struct kernel_call *call, const struct slopes *s,
                      const struct counts *e, int64_t c, int64_t i)
{
    const enum activation activation = call->problem->attrs.activation;
    const double d = s->more ? s->dy[i] + s->more[i] : s->dy[i]; /* in f32, as by add */

    if (s->y)
        return lets_through(activation, s->y[i]) ? d : 0;
    if (s->beta) { /* in the arithmetic of devices, so that all agree on what is above zero */
        const float scale = s->saved[e->channels + c] * s->gamma[c];
        const float sum = fmaf(s->x[i] - s->saved[c], scale, s->beta[c]);
        return lets_through(activation, sum) ? d : 0;
    }
    return d;
}

static double normalized(const struct slopes *s, const struct counts *e, int64_t c, int64_t i)
{
    return ((double)s->x[i] - (double)s->saved[c]) * (double)s->saved[e->channels + c];
}

static struct sums sums_of(const struct kernel_call *call, const struct slopes *s, int64_t c)
{
    const struct counts e = extents_of(&call->problem->in[0]);
    struct sums sums = { 0, 0 };

    for (int64_t i = c; i < e.places * e.channels; i += e.channels) {
        const double d = through(call, s, &e, c, i);
        sums.sum += d;
        sums.product += d * normalized(s, &e, c, i);
        if (s->dresidual)
            s->dresidual[i] = (float)d;
    }
    return sums;
}

/* dx of one channel, from the sums over n places. */
static void spread(const struct kernel_call *call, const struct slopes *s, int64_t c,
                   struct sums sums, double n, float gamma)
{
    const struct counts e = extents_of(&call->problem->in[0]);
    const double scale = (double)gamma * (double)s->saved[e.channels + c];
    float *dx = call->out[0];

    for (int64_t i = c; i < e.places * e.channels; i += e.channels)
        dx[i] = (float)(scale * (through(call, s, &e, c, i) - sums.sum / n -
                                 normalized(s, &e, c, i) * sums.product / n));
}

void reference_batch_norm_grad(const struct kernel_call *call)
{
    const struct kernel_problem *p = call->problem;
    const struct counts e = extents_of(&p->in[0]);
    const bool by_beta = p->n_in > 4 && p->in[4].shape.rank == 1;
    const float *gamma = call->in[2];
    const struct slopes slopes = {
        .dy = call->in[0],
        .more = p->n_in > 5 ? call->in[5] : NULL,
        .x = call->in[1],
        .saved = call->in[3],
        .y = p->n_in > 4 && !by_beta ? call->in[4] : NULL,
        .gamma = gamma,
        .beta = by_beta ? call->in[4] : NULL,
        .dresidual = p->n_out > 3 ? call->out[3] : NULL,
    };
    float *dgamma = call->out[1], *dbeta = call->out[2];

    for (int64_t c = 0; c < e.channels; c++) {
        const struct sums sums = sums_of(call, &slopes, c);
        dgamma[c] = (float)sums.product;
        dbeta[c] = (float)sums.sum;
        spread(call, &slopes, c, sums, (double)e.places, gamma[c]);
    }
}

/* In parts, for statistics of all shards ----------------------------------------------- */

void reference_batch_norm_stats(const struct kernel_call *call)
{
    const struct counts e = extents_of(&call->problem->in[0]);
    float *stats = call->out[0];

    for (int64_t c = 0; c < e.channels; c++) {
        const struct moments m = moments_of(call, c);
        stats[c] = (float)m.mean;
        stats[e.channels + c] = (float)m.squares;
        stats[2 * e.channels + c] = (float)m.n;
    }
}

/* Moments of both (Chan, Golub and LeVeque 1983). */
static struct moments join(struct moments a, struct moments b)
{
    const double n = a.n + b.n, delta = b.mean - a.mean;

    if (b.n == 0)
        return a;
    return (struct moments){ n, a.mean + delta * b.n / n,
                             a.squares + b.squares + delta * delta * a.n * b.n / n };
}

/* Moments of one channel of shards [begin, begin + length), length a power of two; there are V. */
static struct moments join_shards(const struct kernel_call *call, int64_t c, int64_t begin,
                                  int64_t length)
{
    const struct shape *all = &call->problem->in[0].shape;
    const int64_t channels = all->dim[2];
    const float *stats = (const float *)call->in[0] + begin * 3 * channels + c;

    if (begin >= all->dim[0])
        return (struct moments){ 0, 0, 0 };
    if (length == 1)
        return (struct moments){ (double)stats[2 * channels], (double)stats[0],
                                 (double)stats[channels] };
    return join(join_shards(call, c, begin, length / 2),
                join_shards(call, c, begin + length / 2, length / 2));
}

void reference_batch_norm_join(const struct kernel_call *call)
{
    const struct shape *all = &call->problem->in[0].shape;
    const int64_t channels = all->dim[2];
    const float *own = call->in[1];
    int64_t length = 1;

    while (length < all->dim[0])
        length *= 2;
    for (int64_t c = 0; c < channels; c++) {
        const struct moments m = join_shards(call, c, 0, length);
        (void)give_moments(call, 0, channels, c, m, (double)own[2 * channels + c] / m.n);
    }
}

void reference_batch_norm_normalize(const struct kernel_call *call)
{
    const struct counts e = extents_of(&call->problem->in[0]);
    const float *saved = call->in[3];

    for (int64_t c = 0; c < e.channels; c++)
        normalize(call, c, (double)saved[c], (double)saved[e.channels + c],
                  call->problem->n_in > 4 ? call->in[4] : NULL);
}

void reference_batch_norm_grad_sums(const struct kernel_call *call)
{
    const struct counts e = extents_of(&call->problem->in[0]);
    const struct slopes slopes = {
        .dy = call->in[0],
        .x = call->in[1],
        .saved = call->in[2],
        .y = call->problem->n_in > 3 ? call->in[3] : NULL,
        .dresidual = call->problem->n_out > 3 ? call->out[3] : NULL,
    };
    float *dgamma = call->out[0], *dbeta = call->out[1], *out = call->out[2];

    for (int64_t c = 0; c < e.channels; c++) {
        const struct sums sums = sums_of(call, &slopes, c);
        out[c] = dgamma[c] = (float)sums.product;
        out[e.channels + c] = dbeta[c] = (float)sums.sum;
        out[2 * e.channels + c] = (float)e.places;
    }
}

void reference_batch_norm_grad_spread(const struct kernel_call *call)
{
    const struct counts e = extents_of(&call->problem->in[0]);
    const struct slopes slopes = {
        .dy = call->in[0],
        .x = call->in[1],
        .saved = call->in[3],
        .y = call->problem->n_in > 5 ? call->in[5] : NULL,
    };
    const int64_t shards = call->problem->in[4].shape.dim[0];
    const float *gamma = call->in[2], *all = call->in[4];

    for (int64_t c = 0; c < e.channels; c++) {
        struct sums sums = { 0, 0 };
        double n = 0;
        for (int64_t v = 0; v < shards; v++) {
            const float *of_shard = all + v * 3 * e.channels + c;
            sums.product += (double)of_shard[0];
            sums.sum += (double)of_shard[e.channels];
            n += (double)of_shard[2 * e.channels];
        }
        spread(call, &slopes, c, sums, n, gamma[c]);
    }
}
