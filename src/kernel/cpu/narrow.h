/* SPDX-License-Identifier: MIT */
/* narrow.h - convolutions of few channels under a 2x2 max pool, one table for each instruction
 * set.
 *
 * With one to sixteen channels (LeNet) vectors of channels are mostly
 * empty. Here a vector holds pixels, or the kw*C inputs that one row of a kernel meets
 * (the run), which lie side by side. Gradients use that a max pool passes a window's gradient to
 * one of its four pixels: they visit a window once and channel instead of four pixels.
 */
#ifndef KERNEL_CPU_NARROW_H
#define KERNEL_CPU_NARROW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Floats of a run at most; planes may be read, and wide ones written, so far past their end. */
enum { NARROW_RUN = 32 };

struct narrow {
    ptrdiff_t row;         /* floats between rows of a plane: an image with zeros around */
    int64_t rows, columns; /* windows */
    int in, out;           /* channels */
    int kh, kw;
};

struct narrow_isa {
    /* y, index = 2x2 max pool of plane * w + bias, for one input channel and a 5x5 kernel. */
    void (*pool)(const struct narrow *narrow, const float *plane, const float *w,
                 const float *bias, bool relu, float *y, uint8_t *index);
    /* sums[ky][NARROW_RUN] (the first kw*in of each) and *sum grow by what channel o of one
     * image's dy sends to them. kh is 3 or 5. */
    void (*weight)(const struct narrow *narrow, const float *plane, const float *dy,
                   const uint8_t *index, int o, float *sums, float *sum);
    /* plane += what one image's dy sends to it; w is [out][kh][NARROW_RUN], zeros past the run.
     */
    void (*input)(const struct narrow *narrow, const float *dy, const uint8_t *index,
                  const float *w, float *plane);
};

extern const struct narrow_isa narrow_avx2;
extern const struct narrow_isa narrow_avx512;

#endif /* KERNEL_CPU_NARROW_H */
