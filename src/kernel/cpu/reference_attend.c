/* SPDX-License-Identifier: MIT */
/* reference_attend.c - an LSTM layer with additive attention and its gradient, row by row and step by
 * step, in double. The formulas stand in kernel.h; the cell's in reference_recurrent.c. */
#include <math.h>

#include "kernel/cpu/attend.h"
#include "kernel/cpu/reference.h"

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

/* (W x)_j of a weight of `outputs` rows that lies output innermost. */
static double product(const float *w, int64_t outputs, int64_t j, const float *x,
                      int64_t inputs)
{
    double sum = 0;

    for (int64_t k = 0; k < inputs; k++)
        sum += (double)w[k * outputs + j] * (double)x[k];
    return sum;
}

/* Queries, weights and context of one row and step. */
static void attend(const struct kernel_call *call, const struct attend *a, int64_t row,
                   int64_t t)
{
    const struct recurrent *r = &a->r;
    const int64_t at = row * r->steps + t;
    const int32_t *source = (const int32_t *)call->in[ATTEND_SOURCE] + row * a->places;
    const float *keys = (const float *)call->in[ATTEND_KEYS] + row * a->places * a->keys;
    const float *memory = (const float *)call->in[ATTEND_MEMORY] + row * a->places * a->memory;
    const float *h = (const float *)call->out[RECURRENT_BEFORE] + at * r->units;
    const float *v = call->in[ATTEND_SCORE];
    float *weights = (float *)call->out[ATTEND_WEIGHTS] + at * a->places;
    float *query = (float *)call->out[ATTEND_QUERY] + at * a->keys;
    float *context = (float *)call->out[ATTEND_CONTEXT] + at * a->memory;
    double largest = -INFINITY, total = 0;

    for (int64_t k = 0; k < a->keys; k++)
        query[k] = (float)product(call->in[ATTEND_QUERY_WEIGHT], a->keys, k, h, r->units);
    for (int64_t s = 0; s < a->places; s++) {
        double score = 0;
        for (int64_t k = 0; k < a->keys; k++)
            score += (double)v[k] * tanh((double)query[k] + (double)keys[s * a->keys + k]);
        weights[s] = (float)score;
        if (source[s] >= 0 && score > largest)
            largest = score;
    }
    for (int64_t s = 0; s < a->places; s++)
        total += source[s] < 0 ? 0 : exp((double)weights[s] - largest);
    for (int64_t s = 0; s < a->places; s++)
        weights[s] = source[s] < 0 ? 0 : (float)(exp((double)weights[s] - largest) / total);
    for (int64_t e = 0; e < a->memory; e++) {
        double sum = 0;
        for (int64_t s = 0; s < a->places; s++)
            sum += (double)weights[s] * (double)memory[s * a->memory + e];
        context[e] = (float)sum;
    }
}

static void step_forward(const struct kernel_call *call, const struct attend *a, int64_t row,
                         int64_t t, float *state)
{
    const struct recurrent *r = &a->r;
    const int64_t at = row * r->steps + t;
    const bool is_over = ((const int32_t *)call->in[RECURRENT_IDS])[at] < 0;
    const float *gates = (const float *)call->in[RECURRENT_GATES] + at * r->gates;
    const float *b = call->in[RECURRENT_BIAS];
    const float *h = (const float *)call->out[RECURRENT_BEFORE] + at * r->units;
    const float *context = (const float *)call->out[ATTEND_CONTEXT] + at * a->memory;
    float *acts = (float *)call->out[RECURRENT_ACTS] + at * r->gates;

    for (int64_t j = 0; j < r->units; j++) {
        const double c = (double)state[r->units + j];
        double x[4];
        for (int64_t g = 0; g < 4; g++) {
            const int64_t n = g * r->units + j;
            x[g] = (double)gates[n] + (double)b[n] +
                   product(call->in[RECURRENT_WEIGHT], r->gates, n, h, r->units) +
                   product(call->in[ATTEND_CONTEXT_WEIGHT], r->gates, n, context, a->memory);
            x[g] = g == 2 ? tanh(x[g]) : sigmoid(x[g]);
            acts[n] = (float)x[g];
        }
        const double next = x[1] * c + x[0] * x[2], y = x[3] * tanh(next);
        ((float *)call->out[RECURRENT_KEPT])[at * r->units + j] = (float)c;
        ((float *)call->out[RECURRENT_Y])[at * r->units + j] = is_over ? 0 : (float)y;
        if (!is_over) {
            state[j] = (float)y;
            state[r->units + j] = (float)next;
        }
    }
}

void reference_attend(const struct kernel_call *call)
{
    const struct attend a = attend_of(call->problem);
    const struct recurrent *r = &a.r;

    for (int64_t row = 0; row < r->rows; row++) {
        float *state = (float *)call->out[RECURRENT_LAST] + row * r->state_row;

        memcpy(state, (const float *)call->in[RECURRENT_STATE] + row * r->state_row,
               (size_t)r->state_row * sizeof *state);
        for (int64_t t = 0; t < r->steps; t++) {
            memcpy((float *)call->out[RECURRENT_BEFORE] + row * r->y_row + t * r->units, state,
                   (size_t)r->units * sizeof *state);
            attend(call, &a, row, t);
            step_forward(call, &a, row, t, state);
        }
    }
}

/* Gradients ---------------------------------------------------------------------------- */

/* dgates of one row and step; dstate becomes that of the state before without what flows through the
 * gates. */
static void cell_backward(const struct kernel_call *call, const struct recurrent *r, int64_t at,
                          float *dstate)
{
    const bool is_over = ((const int32_t *)call->in[RECURRENT_GRAD_IDS])[at] < 0;
    const float *acts = (const float *)call->in[RECURRENT_GRAD_ACTS] + at * r->gates;
    const float *kept = (const float *)call->in[RECURRENT_GRAD_KEPT] + at * r->units;
    const float *dy = (const float *)call->in[ATTEND_GRAD_DY] + at * r->units;
    float *dgates = (float *)call->out[ATTEND_DGATES] + at * r->gates;

    for (int64_t j = 0; j < r->units; j++) {
        const double i = (double)acts[j], f = (double)acts[r->units + j];
        const double g = (double)acts[2 * r->units + j], o = (double)acts[3 * r->units + j];
        const double c = (double)kept[j], bent = tanh(f * c + i * g);
        const double dh = (double)dstate[j] + (double)dy[j];
        const double dc = (double)dstate[r->units + j] + dh * o * (1 - bent * bent);
        const double flow[4] = { dc * g * i * (1 - i), dc * c * f * (1 - f),
                                 dc * i * (1 - g * g), dh * bent * o * (1 - o) };
        for (int64_t k = 0; k < 4; k++)
            dgates[k * r->units + j] = is_over ? 0 : (float)flow[k];
        if (!is_over) {
            dstate[j] = 0;
            dstate[r->units + j] = (float)(dc * f);
        }
    }
}

/* What flows from the context of a step to the source, the query and the scores. */
static void attend_backward(const struct kernel_call *call, const struct attend *a, int64_t row,
                            int64_t at, const double *dcontext, double *dscore_sum)
{
    const float *keys = (const float *)call->in[ATTEND_GRAD_KEYS] + row * a->places * a->keys;
    const float *memory =
        (const float *)call->in[ATTEND_GRAD_MEMORY] + row * a->places * a->memory;
    const float *query = (const float *)call->in[ATTEND_GRAD_QUERY] + at * a->keys;
    const float *weights = (const float *)call->in[ATTEND_GRAD_WEIGHTS] + at * a->places;
    const float *v = call->in[ATTEND_GRAD_SCORE];
    float *dkeys = (float *)call->out[ATTEND_DKEYS] + row * a->places * a->keys;
    float *dmemory = (float *)call->out[ATTEND_DMEMORY] + row * a->places * a->memory;
    float *dquery = (float *)call->out[ATTEND_DQUERY] + at * a->keys;
    double mean = 0;

    for (int64_t s = 0; s < a->places; s++) {
        for (int64_t e = 0; e < a->memory; e++) {
            mean += (double)weights[s] * dcontext[e] * (double)memory[s * a->memory + e];
            dmemory[s * a->memory + e] += (float)((double)weights[s] * dcontext[e]);
        }
    }
    for (int64_t k = 0; k < a->keys; k++)
        dquery[k] = 0;
    for (int64_t s = 0; s < a->places; s++) {
        double dscore = -mean;
        for (int64_t e = 0; e < a->memory; e++)
            dscore += dcontext[e] * (double)memory[s * a->memory + e];
        dscore *= (double)weights[s];
        for (int64_t k = 0; k < a->keys; k++) {
            const double u = tanh((double)query[k] + (double)keys[s * a->keys + k]);
            const double flow = dscore * (double)v[k] * (1 - u * u);
            dscore_sum[k] += dscore * u;
            dkeys[s * a->keys + k] += (float)flow;
            dquery[k] += (float)flow;
        }
    }
}

size_t reference_attend_grad_scratch(const struct kernel_problem *problem)
{
    const struct attend a = attend_of(problem);

    return (size_t)(a.memory + a.keys) * sizeof(double);
}

static void step_backward(const struct kernel_call *call, const struct attend *a, int64_t row,
                          int64_t t, float *dstate)
{
    const struct recurrent *r = &a->r;
    const int64_t at = row * r->steps + t;
    const float *w = call->in[RECURRENT_GRAD_WEIGHT];
    const float *w_context = call->in[ATTEND_GRAD_CONTEXT_WEIGHT];
    const float *w_query = call->in[ATTEND_GRAD_QUERY_WEIGHT];
    const float *dgates = (const float *)call->out[ATTEND_DGATES] + at * r->gates;
    const float *dquery = (const float *)call->out[ATTEND_DQUERY] + at * a->keys;
    double *dcontext = call->scratch;

    cell_backward(call, r, at, dstate);
    for (int64_t e = 0; e < a->memory; e++) {
        dcontext[e] = 0;
        for (int64_t j = 0; j < r->gates; j++)
            dcontext[e] += (double)dgates[j] * (double)w_context[e * r->gates + j];
    }
    attend_backward(call, a, row, at, dcontext, dcontext + a->memory);
    for (int64_t k = 0; k < r->units; k++) {
        double sum = (double)dstate[k];
        for (int64_t j = 0; j < r->gates; j++)
            sum += (double)dgates[j] * (double)w[k * r->gates + j];
        for (int64_t j = 0; j < a->keys; j++)
            sum += (double)dquery[j] * (double)w_query[k * a->keys + j];
        dstate[k] = (float)sum;
    }
}

void reference_attend_grad(const struct kernel_call *call)
{
    const struct attend a = attend_of(call->problem);
    const struct recurrent *r = &a.r;
    double *dscore = (double *)call->scratch + a.memory;

    memset(call->out[ATTEND_DKEYS], 0, (size_t)(r->rows * a.places * a.keys) * sizeof(float));
    memset(call->out[ATTEND_DMEMORY], 0,
           (size_t)(r->rows * a.places * a.memory) * sizeof(float));
    for (int64_t k = 0; k < a.keys; k++)
        dscore[k] = 0;
    for (int64_t row = 0; row < r->rows; row++) {
        float *dstate = (float *)call->out[ATTEND_DSTATE] + row * r->state_row;
        memset(dstate, 0, (size_t)r->state_row * sizeof *dstate);
        for (int64_t t = r->steps - 1; t >= 0; t--)
            step_backward(call, &a, row, t, dstate);
    }
    for (int64_t k = 0; k < a.keys; k++)
        ((float *)call->out[ATTEND_DSCORE])[k] = (float)dscore[k];
}
