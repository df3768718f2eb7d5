/* SPDX-License-Identifier: MIT */
/* tabular.c - an open table: its files found, cut into cells, read by a schema, dealt out to folds. */
#include "data/tabular.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/sha256.h"
#include "data/schema_parts.h"
#include "data/search.h"
#include "data/table_format.h"

static const uint64_t FOLD_KEY = 0x666f6c64; /* of the order in which rows are dealt out */

struct tabular {
    struct source source; /* first: a source is cast to its table */
    struct schema *schema;
    struct dataset_info own;
    char *path;  /* folder or file */
    char *title; /* of `own` */
    int64_t whole, capacity;
    float *rows; /* whole * columns of the schema */
    int32_t *labels;
    float *mean, *factor; /* a column each */
    char contents[SHA256_HEX], fingerprint[SHA256_HEX];
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

/* The folder or file of a name, and what it holds. A file need not be written with a slash. */
static enum status locate(const char *name, char **out_path, const struct format **out_format)
{
    const bool is_file = !strchr(name, '/') && file_exists(name) && !file_is_folder(name);
    char *path;

    TRY(is_file ? mem_strdup(name, &path) : search_find(name, &path));
    const enum status status = format_detect(path, out_format);
    if (status != STATUS_OK) {
        mem_free(path);
        return status;
    }
    *out_path = path;
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
    const struct dataset_info *info = whole ? whole : dataset_find(last_part(path));
    *out = (struct place){
        .path = path,
        .info = info && info->table ? info : NULL,
        .part = whole ? part : -1,
        .is_libsvm = format == &format_libsvm,
    };
    return STATUS_OK;
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
    t->capacity = rows;
    return STATUS_OK;
}

/* The file's rows, after those that are there. */
static enum status add_rows(struct tabular *t, const char *path, const struct cells *cells)
{
    const int columns = t->schema->n_columns;
    int *at;

    TRY(make_room(t, t->whole + cells->rows));
    TRY(mem_alloc((size_t)columns, sizeof *at, &at));
    enum status status = schema_match(t->schema, path, cells, at);
    for (int64_t i = 0; i < cells->rows && status == STATUS_OK; i++) {
        const char **cell = cells->cell + i * cells->columns;
        float *row = t->rows + (t->whole + i) * columns;
        for (int c = 0; c < columns && status == STATUS_OK; c++)
            status = schema_value(t->schema, c, path, cells->line[i],
                                  at[c] < 0 ? "" : cell[at[c]], &row[c]);
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
            t->labels[kept++] = t->labels[first + i];
        }
        t->whole = kept;
        mem_free(fold);
    }
    mem_free(order);
    return status;
}

/* Files ---------------------------------------------------------------------------------- */

static enum status read_cells(const char *path, const struct place *place, struct cells *out)
{
    const int features = place->info ? place->info->table->features : 0;
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

    TRY(read_cells(path, place, &cells));
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

static const struct source_kind rows_kind = { .read = read_rows, .label = label_row };

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
    source->sample = shape_1(features);
    source->row_bytes[SOURCE_X] = (size_t)features * sizeof(float);
    source->row_bytes[SOURCE_Y] = sizeof(int32_t);
}

static enum status hash_contents(struct tabular *t, const char *name, enum dataset_split split)
{
    enum { TEXT_MOST = 64 << 20 };
    struct sha256 hash;
    struct strbuf text;

    strbuf_init(&text, TEXT_MOST);
    strbuf_printf(&text, "tutti table 1\n%s\n%d\n%lld\n", last_part(name), (int)split,
                  (long long)t->whole);
    schema_print(t->schema, &text);
    sha256_init(&hash);
    sha256_add(&hash, text.text, text.length);
    const enum status status = strbuf_status(&text);
    strbuf_release(&text);
    sha256_add(&hash, t->rows,
               (size_t)t->whole * (size_t)t->schema->n_columns * sizeof *t->rows);
    sha256_add(&hash, t->labels, (size_t)t->whole * sizeof *t->labels);
    sha256_end_hex(&hash, t->contents);
    return status;
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
    TRY(mem_alloc((size_t)t->schema->n_columns, sizeof *t->mean, &t->mean));
    TRY(mem_alloc((size_t)t->schema->n_columns, sizeof *t->factor, &t->factor));
    for (int i = 0; i < t->schema->n_columns; i++)
        t->factor[i] = 1;
    describe(t, &place);
    TRY(hash_contents(t, name, split));
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
    mem_free(t->mean);
    mem_free(t->factor);
    mem_free(t);
}

void tabular_limit(struct tabular *t, int64_t limit)
{
    struct sha256 hash;
    char text[128];

    t->source.count = limit > 0 && limit < t->whole ? limit : t->whole;
    snprintf(text, sizeof text, "%s\n%lld\n", t->contents, (long long)t->source.count);
    sha256_init(&hash);
    sha256_add(&hash, text, strlen(text));
    sha256_end_hex(&hash, t->fingerprint);
}

const struct source *tabular_as_source(const struct tabular *tabular)
{
    return &tabular->source;
}

const struct schema *tabular_schema(const struct tabular *tabular)
{
    return tabular->schema;
}

enum status tabular_statistics(const struct tabular *t, const int64_t *index, int64_t count,
                               float *out)
{
    const int64_t n = schema_statistics(t->schema);
    double *sums;

    TRY(mem_alloc((size_t)n, sizeof *sums, &sums));
    for (int64_t i = 0; i < (index ? count : t->source.count); i++)
        schema_add_statistics(t->schema,
                              t->rows + (index ? index[i] : i) * t->schema->n_columns, sums);
    for (int64_t i = 0; i < n; i++)
        out[i] = (float)sums[i];
    mem_free(sums);
    return STATUS_OK;
}

void tabular_standardize(struct tabular *t, const float *statistics)
{
    schema_scales(t->schema, statistics, t->mean, t->factor);
}
