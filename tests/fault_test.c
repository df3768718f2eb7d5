/* SPDX-License-Identifier: MIT */
/* fault_test.c - what happens when memory is refused anywhere, and when a rank dies at any
 * point where ranks meet. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/test.h"
#include "data/data_testing.h"
#include "exec/exec.h"
#include "graph/build.h"
#include "pass/strategy.h"
#include "train/train.h"
#include "transport/launch.h"

/* Memory refused ------------------------------------------------------------------------ */

static void small_settings(struct settings *settings, const char *data, const char *out)
{
    settings_init(settings);
    snprintf(settings->model, sizeof settings->model, "cnn");
    snprintf(settings->data, sizeof settings->data, "%s", data);
    snprintf(settings->out, sizeof settings->out, "%s", out);
    snprintf(settings->kernels, sizeof settings->kernels, "none");
    settings->batch = 8;
    settings->threads = 1;
    settings->epochs = 1;
    settings->checkpoint_every = 2;
}

static enum status make_and_run(const struct settings *settings)
{
    const struct train_hooks hooks = { .overwrite = true };
    struct train_result result;
    struct job *job;

    TRY(job_create(settings, NULL, JOB_TRAIN, &job));
    enum status status = train_run(job, &hooks, &result);
    job_destroy(job);
    return status;
}

static void test_refused_memory_is_reported_wherever_it_happens(void)
{
    char data[256], out[256];
    struct settings settings;
    struct rng rng;
    const struct data_testing_set set = {
        .train = 20, .test = 6, .rows = 8, .columns = 8, .classes = 3
    };

    snprintf(data, sizeof data, "%s/data", test_folder());
    snprintf(out, sizeof out, "%s/run", test_folder());
    CHECK_OK(file_make_folder(data));
    rng_init(&rng, 1, 1);
    data_testing_make(&rng, data, &set);
    small_settings(&settings, data, out);

    const uint64_t before = mem_count();
    CHECK_OK(make_and_run(&settings));
    const uint64_t allocations = mem_count() - before;
    CHECK(allocations > 50);
    /* Every allocation of the first hundred, then a spread over the rest. */
    for (uint64_t n = 1; n <= allocations; n += n < 100 ? 1 : 1 + allocations / 97) {
        mem_fail_at(n);
        enum status status = make_and_run(&settings);
        mem_fail_at(0);
        if (status == STATUS_OK)
            continue; /* what failed could be done without: a report, a hint */
        if (status != STATUS_NO_MEMORY)
            test_fail(__FILE__, __LINE__, "allocation %llu: %s: %s", (unsigned long long)n,
                      status_name(status), status_message());
    }
    CHECK_OK(make_and_run(&settings));
}

/* Ranks that die ------------------------------------------------------------------------ */

enum { RANKS = 3, STEPS = 2, MOST_SAMPLES = 9 };

struct victim {
    int64_t shards, batch;
    struct graph *graph, *eval;
    struct dataset *data;
    struct optim_config optim;
    struct kernel_choices *choices;
    const char *kind; /* of meeting that is looked at; NULL: every one */
    int rank, point;  /* who dies, at which of its meetings; point -1: nobody */
    bool loops;       /* instead of dying it computes for ever */
    double stall_timeout;
    int seen, me;
};

static void die_at_point(void *arg, const char *point)
{
    struct victim *victim = arg;

    if (victim->kind && strcmp(victim->kind, point) != 0)
        return;
    if (victim->me != victim->rank || victim->seen++ != victim->point)
        return;
    for (volatile unsigned turns = 0; victim->loops; turns++)
        ;
    kill(getpid(), SIGKILL);
}

static enum status train_a_little(struct transport *transport, void *arg)
{
    struct victim *victim = arg;
    struct exec_config config = {
        .train = victim->graph,
        .eval = victim->eval,
        .threads = 1,
        .shards = victim->shards,
        .batch = victim->batch,
        .seed = 3,
        .choices = victim->choices,
        .optim = victim->optim,
        .stall_timeout = victim->stall_timeout,
        .at_meeting = die_at_point,
        .at_meeting_arg = victim,
    };
    static float x[MOST_SAMPLES * 64];
    static int32_t y[MOST_SAMPLES];
    struct exec_result result;
    struct exec *exec;

    victim->me = transport_rank(transport);
    TRY(comm_create(transport, NULL, &config.comm));
    TRY(exec_create(&config, &exec));
    TRY(exec_init_params(exec));
    for (uint64_t step = 0; step < STEPS; step++) {
        const int64_t first =
            sampler_shard_begin(victim->batch, victim->shards, exec_first_shard(exec));
        const struct batch batch = { .step = step,
                                     .samples = victim->batch,
                                     .weight = victim->batch,
                                     .first = first,
                                     .rows = victim->batch - first,
                                     .x = x,
                                     .y = y };
        TRY(exec_step(exec, &batch, &result));
    }
    TRY(exec_evaluate(exec, dataset_as_source(victim->data), &result));
    TRY(exec_settle(exec));
    exec_destroy(exec);
    comm_destroy(config.comm);
    return STATUS_OK;
}

static void prepare(struct victim *victim, const struct model *model, bool sync_norm)
{
    struct model_config config = model_defaults(model);
    struct pass_config passes = {
        .batch = victim->batch, .shards = victim->shards, .ranks = RANKS, .sync_norm = sync_norm
    };
    const struct pass_config whole = { .batch = 1, .shards = 1, .ranks = 1 };
    const struct data_testing_set set = {
        .train = 20, .test = 300, .rows = 8, .columns = 8, .classes = 3
    };
    struct rng rng;

    rng_init(&rng, 2, 2);
    data_testing_make(&rng, test_folder(), &set);
    CHECK_OK(dataset_open(test_folder(), DATASET_TEST, &victim->data));
    config.sample = dataset_sample(victim->data);
    config.batch = victim->batch;
    passes.optim.optimizer = optim_find("lamb");
    passes.optim.attrs = passes.optim.optimizer->defaults;
    passes.optim.attrs.max_norm = 1; /* so that every kind of meeting happens */
    passes.optim.schedule.lr = 0.01;
    victim->optim = passes.optim;
    CHECK_OK(model_build(model, &config, &victim->graph));
    CHECK_OK(pass_run(victim->graph, strategy_find("mirrored")->passes, &passes, NULL));
    config.training = false;
    CHECK_OK(model_build(model, &config, &victim->eval));
    CHECK_OK(pass_run(victim->eval, pass_evaluation, &whole, NULL));
    CHECK_OK(kernel_choices_load(NULL, &victim->choices));
}

/* Lets each rank die at each of its meetings; gives how many there were. */
static int kill_everywhere(struct victim *prepared)
{
    const struct launch_config launch = { .size = RANKS };
    struct victim victim = *prepared;
    int deaths = 0;

    CHECK_OK(launch_ranks(&launch, train_a_little, &victim));
    for (int rank = 0; rank < RANKS; rank++) {
        for (int point = 0; point < 64; point++) {
            char name[32];
            victim.rank = rank;
            victim.point = point;
            const double began = clock_seconds();
            enum status status = launch_ranks(&launch, train_a_little, &victim);
            if (status == STATUS_OK)
                break; /* this rank has no more points */
            deaths++;
            snprintf(name, sizeof name, "rank %d ", rank);
            CHECK_INT(STATUS_PEER_LOST, status);
            CHECK_MESSAGE(name);
            CHECK_MESSAGE("signal 9");
            CHECK(clock_seconds() - began < 6); /* 2 s, with room for a busy machine */
        }
    }
    CHECK(waitpid(-1, NULL, WNOHANG) < 0); /* no child is left */
    graph_destroy(victim.graph);
    graph_destroy(victim.eval);
    dataset_close(victim.data);
    kernel_choices_destroy(victim.choices);
    return deaths;
}

static void test_a_rank_that_dies_anywhere_is_named_on_every_rank(void)
{
    struct victim victim = { .shards = 4, .batch = 8, .rank = -1, .point = -1 };

    prepare(&victim, model_find("mlp"), false);
    CHECK(kill_everywhere(&victim) > 3 * 10);
}

/* The others name it within their timeout; the supervisor ends it. */
static void test_a_rank_that_loops_is_named_with_collective_tensor_and_step(void)
{
    static const struct {
        const char *kind, *what;
    } places[] = {
        { "ready", "rank 1 has not come to reduce_scatter of bucket 0 (" },
        { "done", "rank 1 has not come to all_gather of parameters, bucket 0 (" },
        { "reduced", "rank 1 has not come to all_reduce of the gradient's norm at step 0" },
        { "directed", "rank 1 has not come to all_reduce of directions' norms at step 0" },
        { "evaluated", "rank 1 has not come to all_reduce of the evaluation" },
        { "settle", "rank 1 has not come to barrier" },
    };
    const struct launch_config launch = { .size = RANKS, .grace_ms = 100 };
    struct victim victim = { .shards = 4, .batch = 8, .rank = -1, .point = -1 };

    prepare(&victim, model_find("mlp"), false);
    victim.rank = 1;
    victim.point = 0;
    victim.loops = true;
    victim.stall_timeout = 0.3;
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        struct victim looping = victim;
        looping.kind = places[i].kind;
        const double began = clock_seconds();
        CHECK_STATUS(STATUS_PEER_LOST, launch_ranks(&launch, train_a_little, &looping));
        CHECK_MESSAGE(places[i].what);
        CHECK_MESSAGE("(--stall-timeout)");
        CHECK(clock_seconds() - began < 4);
    }
    CHECK(waitpid(-1, NULL, WNOHANG) < 0); /* no child is left */
    graph_destroy(victim.graph);
    graph_destroy(victim.eval);
    dataset_close(victim.data);
    kernel_choices_destroy(victim.choices);
}

/* Images with one batch norm. */
static void build_normed(struct graph *graph, const struct model_config *config,
                         struct value *input, struct value *target)
{
    const struct build_conv conv = { .channels = 2, .kernel = 3, .stride = 2, .pad = 1 };
    struct value *x = build_conv2d(graph, "conv", input, conv);

    x = build_relu(graph, "relu", build_batch_norm(graph, "bn", x, config->training));
    build_classifier_loss(graph, build_linear(graph, "fc", x, 10), target);
}

static void test_a_rank_that_dies_at_a_gather_is_named_on_every_rank(void)
{
    static const struct model normed = { .name = "normed", .build = build_normed };
    struct victim victim = {
        .shards = RANKS, .batch = 9, .kind = "met", .rank = -1, .point = -1
    };

    prepare(&victim, &normed, true);
    CHECK_INT(3 * 4, kill_everywhere(&victim)); /* ranks; forward and backward of two steps */
}

/* Workers that the others can do without ------------------------------------------------ */

/* Up to two ranks that die, each before a push, a question to servers, or what it says at the end. */
struct loss {
    int rank[2], point[2];
    int seen;
};

static void die_if_told(void *arg, int rank, const char *point)
{
    struct loss *loss = arg;

    (void)point;
    for (int i = 0; i < 2; i++) {
        if (loss->rank[i] == rank && loss->point[i] == loss->seen)
            kill(getpid(), SIGKILL);
    }
    loss->seen++; /* a process has one rank */
}

/* What standard error has had since `file` took its place; at most `bytes` of it. */
static int take_errors(FILE *file)
{
    const int old = dup(STDERR_FILENO);

    fflush(stderr);
    CHECK(old >= 0 && ftruncate(fileno(file), 0) == 0);
    rewind(file);
    CHECK(dup2(fileno(file), STDERR_FILENO) >= 0);
    return old;
}

static void give_errors_back(FILE *file, int old, char *text, size_t bytes)
{
    fflush(stderr);
    CHECK(dup2(old, STDERR_FILENO) >= 0);
    close(old);
    rewind(file);
    text[fread(text, 1, bytes - 1, file)] = '\0';
}

enum { LOSS_STEPS = 3 };

/* How many died. */
static int run_with_loss(const struct settings *settings, struct loss loss, FILE *file)
{
    const struct train_hooks hooks = { .overwrite = true,
                                       .at_meeting = die_if_told,
                                       .at_meeting_arg = &loss };
    struct train_result result = { .steps = 0 };
    struct job *job;
    char text[4096];
    int deaths = 0;

    CHECK_OK(job_create(settings, NULL, JOB_TRAIN, &job));
    const int old = take_errors(file);
    const enum status status = train_run(job, &hooks, &result);
    give_errors_back(file, old, text, sizeof text);
    job_destroy(job);
    if (status != STATUS_OK || result.steps != LOSS_STEPS)
        test_fail(__FILE__, __LINE__, "rank %d dies at point %d, rank %d at point %d: %s: %s",
                  loss.rank[0], loss.point[0], loss.rank[1], loss.point[1], status_name(status),
                  status == STATUS_OK ? "fewer steps" : status_message());
    for (const char *at = text; (at = strstr(at, "the others go on")) != NULL; at++)
        deaths++;
    return deaths;
}

/* Lets a rank die at each of its points, and before that another one, if it is one, early in its first step. Gives how
 * many points there were. */
static int lose_everywhere(const struct settings *settings, int rank, int other, FILE *file)
{
    enum { MOST = 64, EARLY = 4 };

    for (int point = 0; point < MOST; point++) {
        const struct loss loss = { .rank = { rank, other }, .point = { point, EARLY } };
        if (run_with_loss(settings, loss, file) == (other >= 0))
            return point;
    }
    return MOST;
}

static void test_a_worker_that_others_can_do_without_may_die_anywhere(void)
{
    static const struct {
        const char *strategy;
        int spares, rank, other;
        bool trace;
        int least; /* points */
    } cases[] = {
        { "asgd", 1, 1, -1, false, 10 },
        { "asgd", 1, 2, -1, false, 3 }, /* the spare, which nobody needs, */
        { "asgd", 1, 2, 1, false, 3 },  /* or which is in the place of another */
        { "ssp", 1, 1, -1, true, 10 },
        { "asgd", 0, 1, -1, true, 10 },
        { "easgd", 0, 1, -1, false, 6 },
    };
    char data[256], out[256];
    struct settings settings;
    struct rng rng;
    const struct data_testing_set set = {
        .train = 48, .test = 6, .rows = 8, .columns = 8, .classes = 3
    };
    FILE *file = tmpfile();

    CHECK(file != NULL);
    snprintf(data, sizeof data, "%s/data", test_folder());
    snprintf(out, sizeof out, "%s/run", test_folder());
    CHECK_OK(file_make_folder(data));
    rng_init(&rng, 1, 1);
    data_testing_make(&rng, data, &set);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        small_settings(&settings, data, out);
        snprintf(settings.model, sizeof settings.model, "mlp");
        snprintf(settings.strategy, sizeof settings.strategy, "%s", cases[i].strategy);
        settings.checkpoint_every = 0;
        settings.ranks = 2;
        settings.shards = 2;
        settings.spares = cases[i].spares;
        settings.trace = cases[i].trace;
        settings.steps = LOSS_STEPS;
        const int points = lose_everywhere(&settings, cases[i].rank, cases[i].other, file);
        CHECK(points >= cases[i].least && points < 64);
    }
    fclose(file);
}

const struct test tests[] = {
    { .name = "refused memory is reported wherever it happens",
      .run = test_refused_memory_is_reported_wherever_it_happens },
    { .name = "a rank that dies anywhere is named on every rank",
      .run = test_a_rank_that_dies_anywhere_is_named_on_every_rank },
    { .name = "a rank that loops is named with collective, tensor and step",
      .run = test_a_rank_that_loops_is_named_with_collective_tensor_and_step },
    { .name = "a worker that others can do without may die anywhere",
      .run = test_a_worker_that_others_can_do_without_may_die_anywhere },
    { .name = "a rank that dies at a gather is named on every rank",
      .run = test_a_rank_that_dies_at_a_gather_is_named_on_every_rank },
    { 0 },
};
