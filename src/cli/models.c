/* SPDX-License-Identifier: MIT */
/* models.c - tutti models and tutti strategies */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/strbuf.h"
#include "base/utf8.h"
#include "cli/cli.h"
#include "graph/layers.h"
#include "pass/strategy.h"
#include "train/train.h"

static bool json;
static const char *svg;

static const struct flag flags[] = {
    { "json", NULL, "a model as a JSON object", &json, NULL },
    { "svg", "FILE", "draw the model's graph into this file", NULL, &svg },
    { 0 },
};

/* Text is as long as these say; the rest of what `models` takes are options of the model. */
static const char *const allowed[] = { "vocab", "length", NULL };

static void help(void)
{
    cli_print_flags("Flags", flags);
    cli_print_settings(allowed, NULL);
    puts("\nA model's own options are flags too; tutti models NAME lists them.\n"
         "\nExamples\n"
         "  tutti models\n"
         "  tutti models cnn --svg cnn.svg\n"
         "  tutti models gpt --size 124m --vocab 50257 --length 1024");
}

/* What is known of a model: its graph for one sample, and what that costs. */
struct known {
    const struct model *model;
    struct model_config config;
    struct graph *graph;
    struct graph_layers layers;
    struct graph_rails rails;
    double forward, training; /* floating-point operations a sample */
};

static bool has_classes(const struct known *known)
{
    return graph_roles(known->graph)->correct != NULL;
}

/* Forward and backward; the update is not a sample's. */
static enum status count_training(const struct model *model, const struct model_config *config,
                                  double *out)
{
    const struct pass_config one = { .batch = 1, .shards = 1, .ranks = 1 };
    struct graph *graph;

    TRY(model_build(model, config, &graph));
    enum status status =
        pass_run(graph, strategy_find("single")->passes, &one, pass_autodiff.name);
    if (status == STATUS_OK)
        *out = graph_flops(graph, 1);
    graph_destroy(graph);
    return status;
}

static void forget(struct known *known)
{
    graph_rails_release(&known->rails);
    graph_layers_release(&known->layers);
    graph_destroy(known->graph);
}

/* The model as flags say. */
static enum status configure(const struct model *model, const struct settings *settings,
                             struct model_config *out)
{
    struct model_config config = model_defaults(model);

    for (int i = 0; i < MODEL_OPTIONS && model->options[i].name; i++) {
        if (!isnan(settings->options[i]))
            TRY(model_set_option(model, &config, model->options[i].name, settings->options[i]));
    }
    for (int i = 0; i < 2; i++) {
        config.vocab[i] =
            config.vocab[i] && settings->vocab ? settings->vocab : config.vocab[i];
        config.length[i] =
            config.length[i] && settings->length ? settings->length : config.length[i];
    }
    *out = config;
    return STATUS_OK;
}

/* Fills *known in place, as its parts point to each other; forget it also after a failure. */
static enum status learn(const struct model *model, const struct settings *settings,
                         struct known *known)
{
    *known = (struct known){ .model = model };
    TRY(configure(model, settings, &known->config));
    TRY(model_build(model, &known->config, &known->graph));
    known->forward = graph_flops(known->graph, 1);
    TRY(count_training(model, &known->config, &known->training));
    TRY(graph_layers_make(known->graph, &known->layers));
    return graph_rails_make(&known->layers, &known->rails);
}

/* "  32x1x3x3, 32": the shapes of a layer's parameters, in the model's order; "" if it has none. */
static void add_weights(const struct known *known, const char *layer, struct strbuf *out)
{
    const size_t length = strlen(layer);
    const char *between = "  ";
    char shape[SHAPE_TEXT];

    for (int i = 0; i < graph_value_count(known->graph); i++) {
        const struct value *value = graph_value(known->graph, i);
        if (value->kind != VALUE_PARAM || strncmp(value->name, layer, length) != 0 ||
            value->name[length] != '.' || strchr(value->name + length + 1, '.'))
            continue;
        strbuf_printf(out, "%s%s", between, shape_print(&value->shape, shape));
        between = ", ";
    }
}

static int widest(const struct graph_layers *layers, bool of_names)
{
    size_t most = 0;

    for (int i = 0; i < layers->count; i++) {
        const size_t length = strlen(of_names ? layers->layer[i].name : layers->layer[i].op);
        most = length > most ? length : most;
    }
    return (int)most;
}

static void add_layers(const struct known *known, bool utf8, struct strbuf *out)
{
    const struct graph_layers *layers = &known->layers;
    const int names = widest(layers, true), ops = widest(layers, false);
    char shape[SHAPE_TEXT], parameters[32], flops[32];

    strbuf_printf(out, "\n  %*s  %-*s  %-*s  %-12s %10s %8s  %s\n",
                  1 + 2 * known->rails.columns, "", names, "layer", ops, "op", "output",
                  "parameters", "flop", "weights");
    for (int i = 0; i < layers->count; i++) {
        const struct graph_layer *layer = &layers->layer[i];
        if (graph_rails_has_gap(&known->rails, i)) {
            strbuf_add(out, "  ");
            graph_rails_print(&known->rails, i, true, utf8, out);
            strbuf_add(out, "\n");
        }
        strbuf_add(out, "  ");
        graph_rails_print(&known->rails, i, false, utf8, out);
        snprintf(parameters, sizeof parameters, "%lld", (long long)layer->parameters);
        strbuf_printf(out, "  %-*s  %-*s  %-12s %10s %8s", names, layer->name, ops, layer->op,
                      shape_print(&layer->output, shape), layer->parameters ? parameters : "",
                      i ? cli_human(layer->flops, flops) : "");
        add_weights(known, layer->name, out);
        strbuf_add(out, "\n");
    }
    if (known->rails.left_out)
        strbuf_printf(out, "\n  %d connections more are not drawn here: --svg FILE draws all\n",
                      known->rails.left_out);
}

/* value: as it is now. */
static void add_option(const struct model_option *option, double value, struct strbuf *out)
{
    strbuf_printf(out, "  --%-11s %s (", option->name, option->summary);
    for (int w = 0; option->words[w]; w++)
        strbuf_printf(out, "%s%s", w ? " or " : "", option->words[w]);
    if (option->words[0])
        strbuf_printf(out, "; %s", model_option_word(option, value));
    else
        strbuf_printf(out, "%g; %g to %g", value, option->minimum, option->maximum);
    strbuf_add(out, ")\n");
}

static void add_text(const struct known *known, struct strbuf *out)
{
    const struct model *model = known->model;
    char shape[SHAPE_TEXT], forward[32], training[32], bytes[32];
    const int64_t parameters = graph_param_count(known->graph);

    strbuf_printf(out, "%s: %s\n\n  data          %s (", model->name, model->summary,
                  model->data ? model->data : "-");
    if (model->task == MODEL_TABLE)
        strbuf_printf(out, "rows of %lld features", (long long)model->sample.dim[0]);
    else if (model->task == MODEL_IMAGES)
        strbuf_printf(out, "samples of %s", shape_print(&model->sample, shape));
    else
        strbuf_printf(out, "%lld tokens of %lld", (long long)known->config.length[0],
                      (long long)known->config.vocab[0]);
    if (has_classes(known) && model->classes > 0)
        strbuf_printf(out, ", %d classes", model->classes);
    strbuf_printf(out,
                  ")\n  parameters    %lld, %sB\n  operations    %s flop a sample forward, %s "
                  "in training\n",
                  (long long)parameters, cli_human(4 * (double)parameters, bytes),
                  cli_human(known->forward, forward), cli_human(known->training, training));
    for (int i = 0; i < MODEL_OPTIONS && model->options[i].name; i++) {
        strbuf_add(out, i ? "" : "\nOptions\n");
        add_option(&model->options[i], known->config.options[i], out);
    }
    add_layers(known, utf8_is_wanted(), out);
}

static void add_shape(struct strbuf *out, const struct shape *shape)
{
    strbuf_add(out, "[");
    for (int i = 0; i < shape->rank; i++)
        strbuf_printf(out, "%s%lld", i ? ", " : "", (long long)shape->dim[i]);
    strbuf_add(out, "]");
}

static void add_json_layer(const struct graph_layers *layers, int i, struct strbuf *out)
{
    const struct graph_layer *layer = &layers->layer[i];

    strbuf_printf(out, "%s{\"name\": ", i ? ", " : "");
    strbuf_add_json(out, layer->name);
    if (i)
        strbuf_printf(out, ", \"op\": \"%s\"", layer->op);
    strbuf_add(out, ", \"output\": ");
    add_shape(out, &layer->output);
    strbuf_printf(out, ", \"parameters\": %lld, \"flops\": %.0f, \"from\": [",
                  (long long)layer->parameters, layer->flops);
    for (int s = 0; s < layer->n_sources; s++)
        strbuf_printf(out, "%s%d", s ? ", " : "", layer->sources[s]);
    strbuf_add(out, "]}");
}

static void add_json_option(const struct model_option *option, double value, bool is_next,
                            struct strbuf *out)
{
    const char *word = model_option_word(option, value);

    strbuf_printf(out, "%s{\"name\": \"%s\", ", is_next ? ", " : "", option->name);
    if (!word) {
        strbuf_printf(out, "\"value\": %g, \"minimum\": %g, \"maximum\": %g}", value,
                      option->minimum, option->maximum);
        return;
    }
    strbuf_printf(out, "\"value\": \"%s\", \"words\": [", word);
    for (int w = 0; option->words[w]; w++)
        strbuf_printf(out, "%s\"%s\"", w ? ", " : "", option->words[w]);
    strbuf_add(out, "]}");
}

static void add_json(const struct known *known, struct strbuf *out)
{
    const struct model *model = known->model;
    const char *between = "";

    strbuf_add(out, "{\"name\": ");
    strbuf_add_json(out, model->name);
    strbuf_add(out, ", \"summary\": ");
    strbuf_add_json(out, model->summary);
    if (model->data) {
        strbuf_add(out, ", \"data\": ");
        strbuf_add_json(out, model->data);
    }
    strbuf_add(out, ", \"sample\": ");
    add_shape(out, &model->sample);
    if (has_classes(known))
        strbuf_printf(out, ", \"classes\": %d", model->classes);
    strbuf_printf(out,
                  ", \"parameters\": %lld, \"flops\": %.0f, \"training_flops\": %.0f, "
                  "\"options\": [",
                  (long long)graph_param_count(known->graph), known->forward, known->training);
    for (int i = 0; i < MODEL_OPTIONS && model->options[i].name; i++)
        add_json_option(&model->options[i], known->config.options[i], i > 0, out);
    strbuf_add(out, "], \"layers\": [");
    for (int i = 0; i < known->layers.count; i++)
        add_json_layer(&known->layers, i, out);
    strbuf_add(out, "], \"weights\": {");
    for (int i = 0; i < graph_value_count(known->graph); i++) {
        const struct value *value = graph_value(known->graph, i);
        if (value->kind != VALUE_PARAM)
            continue;
        strbuf_add(out, between);
        strbuf_add_json(out, value->name);
        strbuf_add(out, ": ");
        add_shape(out, &value->shape);
        between = ", ";
    }
    strbuf_add(out, "}}\n");
}

static enum status draw(const struct known *known, const char *path)
{
    struct strbuf picture;

    strbuf_init(&picture, 256 << 20);
    graph_print_svg(known->graph, &picture);
    enum status status = strbuf_status(&picture);
    if (status == STATUS_OK)
        status = file_replace(path, picture.text, picture.length);
    strbuf_release(&picture);
    return status;
}

static enum status show(const struct model *model, const struct settings *settings)
{
    struct known known;
    struct strbuf text;

    strbuf_init(&text, 64 << 20);
    enum status status = learn(model, settings, &known);
    if (status == STATUS_OK && svg)
        status = draw(&known, svg);
    if (status == STATUS_OK && json)
        add_json(&known, &text);
    else if (status == STATUS_OK)
        add_text(&known, &text);
    if (svg && !json)
        strbuf_printf(&text, "\n  drawn in      %s\n", svg);
    if (status == STATUS_OK)
        status = strbuf_status(&text);
    if (status == STATUS_OK)
        fputs(text.text, stdout);
    strbuf_release(&text);
    forget(&known);
    return status;
}

static enum status run_models(const struct args *args)
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

    settings_init(&settings);
    TRY(cli_parse(&parse));
    if (parse.n_words) {
        TRY(cli_find_model(words[0], &model));
        return show(model, &settings);
    }
    if (settings.vocab || settings.length)
        return FAIL(STATUS_USAGE, "--%s is of one model: tutti models NAME",
                    settings.vocab ? "vocab" : "length");
    if (json || svg)
        return FAIL(STATUS_USAGE, "--%s shows one model: tutti models NAME",
                    json ? "json" : "svg");
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
    .usage = "models [NAME [FLAGS]]",
    .summary = "list the models, or show one with its layers",
    .run = run_models,
    .help = help,
};

/* A list of passes, in lines of some 100 columns. like: a list with the same beginning, which is
 * left out; NULL: none. */
static void print_passes(const char *title, const struct pass *const *passes,
                         const struct pass *const *like)
{
    enum { COLUMNS = 100 };
    size_t column = (size_t)printf("%14s:", title);

    if (like && *passes == *like) {
        while (*passes && *passes == *like)
            passes++, like++;
        column += (size_t)printf(" ...");
    }
    for (; *passes; passes++) {
        if (column + strlen((*passes)->name) >= COLUMNS)
            column = (size_t)printf("\n%15s", "") - 1;
        column += (size_t)printf(" %s", (*passes)->name);
    }
    puts("");
}

static void print_strategy(const struct strategy *s)
{
    printf("%-11s %-11s %-11s %-10s %s\n", s->name, s->split, s->sync, s->meet, s->summary);
    printf("%14s: %s\n", "known as", s->known_as);
    print_passes("passes", s->passes, NULL);
    if (s->apart && s->apart != s->passes)
        print_passes("with --flat", s->apart, s->passes);
    if (s->sharded && s->sharded != s->passes)
        print_passes("with zero=1..3", s->sharded, s->passes);
    if (s->served)
        print_passes("with ps:S", s->served, s->passes);
}

/* Is it in the list of a strategy before number s? */
static bool is_told(const struct pass *pass, int s)
{
    for (int before = 0; before < s; before++) {
        if (strategy_has_pass(strategy_table[before], pass))
            return true;
    }
    return false;
}

static void print_summaries(void)
{
    printf("\n%-11s %s\n", "pass", "what it does");
    for (int s = 0; strategy_table[s]; s++) {
        for (int p = 0; strategy_table[s]->passes[p]; p++) {
            const struct pass *pass = strategy_table[s]->passes[p];
            if (!is_told(pass, s))
                printf("%-11s %s\n", pass->name, pass->summary);
        }
    }
}

static enum status run_strategies(const struct args *args)
{
    struct parse parse = { .args = args };

    TRY(cli_parse(&parse));
    printf("%-11s %-11s %-11s %-10s %s\n", "strategy", "split", "sync", "meet", "what it is");
    for (int i = 0; strategy_table[i]; i++)
        print_strategy(strategy_table[i]);
    puts("auto        picks the one that tutti plan MODEL -n RANKS predicts to be the fastest");
    print_summaries();
    puts("\ntutti graph MODEL --strategy NAME draws what a strategy makes of a model.");
    return STATUS_OK;
}

const struct command command_strategies = {
    .name = "strategies",
    .usage = "strategies",
    .summary = "list the ways of distributing training",
    .run = run_strategies,
};
