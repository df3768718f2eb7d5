/* SPDX-License-Identifier: MIT */
/* utf8_test.c - what is UTF-8 and what is not. */
#include "base/utf8.h"

#include "base/test.h"

#include <string.h>

static bool is_surrogate(uint32_t code)
{
    return code >= 0xd800 && code <= 0xdfff;
}

static void test_every_code_point_is_encoded_and_recognised(void)
{
    for (uint32_t code = 0; code < 0x110000; code++) {
        char text[4];
        if (is_surrogate(code))
            continue;
        const size_t span = utf8_encode(code, text);
        const size_t expected = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
        if (span != expected || utf8_span(text, span) != span)
            test_fail(__FILE__, __LINE__, "code point %x", code);
        if (span > 1 && utf8_span(text, span - 1) != 0)
            test_fail(__FILE__, __LINE__, "code point %x cut short is taken", code);
    }
}

static void test_every_beginning_may_be_completed(void)
{
    for (uint32_t code = 0x80; code < 0x110000; code++) {
        char text[5] = "x";
        if (is_surrogate(code))
            continue;
        const size_t span = utf8_encode(code, text + 1);
        for (size_t cut = 1; cut < span; cut++) {
            if (utf8_unfinished(text, 1 + cut) != cut || utf8_unfinished(text + 1, cut) != cut)
                test_fail(__FILE__, __LINE__, "code point %x cut after %zu bytes", code, cut);
        }
        if (utf8_unfinished(text, 1 + span) != 0)
            test_fail(__FILE__, __LINE__, "code point %x is unfinished", code);
    }
}

static void test_what_can_never_be_completed_is_not_waited_for(void)
{
    static const char *const over[] = { "",         "abc",      "\x80",         "\xc0",
                                        "\xe0\x9f", "\xed\xa0", "\xf4\x90\x80", "\xf5",
                                        "\xff",     "\xc3(",    "a\xe2\x82(" };

    for (size_t i = 0; i < sizeof over / sizeof over[0]; i++)
        if (utf8_unfinished(over[i], strlen(over[i])) != 0)
            test_fail(__FILE__, __LINE__, "sequence %zu is waited for", i);
}

static void test_examples(void)
{
    char text[4];

    CHECK(utf8_encode(0xe9, text) == 2 && memcmp(text, "\xc3\xa9", 2) == 0);
    CHECK(utf8_encode(0x20ac, text) == 3 && memcmp(text, "\xe2\x82\xac", 3) == 0);
    CHECK(utf8_encode(0x1f600, text) == 4 && memcmp(text, "\xf0\x9f\x98\x80", 4) == 0);
}

static void test_malformed_bytes_are_refused(void)
{
    static const char *const malformed[] = {
        "\x80",             /* continuation first */
        "\xc3(",            /* no continuation */
        "\xc0\xaf",         /* overlong, 2 bytes */
        "\xc1\xbf",         /* overlong, 2 bytes */
        "\xe0\x9f\xbf",     /* overlong, 3 bytes */
        "\xf0\x8f\xbf\xbf", /* overlong, 4 bytes */
        "\xed\xa0\x80",     /* first surrogate */
        "\xed\xbf\xbf",     /* last surrogate */
        "\xf4\x90\x80\x80", /* U+110000 */
        "\xf5\x80\x80\x80", /* beyond */
        "\xff",             /* never */
        "\xe2\x82(",        /* third byte */
        "\xf0\x9f\x98(",    /* fourth byte */
    };

    for (size_t i = 0; i < sizeof malformed / sizeof malformed[0]; i++)
        if (utf8_span(malformed[i], strlen(malformed[i])) != 0)
            test_fail(__FILE__, __LINE__, "sequence %zu is taken", i);
    CHECK_INT(0, utf8_span("a", 0));
}

const struct test tests[] = {
    { .name = "every beginning may be completed",
      .run = test_every_beginning_may_be_completed },
    { .name = "what can never be completed is not waited for",
      .run = test_what_can_never_be_completed_is_not_waited_for },
    { .name = "every code point is encoded and recognised",
      .run = test_every_code_point_is_encoded_and_recognised },
    { .name = "examples", .run = test_examples },
    { .name = "malformed bytes are refused", .run = test_malformed_bytes_are_refused },
    { 0 },
};
