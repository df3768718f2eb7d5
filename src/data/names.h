/* SPDX-License-Identifier: MIT */
/* names.h - a list of class names: a text file with a name a line. */
#ifndef DATA_NAMES_H
#define DATA_NAMES_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

struct names {
    const char **name; /* `count` of them, in `text` */
    int count;
    char *text;
};

/* Reads folder/file; blank lines at its end do not count. Without the file *out is empty.
 * STATUS_CORRUPT where a line is blank or holds what is no text. */
MUST_CHECK enum status names_read(const char *folder, const char *file, struct names *out);
/* The same from memory; `path` is named in messages. */
MUST_CHECK enum status names_parse(const char *path, const char *text, size_t length,
                                   struct names *out);
void names_release(struct names *names);

/* Writes folder/file for names_read. */
MUST_CHECK enum status names_write(const char *folder, const char *file,
                                   const char *const *name, int count);

/* Is it a name that fits on a line: UTF-8 without control characters, not empty? */
bool names_is_line(const char *text, size_t length);

#endif /* DATA_NAMES_H */
