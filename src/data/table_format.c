/* SPDX-License-Identifier: MIT */
/* table_format.c - which folders and files hold tables. */
#include "data/table_format.h"

#include <string.h>

#include "base/file.h"
#include "base/mem.h"

static bool ends_with(const char *path, const char *end)
{
    const size_t length = strlen(path), more = strlen(end);
    return length > more && strcmp(path + length - more, end) == 0;
}

static bool has_file(const char *folder, const char *name)
{
    char *path;

    if (file_join(folder, name, &path) != STATUS_OK)
        return false;
    const bool is_there = file_exists(path);
    mem_free(path);
    return is_there;
}

/* The files of a table that has a name. */
static bool has_known(const char *folder, bool is_libsvm)
{
    for (int i = 0; dataset_table[i]; i++) {
        const struct table_files *table = dataset_table[i]->table;
        if (!table || table->is_libsvm != is_libsvm)
            continue;
        bool has_all = !table->test || has_file(folder, table->test);
        for (int f = 0; table->files[f]; f++)
            has_all = has_all && has_file(folder, table->files[f]);
        if (has_all)
            return true;
    }
    return false;
}

static bool probe_csv(const char *path)
{
    if (!file_is_folder(path))
        return ends_with(path, ".csv") && file_exists(path);
    return has_file(path, "train.csv") || has_known(path, false);
}

static bool probe_libsvm(const char *path)
{
    if (!file_is_folder(path))
        return ends_with(path, ".svm") && file_exists(path);
    return has_file(path, "train.svm") || has_known(path, true);
}

/* Tables lie as they are: there is nothing to unpack. */
static enum status refuse_copy(const char *folder, const struct dataset_info *expected,
                               const char *target)
{
    (void)expected;
    (void)target;
    return FAIL(STATUS_UNSUPPORTED, "%s: a table is used where it lies: --data %s", folder,
                folder);
}

const struct format format_csv = {
    .name = "csv",
    .files = "train.csv and test.csv, or the path of one file",
    .is_table = true,
    .probe = probe_csv,
    .copy = refuse_copy,
};

const struct format format_libsvm = {
    .name = "libsvm",
    .files = "train.svm and test.svm, or the path of one file",
    .is_table = true,
    .probe = probe_libsvm,
    .copy = refuse_copy,
};
