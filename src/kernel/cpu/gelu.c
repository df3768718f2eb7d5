/* SPDX-License-Identifier: MIT */
/* gelu.c - tanh, GELU in its two forms and their gradients: bound by memory, one pass each.
 *
 * Everything is made of exp of a number that is not positive, so nothing overflows and small results
 * keep their digits: errors are a few units in the last place, also where GELU is nearly 0.
 */
#include <math.h>

#include "kernel/cpu/rows.h"
#include "kernel/cpu/simd.h"

static size_t count_of(const struct kernel_call *call)
{
    return (size_t)shape_count(&call->problem->in[0].shape);
}

/* tanh --------------------------------------------------------------------------------- */

/* x + x^3 P(x^2) below 0.625, where 1 - exp would cancel; P by least maximal error, 4e-9. */
static inline float tanh_of(float x)
{
    const float a = fabsf(x), z = x * x, e = simd_exp_not_positive(-2 * a);
    const float far = (1 - e) / (1 + e);
    float p = fmaf(z, -0x1.75e1cap-8f, 0x1.52269ap-6f);

    p = fmaf(z, p, -0x1.b83c5ap-5f);
    p = fmaf(z, p, 0x1.110726p-3f);
    p = fmaf(z, p, -0x1.555532p-2f);
    return a < 0.625f ? fmaf(x * z, p, x) : x < 0 ? -far : far;
}

static void tanh_range(const struct kernel_call *call, size_t from, size_t to)
{
    const float *x = call->in[0];
    float *y = call->out[0];

#pragma omp simd
    for (size_t i = from; i < to; i++)
        y[i] = tanh_of(x[i]);
}

static void run_tanh(const struct kernel_call *call)
{
    simd_for(call, count_of(call), 1, tanh_range);
}

static void tanh_grad_range(const struct kernel_call *call, size_t from, size_t to)
{
    const float *dy = call->in[0], *y = call->in[1];
    float *dx = call->out[0];

#pragma omp simd
    for (size_t i = from; i < to; i++)
        dx[i] = dy[i] * (1 - y[i] * y[i]);
}

static void run_tanh_grad(const struct kernel_call *call)
{
    simd_for(call, count_of(call), 1, tanh_grad_range);
}

/* gelu --------------------------------------------------------------------------------- */

/* At x, not beyond +-14, where the density is 0 for floats. */
struct normal {
    float x, share, density; /* share: Phi(x); density: exp(-x^2 / 2) */
};

/* Phi(-a) = exp(-a^2 / 2) P((a - 3) / (a + 3)), P by least maximal relative error over [0, 13.3],
 * 7e-9. The square is rounded, so the exponential is corrected by what was lost. */
static inline struct normal normal_at(float x)
{
    const float a = fabsf(x) > 14 ? 14 : fabsf(x);
    const float t = (a - 3) / (a + 3);
    const float square = a * a, lost = fmaf(a, a, -square);
    const float e = simd_exp_not_positive(-0.5f * square);
    const float density = fmaf(e * lost, -0.5f, e);
    float p = fmaf(t, 0x1.c6401cp-15f, 0x1.e6b236p-14f);

    p = fmaf(t, p, -0x1.646c42p-12f);
    p = fmaf(t, p, -0x1.01ff64p-10f);
    p = fmaf(t, p, 0x1.7cb9a6p-9f);
    p = fmaf(t, p, 0x1.91e0f6p-8f);
    p = fmaf(t, p, -0x1.7a9458p-5f);
    p = fmaf(t, p, 0x1.f8baccp-4f);
    p = fmaf(t, p, -0x1.a6b66ap-3f);
    p = fmaf(t, p, 0x1.f1b89cp-4f);
    const float tail = density * p;
    return (struct normal){ x < 0 ? -a : a, x < 0 ? tail : 1 - tail, density };
}

static void gelu_range(const struct kernel_call *call, size_t from, size_t to)
{
    const float *x = call->in[0];
    float *y = call->out[0];

#pragma omp simd
    for (size_t i = from; i < to; i++)
        y[i] = x[i] * normal_at(x[i]).share;
}

static void run_gelu(const struct kernel_call *call)
{
    simd_for(call, count_of(call), 1, gelu_range);
}

static void gelu_grad_range(const struct kernel_call *call, size_t from, size_t to)
{
    const float *dy = call->in[0], *x = call->in[1];
    float *dx = call->out[0];

#pragma omp simd
    for (size_t i = from; i < to; i++) {
        const struct normal at = normal_at(x[i]);
        dx[i] = dy[i] * fmaf(at.x * at.density, 0x1.988454p-2f, at.share); /* 1/sqrt(2 pi) */
    }
}

static void run_gelu_grad(const struct kernel_call *call)
{
    simd_for(call, count_of(call), 1, gelu_grad_range);
}

/* gelu_tanh ---------------------------------------------------------------------------- */

/* 2u = x (ONE + CUBE x^2), its factors being 2 sqrt(2/pi) and that times 0.044715. */
#define ONE 0x1.988454p0f
#define CUBE 0x1.2444f2p-4f

/* Both shares of 1 / (1 + exp(-2u)) and what it leaves of 1, neither by a difference. */
struct shares {
    float x, share, rest;
};

static inline struct shares shares_at(float x)
{
    const float near = x < -14 ? -14 : x, at = near > 14 ? 14 : near;
    const float twice = at * fmaf(at * at, CUBE, ONE);
    const float e = simd_exp_not_positive(-fabsf(twice)), part = 1 / (1 + e);

    return (struct shares){ at, x < 0 ? e * part : part, x < 0 ? part : e * part };
}

static void gelu_tanh_range(const struct kernel_call *call, size_t from, size_t to)
{
    const float *x = call->in[0];
    float *y = call->out[0];

#pragma omp simd
    for (size_t i = from; i < to; i++)
        y[i] = x[i] * shares_at(x[i]).share;
}

static void run_gelu_tanh(const struct kernel_call *call)
{
    simd_for(call, count_of(call), 1, gelu_tanh_range);
}

static void gelu_tanh_grad_range(const struct kernel_call *call, size_t from, size_t to)
{
    const float *dy = call->in[0], *x = call->in[1];
    float *dx = call->out[0];

#pragma omp simd
    for (size_t i = from; i < to; i++) {
        const struct shares s = shares_at(x[i]);
        const float slope = fmaf(s.x * s.x, 3 * CUBE, ONE);
        dx[i] = dy[i] * fmaf(s.x * slope * s.rest, s.share, s.share);
    }
}

static void run_gelu_tanh_grad(const struct kernel_call *call)
{
    simd_for(call, count_of(call), 1, gelu_tanh_grad_range);
}

const struct kernel SIMD_TABLE(kernel_gelu_rows)[] = {
    { .op = "tanh", .name = "own", .run = run_tanh },
    { .op = "tanh_grad", .name = "own", .run = run_tanh_grad },
    { .op = "gelu", .name = "own", .run = run_gelu },
    { .op = "gelu_grad", .name = "own", .run = run_gelu_grad },
    { .op = "gelu_tanh", .name = "own", .run = run_gelu_tanh },
    { .op = "gelu_tanh_grad", .name = "own", .run = run_gelu_tanh_grad },
    { 0 },
};
