/* SPDX-License-Identifier: MIT */
/* algorithm.h - private: what the algorithms of this folder share.
 *
 * A communicator on shared memory has a board: for each rank two slots, used in
 * turn. To enter a collective a rank writes what it calls, where its data is and, if
 * that is little, the data itself into its slot, raises the slot's counter, and waits for
 * the slots of all others. A rank that has entered call k knows that everyone has left
 * call k - 1, so nobody reads the slot it will write for call k + 1.
 * On other transports (or by choice) ranks send the same words as messages.
 */
#ifndef COMM_ALGORITHM_H
#define COMM_ALGORITHM_H

#include <stdbool.h>

#include "comm/comm.h"
#include "kernel/tree.h"

enum comm_kind {
    COMM_CREATE,
    COMM_SHARE,
    COMM_BARRIER,
    COMM_ALL_REDUCE,
    COMM_REDUCE_SCATTER,
    COMM_ALL_GATHER,
    COMM_BROADCAST,
    COMM_KINDS,
};

/* A collective as its ranks compare it. No padding: compared as bytes. */
struct comm_call {
    uint8_t kind, dtype, op, unused; /* enum comm_kind, dtype, comm_op */
    int32_t root;                    /* broadcast; create: index of the forced algorithm */
    uint64_t count;                  /* elements; share: bytes */
};

/* What a rank writes into its slot beside the counter: together one cache line. */
enum { COMM_INLINE_BYTES = 24 };
struct comm_posting {
    struct comm_call call;
    const void *data;
    uint64_t is_shared; /* does `data` lie in memory that all ranks see? */
    char payload[COMM_INLINE_BYTES];
};

enum {
    COMM_SMALL_BYTES = 2048,      /* largest payload of a slot */
    COMM_PIECE_BYTES = 256 << 10, /* staged through shared memory at once */
    COMM_BLOCK_BYTES = 8 << 10,   /* summed at once: stays in the first-level cache */
    COMM_HOP_BYTES = 64 << 10,    /* passed on at once along a chain */
    COMM_DEPTH = 16,              /* levels of the tree of sums: log2 of the most ranks */
};

struct comm_slot {
    struct transport_counter counter; /* its pad holds a struct comm_posting */
    char payload[COMM_SMALL_BYTES];   /* what does not fit into the line */
};

/* Where the ranks of a group are. */
struct comm_shape {
    int size, nodes;
    int local;    /* ranks of the largest node */
    int partials; /* most partial sums of a node; 1 where its ranks are a subtree */
};

/* In which order sources are combined: one of each rank, or partial sums. */
struct comm_order {
    struct tree_addition *additions; /* n_sources - 1 */
    int n_sources, result;           /* result: the operand that ends as the sum */
    bool is_of_ranks;
};

/* One thread. */
struct comm {
    struct transport *transport;
    int rank, size;
    int first, local; /* the own node's ranks: [first, first + local) */
    struct comm_shape shape;
    struct comm_network network;
    uint32_t tag; /* of comm_send; the next one is for collectives */
    bool by_messages;
    const struct comm_algorithm *forced; /* NULL: choose */
    const struct comm_algorithm *last;   /* of the last collective that moved data */
    size_t logged[COMM_KINDS];           /* size that was logged last */
    size_t small_bytes, piece_bytes;     /* limits; tests make them small */
    uint64_t bytes_sent;                 /* comm_bytes_sent */

    uint32_t calls, syncs;          /* collectives entered; comm_syncs passed */
    struct comm_slot *board;        /* shared: [2][size] */
    struct transport_counter *done; /* shared in the node: [local], raised by comm_sync */
    char *scratch;                  /* shared in the node: [local][2][COMM_PIECE_BYTES] */
    void **sources;                 /* [size]: all ranks' data in the call just entered */
    bool all_shared;                /* do all of them lie in shared memory? */

    struct tree_node *leaves;   /* [size]: each rank */
    struct tree_node *partials; /* [size]: what the partial sums of all nodes are over */
    struct comm_order order;    /* of the sums that are made now */
    struct transport_request *requests; /* [n_requests] messages under way */
    int n_requests, max_requests;
    char *blocks; /* COMM_DEPTH blocks for sums */
    char *heap;   /* comm_heap */
    size_t heap_bytes;
    void *measured; /* measure.c: shared */
    size_t measured_bytes;
};

/* in and out: what the call reads and writes; the same for all_reduce and broadcast. */
typedef enum status comm_run_fn(struct comm *comm, const struct comm_call *call, const void *in,
                                void *out);

struct comm_algorithm {
    const char *name, *summary;
    bool by_messages;                                       /* needs no shared memory */
    bool (*can_run)(const struct comm *comm, size_t bytes); /* bytes: one rank's data */
    comm_run_fn *run[COMM_KINDS]; /* NULL: another algorithm does that */
    struct comm_cost (*cost)(enum comm_kind kind, const struct comm_shape *shape, size_t bytes);
};

extern const struct comm_algorithm comm_small, comm_shared, comm_direct, comm_ring, comm_tree,
    comm_halving, comm_hierarchical;

/* enter.c ------------------------------------------------------------------------------ */

/* Joins a collective; returns when all ranks have. payload: bytes that the others find with
 * comm_payload; at most COMM_SMALL_BYTES, on the board only. STATUS_MISMATCH if a rank called
 * something else. */
MUST_CHECK enum status comm_enter(struct comm *comm, const struct comm_call *call,
                                  const void *data, size_t data_bytes, const void *payload,
                                  size_t payload_bytes);
const void *comm_payload(const struct comm *comm, int rank, size_t payload_bytes);
/* Returns when all ranks of the node have called it; inside a collective. */
MUST_CHECK enum status comm_sync(struct comm *comm, const struct comm_call *call);
const char *comm_kind_name(enum comm_kind kind);

/* combine.c ---------------------------------------------------------------------------- */

bool comm_can_combine(enum dtype dtype);
/* out[i] = left[i] op right[i]; out may be left or right. */
void comm_combine(const struct comm_call *call, void *out, const void *left, const void *right,
                  size_t count);
/* From now on sums combine one source of each of `size` ranks, the first of the tree or all. */
void comm_order_of_ranks(struct comm *comm, int size);
/* Or partial sums, left to right, that together hold all ranks. */
void comm_order_of_nodes(struct comm *comm, const struct tree_node *nodes, int n);
/* out[i] = the tree sum of the order's sources' elements i, counted from `offset` bytes on; out may
 * be where one of them is. */
void comm_combine_tree(struct comm *comm, const struct comm_call *call, void *const *sources,
                       size_t offset, size_t count, void *out);
/* The same, stored into each of the vectors. */
void comm_combine_tree_all(struct comm *comm, const struct comm_call *call,
                           void *const *vectors, size_t offset, size_t count);

/* comm.c ------------------------------------------------------------------------------- */

/* Elements of part `at` of `parts`; begins at a cache line if the vector does. */
struct comm_part {
    size_t start, count;
};
struct comm_part comm_part_at(size_t count, size_t elem, int parts, int at);

/* Private memory, kept until a larger one is asked for. */
MUST_CHECK enum status comm_heap(struct comm *comm, size_t bytes, void *out);
/* Messages of a collective; any number may be under way, those of no bytes are left out. After
 * a failure of one of these nothing is under way. */
MUST_CHECK enum status comm_start_send(struct comm *comm, int peer, const void *data,
                                       size_t bytes);
MUST_CHECK enum status comm_start_receive(struct comm *comm, int peer, void *data,
                                          size_t bytes);
/* Waits for all of them. */
MUST_CHECK enum status comm_finish(struct comm *comm, const struct comm_call *call);
/* Sends to one rank and receives from one. */
MUST_CHECK enum status comm_exchange(struct comm *comm, const struct comm_call *call, int to,
                                     const void *out, size_t out_bytes, int from, void *in,
                                     size_t in_bytes);
/* Is it of the communicator's kind, and does it do that call? bytes: one rank's data. */
bool comm_can_run(const struct comm *comm, const struct comm_algorithm *algorithm,
                  enum comm_kind kind, size_t bytes);
/* ceil(log2(n)) */
int comm_levels(int n);
/* For tests: other limits, the same on every rank, at most the constants above. */
void comm_set_limits(struct comm *comm, size_t small_bytes, size_t piece_bytes);

#endif /* COMM_ALGORITHM_H */
