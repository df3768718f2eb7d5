/* SPDX-License-Identifier: MIT */
/* model_test.c - the zoo's models are what they are said to be. */
#include <string.h>

#include "base/test.h"
#include "model/model.h"

struct expected {
    const char *model;
    int64_t parameters;
    double flops; /* forward, one sample, linear, convolution and embedding alone */
    const char *names[20];
};

/* Counts worked out by hand from the definitions. */
static const struct expected zoo[] = {
    { "mlp",
      784 * 250 + 250 + 250 * 100 + 100 + 100 * 10 + 10,
      2.0 * (784 * 250 + 25000 + 1000),
      { "fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias", "fc3.weight", "fc3.bias" } },
    { "cnn",
      32 * 9 + 32 + 64 * 32 * 9 + 64 + 3136 * 128 + 128 + 1280 + 10,
      2.0 * (784.0 * 32 * 9 + 196.0 * 64 * 288 + 3136 * 128 + 1280),
      { "conv1.weight", "conv1.bias", "conv2.weight", "conv2.bias", "fc1.weight", "fc1.bias",
        "fc2.weight", "fc2.bias" } },
    { "nbow",
      25000 * 100 + 200 + 2,
      256.0 * 100 + 2.0 * 200,
      { "embedding.weight", "fc.weight", "fc.bias" } },
    { "seq2seq",
      (8000 + 6000) * 256 + 2 * (2048 * (256 + 512 + 2) + 2048 * (512 + 512 + 2)) +
          6000 * (512 + 1),
      2.0 * (49 * 2048.0 * (256 + 512 + 512 + 512) + 24 * 512.0 * 6000),
      { "encoder_embedding.weight",
        "encoder.weight_ih_l0",
        "encoder.weight_hh_l0",
        "encoder.bias_ih_l0",
        "encoder.bias_hh_l0",
        "encoder.weight_ih_l1",
        "encoder.weight_hh_l1",
        "encoder.bias_ih_l1",
        "encoder.bias_hh_l1",
        "decoder_embedding.weight",
        "decoder.weight_ih_l0",
        "decoder.weight_hh_l0",
        "decoder.bias_ih_l0",
        "decoder.bias_hh_l0",
        "decoder.weight_ih_l1",
        "decoder.weight_hh_l1",
        "decoder.bias_ih_l1",
        "decoder.bias_hh_l1",
        "fc.weight",
        "fc.bias" } },
    { "textcnn",
      25000 * 100 + 100 * 100 * (3 + 4 + 5) + 3 * 100 + 300 * 2 + 2,
      2.0 * 100 * 100 * (254 * 3 + 253 * 4 + 252 * 5),
      { "embedding.weight", "convs.0.weight", "convs.0.bias", "convs.1.weight", "convs.1.bias",
        "convs.2.weight", "convs.2.bias", "fc.weight", "fc.bias" } },
};

static void test_models_have_the_stated_parameters(void)
{
    for (size_t m = 0; m < sizeof zoo / sizeof *zoo; m++) {
        const struct model *model = model_find(zoo[m].model);
        struct model_config config = model_defaults(model);
        struct graph *graph;
        int next = 0;

        CHECK_OK(model_build(model, &config, &graph));
        CHECK_INT(zoo[m].parameters, graph_param_count(graph));
        for (int i = 0; i < graph_value_count(graph); i++) {
            if (graph_value(graph, i)->kind == VALUE_PARAM)
                CHECK_TEXT(zoo[m].names[next++], graph_value(graph, i)->name);
        }
        const double flops = graph_flops(graph, 1);
        CHECK(flops > zoo[m].flops && flops < 1.05 * zoo[m].flops);
        graph_destroy(graph);
    }
}

static void test_every_model_builds_for_any_batch(void)
{
    for (int m = 0; model_table[m]; m++) {
        for (int64_t batch = 1; batch <= 64; batch *= 4) {
            struct model_config config = model_defaults(model_table[m]);
            struct graph *graph;
            config.batch = batch;
            config.training = batch % 2 == 0;
            CHECK_OK(model_build(model_table[m], &config, &graph));
            CHECK_INT(batch, graph_roles(graph)->output->shape.dim[0]);
            graph_destroy(graph);
        }
    }
}

static void test_wrong_options_are_refused(void)
{
    const struct model *cnn = model_find("cnn");
    struct model_config config = model_defaults(cnn);

    CHECK_OK(model_set_option(cnn, &config, "dropout", 0.5));
    CHECK_STATUS(STATUS_USAGE, model_set_option(cnn, &config, "dropout", 1.5));
    CHECK_MESSAGE("dropout");
    CHECK_STATUS(STATUS_NOT_FOUND, model_set_option(cnn, &config, "width", 2));
    CHECK(model_find("transformer9") == NULL);
}

static void test_images_too_small_are_refused_by_name(void)
{
    const struct model *cnn = model_find("cnn");
    struct model_config config = model_defaults(cnn);
    struct graph *graph;

    config.sample.dim[1] = 1;
    CHECK_STATUS(STATUS_USAGE, model_build(cnn, &config, &graph));
    CHECK_MESSAGE("pool1");
}

const struct test tests[] = {
    { .name = "models have the stated parameters",
      .run = test_models_have_the_stated_parameters },
    { .name = "every model builds for any batch",
      .run = test_every_model_builds_for_any_batch },
    { .name = "wrong options are refused", .run = test_wrong_options_are_refused },
    { .name = "images too small are refused by name",
      .run = test_images_too_small_are_refused_by_name },
    { 0 },
};
