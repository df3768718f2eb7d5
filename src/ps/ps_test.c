/* SPDX-License-Identifier: MIT */
/* ps_test.c - jobs with servers, threads as ranks: what workers see, by policy. */
#include <string.h>

#include "base/mem.h"
#include "base/test.h"
#include "ps/ps_testing.h"

static const char *const optimizers[] = { "sgd", "adam" };

static void make_random(struct toy *toy, struct rng *rng)
{
    toy_make(toy, rng, 1 + (int)rng_below(rng, TOY_BUCKETS), optimizers[rng_below(rng, 2)]);
    const int workers = 1 + (int)rng_below(rng, 5);
    toy_share(toy, workers, workers + (int64_t)rng_below(rng, TOY_SHARDS - 5));
    toy->lanes = 1 + (int)rng_below(rng, 3);
    toy->uses_room = rng_below(rng, 2);
    toy->config.servers = 1 + (int)rng_below(rng, 4);
    toy->config.replicas = toy->config.servers > 1 ? 1 + (int)rng_below(rng, 2) : 1;
    toy->step = rng_below(rng, 2) * 5;
    while (toy->config.servers > 1 && ps_check(&toy->config) != STATUS_OK) {
        toy->config.servers--;
        toy->config.replicas = 1;
    }
}

static int random_nodes(const struct toy *toy, struct rng *rng)
{
    const int ranks = toy->config.workers + toy->config.servers;

    return rng_below(rng, 2) ? 1 : 1 + (int)rng_below(rng, (uint64_t)ranks);
}

static void test_steps_have_the_bits_of_one_rank(struct rng *rng)
{
    struct toy toy;

    make_random(&toy, rng);
    CHECK_OK(toy_expect(&toy));
    CHECK_OK(toy_run(&toy, random_nodes(&toy, rng)));
    toy_release(&toy);
}

static void test_async_with_one_worker_is_single(struct rng *rng)
{
    struct toy toy;

    make_random(&toy, rng);
    toy_share(&toy, 1, 1 + (int64_t)rng_below(rng, 8));
    toy.config.policy = rng_below(rng, 2) ? PS_ASYNC : PS_BOUNDED;
    toy.config.bound = 2;
    CHECK_OK(toy_expect(&toy));
    CHECK_OK(toy_run(&toy, random_nodes(&toy, rng)));
    toy_release(&toy);
}

const struct test tests[] = {
    { "steps have the bits of one rank", .property = test_steps_have_the_bits_of_one_rank },
    { "async with one worker is single", .property = test_async_with_one_worker_is_single },
    { 0 },
};
