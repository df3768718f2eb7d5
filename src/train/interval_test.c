/* SPDX-License-Identifier: MIT */
/* interval_test.c - intervals between averages follow what was measured. */
#include "train/interval.h"

#include "base/test.h"

static const struct interval_seen usual = {
    .comm_s = 0.002, .step_s = 0.004, .growth = 1e-6, .loss = 2, .lr = 0.1
};

static void test_the_first_follows_the_clock(void)
{
    struct interval interval = { .now = 10 };

    interval_next(&interval, &usual); /* 2 ms are a tenth of 5 steps of 4 ms */
    CHECK(interval.now == 5 && interval.base == 5);
    interval = (struct interval){ .now = 10 };
    interval_next(&interval, &(struct interval_seen){ .comm_s = 1e-5, .step_s = 0.01 });
    CHECK(interval.now == 1);
    interval = (struct interval){ .now = 10 };
    interval_next(&interval, &(struct interval_seen){ .comm_s = 100, .step_s = 0.01 });
    CHECK(interval.now == INTERVAL_MOST);
    interval = (struct interval){ .now = 10 };
    interval_next(&interval, &(struct interval_seen){ .comm_s = 1 });
    CHECK(interval.now == 1); /* no time was measured: be careful */
}

/* The interval after many rounds of the same, which smoothing has come to. */
static int64_t after(const struct interval_seen *seen)
{
    struct interval interval = { .now = 10 };

    interval_next(&interval,
                  &(struct interval_seen){
                      .comm_s = 0.016, .step_s = 0.004, .growth = 1e-6, .loss = 2, .lr = 0.1 });
    CHECK(interval.now == 40);
    for (int i = 0; i < 100; i++)
        interval_next(&interval, seen);
    return interval.now;
}

static void test_later_ones_follow_loss_noise_rate_and_cost(void)
{
    struct interval_seen seen = {
        .comm_s = 0.016, .step_s = 0.004, .growth = 1e-6, .loss = 2, .lr = 0.1
    };

    CHECK(after(&seen) == 40);
    seen.loss = 0.5; /* a quarter of the loss: half as long */
    CHECK(after(&seen) == 20);
    seen.loss = 2;
    seen.growth = 4e-6; /* four times the noise */
    CHECK(after(&seen) == 20);
    seen.growth = 1e-6;
    seen.lr = 0.025; /* the rate itself, beside what it does to the variance */
    CHECK(after(&seen) == 80);
    seen.lr = 0.1;
    seen.comm_s = 0.064; /* four times as dear */
    CHECK(after(&seen) == 80);
    seen.comm_s = 0.016;
    seen.growth = 0; /* nothing to go by */
    CHECK(after(&seen) == 40);
}

static void test_changes_are_gradual_and_bounded(void)
{
    struct interval interval = { .now = 10 };
    struct interval_seen seen = usual;

    interval_next(&interval, &seen);
    seen.growth = 1e-30;
    for (int i = 0; i < 40; i++) {
        const int64_t before = interval.now;
        interval_next(&interval, &seen);
        CHECK(interval.now <= 2 * before && interval.now <= INTERVAL_MOST);
    }
    seen.growth = 1e30;
    for (int i = 0; i < 60; i++) {
        const int64_t before = interval.now;
        interval_next(&interval, &seen);
        CHECK(interval.now >= before / 2 && interval.now >= 1);
    }
    CHECK(interval.now == 1);
}

const struct test tests[] = {
    { .name = "the first follows the clock", .run = test_the_first_follows_the_clock },
    { .name = "later ones follow loss, noise, rate and cost",
      .run = test_later_ones_follow_loss_noise_rate_and_cost },
    { .name = "changes are gradual and bounded", .run = test_changes_are_gradual_and_bounded },
    { 0 },
};
