/* SPDX-License-Identifier: MIT */
/* tokenize_words.c - lower-case words, split as torchtext's basic_english does.
 *
 * That is a list of replacements over the whole line, after str.lower: ' becomes " '  ", the double quote
 * is removed, . , ( ) ! ? get spaces around them, "<br />", ; and : become a space; then the line
 * is split at white space. In one pass it is:
 *
 *      Don't say "No..."<br />   ->   don ' t say no . . .
 *
 * A word goes on over a double quote, and so does a "<br />" (the quotes are gone by then).
 */
#include "data/tokenize.h"
#include "data/unicode.h"

enum kind {
    PART,      /* of a word, as it is */
    CAPITAL,   /* of a word, in lower case */
    SEPARATOR, /* ends a word */
    SINGLE,    /* ends a word and is one */
    QUOTE,     /* is not there */
    BRACKET,   /* may begin "<br />" */
    WIDE       /* not ASCII */
};

/* The white space is that of str.split. */
/* clang-format off */
static const uint8_t kinds[128] = {
    ['A'] = CAPITAL, ['B'] = CAPITAL, ['C'] = CAPITAL, ['D'] = CAPITAL, ['E'] = CAPITAL,
    ['F'] = CAPITAL, ['G'] = CAPITAL, ['H'] = CAPITAL, ['I'] = CAPITAL, ['J'] = CAPITAL,
    ['K'] = CAPITAL, ['L'] = CAPITAL, ['M'] = CAPITAL, ['N'] = CAPITAL, ['O'] = CAPITAL,
    ['P'] = CAPITAL, ['Q'] = CAPITAL, ['R'] = CAPITAL, ['S'] = CAPITAL, ['T'] = CAPITAL,
    ['U'] = CAPITAL, ['V'] = CAPITAL, ['W'] = CAPITAL, ['X'] = CAPITAL, ['Y'] = CAPITAL,
    ['Z'] = CAPITAL,
    ['\t'] = SEPARATOR, ['\n'] = SEPARATOR, ['\v'] = SEPARATOR, ['\f'] = SEPARATOR,
    ['\r'] = SEPARATOR, [0x1c] = SEPARATOR, [0x1d] = SEPARATOR, [0x1e] = SEPARATOR,
    [0x1f] = SEPARATOR, [' '] = SEPARATOR, [';'] = SEPARATOR, [':'] = SEPARATOR,
    ['\''] = SINGLE, ['.'] = SINGLE, [','] = SINGLE, ['('] = SINGLE,
    [')'] = SINGLE, ['!'] = SINGLE, ['?'] = SINGLE,
    ['"'] = QUOTE, ['<'] = BRACKET,
};
/* clang-format on */

static enum kind kind_of(char byte)
{
    return (unsigned char)byte < sizeof kinds ? kinds[(unsigned char)byte] : WIDE;
}

/* Bytes of the "<br />" that starts here, quotes within included; 0: there is none. */
static size_t break_bytes(const char *text, size_t length)
{
    static const char lower[] = "<br />", upper[] = "<BR />";
    size_t at = 0;

    for (size_t i = 0; i < sizeof lower - 1; i++, at++) {
        while (at < length && text[at] == '"')
            at++;
        if (at == length || (text[at] != lower[i] && text[at] != upper[i]))
            return 0;
    }
    return at;
}

static void end_word(struct encoder *encoder, size_t *bytes)
{
    if (*bytes > 0)
        encoder_take(encoder, encoder->scratch, *bytes);
    *bytes = 0;
}

/* A character that is not ASCII: a space, or part of a word. Returns its end. */
static size_t take_wide(struct encoder *encoder, const char *text, size_t length, size_t at,
                        size_t *bytes)
{
    size_t span;
    const uint32_t code = unicode_decode(text + at, length - at, &span);

    if (code != UNICODE_STRAY && unicode_is_in(&unicode_spaces, code)) {
        end_word(encoder, bytes);
        return at + span;
    }
    *bytes += unicode_lower_at(text, length, &at, encoder->scratch + *bytes);
    return at;
}

static void encode(struct encoder *encoder, const char *text, size_t length)
{
    size_t bytes = 0;

    /* Lower case may need half as much again, and one character more. */
    if (!encoder_make_scratch(encoder, 2 * length + UNICODE_LOWER_BYTES))
        return;
    for (size_t at = 0; at < length && encoder->status == STATUS_OK;) {
        const char byte = text[at];
        size_t skipped;

        switch (kind_of(byte)) {
        case PART:
            encoder->scratch[bytes++] = byte;
            at++;
            break;
        case CAPITAL:
            encoder->scratch[bytes++] = (char)(byte + ('a' - 'A'));
            at++;
            break;
        case SEPARATOR:
            end_word(encoder, &bytes);
            at++;
            break;
        case SINGLE:
            end_word(encoder, &bytes);
            encoder_take(encoder, &text[at++], 1);
            break;
        case QUOTE:
            at++;
            break;
        case BRACKET:
            skipped = break_bytes(text + at, length - at);
            if (skipped > 0)
                end_word(encoder, &bytes);
            else
                encoder->scratch[bytes++] = byte;
            at += skipped > 0 ? skipped : 1;
            break;
        case WIDE:
            at = take_wide(encoder, text, length, at, &bytes);
            break;
        }
    }
    end_word(encoder, &bytes);
}

const struct tokenizer tokenizer_words = {
    .name = "words",
    .summary = "lower-case words and marks, as torchtext's basic_english",
    .encode = encode,
    .has_spaces = true,
    .ends_lines = true,
};
