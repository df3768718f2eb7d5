/* SPDX-License-Identifier: MIT */
/* client_state.h - what a participant's engine is made of. Private to fed/client*.c. */
#ifndef FED_CLIENT_STATE_H
#define FED_CLIENT_STATE_H

#include "comm/codec.h"
#include "fed/algorithm.h"
#include "fed/client.h"
#include "fed/cohorts.h"
#include "fed/secure.h"

enum client_phase { PHASE_HELLO, PHASE_ASK, PHASE_GIVE, PHASE_SLEEP, PHASE_END };

struct fed_client {
    struct fed_client_config config;
    enum client_phase phase;
    double seconds; /* to sleep */
    bool has_terms;
    struct fed_terms terms;
    uint8_t terms_hash[32];
    struct fed_trainer trainer;
    const struct fed_algorithm *algorithm;
    size_t length;     /* of the vector that crosses: without a personal head */
    float *parameters; /* as they came, with the own head */
    float *head;       /* NULL: not personal, or not trained yet */
    float *control,
        *new_control; /* SCAFFOLD's c_i, and what it becomes if the update under way is taken */
    struct codec_state *codec;
    float *old_error;    /* of the codec, before the update that is under way; NULL: none is */
    int64_t round;       /* of the last task; -1: none */
    int64_t taken_round; /* of the last update that was taken; -1: none */
    uint64_t given;      /* updates, taken or not */
    struct fed_tally tally;
    float *statistics;         /* that the data are standardized by; NULL: not yet */
    struct fed_buffer message; /* that is given until a reply came; empty: none */
    struct fed_buffer small;   /* hello, ask */

    /* Secure rounds. */
    struct secagg_client *secagg; /* NULL: none yet */
    struct secure_shape shape;
    int64_t secure_round; /* that it is of */
    uint32_t secure_participants;
    uint8_t
        secure_agreed[SECAGG_AGREED]; /* hash of the round's task, as the keys announced it */
    int64_t left_round;               /* that it gave up, and answers no more; -1: none */
    enum secure_asks secure_asks;     /* what the round is about */
    struct cohorts *cohorts;          /* sets of participants whose sums this one has signed */
    struct fed_buffer task_hashes; /* SECAGG_AGREED bytes a task that a vector was masked for */
};

/* client.c: sums over rows as an update. */
MUST_CHECK enum status client_sum_rows(struct fed_client *client, struct fed_update *out);
/* Standardizes the data by the task's statistics, or refuses others than before. */
MUST_CHECK enum status client_standardize(struct fed_client *client,
                                          const struct fed_work *work);
/* Local training; the vectors of *out are allocated. */
MUST_CHECK enum status client_make_update(struct fed_client *client,
                                          const struct fed_work *work, struct fed_update *out);

/* client_secure.c: the shape of secure_round's vector. */
MUST_CHECK enum status client_secure_shape(struct fed_client *client);
/* The answer to a task of another stage than train. */
MUST_CHECK enum status client_secure_answer(struct fed_client *client,
                                            const struct fed_message *message,
                                            struct fed_buffer *out);
/* Trains, and masks. */
MUST_CHECK enum status client_secure_train(struct fed_client *client, int64_t round,
                                           const struct fed_work *work, struct fed_buffer *out);

#endif /* FED_CLIENT_STATE_H */
