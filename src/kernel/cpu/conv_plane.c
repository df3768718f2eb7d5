/* SPDX-License-Identifier: MIT */
/* conv_plane.c - shapes of a convolution and the padded copies of its images. */
#include <string.h>

#include "kernel/cpu/conv.h"

enum { STACK_CHANNELS = 32 };

struct conv conv_of(const struct kernel_problem *problem, const struct shape *x,
                    const struct shape *w)
{
    const struct attrs *attrs = &problem->attrs;
    struct conv conv = {
        .n = x->dim[0],
        .c = x->dim[1],
        .h = x->dim[2],
        .w = x->dim[3],
        .o = w->dim[0],
        .kh = w->dim[2],
        .kw = w->dim[3],
        .sh = attrs->stride[0] > 0 ? attrs->stride[0] : 1,
        .sw = attrs->stride[1] > 0 ? attrs->stride[1] : 1,
        .ph = attrs->pad[0],
        .pw = attrs->pad[1],
    };

    conv.oh = (conv.h + 2 * conv.ph - conv.kh) / conv.sh + 1;
    conv.ow = (conv.w + 2 * conv.pw - conv.kw) / conv.sw + 1;
    return conv;
}

bool conv_can_run(const struct kernel_problem *problem)
{
    if (tile_current() == NULL || problem->attrs.groups > 1 ||
        problem->attrs.activation > ACTIVATION_RELU)
        return false;
    for (int i = 0; i < problem->n_in; i++) {
        if (problem->in[i].dtype != DTYPE_F32 && problem->in[i].dtype != DTYPE_U8)
            return false;
    }
    return problem->out[0].dtype == DTYPE_F32 &&
           problem->attrs.window[0] == problem->attrs.window[1] &&
           (problem->attrs.window[0] == 0 || problem->attrs.window[0] == 2);
}

bool conv_stacks(const struct conv *conv)
{
    return conv->kh > 1 && conv->c * conv->kh <= STACK_CHANNELS;
}

struct plane plane_of(const float *x, int64_t h, int64_t w, int64_t c, int64_t top,
                      int64_t left, int64_t rows, int64_t columns, int64_t stack,
                      int64_t stride)
{
    struct plane plane = {
        .isa = tile_current(),
        .x = x,
        .h = h,
        .w = w,
        .c = c,
        .top = top,
        .left = left,
        .rows = rows,
        .columns = columns,
        .stack = stack,
        .stride = stride,
    };

    if (stack == 1 && top == 0 && left == 0 && rows <= h && columns <= w) {
        plane.is_direct = true;
        plane.rows = h;
        plane.columns = w;
    }
    return plane;
}

/* One row of a plane without stack; `source` is the image's row, maybe outside it. */
static void copy_row(const struct plane *plane, const float *image, int64_t source, float *to)
{
    const int64_t begin = plane->left > 0 ? plane->left : 0;
    const int64_t skip = plane->left < 0 ? -plane->left : 0;
    int64_t count = plane->w - skip;

    if (count > plane->columns - begin)
        count = plane->columns - begin;
    if (source < 0 || source >= plane->h || count <= 0) {
        memset(to, 0, (size_t)(plane->columns * plane->c) * sizeof(float));
        return;
    }
    const float *from = image + (source * plane->w + skip) * plane->c;
    memset(to, 0, (size_t)(begin * plane->c) * sizeof(float));
    memcpy(to + begin * plane->c, from, (size_t)(count * plane->c) * sizeof(float));
    memset(to + (begin + count) * plane->c, 0,
           (size_t)((plane->columns - begin - count) * plane->c) * sizeof(float));
}

/* Row s of the stack of one row of the plane: its pixels go pixel floats apart. */
static void copy_stacked(const struct plane *plane, const float *image, int64_t source,
                         float *to)
{
    const int64_t c = plane->c, pixel = plane_pixel(plane);
    const bool is_inside = source >= 0 && source < plane->h;
    const float *from = is_inside ? image + source * plane->w * c : NULL;

    for (int64_t x = 0; x < plane->columns; x++) {
        const int64_t at = x - plane->left;
        const bool exists = is_inside && at >= 0 && at < plane->w;

        for (int64_t i = 0; i < c; i++)
            to[x * pixel + i] = exists ? from[at * c + i] : 0.0f;
    }
}

/* One row of a plane that is spread out from windows. */
static void spread_row(const struct plane *plane, int64_t image, int64_t source, float *to)
{
    const int64_t c = plane->c, rows = plane->h / 2, windows = plane->w / 2;
    const int64_t at = (image * rows + source / 2) * windows * c;

    memset(to, 0, (size_t)(plane->columns * c) * sizeof(float));
    if (source < 0 || source >= 2 * rows)
        return;
    /* Windows whose both pixels are inside; at most one on either side is cut. */
    for (int64_t x = 0; x < windows;) {
        const int64_t pixel = 2 * x + plane->left;
        int64_t count = (plane->columns - pixel) / 2;

        if (count > windows - x)
            count = windows - x;
        if (pixel >= 0 && count > 0) {
            plane->isa->expand(plane->x + at + x * c, plane->index + at + x * c,
                               (int)(source % 2), count, (int)c, to + pixel * c);
            x += count;
            continue;
        }
        for (int64_t i = 0; i < 2 * c; i++) {
            const int64_t column = pixel + i / c;
            if (column >= 0 && column < plane->columns &&
                plane->index[at + x * c + i % c] == 2 * (source % 2) + i / c)
                to[column * c + i % c] = plane->x[at + x * c + i % c];
        }
        x++;
    }
}

const float *plane_copy(const struct plane *plane, int64_t image, int64_t first, int64_t n_rows,
                        float *to)
{
    const float *x =
        plane->is_pooled ? NULL : plane->x + image * plane->h * plane->w * plane->c;

    if (plane->is_direct)
        return x + first * plane_row(plane);
    for (int64_t r = 0; r < n_rows; r++) {
        float *row = to + r * plane_row(plane);

        if (plane->is_pooled) {
            spread_row(plane, image, first + r - plane->top, row);
            continue;
        }
        if (plane->stack == 1) {
            copy_row(plane, x, first + r - plane->top, row);
            continue;
        }
        for (int64_t s = 0; s < plane->stack; s++)
            copy_stacked(plane, x, (first + r) * plane->stride + s - plane->top,
                         row + s * plane->c);
    }
    return to;
}
