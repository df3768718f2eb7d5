/* SPDX-License-Identifier: MIT */
/* comm.c - the public functions: check, choose an algorithm, run it. */
#include "comm/comm.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "comm/algorithm.h"

/* Of equally good ones the first. */
const struct comm_algorithm *const comm_algorithms[] = {
    &comm_small, &comm_shared,  &comm_direct,       &comm_ring,
    &comm_tree,  &comm_halving, &comm_hierarchical, NULL,
};

/* What is usual: messages through memory, and between machines by a good Ethernet. */
static const struct comm_network memory_network = { 2, 0.7, 4000, 4000 };
static const struct comm_network wire_network = { 25, 3, 4000, 1200 };

/* Life ----------------------------------------------------------------------------------- */

static int index_of(const char *name)
{
    int at = 0;

    while (comm_algorithms[at] && strcmp(comm_algorithms[at]->name, name) != 0)
        at++;
    return comm_algorithms[at] ? at : -1;
}

/* Lays out the memory that the node's ranks share: board if these are all, counters, scratch. */
static enum status share_board(struct comm *comm)
{
    const size_t local = (size_t)comm->local;
    const bool are_all = transport_shares_memory(comm->transport);
    const size_t board = are_all ? 2 * local * sizeof(struct comm_slot) : 0;
    const size_t counters = local * sizeof(struct transport_counter);
    void *memory;

    TRY(transport_share(comm->transport, board + counters, &memory));
    comm->board = are_all ? memory : NULL;
    comm->done = (void *)((char *)memory + board);
    TRY(transport_share(comm->transport, local * 2 * COMM_PIECE_BYTES, &memory));
    comm->scratch = memory;
    return STATUS_OK;
}

static void find_shape(struct comm *comm)
{
    const struct transport *transport = comm->transport;
    struct comm_shape *shape = &comm->shape;
    const int own = transport_node_of(transport, comm->rank);

    comm->first = transport_node_first(transport, own);
    comm->local = transport_node_size(transport, own);
    *shape = (struct comm_shape){ .size = comm->size, .nodes = transport_nodes(transport) };
    for (int node = 0; node < shape->nodes; node++) {
        struct tree_node partials[2 * TREE_DEPTH];
        const int local = transport_node_size(transport, node);
        const int n =
            tree_row(comm->size, transport_node_first(transport, node), local, partials);

        shape->local = local > shape->local ? local : shape->local;
        shape->partials = n > shape->partials ? n : shape->partials;
    }
    comm->network = shape->nodes > 1 ? wire_network : memory_network;
}

static enum status prepare(struct comm *comm, int forced)
{
    const struct comm_call call = { .kind = COMM_CREATE, .root = forced };

    TRY(mem_alloc((size_t)comm->size, sizeof(*comm->sources), &comm->sources));
    TRY(mem_alloc((size_t)comm->size, sizeof(*comm->leaves), &comm->leaves));
    TRY(mem_alloc((size_t)comm->size, sizeof(*comm->partials), &comm->partials));
    TRY(mem_alloc((size_t)comm->size, sizeof(*comm->order.additions), &comm->order.additions));
    for (int rank = 0; rank < comm->size; rank++)
        comm->leaves[rank] = (struct tree_node){ rank, 1 };
    comm->max_requests = 2 * comm->size;
    TRY(mem_alloc((size_t)comm->max_requests, sizeof(*comm->requests), &comm->requests));
    TRY(mem_alloc(COMM_DEPTH, COMM_BLOCK_BYTES, &comm->blocks));
    find_shape(comm);
    if (transport_shares_memory(comm->transport) || comm->shape.local > 1)
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
    mem_free(comm->requests);
    mem_free(comm->leaves);
    mem_free(comm->partials);
    mem_free(comm->order.additions);
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

static void cancel_all(struct comm *comm)
{
    for (int i = 0; i < comm->n_requests; i++)
        transport_cancel(comm->transport, &comm->requests[i]);
    comm->n_requests = 0;
}

/* Room for the most messages that an algorithm has under way, so that they never move. */
static struct transport_request *new_request(struct comm *comm)
{
    BUG_ON(comm->n_requests == comm->max_requests);
    return &comm->requests[comm->n_requests++];
}

enum status comm_start_send(struct comm *comm, int peer, const void *data, size_t bytes)
{
    if (bytes == 0)
        return STATUS_OK;
    comm->bytes_sent += bytes;
    const enum status status = transport_start_send(comm->transport, peer, comm->tag + 1, data,
                                                    bytes, new_request(comm));
    if (status != STATUS_OK)
        cancel_all(comm);
    return status;
}

enum status comm_start_receive(struct comm *comm, int peer, void *data, size_t bytes)
{
    if (bytes == 0)
        return STATUS_OK;
    const enum status status = transport_start_receive(comm->transport, peer, comm->tag + 1,
                                                       data, bytes, new_request(comm));
    if (status != STATUS_OK)
        cancel_all(comm);
    return status;
}

enum status comm_finish(struct comm *comm, const struct comm_call *call)
{
    enum status status = STATUS_OK;

    for (int i = 0; i < comm->n_requests && status == STATUS_OK; i++)
        status =
            transport_wait_for(comm->transport, &comm->requests[i], comm_kind_name(call->kind));
    if (status != STATUS_OK)
        cancel_all(comm);
    comm->n_requests = 0;
    return status;
}

enum status comm_exchange(struct comm *comm, const struct comm_call *call, int to,
                          const void *out, size_t out_bytes, int from, void *in,
                          size_t in_bytes)
{
    TRY(comm_start_receive(comm, from, in, in_bytes));
    TRY(comm_start_send(comm, to, out, out_bytes));
    return comm_finish(comm, call);
}

int comm_levels(int n)
{
    int levels = 0;

    while (1 << levels < n)
        levels++;
    return levels;
}

void comm_set_limits(struct comm *comm, size_t small_bytes, size_t piece_bytes)
{
    BUG_ON(small_bytes > COMM_SMALL_BYTES || piece_bytes > COMM_PIECE_BYTES);
    BUG_ON(piece_bytes < 8 * (size_t)comm->size);
    comm->small_bytes = small_bytes;
    comm->piece_bytes = piece_bytes;
}

/* Running -------------------------------------------------------------------------------- */

bool comm_can_run(const struct comm *comm, const struct comm_algorithm *algorithm,
                  enum comm_kind kind, size_t bytes)
{
    return algorithm->by_messages == comm->by_messages && algorithm->run[kind] &&
           algorithm->can_run(comm, bytes);
}

static double time_of(const struct comm *comm, const struct comm_cost *cost)
{
    const struct comm_network *network = &comm->network;

    return cost->steps * network->latency_us + cost->messages * network->message_us +
           cost->bytes / network->local_bytes_per_us + cost->wire / network->wire_bytes_per_us;
}

/* The forced one if it can. Else on shared memory the first that can: which data is little was
 * measured. Else the one whose messages take least time. One always can. */
static const struct comm_algorithm *choose(const struct comm *comm, enum comm_kind kind,
                                           size_t bytes)
{
    const struct comm_algorithm *best = NULL;
    double least = 0;

    if (comm->forced && comm_can_run(comm, comm->forced, kind, bytes))
        return comm->forced;
    for (int at = 0; comm_algorithms[at]; at++) {
        const struct comm_algorithm *algorithm = comm_algorithms[at];

        if (!comm_can_run(comm, algorithm, kind, bytes))
            continue;
        if (!comm->by_messages)
            return algorithm;
        const struct comm_cost cost = algorithm->cost(kind, &comm->shape, bytes);
        const double time = time_of(comm, &cost);
        if (!best || time < least) {
            best = algorithm;
            least = time;
        }
    }
    return best;
}

/* Once for each size in a row. */
static void log_choice(struct comm *comm, enum comm_kind kind, size_t bytes,
                       const struct comm_algorithm *algorithm)
{
    if (comm->rank != 0 || comm->logged[kind] == bytes + 1)
        return;
    comm->logged[kind] = bytes + 1;
    const struct comm_cost cost = algorithm->cost(kind, &comm->shape, bytes);
    log_line(LOG_DEBUG, "%s of %zu bytes by %d ranks on %d nodes: %s, about %.1f us",
             comm_kind_name(kind), bytes, comm->size, comm->shape.nodes, algorithm->name,
             time_of(comm, &cost));
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

    comm->last = choose(comm, call->kind, bytes);
    log_choice(comm, call->kind, bytes, comm->last);
    if (!comm->by_messages)
        comm->bytes_sent += (uint64_t)comm->last->cost(call->kind, &comm->shape, bytes).bytes;
    if (comm->size > 1)
        return comm->last->run[call->kind](comm, call, in, out);
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
                                     int nodes, size_t bytes)
{
    const struct comm_shape shape = { size, nodes, (size + nodes - 1) / nodes, 1 };

    if (!algorithm->run[COMM_ALL_REDUCE])
        return (struct comm_cost){ 0 };
    return algorithm->cost(COMM_ALL_REDUCE, &shape, bytes);
}

const char *comm_last_algorithm(const struct comm *comm)
{
    return comm->last ? comm->last->name : "none";
}

const struct comm_network *comm_network(const struct comm *comm)
{
    return &comm->network;
}

void comm_set_network(struct comm *comm, const struct comm_network *network)
{
    comm->network = *network;
}

uint64_t comm_bytes_sent(const struct comm *comm)
{
    return comm->bytes_sent;
}
