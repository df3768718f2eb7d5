/* SPDX-License-Identifier: MIT */
/* demand_test.c - operations and bytes of small graphs are those that one counts by hand. */
#include "exec/demand.h"

#include "base/test.h"
#include "graph/build.h"
#include "graph/op.h"
#include "model/model.h"
#include "pass/strategy.h"

enum { ROWS = 8, PIXELS = 36, CLASSES = 3 };

static void build_layer(struct graph *graph, const struct model_config *config,
                        struct value *input, struct value *target)
{
    (void)config;
    build_classifier_loss(graph, build_linear(graph, "fc", input, CLASSES), target);
}

static const struct model layer = { .name = "layer", .build = build_layer };

static struct graph *make_graph_of(struct optim_config optim, int64_t shards)
{
    struct model_config config = model_defaults(&layer);
    struct graph *graph;

    config.sample = (struct shape){ 3, { 1, 6, 6 } };
    config.classes = CLASSES;
    config.training = true;
    config.batch = ROWS * shards;
    const struct pass_config passes = {
        .batch = config.batch, .shards = shards, .ranks = 1, .optim = optim
    };
    CHECK_OK(model_build(&layer, &config, &graph));
    CHECK_OK(pass_run(graph, strategy_find("single")->passes, &passes, NULL));
    return graph;
}

static struct graph *make_graph(const char *optimizer, double momentum, int64_t shards)
{
    struct optim_config optim = { .optimizer = optim_find(optimizer) };

    optim.attrs.momentum = (float)momentum;
    return make_graph_of(optim, shards);
}

static struct demand demand_of(const char *optimizer, double momentum, int64_t shards,
                               enum dtype precision)
{
    struct graph *graph = make_graph(optimizer, momentum, shards);
    struct demand demand = { 0 };

    CHECK_OK(demand_read(graph, precision, &demand));
    graph_destroy(graph);
    return demand;
}

/* Elements that updates of a graph move: parameters, filled up to whole lines, or pieces. */
static double updated_by(const struct graph *graph)
{
    double count = 0;

    for (int n = 0; n < graph_node_count(graph); n++) {
        const struct node *node = graph_node(graph, n);
        if (node->phase == PHASE_UPDATE && node->op != &op_clip_norm)
            count += (double)shape_count(&node->out[0]->shape);
    }
    return count;
}

static double updated(const char *optimizer)
{
    struct graph *graph = make_graph(optimizer, 0, 1);
    const double count = updated_by(graph);

    graph_destroy(graph);
    return count;
}

static void test_a_layer_reads_its_inputs_and_writes_its_outputs_once(void)
{
    const double x = ROWS * PIXELS, y = ROWS * CLASSES, w = CLASSES * PIXELS, b = CLASSES;
    const double products = 2 * 2 * y * PIXELS; /* forward, and dw: nobody wants dx */
    const double params = updated("sgd");
    const double words = x + w + b + y          /* y */
                         + y + ROWS + 1 + y     /* loss and probabilities, of y and labels */
                         + y + ROWS + 1         /* correct answers */
                         + y + ROWS + y         /* dy of probabilities and labels */
                         + x + y + w + b        /* dw and db */
                         + 2 * params + params; /* gradients too are read, not written */
    const struct demand demand = demand_of("sgd", 0, 1, DTYPE_F32);

    CHECK(params >= w + b);
    CHECK_CLOSE(4 * words, demand.bytes, 0);
    /* Ops say themselves what losses and updates cost, which is little. */
    CHECK_CLOSE(products + 21 * y + 6 * params, demand.flops, 0);
}

static void test_state_is_read_and_written(void)
{
    const double plain = demand_of("sgd", 0, 1, DTYPE_F32).bytes;
    const double momentum = demand_of("sgd", 0.9, 1, DTYPE_F32).bytes;
    const double adam = demand_of("adam", 0, 1, DTYPE_F32).bytes;

    CHECK_CLOSE(2 * 4 * updated("sgd"), momentum - plain, 0);
    CHECK_CLOSE(2 * 2 * 4 * updated("sgd"), adam - plain, 0);
}

static void test_clipping_reads_gradients_once_more(void)
{
    const double plain = demand_of("sgd", 0, 1, DTYPE_F32).bytes, few = updated("sgd");
    struct optim_config optim = { .optimizer = optim_find("sgd") };
    struct demand clipped = { 0 };

    optim.attrs.max_norm = 1;
    struct graph *graph = make_graph_of(optim, 1);
    const double all = updated_by(graph); /* parameters begin with pieces then */
    CHECK_OK(demand_read(graph, DTYPE_F32, &clipped));
    graph_destroy(graph);
    CHECK(all > few);
    /* And a factor is written and read. */
    CHECK_CLOSE(4 * (3 * (all - few) + all + 2), clipped.bytes - plain, 0);
}

static void test_half_precision_halves_activations_and_adds_a_copy_of_parameters(void)
{
    const double x = ROWS * PIXELS, y = ROWS * CLASSES, w = CLASSES * PIXELS, b = CLASSES;
    const struct demand wide = demand_of("sgd", 0, 1, DTYPE_F32);
    const struct demand half = demand_of("sgd", 0, 1, DTYPE_BF16);
    const double saved = 2 * (2 * x + 7 * y + w + b); /* gradients of w and b stay f32 */

    CHECK_CLOSE(wide.flops, half.flops, 0);
    CHECK_CLOSE(saved - 2 * updated("sgd"), wide.bytes - half.bytes, 0);
    CHECK_CLOSE(half.bytes, demand_of("sgd", 0, 1, DTYPE_F16).bytes, 0);
}

static void test_it_is_of_one_shard(void)
{
    const struct demand one = demand_of("sgd", 0.9, 1, DTYPE_F32);
    const struct demand several = demand_of("sgd", 0.9, 4, DTYPE_F32);

    CHECK_CLOSE(one.flops, several.flops, 0);
    CHECK_CLOSE(one.bytes, several.bytes, 0);
}

/* Ids pick rows of a table of 1000: no more rows than ids are read, summed and updated. */
static double bytes_of_table(int64_t samples, int64_t rows)
{
    struct optim_config optim = { .optimizer = optim_find("adam") };
    const struct model *nbow = model_find("nbow");
    struct model_config config = model_defaults(nbow);
    struct demand demand = { 0 };
    struct graph *graph;

    config.training = true;
    config.batch = samples;
    config.vocab[0] = rows;
    config.length[0] = 5;
    const struct pass_config passes = {
        .batch = samples, .shards = 1, .ranks = 1, .optim = optim
    };
    CHECK_OK(model_build(nbow, &config, &graph));
    CHECK_OK(pass_run(graph, strategy_find("single")->passes, &passes, NULL));
    CHECK_OK(demand_read(graph, DTYPE_F32, &demand));
    graph_destroy(graph);
    return demand.bytes;
}

static void test_rows_that_nobody_picks_are_not_counted(void)
{
    CHECK_CLOSE(bytes_of_table(4, 1000), bytes_of_table(4, 100000), 0.01);
    CHECK(bytes_of_table(400, 1000) > 1.3 * bytes_of_table(400, 300));
    CHECK(bytes_of_table(4, 1000) < 0.1 * bytes_of_table(400, 1000));
}

const struct test tests[] = {
    { .name = "a layer reads its inputs and writes its outputs once",
      .run = test_a_layer_reads_its_inputs_and_writes_its_outputs_once },
    { .name = "state is read and written", .run = test_state_is_read_and_written },
    { .name = "clipping reads gradients once more",
      .run = test_clipping_reads_gradients_once_more },
    { .name = "half precision halves activations and adds a copy of parameters",
      .run = test_half_precision_halves_activations_and_adds_a_copy_of_parameters },
    { .name = "it is of one shard", .run = test_it_is_of_one_shard },
    { .name = "rows that nobody picks are not counted",
      .run = test_rows_that_nobody_picks_are_not_counted },
    { 0 },
};
