/* SPDX-License-Identifier: MIT */
/* enter.c - how ranks meet in a collective and find out that they mean the same one. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "comm/algorithm.h"

_Static_assert(sizeof(struct transport_counter) == 64, "a cache line");
_Static_assert(sizeof(struct comm_posting) == sizeof(((struct transport_counter *)0)->pad),
               "a posting fills the counter's line");
_Static_assert(sizeof(struct comm_call) == 16, "no padding");

static const char *const kind_names[COMM_KINDS] = {
    [COMM_CREATE] = "create",         [COMM_SHARE] = "share",
    [COMM_BARRIER] = "barrier",       [COMM_ALL_REDUCE] = "all_reduce",
    [COMM_BROADCAST] = "broadcast",   [COMM_REDUCE_SCATTER] = "reduce_scatter",
    [COMM_ALL_GATHER] = "all_gather",
};

const char *comm_kind_name(enum comm_kind kind)
{
    return kind < COMM_KINDS ? kind_names[kind] : "an unknown collective";
}

/* "all_reduce of 12 f32" */
static void describe(const struct comm_call *call, char *out, size_t bytes)
{
    const char *name = comm_kind_name(call->kind);
    const char *dtype = call->dtype < DTYPE_COUNT ? dtype_name(call->dtype) : "?";
    const unsigned long long count = call->count;

    if (call->kind == COMM_BARRIER)
        (void)snprintf(out, bytes, "%s", name);
    else if (call->kind == COMM_CREATE)
        (void)snprintf(out, bytes, "%s with algorithm %d", name, (int)call->root);
    else if (call->kind == COMM_SHARE)
        (void)snprintf(out, bytes, "%s of %llu bytes", name, count);
    else if (call->kind == COMM_BROADCAST)
        (void)snprintf(out, bytes, "%s of %llu %s from rank %d", name, count, dtype,
                       (int)call->root);
    else
        (void)snprintf(out, bytes, "%s of %llu %s%s", name, count, dtype,
                       call->op == COMM_OP_MAX ? " by max" : "");
}

static bool differs(const struct comm_call *a, const struct comm_call *b)
{
    return memcmp(a, b, sizeof(*a)) != 0;
}

static enum status fail_mismatch(int rank, const struct comm_call *call,
                                 const struct comm_call *first)
{
    char theirs[96], expected[96];

    describe(call, theirs, sizeof(theirs));
    describe(first, expected, sizeof(expected));
    return FAIL(STATUS_MISMATCH, "rank %d called %s while rank 0 called %s", rank, theirs,
                expected);
}

/* On the board --------------------------------------------------------------------------- */

static struct comm_slot *slot_of(const struct comm *comm, uint32_t call, int rank)
{
    return &comm->board[(call % 2) * (uint32_t)comm->size + (uint32_t)rank];
}

static struct comm_posting *posting_of(struct comm_slot *slot)
{
    return (void *)slot->counter.pad;
}

/* How often the slot's counter has been raised once `call` is posted. */
static uint32_t target_of(uint32_t call)
{
    return call / 2 + 1;
}

static bool has_arrived(const struct comm *comm, uint32_t call, int rank)
{
    return transport_reached(&slot_of(comm, call, rank)->counter, target_of(call));
}

/* Among the ranks that have arrived, the first that differs from rank 0; 0 if there is none. */
static int find_odd_rank(const struct comm *comm, uint32_t call)
{
    const struct comm_call *first = &posting_of(slot_of(comm, call, 0))->call;

    for (int rank = 1; rank < comm->size && has_arrived(comm, call, 0); rank++) {
        if (has_arrived(comm, call, rank) &&
            differs(&posting_of(slot_of(comm, call, rank))->call, first))
            return rank;
    }
    return 0;
}

/* The failure of a rank that leaves the call: `status`, unless ranks are at odds. One that
 * found that out earlier may have ended the job already, which must not hide the reason. */
static enum status leave_board(const struct comm *comm, uint32_t call, enum status status)
{
    const int odd = find_odd_rank(comm, call);

    if (odd == 0)
        return status;
    return fail_mismatch(odd, &posting_of(slot_of(comm, call, odd))->call,
                         &posting_of(slot_of(comm, call, 0))->call);
}

static enum status enter_on_board(struct comm *comm, const struct comm_call *call,
                                  const void *data, size_t data_bytes, const void *payload,
                                  size_t payload_bytes)
{
    const uint32_t number = comm->calls++;
    struct comm_slot *mine = slot_of(comm, number, comm->rank);
    struct comm_posting *posting = posting_of(mine);

    posting->call = *call;
    posting->data = data;
    posting->is_shared = data && transport_is_shared(comm->transport, data, data_bytes);
    if (payload_bytes > 0)
        memcpy(payload_bytes <= COMM_INLINE_BYTES ? posting->payload : mine->payload, payload,
               payload_bytes);
    transport_raise(&mine->counter, 1);

    comm->all_shared = true;
    for (int rank = 0; rank < comm->size; rank++) {
        struct comm_slot *slot = slot_of(comm, number, rank);
        enum status status = STATUS_OK;

        if (rank != comm->rank)
            status = transport_wait_rank(comm->transport, &slot->counter, target_of(number),
                                         rank, comm_kind_name(call->kind));
        const struct comm_posting *theirs = posting_of(slot);
        if (status != STATUS_OK || differs(&theirs->call, call))
            return leave_board(comm, number, status);
        comm->sources[rank] = (void *)theirs->data;
        comm->all_shared &= theirs->is_shared != 0;
    }
    return STATUS_OK;
}

const void *comm_payload(const struct comm *comm, int rank, size_t payload_bytes)
{
    struct comm_slot *slot = slot_of(comm, comm->calls - 1, rank);

    return payload_bytes <= COMM_INLINE_BYTES ? posting_of(slot)->payload : slot->payload;
}

enum status comm_sync(struct comm *comm, const struct comm_call *call)
{
    const uint32_t target = ++comm->syncs;

    transport_raise(&comm->done[comm->rank - comm->first], 1);
    for (int rank = comm->first; rank < comm->first + comm->local; rank++) {
        if (rank != comm->rank)
            TRY(transport_wait_rank(comm->transport, &comm->done[rank - comm->first], target,
                                    rank, comm_kind_name(call->kind)));
    }
    return STATUS_OK;
}

/* By messages ---------------------------------------------------------------------------- */

/* A rank that found out that ranks are at odds may have ended the job while others still say
 * what they called: gives them a moment, PATIENCE times in a call. */
enum { PATIENCE = 20, MOMENT_MS = 5 };

static enum status receive_call(struct comm *comm, int rank, struct comm_call *out,
                                int *patience)
{
    for (;;) {
        const enum status status =
            transport_receive(comm->transport, rank, comm->tag + 1, out, sizeof(*out));
        if (status != STATUS_PEER_LOST || *patience == 0)
            return status;
        --*patience;
        clock_sleep_ms(MOMENT_MS);
    }
}

/* Everyone tells everyone: one round, so that a rank that calls something else is found before
 * anyone waits for data that it will never send. */
static enum status enter_by_messages(struct comm *comm, const struct comm_call *call)
{
    struct comm_call first = *call;
    enum status sent = STATUS_OK, received = STATUS_OK;
    int patience = PATIENCE;

    comm->calls++;
    for (int i = 1; i < comm->size; i++) {
        const int rank = (comm->rank + i) % comm->size;
        const enum status status =
            transport_send(comm->transport, rank, comm->tag + 1, call, sizeof(*call));
        sent = sent == STATUS_OK ? status : sent;
    }
    for (int rank = 0; rank < comm->size; rank++) {
        struct comm_call theirs;

        if (rank == comm->rank)
            continue;
        const enum status status = receive_call(comm, rank, &theirs, &patience);
        received = received == STATUS_OK ? status : received;
        if (status != STATUS_OK)
            continue;
        if (rank == 0)
            first = theirs;
        if (differs(&theirs, call))
            return rank == 0 ? fail_mismatch(comm->rank, call, &first)
                             : fail_mismatch(rank, &theirs, &first);
    }
    TRY(received);
    return sent;
}

enum status comm_enter(struct comm *comm, const struct comm_call *call, const void *data,
                       size_t data_bytes, const void *payload, size_t payload_bytes)
{
    if (comm->by_messages)
        return enter_by_messages(comm, call);
    return enter_on_board(comm, call, data, data_bytes, payload, payload_bytes);
}
