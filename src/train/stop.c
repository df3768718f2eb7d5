/* SPDX-License-Identifier: MIT */
/* stop.c - a handler that remembers the first signal and ends the process with the second. */
#include "train/stop.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"

enum { ECHO_MS = 1000, LINE = 1400, TRY_AGAIN = 3 };

static const int numbers[STOP_SIGNALS] = { SIGINT, SIGTERM, SIGHUP };

static volatile sig_atomic_t asked;
static int64_t asked_ns; /* for the handler alone */

/* The handler may run while the next line is written: it reads the other one. */
static char lines[2][LINE];
static const char *volatile line;

/* Ctrl-C ends a process as the shell expects, by the signal. The others ask for the same command
 * again. */
static void end_now(int number)
{
    const char *text = line;

    if (text) {
        const ssize_t written = write(STDERR_FILENO, text, strlen(text));
        (void)written;
        if (number != SIGINT)
            _exit(TRY_AGAIN);
    }
    (void)signal(number, SIG_DFL);
    (void)raise(number);
}

static void note(int number)
{
    const int64_t now = clock_ns();

    if (asked && now - asked_ns > (int64_t)ECHO_MS * 1000000) {
        end_now(number);
    } else if (!asked) {
        asked = number;
        asked_ns = now;
        (void)signal(SIGPIPE, SIG_IGN); /* who reads our lines may have got the signal, too */
    }
}

void stop_begin(struct stop_before *before)
{
    const struct sigaction action = { .sa_handler = note };

    for (int i = 0; i < STOP_SIGNALS; i++) {
        sigaction(numbers[i], NULL, &before->action[i]);
        if (numbers[i] != SIGHUP || before->action[i].sa_handler != SIG_IGN)
            sigaction(numbers[i], &action, NULL);
    }
}

void stop_end(const struct stop_before *before)
{
    for (int i = 0; i < STOP_SIGNALS; i++)
        sigaction(numbers[i], &before->action[i], NULL);
}

void stop_forget(void)
{
    asked = 0;
}

int stop_asked(void)
{
    return asked;
}

void stop_say(const char *text)
{
    char *next = lines[line == lines[0]];

    if (text)
        snprintf(next, LINE, "tutti: %s\n", text);
    line = text ? next : NULL;
}
