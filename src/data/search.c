/* SPDX-License-Identifier: MIT */
/* search.c - finds the folder of a data set, or says what to do. */
#include "data/search.h"

#include "base/file.h"
#include "base/mem.h"
#include "base/strbuf.h"
#include "base/suggest.h"
#include "data/format.h"

#include <dirent.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { N_PLACES = 3, NAME_MOST = 64, NAMES_MOST = 64, MESSAGE_MOST = 1 << 16 };

/* A variable's value; NULL if it is unset or empty. */
static const char *setting(const char *name)
{
    const char *value = getenv(name);

    return value && value[0] ? value : NULL;
}

/* The folder that holds the data sets of place 0, 1 or 2; *out is NULL if there is no such
 * place for this user. */
static enum status place_root(int place, char **out)
{
    const char *data = setting("TUTTI_DATA"), *home = setting("HOME");

    *out = NULL;
    if (place == 0)
        return data ? mem_strdup(data, out) : STATUS_OK;
    if (place == 1)
        return home ? file_join(home, ".local/share/tutti", out) : STATUS_OK;
    return mem_strdup("/usr/share/datasets", out);
}

static enum status place_folder(int place, const char *name, char **out)
{
    char *root;

    *out = NULL;
    TRY(place_root(place, &root));
    const enum status status = root ? file_join(root, name, out) : STATUS_OK;
    mem_free(root);
    return status;
}

static bool is_name(const char *name)
{
    static const char ALLOWED[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                  "0123456789-_.";
    const size_t length = strlen(name);

    return length > 0 && length <= NAME_MOST && name[0] != '.' &&
           strspn(name, ALLOWED) == length;
}

enum status search_check_name(const char *name)
{
    if (is_name(name))
        return STATUS_OK;
    return FAIL(STATUS_USAGE,
                "\"%s\" cannot name a data set: use letters, digits, -, _ and ., at most %d",
                name, NAME_MOST);
}

enum status search_fail_unknown(const char *name)
{
    const char *names[NAMES_MOST + 1] = { 0 };

    for (size_t i = 0; i < NAMES_MOST && dataset_table[i]; i++)
        names[i] = dataset_table[i]->name;
    const char *nearest = suggest_nearest(name, names);

    if (is_name(name) && file_is_folder(name))
        return FAIL(STATUS_NOT_FOUND, "unknown data set \"%s\"; for the folder write ./%s",
                    name, name);
    if (is_name(name) && file_exists(name))
        return FAIL(STATUS_NOT_FOUND, "unknown data set \"%s\"; for the file write ./%s", name,
                    name);
    if (nearest)
        return FAIL(STATUS_NOT_FOUND, "unknown data set \"%s\"; did you mean %s?", name,
                    nearest);
    return FAIL(STATUS_NOT_FOUND,
                "unknown data set \"%s\"; \"tutti data list\" shows the names", name);
}

/* `looked` lists the places. */
static enum status fail_absent(const struct dataset_info *info, const char *looked)
{
    const char *name = info->name;

    if (info->package && info->source)
        return FAIL(STATUS_NOT_FOUND,
                    "%s: not in %s; install Debian's %s, or run: tutti data fetch %s", name,
                    looked, info->package, name);
    if (info->source)
        return FAIL(STATUS_NOT_FOUND, "%s: not in %s; run: tutti data fetch %s", name, looked,
                    name);
    return FAIL(STATUS_NOT_FOUND, "%s: not in %s; %s, then run: tutti data import FOLDER %s",
                name, looked, info->origin, name);
}

/* Looks for a folder of this name in one place. `looked` gets the folder if it is the `first`
 * that is tried there, or if it is there and of no use. */
static enum status look_in_place(int place, const char *name, bool first, struct strbuf *looked,
                                 char **out)
{
    char *folder;

    TRY(place_folder(place, name, &folder));
    if (folder && format_of_folder(folder)) {
        *out = folder;
        return STATUS_OK;
    }
    const bool is_folder = folder && file_is_folder(folder);
    if (folder && (first || is_folder))
        strbuf_printf(looked, "%s%s%s", looked->length > 0 ? ", " : "", folder,
                      is_folder ? " (no known files there)" : "");
    mem_free(folder);
    return STATUS_OK;
}

/* Looks in all places, in each for the name as given, then for what else the data set is
 * called; *out is NULL if none has it, and `looked` tells them. */
static enum status look(const char *name, struct strbuf *looked, char **out)
{
    const struct dataset_info *info = dataset_find(name);

    *out = NULL;
    for (int place = 0; place < N_PLACES && !*out; place++) {
        TRY(look_in_place(place, name, true, looked, out));
        if (info && !*out && strcmp(info->name, name) != 0)
            TRY(look_in_place(place, info->name, false, looked, out));
        for (int i = 0; info && !*out && info->other_names[i]; i++)
            if (strcmp(info->other_names[i], name) != 0)
                TRY(look_in_place(place, info->other_names[i], false, looked, out));
    }
    return *out ? STATUS_OK : strbuf_status(looked);
}

static enum status find_path(const char *path, char **out)
{
    const struct format *format;

    TRY(format_detect(path, &format));
    return mem_strdup(path, out);
}

enum status search_find(const char *name, char **out)
{
    struct strbuf looked;
    char *folder;

    if (dataset_is_path(name))
        return find_path(name, out);
    if (!is_name(name))
        return search_fail_unknown(name);

    strbuf_init(&looked, MESSAGE_MOST);
    enum status status = look(name, &looked, &folder);
    if (status == STATUS_OK && !folder) {
        const struct dataset_info *info = dataset_find(name);
        status = info ? fail_absent(info, looked.text) : search_fail_unknown(name);
    }
    strbuf_release(&looked);
    if (status == STATUS_OK)
        *out = folder;
    return status;
}

/* Own data sets -------------------------------------------------------------------------- */

struct own_list {
    struct search_own *item;
    size_t count, capacity;
};

static bool is_listed(const struct own_list *list, const char *name)
{
    for (size_t i = 0; i < list->count; i++)
        if (strcmp(list->item[i].name, name) == 0)
            return true;
    return false;
}

/* Adds what the root has under this name, if it is a data set that is not listed yet. */
static enum status add_own(struct own_list *list, const char *root, const char *name)
{
    struct search_own own = { 0 };

    if (!is_name(name) || dataset_find(name) || is_listed(list, name))
        return STATUS_OK;
    TRY(file_join(root, name, &own.folder));
    const struct format *format =
        file_is_folder(own.folder) ? format_of_folder(own.folder) : NULL;
    enum status status = format ? mem_strdup(name, &own.name) : STATUS_OK;
    if (own.name && list->count == list->capacity) {
        const size_t more = list->capacity ? 2 * list->capacity : 16;
        status = mem_grow(&list->item, list->capacity, more, sizeof *list->item);
        if (status == STATUS_OK)
            list->capacity = more;
    }
    if (!format || !own.name || status != STATUS_OK) {
        mem_free(own.name);
        mem_free(own.folder);
        return status;
    }
    own.format = format->name;
    list->item[list->count++] = own;
    return STATUS_OK;
}

static enum status list_place(struct own_list *list, int place)
{
    const struct dirent *entry;
    char *root;

    TRY(place_root(place, &root));
    DIR *stream = root ? opendir(root) : NULL; /* no folder, no data sets */
    enum status status = STATUS_OK;
    while (stream && status == STATUS_OK &&
           (entry = readdir(stream))) /* NOLINT(concurrency-mt-unsafe) */
        status = add_own(list, root, entry->d_name);
    if (stream)
        closedir(stream);
    mem_free(root);
    return status;
}

static int compare_own(const void *a, const void *b)
{
    const struct search_own *x = a, *y = b;

    return strcmp(x->name, y->name);
}

enum status search_list(struct search_own **out, size_t *out_count)
{
    struct own_list list = { 0 };
    enum status status = STATUS_OK;

    for (int place = 0; place < N_PLACES && status == STATUS_OK; place++)
        status = list_place(&list, place);
    if (status != STATUS_OK) {
        search_release(list.item, list.count);
        return status;
    }
    if (list.count > 0)
        qsort(list.item, list.count, sizeof *list.item, compare_own);
    *out = list.item;
    *out_count = list.count;
    return STATUS_OK;
}

void search_release(struct search_own *list, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        mem_free(list[i].name);
        mem_free(list[i].folder);
    }
    mem_free(list);
}

enum status search_root(char **out)
{
    char *root;

    for (int place = 0; place < 2; place++) {
        TRY(place_root(place, &root));
        if (root) {
            *out = root;
            return STATUS_OK;
        }
    }
    return FAIL(STATUS_USAGE, "nowhere to put data sets: neither TUTTI_DATA nor HOME is set");
}
