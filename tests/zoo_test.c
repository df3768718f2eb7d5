/* SPDX-License-Identifier: MIT */
/* zoo_test.c - what every strategy makes of every model: legal after each pass, drawn without a
 * box or an edge on another; and the mlp's graphs are, to the letter, those in golden/.
 *
 * After a change that is meant: TUTTI_BLESS=1 build-dev/tests/zoo_test rewrites the files;
 * look at the difference before it is committed.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/test.h"
#include "graph/draw_testing.h"
#include "model/model.h"
#include "pass/strategy.h"

/* Do servers have its updates? */
static bool serves(const struct strategy *strategy)
{
    for (int p = 0; strategy->passes[p]; p++) {
        if (strategy->passes[p] == &pass_serve)
            return true;
    }
    return false;
}

/* The first of two ranks that have different parts of the model. */
static void divide(const struct strategy *strategy, struct pass_config *config)
{
    if (strcmp(strategy->name, "tensor") == 0)
        config->tensor = (struct pass_tensor){ .count = 2 };
    else if (strategy->splits & AXIS_PP)
        config->pipeline = (struct pass_pipeline){ .stages = 2, .chunks = 1 };
    else
        return;
    config->factors = false;
}

static struct graph *graph_after(const struct model *model, const struct strategy *strategy,
                                 const char *optimizer, float max_norm, const char *last,
                                 bool is_divided)
{
    struct pass_config config = { .batch = 64,
                                  .shards = 4,
                                  .ranks = strategy->many_ranks ? 2 : 1,
                                  .bucket_bytes = 512 << 10 };
    struct model_config model_config = model_defaults(model);
    struct graph *graph;

    config.optim.optimizer = optim_find(optimizer);
    config.optim.attrs = config.optim.optimizer->defaults;
    config.optim.attrs.max_norm = max_norm;
    config.zero = strategy->zero;
    config.bound = 3;
    config.factors =
        max_norm == 0 && !serves(strategy) && config.zero == 0; /* of some layers */
    if (is_divided)
        divide(strategy, &config);
    model_config.batch = config.batch;
    CHECK_OK(model_build(model, &model_config, &graph));
    CHECK_OK(pass_run(graph, strategy->passes, &config, last));
    return graph;
}

/* Does a strategy before this one begin with the same passes, up to number p? */
static bool is_seen(int s, int p)
{
    const struct strategy *own = strategy_table[s];

    for (int before = 0; before < s; before++) {
        const struct strategy *other = strategy_table[before];
        int same = 0;

        while (same <= p && other->passes[same] == own->passes[same])
            same++;
        if (same > p && (own->passes[p + 1] || other->zero == own->zero))
            return true;
    }
    return false;
}

static void test_every_pass_leaves_a_graph_that_can_be_drawn(void)
{
    for (int m = 0; model_table[m]; m++) {
        for (int s = 0; strategy_table[s]; s++) {
            for (int p = 0; strategy_table[s]->passes[p]; p++) {
                if (is_seen(s, p))
                    continue;
                struct graph *graph = graph_after(model_table[m], strategy_table[s], "sgd", 0,
                                                  strategy_table[s]->passes[p]->name, false);
                CHECK(draw_testing_check(graph) > 0);
                graph_destroy(graph);
            }
        }
    }
}

/* By the strategies that have norms: with all of them what comes after the update is the same. */
static void test_clipping_and_other_optimizers_can_be_drawn(void)
{
    static const char *const strategies[] = { "single", "mirrored" };

    for (int m = 0; model_table[m]; m++) {
        for (int s = 0; s < 2; s++) {
            for (int o = 0; optim_table[o]; o++) {
                struct graph *graph = graph_after(model_table[m], strategy_find(strategies[s]),
                                                  optim_table[o]->name, 1, NULL, false);
                CHECK(draw_testing_check(graph) > 0);
                graph_destroy(graph);
            }
        }
    }
}

static void test_the_mlps_graphs_are_as_stored(void)
{
    for (int s = 0; strategy_table[s]; s++) {
        struct graph *graph =
            graph_after(model_find("mlp"), strategy_table[s], "sgd", 0, NULL, true);
        struct strbuf text;
        char path[1024], *stored;
        size_t length;

        snprintf(path, sizeof path, GOLDEN "/graph_mlp_%s.txt", strategy_table[s]->name);
        strbuf_init(&text, 1 << 20);
        graph_print_text(graph, &text);
        CHECK_OK(strbuf_status(&text));
        if (getenv("TUTTI_BLESS"))
            CHECK_OK(file_replace(path, text.text, text.length));
        CHECK_OK(file_read(path, 1 << 20, &stored, &length));
        CHECK_TEXT(stored, text.text);
        mem_free(stored);
        strbuf_release(&text);
        graph_destroy(graph);
    }
}

const struct test tests[] = {
    { .name = "every pass leaves a graph that can be drawn",
      .run = test_every_pass_leaves_a_graph_that_can_be_drawn },
    { .name = "clipping and other optimizers can be drawn",
      .run = test_clipping_and_other_optimizers_can_be_drawn },
    { .name = "the mlp's graphs are as stored", .run = test_the_mlps_graphs_are_as_stored },
    { 0 },
};
