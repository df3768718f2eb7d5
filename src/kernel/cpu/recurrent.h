/* SPDX-License-Identifier: MIT */
/* recurrent.h - the extents of a recurrent layer, as its kernels read them from a problem. */
#ifndef KERNEL_CPU_RECURRENT_H
#define KERNEL_CPU_RECURRENT_H

#include <string.h>

#include "kernel/kernel.h"

/* What forward keeps of a step for backward, each as long as there are units: LSTM's four gates and
 * the c it began with; GRU's r, z, n, its hidden part of n and the h it began with. */
enum { RECURRENT_SAVED = 5 };

struct recurrent {
    bool is_lstm;
    int64_t rows, steps, units;
    int64_t n_gates, n_states; /* vectors of `units`: 4 and 2, or 3 and 1 */
    int64_t y_row, saved_row, gates_row,
        state_row;        /* floats between rows of (N,T,..) and (N,..) */
    int64_t saved, gates; /* floats between steps */
};

/* Of the problem of lstm, gru or one of their gradients. */
static inline struct recurrent recurrent_of(const struct kernel_problem *problem)
{
    const bool is_lstm = strncmp(problem->op, "lstm", 4) == 0;
    const int64_t *steps = problem->in[0].shape.dim;
    struct recurrent r = { .is_lstm = is_lstm,
                           .rows = steps[0],
                           .steps = steps[1],
                           .units = problem->in[1].shape.dim[1],
                           .n_gates = is_lstm ? 4 : 3,
                           .n_states = is_lstm ? 2 : 1 };

    r.saved = RECURRENT_SAVED * r.units;
    r.gates = r.n_gates * r.units;
    r.y_row = r.steps * r.units;
    r.saved_row = r.steps * r.saved;
    r.gates_row = r.steps * r.gates;
    r.state_row = r.n_states * r.units;
    return r;
}

/* The gradients that flow into a recurrent layer: of its outputs, of its last state; either may be
 * absent (NULL). */
struct recurrent_flow {
    const float *y, *last;
};

static inline struct recurrent_flow recurrent_flow(const struct kernel_call *call, int first)
{
    const struct kernel_problem *problem = call->problem;
    const bool has_y = problem->in[first].shape.rank == 3;

    return (struct recurrent_flow){
        .y = has_y ? call->in[first] : NULL,
        .last = !has_y                      ? call->in[first]
                : problem->n_in > first + 1 ? call->in[first + 1]
                                            : NULL,
    };
}

#endif /* KERNEL_CPU_RECURRENT_H */
