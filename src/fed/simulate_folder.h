/* SPDX-License-Identifier: MIT */
/* simulate_folder.h - the run's folder of a simulation. Private to fed/simulate*.c. */
#ifndef FED_SIMULATE_FOLDER_H
#define FED_SIMULATE_FOLDER_H

#include "fed/local.h"
#include "fed/partition.h"
#include "fed/simulate.h"
#include "fed/store.h"

struct simulate_folder;

/* Makes the folder; refuses one that holds a run as train does. */
MUST_CHECK enum status simulate_folder_create(const struct fed_simulation *config,
                                              const struct fed_job *job,
                                              const struct fed_parts *parts,
                                              struct simulate_folder **out);
void simulate_folder_destroy(struct simulate_folder *folder); /* NULL is allowed */
/* Writes what rounds there are since the last call. */
MUST_CHECK enum status simulate_folder_tell(struct simulate_folder *folder,
                                            struct fed_store store);
/* The round that reached the accuracy at which it ends; -1: none. */
int64_t simulate_folder_reached(const struct simulate_folder *folder);
/* Checkpoint, summary and report. */
MUST_CHECK enum status simulate_folder_end(struct simulate_folder *folder,
                                           struct fed_local *const *locals, int n_locals,
                                           const float *parameters, struct fed_simulated *out);
/* A summary that says why there is none. */
void simulate_folder_fail(struct simulate_folder *folder, const char *why);

#endif /* FED_SIMULATE_FOLDER_H */
