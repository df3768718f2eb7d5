/* SPDX-License-Identifier: MIT */
/* cell_tile.c - the cells of cell.h for one instruction set.
 *
 * Compiled once with AVX2 and once with AVX-512 (cpu/fast.cmake); CELL_TABLE is the name of the
 * table. A vector of units of an LSTM reads 4 vectors of gates and what tiles made of the state, and
 * writes 7; five divisions are most of its time, some 8 % of that of the products. Rows of a step lie
 * far apart in memory, so that the processor does not guess the next one: it is fetched on the way,
 * which is worth more than all of the arithmetic here.
 */
#include "kernel/cpu/cell.h"

#include <stdbool.h>

#include "kernel/cpu/vec_math.h"

/* Units [u, u + n) of row r. */
struct part {
    ptrdiff_t r, u;
    int n;
    vec_part first;
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

/* Where the units of a part are in a matrix. */
INLINE const float *source_at(struct cell_source source, struct part part)
{
    return source.at + part.r * source.row + part.u;
}

INLINE float *rows_at(struct cell_rows rows, struct part part)
{
    return rows.at + part.r * rows.row + part.u;
}

/* Asks for `count` lines of the next row, `step` apart. */
INLINE void fetch_next(const float *at, ptrdiff_t row, ptrdiff_t step, int count)
{
    for (int k = 0; k < count; k++)
        __builtin_prefetch(at + row + k * step, 0, 3);
}

/* What the state says to gate g of n_gates, with its bias. */
INLINE vec hidden(const struct cell_step *s, int g, int n_gates, struct part part)
{
    const vec bias = load(s->bias + g * s->units + part.u, part);

    if (s->made.at == NULL)
        return bias;
    return vec_add(vec_load(s->made.at + part.r * s->made.row + part.u * n_gates + g * LANES),
                   bias);
}

INLINE void finish_step(const struct cell_step *s, vec h, struct part part)
{
    const bool is_over = s->ids[part.r * s->id_row] < 0;
    float *y = rows_at(s->y, part), *next = rows_at(s->next_h, part);

    store(y, is_over ? vec_zero() : h, part);
    store(next, is_over ? load(source_at(s->h, part), part) : h, part);
    fetch_next(y, s->y.row, 0, 1);
    fetch_next(next, s->next_h.row, 0, 1);
}

INLINE void lstm_units(const struct cell_step *s, struct part part)
{
    const float *gates = source_at(s->gates, part), *kept = rows_at(s->kept, part);
    float *acts = rows_at(s->acts, part);
    const vec c = load(kept, part);
    vec a[4];

    fetch_next(gates, s->gates.row, s->units, 4);
    fetch_next(kept, s->kept.row, 0, 1);
    if (acts != gates)
        fetch_next(acts, s->acts.row, s->units, 4);
#pragma GCC unroll 4
    for (int g = 0; g < 4; g++)
        a[g] = vec_add(load(gates + g * s->units, part), hidden(s, g, 4, part));
    const vec i = vec_sigmoid(a[0]), f = vec_sigmoid(a[1]);
    const vec g = vec_tanh(a[2]), o = vec_sigmoid(a[3]);
    const vec next = vec_fma(f, c, vec_mul(i, g));

    store(acts, i, part);
    store(acts + s->units, f, part);
    store(acts + 2 * s->units, g, part);
    store(acts + 3 * s->units, o, part);
    store(rows_at(s->next_c, part), s->ids[part.r * s->id_row] < 0 ? c : next, part);
    finish_step(s, vec_mul(o, vec_tanh(next)), part);
}

INLINE void gru_units(const struct cell_step *s, struct part part)
{
    const float *gates = source_at(s->gates, part);
    float *acts = rows_at(s->acts, part), *kept = rows_at(s->kept, part);
    const vec h = load(source_at(s->h, part), part);

    fetch_next(gates, s->gates.row, s->units, 3);
    fetch_next(kept, s->kept.row, 0, 1);
    if (acts != gates)
        fetch_next(acts, s->acts.row, s->units, 3);
    const vec reset = vec_sigmoid(vec_add(load(gates, part), hidden(s, 0, 3, part)));
    const vec z = vec_sigmoid(vec_add(load(gates + s->units, part), hidden(s, 1, 3, part)));
    const vec q = hidden(s, 2, 3, part);
    const vec n = vec_tanh(vec_fma(reset, q, load(gates + 2 * s->units, part)));

    store(acts, reset, part);
    store(acts + s->units, z, part);
    store(acts + 2 * s->units, n, part);
    store(kept, q, part);
    finish_step(s, vec_fma(z, vec_sub(h, n), n), part); /* (1 - z) n + z h */
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

/* A row that is over: its state's gradient stays, nothing flows into its gates. */
INLINE bool is_over(const struct cell_grad *g, int n_gates, struct part part)
{
    if (g->ids[part.r * g->id_row] >= 0)
        return false;
    for (int k = 0; k < n_gates; k++) {
        store(rows_at(g->dgates, part) + k * g->units, vec_zero(), part);
        if (g->dhidden.at != NULL)
            store(rows_at(g->dhidden, part) + k * g->units, vec_zero(), part);
    }
    return true;
}

INLINE vec flowing_in(const struct cell_grad *g, struct part part)
{
    const vec dh = load(rows_at(g->dh, part), part);

    if (g->dy.at == NULL)
        return dh;
    const float *dy = source_at(g->dy, part);
    fetch_next(dy, g->dy.row, 0, 1);
    return vec_add(dh, load(dy, part));
}

INLINE void lstm_grad_units(const struct cell_grad *g, struct part part)
{
    const float *acts = source_at(g->acts, part), *kept = source_at(g->kept, part);
    float *dgates = rows_at(g->dgates, part), *dc_at = rows_at(g->dc, part);

    fetch_next(acts, g->acts.row, g->units, 4);
    fetch_next(kept, g->kept.row, 0, 1);
    if (dgates != acts)
        fetch_next(dgates, g->dgates.row, g->units, 4);
    if (is_over(g, 4, part))
        return;
    const vec i = load(acts, part), f = load(acts + g->units, part);
    const vec n = load(acts + 2 * g->units, part), o = load(acts + 3 * g->units, part);
    const vec c = load(kept, part), bent = vec_tanh(vec_fma(f, c, vec_mul(i, n)));
    const vec dh = flowing_in(g, part);
    const vec dc = vec_fma(vec_mul(dh, o), tanh_slope(bent), load(dc_at, part));

    store(dgates, vec_mul(vec_mul(dc, n), slope(i)), part);
    store(dgates + g->units, vec_mul(vec_mul(dc, c), slope(f)), part);
    store(dgates + 2 * g->units, vec_mul(vec_mul(dc, i), tanh_slope(n)), part);
    store(dgates + 3 * g->units, vec_mul(vec_mul(dh, bent), slope(o)), part);
    store(rows_at(g->dh, part), vec_zero(), part);
    store(dc_at, vec_mul(dc, f), part);
}

INLINE void gru_grad_units(const struct cell_grad *g, struct part part)
{
    const float *acts = source_at(g->acts, part), *kept = source_at(g->kept, part);
    float *dgates = rows_at(g->dgates, part), *dhidden = rows_at(g->dhidden, part);

    fetch_next(acts, g->acts.row, g->units, 3);
    fetch_next(kept, g->kept.row, 0, 1);
    fetch_next(source_at(g->h, part), g->h.row, 0, 1);
    fetch_next(dhidden, g->dhidden.row, g->units, 3);
    if (dgates != acts)
        fetch_next(dgates, g->dgates.row, g->units, 3);
    if (is_over(g, 3, part))
        return;
    const vec reset = load(acts, part), z = load(acts + g->units, part);
    const vec n = load(acts + 2 * g->units, part), q = load(kept, part);
    const vec h = load(source_at(g->h, part), part), dh = flowing_in(g, part);
    const vec dn = vec_mul(vec_mul(dh, vec_sub(vec_set(1), z)), tanh_slope(n));
    const vec dreset = vec_mul(vec_mul(dn, q), slope(reset));
    const vec dz = vec_mul(vec_mul(dh, vec_sub(h, n)), slope(z));

    store(dgates, dreset, part);
    store(dgates + g->units, dz, part);
    store(dgates + 2 * g->units, dn, part);
    store(dhidden, dreset, part);
    store(dhidden + g->units, dz, part);
    store(dhidden + 2 * g->units, vec_mul(dn, reset), part);
    store(rows_at(g->dh, part), vec_mul(dh, z), part);
}

/* All units of all rows: whole vectors apart, so that the compiler leaves masks out of them. */
#define FOR_UNITS(work, some_units)                                                            \
    do {                                                                                       \
        const ptrdiff_t end = (work)->units / LANES * LANES;                                   \
        const int rest = (int)((work)->units - end);                                           \
        for (ptrdiff_t r = 0; r < (work)->rows; r++) {                                         \
            for (ptrdiff_t u = 0; u < end; u += LANES)                                         \
                some_units(work, (struct part){ r, u, LANES, vec_first(LANES) });              \
            if (rest > 0)                                                                      \
                some_units(work, (struct part){ r, end, rest, vec_first(rest) });              \
        }                                                                                      \
    } while (0)

static void lstm(const struct cell_step *step)
{
    FOR_UNITS(step, lstm_units);
}

static void gru(const struct cell_step *step)
{
    FOR_UNITS(step, gru_units);
}

static void lstm_grad(const struct cell_grad *grad)
{
    FOR_UNITS(grad, lstm_grad_units);
}

static void gru_grad(const struct cell_grad *grad)
{
    FOR_UNITS(grad, gru_grad_units);
}

/* Arrays ------------------------------------------------------------------------------- */

#define FOR_ARRAY(function, x, y, count)                                                       \
    do {                                                                                       \
        for (size_t i = 0; i < (count); i += LANES) {                                          \
            const int n = (count)-i < LANES ? (int)((count)-i) : LANES;                        \
            const struct part part = { 0, 0, n, vec_first(n) };                                \
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

/* Attention ---------------------------------------------------------------------------- */

INLINE struct part part_from(ptrdiff_t u, ptrdiff_t end)
{
    const int n = end - u < LANES ? (int)(end - u) : LANES;

    return (struct part){ 0, u, n, vec_first(n) };
}

/* v . tanh(query + key) */
INLINE float score_of(const struct attend_row *a, const float *key)
{
    vec sum = vec_zero();

    for (ptrdiff_t k = 0; k < a->keys; k += LANES) {
        const struct part part = part_from(k, a->keys);
        const vec x = vec_add(load(a->query + k, part), load(key + k, part));
        sum = vec_fma(load(a->score + k, part), vec_tanh(x), sum);
    }
    return vec_sum(sum);
}

static void attend(const struct attend_row *a)
{
    float largest = 0, total = 0;
    bool any = false;

    for (ptrdiff_t s = 0; s < a->places; s++) {
        if (a->source[s] < 0)
            continue;
        a->weights[s] = score_of(a, a->key_at + s * a->keys);
        largest = any && a->weights[s] < largest ? largest : a->weights[s];
        any = true;
    }
    for (ptrdiff_t s = 0; s < a->places; s++)
        a->weights[s] = a->source[s] < 0 ? 0 : a->weights[s] - largest;
    array_exp(a->weights, a->weights, (size_t)a->places);
    for (ptrdiff_t s = 0; s < a->places; s++) {
        a->weights[s] = a->source[s] < 0 ? 0 : a->weights[s];
        total += a->weights[s];
    }
    for (ptrdiff_t s = 0; s < a->places && any; s++)
        a->weights[s] /= total;
    for (ptrdiff_t e = 0; e < a->memory; e += LANES) {
        const struct part part = part_from(e, a->memory);
        vec sum = vec_zero();
        for (ptrdiff_t s = 0; s < a->places; s++)
            sum = vec_fma(vec_set(a->weights[s]), load(a->memory_at + s * a->memory + e, part),
                          sum);
        store(a->context + e, sum, part);
    }
}

/* What flows into the scores, and from the context into the memory. */
INLINE void flow_to_scores(const struct attend_grad *a)
{
    float mean = 0;

    for (ptrdiff_t s = 0; s < a->places; s++) {
        const vec weight = vec_set(a->weights[s]);
        vec sum = vec_zero();
        for (ptrdiff_t e = 0; e < a->memory; e += LANES) {
            const struct part part = part_from(e, a->memory);
            const vec dcontext = load(a->dcontext + e, part);
            float *dmemory = a->dmemory + s * a->memory + e;
            sum = vec_fma(dcontext, load(a->memory_at + s * a->memory + e, part), sum);
            store(dmemory, vec_fma(weight, dcontext, load(dmemory, part)), part);
        }
        a->flow[s] = vec_sum(sum);
        mean += a->weights[s] * a->flow[s];
    }
    for (ptrdiff_t s = 0; s < a->places; s++)
        a->flow[s] = a->weights[s] * (a->flow[s] - mean);
}

static void attend_grad(const struct attend_grad *a)
{
    flow_to_scores(a);
    for (ptrdiff_t k = 0; k < a->keys; k += LANES) {
        const struct part part = part_from(k, a->keys);
        const vec query = load(a->query + k, part), score = load(a->score + k, part);
        vec dquery = vec_zero(), dscore = load(a->dscore + k, part);

        for (ptrdiff_t s = 0; s < a->places; s++) {
            if (a->weights[s] == 0) /* not looked at: nothing flows */
                continue;
            float *dkey = a->dkeys + s * a->keys + k;
            const vec u = vec_tanh(vec_add(query, load(a->key_at + s * a->keys + k, part)));
            const vec flow = vec_set(a->flow[s]);
            const vec back = vec_mul(vec_mul(flow, score), tanh_slope(u));
            store(dkey, vec_add(load(dkey, part), back), part);
            dquery = vec_add(dquery, back);
            dscore = vec_fma(flow, u, dscore);
        }
        store(a->dquery + k, dquery, part);
        store(a->dscore + k, dscore, part);
    }
}

const struct cell_isa CELL_TABLE = {
    .lanes = LANES,
    .lstm = lstm,
    .gru = gru,
    .lstm_grad = lstm_grad,
    .gru_grad = gru_grad,
    .attend = attend,
    .attend_grad = attend_grad,
    .exp_not_positive = array_exp,
    .sigmoid = array_sigmoid,
    .tanh = array_tanh,
};
