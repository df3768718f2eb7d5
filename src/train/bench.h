/* SPDX-License-Identifier: MIT */
/* bench.h - a measurement of training steps. Private to train/bench*.c.
 *
 * Ranks that make steps together are measured by bench.c, workers with parameters of their own by
 * bench_workers.c. Both run steps on one made-up batch in windows, of which rank 0 keeps the times.
 */
#ifndef TRAIN_BENCH_H
#define TRAIN_BENCH_H

#include "base/trace.h"
#include "train/job.h"
#include "train/train.h"
#include "transport/transport.h"

enum { BENCH_WINDOWS = 1024 };

/* Memory that the launching process shares with rank 0. */
struct bench {
    struct job *job;
    int windows;
    double times[BENCH_WINDOWS]; /* seconds a step, of rank 0 */
    double samples_per_s;        /* of workers that train alone; 0: all do the same steps */
    double comm_share, wait_share;
    double hidden_share, bytes, bytes_optimum;
    double rank_wait[BENCH_RANKS], rank_made_wait[BENCH_RANKS];
    int64_t peak_bytes;
};

/* Rows of a made-up step that a rank's executor has. */
struct exec;
MUST_CHECK enum status bench_make_batch(const struct job *job, const struct exec *exec,
                                        struct batch *out);
/* Steps of a window, about a quarter of a second, where a step takes so long. */
int64_t bench_steps_for(double step_seconds);
/* The median of so many times, which are sorted. */
double bench_median(double *times, int count);
/* Bytes that a rank sends at least in a step, if every parameter's gradient is summed: each node,
 * or each rank of one node, sends all parts but its own to their owners, and its own to all. */
double bench_optimal_bytes(const struct job *job, int nodes);
/* Collective: trace.json in settings.out, or in the current folder; NULL: no trace. */
MUST_CHECK enum status bench_write_trace(const struct job *job, struct trace *trace,
                                         struct transport *transport);

/* bench_workers.c: the body of a rank of a job whose workers have parameters of their own, or of
 * one of its servers. */
MUST_CHECK enum status bench_worker_body(struct transport *transport, struct bench *bench);

#endif /* TRAIN_BENCH_H */
