/* SPDX-License-Identifier: MIT */
/* layer_norm.c - layer norm of rows, and its gradient: bound by memory.
 *
 * A row stays in the first cache while it is read three times: for its mean, for the squares around
 * it, and to be written. Backward reads dy and x twice a row. The sums over rows that scale and
 * shift need go in float through a few rows, then in double, in parts of the rows whose number
 * the shape alone decides.
 */
#include <math.h>

#include "kernel/cpu/reference.h"
#include "kernel/cpu/rows.h"
#include "kernel/cpu/simd_block.h"

/* Rows added in float before the sum goes on in double; parts at most, which decides the bits. */
enum { FLOAT_ROWS = 32, ROW_PARTS = 16 };
/* Sums side by side, which hide each other's latency. */
enum { CHAINS = 4 };

struct matrix {
    size_t rows, columns;
};

static struct matrix matrix_of(const struct kernel_problem *problem)
{
    const struct shape *shape = &problem->in[0].shape;

    return (struct matrix){ (size_t)shape->dim[0], (size_t)shape->dim[1] };
}

static float sum_chains(const struct simd_floats chain[CHAINS])
{
    const struct simd_floats low = simd_add(chain[0], chain[1]);
    float lane[SIMD_LANES];

    simd_store(simd_add(low, simd_add(chain[2], chain[3])), SIMD_LANES, lane);
    return simd_sum(lane);
}

static float sum_of(const float *x, size_t n)
{
    struct simd_floats chain[CHAINS] = { simd_set(0), simd_set(0), simd_set(0), simd_set(0) };
    size_t j = 0;

    for (; j + (size_t)CHAINS * SIMD_LANES <= n; j += (size_t)CHAINS * SIMD_LANES) {
        for (size_t c = 0; c < CHAINS; c++)
            chain[c] = simd_add(chain[c], simd_load(x + j + c * SIMD_LANES, SIMD_LANES, 0));
    }
    for (; j < n; j += SIMD_LANES)
        chain[0] = simd_add(chain[0], simd_load(x + j, n - j, 0));
    return sum_chains(chain);
}

static inline struct simd_floats square_of(const float *x, size_t n, float mean)
{
    const struct simd_floats d = simd_subtract(simd_load(x, n, mean), simd_set(mean));

    return simd_multiply(d, d);
}

static float squares_around(const float *x, size_t n, float mean)
{
    struct simd_floats chain[CHAINS] = { simd_set(0), simd_set(0), simd_set(0), simd_set(0) };
    size_t j = 0;

    for (; j + (size_t)CHAINS * SIMD_LANES <= n; j += (size_t)CHAINS * SIMD_LANES) {
        for (size_t c = 0; c < CHAINS; c++)
            chain[c] = simd_add(chain[c], square_of(x + j + c * SIMD_LANES, SIMD_LANES, mean));
    }
    for (; j < n; j += SIMD_LANES)
        chain[0] = simd_add(chain[0], square_of(x + j, n - j, mean));
    return sum_chains(chain);
}

static void layer_norm_rows(const struct kernel_call *call, size_t from, size_t to)
{
    const size_t n = matrix_of(call->problem).columns;
    const float *gamma = call->in[1], *beta = call->in[2];
    const float inverse = 1 / (float)n, epsilon = call->problem->attrs.epsilon;

    for (size_t r = from; r < to; r++) {
        const float *x = (const float *)call->in[0] + r * n;
        float *y = (float *)call->out[0] + r * n, *saved = (float *)call->out[1] + 2 * r;
        const float mean = sum_of(x, n) * inverse;
        const float rstd = 1 / sqrtf(squares_around(x, n, mean) * inverse + epsilon);

#pragma omp simd
        for (size_t j = 0; j < n; j++)
            y[j] = (x[j] - mean) * rstd * gamma[j] + beta[j];
        saved[0] = mean;
        saved[1] = rstd;
    }
}

static void run_layer_norm(const struct kernel_call *call)
{
    const struct matrix matrix = matrix_of(call->problem);

    simd_for(call, matrix.rows, matrix.columns, layer_norm_rows);
}

/* Gradient ----------------------------------------------------------------------------- */

static size_t parts_of(const struct matrix *matrix)
{
    const size_t wanted = matrix->rows * matrix->columns / (2 * (size_t)SIMD_GRAIN);

    return wanted < 1 ? 1 : simd_min(simd_min(wanted, ROW_PARTS), matrix->rows);
}

/* Scratch of a part: sums for scale and shift, in double, then those of a few rows in float. */
static size_t part_bytes(size_t columns)
{
    return 2 * columns * (sizeof(double) + sizeof(float));
}

static double *sums_of_part(const struct kernel_call *call, size_t columns, size_t part)
{
    return (double *)((char *)call->scratch + part * part_bytes(columns));
}

static size_t gradient_scratch(const struct kernel_problem *problem)
{
    const struct matrix matrix = matrix_of(problem);

    return parts_of(&matrix) * part_bytes(matrix.columns);
}

/* A row's means: of g = dy gamma, and of g times the normalized x. */
struct means {
    float plain, product;
};

static struct means means_of(const float *dy, const float *x, const float *gamma, float mean,
                             float rstd, size_t n)
{
    struct simd_floats plain[CHAINS], product[CHAINS];
    size_t c = 0;

    for (int i = 0; i < CHAINS; i++)
        plain[i] = product[i] = simd_set(0);
    for (size_t j = 0; j < n; j += SIMD_LANES, c = (c + 1) % CHAINS) {
        const struct simd_floats g =
            simd_multiply(simd_load(dy + j, n - j, 0), simd_load(gamma + j, n - j, 0));
        const struct simd_floats d =
            simd_subtract(simd_load(x + j, n - j, mean), simd_set(mean));
        plain[c] = simd_add(plain[c], g);
        product[c] = simd_add(product[c], simd_multiply(g, d));
    }
    return (struct means){ sum_chains(plain) / (float)n,
                           sum_chains(product) * rstd / (float)n };
}

/* dx of a row, added to `base` unless that is NULL; adds to `scale` and `shift`. */
static void row_gradient(const float *dy, const float *x, const float *gamma,
                         const float *saved, size_t n, const float *base, float *dx,
                         float *scale, float *shift)
{
    const float mean = saved[0], rstd = saved[1];
    const struct means means = means_of(dy, x, gamma, mean, rstd, n);

#pragma omp simd
    for (size_t j = 0; j < n; j++) {
        const float d = dy[j], normal = (x[j] - mean) * rstd;
        const float own = rstd * (d * gamma[j] - means.plain - normal * means.product);
        scale[j] += d * normal;
        shift[j] += d;
        dx[j] = base ? base[j] + own : own;
    }
}

/* Adds the sums of a few rows to the part's and begins them anew. */
static void move_sums(float *some, double *sums, size_t count)
{
#pragma omp simd
    for (size_t j = 0; j < count; j++) {
        sums[j] += (double)some[j];
        some[j] = 0;
    }
}

static void gradient_of_part(void *arg, size_t part)
{
    const struct kernel_call *call = arg;
    const struct matrix matrix = matrix_of(call->problem);
    const size_t n = matrix.columns, parts = parts_of(&matrix);
    const size_t from = matrix.rows * part / parts, to = matrix.rows * (part + 1) / parts;
    double *sums = sums_of_part(call, n, part);
    float *some = (float *)(sums + 2 * n);
    const float *base = call->problem->n_in > 4 ? call->in[4] : NULL;

    memset(sums, 0, part_bytes(n));
    for (size_t r = from; r < to; r++) {
        row_gradient((const float *)call->in[0] + r * n, (const float *)call->in[1] + r * n,
                     call->in[2], (const float *)call->in[3] + 2 * r, n,
                     base ? base + r * n : NULL, (float *)call->out[0] + r * n, some, some + n);
        if ((r - from) % FLOAT_ROWS == FLOAT_ROWS - 1 || r + 1 == to)
            move_sums(some, sums, 2 * n);
    }
}

static void run_layer_norm_grad(const struct kernel_call *call)
{
    const struct matrix matrix = matrix_of(call->problem);
    const size_t n = matrix.columns, parts = parts_of(&matrix);
    struct kernel_call copy = *call;

    pool_for(parts > 1 ? call->pool : NULL, parts, gradient_of_part, &copy);
    for (int which = 0; which < 2; which++) {
        float *out = call->out[1 + which];
        for (size_t j = 0; j < n; j++) {
            double sum = 0;
            for (size_t part = 0; part < parts; part++)
                sum += sums_of_part(call, n, part)[(size_t)which * n + j];
            out[j] = (float)sum;
        }
    }
    if (call->problem->n_out > 3) /* in graphs of a device alone */
        reference_sums(call->out[0], (int64_t)matrix.rows, (int64_t)n, call->out[3]);
}

const struct kernel SIMD_TABLE(kernel_layer_norm_rows)[] = {
    { .op = "layer_norm", .name = "own", .run = run_layer_norm },
    { .op = "layer_norm_grad",
      .name = "own",
      .scratch_bytes = gradient_scratch,
      .run = run_layer_norm_grad },
    { 0 },
};
