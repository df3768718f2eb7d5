/* SPDX-License-Identifier: MIT */
/* json.h - reading JSON documents that may be hostile; writing them is strbuf's business.
 *
 * Strict RFC 8259: no comments, no trailing comma, one document, valid UTF-8
 * escapes, duplicate keys refused, nesting at most JSON_DEPTH, at most
 * JSON_VALUES values (so that memory stays in proportion).
 * Values live in the document's arena and are valid until json_destroy.
 */
#ifndef BASE_JSON_H
#define BASE_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum { JSON_DEPTH = 64, JSON_VALUES = 1 << 20 };
enum json_kind { JSON_NULL, JSON_BOOL, JSON_NUMBER, JSON_STRING, JSON_ARRAY, JSON_OBJECT };

struct json; /* a document */

struct json_value {
    enum json_kind kind;
    bool boolean;
    double number;
    bool is_integer;  /* the number was written without fraction and exponent and fits */
    int64_t integer;  /* valid if is_integer */
    const char *text; /* JSON_STRING: NUL-terminated; embedded NUL is refused */
    size_t count;     /* JSON_ARRAY, JSON_OBJECT: members */
    const struct json_value *items; /* `count` of them, in order */
    const char *const *keys;        /* JSON_OBJECT: `count` of them */
};

/* Parses text[0..length). Failure: STATUS_CORRUPT with the byte offset and the reason. */
MUST_CHECK enum status json_parse(const char *text, size_t length, struct json **out);
void json_destroy(struct json *json); /* NULL is allowed */
const struct json_value *json_root(const struct json *json);

/* Member of an object by name; NULL if absent or if `object` is NULL or no object. */
const struct json_value *json_get(const struct json_value *object, const char *key);

/* Typed members; `fallback` where absent or of another kind. */
const char *json_text(const struct json_value *object, const char *key, const char *fallback);
double json_number(const struct json_value *object, const char *key, double fallback);
int64_t json_integer(const struct json_value *object, const char *key, int64_t fallback);
bool json_bool(const struct json_value *object, const char *key, bool fallback);

#endif /* BASE_JSON_H */
