/* SPDX-License-Identifier: MIT */
/* bench_data.c - tutti bench data */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/strbuf.h"
#include "cli/cli.h"
#include "data/measure.h"

static bool json;
static const char *windows, *threads;
static long long n_windows = 15, n_threads;
static double began;

static const struct flag flags[] = {
    { "threads", "N", "threads that read ahead; 0: as many as it takes", NULL, &threads },
    { "json", NULL, "a JSON object", &json, NULL },
    { "windows", "N", "windows of a quarter of a second (15)", NULL, &windows },
    { 0 },
};

static const char *const allowed[] = { "limit", "batch",  "shuffle", "seed", "crop",
                                       "flip",  "cutout", "layout",  NULL };

void cli_bench_data_help(void)
{
    puts("\nbench data takes these instead:");
    cli_print_settings(allowed, NULL);
    cli_print_flags("Measurement", flags);
}

/* After two seconds, to who sits before a terminal. */
static void tell_window(int window)
{
    if (json || !isatty(STDERR_FILENO) || clock_seconds() - began < 2)
        return;
    fprintf(stderr, "\rwindow %d of %lld ", window + 1, n_windows);
    if (window + 1 == n_windows)
        fputs("\r\033[K", stderr);
}

static void print_json(const char *name, const struct loader_config *config,
                       const struct data_measurement *m, int64_t bytes)
{
    const struct augment *a = &config->augment;
    struct strbuf line;

    strbuf_init(&line, 64 << 10);
    strbuf_add(&line, "{\"bench\": \"data\", \"data\": ");
    strbuf_add_json(&line, name);
    strbuf_printf(&line,
                  ", \"batch\": %lld, \"threads\": %d, \"crop\": %d, \"flip\": %s, "
                  "\"cutout\": %d, \"samples_per_s\": %.1f, \"samples_per_s_p10\": %.1f, "
                  "\"samples_per_s_p90\": %.1f, \"mb_per_s\": %.2f, "
                  "\"floor_samples_per_s\": %.1f, \"floor_mb_per_s\": %.2f}",
                  (long long)config->sampler.batch, m->threads, a->crop,
                  a->flip ? "true" : "false", a->cutout, m->samples_per_s, m->samples_per_s_p10,
                  m->samples_per_s_p90, m->samples_per_s * (double)bytes * 1e-6,
                  m->write_bytes_per_s / (double)bytes, m->write_bytes_per_s * 1e-6);
    puts(line.text);
    strbuf_release(&line);
}

static void print_text(const char *name, const struct loader_config *config,
                       const struct data_measurement *m, int64_t bytes)
{
    char text[AUGMENT_TEXT], median[32], low[32], high[32], rate[32], written[32];

    printf("%s batch %lld, augmentation %s, %d %s:\n", name, (long long)config->sampler.batch,
           augment_print(&config->augment, text), m->threads,
           m->threads == 1 ? "thread" : "threads");
    printf("  %s samples/s (%s to %s), %sB/s written, %lld bytes a sample\n",
           cli_human(m->samples_per_s, median), cli_human(m->samples_per_s_p10, low),
           cli_human(m->samples_per_s_p90, high),
           cli_human(m->samples_per_s * (double)bytes, rate), (long long)bytes);
    printf("  writing alone: %s samples/s, %sB/s\n",
           cli_human(m->write_bytes_per_s / (double)bytes, median),
           cli_human(m->write_bytes_per_s, written));
}

static enum status measure(const struct settings *s, const struct dataset *dataset)
{
    const struct shape sample = dataset_sample(dataset);
    const int64_t bytes = shape_count(&sample) * (int64_t)sizeof(float);
    const struct loader_config config = {
        .source = dataset_as_source(dataset),
        .sampler = { .count = dataset_count(dataset),
                     .batch = s->batch,
                     .seed = s->seed,
                     .shuffle = s->shuffle },
        .shards = 1,
        .n_shards = 1,
        .augment = { .crop = (int)s->crop, .flip = s->flip, .cutout = (int)s->cutout },
        .threads = (int)n_threads,
    };
    struct data_measurement result;

    began = clock_seconds();
    TRY(data_measure(&config, (int)n_windows, tell_window, &result));
    (json ? print_json : print_text)(s->data, &config, &result, bytes);
    return STATUS_OK;
}

enum status cli_bench_data(const struct args *args)
{
    struct settings settings;
    const char *words[2];
    struct parse parse = {
        .args = args,
        .flags = flags,
        .settings = &settings,
        .allowed = allowed,
        .words = words,
        .max_words = 2,
    };
    enum dataset_layout layout;
    struct dataset *dataset;

    settings_init(&settings);
    TRY(cli_parse(&parse));
    if (parse.n_words < 2)
        return FAIL(STATUS_USAGE, "bench data needs a data set: tutti data list");
    if (threads)
        TRY(cli_whole_number("threads", threads, LOADER_THREADS, &n_threads));
    if (windows)
        TRY(cli_whole_number("windows", windows, DATA_WINDOWS, &n_windows));
    TRY(settings_set(&settings, settings_find("data"), words[1]));
    TRY(dataset_layout_parse(settings.layout, &layout));
    TRY(dataset_open_layout(settings.data, DATASET_TRAIN, layout, &dataset));
    dataset_limit(dataset, settings.limit);
    const enum status status = measure(&settings, dataset);
    dataset_close(dataset);
    return status;
}
