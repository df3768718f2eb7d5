/* SPDX-License-Identifier: MIT */
/* random_model.c - small models with every layer of graph/build.h. */
#include "random_model.h"

#include "graph/build.h"

void random_model_add(struct graph *graph, int64_t batch, bool across_samples, struct rng *rng)
{
    const bool is_classifier = rng_below(rng, 2);
    const int channels = 1 + (int)rng_below(rng, 3), size = 6 + (int)rng_below(rng, 4);
    struct graph_roles *roles = graph_roles(graph);
    const struct build_conv wide = { .channels = 3, .kernel = 3, .stride = 1, .pad = 1 };
    const struct build_conv plain = {
        .channels = 3, .kernel = 2, .stride = 2, .no_bias = true
    };

    roles->input = graph_input(graph, "input", DTYPE_F32, shape_4(batch, channels, size, size));
    roles->target = graph_input(graph, "target", DTYPE_I32, shape_1(batch));
    struct value *x = build_conv2d(graph, "conv1", roles->input, wide);
    if (rng_below(rng, 2))
        x = build_relu(graph, "relu1", x);
    if (rng_below(rng, 2))
        x = build_max_pool(graph, "pool1", x, 2, rng_below(rng, 2) ? 2 : 1, 0);
    /* Used twice: its gradients are added. */
    struct value *skip = x;
    x = build_conv2d(graph, "conv2", x, wide);
    if (across_samples && rng_below(rng, 2))
        x = build_batch_norm(graph, "bn1", x, true);
    x = rng_below(rng, 2) ? build_add(graph, "skip", x, skip)
                          : build_add(graph, "skip", skip, x);
    if (rng_below(rng, 2))
        x = build_relu6(graph, "relu6", x);
    if (across_samples && rng_below(rng, 2)) { /* with a residual that is made after it */
        x = build_batch_norm(graph, "bn2", x, true);
        x = build_add(graph, "sum", x, build_batch_norm(graph, "bn3", skip, true));
        x = rng_below(rng, 2) ? build_relu(graph, "relu3", x) : x;
    }
    if (across_samples && rng_below(rng, 2)) { /* batch norms that go into convolutions */
        const struct build_conv up = {
            .channels = 4, .kernel = 1, .stride = 1, .no_bias = true
        };
        const struct build_conv each = {
            .channels = 4, .kernel = 3, .stride = 1, .pad = 1, .groups = 4, .no_bias = true
        };
        const struct build_conv down = {
            .channels = 3, .kernel = 1, .stride = 1, .no_bias = true
        };
        x = build_batch_norm(graph, "bn4", build_conv2d(graph, "conv5", x, up), true);
        x = build_relu6(graph, "relu4", x);
        x = build_batch_norm(graph, "bn5", build_conv2d(graph, "conv6", x, each), true);
        x = build_conv2d(graph, "conv7", rng_below(rng, 2) ? build_relu(graph, "relu5", x) : x,
                         down);
    }
    if (rng_below(rng, 2))
        x = build_sigmoid(graph, "sigmoid", x);
    if (rng_below(rng, 2))
        x = build_conv2d(graph, "conv3", x, plain);
    else
        x = build_avg_pool(graph, "pool2", x, 2, 0, 1);
    if (rng_below(rng, 2)) {
        const struct build_conv deep = {
            .channels = 3, .kernel = 3, .stride = 1, .pad = 1, .groups = 3
        };
        const struct build_conv up = {
            .channels = 2, .kernel = 3, .stride = 2, .pad = 1, .output_pad = 1
        };
        x = build_relu(graph, "relu3", build_conv2d(graph, "conv4", x, deep));
        x = build_conv2d_transpose(graph, "up", x, up);
    }
    x = build_dropout(graph, "drop", x, rng_below(rng, 2) ? 0.25F : 0);
    x = build_relu(graph, "relu2", build_linear(graph, "fc1", x, rng_below(rng, 2) ? 6 : 48));
    if (rng_below(rng, 2)) { /* one weight for two layers */
        const int64_t n = x ? x->shape.dim[1] : 0;
        struct value *w = graph_param(graph, "tied.weight", shape_2(n, n), 0.2F);
        x = graph_apply(graph, "linear", "tied1", x, w, NULL, NULL);
        x = graph_apply(graph, "linear", "tied2", x, w, NULL, NULL);
    }
    if (is_classifier)
        build_classifier_loss(graph, build_linear(graph, "fc2", x, RANDOM_MODEL_CLASSES),
                              roles->target);
    else
        build_mse_loss(graph, build_linear(graph, "fc2", x, channels * size * size),
                       build_flatten(graph, "flat", roles->input));
}
