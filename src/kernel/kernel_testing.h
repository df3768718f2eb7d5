/* SPDX-License-Identifier: MIT */
/* kernel_testing.h - random legal problems, for tests of kernels on any device. */
#ifndef KERNEL_KERNEL_TESTING_H
#define KERNEL_KERNEL_TESTING_H

#include "base/rng.h"
#include "kernel/kernel.h"

/* A problem for `op` (one of kernel.h's list): odd extents and the usual ones, strides,
 * padding, with and without the optional tensors and an activation. Small: some 1e5 elements
 * and less than 1e6 multiply-adds. */
void kernel_testing_problem(struct rng *rng, const char *op, struct kernel_problem *out);

/* Problems as large as pools are meant for, where tasks are many; ended by NULL. */
extern const char *const kernel_testing_large[];

/* How far a kernel of this op may be from the reference (kernel_trial_difference) on inputs
 * that are not whole numbers; 0: the same values. */
double kernel_testing_tolerance(const struct kernel_problem *problem);

/* Is it an op of exponentials or divisions, inexact on whole numbers too? */
bool kernel_testing_is_smooth(const char *op);

#endif /* KERNEL_KERNEL_TESTING_H */
