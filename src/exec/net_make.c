/* SPDX-License-Identifier: MIT */
/* net_make.c - creates the inter-node thread: its tasks, tags, requests and memory for sums; hands
 * steps to it. */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "base/mem.h"
#include "exec/net.h"
#include "exec/net_face.h"
#include "exec/pages.h"
#include "exec/state.h"

enum { FLYING_MOST = 4 << 20 }; /* enough for any link to be busy */

static int partial_sums(const struct exec *exec, int node, struct tree_node *out)
{
    int64_t first, count;

    exec_node_row(exec, node, &first, &count);
    return tree_row(exec->config.shards, first, count, out);
}

/* All nodes of one size: every rank talks, unless told otherwise; else the first one of each. */
int net_rails(const struct exec *exec)
{
    const int size = transport_node_size(exec->transport, 0);

    for (int node = 1; node < exec->topology.nodes; node++) {
        if (transport_node_size(exec->transport, node) != size)
            return 1;
    }
    return exec->config.leaders ? 1 : size;
}

/* Tasks ------------------------------------------------------------------------------------ */

/* Does this rail run the task? */
static bool is_own(const struct net *net, const struct task *task)
{
    return task->place == PLACE_NET && (task->rail < 0 || task->rail == net->rail);
}

/* Kinds of tasks that send messages. */
static const enum task_kind sending[] = {
    TASK_REDUCE_SCATTER, TASK_ALL_REDUCE, TASK_NORM, TASK_ALL_GATHER,
    TASK_UNSHARD,        TASK_PUSH,       TASK_PULL
};
enum { SENDING = sizeof sending / sizeof *sending };

static uint32_t number_of_kind(enum task_kind kind)
{
    uint32_t i = 0;

    while (i < SENDING && sending[i] != kind)
        i++;
    return i;
}

/* Tags are reserved by kind and number, so every rank reserves as many, whatever its program is. */
static uint32_t tag_slots(const struct exec *exec)
{
    return (uint32_t)(exec->layout.buckets.count + exec->layout.gathers.count + 2);
}

/* A bucket's answers have the tag of its unshards: they exchange messages. */
static uint32_t tag_of(const struct net *net, const struct task *task)
{
    const struct exec *exec = net->exec;
    const enum task_kind kind = task->kind == TASK_ANSWER ? TASK_UNSHARD : task->kind;
    const bool is_first_norm = task == program_task(exec->program, exec->program->norm);
    int number = exec->layout.buckets.count + exec->layout.gathers.count + is_first_norm;

    if (task->bucket >= 0)
        number = task->bucket;
    else if (task->gather >= 0)
        number = exec->layout.buckets.count + task->gather;
    return net->tags + 2 * (number_of_kind(kind) * tag_slots(exec) + (uint32_t)number);
}

static enum status list_tasks(struct net *net)
{
    const struct program *program = net->exec->program;

    TRY(mem_alloc((size_t)program->n_tasks + 1, sizeof *net->tasks, &net->tasks));
    TRY(mem_alloc((size_t)program->n_tasks + 1, sizeof *net->task_at, &net->task_at));
    for (int i = 0; i < program->n_tasks; i++) {
        const struct task *task = &program->tasks[i];
        net->task_at[i] = -1;
        if (!is_own(net, task))
            continue;
        const struct net_row *row = net_row_of(net, task);
        BUG_ON(!row);
        net->task_at[i] = net->n_tasks;
        net->tasks[net->n_tasks++] = (struct net_task){
            .task = task, .number = i, .row = row, .tag = tag_of(net, task)
        };
    }
    return STATUS_OK;
}

static size_t place_transfers(struct net *net, struct transfers *list, int most, size_t used)
{
    *list = (struct transfers){ .request = net->room.requests + used,
                                .is_done = net->room.flags + 2 * used,
                                .is_counted = net->room.flags + 2 * used + most,
                                .most = most,
                                .last = -1 };
    return used + (size_t)most;
}

/* Room for the transfers of all tasks. */
static enum status share_requests(struct net *net)
{
    const struct net_most none = { 0, 0 };
    size_t all = 0, used = 0;

    for (int i = 0; i < net->n_tasks; i++) {
        const struct net_task *t = &net->tasks[i];
        const struct net_most most = t->row->most ? t->row->most(net, t->task) : none;
        all += (size_t)(most.receives + most.sends);
    }
    TRY(mem_alloc(all + 1, sizeof *net->room.requests, &net->room.requests));
    TRY(mem_alloc(2 * all + 2, sizeof *net->room.flags, &net->room.flags));
    for (int i = 0; i < net->n_tasks; i++) {
        struct net_task *t = &net->tasks[i];
        const struct net_most most = t->row->most ? t->row->most(net, t->task) : none;
        used = place_transfers(net, &t->receives, most.receives, used);
        used = place_transfers(net, &t->sends, most.sends, used);
    }
    return STATUS_OK;
}

/* The net ---------------------------------------------------------------------------------- */

enum status net_create(struct exec *exec)
{
    struct net *net;

    TRY(mem_alloc(1, sizeof *net, &net));
    exec->net = net;
    net->exec = exec;
    net->topology = &exec->topology;
    net->layout = &exec->layout;
    net->memory = &exec->memory;
    net->hold = &exec->hold;
    net->account = &exec->account;
    net->transport = exec->transport;
    net->rail =
        exec->topology.rank - transport_node_first(exec->transport, exec->topology.node);
    net->rails = net_rails(exec);
    net->traffic.flying_most =
        exec->config.flying_bytes ? exec->config.flying_bytes : FLYING_MOST;
    /* With ZeRO-2 the window of gradients (release.c) bounds the sends; a bound of our own could
     * block it. */
    if (exec->config.zero >= 2)
        net->traffic.flying_most = SIZE_MAX;
    net->worker.sums = &exec->sums;
    pthread_mutex_init(&net->handoff.lock, NULL);
    pthread_cond_init(&net->handoff.changed, NULL);
    TRY(mem_alloc((size_t)exec->topology.nodes, sizeof *net->sums.n_of, &net->sums.n_of));
    TRY(mem_alloc((size_t)exec->topology.nodes, sizeof *net->sums.first_of,
                  &net->sums.first_of));
    TRY(mem_alloc((size_t)graph_value_count(exec->config.train) + 1, sizeof *net->shapes.of,
                  &net->shapes.of));
    net->tags = transport_new_tags(exec->transport, 2 * SENDING * tag_slots(exec));
    return STATUS_OK;
}

/* All nodes' partial sums in the order of shards: exec->memory.parts has this node's. */
static enum status place_sums(struct net *net)
{
    struct exec *exec = net->exec;
    struct net_sums *sums = &net->sums;
    struct tree_node nodes[2 * TREE_DEPTH];
    size_t vectors = 0;

    sums->n_own = partial_sums(exec, exec->topology.node, sums->own);
    sums->n_own_parts = exec->memory.n_parts;
    for (int node = 0; node < exec->topology.nodes; node++) {
        sums->n_of[node] = partial_sums(exec, node, nodes);
        vectors += (size_t)sums->n_of[node];
    }
    TRY(mem_alloc(vectors, sizeof *sums->part_of, &sums->part_of));
    for (int node = 0, at = 0; node < exec->topology.nodes; at += sums->n_of[node], node++) {
        partial_sums(exec, node, nodes);
        memcpy(sums->part_of + at, nodes, (size_t)sums->n_of[node] * sizeof *nodes);
    }
    sums->bytes = vectors * exec->layout.vector * sizeof(float);
    void *memory = mmap(NULL, sums->bytes + 1, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return FAIL(STATUS_NO_MEMORY, "%zu bytes for sums are refused", sums->bytes);
    sums->vectors = memory;
    if (exec->layout.releases)
        pages_keep_small(memory, sums->bytes);
    float *next = sums->vectors + (size_t)sums->n_own * exec->layout.vector;

    struct tree_part *own = exec->memory.parts, *all;
    TRY(mem_alloc((size_t)(exec->memory.n_parts + (int)vectors + 1), sizeof *all, &all));
    int count = 0;
    for (int node = 0; node < exec->topology.nodes; node++) {
        sums->first_of[node] = count;
        if (node == exec->topology.node) {
            sums->own_parts = count;
            memcpy(all + count, own, (size_t)exec->memory.n_parts * sizeof *all);
            count += exec->memory.n_parts;
            continue;
        }
        partial_sums(exec, node, nodes);
        for (int p = 0; p < sums->n_of[node]; p++, next += exec->layout.vector)
            all[count++] = (struct tree_part){ nodes[p], next };
    }
    mem_free(own);
    exec->memory.parts = all;
    exec->memory.n_parts = count;
    return STATUS_OK;
}

static enum status place_states(struct net *net)
{
    const struct exec *exec = net->exec;

    if (exec->topology.rank != 0 || !exec->config.compress.codec)
        return STATUS_OK;
    net->states.bytes = (size_t)net_states(exec) * exec->layout.vector * sizeof(float);
    void *memory = mmap(NULL, net->states.bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return FAIL(STATUS_NO_MEMORY, "%zu bytes for errors of compression are refused",
                    net->states.bytes);
    net->states.vectors = memory;
    return STATUS_OK;
}

/* Room for what one node exchanges at once. */
static enum status make_exchange(struct net *net)
{
    const int nodes = net->exec->topology.nodes;

    TRY(mem_alloc((size_t)nodes, sizeof *net->exchange.members, &net->exchange.members));
    for (int node = 0; node < nodes; node++)
        net->exchange.members[node].sums = net->sums.n_of[node];
    const int most = exchange_most(net->exchange.members, nodes, net->exec->topology.node);
    return mem_alloc((size_t)most, sizeof *net->exchange.transfers, &net->exchange.transfers);
}

enum status net_start(struct exec *exec)
{
    struct net *net = exec->net;

    if (net->rail >= net->rails || exec->config.batch == 0)
        return STATUS_OK;
    net->program = exec->program;
    TRY(mem_alloc((size_t)exec->layout.buckets.count + 1, sizeof *net->worker.columns,
                  &net->worker.columns));
    TRY(mem_alloc(1, reduce_scratch(&net->worker), &net->worker.scratch));
    TRY(mem_alloc(TREE_SCRATCH, sizeof *net->sums.scratch, &net->sums.scratch));
    TRY(place_sums(net));
    TRY(make_exchange(net));
    TRY(net_codecs_create(net));
    TRY(net_rows_create(net));
    TRY(net_unshards_create(net));
    TRY(list_tasks(net));
    TRY(share_requests(net));
    TRY(place_states(net));
    for (int i = 0; i < CHANNELS; i++) {
        char name[32];
        snprintf(name, sizeof name, "net %d", i);
        TRY(trace_add_row(exec->config.trace, name, 0, &net->traffic.rows[i]));
    }
    if (pthread_create(&net->handoff.thread, NULL, net_run, net) != 0)
        return FAIL(STATUS_NO_MEMORY, "a thread for messages to other machines is refused");
    net->handoff.is_started = true;
    return STATUS_OK;
}

void net_destroy(struct exec *exec)
{
    struct net *net = exec->net;

    if (!net)
        return;
    if (net->handoff.is_started) {
        pthread_mutex_lock(&net->handoff.lock);
        net->handoff.ends = true;
        pthread_cond_broadcast(&net->handoff.changed);
        pthread_mutex_unlock(&net->handoff.lock);
        pthread_join(net->handoff.thread, NULL);
    }
    pthread_mutex_destroy(&net->handoff.lock);
    pthread_cond_destroy(&net->handoff.changed);
    if (net->sums.vectors)
        munmap(net->sums.vectors, net->sums.bytes + 1);
    if (net->states.vectors)
        munmap(net->states.vectors, net->states.bytes);
    net_codecs_destroy(net);
    net_unshards_destroy(net);
    net_rows_destroy(net);
    mem_free(net->exchange.members);
    mem_free(net->exchange.transfers);
    mem_free(net->sums.part_of);
    mem_free(net->worker.columns);
    mem_free(net->worker.scratch);
    mem_free(net->sums.scratch);
    mem_free(net->room.requests);
    mem_free(net->room.flags);
    mem_free(net->tasks);
    mem_free(net->task_at);
    mem_free(net->shapes.of);
    mem_free(net->sums.n_of);
    mem_free(net->sums.first_of);
    mem_free(net);
    exec->net = NULL;
}

/* Handing steps over ------------------------------------------------------------------------ */

/* With the lock: until the thread has changed something, or for a while. */
static void await_change(struct net_handoff *handoff)
{
    struct timespec until;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += 100000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_nsec -= 1000000000;
        until.tv_sec++;
    }
    pthread_cond_timedwait(&handoff->changed, &handoff->lock, &until);
}

enum status net_rest(struct net *net)
{
    struct net_handoff *handoff = &net->handoff;

    pthread_mutex_lock(&handoff->lock);
    while (handoff->is_running && transport_check(net->transport) == STATUS_OK)
        await_change(handoff);
    pthread_mutex_unlock(&handoff->lock);
    return transport_check(net->transport);
}

enum status net_begin(struct exec *exec, struct extents extents)
{
    struct net *net = exec->net;

    if (net->rail >= net->rails)
        return STATUS_OK;
    struct net_handoff *handoff = &net->handoff;
    pthread_mutex_lock(&handoff->lock);
    while (handoff->is_given && transport_check(exec->transport) == STATUS_OK)
        await_change(handoff);
    handoff->step = (struct net_step){ .extents = extents,
                                       .walk = exec->hold.walk,
                                       .number = exec->now.step,
                                       .numbers = exec->now.numbers };
    handoff->is_given = handoff->is_running = true;
    pthread_cond_broadcast(&handoff->changed);
    pthread_mutex_unlock(&handoff->lock);
    return transport_check(exec->transport);
}

struct times net_times(const struct exec *exec)
{
    struct net *net = exec->net;

    if (!net)
        return (struct times){ 0 };
    struct net_handoff *handoff = &net->handoff;
    pthread_mutex_lock(&handoff->lock);
    const struct times times = { .comm = handoff->known.comm - handoff->forgotten.comm,
                                 .hidden = handoff->known.hidden - handoff->forgotten.hidden,
                                 .bytes = handoff->known.bytes - handoff->forgotten.bytes };
    pthread_mutex_unlock(&handoff->lock);
    return times;
}

void net_forget_times(struct exec *exec)
{
    struct net *net = exec->net;

    if (!net)
        return;
    pthread_mutex_lock(&net->handoff.lock);
    net->handoff.forgotten = net->handoff.known;
    pthread_mutex_unlock(&net->handoff.lock);
}
