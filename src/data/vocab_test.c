/* SPDX-License-Identifier: MIT */
/* vocab_test.c - which tokens a vocabulary has, and that a file gives back what was saved. */
#include "data/vocab.h"

#include "base/file.h"
#include "base/mem.h"
#include "base/sha256.h"
#include "base/test.h"
#include "data/data_testing.h"
#include "data/text.h"
#include "data/tokenize.h"
#include "data/vocab_build.h"

#include <stdio.h>
#include <string.h>

/* A vocabulary counted from words of a text. */
static struct vocab *count_words(const char *text, const struct vocab_rule *rule,
                                 int32_t number[], int n)
{
    struct encoder encoder;
    struct vocab *vocab;

    encoder_init(&encoder, &tokenizer_words, NULL);
    encoder_add(&encoder, text, strlen(text));
    CHECK_INT(n, encoder.seen.count);
    CHECK_OK(
        vocab_choose(&tokenizer_words, rule, &encoder.seen, encoder.counts, number, &vocab));
    encoder_release(&encoder);
    return vocab;
}

static void check_tokens(const struct vocab *vocab, const char *const *tokens, int count)
{
    CHECK_INT(count, vocab_size(vocab));
    for (int32_t i = 0; i < count; i++) {
        size_t length;
        const char *token = vocab_token(vocab, i, &length);
        CHECK_INT(strlen(tokens[i]), length);
        CHECK(memcmp(tokens[i], token, length) == 0);
        CHECK_INT(i, vocab_find(vocab, token, length));
    }
}

static void test_tokens_come_by_count_then_bytes(void)
{
    static const char *const all[] = { "<unk>", "c", "a", "b", "d", "e" };
    const struct vocab_rule rule = { .special = { true } };
    int32_t number[5];
    struct vocab *vocab = count_words("e d c b a c b a c", &rule, number, 5);

    check_tokens(vocab, all, 6);
    CHECK(number[0] == 5 && number[1] == 4 && number[2] == 1 && number[3] == 3 &&
          number[4] == 2);
    CHECK_INT(0, vocab_special(vocab, VOCAB_UNKNOWN));
    CHECK_INT(-1, vocab_special(vocab, VOCAB_MASK));
    vocab_destroy(vocab);
}

static void test_rare_tokens_and_too_many_are_left_out(void)
{
    static const char *const twice[] = { "<unk>", "<bos>", "<eos>", "c", "a", "b" };
    static const char *const four[] = { "<unk>", "<bos>", "<eos>", "c" };
    struct vocab_rule rule = { .special = { true, true, true }, .min_count = 2 };
    int32_t number[5];
    struct vocab *vocab = count_words("e d c b a c b a c", &rule, number, 5);

    check_tokens(vocab, twice, 6);
    CHECK(number[0] == 0 && number[1] == 0 && number[2] == 3);
    vocab_destroy(vocab);
    rule.most = 4;
    vocab = count_words("e d c b a c b a c", &rule, number, 5);
    check_tokens(vocab, four, 4);
    vocab_destroy(vocab);
}

/* Without the wish for one there is an <unk> if something is left out, and only then. */
static void test_unknown_comes_when_it_is_needed(void)
{
    static const char *const none[] = { "c", "a", "b" };
    static const char *const some[] = { "<unk>", "c" };
    struct vocab_rule rule = { .min_count = 1 };
    int32_t number[3];
    struct vocab *vocab = count_words("c b a c", &rule, number, 3);

    check_tokens(vocab, none, 3);
    CHECK_INT(-1, vocab_special(vocab, VOCAB_UNKNOWN));
    vocab_destroy(vocab);
    rule.most = 2;
    vocab = count_words("c b a c", &rule, number, 3);
    check_tokens(vocab, some, 2);
    CHECK(number[0] == 1 && number[1] == 0);
    vocab_destroy(vocab);
}

/* Text in which specials are written out, as WikiText's <unk>. */
static void test_a_special_in_the_text_is_that_special(void)
{
    static const char *const tokens[] = { "<unk>", "a", "b" };
    const struct vocab_rule rule = { .special = { true } };
    int32_t number[3];
    struct vocab *vocab = count_words("a <unk> b", &rule, number, 3);

    check_tokens(vocab, tokens, 3);
    CHECK_INT(0, number[1]);
    vocab_destroy(vocab);
}

/* Files ---------------------------------------------------------------------------------- */

/* A vocabulary of any bytes; with all single bytes and some merges if it is GPT-2's. */
static struct vocab *random_vocab(struct rng *rng)
{
    const struct tokenizer *tokenizer = tokenizer_table[rng_below(rng, 3)];
    struct merge merge[8];
    struct vocab *vocab;
    int32_t id, at, n_merges = 0;

    CHECK_OK(vocab_create(tokenizer, &vocab));
    for (int i = 0; tokenizer->has_own_vocab && i < 256; i++) {
        const char byte = (char)(255 - i);
        CHECK_OK(token_map_add(&vocab->tokens, &byte, 1, &id));
    }
    for (int i = 0; tokenizer->has_own_vocab && i < 8; i++) {
        const int32_t left = (int32_t)rng_below(rng, 256), right = (int32_t)rng_below(rng, 256);
        const char both[] = { (char)(255 - left), (char)(255 - right) };
        if (vocab_find(vocab, both, 2) >= 0)
            continue;
        CHECK_OK(token_map_add(&vocab->tokens, both, 2, &id));
        merge[n_merges++] = (struct merge){ .left = left, .right = right };
    }
    for (uint64_t i = rng_below(rng, 20) + 1; i > 0; i--) {
        char bytes[12];
        const size_t length = 1 + (size_t)rng_below(rng, sizeof bytes);
        for (size_t k = 0; k < length; k++)
            bytes[k] =
                (char)(rng_below(rng, 2) ? "\\\n x\t"[rng_below(rng, 5)] : (char)rng_u32(rng));
        CHECK_OK(token_map_add(&vocab->tokens, bytes, length, &id));
    }
    for (int i = 0; i < VOCAB_SPECIALS; i++)
        vocab->special[i] = (int32_t)rng_below(rng, (uint64_t)vocab_size(vocab) + 1) - 1;
    if (tokenizer->has_own_vocab)
        CHECK_OK(vocab_set_merges(vocab, merge, n_merges, &at));
    CHECK_OK(vocab_finish(vocab));
    return vocab;
}

static void check_same(const struct vocab *a, const struct vocab *b)
{
    CHECK_TEXT(vocab_fingerprint(a), vocab_fingerprint(b));
    CHECK(vocab_tokenizer(a) == vocab_tokenizer(b));
    CHECK_INT(vocab_size(a), vocab_size(b));
    for (int i = 0; i < VOCAB_SPECIALS; i++)
        CHECK_INT(vocab_special(a, i), vocab_special(b, i));
    for (int32_t i = 0; i < vocab_size(a); i++) {
        size_t length, other;
        const char *token = vocab_token(a, i, &length), *there = vocab_token(b, i, &other);
        CHECK_INT(length, other);
        CHECK(memcmp(token, there, length) == 0);
    }
    CHECK(!a->merges == !b->merges);
    for (int32_t i = 0; a->merges && i < merges_count(a->merges); i++)
        CHECK(memcmp(&merges_list(a->merges)[i], &merges_list(b->merges)[i],
                     sizeof(struct merge)) == 0);
}

static void test_a_file_gives_back_what_was_saved(struct rng *rng)
{
    const char *path = data_testing_path(test_folder(), "vocabulary.txt");
    const int count = 1 + (int)rng_below(rng, 2);
    struct vocab *saved[2] = { random_vocab(rng), random_vocab(rng) }, *loaded[2];
    int there;

    CHECK_OK(vocab_save(path, (const struct vocab *const *)saved, count));
    CHECK_OK(vocab_load(path, loaded, &there));
    CHECK_INT(count, there);
    for (int i = 0; i < count; i++) {
        check_same(saved[i], loaded[i]);
        vocab_destroy(loaded[i]);
    }
    vocab_destroy(saved[0]);
    vocab_destroy(saved[1]);
}

/* A file that is cut anywhere, or has another byte anywhere, is refused. */
static void test_damage_is_refused(struct rng *rng)
{
    const char *path = data_testing_path(test_folder(), "vocabulary.txt");
    struct vocab *vocab = random_vocab(rng), *loaded[2];
    size_t length;
    int count;
    char *text;

    CHECK_OK(vocab_save(path, (const struct vocab *const *)&vocab, 1));
    CHECK_OK(file_read(path, 1 << 20, &text, &length));
    const size_t cut = (size_t)rng_below(rng, length);
    CHECK_STATUS(STATUS_CORRUPT, vocab_parse("v", text, cut, loaded, &count));
    const size_t place = (size_t)rng_below(rng, length);
    text[place] = (char)(text[place] ^ (1 << rng_below(rng, 8)));
    CHECK_STATUS(STATUS_CORRUPT, vocab_parse("v", text, length, loaded, &count));
    mem_free(text);
    vocab_destroy(vocab);
}

/* Parses a text whose first and last line are right. */
static enum status parse_whole(const char *middle)
{
    struct vocab *loaded[2];
    char text[1024], digits[SHA256_HEX];
    struct sha256 hash;
    int count;

    const int length = snprintf(text, sizeof text, "tutti vocabulary 1\n%s", middle);
    sha256_init(&hash);
    sha256_add(&hash, text, (size_t)length);
    sha256_end_hex(&hash, digits);
    const int all =
        length + snprintf(text + length, sizeof text - (size_t)length, "sha256 %s\n", digits);
    const enum status status = vocab_parse("v", text, (size_t)all, loaded, &count);
    for (int i = 0; status == STATUS_OK && i < count; i++)
        vocab_destroy(loaded[i]);
    return status;
}

static void test_a_wrong_line_is_named(void)
{
    static const struct {
        const char *text, *says;
    } cases[] = {
        { "", "v:2: the file ends here" },
        { "tokenizer wrods\n", "v:2: no tokenizer has this name" },
        { "tokenizer words\nspecials 0 -1 -1\n", "v:3: not \"specials\" and 4 numbers" },
        { "tokenizer words\nspecials 0 -1 -1 -1\ntokens x\n", "v:4: not \"tokens \"" },
        { "tokenizer words\nspecials 0 -1 -1 -1\ntokens 0\n", "v:4: a vocabulary without" },
        { "tokenizer words\nspecials 0 -1 -1 -1\ntokens 2\na\n", "v:6: the file ends here" },
        { "tokenizer words\nspecials 0 -1 -1 -1\ntokens 2\na\na\n", "v:6: a token that was" },
        { "tokenizer words\nspecials 0 -1 -1 -1\ntokens 1\n\\q\n", "v:5: a backslash" },
        { "tokenizer words\nspecials 0 -1 -1 -1\ntokens 1\n\n", "v:5: an empty token" },
        { "tokenizer words\nspecials 3 -1 -1 -1\ntokens 1\na\n", "special token 3 is none" },
        { "tokenizer words\nspecials 0 -1 -1 -1\ntokens 1\na\nmerges 9\n", "more merges" },
        { "tokenizer words\nspecials 0 -1 -1 -1\ntokens 1\na\nmerges 1\n0 0\n", "no use" },
        { "tokenizer gpt2\nspecials -1 -1 -1 -1\ntokens 1\na\nmerges 0\n", "byte 0x00" },
        { "tokenizer gpt2\nspecials -1 -1 -1 -1\ntokens 1\na\nmerges 1\n0 7\n",
          "v:7: a merge" },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CHECK_STATUS(STATUS_CORRUPT, parse_whole(cases[i].text));
        CHECK_MESSAGE(cases[i].says);
    }
    CHECK_OK(parse_whole("tokenizer words\nspecials 0 -1 -1 -1\ntokens 1\na\nmerges 0\n"));
}

static void test_another_runs_vocabulary_is_refused(struct rng *rng)
{
    struct vocab *own = random_vocab(rng), *other = random_vocab(rng);

    CHECK_OK(vocab_check("v", own, vocab_fingerprint(own)));
    if (strcmp(vocab_fingerprint(own), vocab_fingerprint(other)) != 0) {
        CHECK_STATUS(STATUS_MISMATCH, vocab_check("v", own, vocab_fingerprint(other)));
        CHECK_MESSAGE("vocabulary of another run");
    }
    vocab_destroy(own);
    vocab_destroy(other);
}

/* Byte pairs ----------------------------------------------------------------------------- */

/* The 256 bytes as GPT-2 writes them, then `more`. */
static char *byte_tokens(const char *more)
{
    struct strbuf text;
    int hidden = 0;

    strbuf_init(&text, 1 << 16);
    strbuf_add(&text, "{");
    for (int byte = 0; byte < 256; byte++) {
        const bool is_seen = (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte != 0xad);
        strbuf_printf(&text, "%s\"\\u%04x\": %d", byte ? ", " : "",
                      is_seen ? byte : 256 + hidden++, byte);
    }
    strbuf_printf(&text, "%s}", more);
    CHECK_OK(strbuf_status(&text));
    return text.text;
}

static enum status parse_bpe(const char *more, const char *merges, struct vocab **out)
{
    char *tokens = byte_tokens(more);
    const struct bpe_text files[] = { { "encoder.json", tokens, strlen(tokens) },
                                      { "vocab.bpe", merges, strlen(merges) } };
    const enum status status = vocab_parse_bpe(&files[0], &files[1], out);

    mem_free(tokens);
    return status;
}

static void test_gpt2s_files_are_read(void)
{
    static const int32_t expected[] = { 258, 'x', 257 };
    struct vocab *vocab;
    size_t count;
    int32_t *id;

    CHECK_OK(parse_bpe(", \"ab\": 256, \"\\u0120a\": 257, \"abc\": 258",
                       "#version: 0.2\na b\nab c\n\xc4\xa0 a\n", &vocab));
    CHECK_INT(259, vocab_size(vocab));
    CHECK_INT(257, vocab_find(vocab, " a", 2));
    CHECK_OK(vocab_encode(vocab, "abcx a", 6, &id, &count));
    CHECK_INT(3, count);
    CHECK(memcmp(expected, id, sizeof expected) == 0);
    mem_free(id);
    vocab_destroy(vocab);
}

static void test_wrong_files_of_gpt2_are_refused(void)
{
    static const struct {
        const char *more, *merges, *says;
    } cases[] = {
        { ", \"ab\": 300", "", "encoder.json: \"ab\" has no number from 0 to 256" },
        { ", \"ab\": 255", "", "have the same number" },
        { ", \"ab\": \"x\"", "", "has no number" },
        { ", \"\\u4e00\": 256", "", "is not written as bytes" },
        { ", \"ab\": 256", "a b\nab\n", "vocab.bpe:2: not two tokens" },
        { ", \"ab\": 256", "a b\na zz\n", "vocab.bpe:2: a merge of what is no token" },
        { ", \"ab\": 256", "b a\n", "vocab.bpe:1: what the two make is no token" },
        { ", \"ab\": 256", "a b\na b\n", "vocab.bpe:2: merge 1 comes twice" },
        { ",", "", "encoder.json: " },
    };
    struct vocab *vocab;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CHECK_STATUS(STATUS_CORRUPT, parse_bpe(cases[i].more, cases[i].merges, &vocab));
        CHECK_MESSAGE(cases[i].says);
    }
}

static void test_a_mask_can_be_added(void)
{
    struct vocab *vocab, *masked;

    CHECK_OK(parse_bpe(", \"ab\": 256", "a b\n", &vocab));
    CHECK_OK(vocab_add_mask(vocab, &masked));
    CHECK_INT(257, vocab_special(masked, VOCAB_MASK));
    CHECK_INT(258, vocab_size(masked));
    CHECK(strcmp(vocab_fingerprint(vocab), vocab_fingerprint(masked)) != 0);
    CHECK_INT(1, merges_count(masked->merges));
    vocab_destroy(masked);
    vocab_destroy(vocab);
}

static void test_what_has_no_number_is_refused(void)
{
    const struct vocab_rule rule = { .min_count = 1 };
    int32_t number[3], *id;
    struct vocab *vocab = count_words("c b a", &rule, number, 3);
    size_t count;

    CHECK_STATUS(STATUS_MISMATCH, vocab_encode(vocab, "a d", 3, &id, &count));
    CHECK_MESSAGE("\"d\" is not in the vocabulary of 3 words");
    CHECK_STATUS(STATUS_CORRUPT, vocab_encode(vocab, "a \xff", 3, &id, &count));
    CHECK_MESSAGE("not UTF-8 at byte 2");
    vocab_destroy(vocab);
}

/* However far it gets before memory is refused, nothing leaks and nothing is torn. */
static void test_loading_survives_lack_of_memory(void)
{
    const char *path = data_testing_path(test_folder(), "vocabulary.txt");
    struct vocab *vocab, *loaded[2];
    int count;

    CHECK_OK(parse_bpe(", \"ab\": 256", "a b\n", &vocab));
    CHECK_OK(vocab_save(path, (const struct vocab *const *)&vocab, 1));
    enum status status = STATUS_NO_MEMORY;
    for (uint64_t nth = 1; status != STATUS_OK; nth++) {
        mem_fail_at(nth);
        status = vocab_load(path, loaded, &count);
        mem_fail_at(0);
        CHECK(status == STATUS_OK || status == STATUS_NO_MEMORY);
    }
    check_same(vocab, loaded[0]);
    vocab_destroy(loaded[0]);
    vocab_destroy(vocab);
    vocab_destroy(NULL);
}

const struct test tests[] = {
    { .name = "tokens come by count, then bytes", .run = test_tokens_come_by_count_then_bytes },
    { .name = "rare tokens and too many are left out",
      .run = test_rare_tokens_and_too_many_are_left_out },
    { .name = "<unk> comes when it is needed", .run = test_unknown_comes_when_it_is_needed },
    { .name = "a special in the text is that special",
      .run = test_a_special_in_the_text_is_that_special },
    { .name = "a file gives back what was saved",
      .property = test_a_file_gives_back_what_was_saved },
    { .name = "damage is refused", .property = test_damage_is_refused },
    { .name = "a wrong line is named", .run = test_a_wrong_line_is_named },
    { .name = "another run's vocabulary is refused",
      .property = test_another_runs_vocabulary_is_refused },
    { .name = "GPT-2's files are read", .run = test_gpt2s_files_are_read },
    { .name = "wrong files of GPT-2 are refused", .run = test_wrong_files_of_gpt2_are_refused },
    { .name = "a mask can be added", .run = test_a_mask_can_be_added },
    { .name = "what has no number is refused", .run = test_what_has_no_number_is_refused },
    { .name = "loading survives lack of memory", .run = test_loading_survives_lack_of_memory },
    { 0 },
};
