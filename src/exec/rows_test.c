/* SPDX-License-Identifier: MIT */
/* rows_test.c - tables of embeddings, of which a step updates the rows that occur: the same bits on
 * any number of ranks and threads, the sums of the dense form, and nothing done to other rows.
 */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/test.h"
#include "comm/comm_testing.h"
#include "exec/exec.h"
#include "graph/build.h"
#include "graph/op.h"
#include "model/model.h"
#include "pass/strategy.h"

enum { STEPS_MAX = 8, RANKS_MAX = 4, LENGTH = 12, VOCABULARY = 300, WIDTH = 21 };

struct setup {
    const char *model, *optimizer;
    const struct exec_device *device; /* NULL: lanes */
    float momentum, weight_decay, max_norm;
    bool dense;
    int64_t batch, shards;
    int ranks, threads;
    int nodes;         /* 0: one */
    enum pass_way way; /* between them */
    int64_t used;      /* ids that occur are below this */
    int n_steps;
    int64_t samples[STEPS_MAX], length[STEPS_MAX]; /* of each step */
};

struct outcome {
    char hash[65];
    double loss[STEPS_MAX];
    double states;        /* the optimizer's, of all tables: a sum that tells them apart */
    uint64_t allocations; /* after the second step, which has met all shapes */
};

/* Models ------------------------------------------------------------------------------- */

/* Two tables, of which the second is not as wide as a line of memory; a token is to be told by both. */
static void build_tokens(struct graph *graph, const struct model_config *config,
                         struct value *input, struct value *target)
{
    struct value *a = build_embedding(graph, "a", input, config->vocab[0], WIDTH);
    struct value *b = build_embedding(graph, "b", input, config->vocab[0], 3);
    struct value *x = build_add(graph, "sum", build_linear(graph, "up", b, WIDTH), a);

    build_token_loss(graph, build_linear(graph, "head", x, 5), target);
}

static const struct model tokens = { .name = "tokens",
                                     .task = MODEL_NEXT_TOKEN,
                                     .build = build_tokens };

/* The mean of a text's embeddings. */
static void build_bag(struct graph *graph, const struct model_config *config,
                      struct value *input, struct value *target)
{
    struct value *x = build_embedding_mean(graph, "a", input, config->vocab[0], WIDTH);

    build_classifier_loss(graph, build_linear(graph, "head", x, 5), target);
}

static const struct model bag = { .name = "bag",
                                  .task = MODEL_TEXT_CLASSES,
                                  .build = build_bag };

/* The head is the table. */
static void build_tied(struct graph *graph, const struct model_config *config,
                       struct value *input, struct value *target)
{
    struct value *x = build_embedding(graph, "a", input, config->vocab[0], WIDTH);
    struct value *table = graph_find_value(graph, "a.weight");

    build_token_loss(graph, build_linear_tied(graph, "head", x, table), target);
}

static const struct model tied = { .name = "tied",
                                   .task = MODEL_NEXT_TOKEN,
                                   .build = build_tied };

static const struct model *const models[] = { &tokens, &bag, &tied };

static const struct model *find_model(const char *name)
{
    size_t i = 0;
    while (strcmp(models[i]->name, name) != 0)
        i++;
    return models[i];
}

static struct graph *build(const struct setup *setup)
{
    const struct model *model = find_model(setup->model);
    struct model_config config = model_defaults(model);
    struct graph *graph;

    config.vocab[0] = VOCABULARY;
    config.length[0] = LENGTH;
    config.batch = setup->batch;
    CHECK_OK(model_build(model, &config, &graph));
    return graph;
}

/* Jobs --------------------------------------------------------------------------------- */

struct job {
    const struct setup *setup;
    struct optim_config optim;
    struct graph *graph;
    struct kernel_choices *choices;
    struct outcome outcomes[RANKS_MAX];
    void (*look)(struct exec *exec, int step); /* after each step, or NULL */
};

static void make_job(const struct setup *setup, struct job *job)
{
    struct pass_config config = { .batch = setup->batch,
                                  .shards = setup->shards,
                                  .ranks = setup->ranks,
                                  .dense = setup->dense,
                                  .network = { setup->nodes, 1e-5, 1e8 },
                                  .way = setup->way };
    const char *strategy = setup->nodes > 1   ? "parallax"
                           : setup->ranks > 1 ? "mirrored"
                                              : "single";

    *job = (struct job){ .setup = setup };
    job->optim.optimizer = optim_find(setup->optimizer);
    job->optim.attrs = job->optim.optimizer->defaults;
    job->optim.attrs.momentum = setup->momentum;
    job->optim.attrs.weight_decay = setup->weight_decay;
    job->optim.attrs.max_norm = setup->max_norm;
    job->optim.schedule = (struct schedule){ .kind = SCHEDULE_CONSTANT, .lr = 0.03125 };
    config.optim = job->optim;
    job->graph = build(setup);
    CHECK_OK(pass_run(job->graph, strategy_find(strategy)->passes, &config, NULL));
    CHECK_OK(kernel_choices_load(NULL, &job->choices));
}

/* A sample's ids are drawn from its number: lower ones more often, some padding at the end. */
static void fill_sample(const struct setup *setup, int64_t number, int step, int32_t *x,
                        int32_t *y, bool by_token)
{
    const int64_t length = setup->length[step];
    struct rng rng;

    rng_init(&rng, (uint64_t)number, (uint64_t)step);
    const int64_t padding = (int64_t)rng_below(&rng, (uint64_t)length + 1);
    for (int64_t t = 0; t < length; t++) {
        const bool is_padding = t >= length - padding;
        const uint64_t below = 1 + rng_below(&rng, (uint64_t)setup->used);
        const int32_t id = (int32_t)rng_below(&rng, below);
        x[t] = is_padding ? -1 : id;
        if (by_token)
            y[t] = is_padding ? -1 : id % 5;
    }
    if (!by_token)
        y[0] = (int32_t)rng_below(&rng, 5);
}

static enum status make_batch(const struct setup *setup, const struct exec *exec, int step,
                              struct batch *out)
{
    const int64_t samples = setup->samples[step], shards = setup->shards;
    const int64_t length = setup->length[step], first_shard = exec_first_shard(exec);
    const bool by_token = find_model(setup->model)->task == MODEL_NEXT_TOKEN;
    const int64_t end =
        sampler_shard_begin(samples, shards, first_shard + exec_shard_count(exec));

    *out = (struct batch){ .step = (uint64_t)step,
                           .samples = samples,
                           .weight = samples * (by_token ? length : 1),
                           .length = { length } };
    out->first = sampler_shard_begin(samples, shards, first_shard);
    out->rows = end - out->first;
    TRY(mem_alloc((size_t)(out->rows * length), sizeof(int32_t), &out->x));
    TRY(mem_alloc((size_t)(out->rows * length), sizeof(int32_t), &out->y));
    for (int64_t r = 0; r < out->rows; r++)
        fill_sample(setup, out->first + r, step, (int32_t *)out->x + r * length,
                    out->y + r * (by_token ? length : 1), by_token);
    return STATUS_OK;
}

static void free_batch(struct batch *batch)
{
    mem_free(batch->x);
    mem_free(batch->y);
}

static enum status sum_states(const struct exec *exec, double *out)
{
    float *plain;

    for (int p = 0; p < exec_param_count(exec); p++) {
        const int64_t count = shape_count(&exec_param(exec, p)->shape);
        TRY(mem_alloc((size_t)count, sizeof *plain, &plain));
        for (int k = 0; k < exec_state_count(exec, p); k++) {
            exec_get(exec, p, k, plain);
            for (int64_t i = 0; i < count; i++)
                *out += (double)plain[i] * (double)(1 + i % 97);
        }
        mem_free(plain);
    }
    return STATUS_OK;
}

static enum status train(const struct job *job, struct exec *exec, struct comm *comm,
                         struct outcome *out)
{
    TRY(exec_init_params(exec));
    for (int s = 0; s < job->setup->n_steps; s++) {
        struct exec_result result;
        struct batch batch;

        TRY(make_batch(job->setup, exec, s, &batch));
        TRY(comm_barrier(comm));
        const uint64_t before = mem_count();
        const enum status status = exec_step(exec, &batch, &result);
        TRY(comm_barrier(comm));
        out->allocations += s > 1 ? mem_count() - before : 0;
        TRY(comm_barrier(comm)); /* before another rank makes its next batch */
        free_batch(&batch);
        TRY(status);
        bool taken = false;
        if (result.is_late)
            TRY(exec_take_result(exec, true, &result, &taken));
        out->loss[s] = result.loss;
        if (job->look) {
            TRY(exec_settle(exec));
            job->look(exec, s);
        }
    }
    TRY(exec_collect(exec));
    if (comm_rank(comm) == 0)
        TRY(sum_states(exec, &out->states));
    return exec_hash(exec, out->hash);
}

static enum status run_rank(struct comm *comm, void *arg)
{
    struct job *job = arg;
    const struct exec_config config = {
        .train = job->graph,
        .comm = comm,
        .threads = job->setup->threads,
        .shards = job->setup->shards,
        .batch = job->setup->batch,
        .seed = 5,
        .device = job->setup->device,
        .choices = job->choices,
        .optim = job->optim,
    };
    struct exec *exec;

    TRY(exec_create(&config, &exec));
    const enum status status = train(job, exec, comm, &job->outcomes[comm_rank(comm)]);
    exec_destroy(exec);
    return status;
}

static struct outcome run_looking(const struct setup *setup,
                                  void (*look)(struct exec *exec, int step))
{
    static struct job job;

    make_job(setup, &job);
    job.look = look;
    if (setup->nodes > 1)
        CHECK_OK(comm_testing_nodes(setup->ranks, setup->nodes, NULL, run_rank, &job));
    else
        CHECK_OK(comm_testing_threads(setup->ranks, NULL, run_rank, &job));
    graph_destroy(job.graph);
    kernel_choices_destroy(job.choices);
    for (int r = 1; r < setup->ranks && setup->nodes > 1; r++)
        CHECK_TEXT(job.outcomes[0].hash, job.outcomes[r].hash);
    return job.outcomes[0];
}

static struct outcome run(struct setup setup, int ranks, int threads)
{
    setup.ranks = ranks;
    setup.threads = threads;
    return run_looking(&setup, NULL);
}

static void check_same(const struct setup *setup, const char *what, const struct outcome *a,
                       const struct outcome *b)
{
    if (strcmp(a->hash, b->hash) != 0 || memcmp(a->loss, b->loss, sizeof a->loss) != 0 ||
        a->states != b->states)
        test_fail(__FILE__, __LINE__, "%s, %s, %lld shards: %s differ, loss %.9g and %.9g",
                  setup->model, setup->optimizer, (long long)setup->shards, what, a->loss[1],
                  b->loss[1]);
}

/* Tests -------------------------------------------------------------------------------- */

static const struct setup usual = {
    .model = "tokens",
    .optimizer = "adam",
    .weight_decay = 0.03125F,
    .batch = 24,
    .shards = 6,
    .used = VOCABULARY,
    .n_steps = 6,
    .samples = { 24, 24, 19, 3, 1, 24 }, /* whole, uneven, and fewer than shards */
    .length = { 12, 8, 8, 4, 12, 12 },
};

static void test_weights_do_not_depend_on_ranks_and_threads(void)
{
    static const char *const names[] = { "tokens", "bag", "tied" };
    static const int64_t shards[] = { 1, 4, 6, 8 };

    for (size_t m = 0; m < 3; m++) {
        for (size_t i = 0; i < 4; i++) {
            struct setup setup = usual;
            setup.model = names[m];
            setup.shards = shards[i];
            setup.max_norm = i % 2 ? 0 : 0.25F;
            const struct outcome alone = run(setup, 1, 1);
            for (int ranks = 1; ranks <= RANKS_MAX && ranks <= shards[i]; ranks++) {
                for (int threads = 1; threads <= 3; threads++) {
                    const struct outcome other = run(setup, ranks, threads);
                    check_same(&setup, "ranks and threads", &alone, &other);
                }
            }
        }
    }
}

/* Also there rows that do not occur stay as they are, state included. */
static void test_a_device_gives_the_bits_of_lanes(void)
{
    static const char *const names[] = { "tokens", "bag", "tied" };
    static const char *const optimizers[] = { "adam", "sgd" };
    static const int64_t shards[] = { 1, 6 };
    struct exec_device device = { .precision = DTYPE_F32 };

    CHECK_OK(device_find("cpu", &device.face));
    CHECK_OK(device.face->open(0, &device.device));
    for (size_t i = 0; i < 12; i++) {
        struct setup setup = usual;
        setup.model = names[i % 3];
        setup.optimizer = optimizers[i / 6];
        setup.momentum = 0.5F;
        setup.used = 40;
        setup.shards = shards[i / 3 % 2];
        const struct outcome alone = run(setup, 1, 1);
        setup.device = &device;
        const struct outcome there = run(setup, 1, 1);
        check_same(&setup, "a device and lanes", &alone, &there);
        for (int ranks = 2; ranks <= RANKS_MAX && ranks <= setup.shards; ranks++) {
            device.group_bytes = ranks == 3 ? 0 : 1024; /* one group, or several */
            const struct outcome together = run(setup, ranks, 1);
            check_same(&setup, "ranks on a device", &alone, &together);
        }
    }
    device.face->close(device.device);
}

static void test_weights_do_not_depend_on_the_way_between_machines(void)
{
    static const char *const names[] = { "tokens", "bag", "tied" };
    static const int64_t shards[] = { 4, 6, 8 };

    for (size_t m = 0; m < 3; m++) {
        for (size_t i = 0; i < 3; i++) {
            struct setup setup = usual;
            setup.model = names[m];
            setup.shards = shards[i];
            setup.max_norm = i % 2 ? 0.25F : 0;
            const struct outcome alone = run(setup, 1, 1);
            for (int ranks = 2; ranks <= RANKS_MAX; ranks++) {
                for (setup.way = PASS_GATHER; setup.way <= PASS_SERVE; setup.way++) {
                    setup.nodes = ranks == 4 && i == 1 ? 2 : ranks;
                    const struct outcome other = run(setup, ranks, 1 + (int)(i % 2));
                    check_same(&setup, pass_way_names[setup.way], &alone, &other);
                }
            }
        }
    }
}

static void test_any_setup_gives_the_same_bits_on_any_ranks(struct rng *rng)
{
    static const char *const names[] = { "tokens", "bag" };
    static const char *const optimizers[] = { "sgd", "adam", "adamw" };
    const int64_t shards = 1 + (int64_t)rng_below(rng, 9);
    struct setup setup = {
        .model = names[rng_below(rng, 2)],
        .optimizer = optimizers[rng_below(rng, 3)],
        .momentum = rng_below(rng, 2) ? 0.5F : 0,
        .weight_decay = rng_below(rng, 2) ? 0.125F : 0,
        .max_norm = rng_below(rng, 2) ? 0.25F : 0,
        .batch = shards * (1 + (int64_t)rng_below(rng, 3)),
        .shards = shards,
        .used = 1 + (int64_t)rng_below(rng, VOCABULARY),
        .n_steps = 1 + (int)rng_below(rng, 5),
    };

    for (int s = 0; s < setup.n_steps; s++) {
        setup.samples[s] = 1 + (int64_t)rng_below(rng, (uint64_t)setup.batch);
        setup.length[s] = 1 + (int64_t)rng_below(rng, LENGTH);
    }
    const struct outcome alone = run(setup, 1, 1);
    const int ranks =
        1 + (int)rng_below(rng, shards < RANKS_MAX ? (uint64_t)shards : RANKS_MAX);
    setup.nodes = rng_below(rng, 2) ? 1 + (int)rng_below(rng, (uint64_t)ranks) : 1;
    setup.way = rng_below(rng, 2) ? PASS_SERVE : PASS_WAYS;
    const struct outcome other = run(setup, ranks, 1 + (int)rng_below(rng, 3));
    check_same(&setup, "ranks, nodes and threads", &alone, &other);
}

/* Without momentum and decay a row without gradient does not change in the dense form, and in Adam's
 * first step none does. */
static void test_sums_are_those_of_the_dense_form(void)
{
    static const char *const names[] = { "tokens", "bag" };

    for (size_t m = 0; m < 2; m++) {
        struct setup setup = usual;
        setup.model = names[m];
        setup.optimizer = "sgd";
        setup.weight_decay = 0;
        setup.dense = false;
        const struct outcome rows = run(setup, 2, 2);
        setup.dense = true;
        const struct outcome dense = run(setup, 2, 2);
        check_same(&setup, "rows and the dense form", &rows, &dense);

        setup.optimizer = "adam";
        setup.n_steps = 1;
        const struct outcome first_dense = run(setup, 1, 2);
        setup.dense = false;
        const struct outcome first = run(setup, 1, 2);
        check_same(&setup, "the first steps of Adam", &first, &first_dense);
        setup.n_steps = 3;
        const struct outcome lazy = run(setup, 1, 2);
        setup.dense = true;
        const struct outcome eager = run(setup, 1, 2);
        CHECK(strcmp(lazy.hash, eager.hash) != 0);
    }
}

/* All ids are below 100. */
static float seen[3][VOCABULARY * WIDTH]; /* the table and its states after the step before */

static bool is_same_row(const float *a, const float *b, int row)
{
    return memcmp(a + row * WIDTH, b + row * WIDTH, WIDTH * sizeof *a) == 0;
}

static void look_at_rows(struct exec *exec, int step)
{
    static float now[VOCABULARY * WIDTH];
    int changed = 0;

    for (int p = 0; p < exec_param_count(exec); p++) {
        if (strcmp(exec_param(exec, p)->name, "a.weight") != 0)
            continue;
        for (int k = -1; k < exec_state_count(exec, p); k++) {
            exec_get(exec, p, k, now);
            for (int row = 0; row < VOCABULARY; row++) {
                const bool stays = is_same_row(now, seen[k + 1], row);
                changed += step > 0 && !stays;
                if (step > 0 && row >= 100)
                    CHECK(stays);
            }
            memcpy(seen[k + 1], now, sizeof now);
        }
    }
    CHECK(step == 0 || changed > 10);
}

static void test_rows_that_do_not_occur_stay(void)
{
    static const char *const optimizers[] = { "sgd", "adam", "adamw" };

    for (size_t i = 0; i < 3; i++) {
        struct setup setup = usual;
        setup.optimizer = optimizers[i];
        setup.momentum = 0.875F;
        setup.used = 100;
        setup.ranks = 1;
        setup.threads = 2;
        setup.samples[3] = 24;
        setup.samples[4] = 24;
        (void)run_looking(&setup, look_at_rows);
    }
}

/* Norms of rows are those of the dense form, but for the last bits of their sums. */
static void test_clipped_rows_move_as_the_dense_form_does(void)
{
    struct setup setup = usual;

    setup.optimizer = "sgd";
    setup.weight_decay = 0;
    const struct outcome free = run(setup, 2, 1);
    setup.max_norm = 0.25F;
    const struct outcome rows = run(setup, 2, 1);
    setup.dense = true;
    const struct outcome dense = run(setup, 2, 1);
    CHECK(strcmp(free.hash, rows.hash) != 0);
    for (int s = 0; s < setup.n_steps; s++)
        CHECK_CLOSE(dense.loss[s], rows.loss[s], 1e-7);
}

static void test_tied_tables_and_norms_of_parameters_take_the_dense_form(void)
{
    struct setup setup = usual;
    struct job job;

    setup.ranks = setup.threads = 1;
    for (int i = 0; i < 5; i++) {
        int sums = 0;

        setup.model = i == 2 ? "tied" : "tokens";
        setup.max_norm = i == 1 ? 1 : 0;
        setup.dense = i == 3;
        setup.optimizer = i == 4 ? "lamb" : "adam";
        make_job(&setup, &job);
        for (int n = 0; n < graph_node_count(job.graph); n++) {
            const struct node *node = graph_node(job.graph, n);
            sums += node->op == &op_row_sum && node->out[0]->form == VALUE_ROWS;
        }
        CHECK_INT(i < 2 ? 2 : 0, sums);
        graph_destroy(job.graph);
        kernel_choices_destroy(job.choices);
    }
}

static void test_nothing_is_allocated_after_the_first_steps(void)
{
    struct setup setup = usual;

    for (int s = 0; s < setup.n_steps; s++) {
        setup.samples[s] = setup.batch;
        setup.length[s] = s % 2 ? 8 : 12;
    }
    CHECK_INT(0, run(setup, 1, 2).allocations);
    setup.max_norm = 0.25F;
    CHECK_INT(0, run(setup, 2, 1).allocations);
}

static void test_sequences_beyond_the_models_length_are_refused(void)
{
    static struct job job;
    struct setup setup = usual;

    setup.length[1] = LENGTH + 4;
    setup.ranks = setup.threads = 1;
    make_job(&setup, &job);
    CHECK_STATUS(STATUS_USAGE, comm_testing_threads(1, NULL, run_rank, &job));
    CHECK_MESSAGE("16");
    graph_destroy(job.graph);
    kernel_choices_destroy(job.choices);
}

const struct test tests[] = {
    { .name = "weights do not depend on ranks and threads",
      .run = test_weights_do_not_depend_on_ranks_and_threads },
    { .name = "a device gives the bits of lanes",
      .run = test_a_device_gives_the_bits_of_lanes },
    { .name = "weights do not depend on the way between machines",
      .run = test_weights_do_not_depend_on_the_way_between_machines },
    { .name = "any setup gives the same bits on any ranks",
      .property = test_any_setup_gives_the_same_bits_on_any_ranks },
    { .name = "sums are those of the dense form",
      .run = test_sums_are_those_of_the_dense_form },
    { .name = "rows that do not occur stay", .run = test_rows_that_do_not_occur_stay },
    { .name = "clipped rows move as the dense form does",
      .run = test_clipped_rows_move_as_the_dense_form_does },
    { .name = "tied tables and norms of parameters take the dense form",
      .run = test_tied_tables_and_norms_of_parameters_take_the_dense_form },
    { .name = "nothing is allocated after the first steps",
      .run = test_nothing_is_allocated_after_the_first_steps },
    { .name = "sequences beyond the model's length are refused",
      .run = test_sequences_beyond_the_models_length_are_refused },
    { 0 },
};
