/* SPDX-License-Identifier: MIT */
/* work.h - what the tasks of a step program move and do: bytes, messages, additions, updates.
 *
 * Follows from the kind of a task, its bucket's size and the topology alone; nothing is measured.
 * The planner prices it (walk.h), `tutti graph --after lower --format json` prints the bytes, and
 * tests compare them with what an executor counts (exec_times.bytes).
 */
#ifndef SCHED_WORK_H
#define SCHED_WORK_H

#include "sched/program.h"

/* In one step, by all members of the task on one node. */
struct task_work {
    double messages; /* that a rail sends to other nodes; of TASK_TENSOR a rank to its peers */
    double sent;     /* bytes to other nodes; of PLACE_LANE tasks to other ranks */
    double read;    /* bytes that other ranks of the node wrote: counted in a job of one node */
    double summed;  /* bytes of partial sums that are added */
    double updated; /* bytes of parameters that the optimizer updates */
    double
        times; /* of TASK_UNSHARD: uses that partitions are sent for; lanes wait for the first */
    double released; /* bytes that each lane gives back to the system, and touches again */
};

struct work_config {
    int64_t shards; /* of a step, on all nodes */
    double
        compressed; /* bytes of a payload for each byte of a gradient, where it is compressed */
    double window;  /* bytes of parameters that stay from one use to the next (ZeRO-3) */
    int tensor;     /* ranks that share layers; 0 or 1: none do */
};

/* Ranks that share layers sum so few bytes by sending all of them to all, not in parts. */
enum { WORK_SHORT_SUM = 8192 };

/* Fills out[program->n_tasks]. `graph` is the one that was lowered. */
MUST_CHECK enum status program_work(const struct program *program, const struct graph *graph,
                                    const struct work_config *config, struct task_work *out);

/* The bytes that exec_times.bytes counts, over the ranks of a node. */
static inline double task_bytes(const struct task_work *work)
{
    return work->sent + work->read;
}

/* Is the gradient of a bucket made from records of all shards: factors, or sparse rows? */
bool work_is_gathered(const struct graph *graph, int bucket);
/* Bytes of parameters in buckets whose gradients are added as they are. */
double work_dense_bytes(const struct graph *graph);

#endif /* SCHED_WORK_H */
