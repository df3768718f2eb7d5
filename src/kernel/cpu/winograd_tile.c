/* SPDX-License-Identifier: MIT */
/* winograd_tile.c - the transforms of winograd.h for one instruction set.
 *
 * Compiled once with AVX2 and once with AVX-512; WINOGRAD_TABLE is the name of the table. Each
 * takes one vector of channels at a time: first all columns, then all rows, with the vectors
 * between them on the stack. Per tile of 4x4 and vector about 150 operations for the input and
 * 100 for the output, against 36 products with every output channel.
 *
 * Functions of all forms take the form as a constant and are inlined, so that loops and
 * branches over it are gone. F(4, 2) has the points 0, 1, -1, 2 and infinity.
 */
#include "kernel/cpu/winograd.h"

#include "kernel/cpu/isa.h"

enum kind { TILES, WHOLE, PAIR, ONE }; /* of one dimension */
enum { MOST = 6, TAPS = 3 };           /* sizes of arrays */

struct form {
    enum kind y, x;
};

/* Inputs, places, outputs and taps of a tile in one dimension, and places of its weights. */
#define N_IN(kind) ((kind) == TILES ? 6 : (kind) == WHOLE ? 2 : (kind) == PAIR ? 5 : 4)
#define N_PLACES(kind) ((kind) == TILES ? 6 : (kind) == WHOLE ? 3 : (kind) == PAIR ? 5 : 4)
#define N_OUT(kind) ((kind) == WHOLE ? 2 : 4)
#define N_TAPS(kind) ((kind) == PAIR ? 2 : (kind) == ONE ? 1 : 3)
#define N_WEIGHTS(kind) ((kind) == ONE ? 1 : N_PLACES(kind))

/* n is the constant LANES in all calls but that for a ragged end. */
INLINE vec load(const float *from, int n)
{
    return n == LANES ? vec_load(from) : vec_load_part(from, vec_first(n));
}

INLINE void store(float *to, vec v, int n)
{
    if (n == LANES)
        vec_store(to, v);
    else
        vec_store_part(to, v, vec_first(n));
}

/* One dimension of B^T d. */
INLINE void turn_input(const enum kind kind, const vec d[MOST], vec t[MOST])
{
    if (kind == WHOLE) {
        t[0] = vec_add(d[0], d[1]);
        t[1] = d[1];
        t[2] = d[0];
        return;
    }
    if (kind == ONE) {
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++)
            t[i] = d[i];
        return;
    }
    if (kind == PAIR) {
        const vec f = vec_sub(d[3], d[1]);

        t[0] = vec_fma(vec_set(2.0f), vec_sub(d[0], d[2]), f);
        t[1] = vec_sub(vec_sub(f, d[1]), d[2]);
        t[2] = vec_fma(vec_set(3.0f), vec_sub(d[1], d[2]), f);
        t[3] = f;
        t[4] = vec_fma(vec_set(-2.0f), f, vec_sub(d[4], d[2]));
        return;
    }
    const vec four = vec_set(4.0f), less_four = vec_set(-4.0f), less_five = vec_set(-5.0f);
    const vec two = vec_set(2.0f), less_two = vec_set(-2.0f);
    const vec a = vec_fma(less_four, d[2], d[4]), b = vec_fma(less_four, d[1], d[3]);
    const vec c = vec_sub(d[4], d[2]), e = vec_sub(d[3], d[1]);

    t[0] = vec_fma(four, d[0], vec_fma(less_five, d[2], d[4]));
    t[1] = vec_add(a, b);
    t[2] = vec_sub(a, b);
    t[3] = vec_fma(two, e, c);
    t[4] = vec_fma(less_two, e, c);
    t[5] = vec_fma(four, d[1], vec_fma(less_five, d[3], d[5]));
}

/* One dimension of A^T m. */
INLINE void turn_output(const enum kind kind, const vec m[MOST], vec y[MOST])
{
    if (kind == WHOLE) {
        y[0] = vec_add(m[0], m[1]);
        y[1] = vec_add(m[0], m[2]);
        return;
    }
    if (kind == ONE) {
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++)
            y[i] = m[i];
        return;
    }
    const vec s = vec_add(m[1], m[2]), d = vec_sub(m[1], m[2]);
    if (kind == PAIR) {
        y[0] = vec_add(vec_add(m[0], s), m[3]);
        y[1] = vec_fma(vec_set(2.0f), m[3], d);
        y[2] = vec_fma(vec_set(4.0f), m[3], s);
        y[3] = vec_add(vec_fma(vec_set(8.0f), m[3], d), m[4]);
        return;
    }
    const vec p = vec_add(m[3], m[4]), q = vec_sub(m[3], m[4]);

    y[0] = vec_add(vec_add(m[0], s), p);
    y[1] = vec_fma(vec_set(2.0f), q, d);
    y[2] = vec_fma(vec_set(4.0f), p, s);
    y[3] = vec_add(vec_fma(vec_set(8.0f), q, d), m[5]);
}

/* One dimension of A y. */
INLINE void turn_output_grad(const enum kind kind, const vec y[MOST], vec m[MOST])
{
    if (kind == WHOLE) {
        m[0] = vec_add(y[0], y[1]);
        m[1] = y[0];
        m[2] = y[1];
        return;
    }
    if (kind == ONE) {
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++)
            m[i] = y[i];
        return;
    }
    const vec even = vec_add(y[0], y[2]), odd = vec_add(y[1], y[3]);
    const vec f = vec_fma(vec_set(4.0f), y[2], y[0]);
    const vec g = vec_fma(vec_set(8.0f), y[3], vec_add(y[1], y[1]));

    m[0] = y[0];
    m[1] = vec_add(even, odd);
    m[2] = vec_sub(even, odd);
    m[3] = vec_add(f, g);
    m[4] = kind == PAIR ? y[3] : vec_sub(f, g);
    if (kind == TILES)
        m[5] = y[3];
}

/* One dimension of G g. */
INLINE void turn_weight(const enum kind kind, const vec g[TAPS], vec u[MOST])
{
    if (kind == WHOLE) {
        u[0] = g[1];
        u[1] = vec_sub(g[2], g[1]);
        u[2] = vec_sub(g[0], g[1]);
        return;
    }
    if (kind == ONE) {
        u[0] = g[0];
        return;
    }
    if (kind == PAIR) {
        u[0] = vec_mul(vec_set(0.5f), g[0]);
        u[1] = vec_mul(vec_set(-0.5f), vec_add(g[0], g[1]));
        u[2] = vec_mul(vec_set(1.0f / 6.0f), vec_sub(g[1], g[0]));
        u[3] = vec_mul(vec_set(1.0f / 6.0f), vec_add(g[0], vec_add(g[1], g[1])));
        u[4] = g[1];
        return;
    }
    const vec sixth = vec_set(-1.0f / 6.0f), s = vec_add(g[0], g[2]);
    const vec h = vec_fma(vec_set(1.0f / 24.0f), g[0], vec_mul(vec_set(1.0f / 6.0f), g[2]));
    const vec k = vec_mul(vec_set(1.0f / 12.0f), g[1]);

    u[0] = vec_mul(vec_set(0.25f), g[0]);
    u[1] = vec_mul(sixth, vec_add(s, g[1]));
    u[2] = vec_mul(sixth, vec_sub(s, g[1]));
    u[3] = vec_add(h, k);
    u[4] = vec_sub(h, k);
    u[5] = g[2];
}

/* One dimension of G^T u. */
INLINE void turn_weight_grad(const enum kind kind, const vec u[MOST], vec g[TAPS])
{
    if (kind == WHOLE) {
        g[0] = u[2];
        g[1] = vec_sub(vec_sub(u[0], u[1]), u[2]);
        g[2] = u[1];
        return;
    }
    if (kind == ONE) {
        g[0] = u[0];
        return;
    }
    const vec sixth = vec_set(1.0f / 6.0f);
    if (kind == PAIR) {
        const vec half = vec_set(0.5f);

        g[0] = vec_fma(half, vec_sub(u[0], u[1]), vec_mul(sixth, vec_sub(u[3], u[2])));
        g[1] = vec_sub(vec_fma(sixth, vec_add(vec_add(u[3], u[3]), u[2]), u[4]),
                       vec_mul(half, u[1]));
        return;
    }
    const vec s = vec_add(u[1], u[2]), d = vec_sub(u[2], u[1]);
    const vec p = vec_add(u[3], u[4]), q = vec_sub(u[3], u[4]);

    g[0] = vec_fma(vec_set(0.25f), u[0],
                   vec_fma(vec_set(1.0f / 24.0f), p, vec_mul(vec_set(-1.0f / 6.0f), s)));
    g[1] = vec_fma(sixth, d, vec_mul(vec_set(1.0f / 12.0f), q));
    g[2] = vec_fma(sixth, vec_sub(p, s), u[5]);
}

/* What a tile reads of an image. */
struct source {
    const float *x;
    const uint8_t *index;
    ptrdiff_t row[MOST], column[MOST]; /* where its rows and columns begin */
    int place_row[MOST], place[MOST];  /* in their windows, if pooled */
    int y0, y1, x0, x1;                /* which of them exist */
};

INLINE struct source source_of(const struct winograd_in *in, const bool is_pooled,
                               const int side_y, const int side_x)
{
    struct source source = { .x = in->x, .index = in->index };
    const int window = is_pooled ? 2 : 1;

    source.y0 = in->top < 0 ? (int)-in->top : 0;
    source.y1 = in->rows - in->top < side_y ? (int)(in->rows - in->top) : side_y;
    source.x0 = in->left < 0 ? (int)-in->left : 0;
    source.x1 = in->columns - in->left < side_x ? (int)(in->columns - in->left) : side_x;
#pragma GCC unroll 6
    for (int i = 0; i < (side_y > side_x ? side_y : side_x); i++) {
        const bool has_row = i >= source.y0 && i < source.y1;
        const bool has_column = i >= source.x0 && i < source.x1;
        source.row[i] = has_row ? (in->top + i) / window * in->row : 0;
        source.column[i] = has_column ? (in->left + i) / window * in->pixel : 0;
        source.place_row[i] = (int)((in->top + i) & 1) * 2;
        source.place[i] = (int)((in->left + i) & 1);
    }
    return source;
}

/* Channels of row y and column x, which exists; zeros where the row does not. */
INLINE vec fetch(const struct source *source, const bool is_pooled, const bool is_inside, int y,
                 int x, int c, int n)
{
    const ptrdiff_t at = source->row[y] + source->column[x] + c;

    if (is_inside && !is_pooled)
        return load(source->x + at, n);
    const vec v =
        vec_load_part(source->x + at, vec_first(y >= source->y0 && y < source->y1 ? n : 0));
    return is_pooled ? vec_where_equal(int_load_bytes(source->index + at, n),
                                       int_set(source->place_row[y] + source->place[x]), v)
                     : v;
}

/* What comes from an image: B^T d B of the inputs or A dy A^T of the outputs' gradient. */
struct turn {
    struct form form;
    bool is_grad;
};

INLINE void turn(const enum kind kind, const bool is_grad, const vec from[MOST], vec to[MOST])
{
    if (is_grad)
        turn_output_grad(kind, from, to);
    else
        turn_input(kind, from, to);
}

INLINE void from_image(const struct source *source, const bool is_pooled, const bool is_inside,
                       const struct turn how, int c, int n, float *to, ptrdiff_t step)
{
    const int side_y = how.is_grad ? N_OUT(how.form.y) : N_IN(how.form.y);
    const int side_x = how.is_grad ? N_OUT(how.form.x) : N_IN(how.form.x);
    const int places_y = N_PLACES(how.form.y), places_x = N_PLACES(how.form.x);
    vec between[MOST][MOST]; /* [row after][column] */

    for (int x = 0; x < side_x; x++) {
        vec from[MOST], out[MOST];

        if (!is_inside && (x < source->x0 || x >= source->x1)) {
#pragma GCC unroll 6
            for (int y = 0; y < places_y; y++)
                between[y][x] = vec_zero();
            continue;
        }
#pragma GCC unroll 6
        for (int y = 0; y < side_y; y++)
            from[y] = fetch(source, is_pooled, is_inside, y, x, c, n);
        turn(how.form.y, how.is_grad, from, out);
#pragma GCC unroll 6
        for (int y = 0; y < places_y; y++)
            between[y][x] = out[y];
    }
    for (int y = 0; y < places_y; y++) {
        vec out[MOST];
        turn(how.form.x, how.is_grad, between[y], out);
#pragma GCC unroll 6
        for (int x = 0; x < places_x; x++)
            store(to + (y * places_x + x) * step + c, out[x], n);
    }
}

/* A tile inside an image needs no questions. */
INLINE void all_from_image(const struct winograd_in *in, const struct turn how, int n,
                           float *to, ptrdiff_t step)
{
    const int side_y = how.is_grad ? N_OUT(how.form.y) : N_IN(how.form.y);
    const int side_x = how.is_grad ? N_OUT(how.form.x) : N_IN(how.form.x);
    const bool is_pooled = in->index != NULL;
    const struct source source =
        is_pooled ? source_of(in, true, side_y, side_x) : source_of(in, false, side_y, side_x);
    const bool is_inside =
        source.y0 == 0 && source.y1 == side_y && source.x0 == 0 && source.x1 == side_x;
    int c = 0;

    for (; c + LANES <= n; c += LANES) {
        if (is_pooled)
            from_image(&source, true, false, how, c, LANES, to, step);
        else if (is_inside)
            from_image(&source, false, true, how, c, LANES, to, step);
        else
            from_image(&source, false, false, how, c, LANES, to, step);
    }
    if (c == n)
        return;
    if (is_pooled)
        from_image(&source, true, false, how, c, n - c, to, step);
    else
        from_image(&source, false, false, how, c, n - c, to, step);
}

/* The largest of each 2x2 and where it was first, for the windows that exist. */
INLINE void store_windows(vec y[MOST][MOST], int c, int n, const struct winograd_out *out)
{
    for (int wy = 0; wy < out->rows; wy++) {
        for (int wx = 0; wx < out->columns; wx++) {
            vec best = y[2 * wy][2 * wx];
            vec_int where = int_set(0);

            for (int i = 1; i < 4; i++) {
                const vec next = y[2 * wy + i / 2][2 * wx + i % 2];
                const vec_mask better = vec_greater(next, best);
                best = vec_choose(better, best, next);
                where = int_choose(better, where, int_set(i));
            }
            if (out->relu)
                where = int_choose(vec_not_greater(best, vec_zero()), where, int_set(255));
            const ptrdiff_t at = wy * out->row + wx * out->pixel + c;
            store(out->y + at, best, n);
            int_store_bytes(out->index + at, where, n);
        }
    }
}

INLINE void output_vec(const struct form form, const float *m, ptrdiff_t step, int c, int n,
                       const struct winograd_out *out)
{
    const int places_y = N_PLACES(form.y), places_x = N_PLACES(form.x), size = N_OUT(form.y);
    vec between[MOST][MOST], result[MOST][MOST];
    const vec bias = out->bias != NULL ? load(out->bias + c, n) : vec_zero();

    for (int x = 0; x < places_x; x++) {
        vec in[MOST], turned[MOST];
#pragma GCC unroll 6
        for (int y = 0; y < places_y; y++)
            in[y] = load(m + (y * places_x + x) * step + c, n);
        turn_output(form.y, in, turned);
#pragma GCC unroll 6
        for (int y = 0; y < size; y++)
            between[y][x] = turned[y];
    }
#pragma GCC unroll 4
    for (int y = 0; y < size; y++) {
        turn_output(form.x, between[y], result[y]);
#pragma GCC unroll 6
        for (int x = 0; x < size; x++)
            result[y][x] = vec_add(result[y][x], bias);
    }
    if (out->accumulate) {
        for (int y = 0; y < out->rows; y++) {
            for (int x = 0; x < out->columns; x++)
                result[y][x] =
                    vec_add(result[y][x], load(out->y + y * out->row + x * out->pixel + c, n));
        }
    }
    if (out->relu) {
#pragma GCC unroll 16
        for (int i = 0; i < size * size; i++)
            result[i / size][i % size] = vec_relu(result[i / size][i % size]);
    }
    if (out->index != NULL) {
        store_windows(result, c, n, out);
        return;
    }
    for (int y = 0; y < out->rows; y++) {
        for (int x = 0; x < out->columns; x++)
            store(out->y + y * out->row + x * out->pixel + c, result[y][x], n);
    }
}

INLINE void outputs(const struct form form, const float *m, ptrdiff_t step, int n,
                    const struct winograd_out *out)
{
    int c = 0;

    for (; c + LANES <= n; c += LANES)
        output_vec(form, m, step, c, LANES, out);
    if (c < n)
        output_vec(form, m, step, c, n - c, out);
}

INLINE void weight_vec(const struct form form, const float *g, ptrdiff_t row, ptrdiff_t column,
                       int n, float *u, ptrdiff_t step)
{
    const int taps_y = N_TAPS(form.y), taps_x = N_TAPS(form.x);
    const int places_y = N_WEIGHTS(form.y), places_x = N_WEIGHTS(form.x);
    vec between[MOST][TAPS];

#pragma GCC unroll 3
    for (int x = 0; x < taps_x; x++) {
        vec in[TAPS], out[MOST];
#pragma GCC unroll 6
        for (int y = 0; y < taps_y; y++)
            in[y] = load(g + y * row + x * column, n);
        turn_weight(form.y, in, out);
#pragma GCC unroll 6
        for (int y = 0; y < places_y; y++)
            between[y][x] = out[y];
    }
#pragma GCC unroll 6
    for (int y = 0; y < places_y; y++) {
        vec out[MOST];
        turn_weight(form.x, between[y], out);
#pragma GCC unroll 6
        for (int x = 0; x < places_x; x++)
            store(u + (y * places_x + x) * step, out[x], n);
    }
}

INLINE void weights(const struct form form, const float *g, ptrdiff_t row, ptrdiff_t column,
                    int n, float *u, ptrdiff_t step)
{
    int c = 0;

    for (; c + LANES <= n; c += LANES)
        weight_vec(form, g + c, row, column, LANES, u + c, step);
    if (c < n)
        weight_vec(form, g + c, row, column, n - c, u + c, step);
}

INLINE void weight_grad_vec(const struct form form, const float *u, ptrdiff_t step, int n,
                            float *dg, ptrdiff_t row, ptrdiff_t column)
{
    const int taps_y = N_TAPS(form.y), taps_x = N_TAPS(form.x);
    const int places_y = N_WEIGHTS(form.y), places_x = N_WEIGHTS(form.x);
    vec between[TAPS][MOST];

    for (int x = 0; x < places_x; x++) {
        vec in[MOST], out[TAPS];
#pragma GCC unroll 6
        for (int y = 0; y < places_y; y++)
            in[y] = load(u + (y * places_x + x) * step, n);
        turn_weight_grad(form.y, in, out);
#pragma GCC unroll 6
        for (int y = 0; y < taps_y; y++)
            between[y][x] = out[y];
    }
    for (int y = 0; y < taps_y; y++) {
        vec out[TAPS];
        turn_weight_grad(form.x, between[y], out);
#pragma GCC unroll 6
        for (int x = 0; x < taps_x; x++)
            store(dg + y * row + x * column, out[x], n);
    }
}

INLINE void weight_grads(const struct form form, const float *u, ptrdiff_t step, int n,
                         float *dg, ptrdiff_t row, ptrdiff_t column)
{
    int c = 0;

    for (; c + LANES <= n; c += LANES)
        weight_grad_vec(form, u + c, step, LANES, dg + c, row, column);
    if (c < n)
        weight_grad_vec(form, u + c, step, n - c, dg + c, row, column);
}

/* The functions of one form, and its row. */
#define FORM(name, y, x)                                                                       \
    static void input_##name(const struct winograd_in *in, int n, float *v, ptrdiff_t step)    \
    {                                                                                          \
        all_from_image(in, (struct turn){ { y, x }, false }, n, v, step);                      \
    }                                                                                          \
    static void output_##name(const float *m, ptrdiff_t step, int n,                           \
                              const struct winograd_out *out)                                  \
    {                                                                                          \
        outputs((struct form){ y, x }, m, step, n, out);                                       \
    }                                                                                          \
    static void output_grad_##name(const struct winograd_in *dy, int n, float *m,              \
                                   ptrdiff_t step)                                             \
    {                                                                                          \
        all_from_image(dy, (struct turn){ { y, x }, true }, n, m, step);                       \
    }                                                                                          \
    static void weight_##name(const float *g, ptrdiff_t row, ptrdiff_t column, int n,          \
                              float *u, ptrdiff_t step)                                        \
    {                                                                                          \
        weights((struct form){ y, x }, g, row, column, n, u, step);                            \
    }                                                                                          \
    static void weight_grad_##name(const float *u, ptrdiff_t step, int n, float *dg,           \
                                   ptrdiff_t row, ptrdiff_t column)                            \
    {                                                                                          \
        weight_grads((struct form){ y, x }, u, step, n, dg, row, column);                      \
    }

FORM(tiles, TILES, TILES)
FORM(whole, WHOLE, WHOLE)
FORM(pairs, PAIR, PAIR)
FORM(pair_one, PAIR, ONE)
FORM(one_pair, ONE, PAIR)
FORM(ones, ONE, ONE)

#define ROW(name, y, x, skips)                                                                 \
    {                                                                                          \
        .out = N_OUT(y), .before = (skips), .taps = { N_TAPS(y), N_TAPS(x) },                  \
        .side = { N_PLACES(y), N_PLACES(x) }, .weight_side = { N_WEIGHTS(y), N_WEIGHTS(x) },   \
        .input = input_##name, .output = output_##name, .output_grad = output_grad_##name,     \
        .weight = weight_##name, .weight_grad = weight_grad_##name                             \
    }

const struct winograd_isa WINOGRAD_TABLE = {
    .tiles = ROW(tiles, TILES, TILES, 0),
    .whole = ROW(whole, WHOLE, WHOLE, 1),
    .phases = { { ROW(ones, ONE, ONE, 0), ROW(one_pair, ONE, PAIR, 0) },
                { ROW(pair_one, PAIR, ONE, 0), ROW(pairs, PAIR, PAIR, 0) } },
};
