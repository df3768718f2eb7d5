/* SPDX-License-Identifier: MIT */
/* problem.h - private to problem.c, problem_shapes.c and problem_text.c, which share the table of forms. */
#ifndef KERNEL_PROBLEM_H
#define KERNEL_PROBLEM_H

#include "kernel/kernel.h"

/* An op's tensors, a letter each; see problem.c. */
struct problem_form {
    const char *op;
    const char *in, *out;
    int n_in, n_out; /* how many must be there */
};

const struct problem_form *problem_form_of(const char *op); /* NULL: no such op */
bool problem_is_gradient(const char *op);
/* A convolution with the norm of its input or the statistics of its output, or the gradient of one. */
bool problem_is_norm_conv(const char *op);
/* Weights of a linear layer may lie plain. */
bool problem_may_lie_plain(const char *op, char role);

/* Gives tensors the types and layouts of their roles. */
void problem_set_roles(const char *roles, int count, bool plain_weight,
                       struct kernel_tensor *tensors);
MUST_CHECK enum status problem_check_tensor(const char *op, char role,
                                            const struct kernel_tensor *tensor);

/* Shapes of the outputs of an op that is no gradient. */
MUST_CHECK enum status problem_out_shapes(const struct kernel_problem *p,
                                          struct shape out[KERNEL_OUT]);
/* Do all of its shapes fit together? Number, types, layouts and ranks of the tensors are right. */
MUST_CHECK enum status problem_check_shapes(const struct kernel_problem *problem);

#endif /* KERNEL_PROBLEM_H */
