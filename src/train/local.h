/* SPDX-License-Identifier: MIT */
/* local.h - workers that train alone and take averages now and then (local SGD, gossip). Private to train/.
 *
 * A worker has an executor of its own and calls local_step after each of its steps. Every so many steps all
 * workers meet: parameters and running averages become the mean of all workers' (by their shares of the
 * batch), added along the tree over ranks, so that all have the same bits. The optimizer's state stays each
 * worker's own. With an outer optimizer (DiLoCo, Douillard et al. 2023) the way from the last meeting's
 * parameters to the mean is taken for a gradient: Nesterov's momentum as PyTorch's SGD has it.
 *
 * With gossip a worker averages with its neighbors after every step (local_mix), and parameters
 * differ among workers. A meeting, every LOCAL_GOSSIP_STEPS steps, has flags and times alone.
 *
 * What depends on time or signals is said at a meeting and heard by all.
 *
 * Threads: one. Collective calls are made by all workers after the same step.
 */
#ifndef TRAIN_LOCAL_H
#define TRAIN_LOCAL_H

#include <stdbool.h>

#include "exec/exec.h"
#include "pass/strategy.h"
#include "train/folder.h"
#include "train/interval.h"

struct local;

/* Steps between meetings of workers that gossip. */
enum { LOCAL_GOSSIP_STEPS = 10 };

struct local_config {
    const struct axes *axes;         /* borrowed, as comm and exec are */
    struct comm *comm;               /* of all workers */
    struct exec *exec;               /* private; its parameters are the same on all */
    int64_t shards;                  /* of the job */
    double outer_lr, outer_momentum; /* 1 and 0: the mean itself */
};

/* Collective. */
MUST_CHECK enum status local_create(const struct local_config *config, struct local **out);
void local_destroy(struct local *local); /* NULL is allowed */

/* A step was done, in so many seconds: `number` steps are now. Is it time to meet? The same on all workers. */
bool local_step(struct local *local, uint64_t number, double seconds);
/* What a step gave is known, after so many seconds of waiting for it alone. Before the meeting that follows the step. */
void local_add(struct local *local, const struct exec_result *result, double seconds);

/* Collective among neighbors: takes the average that the graph asks for. After every step of gossip. */
MUST_CHECK enum status local_mix(struct local *local);

/* What a meeting showed, the same on all workers. */
struct local_met {
    uint32_t heard;  /* bits that workers said */
    double variance; /* of parameters among workers before, mean over all elements; gossip: 0 */
    double comm_s;   /* seconds of the sum, by the worker that waited least */
    double step_s;   /* of a step, mean of all workers */
    int64_t interval; /* steps until the next */
    bool is_new;      /* the interval has changed */
};
/* Collective: all workers go on from the same parameters. lr: of the last step. */
MUST_CHECK enum status local_meet(struct local *local, uint64_t number, double lr,
                                  uint32_t says, struct local_met *out);

/* Collective: from lend to give_back the executor has the mean of all workers' parameters, and the worker's own
 * are kept. Two calls that change nothing; lending twice is lending once. */
MUST_CHECK enum status local_lend_mean(struct local *local);
void local_give_back(struct local *local);
/* In between: the worker's own, a vector like exec_vector's. */
const float *local_own(const struct local *local);
/* Collective, in between: the variance of parameters among workers, mean over all elements. */
MUST_CHECK enum status local_variance(const struct local *local, double *out);

/* Collective: sums of all workers; seconds stay this one's. */
MUST_CHECK enum status local_sum(const struct local *local, struct tally *tally);

/* Time so far: communication and waiting at meetings, and for whom, as exec_times and exec_waited_for
 * tell it of an executor; bytes. */
struct local_times {
    double comm, wait, bytes;
    const double *waited_for; /* seconds, by rank */
};
struct local_times local_times(const struct local *local);

/* For checkpoints, which are made after a meeting: the outer optimizer's momentum, laid out as exec_vector is, or
 * NULL; and what the next interval depends on, as members of a JSON object: `, "workers": 4, ...`. */
float *local_momentum(const struct local *local);
void local_print(const struct local *local, struct strbuf *out);
/* Reads the same from an object that may have them. */
MUST_CHECK enum status local_read(struct local *local, const char *text);
const struct interval *local_interval(const struct local *local);
/* Workers go on after so many steps with the parameters that are there now. */
void local_resume(struct local *local, uint64_t number);

#endif /* TRAIN_LOCAL_H */
