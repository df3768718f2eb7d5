/* SPDX-License-Identifier: MIT */
/* strbuf_test.c - growth up to the maximum, sticky errors, escapes and numbers. */
#include "base/strbuf.h"

#include "base/mem.h"
#include "base/test.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void test_text_is_never_null(void)
{
    struct strbuf buf;

    strbuf_init(&buf, 100);
    CHECK_TEXT("", buf.text);
    strbuf_clear(&buf);
    CHECK_TEXT("", buf.text);
    strbuf_release(&buf);
    strbuf_init(&buf, 0);
    strbuf_add(&buf, "");
    CHECK_OK(strbuf_status(&buf));
    CHECK_TEXT("", buf.text);
    strbuf_release(&buf);
}

static void test_pieces_add_up(struct rng *rng)
{
    enum { MAX = 3000 };
    struct strbuf buf;
    char expected[MAX + 1] = "";
    size_t length = 0;

    strbuf_init(&buf, MAX);
    for (;;) {
        char piece[300];
        const size_t more = rng_below(rng, sizeof piece);
        for (size_t i = 0; i < more; i++)
            piece[i] = (char)('a' + rng_below(rng, 26));
        piece[more] = '\0';
        if (length + more > MAX)
            break;
        if (rng_below(rng, 2) == 0)
            strbuf_printf(&buf, "%s", piece);
        else
            strbuf_add(&buf, piece);
        memcpy(expected + length, piece, more + 1);
        length += more;
        CHECK_OK(strbuf_status(&buf));
        CHECK_INT(length, buf.length);
        CHECK_TEXT(expected, buf.text);
    }
    strbuf_release(&buf);
}

static void test_maximum_is_reached_but_not_passed(void)
{
    struct strbuf buf;

    strbuf_init(&buf, 5);
    strbuf_add(&buf, "abc");
    strbuf_printf(&buf, "%d", 12);
    CHECK_OK(strbuf_status(&buf));
    CHECK_TEXT("abc12", buf.text);
    strbuf_add(&buf, "d");
    CHECK_STATUS(STATUS_NO_MEMORY, strbuf_status(&buf));
    CHECK_MESSAGE("maximum of 5 bytes");
    strbuf_clear(&buf);
    CHECK_OK(strbuf_status(&buf));
    strbuf_printf(&buf, "%s", "123456");
    CHECK_STATUS(STATUS_NO_MEMORY, strbuf_status(&buf));
    strbuf_add(&buf, "x"); /* would fit, but comes after a failure */
    CHECK_TEXT("", buf.text);
    strbuf_release(&buf);
}

static void test_a_refused_allocation_is_kept(void)
{
    struct strbuf buf;

    strbuf_init(&buf, SIZE_MAX);
    mem_fail_at(1);
    strbuf_add(&buf, "abc");
    strbuf_add(&buf, "def");
    CHECK_STATUS(STATUS_NO_MEMORY, strbuf_status(&buf));
    CHECK_TEXT("", buf.text);
    strbuf_clear(&buf);

    strbuf_add(&buf, "abc");
    mem_fail_at(1);
    strbuf_printf(&buf, "%5000d", 1);
    CHECK_STATUS(STATUS_NO_MEMORY, strbuf_status(&buf));
    CHECK_TEXT("abc", buf.text);
    strbuf_release(&buf);
}

static void test_clearing_keeps_the_memory(void)
{
    struct strbuf buf;

    strbuf_init(&buf, 10000);
    strbuf_printf(&buf, "%3000d", 1);
    const uint64_t before = mem_count();
    strbuf_clear(&buf);
    CHECK_TEXT("", buf.text);
    strbuf_add(&buf, "short");
    CHECK_TEXT("short", buf.text);
    strbuf_clear(&buf);
    strbuf_printf(&buf, "%3000d", 1);
    CHECK_INT(before, mem_count());
    CHECK_OK(strbuf_status(&buf));
    strbuf_release(&buf);
}

static void test_bytes_may_hold_nul(void)
{
    struct strbuf buf;

    strbuf_init(&buf, 10);
    strbuf_add_bytes(&buf, "a\0b", 3);
    strbuf_add_bytes(&buf, NULL, 0);
    CHECK_INT(3, buf.length);
    CHECK(memcmp(buf.text, "a\0b", 4) == 0);
    strbuf_release(&buf);
}

static void check_escapes(void (*add)(struct strbuf *, const char *), const char *expected,
                          const char *text)
{
    struct strbuf buf;

    strbuf_init(&buf, 1000);
    add(&buf, text);
    CHECK_OK(strbuf_status(&buf));
    CHECK_TEXT(expected, buf.text);
    strbuf_release(&buf);
}

static void test_xml_escapes(void)
{
    check_escapes(strbuf_add_xml, "", "");
    check_escapes(strbuf_add_xml, "plain \xe2\x82\xac", "plain \xe2\x82\xac");
    check_escapes(strbuf_add_xml, "&lt;b a=&quot;1&quot;&gt;&amp;&#39;", "<b a=\"1\">&'");
    check_escapes(strbuf_add_xml, "a\t\r\nb", "a\t\r\nb");
    check_escapes(strbuf_add_xml,
                  "a\xef\xbf\xbd"
                  "b",
                  "a\x01"
                  "b");
    check_escapes(strbuf_add_xml, "a\xef\xbf\xbd", "a\xff");
}

static void test_json_escapes(void)
{
    check_escapes(strbuf_add_json, "\"\"", "");
    check_escapes(strbuf_add_json, "\"a\\\"b\\\\c/\"", "a\"b\\c/");
    check_escapes(strbuf_add_json, "\"\\n\\r\\t\\u0001\\u001f \\u0008\"", "\n\r\t\x01\x1f \b");
    check_escapes(strbuf_add_json, "\"\xe2\x82\xac\"", "\xe2\x82\xac");
    check_escapes(strbuf_add_json, "\"\\ufffd\\ufffdx\"", "\xe2\x82x");
}

static void check_number(const char *expected, double number)
{
    struct strbuf buf;

    strbuf_init(&buf, 100);
    strbuf_add_number(&buf, number);
    CHECK_TEXT(expected, buf.text);
    strbuf_release(&buf);
}

static void test_numbers_are_short(void)
{
    check_number("0", 0);
    check_number("-0", -0.0);
    check_number("100", 100);
    check_number("0.1", 0.1);
    check_number("-2.5", -2.5);
    check_number("1e-05", 1e-5);
    check_number("1e+300", 1e300);
    check_number("0.30000000000000004", 0.1 + 0.2);
    check_number("9007199254740992", 0x1p53);
    check_number("5e-324", 0x1p-1074);
    check_number("1.7976931348623157e+308", 0x1.fffffffffffffp1023);
    check_number("null", (double)NAN);
    check_number("null", (double)INFINITY);
    check_number("null", -(double)INFINITY);
}

/* How many significant digits a decimal has, without trailing zeros. */
static int count_digits(const char *text)
{
    int digits = 0, zeros = 0;

    for (; *text && *text != 'e'; text++) {
        if (*text < '0' || *text > '9' || (digits == 0 && *text == '0'))
            continue;
        zeros = *text == '0' ? zeros + 1 : 0;
        digits++;
    }
    return digits - zeros;
}

static void test_numbers_read_back(struct rng *rng)
{
    struct strbuf buf;
    double number;
    uint64_t bits = rng_u64(rng);

    if (rng_below(rng, 4) == 0)
        bits &= 0x800fffffffffffff >> rng_below(rng, 50); /* subnormal, then ever smaller */
    if (rng_below(rng, 4) == 0)
        number = (double)(int64_t)rng_below(rng, 2000000) / 1000;
    else
        memcpy(&number, &bits, sizeof number);
    if (!isfinite(number))
        return;

    strbuf_init(&buf, 100);
    strbuf_add_number(&buf, number);
    const double back = strtod(buf.text, NULL);
    CHECK(memcmp(&back, &number, sizeof number) == 0);

    const int digits = count_digits(buf.text);
    if (digits > 1) { /* one digit less does not do */
        char shorter[64];
        snprintf(shorter, sizeof shorter, "%.*e", digits - 2, number);
        CHECK(strtod(shorter, NULL) != number);
    }
    strbuf_release(&buf);
}

const struct test tests[] = {
    { .name = "text is never NULL", .run = test_text_is_never_null },
    { .name = "pieces add up", .property = test_pieces_add_up },
    { .name = "maximum is reached but not passed",
      .run = test_maximum_is_reached_but_not_passed },
    { .name = "a refused allocation is kept", .run = test_a_refused_allocation_is_kept },
    { .name = "clearing keeps the memory", .run = test_clearing_keeps_the_memory },
    { .name = "bytes may hold NUL", .run = test_bytes_may_hold_nul },
    { .name = "xml escapes", .run = test_xml_escapes },
    { .name = "json escapes", .run = test_json_escapes },
    { .name = "numbers are short", .run = test_numbers_are_short },
    { .name = "numbers read back", .property = test_numbers_read_back },
    { 0 },
};
