/* SPDX-License-Identifier: MIT */
/* compare.h - runs side by side: accuracy, loss, time, and whether what differs is more than noise.
 *
 * Runs of one model on one data set are a *section*; those of a section that were made with the same
 * settings but for the seed are a *group*, or those that the user gave one name. A section's first group is what its others
 * are measured against. A verdict needs noise: two seeds at least on both sides (of times: two epochs).
 */
#ifndef REPORT_COMPARE_H
#define REPORT_COMPARE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/strbuf.h"
#include "report/number.h"
#include "report/run.h"
#include "report/welch.h"

enum compare_metric {
    COMPARE_VAL_ACCURACY,
    COMPARE_VAL_LOSS,
    COMPARE_TRAIN_ACCURACY,
    COMPARE_TRAIN_LOSS,
    COMPARE_EPOCH_SECONDS,
    COMPARE_SAMPLES_PER_S,
    COMPARE_PEAK_BYTES,
    COMPARE_METRICS,
};

enum compare_verdict { COMPARE_UNKNOWN, COMPARE_WORSE, COMPARE_SAME, COMPARE_BETTER };
extern const char *const compare_verdict_names[]; /* "unknown", "worse", ... */

struct compare_row {
    const char *key, *name;
    bool more_is_better;
    /* A difference below this share of the baseline is not worth a word, however certain it is. */
    double least;
    /* As people read it; `deviation`: of such a value. */
    void (*print)(char out[NUMBER_TEXT], double value);
};
extern const struct compare_row compare_rows[COMPARE_METRICS];

struct compare_figure {
    struct moments moments;
    enum compare_verdict verdict; /* against the baseline; unknown for the baseline itself */
    double p;                     /* by Welch's test; NaN: none */
};

struct compare_group {
    char label[400];
    size_t count;            /* runs */
    const struct run **runs; /* those that failed last */
    size_t n_failed;
    /* The runs that figures and curves are of, the first ones: all but those that failed or, if all failed, all. */
    size_t n_used;
    struct compare_figure figures[COMPARE_METRICS];
    double speedup;    /* of the baseline's time of an epoch over this one's; NaN */
    bool same_weights; /* for each of its seeds the baseline has a run with the same weights */
    size_t
        rank; /* among the groups of its section, 1 is the best; 0: it failed, or has no such figure */
    double
        p_best; /* of the difference to the best, by Welch's test; NaN: unknown, or the best itself */
};

struct compare_section {
    const char *model, *data;
    size_t count;
    struct compare_group *groups;  /* the first is the baseline */
    enum compare_metric ranked_by; /* the first that a group has; COMPARE_METRICS: none */
};
/* The group of a rank from 1 on; NULL: there are not so many. */
const struct compare_group *compare_ranked(const struct compare_section *section, size_t rank);
/* Is the difference to the best group of the section within the noise? False where that is unknown. */
bool compare_is_tied(const struct compare_group *group);

struct compare {
    size_t n_runs, n_sections;
    struct run **runs;
    struct compare_section *sections;
    struct strbuf notes; /* about runs that are unfinished or lack something, a line each */
};

/* Each word is a run's folder, or NAME=FOLDER: runs of one name are one group of their section. Fails if a
 * folder is no run's. */
MUST_CHECK enum status compare_read(const char *const *words, size_t count,
                                    struct compare **out);
void compare_destroy(struct compare *compare); /* NULL is allowed */

/* "85.47% ± 0.19%", or "85.47%" of one run. */
void compare_print(char out[2 * NUMBER_TEXT], enum compare_metric metric,
                   const struct moments *moments);

/* Adds one object a group, a line each. */
void compare_add_json(struct strbuf *out, const struct compare *compare);
/* Writes the page, replaced as a whole. */
MUST_CHECK enum status compare_write_page(const struct compare *compare, const char *path);

#endif /* REPORT_COMPARE_H */
