/* SPDX-License-Identifier: MIT */
/* sequence.c - the maximum over time and its gradient, rows put side by side and taken apart.
 *
 * All loops run along the features, which lie together. Traffic: what goes in and what comes out
 * once.
 */
#include <string.h>

#include "kernel/cpu/rows.h"
#include "kernel/cpu/simd.h"

/* x (N,T,C) -> y, index (N,C) */
static void largest_samples(const struct kernel_call *call, size_t from, size_t to)
{
    const int64_t *dim = call->problem->in[0].shape.dim;
    const size_t t = (size_t)dim[1], c = (size_t)dim[2];

    for (size_t n = from; n < to; n++) {
        const float *x = (const float *)call->in[0] + n * t * c;
        float *y = (float *)call->out[0] + n * c;
        int32_t *index = (int32_t *)call->out[1] + n * c;

        memcpy(y, x, c * sizeof *y);
        memset(index, 0, c * sizeof *index);
        for (size_t i = 1; i < t; i++) {
            x += c;
#pragma omp simd
            for (size_t j = 0; j < c; j++) {
                const int32_t better = x[j] > y[j];
                y[j] = better ? x[j] : y[j];
                index[j] = better ? (int32_t)i : index[j];
            }
        }
    }
}

static void run_max_over_time(const struct kernel_call *call)
{
    const int64_t *dim = call->problem->in[0].shape.dim;

    simd_for(call, (size_t)dim[0], (size_t)(dim[1] * dim[2]), largest_samples);
}

/* dy, index (N,C), x -> dx (N,T,C) */
static void spread_samples(const struct kernel_call *call, size_t from, size_t to)
{
    const int64_t *dim = call->problem->out[0].shape.dim;
    const size_t t = (size_t)dim[1], c = (size_t)dim[2];

    for (size_t n = from; n < to; n++) {
        const float *dy = (const float *)call->in[0] + n * c;
        const int32_t *index = (const int32_t *)call->in[1] + n * c;
        float *dx = (float *)call->out[0] + n * t * c;

        memset(dx, 0, t * c * sizeof *dx);
        for (size_t j = 0; j < c; j++)
            dx[(size_t)index[j] * c + j] = dy[j];
    }
}

static void run_max_over_time_grad(const struct kernel_call *call)
{
    const int64_t *dim = call->problem->out[0].shape.dim;

    simd_for(call, (size_t)dim[0], (size_t)(dim[1] * dim[2]), spread_samples);
}

/* (m,a), (m,b), ... -> (m,a+b+...) */
static void concat_rows(const struct kernel_call *call, size_t from, size_t to)
{
    const struct kernel_problem *problem = call->problem;
    const size_t width = (size_t)problem->out[0].shape.dim[1];
    float *y = (float *)call->out[0] + from * width;

    for (size_t i = from; i < to; i++) {
        for (int k = 0; k < problem->n_in; k++) {
            const size_t columns = (size_t)problem->in[k].shape.dim[1];
            memcpy(y, (const float *)call->in[k] + i * columns, columns * sizeof *y);
            y += columns;
        }
    }
}

static void run_concat(const struct kernel_call *call)
{
    const int64_t *dim = call->problem->out[0].shape.dim;

    simd_for(call, (size_t)dim[0], (size_t)dim[1], concat_rows);
}

static void columns_rows(const struct kernel_call *call, size_t from, size_t to)
{
    const size_t width = (size_t)call->problem->in[0].shape.dim[1];
    const size_t columns = (size_t)call->problem->out[0].shape.dim[1];
    const float *x = (const float *)call->in[0] + call->problem->attrs.extent[0];
    float *y = call->out[0];

    for (size_t i = from; i < to; i++)
        memcpy(y + i * columns, x + i * width, columns * sizeof *y);
}

static void run_columns(const struct kernel_call *call)
{
    const int64_t *dim = call->problem->out[0].shape.dim;

    simd_for(call, (size_t)dim[0], (size_t)dim[1], columns_rows);
}

const struct kernel SIMD_TABLE(kernel_sequence_rows)[] = {
    { .op = "max_over_time", .name = "own", .run = run_max_over_time },
    { .op = "max_over_time_grad", .name = "own", .run = run_max_over_time_grad },
    { .op = "concat", .name = "own", .run = run_concat },
    { .op = "columns", .name = "own", .run = run_columns },
    { 0 },
};
