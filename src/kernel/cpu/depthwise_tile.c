/* SPDX-License-Identifier: MIT */
/* depthwise_tile.c - the rows of depthwise.h for one instruction set.
 *
 * Compiled once with AVX2 and once with AVX-512 (cpu/fast.cmake); DEPTHWISE_TABLE is the name
 * of the table. A block is some pixels of a row of y (or dy): for each vector of channels the
 * columns of x under them are read once a kernel row and meet up to three weights each. Which of
 * the columns lie outside the image is known when a block begins and constant after inlining.
 */
#include "kernel/cpu/depthwise.h"

#include "kernel/cpu/isa.h"

enum {
    TAPS = 3,
    FORWARD_PIXELS = 4,
#ifdef ISA_AVX512
    WEIGHT_PIXELS = 8, /* 9 sums, 8 values of dy and one of x */
#else
    WEIGHT_PIXELS = 4,
#endif
    FEW_PIXELS = 4,
    AHEAD = 2048, /* floats: some hundred cycles */
    WIDE = 192,   /* channels from which the processor guesses right by itself */
};

/* Some channels of a pixel: a whole vector or the last ones. */
INLINE vec get(const float *from, const bool whole, vec_part part)
{
    return whole ? vec_load(from) : vec_load_part(from, part);
}

/* In a register: the compiler would rather read it again for each product. */
INLINE vec keep(vec v)
{
    __asm__("" : "+v"(v));
    return v;
}

INLINE void put(float *to, vec v, const bool whole, vec_part part)
{
    if (whole)
        vec_store(to, v);
    else
        vec_store_part(to, v, part);
}

/* Calls `body` for every vector of channels; c, whole and part are its arguments. */
#define FOR_CHANNELS(channels, body)                                                           \
    do {                                                                                       \
        const int64_t whole_end = (channels) / LANES * LANES;                                  \
        int64_t c = 0;                                                                         \
        {                                                                                      \
            const bool whole = true;                                                           \
            const vec_part part = vec_first(LANES);                                            \
            for (; c < whole_end; c += LANES)                                                  \
                body;                                                                          \
        }                                                                                      \
        if (c < (channels)) {                                                                  \
            const bool whole = false;                                                          \
            const vec_part part = vec_first((int)((channels)-c));                              \
            body;                                                                              \
        }                                                                                      \
    } while (0)

/* Kernel rows [first, end) that lie inside the image for row oy. */
struct rows {
    int64_t first, end;
};

static struct rows taps_inside(int64_t at, int64_t taps, int64_t extent)
{
    return (struct rows){ at < 0 ? -at : 0, at + taps > extent ? extent - at : taps };
}

/* Has the window three columns that go by one or two, with at most one outside on either side? */
static bool is_usual(const struct depthwise *d)
{
    return d->kw == TAPS && (d->sw == 1 || d->sw == 2) && d->pw <= 1;
}

/* Forward ---------------------------------------------------------------------------------- */

struct span {
    const struct depthwise *d;
    const float *x; /* an image */
    const float *w, *bias;
    float *y; /* the first pixel of the block, or dy */
    int64_t iy, ix;
    struct rows rows;
    float *sums;
    bool is_biased;
};

/* Asks for a vector of some pixels, AHEAD floats on: rows are walked in their order, so each line
 * is asked for about once. */
INLINE void ask_for(const struct span *s, const float *at, const int pixels)
{
    if (s->d->c >= WIDE)
        return;
#pragma GCC unroll 16
    for (int p = 0; p < pixels; p++)
        __builtin_prefetch(at + (AHEAD + p * s->d->c), 0, 3);
}

/* The lowest row of x that a block sees, at the block's first column. */
INLINE const float *lowest_row(const struct span *s)
{
    const int64_t ix = s->ix < 0 ? 0 : s->ix;
    return s->x + ((s->iy + s->rows.end - 1) * s->d->w + ix) * s->d->c;
}

INLINE void forward_vec(const struct span *s, int64_t c, const bool whole, vec_part part,
                        const int pixels, const int stride, const bool left, const bool right)
{
    const int columns = (pixels - 1) * stride + TAPS;
    const int64_t channels = s->d->c;
    const vec start = s->bias != NULL ? get(s->bias + c, whole, part) : vec_zero();
    vec acc[FORWARD_PIXELS];

    ask_for(s, lowest_row(s) + c, pixels * stride);
#pragma GCC unroll 4
    for (int p = 0; p < pixels; p++)
        acc[p] = start;
    for (int64_t ky = s->rows.first; ky < s->rows.end; ky++) {
        const float *w = s->w + ky * TAPS * channels + c;
        const float *x = s->x + ((s->iy + ky) * s->d->w + s->ix + left) * channels + c;
        vec taps[TAPS];

#pragma GCC unroll 3
        for (int kx = 0; kx < TAPS; kx++)
            taps[kx] = get(w + kx * channels, whole, part);
#pragma GCC unroll 16
        for (int j = left; j < columns - right; j++) {
            const vec v = keep(get(x + (j - left) * channels, whole, part));

#pragma GCC unroll 3
            for (int kx = 0; kx < TAPS; kx++) {
                if (j >= kx && (j - kx) % stride == 0 && (j - kx) / stride < pixels)
                    acc[(j - kx) / stride] = vec_fma(v, taps[kx], acc[(j - kx) / stride]);
            }
        }
    }
#pragma GCC unroll 4
    for (int p = 0; p < pixels; p++)
        put(s->y + p * channels + c, vec_cut(acc[p], vec_set(s->d->low), vec_set(s->d->high)),
            whole, part);
}

/* A block of FORWARD_PIXELS. */
INLINE void forward_block(const struct span *s, const int stride, const bool left,
                          const bool right)
{
    FOR_CHANNELS(s->d->c, forward_vec(s, c, whole, part, FORWARD_PIXELS, stride, left, right));
}

INLINE void forward_edges(const struct span *s, const int stride)
{
    const bool left = s->ix < 0;
    const bool right = s->ix + (FORWARD_PIXELS - 1) * stride + TAPS > s->d->w;

    if (left && right)
        forward_block(s, stride, true, true);
    else if (left)
        forward_block(s, stride, true, false);
    else if (right)
        forward_block(s, stride, false, true);
    else
        forward_block(s, stride, false, false);
}

/* One pixel through any window. */
INLINE void forward_any_vec(const struct span *s, int64_t c, const bool whole, vec_part part,
                            struct rows columns)
{
    const struct depthwise *d = s->d;
    vec acc = s->bias != NULL ? get(s->bias + c, whole, part) : vec_zero();

    for (int64_t ky = s->rows.first; ky < s->rows.end; ky++) {
        for (int64_t kx = columns.first; kx < columns.end; kx++)
            acc =
                vec_fma(get(s->x + ((s->iy + ky) * d->w + s->ix + kx) * d->c + c, whole, part),
                        get(s->w + (ky * d->kw + kx) * d->c + c, whole, part), acc);
    }
    put(s->y + c, vec_cut(acc, vec_set(d->low), vec_set(d->high)), whole, part);
}

static void forward_pixel(const struct span *s)
{
    const struct rows columns = taps_inside(s->ix, s->d->kw, s->d->w);

    FOR_CHANNELS(s->d->c, forward_any_vec(s, c, whole, part, columns));
}

static void forward(const struct depthwise *d, const float *image, int64_t oy, const float *w,
                    const float *bias, float *y)
{
    struct span s = { .d = d, .x = image, .w = w, .bias = bias, .iy = oy * d->sh - d->ph };

    s.rows = taps_inside(s.iy, d->kh, d->h);
    if (!is_usual(d) || d->ow < FORWARD_PIXELS) {
        for (int64_t ox = 0; ox < d->ow; ox++) {
            s.ix = ox * d->sw - d->pw;
            s.y = y + ox * d->c;
            forward_pixel(&s);
        }
        return;
    }
    /* The last block may make some pixels again. */
    for (int64_t next = 0; next < d->ow; next += FORWARD_PIXELS) {
        const int64_t ox = next + FORWARD_PIXELS > d->ow ? d->ow - FORWARD_PIXELS : next;

        s.ix = ox * d->sw - d->pw;
        s.y = y + ox * d->c;
        if (d->sw == 1)
            forward_edges(&s, 1);
        else
            forward_edges(&s, 2);
    }
}

/* Gradient of the input -------------------------------------------------------------------- */

/* Of the taps of one axis that pixel `at` was seen through: the first, and how many; each next is
 * a stride further in the window and one place before in dy. */
struct seen {
    int64_t tap, place, count;
};

static struct seen seen_through(int64_t at, int64_t pad, int64_t stride, int64_t taps,
                                int64_t places)
{
    struct seen seen = { .tap = (at + pad) % stride, .place = (at + pad) / stride };

    if (seen.place >= places) {
        seen.tap += (seen.place - places + 1) * stride;
        seen.place = places - 1;
    }
    if (seen.tap < taps)
        seen.count = (taps - seen.tap + stride - 1) / stride;
    if (seen.count > seen.place + 1)
        seen.count = seen.place + 1;
    return seen;
}

INLINE void input_vec(const struct depthwise *d, const float *dy, const float *w,
                      struct seen row, struct seen column, int64_t c, const bool whole,
                      vec_part part, float *dx)
{
    vec acc = vec_zero();

    for (int64_t i = 0; i < row.count; i++) {
        for (int64_t j = 0; j < column.count; j++)
            acc = vec_fma(
                get(dy + ((row.place - i) * d->ow + column.place - j) * d->c + c, whole, part),
                get(w + ((row.tap + i * d->sh) * d->kw + column.tap + j * d->sw) * d->c + c,
                    whole, part),
                acc);
    }
    put(dx + c, acc, whole, part);
}

static void input(const struct depthwise *d, const float *dy, int64_t iy, const float *w,
                  float *dx)
{
    const struct seen row = seen_through(iy, d->ph, d->sh, d->kh, d->oh);

    for (int64_t ix = 0; ix < d->w; ix++) {
        const struct seen column = seen_through(ix, d->pw, d->sw, d->kw, d->ow);

        FOR_CHANNELS(d->c, input_vec(d, dy, w, row, column, c, whole, part, dx + ix * d->c));
    }
}

/* Pixels (2*oy, 2*ox) to (2*oy + 1, 2*ox + 1) of dx see dy at (oy, ox) to (oy + 1, ox + 1): the
 * first through the middle of the window, the last through its corners. */
struct quad {
    const float *dy, *w;
    int64_t c, dy_row, dx_row;
    bool below, after; /* has dx a second row, a second column? */
};

INLINE void quad_vec(const struct quad *q, int64_t c, const bool whole, vec_part part,
                     const bool down, const bool right, float *dx)
{
    const int64_t n = q->c;
    const float *w = q->w + c, *dy = q->dy + c;
    const vec d00 = get(dy, whole, part);
    const vec d01 = right ? get(dy + n, whole, part) : vec_zero();
    const vec d10 = down ? get(dy + q->dy_row, whole, part) : vec_zero();
    const vec d11 = down && right ? get(dy + q->dy_row + n, whole, part) : vec_zero();

    put(dx + c, vec_mul(d00, get(w + 4 * n, whole, part)), whole, part);
    if (q->after) {
        vec sum = vec_zero();
        if (right)
            sum = vec_fma(d01, get(w + 3 * n, whole, part), sum);
        sum = vec_fma(d00, get(w + 5 * n, whole, part), sum);
        put(dx + n + c, sum, whole, part);
    }
    if (!q->below)
        return;
    vec sum = vec_zero();
    if (down)
        sum = vec_fma(d10, get(w + n, whole, part), sum);
    sum = vec_fma(d00, get(w + 7 * n, whole, part), sum);
    put(dx + q->dx_row + c, sum, whole, part);
    if (q->after) {
        sum = vec_zero();
        if (down && right)
            sum = vec_fma(d11, get(w, whole, part), sum);
        if (down)
            sum = vec_fma(d10, get(w + 2 * n, whole, part), sum);
        if (right)
            sum = vec_fma(d01, get(w + 6 * n, whole, part), sum);
        sum = vec_fma(d00, get(w + 8 * n, whole, part), sum);
        put(dx + q->dx_row + n + c, sum, whole, part);
    }
}

INLINE void quad_any(const struct quad *q, const bool down, const bool right, float *dx)
{
    FOR_CHANNELS(q->c, quad_vec(q, c, whole, part, down, right, dx));
}

static void input_halved(const struct depthwise *d, const float *dy, int64_t oy, const float *w,
                         float *dx)
{
    const bool down = oy + 1 < d->oh;
    struct quad q = { .w = w,
                      .c = d->c,
                      .dy_row = d->ow * d->c,
                      .dx_row = d->w * d->c,
                      .below = 2 * oy + 1 < d->h };

    for (int64_t ox = 0; ox < d->ow; ox++) {
        const bool right = ox + 1 < d->ow;
        float *to = dx + (2 * oy * d->w + 2 * ox) * d->c;

        q.dy = dy + (oy * d->ow + ox) * d->c;
        q.after = 2 * ox + 1 < d->w;
        if (down && right)
            quad_any(&q, true, true, to);
        else if (down)
            quad_any(&q, true, false, to);
        else if (right)
            quad_any(&q, false, true, to);
        else
            quad_any(&q, false, false, to);
    }
}

/* Gradient of the weights ------------------------------------------------------------------ */

INLINE void weight_vec(const struct span *s, int64_t c, const bool whole, vec_part part,
                       const int pixels, const int stride, const bool left, const bool right)
{
    const int columns = (pixels - 1) * stride + TAPS;
    const int64_t channels = s->d->c;
    vec dy[WEIGHT_PIXELS > FEW_PIXELS ? WEIGHT_PIXELS : FEW_PIXELS];

    ask_for(s, lowest_row(s) + c, pixels * stride);
    ask_for(s, s->y + c, pixels);
#pragma GCC unroll 8
    for (int p = 0; p < pixels; p++)
        dy[p] = get(s->y + p * channels + c, whole, part);
    for (int64_t ky = s->rows.first; ky < s->rows.end; ky++) {
        const float *x = s->x + ((s->iy + ky) * s->d->w + s->ix + left) * channels + c;
        float *sums = s->sums + ky * TAPS * channels + c;
        vec acc[TAPS];

#pragma GCC unroll 3
        for (int kx = 0; kx < TAPS; kx++)
            acc[kx] = get(sums + kx * channels, whole, part);
#pragma GCC unroll 24
        for (int j = left; j < columns - right; j++) {
            const vec v = keep(get(x + (j - left) * channels, whole, part));

#pragma GCC unroll 3
            for (int kx = 0; kx < TAPS; kx++) {
                if (j >= kx && (j - kx) % stride == 0 && (j - kx) / stride < pixels)
                    acc[kx] = vec_fma(v, dy[(j - kx) / stride], acc[kx]);
            }
        }
#pragma GCC unroll 3
        for (int kx = 0; kx < TAPS; kx++)
            put(sums + kx * channels, acc[kx], whole, part);
    }
    if (s->is_biased) {
        float *sum = s->sums + s->d->kh * TAPS * channels + c;
        vec total = get(sum, whole, part);

#pragma GCC unroll 8
        for (int p = 0; p < pixels; p++)
            total = vec_add(total, dy[p]);
        put(sum, total, whole, part);
    }
}

INLINE void weight_block(const struct span *s, const int pixels, const int stride,
                         const bool left, const bool right)
{
    FOR_CHANNELS(s->d->c, weight_vec(s, c, whole, part, pixels, stride, left, right));
}

INLINE void weight_edges(const struct span *s, const int pixels, const int stride)
{
    const bool left = s->ix < 0;
    const bool right = s->ix + (pixels - 1) * stride + TAPS > s->d->w;

    if (left && right)
        weight_block(s, pixels, stride, true, true);
    else if (left)
        weight_block(s, pixels, stride, true, false);
    else if (right)
        weight_block(s, pixels, stride, false, true);
    else
        weight_block(s, pixels, stride, false, false);
}

/* One pixel of dy and any window. */
INLINE void weight_any_vec(const struct span *s, int64_t c, const bool whole, vec_part part,
                           struct rows columns)
{
    const struct depthwise *d = s->d;
    const vec dy = get(s->y + c, whole, part);
    float *sum = s->sums + d->kh * d->kw * d->c + c;

    for (int64_t ky = s->rows.first; ky < s->rows.end; ky++) {
        for (int64_t kx = columns.first; kx < columns.end; kx++) {
            float *at = s->sums + (ky * d->kw + kx) * d->c + c;
            const vec x =
                get(s->x + ((s->iy + ky) * d->w + s->ix + kx) * d->c + c, whole, part);
            put(at, vec_fma(x, dy, get(at, whole, part)), whole, part);
        }
    }
    if (s->is_biased)
        put(sum, vec_add(get(sum, whole, part), dy), whole, part);
}

static void weight_pixel(const struct span *s)
{
    const struct rows columns = taps_inside(s->ix, s->d->kw, s->d->w);

    FOR_CHANNELS(s->d->c, weight_any_vec(s, c, whole, part, columns));
}

static void weight(const struct depthwise *d, const float *image, const float *dy, int64_t oy,
                   bool is_biased, float *sums)
{
    struct span s = {
        .d = d, .x = image, .iy = oy * d->sh - d->ph, .sums = sums, .is_biased = is_biased
    };
    int64_t ox = 0;

    s.rows = taps_inside(s.iy, d->kh, d->h);
    while (ox < d->ow) {
        const int64_t left = d->ow - ox;
        int64_t pixels = 1;

        s.ix = ox * d->sw - d->pw;
        s.y = (float *)(uintptr_t)(dy + (oy * d->ow + ox) * d->c);
        if (!is_usual(d) || left < FEW_PIXELS) {
            weight_pixel(&s);
        } else if (left >= WEIGHT_PIXELS) {
            pixels = WEIGHT_PIXELS;
            if (d->sw == 1)
                weight_edges(&s, WEIGHT_PIXELS, 1);
            else
                weight_edges(&s, WEIGHT_PIXELS, 2);
        } else {
            pixels = FEW_PIXELS;
            if (d->sw == 1)
                weight_edges(&s, FEW_PIXELS, 1);
            else
                weight_edges(&s, FEW_PIXELS, 2);
        }
        ox += pixels;
    }
}

const struct depthwise_isa DEPTHWISE_TABLE = {
    .forward = forward,
    .input = input,
    .input_halved = input_halved,
    .weight = weight,
};
