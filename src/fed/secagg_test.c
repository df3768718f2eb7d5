/* SPDX-License-Identifier: MIT */
/* secagg_test.c - sums that are exact however participants drop out, and a coordinator whose lies are refused. */
#include "fed/secagg.h"

#include <math.h>
#include <sodium.h>
#include <string.h>

#include "base/mem.h"
#include "base/test.h"
#include "fed/secagg_round.h"
#include "fed/secagg_testing.h"

/* A round with vectors ------------------------------------------------------------------- */

struct round {
    struct secagg_federation federation;
    uint8_t *words[SECAGG_TEST_MOST];
    size_t bytes; /* of one vector */
    struct fed_buffer task, answer;
};

static void begin(struct round *round, uint32_t n, uint32_t threshold, int bits, size_t count,
                  uint32_t number)
{
    struct rng rng;

    CHECK_OK(secagg_federation_create(n, threshold, bits, count, number, &round->federation));
    round->bytes = count * (size_t)bits / 8;
    rng_init(&rng, number, 1);
    for (uint32_t i = 0; i < n; i++) {
        CHECK_OK(mem_alloc(round->bytes, 1, &round->words[i]));
        for (size_t k = 0; k < round->bytes; k++)
            round->words[i][k] = (uint8_t)rng_u32(&rng);
    }
    fed_buffer_init(&round->task, 1 << 20);
    fed_buffer_init(&round->answer, 1 << 20);
}

static void end(struct round *round)
{
    for (uint32_t i = 0; i < round->federation.n; i++)
        mem_free(round->words[i]);
    fed_buffer_release(&round->task);
    fed_buffer_release(&round->answer);
    secagg_federation_destroy(&round->federation);
}

static enum status run_stage(struct round *round)
{
    return secagg_federation_stage(&round->federation, (const void *const *)round->words, NULL);
}

static void run_stages(struct round *round, int stages)
{
    for (int i = 0; i < stages; i++)
        CHECK_OK(run_stage(round));
}

/* The sum over those marked, modulo 2^bits. */
static void check_sum(struct round *round, const bool *counted)
{
    const struct secagg_config *config = &round->federation.config;
    uint8_t *actual, *expected;

    CHECK_OK(mem_alloc(round->bytes, 1, &actual));
    CHECK_OK(mem_alloc(round->bytes, 1, &expected));
    for (uint32_t i = 0; i < round->federation.n; i++) {
        if (counted[i])
            mask_sum(config->bits, expected, round->words[i], config->count);
    }
    CHECK_OK(secagg_server_sum(round->federation.server, NULL, actual));
    CHECK(memcmp(expected, actual, round->bytes) == 0);
    mem_free(actual);
    mem_free(expected);
}

/* The task that participant i has now, and what it says to it. */
static enum status answer(struct round *round, uint32_t i)
{
    struct secagg_federation *federation = &round->federation;
    const enum secagg_stage stage = secagg_server_stage(federation->server);

    fed_buffer_clear(&round->answer);
    return secagg_client_answer(
        federation->clients[i], stage, round->task.data, round->task.length,
        stage == SECAGG_MASKED ? round->words[i] : NULL, NULL, &round->answer);
}

static void get_task(struct round *round, uint32_t i)
{
    CHECK_OK(secagg_federation_task(&round->federation, i, &round->task));
}

static enum status hear(struct round *round, uint32_t i)
{
    struct secagg_federation *federation = &round->federation;

    return secagg_server_hear(federation->server, federation->numbers[i],
                              secagg_server_stage(federation->server), round->answer.data,
                              round->answer.length);
}

/* Sums ----------------------------------------------------------------------------------- */

static void property_the_sum_is_exact(struct rng *rng)
{
    const uint32_t n = 2 + (uint32_t)rng_below(rng, 5);
    const uint32_t threshold = n / 2 + 1 + (uint32_t)rng_below(rng, n - n / 2);
    bool all[SECAGG_TEST_MOST];
    struct round round;

    memset(all, true, sizeof(all));
    begin(&round, n, threshold < 2 ? 2 : threshold, rng_below(rng, 2) ? 32 : 64,
          1 + rng_below(rng, 3000), rng_u32(rng));
    run_stages(&round, SECAGG_STAGES);
    check_sum(&round, all);
    end(&round);
}

/* `drop` of n are gone from a stage on: the sum is of those who gave a masked vector. */
static void drop_from(uint32_t n, uint32_t drop, enum secagg_stage stage, uint32_t number)
{
    bool counted[SECAGG_TEST_MOST];
    struct round round;
    struct rng rng;

    begin(&round, n, secagg_default_threshold(n), 32, 50, number);
    rng_init(&rng, number, 2);
    memset(counted, true, sizeof(counted));
    run_stages(&round, stage);
    for (uint32_t gone = 0; gone < drop;) {
        const uint32_t i = (uint32_t)rng_below(&rng, n);
        gone += !round.federation.gone[i];
        round.federation.gone[i] = true;
        counted[i] = stage > SECAGG_MASKED;
    }
    run_stages(&round, SECAGG_STAGES - stage);
    CHECK_INT(stage > SECAGG_MASKED ? n : n - drop,
              secagg_server_count(round.federation.server, SECAGG_MASKED));
    check_sum(&round, counted);
    end(&round);
}

static void test_one_of_five_drops_at_every_stage(void)
{
    for (int stage = 0; stage < SECAGG_STAGES; stage++) {
        for (uint32_t number = 0; number < 3; number++)
            drop_from(5, 1, (enum secagg_stage)stage, number);
    }
}

static void test_ten_of_thirty_drop_at_every_stage(void)
{
    for (int stage = 0; stage < SECAGG_STAGES; stage++)
        drop_from(30, 10, (enum secagg_stage)stage, 7);
}

/* Some at each stage, as many as may. */
static void property_participants_drop_anywhere(struct rng *rng)
{
    const uint32_t n = 4 + (uint32_t)rng_below(rng, 4);
    uint32_t left = n - secagg_default_threshold(n);
    bool counted[SECAGG_TEST_MOST];
    struct round round;

    begin(&round, n, secagg_default_threshold(n), 32, 20, rng_u32(rng));
    memset(counted, true, sizeof(counted));
    for (int stage = 0; stage < SECAGG_STAGES; stage++) {
        while (left > 0 && rng_below(rng, 2)) {
            const uint32_t i = (uint32_t)rng_below(rng, n);
            left -= !round.federation.gone[i];
            round.federation.gone[i] = true;
            if (stage <= SECAGG_MASKED)
                counted[i] = false;
        }
        run_stages(&round, 1);
    }
    check_sum(&round, counted);
    end(&round);
}

static void test_below_the_threshold_the_round_is_lost(void)
{
    for (int stage = 0; stage < SECAGG_STAGES; stage++) {
        struct round round;
        uint32_t sum[4];

        begin(&round, 5, 4, 32, 4, (uint32_t)stage);
        run_stages(&round, stage);
        round.federation.gone[1] = round.federation.gone[3] = true;
        CHECK_STATUS(STATUS_MISMATCH, run_stage(&round));
        CHECK_MESSAGE("is lost");
        CHECK_STATUS(STATUS_MISMATCH, secagg_server_sum(round.federation.server, NULL, sum));
        end(&round);
    }
}

/* What the coordinator sees ---------------------------------------------------------------- */

/* Vectors of zeros: bytes of what it is sent are as often each of 256. */
static void test_masked_vectors_are_uniform(void)
{
    enum { COUNT = 20000 };
    struct round round;

    begin(&round, 4, 3, 32, COUNT, 11);
    for (uint32_t i = 0; i < 4; i++)
        memset(round.words[i], 0, round.bytes);
    run_stages(&round, SECAGG_MASKED);
    uint8_t *before = NULL;
    for (uint32_t i = 0; i < 4; i++) {
        double chi = 0, same = 0;
        int count[256] = { 0 };

        get_task(&round, i);
        CHECK_OK(answer(&round, i));
        CHECK_INT(round.bytes, round.answer.length);
        for (size_t k = 0; k < round.bytes; k++)
            count[round.answer.data[k]]++;
        for (int value = 0; value < 256; value++)
            chi +=
                pow(count[value] - (double)round.bytes / 256, 2) / ((double)round.bytes / 256);
        CHECK(chi > 255 - 5 * sqrt(2.0 * 255) && chi < 255 + 5 * sqrt(2.0 * 255));
        /* Nor has one anything of another. */
        for (size_t k = 0; before && k < round.bytes; k++)
            same += before[k] == round.answer.data[k];
        CHECK(fabs(same - (before ? (double)round.bytes / 256 : 0)) < 5 * sqrt(312.0));
        mem_free(before);
        CHECK_OK(mem_alloc(round.bytes, 1, &before));
        memcpy(before, round.answer.data, round.bytes);
    }
    mem_free(before);
    end(&round);
}

/* Lies of the coordinator ------------------------------------------------------------------ */

/* Participant 0 refuses what round.task has become, then takes the right one. */
static void check_refused(struct round *round, const char *because)
{
    CHECK_STATUS(STATUS_MISMATCH, answer(round, 0));
    CHECK_MESSAGE(because);
    get_task(round, 0);
    CHECK_OK(answer(round, 0));
}

/* The place of participant i's keys in a roster; proofs have 4 bytes. */
static uint8_t *keys_in(struct round *round, uint32_t i)
{
    return round->task.data + 4 + i * secagg_keys_bytes(4);
}

static void test_a_substituted_key_is_refused(void)
{
    struct round round;

    begin(&round, 5, 4, 32, 4, 1);
    run_stages(&round, 1);
    for (uint32_t offset = 4; offset < 4 + 2 * KEY; offset += KEY) { /* box key, pair key */
        get_task(&round, 0);
        memset(keys_in(&round, 2) + offset, 9, KEY);
        check_refused(&round, "not signed by its identity");
        end(&round);
        begin(&round, 5, 4, 32, 4, 1);
        run_stages(&round, 1);
    }
    /* Signed, but by an identity that the coordinator made up. */
    get_task(&round, 0);
    memset(keys_in(&round, 2) + 4 + 2 * KEY + 4, 250, 4);
    check_refused(&round, "nobody is called");
    end(&round);
}

/* Keys that were signed for another round. */
static void test_keys_of_another_round_are_refused(void)
{
    struct round old, round;

    begin(&old, 5, 4, 32, 4, 1);
    begin(&round, 5, 4, 32, 4, 2);
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
    run_stages(&old, 1);
    run_stages(&round, 1);
    get_task(&old, 0);
    get_task(&round, 0);
    const size_t bytes = secagg_keys_bytes(4);
    memcpy(keys_in(&round, 3), keys_in(&old, 3), bytes);
    check_refused(&round, "for this round");
    /* A whole roster of the other round. */
    get_task(&round, 1);
    CHECK_STATUS(STATUS_MISMATCH,
                 secagg_client_answer(round.federation.clients[1], SECAGG_SHARES, old.task.data,
                                      old.task.length, NULL, NULL, &round.answer));
    end(&old);
    end(&round);
}

static void test_a_short_or_foreign_roster_is_refused(void)
{
    const size_t bytes = secagg_keys_bytes(4);
    struct round round;

    begin(&round, 5, 4, 32, 4, 1);
    run_stages(&round, 1);
    /* Three are below the threshold. */
    get_task(&round, 0);
    round.task.data[0] = 3;
    round.task.length = 4 + 3 * bytes;
    CHECK_STATUS(STATUS_MISMATCH, answer(&round, 0));
    CHECK_MESSAGE("a roster of 3");
    /* Four without participant 0. */
    get_task(&round, 0);
    round.task.data[0] = 4;
    memmove(keys_in(&round, 0), keys_in(&round, 1), 4 * bytes);
    round.task.length = 4 + 4 * bytes;
    CHECK_STATUS(STATUS_MISMATCH, answer(&round, 0));
    CHECK_MESSAGE("without this participant");
    /* One of them twice. */
    get_task(&round, 0);
    memcpy(keys_in(&round, 2), keys_in(&round, 1), bytes);
    CHECK_STATUS(STATUS_CORRUPT, answer(&round, 0));
    get_task(&round, 0);
    round.task.length--;
    CHECK_STATUS(STATUS_CORRUPT, answer(&round, 0));
    get_task(&round, 0);
    CHECK_OK(answer(&round, 0));
    /* Afterwards another, also a right one, is not answered. */
    round.task.data[0] = 4;
    round.task.length = 4 + 4 * bytes;
    CHECK_STATUS(STATUS_MISMATCH, answer(&round, 0));
    CHECK_MESSAGE("with another task");
    end(&round);
}

/* One enrolled identity under two numbers would let the coordinator fill a roster with friends of its own. */
static void test_nobody_takes_part_twice(void)
{
    static const uint8_t seed[SECAGG_SEED] = { 77 };
    struct secagg_client *second;
    struct round round;

    begin(&round, 5, 4, 32, 4, 1);
    struct secagg_federation *federation = &round.federation;
    CHECK_OK(secagg_client_create(&federation->config, &federation->identities[1],
                                  &federation->trust, seed, &second));
    get_task(&round, 2);
    CHECK_OK(secagg_client_answer(second, SECAGG_KEYS, round.task.data, round.task.length, NULL,
                                  NULL, &round.answer));
    uint8_t *keys;
    const size_t bytes = round.answer.length;
    CHECK_OK(mem_alloc(bytes, 1, &keys));
    memcpy(keys, round.answer.data, bytes);
    get_task(&round, 1);
    CHECK_OK(answer(&round, 1));
    CHECK_OK(hear(&round, 1));
    CHECK_STATUS(STATUS_MISMATCH, secagg_server_hear(federation->server, federation->numbers[2],
                                                     SECAGG_KEYS, keys, bytes));
    CHECK_MESSAGE("is participant 4 already");
    run_stages(&round, 1);
    get_task(&round, 0);
    memcpy(keys_in(&round, 2), keys, bytes);
    check_refused(&round, "are the same");
    mem_free(keys);
    secagg_client_destroy(second);
    end(&round);
}

/* Two halves are told different rosters, each with a threshold of true keys: they cannot read each other's boxes. */
static void test_different_rosters_are_found_out(void)
{
    const size_t bytes = secagg_keys_bytes(4);
    struct round round;
    struct fed_buffer boxes;

    begin(&round, 5, 4, 32, 4, 1);
    run_stages(&round, 1);
    fed_buffer_init(&boxes, 1 << 16);
    fed_put_u32(&boxes, 3);
    for (uint32_t i = 1; i < 4; i++) { /* 1, 2, 3 answer to the roster of all */
        get_task(&round, i);
        CHECK_OK(answer(&round, i));
        fed_put_u32(&boxes, round.federation.numbers[i]);
        fed_put(&boxes, round.answer.data + HASH + 4 + 4, BOX); /* their first is for 0 */
    }
    get_task(&round, 0);
    round.task.data[0] = 4; /* 0 hears of four */
    round.task.length = 4 + 4 * bytes;
    CHECK_OK(answer(&round, 0));
    CHECK_STATUS(STATUS_MISMATCH,
                 secagg_client_answer(round.federation.clients[0], SECAGG_MASKED, boxes.data,
                                      boxes.length, round.words[0], NULL, &round.answer));
    CHECK_MESSAGE("not made for this roster");
    fed_buffer_release(&boxes);
    end(&round);
}

/* One is told other things to make its vector of than the rest: neither unmasks what the other signed. */
static void test_different_tasks_are_found_out(void)
{
    static const uint8_t common[SECAGG_BOUND] = { 1 }, other[SECAGG_BOUND] = { 2 };
    struct round round;

    begin(&round, 5, 4, 32, 4, 1);
    run_stages(&round, 2);
    for (uint32_t i = 0; i < 5; i++)
        CHECK_OK(secagg_client_bind(round.federation.clients[i], i == 0 ? other : common));
    secagg_server_bind(round.federation.server, common);
    run_stages(&round, 1);
    CHECK_STATUS(STATUS_MISMATCH, secagg_client_bind(round.federation.clients[0], common));
    CHECK_MESSAGE("for another task");
    get_task(&round, 0);
    CHECK_OK(answer(&round, 0));
    CHECK_STATUS(STATUS_MISMATCH, hear(&round, 0));
    CHECK_MESSAGE("not of these survivors and their task");
    round.federation.gone[0] = true;
    run_stages(&round, 1);
    get_task(&round, 1);
    CHECK_OK(answer(&round, 1));
    CHECK_STATUS(STATUS_MISMATCH, answer(&round, 0));
    CHECK_MESSAGE("and what they were told, is not signed by");
    end(&round);
}

/* A coordinator that counts fewer than this participant demands; those who gave must be so many. */
static void test_fewer_than_the_minimum_are_refused(void)
{
    static const uint8_t seed[SECAGG_SEED] = { 9 };
    struct round round;

    begin(&round, 5, 4, 32, 4, 1);
    struct secagg_federation *federation = &round.federation;
    struct secagg_config config = federation->config;
    config.minimum = 5;
    secagg_client_destroy(federation->clients[0]);
    CHECK_OK(secagg_client_create(&config, &federation->identities[0], &federation->trust, seed,
                                  &federation->clients[0]));
    run_stages(&round, 2);
    federation->gone[4] = true;
    run_stages(&round, 1);
    get_task(&round, 1);
    CHECK_OK(answer(&round, 1));
    get_task(&round, 0);
    CHECK_STATUS(STATUS_MISMATCH, answer(&round, 0));
    CHECK_MESSAGE("4 participants are called alive, of at least 5");
    end(&round);
}

/* Well signed, but no key can be agreed on with them: they must not come into a roster. */
static void test_keys_of_small_order_are_refused(void)
{
    static const uint8_t zeros[KEY], good[KEY] = { 9 };

    for (int which = 0; which < 2; which++) {
        struct round round;
        uint8_t context[HASH], digest[HASH], signature[SIGNATURE];

        begin(&round, 5, 4, 32, 4, 1);
        struct secagg_federation *federation = &round.federation;
        struct secagg_keys keys = { .number = federation->numbers[0],
                                    .box = which ? zeros : good,
                                    .pair = which ? good : zeros,
                                    .proof = federation->identities[0].proof,
                                    .proof_bytes = federation->identities[0].proof_bytes,
                                    .signature = signature };
        secagg_context(&federation->config, context);
        secagg_keys_digest(context, &keys, digest);
        crypto_sign_detached(signature, NULL, digest, HASH, federation->identities[0].secret);
        fed_buffer_clear(&round.answer);
        secagg_put_keys(&keys, &round.answer);
        CHECK_STATUS(STATUS_MISMATCH, hear(&round, 0));
        CHECK_MESSAGE("small order");
        run_stages(&round, SECAGG_STAGES);
        end(&round);
    }
}

static void test_damaged_boxes_are_refused(void)
{
    struct round round;

    begin(&round, 5, 4, 32, 4, 1);
    run_stages(&round, 2);
    get_task(&round, 0);
    round.task.data[20] ^= 1;
    check_refused(&round, "not made for this roster");
    end(&round);
    begin(&round, 5, 4, 32, 4, 1);
    run_stages(&round, 2);
    get_task(&round, 1); /* another's boxes */
    CHECK_STATUS(STATUS_MISMATCH, answer(&round, 0));
    get_task(&round, 0);
    round.task.data[0] = 2;
    round.task.length = 4 + 2 * (4 + BOX);
    check_refused(&round, "shares of 2 others");
    end(&round);
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

    begin(&round, 5, 4, 32, 4, 1);
    run_stages(&round, 3);
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        tell_survivors(&round, cases[i].alive, cases[i].dead);
        CHECK_STATUS(STATUS_MISMATCH, answer(&round, 0));
        CHECK_MESSAGE(cases[i].because);
    }
    tell_survivors(&round, "01243", ""); /* not ascending */
    CHECK_STATUS(STATUS_CORRUPT, answer(&round, 0));
    tell_survivors(&round, "01234", "");
    CHECK_OK(answer(&round, 0));
    tell_survivors(&round, "0123", "4"); /* now somebody is dead after all */
    CHECK_STATUS(STATUS_MISMATCH, answer(&round, 0));
    CHECK_MESSAGE("a second time");
    end(&round);
}

static void test_somebody_who_gave_no_shares_cannot_be_alive(void)
{
    struct round round;

    begin(&round, 6, 4, 32, 4, 1);
    run_stages(&round, 1);
    round.federation.gone[5] = true;
    run_stages(&round, 2);
    tell_survivors(&round, "012345", "");
    CHECK_STATUS(STATUS_MISMATCH, answer(&round, 0));
    CHECK_MESSAGE("gave no shares");
    tell_survivors(&round, "01234", "5"); /* then its pair secret would be asked for */
    check_refused(&round, "gave no shares");
    end(&round);
}

/* To get both secrets of 4 the coordinator would have to show half of them another set; it lacks signatures. */
static void test_an_unsigned_set_is_not_unmasked(void)
{
    struct round round;
    struct fed_buffer task;
    const size_t entry = 4 + SIGNATURE;

    begin(&round, 5, 4, 32, 4, 1);
    run_stages(&round, 4);
    fed_buffer_init(&task, 1 << 16);
    get_task(&round, 0);
    const size_t survivors = 4 + 8 + 5 * 4; /* length, two counts, five numbers */
    CHECK_INT(survivors + 4 + 5 * entry, round.task.length);
    /* Fewer signatures than the threshold. */
    round.task.data[survivors] = 3;
    round.task.length = survivors + 4 + 3 * entry;
    CHECK_STATUS(STATUS_MISMATCH, answer(&round, 0));
    CHECK_MESSAGE("3 have signed");
    /* One that is not good. */
    get_task(&round, 0);
    round.task.data[survivors + 4 + 2 * entry + 10] ^= 1;
    CHECK_STATUS(STATUS_MISMATCH, answer(&round, 0));
    CHECK_MESSAGE("not signed by participant 7");
    /* One signature for two. */
    get_task(&round, 0);
    memcpy(round.task.data + survivors + 4 + entry + 4, round.task.data + survivors + 4 + 4,
           SIGNATURE);
    CHECK_STATUS(STATUS_MISMATCH, answer(&round, 0));
    /* Another set than was signed: 4 dead. */
    get_task(&round, 0);
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
    get_task(&round, 0);
    CHECK_OK(answer(&round, 0));
    CHECK_OK(answer(&round, 0)); /* the same again */
    round.task.data[survivors] = 4;
    round.task.length -= entry;
    CHECK_STATUS(STATUS_MISMATCH, answer(&round, 0));
    CHECK_MESSAGE("a second time");
    fed_buffer_release(&task);
    end(&round);
}

static void test_stages_come_in_their_order(void)
{
    struct round round;

    begin(&round, 3, 2, 32, 4, 1);
    for (int stage = 1; stage < SECAGG_STAGES; stage++) {
        CHECK_STATUS(STATUS_MISMATCH,
                     secagg_client_answer(round.federation.clients[0], (enum secagg_stage)stage,
                                          "", 0, round.words[0], NULL, &round.answer));
        CHECK_MESSAGE("before keys");
    }
    get_task(&round, 0);
    CHECK_OK(answer(&round, 0));
    CHECK_STATUS(STATUS_MISMATCH,
                 secagg_server_hear(round.federation.server, 1, SECAGG_MASKED, "", 0));
    CHECK_MESSAGE("too early");
    /* Another size of the round than was agreed. */
    get_task(&round, 1);
    round.task.data[8] = 3;
    CHECK_STATUS(STATUS_MISMATCH, answer(&round, 1));
    uint32_t participants, threshold;
    CHECK_OK(secagg_peek(round.task.data, round.task.length, &participants, &threshold));
    CHECK_INT(3, participants);
    CHECK_INT(3, threshold);
    CHECK_STATUS(STATUS_CORRUPT, secagg_peek(round.task.data, 11, &participants, &threshold));
    end(&round);
}

/* A second vector with the same masks would show the difference. */
static void test_one_vector_a_round_is_masked(void)
{
    struct round round;
    uint8_t first[16];

    begin(&round, 3, 2, 32, 4, 1);
    run_stages(&round, 2);
    get_task(&round, 0);
    CHECK_OK(answer(&round, 0));
    memcpy(first, round.answer.data, sizeof(first));
    CHECK_OK(answer(&round, 0)); /* after the reply was lost */
    CHECK(memcmp(first, round.answer.data, sizeof(first)) == 0);
    round.words[0][3] ^= 1;
    CHECK_STATUS(STATUS_MISMATCH, answer(&round, 0));
    CHECK_MESSAGE("another vector");
    end(&round);
}

/* Nonsense of participants ----------------------------------------------------------------- */

static void test_the_coordinator_checks_answers(void)
{
    struct round round;

    begin(&round, 4, 3, 32, 4, 1);
    get_task(&round, 0);
    CHECK_OK(answer(&round, 0));
    CHECK_STATUS(STATUS_MISMATCH, hear(&round, 1)); /* keys of 0 from 1 */
    round.answer.data[10] ^= 1;
    CHECK_STATUS(STATUS_MISMATCH, hear(&round, 0));
    CHECK_MESSAGE("not signed");
    round.answer.data[10] ^= 1;
    CHECK_OK(hear(&round, 0));
    CHECK_OK(hear(&round, 0)); /* again, without effect */
    CHECK_INT(1, secagg_server_count(round.federation.server, SECAGG_KEYS));
    CHECK(secagg_server_has(round.federation.server, 1, SECAGG_KEYS));
    round.answer.data[10] ^= 1;
    CHECK_STATUS(STATUS_MISMATCH, hear(&round, 0));
    CHECK_MESSAGE("another answer");
    CHECK_STATUS(STATUS_CORRUPT,
                 secagg_server_hear(round.federation.server, 4, SECAGG_KEYS, "x", 1));
    run_stages(&round, 1);
    get_task(&round, 2);
    CHECK_OK(answer(&round, 2));
    round.answer.length--;
    CHECK_STATUS(STATUS_CORRUPT, hear(&round, 2));
    round.answer.length++;
    round.answer.data[HASH + 4] ^= 8; /* the number of the first box */
    CHECK_STATUS(STATUS_CORRUPT, hear(&round, 2));
    run_stages(&round, 1);
    CHECK_STATUS(STATUS_CORRUPT,
                 secagg_server_hear(round.federation.server, 1, SECAGG_MASKED, "abc", 3));
    CHECK_STATUS(STATUS_MISMATCH,
                 secagg_server_hear(round.federation.server, 2, SECAGG_MASKED, "abc", 3));
    run_stages(&round, 1);
    memset(round.answer.data, 1, SIGNATURE);
    CHECK_STATUS(STATUS_MISMATCH,
                 secagg_server_hear(round.federation.server, 1, SECAGG_CONSISTENCY,
                                    round.answer.data, SIGNATURE));
    run_stages(&round, 1);
    get_task(&round, 0);
    CHECK_OK(answer(&round, 0));
    round.answer.data[8 + 7] = 255; /* a share above the prime */
    CHECK_STATUS(STATUS_CORRUPT, hear(&round, 0));
    run_stages(&round, 1);
    bool all[4] = { true, true, true, true };
    check_sum(&round, all);
    end(&round);
}

/* One who gives a wrong share is left out where others are enough; else there is no sum, rather than a wrong one. */
static void test_wrong_shares_are_noticed(void)
{
    for (uint32_t cheat = 0; cheat < 4; cheat++) {
        for (int spare = 0; spare < 2; spare++) {
            struct round round;
            uint32_t sum[4];

            begin(&round, 4, 3, 32, 4, 1);
            run_stages(&round, 4);
            if (!spare)
                round.federation.gone[(cheat + 1) % 4] = true;
            get_task(&round, cheat);
            CHECK_OK(answer(&round, cheat));
            round.answer.data[4 + 4] ^= 1;
            CHECK_OK(hear(&round, cheat));
            round.federation.gone[cheat] = true;
            run_stages(&round, 1);
            if (spare) {
                bool all[4] = { true, true, true, true };
                check_sum(&round, all);
            } else {
                CHECK_STATUS(STATUS_MISMATCH,
                             secagg_server_sum(round.federation.server, NULL, sum));
                CHECK_MESSAGE("committed to");
            }
            end(&round);
        }
    }
}

/* All who help agree on another secret of one: weights add up to 1, so one more in each share is one more in the secret. */
static void test_a_conspiracy_against_one_is_noticed(void)
{
    for (uint32_t victim = 0; victim < 4; victim += 3) { /* alive; dead */
        struct round round;
        uint32_t sum[4];

        begin(&round, 4, 3, 32, 4, 1);
        run_stages(&round, 2);
        round.federation.gone[3] = true;
        run_stages(&round, 2);
        for (uint32_t i = 0; i < 3; i++) {
            uint64_t limb;
            get_task(&round, i);
            CHECK_OK(answer(&round, i));
            uint8_t *share = round.answer.data + 4 + victim * (4 + SHAMIR_SHARE) + 4 + 8;
            memcpy(&limb, share, sizeof(limb));
            limb++;
            memcpy(share, &limb, sizeof(limb));
            CHECK_OK(hear(&round, i));
        }
        CHECK_OK(secagg_server_close(round.federation.server));
        CHECK_STATUS(STATUS_MISMATCH, secagg_server_sum(round.federation.server, NULL, sum));
        CHECK_MESSAGE("committed to");
        end(&round);
    }
}

/* A seed of the own mask other than the one committed to: no sum. */
static void test_a_wrong_commitment_is_noticed(void)
{
    struct round round;
    uint32_t sum[4];

    begin(&round, 4, 3, 32, 4, 1);
    run_stages(&round, 1);
    get_task(&round, 2);
    CHECK_OK(answer(&round, 2));
    round.answer.data[0] ^= 1;
    CHECK_OK(hear(&round, 2));
    for (uint32_t i = 0; i < 4; i++) {
        if (i == 2)
            continue;
        get_task(&round, i);
        CHECK_OK(answer(&round, i));
        CHECK_OK(hear(&round, i));
    }
    CHECK_OK(secagg_server_close(round.federation.server));
    run_stages(&round, 3);
    CHECK_STATUS(STATUS_MISMATCH, secagg_server_sum(round.federation.server, NULL, sum));
    CHECK_MESSAGE("participant 7 contradict");
    end(&round);
}

/* Restarts --------------------------------------------------------------------------------- */

/* Every participant is saved and loaded before every stage, and the coordinator hears all again. */
static void test_a_round_survives_restarts(void)
{
    bool all[5] = { true, true, true, true, true };
    struct fed_buffer state;
    struct round round;

    begin(&round, 5, 4, 64, 30, 3);
    fed_buffer_init(&state, 1 << 20);
    for (int stage = 0; stage < SECAGG_STAGES; stage++) {
        for (uint32_t i = 0; i < 5; i++) {
            struct secagg_client *loaded;

            get_task(&round, i);
            if (stage > 0) /* half-way: the task was accepted, the answer lost */
                CHECK_OK(answer(&round, i));
            fed_buffer_clear(&state);
            CHECK_OK(secagg_client_save(round.federation.clients[i], &state));
            CHECK_OK(
                secagg_client_load(&round.federation.config, &round.federation.identities[i],
                                   &round.federation.trust, state.data, state.length, &loaded));
            secagg_client_destroy(round.federation.clients[i]);
            round.federation.clients[i] = loaded;
        }
        run_stages(&round, 1);
    }
    check_sum(&round, all);
    /* One vector a round, also after a restart. */
    round.words[0][0] ^= 1;
    CHECK_STATUS(STATUS_MISMATCH,
                 secagg_client_answer(round.federation.clients[0], SECAGG_MASKED, "", 0,
                                      round.words[0], NULL, &round.answer));
    struct secagg_config other = round.federation.config;
    struct secagg_client *loaded;
    other.round++;
    CHECK_STATUS(STATUS_MISMATCH, secagg_client_load(&other, &round.federation.identities[0],
                                                     &round.federation.trust, state.data,
                                                     state.length, &loaded));
    CHECK_MESSAGE("another round");
    for (size_t cut = 0; cut < state.length; cut += 1 + cut / 3)
        CHECK_STATUS(STATUS_CORRUPT,
                     secagg_client_load(&round.federation.config,
                                        &round.federation.identities[4],
                                        &round.federation.trust, state.data, cut, &loaded));
    fed_buffer_release(&state);
    end(&round);
}

static enum status run_whole(uint32_t *sum)
{
    static const uint32_t words[4] = { 1, 2, 3, 4 };
    const void *const vectors[] = { words, words, words };
    struct secagg_federation federation;
    enum status status = STATUS_OK;

    TRY(secagg_federation_create(3, 2, 32, 4, 1, &federation));
    for (int stage = 0; stage < SECAGG_STAGES && status == STATUS_OK; stage++)
        status = secagg_federation_stage(&federation, vectors, NULL);
    if (status == STATUS_OK)
        status = secagg_server_sum(federation.server, NULL, sum);
    secagg_federation_destroy(&federation);
    return status;
}

/* Whichever allocation fails, that is what is said, and nothing leaks (the address sanitizer looks). */
static void test_every_allocation_may_fail(void)
{
    uint32_t sum[4];
    int failed = 0;

    for (;; failed++) {
        mem_fail_at((uint64_t)failed + 1);
        const enum status status = run_whole(sum);
        mem_fail_at(0);
        if (status == STATUS_OK)
            break;
        CHECK_INT(STATUS_NO_MEMORY, status);
    }
    CHECK(failed > 20);
    CHECK_INT(12, sum[3]);
}

/* Primitives, through our wrappers ---------------------------------------------------------- */

/* RFC 8032, 7.1, test 1: the key pair of a seed. */
static void test_identities_are_those_of_rfc_8032(void)
{
    static const uint8_t seed[] = { 0x9d, 0x61, 0xb1, 0x9d, 0xef, 0xfd, 0x5a, 0x60,
                                    0xba, 0x84, 0x4a, 0xf4, 0x92, 0xec, 0x2c, 0xc4,
                                    0x44, 0x49, 0xc5, 0x69, 0x7b, 0x32, 0x69, 0x19,
                                    0x70, 0x3b, 0xac, 0x03, 0x1c, 0xae, 0x7f, 0x60 };
    static const uint8_t expected[] = { 0xd7, 0x5a, 0x98, 0x01, 0x82, 0xb1, 0x0a, 0xb7,
                                        0xd5, 0x4b, 0xfe, 0xd3, 0xc9, 0x64, 0x07, 0x3a,
                                        0x0e, 0xe1, 0x72, 0xf3, 0xda, 0xa6, 0x23, 0x25,
                                        0xaf, 0x02, 0x1a, 0x68, 0xf7, 0x07, 0x51, 0x1a };
    uint8_t secret[SECAGG_SECRET], public_key[SECAGG_PUBLIC];

    CHECK_OK(secagg_identity_make(seed, secret, public_key));
    CHECK(memcmp(expected, public_key, sizeof(expected)) == 0);
    CHECK(memcmp(secret, seed, sizeof(seed)) == 0);
}

/* RFC 7748, 6.1: both ends of an agreement derive one key, which is BLAKE2b of that shared secret. */
static void test_agreement_is_that_of_rfc_7748(void)
{
    static const uint8_t alice[] = { 0x77, 0x07, 0x6d, 0x0a, 0x73, 0x18, 0xa5, 0x7d,
                                     0x3c, 0x16, 0xc1, 0x72, 0x51, 0xb2, 0x66, 0x45,
                                     0xdf, 0x4c, 0x2f, 0x87, 0xeb, 0xc0, 0x99, 0x2a,
                                     0xb1, 0x77, 0xfb, 0xa5, 0x1d, 0xb9, 0x2c, 0x2a };
    static const uint8_t bob[] = { 0x5d, 0xab, 0x08, 0x7e, 0x62, 0x4a, 0x8a, 0x4b,
                                   0x79, 0xe1, 0x7f, 0x8b, 0x83, 0x80, 0x0e, 0xe6,
                                   0x6f, 0x3b, 0xb1, 0x29, 0x26, 0x18, 0xb6, 0xfd,
                                   0x1c, 0x2f, 0x8b, 0x27, 0xff, 0x88, 0xe0, 0xeb };
    static const uint8_t shared[] = { 0x4a, 0x5d, 0x9d, 0x5b, 0xa4, 0xce, 0x2d, 0xe1,
                                      0x72, 0x8e, 0x3b, 0xf4, 0x80, 0x35, 0x0f, 0x25,
                                      0xe0, 0x7e, 0x21, 0xc9, 0x47, 0xd1, 0x9e, 0x33,
                                      0x76, 0xf0, 0x9b, 0x3c, 0x1e, 0x16, 0x17, 0x42 };
    static const uint8_t roster[HASH] = { 5 }, zero[KEY];
    const uint8_t numbers[16] = { 1, [8] = 2 };
    uint8_t a[KEY], b[KEY], other[KEY], of_alice[KEY], of_bob[KEY];
    crypto_generichash_state state;

    crypto_scalarmult_base(of_alice, alice);
    crypto_scalarmult_base(of_bob, bob);
    CHECK_OK(secagg_shared_key("use", roster, alice, of_bob, 1, 2, a));
    CHECK_OK(secagg_shared_key("use", roster, bob, of_alice, 1, 2, b));
    CHECK(memcmp(a, b, KEY) == 0);
    crypto_generichash_init(&state, shared, KEY, KEY);
    crypto_generichash_update(&state, (const uint8_t *)"use", 4);
    crypto_generichash_update(&state, roster, HASH);
    crypto_generichash_update(&state, numbers, sizeof(numbers));
    crypto_generichash_final(&state, other, KEY);
    CHECK(memcmp(a, other, KEY) == 0);
    /* Another use, direction or roster has another key; a key of small order has none. */
    CHECK_OK(secagg_shared_key("other", roster, alice, of_bob, 1, 2, other));
    CHECK(memcmp(a, other, KEY) != 0);
    CHECK_OK(secagg_shared_key("use", roster, alice, of_bob, 2, 1, other));
    CHECK(memcmp(a, other, KEY) != 0);
    CHECK_OK(secagg_shared_key("use", shared, alice, of_bob, 1, 2, other));
    CHECK(memcmp(a, other, KEY) != 0);
    CHECK_STATUS(STATUS_MISMATCH, secagg_shared_key("use", roster, alice, zero, 1, 2, other));
}

static void test_impossible_settings_are_refused(void)
{
    const struct secagg_config good = {
        .participants = 5, .threshold = 4, .bits = 32, .count = 4
    };
    static const uint32_t thresholds[] = { 0, 1, 2, 6 };
    struct secagg_config config = good;

    CHECK_OK(secagg_check(&config));
    for (size_t i = 0; i < sizeof(thresholds) / sizeof(*thresholds); i++) {
        config.threshold = thresholds[i];
        CHECK_STATUS(STATUS_USAGE, secagg_check(&config));
    }
    config = good;
    config.bits = 16;
    CHECK_STATUS(STATUS_USAGE, secagg_check(&config));
    config = good;
    config.count = 0;
    CHECK_STATUS(STATUS_USAGE, secagg_check(&config));
    config = good;
    config.participants = config.threshold = 1;
    CHECK_STATUS(STATUS_USAGE, secagg_check(&config));
    CHECK_INT(4, secagg_default_threshold(5));
    CHECK_INT(20, secagg_default_threshold(30));
    CHECK_INT(2, secagg_default_threshold(2));
}

/* No message is longer than was promised. */
static void test_sizes_are_as_announced(void)
{
    struct round round;

    begin(&round, 5, 4, 32, 40, 1);
    for (int stage = 0; stage < SECAGG_STAGES; stage++) {
        get_task(&round, 0);
        CHECK_OK(answer(&round, 0));
        CHECK_INT(secagg_task_bytes(&round.federation.config, (enum secagg_stage)stage, 5, 4),
                  round.task.length);
        CHECK_INT(secagg_answer_bytes(&round.federation.config, (enum secagg_stage)stage, 5, 4),
                  round.answer.length);
        CHECK(secagg_stage_name((enum secagg_stage)stage)[0]);
        run_stages(&round, 1);
    }
    CHECK_STATUS(STATUS_MISMATCH, secagg_server_close(round.federation.server));
    end(&round);
}

const struct test tests[] = {
    { "the sum is exact", NULL, property_the_sum_is_exact },
    { "one of five drops at every stage", test_one_of_five_drops_at_every_stage, NULL },
    { "ten of thirty drop at every stage", test_ten_of_thirty_drop_at_every_stage, NULL },
    { "participants drop anywhere", NULL, property_participants_drop_anywhere },
    { "below the threshold the round is lost", test_below_the_threshold_the_round_is_lost,
      NULL },
    { "masked vectors are uniform", test_masked_vectors_are_uniform, NULL },
    { "a substituted key is refused", test_a_substituted_key_is_refused, NULL },
    { "keys of another round are refused", test_keys_of_another_round_are_refused, NULL },
    { "a short or foreign roster is refused", test_a_short_or_foreign_roster_is_refused, NULL },
    { "nobody takes part twice", test_nobody_takes_part_twice, NULL },
    { "different rosters are found out", test_different_rosters_are_found_out, NULL },
    { .name = "participants who are told different tasks do not unmask",
      .run = test_different_tasks_are_found_out },
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
    { "a round survives restarts", test_a_round_survives_restarts, NULL },
    { "every allocation may fail", test_every_allocation_may_fail, NULL },
    { "identities are those of RFC 8032", test_identities_are_those_of_rfc_8032, NULL },
    { "agreement is that of RFC 7748", test_agreement_is_that_of_rfc_7748, NULL },
    { "impossible settings are refused", test_impossible_settings_are_refused, NULL },
    { "sizes are as announced", test_sizes_are_as_announced, NULL },
    { 0 },
};
