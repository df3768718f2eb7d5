/* SPDX-License-Identifier: MIT */
/* pipeline_test.c - a model cut into stages: who has what, and what goes from one to the other. */
#include <stdio.h>
#include <string.h>

#include "base/test.h"
#include "graph/op.h"
#include "model/model.h"
#include "pass/strategy.h"

static const char *const models[] = {
    "cnn", "resnet18", "mobilenet_v2", "seq2seq", "gpt", "mlp"
};

struct given {
    int stages, chunks, own;
    int zero; /* above 0: two pipelines */
    const char *cut;
    const double *costs;
    const struct pass_memory *memory;
    bool names_nodes;
};

static enum status make(const char *name, const struct given *given, struct graph **out)
{
    const struct model *model = model_find(name);
    struct model_config model_config = model_defaults(model);
    const int pipelines = given->zero > 0 ? 2 : 1;
    struct pass_config config = {
        .batch = 8, .shards = 4, .ranks = pipelines, .zero = given->zero
    };

    config.optim.optimizer = optim_find("sgd");
    config.optim.attrs = config.optim.optimizer->defaults;
    config.pipeline = (struct pass_pipeline){ .stages = given->stages,
                                              .chunks = given->chunks ? given->chunks : 1,
                                              .own = given->own,
                                              .cut = given->cut,
                                              .names_nodes = given->names_nodes,
                                              .costs = given->costs,
                                              .memory = given->memory };
    model_config.batch = config.batch;
    CHECK_OK(model_build(model, &model_config, out));
    const struct strategy *strategy = strategy_find(pipelines > 1 ? "hybrid" : "pipeline");
    return pass_run(*out, strategy->passes, &config, NULL);
}

static bool is_shard_node(const struct node *node)
{
    return node->op->split[0] != SPLIT_WHOLE;
}

static int home_of(const struct value *value)
{
    return value->kind == VALUE_RESULT  ? value->maker->stage
           : value->kind == VALUE_INPUT ? -1
                                        : value->stage;
}

/* No node but receive reads what another rank has; segments stand in order; a pair has one slot. */
static void check_moves(const struct graph *graph, const struct given *given)
{
    const int stages = given->stages, pieces = stages * (given->chunks ? given->chunks : 1);
    int segment = 0, sends = 0, receives = 0;

    for (int n = 0; n < graph_node_count(graph); n++) {
        const struct node *node = graph_node(graph, n);
        if (!is_shard_node(node))
            continue;
        CHECK(node->stage >= 0 && node->stage < pieces);
        const int own =
            node->phase == PHASE_FORWARD ? node->stage : 2 * pieces - 1 - node->stage;
        if (!node->attrs.once)
            CHECK(own >= segment);
        segment = node->attrs.once ? segment : own;
        for (int i = 0; i < node->n_in; i++) {
            const int home = home_of(node->in[i]);
            if (node->op == &op_receive) {
                CHECK(node->in[i]->maker->op == &op_send);
                CHECK_INT(node->in[i]->maker->attrs.slot, node->attrs.slot);
                CHECK_INT(home % stages, node->attrs.peer);
                CHECK_INT(node->stage % stages, node->in[i]->maker->attrs.peer);
            } else if (home >= 0 && home % stages != node->stage % stages) {
                test_fail(__FILE__, __LINE__, "%s of stage %d reads %s of stage %d", node->name,
                          node->stage, node->in[i]->name, home);
            }
        }
        sends += node->op == &op_send;
        receives += node->op == &op_receive;
    }
    CHECK(sends == receives && (sends > 0 || pieces == 1));
}

static void test_nodes_read_what_their_rank_has(void)
{
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        for (int stages = 2; stages <= 4; stages++) {
            const int own = stages - 1;
            const struct given given = { .stages = stages, .own = own };
            struct graph *graph;
            if (strcmp(models[i], "mlp") == 0 && stages > 3)
                continue; /* it has three layers */
            CHECK_OK(make(models[i], &given, &graph));
            check_moves(graph, &given);
            graph_destroy(graph);
        }
    }
    const struct given given = { .stages = 2, .chunks = 2 };
    struct graph *graph;
    CHECK_OK(make("gpt", &given, &graph));
    check_moves(graph, &given);
    graph_destroy(graph);
}

/* Every parameter and average lies in a bucket of one rank, and no bucket has two chunks. */
static void test_every_parameter_has_one_rank(void)
{
    enum { STAGES = 3, MOST = 512 };
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        int holders[MOST] = { 0 }, count = 0;
        for (int own = 0; own < STAGES; own++) {
            const struct given given = { .stages = STAGES, .own = own };
            struct graph *graph;
            CHECK_OK(make(models[i], &given, &graph));
            count = 0;
            for (int v = 0; v < graph_value_count(graph); v++) {
                const struct value *value = graph_value(graph, v);
                if (value->kind != VALUE_PARAM && value->kind != VALUE_AVERAGE)
                    continue;
                CHECK(count < MOST);
                CHECK((value->flat != NULL) == (value->stage % STAGES == own));
                holders[count++] += value->flat != NULL;
            }
            graph_destroy(graph);
        }
        for (int p = 0; p < count; p++)
            CHECK_INT(1, holders[p]);
    }
}

static void test_a_bucket_is_of_one_chunk(void)
{
    const struct given given = { .stages = 2, .chunks = 2, .own = 1 };
    struct graph *graph;

    CHECK_OK(make("gpt", &given, &graph));
    for (int v = 0; v < graph_value_count(graph); v++) {
        const struct value *a = graph_value(graph, v);
        for (int w = 0; w < v; w++) {
            const struct value *b = graph_value(graph, w);
            if (a->kind == VALUE_PARAM && b->kind == VALUE_PARAM && a->flat &&
                a->flat == b->flat)
                CHECK_INT(a->stage, b->stage);
        }
    }
    graph_destroy(graph);
}

/* gpt's table is the first layer's, and the last one reads it. */
static void test_a_tied_table_goes_once_a_step(void)
{
    const struct given given = { .stages = 3 };
    struct graph *graph;
    int once = 0, back = 0;

    CHECK_OK(make("gpt", &given, &graph));
    for (int n = 0; n < graph_node_count(graph); n++) {
        const struct node *node = graph_node(graph, n);
        once += node->op == &op_receive && node->attrs.once;
        back += node->op == &op_receive && node->in[0]->part == PART_SUM;
        if (node->attrs.once)
            CHECK(strncmp(node->name, "wte", 3) == 0 || strstr(node->name, "wte"));
    }
    CHECK_INT(1, once);
    CHECK_INT(1, back);
    graph_destroy(graph);
}

/* Pipelines hold each bucket of a stage in parts, but for the one whose table is whole elsewhere, too. */
static void test_what_other_stages_read_stays_whole(void)
{
    for (int stage = 0; stage < 2; stage++) {
        const struct given given = { .stages = 2, .own = stage, .zero = 3 };
        struct graph *graph;
        int gathers = 0;

        CHECK_OK(make("gpt", &given, &graph));
        const struct value *table = graph_find_value(graph, "wte.weight");
        CHECK(table && (table->flat != NULL) == (stage == 0));
        for (int n = 0; n < graph_node_count(graph); n++) {
            const struct node *node = graph_node(graph, n);
            if (node->op != &op_all_gather || node->phase > PHASE_BACKWARD)
                continue;
            gathers++;
            CHECK(node->in[0] != table->flat);
        }
        CHECK(gathers >= 2 && gathers % 2 == 0);
        graph_destroy(graph);
    }
}

static int first_stage_nodes(const char *name, const struct given *given)
{
    struct graph *graph;
    int count = 0;

    CHECK_OK(make(name, given, &graph));
    for (int n = 0; n < graph_node_count(graph); n++) {
        const struct node *node = graph_node(graph, n);
        count += node->phase == PHASE_FORWARD && node->stage == 0 && !node->op->moves &&
                 is_shard_node(node);
    }
    graph_destroy(graph);
    return count;
}

static void test_a_cut_is_where_costs_or_hands_say(void)
{
    enum { NODES = 64 };
    double costs[NODES];

    for (int i = 0; i < NODES; i++)
        costs[i] = i == 0 ? 10 : 1;
    CHECK_INT(1, first_stage_nodes("cnn", &(struct given){ .stages = 2, .costs = costs }));
    costs[0] = 1;
    CHECK(first_stage_nodes("cnn", &(struct given){ .stages = 2, .costs = costs }) > 1);
    CHECK_INT(1, first_stage_nodes("cnn", &(struct given){ .stages = 2, .cut = "conv2" }));
    CHECK(first_stage_nodes("cnn", &(struct given){ .stages = 2, .cut = "fc2" }) > 2);
}

/* The first node costs more than all others, of which two have no room on one rank: one of them goes with it. What has no room anyhow
 * is cut as if there were. */
static void test_a_cut_knows_memory(void)
{
    enum { NODES = 64 };
    double costs[NODES], held[NODES], kept[NODES];
    const double open[2] = { 2, 1 };
    struct pass_memory memory = { .held = held, .kept = kept, .open = open, .most = 1.5 };
    const struct given given = { .stages = 2, .costs = costs, .memory = &memory };
    const struct given any_size = { .stages = 2, .costs = costs };

    for (int i = 0; i < NODES; i++) {
        costs[i] = i == 0 ? 10 : 1;
        held[i] = i == 1 || i == 2 ? 1 : 0;
        kept[i] = 0;
    }
    CHECK_INT(1, first_stage_nodes("cnn", &any_size));
    CHECK_INT(2, first_stage_nodes("cnn", &given));
    memory.most = 0.5;
    CHECK_INT(1, first_stage_nodes("cnn", &given));
    costs[0] = 1;
    const int even = first_stage_nodes("cnn", &any_size);
    for (int i = 0; i < NODES;
         i++) { /* of which the first stage has two shards, the second one */
        held[i] = 0;
        kept[i] = i < even ? 1 : 0;
    }
    memory.most = 2 * even - 1;
    CHECK(first_stage_nodes("cnn", &given) < even);
}

/* People say a layer, programs a node. */
static void test_a_cut_may_name_nodes(void)
{
    const int layer =
        first_stage_nodes("resnet18", &(struct given){ .stages = 2, .cut = "layer2.0" });
    const struct given node = { .stages = 2, .cut = "layer2.0.conv2", .names_nodes = true };
    struct graph *graph;

    CHECK(first_stage_nodes("resnet18", &node) > layer);
    CHECK(make("resnet18", &(struct given){ .stages = 2, .cut = "layer2", .names_nodes = true },
               &graph) != STATUS_OK);
    graph_destroy(graph);
}

static void test_what_cannot_be_cut_is_refused(void)
{
    static const struct {
        const char *model, *text;
        struct given given;
    } rows[] = {
        { "mlp", "more than the layers", { .stages = 4 } },
        { "cnn", "did you mean conv2", { .stages = 2, .cut = "conv22" } },
        { "cnn", "has no layer elephant", { .stages = 2, .cut = "elephant" } },
        { "cnn", "does not come after", { .stages = 3, .cut = "fc1,conv2" } },
        { "cnn", "does not come after", { .stages = 2, .cut = "conv1" } },
        { "cnn",
          "need the first layers of all but the first: 2",
          { .stages = 3, .cut = "fc1" } },
        { "cnn", "need the first layers", { .stages = 2, .cut = "conv2,fc1" } },
        { "mobilenet_v2",
          "has the statistics of the batch norm before it",
          { .stages = 2, .cut = "features.3.conv.1" } },
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct graph *graph;
        CHECK_STATUS(STATUS_USAGE, make(rows[i].model, &rows[i].given, &graph));
        CHECK_MESSAGE(rows[i].text);
        graph_destroy(graph);
    }
}

const struct test tests[] = {
    { .name = "nodes read what their rank has", .run = test_nodes_read_what_their_rank_has },
    { .name = "every parameter has one rank", .run = test_every_parameter_has_one_rank },
    { .name = "a bucket is of one chunk", .run = test_a_bucket_is_of_one_chunk },
    { .name = "a tied table goes once a step", .run = test_a_tied_table_goes_once_a_step },
    { .name = "what other stages read stays whole",
      .run = test_what_other_stages_read_stays_whole },
    { .name = "a cut is where costs or hands say",
      .run = test_a_cut_is_where_costs_or_hands_say },
    { .name = "a cut knows memory", .run = test_a_cut_knows_memory },
    { .name = "a cut may name nodes", .run = test_a_cut_may_name_nodes },
    { .name = "what cannot be cut is refused", .run = test_what_cannot_be_cut_is_refused },
    { 0 },
};
