/* SPDX-License-Identifier: MIT */
/* schema_find.c - the schema of a table that nobody described: columns of numbers are numbers, others categories. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "data/schema_parts.h"

/* Names of columns; those that the file does not name are called c1, c2 and so on. */
static enum status name_columns(struct schema *schema, const struct cells *cells)
{
    for (int i = 0; i < schema->n_columns; i++) {
        schema->columns[i].name = cells->names ? arena_strdup(schema->arena, cells->names[i])
                                               : arena_printf(schema->arena, "c%d", i + 1);
        if (!schema->columns[i].name)
            return STATUS_NO_MEMORY;
    }
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
        double a, b;
        if (count && (strcmp(all[i], all[count - 1]) == 0 ||
                      (cell_number(all[i], &a) && cell_number(all[count - 1], &b) && a == b)))
            continue;
        all[count++] = all[i];
        if (count > SCHEMA_CATEGORIES || strlen(all[count - 1]) > SCHEMA_TEXT)
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

/* A number, with where it lies as its center and scale; a category if it holds other texts; skipped if it holds
 * nothing. */
static enum status look_at_column(struct schema *schema, const char *path,
                                  const struct cells *cells, int number, bool is_plain)
{
    struct column *column = &schema->columns[number];
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
        double squares = 0;
        for (int64_t i = 0; i < cells->rows; i++) {
            if (cell_number(cells->cell[i * cells->columns + number], &value))
                squares += (value - column->center) * (value - column->center);
        }
        column->is_plain = is_plain;
        const double deviation = sqrt(squares / (double)(count > 0 ? count : 1));
        if (deviation > SCHEMA_SCALE_LEAST)
            column->scale = deviation;
        if (count == 0)
            column->kind = COLUMN_SKIPPED;
        return STATUS_OK;
    }
    column->has_gaps = false;
    column->center = 0;
    TRY(find_values(schema, path, cells, number, &column->values, &column->n_values));
    if (column->n_values == 0)
        column->kind = COLUMN_SKIPPED;
    return STATUS_OK;
}

static enum status find_classes(struct schema *schema, const char *path,
                                const struct cells *cells)
{
    const char *name = schema->columns[schema->label].name;
    const char **values;
    int count;

    TRY(find_values(schema, path, cells, schema->label, &values, &count));
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
    TRY(name_columns(schema, cells));
    if (hints->label && *hints->label)
        TRY(find_column(schema, "label", hints->label, &schema->label));
    schema->columns[schema->label].kind = COLUMN_LABEL;
    TRY(mark(schema, "skip-columns", hints->skip, COLUMN_SKIPPED));
    TRY(mark(schema, "categories", hints->categories, COLUMN_CATEGORY));
    for (int i = 0; i < schema->n_columns; i++)
        TRY(look_at_column(schema, path, cells, i, hints->is_plain));
    TRY(find_classes(schema, path, cells));
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
