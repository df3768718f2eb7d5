/* SPDX-License-Identifier: MIT */
/* secagg_round.h - private: what both ends of secure aggregation compute alike.
 *
 * Everything is bound to the round: `context` hashes the config; `roster` hashes the context and the keys of all that take part,
 * and goes into every key, signature and box after the first stage. So two participants whom the coordinator told
 * different rosters can neither read each other's boxes nor cancel each other's masks.
 *
 * Payloads (little-endian, wire.h; lists ascend by number):
 *   keys       number, context, box key, pair key, proof (length, bytes), signature
 *   roster     n, keys...
 *   shares     commitment, n, (number, box)...             box: share of the pair secret, share of the own mask's seed, sealed
 *   boxes      n, (number, box)...
 *   masked     count words
 *   survivors  n, number..., n, number...                  alive, dead
 *   signed     signature
 *   signatures survivors (length, bytes), n, (number, signature)...
 *   unmask     n, (number, share)...                       of the own mask's seed of the alive, of the pair secret of the dead
 */
#ifndef FED_SECAGG_ROUND_H
#define FED_SECAGG_ROUND_H

#include "fed/mask.h"
#include "fed/secagg.h"
#include "fed/shamir.h"

enum {
    HASH = 32,
    KEY = 32,
    SIGNATURE = 64,
    TAG = 16,
    BOX = 2 * SHAMIR_SHARE + TAG,
    NUMBER_END = INT32_MAX, /* above all numbers of participants */
};

/* Keys of a participant, signed. Pointers into the payload they came in. */
struct secagg_keys {
    uint32_t number;
    const uint8_t *context;    /* HASH bytes: the round and task that the signer was told */
    const uint8_t *box, *pair; /* public: KEY bytes each */
    const uint8_t *proof;
    size_t proof_bytes;
    const uint8_t *signature;
};

void secagg_put_keys(const struct secagg_keys *keys, struct fed_buffer *out);
/* A reader that fails has failed; the number is legal otherwise. */
void secagg_take_keys(struct fed_reader *reader, struct secagg_keys *out);
/* Bytes of keys with such a proof. */
size_t secagg_keys_bytes(size_t proof);

void secagg_context(const struct secagg_config *config, uint8_t out[HASH]);
/* What the identity signs. */
void secagg_keys_digest(const struct secagg_keys *keys, uint8_t out[HASH]);
/* The key of the identity that signed them for `context`. STATUS_MISMATCH if the signature is not that of the identity in
 * the proof, or is good for another context: then the signer was told another round or task. */
MUST_CHECK enum status secagg_keys_check(const uint8_t context[HASH],
                                         const struct secagg_keys *keys,
                                         const struct secagg_trust *trust,
                                         uint8_t identity[SECAGG_PUBLIC]);
/* STATUS_MISMATCH: one of them is of small order, so that nobody can agree on a key with it. */
MUST_CHECK enum status secagg_keys_usable(const struct secagg_keys *keys);
void secagg_roster_hash(const uint8_t context[HASH], const void *task, size_t bytes,
                        uint8_t out[HASH]);
/* Survivors sign the roster, and who of it is alive. */
void secagg_survivors_digest(const uint8_t roster[HASH], const void *task, size_t bytes,
                             uint8_t out[HASH]);
void secagg_commitment(const uint8_t roster[HASH], uint32_t number,
                       const uint8_t own_seed[SHAMIR_SECRET], uint8_t out[HASH]);

/* The key between two participants for `use`, from one's secret and the other's public key. For masks the smaller number is
 * `first`, for boxes the sender. STATUS_MISMATCH if the public key is of small order. */
MUST_CHECK enum status secagg_shared_key(const char *use, const uint8_t roster[HASH],
                                         const uint8_t secret[KEY],
                                         const uint8_t public_key[KEY], uint32_t first,
                                         uint32_t second, uint8_t out[KEY]);
/* The mask of the pair {number, other} as `number` adds it. */
MUST_CHECK enum status secagg_pair_mask(const uint8_t roster[HASH], uint32_t number,
                                        uint32_t other, const uint8_t secret[KEY],
                                        const uint8_t public_key[KEY], struct mask *out);
/* The own mask of a participant, as it adds it. */
void secagg_own_mask(const uint8_t roster[HASH], uint32_t number,
                     const uint8_t own_seed[SHAMIR_SECRET], struct mask *out);

/* So many must answer a stage for it to be closed: up to the vectors the minimum counts, then the threshold alone. */
uint32_t secagg_least(const struct secagg_config *config, enum secagg_stage stage);

/* Reads n and n numbers that ascend, at most `most` of them; out[most]. Returns n; fails the reader otherwise. */
uint32_t secagg_take_numbers(struct fed_reader *reader, uint32_t most, uint32_t *out);

#endif /* FED_SECAGG_ROUND_H */
