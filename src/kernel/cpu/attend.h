/* SPDX-License-Identifier: MIT */
/* attend.h - the extents of lstm_attend and where its inputs and outputs stand. */
#ifndef KERNEL_CPU_ATTEND_H
#define KERNEL_CPU_ATTEND_H

#include "kernel/cpu/recurrent.h"

/* Inputs and outputs from those of lstm on, and those of the gradient from its `kept` on. */
enum {
    ATTEND_CONTEXT_WEIGHT = RECURRENT_STATE + 1,
    ATTEND_QUERY_WEIGHT,
    ATTEND_SCORE,
    ATTEND_KEYS,
    ATTEND_MEMORY,
    ATTEND_SOURCE
};
enum { ATTEND_CONTEXT = RECURRENT_BEFORE + 1, ATTEND_WEIGHTS, ATTEND_QUERY };
enum {
    ATTEND_GRAD_CONTEXT_WEIGHT = RECURRENT_GRAD_KEPT + 1,
    ATTEND_GRAD_QUERY_WEIGHT,
    ATTEND_GRAD_SCORE,
    ATTEND_GRAD_KEYS,
    ATTEND_GRAD_MEMORY,
    ATTEND_GRAD_QUERY,
    ATTEND_GRAD_WEIGHTS,
    ATTEND_GRAD_DY
};
enum {
    ATTEND_DGATES,
    ATTEND_DSTATE,
    ATTEND_DKEYS,
    ATTEND_DMEMORY,
    ATTEND_DQUERY,
    ATTEND_DSCORE
};

struct attend {
    struct recurrent r;
    int64_t places, keys,
        memory; /* of the source; numbers of a key and of what is remembered */
};

static inline struct attend attend_of(const struct kernel_problem *problem)
{
    const bool is_grad = strcmp(problem->op, "lstm_attend_grad") == 0;
    const int64_t *keys = problem->in[is_grad ? ATTEND_GRAD_KEYS : ATTEND_KEYS].shape.dim;
    const int64_t *memory = problem->in[is_grad ? ATTEND_GRAD_MEMORY : ATTEND_MEMORY].shape.dim;

    return (struct attend){
        .r = recurrent_of(problem), .places = keys[1], .keys = keys[2], .memory = memory[2]
    };
}

#endif /* KERNEL_CPU_ATTEND_H */
