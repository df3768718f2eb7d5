/* SPDX-License-Identifier: MIT */
/* update.c - the optimizers' updates, sums and squares over flat ranges, in one pass each.
 *
 * The same operations on each element as in reference_update.c, so the same bits. What
 * is the same for all elements is decided outside the loops: `sgd` is inlined with constants.
 * Bytes moved an element: sgd 12, with momentum 20; adam 28; lamb 28 and then 12.
 */
#include <math.h>

#include "kernel/cpu/rows.h"
#include "kernel/cpu/sum_rows.h"

enum momentum { MOMENTUM_NONE, MOMENTUM_FIRST, MOMENTUM_LATER };

INLINE void sgd(float *restrict param, const float *restrict grad, float *restrict m,
                size_t count, const struct attrs *attrs, const struct kernel_update_step *step,
                enum momentum kind, bool nesterov, bool trusts)
{
    const float scale = step->scale, decay = attrs->weight_decay, lr = step->lr;
    const float momentum = attrs->momentum, trust = step->trust;

#pragma omp simd
    for (size_t i = 0; i < count; i++) {
        const float whole = scale * grad[i] + decay * param[i];
        const float g = trusts ? trust * whole : whole;
        float d = g;

        if (kind != MOMENTUM_NONE) {
            const float moved = kind == MOMENTUM_FIRST ? g : momentum * m[i] + g;
            m[i] = moved;
            d = nesterov ? g + momentum * moved : moved;
        }
        param[i] = param[i] - lr * d;
    }
}

INLINE void any_sgd(float *param, const float *grad, float *m, size_t count,
                    const struct attrs *attrs, const struct kernel_update_step *step,
                    bool trusts)
{
    if (attrs->momentum == 0)
        sgd(param, grad, NULL, count, attrs, step, MOMENTUM_NONE, false, trusts);
    else if (step->first && attrs->nesterov)
        sgd(param, grad, m, count, attrs, step, MOMENTUM_FIRST, true, trusts);
    else if (step->first)
        sgd(param, grad, m, count, attrs, step, MOMENTUM_FIRST, false, trusts);
    else if (attrs->nesterov)
        sgd(param, grad, m, count, attrs, step, MOMENTUM_LATER, true, trusts);
    else
        sgd(param, grad, m, count, attrs, step, MOMENTUM_LATER, false, trusts);
}

static void sgd_update(float *param, const float *grad, float *const state[KERNEL_STATES],
                       size_t count, const struct attrs *attrs,
                       const struct kernel_update_step *step)
{
    any_sgd(param, grad, state[0], count, attrs, step, false);
}

static void lars_update(float *param, const float *grad, float *const state[KERNEL_STATES],
                        size_t count, const struct attrs *attrs,
                        const struct kernel_update_step *step)
{
    any_sgd(param, grad, state[0], count, attrs, step, true);
}

INLINE void adam(float *restrict param, const float *restrict grad, float *restrict m,
                 float *restrict v, size_t count, const struct attrs *attrs,
                 const struct kernel_update_step *step, bool decoupled)
{
    const float beta1 = attrs->beta1, rest1 = 1 - beta1;
    const float beta2 = attrs->beta2, rest2 = 1 - beta2;
    const float scale = step->scale, decay = attrs->weight_decay;
    const float shrink = step->lr * decay, rate = step->lr * step->correction1;
    const float correction = step->correction2, epsilon = attrs->epsilon;

#pragma omp simd
    for (size_t i = 0; i < count; i++) {
        float p = param[i], g = scale * grad[i];

        if (decoupled)
            p = p - shrink * p;
        else
            g = g + decay * p;
        const float m_next = beta1 * m[i] + rest1 * g;
        const float v_next = beta2 * v[i] + rest2 * g * g;
        m[i] = m_next;
        v[i] = v_next;
        param[i] = p - rate * m_next / (sqrtf(v_next * correction) + epsilon);
    }
}

static void adam_update(float *param, const float *grad, float *const state[KERNEL_STATES],
                        size_t count, const struct attrs *attrs,
                        const struct kernel_update_step *step)
{
    if (attrs->decoupled)
        adam(param, grad, state[0], state[1], count, attrs, step, true);
    else
        adam(param, grad, state[0], state[1], count, attrs, step, false);
}

/* No `restrict`: out may be grad. An element is read before it is written. */
static void lamb_direction(const float *param, const float *grad,
                           float *const state[KERNEL_STATES], float *out, size_t count,
                           const struct attrs *attrs, const struct kernel_update_step *step)
{
    const float beta1 = attrs->beta1, rest1 = 1 - beta1;
    const float beta2 = attrs->beta2, rest2 = 1 - beta2;
    const float scale = step->scale, decay = attrs->weight_decay, epsilon = attrs->epsilon;
    const float correction1 = step->correction1, correction2 = step->correction2;
    float *m = state[0], *v = state[1];

#pragma omp simd
    for (size_t i = 0; i < count; i++) {
        const float g = scale * grad[i];
        const float m_next = beta1 * m[i] + rest1 * g;
        const float v_next = beta2 * v[i] + rest2 * g * g;
        m[i] = m_next;
        v[i] = v_next;
        out[i] =
            correction1 * m_next / (sqrtf(v_next * correction2) + epsilon) + decay * param[i];
    }
}

static void lamb_update(float *restrict param, const float *restrict grad,
                        float *const state[KERNEL_STATES], size_t count,
                        const struct attrs *attrs, const struct kernel_update_step *step)
{
    const float rate = step->lr * step->trust;

    (void)state, (void)attrs;
#pragma omp simd
    for (size_t i = 0; i < count; i++)
        param[i] = param[i] - rate * grad[i];
}

static void average_update(float *restrict param, const float *restrict grad,
                           float *const state[KERNEL_STATES], size_t count,
                           const struct attrs *attrs, const struct kernel_update_step *step)
{
    const float weight = attrs->momentum, rest = 1 - weight;

    (void)state, (void)step;
#pragma omp simd
    for (size_t i = 0; i < count; i++)
        param[i] = weight * grad[i] + rest * param[i];
}

static void add(float *out, const float *a, const float *b, size_t count)
{
#pragma omp simd
    for (size_t i = 0; i < count; i++)
        out[i] = a[i] + b[i];
}

/* Element i goes to lane i % SIMD_LANES; lanes are folded at the end. */
static double sum_squares(const float *data, size_t count)
{
    const size_t whole = count / SIMD_LANES * SIMD_LANES;
    double lane[SIMD_LANES] = { 0 };

    for (size_t i = 0; i < whole; i += SIMD_LANES) {
#pragma omp simd
        for (size_t l = 0; l < SIMD_LANES; l++)
            lane[l] += (double)data[i + l] * (double)data[i + l];
    }
    for (size_t i = whole; i < count; i++)
        lane[i - whole] += (double)data[i] * (double)data[i];
    return simd_sum_double(lane);
}

/* Not a builtin: for want of a flag for it compilers take the instruction that fetches to read, and the
 * line is asked for a second time when it is written. Processors with AVX2 have it. */
INLINE void fetch_line(const float *line)
{
#ifdef __AVX2__
    __asm__ volatile("prefetchw %0" : : "m"(*line));
#else
    __builtin_prefetch(line, 1, 3);
#endif
}

static void fetch_to_write(float *const *vectors, int n_vectors, size_t at, size_t count)
{
    for (int k = 0; k < n_vectors; k++) {
        for (size_t i = 0; i < count; i += LINE)
            fetch_line(vectors[k] + at + i);
        fetch_line(vectors[k] + at + count - 1);
    }
}

/* As rows_sort gives them. */
enum { PAIR = 2 };

static void add_rows(const struct kernel_row_list *lists, int n_lists, size_t width, float *out)
{
    if (n_lists == 2)
        sum_rows(lists, 2, PAIR, width, 1, out);
    else
        sum_rows(lists, 1, PAIR, width, 1, out);
}

const struct kernel_update_code SIMD_TABLE(kernel_update_code) = {
    .sgd = sgd_update,
    .adam = adam_update,
    .average = average_update,
    .lars = lars_update,
    .lamb = lamb_update,
    .lamb_direction = lamb_direction,
    .add = add,
    .sum_squares = sum_squares,
    .sum_rows = add_rows,
    .fetch_to_write = fetch_to_write,
};
