/* SPDX-License-Identifier: MIT */
#include "train/tidy.h"

#include <string.h>

#include "base/mem.h"
#include "base/sha256.h"
#include "base/test.h"

/* A vocabulary of these tokens, which no specials are among. */
static struct vocab *make_vocab(const char *tokenizer, const char *const *tokens, int count)
{
    struct vocab *vocab[VOCAB_FILE_MOST];
    struct sha256 hash;
    struct strbuf text;
    char hex[65];
    int n;

    strbuf_init(&text, 1 << 20);
    strbuf_printf(&text, "tutti vocabulary 1\ntokenizer %s\nspecials -1 -1 -1 -1\ntokens %d\n",
                  tokenizer, count);
    for (int i = 0; i < count; i++)
        strbuf_printf(&text, "%s\n", tokens[i]);
    strbuf_add(&text, "merges 0\n");
    sha256_init(&hash);
    sha256_add(&hash, text.text, text.length);
    sha256_end_hex(&hash, hex);
    strbuf_printf(&text, "sha256 %s\n", hex);
    CHECK_OK(vocab_parse("test", text.text, text.length, vocab, &n));
    CHECK_INT(1, n);
    strbuf_release(&text);
    return vocab[0];
}

static void check_tidy(const struct vocab *vocab, const char *expected, const int32_t *tokens,
                       size_t count)
{
    struct strbuf text;

    strbuf_init(&text, 1 << 16);
    tidy_decode(vocab, tokens, count, &text);
    CHECK_OK(strbuf_status(&text));
    CHECK_TEXT(expected, text.text);
    strbuf_release(&text);
}

static void test_words_stand_as_people_write_them(void)
{
    static const char *const words[] = { "a", "man", "'", "s", "hat", "(",
                                         ")", ".",   ",", "!", "?" };
    struct vocab *vocab = make_vocab("words", words, 11);

    check_tidy(vocab, "", (const int32_t[]){ 0 }, 0);
    check_tidy(vocab, "a man's hat.", (const int32_t[]){ 0, 1, 2, 3, 4, 7 }, 6);
    check_tidy(vocab, "a (man) hat, hat?!", (const int32_t[]){ 0, 5, 1, 6, 4, 8, 4, 10, 9 }, 9);
    check_tidy(vocab, ". a..", (const int32_t[]){ 7, 0, 7, 7 }, 4);
    check_tidy(vocab, "a man", (const int32_t[]){ 0, -1, 1 }, 3); /* padding is nothing */
    vocab_destroy(vocab);
}

static void test_characters_stay_as_they_are(void)
{
    static const char *const characters[] = { "a", " ", ".", "\xc3\xa9" };
    struct vocab *vocab = make_vocab("characters", characters, 4);

    check_tidy(vocab, "a . \xc3\xa9", (const int32_t[]){ 0, 1, 2, 1, 3 }, 5);
    vocab_destroy(vocab);
}

const struct test tests[] = {
    { .name = "words stand as people write them",
      .run = test_words_stand_as_people_write_them },
    { .name = "characters stay as they are", .run = test_characters_stay_as_they_are },
    { 0 },
};
