/* SPDX-License-Identifier: MIT */
/* local_test.c - averages of workers on a model of two parameters, against values worked out by hand.
 *
 * y = w x + b, loss (y - x)^2, rate 1/8, from w = b = 0. Worker 0 sees x = 1, worker 1 x = 2, always. A step
 * moves w by -x e / 4 and b by -e / 4 with e = w x + b - x; all numbers below are exact in binary.
 */
#include "train/local.h"

#include <math.h>

#include "base/test.h"
#include "comm/comm_testing.h"
#include "graph/build.h"
#include "model/model.h"

enum { WORKERS = 2, MEETINGS = 3 };

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

/* A job and what came of it: parameters of each worker after each meeting. */
struct trial {
    struct axes axes;
    int nodes;
    int64_t shards; /* 2, or 3: worker 1 has two of them */
    double outer_lr, outer_momentum;
    int steps;
    const struct graph *graph;
    const struct kernel_choices *choices;
    struct optim_config optim;
    struct point after[WORKERS][MEETINGS];
    int met_at[MEETINGS];
    struct local_met met[WORKERS][MEETINGS];
    struct point lent[WORKERS], kept[WORKERS]; /* of the last step, if that is no meeting's */
    int n_meetings;
};

static struct point point_of(struct exec *exec)
{
    struct point point;

    exec_get(exec, 0, -1, &point.w);
    exec_get(exec, 1, -1, &point.b);
    return point;
}

static enum status one_step(struct trial *trial, struct exec *exec, int rank, int step,
                            struct exec_result *out)
{
    float x[2] = { (float)(rank + 1), (float)(rank + 1) };
    const int64_t rows = exec_shard_count(exec);
    const struct batch batch = { .step = (uint64_t)step,
                                 .samples = trial->shards,
                                 .weight = trial->shards,
                                 .own_weight = rows,
                                 .first = exec_first_shard(exec),
                                 .rows = rows,
                                 .x = x };

    return exec_step(exec, &batch, out);
}

static enum status train(struct trial *trial, struct local *local, struct exec *exec, int rank)
{
    int meeting = 0;

    for (int s = 0; s < trial->steps; s++) {
        struct exec_result result;
        TRY(one_step(trial, exec, rank, s, &result));
        local_add(local, &result, 0);
        if (!local_step(local, (uint64_t)s + 1, 0.001))
            continue;
        if (meeting == MEETINGS)
            return FAIL(STATUS_MISMATCH, "more meetings than expected");
        TRY(local_meet(local, (uint64_t)s + 1, 0.125, 1U << rank, &trial->met[rank][meeting]));
        trial->after[rank][meeting] = point_of(exec);
        if (rank == 0) {
            trial->met_at[meeting] = s + 1;
            trial->n_meetings = meeting + 1;
        }
        meeting++;
    }
    TRY(local_lend_mean(local));
    trial->lent[rank] = point_of(exec);
    local_give_back(local);
    trial->kept[rank] = point_of(exec);
    struct tally tally = {
        .loss = 1, .correct = rank, .samples = 2, .weight = 3, .seconds = 7 + rank
    };
    TRY(local_sum(local, &tally));
    if (tally.loss != 2 || tally.correct != 1 || tally.samples != 4 || tally.weight != 6 ||
        tally.seconds != 7 + rank)
        return FAIL(STATUS_MISMATCH, "sums are wrong");
    return STATUS_OK;
}

static enum status run_own(struct trial *trial, struct comm *comm, struct comm *alone)
{
    const int rank = comm_rank(comm);
    const int64_t first = rank * trial->shards / WORKERS;
    const struct exec_config config = {
        .train = trial->graph,
        .comm = alone,
        .threads = 1,
        .shards = trial->shards,
        .batch = trial->shards,
        .part = { .first = first, .count = (rank + 1) * trial->shards / WORKERS - first },
        .workers = { WORKERS, rank, transport_nodes(comm_transport(comm)), comm },
        .choices = trial->choices,
        .optim = trial->optim,
    };
    struct local_config with = { .axes = &trial->axes,
                                 .comm = comm,
                                 .shards = trial->shards,
                                 .outer_lr = trial->outer_lr,
                                 .outer_momentum = trial->outer_momentum };
    struct exec *exec;
    struct local *local = NULL;

    TRY(exec_create(&config, &exec));
    with.exec = exec;
    enum status status = local_create(&with, &local);
    if (status == STATUS_OK)
        status = train(trial, local, exec, rank);
    local_destroy(local);
    exec_destroy(exec);
    return status;
}

static enum status run_rank(struct comm *comm, void *arg)
{
    struct transport *transport;
    struct comm *alone = NULL;

    TRY(transport_inproc_create(1, &transport));
    enum status status = comm_create(transport, NULL, &alone);
    if (status == STATUS_OK)
        status = run_own(arg, comm, alone);
    comm_destroy(alone);
    transport_inproc_destroy(&transport, 1);
    return status;
}

static struct trial run(const char *sync, int64_t shards, int nodes, double outer_lr,
                        double outer_momentum, int steps)
{
    struct trial trial = { .nodes = nodes,
                           .shards = shards,
                           .outer_lr = outer_lr,
                           .outer_momentum = outer_momentum,
                           .steps = steps,
                           .optim.optimizer = optim_find("sgd") };
    struct kernel_choices *choices;
    struct graph *graph;

    CHECK_OK(strategy_check(strategy_find("localsgd"), WORKERS, NULL, sync, NULL, &trial.axes));
    trial.optim.schedule = (struct schedule){ .kind = SCHEDULE_CONSTANT, .lr = 0.125 };
    const struct pass_config passes = {
        .batch = shards, .shards = shards, .ranks = WORKERS, .optim = trial.optim
    };
    struct model_config config = model_defaults(&line);
    config.sample = (struct shape){ 3, { 1, 1, 1 } };
    config.training = true;
    config.batch = shards;
    CHECK_OK(model_build(&line, &config, &graph));
    CHECK_OK(pass_run(graph, strategy_find("localsgd")->passes, &passes, NULL));
    CHECK_OK(kernel_choices_load(NULL, &choices));
    trial.graph = graph;
    trial.choices = choices;
    CHECK_OK(comm_testing_nodes(WORKERS, nodes, NULL, run_rank, &trial));
    graph_destroy(graph);
    kernel_choices_destroy(choices);
    return trial;
}

static void check_point(struct point expected, struct point is)
{
    if (expected.w != is.w || expected.b != is.b)
        test_fail(__FILE__, __LINE__, "(%.9g, %.9g) instead of (%.9g, %.9g)", (double)is.w,
                  (double)is.b, (double)expected.w, (double)expected.b);
}

static void check_after(const struct trial *trial, int meeting, struct point expected)
{
    for (int r = 0; r < WORKERS; r++)
        check_point(expected, trial->after[r][meeting]);
}

/* Step 1: worker 0 has e = -1 and goes to (1/4, 1/4); worker 1 e = -2, to (1, 1/2). Mean (5/8, 3/8).
 * Step 2: e = 0 for worker 0: it stays; e = 5/4 + 3/8 - 2 = -3/8: worker 1 goes to (5/8 + 3/16, 3/8 + 3/32). */
static void test_every_step_is_averaging_by_hand(void)
{
    for (int nodes = 1; nodes <= 2; nodes++) {
        const struct trial trial = run("local:1", 2, nodes, 1, 0, 2);

        CHECK(trial.n_meetings == 2);
        check_after(&trial, 0, (struct point){ 0.625F, 0.375F });
        check_after(&trial, 1, (struct point){ 0.71875F, 0.421875F });
        for (int r = 0; r < WORKERS; r++) {
            CHECK(trial.met[r][0].heard == 3 && trial.met[r][0].interval == 1);
            /* (3/8)^2 + (1/8)^2 of each worker, over two elements. */
            CHECK(trial.met[r][0].variance == 0.078125);
        }
    }
}

/* Step 2: worker 0 from (1/4, 1/4) has e = -1/2: (3/8, 3/8); worker 1 from (1, 1/2) e = 1/2: (3/4, 3/8).
 * Step 3 from the mean (9/16, 3/8): e = -1/16, so (37/64, 25/64); e = -1/2, so (13/16, 1/2). */
static void test_steps_between_are_the_workers_own(void)
{
    const struct trial trial = run("local:2", 2, 1, 1, 0, 3);

    CHECK(trial.n_meetings == 1 && trial.met_at[0] == 2);
    check_after(&trial, 0, (struct point){ 0.5625F, 0.375F });
    check_point((struct point){ 0.578125F, 0.390625F }, trial.kept[0]);
    check_point((struct point){ 0.8125F, 0.5F }, trial.kept[1]);
    for (int r = 0; r < WORKERS; r++)
        check_point((struct point){ 0.6953125F, 0.4453125F }, trial.lent[r]);
}

/* With rate 1/2 and momentum 1/2. First meeting: gradient (-5/8, -3/8), momentum the same, so the step is 3/4
 * of that way: (15/32, 9/32). Then worker 0 has e = -1/4: (17/32, 11/32); worker 1 e = -25/32:
 * (15/32 + 25/64, 9/32 + 25/128) = (55/64, 61/128). Mean (89/128, 105/256); gradient (-29/128, -33/256);
 * momentum (-5/16 - 29/128, -3/16 - 33/256) = (-69/128, -81/256); step half of gradient + momentum / 2,
 * (-127/512, -147/1024): (367/512, 435/1024). */
static void test_the_outer_optimizer_is_nesterovs(void)
{
    const struct trial trial = run("local:1", 2, 1, 0.5, 0.5, 2);

    check_after(&trial, 0, (struct point){ 0.46875F, 0.28125F });
    check_after(&trial, 1, (struct point){ 367 / 512.0F, 435 / 1024.0F });
}

/* Worker 1 has two of three samples, both x = 2: its step is the same, its weight twice worker 0's. */
static void test_larger_parts_count_more(void)
{
    const struct trial trial = run("local:1", 3, 1, 1, 0, 1);

    for (int r = 0; r < WORKERS; r++) {
        CHECK(fabsf(trial.after[r][0].w - 0.75F) < 1e-6F);
        CHECK(fabsf(trial.after[r][0].b - 5 / 12.0F) < 1e-6F);
    }
    check_point(trial.after[0][0], trial.after[1][0]);
}

/* The first meeting is after ten steps, and only its successor chooses. */
static void test_a_chosen_interval_is_the_same_on_all(void)
{
    const struct trial trial = run("local:auto", 2, 2, 1, 0, 20);

    CHECK(trial.n_meetings == 2 && trial.met_at[0] == 10);
    for (int m = 0; m < trial.n_meetings; m++) {
        CHECK(trial.met[0][m].interval == trial.met[1][m].interval);
        CHECK(trial.met[0][m].interval >= 1);
    }
}

const struct test tests[] = {
    { .name = "every step is averaging by hand", .run = test_every_step_is_averaging_by_hand },
    { .name = "steps between are the workers' own",
      .run = test_steps_between_are_the_workers_own },
    { .name = "the outer optimizer is Nesterov's",
      .run = test_the_outer_optimizer_is_nesterovs },
    { .name = "larger parts count more", .run = test_larger_parts_count_more },
    { .name = "a chosen interval is the same on all",
      .run = test_a_chosen_interval_is_the_same_on_all },
    { 0 },
};
