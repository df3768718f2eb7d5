/* SPDX-License-Identifier: MIT */
/* secagg_attack_test.c - a coordinator that deviates at random learns no single vector.
 *
 * It announces different tasks, makes rosters, boxes, lists of survivors and lists of
 * signatures as it likes, for each participant its own, and keeps every answer. In the end it
 * takes away all masks it can compute, from sums over every subset of the masked vectors.
 * Nothing that is left may resemble one participant's vector more than an honest sum does.
 *
 * Participants that are announced the second task have vectors of zeros: that is what a
 * coordinator gains by a model of huge weights. */
#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "base/test.h"
#include "fed/secagg_round.h"
#include "fed/secagg_testing.h"

enum { MOST = 6, COUNT = 512, ROUNDS = 200, TASK = 1 << 14 };
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

struct attack {
    struct rng *rng;
    struct secagg_federation federation;
    uint32_t n, threshold;
    struct victim victims[MOST];
    struct fed_buffer task, answer;
    uint8_t context[2][HASH];
};

static bool chance(struct attack *attack, uint32_t percent)
{
    return rng_below(attack->rng, 100) < percent;
}

static void draw_vector(struct attack *attack, struct victim *victim)
{
    for (int k = 0; k < COUNT; k++)
        victim->vector[k] = victim->task ? 0 : (int32_t)rng_below(attack->rng, 2001) - 1000;
}

/* Everybody else is announced the second task, or nobody, or some. */
static void announce(struct attack *attack)
{
    const uint32_t how = (uint32_t)rng_below(attack->rng, 3);
    const uint32_t alone = (uint32_t)rng_below(attack->rng, attack->n);

    for (uint32_t i = 0; i < attack->n; i++) {
        struct secagg_federation *federation = &attack->federation;
        struct secagg_config config = federation->config;
        uint8_t seed[SECAGG_SEED] = { 5, (uint8_t)i };
        struct victim *victim = &attack->victims[i];
        victim->task = how == 0 ? 0 : how == 1 ? i != alone : chance(attack, 50);
        draw_vector(attack, victim);
        config.agreed[0] = (uint8_t)victim->task;
        secagg_context(&config, attack->context[victim->task]);
        secagg_client_destroy(federation->clients[i]);
        CHECK_OK(secagg_client_create(&config, &federation->identities[i], &federation->trust,
                                      seed, &federation->clients[i]));
    }
}

/* True if it answers; a refusal must be one that is meant for what peers send. */
static bool ask(struct attack *attack, uint32_t i, enum secagg_stage stage)
{
    struct victim *victim = &attack->victims[i];

    if (victim->answered != (int)stage)
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
        CHECK(ask(attack, i, SECAGG_KEYS));
        victim->keys_bytes = attack->answer.length;
        memcpy(victim->keys, attack->answer.data, attack->answer.length);
    }
}

/* Members of a set that has i, by a coin each; or, mostly, all of one task, or all. */
static void draw_set(struct attack *attack, uint32_t i, bool *set)
{
    const uint32_t how = (uint32_t)rng_below(attack->rng, 4);

    for (uint32_t j = 0; j < attack->n; j++)
        set[j] = j == i || how == 0 ||
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
            if (victim->roster[j])
                fed_put(&attack->task, attack->victims[j].keys, attack->victims[j].keys_bytes);
        }
        if (chance(attack, 3))
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

    for (uint32_t j = 0; j < attack->n; j++) {
        if (j == from || !victim->roster[j])
            continue;
        if (j == to)
            return victim->answered > SECAGG_SHARES ? victim->shares + at + 4 : NULL;
        at += 4 + BOX;
    }
    return NULL;
}

static void take_masked(struct attack *attack)
{
    const bool drops = chance(attack, 30);

    for (uint32_t i = 0; i < attack->n; i++) {
        struct victim *victim = &attack->victims[i];
        uint32_t n = 0;
        for (uint32_t j = 0; j < attack->n; j++) {
            victim->shared[j] =
                j != i && find_box(attack, j, i) && !(drops && chance(attack, 20));
            n += victim->shared[j];
        }
        fed_buffer_clear(&attack->task);
        fed_put_u32(&attack->task, n);
        for (uint32_t j = 0; j < attack->n; j++) {
            if (!victim->shared[j])
                continue;
            fed_put_u32(&attack->task, attack->federation.numbers[j]);
            fed_put(&attack->task, find_box(attack, j, i), BOX);
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
        lists[0] |= (attack->victims[j].answered > SECAGG_MASKED) << j;
        lists[1] |= chance(attack, 70) << j;
    }
    const bool one_list = chance(attack, 50);
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
    bool signs[MOST];
    uint32_t n = 0;

    fed_buffer_init(&survivors, TASK);
    for (uint32_t j = 0; j < attack->n; j++) {
        const struct victim *other = &attack->victims[j];
        signs[j] = other->answered > SECAGG_CONSISTENCY &&
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
        fed_put(&attack->task, attack->victims[j].signature, SIGNATURE);
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
        const uint8_t *secret = victim->knows_pair  ? victim->pair_secret
                                : other->knows_pair ? other->pair_secret
                                                    : NULL;
        const struct victim *public = victim->knows_pair ? other : victim;
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

static double run_attack(struct rng *rng, uint32_t number, uint32_t *threshold)
{
    static struct attack attack;

    memset(&attack, 0, sizeof attack);
    attack.rng = rng;
    attack.n = 3 + (uint32_t)rng_below(rng, MOST - 2);
    attack.threshold = attack.n / 2 + 1 + (uint32_t)rng_below(rng, attack.n - attack.n / 2);
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
    const double best = best_guess(&attack);
    *threshold = attack.threshold;
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
        uint32_t threshold;
        const double best = run_attack(&rng, number, &threshold);
        if (best > 1 / sqrt(threshold) + SLACK)
            test_fail(__FILE__, __LINE__, "attack %u: %.3f of one vector, threshold %u", number,
                      best, threshold);
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
