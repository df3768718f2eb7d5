/* SPDX-License-Identifier: MIT */
/* json.c - a recursive-descent parser that trusts nothing.
 *
 * Finished values wait on one stack until their container ends and then move
 * to the arena as its array, so memory is within a constant factor of the
 * text. Strings are decoded into one block as long as the text: a string
 * with its NUL is shorter than its source with the quotes.
 */
#include "base/json.h"

#include "base/arena.h"
#include "base/mem.h"
#include "base/utf8.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct json {
    struct arena *arena;
    struct json_value root;
};

/* A member of a container that has not ended. */
struct entry {
    const char *key; /* NULL in an array */
    size_t key_at;   /* where the key stands */
    struct json_value value;
};

struct parser {
    const char *text;
    size_t at, length;
    int depth;
    int n_values;
    struct arena *arena;
    char *decoded; /* length + 1 bytes; used <= at always */
    size_t used;
    struct entry *stack;
    size_t n_entries, capacity;
};

static enum status parse_value(struct parser *parser, struct json_value *out);

static enum status fail_at(size_t at, const char *reason)
{
    return FAIL(STATUS_CORRUPT, "json: byte %zu: %s", at, reason);
}

static enum status fail_here(const struct parser *parser, const char *reason)
{
    return fail_at(parser->at, parser->at < parser->length ? reason : "unexpected end");
}

/* The byte at the cursor; -1 at the end. */
static int peek(const struct parser *parser)
{
    return parser->at < parser->length ? (unsigned char)parser->text[parser->at] : -1;
}

static bool accept_char(struct parser *parser, char c)
{
    if (peek(parser) != c)
        return false;
    parser->at++;
    return true;
}

static void skip_space(struct parser *parser)
{
    for (int c; (c = peek(parser)) == ' ' || c == '\t' || c == '\n' || c == '\r';)
        parser->at++;
}

static enum status parse_word(struct parser *parser, const char *word)
{
    for (; *word; word++)
        if (!accept_char(parser, *word))
            return fail_here(parser, "unknown word");
    return STATUS_OK;
}

static bool accept_digits(struct parser *parser)
{
    const size_t start = parser->at;

    while (peek(parser) >= '0' && peek(parser) <= '9')
        parser->at++;
    return parser->at > start;
}

static enum status parse_number(struct parser *parser, struct json_value *out)
{
    const size_t start = parser->at;
    bool is_integer = true;

    accept_char(parser, '-');
    if (accept_char(parser, '0')) {
        if (peek(parser) >= '0' && peek(parser) <= '9')
            return fail_here(parser, "number with a leading zero");
    } else if (!accept_digits(parser)) {
        return fail_here(parser, "expected a digit");
    }
    if (accept_char(parser, '.')) {
        is_integer = false;
        if (!accept_digits(parser))
            return fail_here(parser, "expected a digit");
    }
    if (accept_char(parser, 'e') || accept_char(parser, 'E')) {
        is_integer = false;
        if (!accept_char(parser, '+'))
            accept_char(parser, '-');
        if (!accept_digits(parser))
            return fail_here(parser, "expected a digit");
    }

    /* strtod needs a NUL after it; the room behind the last string serves. */
    char *copy = parser->decoded + parser->used;
    memcpy(copy, parser->text + start, parser->at - start);
    copy[parser->at - start] = '\0';
    const double number = strtod(copy, NULL);
    if (!isfinite(number))
        return fail_at(start, "number too large");

    errno = 0;
    const long long integer = is_integer ? strtoll(copy, NULL, 10) : 0;
    is_integer = is_integer && errno == 0;
    *out = (struct json_value){ .kind = JSON_NUMBER,
                                .number = number,
                                .is_integer = is_integer,
                                .integer = is_integer ? integer : 0 };
    return STATUS_OK;
}

static enum status parse_hex(struct parser *parser, uint32_t *out)
{
    uint32_t code = 0;

    for (int i = 0; i < 4; i++) {
        const int c = peek(parser);
        int digit;
        if (c >= '0' && c <= '9')
            digit = c - '0';
        else if (c >= 'a' && c <= 'f')
            digit = c - 'a' + 10;
        else if (c >= 'A' && c <= 'F')
            digit = c - 'A' + 10;
        else
            return fail_here(parser, "expected four hexadecimal digits");
        code = code << 4 | (uint32_t)digit;
        parser->at++;
    }
    *out = code;
    return STATUS_OK;
}

/* After "\u"; a character above U+FFFF is written as two surrogates. */
static enum status parse_unicode_escape(struct parser *parser, uint32_t *out)
{
    const size_t start = parser->at - 2;
    uint32_t code, low;

    TRY(parse_hex(parser, &code));
    if (code == 0)
        return fail_at(start, "NUL in a string");
    if (code >= 0xdc00 && code <= 0xdfff)
        return fail_at(start, "second surrogate without a first");
    if (code >= 0xd800 && code <= 0xdbff) {
        if (!accept_char(parser, '\\') || !accept_char(parser, 'u'))
            return fail_here(parser, "expected a second surrogate");
        TRY(parse_hex(parser, &low));
        if (low < 0xdc00 || low > 0xdfff)
            return fail_at(parser->at - 6, "expected a second surrogate");
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    }
    *out = code;
    return STATUS_OK;
}

/* After a backslash. */
static enum status parse_escape(struct parser *parser)
{
    static const char written[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
    const int c = peek(parser);

    if (c == 'u') {
        uint32_t code = 0;
        parser->at++;
        TRY(parse_unicode_escape(parser, &code));
        parser->used += utf8_encode(code, parser->decoded + parser->used);
        return STATUS_OK;
    }
    const char *found = c > 0 ? strchr(written, c) : NULL;
    if (!found)
        return fail_here(parser, "unknown escape");
    parser->decoded[parser->used++] = meant[found - written];
    parser->at++;
    return STATUS_OK;
}

static enum status parse_string(struct parser *parser, const char **out)
{
    const size_t start = parser->used;

    if (!accept_char(parser, '"'))
        return fail_here(parser, "expected a string");
    while (!accept_char(parser, '"')) {
        const char *from = parser->text + parser->at;
        if (accept_char(parser, '\\')) {
            TRY(parse_escape(parser));
            continue;
        }
        if (peek(parser) >= 0 && peek(parser) < 0x20)
            return fail_here(parser, "control character in a string");
        const size_t span = utf8_span(from, parser->length - parser->at);
        if (span == 0)
            return fail_here(parser, "not UTF-8");
        memcpy(parser->decoded + parser->used, from, span);
        parser->used += span;
        parser->at += span;
    }
    parser->decoded[parser->used++] = '\0';
    *out = parser->decoded + start;
    return STATUS_OK;
}

static enum status push_entry(struct parser *parser, const struct entry *entry)
{
    if (parser->n_entries == parser->capacity) {
        const size_t larger = parser->capacity > 0 ? parser->capacity * 2 : 32;
        TRY(mem_grow(&parser->stack, parser->capacity, larger, sizeof *parser->stack));
        parser->capacity = larger;
    }
    parser->stack[parser->n_entries++] = *entry;
    return STATUS_OK;
}

static int compare_keys(const void *a, const void *b)
{
    const struct entry *const *left = a, *const *right = b;
    const int order = strcmp((*left)->key, (*right)->key);

    if (order != 0)
        return order;
    return ((*left)->key_at > (*right)->key_at) - ((*left)->key_at < (*right)->key_at);
}

/* Sorts rather than compares all pairs, which a hostile object would make slow. */
static enum status check_keys_differ(const struct entry *entries, size_t count)
{
    const struct entry **sorted;

    if (count < 2)
        return STATUS_OK;
    TRY(mem_alloc(count, sizeof *sorted, &sorted));
    for (size_t i = 0; i < count; i++)
        sorted[i] = &entries[i];
    qsort(sorted, count, sizeof *sorted, compare_keys);

    enum status status = STATUS_OK;
    for (size_t i = 1; i < count && status == STATUS_OK; i++)
        if (strcmp(sorted[i - 1]->key, sorted[i]->key) == 0)
            status = fail_at(sorted[i]->key_at, "duplicate key");
    mem_free(sorted);
    return status;
}

/* Moves the entries from `first` on into the arena as the members of *out. */
static enum status finish_container(struct parser *parser, size_t first, enum json_kind kind,
                                    struct json_value *out)
{
    const size_t count = parser->n_entries - first;

    *out = (struct json_value){ .kind = kind, .count = count };
    parser->n_entries = first;
    if (count == 0)
        return STATUS_OK;

    const struct entry *entries = parser->stack + first;
    const char **keys = NULL;
    if (kind == JSON_OBJECT) {
        TRY(check_keys_differ(entries, count));
        keys = arena_alloc(parser->arena, count, sizeof *keys);
        if (!keys)
            return STATUS_NO_MEMORY;
    }
    struct json_value *items = arena_alloc(parser->arena, count, sizeof *items);
    if (!items)
        return STATUS_NO_MEMORY;
    for (size_t i = 0; i < count; i++) {
        items[i] = entries[i].value;
        if (keys)
            keys[i] = entries[i].key;
    }
    out->items = items;
    out->keys = keys;
    return STATUS_OK;
}

static enum status parse_container(struct parser *parser, enum json_kind kind,
                                   struct json_value *out)
{
    const char end = kind == JSON_OBJECT ? '}' : ']';
    const size_t first = parser->n_entries;

    if (parser->depth == JSON_DEPTH)
        return fail_here(parser, "nested too deeply");
    parser->depth++;
    parser->at++;
    skip_space(parser);
    if (!accept_char(parser, end)) {
        do {
            struct entry entry = { 0 };
            skip_space(parser);
            if (kind == JSON_OBJECT) {
                entry.key_at = parser->at;
                TRY(parse_string(parser, &entry.key));
                skip_space(parser);
                if (!accept_char(parser, ':'))
                    return fail_here(parser, "expected ':'");
                skip_space(parser);
            }
            TRY(parse_value(parser, &entry.value));
            TRY(push_entry(parser, &entry));
            skip_space(parser);
        } while (accept_char(parser, ','));
        if (!accept_char(parser, end))
            return fail_here(parser, kind == JSON_OBJECT ? "expected ',' or '}'"
                                                         : "expected ',' or ']'");
    }
    parser->depth--;
    return finish_container(parser, first, kind, out);
}

static enum status parse_value(struct parser *parser, struct json_value *out)
{
    if (parser->n_values++ == JSON_VALUES)
        return fail_here(parser, "too many values");
    *out = (struct json_value){ 0 };
    switch (peek(parser)) {
    case '{':
        return parse_container(parser, JSON_OBJECT, out);
    case '[':
        return parse_container(parser, JSON_ARRAY, out);
    case '"':
        out->kind = JSON_STRING;
        return parse_string(parser, &out->text);
    case 'n':
        out->kind = JSON_NULL;
        return parse_word(parser, "null");
    case 't':
        out->kind = JSON_BOOL;
        out->boolean = true;
        return parse_word(parser, "true");
    case 'f':
        out->kind = JSON_BOOL;
        return parse_word(parser, "false");
    case '-':
    case '0':
    case '1':
    case '2':
    case '3':
    case '4':
    case '5':
    case '6':
    case '7':
    case '8':
    case '9':
        return parse_number(parser, out);
    }
    return fail_here(parser, "expected a value");
}

static enum status parse_document(struct parser *parser, struct json_value *out)
{
    parser->decoded = arena_alloc(parser->arena, parser->length + 1, 1);
    if (!parser->decoded)
        return STATUS_NO_MEMORY;
    skip_space(parser);
    TRY(parse_value(parser, out));
    skip_space(parser);
    if (parser->at < parser->length)
        return fail_here(parser, "more after the end of the document");
    return STATUS_OK;
}

enum status json_parse(const char *text, size_t length, struct json **out)
{
    struct json *json;

    TRY(mem_alloc(1, sizeof *json, &json));
    enum status status = arena_create(&json->arena);
    if (status != STATUS_OK)
        goto destroy_json;

    struct parser parser = { .text = text, .length = length, .arena = json->arena };
    status = parse_document(&parser, &json->root);
    mem_free(parser.stack);
    if (status != STATUS_OK)
        goto destroy_json;
    *out = json;
    return STATUS_OK;

destroy_json:
    json_destroy(json);
    return status;
}

void json_destroy(struct json *json)
{
    if (!json)
        return;
    arena_destroy(json->arena);
    mem_free(json);
}

const struct json_value *json_root(const struct json *json)
{
    return &json->root;
}

const struct json_value *json_get(const struct json_value *object, const char *key)
{
    if (!object || object->kind != JSON_OBJECT)
        return NULL;
    for (size_t i = 0; i < object->count; i++)
        if (strcmp(object->keys[i], key) == 0)
            return &object->items[i];
    return NULL;
}

const char *json_text(const struct json_value *object, const char *key, const char *fallback)
{
    const struct json_value *value = json_get(object, key);

    return value && value->kind == JSON_STRING ? value->text : fallback;
}

double json_number(const struct json_value *object, const char *key, double fallback)
{
    const struct json_value *value = json_get(object, key);

    return value && value->kind == JSON_NUMBER ? value->number : fallback;
}

int64_t json_integer(const struct json_value *object, const char *key, int64_t fallback)
{
    const struct json_value *value = json_get(object, key);

    return value && value->kind == JSON_NUMBER && value->is_integer ? value->integer : fallback;
}

bool json_bool(const struct json_value *object, const char *key, bool fallback)
{
    const struct json_value *value = json_get(object, key);

    return value && value->kind == JSON_BOOL ? value->boolean : fallback;
}
