/* SPDX-License-Identifier: MIT */
/* bench_scale.c - tutti bench scale: training steps on several numbers of ranks, in turns. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/strbuf.h"
#include "cli/cli.h"
#include "kernel/kernel.h"
#include "report/scaling.h"
#include "train/train.h"

enum { LIST = 32, ROUNDS = 101 };

static bool json, weak, strong;
static const char *list, *rounds, *windows;

static const struct flag flags[] = {
    { "ranks", "N,N,...", "numbers of ranks (1,2,4)", NULL, &list },
    { "weak", NULL, "each rank has --batch samples a step (default)", &weak, NULL },
    { "strong", NULL, "--batch samples a step are shared out among the ranks", &strong, NULL },
    { "rounds", "N", "how often each number has its turn (5)", NULL, &rounds },
    { "windows", "N", "windows of a quarter of a second in a turn (3)", NULL, &windows },
    { "json", NULL, "a JSON object a line", &json, NULL },
    { 0 },
};

static const char *const allowed[] = {
    "batch",
    "seed",
    "strategy",
    "split",
    "pipeline",
    "cut",
    "sync",
    "meet",
    "threads",
    "shards",
    "device",
    "bucket-mib",
    "recompute",
    "factors",
    "kernels",
    "optimizer",
    "lr",
    "momentum",
    "nesterov",
    "beta1",
    "weight-decay",
    "beta2",
    "epsilon",
    "clip",
    "exact",
    "vocab",
    "sync-batch-norm",
    "label-smoothing",
    "length",
    "dense",
    "stall-timeout",
    "out",
    NULL,
};

void cli_bench_scale_help(void)
{
    puts("\nbench scale takes these instead:");
    cli_print_settings(allowed, NULL);
    cli_print_flags("Measurement", flags);
}

/* One number of ranks, measured in every round. */
struct runner {
    struct job *job;
    int n_results;
    struct bench_result *results;
};

struct scale {
    int count, n_rounds, n_windows;
    int ranks[LIST];
    struct runner runners[LIST];
    struct scaling_point points[LIST];
    double waits[2][LIST][BENCH_RANKS];
};

static int compare_ints(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

static int compare_doubles(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* "1,2,4", in any order, each once. */
static enum status read_ranks(struct scale *scale)
{
    char text[512], *rest = text, *item;

    if (list && strlen(list) >= sizeof text)
        return FAIL(STATUS_USAGE, "--ranks: the list is too long");
    snprintf(text, sizeof text, "%s", list ? list : "1,2,4");
    while ((item = strsep(&rest, ","))) {
        long long number;
        TRY(cli_whole_number("ranks", item, BENCH_RANKS, &number));
        if (number == 0 || scale->count == LIST)
            return FAIL(STATUS_USAGE, "--ranks %s: up to %d numbers from 1 to %d", item, LIST,
                        BENCH_RANKS);
        scale->ranks[scale->count++] = (int)number;
    }
    qsort(scale->ranks, (size_t)scale->count, sizeof *scale->ranks, compare_ints);
    for (int i = 1; i < scale->count; i++) {
        if (scale->ranks[i] == scale->ranks[i - 1])
            return FAIL(STATUS_USAGE, "--ranks: %d is there twice", scale->ranks[i]);
    }
    return STATUS_OK;
}

static enum status read_counts(struct scale *scale)
{
    long long n_rounds = 5, n_windows = 3;

    if (weak && strong)
        return FAIL(STATUS_USAGE, "--weak and --strong: one of them");
    if (rounds)
        TRY(cli_whole_number("rounds", rounds, ROUNDS, &n_rounds));
    if (windows)
        TRY(cli_whole_number("windows", windows, 1000, &n_windows));
    scale->n_rounds = n_rounds ? (int)n_rounds : 1;
    scale->n_windows = n_windows ? (int)n_windows : 1;
    return read_ranks(scale);
}

/* A job for each number of ranks: what is wrong with one is found before any is measured. */
static enum status make_jobs(struct scale *scale, const struct settings *given)
{
    const struct model *model;

    TRY(cli_find_model(given->model, &model));
    for (int i = 0; i < scale->count; i++) {
        struct settings settings = *given;
        settings.ranks = scale->ranks[i];
        settings.threads = given->threads ? given->threads : 1; /* the same at every point */
        if (!strong)
            settings.batch = given->batch * settings.ranks;
        TRY(job_create(&settings, model, JOB_GRAPH, &scale->runners[i].job));
        TRY(mem_alloc((size_t)scale->n_rounds, sizeof *scale->runners[i].results,
                      &scale->runners[i].results));
    }
    return STATUS_OK;
}

static void tell_turn(const struct scale *scale, int round, int i)
{
    if (json || !isatty(STDERR_FILENO))
        return;
    fprintf(stderr, "\rround %d of %d, %d ranks \033[K", round + 1, scale->n_rounds,
            scale->ranks[i]);
    if (round + 1 == scale->n_rounds && i + 1 == scale->count)
        fputs("\r\033[K", stderr);
}

static enum status measure(struct scale *scale)
{
    for (int round = 0; round < scale->n_rounds; round++) {
        for (int i = 0; i < scale->count; i++) {
            struct runner *runner = &scale->runners[i];
            tell_turn(scale, round, i);
            TRY(train_bench(runner->job, scale->n_windows,
                            &runner->results[runner->n_results]));
            runner->n_results++;
        }
    }
    return STATUS_OK;
}

/* A member of all results: sorted, it may be asked for median and ends. */
struct sample {
    int count;
    double value[ROUNDS];
};

static struct sample sample_of(const struct runner *runner, size_t offset)
{
    struct sample sample = { .count = runner->n_results };

    for (int i = 0; i < runner->n_results; i++)
        memcpy(&sample.value[i], (const char *)&runner->results[i] + offset, sizeof(double));
    qsort(sample.value, (size_t)sample.count, sizeof(double), compare_doubles);
    return sample;
}

static double median_of(const struct runner *runner, size_t offset)
{
    const struct sample sample = sample_of(runner, offset);
    return sample.value[sample.count / 2];
}

static void sum_up(struct scale *scale, int i, int cores)
{
    const struct runner *runner = &scale->runners[i];
    const struct settings *s = job_settings(runner->job);
    struct scaling_point *p = &scale->points[i];
    const struct sample steps = sample_of(runner, offsetof(struct bench_result, step_ms));

    *p = (struct scaling_point){
        .ranks = (int)s->ranks,
        .threads = (int)s->threads,
        .batch = s->batch,
        .step_ms = steps.value[steps.count / 2],
        .step_ms_low = steps.value[0],
        .step_ms_high = steps.value[steps.count - 1],
        .comm_share = median_of(runner, offsetof(struct bench_result, comm_share)),
        .wait_share = median_of(runner, offsetof(struct bench_result, wait_share)),
        .hidden_share = median_of(runner, offsetof(struct bench_result, hidden_share)),
        .bytes = median_of(runner, offsetof(struct bench_result, bytes_per_step)),
        .bytes_optimum = runner->results[0].bytes_optimum,
        .rank_wait = scale->waits[0][i],
        .rank_made_wait = scale->waits[1][i],
        .oversubscribed = s->ranks * s->threads > cores,
    };
    p->samples_per_s = 1e3 * (double)s->batch / p->step_ms;
    for (size_t r = 0; r < (size_t)s->ranks; r++) {
        scale->waits[0][i][r] =
            median_of(runner, offsetof(struct bench_result, rank_wait) + r * sizeof(double));
        scale->waits[1][i][r] = median_of(
            runner, offsetof(struct bench_result, rank_made_wait) + r * sizeof(double));
    }
}

/* Telling ---------------------------------------------------------------------------------- */

static void add_number(struct strbuf *line, const char *name, double number)
{
    if (isnan(number))
        return;
    strbuf_printf(line, ", \"%s\": ", name);
    strbuf_add_number(line, number);
}

static void add_numbers(struct strbuf *line, const char *name, const double *numbers, int count)
{
    strbuf_printf(line, ", \"%s\": [", name);
    for (int i = 0; i < count; i++) {
        strbuf_add(line, i ? ", " : "");
        strbuf_add_number(line, numbers[i]);
    }
    strbuf_add(line, "]");
}

static void add_point(struct strbuf *out, const struct scaling *s,
                      const struct scaling_point *p)
{
    strbuf_add(out, "{\"bench\": \"scale\", \"model\": ");
    strbuf_add_json(out, s->model);
    strbuf_printf(
        out,
        ", \"scaling\": \"%s\", \"strategy\": \"%s\", \"isa\": \"%s\", \"cores\": %d, "
        "\"ranks\": %d, \"threads\": %d, \"batch\": %lld, \"oversubscribed\": %s",
        s->weak ? "weak" : "strong", s->strategy, s->isa, s->cores, p->ranks, p->threads,
        (long long)p->batch, p->oversubscribed ? "true" : "false");
    add_number(out, "samples_per_s", p->samples_per_s);
    add_number(out, "step_ms", p->step_ms);
    add_number(out, "step_ms_low", p->step_ms_low);
    add_number(out, "step_ms_high", p->step_ms_high);
    add_number(out, "speedup", p->speedup);
    add_number(out, "efficiency", p->efficiency);
    add_number(out, "fitted_speedup", p->fitted);
    add_number(out, "comm_share", p->comm_share);
    add_number(out, "hidden_share", p->hidden_share);
    add_number(out, "wait_share", p->wait_share);
    add_number(out, "bytes_per_step", p->bytes);
    add_number(out, "bytes_optimum", p->bytes_optimum);
    add_numbers(out, "rank_wait", p->rank_wait, p->ranks);
    add_numbers(out, "rank_made_wait", p->rank_made_wait, p->ranks);
    strbuf_add(out, "}\n");
}

static void add_lines(struct strbuf *out, const struct scaling *s)
{
    for (size_t i = 0; i < s->count; i++)
        add_point(out, s, &s->points[i]);
    if (s->n_fitted == 0)
        return;
    strbuf_printf(out, "{\"bench\": \"scale_fit\", \"law\": \"%s\", \"points\": %zu",
                  scaling_law(s), s->n_fitted);
    add_number(out, "serial_share", s->serial);
    strbuf_printf(out, ", \"is_bounded\": %s", s->bound == SCALING_WITHIN ? "false" : "true");
    add_number(out, "residual", s->residual);
    strbuf_add(out, "}\n");
}

/* The rank that waits most, and the one that others wait for most. */
static int largest_of(const double *values, int count)
{
    int largest = 0;

    for (int i = 1; i < count; i++)
        largest = values[i] > values[largest] ? i : largest;
    return largest;
}

static void print_point(const struct scaling_point *p)
{
    char rate[32], bytes[32] = "", hidden[16] = "-";
    const int waits = largest_of(p->rank_wait, p->ranks);
    const int made = largest_of(p->rank_made_wait, p->ranks);

    if (p->ranks > 1) {
        char number[32];
        snprintf(bytes, sizeof bytes, "%sB (%.2f)", cli_human(p->bytes, number),
                 p->bytes / p->bytes_optimum);
    }
    if (!isnan(p->hidden_share))
        snprintf(hidden, sizeof hidden, "%.0f%%", 100 * p->hidden_share);
    printf("%4d%s %8lld %10s %10.3f %8.2f %9.1f%% %6.1f%% %7s %14s", p->ranks,
           p->oversubscribed ? "*" : " ", (long long)p->batch,
           cli_human(p->samples_per_s, rate), p->step_ms, p->speedup, 100 * p->efficiency,
           100 * p->comm_share, hidden, bytes);
    if (p->ranks > 1)
        printf("   rank %d %.1f%%, for rank %d %.1f%%", waits, 100 * p->rank_wait[waits], made,
               100 * p->rank_made_wait[made]);
    printf("\n");
}

static void print_people(const struct scaling *s)
{
    char fit[SCALING_TEXT];
    bool beyond = false;

    scaling_print_fit(s, fit);
    printf("%s, %s scaling, %d %s a rank, %d cores, %s:\n", s->model,
           s->weak ? "weak" : "strong", s->points[0].threads,
           s->points[0].threads == 1 ? "thread" : "threads", s->cores, s->isa);
    printf("ranks    batch  samples/s    step ms speed-up efficiency   sums  hidden  "
           "bytes (of opt)   waits most\n");
    for (size_t i = 0; i < s->count; i++) {
        print_point(&s->points[i]);
        beyond |= s->points[i].oversubscribed;
    }
    if (s->n_fitted > 0)
        printf("%s: serial share %.2f%%, %s\n", scaling_law(s), 100 * s->serial, fit);
    else
        printf("no fit: it takes 1 rank and several, with a core for every thread\n");
    if (beyond)
        printf("* more threads than cores: ranks share them in turns; left out of the fit\n");
}

static enum status write_files(const struct scaling *s, const struct strbuf *lines,
                               const char *folder)
{
    char *page = NULL, *data = NULL;

    TRY(file_make_folder(folder));
    enum status status = file_join(folder, "scale.html", &page);
    if (status == STATUS_OK)
        status = file_join(folder, "scale.jsonl", &data);
    if (status == STATUS_OK)
        status = scaling_write_page(s, page);
    if (status == STATUS_OK)
        status = file_replace(data, lines->text, lines->length);
    if (status == STATUS_OK && !json)
        printf("report   %s\n", page);
    mem_free(page);
    mem_free(data);
    return status;
}

static enum status tell(struct scale *scale, const struct settings *given)
{
    const int cores = job_cores();
    const struct settings *last = job_settings(scale->runners[scale->count - 1].job);
    struct scaling scaling = {
        .model = given->model,
        .strategy = last->strategy,
        .isa = kernel_isa(),
        .weak = !strong,
        .cores = cores,
        .count = (size_t)scale->count,
        .points = scale->points,
    };
    struct strbuf lines;

    for (int i = 0; i < scale->count; i++)
        sum_up(scale, i, cores);
    scaling_finish(&scaling);
    strbuf_init(&lines, 16 << 20);
    add_lines(&lines, &scaling);
    enum status status = strbuf_status(&lines);
    if (status == STATUS_OK && json)
        fputs(lines.text, stdout);
    else if (status == STATUS_OK)
        print_people(&scaling);
    if (status == STATUS_OK && *given->out)
        status = write_files(&scaling, &lines, given->out);
    strbuf_release(&lines);
    return status;
}

enum status cli_bench_scale(const struct args *args)
{
    static struct scale scale;
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

    settings_init(&settings);
    TRY(cli_join(&settings, &cluster));
    if (cluster.starter != STARTER_NONE)
        return FAIL(STATUS_USAGE,
                    "bench scale starts ranks of this machine itself: under %s measure each "
                    "number of ranks with bench train",
                    cluster_starter_name(cluster.starter));
    TRY(cli_parse(&parse));
    if (parse.n_words < 2)
        return FAIL(STATUS_USAGE, "bench scale needs a model");
    snprintf(settings.model, sizeof settings.model, "%s", words[1]);
    TRY(read_counts(&scale));
    enum status status = make_jobs(&scale, &settings);
    if (status == STATUS_OK)
        status = measure(&scale);
    if (status == STATUS_OK)
        status = tell(&scale, &settings);
    for (int i = 0; i < scale.count; i++) {
        job_destroy(scale.runners[i].job);
        mem_free(scale.runners[i].results);
    }
    return status;
}
