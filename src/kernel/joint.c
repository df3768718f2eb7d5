/* SPDX-License-Identifier: MIT */
/* joint.c - plain loops over what ranks that share layers have; joint.h says what. */
#include "kernel/joint.h"

#include <math.h>
#include <string.h>

#include "kernel/device_rows.h"
#include "kernel/precision.h"

enum { BLOCK = 1024 };

static float element(const void *data, enum dtype dtype, size_t i)
{
    return kernel_is_half(dtype) ? kernel_from_half(dtype, ((const uint16_t *)data)[i])
                                 : ((const float *)data)[i];
}

/* Sums -------------------------------------------------------------------------------------- */

/* A stretch of a row that the stack has room for. */
static void sum_block(const struct joint_parts *parts, size_t at, size_t count, float *out)
{
    float sum[BLOCK];

    memcpy(sum, (const float *)parts->of[0] + at, count * sizeof *sum);
    for (int k = 1; k < parts->count; k++) {
        const float *more = (const float *)parts->of[k] + at;
        for (size_t i = 0; i < count; i++)
            sum[i] += more[i];
    }
    memcpy(out, sum, count * sizeof *sum);
}

static void sum_narrow(const struct joint_parts *parts, enum dtype dtype, size_t at,
                       size_t count, uint16_t *out)
{
    for (size_t i = 0; i < count; i++) {
        float sum = element(parts->of[0], dtype, at + i);
        for (int k = 1; k < parts->count; k++)
            sum += element(parts->of[k], dtype, at + i);
        out[i] = kernel_to_half(dtype, sum);
    }
}

void joint_sum(void *out, const struct joint_parts *parts, enum dtype dtype,
               const struct joint_rows *rows)
{
    for (size_t r = 0; r < rows->rows; r++) {
        for (size_t i = 0; i < rows->width; i += BLOCK) {
            const size_t count = rows->width - i < BLOCK ? rows->width - i : BLOCK;
            const size_t from = r * rows->apart + i, to = r * rows->out_apart + i;
            if (kernel_is_half(dtype))
                sum_narrow(parts, dtype, from, count, (uint16_t *)out + to);
            else
                sum_block(parts, from, count, (float *)out + to);
        }
    }
}

void joint_ids(int32_t *out, const int32_t *ids, size_t count, int64_t begin, int64_t end)
{
    for (size_t i = 0; i < count; i++)
        out[i] = ids[i] >= begin && ids[i] < end ? (int32_t)(ids[i] - begin) : -1;
}

/* Losses ------------------------------------------------------------------------------------ */

static double sum_of(const void *x, enum dtype dtype, size_t at, size_t count)
{
    double sum = 0;

    for (size_t i = 0; i < count; i++)
        sum += (double)element(x, dtype, at + i);
    return sum;
}

/* The first class of this rank's slice. */
static int64_t first_class(const struct kernel_problem *problem)
{
    const struct shape_slice *slice = &problem->attrs.slice;

    return slice_begin(slice->whole, slice->index, slice->count);
}

void joint_note_losses(const struct kernel_call *call, float *numbers)
{
    const struct kernel_problem *p = call->problem;
    const int64_t rows = p->in[0].shape.dim[0], c = p->in[0].shape.dim[1];
    const float *lse = call->in[1];
    const int32_t *labels = call->in[2];

    for (int64_t i = 0; i < rows; i++, numbers += JOINT_LOSS_NUMBERS) {
        const int64_t label = labels[i] - first_class(p);
        numbers[0] = lse[i];
        numbers[1] = label >= 0 && label < c
                         ? element(call->in[0], p->in[0].dtype, (size_t)(i * c + label))
                         : 0;
        numbers[2] = p->attrs.smoothing > 0 ? (float)sum_of(call->in[0], p->in[0].dtype,
                                                            (size_t)(i * c), (size_t)c)
                                            : 0;
    }
}

/* Number k of row i, as rank r has it. */
static double number_of(const struct joint_parts *numbers, int r, int64_t i, int k)
{
    return (double)((const float *)numbers->of[r])[i * JOINT_LOSS_NUMBERS + k];
}

/* The log of the sum over all ranks. */
static double join_logs(const struct joint_parts *numbers, int64_t i)
{
    double largest = number_of(numbers, 0, i, 0), sum = 0;

    for (int r = 1; r < numbers->count; r++)
        largest = fmax(largest, number_of(numbers, r, i, 0));
    for (int r = 0; r < numbers->count; r++)
        sum += exp(number_of(numbers, r, i, 0) - largest);
    return largest + log(sum);
}

void joint_join_losses(const struct kernel_call *call, const struct joint_parts *numbers)
{
    const struct kernel_problem *p = call->problem;
    const int64_t rows = p->in[0].shape.dim[0], classes = p->attrs.slice.whole;
    const double smoothing = (double)p->attrs.smoothing;
    const int32_t *labels = call->in[2];
    float *loss = call->out[0], *lse = call->out[1];
    double total = 0;

    for (int64_t i = 0; i < rows; i++) {
        double at_label = 0, sum = 0;
        lse[i] = 0;
        if (labels[i] < 0)
            continue;
        const double log_sum = join_logs(numbers, i);
        for (int r = 0; r < numbers->count; r++) {
            at_label += number_of(numbers, r, i, 1);
            sum += number_of(numbers, r, i, 2);
        }
        lse[i] = (float)log_sum;
        total += labels[i] < classes
                     ? log_sum - (1 - smoothing) * at_label - smoothing / (double)classes * sum
                     : (double)NAN;
    }
    loss[0] = (float)(total * (double)call->step->inv_batch);
}

/* Answers ----------------------------------------------------------------------------------- */

void joint_note_answers(const struct kernel_call *call, struct joint_answer *answers)
{
    const struct kernel_problem *p = call->problem;
    const int64_t rows = p->in[0].shape.dim[0], c = p->in[0].shape.dim[1];

    for (int64_t i = 0; i < rows; i++) {
        float largest = element(call->in[0], p->in[0].dtype, (size_t)(i * c));
        int64_t at = 0;
        for (int64_t j = 1; j < c; j++) {
            const float x = element(call->in[0], p->in[0].dtype, (size_t)(i * c + j));
            at = x > largest ? j : at;
            largest = x > largest ? x : largest;
        }
        answers[i] = (struct joint_answer){ largest, (int32_t)(first_class(p) + at) };
    }
}

void joint_join_answers(const struct kernel_call *call, const struct joint_parts *answers)
{
    const int64_t rows = call->problem->in[0].shape.dim[0];
    const int32_t *labels = call->in[1];
    int64_t correct = 0;

    for (int64_t i = 0; i < rows; i++) {
        struct joint_answer found = ((const struct joint_answer *)answers->of[0])[i];
        for (int r = 1; r < answers->count; r++) {
            const struct joint_answer *theirs = answers->of[r];
            if (theirs[i].logit > found.logit)
                found = theirs[i];
        }
        correct += found.class_number == labels[i];
    }
    *(float *)call->out[0] = (float)correct;
}

/* As a device's ----------------------------------------------------------------------------- */

static void cpu_sum(struct device_stream *stream, void *out, const struct joint_parts *parts,
                    enum dtype dtype, const struct joint_rows *rows)
{
    (void)stream;
    joint_sum(out, parts, dtype, rows);
}

static void cpu_ids(struct device_stream *stream, int32_t *out, const int32_t *ids,
                    size_t count, int64_t begin, int64_t end)
{
    (void)stream;
    joint_ids(out, ids, count, begin, end);
}

const struct device_joint_ops device_joint_cpu = {
    .sum = cpu_sum,
    .ids = cpu_ids,
    .note_losses = joint_note_losses,
    .join_losses = joint_join_losses,
    .note_answers = joint_note_answers,
    .join_answers = joint_join_answers,
};
