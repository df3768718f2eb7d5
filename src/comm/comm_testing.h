/* SPDX-License-Identifier: MIT */
/* comm_testing.h - runs a function on several ranks, for tests of whatever uses comm. */
#ifndef COMM_COMM_TESTING_H
#define COMM_COMM_TESTING_H

#include "comm/comm.h"

/* What one rank does. It must not use CHECK; it returns a failure instead, whose text
 * becomes that of the caller. */
typedef enum status comm_testing_body(struct comm *comm, void *arg);

/* Runs the body on `size` ranks as threads of this process. Result: of the first rank (by
 * number) that failed by itself, else of the first that lost a peer. */
MUST_CHECK enum status comm_testing_threads(int size, const char *algorithm,
                                            comm_testing_body *body, void *arg);
/* The same on several pretended nodes, which share no memory. */
MUST_CHECK enum status comm_testing_nodes(int size, int nodes, const char *algorithm,
                                          comm_testing_body *body, void *arg);
/* The same as processes. What the body writes to memory is lost with its process. */
MUST_CHECK enum status comm_testing_processes(int size, const char *algorithm,
                                              comm_testing_body *body, void *arg);

#endif /* COMM_COMM_TESTING_H */
