/* SPDX-License-Identifier: MIT */
/* grey.h - 3x3 windows over one channel, with strides, one table for each instruction set.
 *
 * For the ends of an autoencoder on grey images: the image has one channel, its other side O. Nine
 * products are too short a sum for the tiles of gemm_tile.h. Forward and in the gradient of the
 * weights the nine weights (or sums) of a vector of output channels stay in registers while the
 * image goes by; it lies in a plane with zeros around. The gradient of the input first makes,
 * with a matrix product, what each place sends through each tap: z[tap][place]; then every pixel
 * adds up what it gets, a vector of pixels at a time.
 */
#ifndef KERNEL_CPU_GREY_H
#define KERNEL_CPU_GREY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct grey {
    int64_t n, h, w;   /* images, of one channel */
    int64_t o, oh, ow; /* channels and places of the other side */
    int64_t sh, sw, ph, pw;
    int64_t plane_h, plane_w; /* the image with its zeros */
    float low, high;          /* what y is cut to */
};

struct grey_isa {
    /* The image into the middle of a plane whose frame is zero. */
    void (*copy)(const struct grey *g, const float *image, float *plane);
    void (*forward)(const struct grey *g, const float *plane, const float *w, const float *bias,
                    float *y);
    /* sums[tap][o], and those of dy after them if is_biased, grow by one image's share. */
    void (*weight)(const struct grey *g, const float *plane, const float *dy, bool is_biased,
                   float *sums);
    /* dx of one image from z, whose taps lie `step` apart. Strides are 1 or 2. */
    void (*gather)(const struct grey *g, const float *z, ptrdiff_t step, float *dx);
};

extern const struct grey_isa grey_avx2;
extern const struct grey_isa grey_avx512;

#endif /* KERNEL_CPU_GREY_H */
