/* SPDX-License-Identifier: MIT */
/* tolerance_testing.c - how far kernels may be from the reference. */
#include "kernel/kernel_testing.h"

#include <string.h>

bool kernel_testing_is_smooth(const char *op)
{
    static const char *const ops[] = {
        "tanh",           "gelu",         "gelu_grad",           "gelu_tanh",
        "softmax",        "softmax_grad", "layer_norm",          "layer_norm_grad",
        "gelu_tanh_grad", "linear_gelu",  "linear_grad_through", "linear_token_loss",
        "softmax_loss"
    };

    for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++) {
        if (strcmp(op, ops[i]) == 0)
            return true;
    }
    return strncmp(op, "attention", 9) == 0 || strncmp(op, "lstm", 4) == 0 ||
           strncmp(op, "gru", 3) == 0;
}

double kernel_testing_tolerance(const struct kernel_problem *problem)
{
    static const struct {
        const char *op;
        double tolerance;
    } table[] = {
        { "linear", 2e-5 },
        { "conv2d", 2e-5 },
        { "norm_conv2d_grad", 1e-4 }, /* sums over places of products by two bf16 may cancel */
        { "norm_conv2d_stats_grad", 1e-4 },
        { "norm_conv2d", 2e-5 },
        { "conv1d", 2e-5 },
        { "bias_grad", 1e-5 },
        { "sum_rows", 1e-5 },
        { "softmax_cross_entropy", 2e-6 },
        { "softmax_loss", 2e-6 },
        { "token_cross_entropy", 2e-6 },
        { "mse", 2e-6 },
        { "batch_norm", 5e-6 },
        { "sigmoid", 4e-7 },
        { "tanh", 4e-7 },
        { "gelu", 4e-7 },
        { "gelu_grad", 6e-7 },
        { "gelu_tanh", 4e-7 },
        { "gelu_tanh_grad", 6e-7 },
        { "softmax", 5e-7 },
        { "softmax_grad", 2e-6 },
        { "layer_norm", 5e-6 },
        { "layer_norm_grad", 2e-5 },
        { "positions_grad", 1e-6 },
        { "attention", 2e-5 },
        { "lstm", 1e-4 },
        { "gru", 1e-4 },
        { "embedding_grad", 1e-5 },
        { "embedding_mean", 2e-6 },
        { "embedding_mean_grad", 2e-7 },
    };

    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        const char *op = table[i].op;
        const bool family = strcmp(op, "linear") == 0 || strcmp(op, "conv2d") == 0 ||
                            strcmp(op, "conv1d") == 0 || strcmp(op, "batch_norm") == 0 ||
                            strcmp(op, "norm_conv2d") == 0 || strcmp(op, "attention") == 0 ||
                            strcmp(op, "lstm") == 0 || strcmp(op, "gru") == 0 ||
                            strcmp(op, "token_cross_entropy") == 0;
        if (family ? strncmp(problem->op, op, strlen(op)) == 0 : strcmp(problem->op, op) == 0)
            return table[i].tolerance;
    }
    return 0;
}
