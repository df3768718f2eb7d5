/* SPDX-License-Identifier: MIT */
/* run.c - the run as a whole: its ranks are started, and what they leave is written; going on with one. */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/file.h"
#include "base/foreign.h"
#include "base/log.h"
#include "base/mem.h"
#include "report/report.h"
#include "train/forecast.h"
#include "train/rank.h"
#include "train/stop.h"
#include "transport/launch.h"

static enum status open_init(struct run *run)
{
    const struct settings *s = &run->job->settings;

    if (!*s->init)
        return STATUS_OK;
    TRY(safetensors_open(s->init, &run->init));
    if (weights_check(run->job->graph, run->init) != STATUS_OK)
        return FAIL(STATUS_MISMATCH, "%s: %s", s->init, status_message());
    return STATUS_OK;
}

/* Does this process look after the run's folder? Of those that mpirun started, the first. */
static bool keeps_folder(void)
{
    int rank, size;

    return !launch_world(&rank, &size) || rank == 0;
}

/* With a rank of a job with servers parameters may be lost: says what there is to go on from. */
static enum status name_checkpoint(const struct job *job, enum status status)
{
    char reason[256], *folder;
    struct checkpoint *checkpoint;

    if (status != STATUS_PEER_LOST || !job->axes.servers)
        return status;
    snprintf(reason, sizeof reason, "%s", status_message());
    TRY(file_join(job->settings.out, "checkpoint", &folder));
    const enum status loaded = checkpoint_load(folder, &checkpoint);
    mem_free(folder);
    if (loaded != STATUS_OK)
        return FAIL(status, "%s: there is no checkpoint yet, begin again with --resume %s",
                    reason, job->settings.out);
    const uint64_t step = checkpoint_step(checkpoint);
    checkpoint_close(checkpoint);
    return FAIL(status, "%s: go on from step %llu with tutti train --resume %s", reason,
                (unsigned long long)step, job->settings.out);
}

void run_print_saved(const struct run *run, char *out, size_t bytes)
{
    const char *folder = run->job->settings.out;
    const long long saved = (long long)run->shared->saved_step;

    if (saved < 0)
        snprintf(out, bytes, "nothing is saved yet: begin again with tutti train --resume %s",
                 folder);
    else
        snprintf(out, bytes,
                 "step %lld of %lld is saved: continue with tutti train --resume %s", saved,
                 (long long)run->job->total_steps, folder);
}

void run_note_saved(const struct run *run)
{
    char saved[SETTINGS_TEXT + 200], line[sizeof saved + 40];

    if (getpid() != run->pid || !keeps_folder())
        return;
    run_print_saved(run, saved, sizeof saved);
    snprintf(line, sizeof line, "stopped by a second signal: %s", saved);
    stop_say(line);
}

/* A stop, and what is saved. */
static enum status name_stop(const struct run *run, enum status status,
                             const struct train_result *result)
{
    const struct shared *shared = run->shared;
    char text[2 * SETTINGS_TEXT], reason[256];

    if (status == STATUS_OK && shared->stopped)
        return FAIL(shared->stopped == SIGINT ? STATUS_STOPPED : STATUS_PREEMPTED,
                    "stopped at step %lld of %lld, all saved: continue with tutti train "
                    "--resume %s",
                    (long long)result->steps, (long long)run->job->total_steps,
                    run->job->settings.out);
    if (status != STATUS_STOPPED && status != STATUS_PREEMPTED)
        return status;
    snprintf(reason, sizeof reason, "%s", status_message());
    run_print_saved(run, text, sizeof text);
    return FAIL(status, "%s at once: %s", reason, text);
}

/* Says which parameters do not reach the loss, if there are any. */
static void name_unused(const struct job *job)
{
    enum { NAMED = 8 };
    struct strbuf names;
    int count = 0;

    strbuf_init(&names, 1 << 16);
    for (int i = 0; i < graph_value_count(job->graph); i++) {
        const struct value *value = graph_value(job->graph, i);
        if (value->kind == VALUE_UNUSED && count++ < NAMED)
            strbuf_printf(&names, "%s%s", count > 1 ? ", " : "", value->name);
    }
    if (count > NAMED)
        strbuf_printf(&names, " and %d more", count - NAMED);
    if (count)
        log_line(LOG_WARNING, "the loss does not depend on %s: %s as initialized", names.text,
                 count > 1 ? "they stay" : "it stays");
    strbuf_release(&names);
}

/* The ranks, and what became of the run; in memory that they share. */
static enum status run_ranks(struct run *run, struct train_result *out)
{
    const struct settings *s = &run->job->settings;
    const size_t bytes = sizeof *run->shared;
    const struct launch_config config = { .size = (int)(s->ranks + s->spares) +
                                                  run->job->axes.servers,
                                          .flat = s->flat,
                                          .message_bytes = job_message_bytes(run->job),
                                          .stuck_ms = (int)(1000 * s->lost_after) };

    if (keeps_folder())
        name_unused(run->job);
    run->shared = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (run->shared == MAP_FAILED)
        return FAIL(STATUS_NO_MEMORY, "%zu bytes of shared memory are refused", bytes);
    run->shared->saved_step = run->checkpoint ? (int64_t)run->first_step : -1;
    run->pid = (int)getpid();
    run_note_saved(run);
    enum status status = launch_ranks(&config, rank_body, run);
    if (status == STATUS_OK)
        *out = run->shared->result;
    status = name_stop(run, status, out);
    munmap(run->shared, bytes);
    run->shared = NULL;
    return status;
}

/* Trains, and leaves a report or the reason why there is none. */
static enum status train(struct run *run, struct train_result *out)
{
    const struct settings *s = &run->job->settings;
    enum status status = run_ranks(run, out);

    if (!keeps_folder())
        return status;
    status = name_checkpoint(run->job, status);

    /* The last files are worth having, their absence is no reason to fail; and where the run failed,
     * the reason for that is worth more than what became of them. */
    char reason[512];
    snprintf(reason, sizeof reason, "%s", status_message());
    const bool failed =
        status != STATUS_OK && status != STATUS_STOPPED && status != STATUS_PREEMPTED;
    if (failed && folder_write_failure(run->job, reason) != STATUS_OK)
        return status_set(status, reason);
    if (report_write(s->out) != STATUS_OK && !failed)
        log_line(LOG_WARNING, "no report: %s", status_message());
    return status == STATUS_OK ? STATUS_OK : status_set(status, reason);
}

/* Signals ask for a stop until all is written. */
static enum status launch(struct run *run, struct train_result *out)
{
    struct stop_before before;

    stop_forget();
    stop_begin(&before);
    const enum status status = train(run, out);
    if (!run->hooks->keeps_signals) {
        stop_say(NULL);
        stop_end(&before);
    }
    return status;
}

static void release(struct run *run)
{
    checkpoint_close(run->checkpoint);
    safetensors_close(run->init);
    folder_unlock(run->lock);
}

enum status train_run(struct job *job, const struct train_hooks *hooks,
                      struct train_result *out)
{
    struct run run = { .job = job, .hooks = hooks, .lock = -1 };

    TRY(job_check_classes(job));
    TRY(forecast_check_memory(job));
    enum status status = open_init(&run);
    if (status == STATUS_OK && keeps_folder())
        status = folder_create(job, hooks, &run.lock);
    if (status == STATUS_OK)
        status = launch(&run, out);
    release(&run);
    return status;
}

static enum status refuse_change(const struct run *run, const char *then, const char *now)
{
    return FAIL(
        STATUS_USAGE,
        "%s was saved with %s, now it is %s: leave that as it was, or begin another run "
        "with --init %s/weights.safetensors",
        checkpoint_path(run->checkpoint), then, now, checkpoint_path(run->checkpoint));
}

static const char *name_switch(bool is_on, const char *on, const char *off)
{
    return is_on ? on : off;
}

/* Which samples a step has and how they are summed is the run's from its beginning. Members that
 * are not there are of a checkpoint by an earlier version. */
static enum status check_order(const struct run *run, const struct json_value *state)
{
    const struct settings *s = &run->job->settings;
    const char *data = run->job->train->fingerprint;
    char then[80], now[80];
    const struct {
        const char *key, *flag;
        int64_t now;
    } numbers[] = { { "batch", "--batch", s->batch }, { "shards", "--shards", s->shards } };

    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        const int64_t was = json_integer(state, numbers[i].key, numbers[i].now);
        if (was == numbers[i].now)
            continue;
        snprintf(then, sizeof then, "%s %lld", numbers[i].flag, (long long)was);
        snprintf(now, sizeof now, "%lld", (long long)numbers[i].now);
        return refuse_change(run, then, now);
    }
    snprintf(now, sizeof now, "%llu", (unsigned long long)s->seed);
    const char *seed = json_text(state, "seed", now);
    if (strcmp(seed, now) != 0) {
        snprintf(then, sizeof then, "--seed %.40s", seed);
        return refuse_change(run, then, now);
    }
    const bool shuffle = json_bool(state, "shuffle", s->shuffle);
    if (shuffle != s->shuffle)
        return refuse_change(run, name_switch(shuffle, "--shuffle", "--no-shuffle"),
                             name_switch(s->shuffle, "--shuffle", "--no-shuffle"));
    const bool drop_last = json_bool(state, "drop_last", s->drop_last);
    if (drop_last != s->drop_last)
        return refuse_change(run, name_switch(drop_last, "--drop-last", "--no-drop-last"),
                             name_switch(s->drop_last, "--drop-last", "--no-drop-last"));
    const char *was = json_text(state, "data", data);
    if (strcmp(was, data) != 0 && strcmp(was, run->job->train->old_fingerprint) != 0) {
        snprintf(now, sizeof now, "--data %.60s", s->data);
        return refuse_change(run, "other training data", now);
    }
    return STATUS_OK;
}

/* What may be another one, with a word of warning. */
static void warn_of_change(const struct run *run, const struct json_value *state)
{
    char text_now[AUGMENT_TEXT];

    if (strcmp(json_text(state, "isa", kernel_isa()), kernel_isa()) != 0 ||
        strcmp(json_text(state, "choices", ""), kernel_choices_hash(run->job->choices)) != 0)
        log_line(LOG_WARNING,
                 "%s was saved with other kernels: the result will differ in its last "
                 "bits from an uninterrupted run",
                 checkpoint_path(run->checkpoint));
    const char *now = augment_print(&run->job->augment, text_now);
    const char *then = json_text(state, "augment", "none");
    if (strcmp(then, now) != 0)
        log_line(LOG_WARNING, "%s was saved while training with augmentation %s, now it is %s",
                 checkpoint_path(run->checkpoint), then, now);
}

/* Reads where the checkpoint stands, and refuses to go on with other samples. */
static enum status read_state(struct run *run)
{
    const char *text = checkpoint_state(run->checkpoint);
    struct json *json;

    TRY(json_parse(text, strlen(text), &json));
    const struct json_value *state = json_root(json);
    run->first_step = checkpoint_step(run->checkpoint);
    run->samples_before = json_integer(state, "samples", 0);
    run->seconds_before = json_number(state, "seconds", 0);
    run->epoch = (struct tally){
        .loss = json_number(state, "epoch_loss", 0),
        .correct = json_number(state, "epoch_correct", 0),
        .seconds = json_number(state, "epoch_seconds", 0),
        .samples = json_integer(state, "epoch_samples", 0),
    };
    run->epoch.weight = json_integer(state, "epoch_weight", run->epoch.samples);
    /* A whole epoch is there for the evaluation that ends the run alone. */
    if (run->first_step % (uint64_t)run->job->steps_per_epoch == 0 &&
        (int64_t)run->first_step < run->job->total_steps)
        run->epoch = (struct tally){ 0 };
    const enum status status = check_order(run, state);
    if (status == STATUS_OK)
        warn_of_change(run, state);
    json_destroy(json);
    return status;
}

/* Is the newest thing that the run's folder tells that the run was done, after so many steps? */
static bool is_done(const char *folder, int64_t steps, struct train_result *out)
{
    bool done;

    return folder_read_summary(folder, out, &done) == STATUS_OK && done && out->steps == steps;
}

/* A run that was killed while it wrote its report is given one. */
static enum status complete_report(const char *folder, bool *out_was_missing)
{
    *out_was_missing = !folder_has_report(folder);
    return *out_was_missing && keeps_folder() ? report_write(folder) : STATUS_OK;
}

/* All steps are done. What is left: nothing, a report, or to evaluate and to write all that ends a
 * run. */
static enum status end_run(struct run *run, struct train_result *out, bool *out_is_over)
{
    const char *folder = run->job->settings.out;
    bool was_missing;

    *out_is_over = is_done(folder, run->job->total_steps, out);
    if (!*out_is_over)
        return STATUS_OK;
    TRY(complete_report(folder, &was_missing));
    return was_missing || run->hooks->repeats
               ? STATUS_OK
               : FAIL(STATUS_USAGE,
                      "%s has done all of its %lld steps: raise --epochs or --steps", folder,
                      (long long)run->job->total_steps);
}

enum status train_is_over(const char *folder, bool *out_is_over, struct train_result *out)
{
    int64_t steps;
    bool was_missing;

    *out_is_over = false;
    TRY(folder_read_total(folder, &steps));
    *out_is_over = steps > 0 && is_done(folder, steps, out);
    return *out_is_over ? complete_report(folder, &was_missing) : STATUS_OK;
}

static enum status resume_from(struct run *run, struct train_result *out, bool *out_is_over)
{
    char *folder;

    *out_is_over = false;
    TRY(file_join(run->job->settings.out, "checkpoint", &folder));
    enum status status = checkpoint_load(folder, &run->checkpoint);
    mem_free(folder);
    if (status == STATUS_NOT_FOUND) { /* it died before its first checkpoint: begin again */
        TRY(open_init(run));
        return keeps_folder() ? folder_continue(run->job, run->hooks, 0) : STATUS_OK;
    }
    TRY(status);
    TRY(read_state(run));
    if (weights_check(run->job->graph, checkpoint_weights(run->checkpoint)) != STATUS_OK)
        return FAIL(STATUS_MISMATCH, "%s: %s", checkpoint_path(run->checkpoint),
                    status_message());
    if ((int64_t)run->first_step > run->job->total_steps)
        return FAIL(STATUS_USAGE,
                    "%s has done %llu steps already, %lld are asked for: raise --epochs or "
                    "--steps",
                    run->job->settings.out, (unsigned long long)run->first_step,
                    (long long)run->job->total_steps);
    if ((int64_t)run->first_step == run->job->total_steps) {
        TRY(end_run(run, out, out_is_over));
        if (*out_is_over)
            return STATUS_OK;
    }
    log_line(LOG_INFO, "resuming at step %llu from %s", (unsigned long long)run->first_step,
             checkpoint_path(run->checkpoint));
    return keeps_folder() ? folder_continue(run->job, run->hooks, run->first_step) : STATUS_OK;
}

enum status train_resume(struct job *job, const struct train_hooks *hooks,
                         struct train_result *out)
{
    struct run run = { .job = job, .hooks = hooks, .lock = -1 };

    TRY(forecast_check_memory(job));
    enum status status = keeps_folder() ? folder_take(job, &run.lock) : STATUS_OK;
    bool is_over = false;
    if (status == STATUS_OK)
        status = resume_from(&run, out, &is_over);
    if (status == STATUS_OK && !is_over)
        status = launch(&run, out);
    release(&run);
    return status;
}

/* Weights of one model do not fit another, or fit and mean something else. */
static void warn_of_model(const char *folder, const struct json_value *config,
                          const struct settings *settings)
{
    const char *then = json_text(json_get(config, "bits"), "model", "");
    char now[SHA256_HEX];

    if (*then && folder_model_hash(settings->model, now) && strcmp(then, now) != 0)
        log_line(LOG_WARNING, "%s has changed since it was trained in %s%s", settings->model,
                 folder, *settings->model_file ? ": the run's own copy is used" : "");
}

/* The copy of its model that the run keeps, if it keeps one; older runs have the original's path alone. */
static enum status find_model_file(const char *folder, const struct json_value *config,
                                   struct settings *settings)
{
    char *path;

    const char *name = json_text(config, "model_file", "");
    if (strcmp(name, FOLDER_MODEL) != 0 && strcmp(name, FOLDER_SOURCE) != 0)
        return STATUS_OK;
    TRY(file_join(folder, name, &path));
    const bool fits = strlen(path) < sizeof settings->model_file;
    if (fits)
        snprintf(settings->model_file, sizeof settings->model_file, "%s", path);
    mem_free(path);
    return fits ? STATUS_OK : FAIL(STATUS_USAGE, "%s: the path is too long", folder);
}

/* Weights in a file are no run, but often given for one. */
static enum status fail_no_folder(const char *path)
{
    const char *foreign = foreign_kind_of_file(path);

    if (foreign)
        return FAIL(STATUS_USAGE,
                    "%s is %s, no folder of a run: convert it (man tutti, FILES OF OTHER "
                    "PROGRAMS) and give it to --weights or --init, with a MODEL",
                    path, foreign);
    if (file_exists(path))
        return FAIL(STATUS_USAGE,
                    "%s is a file, no folder of a run: weights (safetensors) are given to "
                    "--weights or --init, with a MODEL",
                    path);
    if (model_find(path))
        return FAIL(STATUS_USAGE,
                    "%s is a model, no folder of a run, which tutti train makes; "
                    "tutti eval %s --weights FILE evaluates weights",
                    path, path);
    return FAIL(STATUS_USAGE, "%s is no folder of a run: it is not there", path);
}

enum status train_read_beginning(const char *folder, struct settings *out)
{
    char *path, *text;
    size_t length;
    struct json *json;

    if (!file_is_folder(folder))
        return fail_no_folder(folder);
    TRY(file_join(folder, "config.json", &path));
    enum status status = file_read(path, 16 << 20, &text, &length);
    if (status == STATUS_NOT_FOUND)
        status = FAIL(STATUS_USAGE, "%s holds no run: it has no config.json", folder);
    if (status == STATUS_OK) {
        status = json_parse(text, length, &json);
        if (status == STATUS_OK) {
            const int64_t format = json_integer(json_root(json), "format", 0);
            settings_init(out);
            status = format == 1 ? settings_read(out, json_root(json))
                                 : FAIL(STATUS_CORRUPT, "format %lld, this program reads 1",
                                        (long long)format);
            if (status == STATUS_OK)
                status = find_model_file(folder, json_root(json), out);
            if (status == STATUS_OK)
                warn_of_model(folder, json_root(json), out);
            json_destroy(json);
        }
        if (status != STATUS_OK)
            status = FAIL(STATUS_CORRUPT, "%s: %s", path, status_message());
        mem_free(text);
    }
    mem_free(path);
    TRY(status);
    if (strlen(folder) >= sizeof out->out)
        return FAIL(STATUS_USAGE, "%s: the path is too long", folder);
    snprintf(out->out, sizeof out->out, "%s", folder);
    return STATUS_OK;
}

enum status train_read_settings(const char *folder, struct settings *out)
{
    TRY(train_read_beginning(folder, out));
    out->accumulate = 0; /* the shards that came of it are there */
    return STATUS_OK;
}
