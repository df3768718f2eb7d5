/* SPDX-License-Identifier: MIT */
/* transport.h - bytes between the ranks of one job.
 *
 * A transport is one rank's end of the wire. It moves tagged messages between
 * pairs of ranks. The ranks of a job are on one or more nodes (machines, or what is
 * treated as one): those of a node are in a row, and the transport hands out memory
 * that all of them see at the same address, and counters to wait on.
 *
 * Threads: send, receive, wait and requests may be used from several threads of a rank at
 *          once, for different peers, tags or counters; a request by one thread at a time.
 * Errors:  STATUS_PEER_LOST once a rank died, is stuck or someone called
 *          transport_abort; the text names the rank and what it was doing
 *          ("rank 2 (pid 4711) was killed by signal 9 at step 12 in all_reduce of bucket 0").
 *          From then on every call of every rank that has to wait fails the same
 *          way, within two seconds, also those that were already waiting. What needs no
 *          waiting still succeeds, so that messages sent before the failure can be read.
 */
#ifndef TRANSPORT_TRANSPORT_H
#define TRANSPORT_TRANSPORT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct transport;

const char *transport_name(const struct transport *transport); /* "inproc", "shm" */
int transport_rank(const struct transport *transport);
int transport_size(const struct transport *transport);

int transport_nodes(const struct transport *transport);
int transport_node_of(const struct transport *transport, int rank);
/* Node `node` has the ranks [first, first + size). */
int transport_node_first(const struct transport *transport, int node);
int transport_node_size(const struct transport *transport, int node);

/* Messages between a pair arrive in order per tag. send may return before the peer receives.
 * receive fails with STATUS_MISMATCH if the message has another length. */
MUST_CHECK enum status transport_send(struct transport *transport, int peer, uint32_t tag,
                                      const void *data, size_t bytes);
MUST_CHECK enum status transport_receive(struct transport *transport, int peer, uint32_t tag,
                                         void *data, size_t bytes);

/* A message that is on its way. The caller's memory, zeroed before its first use; what is in
 * it is the transport's. Neither it nor the data may move or be freed before it is done. */
struct transport_request {
    struct transport_request *next;
    char *data;
    size_t bytes, moved;
    size_t length;      /* of the message that came */
    uint64_t handle[2]; /* the link's */
    int peer;           /* as the job numbers it, once it is begun */
    int member;         /* and as the group does that it was begun in */
    uint32_t tag;
    int kind; /* 0: none, or over */
    bool done;
    bool may_be_shorter; /* a receive: the message has `bytes` at most */
};

/* Begin and return at once. Sends to a peer with a tag arrive in the order of the calls, and
 * receives are served in that order. Any number may be under way, in both directions. */
MUST_CHECK enum status transport_start_send(struct transport *transport, int peer, uint32_t tag,
                                            const void *data, size_t bytes,
                                            struct transport_request *request);
MUST_CHECK enum status transport_start_receive(struct transport *transport, int peer,
                                               uint32_t tag, void *data, size_t bytes,
                                               struct transport_request *request);
/* The same for a message of at most `bytes`; once it is done, request->length says how many came. */
MUST_CHECK enum status transport_start_receive_most(struct transport *transport, int peer,
                                                    uint32_t tag, void *data, size_t bytes,
                                                    struct transport_request *request);
/* Is it done? Moves what can be moved without waiting. A failure is that of transport_send and
 * transport_receive; the request is over then. So is one that is done, or was never begun: it
 * is done each time it is asked about. */
MUST_CHECK enum status transport_test(struct transport *transport,
                                      struct transport_request *request, bool *out_done);
/* Waits until it is done; other requests of this rank move on meanwhile. */
MUST_CHECK enum status transport_wait_for(struct transport *transport,
                                          struct transport_request *request, const char *what);
/* For who has many requests: transport_bell gives a number; after that it looks at all of them, and if
 * none moved it waits until the number has changed, which it does when something may have moved, or until
 * so many nanoseconds have passed. Where messages come over a link it returns sooner, to look again.
 * transport_ring changes the number of the own rank, to wake its other threads. */
uint32_t transport_bell(const struct transport *transport);
void transport_ring(struct transport *transport);
MUST_CHECK enum status transport_wait_bell(struct transport *transport, uint32_t seen,
                                           int64_t ns, const char *what);
/* From now on waiting for one message, in send, receive and wait_for, fails after so many seconds with
 * STATUS_PEER_LOST, for all ranks, and names the peer; 0: never. Time in which the whole job was
 * stopped does not count. */
void transport_set_patience(struct transport *transport, double seconds);
/* Lets go of a request because its job is given up: data and request may be freed then. The
 * peer gets the message no more. Nothing happens to one that is over. */
void transport_cancel(struct transport *transport, struct transport_request *request);

/* `count` tags that no earlier call gave out; ranks that make the same calls get the same. */
uint32_t transport_new_tags(struct transport *transport, uint32_t count);

/* Groups --------------------------------------------------------------------------------- */

/* Ends of some ranks of a job, which number them anew: members[r] is what the job calls the group's rank
 * r, and this rank is one of them. Each is a node of its own, so what goes between them are messages;
 * they have a range of tags. A failure is the job's. Every rank of the job makes the same calls, for the groups that
 * it is in: groups that are made together have no member in common. The job's end must outlive it. */
MUST_CHECK enum status transport_group_create(struct transport *job, const int *members,
                                              int count, struct transport **out);
/* The same with so many tags alone, for who makes many groups: there are not many tags in all. A rank that is not in a group
 * which others make takes as many (transport_new_tags), so that all go on with the same. */
MUST_CHECK enum status transport_group_create_small(struct transport *job, const int *members,
                                                    int count, uint32_t tags,
                                                    struct transport **out);
/* For a rank that is in none of the groups that others make by transport_group_create now. */
void transport_group_skip(struct transport *job);
void transport_group_destroy(struct transport *group); /* NULL is allowed */

/* Makes one node of members that are on one: they share these bytes, which all of them have at the same address, zeroed, and
 * nobody else uses. Before anything is shared in the group. */
void transport_group_join(struct transport *group, void *memory, size_t bytes);
/* Are all members on this rank's machine, though each may be a node? */
bool transport_is_one_machine(const struct transport *group);
/* What the job calls a rank of this group; of the job itself, the same. For messages to people. */
int transport_job_rank(const struct transport *transport, int rank);

/* Shared memory ------------------------------------------------------------------------ */

/* Are all ranks of the job on one node? What follows concerns the ranks of the own node. */
bool transport_shares_memory(const struct transport *transport);
/* Collective: every rank of the node makes the same calls in the same order with the same
 * size, and gets the same block: zeroed, aligned to 4096, at the same address on every rank.
 * Lives until the job ends. Blocks until all ranks of the node have called; in a group that joined, it does not. */
MUST_CHECK enum status transport_share(struct transport *transport, size_t bytes, void **out);
/* Bytes that are left for it. */
size_t transport_room(const struct transport *transport);
/* Does all of it lie in memory that every rank of the node sees? */
bool transport_is_shared(const struct transport *transport, const void *data, size_t bytes);

/* A number that ranks raise and wait for; lives in shared memory, zero at first, one cache
 * line. */
struct transport_counter {
    _Atomic uint32_t value;
    _Atomic uint32_t sleepers;
    char pad[56];
};
/* Adds with release order and wakes who waits. */
void transport_raise(struct transport_counter *counter, uint32_t by);
/* Has the counter reached target (modulo 2^32, by signed difference)? Acquire order. */
bool transport_reached(const struct transport_counter *counter, uint32_t target);
/* Waits for that: spins while there is a core for every waiter, then yields, then sleeps.
 * `what` says for messages what is waited for. */
MUST_CHECK enum status transport_wait(struct transport *transport,
                                      struct transport_counter *counter, uint32_t target,
                                      const char *what);
/* The same, but gives up when so many nanoseconds were waited; time in which the whole job was
 * stopped does not count. */
MUST_CHECK enum status transport_wait_within(struct transport *transport,
                                             struct transport_counter *counter, uint32_t target,
                                             int64_t ns, const char *what, bool *out_reached);
/* The same for a counter that only `rank` raises: fails also if that rank's body has returned.
 */
MUST_CHECK enum status transport_wait_rank(struct transport *transport,
                                           struct transport_counter *counter, uint32_t target,
                                           int rank, const char *what);
/* How many threads of this node's ranks may want to run at once; the number of its ranks unless
 * set. With fewer cores than that this rank never spins. */
void transport_set_waiters(struct transport *transport, int waiters);

/* Failure and stop --------------------------------------------------------------------- */

/* What this rank is doing now, for other ranks' messages: the step and a text, of which up to
 * TRANSPORT_NOTE - 1 bytes are kept. Cheap: a few stores. */
enum { TRANSPORT_NOTE = 96 };
void transport_note(struct transport *transport, uint64_t step, const char *what);
/* Ends the job for every rank with this rank's text. */
void transport_abort(struct transport *transport, const char *text);
/* Has the job failed? STATUS_OK or STATUS_PEER_LOST with the text. */
MUST_CHECK enum status transport_check(struct transport *transport);

/* From now on the death of this rank is not the failure of the job: others go on and learn of it from
 * transport_lost. Call it after the last call that all ranks make together: those would wait for it.
 * STATUS_UNSUPPORTED under MPI, which ends all when one is gone. */
MUST_CHECK enum status transport_set_expendable(struct transport *transport);
/* Did such a rank die? Its bell has rung for all then. What is asked of it, or sent to it, fails with
 * STATUS_PEER_LOST; what it had sent can still be received. out_text (may be NULL): how it died, "" if that
 * is not known here. */
bool transport_lost(const struct transport *transport, int rank, const char **out_text);

/* Threads of one process as ranks ------------------------------------------------------ */

/* Makes `size` ends joined to each other; ends[r] is rank r's. For tests and for one rank. */
MUST_CHECK enum status transport_inproc_create(int size, struct transport **ends);
/* The same on `nodes` pretended nodes, as equal as can be: each has shared memory of its own, and
 * what goes between them goes through a link, as between machines. */
MUST_CHECK enum status transport_inproc_create_nodes(int size, int nodes,
                                                     struct transport **ends);
/* As if this rank had died, after transport_set_expendable; its thread makes no further call. */
void transport_inproc_lose(struct transport *end);
/* Destroys all ends made together; no rank may be using them. */
void transport_inproc_destroy(struct transport **ends, int size);

#endif /* TRANSPORT_TRANSPORT_H */
