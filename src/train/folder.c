/* SPDX-License-Identifier: MIT */
/* folder.c - config.json, metrics.jsonl, summary.json and graph.svg of a run. */
#include "train/folder.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/sha256.h"
#include "model/file.h"
#include "train/watch.h"
#include "tutti.h"

enum { TEXT_MAX = 64 << 20, METRICS_MAX = 1 << 30 };

static enum status replace_in(const char *folder, const char *name, const struct strbuf *text)
{
    char *path;

    TRY(strbuf_status(text));
    TRY(file_join(folder, name, &path));
    enum status status = file_replace(path, text->text, text->length);
    mem_free(path);
    return status;
}

enum { SPLIT_TEXT = 64 };

/* "dp=2,pp=2,zero=1": what ranks share, in the words of --split. */
static void print_split(const struct axes *axes, char out[SPLIT_TEXT])
{
    const struct {
        const char *name;
        int number, usual;
    } parts[] = {
        { "dp", axes->dp, axes->tp * axes->pp > 1 ? 1 : 0 },
        { "tp", axes->tp, 1 },
        { "pp", axes->pp, 1 },
        { "zero", axes->zero, 0 },
    };
    size_t length = 0;

    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (parts[i].number != parts[i].usual)
            length += (size_t)snprintf(out + length, SPLIT_TEXT - length, "%s%s=%d",
                                       length ? "," : "", parts[i].name, parts[i].number);
    }
}

/* Files are found again from any folder; names of data sets are no paths. */
static void keep_path(char path[SETTINGS_TEXT], bool is_file)
{
    char whole[PATH_MAX];

    if (is_file && realpath(path, whole) && strlen(whole) < SETTINGS_TEXT)
        memcpy(path, whole, strlen(whole) + 1);
}

static bool ends_with(const char *text, const char *end)
{
    const size_t length = strlen(text), tail = strlen(end);

    return length > tail && strcmp(text + length - tail, end) == 0;
}

static bool is_file(const char *name)
{
    return file_exists(name) && !file_is_folder(name);
}

static void add_settings(const struct job *job, struct strbuf *text)
{
    struct settings s = job->settings;

    keep_path(s.model, folder_is_graph_file(s.model) || folder_is_source(s.model));
    keep_path(s.data, dataset_is_path(s.data) || (job->train_table && is_file(s.data)));
    keep_path(s.init, *s.init != '\0');
    keep_path(s.kernels, is_file(s.kernels));
    keep_path(s.tokenizer, strchr(s.tokenizer, '/') != NULL);
    settings_print(&s, text);
}

bool folder_is_source(const char *model)
{
    return ends_with(model, ".c");
}

bool folder_is_graph_file(const char *model)
{
    return ends_with(model, ".json");
}

bool folder_model_hash(const char *model, char out[SHA256_HEX])
{
    char *text;
    size_t length;
    struct sha256 hash;

    if ((!folder_is_source(model) && !folder_is_graph_file(model)) ||
        file_read(model, TEXT_MAX, &text, &length) != STATUS_OK)
        return false;
    sha256_init(&hash);
    sha256_add(&hash, text, length);
    sha256_end_hex(&hash, out);
    mem_free(text);
    return true;
}

/* The model in the run's folder ----------------------------------------------------------- */

/* Does the model need a copy, so that the run can be used where the model is not? */
static bool keeps_model(const struct job *job)
{
    return !model_find(job->settings.model);
}

static enum status copy_file(const char *from, const char *folder, const char *name)
{
    struct strbuf text = { 0 };

    TRY(file_read(from, TEXT_MAX, &text.text, &text.length));
    enum status status = replace_in(folder, name, &text);
    mem_free(text.text);
    return status;
}

/* What was written is read once, so that a run finds out at its beginning what it could not read at
 * its end. */
static enum status print_model(const struct job *job, struct strbuf *out)
{
    struct model_file *file;

    TRY(job_print_model(job, out));
    TRY(model_file_parse(out->text, out->length, &file));
    model_file_destroy(file);
    return STATUS_OK;
}

/* Puts the model into the folder, if it is not of the zoo and not there yet. A model that files
 * cannot hold (by the names of its layers, say) is kept as its source alone. */
static enum status save_model(const struct job *job)
{
    const struct settings *s = &job->settings;
    const bool is_source = folder_is_source(s->model);
    struct strbuf text;

    if (!keeps_model(job) || *s->model_file)
        return STATUS_OK;
    if (folder_is_graph_file(s->model))
        return copy_file(s->model, s->out, FOLDER_MODEL);
    if (is_source)
        TRY(copy_file(s->model, s->out, FOLDER_SOURCE));
    strbuf_init(&text, MODEL_FILE_BYTES);
    enum status status = STATUS_OK;
    if (print_model(job, &text) == STATUS_OK)
        status = replace_in(s->out, FOLDER_MODEL, &text);
    else if (!is_source)
        log_line(LOG_WARNING,
                 "%s keeps no copy of its model, so nothing else can use the run: %s", s->out,
                 status_message());
    strbuf_release(&text);
    return status;
}

static bool has_file(const char *folder, const char *name)
{
    char *path;

    if (file_join(folder, name, &path) != STATUS_OK)
        return false;
    const bool has = file_exists(path);
    mem_free(path);
    return has;
}

/* The file in the run's folder that its model is read from; NULL: there is none. */
static const char *kept_model(const struct job *job)
{
    static const char *const names[] = { FOLDER_MODEL, FOLDER_SOURCE };

    for (size_t i = 0; i < sizeof names / sizeof *names && keeps_model(job); i++) {
        if (has_file(job->settings.out, names[i]))
            return names[i];
    }
    return NULL;
}

/* SHA-256 of what the model was written as: of the run's copy, as the original may have changed
 * since. */
static bool kept_hash(const struct job *job, char out[SHA256_HEX])
{
    const struct settings *s = &job->settings;
    const char *name = folder_is_source(s->model) && has_file(s->out, FOLDER_SOURCE)
                           ? FOLDER_SOURCE
                           : kept_model(job);
    char *path;

    if (!name || file_join(s->out, name, &path) != STATUS_OK)
        return false;
    const bool found = folder_model_hash(path, out);
    mem_free(path);
    return found;
}

static void add_config(const struct job *job, const struct train_hooks *hooks,
                       struct strbuf *text)
{
    const struct settings *s = &job->settings;
    char split[SPLIT_TEXT], model[SHA256_HEX];

    print_split(&job->axes, split);
    strbuf_printf(text, "{\n  \"format\": 1,\n  \"tutti\": \"%s\",\n  ", TUTTI_VERSION);
    add_settings(job, text);
    if (kept_model(job))
        strbuf_printf(text, ",\n  \"model_file\": \"%s\"", kept_model(job));
    strbuf_printf(text, ",\n  \"total_steps\": %lld", (long long)job->total_steps);
    if (s->scale_lr) {
        strbuf_add(text, ",\n  \"scaled_lr\": ");
        strbuf_add_number(text, job->optim.schedule.lr);
    }
    if (*job->chosen) {
        strbuf_add(text, ",\n  \"auto\": {\"why\": ");
        strbuf_add_json(text, job->chosen);
        strbuf_add(text, ", \"step_ms\": ");
        strbuf_add_number(text, 1e3 * job->chosen_seconds);
        strbuf_add(text, "}");
    }
    if (job->train_images) {
        const struct shape sample = dataset_sample(job->train_images);
        strbuf_printf(text, ",\n  \"sample\": [%lld, %lld, %lld]", (long long)sample.dim[0],
                      (long long)sample.dim[1], (long long)sample.dim[2]);
    }
    strbuf_printf(text, ",\n  \"parameters\": %lld", (long long)graph_param_count(job->graph));
    strbuf_printf(
        text, ",\n  \"distribution\": {\"split\": \"%s\", \"sync\": \"%s\", \"meet\": \"%s\"}",
        split, *s->sync ? s->sync : job->strategy->sync,
        *s->meet ? s->meet : job->strategy->meet);
    strbuf_printf(text,
                  ",\n  \"bits\": {\"isa\": \"%s\", \"choices\": \"%s\", \"data\": \"%s\", "
                  "\"shards\": %lld",
                  kernel_isa(), kernel_choices_hash(job->choices), job->train->fingerprint,
                  (long long)s->shards);
    if (kept_hash(job, model))
        strbuf_printf(text, ", \"model\": \"%s\"", model);
    for (int i = 0; job->train_text && i < TEXT_SIDES && text_vocab(job->train_text, i); i++)
        strbuf_printf(text, "%s\"%s\"", i ? ", " : ", \"vocabulary\": [",
                      vocab_fingerprint(text_vocab(job->train_text, i)));
    strbuf_add(text, job->train_text ? "]}" : "}");
    if (hooks->more)
        strbuf_add(text, hooks->more);
    if (hooks->command) {
        strbuf_add(text, ",\n  \"command\": ");
        strbuf_add_json(text, hooks->command);
    }
    strbuf_add(text, "\n}\n");
}

static enum status write_config(const struct job *job, const struct train_hooks *hooks)
{
    struct strbuf text;

    TRY(save_model(job));
    strbuf_init(&text, TEXT_MAX);
    add_config(job, hooks, &text);
    enum status status = replace_in(job->settings.out, "config.json", &text);
    if (status == STATUS_OK) {
        strbuf_clear(&text);
        graph_print_svg(job->graph, &text);
        status = replace_in(job->settings.out, "graph.svg", &text);
    }
    if (status == STATUS_OK)
        status = job_save_vocab(job);
    if (status == STATUS_OK)
        status = job_save_table(job);
    if (status == STATUS_OK)
        status = job_save_classes(job);
    strbuf_release(&text);
    return status;
}

/* A folder that does not exist yet: runs/cnn-mirrored-20260131-120000, with -2, -3 ... if taken. */
static void pick_folder(struct job *job)
{
    struct settings *s = &job->settings;
    const time_t now = time(NULL);
    struct tm parts;
    char when[32];

    strftime(when, sizeof when, "%Y%m%d-%H%M%S", localtime_r(&now, &parts));
    snprintf(s->out, sizeof s->out, "runs/%s-%s-%s", job->model->name, job->strategy->name,
             when);
    const size_t length = strlen(s->out);
    for (int i = 2; file_exists(s->out) && i < 1000; i++)
        snprintf(s->out + length, sizeof s->out - length, "-%d", i);
}

/* One process at a time has a run's folder: until the descriptor is closed, here and in processes
 * that have it from here. Those of a run that was killed are gone soon. Where a file system has no
 * locks, nobody is kept away. */
static enum status lock(const char *folder, int *out)
{
    enum { TRIES = 40, APART_MS = 50 };
    const int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd < 0)
        return FAIL(STATUS_IO, "%s: %s", folder, strerror(errno));
    for (int i = 0; flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK; i++) {
        if (i == TRIES) {
            (void)close(fd);
            return FAIL(STATUS_USAGE,
                        "%s is in use by another process that trains: wait for its end, or "
                        "choose another --out",
                        folder);
        }
        clock_sleep_ms(APART_MS);
    }
    *out = fd;
    return STATUS_OK;
}

void folder_unlock(int lock)
{
    if (lock >= 0)
        (void)close(lock);
}

/* What a run writes, config.json first. */
static const char *const run_files[] = {
    "config.json",  "metrics.jsonl", "summary.json",         "report.html",     "graph.svg",
    "checkpoint",   FOLDER_TRACE,    FOLDER_RECONSTRUCTIONS, FOLDER_VOCABULARY, FOLDER_TABLE,
    FOLDER_CLASSES, FOLDER_MODEL,    FOLDER_SOURCE
};
enum { RUN_FILES = sizeof run_files / sizeof *run_files };

/* The first of these that is there; NULL: none is. */
static enum status find_written(const char *folder, const char **out)
{
    char *path;

    *out = NULL;
    for (size_t i = 0; i < RUN_FILES && !*out; i++) {
        TRY(file_join(folder, run_files[i], &path));
        *out = file_exists(path) ? run_files[i] : NULL;
        mem_free(path);
    }
    return STATUS_OK;
}

static enum status remove_written(const char *folder)
{
    char *path;

    for (size_t i = 1; i < RUN_FILES; i++) {
        TRY(file_join(folder, run_files[i], &path));
        const enum status status = file_remove_tree(path);
        mem_free(path);
        TRY(status);
    }
    return STATUS_OK;
}

static enum status create(const struct job *job, const struct train_hooks *hooks)
{
    const char *folder = job->settings.out, *found;

    TRY(find_written(folder, &found));
    if (found == run_files[0] && !hooks->overwrite)
        return FAIL(STATUS_USAGE,
                    "%s holds a run already: continue it with --resume %s, replace it "
                    "with --overwrite, or choose another --out",
                    folder, folder);
    if (found && !hooks->overwrite)
        return FAIL(STATUS_USAGE,
                    "%s has a %s already: replace what is there with --overwrite, or choose "
                    "another --out",
                    folder, found);
    if (found)
        TRY(remove_written(folder));
    return write_config(job, hooks);
}

enum status folder_create(struct job *job, const struct train_hooks *hooks, int *out_lock)
{
    if (!*job->settings.out)
        pick_folder(job);
    TRY(file_make_folder(job->settings.out));
    TRY(lock(job->settings.out, out_lock));
    return create(job, hooks);
}

/* Is it a whole line, of this step or one before? The last one was perhaps being written when the
 * run died. */
static bool is_kept(const char *line, size_t length, uint64_t step)
{
    struct json *json;

    if (json_parse(line, length, &json) != STATUS_OK)
        return false;
    const bool kept = json_integer(json_root(json), "step", 0) <= (int64_t)step;
    json_destroy(json);
    return kept;
}

static enum status rewind_metrics(const struct job *job, uint64_t step)
{
    char *path, *text;
    size_t length;

    TRY(file_join(job->settings.out, "metrics.jsonl", &path));
    enum status status = file_read(path, METRICS_MAX, &text, &length);
    if (status == STATUS_NOT_FOUND) {
        mem_free(path);
        return STATUS_OK;
    }
    if (status == STATUS_OK) {
        size_t kept = 0;
        for (size_t at = 0, next; at < length; at = next) {
            const char *end = memchr(text + at, '\n', length - at);
            next = end ? (size_t)(end - text) + 1 : length;
            if (!end || !is_kept(text + at, next - at - 1, step))
                continue;
            memmove(text + kept, text + at, next - at);
            kept += next - at;
        }
        status = file_replace(path, text, kept);
        mem_free(text);
    }
    mem_free(path);
    return status;
}

enum status folder_continue(const struct job *job, const struct train_hooks *hooks,
                            uint64_t step)
{
    char *path;

    TRY(write_config(job, hooks));
    TRY(rewind_metrics(job, step));
    TRY(file_join(job->settings.out, "summary.json", &path));
    const enum status status = file_remove_tree(path);
    mem_free(path);
    return status;
}

enum status folder_take(const struct job *job, int *out_lock)
{
    return lock(job->settings.out, out_lock);
}

enum status folder_write_failure(const struct job *job, const char *text)
{
    struct strbuf summary;

    strbuf_init(&summary, TEXT_MAX);
    strbuf_add(&summary, "{\n  \"format\": 1,\n  \"status\": \"failed\",\n  \"error\": ");
    strbuf_add_json(&summary, text);
    strbuf_add(&summary, ",\n  \"model\": ");
    strbuf_add_json(&summary, job->settings.model);
    strbuf_printf(&summary, ",\n  \"strategy\": \"%s\",\n  \"ranks\": %lld\n}\n",
                  job->settings.strategy, (long long)job->settings.ranks);
    enum status status = replace_in(job->settings.out, "summary.json", &summary);
    strbuf_release(&summary);
    return status;
}

static enum status read_json(const char *folder, const char *name, struct json **out)
{
    char *path, *text;
    size_t length;

    TRY(file_join(folder, name, &path));
    enum status status = file_read(path, TEXT_MAX, &text, &length);
    if (status == STATUS_OK) {
        status = json_parse(text, length, out);
        mem_free(text);
    }
    mem_free(path);
    return status;
}

enum status folder_read_summary(const char *folder, struct train_result *out, bool *out_done)
{
    struct json *json;

    TRY(read_json(folder, "summary.json", &json));
    const struct json_value *summary = json_root(json);
    *out_done = strcmp(json_text(summary, "status", ""), "done") == 0;
    *out = (struct train_result){
        .train_loss = json_number(summary, "train_loss", NAN),
        .train_accuracy = json_number(summary, "train_accuracy", NAN),
        .val_loss = json_number(summary, "val_loss", NAN),
        .val_accuracy = json_number(summary, "val_accuracy", NAN),
        .val_top5 = json_number(summary, "val_top5_accuracy", NAN),
        .val_auc = json_number(summary, "val_auc", NAN),
        .val_calibration_error = json_number(summary, "val_calibration_error", NAN),
        .perplexity = json_number(summary, "perplexity", NAN),
        .tokens_per_s = json_number(summary, "tokens_per_s", NAN),
        .bleu = NAN,
        .seconds = json_number(summary, "seconds", NAN),
        .samples_per_s = json_number(summary, "samples_per_s", NAN),
        .first_step_s = json_number(summary, "first_step_s", NAN),
        .steps = json_integer(summary, "steps", 0),
        .peak_bytes = json_integer(summary, "peak_bytes", 0),
        .training_bytes = json_integer(summary, "training_bytes", 0),
        .predicted_bytes = json_integer(summary, "predicted_bytes", 0),
    };
    snprintf(out->folder, sizeof out->folder, "%s", folder);
    snprintf(out->weights_sha256, sizeof out->weights_sha256, "%.64s",
             json_text(summary, "weights_sha256", ""));
    json_destroy(json);
    return STATUS_OK;
}

enum status folder_read_total(const char *folder, int64_t *out)
{
    struct json *json;

    TRY(read_json(folder, "config.json", &json));
    *out = json_integer(json_root(json), "total_steps", 0);
    json_destroy(json);
    return STATUS_OK;
}

/* When the file was written; 0: it is not there. */
static double time_of(const char *folder, const char *name)
{
    struct stat about;
    double time = 0;
    char *path;

    if (file_join(folder, name, &path) != STATUS_OK)
        return 0;
    if (stat(path, &about) == 0)
        time = (double)about.st_mtim.tv_sec + 1e-9 * (double)about.st_mtim.tv_nsec;
    mem_free(path);
    return time;
}

bool folder_has_report(const char *folder)
{
    const double report = time_of(folder, "report.html");

    return report > 0 && report >= time_of(folder, "summary.json");
}

static void add_member(struct strbuf *line, const char *name, double number)
{
    if (isnan(number))
        return;
    strbuf_printf(line, ", \"%s\": ", name);
    strbuf_add_number(line, number);
}

static enum status append(const char *folder, const char *name, const struct strbuf *line)
{
    char *path;

    TRY(strbuf_status(line));
    TRY(file_join(folder, name, &path));
    enum status status = STATUS_OK;
    const int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    const ssize_t written = fd < 0 ? -1 : write(fd, line->text, line->length);
    if (written != (ssize_t)line->length)
        status = FAIL(STATUS_IO, "%s: %s", path,
                      written < 0 ? strerror(errno) : "no space left for a whole line");
    if (fd >= 0 && close(fd) != 0 && status == STATUS_OK)
        status = FAIL(STATUS_IO, "%s: %s", path, strerror(errno));
    mem_free(path);
    return status;
}

enum status folder_add_line(const struct job *job, const struct train_hooks *hooks,
                            const struct strbuf *line)
{
    TRY(append(job->settings.out, "metrics.jsonl", line));
    if (hooks->json) {
        fputs(line->text, stdout);
        fflush(stdout);
    }
    return STATUS_OK;
}

enum status folder_add_metrics(const struct job *job, const struct train_hooks *hooks,
                               const struct metrics *m)
{
    struct strbuf line;

    strbuf_init(&line, 64 << 10);
    strbuf_printf(&line, "{\"kind\": \"%s\", \"step\": %llu", m->kind,
                  (unsigned long long)m->step);
    add_member(&line, "epoch", m->epoch);
    add_member(&line, "samples", (double)m->samples);
    add_member(&line, "train_loss", m->train_loss);
    add_member(&line, "train_accuracy", m->train_accuracy);
    add_member(&line, "val_loss", m->val_loss);
    add_member(&line, "val_accuracy", m->val_accuracy);
    add_member(&line, "val_top5_accuracy", m->val_top5);
    add_member(&line, "val_auc", m->val_auc);
    add_member(&line, "val_calibration_error", m->val_calibration_error);
    add_member(&line, "lr", m->lr);
    add_member(&line, "seconds", m->seconds);
    add_member(&line, "epoch_seconds", m->epoch_seconds);
    add_member(&line, "eval_seconds", m->eval_seconds);
    add_member(&line, "samples_per_s", m->samples_per_s);
    add_member(&line, "tokens_per_s", m->tokens_per_s);
    add_member(&line, "perplexity", m->perplexity);
    add_member(&line, "comm_share", m->comm_share);
    add_member(&line, "wait_share", m->wait_share);
    add_member(&line, "bubble_share", m->bubble_share);
    add_member(&line, "load_share", m->load_share);
    add_member(&line, "wire_share", m->wire_share);
    add_member(&line, "hidden_share", m->hidden_share);
    add_member(&line, "bytes_sent", m->bytes_sent);
    add_member(&line, "slowest_rank", m->slowest_rank);
    add_member(&line, "slowest_share", m->slowest_share);
    add_member(&line, "sync_interval", m->sync_interval);
    add_member(&line, "param_variance", m->param_variance);
    add_member(&line, "clock_spread", m->clock_spread);
    add_member(&line, "loss_scale", m->loss_scale);
    add_member(&line, "skipped_steps", m->skipped_steps);
    strbuf_add(&line, "}\n");
    enum status status = folder_add_line(job, hooks, &line);
    strbuf_release(&line);
    return status;
}

static void add_rank(struct strbuf *text, int rank, const struct rank_times *t)
{
    const double other = t->total - t->compute - t->comm - t->wait - t->load - t->evaluate;

    strbuf_printf(text, "%s\n    {\"rank\": %d", rank ? "," : "", rank);
    add_member(text, "compute_s", t->compute);
    add_member(text, "comm_s", t->comm);
    add_member(text, "wait_s", t->wait);
    add_member(text, "load_s", t->load);
    add_member(text, "eval_s", t->evaluate);
    add_member(text, "other_s", other > 0 ? other : 0);
    add_member(text, "wire_s", t->wire > 0 ? t->wire : NAN);
    add_member(text, "hidden_share", watch_share(t->hidden, t->comm + t->wire));
    add_member(text, "bytes_sent", t->bytes);
    add_member(text, "made_wait_s", t->made_wait);
    add_member(text, "bubble_s", t->bubble > 0 ? t->bubble : NAN);
    add_member(text, "peak_bytes", (double)t->peak_bytes);
    add_member(text, "training_bytes", (double)t->training_bytes);
    add_member(text, "predicted_bytes", (double)t->predicted_bytes);
    strbuf_add(text, "}");
}

/* Who talked between machines, and why. */
static void add_rails(struct strbuf *text, const struct job *job)
{
    const struct rails *rails = &job->rails;

    if (rails->count == 0)
        return;
    strbuf_printf(text, ",\n  \"rails\": {\"ranks\": %d, \"measured\": %s", rails->count,
                  rails->is_measured ? "true" : "false");
    if (rails->is_measured) {
        strbuf_add(text, ", \"leaders_ms\": ");
        strbuf_add_number(text, rails->leaders_ms);
        strbuf_add(text, ", \"pairs_ms\": ");
        strbuf_add_number(text, rails->pairs_ms);
    }
    strbuf_add(text, "}");
}

/* Which ranks had how many shards, and why. */
static void add_balance(struct strbuf *text, const struct job *job)
{
    const struct balance *balance = &job->balance;
    const int ranks = (int)job->settings.ranks;

    if (!balance->is_used)
        return;
    strbuf_printf(text, ",\n  \"balance\": {\"measured\": %s, \"weights\": [",
                  balance->is_measured ? "true" : "false");
    for (int r = 0; r < ranks; r++) {
        strbuf_add(text, r ? ", " : "");
        strbuf_add_number(text, balance->weights[r]);
    }
    strbuf_add(text, "], \"shards\": [");
    for (int r = 0; r < ranks; r++)
        strbuf_printf(text, "%s%lld", r ? ", " : "",
                      (long long)(balance->rows[r + 1] - balance->rows[r]));
    strbuf_add(text, "]}");
}

/* Which way each table's gradient went, and by what that was decided. */
static void add_parallax(struct strbuf *text, const struct job *job)
{
    const struct parallax *p = &job->parallax;

    if (p->chosen.count == 0)
        return;
    strbuf_printf(text, ",\n  \"parallax\": {\"nodes\": %d", p->network.nodes);
    add_member(text, "latency_s", p->network.latency);
    add_member(text, "bytes_per_s", p->network.bandwidth);
    strbuf_add(text, ", \"tables\": [");
    for (int i = 0; i < p->chosen.count; i++) {
        const struct pass_choice *c = &p->chosen.item[i];
        strbuf_printf(text, "%s\n    {\"name\": \"%s\", \"way\": \"%s\"", i ? "," : "", c->name,
                      pass_way_names[c->way]);
        for (int way = 0; way < PASS_WAYS; way++) {
            char name[32];
            snprintf(name, sizeof name, "%s_s", pass_way_names[way]);
            add_member(text, name, c->seconds[way]);
        }
        add_member(text, "rows", c->rows);
        add_member(text, "rows_of_step", c->on_all);
        add_member(text, "rows_of_node", c->on_node);
        strbuf_add(text, "}");
    }
    strbuf_add(text, "]}");
}

enum status folder_write_summary(const struct job *job, const char *status,
                                 const struct train_result *r,
                                 const struct train_classes *classes, int64_t samples,
                                 const struct rank_times *times, const char *more)
{
    const struct settings *s = &job->settings;
    struct strbuf text;

    strbuf_init(&text, TEXT_MAX);
    strbuf_printf(&text, "{\n  \"format\": 1,\n  \"status\": \"%s\",\n  \"model\": ", status);
    strbuf_add_json(&text, s->model);
    strbuf_add(&text, ",\n  \"data\": ");
    strbuf_add_json(&text, s->data);
    strbuf_printf(&text, ",\n  \"strategy\": \"%s\",\n  \"device\": \"%s\"", s->strategy,
                  s->device);
    add_member(&text, "ranks", (double)s->ranks);
    add_member(&text, "threads", (double)s->threads);
    add_member(&text, "shards", (double)s->shards);
    add_member(&text, "batch", (double)s->batch);
    add_member(&text, "steps", (double)r->steps);
    add_member(&text, "epochs", (double)r->steps / (double)job->steps_per_epoch);
    add_member(&text, "samples", (double)samples);
    add_member(&text, "parameters", (double)graph_param_count(job->graph));
    add_member(&text, "seconds", r->seconds);
    add_member(&text, "first_step_s", r->first_step_s);
    add_member(&text, "samples_per_s", r->samples_per_s);
    add_member(&text, "tokens_per_s", r->tokens_per_s);
    add_member(&text, "train_loss", r->train_loss);
    add_member(&text, "train_accuracy", r->train_accuracy);
    add_member(&text, "val_loss", r->val_loss);
    add_member(&text, "val_accuracy", r->val_accuracy);
    add_member(&text, "val_top5_accuracy", r->val_top5);
    add_member(&text, "val_auc", r->val_auc);
    add_member(&text, "val_calibration_error", r->val_calibration_error);
    add_member(&text, "perplexity", r->perplexity);
    enum status result = train_print_classes(classes, ",\n  ", &text);
    add_member(&text, "zero", (double)job->axes.zero);
    add_member(&text, "peak_bytes", (double)r->peak_bytes);
    add_member(&text, "training_bytes", (double)r->training_bytes);
    add_member(&text, "predicted_bytes", (double)r->predicted_bytes);
    add_member(&text, "data_bytes", (double)job_data_bytes(job));
    add_balance(&text, job);
    add_parallax(&text, job);
    add_rails(&text, job);
    strbuf_printf(&text, ",\n  \"weights_sha256\": \"%s\",\n  \"rank_times\": [",
                  r->weights_sha256);
    for (int i = 0; i < s->ranks; i++)
        add_rank(&text, i, &times[i]);
    strbuf_printf(&text, "\n  ]%s\n}\n", more);
    if (result == STATUS_OK)
        result = replace_in(s->out, "summary.json", &text);
    strbuf_release(&text);
    return result;
}

enum status folder_write_picture(const struct job *job, const char *name,
                                 const struct strbuf *png)
{
    return replace_in(job->settings.out, name, png);
}
