/* SPDX-License-Identifier: MIT */
/* textcnn.c - filters over three, four and five words, the largest of each along the text, one
 * linear layer (Kim 2014). */
#include <stdio.h>

#include "graph/build.h"
#include "model/model.h"

enum { OPTION_CLASSES, OPTION_DIM, OPTION_FILTERS, OPTION_DROPOUT };

static void build_textcnn(struct graph *graph, const struct model_config *config,
                          struct value *input, struct value *target)
{
    enum { SIZES = 3, FIRST = 3 };
    const double *options = config->options;
    const float rate = config->training ? (float)options[OPTION_DROPOUT] : 0;
    struct value *features[SIZES];

    struct value *x = build_embedding(graph, "embedding", input, config->vocab[0],
                                      (int64_t)options[OPTION_DIM]);
    x = build_dropout(graph, "dropout1", x, rate);
    for (int i = 0; i < SIZES; i++) {
        char conv[24], relu[24], max[24];
        snprintf(conv, sizeof conv, "convs.%d", i);
        snprintf(relu, sizeof relu, "relu%d", i + 1);
        snprintf(max, sizeof max, "max%d", i + 1);
        struct value *y =
            build_conv1d(graph, conv, x, (int64_t)options[OPTION_FILTERS], FIRST + i);
        features[i] = build_max_over_time(graph, max, build_relu(graph, relu, y));
    }
    x = build_concat(graph, "features", features, SIZES);
    x = build_dropout(graph, "dropout2", x, rate);
    build_classifier_loss(
        graph, build_linear(graph, "fc", x, model_outputs(config, OPTION_CLASSES)), target);
}

extern const struct model model_textcnn;
const struct model model_textcnn = {
    .name = "textcnn",
    .summary = "filters over 3, 4 and 5 words, the largest of each, one layer",
    .data = "imdb",
    .optimizer = "adam",
    .task = MODEL_TEXT_CLASSES,
    .vocab = { 25000 },
    .length = { 256 },
    .classes = 2,
    .options = {
        [OPTION_CLASSES] = MODEL_OPTION_CLASSES,
        [OPTION_DIM] = { "dim", "numbers a word", .value = 100, .minimum = 1, .maximum = 4096,
                         .is_whole = true },
        [OPTION_FILTERS] = { "filters", "filters of each size", .value = 100, .minimum = 1,
                             .maximum = 4096, .is_whole = true },
        [OPTION_DROPOUT] = { "dropout", "share of words' numbers and of features that is zeroed",
                             .value = 0.25, .minimum = 0, .maximum = 0.95 },
    },
    .build = build_textcnn,
};
