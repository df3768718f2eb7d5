/* SPDX-License-Identifier: MIT */
/* winograd_tile.c - the transforms of winograd.h for one instruction set.
 *
 * Compiled once with AVX2 and once with AVX-512; WINOGRAD_TABLE is the name of the table. Each
 * takes one vector of channels at a time: first all columns, then all rows, with the 36 vectors
 * between them on the stack. Per tile and vector about 150 operations for the input and 100
 * for the output, against 36 products with every output channel.
 */
#include "kernel/cpu/winograd.h"

#include "kernel/cpu/isa.h"

enum { IN = WINOGRAD_IN, OUT = WINOGRAD_OUT };

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
INLINE void turn_input(const vec d[IN], vec t[IN])
{
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
INLINE void turn_output(const vec m[IN], vec y[OUT])
{
    const vec s = vec_add(m[1], m[2]), d = vec_sub(m[1], m[2]);
    const vec p = vec_add(m[3], m[4]), q = vec_sub(m[3], m[4]);

    y[0] = vec_add(vec_add(m[0], s), p);
    y[1] = vec_fma(vec_set(2.0f), q, d);
    y[2] = vec_fma(vec_set(4.0f), p, s);
    y[3] = vec_add(vec_fma(vec_set(8.0f), q, d), m[5]);
}

/* One dimension of A y. */
INLINE void turn_output_grad(const vec y[OUT], vec m[IN])
{
    const vec even = vec_add(y[0], y[2]), odd = vec_add(y[1], y[3]);
    const vec f = vec_fma(vec_set(4.0f), y[2], y[0]);
    const vec g = vec_fma(vec_set(8.0f), y[3], vec_add(y[1], y[1]));

    m[0] = y[0];
    m[1] = vec_add(even, odd);
    m[2] = vec_sub(even, odd);
    m[3] = vec_add(f, g);
    m[4] = vec_sub(f, g);
    m[5] = y[3];
}

/* One dimension of G g. */
INLINE void turn_weight(const vec g[3], vec u[IN])
{
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
INLINE void turn_weight_grad(const vec u[IN], vec g[3])
{
    const vec sixth = vec_set(1.0f / 6.0f);
    const vec s = vec_add(u[1], u[2]), d = vec_sub(u[2], u[1]);
    const vec p = vec_add(u[3], u[4]), q = vec_sub(u[3], u[4]);

    g[0] = vec_fma(vec_set(0.25f), u[0],
                   vec_fma(vec_set(1.0f / 24.0f), p, vec_mul(vec_set(-1.0f / 6.0f), s)));
    g[1] = vec_fma(sixth, d, vec_mul(vec_set(1.0f / 12.0f), q));
    g[2] = vec_fma(sixth, vec_sub(p, s), u[5]);
}

INLINE void input_vec(const float *d, ptrdiff_t row, ptrdiff_t pixel, int n, float *v,
                      ptrdiff_t step)
{
    vec between[IN][IN]; /* [row after][column] */

    for (int x = 0; x < IN; x++) {
        vec in[IN], out[IN];
#pragma GCC unroll 6
        for (int y = 0; y < IN; y++)
            in[y] = load(d + y * row + x * pixel, n);
        turn_input(in, out);
#pragma GCC unroll 6
        for (int y = 0; y < IN; y++)
            between[y][x] = out[y];
    }
    for (int y = 0; y < IN; y++) {
        vec out[IN];
        turn_input(between[y], out);
#pragma GCC unroll 6
        for (int x = 0; x < IN; x++)
            store(v + (y * IN + x) * step, out[x], n);
    }
}

static void input(const float *d, ptrdiff_t row, ptrdiff_t pixel, int n, float *v,
                  ptrdiff_t step)
{
    int c = 0;

    for (; c + LANES <= n; c += LANES)
        input_vec(d + c, row, pixel, LANES, v + c, step);
    if (c < n)
        input_vec(d + c, row, pixel, n - c, v + c, step);
}

/* The largest of each 2x2 and where it was first, for the windows that exist. */
INLINE void store_windows(vec y[OUT][OUT], int c, int n, const struct winograd_out *out)
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

INLINE void output_vec(const float *m, ptrdiff_t step, int c, int n,
                       const struct winograd_out *out)
{
    vec between[OUT][IN], result[OUT][OUT];
    const vec bias = out->bias != NULL ? load(out->bias + c, n) : vec_zero();

    for (int x = 0; x < IN; x++) {
        vec in[IN], turned[OUT];
#pragma GCC unroll 6
        for (int y = 0; y < IN; y++)
            in[y] = load(m + (y * IN + x) * step + c, n);
        turn_output(in, turned);
#pragma GCC unroll 6
        for (int y = 0; y < OUT; y++)
            between[y][x] = turned[y];
    }
#pragma GCC unroll 4
    for (int y = 0; y < OUT; y++) {
        turn_output(between[y], result[y]);
#pragma GCC unroll 6
        for (int x = 0; x < OUT; x++)
            result[y][x] = vec_add(result[y][x], bias);
    }
    if (out->relu) {
#pragma GCC unroll 16
        for (int i = 0; i < OUT * OUT; i++)
            result[i / OUT][i % OUT] = vec_relu(result[i / OUT][i % OUT]);
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

static void output(const float *m, ptrdiff_t step, int n, const struct winograd_out *out)
{
    int c = 0;

    for (; c + LANES <= n; c += LANES)
        output_vec(m, step, c, LANES, out);
    if (c < n)
        output_vec(m, step, c, n - c, out);
}

INLINE void output_grad_vec(const float *dy, ptrdiff_t row, ptrdiff_t pixel, int rows,
                            int columns, int n, float *m, ptrdiff_t step)
{
    vec between[IN][OUT];

    for (int x = 0; x < OUT; x++) {
        vec in[OUT], out[IN];
#pragma GCC unroll 6
        for (int y = 0; y < OUT; y++)
            in[y] = y < rows && x < columns ? load(dy + y * row + x * pixel, n) : vec_zero();
        turn_output_grad(in, out);
#pragma GCC unroll 6
        for (int y = 0; y < IN; y++)
            between[y][x] = out[y];
    }
    for (int y = 0; y < IN; y++) {
        vec out[IN];
        turn_output_grad(between[y], out);
#pragma GCC unroll 6
        for (int x = 0; x < IN; x++)
            store(m + (y * IN + x) * step, out[x], n);
    }
}

static void output_grad(const float *dy, ptrdiff_t row, ptrdiff_t pixel, int rows, int columns,
                        int n, float *m, ptrdiff_t step)
{
    int c = 0;

    for (; c + LANES <= n; c += LANES) {
        if (rows == OUT && columns == OUT)
            output_grad_vec(dy + c, row, pixel, OUT, OUT, LANES, m + c, step);
        else
            output_grad_vec(dy + c, row, pixel, rows, columns, LANES, m + c, step);
    }
    if (c < n)
        output_grad_vec(dy + c, row, pixel, rows, columns, n - c, m + c, step);
}

INLINE void weight_vec(const float *g, ptrdiff_t row, ptrdiff_t column, int n, float *u,
                       ptrdiff_t step)
{
    vec between[IN][3];

    for (int x = 0; x < 3; x++) {
        vec in[3], out[IN];
#pragma GCC unroll 6
        for (int y = 0; y < 3; y++)
            in[y] = load(g + y * row + x * column, n);
        turn_weight(in, out);
#pragma GCC unroll 6
        for (int y = 0; y < IN; y++)
            between[y][x] = out[y];
    }
    for (int y = 0; y < IN; y++) {
        vec out[IN];
        turn_weight(between[y], out);
#pragma GCC unroll 6
        for (int x = 0; x < IN; x++)
            store(u + (y * IN + x) * step, out[x], n);
    }
}

static void weight(const float *g, ptrdiff_t row, ptrdiff_t column, int n, float *u,
                   ptrdiff_t step)
{
    int c = 0;

    for (; c + LANES <= n; c += LANES)
        weight_vec(g + c, row, column, LANES, u + c, step);
    if (c < n)
        weight_vec(g + c, row, column, n - c, u + c, step);
}

INLINE void weight_grad_vec(const float *u, ptrdiff_t step, int n, float *dg, ptrdiff_t tap)
{
    vec between[3][IN];

    for (int x = 0; x < IN; x++) {
        vec in[IN], out[3];
#pragma GCC unroll 6
        for (int y = 0; y < IN; y++)
            in[y] = load(u + (y * IN + x) * step, n);
        turn_weight_grad(in, out);
#pragma GCC unroll 6
        for (int y = 0; y < 3; y++)
            between[y][x] = out[y];
    }
    for (int y = 0; y < 3; y++) {
        vec out[3];
        turn_weight_grad(between[y], out);
#pragma GCC unroll 6
        for (int x = 0; x < 3; x++)
            store(dg + (y * 3 + x) * tap, out[x], n);
    }
}

static void weight_grad(const float *u, ptrdiff_t step, int n, float *dg, ptrdiff_t tap)
{
    int c = 0;

    for (; c + LANES <= n; c += LANES)
        weight_grad_vec(u + c, step, LANES, dg + c, tap);
    if (c < n)
        weight_grad_vec(u + c, step, n - c, dg + c, tap);
}

const struct winograd_isa WINOGRAD_TABLE = {
    .input = input,
    .output = output,
    .output_grad = output_grad,
    .weight = weight,
    .weight_grad = weight_grad,
};
