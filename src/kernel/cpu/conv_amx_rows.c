/* SPDX-License-Identifier: MIT */
/* conv_amx_rows.c - the rows of conv_amx.h: "amx" has three bf16 a float, "amx_pairs" two, which is rough. */
#include "kernel/cpu/conv_amx.h"
#include "kernel/cpu/rows.h"

#define FORMS(name)                                                                            \
    static size_t name##_scratch_long(const struct kernel_problem *problem)                    \
    {                                                                                          \
        return name##_scratch(problem, false);                                                 \
    }                                                                                          \
    static size_t name##_scratch_short(const struct kernel_problem *problem)                   \
    {                                                                                          \
        return name##_scratch(problem, true);                                                  \
    }                                                                                          \
    static void name##_run_long(const struct kernel_call *call)                                \
    {                                                                                          \
        name##_run(call, false);                                                               \
    }                                                                                          \
    static void name##_run_short(const struct kernel_call *call)                               \
    {                                                                                          \
        name##_run(call, true);                                                                \
    }

FORMS(conv_amx)
FORMS(conv_amx_input)
FORMS(conv_amx_weight)

const struct kernel kernel_conv_amx_rows[] = {
    { .op = "conv2d",
      .name = "amx",
      .can_run = conv_amx_can_run,
      .scratch_bytes = conv_amx_scratch_long,
      .run = conv_amx_run_long },
    { .op = "conv2d_grad_input",
      .name = "amx",
      .can_run = conv_amx_can_run,
      .scratch_bytes = conv_amx_input_scratch_long,
      .run = conv_amx_input_run_long },
    { .op = "conv2d_grad_weight",
      .name = "amx",
      .can_run = conv_amx_can_run,
      .scratch_bytes = conv_amx_weight_scratch_long,
      .run = conv_amx_weight_run_long },
    { .op = "conv2d",
      .name = "amx_pairs",
      .can_run = conv_amx_can_run,
      .scratch_bytes = conv_amx_scratch_short,
      .run = conv_amx_run_short },
    { .op = "conv2d_grad_input",
      .name = "amx_pairs",
      .can_run = conv_amx_can_run,
      .scratch_bytes = conv_amx_input_scratch_short,
      .run = conv_amx_input_run_short },
    { .op = "conv2d_grad_weight",
      .name = "amx_pairs",
      .can_run = conv_amx_can_run,
      .scratch_bytes = conv_amx_weight_scratch_short,
      .run = conv_amx_weight_run_short },
    { 0 },
};
