/* SPDX-License-Identifier: MIT */
/* secagg.h - a sum of participants' vectors that nobody learns anything else of (Bonawitz et
 * al. 2017).
 *
 * Vectors of `count` words are added modulo 2^bits. Each participant adds to its own a mask of
 * its own and one for every pair it belongs to, which cancel in the sum; secrets of masks are
 * shared among all, so that a threshold of them can take away the masks of those who drop out.
 * The coordinator may be malicious: keys are signed by enrolled identities for one round and
 * one task of training, the set of survivors is signed, and nobody ever hands out both secrets
 * of one participant. docs/decisions/0029 has the protocol, docs/secure-aggregation.md the
 * argument and the attacks that it withstands.
 *
 * A round has five stages; each is one task (bytes from the coordinator) and one answer (bytes
 * to it):
 *
 *   stage        task                              answer
 *   KEYS         number, participants, threshold   public keys of the round, signed
 *   SHARES       roster: all keys                  shares of both secrets, sealed for each other
 *   MASKED       boxes: shares for this one        the masked vector
 *   CONSISTENCY  survivors: who gave one           a signature of that set
 *   UNMASK       signatures of a threshold         of the alive: shares of own masks' seeds;
 *                                                  of the dead: shares of pair secrets
 *
 * The coordinator hears answers of a stage until it closes it (secagg_server_close); who has
 * not answered by then has dropped out. A stage that fewer than the threshold answered cannot
 * be closed: the round is lost, and nothing is learned. Both ends are functions of what they
 * were given: a coordinator that starts again hears the same bytes again and is where it was; a
 * participant saves its state before it sends an answer.
 *
 * Threads: one at a time an object; `pool` is used inside a call. Errors: what a peer sent and
 * is refused gives STATUS_CORRUPT (no legal bytes) or STATUS_MISMATCH (legal, but not true or
 * not now), and changes nothing.
 */
#ifndef FED_SECAGG_H
#define FED_SECAGG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/pool.h"
#include "base/status.h"
#include "fed/wire.h"

enum {
    SECAGG_SEED = 32,       /* bytes */
    SECAGG_PUBLIC = 32,     /* of an Ed25519 identity */
    SECAGG_SECRET = 64,     /* the same, as libsodium keeps it: seed, then public key */
    SECAGG_FEDERATION = 32, /* a name of the federation and its terms: a hash */
    SECAGG_AGREED = 32,     /* a hash of what all vectors of a round are made of */
    SECAGG_PROOF = 4096,    /* of an identity, at most */
    SECAGG_PARTICIPANTS =
        1 << 12, /* of a round, at most; a coordinator keeps 100 bytes a pair */
};

enum secagg_stage {
    SECAGG_KEYS,
    SECAGG_SHARES,
    SECAGG_MASKED,
    SECAGG_CONSISTENCY,
    SECAGG_UNMASK,
    SECAGG_STAGES
};
const char *secagg_stage_name(enum secagg_stage stage);

/* What all of a round agree on. It is part of every signature and key: an answer fits no other
 * round. */
struct secagg_config {
    uint8_t federation[SECAGG_FEDERATION];
    uint64_t round;
    uint32_t participants; /* at most so many take part */
    uint32_t
        threshold; /* so many must reach the end: more than half of participants, at least 2 */
    int bits;      /* of a word: 32 or 64 */
    size_t count;  /* words of a vector */
    /* Hash of everything a vector is made from: model, rate, clip, weights' scale, statistics.
     * Keys are signed for it, and masks, shares and boxes derive from it: participants that
     * were told different hashes refuse each other's keys before any of them trains. */
    uint8_t agreed[SECAGG_AGREED];
    /* So many must have given a vector, if that is more than the threshold: each end's own
     * demand, in no signature. */
    uint32_t minimum;
    /* Coordinator: so many masked vectors are kept apart until the stage closes, so that they
     * can be left out (secagg_server_leave_out). Participants do not know. */
    uint32_t reserve;
};
/* STATUS_USAGE with the reason if no round can be like this. */
MUST_CHECK enum status secagg_check(const struct secagg_config *config);
/* Two thirds, rounded up: withstands a coordinator in league with fewer than a third of n
 * participants. */
uint32_t secagg_default_threshold(uint32_t n);
/* What the task of KEYS says, before it is believed: a participant compares it with what it
 * demands, and makes its config of it. */
MUST_CHECK enum status secagg_peek(const void *task, size_t bytes, uint32_t *participants,
                                   uint32_t *threshold);
/* Bytes of the longest answer and the longest task of a stage with n participants whose proofs
 * have up to `proof` bytes: limits for carriers. */
size_t secagg_answer_bytes(const struct secagg_config *config, enum secagg_stage stage,
                           uint32_t n, size_t proof);
size_t secagg_task_bytes(const struct secagg_config *config, enum secagg_stage stage,
                         uint32_t n, size_t proof);

/* Who somebody is. The proof is for others' secagg_trust: a name that they know, or a
 * certificate. */
struct secagg_identity {
    uint8_t secret[SECAGG_SECRET];
    const void *proof; /* borrowed as long as the identity is used */
    size_t proof_bytes;
};
/* An identity's key pair from 32 secret bytes. */
MUST_CHECK enum status secagg_identity_make(const uint8_t seed[SECAGG_SEED],
                                            uint8_t secret[SECAGG_SECRET],
                                            uint8_t public_key[SECAGG_PUBLIC]);

/* Whom to believe: the identity key that `proof` stands for, or a failure if it is nobody
 * enrolled. A participant's own must not depend on anything that the coordinator merely says.
 */
struct secagg_trust {
    enum status (*identify)(void *context, const void *proof, size_t bytes,
                            uint8_t public_key[SECAGG_PUBLIC]);
    void *context;
};

/* A participant ------------------------------------------------------------------------ */

struct secagg_client;

/* For one round. `seed`: 32 fresh secret bytes (secagg_seed), from which all its secrets of the
 * round are made; identity is copied, its proof and the trust's context are borrowed. */
MUST_CHECK enum status secagg_client_create(const struct secagg_config *config,
                                            const struct secagg_identity *identity,
                                            const struct secagg_trust *trust,
                                            const uint8_t seed[SECAGG_SEED],
                                            struct secagg_client **out);
void secagg_client_destroy(struct secagg_client *client); /* NULL is allowed; wipes secrets */

/* Adds the answer to a stage's task to `out`. Stages come in their order. The same task again
 * gives the same answer, another task for a stage that was answered is refused. Refused are
 * also: a roster below the threshold or twice as long, without this participant's keys, with
 * keys that their identity did not sign or identities that the trust does not know; boxes that
 * were not meant for this roster; a set of survivors below the threshold, without this
 * participant, or in which somebody is alive and dead; an unmasking that fewer than the
 * threshold signed.
 *
 * words: for SECAGG_MASKED the vector, count words of 4 or 8 bytes (quantize.h); else NULL. Of
 * one round one vector is masked: another one would show the difference, and is refused
 * (STATUS_MISMATCH). pool may be NULL. */
MUST_CHECK enum status secagg_client_answer(struct secagg_client *client,
                                            enum secagg_stage stage, const void *task,
                                            size_t bytes, const void *words, struct pool *pool,
                                            struct fed_buffer *out);

/* After CONSISTENCY was answered: identity keys of the alive, this participant among them, in
 * the roster's order. ids has room for config.participants. Returns how many. */
uint32_t secagg_client_alive(const struct secagg_client *client, uint8_t (*ids)[SECAGG_PUBLIC]);

/* 32 secret bytes for `use` (a name, at most 16 characters) of this round: seeds of noise and
 * of rounding, so that a vector that is made again after a restart is the same. */
void secagg_client_derive(const struct secagg_client *client, const char *use,
                          uint8_t out[SECAGG_SEED]);

/* What must survive a restart; secret. Save it (mode 0600, whole or not at all) before an
 * answer is sent. */
MUST_CHECK enum status secagg_client_save(const struct secagg_client *client,
                                          struct fed_buffer *out);
/* The participant as it was; config, identity and trust are those it was created with, else
 * STATUS_MISMATCH. */
MUST_CHECK enum status secagg_client_load(const struct secagg_config *config,
                                          const struct secagg_identity *identity,
                                          const struct secagg_trust *trust, const void *state,
                                          size_t bytes, struct secagg_client **out);

/* Fresh secret bytes from the operating system. */
MUST_CHECK enum status secagg_seed(uint8_t out[SECAGG_SEED]);

/* The coordinator ---------------------------------------------------------------------- */

struct secagg_server;

MUST_CHECK enum status secagg_server_create(const struct secagg_config *config,
                                            const struct secagg_trust *trust,
                                            struct secagg_server **out);
void secagg_server_destroy(struct secagg_server *server); /* NULL is allowed */

/* Takes an answer of a participant. Only the open stage's are taken, of those who answered the
 * one before; the same bytes again are taken without effect, others refused. A masked vector is
 * added to the sum and, but for the newest config.reserve ones, not kept. */
MUST_CHECK enum status secagg_server_hear(struct secagg_server *server, uint32_t client,
                                          enum secagg_stage stage, const void *answer,
                                          size_t bytes);
/* Has `client` answered `stage`? How many have? */
bool secagg_server_has(const struct secagg_server *server, uint32_t client,
                       enum secagg_stage stage);
uint32_t secagg_server_count(const struct secagg_server *server, enum secagg_stage stage);

/* Before MASKED is closed: the newest vector in reserve is not summed; its participant counts
 * as dropped out after SHARES. Returns false if the reserve is empty. */
bool secagg_server_leave_out(struct secagg_server *server);

/* The stage whose answers are taken now; SECAGG_STAGES when all are closed. */
enum secagg_stage secagg_server_stage(const struct secagg_server *server);
/* Ends the open stage and opens the next. STATUS_MISMATCH below the threshold: the round is
 * lost. */
MUST_CHECK enum status secagg_server_close(struct secagg_server *server);
/* Adds the open stage's task for `client` to `out`. Only those who answered the stage before
 * have one; of KEYS everybody has, and `client` becomes its number in the round: any below
 * 2^31, one a participant. */
MUST_CHECK enum status secagg_server_task(const struct secagg_server *server, uint32_t client,
                                          struct fed_buffer *out);
/* After UNMASK is closed: takes the masks away. words: count words, the sum modulo 2^bits over
 * those who answered MASKED. Fails (STATUS_MISMATCH) if shares contradict what their owner
 * committed to: the sum is right or there is none. pool may be NULL. */
MUST_CHECK enum status secagg_server_sum(struct secagg_server *server, struct pool *pool,
                                         void *words);

#endif /* FED_SECAGG_H */
