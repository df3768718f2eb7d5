/* SPDX-License-Identifier: MIT */
/* image_list.c - walks a folder of images. */
#include "data/image_list.h"

#include "base/file.h"
#include "base/mem.h"
#include "data/format.h"
#include "data/image.h"
#include "data/names.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_SPLITS = 2 };

const char *image_list_folder(const char *folder, enum dataset_split split)
{
    static const char *const NAMES[][2] = {
        [DATASET_TRAIN] = { "train", "train" },
        [DATASET_TEST] = { "test", "val" },
    };
    static _Thread_local char path[PATH_MAX];

    for (int i = 0; i < 2; i++)
        if (snprintf(path, sizeof path, "%s/%s", folder, NAMES[split][i]) < (int)sizeof path &&
            file_is_folder(path))
            return path;
    return NULL;
}

/* Names in a folder, sorted; the array is the caller's to free, its text the arena's. */
struct listing {
    char **name;
    size_t count, room;
};

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static enum status add_name(struct arena *arena, const char *name, struct listing *listing)
{
    if (listing->count == listing->room) {
        const size_t room = listing->room > 0 ? 2 * listing->room : 64;

        TRY(mem_grow(&listing->name, listing->room, room, sizeof *listing->name));
        listing->room = room;
    }
    char *copy = arena_strdup(arena, name);
    if (!copy)
        return STATUS_NO_MEMORY;
    listing->name[listing->count++] = copy;
    return STATUS_OK;
}

static enum status list_folder(struct arena *arena, const char *path, struct listing *out)
{
    struct listing listing = { 0 };
    DIR *stream = opendir(path);
    enum status status = STATUS_OK;

    if (!stream)
        return FAIL(STATUS_IO, "cannot read %s: %s", path, strerror(errno));
    for (const struct dirent *entry; status == STATUS_OK && (entry = readdir(stream));)
        if (entry->d_name[0] != '.')
            status = add_name(arena, entry->d_name, &listing);
    closedir(stream);
    if (status != STATUS_OK) {
        mem_free(listing.name);
        return status;
    }
    if (listing.count > 0)
        qsort(listing.name, listing.count, sizeof *listing.name, compare_names);
    *out = listing;
    return STATUS_OK;
}

/* The classes are train's folders. */
static enum status read_classes(const char *train, struct image_list *list)
{
    struct listing listing;

    TRY(list_folder(list->arena, train, &listing));
    list->class_names = (const char **)listing.name;
    if (listing.count == 0 || listing.count > FORMAT_CLASSES)
        return FAIL(STATUS_CORRUPT, "%s: holds %zu classes; 1 to %d can be", train,
                    listing.count, FORMAT_CLASSES);
    list->classes = (int)listing.count;
    for (size_t i = 0; i < listing.count; i++) {
        char path[PATH_MAX];

        if (snprintf(path, sizeof path, "%s/%s", train, listing.name[i]) >= (int)sizeof path ||
            !file_is_folder(path))
            return FAIL(STATUS_CORRUPT, "%s/%s: is no folder; train holds a folder a class",
                        train, listing.name[i]);
        if (!names_is_line(listing.name[i], strlen(listing.name[i])))
            return FAIL(STATUS_UNSUPPORTED,
                        "%s: folder %zu has a name that is no UTF-8 text; rename it", train, i);
    }
    return STATUS_OK;
}

static int find_class(const struct image_list *list, const char *name)
{
    for (int low = 0, high = list->classes - 1; low <= high;) {
        const int middle = (low + high) / 2, order = strcmp(name, list->class_names[middle]);

        if (order == 0)
            return middle;
        if (order < 0)
            high = middle - 1;
        else
            low = middle + 1;
    }
    return -1;
}

static enum status add_entries(struct image_list *list, enum dataset_split split,
                               const char *path, int label, const struct listing *files)
{
    struct image_entry **entries = &list->entry[split];
    const size_t old = list->count[split];

    if (files->count > INT32_MAX)
        return FAIL(STATUS_UNSUPPORTED, "%s: holds %zu files, more than can be", path,
                    files->count);
    TRY(mem_grow(entries, old, old + files->count, sizeof **entries));
    for (size_t i = 0; i < files->count; i++) {
        if (!image_has_name(files->name[i]))
            return FAIL(STATUS_UNSUPPORTED,
                        "%s/%s: is neither .png nor .jpg; convert it or take it away", path,
                        files->name[i]);
        char *name = arena_printf(list->arena, "%s/%s", path, files->name[i]);
        if (!name)
            return STATUS_NO_MEMORY;
        (*entries)[old + i] = (struct image_entry){ name, label, (int32_t)i };
    }
    list->count[split] = old + files->count;
    return STATUS_OK;
}

/* The files of one class in one split. */
static enum status read_class(struct image_list *list, enum dataset_split split,
                              const char *root, const char *name)
{
    const int label = find_class(list, name);
    struct listing files;
    char *path;

    if (label < 0)
        return FAIL(STATUS_MISMATCH,
                    "%s/%s: is no class: train has no such folder; take it away", root, name);
    TRY(file_join(root, name, &path));
    enum status status = list_folder(list->arena, path, &files);
    if (status == STATUS_OK) {
        if (files.count == 0 && split == DATASET_TRAIN)
            status = FAIL(STATUS_CORRUPT, "%s: holds no images", path);
        else
            status = add_entries(list, split, path, label, &files);
        mem_free(files.name);
    }
    mem_free(path);
    return status;
}

static int compare_entries(const void *a, const void *b)
{
    const struct image_entry *x = a, *y = b;

    if (x->turn != y->turn)
        return x->turn < y->turn ? -1 : 1;
    return (x->label > y->label) - (x->label < y->label);
}

static enum status read_split(struct image_list *list, enum dataset_split split,
                              const char *root)
{
    struct listing classes;
    enum status status = STATUS_OK;

    TRY(list_folder(list->arena, root, &classes));
    for (size_t i = 0; status == STATUS_OK && i < classes.count; i++)
        status = read_class(list, split, root, classes.name[i]);
    mem_free(classes.name);
    TRY(status);
    if (list->count[split] == 0)
        return FAIL(STATUS_CORRUPT, "%s: holds no images", root);
    qsort(list->entry[split], list->count[split], sizeof *list->entry[split], compare_entries);
    return STATUS_OK;
}

static enum status read_all(const char *folder, struct image_list *list)
{
    TRY(arena_create(&list->arena));
    for (int split = 0; split < N_SPLITS; split++) {
        const char *found = image_list_folder(folder, (enum dataset_split)split);
        char *root;

        if (!found && split == DATASET_TRAIN)
            return FAIL(STATUS_NOT_FOUND, "%s: train is not there", folder);
        if (!found)
            continue;
        TRY(mem_strdup(found, &root));
        enum status status = split == DATASET_TRAIN ? read_classes(root, list) : STATUS_OK;
        if (status == STATUS_OK)
            status = read_split(list, (enum dataset_split)split, root);
        mem_free(root);
        TRY(status);
    }
    return STATUS_OK;
}

enum status image_list_read(const char *folder, struct image_list *out)
{
    struct image_list list = { 0 };

    const enum status status = read_all(folder, &list);
    if (status != STATUS_OK) {
        image_list_release(&list);
        return status;
    }
    *out = list;
    return STATUS_OK;
}

void image_list_release(struct image_list *list)
{
    for (int split = 0; split < N_SPLITS; split++)
        mem_free(list->entry[split]);
    mem_free(list->class_names);
    arena_destroy(list->arena);
    *list = (struct image_list){ 0 };
}
