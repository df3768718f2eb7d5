/* SPDX-License-Identifier: MIT */
/* pipe_test.c - stages of a pipeline, and several pipelines, give the bits of one rank; ranks are threads of this
 * process. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/test.h"
#include "comm/comm_testing.h"
#include "data/sampler.h"
#include "exec/exec.h"
#include "graph/build.h"
#include "model/model.h"
#include "pass/strategy.h"

enum {
    SIDE = 6,
    PIXELS = SIDE * SIDE,
    CLASSES = 4,
    STEPS = 4,
    MAX_BATCH = 24,
    MOST_PARAMS = 32
};

/* A residual connection across layers, batch norms, dropout. */
static void build_deep(struct graph *graph, const struct model_config *config,
                       struct value *input, struct value *target)
{
    const struct build_conv conv = { .channels = 6, .kernel = 3, .stride = 1, .pad = 1 };
    struct value *first = build_conv2d(graph, "conv1", input, conv);
    struct value *x = build_relu(graph, "relu1", first);

    x = build_conv2d(graph, "conv2", x, conv);
    x = build_batch_norm(graph, "bn", x, config->training);
    x = build_relu(graph, "relu2", build_add(graph, "add", x, first));
    x = build_relu(graph, "relu3", build_linear(graph, "fc1", x, 10));
    if (config->training)
        x = build_dropout(graph, "drop", x, 0.25F);
    build_classifier_loss(graph, build_linear(graph, "fc2", x, CLASSES), target);
}

static const struct model deep = { .name = "deep", .build = build_deep };

struct trial {
    struct axes axes;
    int nodes;
    int64_t batch, shards, bucket_bytes; /* 0: the usual */
    bool recompute;
    float max_norm;
    const char *optimizer; /* NULL: adam */
    struct optim_config optim;
    struct kernel_choices *choices;
    double losses[STEPS];
    uint32_t heard[STEPS];
    int n_params;
    double sums[MOST_PARAMS]; /* of each parameter: a sum of all bits */
    bool known[MOST_PARAMS];
};

static enum status make_graph(const struct trial *t, int stage, struct graph **out)
{
    struct pass_config config = { .batch = t->batch,
                                  .shards = t->shards,
                                  .ranks = t->axes.dp,
                                  .recompute = t->recompute,
                                  .bucket_bytes = t->bucket_bytes,
                                  .zero = t->axes.zero,
                                  .optim = t->optim };
    struct model_config model = model_defaults(&deep);

    config.pipeline =
        (struct pass_pipeline){ .stages = t->axes.pp, .chunks = t->axes.chunks, .own = stage };
    model.sample = (struct shape){ 3, { 1, SIDE, SIDE } };
    model.classes = CLASSES;
    model.training = true;
    model.batch = t->batch;
    TRY(model_build(&deep, &model, out));
    return pass_run(*out, strategy_find("hybrid")->passes, &config, NULL);
}

static enum status one_step(struct trial *t, struct exec *exec, int step, bool tells)
{
    static const int64_t samples[STEPS] = { 24, 24, 3, 17 }; /* of 3, most shards are empty */
    float x[MAX_BATCH * PIXELS];
    int32_t y[MAX_BATCH];
    const int64_t count = samples[step] < t->batch ? samples[step] : t->batch;
    const int64_t first = exec_first_shard(exec), end = first + exec_shard_count(exec);
    const int64_t begin = sampler_shard_begin(count, t->shards, first);
    const int64_t rows = sampler_shard_begin(count, t->shards, end) - begin;
    const struct batch batch = { .step = (uint64_t)step,
                                 .samples = count,
                                 .first = begin,
                                 .rows = rows,
                                 .weight = count,
                                 .own_weight = rows,
                                 .x = x,
                                 .y = y };
    struct exec_result result;
    struct rng rng;

    for (int64_t i = 0; i < rows; i++) {
        rng_init(&rng, 11, (uint64_t)(step * MAX_BATCH + begin + i));
        for (int p = 0; p < PIXELS; p++)
            x[i * PIXELS + p] = rng_float(&rng) - 0.5F;
        y[i] = (int32_t)rng_below(&rng, CLASSES);
    }
    exec_say(exec, tells ? 0 : 4U << step); /* the others say something */
    TRY(exec_step(exec, &batch, &result));
    if (tells) {
        t->losses[step] = result.loss;
        t->heard[step] = result.heard;
    }
    return STATUS_OK;
}

static double sum_bits(const float *numbers, int64_t count)
{
    double sum = 0;

    for (int64_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &numbers[i], sizeof bits);
        sum += (double)bits * (double)(i % 1000 + 1);
    }
    return sum;
}

/* The first rank of each stage notes what it has. */
static enum status note_params(struct trial *t, const struct exec *exec)
{
    for (int i = 0; i < exec_param_count(exec); i++) {
        const int64_t count = shape_count(&exec_param(exec, i)->shape);
        const int number = exec_param_number(exec, i);
        float *plain;
        TRY(mem_alloc((size_t)count, sizeof *plain, &plain));
        exec_get(exec, i, -1, plain);
        t->sums[number] = sum_bits(plain, count);
        t->known[number] = true;
        mem_free(plain);
    }
    return STATUS_OK;
}

static enum status run_rank(struct trial *t, struct transport *groups[3], int rank,
                            struct comm *comm)
{
    const struct axes_place place = axes_place_of(&t->axes, rank);
    struct exec *exec = NULL;
    struct graph *graph = NULL;

    enum status status = make_graph(t, place.pp, &graph);
    struct exec_config config = {
        .train = graph,
        .comm = comm,
        .threads = 2,
        .shards = t->shards,
        .batch = t->batch,
        .seed = 5,
        .choices = t->choices,
        .optim = t->optim,
        .zero = t->axes.zero,
        .window = t->axes.zero > 0, /* as little as there can be */
        .pipeline = { .stages = t->axes.pp,
                      .own = place.pp,
                      .kind = t->axes.pipeline,
                      .chunks = t->axes.chunks,
                      .transport = groups[1] },
        .beside = { .transport = groups[2], .teller = t->axes.pp - 1 },
    };
    if (status == STATUS_OK)
        status = exec_create(&config, &exec);
    if (status == STATUS_OK)
        status = exec_init_params(exec);
    for (int step = 0; step < STEPS && status == STATUS_OK; step++)
        status = one_step(t, exec, step, rank == 0);
    if (status == STATUS_OK)
        status = exec_settle(exec);
    if (status == STATUS_OK) {
        CHECK(exec_is_in_parts(exec) == (t->axes.zero == 3 && t->axes.dp > 1));
        status = exec_make_whole(exec);
    }
    if (status == STATUS_OK && place.dp == 0)
        status = note_params(t, exec);
    exec_destroy(exec);
    graph_destroy(graph);
    return status;
}

static enum status body(struct comm *job, void *arg)
{
    static const unsigned along[] = { AXIS_DP, AXIS_PP, AXIS_TP | AXIS_PP };
    struct trial *t = arg;
    struct transport *transport = comm_transport(job), *groups[3] = { NULL };
    const int rank = transport_rank(transport);
    struct comm *comm = NULL;
    enum status status = STATUS_OK;

    for (int g = 0; g < 3 && status == STATUS_OK; g++) {
        int members[AXES_RANKS];
        const int count = axes_group(&t->axes, rank, along[g], members);
        status = transport_group_create(transport, members, count, &groups[g]);
    }
    if (status == STATUS_OK)
        status = comm_create(groups[0], NULL, &comm);
    if (status == STATUS_OK)
        status = run_rank(t, groups, rank, comm);
    comm_destroy(comm);
    if (status == STATUS_OK)
        status = comm_barrier(job); /* nobody's messages are cut off */
    for (int g = 0; g < 3; g++)
        transport_group_destroy(groups[g]);
    return status;
}

static void run(struct trial *t)
{
    t->optim.optimizer = optim_find(t->optimizer ? t->optimizer : "adam");
    t->optim.attrs = t->optim.optimizer->defaults;
    t->optim.attrs.max_norm = t->max_norm;
    t->optim.schedule = (struct schedule){ .kind = SCHEDULE_CONSTANT, .lr = 0.01 };
    CHECK_OK(kernel_choices_load(NULL, &t->choices));
    CHECK_OK(
        comm_testing_nodes(t->axes.dp * t->axes.pp, t->nodes ? t->nodes : 1, NULL, body, t));
    kernel_choices_destroy(t->choices);
}

static struct trial trial_of(int dp, int pp, enum pipe_kind kind, int chunks)
{
    return (struct trial){
        .axes = { .dp = dp, .tp = 1, .pp = pp, .pipeline = kind, .chunks = chunks },
        .batch = 24,
        .shards = 8
    };
}

static void test_pipelines_have_the_bits_of_one_rank(void)
{
    static const struct {
        int dp, pp, chunks, nodes;
        enum pipe_kind kind;
    } rows[] = {
        { 1, 2, 1, 1, PIPE_1F1B },        { 1, 3, 1, 1, PIPE_GPIPE },
        { 1, 4, 1, 2, PIPE_1F1B },        { 2, 2, 1, 1, PIPE_1F1B },
        { 1, 2, 2, 1, PIPE_INTERLEAVED }, { 2, 2, 2, 4, PIPE_INTERLEAVED },
        { 2, 1, 1, 1, PIPE_GPIPE },
    };
    struct trial one = trial_of(1, 1, PIPE_1F1B, 1);

    run(&one);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct trial t = trial_of(rows[i].dp, rows[i].pp, rows[i].kind, rows[i].chunks);
        t.nodes = rows[i].nodes;
        t.recompute = i == 0;
        run(&t);
        for (int s = 0; s < STEPS; s++) {
            CHECK(t.losses[s] == one.losses[s]);
            CHECK_INT(4 << s, t.heard[s]); /* all say the same to the first */
        }
        for (int p = 0; p < MOST_PARAMS; p++)
            CHECK(t.known[p] == one.known[p] && t.sums[p] == one.sums[p]);
    }
}

/* Parameters come for each piece of work and go again: several buckets a stage, pipelines with more shards than others,
 * and shards without samples. */
static void test_stages_hold_their_layers_in_parts(void)
{
    static const struct {
        int dp, pp, chunks, zero;
        enum pipe_kind kind;
        bool recompute;
    } rows[] = {
        { 2, 2, 1, 3, PIPE_1F1B, false },        { 2, 2, 1, 3, PIPE_GPIPE, true },
        { 2, 2, 2, 3, PIPE_INTERLEAVED, false }, { 3, 2, 1, 3, PIPE_1F1B, false },
        { 3, 3, 1, 2, PIPE_1F1B, false },
    };
    struct trial one = trial_of(1, 1, PIPE_1F1B, 1);

    run(&one);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct trial t = trial_of(rows[i].dp, rows[i].pp, rows[i].kind, rows[i].chunks);
        t.axes.zero = rows[i].zero;
        t.recompute = rows[i].recompute;
        t.bucket_bytes = 256;
        run(&t);
        for (int p = 0; p < MOST_PARAMS; p++)
            CHECK(t.known[p] == one.known[p] && t.sums[p] == one.sums[p]);
    }
}

static void test_one_shard_goes_through(void)
{
    struct trial one = trial_of(1, 1, PIPE_1F1B, 1), two = trial_of(1, 3, PIPE_1F1B, 1);

    one.shards = two.shards = 1;
    run(&one);
    run(&two);
    for (int p = 0; p < MOST_PARAMS; p++)
        CHECK(two.known[p] == one.known[p] && two.sums[p] == one.sums[p]);
}

static void test_norms_are_of_the_whole_model(void)
{
    static const char *const optimizers[] = { "sgd", "lars", "lamb" };

    for (size_t i = 0; i < sizeof optimizers / sizeof *optimizers; i++) {
        struct trial one = trial_of(1, 1, PIPE_1F1B, 1);
        one.max_norm = 0.05F;
        one.optimizer = optimizers[i];
        run(&one);
        for (int dp = 1; dp <= 2; dp++) {
            struct trial t = trial_of(dp, 2, PIPE_1F1B, 1);
            t.max_norm = 0.05F;
            t.optimizer = optimizers[i];
            run(&t);
            for (int p = 0; p < MOST_PARAMS; p++)
                CHECK(t.known[p] == one.known[p] && t.sums[p] == one.sums[p]);
        }
    }
}

const struct test tests[] = {
    { .name = "norms are of the whole model", .run = test_norms_are_of_the_whole_model },
    { .name = "pipelines have the bits of one rank",
      .run = test_pipelines_have_the_bits_of_one_rank },
    { .name = "stages hold their layers in parts",
      .run = test_stages_hold_their_layers_in_parts },
    { .name = "one shard goes through", .run = test_one_shard_goes_through },
    { 0 },
};
