/* SPDX-License-Identifier: MIT */
/* mask_test.c - masks are ChaCha20's stream, and cancel. */
#include "fed/mask.h"

#include <string.h>

#include "base/mem.h"
#include "base/test.h"
#include "fed/noise.h"

/* RFC 8439, A.1, test vectors 1 and 2: the stream of key 0, with nonce 0, from counter 0. */
static void test_a_mask_is_the_stream_of_rfc_8439(void)
{
    static const uint32_t expected[] = {
        0xade0b876, 0x903df1a0, 0xe56a5d40, 0x28bd8653, 0xb819d2bd, 0x1aed8da0, 0xccef36a8,
        0xc70d778b, 0x7c5941da, 0x8d485751, 0x3fe02477, 0x374ad8b8, 0xf4b8436a, 0x1ca11815,
        0x69b687c3, 0x8665eeb2, 0xbee7079f, 0x7a385155, 0x7c97ba98, 0x0d082d73, 0xa0290fcb,
        0x6965e348, 0x3e53c612, 0xed7aee32, 0x7621b729, 0x434ee69c, 0xb03371d5, 0xd539d874,
        0x281fed31, 0x45fb0a51, 0x1f0ae1ac, 0x6f4d794b
    };
    const struct mask zero = { .subtract = false };
    uint32_t words[32] = { 0 };

    mask_add(&zero, 1, 32, words, 32, NULL);
    CHECK(memcmp(expected, words, sizeof(words)) == 0);
}

/* A long one is one stream, over the borders of what is worked on at once. */
static void test_a_long_mask_is_one_stream(void)
{
    enum { COUNT = 5003 };
    struct mask mask = { .key = { 1, 2, 3 } };
    static uint64_t words[COUNT];
    struct noise noise;

    memset(words, 0, sizeof(words));
    mask_add(&mask, 1, 64, words, COUNT, NULL);
    noise_init(&noise, mask.key);
    for (int i = 0; i < COUNT; i++)
        CHECK(noise_u64(&noise) == words[i]);
}

/* Masks added and subtracted leave what was there, whatever the pool and however long; a part is that of the whole. */
static void property_masks_cancel(struct rng *rng)
{
    enum { MASKS = 5 };
    const int bits = rng_below(rng, 2) ? 32 : 64;
    const size_t size = (size_t)bits / 8, count = rng_below(rng, 9000);
    struct mask masks[MASKS];
    uint8_t *words, *whole, *before;
    struct pool *pool;

    CHECK_OK(pool_create(1 + (int)rng_below(rng, 2), &pool));
    CHECK_OK(mem_alloc(count + 1, size, &words));
    CHECK_OK(mem_alloc(count + 1, size, &before));
    CHECK_OK(mem_alloc(count + 1, size, &whole));
    for (size_t i = 0; i < count * size; i++)
        words[i] = before[i] = (uint8_t)rng_u32(rng);
    for (int m = 0; m < MASKS; m++) {
        for (int i = 0; i < MASK_KEY; i++)
            masks[m].key[i] = (uint8_t)rng_u32(rng);
        masks[m].subtract = rng_below(rng, 2);
    }
    mask_add(masks, MASKS, bits, words, count, pool);
    memcpy(whole, before, count * size);
    mask_add(masks, MASKS, bits, whole, count, NULL);
    CHECK(memcmp(words, whole, count * size) == 0);
    memcpy(whole, before, count * size);
    mask_add(masks, MASKS, bits, whole, count / 2, NULL);
    CHECK(memcmp(words, whole, count / 2 * size) == 0);
    CHECK(memcmp(before + count / 2 * size, whole + count / 2 * size,
                 (count - count / 2) * size) == 0);
    if (count > 4)
        CHECK(memcmp(words, before, count * size) != 0);
    for (int m = 0; m < MASKS; m++)
        masks[m].subtract = !masks[m].subtract;
    mask_add(masks, MASKS, bits, words, count, NULL);
    CHECK(memcmp(words, before, count * size) == 0);
    mem_free(words);
    mem_free(before);
    mem_free(whole);
    pool_destroy(pool);
}

static void test_sums_wrap_around(void)
{
    uint32_t sum32[] = { 0xffffffff, 5 };
    const uint32_t words32[] = { 2, 6 };
    uint64_t sum64[] = { UINT64_MAX, 5 };
    const uint64_t words64[] = { 2, 6 };

    mask_sum(32, sum32, words32, 2);
    CHECK(sum32[0] == 1 && sum32[1] == 11);
    mask_sum(64, sum64, words64, 2);
    CHECK(sum64[0] == 1 && sum64[1] == 11);
}

const struct test tests[] = {
    { "a mask is the stream of RFC 8439", test_a_mask_is_the_stream_of_rfc_8439, NULL },
    { "a long mask is one stream", test_a_long_mask_is_one_stream, NULL },
    { "masks cancel", NULL, property_masks_cancel },
    { "sums wrap around", test_sums_wrap_around, NULL },
    { 0 },
};
