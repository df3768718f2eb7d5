/* SPDX-License-Identifier: MIT */
/* regime_local.h - what regime_local.c and regime_gossip.c share: a worker that trains alone and
 * averages with others. Private to these.
 *
 * Functions without a contract here are slots of the table (regime.h).
 */
#ifndef TRAIN_REGIME_LOCAL_H
#define TRAIN_REGIME_LOCAL_H

#include "train/local.h"
#include "train/regime.h"

/* rank->own. */
struct local_worker {
    struct local *local;
    struct local_met met; /* the last meeting */
    struct private_comm comm;
    struct exec *together; /* the executor of all ranks, while it is replaced; else NULL */
    struct exec_times times_before; /* of that */
    double *waited_for;             /* of each rank, in seconds: for metrics */
    double *waited_before;          /* with the executor of all ranks */
    float *vector;                  /* rank 0: state of another worker */
    double variance;                /* gossip: of parameters, at the last evaluation */
    bool has_ended;                 /* gossip: the executor has the mean of all workers */
};

void local_describe(const struct job *job, int rank, struct exec_config *config);
enum status local_worker_create(struct rank *rank);
/* The worker goes on with this step. */
void local_worker_resume(struct rank *rank, uint64_t step);
void local_worker_destroy(struct rank *rank);

enum status local_worker_step(struct rank *rank, const struct batch *batch,
                              struct exec_result *out);
enum status local_late_result(struct rank *rank, const struct exec_result *result,
                              double seconds);
enum status local_after_step(struct rank *rank, const struct batch *batch,
                             struct exec_result *result);

double local_rate(const struct rank *rank, const struct tally *recent);
struct exec_times local_worker_times(const struct rank *rank);
enum status local_collect_times(struct rank *rank);
enum status local_worker_sum(const struct rank *rank, struct tally *tally);
void local_print_state(const struct rank *rank, struct strbuf *out);

/* Collective: every other worker's state of the optimizer comes to rank 0's copy. */
MUST_CHECK enum status local_gather_states(struct rank *rank);

#endif /* TRAIN_REGIME_LOCAL_H */
