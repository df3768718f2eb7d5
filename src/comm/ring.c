/* SPDX-License-Identifier: MIT */
/* ring.c - messages to the next rank only: all_gather round a ring, broadcast along a chain.
 *
 * all_gather: in each of p-1 rounds a rank passes on the part that came in the round before, at
 * first its own. With three ranks: 0 sends a, then c, then has a b c.
 *
 * broadcast: the root's vector goes from rank to rank in pieces, so that all links but the first
 * pieces' are busy at once: with pieces x y z
 *
 *   root -> 1:  x y z
 *      1 -> 2:    x y z
 *      2 -> 3:      x y z
 *
 * Ranks of a node are in a row, so between nodes everything goes once. No sums: their order is
 * the tree's, which a ring does not follow.
 * Cost: all_gather p-1 steps, n(p-1) bytes of each rank; broadcast p-1 steps, n bytes.
 */
#include <string.h>

#include "comm/algorithm.h"

static bool can_run(const struct comm *comm, size_t bytes)
{
    (void)comm;
    (void)bytes;
    return true;
}

static enum status all_gather(struct comm *comm, const struct comm_call *call, const void *in,
                              void *out)
{
    const size_t bytes = call->count * dtype_size(call->dtype);
    const int rank = comm->rank, size = comm->size;
    char *all = out, *mine = all + (size_t)rank * bytes;

    TRY(comm_enter(comm, call, NULL, 0, NULL, 0));
    if (mine != in && bytes > 0)
        memcpy(mine, in, bytes);
    for (int round = 0; round < size - 1; round++) {
        const int given = (rank - round + size) % size;
        const int taken = (rank - round - 1 + size) % size;

        TRY(comm_exchange(comm, call, (rank + 1) % size, all + (size_t)given * bytes, bytes,
                          (rank - 1 + size) % size, all + (size_t)taken * bytes, bytes));
    }
    return STATUS_OK;
}

/* While a piece is passed on, the next one arrives. */
static enum status broadcast(struct comm *comm, const struct comm_call *call, const void *in,
                             void *out)
{
    const size_t bytes = call->count * dtype_size(call->dtype);
    const int place = (comm->rank - call->root + comm->size) % comm->size;
    const int before = (comm->rank - 1 + comm->size) % comm->size;
    const int after = (comm->rank + 1) % comm->size;
    const bool receives = place > 0, sends = place < comm->size - 1;
    char *data = out;

    (void)in;
    TRY(comm_enter(comm, call, NULL, 0, NULL, 0));
    for (size_t at = 0, sent = 0; sent < bytes;) {
        const size_t left = bytes - at;
        const size_t n = left < COMM_HOP_BYTES ? left : COMM_HOP_BYTES;

        if (receives)
            TRY(comm_start_receive(comm, before, data + at, n));
        if (sends)
            TRY(comm_start_send(comm, after, data + sent, at - sent));
        TRY(comm_finish(comm, call));
        sent = at;
        at += n;
    }
    return STATUS_OK;
}

static struct comm_cost cost(enum comm_kind kind, const struct comm_shape *shape, size_t bytes)
{
    const double others = shape->size - 1, n = (double)bytes;
    const double hops = (n + COMM_HOP_BYTES - 1) / COMM_HOP_BYTES;
    struct comm_cost cost = { .steps = others, .messages = others, .bytes = n * others };

    if (kind == COMM_BROADCAST) {
        cost.messages = hops;
        cost.bytes = others > 0 ? n + (others - 1) * COMM_HOP_BYTES : 0;
    }
    cost.wire = shape->nodes > 1 ? cost.bytes : 0;
    return cost;
}

const struct comm_algorithm comm_ring = {
    .name = "ring",
    .summary = "messages to the next rank: all_gather and broadcast of much data",
    .by_messages = true,
    .can_run = can_run,
    .run = { [COMM_ALL_GATHER] = all_gather, [COMM_BROADCAST] = broadcast },
    .cost = cost,
};
