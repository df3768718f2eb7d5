/* SPDX-License-Identifier: MIT */
/* tidy.c - joins words and marks that a tokenizer has set apart. */
#include "train/tidy.h"

#include <stdbool.h>
#include <string.h>

#include "base/utf8.h"
#include "data/tokenize.h"

enum { TEXT_MOST = 64 << 20 };

static bool is_one_of(const char *marks, const char *word, size_t length)
{
    return length == 1 && *word && strchr(marks, *word);
}

/* Adds words that one space separates, without the space where people write none. */
static void add_words(const char *text, size_t length, struct strbuf *out)
{
    bool joins = true; /* the next word follows without a space */

    for (size_t at = 0; at < length;) {
        const char *space = memchr(text + at, ' ', length - at);
        const size_t bytes = space ? (size_t)(space - (text + at)) : length - at;
        const char *word = text + at;
        const bool is_apostrophe = is_one_of("'", word, bytes);
        if (!joins && !is_apostrophe && !is_one_of(".,!?)", word, bytes))
            strbuf_add(out, " ");
        strbuf_add_bytes(out, word, bytes);
        joins = is_apostrophe || is_one_of("(", word, bytes);
        at += bytes + 1;
    }
}

/* Adds any bytes as UTF-8. */
static void add_valid(const char *text, size_t length, struct strbuf *out)
{
    for (size_t at = 0; at < length;) {
        const size_t span = utf8_span(text + at, length - at);
        if (span > 0)
            strbuf_add_bytes(out, text + at, span);
        else
            strbuf_add(out, "\uFFFD");
        at += span > 0 ? span : 1;
    }
}

void tidy_decode(const struct vocab *vocab, const int32_t *tokens, size_t count,
                 struct strbuf *out)
{
    struct strbuf text;

    strbuf_init(&text, TEXT_MOST);
    vocab_decode(vocab, -1, tokens, count, &text);
    if (strbuf_status(&text) != STATUS_OK)
        out->status = strbuf_status(&text);
    else if (vocab_tokenizer(vocab)->has_spaces)
        add_words(text.text, text.length, out);
    else
        add_valid(text.text, text.length, out);
    strbuf_release(&text);
}
