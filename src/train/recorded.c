/* SPDX-License-Identifier: MIT */
/* recorded.c - reads and writes what a run keeps of its data. */
#include "train/recorded.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/strbuf.h"
#include "train/folder.h"

enum { FILE_MOST = 64 << 20, NAMES_MOST = 1 << 22 };

/* *out stays NULL without the file. */
static enum status read_json(const char *folder, const char *name, struct json **out)
{
    char *path, *text;
    size_t length;

    *out = NULL;
    TRY(file_join(folder, name, &path));
    enum status status = STATUS_OK;
    if (file_exists(path)) {
        status = file_read(path, FILE_MOST, &text, &length);
        if (status == STATUS_OK) {
            status = json_parse(text, length, out);
            mem_free(text);
            if (status != STATUS_OK)
                status = FAIL(status, "%s: %s", path, status_message());
        }
    }
    mem_free(path);
    return status;
}

static void read_sample(const struct json_value *list, struct shape *out)
{
    struct shape sample = { .rank = 3 };

    if (!list || list->kind != JSON_ARRAY || list->count != 3)
        return;
    for (int i = 0; i < 3; i++) {
        if (!list->items[i].is_integer || list->items[i].integer < 1)
            return;
        sample.dim[i] = list->items[i].integer;
    }
    *out = sample;
}

static enum status read_config(const char *folder, struct recorded *out)
{
    struct json *json;

    TRY(read_json(folder, "config.json", &json));
    const struct json_value *root = json ? json_root(json) : NULL;
    snprintf(out->data, sizeof out->data, "%s", json_text(root, "data", ""));
    out->has_normalize = json_get(root, "normalize") != NULL;
    read_sample(json_get(root, "sample"), &out->sample);
    json_destroy(json);
    return STATUS_OK;
}

/* The names that an older run's summary has, as lines; none if they are but numbers, which older
 * versions wrote also where there were names. */
static bool print_names(const struct json_value *list, struct strbuf *lines)
{
    bool are_numbers = true;

    for (size_t i = 0; list && list->kind == JSON_ARRAY && i < list->count; i++) {
        const struct json_value *name = &list->items[i];
        char number[24];

        if (name->kind != JSON_STRING || !names_is_line(name->text, strlen(name->text)))
            return false;
        snprintf(number, sizeof number, "%zu", i);
        are_numbers = are_numbers && strcmp(number, name->text) == 0;
        strbuf_printf(lines, "%s\n", name->text);
    }
    return !are_numbers;
}

static enum status read_summary(const char *folder, struct names *out)
{
    struct json *json;
    struct strbuf lines;

    TRY(read_json(folder, "summary.json", &json));
    strbuf_init(&lines, NAMES_MOST);
    enum status status = STATUS_OK;
    if (json && print_names(json_get(json_root(json), "class_names"), &lines)) {
        status = strbuf_status(&lines);
        if (status == STATUS_OK)
            status = names_parse(folder, lines.text, lines.length, out);
    }
    strbuf_release(&lines);
    json_destroy(json);
    return status;
}

enum status recorded_read(const char *folder, struct recorded *out)
{
    struct recorded recorded = { 0 };

    TRY(read_config(folder, &recorded));
    TRY(names_read(folder, FOLDER_CLASSES, &recorded.names));
    if (recorded.names.count == 0)
        TRY(read_summary(folder, &recorded.names));
    recorded.classes = (struct class_list){ recorded.names.name, recorded.names.count };
    *out = recorded;
    return STATUS_OK;
}

enum status recorded_take(const struct model *model, struct recorded *out)
{
    const struct json_value *list = model->class_names;
    struct strbuf lines;

    if (!list || list->count == 0)
        return STATUS_OK;
    strbuf_init(&lines, NAMES_MOST);
    for (size_t i = 0; i < list->count; i++)
        strbuf_printf(&lines, "%s\n", list->items[i].text);
    enum status status = strbuf_status(&lines);
    if (status == STATUS_OK)
        status = names_parse("class_names", lines.text, lines.length, &out->names);
    strbuf_release(&lines);
    TRY(status);
    if ((size_t)out->names.count != list->count)
        return FAIL(STATUS_CORRUPT, "graph %s: class_names: a name has several lines",
                    model->name);
    out->classes = (struct class_list){ out->names.name, out->names.count };
    return STATUS_OK;
}

void recorded_release(struct recorded *recorded)
{
    names_release(&recorded->names);
    *recorded = (struct recorded){ 0 };
}

struct pixel_scale recorded_old_scale(const char *data, int channels)
{
    struct pixel_scale scale = { { 0.5f, 0.5f, 0.5f }, { 0.5f, 0.5f, 0.5f } };
    char name[1024];

    snprintf(name, sizeof name, "%s", data);
    for (size_t end = strlen(name); end > 1 && name[end - 1] == '/'; end--)
        name[end - 1] = '\0';
    const char *slash = strrchr(name, '/');
    const struct dataset_info *info = dataset_find(slash ? slash + 1 : name);
    if (!info || info->sample.rank != 3)
        return scale;
    for (int c = 0; c < channels && info->deviation[c] > 0; c++) {
        scale.mean[c] = info->mean[c];
        scale.deviation[c] = info->deviation[c];
    }
    return scale;
}

enum status recorded_write_classes(const char *folder, const struct dataset_info *info)
{
    struct strbuf lines;
    char *path;

    if (info->classes == 0)
        return STATUS_OK;
    TRY(file_join(folder, FOLDER_CLASSES, &path));
    strbuf_init(&lines, NAMES_MOST);
    for (int i = 0; i < info->classes; i++) {
        if (info->class_names)
            strbuf_printf(&lines, "%s\n", info->class_names[i]);
        else
            strbuf_printf(&lines, "%d\n", i);
    }
    enum status status = strbuf_status(&lines);
    if (status == STATUS_OK)
        status = file_replace(path, lines.text, lines.length);
    strbuf_release(&lines);
    mem_free(path);
    return status;
}
