/* SPDX-License-Identifier: MIT */
/* tabular.c - an open table: its files found, cut into cells, read by a schema, dealt out to folds. */
#include "data/tabular.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/arena.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/sha256.h"
#include "data/known.h"
#include "data/schema_parts.h"
#include "data/search.h"
#include "data/table_format.h"

/* Deviations between a mean and the guess of it from which on a sum of squares, as a float, has no
 * digit of the deviation. */
#define SUMS_FAR 3000
/* One in so many changes of a column may be lost in single precision without a warning. */
#define HIDDEN_PART 10

enum { FILE_SHIFT = 48 /* of a row's file beside its line */ };
static const uint64_t FOLD_KEY = 0x666f6c64; /* of the order in which rows are dealt out */

struct tabular {
    struct source source; /* first: a source is cast to its table */
    struct schema *schema;
    struct dataset_info own;
    char *path;  /* folder or file */
    char *title; /* of `own` */
    int64_t whole, capacity;
    int64_t seen; /* rows that were dealt out */
    double *rows; /* whole * columns of the schema */
    int32_t *labels;
    int64_t *line;                 /* of its file: number of the file << FILE_SHIFT | line */
    const char *file[TABLE_FILES]; /* names of files, where there are several */
    int n_files;
    struct arena *arena;   /* of ids; NULL: no file has them */
    const char **id;       /* what the column id has, a row each; NULL likewise */
    double *mean, *factor; /* a column each */
    bool *is_coarse; /* a column each: it has different numbers that are the same double */
    char contents[SHA256_HEX], fingerprint[SHA256_HEX];
    char old_contents[SHA256_HEX], old_fingerprint[SHA256_HEX]; /* source.h */
};

/* Where a table is ----------------------------------------------------------------------- */

struct place {
    char *path;                      /* folder or file */
    const struct dataset_info *info; /* of a table that has a name, else NULL */
    int part;                        /* of its files; -1: all */
    bool is_libsvm;
};

static const char *last_part(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* NAME/PART of a table that has a name and parts. */
static const struct dataset_info *find_part(const char *name, int *part)
{
    for (int i = 0; dataset_table[i]; i++) {
        const struct dataset_info *info = dataset_table[i];
        const size_t length = strlen(info->name);
        if (!info->table || strncmp(name, info->name, length) != 0 || name[length] != '/')
            continue;
        for (*part = 0; info->table->parts[*part]; (*part)++) {
            if (strcmp(name + length + 1, info->table->parts[*part]) == 0)
                return info;
        }
    }
    return NULL;
}

/* A file need not be written with a slash. */
static bool is_bare_file(const char *name)
{
    return !strchr(name, '/') && file_exists(name) && !file_is_folder(name);
}

/* The folder or file of a name, and what it holds. */
static enum status locate(const char *name, char **out_path, const struct format **out_format)
{
    char *path;

    TRY(is_bare_file(name) ? mem_strdup(name, &path) : search_find(name, &path));
    const enum status status = format_detect(path, out_format);
    if (status != STATUS_OK) {
        mem_free(path);
        return status;
    }
    *out_path = path;
    return STATUS_OK;
}

/* A folder is a table that has a name if it was asked for by it, if dataset.json says so, or if
 * the table's files lie there under the names that they are published by. */
static enum status find_row(const char *name, struct place *place)
{
    struct known known;

    if (is_bare_file(name) || !file_is_folder(place->path))
        return STATUS_OK;
    TRY(known_find(name, place->path, &known));
    place->info = known.info && known.info->table
                      ? known.info
                      : table_format_known(place->path, place->is_libsvm);
    return STATUS_OK;
}

static enum status find_place(const char *name, struct place *out)
{
    const struct format *format;
    int part = 0;
    const struct dataset_info *whole = find_part(name, &part);
    char *path;

    TRY(locate(whole ? whole->name : name, &path, &format));
    if (!format->is_table) {
        mem_free(path);
        return FAIL(STATUS_USAGE, "%s: is no table, but %s", name, format->name);
    }
    *out = (struct place){
        .path = path,
        .info = whole,
        .part = whole ? part : -1,
        .is_libsvm = format == &format_libsvm,
    };
    const enum status status = whole ? STATUS_OK : find_row(name, out);
    if (status != STATUS_OK)
        mem_free(path);
    return status;
}

enum status tabular_is(const char *name, bool *out)
{
    const struct format *format;
    char *path;
    int part;

    *out = find_part(name, &part) != NULL;
    if (*out)
        return STATUS_OK;
    TRY(locate(name, &path, &format));
    mem_free(path);
    *out = format->is_table;
    return STATUS_OK;
}

enum status tabular_known_schema(const char *name, struct schema **out)
{
    int part;
    const struct dataset_info *info = find_part(name, &part);
    struct json *json;

    if (!info)
        info = dataset_find(name);
    if (!info || !info->table || !info->table->schema)
        return FAIL(STATUS_NOT_FOUND, "%s: is no table whose columns are known by its name",
                    name);
    TRY(json_parse(info->table->schema, strlen(info->table->schema), &json));
    const enum status status = schema_read(json_root(json), out);
    json_destroy(json);
    return status;
}

/* Rows ----------------------------------------------------------------------------------- */

static enum status make_room(struct tabular *t, int64_t rows)
{
    const size_t columns = (size_t)t->schema->n_columns;

    if (rows <= t->capacity)
        return STATUS_OK;
    TRY(mem_grow(&t->rows, (size_t)t->capacity * columns, (size_t)rows * columns,
                 sizeof *t->rows));
    TRY(mem_grow(&t->labels, (size_t)t->capacity, (size_t)rows, sizeof *t->labels));
    TRY(mem_grow(&t->line, (size_t)t->capacity, (size_t)rows, sizeof *t->line));
    if (t->arena)
        TRY(mem_grow(&t->id, (size_t)t->capacity, (size_t)rows, sizeof *t->id));
    t->capacity = rows;
    return STATUS_OK;
}

/* The column by which people find rows; -1: there is none. */
static int id_column(const struct cells *cells)
{
    for (int c = 0; cells->names && c < cells->columns; c++)
        if (strcasecmp(cells->names[c], "id") == 0)
            return c;
    return -1;
}

/* Keeps what the rows behind those that are there are called. */
static enum status add_names(struct tabular *t, const struct cells *cells)
{
    const int column = id_column(cells);
    const int64_t file = t->n_files > 0 ? t->n_files - 1 : 0;

    if (column >= 0 && !t->arena) {
        TRY(arena_create(&t->arena));
        TRY(mem_alloc((size_t)t->capacity, sizeof *t->id, &t->id));
    }
    for (int64_t i = 0; i < cells->rows; i++) {
        t->line[t->whole + i] = file << FILE_SHIFT | cells->line[i];
        if (!t->id)
            continue;
        const char *text = column < 0 ? "" : cells->cell[i * cells->columns + column];
        t->id[t->whole + i] = *text ? arena_strdup(t->arena, text) : NULL;
        if (*text && !t->id[t->whole + i])
            return STATUS_NO_MEMORY;
    }
    return STATUS_OK;
}

/* The file's rows, after those that are there. */
static enum status add_rows(struct tabular *t, const char *path, const struct cells *cells)
{
    const int columns = t->schema->n_columns;
    int *at;

    TRY(make_room(t, t->whole + cells->rows));
    if (!t->is_coarse)
        TRY(mem_alloc((size_t)columns, sizeof *t->is_coarse, &t->is_coarse));
    TRY(add_names(t, cells));
    TRY(mem_alloc((size_t)columns, sizeof *at, &at));
    enum status status = schema_match(t->schema, path, cells, at);
    for (int64_t i = 0; i < cells->rows && status == STATUS_OK; i++) {
        const char **cell = cells->cell + i * cells->columns;
        double *row = t->rows + (t->whole + i) * columns;
        for (int c = 0; c < columns && status == STATUS_OK; c++) {
            const char *text = at[c] < 0 ? "" : cell[at[c]];
            status = schema_value(t->schema, c, path, cells->line[i], text, &row[c]);
            if (status == STATUS_OK && i > 0 && at[c] >= 0 && row[c] == row[c - columns] &&
                t->schema->columns[c].kind == COLUMN_NUMBER)
                t->is_coarse[c] |=
                    !cells_are_same(text, cells->cell[(i - 1) * cells->columns + at[c]]);
        }
        if (status == STATUS_OK)
            status = schema_label(t->schema, path, cells->line[i], cell[at[t->schema->label]],
                                  &t->labels[t->whole + i]);
    }
    mem_free(at);
    TRY(status);
    t->whole += cells->rows;
    return STATUS_OK;
}

/* The fold of each of `count` rows: those of a class are dealt out in a random order. */
static void deal_out(const int32_t *labels, int64_t count, int classes, int folds, int *fold,
                     int64_t *order)
{
    for (int class = 0; class < classes; class ++) {
        struct rng rng;
        int64_t n = 0;

        rng_init(&rng, FOLD_KEY, (uint64_t) class);
        for (int64_t i = 0; i < count; i++) {
            if (labels[i] == class)
                order[n++] = i;
        }
        for (int64_t i = n; i > 1; i--) {
            const int64_t j = (int64_t)rng_below(&rng, (uint64_t)i), last = order[i - 1];
            order[i - 1] = order[j];
            order[j] = last;
        }
        for (int64_t i = 0; i < n; i++)
            fold[order[i]] = (int)(i % folds);
    }
}

/* Of the rows from `first` on, one file's, leaves those of a split. */
static enum status keep_split(struct tabular *t, int64_t first, enum dataset_split split,
                              const struct tabular_config *config)
{
    const int folds = config->folds ? config->folds : TABULAR_FOLDS;
    const int64_t count = t->whole - first;
    const size_t columns = (size_t)t->schema->n_columns;
    int64_t *order, kept = first;
    int *fold;

    TRY(mem_alloc((size_t)count, sizeof *order, &order));
    enum status status = mem_alloc((size_t)count, sizeof *fold, &fold);
    if (status == STATUS_OK) {
        deal_out(t->labels + first, count, t->schema->n_classes, folds, fold, order);
        for (int64_t i = 0; i < count; i++) {
            if ((fold[i] == config->fold) != (split == DATASET_TEST))
                continue;
            memmove(t->rows + (size_t)kept * columns, t->rows + (size_t)(first + i) * columns,
                    columns * sizeof *t->rows);
            t->line[kept] = t->line[first + i];
            if (t->id)
                t->id[kept] = t->id[first + i];
            t->labels[kept++] = t->labels[first + i];
        }
        t->seen += count;
        t->whole = kept;
        mem_free(fold);
    }
    mem_free(order);
    return status;
}

/* Files ---------------------------------------------------------------------------------- */

static enum status read_cells(const char *path, const struct place *place,
                              const struct schema *schema, struct cells *out)
{
    const int features = schema        ? schema->n_columns - 1
                         : place->info ? place->info->table->features
                                       : 0;
    size_t length;
    char *text;

    TRY(file_read(path, CELLS_BYTES, &text, &length));
    return place->is_libsvm ? libsvm_parse(path, text, length, features, out)
                            : csv_parse(path, text, length, out);
}

static enum status pick_schema(struct tabular *t, const char *path, const struct cells *cells,
                               const struct place *place, const struct tabular_config *config)
{
    const struct schema_hints hints = {
        .label = place->is_libsvm ? "label" : config->label,
        .skip = config->skip,
        .categories = config->categories,
        .is_plain = place->is_libsvm,
    };

    if (t->schema)
        return STATUS_OK;
    if (config->schema)
        return schema_copy(config->schema, &t->schema);
    const bool has_hints = (config->label && *config->label) ||
                           (config->skip && *config->skip) ||
                           (config->categories && *config->categories);
    if (has_hints && place->info)
        return FAIL(
            STATUS_USAGE,
            "--label, --skip-columns, --categories: what the columns of %s are is known",
            place->info->name);
    if (place->info && place->info->table->schema)
        return tabular_known_schema(place->info->name, &t->schema);
    return schema_find(path, cells, &hints, &t->schema);
}

static enum status add_file(struct tabular *t, const char *path, const struct place *place,
                            const struct tabular_config *config)
{
    struct cells cells;

    TRY(read_cells(path, place, t->schema ? t->schema : config->schema, &cells));
    enum status status = pick_schema(t, path, &cells, place, config);
    if (status == STATUS_OK)
        status = add_rows(t, path, &cells);
    cells_release(&cells);
    return status;
}

static enum status add_in_folder(struct tabular *t, const char *name, const struct place *place,
                                 const struct tabular_config *config)
{
    char *path;

    TRY(file_join(place->path, name, &path));
    const enum status status = add_file(t, path, place, config);
    mem_free(path);
    return status;
}

static enum status refuse_fold(const struct tabular_config *config, const char *test)
{
    if (!config->folds)
        return STATUS_OK;
    return FAIL(STATUS_USAGE,
                "--fold: %s is for testing, so no rows are held out: leave it out", test);
}

/* What the training file says of columns holds for the other, too. */
static enum status add_test_file(struct tabular *t, const char *train, const char *test,
                                 const struct place *place, const struct tabular_config *config)
{
    if (!config->schema)
        TRY(add_in_folder(t, train, place, config));
    t->whole = 0;
    return add_in_folder(t, test, place, config);
}

static enum status add_known(struct tabular *t, const struct place *place,
                             enum dataset_split split, const struct tabular_config *config)
{
    const struct table_files *table = place->info->table;

    if (table->test) {
        TRY(refuse_fold(config, table->test));
        return split == DATASET_TEST
                   ? add_test_file(t, table->files[0], table->test, place, config)
                   : add_in_folder(t, table->files[0], place, config);
    }
    for (int i = 0; table->files[i]; i++) {
        const int64_t first = t->whole;
        if (place->part >= 0 && place->part != i)
            continue;
        t->file[t->n_files++] = table->files[i];
        TRY(add_in_folder(t, table->files[i], place, config));
        TRY(keep_split(t, first, split, config));
    }
    return STATUS_OK;
}

static enum status add_folder(struct tabular *t, const struct place *place,
                              enum dataset_split split, const struct tabular_config *config)
{
    const char *train = place->is_libsvm ? "train.svm" : "train.csv";
    const char *test = place->is_libsvm ? "test.svm" : "test.csv";
    char *path;

    TRY(file_join(place->path, test, &path));
    const bool has_test = file_exists(path);
    mem_free(path);
    if (has_test) {
        TRY(refuse_fold(config, test));
        return split == DATASET_TEST ? add_test_file(t, train, test, place, config)
                                     : add_in_folder(t, train, place, config);
    }
    TRY(add_in_folder(t, train, place, config));
    return keep_split(t, 0, split, config);
}

static enum status add_files(struct tabular *t, const struct place *place,
                             enum dataset_split split, const struct tabular_config *config)
{
    if (place->info)
        return add_known(t, place, split, config);
    if (file_is_folder(place->path))
        return add_folder(t, place, split, config);
    TRY(add_file(t, place->path, place, config));
    return keep_split(t, 0, split, config);
}

/* The first rows of all classes are for testing, so that classes of one row leave nothing else. */
static enum status check_rows(const struct tabular *t, enum dataset_split split, int64_t rows)
{
    if (split == DATASET_TEST || t->whole > 0 || rows == 0)
        return STATUS_OK;
    return FAIL(
        STATUS_USAGE,
        "%s: label column %s has another value in each of %lld rows, so no class has rows to "
        "train on: name a column of classes with --label",
        t->path, t->schema->columns[t->schema->label].name, (long long)rows);
}

/* As a source ---------------------------------------------------------------------------- */

static void read_rows(const struct source *source, const struct source_how *how,
                      const int64_t *index, int64_t count,
                      const int64_t length[SOURCE_SEQUENCES], void *x, int32_t *x2, int32_t *y)
{
    const struct tabular *t = (const struct tabular *)source;
    const int64_t features = t->source.sample.dim[0];
    float *to = x;

    (void)how;
    (void)length;
    (void)x2;
    for (int64_t i = 0; i < count; i++, to += features) {
        BUG_ON(index[i] < 0 || index[i] >= source->count);
        schema_encode(t->schema, t->rows + index[i] * t->schema->n_columns, t->mean, t->factor,
                      to);
        y[i] = t->labels[index[i]];
    }
}

static int32_t label_row(const struct source *source, int64_t index)
{
    return ((const struct tabular *)source)->labels[index];
}

static void name_row(const struct source *source, int64_t index, struct strbuf *out)
{
    const struct tabular *t = (const struct tabular *)source;
    const int64_t line = t->line[index] & (((int64_t)1 << FILE_SHIFT) - 1);

    if (t->id && t->id[index])
        strbuf_add(out, t->id[index]);
    else if (t->n_files > 1)
        strbuf_printf(out, "%s:%" PRId64, t->file[t->line[index] >> FILE_SHIFT], line);
    else
        strbuf_printf(out, "%" PRId64, line);
}

static const struct source_kind rows_kind = { .read = read_rows,
                                              .label = label_row,
                                              .name = name_row };

static void describe(struct tabular *t, const struct place *place)
{
    struct source *source = &t->source;
    const int64_t features = schema_features(t->schema);

    t->own = (struct dataset_info){
        .name = place->info ? place->info->name : last_part(t->path),
        .title = place->info && place->part < 0 ? place->info->title : t->title,
        .format = place->is_libsvm ? "libsvm" : "csv",
        .sample = shape_1(features),
        .classes = t->schema->n_classes,
        .class_names = t->schema->class_names,
    };
    source->kind = &rows_kind;
    source->info = &t->own;
    source->path = t->path;
    source->fingerprint = t->fingerprint;
    source->old_fingerprint = t->old_fingerprint;
    source->sample = shape_1(features);
    source->row_bytes[SOURCE_X] = (size_t)features * sizeof(float);
    source->row_bytes[SOURCE_Y] = sizeof(int32_t);
}

/* Numbers as floats, which tells tables apart but for a column that needs more digits: its doubles
 * follow. */
static void hash_rows(const struct tabular *t, struct sha256 *hash)
{
    const int columns = t->schema->n_columns;

    for (int64_t i = 0; i < t->whole * columns; i++) {
        const float value = (float)t->rows[i];
        sha256_add(hash, &value, sizeof value);
    }
    for (int c = 0; c < columns; c++) {
        struct schema_spread spread;
        if (t->schema->columns[c].kind != COLUMN_NUMBER)
            continue;
        schema_measure(t->schema, c, t->rows, t->whole, &spread);
        if (!schema_loses_digits(spread.largest, spread.deviation))
            continue;
        for (int64_t i = 0; i < t->whole; i++)
            sha256_add(hash, &t->rows[i * columns + c], sizeof *t->rows);
    }
}

static enum status hash_contents(const struct tabular *t, const char *name,
                                 enum dataset_split split, char out[SHA256_HEX])
{
    enum { TEXT_MOST = 64 << 20 };
    struct sha256 hash;
    struct strbuf text;

    strbuf_init(&text, TEXT_MOST);
    strbuf_printf(&text, "tutti table 1\n%s\n%d\n%lld\n", name, (int)split,
                  (long long)t->whole);
    schema_print(t->schema, &text);
    sha256_init(&hash);
    sha256_add(&hash, text.text, text.length);
    const enum status status = strbuf_status(&text);
    strbuf_release(&text);
    hash_rows(t, &hash);
    sha256_add(&hash, t->labels, (size_t)t->whole * sizeof *t->labels);
    sha256_end_hex(&hash, out);
    return status;
}

/* Was a known table, or a part of one, asked for by its name? */
static bool is_known_name(const char *name)
{
    int part;

    return find_part(name, &part) ||
           (!dataset_is_path(name) && !is_bare_file(name) && dataset_find(name));
}

static enum status fill(struct tabular *t, const char *name, enum dataset_split split,
                        const struct tabular_config *config)
{
    struct place place;

    TRY(find_place(name, &place));
    t->path = place.path;
    TRY(mem_strdup(name, &t->title));
    if (config->folds < 0 || config->folds == 1 || config->fold < 0 ||
        config->fold >= (config->folds ? config->folds : TABULAR_FOLDS))
        return FAIL(STATUS_USAGE, "fold %d of %d: there is none", config->fold, config->folds);
    TRY(add_files(t, &place, split, config));
    TRY(check_rows(t, split, t->seen));
    TRY(mem_alloc((size_t)t->schema->n_columns, sizeof *t->mean, &t->mean));
    TRY(mem_alloc((size_t)t->schema->n_columns, sizeof *t->factor, &t->factor));
    for (int i = 0; i < t->schema->n_columns; i++)
        t->factor[i] = 1;
    describe(t, &place);
    /* Names as in hash_names of dataset.c. */
    const char *known = is_known_name(name) ? last_part(name) : "";
    TRY(hash_contents(t, known, split, t->contents));
    TRY(hash_contents(t, last_part(name), split, t->old_contents));
    tabular_limit(t, 0);
    return STATUS_OK;
}

enum status tabular_open(const char *name, enum dataset_split split,
                         const struct tabular_config *config, struct tabular **out)
{
    struct tabular *tabular;

    TRY(mem_alloc(1, sizeof *tabular, &tabular));
    const enum status status = fill(tabular, name, split, config);
    if (status != STATUS_OK) {
        tabular_close(tabular);
        return status;
    }
    *out = tabular;
    return STATUS_OK;
}

void tabular_close(struct tabular *t)
{
    if (!t)
        return;
    schema_destroy(t->schema);
    mem_free(t->path);
    mem_free(t->title);
    mem_free(t->rows);
    mem_free(t->labels);
    mem_free(t->line);
    mem_free(t->id);
    arena_destroy(t->arena);
    mem_free(t->mean);
    mem_free(t->factor);
    mem_free(t->is_coarse);
    mem_free(t);
}

static void hash_count(const char *contents, int64_t count, char out[SHA256_HEX])
{
    struct sha256 hash;
    char text[128];

    snprintf(text, sizeof text, "%s\n%lld\n", contents, (long long)count);
    sha256_init(&hash);
    sha256_add(&hash, text, strlen(text));
    sha256_end_hex(&hash, out);
}

void tabular_limit(struct tabular *t, int64_t limit)
{
    t->source.count = limit > 0 && limit < t->whole ? limit : t->whole;
    hash_count(t->contents, t->source.count, t->fingerprint);
    hash_count(t->old_contents, t->source.count, t->old_fingerprint);
}

const struct source *tabular_as_source(const struct tabular *tabular)
{
    return &tabular->source;
}

const struct schema *tabular_schema(const struct tabular *tabular)
{
    return tabular->schema;
}

void tabular_statistics(const struct tabular *t, const int64_t *index, int64_t count,
                        double *out)
{
    memset(out, 0, (size_t)schema_statistics(t->schema) * sizeof *out);
    for (int64_t i = 0; i < (index ? count : t->source.count); i++)
        schema_add_statistics(t->schema,
                              t->rows + (index ? index[i] : i) * t->schema->n_columns, out);
}

void tabular_standardize(struct tabular *t, const double *statistics)
{
    schema_scales(t->schema, statistics, t->mean, t->factor);
}

/* Warnings ------------------------------------------------------------------------------- */

/* Rows whose number differs from that of the row before; `hidden`: in double precision alone. */
struct changes {
    int64_t count, hidden;
};

static struct changes count_changes(const struct tabular *t, int number)
{
    const struct column *column = &t->schema->columns[number];
    const int columns = t->schema->n_columns;
    struct changes changes = { 0 };

    for (int64_t i = 1; i < t->source.count; i++) {
        const double *value = t->rows + i * columns + number;
        const double now = value[0], before = value[-columns];
        if (isnan(now) || isnan(before) || now == before)
            continue;
        changes.count++;
        changes.hidden +=
            schema_standardize(column, now, t->mean[number], t->factor[number]) ==
            schema_standardize(column, before, t->mean[number], t->factor[number]);
    }
    return changes;
}

/* Warns if a column's numbers lose digits on their way to a model. */
static void warn_of_column(const struct tabular *t, int number)
{
    const struct column *column = &t->schema->columns[number];
    struct schema_spread s;

    schema_measure(t->schema, number, t->rows, t->source.count, &s);
    const struct changes changes = count_changes(t, number);
    if (s.cut > 0)
        log_line(
            LOG_WARNING,
            "%s: column %s: %lld of %lld numbers are more than a million scales away from the "
            "schema's center (center %g, scale %g) and are cut: correct these",
            t->path, column->name, (long long)s.cut, (long long)s.count, column->center,
            column->scale);
    else if (t->is_coarse[number] ||
             (!s.is_whole && s.deviation > 0 && s.largest * 0x1p-53 > 1e-3 * s.deviation))
        log_line(
            LOG_WARNING,
            "%s: column %s: its numbers, near %.6g, differ in digits behind the 16th, which "
            "are lost: subtract a constant from them in the file",
            t->path, column->name, s.mean);
    else if (column->is_plain && schema_loses_digits(s.largest, s.deviation))
        log_line(
            LOG_WARNING,
            "%s: column %s is taken as it is, and its numbers, near %.6g with deviation %.3g, "
            "lose digits in single precision: take \"plain\" out of the schema",
            t->path, column->name, s.mean, s.deviation);
    else if (!column->is_plain && s.deviation > 0 && s.count > 1 &&
             s.deviation * t->factor[number] < 1e-3 * column->scale)
        log_line(
            LOG_WARNING,
            "%s: column %s: its training rows have deviation %.3g, which is nothing beside "
            "the scale %.3g of the schema%s: the model sees it as a constant",
            t->path, column->name, s.deviation, column->scale,
            " (an outlier in the rows for testing, or a wrong scale)");
    else if (changes.hidden * HIDDEN_PART > changes.count)
        log_line(LOG_WARNING,
                 "%s: column %s: %lld of %lld numbers that differ from the row before are the "
                 "same in single precision, beside others as large as %.3g: check these",
                 t->path, column->name, (long long)changes.hidden, (long long)changes.count,
                 s.largest);
    else if (changes.count == 0 && s.count > 1 && s.count == t->source.count)
        log_line(
            LOG_WARNING,
            "%s: column %s is %.15g in all %lld training rows: a model learns nothing from "
            "it",
            t->path, column->name, s.mean, (long long)s.count);
}

void tabular_warn(const struct tabular *t)
{
    for (int c = 0; c < t->schema->n_columns; c++) {
        if (t->schema->columns[c].kind == COLUMN_NUMBER)
            warn_of_column(t, c);
    }
}

void tabular_warn_of_sums(const struct tabular *t)
{
    for (int c = 0; c < t->schema->n_columns; c++) {
        const struct column *column = &t->schema->columns[c];
        struct schema_spread s;
        if (column->kind != COLUMN_NUMBER || column->is_plain)
            continue;
        schema_measure(t->schema, c, t->rows, t->source.count, &s);
        if (s.deviation > 0 && fabs(s.mean - column->center) > SUMS_FAR * s.deviation)
            log_line(
                LOG_WARNING,
                "%s: column %s: its numbers (mean %.6g, deviation %.3g) lie so far from the "
                "schema's center %.6g that sums over participants, which are floats, lose the "
                "deviation: give the schema a center near the mean",
                t->path, column->name, s.mean, s.deviation, column->center);
    }
}
