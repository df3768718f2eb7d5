/* SPDX-License-Identifier: MIT */
/* tokenize_test.c - tokens against other programs' (tests/golden/tokens.py) and against plain versions. */
#include "data/tokenize.h"

#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/test.h"
#include "base/utf8.h"
#include "data/text.h"
#include "data/unicode.h"
#include "data/vocab_build.h"

#include <string.h>

static struct json *open_golden(void)
{
    struct json *json;
    size_t length;
    char *text;

    CHECK_OK(file_read(GOLDEN "/tokens.json", 1 << 24, &text, &length));
    CHECK_OK(json_parse(text, length, &json));
    mem_free(text);
    return json;
}

static void check_words(const char *text, const struct json_value *words)
{
    struct encoder encoder;

    encoder_init(&encoder, &tokenizer_words, NULL);
    encoder_add(&encoder, text, strlen(text));
    CHECK_OK(encoder.status);
    CHECK_INT(words->count, encoder.count);
    for (size_t i = 0; i < words->count; i++) {
        size_t length;
        const char *token = token_map_at(&encoder.seen, encoder.id[i], &length);
        CHECK_INT(strlen(words->items[i].text), length);
        CHECK(memcmp(token, words->items[i].text, length) == 0);
    }
    encoder_release(&encoder);
}

static void test_words_are_basic_english(void)
{
    struct json *golden = open_golden();
    const struct json_value *cases = json_get(json_root(golden), "cases");

    CHECK(cases->count > 50);
    for (size_t i = 0; i < cases->count; i++)
        check_words(json_text(&cases->items[i], "text", NULL),
                    json_get(&cases->items[i], "words"));
    json_destroy(golden);
}

static void check_gpt2(const struct vocab *vocab, const char *text,
                       const struct json_value *numbers)
{
    struct strbuf back;
    size_t count;
    int32_t *id;

    CHECK_OK(vocab_encode(vocab, text, strlen(text), &id, &count));
    CHECK_INT(numbers->count, count);
    for (size_t i = 0; i < count; i++)
        CHECK_INT(numbers->items[i].integer, id[i]);
    strbuf_init(&back, 1 << 20);
    vocab_decode(vocab, -1, id, count, &back);
    CHECK_OK(strbuf_status(&back));
    CHECK_TEXT(text, back.text);
    strbuf_release(&back);
    mem_free(id);
}

static void test_gpt2_is_tiktoken(void)
{
    struct vocab *vocab;

    if (!test_data("gpt2-bpe"))
        test_skip("no GPT-2 vocabulary here");
    CHECK_OK(text_open_bpe(NULL, &vocab));
    CHECK_INT(50257, vocab_size(vocab));
    CHECK_INT(50256, vocab_special(vocab, VOCAB_END));
    CHECK_INT(-1, vocab_special(vocab, VOCAB_UNKNOWN));
    struct json *golden = open_golden();
    const struct json_value *cases = json_get(json_root(golden), "cases");
    for (size_t i = 0; i < cases->count; i++)
        check_gpt2(vocab, json_text(&cases->items[i], "text", NULL),
                   json_get(&cases->items[i], "gpt2"));
    json_destroy(golden);
    vocab_destroy(vocab);
}

static void test_characters_are_code_points(void)
{
    static const char text[] = "a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"
                               "a";
    static const size_t lengths[] = { 1, 2, 3, 4 };
    static const int32_t ids[] = { 0, 1, 2, 3, 0 };
    struct encoder encoder;

    encoder_init(&encoder, &tokenizer_characters, NULL);
    encoder_add(&encoder, text, sizeof text - 1);
    CHECK_INT(5, encoder.count);
    CHECK(memcmp(encoder.id, ids, sizeof ids) == 0);
    CHECK_INT(4, encoder.seen.count);
    for (int32_t i = 0; i < 4; i++) {
        size_t length;
        token_map_at(&encoder.seen, i, &length);
        CHECK_INT(lengths[i], length);
    }
    CHECK_INT(2, encoder.counts[0]);
    encoder_release(&encoder);
}

/* Byte pairs ----------------------------------------------------------------------------- */

/* A vocabulary of the 256 bytes and some random merges over a few letters. */
static struct vocab *random_merges(struct rng *rng)
{
    enum { MERGES = 30 };
    struct merge merge[MERGES];
    struct vocab *vocab;
    int32_t id, count = 0, at;

    CHECK_OK(vocab_create(&tokenizer_gpt2, &vocab));
    for (int i = 0; i < 256; i++) {
        const char byte = (char)i;
        CHECK_OK(token_map_add(&vocab->tokens, &byte, 1, &id));
    }
    for (int i = 0; i < MERGES; i++) {
        char both[1024];
        int32_t part[2];
        size_t length = 0;
        for (int side = 0; side < 2; side++) {
            const int32_t made = vocab_size(vocab) - 256;
            size_t bytes;
            part[side] = (int32_t)rng_below(rng, 3 + (uint64_t)made);
            part[side] = part[side] < 3 ? 'a' + part[side] : 253 + part[side];
            const char *token = vocab_token(vocab, part[side], &bytes);
            if (length + bytes > sizeof both)
                break;
            memcpy(both + length, token, bytes);
            length += bytes;
        }
        if (length > 60 || vocab_find(vocab, both, length) >= 0)
            continue;
        CHECK_OK(token_map_add(&vocab->tokens, both, length, &id));
        merge[count++] = (struct merge){ .left = part[0], .right = part[1] };
    }
    CHECK_OK(vocab_set_merges(vocab, merge, count, &at));
    CHECK_OK(vocab_finish(vocab));
    return vocab;
}

/* As GPT-2's own program does it: the lowest rank that occurs is merged everywhere, left to right. */
static size_t merge_plainly(const struct vocab *vocab, const char *word, size_t length,
                            int32_t *id)
{
    const struct merge *merge = merges_list(vocab->merges);
    size_t count = length;

    for (size_t i = 0; i < length; i++)
        id[i] = (unsigned char)word[i];
    for (;;) {
        int32_t best = merges_count(vocab->merges);
        for (size_t i = 0; i + 1 < count; i++)
            for (int32_t m = 0; m < best; m++)
                if (merge[m].left == id[i] && merge[m].right == id[i + 1])
                    best = m;
        if (best == merges_count(vocab->merges))
            return count;
        size_t to = 0;
        for (size_t i = 0; i < count; to++) {
            const bool merges =
                i + 1 < count && id[i] == merge[best].left && id[i + 1] == merge[best].right;
            id[to] = merges ? merge[best].made : id[i];
            i += merges ? 2 : 1;
        }
        count = to;
    }
}

static void test_merging_is_what_a_plain_version_gives(struct rng *rng)
{
    enum { WORD = 120 };
    struct vocab *vocab = random_merges(rng);
    struct merge_room room = { 0 };
    char word[WORD];
    int32_t plain[WORD];

    for (int round = 0; round < 20; round++) {
        const size_t length = 1 + (size_t)rng_below(rng, WORD);
        size_t count;
        for (size_t i = 0; i < length; i++)
            word[i] = (char)('a' + rng_below(rng, 3));
        CHECK_OK(merges_apply(vocab->merges, word, length, &room, &count));
        CHECK_INT(merge_plainly(vocab, word, length, plain), count);
        CHECK(memcmp(plain, room.id, count * sizeof *plain) == 0);
    }
    merge_room_release(&room);
    vocab_destroy(vocab);
}

/* A word that is met again, or was forgotten meanwhile, has the same numbers. */
static void test_the_cache_changes_nothing(struct rng *rng)
{
    struct vocab *vocab = random_merges(rng);
    struct encoder kept, fresh;

    encoder_init(&kept, &tokenizer_gpt2, vocab);
    for (int round = 0; round < 50; round++) {
        char text[64];
        const size_t length = 1 + (size_t)rng_below(rng, sizeof text);
        for (size_t i = 0; i < length; i++)
            text[i] = "abc "[rng_below(rng, 4)];
        const size_t before = kept.count;
        encoder_add(&kept, text, length);
        encoder_init(&fresh, &tokenizer_gpt2, vocab);
        encoder_add(&fresh, text, length);
        CHECK_INT(fresh.count, kept.count - before);
        CHECK(memcmp(fresh.id, kept.id + before, fresh.count * sizeof *fresh.id) == 0);
        encoder_release(&fresh);
    }
    encoder_release(&kept);
    vocab_destroy(vocab);
}

/* A word of a million letters takes its time, not the square of it. */
static void test_a_long_word_is_no_trouble(void)
{
    enum { LENGTH = 1000000 };
    struct rng rng;
    struct encoder encoder;
    char *word;

    rng_init(&rng, 1, 1);
    struct vocab *vocab = random_merges(&rng);
    CHECK_OK(mem_alloc(LENGTH, 1, &word));
    memset(word, 'a', LENGTH);
    encoder_init(&encoder, &tokenizer_gpt2, vocab);
    encoder_add(&encoder, word, LENGTH);
    CHECK_OK(encoder.status);
    CHECK(encoder.count > 0 && encoder.count <= LENGTH);
    encoder_release(&encoder);
    mem_free(word);
    vocab_destroy(vocab);
}

/* Whatever the bytes are, tokens of characters and GPT-2's give them back. */
static void test_any_bytes_come_back(struct rng *rng)
{
    struct vocab *vocab = random_merges(rng);
    char bytes[200];
    const size_t length = (size_t)rng_below(rng, sizeof bytes);
    struct encoder encoder;
    struct strbuf back;

    for (size_t i = 0; i < length; i++)
        bytes[i] = (char)rng_u32(rng);
    encoder_init(&encoder, &tokenizer_gpt2, vocab);
    encoder_add(&encoder, bytes, length);
    strbuf_init(&back, 1 << 16);
    vocab_decode(vocab, -1, encoder.id, encoder.count, &back);
    CHECK_INT(length, back.length);
    CHECK(memcmp(bytes, back.text, length) == 0);
    strbuf_release(&back);
    encoder_release(&encoder);
    vocab_destroy(vocab);
}

/* Unicode -------------------------------------------------------------------------------- */

static void check_lower(const char *text, const char *lower)
{
    char out[64];
    size_t count = 0;

    for (size_t at = 0; at < strlen(text);)
        count += unicode_lower_at(text, strlen(text), &at, out + count);
    out[count] = '\0';
    CHECK_TEXT(lower, out);
}

static void test_lower_case_is_pythons(void)
{
    check_lower("ABC xyz 123", "abc xyz 123");
    check_lower("\xc3\x84\xc3\x96\xc3\x9c\xc3\x9f", "\xc3\xa4\xc3\xb6\xc3\xbc\xc3\x9f");
    check_lower("\xc4\xb0", "i\xcc\x87");                                /* I with a dot */
    check_lower("\xce\x91\xce\xa3", "\xce\xb1\xcf\x82");                 /* ends a word */
    check_lower("\xce\xa3", "\xcf\x83");                                 /* stands alone */
    check_lower("\xce\x91\xce\xa3\xce\x91", "\xce\xb1\xcf\x83\xce\xb1"); /* is within one */
    check_lower("\xe1\xba\x9e", "\xc3\x9f");                             /* capital sharp s */
}

static void test_what_is_utf8_is_found(struct rng *rng)
{
    char text[100];
    size_t length = 0;

    while (length + 4 <= sizeof text)
        length += rng_below(rng, 3)
                      ? utf8_encode((uint32_t)rng_below(rng, 0x80), text + length)
                      : utf8_encode((uint32_t)rng_below(rng, 0xd800), text + length);
    CHECK_INT(length, unicode_valid(text, length));
    const size_t place = (size_t)rng_below(rng, length);
    text[place] = (char)0xff;
    size_t plain = 0, span;
    while (plain < length && (span = utf8_span(text + plain, length - plain)) > 0)
        plain += span;
    CHECK_INT(plain, unicode_valid(text, length));
    CHECK(plain <= place);
}

static void test_an_unknown_tokenizer_is_refused(void)
{
    const struct tokenizer *tokenizer;

    CHECK_STATUS(STATUS_USAGE, tokenizer_get("wrods", &tokenizer));
    CHECK_MESSAGE("characters, words, gpt2");
}

const struct test tests[] = {
    { .name = "words are basic_english", .run = test_words_are_basic_english },
    { .name = "gpt2 is tiktoken", .run = test_gpt2_is_tiktoken },
    { .name = "characters are code points", .run = test_characters_are_code_points },
    { .name = "merging is what a plain version gives",
      .property = test_merging_is_what_a_plain_version_gives },
    { .name = "the cache changes nothing", .property = test_the_cache_changes_nothing },
    { .name = "a long word is no trouble", .run = test_a_long_word_is_no_trouble },
    { .name = "any bytes come back", .property = test_any_bytes_come_back },
    { .name = "lower case is Python's", .run = test_lower_case_is_pythons },
    { .name = "what is UTF-8 is found", .property = test_what_is_utf8_is_found },
    { .name = "an unknown tokenizer is refused", .run = test_an_unknown_tokenizer_is_refused },
    { 0 },
};
