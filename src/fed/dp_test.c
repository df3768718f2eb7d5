/* SPDX-License-Identifier: MIT */
/* dp_test.c - clipping and noise have the sizes that the accountant is told. */
#include "fed/dp.h"

#include <math.h>
#include <string.h>

#include "base/test.h"

enum { COUNT = 1000 };

static void begin(struct noise *noise, uint8_t number)
{
    uint8_t key[NOISE_KEY] = { number };

    noise_init(noise, key);
}

static void property_a_clipped_update_is_within_the_clip(struct rng *rng)
{
    const size_t count = 1 + rng_below(rng, COUNT);
    const double clip = exp(4 * rng_normal(rng));
    const double scale = clip * exp(4 * rng_normal(rng));
    float update[COUNT], before[COUNT];

    for (size_t i = 0; i < count; i++)
        before[i] = update[i] = (float)(scale * rng_normal(rng));
    const double norm = dp_norm(before, count);
    CHECK(dp_clip(update, count, clip) == norm);
    CHECK(dp_norm(update, count) <= clip);
    if (norm <= clip)
        CHECK(memcmp(before, update, count * sizeof(float)) == 0);
    else
        CHECK_CLOSE(1, dp_norm(update, count) / clip, 1e-5);
}

static void test_an_update_that_is_not_finite_becomes_zero(void)
{
    float update[] = { 1, NAN, 3 };

    CHECK(isinf(dp_clip(update, 3, 5)));
    CHECK(update[0] == 0 && update[1] == 0 && update[2] == 0);
    CHECK(dp_bit(INFINITY, 5) == -0.5F);
}

/* Norms drawn from one distribution: clip ends where half of them are below. */
static void test_adaptive_clipping_finds_the_quantile(void)
{
    const struct dp_config config = { .place = DP_CENTRAL,
                                      .clip = 0.01,
                                      .noise = 1,
                                      .adaptive = true,
                                      .quantile = 0.5,
                                      .rate = 0.2,
                                      .epsilon = 1,
                                      .delta = 1e-5 };
    double clip = config.clip;
    struct noise noise;
    struct rng rng;

    CHECK_OK(dp_check(&config));
    begin(&noise, 1);
    rng_init(&rng, 4, 2);
    for (int round = 0; round < 200; round++) {
        double sum = 0;
        for (int u = 0; u < 100; u++)
            sum += dp_bit(3 * exp(0.5 * rng_normal(&rng)), clip);
        CHECK_OK(dp_add(&noise, 0.5, dp_bit_multiplier(&config), &sum, 1));
        clip = dp_adapt(&config, clip, sum, 100);
    }
    CHECK(clip > 2.4 && clip < 3.6);
    /* Both releases cost what one with the multiplier `noise` would. */
    CHECK_CLOSE(1, pow(dp_multiplier(&config), -2) + pow(dp_bit_multiplier(&config), -2),
                1e-12);
}

static void test_central_noise_has_its_deviation(void)
{
    enum { DRAWS = 20000 };
    static double sum[DRAWS];
    struct noise noise;
    double mean = 0, squares = 0;

    begin(&noise, 2);
    for (int i = 0; i < DRAWS; i++)
        sum[i] = 100;
    CHECK_OK(dp_add(&noise, 3, 1.5, sum, DRAWS));
    for (int i = 0; i < DRAWS; i++) {
        mean += sum[i] - 100;
        squares += (sum[i] - 100) * (sum[i] - 100);
    }
    CHECK_CLOSE(0, mean / DRAWS, 4 * 4.5 / sqrt(DRAWS));
    CHECK_CLOSE(1, squares / DRAWS / (4.5 * 4.5), 4 * sqrt(2.0 / DRAWS));
    sum[7] = NAN;
    CHECK_STATUS(STATUS_MISMATCH, dp_add(&noise, 3, 1.5, sum, DRAWS));
    CHECK_MESSAGE("value 7");
    sum[7] = 1;
    const double before = sum[3];
    CHECK_OK(dp_add(&noise, 3, 0, sum, DRAWS));
    CHECK(sum[3] == before);
}

/* The shares of the fewest survivors add up to all of the noise, rounding included; of more, to more. */
static void test_shares_of_noise_add_up(void)
{
    enum { PARTICIPANTS = 12, FEWEST = 8, WORDS = 5000 };
    const double clip = 2, multiplier = 1.25;
    static uint32_t words[WORDS];
    static double sum[WORDS];
    struct quantize quantize;
    struct dp_share share;
    double squares = 0;

    CHECK_OK(quantize_init(32, PARTICIPANTS, clip, multiplier * clip, &quantize));
    CHECK_OK(dp_share_init(&quantize, clip, multiplier, FEWEST, WORDS, &share));
    CHECK(dp_share_multiplier(&share, FEWEST) >= multiplier);
    CHECK_CLOSE(multiplier, dp_share_multiplier(&share, FEWEST), 1e-5);
    CHECK_CLOSE(multiplier * sqrt(1.5), dp_share_multiplier(&share, PARTICIPANTS), 1e-5);
    memset(words, 0, sizeof(words));
    for (int u = 0; u < FEWEST; u++) {
        struct noise noise;
        begin(&noise, (uint8_t)(20 + u));
        dp_share_add(&share, 32, &noise, words, WORDS);
    }
    quantize_decode(&quantize, words, WORDS, sum);
    for (int i = 0; i < WORDS; i++)
        squares += sum[i] * sum[i];
    CHECK_CLOSE(1, squares / WORDS / pow(multiplier * clip, 2), 4 * sqrt(2.0 / WORDS));
}

static void test_shares_too_coarse_or_too_fine_are_refused(void)
{
    const struct quantize coarse = { .bits = 32, .most = 4, .range = 1, .step = 0.25 };
    const struct quantize fine = { .bits = 64, .most = 1LL << 40, .range = 1, .step = 0x1p-40 };
    struct dp_share share;

    CHECK_STATUS(STATUS_USAGE, dp_share_init(&coarse, 1, 1, 10, 10, &share));
    CHECK_MESSAGE("64 bits");
    CHECK_STATUS(STATUS_USAGE, dp_share_init(&fine, 1, 1, 10, 10, &share));
    CHECK_MESSAGE("larger range");
    CHECK_STATUS(STATUS_USAGE, dp_share_init(&fine, 1, 1, 0, 10, &share));
    CHECK_OK(dp_share_init(&coarse, 1, 0, 10, 10, &share));
    CHECK(dp_share_multiplier(&share, 10) == 0);
}

static void test_nonsense_is_refused(void)
{
    const struct dp_config good = {
        .place = DP_CENTRAL, .clip = 1, .noise = 1, .epsilon = 1, .delta = 1e-5
    };
    struct dp_config config = good;

    CHECK_OK(dp_check(&config));
    config.clip = 0;
    CHECK_STATUS(STATUS_USAGE, dp_check(&config));
    config = good;
    config.noise = -1;
    CHECK_STATUS(STATUS_USAGE, dp_check(&config));
    config = good;
    config.delta = 1;
    CHECK_STATUS(STATUS_USAGE, dp_check(&config));
    config = good;
    config.epsilon = NAN;
    CHECK_STATUS(STATUS_USAGE, dp_check(&config));
    config = good;
    config.adaptive = true;
    CHECK_STATUS(STATUS_USAGE, dp_check(&config));
    config.place = DP_NONE;
    CHECK_OK(dp_check(&config));
}

const struct test tests[] = {
    { "a clipped update is within the clip", NULL,
      property_a_clipped_update_is_within_the_clip },
    { "an update that is not finite becomes zero",
      test_an_update_that_is_not_finite_becomes_zero, NULL },
    { "adaptive clipping finds the quantile", test_adaptive_clipping_finds_the_quantile, NULL },
    { "central noise has its deviation", test_central_noise_has_its_deviation, NULL },
    { "shares of noise add up", test_shares_of_noise_add_up, NULL },
    { "shares too coarse or too fine are refused",
      test_shares_too_coarse_or_too_fine_are_refused, NULL },
    { "nonsense is refused", test_nonsense_is_refused, NULL },
    { 0 },
};
