/* SPDX-License-Identifier: MIT */
/* depthwise.h - convolution of each channel by itself, one table for each instruction set.
 *
 * Groups = channels of the input = channels of the output. Images are NHWC and weights lie
 * [kh][kw][C], so a vector is some channels of one pixel and nothing is ever broadcast or
 * turned. With so little arithmetic (kh*kw multiply-adds an element) everything is bound by
 * memory: rows are walked in their order, some pixels side by side and all channels of these, so
 * that every line comes once from afar, and weights stay in L1.
 *
 * Windows of 3x3 with stride 1 or 2 and at most one column of padding have code of their own; any
 * other goes pixel by pixel. Each element's sum is one chain of fused multiply-adds in the order
 * of the taps, whichever code makes it.
 */
#ifndef KERNEL_CPU_DEPTHWISE_H
#define KERNEL_CPU_DEPTHWISE_H

#include <stdbool.h>
#include <stdint.h>

struct depthwise {
    int64_t n, c, h, w; /* the image that the windows go over */
    int64_t oh, ow;
    int64_t kh, kw, sh, sw, ph, pw;
    float low, high; /* what y is cut to: infinite, or those of relu and relu6 */
};

struct depthwise_isa {
    /* Row oy of y from one image; bias may be NULL. y is the row's first pixel. */
    void (*forward)(const struct depthwise *d, const float *image, int64_t oy, const float *w,
                    const float *bias, float *y);
    /* Row iy of dx from dy of one image. */
    void (*input)(const struct depthwise *d, const float *dy, int64_t iy, const float *w,
                  float *dx);
    /* Rows 2*oy and 2*oy + 1 (if there is one) of dx of one image: 3x3, stride 2, padding 1. */
    void (*input_halved)(const struct depthwise *d, const float *dy, int64_t oy, const float *w,
                         float *dx);
    /* sums[tap][c] grow by the share of row oy of dy of one image, and sums of dy after the last
     * tap if is_biased. */
    void (*weight)(const struct depthwise *d, const float *image, const float *dy, int64_t oy,
                   bool is_biased, float *sums);
};

/* How the gradient of the input is made -------------------------------------------------------- */

/* Is it a convolution of dy? The padding that takes must not be negative. */
static inline bool depthwise_is_turned(const struct depthwise *d)
{
    return d->sh == 1 && d->sw == 1 && d->ph < d->kh && d->pw < d->kw;
}

/* Then dy takes the place of x, and x's extents that of y's. */
static inline struct depthwise depthwise_turned(const struct depthwise *d)
{
    struct depthwise out = *d;

    out.h = d->oh;
    out.w = d->ow;
    out.oh = d->h;
    out.ow = d->w;
    out.ph = d->kh - 1 - d->ph;
    out.pw = d->kw - 1 - d->pw;
    return out;
}

/* Is it what input_halved does? */
static inline bool depthwise_is_halved(const struct depthwise *d)
{
    return d->kh == 3 && d->kw == 3 && d->sh == 2 && d->sw == 2 && d->ph == 1 && d->pw == 1;
}

extern const struct depthwise_isa depthwise_avx2;
extern const struct depthwise_isa depthwise_avx512;

#endif /* KERNEL_CPU_DEPTHWISE_H */
