/* SPDX-License-Identifier: MIT */
/* lenet.c - LeNet-5 with ReLU and max pooling: 5x5 convolutions of 6 and 16 channels, 120 and 84
 * hidden units. */
#include "graph/build.h"
#include "model/model.h"

enum { OPTION_CLASSES };

static void build_lenet(struct graph *graph, const struct model_config *config,
                        struct value *input, struct value *target)
{
    const struct build_conv conv1 = { .channels = 6, .kernel = 5, .stride = 1 };
    const struct build_conv conv2 = { .channels = 16, .kernel = 5, .stride = 1 };

    struct value *x = build_relu(graph, "relu1", build_conv2d(graph, "conv1", input, conv1));
    x = build_max_pool(graph, "pool1", x, 2, 2, 0);
    x = build_relu(graph, "relu2", build_conv2d(graph, "conv2", x, conv2));
    x = build_max_pool(graph, "pool2", x, 2, 2, 0);
    x = build_relu(graph, "relu3", build_linear(graph, "fc1", x, 120));
    x = build_relu(graph, "relu4", build_linear(graph, "fc2", x, 84));
    x = build_linear(graph, "fc3", x, model_outputs(config, OPTION_CLASSES));
    build_classifier_loss(graph, x, target);
}

extern const struct model model_lenet;
const struct model model_lenet = {
    .name = "lenet",
    .summary = "LeNet-5 with ReLU: two 5x5 convolutions, three linear layers",
    .data = "fashion-mnist",
    .sample = { .rank = 3, .dim = { 1, 28, 28 } },
    .classes = 10,
    .options = { [OPTION_CLASSES] = MODEL_OPTION_CLASSES },
    .build = build_lenet,
};
