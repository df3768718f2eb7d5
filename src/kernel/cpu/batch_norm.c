/* SPDX-License-Identifier: MIT */
/* batch_norm.c - batch normalization with residual and activation, and its gradient; in one piece,
 * or in those before and after shards exchange their sums.
 *
 * Bound by memory: forward reads x twice and writes y; backward reads dy and x twice, y once, and
 * writes dx. What follows from the sums is worked on from the end, where the sums stopped, as
 * that is still in the cache.
 *
 * An image is a matrix of places by channels. One of few channels is taken as one of several rows
 * side by side (24 channels as rows of 240), so that vectors are full. The rows are cut into parts,
 * a number that shape alone decides; a part is added up in blocks of rows that the first
 * cache holds, in float within a block and in double across blocks. The variance of a block is that
 * around its own mean, and blocks are joined as Chan, Golub and LeVeque (1983) do, so nothing
 * cancels however far the mean is from zero.
 */
#include <math.h>

#include "kernel/cpu/rows.h"
#include "kernel/cpu/simd_block.h"

enum { BLOCK_ROWS = 16, ROW_PARTS = 16, WIDTH = 256 };
/* What is written from so many bytes on goes past the caches, as it would not stay there until it is
 * read: that saves reading the lines before they are written. */
enum { FAR_BYTES = 8 << 20, LINE_BYTES = 64 };
/* Vectors whose sums are in registers together. */
enum { VECTORS = 4, LANES = VECTORS * SIMD_LANES };

/* How a problem is cut. */
struct grid {
    size_t places, channels;
    size_t together, width; /* rows side by side; their elements */
    size_t rows, rest;      /* such rows; places that are left over, fewer than together */
    size_t parts;           /* of the rows; the last part also has the rest */
    size_t count;           /* elements */
};

static struct grid grid_of(const struct kernel_problem *problem)
{
    const struct shape *x = &problem->in[0].shape;
    struct grid g = { .channels = (size_t)x->dim[1], .count = (size_t)shape_count(x) };

    g.places = g.count / g.channels;
    g.together = g.channels <= WIDTH / 2 ? simd_min(WIDTH / g.channels, g.places) : 1;
    g.width = g.together * g.channels;
    g.rows = g.places / g.together;
    g.rest = g.places % g.together;
    const size_t wanted = g.count / (2 * (size_t)SIMD_GRAIN);
    g.parts = wanted < 1 ? 1 : simd_min(simd_min(wanted, ROW_PARTS), g.rows);
    return g;
}

static size_t part_begin(const struct grid *g, size_t part)
{
    return g->rows * part / g->parts;
}

/* Scratch: two sums (mean and squares, or the gradient's two) of each part, `width` doubles each,
 * two of the rest, then numbers a lane that the last pass reads. */
enum { LANE_NUMBERS = 4 };

static double *part_sums(const struct kernel_call *call, const struct grid *g, size_t part)
{
    return (double *)call->scratch + part * 2 * g->width;
}

static float *lane_numbers(const struct kernel_call *call, const struct grid *g, size_t i)
{
    return (float *)(part_sums(call, g, g->parts) + 2 * g->channels) + i * g->width;
}

static size_t scratch_bytes(const struct kernel_problem *problem)
{
    const struct grid g = grid_of(problem);

    return (g.parts * 2 * g.width + 2 * g.channels) * sizeof(double) +
           LANE_NUMBERS * g.width * sizeof(float);
}

/* Repeats the first row's numbers for the rows beside it. */
static void repeat(const struct grid *g, float *numbers)
{
    for (size_t i = g->channels; i < g->width; i++)
        numbers[i] = numbers[i - g->channels];
}

/* Asks for the line under `at` of the next block of rows: within a block, rows are too far apart for
 * the processor to guess. */
static inline void ask_for_next(const float *at, size_t stride)
{
    __builtin_prefetch(at + BLOCK_ROWS * stride, 0, 2);
}

/* Statistics --------------------------------------------------------------------------- */

/* What a block of rows has in each lane: about its mean, and sums around that of differences, which
 * say what rounding has left over, and of their squares. */
struct block {
    float mean[LANES], differences[LANES], squares[LANES];
};

/* `rows` rows of `vectors` vectors, `left` elements in all. */
static inline void block_moments(const float *x, size_t stride, size_t rows, int vectors,
                                 size_t left, struct block *out)
{
    const struct simd_floats zero = simd_set(0), inverse = simd_set(1 / (float)rows);
    struct simd_floats mean[VECTORS], sum[VECTORS], square[VECTORS];

    for (int v = 0; v < vectors; v++)
        mean[v] = sum[v] = square[v] = zero;
    for (size_t r = 0; r < rows; r++) {
        for (int v = 0; v < vectors; v++) {
            const size_t at = (size_t)v * SIMD_LANES;
            ask_for_next(x + r * stride + at, stride);
            mean[v] = simd_add(mean[v], simd_load(x + r * stride + at, left - at, 0));
        }
    }
    for (int v = 0; v < vectors; v++)
        mean[v] = simd_multiply(mean[v], inverse);
    for (size_t r = 0; r < rows; r++) {
        for (int v = 0; v < vectors; v++) {
            const size_t at = (size_t)v * SIMD_LANES;
            const struct simd_floats d =
                simd_subtract(simd_load(x + r * stride + at, left - at, 0), mean[v]);
            sum[v] = simd_add(sum[v], d);
            square[v] = simd_add(square[v], simd_multiply(d, d));
        }
    }
    for (int v = 0; v < vectors; v++) {
        simd_store(mean[v], SIMD_LANES, out->mean + v * SIMD_LANES);
        simd_store(sum[v], SIMD_LANES, out->differences + v * SIMD_LANES);
        simd_store(square[v], SIMD_LANES, out->squares + v * SIMD_LANES);
    }
}

/* Joins a block of `more` samples a lane to `n` others. */
static inline void join_block(double n, double more, size_t lanes, const struct block *block,
                              double *mean, double *squares)
{
    const double weight = more / (n + more), spread = n * weight, inverse = 1 / more;

#pragma omp simd
    for (size_t l = 0; l < lanes; l++) {
        const double rest = (double)block->differences[l], part = rest * inverse;
        const double delta = (double)block->mean[l] + part - mean[l];
        mean[l] += delta * weight;
        squares[l] += (double)block->squares[l] - rest * part + delta * delta * spread;
    }
}

/* Moments of rows of `width` elements, `stride` apart. */
static void add_moments(const float *x, size_t rows, size_t width, size_t stride, double *mean,
                        double *squares)
{
    struct block block;

    for (size_t j = 0; j < width; j++)
        mean[j] = squares[j] = 0;
    for (size_t r = 0; r < rows; r += BLOCK_ROWS) {
        const size_t n = simd_min(BLOCK_ROWS, rows - r);
        const float *from = x + r * stride;
        size_t j = 0;

        for (; j + LANES <= width; j += LANES) {
            block_moments(from + j, stride, n, VECTORS, LANES, &block);
            join_block((double)r, (double)n, LANES, &block, mean + j, squares + j);
        }
        for (; j < width; j += SIMD_LANES) {
            const size_t left = simd_min(SIMD_LANES, width - j);
            block_moments(from + j, stride, n, 1, left, &block);
            join_block((double)r, (double)n, left, &block, mean + j, squares + j);
        }
    }
}

static void moments_of_part(void *arg, size_t part)
{
    const struct kernel_call *call = arg;
    const struct grid g = grid_of(call->problem);
    const size_t from = part_begin(&g, part), to = part_begin(&g, part + 1);
    const float *x = call->in[0];
    double *sums = part_sums(call, &g, part);

    add_moments(x + from * g.width, to - from, g.width, g.width, sums, sums + g.width);
    if (part + 1 == g.parts) {
        sums = part_sums(call, &g, g.parts);
        add_moments(x + g.rows * g.width, g.rest, g.channels, g.channels, sums,
                    sums + g.channels);
    }
}

/* Joins moments of `more` samples to those of `n`, in double. */
static void join_part(double n, double more, size_t channels, const double *mean,
                      const double *squares, double *all_mean, double *all_squares)
{
    const double weight = more / (n + more), spread = n * weight;

#pragma omp simd
    for (size_t c = 0; c < channels; c++) {
        const double delta = mean[c] - all_mean[c];
        all_mean[c] += delta * weight;
        all_squares[c] += squares[c] + delta * delta * spread;
    }
}

/* All parts onto the first one's first row, in order. */
static void join_parts(const struct kernel_call *call, const struct grid *g)
{
    double *mean = part_sums(call, g, 0), *squares = mean + g->width;
    double n = (double)part_begin(g, 1);

    for (size_t part = 0; part < g->parts; part++) {
        const double rows = (double)(part_begin(g, part + 1) - part_begin(g, part));
        const double *sums = part_sums(call, g, part);
        for (size_t k = part == 0 ? 1 : 0; k < g->together; k++, n += rows)
            join_part(n, rows, g->channels, sums + k * g->channels,
                      sums + g->width + k * g->channels, mean, squares);
    }
    if (g->rest > 0) {
        const double *sums = part_sums(call, g, g->parts);
        join_part(n, (double)g->rest, g->channels, sums, sums + g->channels, mean, squares);
    }
}

/* Normalization ------------------------------------------------------------------------ */

enum { MEAN, SCALE, SHIFT }; /* numbers a lane: y = (x - mean) * scale + shift */

static inline float activate(enum activation activation, float x)
{
    if (activation != ACTIVATION_NONE)
        x = x < 0 ? 0 : x;
    return activation == ACTIVATION_RELU6 && x > 6 ? 6 : x;
}

/* Do rows of `width` elements from `to` on go past the caches? */
static bool is_far(const struct grid *g, size_t width, const float *to)
{
    return g->count >= FAR_BYTES / sizeof(float) && width % SIMD_LANES == 0 &&
           (uintptr_t)to % LINE_BYTES == 0;
}

static inline void stream_row(const float *from, size_t count, float *to)
{
    for (size_t j = 0; j < count; j += SIMD_LANES) {
        const struct simd_floats v = simd_load(from + j, count - j, 0);
        if (count - j >= SIMD_LANES)
            simd_stream(v, to + j);
        else
            simd_store(v, count - j, to + j);
    }
}

/* Rows of y, whole but for the last. */
static inline void normalize(const struct kernel_call *call, const struct grid *g, size_t from,
                             size_t to, enum activation activation, const float *residual)
{
    const float *mean = lane_numbers(call, g, MEAN), *scale = lane_numbers(call, g, SCALE);
    const float *shift = lane_numbers(call, g, SHIFT), *x = call->in[0];
    float *y = call->out[0], strip[WIDTH];
    const bool far = is_far(g, g->width, y);

    for (size_t at = from; at < to; at += g->width) {
        const size_t width = simd_min(g->width, to - at), step = far ? WIDTH : width;
        for (size_t first = 0; first < width; first += step) {
            const size_t n = simd_min(step, width - first);
            const float *in = x + at + first;
            const float *more = residual ? residual + at + first : NULL;
            float *out = far ? strip : y + at;
#pragma omp simd
            for (size_t j = 0; j < n; j++) {
                float value = (in[j] - mean[first + j]) * scale[first + j] + shift[first + j];
                if (residual)
                    value += more[j];
                out[j] = activate(activation, value);
            }
            if (far)
                stream_row(strip, n, y + at + first);
        }
    }
    if (far)
        simd_end_streams();
}

/* Elements of rows [from, to) counted from the end, the rest being one more row. */
static void elements_from_end(const struct grid *g, size_t *from, size_t *to)
{
    const size_t rows = g->rows + (g->rest > 0), first = rows - *to;

    *to = simd_min((rows - *from) * g->width, g->count);
    *from = first * g->width;
}

static void normalize_rows(const struct kernel_call *call, size_t from, size_t to)
{
    const struct kernel_problem *problem = call->problem;
    const struct grid g = grid_of(problem);
    const int at = strcmp(problem->op, "batch_norm") == 0         ? 3
                   : strcmp(problem->op, "batch_norm_apply") == 0 ? 5
                                                                  : 4;
    const float *residual = problem->n_in > at ? call->in[at] : NULL;

    elements_from_end(&g, &from, &to);
    switch (problem->attrs.activation) {
    case ACTIVATION_RELU:
        if (residual)
            normalize(call, &g, from, to, ACTIVATION_RELU, residual);
        else
            normalize(call, &g, from, to, ACTIVATION_RELU, NULL);
        break;
    case ACTIVATION_RELU6:
        if (residual)
            normalize(call, &g, from, to, ACTIVATION_RELU6, residual);
        else
            normalize(call, &g, from, to, ACTIVATION_RELU6, NULL);
        break;
    default:
        if (residual)
            normalize(call, &g, from, to, ACTIVATION_NONE, residual);
        else
            normalize(call, &g, from, to, ACTIVATION_NONE, NULL);
    }
}

/* Repeats the numbers of a channel to those of a lane, and makes y. */
static void make_y(const struct kernel_call *call, const struct grid *g)
{
    for (size_t i = MEAN; i <= SHIFT; i++)
        repeat(g, lane_numbers(call, g, i));
    simd_for(call, g->rows + (g->rest > 0), g->width, normalize_rows);
}

static void run_batch_norm(const struct kernel_call *call)
{
    const struct grid g = grid_of(call->problem);
    const double n = (double)g.places, epsilon = (double)call->problem->attrs.epsilon;
    const double share =
        (double)call->problem->in[0].shape.dim[0] * (double)call->step->inv_batch;
    const double *mean = part_sums(call, &g, 0), *squares = mean + g.width;
    const float *gamma = call->in[1], *beta = call->in[2];
    float *saved = call->out[1], *seen_mean = call->out[2], *seen_variance = call->out[3];
    struct kernel_call copy = *call;

    pool_for(g.parts > 1 ? call->pool : NULL, g.parts, moments_of_part, &copy);
    join_parts(call, &g);
    for (size_t c = 0; c < g.channels; c++) {
        const double rstd = 1 / sqrt(squares[c] / n + epsilon);
        saved[c] = (float)mean[c];
        saved[g.channels + c] = (float)rstd;
        seen_mean[c] = (float)(mean[c] * share);
        seen_variance[c] = (float)(squares[c] / (n > 1 ? n - 1 : 1) * share);
        lane_numbers(call, &g, MEAN)[c] = saved[c];
        lane_numbers(call, &g, SCALE)[c] = (float)((double)gamma[c] * rstd);
        lane_numbers(call, &g, SHIFT)[c] = /* with what rounding the mean has left over */
            (float)((double)beta[c] + ((double)saved[c] - mean[c]) * (double)gamma[c] * rstd);
    }
    make_y(call, &g);
}

static void run_batch_norm_apply(const struct kernel_call *call)
{
    const struct grid g = grid_of(call->problem);
    const double epsilon = (double)call->problem->attrs.epsilon;
    const float *gamma = call->in[1], *beta = call->in[2];
    const float *mean = call->in[3], *variance = call->in[4];

    for (size_t c = 0; c < g.channels; c++) {
        const double rstd = 1 / sqrt((double)variance[c] + epsilon);
        lane_numbers(call, &g, MEAN)[c] = mean[c];
        lane_numbers(call, &g, SCALE)[c] = (float)((double)gamma[c] * rstd);
        lane_numbers(call, &g, SHIFT)[c] = beta[c];
    }
    make_y(call, &g);
}

/* Gradient ----------------------------------------------------------------------------- */

/* dx = d * scale + ((x - mean) * slope + shift), where d is dy through the activation. */
enum { D_MEAN, D_SCALE, D_SLOPE, D_SHIFT };

/* Where the activation lets nothing through, dy is as good as 0: the first pass keeps a bit for each
 * element, so that the second need not read y again. */
static size_t bits_a_row(size_t width)
{
    return (width + SIMD_LANES - 1) / SIMD_LANES;
}

static size_t gradient_scratch_bytes(const struct kernel_problem *problem)
{
    const struct grid g = grid_of(problem);
    const size_t words = g.rows * bits_a_row(g.width) + g.rest * bits_a_row(g.channels);

    return scratch_bytes(problem) + words * sizeof(uint16_t);
}

/* Rows that follow each other; y, dresidual and bits may be NULL. */
struct stretch {
    size_t rows, width;
    const float *dy, *x, *y;
    float *dx, *dresidual;
    uint16_t *bits; /* bits_a_row words a row */
};

/* Where a part of the gradient has its tensors: numbers of inputs and outputs, NONE if it has not. */
enum { NONE = -1 };
struct part {
    int y, dx, dresidual;
    bool has_bits;
};

static struct part part_of(const struct kernel_problem *problem)
{
    struct part part = { 4, 0, 3, true };

    if (strcmp(problem->op, "batch_norm_grad_sums") == 0)
        part = (struct part){ 3, NONE, 3, false };
    else if (strcmp(problem->op, "batch_norm_grad_spread") == 0)
        part = (struct part){ 5, 0, NONE, false };
    part.y = problem->n_in > part.y ? part.y : NONE;
    part.dresidual = problem->n_out > part.dresidual ? part.dresidual : NONE;
    return part;
}

/* Rows [from, to), or if they are those after the last, the rest a place a row. */
static struct stretch stretch_of(const struct kernel_call *call, const struct grid *g,
                                 size_t from, size_t to)
{
    const struct part part = part_of(call->problem);
    const bool is_rest = from == g->rows;
    const size_t at = from * g->width;
    uint16_t *bits = (uint16_t *)lane_numbers(call, g, LANE_NUMBERS);

    return (struct stretch){
        .rows = is_rest ? g->rest : to - from,
        .width = is_rest ? g->channels : g->width,
        .dy = (const float *)call->in[0] + at,
        .x = (const float *)call->in[1] + at,
        .y = part.y != NONE ? (const float *)call->in[part.y] + at : NULL,
        .dx = part.dx != NONE ? (float *)call->out[part.dx] + at : NULL,
        .dresidual = part.dresidual != NONE ? (float *)call->out[part.dresidual] + at : NULL,
        .bits = part.has_bits ? bits + from * bits_a_row(g->width) : NULL,
    };
}

/* A bit for each of y that the activation let through. */
static inline uint16_t open_bits(struct simd_floats y, enum activation activation)
{
    uint16_t bits = simd_above(y, 0);

    if (activation == ACTIVATION_RELU6) /* the difference is exact near 6 */
        bits &= simd_above(simd_subtract(simd_set(6), y), 0);
    return bits;
}

/* Sums of d and d * (x - mean) over rows [from, to) of `vectors` vectors from column j on; `left`
 * columns in all. */
static inline void block_sums(const struct stretch *s, enum activation activation, size_t from,
                              size_t to, size_t j, int vectors, size_t left, const float *mean,
                              float *sum, float *product)
{
    struct simd_floats sums[VECTORS], products[VECTORS], means[VECTORS];

    for (int v = 0; v < vectors; v++) {
        const size_t lane = (size_t)v * SIMD_LANES;
        sums[v] = products[v] = simd_set(0);
        means[v] = simd_load(mean + j + lane, left - lane, 0);
    }
    for (size_t r = from; r < to; r++) {
        for (int v = 0; v < vectors; v++) {
            const size_t lane = (size_t)v * SIMD_LANES, at = r * s->width + j + lane;
            const size_t n = left - lane;
            const struct simd_floats x = simd_load(s->x + at, n, 0);
            struct simd_floats d = simd_load(s->dy + at, n, 0);

            ask_for_next(s->x + at, s->width);
            ask_for_next(s->dy + at, s->width);
            if (activation != ACTIVATION_NONE) {
                ask_for_next(s->y + at, s->width);
                const uint16_t bits = open_bits(simd_load(s->y + at, n, 0), activation);
                if (s->bits)
                    s->bits[r * bits_a_row(s->width) + (j + lane) / SIMD_LANES] = bits;
                d = simd_where(d, bits);
            }
            if (s->dresidual)
                simd_store(d, n, s->dresidual + at);
            sums[v] = simd_add(sums[v], d);
            products[v] = simd_add(products[v], simd_multiply(d, simd_subtract(x, means[v])));
        }
    }
    for (int v = 0; v < vectors; v++) {
        simd_store(sums[v], SIMD_LANES, sum + v * SIMD_LANES);
        simd_store(products[v], SIMD_LANES, product + v * SIMD_LANES);
    }
}

/* Both sums of a stretch: all[0..width) and all[width..2 width). */
static inline void add_sums(const struct stretch *s, enum activation activation,
                            const float *mean, double *all)
{
    float sum[LANES], product[LANES];

    for (size_t j = 0; j < 2 * s->width; j++)
        all[j] = 0;
    for (size_t r = 0; r < s->rows; r += BLOCK_ROWS) {
        const size_t end = simd_min(r + BLOCK_ROWS, s->rows);

        for (size_t j = 0; j < s->width;) {
            const size_t left = s->width - j, lanes = left < LANES ? SIMD_LANES : LANES;
            if (lanes == LANES)
                block_sums(s, activation, r, end, j, VECTORS, LANES, mean, sum, product);
            else
                block_sums(s, activation, r, end, j, 1, left, mean, sum, product);
            const size_t n = simd_min(lanes, left);
#pragma omp simd
            for (size_t l = 0; l < n; l++) {
                all[j + l] += (double)sum[l];
                all[s->width + j + l] += (double)product[l];
            }
            j += lanes;
        }
    }
}

static void sum_stretch(const struct kernel_call *call, const struct grid *g,
                        const struct stretch *s, double *all)
{
    const float *mean = lane_numbers(call, g, D_MEAN);

    switch (call->problem->attrs.activation) {
    case ACTIVATION_RELU:
        add_sums(s, ACTIVATION_RELU, mean, all);
        break;
    case ACTIVATION_RELU6:
        add_sums(s, ACTIVATION_RELU6, mean, all);
        break;
    default:
        add_sums(s, ACTIVATION_NONE, mean, all);
    }
}

static void sums_of_part(void *arg, size_t part)
{
    const struct kernel_call *call = arg;
    const struct grid g = grid_of(call->problem);
    const struct stretch s =
        stretch_of(call, &g, part_begin(&g, part), part_begin(&g, part + 1));

    sum_stretch(call, &g, &s, part_sums(call, &g, part));
    if (part + 1 == g.parts) {
        const struct stretch rest = stretch_of(call, &g, g.rows, g.rows);
        sum_stretch(call, &g, &rest, part_sums(call, &g, g.parts));
    }
}

/* All parts onto the first one's first row, in order. */
static void add_parts(const struct kernel_call *call, const struct grid *g)
{
    double *all = part_sums(call, g, 0);

    for (size_t part = 0; part <= g->parts; part++) {
        const double *sums = part_sums(call, g, part);
        const size_t width = part < g->parts ? g->width : g->channels;
        for (size_t k = part == 0 ? g->channels : 0; k < width; k += g->channels) {
#pragma omp simd
            for (size_t c = 0; c < g->channels; c++) {
                all[c] += sums[k + c];
                all[g->width + c] += sums[width + k + c];
            }
        }
    }
}

/* dx of a stretch, from d, or from dy and the bits, or else from dy and y. */
static inline void spread(const struct kernel_call *call, const struct grid *g,
                          const struct stretch *s, const float *dy, bool with_bits,
                          enum activation activation)
{
    const float *mean = lane_numbers(call, g, D_MEAN), *scale = lane_numbers(call, g, D_SCALE);
    const float *slope = lane_numbers(call, g, D_SLOPE);
    const float *shift = lane_numbers(call, g, D_SHIFT);
    const uint16_t *bits = s->bits;
    const bool far = is_far(g, s->width, s->dx);

    for (size_t r = 0; r < s->rows; r++) {
        for (size_t j = 0; j < s->width; j += SIMD_LANES) {
            const size_t at = r * s->width + j, n = s->width - j;
            const struct simd_floats x =
                simd_subtract(simd_load(s->x + at, n, 0), simd_load(mean + j, n, 0));
            struct simd_floats d = simd_load(dy + at, n, 0);
            if (with_bits)
                d = simd_where(d, *bits++);
            else if (activation != ACTIVATION_NONE)
                d = simd_where(d, open_bits(simd_load(s->y + at, n, 0), activation));
            d = simd_multiply(d, simd_load(scale + j, n, 0));
            d = simd_add(d, simd_add(simd_multiply(x, simd_load(slope + j, n, 0)),
                                     simd_load(shift + j, n, 0)));
            if (far)
                simd_stream(d, s->dx + at);
            else
                simd_store(d, n, s->dx + at);
        }
    }
    if (far)
        simd_end_streams();
}

static void spread_stretch(const struct kernel_call *call, const struct grid *g,
                           const struct stretch *s)
{
    const enum activation activation = call->problem->attrs.activation;

    if (!s->y || s->dresidual)
        spread(call, g, s, s->dresidual ? s->dresidual : s->dy, false, ACTIVATION_NONE);
    else if (s->bits)
        spread(call, g, s, s->dy, true, ACTIVATION_NONE);
    else if (activation == ACTIVATION_RELU)
        spread(call, g, s, s->dy, false, ACTIVATION_RELU);
    else
        spread(call, g, s, s->dy, false, ACTIVATION_RELU6);
}

/* A range counts rows from the end. */
static void spread_rows(const struct kernel_call *call, size_t from, size_t to)
{
    const struct grid g = grid_of(call->problem);

    if (from == 0) {
        const struct stretch rest = stretch_of(call, &g, g.rows, g.rows);
        spread_stretch(call, &g, &rest);
    }
    const struct stretch s = stretch_of(call, &g, g.rows - to, g.rows - from);
    spread_stretch(call, &g, &s);
}

/* Both sums of all places, onto the first part's first row. */
static void make_sums(const struct kernel_call *call, const struct grid *g, const float *saved)
{
    struct kernel_call copy = *call;

    memcpy(lane_numbers(call, g, D_MEAN), saved, g->channels * sizeof *saved);
    repeat(g, lane_numbers(call, g, D_MEAN));
    pool_for(g->parts > 1 ? call->pool : NULL, g->parts, sums_of_part, &copy);
    add_parts(call, g);
}

/* What only graphs for devices have (pass/join.c) is left to the reference. */
static bool gradient_can_run(const struct kernel_problem *p)
{
    return p->n_in < 5 || (p->n_in == 5 && p->in[4].shape.rank > 1);
}

static void run_batch_norm_grad(const struct kernel_call *call)
{
    const struct grid g = grid_of(call->problem);
    const double n = (double)g.places;
    const double *sum = part_sums(call, &g, 0), *product = sum + g.width;
    const float *gamma = call->in[2], *saved = call->in[3];
    float *dgamma = call->out[1], *dbeta = call->out[2];

    make_sums(call, &g, saved);
    for (size_t c = 0; c < g.channels; c++) {
        const double rstd = (double)saved[g.channels + c], scale = (double)gamma[c] * rstd;
        dgamma[c] = (float)(product[c] * rstd);
        dbeta[c] = (float)sum[c];
        lane_numbers(call, &g, D_SCALE)[c] = (float)scale;
        lane_numbers(call, &g, D_SLOPE)[c] = (float)(-scale * rstd * rstd * product[c] / n);
        lane_numbers(call, &g, D_SHIFT)[c] = (float)(-scale * sum[c] / n);
    }
    for (size_t i = D_SCALE; i <= D_SHIFT; i++)
        repeat(&g, lane_numbers(call, &g, i));
    simd_for(call, g.rows, g.width, spread_rows);
}

/* In parts, for statistics of all shards ----------------------------------------------- */

enum { TABLE = 3 /* rows of what a shard gives to the others; the last is its places */ };

static void run_batch_norm_stats(const struct kernel_call *call)
{
    const struct grid g = grid_of(call->problem);
    const double *mean = part_sums(call, &g, 0), *squares = mean + g.width;
    float *stats = call->out[0];
    struct kernel_call copy = *call;

    pool_for(g.parts > 1 ? call->pool : NULL, g.parts, moments_of_part, &copy);
    join_parts(call, &g);
    for (size_t c = 0; c < g.channels; c++) {
        stats[c] = (float)mean[c];
        stats[g.channels + c] = (float)squares[c];
        stats[2 * g.channels + c] = (float)g.places;
    }
}

/* Subtrees of shards that are not joined yet, from left to right. */
enum { SUBTREES = 64 };
struct subtrees {
    size_t channels;
    int count;
    double n[SUBTREES];
    double *moments; /* of each: means, then squares */
};

static double *moments_at(const struct subtrees *s, int i)
{
    return s->moments + (size_t)i * 2 * s->channels;
}

/* Joins the last two; one without places is left out. */
static void join_last(struct subtrees *s)
{
    const int last = --s->count;
    double *mean = moments_at(s, last - 1);
    const double *more = moments_at(s, last);

    if (s->n[last] == 0)
        return;
    join_part(s->n[last - 1], s->n[last], s->channels, more, more + s->channels, mean,
              mean + s->channels);
    s->n[last - 1] += s->n[last];
}

/* The number of shards has so many binary digits: at most that many subtrees and one more. */
static size_t join_scratch_bytes(const struct kernel_problem *problem)
{
    const struct shape *all = &problem->in[0].shape;
    size_t subtrees = 1;

    for (int64_t v = all->dim[0]; v > 0; v /= 2)
        subtrees++;
    return subtrees * 2 * (size_t)all->dim[2] * sizeof(double);
}

static void run_batch_norm_join(const struct kernel_call *call)
{
    const struct shape *all = &call->problem->in[0].shape;
    const size_t shards = (size_t)all->dim[0], channels = (size_t)all->dim[2];
    const float *stats = call->in[0], *own = call->in[1];
    float *saved = call->out[0], *seen_mean = call->out[1], *seen_variance = call->out[2];
    struct subtrees s = { .channels = channels, .moments = call->scratch };

    for (size_t v = 0; v < shards; v++, stats += TABLE * channels) {
        double *moments = moments_at(&s, s.count);
        for (size_t c = 0; c < 2 * channels; c++)
            moments[c] = (double)stats[c];
        s.n[s.count++] = (double)stats[2 * channels];
        for (size_t done = v; done & 1; done >>= 1)
            join_last(&s);
    }
    while (s.count > 1)
        join_last(&s);
    const double n = s.n[0], share = (double)own[2 * channels] / n;
    const double *mean = moments_at(&s, 0), *squares = mean + channels;
    for (size_t c = 0; c < channels; c++) {
        saved[c] = (float)mean[c];
        saved[channels + c] =
            (float)(1 / sqrt(squares[c] / n + (double)call->problem->attrs.epsilon));
        seen_mean[c] = (float)(mean[c] * share);
        seen_variance[c] = (float)(squares[c] / (n > 1 ? n - 1 : 1) * share);
    }
}

static void run_batch_norm_normalize(const struct kernel_call *call)
{
    const struct grid g = grid_of(call->problem);
    const float *gamma = call->in[1], *beta = call->in[2], *saved = call->in[3];

    for (size_t c = 0; c < g.channels; c++) {
        lane_numbers(call, &g, MEAN)[c] = saved[c];
        lane_numbers(call, &g, SCALE)[c] =
            (float)((double)gamma[c] * (double)saved[g.channels + c]);
        lane_numbers(call, &g, SHIFT)[c] = beta[c];
    }
    make_y(call, &g);
}

static void run_batch_norm_grad_sums(const struct kernel_call *call)
{
    const struct grid g = grid_of(call->problem);
    const double *sum = part_sums(call, &g, 0), *product = sum + g.width;
    const float *saved = call->in[2];
    float *dgamma = call->out[0], *dbeta = call->out[1], *sums = call->out[2];

    make_sums(call, &g, saved);
    for (size_t c = 0; c < g.channels; c++) {
        dgamma[c] = (float)(product[c] * (double)saved[g.channels + c]);
        dbeta[c] = (float)sum[c];
        sums[c] = dgamma[c];
        sums[g.channels + c] = dbeta[c];
        sums[2 * g.channels + c] = (float)g.places;
    }
}

static void run_batch_norm_grad_spread(const struct kernel_call *call)
{
    const struct grid g = grid_of(call->problem);
    const int64_t shards = call->problem->in[4].shape.dim[0];
    const float *gamma = call->in[2], *saved = call->in[3], *all = call->in[4];
    double *dgamma = part_sums(call, &g, 0), *dbeta = dgamma + g.width, n = 0;

    for (size_t c = 0; c < g.channels; c++)
        dgamma[c] = dbeta[c] = 0;
    for (int64_t v = 0; v < shards; v++, all += TABLE * g.channels) {
        n += (double)all[2 * g.channels];
#pragma omp simd
        for (size_t c = 0; c < g.channels; c++) {
            dgamma[c] += (double)all[c];
            dbeta[c] += (double)all[g.channels + c];
        }
    }
    for (size_t c = 0; c < g.channels; c++) {
        const double rstd = (double)saved[g.channels + c], scale = (double)gamma[c] * rstd;
        lane_numbers(call, &g, D_MEAN)[c] = saved[c];
        lane_numbers(call, &g, D_SCALE)[c] = (float)scale;
        lane_numbers(call, &g, D_SLOPE)[c] = (float)(-scale * rstd * dgamma[c] / n);
        lane_numbers(call, &g, D_SHIFT)[c] = (float)(-scale * dbeta[c] / n);
    }
    for (size_t i = D_MEAN; i <= D_SHIFT; i++)
        repeat(&g, lane_numbers(call, &g, i));
    simd_for(call, g.rows, g.width, spread_rows);
}

const struct kernel SIMD_TABLE(kernel_batch_norm_rows)[] = {
    { .op = "batch_norm",
      .name = "own",
      .scratch_bytes = scratch_bytes,
      .run = run_batch_norm },
    { .op = "batch_norm_grad",
      .name = "own",
      .can_run = gradient_can_run,
      .scratch_bytes = gradient_scratch_bytes,
      .run = run_batch_norm_grad },
    { .op = "batch_norm_apply",
      .name = "own",
      .scratch_bytes = scratch_bytes,
      .run = run_batch_norm_apply },
    { .op = "batch_norm_stats",
      .name = "own",
      .scratch_bytes = scratch_bytes,
      .run = run_batch_norm_stats },
    { .op = "batch_norm_join",
      .name = "own",
      .scratch_bytes = join_scratch_bytes,
      .run = run_batch_norm_join },
    { .op = "batch_norm_normalize",
      .name = "own",
      .scratch_bytes = scratch_bytes,
      .run = run_batch_norm_normalize },
    { .op = "batch_norm_grad_sums",
      .name = "own",
      .scratch_bytes = scratch_bytes,
      .run = run_batch_norm_grad_sums },
    { .op = "batch_norm_grad_spread",
      .name = "own",
      .scratch_bytes = scratch_bytes,
      .run = run_batch_norm_grad_spread },
    { 0 },
};
