/* SPDX-License-Identifier: MIT */
/* conv1d.c - convolution along sequences, and under a maximum over time.
 *
 * A sequence (N,T,C) lies as an image of one row, a filter (k,C,O) as one of a convolution with a
 * kernel 1 x k, so conv1d and its gradients are run by the kernels of conv2d.
 *
 * conv1d_max has its own (conv1d.h). A sample is transposed once, (T,C) to (C,T), and stays in L2;
 * tiles of 6 filters by 64 places walk over it, 64 places of all channels staying in L1 while all
 * filters pass, packed tile after tile. What is kept of a sum is the largest so far, so of the
 * output nothing but (N,O) is written. Traffic: x once, the filters once a sample and 64 places,
 * from L2.
 *
 * Its gradients touch the O windows a sample that were chosen, each k*C floats in a row, instead of
 * all T: dw takes them times dy, filter by filter, sample after sample; dx adds filters times dy to
 * them. Filters lie transposed for that, (O,k*C). Sums go over samples, or filters, in order.
 */
#include "kernel/cpu/conv1d.h"

#include <math.h>
#include <string.h>

#include "kernel/cpu/conv.h"
#include "kernel/cpu/rows.h"

enum {
    ROW_FLOATS = 16,    /* rows of a transposed sample are whole cache lines */
    GATHER_FILTERS = 32 /* filters whose gradients are summed together */
};

/* By the kernels of conv2d ----------------------------------------------------------------- */

struct derived {
    const struct kernel *kernel;
    struct kernel_problem problem;
};

static struct kernel_tensor as_image(const struct kernel_tensor *x)
{
    const int64_t *d = x->shape.dim;

    return (struct kernel_tensor){ x->dtype, LAYOUT_NHWC, shape_4(d[0], d[2], 1, d[1]) };
}

static struct kernel_tensor as_kernel(const struct kernel_tensor *w)
{
    const int64_t *d = w->shape.dim;

    return (struct kernel_tensor){ w->dtype, LAYOUT_HWIO, shape_4(d[0], d[1], 1, d[2]) };
}

/* "conv1d..." becomes "conv2d...", with the sequences as images. */
static struct derived derive(const struct kernel_problem *problem)
{
    static const char *const names[][2] = {
        { "conv1d", "conv2d" },
        { "conv1d_grad_input", "conv2d_grad_input" },
        { "conv1d_grad_weight", "conv2d_grad_weight" },
    };
    struct derived d = { .kernel = kernel_conv_rows, .problem = *problem };
    struct kernel_problem *p = &d.problem;

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(problem->op, names[i][0]) == 0)
            p->op = names[i][1];
    }
    for (int i = 0; i < p->n_in; i++) {
        if (p->in[i].layout == LAYOUT_WIO)
            p->in[i] = as_kernel(&problem->in[i]);
        else if (p->in[i].shape.rank == 3)
            p->in[i] = as_image(&problem->in[i]);
    }
    p->out[0] = p->out[0].layout == LAYOUT_WIO ? as_kernel(&problem->out[0])
                                               : as_image(&problem->out[0]);
    if (strcmp(p->op, "conv2d_grad_input") == 0)
        p->n_in = 2; /* x was there for its shape */
    p->attrs.stride[0] = p->attrs.stride[1] = 1;
    while (strcmp(d.kernel->op, p->op) != 0)
        d.kernel++;
    return d;
}

static const struct kernel_tensor *weight_of(const struct kernel_problem *problem)
{
    return problem->out[0].layout == LAYOUT_WIO ? &problem->out[0] : &problem->in[1];
}

static bool can_run_plain(const struct kernel_problem *problem)
{
    const struct derived d = derive(problem);
    const int64_t t = strcmp(problem->op, "conv1d_grad_input") == 0
                          ? problem->out[0].shape.dim[1]
                          : problem->in[0].shape.dim[1];

    return tile_current() != NULL && weight_of(problem)->shape.dim[2] <= t &&
           d.kernel->can_run(&d.problem);
}

static size_t scratch_plain(const struct kernel_problem *problem)
{
    const struct derived d = derive(problem);

    return d.kernel->scratch_bytes != NULL ? d.kernel->scratch_bytes(&d.problem) : 0;
}

static enum status prepare_plain(const struct kernel_problem *problem, void **out_state)
{
    const struct derived d = derive(problem);

    *out_state = NULL;
    return d.kernel->prepare != NULL ? d.kernel->prepare(&d.problem, out_state) : STATUS_OK;
}

static void release_plain(void *state)
{
    if (kernel_conv_rows->release != NULL)
        kernel_conv_rows->release(state);
}

static void run_plain(const struct kernel_call *call)
{
    const struct derived d = derive(call->problem);
    struct kernel_call inner = *call;

    inner.problem = &d.problem;
    d.kernel->run(&inner);
}

/* Under a maximum --------------------------------------------------------------------------- */

struct job {
    const struct kernel_call *call;
    const struct tile_isa *tile;
    const struct conv1d_isa *isa;
    int64_t n, t, c, o, k;
    int64_t taps;                        /* of k, those that a sequence this long meets */
    int64_t places;                      /* of a window */
    int64_t x_row, n_tiles, slot_floats; /* forward: of a transposed sample, and beside it */
};

/* Whole cache lines. */
static int64_t lines_of(int64_t floats)
{
    return gemm_ceil(floats, ROW_FLOATS) * ROW_FLOATS;
}

static struct job make_job(const struct shape *x, const struct shape *w)
{
    struct job job = { .tile = tile_current(),
                       .n = x->dim[0],
                       .t = x->dim[1],
                       .c = x->dim[2],
                       .o = w->dim[0],
                       .k = w->dim[2] };

    job.isa = job.tile == &tile_avx512 ? &conv1d_avx512 : &conv1d_avx2;
    job.taps = job.k < job.t ? job.k : job.t;
    job.places = job.t - job.taps + 1;
    /* Room for whole vectors from the last place on; an odd number of lines, so that rows do not
     * fall into the same sets. */
    const int64_t reach = gemm_ceil(job.places, job.isa->lanes) * job.isa->lanes + job.taps - 1;
    job.x_row = lines_of(reach);
    if (job.x_row / ROW_FLOATS % 2 == 0)
        job.x_row += ROW_FLOATS;
    job.n_tiles = gemm_ceil(job.o, job.isa->filters);
    job.slot_floats = job.c * job.x_row + 2 * lines_of(job.o * job.isa->lanes);
    return job;
}

static int64_t slots_of(int64_t tasks)
{
    return tasks < GEMM_TASKS ? tasks : GEMM_TASKS;
}

static bool can_run_max(const struct kernel_problem *problem)
{
    (void)problem;
    return tile_current() != NULL;
}

static size_t scratch_max(const struct kernel_problem *problem)
{
    const struct job job = make_job(&problem->in[0].shape, &problem->in[1].shape);
    const int64_t packed = lines_of(job.k * job.c * job.o);

    return (size_t)(packed + slots_of(job.n) * job.slot_floats) * sizeof(float);
}

/* Filters tile by tile, each [taps][channels][filters]. */
static void pack_filters(const struct job *job, const float *w, float *to)
{
    for (int64_t tile = 0; tile < job->n_tiles; tile++) {
        int64_t first;
        const int64_t filters = gemm_part(job->o, job->n_tiles, tile, &first);

        for (int64_t i = 0; i < job->taps * job->c; i++) {
            for (int64_t f = 0; f < filters; f++)
                *to++ = w[i * job->o + first + f];
        }
    }
}

/* Bias and relu of the largest sums. Where no sum was a number, neither is y. */
static void finish_sample(const struct job *job, float *y, int32_t *index)
{
    const struct kernel_call *call = job->call;
    const float *bias = call->problem->n_in > 2 ? call->in[2] : NULL;
    const bool relu = call->problem->attrs.activation == ACTIVATION_RELU;

    for (int64_t f = 0; f < job->o; f++) {
        y[f] = index[f] < 0 ? NAN : bias != NULL ? y[f] + bias[f] : y[f];
        if (relu && !(y[f] > 0)) {
            y[f] = y[f] <= 0 ? 0 : y[f];
            index[f] = -1;
        }
    }
}

static void run_sample(void *arg, size_t sample, size_t slot)
{
    const struct job *job = arg;
    const struct kernel_call *call = job->call;
    const float *packed = call->scratch;
    float *xt = (float *)call->scratch + lines_of(job->k * job->c * job->o) +
                (int64_t)slot * job->slot_floats;
    float *best = xt + job->c * job->x_row;
    int32_t *place = (int32_t *)(best + lines_of(job->o * job->isa->lanes));
    const int64_t reach = (int64_t)job->isa->vecs * job->isa->lanes;

    job->tile->transpose((const float *)call->in[0] + (int64_t)sample * job->t * job->c, job->c,
                         (int)job->t, (int)job->c, xt, job->x_row, false);
    for (int64_t i = 0; i < job->o * job->isa->lanes; i++) {
        best[i] = -INFINITY;
        place[i] = -1;
    }
    for (int64_t at = 0; at < job->places; at += reach) {
        const int64_t count = job->places - at < reach ? job->places - at : reach;
        struct conv1d_tile tile = { .x = xt + at,
                                    .x_row = job->x_row,
                                    .w = packed,
                                    .taps = job->taps,
                                    .channels = job->c,
                                    .first = at,
                                    .count = count };

        for (int64_t i = 0; i < job->n_tiles; i++) {
            int64_t first;
            const int filters = (int)gemm_part(job->o, job->n_tiles, i, &first);

            tile.best = best + first * job->isa->lanes;
            tile.place = place + first * job->isa->lanes;
            job->isa->largest(&tile, filters, (int)gemm_ceil(count, job->isa->lanes));
            tile.w += job->taps * job->c * filters;
        }
    }
    float *y = (float *)call->out[0] + (int64_t)sample * job->o;
    int32_t *index = (int32_t *)call->out[1] + (int64_t)sample * job->o;
    job->isa->reduce(best, place, job->o, y, index);
    finish_sample(job, y, index);
}

static void run_max(const struct kernel_call *call)
{
    struct job job = make_job(&call->problem->in[0].shape, &call->problem->in[1].shape);

    job.call = call;
    pack_filters(&job, call->in[1], call->scratch);
    pool_for_slots(call->pool, (size_t)job.n, (size_t)slots_of(job.n), run_sample, &job);
}

/* Its gradient for the sequence: dy, index, w, x, [base] -> dx ------------------------------- */

static size_t scratch_max_input(const struct kernel_problem *problem)
{
    return (size_t)shape_count(&problem->in[2].shape) * sizeof(float);
}

static void scatter_sample(void *arg, size_t sample)
{
    const struct job *job = arg;
    const struct kernel_call *call = job->call;
    const int64_t floats = job->t * job->c, at = (int64_t)sample * floats;
    const struct conv1d_sample part = {
        .dy = (const float *)call->in[0] + (int64_t)sample * job->o,
        .index = (const int32_t *)call->in[1] + (int64_t)sample * job->o,
        .filters = job->o,
        .step = job->c,
        .depth = job->taps * job->c,
    };
    float *dx = (float *)call->out[0] + at;

    if (call->problem->n_in == 4)
        memset(dx, 0, (size_t)floats * sizeof *dx);
    else if (call->in[4] != call->out[0])
        memcpy(dx, (const float *)call->in[4] + at, (size_t)floats * sizeof *dx);
    job->isa->scatter(&part, call->scratch, job->k * job->c, dx);
}

static void run_max_input(const struct kernel_call *call)
{
    struct job job = make_job(&call->problem->in[3].shape, &call->problem->in[2].shape);

    job.call = call;
    job.tile->transpose(call->in[2], job.o, (int)(job.k * job.c), (int)job.o, call->scratch,
                        job.k * job.c, false);
    pool_for(call->pool, (size_t)job.n, scatter_sample, &job);
}

/* Its gradients for the weight and the bias: x, dy, index -> dw, [db] ------------------------ */

static int64_t gather_blocks(const struct job *job)
{
    return gemm_ceil(job->o, GATHER_FILTERS);
}

static size_t scratch_max_weight(const struct kernel_problem *problem)
{
    const struct job job = make_job(&problem->in[0].shape, &problem->out[0].shape);

    return (size_t)(slots_of(gather_blocks(&job)) * GATHER_FILTERS * job.k * job.c) *
           sizeof(float);
}

static void sum_bias(const struct job *job, int64_t first, int64_t filters)
{
    const float *dy = job->call->in[1];
    const int32_t *index = job->call->in[2];
    float *db = job->call->out[1];

    for (int64_t f = first; f < first + filters; f++) {
        float sum = 0;
        for (int64_t n = 0; n < job->n; n++)
            sum += index[n * job->o + f] >= 0 ? dy[n * job->o + f] : 0;
        db[f] = sum;
    }
}

static void gather_block(void *arg, size_t block, size_t slot)
{
    const struct job *job = arg;
    const struct kernel_call *call = job->call;
    const int64_t row = job->k * job->c;
    int64_t first;
    const int64_t filters = gemm_part(job->o, gather_blocks(job), (int64_t)block, &first);
    float *rows = (float *)call->scratch + (int64_t)slot * GATHER_FILTERS * row;

    memset(rows, 0, (size_t)(filters * row) * sizeof *rows);
    for (int64_t n = 0; n < job->n; n++) {
        const struct conv1d_sample part = {
            .dy = (const float *)call->in[1] + n * job->o + first,
            .index = (const int32_t *)call->in[2] + n * job->o + first,
            .filters = filters,
            .step = job->c,
            .depth = job->taps * job->c,
        };
        job->isa->gather(&part, (const float *)call->in[0] + n * job->t * job->c, rows, row);
    }
    job->tile->transpose(rows, row, (int)filters, (int)row, (float *)call->out[0] + first,
                         job->o, false);
    if (call->problem->n_out > 1)
        sum_bias(job, first, filters);
}

static void run_max_weight(const struct kernel_call *call)
{
    struct job job = make_job(&call->problem->in[0].shape, &call->problem->out[0].shape);
    const int64_t blocks = gather_blocks(&job);

    job.call = call;
    pool_for_slots(call->pool, (size_t)blocks, (size_t)slots_of(blocks), gather_block, &job);
}

#define PLAIN(op)                                                                              \
    {                                                                                          \
        op, "own", can_run_plain, scratch_plain, prepare_plain, release_plain, run_plain       \
    }

const struct kernel kernel_conv1d_rows[] = {
    PLAIN("conv1d"),
    PLAIN("conv1d_grad_input"),
    PLAIN("conv1d_grad_weight"),
    { .op = "conv1d_max",
      .name = "own",
      .can_run = can_run_max,
      .scratch_bytes = scratch_max,
      .run = run_max },
    { .op = "conv1d_max_grad_input",
      .name = "own",
      .can_run = can_run_max,
      .scratch_bytes = scratch_max_input,
      .run = run_max_input },
    { .op = "conv1d_max_grad_weight",
      .name = "own",
      .can_run = can_run_max,
      .scratch_bytes = scratch_max_weight,
      .run = run_max_weight },
    { 0 },
};
