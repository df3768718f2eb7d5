/* SPDX-License-Identifier: MIT */
/* train.c - tutti train */
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/strbuf.h"
#include "cli/cli.h"
#include "train/train.h"

static bool json, overwrite, quiet;
static const char *resume;

static const struct flag flags[] = {
    { "resume", "DIR", "continue the run in DIR; flags change its settings", NULL, &resume },
    { "overwrite", NULL, "replace a run that --out holds", &overwrite, NULL },
    { "json", NULL, "every line of metrics and the summary as JSON on standard output", &json,
      NULL },
    { "quiet", NULL, "no progress, no closing lines", &quiet, NULL },
    { 0 },
};

static void help(void)
{
    cli_print_settings(NULL, NULL);
    cli_print_flags("Run", flags);
    puts("\nMODEL is a name of the zoo (tutti models) or a C file that includes tutti.h.\n"
         "A model's own options are flags too: tutti models NAME shows them.\n\n"
         "Examples\n"
         "  tutti train mlp --epochs 5\n"
         "  tutti train cnn --strategy mirrored -n 2 --optimizer adamw --schedule cosine\n"
         "  tutti train --resume runs/cnn-mirrored-20260131-120000 --epochs 10");
}

/* As a shell reads it. */
static void add_word(struct strbuf *out, const char *word)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "_@%+=:,./-";

    if (*word && strspn(word, plain) == strlen(word)) {
        strbuf_printf(out, " %s", word);
        return;
    }
    strbuf_add(out, " '");
    for (; *word; word++)
        strbuf_printf(out, *word == '\'' ? "'\\%c'" : "%c", *word);
    strbuf_add(out, "'");
}

static void command_line(const struct args *args, struct strbuf *out)
{
    strbuf_add(out, "tutti train");
    for (int i = 0; i < args->count; i++)
        add_word(out, args->word[i]);
}

static void print_result(const struct job *job, const struct train_result *r)
{
    const struct settings *s = job_settings(job);
    char rate[32], bytes[32], predicted[32], training[32];

    printf("%s on %s, %s, %lld x %lld threads: ", s->model, s->data, s->strategy,
           (long long)s->ranks, (long long)s->threads);
    if (!isnan(r->val_accuracy))
        printf("test accuracy %.2f%%, ", 100 * r->val_accuracy);
    if (!isnan(r->val_top5))
        printf("top-5 %.2f%%, ", 100 * r->val_top5);
    if (!isnan(r->val_auc))
        printf("AUC %.4f, ", r->val_auc);
    if (!isnan(r->val_loss))
        printf("test loss %.4f, ", r->val_loss);
    if (!isnan(r->perplexity))
        printf("perplexity %.2f, ", r->perplexity);
    const bool tokens = !isnan(r->tokens_per_s);
    printf("%lld steps in %.1f s, %s %s/s, %sB (training %sB, predicted %sB)\n",
           (long long)r->steps, r->seconds,
           cli_human(tokens ? r->tokens_per_s : r->samples_per_s, rate),
           tokens ? "tokens" : "samples", cli_human((double)r->peak_bytes, bytes),
           cli_human((double)r->training_bytes, training),
           cli_human((double)r->predicted_bytes, predicted));
    if (*r->tables)
        printf("tables   %s\n", r->tables);
    printf("weights  %s\nreport   %s/report.html\n", r->weights_sha256, r->folder);
}

/* Numbers that are unknown are left out. */
static void add_number(struct strbuf *line, const char *name, double number)
{
    if (isnan(number))
        return;
    strbuf_printf(line, ", \"%s\": ", name);
    strbuf_add_number(line, number);
}

static void print_json(const struct train_result *r)
{
    struct strbuf line;

    strbuf_init(&line, 64 << 10);
    strbuf_printf(&line, "{\"kind\": \"summary\", \"folder\": ");
    strbuf_add_json(&line, r->folder);
    strbuf_printf(&line, ", \"weights_sha256\": \"%s\", \"steps\": %lld", r->weights_sha256,
                  (long long)r->steps);
    add_number(&line, "val_accuracy", r->val_accuracy);
    add_number(&line, "val_top5_accuracy", r->val_top5);
    add_number(&line, "val_auc", r->val_auc);
    add_number(&line, "val_calibration_error", r->val_calibration_error);
    add_number(&line, "val_loss", r->val_loss);
    add_number(&line, "perplexity", r->perplexity);
    add_number(&line, "seconds", r->seconds);
    add_number(&line, "samples_per_s", r->samples_per_s);
    add_number(&line, "tokens_per_s", r->tokens_per_s);
    add_number(&line, "first_step_s", r->first_step_s);
    strbuf_printf(
        &line, ", \"peak_bytes\": %lld, \"training_bytes\": %lld, \"predicted_bytes\": %lld}\n",
        (long long)r->peak_bytes, (long long)r->training_bytes, (long long)r->predicted_bytes);
    fputs(line.text, stdout);
    strbuf_release(&line);
}

/* What a flag, "--resume" or "--resume=", is given; NULL: it is not there. */
static const char *find_value(const struct args *args, const char *flag)
{
    const size_t length = strlen(flag);

    for (int i = 0; i < args->count; i++) {
        const char *word = args->word[i];
        if (strcmp(word, flag) == 0 && i + 1 < args->count)
            return args->word[i + 1];
        if (strncmp(word, flag, length) == 0 && word[length] == '=')
            return word + length + 1;
    }
    return NULL;
}

/* Another optimizer has its own usual numbers. */
static void forget_numbers(struct settings *settings)
{
    static const char *const numbers[] = { "lr",        "momentum", "nesterov", "weight-decay",
                                           "beta1",     "beta2",    "epsilon",  "trust",
                                           "adapt-all", NULL };

    settings_reset(settings, numbers);
}

/* The settings of the run to continue come first, so that flags change them. */
static enum status read_resumed(const struct args *args, struct settings *settings)
{
    const char *folder = find_value(args, "--resume");
    const char *optimizer = find_value(args, "--optimizer");

    if (!folder)
        return STATUS_OK;
    TRY(train_read_settings(folder, settings));
    if (optimizer && strcmp(optimizer, settings->optimizer) != 0)
        forget_numbers(settings);
    return STATUS_OK;
}

/* What a run has had from its beginning. */
static enum status check_resumed(const struct settings *was, const struct settings *now)
{
    static const char *const fixed[] = { "init", "vocab", "min-count", "tokenizer" };

    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++) {
        const struct setting *setting = settings_find(fixed[i]);
        if (memcmp((const char *)was + setting->offset, (const char *)now + setting->offset,
                   setting->size) != 0)
            return FAIL(STATUS_USAGE,
                        "--%s: the run in %s goes on with what it began with: leave it out, or "
                        "begin another run",
                        fixed[i], now->out);
    }
    return STATUS_OK;
}

/* A model's file is found again from any folder. */
static enum status keep_path(struct settings *settings)
{
    char whole[PATH_MAX];
    const size_t length = strlen(settings->model);

    if (length < 3 || strcmp(settings->model + length - 2, ".c") != 0)
        return STATUS_OK;
    if (!realpath(settings->model, whole) || strlen(whole) >= sizeof settings->model)
        return FAIL(STATUS_USAGE, "%s: the path cannot be followed", settings->model);
    memcpy(settings->model, whole, strlen(whole) + 1);
    return STATUS_OK;
}

static enum status run(const struct args *args)
{
    struct settings settings;
    const char *words[1];
    struct parse parse = {
        .args = args, .flags = flags, .settings = &settings, .words = words, .max_words = 1
    };
    const struct model *model = NULL;
    struct train_result result = { 0 };
    struct cluster cluster;
    struct strbuf command;
    struct job *job;

    settings_init(&settings);
    TRY(read_resumed(args, &settings));
    const struct settings was = settings;
    TRY(cli_join(&settings, &cluster));
    TRY(cli_parse(&parse));
    TRY(cli_place(&settings, &cluster));
    if (resume && parse.n_words)
        return FAIL(STATUS_USAGE, "--resume goes on with the model of %s: name none", resume);
    if (resume && strcmp(settings.out, resume) != 0)
        return FAIL(STATUS_USAGE, "--resume %s and --out %s: a run goes on in its own folder",
                    resume, settings.out);
    if (resume)
        TRY(check_resumed(&was, &settings));
    if (!resume && !parse.n_words)
        return FAIL(STATUS_USAGE, "no model: tutti train MODEL (tutti models lists them)");
    if (parse.n_words)
        snprintf(settings.model, sizeof settings.model, "%s", words[0]);
    TRY(cli_find_model(settings.model, &model));
    TRY(keep_path(&settings));
    TRY(job_create(&settings, model, resume ? JOB_CONTINUE : JOB_TRAIN, &job));
    if (cli_is_elsewhere(&settings, &cluster)) {
        job_destroy(job); /* nothing is wrong with it, as far as can be seen from here */
        return cli_start_elsewhere("train", args, &settings);
    }
    quiet |= cluster.rank > 0; /* rank 0 speaks for all */
    json &= cluster.rank == 0;
    if (!quiet && *job_chosen(job))
        fprintf(stderr, "auto picks %s\n", job_chosen(job));

    strbuf_init(&command, 1 << 20);
    command_line(args, &command);
    const struct train_hooks hooks = {
        .progress = !quiet, .json = json, .command = command.text, .overwrite = overwrite
    };
    enum status status =
        resume ? train_resume(job, &hooks, &result) : train_run(job, &hooks, &result);
    if (status == STATUS_OK && json)
        print_json(&result);
    else if (status == STATUS_OK && !quiet)
        print_result(job, &result);
    strbuf_release(&command);
    job_destroy(job);
    return status;
}

const struct command command_train = {
    .name = "train",
    .usage = "train MODEL [FLAGS]\n       tutti train --resume DIR [FLAGS]",
    .summary = "train a model",
    .run = run,
    .help = help,
};
