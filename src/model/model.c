/* SPDX-License-Identifier: MIT */
/* model.c - the zoo's table, and building a model's graph. */
#include "model/model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph/build.h"
#include "model/file.h"

extern const struct model model_mlp, model_cnn, model_lenet, model_vgg11, model_vgg11_bn,
    model_resnet18, model_mobilenet_v2, model_conv_autoencoder, model_nbow, model_gpt,
    model_seq2seq, model_textcnn, model_bert, model_logistic, model_tabular;

const struct model *const model_table[] = {
    &model_mlp,      &model_cnn,      &model_lenet,        &model_vgg11,
    &model_vgg11_bn, &model_resnet18, &model_mobilenet_v2, &model_conv_autoencoder,
    &model_nbow,     &model_textcnn,  &model_seq2seq,      &model_gpt,
    &model_bert,     &model_logistic, &model_tabular,      NULL,
};

const struct model *model_find(const char *name)
{
    for (int i = 0; model_table[i]; i++) {
        if (strcmp(model_table[i]->name, name) == 0)
            return model_table[i];
    }
    return NULL;
}

struct model_config model_defaults(const struct model *model)
{
    struct model_config config = {
        .batch = 1,
        .sample = model->sample,
        .classes = model->classes,
        .vocab = { model->vocab[0], model->vocab[1] },
        .length = { model->length[0], model->length[1] },
        .training = true,
    };

    for (int i = 0; i < MODEL_OPTIONS; i++)
        config.options[i] = model->options[i].value;
    return config;
}

/* What an option may be, for messages. Returns `text`. */
static const char *allowed(const struct model_option *option, char text[128])
{
    size_t used = 0;

    if (!option->words[0]) {
        snprintf(text, 128, "%s between %g and %g",
                 option->is_whole ? "a whole number" : "a number", option->minimum,
                 option->maximum);
        return text;
    }
    for (int i = 0; option->words[i] && used < 128; i++)
        used += (size_t)snprintf(text + used, 128 - used, "%s%s", i ? " or " : "",
                                 option->words[i]);
    return text;
}

static bool is_allowed(const struct model_option *option, double value)
{
    int n_words = 0;

    while (option->words[n_words])
        n_words++;
    if (n_words > 0 || option->is_whole) {
        if (!(value == floor(value)))
            return false;
    }
    return n_words > 0 ? value >= 0 && value < n_words
                       : value >= option->minimum && value <= option->maximum;
}

enum status model_option_parse(const struct model_option *option, const char *text, double *out)
{
    char most[128], *end;
    double value = NAN;

    for (int i = 0; option->words[i]; i++) {
        if (strcmp(option->words[i], text) == 0)
            value = i;
    }
    if (!option->words[0]) {
        value = strtod(text, &end);
        if (end == text || *end)
            value = NAN;
    }
    if (!is_allowed(option, value))
        return FAIL(STATUS_USAGE, "--%s %s: must be %s", option->name, text,
                    allowed(option, most));
    *out = value;
    return STATUS_OK;
}

const char *model_option_word(const struct model_option *option, double value)
{
    return option->words[0] && is_allowed(option, value) ? option->words[(int)value] : NULL;
}

int64_t model_outputs(const struct model_config *config, int option)
{
    const int64_t asked = (int64_t)config->options[option];
    return asked > config->classes ? asked : config->classes;
}

enum status model_set_option(const struct model *model, struct model_config *config,
                             const char *name, double value)
{
    char most[128];

    for (int i = 0; i < MODEL_OPTIONS && model->options[i].name; i++) {
        const struct model_option *option = &model->options[i];
        if (strcmp(option->name, name) != 0)
            continue;
        if (!is_allowed(option, value))
            return FAIL(STATUS_USAGE, "--%s %g: must be %s", name, value,
                        allowed(option, most));
        config->options[i] = value;
        return STATUS_OK;
    }
    return FAIL(STATUS_NOT_FOUND, "model %s has no option --%s", model->name, name);
}

void model_add_inputs(struct graph *graph, enum model_task task,
                      const struct model_config *config)
{
    struct graph_roles *roles = graph_roles(graph);
    const struct shape *s = &config->sample;
    const int last = task == MODEL_TRANSLATION; /* the length that labels have */
    const struct shape first = shape_2(config->batch, config->length[0]);
    const struct shape labels = shape_2(config->batch, config->length[last]);

    if (task == MODEL_IMAGES)
        roles->input = graph_input(graph, "input", DTYPE_F32,
                                   shape_4(config->batch, s->dim[0], s->dim[1], s->dim[2]));
    else if (task == MODEL_TABLE)
        roles->input =
            graph_input(graph, "input", DTYPE_F32, shape_2(config->batch, s->dim[0]));
    else
        roles->input = graph_sequence(graph, "input", DTYPE_I32, first, 0);
    if (task == MODEL_TRANSLATION)
        roles->second = graph_sequence(graph, "second", DTYPE_I32, labels, last);
    if (task == MODEL_IMAGES || task == MODEL_TABLE || task == MODEL_TEXT_CLASSES)
        roles->target = graph_input(graph, "target", DTYPE_I32, shape_1(config->batch));
    else
        roles->target = graph_sequence(graph, "target", DTYPE_I32, labels, last);
}

/* The graph without what settings add to it. */
static enum status build_plain(const struct model *model, const struct model_config *config,
                               struct graph **out)
{
    if (model->file)
        return model_file_build(model->file, config, out);
    TRY(graph_create(model->name, out));
    struct graph_roles *roles = graph_roles(*out);
    model_add_inputs(*out, model->task, config);
    if (graph_status(*out) == STATUS_OK)
        model->build(*out, config, roles->input, roles->target);
    return STATUS_OK;
}

enum status model_build(const struct model *model, const struct model_config *config,
                        struct graph **out)
{
    struct graph *graph;

    TRY(build_plain(model, config, &graph));
    const struct graph_roles *roles = graph_roles(graph);
    if (config->training)
        build_label_smoothing(graph, config->label_smoothing);
    enum status status = config->whole ? STATUS_OK : graph_take_out_unused(graph);
    if (status == STATUS_OK)
        status = graph_verify(graph);
    if (status == STATUS_OK && !roles->loss)
        status = FAIL(STATUS_USAGE, "model %s has no loss", model->name);
    if (status != STATUS_OK) {
        graph_destroy(graph);
        return status;
    }
    *out = graph;
    return STATUS_OK;
}
