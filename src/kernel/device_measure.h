/* SPDX-License-Identifier: MIT */
/* device_measure.h - a device's kernel timed by itself: measure.h for devices.
 *
 * For `tutti bench kernel`, `tutti bench tune`, laboratories and tests.
 * Threads: one thread at a time for a place.
 */
#ifndef KERNEL_DEVICE_MEASURE_H
#define KERNEL_DEVICE_MEASURE_H

#include "kernel/device.h"
#include "kernel/measure.h"

/* A device that is open, and where calls go. */
struct device_place {
    const struct device_face *face;
    struct device *device;
    struct device_stream *stream;
};

/* Opens device 0 of that name. */
MUST_CHECK enum status device_place_open(const char *name, struct device_place *out);
void device_place_close(struct device_place *place);

/* A tensor's elements as another has them: in another type, of a filter in the other order. Memory of the host. */
MUST_CHECK enum status device_carry(void *to, const struct kernel_tensor *wanted,
                                    const void *from, const struct kernel_tensor *is);

/* Median seconds of a run, by events around graphs of several. `there` is the problem that the device solves: that of `host`, in
 * mixed precision, or with filters that lie otherwise; its inputs are those that `host` has. */
MUST_CHECK enum status device_measure(const struct device_place *place,
                                      const struct kernel *kernel,
                                      const struct kernel_problem *there,
                                      const struct kernel_call *host, double *out_seconds);

#endif /* KERNEL_DEVICE_MEASURE_H */
