/* SPDX-License-Identifier: MIT */
/* hierarchical.c - several nodes: by memory within a node, by messages between nodes.
 *
 * The vector is cut into one part a rank, its owner. On every other node one rank stands in
 * for the owner of each part. With two nodes of two ranks, parts a b c d:
 *
 *   node   rank   owns   stands in for the owners of
 *    0      0      a     c
 *           1      b     d
 *    1      2      c     a
 *           3      d     b
 *
 *   1  the ranks of a node lay their vectors into memory that they share, a piece at a time, and
 *      each adds up, over its node, the part that it owns and those it stands in for
 *   2  who stands in sends the node's sum to the owner, who adds those of all nodes
 *   3  the owner sends the result to who stands in for it
 *   4  by the shared memory, a piece at a time, every rank takes all parts from who has them
 *
 * A node's sum follows the tree: where its ranks are not one subtree of it, it is several partial
 * sums, of the largest subtrees, and these are sent. Ranks 0-2 of five: (0+1) and 2.
 * reduce_scatter ends after 2; all_gather begins with 3.
 *
 * Pieces use two halves of the shared memory in turn: a rank writes piece k + 2 after the meeting
 * in piece k + 1, to which everyone came after it had read piece k.
 *
 * Cost: 2 steps between nodes; 2n(N-1)/N bytes leave each of N nodes if its ranks are a subtree.
 */
#include <string.h>

#include "comm/algorithm.h"

static bool can_run(const struct comm *comm, size_t bytes)
{
    (void)bytes;
    return comm->shape.nodes > 1 && comm->shape.local > 1;
}

/* A call, seen from one rank. */
struct job {
    struct comm *comm;
    const struct comm_call *call;
    size_t elem, count; /* of the whole vector */
    size_t pieces;      /* laid into shared memory so far */
    int node;           /* the own one */
    bool has_parts;     /* parts of call->count each, not of equal shares of it */
    struct tree_node partials[2 * TREE_DEPTH]; /* of the own node */
    int n_partials;
};

static struct comm_part part_of(const struct job *job, int rank)
{
    if (job->has_parts)
        return (struct comm_part){ (size_t)rank * job->call->count, job->call->count };
    return comm_part_at(job->count, job->elem, job->comm->size, rank);
}

static size_t bytes_of(const struct job *job, int rank)
{
    return part_of(job, rank).count * job->elem;
}

/* Who has `owner`'s part on a node: the owner itself, or who stands in for it. */
static int holder(const struct job *job, int node, int owner)
{
    const struct transport *transport = job->comm->transport;
    const int home = transport_node_of(transport, owner);

    if (home == node)
        return owner;
    return transport_node_first(transport, node) +
           (owner - transport_node_first(transport, home)) %
               transport_node_size(transport, node);
}

static bool stands_in(const struct job *job, int owner)
{
    return owner != job->comm->rank && holder(job, job->node, owner) == job->comm->rank;
}

static void begin(struct job *job, struct comm *comm, const struct comm_call *call,
                  bool has_parts)
{
    *job = (struct job){
        .comm = comm,
        .call = call,
        .elem = dtype_size(call->dtype),
        .count = call->count * (has_parts ? (size_t)comm->size : 1),
        .node = transport_node_of(comm->transport, comm->rank),
        .has_parts = has_parts,
    };
    job->n_partials = tree_row(comm->size, comm->first, comm->local, job->partials);
}

/* Memory -------------------------------------------------------------------------------- */

/* Partial sums, one vector after another: of the own part those of all nodes, the own node first
 * and then as they follow; of the parts it stands in for those of the own node. */
struct rows {
    char *own, *others;
};

static int partials_of(const struct job *job, int node, struct tree_node *out)
{
    const struct transport *transport = job->comm->transport;

    return tree_row(job->comm->size, transport_node_first(transport, node),
                    transport_node_size(transport, node), out);
}

static enum status make_rows(const struct job *job, struct rows *rows)
{
    struct comm *comm = job->comm;
    size_t own = 0, others = 0;

    for (int node = 0; node < comm->shape.nodes; node++)
        own += (size_t)partials_of(job, node, comm->partials) * bytes_of(job, comm->rank);
    for (int owner = 0; owner < comm->size; owner++)
        others += stands_in(job, owner) ? (size_t)job->n_partials * bytes_of(job, owner) : 0;
    TRY(comm_heap(comm, own + others, &rows->own));
    rows->others = rows->own + own;
    return STATUS_OK;
}

/* Within the node ------------------------------------------------------------------------- */

static char *scratch_at(const struct job *job, int rank, size_t piece)
{
    const struct comm *comm = job->comm;

    return comm->scratch + ((size_t)(rank - comm->first) * 2 + piece % 2) * COMM_PIECE_BYTES;
}

static size_t step_of(const struct job *job)
{
    return job->comm->piece_bytes / job->elem;
}

/* What [at, at + n) and a part have in common; count 0 if nothing. */
static struct comm_part overlap(struct comm_part part, size_t at, size_t n)
{
    const size_t end = part.start + part.count < at + n ? part.start + part.count : at + n;
    const size_t start = part.start > at ? part.start : at;

    return (struct comm_part){ start, start < end ? end - start : 0 };
}

/* Adds up the piece [at, at + n) of `owner`'s part, over the node, into its partial sums. */
static void add_piece(const struct job *job, int owner, size_t at, size_t n, char *sums)
{
    struct comm *comm = job->comm;
    const struct comm_part part = part_of(job, owner);
    const struct comm_part here = overlap(part, at, n);

    for (int i = 0; i < job->n_partials && here.count > 0; i++) {
        const struct tree_node *partial = &job->partials[i];
        const int first = (int)partial->begin, end = first + (int)partial->length;
        const int n_ranks = (end < comm->size ? end : comm->size) - first;
        char *to = sums + ((size_t)i * part.count + here.start - part.start) * job->elem;

        for (int rank = 0; rank < n_ranks; rank++)
            comm->sources[rank] = scratch_at(job, first + rank, job->pieces);
        comm_order_of_ranks(comm, n_ranks);
        comm_combine_tree(comm, job->call, comm->sources, (here.start - at) * job->elem,
                          here.count, to);
    }
}

/* Step 1. */
static enum status add_within_node(struct job *job, const char *in, const struct rows *rows)
{
    struct comm *comm = job->comm;

    for (size_t at = 0; at < job->count; at += step_of(job), job->pieces++) {
        const size_t left = job->count - at, n = left < step_of(job) ? left : step_of(job);
        char *others = rows->others;

        memcpy(scratch_at(job, comm->rank, job->pieces), in + at * job->elem, n * job->elem);
        TRY(comm_sync(comm, job->call));
        add_piece(job, comm->rank, at, n, rows->own);
        for (int owner = 0; owner < comm->size; owner++) {
            if (!stands_in(job, owner))
                continue;
            add_piece(job, owner, at, n, others);
            others += (size_t)job->n_partials * bytes_of(job, owner);
        }
    }
    return STATUS_OK;
}

/* Copies what this rank has of a piece to its scratch memory. */
static void lay_out_piece(const struct job *job, const char *data, size_t at, size_t n)
{
    const struct comm *comm = job->comm;

    for (int owner = 0; owner < comm->size; owner++) {
        const struct comm_part here = overlap(part_of(job, owner), at, n);

        if (here.count > 0 && holder(job, job->node, owner) == comm->rank)
            memcpy(scratch_at(job, comm->rank, job->pieces) + (here.start - at) * job->elem,
                   data + here.start * job->elem, here.count * job->elem);
    }
}

static void take_piece(const struct job *job, char *data, size_t at, size_t n)
{
    const struct comm *comm = job->comm;

    for (int owner = 0; owner < comm->size; owner++) {
        const struct comm_part here = overlap(part_of(job, owner), at, n);
        const int rank = holder(job, job->node, owner);

        if (here.count > 0 && rank != comm->rank)
            memcpy(data + here.start * job->elem,
                   scratch_at(job, rank, job->pieces) + (here.start - at) * job->elem,
                   here.count * job->elem);
    }
}

/* Step 4. */
static enum status spread_within_node(struct job *job, char *data)
{
    for (size_t at = 0; at < job->count; at += step_of(job), job->pieces++) {
        const size_t left = job->count - at, n = left < step_of(job) ? left : step_of(job);

        lay_out_piece(job, data, at, n);
        TRY(comm_sync(job->comm, job->call));
        take_piece(job, data, at, n);
    }
    return STATUS_OK;
}

/* Between nodes --------------------------------------------------------------------------- */

/* Step 2; the sum of the own part goes to `out`. */
static enum status add_between_nodes(struct job *job, const struct rows *rows, char *out)
{
    struct comm *comm = job->comm;
    const size_t own_bytes = bytes_of(job, comm->rank);
    const char *others = rows->others;
    char *to = rows->own;
    int n = 0;

    for (int i = 0; i < comm->shape.nodes; i++) { /* the own node first */
        const int node = (job->node + i) % comm->shape.nodes;
        const int n_partials = partials_of(job, node, comm->partials + n);

        if (i > 0)
            TRY(comm_start_receive(comm, holder(job, node, comm->rank), to,
                                   (size_t)n_partials * own_bytes));
        for (int k = 0; k < n_partials; k++, to += own_bytes)
            comm->sources[n + k] = to;
        n += n_partials;
    }
    for (int owner = 0; owner < comm->size; owner++) {
        const size_t bytes = (size_t)job->n_partials * bytes_of(job, owner);

        if (!stands_in(job, owner))
            continue;
        TRY(comm_start_send(comm, owner, others, bytes));
        others += bytes;
    }
    TRY(comm_finish(comm, job->call));
    comm_order_of_nodes(comm, comm->partials, n);
    comm_combine_tree(comm, job->call, comm->sources, 0, part_of(job, comm->rank).count, out);
    return STATUS_OK;
}

/* Step 3. */
static enum status spread_between_nodes(struct job *job, char *data)
{
    struct comm *comm = job->comm;

    for (int owner = 0; owner < comm->size; owner++) {
        if (stands_in(job, owner))
            TRY(comm_start_receive(comm, owner, data + part_of(job, owner).start * job->elem,
                                   bytes_of(job, owner)));
    }
    for (int node = 0; node < comm->shape.nodes; node++) {
        if (node != job->node)
            TRY(comm_start_send(comm, holder(job, node, comm->rank),
                                data + part_of(job, comm->rank).start * job->elem,
                                bytes_of(job, comm->rank)));
    }
    return comm_finish(comm, job->call);
}

/* Collectives ----------------------------------------------------------------------------- */

static enum status all_reduce(struct comm *comm, const struct comm_call *call, const void *in,
                              void *out)
{
    struct rows rows;
    struct job job;

    TRY(comm_enter(comm, call, NULL, 0, NULL, 0));
    begin(&job, comm, call, false);
    TRY(make_rows(&job, &rows));
    TRY(add_within_node(&job, in, &rows));
    TRY(add_between_nodes(&job, &rows,
                          (char *)out + part_of(&job, comm->rank).start * job.elem));
    TRY(spread_between_nodes(&job, out));
    return spread_within_node(&job, out);
}

static enum status reduce_scatter(struct comm *comm, const struct comm_call *call,
                                  const void *in, void *out)
{
    struct rows rows;
    struct job job;

    TRY(comm_enter(comm, call, NULL, 0, NULL, 0));
    begin(&job, comm, call, true);
    TRY(make_rows(&job, &rows));
    TRY(add_within_node(&job, in, &rows));
    return add_between_nodes(&job, &rows, out);
}

static enum status all_gather(struct comm *comm, const struct comm_call *call, const void *in,
                              void *out)
{
    struct job job;

    TRY(comm_enter(comm, call, NULL, 0, NULL, 0));
    begin(&job, comm, call, true);
    char *mine = (char *)out + part_of(&job, comm->rank).start * job.elem;
    if (mine != in && call->count > 0)
        memcpy(mine, in, bytes_of(&job, comm->rank));
    TRY(spread_between_nodes(&job, out));
    return spread_within_node(&job, out);
}

/* Steps within the node are short; what is read there counts as bytes. */
static struct comm_cost cost(enum comm_kind kind, const struct comm_shape *shape, size_t bytes)
{
    const double p = shape->size, nodes = shape->nodes, local = shape->local;
    const double whole = kind == COMM_ALL_GATHER ? (double)bytes * p : (double)bytes;
    const double crossing = whole * (nodes - 1) / nodes;
    const double added = kind == COMM_ALL_GATHER ? 0 : 1;
    const double spread = kind == COMM_REDUCE_SCATTER ? 0 : 1;
    const double wire = (added * shape->partials + spread) * crossing;

    return (struct comm_cost){ .steps = added + spread,
                               .messages = (added + spread) * (nodes - 1),
                               .bytes = (added + spread) * whole * (local - 1) / local +
                                        wire / local,
                               .wire = wire };
}

const struct comm_algorithm comm_hierarchical = {
    .name = "hierarchical",
    .summary = "several nodes: memory within a node, messages between nodes",
    .by_messages = true,
    .can_run = can_run,
    .run = { [COMM_ALL_REDUCE] = all_reduce,
             [COMM_REDUCE_SCATTER] = reduce_scatter,
             [COMM_ALL_GATHER] = all_gather },
    .cost = cost,
};
