/* SPDX-License-Identifier: MIT */
/* optim.h - optimizers as graph builders, and learning rates over time.
 *
 * An optimizer is a row of a table: its op, its state and its defaults. It adds one update
 * node a bucket; the numbers that change from step to step (learning rate, bias corrections)
 * are worked out here in double and rounded once, so that they are the same everywhere.
 */
#ifndef OPTIM_OPTIM_H
#define OPTIM_OPTIM_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "graph/graph.h"
#include "kernel/update.h"

struct optimizer {
    const char *name, *summary;
    const struct op *op;
    int n_states;
    const char *state_names[KERNEL_STATES]; /* as in checkpoints: "momentum"; "m", "v" */
    struct attrs defaults;
    double default_lr;
};
extern const struct optimizer *const optim_table[];   /* ended by NULL */
const struct optimizer *optim_find(const char *name); /* NULL if unknown */

enum schedule_kind { SCHEDULE_CONSTANT, SCHEDULE_STEP, SCHEDULE_COSINE };

struct schedule {
    enum schedule_kind kind;
    double lr;       /* the highest */
    double final_lr; /* cosine ends here */
    double gamma;    /* step: factor every `every` steps */
    uint64_t every;
    uint64_t warmup; /* steps of linear rise from start_lr to lr; the first is one up already */
    double start_lr;
    uint64_t total; /* steps of the whole run (cosine) */
};
MUST_CHECK enum status schedule_parse(const char *name, enum schedule_kind *out);
const char *schedule_name(enum schedule_kind kind);
/* Learning rate of step number `step`, from 0. */
double schedule_lr(const struct schedule *schedule, uint64_t step);

struct optim_config {
    const struct optimizer *optimizer;
    struct attrs attrs; /* momentum, decay, ... ; max_norm for clipping */
    struct schedule schedule;
};

/* How many state vectors the update really keeps: SGD without momentum keeps none. */
int optim_states(const struct optim_config *config);
bool optim_has_momentum(const struct optimizer *optimizer); /* as sgd has it; not adam's */
/* Does each parameter have a trust ratio, made of norms (LARS, LAMB)? */
bool optim_adapts(const struct optimizer *optimizer);
/* Must a norm be known before anything is updated: of all gradients, or of each parameter's? */
bool optim_needs_norms(const struct optim_config *config);
/* Adds the update of one bucket: flat parameters, their summed gradients, a state each. `scale` is
 * the factor that clips, or NULL. Returns the new parameters, or NULL (see graph_status). */
struct value *optim_add_update(struct graph *graph, const struct optim_config *config,
                               struct value *params, struct value *gradients,
                               struct value *const *states, struct value *scale, int bucket);
/* This step's numbers, for the kernel; scale is left at 1. */
struct kernel_update_step optim_step(const struct optim_config *config, uint64_t step);

#endif /* OPTIM_OPTIM_H */
