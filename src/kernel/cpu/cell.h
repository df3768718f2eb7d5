/* SPDX-License-Identifier: MIT */
/* cell.h - what a recurrent cell does between its matrix products, one table for each instruction set.
 *
 * Some rows of one step, all units of a row one after the other. The pieces of a row that belong to
 * different gates lie `units` apart; in what tiles have made (`made`), a vector of each gate of the same
 * units lies side by side, as recurrent.c packs them. The formulas stand in reference_recurrent.c.
 */
#ifndef KERNEL_CPU_CELL_H
#define KERNEL_CPU_CELL_H

#include <stddef.h>
#include <stdint.h>

/* A matrix of which the first row and the distance to the next are known; NULL: absent. */
struct cell_rows {
    float *at;
    ptrdiff_t row;
};

struct cell_source {
    const float *at;
    ptrdiff_t row;
};

struct cell_step {
    ptrdiff_t rows, units;
    const int32_t *ids;
    ptrdiff_t id_row;         /* between ids of rows; negative: the row is over */
    struct cell_source gates; /* what the input says */
    struct cell_source made;  /* what the state says, without bias; absent: nothing */
    const float *bias;        /* of the state's part */
    struct cell_source h;     /* before the step */
    struct cell_rows acts;    /* gates as they come out; may be `gates` */
    struct cell_rows kept; /* LSTM: holds c before the step. GRU: gets its hidden part of n */
    struct cell_rows y, next_h, next_c;
};

/* dh and dc hold the gradients of the state after the step and get those of the state before, dh
 * without what flows through the gates. */
struct cell_grad {
    ptrdiff_t rows, units;
    const int32_t *ids;
    ptrdiff_t id_row;
    struct cell_source acts, kept;
    struct cell_source h;  /* before the step: GRU */
    struct cell_source dy; /* may be absent */
    struct cell_rows dh, dc;
    struct cell_rows dgates;  /* may be `acts` */
    struct cell_rows dhidden; /* GRU */
};

/* One row's look at the source before a step: weights from the query and the keys, the context from
 * these and the memory. Formulas in kernel.h. */
struct attend_row {
    ptrdiff_t places, keys,
        memory;            /* of the source; numbers of a key and of what is remembered */
    const int32_t *source; /* ids of the places; negative: not looked at */
    const float *query, *score;
    const float *key_at, *memory_at; /* (places, keys) and (places, memory) */
    float *weights, *context;
};

/* Backward: dkeys, dmemory and dscore grow, dquery is set. */
struct attend_grad {
    ptrdiff_t places, keys, memory;
    const float *query, *score, *key_at, *memory_at, *weights, *dcontext;
    float *dkeys, *dmemory, *dquery, *dscore;
    float *flow; /* room for a number a place */
};

struct cell_isa {
    int lanes;
    void (*lstm)(const struct cell_step *step);
    void (*gru)(const struct cell_step *step);
    void (*lstm_grad)(const struct cell_grad *grad);
    void (*gru_grad)(const struct cell_grad *grad);
    void (*attend)(const struct attend_row *row);
    void (*attend_grad)(const struct attend_grad *grad);
    /* y[i] = f(x[i]) */
    void (*exp_not_positive)(const float *x, float *y, size_t count);
    void (*sigmoid)(const float *x, float *y, size_t count);
    void (*tanh)(const float *x, float *y, size_t count);
};

extern const struct cell_isa cell_avx2;
extern const struct cell_isa cell_avx512;

/* The table for kernel_isa(); NULL for "generic". */
const struct cell_isa *cell_current(void);

#endif /* KERNEL_CPU_CELL_H */
