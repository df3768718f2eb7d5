/* SPDX-License-Identifier: MIT */
/* balance_test.c - weights from text, and shards by weights. */
#include "train/balance.h"

#include "base/test.h"

static struct balance shared(const char *text, int64_t shards, int ranks, int64_t grain)
{
    struct balance balance;

    CHECK_OK(balance_parse(text, ranks, &balance));
    balance.grain = grain;
    balance_share(&balance, shards, ranks);
    return balance;
}

static int64_t count_of(const struct balance *balance, int rank)
{
    return balance->rows[rank + 1] - balance->rows[rank];
}

static void test_shards_are_in_proportion(void)
{
    struct balance b = shared("2,1", 12, 2, 1);

    CHECK_INT(8, count_of(&b, 0));
    CHECK_INT(4, count_of(&b, 1));
    b = shared("2,1,1", 12, 3, 1);
    CHECK_INT(6, count_of(&b, 0));
    CHECK_INT(3, count_of(&b, 1));
    CHECK_INT(3, count_of(&b, 2));
    b = shared("1,1000", 8, 2, 1); /* everybody has one */
    CHECK_INT(1, count_of(&b, 0));
    b = shared("3,1", 16, 2, 2); /* by twos */
    CHECK_INT(12, count_of(&b, 0));
    CHECK_INT(4, count_of(&b, 1));
    b = shared("auto", 7, 3, 1); /* until it is measured */
    CHECK(b.is_used && b.is_measured);
    CHECK_INT(3, count_of(&b, 0));
    CHECK_INT(2, count_of(&b, 2));
    CHECK_OK(balance_parse("", 3, &b));
    CHECK(!b.is_used);
}

/* The longest that a rank needs for its shards. */
static double length_of(const int64_t *counts, const double *weights, int ranks)
{
    double longest = 0;

    for (int r = 0; r < ranks; r++) {
        const double time = (double)counts[r] / weights[r];
        longest = time > longest ? time : longest;
    }
    return longest;
}

/* Moving a shard from any rank to any other never helps, and that is enough: times are monotonous. */
static void test_no_other_sharing_is_done_sooner(struct rng *rng)
{
    const int ranks = 1 + (int)rng_below(rng, 6);
    const int64_t grain = 1 + (int64_t)rng_below(rng, 3);
    const int64_t shards = grain * (ranks + (int64_t)rng_below(rng, 40));
    struct balance balance = { .grain = grain };
    int64_t counts[6];

    for (int r = 0; r < ranks; r++)
        balance.weights[r] = 0.1 + 5 * rng_float(rng);
    balance_share(&balance, shards, ranks);
    CHECK_INT(0, balance.rows[0]);
    CHECK_INT(shards, balance.rows[ranks]);
    for (int r = 0; r < ranks; r++) {
        counts[r] = count_of(&balance, r);
        CHECK(counts[r] >= grain && counts[r] % grain == 0);
    }
    const double longest = length_of(counts, balance.weights, ranks);
    for (int from = 0; from < ranks; from++) {
        for (int to = 0; to < ranks; to++) {
            if (counts[from] == grain)
                continue;
            counts[from] -= grain;
            counts[to] += grain;
            CHECK(length_of(counts, balance.weights, ranks) >= longest * (1 - 1e-12));
            counts[from] += grain;
            counts[to] -= grain;
        }
    }
}

static void test_wrong_weights_are_refused(void)
{
    static const char *const wrong[] = {
        "2",    "2,1,1", "2,0",   "2,-1",  "2,x", "2,1,",
        "2,,1", ",2,1",  "nan,1", "inf,1", "2;1", "automatic"
    };
    struct balance balance;

    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        CHECK_STATUS(STATUS_USAGE, balance_parse(wrong[i], 2, &balance));
        CHECK_MESSAGE(wrong[i]);
    }
}

const struct test tests[] = {
    { .name = "shards are in proportion", .run = test_shards_are_in_proportion },
    { .name = "no other sharing is done sooner",
      .property = test_no_other_sharing_is_done_sooner },
    { .name = "wrong weights are refused", .run = test_wrong_weights_are_refused },
    { 0 },
};
