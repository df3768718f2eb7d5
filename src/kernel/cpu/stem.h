/* SPDX-License-Identifier: MIT */
/* stem.h - 3x3 windows over images of one channel, one table for each instruction set.
 *
 * A network's first layer on grey images has a shared dimension of only nine: too short for the
 * tiles of gemm_tile.h. Here the nine weights of two vectors of output channels (one with
 * AVX2) stay in registers while the image goes by, and a pooling window of 2x2 outputs
 * takes its 4x4 inputs at once.
 */
#ifndef KERNEL_CPU_STEM_H
#define KERNEL_CPU_STEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct stem {
    const float *plane;    /* one image with its zeros around */
    ptrdiff_t row;         /* floats between its rows */
    int64_t rows, columns; /* windows */
    int channels;          /* of y, dy and the weights */
};

struct stem_isa {
    int width; /* channels that go together */
    /* y, index = 2x2 max pool of plane * w + bias for channels [first, first + n), n <= width.
     */
    void (*pool)(const struct stem *stem, int first, int n, const float *w, const float *bias,
                 bool relu, float *y, uint8_t *index);
    /* dw[tap][o] and db[o] of these channels grow by this image's share (db may be NULL). */
    void (*weight)(const struct stem *stem, int first, int n, const float *dy,
                   const uint8_t *index, float *dw, float *db);
};

extern const struct stem_isa stem_avx2;
extern const struct stem_isa stem_avx512;

#endif /* KERNEL_CPU_STEM_H */
