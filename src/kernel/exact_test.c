/* SPDX-License-Identifier: MIT */
/* exact_test.c - sums that do not depend on the order of their additions. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "base/test.h"
#include "kernel/exact.h"

static void test_whole_numbers_add_up(void)
{
    struct exact_sum sum = { { 0 }, 0, 0 };

    CHECK(exact_sum_value(&sum) == 0);
    exact_sum_add(&sum, 0);
    CHECK(exact_sum_value(&sum) == 0);
    exact_sum_add(&sum, 6.5);
    CHECK(sum.digit[10] == 6 && sum.digit[9] == (uint64_t)1 << 31);
    for (int i = 0; i < 1000; i++)
        exact_sum_add(&sum, 0x1.fffffffffffffp51);
    CHECK(exact_sum_value(&sum) == 6.5 + 1000 * 0x1.fffffffffffffp51);
}

/* The smallest and the largest that there can be, which no double holds together. */
static void test_nothing_is_lost_between_extremes(void)
{
    const double least = 0x1p-298, most = (double)FLT_MAX * (double)FLT_MAX;
    struct exact_sum sum = { { 0 }, 0, 0 };

    exact_sum_add(&sum, most);
    exact_sum_add(&sum, least);
    CHECK(exact_sum_value(&sum) == most);
    CHECK(sum.digit[0] == (uint64_t)1 << 22); /* 2^-298 */
    struct exact_sum small = { { 0 }, 0, 0 };
    exact_sum_add(&small, least);
    CHECK(exact_sum_value(&small) == least);
}

static void test_what_is_no_number_is_said(void)
{
    struct exact_sum sum = { { 0 }, 0, 0 };

    exact_sum_add(&sum, 1);
    exact_sum_add(&sum, (double)INFINITY);
    CHECK(isinf(exact_sum_value(&sum)));
    exact_sum_add(&sum, (double)NAN);
    CHECK(isnan(exact_sum_value(&sum)));
}

/* However numbers are dealt out, and in whatever order: the same bits, near a sum in long double. */
static void test_order_and_number_of_parts_do_not_matter(struct rng *rng)
{
    enum { NUMBERS = 500, PARTS = 7 };
    double numbers[NUMBERS];
    long double expected = 0;
    struct exact_sum all = { { 0 }, 0, 0 }, parts[PARTS];

    memset(parts, 0, sizeof parts);
    for (int i = 0; i < NUMBERS; i++) {
        const float x =
            (float)ldexp((double)rng_float(rng) + 0.5, (int)rng_below(rng, 60) - 30);
        numbers[i] = (double)x * (double)x;
        expected += (long double)numbers[i];
        exact_sum_add(&all, numbers[i]);
    }
    for (int i = NUMBERS - 1; i >= 0; i--)
        exact_sum_add(&parts[rng_below(rng, PARTS)], numbers[i]);
    for (int i = PARTS - 1; i > 0; i--)
        exact_sum_join(&parts[i - 1], &parts[i]);
    CHECK(exact_sum_value(&all) == exact_sum_value(&parts[0]));
    CHECK_CLOSE(1, exact_sum_value(&all) / (double)expected, 1e-15);
}

const struct test tests[] = {
    { .name = "whole numbers add up", .run = test_whole_numbers_add_up },
    { .name = "nothing is lost between extremes",
      .run = test_nothing_is_lost_between_extremes },
    { .name = "what is no number is said", .run = test_what_is_no_number_is_said },
    { .name = "order and number of parts do not matter",
      .property = test_order_and_number_of_parts_do_not_matter },
    { 0 },
};
