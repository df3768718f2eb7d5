/* SPDX-License-Identifier: MIT */
/* known.h - what is known of a data set besides its files. Private to data/.
 *
 * Two things say which row of dataset_table a data set is: the name that was asked for, and the
 * file dataset.json beside the data, which fetch and import write (docs/formats.md). The
 * folder's name does not count: a path is a folder like any other.
 */
#ifndef DATA_KNOWN_H
#define DATA_KNOWN_H

#include "data/scale.h"

#define KNOWN_FILE "dataset.json"

struct known {
    const struct dataset_info *info; /* NULL: none */
    char normalize[SCALE_TEXT];      /* as scale_parse reads it; "": that of `info` */
};

/* `asked`: a name or a path, as dataset_open has it; `folder`: where it was found, or a file.
 * The file says more than the name. STATUS_CORRUPT names the file. */
MUST_CHECK enum status known_find(const char *asked, const char *folder, struct known *out);
/* The file alone; members that it lacks, or all without it, stay as they are in *out. */
MUST_CHECK enum status known_read(const char *folder, struct known *out);
/* Writes folder/dataset.json; nothing if nothing is known. */
MUST_CHECK enum status known_write(const struct known *known, const char *folder);
/* The same from its text. */
MUST_CHECK enum status known_parse(const char *text, size_t length, struct known *out);

#endif /* DATA_KNOWN_H */
