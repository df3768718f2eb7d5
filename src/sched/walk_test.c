/* SPDX-License-Identifier: MIT */
/* walk_test.c - steps that are walked take as long as one works out by hand. */
#include "sched/walk.h"

#include <math.h>

#include "base/mem.h"
#include "base/test.h"
#include "graph/op.h"
#include "pass/pass_testing.h"
#include "sched/lower.h"
#include "sched/sched_testing.h"

/* A shard takes a second for each node of forward and two for each of backward. */
struct step {
    struct graph *graph;
    struct program *program;
    struct task_work *works;
    double *nodes;
    double shard;  /* seconds */
    double params; /* bytes */
    struct cost_work work;
    struct cost_cluster cluster;
};

static void time_nodes(struct step *s)
{
    CHECK_OK(mem_alloc((size_t)graph_node_count(s->graph) + 1, sizeof *s->nodes, &s->nodes));
    for (int n = 0; n < graph_node_count(s->graph); n++) {
        const struct node *node = graph_node(s->graph, n);
        const enum phase phase = node->op->is_view ? PHASE_UPDATE : node->phase;
        s->nodes[n] = phase == PHASE_FORWARD ? 1 : phase == PHASE_BACKWARD ? 2 : 0;
        s->shard += s->nodes[n];
    }
}

static void make_step(struct step *s, const struct lower_config *config, int64_t shards)
{
    const struct work_config how = { .shards = shards, .compressed = 1, .window = 1e9 };

    time_nodes(s);
    s->params = work_dense_bytes(s->graph);
    s->work = (struct cost_work){ .shards = shards, .add = 1e-6, .update = 4e-6 };
    s->cluster = (struct cost_cluster){ .nodes = config->topology.nodes,
                                        .ranks = config->topology.node_ranks,
                                        .shares = true,
                                        .crowding = 1,
                                        .speed = 1,
                                        .pages = 1e-6,
                                        .between = { .bandwidth = 1e15 } };
    CHECK_OK(program_lower(s->graph, config, &s->program));
    CHECK_OK(mem_alloc((size_t)s->program->n_tasks + 1, sizeof *s->works, &s->works));
    CHECK_OK(program_work(s->program, s->graph, &how, s->works));
}

static struct step step_of(const char *model, const char *strategy,
                           const struct lower_config *config, int64_t shards)
{
    const struct lower_topology *t = &config->topology;
    struct step s = { .graph =
                          pass_testing_graph(model, strategy, t->nodes * t->node_ranks, 0) };

    make_step(&s, config, shards);
    return s;
}

static struct walk_result walk(const struct step *s)
{
    struct walk_result out;

    CHECK_OK(walk_run(&(struct walk_config){ .program = s->program,
                                             .graph = s->graph,
                                             .works = s->works,
                                             .node_seconds = s->nodes,
                                             .work = &s->work,
                                             .cluster = &s->cluster,
                                             .team = 1,
                                             .crowding = s->cluster.crowding,
                                             .link = &s->cluster.between },
                      &out));
    return out;
}

static void release(struct step *s)
{
    program_destroy(s->program);
    graph_destroy(s->graph);
    mem_free(s->works);
    mem_free(s->nodes);
}

static struct lower_config nodes_of(int nodes, int ranks, int lanes)
{
    return (struct lower_config){ .topology = { .nodes = nodes,
                                                .node_ranks = ranks,
                                                .lanes = lanes,
                                                .rails = nodes > 1 ? ranks : 0 },
                                  .has_steps = true };
}

static void test_lanes_share_out_shards_and_sums(void)
{
    const struct lower_config config = nodes_of(1, 2, 2);
    struct step s = step_of("mlp", "mirrored", &config, 12);
    const double expected = 3 * s.shard + s.params * (4 * 1e-6 + 4e-6) / 4;

    CHECK_CLOSE(expected, walk(&s).seconds, 1e-9);
    CHECK_CLOSE(expected, walk(&s).compute, 1e-9);
    s.cluster.crowding = 2;
    CHECK_CLOSE(2 * expected, walk(&s).seconds, 1e-9);
    s.cluster.speed = 10;
    CHECK_CLOSE(2 * expected / 10, walk(&s).seconds, 1e-9);
    s.work.shards = 3;
    struct walk_result out;
    CHECK_STATUS(STATUS_USAGE, walk_run(&(struct walk_config){ .program = s.program,
                                                               .graph = s.graph,
                                                               .works = s.works,
                                                               .node_seconds = s.nodes,
                                                               .work = &s.work,
                                                               .cluster = &s.cluster,
                                                               .team = 1,
                                                               .crowding = 1,
                                                               .link = &s.cluster.between },
                                        &out));
    CHECK_MESSAGE("3 shards for 4 lanes");
    release(&s);
}

/* Every lane gives back its gradients of the bucket, and touches their pages again. */
static void test_pages_that_are_given_back_have_a_price(void)
{
    struct lower_config config = nodes_of(1, 4, 1);
    struct step whole = step_of("mlp", "mirrored", &config, 4);

    config.releases = true;
    struct step less = step_of("mlp", "zero", &config, 4);
    CHECK_CLOSE(walk(&whole).seconds + less.params * 1e-6, walk(&less).seconds, 1e-9);
    release(&whole);
    release(&less);
}

/* The lanes of a node share the work of making a table's gradient. */
static void test_making_a_gradient_of_rows_is_shared_out(void)
{
    const struct lower_config one = nodes_of(1, 4, 1), two = nodes_of(2, 2, 1);
    struct step near = step_of("nbow", "mirrored", &one, 8);
    struct step far = step_of("nbow", "multiworker", &two, 8);
    struct step *const steps[] = { &near, &far };

    for (int i = 0; i < 2; i++) {
        struct step *s = steps[i];
        const double before = walk(s).seconds;
        for (int n = 0; n < graph_node_count(s->graph); n++)
            s->nodes[n] += graph_node(s->graph, n)->op == &op_row_sum ? 0.5 : 0;
        CHECK_CLOSE(before + 0.5 * 8 / (i ? 2 : 4), walk(s).seconds, 1e-6);
    }
    release(&near);
    release(&far);
}

/* A fast network costs nothing; one that needs a core stops the lane; a slow one is the step. */
static void test_transfers_are_hidden_until_they_are_too_slow(void)
{
    const struct lower_config config = nodes_of(4, 1, 1);
    struct step s = step_of("mlp", "multiworker", &config, 4);
    double before;

    s.work.add = s.work.update = 0;
    before = walk(&s).seconds;
    CHECK_CLOSE(s.shard, before, 1e-6);
    for (double bandwidth = 1e8; bandwidth > 1e2; bandwidth /= 10) {
        s.cluster.between.bandwidth = bandwidth;
        s.cluster.between.cpu = 0;
        const struct walk_result out = walk(&s);
        CHECK(out.seconds >= before - 1e-9);
        CHECK(out.seconds >= out.link && out.seconds >= s.shard);
        CHECK(out.seconds <= out.link + s.shard + 1e-6);
        before = out.seconds;
        s.cluster.between.cpu = 1; /* a core does it */
        CHECK_CLOSE(out.link + s.shard, walk(&s).seconds, 1e-6);
    }
    release(&s);
}

/* The gradients that backward finishes last cannot hide: their sums and the new parameters are
 * waited for. */
static void test_what_is_final_last_is_waited_for(void)
{
    const struct lower_config config = nodes_of(2, 1, 1);
    struct step s = step_of("logistic", "multiworker", &config, 4);

    s.work.add = s.work.update = 0;
    s.cluster.between.latency = 0.25;
    CHECK_CLOSE(2 * s.shard + 2 * 0.25, walk(&s).seconds, 1e-6);
    release(&s);
}

/* Every exchange of a shard takes the link's latency, and the lane waits for it. */
static void test_exchanges_between_peers_are_waited_for(void)
{
    const struct lower_config config = nodes_of(1, 1, 1);
    struct pass_config passes = pass_testing_config(1, 0);
    const struct cost_link peers = { .latency = 0.5, .bandwidth = INFINITY };
    const struct work_config how = { .shards = 4, .window = 1e9, .tensor = 2 };
    struct walk_result out;
    double messages = 0;

    passes.tensor = (struct pass_tensor){ .count = 2 };
    struct step s = { .graph = pass_testing_graph_with("mlp", "tensor", &passes) };
    make_step(&s, &config, 4);
    const double before = walk(&s).seconds;
    CHECK_OK(program_work(s.program, s.graph, &how, s.works));
    for (int t = 0; t < s.program->n_tasks; t++)
        messages += s.works[t].messages;
    CHECK(messages > 0);
    CHECK_OK(walk_run(&(struct walk_config){ .program = s.program,
                                             .graph = s.graph,
                                             .works = s.works,
                                             .node_seconds = s.nodes,
                                             .work = &s.work,
                                             .cluster = &s.cluster,
                                             .team = 1,
                                             .crowding = 1,
                                             .link = &s.cluster.between,
                                             .peers = &peers,
                                             .tensor = 2 },
                      &out));
    CHECK_CLOSE(before + 0.5 * messages, out.seconds, 1e-9);
    release(&s);
}

/* Whatever the program, its walk ends, and the link has the time that it needs. */
static void test_every_program_can_be_walked(struct rng *rng)
{
    struct sched_testing drawn = sched_testing_draw(rng);
    const struct lower_topology *t = &drawn.config.topology;
    const int64_t lanes = (int64_t)t->nodes * t->node_ranks * t->lanes;
    struct step s = { .graph = drawn.graph };

    make_step(&s, &drawn.config, lanes * (1 + (int64_t)rng_below(rng, 3)));
    s.cluster.between = (struct cost_link){ .latency = (double)rng_float(rng),
                                            .message = 1e-3 * (double)rng_float(rng),
                                            .bandwidth = exp(20 * (double)rng_float(rng)),
                                            .cpu = rng_below(rng, 3) ? 0 : 1 };
    const struct walk_result out = walk(&s);
    CHECK(isfinite(out.seconds) && out.seconds >= out.link * (1 - 1e-9));
    CHECK(out.compute > 0 && out.bytes >= 0);
    program_destroy(s.program);
    mem_free(s.works);
    mem_free(s.nodes);
    sched_testing_end(&drawn);
}

const struct test tests[] = {
    { .name = "lanes share out shards and sums", .run = test_lanes_share_out_shards_and_sums },
    { .name = "pages that are given back have a price",
      .run = test_pages_that_are_given_back_have_a_price },
    { .name = "making a gradient of rows is shared out",
      .run = test_making_a_gradient_of_rows_is_shared_out },
    { .name = "transfers are hidden until they are too slow",
      .run = test_transfers_are_hidden_until_they_are_too_slow },
    { .name = "what is final last is waited for",
      .run = test_what_is_final_last_is_waited_for },
    { .name = "exchanges between peers are waited for",
      .run = test_exchanges_between_peers_are_waited_for },
    { .name = "every program can be walked", .property = test_every_program_can_be_walked },
    { 0 },
};
