/* SPDX-License-Identifier: MIT */
/* norm_conv.h - what a batch norm does to rows of images, for convolutions that do it on the way: one
 * table for each instruction set.
 *
 * A row is a place with its `c` channels. Rows are few enough to stay in L2 between the product that makes
 * or reads them and what is done here, so memory sees each image once. Numbers have one float a channel.
 */
#ifndef KERNEL_CPU_NORM_CONV_H
#define KERNEL_CPU_NORM_CONV_H

#include <stdbool.h>
#include <stdint.h>

#include "kernel/kernel.h"

/* (x - mean) * scale + shift, not below low nor above high. */
struct norm_numbers {
    const float *mean, *scale, *shift;
    float low, high;
};

struct norm_isa {
    /* a = what the numbers say of x. */
    void (*normalize)(const struct norm_numbers *numbers, const float *x, int64_t rows,
                      int64_t c, float *a);
    /* to = dz + (z - mean) * scale + shift: dz with what flows back through z's own moments. */
    void (*spread)(const struct norm_numbers *numbers, const float *dz, const float *z,
                   int64_t rows, int64_t c, float *to);
    /* Joins the moments of some rows to those of `seen` before: means, and sums of squares around them.
     * Where far is not NULL, the rows are written there, past the caches. */
    void (*moments)(const float *z, int64_t rows, int64_t c, int64_t seen, double *mean,
                    double *squares, float *far);
    /* d is da where `normalize` cut nothing off, else 0. dx = d * scale; sums grow by d, and products
     * by d * (x - mean). If dx is far, da is overwritten. */
    void (*back)(const struct norm_numbers *numbers, float *da, const float *x, int64_t rows,
                 int64_t c, bool is_far, float *dx, double *sums, double *products);
    void (*end_far)(void); /* after what was written past the caches */
};

extern const struct norm_isa norm_avx2;
extern const struct norm_isa norm_avx512;

/* The products of a 1x1 convolution, in one thread: some rows by weights that are packed once. Room is what
 * they work in, of one thread. */
struct norm_products {
    /* B (k,n), whose element (i,j) lies at w[i * row + j * column]. */
    size_t (*packed_bytes)(int64_t k, int64_t n);
    void (*pack)(const float *w, int64_t row, int64_t column, int64_t k, int64_t n,
                 struct pool *pool, void *to);
    /* For the two products below, of so many rows or fewer. */
    size_t (*room_bytes)(int64_t rows, int64_t c, int64_t o, bool is_back);
    /* to (rows,n) = a (rows,k) B */
    void (*multiply)(const float *a, int64_t rows, int64_t k, const void *packed, int64_t n,
                     float *to, void *room);
    /* dw (c,o) grows by a^T dz, of a (rows,c) and dz (rows,o). */
    void (*add_weight)(const float *a, const float *dz, int64_t rows, int64_t c, int64_t o,
                       float *dw, void *room);
    void (*begin)(void), (*end)(void); /* around some of them; NULL: nothing is to be done */
    int64_t row_grain;                 /* rows are best a multiple of it */
};

/* The six ops of kernel.h. */
bool norm_conv_can_run(const struct kernel_problem *problem);
/* Is its window one pixel? */
bool norm_conv_is_pixel(const struct kernel_problem *problem);
size_t norm_conv_scratch(const struct kernel_problem *problem,
                         const struct norm_products *products);
void norm_conv_run(const struct kernel_call *call, const struct norm_products *products);

#endif /* KERNEL_CPU_NORM_CONV_H */
