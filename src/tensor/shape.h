/* SPDX-License-Identifier: MIT */
/* shape.h - the extents of a tensor and how they lie in memory.
 *
 * A shape is written as users know it (images N, C, H, W; weights as PyTorch
 * has them); the layout says in which order the elements lie. A layout is chosen
 * once when a graph is prepared and kept from op to op:
 *
 *   LAYOUT_PLAIN  row-major in the shape's own order
 *   LAYOUT_NHWC   images: channels innermost                (shape N, C, H, W)
 *   LAYOUT_HWIO   convolution weights: output channel innermost (shape O, I, H, W)
 *   LAYOUT_IO     linear weights: output innermost          (shape O, I)
 *   LAYOUT_WIO    filters along sequences: output innermost (shape O, I, W)
 *   LAYOUT_OHWI   convolution weights: input channel innermost, as devices' libraries take them (shape O, I, H, W)
 */
#ifndef TENSOR_SHAPE_H
#define TENSOR_SHAPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { SHAPE_MAX = 6, SHAPE_TEXT = 96 };
enum layout { LAYOUT_PLAIN, LAYOUT_NHWC, LAYOUT_HWIO, LAYOUT_IO, LAYOUT_WIO, LAYOUT_OHWI };

struct shape {
    int rank;
    int64_t dim[SHAPE_MAX];
};

/* What of a graph's shapes changes from step to step: the samples of a shard, and how long its
 * sequences are (the first, or only, ones; a decoder's). */
struct extents {
    int64_t rows, length[2];
};
static inline bool extents_equal(struct extents a, struct extents b)
{
    return a.rows == b.rows && a.length[0] == b.length[0] && a.length[1] == b.length[1];
}

struct shape shape_of(int rank, const int64_t *dims);
static inline struct shape shape_1(int64_t a)
{
    struct shape s = { 1, { a } };
    return s;
}
static inline struct shape shape_2(int64_t a, int64_t b)
{
    struct shape s = { 2, { a, b } };
    return s;
}
static inline struct shape shape_3(int64_t a, int64_t b, int64_t c)
{
    struct shape s = { 3, { a, b, c } };
    return s;
}
static inline struct shape shape_4(int64_t a, int64_t b, int64_t c, int64_t d)
{
    struct shape s = { 4, { a, b, c, d } };
    return s;
}
int64_t shape_count(const struct shape *shape); /* product; 1 for rank 0 */
/* The same, STATUS_CORRUPT on overflow, a negative extent or a wrong rank. */
MUST_CHECK enum status shape_checked_count(const struct shape *shape, int64_t *out);
bool shape_equal(const struct shape *a, const struct shape *b);
/* "64x784", "scalar"; returns `text`. */
const char *shape_print(const struct shape *shape, char text[SHAPE_TEXT]);
const char *layout_name(enum layout layout); /* "plain", "nhwc", "hwio", "io", "wio", "ohwi" */

/* Copies `count` elements of `size` bytes from the plain order to `layout` (or back). */
void layout_from_plain(enum layout layout, const struct shape *shape, size_t size,
                       const void *plain, void *out);
void layout_to_plain(enum layout layout, const struct shape *shape, size_t size,
                     const void *data, void *out_plain);

#ifdef __cplusplus
}
#endif

#endif /* TENSOR_SHAPE_H */
