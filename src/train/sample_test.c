/* SPDX-License-Identifier: MIT */
#include "train/sample.h"

#include <math.h>
#include <string.h>

#include "base/test.h"

enum { TOKENS = 8, DRAWS = 20000 };

static const float logits[TOKENS] = { 1, 3, 0.5f, 3, -1, 2, -30, 2.5f };

static int32_t token_at(struct sample *sample, const float *from, uint64_t position)
{
    int32_t token = -1;

    CHECK_OK(sample_next(sample, from, position, &token));
    return token;
}

static struct sample *make(struct sample_config config, int64_t vocabulary)
{
    struct sample *sample = NULL;

    CHECK_OK(sample_create(&config, vocabulary, &sample));
    return sample;
}

static void test_temperature_0_gives_the_first_largest(void)
{
    struct sample *sample = make((struct sample_config){ 0, 0, 1, 5 }, TOKENS);

    for (uint64_t i = 0; i < 100; i++)
        CHECK_INT(1, token_at(sample, logits, i));
    sample_destroy(sample);
}

/* Frequencies of draws against `expected`, which adds up to 1. */
static void check_frequencies(struct sample_config config, const double *expected)
{
    struct sample *sample = make(config, TOKENS);
    int64_t seen[TOKENS] = { 0 };

    for (uint64_t i = 0; i < DRAWS; i++)
        seen[token_at(sample, logits, i)]++;
    for (int t = 0; t < TOKENS; t++) {
        const double share = (double)seen[t] / DRAWS;
        const double deviation = sqrt(expected[t] * (1 - expected[t]) / DRAWS);
        if (fabs(share - expected[t]) > 4.5 * deviation)
            test_fail(__FILE__, __LINE__, "token %d: share %g instead of %g", t, share,
                      expected[t]);
    }
    sample_destroy(sample);
}

/* softmax of the logits over the temperature, over the tokens that stay. */
static void expect(const char *stays, double temperature, double out[TOKENS])
{
    double sum = 0;

    for (int t = 0; t < TOKENS; t++) {
        out[t] = stays[t] == '1' ? exp((double)logits[t] / temperature) : 0;
        sum += out[t];
    }
    for (int t = 0; t < TOKENS; t++)
        out[t] /= sum;
}

static void test_draws_follow_the_softmax(void)
{
    double expected[TOKENS];

    expect("11111111", 1, expected);
    check_frequencies((struct sample_config){ 1, 0, 1, 7 }, expected);
    expect("11111111", 2.5, expected);
    check_frequencies((struct sample_config){ 2.5, 0, 1, 8 }, expected);
}

static void test_top_k_keeps_k_and_the_smaller_of_equals(void)
{
    double expected[TOKENS];

    expect("01010101", 1.5, expected);
    check_frequencies((struct sample_config){ 1.5, 4, 1, 9 }, expected);
    expect("01000000", 1, expected);
    check_frequencies((struct sample_config){ 1, 1, 1, 9 }, expected);
    expect("11111111", 1, expected);
    check_frequencies((struct sample_config){ 1, 1000, 1, 9 }, expected);
}

/* Of the two with logit 3 each has 0.312 of all, that with 2.5 has 0.189. */
static void test_top_p_keeps_the_fewest_that_reach_it(void)
{
    double expected[TOKENS];

    expect("01000000", 1, expected);
    check_frequencies((struct sample_config){ 1, 0, 0.3, 11 }, expected);
    expect("01010000", 1, expected);
    check_frequencies((struct sample_config){ 1, 0, 0.32, 11 }, expected);
    check_frequencies((struct sample_config){ 1, 0, 0.6, 12 }, expected);
    expect("01010001", 1, expected);
    check_frequencies((struct sample_config){ 1, 0, 0.63, 13 }, expected);
    /* Among the first three those have 0.383, 0.383 and 0.233. */
    expect("01010000", 1, expected);
    check_frequencies((struct sample_config){ 1, 3, 0.75, 14 }, expected);
}

static void test_the_seed_decides(void)
{
    struct sample *one = make((struct sample_config){ 1, 0, 1, 21 }, TOKENS);
    struct sample *same = make((struct sample_config){ 1, 0, 1, 21 }, TOKENS);
    struct sample *other = make((struct sample_config){ 1, 0, 1, 22 }, TOKENS);
    int differ = 0;

    for (uint64_t i = 200; i-- > 0;) {
        const int32_t token = token_at(one, logits, i);
        CHECK_INT(token, token_at(same, logits, i));
        CHECK_INT(token, token_at(one, logits, i));
        differ += token != token_at(other, logits, i);
    }
    CHECK(differ > 20);
    sample_destroy(one);
    sample_destroy(same);
    sample_destroy(other);
}

/* What stays is what a sort would keep, with many ties. */
static void test_what_stays_is_what_sorting_keeps(struct rng *rng)
{
    enum { MOST = 200 };
    float values[MOST];
    const int64_t count = 1 + (int64_t)rng_below(rng, MOST);
    const int64_t k = 1 + (int64_t)rng_below(rng, (uint64_t)count);
    struct sample *sample = make((struct sample_config){ 50, k, 1, rng_u64(rng) }, count);

    for (int64_t i = 0; i < count; i++)
        values[i] = (float)rng_below(rng, 12);
    for (uint64_t i = 0; i < 50; i++) {
        const int32_t token = token_at(sample, values, i);
        int64_t before = 0;
        for (int64_t j = 0; j < count; j++)
            before += values[j] > values[token] || (values[j] == values[token] && j < token);
        CHECK(before < k);
    }
    sample_destroy(sample);
}

static void test_no_numbers_are_refused(void)
{
    struct sample *sample = make((struct sample_config){ 1, 0, 0.9, 3 }, 3);
    const float nan[] = { 1, NAN, 2 }, none[] = { -INFINITY, -INFINITY, -INFINITY };
    const float one[] = { -INFINITY, 0, -INFINITY };
    int32_t token = 77;

    CHECK_STATUS(STATUS_MISMATCH, sample_next(sample, nan, 0, &token));
    CHECK_STATUS(STATUS_MISMATCH, sample_next(sample, none, 0, &token));
    CHECK_INT(77, token);
    CHECK_INT(1, token_at(sample, one, 0));
    sample_destroy(sample);
}

static void test_settings_are_checked(void)
{
    CHECK_STATUS(STATUS_USAGE, sample_check(&(struct sample_config){ -1, 0, 1, 0 }));
    CHECK_MESSAGE("temperature -1");
    CHECK_STATUS(STATUS_USAGE, sample_check(&(struct sample_config){ NAN, 0, 1, 0 }));
    CHECK_STATUS(STATUS_USAGE, sample_check(&(struct sample_config){ 1, -2, 1, 0 }));
    CHECK_STATUS(STATUS_USAGE, sample_check(&(struct sample_config){ 1, 0, 0, 0 }));
    CHECK_STATUS(STATUS_USAGE, sample_check(&(struct sample_config){ 1, 0, 1.5, 0 }));
    CHECK_OK(sample_check(&(struct sample_config){ 1, 0, 1, 0 }));
}

const struct test tests[] = {
    { .name = "temperature 0 gives the first largest",
      .run = test_temperature_0_gives_the_first_largest },
    { .name = "draws follow the softmax", .run = test_draws_follow_the_softmax },
    { .name = "top-k keeps k, and the smaller of equals",
      .run = test_top_k_keeps_k_and_the_smaller_of_equals },
    { .name = "top-p keeps the fewest that reach it",
      .run = test_top_p_keeps_the_fewest_that_reach_it },
    { .name = "the seed decides", .run = test_the_seed_decides },
    { .name = "what stays is what sorting keeps",
      .property = test_what_stays_is_what_sorting_keeps },
    { .name = "no numbers are refused", .run = test_no_numbers_are_refused },
    { .name = "settings are checked", .run = test_settings_are_checked },
    { 0 },
};
