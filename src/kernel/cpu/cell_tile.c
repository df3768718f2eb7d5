/* SPDX-License-Identifier: MIT */
/* cell_tile.c - the cells of cell.h for one instruction set.
 *
 * Compiled once with AVX2 and once with AVX-512 (cpu/fast.cmake); CELL_TABLE is the name of the
 * table. A row of a step reads 4 vectors of gates and what a tile made of the state, and writes 7;
 * five divisions are most of its time, some 5 % of that of the products.
 */
#include "kernel/cpu/cell.h"

#include <stdbool.h>

#include "kernel/cpu/vec_math.h"

/* The n units of a vector. */
struct part {
    vec_part first;
    int n;
};

INLINE vec load(const float *from, struct part part)
{
    return part.n == LANES ? vec_load(from) : vec_load_part(from, part.first);
}

INLINE void store(float *to, vec v, struct part part)
{
    if (part.n == LANES)
        vec_store(to, v);
    else
        vec_store_part(to, v, part.first);
}

/* What the state says to gate g of row r, with its bias. */
INLINE vec hidden(const struct cell_step *s, int r, int g, struct part part)
{
    const vec bias = load(s->bias + g * s->units, part);

    if (s->made.at == NULL)
        return bias;
    return vec_add(vec_load(s->made.at + r * s->made.row + g * LANES), bias);
}

INLINE void lstm_row(const struct cell_step *s, int r, struct part part)
{
    const float *gates = s->gates.at + r * s->gates.row;
    float *saved = s->saved.at + r * s->saved.row;
    const vec c = load(saved + 4 * s->units, part);
    vec a[4];

#pragma GCC unroll 4
    for (int g = 0; g < 4; g++)
        a[g] = vec_add(load(gates + g * s->units, part), hidden(s, r, g, part));
    const vec i = vec_sigmoid(a[0]), f = vec_sigmoid(a[1]);
    const vec g = vec_tanh(a[2]), o = vec_sigmoid(a[3]);
    const vec next_c = vec_fma(f, c, vec_mul(i, g));
    const vec next_h = vec_mul(o, vec_tanh(next_c));
    const bool is_over = s->ids[r * s->id_row] < 0;

    store(saved, i, part);
    store(saved + s->units, f, part);
    store(saved + 2 * s->units, g, part);
    store(saved + 3 * s->units, o, part);
    store(s->y.at + r * s->y.row, is_over ? vec_zero() : next_h, part);
    store(s->next_h.at + r * s->next_h.row,
          is_over ? load(s->h.at + r * s->h.row, part) : next_h, part);
    store(s->next_c.at + r * s->next_c.row, is_over ? c : next_c, part);
}

INLINE void gru_row(const struct cell_step *s, int r, struct part part)
{
    const float *gates = s->gates.at + r * s->gates.row;
    float *saved = s->saved.at + r * s->saved.row;
    const vec h = load(s->h.at + r * s->h.row, part);
    const vec reset = vec_sigmoid(vec_add(load(gates, part), hidden(s, r, 0, part)));
    const vec z = vec_sigmoid(vec_add(load(gates + s->units, part), hidden(s, r, 1, part)));
    const vec q = hidden(s, r, 2, part);
    const vec n = vec_tanh(vec_fma(reset, q, load(gates + 2 * s->units, part)));
    const vec next = vec_fma(z, vec_sub(h, n), n); /* (1 - z) n + z h */
    const bool is_over = s->ids[r * s->id_row] < 0;

    store(saved, reset, part);
    store(saved + s->units, z, part);
    store(saved + 2 * s->units, n, part);
    store(saved + 3 * s->units, q, part);
    store(saved + 4 * s->units, h, part);
    store(s->y.at + r * s->y.row, is_over ? vec_zero() : next, part);
    store(s->next_h.at + r * s->next_h.row, is_over ? h : next, part);
}

/* Gradients ---------------------------------------------------------------------------- */

/* a (1 - a), the slope of a sigmoid whose value is a. */
INLINE vec slope(vec a)
{
    return vec_mul(a, vec_sub(vec_set(1), a));
}

/* 1 - a^2, that of a tanh. */
INLINE vec tanh_slope(vec a)
{
    return vec_sub(vec_set(1), vec_mul(a, a));
}

INLINE vec flowing_in(const struct cell_grad *g, int r, struct part part)
{
    const vec dh = load(g->dh.at + r * g->dh.row, part);

    if (g->dy.at == NULL)
        return dh;
    return vec_add(dh, load(g->dy.at + r * g->dy.row, part));
}

/* A row that is over: its state's gradient stays, nothing flows into its gates. */
INLINE void pass_row(const struct cell_grad *g, int r, int n_gates, struct part part)
{
    for (int k = 0; k < n_gates; k++) {
        store(g->dgates.at + r * g->dgates.row + k * g->units, vec_zero(), part);
        if (g->dhidden.at != NULL)
            store(g->dhidden.at + r * g->dhidden.row + k * g->units, vec_zero(), part);
    }
}

INLINE void lstm_grad_row(const struct cell_grad *g, int r, struct part part)
{
    const float *saved = g->saved.at + r * g->saved.row;
    float *dgates = g->dgates.at + r * g->dgates.row;
    float *dc_at = g->dc.at + r * g->dc.row;
    const vec i = load(saved, part), f = load(saved + g->units, part);
    const vec n = load(saved + 2 * g->units, part), o = load(saved + 3 * g->units, part);
    const vec c = load(saved + 4 * g->units, part);
    const vec bent = vec_tanh(vec_fma(f, c, vec_mul(i, n)));
    const vec dh = flowing_in(g, r, part);
    const vec dc = vec_fma(vec_mul(dh, o), tanh_slope(bent), load(dc_at, part));

    store(dgates, vec_mul(vec_mul(dc, n), slope(i)), part);
    store(dgates + g->units, vec_mul(vec_mul(dc, c), slope(f)), part);
    store(dgates + 2 * g->units, vec_mul(vec_mul(dc, i), tanh_slope(n)), part);
    store(dgates + 3 * g->units, vec_mul(vec_mul(dh, bent), slope(o)), part);
    store(g->dh.at + r * g->dh.row, vec_zero(), part);
    store(dc_at, vec_mul(dc, f), part);
}

INLINE void gru_grad_row(const struct cell_grad *g, int r, struct part part)
{
    const float *saved = g->saved.at + r * g->saved.row;
    float *dgates = g->dgates.at + r * g->dgates.row;
    float *dhidden = g->dhidden.at + r * g->dhidden.row;
    const vec reset = load(saved, part), z = load(saved + g->units, part);
    const vec n = load(saved + 2 * g->units, part), q = load(saved + 3 * g->units, part);
    const vec h = load(saved + 4 * g->units, part);
    const vec dh = flowing_in(g, r, part);
    const vec dn = vec_mul(vec_mul(dh, vec_sub(vec_set(1), z)), tanh_slope(n));
    const vec dreset = vec_mul(vec_mul(dn, q), slope(reset));
    const vec dz = vec_mul(vec_mul(dh, vec_sub(h, n)), slope(z));

    store(dgates, dreset, part);
    store(dgates + g->units, dz, part);
    store(dgates + 2 * g->units, dn, part);
    store(dhidden, dreset, part);
    store(dhidden + g->units, dz, part);
    store(dhidden + 2 * g->units, vec_mul(dn, reset), part);
    store(g->dh.at + r * g->dh.row, vec_mul(dh, z), part);
}

/* All rows: whole vectors apart, so that the compiler leaves masks out of them. */
#define FOR_ROWS(work, row)                                                                    \
    do {                                                                                       \
        const struct part whole = { vec_first(LANES), LANES };                                 \
        const struct part some = { vec_first((work)->n), (work)->n };                          \
        for (int r = 0; r < (work)->rows; r++) {                                               \
            if ((work)->n == LANES)                                                            \
                row(work, r, whole);                                                           \
            else                                                                               \
                row(work, r, some);                                                            \
        }                                                                                      \
    } while (0)

static void lstm(const struct cell_step *step)
{
    FOR_ROWS(step, lstm_row);
}

static void gru(const struct cell_step *step)
{
    FOR_ROWS(step, gru_row);
}

INLINE void lstm_grad_or_pass(const struct cell_grad *grad, int r, struct part part)
{
    if (grad->ids[r * grad->id_row] < 0)
        pass_row(grad, r, 4, part);
    else
        lstm_grad_row(grad, r, part);
}

INLINE void gru_grad_or_pass(const struct cell_grad *grad, int r, struct part part)
{
    if (grad->ids[r * grad->id_row] < 0)
        pass_row(grad, r, 3, part);
    else
        gru_grad_row(grad, r, part);
}

static void lstm_grad(const struct cell_grad *grad)
{
    FOR_ROWS(grad, lstm_grad_or_pass);
}

static void gru_grad(const struct cell_grad *grad)
{
    FOR_ROWS(grad, gru_grad_or_pass);
}

/* Arrays ------------------------------------------------------------------------------- */

#define FOR_ARRAY(function, x, y, count)                                                       \
    do {                                                                                       \
        for (size_t i = 0; i < (count); i += LANES) {                                          \
            const int n = (count)-i < LANES ? (int)((count)-i) : LANES;                        \
            const struct part part = { vec_first(n), n };                                      \
            store((y) + i, function(load((x) + i, part)), part);                               \
        }                                                                                      \
    } while (0)

static void array_exp(const float *x, float *y, size_t count)
{
    FOR_ARRAY(vec_exp_not_positive, x, y, count);
}

static void array_sigmoid(const float *x, float *y, size_t count)
{
    FOR_ARRAY(vec_sigmoid, x, y, count);
}

static void array_tanh(const float *x, float *y, size_t count)
{
    FOR_ARRAY(vec_tanh, x, y, count);
}

const struct cell_isa CELL_TABLE = {
    .lanes = LANES,
    .lstm = lstm,
    .gru = gru,
    .lstm_grad = lstm_grad,
    .gru_grad = gru_grad,
    .exp_not_positive = array_exp,
    .sigmoid = array_sigmoid,
    .tanh = array_tanh,
};
