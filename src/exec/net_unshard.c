/* SPDX-License-Identifier: MIT */
/* net_unshard.c - the wires' side of parameters that are held in parts (hold.h).
 *
 * For each such bucket a net does two things that know nothing of each other. It *gives*: whenever another node
 * asks for this rail's part, that is sent. It *holds*: use after use it asks the other nodes for their parts, as
 * soon as the use comes into the window; when they are here it raises held[b], and when all lanes have left the
 * bucket it releases them.
 *
 *   outside --comes into the window--> coming --all parts are here--> here --all lanes left--> outside
 *
 * Parts are sent to who asked, not before: what nobody has asked for would be kept in the receiver's memory,
 * which is what there is none of. A part does not change while it may be asked for: its update
 * waits until this net has given it for the last time in the step, and all nodes are through with it then.
 */
#include <string.h>

#include "base/mem.h"
#include "exec/net.h"
#include "exec/pages.h"

enum where { OUTSIDE, COMING, HERE };

/* What another node gets of a bucket. */
struct giving {
    uint32_t left; /* times that it will still ask in this walk */
    uint32_t asked;
    bool is_asked; /* and the part is on its way */
    struct transport_request ask, part;
};

struct net_holding {
    enum where where;
    int phase, phases; /* of the walk: the use that is next or now; how many there are */
    uint32_t left;     /* what left[b] is when all lanes are through with that use */
    uint32_t asks;     /* how often this net has asked: what asks say */
    bool is_over;
    struct giving *gives; /* one a node */
};

static struct slice own_slice(const struct net *net, int b)
{
    return net_slice(net, b, net->exec->node, net->rail);
}

bool net_unshard_is_over(const struct net *net, int b)
{
    return !(net->exec->hold.buckets >> b & 1) || net->holdings[b].is_over;
}

/* Giving ------------------------------------------------------------------------------------- */

/* How often a node asks for a bucket in this walk. */
static uint32_t asks_of(const struct net *net, int b, int node)
{
    const struct exec *exec = net->exec;
    const struct hold_walk *walk = &net->walk;
    const int phases = hold_phases(exec, walk, node);
    uint32_t asks = 0;

    for (int p = 0; p < phases; p++) {
        if (hold_is_used(exec, walk, node, p, b))
            asks += !hold_is_kept(exec, walk, node, p, b);
    }
    return asks;
}

static enum status await_ask(struct net *net, const struct item *item, int node)
{
    struct giving *g = &net->holdings[item->number].gives[node];

    return transport_start_receive(net->exec->transport, net_peer(net, node), item->tag + 1,
                                   &g->asked, sizeof g->asked, &g->ask);
}

static enum status give(struct net *net, const struct item *item, int node, bool *moved)
{
    const struct exec *exec = net->exec;
    struct giving *g = &net->holdings[item->number].gives[node];
    const struct slice own = own_slice(net, item->number);
    const size_t bytes = own.count * sizeof(float);
    bool done = false;

    if (g->left == 0)
        return STATUS_OK;
    if (!g->is_asked) {
        TRY(transport_test(exec->transport, &g->ask, &done));
        if (!done)
            return STATUS_OK;
        TRY(transport_start_send(exec->transport, net_peer(net, node), item->tag,
                                 exec->param + own.at, bytes, &g->part));
        net->lane.times.bytes += (int64_t)bytes;
        g->is_asked = *moved = true;
    }
    TRY(transport_test(exec->transport, &g->part, &done));
    if (!done)
        return STATUS_OK;
    g->is_asked = false;
    *moved = true;
    return --g->left > 0 ? await_ask(net, item, node) : STATUS_OK;
}

static bool gives_still(const struct net *net, int b, bool *out_sends)
{
    bool still = false;

    for (int node = 0; node < net->exec->nodes; node++) {
        still |= net->holdings[b].gives[node].left > 0;
        *out_sends |= net->holdings[b].gives[node].is_asked;
    }
    return still;
}

/* Holding ------------------------------------------------------------------------------------ */

/* The last place in the queue that may come now: one behind what lanes have come to, and as many more as
 * fit the window. */
static int64_t last_place(const struct net *net)
{
    const struct exec *exec = net->exec;
    const int64_t furthest = hold_furthest(&exec->hold, net->walks);
    size_t bytes = 0;

    for (int64_t place = furthest; place < INT64_MAX; place++) {
        const int b = hold_at(exec, &net->walk, place + 1);
        const int64_t count = exec->buckets.begin[b + 1] - exec->buckets.begin[b];
        bytes += (size_t)count * sizeof(float);
        if (place > furthest && bytes > exec->window)
            return place;
    }
    return INT64_MAX;
}

static bool is_used(const struct net *net, int phase, int b)
{
    return hold_is_used(net->exec, &net->walk, net->exec->node, phase, b);
}

/* Asks the other nodes for their parts. */
static enum status ask(struct net *net, struct item *item)
{
    const struct exec *exec = net->exec;
    struct net_holding *h = &net->holdings[item->number];

    net_forget_transfers(item);
    net_take_channel(net, item);
    h->asks++;
    for (int node = 0; node < exec->nodes; node++) {
        const struct slice theirs = net_slice(net, item->number, node, net->rail);
        if (node == exec->node || theirs.count == 0)
            continue;
        const int peer = net_peer(net, node);
        TRY(net_transfer(net, &item->needed, false, peer, item->tag, exec->param + theirs.at,
                         theirs.count * sizeof(float)));
        TRY(net_transfer(net, &item->others, true, peer, item->tag + 1, &h->asks,
                         sizeof h->asks));
    }
    return STATUS_OK;
}

/* The bucket is here for a use. */
static void raise_held(struct net *net, struct item *item)
{
    struct exec *exec = net->exec;
    struct net_holding *h = &net->holdings[item->number];

    h->left += (uint32_t)hold_lanes(exec, &net->walk, exec->node, h->phase);
    h->where = HERE;
    exec_meet(exec, "held");
    net_signal(exec, exec->program->unshard[item->number],
               item->needed.last >= 0 ? item->needed.last : exec->rank);
}

/* Gives back what is not this node's of a bucket. Neighbours go together, so that pages between them do. */
static void release_others(const struct net *net, int b)
{
    const struct exec *exec = net->exec;
    struct slice row = { 0, 0 };

    for (int node = 0; node <= exec->nodes; node++) {
        const bool is_theirs = node < exec->nodes && node != exec->node;
        const struct slice next =
            is_theirs ? net_slice(net, b, node, net->rail) : (struct slice){ 0, 0 };
        if (row.count > 0 && next.count > 0 && next.at == row.at + row.count) {
            row.count += next.count;
            continue;
        }
        pages_release(exec->param + row.at, row.count * sizeof(float));
        row = next;
    }
}

static enum status hold_on(struct net *net, struct item *item, bool *moved)
{
    const struct exec *exec = net->exec;
    struct net_holding *h = &net->holdings[item->number];
    const int b = item->number;
    bool came = false, asked = false;

    while (h->where == OUTSIDE && h->phase < h->phases && !is_used(net, h->phase, b))
        h->phase++;
    if (h->phase == h->phases)
        return STATUS_OK;
    switch (h->where) {
    case OUTSIDE:
        if (hold_place(exec, &net->walk, h->phase, b) > last_place(net))
            return STATUS_OK;
        *moved = true;
        if (hold_is_kept(exec, &net->walk, exec->node, h->phase, b)) {
            raise_held(net, item);
            return STATUS_OK;
        }
        h->where = COMING;
        return ask(net, item);
    case COMING:
        TRY(net_are_over(net, &item->needed, &came));
        TRY(net_are_over(net, &item->others, &asked));
        if (!came || !asked)
            return STATUS_OK;
        *moved = true;
        net_leave_channel(net, item);
        raise_held(net, item);
        return STATUS_OK;
    case HERE:
        if (!transport_reached(&exec->hold.left[b], h->left))
            return STATUS_OK;
        *moved = true;
        h->where = OUTSIDE;
        h->phase++;
        if (h->phase == h->phases || !hold_is_kept(exec, &net->walk, exec->node, h->phase, b))
            release_others(net, b);
        return STATUS_OK;
    }
    return STATUS_OK;
}

/* For net.c --------------------------------------------------------------------------------- */

enum status net_unshard_move(struct net *net, struct item *item, bool *moved)
{
    struct net_holding *h = &net->holdings[item->number];
    bool sends = false;

    *moved = false;
    for (int node = 0; node < net->exec->nodes; node++)
        TRY(give(net, item, node, moved));
    TRY(hold_on(net, item, moved));
    const bool gives = gives_still(net, item->number, &sends);
    h->is_over = h->phase == h->phases && !gives;
    item->stage = h->is_over ? FINISHED : sends || h->where == COMING ? SHARING : WAITING;
    return STATUS_OK;
}

enum status net_unshard_begin(struct net *net)
{
    const struct exec *exec = net->exec;
    const int phases = exec->hold.buckets ? hold_phases(exec, &net->walk, exec->node) : 0;

    for (int i = 0; i < net->n_items; i++) {
        const struct item *item = &net->items[i];
        if (item->kind != ITEM_HOLD)
            continue;
        struct net_holding *h = &net->holdings[item->number];
        h->where = OUTSIDE;
        h->phase = 0;
        h->phases = phases;
        h->is_over = false;
        for (int node = 0; node < exec->nodes; node++) {
            struct giving *g = &h->gives[node];
            const bool has_part = own_slice(net, item->number).count > 0;
            g->left = has_part && node != exec->node ? asks_of(net, item->number, node) : 0;
            if (g->left > 0)
                TRY(await_ask(net, item, node));
        }
    }
    return STATUS_OK;
}

void net_unshard_give_up(struct net *net)
{
    for (int b = 0; net->holdings && b < net->exec->buckets.count; b++) {
        for (int node = 0; node < net->exec->nodes; node++) {
            transport_cancel(net->exec->transport, &net->holdings[b].gives[node].ask);
            transport_cancel(net->exec->transport, &net->holdings[b].gives[node].part);
        }
    }
}

enum status net_unshard_create(struct net *net)
{
    const struct exec *exec = net->exec;
    const size_t buckets = (size_t)exec->buckets.count, nodes = (size_t)exec->nodes;
    struct giving *gives;

    if (!exec->hold.buckets)
        return STATUS_OK;
    TRY(mem_alloc(buckets, sizeof *net->holdings, &net->holdings));
    TRY(mem_alloc(buckets * nodes, sizeof *gives, &gives));
    for (size_t b = 0; b < buckets; b++)
        net->holdings[b].gives = gives + b * nodes;
    return STATUS_OK;
}

void net_unshard_destroy(struct net *net)
{
    if (net->holdings)
        mem_free(net->holdings[0].gives);
    mem_free(net->holdings);
}
