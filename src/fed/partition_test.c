/* SPDX-License-Identifier: MIT */
/* partition_test.c - every sample has one owner, and data differ as asked for. */
#include "fed/partition.h"

#include <string.h>

#include "base/mem.h"
#include "base/test.h"

enum { SAMPLES = 3000, LABELS = 10 };

static int32_t label_of(const struct source *source, int64_t index)
{
    (void)source;
    return (int32_t)(index * 7 % LABELS);
}

static const struct source_kind kind = { .label = label_of };
static const struct source source = { .kind = &kind, .count = SAMPLES };

static void test_every_sample_once(struct rng *rng)
{
    static const char *const ways[] = { "iid",     "blocks",        "dirichlet:0.1",
                                        "label:2", "dirichlet:100", "size:0.5" };
    const char *way = ways[rng_below(rng, sizeof ways / sizeof *ways)];
    const int n = 1 + (int)rng_below(rng, 200);
    const uint64_t seed = rng_u64(rng);
    static uint8_t seen[SAMPLES];
    struct fed_parts parts, again;

    CHECK_OK(fed_partition(way, &source, n, seed, &parts));
    CHECK_OK(fed_partition(way, &source, n, seed, &again));
    CHECK_INT(0, parts.begin[0]);
    CHECK_INT(SAMPLES, parts.begin[n]);
    memset(seen, 0, sizeof seen);
    for (int64_t i = 0; i < SAMPLES; i++) {
        CHECK(!seen[parts.index[i]]++);
        CHECK(parts.index[i] == again.index[i]); /* the seed decides */
    }
    for (int p = 0; p < n; p++)
        CHECK(parts.begin[p + 1] - parts.begin[p] >= FED_LEAST);
    fed_parts_release(&parts);
    fed_parts_release(&again);
}

static double skew_of(const char *way)
{
    struct fed_parts parts;

    CHECK_OK(fed_partition(way, &source, 50, 1, &parts));
    const double skew = fed_parts_skew(&parts, &source, LABELS);
    fed_parts_release(&parts);
    return skew;
}

static void test_skew(void)
{
    const double iid = skew_of("iid"), mild = skew_of("dirichlet:1"),
                 strong = skew_of("dirichlet:0.1"), two = skew_of("label:2");

    CHECK(iid < 0.25 && iid < mild && mild < strong && strong < 0.9);
    CHECK(two > 0.75 && two < 0.85); /* two of ten labels: 0.8 */
}

static void test_blocks_are_shards(void)
{
    struct fed_parts parts;

    CHECK_OK(fed_partition("blocks", &source, 7, 1, &parts));
    for (int64_t i = 0; i < SAMPLES; i++)
        CHECK_INT(i, parts.index[i]);
    for (int p = 0; p <= 7; p++)
        CHECK_INT(p * SAMPLES / 7, parts.begin[p]);
    fed_parts_release(&parts);
}

static void test_refused(void)
{
    static const char *const bad[] = { "",           "idd",     "iid:1",   "dirichlet",
                                       "dirichlet:", "label:0", "size:-1", "dirichlet:x" };
    struct fed_parts parts;

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK_STATUS(STATUS_USAGE, fed_partition_check(bad[i]));
    CHECK_STATUS(STATUS_USAGE, fed_partition("iid", &source, SAMPLES, 1, &parts));
    CHECK_STATUS(STATUS_USAGE, fed_partition("label:3000", &source, 2, 1, &parts));
}

const struct test tests[] = {
    { .name = "every sample has one owner", .property = test_every_sample_once },
    { .name = "labels differ as asked for", .run = test_skew },
    { .name = "blocks are the shards of one step", .run = test_blocks_are_shards },
    { .name = "what is no partition is refused", .run = test_refused },
    { 0 },
};
