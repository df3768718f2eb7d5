/* SPDX-License-Identifier: MIT */
/* reference_transformer.c - the ops of transformers: smooth activations, layer norm, softmax,
 * positions and attention. */
#include <float.h>
#include <math.h>

#include "kernel/cpu/reference.h"

/* Activations -------------------------------------------------------------------------- */

static double normal_distribution(double x)
{
    return 0.5 * erfc(-x * 0.70710678118654752440);
}

/* 1 / (1 + exp(-2u)) of gelu_tanh. */
static double gelu_share(double x)
{
    return 1 / (1 + exp(-2 * 0.79788456080286535588 * (x + 0.044715 * x * x * x)));
}

double reference_gelu_tanh_at(double x)
{
    return x * gelu_share(x);
}

double reference_gelu_tanh_slope(double x)
{
    const double share = gelu_share(x);
    const double slope = 2 * 0.79788456080286535588 * (1 + 3 * 0.044715 * x * x);

    return share + x * share * (1 - share) * slope;
}

void reference_tanh(const struct kernel_call *call)
{
    const int64_t count = shape_count(&call->problem->in[0].shape);
    const float *x = call->in[0];
    float *y = call->out[0];

    for (int64_t i = 0; i < count; i++)
        y[i] = (float)tanh((double)x[i]);
}

void reference_tanh_grad(const struct kernel_call *call)
{
    const int64_t count = shape_count(&call->problem->in[0].shape);
    const float *dy = call->in[0], *y = call->in[1];
    float *dx = call->out[0];

    for (int64_t i = 0; i < count; i++)
        dx[i] = dy[i] * (1 - y[i] * y[i]);
}

void reference_gelu(const struct kernel_call *call)
{
    const int64_t count = shape_count(&call->problem->in[0].shape);
    const float *x = call->in[0];
    float *y = call->out[0];

    for (int64_t i = 0; i < count; i++)
        y[i] = (float)((double)x[i] * normal_distribution((double)x[i]));
}

void reference_gelu_grad(const struct kernel_call *call)
{
    const int64_t count = shape_count(&call->problem->in[0].shape);
    const float *dy = call->in[0], *x = call->in[1];
    float *dx = call->out[0];

    for (int64_t i = 0; i < count; i++) {
        const double at = (double)x[i];
        const double density = 0.39894228040143267794 * exp(-0.5 * at * at);
        dx[i] = (float)((double)dy[i] * (normal_distribution(at) + at * density));
    }
}

void reference_gelu_tanh(const struct kernel_call *call)
{
    const int64_t count = shape_count(&call->problem->in[0].shape);
    const float *x = call->in[0];
    float *y = call->out[0];

    for (int64_t i = 0; i < count; i++)
        y[i] = (float)reference_gelu_tanh_at((double)x[i]);
}

void reference_gelu_tanh_grad(const struct kernel_call *call)
{
    const int64_t count = shape_count(&call->problem->in[0].shape);
    const float *dy = call->in[0], *x = call->in[1];
    float *dx = call->out[0];

    for (int64_t i = 0; i < count; i++)
        dx[i] = (float)((double)dy[i] * reference_gelu_tanh_slope((double)x[i]));
}

/* Rows --------------------------------------------------------------------------------- */

void reference_layer_norm(const struct kernel_call *call)
{
    const int64_t rows = call->problem->in[0].shape.dim[0];
    const int64_t features = call->problem->in[0].shape.dim[1];
    const float *x = call->in[0], *gamma = call->in[1], *beta = call->in[2];
    float *y = call->out[0], *saved = call->out[1];

    for (int64_t r = 0; r < rows; r++, x += features, y += features, saved += 2) {
        double mean = 0, variance = 0;
        for (int64_t j = 0; j < features; j++)
            mean += (double)x[j];
        mean /= (double)features;
        for (int64_t j = 0; j < features; j++)
            variance += ((double)x[j] - mean) * ((double)x[j] - mean);
        variance /= (double)features;
        const double rstd = 1 / sqrt(variance + (double)call->problem->attrs.epsilon);
        for (int64_t j = 0; j < features; j++)
            y[j] = (float)(((double)x[j] - mean) * rstd * (double)gamma[j] + (double)beta[j]);
        saved[0] = (float)mean;
        saved[1] = (float)rstd;
    }
}

/* base may be NULL, or dx. */
static void layer_norm_grad_row(const float *dy, const float *x, const float *gamma,
                                const float *saved, int64_t features, const float *base,
                                float *dx)
{
    const double mean = (double)saved[0], rstd = (double)saved[1];
    double sum = 0, product = 0;

    for (int64_t j = 0; j < features; j++) {
        const double g = (double)dy[j] * (double)gamma[j];
        sum += g;
        product += g * ((double)x[j] - mean) * rstd;
    }
    sum /= (double)features;
    product /= (double)features;
    for (int64_t j = 0; j < features; j++) {
        const double g = (double)dy[j] * (double)gamma[j];
        const double d = rstd * (g - sum - ((double)x[j] - mean) * rstd * product);
        dx[j] = (float)(base != NULL ? (double)base[j] + d : d);
    }
}

void reference_layer_norm_grad(const struct kernel_call *call)
{
    const int64_t rows = call->problem->in[0].shape.dim[0];
    const int64_t features = call->problem->in[0].shape.dim[1];
    const float *dy = call->in[0], *x = call->in[1], *gamma = call->in[2], *saved = call->in[3];
    const float *base = call->problem->n_in > 4 ? call->in[4] : NULL;
    float *dx = call->out[0], *dgamma = call->out[1], *dbeta = call->out[2];

    for (int64_t j = 0; j < features; j++) {
        double scale = 0, shift = 0;
        for (int64_t r = 0; r < rows; r++) {
            const double d = (double)dy[r * features + j];
            scale += d * ((double)x[r * features + j] - (double)saved[2 * r]) *
                     (double)saved[2 * r + 1];
            shift += d;
        }
        dgamma[j] = (float)scale;
        dbeta[j] = (float)shift;
    }
    for (int64_t r = 0; r < rows; r++) /* dx may lie over dy */
        layer_norm_grad_row(dy + r * features, x + r * features, gamma, saved + 2 * r, features,
                            base != NULL ? base + r * features : NULL, dx + r * features);
    if (call->problem->n_out > 3)
        reference_sums(dx, rows, features, call->out[3]);
}

void reference_softmax(const struct kernel_call *call)
{
    const int64_t rows = call->problem->in[0].shape.dim[0];
    const int64_t features = call->problem->in[0].shape.dim[1];
    const float *x = call->in[0];
    float *y = call->out[0];

    for (int64_t r = 0; r < rows; r++, x += features, y += features) {
        double largest = -INFINITY, sum = 0;
        for (int64_t j = 0; j < features; j++)
            largest = fmax(largest, (double)x[j]);
        for (int64_t j = 0; j < features; j++)
            sum += exp((double)x[j] - largest);
        for (int64_t j = 0; j < features; j++)
            y[j] = (float)(exp((double)x[j] - largest) / sum);
    }
}

void reference_softmax_grad(const struct kernel_call *call)
{
    const int64_t rows = call->problem->in[0].shape.dim[0];
    const int64_t features = call->problem->in[0].shape.dim[1];
    const float *dy = call->in[0], *y = call->in[1];
    float *dx = call->out[0];

    for (int64_t r = 0; r < rows; r++, dy += features, y += features, dx += features) {
        double sum = 0;
        for (int64_t j = 0; j < features; j++)
            sum += (double)dy[j] * (double)y[j];
        for (int64_t j = 0; j < features; j++)
            dx[j] = (float)((double)y[j] * ((double)dy[j] - sum));
    }
}

/* Positions ---------------------------------------------------------------------------- */

void reference_add_positions(const struct kernel_call *call)
{
    const struct shape *shape = &call->problem->in[0].shape;
    const int64_t features = shape->dim[2], last = call->problem->in[1].shape.dim[0] - 1;
    const int64_t period = call->problem->attrs.period;
    const float *x = call->in[0], *p = call->in[1];
    const int32_t *first = call->problem->n_in > 2 ? call->in[2] : NULL;
    float *y = call->out[0];

    for (int64_t n = 0; n < shape->dim[0]; n++) {
        for (int64_t t = 0; t < shape->dim[1]; t++) {
            const int64_t place = (period ? t % period : t) + (first ? first[n] : 0);
            const float *row = p + (place > last ? last : place) * features;
            for (int64_t j = 0; j < features; j++)
                *y++ = *x++ + row[j];
        }
    }
}

void reference_positions_grad(const struct kernel_call *call)
{
    const struct shape *shape = &call->problem->in[0].shape;
    const int64_t tokens = shape->dim[1], features = shape->dim[2];
    const int64_t count = shape_count(&call->problem->out[0].shape);
    const int64_t period = call->problem->attrs.period ? call->problem->attrs.period : tokens;
    const float *dy = call->in[0];
    float *dp = call->out[0];

    for (int64_t i = 0; i < count; i++) {
        double sum = 0;
        for (int64_t n = 0; i / features < period && n < shape->dim[0]; n++) {
            for (int64_t t = i / features; t < tokens; t += period)
                sum += (double)dy[(n * tokens + t) * features + i % features];
        }
        dp[i] = (float)sum;
    }
}

/* Attention ---------------------------------------------------------------------------- */

/* One head of one sequence. */
struct head {
    int64_t tokens, size;   /* size: numbers of a query */
    int64_t row, out_row;   /* from token to token: of qkv, of y */
    const float *q, *k, *v; /* of the first token */
    const int32_t *ids;     /* or NULL */
    bool causal;
};

/* ids: the number of that input, -1 if the op has none. */
static struct head head_of(const struct kernel_call *call, int qkv, int ids, int64_t n, int h)
{
    const struct shape *shape = &call->problem->in[qkv].shape;
    const int64_t tokens = shape->dim[1], width = shape->dim[2] / 3;
    const int64_t size = width / call->problem->attrs.heads;
    const float *first = (const float *)call->in[qkv] + n * tokens * 3 * width + h * size;

    return (struct head){
        .tokens = tokens,
        .size = size,
        .row = 3 * width,
        .out_row = width,
        .q = first,
        .k = first + width,
        .v = first + 2 * width,
        .ids = ids >= 0 && call->problem->n_in > ids
                   ? (const int32_t *)call->in[ids] + n * tokens
                   : NULL,
        .causal = call->problem->attrs.causal != 0,
    };
}

static bool sees(const struct head *head, int64_t i, int64_t j)
{
    return !(head->causal && j > i) && !(head->ids && head->ids[j] < 0);
}

static double score(const float *q, const float *k, int64_t size)
{
    double sum = 0;

    for (int64_t d = 0; d < size; d++)
        sum += (double)q[d] * (double)k[d];
    return sum / sqrt((double)size);
}

/* Weights of n scores, of which a token sees none that is -infinity; returns their lse. */
static double weigh(double *weight, int64_t n)
{
    double largest = -INFINITY, sum = 0;

    for (int64_t j = 0; j < n; j++)
        largest = fmax(largest, weight[j]);
    for (int64_t j = 0; j < n; j++)
        sum += weight[j] > -INFINITY ? exp(weight[j] - largest) : 0;
    const double lse = sum > 0 ? largest + log(sum) : (double)FLT_MAX;
    for (int64_t j = 0; j < n; j++)
        weight[j] = exp(weight[j] - lse);
    return lse;
}

/* Token i of one head; returns its lse. */
static double attend(const struct head *head, int64_t i, double *weight, float *y)
{
    for (int64_t j = 0; j < head->tokens; j++)
        weight[j] = sees(head, i, j)
                        ? score(head->q + i * head->row, head->k + j * head->row, head->size)
                        : -INFINITY;
    const double lse = weigh(weight, head->tokens);
    for (int64_t d = 0; d < head->size; d++) {
        double mean = 0;
        for (int64_t j = 0; j < head->tokens; j++)
            mean += weight[j] * (double)head->v[j * head->row + d];
        y[d] = (float)mean;
    }
    return lse;
}

/* Scratch: a weight a token that is seen. */
size_t reference_attention_scratch(const struct kernel_problem *problem)
{
    return (size_t)problem->in[0].shape.dim[1] * sizeof(double);
}

void reference_attention(const struct kernel_call *call)
{
    const struct shape *shape = &call->problem->in[0].shape;
    const int heads = call->problem->attrs.heads;

    for (int64_t n = 0; n < shape->dim[0]; n++) {
        for (int h = 0; h < heads; h++) {
            const struct head head = head_of(call, 0, 1, n, h);
            float *y = (float *)call->out[0] + n * head.tokens * head.out_row + h * head.size;
            float *lse = (float *)call->out[1] + n * head.tokens * heads + h;
            for (int64_t i = 0; i < head.tokens; i++)
                lse[i * heads] = (float)attend(&head, i, call->scratch, y + i * head.out_row);
        }
    }
}

/* Of one head: weights p and their gradients dp, scaled as scores are, in one row of a token. */
static void weights_of(const struct head *head, int64_t i, const float *dy, const float *y,
                       double lse, double *p, double *ds)
{
    double delta = 0;

    for (int64_t d = 0; d < head->size; d++)
        delta += (double)dy[d] * (double)y[d];
    for (int64_t j = 0; j < head->tokens; j++) {
        double dp = 0;
        p[j] = 0;
        if (sees(head, i, j))
            p[j] =
                exp(score(head->q + i * head->row, head->k + j * head->row, head->size) - lse);
        for (int64_t d = 0; d < head->size; d++)
            dp += (double)dy[d] * (double)head->v[j * head->row + d];
        ds[j] = p[j] * (dp - delta) / sqrt((double)head->size);
    }
}

/* Scratch: sums of dk and dv of a head, (tokens, size) each, and two rows of tokens. */
size_t reference_attention_grad_scratch(const struct kernel_problem *problem)
{
    const size_t tokens = (size_t)problem->in[1].shape.dim[1];
    const size_t size = (size_t)problem->in[1].shape.dim[2] / 3 / (size_t)problem->attrs.heads;

    return (2 * tokens * size + 2 * tokens) * sizeof(double);
}

static void head_grad(const struct head *head, const float *dy, const float *y,
                      const float *lse, int heads, double *sums, float *dqkv)
{
    const int64_t count = head->tokens * head->size;
    double *dk = sums, *dv = sums + count, *p = dv + count, *ds = p + head->tokens;

    for (int64_t e = 0; e < 2 * count; e++)
        sums[e] = 0;
    for (int64_t i = 0; i < head->tokens; i++) {
        const float *d = dy + i * head->out_row;
        weights_of(head, i, d, y + i * head->out_row, (double)lse[i * heads], p, ds);
        for (int64_t e = 0; e < head->size; e++) {
            double dq = 0;
            for (int64_t j = 0; j < head->tokens; j++) {
                dq += ds[j] * (double)head->k[j * head->row + e];
                dk[j * head->size + e] += ds[j] * (double)head->q[i * head->row + e];
                dv[j * head->size + e] += p[j] * (double)d[e];
            }
            dqkv[i * head->row + e] = (float)dq;
        }
    }
    for (int64_t j = 0; j < head->tokens; j++) {
        for (int64_t e = 0; e < head->size; e++) {
            dqkv[j * head->row + head->out_row + e] = (float)dk[j * head->size + e];
            dqkv[j * head->row + 2 * head->out_row + e] = (float)dv[j * head->size + e];
        }
    }
}

void reference_attention_grad(const struct kernel_call *call)
{
    const struct shape *shape = &call->problem->in[1].shape;
    const int heads = call->problem->attrs.heads;

    for (int64_t n = 0; n < shape->dim[0]; n++) {
        for (int h = 0; h < heads; h++) {
            const struct head head = head_of(call, 1, 4, n, h);
            const int64_t at = n * head.tokens * head.out_row + h * head.size;
            head_grad(&head, (const float *)call->in[0] + at, (const float *)call->in[2] + at,
                      (const float *)call->in[3] + n * head.tokens * heads + h, heads,
                      call->scratch,
                      (float *)call->out[0] + n * head.tokens * head.row + h * head.size);
        }
    }
}

/* Key j of a step: in the cache before `first`, then of the new tokens. */
static const float *step_key(const struct head *head, const float *cache, int64_t first,
                             int64_t j)
{
    return j < first ? cache + j * 2 * head->out_row : head->k + (j - first) * head->row;
}

static void attend_step(const struct head *head, const float *cache, int64_t first, int64_t i,
                        double *weight, float *y)
{
    const int64_t keys = first + i + 1;

    for (int64_t j = 0; j < keys; j++)
        weight[j] = score(head->q + i * head->row, step_key(head, cache, first, j), head->size);
    (void)weigh(weight, keys);
    for (int64_t d = 0; d < head->size; d++) {
        double mean = 0;
        for (int64_t j = 0; j < keys; j++) /* a value lies behind its key */
            mean += weight[j] * (double)step_key(head, cache, first, j)[head->out_row + d];
        y[d] = (float)mean;
    }
}

size_t reference_attention_step_scratch(const struct kernel_problem *problem)
{
    return (size_t)(problem->in[0].shape.dim[1] + problem->in[1].shape.dim[1]) * sizeof(double);
}

void reference_attention_step(const struct kernel_call *call)
{
    const struct shape *shape = &call->problem->in[0].shape;
    const int64_t places = call->problem->in[1].shape.dim[1];
    const int32_t *first = call->in[2];

    for (int64_t n = 0; n < shape->dim[0]; n++) {
        const int64_t before = first[n] < 0 ? 0 : first[n] > places ? places : first[n];
        for (int h = 0; h < call->problem->attrs.heads; h++) {
            const struct head head = head_of(call, 0, -1, n, h);
            const float *cache =
                (const float *)call->in[1] + n * places * 2 * head.out_row + h * head.size;
            float *y = (float *)call->out[0] + n * head.tokens * head.out_row + h * head.size;
            for (int64_t i = 0; i < head.tokens; i++)
                attend_step(&head, cache, before, i, call->scratch, y + i * head.out_row);
        }
    }
}
