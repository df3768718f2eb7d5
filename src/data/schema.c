/* SPDX-License-Identifier: MIT */
/* schema.c - what columns mean: read and written as JSON, and rows by it. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "data/schema_parts.h"

void schema_destroy(struct schema *schema)
{
    if (!schema)
        return;
    arena_destroy(schema->arena);
    mem_free(schema);
}

/* Reading -------------------------------------------------------------------------------- */

/* Only members of these names; `what` is for the message. */
static enum status check_members(const struct json_value *object, const char *const *names,
                                 const char *what)
{
    if (!object || object->kind != JSON_OBJECT)
        return FAIL(STATUS_CORRUPT, "%s is no object", what);
    for (size_t m = 0; m < object->count; m++) {
        bool is_known = false;
        for (int i = 0; names[i]; i++)
            is_known |= strcmp(object->keys[m], names[i]) == 0;
        if (!is_known)
            return FAIL(STATUS_CORRUPT, "%s has a member that is not its own", what);
    }
    return STATUS_OK;
}

static enum status take_text(struct arena *arena, const struct json_value *value,
                             const char **out)
{
    if (!value || value->kind != JSON_STRING || strlen(value->text) > SCHEMA_TEXT)
        return FAIL(STATUS_CORRUPT, "a name or value is no text of at most %d bytes",
                    SCHEMA_TEXT);
    *out = arena_strdup(arena, value->text);
    return *out ? STATUS_OK : STATUS_NO_MEMORY;
}

static enum status take_texts(struct arena *arena, const struct json_value *list, int most,
                              const char ***out, int *out_count)
{
    if (list->kind != JSON_ARRAY || list->count == 0 || list->count > (size_t)most)
        return FAIL(STATUS_CORRUPT, "a list of values is empty or longer than %d", most);
    *out = arena_alloc(arena, list->count, sizeof **out);
    if (!*out)
        return STATUS_NO_MEMORY;
    for (size_t i = 0; i < list->count; i++) {
        TRY(take_text(arena, &list->items[i], &(*out)[i]));
        for (size_t j = 0; j < i; j++) {
            if (strcmp((*out)[i], (*out)[j]) == 0)
                return FAIL(STATUS_CORRUPT, "value %.32s is there twice", (*out)[i]);
        }
    }
    *out_count = (int)list->count;
    return STATUS_OK;
}

static enum status read_column(struct schema *schema, const struct json_value *object,
                               struct column *column)
{
    static const char *const members[] = { "name", "center",     "scale",   "gaps", "plain",
                                           "skip", "categories", "missing", NULL };
    const struct json_value *categories = json_get(object, "categories");
    const struct json_value *missing = json_get(object, "missing");

    TRY(check_members(object, members, "column"));
    TRY(take_text(schema->arena, json_get(object, "name"), &column->name));
    column->center = json_number(object, "center", 0);
    column->scale = json_number(object, "scale", 1);
    column->has_gaps = json_bool(object, "gaps", false);
    column->is_plain = json_bool(object, "plain", false);
    if (!(fabs(column->center) <= CELLS_NUMBER) ||
        !(column->scale >= SCHEMA_SCALE_LEAST && column->scale <= SCHEMA_SCALE_MOST))
        return FAIL(STATUS_CORRUPT, "center or scale of column %s makes no sense",
                    column->name);
    if (json_bool(object, "skip", false))
        column->kind = COLUMN_SKIPPED;
    if (missing)
        TRY(take_texts(schema->arena, missing, SCHEMA_CATEGORIES, &column->missing,
                       &column->n_missing));
    if (categories) {
        if (column->kind == COLUMN_SKIPPED || column->has_gaps || column->is_plain)
            return FAIL(STATUS_CORRUPT, "column %s is two things at once", column->name);
        column->kind = COLUMN_CATEGORY;
        TRY(take_texts(schema->arena, categories, SCHEMA_CATEGORIES, &column->values,
                       &column->n_values));
    }
    return STATUS_OK;
}

static enum status read_columns(struct schema *schema, const struct json_value *list)
{
    if (!list || list->kind != JSON_ARRAY || list->count < 2 || list->count > SCHEMA_COLUMNS)
        return FAIL(STATUS_CORRUPT, "a table has 2 to %d columns", SCHEMA_COLUMNS);
    schema->n_columns = (int)list->count;
    schema->columns = arena_alloc(schema->arena, list->count, sizeof *schema->columns);
    if (!schema->columns)
        return STATUS_NO_MEMORY;
    for (int i = 0; i < schema->n_columns; i++) {
        TRY(read_column(schema, &list->items[i], &schema->columns[i]));
        for (int j = 0; j < i; j++) {
            if (strcmp(schema->columns[i].name, schema->columns[j].name) == 0)
                return FAIL(STATUS_CORRUPT, "two columns are called %s",
                            schema->columns[i].name);
        }
    }
    return STATUS_OK;
}

static enum status read_class(struct schema *schema, const struct json_value *object, int class)
{
    static const char *const members[] = { "name", "values", NULL };
    const struct json_value *list = json_get(object, "values");
    const char **values;
    int count;

    TRY(check_members(object, members, "class"));
    TRY(take_text(schema->arena, json_get(object, "name"), &schema->class_names[class]));
    if (!list)
        return FAIL(STATUS_CORRUPT, "class %s has no values", schema->class_names[class]);
    TRY(take_texts(schema->arena, list, SCHEMA_CLASSES, &values, &count));
    for (int i = 0; i < count; i++) {
        if (schema->n_values == SCHEMA_CLASSES)
            return FAIL(STATUS_CORRUPT, "the label has more than %d values", SCHEMA_CLASSES);
        for (int j = 0; j < schema->n_values; j++) {
            if (strcmp(values[i], schema->values[j].value) == 0)
                return FAIL(STATUS_CORRUPT, "value %s is of two classes", values[i]);
        }
        schema->values[schema->n_values++] = (struct class_value){ values[i], class };
    }
    return STATUS_OK;
}

static enum status read_label(struct schema *schema, const struct json_value *object)
{
    static const char *const members[] = { "column", "classes", NULL };
    const struct json_value *classes = json_get(object, "classes");
    const char *name = json_text(object, "column", "");

    TRY(check_members(object, members, "label"));
    schema->label = -1;
    for (int i = 0; i < schema->n_columns; i++) {
        if (strcmp(schema->columns[i].name, name) == 0)
            schema->label = i;
    }
    if (schema->label < 0 || schema->columns[schema->label].kind != COLUMN_NUMBER)
        return FAIL(STATUS_CORRUPT, "the label is no column, or a category or skipped");
    schema->columns[schema->label].kind = COLUMN_LABEL;
    if (!classes || classes->kind != JSON_ARRAY || classes->count < 2 ||
        classes->count > SCHEMA_CLASSES)
        return FAIL(STATUS_CORRUPT, "the label has 2 to %d classes", SCHEMA_CLASSES);
    schema->n_classes = (int)classes->count;
    schema->class_names = arena_alloc(schema->arena, classes->count, sizeof(char *));
    schema->values = arena_alloc(schema->arena, SCHEMA_CLASSES, sizeof *schema->values);
    if (!schema->class_names || !schema->values)
        return STATUS_NO_MEMORY;
    for (int i = 0; i < schema->n_classes; i++)
        TRY(read_class(schema, &classes->items[i], i));
    return STATUS_OK;
}

static enum status check_features(const struct schema *schema)
{
    const int64_t features = schema_features(schema);

    if (features < 1 || features > SCHEMA_FEATURES)
        return FAIL(STATUS_CORRUPT, "%lld features: 1 to %d may be", (long long)features,
                    SCHEMA_FEATURES);
    return STATUS_OK;
}

enum status schema_read(const struct json_value *object, struct schema **out)
{
    static const char *const members[] = { "columns", "label", NULL };
    struct schema *schema;

    TRY(check_members(object, members, "schema"));
    TRY(mem_alloc(1, sizeof *schema, &schema));
    enum status status = arena_create(&schema->arena);
    if (status == STATUS_OK)
        status = read_columns(schema, json_get(object, "columns"));
    if (status == STATUS_OK)
        status = read_label(schema, json_get(object, "label"));
    if (status == STATUS_OK)
        status = check_features(schema);
    if (status != STATUS_OK) {
        schema_destroy(schema);
        return status;
    }
    *out = schema;
    return STATUS_OK;
}

enum status schema_copy(const struct schema *schema, struct schema **out)
{
    enum { TEXT_MOST = 64 << 20 };
    struct json *json = NULL;
    struct strbuf text;

    strbuf_init(&text, TEXT_MOST);
    schema_print(schema, &text);
    enum status status = strbuf_status(&text);
    if (status == STATUS_OK)
        status = json_parse(text.text, text.length, &json);
    if (status == STATUS_OK)
        status = schema_read(json_root(json), out);
    json_destroy(json);
    strbuf_release(&text);
    return status;
}

/* Writing -------------------------------------------------------------------------------- */

static void print_texts(struct strbuf *out, const char *name, const char *const *texts,
                        int count)
{
    strbuf_printf(out, ", \"%s\": [", name);
    for (int i = 0; i < count; i++) {
        strbuf_add(out, i ? ", " : "");
        strbuf_add_json(out, texts[i]);
    }
    strbuf_add(out, "]");
}

static void print_column(const struct column *column, struct strbuf *out)
{
    strbuf_add(out, "{\"name\": ");
    strbuf_add_json(out, column->name);
    if (column->kind == COLUMN_SKIPPED)
        strbuf_add(out, ", \"skip\": true");
    if (column->center != 0) {
        strbuf_add(out, ", \"center\": ");
        strbuf_add_number(out, column->center);
    }
    if (column->scale != 1) {
        strbuf_add(out, ", \"scale\": ");
        strbuf_add_number(out, column->scale);
    }
    strbuf_add(out, column->has_gaps ? ", \"gaps\": true" : "");
    strbuf_add(out, column->is_plain ? ", \"plain\": true" : "");
    if (column->n_missing)
        print_texts(out, "missing", column->missing, column->n_missing);
    if (column->kind == COLUMN_CATEGORY)
        print_texts(out, "categories", column->values, column->n_values);
    strbuf_add(out, "}");
}

static void print_class(const struct schema *schema, int class, struct strbuf *out)
{
    bool is_first = true;

    strbuf_add(out, class ? ", {\"name\": " : "{\"name\": ");
    strbuf_add_json(out, schema->class_names[class]);
    strbuf_add(out, ", \"values\": [");
    for (int i = 0; i < schema->n_values; i++) {
        if (schema->values[i].class != class)
            continue;
        strbuf_add(out, is_first ? "" : ", ");
        strbuf_add_json(out, schema->values[i].value);
        is_first = false;
    }
    strbuf_add(out, "]}");
}

void schema_print(const struct schema *schema, struct strbuf *out)
{
    strbuf_add(out, "{\"columns\": [");
    for (int i = 0; i < schema->n_columns; i++) {
        strbuf_add(out, i ? ",\n  " : "\n  ");
        print_column(&schema->columns[i], out);
    }
    strbuf_add(out, "],\n  \"label\": {\"column\": ");
    strbuf_add_json(out, schema->columns[schema->label].name);
    strbuf_add(out, ", \"classes\": [");
    for (int i = 0; i < schema->n_classes; i++)
        print_class(schema, i, out);
    strbuf_add(out, "]}}");
}

/* Asking --------------------------------------------------------------------------------- */

int schema_columns(const struct schema *schema)
{
    return schema->n_columns;
}

const char *schema_column_name(const struct schema *schema, int column)
{
    return schema->columns[column].name;
}

static int64_t features_of(const struct column *column)
{
    return column->kind == COLUMN_NUMBER     ? 1 + (int64_t)column->has_gaps
           : column->kind == COLUMN_CATEGORY ? column->n_values
                                             : 0;
}

static int64_t statistics_of(const struct column *column)
{
    return column->kind == COLUMN_NUMBER     ? 3
           : column->kind == COLUMN_CATEGORY ? column->n_values
                                             : 0;
}

int64_t schema_features(const struct schema *schema)
{
    int64_t count = 0;

    for (int i = 0; i < schema->n_columns; i++)
        count += features_of(&schema->columns[i]);
    return count;
}

const char *schema_feature_name(const struct schema *schema, int64_t feature, char text[160])
{
    const struct column *column = schema->columns;

    for (; feature >= features_of(column); column++)
        feature -= features_of(column);
    if (column->kind == COLUMN_CATEGORY)
        snprintf(text, 160, "%s=%s", column->name, column->values[feature]);
    else
        snprintf(text, 160, feature ? "%s missing" : "%s", column->name);
    return text;
}

void schema_summarize(const struct schema *schema, int number, const double *statistics,
                      struct schema_summary *out)
{
    static const char *const kinds[] = { [COLUMN_NUMBER] = "number",
                                         [COLUMN_CATEGORY] = "category",
                                         [COLUMN_SKIPPED] = "skipped",
                                         [COLUMN_LABEL] = "label" };
    const struct column *column = &schema->columns[number];
    const double *sums = statistics + 1;

    for (int i = 0; i < number; i++)
        sums += statistics_of(&schema->columns[i]);
    *out = (struct schema_summary){ .kind = kinds[column->kind],
                                    .features = (int)features_of(column),
                                    .mean = NAN,
                                    .deviation = NAN };
    if (column->kind == COLUMN_NUMBER && sums[0] > 0) {
        const double mean = sums[1] / sums[0];
        const double variance = sums[2] / sums[0] - mean * mean;
        out->there = sums[0];
        out->mean = column->center + column->scale * mean;
        out->deviation = column->scale * sqrt(variance > 0 ? variance : 0);
    }
    for (int i = 0; column->kind == COLUMN_CATEGORY && i < column->n_values; i++)
        out->there += sums[i];
}

int schema_classes(const struct schema *schema)
{
    return schema->n_classes;
}

const char *const *schema_class_names(const struct schema *schema)
{
    return schema->class_names;
}

int64_t schema_statistics(const struct schema *schema)
{
    int64_t count = 1;

    for (int i = 0; i < schema->n_columns; i++)
        count += statistics_of(&schema->columns[i]);
    return count;
}

/* Rows ----------------------------------------------------------------------------------- */

enum status schema_match(const struct schema *schema, const char *path,
                         const struct cells *cells, int *out_columns)
{
    if (!cells->names && cells->columns != schema->n_columns)
        return FAIL(STATUS_MISMATCH,
                    "%s: has %d columns and does not name them; %d are expected", path,
                    cells->columns, schema->n_columns);
    for (int i = 0; i < schema->n_columns; i++) {
        const struct column *column = &schema->columns[i];
        const bool is_there =
            !cells->names || (i < cells->columns && strcmp(cells->names[i], column->name) == 0);
        out_columns[i] = is_there ? i : -1;
        for (int j = 0; out_columns[i] < 0 && j < cells->columns; j++) {
            if (strcmp(cells->names[j], column->name) == 0)
                out_columns[i] = j;
        }
        if (out_columns[i] < 0 && column->kind != COLUMN_SKIPPED)
            return FAIL(STATUS_MISMATCH, "%s: has no column %s", path, column->name);
    }
    return STATUS_OK;
}

static bool is_missing(const struct column *column, const char *cell)
{
    for (int i = 0; i < column->n_missing; i++) {
        if (cells_are_same(column->missing[i], cell))
            return true;
    }
    return cell_is_missing(cell);
}

enum status schema_value(const struct schema *schema, int number, const char *path,
                         int64_t line, const char *cell, double *out)
{
    const struct column *column = &schema->columns[number];
    double value;

    *out = (double)NAN;
    if (column->kind == COLUMN_SKIPPED || column->kind == COLUMN_LABEL ||
        is_missing(column, cell))
        return STATUS_OK;
    if (column->kind == COLUMN_NUMBER) {
        if (!cell_number(cell, &value))
            return FAIL(STATUS_CORRUPT, "%s:%lld: column %s: \"%.32s\" is no number", path,
                        (long long)line, column->name, cell);
        *out = value;
        return STATUS_OK;
    }
    for (int i = 0; i < column->n_values; i++) {
        if (cells_are_same(column->values[i], cell)) {
            *out = i;
            return STATUS_OK;
        }
    }
    return FAIL(STATUS_CORRUPT, "%s:%lld: column %s: \"%.32s\" is none of its %d categories",
                path, (long long)line, column->name, cell, column->n_values);
}

enum status schema_label(const struct schema *schema, const char *path, int64_t line,
                         const char *cell, int32_t *out)
{
    for (int i = 0; i < schema->n_values; i++) {
        if (cells_are_same(schema->values[i].value, cell)) {
            *out = schema->values[i].class;
            return STATUS_OK;
        }
    }
    return FAIL(STATUS_CORRUPT, "%s:%lld: column %s: \"%.32s\" is no class", path,
                (long long)line, schema->columns[schema->label].name, cell);
}

#define Z_MOST 1e6

/* z before it is cut. */
static double z_of(const struct column *column, double value)
{
    return (value - column->center) / column->scale;
}

/* z, which a guess that is far off must not make endless. */
static double scaled(const struct column *column, double value)
{
    return fmin(fmax(z_of(column, value), -Z_MOST), Z_MOST);
}

void schema_add_statistics(const struct schema *schema, const double *row, double *sums)
{
    *sums++ += 1;
    for (int i = 0; i < schema->n_columns; i++) {
        const struct column *column = &schema->columns[i];
        const int64_t count = statistics_of(column);
        if (count > 0 && !isnan(row[i]) && column->kind == COLUMN_CATEGORY) {
            sums[(int)row[i]] += 1;
        } else if (count > 0 && !isnan(row[i])) {
            const double z = scaled(column, row[i]);
            sums[0] += 1;
            sums[1] += z;
            sums[2] += z * z;
        }
        sums += count;
    }
}

/* Sums that were made inexact on their way still give numbers that can be used. */
void schema_scales(const struct schema *schema, const double *statistics, double *mean,
                   double *factor)
{
    const double *sums = statistics + 1;

    for (int i = 0; i < schema->n_columns; i++) {
        const struct column *column = &schema->columns[i];
        mean[i] = 0;
        factor[i] = 1;
        if (column->kind == COLUMN_NUMBER && !column->is_plain &&
            sums[0] > 1e-4 * statistics[0] && sums[0] > 0) {
            const double m = sums[1] / sums[0];
            const double variance = sums[2] / sums[0] - m * m;
            mean[i] = m;
            factor[i] = variance > 1e-8 ? 1 / sqrt(variance) : 1;
        }
        sums += statistics_of(column);
    }
}

float schema_standardize(const struct column *column, double value, double mean, double factor)
{
    const double z = column->is_plain ? value : scaled(column, value);

    return (float)((z - mean) * factor);
}

void schema_encode(const struct schema *schema, const double *row, const double *mean,
                   const double *factor, float *features)
{
    for (int i = 0; i < schema->n_columns; i++) {
        const struct column *column = &schema->columns[i];
        const int64_t count = features_of(column);
        const bool is_there = !isnan(row[i]);

        if (column->kind == COLUMN_CATEGORY) {
            for (int64_t c = 0; c < count; c++)
                features[c] = is_there && (int64_t)row[i] == c ? 1 : 0;
        } else if (column->kind == COLUMN_NUMBER) {
            features[0] = is_there ? schema_standardize(column, row[i], mean[i], factor[i]) : 0;
            if (column->has_gaps)
                features[1] = is_there ? 0 : 1;
        }
        features += count;
    }
}

void schema_measure(const struct schema *schema, int number, const double *rows, int64_t count,
                    struct schema_spread *out)
{
    const struct column *column = &schema->columns[number];
    double squares = 0;

    *out = (struct schema_spread){ .is_whole = true };
    for (int64_t i = 0; i < count; i++) {
        const double value = rows[i * schema->n_columns + number];
        if (isnan(value))
            continue;
        out->mean += (value - out->mean) / (double)++out->count;
        out->largest = fmax(out->largest, fabs(value));
        out->is_whole = out->is_whole && fabs(value) < 0x1p53 && value == floor(value);
        out->cut += !column->is_plain && fabs(z_of(column, value)) > Z_MOST;
    }
    for (int64_t i = 0; i < count; i++) {
        const double value = rows[i * schema->n_columns + number];
        if (!isnan(value))
            squares += (value - out->mean) * (value - out->mean);
    }
    out->deviation = sqrt(squares / (double)(out->count > 0 ? out->count : 1));
}
