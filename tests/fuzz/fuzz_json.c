/* SPDX-License-Identifier: MIT */
/* fuzz_json.c - what json_parse accepts is printed, parsed again and must be the same. */
#include "base/json.h"
#include "base/strbuf.h"
#include "fuzz.h"

#include <inttypes.h>
#include <string.h>

static void print_value(struct strbuf *out, const struct json_value *value)
{
    switch (value->kind) {
    case JSON_NULL:
        strbuf_add(out, "null");
        break;
    case JSON_BOOL:
        strbuf_add(out, value->boolean ? "true" : "false");
        break;
    case JSON_NUMBER:
        if (value->is_integer)
            strbuf_printf(out, "%" PRId64, value->integer);
        else
            strbuf_add_number(out, value->number);
        break;
    case JSON_STRING:
        strbuf_add_json(out, value->text);
        break;
    case JSON_ARRAY:
        for (size_t i = 0; i < value->count; i++) {
            strbuf_add(out, i > 0 ? "," : "[");
            print_value(out, &value->items[i]);
        }
        strbuf_add(out, value->count > 0 ? "]" : "[]");
        break;
    case JSON_OBJECT:
        for (size_t i = 0; i < value->count; i++) {
            strbuf_add(out, i > 0 ? "," : "{");
            strbuf_add_json(out, value->keys[i]);
            strbuf_add(out, ":");
            print_value(out, &value->items[i]);
            BUG_ON(json_get(value, value->keys[i]) != &value->items[i]);
        }
        strbuf_add(out, value->count > 0 ? "}" : "{}");
        break;
    }
}

static void check_same(const struct json_value *a, const struct json_value *b)
{
    BUG_ON(a->kind != b->kind || a->boolean != b->boolean || a->number != b->number);
    BUG_ON(a->count != b->count || !a->text != !b->text);
    BUG_ON(a->is_integer && (!b->is_integer || a->integer != b->integer));
    BUG_ON(a->text && strcmp(a->text, b->text) != 0);
    for (size_t i = 0; i < a->count; i++) {
        BUG_ON(a->keys && strcmp(a->keys[i], b->keys[i]) != 0);
        check_same(&a->items[i], &b->items[i]);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct json *first = NULL, *second = NULL;
    struct strbuf text;

    const enum status status = json_parse((const char *)data, size, &first);
    if (status != STATUS_OK) {
        BUG_ON(status != STATUS_CORRUPT || first || !status_message()[0]);
        return 0;
    }
    strbuf_init(&text, SIZE_MAX);
    print_value(&text, json_root(first));
    BUG_ON(strbuf_status(&text) != STATUS_OK);
    BUG_ON(json_parse(text.text, text.length, &second) != STATUS_OK);
    check_same(json_root(first), json_root(second));
    json_destroy(second);
    strbuf_release(&text);
    json_destroy(first);
    return 0;
}
