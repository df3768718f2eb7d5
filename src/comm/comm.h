/* SPDX-License-Identifier: MIT */
/* comm.h - collective communication within a group of ranks.
 *
 * A communicator is one rank's membership in a group. Every rank makes the same
 * calls in the same order; each call returns when this rank's part is done.
 * Sums follow one fixed binary tree over rank numbers: node = left + right, the tree
 * over the ranks padded to a power of two with absent leaves left out. So the
 * result has the same bits for every algorithm and on every rank.
 *
 * Threads: one thread at a time per communicator.
 * Errors:  after STATUS_PEER_LOST or STATUS_MISMATCH the group is dead; only comm_destroy is
 *          valid. Ranks that call different collectives, or with different sizes, get
 *          STATUS_MISMATCH on every rank, and the text names the first rank that differs and
 *          both calls.
 * Buffers: borrowed for the length of the call.
 */
#ifndef COMM_COMM_H
#define COMM_COMM_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "tensor/dtype.h"
#include "transport/transport.h"

struct comm;

enum comm_op { COMM_OP_SUM, COMM_OP_MAX };

/* Collective. algorithm: a name from comm_algorithms, or NULL to choose by size and transport.
 * Where a named one cannot do a call (too long, not 2^k ranks), another of its kind does. */
MUST_CHECK enum status comm_create(struct transport *transport, const char *algorithm,
                                   struct comm **out);
void comm_destroy(struct comm *comm); /* NULL is allowed */

int comm_rank(const struct comm *comm);
int comm_size(const struct comm *comm);
struct transport *comm_transport(const struct comm *comm);

/* In place: data[i] becomes op over all ranks' data[i]. f32, f64, i32, i64. Fastest on memory
 * from comm_share: then nothing is copied. */
MUST_CHECK enum status comm_all_reduce(struct comm *comm, void *data, size_t count,
                                       enum dtype dtype, enum comm_op op);
/* data holds size * count elements; rank r's part becomes the sum of all ranks' parts r and is
 * stored at `mine`, which may be that part of data and else must not overlap data. Contents of
 * data afterwards are undefined. */
MUST_CHECK enum status comm_reduce_scatter(struct comm *comm, void *data, void *mine,
                                           size_t count, enum dtype dtype, enum comm_op op);
/* Rank r's `count` elements of `mine` land in all[r * count], on every rank; mine may be there
 * already, and else must not overlap. */
MUST_CHECK enum status comm_all_gather(struct comm *comm, const void *mine, void *all,
                                       size_t count, enum dtype dtype);
MUST_CHECK enum status comm_broadcast(struct comm *comm, void *data, size_t count,
                                      enum dtype dtype, int root);
MUST_CHECK enum status comm_barrier(struct comm *comm);
MUST_CHECK enum status comm_send(struct comm *comm, int peer, const void *data, size_t bytes);
MUST_CHECK enum status comm_receive(struct comm *comm, int peer, void *data, size_t bytes);

/* Collective: memory of this rank that all ranks can reach, zeroed, aligned to 4096, so that
 * collectives on it copy nothing. STATUS_UNSUPPORTED where the transport shares no memory. */
MUST_CHECK enum status comm_share(struct comm *comm, size_t bytes, void **out);

/* What an algorithm takes on its longest way. */
struct comm_cost {
    double steps;    /* that wait for each other */
    double messages; /* of one rank */
    double bytes;    /* that one rank sends, or reads from others */
    double wire;     /* bytes that leave a node, all its ranks together */
};
/* How long that is: steps * latency + messages * message + bytes / local + wire / wire. */
struct comm_network {
    double latency_us, message_us;
    double local_bytes_per_us, wire_bytes_per_us;
};
/* Begins with what is usual for the transport; the same on every rank. Decides which algorithm
 * sends a call's messages. */
const struct comm_network *comm_network(const struct comm *comm);
void comm_set_network(struct comm *comm, const struct comm_network *network);

/* One row of the table of algorithms. */
struct comm_algorithm;
extern const struct comm_algorithm *const comm_algorithms[]; /* ended by NULL */
const char *comm_algorithm_name(const struct comm_algorithm *algorithm);
const char *comm_algorithm_summary(const struct comm_algorithm *algorithm);
/* Cost of an all_reduce of `bytes` in a group of `size` on `nodes` nodes; of one that is no
 * all_reduce, all numbers are 0. */
struct comm_cost comm_algorithm_cost(const struct comm_algorithm *algorithm, int size,
                                     int nodes, size_t bytes);
/* Name of the algorithm that the last all_reduce, reduce_scatter, all_gather or broadcast used;
 * "none" before the first. */
const char *comm_last_algorithm(const struct comm *comm);
/* Bytes of data that this rank has sent so far, or read from and written to others' memory. */
uint64_t comm_bytes_sent(const struct comm *comm);

#endif /* COMM_COMM_H */
