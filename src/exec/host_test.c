/* SPDX-License-Identifier: MIT */
/* host_test.c - averages of workers: whoever comes late or early, over shared memory and by messages, each
 * gets the mean that a plain sum over the same workers has. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "base/test.h"
#include "comm/comm_testing.h"
#include "exec/exec.h"
#include "graph/build.h"
#include "model/model.h"
#include "pass/strategy.h"

enum { ROUNDS = 30, WORKERS = 6 };

static void build_layers(struct graph *graph, const struct model_config *config,
                         struct value *input, struct value *target)
{
    (void)config;
    (void)target;
    for (int i = 0; i < 3; i++) {
        char name[8];
        snprintf(name, sizeof name, "fc%d", i);
        input = build_linear(graph, name, input, i == 2 ? 9 : 31);
    }
    build_reconstruction_loss(graph, input);
}

static const struct model layers = { .name = "layers", .build = build_layers };

struct trial {
    const char *strategy;
    enum pass_neighbors neighbors;
    int workers, nodes;
    uint64_t seed;
    const struct graph *graph;
    const struct kernel_choices *choices;
    struct optim_config optim;
};

/* Element i of a worker's parameters in a round. */
static float number_of(const struct trial *trial, int worker, int round, size_t i)
{
    const uint64_t at = ((uint64_t)worker * ROUNDS + (uint64_t)round) * 100000 + i;
    struct rng rng;

    rng_init(&rng, trial->seed + at, 0);
    return (float)(rng_below(&rng, 2001)) / 1000 - 1;
}

static bool is_neighbor(const struct trial *trial, int worker, int other)
{
    const int n = trial->workers, offset = (other - worker + n) % n;

    if (strcmp(trial->strategy, "localsgd") == 0 || offset == 0)
        return true;
    return trial->neighbors == NEIGHBORS_RING ? offset == 1 || offset == n - 1
                                              : (offset & (offset - 1)) == 0;
}

static enum status check_mean(const struct trial *trial, const struct exec *exec, int worker,
                              int round, const float *mean)
{
    for (int p = 0; p < exec_param_count(exec); p++) {
        const size_t begin = exec_place(exec, p);
        const size_t end = begin + (size_t)shape_count(&exec_param(exec, p)->shape);
        for (size_t i = begin; i < end; i++) {
            double sum = 0;
            int count = 0;
            for (int w = 0; w < trial->workers; w++) {
                if (!is_neighbor(trial, worker, w))
                    continue;
                sum += (double)number_of(trial, w, round, i);
                count++;
            }
            if (!(fabs((double)mean[i] - sum / count) < 1e-6))
                return FAIL(STATUS_MISMATCH,
                            "worker %d has %.9g at %zu in round %d, the mean is %.9g", worker,
                            (double)mean[i], i, round, sum / count);
        }
    }
    return STATUS_OK;
}

/* Workers come at times of their own. */
static void come_late(struct rng *rng)
{
    const struct timespec some = { .tv_nsec = rng_below(rng, 4) ? 0 : 300000 };

    nanosleep(&some, NULL);
}

static enum status average(const struct trial *trial, struct exec *exec, int worker)
{
    float *own = exec_vector(exec, -1), *mean;
    const size_t length = exec_vector_length(exec);
    enum status status = STATUS_OK;
    struct rng rng;

    rng_init(&rng, trial->seed + (uint64_t)worker, 1);
    TRY(mem_alloc(length, sizeof *mean, &mean));
    for (int round = 0; round < ROUNDS && status == STATUS_OK; round++) {
        for (size_t i = 0; i < length; i++)
            own[i] = number_of(trial, worker, round, i);
        exec_wrote_params(exec);
        come_late(&rng);
        status = exec_average(exec, 1, mean);
        if (status == STATUS_OK)
            status = check_mean(trial, exec, worker, round, mean);
    }
    mem_free(mean);
    return status;
}

static enum status run_alone(const struct trial *trial, struct comm *comm, struct comm *alone)
{
    const int worker = comm_rank(comm);
    const struct exec_config config = {
        .train = trial->graph,
        .comm = alone,
        .threads = 1,
        .shards = trial->workers,
        .batch = trial->workers,
        .part = { .first = worker, .count = 1 },
        .workers = { trial->workers, worker, trial->nodes, comm },
        .choices = trial->choices,
        .optim = trial->optim,
    };
    struct exec *exec;

    TRY(exec_create(&config, &exec));
    const enum status status = average(trial, exec, worker);
    exec_destroy(exec);
    return status;
}

static enum status run_worker(struct comm *comm, void *arg)
{
    struct transport *transport;
    struct comm *alone = NULL;

    TRY(transport_inproc_create(1, &transport));
    enum status status = comm_create(transport, NULL, &alone);
    if (status == STATUS_OK)
        status = run_alone(arg, comm, alone);
    comm_destroy(alone);
    transport_inproc_destroy(&transport, 1);
    return status;
}

static void run(struct trial *trial)
{
    const struct pass_config passes = { .batch = trial->workers,
                                        .shards = trial->workers,
                                        .ranks = trial->workers,
                                        .bucket_bytes = 1024,
                                        .neighbors = trial->neighbors,
                                        .optim = trial->optim };
    struct model_config config = model_defaults(&layers);
    struct kernel_choices *choices;
    struct graph *graph;

    config.sample = (struct shape){ 3, { 1, 3, 3 } };
    config.training = true;
    config.batch = trial->workers;
    CHECK_OK(model_build(&layers, &config, &graph));
    CHECK_OK(pass_run(graph, strategy_find(trial->strategy)->passes, &passes, NULL));
    CHECK(pass_bucket_count(graph) > 1);
    CHECK_OK(kernel_choices_load(NULL, &choices));
    trial->graph = graph;
    trial->choices = choices;
    CHECK_OK(comm_testing_nodes(trial->workers, trial->nodes, NULL, run_worker, trial));
    graph_destroy(graph);
    kernel_choices_destroy(choices);
}

static void test_means_are_those_of_the_workers_that_the_graph_names(struct rng *rng)
{
    static const struct {
        const char *strategy;
        enum pass_neighbors neighbors;
    } rows[] = { { "localsgd", NEIGHBORS_RING },
                 { "gossip", NEIGHBORS_RING },
                 { "gossip", NEIGHBORS_EXPONENTIAL } };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct trial trial = { .strategy = rows[i].strategy,
                               .neighbors = rows[i].neighbors,
                               .workers = 2 + (int)rng_below(rng, WORKERS - 1),
                               .seed = rng_u64(rng) >> 8,
                               .optim.optimizer = optim_find("sgd") };
        trial.optim.schedule = (struct schedule){ .kind = SCHEDULE_CONSTANT, .lr = 0.125 };
        trial.nodes = rng_below(rng, 2) ? trial.workers : 1;
        run(&trial);
    }
}

const struct test tests[] = {
    { .name = "means are those of the workers that the graph names",
      .property = test_means_are_those_of_the_workers_that_the_graph_names },
    { 0 },
};
