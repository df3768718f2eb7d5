/* SPDX-License-Identifier: MIT */
/* samples.h - what a model of language says while it is trained. Private to train/. */
#ifndef TRAIN_SAMPLES_H
#define TRAIN_SAMPLES_H

#include "exec/exec.h"
#include "train/job.h"

/* Is it a model that samples_add has something to say of? */
bool samples_are_made(const struct job *job);
/* Lets the model go on from the beginning of the text held out, or translate its first pairs, and
 * adds a line of kind "sample" to metrics.jsonl (docs/formats.md). Nothing for a model that does
 * neither. On rank 0, on a settled exec, while no rank trains. */
MUST_CHECK enum status samples_add(const struct job *job, const struct exec *exec,
                                   const struct train_hooks *hooks, uint64_t step,
                                   double epoch);

#endif /* TRAIN_SAMPLES_H */
