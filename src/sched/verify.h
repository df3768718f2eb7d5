/* SPDX-License-Identifier: MIT */
/* verify.h - shows that step programs neither race nor wait for ever, before they run.
 *
 *   const struct program *const nodes[] = { program, other };
 *   TRY(program_verify(program));
 *   TRY(program_verify_nodes(nodes, 2, shards));
 *
 * A failure is STATUS_MISMATCH and names two tasks. Both are pure; the executor calls them once a
 * run.
 */
#ifndef SCHED_VERIFY_H
#define SCHED_VERIFY_H

#include "sched/program.h"

/* Races. Two tasks that touch the same memory, one of them writing it, are in one step or in two
 * steps that follow each other: is the earlier one done before the later one starts? Lowering finds
 * waits from the same accesses; this asks the finished program, whoever made it. */
MUST_CHECK enum status program_verify(const struct program *program);

/* Messages and deadlocks. The programs are those of the nodes of one job; nodes that have the same
 * program count once. `shards` is the most that a lane runs in a step.
 *
 * Each task that exchanges messages with other nodes must be in every program: else a rank waits
 * for what nobody sends. Then there must be an order of all tasks of all nodes in which each comes
 * after what it waits for, though lanes synchronize as late as they may. */
MUST_CHECK enum status program_verify_nodes(const struct program *const *programs, int n,
                                            int64_t shards);

/* A worker and all parameter servers of a job. A server must receive each push of the worker, and
 * answer each pull; a slice has one server; replicas and squares must be expected where they are
 * sent. For the races and deadlocks of one server call the functions above with its program. */
MUST_CHECK enum status program_verify_servers(const struct program *worker,
                                              const struct program *const *servers, int n);

/* The stages of a pipeline, whose graph all have. `actions`: stage after stage, pipe_count of each;
 * the first function takes those of pipe_schedule. config has been checked (pipe_check). */
MUST_CHECK enum status pipe_verify(const struct graph *graph, const struct pipe_config *config);
MUST_CHECK enum status pipe_verify_actions(const struct graph *graph,
                                           const struct pipe_config *config,
                                           const struct pipe_action *actions);

/* The exchanges of a rank with those that share its layers, in program order: TASK_TENSOR tasks. */
struct tensor_exchange {
    char name[64]; /* "tp_sum h0.attention.sum" */
};
/* Fills out[program->n_tasks]; returns how many there are. */
int tensor_list(const struct program *program, const struct graph *graph,
                struct tensor_exchange *out);
/* This rank's exchanges and those of rank `rank`: each waits for the other in all of them, so they
 * must be the same in the same order. */
MUST_CHECK enum status tensor_verify(const struct tensor_exchange *own, int n_own,
                                     const struct tensor_exchange *theirs, int n_theirs,
                                     int rank);

#endif /* SCHED_VERIFY_H */
