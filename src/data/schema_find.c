/* SPDX-License-Identifier: MIT */
/* schema_find.c - the schema of a table that nobody described: columns of numbers are numbers, others categories. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/log.h"
#include "base/mem.h"
#include "data/schema_parts.h"

/* Names of columns; those that the file does not name are called c1, c2 and so on. */
static enum status name_columns(struct schema *schema, const char *path,
                                const struct cells *cells)
{
    for (int i = 0; i < schema->n_columns; i++) {
        schema->columns[i].name = cells->names ? arena_strdup(schema->arena, cells->names[i])
                                               : arena_printf(schema->arena, "c%d", i + 1);
        if (!schema->columns[i].name)
            return STATUS_NO_MEMORY;
    }
    if (cells->nameless)
        log_line(
            LOG_WARNING,
            "%s:1: column %d has no name and is called c%d: leave it out with --skip-columns "
            "%d if it numbers the rows",
            path, cells->nameless, cells->nameless, cells->nameless);
    return STATUS_OK;
}

/* A column by name or, from 1, number. */
static enum status find_column(const struct schema *schema, const char *flag, const char *name,
                               int *out)
{
    char *end;
    const long number = strtol(name, &end, 10);

    for (int i = 0; i < schema->n_columns; i++) {
        if (strcmp(schema->columns[i].name, name) == 0) {
            *out = i;
            return STATUS_OK;
        }
    }
    if (*name && !*end && number >= 1 && number <= schema->n_columns) {
        *out = (int)number - 1;
        return STATUS_OK;
    }
    return FAIL(STATUS_USAGE, "--%s %s: no column of that name, or number from 1 to %d", flag,
                name, schema->n_columns);
}

/* Sets the kind of the columns in a list. */
static enum status mark(struct schema *schema, const char *flag, const char *list,
                        enum column_kind kind)
{
    char *copy, *word;

    if (!list || !*list)
        return STATUS_OK;
    TRY(mem_strdup(list, &copy));
    enum status status = STATUS_OK;
    for (char *rest = copy; status == STATUS_OK && (word = strsep(&rest, ","));) {
        int column = 0;
        status = find_column(schema, flag, word, &column);
        if (status == STATUS_OK && schema->columns[column].kind != COLUMN_NUMBER)
            status = FAIL(STATUS_USAGE, "--%s %s: that column is something else already", flag,
                          word);
        if (status == STATUS_OK)
            schema->columns[column].kind = kind;
    }
    mem_free(copy);
    return status;
}

static int compare_texts(const void *a, const void *b)
{
    const char *x = *(const char *const *)a, *y = *(const char *const *)b;
    double p, q;
    const bool is_number = cell_number(x, &p), other_is = cell_number(y, &q);

    if (is_number && other_is && p != q)
        return p < q ? -1 : 1;
    if (is_number != other_is)
        return is_number ? -1 : 1;
    return strcmp(x, y);
}

/* Different texts of a column, sorted; equal numbers count once. Missing ones are left out. */
static enum status find_values(struct schema *schema, const char *path,
                               const struct cells *cells, int column, const char ***out,
                               int *out_count)
{
    const char **all;
    int64_t n = 0;
    int count = 0;

    TRY(mem_alloc((size_t)cells->rows, sizeof *all, &all));
    for (int64_t i = 0; i < cells->rows; i++) {
        const char *cell = cells->cell[i * cells->columns + column];
        if (!cell_is_missing(cell))
            all[n++] = cell;
    }
    qsort(all, (size_t)n, sizeof *all, compare_texts);
    enum status status = STATUS_OK;
    for (int64_t i = 0; i < n && status == STATUS_OK; i++) {
        if (count && cells_are_same(all[i], all[count - 1]))
            continue;
        all[count++] = all[i];
        const bool is_too_much =
            count > SCHEMA_CATEGORIES || strlen(all[count - 1]) > SCHEMA_TEXT;
        if (is_too_much && column == schema->label)
            status =
                FAIL(STATUS_USAGE,
                     "%s: label column %s has more than %d classes, or one of more than %d "
                     "bytes: choose another with --label",
                     path, schema->columns[column].name, SCHEMA_CLASSES, SCHEMA_TEXT);
        else if (is_too_much)
            status = FAIL(STATUS_USAGE,
                          "%s: column %s has more than %d values, or one of more than %d "
                          "bytes: leave it out with --skip-columns %s",
                          path, schema->columns[column].name, SCHEMA_CATEGORIES, SCHEMA_TEXT,
                          schema->columns[column].name);
    }
    const char **texts = status == STATUS_OK && count
                             ? arena_alloc(schema->arena, (size_t)count, sizeof *texts)
                             : NULL;
    if (status == STATUS_OK && count && !texts)
        status = STATUS_NO_MEMORY;
    for (int i = 0; i < count && status == STATUS_OK; i++) {
        texts[i] = arena_strdup(schema->arena, all[i]);
        if (!texts[i])
            status = STATUS_NO_MEMORY;
    }
    mem_free(all);
    TRY(status);
    *out = texts;
    *out_count = count;
    return STATUS_OK;
}

/* A number with a comma in the place of the point? */
static bool has_decimal_comma(const char *text)
{
    const char *comma = strchr(text, ',');
    char copy[SCHEMA_TEXT + 1];
    double number;

    if (!comma || strlen(text) > SCHEMA_TEXT)
        return false;
    memcpy(copy, text, strlen(text) + 1);
    copy[comma - text] = '.';
    return cell_number(copy, &number);
}

/* A number without end, or larger than those that are read? */
static bool is_beyond(const char *text)
{
    char *end;
    const double value = strtod(text, &end);

    return end != text && !*end && fabs(value) > CELLS_NUMBER;
}

/* The cells of a column that is no column of numbers. */
struct mixture {
    int64_t numbers, texts;
    int64_t commas, beyond; /* texts that are numbers with a comma, or out of range */
    int64_t first;          /* the row of the first text */
};

static struct mixture look_at_texts(const struct cells *cells, int number)
{
    struct mixture m = { .first = -1 };
    double value;

    for (int64_t i = 0; i < cells->rows; i++) {
        const char *cell = cells->cell[i * cells->columns + number];
        if (cell_is_missing(cell))
            continue;
        if (cell_number(cell, &value)) {
            m.numbers++;
            continue;
        }
        m.first = m.first < 0 ? i : m.first;
        m.texts++;
        m.commas += has_decimal_comma(cell);
        m.beyond += is_beyond(cell);
    }
    return m;
}

/* Warns of categories that are no use, or came of a mistake in the file. */
static void warn_of_categories(const struct column *column, const char *path,
                               const struct cells *cells, const struct mixture *m,
                               const char *text)
{
    enum { FEW = 9, MANY = 32 };

    if (m->numbers >= FEW * m->texts || (m->numbers >= m->texts && column->n_values > MANY))
        log_line(
            LOG_WARNING,
            "%s:%lld: column %s has \"%.32s\" among numbers (%lld texts, %lld numbers): each "
            "is taken for a category; correct it, leave the cell empty if nothing is known, "
            "or say --categories %s",
            path, (long long)cells->line[m->first], column->name, text, (long long)m->texts,
            (long long)m->numbers, column->name);
    else if (column->n_values > MANY && 2 * column->n_values > m->numbers + m->texts)
        log_line(
            LOG_WARNING,
            "%s: column %s has %d different texts in %lld rows, each a feature that hardly "
            "another row has: leave it out with --skip-columns %s",
            path, column->name, column->n_values, (long long)(m->numbers + m->texts),
            column->name);
}

/* The categories of a column. One that holds a text is a category as a whole: said where that is
 * likely to be a mistake in the file, unless it was asked for. */
static enum status find_categories(struct schema *schema, const char *path,
                                   const struct cells *cells, int number, bool is_asked)
{
    struct column *column = &schema->columns[number];
    const struct mixture m = look_at_texts(cells, number);
    const char *text = cells->cell[(m.first < 0 ? 0 : m.first) * cells->columns + number];
    const bool is_doubtful = !is_asked && m.texts > 0;

    if (is_doubtful && m.commas == m.texts)
        return FAIL(STATUS_USAGE,
                    "%s:%lld: column %s: \"%.32s\" has a comma: write numbers with a point, or "
                    "say --categories %s if they are names",
                    path, (long long)cells->line[m.first], column->name, text, column->name);
    if (is_doubtful && m.beyond == m.texts)
        return FAIL(
            STATUS_USAGE,
            "%s:%lld: column %s: \"%.32s\" is out of range: correct it, or leave the cell "
            "empty if nothing is known",
            path, (long long)cells->line[m.first], column->name, text);
    const enum status status =
        find_values(schema, path, cells, number, &column->values, &column->n_values);
    if (status == STATUS_USAGE && is_doubtful && m.numbers >= m.texts)
        return FAIL(
            STATUS_USAGE,
            "%s:%lld: column %s has \"%.32s\" among %lld numbers: correct it, leave the "
            "cell empty if nothing is known, or leave the column out with --skip-columns",
            path, (long long)cells->line[m.first], column->name, text, (long long)m.numbers);
    TRY(status);
    if (is_doubtful)
        warn_of_categories(column, path, cells, &m, text);
    return STATUS_OK;
}

/* A number, with where it lies as its center and scale; a category if it holds other texts; skipped if it holds
 * nothing. */
static enum status look_at_column(struct schema *schema, const char *path,
                                  const struct cells *cells, int number, bool is_plain)
{
    struct column *column = &schema->columns[number];
    const bool is_asked = column->kind == COLUMN_CATEGORY;
    int64_t count = 0;
    double value;

    column->scale = 1;
    if (column->kind == COLUMN_SKIPPED || column->kind == COLUMN_LABEL)
        return STATUS_OK;
    for (int64_t i = 0; i < cells->rows; i++) {
        const char *cell = cells->cell[i * cells->columns + number];
        if (cell_is_missing(cell)) {
            column->has_gaps = true;
        } else if (!cell_number(cell, &value)) {
            column->kind = COLUMN_CATEGORY;
            break;
        } else {
            column->center += (value - column->center) / (double)++count;
        }
    }
    if (column->kind == COLUMN_NUMBER) {
        double squares = 0, largest = 0;
        for (int64_t i = 0; i < cells->rows; i++) {
            if (!cell_number(cells->cell[i * cells->columns + number], &value))
                continue;
            squares += (value - column->center) * (value - column->center);
            largest = fmax(largest, fabs(value));
        }
        const double deviation = sqrt(squares / (double)(count > 0 ? count : 1));
        column->is_plain = is_plain && !schema_loses_digits(largest, deviation);
        if (is_plain && !column->is_plain)
            log_line(
                LOG_WARNING,
                "%s: column %s is standardized, not taken as it is: of its numbers, near %.6g "
                "with deviation %.3g, single precision keeps too few digits",
                path, column->name, column->center, deviation);
        if (deviation > SCHEMA_SCALE_LEAST)
            column->scale = deviation;
        if (count > 0)
            return STATUS_OK;
        column->kind = COLUMN_SKIPPED;
        log_line(LOG_WARNING, "%s: column %s holds nothing and is left out", path,
                 column->name);
        return STATUS_OK;
    }
    column->has_gaps = false;
    column->center = 0;
    TRY(find_categories(schema, path, cells, number, is_asked));
    if (column->n_values == 0)
        column->kind = COLUMN_SKIPPED;
    return STATUS_OK;
}

static int compare_numbers(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Numbers of a label that are amounts, not names of classes: there are about as many as rows, or
 * many with fractions. */
static bool is_regression(int64_t distinct, int64_t rows, bool has_fractions)
{
    enum { FEW = 8, MANY = 32, ROWS_OF_A_CLASS = 5 };

    return distinct > SCHEMA_CLASSES ||
           (2 * distinct > rows && distinct > (has_fractions ? 2 : FEW)) ||
           (has_fractions && distinct > MANY && ROWS_OF_A_CLASS * distinct > rows);
}

/* Refuses a label of amounts. */
static enum status check_label(const struct schema *schema, const char *path,
                               const struct cells *cells, bool is_libsvm)
{
    const char *name = schema->columns[schema->label].name;
    bool has_fractions = false;
    int64_t n = 0, texts = 0, distinct = 0;
    double *all;

    TRY(mem_alloc((size_t)cells->rows, sizeof *all, &all));
    for (int64_t i = 0; i < cells->rows; i++) {
        const char *cell = cells->cell[i * cells->columns + schema->label];
        if (cell_is_missing(cell))
            continue;
        if (!cell_number(cell, &all[n])) {
            texts++;
            continue;
        }
        has_fractions |= all[n] != floor(all[n]);
        n++;
    }
    qsort(all, (size_t)n, sizeof *all, compare_numbers);
    for (int64_t i = 0; i < n; i++)
        distinct += i == 0 || all[i] != all[i - 1];
    mem_free(all);
    if (texts > 0 || !is_regression(distinct, n, has_fractions))
        return STATUS_OK;
    return FAIL(
        STATUS_USAGE,
        "%s: label column %s has %lld different numbers in %lld rows, and tutti classifies, "
        "it does no regression yet: %s",
        path, name, (long long)distinct, (long long)n,
        is_libsvm ? "begin every line with a class" : "name a column of classes with --label");
}

/* Classes that a reader takes for one. */
static void warn_of_alike(const char *path, const char *name, const char *const *values,
                          int count)
{
    for (int i = 0; i < count; i++) {
        for (int j = 0; j < i; j++) {
            if (strcasecmp(values[i], values[j]) != 0)
                continue;
            log_line(
                LOG_WARNING,
                "%s: label column %s has classes %s and %s, which differ in case alone: write "
                "them alike if they are one",
                path, name, values[j], values[i]);
            return;
        }
    }
}

static enum status find_classes(struct schema *schema, const char *path,
                                const struct cells *cells, bool is_libsvm)
{
    const char *name = schema->columns[schema->label].name;
    const char **values;
    int count;

    TRY(check_label(schema, path, cells, is_libsvm));
    TRY(find_values(schema, path, cells, schema->label, &values, &count));
    warn_of_alike(path, name, values, count);
    if (count < 2 || count > SCHEMA_CLASSES)
        return FAIL(STATUS_USAGE,
                    "%s: label column %s has %d classes: choose another with --label", path,
                    name, count);
    schema->class_names = values;
    schema->n_classes = schema->n_values = count;
    schema->values = arena_alloc(schema->arena, (size_t)count, sizeof *schema->values);
    if (!schema->values)
        return STATUS_NO_MEMORY;
    for (int i = 0; i < count; i++)
        schema->values[i] = (struct class_value){ values[i], i };
    return STATUS_OK;
}

static enum status find(struct schema *schema, const char *path, const struct cells *cells,
                        const struct schema_hints *hints)
{
    schema->n_columns = cells->columns;
    schema->label = cells->columns - 1;
    schema->columns =
        arena_alloc(schema->arena, (size_t)cells->columns, sizeof *schema->columns);
    if (!schema->columns)
        return STATUS_NO_MEMORY;
    TRY(name_columns(schema, path, cells));
    if (hints->label && *hints->label)
        TRY(find_column(schema, "label", hints->label, &schema->label));
    schema->columns[schema->label].kind = COLUMN_LABEL;
    TRY(mark(schema, "skip-columns", hints->skip, COLUMN_SKIPPED));
    TRY(mark(schema, "categories", hints->categories, COLUMN_CATEGORY));
    for (int i = 0; i < schema->n_columns; i++)
        TRY(look_at_column(schema, path, cells, i, hints->is_plain));
    TRY(find_classes(schema, path, cells, hints->is_plain));
    const int64_t features = schema_features(schema);
    if (features < 1 || features > SCHEMA_FEATURES)
        return FAIL(STATUS_USAGE, "%s: %lld features: 1 to %d may be", path,
                    (long long)features, SCHEMA_FEATURES);
    return STATUS_OK;
}

enum status schema_find(const char *path, const struct cells *cells,
                        const struct schema_hints *hints, struct schema **out)
{
    struct schema *schema;

    if (cells->rows == 0)
        return FAIL(STATUS_USAGE, "%s: has no rows below its first line", path);
    if (cells->columns < 2)
        return FAIL(STATUS_USAGE, "%s: one column is no table of features and a label", path);
    TRY(mem_alloc(1, sizeof *schema, &schema));
    enum status status = arena_create(&schema->arena);
    if (status == STATUS_OK)
        status = find(schema, path, cells, hints);
    if (status != STATUS_OK) {
        schema_destroy(schema);
        return status;
    }
    *out = schema;
    return STATUS_OK;
}
