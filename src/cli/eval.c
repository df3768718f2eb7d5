/* SPDX-License-Identifier: MIT */
/* eval.c - tutti eval */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/strbuf.h"
#include "cli/cli.h"
#include "train/train.h"

static bool json;
static const char *split, *weights, *outputs, *beam;

static const char *const allowed[] = { "data",   "threads",   "limit",  "kernels",
                                       "exact",  "fold",      "device", "precision",
                                       "layout", "normalize", NULL };
static const struct flag flags[] = {
    { "split", "NAME", "test, train or, of text, validation (test)", NULL, &split },
    { "weights", "FILE", "evaluate these (safetensors) instead of the checkpoint", NULL,
      &weights },
    { "outputs", "FILE", "write what the model gives for every sample (safetensors, or .csv)",
      NULL, &outputs },
    { "beam", "K", "translate by K hypotheses side by side; 1 is greedy (1)", NULL, &beam },
    { "json", NULL, "the result as a JSON object", &json, NULL },
    { 0 },
};

static void help(void)
{
    cli_print_settings(allowed, NULL);
    cli_print_flags("Evaluation", flags);
    puts("\nWith --weights, MODEL may stand for DIR, and its own options are flags too.");
}

static void add_number(struct strbuf *line, const char *name, double number)
{
    if (isnan(number))
        return;
    strbuf_printf(line, ", \"%s\": ", name);
    strbuf_add_number(line, number);
}

static enum status print_json(const char *of, const struct train_result *r,
                              const struct train_classes *classes)
{
    struct strbuf line;

    strbuf_init(&line, 64 << 20);
    strbuf_printf(&line, "{\"split\": \"%s\"", of);
    if (!weights)
        strbuf_printf(&line, ", \"step\": %lld", (long long)r->steps);
    add_number(&line, "val_loss", r->val_loss);
    add_number(&line, "val_accuracy", r->val_accuracy);
    add_number(&line, "val_top5_accuracy", r->val_top5);
    add_number(&line, "val_auc", r->val_auc);
    add_number(&line, "val_calibration_error", r->val_calibration_error);
    add_number(&line, "perplexity", r->perplexity);
    add_number(&line, "tokens_per_s", r->tokens_per_s);
    add_number(&line, "bleu", r->bleu);
    if (!isnan(r->bleu))
        strbuf_printf(&line, ", \"bleu_signature\": \"%s\"", r->bleu_signature);
    enum status status = train_print_classes(classes, ", ", &line);
    add_number(&line, "seconds", r->seconds);
    strbuf_printf(&line, ", \"weights_sha256\": \"%s\"}\n", r->weights_sha256);
    if (status == STATUS_OK)
        status = strbuf_status(&line);
    if (status == STATUS_OK)
        fputs(line.text, stdout);
    strbuf_release(&line);
    return status;
}

/* A class and how it fared, for sorting. */
struct row {
    int class;
    double accuracy;
};

static int compare_rows(const void *a, const void *b)
{
    const struct row *x = a, *y = b;

    if (x->accuracy != y->accuracy)
        return x->accuracy < y->accuracy ? -1 : 1;
    return x->class - y->class;
}

static void print_class(const struct train_classes *classes, int class)
{
    int64_t samples;
    const int other = train_class_taken_for(classes, class, &samples);
    char text[32], other_text[32];

    printf("  %-18s %8lld %8.2f%%", train_class_name(classes, class, text),
           (long long)train_class_samples(classes, class),
           100 * train_class_accuracy(classes, class));
    if (other >= 0)
        printf("   %s (%lld)", train_class_name(classes, other, other_text),
               (long long)samples);
    puts("");
}

/* All classes in their order; of many the worst, first. Classes without samples are left out. */
static enum status print_classes(const struct train_classes *classes)
{
    enum { MANY = 24, SHOWN = 20 };
    struct row *rows;
    int n = 0;

    TRY(mem_alloc((size_t)classes->count, sizeof *rows, &rows));
    for (int c = 0; c < classes->count; c++) {
        const double accuracy = train_class_accuracy(classes, c);
        if (!isnan(accuracy))
            rows[n++] = (struct row){ c, accuracy };
    }
    if (n > 0)
        printf("\n  %-18s %8s %9s   most often taken for\n", "class", "samples", "accuracy");
    if (n > MANY)
        qsort(rows, (size_t)n, sizeof *rows, compare_rows);
    const int shown = n > MANY ? SHOWN : n;
    for (int i = 0; i < shown; i++)
        print_class(classes, rows[i].class);
    if (shown < n)
        printf("  the %d worst of %d; --json has all\n", shown, n);
    mem_free(rows);
    return STATUS_OK;
}

static enum status print_text(const struct job *job, const char *of,
                              const struct train_result *r, const struct train_classes *classes)
{
    const struct settings *s = job_settings(job);
    char rate[32];

    if (weights)
        printf("%s with %s on %s of %s: ", s->model, weights, of, s->data);
    else
        printf("%s at step %lld on %s of %s: ", s->model, (long long)r->steps, of, s->data);
    if (!isnan(r->val_accuracy))
        printf("accuracy %.2f%%, ", 100 * r->val_accuracy);
    if (!isnan(r->val_top5))
        printf("top-5 %.2f%%, ", 100 * r->val_top5);
    if (!isnan(r->val_auc))
        printf("AUC %.4f, ", r->val_auc);
    if (!isnan(r->bleu))
        printf("BLEU %.2f (%s), ", r->bleu, r->bleu_signature);
    if (!isnan(r->perplexity))
        printf("perplexity %.2f, ", r->perplexity);
    if (!isnan(r->val_calibration_error))
        printf("calibration error %.2f%%, ", 100 * r->val_calibration_error);
    printf(r->val_loss < 1e6 ? "loss %.4f (%.2f s" : "loss %.4g (%.2f s", r->val_loss,
           r->seconds);
    if (!isnan(r->tokens_per_s))
        printf(", %s tokens/s", cli_human(r->tokens_per_s, rate));
    puts(")");
    return print_classes(classes);
}

/* However the run was distributed, it is evaluated by one process, and on this processor unless flags say otherwise. */
static void be_one_rank(struct settings *settings)
{
    static const char *const usual[] = {
        "ranks",          "threads",      "shards",
        "strategy",       "split",        "sync",
        "meet",           "balance",      "compress",
        "flat",           "local-after",  "outer-lr",
        "outer-momentum", "slow",         "backup",
        "replicas",       "staleness-lr", "tables",
        "pipeline",       "cut",          "device",
        "precision",      "rounding",     "spares",
        "data-on",        "drop-last",    "sequence-parallel",
        "compress-after", NULL,
    };

    settings_reset(settings, usual);
}

/* The settings of the run in folder `word`; with --weights `word` may be a model. */
static enum status read_run(const char *word, struct settings *settings)
{
    if (weights && !file_is_folder(word)) {
        snprintf(settings->model, sizeof settings->model, "%s", word);
        return STATUS_OK;
    }
    TRY(train_read_settings(word, settings));
    be_one_rank(settings);
    return STATUS_OK;
}

static enum status read_settings(const struct args *args, struct settings *settings)
{
    char data[SETTINGS_TEXT];
    const char *words[1];
    struct parse parse = { .args = args,
                           .flags = flags,
                           .settings = settings,
                           .allowed = allowed,
                           .words = words,
                           .max_words = 1 };

    /* Flags change the run's settings, so the run is read first: its folder is the one word. */
    settings_init(settings);
    TRY(cli_parse(&parse));
    if (!parse.n_words)
        return FAIL(STATUS_USAGE, "no run: tutti eval DIR, or MODEL with --weights FILE");
    snprintf(data, sizeof data, "%s", settings->data);
    TRY(read_run(words[0], settings));
    if (*data && strcmp(data, settings->data) != 0)
        *settings->layout = '\0'; /* other data have their own */
    parse.n_words = parse.n_later = 0;
    TRY(cli_parse(&parse));
    if (split && strcmp(split, "test") != 0 && strcmp(split, "train") != 0 &&
        strcmp(split, "validation") != 0)
        return FAIL(STATUS_USAGE, "--split %s: test, train or validation", split);
    return STATUS_OK;
}

static enum status read_beam(const struct model *model, long long *out)
{
    *out = 1;
    if (!beam)
        return STATUS_OK;
    if (model->task != MODEL_TRANSLATION)
        return FAIL(STATUS_USAGE, "--beam: %s does not translate", model->name);
    if (model->file)
        return FAIL(STATUS_USAGE,
                    "--beam: %s is a graph file, whose translations are scored by "
                    "their loss alone",
                    model->name);
    TRY(cli_whole_number("beam", beam, 256, out));
    return *out > 0 ? STATUS_OK : FAIL(STATUS_USAGE, "--beam 0: at least 1");
}

static enum status run(const struct args *args)
{
    struct settings settings;
    const struct model *model;
    struct train_result result = { 0 };
    struct train_classes classes = { 0 };
    struct job *job;
    long long width;

    TRY(read_settings(args, &settings));
    TRY(cli_find_run_model(&settings, &model));
    TRY(read_beam(model, &width));
    TRY(job_create(&settings, model, *settings.out ? JOB_CONTINUE : JOB_TRAIN, &job));
    const char *of = split ? split : "test";
    const struct train_evaluation evaluation = {
        .split = strcmp(of, "train") == 0 ? DATASET_TRAIN : DATASET_TEST,
        .validation = strcmp(of, "validation") == 0,
        .weights = weights,
        .outputs = outputs,
        .beam = width,
    };
    enum status status = train_evaluate(job, &evaluation, &result, &classes);
    if (status == STATUS_OK)
        status =
            json ? print_json(of, &result, &classes) : print_text(job, of, &result, &classes);
    train_classes_release(&classes);
    job_destroy(job);
    return status;
}

const struct command command_eval = {
    .name = "eval",
    .usage = "eval DIR [FLAGS]\n       tutti eval MODEL --weights FILE [FLAGS]",
    .summary = "evaluate a trained run, or weights from a file",
    .run = run,
    .help = help,
};
