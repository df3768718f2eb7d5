/* SPDX-License-Identifier: MIT */
/* sched_testing.c - programs drawn at random. */
#include "sched/sched_testing.h"

#include <stdio.h>
#include <string.h>

#include "base/test.h"
#include "model/model.h"
#include "pass/pass_testing.h"
#include "pass/strategy.h"

static const char *pick(struct rng *rng, const char *const *words, int count)
{
    return words[rng_below(rng, (uint64_t)count)];
}

static bool toss(struct rng *rng)
{
    return rng_below(rng, 2);
}

static bool is_pipeline(const struct sched_testing *drawn)
{
    return strcmp(drawn->strategy, "hybrid") == 0;
}

static struct pass_config draw_passes(struct rng *rng, const struct sched_testing *drawn,
                                      int ranks)
{
    static const char *const optimizers[] = { "sgd", "adam", "lamb", "lars" };
    struct pass_config config = pass_testing_config(ranks, toss(rng) ? 0.5F : 0);
    const float max_norm = config.optim.attrs.max_norm;

    config.optim.optimizer = optim_find(pick(rng, optimizers, 4));
    config.optim.attrs = config.optim.optimizer->defaults;
    config.optim.attrs.max_norm = max_norm;
    config.shards = 8;
    config.bucket_bytes = 1024 << rng_below(rng, 12);
    /* Servers take gradients alone; what is held in parts is not made from factors. */
    config.factors =
        strcmp(drawn->strategy, "ps") != 0 && strcmp(drawn->strategy, "zero") != 0 && toss(rng);
    config.recompute = toss(rng);
    config.sync_norm = strcmp(drawn->model, "vgg11_bn") == 0 && toss(rng);
    config.zero =
        strcmp(drawn->strategy, "zero") == 0 || is_pipeline(drawn) ? (int)rng_below(rng, 4) : 0;
    if (is_pipeline(drawn)) {
        config.pipeline =
            (struct pass_pipeline){ .stages = 2, .chunks = 1, .own = (int)rng_below(rng, 2) };
        config.factors = config.sync_norm = false;
    }
    config.network.nodes = drawn->config.topology.nodes;
    config.way = (enum pass_way)rng_below(rng, PASS_WAYS + 1);
    return config;
}

static struct lower_topology draw_topology(struct rng *rng, uint64_t most_nodes)
{
    const int nodes = 1 + (int)rng_below(rng, most_nodes),
              node_ranks = 1 + (int)rng_below(rng, 2);

    return (struct lower_topology){ .nodes = nodes,
                                    .node_ranks = node_ranks,
                                    .lanes = 1 + (int)rng_below(rng, 2),
                                    .rails = nodes > 1
                                                 ? 1 + (int)rng_below(rng, (uint64_t)node_ranks)
                                                 : 0 };
}

static const struct pass *const *passes_of(const struct sched_testing *drawn)
{
    const struct strategy *strategy = strategy_find(drawn->strategy);
    const bool is_apart = drawn->config.topology.nodes > 1;

    return is_apart && strategy->apart ? strategy->apart : strategy->passes;
}

struct sched_testing sched_testing_draw(struct rng *rng)
{
    static const char *const models[] = { "mlp", "lenet", "nbow", "vgg11_bn", "logistic" };
    static const char *const strategies[] = { "single",  "mirrored", "multiworker", "zero",
                                              "central", "parallax", "ps",          "hybrid" };
    struct sched_testing drawn = { .model = pick(rng, models, 5),
                                   .strategy = pick(rng, strategies, 8) };
    if (is_pipeline(&drawn))
        drawn.model = pick(rng, models, 2); /* they have layers to cut between */
    const struct model *model = model_find(drawn.model);
    struct model_config config = model_defaults(model);
    struct pass_config passes;
    enum status status = STATUS_USAGE;

    /* A worker with servers, a rank alone, and ranks with one copy have no other nodes. */
    const bool is_alone = strcmp(drawn.strategy, "ps") == 0 ||
                          strcmp(drawn.strategy, "single") == 0 ||
                          strcmp(drawn.strategy, "central") == 0;
    drawn.config.topology = draw_topology(rng, is_alone ? 1 : 3);
    for (int tries = 0; status == STATUS_USAGE && tries < 100;
         tries++) { /* some optimizers have no servers */
        graph_destroy(drawn.graph);
        drawn.graph = NULL;
        passes = draw_passes(rng, &drawn,
                             drawn.config.topology.nodes * drawn.config.topology.node_ranks);
        config.batch = passes.batch;
        CHECK_OK(model_build(model, &config, &drawn.graph));
        status = pass_run(drawn.graph, passes_of(&drawn), &passes, NULL);
    }
    CHECK_OK(status);
    drawn.config.has_steps = true;
    drawn.config.pipeline = passes.pipeline;
    if (is_pipeline(&drawn))
        drawn.config.topology.lanes = 1;
    drawn.config.gives = strcmp(drawn.strategy, "ps") == 0;
    drawn.config.is_direct = drawn.config.gives && toss(rng);
    drawn.config.compresses = passes.zero == 0 && !drawn.config.gives && toss(rng);
    drawn.config.releases = passes.zero >= 2;
    drawn.config.window = drawn.config.releases && toss(rng) ? 1024 << rng_below(rng, 12) : 0;
    drawn.config.clips_samples = !drawn.config.gives && rng_below(rng, 8) == 0;
    return drawn;
}

void sched_testing_end(struct sched_testing *drawn)
{
    graph_destroy(drawn->graph);
}

void sched_testing_print(const struct sched_testing *drawn, char *out, size_t bytes)
{
    const struct lower_topology *t = &drawn->config.topology;

    snprintf(out, bytes, "%s %s, %d nodes of %d ranks of %d lanes, %d rails", drawn->model,
             drawn->strategy, t->nodes, t->node_ranks, t->lanes, t->rails);
}

/* Degrees of synchrony: a step, with backup workers or clipping; a push by itself, bounded, or a
 * center. */
static void draw_synchrony(struct rng *rng, struct lower_server *config)
{
    config->joins = toss(rng);
    if (config->joins && config->workers > 1)
        config->backup = (int)rng_below(rng, (uint64_t)config->workers);
    config->clips = config->joins && toss(rng);
    config->is_center = !config->joins && rng_below(rng, 3) == 0;
    if (!config->joins && !config->is_center)
        config->bound = (int)rng_below(rng, 4);
}

void sched_testing_draw_servers(struct rng *rng, int buckets, struct sched_testing_servers *out)
{
    const int servers = 1 + (int)rng_below(rng, 3), n = buckets + (int)rng_below(rng, 3);

    BUG_ON(n > SCHED_TESTING_SLICES);
    out->config = (struct lower_server){ .servers = servers,
                                         .workers = 1 + (int)rng_below(rng, 4),
                                         .shares_memory = toss(rng),
                                         .slices = out->slices,
                                         .n_slices = n };
    draw_synchrony(rng, &out->config);
    for (int i = 0; i < n; i++) {
        const int server = i < servers ? i : (int)rng_below(rng, (uint64_t)servers);
        const bool is_copied = servers > 1 && toss(rng);
        out->slices[i] = (struct lower_slice){
            .number = i,
            .bucket = i % buckets,
            .is_table = toss(rng),
            .is_trained = rng_below(rng, 4) > 0,
            .server = server,
            .replica = is_copied ? (server + 1) % servers : -1,
        };
    }
}
