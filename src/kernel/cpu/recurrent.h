/* SPDX-License-Identifier: MIT */
/* recurrent.h - the extents of a recurrent layer, as its kernels read them from a problem. */
#ifndef KERNEL_CPU_RECURRENT_H
#define KERNEL_CPU_RECURRENT_H

#include <string.h>

#include "kernel/kernel.h"

struct recurrent {
    bool is_lstm;
    int64_t rows, steps, units;
    int64_t gates; /* numbers of all gates of a step: 4 or 3 times units */
    int64_t y_row, gates_row,
        state_row; /* floats between rows of (N,T,H), (N,T,G*H), (N,S*H) */
};

/* Where inputs and outputs stand; inputs from RECURRENT_STATE or a gradient's flow on are optional. */
enum { RECURRENT_GATES, RECURRENT_WEIGHT, RECURRENT_BIAS, RECURRENT_IDS, RECURRENT_STATE };
enum { RECURRENT_Y, RECURRENT_LAST, RECURRENT_ACTS, RECURRENT_KEPT, RECURRENT_BEFORE };
enum {
    RECURRENT_GRAD_ACTS,
    RECURRENT_GRAD_WEIGHT,
    RECURRENT_GRAD_IDS,
    RECURRENT_GRAD_KEPT,
    RECURRENT_GRAD_BEFORE /* GRU's alone */
};

/* Of the problem of lstm, gru or one of their gradients, whose input 0 is (N,T,G*H). */
static inline struct recurrent recurrent_of(const struct kernel_problem *problem)
{
    const bool is_lstm = strncmp(problem->op, "lstm", 4) == 0;
    const int64_t *gates = problem->in[0].shape.dim;
    const int64_t units = problem->in[1].shape.dim[1];

    return (struct recurrent){ .is_lstm = is_lstm,
                               .rows = gates[0],
                               .steps = gates[1],
                               .units = units,
                               .gates = gates[2],
                               .y_row = gates[1] * units,
                               .gates_row = gates[1] * gates[2],
                               .state_row = (is_lstm ? 2 : 1) * units };
}

/* The gradients that flow into a recurrent layer: of its outputs, of its last state; either may be
 * absent (NULL). */
struct recurrent_flow {
    const float *y, *last;
};

static inline struct recurrent_flow recurrent_flow(const struct kernel_call *call)
{
    const struct kernel_problem *problem = call->problem;
    const int first =
        strncmp(problem->op, "gru", 3) == 0 ? RECURRENT_GRAD_BEFORE + 1 : RECURRENT_GRAD_BEFORE;
    const bool has_y = problem->in[first].shape.rank == 3;

    return (struct recurrent_flow){
        .y = has_y ? call->in[first] : NULL,
        .last = !has_y                      ? call->in[first]
                : problem->n_in > first + 1 ? call->in[first + 1]
                                            : NULL,
    };
}

/* The output that is the gradient of the first state. */
static inline int recurrent_dstate(const struct kernel_problem *problem)
{
    return strncmp(problem->op, "gru", 3) == 0 ? 2 : 1;
}

#endif /* KERNEL_CPU_RECURRENT_H */
