/* SPDX-License-Identifier: MIT */
/* account_test.c - waits are charged to who came last, a rank that does not come is named, bytes
 * between ranks are counted, communication beside computing is hidden, and lanes are traced. */
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/test.h"
#include "comm/comm_testing.h"
#include "exec/exec.h"
#include "exec/state.h"
#include "model/model.h"
#include "pass/strategy.h"

enum { SIDE = 8, PIXELS = SIDE * SIDE, CLASSES = 6, RANKS_MAX = 4, BATCH = 24 };

struct job {
    int ranks, threads, n_steps;
    int nodes; /* 0: one */
    int64_t bucket_bytes;
    float max_norm;
    bool factors;
    const char *point; /* where a rank is late; NULL: at every bucket */
    int late;          /* rank that is late at every bucket by late_ms */
    int late_ms;       /* -1: it never comes */
    double stall;      /* seconds */
    bool traces;
    struct graph *train;
    struct kernel_choices *choices;
    struct optim_config optim;
    struct exec_times times[RANKS_MAX];
    double waited_for[RANKS_MAX][RANKS_MAX];
    char trace[RANKS_MAX][1 << 16];
    char hash[65];
};

static void make_job(struct job *job)
{
    const struct pass_config passes = { .batch = BATCH,
                                        .shards = job->ranks * job->threads,
                                        .ranks = job->ranks,
                                        .bucket_bytes = job->bucket_bytes,
                                        .factors = job->factors,
                                        .optim = { .optimizer = optim_find("sgd") } };
    struct pass_config config = passes;
    const struct model *model = model_find("mlp");
    struct model_config shape = model_defaults(model);

    config.optim.attrs = config.optim.optimizer->defaults;
    config.optim.attrs.max_norm = job->max_norm;
    config.optim.schedule = (struct schedule){ .kind = SCHEDULE_CONSTANT, .lr = 0.01 };
    job->optim = config.optim;
    shape.sample = (struct shape){ 3, { 1, SIDE, SIDE } };
    shape.classes = CLASSES;
    shape.batch = BATCH;
    CHECK_OK(model_build(model, &shape, &job->train));
    const char *strategy = job->nodes > 1   ? "multiworker"
                           : job->ranks > 1 ? "mirrored"
                                            : "single";
    CHECK_OK(pass_run(job->train, strategy_find(strategy)->passes, &config, NULL));
    CHECK_OK(kernel_choices_load(NULL, &job->choices));
}

static void release_job(struct job *job)
{
    graph_destroy(job->train);
    kernel_choices_destroy(job->choices);
}

struct place {
    const struct job *job;
    struct comm *comm;
    int seen;
};

static void come_late(void *arg, const char *point)
{
    struct place *place = arg;
    const struct job *job = place->job;

    if (comm_rank(place->comm) != job->late ||
        strcmp(point, job->point ? job->point : "ready") != 0)
        return;
    if (job->late_ms >= 0)
        clock_sleep_ms(job->late_ms);
    while (job->late_ms < 0 && place->seen > 0 && /* endless, but for the test's end */
           transport_check(comm_transport(place->comm)) == STATUS_OK)
        clock_sleep_ms(1);
    place->seen++;
}

static enum status run_steps(struct job *job, struct exec *exec, int rank)
{
    static const float zeros[BATCH * PIXELS];
    static const int32_t labels[BATCH];
    const int64_t shards = job->ranks * job->threads, shard = exec_first_shard(exec);
    struct batch batch = {
        .samples = BATCH,
        .weight = BATCH,
        .first = sampler_shard_begin(BATCH, shards, shard),
        .rows = sampler_shard_begin(BATCH, shards, shard + exec_shard_count(exec)) -
                sampler_shard_begin(BATCH, shards, shard),
        .x = (void *)zeros,
        .y = (int32_t *)labels,
    };
    struct exec_result result;

    TRY(exec_init_params(exec));
    exec_reset_times(exec);
    for (; batch.step < (uint64_t)job->n_steps; batch.step++)
        TRY(exec_step(exec, &batch, &result));
    TRY(exec_settle(exec));
    job->times[rank] = exec_times(exec);
    exec_waited_for(exec, job->waited_for[rank]);
    return rank == 0 ? exec_hash(exec, job->hash) : STATUS_OK;
}

static enum status run_rank(struct comm *comm, void *arg)
{
    struct job *job = arg;
    struct place place = { job, comm, 0 };
    const int rank = comm_rank(comm);
    struct exec_config config = {
        .train = job->train,
        .comm = comm,
        .threads = job->threads,
        .shards = job->ranks * job->threads,
        .batch = BATCH,
        .seed = 5,
        .choices = job->choices,
        .optim = job->optim,
        .stall_timeout = job->stall,
        .at_meeting = come_late,
        .at_meeting_arg = &place,
    };
    struct exec *exec = NULL;
    struct strbuf text;

    if (job->traces)
        TRY(trace_create(&config.trace));
    trace_switch(config.trace, true);
    enum status status = exec_create(&config, &exec);
    if (status == STATUS_OK)
        status = run_steps(job, exec, rank);
    strbuf_init(&text, sizeof *job->trace - 1);
    if (job->traces && status == STATUS_OK) {
        (void)trace_print(config.trace, rank, "rank", 0, &text);
        status = strbuf_status(&text);
        memcpy(job->trace[rank], text.text, text.length + 1);
    }
    strbuf_release(&text);
    exec_destroy(exec);
    trace_destroy(config.trace);
    return status;
}

static enum status run(struct job *job)
{
    return comm_testing_nodes(job->ranks, job->nodes ? job->nodes : 1, NULL, run_rank, job);
}

static void test_a_wait_is_charged_to_the_rank_that_came_last(void)
{
    static struct job job = {
        .ranks = 3, .threads = 1, .n_steps = 4, .late = 1, .late_ms = 40
    };

    make_job(&job);
    CHECK_OK(run(&job));
    for (int r = 0; r < job.ranks; r += 2) {
        CHECK(job.waited_for[r][1] > 0.08); /* of 0.16 s or more */
        CHECK(job.waited_for[r][1] > job.waited_for[r][2 - r]);
        double all = 0;
        for (int q = 0; q < job.ranks; q++)
            all += job.waited_for[r][q];
        CHECK_CLOSE(job.times[r].wait, all, 1e-6);
    }
    CHECK(job.waited_for[1][0] + job.waited_for[1][2] < job.waited_for[0][1]);
    release_job(&job);
}

static void test_a_rank_that_does_not_come_is_named(void)
{
    static struct job job = {
        .ranks = 3, .threads = 1, .n_steps = 3, .late = 2, .late_ms = -1, .stall = 0.6
    };

    make_job(&job);
    const double began = clock_seconds();
    CHECK_STATUS(STATUS_PEER_LOST, run(&job));
    CHECK_MESSAGE("rank 2 has not come to reduce_scatter of bucket");
    CHECK_MESSAGE("weight");
    CHECK_MESSAGE("at step ");
    CHECK(clock_seconds() - began < 5);
    release_job(&job);
}

static void test_a_late_rank_is_in_time_for_a_long_timeout(void)
{
    static struct job job = {
        .ranks = 2, .threads = 1, .n_steps = 3, .late = 1, .late_ms = 30, .stall = 5
    };

    make_job(&job);
    CHECK_OK(run(&job));
    release_job(&job);
}

/* All ranks together read 2 (R - 1) times the vector: what an optimal all_reduce sends. */
static void test_dense_sums_move_as_many_bytes_as_an_optimal_all_reduce(void)
{
    for (int ranks = 1; ranks <= 4; ranks++) {
        static struct job job;
        double bytes = 0;

        job = (struct job){
            .ranks = ranks, .threads = 1, .n_steps = 2, .late = -1, .bucket_bytes = 40000
        };
        make_job(&job);
        CHECK_OK(run(&job));
        for (int r = 0; r < ranks; r++)
            bytes += job.times[r].bytes / job.n_steps;
        CHECK_CLOSE(2.0 * (ranks - 1) * 4 * (double)graph_param_count(job.train), bytes,
                    0.01); /* places in the vector are rounded up */
        ;
        release_job(&job);
    }
}

static void test_factors_move_fewer_bytes(void)
{
    static struct job dense = { .ranks = 2, .threads = 1, .n_steps = 2, .late = -1 };
    static struct job factored;

    factored = dense;
    factored.factors = true;
    make_job(&dense);
    make_job(&factored);
    CHECK_OK(run(&dense));
    CHECK_OK(run(&factored));
    CHECK(factored.times[0].bytes > 0);
    CHECK(factored.times[0].bytes < 0.8 * dense.times[0].bytes);
    release_job(&dense);
    release_job(&factored);
}

static void test_what_one_lane_sums_while_another_computes_is_hidden(void)
{
    struct overlap overlap = { .lock = PTHREAD_MUTEX_INITIALIZER };

    /* Lanes: A computes [10, 50), B [30, 40). Between 50 and 60 nobody does; A again from 60. */
    overlap_enter(&overlap, 10);
    CHECK_INT(10, overlap_computed(&overlap, 20));
    overlap_enter(&overlap, 30);
    overlap_leave(&overlap, 40);
    CHECK_INT(30, overlap_computed(&overlap, 40));
    overlap_leave(&overlap, 50);
    CHECK_INT(40, overlap_computed(&overlap, 55));
    overlap_enter(&overlap, 60);
    CHECK_INT(45, overlap_computed(&overlap, 65));
    overlap_leave(&overlap, 70);
    CHECK_INT(50, overlap_computed(&overlap, 100));
}

static void test_hidden_communication_is_a_part_of_communication(void)
{
    static struct job alone = { .ranks = 2, .threads = 1, .n_steps = 4, .late = -1 };
    static struct job pair = { .ranks = 1, .threads = 2, .n_steps = 4, .late = -1 };

    make_job(&alone);
    CHECK_OK(run(&alone));
    CHECK(alone.times[0].comm > 0);
    CHECK(alone.times[0].hidden == 0); /* its one lane cannot do both */
    release_job(&alone);
    make_job(&pair);
    CHECK_OK(run(&pair));
    CHECK(pair.times[0].hidden >= 0 && pair.times[0].hidden <= pair.times[0].comm);
    release_job(&pair);
}

static void test_lanes_are_traced_and_bits_stay(void)
{
    static struct job job = {
        .ranks = 2, .threads = 2, .n_steps = 2, .late = -1, .max_norm = 1
    };
    static struct job traced;

    traced = job;
    traced.traces = true;
    make_job(&job);
    CHECK_OK(run(&job));
    make_job(&traced);
    CHECK_OK(run(&traced));
    CHECK_TEXT(job.hash, traced.hash);
    for (int r = 0; r < traced.ranks; r++) {
        CHECK(strstr(traced.trace[r], "\"name\": \"fc1\", \"cat\": \"compute\""));
        CHECK(strstr(traced.trace[r], "\"name\": \"update by norms\""));
        CHECK(strstr(traced.trace[r], "\"name\": \"sum\", \"cat\": \"communication\""));
        CHECK(strstr(traced.trace[r], "bucket 0 ("));
        CHECK(strstr(traced.trace[r], "lane 1"));
    }
    CHECK(strlen(job.trace[0]) == 0);
    release_job(&job);
    release_job(&traced);
}

/* Between machines -------------------------------------------------------------------------- */

static void test_a_wait_for_another_machine_is_charged_to_its_rank(void)
{
    static struct job job = {
        .ranks = 2, .nodes = 2, .threads = 1, .n_steps = 4, .late = 1, .late_ms = 40
    };

    make_job(&job);
    CHECK_OK(run(&job));
    CHECK(job.waited_for[0][1] > 0.08); /* of 0.16 s or more */
    CHECK(job.waited_for[0][1] > job.waited_for[0][0]);
    release_job(&job);
}

static void test_a_rank_of_another_machine_that_does_not_come_is_named(void)
{
    /* Alone on its machine, and with others who know better: rank 3 is no rail's first. */
    static const struct {
        int ranks, nodes, late;
        const char *text;
        int64_t bucket_bytes;
    } cases[] = {
        { 2, 2, 1, "rank 1 has not come to", 0 },
        { 4, 2, 3, "rank 3 has not come to", 0 },
        { 3, 2, 0, "rank 0 has not come to", 0 },
        /* It stops between two buckets: losses are there, so the others wait in the next step. */
        { 4, 2, 1, "rank 1 has not come to", 40000 },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        static struct job job;
        job = (struct job){ .ranks = cases[i].ranks,
                            .nodes = cases[i].nodes,
                            .threads = 1,
                            .n_steps = 3,
                            .bucket_bytes = cases[i].bucket_bytes,
                            .late = cases[i].late,
                            .late_ms = -1,
                            .stall = 0.6 };
        make_job(&job);
        const double began = clock_seconds();
        CHECK_STATUS(STATUS_PEER_LOST, run(&job));
        CHECK_MESSAGE(cases[i].text);
        CHECK_MESSAGE("bucket");
        CHECK(clock_seconds() - began < 3);
        release_job(&job);
    }
}

static void test_a_rank_of_another_machine_is_named_between_steps_too(void)
{
    static struct job job = { .ranks = 2,
                              .nodes = 2,
                              .threads = 1,
                              .n_steps = 2,
                              .point = "settle",
                              .late = 1,
                              .late_ms = -1,
                              .stall = 0.6 };

    make_job(&job);
    CHECK_STATUS(STATUS_PEER_LOST, run(&job));
    CHECK_MESSAGE("rank 1 has sent nothing to rank 0");
    release_job(&job);
}

/* All nodes together send 2 (N - 1) times the vector, besides losses. */
static void test_machines_send_each_other_as_much_as_an_optimal_all_reduce(void)
{
    for (int nodes = 2; nodes <= 4; nodes += 2) {
        static struct job job;
        double bytes = 0;

        job = (struct job){ .ranks = 4,
                            .nodes = nodes,
                            .threads = 1,
                            .n_steps = 3,
                            .late = -1,
                            .bucket_bytes = 40000 };
        make_job(&job);
        CHECK_OK(run(&job));
        for (int r = 0; r < job.ranks; r++)
            bytes += job.times[r].bytes / job.n_steps;
        CHECK_CLOSE(2.0 * (nodes - 1) * 4 * (double)graph_param_count(job.train), bytes, 0.01);
        release_job(&job);
    }
}

static void test_the_wire_is_traced_and_may_be_hidden(void)
{
    static struct job job = { .ranks = 2,
                              .nodes = 2,
                              .threads = 1,
                              .n_steps = 3,
                              .late = -1,
                              .bucket_bytes = 40000,
                              .traces = true };

    make_job(&job);
    CHECK_OK(run(&job));
    for (int r = 0; r < job.ranks; r++) {
        CHECK(job.times[r].wire > 0);
        CHECK(job.times[r].wire_hidden >= 0 && job.times[r].wire_hidden <= job.times[r].wire);
        CHECK(strstr(job.trace[r], "\"name\": \"net 0\""));
        CHECK(strstr(job.trace[r], "\"name\": \"reduce_scatter\", \"cat\": \"comm"));
        CHECK(strstr(job.trace[r], "\"name\": \"losses and flags\", \"cat\": \"comm"));
    }
    release_job(&job);
}

const struct test tests[] = {
    { .name = "a wait is charged to the rank that came last",
      .run = test_a_wait_is_charged_to_the_rank_that_came_last },
    { .name = "a rank that does not come is named",
      .run = test_a_rank_that_does_not_come_is_named },
    { .name = "a late rank is in time for a long timeout",
      .run = test_a_late_rank_is_in_time_for_a_long_timeout },
    { .name = "dense sums move as many bytes as an optimal all_reduce",
      .run = test_dense_sums_move_as_many_bytes_as_an_optimal_all_reduce },
    { .name = "factors move fewer bytes", .run = test_factors_move_fewer_bytes },
    { .name = "what one lane sums while another computes is hidden",
      .run = test_what_one_lane_sums_while_another_computes_is_hidden },
    { .name = "hidden communication is a part of communication",
      .run = test_hidden_communication_is_a_part_of_communication },
    { .name = "a wait for another machine is charged to its rank",
      .run = test_a_wait_for_another_machine_is_charged_to_its_rank },
    { .name = "a rank of another machine that does not come is named",
      .run = test_a_rank_of_another_machine_that_does_not_come_is_named },
    { .name = "a rank of another machine is named between steps, too",
      .run = test_a_rank_of_another_machine_is_named_between_steps_too },
    { .name = "machines send each other as much as an optimal all_reduce",
      .run = test_machines_send_each_other_as_much_as_an_optimal_all_reduce },
    { .name = "the wire is traced and may be hidden",
      .run = test_the_wire_is_traced_and_may_be_hidden },
    { .name = "lanes are traced and bits stay", .run = test_lanes_are_traced_and_bits_stay },
    { 0 },
};
