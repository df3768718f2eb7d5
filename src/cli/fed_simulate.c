/* SPDX-License-Identifier: MIT */
/* fed_simulate.c - tutti fed simulate */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "cli/cli.h"
#include "cli/fed.h"
#include "fed/simulate.h"
#include "fed/stop.h"

static bool json, overwrite, quiet;
static const char *participants, *partition, *validation, *drop, *stop_at;

static const struct flag own[] = {
    { "participants", "N", "participants in all (100); also -p N", NULL, &participants },
    { "partition", "HOW",
      "who has what: iid, blocks, dirichlet:ALPHA, label:K, size:ALPHA (iid)", NULL,
      &partition },
    { "validation", "SHARE", "of each participant's samples, to validate on (0)", NULL,
      &validation },
    { "drop", "P", "probability that a participant falls silent when it should answer (0)",
      NULL, &drop },
    { "stop-at", "ACCURACY", "end with the round whose validation accuracy is as high", NULL,
      &stop_at },
    { "overwrite", NULL, "replace a run that --out holds", &overwrite, NULL },
    { "json", NULL, "every line of metrics and the summary as JSON on standard output", &json,
      NULL },
    { "quiet", NULL, "no progress, no closing lines", &quiet, NULL },
    { 0 },
};

static void help(void)
{
    cli_print_flags("Simulation", own);
    cli_terms_help(true);
    puts("\nExamples\n"
         "  tutti fed simulate mlp -p 100 --rounds 50 --per-round 10 --epochs 5 --batch 10 "
         "--lr 0.1\n"
         "  tutti fed simulate mlp -p 100 --partition dirichlet:0.3 --algorithm scaffold\n"
         "  tutti fed simulate mlp -p 30 --secure --drop 0.1 --deadline 10");
}

static enum status take_number(const char *flag, const char *text, double most, double *out)
{
    char *end;

    if (!text)
        return STATUS_OK;
    *out = strtod(text, &end);
    if (end == text || *end || !(*out >= 0 && *out <= most))
        return FAIL(STATUS_USAGE, "--%s %s: a number from 0 to %g", flag, text, most);
    return STATUS_OK;
}

static void print_result(const struct fed_terms *terms, const struct fed_simulation *simulation,
                         const struct fed_simulated *r)
{
    char in[32], out[32];

    printf("%s, %s, %d participants (%s): ", terms->model, terms->algorithm,
           simulation->participants, simulation->partition);
    if (isfinite(r->val_accuracy))
        printf("validation accuracy %.2f%%, ", 100 * r->val_accuracy);
    if (isfinite(r->epsilon))
        printf("epsilon %.3f, ", r->epsilon);
    printf("%lld rounds", (long long)r->rounds);
    if (r->lost)
        printf(" and %lld lost", (long long)r->lost);
    printf(" in %.1f s, %sB up, %sB down\n", r->seconds, cli_human(r->bytes_in, in),
           cli_human(r->bytes_out, out));
    if (*r->why)
        printf("ended    %s\n", r->why);
    printf("weights  %s\nreport   %s/report.html\n", r->weights_sha256, r->folder);
}

static void print_json(const struct fed_simulated *r)
{
    struct strbuf line;

    strbuf_init(&line, 1 << 16);
    strbuf_add(&line, "{\"kind\": \"summary\", \"folder\": ");
    strbuf_add_json(&line, r->folder);
    strbuf_printf(&line, ", \"weights_sha256\": \"%s\", \"rounds\": %lld, \"lost\": %lld",
                  r->weights_sha256, (long long)r->rounds, (long long)r->lost);
    const struct {
        const char *name;
        double number;
    } numbers[] = {
        { "val_accuracy", r->val_accuracy },
        { "val_loss", r->val_loss },
        { "train_loss", r->train_loss },
        { "seconds", r->seconds },
        { "bytes_in", r->bytes_in },
        { "bytes_out", r->bytes_out },
        { "epsilon", r->epsilon },
        { "label_skew", r->skew },
        { "reached_in", r->reached >= 0 ? (double)r->reached : (double)NAN },
    };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        if (!isfinite(numbers[i].number))
            continue;
        strbuf_printf(&line, ", \"%s\": ", numbers[i].name);
        strbuf_add_number(&line, numbers[i].number);
    }
    if (*r->why) {
        strbuf_add(&line, ", \"why\": ");
        strbuf_add_json(&line, r->why);
    }
    strbuf_add(&line, "}\n");
    fputs(line.text, stdout);
    strbuf_release(&line);
}

/* "-p N" is "--participants N": the settings have no such letter. */
static enum status take_letters(const struct args *args, struct args *out)
{
    static char text[] = "--participants";

    TRY(mem_alloc((size_t)args->count + 1, sizeof *out->word, &out->word));
    out->count = args->count;
    for (int i = 0; i < args->count; i++)
        out->word[i] = strcmp(args->word[i], "-p") == 0 ? text : args->word[i];
    return STATUS_OK;
}

static enum status read_simulation(struct fed_simulation *simulation)
{
    double number = 100;

    simulation->partition = partition ? partition : "iid";
    TRY(take_number("participants", participants, 1 << 20, &number));
    if (number != floor(number) || number < 1)
        return FAIL(STATUS_USAGE, "--participants %s: a whole number from 1 on", participants);
    simulation->participants = (int)number;
    TRY(take_number("validation", validation, 0.9, &simulation->validation));
    TRY(take_number("drop", drop, 1, &simulation->drop));
    TRY(take_number("stop-at", stop_at, 1, &simulation->stop_at));
    if (simulation->terms->personal_head && !validation)
        simulation->validation =
            0.2; /* heads are each one's own: so is what they are tested on */
    return STATUS_OK;
}

static enum status simulate(const struct args *args, struct cli_terms *given)
{
    struct fed_terms *terms = &given->terms;
    struct settings *settings = &given->settings;
    struct fed_simulation simulation = { .terms = terms, .settings = settings };
    struct fed_simulated result;
    struct fed_terms usual;
    const char *words[1];
    int n_words;

    TRY(cli_terms_parse(given, args, own, true, words, 1, &n_words));
    if (n_words != 1)
        return FAIL(STATUS_USAGE, "which model? tutti models lists them");
    snprintf(settings->model, sizeof settings->model, "%s", words[0]);
    TRY(cli_find_model(settings->model, &simulation.model));
    snprintf(terms->model, sizeof terms->model, "%.*s", FED_TEXT - 1, simulation.model->name);
    TRY(read_simulation(&simulation));
    fed_terms_init(&usual);
    if (simulation.participants == 1 && terms->minimum == usual.minimum)
        terms->minimum = 1; /* one alone is a federation here */
    TRY(fed_terms_check(terms));
    const struct train_hooks hooks = { .progress = !quiet && !json,
                                       .json = json,
                                       .overwrite = overwrite };
    simulation.hooks = &hooks;
    snprintf(terms->federation, sizeof terms->federation, "simulation-%llu",
             (unsigned long long)terms->seed);
    fed_stop_begin();
    const enum status status = fed_simulate(&simulation, &result);
    fed_stop_end();
    TRY(status);
    if (json)
        print_json(&result);
    else if (!quiet)
        print_result(terms, &simulation, &result);
    if (fed_stop_asked() && *result.why)
        return FAIL(fed_stop_status(), "%s; what was done until then is in %s", result.why,
                    result.folder);
    return STATUS_OK;
}

static enum status run(const struct args *args)
{
    struct cli_terms terms;
    struct args words;

    TRY(take_letters(args, &words));
    cli_terms_init(&terms);
    const enum status status = simulate(&words, &terms);
    mem_free(words.word);
    cli_terms_release(&terms);
    return status;
}

const struct command command_fed_simulate = {
    .name = "simulate",
    .usage = "fed simulate MODEL [flags]",
    .summary = "run a whole federation in this process",
    .run = run,
    .help = help,
};
