/* SPDX-License-Identifier: MIT */
/* conv.h - what the convolution kernels share.
 *
 * Images are NHWC, weights HWIO. A convolution is a matrix product whose left rows are
 * pixels: for output pixel p and kernel row ky the kw*C inputs lie side by side in memory, so a
 * tile walks kh segments of kw*C steps. That holds if every input pixel exists, so images are
 * first copied, a group or strip at a time, into a plane with zeros around.
 *
 * With few channels (C*kh <= 32) segments would be too short; then the copy puts
 * the kh rows that an output row needs side by side, pixel by pixel, and the kernel
 * becomes one row high with C*kh channels.
 */
#ifndef KERNEL_CPU_CONV_H
#define KERNEL_CPU_CONV_H

#include "kernel/cpu/gemm.h"
#include "kernel/kernel.h"

struct conv {
    int64_t n, c, h, w; /* input */
    int64_t o, oh, ow;  /* output before pooling */
    int64_t kh, kw, sh, sw, ph, pw;
};

/* From the shapes of x and w (or their gradients) and the strides. */
struct conv conv_of(const struct kernel_problem *problem, const struct shape *x,
                    const struct shape *w);
/* All tensors are f32 (index u8), any window is 2x2, there is one group, no activation but relu,
 * and there is an instruction set. */
bool conv_can_run(const struct kernel_problem *problem);
/* Do gradients arrive as a 2x2 max pool left them, with an index? Then they are spread out on
 * the way: conv2d_pool_grad_input and conv2d_pool_grad_weight. */
static inline bool conv_is_pooled(const struct kernel_problem *problem)
{
    return problem->attrs.window[0] > 0;
}

/* Source images with a frame of zeros, or cropped where top or left is negative. */
struct plane {
    const struct tile_isa *isa;
    const float *x;
    int64_t h, w, c;       /* of an image as it lies */
    int64_t top, left;     /* zeros before its first row and pixel */
    int64_t rows, columns; /* of the plane of a whole image */
    int64_t stack, stride; /* rows put side by side (1: none), and how far apart they start */
    bool is_direct;        /* the image itself will do: no zeros, no stack */
    bool is_pooled;        /* x is what a 2x2 max pool left of (h,w,c): see `index` */
    const uint8_t *index;
};

struct plane plane_of(const float *x, int64_t h, int64_t w, int64_t c, int64_t top,
                      int64_t left, int64_t rows, int64_t columns, int64_t stack,
                      int64_t stride);
/* Makes it the plane of a gradient that a 2x2 max pool is still to spread out. */
static inline void plane_pool(struct plane *plane)
{
    plane->is_direct = false;
    plane->is_pooled = true;
}
/* Floats between rows of the plane, and of a pixel. */
static inline int64_t plane_pixel(const struct plane *plane)
{
    return plane->c * plane->stack;
}
static inline int64_t plane_row(const struct plane *plane)
{
    return plane->columns * plane_pixel(plane);
}
/* Rows [first, first + n_rows) of an image, copied to `to` unless direct; where they begin. */
const float *plane_copy(const struct plane *plane, int64_t image, int64_t first, int64_t n_rows,
                        float *to);
bool conv_stacks(const struct conv *conv);

/* y = x * w, the sum over a kernel's taps for each pixel of a grid. ------------------------ */
struct correlate {
    const struct tile_isa *isa;
    struct plane plane;
    int64_t images;
    int64_t rows, columns;  /* of the output grid, before pooling */
    int64_t taps_y, taps_x; /* kernel over the plane; taps_y is 1 if stacked */
    int64_t step_y, step_x; /* rows and pixels of the plane between output pixels */
    /* Weights [kh][kw][wc][wo]: tap t along y is kernel row tap_y + t * tap_y_step. */
    const float *w;
    int64_t kw, wc, wo;
    int64_t tap_y, tap_y_step, tap_x, tap_x_step;
    bool is_turned; /* sums over wo and yields wc (gradient of the input) */
    float *y;
    int64_t y_image, y_row, y_pixel; /* floats between images, rows and pixels of the grid */
    const float *bias;
    bool relu;
    bool pool; /* 2x2 windows: y and index are (images, rows/2, columns/2, channels) */
    uint8_t *index;
};

size_t correlate_scratch_bytes(const struct correlate *correlate);
void correlate_run(const struct correlate *correlate, struct pool *pool, void *scratch);

/* conv2d_grad_weight. */
size_t conv_weight_scratch(const struct kernel_problem *problem);
void conv_weight_run(const struct kernel_call *call);

/* conv2d_pool and conv2d_pool_grad_weight for 3x3 kernels over one channel: conv_stem.c. */
bool conv_is_stem(const struct conv *conv, const struct kernel_problem *problem);
size_t conv_stem_scratch(const struct conv *conv);
void conv_stem_run(const struct conv *conv, const struct kernel_call *call);
void conv_stem_weight_run(const struct conv *conv, const struct kernel_call *call);

/* The same ops, and conv2d_pool_grad_input, for few channels: conv_narrow.c. */
bool conv_is_narrow(const struct conv *conv, const struct kernel_problem *problem);
bool conv_is_narrow_weight(const struct conv *conv, const struct kernel_problem *problem);
bool conv_is_narrow_input(const struct conv *conv, const struct kernel_problem *problem);
size_t conv_narrow_scratch(const struct conv *conv);
void conv_narrow_run(const struct conv *conv, const struct kernel_call *call);
void conv_narrow_weight_run(const struct conv *conv, const struct kernel_call *call);
void conv_narrow_input_run(const struct conv *conv, const struct kernel_call *call);

/* The same ops for 3x3 kernels of stride 1 or 2 by Winograd's method: conv_winograd.c. */
bool winograd_can_run(const struct kernel_problem *problem);
bool winograd_can_run_input(const struct kernel_problem *problem);
bool winograd_can_run_weight(const struct kernel_problem *problem);
size_t winograd_scratch(const struct kernel_problem *problem);
size_t winograd_input_scratch(const struct kernel_problem *problem);
size_t winograd_weight_scratch(const struct kernel_problem *problem);
void winograd_run(const struct kernel_call *call);
void winograd_input_run(const struct kernel_call *call);
void winograd_weight_run(const struct kernel_call *call);

#endif /* KERNEL_CPU_CONV_H */
