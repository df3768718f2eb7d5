/* SPDX-License-Identifier: MIT */
/* models.c - tutti models and tutti strategies */
#include <stdio.h>
#include <string.h>

#include "base/strbuf.h"
#include "cli/cli.h"
#include "pass/strategy.h"
#include "train/train.h"

static enum status print_model(const struct model *model)
{
    struct model_config config = model_defaults(model);
    struct graph *graph;
    char shape[SHAPE_TEXT], number[32];

    TRY(model_build(model, &config, &graph));
    printf("%s: %s\n\n", model->name, model->summary);
    printf("  data          %s (samples of %s, %d classes)\n", model->data ? model->data : "-",
           shape_print(&model->sample, shape), model->classes);
    printf("  parameters    %lld\n", (long long)graph_param_count(graph));
    printf("  operations    %s flop a sample, forward\n\n",
           cli_human(graph_flops(graph, 1), number));
    for (int i = 0; i < graph_value_count(graph); i++) {
        const struct value *value = graph_value(graph, i);
        if (value->kind == VALUE_PARAM)
            printf("  %-28s %s\n", value->name, shape_print(&value->shape, shape));
    }
    for (int i = 0; i < MODEL_OPTIONS && model->options[i].name; i++) {
        const struct model_option *option = &model->options[i];
        const char *word = model_option_word(option, option->value);
        printf("%s  --%-11s %s (", i ? "" : "\nOptions\n", option->name, option->summary);
        for (int w = 0; option->words[w]; w++)
            printf("%s%s", w ? " or " : "", option->words[w]);
        if (word)
            printf("; %s)\n", word);
        else
            printf("%g)\n", option->value);
    }
    graph_destroy(graph);
    return STATUS_OK;
}

static enum status run_models(const struct args *args)
{
    const char *words[1];
    struct parse parse = { .args = args, .words = words, .max_words = 1 };
    const struct model *model;

    TRY(cli_parse(&parse));
    if (parse.n_words) {
        TRY(cli_find_model(words[0], &model));
        return print_model(model);
    }
    for (int i = 0; model_table[i]; i++) {
        struct model_config config = model_defaults(model_table[i]);
        struct graph *graph;
        char count[32], flops[32];
        TRY(model_build(model_table[i], &config, &graph));
        printf("%-16s %6s parameters %6s flop   %s\n", model_table[i]->name,
               cli_human((double)graph_param_count(graph), count),
               cli_human(graph_flops(graph, 1), flops), model_table[i]->summary);
        graph_destroy(graph);
    }
    puts("\ntutti models NAME shows one; a C file that includes tutti.h is a model too.");
    return STATUS_OK;
}

const struct command command_models = {
    .name = "models",
    .usage = "models [NAME]",
    .summary = "list the models, or show one",
    .run = run_models,
};

static enum status run_strategies(const struct args *args)
{
    struct parse parse = { .args = args };

    TRY(cli_parse(&parse));
    printf("%-10s %-6s %-6s %-10s %s\n", "strategy", "split", "sync", "meet", "what it is");
    for (int i = 0; strategy_table[i]; i++) {
        const struct strategy *s = strategy_table[i];
        printf("%-10s %-6s %-6s %-10s %s\n%35s known as %s\n", s->name, s->split, s->sync,
               s->meet, s->summary, "", s->known_as);
        printf("%35s passes:", "");
        for (int p = 0; s->passes[p]; p++)
            printf(" %s", s->passes[p]->name);
        printf("\n");
    }
    puts("\ntutti graph MODEL --strategy NAME draws what a strategy makes of a model.");
    return STATUS_OK;
}

const struct command command_strategies = {
    .name = "strategies",
    .usage = "strategies",
    .summary = "list the ways of distributing training",
    .run = run_strategies,
};
