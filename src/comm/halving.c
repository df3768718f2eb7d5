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
 * all_reduce does both, reduce_scatter the first half, all_gather the second. Rank 1 ends with
 * the third span, so for these two the parts lie in the order of their numbers' bits read
 * backwards. broadcast gives each rank its span, the root first to its neighbour, then both
 * to theirs, and goes back in the same way.
 *
 * Neighbours meet while spans are long; between nodes, if each has 2^j ranks, goes as little as
 * between single ranks.
 * Cost: 2 log2(p) steps; each of the p ranks sends 2n(p-1)/p bytes.
 */
#include <string.h>

#include "comm/algorithm.h"

static bool can_run(const struct comm *comm, size_t bytes)
{
    (void)bytes;
    return (comm->size & (comm->size - 1)) == 0;
}

/* The halves of a span that a rank whose place has bit `round` keeps and gives away. */
static struct comm_part half_of(struct comm_part span, bool is_upper)
{
    const size_t half = span.count / 2;

    return is_upper ? (struct comm_part){ span.start + half, span.count - half }
                    : (struct comm_part){ span.start, half };
}

/* spans[i]: what a rank at that place holds before round i. Returns the number of rounds. */
static int find_spans(int size, int place, size_t count, struct comm_part *spans)
{
    int round = 0;

    spans[0] = (struct comm_part){ 0, count };
    for (; 1 << round < size; round++)
        spans[round + 1] = half_of(spans[round], place >> round & 1);
    return round;
}

static enum status halve(struct comm *comm, const struct comm_call *call, char *data,
                         char *arrived, const struct comm_part *spans)
{
    const size_t elem = dtype_size(call->dtype);

    for (int round = 0; 1 << round < comm->size; round++) {
        const int peer = comm->rank ^ 1 << round;
        const bool is_lower = comm->rank < peer;
        const struct comm_part kept = spans[round + 1], given = half_of(spans[round], is_lower);
        char *mine = data + kept.start * elem;

        TRY(comm_exchange(comm, call, peer, data + given.start * elem, given.count * elem, peer,
                          arrived, kept.count * elem));
        comm_combine(call, mine, is_lower ? mine : arrived, is_lower ? arrived : mine,
                     kept.count);
    }
    return STATUS_OK;
}

/* place: the rank's, as spans were found for it. */
static enum status go_back(struct comm *comm, const struct comm_call *call, char *data,
                           int place, const struct comm_part *spans)
{
    const size_t elem = dtype_size(call->dtype);

    for (int round = comm_levels(comm->size) - 1; round >= 0; round--) {
        const int peer = comm->rank ^ 1 << round;
        const struct comm_part kept = spans[round + 1];
        const struct comm_part missing = half_of(spans[round], !(place >> round & 1));

        TRY(comm_exchange(comm, call, peer, data + kept.start * elem, kept.count * elem, peer,
                          data + missing.start * elem, missing.count * elem));
    }
    return STATUS_OK;
}

static enum status all_reduce(struct comm *comm, const struct comm_call *call, const void *in,
                              void *out)
{
    struct comm_part spans[COMM_DEPTH + 1];
    char *arrived;

    (void)in;
    TRY(comm_enter(comm, call, NULL, 0, NULL, 0));
    TRY(comm_heap(comm, (call->count + 1) / 2 * dtype_size(call->dtype), &arrived));
    find_spans(comm->size, comm->rank, call->count, spans);
    TRY(halve(comm, call, out, arrived, spans));
    return go_back(comm, call, out, comm->rank, spans);
}

/* Where part `rank` lies: its bits backwards. */
static size_t place_of(int rank, int size)
{
    size_t place = 0;

    for (int bit = 1; bit < size; bit *= 2)
        place = 2 * place + (rank & bit ? 1 : 0);
    return place;
}

static enum status reduce_scatter(struct comm *comm, const struct comm_call *call,
                                  const void *in, void *out)
{
    const size_t bytes = call->count * dtype_size(call->dtype), size = (size_t)comm->size;
    struct comm_part spans[COMM_DEPTH + 1];
    char *data;

    TRY(comm_enter(comm, call, NULL, 0, NULL, 0));
    if (bytes == 0)
        return STATUS_OK;
    TRY(comm_heap(comm, bytes * (size + (size + 1) / 2), &data));
    for (int rank = 0; rank < comm->size; rank++)
        memcpy(data + place_of(rank, comm->size) * bytes,
               (const char *)in + (size_t)rank * bytes, bytes);
    find_spans(comm->size, comm->rank, call->count * size, spans);
    TRY(halve(comm, call, data, data + bytes * size, spans));
    memcpy(out, data + place_of(comm->rank, comm->size) * bytes, bytes);
    return STATUS_OK;
}

static enum status all_gather(struct comm *comm, const struct comm_call *call, const void *in,
                              void *out)
{
    const size_t bytes = call->count * dtype_size(call->dtype), size = (size_t)comm->size;
    struct comm_part spans[COMM_DEPTH + 1];
    char *data;

    TRY(comm_enter(comm, call, NULL, 0, NULL, 0));
    if (bytes == 0)
        return STATUS_OK;
    TRY(comm_heap(comm, bytes * size, &data));
    memcpy(data + place_of(comm->rank, comm->size) * bytes, in, bytes);
    find_spans(comm->size, comm->rank, call->count * size, spans);
    TRY(go_back(comm, call, data, comm->rank, spans));
    for (int rank = 0; rank < comm->size; rank++)
        memcpy((char *)out + (size_t)rank * bytes, data + place_of(rank, comm->size) * bytes,
               bytes);
    return STATUS_OK;
}

static enum status broadcast(struct comm *comm, const struct comm_call *call, const void *in,
                             void *out)
{
    const size_t elem = dtype_size(call->dtype);
    const int place = comm->rank ^ call->root; /* the root's is 0 */
    struct comm_part spans[COMM_DEPTH + 1];
    char *data = out;

    (void)in;
    TRY(comm_enter(comm, call, NULL, 0, NULL, 0));
    const int n_rounds = find_spans(comm->size, place, call->count, spans);
    for (int round = 0; round < n_rounds; round++) {
        const int peer = comm->rank ^ 1 << round;

        if (place >> (round + 1) == 0 && place >> round == 1) {
            const struct comm_part mine = spans[round + 1];
            TRY(comm_start_receive(comm, peer, data + mine.start * elem, mine.count * elem));
        } else if (place >> round == 0) {
            const struct comm_part given = half_of(spans[round], true);
            TRY(comm_start_send(comm, peer, data + given.start * elem, given.count * elem));
        }
        TRY(comm_finish(comm, call));
    }
    return go_back(comm, call, data, place, spans);
}

static struct comm_cost cost(enum comm_kind kind, const struct comm_shape *shape, size_t bytes)
{
    const bool is_twice = kind == COMM_ALL_REDUCE || kind == COMM_BROADCAST;
    const double p = shape->size, nodes = shape->nodes, ways = is_twice ? 2 : 1;
    const double whole = kind == COMM_ALL_GATHER ? (double)bytes * p : (double)bytes;

    return (struct comm_cost){ .steps = ways * comm_levels(shape->size),
                               .messages = ways * comm_levels(shape->size),
                               .bytes = ways * whole * (p - 1) / p,
                               .wire = ways * whole * (nodes - 1) / nodes };
}

const struct comm_algorithm comm_halving = {
    .name = "halving",
    .summary = "messages, 2^k ranks: recursive halving and doubling",
    .by_messages = true,
    .can_run = can_run,
    .run = { [COMM_ALL_REDUCE] = all_reduce,
             [COMM_REDUCE_SCATTER] = reduce_scatter,
             [COMM_ALL_GATHER] = all_gather,
             [COMM_BROADCAST] = broadcast },
    .cost = cost,
};
