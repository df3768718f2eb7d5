/* SPDX-License-Identifier: MIT */
/* net_unshard.c - ZeRO-3 between nodes: brings the other nodes' partitions of a bucket's parameters
 * for each use (hold.h) and frees them after it.
 *
 *   answer    whenever another node requests this rail's partition, that is sent
 *   unshard   requests the other nodes' partitions as soon as the use is within the window; done when all
 *             have arrived
 *   reshard   when all lanes have read the bucket frees them, but if they stay for the next use
 *
 * Partitions are sent on request, not ahead: what nobody has requested would lie in the receiver's
 * memory, which ZeRO-3 is to save. A partition does not change while it may be requested: its
 * update waits for the answer, so until the rail has given it for the last time in the step.
 */
#include "base/mem.h"
#include "exec/hold.h"
#include "exec/layout.h"
#include "exec/net.h"
#include "exec/pages.h"
#include "exec/shared.h"
#include "exec/topology.h"

/* Another node's requests for this rail's partition. */
struct serving {
    uint32_t left; /* requests of this walk that are not answered */
    uint32_t requested;
    bool is_sending;
    struct transport_request request, partition;
};

struct unshard {
    uint32_t brought, freed; /* uses of this walk */
    uint32_t read;     /* counter of is_read[b] when lanes are through with those brought */
    uint32_t requests; /* sent so far: the content of a request */
    struct serving *serves; /* one a node */
};

static struct unshard *unshard_of(const struct net *net, const struct net_task *t)
{
    return &net->unshards[t->task->bucket];
}

static struct slice own_slice(const struct net *net, int b)
{
    return net_slice(net, b, net->topology->node, net->rail);
}

/* Answering ---------------------------------------------------------------------------------- */

/* How often a node requests a bucket in this walk. */
static uint32_t requests_of(const struct net *net, int b, int node)
{
    const struct hold_walk *walk = &net->step.walk;
    const int phases = hold_phases(net->exec, walk, node);
    uint32_t requests = 0;

    for (int p = 0; p < phases; p++) {
        if (hold_is_used(net->exec, walk, node, p, b))
            requests += !hold_is_kept(net->exec, walk, node, p, b);
    }
    return requests;
}

static enum status await_request(struct net *net, const struct net_task *t, int node)
{
    struct serving *s = &unshard_of(net, t)->serves[node];

    return transport_start_receive(net->transport, net_peer(net, node), t->tag + 1,
                                   &s->requested, sizeof s->requested, &s->request);
}

static enum status serve(struct net *net, const struct net_task *t, int node, bool *moved)
{
    struct serving *s = &unshard_of(net, t)->serves[node];
    const struct slice own = own_slice(net, t->task->bucket);
    const size_t bytes = own.count * sizeof(float);
    bool done = false;

    if (s->left == 0)
        return STATUS_OK;
    if (!s->is_sending) {
        TRY(transport_test(net->transport, &s->request, &done));
        if (!done)
            return STATUS_OK;
        TRY(transport_start_send(net->transport, net_peer(net, node), t->tag,
                                 net->memory->param + own.at, bytes, &s->partition));
        net->times.bytes += (int64_t)bytes;
        s->is_sending = *moved = true;
    }
    TRY(transport_test(net->transport, &s->partition, &done));
    if (!done)
        return STATUS_OK;
    s->is_sending = false;
    *moved = true;
    return --s->left > 0 ? await_request(net, t, node) : STATUS_OK;
}

static bool serves_still(const struct net *net, const struct unshard *u, bool *is_sending)
{
    bool still = false;

    for (int node = 0; node < net->topology->nodes; node++) {
        still |= u->serves[node].left > 0;
        *is_sending |= u->serves[node].is_sending;
    }
    return still;
}

static enum status run_answer(struct net *net, struct net_task *t, bool *moved)
{
    bool is_sending = false;

    *moved = false;
    for (int node = 0; node < net->topology->nodes; node++)
        TRY(serve(net, t, node, moved));
    const bool still = serves_still(net, unshard_of(net, t), &is_sending);
    t->is_busy = is_sending;
    t->stage = still ? NET_WAITING : NET_FINISHED;
    return STATUS_OK;
}

static enum status begin_answer(struct net *net, struct net_task *t)
{
    const int b = t->task->bucket;
    struct unshard *u = unshard_of(net, t);

    u->brought = u->freed = 0; /* of this walk */
    for (int node = 0; node < net->topology->nodes; node++) {
        struct serving *s = &u->serves[node];
        const bool has_part = own_slice(net, b).count > 0;
        s->left = has_part && node != net->topology->node ? requests_of(net, b, node) : 0;
        if (s->left > 0)
            TRY(await_request(net, t, node));
    }
    return STATUS_OK;
}

const struct net_row net_answer = {
    .kind = TASK_ANSWER,
    .medium = MEDIUM_MESSAGES,
    .name = "answer",
    .begin = begin_answer,
    .run = run_answer,
};

/* Uses --------------------------------------------------------------------------------------- */

/* The phase of the walk in which the task runs now. */
static int phase_of(const struct net *net, const struct net_task *t)
{
    return hold_phase_of(net->exec, &net->step.walk, t->task->segment, t->time);
}

int net_runs(const struct net *net, const struct net_task *t)
{
    if (t->task->by_use)
        return hold_times(net->exec, &net->step.walk, t->task->segment, t->task->bucket);
    return !net->step.walk.is_evaluation ||
           t->row->run; /* which reads parameters, and no more */
}

bool net_is_use_over(const struct net *net, const struct net_task *t, const struct wait *wait)
{
    const struct task *awaited = &net->program->tasks[wait->task];
    const struct unshard *u = unshard_of(net, t);
    const uint32_t before =
        hold_uses(net->exec, &net->step.walk, phase_of(net, t), t->task->bucket);
    const bool is_same = awaited->segment == t->task->segment && !wait->is_last_use;

    if (!wait->is_local) /* lanes have read it */
        return u->brought > before &&
               transport_reached(account_counter(net->account, wait->task), u->read);
    return (awaited->kind == TASK_UNSHARD ? u->brought : u->freed) >= before + is_same;
}

static bool is_kept(const struct net *net, int b, int phase)
{
    return hold_is_kept(net->exec, &net->step.walk, net->topology->node, phase, b);
}

/* The last place in the queue that may be requested now: one behind what lanes have come to, and as
 * many more as fit the window. */
static int64_t last_place(const struct net *net)
{
    const int64_t furthest = hold_furthest(net->hold, net->walks);
    size_t bytes = 0;

    for (int64_t place = furthest; place < INT64_MAX; place++) {
        const int b = hold_at(net->exec, &net->step.walk, place + 1);
        const int64_t count = net->layout->buckets.begin[b + 1] - net->layout->buckets.begin[b];
        bytes += (size_t)count * sizeof(float);
        if (place > furthest && bytes > net->layout->window)
            return place;
    }
    return INT64_MAX;
}

/* The next use is within the window. */
static bool is_due(const struct net *net, const struct net_task *t)
{
    return hold_place(net->exec, &net->step.walk, phase_of(net, t), t->task->bucket) <=
           last_place(net);
}

static enum status start_unshard(struct net *net, struct net_task *t)
{
    struct unshard *u = unshard_of(net, t);

    if (is_kept(net, t->task->bucket, phase_of(net, t)))
        return STATUS_OK;
    u->requests++;
    for (int node = 0; node < net->topology->nodes; node++) {
        const struct slice theirs = net_slice(net, t->task->bucket, node, net->rail);
        if (node == net->topology->node || theirs.count == 0)
            continue;
        const int peer = net_peer(net, node);
        TRY(net_receive(net, t, peer, t->tag, net->memory->param + theirs.at,
                        theirs.count * sizeof(float)));
        TRY(net_send(net, t, peer, t->tag + 1, &u->requests, sizeof u->requests));
    }
    return STATUS_OK;
}

/* The parameters are whole for a use. */
static enum status finish_unshard(struct net *net, struct net_task *t)
{
    struct unshard *u = unshard_of(net, t);

    u->brought++;
    u->read +=
        (uint32_t)hold_lanes(net->exec, &net->step.walk, net->topology->node, phase_of(net, t));
    return STATUS_OK;
}

/* Frees the other nodes' partitions. Neighbours are freed together, so that pages between them are,
 * too. */
static void free_partitions(const struct net *net, int b)
{
    struct slice row = { 0, 0 };

    for (int node = 0; node <= net->topology->nodes; node++) {
        const bool is_theirs = node < net->topology->nodes && node != net->topology->node;
        const struct slice next =
            is_theirs ? net_slice(net, b, node, net->rail) : (struct slice){ 0, 0 };
        if (row.count > 0 && next.count > 0 && next.at == row.at + row.count) {
            row.count += next.count;
            continue;
        }
        pages_release(net->memory->param + row.at, row.count * sizeof(float));
        row = next;
    }
}

static enum status finish_reshard(struct net *net, struct net_task *t)
{
    const struct hold_walk *walk = &net->step.walk;
    const int next = phase_of(net, t) + 1, b = t->task->bucket;

    unshard_of(net, t)->freed++;
    if (next == hold_phases(net->exec, walk, net->topology->node) || !is_kept(net, b, next))
        free_partitions(net, b);
    return STATUS_OK;
}

static struct net_most most_partitions(const struct net *net, const struct task *task)
{
    (void)task;
    return (struct net_most){ net->topology->nodes, net->topology->nodes };
}

const struct net_row net_unshard = {
    .kind = TASK_UNSHARD,
    .medium = MEDIUM_MESSAGES,
    .name = "unshard",
    .most = most_partitions,
    .is_due = is_due,
    .start = start_unshard,
    .finish = finish_unshard,
};

const struct net_row net_reshard = {
    .kind = TASK_RESHARD,
    .medium = MEDIUM_NONE,
    .name = "reshard",
    .finish = finish_reshard,
};

void net_unshards_cancel(struct net *net)
{
    for (int b = 0; net->unshards && b < net->layout->buckets.count; b++) {
        for (int node = 0; node < net->topology->nodes; node++) {
            transport_cancel(net->transport, &net->unshards[b].serves[node].request);
            transport_cancel(net->transport, &net->unshards[b].serves[node].partition);
        }
    }
}

enum status net_unshards_create(struct net *net)
{
    const size_t buckets = (size_t)net->layout->buckets.count,
                 nodes = (size_t)net->topology->nodes;
    struct serving *serves;

    if (!net->hold->buckets)
        return STATUS_OK;
    TRY(mem_alloc(buckets, sizeof *net->unshards, &net->unshards));
    TRY(mem_alloc(buckets * nodes, sizeof *serves, &serves));
    for (size_t b = 0; b < buckets; b++)
        net->unshards[b].serves = serves + b * nodes;
    return STATUS_OK;
}

void net_unshards_destroy(struct net *net)
{
    if (net->unshards)
        mem_free(net->unshards[0].serves);
    mem_free(net->unshards);
}
