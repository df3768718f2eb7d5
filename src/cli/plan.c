/* SPDX-License-Identifier: MIT */
/* plan.c - tutti plan: what every way to distribute a job would cost, and the choice of --strategy auto. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/strbuf.h"
#include "cli/cli.h"
#include "report/plan_page.h"
#include "train/forecast.h"

enum { SHOWN = 24 };

static bool json, guess;
static const char *network, *nodes, *simulate, *seconds;

static const struct flag flags[] = {
    { "network", "FILE", "a cluster file: the ranks are on such machines", NULL, &network },
    { "nodes", "K", "the ranks are on K machines like this one, on a usual network", NULL,
      &nodes },
    { "simulate", "FILE", "plan for all ranks of a cluster file, each with --batch samples",
      NULL, &simulate },
    { "guess", NULL, "measure nothing: by operations and bytes", &guess, NULL },
    { "seconds", "S", "about so long each measurement takes (1)", NULL, &seconds },
    { "json", NULL, "one JSON object", &json, NULL },
    { 0 },
};

static const char *const allowed[] = {
    "ranks",      "threads",         "shards",    "accumulate", "batch",
    "flat",       "memory",          "recompute", "factors",    "sync-batch-norm",
    "dense",      "tables",          "optimizer", "momentum",   "clip",
    "bucket-mib", "vocab",           "length",    "kernels",    "exact",
    "seed",       "label-smoothing", "out",       "compress",   NULL
};

static void help(void)
{
    cli_print_settings(allowed, NULL);
    cli_print_flags("Plan", flags);
    puts(
        "\nWith --out the plan is also written there, as plan.html and plan.json.\n\nExamples\n"
        "  tutti plan gpt -n 4\n"
        "  tutti plan resnet18 -n 8 --nodes 2 --memory 2e9\n"
        "  tutti plan gpt --simulate cluster.json --out plans/gpt");
}

static const char *bytes_text(double bytes, char text[32])
{
    char number[32];

    snprintf(text, 32, "%sB", cli_human(bytes, number));
    return text;
}

/* Of the column that names the ways. */
static int name_width(const struct forecast *plan)
{
    int width = 34;

    for (int i = 0; i < plan->n_rows; i++) {
        char name[128];
        forecast_name(&plan->rows[i], name);
        width = (int)strlen(name) > width ? (int)strlen(name) : width;
    }
    return width;
}

static void print_row(const struct forecast *plan, int i, int width)
{
    const struct forecast_row *row = &plan->rows[i];
    const struct cost_estimate *c = &row->cost;
    char name[128], bytes[32], memory[32], rate[32], bubble[16] = "-", tried[16] = "-";

    forecast_name(row, name);
    if (!row->is_legal) {
        printf("  %-*s %10s %10s %9s %8s %9s %9s %7s  %s\n", width, name, "-", "-", "-", "-",
               "-", "-", "-", row->why);
        return;
    }
    if (row->choice.pp > 1)
        snprintf(bubble, sizeof bubble, "%.1f%%", 100 * c->bubble);
    if (row->tried > 0)
        snprintf(tried, sizeof tried, "%.3f", 1e3 * row->tried);
    printf("%c %-*s %10.3f %10s %9s %8.2f %9s %9s %7s  %s\n", i == plan->chosen ? '*' : ' ',
           width, name, 1e3 * c->seconds, tried,
           cli_human((double)plan->batch / c->seconds, rate), plan->single / c->seconds,
           bytes_text(c->memory, memory), bytes_text(c->bytes, bytes), bubble, row->why);
}

static int compare_rows(const void *a, const void *b)
{
    const struct forecast_row *x = *(const struct forecast_row *const *)a,
                              *y = *(const struct forecast_row *const *)b;

    if (x->is_legal != y->is_legal)
        return y->is_legal - x->is_legal;
    return (x->cost.seconds > y->cost.seconds) - (x->cost.seconds < y->cost.seconds);
}

/* In the order of strategies; of many the fastest. */
static enum status print_rows(const struct forecast *plan)
{
    const struct forecast_row **rows;
    const int shown = plan->n_rows < SHOWN ? plan->n_rows : SHOWN, width = name_width(plan);

    printf("  %-*s %10s %10s %9s %8s %9s %9s %7s\n", width, "strategy", "step ms", "tried ms",
           "samples/s", "speed-up", "memory", "bytes", "bubble");
    TRY(mem_alloc((size_t)plan->n_rows + 1, sizeof *rows, &rows));
    for (int i = 0; i < plan->n_rows; i++)
        rows[i] = &plan->rows[i];
    if (plan->n_rows > SHOWN)
        qsort(rows, (size_t)plan->n_rows, sizeof *rows, compare_rows);
    for (int i = 0; i < shown; i++)
        print_row(plan, (int)(rows[i] - plan->rows), width);
    if (plan->n_rows > shown)
        printf("  and %d more, slower or not possible: --json has all\n", plan->n_rows - shown);
    mem_free(rows);
    return STATUS_OK;
}

static enum status print_people(const struct forecast *plan)
{
    const struct cost_cluster *c = &plan->machine.cluster;
    char memory[32];

    printf("%s, %lld samples a step in %lld shards, %d x %d threads on %d %s, %s a rank; times "
           "are %s\n",
           plan->model, (long long)plan->batch, (long long)plan->shards, plan->ranks,
           plan->threads, c->nodes, c->nodes == 1 ? "machine" : "machines",
           c->memory > 0 ? bytes_text(c->memory, memory) : "any memory",
           plan->is_measured ? "from nodes measured here" : "guessed by operations and bytes");
    if (plan->ranks > 1)
        printf("one rank alone would take %.3f ms\n", 1e3 * plan->single);
    TRY(print_rows(plan));
    for (int i = 0; i < plan->n_points; i++) {
        const struct forecast_point *p = &plan->points[i];
        char data[32] = "-", best[32];
        if (i == 0)
            printf("\n%8s %14s %14s  %s\n", "ranks", "data parallel", "best", "samples/s");
        if (!isnan(p->data_parallel))
            cli_human(p->data_parallel, data);
        printf("%8d %14s %14s  %s\n", p->ranks, data,
               isnan(p->best) ? "-" : cli_human(p->best, best), p->name);
    }
    printf("\n%s %s\n", plan->chosen >= 0 ? "auto picks" : "auto picks nothing:", plan->why);
    return STATUS_OK;
}

/* The page ------------------------------------------------------------------------------- */

static enum status write_page(const struct forecast *plan, const char *path)
{
    const size_t n_rows = (size_t)plan->n_rows, n_points = (size_t)plan->n_points;
    struct plan_page page = { .model = plan->model,
                              .why = plan->why,
                              .batch = plan->batch,
                              .ranks = plan->ranks,
                              .nodes = plan->machine.cluster.nodes,
                              .memory = plan->machine.cluster.memory,
                              .single_ms = 1e3 * plan->single,
                              .is_measured = plan->is_measured,
                              .stages = plan->timeline_row < 0
                                            ? 0
                                            : plan->rows[plan->timeline_row].choice.pp,
                              .seconds = plan->timeline.seconds };
    char(*names)[128] = NULL;
    struct plan_page_row *rows = NULL;
    struct plan_page_point *points = NULL;
    struct plan_page_event *events = NULL;

    enum status status = mem_alloc(n_rows + 1, sizeof *names, &names);
    if (status == STATUS_OK)
        status = mem_alloc(n_rows + 1, sizeof *rows, &rows);
    if (status == STATUS_OK)
        status = mem_alloc(n_points + 1, sizeof *points, &points);
    if (status == STATUS_OK)
        status = mem_alloc((size_t)plan->timeline.n_events + 1, sizeof *events, &events);
    for (size_t i = 0; status == STATUS_OK && i < n_rows; i++) {
        const struct forecast_row *row = &plan->rows[i];
        const struct cost_estimate *c = &row->cost;
        rows[i] = (struct plan_page_row){
            .name = forecast_name(row, names[i]),
            .why = row->why,
            .is_legal = row->is_legal,
            .is_chosen = (int)i == plan->chosen,
            .can_be = row->is_legal && row->runs && row->is_exact && row->fits,
            .step_ms = 1e3 * c->seconds,
            .bubble = c->bubble,
            .bytes = c->bytes,
            .memory = { c->params, c->gradients, c->state, c->activations, c->copy },
        };
    }
    for (size_t i = 0; status == STATUS_OK && i < n_points; i++)
        points[i] =
            (struct plan_page_point){ plan->points[i].ranks, plan->points[i].data_parallel,
                                      plan->points[i].best, plan->points[i].name };
    for (int64_t i = 0; status == STATUS_OK && i < plan->timeline.n_events; i++) {
        const struct walk_event *e = &plan->timeline.events[i];
        events[i] =
            (struct plan_page_event){ e->begin, e->end, e->shard, e->stage, e->is_backward };
    }
    if (status == STATUS_OK) {
        page.rows = rows;
        page.n_rows = n_rows;
        page.points = points;
        page.n_points = n_points;
        page.events = events;
        page.n_events = (size_t)plan->timeline.n_events;
        page.timeline = plan->timeline_row < 0 ? "" : rows[plan->timeline_row].name;
        status = plan_page_write(&page, path);
    }
    mem_free(names);
    mem_free(rows);
    mem_free(points);
    mem_free(events);
    return status;
}

static enum status write_files(const struct forecast *plan, const struct strbuf *text,
                               const char *folder)
{
    char *page = NULL, *data = NULL;

    TRY(file_make_folder(folder));
    enum status status = file_join(folder, "plan.html", &page);
    if (status == STATUS_OK)
        status = file_join(folder, "plan.json", &data);
    if (status == STATUS_OK)
        status = write_page(plan, page);
    if (status == STATUS_OK)
        status = file_replace(data, text->text, text->length);
    if (status == STATUS_OK && !json)
        printf("report   %s\n", page);
    mem_free(page);
    mem_free(data);
    return status;
}

static enum status tell(const struct forecast *plan, const char *folder)
{
    struct strbuf text;

    strbuf_init(&text, 64 << 20);
    forecast_print_json(plan, &text);
    enum status status = strbuf_status(&text);
    if (status == STATUS_OK && json)
        fputs(text.text, stdout);
    else if (status == STATUS_OK)
        status = print_people(plan);
    if (status == STATUS_OK && *folder)
        status = write_files(plan, &text, folder);
    strbuf_release(&text);
    return status;
}

/* Options -------------------------------------------------------------------------------- */

static enum status read_options(struct settings *settings, struct machine *machine,
                                struct forecast_options *out)
{
    long long number = 0;

    *out = (struct forecast_options){ .guess = guess, .is_elsewhere = simulate != NULL };
    if ((network != NULL) + (nodes != NULL) + (simulate != NULL) > 1)
        return FAIL(STATUS_USAGE, "--network, --nodes and --simulate: one of them");
    if (simulate && settings->ranks > 1)
        return FAIL(STATUS_USAGE,
                    "--simulate %s: the file says how many ranks there are: leave "
                    "out -n",
                    simulate);
    if ((nodes || network || simulate) && settings->flat)
        return FAIL(STATUS_USAGE, "--flat is about ranks of this machine");
    if (nodes) {
        TRY(cli_whole_number("nodes", nodes, 256, &number));
        if (number < 1)
            return FAIL(STATUS_USAGE, "--nodes %s: at least one", nodes);
        out->nodes = (int)number;
    }
    if (network || simulate) {
        TRY(machine_load(network ? network : simulate, machine));
        if (settings->memory)
            machine->cluster.memory = (double)settings->memory;
        out->machine = machine;
    }
    if (seconds) {
        char *end;
        out->seconds = strtod(seconds, &end);
        if (end == seconds || *end || !(out->seconds > 0) || out->seconds > 3600)
            return FAIL(STATUS_USAGE, "--seconds %s: a number above 0, up to 3600", seconds);
    }
    if (simulate && !settings->threads)
        settings->threads = 1; /* a rank is what one thread here was measured to be */
    return STATUS_OK;
}

static enum status run(const struct args *args)
{
    struct settings settings;
    struct cluster cluster;
    const char *words[1];
    struct parse parse = { .args = args,
                           .flags = flags,
                           .settings = &settings,
                           .allowed = allowed,
                           .words = words,
                           .max_words = 1 };
    const struct model *model;
    struct machine machine;
    struct forecast_options options;
    struct job *job;
    struct forecast *plan;

    settings_init(&settings);
    TRY(cli_join(&settings, &cluster));
    if (cluster.starter != STARTER_NONE)
        return FAIL(
            STATUS_USAGE,
            "plan measures on this machine alone: run it without %s, with --network FILE",
            cluster_starter_name(cluster.starter));
    TRY(cli_parse(&parse));
    if (!parse.n_words)
        return FAIL(STATUS_USAGE, "no model: tutti plan MODEL -n RANKS");
    snprintf(settings.model, sizeof settings.model, "%s", words[0]);
    TRY(cli_find_model(settings.model, &model));
    TRY(read_options(&settings, &machine, &options));
    TRY(job_create(&settings, model, JOB_GRAPH, &job));
    enum status status = forecast_create(job, &options, &plan);
    if (status == STATUS_OK) {
        status = tell(plan, settings.out);
        forecast_destroy(plan);
    }
    job_destroy(job);
    return status;
}

const struct command command_plan = {
    .name = "plan",
    .usage = "plan MODEL [FLAGS]",
    .summary = "predict time and memory of every strategy, and choose",
    .run = run,
    .help = help,
};
