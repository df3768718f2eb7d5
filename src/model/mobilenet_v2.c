/* SPDX-License-Identifier: MIT */
/* mobilenet_v2.c - MobileNetV2 under torchvision's names.
 *
 * Blocks of three convolutions with batch norm: 1x1 to `expand` times the channels and ReLU6,
 * depthwise 3x3 and ReLU6, 1x1 back; with a shortcut where the extents stay. The stem for small
 * images has stride 1 in the first convolution and in the stage of 24 channels.
 */
#include <stdio.h>

#include "graph/build.h"
#include "model/model.h"

enum { OPTION_CLASSES, OPTION_DROPOUT, OPTION_WIDTH, OPTION_STEM };
enum { STEM_CIFAR, STEM_IMAGENET };
enum { FIRST = 32, LAST = 1280, GRAIN = 8 };

struct stage {
    int expand, channels, blocks, stride;
    bool is_early; /* no stride for small images */
};
static const struct stage stages[] = {
    { 1, 16, 1, 1, false },  { 6, 24, 2, 2, true },  { 6, 32, 3, 2, false },
    { 6, 64, 4, 2, false },  { 6, 96, 3, 1, false }, { 6, 160, 3, 2, false },
    { 6, 320, 1, 1, false },
};

struct builder {
    struct graph *graph;
    bool training;
    double width;
    char prefix[48];
};

/* The nearest multiple of GRAIN, but not less than nine tenths: torchvision's rule. */
static int64_t scaled(const struct builder *builder, int channels)
{
    const double wanted = channels * builder->width;
    int64_t made = (int64_t)(wanted + GRAIN / 2.0) / GRAIN * GRAIN;

    made = made < GRAIN ? GRAIN : made;
    return (double)made < 0.9 * wanted ? made + GRAIN : made;
}

/* Convolution PREFIX + conv and batch norm PREFIX + norm. */
static struct value *conv_norm(const struct builder *builder, struct value *x,
                               struct build_conv conv, const char *name, const char *norm)
{
    char text[64];

    conv.no_bias = true;
    snprintf(text, sizeof text, "%s%s", builder->prefix, name);
    x = build_conv2d(builder->graph, text, x, conv);
    snprintf(text, sizeof text, "%s%s", builder->prefix, norm);
    return build_batch_norm(builder->graph, text, x, builder->training);
}

/* The same at PREFIX + number, with ReLU6: a Sequential of three. */
static struct value *conv_relu6(const struct builder *builder, struct value *x,
                                struct build_conv conv, int number)
{
    char name[16], norm[16], text[64];

    snprintf(name, sizeof name, "%d.0", number);
    snprintf(norm, sizeof norm, "%d.1", number);
    snprintf(text, sizeof text, "%s%d.2", builder->prefix, number);
    return build_relu6(builder->graph, text, conv_norm(builder, x, conv, name, norm));
}

static struct value *inverted_residual(const struct builder *builder, struct value *x,
                                       int expand, int64_t channels, int stride)
{
    const int64_t inputs = x ? x->shape.dim[1] : 0, hidden = inputs * expand;
    const struct build_conv up = { .channels = hidden, .kernel = 1, .stride = 1 };
    const struct build_conv deep = {
        .channels = hidden, .kernel = 3, .stride = stride, .pad = 1, .groups = (int)hidden
    };
    const struct build_conv down = { .channels = channels, .kernel = 1, .stride = 1 };
    struct value *y = x;
    char name[16], norm[16], text[64];
    int number = 0;

    if (expand != 1)
        y = conv_relu6(builder, y, up, number++);
    y = conv_relu6(builder, y, deep, number++);
    snprintf(name, sizeof name, "%d", number);
    snprintf(norm, sizeof norm, "%d", number + 1);
    y = conv_norm(builder, y, down, name, norm);
    if (stride != 1 || inputs != channels)
        return y;
    snprintf(text, sizeof text, "%sadd", builder->prefix);
    return build_add(builder->graph, text, y, x);
}

static void build_mobilenet(struct graph *graph, const struct model_config *config,
                            struct value *input, struct value *target)
{
    const bool is_small = (int)config->options[OPTION_STEM] == STEM_CIFAR;
    const float rate = config->training ? (float)config->options[OPTION_DROPOUT] : 0;
    struct builder builder = { .graph = graph,
                               .training = config->training,
                               .width = config->options[OPTION_WIDTH],
                               .prefix = "features." };
    const struct build_conv stem = {
        .channels = scaled(&builder, FIRST), .kernel = 3, .stride = is_small ? 1 : 2, .pad = 1
    };
    const double last = builder.width > 1 ? builder.width : 1;
    int number = 1;

    struct value *x = conv_relu6(&builder, input, stem, 0);
    for (size_t s = 0; s < sizeof stages / sizeof *stages; s++) {
        for (int b = 0; b < stages[s].blocks; b++) {
            const bool strides = b == 0 && !(stages[s].is_early && is_small);
            snprintf(builder.prefix, sizeof builder.prefix, "features.%d.conv.", number++);
            x = inverted_residual(&builder, x, stages[s].expand,
                                  scaled(&builder, stages[s].channels),
                                  strides ? stages[s].stride : 1);
        }
    }
    snprintf(builder.prefix, sizeof builder.prefix, "features.");
    const struct builder wide = { .width = last };
    const struct build_conv top = { .channels = scaled(&wide, LAST), .kernel = 1, .stride = 1 };
    x = conv_relu6(&builder, x, top, number);
    x = build_dropout(graph, "classifier.0", build_global_pool(graph, "pool", x), rate);
    x = build_linear(graph, "classifier.1", x, model_outputs(config, OPTION_CLASSES));
    build_classifier_loss(graph, x, target);
}

extern const struct model model_mobilenet_v2;
const struct model model_mobilenet_v2 = {
    .name = "mobilenet_v2",
    .summary = "MobileNetV2: depthwise convolutions between narrow layers",
    .data = "cifar-10",
    .sample = { .rank = 3, .dim = { 3, 32, 32 } },
    .classes = 10,
    .options = { [OPTION_CLASSES] = MODEL_OPTION_CLASSES,
                 [OPTION_DROPOUT] = { .name = "dropout",
                                      .summary = "share of features dropped in training",
                                      .value = 0.2,
                                      .minimum = 0,
                                      .maximum = 0.99 },
                 [OPTION_WIDTH] = { .name = "width",
                                    .summary = "factor of all channel counts",
                                    .value = 1,
                                    .minimum = 0.05,
                                    .maximum = 8 },
                 [OPTION_STEM] = { .name = "stem",
                                   .summary = "strides for small images or torchvision's",
                                   .words = { "cifar", "imagenet" } } },
    .build = build_mobilenet,
};
