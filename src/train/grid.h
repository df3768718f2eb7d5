/* SPDX-License-Identifier: MIT */
/* grid.h - a job whose ranks hold different parameters: groups of ranks, and the model as a whole. Private to train/.
 *
 * Ranks stand in a grid (pass/strategy.h). Those that differ in dp alone hold the same and have one executor together, of
 * their group; a rank's executor knows no others. What is about the whole model goes through here: rank 0 asks
 * for one tensor after the other, in the model's order, and who has it sends it. So a checkpoint has whole
 * tensors under their names, whatever the grid is, and no rank needs room for more than one.
 *
 * Loading needs nothing of this: every process has opened the file, and reads what it holds.
 */
#ifndef TRAIN_GRID_H
#define TRAIN_GRID_H

#include "exec/exec.h"
#include "train/job.h"
#include "train/watch.h"

struct grid;

/* Collective, of all ranks: makes the groups and, for this rank's place, the graphs of the job. Gives NULL where all ranks hold the
 * same. */
MUST_CHECK enum status grid_create(struct job *job, struct transport *transport,
                                   struct grid **out);
void grid_destroy(struct grid *grid); /* NULL is allowed */
/* Of a rank that has no place in it, while the others make theirs: a parameter server. */
MUST_CHECK enum status grid_stand_by(const struct job *job, struct transport *transport);

/* Does this rank have a part of the copy of the model that is told about, evaluated and saved? All have, unless copies meet at
 * servers: there it is the first, and its ranks alone take part in fetching. */
bool grid_leads(const struct grid *grid);

/* Of this rank's group: what its executor is made for. NULL grid: leaves *config alone. */
/* The same of a rank that asks nobody: a grid for grid_configure alone. */
MUST_CHECK enum status grid_pretend(struct job *job, struct transport *transport,
                                    struct grid **out);
/* The ranks that have the same slices as this one, it among them. */
struct transport *grid_same(const struct grid *grid);
void grid_configure(const struct grid *grid, struct exec_config *config);
struct axes_place grid_place(const struct grid *grid);
/* Collective, of all ranks: watch_collect, with the job's numbers of ranks. NULL grid: just that. */
MUST_CHECK enum status grid_collect_times(const struct grid *grid, struct watch *watch,
                                          const struct exec *exec, double load);

/* The model: parameters and running averages in its order, and state vectors of each. */
int grid_param_count(const struct grid *grid);
const struct value *grid_param(const struct grid *grid, int i);
int grid_state_count(const struct grid *grid, int i);

/* Rank 0, on a settled executor: a whole tensor (state -1: the parameter) in plain order. */
MUST_CHECK enum status grid_fetch(struct grid *grid, struct exec *exec, int i, int state,
                                  float *out);
/* The others meanwhile: gives what rank 0 fetches until it has ended. */
MUST_CHECK enum status grid_serve(struct grid *grid, struct exec *exec);
/* Rank 0: ends it. */
MUST_CHECK enum status grid_end(struct grid *grid, struct exec *exec);

/* Collective: rank 0 learns what the stages of its pipeline did in the last step; it prints that, with what the schedule
 * would have been with the times of its pieces, as a member of summary.json. Others print nothing. */
MUST_CHECK enum status grid_print_timeline(const struct grid *grid, const struct exec *exec,
                                           struct strbuf *out);

/* Collective, on a settled executor: SHA-256 of the whole model, on rank 0, as exec_hash has it of one. Ranks that should
 * hold the same are compared. */
MUST_CHECK enum status grid_hash(struct grid *grid, struct exec *exec, char out[65]);

#endif /* TRAIN_GRID_H */
