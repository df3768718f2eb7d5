/* SPDX-License-Identifier: MIT */
/* reference_embedding.c - rows of a table by number, their mean, their gradients, and their order. */
#include <math.h>
#include <string.h>

#include "kernel/cpu/reference.h"

enum { AT_ONCE = 64 /* columns of a sum */ };

/* One number of a table's row: 0 for padding, NaN for a row that is not there. */
static float number_of(const struct kernel_call *call, int32_t id, int64_t column)
{
    const struct shape *table = &call->problem->in[1].shape;

    if (id < 0)
        return 0;
    if (id >= table->dim[0])
        return NAN;
    return ((const float *)call->in[1])[id * table->dim[1] + column];
}

void reference_embedding(const struct kernel_call *call)
{
    const int64_t count = shape_count(&call->problem->in[0].shape);
    const int64_t d = call->problem->in[1].shape.dim[1];
    const int32_t *ids = call->in[0];
    float *y = call->out[0];

    for (int64_t i = 0; i < count; i++) {
        for (int64_t j = 0; j < d; j++)
            y[i * d + j] = number_of(call, ids[i], j);
    }
}

/* How many ids of a sample are not padding. */
static int64_t counted(const int32_t *ids, int64_t length)
{
    int64_t count = 0;

    for (int64_t t = 0; t < length; t++)
        count += ids[t] >= 0;
    return count;
}

void reference_embedding_mean(const struct kernel_call *call)
{
    const int64_t *dim = call->problem->in[0].shape.dim;
    const int64_t d = call->problem->in[1].shape.dim[1];
    float *y = call->out[0];

    for (int64_t i = 0; i < dim[0]; i++) {
        const int32_t *ids = (const int32_t *)call->in[0] + i * dim[1];
        const int64_t count = counted(ids, dim[1]);
        for (int64_t j = 0; j < d; j++) {
            double sum = 0;
            for (int64_t t = 0; t < dim[1]; t++)
                sum += (double)number_of(call, ids[t], j);
            y[i * d + j] = (float)(count ? sum / (double)count : 0);
        }
    }
}

void reference_embedding_mean_grad(const struct kernel_call *call)
{
    const int64_t d = call->problem->in[0].shape.dim[1];
    const int64_t *dim = call->problem->in[1].shape.dim;
    const float *dy = call->in[0];
    float *share = call->out[0];

    for (int64_t i = 0; i < dim[0]; i++) {
        const int64_t count = counted((const int32_t *)call->in[1] + i * dim[1], dim[1]);
        for (int64_t j = 0; j < d; j++)
            share[i * d + j] = count ? (float)((double)dy[i * d + j] / (double)count) : 0;
    }
}

/* Row of dy that belongs to an id: its own, or its sample's. */
static int64_t row_of(const struct kernel_problem *problem, int64_t at)
{
    return problem->in[0].shape.rank == 3 ? at : at / problem->in[1].shape.dim[1];
}

void reference_embedding_grad(const struct kernel_call *call)
{
    const struct kernel_problem *problem = call->problem;
    const int64_t rows = problem->out[0].shape.dim[0], d = problem->out[0].shape.dim[1];
    const int64_t count = shape_count(&problem->in[1].shape);
    const float *dy = call->in[0], *base = problem->n_in > 2 ? call->in[2] : NULL;
    const int32_t *ids = call->in[1];
    float *dw = call->out[0];

    for (int64_t r = 0; r < rows; r++) {
        for (int64_t column = 0; column < d; column += AT_ONCE) {
            const int64_t width = d - column < AT_ONCE ? d - column : AT_ONCE;
            double sum[AT_ONCE] = { 0 };

            for (int64_t j = 0; base && j < width; j++)
                sum[j] = (double)base[r * d + column + j];
            for (int64_t i = 0; i < count; i++) {
                const float *x = dy + row_of(problem, i) * d + column;
                for (int64_t j = 0; j < width && ids[i] == r; j++)
                    sum[j] += (double)x[j];
            }
            for (int64_t j = 0; j < width; j++)
                dw[r * d + column + j] = (float)sum[j];
        }
    }
}

void reference_rows_sort(const struct kernel_call *call)
{
    const struct shape *shape = &call->problem->in[0].shape;
    const int64_t count = shape_count(shape), rows = call->problem->attrs.rows;
    const int64_t block = (rows + ROWS_BLOCKS - 1) / ROWS_BLOCKS;
    const int32_t *ids = call->in[0];
    int32_t *order = call->out[0], *begin = call->out[1];
    int64_t at = 0;

    for (int64_t row = 0, next; row < rows; row = next) {
        next = rows; /* the smallest after row that is there: rows may be millions */
        for (int64_t i = 0; i < count; i++) {
            if (ids[i] > row && ids[i] < next)
                next = ids[i];
            if (ids[i] != row)
                continue;
            order[2 * at] = ids[i];
            order[2 * at + 1] =
                (int32_t)(call->problem->attrs.by_sample ? i / shape->dim[1] : i);
            at++;
        }
    }
    for (int64_t b = 0; b <= ROWS_BLOCKS; b++) {
        begin[b] = 0;
        while (begin[b] < at && order[2 * begin[b]] < b * block)
            begin[b]++;
    }
    memset(order + 2 * at, -1, (size_t)(2 * (count - at)) * sizeof *order);
}
