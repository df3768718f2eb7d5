/* SPDX-License-Identifier: MIT */
/* client.h - a participant's engine: reply in, next message out. No sockets, no files.
 *
 * The carrier's loop:
 *
 *   for (;;) {
 *       fed_client_next(client, &step)     what to do now
 *       FED_SEND:  post step.message, fed_client_reply(client, the reply)
 *       FED_SLEEP: wait step.seconds, then call again
 *       FED_END:   leave; fed_client_parameters has the model
 *   }
 *
 * Training happens inside fed_client_reply, when a task has come. If a post fails, call next again: it gives the same
 * message, byte for byte, until a reply was taken. What must survive a restart (round and message last given, SCAFFOLD's
 * control variate, error feedback, the personal head, keys of a secure round) is a blob that `save` is called with
 * before the message that depends on it is given out; a client made with that blob goes on.
 *
 * Threads: one at a time.
 */
#ifndef FED_CLIENT_H
#define FED_CLIENT_H

#include "fed/message.h"
#include "fed/secagg.h"
#include "fed/terms.h"

struct fed_client;

/* Who trains: a table of functions (local.h has the ordinary trainer). */
struct fed_trainer {
    void *arg;
    size_t length; /* of the flat vector of parameters */
    size_t head;   /* elements of the last layer, which are the vector's last */
    /* Local steps from work->vector[0] as terms and work say. out: the parameters they end with, or the gradient where
     * work->whole is not 0. shift: of the gradient of every step, as long as the vector; NULL: none. */
    MUST_CHECK enum status (*train)(void *arg, const struct fed_work *work, const float *shift,
                                    float *out, struct fed_tally *tally);
    /* Tables: sums over rows, `statistics` numbers of them, and what standardizes by all participants'. NULL: no table. */
    size_t statistics;
    MUST_CHECK enum status (*sum_rows)(void *arg, float *out);
    MUST_CHECK enum status (*standardize)(void *arg, const float *statistics);
    /* The last layer's parameters as the seed makes them; NULL: never asked for. */
    MUST_CHECK enum status (*initial)(void *arg, uint64_t seed, float *head);
    /* Loss and accuracy of parameters on local validation data: val_* of the tally. NULL: there is none. */
    MUST_CHECK enum status (*evaluate)(void *arg, const float *parameters,
                                       struct fed_tally *tally);
};

struct fed_client_config {
    const char *name; /* as its certificate says */
    uint64_t samples; /* for training */
    const char
        *about; /* what the data look like, a JSON object; no more than policy allows to tell */
    const void *state; /* blob of an earlier session; NULL: none */
    size_t state_length;
    void *arg; /* of the functions below */
    /* Are these terms agreeable? A failure's text goes to the user, and the client ends. NULL: all are. */
    MUST_CHECK enum status (*check)(void *arg, const struct fed_terms *terms);
    /* Makes the trainer for these terms, which stay as they are as long as the client lives. */
    MUST_CHECK enum status (*open)(void *arg, const struct fed_terms *terms,
                                   struct fed_trainer *out);
    /* Keeps the blob, durably. NULL: not (simulation: the engine itself lives on). */
    MUST_CHECK enum status (*save)(void *arg, const void *state, size_t length);
    MUST_CHECK enum status (*entropy)(void *arg, void *out, size_t bytes);
    /* Before an update of this round is made: counts the privacy that it spends. keys: 16
     * characters that name the secrets of a secure round, from which the same update is made again;
     * NULL in plain rounds. A failure ends the client, and nothing is made. NULL: nobody counts. */
    MUST_CHECK enum status (*spend)(void *arg, int64_t round, const char *keys);
    /* Secure rounds: who this is, and whom to believe (secagg.h). NULL: it takes part in none. */
    const struct secagg_identity *identity;
    const struct secagg_trust *trust;
};

MUST_CHECK enum status fed_client_create(const struct fed_client_config *config,
                                         struct fed_client **out);
void fed_client_destroy(struct fed_client *client); /* NULL is allowed */

enum fed_do { FED_SEND, FED_SLEEP, FED_END };
struct fed_step {
    enum fed_do what;
    const uint8_t *message; /* borrowed until the reply is taken */
    size_t length;
    double seconds;
};
MUST_CHECK enum status fed_client_next(struct fed_client *client, struct fed_step *out);
/* Takes the reply to the message that was given last. Failure: what came is no reply (STATUS_CORRUPT: post again or
 * give up), is against policy or terms (STATUS_MISMATCH: leave), or training failed. */
MUST_CHECK enum status fed_client_reply(struct fed_client *client, const void *reply,
                                        size_t length);

/* Frees what it can make or get again, after a round: for who has many of them. */
void fed_client_rest(struct fed_client *client);

const struct fed_terms *fed_client_terms(const struct fed_client *client); /* NULL: not yet */
int64_t fed_client_round(
    const struct fed_client *client); /* last one it gave something for; -1: none */
const struct fed_tally *fed_client_tally(const struct fed_client *client); /* of that */
/* Updates that a participant makes under such terms at most, those of lost rounds too: ten times as many as there are rounds, and
 * twice as many where it spends privacy by each. */
uint64_t fed_client_most(const struct fed_terms *terms);
/* The newest parameters that came, with the own head; NULL: none yet. */
const float *fed_client_parameters(const struct fed_client *client);

#endif /* FED_CLIENT_H */
