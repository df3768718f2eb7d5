/* SPDX-License-Identifier: MIT */
/* net_unshard.c - ZeRO-3 between nodes: gathers the partitions of a bucket's parameters before each use
 * (hold.h) and frees them after it.
 *
 * The task of a bucket does two independent things. It *serves*: whenever another node requests this
 * rail's partition, that is sent. It *unshards*: it requests the other nodes' partitions as soon as the
 * next use is within the window; when all have arrived it increments the task's counter; when all
 * lanes have left the bucket it frees them.
 *
 *   SHARDED --next use within the window--> REQUESTED --all arrived--> UNSHARDED --all lanes left--> SHARDED
 *
 * Partitions are sent on request, not ahead: what nobody has requested would lie in the receiver's
 * memory, which ZeRO-3 is to save. A partition does not change while it may be requested: its update
 * waits for this task, so until the rail has served it for the last time in the step.
 */
#include "base/mem.h"
#include "exec/hold.h"
#include "exec/layout.h"
#include "exec/net.h"
#include "exec/pages.h"
#include "exec/shared.h"
#include "exec/topology.h"

enum unshard_state { SHARDED, REQUESTED, UNSHARDED };

/* Another node's requests for this rail's partition. */
struct serving {
    uint32_t left; /* requests of this walk that are not answered */
    uint32_t requested;
    bool is_sending;
    struct transport_request request, partition;
};

struct unshard {
    enum unshard_state state;
    int phase,
        phases;    /* of the walk: the next use, or the one that goes on; how many there are */
    uint32_t left; /* value of hold.left[b] when all lanes are done with that use */
    uint32_t requests;      /* sent so far: the content of a request */
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

/* Serving ------------------------------------------------------------------------------------ */

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

/* Unsharding --------------------------------------------------------------------------------- */

/* The last place in the queue that may be requested now: one behind what lanes have come to, and as many
 * more as fit the window. */
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

static enum status request_partitions(struct net *net, struct net_task *t)
{
    struct unshard *u = unshard_of(net, t);

    net_clear(&t->receives);
    net_clear(&t->sends);
    net_take_channel(net, t);
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

/* The parameters are whole for a use: increments the task's counter. */
static void announce(struct net *net, struct net_task *t)
{
    struct unshard *u = unshard_of(net, t);

    u->left += (uint32_t)hold_lanes(net->exec, &net->step.walk, net->topology->node, u->phase);
    u->state = UNSHARDED;
    account_meet(net->account, "held");
    net_signal(net->account, t->number,
               t->receives.last >= 0 ? t->receives.last : net->topology->rank);
}

/* Frees the other nodes' partitions. Neighbours are freed together, so that pages between them are, too. */
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

static bool is_kept(const struct net *net, int b, int phase)
{
    return hold_is_kept(net->exec, &net->step.walk, net->topology->node, phase, b);
}

static enum status unshard_if_due(struct net *net, struct net_task *t, bool *moved)
{
    struct unshard *u = unshard_of(net, t);
    const int b = t->task->bucket;

    if (hold_place(net->exec, &net->step.walk, u->phase, b) > last_place(net))
        return STATUS_OK;
    *moved = true;
    if (is_kept(net, b, u->phase)) {
        announce(net, t);
        return STATUS_OK;
    }
    u->state = REQUESTED;
    return request_partitions(net, t);
}

static enum status announce_if_here(struct net *net, struct net_task *t, bool *moved)
{
    bool received = false, sent = false;

    TRY(net_are_over(net, &t->receives, &received));
    TRY(net_are_over(net, &t->sends, &sent));
    if (!received || !sent)
        return STATUS_OK;
    *moved = true;
    net_leave_channel(net, t);
    announce(net, t);
    return STATUS_OK;
}

static void reshard_if_left(struct net *net, struct net_task *t, bool *moved)
{
    struct unshard *u = unshard_of(net, t);
    const int b = t->task->bucket;

    if (!transport_reached(&net->hold->left[b], u->left))
        return;
    *moved = true;
    u->state = SHARDED;
    u->phase++;
    if (u->phase == u->phases || !is_kept(net, b, u->phase))
        free_partitions(net, b);
}

static enum status move_unshard(struct net *net, struct net_task *t, bool *moved)
{
    struct unshard *u = unshard_of(net, t);

    while (u->state == SHARDED && u->phase < u->phases &&
           !hold_is_used(net->exec, &net->step.walk, net->topology->node, u->phase,
                         t->task->bucket))
        u->phase++;
    if (u->phase == u->phases)
        return STATUS_OK;
    if (u->state == SHARDED)
        return unshard_if_due(net, t, moved);
    if (u->state == REQUESTED)
        return announce_if_here(net, t, moved);
    reshard_if_left(net, t, moved);
    return STATUS_OK;
}

/* The row ------------------------------------------------------------------------------------ */

static enum status run_unshard(struct net *net, struct net_task *t, bool *moved)
{
    struct unshard *u = unshard_of(net, t);
    bool is_sending = false;

    *moved = false;
    for (int node = 0; node < net->topology->nodes; node++)
        TRY(serve(net, t, node, moved));
    TRY(move_unshard(net, t, moved));
    const bool serves = serves_still(net, u, &is_sending);
    const bool is_over = u->phase == u->phases && !serves;
    t->is_busy = is_sending || u->state == REQUESTED;
    t->stage = is_over ? NET_FINISHED : u->state == REQUESTED ? NET_STARTED : NET_WAITING;
    return STATUS_OK;
}

static enum status begin_unshard(struct net *net, struct net_task *t)
{
    const int b = t->task->bucket;
    struct unshard *u = unshard_of(net, t);

    u->state = SHARDED;
    u->phase = 0;
    u->phases = hold_phases(net->exec, &net->step.walk, net->topology->node);
    for (int node = 0; node < net->topology->nodes; node++) {
        struct serving *s = &u->serves[node];
        const bool has_part = own_slice(net, b).count > 0;
        s->left = has_part && node != net->topology->node ? requests_of(net, b, node) : 0;
        if (s->left > 0)
            TRY(await_request(net, t, node));
    }
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
    .begin = begin_unshard,
    .run = run_unshard,
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
