/* SPDX-License-Identifier: MIT */
/* measure_test.c - a measurement is made of plausible numbers, and refuses what it cannot do. */
#include "data/measure.h"

#include "base/test.h"
#include "data/data_testing.h"
#include "data/dataset.h"

static int n_told;

static void count_window(int window)
{
    CHECK_INT(n_told, window);
    n_told++;
}

static void test_a_loader_is_measured(void)
{
    const struct data_testing_set set = {
        .train = 100, .test = 1, .rows = 28, .columns = 28, .classes = 5
    };
    struct data_measurement result;
    struct dataset *dataset;
    struct rng rng;

    rng_init(&rng, 1, 0);
    data_testing_make(&rng, test_folder(), &set);
    CHECK_OK(dataset_open(test_folder(), DATASET_TRAIN, &dataset));
    struct loader_config config = { .source = dataset_as_source(dataset),
                                    .sampler = { .count = 100, .batch = 32, .shuffle = true },
                                    .shards = 1,
                                    .n_shards = 1,
                                    .augment = { .crop = 2, .flip = true, .cutout = 4 },
                                    .threads = 2 };
    CHECK_OK(data_measure(&config, 2, count_window, &result));
    CHECK_INT(2, n_told);
    CHECK_INT(2, result.threads);
    CHECK(result.samples_per_s_p10 > 0 && result.samples_per_s >= result.samples_per_s_p10);
    CHECK(result.samples_per_s_p90 >= result.samples_per_s);
    CHECK(result.write_bytes_per_s > 0);

    CHECK_STATUS(STATUS_USAGE, data_measure(&config, 0, NULL, &result));
    CHECK_MESSAGE("0 windows");
    config.augment.crop = 28;
    CHECK_STATUS(STATUS_USAGE, data_measure(&config, 1, NULL, &result));
    dataset_close(dataset);
}

const struct test tests[] = {
    { .name = "a loader is measured", .run = test_a_loader_is_measured },
    { 0 },
};
