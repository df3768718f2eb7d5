/* SPDX-License-Identifier: MIT */
/* reference_recurrent.c - LSTM and GRU over sequences, and their gradients, row by row and step by
 * step, in double.
 *
 * w_hh has shape (G*H, H) and lies as H rows of G*H (LAYOUT_IO). With s = sigmoid, a_g = gates_g +
 * b_g + (W_hh h)_g and h, c the state before a step (PyTorch's definitions):
 *
 *   LSTM  i = s(a_i), f = s(a_f), g = tanh(a_g), o = s(a_o);  c' = f c + i g, h' = o tanh(c')
 *   GRU   r = s(a_r), z = s(a_z), q = b_n + (W_hh h)_n, n = tanh(gates_n + r q);
 *         h' = (1 - z) n + z h
 *
 * Kept for backward: the gates as they came out, and c or q.
 */
#include <math.h>

#include "kernel/cpu/recurrent.h"
#include "kernel/cpu/reference.h"

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

/* (W_hh h)_j + b_j of one row. */
static double hidden_sum(const struct recurrent *r, const float *w, const float *b,
                         const float *h, int64_t j)
{
    double sum = (double)b[j];

    for (int64_t k = 0; k < r->units; k++)
        sum += (double)w[k * r->gates + j] * (double)h[k];
    return sum;
}

/* What one unit makes of a step. */
struct next {
    double h, c;
    double acts[4], kept;
};

static struct next lstm_unit(const double x[4], const double hidden[4], double c)
{
    const double i = sigmoid(x[0] + hidden[0]), f = sigmoid(x[1] + hidden[1]);
    const double g = tanh(x[2] + hidden[2]), o = sigmoid(x[3] + hidden[3]);
    const double next = f * c + i * g;

    return (struct next){ o * tanh(next), next, { i, f, g, o }, c };
}

static struct next gru_unit(const double x[4], const double hidden[4], double h)
{
    const double reset = sigmoid(x[0] + hidden[0]), z = sigmoid(x[1] + hidden[1]);
    const double n = tanh(x[2] + reset * hidden[2]);

    return (struct next){ (1 - z) * n + z * h, 0, { reset, z, n }, hidden[2] };
}

/* Step t of one row: from `before`, and from the c of the state, to y and the state. */
static void step_forward(const struct kernel_call *call, const struct recurrent *r, int64_t row,
                         int64_t t, float *state)
{
    const float *w = call->in[RECURRENT_WEIGHT], *b = call->in[RECURRENT_BIAS];
    const bool is_over = ((const int32_t *)call->in[RECURRENT_IDS])[row * r->steps + t] < 0;
    const int64_t at = row * r->y_row + t * r->units, gate = row * r->gates_row + t * r->gates;
    const float *gates = (const float *)call->in[RECURRENT_GATES] + gate;
    const float *before = (const float *)call->out[RECURRENT_BEFORE] + at;
    float *y = (float *)call->out[RECURRENT_Y] + at;
    float *acts = (float *)call->out[RECURRENT_ACTS] + gate;
    float *kept = (float *)call->out[RECURRENT_KEPT] + at;

    for (int64_t j = 0; j < r->units; j++) {
        double x[4] = { 0 }, hidden[4] = { 0 };
        for (int64_t g = 0; g * r->units < r->gates; g++) {
            x[g] = (double)gates[g * r->units + j];
            hidden[g] = hidden_sum(r, w, b, before, g * r->units + j);
        }
        const struct next next = r->is_lstm ? lstm_unit(x, hidden, (double)state[r->units + j])
                                            : gru_unit(x, hidden, (double)before[j]);
        for (int64_t g = 0; g * r->units < r->gates; g++)
            acts[g * r->units + j] = (float)next.acts[g];
        kept[j] = (float)next.kept;
        y[j] = is_over ? 0 : (float)next.h;
        if (!is_over && r->is_lstm)
            state[r->units + j] = (float)next.c;
        if (!is_over)
            state[j] = (float)next.h;
    }
}

void reference_recurrent(const struct kernel_call *call)
{
    const struct recurrent r = recurrent_of(call->problem);
    const float *first =
        call->problem->n_in > RECURRENT_STATE ? call->in[RECURRENT_STATE] : NULL;
    float *before = call->out[RECURRENT_BEFORE];

    for (int64_t row = 0; row < r.rows; row++) {
        float *state = (float *)call->out[RECURRENT_LAST] + row * r.state_row;

        for (int64_t j = 0; j < r.state_row; j++)
            state[j] = first != NULL ? first[row * r.state_row + j] : 0;
        for (int64_t t = 0; t < r.steps; t++) {
            for (int64_t j = 0; j < r.units; j++) /* `state` changes as units are made */
                before[row * r.y_row + t * r.units + j] = state[j];
            step_forward(call, &r, row, t, state);
        }
    }
}

/* Gradients ---------------------------------------------------------------------------- */

/* What flows into the gates of a unit (of a GRU: another number into the hidden part of the last), and
 * on to the state before: dh without what comes through the gates, dc. */
struct flow {
    double gates[4], hidden[4];
    double dh, dc;
};

static struct flow lstm_unit_grad(const double act[4], double c, double dh, double dc)
{
    const double i = act[0], f = act[1], g = act[2], o = act[3], bent = tanh(f * c + i * g);

    dc += dh * o * (1 - bent * bent);
    struct flow flow = { .gates = { dc * g * i * (1 - i), dc * c * f * (1 - f),
                                    dc * i * (1 - g * g), dh * bent * o * (1 - o) },
                         .dc = dc * f };
    memcpy(flow.hidden, flow.gates, sizeof flow.hidden);
    return flow;
}

static struct flow gru_unit_grad(const double act[4], double q, double h, double dh)
{
    const double reset = act[0], z = act[1], n = act[2], dn = dh * (1 - z) * (1 - n * n);
    const double dreset = dn * q * reset * (1 - reset), dz = dh * (h - n) * z * (1 - z);

    return (struct flow){ .gates = { dreset, dz, dn },
                          .hidden = { dreset, dz, dn * reset },
                          .dh = dh * z };
}

static struct flow unit_grad(const struct kernel_call *call, const struct recurrent *r,
                             const double act[4], int64_t at, double dh, double dc)
{
    const double kept = (double)((const float *)call->in[RECURRENT_GRAD_KEPT])[at];

    if (r->is_lstm)
        return lstm_unit_grad(act, kept, dh, dc);
    const float *before = call->in[RECURRENT_GRAD_BEFORE];
    BUG_ON(before == NULL);
    return gru_unit_grad(act, kept, (double)before[at], dh);
}

/* Step t of one row, from the gradient of the state after it to that of the state before. */
static void step_backward(const struct kernel_call *call, const struct recurrent *r,
                          int64_t row, int64_t t, float *dstate)
{
    const struct recurrent_flow into = recurrent_flow(call);
    const float *w = call->in[RECURRENT_GRAD_WEIGHT];
    const bool is_over =
        ((const int32_t *)call->in[RECURRENT_GRAD_IDS])[row * r->steps + t] < 0;
    const int64_t at = row * r->y_row + t * r->units, gate = row * r->gates_row + t * r->gates;
    const float *acts = (const float *)call->in[RECURRENT_GRAD_ACTS] + gate;
    float *dgates = (float *)call->out[0] + gate;
    float *dhidden = (float *)call->out[r->is_lstm ? 0 : 1] + gate;

    for (int64_t j = 0; j < r->units; j++) {
        double dh = (double)dstate[j], act[4] = { 0 };
        const double dc = r->is_lstm ? (double)dstate[r->units + j] : 0;
        if (into.y != NULL && !is_over)
            dh += (double)into.y[at + j];
        for (int64_t g = 0; g * r->units < r->gates; g++)
            act[g] = (double)acts[g * r->units + j];
        const struct flow flow = is_over ? (struct flow){ .dh = dh, .dc = dc }
                                         : unit_grad(call, r, act, at + j, dh, dc);
        for (int64_t g = 0; g * r->units < r->gates; g++) {
            dgates[g * r->units + j] = (float)flow.gates[g];
            dhidden[g * r->units + j] = (float)flow.hidden[g];
        }
        dstate[j] = (float)flow.dh;
        if (r->is_lstm)
            dstate[r->units + j] = (float)flow.dc;
    }
    for (int64_t k = 0; k < r->units; k++) {
        double sum = (double)dstate[k];
        for (int64_t j = 0; j < r->gates; j++)
            sum += (double)dhidden[j] * (double)w[k * r->gates + j];
        dstate[k] = (float)sum;
    }
}

size_t reference_recurrent_grad_scratch(const struct kernel_problem *problem)
{
    return (size_t)recurrent_of(problem).state_row * sizeof(float);
}

void reference_recurrent_grad(const struct kernel_call *call)
{
    const struct recurrent r = recurrent_of(call->problem);
    const struct recurrent_flow into = recurrent_flow(call);
    const int state = recurrent_dstate(call->problem);
    float *dstate = call->scratch;

    for (int64_t row = 0; row < r.rows; row++) {
        for (int64_t j = 0; j < r.state_row; j++)
            dstate[j] = into.last != NULL ? into.last[row * r.state_row + j] : 0;
        for (int64_t t = r.steps - 1; t >= 0; t--)
            step_backward(call, &r, row, t, dstate);
        for (int64_t j = 0; call->problem->n_out > state && j < r.state_row; j++)
            ((float *)call->out[state])[row * r.state_row + j] = dstate[j];
    }
}
