/* SPDX-License-Identifier: MIT */
/* positions.c - rows of a table added to the tokens of sequences, and the table's gradient. */
#include "kernel/cpu/rows.h"
#include "kernel/cpu/simd.h"

/* Elements of the gradient that a task adds up. */
enum { TILE = 256 };

static void add_rows(const struct kernel_call *call, size_t from, size_t to)
{
    const struct shape *shape = &call->problem->in[0].shape;
    const size_t tokens = (size_t)shape->dim[1], width = (size_t)shape->dim[2];
    const size_t last = (size_t)call->problem->in[1].shape.dim[0] - 1;
    const int32_t *first = call->problem->n_in > 2 ? call->in[2] : NULL;

    for (size_t r = from; r < to; r++) {
        const size_t place = r % tokens + (first ? (size_t)first[r / tokens] : 0);
        const float *x = (const float *)call->in[0] + r * width;
        const float *p = (const float *)call->in[1] + simd_min(place, last) * width;
        float *y = (float *)call->out[0] + r * width;

#pragma omp simd
        for (size_t j = 0; j < width; j++)
            y[j] = x[j] + p[j];
    }
}

static void run_add_positions(const struct kernel_call *call)
{
    const struct shape *shape = &call->problem->in[0].shape;

    simd_for(call, (size_t)(shape->dim[0] * shape->dim[1]), (size_t)shape->dim[2], add_rows);
}

/* Tiles [from, to) of dp. */
static void sum_tiles(const struct kernel_call *call, size_t from, size_t to)
{
    const struct shape *shape = &call->problem->in[0].shape;
    const size_t samples = (size_t)shape->dim[0];
    const size_t row = (size_t)(shape->dim[1] * shape->dim[2]);
    const size_t count = (size_t)shape_count(&call->problem->out[0].shape);
    const float *dy = call->in[0];
    float *dp = call->out[0];

    for (size_t tile = from; tile < to; tile++) {
        const size_t start = tile * TILE, n = simd_min(TILE, count - start);
        const size_t seen = start < row ? simd_min(n, row - start) : 0;
        double sum[TILE] = { 0 };

        for (size_t s = 0; s < samples; s++) {
#pragma omp simd
            for (size_t j = 0; j < seen; j++)
                sum[j] += (double)dy[s * row + start + j];
        }
        for (size_t j = 0; j < n; j++)
            dp[start + j] = (float)sum[j];
    }
}

static void run_positions_grad(const struct kernel_call *call)
{
    const size_t samples = (size_t)call->problem->in[0].shape.dim[0];
    const size_t count = (size_t)shape_count(&call->problem->out[0].shape);

    simd_for(call, (count + TILE - 1) / TILE, TILE * samples, sum_tiles);
}

const struct kernel SIMD_TABLE(kernel_positions_rows)[] = {
    { .op = "add_positions", .name = "own", .run = run_add_positions },
    { .op = "positions_grad", .name = "own", .run = run_positions_grad },
    { 0 },
};
