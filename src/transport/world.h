/* SPDX-License-Identifier: MIT */
/* world.h - private: the MPI job that this process was started in.
 *
 * MPI can be joined once in the life of a process, so there is one world; it stays joined until
 * the process ends.
 */
#ifndef TRANSPORT_WORLD_H
#define TRANSPORT_WORLD_H

#include <pthread.h>

#include "transport/launch.h"
#include "transport/mpi/face.h"

struct world {
    const struct mpi_face *face;
    int rank, size;             /* MPI's */
    pthread_mutex_t lock;       /* around every call of face; by the functions below */
    _Atomic bool monitor_waits; /* for the lock */
    bool is_lost;               /* the job failed: leave without a word */
    int first_threads;          /* that rank 0 of MPI's has room for */
};

/* A thread that polls would take the lock again before one that sleeps for it has woken: on a busy machine a
 * monitor could starve, and a loss be noticed by nobody. So it goes first. */
void world_lock(struct world *world);
/* For the monitor. False if a call of MPI has not returned for a while: Open MPI's may never, if a peer goes
 * away in the middle of a send to it. */
MUST_CHECK bool world_lock_first(struct world *world);
void world_unlock(struct world *world);

/* Opens the plug-in that fits what started us, and joins; the same world each time. */
MUST_CHECK enum status world_open(struct world **out);

/* launch.c */
/* Text of a rank's own failure, naming the rank if it does not name one already. */
void launch_name_rank(int rank, const char *text, char *out, size_t bytes);
/* A stop on request is no failure of the job: the other ranks stop by themselves. */
bool launch_is_failure(enum status status);

/* join.c: what launch_ranks does in such a job. */
MUST_CHECK enum status join_ranks(const struct launch_config *config, launch_body *body,
                                  void *arg);
/* Has it ever begun a job? Then a failure is told in it. */
bool join_has_begun(void);
/* Does the rank that this process was in the last job report its failure? */
bool join_reports(void);

#endif /* TRANSPORT_WORLD_H */
