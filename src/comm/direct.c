/* SPDX-License-Identifier: MIT */
/* direct.c - messages: each part of the vector goes straight to the rank that sums it.
 *
 * The vector is cut into one part a rank. Everyone sends part r to rank r, which combines the p
 * copies along the tree and sends the result to everyone (exchange.h). Works for any number of
 * ranks, on any transport.
 *
 * All messages of a step are under way at once.
 * Cost: 2(p-1) messages in 2 dependent steps; each of the p ranks sends 2n(p-1)/p bytes.
 */
#include <string.h>

#include "comm/algorithm.h"
#include "comm/exchange.h"

static bool can_run(const struct comm *comm, size_t bytes)
{
    (void)comm;
    (void)bytes;
    return true;
}

/* Parts in elements, one a rank, and what this rank transfers. */
struct plan {
    struct exchange_member *parts;
    struct exchange_transfer *transfers;
    char *arrived; /* others' copies of the own part */
};

static enum status make_plan(struct comm *comm, size_t own_bytes, struct plan *out)
{
    const size_t size = (size_t)comm->size;
    const size_t parts = size * sizeof *out->parts;
    const size_t transfers = 2 * size * sizeof *out->transfers;
    char *memory;

    TRY(comm_heap(comm, parts + transfers + size * own_bytes, &memory));
    *out = (struct plan){ .parts = (void *)memory,
                          .transfers = (void *)(memory + parts),
                          .arrived = memory + parts + transfers };
    return STATUS_OK;
}

/* As equal as can be. */
static void cut(const struct comm *comm, const struct comm_call *call, const struct plan *plan)
{
    for (int rank = 0; rank < comm->size; rank++) {
        const struct comm_part part =
            comm_part_at(call->count, dtype_size(call->dtype), comm->size, rank);
        plan->parts[rank] = (struct exchange_member){ part.start, part.count, 1 };
    }
}

/* Parts of call->count each. */
static void line_up(const struct comm *comm, const struct comm_call *call,
                    const struct plan *plan)
{
    for (int rank = 0; rank < comm->size; rank++)
        plan->parts[rank] =
            (struct exchange_member){ (size_t)rank * call->count, call->count, 1 };
}

/* Sends part r of the vector to rank r, and adds all copies of the own part. */
static enum status scatter(struct comm *comm, const struct comm_call *call, const char *data,
                           const struct plan *plan, void *out)
{
    const struct exchange_member own = plan->parts[comm->rank];
    const size_t elem = dtype_size(call->dtype);
    const int n = exchange_reduce_scatter(plan->parts, comm->size, comm->rank, plan->transfers);
    char *arrived = plan->arrived;

    comm->sources[comm->rank] = (char *)data + own.at * elem;
    for (int i = 0; i < n; i++) {
        const struct exchange_transfer *x = &plan->transfers[i];
        const size_t bytes = x->count * elem;

        if (x->is_send) {
            TRY(comm_start_send(comm, x->member, data + x->at * elem, bytes));
            continue;
        }
        TRY(comm_start_receive(comm, x->member, arrived, bytes));
        comm->sources[x->member] = arrived;
        arrived += bytes;
    }
    TRY(comm_finish(comm, call));
    comm_order_of_ranks(comm, comm->size);
    comm_combine_tree(comm, call, comm->sources, 0, own.count, out);
    return STATUS_OK;
}

/* Sends the own part of the vector to everyone and receives theirs. */
static enum status gather(struct comm *comm, const struct comm_call *call, char *data,
                          const struct plan *plan)
{
    const size_t elem = dtype_size(call->dtype);
    const int n = exchange_all_gather(plan->parts, comm->size, comm->rank, plan->transfers);

    for (int i = 0; i < n; i++) {
        const struct exchange_transfer *x = &plan->transfers[i];
        char *part = data + x->at * elem;

        if (x->is_send)
            TRY(comm_start_send(comm, x->member, part, x->count * elem));
        else
            TRY(comm_start_receive(comm, x->member, part, x->count * elem));
    }
    return comm_finish(comm, call);
}

static enum status all_reduce(struct comm *comm, const struct comm_call *call, const void *in,
                              void *out)
{
    const size_t elem = dtype_size(call->dtype);
    const struct comm_part own = comm_part_at(call->count, elem, comm->size, comm->rank);
    struct plan plan;

    TRY(comm_enter(comm, call, NULL, 0, NULL, 0));
    TRY(make_plan(comm, own.count * elem, &plan));
    cut(comm, call, &plan);
    TRY(scatter(comm, call, in, &plan, (char *)out + own.start * elem));
    return gather(comm, call, out, &plan);
}

static enum status reduce_scatter(struct comm *comm, const struct comm_call *call,
                                  const void *in, void *out)
{
    struct plan plan;

    TRY(comm_enter(comm, call, NULL, 0, NULL, 0));
    TRY(make_plan(comm, call->count * dtype_size(call->dtype), &plan));
    line_up(comm, call, &plan);
    return scatter(comm, call, in, &plan, out);
}

static enum status all_gather(struct comm *comm, const struct comm_call *call, const void *in,
                              void *out)
{
    const size_t bytes = call->count * dtype_size(call->dtype);
    char *mine = (char *)out + (size_t)comm->rank * bytes;
    struct plan plan;

    TRY(comm_enter(comm, call, NULL, 0, NULL, 0));
    TRY(make_plan(comm, 0, &plan));
    line_up(comm, call, &plan);
    if (mine != in && bytes > 0)
        memcpy(mine, in, bytes);
    return gather(comm, call, out, &plan);
}

/* The root cuts the vector into parts, one a rank, and everyone passes its part on: the root
 * sends n(2p-1)/p bytes at most instead of n(p-1). */
static enum status broadcast(struct comm *comm, const struct comm_call *call, const void *in,
                             void *out)
{
    const size_t elem = dtype_size(call->dtype);
    struct plan plan;

    (void)in;
    TRY(comm_enter(comm, call, NULL, 0, NULL, 0));
    TRY(make_plan(comm, 0, &plan));
    cut(comm, call, &plan);
    for (int rank = 0; rank < comm->size && comm->rank == call->root; rank++) {
        if (rank != call->root)
            TRY(comm_start_send(comm, rank, (char *)out + plan.parts[rank].at * elem,
                                plan.parts[rank].count * elem));
    }
    const struct exchange_member own = plan.parts[comm->rank];
    if (comm->rank != call->root)
        TRY(comm_start_receive(comm, call->root, (char *)out + own.at * elem,
                               own.count * elem));
    TRY(comm_finish(comm, call));
    return gather(comm, call, out, &plan);
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
