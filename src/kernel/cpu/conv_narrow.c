/* SPDX-License-Identifier: MIT */
/* conv_narrow.c - convolutions of few channels under a 2x2 max pool, as LeNet has them.
 *
 * Stride 1. Every image is copied with its zeros into a plane with room behind (narrow.h).
 * Traffic: x twice, y and index or their gradients once. Sums of a channel go over windows in
 * order, image after image, so bits do not depend on the pool.
 */
#include <string.h>

#include "kernel/cpu/conv.h"
#include "kernel/cpu/narrow.h"

enum { FEW = 16 }; /* output channels; with more a pixel of dy is more than a cache line */

struct job {
    const struct narrow_isa *isa;
    const struct kernel_call *call;
    struct conv conv;
    struct plane plane;
    struct narrow narrow;
    int64_t plane_floats;
    float *planes, *weights;
};

static bool is_narrow(const struct conv *conv, const struct kernel_problem *problem)
{
    return conv_is_pooled(problem) && conv->sh == 1 && conv->sw == 1 &&
           conv->kw * conv->c <= NARROW_RUN && conv->o <= FEW;
}

bool conv_is_narrow(const struct conv *conv, const struct kernel_problem *problem)
{
    return is_narrow(conv, problem) && conv->c == 1 && conv->kh == 5 && conv->kw == 5;
}

bool conv_is_narrow_weight(const struct conv *conv, const struct kernel_problem *problem)
{
    return is_narrow(conv, problem) && (conv->kh == 3 || conv->kh == 5);
}

bool conv_is_narrow_input(const struct conv *conv, const struct kernel_problem *problem)
{
    return is_narrow(conv, problem) && conv->c <= 8;
}

static int64_t weight_floats(const struct conv *conv)
{
    return conv->o * conv->kh * NARROW_RUN;
}

static struct job make_job(const struct conv *conv, const struct kernel_call *call)
{
    struct job job = { .conv = *conv, .call = call };

    job.isa = tile_current() == &tile_avx512 ? &narrow_avx512 : &narrow_avx2;
    job.plane = plane_of(NULL, conv->h, conv->w, conv->c, conv->ph, conv->pw,
                         conv->h + 2 * conv->ph, conv->w + 2 * conv->pw, 1, 1);
    job.plane.is_direct = false;
    job.plane_floats =
        gemm_ceil(job.plane.rows * plane_row(&job.plane) + 2 * NARROW_RUN, 16) * 16;
    job.narrow = (struct narrow){
        .row = plane_row(&job.plane),
        .rows = conv->oh / 2,
        .columns = conv->ow / 2,
        .in = (int)conv->c,
        .out = (int)conv->o,
        .kh = (int)conv->kh,
        .kw = (int)conv->kw,
    };
    if (call != NULL) {
        job.plane.x = call->in[0];
        job.weights = call->scratch;
        job.planes = job.weights + weight_floats(conv);
    }
    return job;
}

size_t conv_narrow_scratch(const struct conv *conv)
{
    const struct job job = make_job(conv, NULL);

    return (size_t)(weight_floats(conv) + conv->n * job.plane_floats) * sizeof(float);
}

/* The plane of an image, with zeros behind it, which are read but do not count. */
static float *copy_plane(const struct job *job, int64_t image)
{
    float *plane = job->planes + image * job->plane_floats;
    const int64_t floats = job->plane.rows * job->narrow.row;

    (void)plane_copy(&job->plane, image, 0, job->plane.rows, plane);
    memset(plane + floats, 0, (size_t)(job->plane_floats - floats) * sizeof(float));
    return plane;
}

static int64_t image_floats(const struct job *job)
{
    return job->narrow.rows * job->narrow.columns * job->conv.o;
}

static void pool_image(void *arg, size_t image)
{
    const struct job *job = arg;
    const struct kernel_call *call = job->call;
    const int64_t at = (int64_t)image * image_floats(job);

    job->isa->pool(&job->narrow, copy_plane(job, (int64_t)image), call->in[1],
                   call->problem->n_in > 2 ? call->in[2] : NULL,
                   call->problem->attrs.activation == ACTIVATION_RELU,
                   (float *)call->out[0] + at, (uint8_t *)call->out[1] + at);
}

void conv_narrow_run(const struct conv *conv, const struct kernel_call *call)
{
    struct job job = make_job(conv, call);

    pool_for(call->pool, (size_t)conv->n, pool_image, &job);
}

static void copy_image(void *arg, size_t image)
{
    (void)copy_plane(arg, (int64_t)image);
}

/* One channel over all images. */
static void weigh_channel(void *arg, size_t o)
{
    const struct job *job = arg;
    const struct kernel_call *call = job->call;
    const struct conv *conv = &job->conv;
    float *sums = job->weights + (int64_t)o * conv->kh * NARROW_RUN, sum = 0;
    float *dw = (float *)call->out[0] + o;
    const int64_t run = conv->kw * conv->c;

    memset(sums, 0, (size_t)(conv->kh * NARROW_RUN) * sizeof(float));
    for (int64_t image = 0; image < conv->n; image++) {
        const int64_t at = image * image_floats(job);
        job->isa->weight(&job->narrow, job->planes + image * job->plane_floats,
                         (const float *)call->in[1] + at, (const uint8_t *)call->in[2] + at,
                         (int)o, sums, &sum);
    }
    for (int64_t i = 0; i < conv->kh * run; i++)
        dw[i * conv->o] = sums[i / run * NARROW_RUN + i % run];
    if (call->problem->n_out > 1)
        ((float *)call->out[1])[o] = sum;
}

void conv_narrow_weight_run(const struct conv *conv, const struct kernel_call *call)
{
    struct job job = make_job(conv, call);

    pool_for(call->pool, (size_t)conv->n, copy_image, &job);
    pool_for(call->pool, (size_t)conv->o, weigh_channel, &job);
}

/* dx of one image, from a plane with room for what falls outside. */
static void spread_image(void *arg, size_t image)
{
    const struct job *job = arg;
    const struct kernel_call *call = job->call;
    const struct conv *conv = &job->conv;
    const int64_t at = (int64_t)image * image_floats(job), row = conv->w * conv->c;
    float *plane = job->planes + (int64_t)image * job->plane_floats;
    float *dx = (float *)call->out[0] + (int64_t)image * conv->h * row;

    memset(plane, 0, (size_t)job->plane_floats * sizeof(float));
    job->isa->input(&job->narrow, (const float *)call->in[0] + at,
                    (const uint8_t *)call->in[1] + at, job->weights, plane);
    for (int64_t y = 0; y < conv->h; y++)
        memcpy(dx + y * row, plane + (y + conv->ph) * job->narrow.row + conv->pw * conv->c,
               (size_t)row * sizeof(float));
}

void conv_narrow_input_run(const struct conv *conv, const struct kernel_call *call)
{
    struct job job = make_job(conv, call);
    const float *w = call->in[2];
    const int64_t run = conv->kw * conv->c;

    memset(job.weights, 0, (size_t)weight_floats(conv) * sizeof(float));
    for (int64_t i = 0; i < conv->kh * run; i++) {
        for (int64_t o = 0; o < conv->o; o++)
            job.weights[(o * conv->kh + i / run) * NARROW_RUN + i % run] = w[i * conv->o + o];
    }
    pool_for(call->pool, (size_t)conv->n, spread_image, &job);
}
