/* SPDX-License-Identifier: MIT */
/* region.h - private: what the memory shared by the ranks of a node holds, and a rank's end of
 * it.
 *
 *   +--------+-----------------+--------------------------+-----------+------+
 *   | region | slot of rank 0… | ring 0->0, 0->1, …, n->n | far ranks | heap |
 *   +--------+-----------------+--------------------------+-----------+------+
 *
 * Every rank sees it at the same address. The mapping is anonymous and made before the fork, or
 * of a file in memory that its ranks open through the one that made it: nothing of it has
 * a name that could be left behind. Rank numbers in arguments are
 * those of the job; the region's own begin at `first`. Every word that two ranks
 * touch is an atomic, or is written before and read after an atomic that orders it.
 */
#ifndef TRANSPORT_REGION_H
#define TRANSPORT_REGION_H

#include <pthread.h>
#include <stdalign.h>

#include "transport/link.h"
#include "transport/transport.h"

enum {
    REGION_RANKS = 256, /* most ranks of a job on one machine */
    REGION_LINE = 64,   /* a cache line */
    REGION_TEXT = 1024, /* longest failure text with its NUL */
    REGION_PAGE = 4096,
};

enum rank_state {
    RANK_RUNNING,
    RANK_ENDED,   /* its body returned: nothing will come from it any more */
    RANK_STOPPED, /* the same, because it was asked to stop */
    RANK_LOST,    /* it died, and the job goes on */
};

/* What the others know of one rank. */
struct rank_slot {
    /* Raised for whatever a rank may be waiting for in its rings: bytes that arrived, room
     * made. */
    alignas(REGION_LINE) struct transport_counter bell;
    /* Written by the rank for the others' messages. */
    alignas(REGION_LINE) _Atomic uint64_t step;
    _Atomic uint64_t what[TRANSPORT_NOTE / 8]; /* text; "" before the first transport_note */
    _Atomic int pid;
    _Atomic int state;       /* enum rank_state */
    _Atomic bool expendable; /* its death is not the job's */
    uint64_t share_bytes[2]; /* of this rank's last two calls of transport_share */
    int status;              /* what its body returned; valid once state is RANK_ENDED */
    char text[REGION_TEXT];  /* and the text with it */
};

enum { FAILED_NO, FAILED_WRITING, FAILED_YES };

/* Of a rank on another node; written by this node's first rank. */
struct far_rank {
    _Atomic int state; /* enum rank_state */
};

struct region {
    size_t bytes, far_start, heap_start, ring_bytes;
    int first, size; /* ranks [first, first + size) of the job */
    int job_size;    /* ranks of the job */
    int cores;       /* processors of this node that they may use */
    bool can_lose;   /* somebody notices that a rank died and says so with region_give_up */

    _Atomic int failed; /* FAILED_…: who moves it from NO to WRITING writes the next */
    int failed_rank;
    bool failed_is_loss; /* others lost that rank; else it said so itself */
    char failed_text[REGION_TEXT];

    alignas(REGION_LINE) struct transport_counter share_joined;
    alignas(REGION_LINE) struct rank_slot slots[];
};

/* Bytes on their way from one rank to another. Positions count bytes modulo 2^32. */
struct ring {
    alignas(REGION_LINE) _Atomic uint32_t written; /* moved by the sender */
    alignas(REGION_LINE) _Atomic uint32_t read;    /* moved by the receiver */
    alignas(REGION_LINE) char data[]; /* region->ring_bytes of them, a power of two */
};

/* One rank's receiving side of a pair; see message.c. Guarded by lock. */
struct incoming {
    pthread_mutex_t lock;
    struct message *first, *last;     /* arrived before anyone asked, in order */
    struct transport_request *posted; /* asked for, not yet arrived, in order */
    size_t kept_bytes;                /* in first…last */
    /* The message that is arriving: into one of these two. */
    bool arriving;
    struct transport_request *request;
    struct message *message;
    char *target;
    size_t left;
    bool broken; /* a receive gave up half-way; the rest has nowhere to go */
};

/* And its sending side. Guarded by lock. */
struct outgoing {
    pthread_mutex_t lock;
    struct transport_request *first; /* in order; the first may be half-way */
    bool broken;                     /* a send gave up half-way */
};

/* Sends over the link whose callers did not wait; see request.c. Guarded by lock. */
struct left_sends {
    pthread_mutex_t lock;
    struct left_send *first;
    size_t bytes;
    _Atomic int count;
};

struct transport {
    struct region *region;
    const char *name;
    int rank, size;
    int n_nodes, node; /* and the own */
    int *node_first;   /* [n_nodes + 1] */
    struct link *link; /* to ranks outside the region; NULL if there are none */
    char *heap;        /* of transport_share */
    size_t heap_bytes, heap_used;
    bool owns_heap;              /* else it is the region's */
    _Atomic bool may_spin;       /* a core for every waiter */
    _Atomic int32_t spin_ns;     /* how long; see wait.c */
    _Atomic int64_t patience_ns; /* for messages; 0: any */
    uint32_t next_tag;
    uint32_t shares;                 /* calls of transport_share so far */
    struct outgoing *outgoing;       /* one a rank of the region */
    struct incoming *incoming;       /* one a rank of the region */
    _Atomic int n_sends, n_receives; /* requests under way over rings */
    struct left_sends left;
    void *owner; /* what inproc.c made it with */
    /* Of a group (group.c): the job's end, which carries its messages; of any other, itself. */
    struct transport *job;
    int *members;     /* ranks of the job, by the group's numbers; NULL: not a group */
    uint32_t end_tag; /* of a group's own range */
    struct group_block *blocks; /* of a group: what transport_share gave */
};

/* A rank as the job numbers it. */
static inline int job_rank(const struct transport *transport, int rank)
{
    const bool is_member = transport->members && rank >= 0 && rank < transport->size;
    return is_member ? transport->members[rank] : rank;
}

/* Maps the memory of a job. bytes: heap; 0 picks half of the machine's memory. message_bytes: as below. */
MUST_CHECK enum status region_create(int size, size_t bytes, size_t message_bytes,
                                     struct region **out);
/* The same for a job of one rank, which is this process: what forks of it write is not seen. */
MUST_CHECK enum status region_create_private(size_t bytes, struct region **out);

struct region_config {
    int first, size, job_size;
    size_t bytes;         /* heap; 0 picks half of the machine's memory */
    size_t message_bytes; /* of a message for which a ring has room; 0: usual ones */
    int fd; /* of an empty file in memory, or -1 for memory of this process and its forks */
    void *address;   /* where, or NULL for anywhere */
    bool is_private; /* forks have copies: with fd -1, for a job that is this process alone */
};
MUST_CHECK enum status region_create_as(const struct region_config *config,
                                        struct region **out);
/* Maps what another process made of that file, at the same address; NULL if that is taken. */
struct region *region_open(int fd, void *address, size_t bytes);
void region_destroy(struct region *region); /* NULL is allowed */
struct ring *region_ring(struct region *region, int from, int to);
bool region_holds(const struct region *region, int rank);
struct rank_slot *region_slot(struct region *region, int rank);
/* What a rank noted last, as " at step 12 in all_reduce"; "" if nothing. */
void region_note(struct region *region, int rank, char *out, size_t bytes);

/* A rank's place in its job. */
struct place {
    int rank;
    const char *name;
    int n_nodes;
    const int *node_first; /* [n_nodes + 1]; copied */
    struct link *link;     /* borrowed; NULL if the region holds all ranks */
    bool is_flat;          /* each rank is a node, though the region holds all of them */
};

/* Makes rank's end. The region must outlive it. */
MUST_CHECK enum status region_attach(struct region *region, const struct place *place,
                                     struct transport **out);
void region_detach(struct transport *transport); /* NULL is allowed */

/* Declares the job failed because of `rank`; only the first call counts. */
void region_fail(struct region *region, int rank, const char *text);
/* The same where the rank did not say so itself: others found it dead, stopped or silent. */
void region_lose(struct region *region, int rank, const char *text);
bool region_has_failed(const struct region *region);
/* The text of the failure; only if the region has failed. */
const char *region_failure(struct region *region);
/* Marks rank's body as returned. */
void region_end(struct region *region, int rank, enum status status, const char *text);
/* Marks rank as dead, with how it died, if the job can do without it; false if it cannot. */
bool region_give_up(struct region *region, int rank, const char *text);
/* The same of a rank on another node. */
void region_lose_far(struct region *region, int rank);
void region_end_far(struct region *region, int rank, enum status status);
bool region_has_ended(const struct region *region, int rank);
/* A rank that ended because it was asked to stop, or -1. */
int region_stopped(const struct region *region);

/* message.c: requests between ranks of the region. */
MUST_CHECK enum status message_init(struct transport *transport);
void message_release(struct transport *transport);
MUST_CHECK enum status message_start(struct transport *transport,
                                     struct transport_request *request);
/* Moves it, and others of this rank; *out_moved says whether anything moved. */
MUST_CHECK enum status message_test(struct transport *transport,
                                    struct transport_request *request, bool *out_done,
                                    bool *out_moved);
/* Moves whatever this rank has under way. */
MUST_CHECK enum status message_progress(struct transport *transport, bool *out_moved);
void message_cancel(struct transport *transport, struct transport_request *request);

/* group.c: memory of a rank that is a node by itself, no more than is asked for. */
MUST_CHECK enum status group_share(struct transport *group, size_t bytes, void **out);
bool group_has_shared(const struct transport *group, const void *data, size_t bytes);

/* request.c */
/* Moves what this rank has under way, whoever asked for it. */
MUST_CHECK enum status request_progress(struct transport *transport);
/* Waits until what transport_send left under way has gone. */
MUST_CHECK enum status request_flush(struct transport *transport);
void request_release(struct transport *transport);

#endif /* TRANSPORT_REGION_H */
