/* SPDX-License-Identifier: MIT */
/* forecast.h - what every way of distributing a job would cost, and which one is best.
 *
 * A plan has a row for each strategy and split that so many ranks allow, with a prediction
 * (sched/walk.h, sched/cost.h) from nodes' times that were measured here, or guessed where machines
 * are not here. `auto` picks the fastest that can run, fits, and keeps the arithmetic of
 * synchronous training: one that changes results is never picked without being asked for. Among
 * those within a few percent of the fastest, the one that stands first in the table is the
 * simplest. */
#ifndef TRAIN_FORECAST_H
#define TRAIN_FORECAST_H

#include <stdbool.h>

#include "base/strbuf.h"
#include "sched/walk.h"
#include "train/machine.h"
#include "train/train.h"

struct forecast_row {
    char strategy[32], split[48]; /* as flags take them; split "": the strategy's own */
    char pipeline[32];            /* schedule of its stages; "": none */
    struct cost_choice choice;
    int64_t shards;            /* of a step: grids may have others */
    int threads;               /* that share a shard */
    bool factors;              /* gradients go as factors where those are smaller */
    struct cost_estimate cost; /* valid if is_legal */
    double tried;              /* seconds of a step as it was measured here; 0: it was not */
    bool is_rough; /* cost.seconds is by layers: a grid elsewhere, not among the best */
    bool is_legal; /* the model and so many ranks allow it */
    bool runs;     /* this program has it, and the job's other settings go with it */
    bool
        is_exact; /* synchronous: the weights are those of one device (tensor splits: but for rounding) */
    bool fits;     /* into the memory of a rank */
    char why[200]; /* it is not legal, does not run or fit, or is not exact */
};

/* One number of ranks of the curve. */
struct forecast_point {
    int ranks;
    double data_parallel, best; /* samples a second; NaN: none */
    char name[128];             /* of the best */
};

struct forecast {
    char model[SETTINGS_TEXT];
    int64_t batch, shards; /* of a step */
    int ranks, threads;
    struct machine machine;
    bool is_measured;   /* nodes' times are, else guessed by operations and bytes */
    double single;      /* seconds of the same step on one rank; NaN: unknown */
    int n_rows, chosen; /* chosen -1: none can be */
    struct forecast_row *rows;
    char why[400]; /* that one, or why none */
    struct walk_timeline
        timeline;     /* of the chosen one, or of the fastest with stages; may be empty */
    int timeline_row; /* whose it is; -1: nobody's */
    int n_points;     /* of machines that are not here */
    struct forecast_point *points;
};

struct forecast_options {
    const struct machine *machine; /* NULL: this machine */
    bool
        is_elsewhere; /* the machine's ranks are what is planned, each with the job's batch; else settings' ranks */
    int nodes; /* above 0, without machine: so many machines like this one, on a usual network */
    bool guess;     /* measure nothing: the same result on every rank and every day */
    double seconds; /* of measuring; 0 picks */
};

/* Plans for a job of a strategy for which ranks are data-parallel workers, whose strategy is not
 * looked at. */
MUST_CHECK enum status forecast_create(const struct job *job,
                                       const struct forecast_options *options,
                                       struct forecast **out);
void forecast_destroy(struct forecast *plan); /* NULL is allowed */

/* "hybrid dp=2,pp=2 1f1b" */
const char *forecast_name(const struct forecast_row *row, char text[128]);

/* One JSON object. */
void forecast_print_json(const struct forecast *plan, struct strbuf *out);

/* What `auto` picks for such a job: settings that say so, why, and the time of a step. Measures,
 * unless the job's ranks were started by others: these have to come to the same result. */
struct forecast_choice {
    struct settings settings;
    char why[400];
    double seconds;
};
MUST_CHECK enum status forecast_choose(const struct job *job, struct forecast_choice *out);

/* Measures the job's layers and gives those that the pieces of its pipeline begin with if they take
 * as long as each other, as --cut has them. */
MUST_CHECK enum status forecast_cut(const struct job *job, char out[SETTINGS_TEXT]);

/* The same from kernels timed by themselves, as jobs have it that do not say otherwise. "": ranks
 * could not all measure the same, or share layers: then pieces are balanced by operations and
 * bytes. */
MUST_CHECK enum status forecast_balance(const struct job *job, char out[SETTINGS_TEXT]);

/* Refuses a job whose ranks have no room for it, telling what would have. */
MUST_CHECK enum status forecast_check_memory(const struct job *job);

#endif /* TRAIN_FORECAST_H */
