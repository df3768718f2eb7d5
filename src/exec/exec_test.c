/* SPDX-License-Identifier: MIT */
/* exec_test.c - training and evaluation give the same bits on any number of ranks and threads.
 *
 * Ranks are threads of this process. Models are the zoo's, on images of 8x8.
 */
#include "exec/exec.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/sha256.h"
#include "base/test.h"
#include "comm/comm_testing.h"
#include "data/data_testing.h"
#include "data/dataset.h"
#include "exec/state.h"
#include "graph/build.h"
#include "kernel/device_testing.h"
#include "model/model.h"
#include "pass/strategy.h"

enum { SIDE = 8, PIXELS = SIDE * SIDE, CLASSES = 6, STEPS_MAX = 24, RANKS_MAX = 4 };

/* What a training run depends on; ranks, threads and factors must not change its bits. */
struct setup {
    const char *model, *optimizer;
    float max_norm;
    int64_t batch, shards, bucket_bytes;
    int ranks, threads;
    int nodes;                   /* machines that the ranks are on; 0: one */
    bool leaders;                /* though all ranks could talk */
    size_t flying_bytes;         /* that machines send at once; 0: the default */
    const char *compress;        /* NULL: not */
    int64_t rows[RANKS_MAX + 1]; /* of ranks, if the last is not 0 */
    bool recompute;
    bool factors;   /* exchanged instead of gradients, where they are smaller */
    bool sync_norm; /* batch statistics of the whole step */
    int zero;       /* what is given back in between */
    bool ordered;   /* one stage of a pipeline, by its schedule */
    const struct exec_device *device; /* NULL: lanes of this processor */
    int n_steps;
    int64_t samples[STEPS_MAX]; /* of each step */
};

struct outcome {
    char hash[65];
    char state_hash[65]; /* of rank 0 */
    struct exec_result steps[STEPS_MAX];
    struct exec_result evaluation;
    int64_t confusion[CLASSES * CLASSES];
    uint64_t allocations; /* since the step that is counted from */
    int lanes;
};

struct job {
    const struct setup *setup;
    struct optim_config optim;
    struct graph *train, *eval;
    struct kernel_choices *choices;
    const struct dataset *dataset; /* NULL: no evaluation */
    int count_from;                /* allocations are counted from this step on */
    struct outcome outcomes[RANKS_MAX];
};

/* Making a job ------------------------------------------------------------------------- */

/* A model without classes: it gives its input back through a narrow layer. */
static void build_narrow(struct graph *graph, const struct model_config *config,
                         struct value *input, struct value *target)
{
    (void)config;
    (void)target;
    struct value *x = build_relu(graph, "relu", build_linear(graph, "down", input, 12));
    build_reconstruction_loss(graph, build_linear(graph, "up", x, PIXELS));
}

static const struct model narrow = { .name = "narrow", .build = build_narrow };

/* A model with batch norms: plain, and with residual and activation. */
static void build_normed(struct graph *graph, const struct model_config *config,
                         struct value *input, struct value *target)
{
    const struct build_conv conv = { .channels = 5, .kernel = 3, .stride = 2, .pad = 1 };
    struct value *x = build_conv2d(graph, "conv", input, conv);
    struct value *y = build_batch_norm(graph, "bn1", x, config->training);

    y = build_batch_norm(graph, "bn2", build_relu6(graph, "relu6", y), config->training);
    y = build_relu(graph, "relu", build_add(graph, "add", y, x));
    build_classifier_loss(graph, build_linear(graph, "fc", y, CLASSES), target);
}

static const struct model normed = { .name = "normed", .build = build_normed };

static struct graph *build(const struct setup *setup, bool training)
{
    const struct model *model = strcmp(setup->model, narrow.name) == 0 ? &narrow
                                : strcmp(setup->model, normed.name) == 0
                                    ? &normed
                                    : model_find(setup->model);
    struct model_config config = model_defaults(model);
    struct graph *graph;

    config.sample = (struct shape){ 3, { 1, SIDE, SIDE } };
    config.classes = CLASSES;
    config.training = training;
    config.batch = training ? setup->batch : 1;
    CHECK_OK(model_build(model, &config, &graph));
    return graph;
}

static void make_job(const struct setup *setup, struct job *job)
{
    struct pass_config config = { .batch = setup->batch,
                                  .shards = setup->shards,
                                  .ranks = setup->ranks,
                                  .bucket_bytes = setup->bucket_bytes,
                                  .recompute = setup->recompute,
                                  .factors = setup->factors,
                                  .sync_norm = setup->sync_norm,
                                  .zero = setup->zero };
    const struct pass_config whole = { .batch = 1, .shards = 1, .ranks = 1 };
    const char *strategy = setup->ranks > 1 ? "mirrored" : "single";

    *job = (struct job){ .setup = setup };
    job->optim.optimizer = optim_find(setup->optimizer);
    job->optim.attrs = job->optim.optimizer->defaults;
    job->optim.attrs.max_norm = setup->max_norm;
    job->optim.schedule =
        (struct schedule){ .kind = SCHEDULE_CONSTANT, .lr = job->optim.optimizer->default_lr };
    config.optim = job->optim;
    job->train = build(setup, true);
    CHECK_OK(pass_run(job->train, strategy_find(strategy)->passes, &config, NULL));
    job->eval = build(setup, false);
    CHECK_OK(pass_run(job->eval, pass_evaluation, &whole, NULL));
    CHECK_OK(kernel_choices_load(NULL, &job->choices));
}

static void release_job(struct job *job)
{
    graph_destroy(job->train);
    graph_destroy(job->eval);
    kernel_choices_destroy(job->choices);
}

static struct codec_config compress_of(const struct setup *setup)
{
    struct codec_config config = { 0 };

    if (setup->compress)
        CHECK_OK(codec_parse(setup->compress, &config));
    return config;
}

static struct exec_config config_of(const struct job *job, struct comm *comm)
{
    return (struct exec_config){
        .train = job->train,
        .eval = job->eval,
        .comm = comm,
        .threads = job->setup->threads,
        .shards = job->setup->shards,
        .batch = job->setup->batch,
        .rows = job->setup->rows[job->setup->ranks] ? job->setup->rows : NULL,
        .seed = 11,
        .device = job->setup->device,
        .choices = job->choices,
        .optim = job->optim,
        .compress = compress_of(job->setup),
        .zero = job->setup->zero,
        .window = job->setup->zero ? 1 : 0, /* as little as there can be */
        .leaders = job->setup->leaders,
        .flying_bytes = job->setup->flying_bytes,
        .pipeline = { .stages = job->setup->ordered,
                      .kind = PIPE_GPIPE,
                      .chunks = job->setup->ordered,
                      .transport = comm_transport(comm),
                      .ordered = job->setup->ordered },
    };
}

/* A rank ------------------------------------------------------------------------------- */

/* This rank's part of a step: samples drawn from their number, so the same for every cut. */
static enum status make_batch(const struct setup *setup, const struct exec *exec, int step,
                              struct batch **made)
{
    const int64_t samples = setup->samples[step], shards = setup->shards;
    const int64_t first_shard = exec_first_shard(exec);
    const int64_t end =
        sampler_shard_begin(samples, shards, first_shard + exec_shard_count(exec));

    struct batch *out;

    TRY(mem_alloc(1, sizeof *out, made));
    out = *made;
    *out = (struct batch){ .step = (uint64_t)step, .samples = samples, .weight = samples };
    out->first = sampler_shard_begin(samples, shards, first_shard);
    out->rows = end - out->first;
    TRY(mem_alloc((size_t)out->rows * PIXELS, sizeof(float), &out->x));
    TRY(mem_alloc((size_t)out->rows, sizeof *out->y, &out->y));
    for (int64_t r = 0; r < out->rows; r++) {
        struct rng rng;
        rng_init(&rng, (uint64_t)(out->first + r), (uint64_t)step);
        out->y[r] = (int32_t)rng_below(&rng, CLASSES);
        for (int i = 0; i < PIXELS; i++)
            ((float *)out->x)[r * PIXELS + i] =
                (float)rng_normal(&rng) + (float)(i % CLASSES == out->y[r]);
    }
    return STATUS_OK;
}

static void free_batch(struct batch *batch)
{
    if (!batch)
        return;
    mem_free(batch->x);
    mem_free(batch->y);
    mem_free(batch);
}

/* Results of steps that a device was still at, in their order from *next on. */
static enum status take_late(struct exec *exec, bool all, int *next, struct outcome *out)
{
    struct exec_result result;
    bool taken = true;

    while (taken) {
        TRY(exec_take_result(exec, all, &result, &taken));
        if (taken)
            out->steps[(*next)++] = result;
    }
    return STATUS_OK;
}

/* The steps alone; batches are freed as soon as they were used, as nobody may look at them
 * again. */
static enum status run_steps(const struct job *job, struct exec *exec, struct comm *comm,
                             struct batch **batches, struct outcome *out)
{
    int next = 0;

    for (int s = 0; s < job->setup->n_steps; s++) {
        if (s == job->count_from) {
            TRY(comm_barrier(comm));
            out->allocations = mem_count();
            TRY(comm_barrier(comm));
        }
        TRY(exec_step(exec, batches[s], &out->steps[s]));
        free_batch(batches[s]);
        batches[s] = NULL;
        TRY(take_late(exec, false, &next, out));
    }
    TRY(take_late(exec, true, &next, out));
    TRY(exec_settle(exec));
    out->allocations = mem_count() - out->allocations;
    return comm_barrier(comm);
}

/* Of the optimizer's state of all parameters. */
static void hash_state(const struct exec *exec, char out[65])
{
    static float plain[1 << 20];
    struct sha256 hash;

    sha256_init(&hash);
    for (int p = 0; p < exec_param_count(exec); p++) {
        for (int state = 0; state < exec_state_count(exec, p); state++) {
            exec_get(exec, p, state, plain);
            sha256_add(&hash, plain,
                       (size_t)shape_count(&exec_param(exec, p)->shape) * sizeof *plain);
        }
    }
    sha256_end_hex(&hash, out);
}

/* What lies between parameters stays zero. */
static enum status check_gaps(const struct exec *exec)
{
    for (int p = 0; p < exec->n_params; p++) {
        const struct value *param = exec->params[p];
        const int64_t begin = exec->buckets.begin[plan_bucket_of(param->flat)] + param->offset;
        for (int64_t i = shape_count(&param->shape); i % 16 != 0; i++) {
            if (exec->param[begin + i] != 0)
                return FAIL(STATUS_MISMATCH, "%g lies behind %s",
                            (double)exec->param[begin + i], param->name);
        }
    }
    return STATUS_OK;
}

static enum status train(const struct job *job, struct exec *exec, struct comm *comm,
                         struct outcome *out)
{
    struct batch *batches[STEPS_MAX] = { NULL };
    enum status status = exec_init_params(exec);

    out->lanes = exec_lanes(exec);
    for (int s = 0; s < job->setup->n_steps && status == STATUS_OK; s++)
        status = make_batch(job->setup, exec, s, &batches[s]);
    if (status == STATUS_OK)
        status = run_steps(job, exec, comm, batches, out);
    if (status == STATUS_OK)
        status = check_gaps(exec);
    for (int s = 0; s < STEPS_MAX; s++)
        free_batch(batches[s]);
    TRY(status);
    TRY(exec_collect(exec));
    if (comm_rank(comm) == 0)
        hash_state(exec, out->state_hash);
    return exec_hash(exec, out->hash);
}

static enum status run_rank(struct comm *comm, void *arg)
{
    struct job *job = arg;
    const struct exec_config config = config_of(job, comm);
    struct outcome *out = &job->outcomes[comm_rank(comm)];
    struct exec *exec;

    TRY(exec_create(&config, &exec));
    enum status status = train(job, exec, comm, out);
    if (status == STATUS_OK && job->dataset)
        status = exec_evaluate(exec, dataset_as_source(job->dataset), &out->evaluation);
    int classes;
    const int64_t *confusion = exec_confusion(exec, &classes);
    if (confusion && classes == CLASSES)
        memcpy(out->confusion, confusion, sizeof out->confusion);
    exec_destroy(exec);
    return status;
}

static bool same_result(const struct exec_result *a, const struct exec_result *b)
{
    return memcmp(&a->loss, &b->loss, sizeof a->loss) == 0 && a->correct == b->correct &&
           a->samples == b->samples && a->top5 == b->top5;
}

static void check_same(const struct setup *setup, const struct outcome *a,
                       const struct outcome *b)
{
    bool same = strcmp(a->hash, b->hash) == 0 && same_result(&a->evaluation, &b->evaluation) &&
                memcmp(a->confusion, b->confusion, sizeof a->confusion) == 0;

    if (*a->state_hash && *b->state_hash)
        same = same && strcmp(a->state_hash, b->state_hash) == 0;

    for (int s = 0; s < setup->n_steps; s++)
        same = same && same_result(&a->steps[s], &b->steps[s]);
    if (!same)
        test_fail(
            __FILE__, __LINE__,
            "%s, %s, clip %g, batch %lld, shards %lld, buckets of %lld: "
            "%d ranks of %d threads on %d nodes%s, zero %d, differ: %s, loss %.9g and %.9g",
            setup->model, setup->optimizer, (double)setup->max_norm, (long long)setup->batch,
            (long long)setup->shards, (long long)setup->bucket_bytes, setup->ranks,
            setup->threads, setup->nodes, setup->factors ? " with factors" : "", setup->zero,
            b->hash, a->steps[0].loss, b->steps[0].loss);
}

/* Runs on the ranks and threads of the setup; all ranks must say the same. */
static struct outcome run(const struct setup *setup, const struct dataset *dataset)
{
    static struct job job;

    make_job(setup, &job);
    job.dataset = dataset;
    CHECK_OK(comm_testing_nodes(setup->ranks, setup->nodes ? setup->nodes : 1, NULL, run_rank,
                                &job));
    for (int r = 1; r < setup->ranks; r++)
        check_same(setup, &job.outcomes[0], &job.outcomes[r]);
    release_job(&job);
    return job.outcomes[0];
}

static struct outcome run_on(struct setup *setup, int ranks, int threads,
                             const struct dataset *dataset)
{
    setup->ranks = ranks;
    setup->threads = threads;
    return run(setup, dataset);
}

/* Tests -------------------------------------------------------------------------------- */

static const struct setup usual = {
    .model = "mlp",
    .optimizer = "sgd",
    .batch = 24,
    .bucket_bytes = 16384,
    .n_steps = 5,
    .samples = { 24, 24, 19, 3, 24 }, /* whole, uneven, and fewer than shards */
};

static void test_weights_do_not_depend_on_ranks_and_threads(void)
{
    static const int64_t shards[] = { 4, 6, 8 };

    for (size_t i = 0; i < 3; i++) {
        struct setup setup = usual;
        setup.shards = shards[i];
        const struct outcome alone = run_on(&setup, 1, 1, NULL);
        for (int ranks = 1; ranks <= RANKS_MAX; ranks++) {
            for (int threads = 1; threads <= 2; threads++) {
                for (int factors = 0; factors < 2; factors++) {
                    setup.ranks = ranks;
                    setup.threads = threads;
                    setup.factors = factors;
                    const struct outcome other = run(&setup, NULL);
                    check_same(&setup, &alone, &other);
                }
            }
        }
    }
}

/* Losses of steps agree. */
static void check_close(const struct setup *setup, const struct outcome *a,
                        const struct outcome *b, double tolerance)
{
    for (int s = 0; s < setup->n_steps; s++) {
        if (!(fabs(a->steps[s].loss - b->steps[s].loss) < tolerance))
            test_fail(__FILE__, __LINE__, "%s, %s: step %d has a loss of %.9g, not %.9g",
                      setup->model, setup->optimizer, s, b->steps[s].loss, a->steps[s].loss);
    }
}

/* Images that are made up for a test. */
static struct dataset *open_samples(uint64_t seed, int64_t count)
{
    const struct data_testing_set set = {
        .train = 4, .test = count, .rows = SIDE, .columns = SIDE, .classes = CLASSES
    };
    struct dataset *dataset;
    struct rng rng;

    rng_init(&rng, seed, 0);
    data_testing_make(&rng, test_folder(), &set);
    CHECK_OK(dataset_open(test_folder(), DATASET_TEST, &dataset));
    return dataset;
}

/* The CPU as a device. */
static void open_cpu(struct exec_device *out)
{
    *out = (struct exec_device){ .precision = DTYPE_F32 };
    CHECK_OK(device_find("cpu", &out->face));
    CHECK_OK(out->face->open(0, &out->device));
}

/* More steps than are under way at once; norms are sums of squares in another order. */
static void test_a_device_gives_the_bits_of_lanes(void)
{
    static const struct {
        const char *model, *optimizer;
        float max_norm;
        int64_t shards;
        double tolerance; /* of losses; 0: the same bits of everything */
    } cases[] = {
        { "mlp", "sgd", 0, 1, 0 },        { "mlp", "adamw", 0, 6, 0 },
        { "cnn", "adam", 0, 3, 0 },       { "normed", "sgd", 0, 4, 0 },
        { "narrow", "sgd", 0, 2, 0 },     { "mlp", "sgd", 0.5F, 4, 1e-6 },
        { "mlp", "lars", 0.5F, 2, 1e-6 }, { "normed", "lamb", 0.5F, 1, 1e-5 },
        { "mlp", "lamb", 0, 4, 1e-5 },
    };
    struct exec_device device;

    open_cpu(&device);
    struct dataset *dataset = open_samples(7, 200);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct setup setup = usual;
        setup.model = cases[i].model;
        setup.optimizer = cases[i].optimizer;
        setup.max_norm = cases[i].max_norm;
        setup.shards = cases[i].shards;
        setup.n_steps = 12;
        for (int s = 5; s < setup.n_steps; s++)
            setup.samples[s] = 24 - s;
        const struct outcome lanes = run_on(&setup, 1, 2, dataset);
        setup.device = &device;
        const struct outcome there = run_on(&setup, 1, 2, dataset);
        if (cases[i].tolerance > 0)
            check_close(&setup, &lanes, &there, cases[i].tolerance);
        else
            check_same(&setup, &lanes, &there);
    }
    dataset_close(dataset);
    device.face->close(device.device);
}

/* What kernels want in another type is converted, parameters have copies: the same to rounding. In f16 losses are scaled. */
static void test_a_device_computes_in_16_bits(void)
{
    static const struct {
        const char *model;
        enum dtype precision;
        double tolerance;
    } cases[] = {
        { "mlp", DTYPE_BF16, 0.03 },    { "cnn", DTYPE_BF16, 0.03 },
        { "normed", DTYPE_BF16, 0.03 }, { "narrow", DTYPE_BF16, 0.03 },
        { "mlp", DTYPE_F16, 0.004 },    { "cnn", DTYPE_F16, 0.004 },
        { "normed", DTYPE_F16, 0.004 }, { "narrow", DTYPE_F16, 0.004 },
    };
    struct exec_device device;

    open_cpu(&device);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct setup setup = usual;
        setup.model = cases[i].model;
        setup.shards = 2;
        const struct outcome lanes = run_on(&setup, 1, 1, NULL);
        device.face = device_testing_narrow();
        device.precision = cases[i].precision;
        setup.device = &device;
        const struct outcome there = run_on(&setup, 1, 1, NULL);
        check_close(&setup, &lanes, &there, cases[i].tolerance);
        CHECK(strcmp(lanes.hash, there.hash) != 0);
    }
    device.face->close(device.device);
}

/* The first rank's hash; others' is empty. */
static enum status hash_first(struct exec *exec, struct comm *comm, char out[65])
{
    out[0] = '\0';
    TRY(exec_settle(exec));
    if (comm_rank(comm) == 0)
        TRY(exec_hash(exec, out));
    return comm_barrier(comm);
}

/* Streams keep the order of one: whichever is as late as their events allow, bits are the same. */
static void test_late_streams_give_the_bits_of_prompt_ones(void)
{
    static const struct {
        const char *model;
        int64_t shards;
        enum dtype precision;
    } cases[] = {
        { "mlp", 1, DTYPE_F32 },    { "cnn", 1, DTYPE_BF16 },   { "cnn", 3, DTYPE_F32 },
        { "normed", 1, DTYPE_F32 }, { "normed", 2, DTYPE_F32 }, { "narrow", 1, DTYPE_BF16 },
    };
    struct exec_device device;

    open_cpu(&device);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct setup setup = usual;
        setup.model = cases[i].model;
        setup.optimizer = "adam";
        setup.shards = cases[i].shards;
        setup.device = &device;
        device.precision = cases[i].precision;
        device.face = device_testing_narrow();
        const struct outcome prompt = run_on(&setup, 1, 1, NULL);
        for (int beside = 0; beside < 2; beside++) {
            device.face = device_testing_late(beside);
            const struct outcome late = run_on(&setup, 1, 1, NULL);
            check_same(&setup, &prompt, &late);
        }
    }
    device.face->close(device.device);
}

/* A step whose scale is far too large, and some after it that have half of it each: nothing changes until gradients are
 * finite again. */
static enum status train_overscaled(struct comm *comm, void *arg)
{
    struct job *job = arg;
    const struct exec_config config = config_of(job, comm);
    struct device_scaling scaling = { .scale = 0x1p32F, .good = 7, .skipped = 2 };
    struct outcome *out = &job->outcomes[comm_rank(comm)];
    char before[65], after[65];
    struct batch *batch;
    struct exec *exec;

    TRY(exec_create(&config, &exec));
    enum status status = exec_init_params(exec);
    for (int s = 0; s < job->setup->n_steps && status == STATUS_OK; s++) {
        const int64_t skipped = scaling.skipped;
        status = hash_first(exec, comm, before);
        if (status == STATUS_OK && s == 0)
            status = exec_set_scaling(exec, &scaling);
        if (status == STATUS_OK)
            status = make_batch(job->setup, exec, s, &batch);
        if (status != STATUS_OK)
            break;
        status = exec_step(exec, batch, &out->steps[s]);
        free_batch(batch);
        if (status == STATUS_OK)
            status = hash_first(exec, comm, after);
        if (status == STATUS_OK)
            status = exec_scaling(exec, &scaling);
        if (status == STATUS_OK && comm_rank(comm) == 0 &&
            (scaling.skipped > skipped) != (strcmp(before, after) == 0))
            status = FAIL(STATUS_MISMATCH, "step %d: skipped %d, but weights changed %d", s,
                          scaling.skipped > skipped, strcmp(before, after) != 0);
    }
    exec_destroy(exec);
    TRY(status);
    if (scaling.skipped < 10 || scaling.skipped > 22 ||
        scaling.scale != ldexpf(1, 32 - (int)(scaling.skipped - 2)) ||
        scaling.good != job->setup->n_steps - (scaling.skipped - 2))
        return FAIL(STATUS_MISMATCH, "scale %g, good %d, skipped %lld", (double)scaling.scale,
                    (int)scaling.good, (long long)scaling.skipped);
    return STATUS_OK;
}

static void test_steps_without_finite_gradients_are_skipped(void)
{
    struct setup setup = usual;
    struct exec_device device;
    struct job job;

    open_cpu(&device);
    device.face = device_testing_narrow();
    device.precision = DTYPE_F16;
    setup.model = "normed";
    setup.optimizer = "adam";
    setup.device = &device;
    setup.shards = 2;
    setup.threads = 1;
    setup.n_steps = STEPS_MAX;
    for (int s = 0; s < STEPS_MAX; s++)
        setup.samples[s] = setup.batch;
    for (setup.ranks = 1; setup.ranks <= 2; setup.ranks++) {
        make_job(&setup, &job);
        CHECK_OK(comm_testing_threads(setup.ranks, NULL, train_overscaled, &job));
        release_job(&job);
    }
    device.face->close(device.device);
}

/* With one group of gradients, or several. */
static void compare_ranks(struct setup *setup, struct exec_device *device,
                          struct dataset *dataset)
{
    setup->rows[1] = setup->rows[2] = 0;
    const struct outcome alone = run_on(setup, 1, 1, dataset);

    for (int ranks = 2; ranks <= RANKS_MAX; ranks++) {
        setup->rows[2] = ranks == 2 ? setup->shards : 0; /* the others: as equal as can be */
        setup->rows[1] = 1;
        device->group_bytes = ranks == 3 ? 0 : 4096;
        const struct outcome together = run_on(setup, ranks, 1, dataset);
        check_same(setup, &alone, &together);
    }
}

/* Ranks that share a device, or several, each update a part; where norms of parameters are needed, all of it: the bits of one rank.
 * In bf16 parameters are f32, or drawn. */
static void test_ranks_on_a_device_give_the_bits_of_one(void)
{
    static const struct {
        const char *model, *optimizer;
        float max_norm;
        int64_t shards;
        enum dtype precision;
    } cases[] = {
        { "mlp", "sgd", 0, 4, DTYPE_F32 },       { "mlp", "adamw", 0, 6, DTYPE_BF16 },
        { "cnn", "adam", 0, 4, DTYPE_F32 },      { "normed", "sgd", 0, 12, DTYPE_BF16 },
        { "narrow", "sgd", 0, 8, DTYPE_F32 },    { "mlp", "sgd", 0.5F, 4, DTYPE_F32 },
        { "mlp", "lars", 0.5F, 6, DTYPE_F32 },   { "normed", "lamb", 0.5F, 4, DTYPE_BF16 },
        { "normed", "lamb", 0, 6, DTYPE_F32 },   { "normed", "sgd", 0, 4, DTYPE_F16 },
        { "mlp", "lamb", 0.5F, 6, DTYPE_F16 },   { "mlp", "adam", 0.5F, 4, DTYPE_F16 },
        { "narrow", "sgd", 0.1F, 8, DTYPE_F32 }, { "normed", "adamw", 0.1F, 6, DTYPE_BF16 },
    };
    struct exec_device device;

    open_cpu(&device);
    struct dataset *dataset = open_samples(7, 200);
    const struct device_face *cpu = device.face;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct setup setup = usual;
        setup.model = cases[i].model;
        setup.optimizer = cases[i].optimizer;
        setup.max_norm = cases[i].max_norm;
        setup.shards = cases[i].shards;
        setup.device = &device;
        device.face = cases[i].precision == DTYPE_F32 ? cpu : device_testing_late(true);
        device.precision = cases[i].precision;
        setup.n_steps = 11; /* more than are under way */
        for (int s = 5; s < setup.n_steps; s++)
            setup.samples[s] = 24 - s;
        for (int draws = 0; draws <= (cases[i].precision == DTYPE_BF16); draws++) {
            device.draws = draws;
            compare_ranks(&setup, &device, dataset);
        }
    }
    dataset_close(dataset);
    device.face->close(device.device);
}

struct processes {
    struct job job;
    char hash[65]; /* of one rank */
    int lost_at;   /* rank 1 dies in this step; 0: nobody does */
};

static void die_at(void *arg, const char *point)
{
    int *left = arg;

    if (strcmp(point, "step") == 0 && --*left == 0)
        (void)raise(SIGKILL);
}

/* Memory of processes is lost with them: they compare. */
static enum status run_process(struct comm *comm, void *arg)
{
    struct processes *processes = arg;
    struct exec_config config = config_of(&processes->job, comm);
    struct outcome *out = &processes->job.outcomes[0];
    int left = processes->lost_at;
    struct exec *exec;

    config.at_meeting = comm_rank(comm) == 1 && left ? die_at : NULL;
    config.at_meeting_arg = &left;
    TRY(exec_create(&config, &exec));
    enum status status = train(&processes->job, exec, comm, out);
    exec_destroy(exec);
    TRY(status);
    return strcmp(out->hash, processes->hash) == 0
               ? STATUS_OK
               : FAIL(STATUS_MISMATCH, "%s is not %s", out->hash, processes->hash);
}

/* They open each other's memory; when one is gone the others do not wait for it, and name it. */
static void test_processes_on_a_device_give_the_bits_of_one(void)
{
    static struct processes processes;
    struct exec_device device;
    struct setup setup = usual;

    open_cpu(&device);
    setup.optimizer = "adam";
    setup.shards = 4;
    setup.device = &device;
    setup.n_steps = 10;
    for (int s = 5; s < setup.n_steps; s++)
        setup.samples[s] = 24;
    const struct outcome alone = run_on(&setup, 1, 1, NULL);
    memcpy(processes.hash, alone.hash, sizeof processes.hash);
    for (int ranks = 2; ranks <= RANKS_MAX; ranks += 2) {
        setup.ranks = ranks;
        make_job(&setup, &processes.job);
        processes.lost_at = 0;
        CHECK_OK(comm_testing_processes(ranks, NULL, run_process, &processes));
        processes.lost_at = 4;
        const double began = clock_seconds();
        CHECK_STATUS(STATUS_PEER_LOST,
                     comm_testing_processes(ranks, NULL, run_process, &processes));
        CHECK_MESSAGE("killed by signal 9");
        CHECK(clock_seconds() - began < 4); /* after five seconds they would have been killed */
        release_job(&processes.job);
    }
    device.face->close(device.device);
}

/* Each rank has one shard then. */
static void test_ranks_on_a_device_exchange_statistics(void)
{
    struct exec_device device;

    open_cpu(&device);
    for (int ranks = 1; ranks <= RANKS_MAX; ranks++) {
        struct setup setup = usual;
        setup.model = "normed";
        setup.shards = ranks;
        setup.sync_norm = true;
        const struct outcome lanes = run_on(&setup, ranks, 1, NULL);
        setup.device = &device;
        device.group_bytes = ranks == 3 ? 0 : 4096;
        const struct outcome there = run_on(&setup, ranks, 1, NULL);
        check_same(&setup, &lanes, &there);
    }
    device.face->close(device.device);
}

static enum status refuse_device(struct comm *comm, void *arg)
{
    const struct exec_config config = config_of(arg, comm);
    struct exec *exec;

    CHECK_STATUS(config.threads > 1 ? STATUS_USAGE : STATUS_UNSUPPORTED,
                 exec_create(&config, &exec));
    return STATUS_OK;
}

/* Shards that one rank runs one after the other cannot exchange statistics. */
static void test_what_a_device_cannot_run_is_refused(void)
{
    static struct job job;
    struct exec_device device;
    struct setup setup = usual;

    open_cpu(&device);
    setup.device = &device;
    setup.shards = 2;
    setup.ranks = 2;
    setup.threads = 1;
    setup.compress = "topk";
    make_job(&setup, &job);
    CHECK_OK(comm_testing_nodes(2, 2, NULL, refuse_device, &job));
    release_job(&job);
    setup.compress = NULL;
    setup.ranks = 1;
    setup.model = "normed";
    setup.sync_norm = true;
    setup.threads = 2;
    make_job(&setup, &job);
    CHECK_OK(comm_testing_threads(1, NULL, refuse_device, &job));
    release_job(&job);
    device.face->close(device.device);
}

static void draw_rows(struct rng *rng, struct setup *setup)
{
    for (int r = 1; r < setup->ranks; r++) {
        const int64_t left = setup->shards - setup->rows[r - 1] - (setup->ranks - r);
        setup->rows[r] = setup->rows[r - 1] + 1 + (int64_t)rng_below(rng, (uint64_t)left);
    }
    setup->rows[setup->ranks] = setup->shards;
}

/* Also with batch norm, and with factors and columns that belong to lanes. */
static void test_bits_do_not_depend_on_how_many_shards_ranks_have(struct rng *rng)
{
    static const char *const models[] = { "mlp", "normed" };
    struct setup setup = usual;

    setup.model = models[rng_below(rng, 2)];
    setup.shards = 2 + (int64_t)rng_below(rng, 10);
    setup.batch = setup.shards * 3;
    for (int s = 0; s < setup.n_steps; s++)
        setup.samples[s] = 1 + (int64_t)rng_below(rng, (uint64_t)setup.batch);
    const struct outcome alone = run_on(&setup, 1, 1, NULL);

    setup.ranks = 2 + (int)rng_below(rng, setup.shards < RANKS_MAX ? (uint64_t)setup.shards - 1
                                                                   : RANKS_MAX - 1);
    setup.threads = 1 + (int)rng_below(rng, 3);
    setup.nodes = 1 + (int)rng_below(rng, (uint64_t)setup.ranks);
    setup.zero = (int)rng_below(rng, 4);
    setup.factors = setup.zero == 0 && rng_below(rng, 2);
    draw_rows(rng, &setup);
    const struct outcome other = run(&setup, NULL);
    check_same(&setup, &alone, &other);
}

static enum status refuse_rows(struct comm *comm, void *arg)
{
    const struct exec_config config = config_of(arg, comm);
    struct exec *exec;

    CHECK_STATUS(STATUS_USAGE, exec_create(&config, &exec));
    CHECK_MESSAGE("not given to 2 ranks in rows");
    return STATUS_OK;
}

static void test_rows_of_shards_that_do_not_fit_are_refused(void)
{
    static const int64_t wrong[][3] = { { 1, 2, 4 }, { 0, 0, 4 }, { 0, 4, 4 }, { 0, 2, 5 } };
    static struct job job;
    struct setup setup = usual;

    setup.shards = 4;
    setup.ranks = 2;
    setup.threads = 1;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        memcpy(setup.rows, wrong[i], sizeof wrong[i]);
        make_job(&setup, &job);
        CHECK_OK(comm_testing_threads(2, NULL, refuse_rows, &job));
        release_job(&job);
    }
}

static void test_any_setup_gives_the_same_bits_on_any_ranks(struct rng *rng)
{
    static const char *const models[] = { "mlp", "cnn" };
    static const char *const optimizers[] = { "sgd", "adam", "adamw", "lars", "lamb" };
    const int64_t shards = 1 + (int64_t)rng_below(rng, 9);
    struct setup setup = {
        .model = models[rng_below(rng, 8) == 0],
        .optimizer = optimizers[rng_below(rng, 5)],
        .max_norm = rng_below(rng, 2) ? 0.5F : 0,
        .batch = shards * (1 + (int64_t)rng_below(rng, 3)),
        .shards = shards,
        .bucket_bytes = 4096 << rng_below(rng, 8),
        .n_steps = 1 + (int)rng_below(rng, 5),
    };
    for (int s = 0; s < setup.n_steps; s++)
        setup.samples[s] = rng_below(rng, 2)
                               ? setup.batch
                               : 1 + (int64_t)rng_below(rng, (uint64_t)setup.batch);
    const struct outcome alone = run_on(&setup, 1, 1, NULL);

    setup.ranks = 1 + (int)rng_below(rng, shards < RANKS_MAX ? (uint64_t)shards : RANKS_MAX);
    setup.threads = 1 + (int)rng_below(rng, 3);
    setup.zero = (int)rng_below(rng, 4);
    setup.factors = setup.zero == 0 && rng_below(rng, 2);
    setup.recompute = rng_below(rng, 2);
    setup.nodes = 1 + (int)rng_below(rng, (uint64_t)setup.ranks);
    setup.leaders = rng_below(rng, 2);
    setup.flying_bytes = rng_below(rng, 2) ? 1 + rng_below(rng, 4096) : 0;
    const struct outcome other = run(&setup, NULL);
    check_same(&setup, &alone, &other);
}

static void test_weights_do_not_depend_on_nodes(void)
{
    static const struct {
        const char *model, *optimizer;
        float max_norm;
        bool factors;
    } cases[] = {
        { "mlp", "adamw", 0, false },
        { "mlp", "sgd", 0.5F, false }, /* squares are exchanged */
        { "mlp", "adam", 0, true },    /* so are factors */
        { "normed", "sgd", 0, false }, /* has averages */
        { "mlp", "lars", 0, false },   /* norms of each parameter */
        { "mlp", "lamb", 0.5F, false } /* and of directions */
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct setup setup = usual;
        setup.model = cases[i].model;
        setup.optimizer = cases[i].optimizer;
        setup.max_norm = cases[i].max_norm;
        setup.factors = cases[i].factors;
        setup.shards = 6;
        const struct outcome alone = run_on(&setup, 1, 1, NULL);
        for (int ranks = 2; ranks <= RANKS_MAX; ranks++) {
            for (setup.nodes = 2; setup.nodes <= ranks; setup.nodes++) {
                setup.zero = setup.factors ? 0 : (ranks + setup.nodes) % 4;
                setup.flying_bytes = setup.nodes % 2 == 0 ? 64 : 0;
                const struct outcome other = run_on(&setup, ranks, 1 + ranks % 2, NULL);
                check_same(&setup, &alone, &other);
            }
        }
        setup.nodes = 2; /* of two ranks each, of which one talks */
        setup.leaders = true;
        const struct outcome led = run_on(&setup, 4, 1, NULL);
        check_same(&setup, &alone, &led);
    }
}

/* Rounds of several shards, lanes with fewer, threads that share an op, several ranks a node. */
static void test_zero_gives_the_bits_of_one_rank(void)
{
    static const struct {
        const char *model, *optimizer;
        float max_norm;
        int64_t shards;
        int ranks, threads, nodes;
    } cases[] = {
        { "mlp", "adamw", 0, 4, 4, 1, 4 },    /* one shard a lane: nobody may run ahead */
        { "cnn", "adam", 0, 4, 2, 1, 2 },     /* two rounds */
        { "mlp", "sgd", 0.5F, 7, 3, 2, 3 },   /* lanes of one round, and of two */
        { "normed", "sgd", 0, 4, 4, 2, 2 },   /* two ranks a node; averages */
        { "mlp", "lamb", 0.5F, 3, 3, 2, 3 },  /* threads share an op */
        { "mlp", "lars", 0, 8, 4, 2, 3 },     /* nodes of different sizes: one rail */
        { "normed", "adamw", 0, 4, 4, 1, 1 }, /* one machine */
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct setup setup = usual;
        setup.model = cases[i].model;
        setup.optimizer = cases[i].optimizer;
        setup.max_norm = cases[i].max_norm;
        setup.shards = cases[i].shards;
        setup.batch = cases[i].shards * 3;
        setup.samples[0] = setup.samples[1] = setup.samples[4] = setup.batch;
        setup.samples[2] = setup.batch - 2;
        setup.samples[3] = 2; /* some shards have none, and so do some nodes */
        const struct outcome alone = run_on(&setup, 1, 1, NULL);
        setup.nodes = cases[i].nodes;
        for (setup.zero = 1; setup.zero <= 3; setup.zero++) {
            const struct outcome other = run_on(&setup, cases[i].ranks, cases[i].threads, NULL);
            check_same(&setup, &alone, &other);
        }
    }
}

/* Whole pages of a part of a vector that are resident. */
static size_t resident_pages(float *vector, size_t begin, size_t end)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const uintptr_t first = ((uintptr_t)(vector + begin) + page - 1) / page * page;
    const uintptr_t last = (uintptr_t)(vector + end) / page * page;
    unsigned char is_there[1024];
    size_t count = 0;

    CHECK(first < last && (last - first) / page <= sizeof is_there);
    CHECK(mincore((void *)first, last - first, is_there) == 0);
    for (size_t i = 0; i < (last - first) / page; i++)
        count += is_there[i] & 1;
    return count;
}

/* Between steps a node has its part of parameters and state, and no gradients; rank 0 gets all of them when it
 * asks, and forgets them again. Bucket by bucket: the whole pages between parts. */
static enum status look_at_memory(struct comm *comm, void *arg)
{
    const struct job *job = arg;
    const struct exec_config config = config_of(job, comm);
    const int zero = job->setup->zero;
    struct outcome outcome = { 0 };
    struct exec *exec;

    TRY(exec_create(&config, &exec));
    TRY(train(job, exec, comm, &outcome));
    CHECK(exec_is_in_parts(exec) == (zero == 3));
    TRY(exec_settle(exec));
    for (int b = 0; b < exec->buckets.count; b++)
        exec_forget_group(exec, b);  /* what train() has collected */
    release_summed(&exec->lanes[0]); /* what came too late for its step */
    for (int b = 0; b < exec->buckets.count; b++) {
        const size_t begin = (size_t)exec->buckets.begin[b];
        const size_t end = (size_t)exec->buckets.begin[b + 1];
        if (end - begin < (size_t)6 * TREE_STRETCH) /* too small to have pages in the middle */
            continue;
        const size_t half = begin + (end - begin) / 2;
        const bool is_first = exec->node == 0;
        const size_t own = resident_pages(exec->param, is_first ? begin : half + TREE_STRETCH,
                                          is_first ? half - TREE_STRETCH : end);
        const size_t other = resident_pages(exec->param, is_first ? half + TREE_STRETCH : begin,
                                            is_first ? end : half - TREE_STRETCH);
        const size_t state =
            resident_pages(exec->state[0], is_first ? half + TREE_STRETCH : begin,
                           is_first ? end : half - TREE_STRETCH);
        const size_t gradients = resident_pages(exec->lanes[0].gradients, begin, end);
        CHECK(own > 0);
        CHECK(zero == 1 ? gradients > 0 : gradients == 0);
        CHECK(zero == 3 ? other == 0 : other > 0);
        CHECK_INT(0, state);
    }
    TRY(comm_barrier(comm));
    exec_destroy(exec);
    return STATUS_OK;
}

static void test_memory_is_there_only_while_it_is_needed(void)
{
    static struct job job;

    for (int zero = 1; zero <= 3; zero++) {
        struct setup setup = usual;
        setup.shards = setup.ranks = setup.nodes = 2;
        setup.threads = 1;
        setup.zero = zero;
        setup.optimizer = "adam";
        setup.bucket_bytes = 128 << 10;
        make_job(&setup, &job);
        CHECK_OK(comm_testing_nodes(2, 2, NULL, look_at_memory, &job));
        release_job(&job);
    }
}

/* All ranks have the same weights, whatever was left unsent; and the loss falls as it does without. */
static void test_compressed_gradients_train(void)
{
    static const char *const names[] = { "bf16", "int8", "topk:0.05", "onebit", "powersgd:2" };
    struct setup setup = usual;

    setup.shards = 4;
    setup.n_steps = STEPS_MAX;
    for (int s = 0; s < STEPS_MAX; s++)
        setup.samples[s] = setup.batch;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        setup.compress = names[i];
        for (setup.nodes = 2; setup.nodes <= 4; setup.nodes++) {
            setup.max_norm = setup.nodes == 3 ? 5 : 0;
            const struct outcome end = run_on(&setup, 4, 1, NULL);
            CHECK(end.steps[STEPS_MAX - 1].loss < 0.8 * end.steps[0].loss);
        }
    }
}

static void test_threads_share_ops_where_shards_are_few(void)
{
    struct setup setup = usual;

    setup.shards = 1;
    const struct outcome alone = run_on(&setup, 1, 1, NULL);
    const struct outcome shared = run_on(&setup, 1, 3, NULL);
    CHECK_INT(1, shared.lanes);
    check_same(&setup, &alone, &shared);

    setup.shards = 2;
    setup.model = "cnn";
    const struct outcome one_lane = run_on(&setup, 1, 1, NULL);
    const struct outcome lanes = run_on(&setup, 1, 2, NULL);
    const struct outcome ranks = run_on(&setup, 2, 2, NULL);
    CHECK_INT(2, lanes.lanes);
    CHECK_INT(1, ranks.lanes);
    check_same(&setup, &one_lane, &lanes);
    check_same(&setup, &one_lane, &ranks);
}

/* All forward, then all backward, each shard with an arena of its own. */
static void test_one_stage_by_a_schedule_gives_the_bits_of_shards_in_turn(void)
{
    static const char *const models[] = { "mlp", "cnn" };

    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        struct setup setup = usual;
        setup.model = models[i];
        setup.shards = 4;
        const struct outcome turns = run_on(&setup, 1, 1, NULL);
        setup.ordered = true;
        const struct outcome scheduled = run_on(&setup, 1, 2, NULL);
        CHECK_INT(1, scheduled.lanes);
        check_same(&setup, &turns, &scheduled);
    }
}

/* A norm that is never reached changes nothing, but gradients stay until all are known. */
static void test_gradients_that_pass_give_the_bits_of_those_that_stay(void)
{
    static const char *const models[] = { "mlp", "cnn", "normed" };

    for (int m = 0; m < 3; m++) {
        struct setup setup = usual;
        setup.model = models[m];
        setup.optimizer = m == 1 ? "adam" : "sgd";
        setup.shards = 1;
        const struct outcome passing = run_on(&setup, 1, 1, NULL);
        const struct outcome shared = run_on(&setup, 1, 2, NULL);
        check_same(&setup, &passing, &shared);
        setup.max_norm = 1e30F;
        const struct outcome staying = run_on(&setup, 1, 1, NULL);
        check_same(&setup, &passing, &staying);
    }
}

/* fc1.bias begins with 3, fc1.weight around -2. */
static enum status check_initial(struct comm *comm, void *arg)
{
    static float data[1 << 20];
    const struct exec_config config = config_of(arg, comm);
    struct exec *exec;

    TRY(exec_create(&config, &exec));
    CHECK_OK(exec_init_params(exec));
    for (int p = 0; p < exec_param_count(exec); p++) {
        const struct value *value = exec_param(exec, p);
        const int64_t count = shape_count(&value->shape);
        CHECK(count <= 1 << 20);
        exec_get(exec, p, -1, data);
        for (int64_t i = 0; i < count; i++) {
            CHECK(data[i] >= value->initial - value->init_bound);
            CHECK(data[i] <= value->initial + value->init_bound);
        }
        if (strcmp(value->name, "fc1.bias") == 0)
            CHECK(data[0] == 3 && data[count - 1] == 3);
        if (strcmp(value->name, "fc1.weight") == 0)
            CHECK(data[0] != data[1]);
    }
    exec_destroy(exec);
    return STATUS_OK;
}

static void test_parameters_begin_around_their_initial_value(void)
{
    static struct job job;
    struct setup setup = usual;

    setup.shards = setup.ranks = setup.threads = 1;
    make_job(&setup, &job);
    struct value *bias = graph_find_value(job.train, "fc1.bias");
    bias->initial = 3;
    bias->init_bound = 0;
    graph_find_value(job.train, "fc1.weight")->initial = -2;
    CHECK_OK(comm_testing_threads(1, NULL, check_initial, &job));
    release_job(&job);
}

static void test_training_learns(void)
{
    struct setup setup = usual;

    setup.shards = 4;
    setup.n_steps = STEPS_MAX;
    for (int s = 0; s < STEPS_MAX; s++)
        setup.samples[s] = setup.batch;
    const struct outcome end = run_on(&setup, 2, 1, NULL);
    CHECK(end.steps[0].loss > 1.2);
    CHECK(end.steps[STEPS_MAX - 1].loss < 0.7 * end.steps[0].loss);
    CHECK(end.steps[STEPS_MAX - 1].correct > end.steps[0].correct);
    CHECK_INT(setup.batch, end.steps[0].samples);
}

/* More sizes than there are plans kept, in any order. */
static void test_every_step_may_have_another_size(void)
{
    struct setup setup = usual;
    struct rng rng;

    setup.shards = 2;
    setup.n_steps = STEPS_MAX;
    for (uint64_t seed = 0; seed < 8; seed++) {
        rng_init(&rng, seed, 0);
        for (int s = 0; s < STEPS_MAX; s++)
            setup.samples[s] = 1 + (int64_t)rng_below(&rng, (uint64_t)setup.batch);
        const struct outcome alone = run_on(&setup, 1, 1, NULL);
        setup.factors = seed % 2;
        const struct outcome other = run_on(&setup, 2, 1, NULL);
        check_same(&setup, &alone, &other);
        setup.factors = false;
    }
}

/* Allocations of steps [from, n_steps) of all ranks together. */
static uint64_t allocations(const struct setup *setup, int from)
{
    static struct job job;

    make_job(setup, &job);
    job.count_from = from;
    CHECK_OK(comm_testing_threads(setup->ranks, NULL, run_rank, &job));
    release_job(&job);
    return job.outcomes[0].allocations;
}

static void test_nothing_is_allocated_after_the_first_step(void)
{
    static const char *const models[] = { "mlp", "cnn", "normed" };

    for (int m = 0; m < 3; m++) {
        for (int ranks = 1; ranks <= 2; ranks++) {
            for (int threads = 1; threads <= 2; threads++) {
                struct setup setup = usual;
                setup.model = models[m];
                setup.ranks = ranks;
                setup.threads = threads;
                setup.sync_norm = m == 2;
                setup.shards = setup.sync_norm ? ranks * threads : 4;
                setup.max_norm = threads == 2 ? 1 : 0;
                setup.factors = threads == 1;
                setup.n_steps = 11;
                for (int s = 0; s < setup.n_steps; s++)
                    setup.samples[s] = setup.batch;
                CHECK_INT(0, allocations(&setup, 1));
                /* After the first step of each shape. */
                for (int s = 0; s < setup.n_steps; s++)
                    setup.samples[s] = s % 2 ? 19 : setup.batch;
                CHECK_INT(0, allocations(&setup, 2));
            }
        }
    }
}

static void test_evaluation_gives_the_same_bits_on_any_ranks(void)
{
    static const int64_t counts[] = { 1, 100, 256, 391 };
    struct setup setup = usual;
    struct rng rng;

    rng_init(&rng, 5, 0);
    setup.shards = 4;
    setup.n_steps = 2;
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        const struct data_testing_set set = {
            .train = 4, .test = counts[i], .rows = SIDE, .columns = SIDE, .classes = CLASSES
        };
        struct dataset *dataset;

        data_testing_make(&rng, test_folder(), &set);
        CHECK_OK(dataset_open(test_folder(), DATASET_TEST, &dataset));
        setup.model = i == 3 ? "cnn" : "mlp";
        const struct outcome alone = run_on(&setup, 1, 1, dataset);
        CHECK_INT(counts[i], alone.evaluation.samples);
        CHECK(alone.evaluation.loss > 0 && alone.evaluation.correct <= (double)counts[i]);
        for (int ranks = 1; ranks <= 3; ranks++) {
            for (setup.nodes = 1; setup.nodes <= ranks; setup.nodes++) {
                setup.zero = ranks == 3 ? 3 : 0;
                const struct outcome other = run_on(&setup, ranks, 2, dataset);
                check_same(&setup, &alone, &other);
            }
        }
        setup.nodes = 1;
        setup.zero = 0;
        dataset_close(dataset);
    }
}

/* Counting by sorting: classes in the order of their logits, the earlier first where they are equal. */
static void sort_classes(const float *logits, int *order)
{
    for (int c = 0; c < CLASSES; c++) {
        int at = c;
        for (; at > 0 && logits[order[at - 1]] < logits[c]; at--)
            order[at] = order[at - 1];
        order[at] = c;
    }
}

enum { COUNTED = 300 }; /* samples */

static enum status count_plainly(struct comm *comm, void *arg)
{
    const struct job *job = arg;
    const struct exec_config config = config_of(job, comm);
    const int64_t count = dataset_count(job->dataset);
    int64_t confusion[CLASSES * CLASSES] = { 0 }, top5 = 0, right = 0;
    static float logits[EXEC_PREDICT * CLASSES], kept[COUNTED * CLASSES];
    struct exec_result result;
    struct exec *exec;
    int classes;

    TRY(exec_create(&config, &exec));
    enum status status = job->count_from ? exec_init_params(exec) : STATUS_OK; /* else zeros */
    if (status == STATUS_OK && exec_confusion(exec, &classes))
        status = FAIL(STATUS_MISMATCH, "something is counted before anything was evaluated");
    for (int twice = 0; twice < 2 && status == STATUS_OK; twice++) {
        exec_keep_outputs(exec, twice ? NULL : kept);
        status = exec_evaluate(exec, dataset_as_source(job->dataset), &result);
    }
    for (int64_t i = 0; i < count && status == STATUS_OK; i++) {
        const int64_t row = i % EXEC_PREDICT;
        int64_t index[EXEC_PREDICT];
        int order[CLASSES];

        if (row == 0) {
            const int64_t rows = count - i < EXEC_PREDICT ? count - i : EXEC_PREDICT;
            for (int64_t r = 0; r < rows; r++)
                index[r] = i + r;
            status = exec_predict(exec, dataset_as_source(job->dataset), index, rows, logits);
        }
        if (memcmp(logits + row * CLASSES, kept + i * CLASSES, CLASSES * sizeof *kept) != 0)
            status = FAIL(STATUS_MISMATCH, "the output kept of sample %lld is another",
                          (long long)i);
        const int32_t label = dataset_label(job->dataset, i);
        sort_classes(logits + row * CLASSES, order);
        confusion[label * CLASSES + order[0]]++;
        right += order[0] == label;
        for (int place = 0; place < 5; place++)
            top5 += order[place] == label;
    }
    const int64_t *counted = exec_confusion(exec, &classes);
    if (status == STATUS_OK &&
        (classes != CLASSES || memcmp(counted, confusion, sizeof confusion) != 0 ||
         result.top5 != top5 || result.correct != (double)right))
        status =
            FAIL(STATUS_MISMATCH, "%lld and %lld of the first five, %g and %lld right",
                 (long long)result.top5, (long long)top5, result.correct, (long long)right);
    exec_destroy(exec);
    return status;
}

static void test_answers_are_counted_as_a_plain_count_does(void)
{
    struct setup setup = usual;
    static struct job job;

    struct dataset *dataset = open_samples(6, COUNTED);
    setup.shards = 4;
    setup.ranks = 1;
    setup.threads = 2;
    for (int m = 0; m < 2; m++) {
        setup.model = m ? "cnn" : "mlp";
        make_job(&setup, &job);
        job.dataset = dataset;
        for (job.count_from = 0; job.count_from < 2; job.count_from++)
            CHECK_OK(comm_testing_threads(1, NULL, count_plainly, &job));
        release_job(&job);
    }
    dataset_close(dataset);
}

static enum status reconstruct(struct comm *comm, void *arg)
{
    const struct job *job = arg;
    const struct exec_config config = config_of(job, comm);
    const int64_t index[] = { 2, 0 };
    float first[PIXELS], both[2 * PIXELS];
    struct exec *exec;
    int classes;

    TRY(exec_create(&config, &exec));
    enum status status = exec_init_params(exec);
    if (status == STATUS_OK)
        status = exec_predict(exec, dataset_as_source(job->dataset), index, 2, both);
    if (status == STATUS_OK)
        status = exec_predict(exec, dataset_as_source(job->dataset), index + 1, 1, first);
    if (status == STATUS_OK && memcmp(first, both + PIXELS, sizeof first) != 0)
        status = FAIL(STATUS_MISMATCH, "a sample's output depends on its neighbours");
    if (status == STATUS_OK && (exec_confusion(exec, &classes) || classes))
        status = FAIL(STATUS_MISMATCH, "a model without classes has some");
    exec_destroy(exec);
    return status;
}

static void test_a_model_without_classes_trains_and_evaluates(void)
{
    struct setup setup = usual;
    static struct job job;

    struct dataset *dataset = open_samples(7, 200);
    setup.model = "narrow";
    setup.shards = 4;
    setup.n_steps = STEPS_MAX;
    for (int s = 0; s < STEPS_MAX; s++)
        setup.samples[s] = setup.batch;
    const struct outcome alone = run_on(&setup, 1, 1, dataset);
    CHECK(alone.steps[STEPS_MAX - 1].loss < 0.95 * alone.steps[0].loss);
    CHECK(alone.evaluation.loss > 0 && alone.evaluation.correct == 0);
    CHECK_INT(0, alone.evaluation.top5);
    for (int factors = 0; factors < 2; factors++) {
        setup.factors = factors;
        const struct outcome other = run_on(&setup, 2, 2, dataset);
        check_same(&setup, &alone, &other);
    }
    setup.ranks = setup.threads = 1;
    make_job(&setup, &job);
    job.dataset = dataset;
    CHECK_OK(comm_testing_threads(1, NULL, reconstruct, &job));
    release_job(&job);
    dataset_close(dataset);
}

static void test_samples_of_another_shape_are_refused(void)
{
    const struct data_testing_set set = {
        .train = 4, .test = 200, .rows = SIDE - 1, .columns = SIDE, .classes = CLASSES
    };
    struct setup setup = usual;
    static struct job job;
    struct dataset *dataset;
    struct rng rng;

    rng_init(&rng, 5, 0);
    data_testing_make(&rng, test_folder(), &set);
    CHECK_OK(dataset_open(test_folder(), DATASET_TEST, &dataset));
    setup.shards = 4;
    setup.ranks = 2;
    setup.threads = 1;
    make_job(&setup, &job);
    job.dataset = dataset;
    CHECK_STATUS(STATUS_MISMATCH, comm_testing_threads(2, NULL, run_rank, &job));
    CHECK_MESSAGE("samples are 1x7x8, the model takes 1x8x8");
    release_job(&job);
    dataset_close(dataset);
}

/* A rank's own number as the parameter's contents, set by rank 0 and read by all. */
static enum status set_and_get(struct comm *comm, void *arg)
{
    struct job *job = arg;
    const struct exec_config config = config_of(job, comm);
    struct exec *exec;
    enum { LARGEST = 250 * 100 }; /* fc2.weight */
    static float plain[LARGEST], back[RANKS_MAX][LARGEST];
    float *mine = back[comm_rank(comm)];
    bool same = true;

    TRY(exec_create(&config, &exec));
    enum status status = STATUS_OK;
    for (int p = 0; p < exec_param_count(exec) && status == STATUS_OK; p++) {
        const int64_t count = shape_count(&exec_param(exec, p)->shape);
        for (int state = -1; state < exec_state_count(exec, 0) && status == STATUS_OK;
             state++) {
            if (comm_rank(comm) == 0) {
                for (int64_t i = 0; i < count; i++)
                    plain[i] = (float)(i + 7 * p + 3 * state);
                exec_set(exec, p, state, plain);
            }
            status = exec_publish(exec);
            exec_get(exec, p, state, mine);
            for (int64_t i = 0; i < count; i++)
                same = same && mine[i] == (float)(i + 7 * p + 3 * state);
            if (status == STATUS_OK)
                status = exec_settle(exec); /* before rank 0 sets the next */
        }
    }
    if (status == STATUS_OK && !same)
        status = FAIL(STATUS_MISMATCH, "what was set is not what was got");
    exec_destroy(exec);
    return status;
}

static void test_what_one_rank_sets_all_ranks_get(void)
{
    struct setup setup = usual;
    static struct job job;

    setup.optimizer = "adam";
    setup.shards = 4;
    setup.ranks = 2;
    setup.threads = 1;
    make_job(&setup, &job);
    CHECK_OK(comm_testing_threads(2, NULL, set_and_get, &job));
    release_job(&job);
}

static enum status create_only(struct comm *comm, void *arg)
{
    const struct job *job = arg;
    const struct exec_config config = config_of(job, comm);
    struct exec *exec;
    struct strbuf text;

    TRY(exec_create(&config, &exec));
    strbuf_init(&text, 1 << 16);
    enum status status = exec_print_plan(exec, 3, &text);
    if (status == STATUS_OK && !strstr(text.text, "linear 3x64 250x64 250 relu"))
        status = FAIL(STATUS_MISMATCH, "the plan is %s", text.text);
    strbuf_release(&text);
    if (exec_memory(exec).arena == 0 || exec_memory(exec).shared == 0)
        status = FAIL(STATUS_MISMATCH, "no memory is counted");
    exec_destroy(exec);
    return status;
}

static void test_a_plan_is_printed_a_kernel_a_line(void)
{
    struct setup setup = usual;
    static struct job job;

    setup.shards = 4;
    setup.ranks = setup.threads = 1;
    make_job(&setup, &job);
    CHECK_OK(comm_testing_threads(1, NULL, create_only, &job));
    release_job(&job);
}

static void test_a_graph_for_one_rank_is_refused_by_two(void)
{
    struct setup setup = usual;
    static struct job job;

    setup.shards = 4;
    setup.ranks = setup.threads = 1;
    make_job(&setup, &job);
    CHECK_STATUS(STATUS_MISMATCH, comm_testing_threads(2, NULL, create_only, &job));
    CHECK_MESSAGE("one rank");
    release_job(&job);
}

static void test_fewer_shards_than_ranks_are_refused(void)
{
    struct setup setup = usual;
    static struct job job;

    setup.shards = 2;
    setup.ranks = 2;
    setup.threads = 1;
    make_job(&setup, &job);
    CHECK_STATUS(STATUS_USAGE, comm_testing_threads(3, NULL, create_only, &job));
    CHECK_MESSAGE("--shards");
    release_job(&job);
}

/* A lane a shard, wherever the lanes are; two threads a lane make no difference, nor does --recompute. */
static void test_synchronized_batch_norm_does_not_depend_on_ranks(void)
{
    static const int64_t shards[] = { 1, 3, 4, 6 };

    for (size_t i = 0; i < sizeof shards / sizeof *shards; i++) {
        struct setup setup = usual;
        setup.model = "normed";
        setup.shards = shards[i];
        const struct outcome apart = run_on(&setup, 1, 1, NULL);
        setup.sync_norm = true;
        setup.max_norm = shards[i] == 3 ? 0.5F : 0;
        const struct outcome alone = run_on(&setup, 1, (int)shards[i], NULL);
        CHECK(shards[i] == 3 || fabs(alone.steps[1].loss - apart.steps[1].loss) < 0.5);
        CHECK(strcmp(alone.hash, apart.hash) != 0);
        for (int ranks = 1; ranks <= RANKS_MAX; ranks++) {
            if (shards[i] % ranks)
                continue;
            for (int more = 1; more <= 2; more++) {
                setup.recompute = more == 2;
                setup.nodes = more == 2 && ranks > 1 ? 2 : 1;
                setup.zero = more == 2 ? 3 : 0;
                const struct outcome other =
                    run_on(&setup, ranks, more * (int)(shards[i] / ranks), NULL);
                CHECK_INT(shards[i] / ranks, other.lanes);
                check_same(&setup, &alone, &other);
            }
        }
    }
}

static enum status evaluate_without_steps(struct comm *comm, void *arg)
{
    const struct job *job = arg;
    struct exec_config config = config_of(job, comm);
    struct exec_result result;
    struct exec *exec;

    config.batch = 0;
    config.shards = 1; /* not those of the training graph */
    TRY(exec_create(&config, &exec));
    enum status status = exec_init_params(exec);
    if (status == STATUS_OK)
        status = exec_evaluate(exec, dataset_as_source(job->dataset), &result);
    exec_destroy(exec);
    CHECK(status != STATUS_OK || result.samples == dataset_count(job->dataset));
    return status;
}

/* As tutti eval does, with graphs that give columns to lanes or let shards meet. */
static void test_what_only_evaluates_needs_no_batch(void)
{
    const struct data_testing_set set = {
        .train = 8, .test = 40, .rows = SIDE, .columns = SIDE, .classes = CLASSES
    };
    struct dataset *dataset;
    static struct job job;
    struct rng rng;

    rng_init(&rng, 5, 5);
    data_testing_make(&rng, test_folder(), &set);
    CHECK_OK(dataset_open(test_folder(), DATASET_TEST, &dataset));
    for (int sync_norm = 0; sync_norm < 2; sync_norm++) {
        struct setup setup = usual;
        setup.model = sync_norm ? "normed" : "mlp";
        setup.sync_norm = sync_norm;
        setup.factors = true;
        setup.shards = 4;
        setup.ranks = setup.threads = 1;
        make_job(&setup, &job);
        job.dataset = dataset;
        CHECK_OK(comm_testing_threads(1, NULL, evaluate_without_steps, &job));
        release_job(&job);
    }
    dataset_close(dataset);
}

static void test_several_shards_a_lane_cannot_exchange_statistics(void)
{
    struct setup setup = usual;
    static struct job job;

    setup.model = "normed";
    setup.sync_norm = true;
    setup.shards = 6;
    setup.ranks = setup.threads = 2;
    make_job(&setup, &job);
    CHECK_STATUS(STATUS_USAGE, comm_testing_threads(2, NULL, create_only, &job));
    CHECK_MESSAGE("use --shards 4");
    release_job(&job);
}

const struct test tests[] = {
    { .name = "weights do not depend on ranks and threads",
      .run = test_weights_do_not_depend_on_ranks_and_threads },
    { .name = "a device gives the bits of lanes",
      .run = test_a_device_gives_the_bits_of_lanes },
    { .name = "late streams give the bits of prompt ones",
      .run = test_late_streams_give_the_bits_of_prompt_ones },
    { .name = "a device computes in 16 bits", .run = test_a_device_computes_in_16_bits },
    { .name = "steps without finite gradients are skipped",
      .run = test_steps_without_finite_gradients_are_skipped },
    { .name = "ranks on a device give the bits of one",
      .run = test_ranks_on_a_device_give_the_bits_of_one },
    { .name = "ranks on a device exchange statistics",
      .run = test_ranks_on_a_device_exchange_statistics },
    { .name = "processes on a device give the bits of one",
      .run = test_processes_on_a_device_give_the_bits_of_one },
    { .name = "what a device cannot run is refused",
      .run = test_what_a_device_cannot_run_is_refused },
    { .name = "any setup gives the same bits on any ranks",
      .property = test_any_setup_gives_the_same_bits_on_any_ranks },
    { .name = "weights do not depend on nodes", .run = test_weights_do_not_depend_on_nodes },
    { .name = "zero gives the bits of one rank", .run = test_zero_gives_the_bits_of_one_rank },
    { .name = "memory is there only while it is needed",
      .run = test_memory_is_there_only_while_it_is_needed },
    { .name = "bits do not depend on how many shards ranks have",
      .property = test_bits_do_not_depend_on_how_many_shards_ranks_have },
    { .name = "rows of shards that do not fit are refused",
      .run = test_rows_of_shards_that_do_not_fit_are_refused },
    { .name = "compressed gradients train", .run = test_compressed_gradients_train },
    { .name = "one stage by a schedule gives the bits of shards in turn",
      .run = test_one_stage_by_a_schedule_gives_the_bits_of_shards_in_turn },
    { .name = "threads share ops where shards are few",
      .run = test_threads_share_ops_where_shards_are_few },
    { .name = "gradients that pass give the bits of those that stay",
      .run = test_gradients_that_pass_give_the_bits_of_those_that_stay },
    { .name = "parameters begin around their initial value",
      .run = test_parameters_begin_around_their_initial_value },
    { .name = "training learns", .run = test_training_learns },
    { .name = "every step may have another size",
      .run = test_every_step_may_have_another_size },
    { .name = "nothing is allocated after the first step",
      .run = test_nothing_is_allocated_after_the_first_step },
    { .name = "evaluation gives the same bits on any ranks",
      .run = test_evaluation_gives_the_same_bits_on_any_ranks },
    { .name = "answers are counted as a plain count does",
      .run = test_answers_are_counted_as_a_plain_count_does },
    { .name = "a model without classes trains and evaluates",
      .run = test_a_model_without_classes_trains_and_evaluates },
    { .name = "samples of another shape are refused",
      .run = test_samples_of_another_shape_are_refused },
    { .name = "what one rank sets all ranks get",
      .run = test_what_one_rank_sets_all_ranks_get },
    { .name = "a plan is printed a kernel a line",
      .run = test_a_plan_is_printed_a_kernel_a_line },
    { .name = "a graph for one rank is refused by two",
      .run = test_a_graph_for_one_rank_is_refused_by_two },
    { .name = "fewer shards than ranks are refused",
      .run = test_fewer_shards_than_ranks_are_refused },
    { .name = "synchronized batch norm does not depend on ranks",
      .run = test_synchronized_batch_norm_does_not_depend_on_ranks },
    { .name = "what only evaluates needs no batch",
      .run = test_what_only_evaluates_needs_no_batch },
    { .name = "several shards a lane cannot exchange statistics",
      .run = test_several_shards_a_lane_cannot_exchange_statistics },
    { 0 },
};
