/* SPDX-License-Identifier: MIT */
/* loss.c - softmax, alone and with cross entropy, of samples and of tokens, mean squared error, accuracy.
 *
 * A row of logits is worked on in blocks of SIMD_LANES, the last filled up with -infinity,
 * whose exponential is an exact 0. exp and log are our own, so that no library changes the
 * bits. Losses of rows are added in double in the rows' order and rounded once.
 */
#include <math.h>
#include <string.h>

#include "kernel/cpu/rows.h"
#include "kernel/cpu/simd_block.h"

static float largest_of(const float *x, size_t c)
{
    float lane[SIMD_LANES], block[SIMD_LANES];

    simd_store(simd_load(x, c, -INFINITY), SIMD_LANES, lane);
    for (size_t j = SIMD_LANES; j < c; j += SIMD_LANES) {
        simd_store(simd_load(x + j, c - j, -INFINITY), SIMD_LANES, block);
#pragma omp simd
        for (int l = 0; l < SIMD_LANES; l++)
            lane[l] = block[l] > lane[l] ? block[l] : lane[l];
    }
    return simd_largest(lane);
}

/* probs = softmax(x); returns log of the sum of exp(x - *out_largest). */
static double softmax_row(const float *x, size_t c, float *probs, float *out_largest)
{
    const float largest = largest_of(x, c);
    float block[SIMD_LANES], lane[SIMD_LANES] = { 0 };

    for (size_t j = 0; j < c; j += SIMD_LANES) {
        simd_store(simd_load(x + j, c - j, -INFINITY), SIMD_LANES, block);
#pragma omp simd
        for (int l = 0; l < SIMD_LANES; l++) {
            block[l] = simd_exp_not_positive(block[l] - largest);
            lane[l] += block[l];
        }
        simd_store(simd_load(block, SIMD_LANES, 0), c - j, probs + j);
    }
    const float sum = simd_sum(lane), scale = 1 / sum;
#pragma omp simd
    for (size_t j = 0; j < c; j++)
        probs[j] *= scale;
    *out_largest = largest;
    return simd_log_from_one((double)sum);
}

/* Mean of x - largest over a row. */
static double mean_below(const float *x, size_t c, float largest)
{
    const size_t whole = c / SIMD_LANES * SIMD_LANES;
    double lane[SIMD_LANES] = { 0 };

    for (size_t j = 0; j < whole; j += SIMD_LANES) {
#pragma omp simd
        for (size_t l = 0; l < SIMD_LANES; l++)
            lane[l] += (double)x[j + l] - (double)largest;
    }
    for (size_t j = whole; j < c; j++)
        lane[j - whole] += (double)x[j] - (double)largest;
    return simd_sum_double(lane) / (double)c;
}

/* Leaves the loss of each row in the scratch: log of the sum, less what the targets weigh. */
static void softmax_rows(const struct kernel_call *call, size_t from, size_t to)
{
    const size_t c = (size_t)call->problem->in[0].shape.dim[1];
    const double smoothing = (double)call->problem->attrs.smoothing;
    const int32_t *labels = call->in[1];
    double *losses = call->scratch;

    for (size_t i = from; i < to; i++) {
        const float *x = (const float *)call->in[0] + i * c;
        float largest;
        const double log_sum = softmax_row(x, c, (float *)call->out[1] + i * c, &largest);

        if (labels[i] >= 0 && (size_t)labels[i] < c)
            losses[i] = log_sum - (1 - smoothing) * ((double)x[labels[i]] - (double)largest);
        else
            losses[i] = NAN;
        if (smoothing > 0)
            losses[i] -= smoothing * mean_below(x, c, largest);
    }
}

static size_t row_scratch(const struct kernel_problem *problem)
{
    return (size_t)problem->in[0].shape.dim[0] * sizeof(double);
}

static float add_losses(const struct kernel_call *call)
{
    const size_t m = (size_t)call->problem->in[0].shape.dim[0];
    const double *losses = call->scratch;
    double total = 0;

    for (size_t i = 0; i < m; i++)
        total += losses[i];
    return (float)(total * (double)call->step->inv_batch);
}

static void run_softmax_cross_entropy(const struct kernel_call *call)
{
    const int64_t *dim = call->problem->in[0].shape.dim;

    simd_for(call, (size_t)dim[0], (size_t)dim[1], softmax_rows);
    *(float *)call->out[0] = add_losses(call);
}

static void softmax_grad_rows(const struct kernel_call *call, size_t from, size_t to)
{
    const size_t c = (size_t)call->problem->in[0].shape.dim[1];
    const float inv_batch = call->step->inv_batch, smoothing = call->problem->attrs.smoothing;
    const float spread = smoothing / (float)c, at_label = 1 - smoothing + spread;
    const int32_t *labels = call->in[1];
    const float *probs = call->in[0];
    float *dlogits = call->out[0];

#pragma omp simd
    for (size_t i = from * c; i < to * c; i++)
        dlogits[i] = (probs[i] - spread) * inv_batch;
    for (size_t i = from; i < to; i++) {
        if (labels[i] < 0 || (size_t)labels[i] >= c)
            continue;
        const size_t at = i * c + (size_t)labels[i];
        dlogits[at] = (probs[at] - at_label) * inv_batch;
    }
}

static void run_softmax_cross_entropy_grad(const struct kernel_call *call)
{
    const int64_t *dim = call->problem->in[0].shape.dim;

    simd_for(call, (size_t)dim[0], (size_t)dim[1], softmax_grad_rows);
}

/* Tokens: labels below 0 are left out, and of the softmax only its logarithm's sum is kept --- */

/* Sum of exp(x - largest). */
static float exp_sum(const float *x, size_t c, float largest)
{
    const size_t whole = c / SIMD_LANES * SIMD_LANES;
    float block[SIMD_LANES], lane[SIMD_LANES] = { 0 };

    for (size_t j = 0; j < whole; j += SIMD_LANES) {
#pragma omp simd
        for (size_t l = 0; l < SIMD_LANES; l++)
            lane[l] += simd_exp_not_positive(x[j + l] - largest);
    }
    if (whole < c) {
        simd_store(simd_load(x + whole, c - whole, -INFINITY), SIMD_LANES, block);
#pragma omp simd
        for (int l = 0; l < SIMD_LANES; l++)
            lane[l] += simd_exp_not_positive(block[l] - largest);
    }
    return simd_sum(lane);
}

static void token_rows(const struct kernel_call *call, size_t from, size_t to)
{
    const size_t c = (size_t)call->problem->in[0].shape.dim[1];
    const double smoothing = (double)call->problem->attrs.smoothing;
    const int32_t *labels = call->in[1];
    float *lse = call->out[1];
    double *losses = call->scratch;

    for (size_t i = from; i < to; i++) {
        const float *x = (const float *)call->in[0] + i * c;

        losses[i] = lse[i] = 0;
        if (labels[i] < 0)
            continue;
        const float largest = largest_of(x, c);
        const double log_sum = simd_log_from_one((double)exp_sum(x, c, largest));
        lse[i] = (float)((double)largest + log_sum);
        if (call->problem->attrs.slice.count > 0)
            continue; /* the label may be another slice's */
        if ((size_t)labels[i] < c)
            losses[i] = log_sum - (1 - smoothing) * ((double)x[labels[i]] - (double)largest);
        else
            losses[i] = NAN;
        if (smoothing > 0)
            losses[i] -= smoothing * mean_below(x, c, largest);
    }
}

static void run_token_cross_entropy(const struct kernel_call *call)
{
    const int64_t *dim = call->problem->in[0].shape.dim;

    simd_for(call, (size_t)dim[0], (size_t)dim[1], token_rows);
    *(float *)call->out[0] = add_losses(call);
}

/* The output may be the logits' buffer. */
static void token_grad_rows(const struct kernel_call *call, size_t from, size_t to)
{
    const size_t c = (size_t)call->problem->in[0].shape.dim[1];
    const struct shape_slice *slice = &call->problem->attrs.slice;
    const float inv_batch = call->step->inv_batch, smoothing = call->problem->attrs.smoothing;
    const float spread = smoothing / (float)slice_whole(slice, (int64_t)c);
    const float at_label = 1 - smoothing + spread;
    const int64_t first =
        slice->count > 0 ? slice_begin(slice->whole, slice->index, slice->count) : 0;
    const float *lse = call->in[1];
    const int32_t *labels = call->in[2];

    for (size_t i = from; i < to; i++) {
        const float *x = (const float *)call->in[0] + i * c;
        float *dx = (float *)call->out[0] + i * c;
        const float log_sum = lse[i];
        const int64_t label = labels[i] - first;
        const bool is_class = label >= 0 && label < (int64_t)c;
        const float logit = is_class ? x[label] : 0;

        if (labels[i] < 0) {
            memset(dx, 0, c * sizeof *dx);
            continue;
        }
#pragma omp simd
        for (size_t j = 0; j < c; j++)
            dx[j] = (simd_exp_not_positive(x[j] - log_sum) - spread) * inv_batch;
        if (is_class)
            dx[label] = (simd_exp_not_positive(logit - log_sum) - at_label) * inv_batch;
    }
}

static void run_token_cross_entropy_grad(const struct kernel_call *call)
{
    const int64_t *dim = call->problem->in[0].shape.dim;

    simd_for(call, (size_t)dim[0], (size_t)dim[1], token_grad_rows);
}

/* Mean squared error ------------------------------------------------------------------- */

static size_t columns_of(const struct kernel_call *call)
{
    const struct shape *shape = &call->problem->in[0].shape;

    return (size_t)(shape_count(shape) / shape->dim[0]);
}

static void mse_rows(const struct kernel_call *call, size_t from, size_t to)
{
    const size_t columns = columns_of(call), whole = columns / SIMD_LANES * SIMD_LANES;
    double *losses = call->scratch;

    for (size_t i = from; i < to; i++) {
        const float *x = (const float *)call->in[0] + i * columns;
        const float *target = (const float *)call->in[1] + i * columns;
        double lane[SIMD_LANES] = { 0 };

        for (size_t j = 0; j < whole; j += SIMD_LANES) {
#pragma omp simd
            for (size_t l = 0; l < SIMD_LANES; l++) {
                const double d = (double)x[j + l] - (double)target[j + l];
                lane[l] += d * d;
            }
        }
        for (size_t j = whole; j < columns; j++) {
            const double d = (double)x[j] - (double)target[j];
            lane[j - whole] += d * d;
        }
        losses[i] = simd_sum_double(lane) / (double)columns;
    }
}

static void run_mse(const struct kernel_call *call)
{
    simd_for(call, (size_t)call->problem->in[0].shape.dim[0], columns_of(call), mse_rows);
    *(float *)call->out[0] = add_losses(call);
}

static void mse_grad_range(const struct kernel_call *call, size_t from, size_t to)
{
    const float factor =
        (float)(2.0 * (double)call->step->inv_batch / (double)columns_of(call));
    const float *x = call->in[0], *target = call->in[1];
    float *dx = call->out[0];

#pragma omp simd
    for (size_t i = from; i < to; i++)
        dx[i] = (x[i] - target[i]) * factor;
}

static void run_mse_grad(const struct kernel_call *call)
{
    simd_for(call, (size_t)shape_count(&call->problem->in[0].shape), 1, mse_grad_range);
}

/* Accuracy ----------------------------------------------------------------------------- */

/* 0 if there is none, which NaN may bring about. */
static size_t first_equal(const float *x, size_t c, float value)
{
    float block[SIMD_LANES];

    for (size_t j = 0; j < c; j += SIMD_LANES) {
        int some = 0;

        simd_store(simd_load(x + j, c - j, NAN), SIMD_LANES, block);
#pragma omp simd reduction(| : some)
        for (int l = 0; l < SIMD_LANES; l++)
            some |= block[l] == value;
        for (size_t l = 0; some && l < SIMD_LANES; l++) {
            if (block[l] == value)
                return j + l;
        }
    }
    return 0;
}

/* Leaves in the scratch whether each row is right. A label below 0 is not. */
static void accuracy_rows(const struct kernel_call *call, size_t from, size_t to)
{
    const size_t c = (size_t)call->problem->in[0].shape.dim[1];
    const int32_t *labels = call->in[1];
    uint8_t *right = call->scratch;

    for (size_t i = from; i < to; i++) {
        const float *x = (const float *)call->in[0] + i * c;
        right[i] = labels[i] >= 0 && first_equal(x, c, largest_of(x, c)) == (size_t)labels[i];
    }
}

static size_t accuracy_scratch(const struct kernel_problem *problem)
{
    return (size_t)problem->in[0].shape.dim[0];
}

static void run_accuracy(const struct kernel_call *call)
{
    const int64_t *dim = call->problem->in[0].shape.dim;
    const uint8_t *right = call->scratch;
    int32_t correct = 0;

    simd_for(call, (size_t)dim[0], (size_t)dim[1], accuracy_rows);
    for (int64_t i = 0; i < dim[0]; i++)
        correct += right[i];
    if (call->problem->out[0].dtype == DTYPE_I32)
        *(int32_t *)call->out[0] = correct;
    else
        *(float *)call->out[0] = (float)correct;
}

static void softmax_alone_rows(const struct kernel_call *call, size_t from, size_t to)
{
    const size_t c = (size_t)call->problem->in[0].shape.dim[1];

    for (size_t i = from; i < to; i++) {
        float largest;
        (void)softmax_row((const float *)call->in[0] + i * c, c, (float *)call->out[0] + i * c,
                          &largest);
    }
}

static void run_softmax(const struct kernel_call *call)
{
    const int64_t *dim = call->problem->in[0].shape.dim;

    simd_for(call, (size_t)dim[0], (size_t)dim[1], softmax_alone_rows);
}

static void softmax_alone_grad_rows(const struct kernel_call *call, size_t from, size_t to)
{
    const size_t c = (size_t)call->problem->in[0].shape.dim[1];

    for (size_t i = from; i < to; i++) {
        const float *dy = (const float *)call->in[0] + i * c;
        const float *y = (const float *)call->in[1] + i * c;
        float *dx = (float *)call->out[0] + i * c, lane[SIMD_LANES];
        struct simd_floats products = simd_set(0);

        for (size_t j = 0; j < c; j += SIMD_LANES)
            products = simd_add(products, simd_multiply(simd_load(dy + j, c - j, 0),
                                                        simd_load(y + j, c - j, 0)));
        simd_store(products, SIMD_LANES, lane);
        const float sum = simd_sum(lane);
#pragma omp simd
        for (size_t j = 0; j < c; j++)
            dx[j] = y[j] * (dy[j] - sum);
    }
}

static void run_softmax_grad(const struct kernel_call *call)
{
    const int64_t *dim = call->problem->in[0].shape.dim;

    simd_for(call, (size_t)dim[0], (size_t)dim[1], softmax_alone_grad_rows);
}

const struct kernel SIMD_TABLE(kernel_loss_rows)[] = {
    { .op = "softmax", .name = "own", .run = run_softmax },
    { .op = "softmax_grad", .name = "own", .run = run_softmax_grad },
    { .op = "softmax_cross_entropy",
      .name = "own",
      .scratch_bytes = row_scratch,
      .run = run_softmax_cross_entropy },
    { .op = "softmax_cross_entropy_grad",
      .name = "own",
      .run = run_softmax_cross_entropy_grad },
    { .op = "mse", .name = "own", .scratch_bytes = row_scratch, .run = run_mse },
    { .op = "mse_grad", .name = "own", .run = run_mse_grad },
    { .op = "accuracy", .name = "own", .scratch_bytes = accuracy_scratch, .run = run_accuracy },
    { .op = "token_cross_entropy",
      .name = "own",
      .scratch_bytes = row_scratch,
      .run = run_token_cross_entropy },
    { .op = "token_cross_entropy_grad", .name = "own", .run = run_token_cross_entropy_grad },
    { .op = "token_accuracy",
      .name = "own",
      .scratch_bytes = accuracy_scratch,
      .run = run_accuracy },
    { 0 },
};
