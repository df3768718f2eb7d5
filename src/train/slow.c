/* SPDX-License-Identifier: MIT */
/* slow.c - one rank that is slower than the others. */
#include "train/slow.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const double most = 1000;

static bool read_numbers(const char *text, struct slow *out)
{
    int end = 0;

    if (sscanf(text, "rank=%d,factor=%lf%n", &out->rank, &out->factor, &end) != 2)
        return false;
    if (!text[end])
        return true;
    const char *rest = text + end;
    end = 0;
    return sscanf(rest, ",all=%lf%n", &out->all, &end) == 1 && !rest[end];
}

enum status slow_parse(const char *text, int ranks, struct slow *out)
{
    struct slow slow = { .rank = -1, .factor = 1, .all = 1 };

    if (*text && !read_numbers(text, &slow))
        return FAIL(STATUS_USAGE, "--slow %s: must be like rank=2,factor=4", text);
    if (*text && (slow.rank < 0 || slow.rank >= ranks))
        return FAIL(STATUS_USAGE, "--slow %s: there are ranks 0 to %d", text, ranks - 1);
    if (!(slow.factor >= 1 && slow.factor <= most && slow.all >= 1 && slow.all <= most))
        return FAIL(STATUS_USAGE, "--slow %s: factors must lie between 1 and %g", text, most);
    *out = slow;
    return STATUS_OK;
}

static double factor_of(const struct slow *slow, int rank)
{
    return slow->rank == rank ? slow->factor * slow->all : slow->all;
}

bool slow_is(const struct slow *slow, int rank)
{
    return factor_of(slow, rank) > 1;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median_of(const struct slow_steps *steps)
{
    const int count = steps->count < SLOW_STEPS ? (int)steps->count : SLOW_STEPS;
    double sorted[SLOW_STEPS];

    memcpy(sorted, steps->seconds, sizeof sorted);
    qsort(sorted, (size_t)count, sizeof *sorted, compare);
    return sorted[count / 2];
}

void slow_down(const struct slow *slow, int rank, double computed, struct slow_steps *steps)
{
    steps->seconds[steps->count++ % SLOW_STEPS] = computed;
    const double seconds = (factor_of(slow, rank) - 1) * median_of(steps);
    struct timespec left = { .tv_sec = (time_t)seconds };

    left.tv_nsec = (long)((seconds - (double)left.tv_sec) * 1e9);
    while (nanosleep(&left, &left) != 0 && errno == EINTR)
        ;
}
