/* SPDX-License-Identifier: MIT */
/* regime_served.h - what regime_served.c and regime_elastic.c share: a worker of parameter servers.
 * Private to these.
 *
 * Functions without a contract here are slots of the table (regime.h).
 */
#ifndef TRAIN_REGIME_SERVED_H
#define TRAIN_REGIME_SERVED_H

#include "train/regime.h"
#include "train/served.h"

/* rank->own. On a server only the group is used. */
struct worker {
    struct served *served; /* NULL before create and after leave */
    struct private_comm comm;
    uint32_t tag; /* of messages to worker 0 at the end */
    struct transport
        *group; /* the workers, or the servers, if they share evaluations; else NULL */
    struct comm *evaluators;     /* of these workers */
    struct served_times at_line; /* at the last line of metrics */
    struct exchange *exchange;   /* of regime_elastic.c; else NULL */
    double spread;               /* steps between the fastest and the slowest worker */
};

enum status worker_join(struct rank *rank);
/* The slot `describe` of both, but for what servers get. */
void worker_describe(const struct job *job, int rank, struct exec_config *config);
/* Makes the client of the servers, the grid, and the private executor, which pushes its gradients
 * or updates by itself. */
MUST_CHECK enum status worker_create(struct rank *rank, bool pushes);
void worker_leave(struct rank *rank);
void worker_destroy(struct rank *rank);

/* Runs the step; flags go to the ranks of a grid that share this copy of the model. */
MUST_CHECK enum status worker_step(struct rank *rank, const struct batch *batch,
                                   struct exec_result *out);
/* What was heard of all workers replaces *result. wish: this rank's flags. */
void worker_hear(struct rank *rank, const struct served_heard *heard, uint32_t wish,
                 struct exec_result *result);
/* At the end: waits for all workers, and counts what they trained and rank 0 has not heard of. */
MUST_CHECK enum status worker_meet(struct rank *rank);

void worker_add_metrics(struct rank *rank, struct metrics *m);
void worker_print_summary(const struct rank *rank, struct strbuf *out);
enum status worker_gather_times(struct rank *rank, struct rank_times *times,
                                struct rank_times *all);
enum status worker_hash(struct rank *rank, char out[65]);

#endif /* TRAIN_REGIME_SERVED_H */
