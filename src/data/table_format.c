/* SPDX-License-Identifier: MIT */
/* table_format.c - which folders and files hold tables. */
#include "data/table_format.h"

#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "data/cells.h"

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

const struct dataset_info *table_format_known(const char *folder, bool is_libsvm)
{
    for (int i = 0; dataset_table[i]; i++) {
        const struct table_files *table = dataset_table[i]->table;
        if (!table || table->is_libsvm != is_libsvm)
            continue;
        bool has_all = !table->test || has_file(folder, table->test);
        for (int f = 0; table->files[f]; f++)
            has_all = has_all && has_file(folder, table->files[f]);
        if (has_all)
            return dataset_table[i];
    }
    return NULL;
}

static bool probe_csv(const char *path)
{
    if (!file_is_folder(path))
        return ends_with(path, ".csv") && file_exists(path);
    return has_file(path, "train.csv") || table_format_known(path, false);
}

static bool probe_libsvm(const char *path)
{
    if (!file_is_folder(path))
        return ends_with(path, ".svm") && file_exists(path);
    return has_file(path, "train.svm") || table_format_known(path, true);
}

/* Copies the file, if it is there, under a name of the target's. */
static enum status copy_file(const char *path, const char *target, const char *name)
{
    char *to, *text;
    size_t length;

    if (!file_exists(path))
        return STATUS_OK;
    TRY(file_read(path, CELLS_BYTES, &text, &length));
    enum status status = file_join(target, name, &to);
    if (status == STATUS_OK) {
        status = file_replace(to, text, length);
        mem_free(to);
    }
    mem_free(text);
    return status;
}

static enum status copy_from(const char *folder, const char *target, const char *name)
{
    char *path;

    TRY(file_join(folder, name, &path));
    const enum status status = copy_file(path, target, name);
    mem_free(path);
    return status;
}

/* Tables lie as they are: their files are copied, one file alone as the training file. What is wrong in them is found when
 * they are opened, as it depends on the column that is the label. */
static enum status copy_table(const char *path, const struct dataset_info *expected,
                              const char *target, const char *const names[2])
{
    const struct table_files *known = expected ? expected->table : NULL;

    if (!file_is_folder(path))
        return copy_file(path, target, names[0]);
    for (int i = 0; known && known->files[i]; i++)
        TRY(copy_from(path, target, known->files[i]));
    if (known && known->test)
        TRY(copy_from(path, target, known->test));
    for (int i = 0; i < 2 && !known; i++)
        TRY(copy_from(path, target, names[i]));
    return STATUS_OK;
}

static enum status copy_csv(const char *path, const struct dataset_info *expected,
                            const char *target)
{
    static const char *const names[] = { "train.csv", "test.csv" };

    return copy_table(path, expected, target, names);
}

static enum status copy_libsvm(const char *path, const struct dataset_info *expected,
                               const char *target)
{
    static const char *const names[] = { "train.svm", "test.svm" };

    return copy_table(path, expected, target, names);
}

const struct format format_csv = {
    .name = "csv",
    .files = "train.csv and test.csv, or the path of one file",
    .is_table = true,
    .probe = probe_csv,
    .copy = copy_csv,
};

const struct format format_libsvm = {
    .name = "libsvm",
    .files = "train.svm and test.svm, or the path of one file",
    .is_table = true,
    .probe = probe_libsvm,
    .copy = copy_libsvm,
};
