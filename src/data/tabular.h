/* SPDX-License-Identifier: MIT */
/* tabular.h - tables as sources of numbers: rows of features, and a class each.
 *
 * A table is a file NAME.csv or NAME.svm (LIBSVM), a folder with train.csv and perhaps test.csv (or .svm), a data set that
 * has a name, or a part of one: heart-disease/cleveland is one of its four hospitals. What its columns mean is a
 * schema (data/schema.h).
 *
 * Where no file is for testing, rows are dealt out to `folds` folds, every class by itself and every file by itself, by a
 * fixed random order; those of one fold are for testing. So the test rows of a data set are those of all its
 * parts together.
 *
 * Before standardization is set, numbers are z of their guessed center and scale.
 *
 * Threads: as source.h.
 */
#ifndef DATA_TABULAR_H
#define DATA_TABULAR_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "data/dataset.h"
#include "data/schema.h"
#include "data/source.h"

enum { TABULAR_FOLDS = 5 };

struct tabular_config {
    const struct schema *schema; /* NULL: the data set's own, else found from the rows */
    /* For a schema that is found: --label, --skip-columns, --categories; NULL or "": nothing is said. */
    const char *label, *skip, *categories;
    int fold, folds; /* folds 0: fold 0 of TABULAR_FOLDS, where there is no file for testing */
};

struct tabular;

MUST_CHECK enum status tabular_open(const char *name, enum dataset_split split,
                                    const struct tabular_config *config, struct tabular **out);
void tabular_close(struct tabular *tabular); /* NULL is allowed */
/* The first `limit` rows only; 0 is all. */
void tabular_limit(struct tabular *tabular, int64_t limit);

/* Is this data set or path a table? Fails as search_find does. */
MUST_CHECK enum status tabular_is(const char *name, bool *out);
/* The schema of a data set that has a name, without its files; STATUS_NOT_FOUND if it has none. */
MUST_CHECK enum status tabular_known_schema(const char *name, struct schema **out);

/* Rows for a loader or an evaluation; borrowed. */
const struct source *tabular_as_source(const struct tabular *tabular);
const struct schema *tabular_schema(const struct tabular *tabular);

/* Sums over the rows numbered by index[0..count), or, with NULL, over all: schema_statistics
 * numbers. */
void tabular_statistics(const struct tabular *tabular, const int64_t *index, int64_t count,
                        double *out);
/* Has numbers standardized by statistics, of these rows or others, for all that is read from now on. Not while
 * others read. */
void tabular_standardize(struct tabular *tabular, const double *statistics);
/* Warns of columns whose numbers lose digits as they are standardized now, one line each. */
void tabular_warn(const struct tabular *tabular);
/* Warns of those whose statistics are of no use once they are floats, as participants of a
 * federation send them. */
void tabular_warn_of_sums(const struct tabular *tabular);

#endif /* DATA_TABULAR_H */
