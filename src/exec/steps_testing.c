/* SPDX-License-Identifier: MIT */
/* steps_testing.c - some steps of a small model, on ranks that are threads. */
#include "exec/steps_testing.h"

#include <string.h>

#include "base/mem.h"
#include "base/sha256.h"
#include "base/test.h"
#include "comm/comm_testing.h"
#include "exec/exec_testing.h"
#include "exec/state.h"
#include "graph/build.h"
#include "model/model.h"
#include "pass/strategy.h"

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

void job_make(const struct setup *setup, struct job *job)
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
    const char *strategy = setup->ranks == 1  ? "single"
                           : setup->zero > 0  ? "zero"
                           : setup->nodes > 1 ? "multiworker"
                                              : "mirrored";

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

void job_release(struct job *job)
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

struct exec_config job_config(const struct job *job, struct comm *comm)
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

enum status setup_make_batch(const struct setup *setup, const struct exec *exec, int step,
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

void setup_free_batch(struct batch *batch)
{
    if (!batch)
        return;
    mem_free(batch->x);
    mem_free(batch->y);
    mem_free(batch);
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
        setup_free_batch(batches[s]);
        batches[s] = NULL;
        TRY(exec_testing_take_late(exec, false, &next, out->steps));
    }
    TRY(exec_testing_take_late(exec, true, &next, out->steps));
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
    for (int p = 0; p < exec->model.count; p++) {
        const struct value *param = exec->model.params[p];
        const int64_t begin =
            exec->layout.buckets.begin[plan_bucket_of(param->flat)] + param->offset;
        for (int64_t i = shape_count(&param->shape); i % 16 != 0; i++) {
            if (exec->memory.param[begin + i] != 0)
                return FAIL(STATUS_MISMATCH, "%g lies behind %s",
                            (double)exec->memory.param[begin + i], param->name);
        }
    }
    return STATUS_OK;
}

enum status job_train(const struct job *job, struct exec *exec, struct comm *comm,
                      struct outcome *out)
{
    struct batch *batches[STEPS_MAX] = { NULL };
    enum status status = exec_init_params(exec);

    out->lanes = exec_lanes(exec);
    for (int s = 0; s < job->setup->n_steps && status == STATUS_OK; s++)
        status = setup_make_batch(job->setup, exec, s, &batches[s]);
    if (status == STATUS_OK)
        status = run_steps(job, exec, comm, batches, out);
    if (status == STATUS_OK)
        status = check_gaps(exec);
    for (int s = 0; s < STEPS_MAX; s++)
        setup_free_batch(batches[s]);
    TRY(status);
    TRY(exec_collect(exec));
    if (comm_rank(comm) == 0)
        hash_state(exec, out->state_hash);
    return exec_hash(exec, out->hash);
}

void count_answers(const struct exec *exec, const struct dataset *dataset,
                   int64_t confusion[CLASSES * CLASSES])
{
    memset(confusion, 0, CLASSES * CLASSES * sizeof *confusion);
    for (int64_t i = 0; exec_classes(exec) == CLASSES && i < dataset_count(dataset); i++) {
        float score;
        confusion[dataset_label(dataset, i) * CLASSES + exec_answer(exec, i, &score)]++;
    }
}

enum status job_run_rank(struct comm *comm, void *arg)
{
    struct job *job = arg;
    const struct exec_config config = job_config(job, comm);
    struct outcome *out = &job->outcomes[comm_rank(comm)];
    struct exec *exec;

    TRY(exec_create(&config, &exec));
    enum status status = job_train(job, exec, comm, out);
    if (status == STATUS_OK && job->dataset)
        status = exec_evaluate(exec, dataset_as_source(job->dataset), &out->evaluation);
    if (status == STATUS_OK && job->dataset)
        count_answers(exec, job->dataset, out->confusion);
    exec_destroy(exec);
    return status;
}

static bool same_result(const struct exec_result *a, const struct exec_result *b)
{
    return memcmp(&a->loss, &b->loss, sizeof a->loss) == 0 && a->correct == b->correct &&
           a->samples == b->samples && a->top5 == b->top5;
}

void outcome_check_same(const struct setup *setup, const struct outcome *a,
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

struct outcome setup_run(const struct setup *setup, const struct dataset *dataset)
{
    static struct job job;

    job_make(setup, &job);
    job.dataset = dataset;
    CHECK_OK(comm_testing_nodes(setup->ranks, setup->nodes ? setup->nodes : 1, NULL,
                                job_run_rank, &job));
    for (int r = 1; r < setup->ranks; r++)
        outcome_check_same(setup, &job.outcomes[0], &job.outcomes[r]);
    job_release(&job);
    return job.outcomes[0];
}

struct outcome setup_run_on(struct setup *setup, int ranks, int threads,
                            const struct dataset *dataset)
{
    setup->ranks = ranks;
    setup->threads = threads;
    return setup_run(setup, dataset);
}

const struct setup setup_usual = {
    .model = "mlp",
    .optimizer = "sgd",
    .batch = 24,
    .bucket_bytes = 16384,
    .n_steps = 5,
    .samples = { 24, 24, 19, 3, 24 }, /* whole, uneven, and fewer than shards */
};
