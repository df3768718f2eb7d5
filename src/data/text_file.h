/* SPDX-License-Identifier: MIT */
/* text_file.h - a text file, plain or packed, that is UTF-8 and not empty. Private to data/. */
#ifndef DATA_TEXT_FILE_H
#define DATA_TEXT_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/file.h"
#include "base/status.h"

struct text_file {
    char *path;
    const char *bytes;
    size_t length;
    struct file_map map;
    char *unpacked; /* NULL: mapped */
};

/* A file whose name ends in .gz is unpacked, another mapped. STATUS_CORRUPT with line and reason. */
MUST_CHECK enum status text_file_open(const char *path, struct text_file *out);
/* The same in a folder. */
MUST_CHECK enum status text_file_open_in(const char *folder, const char *name,
                                         struct text_file *out);
void text_file_close(struct text_file *file);
/* Checks text that is in memory already. */
MUST_CHECK enum status text_file_check(const char *path, const char *bytes, size_t length);

/* The line, from 1, that a byte is on. */
int64_t text_file_line(const struct text_file *file, const char *at);

/* Part of a file. */
struct text_span {
    const char *bytes;
    size_t length;
};
/* Lines, without their ends (\n or \r\n), which the caller frees with mem_free. */
MUST_CHECK enum status text_file_lines(const struct text_file *file, struct text_span **out,
                                       int64_t *out_count);

/* Is there FOLDER/NAME, or FOLDER/NAME.gz? Then `found` is its name. */
enum { TEXT_NAME = 256 };
bool text_file_find(const char *folder, const char *name, char found[TEXT_NAME]);
bool text_file_is_plain(const char *path); /* exists and is no folder */

/* Writes the file unpacked to the folder `target`. */
MUST_CHECK enum status text_file_copy(const char *folder, const char *name, const char *target);

#endif /* DATA_TEXT_FILE_H */
