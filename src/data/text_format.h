/* SPDX-License-Identifier: MIT */
/* text_format.h - how a text format hands its documents over. Private to data/.
 *
 * A text format is a struct format (format.h) whose `text` is one of these.
 */
#ifndef DATA_TEXT_FORMAT_H
#define DATA_TEXT_FORMAT_H

#include "base/status.h"
#include "data/dataset.h"
#include "data/names.h"
#include "data/text.h"
#include "data/text_file.h"

/* One split, open. All zero is closed. */
struct text_data {
    struct text_file file[TEXT_SIDES];  /* the second of pairs alone */
    struct text_span *span[TEXT_SIDES]; /* documents, in the files; plain text is one */
    struct text_span
        rest; /* of plain text that is one file, for training: what is for testing */
    int64_t count;
    int32_t *label; /* of labelled text: the class of each, below `classes` */
    int64_t *line;  /* of labelled text: the number of its line in the file, from 1 */
    int classes;
    struct names names; /* of the classes, where words are their labels */
};

struct text_format {
    enum text_kind kind;
    /* Opens one split of the folder or file `path`. *out is written on success only. */
    enum status (*open)(const char *path, enum text_split split, struct text_data *out);
};

void text_data_release(struct text_data *data);

/* The file of a split in a folder: PREFIX, then train, val or test (or another word for it), then SUFFIX,
 * packed or not. Validation and test stand in for each other. */
bool text_find_split(const char *folder, enum text_split split, const char *prefix,
                     const char *suffix, char found[TEXT_NAME]);
/* The same; STATUS_NOT_FOUND. */
MUST_CHECK enum status text_get_split(const char *folder, enum text_split split,
                                      const char *prefix, const char *suffix,
                                      char found[TEXT_NAME]);
/* Writes the files of all three splits, unpacked, to the folder `target`. */
MUST_CHECK enum status text_copy_splits(const char *folder, const char *prefix,
                                        const char *suffix, const char *target);

extern const struct format format_tsv, format_parallel, format_plain, format_bpe;

/* For tests and fuzzing: the labelled lines of files that lie in memory; `train` says which classes
 * there are. */
MUST_CHECK enum status text_parse_labelled(const struct text_file *train,
                                           const struct text_file *file, struct text_data *out);

#endif /* DATA_TEXT_FORMAT_H */
