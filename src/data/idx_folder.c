/* SPDX-License-Identifier: MIT */
/* idx_folder.c - a data set as four IDX files: images and labels, to train with and to test. */
#include "data/idx_folder.h"

#include "base/file.h"
#include "base/mem.h"
#include "data/idx.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>

static const struct {
    const char *images, *labels;
} NAMES[] = {
    [DATASET_TRAIN] = { "train-images-idx3-ubyte", "train-labels-idx1-ubyte" },
    [DATASET_TEST] = { "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte" },
};
enum { N_SPLITS = 2 };

struct split_files {
    struct idx images, labels;
};

static bool is_there(const char *folder, const char *name)
{
    char path[PATH_MAX];
    const int plain = snprintf(path, sizeof path, "%s/%s.gz", folder, name) - 3;

    if (plain + 3 >= (int)sizeof path)
        return false;
    if (file_exists(path))
        return true;
    path[plain] = '\0';
    return file_exists(path);
}

static bool probe(const char *folder)
{
    for (int split = 0; split < N_SPLITS; split++)
        if (is_there(folder, NAMES[split].images) || is_there(folder, NAMES[split].labels))
            return true;
    return false;
}

/* How many different values the labels could have: the largest plus one. */
static int classes_of(const struct idx *labels)
{
    int largest = 0;

    for (int64_t i = 0; i < labels->dim[0]; i++)
        largest = labels->data[i] > largest ? labels->data[i] : largest;
    return largest + 1;
}

static enum status check_labels(const char *folder, const char *name, const struct idx *labels,
                                const struct dataset_info *expected)
{
    if (classes_of(labels) <= expected->classes)
        return STATUS_OK;

    int64_t i = 0;
    while (labels->data[i] < expected->classes)
        i++;
    return FAIL(STATUS_CORRUPT,
                "%s/%s: label %d of sample %" PRId64 " is out of range: %s has %d classes",
                folder, name, labels->data[i], i, expected->name, expected->classes);
}

static enum status check_shape(const char *folder, const char *name, const struct idx *images,
                               const struct dataset_info *expected)
{
    const struct shape *shape = &expected->sample;

    if (shape->dim[0] == 1 && shape->dim[1] == images->dim[1] &&
        shape->dim[2] == images->dim[2])
        return STATUS_OK;
    return FAIL(STATUS_MISMATCH,
                "%s/%s: its images are 1x%" PRId64 "x%" PRId64 " where %s has %" PRId64
                "x%" PRId64 "x%" PRId64,
                folder, name, images->dim[1], images->dim[2], expected->name, shape->dim[0],
                shape->dim[1], shape->dim[2]);
}

static enum status open_files(const char *folder, enum dataset_split split,
                              const struct dataset_info *expected, struct split_files *out)
{
    const char *images_name = NAMES[split].images, *labels_name = NAMES[split].labels;
    struct split_files files = { 0 };
    enum status status;

    TRY(idx_open(folder, labels_name, IDX_LABELS, &files.labels));
    status = expected ? check_labels(folder, labels_name, &files.labels, expected) : STATUS_OK;
    if (status != STATUS_OK)
        goto release_labels;
    status = idx_open(folder, images_name, IDX_IMAGES, &files.images);
    if (status != STATUS_OK)
        goto release_labels;
    status = expected ? check_shape(folder, images_name, &files.images, expected) : STATUS_OK;
    if (status != STATUS_OK)
        goto release_images;
    if (files.images.dim[0] != files.labels.dim[0]) {
        status = FAIL(
            STATUS_MISMATCH, "%s: %s holds %" PRId64 " images, but %s holds %" PRId64 " labels",
            folder, images_name, files.images.dim[0], labels_name, files.labels.dim[0]);
        goto release_images;
    }
    *out = files;
    return STATUS_OK;

release_images:
    idx_release(&files.images);
release_labels:
    idx_release(&files.labels);
    return status;
}

/* A split may lack the highest classes, so that both are looked at to count them. */
static enum status look_at_other_split(const char *folder, enum dataset_split other,
                                       int64_t *out_count, int *out_classes)
{
    struct idx labels;

    *out_count = 0;
    *out_classes = 0;
    if (!is_there(folder, NAMES[other].labels))
        return STATUS_OK;
    TRY(idx_open(folder, NAMES[other].labels, IDX_LABELS, &labels));
    *out_count = labels.dim[0];
    *out_classes = classes_of(&labels);
    idx_release(&labels);
    return STATUS_OK;
}

static void describe(const struct split_files *files, enum dataset_split split,
                     int64_t other_count, struct format_data *out)
{
    const int64_t count = files->images.dim[0], h = files->images.dim[1],
                  w = files->images.dim[2];

    *out = (struct format_data){
        .sample = { 3, { 1, h, w } },
        .train_count = split == DATASET_TRAIN ? count : other_count,
        .test_count = split == DATASET_TEST ? count : other_count,
        .n_parts = 1,
        .part[0] = { .pixels = files->images.data,
                     .labels = files->labels.data,
                     .pixel_stride = (size_t)(h * w),
                     .label_stride = 1,
                     .count = count },
    };
}

static enum status open_split(const char *folder, enum dataset_split split,
                              const struct dataset_info *expected, struct format_data *out)
{
    const enum dataset_split other = split == DATASET_TRAIN ? DATASET_TEST : DATASET_TRAIN;
    int64_t other_count = 0;
    int other_classes = 0;
    struct split_files *files;

    if (!expected)
        TRY(look_at_other_split(folder, other, &other_count, &other_classes));
    TRY(mem_alloc(1, sizeof *files, &files));
    const enum status status = open_files(folder, split, expected, files);
    if (status != STATUS_OK) {
        mem_free(files);
        return status;
    }

    describe(files, split, other_count, out);
    const int classes = classes_of(&files->labels);
    out->classes = expected                  ? expected->classes
                   : classes > other_classes ? classes
                                             : other_classes;
    out->storage = files;
    return STATUS_OK;
}

static void close_split(struct format_data *data)
{
    struct split_files *files = data->storage;

    idx_release(&files->images);
    idx_release(&files->labels);
    mem_free(files);
    *data = (struct format_data){ 0 };
}

static enum status write_file(const struct idx *idx, const char *folder, const char *name)
{
    char *path;

    TRY(file_join(folder, name, &path));
    const enum status status = file_replace(path, idx->file, idx->length);
    mem_free(path);
    return status;
}

static enum status copy(const char *folder, const struct dataset_info *expected,
                        const char *target)
{
    for (int split = 0; split < N_SPLITS; split++) {
        struct split_files files;

        TRY(open_files(folder, (enum dataset_split)split, expected, &files));
        enum status status = write_file(&files.images, target, NAMES[split].images);
        if (status == STATUS_OK)
            status = write_file(&files.labels, target, NAMES[split].labels);
        idx_release(&files.images);
        idx_release(&files.labels);
        TRY(status);
    }
    return STATUS_OK;
}

const struct format format_idx = {
    .name = "idx",
    .probe = probe,
    .open = open_split,
    .close = close_split,
    .copy = copy,
};
