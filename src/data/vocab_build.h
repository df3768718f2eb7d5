/* SPDX-License-Identifier: MIT */
/* vocab_build.h - how vocabularies come to be. Private to data/. */
#ifndef DATA_VOCAB_BUILD_H
#define DATA_VOCAB_BUILD_H

#include <stdbool.h>

#include "data/merges.h"
#include "data/token_map.h"
#include "data/vocab.h"

/* Everything of a vocabulary, as the other files of this folder see it. */
struct vocab {
    const struct tokenizer *tokenizer;
    struct token_map tokens;
    int32_t special[VOCAB_SPECIALS]; /* -1: none */
    struct merges *merges;           /* NULL: none */
    char fingerprint[65];
};

extern const char *const vocab_special_text[VOCAB_SPECIALS]; /* "<unk>", ... */

struct vocab_rule {
    bool special[VOCAB_SPECIALS]; /* those it is to have */
    int64_t min_count;            /* of a token that is taken up; 0 and 1: all are */
    int64_t most;                 /* tokens, specials included; 0: as many as there are */
};

/* Chooses among counted tokens. number[i] becomes what token i of `seen` is now: <unk> or -1 for those
 * left out. Without rule->special[VOCAB_UNKNOWN] there is an <unk> only if some are left out. */
MUST_CHECK enum status vocab_choose(const struct tokenizer *tokenizer,
                                    const struct vocab_rule *rule, const struct token_map *seen,
                                    const int64_t *counts, int32_t *number, struct vocab **out);

/* A copy that has <mask> too, as its last token. */
MUST_CHECK enum status vocab_add_mask(const struct vocab *vocab, struct vocab **out);

/* GPT-2's files of the folder: encoder.json or vocab.json, and vocab.bpe or merges.txt. */
MUST_CHECK enum status vocab_read_bpe(const char *folder, struct vocab **out);
/* The same from memory; paths are named in messages. */
struct bpe_text {
    const char *path, *text;
    size_t length;
};
MUST_CHECK enum status vocab_parse_bpe(const struct bpe_text *tokens,
                                       const struct bpe_text *merges, struct vocab **out);
enum { BPE_TOKENS, BPE_MERGES, BPE_FILES };
/* The name that one of the two files has in this folder, or NULL. */
const char *vocab_bpe_name(const char *folder, int file);

/* A vocabulary with no tokens; what is missing follows with token_map_add on it. */
MUST_CHECK enum status vocab_create(const struct tokenizer *tokenizer, struct vocab **out);
/* Its merges, whose products must be tokens: STATUS_CORRUPT with the merge's place in *out_at. */
MUST_CHECK enum status vocab_set_merges(struct vocab *vocab, struct merge *merge, int32_t count,
                                        int32_t *out_at);
/* Computes the fingerprint; the last thing done to a vocabulary. */
MUST_CHECK enum status vocab_finish(struct vocab *vocab);
/* As it stands in a file: what the fingerprint is of. */
void vocab_print(const struct vocab *vocab, struct strbuf *out);
/* One token of it, in which control characters are written out; for messages, too. */
void vocab_print_token(const char *token, size_t length, struct strbuf *out);

enum { VOCAB_BYTES_MOST = 1 << 30 }; /* of a file */

#endif /* DATA_VOCAB_BUILD_H */
