/* SPDX-License-Identifier: MIT */
/* aggregate.c - many updates become one: the mean, or what a few liars cannot move far.
 *
 * median, trimmed (Yin et al. 2018): coordinate by coordinate. trimmed:B leaves out the floor(B n) smallest and as many of
 * the largest. krum (Blanchard et al. 2017): the update whose squared distances to its n - f - 2 nearest others add up
 * to least; multikrum: the mean of the m that have least. Ties go to the participant that comes first.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "fed/algorithm.h"

enum status fed_mean_init(struct fed_mean *mean, size_t length)
{
    *mean = (struct fed_mean){ .length = length };
    return mem_alloc(length, sizeof *mean->sum, &mean->sum);
}

void fed_mean_release(struct fed_mean *mean)
{
    mem_free(mean->sum);
    *mean = (struct fed_mean){ 0 };
}

void fed_mean_add(struct fed_mean *mean, const float *update, double weight)
{
    for (size_t i = 0; i < mean->length; i++)
        mean->sum[i] += weight * (double)update[i];
    mean->weight += weight;
}

void fed_mean_end(const struct fed_mean *mean, double weight, float *out)
{
    const double by = weight != 0 ? weight : mean->weight;

    for (size_t i = 0; i < mean->length; i++)
        out[i] = (float)(mean->sum[i] / by);
}

static enum status run_mean(const struct fed_aggregation *how, const float *const *updates,
                            int n, size_t length, float *out)
{
    struct fed_mean mean;

    (void)how;
    TRY(fed_mean_init(&mean, length));
    for (int i = 0; i < n; i++)
        fed_mean_add(&mean, updates[i], 1);
    fed_mean_end(&mean, 0, out);
    fed_mean_release(&mean);
    return STATUS_OK;
}

/* Coordinate by coordinate ---------------------------------------------------------------------- */

static int compare_floats(const void *a, const void *b)
{
    float left, right;

    memcpy(&left, a, sizeof left);
    memcpy(&right, b, sizeof right);
    return (left > right) - (left < right);
}

/* The mean of the middle: without `cut` numbers at each end. */
static enum status run_middle(const float *const *updates, int n, int cut, size_t length,
                              float *out)
{
    float *column;

    TRY(mem_alloc((size_t)n, sizeof *column, &column));
    for (size_t i = 0; i < length; i++) {
        double sum = 0;
        for (int k = 0; k < n; k++)
            column[k] = updates[k][i];
        qsort(column, (size_t)n, sizeof *column, compare_floats);
        for (int k = cut; k < n - cut; k++)
            sum += (double)column[k];
        out[i] = (float)(sum / (n - 2 * cut));
    }
    mem_free(column);
    return STATUS_OK;
}

static enum status run_median(const struct fed_aggregation *how, const float *const *updates,
                              int n, size_t length, float *out)
{
    (void)how;
    return run_middle(updates, n, (n - 1) / 2, length, out);
}

static enum status run_trimmed(const struct fed_aggregation *how, const float *const *updates,
                               int n, size_t length, float *out)
{
    return run_middle(updates, n, (int)(how->share * n), length, out);
}

/* By distances ---------------------------------------------------------------------------------- */

static double distance(const float *a, const float *b, size_t length)
{
    double sum = 0;

    for (size_t i = 0; i < length; i++) {
        const double d = (double)a[i] - (double)b[i];
        sum += d * d;
    }
    return sum;
}

static int compare_doubles(const void *a, const void *b)
{
    double left, right;

    memcpy(&left, a, sizeof left);
    memcpy(&right, b, sizeof right);
    return (left > right) - (left < right);
}

/* Each update's sum of distances to its `near` nearest others. */
static enum status krum_scores(const float *const *updates, int n, int near, size_t length,
                               double *scores)
{
    const size_t size = (size_t)n;
    double *table, *row;

    TRY(mem_alloc(size * size + size, sizeof *table, &table));
    row = table + size * size;
    for (size_t i = 0; i < size; i++) {
        for (size_t k = i + 1; k < size; k++)
            table[i * size + k] = table[k * size + i] =
                distance(updates[i], updates[k], length);
    }
    for (size_t i = 0; i < size; i++) {
        size_t others = 0;
        for (size_t k = 0; k < size; k++) {
            if (k != i)
                row[others++] = table[i * size + k];
        }
        qsort(row, others, sizeof *row, compare_doubles);
        scores[i] = 0;
        for (int k = 0; k < near; k++)
            scores[i] += row[k];
    }
    mem_free(table);
    return STATUS_OK;
}

static enum status mean_of_best(const float *const *updates, int n, int chosen, double *scores,
                                size_t length, float *out)
{
    struct fed_mean mean;

    TRY(fed_mean_init(&mean, length));
    for (int c = 0; c < chosen; c++) {
        int best = 0;
        for (int i = 1; i < n; i++)
            best = scores[i] < scores[best] ? i : best;
        fed_mean_add(&mean, updates[best], 1);
        scores[best] = INFINITY;
    }
    fed_mean_end(&mean, 0, out);
    fed_mean_release(&mean);
    return STATUS_OK;
}

static enum status run_krum(const struct fed_aggregation *how, const float *const *updates,
                            int n, size_t length, float *out)
{
    const int near = n - how->faulty - 2;
    const int chosen = how->chosen ? how->chosen : 1;
    double *scores;

    if (n < fed_aggregation_least(how))
        return FAIL(STATUS_USAGE,
                    "%s of %d updates with %d liars: it needs twice as many and 3 more, and "
                    "takes no more than there are",
                    how->kind->name, n, how->faulty);
    TRY(mem_alloc((size_t)n, sizeof *scores, &scores));
    enum status status = krum_scores(updates, n, near, length, scores);
    if (status == STATUS_OK)
        status = mean_of_best(updates, n, chosen, scores, length, out);
    mem_free(scores);
    return status;
}

static const struct fed_aggregation_kind mean = {
    .name = "mean",
    .summary = "by samples, or all alike",
    .run = run_mean,
};
static const struct fed_aggregation_kind median = {
    .name = "median",
    .summary = "of each coordinate",
    .is_robust = true,
    .run = run_median,
};
static const struct fed_aggregation_kind trimmed = {
    .name = "trimmed",
    .summary = "mean of each coordinate without a share of the smallest and of the largest",
    .n_numbers = 1,
    .is_robust = true,
    .run = run_trimmed,
};
static const struct fed_aggregation_kind krum = {
    .name = "krum",
    .summary = "the update that is nearest to the others, of which F may lie",
    .n_numbers = 1,
    .is_robust = true,
    .run = run_krum,
};
static const struct fed_aggregation_kind multikrum = {
    .name = "multikrum",
    .summary = "the mean of the M updates that are nearest to the others, of which F may lie",
    .n_numbers = 2,
    .is_robust = true,
    .run = run_krum,
};

const struct fed_aggregation_kind *const fed_aggregations[] = { &mean, &median,    &trimmed,
                                                                &krum, &multikrum, NULL };

static enum status bad(const char *text)
{
    return FAIL(STATUS_USAGE,
                "--aggregate %.40s: mean, median, trimmed:SHARE (below 0.5), krum:F or "
                "multikrum:F,M",
                text);
}

/* The numbers after the name. */
static enum status read_numbers(const char *text, const char *rest, struct fed_aggregation *out)
{
    char *end;

    if (out->kind == &trimmed) {
        out->share = strtod(rest, &end);
        return end != rest && !*end && out->share >= 0 && out->share < 0.5 ? STATUS_OK
                                                                           : bad(text);
    }
    const long faulty = strtol(rest, &end, 10);
    if (end == rest || faulty < 0 || faulty > 1 << 16)
        return bad(text);
    out->faulty = (int)faulty;
    if (out->kind == &krum)
        return *end ? bad(text) : STATUS_OK;
    if (*end != ',')
        return bad(text);
    rest = end + 1;
    const long chosen = strtol(rest, &end, 10);
    if (end == rest || *end || chosen < 1 || chosen > 1 << 16)
        return bad(text);
    out->chosen = (int)chosen;
    return STATUS_OK;
}

int fed_aggregation_least(const struct fed_aggregation *how)
{
    const int least = 2 * how->faulty + 3;

    if (how->kind->run != run_krum)
        return 1;
    return how->chosen > least ? how->chosen : least;
}

enum status fed_aggregation_parse(const char *text, struct fed_aggregation *out)
{
    const char *colon = strchr(text, ':');
    const size_t length = colon ? (size_t)(colon - text) : strlen(text);
    struct fed_aggregation how = { 0 };

    for (int i = 0; fed_aggregations[i]; i++) {
        const struct fed_aggregation_kind *kind = fed_aggregations[i];
        if (strncmp(kind->name, text, length) == 0 && kind->name[length] == '\0')
            how.kind = kind;
    }
    if (!how.kind || (how.kind->n_numbers > 0) != (colon != NULL))
        return bad(text);
    if (colon)
        TRY(read_numbers(text, colon + 1, &how));
    *out = how;
    return STATUS_OK;
}
