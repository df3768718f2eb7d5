/* SPDX-License-Identifier: MIT */
/* weights.h - an executor's parameters and state to and from checkpoints. Private to train/. */
#ifndef TRAIN_WEIGHTS_H
#define TRAIN_WEIGHTS_H

#include "exec/exec.h"
#include "train/checkpoint.h"
#include "train/grid.h"

/* A copy of everything in plain order, so that training may go on while it is written. */
struct weights_copy;
/* Of a job whose workers have state of their own the optimizer's part holds that of worker 0 as usual and of
 * each other one, "NAME.momentum.worker1"; with an outer optimizer "NAME.outer_momentum"; and where workers
 * have parameters of their own, of which the weights are the mean, "NAME.own" and "NAME.own.worker1". */
struct weights_extra {
    int workers; /* 1: state is the job's */
    bool has_outer;
    bool has_own; /* parameters of each worker */
    bool streams; /* nothing is copied: numbers come group by group while they are written */
    struct grid
        *grid; /* or tensor by tensor, from whoever has them: streams, too. NULL: none */
    /* What the loss does not need of the graph (VALUE_UNUSED) has the numbers of the file that the run began
     * or goes on with, if it has them; else they are drawn. */
    const struct graph *graph;
    const struct safetensors *file;
    uint64_t seed;
};
MUST_CHECK enum status weights_copy_create(const struct exec *exec, struct weights_extra extra,
                                           struct weights_copy **out);
/* Takes the copy; call on a settled executor. Allocates nothing. */
void weights_copy_take(struct weights_copy *copy, const struct exec *exec);
/* State of another worker, and the outer momentum, from vectors like exec_vector's. */
void weights_copy_take_state(struct weights_copy *copy, const struct exec *exec, int worker,
                             int state, const float *vector);
void weights_copy_take_outer(struct weights_copy *copy, const struct exec *exec,
                             const float *vector);
/* Parameters of a worker, likewise. */
void weights_copy_take_own(struct weights_copy *copy, const struct exec *exec, int worker,
                           const float *vector);
MUST_CHECK enum status weights_copy_save(const struct weights_copy *copy, const char *folder,
                                         uint64_t step, const char *state, int keep);
/* Of one that streams instead of take and save: collective, on a settled executor; rank 0 writes and has the copy,
 * the others pass NULL. */
MUST_CHECK enum status weights_stream(struct weights_copy *copy, struct exec *exec,
                                      const char *folder, uint64_t step, const char *state,
                                      int keep);
void weights_copy_destroy(struct weights_copy *copy); /* NULL is allowed */

/* Does the file hold every parameter and running average of the graph, with its shape, as finite
 * f32, and nothing else but what says nothing (exec/names.h) or is not used? The text names the
 * first that is not so. */
MUST_CHECK enum status weights_check(const struct graph *graph, const struct safetensors *file);
/* Loads what weights_check accepted; optimizer state too if `optimizer` is not NULL. On one rank;
 * settle afterwards. */
MUST_CHECK enum status weights_load(struct exec *exec, const struct safetensors *weights,
                                    const struct safetensors *optimizer);
/* The same of the parameters of one group. */
/* Has the file all state that the executor's optimizer keeps? Else it is another one's. */
bool weights_have_state(const struct exec *exec, const struct safetensors *optimizer);
MUST_CHECK enum status weights_load_group(struct exec *exec, const struct safetensors *weights,
                                          const struct safetensors *optimizer, int group);
/* What a worker with state of its own finds of it behind weights_load: its own state if the file has it, else
 * that of worker 0 stays; the outer momentum goes to a vector like exec_vector's (NULL: there is none). */
MUST_CHECK enum status weights_load_worker(struct exec *exec,
                                           const struct safetensors *optimizer, int worker,
                                           float *outer);

/* Its own parameters (has_own); where the file has none the mean stays. Follow with exec_publish. */
MUST_CHECK enum status weights_load_own(struct exec *exec, const struct safetensors *optimizer,
                                        int worker);

#endif /* TRAIN_WEIGHTS_H */
