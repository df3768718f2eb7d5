/* SPDX-License-Identifier: MIT */
/* run.h - a run's folder, read: configuration, metrics, summary. docs/formats.md has the
 * formats.
 *
 * Whatever is absent or unreadable is left out, and said in `notes`: a report of
 * half a run is better than none.
 */
#ifndef REPORT_RUN_H
#define REPORT_RUN_H

#include <stddef.h>
#include <time.h>

#include "base/json.h"
#include "base/status.h"
#include "base/strbuf.h"

/* What a line of metrics.jsonl may hold; the key is the name in small letters. */
enum run_column {
    RUN_STEP,
    RUN_EPOCH,
    RUN_SAMPLES,
    RUN_SECONDS,
    RUN_TRAIN_LOSS,
    RUN_TRAIN_ACCURACY,
    RUN_VAL_LOSS,
    RUN_VAL_ACCURACY,
    RUN_VAL_TOP5_ACCURACY,
    RUN_VAL_AUC,
    RUN_VAL_CALIBRATION_ERROR,
    RUN_LR,
    RUN_SAMPLES_PER_S,
    RUN_COMM_SHARE,
    RUN_WAIT_SHARE,
    RUN_LOAD_SHARE,
    RUN_EPOCH_SECONDS,
    RUN_EVAL_SECONDS,
    RUN_TOKENS_PER_S,
    RUN_PERPLEXITY,
    RUN_BLEU,
    RUN_HIDDEN_SHARE,
    RUN_COLUMNS,
};

/* The lines of one kind. column[c][i] is NaN where line i has no such number; steps ascend. */
struct run_table {
    size_t count, capacity;
    double *column[RUN_COLUMNS];
};

/* The lines of kind "sample": what the model said at a moment of its training. Steps ascend. */
struct run_samples {
    size_t count, capacity;
    struct json **line;
};

struct run {
    struct json *config, *summary; /* NULL: absent or unreadable */
    struct run_table train, eval;
    struct run_samples samples;
    char *graph; /* text of graph.svg from its <svg> on, well-formed; NULL: none */
    char
        *reconstructions; /* reconstructions.png, as far as its header is a PNG's; NULL: none */
    size_t reconstructions_bytes;
    time_t started, ended; /* when the first and the last of its files were written */
    struct strbuf notes;   /* what could not be read, a line each */
};

/* STATUS_NOT_FOUND if the folder is absent or holds none of a run's files. */
MUST_CHECK enum status run_read(const char *folder, struct run **out);
void run_destroy(struct run *run); /* NULL is allowed */

/* Last value of a column that is a number; NaN if there is none. */
double run_last(const struct run_table *table, enum run_column column);
/* Whether any value of a column is a number. */
bool run_has(const struct run_table *table, enum run_column column);

/* Members of the summary or, if it has none of that name, of the configuration. */
double run_number(const struct run *run, const char *key, double fallback);
const char *run_text(const struct run *run, const char *key, const char *fallback);
/* A member of the configuration. */
const char *run_configured(const struct run *run, const char *key, const char *fallback);

#endif /* REPORT_RUN_H */
