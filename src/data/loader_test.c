/* SPDX-License-Identifier: MIT */
/* loader_test.c - what the loader hands out is what reading directly gives. */
#include "data/loader.h"

#include "base/mem.h"
#include "base/test.h"
#include "data/data_testing.h"
#include "data/dataset.h"

#include <string.h>

enum { SAMPLE = 12, BATCH_MOST = 40 };

static struct dataset *open_set(struct rng *rng, int64_t count)
{
    const struct data_testing_set set = {
        .train = count, .test = 1, .rows = 3, .columns = 4, .classes = 5
    };
    struct dataset *dataset;

    data_testing_make(rng, test_folder(), &set);
    CHECK_OK(dataset_open(test_folder(), DATASET_TRAIN, &dataset));
    return dataset;
}

static struct loader_config random_config(struct rng *rng, const struct dataset *dataset)
{
    struct loader_config config = {
        .source = dataset_as_source(dataset),
        .sampler = { .count = dataset_count(dataset),
                     .batch = 1 + (int64_t)rng_below(rng, BATCH_MOST),
                     .seed = rng_u64(rng),
                     .shuffle = true },
        .shards = 1 + (int64_t)rng_below(rng, 9),
        .first_step = rng_below(rng, 20),
        .augment = { .crop = (int)rng_below(rng, 3),
                     .flip = rng_below(rng, 2),
                     .cutout = (int)rng_below(rng, 4) },
        .depth = (int)rng_below(rng, 6),
        .threads = (int)rng_below(rng, 5),
        .picks = rng_below(rng, 4) == 0,
    };
    config.n_shards = config.shards;
    config.end_step = config.first_step + 1 + rng_below(rng, 20);
    return config;
}

/* Compares a batch with the rows [first, first + rows) of its step, read directly, one by one. */
static void check_batch(const struct loader_config *config, struct sampler *sampler,
                        const struct batch *batch, uint64_t number)
{
    const struct sampler_step step = sampler_step(sampler, number);
    uint8_t scratch[SAMPLE];
    const struct source_how how = { .augment = config->augment,
                                    .seed = config->sampler.seed,
                                    .epoch = step.epoch,
                                    .scratch = scratch };
    float x[SAMPLE];
    int32_t y;
    const int64_t length[SOURCE_SEQUENCES] = { 0 };

    CHECK_INT(number, batch->step);
    CHECK_INT(step.epoch, batch->epoch);
    CHECK_INT(step.samples, batch->samples);
    CHECK_INT(step.samples, batch->weight);
    CHECK(batch->length[0] == 0 && batch->length[1] == 0 && batch->x2 == NULL);
    CHECK(batch->rows >= 0 && batch->first + batch->rows <= step.samples);
    for (int64_t i = 0; i < batch->rows && config->picks; i++) {
        struct pick pick;
        source_pick(config->source, &how, step.index + batch->first + i, 1, &pick);
        CHECK(memcmp(&pick, &batch->picks[i], sizeof pick) == 0);
    }
    for (int64_t i = 0; i < batch->rows && !config->picks; i++) {
        source_read(config->source, &how, step.index + batch->first + i, 1, length, x, NULL,
                    &y);
        CHECK(memcmp(x, (const float *)batch->x + i * SAMPLE, sizeof x) == 0);
        CHECK_INT(y, batch->y[i]);
    }
    CHECK((uintptr_t)batch->x % 64 == 0);
}

/* The ranks' parts follow each other and make up the step, for any cut of the shards. */
static void test_ranks_together_see_each_step(struct rng *rng)
{
    enum { RANKS_MOST = 4 };
    struct dataset *dataset = open_set(rng, 1 + (int64_t)rng_below(rng, 100));
    struct loader_config config = random_config(rng, dataset);
    const int ranks = 1 + (int)rng_below(rng, RANKS_MOST);
    struct loader *loaders[RANKS_MOST];
    struct sampler *sampler;

    CHECK_OK(sampler_create(&config.sampler, &sampler));
    for (int rank = 0; rank < ranks; rank++) {
        config.first_shard = config.shards * rank / ranks;
        config.n_shards = config.shards * (rank + 1) / ranks - config.first_shard;
        CHECK_OK(loader_create(&config, &loaders[rank]));
    }
    for (uint64_t number = config.first_step; number < config.end_step; number++) {
        int64_t next = 0, samples = 0;
        for (int rank = 0; rank < ranks; rank++) {
            const struct batch *batch;
            CHECK_OK(loader_next(loaders[rank], &batch));
            CHECK_INT(next, batch->first);
            check_batch(&config, sampler, batch, number);
            next += batch->rows;
            samples = batch->samples;
            loader_done(loaders[rank], batch);
        }
        CHECK_INT(samples, next);
    }
    for (int rank = 0; rank < ranks; rank++) {
        const struct batch *batch;
        CHECK_STATUS(STATUS_NOT_FOUND, loader_next(loaders[rank], &batch));
        CHECK_STATUS(STATUS_NOT_FOUND, loader_next(loaders[rank], &batch));
        loader_destroy(loaders[rank]);
    }
    sampler_destroy(sampler);
    dataset_close(dataset);
}

static void test_stopping_early_is_clean(struct rng *rng)
{
    struct dataset *dataset = open_set(rng, 50);
    struct loader_config config = random_config(rng, dataset);
    const struct batch *batch;
    struct loader *loader;

    config.end_step = UINT64_MAX;
    CHECK_OK(loader_create(&config, &loader));
    for (uint64_t i = rng_below(rng, 30); i > 0; i--) {
        CHECK_OK(loader_next(loader, &batch));
        if (i > 1 || rng_below(rng, 2)) /* the last may be kept */
            loader_done(loader, batch);
    }
    loader_destroy(loader);
    loader_destroy(NULL);
    dataset_close(dataset);
}

/* Several batches may be held at once; they are given back in order. */
static void test_all_slots_can_be_held(struct rng *rng)
{
    struct dataset *dataset = open_set(rng, 50);
    struct loader_config config = random_config(rng, dataset);
    const struct batch *held[5];
    struct sampler *sampler;
    struct loader *loader;

    config.first_shard = (int64_t)rng_below(rng, (uint64_t)config.shards);
    config.n_shards =
        (int64_t)rng_below(rng, (uint64_t)(config.shards - config.first_shard)) + 1;
    config.depth = 1 + (int)rng_below(rng, 5);
    config.end_step = config.first_step + 100;
    CHECK_OK(sampler_create(&config.sampler, &sampler));
    CHECK_OK(loader_create(&config, &loader));
    for (uint64_t number = config.first_step; number < config.first_step + 20;) {
        const int n_held = 1 + (int)rng_below(rng, (uint64_t)config.depth);
        for (int i = 0; i < n_held; i++)
            CHECK_OK(loader_next(loader, &held[i]));
        for (int i = 0; i < n_held; i++) {
            check_batch(&config, sampler, held[i], number++);
            loader_done(loader, held[i]);
        }
    }
    loader_destroy(loader);
    sampler_destroy(sampler);
    dataset_close(dataset);
}

/* The third of 5 shards has no row of 3 samples, but one of the 2 that are left of 5. */
static void test_a_shorter_step_may_have_more_rows(void)
{
    const struct batch *batch[4];
    struct rng rng;
    struct loader *loader;

    rng_init(&rng, 4, 0);
    struct dataset *dataset = open_set(&rng, 5);
    const struct loader_config config = { .source = dataset_as_source(dataset),
                                          .sampler = { .count = 5, .batch = 3 },
                                          .shards = 5,
                                          .first_shard = 2,
                                          .n_shards = 1,
                                          .end_step = 4,
                                          .depth = 4 };
    CHECK_OK(loader_create(&config, &loader));
    for (int i = 0; i < 4; i++) {
        CHECK_OK(loader_next(loader, &batch[i]));
        CHECK_INT(i % 2, batch[i]->rows);
    }
    CHECK(batch[2]->y >= batch[1]->y + 1); /* and has room for it */
    CHECK((float *)batch[2]->x >= (float *)batch[1]->x + SAMPLE);
    loader_destroy(loader);
    dataset_close(dataset);
}

static void test_steps_take_no_memory(void)
{
    struct rng rng;
    struct loader *loader;
    const struct batch *batch;

    rng_init(&rng, 1, 0);
    struct dataset *dataset = open_set(&rng, 60);
    struct loader_config config = random_config(&rng, dataset);
    config.end_step = config.first_step + 500;
    CHECK_OK(loader_create(&config, &loader));
    const uint64_t before = mem_count();
    for (int i = 0; i < 500; i++) {
        CHECK_OK(loader_next(loader, &batch));
        loader_done(loader, batch);
    }
    CHECK_INT(before, mem_count());
    loader_destroy(loader);
    dataset_close(dataset);
}

/* A user that does nothing but take is faster than one reader. */
static void test_readers_join_where_one_is_not_enough(void)
{
    const struct data_testing_set set = {
        .train = 300, .test = 1, .rows = 64, .columns = 64, .classes = 5
    };
    const struct batch *batch;
    struct dataset *dataset;
    struct loader *loader;
    struct rng rng;

    rng_init(&rng, 5, 0);
    data_testing_make(&rng, test_folder(), &set);
    CHECK_OK(dataset_open(test_folder(), DATASET_TRAIN, &dataset));
    struct loader_config config = { .source = dataset_as_source(dataset),
                                    .sampler = { .count = 300, .batch = 150, .shuffle = true },
                                    .shards = 1,
                                    .n_shards = 1,
                                    .end_step = 20000 };
    CHECK_OK(loader_create(&config, &loader));
    CHECK_INT(1, loader_threads(loader));
    for (int i = 0; i < 20000 && loader_threads(loader) == 1; i++) {
        CHECK_OK(loader_next(loader, &batch));
        loader_done(loader, batch);
    }
    CHECK(loader_threads(loader) > 1);
    loader_destroy(loader);

    config.threads = 3;
    CHECK_OK(loader_create(&config, &loader));
    CHECK_INT(3, loader_threads(loader));
    CHECK(loader_bytes(loader) >= (size_t)4 * 150 * 64 * 64 * sizeof(float));
    loader_destroy(loader);
    dataset_close(dataset);
}

static void test_no_steps_are_no_error(void)
{
    struct rng rng;
    struct loader *loader;
    const struct batch *batch;

    rng_init(&rng, 2, 0);
    struct dataset *dataset = open_set(&rng, 20);
    struct loader_config config = random_config(&rng, dataset);
    config.end_step = config.first_step;
    CHECK_OK(loader_create(&config, &loader));
    CHECK_STATUS(STATUS_NOT_FOUND, loader_next(loader, &batch));
    loader_destroy(loader);
    dataset_close(dataset);
}

static void check_refused(const struct loader_config *config, const char *part)
{
    struct loader *loader;

    CHECK_STATUS(STATUS_USAGE, loader_create(config, &loader));
    CHECK_MESSAGE(part);
}

static void test_wrong_requests_are_refused(void)
{
    struct rng rng;
    struct loader *loader;
    enum status status = STATUS_NO_MEMORY;

    rng_init(&rng, 3, 0);
    struct dataset *dataset = open_set(&rng, 20);
    const struct loader_config good = random_config(&rng, dataset);
    struct loader_config config = good;
    config.sampler.count = 21;
    check_refused(&config, "21 samples are asked for, the data set has 20");
    config = good;
    config.first_shard = config.shards;
    check_refused(&config, "are not within");
    config = good;
    config.first_step = config.end_step + 1;
    check_refused(&config, "is before the first");
    config = good;
    config.threads = LOADER_THREADS + 1;
    check_refused(&config, "65 threads to read");
    config = good;
    config.augment.crop = 3;
    check_refused(&config, "crop 3 leaves nothing of images of 3x4");
    config = good;
    config.sampler.batch = 0;
    check_refused(&config, "at least 1 sample");

    for (uint64_t nth = 1; status != STATUS_OK; nth++) {
        CHECK(nth < 20);
        mem_fail_at(nth);
        status = loader_create(&good, &loader);
        mem_fail_at(0);
        CHECK(status == STATUS_OK || status == STATUS_NO_MEMORY);
    }
    loader_destroy(loader);
    dataset_close(dataset);
}

const struct test tests[] = {
    { .name = "ranks together see each step", .property = test_ranks_together_see_each_step },
    { .name = "stopping early is clean", .property = test_stopping_early_is_clean },
    { .name = "all slots can be held", .property = test_all_slots_can_be_held },
    { .name = "a shorter step may have more rows",
      .run = test_a_shorter_step_may_have_more_rows },
    { .name = "steps take no memory", .run = test_steps_take_no_memory },
    { .name = "readers join where one is not enough",
      .run = test_readers_join_where_one_is_not_enough },
    { .name = "no steps are no error", .run = test_no_steps_are_no_error },
    { .name = "wrong requests are refused", .run = test_wrong_requests_are_refused },
    { 0 },
};
