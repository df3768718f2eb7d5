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

/* The first shard of a rank; of the rank after the last: how many there are. */
static int64_t rank_begin(const struct exec *exec, int rank)
{
    return exec->config.rows ? exec->config.rows[rank]
                             : row_begin(exec->topology.shards, exec->topology.ranks, rank);
}

int64_t exec_first_shard(const struct exec *exec)
{
    return exec->topology.first_shard + rank_begin(exec, exec->topology.rank);
}

int64_t exec_shard_count(const struct exec *exec)
{
    return rank_begin(exec, exec->topology.rank + 1) - rank_begin(exec, exec->topology.rank);
}

void exec_move_part(struct exec *exec, int64_t first)
{
    BUG_ON(!exec->config.part.count || exec->config.part.with_others || first < 0 ||
           first + exec->topology.shards > exec->config.shards);
    exec->config.part.first = exec->topology.first_shard = first;
    if (exec->device) /* these shards may have other rows */
        device_forget_graphs(exec->device);
}

int exec_lanes(const struct exec *exec)
{
    return exec->topology.n_lanes;
}

/* One a thread if there are shards for all of them on every rank; else one a shard, and threads share
 * its work. */
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
        const int64_t mine = rank_begin(exec, r + 1) - rank_begin(exec, r);
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
    if (rank_begin(exec, 0) != 0 ||
        rank_begin(exec, exec->topology.ranks) != exec->topology.shards ||
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
static void find_part(struct exec *exec)
{
    const struct exec_part *part = &exec->config.part;
    const bool is_whole = part->count == 0;

    exec->topology.shards = is_whole ? exec->config.shards : part->count;
    exec->topology.first_shard = is_whole ? 0 : part->first;
    exec->topology.tree_first = part->with_others ? exec->topology.first_shard : 0;
    exec->topology.tree_shards =
        part->with_others ? exec->config.shards : exec->topology.shards;
}

struct samples exec_samples(const struct exec *exec, int64_t v)
{
    const int64_t count = exec->now.batch->samples, shards = exec->config.shards;
    const int64_t begin = sampler_shard_begin(count, shards, exec->topology.first_shard + v);

    return (struct samples){
        begin, sampler_shard_begin(count, shards, exec->topology.first_shard + v + 1) - begin
    };
}

void exec_node_row(const struct exec *exec, int node, int64_t *first, int64_t *count)
{
    const int rank = transport_node_first(exec->transport, node);
    const int end = rank + transport_node_size(exec->transport, node);

    *first = rank_begin(exec, rank);
    *count = rank_begin(exec, end) - *first;
}

void exec_lane_row(const struct exec *exec, int number, int64_t *first, int64_t *count)
{
    const int rank = number / exec->topology.n_lanes, lane = number % exec->topology.n_lanes;
    const int64_t begin = rank_begin(exec, rank);
    const int64_t mine = rank_begin(exec, rank + 1) - begin;

    *first = begin + row_begin(mine, exec->topology.n_lanes, lane);
    *count = begin + row_begin(mine, exec->topology.n_lanes, lane + 1) - *first;
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

/* Factors ------------------------------------------------------------------------------- */

const struct value *exec_source_of(const struct value *value)
{
    while (value->maker && (value->maker->op->is_view || value->maker->op == &op_all_gather))
        value = value->maker->in[0];
    return value;
}

enum status exec_place_factor(struct exec *exec, const struct value *value, int bucket,
                              size_t *out_offset)
{
    const struct value *source = exec_source_of(value);
    struct plan_factors *factors = &exec->layout.factors;

    for (int i = 0; i < factors->count; i++) {
        if (factors->item[i].value == source) {
            factors->item[i].buckets |= UINT64_C(1) << bucket;
            *out_offset = factors->item[i].offset;
            return STATUS_OK;
        }
    }
    if (factors->count == PLAN_FACTORS)
        return FAIL(STATUS_UNSUPPORTED, "more than %d factors", PLAN_FACTORS);
    factors->item[factors->count++] = (struct plan_factor){ .value = source,
                                                            .offset = exec->layout.record,
                                                            .buckets = UINT64_C(1) << bucket };
    *out_offset = exec->layout.record;
    const size_t count =
        exec->layout.largest ? (size_t)shape_count(&exec->layout.largest[source->id]) : 0;
    const size_t bytes = count * dtype_size(source->dtype);
    exec->layout.record += (bytes + 63) / 64 * 64;
    return STATUS_OK;
}

static enum status read_factored(struct exec *exec, const struct node *node)
{
    const int b = node->attrs.bucket;
    struct factored *f = &exec->layout.factored[b];

    f->is_used = true;
    f->k = node->in[0]->shape.dim[1];
    f->n = node->in[1]->shape.dim[1];
    for (int i = 0; i < exec->model.count; i++) {
        if (plan_bucket_of(exec->model.params[i]->flat) == b &&
            exec->model.params[i]->offset > 0)
            f->bias = exec->model.params[i]->offset;
    }
    TRY(exec_place_factor(exec, node->in[0], b, &f->x));
    TRY(exec_place_factor(exec, node->in[1], b, &f->dy));
    return columns_find(exec, b);
}

/* Parameters that are gathered before they are read. One node has them all; and without steps there are
 * no inter-node threads. */
static void read_held(struct exec *exec, const struct node *node)
{
    const uint64_t bit = UINT64_C(1) << node->attrs.bucket;

    if (exec->topology.nodes > 1 && exec->config.batch > 0)
        exec->hold.buckets |= bit;
    if (exec->config.device && exec->config.batch > 0)
        exec->layout.buckets.held |= bit; /* device_parts.c */
}

/* What nodes that run once a step say of memory. Refuses forms that no task runs. */
static enum status read_step_nodes(struct exec *exec)
{
    bool across = false, pushes = false;

    for (int n = 0; n < graph_node_count(exec->config.train); n++) {
        const struct node *node = graph_node(exec->config.train, n);
        if (node->op->split[0] != SPLIT_WHOLE)
            continue;
        if (node->op == &op_factor_sum) {
            TRY(read_factored(exec, node));
            across |= node->in[0]->maker && node->in[0]->maker->op == &op_all_gather;
        } else if (node->op == &op_row_sum) {
            TRY(rows_find(exec, node));
            across |= node->in[0]->maker->op == &op_all_gather || node->attrs.served;
        } else if (node->op == &op_reduce_scatter) {
            across = true;
        } else if (node->op == &op_all_gather && node->phase < PHASE_REDUCE) {
            read_held(exec, node);
        } else if (node->op == &op_clip_norm) {
            exec->layout.clips = !exec->config.remote; /* else servers do */
        } else if (node->op == &op_anchor) {
            exec->layout.anchors = true;
            exec->layout.mu = node->attrs.weight_decay;
        } else if (node->op == &op_trust_ratio) {
            exec->layout.adapts = true;
        } else if (node->op == &op_lamb_direction) {
            exec->layout.directs = true;
        } else if (node->op == &op_push) {
            pushes |= !node->in[0]->maker->attrs.served; /* else it goes to other ranks */
        } else if (node->op == &op_all_reduce &&
                   node->in[0]->maker->in[0]->kind == VALUE_FLAT) {
            return FAIL(STATUS_UNSUPPORTED,
                        "node %s: whole buckets are not reduced to every rank", node->name);
        }
    }
    if (exec->topology.ranks > 1 && !across)
        return FAIL(STATUS_MISMATCH, "graph %s is for one rank, there are %d",
                    graph_name(exec->config.train), exec->topology.ranks);
    if (pushes != (exec->config.remote != NULL) && exec->config.batch > 0)
        return FAIL(STATUS_MISMATCH, "graph %s is %s servers", graph_name(exec->config.train),
                    pushes ? "for a job with" : "for a job without");
    return STATUS_OK;
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

/* What goes to servers: sums over this executor's lanes, in memory that they see, and rows of tables. */
static void lay_out_given(struct exec *exec, struct carver *carver, struct carver *given)
{
    struct remote *remote = exec->remote;

    for (int i = 0; i < remote->n_sums && !remote->is_direct; i++)
        remote->data[i] = carve(given, exec->layout.vector, sizeof(float));
    for (int b = 0; b < exec->layout.buckets.count; b++) {
        const struct row_sum *r = &exec->layout.row_sums[b];
        if (!r->is_used)
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
    const size_t pieces = (size_t)exec->norms.count;

    exec->memory.counters =
        carve(carver, (size_t)exec->program->n_signals, sizeof *exec->memory.counters);
    exec->hold.furthest = carve(carver, 1, sizeof *exec->hold.furthest);
    exec->memory.flags =
        carve(carver, 2 * (size_t)exec->topology.ranks, sizeof *exec->memory.flags);
    exec->account.arrivals = carve(carver, 1, account_bytes(exec));
    exec->memory.losses = carve(carver, 2 * shards, sizeof(float));
    exec->memory.corrects = carve(carver, 2 * shards, sizeof(float));
    exec->memory.param = carve(carver, exec->layout.vector, sizeof(float));
    for (int i = 0; i < exec->layout.n_states; i++)
        exec->memory.state[i] = carve(carver, exec->layout.vector, sizeof(float));
    if (exec->layout.anchors) {
        exec->memory.anchor = carve(carver, exec->layout.vector, sizeof(float));
        exec->memory.shift = carve(carver, exec->layout.vector, sizeof(float));
    }
    exec->memory.records = carve(carver, shards, exec->layout.record);
    exec->memory.tables = carve(carver, 1, exec->layout.tables_bytes);
    if (norms_are_used(exec) || exec->config.compress.codec)
        exec->memory.sum = carve(carver, exec->layout.vector, sizeof(float));
    if (norms_are_used(exec)) {
        exec->norms.gradients = carve(carver, pieces, sizeof(double));
        exec->norms.params = carve(carver, pieces, sizeof(double));
        exec->norms.moves = carve(carver, pieces, sizeof(double));
        exec->norms.rows =
            carve(carver, buckets * norms_row_sums(exec), sizeof *exec->norms.rows);
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
        remote_start(exec);
    return STATUS_OK;
}

/* The threads that help a lane compute as the lane does; the lane's own does so in run_lane. */
static void flush_denormals(void *arg, int index)
{
    (void)arg;
    if (index > 0)
        kernel_flush_denormals();
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
    const size_t join = columns_scratch(exec);
    TRY(mem_alloc((size_t)exec->topology.n_lanes, sizeof *exec->lanes, &exec->lanes));
    for (int i = 0; i < exec->topology.n_lanes; i++) {
        struct lane *lane = &exec->lanes[i];
        lane->exec = exec;
        lane->number =
            exec->topology.rank * exec->topology.n_lanes + i - exec->topology.first_lane;
        lane_row(exec, lane->number, &lane->first, &lane->count);
        TRY(columns_create(lane));
        const size_t reduce = (size_t)helpers * reduce_scratch(lane);
        TRY(mem_alloc(1, reduce > join ? reduce : join, &lane->scratch));
        if (helpers > 1) {
            TRY(pool_create(helpers, &lane->pool));
            pool_run(lane->pool, flush_denormals, NULL);
        }
    }
    /* One shard alone, and the norm of all gradients need not be known: decision 0019. */
    exec->layout.buckets.pass = exec->topology.tree_shards == 1 && !norms_are_used(exec) &&
                                !exec->config.remote && !exec->config.privacy &&
                                !exec->config.device;
    return exec->topology.n_lanes > 1 ? pool_create(exec->topology.n_lanes, &exec->lanes_pool)
                                      : STATUS_OK;
}

/* What is given back, and how much may be under way: about two buckets. */
static void find_window(struct exec *exec)
{
    const size_t some = exec->layout.vector * sizeof(float) / 32;

    exec->window = exec->config.window   ? exec->config.window
                   : some > WINDOW_LEAST ? some
                                         : WINDOW_LEAST;
    exec->releases = exec->config.zero >= 2 && !exec->layout.buckets.pass;
    exec->layout.buckets.held |= exec->hold.buckets;
}

/* What follows from the configuration and from who is where; no other rank is asked. */
static enum status read_config(struct exec *exec, struct transport *transport)
{
    const struct exec_config *config = &exec->config;

    exec->transport = transport;
    exec->topology.rank = transport_rank(transport);
    exec->topology.ranks = transport_size(transport);
    if (config->pipeline.stages > 1 || config->pipeline.ordered)
        exec->layout.buckets.pipeline =
            (struct pass_pipeline){ .stages = config->pipeline.stages,
                                    .chunks = config->pipeline.chunks,
                                    .own = config->pipeline.own };
    find_part(exec);
    exec->topology.node = transport_node_of(exec->transport, exec->topology.rank);
    exec->topology.nodes = transport_nodes(exec->transport);
    TRY(read_params(exec));
    TRY(read_step_nodes(exec));
    TRY(check_rows(exec));
    TRY(gathers_find(exec));
    TRY(privacy_check(exec));
    TRY(norms_create(exec));
    if (config->device)
        TRY(device_check(exec));
    TRY(make_lanes(exec));
    return gathers_check(exec);
}

static enum status create(struct exec *exec)
{
    const struct exec_config *config = &exec->config;

    if (config->beside.transport)
        exec->beside_tag = transport_new_tags(config->beside.transport, 2);
    transport_set_patience(exec->transport, config->stall_timeout);
    TRY(talk_create(exec));
    if (exec->topology.nodes > 1 && !config->device)
        TRY(net_create(exec));
    if (config->remote)
        TRY(remote_create(exec));
    TRY(pipe_create(exec));
    TRY(account_create(exec));
    find_window(exec);
    TRY(hold_create(exec));
    TRY(exec_make_program(exec));
    TRY(talk_verify(exec));
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
    exec->config = *config;
    if (config->device)
        exec->config.threads = 1;
    pthread_mutex_init(&exec->account.overlap.lock, NULL);
    pthread_mutex_init(&exec->clip.lock, NULL);
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
        status = remote_create(exec);
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

void exec_destroy(struct exec *exec)
{
    if (!exec)
        return;
    net_destroy(exec);
    average_destroy(exec);
    remote_destroy(exec);
    exec_destroy_program(exec);
    device_destroy(exec);
    pipe_destroy(exec);
    hold_destroy(exec);
    pool_destroy(exec->lanes_pool);
    account_destroy(exec);
    pthread_mutex_destroy(&exec->account.overlap.lock);
    pthread_mutex_destroy(&exec->clip.lock);
    for (int i = 0; exec->lanes && i < exec->topology.n_lanes; i++) {
        struct lane *lane = &exec->lanes[i];
        for (int p = 0; p < lane->n_plans; p++)
            plan_destroy(lane->plans[p]);
        for (int p = 0; p < lane->n_eval_plans; p++)
            plan_destroy(lane->eval_plans[p]);
        free_arena(lane);
        pool_destroy(lane->pool);
        mem_free(lane->scratch);
        columns_destroy(lane);
        mem_free(lane->eval_x);
        mem_free(lane->eval_x2);
        mem_free(lane->eval_y);
    }
    mem_free(exec->lanes);
    mem_free(exec->model.params);
    mem_free(exec->model.numbers);
    mem_free(exec->layout.largest);
    mem_free(exec->memory.parts);
    mem_free(exec->layout.gathers.item);
    norms_destroy(exec);
    mem_free(exec);
}

/* Plans -------------------------------------------------------------------------------- */

const struct plan *lane_plan(const struct lane *lane, struct extents extents, bool evaluation)
{
    struct plan *const *plans = evaluation ? lane->eval_plans : lane->plans;
    const int n = evaluation ? lane->n_eval_plans : lane->n_plans;

    for (int i = 0; i < n; i++) {
        if (extents_equal(plans[i]->extents, extents))
            return plans[i];
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
        struct plan **plans = evaluation ? lane->eval_plans : lane->plans;
        int *n = evaluation ? &lane->n_eval_plans : &lane->n_plans;

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
            TRY(lane_find_ranges(exec, plans[*n - 1]));
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

void exec_meet(struct exec *exec, const char *point)
{
    if (exec->config.at_meeting)
        exec->config.at_meeting(exec->config.at_meeting_arg, point);
}

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
