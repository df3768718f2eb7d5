/* SPDX-License-Identifier: MIT */
/* shared.c - shared memory, much data: each rank reduces one part of the vector for all.
 *
 * If all ranks' vectors lie in memory that everyone sees, nothing is copied. Once all
 * have arrived rank r reads part r of every vector, combines it along the tree, and
 * writes the result into part r of every vector. With two ranks a, b:
 *
 *             part 0        part 1
 *   a's     rank 0 reads   rank 1 reads
 *   b's     both, writes   both, writes
 *           a0+b0 to both  a1+b1 to both
 *
 * Private vectors pass through shared scratch memory in pieces that stay in the cache:
 * copy in, meet, reduce the own part of the piece, meet, copy out. Two scratch pieces
 * are used in turn: a rank writes piece k + 2 after the meeting in piece k + 1, to which
 * everyone came after copying piece k out.
 *
 * Cost: 2 steps; each of the p ranks reads n(p-1)/p bytes of the others' and writes as
 * many for them.
 */
#include <string.h>

#include "comm/algorithm.h"

static bool can_run(const struct comm *comm, size_t bytes)
{
    (void)bytes;
    return comm->scratch != NULL;
}

/* Half `piece` % 2 of rank's scratch memory. */
static char *scratch_at(const struct comm *comm, int rank, size_t piece)
{
    return comm->scratch + ((size_t)rank * 2 + piece % 2) * COMM_PIECE_BYTES;
}

static void use_scratch(struct comm *comm, size_t piece)
{
    for (int rank = 0; rank < comm->size; rank++)
        comm->sources[rank] = scratch_at(comm, rank, piece);
}

/* Copies nothing where source and target are the same. */
static void copy(void *to, const void *from, size_t bytes)
{
    if (to != from && bytes > 0)
        memcpy(to, from, bytes);
}

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* all_reduce ----------------------------------------------------------------------------- */

/* Reduces the own part of a piece in scratch memory, in the own scratch memory. */
static void reduce_piece(struct comm *comm, const struct comm_call *call, size_t count)
{
    const size_t elem = dtype_size(call->dtype);
    const struct comm_part part = comm_part_at(count, elem, comm->size, comm->rank);
    const size_t offset = part.start * elem;

    comm_order_of_ranks(comm, comm->size);
    comm_combine_tree(comm, call, comm->sources, offset, part.count,
                      (char *)comm->sources[comm->rank] + offset);
}

static enum status all_reduce_staged(struct comm *comm, const struct comm_call *call,
                                     char *data)
{
    const size_t elem = dtype_size(call->dtype), step = comm->piece_bytes / elem;

    for (size_t at = 0, piece = 0; at < call->count; at += step, piece++) {
        const size_t n = smaller(step, call->count - at);

        use_scratch(comm, piece);
        memcpy(scratch_at(comm, comm->rank, piece), data + at * elem, n * elem);
        TRY(comm_sync(comm, call));
        reduce_piece(comm, call, n);
        TRY(comm_sync(comm, call));
        for (int rank = 0; rank < comm->size; rank++) {
            const struct comm_part part = comm_part_at(n, elem, comm->size, rank);
            copy(data + (at + part.start) * elem,
                 (const char *)comm->sources[rank] + part.start * elem, part.count * elem);
        }
    }
    return STATUS_OK;
}

static enum status all_reduce(struct comm *comm, const struct comm_call *call, const void *in,
                              void *out)
{
    const size_t elem = dtype_size(call->dtype);
    const struct comm_part part = comm_part_at(call->count, elem, comm->size, comm->rank);

    TRY(comm_enter(comm, call, in, call->count * elem, NULL, 0));
    if (!comm->all_shared)
        return all_reduce_staged(comm, call, out);
    comm_order_of_ranks(comm, comm->size);
    comm_combine_tree_all(comm, call, comm->sources, part.start * elem, part.count);
    return comm_sync(comm, call);
}

/* reduce_scatter ------------------------------------------------------------------------- */

static enum status reduce_scatter_staged(struct comm *comm, const struct comm_call *call,
                                         const char *data, char *mine)
{
    const size_t elem = dtype_size(call->dtype), parts = (size_t)comm->size;
    const size_t step = comm->piece_bytes / elem / parts;

    for (size_t at = 0, piece = 0; at < call->count; at += step, piece++) {
        const size_t n = smaller(step, call->count - at);

        use_scratch(comm, piece);
        for (size_t part = 0; part < parts; part++)
            memcpy(scratch_at(comm, comm->rank, piece) + part * n * elem,
                   data + (part * call->count + at) * elem, n * elem);
        TRY(comm_sync(comm, call));
        comm_order_of_ranks(comm, comm->size);
        comm_combine_tree(comm, call, comm->sources, (size_t)comm->rank * n * elem, n,
                          mine + at * elem);
    }
    return STATUS_OK;
}

static enum status reduce_scatter(struct comm *comm, const struct comm_call *call,
                                  const void *in, void *out)
{
    const size_t bytes = call->count * dtype_size(call->dtype);

    TRY(comm_enter(comm, call, in, bytes * (size_t)comm->size, NULL, 0));
    if (!comm->all_shared)
        return reduce_scatter_staged(comm, call, in, out);
    comm_order_of_ranks(comm, comm->size);
    comm_combine_tree(comm, call, comm->sources, (size_t)comm->rank * bytes, call->count, out);
    return comm_sync(comm, call);
}

/* all_gather and broadcast ---------------------------------------------------------------- */

/* Copies `bytes` of the senders' vectors to the others, through scratch memory. from: the only
 * sender, or -1 if all send. */
static enum status copy_staged(struct comm *comm, const struct comm_call *call, int from,
                               const char *in, char *out, size_t bytes)
{
    const size_t step = comm->piece_bytes;

    for (size_t at = 0, piece = 0; at < bytes; at += step, piece++) {
        const size_t n = smaller(step, bytes - at);

        if (from < 0 || from == comm->rank)
            memcpy(scratch_at(comm, comm->rank, piece), in + at, n);
        TRY(comm_sync(comm, call));
        for (int rank = 0; rank < comm->size; rank++) {
            if (from < 0)
                memcpy(out + (size_t)rank * bytes + at, scratch_at(comm, rank, piece), n);
            else if (from == rank && comm->rank != from)
                memcpy(out + at, scratch_at(comm, rank, piece), n);
        }
    }
    return STATUS_OK;
}

static enum status all_gather(struct comm *comm, const struct comm_call *call, const void *in,
                              void *out)
{
    const size_t bytes = call->count * dtype_size(call->dtype);

    TRY(comm_enter(comm, call, in, bytes, NULL, 0));
    if (!comm->all_shared)
        return copy_staged(comm, call, -1, in, out, bytes);
    for (int i = 0; i < comm->size; i++) { /* begin with the own one: spreads the readers */
        const int rank = (comm->rank + i) % comm->size;
        copy((char *)out + (size_t)rank * bytes, comm->sources[rank], bytes);
    }
    return comm_sync(comm, call);
}

static enum status broadcast(struct comm *comm, const struct comm_call *call, const void *in,
                             void *out)
{
    const size_t bytes = call->count * dtype_size(call->dtype);

    TRY(comm_enter(comm, call, in, bytes, NULL, 0));
    if (!comm->all_shared)
        return copy_staged(comm, call, call->root, in, out, bytes);
    copy(out, comm->sources[call->root], bytes);
    return comm_sync(comm, call);
}

static struct comm_cost cost(enum comm_kind kind, const struct comm_shape *shape, size_t bytes)
{
    const double others = shape->size - 1, n = (double)bytes;
    const double moved = kind == COMM_ALL_REDUCE       ? 2 * n * others / shape->size
                         : kind == COMM_REDUCE_SCATTER ? n * others / shape->size
                         : kind == COMM_ALL_GATHER     ? n * others
                         : others > 0                  ? n
                                                       : 0;

    return (struct comm_cost){ .steps = 2, .bytes = moved };
}

const struct comm_algorithm comm_shared = {
    .name = "shared",
    .summary = "shared memory: each rank reduces its part of all vectors in place",
    .can_run = can_run,
    .run = { [COMM_ALL_REDUCE] = all_reduce,
             [COMM_REDUCE_SCATTER] = reduce_scatter,
             [COMM_ALL_GATHER] = all_gather,
             [COMM_BROADCAST] = broadcast },
    .cost = cost,
};
