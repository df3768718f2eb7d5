/* SPDX-License-Identifier: MIT */
/* fuse_test.c - ops that become one, and gradients that are made where they are needed: fuse, autodiff, join, inward, delay. */
#include "base/test.h"
#include "graph/build.h"
#include "graph/op.h"
#include "model/model.h"
#include "pass/pass_testing.h"
#include "pass/strategy.h"

static void test_fusion_leaves_no_bias_relu_or_pool_of_the_cnn(void)
{
    struct graph *graph = pass_testing_graph("cnn", "single", 1, 0);

    CHECK_INT(2, pass_testing_count(graph, &op_conv2d_pool));
    CHECK_INT(2, pass_testing_count(graph, &op_linear));
    CHECK_INT(0, pass_testing_count(graph, &op_conv2d) + pass_testing_count(graph, &op_bias) +
                     pass_testing_count(graph, &op_relu) +
                     pass_testing_count(graph, &op_max_pool));
    CHECK_INT(2, pass_testing_count(graph, &op_conv2d_pool_grad_weight));
    CHECK_INT(1, pass_testing_count(
                     graph, &op_conv2d_pool_grad_input)); /* none for the images themselves */
    CHECK_INT(0, pass_testing_count(graph, &op_max_pool_grad));
    graph_destroy(graph);
}

/* How many parameters of a model lie ohwi, and gradients of them with these. */
static int count_inward(const char *name, bool inward)
{
    struct pass_config config = pass_testing_config(1, 0);
    struct model_config model_config = model_defaults(model_find(name));
    struct graph *graph;
    int count = 0;

    config.apart = config.epilogues = true;
    config.inward = inward;
    model_config.batch = config.batch;
    model_config.sample = (struct shape){ 3, { 3, 32, 32 } };
    model_config.classes = 10;
    CHECK_OK(model_build(model_find(name), &model_config, &graph));
    CHECK_OK(pass_run(graph, strategy_find("single")->passes, &config, NULL));
    for (int i = 0; i < graph_value_count(graph); i++) {
        const struct value *value = graph_value(graph, i);
        if (value->kind != VALUE_PARAM)
            continue;
        CHECK(value->gradient->layout == value->layout);
        CHECK(!inward || (value->offset % 128 == 0 && value->flat->shape.dim[0] % 128 == 0));
        count += value->layout == LAYOUT_OHWI;
    }
    graph_destroy(graph);
    return count;
}

/* Not the first layer's, nor those of products and of one channel. */
static void test_filters_lie_inward_if_asked(void)
{
    CHECK_INT(19, count_inward("resnet18", true));
    CHECK_INT(7, count_inward("vgg11", true));
    CHECK_INT(0, count_inward("mobilenet_v2", true));
    CHECK_INT(0, count_inward("mlp", true));
    CHECK_INT(0, count_inward("resnet18", false));
}

/* A device's products end with what came after them. */
static void test_products_end_with_more_if_asked(void)
{
    struct pass_config config = pass_testing_config(1, 0);
    struct model_config model_config = model_defaults(model_find("gpt"));
    struct graph *graph;

    config.apart = config.epilogues = true;
    model_config.batch = config.batch;
    CHECK_OK(model_build(model_find("gpt"), &model_config, &graph));
    CHECK_OK(pass_run(graph, strategy_find("single")->passes, &config, NULL));
    CHECK_INT(6, pass_testing_count(graph, &op_linear_gelu));
    CHECK_INT(12, pass_testing_count(graph, &op_linear_add));
    CHECK_INT(6, pass_testing_count(graph, &op_linear_grad_through));
    CHECK_INT(1, pass_testing_count(graph, &op_linear_token_loss));
    for (int n = 0; n < graph_node_count(graph); n++) { /* of three in four biases */
        const struct node *node = graph_node(graph, n);
        if (node->op == &op_linear_grad_weight)
            CHECK_INT(node->in[1]->maker->op == &op_attention_grad ? 2 : 1, node->n_out);
        if (node->op == &op_linear_grad_through)
            CHECK_INT(2, node->n_out);
    }
    CHECK_INT(0, pass_testing_count(graph, &op_linear_grad_input) - 18);
    CHECK_INT(0, pass_testing_count(graph, &op_token_cross_entropy) +
                     pass_testing_count(graph, &op_token_cross_entropy_grad) +
                     pass_testing_count(graph, &op_token_accuracy) +
                     pass_testing_count(graph, &op_reshape));
    CHECK_INT(0, pass_testing_count(graph, &op_gelu_tanh) +
                     pass_testing_count(graph, &op_gelu_tanh_grad) +
                     pass_testing_count(graph, &op_add));
    graph_destroy(graph);

    static const char *const pooled[] = { "cnn", "vgg11" }; /* of grey images, of colours */
    for (size_t i = 0; i < sizeof pooled / sizeof pooled[0]; i++) {
        model_config = model_defaults(model_find(pooled[i]));
        model_config.batch = config.batch;
        CHECK_OK(model_build(model_find(pooled[i]), &model_config, &graph));
        CHECK_OK(pass_run(graph, strategy_find("single")->passes, &config, NULL));
        CHECK_INT(1, pass_testing_count(graph, &op_conv2d_pool));
        CHECK_INT(1, pass_testing_count(graph, &op_softmax_loss));
        CHECK_INT(0, pass_testing_count(graph, &op_softmax_cross_entropy) +
                         pass_testing_count(graph, &op_softmax_cross_entropy_grad) +
                         pass_testing_count(graph, &op_accuracy));
        for (int n = 0; n < graph_node_count(graph); n++) {
            const struct node *node = graph_node(graph, n);
            if (node->op == &op_max_pool_grad)
                CHECK(node->in[0]->maker->op == &op_relu_grad);
        }
        graph_destroy(graph);
    }
}

static void test_pools_stay_apart_if_asked(void)
{
    struct pass_config config = pass_testing_config(1, 0);
    struct model_config model_config = model_defaults(model_find("cnn"));
    struct graph *graph;

    config.apart = true;
    model_config.batch = config.batch;
    CHECK_OK(model_build(model_find("cnn"), &model_config, &graph));
    CHECK_OK(pass_run(graph, strategy_find("single")->passes, &config, NULL));
    CHECK_INT(0, pass_testing_count(graph, &op_conv2d_pool) +
                     pass_testing_count(graph, &op_bias) + pass_testing_count(graph, &op_relu));
    CHECK_INT(2, pass_testing_count(graph, &op_conv2d));
    CHECK_INT(2, pass_testing_count(graph, &op_max_pool));
    graph_destroy(graph);
}

static void test_fusion_leaves_no_sequence_of_filters_in_memory(void)
{
    struct graph *graph = pass_testing_graph("textcnn", "single", 1, 0);
    int extended = 0;

    CHECK_INT(3, pass_testing_count(graph, &op_conv1d_max));
    CHECK_INT(0, pass_testing_count(graph, &op_conv1d) + pass_testing_count(graph, &op_bias) +
                     pass_testing_count(graph, &op_relu) +
                     pass_testing_count(graph, &op_max_over_time));
    CHECK_INT(3, pass_testing_count(graph, &op_conv1d_max_grad_weight));
    CHECK_INT(3, pass_testing_count(graph, &op_columns)); /* of the features' gradient */
    /* The filters' gradients for the words are added in one place. */
    for (int n = 0; n < graph_node_count(graph); n++) {
        const struct node *node = graph_node(graph, n);
        extended += node->op == &op_conv1d_max_grad_input && node->n_in == 5;
    }
    CHECK_INT(2, extended);
    CHECK_INT(0, pass_testing_count(graph, &op_add));
    graph_destroy(graph);
}

/* h is read three times; the norm's gradient is that of its sum, which hands it on to g and h alike. What others gave h must
 * not come to g. */
static void test_a_gradient_that_was_handed_on_is_not_added_to(void)
{
    struct graph *graph;

    CHECK_OK(graph_create("handed on", &graph));
    struct value *h =
        build_linear(graph, "h", graph_input(graph, "x", DTYPE_F32, shape_2(4, 6)), 6);
    struct value *g = build_linear(graph, "g", h, 6);
    struct value *y = build_layer_norm(graph, "norm", build_add(graph, "z", g, h), 1e-5F);
    build_classifier_loss(graph, build_linear(graph, "fc", build_add(graph, "o", y, h), 5),
                          graph_input(graph, "labels", DTYPE_I32, shape_1(4)));
    CHECK_OK(pass_autodiff.run(graph, &(struct pass_config){ .batch = 4 }));
    for (int n = 0; n < graph_node_count(graph); n++) {
        const struct node *node = graph_node(graph, n);
        if (node->op == &op_layer_norm_grad)
            CHECK_INT(4, node->n_in);
    }
    CHECK_OK(graph_verify(graph));
    graph_destroy(graph);
}

/* Both biases of layers whose results are added have the same gradient: the norm's node sums it for one, another node in the same
 * order for the other, never the product, whose order is its own. */
static void test_two_layers_with_one_gradient_sum_it_in_one_order(void)
{
    const struct pass_config config = { .batch = 4, .apart = true, .epilogues = true };
    struct graph *graph;

    CHECK_OK(graph_create("two layers", &graph));
    struct value *x = graph_input(graph, "x", DTYPE_F32, shape_2(4, 6));
    struct value *z =
        build_add(graph, "z", build_linear(graph, "a", x, 6), build_linear(graph, "b", x, 6));
    struct value *y = build_layer_norm(graph, "norm", z, 1e-5F);
    build_classifier_loss(graph, build_linear(graph, "fc", y, 5),
                          graph_input(graph, "labels", DTYPE_I32, shape_1(4)));
    CHECK_OK(pass_fuse.run(graph, &config));
    CHECK_OK(pass_autodiff.run(graph, &config));
    CHECK_OK(pass_join.run(graph, &config));
    CHECK_INT(1, pass_testing_count(graph, &op_sum_rows));
    for (int n = 0; n < graph_node_count(graph); n++) {
        const struct node *node = graph_node(graph, n);
        if (node->op == &op_layer_norm_grad)
            CHECK_INT(4, node->n_out);
        if (node->op == &op_linear_grad_weight)
            CHECK_INT(node->in[1]->maker->op == &op_layer_norm_grad ? 1 : 2, node->n_out);
    }
    CHECK_OK(graph_verify(graph));
    graph_destroy(graph);
}

static int place_of(const struct graph *graph, const struct node *wanted)
{
    int n = 0;

    while (graph_node(graph, n) != wanted)
        n++;
    return n;
}

/* The table's gradient that the loss makes, of a GPT whose table is large or small beside its logits. */
static int steps_to_the_addition(int64_t vocab)
{
    const struct model *model = model_find("gpt");
    struct model_config model_config = model_defaults(model);
    const struct pass_config config = pass_testing_config(1, 0);
    struct graph *graph;

    model_config.batch = config.batch;
    model_config.vocab[0] = vocab;
    model_config.length[0] = 8;
    CHECK_OK(model_build(model, &model_config, &graph));
    CHECK_OK(pass_run(graph, strategy_find("single")->passes, &config, "delay"));
    const struct node *addition = graph_find_value(graph, "wte.weight")->gradient->maker;
    CHECK(addition->op == &op_embedding_grad && addition->n_in == 3);
    const int steps = place_of(graph, addition) - place_of(graph, addition->in[2]->maker);
    graph_destroy(graph);
    return steps;
}

static void test_a_tied_tables_gradient_is_made_late_if_it_is_large(void)
{
    const int64_t width = 384,
                  rows = pass_testing_config(1, 0).batch / pass_testing_config(1, 0).shards * 8;

    CHECK(rows < width); /* logits of a shard are smaller than the table */
    CHECK_INT(1, steps_to_the_addition(5000));
    CHECK(steps_to_the_addition(20) > 10); /* but then what goes into the layer counts */
}

const struct test tests[] = {
    { .name = "a tied table's gradient is made late if it is large",
      .run = test_a_tied_tables_gradient_is_made_late_if_it_is_large },
    { .name = "fusion leaves no bias, relu or pool of the cnn",
      .run = test_fusion_leaves_no_bias_relu_or_pool_of_the_cnn },
    { .name = "products end with more if asked", .run = test_products_end_with_more_if_asked },
    { .name = "filters lie inward if asked", .run = test_filters_lie_inward_if_asked },
    { .name = "pools stay apart if asked", .run = test_pools_stay_apart_if_asked },
    { .name = "fusion leaves no sequence of filters in memory",
      .run = test_fusion_leaves_no_sequence_of_filters_in_memory },
    { .name = "a gradient that was handed on is not added to",
      .run = test_a_gradient_that_was_handed_on_is_not_added_to },
    { .name = "two layers with one gradient sum it in one order",
      .run = test_two_layers_with_one_gradient_sum_it_in_one_order },
    { 0 },
};
