/* SPDX-License-Identifier: MIT */
/* secagg_test.c - sums that are exact however participants drop out, and of which the coordinator sees nothing else. */
#include "fed/secagg.h"

#include <math.h>
#include <sodium.h>
#include <string.h>

#include "base/mem.h"
#include "base/test.h"
#include "fed/secagg_round.h"
#include "fed/secagg_round_testing.h"

/* Sums ----------------------------------------------------------------------------------- */

static void property_the_sum_is_exact(struct rng *rng)
{
    const uint32_t n = 2 + (uint32_t)rng_below(rng, 5);
    const uint32_t threshold = n / 2 + 1 + (uint32_t)rng_below(rng, n - n / 2);
    bool all[SECAGG_TEST_MOST];
    struct round round;

    memset(all, true, sizeof(all));
    round_begin(&round, n, threshold < 2 ? 2 : threshold, rng_below(rng, 2) ? 32 : 64,
                1 + rng_below(rng, 3000), rng_u32(rng));
    round_run_stages(&round, SECAGG_STAGES);
    round_check_sum(&round, all);
    round_end(&round);
}

/* `drop` of n are gone from a stage on: the sum is of those who gave a masked vector. */
static void drop_from(uint32_t n, uint32_t drop, enum secagg_stage stage, uint32_t number)
{
    bool counted[SECAGG_TEST_MOST];
    struct round round;
    struct rng rng;

    round_begin(&round, n, secagg_default_threshold(n), 32, 50, number);
    rng_init(&rng, number, 2);
    memset(counted, true, sizeof(counted));
    round_run_stages(&round, stage);
    for (uint32_t gone = 0; gone < drop;) {
        const uint32_t i = (uint32_t)rng_below(&rng, n);
        gone += !round.federation.gone[i];
        round.federation.gone[i] = true;
        counted[i] = stage > SECAGG_MASKED;
    }
    round_run_stages(&round, SECAGG_STAGES - stage);
    CHECK_INT(stage > SECAGG_MASKED ? n : n - drop,
              secagg_server_count(round.federation.server, SECAGG_MASKED));
    round_check_sum(&round, counted);
    round_end(&round);
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

    round_begin(&round, n, secagg_default_threshold(n), 32, 20, rng_u32(rng));
    memset(counted, true, sizeof(counted));
    for (int stage = 0; stage < SECAGG_STAGES; stage++) {
        while (left > 0 && rng_below(rng, 2)) {
            const uint32_t i = (uint32_t)rng_below(rng, n);
            left -= !round.federation.gone[i];
            round.federation.gone[i] = true;
            if (stage <= SECAGG_MASKED)
                counted[i] = false;
        }
        round_run_stages(&round, 1);
    }
    round_check_sum(&round, counted);
    round_end(&round);
}

static void test_below_the_threshold_the_round_is_lost(void)
{
    for (int stage = 0; stage < SECAGG_STAGES; stage++) {
        struct round round;
        uint32_t sum[4];

        round_begin(&round, 5, 4, 32, 4, (uint32_t)stage);
        round_run_stages(&round, stage);
        round.federation.gone[1] = round.federation.gone[3] = true;
        CHECK_STATUS(STATUS_MISMATCH, round_run_stage(&round));
        CHECK_MESSAGE("participants answered stage");
        CHECK_STATUS(STATUS_MISMATCH, secagg_server_sum(round.federation.server, NULL, sum));
        round_end(&round);
    }
}

/* What the coordinator sees ---------------------------------------------------------------- */

/* Vectors of zeros: bytes of what it is sent are as often each of 256. */
static void test_masked_vectors_are_uniform(void)
{
    enum { COUNT = 20000 };
    struct round round;

    round_begin(&round, 4, 3, 32, COUNT, 11);
    for (uint32_t i = 0; i < 4; i++)
        memset(round.words[i], 0, round.bytes);
    round_run_stages(&round, SECAGG_MASKED);
    uint8_t *before = NULL;
    for (uint32_t i = 0; i < 4; i++) {
        double chi = 0, same = 0;
        int count[256] = { 0 };

        round_get_task(&round, i);
        CHECK_OK(round_answer(&round, i));
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
    round_end(&round);
}

/* Restarts --------------------------------------------------------------------------------- */

/* Every participant is saved and loaded before every stage, and the coordinator hears all again. */
static void test_a_round_survives_restarts(void)
{
    bool all[5] = { true, true, true, true, true };
    struct fed_buffer state;
    struct round round;

    round_begin(&round, 5, 4, 64, 30, 3);
    fed_buffer_init(&state, 1 << 20);
    for (int stage = 0; stage < SECAGG_STAGES; stage++) {
        for (uint32_t i = 0; i < 5; i++) {
            struct secagg_client *loaded;

            round_get_task(&round, i);
            if (stage > 0) /* half-way: the task was accepted, the answer lost */
                CHECK_OK(round_answer(&round, i));
            fed_buffer_clear(&state);
            CHECK_OK(secagg_client_save(round.federation.clients[i], &state));
            CHECK_OK(
                secagg_client_load(&round.federation.config, &round.federation.identities[i],
                                   &round.federation.trust, state.data, state.length, &loaded));
            secagg_client_destroy(round.federation.clients[i]);
            round.federation.clients[i] = loaded;
        }
        round_run_stages(&round, 1);
    }
    round_check_sum(&round, all);
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
    round_end(&round);
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

    round_begin(&round, 5, 4, 32, 40, 1);
    for (int stage = 0; stage < SECAGG_STAGES; stage++) {
        round_get_task(&round, 0);
        CHECK_OK(round_answer(&round, 0));
        CHECK_INT(secagg_task_bytes(&round.federation.config, (enum secagg_stage)stage, 5, 4),
                  round.task.length);
        CHECK_INT(secagg_answer_bytes(&round.federation.config, (enum secagg_stage)stage, 5, 4),
                  round.answer.length);
        CHECK(secagg_stage_name((enum secagg_stage)stage)[0]);
        round_run_stages(&round, 1);
    }
    CHECK_STATUS(STATUS_MISMATCH, secagg_server_close(round.federation.server));
    round_end(&round);
}

const struct test tests[] = {
    { "the sum is exact", NULL, property_the_sum_is_exact },
    { "one of five drops at every stage", test_one_of_five_drops_at_every_stage, NULL },
    { "ten of thirty drop at every stage", test_ten_of_thirty_drop_at_every_stage, NULL },
    { "participants drop anywhere", NULL, property_participants_drop_anywhere },
    { "below the threshold the round is lost", test_below_the_threshold_the_round_is_lost,
      NULL },
    { "masked vectors are uniform", test_masked_vectors_are_uniform, NULL },
    { "a round survives restarts", test_a_round_survives_restarts, NULL },
    { "every allocation may fail", test_every_allocation_may_fail, NULL },
    { "identities are those of RFC 8032", test_identities_are_those_of_rfc_8032, NULL },
    { "agreement is that of RFC 7748", test_agreement_is_that_of_rfc_7748, NULL },
    { "impossible settings are refused", test_impossible_settings_are_refused, NULL },
    { "sizes are as announced", test_sizes_are_as_announced, NULL },
    { 0 },
};
