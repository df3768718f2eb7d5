/* SPDX-License-Identifier: MIT */
/* secagg_lies_test.c - a coordinator whose lies are refused, and participants whose nonsense is noticed. */
#include <sodium.h>
#include <string.h>

#include "base/mem.h"
#include "base/test.h"
#include "fed/secagg_round.h"
#include "fed/secagg_round_testing.h"

/* Lies of the coordinator ------------------------------------------------------------------ */

/* Participant 0 refuses what round.task has become, then takes the right one. */
static void check_refused(struct round *round, const char *because)
{
    CHECK_STATUS(STATUS_MISMATCH, round_answer(round, 0));
    CHECK_MESSAGE(because);
    round_get_task(round, 0);
    CHECK_OK(round_answer(round, 0));
}

/* The place of participant i's keys in a roster; proofs have 4 bytes. */
static uint8_t *keys_in(struct round *round, uint32_t i)
{
    return round->task.data + 4 + i * secagg_keys_bytes(4);
}

static void test_a_substituted_key_is_refused(void)
{
    struct round round;

    round_begin(&round, 5, 4, 32, 4, 1);
    round_run_stages(&round, 1);
    for (uint32_t offset = 4; offset < 4 + 2 * KEY; offset += KEY) { /* box key, pair key */
        round_get_task(&round, 0);
        memset(keys_in(&round, 2) + HASH + offset, 9, KEY);
        check_refused(&round, "not signed by its identity");
        round_end(&round);
        round_begin(&round, 5, 4, 32, 4, 1);
        round_run_stages(&round, 1);
    }
    /* Signed, but by an identity that the coordinator made up. */
    round_get_task(&round, 0);
    memset(keys_in(&round, 2) + 4 + HASH + 2 * KEY + 4, 250, 4);
    check_refused(&round, "nobody is called");
    round_end(&round);
}

/* Keys that were signed for another round. */
static void test_keys_of_another_round_are_refused(void)
{
    struct round old, round;

    round_begin(&old, 5, 4, 32, 4, 1);
    round_begin(&round, 5, 4, 32, 4, 2);
    memcpy(round.federation.public_keys, old.federation.public_keys,
           sizeof(old.federation.public_keys));
    /* The same identities; only the round differs. */
    for (uint32_t i = 0; i < 5; i++) {
        const uint8_t seed[SECAGG_SEED] = { 3, (uint8_t)i };
        secagg_client_destroy(round.federation.clients[i]);
        CHECK_OK(secagg_client_create(&round.federation.config, &old.federation.identities[i],
                                      &round.federation.trust, seed,
                                      &round.federation.clients[i]));
    }
    round_run_stages(&old, 1);
    round_run_stages(&round, 1);
    round_get_task(&old, 0);
    round_get_task(&round, 0);
    const size_t bytes = secagg_keys_bytes(4);
    memcpy(keys_in(&round, 3), keys_in(&old, 3), bytes);
    check_refused(&round, "replays old keys");
    /* A whole roster of the other round. */
    round_get_task(&round, 1);
    CHECK_STATUS(STATUS_MISMATCH,
                 secagg_client_answer(round.federation.clients[1], SECAGG_SHARES, old.task.data,
                                      old.task.length, NULL, NULL, &round.answer));
    round_end(&old);
    round_end(&round);
}

static void test_a_short_or_foreign_roster_is_refused(void)
{
    const size_t bytes = secagg_keys_bytes(4);
    struct round round;

    round_begin(&round, 5, 4, 32, 4, 1);
    round_run_stages(&round, 1);
    /* Three are below the threshold. */
    round_get_task(&round, 0);
    round.task.data[0] = 3;
    round.task.length = 4 + 3 * bytes;
    CHECK_STATUS(STATUS_MISMATCH, round_answer(&round, 0));
    CHECK_MESSAGE("a roster of 3");
    /* Four without participant 0. */
    round_get_task(&round, 0);
    round.task.data[0] = 4;
    memmove(keys_in(&round, 0), keys_in(&round, 1), 4 * bytes);
    round.task.length = 4 + 4 * bytes;
    CHECK_STATUS(STATUS_MISMATCH, round_answer(&round, 0));
    CHECK_MESSAGE("without this participant");
    /* One of them twice. */
    round_get_task(&round, 0);
    memcpy(keys_in(&round, 2), keys_in(&round, 1), bytes);
    CHECK_STATUS(STATUS_CORRUPT, round_answer(&round, 0));
    round_get_task(&round, 0);
    round.task.length--;
    CHECK_STATUS(STATUS_CORRUPT, round_answer(&round, 0));
    round_get_task(&round, 0);
    CHECK_OK(round_answer(&round, 0));
    /* Afterwards another, also a right one, is not answered. */
    round.task.data[0] = 4;
    round.task.length = 4 + 4 * bytes;
    CHECK_STATUS(STATUS_MISMATCH, round_answer(&round, 0));
    CHECK_MESSAGE("with another task");
    round_end(&round);
}

/* One enrolled identity under two numbers would let the coordinator fill a roster with friends of its own. */
static void test_nobody_takes_part_twice(void)
{
    static const uint8_t seed[SECAGG_SEED] = { 77 };
    struct secagg_client *second;
    struct round round;

    round_begin(&round, 5, 4, 32, 4, 1);
    struct secagg_federation *federation = &round.federation;
    CHECK_OK(secagg_client_create(&federation->config, &federation->identities[1],
                                  &federation->trust, seed, &second));
    round_get_task(&round, 2);
    CHECK_OK(secagg_client_answer(second, SECAGG_KEYS, round.task.data, round.task.length, NULL,
                                  NULL, &round.answer));
    uint8_t *keys;
    const size_t bytes = round.answer.length;
    CHECK_OK(mem_alloc(bytes, 1, &keys));
    memcpy(keys, round.answer.data, bytes);
    round_get_task(&round, 1);
    CHECK_OK(round_answer(&round, 1));
    CHECK_OK(round_hear(&round, 1));
    CHECK_STATUS(STATUS_MISMATCH, secagg_server_hear(federation->server, federation->numbers[2],
                                                     SECAGG_KEYS, keys, bytes));
    CHECK_MESSAGE("is participant 4 already");
    round_run_stages(&round, 1);
    round_get_task(&round, 0);
    memcpy(keys_in(&round, 2), keys, bytes);
    check_refused(&round, "are the same");
    mem_free(keys);
    secagg_client_destroy(second);
    round_end(&round);
}

/* Two halves are told different rosters, each with a threshold of true keys: they cannot read each other's boxes. */
static void test_different_rosters_are_found_out(void)
{
    const size_t bytes = secagg_keys_bytes(4);
    struct round round;
    struct fed_buffer boxes;

    round_begin(&round, 5, 4, 32, 4, 1);
    round_run_stages(&round, 1);
    fed_buffer_init(&boxes, 1 << 16);
    fed_put_u32(&boxes, 3);
    for (uint32_t i = 1; i < 4; i++) { /* 1, 2, 3 answer to the roster of all */
        round_get_task(&round, i);
        CHECK_OK(round_answer(&round, i));
        fed_put_u32(&boxes, round.federation.numbers[i]);
        fed_put(&boxes, round.answer.data + HASH + 4 + 4, BOX); /* their first is for 0 */
    }
    round_get_task(&round, 0);
    round.task.data[0] = 4; /* 0 hears of four */
    round.task.length = 4 + 4 * bytes;
    CHECK_OK(round_answer(&round, 0));
    CHECK_STATUS(STATUS_MISMATCH,
                 secagg_client_answer(round.federation.clients[0], SECAGG_MASKED, boxes.data,
                                      boxes.length, round.words[0], NULL, &round.answer));
    CHECK_MESSAGE("not made for this roster");
    fed_buffer_release(&boxes);
    round_end(&round);
}

/* Model inconsistency: the victim is announced another model than the rest, whose updates the coordinator can make
 * nothing. Before anything is masked, everybody refuses the keys of those who signed for the other model. */
static void announce_to(struct round *round, uint32_t victim, uint32_t n, uint32_t threshold)
{
    static const uint8_t seed[SECAGG_SEED] = { 77 };
    struct secagg_federation *federation = &round->federation;

    round_begin(round, n, threshold, 32, 4, 1);
    struct secagg_config config = federation->config;
    config.agreed[0] = 1;
    secagg_client_destroy(federation->clients[victim]);
    CHECK_OK(secagg_client_create(&config, &federation->identities[victim], &federation->trust,
                                  seed, &federation->clients[victim]));
}

/* The roster of keys as a coordinator that checks nothing makes it. */
static void gather_roster(struct round *round, struct fed_buffer *roster)
{
    fed_buffer_clear(roster);
    fed_put_u32(roster, round->federation.n);
    for (uint32_t i = 0; i < round->federation.n; i++) {
        round_get_task(round, i);
        CHECK_OK(round_answer(round, i));
        fed_put(roster, round->answer.data, round->answer.length);
    }
}

static void test_different_models_are_refused_before_masking(void)
{
    struct fed_buffer roster, answer;

    fed_buffer_init(&roster, 1 << 20);
    fed_buffer_init(&answer, 1 << 20);
    for (uint32_t n = 2; n <= 7; n++) {
        for (uint32_t threshold = n / 2 + 1 < 2 ? 2 : n / 2 + 1; threshold <= n; threshold++) {
            struct round round;
            const uint32_t victim = (n + threshold) % n;
            announce_to(&round, victim, n, threshold);
            gather_roster(&round, &roster);
            for (uint32_t i = 0; i < n; i++) {
                CHECK_STATUS(STATUS_MISMATCH,
                             secagg_client_answer(round.federation.clients[i], SECAGG_SHARES,
                                                  roster.data, roster.length, NULL, NULL,
                                                  &answer));
                CHECK_MESSAGE("announces different models or settings to different");
            }
            /* An honest coordinator does not take such keys either. */
            round_get_task(&round, victim);
            CHECK_OK(round_answer(&round, victim));
            CHECK_STATUS(STATUS_MISMATCH, round_hear(&round, victim));
            round_end(&round);
        }
    }
    fed_buffer_release(&roster);
    fed_buffer_release(&answer);
}

/* A coordinator that counts fewer than this participant demands; those who gave must be so many. */
static void test_fewer_than_the_minimum_are_refused(void)
{
    static const uint8_t seed[SECAGG_SEED] = { 9 };
    struct round round;

    round_begin(&round, 5, 4, 32, 4, 1);
    struct secagg_federation *federation = &round.federation;
    struct secagg_config config = federation->config;
    config.minimum = 5;
    secagg_client_destroy(federation->clients[0]);
    CHECK_OK(secagg_client_create(&config, &federation->identities[0], &federation->trust, seed,
                                  &federation->clients[0]));
    round_run_stages(&round, 2);
    federation->gone[4] = true;
    round_run_stages(&round, 1);
    round_get_task(&round, 1);
    CHECK_OK(round_answer(&round, 1));
    round_get_task(&round, 0);
    CHECK_STATUS(STATUS_MISMATCH, round_answer(&round, 0));
    CHECK_MESSAGE("4 participants are called alive, of at least 5");
    round_end(&round);
}

/* Well signed, but no key can be agreed on with them: they must not come into a roster. */
static void test_keys_of_small_order_are_refused(void)
{
    static const uint8_t zeros[KEY], good[KEY] = { 9 };

    for (int which = 0; which < 2; which++) {
        struct round round;
        uint8_t context[HASH], digest[HASH], signature[SIGNATURE];

        round_begin(&round, 5, 4, 32, 4, 1);
        struct secagg_federation *federation = &round.federation;
        struct secagg_keys keys = { .number = federation->numbers[0],
                                    .context = context,
                                    .box = which ? zeros : good,
                                    .pair = which ? good : zeros,
                                    .proof = federation->identities[0].proof,
                                    .proof_bytes = federation->identities[0].proof_bytes,
                                    .signature = signature };
        secagg_context(&federation->config, context);
        secagg_keys_digest(&keys, digest);
        crypto_sign_detached(signature, NULL, digest, HASH, federation->identities[0].secret);
        fed_buffer_clear(&round.answer);
        secagg_put_keys(&keys, &round.answer);
        CHECK_STATUS(STATUS_MISMATCH, round_hear(&round, 0));
        CHECK_MESSAGE("small order");
        round_run_stages(&round, SECAGG_STAGES);
        round_end(&round);
    }
}

static void test_damaged_boxes_are_refused(void)
{
    struct round round;

    round_begin(&round, 5, 4, 32, 4, 1);
    round_run_stages(&round, 2);
    round_get_task(&round, 0);
    round.task.data[20] ^= 1;
    check_refused(&round, "not made for this roster");
    round_end(&round);
    round_begin(&round, 5, 4, 32, 4, 1);
    round_run_stages(&round, 2);
    round_get_task(&round, 1); /* another's boxes */
    CHECK_STATUS(STATUS_MISMATCH, round_answer(&round, 0));
    round_get_task(&round, 0);
    round.task.data[0] = 2;
    round.task.length = 4 + 2 * (4 + BOX);
    check_refused(&round, "shares of 2 others");
    round_end(&round);
}

/* Of five, all alive: alive and dead as given. */
static void tell_survivors(struct round *round, const char *alive, const char *dead)
{
    const char *lists[] = { alive, dead };

    fed_buffer_clear(&round->task);
    for (int list = 0; list < 2; list++) {
        fed_put_u32(&round->task, (uint32_t)strlen(lists[list]));
        for (const char *c = lists[list]; *c; c++)
            fed_put_u32(&round->task, round->federation.numbers[*c - '0']);
    }
}

static void test_lies_about_survivors_are_refused(void)
{
    static const struct {
        const char *alive, *dead, *because;
    } cases[] = {
        { "01234", "4", "called alive and dead" }, { "0123", "0", "called alive and dead" },
        { "012", "34", "of at least 4" },          { "0123", "", "of 5" },
        { "1234", "0", "is called dead" },
    };
    struct round round;

    round_begin(&round, 5, 4, 32, 4, 1);
    round_run_stages(&round, 3);
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        tell_survivors(&round, cases[i].alive, cases[i].dead);
        CHECK_STATUS(STATUS_MISMATCH, round_answer(&round, 0));
        CHECK_MESSAGE(cases[i].because);
    }
    tell_survivors(&round, "01243", ""); /* not ascending */
    CHECK_STATUS(STATUS_CORRUPT, round_answer(&round, 0));
    tell_survivors(&round, "01234", "");
    CHECK_OK(round_answer(&round, 0));
    tell_survivors(&round, "0123", "4"); /* now somebody is dead after all */
    CHECK_STATUS(STATUS_MISMATCH, round_answer(&round, 0));
    CHECK_MESSAGE("a second time");
    round_end(&round);
}

static void test_somebody_who_gave_no_shares_cannot_be_alive(void)
{
    struct round round;

    round_begin(&round, 6, 4, 32, 4, 1);
    round_run_stages(&round, 1);
    round.federation.gone[5] = true;
    round_run_stages(&round, 2);
    tell_survivors(&round, "012345", "");
    CHECK_STATUS(STATUS_MISMATCH, round_answer(&round, 0));
    CHECK_MESSAGE("gave no shares");
    tell_survivors(&round, "01234", "5"); /* then its pair secret would be asked for */
    check_refused(&round, "gave no shares");
    round_end(&round);
}

/* To get both secrets of 4 the coordinator would have to show half of them another set; it lacks signatures. */
static void test_an_unsigned_set_is_not_unmasked(void)
{
    struct round round;
    struct fed_buffer task;
    const size_t entry = 4 + SIGNATURE;

    round_begin(&round, 5, 4, 32, 4, 1);
    round_run_stages(&round, 4);
    fed_buffer_init(&task, 1 << 16);
    round_get_task(&round, 0);
    const size_t survivors = 4 + 8 + 5 * 4; /* length, two counts, five numbers */
    CHECK_INT(survivors + 4 + 5 * entry, round.task.length);
    /* Fewer signatures than the threshold. */
    round.task.data[survivors] = 3;
    round.task.length = survivors + 4 + 3 * entry;
    CHECK_STATUS(STATUS_MISMATCH, round_answer(&round, 0));
    CHECK_MESSAGE("3 have signed");
    /* One that is not good. */
    round_get_task(&round, 0);
    round.task.data[survivors + 4 + 2 * entry + 10] ^= 1;
    CHECK_STATUS(STATUS_MISMATCH, round_answer(&round, 0));
    CHECK_MESSAGE("not signed by participant 7");
    /* One signature for two. */
    round_get_task(&round, 0);
    memcpy(round.task.data + survivors + 4 + entry + 4, round.task.data + survivors + 4 + 4,
           SIGNATURE);
    CHECK_STATUS(STATUS_MISMATCH, round_answer(&round, 0));
    /* Another set than was signed: 4 dead. */
    round_get_task(&round, 0);
    fed_buffer_clear(&task);
    fed_put_bytes(&task, (const uint8_t[]){ 4, 0, 0,  0, 1, 0, 0, 0, 4, 0, 0,  0, 7, 0,
                                            0, 0, 10, 0, 0, 0, 1, 0, 0, 0, 13, 0, 0, 0 },
                  28);
    fed_put(&task, round.task.data + survivors, round.task.length - survivors);
    CHECK_STATUS(STATUS_MISMATCH,
                 secagg_client_answer(round.federation.clients[0], SECAGG_UNMASK, task.data,
                                      task.length, NULL, NULL, &round.answer));
    CHECK_MESSAGE("another set of survivors");
    /* The right one, then a second. */
    round_get_task(&round, 0);
    CHECK_OK(round_answer(&round, 0));
    CHECK_OK(round_answer(&round, 0)); /* the same again */
    round.task.data[survivors] = 4;
    round.task.length -= entry;
    CHECK_STATUS(STATUS_MISMATCH, round_answer(&round, 0));
    CHECK_MESSAGE("a second time");
    fed_buffer_release(&task);
    round_end(&round);
}

static void test_stages_come_in_their_order(void)
{
    struct round round;

    round_begin(&round, 3, 2, 32, 4, 1);
    for (int stage = 1; stage < SECAGG_STAGES; stage++) {
        CHECK_STATUS(STATUS_MISMATCH,
                     secagg_client_answer(round.federation.clients[0], (enum secagg_stage)stage,
                                          "", 0, round.words[0], NULL, &round.answer));
        CHECK_MESSAGE("before keys");
    }
    round_get_task(&round, 0);
    CHECK_OK(round_answer(&round, 0));
    CHECK_STATUS(STATUS_MISMATCH,
                 secagg_server_hear(round.federation.server, 1, SECAGG_MASKED, "", 0));
    CHECK_MESSAGE("too early");
    /* Another size of the round than was agreed. */
    round_get_task(&round, 1);
    round.task.data[8] = 3;
    CHECK_STATUS(STATUS_MISMATCH, round_answer(&round, 1));
    uint32_t participants, threshold;
    CHECK_OK(secagg_peek(round.task.data, round.task.length, &participants, &threshold));
    CHECK_INT(3, participants);
    CHECK_INT(3, threshold);
    CHECK_STATUS(STATUS_CORRUPT, secagg_peek(round.task.data, 11, &participants, &threshold));
    round_end(&round);
}

/* A second vector with the same masks would show the difference. */
static void test_one_vector_a_round_is_masked(void)
{
    struct round round;
    uint8_t first[16];

    round_begin(&round, 3, 2, 32, 4, 1);
    round_run_stages(&round, 2);
    round_get_task(&round, 0);
    CHECK_OK(round_answer(&round, 0));
    memcpy(first, round.answer.data, sizeof(first));
    CHECK_OK(round_answer(&round, 0)); /* after the reply was lost */
    CHECK(memcmp(first, round.answer.data, sizeof(first)) == 0);
    round.words[0][3] ^= 1;
    CHECK_STATUS(STATUS_MISMATCH, round_answer(&round, 0));
    CHECK_MESSAGE("another vector");
    round_end(&round);
}

/* Nonsense of participants ----------------------------------------------------------------- */

static void test_the_coordinator_checks_answers(void)
{
    struct round round;

    round_begin(&round, 4, 3, 32, 4, 1);
    round_get_task(&round, 0);
    CHECK_OK(round_answer(&round, 0));
    CHECK_STATUS(STATUS_MISMATCH, round_hear(&round, 1)); /* keys of 0 from 1 */
    round.answer.data[10] ^= 1;
    CHECK_STATUS(STATUS_MISMATCH, round_hear(&round, 0));
    CHECK_MESSAGE("not signed");
    round.answer.data[10] ^= 1;
    CHECK_OK(round_hear(&round, 0));
    CHECK_OK(round_hear(&round, 0)); /* again, without effect */
    CHECK_INT(1, secagg_server_count(round.federation.server, SECAGG_KEYS));
    CHECK(secagg_server_has(round.federation.server, 1, SECAGG_KEYS));
    round.answer.data[10] ^= 1;
    CHECK_STATUS(STATUS_MISMATCH, round_hear(&round, 0));
    CHECK_MESSAGE("another answer");
    CHECK_STATUS(STATUS_CORRUPT,
                 secagg_server_hear(round.federation.server, 4, SECAGG_KEYS, "x", 1));
    round_run_stages(&round, 1);
    round_get_task(&round, 2);
    CHECK_OK(round_answer(&round, 2));
    round.answer.length--;
    CHECK_STATUS(STATUS_CORRUPT, round_hear(&round, 2));
    round.answer.length++;
    round.answer.data[HASH + 4] ^= 8; /* the number of the first box */
    CHECK_STATUS(STATUS_CORRUPT, round_hear(&round, 2));
    round_run_stages(&round, 1);
    CHECK_STATUS(STATUS_CORRUPT,
                 secagg_server_hear(round.federation.server, 1, SECAGG_MASKED, "abc", 3));
    CHECK_STATUS(STATUS_MISMATCH,
                 secagg_server_hear(round.federation.server, 2, SECAGG_MASKED, "abc", 3));
    round_run_stages(&round, 1);
    memset(round.answer.data, 1, SIGNATURE);
    CHECK_STATUS(STATUS_MISMATCH,
                 secagg_server_hear(round.federation.server, 1, SECAGG_CONSISTENCY,
                                    round.answer.data, SIGNATURE));
    round_run_stages(&round, 1);
    round_get_task(&round, 0);
    CHECK_OK(round_answer(&round, 0));
    round.answer.data[8 + 7] = 255; /* a share above the prime */
    CHECK_STATUS(STATUS_CORRUPT, round_hear(&round, 0));
    round_run_stages(&round, 1);
    bool all[4] = { true, true, true, true };
    round_check_sum(&round, all);
    round_end(&round);
}

/* One who gives a wrong share is left out where others are enough; else there is no sum, rather than a wrong one. */
static void test_wrong_shares_are_noticed(void)
{
    for (uint32_t cheat = 0; cheat < 4; cheat++) {
        for (int spare = 0; spare < 2; spare++) {
            struct round round;
            uint32_t sum[4];

            round_begin(&round, 4, 3, 32, 4, 1);
            round_run_stages(&round, 4);
            if (!spare)
                round.federation.gone[(cheat + 1) % 4] = true;
            round_get_task(&round, cheat);
            CHECK_OK(round_answer(&round, cheat));
            round.answer.data[4 + 4] ^= 1;
            CHECK_OK(round_hear(&round, cheat));
            round.federation.gone[cheat] = true;
            round_run_stages(&round, 1);
            if (spare) {
                bool all[4] = { true, true, true, true };
                round_check_sum(&round, all);
            } else {
                CHECK_STATUS(STATUS_MISMATCH,
                             secagg_server_sum(round.federation.server, NULL, sum));
                CHECK_MESSAGE("committed to");
            }
            round_end(&round);
        }
    }
}

/* All who help agree on another secret of one: weights add up to 1, so one more in each share is one more in the secret. */
static void test_a_conspiracy_against_one_is_noticed(void)
{
    for (uint32_t victim = 0; victim < 4; victim += 3) { /* alive; dead */
        struct round round;
        uint32_t sum[4];

        round_begin(&round, 4, 3, 32, 4, 1);
        round_run_stages(&round, 2);
        round.federation.gone[3] = true;
        round_run_stages(&round, 2);
        for (uint32_t i = 0; i < 3; i++) {
            uint64_t limb;
            round_get_task(&round, i);
            CHECK_OK(round_answer(&round, i));
            uint8_t *share = round.answer.data + 4 + victim * (4 + SHAMIR_SHARE) + 4 + 8;
            memcpy(&limb, share, sizeof(limb));
            limb++;
            memcpy(share, &limb, sizeof(limb));
            CHECK_OK(round_hear(&round, i));
        }
        CHECK_OK(secagg_server_close(round.federation.server));
        CHECK_STATUS(STATUS_MISMATCH, secagg_server_sum(round.federation.server, NULL, sum));
        CHECK_MESSAGE("committed to");
        round_end(&round);
    }
}

/* A seed of the own mask other than the one committed to: no sum. */
static void test_a_wrong_commitment_is_noticed(void)
{
    struct round round;
    uint32_t sum[4];

    round_begin(&round, 4, 3, 32, 4, 1);
    round_run_stages(&round, 1);
    round_get_task(&round, 2);
    CHECK_OK(round_answer(&round, 2));
    round.answer.data[0] ^= 1;
    CHECK_OK(round_hear(&round, 2));
    for (uint32_t i = 0; i < 4; i++) {
        if (i == 2)
            continue;
        round_get_task(&round, i);
        CHECK_OK(round_answer(&round, i));
        CHECK_OK(round_hear(&round, i));
    }
    CHECK_OK(secagg_server_close(round.federation.server));
    round_run_stages(&round, 3);
    CHECK_STATUS(STATUS_MISMATCH, secagg_server_sum(round.federation.server, NULL, sum));
    CHECK_MESSAGE("participant 7 contradict");
    round_end(&round);
}

const struct test tests[] = {
    { "a substituted key is refused", test_a_substituted_key_is_refused, NULL },
    { "keys of another round are refused", test_keys_of_another_round_are_refused, NULL },
    { "a short or foreign roster is refused", test_a_short_or_foreign_roster_is_refused, NULL },
    { "nobody takes part twice", test_nobody_takes_part_twice, NULL },
    { "different rosters are found out", test_different_rosters_are_found_out, NULL },
    { .name = "participants who are announced different models refuse each other's keys",
      .run = test_different_models_are_refused_before_masking },
    { .name = "fewer than the minimum are refused",
      .run = test_fewer_than_the_minimum_are_refused },
    { .name = "keys of small order are refused", .run = test_keys_of_small_order_are_refused },
    { "damaged boxes are refused", test_damaged_boxes_are_refused, NULL },
    { "lies about survivors are refused", test_lies_about_survivors_are_refused, NULL },
    { "somebody who gave no shares cannot be alive",
      test_somebody_who_gave_no_shares_cannot_be_alive, NULL },
    { "an unsigned set is not unmasked", test_an_unsigned_set_is_not_unmasked, NULL },
    { "stages come in their order", test_stages_come_in_their_order, NULL },
    { "one vector a round is masked", test_one_vector_a_round_is_masked, NULL },
    { "the coordinator checks answers", test_the_coordinator_checks_answers, NULL },
    { "wrong shares are noticed", test_wrong_shares_are_noticed, NULL },
    { "a conspiracy against one is noticed", test_a_conspiracy_against_one_is_noticed, NULL },
    { "a wrong commitment is noticed", test_a_wrong_commitment_is_noticed, NULL },
    { 0 },
};
