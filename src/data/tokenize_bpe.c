/* SPDX-License-Identifier: MIT */
/* tokenize_bpe.c - GPT-2's tokenizer: text is cut into words, words into byte pairs.
 *
 * The words are what this expression finds, one after the other (\p{L} letters, \p{N} numbers, \s white
 * space, all of Unicode):
 *
 *      's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
 *
 * A word takes the space before it; of white space that a word follows the last character stays behind for
 * that. Words repeat: the numbers of short ones are kept.
 */
#include "data/tokenize.h"

#include "base/mem.h"
#include "data/unicode.h"
#include "data/vocab_build.h"

#include <string.h>

enum { CACHED_BYTES = 32, CACHED_PIECES = 1 << 16 };
enum class { LETTER, NUMBER, SPACE, OTHER };

/* The class of the character at text[at]; *out_end is where it ends. */
static enum class class_at(const char *text, size_t length, size_t at, size_t *out_end) {
    const unsigned char byte = (unsigned char)text[at]; size_t bytes = 1;

    if (byte < 0x80){ *out_end = at + 1;
                      if ((byte | 0x20) >= 'a' && (byte | 0x20) <= 'z') return LETTER;
                      if (byte >= '0' && byte <= '9') return NUMBER;
                      return byte == ' ' || (byte >= 9 && byte <= 13) ? SPACE : OTHER; }
const uint32_t code = unicode_decode(text + at, length - at, &bytes);
*out_end = at + bytes;
if (unicode_is_in(&unicode_letters, code))
    return LETTER;
if (unicode_is_in(&unicode_numbers, code))
    return NUMBER;
return unicode_is_in(&unicode_spaces, code) ? SPACE : OTHER;
}

/* Where 's, 't, 're, 've, 'm, 'll or 'd ends; `at` if there is none. */
static size_t contraction_end(const char *text, size_t length, size_t at)
{
    static const char *const endings[] = { "s", "t", "re", "ve", "m", "ll", "d" };

    if (text[at] != '\'')
        return at;
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        const size_t bytes = strlen(endings[i]);
        if (length - at - 1 >= bytes && memcmp(text + at + 1, endings[i], bytes) == 0)
            return at + 1 + bytes;
    }
    return at;
}

/* Where a run of characters of one class ends. */
static size_t run_end(const char *text, size_t length, size_t at, enum class class)
{
    size_t end;

    while (at < length && class_at(text, length, at, &end) == class)
        at = end;
    return at;
}

/* White space: all of it at the end of the text, else all but its last character, if it has two. */
static size_t space_end(const char *text, size_t length, size_t at)
{
    size_t last = at, end = at, next;

    while (end < length && class_at(text, length, end, &next) == SPACE) {
        last = end;
        end = next;
    }
    return end == length || last == at ? end : last;
}

/* Where the word that begins at `at` < length ends. */
static size_t word_end(const char *text, size_t length, size_t at)
{
    size_t next;
    const size_t contraction = contraction_end(text, length, at);

    if (contraction > at)
        return contraction;
    const size_t begin = at + (text[at] == ' ');
    if (begin < length) {
        const enum class class = class_at(text, length, begin, &next);
        if (class != SPACE)
            return run_end(text, length, next, class);
    }
    return space_end(text, length, at);
}

static enum status make_cache(struct piece_cache *cache)
{
    if (cache->start)
        return STATUS_OK;
    TRY(mem_alloc(CACHED_PIECES + 1, sizeof *cache->start, &cache->start));
    return mem_alloc((size_t)CACHED_PIECES * CACHED_BYTES, sizeof *cache->id, &cache->id);
}

/* A word's numbers go into the cache; a full one begins anew. */
static enum status keep(struct piece_cache *cache, const char *word, size_t length,
                        const int32_t *id, size_t count)
{
    int32_t number;

    TRY(make_cache(cache));
    if (cache->pieces.count == CACHED_PIECES) {
        token_map_clear(&cache->pieces);
        cache->n_ids = 0;
    }
    TRY(token_map_add(&cache->pieces, word, length, &number));
    memcpy(cache->id + cache->n_ids, id, count * sizeof *id);
    cache->start[number] = cache->n_ids;
    cache->n_ids += (uint32_t)count;
    cache->start[number + 1] = cache->n_ids;
    return STATUS_OK;
}

static void encode_word(struct encoder *encoder, const char *word, size_t length)
{
    struct piece_cache *cache = &encoder->cache;
    const int32_t kept =
        length <= CACHED_BYTES ? token_map_find(&cache->pieces, word, length) : -1;

    if (kept >= 0) {
        for (uint32_t i = cache->start[kept]; i < cache->start[kept + 1]; i++)
            encoder_push(encoder, cache->id[i]);
        return;
    }
    size_t count;
    enum status status =
        merges_apply(encoder->vocab->merges, word, length, &encoder->room, &count);
    for (size_t i = 0; status == STATUS_OK && i < count; i++)
        encoder_push(encoder, encoder->room.id[i]);
    if (status == STATUS_OK && length <= CACHED_BYTES)
        status = keep(cache, word, length, encoder->room.id, count);
    if (status != STATUS_OK)
        encoder->status = status;
}

static void encode(struct encoder *encoder, const char *text, size_t length)
{
    for (size_t at = 0; at < length && encoder->status == STATUS_OK;) {
        const size_t end = word_end(text, length, at);

        encode_word(encoder, text + at, end - at);
        at = end;
    }
}

const struct tokenizer tokenizer_gpt2 = {
    .name = "gpt2",
    .summary = "GPT-2's byte pairs, 50257 of them; needs the data set gpt2-bpe",
    .encode = encode,
    .has_own_vocab = true,
};
