/* SPDX-License-Identifier: MIT */
/* libsvm.c - tables in LIBSVM's format: `label index:value index:value ...`, indices from 1, rising. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "data/cells.h"

struct pair {
    int64_t row;
    int column;
    const char *value;
};

struct reader {
    const char *path;
    int64_t line;
    struct cells *cells;
    const char **labels;
    int64_t max_rows;
    struct pair *pairs;
    int64_t n_pairs, max_pairs;
};

static enum status add_label(struct reader *r, const char *label)
{
    struct cells *c = r->cells;

    if (c->rows == r->max_rows) {
        const int64_t more = r->max_rows ? 2 * r->max_rows : 256;
        TRY(mem_grow(&c->line, (size_t)r->max_rows, (size_t)more, sizeof *c->line));
        TRY(mem_grow(&r->labels, (size_t)r->max_rows, (size_t)more, sizeof *r->labels));
        r->max_rows = more;
    }
    c->line[c->rows] = r->line;
    r->labels[c->rows++] = label;
    return STATUS_OK;
}

/* index:value; indices of a row rise, so `last` is the one before. */
static enum status add_pair(struct reader *r, char *word, long *last)
{
    char *colon = strchr(word, ':'), *end = NULL;
    double number;
    const long index = colon ? strtol(word, &end, 10) : 0;

    if (!colon || end != colon || index <= *last || index >= CELLS_COLUMNS ||
        !cell_number(colon + 1, &number))
        return FAIL(STATUS_CORRUPT,
                    "%s:%lld: \"%.32s\" is no index:value with an index above %ld, below %d",
                    r->path, (long long)r->line, word, *last, CELLS_COLUMNS);
    if (r->n_pairs == r->max_pairs) {
        const int64_t more = r->max_pairs ? 2 * r->max_pairs : 1024;
        TRY(mem_grow(&r->pairs, (size_t)r->max_pairs, (size_t)more, sizeof *r->pairs));
        r->max_pairs = more;
    }
    r->pairs[r->n_pairs++] = (struct pair){ r->cells->rows - 1, (int)index, colon + 1 };
    *last = index;
    if (index >= r->cells->columns)
        r->cells->columns = (int)index + 1;
    return STATUS_OK;
}

static enum status read_line(struct reader *r, char *line)
{
    char *rest = line, *word;
    bool is_first = true;
    long last = 0;

    line[strcspn(line, "#")] = '\0';
    while ((word = strsep(&rest, " \t\r"))) {
        if (!*word)
            continue;
        if (is_first && strpbrk(word, ":,"))
            return FAIL(STATUS_CORRUPT, "%s:%lld: begins with \"%.32s\": one class is expected",
                        r->path, (long long)r->line, word);
        if (is_first)
            TRY(add_label(r, word));
        else
            TRY(add_pair(r, word, &last));
        is_first = false;
    }
    return STATUS_OK;
}

static enum status fill_cells(struct reader *r)
{
    enum { NAME = 12 };
    struct cells *c = r->cells;
    const int64_t count = c->rows * c->columns;

    if (c->rows == 0)
        return FAIL(STATUS_CORRUPT, "%s: has no rows", r->path);
    if (count > CELLS_MOST)
        return FAIL(STATUS_CORRUPT, "%s: %lld rows of %d columns: more than %lld cells",
                    r->path, (long long)c->rows, c->columns, (long long)CELLS_MOST);
    TRY(mem_alloc((size_t)count, sizeof *c->cell, &c->cell));
    for (int64_t i = 0; i < count; i++)
        c->cell[i] = i % c->columns ? "0" : r->labels[i / c->columns];
    for (int64_t i = 0; i < r->n_pairs; i++)
        c->cell[r->pairs[i].row * c->columns + r->pairs[i].column] = r->pairs[i].value;
    TRY(mem_alloc((size_t)c->columns, sizeof *c->names, &c->names));
    TRY(mem_alloc((size_t)c->columns, NAME, &c->made));
    for (int i = 0; i < c->columns; i++) {
        char *name = c->made + (size_t)i * NAME;
        snprintf(name, NAME, i ? "%d" : "label", i);
        c->names[i] = name;
    }
    return STATUS_OK;
}

static enum status read_lines(struct reader *r, char *text)
{
    char *rest = text, *line;

    while ((line = strsep(&rest, "\n"))) {
        r->line++;
        TRY(read_line(r, line));
    }
    return fill_cells(r);
}

enum status libsvm_parse(const char *path, char *text, size_t length, int least,
                         struct cells *out)
{
    struct cells cells = { .text = text, .columns = least + 1 };
    struct reader reader = { .path = path, .cells = &cells };
    enum status status = cells_check_text(path, text, length);
    if (status == STATUS_OK)
        status = read_lines(&reader, text);

    mem_free(reader.labels);
    mem_free(reader.pairs);
    if (status != STATUS_OK) {
        cells_release(&cells);
        return status;
    }
    *out = cells;
    return STATUS_OK;
}
