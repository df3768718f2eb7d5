/* SPDX-License-Identifier: MIT */
/* format.h - how a file format hands samples to a data set. Private to data/.
 *
 * A format is one row of format_table: it knows what its files are called, opens
 * them and checks everything in them, so that dataset.c can trust what it gets.
 */
#ifndef DATA_FORMAT_H
#define DATA_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "data/dataset.h"
#include "tensor/shape.h"

enum { FORMAT_PARTS = 8, FORMAT_CHANNELS = 3, FORMAT_CLASSES = 65536 /* at most */ };

/* Samples that lie in a row: sample i has its pixels (planes of H x W bytes) at
 * pixels + i * pixel_stride and its label at labels[i * label_stride], or, where the file has
 * no bytes to point at, at wide_labels[i]. */
struct format_part {
    const uint8_t *pixels, *labels;
    const int32_t *wide_labels; /* NULL: `labels` has them */
    size_t pixel_stride, label_stride;
    int64_t count;
};

/* One split, open. */
struct format_data {
    struct shape sample;             /* C, H, W; at most FORMAT_CHANNELS channels */
    int classes;                     /* every label is below it */
    const char *const *class_names;  /* `classes` of them, of `storage`; NULL: none are known */
    int64_t train_count, test_count; /* as far as known without reading pixels; 0 if unknown */
    size_t
        held_bytes; /* in memory of this process, beside pages of files; 0: little, or unknown */
    int n_parts;
    struct format_part part[FORMAT_PARTS];
    void *storage; /* the format's own */
};

struct text_format; /* text_format.h */

struct format {
    const char *name;               /* as in struct dataset_info */
    const char *files;              /* what they are called, for messages */
    const struct text_format *text; /* NULL: images. Text has no `open` and `close` here */
    bool is_table;                  /* nor have tables: data/tabular.h */
    bool has_named_labels; /* labels in the files are names of classes, not their numbers */

    /* Does the folder hold files under this format's names? Of text also: is it such a file? */
    bool (*probe)(const char *folder);
    /* Opens one split and checks all of it, also against `expected` (shape, classes) unless
     * that is NULL. *out is written on success only. */
    enum status (*open)(const char *folder, enum dataset_split split,
                        const struct dataset_info *expected, struct format_data *out);
    /* The same, where arrays may have more than one layout. NULL: they have one, and `open` reads
     * it. */
    enum status (*open_layout)(const char *folder, enum dataset_split split,
                               const struct dataset_info *expected, enum dataset_layout layout,
                               struct format_data *out);
    void (*close)(struct format_data *data);
    /* Where a sample stands in the order of its files, as a number that ascends with it, and
     * which file it is, below the folder. NULL: samples come in that order; files hold many. */
    int64_t (*place)(const struct format_data *data, int64_t index);
    const char *(*file_of)(const struct format_data *data, int64_t index);
    /* Checks both splits and writes them to the folder `target` as files that can be mapped. */
    enum status (*copy)(const char *folder, const struct dataset_info *expected,
                        const char *target);
    enum status (*copy_layout)(const char *folder, const struct dataset_info *expected,
                               enum dataset_layout layout, const char *target); /* as above */
};

extern const struct format *const format_table[]; /* ended by NULL */

/* The first format that knows the folder's files, or NULL. */
const struct format *format_of_folder(const char *folder);
/* The same; STATUS_NOT_FOUND says what is missing. */
MUST_CHECK enum status format_detect(const char *folder, const struct format **out);

/* Opens or copies by `format`; a layout that it has not is refused: STATUS_USAGE. */
MUST_CHECK enum status format_open(const struct format *format, const char *folder,
                                   enum dataset_split split,
                                   const struct dataset_info *expected,
                                   enum dataset_layout layout, struct format_data *out);
MUST_CHECK enum status format_copy(const struct format *format, const char *folder,
                                   const struct dataset_info *expected,
                                   enum dataset_layout layout, const char *target);

/* Refuses images of another shape than the row's: STATUS_MISMATCH, naming `path`. No row, no
 * complaint. */
MUST_CHECK enum status format_check_shape(const char *path, const struct shape *sample,
                                          const struct dataset_info *expected);

#endif /* DATA_FORMAT_H */
