/* SPDX-License-Identifier: MIT */
/* tune.c - the kernels of a problem timed, and a table of those that are fastest for the problems of a model.
 *
 * On this processor every problem has a line. A device's kernels stand in an order that was measured elsewhere, so a
 * line is written where another than the first is faster; with fewer than two that can run it nothing is timed.
 */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "exec/exec.h"
#include "kernel/device_measure.h"
#include "kernel/precision.h"
#include "train/job.h"
#include "train/on_device.h"
#include "train/train.h"
#include "transport/launch.h"

/* Faster by more than the noise of such measurements. */
static const double CLEARLY = 0.97;

/* Where kernels are timed, and as what. */
struct bench {
    struct device_place place; /* face NULL: this processor */
    enum dtype precision;
    bool rounds;
};

/* precision: bf16 on a device if it is empty. */
static enum status open_bench(const char *device, const char *precision, struct bench *out)
{
    const bool is_half = !strstr(precision, "f32");

    *out = (struct bench){ .precision = DTYPE_F32 };
    if (strcmp(device, "cpu") == 0)
        return STATUS_OK;
    out->rounds = strcmp(precision, "tf32") == 0;
    if (is_half)
        out->precision = strcmp(precision, "fp16") == 0 ? DTYPE_F16 : DTYPE_BF16;
    return device_place_open(device, &out->place);
}

static void close_bench(struct bench *bench)
{
    if (bench->place.face)
        device_place_close(&bench->place);
}

static const struct kernel *row_at(const struct bench *bench, size_t i)
{
    return bench->place.face ? bench->place.face->kernel_at(i) : kernel_at(i);
}

/* The problem as it is solved there. */
static struct kernel_problem there(const struct bench *bench, struct kernel_problem problem)
{
    problem.rounds = bench->rounds;
    if (kernel_is_half(bench->precision))
        kernel_narrow(&problem, bench->precision);
    return problem;
}

static bool can_run(const struct kernel *row, const struct kernel_problem *problem)
{
    return strcmp(row->op, problem->op) == 0 && (!row->can_run || row->can_run(problem));
}

/* Of rows with one name a table finds the first. */
static bool is_hidden(const struct bench *bench, size_t i, const struct kernel_problem *problem)
{
    for (size_t k = 0; k < i; k++) {
        if (can_run(row_at(bench, k), problem) &&
            strcmp(row_at(bench, k)->name, row_at(bench, i)->name) == 0)
            return true;
    }
    return false;
}

/* Kernels that take filters as they lie in a model get them so. */
static struct kernel_problem as_it_lies(const struct bench *bench, const struct kernel *row,
                                        struct kernel_problem problem)
{
    const struct device_face *face = bench->place.face;

    if (!face->takes_inward || !face->takes_inward(row))
        return problem;
    for (int i = 0; i < problem.n_in; i++) {
        if (problem.in[i].layout == LAYOUT_HWIO)
            problem.in[i].layout = LAYOUT_OHWI;
    }
    if (problem.out[0].layout == LAYOUT_HWIO)
        problem.out[0].layout = LAYOUT_OHWI;
    return problem;
}

/* host: with the problem's inputs; NULL on this processor. */
static enum status time_row(const struct bench *bench, const struct kernel *row,
                            const struct kernel_problem *problem, struct kernel_trial *host,
                            double *out_seconds)
{
    if (!host)
        return kernel_measure(row, problem, NULL, out_seconds);
    const struct kernel_problem lies = as_it_lies(bench, row, *problem);
    return device_measure(&bench->place, row, &lies, kernel_trial_call(host), out_seconds);
}

static enum status time_rows(const struct bench *bench, const struct kernel_problem *plain,
                             void (*tell)(void *arg, const struct kernel *row, double seconds),
                             void *arg)
{
    const struct kernel_problem problem = there(bench, *plain);
    struct kernel_trial *host = NULL;
    enum status status = STATUS_OK;

    if (bench->place.face)
        TRY(kernel_trial_create(kernel_find(plain->op, "reference"), plain, KERNEL_FILL_NORMAL,
                                1, &host));
    for (size_t i = 0; row_at(bench, i) && status == STATUS_OK; i++) {
        const struct kernel *row = row_at(bench, i);
        double seconds;
        if (!can_run(row, &problem) || is_hidden(bench, i, &problem))
            continue;
        status = time_row(bench, row, &problem, host, &seconds);
        if (status == STATUS_OK)
            tell(arg, row, seconds);
    }
    kernel_trial_destroy(host);
    return status;
}

enum status
train_time_kernels(const char *text, const struct settings *settings,
                   void (*tell)(void *arg, const struct kernel *row, double seconds), void *arg)
{
    struct kernel_problem problem;
    struct bench bench;

    if (kernel_parse(text, &problem) != STATUS_OK)
        return FAIL(STATUS_USAGE, "%s", status_message());
    TRY(on_device_check_names(settings));
    TRY(open_bench(settings->device, settings->precision, &bench));
    const enum status status = time_rows(&bench, &problem, tell, arg);
    close_bench(&bench);
    return status;
}

/* Tables ------------------------------------------------------------------------------- */

struct tuning {
    struct job *job;
    struct bench bench;
    struct strbuf *file; /* what is to be written */
    bool json;           /* lines that are told are JSON objects */
    void (*tell)(void *arg, const char *line);
    void *arg;
    int n_lines;
};

/* What is known of a problem's kernels. */
struct race {
    struct strbuf told;
    const struct kernel *best;
    double seconds;
    bool skips_reference, json;
};

static void note_row(void *arg, const struct kernel *row, double seconds)
{
    struct race *race = arg;

    if (race->skips_reference && strcmp(row->name, "reference") == 0)
        return;
    strbuf_printf(&race->told,
                  !race->json  ? "  %s %.1f us"
                  : race->best ? ", \"%s\": %.3f"
                               : "\"%s\": %.3f",
                  row->name, 1e6 * seconds);
    if (race->best && seconds >= CLEARLY * race->seconds)
        return;
    race->seconds = seconds;
    race->best = row;
}

/* Is there something to choose? */
static bool has_rivals(const struct bench *bench, const struct kernel_problem *problem)
{
    const struct kernel *row;
    int count = 0;

    for (size_t i = 0; (row = row_at(bench, i)); i++)
        count += can_run(row, problem) && !is_hidden(bench, i, problem);
    return count > 1;
}

static void add_line(struct tuning *tuning, const char *key, const char *name)
{
    strbuf_add(tuning->file, tuning->n_lines++ ? ",\n    " : "\n    ");
    strbuf_add_json(tuning->file, key);
    strbuf_printf(tuning->file, ": \"%s\"", name);
}

static enum status tune_problem(struct tuning *tuning, const char *text)
{
    const struct bench *bench = &tuning->bench;
    const struct device_face *face = bench->place.face;
    struct race race = { .skips_reference = !face, .json = tuning->json };
    struct kernel_problem plain;
    char key[KERNEL_KEY];

    TRY(kernel_parse(text, &plain));
    const struct kernel_problem problem = there(bench, plain);
    if (face && !has_rivals(bench, &problem))
        return STATUS_OK;
    strbuf_init(&race.told, 64 << 10);
    if (tuning->json) {
        strbuf_add(&race.told, "{\"bench\": \"tune\", \"problem\": ");
        strbuf_add_json(&race.told, text);
        strbuf_add(&race.told, ", \"us\": {");
    } else {
        strbuf_printf(&race.told, "%s:", text);
    }
    const enum status status = time_rows(bench, &plain, note_row, &race);
    if (status == STATUS_OK && race.best) {
        strbuf_printf(&race.told, tuning->json ? "}, \"kernel\": \"%s\"}" : "  -> %s",
                      race.best->name);
        if (!face)
            add_line(tuning, text, race.best->name);
        else if (race.best != device_kernel(face, &problem))
            add_line(tuning, kernel_key(&problem, bench->precision, key), race.best->name);
        if (strbuf_status(&race.told) == STATUS_OK)
            tuning->tell(tuning->arg, race.told.text);
    }
    strbuf_release(&race.told);
    return status;
}

/* Every problem of the plan once: "own   linear 32x784 250x784 250 relu" a line. What ranks say to each other has no
 * problem. */
static enum status tune_plan(struct tuning *tuning, char *plan)
{
    for (char *line = plan, *next; *line; line = next) {
        char *end = strchr(line, '\n');
        const size_t length = (size_t)(end - line);
        next = end + 1;
        *end = '\0';
        char *problem = strchr(line, ' ');
        while (*problem == ' ')
            problem++;
        bool seen = false; /* earlier lines end in NUL now, so search them one by one */
        for (const char *earlier = plan; earlier < line && !seen;
             earlier += strlen(earlier) + 1)
            seen = strlen(earlier) == length && strcmp(earlier, line) == 0;
        if (!seen)
            TRY(tune_problem(tuning, problem));
    }
    return STATUS_OK;
}

/* The plan of a shard, made and printed; its memory is given back before anything is timed. */
static enum status print_plan(const struct job *job, struct transport *transport,
                              struct strbuf *out)
{
    const struct settings *s = &job->settings;
    /* One shard's plan is looked at; a graph whose shards meet knows how many they are. */
    const int64_t shards = s->sync_batch_norm ? s->shards : 1;
    struct exec_config config = {
        .train = job->graph,
        .threads = (int)shards,
        .shards = shards,
        .batch = s->batch / s->shards * shards,
        .seed = s->seed,
        .choices = job->choices,
        .optim = job->optim,
    };
    struct exec_device device = { 0 };
    struct exec *exec = NULL;

    enum status status = comm_create(transport, NULL, &config.comm);
    if (status == STATUS_OK)
        status = on_device_open(job, transport, false, &device);
    if (status == STATUS_OK) {
        config.device = on_device_of(&device);
        status = exec_create(&config, &exec);
    }
    if (status == STATUS_OK)
        status = exec_print_plan(exec, s->batch / s->shards, out);
    exec_destroy(exec);
    on_device_close(&device);
    comm_destroy(config.comm);
    return status;
}

static enum status tune_body(struct transport *transport, void *arg)
{
    struct tuning *tuning = arg;
    const struct settings *s = &tuning->job->settings;
    struct strbuf plan;

    strbuf_init(&plan, 16 << 20);
    enum status status = print_plan(tuning->job, transport, &plan);
    if (status == STATUS_OK)
        status = open_bench(s->device, s->precision, &tuning->bench);
    if (status == STATUS_OK) {
        status = tune_plan(tuning, plan.text);
        close_bench(&tuning->bench);
    }
    strbuf_release(&plan);
    return status;
}

const char *train_table_path(const char *home, const char *device, char out[SETTINGS_TEXT])
{
    const bool is_here = strcmp(device, "cpu") == 0;

    (void)snprintf(out, SETTINGS_TEXT, "%.900s/.config/tutti/kernels%s%s.json", home,
                   is_here ? "" : "-", is_here ? "" : device);
    return out;
}

enum status train_tune(struct job *job, const char *path, bool json,
                       void (*tell)(void *arg, const char *line), void *arg)
{
    const struct launch_config config = { .size = 1 };
    const bool is_here = !on_device(job);
    struct strbuf file;
    struct tuning tuning = {
        .job = job, .file = &file, .json = json, .tell = tell, .arg = arg
    };

    strbuf_init(&file, 16 << 20);
    strbuf_printf(&file, "{ \"%s\": \"%s\",\n  \"choices\": {", is_here ? "isa" : "device",
                  is_here ? kernel_isa() : job->settings.device);
    enum status status = launch_ranks(&config, tune_body, &tuning);
    strbuf_add(&file, "\n  } }\n");
    if (status == STATUS_OK)
        status = strbuf_status(&file);
    if (status == STATUS_OK)
        status = file_replace(path, file.text, file.length);
    strbuf_release(&file);
    return status;
}
