/* SPDX-License-Identifier: MIT */
/* bench.c - tutti bench train|kernel|tune; bench comm is in bench_comm.c, bench data in
 * bench_data.c, bench scale in bench_scale.c */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/strbuf.h"
#include "cli/cli.h"
#include "train/train.h"

static bool json;
static const char *windows, *path;
static struct bench_comm_flags comm;

static const struct flag flags[] = {
    { "json", NULL, "a JSON object a line", &json, NULL },
    { "windows", "N", "bench train: windows of a quarter of a second (15)", NULL, &windows },
    { "bytes", "B,B,...", "bench comm: sizes", NULL, &comm.sizes },
    { "op", "NAME,...", "bench comm: what is timed (all_reduce)", NULL, &comm.ops },
    { "algorithm", "NAME,...|all|auto", "bench comm: time collectives, by these", NULL,
      &comm.algorithms },
    { "codec", "NAME,...|all", "bench comm: time codecs instead", NULL, &comm.codecs },
    { "write", "FILE", "bench tune: where the table goes", NULL, &path },
    { 0 },
};

/* What changes the work that is measured. */
static const char *const allowed[] = {
    "batch",
    "seed",
    "strategy",
    "split",
    "pipeline",
    "cut",
    "sync",
    "meet",
    "ranks",
    "flat",
    "tables",
    "compress",
    "rails",
    "threads",
    "hosts",
    "launch-agent",
    "mpirun",
    "shards",
    "device",
    "precision",
    "rounding",
    "bucket-mib",
    "recompute",
    "factors",
    "kernels",
    "optimizer",
    "lr",
    "momentum",
    "nesterov",
    "weight-decay",
    "beta1",
    "beta2",
    "epsilon",
    "clip",
    "label-smoothing",
    "exact",
    "sync-batch-norm",
    "vocab",
    "length",
    "dense",
    "trace",
    "trace-steps",
    "stall-timeout",
    "lost-after",
    "accumulate",
    "balance",
    "trust",
    "adapt-all",
    "out",
    NULL,
};

static void help(void)
{
    puts("\n  bench train MODEL     training steps on a made-up batch in place\n"
         "  bench scale MODEL     the same on several numbers of ranks: how training scales\n"
         "  bench comm            what a step does with a bucket; collectives between ranks\n"
         "  bench kernel \"TEXT\"   every kernel for one problem, such as\n"
         "                        \"linear 32x784 250x784 250 relu\"\n"
         "  bench tune MODEL      measure the kernels a model needs, write the user's table\n"
         "  bench data NAME|PATH  samples read, augmented and laid into batches");
    cli_print_settings(allowed, NULL);
    cli_print_flags("Measurement", flags);
    cli_bench_data_help();
    cli_bench_scale_help();
}

/* train --------------------------------------------------------------------------------- */

static void print_train(const struct job *job, const struct bench_result *r)
{
    const struct settings *s = job_settings(job);
    char rate[32], flops[32], bytes[32];

    if (json) {
        printf("{\"bench\": \"train\", \"model\": \"%s\", \"batch\": %lld, \"ranks\": %lld, "
               "\"threads\": %lld, \"shards\": %lld, \"strategy\": \"%s\", \"device\": \"%s\", "
               "\"isa\": \"%s\", \"samples_per_s\": %.2f, \"step_ms\": %.5f, \"step_ms_p10\": "
               "%.5f, "
               "\"step_ms_p90\": %.5f, \"gflop_per_s\": %.2f, \"comm_share\": %.4f, "
               "\"wait_share\": %.4f, \"hidden_share\": %.4f, \"bytes_per_step\": %.0f, "
               "\"peak_bytes\": %lld}\n",
               s->model, (long long)s->batch, (long long)s->ranks, (long long)s->threads,
               (long long)s->shards, s->strategy, s->device, kernel_isa(), r->samples_per_s,
               r->step_ms, r->step_ms_p10, r->step_ms_p90, r->flops / r->step_ms * 1e-6,
               r->comm_share, r->wait_share, isnan(r->hidden_share) ? 0 : r->hidden_share,
               r->bytes_per_step, (long long)r->peak_bytes);
        return;
    }
    printf("%s batch %lld, %s, %lld x %lld threads, %lld shards, %s:\n", s->model,
           (long long)s->batch, s->strategy, (long long)s->ranks, (long long)s->threads,
           (long long)s->shards, kernel_isa());
    printf("  %s samples/s, step %.3f ms (%.3f to %.3f), %s flop/s, %sB\n",
           cli_human(r->samples_per_s, rate), r->step_ms, r->step_ms_p10, r->step_ms_p90,
           cli_human(r->flops / r->step_ms * 1e3, flops),
           cli_human((double)r->peak_bytes, bytes));
    printf("  sums and updates %.1f%%, waiting %.1f%%", 100 * r->comm_share,
           100 * r->wait_share);
    if (s->ranks > 1)
        printf(", %sB a step and rank (%.2f of an all_reduce's), %.0f%% of sums hidden",
               cli_human(r->bytes_per_step, bytes), r->bytes_per_step / r->bytes_optimum,
               isnan(r->hidden_share) ? 0 : 100 * r->hidden_share);
    printf("\n");
    if (s->trace)
        printf("  trace in %s/trace.json\n", *s->out ? s->out : ".");
}

/* elsewhere: the arguments, if the ranks are to be started by mpirun; else NULL. */
static enum status bench_train(struct settings *settings, const struct cluster *cluster,
                               const struct args *elsewhere)
{
    const struct model *model;
    struct bench_result result;
    long long n = 15;
    struct job *job;

    if (windows)
        TRY(cli_whole_number("windows", windows, 1000, &n));
    TRY(cli_find_model(settings->model, &model));
    TRY(job_create(settings, model, JOB_GRAPH, &job));
    if (elsewhere) {
        job_destroy(job);
        return cli_start_elsewhere("bench", elsewhere, settings);
    }
    enum status status = train_bench(job, n ? (int)n : 1, &result);
    if (status == STATUS_OK && cluster->rank == 0)
        print_train(job, &result);
    job_destroy(job);
    return status;
}

/* kernel and tune ----------------------------------------------------------------------- */

static void print_kernel(void *arg, const struct kernel *kernel, double seconds)
{
    (void)arg;
    printf(json ? "{\"bench\": \"kernel\", \"kernel\": \"%s\", \"us\": %.3f}\n"
                : "%-10s %10.2f us\n",
           kernel->name, 1e6 * seconds);
}

static void tell_line(void *arg, const char *line)
{
    (void)arg;
    puts(line);
    fflush(stdout);
}

static enum status bench_tune(struct settings *settings)
{
    const struct model *model;
    const char *home = getenv("HOME");
    char file[SETTINGS_TEXT] = "", folder[SETTINGS_TEXT];
    struct job *job;

    if (!path && !home)
        return FAIL(STATUS_USAGE, "HOME is not set: say where with --write FILE");
    snprintf(folder, sizeof folder, "%s/.config/tutti", home ? home : "");
    if (home)
        (void)train_table_path(home, settings->device, file);
    TRY(cli_find_model(settings->model, &model));
    TRY(job_create(settings, model, JOB_GRAPH, &job));
    enum status status = path ? STATUS_OK : file_make_folder(folder);
    if (status == STATUS_OK)
        status = train_tune(job, path ? path : file, json, tell_line, NULL);
    if (status == STATUS_OK && !json)
        printf("written to %s\n", path ? path : file);
    job_destroy(job);
    return status;
}

/* What is to be measured is the first word that can be. */
static const char *find_subject(const struct args *args)
{
    static const char *const subjects[] = {
        "train", "comm", "kernel", "tune", "data", "scale"
    };

    for (int i = 0; i < args->count; i++) {
        for (size_t j = 0; j < sizeof subjects / sizeof *subjects; j++)
            if (strcmp(args->word[i], subjects[j]) == 0)
                return subjects[j];
    }
    return "";
}

static enum status run(const struct args *args)
{
    struct settings settings;
    struct cluster cluster;
    const char *words[2];
    struct parse parse = {
        .args = args,
        .flags = flags,
        .settings = &settings,
        .allowed = allowed,
        .words = words,
        .max_words = 2,
    };

    if (strcmp(find_subject(args), "data") == 0)
        return cli_bench_data(args);
    if (strcmp(find_subject(args), "scale") == 0)
        return cli_bench_scale(args);
    settings_init(&settings);
    TRY(cli_join(&settings, &cluster));
    TRY(cli_parse(&parse));
    TRY(cli_place(&settings, &cluster));
    const char *what = parse.n_words ? words[0] : "";
    const struct args *elsewhere = cli_is_elsewhere(&settings, &cluster) ? args : NULL;
    if (strcmp(what, "comm") == 0 && parse.n_words == 1)
        return cli_bench_comm(&comm, json, &settings, elsewhere);
    if (strcmp(what, "comm") == 0)
        return FAIL(STATUS_USAGE, "bench comm takes no model");
    if (strcmp(what, "train") != 0 && strcmp(what, "tune") != 0 && strcmp(what, "kernel") != 0)
        return FAIL(STATUS_USAGE, "bench %s%smeasures train, scale, comm, kernel, tune or data",
                    what, *what ? ": " : "");
    if (parse.n_words < 2)
        return FAIL(STATUS_USAGE, "bench %s needs a %s", what,
                    strcmp(what, "kernel") == 0 ? "problem" : "model");
    if (elsewhere && strcmp(what, "train") != 0)
        return FAIL(STATUS_USAGE, "bench %s measures this machine: it takes no --hosts", what);
    if (strcmp(what, "kernel") == 0)
        return train_time_kernels(words[1], &settings, print_kernel, NULL);
    snprintf(settings.model, sizeof settings.model, "%s", words[1]);
    return strcmp(what, "train") == 0 ? bench_train(&settings, &cluster, elsewhere)
                                      : bench_tune(&settings);
}

const struct command command_bench = {
    .name = "bench",
    .usage = "bench train MODEL | scale MODEL | comm | kernel PROBLEM | tune MODEL | data NAME "
             "[FLAGS]",
    .summary = "measure training, its scaling, collectives, kernels or reading",
    .run = run,
    .help = help,
};
