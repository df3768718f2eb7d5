/* SPDX-License-Identifier: MIT */
/* conv_stem.c - conv2d_pool and its gradient of the weights for images of one channel.
 *
 * 3x3 kernel, stride 1, 2x2 windows. Traffic: x twice (it is copied with its zeros), y and
 * index or their gradients once; sums of an image are added to dw in the order of images.
 */
#include <string.h>

#include "kernel/cpu/conv.h"
#include "kernel/cpu/stem.h"

struct job {
    const struct stem_isa *isa;
    const struct kernel_call *call;
    struct conv conv;
    struct plane plane;
    struct stem stem;
    float *planes;
    int64_t plane_floats;
};

bool conv_is_stem(const struct conv *conv, const struct kernel_problem *problem)
{
    return conv_is_pooled(problem) && conv->c == 1 && conv->kh == 3 && conv->kw == 3 &&
           conv->sh == 1 && conv->sw == 1;
}

static struct job make_job(const struct conv *conv, const struct kernel_call *call)
{
    struct job job = { .conv = *conv, .call = call };

    job.isa = tile_current() == &tile_avx512 ? &stem_avx512 : &stem_avx2;
    job.plane = plane_of(NULL, conv->h, conv->w, 1, conv->ph, conv->pw, conv->oh + 2,
                         conv->ow + 2, 1, 1);
    job.plane_floats = job.plane.is_direct ? 0 : job.plane.rows * plane_row(&job.plane);
    job.stem = (struct stem){
        .row = plane_row(&job.plane),
        .rows = conv->oh / 2,
        .columns = conv->ow / 2,
        .channels = (int)conv->o,
    };
    if (call != NULL) {
        job.plane.x = call->in[0];
        job.planes = call->scratch;
    }
    return job;
}

size_t conv_stem_scratch(const struct conv *conv)
{
    const struct job job = make_job(conv, NULL);

    return (size_t)(conv->n * job.plane_floats) * sizeof(float);
}

/* The stem of one image; its plane is copied if `copy`, else has been. */
static struct stem stem_at(const struct job *job, int64_t image, bool copy)
{
    struct stem stem = job->stem;
    float *own = job->plane.is_direct ? NULL : job->planes + image * job->plane_floats;

    stem.plane = copy || job->plane.is_direct
                     ? plane_copy(&job->plane, image, 0, job->plane.rows, own)
                     : own;
    return stem;
}

static int64_t image_floats(const struct job *job)
{
    return job->stem.rows * job->stem.columns * job->conv.o;
}

static int width_at(const struct job *job, int64_t first)
{
    return (int)(job->conv.o - first < job->isa->width ? job->conv.o - first : job->isa->width);
}

static void pool_image(void *arg, size_t image)
{
    const struct job *job = arg;
    const struct kernel_call *call = job->call;
    const struct stem stem = stem_at(job, (int64_t)image, true);
    const int64_t at = (int64_t)image * image_floats(job);

    for (int first = 0; first < (int)job->conv.o; first += job->isa->width)
        job->isa->pool(&stem, first, width_at(job, first), call->in[1],
                       call->problem->n_in > 2 ? call->in[2] : NULL,
                       call->problem->attrs.activation == ACTIVATION_RELU,
                       (float *)call->out[0] + at, (uint8_t *)call->out[1] + at);
}

void conv_stem_run(const struct conv *conv, const struct kernel_call *call)
{
    struct job job = make_job(conv, call);

    pool_for(call->pool, (size_t)conv->n, pool_image, &job);
}

static void copy_image(void *arg, size_t image)
{
    (void)stem_at(arg, (int64_t)image, true);
}

/* Some channels over all images. */
static void weigh_channels(void *arg, size_t part)
{
    const struct job *job = arg;
    const struct kernel_call *call = job->call;
    const int first = (int)part * job->isa->width;
    float *dw = call->out[0], *db = call->problem->n_out > 1 ? call->out[1] : NULL;

    for (int64_t image = 0; image < job->conv.n; image++) {
        const struct stem stem = stem_at(job, image, false);
        const int64_t at = image * image_floats(job);
        job->isa->weight(&stem, first, width_at(job, first), (const float *)call->in[1] + at,
                         (const uint8_t *)call->in[2] + at, dw, db);
    }
}

void conv_stem_weight_run(const struct conv *conv, const struct kernel_call *call)
{
    struct job job = make_job(conv, call);

    memset(call->out[0], 0, (size_t)(9 * conv->o) * sizeof(float));
    if (call->problem->n_out > 1)
        memset(call->out[1], 0, (size_t)conv->o * sizeof(float));
    if (!job.plane.is_direct)
        pool_for(call->pool, (size_t)conv->n, copy_image, &job);
    pool_for(call->pool, (size_t)gemm_ceil(conv->o, job.isa->width), weigh_channels, &job);
}
