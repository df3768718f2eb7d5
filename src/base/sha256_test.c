/* SPDX-License-Identifier: MIT */
/* sha256_test.c - the examples of FIPS 180, and that all ways to a hash agree. */
#include "base/sha256.h"

#include "base/sha256_block.h"
#include "base/test.h"

#include <string.h>

static void check_hash(const char *expected, const char *text)
{
    struct sha256 hash;
    char hex[SHA256_HEX];

    sha256_init(&hash);
    sha256_add(&hash, text, strlen(text));
    sha256_end_hex(&hash, hex);
    CHECK_TEXT(expected, hex);
}

static void test_published_examples(void)
{
    check_hash("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", "");
    check_hash("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad", "abc");
    check_hash("248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1",
               "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq");
    check_hash("cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1",
               "abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmno"
               "ijklmnopjklmnopqklmnopqrlmnopqrsmnopqrstnopqrstu");
}

static void test_a_million_letters(void)
{
    struct sha256 hash;
    char hex[SHA256_HEX], letters[1000];

    memset(letters, 'a', sizeof letters);
    sha256_init(&hash);
    for (int i = 0; i < 1000; i++)
        sha256_add(&hash, letters, sizeof letters);
    sha256_end_hex(&hash, hex);
    CHECK_TEXT("cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0", hex);
}

enum { MAX_BYTES = 1000 };

static void fill(struct rng *rng, uint8_t *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        bytes[i] = (uint8_t)rng_u32(rng);
}

static void test_pieces_give_the_hash_of_the_whole(struct rng *rng)
{
    uint8_t bytes[MAX_BYTES], whole[SHA256_BYTES], pieces[SHA256_BYTES];
    const size_t length = rng_below(rng, MAX_BYTES + 1);
    struct sha256 hash;

    fill(rng, bytes, length);
    sha256_init(&hash);
    sha256_add(&hash, bytes, length);
    sha256_end(&hash, whole);

    sha256_init(&hash);
    for (size_t at = 0; at < length;) {
        const size_t room = length - at, part = rng_below(rng, room < 150 ? room + 1 : 150);
        sha256_add(&hash, bytes + at, part);
        at += part;
    }
    sha256_end(&hash, pieces);
    CHECK(memcmp(whole, pieces, sizeof whole) == 0);
}

static void test_portable_code_agrees_with_the_instructions(struct rng *rng)
{
    enum { MAX_BLOCKS = 5 };
    sha256_block_fn *native = sha256_blocks_native();
    uint8_t blocks[MAX_BLOCKS * 64 + 1];
    uint32_t a[8], b[8];
    const size_t count = rng_below(rng, MAX_BLOCKS + 1), offset = rng_below(rng, 2);

    if (!native)
        test_skip("this processor has no SHA instructions");
    fill(rng, blocks, sizeof blocks);
    for (int i = 0; i < 8; i++)
        a[i] = b[i] = rng_u32(rng);
    sha256_blocks_portable(a, blocks + offset, count);
    native(b, blocks + offset, count);
    CHECK(memcmp(a, b, sizeof a) == 0);
}

const struct test tests[] = {
    { .name = "published examples", .run = test_published_examples },
    { .name = "a million letters", .run = test_a_million_letters },
    { .name = "pieces give the hash of the whole",
      .property = test_pieces_give_the_hash_of_the_whole },
    { .name = "portable code agrees with the instructions",
      .property = test_portable_code_agrees_with_the_instructions },
    { 0 },
};
