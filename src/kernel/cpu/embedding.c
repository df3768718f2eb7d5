/* SPDX-License-Identifier: MIT */
/* embedding.c - rows of a table by number: their copies, means and sums, and the order of ids.
 *
 * All of it is bound by memory: rows stand anywhere in a table, so the next ones are asked for while
 * one is worked on. Sums of rows are those of sum_rows.h, in the order of the ids.
 *
 * Bytes for n ids of D columns and V rows: embedding 8 n D, embedding_mean 4 n D, embedding_grad
 * 12 n D and 4 V D, rows_sort some 40 n.
 */
#include <math.h>
#include <string.h>

#include "kernel/cpu/rows.h"
#include "kernel/cpu/sum_rows.h"

/* Rows ahead of the one that is worked on that are asked for. */
enum { AHEAD = SUM_AHEAD };

/* Copies --------------------------------------------------------------------------------- */

static void fill(float *y, size_t count, float value)
{
    for (size_t j = 0; j < count; j++)
        y[j] = value;
}

static void embedding_range(const struct kernel_call *call, size_t from, size_t to)
{
    const size_t rows = (size_t)call->problem->in[1].shape.dim[0];
    const size_t d = (size_t)call->problem->in[1].shape.dim[1];
    const int32_t *ids = call->in[0];
    const float *table = call->in[1];
    float *y = (float *)call->out[0] + from * d;

    for (size_t i = from; i < to; i++, y += d) {
        if (i + AHEAD < to && (uint32_t)ids[i + AHEAD] < rows)
            fetch_row(table + (size_t)ids[i + AHEAD] * d, d);
        if ((uint32_t)ids[i] < rows)
            memcpy(y, table + (size_t)ids[i] * d, d * sizeof *y);
        else
            fill(y, d, ids[i] < 0 ? 0 : NAN);
    }
}

static void run_embedding(const struct kernel_call *call)
{
    simd_for(call, (size_t)shape_count(&call->problem->in[0].shape),
             (size_t)call->problem->in[1].shape.dim[1], embedding_range);
}

/* Means ---------------------------------------------------------------------------------- */

struct counts {
    int counted; /* ids from 0 on */
    int beyond;  /* ids that are no rows */
};

static struct counts count_ids(const int32_t *ids, size_t length, int64_t rows)
{
    struct counts counts = { 0 };

    for (size_t t = 0; t < length; t++) {
        counts.counted += ids[t] >= 0;
        counts.beyond += ids[t] >= rows;
    }
    return counts;
}

static void mean_range(const struct kernel_call *call, size_t from, size_t to)
{
    const int64_t n_rows = call->problem->in[1].shape.dim[0];
    const size_t d = (size_t)call->problem->in[1].shape.dim[1];
    const size_t length = (size_t)call->problem->in[0].shape.dim[1];

    for (size_t i = from; i < to; i++) {
        const int32_t *ids = (const int32_t *)call->in[0] + i * length;
        const struct counts counts = count_ids(ids, length, n_rows);
        float *y = (float *)call->out[0] + i * d;
        const struct kernel_row_list rows = { call->in[1], ids, length, length };

        if (counts.beyond)
            fill(y, d, NAN);
        else
            sum_rows(&rows, 1, 1, d, counts.counted ? (float)counts.counted : 1, y);
    }
}

static void run_embedding_mean(const struct kernel_call *call)
{
    const struct shape *ids = &call->problem->in[0].shape;

    simd_for(call, (size_t)ids->dim[0],
             (size_t)(ids->dim[1] * call->problem->in[1].shape.dim[1]), mean_range);
}

static void mean_grad_range(const struct kernel_call *call, size_t from, size_t to)
{
    const size_t d = (size_t)call->problem->in[0].shape.dim[1];
    const size_t length = (size_t)call->problem->in[1].shape.dim[1];

    for (size_t i = from; i < to; i++) {
        const int32_t *ids = (const int32_t *)call->in[1] + i * length;
        const int counted = count_ids(ids, length, INT32_MAX).counted;
        const float *dy = (const float *)call->in[0] + i * d;
        float *share = (float *)call->out[0] + i * d;

        if (counted == 0)
            fill(share, d, 0);
        else
            for (size_t j = 0; j < d; j++)
                share[j] = dy[j] / (float)counted;
    }
}

static void run_embedding_mean_grad(const struct kernel_call *call)
{
    const struct shape *dy = &call->problem->in[0].shape;

    simd_for(call, (size_t)dy->dim[0], (size_t)dy->dim[1], mean_grad_range);
}

/* The gradient of a whole table ---------------------------------------------------------- */

/* A task has some columns of all rows, so that no row is added to by two of them. */
struct scatter {
    const struct kernel_call *call;
    size_t d, piece; /* columns, and those of a task */
};

static void begin_rows(const struct scatter *scatter, size_t column, size_t width)
{
    const struct kernel_call *call = scatter->call;
    const size_t rows = (size_t)call->problem->out[0].shape.dim[0];
    const float *base = call->problem->n_in > 2 ? call->in[2] : NULL;
    float *dw = call->out[0];

    if (base && base == dw)
        return;
    for (size_t at = column; at < rows * scatter->d; at += scatter->d) {
        if (base)
            memcpy(dw + at, base + at, width * sizeof *dw);
        else
            memset(dw + at, 0, width * sizeof *dw);
    }
}

static void scatter_columns(void *arg, size_t task)
{
    const struct scatter *scatter = arg;
    const struct kernel_call *call = scatter->call;
    const struct kernel_problem *problem = call->problem;
    const size_t rows = (size_t)problem->out[0].shape.dim[0], d = scatter->d;
    const size_t column = task * scatter->piece, width = simd_min(d - column, scatter->piece);
    const size_t n = (size_t)problem->in[1].shape.dim[0];
    const size_t length = (size_t)problem->in[1].shape.dim[1];
    const bool by_sample = problem->in[0].shape.rank == 2;
    const int32_t *ids = call->in[1];
    const float *dy = (const float *)call->in[0] + column;
    float *dw = (float *)call->out[0] + column;

    begin_rows(scatter, column, width);
    for (size_t i = 0; i < n; i++) {
        for (size_t t = 0; t < length; t++, ids++) {
            const bool ahead = i * length + t + AHEAD < n * length;
            if (ahead && (uint32_t)ids[AHEAD] < rows)
                fetch_row(dw + (size_t)ids[AHEAD] * d, width);
            if ((uint32_t)*ids >= rows)
                continue;
            const float *x = dy + (by_sample ? i : i * length + t) * d;
            float *row = dw + (size_t)*ids * d;
#pragma omp simd
            for (size_t j = 0; j < width; j++)
                row[j] += x[j];
        }
    }
}

static void run_embedding_grad(const struct kernel_call *call)
{
    const size_t d = (size_t)call->problem->out[0].shape.dim[1];
    const size_t threads = call->pool ? (size_t)pool_size(call->pool) : 1;
    const size_t lines = (d + LINE - 1) / LINE;
    struct scatter scatter = { call, d, (lines + threads - 1) / threads * LINE };

    pool_for(call->pool, (d + scatter.piece - 1) / scatter.piece, scatter_columns, &scatter);
}

/* The order of ids ----------------------------------------------------------------------- */

/* Digits are sorted by, from the lowest to the highest, each time keeping the order of what is equal. A
 * list is worked on in as many chunks as tasks can be: a chunk counts its digits, and these counts
 * say where in the next list its pairs go. One task has one chunk, whose counts do not depend on the
 * order of the list, so that all digits are counted at once. */
enum { DIGIT = 8, DIGITS = 1 << DIGIT, PASSES = 4, CHUNK = 8192, CHUNKS = 8 };

struct pair {
    int32_t id, row;
};

struct sort {
    const struct kernel_call *call;
    size_t count, chunks;
    size_t rows, length;
    bool by_sample;
    const struct pair *from; /* NULL: the ids themselves */
    struct pair *to;
    unsigned shift;
    uint32_t (*places)[DIGITS]; /* of each chunk: how many of a digit, then where they go */
};

INLINE uint32_t digit_of(int32_t id, unsigned shift)
{
    return (uint32_t)id >> shift & (DIGITS - 1);
}

/* An id that is no row comes after all that are. */
INLINE int32_t key_of(int32_t id, size_t rows)
{
    return (uint32_t)id < rows ? id : (int32_t)rows;
}

INLINE void count_digits(const struct sort *sort, const unsigned passes)
{
    const int32_t *restrict ids = sort->call->in[0];
    uint32_t(*restrict places)[DIGITS] = sort->places;
    const size_t count = sort->count, rows = sort->rows;

    memset(places, 0, passes * sizeof *places);
    for (size_t i = 0; i < count; i++) {
        const int32_t id = key_of(ids[i], rows);

#pragma GCC unroll 4
        for (unsigned pass = 0; pass < passes; pass++)
            places[pass][digit_of(id, pass * DIGIT)]++;
    }
}

/* All digits of the one chunk there is, in a table of counts each. */
static void count_all(const struct sort *sort, unsigned passes)
{
    switch (passes) {
    case 1:
        count_digits(sort, 1);
        break;
    case 2:
        count_digits(sort, 2);
        break;
    case 3:
        count_digits(sort, 3);
        break;
    default:
        count_digits(sort, PASSES);
    }
}

static void count_chunk(void *arg, size_t chunk)
{
    const struct sort *sort = arg;
    const size_t begin = chunk * sort->count / sort->chunks;
    const size_t end = (chunk + 1) * sort->count / sort->chunks;
    const int32_t *ids = sort->call->in[0];
    uint32_t *places = sort->places[chunk];

    memset(places, 0, sizeof sort->places[chunk]);
    for (size_t i = begin; i < end; i++)
        places[digit_of(sort->from ? sort->from[i].id : key_of(ids[i], sort->rows),
                        sort->shift)]++;
}

/* Ids [begin, end) of the list that is to be sorted, each with its row of dy. */
static void place_ids(const struct sort *sort, size_t begin, size_t end,
                      uint32_t *restrict places)
{
    const int32_t *restrict ids = sort->call->in[0];
    struct pair *restrict to = sort->to;
    const size_t rows = sort->rows, length = sort->length;
    const unsigned shift = sort->shift;
    const bool by_sample = sort->by_sample;

    for (size_t i = begin, stop; i < end; i = stop) {
        const size_t sample = i / length;
        stop = simd_min((sample + 1) * length, end);
        for (size_t at = i; at < stop; at++) {
            const int32_t id = key_of(ids[at], rows);
            to[places[digit_of(id, shift)]++] =
                (struct pair){ id, (int32_t)(by_sample ? sample : at) };
        }
    }
}

static void place_pairs(const struct sort *sort, size_t begin, size_t end,
                        uint32_t *restrict places)
{
    const struct pair *restrict from = sort->from;
    struct pair *restrict to = sort->to;
    const unsigned shift = sort->shift;

    for (size_t i = begin; i < end; i++) {
        const struct pair pair = from[i];
        to[places[digit_of(pair.id, shift)]++] = pair;
    }
}

static void place_chunk(void *arg, size_t chunk)
{
    const struct sort *sort = arg;
    const size_t begin = chunk * sort->count / sort->chunks;
    const size_t end = (chunk + 1) * sort->count / sort->chunks;

    (sort->from ? place_pairs : place_ids)(sort, begin, end, sort->places[chunk]);
}

/* Counts become places: digit by digit, and of each digit chunk by chunk. */
static void add_places(const struct sort *sort)
{
    uint32_t at = 0;

    for (size_t digit = 0; digit < DIGITS; digit++) {
        for (size_t chunk = 0; chunk < sort->chunks; chunk++) {
            const uint32_t count = sort->places[chunk][digit];
            sort->places[chunk][digit] = at;
            at += count;
        }
    }
}

static size_t chunks_of(size_t count)
{
    return count < CHUNK ? 1 : simd_min(count / CHUNK, CHUNKS);
}

static size_t sort_scratch(const struct kernel_problem *problem)
{
    const size_t count = (size_t)shape_count(&problem->in[0].shape);

    return (chunks_of(count) < PASSES ? PASSES : chunks_of(count)) * sizeof(uint32_t[DIGITS]) +
           count * sizeof(struct pair);
}

/* First of the sorted pairs from `low` on whose id is not below `id`. */
static size_t first_from(const struct pair *pairs, size_t low, size_t high, int64_t id)
{
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (pairs[middle].id < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void run_rows_sort(const struct kernel_call *call)
{
    const struct kernel_problem *problem = call->problem;
    const size_t count = (size_t)shape_count(&problem->in[0].shape);
    struct pair *order = call->out[0];
    int32_t *begin = call->out[1];
    struct sort sort = { .call = call,
                         .count = count,
                         .chunks = call->pool ? chunks_of(count) : 1,
                         .rows = (size_t)problem->attrs.rows,
                         .length = (size_t)problem->in[0].shape.dim[1],
                         .by_sample = problem->attrs.by_sample,
                         .places = call->scratch };
    struct pair *other = (struct pair *)((uint32_t(*)[DIGITS])call->scratch +
                                         (sort.chunks < PASSES ? PASSES : sort.chunks));
    unsigned passes = 1;

    while (passes < PASSES && sort.rows >> passes * DIGIT)
        passes++;
    if (sort.chunks == 1)
        count_all(&sort, passes);
    for (unsigned pass = 0; pass < passes; pass++) {
        sort.to = (passes - pass) % 2 ? order : other; /* the last pass ends in `order` */
        sort.shift = pass * DIGIT;
        if (sort.chunks > 1)
            pool_for(call->pool, sort.chunks, count_chunk, &sort);
        else if (pass > 0)
            sort.places++;
        add_places(&sort);
        pool_for(call->pool, sort.chunks, place_chunk, &sort);
        sort.from = sort.to;
    }

    const int64_t block = (problem->attrs.rows + ROWS_BLOCKS - 1) / ROWS_BLOCKS;
    const size_t kept = first_from(order, 0, count, problem->attrs.rows);
    size_t at = 0;
    for (int b = 0; b <= ROWS_BLOCKS; b++) {
        at = first_from(order, at, kept, b * block);
        begin[b] = (int32_t)at;
    }
    memset(order + kept, -1, (count - kept) * sizeof *order);
}

const struct kernel SIMD_TABLE(kernel_embedding_rows)[] = {
    { .op = "embedding", .name = "own", .run = run_embedding },
    { .op = "embedding_grad", .name = "own", .run = run_embedding_grad },
    { .op = "embedding_mean", .name = "own", .run = run_embedding_mean },
    { .op = "embedding_mean_grad", .name = "own", .run = run_embedding_mean_grad },
    { .op = "rows_sort", .name = "own", .scratch_bytes = sort_scratch, .run = run_rows_sort },
    { 0 },
};
