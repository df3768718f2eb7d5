/* SPDX-License-Identifier: MIT */
/* starter.h - private: the mpirun, mpiexec or daemon of theirs above this process on its
 * machine, and the other ranks below it.
 *
 * A starter is told by its name. What is below one and runs the same program is a rank of its
 * job, whatever scripts are in between; the environment says which rank. Processes of other
 * users are not seen.
 *
 * Threads: any.
 */
#ifndef TRANSPORT_STARTER_H
#define TRANSPORT_STARTER_H

#include <stdbool.h>
#include <sys/types.h>

/* State of a process, 'R' and the like as in proc(5); 'X' if there is none. */
char starter_state_of(pid_t pid);

/* The nearest starter above a process; 0: none. */
pid_t starter_above(pid_t pid);

/* A rank of the same job on this machine that is not `rank`: its number and process. Stopped
 * ones come first. */
struct starter_rank {
    int rank;
    pid_t pid;
    bool is_stopped;
};
/* Up to `most` ranks below the starter, one process each; how many they are. */
int starter_ranks(pid_t starter, int rank, int most, struct starter_rank *out);

/* Leaves a process behind that ends the starter, and one above that, if they are still there
 * after so many milliseconds: first by SIGTERM, then by SIGKILL. A starter that cannot reach a
 * machine waits for it for a minute or more. */
void starter_end_later(pid_t starter, int ms);

#endif /* TRANSPORT_STARTER_H */
