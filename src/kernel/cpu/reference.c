/* SPDX-License-Identifier: MIT */
/* reference.c - the table of the plain C kernels. */
#include "kernel/cpu/reference.h"

#include "kernel/cpu/rows.h"

const struct kernel kernel_reference_rows[] = {
    { .op = "linear", .name = "reference", .run = reference_linear },
    { .op = "linear_grad_input", .name = "reference", .run = reference_linear_grad_input },
    { .op = "linear_grad_weight", .name = "reference", .run = reference_linear_grad_weight },
    { .op = "conv2d", .name = "reference", .run = reference_conv2d },
    { .op = "conv2d_grad_input", .name = "reference", .run = reference_conv2d_grad_input },
    { .op = "conv2d_grad_weight", .name = "reference", .run = reference_conv2d_grad_weight },
    { .op = "conv2d_pool", .name = "reference", .run = reference_conv2d_pool },
    { .op = "conv2d_pool_grad_input",
      .name = "reference",
      .run = reference_conv2d_pool_grad_input },
    { .op = "conv2d_pool_grad_weight",
      .name = "reference",
      .run = reference_conv2d_pool_grad_weight },
    { .op = "max_pool", .name = "reference", .run = reference_max_pool },
    { .op = "max_pool_grad", .name = "reference", .run = reference_max_pool_grad },
    { .op = "avg_pool", .name = "reference", .run = reference_avg_pool },
    { .op = "avg_pool_grad", .name = "reference", .run = reference_avg_pool_grad },
    { .op = "bias", .name = "reference", .run = reference_bias },
    { .op = "bias_grad", .name = "reference", .run = reference_bias_grad },
    { .op = "relu", .name = "reference", .run = reference_relu },
    { .op = "relu_grad", .name = "reference", .run = reference_relu_grad },
    { .op = "add", .name = "reference", .run = reference_add },
    { .op = "reorder", .name = "reference", .run = reference_reorder },
    { .op = "dropout", .name = "reference", .run = reference_dropout },
    { .op = "softmax_cross_entropy",
      .name = "reference",
      .run = reference_softmax_cross_entropy },
    { .op = "softmax_cross_entropy_grad",
      .name = "reference",
      .run = reference_softmax_cross_entropy_grad },
    { .op = "mse", .name = "reference", .run = reference_mse },
    { .op = "mse_grad", .name = "reference", .run = reference_mse_grad },
    { .op = "accuracy", .name = "reference", .run = reference_accuracy },
    { 0 },
};
