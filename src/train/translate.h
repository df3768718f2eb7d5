/* SPDX-License-Identifier: MIT */
/* translate.h - translations by a model with an encoder and a decoder, several sentences at once.
 *
 * Threads: one thread at a time for each translator.
 */
#ifndef TRAIN_TRANSLATE_H
#define TRAIN_TRANSLATE_H

#include <stdint.h>

#include "base/status.h"
#include "train/beam.h"
#include "train/generate.h"

struct translator;

struct translate_config {
    int32_t begin, end; /* of a text, in the vocabulary of the target */
    int64_t width;      /* hypotheses side by side; 1 is greedy */
    int64_t longest;    /* tokens of a translation at most */
};

/* Are there graphs of encoder and decoder for the model? Not for one that was read from a graph
 * file. */
bool translator_is_for(const struct model *model);
/* STATUS_USAGE for a model that it is not for. */
MUST_CHECK enum status translator_create(const struct usable *usable,
                                         const struct translate_config *config,
                                         struct translator **out);
void translator_destroy(struct translator *translator); /* NULL is allowed */

/* Translates `count` sentences of `length` places each, filled with -1: ids (count, length) as the model
 * saw them in training. out has `count` places, for beam_release. */
MUST_CHECK enum status translator_run(struct translator *translator, const int32_t *source,
                                      int64_t count, int64_t length, struct beam_text *out);

#endif /* TRAIN_TRANSLATE_H */
