/* SPDX-License-Identifier: MIT */
/* conv_amx.h - conv2d and its gradients as plain sums by AMX: conv_amx.c, conv_amx_weight.c, rows in
 * conv_amx_rows.c.
 *
 * Each function comes in two forms: with three bf16 a float, as exact as other plain sums, and short, with two.
 */
#ifndef KERNEL_CPU_CONV_AMX_H
#define KERNEL_CPU_CONV_AMX_H

#include "kernel/cpu/amx.h"
#include "kernel/cpu/conv.h"
#include "kernel/cpu/processor.h"

/* The shape of the weights, or of their gradient, of a conv2d problem. */
static inline const struct shape *conv_weights(const struct kernel_problem *problem)
{
    return problem->in[1].layout == LAYOUT_HWIO ? &problem->in[1].shape
                                                : &problem->out[0].shape;
}

bool conv_amx_can_run(const struct kernel_problem *problem);
size_t conv_amx_scratch(const struct kernel_problem *problem, bool is_short);
void conv_amx_run(const struct kernel_call *call, bool is_short);
size_t conv_amx_input_scratch(const struct kernel_problem *problem, bool is_short);
void conv_amx_input_run(const struct kernel_call *call, bool is_short);
size_t conv_amx_weight_scratch(const struct kernel_problem *problem, bool is_short);
void conv_amx_weight_run(const struct kernel_call *call, bool is_short);

#endif /* KERNEL_CPU_CONV_AMX_H */
