/* SPDX-License-Identifier: MIT */
/* elastic_test.c - exchanges with a center on a model of two parameters, against values worked out by hand.
 *
 * The model is that of local_test.c: a step moves w by -x e / 4 and b by -e / 4 with e = w x + b - x, from
 * w = b = 0; worker 0 sees x = 1, worker 1 x = 2. Alpha is 1/4, and workers take turns: worker 0 first. All
 * numbers are exact in binary.
 */
#include "train/elastic.h"

#include <math.h>
#include <string.h>

#include "base/test.h"
#include "comm/comm_testing.h"
#include "exec/vectors.h"
#include "graph/build.h"
#include "model/model.h"

enum { WORKERS = 2, STEPS = 6, ROUNDS = 3 };

static void build_line(struct graph *graph, const struct model_config *config,
                       struct value *input, struct value *target)
{
    (void)config;
    (void)target;
    build_reconstruction_loss(graph, build_linear(graph, "line", input, 1));
}

static const struct model line = { .name = "line", .build = build_line };

struct point {
    float w, b;
};

/* A job and what came of it: parameters of workers after each step, the center after each worker's turn. */
struct trial {
    struct axes axes;
    bool is_alone; /* no exchanges at all, no servers */
    int steps;
    float momentum;
    const struct graph *graph;
    const struct kernel_choices *choices;
    struct optim_config optim;
    struct vectors vectors;
    struct ps_table tables[GRAPH_NODE_IN];
    struct ps_update updates[GRAPH_NODE_IN];
    struct point after[WORKERS][STEPS], center[WORKERS][STEPS];
    bool met[WORKERS][STEPS];
    struct elastic_seen seen[WORKERS];
    uint32_t heard;
};

static struct point point_of(struct exec *exec)
{
    struct point point;

    exec_get(exec, 0, -1, &point.w);
    exec_get(exec, 1, -1, &point.b);
    return point;
}

static enum status one_step(struct exec *exec, int rank, int step, struct exec_result *out)
{
    float x = (float)(rank + 1);
    const struct batch batch = { .step = (uint64_t)step,
                                 .samples = WORKERS,
                                 .weight = WORKERS,
                                 .own_weight = 1,
                                 .first = rank,
                                 .rows = 1,
                                 .x = &x };

    return exec_step(exec, &batch, out);
}

static enum status take_turn(struct trial *trial, struct elastic *elastic, struct exec *exec,
                             int rank, int step)
{
    struct exec_result result;
    struct ps_heard heard;
    bool met = false;

    if (elastic)
        TRY(elastic_before(elastic, (uint64_t)step, 1U << rank, &met, &heard));
    TRY(one_step(exec, rank, step, &result));
    if (elastic) {
        elastic_add(elastic, &result, 0);
        TRY(elastic_after(elastic, 0.001, 0.125));
    }
    TRY(exec_settle(exec));
    trial->after[rank][step] = point_of(exec);
    trial->met[rank][step] = met;
    trial->heard |= met ? heard.all.bits : 0;
    if (!elastic)
        return STATUS_OK;
    TRY(elastic_lend_center(elastic));
    trial->center[rank][step] = point_of(exec);
    elastic_give_back(elastic);
    const struct point again = point_of(exec);
    if (memcmp(&again, &trial->after[rank][step], sizeof again) != 0)
        return FAIL(STATUS_MISMATCH, "lending the center has changed the worker");
    trial->seen[rank] = elastic_seen(elastic);
    return STATUS_OK;
}

/* Worker 0 has the turn first in every step; an empty message hands it on. */
static enum status train(struct trial *trial, struct elastic *elastic, struct exec *exec,
                         struct transport *transport)
{
    enum { TAG = 77 };
    const int rank = transport_rank(transport), other = 1 - rank;
    char token = 0;

    for (int s = 0; s < trial->steps; s++) {
        if (rank == 1 || s > 0)
            TRY(transport_receive(transport, other, TAG, &token, 1));
        TRY(take_turn(trial, elastic, exec, rank, s));
        if (rank == 0 || s + 1 < trial->steps)
            TRY(transport_send(transport, other, TAG, &token, 1));
    }
    return STATUS_OK;
}

static struct ps_config ps_config_of(const struct trial *trial, struct transport *transport)
{
    static const int64_t rows[WORKERS + 1] = { 0, 1, 2 };

    return (struct ps_config){ .transport = transport,
                               .workers = WORKERS,
                               .servers = 1,
                               .replicas = 1,
                               .layout = { .buckets = trial->vectors.count,
                                           .begin = trial->vectors.begin,
                                           .tables = trial->tables,
                                           .updates = trial->updates,
                                           .n_states = trial->vectors.n_states },
                               .optim = trial->optim,
                               .shards = WORKERS,
                               .rows = rows,
                               .policy = PS_CENTER,
                               .alpha = trial->axes.alpha };
}

static enum status train_elastic(struct trial *trial, struct exec *exec,
                                 struct transport *transport)
{
    struct ps_config config = ps_config_of(trial, transport);
    struct elastic_config with = { .axes = &trial->axes,
                                   .exec = exec,
                                   .buckets = trial->vectors.count,
                                   .is_first = transport_rank(transport) == 0 };
    struct elastic *elastic;

    config.room = elastic_room(exec);
    TRY(ps_join(&config, &with.client));
    enum status status = elastic_create(&with, 0, &elastic);
    if (status == STATUS_OK) {
        status = train(trial, elastic, exec, transport);
        if (status == STATUS_OK)
            status = ps_meet(with.client);
        elastic_destroy(elastic);
    }
    ps_leave(with.client);
    return status;
}

static enum status run_worker(struct trial *trial, struct transport *transport,
                              struct comm *alone)
{
    const struct exec_config config = {
        .train = trial->graph,
        .comm = alone,
        .threads = 1,
        .shards = WORKERS,
        .batch = WORKERS,
        .part = { .first = transport_rank(transport), .count = 1 },
        .choices = trial->choices,
        .optim = trial->optim,
    };
    struct exec *exec;

    TRY(exec_create(&config, &exec));
    enum status status = trial->is_alone ? train(trial, NULL, exec, transport)
                                         : train_elastic(trial, exec, transport);
    exec_destroy(exec);
    return status;
}

static enum status run_rank(struct comm *comm, void *arg)
{
    struct transport *transport = comm_transport(comm), *own;
    struct trial *trial = arg;
    struct comm *alone = NULL;

    if (transport_rank(transport) == WORKERS) {
        const struct ps_config config = ps_config_of(trial, transport);
        return ps_serve(&config, NULL);
    }
    TRY(transport_inproc_create(1, &own));
    enum status status = comm_create(own, NULL, &alone);
    if (status == STATUS_OK)
        status = run_worker(trial, transport, alone);
    comm_destroy(alone);
    transport_inproc_destroy(&own, 1);
    return status;
}

static void run(struct trial *trial, const char *sync, int nodes)
{
    const struct strategy *easgd = strategy_find("easgd");
    struct kernel_choices *choices;
    struct graph *graph;

    CHECK_OK(strategy_check(easgd, WORKERS, NULL, sync, NULL, &trial->axes));
    trial->optim.optimizer = optim_find("sgd");
    trial->optim.attrs.momentum = trial->momentum;
    trial->optim.schedule = (struct schedule){ .kind = SCHEDULE_CONSTANT, .lr = 0.125 };
    const struct pass_config passes = {
        .batch = WORKERS, .shards = WORKERS, .ranks = WORKERS, .optim = trial->optim
    };
    struct model_config config = model_defaults(&line);
    config.sample = (struct shape){ 3, { 1, 1, 1 } };
    config.training = true;
    config.batch = WORKERS;
    CHECK_OK(model_build(&line, &config, &graph));
    CHECK_OK(pass_run(graph, strategy_find("easgd")->passes, &passes, NULL));
    CHECK_OK(kernel_choices_load(NULL, &choices));
    CHECK_OK(vectors_read(graph, &trial->optim, &trial->vectors));
    for (int b = 0; b < trial->vectors.count; b++)
        trial->updates[b] = (struct ps_update){ trial->vectors.buckets[b].kernel,
                                                trial->vectors.buckets[b].attrs, false };
    trial->graph = graph;
    trial->choices = choices;
    CHECK_OK(comm_testing_nodes(WORKERS + !trial->is_alone, nodes, NULL, run_rank, trial));
    graph_destroy(graph);
    kernel_choices_destroy(choices);
}

static void check_point(struct point expected, struct point is)
{
    if (expected.w != is.w || expected.b != is.b)
        test_fail(__FILE__, __LINE__, "(%.9g, %.9g) instead of (%.9g, %.9g)", (double)is.w,
                  (double)is.b, (double)expected.w, (double)expected.b);
}

/* Before step 0 all are equal, d = 0: worker 0 goes to (1/4, 1/4), worker 1 to (1, 1/2), the center stays 0.
 * Before step 1: worker 0 has d = (1/16, 1/16), to which the center goes; e = -1/2, so (3/8, 3/8) less d.
 *   Worker 1: d = (15/16, 7/16) / 4, center (19/64, 11/64); e = 1/2, (3/4, 3/8) less d is (33/64, 17/64).
 * Before step 2: worker 0: d = (1/64, 9/64) / 4, center (77/256, 53/256); e = -3/8, (13/32, 13/32) less d.
 *   Worker 1: d = (55/256, 15/256) / 4, center (363/1024, 227/1024); e = -45/64, (111/128, 113/256) less d. */
static void test_the_first_exchanges_are_those_worked_out_by_hand(void)
{
    static const struct point workers[WORKERS][ROUNDS] = {
        { { 0.25F, 0.25F }, { 0.3125F, 0.3125F }, { 103 / 256.0F, 95 / 256.0F } },
        { { 1, 0.5F }, { 33 / 64.0F, 17 / 64.0F }, { 833 / 1024.0F, 437 / 1024.0F } },
    };
    static const struct point centers[WORKERS][ROUNDS] = {
        { { 0, 0 }, { 0.0625F, 0.0625F }, { 77 / 256.0F, 53 / 256.0F } },
        { { 0, 0 }, { 19 / 64.0F, 11 / 64.0F }, { 363 / 1024.0F, 227 / 1024.0F } },
    };

    for (int nodes = 1; nodes <= 3; nodes += 2) {
        struct trial trial = { .steps = ROUNDS };
        run(&trial, "elastic:1,0.25", nodes);
        for (int r = 0; r < WORKERS; r++) {
            for (int s = 0; s < ROUNDS; s++) {
                check_point(workers[r][s], trial.after[r][s]);
                check_point(centers[r][s], trial.center[r][s]);
            }
        }
        CHECK(trial.heard == 3);
        CHECK(trial.seen[1].distance > 0 && trial.seen[1].interval == 1);
    }
}

static void test_exchanges_are_as_far_apart_as_said(void)
{
    struct trial trial = { .steps = STEPS };

    run(&trial, "elastic:4,0.25", 1);
    for (int r = 0; r < WORKERS; r++) {
        for (int s = 0; s < STEPS; s++)
            CHECK(trial.met[r][s] == (s % 4 == 0));
    }
}

static void test_alpha_0_leaves_workers_alone(void)
{
    for (int m = 0; m < 2; m++) {
        struct trial with = { .steps = STEPS, .momentum = 0.5F * (float)m };
        struct trial without = { .steps = STEPS, .momentum = with.momentum, .is_alone = true };

        run(&with, "elastic:2,0", 1);
        run(&without, "elastic:2,0", 1);
        CHECK(memcmp(with.after, without.after, sizeof with.after) == 0);
        CHECK(isnan(with.seen[0].distance));
        for (int s = 0; s < STEPS; s++)
            check_point((struct point){ 0, 0 }, with.center[1][s]);
    }
}

static void test_a_chosen_interval_follows_what_was_seen(void)
{
    struct trial trial = { .steps = STEPS };

    run(&trial, "elastic:auto", 1);
    CHECK(trial.met[0][0] && !trial.met[0][1]); /* the first says nothing: ten steps more */
    CHECK(trial.seen[0].interval == 10 && !trial.seen[0].is_new);
}

const struct test tests[] = {
    { .name = "the first exchanges are those worked out by hand",
      .run = test_the_first_exchanges_are_those_worked_out_by_hand },
    { .name = "exchanges are as far apart as said",
      .run = test_exchanges_are_as_far_apart_as_said },
    { .name = "alpha 0 leaves workers alone", .run = test_alpha_0_leaves_workers_alone },
    { .name = "a chosen interval follows what was seen",
      .run = test_a_chosen_interval_follows_what_was_seen },
    { 0 },
};
