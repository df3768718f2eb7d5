/* SPDX-License-Identifier: MIT */
/* privacy_test.c - DP-SGD: each sample's gradient is clipped as a whole, noise is added once, threads do not matter. */
#include <math.h>
#include <pthread.h>
#include <string.h>

#include "base/mem.h"
#include "base/test.h"
#include "exec/exec.h"
#include "graph/build.h"
#include "model/model.h"
#include "pass/strategy.h"

enum { PIXELS = 36, CLASSES = 3, BATCH = 6, FLOATS = 4096 };

static void build_plain(struct graph *graph, const struct model_config *config,
                        struct value *input, struct value *target)
{
    struct value *x = build_relu(graph, "relu", build_linear(graph, "fc1", input, 61));
    (void)config;
    build_classifier_loss(graph, build_linear(graph, "fc2", x, CLASSES), target);
}

static void build_normed(struct graph *graph, const struct model_config *config,
                         struct value *input, struct value *target)
{
    struct value *x =
        build_conv2d(graph, "conv", input,
                     (struct build_conv){ .channels = 4, .kernel = 3, .stride = 1, .pad = 1 });
    x = build_flatten(graph, "flat", build_batch_norm(graph, "norm", x, config->training));
    build_classifier_loss(graph, build_linear(graph, "fc", x, CLASSES), target);
}

static const struct model plain = { .name = "plain", .build = build_plain };
static const struct model normed = { .name = "normed", .build = build_normed };

struct job {
    const struct model *model;
    int threads;
    int64_t batch, shards;
    int64_t first, samples; /* of the data */
    bool factors;
    int steps;
    const struct exec_privacy *privacy;
    enum status expected;
    float params[FLOATS]; /* after the steps, in the model's order */
    size_t count;
};

static struct graph *graph_of(const struct job *job, const struct optim_config *optim)
{
    const struct pass_config passes = { .batch = job->batch,
                                        .shards = job->shards,
                                        .ranks = 1,
                                        .factors = job->factors,
                                        .dense = true,
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

/* Samples of very different sizes, so that some gradients are clipped and some not. */
static void run_step(const struct job *job, struct exec *exec, int step)
{
    static float x[BATCH * PIXELS];
    static int32_t y[BATCH];
    const struct batch batch = { .step = (uint64_t)step,
                                 .samples = job->samples,
                                 .weight = job->samples,
                                 .own_weight = job->samples,
                                 .rows = job->samples,
                                 .x = x,
                                 .y = y };
    struct exec_result result;

    for (int64_t r = 0; r < job->samples; r++) {
        struct rng rng;
        rng_init(&rng, (uint64_t)(job->first + r), (uint64_t)step);
        y[r] = (int32_t)rng_below(&rng, CLASSES);
        for (int64_t i = 0; i < PIXELS; i++)
            x[r * PIXELS + i] = (float)rng_normal(&rng) * (float)(job->first + r) / 3;
    }
    CHECK_OK(exec_step(exec, &batch, &result));
}

static void keep_params(struct job *job, struct exec *exec)
{
    job->count = 0;
    CHECK_OK(exec_settle(exec));
    for (int i = 0; i < exec_param_count(exec); i++) {
        exec_get(exec, i, -1, job->params + job->count);
        job->count += (size_t)shape_count(&exec_param(exec, i)->shape);
        CHECK(job->count <= FLOATS);
    }
}

static void run(struct job *job)
{
    struct kernel_choices *choices;
    struct optim_config optim = { .optimizer = optim_find("sgd") };
    struct transport *transport;
    struct exec *exec = NULL;
    struct comm *comm;

    optim.attrs = optim.optimizer->defaults;
    optim.attrs.momentum = 0;
    optim.schedule = (struct schedule){ .kind = SCHEDULE_CONSTANT, .lr = 1 };
    struct graph *graph = graph_of(job, &optim);
    CHECK_OK(transport_inproc_create(1, &transport));
    CHECK_OK(comm_create(transport, NULL, &comm));
    CHECK_OK(kernel_choices_load(NULL, &choices));
    const struct exec_config config = { .train = graph,
                                        .comm = comm,
                                        .threads = job->threads,
                                        .shards = job->shards,
                                        .batch = job->batch,
                                        .privacy = job->privacy,
                                        .seed = 5,
                                        .choices = choices,
                                        .optim = optim };
    CHECK_STATUS(job->expected, exec_create(&config, &exec));
    if (exec) {
        CHECK_OK(exec_init_params(exec));
        for (int s = 0; s < job->steps; s++)
            run_step(job, exec, s);
        keep_params(job, exec);
    }
    exec_destroy(exec);
    kernel_choices_destroy(choices);
    graph_destroy(graph);
    comm_destroy(comm);
    transport_inproc_destroy(&transport, 1);
}

static struct job job_of(const struct exec_privacy *privacy, int steps)
{
    return (struct job){ .model = &plain,
                         .threads = 1,
                         .batch = BATCH,
                         .shards = BATCH,
                         .samples = BATCH,
                         .steps = steps,
                         .privacy = privacy };
}

static void add_nothing(void *arg, uint64_t step, int64_t weight, size_t at, float *sum,
                        size_t count)
{
    (void)arg, (void)step, (void)weight, (void)at, (void)sum, (void)count;
}

/* Far above all norms, nothing is clipped: the bits are those of ordinary training. */
static void test_a_high_clip_changes_nothing(void)
{
    const struct exec_privacy privacy = { .clip = 1e6, .add = add_nothing };
    static struct job private, usual;

    private = job_of(&privacy, 3);
    usual = job_of(NULL, 3);
    run(&private);
    run(&usual);
    CHECK(memcmp(private.params, usual.params, usual.count * sizeof(float)) == 0);
}

/* Each sample's gradient by itself, from a step with nothing else; clipped by hand, and their mean. */
static void test_every_sample_is_clipped_by_itself(void)
{
    const struct exec_privacy privacy = { .clip = 2, .add = add_nothing };
    static struct job initial, one, private;
    static double mean[FLOATS];
    int clipped = 0;

    memset(mean, 0, sizeof(mean));
    initial = job_of(NULL, 0);
    run(&initial);
    for (int64_t i = 0; i < BATCH; i++) {
        double squares = 0;
        one = job_of(NULL, 1);
        one.batch = one.shards = one.samples = 1;
        one.first = i;
        run(&one);
        for (size_t k = 0; k < one.count; k++)
            squares += pow((double)initial.params[k] - (double)one.params[k], 2);
        const double scale = fmin(1, privacy.clip / sqrt(squares));
        clipped += scale < 1;
        for (size_t k = 0; k < one.count; k++)
            mean[k] += scale * ((double)initial.params[k] - (double)one.params[k]) / BATCH;
    }
    CHECK(clipped > 0 && clipped < BATCH);
    private = job_of(&privacy, 1);
    run(&private);
    for (size_t k = 0; k < private.count; k++)
        CHECK(fabs((double)initial.params[k] - (double)private.params[k] - mean[k]) < 1e-5);
}

static void test_threads_do_not_matter(void)
{
    const struct exec_privacy privacy = { .clip = 1, .add = add_nothing };
    static struct job alone, many;

    alone = job_of(&privacy, 3);
    run(&alone);
    for (int threads = 2; threads <= 4; threads++) {
        many = job_of(&privacy, 3);
        many.threads = threads;
        run(&many);
        CHECK(memcmp(alone.params, many.params, alone.count * sizeof(float)) == 0);
    }
}

/* A batch that is not full has shards without samples. */
static void test_a_short_batch_has_its_own_weight(void)
{
    const struct exec_privacy privacy = { .clip = 1, .add = add_nothing };
    static struct job part, whole;

    part = job_of(&privacy, 2);
    part.samples = 3;
    run(&part);
    whole = job_of(&privacy, 2);
    whole.batch = whole.shards = whole.samples = 3;
    run(&whole);
    for (size_t k = 0; k < whole.count; k++)
        CHECK_CLOSE(whole.params[k], part.params[k], 1e-5);
}

struct counted {
    pthread_mutex_t lock;
    int64_t elements;
};

static void add_one(void *arg, uint64_t step, int64_t weight, size_t at, float *sum,
                    size_t count)
{
    struct counted *counted = arg;

    (void)at;
    for (size_t i = 0; i < count; i++)
        sum[i] += (float)(step + 1) / (float)weight;
    pthread_mutex_lock(&counted->lock);
    counted->elements += (int64_t)count;
    pthread_mutex_unlock(&counted->lock);
}

/* Every parameter gets its noise once a step, whoever updates it. */
static void test_noise_is_added_once_to_every_parameter(void)
{
    struct counted counted = { .lock = PTHREAD_MUTEX_INITIALIZER };
    const struct exec_privacy noisy = { .clip = 1e-6, .arg = &counted, .add = add_one };
    static struct job initial, after;

    initial = job_of(NULL, 0);
    run(&initial);
    for (int threads = 1; threads <= 3; threads += 2) {
        counted.elements = 0;
        after = job_of(&noisy, 2);
        after.threads = threads;
        run(&after);
        CHECK_INT(2 * (int64_t)after.count, counted.elements);
        for (size_t k = 0; k < after.count; k++) /* (1 + 2) / 6, and next to no gradient */
            CHECK_CLOSE(initial.params[k] - 0.5F, after.params[k], 1e-5);
    }
}

static void test_what_cannot_be_private_is_refused(void)
{
    const struct exec_privacy privacy = { .clip = 1, .add = add_nothing };
    const struct exec_privacy none = { .clip = 0, .add = add_nothing };
    static struct job job;

    job = job_of(&privacy, 0);
    job.shards = 3;
    job.expected = STATUS_USAGE;
    run(&job);
    CHECK_MESSAGE("a shard each");
    job = job_of(&none, 0);
    job.expected = STATUS_USAGE;
    run(&job);
    job = job_of(&privacy, 0);
    job.model = &normed;
    job.expected = STATUS_UNSUPPORTED;
    run(&job);
    CHECK_MESSAGE("without batch norm");
}

const struct test tests[] = {
    { "a high clip changes nothing", test_a_high_clip_changes_nothing, NULL },
    { "every sample is clipped by itself", test_every_sample_is_clipped_by_itself, NULL },
    { "threads do not matter", test_threads_do_not_matter, NULL },
    { "a short batch has its own weight", test_a_short_batch_has_its_own_weight, NULL },
    { "noise is added once to every parameter", test_noise_is_added_once_to_every_parameter,
      NULL },
    { "what cannot be private is refused", test_what_cannot_be_private_is_refused, NULL },
    { 0 },
};
