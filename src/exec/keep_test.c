/* SPDX-License-Identifier: MIT */
/* keep_test.c - a device that holds the data makes the samples that the loader makes, and trains to the same bits. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/test.h"
#include "comm/comm_testing.h"
#include "data/data_testing.h"
#include "data/dataset.h"
#include "exec/exec.h"
#include "exec/exec_testing.h"
#include "model/model.h"
#include "pass/strategy.h"

enum { SIDE = 28, CLASSES = 6, COLOUR_SIDE = 32, MOST = 3 * COLOUR_SIDE * COLOUR_SIDE };
enum { STEPS = 14, BATCH = 16, SHARDS = 4 };

/* Of one channel, in the test's folder. */
static struct dataset *open_grey(struct rng *rng, enum dataset_split split)
{
    const struct data_testing_set set = {
        .train = 100, .test = 150, .rows = SIDE, .columns = SIDE, .classes = CLASSES
    };
    struct dataset *dataset;

    if (split == DATASET_TRAIN)
        data_testing_make(rng, test_folder(), &set);
    CHECK_OK(dataset_open(test_folder(), split, &dataset));
    return dataset;
}

/* Of three channels: CIFAR-10's records. */
static struct dataset *open_colour(struct rng *rng)
{
    static const char *const files[] = { "data_batch_1.bin", "data_batch_2.bin",
                                         "data_batch_3.bin", "data_batch_4.bin",
                                         "data_batch_5.bin", "test_batch.bin" };
    static uint8_t records[4 * (1 + MOST)];
    struct dataset *dataset;
    char folder[2048];

    snprintf(folder, sizeof folder, "%s/colour", test_folder());
    for (size_t f = 0; f < sizeof files / sizeof *files; f++) {
        for (size_t i = 0; i < sizeof records; i++)
            records[i] = (uint8_t)rng_below(rng, i % (1 + MOST) ? 256 : 10);
        data_testing_write(folder, files[f], records, sizeof records);
    }
    CHECK_OK(dataset_open(folder, DATASET_TRAIN, &dataset));
    return dataset;
}

/* What a device has of a data set; here that is any memory. */
static struct device_images images_of(const struct source *source, uint8_t **out_pixels,
                                      int32_t **out_labels)
{
    const struct shape *sample = &source->sample;
    const size_t bytes = (size_t)shape_count(sample), count = (size_t)source->count;

    CHECK_OK(mem_alloc(count, bytes, out_pixels));
    CHECK_OK(mem_alloc(count, sizeof **out_labels, out_labels));
    for (size_t i = 0; i < count; i++) {
        memcpy(*out_pixels + i * bytes, source->kind->pixels(source, (int64_t)i), bytes);
        (*out_labels)[i] = source_label(source, (int64_t)i);
    }
    return (struct device_images){ .pixels = *out_pixels,
                                   .labels = *out_labels,
                                   .values = source->kind->values(source),
                                   .channels = sample->dim[0],
                                   .height = sample->dim[1],
                                   .width = sample->dim[2] };
}

/* One after the other, so that one that is written too far is seen. */
static void check_picks(const struct source *source, const struct source_how *how,
                        struct rng *rng)
{
    static float here[MOST], there[2 * MOST];
    const size_t numbers = (size_t)shape_count(&source->sample);
    const int64_t none[SOURCE_SEQUENCES] = { 0 };
    const struct device_face *face;
    uint8_t *pixels;
    int32_t *labels;
    const struct device_images images = images_of(source, &pixels, &labels);

    CHECK_OK(device_find("cpu", &face));
    for (int i = 0; i < 40; i++) {
        const int64_t index = (int64_t)rng_below(rng, (uint64_t)source->count);
        int32_t label, picked_label;
        struct pick pick;

        there[numbers] = 5;
        source_read(source, how, &index, 1, none, here, NULL, &label);
        source_pick(source, how, &index, 1, &pick);
        face->pick(NULL, &images, &pick, 1, there, i % 2 ? &picked_label : NULL);
        CHECK(memcmp(here, there, numbers * sizeof *here) == 0);
        CHECK(there[numbers] == 5);
        if (i % 2)
            CHECK_INT(label, picked_label);
    }
    mem_free(pixels);
    mem_free(labels);
}

static void test_picks_are_what_is_read(struct rng *rng)
{
    struct dataset *sets[] = { open_grey(rng, DATASET_TRAIN), open_colour(rng) };
    static uint8_t scratch[MOST];

    for (int i = 0; i < 2; i++) {
        const struct source *source = dataset_as_source(sets[i]);
        const struct source_how how = { .augment = { .crop = (int)rng_below(rng, 5),
                                                     .flip = rng_below(rng, 2),
                                                     .cutout = (int)rng_below(rng, 9) },
                                        .seed = rng_u64(rng),
                                        .epoch = (int64_t)rng_below(rng, 9),
                                        .scratch = scratch };
        CHECK(source_has_pixels(source));
        check_picks(source, &how, rng);
        check_picks(source, NULL, rng);
        dataset_close(sets[i]);
    }
}

/* Training ---------------------------------------------------------------------------------- */

struct run {
    const char *model;
    int ranks;
    bool keeps;
    const struct exec_device *device;
    const struct dataset *train, *test;
    struct optim_config optim;
    struct graph *graph, *eval;
    struct kernel_choices *choices;
    char hash[65];
    struct exec_result evaluation;
};

static struct graph *build(const struct run *run, bool training)
{
    const struct model *model = model_find(run->model);
    struct model_config config = model_defaults(model);
    struct graph *graph;

    config.sample = dataset_sample(run->train);
    config.classes = CLASSES;
    config.training = training;
    config.batch = training ? BATCH : 1;
    CHECK_OK(model_build(model, &config, &graph));
    return graph;
}

static enum status run_steps(const struct run *run, struct exec *exec)
{
    const struct loader_config config = {
        .source = dataset_as_source(run->train),
        .sampler = { .count = dataset_count(run->train),
                     .batch = BATCH,
                     .seed = 9,
                     .shuffle = true },
        .shards = SHARDS,
        .first_shard = exec_first_shard(exec),
        .n_shards = exec_shard_count(exec),
        .end_step = STEPS,
        .augment = { .crop = 3, .flip = true, .cutout = 4 },
        .picks = run->keeps,
    };
    struct loader *loader;
    enum status status = STATUS_OK;

    TRY(loader_create(&config, &loader));
    for (int s = 0; s < STEPS && status == STATUS_OK; s++) {
        const struct batch *batch = NULL;
        struct exec_result result;
        status = loader_next(loader, &batch);
        if (status == STATUS_OK)
            status = exec_step(exec, batch, &result);
        if (status == STATUS_OK)
            loader_done(loader, batch);
    }
    loader_destroy(loader);
    TRY(status);
    return exec_settle(exec);
}

static enum status train(struct run *run, struct exec *exec, bool is_first)
{
    struct exec_result evaluation;
    char hash[65];

    TRY(exec_init_params(exec));
    if (run->keeps) {
        TRY(exec_keep(exec, dataset_as_source(run->train)));
        TRY(exec_keep(exec, dataset_as_source(run->test)));
    }
    TRY(run_steps(run, exec));
    for (int i = 0; i < 2; i++) /* the second time it is captured where that can be done */
        TRY(exec_evaluate(exec, dataset_as_source(run->test), &evaluation));
    TRY(exec_collect(exec));
    TRY(exec_hash(exec, hash));
    if (is_first) {
        run->evaluation = evaluation;
        memcpy(run->hash, hash, sizeof hash);
    }
    return STATUS_OK;
}

static enum status run_rank(struct comm *comm, void *arg)
{
    struct run *run = arg;
    const struct exec_config config = {
        .train = run->graph,
        .eval = run->eval,
        .comm = comm,
        .threads = 1,
        .shards = SHARDS,
        .batch = BATCH,
        .seed = 9,
        .device = run->device,
        .choices = run->choices,
        .optim = run->optim,
    };
    struct exec *exec;

    TRY(exec_create(&config, &exec));
    const enum status status = train(run, exec, comm_rank(comm) == 0);
    exec_destroy(exec);
    return status;
}

static void run_job(struct run *run)
{
    const struct pass_config whole = { .batch = 1, .shards = 1, .ranks = 1 };
    struct pass_config config = {
        .batch = BATCH, .shards = SHARDS, .ranks = run->ranks, .bucket_bytes = 1 << 14
    };
    const char *strategy = run->ranks > 1 ? "mirrored" : "single";

    run->optim.optimizer = optim_find("sgd");
    run->optim.attrs = run->optim.optimizer->defaults;
    run->optim.schedule = (struct schedule){ .kind = SCHEDULE_CONSTANT, .lr = 0.01 };
    config.optim = run->optim;
    run->graph = build(run, true);
    CHECK_OK(pass_run(run->graph, strategy_find(strategy)->passes, &config, NULL));
    run->eval = build(run, false);
    CHECK_OK(pass_run(run->eval, pass_evaluation, &whole, NULL));
    CHECK_OK(kernel_choices_load(NULL, &run->choices));
    CHECK_OK(comm_testing_threads(run->ranks, NULL, run_rank, run));
    graph_destroy(run->graph);
    graph_destroy(run->eval);
    kernel_choices_destroy(run->choices);
}

/* The last batch of an epoch of 100 samples has 4, so there are two shapes of steps. */
static void test_kept_data_change_no_bits(void)
{
    static const struct {
        const char *model;
        int ranks;
    } cases[] = {
        { "mlp", 1 }, { "cnn", 1 }, { "mlp", 2 }, { "cnn", 3 }, { "conv_autoencoder", 1 }
    };
    struct exec_device device;
    struct rng rng;

    exec_testing_open_cpu(&device);
    rng_init(&rng, 4, 0);
    struct dataset *train = open_grey(&rng, DATASET_TRAIN);
    struct dataset *test = open_grey(&rng, DATASET_TEST);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct run here = { .model = cases[i].model,
                            .ranks = cases[i].ranks,
                            .device = &device,
                            .train = train,
                            .test = test };
        struct run there = here;
        there.keeps = true;
        run_job(&here);
        run_job(&there);
        CHECK_TEXT(here.hash, there.hash);
        CHECK(here.evaluation.loss == there.evaluation.loss);
        CHECK(here.evaluation.correct == there.evaluation.correct);
        CHECK_INT(here.evaluation.top5, there.evaluation.top5);
    }
    dataset_close(train);
    dataset_close(test);
    device.face->close(device.device);
}

const struct test tests[] = {
    { .name = "picks are what is read", .property = test_picks_are_what_is_read },
    { .name = "kept data change no bits", .run = test_kept_data_change_no_bits },
    { 0 },
};
