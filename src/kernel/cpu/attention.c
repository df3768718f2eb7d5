/* SPDX-License-Identifier: MIT */
/* attention.c - attention and its gradient, a head of a sequence at a time, in tiles.
 *
 * Of a head, keys and values (T, D/H) are laid together first: keys transposed in panels, so that
 * the scores of some queries with a panel of keys are products of registers (gemm_tile.h), values
 * row by row. Then BLOCK queries at a time:
 *
 *   forward   S = Q K^T;  P = exp(S - largest);  y = P V / sum of P
 *   backward  S = Q K^T;  P = exp(S - lse);  dP = dy V^T;  dS = P (dP - dy y)
 *             dQ = dS K;  dK += dS^T Q;  dV += P^T dy
 *
 * S is (BLOCK, T): no matrix of all pairs is in memory, and as a row of S is whole, its largest is
 * known before any exponential is made. The factor 1/sqrt(D/H) is in the queries when they are laid
 * together; backward its root is in queries, keys and their gradients. Causal: rows of a tile stop at the tile's last token, so half of the
 * products are left out.
 *
 * A head of a sequence is a task of the pool, which computes it wholly: bits depend on nothing else.
 */
#include <float.h>
#include <math.h>
#include <stdbool.h>

#include "kernel/cpu/attention_tile.h"
#include "kernel/cpu/gemm.h"
#include "kernel/cpu/processor.h"
#include "kernel/cpu/rows.h"
#include "kernel/cpu/simd.h"

/* BLOCK is a multiple of ROWS: then a tile of keys meets tiles of queries whole. */
enum { BLOCK = 48, ROWS = 6, SLOTS = 8, LINE_FLOATS = 16 };

const struct attention_isa *attention_current(void)
{
    switch (processor_current()) {
    case PROCESSOR_AMX:
    case PROCESSOR_AVX512:
        return &attention_avx512;
    case PROCESSOR_AVX2:
        return &attention_avx2;
    default:
        return NULL;
    }
}

/* How a problem is cut. */
struct plan {
    const struct tile_isa *tile;
    const struct attention_isa *rows;
    int64_t samples;
    int heads, tokens, size; /* size: numbers of a query */
    int padded;              /* size in whole vectors */
    int panel;               /* columns of a panel: whole vectors */
    int keys;                /* tokens in whole panels */
    int64_t width;           /* numbers of all heads' queries */
    bool causal;
};

static int round_up(int n, int unit)
{
    return (n + unit - 1) / unit * unit;
}

static struct plan plan_of(const struct kernel_problem *problem, const struct shape *qkv)
{
    const struct tile_isa *tile = tile_current();
    const int vecs = tile->rows[tile->vecs] >= ROWS ? tile->vecs : tile->vecs - 1;
    struct plan plan = {
        .tile = tile,
        .rows = attention_current(),
        .samples = qkv->dim[0],
        .heads = problem->attrs.heads,
        .tokens = (int)qkv->dim[1],
        .size = (int)(qkv->dim[2] / 3 / problem->attrs.heads),
        .panel = vecs * tile->lanes,
        .width = qkv->dim[2] / 3,
        .causal = problem->attrs.causal != 0,
    };

    plan.padded = round_up(plan.size, tile->lanes);
    plan.keys = round_up(plan.tokens, plan.panel);
    return plan;
}

/* Keys that the tile of rows from `row` on sees: all, or up to its last token. */
static int limit_of(const struct plan *plan, int row)
{
    const int end = row + ROWS < plan->tokens ? row + ROWS : plan->tokens;
    return plan->causal ? end : plan->tokens;
}

static int min_of(int a, int b)
{
    return a < b ? a : b;
}

/* Products ----------------------------------------------------------------------------- */

static const ptrdiff_t whole[] = { 0 };

static int vectors_of(const struct plan *plan, int columns)
{
    return (columns + plan->tile->lanes - 1) / plan->tile->lanes;
}

static int last_of(const struct plan *plan, int columns)
{
    return columns - (vectors_of(plan, columns) - 1) * plan->tile->lanes;
}

/* Some rows (at most BLOCK, the first being token `first`) of scores: a (rows, size) times panels
 * that hold k^T or v^T. */
static void multiply_panels(const struct plan *plan, int first, int n_rows, const float *a,
                            const float *panels, float *scores)
{
    const int most = plan->causal ? first + n_rows : plan->tokens;
    struct tile tile = { .segment = whole,
                         .n_segments = 1,
                         .depth = plan->size,
                         .b_step = plan->panel,
                         .b_full = true };

    for (int key = 0; key < most; key += plan->panel) {
        tile.b = panels + (ptrdiff_t)key * plan->size;
        for (int row = 0; row < n_rows; row += ROWS) {
            const int columns = min_of(plan->panel, limit_of(plan, first + row) - key);
            const int n = min_of(ROWS, n_rows - row);
            if (columns <= 0)
                continue;
            for (int i = 0; i < n; i++) {
                tile.a[i] = a + (ptrdiff_t)(row + i) * plan->padded;
                tile.c[i] = scores + (ptrdiff_t)(row + i) * plan->keys + key;
            }
            tile.last = last_of(plan, columns);
            plan->tile->by_rows(&tile, n, vectors_of(plan, columns));
        }
    }
}

/* Some rows of out (rows, padded) = weights (rows, keys) times b (keys, padded), a panel of keys
 * after another, so that b stays in the first cache. */
static void multiply_keys(const struct plan *plan, int first, int n_rows, const float *weights,
                          const float *b, float *out)
{
    const int most = plan->causal ? first + n_rows : plan->tokens;
    struct tile tile = {
        .segment = whole, .n_segments = 1, .b_step = plan->padded, .b_full = true
    };

    for (int key = 0; key < most; key += plan->panel) {
        for (int row = 0; row < n_rows; row += ROWS) {
            const int n = min_of(ROWS, n_rows - row);
            tile.depth = min_of(plan->panel, limit_of(plan, first + row) - key);
            tile.accumulate = key > 0;
            for (int at = 0; tile.depth > 0 && at < plan->padded; at += plan->panel) {
                const int columns = min_of(plan->panel, plan->padded - at);
                for (int i = 0; i < n; i++) {
                    tile.a[i] = weights + (ptrdiff_t)(row + i) * plan->keys + key;
                    tile.c[i] = out + (ptrdiff_t)(row + i) * plan->padded + at;
                }
                tile.b = b + (ptrdiff_t)key * plan->padded + at;
                tile.last = last_of(plan, columns);
                plan->tile->by_rows(&tile, n, vectors_of(plan, columns));
            }
        }
    }
}

/* sums (keys, padded) += weights^T (keys, rows) times b (rows, padded); a key's first rows make
 * its sum. */
static void add_to_keys(const struct plan *plan, int first, int n_rows, const float *weights,
                        const float *b, float *sums)
{
    const int most = plan->causal ? first + n_rows : plan->tokens;
    struct tile tile = { .segment = whole,
                         .n_segments = 1,
                         .a_step = plan->keys,
                         .b_step = plan->padded,
                         .b_full = true };

    for (int key = 0; key < most; key += ROWS) {
        const int n = min_of(ROWS, most - key);
        const int skip =
            plan->causal && key > first ? key - first : 0; /* they see no such key */
        tile.depth = n_rows - skip;
        tile.a[0] = weights + (ptrdiff_t)skip * plan->keys + key;
        tile.accumulate = plan->causal ? key < first : first > 0;
        for (int at = 0; at < plan->padded; at += plan->panel) {
            const int columns = min_of(plan->panel, plan->padded - at);
            for (int i = 0; i < n; i++)
                tile.c[i] = sums + (ptrdiff_t)(key + i) * plan->padded + at;
            tile.b = b + (ptrdiff_t)skip * plan->padded + at;
            tile.last = last_of(plan, columns);
            plan->tile->by_columns(&tile, n, vectors_of(plan, columns));
        }
    }
}

/* rows (tokens, padded) transposed in panels. */
static void lay_panels(const struct plan *plan, const float *rows, float *panels)
{
    for (int key = 0; key < plan->tokens; key += plan->panel)
        plan->tile->transpose(rows + (ptrdiff_t)key * plan->padded, plan->padded,
                              min_of(plan->panel, plan->tokens - key), plan->size,
                              panels + (ptrdiff_t)key * plan->size, plan->panel, true);
}

/* Asks for a row that is written soon: rows of a head lie far apart. */
static void fetch_to_write(const struct plan *plan, const float *row)
{
    for (int j = 0; j < plan->size; j += LINE_FLOATS)
        __builtin_prefetch(row + j, 1);
}

static void lay_rows(const struct plan *plan, const float *rows, int64_t step, int n,
                     float factor, float *out)
{
    plan->rows->scale(rows, step, n, plan->size, factor, out, plan->padded, plan->padded);
}

/* Heads -------------------------------------------------------------------------------- */

/* Where a head of a sequence has its numbers. */
struct head {
    const float *q, *k, *v;
    const int32_t *ids;
    int64_t step; /* from token to token */
};

static struct head head_of(const struct plan *plan, const float *qkv, const int32_t *ids,
                           int64_t number)
{
    const int64_t n = number / plan->heads, h = number % plan->heads;
    const float *q = qkv + n * plan->tokens * 3 * plan->width + h * plan->size;

    return (struct head){ q, q + plan->width, q + 2 * plan->width,
                          ids ? ids + n * plan->tokens : NULL, 3 * plan->width };
}

/* Where a head's part of (N, T, H * size) begins. */
static int64_t begin_of(const struct plan *plan, int64_t number)
{
    return number / plan->heads * plan->tokens * plan->width +
           number % plan->heads * plan->size;
}

/* Where a head's part of (N, T, H) begins. */
static int64_t begin_of_lse(const struct plan *plan, int64_t number)
{
    return number / plan->heads * plan->tokens * plan->heads + number % plan->heads;
}

/* Floats in whole cache lines. */
static size_t lines(int64_t count)
{
    return (size_t)((count + 15) / 16 * 16);
}

static size_t rows_floats(const struct plan *plan)
{
    return lines((int64_t)plan->keys * plan->padded);
}

static size_t block_floats(const struct plan *plan)
{
    return lines((int64_t)BLOCK * plan->padded);
}

static size_t scores_floats(const struct plan *plan)
{
    return lines((int64_t)BLOCK * plan->keys);
}

/* A call, for its tasks; each works on one head. */
struct job {
    struct plan plan;
    const struct kernel_call *call;
};

static size_t heads_of(const struct plan *plan)
{
    return (size_t)(plan->samples * plan->heads);
}

static size_t slots_of(const struct plan *plan)
{
    return heads_of(plan) < SLOTS ? heads_of(plan) : SLOTS;
}

/* Forward ------------------------------------------------------------------------------ */

/* Scratch of a task: keys in panels, values, queries and what becomes y of a block, its scores. */
static size_t forward_floats(const struct plan *plan)
{
    return 2 * rows_floats(plan) + 2 * block_floats(plan) + scores_floats(plan);
}

static void forward_head(const struct plan *plan, const struct head *head, float *scratch,
                         float *y, float *lse)
{
    float *panels = scratch, *values = panels + rows_floats(plan);
    float *queries = values + rows_floats(plan), *out = queries + block_floats(plan);
    float *scores = out + block_floats(plan);

    lay_rows(plan, head->k, head->step, plan->tokens, 1, values); /* their place for a while */
    lay_panels(plan, values, panels);
    lay_rows(plan, head->v, head->step, plan->tokens, 1, values);
    for (int first = 0; first < plan->tokens; first += BLOCK) {
        const int n = min_of(BLOCK, plan->tokens - first);
        float largest[BLOCK], sum[BLOCK];

        lay_rows(plan, head->q + first * head->step, head->step, n,
                 1 / sqrtf((float)plan->size), queries);
        multiply_panels(plan, first, n, queries, panels, scores);
        for (int i = 0; i < n; i++) {
            const int seen = plan->causal ? first + i + 1 : plan->tokens;
            fetch_to_write(plan, y + (first + i) * plan->width);
            sum[i] =
                plan->rows->exponentials(scores + (ptrdiff_t)i * plan->keys, head->ids, seen,
                                         limit_of(plan, first + i / ROWS * ROWS), &largest[i]);
        }
        for (int i = 0; i < n; i++) /* apart, as logarithms are long chains that overlap */
            lse[(int64_t)(first + i) * plan->heads] =
                sum[i] == 0 ? FLT_MAX
                            : (float)((double)largest[i] + simd_log_from_one((double)sum[i]));
        multiply_keys(plan, first, n, scores, values, out);
        for (int i = 0; i < n; i++)
            plan->rows->scale(out + (ptrdiff_t)i * plan->padded, 0, 1, plan->size,
                              sum[i] == 0 ? 0 : 1 / sum[i], y + (first + i) * plan->width, 0,
                              plan->size);
    }
}

static void forward_task(void *arg, size_t i, size_t slot)
{
    const struct job *job = arg;
    const struct plan *plan = &job->plan;
    const struct kernel_call *call = job->call;
    const int64_t number = (int64_t)i;
    const struct head head =
        head_of(plan, call->in[0], call->problem->n_in > 1 ? call->in[1] : NULL, number);

    forward_head(plan, &head, (float *)call->scratch + slot * forward_floats(plan),
                 (float *)call->out[0] + begin_of(plan, number),
                 (float *)call->out[1] + begin_of_lse(plan, number));
}

static size_t forward_scratch(const struct kernel_problem *problem)
{
    const struct plan plan = plan_of(problem, &problem->in[0].shape);

    return slots_of(&plan) * forward_floats(&plan) * sizeof(float);
}

static void run_attention(const struct kernel_call *call)
{
    struct job job = { plan_of(call->problem, &call->problem->in[0].shape), call };

    pool_for_slots(call->pool, heads_of(&job.plan), slots_of(&job.plan), forward_task, &job);
}

/* Backward ----------------------------------------------------------------------------- */

/* Scratch of a task: keys and values in panels, keys, sums of dk and dv; queries, dy and dq of a
 * block, its scores and their gradients. */
static size_t backward_floats(const struct plan *plan)
{
    return 5 * rows_floats(plan) + 3 * block_floats(plan) + 2 * scores_floats(plan);
}

/* What backward has of a head beside queries, keys and values. */
struct given {
    const float *dy, *y, *lse;
    float *dq; /* dk and dv lie `width` behind each other */
};

static void backward_head(const struct plan *plan, const struct head *head,
                          const struct given *given, float *scratch)
{
    const float factor = sqrtf(1 / sqrtf((float)plan->size)); /* queries and keys, half each */
    const size_t rows = rows_floats(plan), block = block_floats(plan);
    float *key_panels = scratch, *value_panels = key_panels + rows;
    float *keys = value_panels + rows, *dk = keys + rows, *dv = dk + rows;
    float *queries = dv + rows, *dy = queries + block, *dq = dy + block;
    float *scores = dq + block, *ds = scores + scores_floats(plan);

    lay_rows(plan, head->k, head->step, plan->tokens, factor, keys);
    lay_panels(plan, keys, key_panels);
    lay_rows(plan, head->v, head->step, plan->tokens, 1, dv); /* their place for a while */
    lay_panels(plan, dv, value_panels);
    for (int first = 0; first < plan->tokens; first += BLOCK) {
        const int n = min_of(BLOCK, plan->tokens - first);
        float delta[BLOCK];

        lay_rows(plan, head->q + first * head->step, head->step, n, factor, queries);
        lay_rows(plan, given->dy + first * plan->width, plan->width, n, 1, dy);
        multiply_panels(plan, first, n, queries, key_panels, scores);
        multiply_panels(plan, first, n, dy, value_panels, ds);
        plan->rows->dots(dy, plan->padded, given->y + first * plan->width, plan->width, n,
                         plan->size, delta);
        for (int i = 0; i < n; i++) {
            const ptrdiff_t row = (ptrdiff_t)i * plan->keys;
            fetch_to_write(plan, given->dq + (first + i) * head->step);
            plan->rows->weights(scores + row, ds + row, head->ids,
                                plan->causal ? first + i + 1 : plan->tokens,
                                limit_of(plan, first + i / ROWS * ROWS),
                                given->lse[(int64_t)(first + i) * plan->heads], delta[i]);
        }
        multiply_keys(plan, first, n, ds, keys, dq);
        plan->rows->scale(dq, plan->padded, n, plan->size, factor,
                          given->dq + first * head->step, head->step, plan->size);
        add_to_keys(plan, first, n, scores, dy, dv);
        add_to_keys(plan, first, n, ds, queries, dk);
    }
    plan->rows->scale(dk, plan->padded, plan->tokens, plan->size, factor,
                      given->dq + plan->width, head->step, plan->size);
    plan->rows->scale(dv, plan->padded, plan->tokens, plan->size, 1,
                      given->dq + 2 * plan->width, head->step, plan->size);
}

static void backward_task(void *arg, size_t i, size_t slot)
{
    const struct job *job = arg;
    const struct plan *plan = &job->plan;
    const struct kernel_call *call = job->call;
    const int64_t number = (int64_t)i, at = begin_of(plan, number);
    const struct head head =
        head_of(plan, call->in[1], call->problem->n_in > 4 ? call->in[4] : NULL, number);
    const struct given given = {
        .dy = (const float *)call->in[0] + at,
        .y = (const float *)call->in[2] + at,
        .lse = (const float *)call->in[3] + begin_of_lse(plan, number),
        .dq = (float *)call->out[0] + (head.q - (const float *)call->in[1]),
    };

    backward_head(plan, &head, &given, (float *)call->scratch + slot * backward_floats(plan));
}

static size_t backward_scratch(const struct kernel_problem *problem)
{
    const struct plan plan = plan_of(problem, &problem->in[1].shape);

    return slots_of(&plan) * backward_floats(&plan) * sizeof(float);
}

static void run_attention_grad(const struct kernel_call *call)
{
    struct job job = { plan_of(call->problem, &call->problem->in[1].shape), call };

    pool_for_slots(call->pool, heads_of(&job.plan), slots_of(&job.plan), backward_task, &job);
}

static bool can_run(const struct kernel_problem *problem)
{
    const int qkv = problem->n_out > 1 ? 0 : 1;

    return tile_current() != NULL && problem->in[qkv].shape.dim[1] <= 1 << 20;
}

const struct kernel kernel_attention_rows[] = {
    { .op = "attention",
      .name = "own",
      .can_run = can_run,
      .scratch_bytes = forward_scratch,
      .run = run_attention },
    { .op = "attention_grad",
      .name = "own",
      .can_run = can_run,
      .scratch_bytes = backward_scratch,
      .run = run_attention_grad },
    { 0 },
};
