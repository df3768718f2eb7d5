/* SPDX-License-Identifier: MIT */
/* clock_test.c - time goes forward. */
#include "base/clock.h"

#include "base/test.h"

static void test_time_does_not_go_back(void)
{
    int64_t before = clock_ns();

    for (int i = 0; i < 1000; i++) {
        const int64_t now = clock_ns();
        CHECK(now >= before);
        before = now;
    }
    CHECK_CLOSE((double)clock_ns() * 1e-9, clock_seconds(), 0.5);
}

static void test_sleep_lasts_as_long_as_asked(void)
{
    const int64_t before = clock_ns();

    clock_sleep_ms(3);
    CHECK(clock_ns() - before >= 3000000);
    clock_sleep_ms(0);
    clock_sleep_ms(-1);
    CHECK(clock_ns() - before < 5000000000);
}

const struct test tests[] = {
    { .name = "time does not go back", .run = test_time_does_not_go_back },
    { .name = "sleep lasts as long as asked", .run = test_sleep_lasts_as_long_as_asked },
    { 0 },
};
