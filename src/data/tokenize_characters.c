/* SPDX-License-Identifier: MIT */
/* tokenize_characters.c - every code point is a token. */
#include "data/tokenize.h"

#include "base/utf8.h"

static void encode(struct encoder *encoder, const char *text, size_t length)
{
    for (size_t at = 0; at < length && encoder->status == STATUS_OK;) {
        const size_t span = utf8_span(text + at, length - at);
        const size_t bytes = span > 0 ? span : 1;

        encoder_take(encoder, text + at, bytes);
        at += bytes;
    }
}

const struct tokenizer tokenizer_characters = {
    .name = "characters",
    .summary = "code points, each a token",
    .encode = encode,
};
