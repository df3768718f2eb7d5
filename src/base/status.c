/* SPDX-License-Identifier: MIT */
/* status.c - the failure text of a thread. */
#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

enum { TEXT_BYTES = 1024, ORIGIN_BYTES = 128 };

static _Thread_local char last_text[TEXT_BYTES];
static _Thread_local char last_origin[ORIGIN_BYTES];

/* Paths and peers' texts may hold line breaks and commands to a terminal; the record is one line. */
static void keep_text(const char *text)
{
    const size_t length = strnlen(text, TEXT_BYTES - 1);

    memmove(last_text, text, length);
    last_text[length] = '\0';
    utf8_blank_controls(last_text, length);
}

enum status status_fail(enum status status, const char *file, int line, const char *format, ...)
{
    char text[TEXT_BYTES]; /* an argument may be status_message() itself */
    va_list args;

    va_start(args, format);
    const int length = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    keep_text(length < 0 ? "the failure text could not be formatted" : text);
    snprintf(last_origin, sizeof last_origin, "%s:%d", file, line);
    return status;
}

const char *status_message(void)
{
    return last_text;
}

const char *status_origin(void)
{
    return last_origin;
}

enum status status_set(enum status status, const char *text)
{
    keep_text(text);
    last_origin[0] = '\0';
    return status;
}

const char *status_name(enum status status)
{
    switch (status) {
    case STATUS_OK:
        return "ok";
    case STATUS_PENDING:
        return "pending";
    case STATUS_USAGE:
        return "usage";
    case STATUS_NOT_FOUND:
        return "not found";
    case STATUS_CORRUPT:
        return "corrupt";
    case STATUS_IO:
        return "io";
    case STATUS_NO_MEMORY:
        return "no memory";
    case STATUS_PEER_LOST:
        return "peer lost";
    case STATUS_MISMATCH:
        return "mismatch";
    case STATUS_STOPPED:
        return "stopped";
    case STATUS_UNSUPPORTED:
        return "unsupported";
    case STATUS_PREEMPTED:
        return "preempted";
    }
    return "unknown status"; /* a number from a peer or a file */
}

void status_bug(const char *file, int line, const char *condition)
{
    fprintf(stderr, "tutti: bug at %s:%d: %s\n", file, line, condition);
    abort();
}
