/* SPDX-License-Identifier: MIT */
/* job_table.c - a job's table: opened by a schema, standardized by statistics that its run keeps (table.json). */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "train/folder.h"
#include "train/job.h"

enum { FILE_MOST = 64 << 20 };

static enum status read_statistics(struct job *job, const struct json_value *list)
{
    const int64_t count = schema_statistics(job->schema);

    if (!list || list->kind != JSON_ARRAY || list->count != (size_t)count)
        return FAIL(STATUS_CORRUPT, "statistics are not %lld numbers", (long long)count);
    TRY(mem_alloc((size_t)count, sizeof *job->statistics, &job->statistics));
    for (int64_t i = 0; i < count; i++) {
        if (list->items[i].kind != JSON_NUMBER || !isfinite((float)list->items[i].number))
            return FAIL(STATUS_CORRUPT, "statistic %lld is no number", (long long)i);
        job->statistics[i] = list->items[i].number;
    }
    return STATUS_OK;
}

/* A run that goes on, or is used, has its own schema and statistics. */
static enum status load_table(struct job *job)
{
    struct json *json = NULL;
    char *path, *text = NULL;
    size_t length;

    TRY(file_join(job->settings.out, FOLDER_TABLE, &path));
    enum status status = file_read(path, FILE_MOST, &text, &length);
    if (status == STATUS_OK) {
        status = json_parse(text, length, &json);
        if (status == STATUS_OK)
            status = schema_read(json_get(json_root(json), "schema"), &job->schema);
        if (status == STATUS_OK)
            status = read_statistics(job, json_get(json_root(json), "statistics"));
        if (status != STATUS_OK)
            status = FAIL(status, "%s: %s", path, status_message());
    }
    json_destroy(json);
    mem_free(text);
    mem_free(path);
    return status;
}

static void print_statistics(const double *statistics, int64_t count, struct strbuf *out)
{
    strbuf_add(out, "[");
    for (int64_t i = 0; i < count; i++) {
        strbuf_add(out, i ? ", " : "");
        strbuf_add_number(out, statistics[i]);
    }
    strbuf_add(out, "]");
}

enum status job_save_table(const struct job *job)
{
    struct strbuf text;
    char *path;

    if (!job->train_table)
        return STATUS_OK;
    TRY(file_join(job->settings.out, FOLDER_TABLE, &path));
    strbuf_init(&text, FILE_MOST);
    strbuf_add(&text, "{\"schema\": ");
    schema_print(tabular_schema(job->train_table), &text);
    strbuf_add(&text, ",\n \"statistics\": ");
    print_statistics(job->statistics, job_statistics_count(job), &text);
    strbuf_add(&text, "}\n");
    enum status status = strbuf_status(&text);
    if (status == STATUS_OK)
        status = file_replace(path, text.text, text.length);
    strbuf_release(&text);
    mem_free(path);
    return status;
}

/* A model that comes as a file may say what columns are, and what they are standardized by. */
static enum status take_table(struct job *job)
{
    const struct settings *s = &job->settings;

    if (*s->label || *s->skip_columns || *s->categories)
        return FAIL(STATUS_USAGE,
                    "--label, --skip-columns, --categories: %s says what the columns are",
                    s->model);
    TRY(schema_read(job->model->table, &job->schema));
    return job->model->statistics ? read_statistics(job, job->model->statistics) : STATUS_OK;
}

/* "K/N", K from 1. */
static enum status read_fold(const char *text, struct tabular_config *config)
{
    enum { FOLDS_MOST = 1000 };
    int fold, folds, end = -1;

    if (!*text)
        return STATUS_OK;
    if (sscanf(text, "%4d/%4d%n", &fold, &folds, &end) != 2 || end < 0 || text[end] ||
        folds < 2 || folds > FOLDS_MOST || fold < 1 || fold > folds)
        return FAIL(STATUS_USAGE,
                    "--fold %s: write K/N, such as 2/5: fold K of N is for testing", text);
    config->fold = fold - 1;
    config->folds = folds;
    return STATUS_OK;
}

static void standardize(struct job *job)
{
    tabular_standardize(job->train_table, job->statistics);
    tabular_standardize(job->test_table, job->statistics);
}

enum status job_open_table(struct job *job, bool has_table)
{
    const struct settings *s = &job->settings;
    struct tabular_config config = { .label = s->label,
                                     .skip = s->skip_columns,
                                     .categories = s->categories };

    if (s->crop || s->flip || s->cutout)
        return FAIL(STATUS_USAGE, "--crop, --flip and --cutout are for images; %s reads tables",
                    job->model->name);
    TRY(read_fold(s->fold, &config));
    if (has_table)
        TRY(load_table(job));
    else if (job->model->table)
        TRY(take_table(job));
    config.schema = job->schema;
    TRY(tabular_open(s->data, DATASET_TRAIN, &config, &job->train_table));
    config.schema = tabular_schema(job->train_table);
    TRY(tabular_open(s->data, DATASET_TEST, &config, &job->test_table));
    tabular_limit(job->train_table, s->limit);
    tabular_limit(job->test_table, s->limit);
    job->train = tabular_as_source(job->train_table);
    job->test = tabular_as_source(job->test_table);
    job->model_config.sample = job->train->sample;
    job->model_config.classes = schema_classes(tabular_schema(job->train_table));
    if (job->statistics) {
        standardize(job);
    } else {
        TRY(mem_alloc((size_t)job_statistics_count(job), sizeof *job->statistics,
                      &job->statistics));
        job_statistics(job, NULL, 0, job->statistics);
        standardize(job);
    }
    tabular_warn(job->train_table);
    return STATUS_OK;
}

void job_close_table(struct job *job)
{
    tabular_close(job->train_table);
    tabular_close(job->test_table);
    schema_destroy(job->schema);
    mem_free(job->statistics);
}

int64_t job_statistics_count(const struct job *job)
{
    return job->train_table ? schema_statistics(tabular_schema(job->train_table)) : 0;
}

void job_statistics(const struct job *job, const int64_t *index, int64_t count, double *out)
{
    tabular_statistics(job->train_table, index, count, out);
}

void job_standardize(struct job *job, const float *statistics)
{
    for (int64_t i = 0; i < job_statistics_count(job); i++)
        job->statistics[i] = (double)statistics[i];
    standardize(job);
}

void job_warn_of_sums(const struct job *job)
{
    if (job->train_table)
        tabular_warn_of_sums(job->train_table);
}

enum status job_print_table(const struct job *job, const float *given, struct strbuf *schema,
                            struct strbuf *statistics)
{
    const struct schema *table = job->train_table ? tabular_schema(job->train_table) : NULL;
    struct schema *read = NULL;

    if (!table && job->model->table) {
        TRY(schema_read(job->model->table, &read));
        table = read;
    }
    if (table)
        schema_print(table, schema);
    for (int64_t i = 0; table && given && i < schema_statistics(table); i++) {
        strbuf_add(statistics, i ? ", " : "[");
        strbuf_add_number(statistics, (double)given[i]);
    }
    strbuf_add(statistics, table && given ? "]" : "");
    schema_destroy(read);
    TRY(strbuf_status(schema));
    return strbuf_status(statistics);
}
