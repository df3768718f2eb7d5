/* SPDX-License-Identifier: MIT */
/* rng_test.c - Philox as published, and the shapes of what is drawn from it. */
#include "base/rng.h"

#include "base/test.h"

#include <math.h>
#include <string.h>

/* From kat_vectors of Random123, the authors' library. */
static void test_published_vectors(void)
{
    static const struct {
        uint32_t counter[4], key[2], expected[4];
    } vectors[] = {
        { { 0, 0, 0, 0 }, { 0, 0 }, { 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8 } },
        { { 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff },
          { 0xffffffff, 0xffffffff },
          { 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd } },
        { { 0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344 },
          { 0xa4093822, 0x299f31d0 },
          { 0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1 } },
    };

    for (size_t i = 0; i < sizeof vectors / sizeof vectors[0]; i++) {
        const uint64_t key = (uint64_t)vectors[i].key[1] << 32 | vectors[i].key[0];
        const struct rng_block block = rng_philox(key, vectors[i].counter);
        for (int word = 0; word < 4; word++)
            CHECK_INT(vectors[i].expected[word], block.word[word]);
    }
}

static void test_a_stream_counts_up(struct rng *rng)
{
    const uint64_t key = rng_u64(rng), stream = rng_u64(rng);
    struct rng drawn;

    rng_init(&drawn, key, stream);
    for (uint32_t position = 0; position < 5; position++) {
        const uint32_t counter[4] = { position, 0, (uint32_t)stream, (uint32_t)(stream >> 32) };
        const struct rng_block block = rng_philox(key, counter);
        CHECK_INT(block.word[0], rng_u32(&drawn));
        CHECK_INT(block.word[1], rng_u32(&drawn));
        CHECK(rng_u64(&drawn) == ((uint64_t)block.word[3] << 32 | block.word[2]));
    }

    rng_init(&drawn, key, stream);
    drawn.position = 0x100000002;
    const uint32_t counter[4] = { 2, 1, (uint32_t)stream, (uint32_t)(stream >> 32) };
    CHECK_INT(rng_philox(key, counter).word[0], rng_u32(&drawn));
}

static void test_below_stays_below(struct rng *rng)
{
    const uint64_t below = 1 + (rng_u64(rng) >> rng_below(rng, 64)) % UINT64_MAX;

    for (int i = 0; i < 20; i++)
        CHECK(rng_below(rng, below) < below);
    CHECK_INT(0, rng_below(rng, 1));
}

/* For three quarters of the range a plain remainder would favour the lowest third. */
static void test_below_has_no_bias(void)
{
    enum { DRAWS = 30000 };
    const uint64_t quarter = (uint64_t)1 << 62;
    struct rng rng;
    int low = 0, count[3] = { 0 };

    rng_init(&rng, 1, 2);
    for (int i = 0; i < DRAWS; i++) {
        low += rng_below(&rng, 3 * quarter) < quarter;
        count[rng_below(&rng, 3)]++;
    }
    CHECK_CLOSE(1.0 / 3, (double)low / DRAWS, 0.015);
    for (int i = 0; i < 3; i++)
        CHECK_CLOSE(1.0 / 3, (double)count[i] / DRAWS, 0.015);
}

static void test_floats_have_24_bits_and_stay_below_one(void)
{
    struct rng rng;
    double sum = 0;

    CHECK(rng_to_float(0) == 0);
    CHECK(rng_to_float(0xffffffff) == 1 - 0x1p-24f);
    CHECK(rng_to_float(0xff) == 0);
    CHECK(rng_to_float(0x80000000) == 0.5f);

    rng_init(&rng, 5, 0);
    for (int i = 0; i < 10000; i++) {
        struct rng ahead = rng;
        const float x = rng_float(&rng);
        CHECK(x == rng_to_float(rng_u32(&ahead)));
        sum += (double)x;
    }
    CHECK_CLOSE(0.5, sum / 10000, 0.02);
}

static void test_normals_have_the_moments_of_a_normal(void)
{
    enum { DRAWS = 100000 };
    struct rng rng;
    double moment[5] = { 0 };
    int within = 0;

    rng_init(&rng, 7, 0);
    for (int i = 0; i < DRAWS; i++) {
        const double x = rng_normal(&rng);
        CHECK(isfinite(x));
        within += fabs(x) < 1;
        for (int k = 1; k <= 4; k++)
            moment[k] += pow(x, k) / DRAWS;
    }
    CHECK_CLOSE(0, moment[1], 0.015);
    CHECK_CLOSE(1, moment[2], 0.02);
    CHECK_CLOSE(0, moment[3], 0.05);
    CHECK_CLOSE(3, moment[4], 0.05);
    CHECK_CLOSE(0.6826895, (double)within / DRAWS, 0.006);
}

const struct test tests[] = {
    { .name = "published vectors", .run = test_published_vectors },
    { .name = "a stream counts up", .property = test_a_stream_counts_up },
    { .name = "below stays below", .property = test_below_stays_below },
    { .name = "below has no bias", .run = test_below_has_no_bias },
    { .name = "floats have 24 bits and stay below one",
      .run = test_floats_have_24_bits_and_stay_below_one },
    { .name = "normals have the moments of a normal",
      .run = test_normals_have_the_moments_of_a_normal },
    { 0 },
};
