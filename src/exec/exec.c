/* SPDX-License-Identifier: MIT */
/* exec.c - making an executor: lanes, shared memory, plans. */
#include "exec/exec.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "base/mem.h"
#include "exec/device_side.h"
#include "exec/pages.h"
#include "graph/op.h"
#include "kernel/float_mode.h"
#include "pass/pass.h"

enum { WINDOW_LEAST = 1 << 20 };

/* Which shards a part has of a row: [number * shards / parts, (number + 1) * shards / parts). */
static int64_t row_begin(int64_t shards, int64_t parts, int64_t number)
{
    return number * shards / parts;
}

int64_t exec_first_shard(const struct exec *exec)
{
    return topology_own_first(&exec->topology);
}

int64_t exec_shard_count(const struct exec *exec)
{
    return topology_own_end(&exec->topology) - topology_own_first(&exec->topology);
}

void exec_move_part(struct exec *exec, int64_t first)
{
    BUG_ON(!exec->config.part.count || exec->config.part.with_others || first < 0 ||
           first + exec->topology.shards > exec->config.shards);
    exec->config.part.first = exec->topology.first_shard = first;
    if (exec->device) /* these shards may have other rows */
        device_forget_graphs(exec->device);
}

int exec_sums(const struct exec *exec, const struct tree_part **out)
{
    *out = exec->remote ? exec->remote->sums : NULL;
    return exec->remote ? exec->remote->n_sums : 0;
}

int64_t exec_tree_shards(const struct exec *exec)
{
    return exec->topology.tree_shards;
}

int exec_lanes(const struct exec *exec)
{
    return exec->topology.n_lanes;
}

/* One a thread if there are shards for all of them on every rank; else one a shard, and threads
 * share its work. */
static int lanes_for(int64_t fewest, int threads)
{
    return threads <= fewest ? threads : fewest > 1 ? (int)fewest : 1;
}

int exec_lanes_of(int64_t shards, int ranks, int threads)
{
    return lanes_for(shards / ranks, threads);
}

/* Shards of the rank that has fewest. */
static int64_t fewest_shards(const struct exec *exec)
{
    int64_t fewest = exec->topology.shards;

    for (int r = 0; r < exec->topology.ranks; r++) {
        const int64_t mine = exec->topology.begins[r + 1] - exec->topology.begins[r];
        fewest = mine < fewest ? mine : fewest;
    }
    return fewest;
}

static enum status check_rows(const struct exec *exec)
{
    const struct exec_config *config = &exec->config;

    if (exec->topology.shards < exec->topology.ranks)
        return FAIL(STATUS_USAGE, "%lld shards are fewer than %d ranks: raise --shards",
                    (long long)exec->topology.shards, exec->topology.ranks);
    if (exec->topology.begins[0] != 0 ||
        exec->topology.begins[exec->topology.ranks] != exec->topology.shards ||
        fewest_shards(exec) < 1)
        return FAIL(STATUS_USAGE, "%lld shards are not given to %d ranks in rows",
                    (long long)exec->topology.shards, exec->topology.ranks);
    if (config->part.count && exec->topology.ranks > 1)
        return FAIL(STATUS_USAGE, "a part of a job is for one rank, there are %d",
                    exec->topology.ranks);
    if (exec->topology.first_shard < 0 || exec->topology.shards < 1 ||
        exec->topology.first_shard + exec->topology.shards > config->shards)
        return FAIL(STATUS_USAGE, "shards %lld to %lld are no part of %lld",
                    (long long)exec->topology.first_shard,
                    (long long)(exec->topology.first_shard + exec->topology.shards),
                    (long long)config->shards);
    if (config->remote && exec->topology.ranks > 1)
        return FAIL(STATUS_USAGE, "an executor with servers is for one rank, there are %d",
                    exec->topology.ranks);
    if (exec->topology.tree_shards > exec->topology.shards && !config->remote)
        return FAIL(STATUS_UNSUPPORTED, "there is nobody to add what other parts have");
    return STATUS_OK;
}

/* Which shards these ranks run, and along which tree. */
static enum status find_part(struct exec *exec)
{
    const struct exec_part *part = &exec->config.part;
    const bool is_whole = part->count == 0;

    exec->topology.shards = is_whole ? exec->config.shards : part->count;
    exec->topology.first_shard = is_whole ? 0 : part->first;
    exec->topology.tree_first = part->with_others ? exec->topology.first_shard : 0;
    exec->topology.tree_shards =
        part->with_others ? exec->config.shards : exec->topology.shards;
    exec->topology.job_shards = exec->config.shards;
    TRY(mem_alloc((size_t)exec->topology.ranks + 1, sizeof *exec->topology.begins,
                  &exec->topology.begins));
    for (int r = 0; r <= exec->topology.ranks; r++)
        exec->topology.begins[r] =
            exec->config.rows ? exec->config.rows[r]
                              : row_begin(exec->topology.shards, exec->topology.ranks, r);
    return STATUS_OK;
}

/* Shards of lane `number` of this node. */
static void lane_row(const struct exec *exec, int number, int64_t *first, int64_t *count)
{
    exec_lane_row(exec, exec->topology.first_lane + number, first, count);
}

/* Reading the graph -------------------------------------------------------------------- */

static enum status read_params(struct exec *exec)
{
    const struct graph *graph = exec->config.train;
    const size_t n_values = (size_t)graph_value_count(graph) + 1;
    int number = 0;

    TRY(mem_alloc(n_values, sizeof *exec->model.params, &exec->model.params));
    TRY(mem_alloc(n_values, sizeof *exec->model.numbers, &exec->model.numbers));
    for (int i = 0; i < graph_value_count(graph); i++) {
        const struct value *value = graph_value(graph, i);
        if (value->kind != VALUE_PARAM && value->kind != VALUE_AVERAGE)
            continue;
        if (pass_is_local(&exec->layout.buckets.pipeline, value->stage)) {
            exec->model.numbers[exec->model.count] = number;
            exec->model.params[exec->model.count++] = value;
        }
        number++;
    }
    exec->model.total = number;
    struct vectors vectors;
    TRY(vectors_read(graph, &exec->config.optim, &vectors));
    exec->layout.buckets.count = vectors.count;
    memcpy(exec->layout.buckets.begin, vectors.begin, sizeof vectors.begin);
    memcpy(exec->layout.updates, vectors.buckets, sizeof vectors.buckets);
    exec->layout.n_states = vectors.n_states;
    exec->layout.vector = (size_t)exec->layout.buckets.begin[exec->layout.buckets.count];
    if (exec->config.batch == 0) /* no step, so no shapes */
        return STATUS_OK;
    struct extents extents = graph_extents(graph);
    extents.rows = (exec->config.batch + exec->config.shards - 1) / exec->config.shards;
    TRY(mem_alloc((size_t)graph_value_count(graph) + 1, sizeof *exec->layout.largest,
                  &exec->layout.largest));
    return graph_infer(graph, extents, exec->layout.largest);
}

/* Facts ----------------------------------------------------------------------------- */

/* Parameters that are gathered before they are read. One node has them all; and without steps there
 * are no inter-node threads. */
static void find_held(struct exec *exec)
{
    const struct step_facts *facts = &exec->layout.facts;
    uint64_t held = 0;

    for (int b = 0; b < facts->n_buckets && exec->config.batch > 0; b++)
        held |= (uint64_t)facts->buckets[b].is_held << b;
    if (exec->topology.nodes > 1)
        exec->hold.buckets = held;
    if (exec->config.device)
        exec->layout.buckets.held = held; /* device_parts.c */
}

static void find_compressed(struct exec *exec)
{
    const struct step_facts *facts = &exec->layout.facts;

    for (int b = 0; b < facts->n_buckets; b++) {
        if (exec->topology.nodes > 1 && exec->config.compress.codec &&
            facts->buckets[b].kind == BUCKET_DENSE && !facts->buckets[b].is_average)
            exec->layout.compressed |= UINT64_C(1) << b;
    }
}

static enum status read_facts(struct exec *exec)
{
    const struct facts_job job = { .nodes = exec->topology.nodes,
                                   .ranks = exec->topology.ranks,
                                   .has_servers = exec->config.remote != NULL,
                                   .has_steps = exec->config.batch > 0 };

    TRY(facts_read(exec->config.train, &job, &exec->layout.facts));
    find_held(exec);
    find_compressed(exec);
    TRY(layout_place_records(&exec->layout, &exec->model, exec->topology.shards));
    return facts_check(exec->config.train, &job, &exec->layout.facts);
}

/* Memory ------------------------------------------------------------------------------- */

/* Hands out pieces of one block; with base NULL it only counts. */
struct carver {
    char *base;
    size_t used;
};

static void *carve(struct carver *carver, size_t count, size_t size)
{
    void *piece = carver->base ? carver->base + carver->used : NULL;
    carver->used += (count * size + 4095) / 4096 * 4096;
    return piece;
}

/* What goes to servers: sums over this executor's lanes, in memory that they see, and rows of
 * tables. */
static void lay_out_given(struct exec *exec, struct carver *carver, struct carver *given)
{
    struct remote *remote = exec->remote;

    for (int i = 0; i < remote->n_sums && !remote->is_direct; i++)
        remote->data[i] = carve(given, exec->layout.vector, sizeof(float));
    for (int b = 0; b < exec->layout.buckets.count; b++) {
        const struct row_sum *r = &exec->layout.row_sums[b];
        if (!bucket_is_table(&exec->layout, b))
            continue;
        const size_t most = (size_t)(exec->topology.shards * r->most);
        remote->ids[b] = carve(carver, most, sizeof(int32_t));
        remote->rows[b] = carve(carver, most * (size_t)r->width, sizeof(float));
    }
}

/* given: of sums that go to servers. */
static void lay_out(struct exec *exec, struct carver *carver, struct carver *given)
{
    const size_t buckets = (size_t)exec->layout.buckets.count;
    const size_t shards = (size_t)exec->topology.shards;
    const size_t pieces = (size_t)exec->norms->count;

    exec->memory.counters =
        carve(carver, (size_t)exec->program->n_signals, sizeof *exec->memory.counters);
    exec->hold.furthest = carve(carver, 1, sizeof *exec->hold.furthest);
    exec->memory.flags =
        carve(carver, 2 * (size_t)exec->topology.ranks, sizeof *exec->memory.flags);
    exec->account.arrivals = carve(carver, 1, account_bytes(&exec->account));
    exec->memory.losses = carve(carver, 2 * shards, sizeof(float));
    exec->memory.corrects = carve(carver, 2 * shards, sizeof(float));
    exec->memory.param = carve(carver, exec->layout.vector, sizeof(float));
    for (int i = 0; i < exec->layout.n_states; i++)
        exec->memory.state[i] = carve(carver, exec->layout.vector, sizeof(float));
    if (exec->layout.facts.rule.anchors) {
        exec->memory.anchor = carve(carver, exec->layout.vector, sizeof(float));
        exec->memory.shift = carve(carver, exec->layout.vector, sizeof(float));
    }
    exec->memory.records = carve(carver, shards, exec->layout.record);
    exec->memory.tables = carve(carver, 1, exec->layout.tables_bytes);
    if (norms_are_used(&exec->sums) || exec->config.compress.codec)
        exec->memory.sum = carve(carver, exec->layout.vector, sizeof(float));
    if (norms_are_used(&exec->sums)) {
        exec->norms->gradients = carve(carver, pieces, sizeof(double));
        exec->norms->params = carve(carver, pieces, sizeof(double));
        exec->norms->moves = carve(carver, pieces, sizeof(double));
        exec->norms->rows =
            carve(carver, buckets * norms_row_sums(&exec->sums), sizeof *exec->norms->rows);
    }
    if (exec->remote)
        lay_out_given(exec, carver, given);
    if (!exec->remote || !exec->remote->is_direct)
        given = carver; /* gradients stay here */
    exec->memory.n_parts = exec->memory.own_parts = 0;
    for (int number = 0; number < exec->topology.all_lanes; number++) {
        struct tree_stack stack;
        int64_t first, count;

        lane_row(exec, number, &first, &count);
        const bool has_none =
            exec->layout.buckets.pass || (exec->config.device && !exec->remote);
        const int buffers = has_none ? 0
                                     : tree_buffers(exec->topology.tree_shards,
                                                    exec->topology.tree_first + first, count);
        float *gradients = carve(given, (size_t)buffers * exec->layout.vector, sizeof(float));
        if (!carver->base)
            continue;
        if ((exec->topology.first_lane + number) / exec->topology.n_lanes ==
            exec->topology.rank) {
            exec->lanes[number % exec->topology.n_lanes].gradients = gradients;
            exec->lanes[number % exec->topology.n_lanes].n_buffers = buffers;
        }
        tree_stack_init(&stack, exec->topology.tree_shards);
        for (int64_t v = first; v < first + count; v++) {
            tree_stack_push(&stack, exec->topology.tree_first + v);
            while (tree_stack_can_add(&stack))
                tree_stack_add(&stack);
        }
        exec->memory.own_parts +=
            (exec->topology.first_lane + number) / exec->topology.n_lanes == exec->topology.rank
                ? stack.count
                : 0;
        for (int i = 0; i < stack.count; i++)
            exec->memory.parts[exec->memory.n_parts++] =
                (struct tree_part){ stack.node[i],
                                    gradients + (size_t)i * exec->layout.vector };
    }
}

static enum status share_memory(struct exec *exec)
{
    struct carver carver = { 0 }, given = { 0 };

    lay_out(exec, &carver, &given);
    exec->memory.bytes = carver.used + given.used;
    TRY(transport_share(exec->transport, carver.used, &exec->memory.block));
    void *memory = NULL;
    if (exec->remote)
        TRY(exec->config.remote->memory(exec->config.remote->arg, given.used, &memory));
    TRY(mem_alloc((size_t)(exec->topology.all_lanes + exec->topology.nodes) * 2 * TREE_DEPTH,
                  sizeof *exec->memory.parts, &exec->memory.parts));
    carver = (struct carver){ .base = exec->memory.block };
    given = (struct carver){ .base = memory };
    lay_out(exec, &carver, &given);
    if (exec->config.zero >= 2)
        pages_keep_small(exec->memory.block, exec->memory.bytes);
    if (exec->remote)
        remote_start(exec->remote, exec->memory.parts);
    return STATUS_OK;
}

/* The threads that help a lane compute as the lane does; the lane's own does so in run_lane. */
static void flush_denormals(void *arg, int index)
{
    (void)arg;
    if (index > 0)
        kernel_flush_denormals();
}

static void point_lane(struct exec *exec, struct lane *lane, int index)
{
    lane->exec = exec;
    lane->topology = &exec->topology;
    lane->layout = &exec->layout;
    lane->memory = &exec->memory;
    lane->now = &exec->now;
    lane->worker.sums = &exec->sums;
    lane->worker.number =
        exec->topology.rank * exec->topology.n_lanes + index - exec->topology.first_lane;
    lane->clock.account = &exec->account;
    lane->clock.lane = lane->worker.number;
    lane->clock.is_first = index == 0;
    lane->tensor = (struct lane_tensor){ .config = &exec->config,
                                         .index = index,
                                         .lanes = exec->topology.n_lanes };
}

static enum status make_lanes(struct exec *exec)
{
    /* A pipeline takes its shards one after the other; threads share each op. */
    exec->topology.n_lanes = exec->layout.buckets.pipeline.stages > 0
                                 ? 1
                                 : lanes_for(fewest_shards(exec), exec->config.threads);
    exec->topology.all_lanes =
        exec->topology.n_lanes * transport_node_size(exec->transport, exec->topology.node);
    exec->topology.first_lane =
        exec->topology.n_lanes * transport_node_first(exec->transport, exec->topology.node);
    exec->topology.job_lanes = exec->topology.n_lanes * exec->topology.ranks;
    if (exec->topology.job_lanes > LANES_MAX)
        return FAIL(STATUS_USAGE, "%d lanes are more than %d", exec->topology.job_lanes,
                    LANES_MAX);
    const int helpers = exec->config.threads / exec->topology.n_lanes; /* threads of a lane */
    exec->sums.threads = helpers > 1 ? helpers : 1;
    const size_t join = columns_scratch(&exec->sums);
    TRY(mem_alloc((size_t)exec->topology.n_lanes, sizeof *exec->lanes, &exec->lanes));
    for (int i = 0; i < exec->topology.n_lanes; i++) {
        struct lane *lane = &exec->lanes[i];
        point_lane(exec, lane, i);
        lane_row(exec, lane->worker.number, &lane->first, &lane->count);
        TRY(columns_create(&lane->worker));
        const size_t reduce = (size_t)helpers * reduce_scratch(&lane->worker);
        TRY(mem_alloc(1, reduce > join ? reduce : join, &lane->worker.scratch));
        if (helpers > 1) {
            TRY(pool_create(helpers, &lane->worker.pool));
            pool_run(lane->worker.pool, flush_denormals, NULL);
        }
    }
    /* One shard alone, and the norm of all gradients need not be known: decision 0019. */
    exec->layout.buckets.pass = exec->topology.tree_shards == 1 &&
                                !norms_are_used(&exec->sums) && !exec->config.remote &&
                                !exec->config.privacy && !exec->config.device;
    return exec->topology.n_lanes > 1 ? pool_create(exec->topology.n_lanes, &exec->lanes_pool)
                                      : STATUS_OK;
}

/* What is given back, and how much may be under way: about two buckets. */
static void find_window(struct exec *exec)
{
    const size_t some = exec->layout.vector * sizeof(float) / 32;

    exec->layout.window = exec->config.window   ? exec->config.window
                          : some > WINDOW_LEAST ? some
                                                : WINDOW_LEAST;
    exec->layout.releases = exec->config.zero >= 2 && !exec->layout.buckets.pass;
    exec->layout.buckets.held |= exec->hold.buckets;
}

/* What follows from the configuration and from who is where; no other rank is asked. */
static enum status read_config(struct exec *exec, struct transport *transport)
{
    const struct exec_config *config = &exec->config;

    exec->transport = exec->account.transport = transport;
    exec->topology.rank = transport_rank(transport);
    exec->topology.ranks = transport_size(transport);
    if (config->pipeline.stages > 1 || config->pipeline.ordered)
        exec->layout.buckets.pipeline =
            (struct pass_pipeline){ .stages = config->pipeline.stages,
                                    .chunks = config->pipeline.chunks,
                                    .own = config->pipeline.own };
    TRY(find_part(exec));
    exec->topology.node = transport_node_of(exec->transport, exec->topology.rank);
    exec->topology.nodes = transport_nodes(exec->transport);
    TRY(read_params(exec));
    TRY(read_facts(exec));
    TRY(check_rows(exec));
    TRY(gathers_find(config, &exec->topology, &exec->layout));
    TRY(privacy_check(config, &exec->topology, &exec->layout));
    TRY(norms_create(&exec->sums, exec->norms));
    if (config->device)
        TRY(device_check(exec));
    TRY(make_lanes(exec));
    return gathers_check(config, &exec->topology, &exec->layout);
}

static enum status share_layers(struct exec *exec)
{
    uint32_t tags = 0;

    TRY(talk_create(&exec->config, &exec->topology, exec->layout.facts.rule.adapts, &tags));
    for (int i = 0; i < exec->topology.n_lanes; i++)
        exec->lanes[i].tensor.tag = tags + (uint32_t)i;
    return STATUS_OK;
}

static enum status make_accounts(struct exec *exec)
{
    TRY(account_create(&exec->account, &exec->model, &exec->layout));
    for (int i = 0; i < exec->topology.n_lanes; i++) {
        struct lane_clock *clock = &exec->lanes[i].clock;
        char name[32];

        (void)snprintf(name, sizeof name, "lane %d", i);
        TRY(mem_alloc((size_t)exec->topology.ranks, sizeof *clock->waited_for,
                      &clock->waited_for));
        TRY(trace_add_row(exec->config.trace, name, 0, &clock->trace));
    }
    return STATUS_OK;
}

/* Lanes know what steps need, when it is there. */
static void give_program(struct exec *exec)
{
    for (int i = 0; i < exec->topology.n_lanes; i++)
        exec->lanes[i].program = exec->program;
}

static enum status make_remote(struct exec *exec)
{
    const enum status status = remote_create(&exec->sums, &exec->remote);

    exec->sums.remote = exec->remote;
    return status;
}

static enum status create(struct exec *exec)
{
    const struct exec_config *config = &exec->config;

    if (config->beside.transport)
        exec->sums.beside_tag = transport_new_tags(config->beside.transport, 2);
    transport_set_patience(exec->transport, config->stall_timeout);
    TRY(share_layers(exec));
    if (exec->topology.nodes > 1 && !config->device)
        TRY(net_create(exec));
    if (config->remote)
        TRY(make_remote(exec));
    TRY(pipe_create(exec));
    TRY(make_accounts(exec));
    find_window(exec);
    TRY(hold_create(exec));
    TRY(exec_make_program(exec));
    TRY(talk_verify(exec->program, &exec->config, exec->lanes[0].tensor.tag));
    give_program(exec);
    transport_set_waiters(exec->transport, exec->topology.all_lanes + (exec->net != NULL));
    TRY(share_memory(exec));
    TRY(average_create(exec));
    if (config->device)
        TRY(device_create(exec));
    if (exec->net)
        TRY(net_start(exec));
    if (config->batch < config->shards)
        return STATUS_OK;
    struct extents extents = graph_extents(config->train);
    extents.rows = config->batch / config->shards;
    return exec_prepare(exec, extents, false);
}

static enum status allocate(const struct exec_config *config, struct exec **out)
{
    struct exec *exec;

    TRY(mem_alloc(1, sizeof *exec, &exec));
    enum status status = mem_alloc(1, sizeof *exec->norms, &exec->norms);
    if (status == STATUS_OK)
        status = mem_alloc(1, sizeof *exec->clip, &exec->clip);
    if (status != STATUS_OK) {
        mem_free(exec->norms);
        mem_free(exec);
        return status;
    }
    exec->config = *config;
    if (config->device)
        exec->config.threads = 1;
    exec->sums = (struct sums){ .config = &exec->config,
                                .topology = &exec->topology,
                                .model = &exec->model,
                                .layout = &exec->layout,
                                .memory = &exec->memory,
                                .now = &exec->now,
                                .norms = exec->norms,
                                .clip = exec->clip,
                                .threads = 1 };
    exec->account = (struct exec_account){ .config = &exec->config,
                                           .topology = &exec->topology,
                                           .memory = &exec->memory,
                                           .now = &exec->now };
    pthread_mutex_init(&exec->account.overlap.lock, NULL);
    pthread_mutex_init(&exec->clip->lock, NULL);
    *out = exec;
    return STATUS_OK;
}

enum status exec_create(const struct exec_config *config, struct exec **out)
{
    struct exec *exec;

    TRY(allocate(config, &exec));
    enum status status = read_config(exec, comm_transport(config->comm));
    if (status == STATUS_OK)
        status = create(exec);
    if (status != STATUS_OK) {
        exec_destroy(exec);
        return status;
    }
    *out = exec;
    return STATUS_OK;
}

enum status exec_lower(const struct exec_config *config, struct transport *transport,
                       struct program **out)
{
    struct exec *exec;

    TRY(allocate(config, &exec));
    enum status status = read_config(exec, transport);
    if (status == STATUS_OK && config->remote)
        status = make_remote(exec);
    if (status == STATUS_OK)
        find_window(exec);
    if (status == STATUS_OK)
        status = exec_make_program(exec);
    if (status == STATUS_OK) {
        *out = exec->program;
        exec->program = NULL;
    }
    exec_destroy(exec);
    return status;
}

static void free_arena(struct lane *lane)
{
    if (lane->arenas)
        munmap(lane->arenas, lane->arena_bytes);
    lane->arenas = lane->arena = NULL;
}

static void destroy_plans(struct plan_list *plans)
{
    for (int p = 0; p < plans->count; p++)
        plan_destroy(plans->of[p]);
}

void exec_destroy(struct exec *exec)
{
    if (!exec)
        return;
    net_destroy(exec);
    average_destroy(exec);
    remote_destroy(exec->remote);
    exec_destroy_program(exec);
    device_destroy(exec);
    pipe_destroy(exec);
    hold_destroy(exec);
    pool_destroy(exec->lanes_pool);
    account_destroy(&exec->account);
    pthread_mutex_destroy(&exec->account.overlap.lock);
    pthread_mutex_destroy(&exec->clip->lock);
    for (int i = 0; exec->lanes && i < exec->topology.n_lanes; i++) {
        struct lane *lane = &exec->lanes[i];
        destroy_plans(&lane->plans);
        destroy_plans(&lane->eval_plans);
        mem_free(lane->clock.waited_for);
        free_arena(lane);
        pool_destroy(lane->worker.pool);
        mem_free(lane->worker.scratch);
        columns_destroy(&lane->worker);
        mem_free(lane->samples.x);
        mem_free(lane->samples.x2);
        mem_free(lane->samples.y);
    }
    mem_free(exec->lanes);
    mem_free(exec->topology.begins);
    mem_free(exec->model.params);
    mem_free(exec->model.numbers);
    mem_free(exec->layout.largest);
    mem_free(exec->memory.parts);
    mem_free(exec->layout.gathers.item);
    norms_destroy(exec->norms);
    mem_free(exec->norms);
    mem_free(exec->clip);
    mem_free(exec);
}

/* Plans -------------------------------------------------------------------------------- */

const struct plan *lane_plan(const struct lane *lane, struct extents extents, bool evaluation)
{
    const struct plan_list *plans = evaluation ? &lane->eval_plans : &lane->plans;

    for (int i = 0; i < plans->count; i++) {
        if (extents_equal(plans->of[i]->extents, extents))
            return plans->of[i];
    }
    return NULL;
}

/* All lanes' arenas have room for the largest plan. Mapped, not from the heap: pages that a
 * plan does not touch cost nothing. */
static enum status grow_arenas(struct exec *exec, size_t bytes)
{
    const size_t each = (bytes + 4095) / 4096 * 4096;

    if (each <= exec->arena_bytes)
        return STATUS_OK;
    bytes = each * (size_t)pipe_arenas(exec);
    for (int i = 0; i < exec->topology.n_lanes; i++) {
        struct lane *lane = &exec->lanes[i];
        void *arena =
            mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (arena == MAP_FAILED)
            return FAIL(STATUS_NO_MEMORY, "%zu bytes for activations are refused", bytes);
        madvise(arena, bytes, MADV_HUGEPAGE); /* only a hint */
        free_arena(lane);
        lane->arenas = lane->arena = arena;
        lane->arena_bytes = bytes;
        lane->bases[BASE_ARENA] = arena;
        lane->bases[BASE_PARAM] = (char *)exec->memory.param;
    }
    exec->arena_bytes = each;
    return STATUS_OK;
}

/* Plans stand in the order of their last use; moves the one for these extents to the end, if it is
 * there. */
static bool find_and_keep(struct plan **plans, int n, struct extents extents)
{
    int at = 0;

    while (at < n && !extents_equal(plans[at]->extents, extents))
        at++;
    if (at == n)
        return false;
    struct plan *found = plans[at];
    memmove(&plans[at], &plans[at + 1], (size_t)(n - at - 1) * sizeof *plans);
    plans[n - 1] = found;
    return true;
}

enum status exec_prepare(struct exec *exec, struct extents extents, bool evaluation)
{
    static const struct plan_factors no_factors;
    static const struct plan_gathers no_gathers;
    bool is_new = false;

    if (extents.rows == 0)
        return STATUS_OK;
    for (int i = 0; i < exec->topology.n_lanes; i++) {
        struct lane *lane = &exec->lanes[i];
        struct plan_list *list = evaluation ? &lane->eval_plans : &lane->plans;
        struct plan **plans = list->of;
        int *n = &list->count;

        if (find_and_keep(plans, *n, extents))
            continue;
        if (*n == PLANS_MAX) { /* the one that was not needed for longest goes */
            plan_destroy(plans[0]);
            if (exec->device)
                device_forget_graphs(exec->device);
            memmove(&plans[0], &plans[1], (PLANS_MAX - 1) * sizeof *plans);
            --*n;
        }
        struct plan_gathers gathers = exec->layout.gathers;
        gathers.shard = lane->first;
        if (exec->device)
            TRY(device_plan(exec, extents, evaluation, &plans[*n]));
        else
            TRY(plan_create(evaluation ? exec->config.eval : exec->config.train,
                            exec->config.train, extents, &exec->layout.buckets,
                            evaluation ? &no_factors : &exec->layout.factors,
                            evaluation ? &no_gathers : &gathers, exec->config.choices,
                            &plans[*n]));
        ++*n;
        if (!evaluation && !exec->device)
            TRY(lane_find_ranges(exec->program, exec->config.train, plans[*n - 1]));
        is_new = true;
    }
    const struct plan *plan = lane_plan(&exec->lanes[0], extents, evaluation);
    if (exec->device)
        return device_make_room(exec, plan, is_new);
    if (exec->pipe)
        TRY(pipe_prepare(exec, plan->outbox_bytes, plan->kept_bytes, plan->n_sends,
                         plan->n_receives));
    return grow_arenas(exec, plan->arena_bytes);
}

enum status exec_print_plan(struct exec *exec, int64_t rows, struct strbuf *out)
{
    struct extents extents = graph_extents(exec->config.train);
    extents.rows = rows;
    TRY(exec_prepare(exec, extents, false));
    const struct plan *plan = lane_plan(&exec->lanes[0], extents, false);
    for (int i = 0; i < plan->n_instructions; i++) {
        char text[KERNEL_TEXT];
        if (!plan->instructions[i].kernel) {
            const struct node *move = plan->instructions[i].node;
            strbuf_printf(out, "%-10s %s\n", move->op->name, move->name);
            continue;
        }
        strbuf_printf(out, "%-10s %s\n", plan->instructions[i].kernel->name,
                      kernel_print(&plan->instructions[i].problem, text));
    }
    return strbuf_status(out);
}

/* Lanes -------------------------------------------------------------------------------- */

struct lanes_call {
    struct exec *exec;
    void (*fn)(struct lane *lane);
};

static void run_lane(void *arg, int index)
{
    const struct lanes_call *call = arg;
    struct lane *lane = &call->exec->lanes[index];

    lane->status = STATUS_OK;
    const unsigned mode = kernel_flush_denormals();
    call->fn(lane);
    kernel_restore_float_mode(mode);
    if (lane->status != STATUS_OK)
        snprintf(lane->failure, sizeof lane->failure, "%s", status_message());
}

enum status exec_on_lanes(struct exec *exec, void (*fn)(struct lane *lane))
{
    struct lanes_call call = { exec, fn };

    if (exec->lanes_pool)
        pool_run(exec->lanes_pool, run_lane, &call);
    else
        run_lane(&call, 0);
    for (int i = 0; i < exec->topology.n_lanes; i++) {
        if (exec->lanes[i].status != STATUS_OK)
            return status_set(exec->lanes[i].status, exec->lanes[i].failure);
    }
    return STATUS_OK;
}
