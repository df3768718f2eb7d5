/* SPDX-License-Identifier: MIT */
/* finish.h - bias and activation over what a kernel has made, one table for each instruction
 * set. For kernels that cannot do it while they still hold the sums. */
#ifndef KERNEL_CPU_FINISH_H
#define KERNEL_CPU_FINISH_H

#include <stdint.h>

#include "tensor/attr.h"

struct finish_isa {
    /* y (pixels, channels) becomes activation(y + bias); bias may be NULL. */
    void (*run)(float *y, int64_t pixels, int64_t channels, const float *bias,
                enum activation activation);
    /* Sums of each channel, in an order of their own. */
    void (*sum)(const float *dy, int64_t pixels, int64_t channels, float *sums);
};

extern const struct finish_isa finish_avx2;
extern const struct finish_isa finish_avx512;

#endif /* KERNEL_CPU_FINISH_H */
