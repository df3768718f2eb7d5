/* SPDX-License-Identifier: MIT */
/* stop.c - a flag that a signal raises. */
#include "fed/stop.h"

#include <signal.h>
#include <stddef.h>

#include "base/clock.h"

enum { SLICE_MS = 50 };

static volatile sig_atomic_t asked;
static const int numbers[] = { SIGINT, SIGTERM, SIGHUP };
enum { NUMBERS = sizeof numbers / sizeof *numbers };
static struct sigaction old[NUMBERS];

static void ask(int number)
{
    asked = number;
}

void fed_stop_begin(void)
{
    const struct sigaction action = { .sa_handler = ask, .sa_flags = (int)SA_RESETHAND };

    asked = 0;
    for (int i = 0; i < NUMBERS; i++) {
        sigaction(numbers[i], &action, &old[i]);
        if (numbers[i] == SIGHUP && old[i].sa_handler == SIG_IGN) /* nohup has its way */
            sigaction(SIGHUP, &old[i], NULL);
    }
}

void fed_stop_end(void)
{
    for (int i = 0; i < NUMBERS; i++)
        sigaction(numbers[i], &old[i], NULL);
}

bool fed_stop_asked(void)
{
    return asked != 0;
}

enum status fed_stop_status(void)
{
    return asked == SIGINT || asked == 0 ? STATUS_STOPPED : STATUS_PREEMPTED;
}

bool fed_stop_sleep(double seconds)
{
    const double end = clock_seconds() + seconds;

    for (double left = seconds; left > 0 && !asked; left = end - clock_seconds())
        clock_sleep_ms(left * 1000 < SLICE_MS ? (int)(left * 1000) + 1 : SLICE_MS);
    return !asked;
}
