/* SPDX-License-Identifier: MIT */
/* depthwise.c - conv2d and its gradients with a group for each channel.
 *
 *   y   row by row; bias and relu or relu6 on the way out
 *   dx  stride 1: the same with the window turned by 180 degrees, over dy with padding k-1-pad;
 *       3x3, stride 2, padding 1: two rows at once; else pixel by pixel
 *   dw  the images are cut into at most PARTS parts, the same whatever the pool; each has sums of
 *       its own, which are added in order
 *
 * Traffic: x and y once each way, 4 bytes an element; dw reads x and dy.
 */
#include <math.h>
#include <string.h>

#include "kernel/cpu/depthwise.h"
#include "kernel/cpu/gemm.h"
#include "kernel/cpu/processor.h"
#include "kernel/cpu/rows.h"

enum { PARTS = 16, TASK_ELEMENTS = 32 << 10 };

static const struct depthwise_isa *current(void)
{
    const enum processor processor = processor_current();

    return processor >= PROCESSOR_AVX512 ? &depthwise_avx512
           : processor == PROCESSOR_AVX2 ? &depthwise_avx2
                                         : NULL;
}

static bool can_run(const struct kernel_problem *problem)
{
    const bool is_input = strcmp(problem->op, "conv2d_grad_input") == 0;
    const bool is_weight = strcmp(problem->op, "conv2d_grad_weight") == 0;
    const struct shape *w = is_weight ? &problem->out[0].shape : &problem->in[1].shape;
    const struct shape *x = is_input ? &problem->out[0].shape : &problem->in[0].shape;

    for (int i = 0; i < problem->n_in; i++) {
        if (problem->in[i].dtype != DTYPE_F32)
            return false;
    }
    return current() != NULL && problem->attrs.groups > 1 &&
           problem->attrs.groups == x->dim[1] && problem->attrs.groups == w->dim[0] &&
           problem->attrs.activation <= ACTIVATION_RELU6;
}

static struct depthwise depthwise_of(const struct kernel_problem *problem,
                                     const struct shape *x, const struct shape *w)
{
    const struct attrs *a = &problem->attrs;
    const bool cuts = a->activation != ACTIVATION_NONE;

    return (struct depthwise){
        .n = x->dim[0],
        .c = x->dim[1],
        .h = x->dim[2],
        .w = x->dim[3],
        .oh = (x->dim[2] + 2 * a->pad[0] - w->dim[2]) / a->stride[0] + 1,
        .ow = (x->dim[3] + 2 * a->pad[1] - w->dim[3]) / a->stride[1] + 1,
        .kh = w->dim[2],
        .kw = w->dim[3],
        .sh = a->stride[0],
        .sw = a->stride[1],
        .ph = a->pad[0],
        .pw = a->pad[1],
        .low = cuts ? 0.0F : -INFINITY,
        .high = a->activation == ACTIVATION_RELU6 ? 6.0F : INFINITY,
    };
}

/* Rows of a batch shared among the pool, some at a time. */
struct job {
    const struct depthwise_isa *isa;
    struct depthwise d;
    const float *x, *w, *bias; /* what is read; for a gradient x is dy */
    float *y;                  /* what is written */
    int64_t rows, grain;       /* of the whole batch, of a task */
    const float *dy;           /* gradient of the weights */
    float *sums;
    int64_t sums_floats; /* of a part */
    bool is_biased;
};

static void run_job(struct job *job, struct pool *pool, int64_t rows, int64_t row_elements,
                    void (*task)(void *arg, size_t i))
{
    job->rows = rows;
    job->grain = gemm_ceil(TASK_ELEMENTS, row_elements);
    pool_for(pool, (size_t)gemm_ceil(rows, job->grain), task, job);
}

static int64_t task_end(const struct job *job, size_t task)
{
    const int64_t end = ((int64_t)task + 1) * job->grain;

    return end < job->rows ? end : job->rows;
}

static void run_forward(void *arg, size_t task)
{
    const struct job *job = arg;
    const struct depthwise *d = &job->d;

    for (int64_t row = (int64_t)task * job->grain; row < task_end(job, task); row++)
        job->isa->forward(d, job->x + row / d->oh * d->h * d->w * d->c, row % d->oh, job->w,
                          job->bias, job->y + row * d->ow * d->c);
}

static void forward_run(const struct kernel_call *call)
{
    const struct kernel_problem *problem = call->problem;
    struct job job = {
        .isa = current(),
        .d = depthwise_of(problem, &problem->in[0].shape, &problem->in[1].shape),
        .x = call->in[0],
        .w = call->in[1],
        .bias = problem->n_in > 2 ? call->in[2] : NULL,
        .y = call->out[0],
    };

    run_job(&job, call->pool, job.d.n * job.d.oh, job.d.ow * job.d.c, run_forward);
}

/* Gradient of the input -------------------------------------------------------------------- */

static struct depthwise input_of(const struct kernel_problem *problem)
{
    return depthwise_of(problem, &problem->out[0].shape, &problem->in[1].shape);
}

static size_t input_scratch(const struct kernel_problem *problem)
{
    const struct depthwise d = input_of(problem);

    return depthwise_is_turned(&d) ? (size_t)(d.kh * d.kw * d.c) * sizeof(float) : 0;
}

static void run_input(void *arg, size_t task)
{
    const struct job *job = arg;
    const struct depthwise *d = &job->d;

    for (int64_t row = (int64_t)task * job->grain; row < task_end(job, task); row++)
        job->isa->input(d, job->x + row / d->h * d->oh * d->ow * d->c, row % d->h, job->w,
                        job->y + row * d->w * d->c);
}

static void run_halved(void *arg, size_t task)
{
    const struct job *job = arg;
    const struct depthwise *d = &job->d;

    for (int64_t row = (int64_t)task * job->grain; row < task_end(job, task); row++)
        job->isa->input_halved(d, job->x + row / d->oh * d->oh * d->ow * d->c, row % d->oh,
                               job->w, job->y + row / d->oh * d->h * d->w * d->c);
}

static void input_run(const struct kernel_call *call)
{
    struct job job = { .isa = current(),
                       .d = input_of(call->problem),
                       .x = call->in[0],
                       .w = call->in[1],
                       .y = call->out[0] };
    const int64_t n = job.d.n, row = job.d.w * job.d.c, taps = job.d.kh * job.d.kw;

    if (depthwise_is_turned(&job.d)) {
        float *w = call->scratch;
        for (int64_t tap = 0; tap < taps; tap++)
            memcpy(w + tap * job.d.c, job.w + (taps - 1 - tap) * job.d.c,
                   (size_t)job.d.c * sizeof(float));
        job.w = w;
        job.d = depthwise_turned(&job.d);
        run_job(&job, call->pool, n * job.d.oh, row, run_forward);
    } else if (depthwise_is_halved(&job.d)) {
        run_job(&job, call->pool, n * job.d.oh, 2 * row, run_halved);
    } else {
        run_job(&job, call->pool, n * job.d.h, row, run_input);
    }
}

/* Gradient of the weights ------------------------------------------------------------------ */

static int64_t parts_of(const struct depthwise *d)
{
    return d->n < PARTS ? d->n : PARTS;
}

static int64_t sums_floats(const struct depthwise *d)
{
    return (d->kh * d->kw + 1) * d->c;
}

static size_t weight_scratch(const struct kernel_problem *problem)
{
    const struct depthwise d =
        depthwise_of(problem, &problem->in[0].shape, &problem->out[0].shape);

    return (size_t)(parts_of(&d) * sums_floats(&d)) * sizeof(float);
}

static void run_weight(void *arg, size_t part)
{
    const struct job *job = arg;
    const struct depthwise *d = &job->d;
    float *sums = job->sums + (int64_t)part * job->sums_floats;
    int64_t first;
    const int64_t count = gemm_part(d->n, parts_of(d), (int64_t)part, &first);

    memset(sums, 0, (size_t)job->sums_floats * sizeof(float));
    for (int64_t image = first; image < first + count; image++) {
        for (int64_t oy = 0; oy < d->oh; oy++)
            job->isa->weight(d, job->x + image * d->h * d->w * d->c,
                             job->dy + image * d->oh * d->ow * d->c, oy, job->is_biased, sums);
    }
}

static void weight_run(const struct kernel_call *call)
{
    const struct kernel_problem *problem = call->problem;
    struct job job = {
        .isa = current(),
        .d = depthwise_of(problem, &problem->in[0].shape, &problem->out[0].shape),
        .x = call->in[0],
        .dy = call->in[1],
        .sums = call->scratch,
        .is_biased = problem->n_out > 1,
    };
    const int64_t parts = parts_of(&job.d), taps = job.d.kh * job.d.kw * job.d.c;

    job.sums_floats = sums_floats(&job.d);
    pool_for(call->pool, (size_t)parts, run_weight, &job);
    const struct tile_isa *tile = tile_current();
    tile->column_sums(job.sums, job.sums_floats, parts, (int)taps, false, call->out[0]);
    if (job.is_biased)
        tile->column_sums(job.sums + taps, job.sums_floats, parts, (int)job.d.c, false,
                          call->out[1]);
}

const struct kernel kernel_depthwise_rows[] = {
    { .op = "conv2d", .name = "depthwise", .can_run = can_run, .run = forward_run },
    { .op = "conv2d_grad_input",
      .name = "depthwise",
      .can_run = can_run,
      .scratch_bytes = input_scratch,
      .run = input_run },
    { .op = "conv2d_grad_weight",
      .name = "depthwise",
      .can_run = can_run,
      .scratch_bytes = weight_scratch,
      .run = weight_run },
    { 0 },
};
