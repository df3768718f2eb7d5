/* SPDX-License-Identifier: MIT */
/* vocab.h - tokens and their numbers, and the way from text to numbers and back.
 *
 * A vocabulary knows its tokenizer (tokenize.h). One that is counted from text begins with its
 * specials; the other tokens follow by count, the most frequent first, those of equal count by their
 * bytes. GPT-2's comes from its files and has the merges too. A token is any string of bytes.
 *
 * A run keeps its vocabularies in one file, so that whoever uses the run later has the same numbers;
 * docs/formats.md has it.
 *
 * Threads: a vocabulary does not change; any thread may read it.
 */
#ifndef DATA_VOCAB_H
#define DATA_VOCAB_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/strbuf.h"

struct tokenizer;
struct vocab;

/* Tokens that stand for no text of their own. */
enum vocab_special {
    VOCAB_UNKNOWN, /* <unk>: whatever is not in the vocabulary */
    VOCAB_BEGIN,   /* <bos>: what a decoder sees first */
    VOCAB_END,     /* <eos>: the end of a sentence or line; GPT-2's <|endoftext|> */
    VOCAB_MASK,    /* <mask>: in the place of a token that is to be guessed */
    VOCAB_SPECIALS
};

void vocab_destroy(struct vocab *vocab); /* NULL is allowed */
int32_t vocab_size(const struct vocab *vocab);
const struct tokenizer *vocab_tokenizer(const struct vocab *vocab);
/* Its number, or -1 where the vocabulary has none. */
int32_t vocab_special(const struct vocab *vocab, enum vocab_special special);
/* Bytes of a token, not terminated. */
const char *vocab_token(const struct vocab *vocab, int32_t id, size_t *out_length);
/* The token's number, or -1. */
int32_t vocab_find(const struct vocab *vocab, const char *bytes, size_t length);
/* SHA-256 (64 digits) over tokenizer, specials, tokens and merges. */
const char *vocab_fingerprint(const struct vocab *vocab);

/* Numbers of a text: `*out_count` of them, which the caller frees with mem_free. STATUS_CORRUPT where the
 * text is no UTF-8, STATUS_MISMATCH where the vocabulary lacks a token of it and has no <unk>. */
MUST_CHECK enum status vocab_encode(const struct vocab *vocab, const char *text, size_t length,
                                    int32_t **out, size_t *out_count);
/* Appends the text of some numbers, which follow `before` (-1: nothing); padding is left out. GPT-2's
 * tokens may end within a character, which the next one completes. */
void vocab_decode(const struct vocab *vocab, int32_t before, const int32_t *ids, size_t count,
                  struct strbuf *out);

/* Files ---------------------------------------------------------------------------------- */

enum { VOCAB_FILE_MOST = 2 }; /* vocabularies in a file: one, or source and target */

/* Replaces the file `path`. */
MUST_CHECK enum status vocab_save(const char *path, const struct vocab *const *vocab,
                                  int count);
/* All vocabularies of a file; the caller destroys them. STATUS_CORRUPT names place and reason. */
MUST_CHECK enum status vocab_load(const char *path, struct vocab *out[VOCAB_FILE_MOST],
                                  int *out_count);
/* The same from memory; `path` is named in messages. */
MUST_CHECK enum status vocab_parse(const char *path, const char *text, size_t length,
                                   struct vocab *out[VOCAB_FILE_MOST], int *out_count);
/* Refuses the vocabulary of another run: STATUS_MISMATCH unless its fingerprint is the one given. */
MUST_CHECK enum status vocab_check(const char *path, const struct vocab *vocab,
                                   const char *fingerprint);

#endif /* DATA_VOCAB_H */
