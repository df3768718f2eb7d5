/* SPDX-License-Identifier: MIT */
/* tabular.c - models of tables: logistic regression, and a perceptron with hidden layers of one width. */
#include <stdio.h>

#include "graph/build.h"
#include "model/model.h"

static void build_logistic(struct graph *graph, const struct model_config *config,
                           struct value *input, struct value *target)
{
    build_classifier_loss(graph, build_linear(graph, "fc", input, config->classes), target);
}

extern const struct model model_logistic, model_tabular;
const struct model model_logistic = {
    .name = "logistic",
    .summary = "logistic regression of the rows of a table",
    .data = "heart-disease",
    .task = MODEL_TABLE,
    .sample = { .rank = 1, .dim = { 32 } },
    .classes = 2,
    .build = build_logistic,
};

enum { OPTION_HIDDEN, OPTION_LAYERS, OPTION_DROPOUT };

static void build_tabular(struct graph *graph, const struct model_config *config,
                          struct value *input, struct value *target)
{
    const int layers = (int)config->options[OPTION_LAYERS];
    const float rate = config->training ? (float)config->options[OPTION_DROPOUT] : 0;
    struct value *x = input;
    char name[32];

    for (int i = 1; i <= layers; i++) {
        snprintf(name, sizeof name, "fc%d", i);
        x = build_linear(graph, name, x, (int64_t)config->options[OPTION_HIDDEN]);
        snprintf(name, sizeof name, "relu%d", i);
        x = build_relu(graph, name, x);
        snprintf(name, sizeof name, "dropout%d", i);
        x = build_dropout(graph, name, x, rate);
    }
    snprintf(name, sizeof name, "fc%d", layers + 1);
    build_classifier_loss(graph, build_linear(graph, name, x, config->classes), target);
}

const struct model model_tabular = {
    .name = "tabular",
    .summary = "perceptron of the rows of a table",
    .data = "heart-disease",
    .task = MODEL_TABLE,
    .sample = { .rank = 1, .dim = { 32 } },
    .classes = 2,
    .options = { [OPTION_HIDDEN] = { .name = "hidden",
                                     .summary = "units of a hidden layer",
                                     .value = 16,
                                     .minimum = 1,
                                     .maximum = 65536,
                                     .is_whole = true },
                 [OPTION_LAYERS] = { .name = "layers",
                                     .summary = "hidden layers",
                                     .value = 1,
                                     .minimum = 1,
                                     .maximum = 64,
                                     .is_whole = true },
                 [OPTION_DROPOUT] = { .name = "dropout",
                                      .summary = "share of hidden units that are left out",
                                      .value = 0,
                                      .minimum = 0,
                                      .maximum = 0.99 } },
    .build = build_tabular,
};
