/* SPDX-License-Identifier: MIT */
/* device_testing.h - a device's kernels tried out: calls with pointers of the host are run in the device's
 * memory, every buffer between guard bytes. */
#ifndef KERNEL_DEVICE_TESTING_H
#define KERNEL_DEVICE_TESTING_H

#include "kernel/device_measure.h"

/* How a call is run. */
enum device_way {
    DEVICE_ONCE,
    DEVICE_TWICE,    /* the second run is looked at */
    DEVICE_GRAPH,    /* captured and launched */
    DEVICE_IN_PLACE, /* output 0 is input 0's buffer */
};

/* Copies the call's inputs to the device, runs `kernel` there and copies its outputs back to where the call has
 * them. `there` is the problem that the device solves: the call's, that in mixed precision, whose elements are
 * converted on the way, or one whose filters lie otherwise, which are turned. Fails if anything beside the outputs was written, or the inputs. TUTTI_TEST_GUARD=0 leaves the
 * guards away, so that a checker of the device's own sees where buffers end. */
MUST_CHECK enum status device_testing_run(const struct device_place *place,
                                          const struct kernel *kernel,
                                          const struct kernel_problem *there,
                                          const struct kernel_call *host, enum device_way way);

/* The CPU as a device that computes in bf16 or f16, for tests of who runs such plans: its kernels are the references, with tensors
 * that are bf16 widened before and narrowed after. Has neither driver nor graphs. */
const struct device_face *device_testing_narrow(void);

/* The same with streams whose kernels run when somebody waits for them: those that go beside others (`beside`), or the others. Of
 * the latter kind one rank trains, by adam, without norms. */
const struct device_face *device_testing_late(bool beside);

#endif /* KERNEL_DEVICE_TESTING_H */
