/* SPDX-License-Identifier: MIT */
/* train.c - tutti train */
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/strbuf.h"
#include "cli/cli.h"
#include "train/train.h"

enum { TRY_AGAIN = 3 }; /* an exit code */

static bool json, overwrite, quiet, repeat;
static const char *resume;

static const struct flag flags[] = {
    { "resume", "DIR", "continue the run in DIR; flags change its settings", NULL, &resume },
    { "resume-if-any", NULL,
      "continue the run in --out, or begin it; nothing if it is done: a command to repeat",
      &repeat, NULL },
    { "overwrite", NULL, "replace a run that --out holds", &overwrite, NULL },
    { "json", NULL, "every line of metrics and the summary as JSON on standard output", &json,
      NULL },
    { "quiet", NULL, "no progress, no closing lines", &quiet, NULL },
    { 0 },
};

/* While data are read nothing is there to save, and SIGTERM and SIGHUP still mean: try again. */
static void end_early(int number)
{
    static const char line[] =
        "tutti: stopped by a signal outside of training: repeat the command to go on\n";
    const ssize_t written = write(STDERR_FILENO, line, sizeof line - 1);

    (void)number;
    (void)written;
    _exit(TRY_AGAIN);
}

static void handle_signals(void)
{
    const struct sigaction action = { .sa_handler = end_early };
    struct sigaction hangup;

    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGHUP, NULL, &hangup);
    if (hangup.sa_handler != SIG_IGN)
        sigaction(SIGHUP, &action, NULL);
}

static void help(void)
{
    cli_print_settings(NULL, NULL);
    cli_print_flags("Run", flags);
    puts("\nMODEL is a name of the zoo (tutti models), a C file that includes tutti.h "
         "(NAME.c),\n"
         "or a graph file that tutti graph MODEL --format json wrote (NAME.json).\n"
         "A model's own options are flags too: tutti models NAME shows them.\n\n"
         "Examples\n"
         "  tutti train mlp --epochs 5\n"
         "  tutti train cnn --strategy mirrored -n 2 --optimizer adamw --schedule cosine\n"
         "  tutti train --resume runs/cnn-mirrored-20260131-120000 --epochs 10\n"
         "  until tutti train cnn --out run --resume-if-any; do [ $? = 3 ] || break; done");
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

static void print_result(const struct settings *s, const struct train_result *r)
{
    char rate[32], bytes[32], predicted[32], training[32];

    printf("%s on %s, %s, %lld x %lld threads: ", s->model, s->data, s->strategy,
           (long long)s->ranks, (long long)s->threads);
    if (!isnan(r->val_accuracy))
        printf("validation accuracy %.2f%%, ", 100 * r->val_accuracy);
    if (!isnan(r->val_top5))
        printf("top-5 %.2f%%, ", 100 * r->val_top5);
    if (!isnan(r->val_auc))
        printf("AUC %.4f, ", r->val_auc);
    if (!isnan(r->val_loss))
        printf("validation loss %.4f, ", r->val_loss);
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

/* The closing lines, or an object. */
static void tell_result(const struct settings *settings, const struct train_result *result)
{
    if (json)
        print_json(result);
    else if (!quiet)
        print_result(settings, result);
}

/* What a flag, "--resume" or "--resume=", is given last; NULL: it is not there. */
static const char *find_value(const struct args *args, const char *flag)
{
    const size_t length = strlen(flag);
    const char *value = NULL;

    for (int i = 0; i < args->count; i++) {
        const char *word = args->word[i];
        if (strcmp(word, flag) == 0 && i + 1 < args->count)
            value = args->word[i + 1];
        else if (strncmp(word, flag, length) == 0 && word[length] == '=')
            value = word + length + 1;
    }
    return value;
}

/* Another optimizer has its own usual numbers. */
static void forget_numbers(struct settings *settings)
{
    static const char *const numbers[] = { "lr",        "momentum", "nesterov", "weight-decay",
                                           "beta1",     "beta2",    "epsilon",  "trust",
                                           "adapt-all", NULL };

    settings_reset(settings, numbers);
}

static bool has_flag(const struct args *args, const char *flag)
{
    for (int i = 0; i < args->count; i++) {
        if (strcmp(args->word[i], flag) == 0)
            return true;
    }
    return false;
}

/* Does the folder hold what a run begins with? */
static bool holds_run(const char *folder)
{
    char path[PATH_MAX];

    return (size_t)snprintf(path, sizeof path, "%s/config.json", folder) < sizeof path &&
           file_exists(path);
}

/* The settings of the run to continue come first, so that flags change them. *out: there is one. */
static enum status read_resumed(const struct args *args, struct settings *settings, bool *out)
{
    const char *folder = find_value(args, "--resume");
    const char *optimizer = find_value(args, "--optimizer");
    const char *data = find_value(args, "--data");

    if (!folder && has_flag(args, "--resume-if-any")) {
        folder = find_value(args, "--out");
        folder = folder && holds_run(folder) ? folder : NULL;
    }
    *out = folder != NULL;
    if (!folder)
        return STATUS_OK;
    TRY(train_read_settings(folder, settings));
    if (optimizer && strcmp(optimizer, settings->optimizer) != 0)
        forget_numbers(settings);
    if (data && strcmp(data, settings->data) != 0)
        *settings->layout = '\0'; /* other data have their own */
    return STATUS_OK;
}

/* Are these the same, or paths of the same file? */
static bool is_same_text(const char *a, const char *b)
{
    char whole_a[PATH_MAX], whole_b[PATH_MAX];

    return strcmp(a, b) == 0 || (*a && *b && realpath(a, whole_a) && realpath(b, whole_b) &&
                                 strcmp(whole_a, whole_b) == 0);
}

static bool is_same(const struct setting *setting, const struct settings *a,
                    const struct settings *b)
{
    const char *x = (const char *)a + setting->offset, *y = (const char *)b + setting->offset;

    return setting->kind == SETTING_TEXT ? is_same_text(x, y)
                                         : memcmp(x, y, setting->size) == 0;
}

/* What a run has had from its beginning. Samples that were limited or are other ones show in the
 * checkpoint. */
static enum status check_resumed(const struct settings *was, const struct settings *now)
{
    static const char *const fixed[] = { "init",   "vocab",    "min-count", "tokenizer",
                                         "seed",   "shuffle",  "drop-last", "batch",
                                         "shards", "normalize" };

    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++) {
        const struct setting *setting = settings_find(fixed[i]);
        if (!is_same(setting, was, now))
            return FAIL(STATUS_USAGE,
                        "--%s: the run in %s goes on with what it began with: leave it out, or "
                        "begin another run",
                        fixed[i], now->out);
    }
    return STATUS_OK;
}

/* A command that is repeated says again what the run has made something of: that stays. */
static enum status keep_made(const struct settings *was, struct settings *now)
{
    struct settings began;

    TRY(train_read_beginning(was->out, &began));
    if (now->accumulate == began.accumulate)
        now->accumulate = 0; /* the shards that came of it are there */
    if (strcmp(now->strategy, "auto") != 0)
        return STATUS_OK;
    const bool as_many = now->ranks == was->ranks;
    snprintf(now->strategy, sizeof now->strategy, "%s", as_many ? was->strategy : "auto");
    if (!as_many)
        *now->split = *now->sync = *now->meet = '\0'; /* which were chosen, too */
    return STATUS_OK;
}

/* The folder holds a run of the model and the data that are named. */
static enum status check_same_run(const struct settings *was, const struct settings *now,
                                  const char *model)
{
    if (model && !is_same_text(model, was->model))
        return FAIL(STATUS_USAGE, "%s holds a run of %s, not of %s: choose another --out",
                    now->out, was->model, model);
    if (!is_same_text(now->data, was->data))
        return FAIL(STATUS_USAGE, "%s holds a run on %s, not on %s: choose another --out",
                    now->out, was->data, now->data);
    return STATUS_OK;
}

/* A model's file is found again from any folder. */
static enum status keep_path(struct settings *settings)
{
    char whole[PATH_MAX];
    const size_t length = strlen(settings->model);

    if (*settings->model_file || length < 3 || strcmp(settings->model + length - 2, ".c") != 0)
        return STATUS_OK;
    if (!realpath(settings->model, whole) || strlen(whole) >= sizeof settings->model)
        return FAIL(STATUS_USAGE, "%s: the path cannot be followed", settings->model);
    memcpy(settings->model, whole, strlen(whole) + 1);
    return STATUS_OK;
}

static enum status check_flags(const struct settings *settings, const struct parse *parse)
{
    if (resume && repeat)
        return FAIL(STATUS_USAGE, "--resume and --resume-if-any: the latter finds out whether "
                                  "there is a run to resume: leave one of them out");
    if (repeat && overwrite)
        return FAIL(STATUS_USAGE, "--resume-if-any and --overwrite: one goes on with what the "
                                  "other removes: leave one of them out");
    if (repeat && !*settings->out)
        return FAIL(STATUS_USAGE, "--resume-if-any: which run? Add --out DIR");
    if (resume && parse->n_words)
        return FAIL(STATUS_USAGE, "--resume goes on with the model of %s: name none", resume);
    if (resume && strcmp(settings->out, resume) != 0)
        return FAIL(STATUS_USAGE, "--resume %s and --out %s: a run goes on in its own folder",
                    resume, settings->out);
    if (!resume && !parse->n_words)
        return FAIL(STATUS_USAGE, "no model: tutti train MODEL (tutti models lists them)");
    return STATUS_OK;
}

static enum status train(struct job *job, const struct args *args, bool goes_on,
                         struct train_result *out)
{
    struct strbuf command;

    strbuf_init(&command, 1 << 20);
    command_line(args, &command);
    /* A line of JSON would share its row with the bar. */
    const bool hides = json && isatty(STDOUT_FILENO) && isatty(STDERR_FILENO);
    const struct train_hooks hooks = { .progress = !quiet && !hides,
                                       .json = json,
                                       .command = command.text,
                                       .overwrite = overwrite,
                                       .repeats = repeat,
                                       .keeps_signals = true };
    const enum status status =
        goes_on ? train_resume(job, &hooks, out) : train_run(job, &hooks, out);
    strbuf_release(&command);
    return status;
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
    struct job *job;
    bool goes_on, is_over = false;

    handle_signals();
    settings_init(&settings);
    TRY(read_resumed(args, &settings, &goes_on));
    const struct settings was = settings;
    TRY(cli_join(&settings, &cluster));
    TRY(cli_parse(&parse));
    TRY(cli_place(&settings, &cluster));
    TRY(check_flags(&settings, &parse));
    if (goes_on && repeat) {
        TRY(check_same_run(&was, &settings, parse.n_words ? words[0] : NULL));
        TRY(keep_made(&was, &settings));
    }
    if (goes_on)
        TRY(check_resumed(&was, &settings));
    else
        snprintf(settings.model, sizeof settings.model, "%s", words[0]);
    quiet |= cluster.rank > 0; /* rank 0 speaks for all */
    json &= cluster.rank == 0;
    if (goes_on && repeat && settings.epochs == was.epochs && settings.steps == was.steps)
        TRY(train_is_over(settings.out, &is_over, &result));
    if (is_over) {
        tell_result(&settings, &result);
        return STATUS_OK;
    }
    TRY(cli_find_run_model(&settings, &model));
    TRY(keep_path(&settings));
    TRY(job_create(&settings, model, goes_on ? JOB_CONTINUE : JOB_TRAIN, &job));
    if (cli_is_elsewhere(&settings, &cluster)) {
        job_destroy(job); /* nothing is wrong with it, as far as can be seen from here */
        return cli_start_elsewhere("train", args, &settings);
    }
    if (!quiet && *job_chosen(job))
        fprintf(stderr, "auto picks %s\n", job_chosen(job));
    const enum status status = train(job, args, goes_on, &result);
    if (status == STATUS_OK)
        tell_result(job_settings(job), &result);
    job_destroy(job);
    return status;
}

const struct command command_train = {
    .name = "train",
    .usage = "train MODEL [FLAGS]\n       tutti train --resume DIR [FLAGS]\n"
             "       tutti train MODEL --out DIR --resume-if-any [FLAGS]",
    .summary = "train a model",
    .run = run,
    .help = help,
};
