/* SPDX-License-Identifier: MIT */
/* mlp.c - a perceptron with two hidden layers: inputs-250-100-classes, ReLU. */
#include "graph/build.h"
#include "model/model.h"

static void build_mlp(struct graph *graph, const struct model_config *config,
                      struct value *input, struct value *target)
{
    struct value *x = build_relu(graph, "relu1", build_linear(graph, "fc1", input, 250));
    x = build_relu(graph, "relu2", build_linear(graph, "fc2", x, 100));
    build_classifier_loss(graph, build_linear(graph, "fc3", x, config->classes), target);
}

extern const struct model model_mlp;
const struct model model_mlp = {
    .name = "mlp",
    .summary = "perceptron with hidden layers of 250 and 100",
    .data = "fashion-mnist",
    .sample = { .rank = 3, .dim = { 1, 28, 28 } },
    .classes = 10,
    .build = build_mlp,
};
