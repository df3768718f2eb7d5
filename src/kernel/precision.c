/* SPDX-License-Identifier: MIT */
/* precision.c - which tensors of a problem are bf16. */
#include "kernel/precision.h"

#include <string.h>

/* Inputs and outputs, by number, of rank 2 and more that stay f32. */
static const struct {
    const char *op, *in, *out;
} wide[] = {
    { "linear_grad_weight", "", "0" },
    { "conv2d_grad_weight", "", "0" },
    { "conv2d_transpose_grad_weight", "", "0" },
    { "conv2d_pool_grad_weight", "", "0" },
    { "conv1d_grad_weight", "", "0" },
    { "conv1d_max_grad_weight", "", "0" },
    { "embedding_grad", "2", "0" },
    { "positions_grad", "", "0" },
    { "layer_norm", "", "1" },
    { "layer_norm_grad", "3", "" },
    { "batch_norm", "", "1" },
    { "batch_norm_grad", "3", "" },
    { "batch_norm_stats", "", "0" },
    { "batch_norm_join", "01", "0" },
    { "batch_norm_normalize", "3", "" },
    { "batch_norm_grad_sums", "2", "2" },
    { "batch_norm_grad_spread", "34", "" },
    { "conv2d_stats", "", "1" },
    { "norm_conv2d", "4", "" },
    { "norm_conv2d_stats", "4", "1" },
    { "conv2d_stats_grad", "45", "1" },
    { "norm_conv2d_grad", "5", "14" },
    { "norm_conv2d_stats_grad", "578", "14" },
    { "attention", "", "1" },
    { "attention_grad", "3", "" },
    { "token_cross_entropy", "", "1" },
    { "token_cross_entropy_grad", "1", "" },
};

/* Narrows tensors but vectors and those in the list of digits. */
static void narrow(struct kernel_tensor *tensors, int count, const char *stay)
{
    for (int i = 0; i < count; i++) {
        if (tensors[i].dtype == DTYPE_F32 && tensors[i].shape.rank > 1 &&
            !strchr(stay, '0' + i))
            tensors[i].dtype = DTYPE_BF16;
    }
}

void kernel_as_bf16(struct kernel_problem *problem)
{
    const char *in = "", *out = "";

    problem->rounds = true;
    if (strncmp(problem->op, "lstm", 4) == 0 || strncmp(problem->op, "gru", 3) == 0)
        return;
    for (size_t i = 0; i < sizeof wide / sizeof wide[0]; i++) {
        if (strcmp(wide[i].op, problem->op) == 0) {
            in = wide[i].in;
            out = wide[i].out;
        }
    }
    if (strncmp(problem->op, "linear", 6) == 0 && strstr(problem->op, "grad") == NULL &&
        problem->n_in > 2)
        problem->in[2].dtype = DTYPE_BF16; /* a product's epilogue adds what y can hold */
    narrow(problem->in, problem->n_in, in);
    narrow(problem->out, problem->n_out, out);
}
