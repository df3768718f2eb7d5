/* SPDX-License-Identifier: MIT */
/* device_check_testing.h - what tests of devices have in common: the GPU, without which they are skipped, and complaints.
 *
 * Complaints are counted, so that one run on a machine that is seldom there names them all.
 */
#ifndef KERNEL_DEVICE_CHECK_TESTING_H
#define KERNEL_DEVICE_CHECK_TESTING_H

#include "kernel/device_testing.h"

enum { DEVICE_UPDATE_OPS = 6 };
extern const char *const device_update_ops[DEVICE_UPDATE_OPS];

/* Device 0 of CUDA, opened once; the test is skipped if there is none. */
const struct device_place *device_gpu(void);

/* Says what is wrong with a problem's kernel; the test goes on. */
void device_complain(const struct kernel_problem *problem, const char *format, ...)
    PRINTF_LIKE(2, 3);
/* Fails the test if there was a complaint since the last call. */
void device_check_none_bad(void);

size_t device_tensor_bytes(const struct kernel_tensor *tensor);

#endif /* KERNEL_DEVICE_CHECK_TESTING_H */
