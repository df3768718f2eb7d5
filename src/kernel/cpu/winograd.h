/* SPDX-License-Identifier: MIT */
/* winograd.h - the transforms of F(4x4, 3x3), one table for each instruction set.
 *
 * Winograd's minimal filtering (Lavin and Gray, "Fast Algorithms for Convolutional Neural
 * Networks", 2016): a 4x4 tile of the output of a 3x3 kernel is
 *
 *     Y = A^T [ (G g G^T) . (B^T d B) ] A        d: the 6x6 inputs it needs
 *
 * with 36 products instead of 144. Summed over input channels the products are 36 matrix
 * products, one for each place. Transforms run over channels as vectors:
 * `step` is the distance between places.
 */
#ifndef KERNEL_CPU_WINOGRAD_H
#define KERNEL_CPU_WINOGRAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { WINOGRAD_OUT = 4, WINOGRAD_IN = 6, WINOGRAD_PLACES = 36 };

/* Where a tile of the output goes. */
struct winograd_out {
    float *y;
    ptrdiff_t row, pixel; /* floats between rows and pixels of y (of windows if pooled) */
    int rows, columns;    /* how many of the 4x4 exist (of the 2x2 windows if pooled) */
    const float *bias;    /* or NULL */
    bool relu;
    uint8_t *index; /* not NULL: 2x2 windows are reduced to their largest */
};

struct winograd_isa {
    /* v = B^T d B for n channels. */
    void (*input)(const float *d, ptrdiff_t row, ptrdiff_t pixel, int n, float *v,
                  ptrdiff_t step);
    /* Y = A^T m A, bias, relu, pooling. */
    void (*output)(const float *m, ptrdiff_t step, int n, const struct winograd_out *out);
    /* m = A dy A^T, the transpose of `output`; rows and columns past the edge count as zeros.
     */
    void (*output_grad)(const float *dy, ptrdiff_t row, ptrdiff_t pixel, int rows, int columns,
                        int n, float *m, ptrdiff_t step);
    /* u = G g G^T; g's nine taps lie `tap` apart. */
    void (*weight)(const float *g, ptrdiff_t row, ptrdiff_t column, int n, float *u,
                   ptrdiff_t step);
    /* dg = G^T u G, the transpose of `weight`. */
    void (*weight_grad)(const float *u, ptrdiff_t step, int n, float *dg, ptrdiff_t tap);
};

extern const struct winograd_isa winograd_avx2;
extern const struct winograd_isa winograd_avx512;

#endif /* KERNEL_CPU_WINOGRAD_H */
