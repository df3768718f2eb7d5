/* SPDX-License-Identifier: MIT */
/* pass_test.c - what passes make of a step's gradients: buckets, sums, updates, and what ranks and
 * servers do together. */
#include <stdio.h>

#include "base/test.h"
#include "graph/build.h"
#include "graph/op.h"
#include "model/model.h"
#include "pass/pass_testing.h"
#include "pass/strategy.h"

static void test_a_single_step_has_one_update_a_bucket(void)
{
    struct graph *graph = pass_testing_graph("mlp", "single", 1, 0);

    CHECK_INT(2, pass_bucket_count(graph));
    CHECK_INT(2, pass_testing_count(graph, &op_sgd_update));
    CHECK_INT(4, pass_testing_count(graph, &op_shard_sum)); /* two buckets, loss, accuracy */
    CHECK_INT(0, pass_testing_count(graph, &op_reduce_scatter) +
                     pass_testing_count(graph, &op_all_gather));
    CHECK_INT(16, graph_roles(graph)->output->shape.dim[0]);
    graph_destroy(graph);
}

/* So that its exchange begins early; where there are few it would only be one more. */
static void test_the_first_of_many_buckets_is_small(void)
{
    struct pass_config config = pass_testing_config(1, 0);
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
    struct graph *single = pass_testing_graph("cnn", "single", 1, 0);
    struct graph *mirrored = pass_testing_graph("cnn", "mirrored", 2, 0);
    const int buckets = pass_bucket_count(single);

    CHECK_INT(buckets, pass_testing_count(mirrored, &op_reduce_scatter));
    CHECK_INT(buckets, pass_testing_count(mirrored, &op_all_gather));
    CHECK_INT(2, pass_testing_count(mirrored, &op_all_reduce));
    CHECK_INT(graph_node_count(single) + 2 * buckets + 2, graph_node_count(mirrored));
    graph_destroy(single);
    graph_destroy(mirrored);
}

/* All readers have the one copy: what was updated in parts goes nowhere. */
static void test_one_copy_is_mirrored_without_the_last_gather(void)
{
    struct graph *mirrored = pass_testing_graph("resnet18", "mirrored", 2, 0);
    struct graph *graph = pass_testing_graph("resnet18", "central", 2, 0);
    const int buckets = pass_bucket_count(graph);

    CHECK_INT(buckets, pass_testing_count(graph, &op_reduce_scatter));
    CHECK_INT(2, pass_testing_count(graph, &op_all_reduce));
    CHECK_INT(0, pass_testing_count(graph, &op_all_gather));
    CHECK_INT(buckets, pass_testing_count(mirrored, &op_all_gather));
    CHECK_INT(graph_node_count(mirrored) - buckets, graph_node_count(graph));
    graph_destroy(mirrored);
    graph_destroy(graph);
}

/* Gathers of factors and of sparse rows cross nodes; what each node makes of them stays there. */
static void check_levels(const struct graph *graph)
{
    for (int n = 0; n < graph_node_count(graph); n++) {
        const struct node *node = graph_node(graph, n);
        const struct node *before = node->n_in ? node->in[0]->maker : NULL;
        const bool is_late = node->op == &op_all_gather && node->phase == PHASE_UPDATE;
        const struct op *sum = is_late ? before->in[1]->maker->op : NULL;
        const bool is_exchange = node->op == &op_reduce_scatter || node->op == &op_all_reduce ||
                                 node->op == &op_all_gather || node->op == &op_shard_gather;
        CHECK(node->attrs.between_nodes ==
              (is_exchange && sum != &op_factor_sum && sum != &op_row_sum));
    }
}

static void test_exchanges_between_nodes_are_a_level(void)
{
    static const char *const models[] = { "mlp", "nbow", "vgg11_bn" };

    for (int m = 0; m < 3; m++) {
        struct pass_config config = pass_testing_config(4, 0);
        config.factors = true;
        config.sync_norm = m == 2;
        struct graph *graph = pass_testing_graph_with(models[m], "multiworker", &config);
        struct graph *mirrored = pass_testing_graph_with(models[m], "mirrored", &config);
        check_levels(graph);
        CHECK_INT(graph_node_count(mirrored), graph_node_count(graph));
        for (int n = 0; n < graph_node_count(mirrored); n++)
            CHECK(!graph_node(mirrored, n)->attrs.between_nodes);
        graph_destroy(mirrored);
        graph_destroy(graph);
    }
}

static void test_workers_that_train_alone_meet_after_updates(void)
{
    struct graph *single = pass_testing_graph("resnet18", "single", 1, 0);
    struct graph *graph = pass_testing_graph("resnet18", "localsgd", 2, 0);
    const int buckets = pass_bucket_count(single);

    CHECK_INT(graph_node_count(single) + buckets, graph_node_count(graph));
    CHECK_INT(buckets, pass_testing_count(graph, &op_worker_mean)); /* running averages, too */
    for (int n = 0; n < graph_node_count(graph); n++) {
        const struct node *node = graph_node(graph, n);
        if (node->op == &op_worker_mean)
            CHECK(node->in[0]->maker->op == &op_sgd_update ||
                  node->in[0]->maker->op == &op_average_update);
    }
    graph_destroy(single);
    graph_destroy(graph);
}

static const struct pass *const gossiping[] = { &pass_gossip, NULL };

static void check_offsets(enum pass_neighbors neighbors, int ranks, const char *expected)
{
    struct pass_config config = pass_testing_config(ranks, 0);
    struct graph *graph = pass_testing_graph("mlp", "single", 1, 0);
    struct strbuf offsets;

    config.neighbors = neighbors;
    CHECK_OK(pass_run(graph, gossiping, &config, NULL));
    strbuf_init(&offsets, 1024);
    for (int n = 0; n < graph_node_count(graph); n++) {
        const struct node *node = graph_node(graph, n);
        if (node->op != &op_worker_mean || node->attrs.bucket > 0)
            continue;
        for (int i = 0; i < node->attrs.n_offsets; i++)
            strbuf_printf(&offsets, "%d ", node->attrs.offset[i]);
    }
    CHECK_TEXT(expected, offsets.text);
    strbuf_release(&offsets);
    graph_destroy(graph);
}

static void test_gossip_names_neighbors(void)
{
    check_offsets(NEIGHBORS_RING, 1, "");
    check_offsets(NEIGHBORS_RING, 2, "1 ");
    check_offsets(NEIGHBORS_RING, 5, "1 4 ");
    check_offsets(NEIGHBORS_EXPONENTIAL, 2, "1 ");
    check_offsets(NEIGHBORS_EXPONENTIAL, 5, "1 2 4 ");
    check_offsets(NEIGHBORS_EXPONENTIAL, 256, "1 2 4 8 16 32 64 128 ");
}

static const struct pass *const serving[] = { &pass_serve, NULL };

/* What a worker of several, with servers, runs. */
static struct graph *served(const char *model)
{
    const struct pass_config config = pass_testing_config(2, 0);
    struct graph *graph = pass_testing_graph(model, "single", 2, 0);

    CHECK_OK(pass_run(graph, serving, &config, NULL));
    return graph;
}

static void test_serving_puts_updates_between_push_and_pull(void)
{
    struct graph *single = pass_testing_graph("nbow", "single", 1, 0);
    struct graph *graph = served("nbow");
    const int buckets = pass_bucket_count(single);
    int rows = 0;

    CHECK_INT(graph_node_count(single) + 2 * buckets, graph_node_count(graph));
    CHECK_INT(buckets, pass_testing_count(graph, &op_push));
    CHECK_INT(buckets, pass_testing_count(graph, &op_pull));
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

/* Checks every push and pull. */
static void check_synchrony(const char *strategy, enum attr_when applied,
                            enum attr_when answered, int bound)
{
    struct pass_config config = pass_testing_config(2, 0);

    config.bound = 4;
    struct graph *graph = pass_testing_graph_with("nbow", strategy, &config);
    CHECK(pass_testing_count(graph, &op_push) > 1);
    for (int n = 0; n < graph_node_count(graph); n++) {
        const struct node *node = graph_node(graph, n);
        if (node->op == &op_push)
            CHECK(node->attrs.when == applied && node->attrs.bound == 0);
        else if (node->op == &op_pull)
            CHECK(node->attrs.when == answered && node->attrs.bound == bound);
        else
            CHECK(node->attrs.when == WHEN_UNSTATED);
    }
    graph_destroy(graph);
}

static void test_pushes_and_pulls_state_the_degree_of_synchrony(void)
{
    check_synchrony("ps", WHEN_STEP, WHEN_STEP, 0);
    check_synchrony("asgd", WHEN_AT_ONCE, WHEN_AT_ONCE, 0);
    check_synchrony("ssp", WHEN_AT_ONCE, WHEN_BOUNDED, 4);
}

static void test_serving_refuses_what_needs_whole_parameters(void)
{
    struct pass_config config = pass_testing_config(2, 0);
    struct graph *graph = pass_testing_graph("mlp", "single", 2, 0);

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
    struct pass_config config = pass_testing_config(network.nodes, 0);
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
    *pushes = pass_testing_count(graph, &op_push);
    CHECK_INT(*pushes, pass_testing_count(graph, &op_pull));
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

    CHECK_INT(1, pass_testing_count(graph, op));
    for (int n = 0; n < graph_node_count(graph); n++)
        found = graph_node(graph, n)->op == op ? graph_node(graph, n) : found;
    return found;
}

static void test_a_table_has_a_gradient_of_rows_and_a_bucket_of_its_own(void)
{
    struct graph *single = pass_testing_graph("nbow", "single", 1, 0);
    struct graph *mirrored = pass_testing_graph("nbow", "mirrored", 2, 0);
    const struct value *table = graph_find_value(single, "embedding.weight");

    CHECK_INT(2, pass_bucket_count(single));
    CHECK_INT(shape_count(&table->shape), shape_count(&table->flat->shape));
    CHECK_INT(0, pass_testing_count(single, &op_embedding_grad));
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
        struct graph *graph = pass_testing_graph("nbow", cases[i].strategy, 1, 1);
        const struct node *clip = only(graph, &op_clip_norm);
        int rows = 0;

        CHECK_INT(0, pass_testing_count(graph, &op_embedding_grad));
        CHECK_INT(1, pass_testing_count(graph, &op_row_sum));
        for (int n = 0; n < clip->n_in; n++)
            rows +=
                clip->in[n]->form == VALUE_ROWS && clip->in[n]->maker->op == cases[i].before;
        CHECK_INT(1, rows);
        graph_destroy(graph);
    }
}

static void test_clipping_looks_at_every_bucket(void)
{
    struct graph *graph = pass_testing_graph("mlp", "mirrored", 2, 1.5F);

    for (int n = 0; n < graph_node_count(graph); n++) {
        const struct node *node = graph_node(graph, n);
        if (node->op == &op_clip_norm) {
            CHECK_INT(pass_bucket_count(graph), node->n_in);
            CHECK(node->in[0]->maker->op == &op_reduce_scatter);
        }
        if (node->op == &op_sgd_update)
            CHECK(node->in[node->n_in - 1]->maker->op == &op_clip_norm);
    }
    CHECK_INT(1, pass_testing_count(graph, &op_clip_norm));
    graph_destroy(graph);
}

/* Updates of what is trained read the anchor's output, running averages the sum; norms are refused. */
static void test_anchored_updates(void)
{
    const struct model *model = model_find("resnet18");
    struct model_config model_config = model_defaults(model);
    struct pass_config config = pass_testing_config(1, 0);
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
    CHECK_INT(pass_testing_count(graph, config.optim.optimizer->op),
              pass_testing_count(graph, &op_anchor));
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
    struct pass_config config = pass_testing_config(2, 1);
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
        CHECK_INT(buckets,
                  pass_testing_count(graph, i == 0 ? &op_lars_update : &op_lamb_update));
        CHECK_INT(buckets, pass_testing_count(graph, &op_all_gather));
        CHECK_INT(0, pass_testing_count(graph, &op_factor_sum));
        graph_destroy(graph);
        graph = graph_with(names[i], "nbow");
        CHECK_INT(0, pass_testing_count(graph, &op_row_sum));
        graph_destroy(graph);
    }
}

static void test_a_batch_that_does_not_divide_is_refused(void)
{
    const struct model *model = model_find("mlp");
    struct model_config model_config = model_defaults(model);
    struct pass_config config = pass_testing_config(1, 0);
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

/* Each bucket is gathered just before its first reader in forward and in backward, and nowhere
 * else; averages are not. */
static void test_zero_gathers_before_first_readers(void)
{
    const struct model *model = model_find("resnet18");
    struct model_config model_config = model_defaults(model);
    struct pass_config config = pass_testing_config(4, 0);
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
    CHECK_INT(pass_bucket_count(graph), pass_testing_count(graph, &op_all_gather));
    graph_destroy(graph);
}

static void test_verification_names_a_broken_node(void)
{
    struct graph *graph = pass_testing_graph("mlp", "single", 1, 0);
    struct node *node = graph_node(graph, 1);

    node->in[0] = graph_node(graph, 4)->out[0];
    CHECK_STATUS(STATUS_MISMATCH, graph_verify(graph));
    CHECK_MESSAGE(node->name);
    graph_destroy(graph);
}

const struct test tests[] = {
    { .name = "gossip names neighbors", .run = test_gossip_names_neighbors },
    { .name = "workers that train alone meet after updates",
      .run = test_workers_that_train_alone_meet_after_updates },
    { .name = "the first of many buckets is small",
      .run = test_the_first_of_many_buckets_is_small },
    { .name = "a single step has one update a bucket",
      .run = test_a_single_step_has_one_update_a_bucket },
    { .name = "mirroring adds collectives and nothing else",
      .run = test_mirroring_adds_collectives_and_nothing_else },
    { .name = "one copy is mirrored without the last gather",
      .run = test_one_copy_is_mirrored_without_the_last_gather },
    { .name = "exchanges between nodes are a level",
      .run = test_exchanges_between_nodes_are_a_level },
    { .name = "pushes and pulls state the degree of synchrony",
      .run = test_pushes_and_pulls_state_the_degree_of_synchrony },
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
    { .name = "zero gathers before first readers",
      .run = test_zero_gathers_before_first_readers },
    { .name = "verification names a broken node",
      .run = test_verification_names_a_broken_node },
    { 0 },
};
