/* SPDX-License-Identifier: MIT */
/* elastic.h - a worker that trains alone and is pulled to a center on servers, which is pulled to it (EASGD,
 * Zhang, Choromanska and LeCun 2015; EAMSGD where the worker's optimizer has momentum). Private to train/.
 *
 * Every T steps, before step t, with x the worker's parameters and c the center as it is when the servers see x:
 *
 *   d = alpha (x - c);   c becomes c + d;   the worker makes step t from x;   then its parameters are less by d
 *
 * The servers work while the step runs. Nobody waits for other workers; what they say is heard at exchanges.
 *
 * Threads: one.
 * Errors:  as ps.h has them.
 */
#ifndef TRAIN_ELASTIC_H
#define TRAIN_ELASTIC_H

#include "exec/exec.h"
#include "pass/strategy.h"
#include "ps/ps.h"
#include "train/interval.h"

struct elastic;

/* Of the client that a worker joins with: ps_config.room. */
size_t elastic_room(const struct exec *exec);

struct elastic_config {
    const struct axes *axes; /* borrowed, as all below */
    struct ps_client *client;
    struct exec *exec; /* private; an ordinary one, which updates by itself */
    int buckets;
    bool is_first; /* worker 0: the center begins with its parameters */
};
/* All workers begin with the same parameters: attaches to the client and begins. `step` is the first. */
MUST_CHECK enum status elastic_create(const struct elastic_config *config, uint64_t step,
                                      struct elastic **out);
void elastic_destroy(struct elastic *elastic); /* NULL is allowed */

/* What a step gave is known, after so many seconds of waiting for it alone. The next exchange tells it. */
void elastic_add(struct elastic *elastic, const struct exec_result *result, double seconds);
/* Is there an exchange before this step? */
bool elastic_is_due(const struct elastic *elastic, uint64_t step);
/* Before a step: begins an exchange if one is due; *out_heard then has what was heard from all workers, and
 * *out_met is true. `says` goes to them. */
MUST_CHECK enum status elastic_before(struct elastic *elastic, uint64_t step, uint32_t says,
                                      bool *out_met, struct ps_heard *out_heard);
/* After it, which took so many seconds: ends the exchange. lr: of the step. */
MUST_CHECK enum status elastic_after(struct elastic *elastic, double seconds, double lr);

/* What was added since the last exchange told of it. */
void elastic_untold(const struct elastic *elastic, int64_t *out_samples, int64_t *out_weight);

/* What the exchanges so far showed. */
struct elastic_seen {
    int64_t interval; /* steps between exchanges */
    bool is_new;      /* the last exchange has changed it */
    double
        distance;   /* mean over all elements of (x - c)^2 at the last exchange; alpha 0: NaN */
    double comm_s;  /* what the last one took of the worker's time */
    double total_s; /* all of them */
};
struct elastic_seen elastic_seen(const struct elastic *elastic);

/* From lend to give_back the executor has the center, and the worker's own parameters are kept. Between steps. */
MUST_CHECK enum status elastic_lend_center(struct elastic *elastic);
void elastic_give_back(struct elastic *elastic);

#endif /* TRAIN_ELASTIC_H */
