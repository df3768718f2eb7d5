/* SPDX-License-Identifier: MIT */
/* fuzz_settings.c - config.json as a stranger may have written it. What is read must print and read
 * back as the same. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "train/settings.h"

#include "fuzz.h"

static void print(const struct settings *settings, struct strbuf *out)
{
    strbuf_init(out, 1 << 20);
    strbuf_add(out, "{");
    settings_print(settings, out);
    strbuf_add(out, "}");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct settings settings, again;
    struct json *json, *printed;
    struct strbuf first, second;

    if (json_parse((const char *)data, size, &json) != STATUS_OK)
        return 0;
    settings_init(&settings);
    const enum status status = settings_read(&settings, json_root(json));
    json_destroy(json);
    if (status != STATUS_OK)
        return 0;
    print(&settings, &first);
    if (json_parse(first.text, first.length, &printed) != STATUS_OK)
        abort();
    settings_init(&again);
    if (settings_read(&again, json_root(printed)) != STATUS_OK)
        abort();
    json_destroy(printed);
    print(&again, &second);
    if (strcmp(first.text, second.text) != 0)
        abort();
    strbuf_release(&first);
    strbuf_release(&second);
    return 0;
}
