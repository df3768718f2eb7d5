/* SPDX-License-Identifier: MIT */
/* conv_autoencoder.c - convolutions down to 64 numbers, transposed convolutions back.
 *
 * 28x28 images go through 16 and 32 channels with stride 2 each and a 7x7 convolution, and the same
 * way back; a sigmoid gives pixels between 0 and 1, which are compared with the input.
 */
#include "graph/build.h"
#include "model/model.h"

enum { SIDE = 28 };

static void build_autoencoder(struct graph *graph, const struct model_config *config,
                              struct value *input, struct value *target)
{
    const int64_t channels = config->sample.dim[0];
    const struct build_conv down1 = { .channels = 16, .kernel = 3, .stride = 2, .pad = 1 };
    const struct build_conv down2 = { .channels = 32, .kernel = 3, .stride = 2, .pad = 1 };
    const struct build_conv code = { .channels = 64, .kernel = 7, .stride = 1 };
    const struct build_conv wide = { .channels = 32, .kernel = 7, .stride = 1 };
    const struct build_conv up2 = {
        .channels = 16, .kernel = 3, .stride = 2, .pad = 1, .output_pad = 1
    };
    const struct build_conv up1 = {
        .channels = channels, .kernel = 3, .stride = 2, .pad = 1, .output_pad = 1
    };

    (void)target;
    if (config->sample.dim[1] != SIDE || config->sample.dim[2] != SIDE)
        graph_fail(graph, FAIL(STATUS_USAGE, "images are %lldx%lld, this model takes %dx%d",
                               (long long)config->sample.dim[1],
                               (long long)config->sample.dim[2], SIDE, SIDE));
    struct value *x = build_conv2d(graph, "encoder.0", input, down1);
    x = build_conv2d(graph, "encoder.2", build_relu(graph, "encoder.1", x), down2);
    x = build_conv2d(graph, "encoder.4", build_relu(graph, "encoder.3", x), code);
    x = build_conv2d_transpose(graph, "decoder.0", x, wide);
    x = build_conv2d_transpose(graph, "decoder.2", build_relu(graph, "decoder.1", x), up2);
    x = build_conv2d_transpose(graph, "decoder.4", build_relu(graph, "decoder.3", x), up1);
    build_reconstruction_loss(graph, build_sigmoid(graph, "decoder.5", x));
}

extern const struct model model_conv_autoencoder;
const struct model model_conv_autoencoder = {
    .name = "conv_autoencoder",
    .summary = "convolutions to 64 numbers and transposed ones back; mean squared error",
    .data = "fashion-mnist",
    .sample = { .rank = 3, .dim = { 1, SIDE, SIDE } },
    .unit_pixels = true,
    .build = build_autoencoder,
};
