/* SPDX-License-Identifier: MIT */
/* tokenize.h - tokenizers: text to tokens, one row each.
 *
 *   characters   code points, each a token
 *   words        lower case, split as torchtext's basic_english does: . , ( ) ! ? ' are words of their own,
 *                " is dropped, ; : <br /> and spaces separate
 *   gpt2         GPT-2's byte pairs, from its files
 *
 * Threads: a struct encoder is for one thread, tokenizers for all.
 */
#ifndef DATA_TOKENIZE_H
#define DATA_TOKENIZE_H

#include <stdbool.h>

#include "data/merges.h"
#include "data/token_map.h"
#include "data/vocab.h"

struct encoder;

struct tokenizer {
    const char *name, *summary;
    /* Hands the tokens of text[0..length) to encoder_take or encoder_push. */
    void (*encode)(struct encoder *encoder, const char *text, size_t length);
    bool has_spaces;    /* decoded text has a space between two tokens */
    bool ends_lines;    /* line ends are no tokens: in a stream each becomes <eos> */
    bool has_own_vocab; /* from files; others count theirs */
};
extern const struct tokenizer *const tokenizer_table[]; /* ended by NULL */
extern const struct tokenizer tokenizer_characters, tokenizer_words, tokenizer_gpt2;

/* By name; NULL if unknown. */
const struct tokenizer *tokenizer_find(const char *name);
/* The same; STATUS_USAGE names those there are. */
MUST_CHECK enum status tokenizer_get(const char *name, const struct tokenizer **out);

/* Private to data/ ------------------------------------------------------------------------ */

/* Numbers of words that were met before. */
struct piece_cache {
    struct token_map pieces;
    uint32_t *start; /* of piece i in `id`; its end is start[i + 1] */
    int32_t *id;
    uint32_t n_ids;
};

/* Turns text into numbers: those of a vocabulary, or, while one is counted, those of `seen`. */
struct encoder {
    const struct tokenizer *tokenizer;
    const struct vocab *vocab; /* NULL: counts */
    struct token_map seen;
    int64_t *counts; /* of `seen` */
    size_t counts_capacity;

    int32_t *id; /* what came out so far: taken over by encoder_hand_over */
    size_t count, capacity;

    int32_t unknown;  /* the vocabulary's <unk>, or -1 */
    char stranger[8]; /* the first token that it lacks and has no <unk> for */
    size_t stranger_bytes, stranger_end; /* stranger_end: `count` when it came, 0: none did */

    char *scratch; /* the word that is being made */
    size_t scratch_capacity;
    struct merge_room room;
    struct piece_cache cache;
    enum status status; /* sticky: STATUS_NO_MEMORY */
};

void encoder_init(struct encoder *encoder, const struct tokenizer *tokenizer,
                  const struct vocab *vocab);
void encoder_release(struct encoder *encoder);
/* Appends the numbers of a text. Failure is in encoder->status. */
void encoder_add(struct encoder *encoder, const char *text, size_t length);
/* Forgets all numbers but the first `count`. */
void encoder_cut(struct encoder *encoder, size_t count);
/* Gives the numbers away, to be freed with mem_free, and begins anew. */
int32_t *encoder_hand_over(struct encoder *encoder, size_t *out_count);

/* The stranger as people can read it, in quotes. */
enum { STRANGER_TEXT = 40 };
const char *encoder_stranger(const struct encoder *encoder, char room[STRANGER_TEXT]);

/* For tokenizers: a token, a number, room in `scratch`. */
void encoder_take(struct encoder *encoder, const char *bytes, size_t length);
void encoder_push(struct encoder *encoder, int32_t id);
bool encoder_make_scratch(struct encoder *encoder, size_t bytes);

#endif /* DATA_TOKENIZE_H */
