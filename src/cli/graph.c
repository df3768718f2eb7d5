/* SPDX-License-Identifier: MIT */
/* graph.c - tutti graph */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/strbuf.h"
#include "cli/cli.h"
#include "sched/program.h"
#include "sched/work.h"
#include "train/train.h"

static const char *format, *after, *rank;

static const char *const allowed[] = {
    "pipeline",       "cut",        "strategy",     "split",      "sync",
    "meet",           "ranks",      "threads",      "flat",       "compress",
    "compress-after", "shards",     "batch",        "clip",       "optimizer",
    "momentum",       "bucket-mib", "recompute",    "factors",    "sync-batch-norm",
    "vocab",          "length",     "dense",        "accumulate", "tables",
    "backup",         "replicas",   "staleness-lr", "data",       "layout",
    "normalize",      "device",     "precision",    NULL
};
static const struct flag flags[] = {
    { "format", "text|dot|svg|json",
      "how to draw it (text); json: a graph file, of the model itself, or tasks", NULL,
      &format },
    { "after", "PASS", "stop after this pass; model: before the first; lower: tasks of a step",
      NULL, &after },
    { "rank", "R", "whose graph or tasks, where ranks differ (0)", NULL, &rank },
    { 0 },
};

static void help(void)
{
    cli_print_settings(allowed, NULL);
    cli_print_flags("Picture", flags);
    puts("\nEvery rank of a data-parallel strategy runs the same graph; of a pipeline all have "
         "the\n"
         "whole, in which a rank sums and updates what is its own. The text ends with its "
         "operations\nand bytes; no GPU is needed to see the graph of one.\n\n"
         "--after lower shows the step program: the tasks that the graph is lowered to, with "
         "the\n"
         "place and the medium of each, what it waits for, and what it reads and writes. They "
         "are\n"
         "what runs: --trace shows the same tasks. Parameter servers are the last ranks.\n"
         "\nExamples\n"
         "  tutti graph mlp --after model\n"
         "  tutti graph cnn --strategy mirrored -n 2 --format svg > cnn.svg\n"
         "  tutti graph cnn --strategy zero -n 4 --flat --rank 1 --after lower\n"
         "  tutti graph cnn --strategy ps -n 2 --rank 2 --after lower\n"
         "  tutti graph resnet18 --batch 512 --device cuda | tail -1\n"
         "  tutti graph cnn --format json > cnn.json; tutti train cnn.json");
}

static bool is_format(const char *name)
{
    return format && strcmp(format, name) == 0;
}

static enum status print_text(const struct job *job, int64_t number, struct strbuf *out)
{
    struct demand demand;

    TRY(job_demand(job, &demand));
    if (job_has_places(job) && !(after && strcmp(after, "model") == 0))
        strbuf_printf(out, "rank %lld of %lld\n", (long long)number,
                      (long long)job_settings(job)->ranks);
    graph_print_text(job_graph(job), out);
    strbuf_printf(out, " in all: %.0f operations, %.0f bytes read and written\n", demand.flops,
                  demand.bytes);
    return STATUS_OK;
}

static enum status print(const struct job *job, int64_t number)
{
    const struct graph *graph = job_graph(job);
    enum status status = STATUS_OK;
    struct strbuf out;

    strbuf_init(&out, 256 << 20);
    if (is_format("json"))
        status = job_print_model(job, &out);
    else if (!format || is_format("text"))
        status = print_text(job, number, &out);
    else if (is_format("dot"))
        graph_print_dot(graph, &out);
    else
        graph_print_svg(graph, &out);
    if (status == STATUS_OK)
        status = strbuf_status(&out);
    if (status == STATUS_OK)
        fputs(out.text, stdout);
    strbuf_release(&out);
    return status;
}

/* "cnn, multiworker, rank 1 of 4"; "cnn, ps, rank 4: server 0" */
static void print_title(const struct job *job, int64_t number, int server, char *out,
                        size_t bytes)
{
    const struct settings *s = job_settings(job);
    const int length = snprintf(out, bytes, "%.80s, %.40s, rank %lld", s->model, s->strategy,
                                (long long)number);

    if (server < 0)
        snprintf(out + length, bytes - (size_t)length, " of %lld", (long long)s->ranks);
    else
        snprintf(out + length, bytes - (size_t)length, ": server %d", server);
}

static enum status print_program_json(const struct job *job, const struct program *program,
                                      struct strbuf *out)
{
    struct task_work *works;

    TRY(mem_alloc((size_t)program->n_tasks + 1, sizeof *works, &works));
    const enum status status = job_task_work(job, program, works);
    if (status == STATUS_OK)
        program_print_json(program, works, out);
    mem_free(works);
    return status;
}

static enum status print_program(struct job *job, int64_t number)
{
    enum status status = STATUS_OK;
    struct program *program;
    struct strbuf out;
    char title[200];

    TRY(job_lower(job, number, &program));
    strbuf_init(&out, 256 << 20);
    print_title(job, number, program->server, title, sizeof title);
    if (is_format("json")) {
        status = print_program_json(job, program, &out);
    } else if (is_format("svg")) {
        program_print_svg(program, title, &out);
    } else {
        strbuf_printf(&out, "%s\n", title);
        program_print_text(program, &out);
    }
    if (status == STATUS_OK)
        status = strbuf_status(&out);
    if (status == STATUS_OK)
        fputs(out.text, stdout);
    strbuf_release(&out);
    program_destroy(program);
    return status;
}

static enum status run(const struct args *args)
{
    struct settings settings;
    const char *words[1];
    struct parse parse = { .args = args,
                           .flags = flags,
                           .settings = &settings,
                           .allowed = allowed,
                           .words = words,
                           .max_words = 1 };
    const struct model *model;
    long long number = 0;
    struct job *job;

    settings_init(&settings);
    TRY(cli_parse(&parse));
    if (!parse.n_words)
        return FAIL(STATUS_USAGE, "no model: tutti graph MODEL");
    if (rank)
        TRY(cli_whole_number("rank", rank, INT32_MAX, &number));
    if (format && !is_format("text") && !is_format("dot") && !is_format("svg") &&
        !is_format("json"))
        return FAIL(STATUS_USAGE, "--format %s: text, dot, svg or json", format);
    const bool lowers = after && strcmp(after, "lower") == 0;
    if (lowers && is_format("dot"))
        return FAIL(STATUS_USAGE, "--format dot: --after lower has text, svg or json");
    if (is_format("json") && after && !lowers && strcmp(after, "model") != 0)
        return FAIL(STATUS_USAGE,
                    "--format json holds the model before the first pass: leave --after %s out",
                    after);
    snprintf(settings.model, sizeof settings.model, "%s", words[0]);
    TRY(cli_find_model(settings.model, &model));
    const char *until = lowers ? NULL : is_format("json") ? "model" : after;
    TRY(job_create_after(&settings, model, until, &job));
    enum status status = rank && !lowers ? job_be_rank(job, number, until) : STATUS_OK;
    if (status == STATUS_OK)
        status = lowers ? print_program(job, number) : print(job, number);
    job_destroy(job);
    return status;
}

const struct command command_graph = {
    .name = "graph",
    .usage = "graph MODEL [FLAGS]",
    .summary = "show what a strategy makes of a model",
    .run = run,
    .help = help,
};
