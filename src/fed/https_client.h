/* SPDX-License-Identifier: MIT */
/* https_client.h - one connection to a coordinator, with a certificate of our own.
 *
 * The coordinator must show one of the federation's authority for the host in its address. The connection is kept
 * between requests and made again when it was lost.
 *
 * Threads: one at a time.
 */
#ifndef FED_HTTPS_CLIENT_H
#define FED_HTTPS_CLIENT_H

#include "base/status.h"
#include "fed/wire.h"

struct https_client;

struct https_client_config {
    const char *url;                    /* https://HOST:PORT */
    const char *cert, *key, *authority; /* PEM files */
    int silent_s;      /* a coordinator that says nothing for so long is given up */
    size_t reply_most; /* bytes */
};

MUST_CHECK enum status https_client_create(const struct https_client_config *config,
                                           struct https_client **out);
void https_client_destroy(struct https_client *client); /* NULL is allowed */

/* Posts a body (NULL: gets) and appends what comes back to *reply. STATUS_PEER_LOST: try again later (nobody there,
 * connection lost, the coordinator's own failure). STATUS_MISMATCH: it refuses us, or is not who it should be.
 * STATUS_STOPPED: Ctrl-C (stop.h). */
MUST_CHECK enum status https_client_ask(struct https_client *client, const char *path,
                                        const void *body, size_t length,
                                        struct fed_buffer *reply);

#endif /* FED_HTTPS_CLIENT_H */
