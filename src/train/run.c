/* SPDX-License-Identifier: MIT */
/* run.c - the run as a whole: its ranks are started, and what they leave is written; going on with one. */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "report/report.h"
#include "train/forecast.h"
#include "train/rank.h"
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

static enum status launch(struct run *run, struct train_result *out)
{
    const struct settings *s = &run->job->settings;
    const size_t bytes = sizeof *run->shared;
    const struct launch_config config = { .size = (int)(s->ranks + s->spares) +
                                                  run->job->axes.servers,
                                          .flat = s->flat,
                                          .message_bytes = job_message_bytes(run->job),
                                          .stuck_ms = (int)(1000 * s->lost_after) };

    run->shared = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (run->shared == MAP_FAILED)
        return FAIL(STATUS_NO_MEMORY, "%zu bytes of shared memory are refused", bytes);
    enum status status = launch_ranks(&config, rank_body, run);
    if (status == STATUS_OK) {
        *out = run->shared->result;
        if (run->shared->stopped)
            status = FAIL(STATUS_STOPPED,
                          "stopped at step %lld of %lld, all saved: continue with tutti train "
                          "--resume %s",
                          (long long)out->steps, (long long)run->job->total_steps, s->out);
    }
    munmap(run->shared, bytes);
    if (!keeps_folder())
        return status;
    status = name_checkpoint(run->job, status);

    /* The last files are worth having, their absence is no reason to fail; and where the run failed,
     * the reason for that is worth more than what became of them. */
    char reason[512];
    snprintf(reason, sizeof reason, "%s", status_message());
    const bool failed = status != STATUS_OK && status != STATUS_STOPPED;
    if (failed && folder_write_failure(run->job, reason) != STATUS_OK)
        return status_set(status, reason);
    if (report_write(s->out) != STATUS_OK && !failed)
        log_line(LOG_WARNING, "no report: %s", status_message());
    return status == STATUS_OK ? STATUS_OK : status_set(status, reason);
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

    TRY(forecast_check_memory(job));
    enum status status = open_init(&run);
    if (status == STATUS_OK && keeps_folder())
        status = folder_create(job, hooks, &run.lock);
    if (status == STATUS_OK)
        status = launch(&run, out);
    release(&run);
    return status;
}

/* Reads where the checkpoint stands, and says so if it was made with other arithmetic. */
static enum status read_state(struct run *run)
{
    const char *text = checkpoint_state(run->checkpoint);
    char text_now[AUGMENT_TEXT];
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
    if (strcmp(json_text(state, "isa", kernel_isa()), kernel_isa()) != 0 ||
        strcmp(json_text(state, "choices", ""), kernel_choices_hash(run->job->choices)) != 0)
        log_line(LOG_WARNING,
                 "%s was saved with other kernels: the result will differ in its last "
                 "bits from an uninterrupted run",
                 checkpoint_path(run->checkpoint));
    const char *data = run->job->train->fingerprint;
    if (strcmp(json_text(state, "data", data), data) != 0)
        log_line(LOG_WARNING, "%s was saved while training on other data than %s",
                 checkpoint_path(run->checkpoint), run->job->train->path);
    const int64_t batch = run->job->settings.batch;
    if (json_integer(state, "batch", batch) != batch)
        log_line(
            LOG_WARNING,
            "%s was saved with --batch %lld, now it is %lld: the run goes on with the same "
            "number of steps, which is another place in its data",
            checkpoint_path(run->checkpoint), (long long)json_integer(state, "batch", 0),
            (long long)batch);
    const char *now = augment_print(&run->job->augment, text_now);
    const char *then = json_text(state, "augment", "none");
    if (strcmp(then, now) != 0)
        log_line(LOG_WARNING, "%s was saved while training with augmentation %s, now it is %s",
                 checkpoint_path(run->checkpoint), then, now);
    json_destroy(json);
    return STATUS_OK;
}

static enum status resume_from(struct run *run)
{
    char *folder;

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
    if ((int64_t)run->first_step >= run->job->total_steps)
        return FAIL(STATUS_USAGE,
                    "%s has done all of its %lld steps: raise --epochs or --steps",
                    run->job->settings.out, (long long)run->job->total_steps);
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
    if (status == STATUS_OK)
        status = resume_from(&run);
    if (status == STATUS_OK)
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
        log_line(LOG_WARNING, "%s has changed since it was trained in %s", settings->model,
                 folder);
}

enum status train_read_settings(const char *folder, struct settings *out)
{
    char *path, *text;
    size_t length;
    struct json *json;

    if (!file_is_folder(folder))
        return FAIL(STATUS_USAGE, "%s is no folder of a run", folder);
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
    out->accumulate = 0; /* the shards that came of it are there */
    return STATUS_OK;
}
