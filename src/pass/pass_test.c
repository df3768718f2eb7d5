/* SPDX-License-Identifier: MIT */
/* pass_test.c - what the passes make of a model's graph. */
#include <stdio.h>
#include <string.h>

#include "base/test.h"
#include "graph/build.h"
#include "graph/op.h"
#include "model/model.h"
#include "pass/strategy.h"

static struct pass_config config_for(int ranks, float max_norm)
{
    struct pass_config config = { .batch = 64, .shards = 4, .ranks = ranks };

    config.optim.optimizer = optim_find("sgd");
    config.optim.attrs = config.optim.optimizer->defaults;
    config.optim.attrs.max_norm = max_norm;
    return config;
}

static struct graph *graph_after(const char *model_name, const char *strategy, int ranks,
                                 float max_norm)
{
    const struct model *model = model_find(model_name);
    struct model_config model_config = model_defaults(model);
    const struct pass_config config = config_for(ranks, max_norm);
    struct graph *graph;

    model_config.batch = config.batch;
    CHECK_OK(model_build(model, &model_config, &graph));
    CHECK_OK(pass_run(graph, strategy_find(strategy)->passes, &config, NULL));
    return graph;
}

static int count_op(const struct graph *graph, const struct op *op)
{
    int count = 0;
    for (int n = 0; n < graph_node_count(graph); n++)
        count += graph_node(graph, n)->op == op;
    return count;
}

static void test_fusion_leaves_no_bias_relu_or_pool_of_the_cnn(void)
{
    struct graph *graph = graph_after("cnn", "single", 1, 0);

    CHECK_INT(2, count_op(graph, &op_conv2d_pool));
    CHECK_INT(2, count_op(graph, &op_linear));
    CHECK_INT(0, count_op(graph, &op_conv2d) + count_op(graph, &op_bias) +
                     count_op(graph, &op_relu) + count_op(graph, &op_max_pool));
    CHECK_INT(2, count_op(graph, &op_conv2d_pool_grad_weight));
    CHECK_INT(1,
              count_op(graph, &op_conv2d_pool_grad_input)); /* none for the images themselves */
    CHECK_INT(0, count_op(graph, &op_max_pool_grad));
    graph_destroy(graph);
}

/* How many parameters of a model lie ohwi, and gradients of them with these. */
static int count_inward(const char *name, bool inward)
{
    struct pass_config config = config_for(1, 0);
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
    struct pass_config config = config_for(1, 0);
    struct model_config model_config = model_defaults(model_find("gpt"));
    struct graph *graph;

    config.apart = config.epilogues = true;
    model_config.batch = config.batch;
    CHECK_OK(model_build(model_find("gpt"), &model_config, &graph));
    CHECK_OK(pass_run(graph, strategy_find("single")->passes, &config, NULL));
    CHECK_INT(6, count_op(graph, &op_linear_gelu));
    CHECK_INT(12, count_op(graph, &op_linear_add));
    CHECK_INT(6, count_op(graph, &op_linear_grad_through));
    CHECK_INT(1, count_op(graph, &op_linear_token_loss));
    for (int n = 0; n < graph_node_count(graph); n++) { /* of three in four biases */
        const struct node *node = graph_node(graph, n);
        if (node->op == &op_linear_grad_weight)
            CHECK_INT(node->in[1]->maker->op == &op_attention_grad ? 2 : 1, node->n_out);
        if (node->op == &op_linear_grad_through)
            CHECK_INT(2, node->n_out);
    }
    CHECK_INT(0, count_op(graph, &op_linear_grad_input) - 18);
    CHECK_INT(0, count_op(graph, &op_token_cross_entropy) +
                     count_op(graph, &op_token_cross_entropy_grad) +
                     count_op(graph, &op_token_accuracy) + count_op(graph, &op_reshape));
    CHECK_INT(0, count_op(graph, &op_gelu_tanh) + count_op(graph, &op_gelu_tanh_grad) +
                     count_op(graph, &op_add));
    graph_destroy(graph);

    static const char *const pooled[] = { "cnn", "vgg11" }; /* of grey images, of colours */
    for (size_t i = 0; i < sizeof pooled / sizeof pooled[0]; i++) {
        model_config = model_defaults(model_find(pooled[i]));
        model_config.batch = config.batch;
        CHECK_OK(model_build(model_find(pooled[i]), &model_config, &graph));
        CHECK_OK(pass_run(graph, strategy_find("single")->passes, &config, NULL));
        CHECK_INT(1, count_op(graph, &op_conv2d_pool));
        CHECK_INT(1, count_op(graph, &op_softmax_loss));
        CHECK_INT(0, count_op(graph, &op_softmax_cross_entropy) +
                         count_op(graph, &op_softmax_cross_entropy_grad) +
                         count_op(graph, &op_accuracy));
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
    struct pass_config config = config_for(1, 0);
    struct model_config model_config = model_defaults(model_find("cnn"));
    struct graph *graph;

    config.apart = true;
    model_config.batch = config.batch;
    CHECK_OK(model_build(model_find("cnn"), &model_config, &graph));
    CHECK_OK(pass_run(graph, strategy_find("single")->passes, &config, NULL));
    CHECK_INT(0, count_op(graph, &op_conv2d_pool) + count_op(graph, &op_bias) +
                     count_op(graph, &op_relu));
    CHECK_INT(2, count_op(graph, &op_conv2d));
    CHECK_INT(2, count_op(graph, &op_max_pool));
    graph_destroy(graph);
}

static void test_fusion_leaves_no_sequence_of_filters_in_memory(void)
{
    struct graph *graph = graph_after("textcnn", "single", 1, 0);
    int extended = 0;

    CHECK_INT(3, count_op(graph, &op_conv1d_max));
    CHECK_INT(0, count_op(graph, &op_conv1d) + count_op(graph, &op_bias) +
                     count_op(graph, &op_relu) + count_op(graph, &op_max_over_time));
    CHECK_INT(3, count_op(graph, &op_conv1d_max_grad_weight));
    CHECK_INT(3, count_op(graph, &op_columns)); /* of the features' gradient */
    /* The filters' gradients for the words are added in one place. */
    for (int n = 0; n < graph_node_count(graph); n++) {
        const struct node *node = graph_node(graph, n);
        extended += node->op == &op_conv1d_max_grad_input && node->n_in == 5;
    }
    CHECK_INT(2, extended);
    CHECK_INT(0, count_op(graph, &op_add));
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
    CHECK_INT(1, count_op(graph, &op_sum_rows));
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

static void test_a_single_step_has_one_update_a_bucket(void)
{
    struct graph *graph = graph_after("mlp", "single", 1, 0);

    CHECK_INT(2, pass_bucket_count(graph));
    CHECK_INT(2, count_op(graph, &op_sgd_update));
    CHECK_INT(4, count_op(graph, &op_shard_sum)); /* two buckets, loss, accuracy */
    CHECK_INT(0, count_op(graph, &op_reduce_scatter) + count_op(graph, &op_all_gather));
    CHECK_INT(16, graph_roles(graph)->output->shape.dim[0]);
    graph_destroy(graph);
}

/* So that its exchange begins early; where there are few it would only be one more. */
static void test_the_first_of_many_buckets_is_small(void)
{
    struct pass_config config = config_for(1, 0);
    int64_t count[2];

    for (int i = 0; i < 2; i++) { /* a model of a hundred layers, in many buckets and in few */
        struct graph *graph;
        struct value *x;

        config.bucket_bytes = i == 0 ? 16 << 10 : 1 << 20;
        CHECK_OK(graph_create("a hundred layers", &graph));
        x = graph_input(graph, "x", DTYPE_F32, shape_2(config.batch, 16));
        for (int layer = 0; layer < 100; layer++) {
            char name[16];
            snprintf(name, sizeof name, "fc%d", layer);
            x = build_linear(graph, name, x, 16);
        }
        build_classifier_loss(graph, x,
                              graph_input(graph, "labels", DTYPE_I32, shape_1(config.batch)));
        CHECK_OK(pass_autodiff.run(graph, &config));
        CHECK_OK(pass_bucket.run(graph, &config));
        count[0] = shape_count(&pass_bucket_value(graph, 0, "param")->shape);
        if (i == 0) {
            count[1] = shape_count(&pass_bucket_value(graph, 1, "param")->shape);
            CHECK(count[0] * 4 <= config.bucket_bytes / 8 && count[1] > 4 * count[0]);
        } else {
            CHECK_INT(1, pass_bucket_count(graph));
        }
        graph_destroy(graph);
    }
}

static void test_mirroring_adds_collectives_and_nothing_else(void)
{
    struct graph *single = graph_after("cnn", "single", 1, 0);
    struct graph *mirrored = graph_after("cnn", "mirrored", 2, 0);
    const int buckets = pass_bucket_count(single);

    CHECK_INT(buckets, count_op(mirrored, &op_reduce_scatter));
    CHECK_INT(buckets, count_op(mirrored, &op_all_gather));
    CHECK_INT(2, count_op(mirrored, &op_all_reduce));
    CHECK_INT(graph_node_count(single) + 2 * buckets + 2, graph_node_count(mirrored));
    graph_destroy(single);
    graph_destroy(mirrored);
}

static void test_workers_that_train_alone_meet_after_updates(void)
{
    struct graph *single = graph_after("resnet18", "single", 1, 0);
    struct graph *graph = graph_after("resnet18", "localsgd", 2, 0);
    const int buckets = pass_bucket_count(single);

    CHECK_INT(graph_node_count(single) + buckets, graph_node_count(graph));
    CHECK_INT(buckets, count_op(graph, &op_worker_mean)); /* running averages, too */
    for (int n = 0; n < graph_node_count(graph); n++) {
        const struct node *node = graph_node(graph, n);
        if (node->op == &op_worker_mean)
            CHECK(node->in[0]->maker->op == &op_sgd_update ||
                  node->in[0]->maker->op == &op_average_update);
    }
    graph_destroy(single);
    graph_destroy(graph);
}

static const struct pass *const serving[] = { &pass_serve, NULL };

/* What a worker of several, with servers, runs. */
static struct graph *served(const char *model)
{
    const struct pass_config config = config_for(2, 0);
    struct graph *graph = graph_after(model, "single", 2, 0);

    CHECK_OK(pass_run(graph, serving, &config, NULL));
    return graph;
}

static void test_serving_puts_updates_between_push_and_pull(void)
{
    struct graph *single = graph_after("nbow", "single", 1, 0);
    struct graph *graph = served("nbow");
    const int buckets = pass_bucket_count(single);
    int rows = 0;

    CHECK_INT(graph_node_count(single) + 2 * buckets, graph_node_count(graph));
    CHECK_INT(buckets, count_op(graph, &op_push));
    CHECK_INT(buckets, count_op(graph, &op_pull));
    for (int n = 0; n < graph_node_count(graph); n++) {
        const struct node *node = graph_node(graph, n);
        if (node->op == &op_push)
            rows += node->in[0]->form == VALUE_ROWS && node->out[0]->form == VALUE_ROWS;
        if (node->op != &op_pull)
            continue;
        CHECK(node->in[0]->maker->op == &op_sgd_update);
        CHECK(node->in[0]->maker->in[1]->maker->op == &op_push);
        CHECK_INT(node->attrs.bucket, node->in[0]->maker->in[1]->maker->attrs.bucket);
    }
    CHECK_INT(1, rows);
    graph_destroy(single);
    graph_destroy(graph);
}

static void test_serving_refuses_what_needs_whole_parameters(void)
{
    struct pass_config config = config_for(2, 0);
    struct graph *graph = graph_after("mlp", "single", 2, 0);

    config.optim.optimizer = optim_find("lamb");
    CHECK_STATUS(STATUS_USAGE, pass_run(graph, serving, &config, NULL));
    CHECK_MESSAGE("lamb");
    graph_destroy(graph);
}

/* The way that parallax picks for the table of nbow: 25000 rows of 100. */
static enum pass_way way_of_table(struct pass_network network, struct pass_table table,
                                  enum pass_way forced, int *pushes)
{
    const struct model *model = model_find("nbow");
    struct model_config model_config = model_defaults(model);
    struct pass_config config = config_for(network.nodes, 0);
    struct pass_choices choices = { .count = 0 };
    struct graph *graph;

    config.shards = config.batch;
    config.optim.attrs.momentum = 0;
    config.network = network;
    config.tables = &table;
    config.n_tables = 1;
    config.way = forced;
    config.choices = &choices;
    model_config.batch = config.batch;
    CHECK_OK(model_build(model, &model_config, &graph));
    CHECK_OK(pass_run(graph, strategy_find("parallax")->passes, &config, NULL));
    *pushes = count_op(graph, &op_push);
    CHECK_INT(*pushes, count_op(graph, &op_pull));
    graph_destroy(graph);
    return choices.count == 1 ? choices.item[0].way : PASS_WAYS;
}

static void test_parallax_takes_the_cheapest_way(void)
{
    const struct pass_network slow = { 2, 1e-5, 1e8 }, many = { 64, 1e-6, 1e8 };
    const struct pass_network alone = { 1, 1e-5, 1e8 };
    /* Few places: what rows are made from is small. The same words again and again: rows are. */
    const struct pass_table few = { "embedding.weight", 1000, 400, 600 };
    const struct pass_table again = { "embedding.weight", 1e6, 100, 120 };
    const struct pass_table all = { "embedding.weight", 1e7, 25000, 25000 };
    /* As measured on one machine's memory: rows that are sent are copied too often. */
    const struct pass_network memory = { 2, 6e-6, 8.7e9 };
    const struct pass_table many_rows = { "embedding.weight", 32768, 3000, 4000 };
    int pushes;

    CHECK_INT(PASS_GATHER, way_of_table(slow, few, PASS_WAYS, &pushes));
    CHECK_INT(0, pushes);
    CHECK_INT(PASS_SERVE, way_of_table(slow, again, PASS_WAYS, &pushes));
    CHECK_INT(1, pushes);
    CHECK_INT(PASS_GATHER, way_of_table(memory, many_rows, PASS_WAYS, &pushes));
    CHECK_INT(PASS_SERVE, way_of_table(many, again, PASS_WAYS, &pushes));
    CHECK_INT(PASS_DENSE, way_of_table(slow, all, PASS_WAYS, &pushes));
    CHECK_INT(0, pushes);
    CHECK_INT(PASS_SERVE, way_of_table(slow, all, PASS_SERVE, &pushes));
    CHECK_INT(1, pushes);
    CHECK_INT(PASS_WAYS, way_of_table(alone, again, PASS_WAYS, &pushes)); /* no choice */
}

/* The node of an op that a graph has once. */
static const struct node *only(const struct graph *graph, const struct op *op)
{
    const struct node *found = NULL;

    CHECK_INT(1, count_op(graph, op));
    for (int n = 0; n < graph_node_count(graph); n++)
        found = graph_node(graph, n)->op == op ? graph_node(graph, n) : found;
    return found;
}

static void test_a_table_has_a_gradient_of_rows_and_a_bucket_of_its_own(void)
{
    struct graph *single = graph_after("nbow", "single", 1, 0);
    struct graph *mirrored = graph_after("nbow", "mirrored", 2, 0);
    const struct value *table = graph_find_value(single, "embedding.weight");

    CHECK_INT(2, pass_bucket_count(single));
    CHECK_INT(shape_count(&table->shape), shape_count(&table->flat->shape));
    CHECK_INT(0, count_op(single, &op_embedding_grad));
    const struct node *sum = only(single, &op_row_sum);
    CHECK(sum->out[0]->form == VALUE_ROWS);
    CHECK(sum->in[0]->maker == only(single, &op_rows_sort));
    CHECK(sum->in[2]->maker == only(single, &op_embedding_mean_grad));
    CHECK_INT(1, sum->in[0]->maker->attrs.by_sample);

    /* Ids and dy go to every rank. */
    sum = only(mirrored, &op_row_sum);
    for (int i = 0; i < 3; i++) {
        CHECK(sum->in[i]->maker->op == &op_all_gather);
        CHECK(sum->in[i]->dtype == sum->in[i]->maker->in[0]->dtype);
    }
    CHECK(only(mirrored, &op_reduce_scatter)->attrs.bucket != sum->attrs.bucket);
    graph_destroy(single);
    graph_destroy(mirrored);
}

/* With and without servers: what is clipped are sums, rows among them. */
static void test_clipping_takes_rows_as_they_are(void)
{
    const struct {
        const char *strategy;
        const struct op *before;
    } cases[] = { { "single", &op_row_sum }, { "ps", &op_push } };

    for (int i = 0; i < 2; i++) {
        struct graph *graph = graph_after("nbow", cases[i].strategy, 1, 1);
        const struct node *clip = only(graph, &op_clip_norm);
        int rows = 0;

        CHECK_INT(0, count_op(graph, &op_embedding_grad));
        CHECK_INT(1, count_op(graph, &op_row_sum));
        for (int n = 0; n < clip->n_in; n++)
            rows +=
                clip->in[n]->form == VALUE_ROWS && clip->in[n]->maker->op == cases[i].before;
        CHECK_INT(1, rows);
        graph_destroy(graph);
    }
}

static void test_clipping_looks_at_every_bucket(void)
{
    struct graph *graph = graph_after("mlp", "mirrored", 2, 1.5F);

    for (int n = 0; n < graph_node_count(graph); n++) {
        const struct node *node = graph_node(graph, n);
        if (node->op == &op_clip_norm) {
            CHECK_INT(pass_bucket_count(graph), node->n_in);
            CHECK(node->in[0]->maker->op == &op_reduce_scatter);
        }
        if (node->op == &op_sgd_update)
            CHECK(node->in[node->n_in - 1]->maker->op == &op_clip_norm);
    }
    CHECK_INT(1, count_op(graph, &op_clip_norm));
    graph_destroy(graph);
}

/* Updates of what is trained read the anchor's output, running averages the sum; norms are refused. */
static void test_anchored_updates(void)
{
    const struct model *model = model_find("resnet18");
    struct model_config model_config = model_defaults(model);
    struct pass_config config = config_for(1, 0);
    const struct pass *const *passes = strategy_find("single")->passes;
    struct graph *graph;

    config.anchored = true;
    config.mu = 0.5F;
    CHECK_OK(model_build(model, &model_config, &graph));
    CHECK_OK(pass_run(graph, passes, &config, NULL));
    for (int n = 0; n < graph_node_count(graph); n++) {
        const struct node *node = graph_node(graph, n);
        if (node->op == &op_average_update)
            CHECK(node->in[1]->maker->op == &op_shard_sum);
        if (node->op != config.optim.optimizer->op)
            continue;
        const struct node *anchor = node->in[1]->maker;
        CHECK(anchor->op == &op_anchor && anchor->in[1] == node->in[0]);
        CHECK(anchor->attrs.weight_decay == 0.5F && anchor->attrs.bucket == node->attrs.bucket);
        CHECK(anchor->in[0]->maker->op == &op_shard_sum);
    }
    CHECK_INT(count_op(graph, config.optim.optimizer->op), count_op(graph, &op_anchor));
    graph_destroy(graph);
    config.optim.attrs.max_norm = 1;
    CHECK_OK(model_build(model, &model_config, &graph));
    CHECK_STATUS(STATUS_USAGE, pass_run(graph, passes, &config, NULL));
    CHECK_MESSAGE("anchor");
    graph_destroy(graph);
}

static struct graph *graph_with(const char *optimizer, const char *model_name)
{
    const struct model *model = model_find(model_name);
    struct model_config model_config = model_defaults(model);
    struct pass_config config = config_for(2, 1);
    struct graph *graph;

    config.factors = true;
    config.optim.optimizer = optim_find(optimizer);
    config.optim.attrs = config.optim.optimizer->defaults;
    model_config.batch = config.batch;
    CHECK_OK(model_build(model, &model_config, &graph));
    CHECK_OK(pass_run(graph, strategy_find("mirrored")->passes, &config, NULL));
    return graph;
}

/* A ratio a parameter, of what the ranks have summed; nothing is made from factors or rows. */
static void test_lars_and_lamb_have_a_trust_ratio_a_parameter(void)
{
    static const char *const names[] = { "lars", "lamb" };

    for (int i = 0; i < 2; i++) {
        struct graph *graph = graph_with(names[i], "mlp");
        const int buckets = pass_bucket_count(graph);
        int64_t ratios = 0, params = 0;

        for (int n = 0; n < graph_node_count(graph); n++) {
            const struct node *node = graph_node(graph, n);
            if (node->op != &op_trust_ratio)
                continue;
            ratios += shape_count(&node->out[0]->shape);
            CHECK(node->in[1]->maker->op == (i == 0 ? &op_reduce_scatter : &op_lamb_direction));
        }
        for (int v = 0; v < graph_value_count(graph); v++)
            params += graph_value(graph, v)->kind == VALUE_PARAM;
        CHECK_INT(params, ratios);
        CHECK_INT(buckets, count_op(graph, i == 0 ? &op_lars_update : &op_lamb_update));
        CHECK_INT(buckets, count_op(graph, &op_all_gather));
        CHECK_INT(0, count_op(graph, &op_factor_sum));
        graph_destroy(graph);
        graph = graph_with(names[i], "nbow");
        CHECK_INT(0, count_op(graph, &op_row_sum));
        graph_destroy(graph);
    }
}

static void test_a_batch_that_does_not_divide_is_refused(void)
{
    const struct model *model = model_find("mlp");
    struct model_config model_config = model_defaults(model);
    struct pass_config config = config_for(1, 0);
    struct graph *graph;

    config.shards = 3;
    CHECK_OK(model_build(model, &model_config, &graph));
    CHECK_STATUS(STATUS_USAGE, pass_run(graph, strategy_find("single")->passes, &config, NULL));
    CHECK_MESSAGE("not divisible");
    graph_destroy(graph);
}

/* A place in the order. */
static int order_of(const struct graph *graph, const struct node *wanted)
{
    int n = 0;

    while (graph_node(graph, n) != wanted)
        n++;
    return n;
}

/* The first node of a phase that reads a bucket's parameters; NULL: none. */
static const struct node *first_reader(const struct graph *graph, int bucket, enum phase phase)
{
    const struct value *flat = pass_bucket_value(graph, bucket, "param");

    for (int n = 0; n < graph_node_count(graph); n++) {
        const struct node *node = graph_node(graph, n);
        for (int i = 0; node->phase == phase && i < node->n_in; i++) {
            if (node->in[i]->kind == VALUE_PARAM && node->in[i]->flat == flat)
                return node;
        }
    }
    return NULL;
}

/* Each bucket is gathered just before its first reader in forward and in backward, and nowhere else; averages are
 * not. */
static void test_zero_gathers_before_first_readers(void)
{
    const struct model *model = model_find("resnet18");
    struct model_config model_config = model_defaults(model);
    struct pass_config config = config_for(4, 0);
    struct graph *graph;
    int gathers = 0;

    config.zero = 3;
    config.factors = false;
    model_config.batch = config.batch;
    CHECK_OK(model_build(model, &model_config, &graph));
    CHECK_OK(pass_run(graph, strategy_find("zero")->passes, &config, NULL));
    for (int n = 0; n < graph_node_count(graph); n++) {
        const struct node *node = graph_node(graph, n);
        if (node->op != &op_all_gather)
            continue;
        const bool is_average = pass_bucket_is_average(graph, node->attrs.bucket);
        CHECK(is_average == (node->phase == PHASE_UPDATE));
        if (is_average)
            continue;
        const struct node *reader = first_reader(graph, node->attrs.bucket, node->phase);
        int next = n;
        while (graph_node(graph, next)->op == &op_all_gather)
            next++;
        CHECK(reader && order_of(graph, reader) == next);
        gathers++;
    }
    int readers = 0;
    for (int b = 0; b < pass_bucket_count(graph); b++)
        readers += (first_reader(graph, b, PHASE_FORWARD) != NULL) +
                   (first_reader(graph, b, PHASE_BACKWARD) != NULL);
    CHECK(gathers > 10);
    CHECK_INT(readers, gathers);
    graph_destroy(graph);

    config.zero = 2; /* as without */
    CHECK_OK(model_build(model, &model_config, &graph));
    CHECK_OK(pass_run(graph, strategy_find("zero")->passes, &config, NULL));
    CHECK_INT(pass_bucket_count(graph), count_op(graph, &op_all_gather));
    graph_destroy(graph);
}

static void test_verification_names_a_broken_node(void)
{
    struct graph *graph = graph_after("mlp", "single", 1, 0);
    struct node *node = graph_node(graph, 1);

    node->in[0] = graph_node(graph, 4)->out[0];
    CHECK_STATUS(STATUS_MISMATCH, graph_verify(graph));
    CHECK_MESSAGE(node->name);
    graph_destroy(graph);
}

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
        CHECK_INT(0, count_op(graph, &op_add) + count_op(graph, &op_relu) +
                         count_op(graph, &op_relu6));
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
        CHECK_INT(1, count_op(graph, &op_add));
        CHECK_INT(0, count_op(graph, &op_relu));
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
    struct pass_config config = config_for(1, 0);
    struct graph *graph = mobilenet_after(&config);
    const int normed =
        count_op(graph, &op_norm_conv2d) + count_op(graph, &op_norm_conv2d_stats);

    CHECK_INT(52, normed + count_op(graph, &op_batch_norm));
    CHECK(normed >= 33);
    CHECK_INT(normed,
              count_op(graph, &op_conv2d_stats) + count_op(graph, &op_norm_conv2d_stats));
    CHECK_INT(count_op(graph, &op_batch_norm), count_op(graph, &op_batch_norm_grad));
    CHECK_INT(count_op(graph, &op_norm_conv2d_stats),
              count_op(graph, &op_norm_conv2d_stats_grad));
    const struct value *seen = graph_find_value(graph, "features.3.conv.1.1.running_var");
    CHECK(seen->gradient->maker->op == &op_norm_conv2d_stats);
    CHECK_TEXT("features.3.conv.1.0", seen->gradient->maker->name);
    graph_destroy(graph);

    config.apart = true;
    graph = mobilenet_after(&config);
    CHECK_INT(52, count_op(graph, &op_batch_norm));
    graph_destroy(graph);
    config.epilogues = true; /* 16 blocks have a 1x1 before their depthwise convolution */
    graph = mobilenet_after(&config);
    CHECK_INT(36, count_op(graph, &op_batch_norm));
    CHECK_INT(16, count_op(graph, &op_norm_conv2d));
    CHECK_INT(16, count_op(graph, &op_conv2d_stats));
    CHECK_INT(0, count_op(graph, &op_norm_conv2d_stats));
    graph_destroy(graph);
    config.apart = config.epilogues = false;
    config.norms_apart = true;
    graph = mobilenet_after(&config);
    CHECK_INT(52, count_op(graph, &op_batch_norm));
    graph_destroy(graph);
    config.norms_apart = false;
    config.sync_norm = true;
    graph = mobilenet_after(&config);
    CHECK_INT(52, count_op(graph, &op_batch_norm_normalize));
    graph_destroy(graph);
}

/* Statistics are a shard's own, what it saw of the averages is a summand. */
static void test_batch_norm_is_split_by_shards(void)
{
    const struct pass_config config = config_for(1, 0);
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
    struct pass_config config = config_for(1, 0);
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

    CHECK_INT(7, count_op(graph, &op_conv2d_stats));
    CHECK_INT(7, count_op(graph, &op_batch_norm_normalize));
    CHECK_INT(13, count_op(graph, &op_batch_norm));
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
    CHECK_INT(20, count_op(graph, &op_batch_norm_grad));
    CHECK_INT(0, count_op(graph, &op_add));
    CHECK_INT(8, sums);
    CHECK_INT(9, by_beta);
    graph_destroy(graph);
}

static struct graph *synchronized_resnet(bool recompute, const char *last)
{
    const struct model *model = model_find("resnet18");
    struct model_config model_config = model_defaults(model);
    struct pass_config config = config_for(1, 0);
    struct graph *graph;

    config.sync_norm = true;
    config.recompute = recompute;
    model_config.batch = config.batch;
    CHECK_OK(model_build(model, &model_config, &graph));
    CHECK_INT(20, count_op(graph, &op_batch_norm));
    CHECK_OK(pass_run(graph, strategy_find("single")->passes, &config, last));
    return graph;
}

static void test_synchronized_batch_norm_meets_twice_a_layer(void)
{
    struct graph *graph = synchronized_resnet(false, NULL);

    CHECK_INT(0, count_op(graph, &op_batch_norm) + count_op(graph, &op_batch_norm_grad));
    CHECK_INT(20, count_op(graph, &op_batch_norm_stats));
    CHECK_INT(20, count_op(graph, &op_batch_norm_join));
    CHECK_INT(20, count_op(graph, &op_batch_norm_normalize));
    CHECK_INT(20, count_op(graph, &op_batch_norm_grad_sums));
    CHECK_INT(20, count_op(graph, &op_batch_norm_grad_spread));
    CHECK_INT(40, count_op(graph, &op_shard_gather));
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
    struct pass_config config = config_for(1, 0);
    struct graph *graph;

    config.sync_norm = true;
    CHECK_OK(graph_create("batch norm", &graph));
    struct value *x = graph_input(graph, "x", DTYPE_F32, shape_4(config.batch, 3, 2, 2));
    struct value *y = build_batch_norm(graph, "bn", x, true);
    build_classifier_loss(graph, build_linear(graph, "fc", y, 5),
                          graph_input(graph, "labels", DTYPE_I32, shape_1(config.batch)));
    CHECK_OK(pass_run(graph, strategy_find("single")->passes, &config, NULL));
    CHECK_INT(1, count_op(graph, &op_shard_gather));
    CHECK_INT(1, count_op(graph, &op_batch_norm_grad_sums));
    CHECK_INT(0, count_op(graph, &op_batch_norm_grad_spread));
    graph_destroy(graph);
}

/* What is made again is made without the other shards, from what they said the first time. */
static void test_recomputing_meets_nobody_again(void)
{
    struct graph *graph = synchronized_resnet(true, "recompute");
    int copies = 0;

    CHECK_INT(40, count_op(graph, &op_shard_gather));
    CHECK_INT(20, count_op(graph, &op_batch_norm_stats));
    CHECK(count_op(graph, &op_batch_norm_normalize) > 20);
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
    const struct pass_config config = config_for(1, 0);
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
    const int64_t width = 384, rows = config_for(1, 0).batch / config_for(1, 0).shards * 8;

    CHECK(rows < width); /* logits of a shard are smaller than the table */
    CHECK_INT(1, steps_to_the_addition(5000));
    CHECK(steps_to_the_addition(20) > 10); /* but then what goes into the layer counts */
}

const struct test tests[] = {
    { .name = "workers that train alone meet after updates",
      .run = test_workers_that_train_alone_meet_after_updates },
    { .name = "a tied table's gradient is made late if it is large",
      .run = test_a_tied_tables_gradient_is_made_late_if_it_is_large },
    { .name = "fusion leaves no bias, relu or pool of the cnn",
      .run = test_fusion_leaves_no_bias_relu_or_pool_of_the_cnn },
    { .name = "products end with more if asked", .run = test_products_end_with_more_if_asked },
    { .name = "filters lie inward if asked", .run = test_filters_lie_inward_if_asked },
    { .name = "pools stay apart if asked", .run = test_pools_stay_apart_if_asked },
    { .name = "fusion leaves no sequence of filters in memory",
      .run = test_fusion_leaves_no_sequence_of_filters_in_memory },
    { .name = "the first of many buckets is small",
      .run = test_the_first_of_many_buckets_is_small },
    { .name = "a single step has one update a bucket",
      .run = test_a_single_step_has_one_update_a_bucket },
    { .name = "a gradient that was handed on is not added to",
      .run = test_a_gradient_that_was_handed_on_is_not_added_to },
    { .name = "two layers with one gradient sum it in one order",
      .run = test_two_layers_with_one_gradient_sum_it_in_one_order },
    { .name = "mirroring adds collectives and nothing else",
      .run = test_mirroring_adds_collectives_and_nothing_else },
    { .name = "serving puts updates between push and pull",
      .run = test_serving_puts_updates_between_push_and_pull },
    { .name = "serving refuses what needs whole parameters",
      .run = test_serving_refuses_what_needs_whole_parameters },
    { .name = "parallax takes the cheapest way", .run = test_parallax_takes_the_cheapest_way },
    { .name = "a table has a gradient of rows and a bucket of its own",
      .run = test_a_table_has_a_gradient_of_rows_and_a_bucket_of_its_own },
    { .name = "clipping takes rows as they are", .run = test_clipping_takes_rows_as_they_are },
    { .name = "clipping looks at every bucket", .run = test_clipping_looks_at_every_bucket },
    { .name = "updates see the anchor, if asked", .run = test_anchored_updates },
    { .name = "lars and lamb have a trust ratio a parameter",
      .run = test_lars_and_lamb_have_a_trust_ratio_a_parameter },
    { .name = "a batch that does not divide is refused",
      .run = test_a_batch_that_does_not_divide_is_refused },
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
    { .name = "zero gathers before first readers",
      .run = test_zero_gathers_before_first_readers },
    { .name = "verification names a broken node",
      .run = test_verification_names_a_broken_node },
    { 0 },
};
