/* SPDX-License-Identifier: MIT */
/* sampler_test.c - an epoch visits every sample once, in an order of its own. */
#include "data/sampler.h"

#include "base/mem.h"
#include "base/test.h"

#include <stdlib.h>
#include <string.h>

enum { COUNT_MOST = 200 };

/* Half of them have keys. */
static struct sampler_config random_config(struct rng *rng)
{
    static uint32_t key[COUNT_MOST];
    const int64_t count = 1 + (int64_t)rng_below(rng, COUNT_MOST);

    for (int64_t i = 0; i < count; i++)
        key[i] = (uint32_t)rng_below(rng, 50);
    return (struct sampler_config){
        .key = rng_below(rng, 2) ? key : NULL,
        .count = count,
        .batch = 1 + (int64_t)rng_below(rng, (uint64_t)count + 10),
        .seed = rng_u64(rng),
        .shuffle = rng_below(rng, 4) > 0,
    };
}

static void test_each_epoch_is_a_permutation(struct rng *rng)
{
    const struct sampler_config config = random_config(rng);
    struct sampler *sampler;

    CHECK_OK(sampler_create(&config, &sampler));
    const int64_t steps = sampler_steps_per_epoch(sampler);
    CHECK_INT((config.count + config.batch - 1) / config.batch, steps);
    for (int64_t epoch = 0; epoch < 3; epoch++) {
        int seen[COUNT_MOST] = { 0 };
        int64_t total = 0;
        for (int64_t s = 0; s < steps; s++) {
            const struct sampler_step step =
                sampler_step(sampler, (uint64_t)(epoch * steps + s));
            CHECK_INT(epoch, step.epoch);
            CHECK(step.samples == config.batch || s == steps - 1);
            for (int64_t i = 0; i < step.samples; i++) {
                CHECK(step.index[i] >= 0 && step.index[i] < config.count);
                CHECK(config.shuffle || step.index[i] == total + i);
                seen[step.index[i]]++;
            }
            total += step.samples;
        }
        CHECK_INT(config.count, total);
        for (int64_t i = 0; i < config.count; i++)
            CHECK_INT(1, seen[i]);
    }
    sampler_destroy(sampler);
}

/* Asked in any order, a step is what it is when asked alone. */
static void test_steps_do_not_depend_on_how_they_are_asked(struct rng *rng)
{
    const struct sampler_config config = random_config(rng);
    struct sampler *wanders, *fresh;

    CHECK_OK(sampler_create(&config, &wanders));
    for (int i = 0; i < 20; i++) {
        const uint64_t number = rng_below(rng, 40);
        const struct sampler_step a = sampler_step(wanders, number);
        CHECK_OK(sampler_create(&config, &fresh));
        const struct sampler_step b = sampler_step(fresh, number);
        CHECK_INT(b.epoch, a.epoch);
        CHECK_INT(b.samples, a.samples);
        CHECK(memcmp(a.index, b.index, (size_t)a.samples * sizeof *a.index) == 0);
        sampler_destroy(fresh);
    }
    sampler_destroy(wanders);
}

/* The keys of a batch. */
struct span {
    uint32_t least, most;
};

static int compare_spans(const void *a, const void *b)
{
    const struct span *x = a, *y = b;

    if (x->least != y->least)
        return x->least < y->least ? -1 : 1;
    return (x->most > y->most) - (x->most < y->most);
}

/* Full batches of a pool, put in order, have keys one after the other. */
static void test_batches_are_of_like_keys(struct rng *rng)
{
    enum { BATCHES_MOST = COUNT_MOST };
    struct sampler_config config = random_config(rng);
    struct span span[BATCHES_MOST];
    uint32_t key[COUNT_MOST];
    struct sampler *sampler;

    for (int i = 0; i < COUNT_MOST; i++)
        key[i] = (uint32_t)rng_below(rng, 1000);
    config.key = key;
    config.shuffle = true;
    if (config.batch < COUNT_MOST / SAMPLER_POOL + 1)
        config.batch = COUNT_MOST / SAMPLER_POOL + 1; /* one pool */
    CHECK_OK(sampler_create(&config, &sampler));
    const int64_t full = config.count / config.batch;
    for (int64_t s = 0; s < full; s++) {
        const struct sampler_step step = sampler_step(sampler, (uint64_t)s);
        span[s] = (struct span){ UINT32_MAX, 0 };
        for (int64_t i = 0; i < step.samples; i++) {
            const uint32_t own = key[step.index[i]];
            span[s].least = own < span[s].least ? own : span[s].least;
            span[s].most = own > span[s].most ? own : span[s].most;
        }
    }
    qsort(span, (size_t)full, sizeof *span, compare_spans);
    for (int64_t s = 1; s < full; s++)
        CHECK(span[s - 1].most <= span[s].least);
    sampler_destroy(sampler);
}

/* Batches of like keys do not come in the order of their keys, nor the same in every epoch. */
static void test_batches_of_like_keys_are_shuffled(void)
{
    enum { COUNT = 256, BATCH = 4, STEPS = COUNT / BATCH };
    struct sampler_config config = {
        .count = COUNT, .batch = BATCH, .seed = 5, .shuffle = true
    };
    uint32_t key[COUNT];
    struct sampler *sampler;
    int rises = 0, same = 0;

    for (uint32_t i = 0; i < COUNT; i++)
        key[i] = i;
    config.key = key;
    CHECK_OK(sampler_create(&config, &sampler));
    for (uint64_t s = 0; s + 1 < STEPS; s++) {
        const int64_t own = sampler_step(sampler, s).index[0];
        rises += own < sampler_step(sampler, s + 1).index[0];
        same += own == sampler_step(sampler, s + STEPS).index[0];
    }
    CHECK(rises > STEPS / 4 && rises < 3 * STEPS / 4);
    CHECK(same < STEPS / 4);
    sampler_destroy(sampler);
}

/* A run that is repeated on another machine, or next year, sees the same samples. */
static void test_the_order_is_known(void)
{
    static const int64_t EPOCH_0[] = { 1, 8, 6, 2, 9, 4, 0, 3, 5, 7 };
    static const int64_t EPOCH_1[] = { 0, 6, 1, 3, 2, 9, 8, 7, 5, 4 };
    const struct sampler_config config = {
        .count = 10, .batch = 10, .seed = 7, .shuffle = true
    };
    struct sampler *sampler;

    CHECK_OK(sampler_create(&config, &sampler));
    CHECK(memcmp(sampler_step(sampler, 0).index, EPOCH_0, sizeof EPOCH_0) == 0);
    CHECK(memcmp(sampler_step(sampler, 1).index, EPOCH_1, sizeof EPOCH_1) == 0);
    sampler_destroy(sampler);
}

static void test_seeds_and_epochs_give_other_orders(void)
{
    struct sampler_config config = { .count = 100, .batch = 100, .seed = 1, .shuffle = true };
    int64_t first[100];
    struct sampler *sampler;

    CHECK_OK(sampler_create(&config, &sampler));
    memcpy(first, sampler_step(sampler, 0).index, sizeof first);
    CHECK(memcmp(first, sampler_step(sampler, 1).index, sizeof first) != 0);
    sampler_destroy(sampler);
    config.seed = 2;
    CHECK_OK(sampler_create(&config, &sampler));
    CHECK(memcmp(first, sampler_step(sampler, 0).index, sizeof first) != 0);
    sampler_destroy(sampler);
}

/* Every sample comes first equally often: 6000 epochs of 6 samples, 5 deviations of room. */
static void test_orders_are_even(void)
{
    const struct sampler_config config = { .count = 6, .batch = 6, .seed = 3, .shuffle = true };
    int at[6][6] = { 0 };
    struct sampler *sampler;

    CHECK_OK(sampler_create(&config, &sampler));
    for (uint64_t epoch = 0; epoch < 6000; epoch++) {
        const struct sampler_step step = sampler_step(sampler, epoch);
        for (int i = 0; i < 6; i++)
            at[i][step.index[i]]++;
    }
    for (int i = 0; i < 36; i++)
        CHECK(at[i / 6][i % 6] > 1000 - 145 && at[i / 6][i % 6] < 1000 + 145);
    sampler_destroy(sampler);
}

static void test_the_last_step_can_be_left_out(void)
{
    struct sampler_config config = { .count = 10, .batch = 4, .drop_last = true };
    struct sampler *sampler;

    CHECK_OK(sampler_create(&config, &sampler));
    CHECK_INT(2, sampler_steps_per_epoch(sampler));
    CHECK_INT(4, sampler_step(sampler, 1).samples);
    CHECK_INT(1, sampler_step(sampler, 2).epoch);
    sampler_destroy(sampler);
    sampler_destroy(NULL);
}

static void test_shards_cover_a_step(struct rng *rng)
{
    const int64_t samples = (int64_t)rng_below(rng, 300);
    const int64_t shards = 1 + (int64_t)rng_below(rng, 40);

    CHECK_INT(0, sampler_shard_begin(samples, shards, 0));
    CHECK_INT(samples, sampler_shard_begin(samples, shards, shards));
    for (int64_t v = 0; v < shards; v++) {
        const int64_t size = sampler_shard_begin(samples, shards, v + 1) -
                             sampler_shard_begin(samples, shards, v);
        CHECK(size == samples / shards || size == (samples + shards - 1) / shards);
    }
}

static void test_wrong_requests_are_refused(void)
{
    static const struct sampler_config NONE = { .count = 0, .batch = 1 };
    static const struct sampler_config NO_BATCH = { .count = 10, .batch = 0 };
    static const struct sampler_config TOO_LARGE = { .count = 10,
                                                     .batch = 11,
                                                     .drop_last = true };
    const struct sampler_config good = { .count = 10, .batch = 2 };
    struct sampler *sampler;

    CHECK_STATUS(STATUS_USAGE, sampler_create(&NONE, &sampler));
    CHECK_MESSAGE("no samples");
    CHECK_STATUS(STATUS_USAGE, sampler_create(&NO_BATCH, &sampler));
    CHECK_MESSAGE("at least 1 sample, not 0");
    CHECK_STATUS(STATUS_USAGE, sampler_create(&TOO_LARGE, &sampler));
    CHECK_MESSAGE("a batch of 11 is more than the 10 samples");
    for (uint64_t nth = 1; nth <= 2; nth++) {
        mem_fail_at(nth);
        CHECK_STATUS(STATUS_NO_MEMORY, sampler_create(&good, &sampler));
    }
}

const struct test tests[] = {
    { .name = "batches are of like keys", .property = test_batches_are_of_like_keys },
    { .name = "batches of like keys are shuffled",
      .run = test_batches_of_like_keys_are_shuffled },
    { .name = "each epoch is a permutation", .property = test_each_epoch_is_a_permutation },
    { .name = "steps do not depend on how they are asked",
      .property = test_steps_do_not_depend_on_how_they_are_asked },
    { .name = "the order is known", .run = test_the_order_is_known },
    { .name = "seeds and epochs give other orders",
      .run = test_seeds_and_epochs_give_other_orders },
    { .name = "orders are even", .run = test_orders_are_even },
    { .name = "the last step can be left out", .run = test_the_last_step_can_be_left_out },
    { .name = "shards cover a step", .property = test_shards_cover_a_step },
    { .name = "wrong requests are refused", .run = test_wrong_requests_are_refused },
    { 0 },
};
