/* SPDX-License-Identifier: MIT */
/* fetch.c - downloads all files of a data set, unpacks archives, then takes the files in as
 * import.c does. */
#include "data/fetch.h"

#include "base/file.h"
#include "base/mem.h"
#include "data/download.h"
#include "data/import.h"
#include "data/search.h"
#include "data/store.h"
#include "data/tar.h"

#include <string.h>

static bool is_archive(const char *name)
{
    static const char ENDING[] = ".tar.gz";
    const size_t length = strlen(name), ending = sizeof ENDING - 1;

    return length > ending && strcmp(name + length - ending, ENDING) == 0;
}

static enum status download_all(const struct dataset_source *source,
                                const struct fetch_options *options, const char *folder)
{
    const char *address = options->address ? options->address : source->address;

    for (const struct dataset_file *file = source->files; file->name; file++) {
        char *path;

        TRY(file_join(folder, file->name, &path));
        enum status status =
            download_file(address, file, path, options->progress, options->arg);
        if (status == STATUS_OK && is_archive(file->name))
            status = tar_unpack(path, folder);
        mem_free(path);
        TRY(status);
    }
    return STATUS_OK;
}

/* Fills `folder` with the unpacked files; what was downloaded is removed again. */
static enum status fill(const char *name, const struct dataset_source *source,
                        const struct fetch_options *options, const char *folder)
{
    char *download;

    TRY(file_join(folder, "download", &download));
    enum status status = file_make_folder(download);
    if (status == STATUS_OK)
        status = download_all(source, options, download);
    if (status == STATUS_OK)
        status = import_files(download, name, DATASET_FOUND, folder);
    if (status == STATUS_OK)
        status = file_remove_tree(download);
    mem_free(download);
    return status;
}

enum status dataset_fetch_source(const char *name, const struct dataset_source *source,
                                 const struct fetch_options *options, char **out_folder)
{
    static const struct fetch_options USUAL;
    struct store store;

    if (!options)
        options = &USUAL;
    TRY(store_begin(&store, options->root, name));
    const enum status status = fill(name, source, options, store.temporary);
    if (status != STATUS_OK) {
        store_cancel(&store);
        return status;
    }
    return store_commit(&store, out_folder);
}

enum status dataset_fetch(const char *name, const struct fetch_options *options,
                          char **out_folder)
{
    const struct dataset_info *info = dataset_find(name);

    if (!info)
        return search_fail_unknown(name);
    if (!info->source)
        return FAIL(
            STATUS_UNSUPPORTED,
            "%s: has no public address to fetch it from: %s, then run: tutti data import "
            "FOLDER %s",
            name, info->origin, name);
    return dataset_fetch_source(name, info->source, options, out_folder);
}
