/* SPDX-License-Identifier: MIT */
/* watch_test.c - sums of all ranks reach rank 0; one rank that is slow all the time is named, once. */
#include "train/watch.h"

#include <math.h>

#include "base/test.h"
#include "comm/comm_testing.h"

enum { RANKS = 3, INTERVALS = 12 };

struct story {
    int slow_from; /* interval from which on the others wait for rank 2 */
    struct watch_interval intervals[INTERVALS];
    int named[INTERVALS];
    struct watch_rank ranks[RANKS];
};

/* Each interval is one second: half of it all compute, a tenth they communicate, half of that hidden. */
static enum status live(struct watch *watch, int rank, struct story *story)
{
    struct exec_times times = { 0 };
    double waited_for[RANKS] = { 0 };

    for (int i = 0; i < INTERVALS; i++) {
        times.compute += 2 * 0.5; /* two lanes */
        times.comm += 2 * 0.1;
        times.hidden += 2 * 0.05;
        times.bytes += 1000;
        /* By chance, each in turn. */
        waited_for[i % RANKS] += rank == i % RANKS ? 0 : 2 * 0.15;
        if (i >= story->slow_from && rank != 2)
            waited_for[2] += 2 * 0.6;
        TRY(watch_bring(watch, &times, waited_for, 0.25 * i));
        if (rank != 0)
            continue;
        story->intervals[i] = watch_next(watch, 1);
        story->named[i] = watch_straggler(watch);
    }
    for (int r = 0; r < RANKS && rank == 0; r++)
        story->ranks[r] = watch_rank(watch, r);
    return STATUS_OK;
}

static enum status run_rank(struct comm *comm, void *arg)
{
    struct watch *watch;

    TRY(watch_create(comm_transport(comm), 2, &watch));
    const enum status status = live(watch, comm_rank(comm), arg);
    watch_destroy(watch);
    return status;
}

static void test_sums_of_all_ranks_reach_the_first(void)
{
    struct story story = { .slow_from = INTERVALS };

    CHECK_OK(comm_testing_threads(RANKS, NULL, run_rank, &story));
    for (int i = 0; i < INTERVALS; i++) {
        CHECK_CLOSE(0.5, story.intervals[i].hidden_share, 1e-9);
        CHECK_CLOSE(3000, story.intervals[i].bytes, 1e-9);
        CHECK_INT(i % RANKS, story.intervals[i].slowest);
        CHECK_CLOSE(0.15, story.intervals[i].slowest_share, 1e-9);
    }
    CHECK_CLOSE(0.5 * INTERVALS, story.ranks[1].compute, 1e-9);
    CHECK_CLOSE(1000 * INTERVALS, story.ranks[1].bytes, 1e-9);
    CHECK_CLOSE(0.25 * (INTERVALS - 1), story.ranks[1].load, 1e-9);
    CHECK_CLOSE(2 * 0.15 * INTERVALS / RANKS, story.ranks[1].made_wait, 1e-9);
}

/* A wait is counted where it ends, also one that began long before: no share is more than the whole. */
static enum status wait_long(struct comm *comm, void *arg)
{
    struct watch_interval *out = arg;
    struct watch *watch;
    const struct exec_times times = { .comm = 1e-9, .hidden = 1 };
    const double waited_for[RANKS] = { 0, 61, 0 };

    TRY(watch_create(comm_transport(comm), 1, &watch));
    enum status status = watch_bring(watch, &times, waited_for, 0);
    if (status == STATUS_OK && comm_rank(comm) == 0)
        *out = watch_next(watch, 1);
    watch_destroy(watch);
    return status;
}

static void test_no_share_is_more_than_the_whole(void)
{
    struct watch_interval interval;

    CHECK_OK(comm_testing_threads(RANKS, NULL, wait_long, &interval));
    CHECK_INT(1, interval.slowest);
    CHECK_CLOSE(1, interval.slowest_share, 0);
    CHECK_CLOSE(1, interval.hidden_share, 0);
    CHECK_CLOSE(0, watch_share(-1, 2), 0);
    CHECK(isnan(watch_share(0, 0)) && isnan(watch_share(1, 0)));
}

static void test_chance_makes_no_straggler(void)
{
    struct story story = { .slow_from = INTERVALS };

    CHECK_OK(comm_testing_threads(RANKS, NULL, run_rank, &story));
    for (int i = 0; i < INTERVALS; i++)
        CHECK_INT(-1, story.named[i]);
}

static void test_a_rank_that_stays_slow_is_named_once(void)
{
    struct story story = { .slow_from = 4 };

    CHECK_OK(comm_testing_threads(RANKS, NULL, run_rank, &story));
    for (int i = 0; i < INTERVALS; i++)
        CHECK_INT(i == 7 ? 2 : -1, story.named[i]);
}

const struct test tests[] = {
    { .name = "sums of all ranks reach the first",
      .run = test_sums_of_all_ranks_reach_the_first },
    { .name = "no share is more than the whole", .run = test_no_share_is_more_than_the_whole },
    { .name = "chance makes no straggler", .run = test_chance_makes_no_straggler },
    { .name = "a rank that stays slow is named once",
      .run = test_a_rank_that_stays_slow_is_named_once },
    { 0 },
};
