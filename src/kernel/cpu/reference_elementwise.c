/* SPDX-License-Identifier: MIT */
/* reference_elementwise.c - ops that look at one element, one column or one place at a time. */
#include <math.h>

#include "base/rng.h"
#include "kernel/cpu/reference.h"

/* Extent of the innermost dimension in memory: channels of an image, columns of a matrix. */
static int64_t columns_of(const struct kernel_tensor *tensor)
{
    const struct shape *shape = &tensor->shape;

    return shape->dim[tensor->layout == LAYOUT_NHWC ? 1 : shape->rank - 1];
}

void reference_bias(const struct kernel_call *call)
{
    const int64_t count = shape_count(&call->problem->in[0].shape);
    const int64_t columns = columns_of(&call->problem->in[0]);
    const float *x = call->in[0], *b = call->in[1];
    float *y = call->out[0];

    for (int64_t i = 0; i < count; i++)
        y[i] = x[i] + b[i % columns];
}

void reference_bias_grad(const struct kernel_call *call)
{
    const int64_t count = shape_count(&call->problem->in[0].shape);
    const int64_t columns = columns_of(&call->problem->in[0]);
    const float *dy = call->in[0];
    float *db = call->out[0];

    for (int64_t column = 0; column < columns; column++) {
        double sum = 0;
        for (int64_t i = column; i < count; i += columns)
            sum += (double)dy[i];
        db[column] = (float)sum;
    }
}

void reference_relu(const struct kernel_call *call)
{
    const int64_t count = shape_count(&call->problem->in[0].shape);
    const float *x = call->in[0];
    float *y = call->out[0];

    for (int64_t i = 0; i < count; i++)
        y[i] = x[i] < 0 ? 0 : x[i]; /* NaN stays NaN */
}

void reference_relu_grad(const struct kernel_call *call)
{
    const int64_t count = shape_count(&call->problem->in[0].shape);
    const float *dy = call->in[0], *y = call->in[1];
    float *dx = call->out[0];

    for (int64_t i = 0; i < count; i++)
        dx[i] = y[i] > 0 ? dy[i] : 0;
}

void reference_relu6(const struct kernel_call *call)
{
    const int64_t count = shape_count(&call->problem->in[0].shape);
    const float *x = call->in[0];
    float *y = call->out[0];

    for (int64_t i = 0; i < count; i++)
        y[i] = x[i] < 0 ? 0 : x[i] > 6 ? 6 : x[i]; /* NaN stays NaN */
}

void reference_relu6_grad(const struct kernel_call *call)
{
    const int64_t count = shape_count(&call->problem->in[0].shape);
    const float *dy = call->in[0], *y = call->in[1];
    float *dx = call->out[0];

    for (int64_t i = 0; i < count; i++)
        dx[i] = y[i] > 0 && y[i] < 6 ? dy[i] : 0;
}

void reference_sigmoid(const struct kernel_call *call)
{
    const int64_t count = shape_count(&call->problem->in[0].shape);
    const float *x = call->in[0];
    float *y = call->out[0];

    for (int64_t i = 0; i < count; i++)
        y[i] = (float)(1 / (1 + exp(-(double)x[i])));
}

void reference_sigmoid_grad(const struct kernel_call *call)
{
    const int64_t count = shape_count(&call->problem->in[0].shape);
    const float *dy = call->in[0], *y = call->in[1];
    float *dx = call->out[0];

    for (int64_t i = 0; i < count; i++)
        dx[i] = dy[i] * (y[i] * (1 - y[i]));
}

void reference_add(const struct kernel_call *call)
{
    const int64_t count = shape_count(&call->problem->in[0].shape);
    const float *a = call->in[0], *b = call->in[1];
    float *y = call->out[0];

    for (int64_t i = 0; i < count; i++)
        y[i] = a[i] + b[i];
}

/* How far apart in memory neighbours along each dimension of the shape lie. */
static void strides_of(const struct kernel_tensor *tensor, int64_t strides[SHAPE_MAX])
{
    static const int nhwc[] = { 0, 2, 3, 1 }, hwio[] = { 2, 3, 1, 0 }, io[] = { 1, 0 };
    static const int plain[SHAPE_MAX] = { 0, 1, 2, 3, 4, 5 };
    const int *outer_to_inner = tensor->layout == LAYOUT_NHWC   ? nhwc
                                : tensor->layout == LAYOUT_HWIO ? hwio
                                : tensor->layout == LAYOUT_IO   ? io
                                                                : plain;
    int64_t stride = 1;

    for (int i = tensor->shape.rank - 1; i >= 0; i--) {
        strides[outer_to_inner[i]] = stride;
        stride *= tensor->shape.dim[outer_to_inner[i]];
    }
}

void reference_reorder(const struct kernel_call *call)
{
    const struct shape *shape = &call->problem->in[0].shape;
    const int64_t count = shape_count(shape);
    const float *x = call->in[0];
    float *y = call->out[0];
    int64_t from[SHAPE_MAX] = { 0 }, to[SHAPE_MAX] = { 0 };

    strides_of(&call->problem->in[0], from);
    strides_of(&call->problem->out[0], to);
    for (int64_t i = 0; i < count; i++) {
        int64_t rest = i, x_at = 0, y_at = 0;
        for (int d = shape->rank - 1; d >= 0; d--) {
            x_at += rest % shape->dim[d] * from[d];
            y_at += rest % shape->dim[d] * to[d];
            rest /= shape->dim[d];
        }
        y[y_at] = x[x_at];
    }
}

/* Which element of the whole row element e of a slice's row is, in memory order. */
static int64_t whole_element(const struct kernel_tensor *x, const struct shape_slice *slice,
                             int64_t e)
{
    struct shape row = { .rank = x->shape.rank - 1 };
    const bool nhwc = x->layout == LAYOUT_NHWC;
    const int axis = nhwc ? slice->axis == 1 ? 2 : slice->axis - 2 : slice->axis - 1;

    for (int i = 0; i < row.rank; i++)
        row.dim[i] = x->shape.dim[nhwc ? (i == 2 ? 1 : i + 2) : i + 1];
    struct shape_slice in_row = *slice;
    in_row.axis = axis;
    const int64_t length = slice_run(&in_row, &row, 0).count;
    const struct slice_run run = slice_run(&in_row, &row, e / length);
    return run.whole + e - run.local;
}

void reference_dropout(const struct kernel_call *call)
{
    const struct attrs *attrs = &call->problem->attrs;
    const int64_t rows = call->problem->in[0].shape.dim[0];
    const int64_t columns = shape_count(&call->problem->in[0].shape) / rows;
    const float scale = 1 / (1 - attrs->rate);
    const float *x = call->in[0];
    float *y = call->out[0];

    for (int64_t r = 0; r < rows; r++) {
        const uint64_t position = call->step->first_sample + (uint64_t)r;
        for (int64_t e = 0; e < columns; e++) {
            const int64_t at = attrs->slice.count > 0
                                   ? whole_element(&call->problem->in[0], &attrs->slice, e)
                                   : e;
            const uint32_t counter[4] = { (uint32_t)(at / 4), attrs->stream, (uint32_t)position,
                                          (uint32_t)(position >> 32) };
            const struct rng_block block = rng_philox(call->step->seed, counter);
            const bool kept = rng_to_float(block.word[at % 4]) >= attrs->rate;
            y[r * columns + e] = kept ? x[r * columns + e] * scale : 0;
        }
    }
}
