/* SPDX-License-Identifier: MIT */
/* unicode.c - binary search in ranges; lower case of one character in its place. */
#include "data/unicode.h"

#include "base/utf8.h"

#include <string.h>

enum {
    CAPITAL_I_DOT = 0x130,
    CAPITAL_SIGMA = 0x3a3,
    SIGMA = 0x3c3,
    FINAL_SIGMA = 0x3c2,
    DOT_ABOVE = 0x307
};

bool unicode_is_in(const struct unicode_set *set, uint32_t code)
{
    size_t low = 0, high = set->count;

    while (low < high) {
        const size_t middle = (low + high) / 2;
        if (code > set->range[middle].last)
            low = middle + 1;
        else
            high = middle;
    }
    return low < set->count && code >= set->range[low].first;
}

uint32_t unicode_decode(const char *text, size_t length, size_t *out_bytes)
{
    const unsigned char *byte = (const unsigned char *)text;
    const size_t span = utf8_span(text, length);

    *out_bytes = span > 0 ? span : 1;
    if (span == 0)
        return UNICODE_STRAY;
    if (span == 1)
        return byte[0];
    uint32_t code = byte[0] & (0x7fu >> span);
    for (size_t i = 1; i < span; i++)
        code = code << 6 | (byte[i] & 0x3f);
    return code;
}

/* Where the character that ends before `at` begins. */
static size_t step_back(const char *text, size_t at)
{
    size_t begin = at - 1;

    while (begin > 0 && at - begin < 4 && ((unsigned char)text[begin] & 0xc0) == 0x80)
        begin--;
    return utf8_span(text + begin, at - begin) == at - begin ? begin : at - 1;
}

static bool follows_cased(const char *text, size_t at)
{
    while (at > 0) {
        const size_t begin = step_back(text, at);
        size_t bytes;
        const uint32_t code = unicode_decode(text + begin, at - begin, &bytes);
        if (!unicode_is_in(&unicode_skipped, code))
            return unicode_is_in(&unicode_cased, code);
        at = begin;
    }
    return false;
}

static bool precedes_cased(const char *text, size_t length, size_t at)
{
    while (at < length) {
        size_t bytes;
        const uint32_t code = unicode_decode(text + at, length - at, &bytes);
        if (!unicode_is_in(&unicode_skipped, code))
            return unicode_is_in(&unicode_cased, code);
        at += bytes;
    }
    return false;
}

static uint32_t lower_of(uint32_t code)
{
    size_t low = 0, high = unicode_n_lowers;

    while (low < high) {
        const size_t middle = (low + high) / 2;
        if (code > unicode_lowers[middle].last)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == unicode_n_lowers || code < unicode_lowers[low].first)
        return code;
    const struct unicode_lower *run = &unicode_lowers[low];
    return (code - run->first) % run->step == 0 ? (uint32_t)((int32_t)code + run->delta) : code;
}

size_t unicode_lower_at(const char *text, size_t length, size_t *at,
                        char out[UNICODE_LOWER_BYTES])
{
    const size_t begin = *at;
    size_t bytes;
    const uint32_t code = unicode_decode(text + begin, length - begin, &bytes);

    *at = begin + bytes;
    if (code == UNICODE_STRAY) {
        out[0] = text[begin];
        return 1;
    }
    if (code == CAPITAL_I_DOT) { /* becomes two: i and a dot above */
        out[0] = 'i';
        return 1 + utf8_encode(DOT_ABOVE, out + 1);
    }
    if (code == CAPITAL_SIGMA)
        return utf8_encode(follows_cased(text, begin) && !precedes_cased(text, length, *at)
                               ? FINAL_SIGMA
                               : SIGMA,
                           out);
    return utf8_encode(lower_of(code), out);
}

size_t unicode_valid(const char *text, size_t length)
{
    size_t at = 0;

    while (at < length) {
        uint64_t word;
        for (; at + sizeof word <= length; at += sizeof word) { /* mostly ASCII */
            memcpy(&word, text + at, sizeof word);
            if (word & UINT64_C(0x8080808080808080))
                break;
        }
        const size_t stop = length - at < sizeof word ? length : at + sizeof word;
        while (at < stop) {
            const size_t span = utf8_span(text + at, length - at);
            if (span == 0)
                return at;
            at += span;
        }
    }
    return length;
}
