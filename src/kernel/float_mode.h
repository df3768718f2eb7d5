/* SPDX-License-Identifier: MIT */
/* float_mode.h - numbers too small for the normal format count as zero while kernels run.
 *
 * Optimizer state decays into that range where gradients are zero, and arithmetic on it takes a
 * hundred cycles on many processors. The mode belongs to the thread; every thread that runs
 * kernels must set it, so that results have the same bits wherever they are computed.
 */
#ifndef KERNEL_FLOAT_MODE_H
#define KERNEL_FLOAT_MODE_H

/* Sets the mode for this thread and returns the one before, for kernel_restore_float_mode. */
unsigned kernel_flush_denormals(void);
void kernel_restore_float_mode(unsigned mode);

#endif /* KERNEL_FLOAT_MODE_H */
