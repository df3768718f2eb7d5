/* SPDX-License-Identifier: MIT */
/* part_test.c - a private executor runs some shards of a larger job: alone they are a job of their own,
 * on the samples and random numbers that the larger job has. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/test.h"
#include "data/sampler.h"
#include "exec/exec_testing.h"
#include "graph/build.h"
#include "model/model.h"
#include "pass/strategy.h"

enum { PIXELS = 36, CLASSES = 3, STEPS = 3, MAX_BATCH = 24 };

static void build_plain(struct graph *graph, const struct model_config *config,
                        struct value *input, struct value *target)
{
    struct value *x = build_relu(graph, "relu", build_linear(graph, "fc1", input, 12));
    (void)config;
    build_classifier_loss(graph, build_linear(graph, "fc2", x, CLASSES), target);
}

static void build_dropping(struct graph *graph, const struct model_config *config,
                           struct value *input, struct value *target)
{
    struct value *x = build_relu(graph, "relu", build_linear(graph, "fc1", input, 12));
    x = build_dropout(graph, "drop", x, 0.5F);
    (void)config;
    build_classifier_loss(graph, build_linear(graph, "fc2", x, CLASSES), target);
}

static const struct model plain = { .name = "plain", .build = build_plain };
static const struct model dropping = { .name = "dropping", .build = build_dropping };

/* A job of one rank, and what came of it. */
struct job {
    const struct model *model;
    int threads;
    int64_t batch, shards, samples;
    int64_t skipped; /* samples of a step before the first one */
    struct exec_part part;
    bool factors;
    const struct exec_device *device; /* NULL: lanes */
    bool is_changed;                  /* parameters, between steps, by who has the executor */
    float lr;
    enum status expected;
    struct exec_result results[STEPS];
    char hash[65];
};

static struct graph *graph_of(const struct job *job, const struct optim_config *optim)
{
    const struct pass_config passes = { .batch = job->batch,
                                        .shards = job->shards,
                                        .ranks = 1,
                                        .factors = job->factors,
                                        .optim = *optim };
    struct model_config config = model_defaults(job->model);
    struct graph *graph;

    config.sample = (struct shape){ 3, { 1, 6, 6 } };
    config.classes = CLASSES;
    config.training = true;
    config.batch = job->batch;
    CHECK_OK(model_build(job->model, &config, &graph));
    CHECK_OK(pass_run(graph, strategy_find("single")->passes, &passes, NULL));
    return graph;
}

static enum status one_step(struct job *job, struct exec *exec, int step)
{
    static float x[MAX_BATCH * PIXELS];
    static int32_t y[MAX_BATCH];
    const int64_t first = exec_first_shard(exec), end = first + exec_shard_count(exec);
    const int64_t begin = sampler_shard_begin(job->samples, job->shards, first);
    const int64_t rows = sampler_shard_begin(job->samples, job->shards, end) - begin;
    const struct batch batch = { .step = (uint64_t)step,
                                 .samples = job->samples,
                                 .weight = job->samples,
                                 .own_weight = rows,
                                 .first = begin,
                                 .rows = rows,
                                 .x = x,
                                 .y = y };

    for (int64_t r = 0; r < rows; r++) {
        struct rng rng;
        rng_init(&rng, (uint64_t)(job->skipped + begin + r), (uint64_t)step);
        y[r] = (int32_t)rng_below(&rng, CLASSES);
        for (int64_t i = 0; i < PIXELS; i++)
            x[r * PIXELS + i] = (float)rng_normal(&rng) + (float)(i % CLASSES == y[r]);
    }
    return exec_step(exec, &batch, &job->results[step]);
}

/* As an average of several workers would. */
static void change_params(struct exec *exec)
{
    float *vector = exec_vector(exec, -1);

    CHECK_OK(exec_fetch_params(exec));
    for (size_t i = 0; i < exec_vector_length(exec); i++)
        vector[i] *= 0.75F;
    exec_wrote_params(exec);
}

static void run_rank(struct job *job, struct comm *comm)
{
    struct kernel_choices *choices;
    struct optim_config optim = { .optimizer = optim_find(job->is_changed ? "adam" : "sgd") };
    struct exec *exec = NULL;
    int late = 0; /* a device tells results of steps later */

    optim.attrs = optim.optimizer->defaults;
    optim.schedule = (struct schedule){ .kind = SCHEDULE_CONSTANT, .lr = (double)job->lr };
    struct graph *graph = graph_of(job, &optim);
    CHECK_OK(kernel_choices_load(NULL, &choices));
    const struct exec_config config = { .train = graph,
                                        .comm = comm,
                                        .threads = job->threads,
                                        .shards = job->shards,
                                        .batch = job->batch,
                                        .part = job->part,
                                        .seed = 5,
                                        .device = job->device,
                                        .choices = choices,
                                        .optim = optim };
    CHECK_STATUS(job->expected, exec_create(&config, &exec));
    if (exec) {
        CHECK_OK(exec_init_params(exec));
        for (int s = 0; s < STEPS; s++) {
            CHECK_OK(one_step(job, exec, s));
            if (job->is_changed)
                change_params(exec);
        }
        CHECK_OK(exec_testing_take_late(exec, true, &late, job->results));
        CHECK_OK(exec_settle(exec));
        CHECK_OK(exec_hash(exec, job->hash));
    }
    exec_destroy(exec);
    kernel_choices_destroy(choices);
    graph_destroy(graph);
}

static struct job job_of(const struct model *model, struct exec_part part)
{
    return (struct job){ .model = model,
                         .threads = 1,
                         .batch = 24,
                         .shards = 6,
                         .samples = 24,
                         .part = part,
                         .lr = 0.1F };
}

static void run(struct job *job)
{
    struct transport *transport;
    struct comm *comm;

    CHECK_OK(transport_inproc_create(1, &transport));
    CHECK_OK(comm_create(transport, NULL, &comm));
    run_rank(job, comm);
    comm_destroy(comm);
    transport_inproc_destroy(&transport, 1);
}

static void test_a_part_alone_is_a_job_of_its_samples(void)
{
    for (int threads = 1; threads <= 4; threads++) {
        for (int factors = 0; factors < 2; factors++) {
            struct job part = job_of(&plain, (struct exec_part){ .first = 2, .count = 3 });
            struct job own = { .model = &plain,
                               .batch = 12,
                               .shards = 3,
                               .samples = 12,
                               .skipped = 8,
                               .lr = 0.1F };

            part.threads = own.threads = threads;
            part.factors = own.factors = factors;
            run(&part);
            run(&own);
            CHECK_TEXT(own.hash, part.hash);
            for (int s = 0; s < STEPS; s++) {
                CHECK(part.results[s].loss == own.results[s].loss);
                CHECK(part.results[s].correct == own.results[s].correct);
                CHECK(part.results[s].samples == 12 && part.results[s].weight == 12);
            }
        }
    }
}

/* Also where parameters are changed between steps, beside state that stays where it is. */
static void test_a_part_on_a_device_has_the_bits_of_lanes(void)
{
    struct exec_device device;

    exec_testing_open_cpu(&device);
    for (int changes = 0; changes < 2; changes++) {
        for (int64_t samples = 24; samples >= 3;
             samples -= 7) { /* 3: the part has few or none */
            struct job lanes = job_of(&dropping, (struct exec_part){ .first = 2, .count = 3 });

            lanes.is_changed = changes;
            lanes.samples = samples;
            struct job there = lanes;
            there.device = &device;
            run(&lanes);
            run(&there);
            CHECK_TEXT(lanes.hash, there.hash);
            for (int s = 0; s < STEPS; s++) {
                CHECK(lanes.results[s].loss == there.results[s].loss);
                CHECK(lanes.results[s].correct == there.results[s].correct);
                CHECK(lanes.results[s].weight == there.results[s].weight);
            }
        }
    }
    device.face->close(device.device);
}

static void test_the_whole_as_a_part_is_the_whole(void)
{
    struct job whole = job_of(&dropping, (struct exec_part){ 0 });
    struct job alone = job_of(&dropping, (struct exec_part){ .count = 6 });
    struct job summed =
        job_of(&dropping, (struct exec_part){ .count = 6, .with_others = true });

    run(&whole);
    run(&alone);
    run(&summed);
    CHECK_TEXT(whole.hash, alone.hash);
    CHECK_TEXT(whole.hash, summed.hash);
}

/* With a rate of zero all have the same parameters: the losses of the parts, by their samples, are that
 * of the whole if samples and dropout are the same. */
static void test_random_numbers_are_those_of_the_whole(void)
{
    struct job whole = job_of(&dropping, (struct exec_part){ 0 });
    struct job first = job_of(&dropping, (struct exec_part){ .count = 2 });
    struct job second = job_of(&dropping, (struct exec_part){ .first = 2, .count = 4 });

    whole.lr = first.lr = second.lr = 0;
    run(&whole);
    run(&first);
    run(&second);
    for (int s = 0; s < STEPS; s++) {
        const double parts = (8 * first.results[s].loss + 16 * second.results[s].loss) / 24;
        CHECK(fabs(parts - whole.results[s].loss) < 1e-6);
        CHECK(whole.results[s].correct == first.results[s].correct + second.results[s].correct);
    }
}

static void test_a_step_without_samples_changes_nothing(void)
{
    struct job part = job_of(&plain, (struct exec_part){ .first = 0, .count = 1 });
    struct job still = part;

    still.lr = 0;
    run(&still);
    part.samples = 3; /* of 6 shards the first has none */
    run(&part);
    CHECK_TEXT(still.hash, part.hash);
    CHECK(part.results[0].samples == 0 && part.results[0].weight == 0);
    CHECK(part.results[0].loss == 0);
}

static void test_what_is_no_part_is_refused(void)
{
    static const struct exec_part parts[] = {
        { .first = 4, .count = 3 },
        { .first = -1, .count = 3 },
        { .first = 0, .count = 7 },
    };

    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        struct job job = job_of(&plain, parts[i]);
        job.expected = STATUS_USAGE;
        run(&job);
    }
    struct job job = job_of(&plain, (struct exec_part){ .count = 3, .with_others = true });
    job.expected = STATUS_UNSUPPORTED; /* nobody adds what the others have */
    run(&job);
}

const struct test tests[] = {
    { .name = "a part alone is a job of its samples",
      .run = test_a_part_alone_is_a_job_of_its_samples },
    { .name = "a part on a device has the bits of lanes",
      .run = test_a_part_on_a_device_has_the_bits_of_lanes },
    { .name = "the whole as a part is the whole",
      .run = test_the_whole_as_a_part_is_the_whole },
    { .name = "random numbers are those of the whole",
      .run = test_random_numbers_are_those_of_the_whole },
    { .name = "a step without samples changes nothing",
      .run = test_a_step_without_samples_changes_nothing },
    { .name = "what is no part is refused", .run = test_what_is_no_part_is_refused },
    { 0 },
};
