/* SPDX-License-Identifier: MIT */
/* json_test.c - what is JSON is read as written; what is not is refused where it goes wrong. */
#include "base/json.h"

#include "base/mem.h"
#include "base/strbuf.h"
#include "base/test.h"
#include "base/utf8.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Parses a copy that ends where the text ends, so that sanitizers see a step beyond. */
static enum status parse(const char *text, size_t length, struct json **out)
{
    char *copy;

    TRY(mem_alloc(length, 1, &copy));
    memcpy(copy, text, length);
    const enum status status = json_parse(copy, length, out);
    mem_free(copy); /* the document must not need it */
    return status;
}

static struct json *parse_text(const char *text)
{
    struct json *json = NULL;

    CHECK_OK(parse(text, strlen(text), &json));
    return json;
}

static void test_each_kind_is_read(void)
{
    struct json *json = parse_text(" {\"a\": [1, -2.5, true, false, null, \"x\", {}, []],\n"
                                   "\t\"b\": {\"c\": \"d\"}, \"\": 0}\r\n");
    const struct json_value *root = json_root(json), *a = json_get(root, "a");

    CHECK_INT(JSON_OBJECT, root->kind);
    CHECK_INT(3, root->count);
    CHECK_TEXT("b", root->keys[1]);
    CHECK(a && a->kind == JSON_ARRAY);
    CHECK_INT(8, a->count);
    CHECK(a->items[0].kind == JSON_NUMBER && a->items[0].is_integer &&
          a->items[0].integer == 1);
    CHECK(a->items[1].kind == JSON_NUMBER && !a->items[1].is_integer);
    CHECK(a->items[1].number == -2.5);
    CHECK(a->items[2].kind == JSON_BOOL && a->items[2].boolean);
    CHECK(a->items[3].kind == JSON_BOOL && !a->items[3].boolean);
    CHECK(a->items[4].kind == JSON_NULL);
    CHECK(a->items[5].kind == JSON_STRING);
    CHECK_TEXT("x", a->items[5].text);
    CHECK(a->items[6].kind == JSON_OBJECT && a->items[6].count == 0);
    CHECK(a->items[7].kind == JSON_ARRAY && a->items[7].count == 0);
    CHECK_TEXT("d", json_text(json_get(root, "b"), "c", NULL));
    CHECK_INT(0, json_integer(root, "", 5));
    json_destroy(json);
    json_destroy(NULL);
}

static void test_typed_members_fall_back(void)
{
    struct json *json = parse_text("{\"t\":\"x\",\"n\":1.5,\"i\":7,\"b\":true,\"o\":{},"
                                   "\"big\":99999999999999999999}");
    const struct json_value *root = json_root(json);

    CHECK_TEXT("x", json_text(root, "t", "f"));
    CHECK_TEXT("f", json_text(root, "n", "f"));
    CHECK_TEXT("f", json_text(root, "none", "f"));
    CHECK(json_number(root, "n", 9) == 1.5);
    CHECK(json_number(root, "i", 9) == 7);
    CHECK(json_number(root, "t", 9) == 9);
    CHECK_INT(7, json_integer(root, "i", 9));
    CHECK_INT(9, json_integer(root, "n", 9));
    CHECK_INT(9, json_integer(root, "big", 9));
    CHECK_INT(9, json_integer(root, "o", 9));
    CHECK(json_bool(root, "b", false));
    CHECK(json_bool(root, "i", true));
    CHECK(!json_get(NULL, "t"));
    CHECK(!json_get(json_get(root, "t"), "t"));
    CHECK(!json_get(root, "T"));
    json_destroy(json);
}

static void check_number(const char *text, double number, bool is_integer, int64_t integer)
{
    struct json *json = parse_text(text);
    const struct json_value *value = json_root(json);

    CHECK_INT(JSON_NUMBER, value->kind);
    CHECK(value->number == number && signbit(value->number) == signbit(number));
    CHECK_INT(is_integer, value->is_integer);
    CHECK_INT(integer, value->integer);
    json_destroy(json);
}

static void test_numbers(void)
{
    check_number("0", 0, true, 0);
    check_number("-0", -0.0, true, 0);
    check_number("-17", -17, true, -17);
    check_number("9007199254740993", 9007199254740992.0, true, 9007199254740993);
    check_number("9223372036854775807", 0x1p63, true, INT64_MAX);
    check_number("9223372036854775808", 0x1p63, false, 0);
    check_number("-9223372036854775808", -0x1p63, true, INT64_MIN);
    check_number("-9223372036854775809", -0x1p63, false, 0);
    check_number("123456789012345678901234567890", 123456789012345678901234567890.0, false, 0);
    check_number("1.0", 1, false, 0);
    check_number("1e2", 100, false, 0);
    check_number("1E+2", 100, false, 0);
    check_number("125e-2", 1.25, false, 0);
    check_number("0.1", 0.1, false, 0);
    check_number("0e5", 0, false, 0);
    check_number("1e-400", 0, false, 0);
    check_number("5e-324", 0x1p-1074, false, 0);
    check_number("1.7976931348623157e308", 0x1.fffffffffffffp1023, false, 0);
}

static void test_a_number_of_any_length_is_read(void)
{
    struct strbuf buf;
    struct json *json;

    strbuf_init(&buf, 200000);
    strbuf_add(&buf, "[0.");
    for (int i = 0; i < 10000; i++)
        strbuf_add(&buf, "1234567890");
    strbuf_add(&buf, ",2]");
    CHECK_OK(strbuf_status(&buf));
    CHECK_OK(parse(buf.text, buf.length, &json));
    CHECK_CLOSE(0.1234567890123456789, json_root(json)->items[0].number, 1e-16);
    CHECK_INT(2, json_root(json)->items[1].integer);
    json_destroy(json);
    strbuf_release(&buf);
}

static void check_string(const char *expected, const char *text)
{
    struct json *json = parse_text(text);

    CHECK_INT(JSON_STRING, json_root(json)->kind);
    CHECK_TEXT(expected, json_root(json)->text);
    json_destroy(json);
}

static void test_escapes(void)
{
    check_string("", "\"\"");
    check_string("\"\\/\b\f\n\r\t", "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"");
    check_string("A\xc3\xa9\xe2\x82\xac", "\"\\u0041\\u00e9\\u20AC\"");
    check_string("\xf0\x9f\x98\x80", "\"\\ud83d\\uDE00\"");
    check_string("\xf0\x90\x80\x80\xf4\x8f\xbf\xbf", "\"\\ud800\\udc00\\udbff\\udfff\"");
    check_string("\xef\xbf\xbf\xee\x80\x80\xed\x9f\xbf", "\"\\uffff\\ue000\\ud7ff\"");
    check_string("\x01", "\"\\u0001\"");
    check_string("\x7f raw \xf0\x9f\x98\x80", "\"\x7f raw \xf0\x9f\x98\x80\"");
}

static void test_malformed_text_is_refused_where_it_goes_wrong(void)
{
    static const struct {
        const char *text;
        size_t at;
        const char *reason;
    } cases[] = {
        { "", 0, "unexpected end" },
        { "  ", 2, "unexpected end" },
        { "\xef\xbb\xbf{}", 0, "expected a value" },
        { "{} {}", 3, "more after the end" },
        { "1 2", 2, "more after the end" },
        { "[1,]", 3, "expected a value" },
        { "[,1]", 1, "expected a value" },
        { "[1 2]", 3, "expected ',' or ']'" },
        { "[1}", 2, "expected ',' or ']'" },
        { "]", 0, "expected a value" },
        { "{\"a\":1,}", 7, "expected a string" },
        { "{\"a\" 1}", 5, "expected ':'" },
        { "{\"a\":}", 5, "expected a value" },
        { "{\"a\":1 \"b\":2}", 7, "expected ',' or '}'" },
        { "{a:1}", 1, "expected a string" },
        { "{'a':1}", 1, "expected a string" },
        { "{1:1}", 1, "expected a string" },
        { "// no\n1", 0, "expected a value" },
        { "[1 /*no*/]", 3, "expected ',' or ']'" },
        { "nul", 3, "unexpected end" },
        { "nulL", 3, "unknown word" },
        { "True", 0, "expected a value" },
        { "truer", 4, "more after the end" },
        { "NaN", 0, "expected a value" },
        { "Infinity", 0, "expected a value" },
        { "-Infinity", 1, "expected a digit" },
        { "01", 1, "leading zero" },
        { "-01", 2, "leading zero" },
        { "+1", 0, "expected a value" },
        { "-", 1, "unexpected end" },
        { "-x", 1, "expected a digit" },
        { ".5", 0, "expected a value" },
        { "1.", 2, "unexpected end" },
        { "1.e5", 2, "expected a digit" },
        { "1e", 2, "unexpected end" },
        { "1e+-5", 3, "expected a digit" },
        { "0x10", 1, "more after the end" },
        { "1e999", 0, "number too large" },
        { "[-1e999]", 1, "number too large" },
        { "\"a", 2, "unexpected end" },
        { "\"a\nb\"", 2, "control character" },
        { "\"a\tb\"", 2, "control character" },
        { "\"\x1f\"", 1, "control character" },
        { "\"\\x41\"", 2, "unknown escape" },
        { "\"\\'\"", 2, "unknown escape" },
        { "\"\\", 2, "unexpected end" },
        { "\"\\u12\"", 5, "four hexadecimal digits" },
        { "\"\\u12g4\"", 5, "four hexadecimal digits" },
        { "\"\\u", 3, "unexpected end" },
        { "\"\\u0000\"", 1, "NUL in a string" },
        { "\"x\\udc00\"", 2, "second surrogate without a first" },
        { "\"\\ud800\"", 7, "expected a second surrogate" },
        { "\"\\ud800x\"", 7, "expected a second surrogate" },
        { "\"\\ud800\\n\"", 8, "expected a second surrogate" },
        { "\"\\ud800\\u0041\"", 7, "expected a second surrogate" },
        { "\"\\ud800\\ud800\"", 7, "expected a second surrogate" },
        { "\"\xff\"", 1, "not UTF-8" },
        { "\"a\xc3\"", 2, "not UTF-8" },
        { "\"\xed\xa0\x80\"", 1, "not UTF-8" },
        { "\"\xc0\x80\"", 1, "not UTF-8" },
        { "{\"a\":1,\"b\":2,\"a\":3}", 13, "duplicate key" },
        { "[{\"a\":1,\"\\u0061\":3}]", 8, "duplicate key" },
        { "{\"\":1,\"\":3}", 6, "duplicate key" },
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct json *json = NULL;
        char expected[100];
        const enum status status = parse(cases[i].text, strlen(cases[i].text), &json);
        snprintf(expected, sizeof expected, "byte %zu: ", cases[i].at);
        if (status != STATUS_CORRUPT || json || !strstr(status_message(), expected) ||
            !strstr(status_message(), cases[i].reason))
            test_fail(__FILE__, __LINE__, "%s: %s (%s) instead of %s%s", cases[i].text,
                      status_name(status), status_message(), expected, cases[i].reason);
    }
}

static void test_a_raw_nul_is_refused(void)
{
    struct json *json;

    CHECK_STATUS(STATUS_CORRUPT, parse("\"a\0b\"", 5, &json));
    CHECK_MESSAGE("byte 2: control character");
    CHECK_STATUS(STATUS_CORRUPT, parse("[1]\0", 4, &json));
    CHECK_MESSAGE("byte 3: more after");
    CHECK_STATUS(STATUS_CORRUPT, parse("\"\\\0\"", 4, &json));
    CHECK_MESSAGE("byte 2: unknown escape");
}

static void test_depth_is_limited(void)
{
    enum { BOMB = 1000000 };
    struct json *json;
    char *text;

    CHECK_OK(mem_alloc(BOMB, 1, &text));
    memset(text, '[', JSON_DEPTH);
    memset(text + JSON_DEPTH, ']', JSON_DEPTH);
    CHECK_OK(parse(text, (size_t)2 * JSON_DEPTH, &json));
    json_destroy(json);

    memset(text, '[', JSON_DEPTH + 1);
    memset(text + JSON_DEPTH + 1, ']', JSON_DEPTH + 1);
    CHECK_STATUS(STATUS_CORRUPT, parse(text, 2 * (JSON_DEPTH + 1), &json));
    CHECK_MESSAGE("byte 64: nested too deeply");

    memset(text, '[', BOMB);
    CHECK_STATUS(STATUS_CORRUPT, parse(text, BOMB, &json));
    CHECK_MESSAGE("nested too deeply");
    for (size_t i = 0; i + 5 <= BOMB; i += 5)
        memcpy(text + i, "{\"a\":", 5);
    CHECK_STATUS(STATUS_CORRUPT, parse(text, BOMB, &json));
    CHECK_MESSAGE("nested too deeply");
    mem_free(text);

    /* Depth is nesting, not the number of containers. */
    struct strbuf buf;
    strbuf_init(&buf, 10000);
    strbuf_add(&buf, "[[]");
    for (int i = 0; i < 1000; i++)
        strbuf_add(&buf, ",[{}]");
    strbuf_add(&buf, "]");
    CHECK_OK(parse(buf.text, buf.length, &json));
    CHECK_INT(1001, json_root(json)->count);
    json_destroy(json);
    strbuf_release(&buf);
}

/* Comparing all pairs would take minutes here. */
static void test_an_object_with_many_keys_is_read_quickly(void)
{
    enum { KEYS = 200000 };
    struct strbuf buf;
    struct json *json;

    strbuf_init(&buf, (size_t)1 << 24);
    strbuf_add(&buf, "{");
    for (int i = 0; i < KEYS; i++)
        strbuf_printf(&buf, "\"key%d\":%d,", i, i);
    const size_t length = buf.length;
    strbuf_add(&buf, "\"last\":0}");
    CHECK_OK(strbuf_status(&buf));
    CHECK_OK(parse(buf.text, buf.length, &json));
    CHECK_INT(KEYS + 1, json_root(json)->count);
    CHECK_TEXT("key77", json_root(json)->keys[77]);
    CHECK_INT(199999, json_integer(json_root(json), "key199999", 0));
    json_destroy(json);

    buf.length = length;
    strbuf_add(&buf, "\"key3\":0}");
    CHECK_OK(strbuf_status(&buf));
    CHECK_STATUS(STATUS_CORRUPT, parse(buf.text, buf.length, &json));
    char expected[60];
    snprintf(expected, sizeof expected, "byte %zu: duplicate key", length);
    CHECK_MESSAGE(expected);
    strbuf_release(&buf);
}

/* A random document, written plainly and with random spaces and escapes. */
struct writer {
    struct rng *rng;
    struct strbuf plain, varied;
};

static void add_space(struct writer *writer)
{
    for (uint64_t n = rng_below(writer->rng, 3); n > 0; n--)
        strbuf_printf(&writer->varied, "%c", " \t\n\r"[rng_below(writer->rng, 4)]);
}

static void add_both(struct writer *writer, const char *text)
{
    add_space(writer);
    strbuf_add(&writer->plain, text);
    strbuf_add(&writer->varied, text);
    add_space(writer);
}

static uint32_t draw_code(struct rng *rng)
{
    static const uint32_t below[] = { 0x20, 0x80, 0x800, 0x10000, 0x110000 };

    for (;;) {
        const uint32_t code = (uint32_t)rng_below(rng, below[rng_below(rng, 5)]);
        if (code > 0 && (code < 0xd800 || code > 0xdfff))
            return code;
    }
}

static void add_string(struct writer *writer, const char *start)
{
    char text[200];
    size_t length = strlen(start);

    memcpy(text, start, length + 1);
    add_space(writer);
    strbuf_printf(&writer->varied, "\"%s", start);
    for (uint64_t n = rng_below(writer->rng, 12); n > 0; n--) {
        const uint32_t code = draw_code(writer->rng);
        const size_t span = utf8_encode(code, text + length);
        if (code >= 0x10000 && rng_below(writer->rng, 2) == 0)
            strbuf_printf(&writer->varied, "\\u%04X\\u%04x", 0xd800 + ((code - 0x10000) >> 10),
                          0xdc00 + ((code - 0x10000) & 0x3ff));
        else if (code < 0x20 || code == '"' || code == '\\' ||
                 (code < 0x10000 && rng_below(writer->rng, 2) == 0))
            strbuf_printf(&writer->varied, "\\u%04x", code);
        else
            strbuf_add_bytes(&writer->varied, text + length, span);
        length += span;
    }
    text[length] = '\0';
    strbuf_add_json(&writer->plain, text);
    strbuf_add(&writer->varied, "\"");
    add_space(writer);
}

static void add_number(struct writer *writer)
{
    char text[40];
    const int64_t integer = (int64_t)(rng_u64(writer->rng) >> rng_below(writer->rng, 64));
    double number;
    const uint64_t bits = rng_u64(writer->rng);

    memcpy(&number, &bits, sizeof number);
    if (rng_below(writer->rng, 2) == 0 || !isfinite(number)) {
        snprintf(text, sizeof text, "%" PRId64, integer);
        add_both(writer, text);
        return;
    }
    strbuf_add_number(&writer->plain, number);
    add_space(writer);
    strbuf_printf(&writer->varied, rng_below(writer->rng, 2) ? "%.16e" : "%.19E", number);
    add_space(writer);
}

static void add_value(struct writer *writer, int depth)
{
    static const char *const words[] = { "null", "true", "false" };
    const uint64_t kind = rng_below(writer->rng, depth > 0 ? 7 : 4);

    if (kind == 0) {
        add_both(writer, words[rng_below(writer->rng, 3)]);
    } else if (kind == 1) {
        add_string(writer, "");
    } else if (kind < 4) {
        add_number(writer);
    } else {
        const bool is_object = kind > 4;
        const uint64_t count = rng_below(writer->rng, 5);
        add_both(writer, is_object ? "{" : "[");
        for (uint64_t i = 0; i < count; i++) {
            char key[24];
            if (i > 0)
                add_both(writer, ",");
            if (is_object) {
                snprintf(key, sizeof key, "%d.", (int)i); /* so that keys differ */
                add_string(writer, key);
                add_both(writer, ":");
            }
            add_value(writer, depth - 1);
        }
        add_both(writer, is_object ? "}" : "]");
    }
}

static void print_value(struct strbuf *buf, const struct json_value *value)
{
    switch (value->kind) {
    case JSON_NULL:
        strbuf_add(buf, "null");
        break;
    case JSON_BOOL:
        strbuf_add(buf, value->boolean ? "true" : "false");
        break;
    case JSON_NUMBER:
        if (value->is_integer)
            strbuf_printf(buf, "%s%" PRId64,
                          signbit(value->number) && !value->integer ? "-" : "", value->integer);
        else
            strbuf_add_number(buf, value->number);
        break;
    case JSON_STRING:
        strbuf_add_json(buf, value->text);
        break;
    case JSON_ARRAY:
    case JSON_OBJECT:
        strbuf_add(buf, value->keys ? "{" : value->kind == JSON_OBJECT ? "{" : "[");
        for (size_t i = 0; i < value->count; i++) {
            if (i > 0)
                strbuf_add(buf, ",");
            if (value->kind == JSON_OBJECT) {
                strbuf_add_json(buf, value->keys[i]);
                strbuf_add(buf, ":");
            }
            print_value(buf, &value->items[i]);
        }
        strbuf_add(buf, value->kind == JSON_OBJECT ? "}" : "]");
        break;
    }
}

static void begin_document(struct writer *writer, struct rng *rng)
{
    writer->rng = rng;
    strbuf_init(&writer->plain, 1 << 20);
    strbuf_init(&writer->varied, 1 << 20);
    add_value(writer, 4);
    CHECK_OK(strbuf_status(&writer->plain));
    CHECK_OK(strbuf_status(&writer->varied));
}

static void release_document(struct writer *writer)
{
    strbuf_release(&writer->plain);
    strbuf_release(&writer->varied);
}

static void test_what_is_printed_is_parsed(struct rng *rng)
{
    struct writer writer;
    struct strbuf again;

    begin_document(&writer, rng);
    const struct strbuf *const forms[] = { &writer.plain, &writer.varied };
    for (int form = 0; form < 2; form++) {
        struct json *json;
        CHECK_OK(parse(forms[form]->text, forms[form]->length, &json));
        strbuf_init(&again, 1 << 20);
        print_value(&again, json_root(json));
        CHECK_OK(strbuf_status(&again));
        CHECK_TEXT(writer.plain.text, again.text);
        strbuf_release(&again);
        json_destroy(json);
    }
    release_document(&writer);
}

static void test_truncated_text_is_refused(struct rng *rng)
{
    struct writer writer = { .rng = rng };
    struct json *json;

    strbuf_init(&writer.plain, 1 << 20);
    strbuf_init(&writer.varied, 1 << 20);
    strbuf_add(&writer.varied, "[");
    add_value(&writer, 3);
    strbuf_add(&writer.varied, "]");
    for (size_t length = 0; length < writer.varied.length; length++) {
        CHECK_STATUS(STATUS_CORRUPT, parse(writer.varied.text, length, &json));
        CHECK_MESSAGE("json: byte ");
    }
    CHECK_OK(parse(writer.varied.text, writer.varied.length, &json));
    json_destroy(json);
    release_document(&writer);
}

static void test_damaged_text_is_read_or_refused(struct rng *rng)
{
    static const char likely[] = "{}[]\",:\\u0019eE+-.tfn dDbB\xff\x80";
    struct writer writer;

    begin_document(&writer, rng);
    for (int round = 0; round < 50; round++) {
        struct json *json = NULL;
        const size_t at = rng_below(rng, writer.varied.length);
        writer.varied.text[at] = rng_below(rng, 4) == 0
                                     ? (char)rng_u32(rng)
                                     : likely[rng_below(rng, sizeof likely - 1)];
        const enum status status = parse(writer.varied.text, writer.varied.length, &json);
        CHECK(status == STATUS_OK || status == STATUS_CORRUPT);
        CHECK((status == STATUS_OK) == (json != NULL));
        json_destroy(json);
    }
    release_document(&writer);
}

/* The object is large enough for keys and values to need allocations of their own. */
static void test_every_refused_allocation_is_passed_on(void)
{
    enum status status = STATUS_NO_MEMORY;
    struct strbuf buf;
    struct json *json = NULL;

    strbuf_init(&buf, 1 << 20);
    strbuf_add(&buf, "[\"x\",[[]],{\"a\":1");
    for (int i = 0; i < 10000; i++)
        strbuf_printf(&buf, ",\"%d\":%d", i, i);
    strbuf_add(&buf, "}]");
    CHECK_OK(strbuf_status(&buf));
    for (uint64_t nth = 1; status != STATUS_OK; nth++) {
        CHECK(nth < 100 && !json);
        mem_fail_at(nth);
        status = json_parse(buf.text, buf.length, &json);
        mem_fail_at(0);
        CHECK(status == STATUS_OK || status == STATUS_NO_MEMORY);
    }
    CHECK_INT(9999, json_integer(&json_root(json)->items[2], "9999", 0));
    json_destroy(json);
    strbuf_release(&buf);
}

static void test_more_values_than_allowed_are_refused(void)
{
    const size_t length = 2 * (size_t)JSON_VALUES + 3;
    struct json *json;
    char *text;

    CHECK_OK(mem_alloc(length, 1, &text));
    text[0] = '[';
    for (size_t i = 1; i + 1 < length; i++)
        text[i] = i % 2 ? '1' : ',';
    text[length - 2] = '1';
    text[length - 1] = ']';
    CHECK_STATUS(STATUS_CORRUPT, json_parse(text, length, &json));
    CHECK_MESSAGE("too many values");
    mem_free(text);
}

const struct test tests[] = {
    { .name = "more values than allowed are refused",
      .run = test_more_values_than_allowed_are_refused },
    { .name = "each kind is read", .run = test_each_kind_is_read },
    { .name = "typed members fall back", .run = test_typed_members_fall_back },
    { .name = "numbers", .run = test_numbers },
    { .name = "a number of any length is read", .run = test_a_number_of_any_length_is_read },
    { .name = "escapes", .run = test_escapes },
    { .name = "malformed text is refused where it goes wrong",
      .run = test_malformed_text_is_refused_where_it_goes_wrong },
    { .name = "a raw NUL is refused", .run = test_a_raw_nul_is_refused },
    { .name = "depth is limited", .run = test_depth_is_limited },
    { .name = "an object with many keys is read quickly",
      .run = test_an_object_with_many_keys_is_read_quickly },
    { .name = "what is printed is parsed", .property = test_what_is_printed_is_parsed },
    { .name = "truncated text is refused", .property = test_truncated_text_is_refused },
    { .name = "damaged text is read or refused",
      .property = test_damaged_text_is_read_or_refused },
    { .name = "every refused allocation is passed on",
      .run = test_every_refused_allocation_is_passed_on },
    { 0 },
};
