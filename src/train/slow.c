/* SPDX-License-Identifier: MIT */
/* slow.c - one rank that is slower than the others. */
#include "train/slow.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static const double most = 1000;

enum status slow_parse(const char *text, int ranks, struct slow *out)
{
    struct slow slow = { .rank = -1, .factor = 1 };
    int end = 0;

    if (*text && (sscanf(text, "rank=%d,factor=%lf%n", &slow.rank, &slow.factor, &end) != 2 ||
                  text[end]))
        return FAIL(STATUS_USAGE, "--slow %s: must be like rank=2,factor=4", text);
    if (*text && (slow.rank < 0 || slow.rank >= ranks))
        return FAIL(STATUS_USAGE, "--slow %s: there are ranks 0 to %d", text, ranks - 1);
    if (!(slow.factor >= 1 && slow.factor <= most))
        return FAIL(STATUS_USAGE, "--slow %s: the factor must lie between 1 and %g", text,
                    most);
    *out = slow;
    return STATUS_OK;
}

void slow_down(const struct slow *slow, int rank, double computed)
{
    if (slow->rank != rank)
        return;
    const double seconds = (slow->factor - 1) * computed;
    struct timespec left = { .tv_sec = (time_t)seconds };

    left.tv_nsec = (long)((seconds - (double)left.tv_sec) * 1e9);
    while (nanosleep(&left, &left) != 0 && errno == EINTR)
        ;
}
