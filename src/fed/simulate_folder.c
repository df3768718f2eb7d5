/* SPDX-License-Identifier: MIT */
/* simulate_folder.c - the run's folder of a simulation: a step is a round. */
#include "fed/simulate_folder.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "report/report.h"
#include "train/folder.h"
#include "train/memory.h"

enum { PICTURED = 400 /* participants whose labels the summary tells */ };

struct simulate_folder {
    const struct fed_simulation *config;
    const struct fed_job *fed;
    struct job *job;
    const struct fed_parts *parts;
    double began;
    size_t told; /* rounds */
    struct fed_simulated so_far;
    int64_t samples;
    int lock;
};

/* What makes it this federation, for config.json; the seed is there already. */
static void add_federation(const struct fed_simulation *config, struct strbuf *out)
{
    struct fed_terms terms = *config->terms;

    terms.graph = NULL;
    terms.seed = 0;
    terms.federation[0] = '\0';
    strbuf_printf(out, ",\n  \"federated\": {\"participants\": %d, \"partition\": ",
                  config->participants);
    strbuf_add_json(out, config->partition);
    strbuf_add(out, ", \"validation\": ");
    strbuf_add_number(out, config->validation);
    strbuf_add(out, ", \"drop\": ");
    strbuf_add_number(out, config->drop);
    strbuf_add(out, ", \"stop_at\": ");
    strbuf_add_number(out, config->stop_at);
    strbuf_add(out, "},\n  \"terms\": ");
    fed_terms_print(&terms, out);
}

/* Makes the run's folder, with the federation in its configuration. */
static enum status make_folder(const struct fed_simulation *config, struct job *base, int *lock)
{
    struct train_hooks hooks = *config->hooks;
    struct strbuf more;

    strbuf_init(&more, 1 << 20);
    add_federation(config, &more);
    enum status status = strbuf_status(&more);
    hooks.more = more.text;
    if (status == STATUS_OK)
        status = folder_create(base, &hooks, lock);
    strbuf_release(&more);
    return status;
}

enum status simulate_folder_create(const struct fed_simulation *config,
                                   const struct fed_job *job, const struct fed_parts *parts,
                                   struct simulate_folder **out)
{
    struct simulate_folder *folder;
    struct job *base = fed_job_base(job);

    snprintf(base->settings.out, sizeof base->settings.out, "%s", config->settings->out);
    base->settings.threads =
        config->settings->threads ? config->settings->threads : job_cores();
    base->settings.steps = base->total_steps = config->terms->rounds;
    TRY(mem_alloc(1, sizeof *folder, &folder));
    folder->lock = -1;
    const enum status status = make_folder(config, base, &folder->lock);
    if (status != STATUS_OK) {
        simulate_folder_destroy(folder);
        return status;
    }
    folder->config = config;
    folder->fed = job;
    folder->job = base;
    folder->parts = parts;
    folder->began = clock_seconds();
    folder->so_far = (struct fed_simulated){ .val_loss = NAN,
                                             .val_accuracy = NAN,
                                             .train_loss = NAN,
                                             .epsilon = NAN,
                                             .skew = NAN,
                                             .reached = -1 };
    snprintf(folder->so_far.folder, sizeof folder->so_far.folder, "%s", base->settings.out);
    *out = folder;
    return STATUS_OK;
}

void simulate_folder_destroy(struct simulate_folder *folder)
{
    if (folder)
        folder_unlock(folder->lock);
    mem_free(folder);
}

int64_t simulate_folder_reached(const struct simulate_folder *folder)
{
    return folder->so_far.reached;
}

/* Lines ----------------------------------------------------------------------------------------------- */

static void add_number(struct strbuf *out, const char *key, double number)
{
    if (!isfinite(number))
        return;
    strbuf_printf(out, ", \"%s\": ", key);
    strbuf_add_number(out, number);
}

static void add_member(struct strbuf *out, const struct json_value *round, const char *key)
{
    add_number(out, key, json_number(round, key, NAN));
}

static enum status write_line(struct simulate_folder *folder, const struct json_value *round,
                              const char *kind, const char *const *keys)
{
    struct strbuf line;

    strbuf_init(&line, 1 << 16);
    strbuf_printf(&line, "{\"kind\": \"%s\", \"step\": %" PRId64 ", \"samples\": %" PRId64,
                  kind, folder->so_far.rounds, folder->samples);
    for (int i = 0; keys[i]; i++)
        add_member(&line, round, keys[i]);
    add_number(&line, "seconds", clock_seconds() - folder->began);
    strbuf_add(&line, "}\n");
    const enum status status = folder_add_line(folder->job, folder->config->hooks, &line);
    strbuf_release(&line);
    return status;
}

static void show_progress(const struct simulate_folder *folder, const char *lost)
{
    const struct fed_simulated *s = &folder->so_far;

    if (!folder->config->hooks->progress)
        return;
    fprintf(stderr, "round %" PRId64 "/%" PRId64, s->rounds, folder->config->terms->rounds);
    if (lost)
        fprintf(stderr, "  lost: %s", lost);
    if (isfinite(s->train_loss))
        fprintf(stderr, "  training loss %.4f", s->train_loss);
    if (isfinite(s->val_accuracy))
        fprintf(stderr, "  validation accuracy %.2f%%", 100 * s->val_accuracy);
    if (isfinite(s->epsilon))
        fprintf(stderr, "  epsilon %.3f", s->epsilon);
    fprintf(stderr, "  %.1f s\n", clock_seconds() - folder->began);
}

static enum status tell_round(struct simulate_folder *folder, const struct json_value *round)
{
    static const char *const train_keys[] = { "participants",
                                              "train_loss",
                                              "train_accuracy",
                                              "update_norm",
                                              "clip",
                                              "epsilon",
                                              "local_val_loss",
                                              "local_val_accuracy",
                                              "bytes_in",
                                              "bytes_out",
                                              NULL };
    static const char *const eval_keys[] = { "val_loss", "val_accuracy", NULL };
    struct fed_simulated *s = &folder->so_far;
    const char *lost = json_text(round, "lost", NULL);
    const double accuracy = json_number(round, "val_accuracy", NAN);
    const double loss = json_number(round, "val_loss", NAN);

    s->rounds = json_integer(round, "done", 0);
    s->lost += lost != NULL;
    s->train_loss = json_number(round, "train_loss", s->train_loss);
    s->val_loss = isfinite(loss) ? loss : s->val_loss;
    s->val_accuracy = isfinite(accuracy) ? accuracy : s->val_accuracy;
    s->epsilon = json_number(round, "epsilon", s->epsilon);
    s->bytes_in += json_number(round, "bytes_in", 0);
    s->bytes_out += json_number(round, "bytes_out", 0);
    folder->samples += json_integer(round, "samples", 0);
    if (json_bool(round, "statistics", false))
        return STATUS_OK;
    show_progress(folder, lost);
    if (lost)
        return STATUS_OK;
    TRY(write_line(folder, round, "train", train_keys));
    if (!isfinite(loss))
        return STATUS_OK;
    if (folder->config->stop_at > 0 && accuracy >= folder->config->stop_at && s->reached < 0)
        s->reached = s->rounds;
    return write_line(folder, round, "eval", eval_keys);
}

/* History is told from its beginning: those told before are passed over. */
struct teller {
    struct simulate_folder *folder;
    size_t seen;
};

static enum status visit(void *arg, const char *metrics)
{
    struct teller *teller = arg;
    struct json *json;

    if (teller->seen++ < teller->folder->told)
        return STATUS_OK;
    TRY(json_parse(metrics, strlen(metrics), &json));
    const enum status status = tell_round(teller->folder, json_root(json));
    json_destroy(json);
    teller->folder->told++;
    return status;
}

enum status simulate_folder_tell(struct simulate_folder *folder, struct fed_store store)
{
    struct teller teller = { .folder = folder };

    return store.history(store.arg, visit, &teller);
}

/* The end --------------------------------------------------------------------------------------------- */

/* Of each participant how many samples of each label it has: rows of the picture. */
static enum status print_labels(struct simulate_folder *folder, struct strbuf *out)
{
    const struct source *train = fed_job_train(folder->fed);
    const int classes = train->info ? train->info->classes : 0;
    const int shown =
        folder->parts->participants < PICTURED ? folder->parts->participants : PICTURED;
    int64_t *counts;

    if (classes < 1 || source_label(train, 0) < 0)
        return STATUS_OK;
    folder->so_far.skew = fed_parts_skew(folder->parts, train, classes);
    add_number(out, "label_skew", folder->so_far.skew);
    TRY(mem_alloc((size_t)classes, sizeof *counts, &counts));
    strbuf_add(out, ", \"labels\": [");
    for (int p = 0; p < shown; p++) {
        fed_parts_labels(folder->parts, train, p, classes, counts);
        strbuf_add(out, p ? ",\n      [" : "\n      [");
        for (int k = 0; k < classes; k++)
            strbuf_printf(out, "%s%" PRId64, k ? ", " : "", counts[k]);
        strbuf_add(out, "]");
    }
    strbuf_add(out, "]");
    mem_free(counts);
    return STATUS_OK;
}

/* A member of the summary with all that is about rounds and participants. */
static enum status print_federated(struct simulate_folder *folder, struct strbuf *out)
{
    const struct fed_simulated *s = &folder->so_far;
    struct fed_terms terms = *folder->config->terms;

    terms.graph = NULL; /* the checkpoint and graph.svg have it */
    strbuf_printf(out, ",\n  \"federated\": {\"participants\": %d, \"partition\": ",
                  folder->config->participants);
    strbuf_add_json(out, folder->config->partition);
    strbuf_printf(out, ", \"rounds\": %" PRId64 ", \"lost\": %" PRId64, s->rounds, s->lost);
    add_number(out, "bytes_in", s->bytes_in);
    add_number(out, "bytes_out", s->bytes_out);
    add_number(out, "epsilon", s->epsilon);
    if (*s->why) {
        strbuf_add(out, ", \"why\": ");
        strbuf_add_json(out, s->why);
    }
    if (s->reached >= 0)
        strbuf_printf(out, ", \"reached_in\": %" PRId64, s->reached);
    TRY(print_labels(folder, out));
    strbuf_add(out, ",\n    \"terms\": ");
    fed_terms_print(&terms, out);
    strbuf_add(out, "}");
    return strbuf_status(out);
}

static enum status write_summary(struct simulate_folder *folder, const char *status_text,
                                 struct fed_local_times spent)
{
    const struct fed_simulated *s = &folder->so_far;
    const struct rank_times times = { .compute = spent.compute,
                                      .evaluate = spent.evaluate,
                                      .total = s->seconds,
                                      .peak_bytes = memory_peak() };
    const struct train_classes none = { 0 };
    struct train_result result = { .train_loss = s->train_loss,
                                   .train_accuracy = NAN,
                                   .val_loss = s->val_loss,
                                   .val_accuracy = s->val_accuracy,
                                   .val_top5 = NAN,
                                   .val_auc = NAN,
                                   .val_calibration_error = NAN,
                                   .perplexity = NAN,
                                   .tokens_per_s = NAN,
                                   .first_step_s = NAN,
                                   .seconds = s->seconds,
                                   .samples_per_s = (double)folder->samples / s->seconds,
                                   .steps = s->rounds,
                                   .peak_bytes = times.peak_bytes };
    struct strbuf more;

    memcpy(result.weights_sha256, s->weights_sha256, sizeof result.weights_sha256);
    strbuf_init(&more, 64 << 20);
    enum status status = print_federated(folder, &more);
    if (status == STATUS_OK)
        status = folder_write_summary(folder->job, status_text, &result, &none, folder->samples,
                                      &times, more.text);
    strbuf_release(&more);
    return status;
}

/* Of all executors, as if they were one that did it all at once. */
static struct fed_local_times mean_times(struct fed_local *const *locals, int n)
{
    struct fed_local_times sum = { 0 };

    for (int i = 0; i < n; i++) {
        const struct fed_local_times times = fed_local_times(locals[i]);
        sum.compute += times.compute / n;
        sum.evaluate += times.evaluate / n;
    }
    return sum;
}

enum status simulate_folder_end(struct simulate_folder *folder, struct fed_local *const *locals,
                                int n_locals, const float *parameters,
                                struct fed_simulated *out)
{
    struct fed_simulated *s = &folder->so_far;
    struct fed_local *local = locals[0];
    const struct fed_local_times spent = mean_times(locals, n_locals);
    char *checkpoint;

    s->seconds = clock_seconds() - folder->began;
    snprintf(s->why, sizeof s->why, "%s", out->why);
    TRY(fed_local_hash(local, parameters, s->weights_sha256));
    TRY(file_join(s->folder, "checkpoint", &checkpoint));
    const enum status status =
        fed_local_checkpoint(local, parameters, checkpoint, (uint64_t)s->rounds);
    mem_free(checkpoint);
    TRY(status);
    TRY(write_summary(folder, *s->why ? "stopped" : "done", spent));
    if (report_write(s->folder) != STATUS_OK)
        log_line(LOG_WARNING, "no report: %s", status_message());
    *out = *s;
    return STATUS_OK;
}

void simulate_folder_fail(struct simulate_folder *folder, const char *why)
{
    char text[512];

    snprintf(text, sizeof text, "%s", why);
    if (folder && folder_write_failure(folder->job, text) != STATUS_OK)
        log_line(LOG_WARNING, "no summary: %s", status_message());
    (void)status_set(STATUS_MISMATCH, text); /* what the caller tells is the first failure */
}
