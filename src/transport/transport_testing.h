/* SPDX-License-Identifier: MIT */
/* transport_testing.h - runs a function on several ranks, for tests of transports. */
#ifndef TRANSPORT_TRANSPORT_TESTING_H
#define TRANSPORT_TRANSPORT_TESTING_H

#include <pthread.h>

#include "transport/transport.h"

enum { MOST_RANKS = 8, TEXT_BYTES = 256 };

/* What one rank does. */
typedef enum status rank_body(struct transport *transport, void *arg);

struct rank {
    struct transport *transport;
    rank_body *body;
    void *arg;
    pthread_t thread;
    enum status status;
    char text[TEXT_BYTES];
};

/* Runs the body on `size` ranks as threads of this process; a rank that fails, fails the test. */
void ranks_run(int size, rank_body *body, void *arg);
/* The same on several pretended nodes, which share no memory. */
void ranks_run_on(int nodes, int size, rank_body *body, void *arg);

/* Runs the body on every rank and leaves what became of each in ranks. */
void ranks_run_each(int size, rank_body *body, void *arg, struct rank *ranks);
void ranks_run_each_on(int nodes, int size, rank_body *body, void *arg, struct rank *ranks);

#endif /* TRANSPORT_TRANSPORT_TESTING_H */
