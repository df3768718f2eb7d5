/* SPDX-License-Identifier: MIT */
/* conv_grey.c - conv2d and its gradients for 3x3 windows over one channel: see grey.h.
 *
 * Images are cut into at most PARTS parts, the same whatever the pool: each has a plane, or
 * sums that are added in order. For the gradient of the input z of some images is made at once.
 */
#include <math.h>
#include <string.h>

#include "kernel/cpu/conv.h"
#include "kernel/cpu/grey.h"
#include "kernel/cpu/processor.h"
#include "kernel/cpu/rows.h"

enum { PARTS = 16, SIDE = 3, TAPS = 9, GROUP_PLACES = 512 };

static const struct grey_isa *current(void)
{
    return processor_current() >= PROCESSOR_AVX512 ? &grey_avx512 : &grey_avx2;
}

struct job {
    const struct grey_isa *isa;
    struct grey g;
    int64_t parts;
    const float *x, *w, *bias, *dy;
    float *y;
    bool is_biased;
    int64_t group;                          /* images whose z is made at once */
    struct gemm gemm;                       /* of a group */
    int64_t plane_floats, sums_floats, own; /* scratch of a part, `own` in all */
    size_t gemm_bytes;
    float *scratch;
};

static int64_t round_up(int64_t n)
{
    return gemm_ceil(n, 16) * 16;
}

/* z = W dy^T: a row for each tap. */
static struct gemm gemm_of(const struct grey *g, int64_t images)
{
    const int64_t places = images * g->oh * g->ow;

    return (struct gemm){ .m = TAPS,
                          .n = places,
                          .k = g->o,
                          .a_row = g->o,
                          .a_column = 1,
                          .b_row = 1,
                          .b_column = g->o,
                          .c_row = places };
}

static struct job job_of(const struct kernel_problem *problem, const struct shape *x,
                         const struct shape *w)
{
    const struct conv conv = conv_of(problem, x, w);
    const enum activation activation = problem->attrs.activation;
    struct job job = { .isa = current() };

    job.g = (struct grey){ .n = conv.n,
                           .h = conv.h,
                           .w = conv.w,
                           .o = conv.o,
                           .oh = conv.oh,
                           .ow = conv.ow,
                           .sh = conv.sh,
                           .sw = conv.sw,
                           .ph = conv.ph,
                           .pw = conv.pw,
                           .plane_h = conv.h + 2 * conv.ph,
                           .plane_w = conv.w + 2 * conv.pw,
                           .low = activation == ACTIVATION_NONE ? -INFINITY : 0.0F,
                           .high = activation == ACTIVATION_RELU6 ? 6.0F : INFINITY };
    job.parts = conv.n < PARTS ? conv.n : PARTS;
    job.plane_floats = round_up(job.g.plane_h * job.g.plane_w);
    return job;
}

static bool has_one_channel(const struct kernel_problem *problem, const struct shape *x,
                            const struct shape *w)
{
    for (int i = 0; i < problem->n_in; i++) {
        if (problem->in[i].dtype != DTYPE_F32)
            return false;
    }
    return tile_current() != NULL && problem->attrs.groups <= 1 && x->dim[1] == 1 &&
           w->dim[2] == SIDE && w->dim[3] == SIDE &&
           problem->attrs.activation <= ACTIVATION_RELU6;
}

static float *part_scratch(const struct job *job, size_t part)
{
    return job->scratch + (int64_t)part * job->own;
}

/* Forward ---------------------------------------------------------------------------------- */

static struct job forward_job(const struct kernel_problem *problem)
{
    struct job job = job_of(problem, &problem->in[0].shape, &problem->in[1].shape);

    job.own = job.plane_floats;
    return job;
}

static bool can_run_forward(const struct kernel_problem *problem)
{
    return has_one_channel(problem, &problem->in[0].shape, &problem->in[1].shape);
}

static size_t forward_scratch(const struct kernel_problem *problem)
{
    const struct job job = forward_job(problem);

    return (size_t)(job.parts * job.own) * sizeof(float);
}

static void forward_part(void *arg, size_t part)
{
    const struct job *job = arg;
    const struct grey *g = &job->g;
    float *plane = part_scratch(job, part);
    int64_t first;
    const int64_t count = gemm_part(g->n, job->parts, (int64_t)part, &first);

    memset(plane, 0, (size_t)job->plane_floats * sizeof(float));
    for (int64_t i = first; i < first + count; i++) {
        job->isa->copy(g, job->x + i * g->h * g->w, plane);
        job->isa->forward(g, plane, job->w, job->bias, job->y + i * g->oh * g->ow * g->o);
    }
}

static void forward_run(const struct kernel_call *call)
{
    struct job job = forward_job(call->problem);

    job.x = call->in[0];
    job.w = call->in[1];
    job.bias = call->problem->n_in > 2 ? call->in[2] : NULL;
    job.y = call->out[0];
    job.scratch = call->scratch;
    pool_for(call->pool, (size_t)job.parts, forward_part, &job);
}

/* Gradient of the weights ------------------------------------------------------------------ */

static struct job weight_job(const struct kernel_problem *problem)
{
    struct job job = job_of(problem, &problem->in[0].shape, &problem->out[0].shape);

    job.sums_floats = round_up((TAPS + 1) * job.g.o);
    job.own = job.plane_floats + job.sums_floats;
    return job;
}

static bool can_run_weight(const struct kernel_problem *problem)
{
    return has_one_channel(problem, &problem->in[0].shape, &problem->out[0].shape);
}

static size_t weight_scratch(const struct kernel_problem *problem)
{
    const struct job job = weight_job(problem);

    return (size_t)(job.parts * job.own) * sizeof(float);
}

static void weight_part(void *arg, size_t part)
{
    const struct job *job = arg;
    const struct grey *g = &job->g;
    float *sums = part_scratch(job, part), *plane = sums + job->sums_floats;
    int64_t first;
    const int64_t count = gemm_part(g->n, job->parts, (int64_t)part, &first);

    memset(sums, 0, (size_t)job->own * sizeof(float));
    for (int64_t i = first; i < first + count; i++) {
        job->isa->copy(g, job->x + i * g->h * g->w, plane);
        job->isa->weight(g, plane, job->dy + i * g->oh * g->ow * g->o, job->is_biased, sums);
    }
}

static void weight_run(const struct kernel_call *call)
{
    struct job job = weight_job(call->problem);
    const struct tile_isa *tile = tile_current();

    job.x = call->in[0];
    job.dy = call->in[1];
    job.is_biased = call->problem->n_out > 1;
    job.scratch = call->scratch;
    pool_for(call->pool, (size_t)job.parts, weight_part, &job);
    tile->column_sums(job.scratch, job.own, job.parts, (int)(TAPS * job.g.o), false,
                      call->out[0]);
    if (job.is_biased)
        tile->column_sums(job.scratch + TAPS * job.g.o, job.own, job.parts, (int)job.g.o, false,
                          call->out[1]);
}

/* Gradient of the input -------------------------------------------------------------------- */

static struct job input_job(const struct kernel_problem *problem)
{
    struct job job = job_of(problem, &problem->out[0].shape, &problem->in[1].shape);
    const int64_t places = job.g.oh * job.g.ow;

    job.group = gemm_ceil(GROUP_PLACES, places);
    job.group = job.group < job.g.n ? job.group : job.g.n;
    job.gemm = gemm_of(&job.g, job.group);
    job.gemm_bytes = gemm_scratch_bytes(tile_current(), &job.gemm) / GEMM_TASKS;
    job.parts = gemm_ceil(job.g.n, job.group);
    job.parts = job.parts < PARTS ? job.parts : PARTS;
    job.own = round_up(TAPS * job.group * places) +
              round_up((int64_t)(job.gemm_bytes / sizeof(float)));
    return job;
}

static bool can_run_input(const struct kernel_problem *problem)
{
    const int *stride = problem->attrs.stride;

    return has_one_channel(problem, &problem->out[0].shape, &problem->in[1].shape) &&
           stride[1] <= 2;
}

static size_t input_scratch(const struct kernel_problem *problem)
{
    const struct job job = input_job(problem);

    return (size_t)(job.parts * job.own) * sizeof(float);
}

static void input_part(void *arg, size_t part)
{
    const struct job *job = arg;
    const struct grey *g = &job->g;
    const int64_t places = g->oh * g->ow;
    float *z = part_scratch(job, part);
    int64_t first;
    const int64_t count =
        gemm_part(gemm_ceil(g->n, job->group), job->parts, (int64_t)part, &first);

    for (int64_t i = first; i < first + count; i++) {
        const int64_t image = i * job->group;
        const int64_t images = g->n - image < job->group ? g->n - image : job->group;
        struct gemm gemm = gemm_of(g, images);

        gemm.a = job->w;
        gemm.b = job->dy + image * places * g->o;
        gemm.c = z;
        gemm_run(tile_current(), &gemm, NULL, z + round_up(TAPS * job->group * places));
        for (int64_t j = 0; j < images; j++)
            job->isa->gather(g, z + j * places, gemm.c_row, job->y + (image + j) * g->h * g->w);
    }
}

static void input_run(const struct kernel_call *call)
{
    struct job job = input_job(call->problem);

    job.dy = call->in[0];
    job.w = call->in[1];
    job.y = call->out[0];
    job.scratch = call->scratch;
    pool_for(call->pool, (size_t)job.parts, input_part, &job);
}

const struct kernel kernel_conv_grey_rows[] = {
    { .op = "conv2d",
      .name = "grey",
      .can_run = can_run_forward,
      .scratch_bytes = forward_scratch,
      .run = forward_run },
    { .op = "conv2d_grad_input",
      .name = "grey",
      .can_run = can_run_input,
      .scratch_bytes = input_scratch,
      .run = input_run },
    { .op = "conv2d_grad_weight",
      .name = "grey",
      .can_run = can_run_weight,
      .scratch_bytes = weight_scratch,
      .run = weight_run },
    { 0 },
};
