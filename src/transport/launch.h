/* SPDX-License-Identifier: MIT */
/* launch.h - starts the ranks of a job on this machine and looks after them.
 *
 * The calling process forks one process a rank and stays as supervisor. Shared
 * memory is anonymous, mapped before the fork: when the last process is gone,
 * however it went, nothing is left. Every rank dies with the supervisor.
 * Call it before starting threads.
 *
 * A process that mpirun, mpiexec or srun started together with others is a rank already: it
 * joins them, by MPI, and runs the body itself. The ranks are numbered anew, so that those
 * of a machine are in a row; rank 0 is the same.
 */
#ifndef TRANSPORT_LAUNCH_H
#define TRANSPORT_LAUNCH_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"
#include "transport/transport.h"

/* What a rank runs. A failure's text is carried to the supervisor. */
typedef enum status launch_body(struct transport *transport, void *arg);

struct launch_config {
    int size;            /* ranks; 1 runs the body in this process, no fork */
    bool flat;           /* every rank is a node of its own, though all are on this machine */
    size_t shared_bytes; /* address space for transport_share; 0 picks four times the memory */
    size_t
        message_bytes; /* messages of so many bytes go at once, whatever the receiver does, if they are not too large; 0:
                             usual ones */
    int stuck_ms;      /* a stopped rank is declared lost after this; 0 is 2000 */
    int grace_ms;      /* ranks still there this long after a failure are killed; 0 is 5000 */
};

/* Was this process started by mpirun, mpiexec or srun as one of several? Says so by looking at
 * the environment alone. *out_rank is 0 in the process that will be rank 0; *out_size may be 0 before
 * launch_size: not said. */
bool launch_world(int *out_rank, int *out_size);

/* Are all ranks of the job on this machine, by what the environment says? A process by itself starts its ranks here. */
bool launch_is_on_one_machine(void);

/* Before MPI is joined: others that are stopped before they have joined are missed after lost_after seconds, those that do not come after
 * stall_timeout, 0: never. The job ends then. Without this after 2 and never. */
void launch_set_patience(double lost_after, double stall_timeout);

/* How many there are, 1 if it is alone. Where the environment does not say, MPI is asked. */
MUST_CHECK enum status launch_size(int *out_size);

/* Threads that rank 0 has room for, on its machine: what depends on that by default has to be the same
 * everywhere. Joins the others; only for a process that was started as one of several. */
MUST_CHECK enum status launch_first_threads(int *out_threads);

/* Shall this process print its failure? Of a job's processes one does; of a rank
 * that was lost every other. Where the failure came
 * before launch_ranks, the others are told of it first: they may be waiting for this one.
 * status_message() is the text to print. */
bool launch_reports(enum status status);

/* In such a job size is that of the job, or 1: then the body runs in this process alone. Returns
 * when every rank has ended. Status and text: of the first rank that failed by itself; one that
 * died by a signal gives STATUS_PEER_LOST and a text that names it. SIGINT, SIGTERM and, unless it
 * is ignored, SIGHUP reach every rank (a rank decides what to do with them); the supervisor waits
 * for the ranks. Of ranks that such a signal kills comes STATUS_STOPPED if it is SIGINT, else
 * STATUS_PREEMPTED. */
MUST_CHECK enum status launch_ranks(const struct launch_config *config, launch_body *body,
                                    void *arg);

#endif /* TRANSPORT_LAUNCH_H */
