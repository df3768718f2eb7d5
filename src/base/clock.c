/* SPDX-License-Identifier: MIT */
/* clock.c - CLOCK_MONOTONIC. */
#include "base/clock.h"

#include "base/status.h"

#include <errno.h>
#include <time.h>

int64_t clock_ns(void)
{
    struct timespec now;

    BUG_ON(clock_gettime(CLOCK_MONOTONIC, &now) != 0);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

double clock_seconds(void)
{
    return (double)clock_ns() * 1e-9;
}

void clock_sleep_ms(int ms)
{
    struct timespec left = { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L };

    while (ms > 0 && nanosleep(&left, &left) != 0 && errno == EINTR)
        ;
}
