/* SPDX-License-Identifier: MIT */
/* work_test.c - bytes of tasks are those that one counts by hand. */
#include "sched/work.h"

#include "base/mem.h"
#include "base/test.h"
#include "graph/op.h"
#include "pass/pass_testing.h"
#include "sched/lower.h"

enum { SHARDS = 4, ROWS = 16 };

static double bucket_bytes(const struct graph *graph)
{
    double bytes = 0;

    for (int b = 0; b < pass_bucket_count(graph); b++)
        bytes += 4 * (double)shape_count(&pass_bucket_value(graph, b, "param")->shape);
    return bytes;
}

/* All of a program's work together, those of tasks of one bucket at least. */
static struct task_work work_of(const struct graph *graph, const struct lower_config *config,
                                const struct work_config *how)
{
    struct task_work *works, sum = { 0 };
    struct program *program;

    CHECK_OK(program_lower(graph, config, &program));
    CHECK_OK(mem_alloc((size_t)program->n_tasks + 1, sizeof *works, &works));
    CHECK_OK(program_work(program, graph, how, works));
    for (int t = 0; t < program->n_tasks; t++) {
        if (program->tasks[t].bucket < 0)
            continue;
        sum.messages += works[t].messages;
        sum.sent += works[t].sent;
        sum.read += works[t].read;
        sum.summed += works[t].summed;
        sum.updated += works[t].updated;
        sum.released += works[t].released;
    }
    mem_free(works);
    program_destroy(program);
    return sum;
}

static const struct lower_config one_node = {
    .topology = { .nodes = 1, .node_ranks = 4, .lanes = 1 }, .has_steps = true
};
static const struct lower_config four_nodes = {
    .topology = { .nodes = 4, .node_ranks = 1, .lanes = 1, .rails = 1 }, .has_steps = true
};
static const struct work_config usual = { .shards = SHARDS, .compressed = 1, .window = 1e9 };

static void test_ranks_of_a_node_read_each_others_parts(void)
{
    struct graph *graph = pass_testing_graph("mlp", "mirrored", 4, 0);
    const double bytes = bucket_bytes(graph);
    const struct task_work work = work_of(graph, &one_node, &usual);

    CHECK_CLOSE(2 * 3 * bytes, work.read, 1e-9);
    CHECK_CLOSE(4 * bytes, work.summed, 1e-9);
    CHECK_CLOSE(bytes, work.updated, 1e-9);
    CHECK(work.sent == 0 && work.messages == 0 && work.released == 0);
    CHECK_CLOSE(bytes, work_dense_bytes(graph), 1e-9);
    graph_destroy(graph);
}

static void test_nodes_send_parts_twice(void)
{
    struct graph *graph = pass_testing_graph("mlp", "multiworker", 4, 0);
    const double bytes = bucket_bytes(graph);
    const struct task_work work = work_of(graph, &four_nodes, &usual);

    CHECK_CLOSE(2 * 0.75 * bytes, work.sent, 1e-9);
    CHECK_CLOSE(2 * 3 * pass_bucket_count(graph), work.messages, 1e-9);
    CHECK_CLOSE(bytes, work.summed, 1e-9); /* four summands of a quarter */
    CHECK_CLOSE(bytes / 4, work.updated, 1e-9);
    CHECK(work.read == 0);
    graph_destroy(graph);
}

/* Rows of two shards are subtrees, rows of three are not: such a node sends two sums for one. */
static void test_a_row_of_shards_that_is_no_subtree_is_several_sums(void)
{
    struct lower_config config = four_nodes;
    struct work_config how = usual;
    struct graph *graph = pass_testing_graph("mlp", "multiworker", 2, 0);

    config.topology.nodes = 2;
    how.shards = 4;
    const double even = work_of(graph, &config, &how).sent;
    how.shards = 6; /* rows of three */
    CHECK_CLOSE(1.5 * even, work_of(graph, &config, &how).sent, 1e-9);
    graph_destroy(graph);
}

static void test_compressed_gradients_go_to_all(void)
{
    struct lower_config config = four_nodes;
    struct work_config how = usual;
    struct graph *graph = pass_testing_graph("mlp", "multiworker", 4, 0);

    config.compresses = true;
    how.compressed = 0.25;
    CHECK_CLOSE(3 * 0.25 * bucket_bytes(graph), work_of(graph, &config, &how).sent, 1e-9);
    graph_destroy(graph);
}

static struct graph *zero_graph(int zero)
{
    struct pass_config passes = pass_testing_config(4, 0);

    passes.zero = zero;
    return pass_testing_graph_with("mlp", "zero", &passes);
}

/* Bytes of buckets that backward reads. */
static double bytes_of_backward(const struct graph *graph, const struct lower_config *config)
{
    struct program *program;
    double bytes = 0;

    CHECK_OK(program_lower(graph, config, &program));
    for (int t = 0; t < program->n_tasks; t++) {
        const struct task *task = &program->tasks[t];
        if (task->kind == TASK_UNSHARD && task->segment == 1)
            bytes += 4 * (double)shape_count(
                             &pass_bucket_value(graph, task->bucket, "param")->shape);
    }
    program_destroy(program);
    return bytes;
}

/* Sums once; parameters once, if they stay from forward to backward, else once a phase that reads
 * them. */
static void test_parameters_in_parts_go_as_often_as_they_are_read(void)
{
    struct lower_config config = four_nodes;
    struct work_config how = usual;
    struct graph *graph = zero_graph(3);
    const double part = 0.75 * bucket_bytes(graph);

    config.releases = true;
    CHECK_CLOSE(2 * part, work_of(graph, &config, &how).sent, 1e-9);
    how.window = 0;
    const double backward = 0.75 * bytes_of_backward(graph, &config);
    CHECK(backward > 0 && backward < part); /* nothing needs the gradient of the samples */
    CHECK_CLOSE(2 * part + backward, work_of(graph, &config, &how).sent, 1e-9);
    how.shards = 2 * SHARDS;
    const struct task_work work = work_of(graph, &config, &how);
    CHECK_CLOSE(3 * part + 2 * backward, work.sent, 1e-9);
    CHECK_CLOSE(2 * part + 2 * backward + part / 0.75, work.released, 1e-9);
    graph_destroy(graph);
}

/* Ids, places and dy of a shard go to all; on one node others' halves are read. */
static void test_rows_stand_for_the_gradient_of_a_table(void)
{
    struct graph *graph = pass_testing_graph("nbow", "multiworker", 4, 0);
    double record = 0, table = 0;

    for (int n = 0; n < graph_node_count(graph); n++) {
        const struct node *node = graph_node(graph, n);
        if (node->op != &op_row_sum)
            continue;
        for (int i = 0; i < node->n_in; i++)
            record += 4 * (double)shape_count(&node->in[i]->shape);
        table = 4 * (double)shape_count(&node->out[0]->shape);
        CHECK(work_is_gathered(graph, node->attrs.bucket));
    }
    const double dense = bucket_bytes(graph) - table;
    CHECK_CLOSE(2 * 0.75 * dense + 3 * record, work_of(graph, &four_nodes, &usual).sent, 1e-9);
    CHECK_CLOSE(dense, work_dense_bytes(graph), 1e-9);
    const struct task_work near = work_of(graph, &one_node, &usual);
    CHECK(near.read > 2 * 3 * dense && near.sent == 0);
    CHECK_CLOSE(4 * dense, near.summed, 1e-9);
    graph_destroy(graph);
}

/* Sums of a shard's activations: in two parts by messages, whole through shared memory or if they
 * are short. */
static void test_ranks_that_share_layers_exchange_activations(void)
{
    struct pass_config passes = pass_testing_config(1, 0);
    struct lower_config config = one_node;
    struct work_config how = usual;

    passes.tensor = (struct pass_tensor){ .count = 4 };
    passes.batch = 64 * SHARDS; /* more than WORK_SHORT_SUM each */
    config.topology.node_ranks = 1;
    how.tensor = 4;
    struct graph *graph = pass_testing_graph_with("mlp", "tensor", &passes);
    for (int shared = 0; shared < 2; shared++) {
        struct program *program;
        struct task_work *works;
        int sums = 0;

        config.shares_tensor = shared;
        CHECK_OK(program_lower(graph, &config, &program));
        CHECK_OK(mem_alloc((size_t)program->n_tasks + 1, sizeof *works, &works));
        CHECK_OK(program_work(program, graph, &how, works));
        for (int t = 0; t < program->n_tasks; t++) {
            const struct task *task = &program->tasks[t];
            const struct node *node = graph_node(graph, task->first_node);
            if (task->kind != TASK_TENSOR || node->op != &op_tp_sum)
                continue;
            const double bytes = 4 * (double)shape_count(&node->in[0]->shape);
            const bool in_parts = !shared && bytes > WORK_SHORT_SUM;
            CHECK_CLOSE(SHARDS * (in_parts ? 2 * 3 * bytes / 4 : 3 * bytes), works[t].sent,
                        1e-9);
            CHECK_CLOSE(SHARDS * 3 * (in_parts ? 2 : 1), works[t].messages, 1e-9);
            sums++;
        }
        CHECK(sums > 0);
        mem_free(works);
        program_destroy(program);
    }
    graph_destroy(graph);
}

const struct test tests[] = {
    { .name = "ranks of a node read each other's parts",
      .run = test_ranks_of_a_node_read_each_others_parts },
    { .name = "nodes send parts twice", .run = test_nodes_send_parts_twice },
    { .name = "a row of shards that is no subtree is several sums",
      .run = test_a_row_of_shards_that_is_no_subtree_is_several_sums },
    { .name = "compressed gradients go to all", .run = test_compressed_gradients_go_to_all },
    { .name = "parameters in parts go as often as they are read",
      .run = test_parameters_in_parts_go_as_often_as_they_are_read },
    { .name = "rows stand for the gradient of a table",
      .run = test_rows_stand_for_the_gradient_of_a_table },
    { .name = "ranks that share layers exchange activations",
      .run = test_ranks_that_share_layers_exchange_activations },
    { 0 },
};
