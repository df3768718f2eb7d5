/* SPDX-License-Identifier: MIT */
/* noise_test.c - known answers of ChaCha20; the shape of the discrete Gaussian. */
#include "fed/noise.h"

#include <math.h>
#include <string.h>

#include "base/test.h"

/* RFC 8439, A.1, test vectors 1 and 2: keystream of key 0, nonce 0, counters 0 and 1. */
static void test_stream_is_that_of_rfc_8439(void)
{
    static const uint8_t key[NOISE_KEY];
    struct noise noise;
    uint8_t bytes[64];
    static const uint8_t first[] = { 0x76, 0xb8, 0xe0, 0xad, 0xa0, 0xf1, 0x3d, 0x90, 0x40, 0x5d,
                                     0x6a, 0xe5, 0x53, 0x86, 0xbd, 0x28, 0xbd, 0xd2, 0x19, 0xb8,
                                     0xa0, 0x8d, 0xed, 0x1a, 0xa8, 0x36, 0xef, 0xcc, 0x8b, 0x77,
                                     0x0d, 0xc7, 0xda, 0x41, 0x59, 0x7c, 0x51, 0x57, 0x48, 0x8d,
                                     0x77, 0x24, 0xe0, 0x3f, 0xb8, 0xd8, 0x4a, 0x37, 0x6a, 0x43,
                                     0xb8, 0xf4, 0x15, 0x18, 0xa1, 0x1c, 0xc3, 0x87, 0xb6, 0x69,
                                     0xb2, 0xee, 0x65, 0x86 };
    static const uint8_t second[] = { 0x9f, 0x07, 0xe7, 0xbe, 0x55, 0x51, 0x38, 0x7a };

    noise_init(&noise, key);
    for (int i = 0; i < 8; i++) {
        const uint64_t word = noise_u64(&noise);
        for (int k = 0; k < 8; k++)
            bytes[8 * i + k] = (uint8_t)(word >> 8 * k);
    }
    CHECK(memcmp(bytes, first, sizeof(first)) == 0);
    const uint64_t next = noise_u64(&noise);
    for (int k = 0; k < 8; k++)
        CHECK_INT(second[k], (uint8_t)(next >> 8 * k));
    noise_release(&noise);
}

static void begin(struct noise *noise, uint8_t number)
{
    uint8_t key[NOISE_KEY] = { number };

    noise_init(noise, key);
}

static void test_refills_go_on_where_the_buffer_ended(void)
{
    struct noise noise;
    uint64_t last = 0, same = 0;

    begin(&noise, 1);
    for (int i = 0; i < 4 * NOISE_BUFFER / 8; i++) {
        const uint64_t word = noise_u64(&noise);
        same += word == last;
        last = word;
    }
    CHECK_INT(0, same);
    CHECK_INT(4 * NOISE_BUFFER / 64, noise.block);
    begin(&noise, 1);
    const uint64_t first = noise_u64(&noise);
    noise.at = NOISE_BUFFER;
    CHECK(noise_u64(&noise) != first);
}

static void test_below_is_uniform(void)
{
    enum { SIDES = 6, DRAWS = 60000 };
    int count[SIDES] = { 0 };
    struct noise noise;
    double chi = 0;

    begin(&noise, 2);
    for (int i = 0; i < DRAWS; i++)
        count[noise_below(&noise, SIDES)]++;
    for (int i = 0; i < SIDES; i++)
        chi += pow(count[i] - DRAWS / SIDES, 2) / (DRAWS / SIDES);
    CHECK(chi < 20.5); /* 0.999 of chi-square with 5 degrees */
    CHECK_INT(0, noise_below(&noise, 1));
    CHECK(noise_below(&noise, UINT64_MAX) < UINT64_MAX);
}

/* Counts of small deviations follow the formula. */
static void test_small_gaussians_have_their_probabilities(void)
{
    enum { REACH = 8, DRAWS = 100000 };
    static const uint32_t deviations[] = { 1, 2, 3 };

    for (size_t d = 0; d < sizeof(deviations) / sizeof(*deviations); d++) {
        const double variance = (double)deviations[d] * deviations[d];
        int count[2 * REACH + 1] = { 0 };
        struct noise noise;
        double total = 0, chi = 0;
        int cells = 0;

        begin(&noise, (uint8_t)(3 + d));
        for (int i = 0; i < DRAWS; i++) {
            const int64_t k = noise_gaussian(&noise, deviations[d]);
            if (k >= -REACH && k <= REACH)
                count[k + REACH]++;
        }
        for (int k = -60; k <= 60; k++)
            total += exp(-k * k / 2.0 / variance);
        for (int k = -REACH; k <= REACH; k++) {
            const double expected = DRAWS * exp(-k * k / 2.0 / variance) / total;
            if (expected < 20)
                continue;
            chi += pow(count[k + REACH] - expected, 2) / expected;
            cells++;
        }
        CHECK(cells >= 7);
        CHECK(chi < cells + 4 * sqrt(2.0 * cells));
    }
}

/* Mean, variance and the fourth moment of large ones, up to the largest allowed. */
static void test_large_gaussians_have_their_moments(void)
{
    enum { DRAWS = 40000 };
    static const uint32_t deviations[] = { 100, 1000003, NOISE_DEVIATION };

    for (size_t d = 0; d < sizeof(deviations) / sizeof(*deviations); d++) {
        double sum = 0, squares = 0, fourth = 0;
        struct noise noise;

        begin(&noise, (uint8_t)(10 + d));
        for (int i = 0; i < DRAWS; i++) {
            const double x = (double)noise_gaussian(&noise, deviations[d]) / deviations[d];
            sum += x;
            squares += x * x;
            fourth += x * x * x * x;
        }
        CHECK_CLOSE(0, sum / DRAWS, 4 / sqrt(DRAWS));
        CHECK_CLOSE(1, squares / DRAWS, 4 * sqrt(2.0 / DRAWS));
        CHECK_CLOSE(3, fourth / DRAWS, 4 * sqrt(96.0 / DRAWS));
    }
}

const struct test tests[] = {
    { "the stream is that of RFC 8439", test_stream_is_that_of_rfc_8439, NULL },
    { "refills go on where the buffer ended", test_refills_go_on_where_the_buffer_ended, NULL },
    { "numbers below a bound are uniform", test_below_is_uniform, NULL },
    { "small gaussians have their probabilities", test_small_gaussians_have_their_probabilities,
      NULL },
    { "large gaussians have their moments", test_large_gaussians_have_their_moments, NULL },
    { 0 },
};
