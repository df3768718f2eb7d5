/* SPDX-License-Identifier: MIT */
/* tree.c - messages along a binomial tree, for little data.
 *
 * In round i of a reduction rank r, if its bits below i are 0, receives from rank r + 2^i, which
 * then is done, and adds that on the right: so it holds the node over 2^(i+1) ranks of the tree
 * of sums. Rank 0 ends with the sum and hands it down the same tree. With five ranks:
 *
 *   round 0   0 <- 1   2 <- 3   4        back: 4 last came, so first goes
 *   round 1   0 <- 2            4        0 -> 4,  0 -> 2,  0 -> 1 and 2 -> 3
 *   round 2   0 <- 4
 *
 * Cost: 2 log2(p) steps and as many messages of rank 0, n bytes each.
 */
#include "comm/algorithm.h"

static bool can_run(const struct comm *comm, size_t bytes)
{
    (void)comm;
    (void)bytes;
    return true;
}

/* Adds all ranks' data up in rank 0's. */
static enum status reduce(struct comm *comm, const struct comm_call *call, char *data,
                          char *arrived)
{
    const size_t bytes = call->count * dtype_size(call->dtype);

    for (int width = 1; width < comm->size; width *= 2) {
        if (comm->rank & width) {
            TRY(comm_start_send(comm, comm->rank - width, data, bytes));
            return comm_finish(comm, call);
        }
        if (comm->rank + width >= comm->size)
            continue;
        TRY(comm_start_receive(comm, comm->rank + width, arrived, bytes));
        TRY(comm_finish(comm, call));
        comm_combine(call, data, data, arrived, call->count);
    }
    return STATUS_OK;
}

/* Hands the root's data to all, places counted from the root. */
static enum status hand_down(struct comm *comm, const struct comm_call *call, int root,
                             char *data)
{
    const size_t bytes = call->count * dtype_size(call->dtype);
    const int place = (comm->rank - root + comm->size) % comm->size;
    int width = 1;

    while (width < comm->size && !(place & width))
        width *= 2;
    if (place > 0) {
        TRY(comm_start_receive(comm, (place - width + root) % comm->size, data, bytes));
        TRY(comm_finish(comm, call));
    }
    for (width /= 2; width > 0; width /= 2) {
        if (place + width < comm->size)
            TRY(comm_start_send(comm, (place + width + root) % comm->size, data, bytes));
    }
    return comm_finish(comm, call);
}

static enum status all_reduce(struct comm *comm, const struct comm_call *call, const void *in,
                              void *out)
{
    char *arrived;

    (void)in;
    TRY(comm_enter(comm, call, NULL, 0, NULL, 0));
    TRY(comm_heap(comm, call->count * dtype_size(call->dtype), &arrived));
    TRY(reduce(comm, call, out, arrived));
    return hand_down(comm, call, 0, out);
}

static enum status broadcast(struct comm *comm, const struct comm_call *call, const void *in,
                             void *out)
{
    (void)in;
    TRY(comm_enter(comm, call, NULL, 0, NULL, 0));
    return hand_down(comm, call, call->root, out);
}

static struct comm_cost cost(enum comm_kind kind, const struct comm_shape *shape, size_t bytes)
{
    const double ways = kind == COMM_ALL_REDUCE ? 2 : 1, n = (double)bytes;
    const double steps = ways * comm_levels(shape->size);

    return (struct comm_cost){ .steps = steps,
                               .messages = steps,
                               .bytes = steps * n,
                               .wire = ways * comm_levels(shape->nodes) * n };
}

const struct comm_algorithm comm_tree = {
    .name = "tree",
    .summary = "messages along a binomial tree: all_reduce and broadcast of little data",
    .by_messages = true,
    .can_run = can_run,
    .run = { [COMM_ALL_REDUCE] = all_reduce, [COMM_BROADCAST] = broadcast },
    .cost = cost,
};
