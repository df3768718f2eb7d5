/* SPDX-License-Identifier: MIT */
/* schema_parts.h - the inside of a schema, for who reads tables by it. Private to data/. */
#ifndef DATA_SCHEMA_PARTS_H
#define DATA_SCHEMA_PARTS_H

#include "base/arena.h"
#include "data/cells.h"
#include "data/schema.h"

#define SCHEMA_SCALE_LEAST 1e-20
#define SCHEMA_SCALE_MOST 1e30

enum column_kind { COLUMN_NUMBER, COLUMN_CATEGORY, COLUMN_SKIPPED, COLUMN_LABEL };

struct column {
    const char *name;
    enum column_kind kind;
    double center, scale; /* numbers */
    bool has_gaps;        /* numbers: a feature says where they are missing */
    bool is_plain;        /* numbers: as they are */
    const char **values;  /* categories, sorted by who made them */
    int n_values;
    const char **missing; /* texts that mean that nothing is there, besides the usual ones */
    int n_missing;
};

struct class_value {
    const char *value;
    int class;
};

struct schema {
    struct arena *arena;
    struct column *columns;
    int n_columns, label;
    const char **class_names;
    int n_classes;
    struct class_value *values; /* of the label */
    int n_values;
};

/* What a person may say about a table without schema; lists are names or numbers from 1 of columns, separated by
 * commas. NULL or "": nothing. */
struct schema_hints {
    const char *label;      /* column; the last one */
    const char *skip;       /* columns that are no features */
    const char *categories; /* columns whose numbers are names */
    bool is_plain;          /* numbers as they are: LIBSVM */
};

/* Finds the schema of rows that are here. */
MUST_CHECK enum status schema_find(const char *path, const struct cells *cells,
                                   const struct schema_hints *hints, struct schema **out);

/* The column of `cells` that each of the schema's is: by name where the file has names, else by place. -1
 * for one that is skipped and not there. */
MUST_CHECK enum status schema_match(const struct schema *schema, const char *path,
                                    const struct cells *cells, int *out_columns);
/* What a cell of a number or a category is: the number, or the category's place; NaN where it is missing. */
MUST_CHECK enum status schema_value(const struct schema *schema, int column, const char *path,
                                    int64_t line, const char *cell, double *out);
MUST_CHECK enum status schema_label(const struct schema *schema, const char *path, int64_t line,
                                    const char *cell, int32_t *out);

/* Rows: a number a column, as schema_value gives them; what is skipped and the label are not
 * looked at. Numbers stay doubles until they are standardized: a Unix time has more digits than a
 * float, its distance from the mean has not. */
void schema_add_statistics(const struct schema *schema, const double *row, double *sums);
/* Means and inverse deviations of z, one a column, from statistics. */
void schema_scales(const struct schema *schema, const double *statistics, double *mean,
                   double *factor);
void schema_encode(const struct schema *schema, const double *row, const double *mean,
                   const double *factor, float *features);
/* The first feature of a column of numbers; its mean and factor are those of schema_scales. */
float schema_standardize(const struct column *column, double value, double mean, double factor);

/* How the numbers of a column lie. */
struct schema_spread {
    int64_t count;                   /* of those that are there */
    double mean, deviation, largest; /* the last of absolute values */
    int64_t cut;                     /* those whose z is cut */
    bool is_whole;                   /* all are integers, which doubles have exactly */
};
/* Measures a column of `count` rows. */
void schema_measure(const struct schema *schema, int column, const double *rows, int64_t count,
                    struct schema_spread *out);
/* Does a float keep less than a thousandth of the deviation? */
static inline bool schema_loses_digits(double largest, double deviation)
{
    return deviation > 0 && largest * 0x1p-24 > 1e-3 * deviation;
}

#endif /* DATA_SCHEMA_PARTS_H */
