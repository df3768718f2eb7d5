/* SPDX-License-Identifier: MIT */
/* model.c - the zoo's table, and building a model's graph. */
#include "model/model.h"

#include <string.h>

#include "graph/build.h"

extern const struct model model_mlp, model_cnn;

const struct model *const model_table[] = { &model_mlp, &model_cnn, NULL };

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
        .batch = 1, .sample = model->sample, .classes = model->classes, .training = true
    };

    for (int i = 0; i < MODEL_OPTIONS; i++)
        config.options[i] = model->options[i].value;
    return config;
}

enum status model_set_option(const struct model *model, struct model_config *config,
                             const char *name, double value)
{
    for (int i = 0; i < MODEL_OPTIONS && model->options[i].name; i++) {
        const struct model_option *option = &model->options[i];
        if (strcmp(option->name, name) != 0)
            continue;
        if (!(value >= option->minimum && value <= option->maximum))
            return FAIL(STATUS_USAGE, "--%s %g: %s takes %g to %g", name, value, model->name,
                        option->minimum, option->maximum);
        config->options[i] = value;
        return STATUS_OK;
    }
    return FAIL(STATUS_NOT_FOUND, "model %s has no option --%s", model->name, name);
}

enum status model_build(const struct model *model, const struct model_config *config,
                        struct graph **out)
{
    struct graph *graph;
    const struct shape *s = &config->sample;

    TRY(graph_create(model->name, &graph));
    struct graph_roles *roles = graph_roles(graph);
    roles->input = graph_input(graph, "input", DTYPE_F32,
                               shape_4(config->batch, s->dim[0], s->dim[1], s->dim[2]));
    roles->target = graph_input(graph, "target", DTYPE_I32, shape_1(config->batch));
    if (graph_status(graph) == STATUS_OK)
        model->build(graph, config, roles->input, roles->target);
    if (config->training)
        build_label_smoothing(graph, config->label_smoothing);
    enum status status = graph_verify(graph);
    if (status == STATUS_OK && !roles->loss)
        status = FAIL(STATUS_USAGE, "model %s has no loss", model->name);
    if (status != STATUS_OK) {
        graph_destroy(graph);
        return status;
    }
    *out = graph;
    return STATUS_OK;
}
