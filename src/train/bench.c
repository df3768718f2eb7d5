/* SPDX-License-Identifier: MIT */
/* bench.c - measuring training steps and kernels.
 *
 * Steps run on one made-up batch that is already in place, as the peers' benchmark does it, in
 * windows of about a quarter of a second; medians over windows are told.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "exec/exec.h"
#include "kernel/measure.h"
#include "train/job.h"
#include "train/made_up.h"
#include "transport/launch.h"

enum { WINDOWS_MAX = 1024 };

struct bench { /* shared by the ranks */
    struct job *job;
    int windows;
    double times[WINDOWS_MAX]; /* seconds a step, of rank 0 */
    double comm_share, wait_share;
    int64_t peak_bytes[1024];
    int64_t steps_per_window; /* rank 0 decides */
};

static int compare_doubles(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* This rank's rows of a made-up step. */
static enum status make_batch(const struct job *job, const struct exec *exec, struct batch *out)
{
    const struct settings *s = &job->settings;
    const int64_t first = sampler_shard_begin(s->batch, s->shards, exec_first_shard(exec));
    const int64_t end = sampler_shard_begin(s->batch, s->shards,
                                            exec_first_shard(exec) + exec_shard_count(exec));

    return made_up_batch(job, s->batch, first, end - first, out);
}

static enum status run_window(struct exec *exec, struct batch *batch, int64_t steps,
                              double *out_seconds)
{
    struct exec_result result;
    const double begin = clock_seconds();

    for (int64_t i = 0; i < steps; i++) {
        TRY(exec_step(exec, batch, &result));
        batch->step++;
    }
    TRY(exec_settle(exec));
    *out_seconds = (clock_seconds() - begin) / (double)steps;
    return STATUS_OK;
}

static enum status measure(struct bench *bench, struct exec *exec, int rank,
                           struct batch *batch)
{
    double seconds;

    TRY(run_window(exec, batch, 2, &seconds));
    TRY(run_window(exec, batch, 3, &seconds));
    if (rank == 0) {
        const double steps = 0.25 / seconds;
        bench->steps_per_window = steps < 1 ? 1 : (int64_t)steps;
    }
    TRY(exec_settle(exec));
    TRY(run_window(exec, batch, bench->steps_per_window, &seconds)); /* warm */
    exec_reset_times(exec);
    const double begin = clock_seconds();
    for (int i = 0; i < bench->windows; i++) {
        TRY(run_window(exec, batch, bench->steps_per_window, &seconds));
        if (rank == 0)
            bench->times[i] = seconds;
    }
    if (rank == 0) {
        const struct exec_times times = exec_times(exec);
        const double span = (clock_seconds() - begin) * exec_lanes(exec);
        bench->comm_share = times.comm / span;
        bench->wait_share = times.wait / span;
    }
    struct rusage usage;
    bench->peak_bytes[rank] =
        getrusage(RUSAGE_SELF, &usage) == 0 ? (int64_t)usage.ru_maxrss * 1024 : 0;
    return exec_settle(exec);
}

static enum status bench_body(struct transport *transport, void *arg)
{
    struct bench *bench = arg;
    struct job *job = bench->job;
    const struct settings *s = &job->settings;
    struct exec_config config = {
        .train = job->graph,
        .threads = (int)s->threads,
        .shards = s->shards,
        .batch = s->batch,
        .rows = job->balance.is_used ? job->balance.rows : NULL,
        .seed = s->seed,
        .choices = job->choices,
        .optim = job->optim,
    };
    struct exec *exec = NULL;
    struct batch batch = { 0 };

    enum status status = comm_create(transport, NULL, &config.comm);
    if (status == STATUS_OK)
        status = balance_measure(job, config.comm);
    if (status == STATUS_OK)
        status = exec_create(&config, &exec);
    if (status == STATUS_OK)
        status = exec_init_params(exec);
    if (status == STATUS_OK)
        status = make_batch(job, exec, &batch);
    if (status == STATUS_OK)
        status = measure(bench, exec, transport_rank(transport), &batch);
    made_up_release(&batch);
    exec_destroy(exec);
    comm_destroy(config.comm);
    return status;
}

enum status train_bench(struct job *job, int windows, struct bench_result *out)
{
    const struct launch_config config = { .size = (int)job->settings.ranks };
    struct bench *bench =
        mmap(NULL, sizeof *bench, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (bench == MAP_FAILED)
        return FAIL(STATUS_NO_MEMORY, "shared memory is refused");
    bench->job = job;
    bench->windows = windows < WINDOWS_MAX ? windows : WINDOWS_MAX;
    enum status status = launch_ranks(&config, bench_body, bench);
    if (status == STATUS_OK) {
        const int n = bench->windows;
        qsort(bench->times, (size_t)n, sizeof(double), compare_doubles);
        const double median = bench->times[n / 2];
        *out = (struct bench_result){
            .samples_per_s = (double)job->settings.batch / median,
            .step_ms = 1e3 * median,
            .step_ms_p10 = 1e3 * bench->times[n / 10],
            .step_ms_p90 = 1e3 * bench->times[n - 1 - n / 10],
            .flops = graph_flops(job->graph, job->settings.batch / job->settings.shards) *
                     (double)job->settings.shards,
            .comm_share = bench->comm_share,
            .wait_share = bench->wait_share,
        };
        for (int i = 0; i < job->settings.ranks; i++) {
            if (bench->peak_bytes[i] > out->peak_bytes)
                out->peak_bytes = bench->peak_bytes[i];
        }
    }
    munmap(bench, sizeof *bench);
    return status;
}

/* Tuning ------------------------------------------------------------------------------- */

/* Times every kernel that can solve the problem; the fastest by more than the noise of such
 * measurements is worth a line, else the first in the table's order. */
static enum status fastest(const struct kernel_problem *problem, struct strbuf *told,
                           const struct kernel **out)
{
    double best = INFINITY;

    for (size_t i = 0; kernel_at(i); i++) {
        const struct kernel *kernel = kernel_at(i);
        double seconds;
        if (strcmp(kernel->op, problem->op) != 0 || strcmp(kernel->name, "reference") == 0 ||
            (kernel->can_run && !kernel->can_run(problem)))
            continue;
        TRY(kernel_measure(kernel, problem, NULL, &seconds));
        strbuf_printf(told, "  %s %.1f us", kernel->name, 1e6 * seconds);
        if (seconds < 0.97 * best) {
            best = seconds;
            *out = kernel;
        }
    }
    return STATUS_OK;
}

struct tuning {
    struct job *job;
    struct strbuf *file; /* what is to be written */
    void (*tell)(void *arg, const char *line);
    void *arg;
    int n_lines;
};

static enum status tune_problem(struct tuning *tuning, const char *text)
{
    struct kernel_problem problem;
    const struct kernel *best = NULL;
    struct strbuf told;

    TRY(kernel_parse(text, &problem));
    strbuf_init(&told, 64 << 10);
    strbuf_printf(&told, "%s:", text);
    enum status status = fastest(&problem, &told, &best);
    if (status == STATUS_OK && best) {
        strbuf_printf(&told, "  -> %s", best->name);
        strbuf_add(tuning->file, tuning->n_lines++ ? ",\n    " : "\n    ");
        strbuf_add_json(tuning->file, text);
        strbuf_printf(tuning->file, ": \"%s\"", best->name);
        if (strbuf_status(&told) == STATUS_OK)
            tuning->tell(tuning->arg, told.text);
    }
    strbuf_release(&told);
    return status;
}

/* Every problem of the plan once: "own   linear 32x784 250x784 250 relu" a line. */
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

static enum status tune_body(struct transport *transport, void *arg)
{
    struct tuning *tuning = arg;
    const struct job *job = tuning->job;
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
    struct exec *exec = NULL;
    struct strbuf plan;

    strbuf_init(&plan, 16 << 20);
    enum status status = comm_create(transport, NULL, &config.comm);
    if (status == STATUS_OK)
        status = exec_create(&config, &exec);
    if (status == STATUS_OK)
        status = exec_print_plan(exec, s->batch / s->shards, &plan);
    if (status == STATUS_OK)
        status = tune_plan(tuning, plan.text);
    strbuf_release(&plan);
    exec_destroy(exec);
    comm_destroy(config.comm);
    return status;
}

enum status train_tune(struct job *job, const char *path,
                       void (*tell)(void *arg, const char *line), void *arg)
{
    const struct launch_config config = { .size = 1 };
    struct strbuf file;
    struct tuning tuning = { .job = job, .file = &file, .tell = tell, .arg = arg };

    strbuf_init(&file, 16 << 20);
    strbuf_printf(&file, "{ \"isa\": \"%s\",\n  \"choices\": {", kernel_isa());
    enum status status = launch_ranks(&config, tune_body, &tuning);
    strbuf_add(&file, "\n  } }\n");
    if (status == STATUS_OK)
        status = strbuf_status(&file);
    if (status == STATUS_OK)
        status = file_replace(path, file.text, file.length);
    strbuf_release(&file);
    return status;
}
