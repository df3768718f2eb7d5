/* SPDX-License-Identifier: MIT */
/* csv.c - tables of texts between separators (RFC 4180, and what people write).
 *
 * The text is cut in place: where a cell ends stands a 0, and what quotes hide moves left. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "data/cells.h"

bool cell_is_missing(const char *text)
{
    static const char *const texts[] = { "", "?", "NA", "N/A", "NaN", "nan", "null" };

    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        if (strcmp(text, texts[i]) == 0)
            return true;
    }
    return false;
}

bool cell_number(const char *text, double *out)
{
    char *end;

    if (!*text || text[strspn(text, "0123456789+-.eE")])
        return false;
    *out = strtod(text, &end);
    return end != text && !*end && fabs(*out) <= CELLS_NUMBER;
}

/* Digits from the first that is not 0 on, those of an exponent included. */
static int digits_of(const char *text)
{
    int count = 0;

    for (; *text; text++)
        count += *text >= (count ? '0' : '1') && *text <= '9';
    return count;
}

bool cells_are_same(const char *a, const char *b)
{
    double x, y;

    return strcmp(a, b) == 0 ||
           (cell_number(a, &x) && cell_number(b, &y) && x == y &&
            (digits_of(a) <= CELLS_DIGITS || digits_of(b) <= CELLS_DIGITS));
}

enum status cells_check_text(const char *path, const char *text, size_t length)
{
    if (memchr(text, 0, length))
        return FAIL(STATUS_CORRUPT, "%s: holds a zero byte: no text", path);
    for (size_t at = 0; at < length;) {
        const size_t bytes = utf8_span(text + at, length - at);
        if (bytes == 0)
            return FAIL(STATUS_CORRUPT,
                        "%s: byte %zu is not UTF-8: convert the file with iconv", path, at);
        at += bytes;
    }
    return STATUS_OK;
}

void cells_release(struct cells *cells)
{
    mem_free(cells->text);
    mem_free(cells->names);
    mem_free(cells->cell);
    mem_free(cells->line);
    mem_free(cells->made);
    *cells = (struct cells){ 0 };
}

enum { MADE_NAME = 16 };

struct reader {
    const char *path;
    char *at, *end;
    char separator;
    int64_t line;
    struct cells *cells;
    int64_t n_cells, max_cells, max_rows;
};

/* The separator that the first line has most of. */
static char find_separator(const char *text)
{
    static const char separators[] = ",;\t";
    char best = ',';
    int most = 0;

    for (const char *s = separators; *s; s++) {
        bool quoted = false;
        int count = 0;
        for (const char *at = text; *at && (quoted || *at != '\n'); at++) {
            quoted ^= *at == '"';
            count += !quoted && *at == *s;
        }
        if (count > most) {
            most = count;
            best = *s;
        }
    }
    return best;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

/* A cell in quotes; `at` is behind the first. Doubled quotes become one. */
static enum status take_quoted(struct reader *r, const char **out)
{
    char *to = r->at;
    const int64_t begin = r->line;

    *out = to;
    for (;; r->at++) {
        if (r->at == r->end)
            return FAIL(STATUS_CORRUPT, "%s:%lld: a quote has no end", r->path,
                        (long long)begin);
        r->line += *r->at == '\n';
        if (*r->at != '"') {
            *to++ = *r->at;
        } else if (r->at[1] == '"') {
            *to++ = *r->at++;
        } else {
            break;
        }
    }
    r->at++;
    while (r->at < r->end && is_blank(*r->at) && *r->at != r->separator)
        r->at++;
    if (r->at < r->end && *r->at != r->separator && *r->at != '\n')
        return FAIL(STATUS_CORRUPT, "%s:%lld: text after the end of a quote", r->path,
                    (long long)r->line);
    *to = '\0';
    return STATUS_OK;
}

static void take_plain(struct reader *r, const char **out)
{
    *out = r->at;
    while (r->at < r->end && *r->at != r->separator && *r->at != '\n')
        r->at++;
}

static void cut_blanks(const char *begin, char *end)
{
    while (end > begin && is_blank(end[-1]))
        end--;
    *end = '\0';
}

static enum status add_cell(struct reader *r, const char *cell)
{
    struct cells *c = r->cells;

    if (r->n_cells == r->max_cells) {
        const int64_t more = r->max_cells ? 2 * r->max_cells : 1024;
        if (r->n_cells >= CELLS_MOST)
            return FAIL(STATUS_CORRUPT, "%s: more than %lld cells", r->path,
                        (long long)CELLS_MOST);
        TRY(mem_grow(&c->cell, (size_t)r->max_cells, (size_t)more, sizeof *c->cell));
        r->max_cells = more;
    }
    c->cell[r->n_cells++] = cell;
    return STATUS_OK;
}

/* One line's cells; *out is how many. */
static enum status take_record(struct reader *r, int *out)
{
    int count = 0;

    for (;;) {
        const char *cell;
        while (r->at < r->end && is_blank(*r->at) && *r->at != r->separator)
            r->at++;
        const bool is_quoted = r->at < r->end && *r->at == '"';
        if (is_quoted) {
            r->at++;
            TRY(take_quoted(r, &cell));
        } else {
            take_plain(r, &cell);
        }
        const bool goes_on = r->at < r->end && *r->at == r->separator;
        char *const end = r->at;
        r->line += r->at < r->end && !goes_on;
        r->at += r->at < r->end;
        if (!is_quoted)
            cut_blanks(cell, end);
        TRY(add_cell(r, cell));
        if (++count > CELLS_COLUMNS)
            return FAIL(STATUS_CORRUPT, "%s:%lld: more than %d columns", r->path,
                        (long long)r->line, CELLS_COLUMNS);
        if (!goes_on)
            break;
    }
    *out = count;
    return STATUS_OK;
}

static enum status add_row(struct reader *r, int64_t line, int count)
{
    struct cells *c = r->cells;

    if (c->columns == 0)
        c->columns = count;
    if (count != c->columns)
        return FAIL(STATUS_CORRUPT, "%s:%lld: %d columns, the first line has %d", r->path,
                    (long long)line, count, c->columns);
    if (c->rows == r->max_rows) {
        const int64_t more = r->max_rows ? 2 * r->max_rows : 256;
        TRY(mem_grow(&c->line, (size_t)r->max_rows, (size_t)more, sizeof *c->line));
        r->max_rows = more;
    }
    c->line[c->rows++] = line;
    return STATUS_OK;
}

/* Does a column whose first cell is a text hold numbers below it, and nothing else? */
static bool is_named(const struct cells *c, int column)
{
    int64_t numbers = 0;
    double number;

    for (int64_t i = 1; i < c->rows; i++) {
        const char *cell = c->cell[i * c->columns + column];
        if (cell_number(cell, &number))
            numbers++;
        else if (!cell_is_missing(cell))
            return false;
    }
    return numbers > 0;
}

/* Do the texts of the first row occur in the rows below it, as cells do that are no names? */
static bool is_repeated(const struct cells *c)
{
    int repeated = 0;

    for (int i = 0; i < c->columns; i++) {
        for (int64_t row = 1; row < c->rows; row++) {
            if (strcmp(c->cell[i], c->cell[row * c->columns + i]) != 0)
                continue;
            repeated++;
            break;
        }
    }
    return 2 * repeated > c->columns;
}

/* No cell is a number; where one is missing, as above a column that numbers the rows, another
 * column shows that these are names. */
static bool is_header(const struct cells *c)
{
    bool has_gap = false, names_numbers = false;
    double number;

    for (int i = 0; i < c->columns; i++) {
        if (cell_number(c->cell[i], &number))
            return false;
        has_gap |= cell_is_missing(c->cell[i]);
    }
    for (int i = 0; i < c->columns && has_gap && !names_numbers; i++)
        names_numbers = !cell_is_missing(c->cell[i]) && is_named(c, i);
    return c->rows > 0 && (!has_gap || names_numbers) && !is_repeated(c);
}

/* Names columns whose name is missing. */
static enum status make_names(struct cells *c)
{
    TRY(mem_alloc((size_t)c->columns, MADE_NAME, &c->made));
    for (int i = 0; i < c->columns; i++) {
        char *name = c->made + (size_t)i * MADE_NAME;
        if (*c->cell[i])
            continue;
        snprintf(name, MADE_NAME, "c%d", i + 1);
        c->cell[i] = name;
        c->nameless = i + 1;
    }
    return STATUS_OK;
}

/* The first row becomes names. */
static enum status take_header(const char *path, struct cells *c)
{
    TRY(make_names(c));
    TRY(mem_alloc((size_t)c->columns, sizeof *c->names, &c->names));
    for (int i = 0; i < c->columns; i++) {
        c->names[i] = c->cell[i];
        if (strlen(c->names[i]) >= CELLS_NAME)
            return FAIL(STATUS_CORRUPT, "%s:1: the name of column %d is longer than %d bytes",
                        path, i + 1, CELLS_NAME - 1);
        for (int j = 0; j < i; j++) {
            if (strcmp(c->names[i], c->names[j]) == 0)
                return FAIL(STATUS_CORRUPT, "%s:1: columns %d and %d are both called %s", path,
                            j + 1, i + 1, c->names[i]);
        }
    }
    c->rows--;
    memmove(c->cell, c->cell + c->columns, (size_t)(c->rows * c->columns) * sizeof *c->cell);
    memmove(c->line, c->line + 1, (size_t)c->rows * sizeof *c->line);
    return STATUS_OK;
}

static enum status read_rows(struct reader *r)
{
    if (r->end - r->at >= 3 && memcmp(r->at, "\xef\xbb\xbf", 3) == 0)
        r->at += 3; /* a byte order mark */
    if (!strchr(r->at, '\n') && strchr(r->at, '\r'))
        return FAIL(STATUS_CORRUPT,
                    "%s: its lines end with carriage returns alone: convert it with tr",
                    r->path);
    r->separator = find_separator(r->at);
    while (r->at < r->end) {
        const int64_t line = r->line;
        char *look = r->at;
        int count;

        while (look < r->end && is_blank(*look))
            look++;
        if (look == r->end)
            break;
        if (*look == '\n') { /* an empty line is none */
            r->at = look + 1;
            r->line++;
            continue;
        }
        TRY(take_record(r, &count));
        TRY(add_row(r, line, count));
    }
    if (r->cells->rows == 0)
        return FAIL(STATUS_CORRUPT, "%s: has no rows", r->path);
    return is_header(r->cells) ? take_header(r->path, r->cells) : STATUS_OK;
}

enum status csv_parse(const char *path, char *text, size_t length, struct cells *out)
{
    struct cells cells = { .text = text };
    struct reader reader = {
        .path = path, .at = text, .end = text + length, .line = 1, .cells = &cells
    };
    enum status status = cells_check_text(path, text, length);
    if (status == STATUS_OK)
        status = read_rows(&reader);

    if (status != STATUS_OK) {
        cells_release(&cells);
        return status;
    }
    *out = cells;
    return STATUS_OK;
}
