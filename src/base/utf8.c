/* SPDX-License-Identifier: MIT */
/* utf8.c - the well-formed sequences of the Unicode Standard, table 3-7; who wants to see them. */
#include "base/utf8.h"

#include <stdlib.h>
#include <string.h>

size_t utf8_span(const char *text, size_t length)
{
    const unsigned char *byte = (const unsigned char *)text;

    if (length == 0)
        return 0;
    if (byte[0] < 0x80)
        return 1;
    if (byte[0] < 0xc2 || byte[0] > 0xf4)
        return 0;

    /* The second byte's range shuts out overlong forms, surrogates and what is too large. */
    const size_t span = byte[0] < 0xe0 ? 2 : byte[0] < 0xf0 ? 3 : 4;
    const unsigned char low = byte[0] == 0xe0 ? 0xa0 : byte[0] == 0xf0 ? 0x90 : 0x80;
    const unsigned char high = byte[0] == 0xed ? 0x9f : byte[0] == 0xf4 ? 0x8f : 0xbf;
    if (length < span || byte[1] < low || byte[1] > high)
        return 0;
    for (size_t i = 2; i < span; i++)
        if ((byte[i] & 0xc0) != 0x80)
            return 0;
    return span;
}

/* Can `left` bytes that are no character become one? What follows the first byte of a character is one of
 * these two, or anything from 0x80 on. */
static bool can_be_completed(const char *start, size_t left)
{
    static const unsigned char second[] = { 0x80, 0xa0 };

    for (size_t more = 1; left + more <= 4; more++) {
        for (int i = 0; i < 2; i++) {
            char whole[4];
            memset(whole, 0x80, sizeof whole);
            memcpy(whole, start, left);
            if (left == 1)
                whole[1] = (char)second[i];
            if (utf8_span(whole, left + more) == left + more)
                return true;
        }
    }
    return false;
}

size_t utf8_unfinished(const char *text, size_t length)
{
    for (size_t left = length < 3 ? length : 3; left > 0; left--) {
        const char *start = text + length - left;
        if (utf8_span(start, left) == 0 && can_be_completed(start, left))
            return left;
    }
    return 0;
}

size_t utf8_encode(uint32_t code, char out[4])
{
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }

    const size_t span = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (size_t i = span - 1; i > 0; i--, code >>= 6)
        out[i] = (char)(0x80 | (code & 0x3f));
    out[0] = (char)((0xf00u >> span & 0xf0) | code);
    return span;
}

void utf8_blank_controls(char *text, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        const unsigned char c = (unsigned char)text[i];
        const unsigned char next = i + 1 < length ? (unsigned char)text[i + 1] : 0;
        if (c < 0x20 || c == 0x7f)
            text[i] = ' ';
        else if (c == 0xc2 && next >= 0x80 && next < 0xa0)
            text[i] = text[i + 1] = ' ';
    }
}

/* tutti never calls setlocale, so the environment is asked as setlocale would. */
bool utf8_is_wanted(void)
{
    static const char *const names[] = { "LC_ALL", "LC_CTYPE", "LANG" };

    for (int i = 0; i < 3; i++) {
        const char *value = getenv(names[i]);
        if (value && *value)
            return strcasestr(value, "utf-8") || strcasestr(value, "utf8");
    }
    return false;
}
