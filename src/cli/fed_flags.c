/* SPDX-License-Identifier: MIT */
/* fed_flags.c - flags of who announces terms, from the tables of terms and settings. */
#include "cli/fed_flags.h"

#include <stdio.h>
#include <string.h>

enum { FLAGS_MOST = 96 };

/* Of training's settings: what participants are told, and what is about this process. */
static const char *const allowed[] = {
    "data",  "batch",   "epochs", "steps",   "optimizer", "lr",         "momentum", "weight-decay",
    "seed",  "shuffle", "limit",  "threads", "out",       "eval-every", NULL,
};

/* The flags of the terms, with the words that were given for them. */
struct given {
    struct flag flags[FLAGS_MOST];
    const struct fed_flag *row[FLAGS_MOST];
    const char *text[FLAGS_MOST];
    bool is_set[FLAGS_MOST];
    int count; /* own ones come first */
};

static void list_flags(struct given *given, const struct flag *own)
{
    for (; own->name && given->count < FLAGS_MOST - 1; own++)
        given->flags[given->count++] = *own;
    for (const struct fed_flag *row = fed_flags; row->name; row++) {
        const int i = given->count;
        if (!row->help || i == FLAGS_MOST - 1)
            continue;
        given->row[i] = row;
        given->flags[i] = (struct flag){ .name = row->name,
                                         .argument = row->argument,
                                         .help = row->help,
                                         .is_set = row->argument ? NULL : &given->is_set[i],
                                         .text = row->argument ? &given->text[i] : NULL };
        given->count++;
    }
}

static enum status set_terms(const struct given *given, struct fed_terms *terms)
{
    for (int i = 0; i < given->count; i++) {
        if (!given->row[i])
            continue;
        if (given->is_set[i])
            TRY(fed_terms_set(terms, given->row[i], "true"));
        else if (given->text[i])
            TRY(fed_terms_set(terms, given->row[i], given->text[i]));
    }
    return STATUS_OK;
}

/* Local training is a run of its own. */
static void take_settings(struct fed_terms *terms, const struct settings *settings)
{
    snprintf(terms->model, sizeof terms->model, "%.*s", (int)sizeof terms->model - 1,
             settings->model);
    snprintf(terms->optimizer, sizeof terms->optimizer, "%s",
             *settings->optimizer ? settings->optimizer : "sgd");
    terms->batch = settings->batch;
    terms->epochs = settings->epochs;
    terms->steps = settings->steps;
    terms->lr = settings->lr;
    terms->momentum = settings->momentum;
    terms->weight_decay = settings->weight_decay;
    terms->seed = settings->seed;
    terms->shuffle = settings->shuffle;
}

enum status cli_fed_parse(const struct args *args, const struct flag *own,
                          struct fed_terms *terms, struct settings *settings,
                          const struct model **out_model)
{
    struct given given = { 0 };
    const char *words[1];

    list_flags(&given, own);
    settings_init(settings);
    settings->batch = 32;
    settings->epochs = 1;
    struct parse parse = { .args = args,
                           .flags = given.flags,
                           .settings = settings,
                           .allowed = allowed,
                           .words = words,
                           .max_words = 1 };
    TRY(cli_parse(&parse));
    if (parse.n_words != 1)
        return FAIL(STATUS_USAGE, "which model? tutti models lists them");
    snprintf(settings->model, sizeof settings->model, "%s", words[0]);
    TRY(cli_find_model(settings->model, out_model));
    take_settings(terms, settings);
    TRY(set_terms(&given, terms));
    if (terms->full_batch)
        terms->batch = 0;
    return fed_terms_check(terms);
}

void cli_fed_help(const struct flag *own)
{
    const char *group = NULL;
    struct flag one[2] = { 0 };

    cli_print_flags("This command", own);
    for (const struct fed_flag *row = fed_flags; row->name; row++) {
        if (!row->help)
            continue;
        one[0] = (struct flag){ .name = row->name, .argument = row->argument, .help = row->help };
        if (group != row->group) {
            cli_print_flags(row->group, one);
        } else {
            char left[64];
            snprintf(left, sizeof left, "--%s%s%s", row->name, row->argument ? " " : "",
                     row->argument ? row->argument : "");
            printf("  %-26s %s\n", left, row->help);
        }
        group = row->group;
    }
    cli_print_settings(allowed);
}
