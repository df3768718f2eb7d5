/* SPDX-License-Identifier: MIT */
/* https_server.h - an HTTPS server that talks to holders of the federation's certificates alone.
 *
 * A handshake without a certificate, or with one that the trust refuses, fails; the certificate is judged again at
 * every request, as it may have been revoked meanwhile. Bodies, connections and time are limited: who sends or reads
 * slowly is cut off, and no others wait for it. Refusals are told to `refused`, not more than a few a second.
 *
 * Threads: `answer` and `refused` are called from several threads at once.
 */
#ifndef FED_HTTPS_SERVER_H
#define FED_HTTPS_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "fed/trust.h"
#include "fed/wire.h"

struct https_server;

struct https_request {
    const char *method, *path; /* "GET", "POST"; without host and query */
    const struct fed_identity *who;
    const void *certificate; /* who's, DER */
    size_t certificate_length;
    const uint8_t *body;
    size_t length;
};

struct https_reply {
    int code;         /* of HTTP; 200 unless set */
    const char *type; /* of the body; application/octet-stream unless set */
    int refresh_s;    /* a browser asks again after so long; 0: not */
    struct fed_buffer body;
};

struct https_server_config {
    const char *host;   /* address to listen on; NULL: all */
    int port;           /* 0: any that is free */
    const char *folder; /* has cert.pem, key.pem, authority.pem */
    struct fed_trust *trust;
    size_t body_most; /* bytes of a body */
    int connections;  /* at once */
    int request_s; /* a request must come and a reply be taken in this time, and a handshake be made */
    size_t bytes_per_s; /* that large bodies must reach on average, besides */
    void *arg;
    /* Fills the reply. A failure becomes "500", with its text in the log alone. */
    enum status (*answer)(void *arg, const struct https_request *request,
                          struct https_reply *reply);
    /* Somebody was refused: address and, where it is known, name; "" else. */
    void (*refused)(void *arg, const char *address, const char *name, const char *why);
};

MUST_CHECK enum status https_server_start(const struct https_server_config *config,
                                          struct https_server **out);
/* Ends all connections, when the replies that are on their way have gone or two seconds later. NULL is allowed. */
void https_server_stop(struct https_server *server);
int https_server_port(const struct https_server *server);

#endif /* FED_HTTPS_SERVER_H */
