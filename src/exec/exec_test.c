/* SPDX-License-Identifier: MIT */
/* exec_test.c - training gives the same bits on any number of ranks and threads (steps_testing.h). */
#include "exec/exec.h"

#include <math.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/test.h"
#include "comm/comm_testing.h"
#include "exec/lane.h"
#include "exec/release.h"
#include "exec/state.h"
#include "exec/steps_testing.h"

static void test_weights_do_not_depend_on_ranks_and_threads(void)
{
    static const int64_t shards[] = { 4, 6, 8 };

    for (size_t i = 0; i < 3; i++) {
        struct setup setup = setup_usual;
        setup.shards = shards[i];
        const struct outcome alone = setup_run_on(&setup, 1, 1, NULL);
        for (int ranks = 1; ranks <= RANKS_MAX; ranks++) {
            for (int threads = 1; threads <= 2; threads++) {
                for (int factors = 0; factors < 2; factors++) {
                    setup.ranks = ranks;
                    setup.threads = threads;
                    setup.factors = factors;
                    const struct outcome other = setup_run(&setup, NULL);
                    outcome_check_same(&setup, &alone, &other);
                }
            }
        }
    }
}

static void draw_rows(struct rng *rng, struct setup *setup)
{
    for (int r = 1; r < setup->ranks; r++) {
        const int64_t left = setup->shards - setup->rows[r - 1] - (setup->ranks - r);
        setup->rows[r] = setup->rows[r - 1] + 1 + (int64_t)rng_below(rng, (uint64_t)left);
    }
    setup->rows[setup->ranks] = setup->shards;
}

/* Also with batch norm, and with factors and columns that belong to lanes. */
static void test_bits_do_not_depend_on_how_many_shards_ranks_have(struct rng *rng)
{
    static const char *const models[] = { "mlp", "normed" };
    struct setup setup = setup_usual;

    setup.model = models[rng_below(rng, 2)];
    setup.shards = 2 + (int64_t)rng_below(rng, 10);
    setup.batch = setup.shards * 3;
    for (int s = 0; s < setup.n_steps; s++)
        setup.samples[s] = 1 + (int64_t)rng_below(rng, (uint64_t)setup.batch);
    const struct outcome alone = setup_run_on(&setup, 1, 1, NULL);

    setup.ranks = 2 + (int)rng_below(rng, setup.shards < RANKS_MAX ? (uint64_t)setup.shards - 1
                                                                   : RANKS_MAX - 1);
    setup.threads = 1 + (int)rng_below(rng, 3);
    setup.nodes = 1 + (int)rng_below(rng, (uint64_t)setup.ranks);
    setup.zero = (int)rng_below(rng, 4);
    setup.factors = setup.zero == 0 && rng_below(rng, 2);
    draw_rows(rng, &setup);
    const struct outcome other = setup_run(&setup, NULL);
    outcome_check_same(&setup, &alone, &other);
}

static enum status refuse_rows(struct comm *comm, void *arg)
{
    const struct exec_config config = job_config(arg, comm);
    struct exec *exec;

    CHECK_STATUS(STATUS_USAGE, exec_create(&config, &exec));
    CHECK_MESSAGE("not given to 2 ranks in rows");
    return STATUS_OK;
}

static void test_rows_of_shards_that_do_not_fit_are_refused(void)
{
    static const int64_t wrong[][3] = { { 1, 2, 4 }, { 0, 0, 4 }, { 0, 4, 4 }, { 0, 2, 5 } };
    static struct job job;
    struct setup setup = setup_usual;

    setup.shards = 4;
    setup.ranks = 2;
    setup.threads = 1;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        memcpy(setup.rows, wrong[i], sizeof wrong[i]);
        job_make(&setup, &job);
        CHECK_OK(comm_testing_threads(2, NULL, refuse_rows, &job));
        job_release(&job);
    }
}

static void test_any_setup_gives_the_same_bits_on_any_ranks(struct rng *rng)
{
    static const char *const models[] = { "mlp", "cnn" };
    static const char *const optimizers[] = { "sgd", "adam", "adamw", "lars", "lamb" };
    const int64_t shards = 1 + (int64_t)rng_below(rng, 9);
    struct setup setup = {
        .model = models[rng_below(rng, 8) == 0],
        .optimizer = optimizers[rng_below(rng, 5)],
        .max_norm = rng_below(rng, 2) ? 0.5F : 0,
        .batch = shards * (1 + (int64_t)rng_below(rng, 3)),
        .shards = shards,
        .bucket_bytes = 4096 << rng_below(rng, 8),
        .n_steps = 1 + (int)rng_below(rng, 5),
    };
    for (int s = 0; s < setup.n_steps; s++)
        setup.samples[s] = rng_below(rng, 2)
                               ? setup.batch
                               : 1 + (int64_t)rng_below(rng, (uint64_t)setup.batch);
    const struct outcome alone = setup_run_on(&setup, 1, 1, NULL);

    setup.ranks = 1 + (int)rng_below(rng, shards < RANKS_MAX ? (uint64_t)shards : RANKS_MAX);
    setup.threads = 1 + (int)rng_below(rng, 3);
    setup.zero = (int)rng_below(rng, 4);
    setup.factors = setup.zero == 0 && rng_below(rng, 2);
    setup.recompute = rng_below(rng, 2);
    setup.nodes = 1 + (int)rng_below(rng, (uint64_t)setup.ranks);
    setup.leaders = rng_below(rng, 2);
    setup.flying_bytes = rng_below(rng, 2) ? 1 + rng_below(rng, 4096) : 0;
    const struct outcome other = setup_run(&setup, NULL);
    outcome_check_same(&setup, &alone, &other);
}

static void test_weights_do_not_depend_on_nodes(void)
{
    static const struct {
        const char *model, *optimizer;
        float max_norm;
        bool factors;
    } cases[] = {
        { "mlp", "adamw", 0, false },
        { "mlp", "sgd", 0.5F, false }, /* squares are exchanged */
        { "mlp", "adam", 0, true },    /* so are factors */
        { "normed", "sgd", 0, false }, /* has averages */
        { "mlp", "lars", 0, false },   /* norms of each parameter */
        { "mlp", "lamb", 0.5F, false } /* and of directions */
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct setup setup = setup_usual;
        setup.model = cases[i].model;
        setup.optimizer = cases[i].optimizer;
        setup.max_norm = cases[i].max_norm;
        setup.factors = cases[i].factors;
        setup.shards = 6;
        const struct outcome alone = setup_run_on(&setup, 1, 1, NULL);
        for (int ranks = 2; ranks <= RANKS_MAX; ranks++) {
            for (setup.nodes = 2; setup.nodes <= ranks; setup.nodes++) {
                setup.zero = setup.factors ? 0 : (ranks + setup.nodes) % 4;
                setup.flying_bytes = setup.nodes % 2 == 0 ? 64 : 0;
                const struct outcome other = setup_run_on(&setup, ranks, 1 + ranks % 2, NULL);
                outcome_check_same(&setup, &alone, &other);
            }
        }
        setup.nodes = 2; /* of two ranks each, of which one talks */
        setup.leaders = true;
        const struct outcome led = setup_run_on(&setup, 4, 1, NULL);
        outcome_check_same(&setup, &alone, &led);
    }
}

/* Rounds of several shards, lanes with fewer, threads that share an op, several ranks a node. */
static void test_zero_gives_the_bits_of_one_rank(void)
{
    static const struct {
        const char *model, *optimizer;
        float max_norm;
        int64_t shards;
        int ranks, threads, nodes;
    } cases[] = {
        { "mlp", "adamw", 0, 4, 4, 1, 4 },    /* one shard a lane: nobody may run ahead */
        { "cnn", "adam", 0, 4, 2, 1, 2 },     /* two rounds */
        { "mlp", "sgd", 0.5F, 7, 3, 2, 3 },   /* lanes of one round, and of two */
        { "normed", "sgd", 0, 4, 4, 2, 2 },   /* two ranks a node; averages */
        { "mlp", "lamb", 0.5F, 3, 3, 2, 3 },  /* threads share an op */
        { "mlp", "lars", 0, 8, 4, 2, 3 },     /* nodes of different sizes: one rail */
        { "normed", "adamw", 0, 4, 4, 1, 1 }, /* one machine */
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct setup setup = setup_usual;
        setup.model = cases[i].model;
        setup.optimizer = cases[i].optimizer;
        setup.max_norm = cases[i].max_norm;
        setup.shards = cases[i].shards;
        setup.batch = cases[i].shards * 3;
        setup.samples[0] = setup.samples[1] = setup.samples[4] = setup.batch;
        setup.samples[2] = setup.batch - 2;
        setup.samples[3] = 2; /* some shards have none, and so do some nodes */
        const struct outcome alone = setup_run_on(&setup, 1, 1, NULL);
        setup.nodes = cases[i].nodes;
        for (setup.zero = 1; setup.zero <= 3; setup.zero++) {
            const struct outcome other =
                setup_run_on(&setup, cases[i].ranks, cases[i].threads, NULL);
            outcome_check_same(&setup, &alone, &other);
        }
    }
}

/* Whole pages of a part of a vector that are resident. */
static size_t resident_pages(float *vector, size_t begin, size_t end)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const uintptr_t first = ((uintptr_t)(vector + begin) + page - 1) / page * page;
    const uintptr_t last = (uintptr_t)(vector + end) / page * page;
    unsigned char is_there[1024];
    size_t count = 0;

    CHECK(first < last && (last - first) / page <= sizeof is_there);
    CHECK(mincore((void *)first, last - first, is_there) == 0);
    for (size_t i = 0; i < (last - first) / page; i++)
        count += is_there[i] & 1;
    return count;
}

/* Between steps a node has its part of parameters and state, and no gradients; rank 0 gets all of
 * them when it asks, and forgets them again. Bucket by bucket: the whole pages between parts. */
static enum status look_at_memory(struct comm *comm, void *arg)
{
    const struct job *job = arg;
    const struct exec_config config = job_config(job, comm);
    const int zero = job->setup->zero;
    struct outcome outcome = { 0 };
    struct exec *exec;

    TRY(exec_create(&config, &exec));
    TRY(job_train(job, exec, comm, &outcome));
    CHECK(exec_is_in_parts(exec) == (zero == 3));
    TRY(exec_settle(exec));
    for (int b = 0; b < exec->layout.buckets.count; b++)
        exec_forget_group(exec, b);  /* what job_train() has collected */
    release_summed(&exec->lanes[0]); /* what came too late for its step */
    for (int b = 0; b < exec->layout.buckets.count; b++) {
        const size_t begin = (size_t)exec->layout.buckets.begin[b];
        const size_t end = (size_t)exec->layout.buckets.begin[b + 1];
        if (end - begin < (size_t)6 * TREE_STRETCH) /* too small to have pages in the middle */
            continue;
        const size_t half = begin + (end - begin) / 2;
        const bool is_first = exec->topology.node == 0;
        const size_t own =
            resident_pages(exec->memory.param, is_first ? begin : half + TREE_STRETCH,
                           is_first ? half - TREE_STRETCH : end);
        const size_t other =
            resident_pages(exec->memory.param, is_first ? half + TREE_STRETCH : begin,
                           is_first ? end : half - TREE_STRETCH);
        const size_t state =
            resident_pages(exec->memory.state[0], is_first ? half + TREE_STRETCH : begin,
                           is_first ? end : half - TREE_STRETCH);
        const size_t gradients = resident_pages(exec->lanes[0].gradients, begin, end);
        CHECK(own > 0);
        CHECK(zero == 1 ? gradients > 0 : gradients == 0);
        CHECK(zero == 3 ? other == 0 : other > 0);
        CHECK_INT(0, state);
    }
    TRY(comm_barrier(comm));
    exec_destroy(exec);
    return STATUS_OK;
}

static void test_memory_is_there_only_while_it_is_needed(void)
{
    static struct job job;

    for (int zero = 1; zero <= 3; zero++) {
        struct setup setup = setup_usual;
        setup.shards = setup.ranks = setup.nodes = 2;
        setup.threads = 1;
        setup.zero = zero;
        setup.optimizer = "adam";
        setup.bucket_bytes = 128 << 10;
        job_make(&setup, &job);
        CHECK_OK(comm_testing_nodes(2, 2, NULL, look_at_memory, &job));
        job_release(&job);
    }
}

/* All ranks have the same weights, whatever was left unsent; and the loss falls as it does without. */
static void test_compressed_gradients_train(void)
{
    static const char *const names[] = { "bf16", "int8", "topk:0.05", "onebit", "powersgd:2" };
    struct setup setup = setup_usual;

    setup.shards = 4;
    setup.n_steps = STEPS_MAX;
    for (int s = 0; s < STEPS_MAX; s++)
        setup.samples[s] = setup.batch;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        setup.compress = names[i];
        for (setup.nodes = 2; setup.nodes <= 4; setup.nodes++) {
            setup.max_norm = setup.nodes == 3 ? 5 : 0;
            const struct outcome end = setup_run_on(&setup, 4, 1, NULL);
            CHECK(end.steps[STEPS_MAX - 1].loss < 0.8 * end.steps[0].loss);
        }
    }
}

static void test_threads_share_ops_where_shards_are_few(void)
{
    struct setup setup = setup_usual;

    setup.shards = 1;
    const struct outcome alone = setup_run_on(&setup, 1, 1, NULL);
    const struct outcome shared = setup_run_on(&setup, 1, 3, NULL);
    CHECK_INT(1, shared.lanes);
    outcome_check_same(&setup, &alone, &shared);

    setup.shards = 2;
    setup.model = "cnn";
    const struct outcome one_lane = setup_run_on(&setup, 1, 1, NULL);
    const struct outcome lanes = setup_run_on(&setup, 1, 2, NULL);
    const struct outcome ranks = setup_run_on(&setup, 2, 2, NULL);
    CHECK_INT(2, lanes.lanes);
    CHECK_INT(1, ranks.lanes);
    outcome_check_same(&setup, &one_lane, &lanes);
    outcome_check_same(&setup, &one_lane, &ranks);
}

/* All forward, then all backward, each shard with an arena of its own. */
static void test_one_stage_by_a_schedule_gives_the_bits_of_shards_in_turn(void)
{
    static const char *const models[] = { "mlp", "cnn" };

    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        struct setup setup = setup_usual;
        setup.model = models[i];
        setup.shards = 4;
        const struct outcome turns = setup_run_on(&setup, 1, 1, NULL);
        setup.ordered = true;
        const struct outcome scheduled = setup_run_on(&setup, 1, 2, NULL);
        CHECK_INT(1, scheduled.lanes);
        outcome_check_same(&setup, &turns, &scheduled);
    }
}

/* A norm that is never reached changes nothing, but gradients stay until all are known. */
static void test_gradients_that_pass_give_the_bits_of_those_that_stay(void)
{
    static const char *const models[] = { "mlp", "cnn", "normed" };

    for (int m = 0; m < 3; m++) {
        struct setup setup = setup_usual;
        setup.model = models[m];
        setup.optimizer = m == 1 ? "adam" : "sgd";
        setup.shards = 1;
        const struct outcome passing = setup_run_on(&setup, 1, 1, NULL);
        const struct outcome shared = setup_run_on(&setup, 1, 2, NULL);
        outcome_check_same(&setup, &passing, &shared);
        setup.max_norm = 1e30F;
        const struct outcome staying = setup_run_on(&setup, 1, 1, NULL);
        outcome_check_same(&setup, &passing, &staying);
    }
}

/* fc1.bias begins with 3, fc1.weight around -2. */
static enum status check_initial(struct comm *comm, void *arg)
{
    static float data[1 << 20];
    const struct exec_config config = job_config(arg, comm);
    struct exec *exec;

    TRY(exec_create(&config, &exec));
    CHECK_OK(exec_init_params(exec));
    for (int p = 0; p < exec_param_count(exec); p++) {
        const struct value *value = exec_param(exec, p);
        const int64_t count = shape_count(&value->shape);
        CHECK(count <= 1 << 20);
        exec_get(exec, p, -1, data);
        for (int64_t i = 0; i < count; i++) {
            CHECK(data[i] >= value->initial - value->init_bound);
            CHECK(data[i] <= value->initial + value->init_bound);
        }
        if (strcmp(value->name, "fc1.bias") == 0)
            CHECK(data[0] == 3 && data[count - 1] == 3);
        if (strcmp(value->name, "fc1.weight") == 0)
            CHECK(data[0] != data[1]);
    }
    exec_destroy(exec);
    return STATUS_OK;
}

static void test_parameters_begin_around_their_initial_value(void)
{
    static struct job job;
    struct setup setup = setup_usual;

    setup.shards = setup.ranks = setup.threads = 1;
    job_make(&setup, &job);
    struct value *bias = graph_find_value(job.train, "fc1.bias");
    bias->initial = 3;
    bias->init_bound = 0;
    graph_find_value(job.train, "fc1.weight")->initial = -2;
    CHECK_OK(comm_testing_threads(1, NULL, check_initial, &job));
    job_release(&job);
}

static void test_training_learns(void)
{
    struct setup setup = setup_usual;

    setup.shards = 4;
    setup.n_steps = STEPS_MAX;
    for (int s = 0; s < STEPS_MAX; s++)
        setup.samples[s] = setup.batch;
    const struct outcome end = setup_run_on(&setup, 2, 1, NULL);
    CHECK(end.steps[0].loss > 1.2);
    CHECK(end.steps[STEPS_MAX - 1].loss < 0.7 * end.steps[0].loss);
    CHECK(end.steps[STEPS_MAX - 1].correct > end.steps[0].correct);
    CHECK_INT(setup.batch, end.steps[0].samples);
}

/* More sizes than there are plans kept, in any order. */
static void test_every_step_may_have_another_size(void)
{
    struct setup setup = setup_usual;
    struct rng rng;

    setup.shards = 2;
    setup.n_steps = STEPS_MAX;
    for (uint64_t seed = 0; seed < 8; seed++) {
        rng_init(&rng, seed, 0);
        for (int s = 0; s < STEPS_MAX; s++)
            setup.samples[s] = 1 + (int64_t)rng_below(&rng, (uint64_t)setup.batch);
        const struct outcome alone = setup_run_on(&setup, 1, 1, NULL);
        setup.factors = seed % 2;
        const struct outcome other = setup_run_on(&setup, 2, 1, NULL);
        outcome_check_same(&setup, &alone, &other);
        setup.factors = false;
    }
}

/* Allocations of steps [from, n_steps) of all ranks together. */
static uint64_t allocations(const struct setup *setup, int from)
{
    static struct job job;

    job_make(setup, &job);
    job.count_from = from;
    CHECK_OK(comm_testing_threads(setup->ranks, NULL, job_run_rank, &job));
    job_release(&job);
    return job.outcomes[0].allocations;
}

static void test_nothing_is_allocated_after_the_first_step(void)
{
    static const char *const models[] = { "mlp", "cnn", "normed" };

    for (int m = 0; m < 3; m++) {
        for (int ranks = 1; ranks <= 2; ranks++) {
            for (int threads = 1; threads <= 2; threads++) {
                struct setup setup = setup_usual;
                setup.model = models[m];
                setup.ranks = ranks;
                setup.threads = threads;
                setup.sync_norm = m == 2;
                setup.shards = setup.sync_norm ? ranks * threads : 4;
                setup.max_norm = threads == 2 ? 1 : 0;
                setup.factors = threads == 1;
                setup.n_steps = 11;
                for (int s = 0; s < setup.n_steps; s++)
                    setup.samples[s] = setup.batch;
                CHECK_INT(0, allocations(&setup, 1));
                /* After the first step of each shape. */
                for (int s = 0; s < setup.n_steps; s++)
                    setup.samples[s] = s % 2 ? 19 : setup.batch;
                CHECK_INT(0, allocations(&setup, 2));
            }
        }
    }
}

/* A rank's own number as the parameter's contents, set by rank 0 and read by all. */
static enum status set_and_get(struct comm *comm, void *arg)
{
    struct job *job = arg;
    const struct exec_config config = job_config(job, comm);
    struct exec *exec;
    enum { LARGEST = 250 * 100 }; /* fc2.weight */
    static float plain[LARGEST], back[RANKS_MAX][LARGEST];
    float *mine = back[comm_rank(comm)];
    bool same = true;

    TRY(exec_create(&config, &exec));
    enum status status = STATUS_OK;
    for (int p = 0; p < exec_param_count(exec) && status == STATUS_OK; p++) {
        const int64_t count = shape_count(&exec_param(exec, p)->shape);
        for (int state = -1; state < exec_state_count(exec, 0) && status == STATUS_OK;
             state++) {
            if (comm_rank(comm) == 0) {
                for (int64_t i = 0; i < count; i++)
                    plain[i] = (float)(i + 7 * p + 3 * state);
                exec_set(exec, p, state, plain);
            }
            status = exec_publish(exec);
            exec_get(exec, p, state, mine);
            for (int64_t i = 0; i < count; i++)
                same = same && mine[i] == (float)(i + 7 * p + 3 * state);
            if (status == STATUS_OK)
                status = exec_settle(exec); /* before rank 0 sets the next */
        }
    }
    if (status == STATUS_OK && !same)
        status = FAIL(STATUS_MISMATCH, "what was set is not what was got");
    exec_destroy(exec);
    return status;
}

static void test_what_one_rank_sets_all_ranks_get(void)
{
    struct setup setup = setup_usual;
    static struct job job;

    setup.optimizer = "adam";
    setup.shards = 4;
    setup.ranks = 2;
    setup.threads = 1;
    job_make(&setup, &job);
    CHECK_OK(comm_testing_threads(2, NULL, set_and_get, &job));
    job_release(&job);
}

static enum status create_only(struct comm *comm, void *arg)
{
    const struct job *job = arg;
    const struct exec_config config = job_config(job, comm);
    struct exec *exec;
    struct strbuf text;

    TRY(exec_create(&config, &exec));
    strbuf_init(&text, 1 << 16);
    enum status status = exec_print_plan(exec, 3, &text);
    if (status == STATUS_OK && !strstr(text.text, "linear 3x64 250x64 250 relu"))
        status = FAIL(STATUS_MISMATCH, "the plan is %s", text.text);
    strbuf_release(&text);
    if (exec_memory(exec).arena == 0 || exec_memory(exec).shared == 0)
        status = FAIL(STATUS_MISMATCH, "no memory is counted");
    exec_destroy(exec);
    return status;
}

static void test_a_plan_is_printed_a_kernel_a_line(void)
{
    struct setup setup = setup_usual;
    static struct job job;

    setup.shards = 4;
    setup.ranks = setup.threads = 1;
    job_make(&setup, &job);
    CHECK_OK(comm_testing_threads(1, NULL, create_only, &job));
    job_release(&job);
}

static void test_a_graph_for_one_rank_is_refused_by_two(void)
{
    struct setup setup = setup_usual;
    static struct job job;

    setup.shards = 4;
    setup.ranks = setup.threads = 1;
    job_make(&setup, &job);
    CHECK_STATUS(STATUS_MISMATCH, comm_testing_threads(2, NULL, create_only, &job));
    CHECK_MESSAGE("one rank");
    job_release(&job);
}

static void test_fewer_shards_than_ranks_are_refused(void)
{
    struct setup setup = setup_usual;
    static struct job job;

    setup.shards = 2;
    setup.ranks = 2;
    setup.threads = 1;
    job_make(&setup, &job);
    CHECK_STATUS(STATUS_USAGE, comm_testing_threads(3, NULL, create_only, &job));
    CHECK_MESSAGE("--shards");
    job_release(&job);
}

/* A lane a shard, wherever the lanes are; two threads a lane make no difference, nor does
 * --recompute. */
static void test_synchronized_batch_norm_does_not_depend_on_ranks(void)
{
    static const int64_t shards[] = { 1, 3, 4, 6 };

    for (size_t i = 0; i < sizeof shards / sizeof *shards; i++) {
        struct setup setup = setup_usual;
        setup.model = "normed";
        setup.shards = shards[i];
        const struct outcome apart = setup_run_on(&setup, 1, 1, NULL);
        setup.sync_norm = true;
        setup.max_norm = shards[i] == 3 ? 0.5F : 0;
        const struct outcome alone = setup_run_on(&setup, 1, (int)shards[i], NULL);
        CHECK(shards[i] == 3 || fabs(alone.steps[1].loss - apart.steps[1].loss) < 0.5);
        CHECK(strcmp(alone.hash, apart.hash) != 0);
        for (int ranks = 1; ranks <= RANKS_MAX; ranks++) {
            if (shards[i] % ranks)
                continue;
            for (int more = 1; more <= 2; more++) {
                setup.recompute = more == 2;
                setup.nodes = more == 2 && ranks > 1 ? 2 : 1;
                setup.zero = more == 2 ? 3 : 0;
                const struct outcome other =
                    setup_run_on(&setup, ranks, more * (int)(shards[i] / ranks), NULL);
                CHECK_INT(shards[i] / ranks, other.lanes);
                outcome_check_same(&setup, &alone, &other);
            }
        }
    }
}

static void test_several_shards_a_lane_cannot_exchange_statistics(void)
{
    struct setup setup = setup_usual;
    static struct job job;

    setup.model = "normed";
    setup.sync_norm = true;
    setup.shards = 6;
    setup.ranks = setup.threads = 2;
    job_make(&setup, &job);
    CHECK_STATUS(STATUS_USAGE, comm_testing_threads(2, NULL, create_only, &job));
    CHECK_MESSAGE("use --shards 4");
    job_release(&job);
}

const struct test tests[] = {
    { .name = "weights do not depend on ranks and threads",
      .run = test_weights_do_not_depend_on_ranks_and_threads },
    { .name = "any setup gives the same bits on any ranks",
      .property = test_any_setup_gives_the_same_bits_on_any_ranks },
    { .name = "weights do not depend on nodes", .run = test_weights_do_not_depend_on_nodes },
    { .name = "zero gives the bits of one rank", .run = test_zero_gives_the_bits_of_one_rank },
    { .name = "memory is there only while it is needed",
      .run = test_memory_is_there_only_while_it_is_needed },
    { .name = "bits do not depend on how many shards ranks have",
      .property = test_bits_do_not_depend_on_how_many_shards_ranks_have },
    { .name = "rows of shards that do not fit are refused",
      .run = test_rows_of_shards_that_do_not_fit_are_refused },
    { .name = "compressed gradients train", .run = test_compressed_gradients_train },
    { .name = "one stage by a schedule gives the bits of shards in turn",
      .run = test_one_stage_by_a_schedule_gives_the_bits_of_shards_in_turn },
    { .name = "threads share ops where shards are few",
      .run = test_threads_share_ops_where_shards_are_few },
    { .name = "gradients that pass give the bits of those that stay",
      .run = test_gradients_that_pass_give_the_bits_of_those_that_stay },
    { .name = "parameters begin around their initial value",
      .run = test_parameters_begin_around_their_initial_value },
    { .name = "training learns", .run = test_training_learns },
    { .name = "every step may have another size",
      .run = test_every_step_may_have_another_size },
    { .name = "nothing is allocated after the first step",
      .run = test_nothing_is_allocated_after_the_first_step },
    { .name = "what one rank sets all ranks get",
      .run = test_what_one_rank_sets_all_ranks_get },
    { .name = "a plan is printed a kernel a line",
      .run = test_a_plan_is_printed_a_kernel_a_line },
    { .name = "a graph for one rank is refused by two",
      .run = test_a_graph_for_one_rank_is_refused_by_two },
    { .name = "fewer shards than ranks are refused",
      .run = test_fewer_shards_than_ranks_are_refused },
    { .name = "synchronized batch norm does not depend on ranks",
      .run = test_synchronized_batch_norm_does_not_depend_on_ranks },
    { .name = "several shards a lane cannot exchange statistics",
      .run = test_several_shards_a_lane_cannot_exchange_statistics },
    { 0 },
};
