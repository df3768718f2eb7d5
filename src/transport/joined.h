/* SPDX-License-Identifier: MIT */
/* joined.h - private: a rank's part in an MPI job, shared by join.c, link_mpi.c and monitor.c. */
#ifndef TRANSPORT_JOINED_H
#define TRANSPORT_JOINED_H

#include <poll.h>
#include <signal.h>

#include "base/clock.h"
#include "transport/region.h"
#include "transport/world.h"

enum {
    JOINED_HOST = 64,   /* bytes of a machine's name */
    JOINED_WATCHED = 8, /* ranks of its node that a monitor looks at */
    JOINED_HINTS = 4,   /* signals that it heeds */
};

/* What is known of a rank. */
struct peer {
    int mpi_rank, pid;
    char host[JOINED_HOST];
    /* The monitor's alone: */
    int64_t heard_ms;              /* when a far rank was heard of last, */
    char note[2 * TRANSPORT_NOTE]; /* and what it was doing then */
    int64_t stopped_ms;            /* how long a near one has been stopped */
};

/* What ranks tell the first ranks of other nodes. */
enum control_kind { CONTROL_BEAT, CONTROL_FAILED, CONTROL_ENDED, CONTROL_MISSES };

struct control {
    int32_t kind, rank;
    /* Of a body that ended; of a failure: STATUS_PEER_LOST if it is a loss; with CONTROL_MISSES the rank that this one's
     * node misses. */
    int32_t status;
    char text[REGION_TEXT];
};

struct joined {
    struct link link;
    struct world *world;
    struct region *region;
    struct transport *transport;
    int rank, size, n_nodes, node;
    int *node_first;    /* [n_nodes + 1] */
    struct peer *peers; /* by rank */
    int stuck_ms;
    _Atomic int n_open;                    /* requests over the link */
    struct pollfd watched[JOINED_WATCHED]; /* the ranks of the node that come next; -1: not */
    struct sigaction old[JOINED_HINTS];
    pthread_t monitor;
    bool monitor_runs, is_listening;
    _Atomic bool is_ending;
    _Atomic bool has_told;  /* of the failure */
    int64_t stuck_since_ms; /* a call of MPI has not returned since; 0: none. The monitor's */
    /* [n_nodes * n_nodes]: when node i has said last that it misses j. The monitor's, as what follows. */
    int64_t *missed_ms;
    int64_t misses_since_ms; /* this node misses some; 0: none */
    bool is_cut_off;         /* the others have lost this rank, which is there and says so */
    /* Guarded by world->lock: */
    struct notice *notices;
    struct mpi_message control_message;
    struct control control;
};

static inline int64_t joined_now_ms(void)
{
    return clock_ns() / 1000000;
}

static inline bool joined_is_first_of_node(const struct joined *joined)
{
    return joined->rank == joined->node_first[joined->node];
}

static inline enum status joined_mpi_failed(const char *text)
{
    return FAIL(STATUS_PEER_LOST, "MPI: %s", text);
}

/* link_mpi.c */
extern const struct link_ops link_mpi_ops;

/* monitor.c */
MUST_CHECK enum status monitor_begin(struct joined *joined);
void monitor_end(struct joined *joined);
/* Tells the other nodes that this rank's body has ended. */
void monitor_tell_end(struct joined *joined, enum status status);
/* Has all that was to be told gone, and is a failure among it if there was one? */
bool monitor_has_told(struct joined *joined);

#endif /* TRANSPORT_JOINED_H */
