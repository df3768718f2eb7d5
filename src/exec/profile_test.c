/* SPDX-License-Identifier: MIT */
/* profile_test.c - nodes of a step are timed, all of them and no others. */
#include "exec/profile.h"

#include "base/mem.h"
#include "base/test.h"
#include "graph/build.h"
#include "graph/op.h"
#include "model/model.h"
#include "pass/strategy.h"

enum { PIXELS = 36, CLASSES = 3, ROWS = 8 };

static void build_small(struct graph *graph, const struct model_config *config,
                        struct value *input, struct value *target)
{
    struct value *x = build_relu(graph, "relu", build_linear(graph, "fc1", input, 12));
    (void)config;
    build_classifier_loss(graph, build_linear(graph, "fc2", x, CLASSES), target);
}

static const struct model small = { .name = "small", .build = build_small };

static struct graph *make_graph(const struct optim_config *optim, int64_t batch, int64_t shards,
                                bool factors)
{
    const struct pass_config passes = {
        .batch = batch, .shards = shards, .ranks = 1, .factors = factors, .optim = *optim
    };
    struct model_config config = model_defaults(&small);
    struct graph *graph;

    config.sample = (struct shape){ 3, { 1, 6, 6 } };
    config.classes = CLASSES;
    config.training = true;
    config.batch = batch;
    CHECK_OK(model_build(&small, &config, &graph));
    CHECK_OK(pass_run(graph, strategy_find("single")->passes, &passes, NULL));
    return graph;
}

static bool is_timed(const struct node *node)
{
    return (node->phase == PHASE_FORWARD || node->phase == PHASE_BACKWARD) &&
           !node->op->is_view;
}

/* Of `shards` of a step's shards, so many are run side by side; factors: gradients are made when all are there. */
static void check_profile(int lanes, int threads, int64_t shards, bool factors)
{
    static float x[4 * ROWS * PIXELS];
    static int32_t y[4 * ROWS];
    struct optim_config optim = { .optimizer = optim_find("adam") };
    struct kernel_choices *choices;
    struct profile profile;
    size_t arena;
    double nodes = 0;
    const struct batch batch = { .samples = (int64_t)lanes * ROWS,
                                 .weight = (int64_t)lanes * ROWS,
                                 .own_weight = (int64_t)lanes * ROWS,
                                 .rows = (int64_t)lanes * ROWS,
                                 .x = x,
                                 .y = y };

    optim.attrs = optim.optimizer->defaults;
    optim.schedule = (struct schedule){ .kind = SCHEDULE_CONSTANT, .lr = 0.01 };
    struct graph *graph = make_graph(&optim, shards * ROWS, shards, factors);
    CHECK_OK(kernel_choices_load(NULL, &choices));
    const struct profile_config config = { .graph = graph,
                                           .batch = &batch,
                                           .lanes = lanes,
                                           .threads = threads,
                                           .optim = optim,
                                           .choices = choices,
                                           .seed = 3,
                                           .seconds = 0.01 };
    CHECK_OK(profile_run(&config, &profile));
    for (int n = 0; n < graph_node_count(graph); n++) {
        CHECK((profile.nodes[n] > 0) == is_timed(graph_node(graph, n)));
        nodes += profile.nodes[n];
    }
    CHECK(profile.steps > 0 && profile.step > 0 && profile.sums > 0);
    CHECK((profile.made > 0) == factors);
    CHECK_CLOSE(profile.step, nodes + profile.sums + profile.made + profile.rest, 1e-9);
    double *alone;
    CHECK_OK(mem_alloc((size_t)graph_node_count(graph), sizeof *alone, &alone));
    CHECK_OK(profile_kernels(graph, choices, alone));
    for (int n = 0; n < graph_node_count(graph); n++)
        CHECK((alone[n] > 0) == is_timed(graph_node(graph, n)));
    struct profile_config many = config;
    many.open = lanes; /* the batch has as many shards */
    if (factors) {
        CHECK_INT(STATUS_UNSUPPORTED, profile_open(&many, alone)); /* shards meet */
    } else {
        CHECK_OK(profile_open(&many, alone));
        for (int n = 0; n < graph_node_count(graph); n++)
            CHECK((alone[n] > 0) == is_timed(graph_node(graph, n)));
    }
    mem_free(alone);
    CHECK_OK(profile_arena(graph, ROWS, choices, &arena));
    CHECK(arena > 0 && arena <= profile.arena);
    profile_release(&profile);
    kernel_choices_destroy(choices);
    graph_destroy(graph);
}

static void test_every_node_of_a_shard_is_timed(void)
{
    check_profile(1, 1, 1, false);
    check_profile(2, 1, 2, false);
}

static void test_fewer_lanes_than_the_job_has_shards_are_enough(void)
{
    check_profile(2, 1, 8, false);
}

static void test_threads_may_share_a_lane(void)
{
    check_profile(1, 2, 4, false);
}

static void test_what_is_made_of_all_shards_is_timed(void)
{
    check_profile(1, 1, 1, true); /* few samples for a weight of 36x12 */
}

const struct test tests[] = {
    { .name = "every node of a shard is timed", .run = test_every_node_of_a_shard_is_timed },
    { .name = "fewer lanes than the job has shards are enough",
      .run = test_fewer_lanes_than_the_job_has_shards_are_enough },
    { .name = "threads may share a lane", .run = test_threads_may_share_a_lane },
    { .name = "what is made of all shards is timed",
      .run = test_what_is_made_of_all_shards_is_timed },
    { 0 },
};
