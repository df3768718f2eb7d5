/* SPDX-License-Identifier: MIT */
/* pipe.h - a stage of a pipeline: walks its schedule and talks to the other stages. Private to
 * exec/.
 *
 * The rank has one lane; its threads share each op. Every shard under way has an arena of its own.
 * A plan's instructions are in segments, forward and backward of each chunk, and an action of the
 * schedule runs one of them for one shard. A segment's receives are posted when it begins. What is
 * sent is copied to the shard's box, so that the lane goes on while a thread moves it; a box is
 * used again when all that it held has gone.
 */
#ifndef EXEC_PIPE_H
#define EXEC_PIPE_H

#include "exec/exec.h"

struct exec;
struct lane;
struct plan;
struct instruction;

/* NULL config.pipeline: makes nothing. When lanes are made. */
MUST_CHECK enum status pipe_create(struct exec *exec);
void pipe_destroy(struct exec *exec);
/* Arenas that a lane needs: one, or as many as shards are under way. */
int pipe_arenas(const struct exec *exec);
/* Bytes of boxes, and of parameters of other stages. */
size_t pipe_bytes(const struct exec *exec);
/* Makes room for what a plan sends and keeps. */
MUST_CHECK enum status pipe_prepare(struct exec *exec, size_t outbox_bytes, size_t kept_bytes,
                                    int n_sends, int n_receives);
/* What a stage does in a step, for device_pipe.c; borrowed. */
struct pipe_stage {
    const struct pipe_action *actions;
    int64_t n_actions;
    int arenas, boxes;
    const uint64_t *buckets; /* whose sums each segment makes */
};
struct pipe_stage pipe_stage_of(const struct exec *exec);
/* Runs all shards of a step. */
MUST_CHECK enum status pipe_run_step(struct lane *lane);
/* Runs one instruction that sends or receives. */
MUST_CHECK enum status pipe_move(struct lane *lane, const struct instruction *move);
/* Of an evaluation: runs batches [0, count), whatever is behind the numbers, through this stage.
 * `begin` reads a batch's samples and returns its plan, NULL: there is none of that number; `end`
 * follows the last of its instructions here. */
struct pipe_evaluation {
    int64_t count;
    bool wants_output; /* does somebody look at what the samples give? */
    const struct plan *(*begin)(struct lane *lane, int64_t number);
    void (*end)(struct lane *lane, const struct plan *plan, int64_t number);
};
MUST_CHECK enum status pipe_evaluate(struct lane *lane, const struct pipe_evaluation *e);
/* "stage 2", for traces. */
const char *pipe_stage_name(const struct exec *exec, int stage);

/* All ranks beside this one learn how the step went; what ranks say is added bit by bit. */
MUST_CHECK enum status beside_tell_step(struct exec *exec, struct exec_result *result);
/* Adds theirs to `count` numbers, in the order of ranks: all get the same. others: room for as
 * many. */
MUST_CHECK enum status beside_add(const struct exec_beside *beside, uint32_t tag,
                                  double *numbers, double *others, int count);
/* They get what the teller has. */
MUST_CHECK enum status beside_tell(struct exec *exec, void *data, size_t bytes);

#endif /* EXEC_PIPE_H */
