/* SPDX-License-Identifier: MIT */
/* fed_terms.c - terms from the command line, for coordinator and simulate. */
#include <stdio.h>
#include <string.h>

#include "cli/fed.h"

/* Settings of training that local training has, too, and those of this process. The first are for who writes the
 * folder of a run. */
enum { OF_RUNS = 2 };
static const char *const allowed[] = {
    "out",   "eval-every",   "data",       "limit", "epochs",   "steps",        "batch",
    "seed",  "shuffle",      "optimizer",  "lr",    "momentum", "weight-decay", "threads",
    "label", "skip-columns", "categories", "fold",  "layout",   "normalize",    NULL
};

/* Those of them that are fields of the terms, too. */
static void take_settings(struct cli_terms *terms)
{
    const struct settings *s = &terms->settings;
    struct fed_terms *t = &terms->terms;

    t->batch = t->full_batch && s->batch == terms->usual_batch ? 0 : s->batch;
    t->epochs = s->epochs;
    t->steps = s->steps;
    t->lr = s->lr;
    t->momentum = s->momentum;
    t->weight_decay = s->weight_decay;
    t->seed = s->seed;
    t->shuffle = s->shuffle;
    snprintf(t->optimizer, sizeof t->optimizer, "%s", s->optimizer);
}

void cli_terms_init_from(struct cli_terms *terms, const struct fed_terms *from)
{
    struct settings *s = &terms->settings;
    const struct fed_terms *t = &terms->terms;

    memset(terms, 0, sizeof *terms);
    settings_init(s);
    terms->terms = *from;
    terms->terms.graph = NULL;
    s->batch = terms->usual_batch = t->batch;
    s->epochs = t->epochs;
    s->steps = t->steps;
    s->lr = t->lr;
    s->momentum = t->momentum;
    s->weight_decay = t->weight_decay;
    s->seed = t->seed;
    s->shuffle = t->shuffle;
    snprintf(s->optimizer, sizeof s->optimizer, "%.31s", t->optimizer);
}

void cli_terms_init(struct cli_terms *terms)
{
    struct fed_terms usual;

    fed_terms_init(&usual);
    cli_terms_init_from(terms, &usual);
}

void cli_terms_release(struct cli_terms *terms)
{
    fed_terms_release(&terms->terms);
}

/* The command's own flags, then those of the terms; returns how many are its own. */
static int join_flags(struct cli_terms *terms, const struct flag *own)
{
    int n = 0;

    for (; own[n].name; n++)
        terms->flags[n] = own[n];
    const int before = n;
    for (const struct fed_flag *f = fed_flags; f->name; f++) {
        if (!f->help)
            continue;
        BUG_ON(n == CLI_TERMS_FLAGS - 1);
        terms->flags[n] = (struct flag){ .name = f->name,
                                         .argument = f->argument,
                                         .help = f->help,
                                         .is_set = f->argument ? NULL : &terms->is_set[n],
                                         .text = f->argument ? &terms->text[n] : NULL };
        n++;
    }
    return before;
}

static enum status take_flags(struct cli_terms *terms, int before)
{
    for (int i = before; terms->flags[i].name; i++) {
        const char *text = terms->is_set[i] ? "true" : terms->text[i];
        if (text)
            TRY(fed_terms_set(&terms->terms, fed_flag_find(terms->flags[i].name), text));
    }
    return STATUS_OK;
}

enum status cli_terms_parse(struct cli_terms *terms, const struct args *args,
                            const struct flag *own, bool writes_run, const char **words,
                            int max_words, int *n_words)
{
    const int before = join_flags(terms, own);
    struct parse parse = { .args = args,
                           .flags = terms->flags,
                           .settings = &terms->settings,
                           .allowed = writes_run ? allowed : allowed + OF_RUNS,
                           .words = words,
                           .max_words = max_words };

    TRY(cli_parse(&parse));
    *n_words = parse.n_words;
    TRY(take_flags(terms, before));
    take_settings(terms);
    return STATUS_OK;
}

void cli_terms_help(bool writes_run)
{
    const char *group = "";
    struct cli_terms usual;

    for (const struct fed_flag *f = fed_flags; f->name; f++) {
        if (!f->help || strcmp(f->group, group) == 0)
            continue;
        struct flag flags[CLI_TERMS_FLAGS] = { { 0 } };
        int n = 0;
        group = f->group;
        for (const struct fed_flag *g = f; g->name; g++) {
            if (g->help && strcmp(g->group, group) == 0)
                flags[n++] = (struct flag){ g->name, g->argument, g->help, NULL, NULL };
        }
        cli_print_flags(group, flags);
    }
    /* What differs from train, whose help says 0.9. */
    cli_print_flags(
        "Local training",
        (const struct flag[]){
            { "momentum", "M", "sgd, lars: of local steps, from nothing in every round (0)",
              NULL, NULL },
            { 0 },
        });
    const char *others[sizeof allowed / sizeof *allowed];
    int n = 0;
    for (int i = writes_run ? 0 : OF_RUNS; allowed[i]; i++) {
        if (strcmp(allowed[i], "momentum") != 0)
            others[n++] = allowed[i];
    }
    others[n] = NULL;
    cli_terms_init(&usual);
    cli_print_settings(others, &usual.settings);
    cli_terms_release(&usual);
}
