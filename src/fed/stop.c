/* SPDX-License-Identifier: MIT */
/* stop.c - a flag that a signal raises. */
#include "fed/stop.h"

#include <signal.h>
#include <stddef.h>

#include "base/clock.h"

enum { SLICE_MS = 50 };

static volatile sig_atomic_t asked;
static struct sigaction old_int, old_term;

static void ask(int number)
{
    (void)number;
    asked = 1;
}

void fed_stop_begin(void)
{
    const struct sigaction action = { .sa_handler = ask, .sa_flags = (int)SA_RESETHAND };

    asked = 0;
    sigaction(SIGINT, &action, &old_int);
    sigaction(SIGTERM, &action, &old_term);
}

void fed_stop_end(void)
{
    sigaction(SIGINT, &old_int, NULL);
    sigaction(SIGTERM, &old_term, NULL);
}

bool fed_stop_asked(void)
{
    return asked;
}

bool fed_stop_sleep(double seconds)
{
    const double end = clock_seconds() + seconds;

    for (double left = seconds; left > 0 && !asked; left = end - clock_seconds())
        clock_sleep_ms(left * 1000 < SLICE_MS ? (int)(left * 1000) + 1 : SLICE_MS);
    return !asked;
}
