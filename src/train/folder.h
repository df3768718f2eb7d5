/* SPDX-License-Identifier: MIT */
/* folder.h - writing a run's folder (docs/formats.md). Private to train/. Rank 0 alone writes. */
#ifndef TRAIN_FOLDER_H
#define TRAIN_FOLDER_H

#include <stdint.h>

#include "base/sha256.h"
#include "train/job.h"

/* Means over the steps since the last reset, weighted by the labels that count. */
struct tally {
    double loss, correct, seconds;
    int64_t samples, weight; /* weight: labels that count, one a sample or those of tokens */
};

struct rank_times {
    double compute, comm, wait, load, evaluate, total;
    double bubble;    /* part of wait: for other stages of a pipeline */
    double wire;      /* of transfers under way to and from other machines; not of a lane */
    double hidden;    /* part of comm and wire */
    double made_wait; /* what other ranks waited for this one, added up */
    double bytes;     /* moved between this rank and others */
    int64_t peak_bytes, training_bytes, predicted_bytes; /* memory.h */
};

struct metrics {      /* one line; NaN members are left out */
    const char *kind; /* "train" or "eval" */
    uint64_t step;
    double epoch;
    int64_t samples;
    double train_loss, train_accuracy, val_loss, val_accuracy, val_top5, val_auc,
        val_calibration_error, lr, seconds, epoch_seconds, eval_seconds, samples_per_s,
        comm_share, wait_share, load_share;
    double bubble_share; /* part of wait_share: for other stages of a pipeline */
    double hidden_share, bytes_sent, slowest_rank, slowest_share; /* of all ranks */
    double wire_share; /* of several machines: time with transfers under way, of rank 0 */
    double perplexity, tokens_per_s;      /* of models that predict tokens */
    double sync_interval, param_variance; /* of workers that average now and then */
    double loss_scale, skipped_steps;     /* in f16: of the next step; of all so far */
    double clock_spread; /* with servers: steps between the fastest and the slowest worker */
};

/* Samples of the test split above what a model without classes makes of them. */
#define FOLDER_RECONSTRUCTIONS "reconstructions.png"

/* What every thread did when (trace_file.h). */
#define FOLDER_TRACE "trace.json"

/* A model that is not of the zoo, as a graph file; and the C file that it was made from. */
#define FOLDER_MODEL "model.json"
#define FOLDER_SOURCE "model.c"

/* The run's vocabularies (data/vocab.h), by which others understand its numbers. */
#define FOLDER_VOCABULARY "vocabulary.txt"
#define FOLDER_TABLE "table.json"
/* The names of a classifier's classes, one a line, in the order of its answers. */
#define FOLDER_CLASSES "classes.txt"

/* Makes the folder of a new run with config.json and graph.svg; refuses one that holds a run, or a file of a name that runs
 * write, unless it may be overwritten, and one that another process has. settings.out "" picks runs/MODEL-STRATEGY-TIME.
 * *out_lock is this process's hold on it, also after a failure if it is not negative, until folder_unlock. */
MUST_CHECK enum status folder_create(struct job *job, const struct train_hooks *hooks,
                                     int *out_lock);
/* The same hold on the folder of a run that goes on, before its checkpoint is looked at. */
MUST_CHECK enum status folder_take(const struct job *job, int *out_lock);
void folder_unlock(int lock); /* -1 is allowed */
/* The folder of a run that goes on: config.json with the settings as they are now, no summary, and
 * metrics.jsonl cut after the last line whose step is at most `step`. */
MUST_CHECK enum status folder_continue(const struct job *job, const struct train_hooks *hooks,
                                       uint64_t step);
/* summary.json of a run that failed. */
MUST_CHECK enum status folder_write_failure(const struct job *job, const char *text);
/* A line of metrics.jsonl, its end included. */
MUST_CHECK enum status folder_add_line(const struct job *job, const struct train_hooks *hooks,
                                       const struct strbuf *line);
MUST_CHECK enum status folder_add_metrics(const struct job *job,
                                          const struct train_hooks *hooks,
                                          const struct metrics *metrics);
/* more: further members, each after a comma. */
MUST_CHECK enum status folder_write_summary(const struct job *job, const char *status,
                                            const struct train_result *result,
                                            const struct train_classes *classes,
                                            int64_t samples, const struct rank_times *times,
                                            const char *more);
/* What summary.json says of a run's end; *out_done: that it is done, neither stopped nor failed.
 * STATUS_NOT_FOUND: there is none. */
MUST_CHECK enum status folder_read_summary(const char *folder, struct train_result *out,
                                           bool *out_done);
/* Steps of the whole run, as config.json has them; 0: it does not. */
MUST_CHECK enum status folder_read_total(const char *folder, int64_t *out);
/* Is there a report that is no older than summary.json? */
bool folder_has_report(const char *folder);
/* SHA-256 of the file that a model is, as config.json has it; false: it is none, or not there. */
bool folder_model_hash(const char *model, char out[SHA256_HEX]);
/* Is a model of that name a C file, or a graph file? */
bool folder_is_source(const char *model);
bool folder_is_graph_file(const char *model);
/* A picture beside them, replaced as a whole. */
MUST_CHECK enum status folder_write_picture(const struct job *job, const char *name,
                                            const struct strbuf *png);

#endif /* TRAIN_FOLDER_H */
