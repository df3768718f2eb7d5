/* SPDX-License-Identifier: MIT */
/* attention_step.c - attention of some tokens more to a cache of keys and values.
 *
 * One task a head of a sequence: a token's scores with all keys, their exponentials, the mean of the
 * values. With one token a step the cache is read once, which is what it costs.
 */
#include <math.h>

#include "kernel/cpu/rows.h"
#include "kernel/cpu/simd_block.h"

struct step {
    size_t samples, tokens, heads, size, places; /* size: numbers of a query */
};

static struct step step_of(const struct kernel_problem *problem)
{
    const struct shape *qkv = &problem->in[0].shape;
    const size_t heads = (size_t)problem->attrs.heads;

    return (struct step){ .samples = (size_t)qkv->dim[0],
                          .tokens = (size_t)qkv->dim[1],
                          .heads = heads,
                          .size = (size_t)qkv->dim[2] / 3 / heads,
                          .places = (size_t)problem->in[1].shape.dim[1] };
}

/* Scratch: of each head of each sequence a weight a key. */
static size_t scratch_bytes(const struct kernel_problem *problem)
{
    const struct step s = step_of(problem);

    return s.samples * s.heads * (s.places + s.tokens) * sizeof(float);
}

static float dot(const float *a, const float *b, size_t n)
{
    struct simd_floats sum = simd_set(0);
    float lane[SIMD_LANES];

    for (size_t j = 0; j < n; j += SIMD_LANES)
        sum = simd_add(sum,
                       simd_multiply(simd_load(a + j, n - j, 0), simd_load(b + j, n - j, 0)));
    simd_store(sum, SIMD_LANES, lane);
    return simd_sum(lane);
}

/* Weights of the scores, which they replace: exponentials, and one over their sum. */
static float weigh(float *score, size_t n)
{
    float lane[SIMD_LANES] = { 0 }, largest = score[0];

    for (size_t j = 1; j < n; j++)
        largest = score[j] > largest ? score[j] : largest;
    for (size_t j = 0; j < n; j += SIMD_LANES) {
        float block[SIMD_LANES];
        simd_store(simd_load(score + j, n - j, -INFINITY), SIMD_LANES, block);
#pragma omp simd
        for (int l = 0; l < SIMD_LANES; l++) {
            block[l] = simd_exp_not_positive(block[l] - largest);
            lane[l] += block[l];
        }
        simd_store(simd_load(block, SIMD_LANES, 0), n - j, score + j);
    }
    return 1 / simd_sum(lane);
}

/* Adds to y the sum of weights times values, which lie `stride` apart. */
static void add_values(const float *weight, const float *value, size_t stride, size_t keys,
                       size_t size, float *y)
{
    for (size_t j = 0; j < keys; j++) {
        const float w = weight[j], *v = value + j * stride;
#pragma omp simd
        for (size_t d = 0; d < size; d++)
            y[d] += w * v[d];
    }
}

static void run_head(void *arg, size_t task)
{
    const struct kernel_call *call = arg;
    const struct step s = step_of(call->problem);
    const size_t n = task / s.heads, h = task % s.heads, width = s.heads * s.size;
    const int32_t first = ((const int32_t *)call->in[2])[n];
    const size_t before = first < 0 ? 0 : simd_min((size_t)first, s.places);
    const float scale = 1 / sqrtf((float)s.size);
    const float *q = (const float *)call->in[0] + n * s.tokens * 3 * width + h * s.size;
    const float *cache = (const float *)call->in[1] + n * s.places * 2 * width + h * s.size;
    float *score = (float *)call->scratch + task * (s.places + s.tokens);

    for (size_t i = 0; i < s.tokens; i++) {
        const float *query = q + i * 3 * width;
        float *y = (float *)call->out[0] + (n * s.tokens + i) * width + h * s.size;

        for (size_t j = 0; j < before; j++)
            score[j] = scale * dot(query, cache + j * 2 * width, s.size);
        for (size_t j = 0; j <= i; j++)
            score[before + j] = scale * dot(query, q + j * 3 * width + width, s.size);
        const float inverse = weigh(score, before + i + 1);
        for (size_t d = 0; d < s.size; d++)
            y[d] = 0;
        add_values(score, cache + width, 2 * width, before, s.size, y);
        add_values(score + before, q + 2 * width, 3 * width, i + 1, s.size, y);
        for (size_t d = 0; d < s.size; d++)
            y[d] *= inverse;
    }
}

static void run_attention_step(const struct kernel_call *call)
{
    const struct step s = step_of(call->problem);
    const size_t tasks = s.samples * s.heads;
    const bool is_small = tasks * s.tokens * s.places * s.size < 4 * (size_t)SIMD_GRAIN;
    struct kernel_call copy = *call;

    pool_for(is_small ? NULL : call->pool, tasks, run_head, &copy);
}

const struct kernel SIMD_TABLE(kernel_attention_step_rows)[] = {
    { .op = "attention_step",
      .name = "own",
      .scratch_bytes = scratch_bytes,
      .run = run_attention_step },
    { 0 },
};
