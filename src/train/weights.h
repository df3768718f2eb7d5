/* SPDX-License-Identifier: MIT */
/* weights.h - an executor's parameters and state to and from checkpoints. Private to train/. */
#ifndef TRAIN_WEIGHTS_H
#define TRAIN_WEIGHTS_H

#include "exec/exec.h"
#include "train/checkpoint.h"

/* A copy of everything in plain order, so that training may go on while it is written. */
struct weights_copy;
MUST_CHECK enum status weights_copy_create(const struct exec *exec, struct weights_copy **out);
/* Takes the copy; call on a settled executor. Allocates nothing. */
void weights_copy_take(struct weights_copy *copy, const struct exec *exec);
MUST_CHECK enum status weights_copy_save(const struct weights_copy *copy, const char *folder,
                                         uint64_t step, const char *state, int keep);
void weights_copy_destroy(struct weights_copy *copy); /* NULL is allowed */

/* Does the file hold every parameter and running average of the graph, with its shape, as f32, and
 * nothing else but what says nothing (exec/names.h)? The text names the first that is not so. */
MUST_CHECK enum status weights_check(const struct graph *graph, const struct safetensors *file);
/* Loads what weights_check accepted; optimizer state too if `optimizer` is not NULL. On one rank;
 * settle afterwards. */
MUST_CHECK enum status weights_load(struct exec *exec, const struct safetensors *weights,
                                    const struct safetensors *optimizer);

#endif /* TRAIN_WEIGHTS_H */
