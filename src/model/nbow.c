/* SPDX-License-Identifier: MIT */
/* nbow.c - a bag of words: the mean of a text's embeddings, then one linear layer. */
#include "graph/build.h"
#include "model/model.h"

enum { OPTION_DIM, OPTION_CLASSES };

static void build_nbow(struct graph *graph, const struct model_config *config,
                       struct value *input, struct value *target)
{
    struct value *x = build_embedding_mean(graph, "embedding", input, config->vocab[0],
                                           (int64_t)config->options[OPTION_DIM]);

    x = build_linear(graph, "fc", x, model_outputs(config, OPTION_CLASSES));
    build_classifier_loss(graph, x, target);
}

extern const struct model model_nbow;
const struct model model_nbow = {
    .name = "nbow",
    .summary = "bag of words: mean of embeddings, one linear layer",
    .data = "imdb",
    .optimizer = "adam",
    .task = MODEL_TEXT_CLASSES,
    .vocab = { 25000 },
    .length = { 256 },
    .classes = 2,
    .options = { [OPTION_DIM] = { .name = "dim",
                                  .summary = "numbers of an embedding",
                                  .value = 100,
                                  .minimum = 1,
                                  .maximum = 4096,
                                  .is_whole = true },
                 [OPTION_CLASSES] = MODEL_OPTION_CLASSES },
    .build = build_nbow,
};
