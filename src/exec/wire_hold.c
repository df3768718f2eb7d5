/* SPDX-License-Identifier: MIT */
/* wire_hold.c - the wires' side of parameters that are held in parts (hold.h).
 *
 * For each such bucket a wire does two things that know nothing of each other. It *gives*: whenever another node
 * asks for this rail's part, that is sent. It *holds*: use after use it asks the other nodes for their parts, as
 * soon as the use comes into the window; when they are here it raises held[b], and when all lanes have left the
 * bucket it releases them.
 *
 *   outside --comes into the window--> coming --all parts are here--> here --all lanes left--> outside
 *
 * Parts are sent to who asked, not before: what nobody has asked for would be kept in the receiver's memory,
 * which is what there is none of. A part does not change while it may be asked for: its update
 * waits until this wire has given it for the last time in the step, and all nodes are through with it then.
 */
#include <string.h>

#include "base/mem.h"
#include "exec/pages.h"
#include "exec/wire.h"

enum where { OUTSIDE, COMING, HERE };

/* What another node gets of a bucket. */
struct giving {
    uint32_t left; /* times that it will still ask in this walk */
    uint32_t asked;
    bool is_asked; /* and the part is on its way */
    struct transport_request ask, part;
};

struct wire_holding {
    enum where where;
    int phase, phases; /* of the walk: the use that is next or now; how many there are */
    uint32_t left;     /* what left[b] is when all lanes are through with that use */
    uint32_t asks;     /* how often this wire has asked: what asks say */
    bool is_over;
    struct giving *gives; /* one a node */
};

static struct slice own_slice(const struct wire *wire, int b)
{
    return wire_slice(wire, b, wire->exec->node, wire->rail);
}

bool wire_hold_is_over(const struct wire *wire, int b)
{
    return !(wire->exec->hold.buckets >> b & 1) || wire->holdings[b].is_over;
}

/* Giving ------------------------------------------------------------------------------------- */

/* How often a node asks for a bucket in this walk. */
static uint32_t asks_of(const struct wire *wire, int b, int node)
{
    const struct exec *exec = wire->exec;
    const struct hold_walk *walk = &wire->walk;
    const int phases = hold_phases(exec, walk, node);
    uint32_t asks = 0;

    for (int p = 0; p < phases; p++) {
        if (hold_is_used(exec, walk, node, p, b))
            asks += !hold_is_kept(exec, walk, node, p, b);
    }
    return asks;
}

static enum status await_ask(struct wire *wire, const struct item *item, int node)
{
    struct giving *g = &wire->holdings[item->number].gives[node];

    return transport_start_receive(wire->exec->transport, wire_peer(wire, node), item->tag + 1,
                                   &g->asked, sizeof g->asked, &g->ask);
}

static enum status give(struct wire *wire, const struct item *item, int node, bool *moved)
{
    const struct exec *exec = wire->exec;
    struct giving *g = &wire->holdings[item->number].gives[node];
    const struct slice own = own_slice(wire, item->number);
    const size_t bytes = own.count * sizeof(float);
    bool done = false;

    if (g->left == 0)
        return STATUS_OK;
    if (!g->is_asked) {
        TRY(transport_test(exec->transport, &g->ask, &done));
        if (!done)
            return STATUS_OK;
        TRY(transport_start_send(exec->transport, wire_peer(wire, node), item->tag,
                                 exec->param + own.at, bytes, &g->part));
        wire->lane.times.bytes += (int64_t)bytes;
        g->is_asked = *moved = true;
    }
    TRY(transport_test(exec->transport, &g->part, &done));
    if (!done)
        return STATUS_OK;
    g->is_asked = false;
    *moved = true;
    return --g->left > 0 ? await_ask(wire, item, node) : STATUS_OK;
}

static bool gives_still(const struct wire *wire, int b, bool *out_sends)
{
    bool still = false;

    for (int node = 0; node < wire->exec->nodes; node++) {
        still |= wire->holdings[b].gives[node].left > 0;
        *out_sends |= wire->holdings[b].gives[node].is_asked;
    }
    return still;
}

/* Holding ------------------------------------------------------------------------------------ */

/* The last place in the queue that may come now: one behind what lanes have come to, and as many more as
 * fit the window. */
static int64_t last_place(const struct wire *wire)
{
    const struct exec *exec = wire->exec;
    const int64_t furthest = hold_furthest(&exec->hold, wire->walks);
    size_t bytes = 0;

    for (int64_t place = furthest; place < INT64_MAX; place++) {
        const int b = hold_at(exec, &wire->walk, place + 1);
        const int64_t count = exec->buckets.begin[b + 1] - exec->buckets.begin[b];
        bytes += (size_t)count * sizeof(float);
        if (place > furthest && bytes > exec->window)
            return place;
    }
    return INT64_MAX;
}

static bool is_used(const struct wire *wire, int phase, int b)
{
    return hold_is_used(wire->exec, &wire->walk, wire->exec->node, phase, b);
}

/* Asks the other nodes for their parts. */
static enum status ask(struct wire *wire, struct item *item)
{
    const struct exec *exec = wire->exec;
    struct wire_holding *h = &wire->holdings[item->number];

    wire_forget_transfers(item);
    wire_take_channel(wire, item);
    h->asks++;
    for (int node = 0; node < exec->nodes; node++) {
        const struct slice theirs = wire_slice(wire, item->number, node, wire->rail);
        if (node == exec->node || theirs.count == 0)
            continue;
        const int peer = wire_peer(wire, node);
        TRY(wire_transfer(wire, &item->needed, false, peer, item->tag, exec->param + theirs.at,
                          theirs.count * sizeof(float)));
        TRY(wire_transfer(wire, &item->others, true, peer, item->tag + 1, &h->asks,
                          sizeof h->asks));
    }
    return STATUS_OK;
}

/* The bucket is here for a use. */
static void raise_held(struct wire *wire, struct item *item)
{
    struct exec *exec = wire->exec;
    struct wire_holding *h = &wire->holdings[item->number];

    h->left += (uint32_t)hold_lanes(exec, &wire->walk, exec->node, h->phase);
    h->where = HERE;
    exec_meet(exec, "held");
    wire_signal(exec, exec->program->unshard[item->number],
                item->needed.last >= 0 ? item->needed.last : exec->rank);
}

/* Gives back what is not this node's of a bucket. Neighbours go together, so that pages between them do. */
static void release_others(const struct wire *wire, int b)
{
    const struct exec *exec = wire->exec;
    struct slice row = { 0, 0 };

    for (int node = 0; node <= exec->nodes; node++) {
        const bool is_theirs = node < exec->nodes && node != exec->node;
        const struct slice next =
            is_theirs ? wire_slice(wire, b, node, wire->rail) : (struct slice){ 0, 0 };
        if (row.count > 0 && next.count > 0 && next.at == row.at + row.count) {
            row.count += next.count;
            continue;
        }
        pages_release(exec->param + row.at, row.count * sizeof(float));
        row = next;
    }
}

static enum status hold_on(struct wire *wire, struct item *item, bool *moved)
{
    const struct exec *exec = wire->exec;
    struct wire_holding *h = &wire->holdings[item->number];
    const int b = item->number;
    bool came = false, asked = false;

    while (h->where == OUTSIDE && h->phase < h->phases && !is_used(wire, h->phase, b))
        h->phase++;
    if (h->phase == h->phases)
        return STATUS_OK;
    switch (h->where) {
    case OUTSIDE:
        if (hold_place(exec, &wire->walk, h->phase, b) > last_place(wire))
            return STATUS_OK;
        *moved = true;
        if (hold_is_kept(exec, &wire->walk, exec->node, h->phase, b)) {
            raise_held(wire, item);
            return STATUS_OK;
        }
        h->where = COMING;
        return ask(wire, item);
    case COMING:
        TRY(wire_are_over(wire, &item->needed, &came));
        TRY(wire_are_over(wire, &item->others, &asked));
        if (!came || !asked)
            return STATUS_OK;
        *moved = true;
        wire_leave_channel(wire, item);
        raise_held(wire, item);
        return STATUS_OK;
    case HERE:
        if (!transport_reached(&exec->hold.left[b], h->left))
            return STATUS_OK;
        *moved = true;
        h->where = OUTSIDE;
        h->phase++;
        if (h->phase == h->phases || !hold_is_kept(exec, &wire->walk, exec->node, h->phase, b))
            release_others(wire, b);
        return STATUS_OK;
    }
    return STATUS_OK;
}

/* For wire.c --------------------------------------------------------------------------------- */

enum status wire_hold_move(struct wire *wire, struct item *item, bool *moved)
{
    struct wire_holding *h = &wire->holdings[item->number];
    bool sends = false;

    *moved = false;
    for (int node = 0; node < wire->exec->nodes; node++)
        TRY(give(wire, item, node, moved));
    TRY(hold_on(wire, item, moved));
    const bool gives = gives_still(wire, item->number, &sends);
    h->is_over = h->phase == h->phases && !gives;
    item->stage = h->is_over ? FINISHED : sends || h->where == COMING ? SHARING : WAITING;
    return STATUS_OK;
}

enum status wire_hold_begin(struct wire *wire)
{
    const struct exec *exec = wire->exec;
    const int phases = exec->hold.buckets ? hold_phases(exec, &wire->walk, exec->node) : 0;

    for (int i = 0; i < wire->n_items; i++) {
        const struct item *item = &wire->items[i];
        if (item->kind != ITEM_HOLD)
            continue;
        struct wire_holding *h = &wire->holdings[item->number];
        h->where = OUTSIDE;
        h->phase = 0;
        h->phases = phases;
        h->is_over = false;
        for (int node = 0; node < exec->nodes; node++) {
            struct giving *g = &h->gives[node];
            const bool has_part = own_slice(wire, item->number).count > 0;
            g->left = has_part && node != exec->node ? asks_of(wire, item->number, node) : 0;
            if (g->left > 0)
                TRY(await_ask(wire, item, node));
        }
    }
    return STATUS_OK;
}

void wire_hold_give_up(struct wire *wire)
{
    for (int b = 0; wire->holdings && b < wire->exec->buckets.count; b++) {
        for (int node = 0; node < wire->exec->nodes; node++) {
            transport_cancel(wire->exec->transport, &wire->holdings[b].gives[node].ask);
            transport_cancel(wire->exec->transport, &wire->holdings[b].gives[node].part);
        }
    }
}

enum status wire_hold_create(struct wire *wire)
{
    const struct exec *exec = wire->exec;
    const size_t buckets = (size_t)exec->buckets.count, nodes = (size_t)exec->nodes;
    struct giving *gives;

    if (!exec->hold.buckets)
        return STATUS_OK;
    TRY(mem_alloc(buckets, sizeof *wire->holdings, &wire->holdings));
    TRY(mem_alloc(buckets * nodes, sizeof *gives, &gives));
    for (size_t b = 0; b < buckets; b++)
        wire->holdings[b].gives = gives + b * nodes;
    return STATUS_OK;
}

void wire_hold_destroy(struct wire *wire)
{
    if (wire->holdings)
        mem_free(wire->holdings[0].gives);
    mem_free(wire->holdings);
}
