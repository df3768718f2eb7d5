/* SPDX-License-Identifier: MIT */
/* forecast_measure.h - a job's work as this machine does it. Private to train/. */
#ifndef TRAIN_FORECAST_MEASURE_H
#define TRAIN_FORECAST_MEASURE_H

#include "pass/cost.h"
#include "train/job.h"

struct measured {
    double step, sums, made, rest; /* as struct profile has them */
    double shard; /* seconds that a lane takes for one more shard; 0: not known */
    int lanes, threads;
    double arena;
    double *nodes; /* seconds of each node of the graph, in running order */
};

/* lanes 0: seconds of each kernel by itself instead (profile_kernels). open above 1: those of nodes alone, with so many shards
 * under way on each lane (profile_open).
 * Else runs shards of `rows` samples on lanes side by side, in a process of its own, so that nothing of it stays in
 * this one. Free with measured_free. */
MUST_CHECK enum status measured_make(const struct job *job, const struct graph *graph,
                                     int64_t rows, int lanes, int threads, int64_t open,
                                     double seconds, struct measured **out);
void measured_free(struct measured *measured, const struct graph *graph);

#endif /* TRAIN_FORECAST_MEASURE_H */
