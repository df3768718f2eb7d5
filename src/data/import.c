/* SPDX-License-Identifier: MIT */
/* import.c - takes a folder's data set in under a name. */
#include "data/import.h"

#include "data/fetch.h"
#include "data/format.h"
#include "data/known.h"
#include "data/store.h"

enum status import_files(const char *path, const char *name, enum dataset_layout layout,
                         const char *target)
{
    const struct dataset_info *info = dataset_find(name);
    const struct format *format;
    struct known known = { .info = info };

    TRY(format_detect(path, &format));
    if (!info) /* what the folder says of itself goes with it */
        TRY(known_read(path, &known));
    TRY(format_copy(format, path, known.info, layout, target));
    return known_write(&known, target);
}

enum status dataset_import(const char *path, const char *name, char **out_folder)
{
    return dataset_import_layout(path, name, DATASET_FOUND, out_folder);
}

enum status dataset_import_layout(const char *path, const char *name,
                                  enum dataset_layout layout, char **out_folder)
{
    struct store store;

    TRY(store_begin(&store, NULL, name));
    const enum status status = import_files(path, name, layout, store.temporary);
    if (status != STATUS_OK) {
        store_cancel(&store);
        return status;
    }
    return store_commit(&store, out_folder);
}
