/* SPDX-License-Identifier: MIT */
/* account.h - where time goes, and because of which rank: counters, arrivals, names. Private to exec/.
 * A lane or the inter-node thread increments the counter of a task when it has done its part. Any
 * thread may compare counters.
 */
#ifndef EXEC_ACCOUNT_H
#define EXEC_ACCOUNT_H

#include <pthread.h>
#include <stdint.h>

#include "base/status.h"
#include "transport/transport.h"

struct exec;

enum { ACCOUNT_NAME = 96 };

struct times {
    int64_t compute, comm, wait, evaluate; /* nanoseconds */
    int64_t bubble;                        /* part of wait: for other stages */
    int64_t hidden;                        /* part of comm */
    int64_t bytes;                         /* from and to other ranks */
};

/* For how long at least one lane of this rank has computed. Any thread. */
struct overlap {
    pthread_mutex_t lock; /* a leaf; guards all below */
    int computing;        /* lanes */
    int64_t since;        /* the first of them began */
    int64_t computed;     /* nanoseconds, until there was none last */
};

/* Communication that goes on. */
struct span {
    int64_t begin, computed, traced;
};

struct task_name {
    char text[112], number[12]; /* "reduce_scatter bucket 3", "17" */
};

/* Waiting times, and the names of what is waited for (account.c). */
struct exec_account {
    void *arrivals;
    struct overlap overlap;
    char (*bucket_names)[ACCOUNT_NAME]; /* "bucket 3 (fc1.weight and 1 more)" */
    char (*reduce_names)[ACCOUNT_NAME]; /* "reduce_scatter of " and that */
    char (*rank_names)[16];
    struct task_name
        *task_names; /* of the program's tasks, for the trace; NULL: there is none */
};

/* Of shared memory, for the lanes' arrivals. */
size_t account_bytes(const struct exec *exec);
MUST_CHECK enum status account_create(struct exec *exec);
void account_destroy(struct exec *exec);

/* The same for this rank's inter-node thread: what came from `rank` came last. */
void net_signal(struct exec *exec, int task, int rank);
/* The inter-node thread waits for something from `rank` before the task is done; -1: for lanes of this node. */
void net_expects(struct exec *exec, int task, int rank);

/* A thread that communicates beside the lanes asks how long lanes had computed when it began, and
 * when it ended: the difference was hidden. Enter and leave are for lanes. */
int64_t overlap_computed(struct overlap *overlap, int64_t now);
void overlap_enter(struct overlap *overlap, int64_t now);
void overlap_leave(struct overlap *overlap, int64_t now);

#endif /* EXEC_ACCOUNT_H */
