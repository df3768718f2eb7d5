/* SPDX-License-Identifier: MIT */
/* comm.c - the public functions: check, choose an algorithm, run it. */
#include "comm/comm.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "comm/algorithm.h"

/* In order of preference among those that can run. */
const struct comm_algorithm *const comm_algorithms[] = { &comm_small, &comm_shared,
                                                         &comm_direct, &comm_halving, NULL };

/* Life ----------------------------------------------------------------------------------- */

static int index_of(const char *name)
{
    int at = 0;

    while (comm_algorithms[at] && strcmp(comm_algorithms[at]->name, name) != 0)
        at++;
    return comm_algorithms[at] ? at : -1;
}

/* Lays out the shared memory: board, counters, scratch. */
static enum status share_board(struct comm *comm)
{
    const size_t size = (size_t)comm->size;
    const size_t board = 2 * size * sizeof(struct comm_slot);
    const size_t counters = size * sizeof(struct transport_counter);
    void *memory;

    TRY(transport_share(comm->transport, board + counters, &memory));
    comm->board = memory;
    comm->done = (void *)((char *)memory + board);
    TRY(transport_share(comm->transport, size * 2 * COMM_PIECE_BYTES, &memory));
    comm->scratch = memory;
    return STATUS_OK;
}

static enum status prepare(struct comm *comm, int forced)
{
    const struct comm_call call = { .kind = COMM_CREATE, .root = forced };

    TRY(mem_alloc((size_t)comm->size, sizeof(*comm->sources), &comm->sources));
    TRY(mem_alloc(COMM_DEPTH, COMM_BLOCK_BYTES, &comm->blocks));
    if (transport_shares_memory(comm->transport))
        TRY(share_board(comm));
    comm->by_messages = !comm->board;
    TRY(comm_enter(comm, &call, NULL, 0, NULL, 0));
    if (forced >= 0)
        comm->forced = comm_algorithms[forced];
    if (comm->forced && comm->forced->by_messages)
        comm->by_messages = true;
    if (comm->forced && !comm->forced->by_messages && comm->by_messages)
        return FAIL(STATUS_UNSUPPORTED, "algorithm %s needs shared memory, %s has none",
                    comm->forced->name, transport_name(comm->transport));
    return STATUS_OK;
}

enum status comm_create(struct transport *transport, const char *algorithm, struct comm **out)
{
    const int forced = algorithm ? index_of(algorithm) : -1;
    struct comm *comm;

    if (algorithm && forced < 0)
        return FAIL(STATUS_USAGE, "there is no algorithm %s", algorithm);
    TRY(mem_alloc(1, sizeof(*comm), &comm));
    comm->transport = transport;
    comm->rank = transport_rank(transport);
    comm->size = transport_size(transport);
    comm->tag = transport_new_tags(transport, 2);
    comm->small_bytes = COMM_SMALL_BYTES;
    comm->piece_bytes = COMM_PIECE_BYTES;

    const enum status status = prepare(comm, forced);
    if (status != STATUS_OK) {
        comm_destroy(comm);
        return status;
    }
    *out = comm;
    return STATUS_OK;
}

void comm_destroy(struct comm *comm)
{
    if (!comm)
        return;
    mem_free(comm->heap);
    mem_free(comm->blocks);
    mem_free(comm->sources);
    mem_free(comm);
}

int comm_rank(const struct comm *comm)
{
    return comm->rank;
}

int comm_size(const struct comm *comm)
{
    return comm->size;
}

struct transport *comm_transport(const struct comm *comm)
{
    return comm->transport;
}

/* For the algorithms --------------------------------------------------------------------- */

struct comm_part comm_part_at(size_t count, size_t elem, int parts, int at)
{
    const size_t line = 64 / elem; /* elements: no two ranks write to one cache line */
    const size_t share = (count + (size_t)parts - 1) / (size_t)parts;
    const size_t each = (share + line - 1) / line * line;
    const size_t start = (size_t)at * each < count ? (size_t)at * each : count;

    return (struct comm_part){ start, each < count - start ? each : count - start };
}

enum status comm_heap(struct comm *comm, size_t bytes, void *out)
{
    if (bytes > comm->heap_bytes) {
        void *memory;
        TRY(mem_alloc(bytes, 1, &memory));
        mem_free(comm->heap);
        comm->heap = memory;
        comm->heap_bytes = bytes;
    }
    *(void **)out = comm->heap;
    return STATUS_OK;
}

enum status comm_exchange(struct comm *comm, int to, const void *out, size_t out_bytes,
                          int from, void *in, size_t in_bytes)
{
    size_t sent = 0, received = 0;

    while (sent < out_bytes || received < in_bytes) {
        const size_t out_left = out_bytes - sent, in_left = in_bytes - received;
        const size_t n_out = out_left < COMM_MESSAGE_BYTES ? out_left : COMM_MESSAGE_BYTES;
        const size_t n_in = in_left < COMM_MESSAGE_BYTES ? in_left : COMM_MESSAGE_BYTES;

        if (n_out > 0)
            TRY(transport_send(comm->transport, to, comm->tag + 1, (const char *)out + sent,
                               n_out));
        if (n_in > 0)
            TRY(transport_receive(comm->transport, from, comm->tag + 1, (char *)in + received,
                                  n_in));
        sent += n_out;
        received += n_in;
    }
    return STATUS_OK;
}

void comm_set_limits(struct comm *comm, size_t small_bytes, size_t piece_bytes)
{
    BUG_ON(small_bytes > COMM_SMALL_BYTES || piece_bytes > COMM_PIECE_BYTES);
    BUG_ON(piece_bytes < 8 * (size_t)comm->size);
    comm->small_bytes = small_bytes;
    comm->piece_bytes = piece_bytes;
}

/* Running -------------------------------------------------------------------------------- */

static bool can_run(const struct comm *comm, const struct comm_algorithm *algorithm,
                    enum comm_kind kind, size_t bytes)
{
    return algorithm->by_messages == comm->by_messages && algorithm->run[kind] &&
           algorithm->can_run(comm, bytes);
}

/* The forced one if it can, else the first of the table that can; one always can. */
static const struct comm_algorithm *choose(const struct comm *comm, enum comm_kind kind,
                                           size_t bytes)
{
    int at = 0;

    if (comm->forced && can_run(comm, comm->forced, kind, bytes))
        return comm->forced;
    while (!can_run(comm, comm_algorithms[at], kind, bytes))
        at++;
    return comm_algorithms[at];
}

/* parts: how many times `count` elements one rank brings. */
static enum status run(struct comm *comm, const struct comm_call *call, size_t parts,
                       const void *in, void *out)
{
    const size_t elem = dtype_size(call->dtype);

    if (call->count > SIZE_MAX / 2 / elem / (size_t)comm->size)
        return FAIL(STATUS_USAGE, "%llu elements are too many",
                    (unsigned long long)call->count);
    const size_t bytes = call->count * elem * parts;
    const struct comm_algorithm *algorithm = choose(comm, call->kind, bytes);

    if (call->kind == COMM_ALL_REDUCE)
        comm->last = algorithm;
    if (comm->size > 1)
        return algorithm->run[call->kind](comm, call, in, out);
    if (in != out && bytes > 0)
        memmove(out, in, bytes);
    return STATUS_OK;
}

static enum status check_reduction(enum dtype dtype, enum comm_op op)
{
    if (!comm_can_combine(dtype))
        return FAIL(STATUS_UNSUPPORTED, "cannot reduce elements of type %s",
                    dtype < DTYPE_COUNT ? dtype_name(dtype) : "unknown");
    if (op != COMM_OP_SUM && op != COMM_OP_MAX)
        return FAIL(STATUS_USAGE, "there is no reduction %d", (int)op);
    return STATUS_OK;
}

enum status comm_all_reduce(struct comm *comm, void *data, size_t count, enum dtype dtype,
                            enum comm_op op)
{
    const struct comm_call call = {
        .kind = COMM_ALL_REDUCE, .dtype = (uint8_t)dtype, .op = (uint8_t)op, .count = count
    };

    TRY(check_reduction(dtype, op));
    return run(comm, &call, 1, data, data);
}

enum status comm_reduce_scatter(struct comm *comm, void *data, void *mine, size_t count,
                                enum dtype dtype, enum comm_op op)
{
    const struct comm_call call = {
        .kind = COMM_REDUCE_SCATTER, .dtype = (uint8_t)dtype, .op = (uint8_t)op, .count = count
    };

    TRY(check_reduction(dtype, op));
    return run(comm, &call, (size_t)comm->size, data, mine);
}

enum status comm_all_gather(struct comm *comm, const void *mine, void *all, size_t count,
                            enum dtype dtype)
{
    const struct comm_call call = { .kind = COMM_ALL_GATHER,
                                    .dtype = (uint8_t)dtype,
                                    .count = count };

    return run(comm, &call, 1, mine, all);
}

enum status comm_broadcast(struct comm *comm, void *data, size_t count, enum dtype dtype,
                           int root)
{
    const struct comm_call call = {
        .kind = COMM_BROADCAST, .dtype = (uint8_t)dtype, .root = root, .count = count
    };

    if (root < 0 || root >= comm->size)
        return FAIL(STATUS_USAGE, "root %d is not between 0 and %d", root, comm->size - 1);
    return run(comm, &call, 1, data, data);
}

enum status comm_barrier(struct comm *comm)
{
    const struct comm_call call = { .kind = COMM_BARRIER };

    return comm_enter(comm, &call, NULL, 0, NULL, 0);
}

enum status comm_send(struct comm *comm, int peer, const void *data, size_t bytes)
{
    return transport_send(comm->transport, peer, comm->tag, data, bytes);
}

enum status comm_receive(struct comm *comm, int peer, void *data, size_t bytes)
{
    return transport_receive(comm->transport, peer, comm->tag, data, bytes);
}

enum status comm_share(struct comm *comm, size_t bytes, void **out)
{
    const struct comm_call call = { .kind = COMM_SHARE, .count = bytes };
    const size_t page = 4096, each = (bytes + page - 1) / page * page;
    void *memory;

    if (!transport_shares_memory(comm->transport))
        return FAIL(STATUS_UNSUPPORTED, "%s shares no memory", transport_name(comm->transport));
    if (bytes > SIZE_MAX / 2 / (size_t)comm->size)
        return FAIL(STATUS_NO_MEMORY, "%zu bytes of shared memory a rank are too many", bytes);
    TRY(comm_enter(comm, &call, NULL, 0, NULL, 0));
    TRY(transport_share(comm->transport, each * (size_t)comm->size, &memory));
    *out = (char *)memory + (size_t)comm->rank * each;
    return STATUS_OK;
}

/* Queries -------------------------------------------------------------------------------- */

const char *comm_algorithm_name(const struct comm_algorithm *algorithm)
{
    return algorithm->name;
}

const char *comm_algorithm_summary(const struct comm_algorithm *algorithm)
{
    return algorithm->summary;
}

struct comm_cost comm_algorithm_cost(const struct comm_algorithm *algorithm, int size,
                                     size_t bytes)
{
    return algorithm->cost(size, bytes);
}

const char *comm_last_algorithm(const struct comm *comm)
{
    return comm->last ? comm->last->name : "none";
}
