/* SPDX-License-Identifier: MIT */
/* known.c - by the name that was asked for, or by dataset.json. */
#include "data/known.h"

#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/strbuf.h"

#include <stdio.h>
#include <string.h>

enum { FILE_MOST = 1 << 16, VERSION = 1 };

static enum status check_members(const struct json_value *root)
{
    static const char *const known[] = { "format", "version", "name", "normalize" };

    if (root->kind != JSON_OBJECT)
        return FAIL(STATUS_CORRUPT, "is no object");
    for (size_t i = 0; i < root->count; i++) {
        bool is_known = false;
        for (size_t k = 0; k < sizeof known / sizeof *known; k++)
            is_known = is_known || strcmp(root->keys[i], known[k]) == 0;
        if (!is_known)
            return FAIL(STATUS_CORRUPT, "member %.64s: there is none of this name",
                        root->keys[i]);
    }
    return STATUS_OK;
}

static enum status read_members(const struct json_value *root, struct known *out)
{
    TRY(check_members(root));
    const int64_t version = json_integer(root, "version", VERSION);
    const char *name = json_text(root, "name", NULL);
    const char *normalize = json_text(root, "normalize", NULL);
    struct pixel_scale scale;

    if (version != VERSION)
        return FAIL(STATUS_CORRUPT, "version %lld, this program reads %d", (long long)version,
                    VERSION);
    if ((json_get(root, "name") && !name) || (json_get(root, "normalize") && !normalize))
        return FAIL(STATUS_CORRUPT, "name and normalize are texts");
    if (name && !dataset_find(name))
        return FAIL(STATUS_CORRUPT, "name: \"%.64s\" is no data set that is known", name);
    /* How many channels there are is seen later: what is right for 1 or for 3 is right here. */
    if (normalize && (strlen(normalize) >= sizeof out->normalize ||
                      (scale_parse(normalize, 1, &scale) != STATUS_OK &&
                       scale_parse(normalize, 3, &scale) != STATUS_OK)))
        return FAIL(STATUS_CORRUPT, "normalize: %s", status_message());
    if (name)
        out->info = dataset_find(name);
    if (normalize)
        snprintf(out->normalize, sizeof out->normalize, "%s", normalize);
    return STATUS_OK;
}

enum status known_parse(const char *text, size_t length, struct known *out)
{
    struct json *json;

    TRY(json_parse(text, length, &json));
    const enum status status = read_members(json_root(json), out);
    json_destroy(json);
    return status;
}

enum status known_read(const char *folder, struct known *out)
{
    char *path, *text;
    size_t length;

    if (!file_is_folder(folder))
        return STATUS_OK;
    TRY(file_join(folder, KNOWN_FILE, &path));
    enum status status = STATUS_OK;
    if (file_exists(path)) {
        status = file_read(path, FILE_MOST, &text, &length);
        if (status == STATUS_OK) {
            status = known_parse(text, length, out);
            mem_free(text);
            if (status != STATUS_OK)
                status = FAIL(status, "%s: %s", path, status_message());
        }
    }
    mem_free(path);
    return status;
}

enum status known_find(const char *asked, const char *folder, struct known *out)
{
    *out = (struct known){ .info = dataset_is_path(asked) ? NULL : dataset_find(asked) };
    return known_read(folder, out);
}

enum status known_write(const struct known *known, const char *folder)
{
    struct strbuf text;
    char *path;

    if (!known->info && !*known->normalize)
        return STATUS_OK;
    TRY(file_join(folder, KNOWN_FILE, &path));
    strbuf_init(&text, FILE_MOST);
    strbuf_printf(&text, "{\"format\": \"tutti data set\", \"version\": %d", VERSION);
    if (known->info) {
        strbuf_add(&text, ", \"name\": ");
        strbuf_add_json(&text, known->info->name);
    }
    if (*known->normalize) {
        strbuf_add(&text, ", \"normalize\": ");
        strbuf_add_json(&text, known->normalize);
    }
    strbuf_add(&text, "}\n");
    enum status status = strbuf_status(&text);
    if (status == STATUS_OK)
        status = file_replace(path, text.text, text.length);
    strbuf_release(&text);
    mem_free(path);
    return status;
}
