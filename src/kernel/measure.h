/* SPDX-License-Identifier: MIT */
/* measure.h - a kernel tried out by itself: with buffers of its own, checked and timed.
 *
 * For `tutti bench kernel`, `tutti bench tune` and tests.
 * Threads: one thread at a time per trial.
 */
#ifndef KERNEL_MEASURE_H
#define KERNEL_MEASURE_H

#include "kernel/kernel.h"

/* What inputs are filled with. Sums and products of the small whole numbers are exact, so that
 * every correct kernel for a linear op gives the same bits whatever its order. */
enum kernel_fill { KERNEL_FILL_NORMAL, KERNEL_FILL_WHOLE };

/* One call: every buffer is filled or poisoned, and followed and led by guard bytes. */
struct kernel_trial;

/* Makes the buffers, the random inputs (a function of problem, fill and seed alone) and the
 * kernel's state. Refuses an illegal problem and one the kernel cannot run. */
MUST_CHECK enum status kernel_trial_create(const struct kernel *kernel,
                                           const struct kernel_problem *problem,
                                           enum kernel_fill fill, uint64_t seed,
                                           struct kernel_trial **out);

/* The same problem and inputs again, which are those that `like` was made with; takes a copy's time. */
MUST_CHECK enum status kernel_trial_repeat(const struct kernel *kernel,
                                           const struct kernel_trial *like,
                                           struct kernel_trial **out);
void kernel_trial_destroy(struct kernel_trial *trial); /* NULL is allowed */

/* The call, to set its pool and step or redirect an output before running, and to read its
 * buffers after; valid until destroy. The step's seed, first sample and inv_batch are set. */
struct kernel_call *kernel_trial_call(struct kernel_trial *trial);
void kernel_trial_run(struct kernel_trial *trial);
/* Are all guard bytes and inputs as they were? Names the buffer otherwise. */
MUST_CHECK enum status kernel_trial_check(const struct kernel_trial *trial);

/* How far `output` of two trials of one problem is apart. Floats: the largest difference over
 * the largest absolute value in `a`, at least 1; infinite where one is NaN and the other is
 * not. Bytes and whole numbers: the share that differs. */
double kernel_trial_difference(const struct kernel_trial *a, const struct kernel_trial *b,
                               int output);

/* Median seconds of a run, after a run that does not count. pool may be NULL. */
MUST_CHECK enum status kernel_measure(const struct kernel *kernel,
                                      const struct kernel_problem *problem, struct pool *pool,
                                      double *out_seconds);

#endif /* KERNEL_MEASURE_H */
