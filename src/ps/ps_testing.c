/* SPDX-License-Identifier: MIT */
/* ps_testing.c - a small job with servers, and its plain model. */
#include "ps/ps_testing.h"

#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/test.h"
#include "graph/op.h"
#include "kernel/exact.h"
#include "kernel/float_mode.h"

static const char *const averages = "average_update";

void toy_share(struct toy *toy, int workers, int64_t shards)
{
    toy->config.workers = workers;
    toy->config.shards = shards;
    for (int w = 0; w <= workers; w++)
        toy->rows[w] = w * shards / workers;
    toy->config.rows = toy->rows;
}

void toy_make(struct toy *toy, struct rng *rng, int buckets, const char *optimizer)
{
    *toy = (struct toy){ .clocks = 4, .lanes = 1, .seed = rng_u64(rng) };
    toy->config.replicas = 1;
    toy->config.servers = 1;
    toy->config.optim.optimizer = optim_find(optimizer);
    toy->config.optim.attrs = toy->config.optim.optimizer->defaults;
    if (strcmp(optimizer, "sgd") == 0)
        toy->config.optim.attrs.momentum = 0.5F;
    toy->config.optim.schedule = (struct schedule){ .kind = SCHEDULE_CONSTANT, .lr = 0.125 };
    const char *op = toy->config.optim.optimizer->op->name;
    for (int b = 0; b < buckets; b++) {
        int64_t count = 16 * (1 + (int64_t)rng_below(rng, b % 2 ? 40 : 600));
        toy->tables[b] = (struct ps_table){ 0 };
        if (rng_below(rng, 3) == 0) {
            toy->tables[b] = (struct ps_table){ .rows = 1 + (int64_t)rng_below(rng, 60),
                                                .width = 1 + (int64_t)rng_below(rng, 20) };
            count = (toy->tables[b].rows * toy->tables[b].width + 15) / 16 * 16;
        }
        const bool is_average = toy->tables[b].width == 0 && rng_below(rng, 4) == 0;
        toy->updates[b] = (struct ps_update){
            .kernel = kernel_update_find(is_average ? averages : op),
            .attrs = toy->config.optim.attrs,
            .is_average = is_average,
        };
        toy->begin[b + 1] = toy->begin[b] + count;
    }
    toy->config.layout = (struct ps_layout){ .buckets = buckets,
                                             .begin = toy->begin,
                                             .tables = toy->tables,
                                             .updates = toy->updates,
                                             .n_states = optim_states(&toy->config.optim) };
    toy_share(toy, 1, 1);
}

void toy_make_whole(struct toy *toy, struct rng *rng, int workers)
{
    toy_make(toy, rng, 1 + (int)rng_below(rng, 3), "sgd");
    toy->config.optim.attrs.momentum = 0;
    toy->config.layout.n_states = 0;
    toy->config.optim.schedule.lr = workers;
    for (int b = 0; b < toy->config.layout.buckets; b++) {
        toy->updates[b] = (struct ps_update){ .kernel = kernel_update_find("sgd_update"),
                                              .attrs = toy->config.optim.attrs };
    }
    toy_share(toy, workers, workers);
    toy->is_whole = true;
}

void toy_clip(struct toy *toy, float most)
{
    struct ps_layout *layout = &toy->config.layout;

    toy->config.optim.attrs.max_norm = most;
    layout->params = toy->params;
    layout->n_params = 0;
    for (int b = layout->buckets - 1; b >= 0; b--) { /* in another order than the buckets' */
        const int64_t count = toy->begin[b + 1] - toy->begin[b];
        if (!toy->updates[b].is_average)
            toy->params[layout->n_params++] = (struct ps_param){ b, 0, count - 3 * (b % 2) };
    }
}

int64_t toy_vector(const struct toy *toy)
{
    return toy->begin[toy->config.layout.buckets];
}

static uint32_t draw(const struct toy *toy, uint32_t use, uint64_t clock, int64_t shard,
                     int64_t element)
{
    const uint32_t counter[4] = { use, (uint32_t)clock, (uint32_t)shard, (uint32_t)element };

    return rng_philox(toy->seed, counter).word[0];
}

bool toy_has_row(const struct toy *toy, int64_t shard, uint64_t clock, int64_t row)
{
    return draw(toy, 0, clock, shard, row) % 3 == 0;
}

float toy_gradient(const struct toy *toy, int64_t shard, uint64_t clock, int64_t element)
{
    const uint32_t word = draw(toy, 1, clock, shard, element);

    return toy->is_whole ? (float)(word % 7) - 3 : rng_to_float(word) - 0.5F;
}

float toy_initial(const struct toy *toy, int64_t element)
{
    const uint32_t word = draw(toy, 2, 0, 0, element);

    return toy->is_whole ? (float)(word % 100) : rng_to_float(word);
}

/* The plain model ------------------------------------------------------------------------------------ */

/* The sum over shards [begin, begin + length) below `end`; absent ones are left out. */
static float serial_sum(const struct toy *toy, uint64_t clock, int64_t element, int64_t end,
                        int64_t begin, int64_t length)
{
    if (length == 1)
        return toy_gradient(toy, begin, clock, element);
    const float left = serial_sum(toy, clock, element, end, begin, length / 2);
    if (begin + length / 2 >= end)
        return left;
    return left + serial_sum(toy, clock, element, end, begin + length / 2, length / 2);
}

static int64_t padded(int64_t shards)
{
    int64_t size = 1;

    while (size < shards)
        size *= 2;
    return size;
}

/* The same over those shards that have the row; *out_any: some have. */
static float serial_rows(const struct toy *toy, uint64_t clock, int64_t row, int64_t element,
                         int64_t begin, int64_t length, bool *out_any)
{
    *out_any = false;
    if (begin >= toy->config.shards)
        return 0;
    if (length == 1) {
        *out_any = toy_has_row(toy, begin, clock, row);
        return *out_any ? toy_gradient(toy, begin, clock, element) : 0;
    }
    bool has_left, has_right;
    const float left = serial_rows(toy, clock, row, element, begin, length / 2, &has_left);
    const float right =
        serial_rows(toy, clock, row, element, begin + length / 2, length / 2, &has_right);
    *out_any = has_left || has_right;
    return has_left && has_right ? left + right : has_left ? left : right;
}

struct model {
    float *param, *state[KERNEL_STATES];
    float *sum;    /* of all shards */
    bool *has_sum; /* not of rows that do not occur, nor behind a table */
};

static void update_one(const struct toy *toy, struct model *model, int b, int64_t at,
                       const struct kernel_update_step *numbers)
{
    const struct ps_update *update = &toy->updates[b];
    float *state[KERNEL_STATES] = { NULL };

    for (int i = 0; i < toy->config.layout.n_states; i++)
        state[i] = model->state[i] + at;
    update->kernel->reference(model->param + at, &model->sum[at], state, 1, &update->attrs,
                              numbers);
}

/* The sum of squares of one parameter: of each stretch, or of each row that occurs. */
static double squares_of(const struct toy *toy, const struct model *model,
                         const struct ps_param *param)
{
    const struct ps_table *table = &toy->tables[param->bucket];
    const int64_t unit = table->width ? table->width : TREE_STRETCH;
    const int64_t end = table->width ? table->rows * table->width : param->count;
    struct exact_sum rows = { .infinite = 0 };
    double sum = 0;

    for (int64_t at = 0; at < end; at += unit) {
        const int64_t place = toy->begin[param->bucket] + at;
        const double squares =
            kernel_sum_squares(model->sum + place, (size_t)(end - at < unit ? end - at : unit));
        if (!table->width)
            sum += squares;
        else if (model->has_sum[place])
            exact_sum_add(&rows, squares);
    }
    return table->width ? exact_sum_value(&rows) : sum;
}

static float scale_of(const struct toy *toy, const struct model *model)
{
    const struct ps_layout *layout = &toy->config.layout;
    double squares = 0;

    if (toy->config.optim.attrs.max_norm == 0)
        return 1;
    for (int p = 0; p < layout->n_params; p++)
        squares += squares_of(toy, model, &layout->params[p]);
    const double factor = (double)toy->config.optim.attrs.max_norm / (sqrt(squares) + 1e-6);
    return factor < 1 ? (float)factor : 1;
}

static void model_step(const struct toy *toy, struct model *model, uint64_t clock)
{
    struct kernel_update_step numbers = optim_step(&toy->config.optim, clock);
    const int64_t shards = toy->config.shards, size = padded(shards);

    for (int b = 0; b < toy->config.layout.buckets; b++) {
        const struct ps_table *table = &toy->tables[b];
        for (int64_t at = toy->begin[b]; at < toy->begin[b + 1]; at++) {
            bool any = true;
            model->has_sum[at] = false;
            if (table->width == 0) {
                model->sum[at] = serial_sum(toy, clock, at, shards, 0, size);
            } else {
                const int64_t row = (at - toy->begin[b]) / table->width;
                if (row >= table->rows)
                    continue;
                model->sum[at] = serial_rows(toy, clock, row, at, 0, size, &any);
            }
            model->has_sum[at] = any;
        }
    }
    numbers.scale = scale_of(toy, model);
    for (int b = 0; b < toy->config.layout.buckets; b++) {
        for (int64_t at = toy->begin[b]; at < toy->begin[b + 1]; at++) {
            if (model->has_sum[at])
                update_one(toy, model, b, at, &numbers);
        }
    }
}

enum status toy_expect(struct toy *toy)
{
    const size_t vector = (size_t)toy_vector(toy);
    struct model model = { .param = NULL };

    TRY(mem_alloc(toy->clocks + 1, sizeof(float *), &toy->expected));
    for (uint64_t c = 0; c <= toy->clocks; c++)
        TRY(mem_alloc(vector, sizeof(float), &toy->expected[c]));
    TRY(mem_alloc(vector, sizeof(float), &model.param));
    TRY(mem_alloc(vector, sizeof(float), &model.sum));
    TRY(mem_alloc(vector, sizeof(bool), &model.has_sum));
    for (int i = 0; i < toy->config.layout.n_states; i++)
        TRY(mem_alloc(vector, sizeof(float), &model.state[i]));
    for (size_t at = 0; at < vector; at++)
        model.param[at] = toy_initial(toy, (int64_t)at);
    const unsigned mode = kernel_flush_denormals();
    for (uint64_t c = 0; c <= toy->clocks; c++) {
        memcpy(toy->expected[c], model.param, vector * sizeof(float));
        model_step(toy, &model, toy->step + c);
    }
    kernel_restore_float_mode(mode);
    mem_free(model.param);
    mem_free(model.sum);
    mem_free(model.has_sum);
    for (int i = 0; i < toy->config.layout.n_states; i++)
        mem_free(model.state[i]);
    return STATUS_OK;
}

void toy_release(struct toy *toy)
{
    for (uint64_t c = 0; toy->expected && c <= toy->clocks; c++)
        mem_free(toy->expected[c]);
    mem_free(toy->expected);
    toy->expected = NULL;
}

void toy_check_all_applied(const struct toy *toy, const float *final)
{
    for (int b = 0; b < toy->config.layout.buckets; b++) {
        const struct ps_table *table = &toy->tables[b];
        for (int64_t at = toy->begin[b]; at < toy->begin[b + 1]; at++) {
            const int64_t row = table->width ? (at - toy->begin[b]) / table->width : 0;
            float expected = toy_initial(toy, at);
            for (uint64_t i = 0; i < toy->clocks * (uint64_t)toy->config.workers; i++) {
                const int64_t w = (int64_t)(i / toy->clocks);
                const uint64_t c = i % toy->clocks;
                if (!table->width || (row < table->rows && toy_has_row(toy, w, c, row)))
                    expected -= toy_gradient(toy, w, c, at);
            }
            if (expected != final[at])
                test_fail(__FILE__, __LINE__, "bucket %d, element %lld: %.9g instead of %.9g",
                          b, (long long)(at - toy->begin[b]), (double) final[at],
                          (double)expected);
        }
    }
}

/* A worker -------------------------------------------------------------------------------------------- */

struct worker {
    const struct toy *toy;
    struct ps_client *client;
    int number, n_parts;
    int place; /* whose shards it has; -1: a spare that was not needed */
    uint64_t begins;
    int64_t first, leaves; /* of its tree: shard v is leaf v - first */
    struct tree_part parts[2 * TOY_SHARDS];
    float *params, *own, *sums; /* sums: one vector a part */
    struct tree_part nodes[2 * TOY_SHARDS];
    int n_nodes;
    int32_t *ids; /* room for lists */
    float *rows;
};

static int cover(int64_t leaves, int64_t first, int64_t count, struct tree_part *out)
{
    struct tree_stack stack;

    tree_stack_init(&stack, leaves);
    for (int64_t v = first; v < first + count; v++) {
        tree_stack_push(&stack, v);
        while (tree_stack_can_add(&stack))
            tree_stack_add(&stack);
    }
    for (int i = 0; i < stack.count; i++)
        out[i] = (struct tree_part){ .node = stack.node[i] };
    return stack.count;
}

static void cut_into_parts(struct worker *worker)
{
    const struct toy *toy = worker->toy;
    const bool sums = toy->config.policy == PS_STEP;
    const int64_t first = toy->rows[worker->place];
    const int64_t count = toy->rows[worker->place + 1] - first;
    const int lanes = toy->lanes < count ? toy->lanes : (int)count;

    worker->first = sums ? 0 : first;
    worker->leaves = sums ? toy->config.shards : count;
    const int64_t begin = first - worker->first;
    for (int lane = 0; lane < lanes; lane++)
        worker->n_parts += cover(worker->leaves, begin + lane * count / lanes,
                                 (lane + 1) * count / lanes - lane * count / lanes,
                                 worker->parts + worker->n_parts);
    worker->n_nodes = cover(worker->leaves, begin, count, worker->nodes);
}

static void make_sums(struct worker *worker, int b, uint64_t clock)
{
    const struct toy *toy = worker->toy;

    for (int p = 0; p < worker->n_parts; p++) {
        const struct tree_node node = worker->parts[p].node;
        float *data = worker->sums + (size_t)p * (size_t)toy_vector(toy);
        for (int64_t at = toy->begin[b]; at < toy->begin[b + 1]; at++)
            data[at] = serial_sum(toy, clock, at, worker->first + worker->leaves,
                                  worker->first + node.begin, node.length);
    }
}

/* The sum of a row over a node of the worker's tree. */
static bool node_row(const struct worker *worker, struct tree_node node, uint64_t clock,
                     int64_t row, int64_t element, float *out)
{
    struct toy toy = *worker->toy;
    bool any;

    toy.config.shards = worker->first + worker->leaves;
    *out =
        serial_rows(&toy, clock, row, element, worker->first + node.begin, node.length, &any);
    return any;
}

static enum status push_rows(struct worker *worker, int b, uint64_t clock)
{
    const struct toy *toy = worker->toy;
    const struct ps_table *table = &toy->tables[b];
    struct ps_rows lists[2 * TOY_SHARDS];
    int32_t *ids = worker->ids;
    float *rows = worker->rows;

    for (int p = 0; p < worker->n_nodes; p++) {
        lists[p] = (struct ps_rows){ .node = worker->nodes[p].node, .ids = ids, .rows = rows };
        for (int64_t row = 0; row < table->rows; row++) {
            const int64_t at = toy->begin[b] + row * table->width;
            bool any = false;
            for (int64_t i = 0; i < table->width; i++)
                any = node_row(worker, worker->nodes[p].node, clock, row, at + i, &rows[i]);
            if (!any)
                continue;
            *ids++ = (int32_t)row;
            rows += table->width;
            lists[p].count++;
        }
    }
    return ps_push_rows(worker->client, b, lists, worker->n_nodes);
}

static enum status compare(const struct worker *worker, int b, uint64_t round)
{
    const struct toy *toy = worker->toy;

    for (int64_t at = toy->begin[b]; toy->expected && at < toy->begin[b + 1]; at++) {
        const float *expected = &toy->expected[round][at];
        if (memcmp(expected, &worker->params[at], sizeof(float)) != 0)
            return FAIL(STATUS_MISMATCH,
                        "worker %d, clock %llu, bucket %d, element %lld: %.9g not %.9g",
                        worker->number, (unsigned long long)round, b,
                        (long long)(at - toy->begin[b]), (double)worker->params[at],
                        (double)*expected);
    }
    return STATUS_OK;
}

/* What the client's thread does about a push takes time, which ps_times has when it is on its way. */
static void await_push(const struct worker *worker, double moved)
{
    while (ps_times(worker->client).move == moved)
        (void)usleep(100);
}

static enum status push_all(struct worker *worker, uint64_t clock, bool dies)
{
    const struct toy *toy = worker->toy;

    if (dies)
        atomic_store(toy->gate, GATE_READY);
    for (int b = toy->config.layout.buckets - 1; b >= 0; b--) {
        const double moved = ps_times(worker->client).move;
        if (toy->tables[b].width > 0) {
            TRY(push_rows(worker, b, clock));
        } else {
            make_sums(worker, b, clock);
            TRY(ps_push(worker->client, b));
        }
        if (!dies)
            continue;
        await_push(worker, moved);
        while (atomic_load(toy->gate) != GATE_HELD)
            (void)usleep(100);
    }
    if (dies)
        (void)raise(SIGKILL);
    return STATUS_OK;
}

static enum status run_clock(struct worker *worker, uint64_t clock)
{
    const struct toy *toy = worker->toy;
    const int buckets = toy->config.layout.buckets;
    const bool dies = toy->dies > 0 && toy->dies == worker->number && clock == toy->dies_at;

    for (int b = 0; b < buckets; b++) {
        TRY(ps_await(worker->client, b));
        TRY(compare(worker, b, clock - toy->step));
    }
    if (toy->most_delay_us > 0)
        (void)usleep(draw(toy, 3, clock, worker->number, 0) % (uint32_t)toy->most_delay_us);
    if (dies && !toy->gate)
        (void)raise(SIGKILL);
    if (toy->slow_us > 0 && toy->slow == worker->number)
        (void)usleep((useconds_t)toy->slow_us);
    return push_all(worker, clock, dies);
}

static enum status run_clocks(struct worker *worker)
{
    const struct toy *toy = worker->toy;
    const int number = worker->number;
    const struct ps_tick tick = { .loss = number + 1, .samples = 1, .bits = 1U << number };
    struct ps_heard heard = { .clock = worker->begins };
    uint64_t passed = 0;

    while (heard.clock < toy->step + toy->clocks) {
        const uint64_t clock = heard.clock;
        while (toy->awaited > 0 && number != toy->awaited && passed + 1 == toy->clocks &&
               atomic_load(&toy->ticked[toy->awaited]) == 0)
            (void)usleep(1000);
        TRY(run_clock(worker, clock));
        TRY(ps_tick(worker->client, &tick, &heard));
        passed++;
        if (toy->allocations && (passed == 2 || passed == toy->clocks)) {
            TRY(ps_meet(worker->client)); /* whoever is late still makes its lists */
            if (number == 0)
                toy->allocations[passed > 2] = mem_count();
        }
        if (toy->ticked)
            atomic_store(&toy->ticked[number], passed);
        const int n = toy->config.workers;
        if (toy->config.policy == PS_STEP && toy->config.backup == 0 &&
            (heard.clock != clock + 1 || heard.sum.samples != n ||
             heard.sum.loss != n * (n + 1) / 2.0 || heard.sum.bits != (1U << n) - 1))
            return FAIL(STATUS_MISMATCH, "worker %d heard something else", number);
    }
    return STATUS_OK;
}

static enum status begin(struct worker *worker)
{
    const struct toy *toy = worker->toy;
    const int64_t vector = toy_vector(toy);
    const struct ps_memory memory = { .params = worker->params,
                                      .parts = worker->parts,
                                      .n_parts = worker->n_parts,
                                      .shards = worker->leaves };

    worker->sums = toy->uses_room ? ps_room(worker->client) : worker->own;
    for (int p = 0; p < worker->n_parts; p++)
        worker->parts[p].data = worker->sums + p * vector;
    TRY(ps_attach(worker->client, &memory));
    for (int64_t at = 0; at < vector; at++) /* nothing comes for the gap behind a table */
        worker->params[at] = toy_initial(toy, at);
    if (worker->number == 0)
        TRY(ps_put(worker->client, -1, worker->params));
    if (worker->number < toy->config.workers - toy->config.spares)
        return ps_begin(worker->client, toy->step);
    TRY(ps_stand(worker->client, toy->step, toy->step + toy->clocks, &worker->place,
                 &worker->begins));
    worker->first = worker->place < 0 ? 0 : toy->rows[worker->place];
    return STATUS_OK;
}

static enum status end(struct worker *worker)
{
    const struct toy *toy = worker->toy;

    TRY(ps_meet(worker->client));
    if (worker->number == 0 || toy->expected) {
        for (int64_t at = 0; at < toy_vector(toy); at++)
            worker->params[at] = toy_initial(toy, at);
        TRY(ps_get(worker->client, -1, worker->params));
    }
    for (int b = 0; b < toy->config.layout.buckets; b++)
        TRY(compare(worker, b, toy->clocks));
    if (worker->number == 0 && toy->final)
        memcpy(toy->final, worker->params, (size_t)toy_vector(toy) * sizeof(float));
    if (worker->number == 0 && toy->stats)
        TRY(ps_collect(worker->client, toy->stats));
    return STATUS_OK;
}

static enum status work(struct worker *worker, struct transport *transport)
{
    const struct toy *toy = worker->toy;
    const size_t vector = (size_t)toy_vector(toy);
    struct ps_config config = toy->config;

    cut_into_parts(worker);
    const size_t sums = (size_t)worker->n_parts * vector;
    TRY(mem_alloc(vector, sizeof(float), &worker->params));
    TRY(mem_alloc(sums, sizeof(float), &worker->own));
    TRY(mem_alloc((size_t)worker->n_nodes * vector, sizeof(float), &worker->rows));
    TRY(mem_alloc((size_t)worker->n_nodes * vector, sizeof(int32_t), &worker->ids));
    config.transport = transport;
    config.room = toy->uses_room ? sums * sizeof(float) : 0;
    TRY(ps_join(&config, &worker->client));
    TRY(begin(worker));
    if (worker->place < 0)
        return STATUS_OK;
    TRY(run_clocks(worker));
    return end(worker);
}

enum status toy_rank(struct transport *transport, void *arg)
{
    const struct toy *toy = arg;
    struct worker *worker;

    if (transport_rank(transport) >= toy->config.workers) {
        struct ps_config config = toy->config;
        config.transport = transport;
        return ps_serve(&config, NULL);
    }
    TRY(mem_alloc(1, sizeof(*worker), &worker));
    worker->toy = toy;
    worker->number = transport_rank(transport);
    worker->place =
        worker->number < toy->config.workers - toy->config.spares ? worker->number : 0;
    worker->begins = toy->step;
    const enum status status = work(worker, transport);
    ps_leave(worker->client);
    mem_free(worker->params);
    mem_free(worker->own);
    mem_free(worker->rows);
    mem_free(worker->ids);
    mem_free(worker);
    return status;
}

/* Threads as ranks ------------------------------------------------------------------------------------- */

struct rank {
    struct transport *transport;
    struct toy *toy;
    pthread_t thread;
    enum status status;
    char text[256];
};

static void *run_rank(void *arg)
{
    struct rank *rank = arg;

    rank->status = (rank->toy->body ? rank->toy->body : toy_rank)(rank->transport, rank->toy);
    if (rank->status != STATUS_OK) {
        (void)snprintf(rank->text, sizeof(rank->text), "%s", status_message());
        transport_abort(rank->transport, rank->text);
    }
    return NULL;
}

enum status toy_run(struct toy *toy, int nodes)
{
    enum { MOST = 16 };
    const int size = toy->config.workers + toy->config.servers;
    struct transport *ends[MOST];
    struct rank ranks[MOST];
    enum status status = STATUS_OK;

    TRY(transport_inproc_create_nodes(size, nodes, ends));
    for (int i = 0; i < size; i++) {
        ranks[i] = (struct rank){ .transport = ends[i], .toy = toy };
        BUG_ON(pthread_create(&ranks[i].thread, NULL, run_rank, &ranks[i]) != 0);
    }
    for (int i = 0; i < size; i++)
        pthread_join(ranks[i].thread, NULL);
    transport_inproc_destroy(ends, size);
    for (int i = 0; i < size; i++) {
        if (ranks[i].status != STATUS_OK && (status == STATUS_OK || status == STATUS_PEER_LOST))
            status = status_set(ranks[i].status, ranks[i].text);
    }
    return status;
}
