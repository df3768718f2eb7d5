/* SPDX-License-Identifier: MIT */
/* slow_test.c - the rank that is made slow sleeps for as long as it should. */
#include "train/slow.h"

#include "base/clock.h"
#include "base/test.h"

static void test_texts_are_read_or_refused(void)
{
    static const char *const wrong[] = {
        "rank=2",           "rank=2,factor=",   "rank=x,factor=2",   "factor=2,rank=1",
        "rank=4,factor=2",  "rank=-1,factor=2", "rank=1,factor=0.5", "rank=1,factor=nan",
        "rank=1,factor=2x", "rank=1,factor=1e9"
    };
    struct slow slow;

    CHECK_OK(slow_parse("", 4, &slow));
    CHECK(slow.rank == -1);
    CHECK_OK(slow_parse("rank=2,factor=4.5", 4, &slow));
    CHECK(slow.rank == 2 && slow.factor == 4.5);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        CHECK_STATUS(STATUS_USAGE, slow_parse(wrong[i], 4, &slow));
        CHECK_MESSAGE("--slow");
        CHECK(slow.rank == 2);
    }
}

static void test_one_rank_sleeps_for_the_rest(void)
{
    const struct slow slow = { .rank = 1, .factor = 4 };
    double begin = clock_seconds();

    slow_down(&slow, 1, 0.01);
    CHECK(clock_seconds() - begin >= 0.03);
    begin = clock_seconds();
    slow_down(&slow, 0, 10);
    CHECK(clock_seconds() - begin < 5);
}

const struct test tests[] = {
    { .name = "texts are read or refused", .run = test_texts_are_read_or_refused },
    { .name = "one rank sleeps for the rest", .run = test_one_rank_sleeps_for_the_rest },
    { 0 },
};
