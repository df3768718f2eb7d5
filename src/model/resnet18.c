/* SPDX-License-Identifier: MIT */
/* resnet18.c - ResNet-18 under torchvision's names.
 *
 * Four stages of two blocks; a block is two 3x3 convolutions with batch norm and a shortcut, which
 * is a 1x1 convolution where the extents change. The stem for small images is a 3x3 convolution of
 * stride 1; ImageNet's is 7x7 with stride 2 and a max pool.
 */
#include <stdio.h>

#include "graph/build.h"
#include "model/model.h"

enum { OPTION_CLASSES, OPTION_WIDTH, OPTION_STEM };
enum { STEM_CIFAR, STEM_IMAGENET };
enum { STAGES = 4, BLOCKS = 2 };

/* Names of a block's parts: "layer1.0." and the part, in a buffer that the next call overwrites. */
struct block {
    struct graph *graph;
    int stage, number;
    bool training;
};

static const char *part(const struct block *block, const char *name)
{
    static _Thread_local char text[48];

    snprintf(text, sizeof text, "layer%d.%d.%s", block->stage, block->number, name);
    return text;
}

static struct value *conv_norm(const struct block *block, struct value *x,
                               struct build_conv conv, const char *name, const char *norm)
{
    conv.no_bias = true;
    x = build_conv2d(block->graph, part(block, name), x, conv);
    return build_batch_norm(block->graph, part(block, norm), x, block->training);
}

static struct value *basic_block(const struct block *block, struct value *x, int64_t channels,
                                 int stride)
{
    const struct build_conv first = {
        .channels = channels, .kernel = 3, .stride = stride, .pad = 1
    };
    const struct build_conv second = {
        .channels = channels, .kernel = 3, .stride = 1, .pad = 1
    };
    const struct build_conv shortcut = { .channels = channels, .kernel = 1, .stride = stride };
    const bool changes = stride != 1 || (x && x->shape.dim[1] != channels);

    struct value *y = conv_norm(block, x, first, "conv1", "bn1");
    y = build_relu(block->graph, part(block, "relu1"), y);
    y = conv_norm(block, y, second, "conv2", "bn2");
    if (changes)
        x = conv_norm(block, x, shortcut, "downsample.0", "downsample.1");
    y = build_add(block->graph, part(block, "add"), y, x);
    return build_relu(block->graph, part(block, "relu2"), y);
}

static void build_resnet18(struct graph *graph, const struct model_config *config,
                           struct value *input, struct value *target)
{
    const int64_t width = (int64_t)config->options[OPTION_WIDTH];
    const bool is_large = (int)config->options[OPTION_STEM] == STEM_IMAGENET;
    const struct build_conv small = {
        .channels = width, .kernel = 3, .stride = 1, .pad = 1, .no_bias = true
    };
    const struct build_conv large = {
        .channels = width, .kernel = 7, .stride = 2, .pad = 3, .no_bias = true
    };

    struct value *x = build_conv2d(graph, "conv1", input, is_large ? large : small);
    x = build_batch_norm(graph, "bn1", x, config->training);
    x = build_relu(graph, "relu", x);
    if (is_large)
        x = build_max_pool(graph, "maxpool", x, 3, 2, 1);
    for (int stage = 1; stage <= STAGES; stage++) {
        for (int number = 0; number < BLOCKS; number++) {
            const struct block block = { graph, stage, number, config->training };
            x = basic_block(&block, x, width << (stage - 1), stage > 1 && number == 0 ? 2 : 1);
        }
    }
    x = build_global_pool(graph, "avgpool", x);
    x = build_linear(graph, "fc", x, model_outputs(config, OPTION_CLASSES));
    build_classifier_loss(graph, x, target);
}

extern const struct model model_resnet18;
const struct model model_resnet18 = {
    .name = "resnet18",
    .summary = "ResNet-18: eight blocks of two 3x3 convolutions with shortcuts",
    .data = "cifar-10",
    .sample = { .rank = 3, .dim = { 3, 32, 32 } },
    .classes = 10,
    .options = { [OPTION_CLASSES] = MODEL_OPTION_CLASSES,
                 [OPTION_WIDTH] = { .name = "width",
                                    .summary = "channels of the first stage",
                                    .value = 64,
                                    .minimum = 1,
                                    .maximum = 1024,
                                    .is_whole = true },
                 [OPTION_STEM] = { .name = "stem",
                                   .summary = "first layers for small images or torchvision's",
                                   .words = { "cifar", "imagenet" } } },
    .build = build_resnet18,
};
