/* SPDX-License-Identifier: MIT */
/* cnn.c - two 3x3 convolutions of 32 and 64 channels, each with ReLU and 2x2 max pool; 128 hidden
 * units; dropout. */
#include "graph/build.h"
#include "model/model.h"

enum { OPTION_DROPOUT };

static void build_cnn(struct graph *graph, const struct model_config *config,
                      struct value *input, struct value *target)
{
    const float rate = config->training ? (float)config->options[OPTION_DROPOUT] : 0;
    const struct build_conv conv1 = { .channels = 32, .kernel = 3, .stride = 1, .pad = 1 };
    const struct build_conv conv2 = { .channels = 64, .kernel = 3, .stride = 1, .pad = 1 };

    struct value *x = build_relu(graph, "relu1", build_conv2d(graph, "conv1", input, conv1));
    x = build_max_pool(graph, "pool1", x, 2, 2, 0);
    x = build_relu(graph, "relu2", build_conv2d(graph, "conv2", x, conv2));
    x = build_max_pool(graph, "pool2", x, 2, 2, 0);
    x = build_relu(graph, "relu3", build_linear(graph, "fc1", x, 128));
    x = build_dropout(graph, "drop", x, rate);
    build_classifier_loss(graph, build_linear(graph, "fc2", x, config->classes), target);
}

extern const struct model model_cnn;
const struct model model_cnn = {
    .name = "cnn",
    .summary = "two convolutions, two linear layers",
    .data = "fashion-mnist",
    .sample = { .rank = 3, .dim = { 1, 28, 28 } },
    .classes = 10,
    .options = { [OPTION_DROPOUT] = { .name = "dropout",
                                      .summary = "share of hidden units dropped in training",
                                      .value = 0.25,
                                      .minimum = 0,
                                      .maximum = 0.99 } },
    .build = build_cnn,
};
