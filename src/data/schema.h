/* SPDX-License-Identifier: MIT */
/* schema.h - what the columns of a table mean, and how rows become numbers for a model.
 *
 * A schema is found from a table's training rows, belongs to a data set that has a name, or comes as JSON:
 *
 *   { "columns": [ { "name": "age", "center": 50, "scale": 10, "gaps": true, "missing": ["0"] },
 *                  { "name": "cp", "categories": ["1", "2", "3", "4"] },
 *                  { "name": "id", "skip": true }, ... ],
 *     "label": { "column": "num", "classes": [ { "name": "healthy", "values": ["0"] }, ... ] } }
 *
 * Features are, in the order of the columns: of a number z = (x - center) / scale, standardized, 0 where it is
 * missing; with "gaps" besides 1 where it is missing, else 0; with "plain" x as it is. Of a category a 1 at
 * its place among all, else 0; missing: all 0. center and scale are guesses that everybody may know: they keep sums
 * small.
 *
 * Statistics are one flat vector, whose elements are sums over rows, so that those of several tables with one
 * schema can be added up, by whoever may not see them either: how many rows; of each number how many are
 * there, the sum of z, the sum of z squared; of each category how many of each.
 *
 * Threads: a schema that was made is not changed; any thread.
 */
#ifndef DATA_SCHEMA_H
#define DATA_SCHEMA_H

#include <stdbool.h>
#include <stdint.h>

#include "base/json.h"
#include "base/status.h"
#include "base/strbuf.h"

enum {
    SCHEMA_COLUMNS = 1 << 14,
    SCHEMA_CATEGORIES = 1 << 10, /* of a column */
    SCHEMA_CLASSES = 1 << 10,
    SCHEMA_FEATURES = 1 << 17,
    SCHEMA_TEXT = 63 /* bytes of a name or value at most */
};

struct schema;

/* Reads an object as above. Failure: STATUS_CORRUPT. */
MUST_CHECK enum status schema_read(const struct json_value *object, struct schema **out);
MUST_CHECK enum status schema_copy(const struct schema *schema, struct schema **out);
void schema_destroy(struct schema *schema); /* NULL is allowed */
/* Adds it as JSON; reading that gives the same. */
void schema_print(const struct schema *schema, struct strbuf *out);

int schema_columns(const struct schema *schema); /* the label and what is skipped included */
const char *schema_column_name(const struct schema *schema, int column);
int64_t schema_features(const struct schema *schema);
/* What a feature is called: "age", "age missing", "cp=3". Returns `text`. */
const char *schema_feature_name(const struct schema *schema, int64_t feature, char text[160]);
int schema_classes(const struct schema *schema);
const char *const *schema_class_names(const struct schema *schema);

/* A column for people, as statistics have it. */
struct schema_summary {
    const char *kind; /* "number", "category", "skipped", "label" */
    int features;
    double there;           /* rows that have it */
    double mean, deviation; /* of a number; else NaN */
};
void schema_summarize(const struct schema *schema, int column, const double *statistics,
                      struct schema_summary *out);

/* How many elements statistics have. */
int64_t schema_statistics(const struct schema *schema);

#endif /* DATA_SCHEMA_H */
