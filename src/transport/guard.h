/* SPDX-License-Identifier: MIT */
/* guard.h - private: stands between a rank and the mpirun, mpiexec or srun that started it.
 *
 * Starters end a whole job as soon as one of its processes is gone: MPICH's within milliseconds,
 * before anyone could say which it was and why. And they wait for ever for one that is stopped.
 * So the process that was started stays behind as guard and its child is the rank: the guard of
 * a rank that was lost leaves the others the time to find out and to report, and ends a rank that
 * stays stopped. It needs no network. While its rank waits for others to join the job, it looks whether those of this
 * machine are stopped, and says so; and where a starter does not end after a failure, it has it ended.
 *
 * Threads: the process has one when guard_begin is called.
 */
#ifndef TRANSPORT_GUARD_H
#define TRANSPORT_GUARD_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "transport/cluster.h"

/* Before guard_begin: others that are stopped for so long before they have joined, or do not come for so long, are missed. 0 for the
 * second: they may come any time. Without this 2 s and 0. */
void guard_set_patience(int stuck_ms, int64_t stall_ms);

/* Forks and returns in the child, once MPI is about to be joined; the rank dies with its guard.
 * The parent does not return: it ends as the child did. Called again it does nothing. */
MUST_CHECK enum status guard_begin(const struct cluster *place);

/* A job is under way: a rank that is stopped for so long is killed, and where the rank dies the
 * guard stays for longer than that. 0: none is. */
void guard_set_deadline(int stuck_ms);

/* The rank waits for the others to join, or does no more. */
void guard_note_waiting(bool waits);

/* The job failed: the guard leaves the other ranks a moment after this one has exited. */
void guard_note_failure(void);

#endif /* TRANSPORT_GUARD_H */
