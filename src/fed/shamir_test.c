/* SPDX-License-Identifier: MIT */
/* shamir_test.c - any threshold of shares makes the secret; one fewer says nothing of it. */
#include "fed/shamir.h"

#include <string.h>

#include "base/test.h"

enum { MOST = 20 };

static void draw_bytes(struct rng *rng, uint8_t *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        bytes[i] = (uint8_t)rng_u32(rng);
}

static void property_a_threshold_of_shares_makes_the_secret(struct rng *rng)
{
    const uint32_t n = 1 + (uint32_t)rng_below(rng, MOST);
    const uint32_t threshold = 1 + (uint32_t)rng_below(rng, n);
    uint8_t secret[SHAMIR_SECRET], back[SHAMIR_SECRET], key[NOISE_KEY];
    uint8_t shares[MOST][SHAMIR_SHARE];
    uint32_t holders[MOST];
    uint64_t weights[MOST];
    const uint8_t *some[MOST];
    struct noise noise;

    draw_bytes(rng, secret, sizeof(secret));
    draw_bytes(rng, key, sizeof(key));
    if (rng_below(rng, 4) == 0)
        memset(secret, 255, sizeof(secret));
    for (uint32_t i = 0; i < n; i++)
        holders[i] = 1000 * i + (uint32_t)rng_below(rng, 1000);
    noise_init(&noise, key);
    CHECK_OK(shamir_split(secret, threshold, holders, n, &noise, shares));
    /* Shuffle, and take the first `threshold`. */
    for (uint32_t i = n; i-- > 1;) {
        const uint32_t j = (uint32_t)rng_below(rng, i + 1), holder = holders[i];
        uint8_t share[SHAMIR_SHARE];
        memcpy(share, shares[i], sizeof(share));
        memcpy(shares[i], shares[j], sizeof(share));
        memcpy(shares[j], share, sizeof(share));
        holders[i] = holders[j];
        holders[j] = holder;
    }
    for (uint32_t i = 0; i < n; i++) {
        CHECK(shamir_is_share(shares[i]));
        some[i] = shares[i];
    }
    shamir_weights(holders, threshold, weights);
    CHECK(shamir_join(some, weights, threshold, back));
    CHECK(memcmp(secret, back, sizeof(secret)) == 0);
    /* One bit of one share, and it is another secret or none. */
    shares[0][rng_below(rng, SHAMIR_SHARE)] ^= (uint8_t)(1 << rng_below(rng, 3));
    if (shamir_is_share(shares[0]) && shamir_join(some, weights, threshold, back))
        CHECK(memcmp(secret, back, sizeof(secret)) != 0);
}

/* One share of two: its values are as often in each half of the field whatever the secret is. */
static void test_a_share_alone_says_nothing(void)
{
    enum { DRAWS = 4000 };
    static const uint32_t holders[] = { 0, 1 };
    uint8_t secret[SHAMIR_SECRET], shares[2][SHAMIR_SHARE];
    uint8_t key[NOISE_KEY] = { 9 };
    struct noise noise;

    noise_init(&noise, key);
    for (int value = 0; value < 2; value++) {
        int high[SHAMIR_LIMBS] = { 0 };
        memset(secret, value ? 255 : 0, sizeof(secret));
        for (int i = 0; i < DRAWS; i++) {
            CHECK_OK(shamir_split(secret, 2, holders, 2, &noise, shares));
            for (int limb = 0; limb < SHAMIR_LIMBS; limb++)
                high[limb] += shares[1][8 * limb + 7] >> 4; /* bit 60 */
        }
        for (int limb = 0; limb < SHAMIR_LIMBS; limb++)
            CHECK(high[limb] > DRAWS / 2 - 150 && high[limb] < DRAWS / 2 + 150);
    }
}

/* A worked example: the line 5 + 3 x over the field, by hand. */
static void test_a_known_line(void)
{
    static const uint32_t holders[] = { 0, 6 };
    uint8_t first[SHAMIR_SHARE] = { 8 }, second[SHAMIR_SHARE] = { 26 }, back[SHAMIR_SECRET];
    const uint8_t *shares[] = { first, second };
    uint64_t weights[2];

    shamir_weights(holders, 2, weights);
    CHECK(shamir_join(shares, weights, 2, back));
    CHECK_INT(5, back[0]);
    for (int i = 1; i < SHAMIR_SECRET; i++)
        CHECK_INT(0, back[i]);
    memset(first, 255, 8);
    CHECK(!shamir_is_share(first));
    first[7] = 0x1f; /* 2^61 - 1 itself */
    CHECK(!shamir_is_share(first));
    first[0] = 0xfe;
    CHECK(shamir_is_share(first));
}

const struct test tests[] = {
    { "a threshold of shares makes the secret", NULL,
      property_a_threshold_of_shares_makes_the_secret },
    { "a share alone says nothing", test_a_share_alone_says_nothing, NULL },
    { "a known line", test_a_known_line, NULL },
    { 0 },
};
