/* SPDX-License-Identifier: MIT */
/* dataset.h - data sets by name or path, read in their canonical public formats.
 *
 * A data set is looked for in $TUTTI_DATA/NAME, ~/.local/share/tutti/NAME and
 * /usr/share/datasets/NAME (Debian), in this order; a name with a slash is a path.
 * Files that hold pixels as they are used are mapped; others are unpacked when opened.
 *
 * Threads: reading samples is safe from any thread.
 */
#ifndef DATA_DATASET_H
#define DATA_DATASET_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "data/class_map.h"
#include "data/source.h"
#include "tensor/shape.h"

enum dataset_split { DATASET_TRAIN, DATASET_TEST };
/* Where the channels of image arrays are: (N, C, H, W) or (N, H, W, C). DATASET_FOUND: as their
 * shape says. */
enum dataset_layout { DATASET_FOUND, DATASET_NCHW, DATASET_NHWC };
/* "nchw", "nhwc" or, for DATASET_FOUND, "". STATUS_USAGE names --layout. */
MUST_CHECK enum status dataset_layout_parse(const char *text, enum dataset_layout *out);

struct dataset_source; /* data/fetch.h */
struct table_files;    /* data/table_format.h */

/* Is it a folder or file itself, not a name to look for: has it a slash, or is it "." or ".."? */
bool dataset_is_path(const char *name);

/* What is known of a data set before its files are seen. One row each. */
struct dataset_info {
    const char *name, *title;
    const char *other_names[3]; /* that its folder may have too; ended by NULL */
    const char *format;         /* the usual one: "idx", ... */
    int64_t train_count, test_count;
    struct shape sample; /* of one sample: C, H, W; of a table: features */
    int classes;
    const char *const *class_names;      /* `classes` of them */
    float mean[3], deviation[3];         /* per channel, of pixels in [0, 1] */
    const char *tokenizer;               /* of text: its usual one; NULL: as text.h has it */
    const char *package;                 /* Debian's; NULL if there is none */
    const struct dataset_source *source; /* where it can be fetched; NULL if nowhere */
    const char
        *origin; /* then: where people get it, and what files to make of it; a sentence's end */
    const struct table_files *table; /* of a table (data/tabular.h); NULL: it is none */
};
extern const struct dataset_info *const dataset_table[]; /* ended by NULL */
/* By its name or one of its other names; NULL if unknown. */
const struct dataset_info *dataset_find(const char *name);

/* How pixels become numbers: (pixel / 255 - mean) / deviation, channel by channel. */
struct pixel_scale {
    float mean[3], deviation[3]; /* deviation > 0 */
};
extern const struct pixel_scale pixel_unit_scale; /* 0 to 1 as they are */

struct dataset;

/* `name` is a row of the table or a path to a folder in a known format (files under their usual
 * names). A path is no row, whatever its folder is called, unless dataset.json beside the files
 * says so (docs/formats.md); else its pixels have mean 0.5, deviation 0.5. STATUS_NOT_FOUND
 * names the places looked at and what to install or fetch. */
MUST_CHECK enum status dataset_open(const char *name, enum dataset_split split,
                                    struct dataset **out);
/* The same of arrays in a layout; of another format, or of arrays that have no channels, it is
 * refused (STATUS_USAGE). */
MUST_CHECK enum status dataset_open_layout(const char *name, enum dataset_split split,
                                           enum dataset_layout layout, struct dataset **out);
/* The first `limit` samples only; 0 is all. */
void dataset_limit(struct dataset *dataset, int64_t limit);
/* Another normalization than the data set's own, for all that is read from now on; NULL is its own
 * again. Not while others read. */
void dataset_set_scale(struct dataset *dataset, const struct pixel_scale *scale);
/* The one in force. */
struct pixel_scale dataset_scale(const struct dataset *dataset);
/* Mean and deviation of each channel over the samples to be seen. STATUS_USAGE where a channel
 * has one value alone. */
MUST_CHECK enum status dataset_measure_scale(const struct dataset *dataset,
                                             struct pixel_scale *out);
/* Makes labels those of a run that has these classes, matched by class_map; names and their
 * number are the run's from now on. `run` is borrowed while the data set lives. Not while
 * others read. */
MUST_CHECK enum status dataset_set_classes(struct dataset *dataset,
                                           const struct class_list *run);
void dataset_close(struct dataset *dataset); /* NULL is allowed */

const struct dataset_info *dataset_info(const struct dataset *dataset);
const char *dataset_path(const struct dataset *dataset);   /* folder it was read from */
const char *dataset_format(const struct dataset *dataset); /* that of its files */
int64_t dataset_count(const struct dataset *dataset);
int dataset_classes(const struct dataset *dataset);
struct shape dataset_sample(const struct dataset *dataset); /* C, H, W */
/* SHA-256 (64 digits) over the name of a known data set, split, count, shape, labels and
 * samples of the pixels: cheap, tells two data sets apart; the same in any folder and any
 * format that has the samples in the same order. dataset_limit changes it. */
const char *dataset_fingerprint(const struct dataset *dataset);

/* Raw access: pixels as stored (C planes of H x W bytes) and label. */
const uint8_t *dataset_pixels(const struct dataset *dataset, int64_t index);
int32_t dataset_label(const struct dataset *dataset, int64_t index);

/* Normalized samples: x[i] is sample index[i] as H, W, C floats, y[i] its label. */
void dataset_read(const struct dataset *dataset, const int64_t *index, int64_t count, float *x,
                  int32_t *y);

/* The same, augmented. */
void dataset_read_augmented(const struct dataset *dataset, const struct source_how *how,
                            const int64_t *index, int64_t count, float *x, int32_t *y);

/* The same samples for a loader or an evaluation; borrowed. */
const struct source *dataset_as_source(const struct dataset *dataset);

#endif /* DATA_DATASET_H */
