/* SPDX-License-Identifier: MIT */
/* elementwise.c - bias, activations, add and their gradients: bound by memory, one pass each.
 *
 * A matrix of few columns is taken as one of several rows side by side, so that the inner loop
 * is long: rows of 6 are worked on as rows of 252 with the bias repeated 42 times.
 */
#include <string.h>

#include "kernel/cpu/rows.h"
#include "kernel/cpu/simd.h"

/* Columns worked on together; a bias's gradient keeps as many sums. */
enum { TILE = 256 };
/* bias_grad: rows added in float before the sum goes on in double. */
enum { FLOAT_ROWS = 32 };
/* bias_grad: parts at most that the rows are cut into. A constant, as it decides the bits. */
enum { ROW_PARTS = 16 };

/* Rows and columns in memory: the innermost dimension is the channel or the last one. */
struct matrix {
    size_t rows, columns;
};

static struct matrix matrix_of(const struct kernel_tensor *tensor)
{
    const struct shape *shape = &tensor->shape;
    const int64_t columns = shape->dim[tensor->layout == LAYOUT_NHWC ? 1 : shape->rank - 1];

    return (struct matrix){ (size_t)(shape_count(shape) / columns), (size_t)columns };
}

static size_t count_of(const struct kernel_call *call)
{
    return (size_t)shape_count(&call->problem->in[0].shape);
}

static void relu_range(const struct kernel_call *call, size_t from, size_t to)
{
    const float *x = call->in[0];
    float *y = call->out[0];

#pragma omp simd
    for (size_t i = from; i < to; i++)
        y[i] = x[i] < 0 ? 0 : x[i];
}

static void run_relu(const struct kernel_call *call)
{
    simd_for(call, count_of(call), 1, relu_range);
}

static void relu_grad_range(const struct kernel_call *call, size_t from, size_t to)
{
    const float *dy = call->in[0], *y = call->in[1];
    float *dx = call->out[0];

#pragma omp simd
    for (size_t i = from; i < to; i++)
        dx[i] = y[i] > 0 ? dy[i] : 0;
}

static void run_relu_grad(const struct kernel_call *call)
{
    simd_for(call, count_of(call), 1, relu_grad_range);
}

static void relu6_range(const struct kernel_call *call, size_t from, size_t to)
{
    const float *x = call->in[0];
    float *y = call->out[0];

#pragma omp simd
    for (size_t i = from; i < to; i++) {
        const float above = x[i] < 0 ? 0 : x[i];
        y[i] = above > 6 ? 6 : above;
    }
}

static void run_relu6(const struct kernel_call *call)
{
    simd_for(call, count_of(call), 1, relu6_range);
}

static void relu6_grad_range(const struct kernel_call *call, size_t from, size_t to)
{
    const float *dy = call->in[0], *y = call->in[1];
    float *dx = call->out[0];

#pragma omp simd
    for (size_t i = from; i < to; i++) {
        const float d = y[i] > 0 ? dy[i] : 0;
        dx[i] = y[i] < 6 ? d : 0;
    }
}

static void run_relu6_grad(const struct kernel_call *call)
{
    simd_for(call, count_of(call), 1, relu6_grad_range);
}

/* By exp(-|x|), which cannot overflow. */
static void sigmoid_range(const struct kernel_call *call, size_t from, size_t to)
{
    const float *x = call->in[0];
    float *y = call->out[0];

#pragma omp simd
    for (size_t i = from; i < to; i++) {
        const float e = simd_exp_not_positive(-fabsf(x[i]));
        const float numerator = x[i] < 0 ? e : 1;
        y[i] = numerator / (1 + e);
    }
}

static void run_sigmoid(const struct kernel_call *call)
{
    simd_for(call, count_of(call), 1, sigmoid_range);
}

static void sigmoid_grad_range(const struct kernel_call *call, size_t from, size_t to)
{
    const float *dy = call->in[0], *y = call->in[1];
    float *dx = call->out[0];

#pragma omp simd
    for (size_t i = from; i < to; i++)
        dx[i] = dy[i] * (y[i] * (1 - y[i]));
}

static void run_sigmoid_grad(const struct kernel_call *call)
{
    simd_for(call, count_of(call), 1, sigmoid_grad_range);
}

static void add_range(const struct kernel_call *call, size_t from, size_t to)
{
    const float *a = call->in[0], *b = call->in[1];
    float *y = call->out[0];

#pragma omp simd
    for (size_t i = from; i < to; i++)
        y[i] = a[i] + b[i];
}

static void run_add(const struct kernel_call *call)
{
    simd_for(call, count_of(call), 1, add_range);
}

/* Adds `width` elements of b to `count` elements of x, again and again. */
static void add_repeated(const float *x, const float *b, size_t width, size_t count, float *y)
{
    for (size_t at = 0; at < count; at += width) {
        const size_t n = simd_min(width, count - at);
#pragma omp simd
        for (size_t j = 0; j < n; j++)
            y[at + j] = x[at + j] + b[j];
    }
}

static void bias_range(const struct kernel_call *call, size_t from, size_t to)
{
    const size_t columns = matrix_of(&call->problem->in[0]).columns;
    const size_t start = from * columns, count = (to - from) * columns;
    const float *x = (const float *)call->in[0] + start, *b = call->in[1];
    float *y = (float *)call->out[0] + start;
    float tile[TILE];

    if (columns > TILE / 2) {
        add_repeated(x, b, columns, count, y);
        return;
    }
    const size_t width = TILE / columns * columns;
    for (size_t j = 0; j < width; j++)
        tile[j] = b[j % columns];
    add_repeated(x, tile, width, count, y);
}

static void run_bias(const struct kernel_call *call)
{
    const struct matrix matrix = matrix_of(&call->problem->in[0]);

    simd_for(call, matrix.rows, matrix.columns, bias_range);
}

/* The gradient of a bias: sums of columns.
 *
 * The matrix is cut into parts of rows and tiles of columns; a task adds up one part of one
 * tile into `partial` (parts, columns), and the parts are added at the end. */
struct column_sums {
    const float *dy;
    double *partial;
    size_t rows, columns;
    size_t parts, tiles, tile; /* tile: columns in one */
};

static struct column_sums column_sums_of(const struct kernel_problem *problem)
{
    const struct matrix matrix = matrix_of(&problem->in[0]);
    const size_t wanted = matrix.rows * matrix.columns / (2 * (size_t)SIMD_GRAIN);
    const size_t tile = simd_min(matrix.columns, TILE);

    return (struct column_sums){
        .rows = matrix.rows,
        .columns = matrix.columns,
        .parts = wanted < 1 ? 1 : simd_min(simd_min(wanted, ROW_PARTS), matrix.rows),
        .tiles = (matrix.columns + tile - 1) / tile,
        .tile = tile,
    };
}

/* Adds `rows` rows of `width` floats, `stride` apart, to sum. */
static void add_rows(const float *dy, size_t rows, size_t width, size_t stride,
                     double sum[TILE])
{
    for (size_t i = 0; i < rows; i += FLOAT_ROWS) {
        const size_t end = simd_min(i + FLOAT_ROWS, rows);
        float some[TILE];

        memcpy(some, dy + i * stride, width * sizeof *some);
        for (size_t k = i + 1; k < end; k++) {
#pragma omp simd
            for (size_t j = 0; j < width; j++)
                some[j] += dy[k * stride + j];
        }
#pragma omp simd
        for (size_t j = 0; j < width; j++)
            sum[j] += (double)some[j];
    }
}

static void sum_columns(void *arg, size_t i)
{
    const struct column_sums *sums = arg;
    const size_t part = i / sums->tiles, column = i % sums->tiles * sums->tile;
    const size_t n = simd_min(sums->tile, sums->columns - column);
    const size_t from = sums->rows * part / sums->parts;
    const size_t rows = sums->rows * (part + 1) / sums->parts - from;
    /* Rows side by side, if there are few columns. */
    const size_t together = sums->tiles == 1 ? TILE / n : 1, groups = rows / together;
    const float *dy = sums->dy + from * sums->columns + column;
    double *out = sums->partial + part * sums->columns + column;
    double sum[TILE] = { 0 };

    add_rows(dy, groups, together * n, together * sums->columns, sum);
    add_rows(dy + groups * together * sums->columns, rows - groups * together, n, sums->columns,
             sum);
    for (size_t j = 0; j < n; j++) {
        out[j] = 0;
        for (size_t k = 0; k < together; k++)
            out[j] += sum[k * n + j];
    }
}

static size_t bias_grad_scratch(const struct kernel_problem *problem)
{
    const struct column_sums sums = column_sums_of(problem);

    return sums.parts * sums.columns * sizeof *sums.partial;
}

static void run_bias_grad(const struct kernel_call *call)
{
    struct column_sums sums = column_sums_of(call->problem);
    float *db = call->out[0];

    sums.dy = call->in[0];
    sums.partial = call->scratch;
    pool_for(sums.parts * sums.tiles > 1 ? call->pool : NULL, sums.parts * sums.tiles,
             sum_columns, &sums);
    for (size_t j = 0; j < sums.columns; j++) {
        double sum = sums.partial[j];
        for (size_t part = 1; part < sums.parts; part++)
            sum += sums.partial[part * sums.columns + j];
        db[j] = (float)sum;
    }
}

const struct kernel SIMD_TABLE(kernel_elementwise_rows)[] = {
    { .op = "bias", .name = "own", .run = run_bias },
    { .op = "bias_grad",
      .name = "own",
      .scratch_bytes = bias_grad_scratch,
      .run = run_bias_grad },
    { .op = "relu", .name = "own", .run = run_relu },
    { .op = "relu_grad", .name = "own", .run = run_relu_grad },
    { .op = "relu6", .name = "own", .run = run_relu6 },
    { .op = "relu6_grad", .name = "own", .run = run_relu6_grad },
    { .op = "sigmoid", .name = "own", .run = run_sigmoid },
    { .op = "sigmoid_grad", .name = "own", .run = run_sigmoid_grad },
    { .op = "add", .name = "own", .run = run_add },
    { 0 },
};
