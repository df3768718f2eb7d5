/* SPDX-License-Identifier: MIT */
/* recurrent_steps.h - what own kernels of recurrent layers share: the cell's view of some rows of a step,
 * for lstm, gru, their gradients, and lstm_attend, whose first inputs and outputs are lstm's. */
#ifndef KERNEL_CPU_RECURRENT_STEPS_H
#define KERNEL_CPU_RECURRENT_STEPS_H

#include "kernel/cpu/cell.h"
#include "kernel/cpu/recurrent.h"

/* Parts that rows are cut into, a thread each. */
int64_t recurrent_parts(int64_t rows, struct pool *pool);
/* Puts the state that the first step begins with into `before` and `kept`. */
void recurrent_set_first(const struct recurrent *r, const struct kernel_call *call,
                         int64_t row);
/* Step t of rows [row, row + rows), but for what is made of the state. */
struct cell_step recurrent_step(const struct recurrent *r, const struct kernel_call *call,
                                int64_t row, int64_t rows, int64_t t);
/* The same backward; `dstate` is the first row's, dy of all rows and steps or NULL. */
struct cell_grad recurrent_grad(const struct recurrent *r, const struct kernel_call *call,
                                int64_t row, int64_t rows, int64_t t, const float *dy,
                                float *dstate);

#endif /* KERNEL_CPU_RECURRENT_STEPS_H */
