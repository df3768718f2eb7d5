/* SPDX-License-Identifier: MIT */
/* server.h - the coordinator's engine: message in, reply out. No sockets, no files, no clock of its own.
 *
 * All it knows comes from its configuration, the store and messages. What it decides that does not follow from
 * these (who takes part, that a stage is over by its deadline) it appends to the store as a record before it
 * acts, so that an engine made again from the store after any instant goes on with the same round: updates that
 * were acknowledged count once, others never came.
 *
 * A give for another round or stage is refused; the same bytes given again are acknowledged without effect, other
 * bytes are refused.
 *
 * Threads: one at a time; the carrier locks.
 */
#ifndef FED_SERVER_H
#define FED_SERVER_H

#include <stdbool.h>

#include "base/strbuf.h"
#include "fed/local.h"
#include "fed/message.h"
#include "fed/secagg.h"
#include "fed/store.h"
#include "fed/terms.h"

struct fed_server;

/* What the coordinator measures by itself, if it has data of its own. */
struct fed_score {
    double loss, accuracy; /* NaN: unknown */
};

struct fed_server_config {
    const struct fed_terms *terms; /* borrowed */
    size_t length;                 /* of the flat vector of parameters */
    const float *initial;          /* parameters of round 0; read by fed_server_create */
    size_t head; /* with personal_head: the last `head` elements stay with participants */
    const struct fed_range *averages; /* stretches that are running averages; read by create */
    int n_averages;
    size_t
        statistics; /* numbers that tables are standardized by, if terms say so; 0: no tables */
    struct fed_store store;
    void *arg;                /* of the functions below */
    double (*now)(void *arg); /* seconds, from any beginning, never back */
    /* Random bytes that nobody can foresee; of a simulation: from its seed. */
    MUST_CHECK enum status (*entropy)(void *arg, void *out, size_t bytes);
    /* Tests new parameters after a round. NULL: never. */
    MUST_CHECK enum status (*evaluate)(void *arg, int64_t round, const float *parameters,
                                       struct fed_score *out);
    /* The statistics of all tables are known; also when they are read back. NULL: nobody wants to know. */
    void (*standardize)(void *arg, const float *statistics);
    /* Secure rounds: whom to believe (secagg.h). NULL: there are none. */
    const struct secagg_trust *trust;
};

/* Opens the store's state or begins a new one; refuses a store of another federation. */
MUST_CHECK enum status fed_server_create(const struct fed_server_config *config,
                                         struct fed_server **out);
void fed_server_destroy(struct fed_server *server); /* NULL is allowed */

/* One message of the participant whose identity the carrier has verified to be `client`, and the reply to it,
 * appended to *reply (initialized by the caller). What the participant did wrong becomes a reply (refused) and a line of
 * the audit; failure is the server's own: its state may be ahead of the store, so it answers nothing any more, and every
 * later call fails in the same way. An engine made again from the store goes on. */
MUST_CHECK enum status fed_server_answer(struct fed_server *server, const char *client,
                                         const void *message, size_t length,
                                         struct fed_buffer *reply);
/* A participant does not come back, as its certificate was revoked: no stage waits for it any more, and no round begins with
 * it. What it gave before counts. Who is let in again, by another certificate, is back with its first message. */
MUST_CHECK enum status fed_server_dismiss(struct fed_server *server, const char *client);
bool fed_server_is_dismissed(const struct fed_server *server, const char *client);
/* Ends what is over by time. Call once a second or so, and after a start. */
MUST_CHECK enum status fed_server_tick(struct fed_server *server);

/* All rounds are done, or the privacy budget is (fed_server_why says so, "" while it goes on). */
bool fed_server_is_done(const struct fed_server *server);
const char *fed_server_why(const struct fed_server *server);
/* Why no round begins although enough participants are there: so many cannot make one. "": nothing is wrong. */
const char *fed_server_waits(const struct fed_server *server);
int64_t
fed_server_round(const struct fed_server *server); /* that runs, from 0; lost ones count */
int64_t fed_server_done(const struct fed_server *server); /* rounds that moved the model */
/* Rounds lost since the start, and why the last of them was. */
int64_t fed_server_lost(const struct fed_server *server, const char **why);
const float *fed_server_parameters(const struct fed_server *server); /* of the last commit */
/* Names of those that said hello, by number from 0 on; NULL: no more. */
const char *fed_server_member(const struct fed_server *server, int number);
/* What tables are standardized by, added up over all participants; NULL: not known yet, or not asked for. */
const float *fed_server_statistics(const struct fed_server *server);
/* Bytes that a message may have at most: what the carrier limits bodies to. */
size_t fed_server_message_limit(const struct fed_server *server);

/* Where it stands, a JSON object: round, rounds, stage, participants (name, samples, state, last seen),
 * waiting for whom, bytes in and out, privacy spent and budget. For the status page. */
void fed_server_print(const struct fed_server *server, struct strbuf *out);

#endif /* FED_SERVER_H */
