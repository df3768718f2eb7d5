/* SPDX-License-Identifier: MIT */
/* halving.c - messages, 2^k ranks: recursive halving, then recursive doubling.
 *
 * In round i rank r meets rank r ^ 2^i; both hold sums of the same span of the vector
 * over their 2^i neighbours. They swap halves: each keeps one half and adds the half
 * that arrives, the lower rank's on the left. So after round i a rank holds the node
 * over 2^(i+1) ranks of the tree of sums, for a span that halved. With four ranks:
 *
 *   rank     start    round 0           round 1                 back: all spans are
 *    0      a.b.c.d   a..b of 0+1       a of (0+1)+(2+3)        handed round in the
 *    1      a.b.c.d   c..d of 0+1       c of (0+1)+(2+3)        opposite order
 *    2      a.b.c.d   a..b of 2+3       b of (0+1)+(2+3)
 *    3      a.b.c.d   c..d of 2+3       d of (0+1)+(2+3)
 *
 * Cost: 2 log2(p) steps; each of the p ranks sends 2n(p-1)/p bytes.
 */
#include "comm/algorithm.h"

static bool can_run(const struct comm *comm, size_t bytes)
{
    (void)bytes;
    return (comm->size & (comm->size - 1)) == 0;
}

static enum status all_reduce(struct comm *comm, const struct comm_call *call, const void *in,
                              void *out)
{
    const size_t elem = dtype_size(call->dtype);
    struct comm_part spans[COMM_DEPTH] = { { 0, call->count } };
    char *data = out, *arrived;
    int round = 0;

    (void)in;
    TRY(comm_enter(comm, call, NULL, 0, NULL, 0));
    TRY(comm_heap(comm, (call->count + 1) / 2 * elem, &arrived));

    for (; 1 << round < comm->size; round++) {
        const int peer = comm->rank ^ 1 << round;
        const bool is_lower = comm->rank < peer;
        const size_t half = spans[round].count / 2;
        const struct comm_part low = { spans[round].start, half };
        const struct comm_part high = { low.start + half, spans[round].count - half };
        const struct comm_part kept = is_lower ? low : high, given = is_lower ? high : low;
        char *mine = data + kept.start * elem;

        TRY(comm_exchange(comm, peer, data + given.start * elem, given.count * elem, peer,
                          arrived, kept.count * elem));
        comm_combine(call, mine, is_lower ? mine : arrived, is_lower ? arrived : mine,
                     kept.count);
        spans[round + 1] = kept;
    }
    while (round-- > 0) {
        const int peer = comm->rank ^ 1 << round;
        const struct comm_part whole = spans[round], kept = spans[round + 1];
        const struct comm_part missing = { kept.start == whole.start ? whole.start + kept.count
                                                                     : whole.start,
                                           whole.count - kept.count };
        TRY(comm_exchange(comm, peer, data + kept.start * elem, kept.count * elem, peer,
                          data + missing.start * elem, missing.count * elem));
    }
    return STATUS_OK;
}

static struct comm_cost cost(int size, size_t bytes)
{
    double steps = 0;

    for (int width = 1; width < size; width *= 2)
        steps += 2;
    return (struct comm_cost){ .steps = steps,
                               .bytes = 2.0 * (double)bytes * (size - 1) / size };
}

const struct comm_algorithm comm_halving = {
    .name = "halving",
    .summary = "messages, 2^k ranks: recursive halving and doubling",
    .by_messages = true,
    .can_run = can_run,
    .run = { [COMM_ALL_REDUCE] = all_reduce },
    .cost = cost,
};
