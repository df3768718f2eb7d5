/* SPDX-License-Identifier: MIT */
/* table_format.h - files of tables: which there are, and what is known of some. Private to data/. */
#ifndef DATA_TABLE_FORMAT_H
#define DATA_TABLE_FORMAT_H

#include "data/format.h"

enum { TABLE_FILES = 8 };

/* A table that has a name. */
struct table_files {
    bool is_libsvm;
    const char *files[TABLE_FILES]; /* ended by NULL */
    const char *parts[TABLE_FILES]; /* what one of them is called as NAME/PART; none: NULL */
    const char *test;               /* the file for testing; NULL: folds */
    const char *schema;             /* JSON; NULL: found */
    int features;                   /* LIBSVM: how many there are */
};

/* The table whose files, under the names they are published by, a folder has; NULL if there is
 * none. */
const struct dataset_info *table_format_known(const char *folder, bool is_libsvm);

extern const struct dataset_info table_heart_disease, table_breast_cancer, table_a9a;
extern const struct format format_csv, format_libsvm;

#endif /* DATA_TABLE_FORMAT_H */
