/* SPDX-License-Identifier: MIT */
/* idx_folder.c - a data set as four IDX files: images and labels, to train with and to test.
 *
 * MedMNIST and others put their own name before the usual ones, and say test for t10k.
 */
#include "data/idx_folder.h"

#include "base/file.h"
#include "base/mem.h"
#include "data/idx.h"

#include <dirent.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

/* How the files of a split begin: the usual word, and one that is understood. */
static const char *const WORDS[][2] = {
    [DATASET_TRAIN] = { "train", "train" },
    [DATASET_TEST] = { "t10k", "test" },
};
static const char IMAGES[] = "-images-idx3-ubyte", LABELS[] = "-labels-idx1-ubyte";
enum { N_SPLITS = 2, PREFIX_MOST = 32, NAME_MOST = PREFIX_MOST + 28 };

struct split_files {
    struct idx images, labels;
};

/* The files of a split, without .gz. */
struct split_names {
    char images[NAME_MOST], labels[NAME_MOST];
};

/* What stands before train-, t10k- or test- in the name of an IDX file: "" or "NAME-". */
static bool prefix_of(const char *name, char prefix[PREFIX_MOST])
{
    const char *end = strstr(name, IMAGES);

    end = end ? end : strstr(name, LABELS);
    if (!end || (end[sizeof IMAGES - 1] && strcmp(end + sizeof IMAGES - 1, ".gz") != 0))
        return false;
    for (int split = 0; split < N_SPLITS; split++)
        for (int i = 0; i < 2; i++) {
            const size_t word = strlen(WORDS[split][i]), all = (size_t)(end - name);

            if (all < word || memcmp(end - word, WORDS[split][i], word) != 0)
                continue;
            if (all - word >= PREFIX_MOST || (all > word && end[-(ptrdiff_t)word - 1] != '-'))
                continue;
            memcpy(prefix, name, all - word);
            prefix[all - word] = '\0';
            return true;
        }
    return false;
}

/* How many data sets the folder holds, by the beginnings of the files' names: 0, 1 or 2 for
 * more. Where the usual names are there, others do not count. */
static int find_prefix(const char *folder, char prefix[PREFIX_MOST], char other[PREFIX_MOST])
{
    char found[PREFIX_MOST];
    DIR *stream = opendir(folder);
    int count = 0;

    if (!stream)
        return 0;
    for (const struct dirent *entry; (entry = readdir(stream));) {
        if (!prefix_of(entry->d_name, found))
            continue;
        if (!found[0]) {
            prefix[0] = '\0';
            count = 1;
            break;
        }
        if (count == 0)
            memcpy(prefix, found, sizeof found);
        else if (strcmp(prefix, found) != 0)
            memcpy(other, found, sizeof found);
        else
            continue;
        count = count < 2 ? count + 1 : 2;
    }
    closedir(stream);
    return count;
}

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
    char prefix[PREFIX_MOST], other[PREFIX_MOST];

    return find_prefix(folder, prefix, other) > 0;
}

static void name_files(const char *prefix, const char *word, struct split_names *out)
{
    snprintf(out->images, sizeof out->images, "%s%s%s", prefix, word, IMAGES);
    snprintf(out->labels, sizeof out->labels, "%s%s%s", prefix, word, LABELS);
}

static enum status find_files(const char *folder, enum dataset_split split,
                              struct split_names *out)
{
    char prefix[PREFIX_MOST] = "", other[PREFIX_MOST];

    if (find_prefix(folder, prefix, other) > 1)
        return FAIL(STATUS_USAGE,
                    "%s: holds several data sets, such as %s... and %s...; give each a folder",
                    folder, prefix, other);
    for (int i = 1; i >= 0; i--) { /* the usual names if neither is there */
        name_files(prefix, WORDS[split][i], out);
        if (is_there(folder, out->images) || is_there(folder, out->labels))
            break;
    }
    return STATUS_OK;
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
    const struct shape sample = { 3, { 1, images->dim[1], images->dim[2] } };
    char path[PATH_MAX];

    snprintf(path, sizeof path, "%s/%s", folder, name);
    return format_check_shape(path, &sample, expected);
}

static enum status open_files(const char *folder, enum dataset_split split,
                              const struct dataset_info *expected, struct split_files *out)
{
    struct split_files files = { 0 };
    struct split_names names;
    enum status status;

    TRY(find_files(folder, split, &names));
    const char *images_name = names.images, *labels_name = names.labels;
    TRY(idx_open(folder, labels_name, IDX_LABELS, &files.labels));
    status = expected ? check_labels(folder, labels_name, &files.labels, expected) : STATUS_OK;
    if (status != STATUS_OK)
        goto release_labels;
    status = idx_open(folder, images_name, IDX_IMAGES, &files.images);
    if (status != STATUS_OK)
        goto release_labels;
    status = check_shape(folder, images_name, &files.images, expected);
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
    struct split_names names;
    struct idx labels;

    *out_count = 0;
    *out_classes = 0;
    TRY(find_files(folder, other, &names));
    if (!is_there(folder, names.labels))
        return STATUS_OK;
    TRY(idx_open(folder, names.labels, IDX_LABELS, &labels));
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
        struct split_names usual;

        TRY(open_files(folder, (enum dataset_split)split, expected, &files));
        name_files("", WORDS[split][0], &usual);
        enum status status = write_file(&files.images, target, usual.images);
        if (status == STATUS_OK)
            status = write_file(&files.labels, target, usual.labels);
        idx_release(&files.images);
        idx_release(&files.labels);
        TRY(status);
    }
    return STATUS_OK;
}

const struct format format_idx = {
    .name = "idx",
    .files = "train-images-idx3-ubyte[.gz], train-labels-idx1-ubyte[.gz], t10k-...",
    .probe = probe,
    .open = open_split,
    .close = close_split,
    .copy = copy,
};
