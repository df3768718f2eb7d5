/* SPDX-License-Identifier: MIT */
/* room.h - how much memory this process can still take.
 *
 * The least of: memory that the system calls available, limits of the process's cgroups, and limits
 * on its addresses and data (ulimit -v, -d). A check before a large allocation ends in a message
 * within milliseconds; without it the process swaps, or is killed, after minutes.
 *
 * Threads: any.
 */
#ifndef BASE_ROOM_H
#define BASE_ROOM_H

#include "base/status.h"

/* Bytes; infinite where nothing is known. */
double room_left(void);
/* Bytes that the process's cgroups allow at all; infinite without a limit. */
double room_of_cgroup(void);

/* STATUS_NO_MEMORY if `bytes` are more than room_left: "PATH: WHAT needs about 3.1 GB of memory,
 * 1.2 GB are left: REMEDY". */
MUST_CHECK enum status room_check(double bytes, const char *path, const char *what,
                                  const char *remedy);

#endif /* BASE_ROOM_H */
