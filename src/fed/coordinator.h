/* SPDX-License-Identifier: MIT */
/* coordinator.h - a server engine behind HTTPS: messages, the status page, time.
 *
 *   POST /message       one message of a participant, one reply
 *   GET  /terms         what this federation is, JSON
 *   GET  /              the status page
 *   GET  /status.json   what it draws
 *
 * All of it for holders of certificates; messages for participants alone, and each for itself.
 */
#ifndef FED_COORDINATOR_H
#define FED_COORDINATOR_H

#include <stdbool.h>

#include "fed/server.h"
#include "fed/store_sqlite.h"

/* A new federation's id: 32 random hexadecimal digits. */
void fed_draw_id(char out[FED_TEXT]);

struct fed_coordinator_config {
    struct fed_server_config server; /* store, now, entropy and trust are filled in here */
    struct fed_sqlite *store;
    const char *keys; /* folder with cert.pem, key.pem, authority.pem, revoked.pem */
    const char *host; /* NULL: all addresses */
    int port;         /* 0: any */
    int connections;  /* at once */
    int request_s;    /* a request must come in this time, and more for large ones */
    double linger_s;  /* after the last round participants are told for so long at most */
    void *arg;        /* of the function below */
    /* Something worth a line: it listens, a round is done, somebody was refused. From any thread. */
    void (*tell)(void *arg, const char *line);
};

/* Would a new federation begin: do engine, keys and address do? Keeps nothing; `store` is not used. */
MUST_CHECK enum status fed_coordinator_check(const struct fed_coordinator_config *config);

/* Serves until all rounds are done and participants know, or Ctrl-C (stop.h): then STATUS_STOPPED. on_end is called before it
 * returns, in both cases, with the engine as it is. A failure of the engine, also one while it answers a request, ends it
 * at once: the same command goes on from the store. */
MUST_CHECK enum status fed_coordinator_run(const struct fed_coordinator_config *config,
                                           enum status (*on_end)(void *arg,
                                                                 struct fed_server *server));

#endif /* FED_COORDINATOR_H */
