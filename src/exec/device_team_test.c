/* SPDX-License-Identifier: MIT */
/* device_team_test.c - ranks on devices that send each other what they need, on one machine and several: the bits of one rank.
 *
 * Devices are the CPU's; ranks are threads or processes, and nodes pretended machines.
 */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/sha256.h"
#include "base/test.h"
#include "comm/comm_testing.h"
#include "data/dataset.h"
#include "exec/exec.h"
#include "exec/exec_testing.h"
#include "graph/build.h"
#include "kernel/device_testing.h"
#include "model/model.h"
#include "pass/strategy.h"
#include "transport/launch.h"

enum { SIDE = 8, PIXELS = SIDE * SIDE, CLASSES = 6, LENGTH = 9, WORDS = 150 };
enum { STEPS = 11 /* more than are under way */, RANKS_MAX = 4, SAID = 4 };

struct setup {
    const char *model, *optimizer;
    float max_norm;
    int64_t shards;
    int ranks, nodes;
    bool sync_norm;
    struct exec_device device;
    int lost_at; /* rank 1 dies in this step; 0: nobody does */
    int resume_at; /* before this step everything goes through an executor that is made anew; 0: never */
};

struct outcome {
    char hash[65], state_hash[65]; /* the latter of rank 0 */
    struct exec_result steps[STEPS], evaluation;
    uint32_t heard; /* by all steps */
};

struct job {
    const struct setup *setup;
    struct optim_config optim;
    struct graph *train, *eval;
    struct kernel_choices *choices;
    const struct dataset *dataset; /* NULL: no evaluation */
    char hash[65];                 /* that processes compare with */
    struct outcome outcomes[RANKS_MAX];
};

/* Models ------------------------------------------------------------------------------------- */

static void build_normed(struct graph *graph, const struct model_config *config,
                         struct value *input, struct value *target)
{
    const struct build_conv conv = { .channels = 5, .kernel = 3, .stride = 2, .pad = 1 };
    struct value *x = build_conv2d(graph, "conv", input, conv);

    x = build_relu(graph, "relu", build_batch_norm(graph, "bn", x, config->training));
    build_classifier_loss(graph, build_linear(graph, "fc", x, CLASSES), target);
}

/* Two tables, whose rows are marked. */
static void build_words(struct graph *graph, const struct model_config *config,
                        struct value *input, struct value *target)
{
    struct value *a = build_embedding_mean(graph, "a", input, config->vocab[0], 21);
    struct value *b = build_embedding_mean(graph, "b", input, config->vocab[0], 3);
    struct value *x = build_add(graph, "sum", build_linear(graph, "up", b, 21), a);

    build_classifier_loss(graph, build_linear(graph, "head", x, CLASSES), target);
}

static const struct model own[] = {
    { .name = "normed", .build = build_normed },
    { .name = "words", .task = MODEL_TEXT_CLASSES, .build = build_words },
};

static bool has_words(const struct setup *setup)
{
    return strcmp(setup->model, "words") == 0;
}

static struct graph *build(const struct setup *setup, bool training)
{
    const struct model *model = has_words(setup) ? &own[1]
                                : strcmp(setup->model, "normed") == 0
                                    ? &own[0]
                                    : model_find(setup->model);
    struct model_config config = model_defaults(model);
    struct graph *graph;

    config.sample = (struct shape){ 3, { 1, SIDE, SIDE } };
    config.classes = CLASSES;
    config.vocab[0] = WORDS;
    config.length[0] = LENGTH;
    config.training = training;
    config.batch = training ? 24 : 1;
    CHECK_OK(model_build(model, &config, &graph));
    return graph;
}

static void make_job(const struct setup *setup, struct job *job)
{
    struct pass_config config = { .batch = 24,
                                  .shards = setup->shards,
                                  .ranks = setup->ranks,
                                  .bucket_bytes = 4096,
                                  .sync_norm = setup->sync_norm };
    const struct pass_config whole = { .batch = 1, .shards = 1, .ranks = 1 };

    *job = (struct job){ .setup = setup };
    job->optim.optimizer = optim_find(setup->optimizer);
    job->optim.attrs = job->optim.optimizer->defaults;
    job->optim.attrs.max_norm = setup->max_norm;
    job->optim.schedule = (struct schedule){ .kind = SCHEDULE_CONSTANT, .lr = 0.03125 };
    config.optim = job->optim;
    job->train = build(setup, true);
    CHECK_OK(pass_run(job->train,
                      strategy_find(setup->ranks > 1 ? "multiworker" : "single")->passes,
                      &config, NULL));
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

/* A rank ------------------------------------------------------------------------------------- */

/* Whole steps, uneven ones, and some with fewer samples than shards. */
static int64_t samples_of(int step)
{
    static const int64_t some[] = { 24, 19, 3, 24, 1 };

    return some[step % 5];
}

/* Drawn from the sample's number, so the same for every cut. */
static void fill_sample(const struct setup *setup, int64_t number, int step, void *x,
                        int32_t *y)
{
    struct rng rng;

    rng_init(&rng, (uint64_t)number, (uint64_t)step);
    *y = (int32_t)rng_below(&rng, CLASSES);
    for (int i = 0; i < LENGTH && has_words(setup); i++)
        ((int32_t *)x)[i] = i > 5 ? -1 : (int32_t)rng_below(&rng, 1 + rng_below(&rng, WORDS));
    for (int i = 0; i < PIXELS && !has_words(setup); i++)
        ((float *)x)[i] = (float)rng_normal(&rng) + (float)(i % CLASSES == *y);
}

static enum status make_batch(const struct setup *setup, const struct exec *exec, int step,
                              struct batch *out)
{
    const int64_t samples = samples_of(step), first_shard = exec_first_shard(exec);
    const size_t each = 4 * (has_words(setup) ? LENGTH : PIXELS);
    const int64_t end =
        sampler_shard_begin(samples, setup->shards, first_shard + exec_shard_count(exec));

    *out = (struct batch){ .step = (uint64_t)step, .samples = samples, .weight = samples };
    out->length[0] = has_words(setup) ? LENGTH : 0;
    out->first = sampler_shard_begin(samples, setup->shards, first_shard);
    out->rows = end - out->first;
    TRY(mem_alloc((size_t)out->rows, each, &out->x));
    TRY(mem_alloc((size_t)out->rows, sizeof *out->y, &out->y));
    for (int64_t r = 0; r < out->rows; r++)
        fill_sample(setup, out->first + r, step, (char *)out->x + (size_t)r * each, &out->y[r]);
    return STATUS_OK;
}

static enum status run_step(const struct setup *setup, struct exec *exec, int step,
                            struct outcome *out)
{
    struct batch batch;

    TRY(make_batch(setup, exec, step, &batch));
    if (step == SAID && exec_first_shard(exec) > 0)
        exec_say(exec, 2);
    const enum status status = exec_step(exec, &batch, &out->steps[step]);
    out->heard |= out->steps[step].heard;
    mem_free(batch.x);
    mem_free(batch.y);
    return status;
}

/* Of rank 0: writes parameters and state to `saved`, or reads them. */
static void move_all(struct exec *exec, float *saved, bool writes)
{
    for (int p = 0; p < exec_param_count(exec); p++) {
        for (int state = -1; state < exec_state_count(exec, p); state++) {
            if (writes)
                exec_get(exec, p, state, saved);
            else
                exec_set(exec, p, state, saved);
            saved += shape_count(&exec_param(exec, p)->shape);
        }
    }
}

static enum status make_exec(const struct job *job, struct comm *comm, int *left,
                             struct exec **out)
{
    struct exec_config config = {
        .train = job->train,
        .eval = job->eval,
        .comm = comm,
        .threads = 1,
        .shards = job->setup->shards,
        .batch = 24,
        .seed = 11,
        .device = job->setup->device.face ? &job->setup->device : NULL,
        .choices = job->choices,
        .optim = job->optim,
    };

    *left = job->setup->lost_at;
    config.at_meeting = comm_rank(comm) == 1 && *left ? exec_testing_die_at : NULL;
    config.at_meeting_arg = left;
    return exec_create(&config, out);
}

/* Another executor goes on with what one has. */
static enum status make_anew(const struct job *job, struct comm *comm, int *left,
                             struct exec **exec)
{
    enum { FLOATS = 1 << 18 };
    float *saved;

    TRY(exec_collect(*exec));
    TRY(mem_alloc(FLOATS, sizeof *saved, &saved));
    if (comm_rank(comm) == 0)
        move_all(*exec, saved, true);
    exec_destroy(*exec);
    *exec = NULL;
    enum status status = make_exec(job, comm, left, exec);
    if (status == STATUS_OK && comm_rank(comm) == 0)
        move_all(*exec, saved, false);
    mem_free(saved);
    return status == STATUS_OK ? exec_publish(*exec) : status;
}

static enum status train(const struct job *job, struct comm *comm, int *left,
                         struct exec **exec, struct outcome *out)
{
    int next = 0;

    TRY(exec_init_params(*exec));
    for (int s = 0; s < STEPS; s++) {
        if (job->setup->resume_at && s == job->setup->resume_at) {
            TRY(exec_testing_take_late(*exec, true, &next, out->steps));
            TRY(make_anew(job, comm, left, exec));
        }
        TRY(run_step(job->setup, *exec, s, out));
        TRY(exec_testing_take_late(*exec, false, &next, out->steps));
    }
    TRY(exec_testing_take_late(*exec, true, &next, out->steps));
    if (job->dataset)
        TRY(exec_evaluate(*exec, dataset_as_source(job->dataset), &out->evaluation));
    return exec_collect(*exec);
}

static void hash_state(struct exec *exec, char out[65])
{
    static float plain[1 << 18];
    struct sha256 hash;

    memset(plain, 0, sizeof plain);
    sha256_init(&hash);
    move_all(exec, plain, true);
    sha256_add(&hash, plain, sizeof plain);
    sha256_end_hex(&hash, out);
}

static enum status run_rank(struct comm *comm, void *arg)
{
    struct job *job = arg;
    struct outcome *out = &job->outcomes[comm_rank(comm)];
    struct exec *exec;
    int left;

    TRY(make_exec(job, comm, &left, &exec));
    enum status status = train(job, comm, &left, &exec, out);
    if (status == STATUS_OK && comm_rank(comm) == 0)
        hash_state(exec, out->state_hash);
    if (status == STATUS_OK)
        status = exec_hash(exec, out->hash);
    exec_destroy(exec);
    return status;
}

/* Runs ----------------------------------------------------------------------------------------- */

static bool same_result(const struct exec_result *a, const struct exec_result *b)
{
    return memcmp(&a->loss, &b->loss, sizeof a->loss) == 0 && a->correct == b->correct;
}

static void check_same(const struct setup *setup, const char *what, const struct outcome *a,
                       const struct outcome *b)
{
    bool same =
        strcmp(a->hash, b->hash) == 0 && same_result(&a->evaluation, &b->evaluation) &&
        (!*a->state_hash || !*b->state_hash || strcmp(a->state_hash, b->state_hash) == 0);

    for (int s = 0; s < STEPS; s++)
        same = same && same_result(&a->steps[s], &b->steps[s]);
    if (!same)
        test_fail(__FILE__, __LINE__,
                  "%s, %s, clip %g, %lld shards, %d ranks on %d nodes: %s differ: %.12s and "
                  "%.12s, state %.12s and %.12s, loss %.9g and %.9g",
                  setup->model, setup->optimizer, (double)setup->max_norm,
                  (long long)setup->shards, setup->ranks, setup->nodes, what, a->hash, b->hash,
                  a->state_hash, b->state_hash, a->steps[0].loss, b->steps[0].loss);
}

/* All ranks must say the same. */
static struct outcome run(struct setup *setup, int ranks, int nodes,
                          const struct dataset *dataset)
{
    static struct job job;

    setup->ranks = ranks;
    setup->nodes = nodes;
    make_job(setup, &job);
    job.dataset = dataset;
    CHECK_OK(comm_testing_nodes(ranks, nodes, NULL, run_rank, &job));
    for (int r = 1; r < ranks; r++) {
        check_same(setup, "ranks", &job.outcomes[0], &job.outcomes[r]);
        CHECK_INT(2, job.outcomes[r].heard);
    }
    release_job(&job);
    return job.outcomes[0];
}

static void open_cpu(struct setup *setup, bool is_narrow)
{
    setup->device = (struct exec_device){ .precision = is_narrow ? DTYPE_BF16 : DTYPE_F32 };
    if (is_narrow)
        setup->device.face = device_testing_narrow();
    else
        CHECK_OK(device_find("cpu", &setup->device.face));
    CHECK_OK(setup->device.face->open(0, &setup->device.device));
}

static void close_cpu(struct setup *setup)
{
    setup->device.face->close(setup->device.device);
}

/* Tests ------------------------------------------------------------------------------------------ */

static const struct {
    const char *model, *optimizer;
    float max_norm;
    int64_t shards;
    bool is_narrow;
} cases[] = {
    { "mlp", "sgd", 0, 4, false },       { "mlp", "adamw", 0, 6, true },
    { "cnn", "adam", 0, 6, false },      { "normed", "sgd", 0, 12, true },
    { "mlp", "sgd", 0.5F, 4, false },    { "mlp", "lars", 0.5F, 6, false },
    { "normed", "lamb", 0.5F, 4, true }, { "normed", "lamb", 0, 6, false },
    { "words", "adam", 0, 8, false },    { "words", "sgd", 0.5F, 4, true },
};

/* Each rank a machine, two on some, and all on one whose devices do not reach each other. */
static void test_ranks_that_send_have_the_bits_of_one(void)
{
    static const int places[][2] = { { 2, 2 }, { 3, 3 }, { 4, 2 }, { 4, 4 }, { 3, 1 } };
    struct dataset *dataset = exec_testing_samples(3, 130, SIDE, CLASSES);

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct setup setup = { .model = cases[i].model,
                               .optimizer = cases[i].optimizer,
                               .max_norm = cases[i].max_norm,
                               .shards = cases[i].shards };
        const struct dataset *data = has_words(&setup) ? NULL : dataset;
        open_cpu(&setup, cases[i].is_narrow);
        const struct outcome alone = run(&setup, 1, 1, data);
        setup.device.sends = true;
        for (size_t p = 0; p < sizeof places / sizeof *places; p++) {
            setup.device.group_bytes = p % 2 ? 1024 : 0; /* several groups of buckets, or one */
            const struct outcome together = run(&setup, places[p][0], places[p][1], data);
            check_same(&setup, "one rank and several", &alone, &together);
        }
        close_cpu(&setup);
    }
    dataset_close(dataset);
}

static enum status open_nothing(struct device *device, const struct device_handle *handle,
                                void **out)
{
    (void)device;
    (void)handle;
    (void)out;
    return FAIL(STATUS_UNSUPPORTED, "these devices are no peers");
}

/* Found out by trying. */
static void test_devices_that_are_no_peers_send(void)
{
    static struct device_share_ops share;
    static struct device_face face;
    struct setup setup = { .model = "mlp", .optimizer = "adam", .shards = 4 };

    open_cpu(&setup, false);
    const struct outcome alone = run(&setup, 1, 1, NULL);
    share = *setup.device.face->share;
    share.open = open_nothing;
    face = *setup.device.face;
    face.share = &share;
    setup.device.face = &face;
    const struct outcome together = run(&setup, 3, 1, NULL);
    check_same(&setup, "one rank and devices that are no peers", &alone, &together);
    close_cpu(&setup);
}

/* State that ranks of machines own is saved whole, and goes back to its owners. */
static void test_state_goes_between_machines(void)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct setup setup = { .model = cases[i].model,
                               .optimizer = cases[i].optimizer,
                               .max_norm = cases[i].max_norm,
                               .shards = cases[i].shards };
        open_cpu(&setup, cases[i].is_narrow);
        const struct outcome whole = run(&setup, 1, 1, NULL);
        setup.resume_at = 6;
        const struct outcome resumed = run(&setup, 4, 2, NULL);
        check_same(&setup, "what was resumed and what was not", &whole, &resumed);
        close_cpu(&setup);
    }
}

/* Each rank has one shard then. */
static void test_statistics_go_between_machines(void)
{
    struct setup setup = { .model = "normed", .optimizer = "sgd", .sync_norm = true };

    for (int ranks = 2; ranks <= RANKS_MAX; ranks++) {
        setup.shards = ranks;
        setup.device = (struct exec_device){ 0 };
        const struct outcome lanes = run(&setup, ranks, 1, NULL);
        open_cpu(&setup, false);
        const struct outcome there = run(&setup, ranks, ranks, NULL);
        check_same(&setup, "lanes and devices", &lanes, &there);
        close_cpu(&setup);
    }
}

static enum status run_process(struct transport *transport, void *arg)
{
    struct job *job = arg;
    struct comm *comm;

    TRY(comm_create(transport, NULL, &comm));
    const enum status status = run_rank(comm, job);
    const char *hash = job->outcomes[comm_rank(comm)].hash;
    comm_destroy(comm);
    TRY(status);
    return strcmp(hash, job->hash) == 0
               ? STATUS_OK
               : FAIL(STATUS_MISMATCH, "%s is not %s", hash, job->hash);
}

/* When one is gone the others give up what they wait for, and name it. */
static void test_processes_that_send(void)
{
    static struct job job;
    struct setup setup = { .model = "mlp", .optimizer = "adam", .shards = 4 };

    open_cpu(&setup, false);
    const struct outcome alone = run(&setup, 1, 1, NULL);
    for (int ranks = 2; ranks <= RANKS_MAX; ranks += 2) {
        const struct launch_config launch = { .size = ranks, .flat = true };
        setup.ranks = setup.nodes = ranks;
        setup.lost_at = 0;
        make_job(&setup, &job);
        memcpy(job.hash, alone.hash, sizeof job.hash);
        CHECK_OK(launch_ranks(&launch, run_process, &job));
        setup.lost_at = 4;
        const double began = clock_seconds();
        CHECK_STATUS(STATUS_PEER_LOST, launch_ranks(&launch, run_process, &job));
        CHECK_MESSAGE("rank 1");
        CHECK_MESSAGE("killed by signal 9");
        CHECK(clock_seconds() - began < 4); /* after five seconds they would have been killed */
        release_job(&job);
    }
    close_cpu(&setup);
}

/* Who fails by itself does not keep others waiting. */
static enum status fail_in_the_middle(struct comm *comm, void *arg)
{
    struct job *job = arg;
    struct outcome out = { 0 };
    struct exec *exec;
    int left;

    TRY(make_exec(job, comm, &left, &exec));
    enum status status = exec_init_params(exec);
    for (int s = 0; s < 3 && status == STATUS_OK; s++)
        status = comm_rank(comm) == 1 && s == 2 ? FAIL(STATUS_IO, "the disk is full")
                                                : run_step(job->setup, exec, s, &out);
    if (status != STATUS_OK)
        transport_abort(comm_transport(comm), status_message());
    exec_destroy(exec);
    return status;
}

static void test_a_rank_that_fails_ends_the_others(void)
{
    static struct job job;
    struct setup setup = {
        .model = "mlp", .optimizer = "adam", .shards = 4, .ranks = 4, .nodes = 4
    };

    open_cpu(&setup, false);
    make_job(&setup, &job);
    CHECK_STATUS(STATUS_IO, comm_testing_nodes(4, 4, NULL, fail_in_the_middle, &job));
    CHECK_MESSAGE("the disk is full");
    release_job(&job);
    close_cpu(&setup);
}

/* A face as it would be without one thing or another. */
static enum status refuse(struct comm *comm, void *arg)
{
    struct exec *exec;
    int left;

    return make_exec(arg, comm, &left, &exec);
}

static void test_devices_that_cannot_meet_are_refused(void)
{
    static struct job job;
    static struct device_face without;
    struct setup setup = { .model = "mlp", .optimizer = "sgd", .shards = 2, .ranks = 2 };

    open_cpu(&setup, false);
    without = *setup.device.face;
    without.team = NULL;
    setup.device.face = &without;
    make_job(&setup, &job);
    CHECK_STATUS(STATUS_UNSUPPORTED, comm_testing_nodes(2, 2, NULL, refuse, &job));
    CHECK_MESSAGE("no NCCL");
    release_job(&job);
    close_cpu(&setup);
}

const struct test tests[] = {
    { .name = "ranks that send have the bits of one",
      .run = test_ranks_that_send_have_the_bits_of_one },
    { .name = "devices that are no peers send", .run = test_devices_that_are_no_peers_send },
    { .name = "state goes between machines", .run = test_state_goes_between_machines },
    { .name = "statistics go between machines", .run = test_statistics_go_between_machines },
    { .name = "processes that send", .run = test_processes_that_send },
    { .name = "a rank that fails ends the others",
      .run = test_a_rank_that_fails_ends_the_others },
    { .name = "devices that cannot meet are refused",
      .run = test_devices_that_cannot_meet_are_refused },
    { 0 },
};
