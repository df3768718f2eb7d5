/* SPDX-License-Identifier: MIT */
/* train.h - a training job from its settings to its results.
 *
 * A job is made from settings: everything that can be wrong is found out here, before a file is
 * touched. Running it starts the ranks, trains, evaluates, saves, and writes the run's folder
 * (docs/formats.md). Call from a process that has started no threads.
 */
#ifndef TRAIN_TRAIN_H
#define TRAIN_TRAIN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/strbuf.h"
#include "data/dataset.h"
#include "exec/demand.h"
#include "graph/graph.h"
#include "kernel/kernel.h"
#include "model/model.h"
#include "pass/strategy.h"
#include "train/quality.h"
#include "train/settings.h"

struct job;
struct program;   /* sched/program.h */
struct transport; /* transport/transport.h */

enum job_use {
    JOB_TRAIN,    /* opens both splits of the data */
    JOB_CONTINUE, /* the same for the run in settings->out, with its vocabularies */
    JOB_GRAPH     /* needs no data: pictures, measurements on made-up samples */
};

/* Validates, opens the data, makes the graphs. model: the user's own, or NULL to look
 * settings->model up. Picks what settings leave open (threads, shards, data, rates). */
MUST_CHECK enum status job_create(const struct settings *settings, const struct model *model,
                                  enum job_use use, struct job **out);
/* The same for JOB_GRAPH, or for JOB_TRAIN if settings name data, with the graph as it is after the
 * pass named `after`; "model" is the graph before the first. NULL: after all. */
MUST_CHECK enum status job_create_after(const struct settings *settings,
                                        const struct model *model, const char *after,
                                        struct job **out);
void job_destroy(struct job *job); /* NULL is allowed */
/* Do ranks hold different layers, or slices of them? Then job_graph is rank 0's, until it is made
 * this one's, after the same pass. */
bool job_has_places(const struct job *job);
/* The step program of a rank, as `tutti train` would run it; the caller owns it. Strategies that
 * measure first (parallax without --tables, --rails auto) are taken as they begin. */
MUST_CHECK enum status job_lower(struct job *job, int64_t rank, struct program **out);
/* The work of its tasks: out[program->n_tasks], for a program of job_lower. */
struct task_work;
MUST_CHECK enum status job_task_work(const struct job *job, const struct program *program,
                                     struct task_work *out);
MUST_CHECK enum status job_be_rank(struct job *job, int64_t rank, const char *after);

const struct settings *job_settings(const struct job *job); /* with everything picked */
const struct model *job_model(const struct job *job);
/* What a rank runs, after the strategy's passes. */
const struct graph *job_graph(const struct job *job);
/* Operations and bytes of that graph, in the job's precision. */
MUST_CHECK enum status job_demand(const struct job *job, struct demand *out);
/* Adds the graph file of the job's model (model/file.h), as its data make it, with the schema of a
 * table. */
MUST_CHECK enum status job_print_model(const struct job *job, struct strbuf *out);
/* The same with statistics to standardize the table by: for who uses a trained model. NULL: none. */
MUST_CHECK enum status job_print_trained(const struct job *job, const float *statistics,
                                         struct strbuf *out);
int64_t job_total_steps(const struct job *job);
/* For a classifier that is to be trained: refuses training samples that are all of one class
 * (STATUS_USAGE), and warns of classes that the test samples have and training lacks. */
MUST_CHECK enum status job_check_classes(const struct job *job);

/* Of a job on a table: what it is standardized by, sums over rows in a flat vector (data/schema.h),
 * so that those of several jobs whose tables have one schema can be added up. How many numbers; 0:
 * it has no table. */
int64_t job_statistics_count(const struct job *job);
/* Those of the training samples numbered by index[0..count), or, with NULL, of all. */
void job_statistics(const struct job *job, const int64_t *index, int64_t count, double *out);
/* Standardizes both splits by these from now on, not by the job's own. Not while others read. */
void job_standardize(struct job *job, const float *statistics);
/* For a job whose statistics are added to others' as floats: warns of columns that lose their
 * deviation so. */
void job_warn_of_sums(const struct job *job);

/* Strategy auto: what was chosen, and why; else "". */
const char *job_chosen(const struct job *job);
/* Processors that this process may use. */
int job_cores(void);

/* How a run tells what it does. */
struct train_hooks {
    bool progress;       /* live progress on standard error */
    bool json;           /* every line of metrics.jsonl also on standard output */
    const char *command; /* the command line, for config.json; may be NULL */
    const char *more;    /* further members of config.json, each after a comma; may be NULL */
    bool overwrite;      /* a run in the folder may be replaced */
    bool repeats;        /* to go on with a run that is done is no failure */
    bool keeps_signals;  /* the process ends after the run: signals stay handled as in it */
    /* For tests of faults, with servers: called by a worker with its rank before it asks servers or
     * sends its times. NULL: none. */
    void (*at_meeting)(void *arg, int rank, const char *point);
    void *at_meeting_arg;
};

struct train_result {
    char folder[SETTINGS_TEXT];
    char weights_sha256[65];
    double train_loss, train_accuracy, val_loss, val_accuracy; /* NaN where unknown */
    double val_top5; /* accuracy; NaN also where there are no more than five classes */
    double val_auc, val_calibration_error; /* quality.h */
    double perplexity, tokens_per_s;       /* NaN where the model does not predict tokens */
    double bleu;                /* of an evaluation of one that translates; else NaN */
    const char *bleu_signature; /* how it was computed */
    double seconds, samples_per_s,
        first_step_s; /* first_step_s: from the call to step 1 done */
    int64_t steps, peak_bytes;
    int64_t training_bytes, predicted_bytes; /* of the rank that has most: because it trains */
    char tables[512]; /* parallax: the way of each table, for people; else "" */
};

/* A cell of a confusion matrix: samples of class `truth` for which the answer is `answer`. */
struct train_cell {
    int32_t truth, answer;
    int64_t samples;
};

/* What an evaluation counted, class by class. With many classes most pairs of classes do not occur,
 * so that the confusion matrix has its cells that are not zero, by truth, then by answer. */
struct train_classes {
    int count;                       /* 0: the model has none */
    const struct dataset_info *data; /* has their names; borrowed from the job */
    size_t n_cells;
    struct train_cell *cells;
    int64_t *samples, *right; /* of each class */
    struct quality quality;   /* of the probabilities */
};
void train_classes_release(struct train_classes *classes);
/* The class's name, or its number; `text` may be used for it. */
const char *train_class_name(const struct train_classes *classes, int class, char text[32]);
/* Samples of the class, and the share of them that is right: NaN if there are none. */
int64_t train_class_samples(const struct train_classes *classes, int class);
double train_class_accuracy(const struct train_classes *classes, int class);
/* The wrong answer that samples of the class have most often, and how many; -1 if there is none. */
int train_class_taken_for(const struct train_classes *classes, int class, int64_t *out_samples);
/* Adds members class_names, class_samples, class_accuracy, confusion or, of many classes,
 * confusion_cells, and calibration (docs/formats.md), each after ", " or `between`; nothing if
 * there are no classes. */
MUST_CHECK enum status train_print_classes(const struct train_classes *classes,
                                           const char *between, struct strbuf *out);

/* Trains. STATUS_STOPPED if the user stopped it by SIGINT, STATUS_PREEMPTED if SIGTERM or SIGHUP
 * did: everything is saved then. */
MUST_CHECK enum status train_run(struct job *job, const struct train_hooks *hooks,
                                 struct train_result *out);

/* Reads the settings of the run in `folder` (config.json). */
MUST_CHECK enum status train_read_settings(const char *folder, struct settings *out);
/* The same with what going on leaves out: how settings said that a step has shards. */
MUST_CHECK enum status train_read_beginning(const char *folder, struct settings *out);
/* Is the run in `folder` done, as its config.json has it? Then *out is what summary.json says of
 * it, and the report is written if it is missing. */
MUST_CHECK enum status train_is_over(const char *folder, bool *out_is_over,
                                     struct train_result *out);
/* Continues the run in settings->out from its newest good checkpoint, or from the beginning if
 * there is none yet, with a job made from what train_read_settings gave (and flags changed). Of a
 * run whose steps are all done it does what is left: evaluates, writes summary and report;
 * STATUS_USAGE if nothing is. Other samples, or another order of them, are refused with
 * STATUS_USAGE. */
MUST_CHECK enum status train_resume(struct job *job, const struct train_hooks *hooks,
                                    struct train_result *out);

struct train_evaluation {
    enum dataset_split split;
    bool validation; /* of text, instead of the test split: what training evaluates on */
    const char
        *weights; /* a safetensors file; NULL: the newest good checkpoint of settings->out */
    const char *outputs; /* file for what the model gives for every sample, or NULL: none */
    int64_t beam;        /* hypotheses side by side, of a model that translates; 1 is greedy */
};
/* Loads weights and evaluates them. out: val_loss, val_accuracy, val_top5, perplexity,
 * tokens_per_s, bleu, weights_sha256, seconds, and of a checkpoint steps. */
MUST_CHECK enum status train_evaluate(struct job *job,
                                      const struct train_evaluation *evaluation,
                                      struct train_result *out, struct train_classes *classes);

/* Measuring ---------------------------------------------------------------------------- */

enum { BENCH_RANKS = 256 };

struct bench_result {
    double samples_per_s, step_ms, step_ms_p10, step_ms_p90; /* medians over windows */
    int64_t peak_bytes;                                      /* of the largest rank */
    double flops; /* of a step, forward, backward and update */
    double comm_share, wait_share;
    double hidden_share;   /* of all ranks' communication; NaN if there is none */
    double bytes_per_step; /* that a rank sends or reads from others, on average */
    double bytes_optimum;  /* that an all_reduce of all parameters sends; NaN: one rank */
    /* Of each rank: the share of its time that it waits, and that the others wait for it. */
    double rank_wait[BENCH_RANKS], rank_made_wait[BENCH_RANKS];
};
/* Steps on one synthetic batch already in place, in windows of about 0.25 s. With settings.trace
 * writes trace.json to settings.out, or to the current folder. */
MUST_CHECK enum status train_bench(struct job *job, int windows, struct bench_result *out);

/* What a step of training does with one bucket of gradients, and how long it takes
 * (bench_bucket.c). An op is some tasks of the step program, whatever they do besides:
 * reduce_scatter, update, all_gather; all_reduce is all of these. */
enum { BENCH_BUCKET_OPS = 4 };
extern const char *const bench_bucket_ops[]; /* ended by NULL */
struct bench_op {
    char tasks[160];   /* "messages: reduce_scatter+update, all_gather"; "": no task does it */
    double us, us_p90; /* from the last rank's arrival to the last rank's end; over steps */
    int steps;         /* that were timed */
    double sent;       /* bytes that a rank sends, or reads from others */
    double optimum;    /* the least of that */
};
struct bench_bucket {
    const struct settings *settings; /* threads 0: one a rank */
    size_t bytes;                    /* of the bucket's parameters, in f32 */
    double seconds;                  /* that steps are timed for; 0: the usual */
    /* For tests, as exec.h has it. */
    void (*at_meeting)(void *arg, const char *point);
    void *at_meeting_arg;
};
/* Refuses settings that such a step is not made with; to be called before ranks are started.
 * Tells if each rank is to be a machine of its own. */
MUST_CHECK enum status train_check_bucket(const struct settings *settings, bool *out_flat);
/* Collective: runs steps of a model that is one bucket. All ranks get the same. */
MUST_CHECK enum status train_time_bucket(const struct bench_bucket *bench,
                                         struct transport *transport,
                                         struct bench_op out[BENCH_BUCKET_OPS]);

/* Times every kernel that can run a problem, on the device and in the precision that settings say,
 * and calls `tell` for each in the table's order. */
MUST_CHECK enum status train_time_kernels(const char *problem, const struct settings *settings,
                                          void (*tell)(void *arg, const struct kernel *row,
                                                       double seconds),
                                          void *arg);
/* Where a user has the table of kernels of a device. */
const char *train_table_path(const char *home, const char *device, char out[SETTINGS_TEXT]);
/* Measures every kernel that can run each of the job's problems and writes the fastest to `path`,
 * of a device those that are faster than the first; calls `tell` with a line a problem, a JSON
 * object if asked for. */
MUST_CHECK enum status train_tune(struct job *job, const char *path, bool json,
                                  void (*tell)(void *arg, const char *line), void *arg);

#endif /* TRAIN_TRAIN_H */
