/* SPDX-License-Identifier: MIT */
/* lower_test.c - graphs of steps are lowered to the tasks that their strategies are known by. */
#include "sched/lower.h"

#include <string.h>

#include "base/test.h"
#include "model/model.h"
#include "pass/pass_testing.h"
#include "pass/strategy.h"

/* What a program does beside forward and backward: a task a line. */
struct expected {
    const char *what, *model, *strategy;
    float max_norm;
    struct lower_config config;
    const char *tasks;
};

#define ONE_NODE .topology = { .nodes = 1, .node_ranks = 2, .lanes = 2 }, .has_steps = true
#define TWO_NODES                                                                              \
    .topology = { .nodes = 2, .node_ranks = 2, .lanes = 2, .rails = 2 }, .has_steps = true

static const struct expected table[] = {
    { .what = "all_reduce in shared memory is one task a bucket",
      .model = "mlp",
      .strategy = "mirrored",
      .config = { ONE_NODE },
      .tasks = "lane.sync shared reduce_scatter+update+all_gather bucket 0\n"
               "lane.sync shared reduce_scatter+update+all_gather bucket 1\n" },
    { .what = "a norm stands between sums and updates",
      .model = "mlp",
      .strategy = "mirrored",
      .max_norm = 1,
      .config = { ONE_NODE },
      .tasks = "lane.sync shared reduce_scatter bucket 0\n"
               "lane.sync shared reduce_scatter bucket 1\n"
               "lane.sync shared norm\n"
               "lane.sync shared update+all_gather bucket 0\n"
               "lane.sync shared update+all_gather bucket 1\n" },
    { .what = "one copy of the parameters is updated in place, and goes nowhere",
      .model = "mlp",
      .strategy = "central",
      .config = { ONE_NODE },
      .tasks = "lane.sync shared reduce_scatter+update bucket 0\n"
               "lane.sync shared reduce_scatter+update bucket 1\n" },
    { .what = "after a norm, too",
      .model = "mlp",
      .strategy = "central",
      .max_norm = 1,
      .config = { ONE_NODE },
      .tasks = "lane.sync shared reduce_scatter bucket 0\n"
               "lane.sync shared reduce_scatter bucket 1\n"
               "lane.sync shared norm\n"
               "lane.sync shared update bucket 0\n"
               "lane.sync shared update bucket 1\n" },
    { .what = "levels say nothing on one node",
      .model = "mlp",
      .strategy = "multiworker",
      .config = { ONE_NODE },
      .tasks = "lane.sync shared reduce_scatter+update+all_gather bucket 0\n"
               "lane.sync shared reduce_scatter+update+all_gather bucket 1\n" },
    { .what = "between nodes parts travel twice",
      .model = "mlp",
      .strategy = "multiworker",
      .config = { TWO_NODES },
      .tasks = "net messages reduce_scatter+update bucket 0\n"
               "net messages all_gather bucket 0\n"
               "net messages reduce_scatter+update bucket 1\n"
               "net messages all_gather bucket 1\n"
               "net messages all_reduce (losses and flags) rail 0\n" },
    { .what = "ZeRO-2 waits for its sends, to give gradients back",
      .model = "mlp",
      .strategy = "zero",
      .config = { TWO_NODES, .releases = true },
      .tasks = "net messages reduce_scatter+update bucket 0\n"
               "net messages all_gather bucket 0\n"
               "net messages barrier bucket 0 (gradients are sent)\n"
               "net messages reduce_scatter+update bucket 1\n"
               "net messages all_gather bucket 1\n"
               "net messages barrier bucket 1 (gradients are sent)\n"
               "net messages all_reduce (losses and flags) rail 0\n" },
    { .what = "compressed gradients are whole on one rail",
      .model = "mlp",
      .strategy = "multiworker",
      .config = { TWO_NODES, .compresses = true },
      .tasks = "net messages all_reduce+update bucket 0 (compressed) rail 0\n"
               "net messages all_gather bucket 0 (no bytes) rail 0\n"
               "net messages all_reduce+update bucket 1 (compressed) rail 1\n"
               "net messages all_gather bucket 1 (no bytes) rail 1\n"
               "net messages all_reduce (losses and flags) rail 0\n" },
    { .what = "rows of a table come from all nodes, and lanes sum them",
      .model = "nbow",
      .strategy = "multiworker",
      .config = { TWO_NODES },
      .tasks = "net messages reduce_scatter+update bucket 0\n"
               "net messages all_gather bucket 0\n"
               "net messages all_gather bucket 1 (sparse rows) rail 0\n"
               "lane.sync shared sum_rows+update+all_gather bucket 1\n"
               "net messages all_reduce (losses and flags) rail 0\n" },
    { .what = "servers get sums",
      .model = "mlp",
      .strategy = "ps",
      .config = { ONE_NODE, .gives = true },
      .tasks = "lane.sync server reduce_scatter+push bucket 0\n"
               "lane.sync server reduce_scatter+push bucket 1\n" },
    { .what = "workers of local SGD average between steps",
      .model = "mlp",
      .strategy = "localsgd",
      .config = { .topology = { .nodes = 1, .node_ranks = 1, .lanes = 2 },
                  .workers = { .count = 4, .index = 1, .nodes = 2 },
                  .has_steps = true },
      .tasks = "lane.sync shared reduce_scatter+update bucket 0\n"
               "lane.sync shared reduce_scatter+update bucket 1\n"
               "host messages all_reduce+average bucket 0\n"
               "host messages all_reduce+average bucket 1\n" },
    { .what = "a center on servers is shown parameters before a step, and gives back after it",
      .model = "logistic",
      .strategy = "easgd",
      .config = { .topology = { .nodes = 1, .node_ranks = 1, .lanes = 2 }, .has_steps = true },
      .tasks = "lane.sync shared reduce_scatter+update bucket 0\n"
               "host server push bucket 0 (parameters, to the center)\n"
               "host server pull bucket 0 (from the center)\n" },
    { .what = "or what each lane has",
      .model = "mlp",
      .strategy = "ps",
      .config = { ONE_NODE, .gives = true, .is_direct = true },
      .tasks = "" },
};

static void print_tasks(const struct program *program, struct strbuf *out)
{
    for (int t = 0; t < program->n_tasks; t++) {
        const struct task *task = &program->tasks[t];
        if (task->place == PLACE_LANE)
            continue;
        strbuf_printf(out, "%s %s ", task_place_name(task->place),
                      task_medium_name(task->medium));
        task_print_name(task, out);
        if (task->rail >= 0)
            strbuf_printf(out, " rail %d", task->rail);
        strbuf_printf(out, "\n");
    }
}

static void test_each_strategy_has_the_tasks_that_it_is_known_by(void)
{
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        const struct expected *e = &table[i];
        struct graph *graph = pass_testing_graph(e->model, e->strategy, 2, e->max_norm);
        struct program *program;
        struct strbuf out;

        strbuf_init(&out, 1 << 16);
        strbuf_printf(&out, "%s\n", e->what);
        CHECK_OK(program_lower(graph, &e->config, &program));
        print_tasks(program, &out);
        const size_t title = strlen(e->what) + 1;
        CHECK_TEXT(e->tasks, out.text + title);
        strbuf_release(&out);
        program_destroy(program);
        graph_destroy(graph);
    }
}

/* The forward and backward of a lane, and where it pulls, sums and pushes. */
static void check_lane(const char *strategy, const char *expected)
{
    struct pass_config passes = pass_testing_config(2, 0);
    const struct lower_config config = { ONE_NODE, .gives = true, .is_direct = true };
    struct program *program;
    struct strbuf out;

    passes.bound = 3;
    struct graph *graph = pass_testing_graph_with("logistic", strategy, &passes);
    strbuf_init(&out, 1 << 16);
    CHECK_OK(program_lower(graph, &config, &program));
    for (int t = 0; t < program->n_tasks; t++) {
        if (program->tasks[t].is_on_demand)
            continue;
        strbuf_printf(&out, "%s", t ? ", " : "");
        task_print_name(&program->tasks[t], &out);
    }
    CHECK_TEXT(expected, out.text);
    strbuf_release(&out);
    program_destroy(program);
    graph_destroy(graph);
}

static void test_lanes_pull_before_they_read_and_push_what_is_final(void)
{
    check_lane("ps", "pull bucket 0 (when all workers have pushed), compute nodes 0 to 4, "
                     "accumulate+push bucket 0");
    check_lane("asgd", "pull bucket 0 (at once), compute nodes 0 to 4, "
                       "accumulate+push bucket 0");
    check_lane("ssp", "pull bucket 0 (slowest worker at most 3 steps behind), compute nodes 0 "
                      "to 4, accumulate+push bucket 0");
}

/* Readers of one copy wait for the update itself. */
static void test_readers_of_one_copy_wait_for_the_update(void)
{
    struct graph *graph = pass_testing_graph("mlp", "central", 2, 0);
    const struct lower_config config = { ONE_NODE };
    struct program *program;

    CHECK_OK(program_lower(graph, &config, &program));
    for (int b = 0; b < program->n_buckets; b++) {
        const struct task *fresh = program_task(program, program->fresh[b]);
        CHECK(fresh && fresh->kind == TASK_REDUCE_SCATTER && fresh->bucket == b);
        CHECK(fresh->does >> TASK_UPDATE & 1 && !(fresh->does >> TASK_ALL_GATHER & 1));
    }
    program_destroy(program);
    graph_destroy(graph);
}

/* The exchange between nodes is the graph's: without it there is no program for several. */
static void test_a_step_within_a_node_is_refused_for_several(void)
{
    static const struct {
        const char *model, *strategy, *text;
    } cases[] = {
        { "mlp", "mirrored", "reduce_scatter has one level, within a node, and the ranks are" },
        { "mlp", "central", "no all_gather brings updated parameters to 2 nodes" },
        { "nbow", "central", "no all_gather brings updated parameters to 2 nodes" },
    };
    const struct lower_config config = { TWO_NODES };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct graph *graph = pass_testing_graph(cases[i].model, cases[i].strategy, 4, 0);
        struct program *program = NULL;
        CHECK(program_lower(graph, &config, &program) != STATUS_OK && !program);
        CHECK_MESSAGE(cases[i].text);
        graph_destroy(graph);
    }
}

/* Each collective of a step needs its level between nodes. */
static void test_a_level_that_is_missing_is_found(void)
{
    static const char *const models[] = { "mlp", "nbow", "vgg11_bn" };
    const struct lower_config config = { TWO_NODES };
    struct pass_config passes = pass_testing_config(4, 0);

    for (int m = 0; m < 3; m++) {
        passes.factors = m == 0;
        passes.sync_norm = m == 2;
        struct graph *graph = pass_testing_graph_with(models[m], "multiworker", &passes);
        int removed = 0;
        for (int n = 0; n < graph_node_count(graph); n++) {
            struct node *node = graph_node(graph, n);
            struct program *program = NULL;
            if (!node->attrs.between_nodes)
                continue;
            node->attrs.between_nodes = false;
            CHECK_STATUS(STATUS_MISMATCH, program_lower(graph, &config, &program));
            CHECK_MESSAGE(node->name);
            node->attrs.between_nodes = true;
            removed++;
        }
        CHECK(removed > 3);
        graph_destroy(graph);
    }
}

/* All gradients of a sample are final together: one task writes every bucket. So it is in stages of pipelines. */
static void test_a_task_may_write_every_bucket(void)
{
    struct pass_config config = pass_testing_config(2, 0);
    const struct model *model = model_find("gpt");
    struct model_config shape = model_defaults(model);
    const struct lower_config lower = { .topology = { .nodes = 1, .node_ranks = 1, .lanes = 1 },
                                        .has_steps = true,
                                        .clips_samples = true };
    struct program *program;
    struct graph *graph;

    config.bucket_bytes = 1024;
    shape.batch = config.batch;
    CHECK_OK(model_build(model, &shape, &graph));
    CHECK_OK(pass_run(graph, strategy_find("mirrored")->passes, &config, NULL));
    CHECK(pass_bucket_count(graph) > 24);
    CHECK_OK(program_lower(graph, &lower, &program));
    program_destroy(program);
    graph_destroy(graph);
}

const struct test tests[] = {
    { .name = "a task may write every bucket", .run = test_a_task_may_write_every_bucket },
    { .name = "each strategy has the tasks that it is known by",
      .run = test_each_strategy_has_the_tasks_that_it_is_known_by },
    { .name = "lanes pull before they read and push what is final",
      .run = test_lanes_pull_before_they_read_and_push_what_is_final },
    { .name = "readers of one copy wait for the update",
      .run = test_readers_of_one_copy_wait_for_the_update },
    { .name = "a step within a node is refused for several",
      .run = test_a_step_within_a_node_is_refused_for_several },
    { .name = "a level that is missing is found",
      .run = test_a_level_that_is_missing_is_found },
    { 0 },
};
