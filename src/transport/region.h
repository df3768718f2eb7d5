/* SPDX-License-Identifier: MIT */
/* region.h - private: what the memory shared by the ranks of a job holds, and a rank's end of
 * it.
 *
 *   +--------+-----------------+----------------------------+------------------------+
 *   | region | slot of rank 0… | ring 0->0, 0->1, …, n->n    | heap of transport_share |
 *   +--------+-----------------+----------------------------+------------------------+
 *
 * The mapping is anonymous and made before the fork, so that every rank sees it at the same
 * address and nothing of it has a name that could be left behind. Every word that two ranks
 * touch is an atomic, or is written before and read after an atomic that orders it.
 */
#ifndef TRANSPORT_REGION_H
#define TRANSPORT_REGION_H

#include <pthread.h>
#include <stdalign.h>

#include "transport/transport.h"

enum {
    REGION_RANKS = 256, /* most ranks of a job on one machine */
    REGION_LINE = 64,   /* a cache line */
    REGION_TEXT = 1024, /* longest failure text with its NUL */
    REGION_PAGE = 4096,
};

enum rank_state {
    RANK_RUNNING,
    RANK_ENDED, /* its body returned: nothing will come from it any more */
};

/* What the others know of one rank. */
struct rank_slot {
    /* Raised for whatever a rank may be waiting for in its rings: bytes that arrived, room
     * made. */
    alignas(REGION_LINE) struct transport_counter bell;
    /* Written by the rank for the others' messages. */
    alignas(REGION_LINE) _Atomic uint64_t step;
    _Atomic(const char *) what; /* NULL before the first transport_note */
    _Atomic int pid;
    _Atomic int state;       /* enum rank_state */
    uint64_t share_bytes[2]; /* of this rank's last two calls of transport_share */
    int status;              /* what its body returned; valid once state is RANK_ENDED */
    char text[REGION_TEXT];  /* and the text with it */
};

enum { FAILED_NO, FAILED_WRITING, FAILED_YES };

struct region {
    size_t bytes, heap_start, ring_bytes;
    int size, cores; /* ranks; processors the job may use */

    _Atomic int failed; /* FAILED_…: who moves it from NO to WRITING writes the next two */
    int failed_rank;
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
    struct message *first, *last; /* arrived before anyone asked, in order */
    struct posted *posted;        /* asked for, not yet arrived, in order */
    size_t kept_bytes;            /* in first…last */
    /* The message that is arriving. */
    bool arriving;
    char *target;
    size_t left;
    bool *done;  /* set when left becomes 0 */
    bool broken; /* a receive gave up half-way; the rest has nowhere to go */
};

struct transport {
    struct region *region;
    const char *name;
    int rank, size;
    _Atomic bool may_spin;   /* a core for every waiter */
    _Atomic int32_t spin_ns; /* how long; see wait.c */
    uint32_t next_tag;
    uint32_t shares;            /* calls of transport_share so far */
    size_t heap_used;           /* bytes from the region's start */
    pthread_mutex_t *send_lock; /* one a peer */
    struct incoming *incoming;  /* one a peer */
};

/* Maps the memory of a job. bytes: heap; 0 picks half of the machine's memory. */
MUST_CHECK enum status region_create(int size, size_t bytes, struct region **out);
void region_destroy(struct region *region); /* NULL is allowed */
struct ring *region_ring(struct region *region, int from, int to);

/* Makes rank's end. The region must outlive it. */
MUST_CHECK enum status region_attach(struct region *region, int rank, const char *name,
                                     struct transport **out);
void region_detach(struct transport *transport); /* NULL is allowed */

/* Declares the job failed because of `rank`; only the first call counts. */
void region_fail(struct region *region, int rank, const char *text);
bool region_has_failed(const struct region *region);
/* The text of the failure; only if the region has failed. */
const char *region_failure(struct region *region);
/* Marks rank's body as returned. */
void region_end(struct region *region, int rank, enum status status, const char *text);
bool region_has_ended(const struct region *region, int rank);

/* message.c */
MUST_CHECK enum status message_init(struct transport *transport);
void message_release(struct transport *transport);

#endif /* TRANSPORT_REGION_H */
