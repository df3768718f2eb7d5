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

/* All gradients of a sample are final together: one task writes every bucket. So it is in stages of
 * pipelines. */
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

/* Servers ---------------------------------------------------------------------------------- */

/* Three slices on two servers: a dense one with a replica, a table, and the other server's. */
static const struct lower_slice slices[] = {
    { .number = 0, .bucket = 0, .is_trained = true, .server = 0, .replica = 1 },
    { .number = 1, .bucket = 1, .is_trained = true, .is_table = true, .replica = -1 },
    { .number = 2, .bucket = 2, .is_trained = true, .server = 1, .replica = 0 },
};

#define SERVER0                                                                                \
    .servers = 2, .workers = 3, .shares_memory = true, .slices = slices, .n_slices = 2

/* A program of server 0, with its waits. */
static const struct served {
    const char *what;
    struct lower_server config;
    const char *tasks;
} served[] = {
    { .what = "a step's update waits for the pushes of all workers",
      .config = { SERVER0, .joins = true },
      .tasks = "push slice 0 of bucket 0: last 3 own\n"
               "push slice 1 of bucket 1: last 5 own\n"
               "reduce_scatter+update+replicate slice 0 of bucket 0 with server 1: 0\n"
               "pull slice 0 of bucket 0: 2\n"
               "sum_rows+update slice 1 of bucket 1: 1\n"
               "pull slice 1 of bucket 1: 4\n"
               "barrier (ticks): last 6 own\n"
               "all_reduce (losses and flags): 6\n" },
    { .what = "with backup workers it waits for most of them, and for readers",
      .config = { SERVER0, .joins = true, .backup = 1 },
      .tasks = "push slice 0 of bucket 0: last 3 own\n"
               "push slice 1 of bucket 1: last 5 own\n"
               "reduce_scatter+update+replicate slice 0 of bucket 0 with server 1: "
               "0 but 1, last 2 own, not during 3\n"
               "pull slice 0 of bucket 0: 2, 0 own, not during 2\n"
               "sum_rows+update slice 1 of bucket 1: 1 but 1, last 4 own, not during 5\n"
               "pull slice 1 of bucket 1: 4, 1 own, not during 4\n"
               "barrier (ticks): last 6 own\n"
               "all_reduce (losses and flags): 6 but 1\n" },
    { .what = "else each push is an update by itself",
      .config = { SERVER0 },
      .tasks = "push slice 0 of bucket 0: last 3 own\n"
               "push slice 1 of bucket 1: last 5 own\n"
               "reduce_scatter+update+replicate slice 0 of bucket 0 with server 1: "
               "0 own, not during 2, not during 3\n"
               "pull slice 0 of bucket 0: 2 own, not during 2\n"
               "sum_rows+update slice 1 of bucket 1: 1 own, not during 4, not during 5\n"
               "pull slice 1 of bucket 1: 4 own, not during 4\n"
               "barrier (ticks): last 6 own\n"
               "all_reduce (losses and flags): 6 own\n" },
    { .what = "and values may wait for the slowest worker's clock",
      .config = { SERVER0, .bound = 3 },
      .tasks = "push slice 0 of bucket 0: last 3 own\n"
               "push slice 1 of bucket 1: last 5 own\n"
               "reduce_scatter+update+replicate slice 0 of bucket 0 with server 1: "
               "0 own, not during 2, not during 3\n"
               "pull slice 0 of bucket 0: 2 own, not during 2, 6 of 3 before\n"
               "sum_rows+update slice 1 of bucket 1: 1 own, not during 4, not during 5\n"
               "pull slice 1 of bucket 1: 4 own, not during 4, 6 of 3 before\n"
               "barrier (ticks): last 6 own\n"
               "all_reduce (losses and flags): 6 own\n" },
    { .what = "a center gives each worker its difference",
      .config = { SERVER0, .is_center = true },
      .tasks = "push slice 0 of bucket 0: last 3 own\n"
               "push slice 1 of bucket 1: last 5 own\n"
               "average+replicate slice 0 of bucket 0 with server 1: 0 own, not during 2\n"
               "pull slice 0 of bucket 0: 2 own\n"
               "average slice 1 of bucket 1: 1 own, not during 4\n"
               "pull slice 1 of bucket 1: 4 own\n"
               "barrier (ticks): last 6 own\n"
               "all_reduce (losses and flags): 6 own\n" },
    { .what = "with clipping servers tell each other squares, and replicas come",
      .config = { .servers = 2,
                  .workers = 3,
                  .slices = slices,
                  .n_slices = 3,
                  .joins = true,
                  .clips = true },
      .tasks = "push slice 0 of bucket 0: last 7 own\n"
               "reduce_scatter+norm slice 0 of bucket 0 (squares): 0\n"
               "push slice 1 of bucket 1: last 9 own\n"
               "sum_rows+norm slice 1 of bucket 1 (squares): 2\n"
               "receive with server 1 (squares): last 5 own\n"
               "norm: 4 own, 3 own, 1 own\n"
               "reduce_scatter+update+replicate slice 0 of bucket 0 with server 1: 5 own\n"
               "pull slice 0 of bucket 0: 6\n"
               "sum_rows+update slice 1 of bucket 1: 5 own\n"
               "pull slice 1 of bucket 1: 8\n"
               "replicate slice 2 of bucket 2 with server 1: last 10 own\n"
               "barrier (ticks): last 11 own\n"
               "all_reduce (losses and flags): 11\n" },
};

static void print_served(const struct program *program, struct strbuf *out)
{
    for (int t = 0; t < program->n_tasks; t++) {
        const struct task *task = &program->tasks[t];
        task_print_name(task, out);
        for (int i = 0; i < task->n_waits; i++) {
            const struct wait *wait = &program->waits[task->first_wait + i];
            strbuf_printf(out, "%s%s%d%s", i ? ", " : ": ",
                          wait->is_apart                             ? "not during "
                          : wait->is_last_step && wait->earlier == 0 ? "last "
                                                                     : "",
                          wait->task, wait->is_local ? " own" : "");
            if (wait->but > 0)
                strbuf_printf(out, " but %d", wait->but);
            if (wait->earlier > 0)
                strbuf_printf(out, " of %d before", wait->earlier + 1);
        }
        strbuf_printf(out, "\n");
    }
}

static void test_the_degree_of_synchrony_shows_in_a_servers_tasks(void)
{
    for (size_t i = 0; i < sizeof served / sizeof *served; i++) {
        struct program *program;
        struct strbuf out;

        strbuf_init(&out, 1 << 16);
        CHECK_OK(program_lower_server(&served[i].config, &program));
        print_served(program, &out);
        CHECK_TEXT(served[i].tasks, out.text);
        strbuf_release(&out);
        program_destroy(program);
    }
}

const struct test tests[] = {
    { .name = "the degree of synchrony shows in a server's tasks",
      .run = test_the_degree_of_synchrony_shows_in_a_servers_tasks },
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
