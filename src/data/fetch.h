/* SPDX-License-Identifier: MIT */
/* fetch.h - bringing data sets in: from their public addresses, or from a folder.
 *
 * Both put a data set in place as a whole: its folder appears complete and checked, or not
 * at all. Files are kept unpacked, so that opening them is mapping them. What is there
 * already is never replaced.
 */
#ifndef DATA_FETCH_H
#define DATA_FETCH_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "data/dataset.h"

enum { DATASET_FILES = 8 };

struct dataset_file {
    const char *name;
    int64_t bytes;
    const char *sha256; /* 64 digits */
};

/* Where the files of a data set can be had. One whose name ends in .tar.gz is an archive of
 * them. */
struct dataset_source {
    const char *address;                          /* a file's name is put behind it */
    struct dataset_file files[DATASET_FILES + 1]; /* ended by a NULL name */
};

/* Called every now and then, and at the end of each file; false stops (STATUS_STOPPED). */
typedef bool fetch_progress(void *arg, const char *file, int64_t done, int64_t total);

struct fetch_options {
    const char *root;    /* NAME is made in it; NULL is $TUTTI_DATA, ~/.local/share/tutti */
    const char *address; /* of a mirror; NULL is the public one */
    fetch_progress *progress; /* NULL is none */
    void *arg;
};

/* Downloads a row of the table and compares its checksums. `options` may be NULL. *out_folder,
 * unless NULL, is where it is now; the caller frees it with mem_free. STATUS_UNSUPPORTED, with
 * what to do, in a build without libcurl. */
MUST_CHECK enum status dataset_fetch(const char *name, const struct fetch_options *options,
                                     char **out_folder);
/* The same for any source, as a data set called `name`. */
MUST_CHECK enum status dataset_fetch_source(const char *name,
                                            const struct dataset_source *source,
                                            const struct fetch_options *options,
                                            char **out_folder);

/* Checks the data set in the folder `path` and copies it to $TUTTI_DATA/NAME, or without
 * TUTTI_DATA to ~/.local/share/tutti/NAME. If `name` is a row's, shape and classes must be the
 * row's. */
MUST_CHECK enum status dataset_import(const char *path, const char *name, char **out_folder);
/* The same of arrays in a layout, as dataset_open_layout takes it. */
MUST_CHECK enum status dataset_import_layout(const char *path, const char *name,
                                             enum dataset_layout layout, char **out_folder);

#endif /* DATA_FETCH_H */
