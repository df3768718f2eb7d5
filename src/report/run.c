/* SPDX-License-Identifier: MIT */
/* run.c - reads a run's folder. */
#include "report/run.h"

#include "base/file.h"
#include "base/mem.h"
#include "report/pixmap.h"
#include "report/svg.h"

#include <math.h>
#include <string.h>
#include <sys/stat.h>

static const size_t document_maximum = (size_t)64 << 20;
static const size_t metrics_maximum = (size_t)1 << 30;
static const size_t picture_maximum = (size_t)64 << 20;
static const size_t notes_maximum = 1 << 16;

static const char *const column_names[RUN_COLUMNS] = {
    [RUN_STEP] = "step",
    [RUN_EPOCH] = "epoch",
    [RUN_SAMPLES] = "samples",
    [RUN_SECONDS] = "seconds",
    [RUN_TRAIN_LOSS] = "train_loss",
    [RUN_TRAIN_ACCURACY] = "train_accuracy",
    [RUN_VAL_LOSS] = "val_loss",
    [RUN_VAL_ACCURACY] = "val_accuracy",
    [RUN_VAL_TOP5_ACCURACY] = "val_top5_accuracy",
    [RUN_VAL_AUC] = "val_auc",
    [RUN_VAL_CALIBRATION_ERROR] = "val_calibration_error",
    [RUN_LR] = "lr",
    [RUN_SAMPLES_PER_S] = "samples_per_s",
    [RUN_COMM_SHARE] = "comm_share",
    [RUN_WAIT_SHARE] = "wait_share",
    [RUN_LOAD_SHARE] = "load_share",
    [RUN_EPOCH_SECONDS] = "epoch_seconds",
    [RUN_EVAL_SECONDS] = "eval_seconds",
    [RUN_TOKENS_PER_S] = "tokens_per_s",
    [RUN_PERPLEXITY] = "perplexity",
    [RUN_BLEU] = "bleu",
    [RUN_HIDDEN_SHARE] = "hidden_share",
};

/* The text of a file of the folder, and when it was written; *out stays NULL if it is absent
 * or cannot be read, which is noted. Only a lack of memory is a failure. */
static enum status read_part(struct run *run, const char *folder, const char *name,
                             size_t maximum, char **out, size_t *out_length)
{
    char *path;
    struct stat info;

    TRY(file_join(folder, name, &path));
    enum status status = file_read(path, maximum, out, out_length);
    if (status == STATUS_OK && stat(path, &info) == 0) {
        if (run->started == 0 || info.st_mtime < run->started)
            run->started = info.st_mtime;
        if (info.st_mtime > run->ended)
            run->ended = info.st_mtime;
    }
    mem_free(path);
    if (status == STATUS_OK || status == STATUS_NO_MEMORY)
        return status;
    if (status != STATUS_NOT_FOUND)
        strbuf_printf(&run->notes, "%s\n", status_message());
    return STATUS_OK;
}

static enum status read_document(struct run *run, const char *folder, const char *name,
                                 struct json **out)
{
    char *text = NULL;
    size_t length = 0;

    TRY(read_part(run, folder, name, document_maximum, &text, &length));
    if (!text)
        return STATUS_OK;
    enum status status = json_parse(text, length, out);
    mem_free(text);
    if (status == STATUS_OK || status == STATUS_NO_MEMORY)
        return status;
    strbuf_printf(&run->notes, "%s could not be read: %s\n", name, status_message());
    return STATUS_OK;
}

static enum status reserve_line(struct run_table *table)
{
    if (table->count < table->capacity)
        return STATUS_OK;
    const size_t capacity = table->capacity > 0 ? table->capacity * 2 : 256;
    for (int c = 0; c < RUN_COLUMNS; c++)
        TRY(mem_grow(&table->column[c], table->count, capacity, sizeof(double)));
    table->capacity = capacity;
    return STATUS_OK;
}

/* A run that was resumed repeats steps that were lost: lines with a step from `least` on go. */
static void take_back(struct run_table *table, double least)
{
    while (table->count > 0 && table->column[RUN_STEP][table->count - 1] >= least)
        table->count--;
}

static void take_samples_back(struct run_samples *samples, double least)
{
    while (samples->count > 0 &&
           json_number(json_root(samples->line[samples->count - 1]), "step", 0) >= least)
        json_destroy(samples->line[--samples->count]);
}

static enum status add_numbers(struct run_table *table, const struct json_value *record)
{
    TRY(reserve_line(table));
    for (int c = 0; c < RUN_COLUMNS; c++)
        table->column[c][table->count] = json_number(record, column_names[c], NAN);
    table->count++;
    return STATUS_OK;
}

/* Keeps the document. */
static enum status add_sample(struct run_samples *samples, struct json *json)
{
    if (samples->count == samples->capacity) {
        const size_t capacity = samples->capacity > 0 ? samples->capacity * 2 : 16;
        TRY(mem_grow(&samples->line, samples->count, capacity, sizeof *samples->line));
        samples->capacity = capacity;
    }
    samples->line[samples->count++] = json;
    return STATUS_OK;
}

enum kind { KIND_TRAIN, KIND_EVAL, KIND_SAMPLE, KINDS };
static const char *const kind_names[KINDS] = { "train", "eval", "sample" };

/* KINDS: one that is not known. */
static enum kind find_kind(const char *name)
{
    enum kind kind = KIND_TRAIN;

    while (kind < KINDS && strcmp(kind_names[kind], name) != 0)
        kind++;
    return kind;
}

/* False if the line is not a record: damaged, or without kind or step. */
static enum status add_line(struct run *run, const char *line, size_t length, bool *out_is_good)
{
    struct json *json;
    enum status status = json_parse(line, length, &json);

    *out_is_good = false;
    if (status != STATUS_OK)
        return status == STATUS_NO_MEMORY ? status : STATUS_OK;

    const struct json_value *record = json_root(json);
    const char *kind = json_text(record, "kind", NULL);
    const double step = json_number(record, "step", NAN);
    const enum kind found = kind ? find_kind(kind) : KINDS;
    *out_is_good = kind && isfinite(step);
    if (*out_is_good && found != KINDS) {
        take_back(&run->train, found == KIND_TRAIN ? step : step + 0.5);
        take_back(&run->eval, found == KIND_EVAL ? step : step + 0.5);
        take_samples_back(&run->samples, found == KIND_SAMPLE ? step : step + 0.5);
        status = found == KIND_SAMPLE
                     ? add_sample(&run->samples, json)
                     : add_numbers(found == KIND_EVAL ? &run->eval : &run->train, record);
        if (found == KIND_SAMPLE && status == STATUS_OK)
            return STATUS_OK; /* it is kept */
    }
    json_destroy(json);
    return status;
}

static enum status read_metrics(struct run *run, const char *folder, bool *out_is_there)
{
    char *text = NULL;
    size_t length = 0, n_bad = 0, first_bad = 0, number = 0;
    enum status status = STATUS_OK;

    TRY(read_part(run, folder, "metrics.jsonl", metrics_maximum, &text, &length));
    if (!text)
        return STATUS_OK;
    *out_is_there = true;
    for (size_t at = 0; at < length && status == STATUS_OK;) {
        const char *newline = memchr(text + at, '\n', length - at);
        const size_t bytes = newline ? (size_t)(newline - (text + at)) : length - at;
        bool is_good = true;
        number++;
        if (bytes > strspn(text + at, " \t\r")) /* not an empty line */
            status = add_line(run, text + at, bytes, &is_good);
        if (!is_good && newline) { /* a last line cut off by a crash is no news */
            n_bad++;
            first_bad = first_bad > 0 ? first_bad : number;
        }
        at += bytes + 1;
    }
    mem_free(text);
    if (n_bad > 0)
        strbuf_printf(
            &run->notes,
            "metrics.jsonl: %zu of %zu lines could not be read, the first is line %zu\n", n_bad,
            number, first_bad);
    return status;
}

static enum status read_graph(struct run *run, const char *folder)
{
    char *text = NULL;
    size_t length = 0;
    const char *reason;

    TRY(read_part(run, folder, "graph.svg", document_maximum, &text, &length));
    if (!text)
        return STATUS_OK;
    const char *element = svg_element(text, &reason);
    enum status status = STATUS_OK;
    if (element)
        status = mem_strdup(element, &run->graph);
    else
        strbuf_printf(&run->notes, "graph.svg was left out: %s\n", reason);
    mem_free(text);
    return status;
}

static enum status read_reconstructions(struct run *run, const char *folder)
{
    int width, height;

    TRY(read_part(run, folder, "reconstructions.png", picture_maximum, &run->reconstructions,
                  &run->reconstructions_bytes));
    if (!run->reconstructions ||
        pixmap_is_png(run->reconstructions, run->reconstructions_bytes, &width, &height))
        return STATUS_OK;
    strbuf_add(&run->notes, "reconstructions.png was left out: it is no PNG file\n");
    mem_free(run->reconstructions);
    run->reconstructions = NULL;
    return STATUS_OK;
}

static enum status read_all(struct run *run, const char *folder)
{
    bool has_metrics = false;

    TRY(read_document(run, folder, "config.json", &run->config));
    TRY(read_metrics(run, folder, &has_metrics));
    TRY(read_document(run, folder, "summary.json", &run->summary));
    if (!run->config && !run->summary && !has_metrics && run->notes.length == 0)
        return FAIL(STATUS_NOT_FOUND,
                    "%s holds no run: no config.json, metrics.jsonl or summary.json", folder);
    TRY(read_graph(run, folder));
    TRY(read_reconstructions(run, folder));
    return strbuf_status(&run->notes);
}

enum status run_read(const char *folder, struct run **out)
{
    struct run *run;

    if (!file_is_folder(folder))
        return FAIL(STATUS_NOT_FOUND, "%s is no folder", folder);
    TRY(mem_alloc(1, sizeof *run, &run));
    strbuf_init(&run->notes, notes_maximum);
    enum status status = read_all(run, folder);
    if (status != STATUS_OK) {
        run_destroy(run);
        return status;
    }
    *out = run;
    return STATUS_OK;
}

void run_destroy(struct run *run)
{
    if (!run)
        return;
    json_destroy(run->config);
    json_destroy(run->summary);
    for (int c = 0; c < RUN_COLUMNS; c++) {
        mem_free(run->train.column[c]);
        mem_free(run->eval.column[c]);
    }
    take_samples_back(&run->samples, -INFINITY);
    mem_free(run->samples.line);
    mem_free(run->graph);
    mem_free(run->reconstructions);
    strbuf_release(&run->notes);
    mem_free(run);
}

double run_last(const struct run_table *table, enum run_column column)
{
    for (size_t i = table->count; i > 0; i--) {
        if (isfinite(table->column[column][i - 1]))
            return table->column[column][i - 1];
    }
    return NAN;
}

bool run_has(const struct run_table *table, enum run_column column)
{
    return !isnan(run_last(table, column));
}

static const struct json_value *member(const struct run *run, const char *key)
{
    const struct json_value *value = NULL;

    if (run->summary)
        value = json_get(json_root(run->summary), key);
    if (!value && run->config)
        value = json_get(json_root(run->config), key);
    return value;
}

double run_number(const struct run *run, const char *key, double fallback)
{
    const struct json_value *value = member(run, key);

    return value && value->kind == JSON_NUMBER ? value->number : fallback;
}

const char *run_text(const struct run *run, const char *key, const char *fallback)
{
    const struct json_value *value = member(run, key);

    return value && value->kind == JSON_STRING ? value->text : fallback;
}

const char *run_configured(const struct run *run, const char *key, const char *fallback)
{
    return run->config ? json_text(json_root(run->config), key, fallback) : fallback;
}
