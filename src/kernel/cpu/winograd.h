/* SPDX-License-Identifier: MIT */
/* winograd.h - transforms of Winograd's method for 3x3 kernels, one table for each instruction
 * set.
 *
 * Minimal filtering (Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks",
 * 2016): a tile of the output of a 3x3 kernel is
 *
 *     Y = A^T [ (G g G^T) . (B^T d B) ] A        d: the inputs it needs
 *
 * Summed over input channels the products are matrix products, one for each place of the
 * brackets. There are three forms of it:
 *
 *   tiles   F(4x4, 3x3): 4x4 outputs from 6x6 inputs, 36 products instead of 144
 *   whole   2x2 images with one row of zeros around, each a tile of its own: in one dimension
 *           y0 = g1 x0 + g2 x1 and y1 = g0 x0 + g1 x1 take three products, g1 (x0 + x1),
 *           (g2 - g1) x1 and (g0 - g1) x0; in two nine, where the plain sum has sixteen and
 *           twenty with zeros
 *
 *   phases  two taps or one in each dimension, F(4, 2) or nothing to gain: 5 or 4 products for 4
 *           outputs; what a kernel of stride 2 falls into (conv_winograd.c)
 *
 * Transforms run over channels as vectors: `step` is the distance between places.
 */
#ifndef KERNEL_CPU_WINOGRAD_H
#define KERNEL_CPU_WINOGRAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Where a tile's inputs, or the gradient of its outputs, come from. */
struct winograd_in {
    const float *x;        /* the image */
    ptrdiff_t first;       /* floats before its first pixel */
    const uint8_t *index;  /* not NULL: x is what a 2x2 max pool left of it */
    ptrdiff_t row, pixel;  /* floats between rows and pixels of x (of windows if pooled) */
    int64_t rows, columns; /* of the image before pooling; zeros around it */
    int64_t top, left;     /* the tile's first row and column, maybe outside */
};

/* Where a tile of the output goes. */
struct winograd_out {
    float *y;
    ptrdiff_t row, pixel; /* floats between rows and pixels of y (of windows if pooled) */
    int rows, columns;    /* how many of the tile exist (of its windows if pooled) */
    const float *bias;    /* or NULL */
    bool relu;
    bool accumulate; /* add what y holds */
    uint8_t *index;  /* not NULL: 2x2 windows are reduced to their largest */
};

struct winograd_form {
    int out;            /* rows and columns of a tile's output */
    int before;         /* a tile's inputs begin so far after what its first output needs */
    int taps[2];        /* rows and columns of the kernel */
    int side[2];        /* rows and columns of places */
    int weight_side[2]; /* of those of the weights: one, if all places share them */
    /* v = B^T d B for n channels. */
    void (*input)(const struct winograd_in *in, int n, float *v, ptrdiff_t step);
    /* Y = A^T m A, bias, relu, pooling. */
    void (*output)(const float *m, ptrdiff_t step, int n, const struct winograd_out *out);
    /* m = A dy A^T, the transpose of `output`. */
    void (*output_grad)(const struct winograd_in *dy, int n, float *m, ptrdiff_t step);
    /* u = G g G^T; g's rows of taps lie `row` apart, its columns `column`. */
    void (*weight)(const float *g, ptrdiff_t row, ptrdiff_t column, int n, float *u,
                   ptrdiff_t step);
    /* dg = G^T u G, the transpose of `weight`; rows and columns as there. */
    void (*weight_grad)(const float *u, ptrdiff_t step, int n, float *dg, ptrdiff_t row,
                        ptrdiff_t column);
};

struct winograd_isa {
    struct winograd_form tiles, whole;
    struct winograd_form phases[2][2]; /* [two taps in a column][two in a row] */
};

extern const struct winograd_isa winograd_avx2;
extern const struct winograd_isa winograd_avx512;

#endif /* KERNEL_CPU_WINOGRAD_H */
