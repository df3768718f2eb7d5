/* SPDX-License-Identifier: MIT */
/* import.c - takes a folder's data set in under a name. */
#include "data/import.h"

#include "data/fetch.h"
#include "data/format.h"
#include "data/store.h"

enum status import_files(const char *path, const char *name, const char *target)
{
    const struct format *format;

    TRY(format_detect(path, &format));
    return format->copy(path, dataset_find(name), target);
}

enum status dataset_import(const char *path, const char *name, char **out_folder)
{
    struct store store;

    TRY(store_begin(&store, NULL, name));
    const enum status status = import_files(path, name, store.temporary);
    if (status != STATUS_OK) {
        store_cancel(&store);
        return status;
    }
    return store_commit(&store, out_folder);
}
