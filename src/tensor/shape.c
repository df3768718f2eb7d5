/* SPDX-License-Identifier: MIT */
/* shape.c - extents, and copies between memory orders.
 *
 * A layout is a permutation of the shape's axes: the elements lie row-major
 * in the permuted order. For example HWIO is axes 2, 3, 1, 0 of O, I, H, W.
 */
#include "tensor/shape.h"

#include <stdio.h>
#include <string.h>

enum { PERMUTED_MAX = 4 };

static const struct {
    const char *name;
    int rank;               /* that the layout is for; 0 for any */
    int axis[PERMUTED_MAX]; /* outermost first */
} layouts[] = {
    [LAYOUT_PLAIN] = { "plain", 0, { 0 } },
    [LAYOUT_NHWC] = { "nhwc", 4, { 0, 2, 3, 1 } },
    [LAYOUT_HWIO] = { "hwio", 4, { 2, 3, 1, 0 } },
    [LAYOUT_IO] = { "io", 2, { 1, 0 } },
    [LAYOUT_WIO] = { "wio", 3, { 2, 1, 0 } },
    [LAYOUT_OHWI] = { "ohwi", 4, { 0, 2, 3, 1 } },
};

struct shape shape_of(int rank, const int64_t *dims)
{
    struct shape shape = { .rank = rank };

    BUG_ON(rank < 0 || rank > SHAPE_MAX);
    for (int i = 0; i < rank; i++)
        shape.dim[i] = dims[i];
    return shape;
}

int64_t shape_count(const struct shape *shape)
{
    int64_t count = 1;

    for (int i = 0; i < shape->rank; i++)
        count *= shape->dim[i];
    return count;
}

enum status shape_checked_count(const struct shape *shape, int64_t *out)
{
    int64_t count = 1;
    bool is_empty = false, overflows = false;

    if (shape->rank < 0 || shape->rank > SHAPE_MAX)
        return FAIL(STATUS_CORRUPT, "a shape has 0 to %d extents, not %d", SHAPE_MAX,
                    shape->rank);
    for (int i = 0; i < shape->rank; i++) {
        if (shape->dim[i] < 0)
            return FAIL(STATUS_CORRUPT, "negative extent %lld in a shape",
                        (long long)shape->dim[i]);
        is_empty = is_empty || shape->dim[i] == 0;
        overflows = overflows || __builtin_mul_overflow(count, shape->dim[i], &count);
    }
    if (overflows && !is_empty) { /* whichever order the extents have */
        char text[SHAPE_TEXT];
        return FAIL(STATUS_CORRUPT, "shape %s has too many elements", shape_print(shape, text));
    }
    *out = is_empty ? 0 : count;
    return STATUS_OK;
}

bool shape_equal(const struct shape *a, const struct shape *b)
{
    if (a->rank != b->rank)
        return false;
    for (int i = 0; i < a->rank; i++)
        if (a->dim[i] != b->dim[i])
            return false;
    return true;
}

const char *shape_print(const struct shape *shape, char text[SHAPE_TEXT])
{
    size_t length = 0;

    if (shape->rank == 0)
        snprintf(text, SHAPE_TEXT, "scalar");
    for (int i = 0; i < shape->rank && length < SHAPE_TEXT; i++)
        length += (size_t)snprintf(text + length, SHAPE_TEXT - length, "%s%lld",
                                   i > 0 ? "x" : "", (long long)shape->dim[i]);
    return text;
}

const char *layout_name(enum layout layout)
{
    BUG_ON((unsigned)layout >= sizeof layouts / sizeof layouts[0]);
    return layouts[layout].name;
}

/* One side of a copy: where the element at a position of the permuted axes lies. */
struct walk {
    int64_t extent[PERMUTED_MAX];         /* of the permuted axes, outermost first */
    int64_t plain_stride[PERMUTED_MAX];   /* elements between neighbours on that axis */
    int64_t ordered_stride[PERMUTED_MAX]; /* the same in the layout's order */
};

/* Axes that the layout does not have are outermost with extent 1. */
static struct walk plan_walk(enum layout layout, const struct shape *shape)
{
    const int rank = layouts[layout].rank, missing = PERMUTED_MAX - rank;
    int64_t stride[SHAPE_MAX] = { 0 }, step = 1;
    struct walk walk = { .extent = { 1, 1, 1, 1 } };

    for (int i = shape->rank - 1; i >= 0; i--) {
        stride[i] = step;
        step *= shape->dim[i];
    }
    step = 1;
    for (int i = rank - 1; i >= 0; i--) {
        const int axis = layouts[layout].axis[i];
        walk.extent[missing + i] = shape->dim[axis];
        walk.plain_stride[missing + i] = stride[axis];
        walk.ordered_stride[missing + i] = step;
        step *= shape->dim[axis];
    }
    return walk;
}

/* A run of elements with given distances; the size is a constant in each case, so that memcpy
 * is one move. */
static void copy_run(char *to, int64_t to_stride, const char *from, int64_t from_stride,
                     int64_t count, size_t size)
{
    switch (size) {
    case 1:
        for (int64_t i = 0; i < count; i++)
            to[i * to_stride] = from[i * from_stride];
        return;
    case 2:
        for (int64_t i = 0; i < count; i++)
            memcpy(to + i * to_stride * 2, from + i * from_stride * 2, 2);
        return;
    case 4:
        for (int64_t i = 0; i < count; i++)
            memcpy(to + i * to_stride * 4, from + i * from_stride * 4, 4);
        return;
    case 8:
        for (int64_t i = 0; i < count; i++)
            memcpy(to + i * to_stride * 8, from + i * from_stride * 8, 8);
        return;
    }
    for (int64_t i = 0; i < count; i++)
        memcpy(to + i * to_stride * (int64_t)size, from + i * from_stride * (int64_t)size,
               size);
}

static void copy_ordered(const int64_t extent[PERMUTED_MAX], size_t size, char *to,
                         const int64_t to_stride[PERMUTED_MAX], const char *from,
                         const int64_t from_stride[PERMUTED_MAX])
{
    const int64_t bytes = (int64_t)size;

    for (int64_t a = 0; a < extent[0]; a++) {
        for (int64_t b = 0; b < extent[1]; b++) {
            for (int64_t c = 0; c < extent[2]; c++) {
                const int64_t at = a * to_stride[0] + b * to_stride[1] + c * to_stride[2];
                const int64_t source =
                    a * from_stride[0] + b * from_stride[1] + c * from_stride[2];
                copy_run(to + at * bytes, to_stride[3], from + source * bytes, from_stride[3],
                         extent[3], size);
            }
        }
    }
}

static bool copy_plain(enum layout layout, const struct shape *shape, size_t size,
                       const void *from, void *to)
{
    BUG_ON((unsigned)layout >= sizeof layouts / sizeof layouts[0]);
    if (layout == LAYOUT_PLAIN) {
        const size_t bytes = (size_t)shape_count(shape) * size;
        if (bytes > 0)
            memcpy(to, from, bytes);
        return true;
    }
    BUG_ON(shape->rank != layouts[layout].rank);
    return false;
}

void layout_from_plain(enum layout layout, const struct shape *shape, size_t size,
                       const void *plain, void *out)
{
    if (copy_plain(layout, shape, size, plain, out))
        return;
    const struct walk walk = plan_walk(layout, shape);
    copy_ordered(walk.extent, size, out, walk.ordered_stride, plain, walk.plain_stride);
}

void layout_to_plain(enum layout layout, const struct shape *shape, size_t size,
                     const void *data, void *out_plain)
{
    if (copy_plain(layout, shape, size, data, out_plain))
        return;
    const struct walk walk = plan_walk(layout, shape);
    copy_ordered(walk.extent, size, out_plain, walk.plain_stride, data, walk.ordered_stride);
}
