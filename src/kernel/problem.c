/* SPDX-License-Identifier: MIT */
/* problem.c - the forms of problems: how many tensors an op has, of which types, layouts and ranks; what makes one legal.
 *
 * A form gives each tensor of an op one letter, its role, which fixes type and layout:
 *
 *   m  matrix         w  linear weights (IO; or plain: a table of rows that others use too)
 *   v  vector
 *   i  image (NHWC)   k  convolution weights (HWIO)  p  place in a pooling window (u8, NHWC)
 *   e  elementwise: any shape; rank 4 is an image   r  the same, layout not fixed (reorder)
 *   l  labels (i32)   s  one number                t  a matrix of each shard
 *   q  sequences (N,T,D)                           d  ids of their tokens, or places (i32)
 *   o  pairs of numbers (i32) for each of them     f  filters along them (WIO)
 *   g  sequences, or a matrix: of their last steps
 *
 * Letters after the first `n` of a side are optional.
 */
#include "kernel/problem.h"

#include <string.h>

/* Elements of a tensor at most: far from overflow in whatever a kernel computes from shapes. */
static const int64_t COUNT_MAX = (int64_t)1 << 40;

static const struct problem_form forms[] = {
    { "linear", "mwv", "m", 2, 1 },
    { "linear_grad_input", "mw", "m", 2, 1 },
    { "linear_grad_weight", "mm", "wv", 2, 1 },
    { "linear_gelu", "mwv", "mm", 3, 2 },
    { "linear_add", "mwvm", "m", 4, 1 },
    { "linear_grad_through", "mwm", "mv", 3, 1 },
    { "conv2d", "ikv", "i", 2, 1 },
    { "conv2d_grad_input", "ik", "i", 2, 1 },
    { "conv2d_grad_weight", "ii", "kv", 2, 1 },
    { "conv2d_transpose", "ikv", "i", 2, 1 },
    { "conv2d_transpose_grad_input", "ik", "i", 2, 1 },
    { "conv2d_transpose_grad_weight", "ii", "kv", 2, 1 },
    { "conv2d_pool", "ikv", "ip", 2, 2 },
    { "conv2d_pool_grad_input", "ipk", "i", 3, 1 },
    { "conv2d_pool_grad_weight", "iip", "kv", 3, 1 },
    { "conv1d", "qfv", "q", 2, 1 },
    { "conv1d_grad_input", "qfq", "q", 3, 1 },
    { "conv1d_grad_weight", "qq", "fv", 2, 1 },
    { "conv1d_max", "qfv", "md", 2, 2 },
    { "conv1d_max_grad_input", "mdfqq", "q", 4, 1 },
    { "conv1d_max_grad_weight", "qmd", "fv", 3, 1 },
    { "max_over_time", "q", "md", 1, 2 },
    { "max_over_time_grad", "mdq", "q", 3, 1 },
    { "concat", "mmmmmmmm", "m", 1, 1 },
    { "columns", "m", "m", 1, 1 },
    { "max_pool", "i", "ip", 1, 2 },
    { "max_pool_grad", "ip", "i", 2, 1 },
    { "avg_pool", "i", "i", 1, 1 },
    { "avg_pool_grad", "i", "i", 1, 1 },
    { "bias", "ev", "e", 2, 1 },
    { "bias_grad", "e", "v", 1, 1 },
    { "sum_rows", "m", "v", 1, 1 },
    { "relu", "e", "e", 1, 1 },
    { "relu_grad", "ee", "e", 2, 1 },
    { "add", "ee", "e", 2, 1 },
    { "reorder", "r", "r", 1, 1 },
    { "dropout", "e", "e", 1, 1 },
    { "relu6", "e", "e", 1, 1 },
    { "relu6_grad", "ee", "e", 2, 1 },
    { "sigmoid", "e", "e", 1, 1 },
    { "sigmoid_grad", "ee", "e", 2, 1 },
    { "tanh", "e", "e", 1, 1 },
    { "tanh_grad", "ee", "e", 2, 1 },
    { "gelu", "e", "e", 1, 1 },
    { "gelu_grad", "ee", "e", 2, 1 },
    { "gelu_tanh", "e", "e", 1, 1 },
    { "gelu_tanh_grad", "ee", "e", 2, 1 },
    { "layer_norm", "mvv", "mm", 3, 2 },
    { "layer_norm_grad", "mmvmm", "mvvv", 4, 3 },
    { "softmax", "m", "m", 1, 1 },
    { "softmax_grad", "mm", "m", 2, 1 },
    { "add_positions", "qml", "q", 2, 1 },
    { "positions_grad", "q", "m", 1, 1 },
    { "attention", "qd", "qq", 1, 2 },
    { "attention_grad", "qqqqd", "q", 4, 1 },
    { "attention_step", "qql", "q", 3, 1 },
    { "batch_norm", "ivvi", "imvv", 3, 4 },
    { "batch_norm_grad", "iivmei", "ivvi", 4, 3 },
    { "batch_norm_apply", "ivvvvi", "i", 5, 1 },
    { "batch_norm_stats", "i", "m", 1, 1 },
    { "batch_norm_join", "tm", "mvv", 2, 3 },
    { "batch_norm_normalize", "ivvmi", "i", 4, 1 },
    { "batch_norm_grad_sums", "iimi", "vvmi", 3, 3 },
    { "batch_norm_grad_spread", "iivmti", "i", 5, 1 },
    { "softmax_cross_entropy", "ml", "sm", 2, 2 },
    { "softmax_cross_entropy_grad", "ml", "m", 2, 1 },
    { "softmax_loss", "ml", "ssm", 2, 3 },
    { "mse", "ee", "s", 2, 1 },
    { "mse_grad", "ee", "e", 2, 1 },
    { "accuracy", "ml", "s", 2, 1 },
    { "token_cross_entropy", "ml", "sm", 2, 2 },
    { "token_cross_entropy_grad", "mml", "m", 3, 1 },
    { "token_accuracy", "ml", "s", 2, 1 },
    { "linear_token_loss", "mwl", "ssmw", 3, 4 },
    { "embedding", "dm", "q", 2, 1 },
    { "embedding_grad", "edm", "m", 2, 1 },
    { "embedding_mean", "dm", "m", 2, 1 },
    { "embedding_mean_grad", "md", "m", 2, 1 },
    { "rows_sort", "d", "ol", 1, 2 },
    { "lstm", "qwvdm", "qmqqq", 4, 5 },
    { "lstm_grad", "qwdqgm", "qm", 5, 1 },
    { "gru", "qwvdm", "qmqqq", 4, 5 },
    { "lstm_attend", "qwvdmwwvqqd", "qmqqqqqq", 11, 8 },
    { "lstm_attend_grad", "qwdqwwvqqqqq", "qmqqqv", 12, 6 },
    { "gru_grad", "qwdqqgm", "qqm", 6, 2 },
    { "conv2d_stats", "ik", "imvv", 2, 4 },
    { "norm_conv2d", "ikvvm", "i", 5, 1 },
    { "norm_conv2d_stats", "ikvvm", "imvv", 5, 4 },
    { "conv2d_stats_grad", "ikiimm", "ik", 6, 2 },
    { "norm_conv2d_grad", "ikivvm", "ikvvm", 6, 5 },
    { "norm_conv2d_stats_grad", "ikivvmimm", "ikvvm", 9, 5 },
};

const struct problem_form *problem_form_of(const char *op)
{
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        if (strcmp(forms[i].op, op) == 0)
            return &forms[i];
    }
    return NULL;
}

bool problem_is_gradient(const char *op)
{
    return strstr(op, "_grad") != NULL;
}

bool problem_is_norm_conv(const char *op)
{
    return strncmp(op, "norm_conv2d", 11) == 0 || strncmp(op, "conv2d_stats", 12) == 0;
}

/* Types, layouts and ranks ------------------------------------------------------------- */

static enum dtype dtype_of(char role)
{
    return strchr("ldo", role) ? DTYPE_I32 : role == 'p' ? DTYPE_U8 : DTYPE_F32;
}

static enum layout layout_of(char role, int rank)
{
    switch (role) {
    case 'w':
        return LAYOUT_IO;
    case 'k':
        return LAYOUT_HWIO;
    case 'f':
        return LAYOUT_WIO;
    case 'i':
    case 'p':
        return LAYOUT_NHWC;
    case 'e':
        return rank == 4 ? LAYOUT_NHWC : LAYOUT_PLAIN;
    default:
        return LAYOUT_PLAIN;
    }
}

/* Rank that a role asks for; 0: any from 1. */
static int rank_of(char role)
{
    switch (role) {
    case 'm':
    case 'w':
    case 'd':
        return 2;
    case 't':
    case 'q':
    case 'o':
    case 'f':
        return 3;
    case 'i':
    case 'p':
    case 'k':
        return 4;
    case 'v':
    case 'l':
    case 's':
        return 1;
    default:
        return 0;
    }
}

void problem_set_roles(const char *roles, int count, bool plain_weight,
                       struct kernel_tensor *tensors)
{
    for (int i = 0; i < count && roles[i] != '\0'; i++) {
        tensors[i].dtype = dtype_of(roles[i]);
        if (roles[i] != 'r')
            tensors[i].layout = roles[i] == 'w' && plain_weight
                                    ? LAYOUT_PLAIN
                                    : layout_of(roles[i], tensors[i].shape.rank);
    }
}

bool problem_may_lie_plain(const char *op, char role)
{
    return role == 'w' && strncmp(op, "linear", 6) == 0;
}

enum status problem_check_tensor(const char *op, char role, const struct kernel_tensor *tensor)
{
    const int rank = tensor->shape.rank;
    const enum layout usual = layout_of(role, rank);
    /* Elements of any plain order will do where an op is blind to it; bias is not. */
    const bool free_layout =
        role == 'r' || (role == 'e' && strncmp(op, "bias", 4) != 0) ||
        (problem_may_lie_plain(op, role) && tensor->layout == LAYOUT_PLAIN);
    const bool number =
        role == 's' && strstr(op, "accuracy") != NULL && tensor->dtype == DTYPE_I32;
    char text[SHAPE_TEXT];
    int64_t count;

    if (rank < 1 || rank > SHAPE_MAX || (rank_of(role) != 0 && rank != rank_of(role)))
        return FAIL(STATUS_USAGE, "%s: a tensor has rank %d", op, rank);
    TRY(shape_checked_count(&tensor->shape, &count));
    if (count < 1 || count > COUNT_MAX)
        return FAIL(STATUS_USAGE, "%s: shape %s is %s", op, shape_print(&tensor->shape, text),
                    count < 1 ? "empty" : "too large");
    if (tensor->dtype != dtype_of(role) && !number)
        return FAIL(STATUS_USAGE, "%s: type %s instead of %s", op, dtype_name(tensor->dtype),
                    dtype_name(dtype_of(role)));
    if (tensor->layout != usual && !free_layout)
        return FAIL(STATUS_USAGE, "%s: layout %s instead of %s", op,
                    layout_name(tensor->layout), layout_name(usual));
    return STATUS_OK;
}

static enum status check_tensors(const struct problem_form *form,
                                 const struct kernel_problem *problem)
{
    if (problem->n_in < form->n_in || problem->n_in > (int)strlen(form->in))
        return FAIL(STATUS_USAGE, "%s: %d inputs", form->op, problem->n_in);
    if (problem->n_out < form->n_out || problem->n_out > (int)strlen(form->out))
        return FAIL(STATUS_USAGE, "%s: %d outputs", form->op, problem->n_out);
    for (int i = 0; i < problem->n_in; i++)
        TRY(problem_check_tensor(form->op, form->in[i], &problem->in[i]));
    for (int i = 0; i < problem->n_out; i++)
        TRY(problem_check_tensor(form->op, form->out[i], &problem->out[i]));
    return STATUS_OK;
}

/* Batch norm knows relu6, whose gradient is a matter of y; linear layers and convolutions joined with
 * a pool know relu alone. What goes through an activation has one. */
static enum status check_activation(const struct kernel_problem *p)
{
    enum activation most = ACTIVATION_SIGMOID;

    if (strcmp(p->op, "linear_grad_through") == 0)
        return p->attrs.activation == ACTIVATION_RELU ||
                       p->attrs.activation == ACTIVATION_GELU_TANH
                   ? STATUS_OK
                   : FAIL(STATUS_USAGE, "%s: through relu or gelu_tanh", p->op);
    const bool is_norm =
        strncmp(p->op, "batch_norm", 10) == 0 || strncmp(p->op, "norm_", 5) == 0;
    if (strcmp(p->op, "linear_gelu") == 0 || strcmp(p->op, "linear_add") == 0 ||
        strcmp(p->op, "linear_token_loss") == 0 || (problem_is_norm_conv(p->op) && !is_norm))
        most = ACTIVATION_NONE;
    else if (strcmp(p->op, "linear") == 0 || strcmp(p->op, "conv2d_pool") == 0 ||
             strncmp(p->op, "conv1d", 6) == 0)
        most = ACTIVATION_RELU;
    else if (is_norm)
        most = ACTIVATION_RELU6;
    if (p->attrs.activation > most)
        return FAIL(STATUS_USAGE, "%s: activation %s cannot be joined", p->op,
                    activation_name(p->attrs.activation));
    return STATUS_OK;
}

enum status kernel_check(const struct kernel_problem *problem)
{
    const struct problem_form *form = problem_form_of(problem->op);

    if (form == NULL)
        return FAIL(STATUS_NOT_FOUND, "no kernel is called %s", problem->op);
    TRY(check_tensors(form, problem));
    TRY(check_activation(problem));
    return problem_check_shapes(problem);
}

static void as_matrix(struct kernel_tensor *tensor)
{
    struct shape *s = &tensor->shape;

    if (tensor->dtype == DTYPE_I32 && s->rank == 2)
        *s = shape_1(s->dim[0] * s->dim[1]);
    else if (s->rank == 3)
        *s = shape_2(s->dim[0] * s->dim[1], s->dim[2]);
}

void kernel_as_matrices(struct kernel_problem *problem)
{
    for (int i = 0; i < problem->n_in; i++)
        as_matrix(&problem->in[i]);
    for (int i = 0; i < problem->n_out; i++)
        as_matrix(&problem->out[i]);
}
