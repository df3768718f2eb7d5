/* SPDX-License-Identifier: MIT */
/* tidy.h - the text of tokens as people write it. Private to train/ and cli/. */
#ifndef TRAIN_TIDY_H
#define TRAIN_TIDY_H

#include <stddef.h>
#include <stdint.h>

#include "base/strbuf.h"
#include "data/vocab.h"

/* Adds the text of some tokens. Of words: no space before . , ! ? ) and after (, none around an apostrophe within
 * a word; and bytes that are no UTF-8 become U+FFFD. */
void tidy_decode(const struct vocab *vocab, const int32_t *tokens, size_t count,
                 struct strbuf *out);

#endif /* TRAIN_TIDY_H */
