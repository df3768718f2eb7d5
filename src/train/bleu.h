/* SPDX-License-Identifier: MIT */
/* bleu.h - corpus BLEU (Papineni et al. 2002) to the last digit as sacreBLEU (Post 2018) gives it.
 *
 * One reference a segment, words up to four in a row, the tokenizer 13a of NIST's mteval, smoothing
 * "exp" (each order without a match counts half of the one before). Segments are added one by one; what is
 * kept are counts. Texts are UTF-8; bytes that are none count as characters of no meaning.
 *
 * Threads: one thread at a time; counts of several may be added up member by member.
 */
#ifndef TRAIN_BLEU_H
#define TRAIN_BLEU_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "base/strbuf.h"

enum { BLEU_ORDER = 4 };

/* What a corpus has counted so far; begins as zeros. */
struct bleu {
    bool is_lower_case;                             /* both texts are compared in lower case */
    int64_t correct[BLEU_ORDER], total[BLEU_ORDER]; /* n-grams of the hypotheses: found, all */
    int64_t hypothesis_words, reference_words;
};

struct bleu_score {
    double score; /* 0 to 100 */
    double precision[BLEU_ORDER], brevity_penalty;
};

/* Counts one segment. */
MUST_CHECK enum status bleu_add(struct bleu *bleu, const char *hypothesis,
                                const char *reference);
struct bleu_score bleu_score(const struct bleu *bleu);
/* How a score was made, in the words that sacreBLEU uses. */
const char *bleu_signature(const struct bleu *bleu);

/* The segment's words, one space between two of them. */
MUST_CHECK enum status bleu_tokenize(const char *segment, struct strbuf *out);

#endif /* TRAIN_BLEU_H */
