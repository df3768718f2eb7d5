/* SPDX-License-Identifier: MIT */
/* same.h - have all ranks the same job? For ranks that mpirun started, each with files of its own.
 */
#ifndef TRAIN_SAME_H
#define TRAIN_SAME_H

#include "train/job.h"
#include "transport/transport.h"

/* Collective. STATUS_MISMATCH on every rank, naming the first that differs from rank 0 and in
 * what: program, kernels, model, data, the step it begins with, or a flag. Flags that may differ
 * (where files are, threads) are left out. */
MUST_CHECK enum status same_check(const struct job *job, uint64_t first_step,
                                  struct transport *transport);

#endif /* TRAIN_SAME_H */
