/* SPDX-License-Identifier: MIT */
/* vgg11.c - VGG11, plain and with batch norm, under torchvision's names.
 *
 * Eight 3x3 convolutions of 64 to 512 channels with five 2x2 max pools between; then linear layers
 * of 4096, 4096 and the classes, with dropout. For 32x32 images the first of them has 512 inputs;
 * the head of ImageNet takes 7x7 places of 512 channels.
 */
#include <stdio.h>

#include "graph/build.h"
#include "model/model.h"

enum { OPTION_CLASSES, OPTION_DROPOUT, OPTION_HEAD };
enum { HEAD_CIFAR, HEAD_IMAGENET };
enum { POOL = 0, HIDDEN = 4096 };

static const int layers[] = { 64,  POOL, 128,  POOL, 256, 256, POOL,
                              512, 512,  POOL, 512,  512, POOL };

/* "PART.NUMBER" in a buffer that the next call overwrites. */
static const char *name_of(const char *part, int number)
{
    static _Thread_local char text[32];

    snprintf(text, sizeof text, "%s.%d", part, number);
    return text;
}

static struct value *features(struct graph *graph, const struct model_config *config,
                              struct value *x, bool with_norm)
{
    int number = 0; /* of the layer, as PyTorch's Sequential counts */

    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) {
        if (layers[i] == POOL) {
            x = build_max_pool(graph, name_of("features", number++), x, 2, 2, 0);
            continue;
        }
        const struct build_conv conv = {
            .channels = layers[i], .kernel = 3, .stride = 1, .pad = 1
        };
        x = build_conv2d(graph, name_of("features", number++), x, conv);
        if (with_norm)
            x = build_batch_norm(graph, name_of("features", number++), x, config->training);
        x = build_relu(graph, name_of("features", number++), x);
    }
    return x;
}

static void build_vgg(struct graph *graph, const struct model_config *config,
                      struct value *input, struct value *target, bool with_norm)
{
    const float rate = config->training ? (float)config->options[OPTION_DROPOUT] : 0;
    const bool is_large = (int)config->options[OPTION_HEAD] == HEAD_IMAGENET;

    struct value *x = features(graph, config, input, with_norm);
    if (is_large && x && (x->shape.dim[2] != 7 || x->shape.dim[3] != 7))
        graph_fail(graph, FAIL(STATUS_USAGE,
                               "the head imagenet needs images of 224x224, these are %lldx%lld",
                               (long long)input->shape.dim[2], (long long)input->shape.dim[3]));
    x = build_relu(graph, "classifier.1", build_linear(graph, "classifier.0", x, HIDDEN));
    x = build_dropout(graph, "classifier.2", x, rate);
    x = build_relu(graph, "classifier.4", build_linear(graph, "classifier.3", x, HIDDEN));
    x = build_dropout(graph, "classifier.5", x, rate);
    x = build_linear(graph, "classifier.6", x, model_outputs(config, OPTION_CLASSES));
    build_classifier_loss(graph, x, target);
}

static void build_plain(struct graph *graph, const struct model_config *config,
                        struct value *input, struct value *target)
{
    build_vgg(graph, config, input, target, false);
}

static void build_with_norm(struct graph *graph, const struct model_config *config,
                            struct value *input, struct value *target)
{
    build_vgg(graph, config, input, target, true);
}

#define VGG_OPTIONS                                                                            \
    {                                                                                          \
        [OPTION_CLASSES] = MODEL_OPTION_CLASSES,                                               \
        [OPTION_DROPOUT] = { .name = "dropout",                                                \
                             .summary = "share of hidden units dropped in training",           \
                             .value = 0.5,                                                     \
                             .minimum = 0,                                                     \
                             .maximum = 0.99 },                                                \
        [OPTION_HEAD] = { .name = "head",                                                      \
                          .summary = "first linear layer for 32x32 or for 224x224 images",     \
                          .words = { "cifar", "imagenet" } },                                  \
    }

extern const struct model model_vgg11, model_vgg11_bn;
const struct model model_vgg11 = {
    .name = "vgg11",
    .summary = "VGG11: eight 3x3 convolutions, three linear layers",
    .data = "cifar-10",
    .sample = { .rank = 3, .dim = { 3, 32, 32 } },
    .classes = 10,
    .options = VGG_OPTIONS,
    .build = build_plain,
};
const struct model model_vgg11_bn = {
    .name = "vgg11_bn",
    .summary = "VGG11 with batch norm after every convolution",
    .data = "cifar-10",
    .sample = { .rank = 3, .dim = { 3, 32, 32 } },
    .classes = 10,
    .options = VGG_OPTIONS,
    .build = build_with_norm,
};
