/* SPDX-License-Identifier: MIT */
/* reference_loss.c - losses, their gradients, and accuracy. */
#include <math.h>
#include <string.h>

#include "kernel/cpu/reference.h"

void reference_softmax_cross_entropy(const struct kernel_call *call)
{
    const int64_t m = call->problem->in[0].shape.dim[0], c = call->problem->in[0].shape.dim[1];
    const float *logits = call->in[0];
    const int32_t *labels = call->in[1];
    const double smoothing = (double)call->problem->attrs.smoothing;
    float *loss = call->out[0], *probs = call->out[1];
    double total = 0;

    for (int64_t i = 0; i < m; i++) {
        const float *row = logits + i * c;
        float largest = row[0];
        double sum = 0;

        for (int64_t j = 1; j < c; j++)
            largest = row[j] > largest ? row[j] : largest;
        for (int64_t j = 0; j < c; j++)
            sum += exp((double)row[j] - (double)largest);
        for (int64_t j = 0; j < c; j++)
            probs[i * c + j] = (float)(exp((double)row[j] - (double)largest) / sum);
        if (labels[i] >= 0 && labels[i] < c)
            total += log(sum) - (1 - smoothing) * ((double)row[labels[i]] - (double)largest);
        else
            total = NAN;
        for (int64_t j = 0; smoothing > 0 && j < c; j++)
            total -= smoothing / (double)c * ((double)row[j] - (double)largest);
    }
    loss[0] = (float)(total * (double)call->step->inv_batch);
}

void reference_softmax_cross_entropy_grad(const struct kernel_call *call)
{
    const int64_t m = call->problem->in[0].shape.dim[0], c = call->problem->in[0].shape.dim[1];
    const float *probs = call->in[0];
    const int32_t *labels = call->in[1];
    const float smoothing = call->problem->attrs.smoothing, spread = smoothing / (float)c;
    float *dlogits = call->out[0];

    for (int64_t i = 0; i < m; i++) {
        for (int64_t j = 0; j < c; j++) {
            const float target = j == labels[i] ? 1 - smoothing + spread : spread;
            dlogits[i * c + j] = (probs[i * c + j] - target) * call->step->inv_batch;
        }
    }
}

void reference_mse(const struct kernel_call *call)
{
    const int64_t count = shape_count(&call->problem->in[0].shape);
    const int64_t columns = count / call->problem->in[0].shape.dim[0];
    const float *x = call->in[0], *target = call->in[1];
    float *loss = call->out[0];
    double total = 0;

    for (int64_t i = 0; i < count; i++) {
        const double difference = (double)x[i] - (double)target[i];
        total += difference * difference;
    }
    loss[0] = (float)(total / (double)columns * (double)call->step->inv_batch);
}

void reference_mse_grad(const struct kernel_call *call)
{
    const int64_t count = shape_count(&call->problem->in[0].shape);
    const int64_t columns = count / call->problem->in[0].shape.dim[0];
    const float factor = (float)(2.0 * (double)call->step->inv_batch / (double)columns);
    const float *x = call->in[0], *target = call->in[1];
    float *dx = call->out[0];

    for (int64_t i = 0; i < count; i++)
        dx[i] = (x[i] - target[i]) * factor;
}

void reference_accuracy(const struct kernel_call *call)
{
    const int64_t m = call->problem->in[0].shape.dim[0], c = call->problem->in[0].shape.dim[1];
    const float *logits = call->in[0];
    const int32_t *labels = call->in[1];
    int32_t correct = 0;

    for (int64_t i = 0; i < m; i++) {
        const float *row = logits + i * c;
        int64_t first_largest = 0;
        for (int64_t j = 1; j < c; j++) {
            if (row[j] > row[first_largest])
                first_largest = j;
        }
        correct += first_largest == labels[i];
    }
    if (call->problem->out[0].dtype == DTYPE_I32)
        *(int32_t *)call->out[0] = correct;
    else
        *(float *)call->out[0] = (float)correct;
}

void reference_softmax_loss(const struct kernel_call *call)
{
    const struct kernel_tensor count = { .dtype = DTYPE_F32, .shape = shape_1(1) };
    const struct kernel_step step = { .inv_batch = (float)kernel_inv_batch(call->step) };
    const struct kernel_problem counts = { .in = { call->problem->in[0] }, .out = { count } };
    float *dlogits = call->out[2]; /* softmax first */

    reference_softmax_cross_entropy(&(struct kernel_call){ .problem = call->problem,
                                                           .step = &step,
                                                           .in = { call->in[0], call->in[1] },
                                                           .out = { call->out[0], dlogits } });
    reference_accuracy(&(struct kernel_call){
        .problem = &counts, .in = { call->in[0], call->in[1] }, .out = { call->out[1] } });
    reference_softmax_cross_entropy_grad(&(struct kernel_call){ .problem = call->problem,
                                                                .step = call->step,
                                                                .in = { dlogits, call->in[1] },
                                                                .out = { dlogits } });
}

/* Log of the sum of a row's exponentials. */
static double log_sum(const float *row, int64_t c)
{
    float largest = row[0];
    double sum = 0;

    for (int64_t j = 1; j < c; j++)
        largest = row[j] > largest ? row[j] : largest;
    for (int64_t j = 0; j < c; j++)
        sum += exp((double)row[j] - (double)largest);
    return (double)largest + log(sum);
}

void reference_token_cross_entropy(const struct kernel_call *call)
{
    const int64_t m = call->problem->in[0].shape.dim[0], c = call->problem->in[0].shape.dim[1];
    const double smoothing = (double)call->problem->attrs.smoothing;
    const bool is_slice = call->problem->attrs.slice.count > 0;
    const int32_t *labels = call->in[1];
    float *loss = call->out[0], *lse = call->out[1];
    double total = 0;

    for (int64_t i = 0; i < m; i++) {
        const float *row = (const float *)call->in[0] + i * c;

        lse[i] = 0;
        if (labels[i] < 0)
            continue;
        const double log_of_sum = log_sum(row, c);
        lse[i] = (float)log_of_sum;
        if (is_slice)
            continue;
        total += labels[i] < c ? log_of_sum - (1 - smoothing) * (double)row[labels[i]] : NAN;
        for (int64_t j = 0; smoothing > 0 && j < c; j++)
            total -= smoothing / (double)c * (double)row[j];
    }
    loss[0] = (float)(total * (double)call->step->inv_batch);
}

void reference_token_cross_entropy_grad(const struct kernel_call *call)
{
    const int64_t m = call->problem->in[0].shape.dim[0], c = call->problem->in[0].shape.dim[1];
    const struct shape_slice *slice = &call->problem->attrs.slice;
    const float smoothing = call->problem->attrs.smoothing;
    const float spread = smoothing / (float)slice_whole(slice, c);
    const int64_t first =
        slice->count > 0 ? slice_begin(slice->whole, slice->index, slice->count) : 0;
    const float *logits = call->in[0], *lse = call->in[1];
    const int32_t *labels = call->in[2];
    float *dlogits = call->out[0];

    for (int64_t i = 0; i < m; i++) {
        for (int64_t j = 0; j < c; j++) {
            const float target = first + j == labels[i] ? 1 - smoothing + spread : spread;
            const float share = (float)exp((double)logits[i * c + j] - (double)lse[i]);
            dlogits[i * c + j] = labels[i] < 0 ? 0 : (share - target) * call->step->inv_batch;
        }
    }
}

/* Logits, then one number a row. */
size_t reference_token_loss_scratch(const struct kernel_problem *problem)
{
    const int64_t m = problem->in[0].shape.dim[0], n = problem->in[1].shape.dim[0];

    return (size_t)(m * n + m) * sizeof(float);
}

void reference_linear_token_loss(const struct kernel_call *call)
{
    const struct kernel_problem *p = call->problem;
    const struct kernel_tensor *x = &p->in[0], *w = &p->in[1], *labels = &p->in[2];
    const int64_t m = x->shape.dim[0], n = w->shape.dim[0];
    const struct kernel_tensor logits = { .shape = shape_2(m, n) };
    const struct kernel_step step = { .inv_batch = (float)kernel_inv_batch(call->step) };
    float *all = call->scratch, *lse = all + m * n;
    const struct {
        void (*run)(const struct kernel_call *call);
        struct kernel_problem problem;
        const void *in[3];
        void *out[2];
        const struct kernel_step *step;
    } parts[] = {
        { reference_linear,
          { .in = { *x, *w }, .out = { logits }, .n_in = 2 },
          { call->in[0], call->in[1] },
          { all },
          &step },
        { reference_token_cross_entropy,
          { .in = { logits, *labels }, .attrs = p->attrs },
          { all, call->in[2] },
          { call->out[0], lse },
          &step },
        { reference_accuracy,
          { .in = { logits, *labels } },
          { all, call->in[2] },
          { call->out[1] },
          &step },
        { reference_token_cross_entropy_grad,
          { .in = { logits }, .attrs = p->attrs },
          { all, lse, call->in[2] },
          { all },
          call->step },
        { reference_linear_grad_input,
          { .in = { logits, *w }, .out = { *x } },
          { all, call->in[1] },
          { call->out[2] },
          &step },
        { reference_linear_grad_weight,
          { .in = { *x, logits }, .out = { *w }, .n_out = 1 },
          { call->in[0], all },
          { call->out[3] },
          &step },
    };

    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        struct kernel_call part = { .problem = &parts[i].problem, .step = parts[i].step };
        memcpy(part.in, parts[i].in, sizeof parts[i].in);
        memcpy(part.out, parts[i].out, sizeof parts[i].out);
        parts[i].run(&part);
    }
}
