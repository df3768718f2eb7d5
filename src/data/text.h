/* SPDX-License-Identifier: MIT */
/* text.h - text data sets as sources of numbers.
 *
 * Text of a data set or a path becomes samples in one of four ways:
 *
 *   TEXT_CLASSES       a document and its class: x its tokens, y the class
 *   TEXT_PAIRS         a sentence and its translation: x the source's tokens, x2 <bos> and the target's,
 *                      y the target's and <eos>
 *   TEXT_NEXT_TOKEN    a stream cut into blocks of `length`: x a block, y the same, one token further. Where the
 *                      first block begins is drawn anew in every epoch
 *   TEXT_MASKED_TOKEN  the same stream: of the tokens of a block 15 % are to be guessed, drawn from (seed,
 *                      epoch, sample, position). Of those 80 % are <mask> in x, 10 % any token, 10 % as they
 *                      were; y has them, and padding elsewhere (BERT)
 *
 * The training split counts its vocabulary, unless it is given one; other splits use that. Where both are
 * parts of one file and there is no <unk>, characters that only the other part has are in it, too. Documents
 * longer than `length` lose their ends.
 *
 * Formats: labelled text is train.tsv and test.tsv, or one file NAME.tsv; pairs are train.A and train.B, lines of
 * which belong together, and the same for val and test; plain text is input.txt or any one file, the last
 * tenth of whose characters are for testing, or files train, valid and test. All may end in .gz.
 *
 * Threads: as source.h.
 */
#ifndef DATA_TEXT_H
#define DATA_TEXT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "data/class_map.h"
#include "data/source.h"
#include "data/vocab.h"

enum text_task { TEXT_CLASSES, TEXT_PAIRS, TEXT_NEXT_TOKEN, TEXT_MASKED_TOKEN, TEXT_TASKS };
enum text_split { TEXT_TRAIN, TEXT_VALIDATION, TEXT_TEST };
/* What a folder's text is; TEXT_VOCABULARY is GPT-2's files. */
enum text_kind { TEXT_LABELLED, TEXT_PARALLEL, TEXT_PLAIN, TEXT_VOCABULARY };
enum { TEXT_SIDES = 2, TEXT_LENGTH = 256 /* of a block, unless said otherwise */ };

struct text_config {
    enum text_task task;
    const char *
        tokenizer; /* tokenize.h's name, or a folder with GPT-2's files; NULL or "": the data set's
                              usual one, else words, or characters for plain text */
    int64_t
        min_count; /* of a word to be in the vocabulary; 0: 2 for pairs, else 1; 2 or more: with <unk> */
    int64_t most; /* tokens in a vocabulary, specials included; 0: any number */
    int64_t length
        [TEXT_SIDES]; /* tokens of a sample at most; 0: TEXT_LENGTH for streams, else any */
    int threads;      /* to tokenize; 0: as many as there are processors */
    bool
        any_classes; /* labels may all be the same: those of a run are known (text_set_classes) */
    /* Given vocabularies, borrowed while the text lives; NULL: counted from this split. */
    const struct vocab *vocab[TEXT_SIDES];
};

struct text;

/* `name` as dataset_open has it, or the path of a file. STATUS_USAGE where the text is not what the task
 * needs. A split that has no files is the one nearest to it: validation and test stand in for each
 * other. */
MUST_CHECK enum status text_open(const char *name, enum text_split split,
                                 const struct text_config *config, struct text **out);
void text_close(struct text *text); /* NULL is allowed */
/* The first `limit` samples only; 0 is all. */
void text_limit(struct text *text, int64_t limit);

/* The samples for a loader or an evaluation; borrowed. */
const struct source *text_as_source(const struct text *text);
/* Its vocabulary, the second being the target's; NULL where there is none. Lives as long as the text,
 * or as who gave it. */
const struct vocab *text_vocab(const struct text *text, int side);
/* Makes labels those of a run that has these classes, matched by class_map; names and their
 * number are the run's from now on. `run` is borrowed while the text lives. Not while others
 * read. */
MUST_CHECK enum status text_set_classes(struct text *text, const struct class_list *run);
int text_classes(const struct text *text); /* 0 where samples have no class */
const char *text_class_name(const struct text *text, int class, char room[24]);
int64_t text_tokens(const struct text *text,
                    int side); /* in all samples, cut ones counted whole */
int64_t text_longest(const struct text *text,
                     int side); /* of a sample, at most the length set */
/* The text of a pair as the file has it, not terminated: what translations are compared with. */
const char *text_line(const struct text *text, int64_t index, int side, size_t *out_length);

/* Is this data set or path text, and of what kind? Fails as search_find does. */
MUST_CHECK enum status text_kind_of(const char *name, bool *out_is_text,
                                    enum text_kind *out_kind);
/* GPT-2's vocabulary from a folder, or from the data set gpt2-bpe for NULL. */
MUST_CHECK enum status text_open_bpe(const char *folder, struct vocab **out);

#endif /* DATA_TEXT_H */
