/* SPDX-License-Identifier: MIT */
/* log.h - messages for people, on standard error, one line each.
 *
 * Levels by volume: a warning is worth a look at once; info tells a choice that
 * was made (algorithm, kernel, resume point), a few lines a run; debug may be many.
 * Threads: any. A line is written by one write call.
 */
#ifndef BASE_LOG_H
#define BASE_LOG_H

#include "base/status.h"

enum log_level { LOG_WARNING, LOG_INFO, LOG_DEBUG };

void log_set_level(enum log_level level); /* default LOG_WARNING */
/* Text put before each line, such as "rank 2: "; copied, at most 31 bytes. */
void log_set_prefix(const char *prefix);
void log_line(enum log_level level, const char *format, ...) PRINTF_LIKE(2, 3);

#endif /* BASE_LOG_H */
