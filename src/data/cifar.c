/* SPDX-License-Identifier: MIT */
/* cifar.c - folders of CIFAR's binary files. */
#include "data/cifar.h"

#include "base/file.h"
#include "base/mem.h"
#include "data/names.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>

enum { SIDE = 32, CHANNELS = 3, PIXELS = CHANNELS * SIDE * SIDE, TRAIN_FILES = 5 };
enum { COARSE_CLASSES = 20, N_SPLITS = 2 };

struct cifar_kind {
    const char *name;
    const char *files[N_SPLITS][TRAIN_FILES + 1]; /* each ended by NULL */
    const char *names;                            /* of the class names; optional */
    int labels;  /* bytes before the pixels; the last is used */
    int classes; /* where nothing says otherwise */
};

const struct cifar_kind cifar_10 = {
    .name = "CIFAR-10",
    .files = { [DATASET_TRAIN] = { "data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
                                   "data_batch_4.bin", "data_batch_5.bin" },
               [DATASET_TEST] = { "test_batch.bin" } },
    .names = "batches.meta.txt",
    .labels = 1,
    .classes = 10,
};

const struct cifar_kind cifar_100 = {
    .name = "CIFAR-100",
    .files = { [DATASET_TRAIN] = { "train.bin" }, [DATASET_TEST] = { "test.bin" } },
    .names = "fine_label_names.txt",
    .labels = 2,
    .classes = 100,
};

/* An open split. */
struct cifar_files {
    struct file_map map[TRAIN_FILES];
    struct names names;
};

static enum status check_record(const char *path, const uint8_t *labels, size_t record,
                                size_t at, int n_labels, int classes)
{
    if (n_labels == 2 && labels[0] >= COARSE_CLASSES)
        return FAIL(STATUS_CORRUPT,
                    "%s: superclass %d of record %zu, byte %zu, is out of range: there are %d",
                    path, labels[0], record, at, COARSE_CLASSES);
    const int label = labels[n_labels - 1];
    if (label >= classes)
        return FAIL(STATUS_CORRUPT,
                    "%s: label %d of record %zu, byte %zu, is out of range: there are %d "
                    "classes",
                    path, label, record, at + (size_t)n_labels - 1, classes);
    return STATUS_OK;
}

enum status cifar_parse(const struct cifar_kind *kind, const char *path, const uint8_t *bytes,
                        size_t length, int classes, struct format_part *out)
{
    const size_t labels = (size_t)kind->labels, record = labels + PIXELS;
    const size_t count = length / record;

    if (length == 0)
        return FAIL(STATUS_CORRUPT, "%s: is empty", path);
    if (length % record != 0)
        return FAIL(STATUS_CORRUPT,
                    "%s: is cut short or no %s file: record %zu, from byte %zu, has %zu of its "
                    "%zu bytes",
                    path, kind->name, count, count * record, length % record, record);
    for (size_t i = 0; i < count; i++)
        TRY(check_record(path, bytes + i * record, i, i * record, kind->labels, classes));

    *out = (struct format_part){ .pixels = bytes + labels,
                                 .labels = bytes + labels - 1,
                                 .pixel_stride = record,
                                 .label_stride = record,
                                 .count = (int64_t)count };
    return STATUS_OK;
}

static bool is_there(const char *folder, const char *name)
{
    char path[PATH_MAX];

    return snprintf(path, sizeof path, "%s/%s", folder, name) < (int)sizeof path &&
           file_exists(path);
}

/* How many samples a split has by the sizes of its files; 0 where one is missing. */
static int64_t count_records(const struct cifar_kind *kind, const char *folder,
                             enum dataset_split split)
{
    const size_t record = (size_t)kind->labels + PIXELS;
    int64_t count = 0;

    for (int i = 0; kind->files[split][i]; i++) {
        struct file_map map;
        char *path;

        if (file_join(folder, kind->files[split][i], &path) != STATUS_OK)
            return 0;
        const enum status status = file_map(path, &map);
        mem_free(path);
        if (status != STATUS_OK)
            return 0;
        count += (int64_t)(map.length / record);
        file_unmap(&map);
    }
    return count;
}

/* Maps and checks one file. */
static enum status open_file(const struct cifar_kind *kind, const char *folder,
                             const char *name, int classes, struct file_map *map,
                             struct format_part *out)
{
    char *path;

    TRY(file_join(folder, name, &path));
    enum status status = file_map(path, map);
    if (status == STATUS_OK)
        status = cifar_parse(kind, path, map->data, map->length, classes, out);
    mem_free(path);
    return status;
}

static void release(struct cifar_files *files)
{
    for (int i = 0; i < TRAIN_FILES; i++)
        file_unmap(&files->map[i]);
    names_release(&files->names);
}

/* The list of names says how many classes there are; a row knows better. */
static enum status count_classes(const struct cifar_kind *kind, const char *folder,
                                 const struct dataset_info *expected, struct names *names,
                                 int *out)
{
    enum { BYTE_VALUES = 256 };

    TRY(names_read(folder, kind->names, names));
    const int classes = names->count > 0 ? names->count : kind->classes;
    if (classes > BYTE_VALUES || (expected && names->count > 0 && classes != expected->classes))
        return FAIL(STATUS_MISMATCH, "%s/%s: holds %d names where there are %d classes", folder,
                    kind->names, classes, expected ? expected->classes : BYTE_VALUES);
    *out = expected ? expected->classes : classes;
    return STATUS_OK;
}

static enum status open_files(const struct cifar_kind *kind, const char *folder,
                              enum dataset_split split, const struct dataset_info *expected,
                              struct cifar_files *files, struct format_data *out)
{
    struct format_data data = { .sample = { 3, { CHANNELS, SIDE, SIDE } } };
    int64_t count = 0;

    TRY(format_check_shape(folder, &data.sample, expected));
    TRY(count_classes(kind, folder, expected, &files->names, &data.classes));
    for (int i = 0; kind->files[split][i]; i++) {
        TRY(open_file(kind, folder, kind->files[split][i], data.classes, &files->map[i],
                      &data.part[i]));
        count += data.part[i].count;
        data.n_parts++;
    }
    data.train_count = split == DATASET_TRAIN ? count : 0;
    data.test_count = split == DATASET_TEST ? count : 0;
    data.class_names = files->names.name;
    *out = data;
    return STATUS_OK;
}

static enum status open_split(const struct cifar_kind *kind, const char *folder,
                              enum dataset_split split, const struct dataset_info *expected,
                              struct format_data *out)
{
    struct cifar_files *files;

    TRY(mem_alloc(1, sizeof *files, &files));
    const enum status status = open_files(kind, folder, split, expected, files, out);
    if (status != STATUS_OK) {
        release(files);
        mem_free(files);
        return status;
    }
    out->storage = files;
    if (split == DATASET_TRAIN)
        out->test_count = count_records(kind, folder, DATASET_TEST);
    else
        out->train_count = count_records(kind, folder, DATASET_TRAIN);
    return STATUS_OK;
}

static void close_split(struct format_data *data)
{
    release(data->storage);
    mem_free(data->storage);
    *data = (struct format_data){ 0 };
}

static enum status write_file(const char *folder, const char *name, const struct file_map *map)
{
    char *path;

    TRY(file_join(folder, name, &path));
    const enum status status = file_replace(path, map->data, map->length);
    mem_free(path);
    return status;
}

static enum status copy_split(const struct cifar_kind *kind, const char *folder,
                              enum dataset_split split, const struct dataset_info *expected,
                              const char *target)
{
    struct cifar_files files = { 0 };
    struct format_data data;

    enum status status = open_files(kind, folder, split, expected, &files, &data);
    for (int i = 0; status == STATUS_OK && i < data.n_parts; i++)
        status = write_file(target, kind->files[split][i], &files.map[i]);
    if (status == STATUS_OK && files.names.count > 0)
        status = names_write(target, kind->names, files.names.name, files.names.count);
    release(&files);
    return status;
}

static enum status copy(const struct cifar_kind *kind, const char *folder,
                        const struct dataset_info *expected, const char *target)
{
    TRY(copy_split(kind, folder, DATASET_TRAIN, expected, target));
    return copy_split(kind, folder, DATASET_TEST, expected, target);
}

static bool probe_10(const char *folder)
{
    return is_there(folder, "data_batch_1.bin") || is_there(folder, "test_batch.bin");
}

static enum status open_10(const char *folder, enum dataset_split split,
                           const struct dataset_info *expected, struct format_data *out)
{
    return open_split(&cifar_10, folder, split, expected, out);
}

static enum status copy_10(const char *folder, const struct dataset_info *expected,
                           const char *target)
{
    return copy(&cifar_10, folder, expected, target);
}

/* Others call their files train.bin too: one alone says nothing. */
static bool probe_100(const char *folder)
{
    return is_there(folder, cifar_100.names) ||
           (is_there(folder, "train.bin") && is_there(folder, "test.bin"));
}

static enum status open_100(const char *folder, enum dataset_split split,
                            const struct dataset_info *expected, struct format_data *out)
{
    return open_split(&cifar_100, folder, split, expected, out);
}

static enum status copy_100(const char *folder, const struct dataset_info *expected,
                            const char *target)
{
    return copy(&cifar_100, folder, expected, target);
}

const struct format format_cifar_10 = {
    .name = "cifar-10",
    .files = "data_batch_1.bin to data_batch_5.bin, test_batch.bin",
    .probe = probe_10,
    .open = open_10,
    .close = close_split,
    .copy = copy_10,
};

const struct format format_cifar_100 = {
    .name = "cifar-100",
    .files = "train.bin, test.bin",
    .probe = probe_100,
    .open = open_100,
    .close = close_split,
    .copy = copy_100,
};
