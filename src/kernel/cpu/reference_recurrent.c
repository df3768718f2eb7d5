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

/* One unit of one step; saved gets its five numbers, `units` apart. */
struct next {
    double h, c;
};

static struct next lstm_unit(const struct recurrent *r, const double a[4], double c,
                             float *saved)
{
    const double i = sigmoid(a[0]), f = sigmoid(a[1]), g = tanh(a[2]), o = sigmoid(a[3]);
    const double next = f * c + i * g;
    const double kept[RECURRENT_SAVED] = { i, f, g, o, c };

    for (int64_t k = 0; k < RECURRENT_SAVED; k++)
        saved[k * r->units] = (float)kept[k];
    return (struct next){ o * tanh(next), next };
}

static struct next gru_unit(const struct recurrent *r, const double a[4], double q, double h,
                            float *saved)
{
    const double reset = sigmoid(a[0]), z = sigmoid(a[1]), n = tanh(a[2] + reset * q);
    const double kept[RECURRENT_SAVED] = { reset, z, n, q, h };

    for (int64_t k = 0; k < RECURRENT_SAVED; k++)
        saved[k * r->units] = (float)kept[k];
    return (struct next){ (1 - z) * n + z * h, 0 };
}

/* Step t of one row: from `before` and `state` (whose h is not looked at) to y and `state`. */
static void step_forward(const struct kernel_call *call, const struct recurrent *r, int64_t row,
                         int64_t t, float *state)
{
    const float *gates = (const float *)call->in[0] + row * r->gates_row + t * r->gates;
    const float *w = call->in[1], *b = call->in[2];
    const bool is_over = ((const int32_t *)call->in[3])[row * r->steps + t] < 0;
    const int64_t at = row * r->y_row + t * r->units;
    const float *before = (const float *)call->out[3] + at;
    float *y = (float *)call->out[0] + at;
    float *saved = (float *)call->out[2] + row * r->saved_row + t * r->saved;

    for (int64_t j = 0; j < r->units; j++) {
        double a[4];
        for (int64_t g = 0; g < r->n_gates; g++) {
            a[g] = (double)gates[g * r->units + j];
            if (r->is_lstm || g < 2)
                a[g] += hidden_sum(r, w, b, before, g * r->units + j);
        }
        const struct next next =
            r->is_lstm ? lstm_unit(r, a, (double)state[r->units + j], saved + j)
                       : gru_unit(r, a, hidden_sum(r, w, b, before, 2 * r->units + j),
                                  (double)before[j], saved + j);
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
    const float *first = call->problem->n_in > 4 ? call->in[4] : NULL;
    float *before = call->out[3];

    for (int64_t row = 0; row < r.rows; row++) {
        float *state = (float *)call->out[1] + row * r.state_row;

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

/* What flows into the gates of a unit (of a GRU: also into their hidden part), and on to the state
 * before: *dh without what comes through the gates, *dc. */
struct flow {
    double gates[4], hidden[4];
    double dh, dc;
};

static struct flow lstm_unit_grad(const struct recurrent *r, const float *saved, double dh,
                                  double dc)
{
    const double i = (double)saved[0], f = (double)saved[r->units];
    const double g = (double)saved[2 * r->units], o = (double)saved[3 * r->units];
    const double c = (double)saved[4 * r->units], bent = tanh(f * c + i * g);
    struct flow flow;

    dc += dh * o * (1 - bent * bent);
    flow.gates[0] = dc * g * i * (1 - i);
    flow.gates[1] = dc * c * f * (1 - f);
    flow.gates[2] = dc * i * (1 - g * g);
    flow.gates[3] = dh * bent * o * (1 - o);
    for (int k = 0; k < 4; k++)
        flow.hidden[k] = flow.gates[k];
    flow.dh = 0;
    flow.dc = dc * f;
    return flow;
}

static struct flow gru_unit_grad(const struct recurrent *r, const float *saved, double dh)
{
    const double reset = (double)saved[0], z = (double)saved[r->units];
    const double n = (double)saved[2 * r->units], q = (double)saved[3 * r->units];
    const double h = (double)saved[4 * r->units], dn = dh * (1 - z) * (1 - n * n);
    struct flow flow = { 0 };

    flow.gates[0] = dn * q * reset * (1 - reset);
    flow.gates[1] = dh * (h - n) * z * (1 - z);
    flow.gates[2] = dn;
    flow.hidden[0] = flow.gates[0];
    flow.hidden[1] = flow.gates[1];
    flow.hidden[2] = dn * reset;
    flow.dh = dh * z;
    return flow;
}

/* Step t of one row, from the gradient of the state after it to that of the state before. */
static void step_backward(const struct kernel_call *call, const struct recurrent *r,
                          int64_t row, int64_t t, float *dstate)
{
    const struct recurrent_flow into = recurrent_flow(call, 3);
    const float *saved = (const float *)call->in[0] + row * r->saved_row + t * r->saved;
    const float *w = call->in[1];
    const bool is_over = ((const int32_t *)call->in[2])[row * r->steps + t] < 0;
    const int64_t at = row * r->gates_row + t * r->gates;
    float *dgates = (float *)call->out[0] + at;
    float *dhidden = (float *)call->out[r->is_lstm ? 0 : 1] + at;

    for (int64_t j = 0; j < r->units; j++) {
        double dh = (double)dstate[j];
        const double dc = r->is_lstm ? (double)dstate[r->units + j] : 0;
        if (into.y != NULL && !is_over)
            dh += (double)into.y[row * r->y_row + t * r->units + j];
        struct flow flow =
            r->is_lstm ? lstm_unit_grad(r, saved + j, dh, dc) : gru_unit_grad(r, saved + j, dh);
        if (is_over)
            flow = (struct flow){ .dh = dh, .dc = dc };
        for (int64_t g = 0; g < r->n_gates; g++) {
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
    const struct recurrent_flow into = recurrent_flow(call, 3);
    const int state = r.is_lstm ? 1 : 2;
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
