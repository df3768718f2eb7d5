/* SPDX-License-Identifier: MIT */
/* vocab.c - which counted tokens a vocabulary takes up; text to numbers and back. */
#include "data/vocab.h"

#include "base/mem.h"
#include "base/sha256.h"
#include "data/tokenize.h"
#include "data/unicode.h"
#include "data/vocab_build.h"

#include <stdlib.h>
#include <string.h>

const char *const vocab_special_text[VOCAB_SPECIALS] = { "<unk>", "<bos>", "<eos>", "<mask>" };

enum status vocab_create(const struct tokenizer *tokenizer, struct vocab **out)
{
    TRY(mem_alloc(1, sizeof **out, out));
    (*out)->tokenizer = tokenizer;
    for (int i = 0; i < VOCAB_SPECIALS; i++)
        (*out)->special[i] = -1;
    return STATUS_OK;
}

void vocab_destroy(struct vocab *vocab)
{
    if (!vocab)
        return;
    token_map_release(&vocab->tokens);
    merges_destroy(vocab->merges);
    mem_free(vocab);
}

int32_t vocab_size(const struct vocab *vocab)
{
    return vocab->tokens.count;
}

const struct tokenizer *vocab_tokenizer(const struct vocab *vocab)
{
    return vocab->tokenizer;
}

int32_t vocab_special(const struct vocab *vocab, enum vocab_special special)
{
    return vocab->special[special];
}

const char *vocab_token(const struct vocab *vocab, int32_t id, size_t *out_length)
{
    BUG_ON(id < 0 || id >= vocab->tokens.count);
    return token_map_at(&vocab->tokens, id, out_length);
}

int32_t vocab_find(const struct vocab *vocab, const char *bytes, size_t length)
{
    return token_map_find(&vocab->tokens, bytes, length);
}

const char *vocab_fingerprint(const struct vocab *vocab)
{
    return vocab->fingerprint;
}

enum status vocab_check(const char *path, const struct vocab *vocab, const char *fingerprint)
{
    if (strcmp(vocab->fingerprint, fingerprint) == 0)
        return STATUS_OK;
    return FAIL(
        STATUS_MISMATCH,
        "%s: is the vocabulary of another run: its fingerprint is %.12s..., not %.12s...", path,
        vocab->fingerprint, fingerprint);
}

enum status vocab_finish(struct vocab *vocab)
{
    struct sha256 hash;
    struct strbuf text;

    strbuf_init(&text, VOCAB_BYTES_MOST);
    vocab_print(vocab, &text);
    const enum status status = strbuf_status(&text);
    if (status == STATUS_OK) {
        sha256_init(&hash);
        sha256_add(&hash, text.text, text.length);
        sha256_end_hex(&hash, vocab->fingerprint);
    }
    strbuf_release(&text);
    return status;
}

/* Building ------------------------------------------------------------------------------ */

/* A counted token; sorted by count, then bytes. */
struct counted {
    const char *bytes;
    size_t length;
    int64_t count;
    int32_t number; /* in `seen` */
};

static int compare_counted(const void *a, const void *b)
{
    const struct counted *x = a, *y = b;
    const size_t both = x->length < y->length ? x->length : y->length;
    const int order = memcmp(x->bytes, y->bytes, both);

    if (x->count != y->count)
        return x->count < y->count ? 1 : -1;
    return order ? order : (x->length > y->length) - (x->length < y->length);
}

/* Is it the text of a special that the vocabulary has anyway? */
static bool is_special(const struct vocab *vocab, const char *bytes, size_t length)
{
    return token_map_find(&vocab->tokens, bytes, length) >= 0;
}

static enum status add_special(struct vocab *vocab, enum vocab_special special)
{
    const char *text = vocab_special_text[special];

    return token_map_add(&vocab->tokens, text, strlen(text), &vocab->special[special]);
}

/* Lists what may be taken up, in order; returns how many of the list are. */
static size_t list_tokens(const struct vocab *vocab, const struct vocab_rule *rule,
                          const struct token_map *seen, const int64_t *counts,
                          struct counted *list, size_t *out_listed)
{
    size_t listed = 0, enough = 0;

    for (int32_t i = 0; i < seen->count; i++) {
        struct counted next = { .count = counts[i], .number = i };
        next.bytes = token_map_at(seen, i, &next.length);
        if (!is_special(vocab, next.bytes, next.length))
            list[listed++] = next;
    }
    qsort(list, listed, sizeof *list, compare_counted);
    while (enough < listed && list[enough].count >= rule->min_count)
        enough++;
    *out_listed = listed;
    return enough;
}

/* How many of `enough` tokens fit beside the specials. */
static size_t fitting(const struct vocab *vocab, const struct vocab_rule *rule, size_t enough)
{
    const size_t specials = (size_t)vocab->tokens.count, most = (size_t)rule->most;

    if (rule->most <= 0 || specials + enough <= most)
        return enough;
    return most > specials ? most - specials : 0;
}

static enum status choose(struct vocab *vocab, const struct vocab_rule *rule,
                          const struct token_map *seen, const int64_t *counts,
                          struct counted *list, int32_t *number)
{
    size_t listed;

    for (int i = 0; i < VOCAB_SPECIALS; i++)
        if (rule->special[i])
            TRY(add_special(vocab, i));
    const size_t enough = list_tokens(vocab, rule, seen, counts, list, &listed);
    if (!rule->special[VOCAB_UNKNOWN] && fitting(vocab, rule, enough) < listed)
        TRY(add_special(vocab, VOCAB_UNKNOWN));
    const size_t taken = fitting(vocab, rule, enough);
    for (int32_t i = 0; i < seen->count; i++)
        number[i] = vocab->special[VOCAB_UNKNOWN];
    for (size_t i = 0; i < taken; i++)
        TRY(token_map_add(&vocab->tokens, list[i].bytes, list[i].length,
                          &number[list[i].number]));
    for (int i = 0; i < VOCAB_SPECIALS; i++) { /* written out in the text */
        const char *text = vocab_special_text[i];
        const int32_t there = token_map_find(seen, text, strlen(text));
        if (there >= 0 && vocab->special[i] >= 0)
            number[there] = vocab->special[i];
    }
    return STATUS_OK;
}

enum status vocab_choose(const struct tokenizer *tokenizer, const struct vocab_rule *rule,
                         const struct token_map *seen, const int64_t *counts, int32_t *number,
                         struct vocab **out)
{
    struct counted *list = NULL;
    struct vocab *vocab;

    TRY(vocab_create(tokenizer, &vocab));
    enum status status = mem_alloc((size_t)seen->count, sizeof *list, &list);
    if (status == STATUS_OK)
        status = choose(vocab, rule, seen, counts, list, number);
    if (status == STATUS_OK)
        status = vocab_finish(vocab);
    mem_free(list);
    if (status != STATUS_OK) {
        vocab_destroy(vocab);
        return status;
    }
    *out = vocab;
    return STATUS_OK;
}

/* The ids of bytes that are tokens of their own; -1 for others. */
static void find_bytes(const struct vocab *vocab, int32_t byte_id[256])
{
    for (int i = 0; i < 256; i++) {
        const char byte = (char)i;
        byte_id[i] = vocab_find(vocab, &byte, 1);
    }
}

/* The token that two make together; -1 if there is none. */
static enum status find_product(const struct vocab *vocab, struct strbuf *both, int32_t left,
                                int32_t right, int32_t *out)
{
    size_t left_bytes, right_bytes;
    const char *first = vocab_token(vocab, left, &left_bytes);
    const char *second = vocab_token(vocab, right, &right_bytes);

    strbuf_clear(both);
    strbuf_add_bytes(both, first, left_bytes);
    strbuf_add_bytes(both, second, right_bytes);
    TRY(strbuf_status(both));
    *out = vocab_find(vocab, both->text, both->length);
    return STATUS_OK;
}

enum status vocab_set_merges(struct vocab *vocab, struct merge *merge, int32_t count,
                             int32_t *out_at)
{
    int32_t byte_id[256];
    struct strbuf both;
    enum status status = STATUS_OK;

    find_bytes(vocab, byte_id);
    for (int i = 0; i < 256; i++)
        if (byte_id[i] < 0)
            return FAIL(STATUS_CORRUPT, "byte 0x%02x is no token", i);
    strbuf_init(&both, VOCAB_BYTES_MOST);
    for (int32_t i = 0; status == STATUS_OK && i < count; i++) {
        *out_at = i;
        status = find_product(vocab, &both, merge[i].left, merge[i].right, &merge[i].made);
        if (status == STATUS_OK && merge[i].made < 0)
            status = FAIL(STATUS_CORRUPT, "what the two make is no token");
    }
    strbuf_release(&both);
    TRY(status);
    return merges_create(byte_id, merge, count, out_at, &vocab->merges);
}

enum status vocab_add_mask(const struct vocab *vocab, struct vocab **out)
{
    int32_t byte_id[256], id;
    struct vocab *copy;
    enum status status;

    TRY(vocab_create(vocab->tokenizer, &copy));
    memcpy(copy->special, vocab->special, sizeof copy->special);
    status = STATUS_OK;
    for (int32_t i = 0; status == STATUS_OK && i < vocab_size(vocab); i++) {
        size_t length;
        const char *bytes = vocab_token(vocab, i, &length);
        status = token_map_add(&copy->tokens, bytes, length, &id);
    }
    if (status == STATUS_OK)
        status = add_special(copy, VOCAB_MASK);
    find_bytes(vocab, byte_id);
    if (status == STATUS_OK && vocab->merges)
        status = merges_create(byte_id, merges_list(vocab->merges), merges_count(vocab->merges),
                               NULL, &copy->merges);
    if (status == STATUS_OK)
        status = vocab_finish(copy);
    if (status != STATUS_OK) {
        vocab_destroy(copy);
        return status;
    }
    *out = copy;
    return STATUS_OK;
}

/* Text ---------------------------------------------------------------------------------- */

enum status vocab_encode(const struct vocab *vocab, const char *text, size_t length,
                         int32_t **out, size_t *out_count)
{
    const size_t valid = unicode_valid(text, length);
    struct encoder encoder;
    char stranger[STRANGER_TEXT];
    enum status status;

    if (valid < length)
        return FAIL(STATUS_CORRUPT, "the text is not UTF-8 at byte %zu", valid);
    encoder_init(&encoder, vocab->tokenizer, vocab);
    encoder_add(&encoder, text, length);
    status = encoder.status;
    if (status == STATUS_OK && encoder.stranger_end > 0)
        status = FAIL(STATUS_MISMATCH, "%s is not in the vocabulary of %d %s",
                      encoder_stranger(&encoder, stranger), vocab_size(vocab),
                      vocab->tokenizer->name);
    if (status == STATUS_OK)
        *out = encoder_hand_over(&encoder, out_count);
    encoder_release(&encoder);
    return status;
}

void vocab_decode(const struct vocab *vocab, int32_t before, const int32_t *ids, size_t count,
                  struct strbuf *out)
{
    const struct tokenizer *tokenizer = vocab->tokenizer;
    const int32_t end = vocab->special[VOCAB_END];
    bool is_first = before < 0 || before == end;

    for (size_t i = 0; i < count; i++) {
        size_t length;
        if (ids[i] < 0)
            continue;
        const char *token = vocab_token(vocab, ids[i], &length);
        const bool ends_line = ids[i] == end && tokenizer->ends_lines;
        if (tokenizer->has_spaces && !is_first && !ends_line)
            strbuf_add(out, " ");
        if (ends_line)
            strbuf_add(out, "\n");
        else
            strbuf_add_bytes(out, token, length);
        is_first = ends_line;
    }
}
