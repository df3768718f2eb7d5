/* SPDX-License-Identifier: MIT */
/* secagg_client.c - a participant of a round of secure aggregation.
 *
 * A stage is accepted (the task is checked, and what it says kept), then answered. All secrets come from the seed, so a
 * participant is its seed and the tasks it accepted: that is what is saved, and loading accepts them again. */
#include <sodium.h>
#include <string.h>

#include "base/mem.h"
#include "fed/secagg_round.h"
#include "fed/start.h"

enum { MAGIC = 0x43534354 /* "TCSC" */ };

/* One of the roster; the participant itself is one, too. */
struct peer {
    uint32_t number;
    uint8_t box[KEY], pair[KEY], identity[SECAGG_PUBLIC]; /* public */
    bool shared;                                          /* its box has come; itself: always */
    bool alive;
    uint8_t pair_share[SHAMIR_SHARE], own_share[SHAMIR_SHARE]; /* of its secrets, held here */
};

struct secagg_client {
    struct secagg_config config;
    struct secagg_identity identity;
    struct secagg_trust trust;
    uint8_t seed[SECAGG_SEED];
    uint8_t context[HASH], roster[HASH];
    int accepted; /* stages */
    uint8_t *tasks[SECAGG_STAGES];
    size_t task_bytes[SECAGG_STAGES];
    uint32_t number;
    uint8_t box_secret[KEY], box_public[KEY], pair_secret[KEY], pair_public[KEY];
    uint8_t own_seed[SHAMIR_SECRET];
    struct peer *peers; /* of the roster, ascending */
    uint32_t n, self;
    uint8_t (*pair_shares)[SHAMIR_SHARE], (*own_shares)[SHAMIR_SHARE]; /* one a peer */
    bool masked;
    uint8_t input[HASH]; /* of the vector that was masked */
};

static struct peer *find_peer(const struct secagg_client *client, uint32_t number)
{
    uint32_t low = 0, high = client->n;

    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (client->peers[middle].number < number)
            low = middle + 1;
        else
            high = middle;
    }
    return low < client->n && client->peers[low].number == number ? &client->peers[low] : NULL;
}

/* Secrets ------------------------------------------------------------------------------- */

void secagg_client_derive(const struct secagg_client *client, const char *use,
                          uint8_t out[SECAGG_SEED])
{
    crypto_generichash_state state;

    crypto_generichash_init(&state, client->seed, SECAGG_SEED, SECAGG_SEED);
    crypto_generichash_update(&state, (const uint8_t *)use, strlen(use) + 1);
    crypto_generichash_update(&state, client->context, HASH);
    crypto_generichash_final(&state, out, SECAGG_SEED);
    sodium_memzero(&state, sizeof(state));
}

static void make_secrets(struct secagg_client *client)
{
    secagg_client_derive(client, "secagg box", client->box_secret);
    secagg_client_derive(client, "secagg pair", client->pair_secret);
    secagg_client_derive(client, "secagg own", client->own_seed);
    crypto_scalarmult_base(client->box_public, client->box_secret);
    crypto_scalarmult_base(client->pair_public, client->pair_secret);
}

enum status secagg_client_create(const struct secagg_config *config,
                                 const struct secagg_identity *identity,
                                 const struct secagg_trust *trust,
                                 const uint8_t seed[SECAGG_SEED], struct secagg_client **out)
{
    struct secagg_client *client;

    TRY(fed_start());
    TRY(secagg_check(config));
    if (identity->proof_bytes > SECAGG_PROOF)
        return FAIL(STATUS_USAGE, "the proof of an identity has %zu bytes, at most are %d",
                    identity->proof_bytes, SECAGG_PROOF);
    TRY(mem_alloc(1, sizeof(*client), &client));
    client->config = *config;
    client->identity = *identity;
    client->trust = *trust;
    memcpy(client->seed, seed, SECAGG_SEED);
    secagg_context(config, client->context);
    make_secrets(client);
    *out = client;
    return STATUS_OK;
}

static void release_roster(struct secagg_client *client)
{
    if (client->peers)
        sodium_memzero(client->peers, client->n * sizeof(*client->peers));
    if (client->pair_shares)
        sodium_memzero(client->pair_shares, client->n * sizeof(*client->pair_shares));
    if (client->own_shares)
        sodium_memzero(client->own_shares, client->n * sizeof(*client->own_shares));
    mem_free(client->peers);
    mem_free(client->pair_shares);
    mem_free(client->own_shares);
    client->peers = NULL;
    client->pair_shares = client->own_shares = NULL;
    client->n = 0;
}

void secagg_client_destroy(struct secagg_client *client)
{
    if (!client)
        return;
    release_roster(client);
    for (int stage = 0; stage < SECAGG_STAGES; stage++)
        mem_free(client->tasks[stage]);
    sodium_memzero(client, sizeof(*client));
    mem_free(client);
}

/* Keys ---------------------------------------------------------------------------------- */

static enum status accept_number(struct secagg_client *client, const void *task, size_t bytes)
{
    struct fed_reader reader = fed_reader(task, bytes);
    const uint32_t number = fed_take_u32(&reader);
    const uint32_t participants = fed_take_u32(&reader), threshold = fed_take_u32(&reader);

    if (number >= NUMBER_END)
        reader.failed = true;
    TRY(fed_reader_end(&reader, "the task of keys"));
    if (participants != client->config.participants || threshold != client->config.threshold)
        return FAIL(STATUS_MISMATCH,
                    "the round is of %u participants with threshold %u, not of %u with %u",
                    participants, threshold, client->config.participants,
                    client->config.threshold);
    client->number = number;
    return STATUS_OK;
}

static enum status answer_keys(struct secagg_client *client, const void *words,
                               struct pool *pool, struct fed_buffer *out)
{
    struct secagg_keys keys = { .number = client->number,
                                .context = client->context,
                                .box = client->box_public,
                                .pair = client->pair_public,
                                .proof = client->identity.proof,
                                .proof_bytes = client->identity.proof_bytes };
    uint8_t digest[HASH], signature[SIGNATURE];

    (void)words;
    (void)pool;
    secagg_keys_digest(&keys, digest);
    crypto_sign_detached(signature, NULL, digest, HASH, client->identity.secret);
    keys.signature = signature;
    secagg_put_keys(&keys, out);
    return fed_buffer_status(out);
}

/* Shares -------------------------------------------------------------------------------- */

static enum status check_distinct(const struct secagg_client *client, uint32_t last)
{
    const struct peer *peer = &client->peers[last];

    for (uint32_t i = 0; i < last; i++) {
        if (memcmp(client->peers[i].identity, peer->identity, SECAGG_PUBLIC) == 0)
            return FAIL(STATUS_MISMATCH, "participants %u and %u of the roster are the same",
                        client->peers[i].number, peer->number);
    }
    return STATUS_OK;
}

static enum status read_roster(struct secagg_client *client, struct fed_reader *reader)
{
    bool here = false;

    for (uint32_t i = 0; i < client->n; i++) {
        struct peer *peer = &client->peers[i];
        struct secagg_keys keys;

        secagg_take_keys(reader, &keys);
        if (reader->failed || (i > 0 && keys.number <= peer[-1].number))
            return FAIL(STATUS_CORRUPT, "the roster is damaged at entry %u", i);
        TRY(secagg_keys_check(client->context, &keys, &client->trust, peer->identity));
        peer->number = keys.number;
        memcpy(peer->box, keys.box, KEY);
        memcpy(peer->pair, keys.pair, KEY);
        TRY(check_distinct(client, i));
        if (keys.number != client->number)
            continue;
        if (memcmp(keys.box, client->box_public, KEY) != 0 ||
            memcmp(keys.pair, client->pair_public, KEY) != 0)
            return FAIL(STATUS_MISMATCH, "the roster has other keys for this participant, %u",
                        client->number);
        client->self = i;
        here = true;
    }
    TRY(fed_reader_end(reader, "the roster"));
    return here ? STATUS_OK
                : FAIL(STATUS_MISMATCH, "the roster is without this participant, %u",
                       client->number);
}

/* Both secrets in shares of all; the own ones stay. */
static enum status split_secrets(struct secagg_client *client)
{
    uint32_t *holders;
    uint8_t key[SECAGG_SEED];
    struct noise noise;

    TRY(mem_alloc(client->n, sizeof(*holders), &holders));
    for (uint32_t i = 0; i < client->n; i++)
        holders[i] = client->peers[i].number;
    secagg_client_derive(client, "secagg shares", key);
    noise_init(&noise, key);
    enum status status = shamir_split(client->pair_secret, client->config.threshold, holders,
                                      client->n, &noise, client->pair_shares);
    if (status == STATUS_OK)
        status = shamir_split(client->own_seed, client->config.threshold, holders, client->n,
                              &noise, client->own_shares);
    noise_release(&noise);
    sodium_memzero(key, sizeof(key));
    mem_free(holders);
    TRY(status);
    struct peer *self = &client->peers[client->self];
    memcpy(self->pair_share, client->pair_shares[client->self], SHAMIR_SHARE);
    memcpy(self->own_share, client->own_shares[client->self], SHAMIR_SHARE);
    self->shared = true;
    return STATUS_OK;
}

static enum status accept_roster(struct secagg_client *client, const void *task, size_t bytes)
{
    struct fed_reader reader = fed_reader(task, bytes);
    const uint32_t n = fed_take_u32(&reader);

    if (n < client->config.threshold || n > client->config.participants)
        return FAIL(STATUS_MISMATCH,
                    "a roster of %u participants: the round has %u to %u of them", n,
                    client->config.threshold, client->config.participants);
    release_roster(client);
    TRY(mem_alloc(n, sizeof(*client->peers), &client->peers));
    client->n = n;
    TRY(mem_alloc(n, SHAMIR_SHARE, &client->pair_shares));
    TRY(mem_alloc(n, SHAMIR_SHARE, &client->own_shares));
    TRY(read_roster(client, &reader));
    secagg_roster_hash(client->context, task, bytes, client->roster);
    return split_secrets(client);
}

static const char box_use[] = "tutti secagg box";
/* A key seals one box: it is of this roster, this pair and this direction. */
static const uint8_t box_nonce[crypto_aead_xchacha20poly1305_ietf_NPUBBYTES];

static enum status seal_box(const struct secagg_client *client, uint32_t i, uint8_t box[BOX])
{
    const struct peer *peer = &client->peers[i];
    uint8_t key[KEY], plain[2 * SHAMIR_SHARE];

    TRY(secagg_shared_key(box_use, client->roster, client->box_secret, peer->box,
                          client->number, peer->number, key));
    memcpy(plain, client->pair_shares[i], SHAMIR_SHARE);
    memcpy(plain + SHAMIR_SHARE, client->own_shares[i], SHAMIR_SHARE);
    crypto_aead_xchacha20poly1305_ietf_encrypt(box, NULL, plain, sizeof(plain), client->roster,
                                               HASH, NULL, box_nonce, key);
    sodium_memzero(key, sizeof(key));
    sodium_memzero(plain, sizeof(plain));
    return STATUS_OK;
}

static enum status open_box(const struct secagg_client *client, struct peer *peer,
                            const uint8_t box[BOX])
{
    uint8_t key[KEY], plain[2 * SHAMIR_SHARE];

    TRY(secagg_shared_key(box_use, client->roster, client->box_secret, peer->box, peer->number,
                          client->number, key));
    const int opened = crypto_aead_xchacha20poly1305_ietf_decrypt(
        plain, NULL, NULL, box, BOX, client->roster, HASH, box_nonce, key);
    sodium_memzero(key, sizeof(key));
    if (opened != 0 || !shamir_is_share(plain) || !shamir_is_share(plain + SHAMIR_SHARE))
        return FAIL(STATUS_MISMATCH,
                    "the shares from participant %u were not made for this roster and this "
                    "participant, %u",
                    peer->number, client->number);
    memcpy(peer->pair_share, plain, SHAMIR_SHARE);
    memcpy(peer->own_share, plain + SHAMIR_SHARE, SHAMIR_SHARE);
    sodium_memzero(plain, sizeof(plain));
    peer->shared = true;
    return STATUS_OK;
}

static enum status answer_shares(struct secagg_client *client, const void *words,
                                 struct pool *pool, struct fed_buffer *out)
{
    uint8_t commitment[HASH];

    (void)words;
    (void)pool;
    secagg_commitment(client->roster, client->number, client->own_seed, commitment);
    fed_put(out, commitment, HASH);
    fed_put_u32(out, client->n - 1);
    for (uint32_t i = 0; i < client->n; i++) {
        uint8_t box[BOX];

        if (i == client->self)
            continue;
        TRY(seal_box(client, i, box));
        fed_put_u32(out, client->peers[i].number);
        fed_put(out, box, BOX);
    }
    return fed_buffer_status(out);
}

/* The masked vector --------------------------------------------------------------------- */

static enum status accept_boxes(struct secagg_client *client, const void *task, size_t bytes)
{
    struct fed_reader reader = fed_reader(task, bytes);
    const uint32_t n = fed_take_u32(&reader);
    uint32_t last = 0;

    if (n + UINT64_C(1) < client->config.threshold || n >= client->n)
        return FAIL(STATUS_MISMATCH,
                    "shares of %u others: there must be %u to %u with this participant's", n,
                    client->config.threshold, client->n);
    for (uint32_t i = 0; i < client->n; i++)
        client->peers[i].shared = i == client->self;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t number = fed_take_u32(&reader);
        const uint8_t *box = fed_take(&reader, BOX);
        struct peer *peer = find_peer(client, number);

        if (!box || (i > 0 && number <= last))
            return FAIL(STATUS_CORRUPT, "the shares of others are damaged at entry %u", i);
        if (!peer || peer->number == client->number)
            return FAIL(STATUS_MISMATCH, "shares from participant %u, who is not in the roster",
                        number);
        TRY(open_box(client, peer, box));
        last = number;
    }
    return fed_reader_end(&reader, "the shares of others");
}

/* One vector a round. */
static enum status check_input(struct secagg_client *client, const void *words)
{
    uint8_t hash[HASH];

    crypto_generichash(hash, HASH, words,
                       client->config.count * (size_t)(client->config.bits / 8), NULL, 0);
    if (client->masked && memcmp(hash, client->input, HASH) != 0)
        return FAIL(STATUS_MISMATCH, "round %llu has masked another vector of this participant",
                    (unsigned long long)client->config.round);
    memcpy(client->input, hash, HASH);
    client->masked = true;
    return STATUS_OK;
}

static enum status make_masks(const struct secagg_client *client, struct mask *masks, size_t *n)
{
    size_t count = 0;

    secagg_own_mask(client->roster, client->number, client->own_seed, &masks[count++]);
    for (uint32_t i = 0; i < client->n; i++) {
        const struct peer *peer = &client->peers[i];
        if (i == client->self || !peer->shared)
            continue;
        TRY(secagg_pair_mask(client->roster, client->number, peer->number, client->pair_secret,
                             peer->pair, &masks[count++]));
    }
    *n = count;
    return STATUS_OK;
}

static enum status answer_masked(struct secagg_client *client, const void *words,
                                 struct pool *pool, struct fed_buffer *out)
{
    const size_t bytes = client->config.count * (size_t)(client->config.bits / 8);
    struct mask *masks;
    size_t n = 0;

    BUG_ON(!words);
    TRY(check_input(client, words));
    TRY(mem_alloc(client->n, sizeof(*masks), &masks));
    enum status status = make_masks(client, masks, &n);
    if (status == STATUS_OK) {
        uint8_t *room = fed_put_room(out, bytes);
        status = fed_buffer_status(out);
        if (status == STATUS_OK) {
            memcpy(room, words, bytes);
            mask_add(masks, n, client->config.bits, room, client->config.count, pool);
        }
    }
    sodium_memzero(masks, client->n * sizeof(*masks));
    mem_free(masks);
    return status;
}

/* Survivors ----------------------------------------------------------------------------- */

/* Everyone whose shares came is in exactly one of two lists. */
static enum status read_survivors(struct secagg_client *client, struct fed_reader *reader,
                                  uint32_t *numbers)
{
    const uint32_t least = secagg_least(&client->config, SECAGG_MASKED);
    uint32_t named = 0, shared = 0;

    for (uint32_t i = 0; i < client->n; i++)
        shared += client->peers[i].shared;
    for (int list = 0; list < 2; list++) { /* the alive, the dead */
        const uint32_t n = secagg_take_numbers(reader, client->n, numbers);
        for (uint32_t i = 0; i < n; i++) {
            struct peer *peer = find_peer(client, numbers[i]);
            if (!peer || !peer->shared)
                return FAIL(STATUS_MISMATCH, "participant %u, who gave no shares, is called %s",
                            numbers[i], list == 0 ? "alive" : "dead");
            if (list == 1 && peer->alive)
                return FAIL(STATUS_MISMATCH, "participant %u is called alive and dead",
                            numbers[i]);
            peer->alive = list == 0;
        }
        named += n;
        if (!reader->failed && list == 0 && n < least)
            return FAIL(STATUS_MISMATCH, "%u participants are called alive, of at least %u", n,
                        least);
    }
    TRY(fed_reader_end(reader, "the set of survivors"));
    if (named != shared)
        return FAIL(STATUS_MISMATCH, "%u participants are called alive or dead, of %u", named,
                    shared);
    if (!client->peers[client->self].alive)
        return FAIL(STATUS_MISMATCH, "this participant, %u, is called dead", client->number);
    return STATUS_OK;
}

static enum status accept_survivors(struct secagg_client *client, const void *task,
                                    size_t bytes)
{
    struct fed_reader reader = fed_reader(task, bytes);
    uint32_t *numbers;

    if (!client->masked)
        return FAIL(STATUS_MISMATCH, "the survivors of a round in which nothing was given");
    for (uint32_t i = 0; i < client->n; i++)
        client->peers[i].alive = false;
    TRY(mem_alloc(client->n, sizeof(*numbers), &numbers));
    const enum status status = read_survivors(client, &reader, numbers);
    mem_free(numbers);
    return status;
}

static enum status answer_signature(struct secagg_client *client, const void *words,
                                    struct pool *pool, struct fed_buffer *out)
{
    uint8_t digest[HASH], signature[SIGNATURE];

    (void)words;
    (void)pool;
    secagg_survivors_digest(client->roster, client->tasks[SECAGG_CONSISTENCY],
                            client->task_bytes[SECAGG_CONSISTENCY], digest);
    crypto_sign_detached(signature, NULL, digest, HASH, client->identity.secret);
    fed_put(out, signature, SIGNATURE);
    return fed_buffer_status(out);
}

uint32_t secagg_client_alive(const struct secagg_client *client, uint8_t (*ids)[SECAGG_PUBLIC])
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < client->n; i++) {
        if (client->peers[i].alive)
            memcpy(ids[n++], client->peers[i].identity, SECAGG_PUBLIC);
    }
    return n;
}

/* Unmasking ----------------------------------------------------------------------------- */

static enum status accept_signatures(struct secagg_client *client, const void *task,
                                     size_t bytes)
{
    struct fed_reader reader = fed_reader(task, bytes);
    size_t survivors_bytes;
    const uint8_t *survivors = fed_take_bytes(&reader, &survivors_bytes);
    const uint32_t n = fed_take_u32(&reader);
    uint8_t digest[HASH];
    uint32_t last = 0;

    if (reader.failed)
        return fed_reader_end(&reader, "the signatures of survivors");
    if (survivors_bytes != client->task_bytes[SECAGG_CONSISTENCY] ||
        memcmp(survivors, client->tasks[SECAGG_CONSISTENCY], survivors_bytes) != 0)
        return FAIL(STATUS_MISMATCH,
                    "asked to unmask another set of survivors than the one that was signed");
    if (n < client->config.threshold || n > client->n)
        return FAIL(STATUS_MISMATCH, "%u have signed the set of survivors, at least %u must", n,
                    client->config.threshold);
    secagg_survivors_digest(client->roster, survivors, survivors_bytes, digest);
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t number = fed_take_u32(&reader);
        const uint8_t *signature = fed_take(&reader, SIGNATURE);
        const struct peer *peer = find_peer(client, number);

        if (!signature || (i > 0 && number <= last))
            return FAIL(STATUS_CORRUPT, "the signatures of survivors are damaged at entry %u",
                        i);
        if (!peer || !peer->alive ||
            crypto_sign_verify_detached(signature, digest, HASH, peer->identity) != 0)
            return FAIL(STATUS_MISMATCH,
                        "the set of survivors is not signed by participant %u, as the "
                        "coordinator claims",
                        number);
        last = number;
    }
    return fed_reader_end(&reader, "the signatures of survivors");
}

static enum status answer_unmask(struct secagg_client *client, const void *words,
                                 struct pool *pool, struct fed_buffer *out)
{
    uint32_t n = 0;

    (void)words;
    (void)pool;
    for (uint32_t i = 0; i < client->n; i++)
        n += client->peers[i].shared;
    fed_put_u32(out, n);
    for (uint32_t i = 0; i < client->n; i++) {
        const struct peer *peer = &client->peers[i];
        if (!peer->shared)
            continue;
        fed_put_u32(out, peer->number);
        fed_put(out, peer->alive ? peer->own_share : peer->pair_share, SHAMIR_SHARE);
    }
    return fed_buffer_status(out);
}

/* Stages -------------------------------------------------------------------------------- */

static const struct {
    enum status (*accept)(struct secagg_client *client, const void *task, size_t bytes);
    enum status (*answer)(struct secagg_client *client, const void *words, struct pool *pool,
                          struct fed_buffer *out);
} stages[SECAGG_STAGES] = {
    [SECAGG_KEYS] = { accept_number, answer_keys },
    [SECAGG_SHARES] = { accept_roster, answer_shares },
    [SECAGG_MASKED] = { accept_boxes, answer_masked },
    [SECAGG_CONSISTENCY] = { accept_survivors, answer_signature },
    [SECAGG_UNMASK] = { accept_signatures, answer_unmask },
};

static enum status accept(struct secagg_client *client, enum secagg_stage stage,
                          const void *task, size_t bytes)
{
    uint8_t *copy;

    TRY(mem_alloc(bytes, 1, &copy));
    if (bytes > 0)
        memcpy(copy, task, bytes);
    const enum status status = stages[stage].accept(client, copy, bytes);
    if (status != STATUS_OK) {
        mem_free(copy);
        return status;
    }
    client->tasks[stage] = copy;
    client->task_bytes[stage] = bytes;
    client->accepted++;
    return STATUS_OK;
}

enum status secagg_client_answer(struct secagg_client *client, enum secagg_stage stage,
                                 const void *task, size_t bytes, const void *words,
                                 struct pool *pool, struct fed_buffer *out)
{
    if ((int)stage > client->accepted)
        return FAIL(STATUS_MISMATCH, "asked for stage %s before %s", secagg_stage_name(stage),
                    secagg_stage_name((enum secagg_stage)client->accepted));
    if ((int)stage == client->accepted)
        TRY(accept(client, stage, task, bytes));
    else if (bytes != client->task_bytes[stage] ||
             (bytes > 0 && memcmp(task, client->tasks[stage], bytes) != 0))
        return FAIL(STATUS_MISMATCH, "asked for stage %s a second time, with another task",
                    secagg_stage_name(stage));
    return stages[stage].answer(client, words, pool, out);
}

/* Restarts ------------------------------------------------------------------------------ */

enum status secagg_client_save(const struct secagg_client *client, struct fed_buffer *out)
{
    fed_put_u32(out, MAGIC);
    fed_put(out, client->context, HASH);
    fed_put(out, client->seed, SECAGG_SEED);
    fed_put_u8(out, client->masked);
    fed_put(out, client->input, HASH);
    fed_put_u8(out, (uint8_t)client->accepted);
    for (int stage = 0; stage < client->accepted; stage++)
        fed_put_bytes(out, client->tasks[stage], client->task_bytes[stage]);
    return fed_buffer_status(out);
}

static enum status accept_again(struct secagg_client *client, struct fed_reader *reader)
{
    const uint8_t stages_done = fed_take_u8(reader);

    if (stages_done > SECAGG_STAGES)
        reader->failed = true;
    for (int stage = 0; stage < stages_done && !reader->failed; stage++) {
        size_t bytes;
        const uint8_t *task = fed_take_bytes(reader, &bytes);
        if (task)
            TRY(accept(client, (enum secagg_stage)stage, task, bytes));
    }
    return fed_reader_end(reader, "a participant's state of secure aggregation");
}

enum status secagg_client_load(const struct secagg_config *config,
                               const struct secagg_identity *identity,
                               const struct secagg_trust *trust, const void *state,
                               size_t bytes, struct secagg_client **out)
{
    struct fed_reader reader = fed_reader(state, bytes);
    const uint32_t magic = fed_take_u32(&reader);
    const uint8_t *context = fed_take(&reader, HASH), *seed = fed_take(&reader, SECAGG_SEED);
    const uint8_t masked = fed_take_u8(&reader);
    const uint8_t *input = fed_take(&reader, HASH);
    struct secagg_client *client;

    if (!input || magic != MAGIC || masked > 1)
        return FAIL(STATUS_CORRUPT, "this is no state of secure aggregation");
    TRY(secagg_client_create(config, identity, trust, seed, &client));
    if (memcmp(context, client->context, HASH) != 0) {
        secagg_client_destroy(client);
        return FAIL(STATUS_MISMATCH, "the state of secure aggregation is of another round");
    }
    client->masked = masked;
    memcpy(client->input, input, HASH);
    const enum status status = accept_again(client, &reader);
    if (status != STATUS_OK) {
        secagg_client_destroy(client);
        return status;
    }
    *out = client;
    return STATUS_OK;
}
