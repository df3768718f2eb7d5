/* SPDX-License-Identifier: MIT */
/* measure.c - buffers with guards and random inputs around one call of a kernel. */
#include "kernel/measure.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"

enum { GUARD_BYTES = 64, GUARD = 0xA5, POISON = 0xFB, BUFFERS = KERNEL_IN + KERNEL_OUT + 1 };
/* A sample is as many runs as fill SAMPLE_NS; samples go on until TOTAL_NS are spent. */
enum { SAMPLES_MIN = 7, SAMPLES_MAX = 101, SAMPLE_NS = 100000, TOTAL_NS = 100000000 };

struct buffer {
    uint8_t *block;    /* guard, contents, guard */
    uint8_t *original; /* inputs: a copy of the contents */
    size_t bytes;
};

struct kernel_trial {
    const struct kernel *kernel;
    struct kernel_problem problem;
    struct kernel_step step;
    struct kernel_call call;
    struct buffer in[KERNEL_IN], out[KERNEL_OUT], scratch;
};

/* Inputs ------------------------------------------------------------------------------- */

static void fill_floats(float *data, int64_t count, enum kernel_fill fill, struct rng *rng)
{
    for (int64_t i = 0; i < count; i++) {
        if (fill == KERNEL_FILL_WHOLE)
            data[i] = (float)((int)rng_below(rng, 9) - 4);
        else /* a sum of uniform numbers, normal enough, with variance 1 */
            data[i] = 2 * (rng_float(rng) + rng_float(rng) + rng_float(rng) - 1.5f);
    }
}

/* A variance is not negative, and none of these is 0. */
static void fill_variances(float *data, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        data[i] = data[i] * data[i] + 1;
}

/* What shards give each other: three rows of numbers a channel, the second of them squares if
 * this is about statistics, the third the number of places. A shard but the first may have none. */
static void fill_tables(float *data, const struct shape *shape, bool statistics,
                        struct rng *rng)
{
    const int64_t channels = shape->dim[shape->rank - 1];
    const int64_t shards = shape->rank == 3 ? shape->dim[0] : 1;

    for (int64_t v = 0; v < shards; v++, data += 3 * channels) {
        const int places = v > 0 && rng_below(rng, 8) == 0 ? 0 : 1 + (int)rng_below(rng, 50);
        if (statistics)
            fill_variances(data + channels, channels);
        for (int64_t c = 0; c < channels; c++) {
            data[c] = places ? data[c] : 0;
            data[channels + c] = places ? data[channels + c] : 0;
            data[2 * channels + c] = (float)places;
        }
    }
}

/* padded: one in eight is no label. */
static void fill_labels(int32_t *labels, int64_t count, int64_t classes, bool padded,
                        struct rng *rng)
{
    for (int64_t i = 0; i < count; i++)
        labels[i] =
            padded && rng_below(rng, 8) == 0 ? -1 : (int32_t)rng_below(rng, (uint64_t)classes);
}

/* Rows of the table that a problem's ids stand for; 0 if they are labels. */
static int64_t table_rows(const struct kernel_problem *problem)
{
    if (strcmp(problem->op, "rows_sort") == 0)
        return problem->attrs.rows;
    if (strncmp(problem->op, "embedding", 9) != 0)
        return 0;
    return strstr(problem->op, "_grad") ? problem->out[0].shape.dim[0]
                                        : problem->in[1].shape.dim[0];
}

/* One in eight is padding; the lower ones come more often. */
static void fill_rows(int32_t *ids, int64_t count, int64_t rows, struct rng *rng)
{
    for (int64_t i = 0; i < count; i++)
        ids[i] = rng_below(rng, 8) == 0
                     ? -1
                     : (int32_t)rng_below(rng, 1 + rng_below(rng, (uint64_t)rows));
}

/* A place of a window along one dimension that lies within the image. */
static int place_inside(int64_t u, int axis, const struct kernel_problem *problem,
                        struct rng *rng)
{
    const struct attrs *a = &problem->attrs;
    const int64_t start = u * a->stride[axis] - a->pad[axis];
    const int64_t extent = problem->out[0].shape.dim[2 + axis];
    const int64_t first = start < 0 ? -start : 0;
    const int64_t last = start + a->window[axis] <= extent ? a->window[axis] : extent - start;

    return (int)(first + (int64_t)rng_below(rng, (uint64_t)(last - first)));
}

/* Indices as a pooling of windows side by side could have left them. */
static void fill_any_index(uint8_t *index, int64_t count, const int window[2], struct rng *rng)
{
    const uint64_t area = (uint64_t)window[0] * (uint64_t)window[1];

    for (int64_t i = 0; i < count; i++)
        index[i] = rng_below(rng, 8) == 0 ? 255 : (uint8_t)rng_below(rng, area);
}

/* Indices of max_pool_grad, none of them in the padding. */
static void fill_index(uint8_t *index, const struct kernel_problem *problem, struct rng *rng)
{
    const struct shape *y = &problem->in[1].shape;
    const int64_t c = y->dim[1], oh = y->dim[2], ow = y->dim[3];

    for (int64_t i = 0; i < shape_count(y); i++) {
        const int row = place_inside(i / c / ow % oh, 0, problem, rng);
        const int column = place_inside(i / c % ow, 1, problem, rng);
        index[i] =
            rng_below(rng, 8) == 0 ? 255 : (uint8_t)(row * problem->attrs.window[1] + column);
    }
}

/* Ids of tokens, some of which are none. */
static void fill_ids(int32_t *ids, int64_t count, struct rng *rng)
{
    for (int64_t i = 0; i < count; i++)
        ids[i] = (int32_t)rng_below(rng, 6) - 1;
}

/* Where new tokens of a sequence may begin: for all of them there is a place. */
static int64_t free_places(const struct kernel_problem *problem)
{
    const int axis = problem->in[1].shape.rank == 3; /* a cache, else a table */
    const int64_t places = problem->in[1].shape.dim[axis] - problem->in[0].shape.dim[1];
    return places < 0 ? 1 : places + 1; /* fewer rows than tokens come again and again */
}

static bool is_recurrent(const struct kernel_problem *problem)
{
    return strncmp(problem->op, "lstm", 4) == 0 || strncmp(problem->op, "gru", 3) == 0;
}

/* Weights, and what gates and attention have let through, so small that a step does not blow up what
 * rounding has left in the last one. */
static void fill_recurrent(float *data, const struct kernel_problem *problem, int i)
{
    const struct shape *shape = &problem->in[i].shape;
    const int64_t count = shape_count(shape);
    const bool is_grad = strstr(problem->op, "_grad") != NULL;
    const float divisor = problem->in[i].layout == LAYOUT_IO ? (float)shape->dim[1]
                          : is_grad && i == 0                ? 4
                          : is_grad && i == 10 ? (float)shape->dim[2] /* weights of places */
                                               : 1;

    for (int64_t k = 0; k < count; k++)
        data[k] /= divisor;
}

static bool is_head(const struct kernel_problem *problem)
{
    return strcmp(problem->op, "linear_token_loss") == 0;
}

/* So that logits are about 1: exponentials of large ones that were rounded to 16 bits would be far off. */
static void fill_head(float *data, const struct shape *shape)
{
    for (int64_t k = 0; k < shape_count(shape); k++)
        data[k] /= (float)shape->dim[1];
}

/* Where conv1d_max or max_over_time might have found the largest: after dy; -1 is nowhere. */
static void fill_places(int32_t *index, const struct kernel_problem *problem, struct rng *rng)
{
    const bool is_weight = strstr(problem->op, "grad_weight") != NULL;
    const bool convolves = strncmp(problem->op, "conv1d", 6) == 0;
    const struct shape *x = is_weight ? &problem->in[0].shape : &problem->out[0].shape;
    const struct shape *w = is_weight ? &problem->out[0].shape : &problem->in[2].shape;
    const int64_t k = convolves ? w->dim[2] : 1;
    const int64_t places = x->dim[1] < k ? 1 : x->dim[1] - k + 1;

    fill_labels(index, shape_count(&problem->in[is_weight ? 2 : 1].shape), places, convolves,
                rng);
}

static void fill_input(struct kernel_trial *trial, int i, enum kernel_fill fill,
                       struct rng *rng)
{
    const struct kernel_problem *problem = &trial->problem;
    const int64_t count = shape_count(&problem->in[i].shape);
    void *data = trial->in[i].block + GUARD_BYTES;

    if (i == 2 && (strcmp(problem->op, "add_positions") == 0 ||
                   strcmp(problem->op, "attention_step") == 0))
        fill_labels(data, count, free_places(problem), false, rng);
    else if (problem->in[i].dtype == DTYPE_I32 &&
             (strncmp(problem->op, "attention", 9) == 0 || is_recurrent(problem)))
        fill_ids(data, count, rng);
    else if (problem->in[i].dtype == DTYPE_I32 && table_rows(problem) > 0)
        fill_rows(data, count, table_rows(problem), rng);
    else if (problem->in[i].dtype == DTYPE_I32 && strstr(problem->op, "max_") != NULL)
        fill_places(data, problem, rng);
    else if (problem->in[i].dtype == DTYPE_I32)
        fill_labels(data, count,
                    is_head(problem) ? problem->in[1].shape.dim[0]
                                     : problem->in[0].shape.dim[1],
                    strstr(problem->op, "token_") != NULL, rng);
    else if (problem->in[i].dtype == DTYPE_U8 && strcmp(problem->op, "max_pool_grad") == 0)
        fill_index(data, problem, rng);
    else if (problem->in[i].dtype == DTYPE_U8)
        fill_any_index(data, count, problem->attrs.window, rng);
    else
        fill_floats(data, count, fill, rng);
    if (is_recurrent(problem) && problem->in[i].dtype == DTYPE_F32)
        fill_recurrent(data, problem, i);
    if (is_head(problem) && i == 0)
        fill_head(data, &problem->in[i].shape);
    if (strcmp(problem->op, "batch_norm_apply") == 0 && i == 4)
        fill_variances(data, count);
    if (strcmp(problem->op, "batch_norm_join") == 0 ||
        (strcmp(problem->op, "batch_norm_grad_spread") == 0 && i == 4))
        fill_tables(data, &problem->in[i].shape, i < 2, rng);
    memcpy(trial->in[i].original, data, trial->in[i].bytes);
}

/* Buffers ------------------------------------------------------------------------------ */

static enum status make_buffer(size_t bytes, bool input, struct buffer *out)
{
    TRY(mem_alloc(1, bytes + 2 * (size_t)GUARD_BYTES, &out->block));
    out->bytes = bytes;
    if (input)
        TRY(mem_alloc(1, bytes, &out->original));
    memset(out->block, GUARD, GUARD_BYTES);
    memset(out->block + GUARD_BYTES, POISON, bytes);
    memset(out->block + GUARD_BYTES + bytes, GUARD, GUARD_BYTES);
    return STATUS_OK;
}

static size_t bytes_of(const struct kernel_tensor *tensor)
{
    return (size_t)shape_count(&tensor->shape) * dtype_size(tensor->dtype);
}

static enum status make_buffers(struct kernel_trial *trial)
{
    const struct kernel_problem *problem = &trial->problem;

    for (int i = 0; i < problem->n_in; i++) {
        TRY(make_buffer(bytes_of(&problem->in[i]), true, &trial->in[i]));
        trial->call.in[i] = trial->in[i].block + GUARD_BYTES;
    }
    for (int i = 0; i < problem->n_out; i++) {
        TRY(make_buffer(bytes_of(&problem->out[i]), false, &trial->out[i]));
        trial->call.out[i] = trial->out[i].block + GUARD_BYTES;
    }
    if (trial->kernel->scratch_bytes != NULL) {
        TRY(make_buffer(trial->kernel->scratch_bytes(problem), false, &trial->scratch));
        trial->call.scratch = trial->scratch.block + GUARD_BYTES;
    }
    return STATUS_OK;
}

static bool is_intact(const struct buffer *buffer)
{
    if (buffer->block == NULL)
        return true;
    for (size_t i = 0; i < GUARD_BYTES; i++) {
        if (buffer->block[i] != GUARD ||
            buffer->block[GUARD_BYTES + buffer->bytes + i] != GUARD)
            return false;
    }
    return buffer->original == NULL ||
           memcmp(buffer->original, buffer->block + GUARD_BYTES, buffer->bytes) == 0;
}

/* Trials ------------------------------------------------------------------------------- */

static void draw(struct kernel_trial *trial, enum kernel_fill fill, uint64_t seed)
{
    struct rng rng;

    rng_init(&rng, seed, 0);
    trial->step = (struct kernel_step){ .seed = rng_u64(&rng),
                                        .first_sample = rng_u64(&rng),
                                        .inv_batch = 1.0f / 32 };
    for (int i = 0; i < trial->problem.n_in; i++)
        fill_input(trial, i, fill, &rng);
}

static void copy(struct kernel_trial *trial, const struct kernel_trial *like)
{
    trial->step = like->step;
    for (int i = 0; i < trial->problem.n_in; i++) {
        const struct buffer *in = &trial->in[i];

        memcpy(in->original, like->in[i].original, in->bytes);
        memcpy(in->block + GUARD_BYTES, in->original, in->bytes);
    }
}

/* Everything but what inputs hold. */
static enum status make_trial(const struct kernel *kernel, const struct kernel_problem *problem,
                              struct kernel_trial **out)
{
    struct kernel_trial *trial;
    char text[KERNEL_TEXT];

    TRY(kernel_check(problem));
    if (strcmp(kernel->op, problem->op) != 0 ||
        (kernel->can_run != NULL && !kernel->can_run(problem)))
        return FAIL(STATUS_UNSUPPORTED, "kernel %s of %s cannot run \"%s\"", kernel->name,
                    kernel->op, kernel_print(problem, text));
    TRY(mem_alloc(1, sizeof *trial, &trial));
    trial->kernel = kernel;
    trial->problem = *problem;
    trial->call.problem = &trial->problem;
    trial->call.step = &trial->step;
    enum status status = make_buffers(trial);
    if (status == STATUS_OK && kernel->prepare != NULL)
        status = kernel->prepare(&trial->problem, &trial->call.state);
    if (status != STATUS_OK) {
        kernel_trial_destroy(trial);
        return status;
    }
    *out = trial;
    return STATUS_OK;
}

enum status kernel_trial_create(const struct kernel *kernel,
                                const struct kernel_problem *problem, enum kernel_fill fill,
                                uint64_t seed, struct kernel_trial **out)
{
    TRY(make_trial(kernel, problem, out));
    draw(*out, fill, seed);
    return STATUS_OK;
}

enum status kernel_trial_repeat(const struct kernel *kernel, const struct kernel_trial *like,
                                struct kernel_trial **out)
{
    TRY(make_trial(kernel, &like->problem, out));
    copy(*out, like);
    return STATUS_OK;
}

void kernel_trial_destroy(struct kernel_trial *trial)
{
    if (trial == NULL)
        return;
    if (trial->call.state != NULL && trial->kernel->release != NULL)
        trial->kernel->release(trial->call.state);
    for (int i = 0; i < KERNEL_IN; i++) {
        mem_free(trial->in[i].block);
        mem_free(trial->in[i].original);
    }
    for (int i = 0; i < KERNEL_OUT; i++)
        mem_free(trial->out[i].block);
    mem_free(trial->scratch.block);
    mem_free(trial);
}

struct kernel_call *kernel_trial_call(struct kernel_trial *trial)
{
    return &trial->call;
}

void kernel_trial_run(struct kernel_trial *trial)
{
    trial->kernel->run(&trial->call);
}

enum status kernel_trial_check(const struct kernel_trial *trial)
{
    char text[KERNEL_TEXT];

    kernel_print(&trial->problem, text);
    for (int i = 0; i < KERNEL_IN; i++) {
        if (!is_intact(&trial->in[i]))
            return FAIL(STATUS_CORRUPT, "%s changed input %d or beside it: \"%s\"",
                        trial->kernel->name, i, text);
    }
    for (int i = 0; i < KERNEL_OUT; i++) {
        if (!is_intact(&trial->out[i]))
            return FAIL(STATUS_CORRUPT, "%s wrote beside output %d: \"%s\"",
                        trial->kernel->name, i, text);
    }
    if (!is_intact(&trial->scratch))
        return FAIL(STATUS_CORRUPT, "%s wrote beside its scratch: \"%s\"", trial->kernel->name,
                    text);
    return STATUS_OK;
}

/* Comparison --------------------------------------------------------------------------- */

static double float_difference(const float *a, const float *b, int64_t count)
{
    double largest = 1, difference = 0;

    for (int64_t i = 0; i < count; i++) {
        const double size = fabs((double)a[i]), apart = fabs((double)a[i] - (double)b[i]);
        if (isnan(a[i]) != isnan(b[i]))
            return INFINITY;
        if (size > largest && isfinite(size))
            largest = size;
        if (a[i] != b[i] && apart > difference)
            difference = apart;
    }
    return difference / largest;
}

static double share_different(const uint8_t *a, const uint8_t *b, int64_t count, size_t size)
{
    int64_t different = 0;

    for (int64_t i = 0; i < count; i++)
        different += memcmp(a + (size_t)i * size, b + (size_t)i * size, size) != 0;
    return (double)different / (double)count;
}

double kernel_trial_difference(const struct kernel_trial *a, const struct kernel_trial *b,
                               int output)
{
    const struct kernel_tensor *tensor = &a->problem.out[output];
    const int64_t count = shape_count(&tensor->shape);
    const void *x = a->call.out[output], *y = b->call.out[output];

    return tensor->dtype == DTYPE_F32 ? float_difference(x, y, count)
                                      : share_different(x, y, count, dtype_size(tensor->dtype));
}

/* Time --------------------------------------------------------------------------------- */

static int compare_numbers(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Nanoseconds of `runs` runs. */
static int64_t time_runs(struct kernel_trial *trial, int64_t runs)
{
    const int64_t start = clock_ns();

    for (int64_t i = 0; i < runs; i++)
        kernel_trial_run(trial);
    return clock_ns() - start;
}

enum status kernel_measure(const struct kernel *kernel, const struct kernel_problem *problem,
                           struct pool *pool, double *out_seconds)
{
    struct kernel_trial *trial;
    double samples[SAMPLES_MAX];
    int64_t runs = 1, spent = 0;
    int count = 0;

    TRY(kernel_trial_create(kernel, problem, KERNEL_FILL_NORMAL, 1, &trial));
    kernel_trial_call(trial)->pool = pool;
    kernel_trial_run(trial);
    while (time_runs(trial, runs) < SAMPLE_NS)
        runs *= 2;
    while (count < SAMPLES_MIN || (count < SAMPLES_MAX && spent < TOTAL_NS)) {
        const int64_t ns = time_runs(trial, runs);
        samples[count++] = (double)ns * 1e-9 / (double)runs;
        spent += ns;
    }
    const enum status status = kernel_trial_check(trial);
    kernel_trial_destroy(trial);
    TRY(status);
    qsort(samples, (size_t)count, sizeof samples[0], compare_numbers);
    *out_seconds = samples[count / 2];
    return STATUS_OK;
}
