/* SPDX-License-Identifier: MIT */
/* quantize_test.c - fixed point: errors as promised, sums that are exact, no room refused. */
#include "fed/quantize.h"

#include <math.h>
#include <string.h>

#include "base/test.h"

enum { VALUES = 257, MOST = 40 };

static void draw_values(struct rng *rng, double range, float *values)
{
    for (int i = 0; i < VALUES; i++)
        values[i] = (float)((2 * rng_float(rng) - 1) * range);
    values[0] = (float)range;
    values[1] = -(float)range;
    values[2] = 0;
}

/* Any number of participants whose values are extreme: the sum decodes to the sum within n steps / 2. */
static void property_sums_are_right_within_half_a_step_each(struct rng *rng)
{
    const int bits = rng_below(rng, 2) ? 32 : 64;
    const uint32_t n = 1 + (uint32_t)rng_below(rng, MOST);
    const double range = ldexp(1, (int)rng_below(rng, 20) - 10);
    uint64_t sum[VALUES] = { 0 }, words[VALUES];
    uint32_t *const sum32 = (uint32_t *)sum, *const words32 = (uint32_t *)words;
    double expected[VALUES] = { 0 }, actual[VALUES];
    float values[VALUES];
    struct quantize quantize;

    CHECK_OK(quantize_init(bits, n, range, 0, &quantize));
    for (uint32_t u = 0; u < n; u++) {
        draw_values(rng, range, values);
        CHECK_INT(0, quantize_encode(&quantize, values, VALUES, NULL, words));
        for (int i = 0; i < VALUES; i++) {
            expected[i] += values[i];
            if (bits == 32)
                sum32[i] += words32[i];
            else
                sum[i] += words[i];
        }
    }
    quantize_decode(&quantize, sum, VALUES, actual);
    for (int i = 0; i < VALUES; i++)
        CHECK(fabs(actual[i] - expected[i]) <= n * quantize.step * 0.5000001);
}

static void test_values_beyond_the_range_are_clipped_and_counted(void)
{
    const float values[] = { 2, -3, NAN, INFINITY, 0.5F, 1 };
    const double expected[] = { 1, -1, 0, 1, 0.5, 1 };
    uint32_t words[6];
    double back[6];
    struct quantize quantize;

    CHECK_OK(quantize_init(32, 5, 1, 0, &quantize));
    CHECK_INT(4, quantize_encode(&quantize, values, 6, NULL, words));
    quantize_decode(&quantize, words, 6, back);
    for (int i = 0; i < 6; i++)
        CHECK_CLOSE(expected[i], back[i], quantize.step);
}

static void test_stochastic_rounding_is_right_on_average(void)
{
    enum { DRAWS = 20000 };
    static const uint8_t key[NOISE_KEY] = { 7 };
    const struct quantize quantize = { .bits = 64, .most = 4, .range = 1, .step = 0.25 };
    const float value = 0.3F;
    struct noise noise;
    double sum = 0;

    noise_init(&noise, key);
    for (int i = 0; i < DRAWS; i++) {
        uint64_t word;
        double back;
        CHECK_INT(0, quantize_encode(&quantize, &value, 1, &noise, &word));
        quantize_decode(&quantize, &word, 1, &back);
        CHECK(back == 0.25 || back == 0.5);
        sum += back;
    }
    CHECK_CLOSE(0.3, sum / DRAWS, 4 * 0.1 / sqrt(DRAWS));
}

static void test_too_little_room_is_refused(void)
{
    struct quantize quantize;

    CHECK_STATUS(STATUS_USAGE, quantize_init(16, 5, 1, 0, &quantize));
    CHECK_STATUS(STATUS_USAGE, quantize_init(32, 0, 1, 0, &quantize));
    CHECK_STATUS(STATUS_USAGE, quantize_init(32, 5, 0, 0, &quantize));
    CHECK_STATUS(STATUS_USAGE, quantize_init(32, 5, NAN, 0, &quantize));
    CHECK_STATUS(STATUS_USAGE, quantize_init(32, 1 << 22, 1, 0, &quantize));
    CHECK_MESSAGE("take 64 bits");
    CHECK_OK(quantize_init(64, 1 << 22, 1, 0, &quantize));
    CHECK_STATUS(STATUS_USAGE, quantize_init(32, 5, 1, 1e6, &quantize));
    CHECK_OK(quantize_init(32, 100, 1, 1, &quantize));
    /* All values and 16 deviations fit. */
    CHECK((100 + 16) * (double)quantize.most < 0x1p31);
}

const struct test tests[] = {
    { "sums are right within half a step a participant", NULL,
      property_sums_are_right_within_half_a_step_each },
    { "values beyond the range are clipped and counted",
      test_values_beyond_the_range_are_clipped_and_counted, NULL },
    { "stochastic rounding is right on average", test_stochastic_rounding_is_right_on_average,
      NULL },
    { "too little room is refused", test_too_little_room_is_refused, NULL },
    { 0 },
};
