/* SPDX-License-Identifier: MIT */
/* direct.c - messages: each part of the vector goes straight to the rank that sums it.
 *
 * The vector is cut into one part a rank. Everyone sends part r to rank r, which
 * combines the p copies along the tree and sends the result to everyone. Works for
 * any number of ranks, on any transport. With three ranks a, b, c:
 *
 *   part      start      after the exchange      sums          all-gather
 *    0      a0  b0  c0   rank 0: a0 b0 c0    (a0+b0)+c0      every rank has
 *    1      a1  b1  c1   rank 1: a1 b1 c1    (a1+b1)+c1      all three
 *    2      a2  b2  c2   rank 2: a2 b2 c2    (a2+b2)+c2
 *
 * All messages of a step are under way at once, rank r's first to rank r + 1.
 * Cost: 2(p-1) messages in 2 dependent steps; each of the p ranks sends 2n(p-1)/p bytes.
 */
#include <string.h>

#include "comm/algorithm.h"

static bool can_run(const struct comm *comm, size_t bytes)
{
    (void)comm;
    (void)bytes;
    return true;
}

/* Sends part r of the vector to rank r; the others' copies of the own part land one after
 * another in `arrived`, and comm->sources points to all of them in order of rank. */
static enum status scatter(struct comm *comm, const struct comm_call *call, const char *data,
                           const struct comm_part *parts, char *arrived)
{
    const int rank = comm->rank, size = comm->size;
    const size_t elem = dtype_size(call->dtype), bytes = parts[rank].count * elem;

    comm->sources[rank] = (char *)data + parts[rank].start * elem;
    for (int i = 1; i < size; i++) {
        const int from = (rank - i + size) % size;

        comm->sources[from] = arrived;
        TRY(comm_start_receive(comm, from, arrived, bytes));
        arrived += bytes;
    }
    for (int i = 1; i < size; i++) {
        const int to = (rank + i) % size;

        TRY(comm_start_send(comm, to, data + parts[to].start * elem, parts[to].count * elem));
    }
    return comm_finish(comm, call);
}

/* Sends the own part of the vector to everyone and receives theirs. */
static enum status gather(struct comm *comm, const struct comm_call *call, char *data,
                          const struct comm_part *parts)
{
    const int rank = comm->rank, size = comm->size;
    const size_t elem = dtype_size(call->dtype);

    for (int i = 1; i < size; i++) {
        const int from = (rank - i + size) % size;

        TRY(comm_start_receive(comm, from, data + parts[from].start * elem,
                               parts[from].count * elem));
    }
    for (int i = 1; i < size; i++)
        TRY(comm_start_send(comm, (rank + i) % size, data + parts[rank].start * elem,
                            parts[rank].count * elem));
    return comm_finish(comm, call);
}

/* The parts of the vector and room for the others' copies of the own one. */
static enum status lay_out(struct comm *comm, size_t own_bytes, struct comm_part **out_parts,
                           char **out_arrived)
{
    const size_t size = (size_t)comm->size;
    char *memory;

    TRY(comm_heap(comm, size * (sizeof(struct comm_part) + own_bytes), &memory));
    *out_parts = (void *)memory;
    *out_arrived = memory + size * sizeof(struct comm_part);
    return STATUS_OK;
}

static enum status all_reduce(struct comm *comm, const struct comm_call *call, const void *in,
                              void *out)
{
    const size_t elem = dtype_size(call->dtype);
    const struct comm_part own = comm_part_at(call->count, elem, comm->size, comm->rank);
    struct comm_part *parts;
    char *arrived;

    TRY(comm_enter(comm, call, NULL, 0, NULL, 0));
    TRY(lay_out(comm, own.count * elem, &parts, &arrived));
    for (int rank = 0; rank < comm->size; rank++)
        parts[rank] = comm_part_at(call->count, elem, comm->size, rank);
    TRY(scatter(comm, call, in, parts, arrived));
    comm_combine_tree(call, (const void **)comm->sources, comm->size, 0, own.count,
                      comm->blocks, (char *)out + own.start * elem);
    return gather(comm, call, out, parts);
}

static enum status reduce_scatter(struct comm *comm, const struct comm_call *call,
                                  const void *in, void *out)
{
    const size_t elem = dtype_size(call->dtype);
    struct comm_part *parts;
    char *arrived;

    TRY(comm_enter(comm, call, NULL, 0, NULL, 0));
    TRY(lay_out(comm, call->count * elem, &parts, &arrived));
    for (int rank = 0; rank < comm->size; rank++)
        parts[rank] = (struct comm_part){ (size_t)rank * call->count, call->count };
    TRY(scatter(comm, call, in, parts, arrived));
    comm_combine_tree(call, (const void **)comm->sources, comm->size, 0, call->count,
                      comm->blocks, out);
    return STATUS_OK;
}

static enum status all_gather(struct comm *comm, const struct comm_call *call, const void *in,
                              void *out)
{
    const size_t elem = dtype_size(call->dtype), bytes = call->count * elem;
    struct comm_part *parts;
    char *arrived, *mine = (char *)out + (size_t)comm->rank * bytes;

    TRY(comm_enter(comm, call, NULL, 0, NULL, 0));
    TRY(lay_out(comm, 0, &parts, &arrived));
    for (int rank = 0; rank < comm->size; rank++)
        parts[rank] = (struct comm_part){ (size_t)rank * call->count, call->count };
    if (mine != in && bytes > 0)
        memcpy(mine, in, bytes);
    return gather(comm, call, out, parts);
}

/* The root cuts the vector into parts, one a rank, and everyone passes its part on: the root
 * sends n(2p-1)/p bytes at most instead of n(p-1). */
static enum status broadcast(struct comm *comm, const struct comm_call *call, const void *in,
                             void *out)
{
    const size_t elem = dtype_size(call->dtype);
    struct comm_part *parts;
    char *arrived;

    (void)in;
    TRY(comm_enter(comm, call, NULL, 0, NULL, 0));
    TRY(lay_out(comm, 0, &parts, &arrived));
    for (int rank = 0; rank < comm->size; rank++)
        parts[rank] = comm_part_at(call->count, elem, comm->size, rank);

    const struct comm_part own = parts[comm->rank];
    for (int rank = 0; rank < comm->size && comm->rank == call->root; rank++) {
        if (rank != call->root)
            TRY(comm_start_send(comm, rank, (char *)out + parts[rank].start * elem,
                                parts[rank].count * elem));
    }
    if (comm->rank != call->root)
        TRY(comm_start_receive(comm, call->root, (char *)out + own.start * elem,
                               own.count * elem));
    TRY(comm_finish(comm, call));
    return gather(comm, call, out, parts);
}

/* Of what a rank sends the same goes to every other, on its node or not. */
static struct comm_cost cost(enum comm_kind kind, const struct comm_shape *shape, size_t bytes)
{
    const double p = shape->size, others = p - 1, n = (double)bytes;
    const double away = shape->nodes > 1 ? (p - shape->local) / others : 0;
    const bool is_twice = kind == COMM_ALL_REDUCE || kind == COMM_BROADCAST;
    const double steps = is_twice ? 2 : 1;
    const double sent = kind == COMM_ALL_GATHER ? n * others : steps * n * others / p;

    return (struct comm_cost){ .steps = steps,
                               .messages = steps * others,
                               .bytes = sent,
                               .wire = sent * away * shape->local };
}

const struct comm_algorithm comm_direct = {
    .name = "direct",
    .summary =
        "messages, any number of ranks: each part goes straight to the rank that sums it",
    .by_messages = true,
    .can_run = can_run,
    .run = { [COMM_ALL_REDUCE] = all_reduce,
             [COMM_REDUCE_SCATTER] = reduce_scatter,
             [COMM_ALL_GATHER] = all_gather,
             [COMM_BROADCAST] = broadcast },
    .cost = cost,
};
