/* SPDX-License-Identifier: MIT */
/* secagg.c - what both ends of secure aggregation compute alike: hashes, keys, signatures, sizes.
 *
 * Hashes are BLAKE2b with 32 bytes; each begins with a label of its own, and all that is hashed has a fixed length or comes
 * last. Keys are derived by BLAKE2b keyed with the whole secret. */
#include "fed/secagg_round.h"

#include <sodium.h>
#include <string.h>

#include "fed/start.h"

static const char *const stage_names[SECAGG_STAGES] = {
    [SECAGG_KEYS] = "keys",
    [SECAGG_SHARES] = "shares",
    [SECAGG_MASKED] = "masked vector",
    [SECAGG_CONSISTENCY] = "consistency",
    [SECAGG_UNMASK] = "unmask",
};

const char *secagg_stage_name(enum secagg_stage stage)
{
    return stage_names[stage];
}

/* Settings ------------------------------------------------------------------------------ */

enum status secagg_check(const struct secagg_config *config)
{
    if (config->bits != 32 && config->bits != 64)
        return FAIL(STATUS_USAGE,
                    "secure aggregation with words of %d bits: they have 32 or 64",
                    config->bits);
    if (config->participants < 2 || config->participants > SECAGG_PARTICIPANTS)
        return FAIL(STATUS_USAGE, "secure aggregation of %u participants: it takes 2 to %d",
                    config->participants, SECAGG_PARTICIPANTS);
    if (config->threshold < 2 || config->threshold > config->participants ||
        config->threshold <= config->participants / 2)
        return FAIL(
            STATUS_USAGE,
            "a threshold of %u of %u participants: it is more than half of them, at least "
            "2; two thirds, %u, are usual",
            config->threshold, config->participants,
            secagg_default_threshold(config->participants));
    if (config->count == 0 || config->count > SIZE_MAX / 16)
        return FAIL(STATUS_USAGE, "secure aggregation of vectors of %zu words", config->count);
    return STATUS_OK;
}

uint32_t secagg_default_threshold(uint32_t n)
{
    const uint32_t two_thirds = n - n / 3;

    return two_thirds < 2 ? 2 : two_thirds;
}

size_t secagg_keys_bytes(size_t proof)
{
    return 4 + HASH + 2 * KEY + 4 + proof + SIGNATURE;
}

size_t secagg_answer_bytes(const struct secagg_config *config, enum secagg_stage stage,
                           uint32_t n, size_t proof)
{
    switch (stage) {
    case SECAGG_KEYS:
        return secagg_keys_bytes(proof);
    case SECAGG_SHARES:
        return HASH + 4 + (size_t)(n - 1) * (4 + BOX);
    case SECAGG_MASKED:
        return config->count * (size_t)(config->bits / 8);
    case SECAGG_CONSISTENCY:
        return SIGNATURE;
    default:
        return 4 + (size_t)n * (4 + SHAMIR_SHARE);
    }
}

size_t secagg_task_bytes(const struct secagg_config *config, enum secagg_stage stage,
                         uint32_t n, size_t proof)
{
    (void)config;
    const size_t survivors = 8 + 4 * (size_t)n;

    switch (stage) {
    case SECAGG_KEYS:
        return 12;
    case SECAGG_SHARES:
        return 4 + n * secagg_keys_bytes(proof);
    case SECAGG_MASKED:
        return 4 + (size_t)(n - 1) * (4 + BOX);
    case SECAGG_CONSISTENCY:
        return survivors;
    default:
        return 4 + survivors + 4 + (size_t)n * (4 + SIGNATURE);
    }
}

enum status secagg_peek(const void *task, size_t bytes, uint32_t *participants,
                        uint32_t *threshold)
{
    struct fed_reader reader = fed_reader(task, bytes);

    fed_take_u32(&reader); /* the number */
    const uint32_t most = fed_take_u32(&reader), least = fed_take_u32(&reader);
    TRY(fed_reader_end(&reader, "the task of keys"));
    *participants = most;
    *threshold = least;
    return STATUS_OK;
}

enum status secagg_seed(uint8_t out[SECAGG_SEED])
{
    TRY(fed_start());
    randombytes_buf(out, SECAGG_SEED);
    return STATUS_OK;
}

enum status secagg_identity_make(const uint8_t seed[SECAGG_SEED], uint8_t secret[SECAGG_SECRET],
                                 uint8_t public_key[SECAGG_PUBLIC])
{
    TRY(fed_start());
    if (crypto_sign_seed_keypair(public_key, secret, seed) != 0)
        return FAIL(STATUS_UNSUPPORTED, "no Ed25519 key can be made");
    return STATUS_OK;
}

/* Hashes -------------------------------------------------------------------------------- */

static void begin_hash(crypto_generichash_state *state, const uint8_t *key, const char *label)
{
    crypto_generichash_init(state, key, key ? KEY : 0, HASH);
    crypto_generichash_update(state, (const uint8_t *)label, strlen(label) + 1);
}

static void hash_number(crypto_generichash_state *state, uint64_t number)
{
    uint8_t bytes[8];

    for (int i = 0; i < 8; i++)
        bytes[i] = (uint8_t)(number >> 8 * i);
    crypto_generichash_update(state, bytes, sizeof(bytes));
}

uint32_t secagg_least(const struct secagg_config *config, enum secagg_stage stage)
{
    return stage <= SECAGG_MASKED && config->minimum > config->threshold ? config->minimum
                                                                         : config->threshold;
}

void secagg_context(const struct secagg_config *config, uint8_t out[HASH])
{
    crypto_generichash_state state;

    begin_hash(&state, NULL, "tutti secagg context");
    crypto_generichash_update(&state, config->federation, SECAGG_FEDERATION);
    hash_number(&state, config->round);
    hash_number(&state, config->participants);
    hash_number(&state, config->threshold);
    hash_number(&state, (uint64_t)config->bits);
    hash_number(&state, config->count);
    crypto_generichash_update(&state, config->agreed, SECAGG_AGREED);
    crypto_generichash_final(&state, out, HASH);
}

void secagg_keys_digest(const struct secagg_keys *keys, uint8_t out[HASH])
{
    crypto_generichash_state state;

    begin_hash(&state, NULL, "tutti secagg keys");
    crypto_generichash_update(&state, keys->context, HASH);
    hash_number(&state, keys->number);
    crypto_generichash_update(&state, keys->box, KEY);
    crypto_generichash_update(&state, keys->pair, KEY);
    crypto_generichash_final(&state, out, HASH);
}

void secagg_roster_hash(const uint8_t context[HASH], const void *task, size_t bytes,
                        uint8_t out[HASH])
{
    crypto_generichash_state state;

    begin_hash(&state, NULL, "tutti secagg roster");
    crypto_generichash_update(&state, context, HASH);
    crypto_generichash_update(&state, task, bytes);
    crypto_generichash_final(&state, out, HASH);
}

void secagg_survivors_digest(const uint8_t roster[HASH], const void *task, size_t bytes,
                             uint8_t out[HASH])
{
    crypto_generichash_state state;

    begin_hash(&state, NULL, "tutti secagg survivors");
    crypto_generichash_update(&state, roster, HASH);
    crypto_generichash_update(&state, task, bytes);
    crypto_generichash_final(&state, out, HASH);
}

/* Keyed by a secret: of one participant, or of two. */
static void derive(const char *label, const uint8_t secret[KEY], const uint8_t roster[HASH],
                   uint32_t first, uint32_t second, uint8_t out[KEY])
{
    crypto_generichash_state state;

    begin_hash(&state, secret, label);
    crypto_generichash_update(&state, roster, HASH);
    hash_number(&state, first);
    hash_number(&state, second);
    crypto_generichash_final(&state, out, KEY);
    sodium_memzero(&state, sizeof(state));
}

void secagg_commitment(const uint8_t roster[HASH], uint32_t number,
                       const uint8_t own_seed[SHAMIR_SECRET], uint8_t out[HASH])
{
    derive("tutti secagg commitment", own_seed, roster, number, number, out);
}

/* Keys ---------------------------------------------------------------------------------- */

enum status secagg_keys_usable(const struct secagg_keys *keys)
{
    static const uint8_t any[KEY] = { 9 };
    uint8_t shared[crypto_scalarmult_BYTES];

    if (crypto_scalarmult(shared, any, keys->box) != 0 ||
        crypto_scalarmult(shared, any, keys->pair) != 0)
        return FAIL(STATUS_MISMATCH, "participant %u: a public key of small order",
                    keys->number);
    return STATUS_OK;
}

enum status secagg_shared_key(const char *use, const uint8_t roster[HASH],
                              const uint8_t secret[KEY], const uint8_t public_key[KEY],
                              uint32_t first, uint32_t second, uint8_t out[KEY])
{
    uint8_t shared[crypto_scalarmult_BYTES];

    if (crypto_scalarmult(shared, secret, public_key) != 0)
        return FAIL(STATUS_MISMATCH, "participants %u and %u: a public key of small order",
                    first, second);
    derive(use, shared, roster, first, second, out);
    sodium_memzero(shared, sizeof(shared));
    return STATUS_OK;
}

enum status secagg_pair_mask(const uint8_t roster[HASH], uint32_t number, uint32_t other,
                             const uint8_t secret[KEY], const uint8_t public_key[KEY],
                             struct mask *out)
{
    const uint32_t low = number < other ? number : other, high = number ^ other ^ low;

    TRY(secagg_shared_key("tutti secagg pair mask", roster, secret, public_key, low, high,
                          out->key));
    out->subtract = number != low;
    return STATUS_OK;
}

void secagg_own_mask(const uint8_t roster[HASH], uint32_t number,
                     const uint8_t own_seed[SHAMIR_SECRET], struct mask *out)
{
    derive("tutti secagg own mask", own_seed, roster, number, number, out->key);
    out->subtract = false;
}

enum status secagg_keys_check(const uint8_t context[HASH], const struct secagg_keys *keys,
                              const struct secagg_trust *trust, uint8_t identity[SECAGG_PUBLIC])
{
    uint8_t digest[HASH];

    TRY(trust->identify(trust->context, keys->proof, keys->proof_bytes, identity));
    secagg_keys_digest(keys, digest);
    if (crypto_sign_verify_detached(keys->signature, digest, HASH, identity) != 0)
        return FAIL(STATUS_MISMATCH,
                    "the keys of participant %u are not signed by its identity", keys->number);
    if (memcmp(keys->context, context, HASH) != 0)
        return FAIL(STATUS_MISMATCH,
                    "participant %u has signed its keys for another round or another task of "
                    "training than was announced here: the coordinator replays old keys, or "
                    "announces different models or settings to different participants",
                    keys->number);
    return STATUS_OK;
}

/* Payloads ------------------------------------------------------------------------------ */

void secagg_put_keys(const struct secagg_keys *keys, struct fed_buffer *out)
{
    fed_put_u32(out, keys->number);
    fed_put(out, keys->context, HASH);
    fed_put(out, keys->box, KEY);
    fed_put(out, keys->pair, KEY);
    fed_put_bytes(out, keys->proof, keys->proof_bytes);
    fed_put(out, keys->signature, SIGNATURE);
}

void secagg_take_keys(struct fed_reader *reader, struct secagg_keys *out)
{
    out->number = fed_take_u32(reader);
    out->context = fed_take(reader, HASH);
    out->box = fed_take(reader, KEY);
    out->pair = fed_take(reader, KEY);
    out->proof = fed_take_bytes(reader, &out->proof_bytes);
    out->signature = fed_take(reader, SIGNATURE);
    if (out->number >= NUMBER_END || out->proof_bytes > SECAGG_PROOF)
        reader->failed = true;
}

uint32_t secagg_take_numbers(struct fed_reader *reader, uint32_t most, uint32_t *out)
{
    const uint32_t n = fed_take_u32(reader);

    if (n > most)
        reader->failed = true;
    for (uint32_t i = 0; i < n && !reader->failed; i++) {
        out[i] = fed_take_u32(reader);
        if (out[i] >= NUMBER_END || (i > 0 && out[i] <= out[i - 1]))
            reader->failed = true;
    }
    return reader->failed ? 0 : n;
}
