/* SPDX-License-Identifier: MIT */
/* message.h - what coordinator and participants say to each other.
 *
 * A participant always asks: it posts one message and gets one reply. Carriers (HTTPS, function calls of a
 * simulation) move bytes and know nothing of what is in them but fed_message_peek.
 *
 *   hello{client, samples, about}  -> terms{JSON} | refused{why}
 *   ask{client}                    -> wait{seconds} | task{round, stage, payload} | done{payload: the last task}
 *   give{client, round, stage, payload} -> ok | refused{why}
 *
 * On the wire: "tfed", version (u8), type (u8), then the fields that the type has in the order of struct
 * fed_message (wire.h). Whatever comes is checked: unknown types, missing and trailing bytes, names with other
 * characters than letters, digits, '.', '-' and '_', numbers out of range are refused (fuzzed: fuzz_fed).
 */
#ifndef FED_MESSAGE_H
#define FED_MESSAGE_H

#include <stdint.h>

#include "base/status.h"
#include "comm/codec.h"
#include "fed/wire.h"

enum { FED_NAME = 64, FED_WHY = 256, FED_ABOUT = 1 << 16 };

enum fed_type {
    FED_HELLO = 1,
    FED_TERMS,
    FED_ASK,
    FED_WAIT,
    FED_TASK,
    FED_DONE,
    FED_GIVE,
    FED_OK,
    FED_REFUSED,
    FED_TYPES
};

/* Stages of a round, in their order. A plain round has train alone. */
enum fed_stage {
    FED_KEYS,        /* give: signed public keys */
    FED_SHARES,      /* task: all keys; give: sealed shares for the others */
    FED_TRAIN,       /* task: parameters (and sealed shares); give: update, or masked vector */
    FED_CONSISTENCY, /* task: who has given; give: signature over that */
    FED_UNMASK,      /* task: signatures; give: shares of what is to be removed */
    FED_STAGES
};

struct fed_message {
    enum fed_type type;
    char client[FED_NAME]; /* HELLO, ASK, GIVE: who says it */
    uint64_t samples;      /* HELLO: for training */
    int64_t round;         /* TASK, GIVE: from 0 */
    enum fed_stage stage;  /* TASK, GIVE */
    double seconds;        /* WAIT */
    char why[FED_WHY];     /* REFUSED */
    const uint8_t *
        payload; /* borrowed. HELLO: what the data look like, JSON; TERMS: JSON; TASK, DONE, GIVE */
    size_t payload_length;
};

/* Appends the message. */
void fed_message_write(const struct fed_message *message, struct fed_buffer *out);
/* out->payload points into `data`. STATUS_CORRUPT says what is wrong. */
MUST_CHECK enum status fed_message_read(const void *data, size_t length,
                                        struct fed_message *out);

/* Is this a name that may stand for a participant? */
bool fed_name_is_good(const char *name);
const char *fed_type_name(enum fed_type type);
const char *fed_stage_name(enum fed_stage stage);

/* Payloads of the stage train of a plain round, and what all rounds tell with them. ------------------- */

/* Numbers of a participant that go with its update, in the clear. */
struct fed_tally {
    uint64_t samples;           /* by which its update counts */
    uint64_t steps;             /* local */
    double loss, correct, seen; /* training: loss added up over samples, right ones, samples */
    double val_loss, val_correct,
        val_seen; /* the parameters received, on local validation data */
};

/* Vectors a task or a give may have beside the first. */
enum { FED_VECTORS = 2 };

/* A task: vector 0 are the parameters (terms.h: the flat vector), 1 is SCAFFOLD's server control variate. */
struct fed_work {
    uint64_t seed; /* of the round */
    double lr;     /* of this round's local steps */
    double clip;   /* of updates, with differential privacy; 0: none */
    uint64_t
        whole; /* samples of all that take part, where it is a gradient that is asked for; else 0 */
    uint64_t
        most; /* samples of the one that has most: what weights of a secure round are shares of */
    int n_vectors;
    float *vector[FED_VECTORS]; /* `length` each; borrowed from who reads */
    size_t length;
    bool asks_statistics; /* no training: sums over rows are asked for; there are no vectors */
    /* That tables are standardized by; where sums over rows are asked for in a secure round, their ranges, or none: then
     * ranges are asked for (secure.h). Borrowed from who reads. */
    float *statistics;
    size_t n_statistics;   /* 0: none */
    const uint8_t *secure; /* secagg's task of this stage; NULL: a plain round */
    size_t secure_length;
};

void fed_work_write(const struct fed_work *work, struct fed_buffer *out);
/* The vectors are allocated: fed_work_release. `length` is what each must have. */
MUST_CHECK enum status fed_work_read(const void *data, size_t bytes, size_t length,
                                     struct fed_work *out);
void fed_work_release(struct fed_work *work);

/* What a participant gives: vector 0 is its update (new - received parameters) or its gradient, 1 the change of its
 * control variate (SCAFFOLD). */
struct fed_update {
    struct fed_tally tally;
    int n_vectors;
    float *vector[FED_VECTORS]; /* `length` each */
    size_t length;
};

/* codec: of vector 0, whose error it keeps; NULL: as it is. */
MUST_CHECK enum status fed_update_write(const struct fed_update *update,
                                        struct codec_state *codec, struct fed_buffer *out);
/* Allocates the vectors: fed_update_release. `codec` as it was written with, of the same length; `length` and
 * `n_vectors` are what there must be. */
MUST_CHECK enum status fed_update_read(const void *data, size_t bytes,
                                       struct codec_state *codec, size_t length, int n_vectors,
                                       struct fed_update *out);
void fed_update_release(struct fed_update *update);

#endif /* FED_MESSAGE_H */
