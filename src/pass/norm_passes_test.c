/* SPDX-License-Identifier: MIT */
/* norm_passes_test.c - what passes make of batch norms: joined with what is around them, cut into shards, synchronized. */
#include "base/test.h"
#include "graph/build.h"
#include "graph/op.h"
#include "model/model.h"
#include "pass/pass_testing.h"
#include "pass/strategy.h"

/* A residual block: the residual is made after the batch norm it is added to, as in torchvision. */
static struct graph *residual_block(bool training, bool use_twice)
{
    struct graph *graph;

    CHECK_OK(graph_create("block", &graph));
    struct value *x = graph_input(graph, "x", DTYPE_F32, shape_4(4, 3, 2, 2));
    struct value *y = build_batch_norm(graph, "bn1", x, training);
    y = build_relu6(graph, "relu6", y);
    y = build_batch_norm(graph, "bn2", y, training);
    struct value *skip = build_batch_norm(graph, "bn3", x, training);
    struct value *sum = build_add(graph, "add", skip, y);
    sum = build_relu(graph, "relu", sum);
    if (use_twice)
        sum = build_add(graph, "again", sum, y);
    build_classifier_loss(graph, build_linear(graph, "fc", sum, 5),
                          graph_input(graph, "labels", DTYPE_I32, shape_1(4)));
    CHECK_OK(pass_fuse.run(graph, &(struct pass_config){ .batch = 4 }));
    CHECK_OK(graph_verify(graph));
    return graph;
}

static void test_fusion_joins_residual_and_activation_to_batch_norm(void)
{
    for (int training = 0; training < 2; training++) {
        const struct op *op = training ? &op_batch_norm : &op_batch_norm_apply;
        struct graph *graph = residual_block(training, false);
        const struct node *fused[3] = { NULL };
        int count = 0;

        for (int n = 0; n < graph_node_count(graph); n++) {
            if (graph_node(graph, n)->op == op)
                fused[count++] = graph_node(graph, n);
        }
        CHECK_INT(3, count);
        CHECK_INT(0, pass_testing_count(graph, &op_add) + pass_testing_count(graph, &op_relu) +
                         pass_testing_count(graph, &op_relu6));
        CHECK(fused[0]->attrs.activation == ACTIVATION_RELU6 && fused[0]->n_in == op->min_in);
        CHECK_TEXT("bn3", fused[1]->name); /* made before what it is added to */
        CHECK(fused[1]->attrs.activation == ACTIVATION_NONE && fused[1]->n_in == op->min_in);
        CHECK_TEXT("bn2", fused[2]->name);
        CHECK(fused[2]->attrs.activation == ACTIVATION_RELU);
        CHECK(fused[2]->n_in == op->max_in && fused[2]->in[op->max_in - 1] == fused[1]->out[0]);
        if (training)
            CHECK(graph_find_value(graph, "bn2.running_var")->gradient == fused[2]->out[3]);
        graph_destroy(graph);

        /* A value that somebody else uses must be there: bn3 takes the sum. */
        graph = residual_block(training, true);
        CHECK_INT(1, pass_testing_count(graph, &op_add));
        CHECK_INT(0, pass_testing_count(graph, &op_relu));
        graph_destroy(graph);
    }
}

static struct graph *mobilenet_after(const struct pass_config *config)
{
    const struct model *model = model_find("mobilenet_v2");
    struct model_config model_config = model_defaults(model);
    struct graph *graph;

    model_config.batch = config->batch;
    CHECK_OK(model_build(model, &model_config, &graph));
    CHECK_OK(pass_run(graph, strategy_find("single")->passes, config, NULL));
    return graph;
}

/* Of the 52 batch norms 33 are between the convolutions of a block; more may be after a block without a
 * shortcut. */
static void test_batch_norms_between_narrow_convolutions_go_into_these(void)
{
    struct pass_config config = pass_testing_config(1, 0);
    struct graph *graph = mobilenet_after(&config);
    const int normed = pass_testing_count(graph, &op_norm_conv2d) +
                       pass_testing_count(graph, &op_norm_conv2d_stats);

    CHECK_INT(52, normed + pass_testing_count(graph, &op_batch_norm));
    CHECK(normed >= 33);
    CHECK_INT(normed, pass_testing_count(graph, &op_conv2d_stats) +
                          pass_testing_count(graph, &op_norm_conv2d_stats));
    CHECK_INT(pass_testing_count(graph, &op_batch_norm),
              pass_testing_count(graph, &op_batch_norm_grad));
    CHECK_INT(pass_testing_count(graph, &op_norm_conv2d_stats),
              pass_testing_count(graph, &op_norm_conv2d_stats_grad));
    const struct value *seen = graph_find_value(graph, "features.3.conv.1.1.running_var");
    CHECK(seen->gradient->maker->op == &op_norm_conv2d_stats);
    CHECK_TEXT("features.3.conv.1.0", seen->gradient->maker->name);
    graph_destroy(graph);

    config.apart = true;
    graph = mobilenet_after(&config);
    CHECK_INT(52, pass_testing_count(graph, &op_batch_norm));
    graph_destroy(graph);
    config.epilogues = true; /* 16 blocks have a 1x1 before their depthwise convolution */
    graph = mobilenet_after(&config);
    CHECK_INT(36, pass_testing_count(graph, &op_batch_norm));
    CHECK_INT(16, pass_testing_count(graph, &op_norm_conv2d));
    CHECK_INT(16, pass_testing_count(graph, &op_conv2d_stats));
    CHECK_INT(0, pass_testing_count(graph, &op_norm_conv2d_stats));
    graph_destroy(graph);
    config.apart = config.epilogues = false;
    config.norms_apart = true;
    graph = mobilenet_after(&config);
    CHECK_INT(52, pass_testing_count(graph, &op_batch_norm));
    graph_destroy(graph);
    config.norms_apart = false;
    config.sync_norm = true;
    graph = mobilenet_after(&config);
    CHECK_INT(52, pass_testing_count(graph, &op_batch_norm_normalize));
    graph_destroy(graph);
}

/* Statistics are a shard's own, what it saw of the averages is a summand. */
static void test_batch_norm_is_split_by_shards(void)
{
    const struct pass_config config = pass_testing_config(1, 0);
    struct graph *graph;

    CHECK_OK(graph_create("batch norm", &graph));
    struct value *x = graph_input(graph, "x", DTYPE_F32, shape_4(config.batch, 3, 2, 2));
    struct value *y = build_batch_norm(graph, "bn", x, true);
    build_classifier_loss(graph, build_linear(graph, "fc", y, 5),
                          graph_input(graph, "labels", DTYPE_I32, shape_1(config.batch)));
    CHECK_OK(pass_autodiff.run(graph, &config));
    CHECK_OK(pass_bucket.run(graph, &config));
    CHECK_OK(pass_split_batch.run(graph, &config));
    CHECK_OK(graph_verify(graph));
    CHECK_INT(config.batch / config.shards, y->shape.dim[0]);
    CHECK(y->part == PART_ROWS && y->maker->out[1]->part == PART_SHARD);
    CHECK(graph_find_value(graph, "bn.running_mean")->gradient->part == PART_SUM);
    CHECK(graph_find_value(graph, "bn.running_var")->gradient->part == PART_SUM);
    CHECK(graph_find_value(graph, "bn.weight")->gradient->part == PART_SUM);
    graph_destroy(graph);
}

static struct graph *resnet_of_a_device(void)
{
    const struct model *model = model_find("resnet18");
    struct model_config model_config = model_defaults(model);
    struct pass_config config = pass_testing_config(1, 0);
    struct graph *graph;

    config.apart = config.epilogues = true;
    model_config.batch = config.batch;
    CHECK_OK(model_build(model, &model_config, &graph));
    CHECK_OK(pass_run(graph, strategy_find("single")->passes, &config, NULL));
    return graph;
}

/* Seven of resnet18's convolutions have 64 channels of 32x32, or 128 of 16x16, on both sides; the last of a block has a residual behind it. */
static void test_convolutions_sum_for_norms_on_a_device(void)
{
    struct graph *graph = resnet_of_a_device();
    const struct node *seen =
        graph_find_value(graph, "layer1.0.bn1.running_var")->gradient->maker;
    int residuals = 0;

    CHECK_INT(7, pass_testing_count(graph, &op_conv2d_stats));
    CHECK_INT(7, pass_testing_count(graph, &op_batch_norm_normalize));
    CHECK_INT(13, pass_testing_count(graph, &op_batch_norm));
    CHECK(seen->op == &op_conv2d_stats);
    CHECK(seen->attrs.epsilon > 0);
    for (int n = 0; n < graph_node_count(graph); n++) {
        const struct node *node = graph_node(graph, n);
        if (node->op != &op_batch_norm_normalize)
            continue;
        CHECK(node->in[3]->maker == node->in[0]->maker);
        residuals += node->n_in > 4;
    }
    CHECK_INT(4, residuals);
    graph_destroy(graph);
}

/* Of resnet18's 20 norms the first and eight more have relu alone, eight a residual, too; eight sums flow into norms. */
static void test_norms_gradients_add_and_need_no_output_on_a_device(void)
{
    struct graph *graph = resnet_of_a_device();
    int sums = 0, by_beta = 0;

    for (int n = 0; n < graph_node_count(graph); n++) {
        const struct node *node = graph_node(graph, n);
        if (node->op != &op_batch_norm_grad)
            continue;
        sums += node->n_in > 5;
        by_beta += node->n_in > 4 && node->in[4]->shape.rank == 1;
    }
    CHECK_INT(20, pass_testing_count(graph, &op_batch_norm_grad));
    CHECK_INT(0, pass_testing_count(graph, &op_add));
    CHECK_INT(8, sums);
    CHECK_INT(9, by_beta);
    graph_destroy(graph);
}

static struct graph *synchronized_resnet(bool recompute, const char *last)
{
    const struct model *model = model_find("resnet18");
    struct model_config model_config = model_defaults(model);
    struct pass_config config = pass_testing_config(1, 0);
    struct graph *graph;

    config.sync_norm = true;
    config.recompute = recompute;
    model_config.batch = config.batch;
    CHECK_OK(model_build(model, &model_config, &graph));
    CHECK_INT(20, pass_testing_count(graph, &op_batch_norm));
    CHECK_OK(pass_run(graph, strategy_find("single")->passes, &config, last));
    return graph;
}

static void test_synchronized_batch_norm_meets_twice_a_layer(void)
{
    struct graph *graph = synchronized_resnet(false, NULL);

    CHECK_INT(0, pass_testing_count(graph, &op_batch_norm) +
                     pass_testing_count(graph, &op_batch_norm_grad));
    CHECK_INT(20, pass_testing_count(graph, &op_batch_norm_stats));
    CHECK_INT(20, pass_testing_count(graph, &op_batch_norm_join));
    CHECK_INT(20, pass_testing_count(graph, &op_batch_norm_normalize));
    CHECK_INT(20, pass_testing_count(graph, &op_batch_norm_grad_sums));
    CHECK_INT(20, pass_testing_count(graph, &op_batch_norm_grad_spread));
    CHECK_INT(40, pass_testing_count(graph, &op_shard_gather));
    const struct node *join = graph_find_value(graph, "bn1.join")->maker;
    CHECK_INT(4, join->in[0]->shape.dim[0]); /* shards */
    CHECK(join->in[0]->part == PART_WHOLE && join->in[1]->part == PART_SHARD);
    CHECK(join->out[0]->part == PART_WHOLE);
    CHECK(graph_find_value(graph, "bn1.running_mean")->gradient == join->out[1]);
    CHECK(graph_find_value(graph, "bn1.running_var")->gradient == join->out[2]);
    CHECK(join->out[1]->part == PART_SUM && join->out[2]->part == PART_SUM);
    const struct value *gamma = graph_find_value(graph, "bn1.weight");
    CHECK(gamma->gradient->maker->op == &op_batch_norm_grad_sums);
    CHECK(gamma->gradient->part == PART_SUM);
    CHECK(gamma->gradient->maker->out[2]->part == PART_SHARD);
    graph_destroy(graph);
}

/* Images themselves have no gradient, so shards need not tell each other its sums. */
static void test_synchronized_batch_norm_of_the_input_meets_once(void)
{
    struct pass_config config = pass_testing_config(1, 0);
    struct graph *graph;

    config.sync_norm = true;
    CHECK_OK(graph_create("batch norm", &graph));
    struct value *x = graph_input(graph, "x", DTYPE_F32, shape_4(config.batch, 3, 2, 2));
    struct value *y = build_batch_norm(graph, "bn", x, true);
    build_classifier_loss(graph, build_linear(graph, "fc", y, 5),
                          graph_input(graph, "labels", DTYPE_I32, shape_1(config.batch)));
    CHECK_OK(pass_run(graph, strategy_find("single")->passes, &config, NULL));
    CHECK_INT(1, pass_testing_count(graph, &op_shard_gather));
    CHECK_INT(1, pass_testing_count(graph, &op_batch_norm_grad_sums));
    CHECK_INT(0, pass_testing_count(graph, &op_batch_norm_grad_spread));
    graph_destroy(graph);
}

/* What is made again is made without the other shards, from what they said the first time. */
static void test_recomputing_meets_nobody_again(void)
{
    struct graph *graph = synchronized_resnet(true, "recompute");
    int copies = 0;

    CHECK_INT(40, pass_testing_count(graph, &op_shard_gather));
    CHECK_INT(20, pass_testing_count(graph, &op_batch_norm_stats));
    CHECK(pass_testing_count(graph, &op_batch_norm_normalize) > 20);
    for (int n = 0; n < graph_node_count(graph); n++) {
        const struct node *node = graph_node(graph, n);
        if (node->op != &op_batch_norm_join || node->phase != PHASE_BACKWARD)
            continue;
        CHECK(node->in[0]->maker->phase == PHASE_FORWARD);
        CHECK(node->in[1]->maker->phase == PHASE_FORWARD);
        copies++;
    }
    CHECK(copies > 0);
    graph_destroy(graph);
}

const struct test tests[] = {
    { .name = "convolutions sum for norms on a device",
      .run = test_convolutions_sum_for_norms_on_a_device },
    { .name = "norms' gradients add and need no output on a device",
      .run = test_norms_gradients_add_and_need_no_output_on_a_device },
    { .name = "fusion joins residual and activation to batch norm",
      .run = test_fusion_joins_residual_and_activation_to_batch_norm },
    { .name = "batch norms between narrow convolutions go into these",
      .run = test_batch_norms_between_narrow_convolutions_go_into_these },
    { .name = "batch norm is split by shards", .run = test_batch_norm_is_split_by_shards },
    { .name = "synchronized batch norm meets twice a layer",
      .run = test_synchronized_batch_norm_meets_twice_a_layer },
    { .name = "synchronized batch norm of the input meets once",
      .run = test_synchronized_batch_norm_of_the_input_meets_once },
    { .name = "recomputing meets nobody again", .run = test_recomputing_meets_nobody_again },
    { 0 },
};
