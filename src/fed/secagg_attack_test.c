/* SPDX-License-Identifier: MIT */
/* secagg_attack_test.c - a coordinator that deviates at random learns no single vector.
 *
 * It announces different tasks, makes rosters, boxes, lists of survivors and lists of
 * signatures as it likes, for each participant its own, and keeps every answer. In the end it
 * takes away all masks it can compute, from sums over every subset of the masked vectors.
 * Nothing that is left may resemble one participant's vector more than an honest sum does.
 *
 * Up to 2 threshold - n - 1 participants collude: they have keys for both tasks, are in every
 * roster, sign every list, and hand out their secrets and both of the shares that they hold.
 *
 * Participants that are announced the second task have vectors of zeros: that is what a
 * coordinator gains by a model of huge weights. */
#include <math.h>
#include <sodium.h>
#include <string.h>

#include "base/rng.h"
#include "base/test.h"
#include "fed/secagg_round.h"
#include "fed/secagg_testing.h"

enum { MOST = 6, COUNT = 512, ROUNDS = 1000, TASK = 1 << 14 };
/* Sums at which the test counts an attack as one that got somewhere. */
static const double SLACK = 0.2;

/* One participant, as the coordinator sees it. */
struct victim {
    int task;     /* 0 or 1: which one it was announced */
    int answered; /* stages */
    int32_t vector[COUNT];
    uint8_t keys[512], shares[4096];
    size_t keys_bytes, shares_bytes;
    bool roster[MOST];  /* that it was told */
    uint8_t hash[HASH]; /* of it */
    bool shared[MOST];  /* whose boxes it got */
    uint32_t masked[COUNT];
    int list; /* of survivors that it signed: alive, a bit a participant */
    uint8_t signature[SIGNATURE];
    bool has_own[MOST], has_pair[MOST]; /* shares that it gave out */
    uint8_t own[MOST][SHAMIR_SHARE], pair[MOST][SHAMIR_SHARE];
    uint8_t own_seed[SHAMIR_SECRET], pair_secret[SHAMIR_SECRET];
    bool knows_own, knows_pair; /* the coordinator put its secrets together */
};

/* Of one that colludes, a task each: what it signs, and its secrets. */
struct colluder {
    uint8_t keys[2][512];
    size_t keys_bytes[2];
    uint8_t box[2][KEY], pair[2][KEY];
};

struct attack {
    struct rng *rng;
    struct secagg_federation federation;
    uint32_t n, threshold, colluding; /* the last ones collude */
    bool is_late;                     /* all is as it should be until the lists of survivors */
    struct colluder colluders[MOST];
    struct victim victims[MOST];
    struct fed_buffer task, answer;
    uint8_t context[2][HASH];
};

static bool chance(struct attack *attack, uint32_t percent)
{
    return rng_below(attack->rng, 100) < percent;
}

static bool colludes(const struct attack *attack, uint32_t i)
{
    return i >= attack->n - attack->colluding;
}

/* Its keys for a task, and what else the coordinator wants to know. */
static void buy_keys(struct attack *attack, uint32_t i, int task)
{
    const struct secagg_federation *federation = &attack->federation;
    struct colluder *colluder = &attack->colluders[i];
    struct secagg_config config = federation->config;
    const uint8_t seed[SECAGG_SEED] = { 6, (uint8_t)i };
    struct secagg_client *client;

    config.agreed[0] = (uint8_t)task;
    CHECK_OK(secagg_client_create(&config, &federation->identities[i], &federation->trust, seed,
                                  &client));
    fed_buffer_clear(&attack->task);
    fed_put_u32(&attack->task, federation->numbers[i]);
    fed_put_u32(&attack->task, attack->n);
    fed_put_u32(&attack->task, attack->threshold);
    fed_buffer_clear(&attack->answer);
    CHECK_OK(secagg_client_answer(client, SECAGG_KEYS, attack->task.data, attack->task.length,
                                  NULL, NULL, &attack->answer));
    colluder->keys_bytes[task] = attack->answer.length;
    memcpy(colluder->keys[task], attack->answer.data, attack->answer.length);
    secagg_client_derive(client, "secagg box", colluder->box[task]);
    secagg_client_derive(client, "secagg pair", colluder->pair[task]);
    secagg_client_destroy(client);
}

/* The keys of j as a participant that was announced `task` gets them. */
static const uint8_t *keys_of(const struct attack *attack, uint32_t j, int task, size_t *bytes)
{
    const struct victim *victim = &attack->victims[j];
    const struct colluder *colluder = &attack->colluders[j];

    *bytes = colludes(attack, j) ? colluder->keys_bytes[task] : victim->keys_bytes;
    return colludes(attack, j) ? colluder->keys[task] : victim->keys;
}

static const char box_use[] = "tutti secagg box";
static const uint8_t box_nonce[crypto_aead_xchacha20poly1305_ietf_NPUBBYTES];

/* Shares of one that colludes are what it likes. */
static void forge_box(const struct attack *attack, uint32_t from, uint32_t to, uint8_t *box)
{
    static const uint8_t plain[2 * SHAMIR_SHARE] = { 1 };
    const struct victim *victim = &attack->victims[to];
    uint8_t key[KEY];

    CHECK_OK(secagg_shared_key(box_use, victim->hash, attack->colluders[from].box[victim->task],
                               victim->keys + 4 + HASH, attack->federation.numbers[from],
                               attack->federation.numbers[to], key));
    crypto_aead_xchacha20poly1305_ietf_encrypt(box, NULL, plain, sizeof plain, victim->hash,
                                               HASH, NULL, box_nonce, key);
}

static void draw_vector(struct attack *attack, struct victim *victim)
{
    for (int k = 0; k < COUNT; k++)
        victim->vector[k] = victim->task ? 0 : (int32_t)rng_below(attack->rng, 2001) - 1000;
}

/* Everybody else is announced the second task, or nobody, or some. */
static void announce(struct attack *attack)
{
    const uint32_t how = attack->is_late ? 0 : (uint32_t)rng_below(attack->rng, 3);
    const uint32_t alone = (uint32_t)rng_below(attack->rng, attack->n - attack->colluding);

    for (int task = 0; task < 2; task++) {
        struct secagg_config config = attack->federation.config;
        config.agreed[0] = (uint8_t)task;
        secagg_context(&config, attack->context[task]);
        for (uint32_t i = attack->n - attack->colluding; i < attack->n; i++)
            buy_keys(attack, i, task);
    }
    for (uint32_t i = 0; i < attack->n - attack->colluding; i++) {
        struct secagg_federation *federation = &attack->federation;
        struct secagg_config config = federation->config;
        uint8_t seed[SECAGG_SEED] = { 5, (uint8_t)i };
        struct victim *victim = &attack->victims[i];
        victim->task = how == 0 ? 0 : how == 1 ? i != alone : chance(attack, 50);
        draw_vector(attack, victim);
        config.agreed[0] = (uint8_t)victim->task;
        secagg_client_destroy(federation->clients[i]);
        CHECK_OK(secagg_client_create(&config, &federation->identities[i], &federation->trust,
                                      seed, &federation->clients[i]));
    }
}

/* True if it answers; a refusal must be one that is meant for what peers send. */
static bool ask(struct attack *attack, uint32_t i, enum secagg_stage stage)
{
    struct victim *victim = &attack->victims[i];

    if (colludes(attack, i) || victim->answered != (int)stage)
        return false;
    fed_buffer_clear(&attack->answer);
    const enum status status = secagg_client_answer(
        attack->federation.clients[i], stage, attack->task.data, attack->task.length,
        stage == SECAGG_MASKED ? (const void *)victim->vector : NULL, NULL, &attack->answer);
    CHECK(status == STATUS_OK || status == STATUS_MISMATCH || status == STATUS_CORRUPT);
    victim->answered += status == STATUS_OK;
    return status == STATUS_OK;
}

static void take_keys(struct attack *attack)
{
    for (uint32_t i = 0; i < attack->n; i++) {
        struct victim *victim = &attack->victims[i];
        fed_buffer_clear(&attack->task);
        fed_put_u32(&attack->task, attack->federation.numbers[i]);
        fed_put_u32(&attack->task, attack->n);
        fed_put_u32(&attack->task, attack->threshold);
        if (colludes(attack, i))
            continue;
        CHECK(ask(attack, i, SECAGG_KEYS));
        victim->keys_bytes = attack->answer.length;
        memcpy(victim->keys, attack->answer.data, attack->answer.length);
    }
}

/* Members of a set that has i, by a coin each; or, mostly, all of one task, or all. */
static void draw_set(struct attack *attack, uint32_t i, bool *set)
{
    const uint32_t how = attack->is_late ? 0 : (uint32_t)rng_below(attack->rng, 4);

    for (uint32_t j = 0; j < attack->n; j++)
        set[j] = j == i || how == 0 || colludes(attack, j) ||
                 (how == 1 ? attack->victims[j].task == attack->victims[i].task
                           : chance(attack, how == 2 ? 85 : 60));
}

static void take_shares(struct attack *attack)
{
    const bool one_roster = chance(attack, 60);
    bool first[MOST];

    draw_set(attack, 0, first);
    for (uint32_t i = 0; i < attack->n; i++) {
        struct victim *victim = &attack->victims[i];
        uint32_t n = 0;
        if (one_roster)
            memcpy(victim->roster, first, sizeof first);
        else
            draw_set(attack, i, victim->roster);
        for (uint32_t j = 0; j < attack->n; j++)
            n += victim->roster[j];
        fed_buffer_clear(&attack->task);
        fed_put_u32(&attack->task, n);
        for (uint32_t j = 0; j < attack->n; j++) {
            size_t bytes;
            const uint8_t *keys = keys_of(attack, j, victim->task, &bytes);
            if (victim->roster[j])
                fed_put(&attack->task, keys, bytes);
        }
        if (!attack->is_late && chance(attack, 3))
            attack->task.data[rng_below(attack->rng, attack->task.length)] ^= 1;
        secagg_roster_hash(attack->context[victim->task], attack->task.data,
                           attack->task.length, victim->hash);
        if (!ask(attack, i, SECAGG_SHARES))
            continue;
        victim->shares_bytes = attack->answer.length;
        memcpy(victim->shares, attack->answer.data, attack->answer.length);
    }
}

/* The box of `from` for `to`; NULL: none. */
static const uint8_t *find_box(const struct attack *attack, uint32_t from, uint32_t to)
{
    const struct victim *victim = &attack->victims[from];
    size_t at = HASH + 4;

    if (victim->answered <= SECAGG_SHARES)
        return NULL;
    for (uint32_t j = 0; j < attack->n; j++) {
        if (j == from || !victim->roster[j])
            continue;
        if (j == to)
            return victim->shares + at + 4;
        at += 4 + BOX;
    }
    return NULL;
}

static void take_masked(struct attack *attack)
{
    const bool drops = !attack->is_late && chance(attack, 30);

    for (uint32_t i = 0; i < attack->n; i++) {
        struct victim *victim = &attack->victims[i];
        uint32_t n = 0;
        if (colludes(attack, i))
            continue;
        for (uint32_t j = 0; j < attack->n; j++) {
            victim->shared[j] =
                j != i &&
                (colludes(attack, j) ? victim->roster[j] : find_box(attack, j, i) != NULL) &&
                !(drops && chance(attack, 20));
            n += victim->shared[j];
        }
        fed_buffer_clear(&attack->task);
        fed_put_u32(&attack->task, n);
        for (uint32_t j = 0; j < attack->n; j++) {
            if (!victim->shared[j])
                continue;
            fed_put_u32(&attack->task, attack->federation.numbers[j]);
            if (colludes(attack, j)) {
                uint8_t box[BOX];
                forge_box(attack, j, i, box);
                fed_put(&attack->task, box, BOX);
            } else {
                fed_put(&attack->task, find_box(attack, j, i), BOX);
            }
        }
        if (ask(attack, i, SECAGG_MASKED))
            memcpy(victim->masked, attack->answer.data, sizeof victim->masked);
    }
}

/* alive, of those whose boxes i has. */
static void put_survivors(struct attack *attack, uint32_t i, int alive)
{
    const struct victim *victim = &attack->victims[i];

    for (int list = 0; list < 2; list++) {
        uint32_t n = 0;
        for (uint32_t j = 0; j < attack->n; j++)
            n += (j == i || victim->shared[j]) && (alive >> j & 1) == !list;
        fed_put_u32(&attack->task, n);
        for (uint32_t j = 0; j < attack->n; j++) {
            if ((j == i || victim->shared[j]) && (alive >> j & 1) == !list)
                fed_put_u32(&attack->task, attack->federation.numbers[j]);
        }
    }
}

static void take_signatures(struct attack *attack)
{
    int lists[2] = { 0, 0 };

    for (uint32_t j = 0; j < attack->n; j++) {
        lists[0] |= (colludes(attack, j) || attack->victims[j].answered > SECAGG_MASKED) << j;
        lists[1] |= chance(attack, 70) << j;
    }
    if (attack->is_late) /* to the rest, one is dead */
        lists[1] = lists[0] & ~(1 << rng_below(attack->rng, attack->n - attack->colluding));
    const bool one_list = !attack->is_late && chance(attack, 50);
    for (uint32_t i = 0; i < attack->n; i++) {
        struct victim *victim = &attack->victims[i];
        victim->list = lists[!one_list && chance(attack, 50)];
        fed_buffer_clear(&attack->task);
        put_survivors(attack, i, victim->list);
        if (ask(attack, i, SECAGG_CONSISTENCY))
            memcpy(victim->signature, attack->answer.data, SIGNATURE);
    }
}

/* Signatures of those that were told the same list; sometimes of others, too. */
static void put_signatures(struct attack *attack, uint32_t i)
{
    const bool any = chance(attack, 20);
    struct fed_buffer survivors;
    uint8_t digest[HASH], signature[SIGNATURE];
    bool signs[MOST];
    uint32_t n = 0;

    fed_buffer_init(&survivors, TASK);
    for (uint32_t j = 0; j < attack->n; j++) {
        const struct victim *other = &attack->victims[j];
        signs[j] = colludes(attack, j)
                       ? attack->victims[i].shared[j] && attack->victims[i].list >> j & 1
                       : other->answered > SECAGG_CONSISTENCY &&
                             (any || other->list == attack->victims[i].list);
        n += signs[j];
    }
    fed_buffer_clear(&attack->task);
    put_survivors(attack, i, attack->victims[i].list);
    fed_put(&survivors, attack->task.data, attack->task.length);
    fed_buffer_clear(&attack->task);
    fed_put_bytes(&attack->task, survivors.data, survivors.length);
    fed_put_u32(&attack->task, n);
    for (uint32_t j = 0; j < attack->n; j++) {
        if (!signs[j])
            continue;
        fed_put_u32(&attack->task, attack->federation.numbers[j]);
        if (colludes(attack, j)) {
            secagg_survivors_digest(attack->victims[i].hash, survivors.data, survivors.length,
                                    digest);
            crypto_sign_detached(signature, NULL, digest, HASH,
                                 attack->federation.identities[j].secret);
        }
        fed_put(&attack->task, colludes(attack, j) ? signature : attack->victims[j].signature,
                SIGNATURE);
    }
    fed_buffer_release(&survivors);
}

static void take_unmasking(struct attack *attack)
{
    for (uint32_t i = 0; i < attack->n; i++) {
        struct victim *victim = &attack->victims[i];
        put_signatures(attack, i);
        if (!ask(attack, i, SECAGG_UNMASK))
            continue;
        struct fed_reader reader = fed_reader(attack->answer.data, attack->answer.length);
        const uint32_t n = fed_take_u32(&reader);
        for (uint32_t k = 0; k < n; k++) {
            const uint32_t number = fed_take_u32(&reader);
            const uint8_t *share = fed_take(&reader, SHAMIR_SHARE);
            for (uint32_t j = 0; j < attack->n; j++) {
                if (attack->federation.numbers[j] != number)
                    continue;
                const bool alive = victim->list >> j & 1;
                memcpy(alive ? victim->own[j] : victim->pair[j], share, SHAMIR_SHARE);
                *(alive ? &victim->has_own[j] : &victim->has_pair[j]) = true;
            }
        }
    }
}

/* Both shares of everybody's secrets that were sealed for those who collude. */
static void buy_shares(struct attack *attack)
{
    for (uint32_t j = attack->n - attack->colluding; j < attack->n; j++) {
        for (uint32_t i = 0; i < attack->n - attack->colluding; i++) {
            const struct victim *victim = &attack->victims[i];
            const uint8_t *box = find_box(attack, i, j);
            uint8_t key[KEY], plain[2 * SHAMIR_SHARE];
            if (!box)
                continue;
            CHECK_OK(secagg_shared_key(box_use, victim->hash,
                                       attack->colluders[j].box[victim->task],
                                       victim->keys + 4 + HASH, attack->federation.numbers[i],
                                       attack->federation.numbers[j], key));
            CHECK_INT(0, crypto_aead_xchacha20poly1305_ietf_decrypt(
                             plain, NULL, NULL, box, BOX, victim->hash, HASH, box_nonce, key));
            memcpy(attack->victims[j].pair[i], plain, SHAMIR_SHARE);
            memcpy(attack->victims[j].own[i], plain + SHAMIR_SHARE, SHAMIR_SHARE);
            attack->victims[j].has_pair[i] = attack->victims[j].has_own[i] = true;
        }
    }
}

/* A secret of j from the shares of any `threshold` holders. */
static bool join_secret(struct attack *attack, uint32_t j, bool own, uint8_t *secret)
{
    uint32_t holders[MOST], n = 0;
    const uint8_t *shares[MOST];
    uint64_t weights[MOST];

    for (uint32_t i = 0; i < attack->n && n < attack->threshold; i++) {
        const struct victim *holder = &attack->victims[i];
        if (!(own ? holder->has_own[j] : holder->has_pair[j]))
            continue;
        shares[n] = own ? holder->own[j] : holder->pair[j];
        holders[n++] = attack->federation.numbers[i];
    }
    if (n < attack->threshold)
        return false;
    shamir_weights(holders, n, weights);
    return shamir_join(shares, weights, n, secret);
}

static void add_mask(const struct mask *mask, uint32_t *words)
{
    mask_add(mask, 1, 32, words, COUNT, NULL);
}

/* Takes all masks of i away that are known and that members of the set do not cancel. */
static void take_masks_away(struct attack *attack, uint32_t i, uint32_t set, uint32_t *words)
{
    const struct victim *victim = &attack->victims[i];
    const uint32_t number = attack->federation.numbers[i];
    struct mask mask;

    if (victim->knows_own) {
        secagg_own_mask(victim->hash, number, victim->own_seed, &mask);
        mask.subtract = true;
        add_mask(&mask, words);
    }
    for (uint32_t j = 0; j < attack->n; j++) {
        const struct victim *other = &attack->victims[j];
        if (!victim->shared[j] || (set >> j & 1 && other->shared[i]))
            continue;
        const uint8_t *secret = colludes(attack, j)  ? attack->colluders[j].pair[victim->task]
                                : victim->knows_pair ? victim->pair_secret
                                : other->knows_pair  ? other->pair_secret
                                                     : NULL;
        const bool of_victim = victim->knows_pair && !colludes(attack, j);
        const struct victim *public = of_victim ? other : victim;
        if (!secret ||
            secagg_pair_mask(victim->hash, number, attack->federation.numbers[j], secret,
                             public->keys + 4 + HASH + KEY, &mask) != STATUS_OK)
            continue;
        mask.subtract = !mask.subtract;
        add_mask(&mask, words);
    }
}

static double correlation(const uint32_t *words, const int32_t *vector)
{
    double product = 0, a = 0, b = 0;

    for (int k = 0; k < COUNT; k++) {
        const double x = (int32_t)words[k], y = vector[k];
        product += x * y, a += x * x, b += y * y;
    }
    return a > 0 && b > 0 ? product / sqrt(a * b) : 0;
}

/* The most that any subset of the masked vectors gives away of one vector. */
static double best_guess(struct attack *attack)
{
    uint32_t masked = 0;
    double best = 0;

    for (uint32_t i = 0; i < attack->n; i++) {
        struct victim *victim = &attack->victims[i];
        masked |= (uint32_t)(victim->answered > SECAGG_MASKED) << i;
        victim->knows_own = join_secret(attack, i, true, victim->own_seed);
        victim->knows_pair = join_secret(attack, i, false, victim->pair_secret);
        CHECK(!(victim->knows_own && victim->knows_pair)); /* never both of one */
    }
    for (uint32_t set = 1; set < 1U << attack->n; set++) {
        uint32_t words[COUNT] = { 0 };
        if ((set & masked) != set)
            continue;
        for (uint32_t i = 0; i < attack->n; i++) {
            if (!(set >> i & 1))
                continue;
            for (int k = 0; k < COUNT; k++)
                words[k] += attack->victims[i].masked[k];
            take_masks_away(attack, i, set, words);
        }
        for (uint32_t i = 0; i < attack->n; i++) {
            const double found = fabs(correlation(words, attack->victims[i].vector));
            best = found > best ? found : best;
        }
    }
    return best;
}

/* Fewer than 2 threshold - n collude, and two of a threshold do not. */
static uint32_t draw_colluding(struct rng *rng, uint32_t n, uint32_t threshold)
{
    const uint32_t bound = 2 * threshold - n;
    const uint32_t most = bound < threshold - 1 ? bound : threshold - 1;

    return rng_below(rng, 2) ? most - 1 : (uint32_t)rng_below(rng, most);
}

/* *honest: so many vectors at least are in a sum that is allowed. */
static double run_attack(struct rng *rng, uint32_t number, uint32_t *honest)
{
    static struct attack attack;

    memset(&attack, 0, sizeof attack);
    attack.rng = rng;
    attack.n = 3 + (uint32_t)rng_below(rng, MOST - 2);
    attack.threshold = attack.n / 2 + 1 + (uint32_t)rng_below(rng, attack.n - attack.n / 2);
    attack.colluding = draw_colluding(rng, attack.n, attack.threshold);
    attack.is_late = chance(&attack, 40);
    fed_buffer_init(&attack.task, TASK);
    fed_buffer_init(&attack.answer, TASK);
    CHECK_OK(secagg_federation_create(attack.n, attack.threshold, 32, COUNT, number,
                                      &attack.federation));
    announce(&attack);
    take_keys(&attack);
    take_shares(&attack);
    take_masked(&attack);
    take_signatures(&attack);
    take_unmasking(&attack);
    buy_shares(&attack);
    const double best = best_guess(&attack);
    *honest = attack.threshold - attack.colluding;
    secagg_federation_destroy(&attack.federation);
    fed_buffer_release(&attack.task);
    fed_buffer_release(&attack.answer);
    return best;
}

static void test_random_deviations_show_no_vector(void)
{
    int sums = 0;
    struct rng rng;

    rng_init(&rng, 26, 1);
    for (uint32_t number = 0; number < ROUNDS; number++) {
        uint32_t honest;
        const double best = run_attack(&rng, number, &honest);
        if (best > 1 / sqrt(honest) + SLACK)
            test_fail(__FILE__, __LINE__, "attack %u: %.3f of one vector, of at least %u",
                      number, best, honest);
        sums += best > 1 / sqrt(MOST) - 0.15;
    }
    CHECK(sums >=
          ROUNDS / 20); /* rounds in which there was a sum: the attack does reach the end */
}

const struct test tests[] = {
    { .name = "random deviations show no single vector",
      .run = test_random_deviations_show_no_vector },
    { 0 },
};
