/* SPDX-License-Identifier: MIT */
/* log.c - one line, one write. */
#include "base/log.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/utf8.h"

enum { PREFIX_BYTES = 32, LINE_BYTES = 2048 };

static _Atomic int level_shown = LOG_WARNING;
static pthread_mutex_t prefix_lock = PTHREAD_MUTEX_INITIALIZER;
static char prefix_text[PREFIX_BYTES]; /* guarded by prefix_lock */

static size_t add_prefix(char line[PREFIX_BYTES])
{
    pthread_mutex_lock(&prefix_lock);
    const size_t length = strlen(prefix_text);
    memcpy(line, prefix_text, length + 1);
    pthread_mutex_unlock(&prefix_lock);
    return length;
}

void log_set_level(enum log_level level)
{
    atomic_store_explicit(&level_shown, (int)level, memory_order_relaxed);
}

void log_set_prefix(const char *prefix)
{
    pthread_mutex_lock(&prefix_lock);
    snprintf(prefix_text, sizeof prefix_text, "%s", prefix);
    pthread_mutex_unlock(&prefix_lock);
}

void log_line(enum log_level level, const char *format, ...)
{
    static const char *const mark[] = { "warning: ", "", "debug: " };

    if ((int)level > atomic_load_explicit(&level_shown, memory_order_relaxed))
        return;

    const int error = errno; /* the caller may still want it */
    char line[LINE_BYTES];
    size_t length = add_prefix(line);
    const size_t marked = strlen(mark[level]);
    memcpy(line + length, mark[level], marked);
    length += marked;

    va_list args;
    va_start(args, format);
    const int added = vsnprintf(line + length, sizeof line - length, format, args);
    va_end(args);
    if (added > 0)
        length += (size_t)added;
    if (length > sizeof line - 1) { /* cut, and seen to be */
        length = sizeof line - 1;
        memcpy(line + length - 3, "...", 3);
    }

    utf8_blank_controls(line, length);
    line[length] = '\n';
    /* A message that cannot be written is lost: there is no one to tell. */
    while (write(STDERR_FILENO, line, length + 1) < 0 && errno == EINTR)
        ;
    errno = error;
}
