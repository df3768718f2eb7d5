/* SPDX-License-Identifier: MIT */
/* compare.c - runs in groups, figures of each, and verdicts. */
#include "report/compare.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/mem.h"
#include "report/number.h"

enum { NOTES = 1 << 16, LINE = 1 << 20 };

/* A difference that chance makes in fewer cases than this is one. */
static const double significant = 0.05;

const char *const compare_verdict_names[] = { "unknown", "worse", "same", "better" };

static void print_percent(char out[NUMBER_TEXT], double value)
{
    if (isfinite(value))
        snprintf(out, NUMBER_TEXT, "%.2f%%", 100 * value);
    else
        number_print(out, value, NUMBER_PERCENT, 0);
}

static void print_plain(char out[NUMBER_TEXT], double value)
{
    number_print(out, value, NUMBER_PLAIN, 0);
}

static void print_rate(char out[NUMBER_TEXT], double value)
{
    number_print(out, value, NUMBER_SI, 0);
}

const struct compare_row compare_rows[COMPARE_METRICS] = {
    [COMPARE_VAL_ACCURACY] = { "val_accuracy", "validation accuracy", true, 0.001,
                               print_percent },
    [COMPARE_VAL_LOSS] = { "val_loss", "validation loss", false, 0.002, print_plain },
    [COMPARE_TRAIN_ACCURACY] = { "train_accuracy", "training accuracy", true, 0.001,
                                 print_percent },
    [COMPARE_TRAIN_LOSS] = { "train_loss", "training loss", false, 0.002, print_plain },
    [COMPARE_EPOCH_SECONDS] = { "epoch_seconds", "time of an epoch", false, 0.02,
                                number_duration },
    [COMPARE_SAMPLES_PER_S] = { "samples_per_s", "samples a second", true, 0.02, print_rate },
    [COMPARE_PEAK_BYTES] = { "peak_bytes", "memory of a rank", false, 0.02, number_bytes },
};

void compare_print(char out[2 * NUMBER_TEXT], enum compare_metric metric,
                   const struct moments *moments)
{
    char mean[NUMBER_TEXT], deviation[NUMBER_TEXT];

    compare_rows[metric].print(mean, moments->mean);
    if (moments->count < 2) {
        snprintf(out, sizeof(char[2 * NUMBER_TEXT]), "%s", mean);
        return;
    }
    compare_rows[metric].print(deviation, moments->deviation);
    snprintf(out, sizeof(char[2 * NUMBER_TEXT]), "%.50s \u00b1 %.50s", mean, deviation);
}

/* Settings ---------------------------------------------------------------------------------- */

/* Members of config.json that do not make a run another experiment. */
static bool is_beside(const char *key)
{
    static const char *const names[] = {
        "format",       "tutti",   "seed",         "log_every",        "eval_every",
        "keep",         "trace",   "hosts",        "checkpoint_every", "trace_steps",
        "launch_agent", "mpirun",  "lost_after",   "stall_timeout",    "loader_threads",
        "bits",         "command", "distribution", "total_steps",      "auto",
        "parameters",   NULL,
    };
    for (int i = 0; names[i]; i++) {
        if (strcmp(key, names[i]) == 0)
            return true;
    }
    return false;
}

static bool is_same(const struct json_value *a, const struct json_value *b)
{
    if (!a || !b || a->kind != b->kind)
        return a == b;
    switch (a->kind) {
    case JSON_NULL:
        return true;
    case JSON_BOOL:
        return a->boolean == b->boolean;
    case JSON_NUMBER:
        return a->number == b->number;
    case JSON_STRING:
        return strcmp(a->text, b->text) == 0;
    case JSON_ARRAY:
    case JSON_OBJECT:
        break;
    }
    bool same = a->count == b->count;
    for (size_t i = 0; same && i < a->count; i++)
        same = a->kind == JSON_ARRAY ? is_same(&a->items[i], &b->items[i])
                                     : is_same(&a->items[i], json_get(b, a->keys[i]));
    return same;
}

static const struct json_value *settings_of(const struct run *run)
{
    return run->config ? json_root(run->config) : NULL;
}

/* Do two runs differ in nothing but the seed, and in what no result depends on? */
static bool are_alike(const struct run *a, const struct run *b)
{
    const struct json_value *x = settings_of(a), *y = settings_of(b);

    if (!x || !y)
        return false;
    for (size_t i = 0; i < x->count; i++) {
        if (!is_beside(x->keys[i]) && !is_same(&x->items[i], json_get(y, x->keys[i])))
            return false;
    }
    for (size_t i = 0; i < y->count; i++) {
        if (!is_beside(y->keys[i]) && !json_get(x, y->keys[i]))
            return false;
    }
    return true;
}

/* Groups ------------------------------------------------------------------------------------ */

/* One run on the way to its group. */
struct entry {
    struct run *run;
    const char *model, *data, *folder;
    char name[64]; /* "": none was given */
    size_t section, group;
};

static bool is_folder(const char *path)
{
    struct stat info;

    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

/* FOLDER, or NAME=FOLDER where there is no folder of that whole name. */
static const char *split_word(const char *word, char name[64])
{
    const char *equals = strchr(word, '=');

    name[0] = '\0';
    if (!equals || equals == word || is_folder(word))
        return word;
    snprintf(name, 64, "%.*s", (int)(equals - word), word);
    return equals + 1;
}

static bool is_one_folder(const char *a, const char *b)
{
    struct stat x, y;

    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/* first: of all entries, those before this one being read. */
static enum status read_entry(struct compare *compare, const char *word,
                              const struct entry *first, struct entry *entry)
{
    const char *folder = split_word(word, entry->name);

    TRY(run_read(folder, &entry->run));
    compare->runs[compare->n_runs++] = entry->run;
    for (const struct entry *before = first; before < entry; before++) {
        if (strcmp(before->name, entry->name) == 0 && is_one_folder(before->folder, folder))
            return FAIL(STATUS_USAGE, "%.200s is named twice", folder);
    }
    entry->folder = folder;
    entry->model = run_text(entry->run, "model", "model");
    entry->data = run_text(entry->run, "data", "data");
    const char *state = entry->run->summary
                            ? json_text(json_root(entry->run->summary), "status", "unfinished")
                            : "unfinished";
    if (strcmp(state, "done") != 0)
        strbuf_printf(&compare->notes,
                      strcmp(state, "failed") == 0
                          ? "%.200s %s: it counts only where all runs of its group failed\n"
                          : "%.200s is %s: its figures are those so far\n",
                      folder, state);
    return STATUS_OK;
}

/* A summary has a path as it was given, a configuration has it from the root. */
static bool have_same(const struct entry *a, const struct entry *b, const char *key)
{
    const char *x = run_text(a->run, key, key), *y = run_text(b->run, key, key);

    if (strcmp(x, y) == 0)
        return true;
    x = run_configured(a->run, key, NULL);
    y = run_configured(b->run, key, NULL);
    return x && y && strcmp(x, y) == 0;
}

static bool are_grouped(const struct entry *a, const struct entry *b)
{
    if (*a->name || *b->name)
        return strcmp(a->name, b->name) == 0;
    return are_alike(a->run, b->run);
}

/* Numbers sections, and groups in each, in the order of the words; returns the sections. */
static size_t number_groups(struct entry *entries, size_t count)
{
    size_t sections = 0;

    for (size_t i = 0; i < count; i++) {
        struct entry *e = &entries[i];
        bool known = false, grouped = false;
        e->section = sections;
        for (size_t k = 0; k < i && !grouped; k++) {
            const struct entry *before = &entries[k];
            if (!have_same(before, e, "model") || !have_same(before, e, "data"))
                continue;
            known = true;
            e->section = before->section;
            e->model = before->model; /* a section is called as its first run is */
            e->data = before->data;
            grouped = are_grouped(before, e);
            e->group = grouped                     ? before->group
                       : before->group >= e->group ? before->group + 1
                                                   : e->group;
        }
        sections += !known;
    }
    return sections;
}

static bool has_failed(const struct run *run)
{
    return run->summary &&
           strcmp(json_text(json_root(run->summary), "status", ""), "failed") == 0;
}

static enum status make_groups(struct compare *compare, const struct entry *entries,
                               size_t count)
{
    TRY(mem_alloc(compare->n_sections, sizeof *compare->sections, &compare->sections));
    for (size_t i = 0; i < count; i++) {
        struct compare_section *s = &compare->sections[entries[i].section];
        s->model = entries[i].model;
        s->data = entries[i].data;
        s->count = entries[i].group >= s->count ? entries[i].group + 1 : s->count;
    }
    for (size_t k = 0; k < compare->n_sections; k++) {
        struct compare_section *s = &compare->sections[k];
        TRY(mem_alloc(s->count, sizeof *s->groups, &s->groups));
        for (size_t g = 0; g < s->count; g++)
            TRY(mem_alloc(count, sizeof *s->groups[g].runs, &s->groups[g].runs));
    }
    for (int failed = 0; failed < 2; failed++) {
        for (size_t i = 0; i < count; i++) {
            struct compare_group *g =
                &compare->sections[entries[i].section].groups[entries[i].group];
            if (has_failed(entries[i].run) != failed)
                continue;
            g->runs[g->count++] = entries[i].run;
            g->n_failed += failed;
            snprintf(g->label, sizeof g->label, "%s", entries[i].name);
        }
    }
    for (size_t k = 0; k < compare->n_sections; k++) {
        struct compare_section *s = &compare->sections[k];
        for (size_t g = 0; g < s->count; g++)
            s->groups[g].n_used = s->groups[g].n_failed < s->groups[g].count
                                      ? s->groups[g].count - s->groups[g].n_failed
                                      : s->groups[g].count;
    }
    return STATUS_OK;
}

/* Labels ------------------------------------------------------------------------------------ */

static bool differs(const struct compare_section *section, const char *key)
{
    const struct json_value *first = json_get(settings_of(section->groups[0].runs[0]), key);

    for (size_t g = 1; g < section->count; g++) {
        if (!is_same(first, json_get(settings_of(section->groups[g].runs[0]), key)))
            return true;
    }
    return false;
}

/* The same of a member of a member that is an object. */
static bool differs_in(const struct compare_section *section, const char *key,
                       const char *inner)
{
    const struct json_value *first =
        json_get(json_get(settings_of(section->groups[0].runs[0]), key), inner);

    for (size_t g = 1; g < section->count; g++) {
        if (!is_same(first,
                     json_get(json_get(settings_of(section->groups[g].runs[0]), key), inner)))
            return true;
    }
    return false;
}

static void add_value(struct strbuf *out, const char *key, const struct json_value *value)
{
    const char *before = out->length > 0 ? ", " : "";

    if (value->kind == JSON_STRING && strcmp(key, "strategy") == 0)
        strbuf_printf(out, "%s%s", before, value->text);
    else if (value->kind == JSON_STRING && *value->text)
        strbuf_printf(out, "%s%s %s", before, key, value->text);
    else if (value->kind == JSON_NUMBER && strcmp(key, "ranks") == 0)
        strbuf_printf(out, "%s%g %s", before, value->number,
                      value->number == 1 ? "rank" : "ranks");
    else if (value->kind == JSON_NUMBER)
        strbuf_printf(out, "%s%s %g", before, key, value->number);
    else if (value->kind == JSON_BOOL)
        strbuf_printf(out, "%s%s%s", before, value->boolean ? "" : "no ", key);
}

/* Bytes of a text that is too long for a label, up to a comma. */
static size_t whole_words(const char *text)
{
    const size_t most = sizeof((struct compare_group *)0)->label - 8;
    size_t length = 0;

    for (size_t i = 0; i < most && text[i]; i++)
        length = text[i] == ',' ? i + 1 : length;
    return length;
}

/* What a group has other than the others of its section. */
static enum status label_group(const struct compare_section *section,
                               struct compare_group *group, size_t number)
{
    const struct json_value *settings = settings_of(group->runs[0]);
    struct strbuf text;

    if (*group->label)
        return STATUS_OK;
    strbuf_init(&text, LINE);
    const struct json_value *strategy = json_get(settings, "strategy");
    if (strategy)
        add_value(&text, "strategy", strategy);
    for (size_t i = 0; settings && i < settings->count; i++) {
        const char *key = settings->keys[i];
        const struct json_value *value = &settings->items[i];
        if (is_beside(key) || strcmp(key, "strategy") == 0 || !differs(section, key))
            continue;
        add_value(&text, key, value);
        for (size_t k = 0; value->kind == JSON_OBJECT && k < value->count; k++) {
            if (differs_in(section, key, value->keys[k]))
                add_value(&text, value->keys[k], &value->items[k]);
        }
    }
    const enum status status = strbuf_status(&text);
    if (text.length >= sizeof group->label)
        snprintf(group->label, sizeof group->label, "%.*s\u2026", (int)whole_words(text.text),
                 text.text);
    else if (text.length > 0)
        snprintf(group->label, sizeof group->label, "%s", text.text);
    else
        snprintf(group->label, sizeof group->label, "run %zu", number + 1);
    strbuf_release(&text);
    return status;
}

/* Figures ----------------------------------------------------------------------------------- */

static int compare_doubles(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* A run's times of an epoch; the first has the machine's warming up in it, and goes if there are more.
 * Returns how many. */
static size_t epoch_times(const struct run *run, double *out)
{
    size_t count = 0;

    for (size_t i = 0; i < run->eval.count; i++) {
        const double seconds = run->eval.column[RUN_EPOCH_SECONDS][i];
        if (isfinite(seconds))
            out[count++] = seconds;
    }
    if (count > 1)
        memmove(out, out + 1, --count * sizeof *out);
    return count;
}

static enum status epoch_figure(const struct compare_group *group, struct moments *out)
{
    size_t most = 1;
    double *times, *medians;

    for (size_t r = 0; r < group->n_used; r++)
        most = group->runs[r]->eval.count > most ? group->runs[r]->eval.count : most;
    TRY(mem_alloc(most, sizeof *times, &times));
    enum status status = mem_alloc(group->n_used, sizeof *medians, &medians);
    if (status == STATUS_OK) {
        size_t count = 0;
        for (size_t r = 0; r < group->n_used; r++) {
            count = epoch_times(group->runs[r], times);
            qsort(times, count, sizeof *times, compare_doubles);
            medians[r] = count > 0 ? times[count / 2] : NAN;
        }
        *out =
            group->n_used == 1 ? moments_of(times, count) : moments_of(medians, group->n_used);
        mem_free(medians);
    }
    mem_free(times);
    return status;
}

/* The last of a run: what summary.json says, or an unfinished run's last line. */
static double last_of(const struct run *run, enum compare_metric metric)
{
    static const enum run_column columns[COMPARE_METRICS] = {
        [COMPARE_VAL_ACCURACY] = RUN_VAL_ACCURACY,     [COMPARE_VAL_LOSS] = RUN_VAL_LOSS,
        [COMPARE_TRAIN_ACCURACY] = RUN_TRAIN_ACCURACY, [COMPARE_TRAIN_LOSS] = RUN_TRAIN_LOSS,
        [COMPARE_SAMPLES_PER_S] = RUN_SAMPLES_PER_S,
    };
    const double last =
        metric == COMPARE_PEAK_BYTES ? NAN : run_last(&run->eval, columns[metric]);

    return run_number(run, compare_rows[metric].key, last);
}

static const char *weights_of(const struct run *run)
{
    return run_text(run, "weights_sha256", "");
}

/* Has a run before it in the group come to the same weights? Then it is the same experiment again: it says more of time,
 * nothing of results. */
static bool is_repeated(const struct compare_group *group, size_t r)
{
    const char *weights = weights_of(group->runs[r]);

    for (size_t k = 0; k < r && *weights; k++) {
        if (strcmp(weights_of(group->runs[k]), weights) == 0)
            return true;
    }
    return false;
}

static bool is_result(int metric)
{
    return metric < COMPARE_EPOCH_SECONDS;
}

static enum status measure_group(struct compare_group *group)
{
    double *values;

    TRY(mem_alloc(group->n_used, sizeof *values, &values));
    for (int m = 0; m < COMPARE_METRICS; m++) {
        size_t count = 0;
        for (size_t r = 0; r < group->n_used; r++) {
            if (!is_result(m) || !is_repeated(group, r))
                values[count++] = last_of(group->runs[r], m);
        }
        group->figures[m].moments = moments_of(values, count);
    }
    mem_free(values);
    return epoch_figure(group, &group->figures[COMPARE_EPOCH_SECONDS].moments);
}

/* Verdicts ---------------------------------------------------------------------------------- */

/* Has the baseline the same weights for each run of the group? */
static bool has_same_weights(const struct compare_group *base,
                             const struct compare_group *group)
{
    for (size_t r = 0; r < group->n_used; r++) {
        bool found = false;
        for (size_t k = 0; k < base->n_used && !found; k++)
            found = *weights_of(group->runs[r]) &&
                    strcmp(weights_of(base->runs[k]), weights_of(group->runs[r])) == 0;
        if (!found)
            return false;
    }
    return true;
}

static void judge(const struct compare_row *row, const struct moments *base, bool same_results,
                  struct compare_figure *figure)
{
    const struct moments *m = &figure->moments;

    figure->p = welch_p(base, m);
    if (base->count == 0 || m->count == 0)
        return;
    if (same_results) {
        figure->verdict = COMPARE_SAME;
        return;
    }
    if (isnan(figure->p))
        return;
    const double difference = m->mean - base->mean;
    if (figure->p >= significant || fabs(difference) <= row->least * fabs(base->mean))
        figure->verdict = COMPARE_SAME;
    else
        figure->verdict =
            (difference > 0) == row->more_is_better ? COMPARE_BETTER : COMPARE_WORSE;
}

/* Ranking ----------------------------------------------------------------------------------- */

static bool is_ranked(const struct compare_group *group, enum compare_metric metric)
{
    return group->n_failed < group->count && group->figures[metric].moments.count > 0;
}

static enum compare_metric pick_metric(const struct compare_section *section)
{
    for (int m = 0; m < COMPARE_METRICS; m++) {
        for (size_t g = 0; g < section->count; g++) {
            if (is_ranked(&section->groups[g], m))
                return m;
        }
    }
    return COMPARE_METRICS;
}

/* Does the section's group a come before its group b? */
static bool is_before(const struct compare_section *section, size_t a, size_t b)
{
    const double x = section->groups[a].figures[section->ranked_by].moments.mean,
                 y = section->groups[b].figures[section->ranked_by].moments.mean;

    if (x == y)
        return a < b;
    return (x > y) == compare_rows[section->ranked_by].more_is_better;
}

static void rank_groups(struct compare_section *section)
{
    section->ranked_by = pick_metric(section);
    for (size_t g = 0; g < section->count; g++)
        section->groups[g].p_best = NAN;
    if (section->ranked_by == COMPARE_METRICS)
        return;
    for (size_t g = 0; g < section->count; g++) {
        if (!is_ranked(&section->groups[g], section->ranked_by))
            continue;
        section->groups[g].rank = 1;
        for (size_t k = 0; k < section->count; k++)
            section->groups[g].rank += k != g &&
                                       is_ranked(&section->groups[k], section->ranked_by) &&
                                       is_before(section, k, g);
    }
    const struct compare_group *best = compare_ranked(section, 1);
    for (size_t g = 0; g < section->count; g++) {
        struct compare_group *group = &section->groups[g];
        if (group->rank > 1)
            group->p_best = welch_p(&best->figures[section->ranked_by].moments,
                                    &group->figures[section->ranked_by].moments);
    }
}

const struct compare_group *compare_ranked(const struct compare_section *section, size_t rank)
{
    for (size_t g = 0; g < section->count; g++) {
        if (rank > 0 && section->groups[g].rank == rank)
            return &section->groups[g];
    }
    return NULL;
}

bool compare_is_tied(const struct compare_group *group)
{
    return group->p_best >= significant;
}

static enum status judge_section(struct compare_section *section)
{
    struct compare_group *base = &section->groups[0];

    for (size_t g = 0; g < section->count; g++) {
        struct compare_group *group = &section->groups[g];
        TRY(measure_group(group));
        TRY(label_group(section, group, g));
        group->same_weights = g > 0 && has_same_weights(base, group);
        for (int m = 0; g > 0 && m < COMPARE_METRICS; m++)
            judge(&compare_rows[m], &base->figures[m].moments,
                  is_result(m) && group->same_weights, &group->figures[m]);
        group->speedup = base->figures[COMPARE_EPOCH_SECONDS].moments.mean /
                         group->figures[COMPARE_EPOCH_SECONDS].moments.mean;
    }
    rank_groups(section);
    return STATUS_OK;
}

static enum status fill(struct compare *compare, struct entry *entries,
                        const char *const *words, size_t count)
{
    TRY(mem_alloc(count, sizeof(struct run *), &compare->runs));
    for (size_t i = 0; i < count; i++)
        TRY(read_entry(compare, words[i], entries, &entries[i]));
    compare->n_sections = number_groups(entries, count);
    TRY(make_groups(compare, entries, count));
    for (size_t k = 0; k < compare->n_sections; k++)
        TRY(judge_section(&compare->sections[k]));
    return strbuf_status(&compare->notes);
}

enum status compare_read(const char *const *words, size_t count, struct compare **out)
{
    struct compare *compare;
    struct entry *entries;

    TRY(mem_alloc(1, sizeof *compare, &compare));
    strbuf_init(&compare->notes, NOTES);
    enum status status = mem_alloc(count, sizeof *entries, &entries);
    if (status == STATUS_OK) {
        status = fill(compare, entries, words, count);
        mem_free(entries);
    }
    if (status != STATUS_OK) {
        compare_destroy(compare);
        return status;
    }
    *out = compare;
    return STATUS_OK;
}

void compare_destroy(struct compare *compare)
{
    if (!compare)
        return;
    for (size_t k = 0; compare->sections && k < compare->n_sections; k++) {
        struct compare_section *s = &compare->sections[k];
        for (size_t g = 0; s->groups && g < s->count; g++)
            mem_free(s->groups[g].runs);
        mem_free(s->groups);
    }
    for (size_t i = 0; i < compare->n_runs; i++)
        run_destroy(compare->runs[i]);
    mem_free(compare->sections);
    mem_free(compare->runs);
    strbuf_release(&compare->notes);
    mem_free(compare);
}

/* As JSON ----------------------------------------------------------------------------------- */

static void add_figure(struct strbuf *out, const struct compare_row *row,
                       const struct compare_figure *figure, bool is_base)
{
    if (figure->moments.count == 0)
        return;
    strbuf_printf(out, ", \"%s\": {\"mean\": ", row->key);
    strbuf_add_number(out, figure->moments.mean);
    strbuf_add(out, ", \"deviation\": ");
    strbuf_add_number(out, figure->moments.deviation);
    strbuf_printf(out, ", \"count\": %zu", figure->moments.count);
    if (!is_base) {
        strbuf_printf(out,
                      ", \"verdict\": \"%s\", \"p\": ", compare_verdict_names[figure->verdict]);
        strbuf_add_number(out, figure->p);
    }
    strbuf_add(out, "}");
}

void compare_add_json(struct strbuf *out, const struct compare *compare)
{
    for (size_t k = 0; k < compare->n_sections; k++) {
        const struct compare_section *s = &compare->sections[k];
        for (size_t g = 0; g < s->count; g++) {
            const struct compare_group *group = &s->groups[g];
            strbuf_add(out, "{\"model\": ");
            strbuf_add_json(out, s->model);
            strbuf_add(out, ", \"data\": ");
            strbuf_add_json(out, s->data);
            strbuf_add(out, ", \"group\": ");
            strbuf_add_json(out, group->label);
            strbuf_printf(out,
                          ", \"runs\": %zu, \"failed\": %zu, \"is_baseline\": %s, "
                          "\"same_weights\": %s",
                          group->count, group->n_failed, g == 0 ? "true" : "false",
                          group->same_weights ? "true" : "false");
            if (group->rank > 0)
                strbuf_printf(out, ", \"rank\": %zu, \"ranked_by\": \"%s\"", group->rank,
                              compare_rows[s->ranked_by].key);
            for (int m = 0; m < COMPARE_METRICS; m++)
                add_figure(out, &compare_rows[m], &group->figures[m], g == 0);
            strbuf_add(out, ", \"speedup\": ");
            strbuf_add_number(out, group->speedup);
            strbuf_add(out, "}\n");
        }
    }
}
