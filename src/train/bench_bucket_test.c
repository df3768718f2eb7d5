/* SPDX-License-Identifier: MIT */
/* bench_bucket_test.c - times of what a step does with a bucket: which tasks an op is, and that a
 * rank that is slow in a task shows in the op of that task alone. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/test.h"
#include "comm/comm_testing.h"
#include "train/train.h"

enum { ALL_REDUCE, REDUCE_SCATTER, UPDATE, ALL_GATHER };
enum { LATE_MS = 20 };

struct trial {
    struct settings settings;
    size_t bytes;
    const char *point; /* where rank 1 stands still; NULL: nowhere */
    struct bench_op ops[BENCH_BUCKET_OPS];
};

/* A rank's. */
struct sleeper {
    const char *point;
    bool sleeps;
};

static void sleep_at(void *arg, const char *point)
{
    const struct sleeper *sleeper = arg;
    const struct timespec nap = { .tv_nsec = LATE_MS * 1000000 };

    if (sleeper->sleeps && strcmp(point, sleeper->point) == 0)
        nanosleep(&nap, NULL);
}

static enum status run_rank(struct comm *comm, void *arg)
{
    struct trial *trial = arg;
    struct sleeper sleeper = { trial->point, trial->point && comm_rank(comm) == 1 };
    const struct bench_bucket bench = { .settings = &trial->settings,
                                        .bytes = trial->bytes,
                                        .seconds = 0.05,
                                        .at_meeting = sleep_at,
                                        .at_meeting_arg = &sleeper };
    struct bench_op ops[BENCH_BUCKET_OPS];

    TRY(train_time_bucket(&bench, comm_transport(comm), ops));
    if (comm_rank(comm) == 0)
        memcpy(trial->ops, ops, sizeof ops);
    return STATUS_OK;
}

static struct trial trial_of(int ranks, bool flat, size_t bytes)
{
    struct trial trial = { .bytes = bytes };

    settings_init(&trial.settings);
    trial.settings.ranks = ranks;
    trial.settings.flat = flat;
    return trial;
}

static void run(struct trial *trial)
{
    const int ranks = (int)trial->settings.ranks;

    CHECK_OK(
        comm_testing_nodes(ranks, trial->settings.flat ? ranks : 1, NULL, run_rank, trial));
}

/* Which tasks --------------------------------------------------------------------------------- */

static void check_tasks(const struct trial *trial, const char *const names[BENCH_BUCKET_OPS])
{
    for (int op = 0; op < BENCH_BUCKET_OPS; op++)
        CHECK_TEXT(names[op], trial->ops[op].tasks);
}

/* Nothing is gathered where all read one copy. */
static void test_one_copy_has_no_all_gather(void)
{
    static const char *const one = "shared: reduce_scatter+update";
    static const char *const names[] = { one, one, one, "" };

    for (int ranks = 1; ranks <= 2; ranks++) {
        struct trial trial = trial_of(ranks, false, 4096);
        snprintf(trial.settings.strategy, sizeof trial.settings.strategy, "%s",
                 ranks == 1 ? "single" : "central");
        run(&trial);
        check_tasks(&trial, names);
        CHECK(trial.ops[UPDATE].steps >= 5 && trial.ops[ALL_GATHER].steps == 0);
    }
}

static void test_shared_memory_has_one_task(void)
{
    static const char *const one = "shared: reduce_scatter+update+all_gather";
    static const char *const names[] = { one, one, one, one };

    for (int ranks = 2; ranks <= 4; ranks++) {
        struct trial trial = trial_of(ranks, false, 4096);
        run(&trial);
        check_tasks(&trial, names);
        for (int op = 0; op < BENCH_BUCKET_OPS; op++) {
            CHECK(trial.ops[op].steps >= 5);
            CHECK(trial.ops[op].us > 0 && trial.ops[op].us <= trial.ops[op].us_p90);
            CHECK(trial.ops[op].optimum == 2 * 4096.0 * (ranks - 1) / ranks);
        }
    }
}

static void test_messages_have_two(void)
{
    static const char *const names[] = { "messages: reduce_scatter+update, all_gather",
                                         "messages: reduce_scatter+update",
                                         "messages: reduce_scatter+update",
                                         "messages: all_gather" };

    for (int ranks = 2; ranks <= 4; ranks++) {
        struct trial trial = trial_of(ranks, true, 65536);
        run(&trial);
        check_tasks(&trial, names);
        const struct bench_op *ops = trial.ops;
        CHECK(ops[ALL_REDUCE].us >= ops[REDUCE_SCATTER].us);
        CHECK(ops[ALL_REDUCE].us >= ops[ALL_GATHER].us);
        CHECK(ops[ALL_REDUCE].sent == ops[REDUCE_SCATTER].sent + ops[ALL_GATHER].sent);
        CHECK(ops[REDUCE_SCATTER].optimum == 65536.0 * (ranks - 1) / ranks);
    }
}

static void test_clipping_has_a_sum_and_an_update(void)
{
    static const char *const shared[] = { "shared: reduce_scatter, norm, update+all_gather",
                                          "shared: reduce_scatter", "shared: update+all_gather",
                                          "shared: update+all_gather" };
    static const char *const messages[] = {
        "messages: reduce_scatter, norm, update, all_gather", "messages: reduce_scatter",
        "none: update", "messages: all_gather"
    };

    for (int flat = 0; flat < 2; flat++) {
        struct trial trial = trial_of(2, flat, 4096);
        trial.settings.clip = 1;
        run(&trial);
        check_tasks(&trial, flat ? messages : shared);
    }
}

static void test_compressed_gradients_have_no_reduce_scatter(void)
{
    static const char *const names[] = {
        ("messages: all_reduce+update (compressed), all_gather "
         "(no bytes)"),
        "", "messages: all_reduce+update (compressed)", "messages: all_gather (no bytes)"
    };
    struct trial trial = trial_of(2, true, 4096);

    snprintf(trial.settings.compress, sizeof trial.settings.compress, "int8");
    run(&trial);
    check_tasks(&trial, names);
    CHECK(trial.ops[REDUCE_SCATTER].steps == 0 && trial.ops[ALL_REDUCE].sent < 4096 / 2);
}

static void test_odd_sizes_and_many_lanes(void)
{
    static const size_t sizes[] = { 4, 8, 4 * 1021, 4 * 3000 };

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct trial trial = trial_of(2, i % 2, sizes[i]);
        trial.settings.threads = 2;
        trial.settings.accumulate = 3;
        run(&trial);
        CHECK(trial.ops[ALL_REDUCE].steps >= 5);
    }
}

/* Time of whom ---------------------------------------------------------------------------------- */

static void check_late(const struct trial *trial, int op, bool is_late)
{
    const double ms = trial->ops[op].us * 1e-3;

    if (is_late != (ms > LATE_MS * 0.75) || (!is_late && ms > LATE_MS * 0.5))
        test_fail(__FILE__, __LINE__, "%s: %s takes %.3f ms where a rank is late by %d at %s",
                  bench_bucket_ops[op], trial->ops[op].tasks, ms, LATE_MS, trial->point);
}

static void check_all_late(struct trial *trial, const char *point,
                           const bool is_late[BENCH_BUCKET_OPS])
{
    trial->point = point;
    run(trial);
    for (int op = 0; op < BENCH_BUCKET_OPS; op++)
        check_late(trial, op, is_late[op]);
}

static void test_a_rank_late_in_a_task_shows(void)
{
    const bool all[] = { true, true, true, true };
    const bool sum[] = { true, true, true, false };
    struct trial shared = trial_of(2, false, 4096), flat = trial_of(2, true, 4096);

    check_all_late(&shared, "done", all); /* in the lane's task, updated but not yet counted */
    check_all_late(&flat, "net", sum);    /* before the task's first message */
}

static void test_a_rank_late_before_a_task_does_not(void)
{
    const bool none[] = { false, false, false, false };
    struct trial shared = trial_of(2, false, 4096), flat = trial_of(2, true, 4096);

    check_all_late(&shared, "ready", none); /* its gradient is not added yet */
    check_all_late(&flat, "ready", none);
}

/* Settings ------------------------------------------------------------------------------------ */

static void test_other_strategies_are_refused(void)
{
    static const char *const names[] = { "localsgd", "pipeline", "tensor", "parallax" };
    struct trial trial = trial_of(2, false, 4096);
    bool flat;

    CHECK_OK(train_check_bucket(&trial.settings, &flat));
    CHECK(!flat);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(trial.settings.strategy, sizeof trial.settings.strategy, "%s", names[i]);
        CHECK_STATUS(STATUS_USAGE, train_check_bucket(&trial.settings, &flat));
        CHECK_MESSAGE(names[i]);
    }
}

const struct test tests[] = {
    { .name = "one copy has no all_gather", .run = test_one_copy_has_no_all_gather },
    { .name = "shared memory has one task", .run = test_shared_memory_has_one_task },
    { .name = "messages have two", .run = test_messages_have_two },
    { .name = "clipping has a sum and an update",
      .run = test_clipping_has_a_sum_and_an_update },
    { .name = "compressed gradients have no reduce scatter",
      .run = test_compressed_gradients_have_no_reduce_scatter },
    { .name = "odd sizes and many lanes", .run = test_odd_sizes_and_many_lanes },
    { .name = "a rank late in a task shows", .run = test_a_rank_late_in_a_task_shows },
    { .name = "a rank late before a task does not",
      .run = test_a_rank_late_before_a_task_does_not },
    { .name = "other strategies are refused", .run = test_other_strategies_are_refused },
    { 0 },
};
