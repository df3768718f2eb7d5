/* SPDX-License-Identifier: MIT */
/* beam.h - the most probable sequences that a model which predicts one token after the other gives.
 *
 * Several sentences are searched at once, each by `width` hypotheses side by side; width 1 is greedy. A
 * hypothesis that ends is scored by its log probability over its length (tokens, the end included); a
 * sentence is done when `width` of its hypotheses have ended. Of equal ones the one of the earlier
 * hypothesis comes first, then the smaller token.
 *
 * Knows no model: a function runs it.
 */
#ifndef TRAIN_BEAM_H
#define TRAIN_BEAM_H

#include <stdint.h>

#include "base/status.h"

/* Goes one token further: row i, of sentence i / width, is what row parent[i] was before, followed by
 * token[i]. Gives the logits of the next token, row by row, valid until the next call. In the first
 * call rows are their own parents and tokens are the beginning of a text. */
typedef enum status beam_step(void *arg, const int32_t *parent, const int32_t *token,
                              const float **out_logits);

struct beam_config {
    int64_t sentences, width, vocabulary;
    int64_t longest; /* tokens a text has at most, without the end */
    int32_t begin, end;
};

struct beam_text {
    int32_t *tokens; /* without beginning and end; the caller frees it */
    int64_t count;
    double score; /* mean log probability of a token */
};

/* The best text of each sentence; out has config->sentences places. */
MUST_CHECK enum status beam_search(const struct beam_config *config, beam_step *step, void *arg,
                                   struct beam_text *out);
/* Frees the tokens of `count` texts. */
void beam_release(struct beam_text *texts, int64_t count);

#endif /* TRAIN_BEAM_H */
