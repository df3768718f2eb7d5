/* SPDX-License-Identifier: MIT */
/* cells.h - a table as its file has it: texts in rows and columns. Private to data/.
 *
 * Two formats are read. CSV: cells between commas (or semicolons or tabs, whichever the first line
 * has most of), in quotes where they hold those, line ends or quotes, which are doubled then;
 * spaces around a cell are not of it; the first line names the columns if none of its cells is a
 * number, none is missing unless another stands above numbers, and most do not occur again below.
 * LIBSVM: a label, then index:value for what is not 0; columns are called label, 1, 2, 3 and so
 * on.
 */
#ifndef DATA_CELLS_H
#define DATA_CELLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum { CELLS_COLUMNS = 1 << 14, CELLS_NAME = 64, CELLS_DIGITS = 15 };
#define CELLS_BYTES ((size_t)1 << 31) /* of a file */
#define CELLS_MOST ((int64_t)1 << 27) /* cells */
#define CELLS_NUMBER 1e25             /* larger ones are no numbers */

struct cells {
    char *text; /* owned: what cells point into */
    int64_t rows;
    int columns;
    const char **names; /* `columns` of them, or NULL */
    const char **cell;  /* rows * columns */
    int64_t *line;      /* of the file, of each row */
    char *made;         /* names that no file has */
    int nameless;       /* last column, from 1, that lacks a name among others; 0: none */
};

/* Each takes text[0..length], text[length] being 0, even on failure. `path` is for messages, which name
 * line and column. */
MUST_CHECK enum status csv_parse(const char *path, char *text, size_t length,
                                 struct cells *out);
/* `least`: columns there are besides the label, if the file does not have all. */
MUST_CHECK enum status libsvm_parse(const char *path, char *text, size_t length, int least,
                                    struct cells *out);
void cells_release(struct cells *cells);

/* Refuses what is no text: zeros, bytes that are not UTF-8. */
MUST_CHECK enum status cells_check_text(const char *path, const char *text, size_t length);
/* Is it nothing, ?, NA, NaN or null? */
bool cell_is_missing(const char *text);
/* Decimal, at most CELLS_NUMBER, nothing after it. */
bool cell_number(const char *text, double *out);
/* Are two texts the same, or the same number ("1" and "1.0")? Numbers of more digits than a double
 * keeps are the same only as texts. */
bool cells_are_same(const char *a, const char *b);

#endif /* DATA_CELLS_H */
