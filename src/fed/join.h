/* SPDX-License-Identifier: MIT */
/* join.h - a client engine behind HTTPS: asks, trains, gives, comes back when the connection was lost.
 */
#ifndef FED_JOIN_H
#define FED_JOIN_H

#include "fed/client.h"
#include "fed/policy.h"

struct fed_join_config {
    const char *url;                               /* https://HOST:PORT */
    const char *cert, *key, *identity, *authority; /* PEM files */
    const char *state;                             /* file with what must survive a restart */
    const char *ledger; /* file with the privacy spent, of all federations (spending.h) */
    const struct fed_policy *policy; /* NULL: all terms are agreeable */
    double give_up_s; /* without a word of the coordinator for so long; 0: never */
    void *arg;        /* of the functions below */
    /* Terms that the policy allows: opens the data, makes the trainer, says how many samples there are and what may be told of
     * them (a JSON object, borrowed). They are borrowed until the end. */
    MUST_CHECK enum status (*open)(void *arg, const char *name, const struct fed_terms *terms,
                                   struct fed_trainer *trainer, uint64_t *samples,
                                   const char **about);
    /* Something worth a line. */
    void (*tell)(void *arg, const char *line);
    /* The last model: parameters as they came, with the own head. NULL: nobody wants it. */
    MUST_CHECK enum status (*on_end)(void *arg, const float *parameters);
};

/* Takes part until the coordinator says that it is over. Ctrl-C: STATUS_STOPPED; the same call goes on. */
MUST_CHECK enum status fed_join_run(const struct fed_join_config *config);

#endif /* FED_JOIN_H */
