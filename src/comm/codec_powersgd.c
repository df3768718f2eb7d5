/* SPDX-License-Identifier: MIT */
/* codec_powersgd.c - matrices as products of two thin ones (Vogels, Karimireddy, Jaggi 2019).
 *
 * For a gradient M of n x m and a rank r, one step of subspace iteration, begun with the Q (m x r)
 * that the last step ended with:
 *
 *   round 0   every node sends P = M Q; all add them and make the columns orthonormal (P^)
 *   round 1   every node sends Q = M' P^; all add them
 *   the sum   P^ (sum of Q)', which is P^ P^' (sum of M): the sum's part within the space of P^
 *   error     M - P^ Q', of the own Q
 *
 * As both products are linear in M the nodes' sums are what one node with the sum of all
 * gradients would have. Next step's Q is the sum's, columns made orthonormal so that numbers
 * neither grow nor vanish from step to step. A column that vanished is drawn anew.
 *
 * A matrix with n m <= r (n + m), and what is in no matrix, is sent as it is, in round 1.
 * Payload: round 0 P of all matrices (rows of r), round 1 Q' of all (r rows of m), then the rest.
 * Cost: 2 n m r multiplications to encode a round, as many to decode and to find the error.
 *
 * Within sums the order of additions is written out, so no instruction set changes the bits.
 */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "comm/codec_row.h"
#include "comm/wide.h"

enum { COLUMNS = 1024, MOST_RANK = 64 };

struct thin { /* a matrix that is sent as two */
    size_t offset, rows, cols, rank;
    size_t p_at, q_at; /* where its P and its Q begin */
};

struct span { /* sent as it is */
    size_t start, count;
};

struct low_rank {
    struct thin *matrices;
    struct span *spans;
    size_t n_matrices, n_spans;
    float *p,
        *q; /* of all matrices: P^ of this step, [rows][rank]; Q' of the last, [rank][cols] */
    size_t p_count, q_count, plain_count;
};

/* Products ----------------------------------------------------------------------------- */

static inline float total(const lanes *sums)
{
    float all[LANES];

    memcpy(all, sums, sizeof(all));
    for (int width = LANES / 2; width > 0; width /= 2)
        for (int i = 0; i < width; i++)
            all[i] += all[i + width];
    return all[0];
}

/* out[k] = row . q[k], for four k; q: rows of `count`. */
WIDEST static void dot_four(const float *restrict row, const float *restrict q, size_t count,
                            float *restrict out)
{
    lanes sums[4] = { { 0 }, { 0 }, { 0 }, { 0 } };
    size_t at = 0;

    for (; at + LANES <= count; at += LANES) {
        const lanes x = LANES_AT(row + at);
        sums[0] += x * LANES_AT(q + at);
        sums[1] += x * LANES_AT(q + count + at);
        sums[2] += x * LANES_AT(q + 2 * count + at);
        sums[3] += x * LANES_AT(q + 3 * count + at);
    }
    for (int k = 0; k < 4; k++) {
        out[k] = total(&sums[k]);
        for (size_t i = at; i < count; i++)
            out[k] += row[i] * q[(size_t)k * count + i];
    }
}

WIDEST static float dot_one(const float *restrict row, const float *restrict q, size_t count)
{
    lanes sums = { 0 };
    size_t at = 0;

    for (; at + LANES <= count; at += LANES)
        sums += LANES_AT(row + at) * LANES_AT(q + at);
    float result = total(&sums);
    for (; at < count; at++)
        result += row[at] * q[at];
    return result;
}

/* P = M Q */
static void multiply_q(const struct thin *thin, const float *m, const float *q, float *p)
{
    for (size_t row = 0; row < thin->rows; row++, m += thin->cols) {
        size_t k = 0;

        for (; k + 4 <= thin->rank; k += 4)
            dot_four(m, q + k * thin->cols, thin->cols, p + row * thin->rank + k);
        for (; k < thin->rank; k++)
            p[row * thin->rank + k] = dot_one(m, q + k * thin->cols, thin->cols);
    }
}

/* q[i] += p[0] m[i] + … + p[3 stride] m[3 rows on][i], one after another */
WIDEST static void add_four_rows(float *restrict q, const float *restrict m, size_t row_length,
                                 const float *restrict p, size_t stride, size_t count)
{
    const float *m1 = m + row_length, *m2 = m1 + row_length, *m3 = m2 + row_length;
    const float p0 = p[0], p1 = p[stride], p2 = p[2 * stride], p3 = p[3 * stride];

    for (size_t i = 0; i < count; i++)
        q[i] = q[i] + p0 * m[i] + p1 * m1[i] + p2 * m2[i] + p3 * m3[i];
}

WIDEST static void add_row(float *restrict q, const float *restrict m, float p, size_t count)
{
    for (size_t i = 0; i < count; i++)
        q[i] += p * m[i];
}

/* Q' = P^' M, some columns at a time so that they stay in the cache. */
static void multiply_p(const struct thin *thin, const float *m, const float *p, float *q)
{
    const size_t rank = thin->rank, cols = thin->cols;

    memset(q, 0, rank * cols * sizeof(float));
    for (size_t at = 0; at < cols; at += COLUMNS) {
        const size_t count = codec_smaller(COLUMNS, cols - at);
        size_t row = 0;

        for (; row + 4 <= thin->rows; row += 4)
            for (size_t k = 0; k < rank; k++)
                add_four_rows(q + k * cols + at, m + row * cols + at, cols, p + row * rank + k,
                              rank, count);
        for (; row < thin->rows; row++)
            for (size_t k = 0; k < rank; k++)
                add_row(q + k * cols + at, m + row * cols + at, p[row * rank + k], count);
    }
}

WIDEST static void scale_row(float *restrict out, const float *restrict q, float p,
                             size_t count)
{
    for (size_t i = 0; i < count; i++)
        out[i] = p * q[i];
}

WIDEST static void take_row_away(float *restrict out, const float *restrict row, size_t count)
{
    for (size_t i = 0; i < count; i++)
        out[i] -= row[i];
}

/* out = P^ Q, or out -= P^ Q. */
static void expand(const struct thin *thin, const float *p, const float *q, float *out,
                   bool is_difference)
{
    float line[COLUMNS];

    for (size_t at = 0; at < thin->cols; at += COLUMNS) {
        const size_t count = codec_smaller(COLUMNS, thin->cols - at);

        for (size_t row = 0; row < thin->rows; row++) {
            float *to = out + row * thin->cols + at, *sum = is_difference ? line : to;

            for (size_t k = 0; k < thin->rank; k++)
                (k == 0 ? scale_row : add_row)(sum, q + k * thin->cols + at,
                                               p[row * thin->rank + k], count);
            if (is_difference)
                take_row_away(to, line, count);
        }
    }
}

/* Orthonormal columns ------------------------------------------------------------------- */

/* Vectors of `count` elements: element i of vector k is data[k * next + i * step]. */
struct vectors {
    float *data;
    size_t n, count, next, step;
};

static double dot(const struct vectors *v, size_t k, size_t l)
{
    const float *a = v->data + k * v->next, *b = v->data + l * v->next;
    double sums[4] = { 0 };
    size_t i = 0;

    for (; i + 4 <= v->count; i += 4)
        for (size_t j = 0; j < 4; j++)
            sums[j] += (double)a[(i + j) * v->step] * (double)b[(i + j) * v->step];
    for (; i < v->count; i++)
        sums[0] += (double)a[i * v->step] * (double)b[i * v->step];
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

static void add_scaled(const struct vectors *v, size_t k, size_t l, double by)
{
    float *a = v->data + k * v->next;
    const float *b = v->data + l * v->next;

    for (size_t i = 0; i < v->count; i++)
        a[i * v->step] = (float)((double)a[i * v->step] + by * (double)b[i * v->step]);
}

/* Multiplies by 1/norm; a vector that is not longer than `least` becomes zero. Was it longer? */
static bool normalize(const struct vectors *v, size_t k, double least)
{
    const double norm = sqrt(dot(v, k, k));
    const bool is_there = !(norm <= least); /* a NaN is there */
    float *a = v->data + k * v->next;

    for (size_t i = 0; i < v->count; i++)
        a[i * v->step] = is_there ? (float)((double)a[i * v->step] / norm) : 0;
    return is_there;
}

/* Gram-Schmidt on vector k, those before it being done: made a unit vector first so that no
 * square is too small or too large, projected twice, as after one time rounding may leave what
 * is not orthogonal; what remains of less than 1e-4 of it is rounding, and becomes zero. */
static bool make_orthonormal(const struct vectors *v, size_t k)
{
    if (!normalize(v, k, 1e-30))
        return false;
    for (int time = 0; time < 2; time++)
        for (size_t l = 0; l < k; l++)
            add_scaled(v, k, l, -dot(v, k, l));
    return normalize(v, k, 1e-4);
}

/* Draws vector k of Q of a matrix: numbers of the seed, the matrix and k. */
static void draw(const struct vectors *v, size_t k, uint64_t seed, size_t matrix)
{
    struct rng rng;

    rng_init(&rng, seed, (uint64_t)matrix * MOST_RANK + k);
    for (size_t i = 0; i < v->count; i++)
        v->data[k * v->next + i * v->step] = (float)rng_normal(&rng);
}

/* Makes Q's columns orthonormal; draws those that are zero, as all are at first. */
static void prepare_q(const struct codec_state *state, size_t matrix)
{
    const struct thin *thin = &state->low_rank->matrices[matrix];
    const struct vectors v = { state->low_rank->q + thin->q_at, thin->rank, thin->cols,
                               thin->cols, 1 };

    for (size_t k = 0; k < v.n; k++) {
        if (make_orthonormal(&v, k))
            continue;
        draw(&v, k, state->config.seed, matrix);
        (void)make_orthonormal(&v, k);
    }
}

static void prepare_p(const struct thin *thin, float *p)
{
    const struct vectors v = { p, thin->rank, thin->rows, 1, thin->rank };

    for (size_t k = 0; k < v.n; k++)
        (void)make_orthonormal(&v, k);
}

/* Life --------------------------------------------------------------------------------- */

static bool pays(const struct codec_matrix *matrix, size_t rank)
{
    return matrix->rows * matrix->cols > rank * (matrix->rows + matrix->cols);
}

static void add_span(struct low_rank *low, size_t start, size_t end)
{
    if (end == start)
        return;
    low->spans[low->n_spans++] = (struct span){ start, end - start };
    low->plain_count += end - start;
}

/* Which matrices are sent as two, and what lies between them. */
static void divide(struct codec_state *state, const struct codec_layout *layout, size_t rank)
{
    struct low_rank *low = state->low_rank;
    size_t done = 0, next = 0;

    for (size_t i = 0; i < layout->n_matrices; i++) {
        const struct codec_matrix *matrix = &layout->matrices[i];
        struct thin *thin = &low->matrices[low->n_matrices];

        BUG_ON(matrix->offset < next || matrix->offset > state->count);
        BUG_ON(matrix->rows > 0 &&
               matrix->cols > (state->count - matrix->offset) / matrix->rows);
        next = matrix->offset + matrix->rows * matrix->cols;
        if (!pays(matrix, rank))
            continue;
        *thin = (struct thin){ matrix->offset, matrix->rows, matrix->cols,
                               rank,           low->p_count, low->q_count };
        low->p_count += thin->rows * rank;
        low->q_count += thin->cols * rank;
        low->n_matrices++;
        add_span(low, done, matrix->offset);
        done = next;
    }
    add_span(low, done, state->count);
}

static enum status create(struct codec_state *state, const struct codec_layout *layout)
{
    const size_t n = layout->n_matrices;
    struct low_rank *low;

    TRY(mem_alloc(1, sizeof(*low), &state->low_rank));
    low = state->low_rank;
    TRY(mem_alloc(n, sizeof(*low->matrices), &low->matrices));
    TRY(mem_alloc(n + 1, sizeof(*low->spans), &low->spans));
    divide(state, layout, (size_t)state->config.amount);
    TRY(mem_alloc(low->p_count, sizeof(float), &low->p));
    return mem_alloc(low->q_count, sizeof(float), &low->q);
}

static void release(struct codec_state *state)
{
    struct low_rank *low = state->low_rank;

    if (!low)
        return;
    mem_free(low->matrices);
    mem_free(low->spans);
    mem_free(low->p);
    mem_free(low->q);
    mem_free(low);
}

float *codec_powersgd_q(struct codec_state *state, size_t *out_count)
{
    *out_count = state->low_rank->q_count;
    return state->low_rank->q;
}

/* Rounds ------------------------------------------------------------------------------- */

static size_t bytes(const struct codec_state *state, int round)
{
    const struct low_rank *low = state->low_rank;

    return (round == 0 ? low->p_count : low->q_count + low->plain_count) * sizeof(float);
}

static void encode_p(struct codec_state *state, const float *gradient, float *payload)
{
    const struct low_rank *low = state->low_rank;

    codec_add(state->error, gradient, state->count);
    for (size_t i = 0; i < low->n_matrices; i++) {
        const struct thin *thin = &low->matrices[i];

        prepare_q(state, i);
        multiply_q(thin, state->error + thin->offset, low->q + thin->q_at,
                   payload + thin->p_at);
    }
}

static void encode_q(struct codec_state *state, float *payload)
{
    const struct low_rank *low = state->low_rank;
    float *plain = payload + low->q_count;

    for (size_t i = 0; i < low->n_matrices; i++) {
        const struct thin *thin = &low->matrices[i];
        float *m = state->error + thin->offset, *q = payload + thin->q_at;

        multiply_p(thin, m, low->p + thin->p_at, q);
        expand(thin, low->p + thin->p_at, q, m, true);
    }
    for (size_t i = 0; i < low->n_spans; i++) {
        const struct span span = low->spans[i];

        memcpy(plain, state->error + span.start, span.count * sizeof(float));
        memset(state->error + span.start, 0, span.count * sizeof(float));
        plain += span.count;
    }
}

static void encode(struct codec_state *state, int round, const float *gradient, void *payload)
{
    if (round == 0)
        encode_p(state, gradient, payload);
    else
        encode_q(state, payload);
}

/* to = sum of elements [at, at + count) of all payloads. */
static void add_payloads(const void *const payloads[], int n, size_t at, size_t count,
                         float *to)
{
    if (count > 0)
        memcpy(to, (const float *)payloads[0] + at, count * sizeof(float));
    for (int node = 1; node < n; node++)
        codec_add(to, (const float *)payloads[node] + at, count);
}

static void decode_p(struct codec_state *state, const void *const payloads[], int n)
{
    const struct low_rank *low = state->low_rank;

    add_payloads(payloads, n, 0, low->p_count, low->p);
    for (size_t i = 0; i < low->n_matrices; i++)
        prepare_p(&low->matrices[i], low->p + low->matrices[i].p_at);
}

static void decode_q(struct codec_state *state, const void *const payloads[], int n, float *sum)
{
    const struct low_rank *low = state->low_rank;
    size_t at = low->q_count;

    add_payloads(payloads, n, 0, low->q_count, low->q);
    for (size_t i = 0; i < low->n_matrices; i++) {
        const struct thin *thin = &low->matrices[i];
        expand(thin, low->p + thin->p_at, low->q + thin->q_at, sum + thin->offset, false);
    }
    for (size_t i = 0; i < low->n_spans; i++) {
        add_payloads(payloads, n, at, low->spans[i].count, sum + low->spans[i].start);
        at += low->spans[i].count;
    }
}

static void decode(struct codec_state *state, int round, const void *const payloads[], int n,
                   float *sum)
{
    if (round == 0)
        decode_p(state, payloads, n);
    else
        decode_q(state, payloads, n, sum);
}

const struct codec codec_powersgd = {
    .name = "powersgd",
    .summary = "matrices as products of two thin ones, found by subspace iteration",
    .amount = { "rank", 4, 1, MOST_RANK, true },
    .rounds = 2,
    .create = create,
    .release = release,
    .bytes = bytes,
    .encode = encode,
    .decode = decode,
};
