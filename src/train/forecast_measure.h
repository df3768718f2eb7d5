/* SPDX-License-Identifier: MIT */
/* forecast_measure.h - a job's work as this machine does it. Private to train/. */
#ifndef TRAIN_FORECAST_MEASURE_H
#define TRAIN_FORECAST_MEASURE_H

#include "sched/cost.h"
#include "train/job.h"

struct measured {
    double step, sums, made, rest; /* as struct profile has them */
    double shard; /* seconds that a lane takes for one more shard; 0: not known */
    int lanes, threads;
    double arena;
    double *nodes; /* seconds of each node of the graph, in running order */
};

/* What is measured. */
struct measure_config {
    int64_t rows; /* samples of a shard */
    int lanes,
        threads; /* lanes 0: seconds of each kernel by itself instead (profile_kernels) */
    int copies;  /* programs side by side that share no memory; 0: one */
    int64_t
        open; /* above 1: nodes alone, with so many shards under way on each lane (profile_open) */
    double seconds; /* how long, about */
};

/* Runs a shard on each lane, side by side, in processes of their own, so that nothing of it stays in this one. Of several copies
 * the first one's times. Free with measured_free. */
MUST_CHECK enum status measured_make(const struct job *job, const struct graph *graph,
                                     struct measure_config config, struct measured **out);
void measured_free(struct measured *measured, const struct graph *graph);

#endif /* TRAIN_FORECAST_MEASURE_H */
