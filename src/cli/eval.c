/* SPDX-License-Identifier: MIT */
/* eval.c - tutti eval */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "train/train.h"

static bool json;
static const char *split;

static const char *const allowed[] = { "data", "threads", "limit", "kernels", "exact", NULL };
static const struct flag flags[] = {
    { "split", "test|train", "which samples (test)", NULL, &split },
    { "json", NULL, "the result as a JSON object", &json, NULL },
    { 0 },
};

static void help(void)
{
    cli_print_settings(allowed);
    cli_print_flags("Evaluation", flags);
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
    struct train_result result = { 0 };
    struct job *job;

    /* Flags change the run's settings, so the run is read first: its folder is the one word. */
    settings_init(&settings);
    TRY(cli_parse(&parse));
    if (!parse.n_words)
        return FAIL(STATUS_USAGE, "no run: tutti eval DIR");
    TRY(train_read_settings(words[0], &settings));
    parse.n_words = 0;
    settings.threads = 0;
    settings.ranks = 1;
    settings.shards = 0;
    settings.strategy[0] = settings.split[0] = '\0';
    TRY(cli_parse(&parse));
    if (split && strcmp(split, "test") != 0 && strcmp(split, "train") != 0)
        return FAIL(STATUS_USAGE, "--split %s: test or train", split);
    TRY(cli_find_model(settings.model, &model));
    TRY(job_create(&settings, model, JOB_TRAIN, &job));
    enum status status = train_evaluate(
        job, split && strcmp(split, "train") == 0 ? DATASET_TRAIN : DATASET_TEST, &result);
    if (status == STATUS_OK && json)
        printf(
            "{\"split\": \"%s\", \"step\": %lld, \"val_loss\": %.9g, \"val_accuracy\": %.9g, "
            "\"seconds\": %.3f, \"weights_sha256\": \"%s\"}\n",
            split ? split : "test", (long long)result.steps, result.val_loss,
            result.val_accuracy, result.seconds, result.weights_sha256);
    else if (status == STATUS_OK)
        printf("%s at step %lld on %s of %s: accuracy %.2f%%, loss %.4f (%.2f s)\n",
               settings.model, (long long)result.steps, split ? split : "test",
               job_settings(job)->data, 100 * result.val_accuracy, result.val_loss,
               result.seconds);
    job_destroy(job);
    return status;
}

const struct command command_eval = {
    .name = "eval",
    .usage = "eval DIR [FLAGS]",
    .summary = "evaluate a trained run",
    .run = run,
    .help = help,
};
