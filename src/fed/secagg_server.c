/* SPDX-License-Identifier: MIT */
/* secagg_server.c - the coordinator of a round of secure aggregation. It draws no random numbers and keeps no secret: what it
 * knows is what it was told. */
#include <sodium.h>
#include <string.h>

#include "base/mem.h"
#include "fed/secagg_round.h"
#include "fed/start.h"

struct member {
    uint32_t number;
    uint8_t identity[SECAGG_PUBLIC];
    uint8_t pair[KEY];    /* public */
    int answered;         /* stages, from the first */
    uint8_t digest[HASH]; /* of the last answer */
    uint8_t *keys;        /* the answers; owned */
    size_t keys_bytes;
    uint8_t *shares, *unmask;
    uint8_t signature[SIGNATURE];
    uint8_t secret[SHAMIR_SECRET]; /* own mask's seed of the alive, pair secret of the dead */
};

/* A masked vector that is not in the sum yet. */
struct reserved {
    uint32_t number;
    uint8_t *words;
};

struct secagg_server {
    struct secagg_config config;
    struct secagg_trust trust;
    uint8_t context[HASH], roster_hash[HASH];
    enum secagg_stage stage;
    struct member *members; /* by number, ascending; those who dropped out stay */
    uint32_t n, capacity;
    uint8_t *sum;             /* words, from the first masked vector */
    struct reserved *reserve; /* config.reserve of them: the newest vectors, the oldest first */
    uint32_t n_reserve;
    struct fed_buffer roster, survivors, signatures; /* tasks that are the same for all */
};

enum status secagg_server_create(const struct secagg_config *config,
                                 const struct secagg_trust *trust, struct secagg_server **out)
{
    struct secagg_server *server;

    TRY(fed_start());
    TRY(secagg_check(config));
    TRY(mem_alloc(1, sizeof(*server), &server));
    server->config = *config;
    server->trust = *trust;
    secagg_context(config, server->context);
    const enum status status =
        mem_alloc((size_t)config->reserve + 1, sizeof *server->reserve, &server->reserve);
    if (status != STATUS_OK) {
        mem_free(server);
        return status;
    }
    fed_buffer_init(&server->roster, SIZE_MAX / 2);
    fed_buffer_init(&server->survivors, SIZE_MAX / 2);
    fed_buffer_init(&server->signatures, SIZE_MAX / 2);
    *out = server;
    return STATUS_OK;
}

void secagg_server_destroy(struct secagg_server *server)
{
    if (!server)
        return;
    for (uint32_t i = 0; i < server->n; i++) {
        mem_free(server->members[i].keys);
        mem_free(server->members[i].shares);
        mem_free(server->members[i].unmask);
    }
    if (server->members)
        sodium_memzero(server->members, server->n * sizeof(*server->members));
    mem_free(server->members);
    for (uint32_t i = 0; i < server->n_reserve; i++)
        mem_free(server->reserve[i].words);
    mem_free(server->reserve);
    mem_free(server->sum);
    fed_buffer_release(&server->roster);
    fed_buffer_release(&server->survivors);
    fed_buffer_release(&server->signatures);
    mem_free(server);
}

/* Where `number` is, or belongs. */
static uint32_t place_of(const struct secagg_server *server, uint32_t number)
{
    uint32_t low = 0, high = server->n;

    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (server->members[middle].number < number)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static struct member *find_member(const struct secagg_server *server, uint32_t number)
{
    const uint32_t at = place_of(server, number);

    return at < server->n && server->members[at].number == number ? &server->members[at] : NULL;
}

static bool has_answered(const struct member *member, enum secagg_stage stage)
{
    return member->answered > (int)stage;
}

bool secagg_server_has(const struct secagg_server *server, uint32_t client,
                       enum secagg_stage stage)
{
    const struct member *member = find_member(server, client);

    return member && has_answered(member, stage);
}

uint32_t secagg_server_count(const struct secagg_server *server, enum secagg_stage stage)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < server->n; i++)
        count += has_answered(&server->members[i], stage);
    return count;
}

enum secagg_stage secagg_server_stage(const struct secagg_server *server)
{
    return server->stage;
}

static enum status copy_answer(const void *answer, size_t bytes, uint8_t **out)
{
    uint8_t *copy;

    TRY(mem_alloc(bytes, 1, &copy));
    memcpy(copy, answer, bytes);
    *out = copy;
    return STATUS_OK;
}

/* Answers ------------------------------------------------------------------------------- */

static enum status check_stranger(const struct secagg_server *server, uint32_t client,
                                  const uint8_t identity[SECAGG_PUBLIC])
{
    if (server->n == server->config.participants)
        return FAIL(STATUS_MISMATCH, "the round has its %u participants already", server->n);
    for (uint32_t i = 0; i < server->n; i++) {
        if (memcmp(server->members[i].identity, identity, SECAGG_PUBLIC) == 0)
            return FAIL(STATUS_MISMATCH, "participant %u is participant %u already", client,
                        server->members[i].number);
    }
    return STATUS_OK;
}

static enum status insert_member(struct secagg_server *server, const struct member *member)
{
    const uint32_t at = place_of(server, member->number);

    if (server->n == server->capacity) {
        const uint32_t capacity = server->capacity ? 2 * server->capacity : 16;
        TRY(mem_grow(&server->members, server->capacity, capacity, sizeof(*server->members)));
        server->capacity = capacity;
    }
    memmove(&server->members[at + 1], &server->members[at],
            (server->n - at) * sizeof(*server->members));
    server->members[at] = *member;
    server->n++;
    return STATUS_OK;
}

/* The first answer makes a member. */
static enum status hear_keys(struct secagg_server *server, uint32_t client, const void *answer,
                             size_t bytes)
{
    struct fed_reader reader = fed_reader(answer, bytes);
    struct member member = { .number = client, .keys_bytes = bytes, .answered = 1 };
    struct secagg_keys keys;

    secagg_take_keys(&reader, &keys);
    TRY(fed_reader_end(&reader, "a participant's keys"));
    if (keys.number != client)
        return FAIL(STATUS_MISMATCH, "participant %u sent keys of participant %u", client,
                    keys.number);
    TRY(secagg_keys_check(server->context, &keys, &server->trust, member.identity));
    TRY(secagg_keys_usable(&keys));
    TRY(check_stranger(server, client, member.identity));
    memcpy(member.pair, keys.pair, KEY);
    crypto_generichash(member.digest, HASH, answer, bytes, NULL, 0);
    TRY(copy_answer(answer, bytes, &member.keys));
    const enum status status = insert_member(server, &member);
    if (status != STATUS_OK)
        mem_free(member.keys);
    return status;
}

/* A box for everybody else of the roster, in its order. */
static enum status hear_shares(struct secagg_server *server, struct member *member,
                               const void *answer, size_t bytes)
{
    struct fed_reader reader = fed_reader(answer, bytes);

    fed_take(&reader, HASH);
    if (fed_take_u32(&reader) != server->n - 1)
        reader.failed = true;
    for (uint32_t i = 0; i < server->n && !reader.failed; i++) {
        if (&server->members[i] == member)
            continue;
        if (fed_take_u32(&reader) != server->members[i].number)
            reader.failed = true;
        fed_take(&reader, BOX);
    }
    TRY(fed_reader_end(&reader, "a participant's shares"));
    return copy_answer(answer, bytes, &member->shares);
}

static const uint8_t *box_for(const struct secagg_server *server, const struct member *from,
                              const struct member *to)
{
    const size_t i = (size_t)(to - server->members) - (to > from);

    return from->shares + HASH + 4 + i * (4 + BOX) + 4;
}

static enum status add_vector(struct secagg_server *server, const void *words)
{
    if (!server->sum)
        TRY(mem_alloc(server->config.count, (size_t)(server->config.bits / 8), &server->sum));
    mask_sum(server->config.bits, server->sum, words, server->config.count);
    return STATUS_OK;
}

/* Adds the oldest vector of the reserve to the sum. */
static enum status add_oldest(struct secagg_server *server)
{
    uint8_t *words = server->reserve[0].words;

    TRY(add_vector(server, words));
    mem_free(words);
    server->n_reserve--;
    memmove(server->reserve, server->reserve + 1, server->n_reserve * sizeof *server->reserve);
    return STATUS_OK;
}

static enum status hear_masked(struct secagg_server *server, struct member *member,
                               const void *answer, size_t bytes)
{
    const size_t size = server->config.count * (size_t)(server->config.bits / 8);

    uint8_t *copy;

    if (bytes != size)
        return FAIL(STATUS_CORRUPT, "a masked vector of %zu bytes, of %zu", bytes, size);
    if (server->config.reserve == 0)
        return add_vector(server, answer);
    TRY(copy_answer(answer, bytes, &copy));
    if (server->n_reserve == server->config.reserve)
        TRY(add_oldest(server));
    server->reserve[server->n_reserve++] =
        (struct reserved){ .number = member->number, .words = copy };
    return STATUS_OK;
}

bool secagg_server_leave_out(struct secagg_server *server)
{
    if (server->stage != SECAGG_MASKED || server->n_reserve == 0)
        return false;
    const struct reserved *last = &server->reserve[--server->n_reserve];
    find_member(server, last->number)->answered = SECAGG_MASKED;
    mem_free(last->words);
    return true;
}

static enum status hear_signature(struct secagg_server *server, struct member *member,
                                  const void *answer, size_t bytes)
{
    uint8_t digest[HASH];

    if (bytes != SIGNATURE)
        return FAIL(STATUS_CORRUPT, "a signature of %zu bytes", bytes);
    secagg_survivors_digest(server->roster_hash, server->survivors.data,
                            server->survivors.length, digest);
    if (crypto_sign_verify_detached(answer, digest, HASH, member->identity) != 0)
        return FAIL(STATUS_MISMATCH,
                    "the signature of participant %u is not of these survivors",
                    member->number);
    memcpy(member->signature, answer, SIGNATURE);
    return STATUS_OK;
}

static enum status hear_unmask(struct secagg_server *server, struct member *member,
                               const void *answer, size_t bytes)
{
    struct fed_reader reader = fed_reader(answer, bytes);

    if (fed_take_u32(&reader) != secagg_server_count(server, SECAGG_SHARES))
        reader.failed = true;
    for (uint32_t i = 0; i < server->n && !reader.failed; i++) {
        if (!has_answered(&server->members[i], SECAGG_SHARES))
            continue;
        if (fed_take_u32(&reader) != server->members[i].number)
            reader.failed = true;
        const uint8_t *share = fed_take(&reader, SHAMIR_SHARE);
        if (share && !shamir_is_share(share))
            reader.failed = true;
    }
    TRY(fed_reader_end(&reader, "a participant's shares of masks"));
    return copy_answer(answer, bytes, &member->unmask);
}

static enum status (*const hear[SECAGG_STAGES])(struct secagg_server *server,
                                                struct member *member, const void *answer,
                                                size_t bytes) = {
    [SECAGG_SHARES] = hear_shares,
    [SECAGG_MASKED] = hear_masked,
    [SECAGG_CONSISTENCY] = hear_signature,
    [SECAGG_UNMASK] = hear_unmask,
};

enum status secagg_server_hear(struct secagg_server *server, uint32_t client,
                               enum secagg_stage stage, const void *answer, size_t bytes)
{
    struct member *member = find_member(server, client);
    uint8_t digest[HASH];

    if (stage != server->stage)
        return FAIL(STATUS_MISMATCH, "an answer to stage %s comes %s", secagg_stage_name(stage),
                    stage < server->stage ? "too late" : "too early");
    if (!member && stage == SECAGG_KEYS)
        return hear_keys(server, client, answer, bytes);
    if (!member || member->answered < (int)stage)
        return FAIL(STATUS_MISMATCH, "participant %u has dropped out of the round", client);
    crypto_generichash(digest, HASH, answer, bytes, NULL, 0);
    if (member->answered > (int)stage) {
        if (memcmp(digest, member->digest, HASH) == 0)
            return STATUS_OK;
        return FAIL(STATUS_MISMATCH, "participant %u gave another answer to stage %s before",
                    client, secagg_stage_name(stage));
    }
    TRY(hear[stage](server, member, answer, bytes));
    memcpy(member->digest, digest, HASH);
    member->answered++;
    return STATUS_OK;
}

/* Tasks --------------------------------------------------------------------------------- */

/* Those who sent no keys are no members; the roster is all of these. */
static void make_roster(struct secagg_server *server)
{
    fed_put_u32(&server->roster, server->n);
    for (uint32_t i = 0; i < server->n; i++)
        fed_put(&server->roster, server->members[i].keys, server->members[i].keys_bytes);
    secagg_roster_hash(server->context, server->roster.data, server->roster.length,
                       server->roster_hash);
}

static void make_survivors(struct secagg_server *server)
{
    const uint32_t alive = secagg_server_count(server, SECAGG_MASKED);
    const uint32_t shared = secagg_server_count(server, SECAGG_SHARES);

    for (int list = 0; list < 2; list++) { /* the alive, the dead */
        fed_put_u32(&server->survivors, list == 0 ? alive : shared - alive);
        for (uint32_t i = 0; i < server->n; i++) {
            const struct member *member = &server->members[i];
            if (has_answered(member, SECAGG_SHARES) &&
                has_answered(member, SECAGG_MASKED) == (list == 0))
                fed_put_u32(&server->survivors, member->number);
        }
    }
}

static enum status end_vectors(struct secagg_server *server)
{
    while (server->n_reserve > 0)
        TRY(add_oldest(server));
    make_survivors(server);
    return STATUS_OK;
}

static void make_signatures(struct secagg_server *server)
{
    fed_put_bytes(&server->signatures, server->survivors.data, server->survivors.length);
    fed_put_u32(&server->signatures, secagg_server_count(server, SECAGG_CONSISTENCY));
    for (uint32_t i = 0; i < server->n; i++) {
        if (!has_answered(&server->members[i], SECAGG_CONSISTENCY))
            continue;
        fed_put_u32(&server->signatures, server->members[i].number);
        fed_put(&server->signatures, server->members[i].signature, SIGNATURE);
    }
}

enum status secagg_server_close(struct secagg_server *server)
{
    if (server->stage == SECAGG_STAGES)
        return FAIL(STATUS_MISMATCH, "the round has no stage left to close");
    const uint32_t count = secagg_server_count(server, server->stage);
    const uint32_t least = secagg_least(&server->config, server->stage);
    if (count < least)
        return FAIL(STATUS_MISMATCH, "%u participants answered stage %s, of at least %u", count,
                    secagg_stage_name(server->stage), least);
    if (server->stage == SECAGG_KEYS)
        make_roster(server);
    else if (server->stage == SECAGG_MASKED)
        TRY(end_vectors(server));
    else if (server->stage == SECAGG_CONSISTENCY)
        make_signatures(server);
    TRY(fed_buffer_status(&server->roster));
    TRY(fed_buffer_status(&server->survivors));
    TRY(fed_buffer_status(&server->signatures));
    server->stage++;
    return STATUS_OK;
}

static void put_boxes(const struct secagg_server *server, const struct member *member,
                      struct fed_buffer *out)
{
    fed_put_u32(out, secagg_server_count(server, SECAGG_SHARES) - 1);
    for (uint32_t i = 0; i < server->n; i++) {
        const struct member *from = &server->members[i];
        if (from == member || !has_answered(from, SECAGG_SHARES))
            continue;
        fed_put_u32(out, from->number);
        fed_put(out, box_for(server, from, member), BOX);
    }
}

enum status secagg_server_task(const struct secagg_server *server, uint32_t client,
                               struct fed_buffer *out)
{
    const struct member *member = find_member(server, client);

    if (server->stage == SECAGG_KEYS) {
        fed_put_u32(out, client);
        fed_put_u32(out, server->config.participants);
        fed_put_u32(out, server->config.threshold);
        return fed_buffer_status(out);
    }
    if (server->stage == SECAGG_STAGES || !member || member->answered < (int)server->stage)
        return FAIL(STATUS_MISMATCH, "participant %u has no task in this stage", client);
    if (server->stage == SECAGG_SHARES)
        fed_put(out, server->roster.data, server->roster.length);
    else if (server->stage == SECAGG_MASKED)
        put_boxes(server, member, out);
    else if (server->stage == SECAGG_CONSISTENCY)
        fed_put(out, server->survivors.data, server->survivors.length);
    else
        fed_put(out, server->signatures.data, server->signatures.length);
    return fed_buffer_status(out);
}

/* The sum ------------------------------------------------------------------------------- */

/* What is needed to put secrets together. */
struct puzzle {
    const struct member **helpers; /* who answered UNMASK; n of them */
    uint32_t n, threshold;
    uint32_t *holders; /* [threshold]: those in use */
    uint64_t *weights;
    const uint8_t **shares;
};

static void release_puzzle(struct puzzle *puzzle)
{
    mem_free(puzzle->helpers);
    mem_free(puzzle->holders);
    mem_free(puzzle->weights);
    mem_free(puzzle->shares);
}

static enum status make_puzzle(const struct secagg_server *server, struct puzzle *puzzle)
{
    puzzle->threshold = server->config.threshold;
    TRY(mem_alloc(server->n, sizeof(*puzzle->helpers), &puzzle->helpers));
    TRY(mem_alloc(puzzle->threshold, sizeof(*puzzle->holders), &puzzle->holders));
    TRY(mem_alloc(puzzle->threshold, sizeof(*puzzle->weights), &puzzle->weights));
    TRY(mem_alloc(puzzle->threshold, sizeof(*puzzle->shares), &puzzle->shares));
    for (uint32_t i = 0; i < server->n; i++) {
        if (has_answered(&server->members[i], SECAGG_UNMASK))
            puzzle->helpers[puzzle->n++] = &server->members[i];
    }
    return STATUS_OK;
}

/* Is this the secret that the member announced: by its public key, by its commitment? */
static bool is_right_secret(const struct secagg_server *server, const struct member *member)
{
    uint8_t check[KEY];

    if (has_answered(member, SECAGG_MASKED)) {
        secagg_commitment(server->roster_hash, member->number, member->secret, check);
        return memcmp(check, member->shares, HASH) == 0;
    }
    return crypto_scalarmult_base(check, member->secret) == 0 &&
           memcmp(check, member->pair, KEY) == 0;
}

/* All secrets from the shares of `threshold` helpers in turn from `first`. */
static enum status join_secrets(struct secagg_server *server, struct puzzle *puzzle,
                                uint32_t first)
{
    size_t row = 0; /* of those who gave shares */

    for (uint32_t k = 0; k < puzzle->threshold; k++)
        puzzle->holders[k] = puzzle->helpers[(first + k) % puzzle->n]->number;
    shamir_weights(puzzle->holders, puzzle->threshold, puzzle->weights);
    for (uint32_t i = 0; i < server->n; i++) {
        struct member *member = &server->members[i];

        if (!has_answered(member, SECAGG_SHARES))
            continue;
        for (uint32_t k = 0; k < puzzle->threshold; k++)
            puzzle->shares[k] = puzzle->helpers[(first + k) % puzzle->n]->unmask + 4 +
                                row * (4 + SHAMIR_SHARE) + 4;
        if (!shamir_join(puzzle->shares, puzzle->weights, puzzle->threshold, member->secret) ||
            !is_right_secret(server, member))
            return FAIL(
                STATUS_MISMATCH,
                "the shares of participant %u contradict what it committed to: it or one "
                "of those who hold them cheats",
                member->number);
        row++;
    }
    return STATUS_OK;
}

/* Where there are more helpers than are needed, a wrong share is left out by taking others. */
static enum status find_secrets(struct secagg_server *server)
{
    struct puzzle puzzle = { 0 };
    enum status status = make_puzzle(server, &puzzle);

    if (status == STATUS_OK) {
        status = join_secrets(server, &puzzle, 0);
        for (uint32_t first = 1;
             status == STATUS_MISMATCH && puzzle.n > puzzle.threshold && first < puzzle.n;
             first++)
            status = join_secrets(server, &puzzle, first);
    }
    release_puzzle(&puzzle);
    return status;
}

/* Masks that are left in the sum, turned round: the own ones of the alive, and those between the dead and the alive. */
static enum status make_masks(const struct secagg_server *server, struct mask *masks,
                              size_t *out)
{
    size_t n = 0;

    for (uint32_t i = 0; i < server->n; i++) {
        const struct member *member = &server->members[i];

        if (!has_answered(member, SECAGG_SHARES))
            continue;
        if (has_answered(member, SECAGG_MASKED)) {
            secagg_own_mask(server->roster_hash, member->number, member->secret, &masks[n]);
            masks[n++].subtract = true;
            continue;
        }
        for (uint32_t j = 0; j < server->n; j++) {
            const struct member *other = &server->members[j];
            if (!has_answered(other, SECAGG_MASKED))
                continue;
            /* As the dead would have added it: the other one's the other way round. */
            TRY(secagg_pair_mask(server->roster_hash, member->number, other->number,
                                 member->secret, other->pair, &masks[n]));
            n++;
        }
    }
    *out = n;
    return STATUS_OK;
}

enum status secagg_server_sum(struct secagg_server *server, struct pool *pool, void *words)
{
    const size_t alive = secagg_server_count(server, SECAGG_MASKED);
    const size_t dead = secagg_server_count(server, SECAGG_SHARES) - alive;
    struct mask *masks;
    size_t n = 0;

    if (server->stage != SECAGG_STAGES)
        return FAIL(STATUS_MISMATCH, "the sum is asked for in stage %s",
                    secagg_stage_name(server->stage));
    TRY(find_secrets(server));
    TRY(mem_alloc(alive * (1 + dead), sizeof(*masks), &masks));
    const enum status status = make_masks(server, masks, &n);
    if (status == STATUS_OK) {
        memcpy(words, server->sum, server->config.count * (size_t)(server->config.bits / 8));
        mask_add(masks, n, server->config.bits, words, server->config.count, pool);
    }
    mem_free(masks);
    return status;
}
