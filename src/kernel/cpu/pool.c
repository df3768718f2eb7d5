/* SPDX-License-Identifier: MIT */
/* pool.c - max and average pooling and their gradients, images (N, H, W, C).
 *
 * All loops run along the channels, which lie together. Every output element is written
 * by one task. Where windows are disjoint (stride >= window, no padding), a gradient
 * goes from the small image to the large one, each element written once, zeros included;
 * 2 x 2 windows side by side, the common case, have their own loops. Elsewhere each
 * pixel of dx gathers from the windows that cover it, in the reference's order.
 */
#include <string.h>

#include "kernel/cpu/rows.h"
#include "kernel/cpu/simd_block.h"

/* Extents: the image under the windows is n x h x w x c, the other n x oh x ow x c. */
struct windows {
    size_t n, c, h, w, oh, ow;
    int window[2], stride[2], pad[2];
};

static struct windows windows_of(const struct kernel_problem *problem, bool gradient)
{
    const struct attrs *a = &problem->attrs;
    const int64_t *large = (gradient ? problem->out[0] : problem->in[0]).shape.dim;
    const int64_t *small = (gradient ? problem->in[0] : problem->out[0]).shape.dim;

    return (struct windows){
        .n = (size_t)large[0],
        .c = (size_t)large[1],
        .h = (size_t)large[2],
        .w = (size_t)large[3],
        .oh = (size_t)small[2],
        .ow = (size_t)small[3],
        .window = { a->window[0], a->window[1] },
        .stride = { a->stride[0], a->stride[1] },
        .pad = { a->pad[0], a->pad[1] },
    };
}

static bool is_disjoint(const struct windows *g)
{
    return g->stride[0] >= g->window[0] && g->stride[1] >= g->window[1] && g->pad[0] == 0 &&
           g->pad[1] == 0;
}

static bool is_2x2(const struct windows *g)
{
    return g->window[0] == 2 && g->window[1] == 2 && g->stride[0] == 2 && g->stride[1] == 2 &&
           g->pad[0] == 0 && g->pad[1] == 0;
}

/* Part of a window that lies inside the image: places [from, to) along one dimension. */
struct span {
    int from, to;
};

static struct span inside(size_t u, int window, int stride, int pad, size_t extent)
{
    const int64_t start = (int64_t)u * stride - pad, end = (int64_t)extent - start;

    return (struct span){ start < 0 ? (int)-start : 0, end < window ? (int)end : window };
}

/* Windows [from, to) along one dimension that cover pixel `at`. */
static struct span covering(size_t at, int window, int stride, int pad, size_t count)
{
    const int place = (int)at + pad, last = place / stride;
    const int first = place < window ? 0 : (place - window) / stride + 1;

    return (struct span){ first, last < (int)count ? last + 1 : (int)count };
}

/* Max pooling -------------------------------------------------------------------------- */

/* One output pixel of a 2 x 2 window: the pixels lie at top, top + c, bottom, bottom + c. */
static void max_2x2(const float *top, const float *bottom, size_t c, float *y, uint8_t *index)
{
    for (size_t j = 0; j < c; j += SIMD_LANES) {
        struct simd_floats best = simd_load(top + j, c - j, 0);
        struct simd_ints places = simd_all(0);

        simd_take_larger(simd_load(top + c + j, c - j, 0), 1, &best, &places);
        simd_take_larger(simd_load(bottom + j, c - j, 0), 2, &best, &places);
        simd_take_larger(simd_load(bottom + c + j, c - j, 0), 3, &best, &places);
        simd_store(best, c - j, y + j);
        simd_store_bytes(places, c - j, index + j);
    }
}

static void max_window(const struct windows *g, const float *x, size_t u, size_t v, float *y,
                       uint8_t *index)
{
    const struct span rows = inside(u, g->window[0], g->stride[0], g->pad[0], g->h);
    const struct span columns = inside(v, g->window[1], g->stride[1], g->pad[1], g->w);
    const size_t row = u * (size_t)g->stride[0] + (size_t)rows.from - (size_t)g->pad[0];
    const size_t column = v * (size_t)g->stride[1] + (size_t)columns.from - (size_t)g->pad[1];
    const size_t c = g->c;
    const float *corner = x + (row * g->w + column) * c; /* of the part inside the image */

    for (size_t j = 0; j < c; j += SIMD_LANES) {
        struct simd_floats best = simd_load(corner + j, c - j, 0);
        struct simd_ints places = simd_all(rows.from * g->window[1] + columns.from);

        for (int r = rows.from; r < rows.to; r++) {
            const float *line = corner + (size_t)(r - rows.from) * g->w * c + j;
            for (int s = columns.from; s < columns.to; s++, line += c)
                simd_take_larger(simd_load(line, c - j, 0), r * g->window[1] + s, &best,
                                 &places);
        }
        simd_store(best, c - j, y + j);
        simd_store_bytes(places, c - j, index + j);
    }
}

/* A range counts rows of y. */
static void max_pool_rows(const struct kernel_call *call, size_t from, size_t to)
{
    const struct windows g = windows_of(call->problem, false);
    const bool small = is_2x2(&g);

    for (size_t i = from; i < to; i++) {
        const size_t u = i % g.oh;
        const float *x = (const float *)call->in[0] + i / g.oh * g.h * g.w * g.c;
        float *y = (float *)call->out[0] + i * g.ow * g.c;
        uint8_t *index = (uint8_t *)call->out[1] + i * g.ow * g.c;

        for (size_t v = 0; v < g.ow; v++) {
            const float *top = x + (2 * u * g.w + 2 * v) * g.c;
            if (small)
                max_2x2(top, top + g.w * g.c, g.c, y + v * g.c, index + v * g.c);
            else
                max_window(&g, x, u, v, y + v * g.c, index + v * g.c);
        }
    }
}

static void run_max_pool(const struct kernel_call *call)
{
    const struct windows g = windows_of(call->problem, false);

    simd_for(call, g.n * g.oh, g.ow * g.c * (size_t)(g.window[0] * g.window[1]), max_pool_rows);
}

/* Gradients ---------------------------------------------------------------------------- */

/* One pixel of dy spread over its window, whose first corner is dx, rows `stride` floats apart.
 */
static inline void spread_max(const float *dy, const uint8_t *index, size_t c, int rows,
                              int columns, size_t stride, float *dx)
{
    for (size_t j = 0; j < c; j += SIMD_LANES) {
        const struct simd_floats d = simd_load(dy + j, c - j, 0);
        const struct simd_ints places = simd_load_bytes(index + j, c - j);

        for (int r = 0; r < rows; r++) {
            for (int s = 0; s < columns; s++)
                simd_store(simd_at_place(d, places, r * columns + s), c - j,
                           dx + (size_t)r * stride + (size_t)s * c + j);
        }
    }
}

static void spread_mean(const struct windows *g, const float *restrict dy, float *restrict dx)
{
    const float area = (float)(g->window[0] * g->window[1]);
    const size_t c = g->c;

#pragma omp simd
    for (size_t j = 0; j < c; j++)
        dx[j] = dy[j] / area;
    for (int r = 0; r < g->window[0]; r++) {
        for (int s = r == 0 ? 1 : 0; s < g->window[1]; s++)
            memcpy(dx + ((size_t)r * g->w + (size_t)s) * c, dx, c * sizeof *dx);
    }
}

/* Rows [first, last) of dx under row `u` of disjoint windows. `index` is NULL for the mean. */
static void spread_row(const struct windows *g, const float *dy, const uint8_t *index, size_t u,
                       float *dx)
{
    const size_t first = u * (size_t)g->stride[0];
    const size_t last = u + 1 == g->oh ? g->h : first + (size_t)g->stride[0];
    const size_t c = g->c;

    /* Stride = window and nothing left over: no pixel is outside all windows. */
    if (last - first != (size_t)g->window[0] || g->ow * (size_t)g->window[1] != g->w)
        memset(dx + first * g->w * c, 0, (last - first) * g->w * c * sizeof *dx);
    for (size_t v = 0; v < g->ow; v++) {
        float *corner = dx + (first * g->w + v * (size_t)g->stride[1]) * c;
        const size_t at = (u * g->ow + v) * c;

        if (index == NULL)
            spread_mean(g, dy + at, corner);
        else if (is_2x2(g))
            spread_max(dy + at, index + at, c, 2, 2, g->w * c, corner);
        else
            spread_max(dy + at, index + at, c, g->window[0], g->window[1], g->w * c, corner);
    }
}

/* One pixel of dx, whatever the windows; `down` are the rows of windows that cover its row. */
static void gather_pixel(const struct windows *g, const float *dy, const uint8_t *index,
                         struct span down, size_t row, size_t column, float *dx)
{
    const struct span along = covering(column, g->window[1], g->stride[1], g->pad[1], g->ow);
    const float area = (float)(g->window[0] * g->window[1]);

    for (size_t j = 0; j < g->c; j += SIMD_LANES) {
        const size_t n = g->c - j;
        struct simd_floats sum = simd_load(dy, 0, 0);

        for (int u = down.from; u < down.to; u++) {
            for (int v = along.from; v < along.to; v++) {
                const int r = (int)row + g->pad[0] - u * g->stride[0];
                const int s = (int)column + g->pad[1] - v * g->stride[1];
                const size_t at = ((size_t)u * g->ow + (size_t)v) * g->c + j;
                struct simd_floats d = simd_load(dy + at, n, 0);

                if (index != NULL)
                    d = simd_at_place(d, simd_load_bytes(index + at, n), r * g->window[1] + s);
                else
                    d = simd_divide(d, area);
                sum = simd_add(sum, d);
            }
        }
        simd_store(sum, n, dx + j);
    }
}

/* A range counts rows of windows where they are disjoint, rows of dx elsewhere. */
static void grad_rows(const struct kernel_call *call, size_t from, size_t to)
{
    const struct windows g = windows_of(call->problem, true);
    const bool disjoint = is_disjoint(&g);
    const size_t rows = disjoint ? g.oh : g.h, small = g.oh * g.ow * g.c;

    for (size_t i = from; i < to; i++) {
        const size_t image = i / rows, row = i % rows;
        const float *dy = (const float *)call->in[0] + image * small;
        const uint8_t *index =
            call->problem->n_in > 1 ? (const uint8_t *)call->in[1] + image * small : NULL;
        float *dx = (float *)call->out[0] + image * g.h * g.w * g.c;

        if (disjoint) {
            spread_row(&g, dy, index, row, dx);
            continue;
        }
        const struct span down = covering(row, g.window[0], g.stride[0], g.pad[0], g.oh);
        for (size_t column = 0; column < g.w; column++)
            gather_pixel(&g, dy, index, down, row, column, dx + (row * g.w + column) * g.c);
    }
}

static void run_pool_grad(const struct kernel_call *call)
{
    const struct windows g = windows_of(call->problem, true);
    const size_t rows = is_disjoint(&g) ? g.oh : g.h;

    simd_for(call, g.n * rows, (g.h * g.w * g.c + rows - 1) / rows, grad_rows);
}

/* Average pooling ---------------------------------------------------------------------- */

static void mean_window(const struct windows *g, const float *x, size_t u, size_t v, float *y)
{
    const struct span rows = inside(u, g->window[0], g->stride[0], g->pad[0], g->h);
    const struct span columns = inside(v, g->window[1], g->stride[1], g->pad[1], g->w);
    const float area = (float)(g->window[0] * g->window[1]);
    const size_t c = g->c;

    memset(y, 0, c * sizeof *y);
    for (int r = rows.from; r < rows.to; r++) {
        for (int s = columns.from; s < columns.to; s++) {
            const size_t row = u * (size_t)g->stride[0] + (size_t)r - (size_t)g->pad[0];
            const size_t column = v * (size_t)g->stride[1] + (size_t)s - (size_t)g->pad[1];
            const float *pixel = x + (row * g->w + column) * c;
#pragma omp simd
            for (size_t j = 0; j < c; j++)
                y[j] += pixel[j];
        }
    }
#pragma omp simd
    for (size_t j = 0; j < c; j++)
        y[j] = y[j] / area;
}

/* A range counts pixels of y, as one of them may be a whole image. */
static void avg_pool_pixels(const struct kernel_call *call, size_t from, size_t to)
{
    const struct windows g = windows_of(call->problem, false);

    for (size_t i = from; i < to; i++) {
        const size_t v = i % g.ow, u = i / g.ow % g.oh, image = i / g.ow / g.oh;
        const float *x = (const float *)call->in[0] + image * g.h * g.w * g.c;

        mean_window(&g, x, u, v, (float *)call->out[0] + i * g.c);
    }
}

static void run_avg_pool(const struct kernel_call *call)
{
    const struct windows g = windows_of(call->problem, false);

    simd_for(call, g.n * g.oh * g.ow, g.c * (size_t)(g.window[0] * g.window[1]),
             avg_pool_pixels);
}

const struct kernel SIMD_TABLE(kernel_pool_rows)[] = {
    { .op = "max_pool", .name = "own", .run = run_max_pool },
    { .op = "max_pool_grad", .name = "own", .run = run_pool_grad },
    { .op = "avg_pool", .name = "own", .run = run_avg_pool },
    { .op = "avg_pool_grad", .name = "own", .run = run_pool_grad },
    { 0 },
};
