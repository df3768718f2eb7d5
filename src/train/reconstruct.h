/* SPDX-License-Identifier: MIT */
/* reconstruct.h - a picture of what a model makes of some samples. Private to train/. */
#ifndef TRAIN_RECONSTRUCT_H
#define TRAIN_RECONSTRUCT_H

#include "exec/exec.h"
#include "train/job.h"

/* Is it a model whose output can be seen as a sample? */
bool reconstructions_are_made(const struct job *job);
/* Writes reconstructions.png into the run's folder if the model has no classes and gives what it was
 * given: samples of the test split above, reconstructions below. On one rank, as exec_predict. */
MUST_CHECK enum status write_reconstructions(const struct job *job, struct exec *exec);

#endif /* TRAIN_RECONSTRUCT_H */
