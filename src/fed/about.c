/* SPDX-License-Identifier: MIT */
/* about.c - counts of labels out of a participant's hello. */
#include "fed/about.h"

#include <inttypes.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/strbuf.h"

enum { COUNT_TEXT = 24 };

static enum status print_labels(const struct json_value *labels, struct strbuf *out)
{
    if (labels->kind != JSON_ARRAY || labels->count > FED_LABELS)
        return FAIL(STATUS_CORRUPT, "labels are told as at most %d counts", FED_LABELS);
    strbuf_add(out, "[");
    for (size_t i = 0; i < labels->count; i++) {
        const struct json_value *count = &labels->items[i];
        if (count->kind != JSON_NUMBER || !count->is_integer || count->integer < 0)
            return FAIL(STATUS_CORRUPT, "of label %zu is told what is no count", i);
        strbuf_printf(out, "%s%" PRId64, i ? ", " : "", count->integer);
    }
    strbuf_add(out, "]");
    return strbuf_status(out);
}

static enum status read_labels(const struct json_value *root, char **out)
{
    const struct json_value *labels = json_get(root, "labels");
    struct strbuf text;

    if (root->kind != JSON_OBJECT)
        return FAIL(STATUS_CORRUPT, "what it tells about its data is no JSON object");
    if (!labels)
        return STATUS_OK;
    strbuf_init(&text, (size_t)FED_LABELS * COUNT_TEXT);
    enum status status = print_labels(labels, &text);
    if (status == STATUS_OK)
        status = mem_strdup(text.text, out);
    strbuf_release(&text);
    return status;
}

enum status fed_about_labels(const void *bytes, size_t length, char **out)
{
    struct json *json;

    *out = NULL;
    if (length == 0)
        return STATUS_OK;
    TRY(json_parse(bytes, length, &json));
    const enum status status = read_labels(json_root(json), out);
    json_destroy(json);
    return status;
}
