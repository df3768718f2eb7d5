/* SPDX-License-Identifier: MIT */
/* remote_test.c - executors that give their sums to a server have the bits of one that updates by itself.
 *
 * Workers run on lanes or on a device, which is the CPU. The server is a struct: it keeps what workers give and, when all have given a bucket, adds along the tree and
 * updates. Workers take turns in one thread, so that nobody waits: a worker's step needs what all
 * gave in the one before.
 */
#include <string.h>

#include "base/mem.h"
#include "base/test.h"
#include "data/sampler.h"
#include "exec/exec_testing.h"
#include "exec/vectors.h"
#include "graph/build.h"
#include "kernel/float_mode.h"
#include "model/model.h"
#include "pass/strategy.h"

enum { WORKERS = 3, STEPS = 4, SHARDS = 9, BATCH = 36, LENGTH = 7, VOCABULARY = 90, SIDE = 4 };

/* Two tables, one of which is no multiple of a line wide, and layers. */
static void build_tokens(struct graph *graph, const struct model_config *config,
                         struct value *input, struct value *target)
{
    struct value *a = build_embedding(graph, "a", input, config->vocab[0], 21);
    struct value *b = build_embedding(graph, "b", input, config->vocab[0], 3);
    struct value *x = build_add(graph, "sum", build_linear(graph, "up", b, 21), a);

    build_token_loss(graph, build_linear(graph, "head", x, 5), target);
}

/* Running averages are updated, too. */
static void build_normed(struct graph *graph, const struct model_config *config,
                         struct value *input, struct value *target)
{
    const struct build_conv conv = { .channels = 5, .kernel = 3, .stride = 1, .pad = 1 };
    struct value *x = build_conv2d(graph, "conv", input, conv);

    x = build_batch_norm(graph, "bn", x, config->training);
    build_classifier_loss(graph, build_linear(graph, "fc", x, 5), target);
}

static const struct model tokens = { .name = "tokens",
                                     .task = MODEL_NEXT_TOKEN,
                                     .build = build_tokens };
static const struct model normed = { .name = "normed", .build = build_normed };

struct server;

/* What a worker of the server's is, and has given. */
struct worker {
    struct server *server;
    struct exec *exec;
    struct transport *transport;
    struct comm *comm;
    struct exec_remote remote;
    void *memory;
    int given[GRAPH_NODE_IN]; /* steps in which it gave a bucket */
    struct exec_rows lists[GRAPH_NODE_IN][2 * TREE_DEPTH];
    int n_lists[GRAPH_NODE_IN];
};

struct setup {
    const struct model *model;
    const char *optimizer;
    int workers, threads;
    const struct exec_device *device; /* that workers run on; NULL: lanes */
    int64_t shards, rows[WORKERS + 1];
    int64_t samples[STEPS];
};

struct server {
    const struct setup *setup;
    struct optim_config optim;
    struct vectors vectors;
    struct worker workers[WORKERS];
    float *param, *state[KERNEL_STATES];
    int updated[GRAPH_NODE_IN]; /* steps */
};

/* A job ---------------------------------------------------------------------------------- */

static struct optim_config optim_of(const struct setup *setup)
{
    struct optim_config optim = { .optimizer = optim_find(setup->optimizer) };

    optim.attrs = optim.optimizer->defaults;
    optim.schedule = (struct schedule){ .kind = SCHEDULE_CONSTANT, .lr = 0.0625 };
    return optim;
}

static struct graph *graph_of(const struct setup *setup, bool is_served)
{
    static const struct pass *const serving[] = { &pass_serve, NULL };
    const struct pass_config passes = { .batch = BATCH,
                                        .shards = setup->shards,
                                        .ranks = 1,
                                        .bucket_bytes = 600,
                                        .optim = optim_of(setup) };
    struct model_config config = model_defaults(setup->model);
    struct graph *graph;

    config.sample = (struct shape){ 3, { 1, SIDE, SIDE } };
    config.classes = 5;
    config.vocab[0] = VOCABULARY;
    config.length[0] = LENGTH;
    config.training = true;
    config.batch = BATCH;
    CHECK_OK(model_build(setup->model, &config, &graph));
    CHECK_OK(pass_run(graph, strategy_find("single")->passes, &passes, NULL));
    if (is_served)
        CHECK_OK(pass_run(graph, serving, &passes, NULL));
    return graph;
}

/* A sample's numbers are drawn from its own. */
static void fill(const struct setup *setup, int64_t sample, int step, char *x, int32_t *y)
{
    struct rng rng;

    rng_init(&rng, (uint64_t)sample, (uint64_t)step);
    if (setup->model == &tokens) {
        for (int i = 0; i < LENGTH; i++) {
            ((int32_t *)x)[i] = (int32_t)rng_below(&rng, 1 + rng_below(&rng, VOCABULARY));
            y[i] = (int32_t)rng_below(&rng, 5);
        }
        return;
    }
    *y = (int32_t)rng_below(&rng, 5);
    for (int i = 0; i < SIDE * SIDE; i++)
        ((float *)x)[i] = (float)rng_normal(&rng);
}

static void one_step(const struct setup *setup, struct exec *exec, int step)
{
    static float x[BATCH * SIDE * SIDE];
    static int32_t y[BATCH * LENGTH];
    const int64_t samples = setup->samples[step], first = exec_first_shard(exec);
    const int64_t begin = sampler_shard_begin(samples, setup->shards, first);
    const int64_t end =
        sampler_shard_begin(samples, setup->shards, first + exec_shard_count(exec));
    const int per_x = setup->model == &tokens ? LENGTH : SIDE * SIDE;
    const int per_y = setup->model == &tokens ? LENGTH : 1;
    const struct batch batch = { .step = (uint64_t)step,
                                 .samples = samples,
                                 .weight = samples * per_y,
                                 .own_weight = (end - begin) * per_y,
                                 .first = begin,
                                 .rows = end - begin,
                                 .length = { setup->model == &tokens ? LENGTH : 0, 0 },
                                 .x = x,
                                 .y = y };
    struct exec_result result;

    for (int64_t r = 0; r < batch.rows; r++)
        fill(setup, begin + r, step, (char *)(x + r * per_x), y + r * per_y);
    CHECK_OK(exec_step(exec, &batch, &result));
}

static void make_exec(const struct setup *setup, const struct graph *graph,
                      struct kernel_choices *choices, struct worker *worker,
                      struct exec_part part)
{
    CHECK_OK(transport_inproc_create(1, &worker->transport));
    CHECK_OK(comm_create(worker->transport, NULL, &worker->comm));
    const struct exec_config config = { .train = graph,
                                        .comm = worker->comm,
                                        .threads = setup->threads,
                                        .shards = setup->shards,
                                        .batch = BATCH,
                                        .part = part,
                                        .remote = worker->server ? &worker->remote : NULL,
                                        .seed = 5,
                                        .device = worker->server ? setup->device : NULL,
                                        .choices = choices,
                                        .optim = optim_of(setup) };
    CHECK_OK(exec_create(&config, &worker->exec));
    CHECK_OK(exec_init_params(worker->exec));
}

static void destroy_exec(struct worker *worker)
{
    exec_destroy(worker->exec);
    comm_destroy(worker->comm);
    transport_inproc_destroy(&worker->transport, 1);
    mem_free(worker->memory);
}

/* The server ----------------------------------------------------------------------------- */

static enum status get_memory(void *arg, size_t bytes, void **out)
{
    struct worker *worker = arg;

    TRY(mem_alloc(bytes, 1, &worker->memory));
    *out = worker->memory;
    return STATUS_OK;
}

static void update(struct server *server, int b, const float *sum, size_t at, size_t count)
{
    const struct bucket *bucket = &server->vectors.buckets[b];
    const struct kernel_update_step numbers =
        optim_step(&server->optim, (uint64_t)server->updated[b]);
    float *state[KERNEL_STATES] = { NULL };

    for (int i = 0; i < server->vectors.n_states; i++)
        state[i] = server->state[i] + at;
    bucket->kernel->run(server->param + at, sum, state, count, &bucket->attrs, &numbers);
}

static void update_dense(struct server *server, int b)
{
    static float scratch[TREE_SCRATCH];
    struct tree_part parts[WORKERS * 2 * TREE_DEPTH];
    int n_parts = 0;

    for (int w = 0; w < server->setup->workers; w++) {
        const struct tree_part *sums;
        const int count = exec_sums(server->workers[w].exec, &sums);
        memcpy(parts + n_parts, sums, (size_t)count * sizeof *sums);
        n_parts += count;
    }
    const size_t end = (size_t)server->vectors.begin[b + 1];
    for (size_t at = (size_t)server->vectors.begin[b]; at < end; at += TREE_STRETCH) {
        const size_t count = end - at < TREE_STRETCH ? end - at : TREE_STRETCH;
        update(server, b,
               tree_combine(parts, n_parts, server->setup->shards, at, count, scratch), at,
               count);
    }
}

static void update_row(struct server *server, int b, int32_t id)
{
    static float data[TREE_DEPTH * 32];
    const size_t width = (size_t)server->vectors.buckets[b].width;
    struct tree_sums sums = { .data = data, .floats = 32, .width = width };

    for (int w = 0; w < server->setup->workers; w++) {
        const struct worker *worker = &server->workers[w];
        for (int l = 0; l < worker->n_lists[b]; l++) {
            const struct exec_rows *list = &worker->lists[b][l];
            for (int64_t i = 0; i < list->count; i++) {
                if (list->ids[i] == id)
                    memcpy(tree_sums_push(&sums, list->node.begin),
                           list->rows + (size_t)i * width, width * sizeof(float));
            }
        }
    }
    if (sums.count == 0)
        return;
    tree_sums_end(&sums);
    update(server, b, data, (size_t)server->vectors.begin[b] + (size_t)id * width, width);
}

static void update_bucket(struct server *server, int b)
{
    const unsigned mode = kernel_flush_denormals();

    if (server->vectors.buckets[b].width == 0)
        update_dense(server, b);
    for (int32_t id = 0; id < (int32_t)server->vectors.buckets[b].rows; id++)
        update_row(server, b, id);
    kernel_restore_float_mode(mode);
    server->updated[b]++;
}

/* Lanes call it, so it does not use CHECK; who gave is looked at by one_round. */
static enum status give(void *arg, int b)
{
    ((struct worker *)arg)->given[b]++;
    return STATUS_OK;
}

static enum status give_rows(void *arg, int b, const struct exec_rows *lists, int n_lists)
{
    struct worker *worker = arg;

    for (int l = 0; l < n_lists; l++) {
        for (int64_t i = 1; i < lists[l].count; i++) {
            if (lists[l].ids[i] <= lists[l].ids[i - 1])
                return FAIL(STATUS_MISMATCH, "ids %d and %d", (int)lists[l].ids[i - 1],
                            (int)lists[l].ids[i]);
        }
    }
    memcpy(worker->lists[b], lists, (size_t)n_lists * sizeof *lists);
    worker->n_lists[b] = n_lists;
    return give(arg, b);
}

/* All workers have given everything before any of them comes here again. */
static enum status await(void *arg, int b)
{
    const struct worker *worker = arg;

    return worker->server->updated[b] == worker->given[b]
               ? STATUS_OK
               : FAIL(STATUS_MISMATCH, "bucket %d: %d updates, %d pushes", b,
                      worker->server->updated[b], worker->given[b]);
}

/* Every worker runs a step, then the server updates and gives values to all. */
static void one_round(struct server *server, int step)
{
    const size_t bytes = (size_t)server->vectors.begin[server->vectors.count] * sizeof(float);

    for (int w = 0; w < server->setup->workers; w++)
        one_step(server->setup, server->workers[w].exec, step);
    for (int b = 0; b < server->vectors.count; b++) {
        for (int w = 0; w < server->setup->workers; w++)
            CHECK_INT(step + 1, server->workers[w].given[b]);
        update_bucket(server, b);
    }
    for (int w = 0; w < server->setup->workers; w++)
        memcpy(exec_vector(server->workers[w].exec, -1), server->param, bytes);
}

static void run_served(const struct setup *setup, struct kernel_choices *choices, char hash[65])
{
    static struct server server;
    struct graph *graph = graph_of(setup, true);

    server = (struct server){ .setup = setup, .optim = optim_of(setup) };
    CHECK_OK(vectors_read(graph, &server.optim, &server.vectors));
    const size_t count = (size_t)server.vectors.begin[server.vectors.count];
    CHECK_OK(mem_alloc(count, sizeof(float), &server.param));
    for (int i = 0; i < server.vectors.n_states; i++)
        CHECK_OK(mem_alloc(count, sizeof(float), &server.state[i]));
    for (int w = 0; w < setup->workers; w++) {
        struct worker *worker = &server.workers[w];
        const struct exec_part part = { .first = setup->rows[w],
                                        .count = setup->rows[w + 1] - setup->rows[w],
                                        .with_others = true };
        worker->server = &server;
        worker->remote = (struct exec_remote){ .arg = worker,
                                               .memory = get_memory,
                                               .give = give,
                                               .give_rows = give_rows,
                                               .await = await };
        make_exec(setup, graph, choices, worker, part);
    }
    memcpy(server.param, exec_vector(server.workers[0].exec, -1), count * sizeof(float));
    for (int s = 0; s < STEPS; s++)
        one_round(&server, s);
    struct exec *last = server.workers[setup->workers - 1].exec;
    CHECK_OK(exec_settle(last));
    CHECK_OK(exec_hash(last, hash));
    for (int w = 0; w < setup->workers; w++)
        destroy_exec(&server.workers[w]);
    mem_free(server.param);
    for (int i = 0; i < server.vectors.n_states; i++)
        mem_free(server.state[i]);
    graph_destroy(graph);
}

static void run_alone(const struct setup *setup, struct kernel_choices *choices, char hash[65])
{
    struct worker worker = { 0 };
    struct graph *graph = graph_of(setup, false);

    make_exec(setup, graph, choices, &worker, (struct exec_part){ 0 });
    for (int s = 0; s < STEPS; s++)
        one_step(setup, worker.exec, s);
    CHECK_OK(exec_settle(worker.exec));
    CHECK_OK(exec_hash(worker.exec, hash));
    destroy_exec(&worker);
    graph_destroy(graph);
}

static void test_what_servers_sum_and_update_has_the_bits_of_one_executor(struct rng *rng)
{
    static const int64_t counts[] = { 1, 2, 4, 6, 9, 9, 9, 9 };
    struct setup setup = {
        .model = rng_below(rng, 4) ? &tokens : &normed,
        .optimizer = rng_below(rng, 2) ? "sgd" : "adam",
        .workers = 1 + (int)rng_below(rng, WORKERS),
        .threads = 1 + (int)rng_below(rng, 4),
    };
    struct kernel_choices *choices;
    struct exec_device device;
    char alone[65], served[65];

    exec_testing_open_cpu(&device);
    setup.device = rng_below(rng, 2) ? &device : NULL;
    do
        setup.shards = counts[rng_below(rng, 8)];
    while (setup.shards < setup.workers);
    for (int w = 1; w <= setup.workers; w++) { /* each has one shard at least */
        const int64_t left = setup.shards - setup.rows[w - 1] - (setup.workers - w);
        setup.rows[w] = w == setup.workers
                            ? setup.shards
                            : setup.rows[w - 1] + 1 + (int64_t)rng_below(rng, (uint64_t)left);
    }
    for (int s = 0; s < STEPS; s++) /* in some steps some shards have no samples */
        setup.samples[s] = rng_below(rng, 3) ? BATCH : 2 + (int64_t)rng_below(rng, BATCH - 1);
    CHECK_OK(kernel_choices_load(NULL, &choices));
    run_alone(&setup, choices, alone);
    run_served(&setup, choices, served);
    if (strcmp(alone, served) != 0)
        test_fail(__FILE__, __LINE__, "%s, %s: %d workers of %d threads%s, %d shards differ",
                  setup.model->name, setup.optimizer, setup.workers, setup.threads,
                  setup.device ? " with devices" : "", (int)setup.shards);
    kernel_choices_destroy(choices);
    device.face->close(device.device);
}

/* The graph says whether there are servers, and so must the configuration. */
static void test_servers_and_graph_must_agree(void)
{
    const struct setup setup = { .model = &normed, .optimizer = "sgd", .shards = 2 };
    struct worker worker = { 0 };
    struct graph *graph = graph_of(&setup, true);
    struct kernel_choices *choices;
    struct exec *exec;

    CHECK_OK(kernel_choices_load(NULL, &choices));
    CHECK_OK(transport_inproc_create(1, &worker.transport));
    CHECK_OK(comm_create(worker.transport, NULL, &worker.comm));
    const struct exec_config config = { .train = graph,
                                        .comm = worker.comm,
                                        .threads = 1,
                                        .shards = 2,
                                        .batch = BATCH,
                                        .choices = choices,
                                        .optim = optim_of(&setup) };
    CHECK_STATUS(STATUS_MISMATCH, exec_create(&config, &exec));
    CHECK_MESSAGE("servers");
    destroy_exec(&worker);
    kernel_choices_destroy(choices);
    graph_destroy(graph);
}

const struct test tests[] = {
    { .name = "what servers sum and update has the bits of one executor",
      .property = test_what_servers_sum_and_update_has_the_bits_of_one_executor },
    { .name = "servers and graph must agree", .run = test_servers_and_graph_must_agree },
    { 0 },
};
