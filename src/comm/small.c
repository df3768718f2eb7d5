/* SPDX-License-Identifier: MIT */
/* small.c - little data: everyone reads everyone's.
 *
 * The data travels in the slot with which a rank enters the call, up to 24 bytes of it
 * in the very cache line that says "I am here". When all slots have arrived each rank
 * works out the result by itself. With two ranks a, b:
 *
 *   slot a: [call | 3 5]    slot b: [call | 1 2]    both read both: 4 7
 *
 * Cost: 1 step; each of the p ranks reads n(p-1) bytes and adds as many.
 */
#include <string.h>

#include "comm/algorithm.h"

static bool can_run(const struct comm *comm, size_t bytes)
{
    return bytes <= comm->small_bytes;
}

/* Reduces elements [start, start + count) of all payloads into out. */
static void reduce(struct comm *comm, const struct comm_call *call, size_t payload_bytes,
                   size_t start, size_t count, void *out)
{
    const size_t offset = start * dtype_size(call->dtype);

    for (int rank = 0; rank < comm->size; rank++)
        comm->sources[rank] = (void *)comm_payload(comm, rank, payload_bytes);
    comm_order_of_ranks(comm, comm->size);
    comm_combine_tree(comm, call, comm->sources, offset, count, out);
}

static enum status all_reduce(struct comm *comm, const struct comm_call *call, const void *in,
                              void *out)
{
    const size_t bytes = call->count * dtype_size(call->dtype);

    TRY(comm_enter(comm, call, NULL, 0, in, bytes));
    reduce(comm, call, bytes, 0, call->count, out);
    return STATUS_OK;
}

static enum status reduce_scatter(struct comm *comm, const struct comm_call *call,
                                  const void *in, void *out)
{
    const size_t bytes = call->count * dtype_size(call->dtype) * (size_t)comm->size;

    TRY(comm_enter(comm, call, NULL, 0, in, bytes));
    reduce(comm, call, bytes, (size_t)comm->rank * call->count, call->count, out);
    return STATUS_OK;
}

static enum status all_gather(struct comm *comm, const struct comm_call *call, const void *in,
                              void *out)
{
    const size_t bytes = call->count * dtype_size(call->dtype);

    TRY(comm_enter(comm, call, NULL, 0, in, bytes));
    for (int rank = 0; rank < comm->size && bytes > 0; rank++)
        memcpy((char *)out + (size_t)rank * bytes, comm_payload(comm, rank, bytes), bytes);
    return STATUS_OK;
}

static enum status broadcast(struct comm *comm, const struct comm_call *call, const void *in,
                             void *out)
{
    const size_t bytes = call->count * dtype_size(call->dtype);
    const bool is_root = call->root == comm->rank;

    TRY(comm_enter(comm, call, NULL, 0, in, is_root ? bytes : 0));
    if (!is_root && bytes > 0)
        memcpy(out, comm_payload(comm, call->root, bytes), bytes);
    return STATUS_OK;
}

static struct comm_cost cost(enum comm_kind kind, const struct comm_shape *shape, size_t bytes)
{
    const double others = shape->size - 1, n = (double)bytes;
    const double read = kind == COMM_REDUCE_SCATTER ? n * others / shape->size
                        : kind == COMM_BROADCAST    ? (others > 0 ? n : 0)
                                                    : n * others;

    return (struct comm_cost){ .steps = 1, .bytes = read };
}

const struct comm_algorithm comm_small = {
    .name = "small",
    .summary = "shared memory, little data: every rank reads every rank's and sums by itself",
    .can_run = can_run,
    .run = { [COMM_ALL_REDUCE] = all_reduce,
             [COMM_REDUCE_SCATTER] = reduce_scatter,
             [COMM_ALL_GATHER] = all_gather,
             [COMM_BROADCAST] = broadcast },
    .cost = cost,
};
