/* SPDX-License-Identifier: MIT */
/* pass_testing.c - a model's graph after passes. */
#include "pass/pass_testing.h"

#include "base/test.h"
#include "model/model.h"
#include "pass/strategy.h"

struct pass_config pass_testing_config(int ranks, float max_norm)
{
    struct pass_config config = { .batch = 64, .shards = 4, .ranks = ranks };

    config.optim.optimizer = optim_find("sgd");
    config.optim.attrs = config.optim.optimizer->defaults;
    config.optim.attrs.max_norm = max_norm;
    return config;
}

struct graph *pass_testing_graph_with(const char *model_name, const char *strategy,
                                      const struct pass_config *config)
{
    const struct model *model = model_find(model_name);
    struct model_config model_config = model_defaults(model);
    struct graph *graph;

    model_config.batch = config->batch;
    CHECK_OK(model_build(model, &model_config, &graph));
    CHECK_OK(pass_run(graph, strategy_find(strategy)->passes, config, NULL));
    return graph;
}

struct graph *pass_testing_graph(const char *model_name, const char *strategy, int ranks,
                                 float max_norm)
{
    const struct pass_config config = pass_testing_config(ranks, max_norm);

    return pass_testing_graph_with(model_name, strategy, &config);
}

int pass_testing_count(const struct graph *graph, const struct op *op)
{
    int count = 0;
    for (int n = 0; n < graph_node_count(graph); n++)
        count += graph_node(graph, n)->op == op;
    return count;
}
