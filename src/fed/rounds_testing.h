/* SPDX-License-Identifier: MIT */
/* rounds_testing.h - federations of engines in a test: a trainer that is arithmetic, a clock that is a number. */
#ifndef FED_ROUNDS_TESTING_H
#define FED_ROUNDS_TESTING_H

#include "fed/client.h"
#include "fed/server.h"

enum { TESTED_STATISTICS = 3, TESTED_LENGTH = 24, TESTED_HEAD = 4, TESTED_MOST = 32 };

struct federation;

/* Participant i has i + 1 samples; its parameters come nearer to i + 1 with every round: out = x + (i + 1 - x) / 4. */
struct tested {
    struct federation *federation;
    int number;
    char name[FED_NAME];
    struct fed_client *client;
    struct secagg_identity identity;
    uint8_t public_key[SECAGG_PUBLIC];
    uint64_t drawn;
    bool is_silent; /* says nothing */
    bool fails;     /* its training diverges */
    int lost;       /* samples that it has no more */
    int n_lies;     /* so many parameters become `lie` in its training */
    float lie;
    float statistics[TESTED_STATISTICS]; /* that it was told to standardize by */
    /* The blob that was saved last. */
    void *state;
    size_t state_length;
};

struct federation {
    double scale[TESTED_STATISTICS]; /* of everybody's sums over rows; zeros: 1 */
    struct fed_terms terms;
    struct fed_memory_store *store;
    struct fed_server *server;
    struct secagg_trust trust;
    struct tested tested[TESTED_MOST];
    int n;
    bool fails; /* what the coordinator does at the end of a round does */
    double now;
    uint64_t drawn;
};

/* A federation of n participants, all of whom have said hello. Terms may be changed before. */
void federation_terms(struct fed_terms *terms);
void federation_begin(struct federation *federation, const struct fed_terms *terms, int n);
void federation_end(struct federation *federation);

/* The coordinator, or a participant, is killed and begins again from what was saved. */
void federation_restart_server(struct federation *federation);
void federation_restart_client(struct federation *federation, int number);

/* A participant begins again from what it saved; what it says to the coordinator's terms. */
MUST_CHECK enum status federation_come_back(struct federation *federation, int number);
/* Another coordinator, with an empty store, for a federation of this name. Participants must come
 * back. */
void federation_begin_another(struct federation *federation, const char *name);

/* One post of a participant and its reply. Returns the type of that; FED_TYPES: it sleeps, has ended or is silent. */
enum fed_type federation_post(struct federation *federation, int number);
/* Everybody posts once, in turn; then a tick. */
void federation_turn(struct federation *federation);
/* Turns until all rounds are done; fails the test after many. */
void federation_run(struct federation *federation);
void federation_run_for(struct federation *federation, int turns);

/* What parameter x becomes by so many rounds of all n: every participant goes a quarter of its way. */
double rounds_expected(double x, int rounds, int n, bool equal);
/* The coordinator's first one. */
float federation_parameter(const struct federation *federation);
/* How often the audit says it. */
int federation_audited(const struct federation *federation, const char *what);
/* Rounds in whose metrics `what` occurs. */
int federation_metrics(const struct federation *federation, const char *what);

/* A message that a participant did not make, in its name. The answer is valid until the next one. */
void federation_post_as(struct federation *federation, const char *client,
                        const struct fed_message *message, struct fed_message *answer);
/* A participant's message, whose reply is lost. */
MUST_CHECK enum status federation_post_in_vain(struct federation *federation, int number);
/* Rounds until participant 0 has its task of training: the bytes are in `reply`, and not taken yet. */
void federation_reach_training(struct federation *federation, struct fed_buffer *reply,
                               struct fed_message *message);
/* What participant 0 says to a task of training that `lie` has changed. */
MUST_CHECK enum status federation_take_lie(struct federation *federation,
                                           void (*lie)(struct fed_work *work));

#endif /* FED_ROUNDS_TESTING_H */
