/* SPDX-License-Identifier: MIT */
/* attention_tile.c - the rows of attention_tile.h for one instruction set.
 *
 * Compiled once with AVX2 and once with AVX-512 (cpu/fast.cmake); ATTENTION_TABLE is the name of
 * the table. Rows lie in the first or second cache: an exponential costs some 20 operations a
 * vector, which is what a row costs.
 */
#include "kernel/cpu/attention_tile.h"

#include <math.h>

#include "kernel/cpu/isa_exp.h"

/* Rows of one head lie a page or more apart, which no processor foresees. */
enum { AHEAD = 8, LINE_FLOATS = 16 };

INLINE void fetch(const float *row, int n)
{
    for (int j = 0; j < n; j += LINE_FLOATS)
        __builtin_prefetch(row + j);
}

INLINE void fetch_to_write(const float *row, int n)
{
    for (int j = 0; j < n; j += LINE_FLOATS)
        __builtin_prefetch(row + j, 1);
}

static void scale(const float *from, ptrdiff_t from_step, int n_rows, int n, float factor,
                  float *to, ptrdiff_t to_step, int width)
{
    const vec by = vec_set(factor);

    for (int i = 0; i < n_rows; i++, from += from_step, to += to_step) {
        int j = 0;

        if (i + AHEAD < n_rows) {
            fetch(from + AHEAD * from_step, n);
            fetch_to_write(to + AHEAD * to_step, n);
        }
        for (; j + LANES <= n; j += LANES)
            vec_store(to + j, vec_mul(vec_load(from + j), by));
        if (j < n) {
            const vec_part part = vec_first(n - j);
            const vec v = vec_mul(vec_load_part(from + j, part), by);
            if (j + LANES <= width)
                vec_store(to + j, v);
            else
                vec_store_part(to + j, v, part);
            j += LANES;
        }
        for (; j + LANES <= width; j += LANES)
            vec_store(to + j, vec_zero());
    }
}

static void fill(float *row, int from, int to)
{
    for (int j = from; j < to; j++)
        row[j] = 0;
}

/* What is hidden is as far away as can be. */
static void hide(float *scores, const int32_t *ids, int n)
{
    for (int j = 0; j < n; j++) {
        if (ids[j] < 0)
            scores[j] = -INFINITY;
    }
}

/* Two chains, as a maximum has to wait for the one before. */
static float largest_of(const float *scores, int n)
{
    vec first = vec_set(-INFINITY), second = first;
    float largest;
    int j = 0;

    for (; j + 2 * LANES <= n; j += 2 * LANES) {
        first = vec_max(first, vec_load(scores + j));
        second = vec_max(second, vec_load(scores + j + LANES));
    }
    if (j + LANES <= n) {
        first = vec_max(first, vec_load(scores + j));
        j += LANES;
    }
    largest = vec_largest(vec_max(first, second));
    for (; j < n; j++)
        largest = scores[j] > largest ? scores[j] : largest;
    return largest;
}

static float exponentials(float *scores, const int32_t *ids, int n, int end, float *out_largest)
{
    if (ids != NULL)
        hide(scores, ids, n);
    const float largest = largest_of(scores, n);
    const vec less = vec_set(largest);
    vec sum = vec_zero();
    int j = 0;

    *out_largest = largest;
    if (largest == -INFINITY) {
        fill(scores, 0, end);
        return 0;
    }
    for (; j + LANES <= n; j += LANES) {
        const vec e = vec_exp(vec_sub(vec_load(scores + j), less));
        vec_store(scores + j, e);
        sum = vec_add(sum, e);
    }
    if (j < n) {
        const vec_part part = vec_first(n - j);
        float rest[LANES] = { 0 };
        vec_store_part(rest, vec_exp(vec_sub(vec_load_part(scores + j, part), less)), part);
        vec_store_part(scores + j, vec_load(rest), part);
        sum = vec_add(sum, vec_load(rest));
    }
    fill(scores, n, end);
    return vec_sum(sum);
}

static void weights(float *scores, float *dp, const int32_t *ids, int n, int end, float lse,
                    float delta)
{
    const vec less = vec_set(lse), before = vec_set(delta);
    int j = 0;

    if (ids != NULL)
        hide(scores, ids, n);
    for (; j + LANES <= n; j += LANES) {
        const vec p = vec_exp(vec_sub(vec_load(scores + j), less));
        vec_store(scores + j, p);
        vec_store(dp + j, vec_mul(p, vec_sub(vec_load(dp + j), before)));
    }
    if (j < n) {
        const vec_part part = vec_first(n - j);
        const vec p = vec_exp(vec_sub(vec_load_part(scores + j, part), less));
        vec_store_part(scores + j, p, part);
        vec_store_part(dp + j, vec_mul(p, vec_sub(vec_load_part(dp + j, part), before)), part);
    }
    fill(scores, n, end);
    fill(dp, n, end);
}

static void dots(const float *a, ptrdiff_t a_step, const float *b, ptrdiff_t b_step, int n_rows,
                 int n, float *out)
{
    for (int i = 0; i < n_rows; i++, a += a_step, b += b_step) {
        vec sum = vec_zero();
        int j = 0;

        if (i + AHEAD < n_rows)
            fetch(b + AHEAD * b_step, n);
        for (; j + LANES <= n; j += LANES)
            sum = vec_fma(vec_load(a + j), vec_load(b + j), sum);
        if (j < n) {
            const vec_part part = vec_first(n - j);
            sum = vec_fma(vec_load_part(a + j, part), vec_load_part(b + j, part), sum);
        }
        out[i] = vec_sum(sum);
    }
}

const struct attention_isa ATTENTION_TABLE = {
    .scale = scale,
    .exponentials = exponentials,
    .weights = weights,
    .dots = dots,
};
