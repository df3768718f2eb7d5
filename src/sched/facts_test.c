/* SPDX-License-Identifier: MIT */
/* facts_test.c - what graphs say of buckets and updates, and graphs that are refused. */
#include "sched/facts.h"

#include <string.h>

#include "base/test.h"
#include "graph/op.h"
#include "pass/pass_testing.h"

static const struct facts_job two_ranks = { .nodes = 1, .ranks = 2, .has_steps = true };

static int count_kind(const struct step_facts *facts, enum bucket_kind kind)
{
    int count = 0;

    for (int b = 0; b < facts->n_buckets; b++)
        count += facts->buckets[b].kind == kind;
    return count;
}

static void test_kinds_of_buckets(void)
{
    static const struct {
        const char *model;
        int nodes, factors, rows, columns;
    } table[] = {
        { "cnn", 1, 0, 0, 0 },
        { "nbow", 1, 0, 1, 0 },
        { "nbow", 2, 0, 1, 0 },
        { "logistic", 1, 0, 0, 0 },
    };

    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct graph *graph = pass_testing_graph(table[i].model, "mirrored", 2, 0);
        const struct facts_job job = { .nodes = table[i].nodes, .ranks = 2, .has_steps = true };
        struct step_facts facts;

        CHECK_OK(facts_read(graph, &job, &facts));
        CHECK_OK(facts_check(graph, &job, &facts));
        CHECK_INT(pass_bucket_count(graph), facts.n_buckets);
        CHECK_INT(table[i].factors, count_kind(&facts, BUCKET_FACTORS));
        CHECK_INT(table[i].rows, count_kind(&facts, BUCKET_ROWS));
        CHECK_INT(0, count_kind(&facts, BUCKET_SERVED));
        for (int b = 0; b < facts.n_buckets; b++) {
            CHECK(facts.buckets[b].update != NULL);
            CHECK((facts.buckets[b].sum != NULL) == facts_is_gathered(&facts, b));
        }
        graph_destroy(graph);
    }
}

/* One node alone has the other shards' samples in forward. */
static void test_columns_are_for_one_node(void)
{
    struct pass_config config = pass_testing_config(2, 0);
    config.batch = 16;
    config.factors = true;
    struct graph *graph = pass_testing_graph_with("mlp", "mirrored", &config);
    struct step_facts one, two;
    int columns = 0;

    CHECK_OK(facts_read(graph, &(struct facts_job){ .nodes = 1, .ranks = 2 }, &one));
    CHECK_OK(facts_read(graph, &(struct facts_job){ .nodes = 2, .ranks = 2 }, &two));
    for (int b = 0; b < one.n_buckets; b++) {
        CHECK_INT(one.buckets[b].kind, two.buckets[b].kind);
        CHECK(!two.buckets[b].columns);
        CHECK(!one.buckets[b].columns || one.buckets[b].kind == BUCKET_FACTORS);
        columns += one.buckets[b].columns != NULL;
    }
    CHECK_INT(1, columns);
    graph_destroy(graph);
}

static void test_the_update_rule(void)
{
    struct graph *graph = pass_testing_graph("mlp", "mirrored", 2, 1);
    const struct facts_job served = { .nodes = 1, .ranks = 2, .has_servers = true };
    struct step_facts facts;

    CHECK_OK(facts_read(graph, &two_ranks, &facts));
    CHECK(facts.rule.clips);
    CHECK(!facts.rule.adapts && !facts.rule.directs && !facts.rule.anchors);
    CHECK_OK(facts_read(graph, &served, &facts));
    CHECK(!facts.rule.clips); /* servers do */
    graph_destroy(graph);

    static const char *const optimizers[] = { "lars", "lamb" };
    for (int i = 0; i < 2; i++) {
        struct pass_config config = pass_testing_config(2, 0);
        config.optim.optimizer = optim_find(optimizers[i]);
        config.optim.attrs = config.optim.optimizer->defaults;
        graph = pass_testing_graph_with("mlp", "mirrored", &config);
        CHECK_OK(facts_read(graph, &two_ranks, &facts));
        CHECK(facts.rule.adapts);
        CHECK(facts.rule.directs == (i == 1));
        graph_destroy(graph);
    }
}

static void check_refusal(const char *strategy, const struct facts_job *job, const char *text)
{
    struct graph *graph = pass_testing_graph("mlp", strategy, 2, 0);
    struct step_facts facts;

    CHECK_OK(facts_read(graph, job, &facts));
    CHECK_STATUS(STATUS_MISMATCH, facts_check(graph, job, &facts));
    CHECK(strstr(status_message(), text));
    graph_destroy(graph);
}

static void test_graphs_for_other_jobs_are_refused(void)
{
    const struct facts_job served = {
        .nodes = 1, .ranks = 2, .has_servers = true, .has_steps = true
    };
    const struct facts_job one = { .nodes = 1, .ranks = 1, .has_steps = true };

    check_refusal("single", &two_ranks, "is for one rank, there are 2");
    check_refusal("mirrored", &served, "is for a job without servers");
    check_refusal("ps", &one, "is for a job with servers");
}

static void test_whole_buckets_are_not_reduced(void)
{
    struct graph *graph = pass_testing_graph("mlp", "mirrored", 2, 0);
    struct step_facts facts;

    for (int n = 0; n < graph_node_count(graph); n++) {
        struct node *node = graph_node(graph, n);
        if (node->op == &op_reduce_scatter)
            node->op = &op_all_reduce;
    }
    CHECK_STATUS(STATUS_UNSUPPORTED, facts_read(graph, &two_ranks, &facts));
    CHECK(strstr(status_message(), "whole buckets are not reduced to every rank"));
    graph_destroy(graph);
}

const struct test tests[] = {
    { .name = "kinds of buckets", .run = test_kinds_of_buckets },
    { .name = "columns are for one node", .run = test_columns_are_for_one_node },
    { .name = "the update rule", .run = test_the_update_rule },
    { .name = "graphs for other jobs are refused",
      .run = test_graphs_for_other_jobs_are_refused },
    { .name = "whole buckets are not reduced", .run = test_whole_buckets_are_not_reduced },
    { 0 },
};
