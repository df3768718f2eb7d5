/* SPDX-License-Identifier: MIT */
/* lane.h - a lane: a thread of this rank that runs whole shards. Private to exec/.
 *
 * A lane calls these functions for itself, in a step or an evaluation. Between steps the thread
 * that calls the executor may do so.
 */
#ifndef EXEC_LANE_H
#define EXEC_LANE_H

#include "base/pool.h"
#include "base/trace.h"
#include "data/source.h"
#include "exec/account.h"
#include "exec/plan.h"
#include "exec/sum_worker.h"
#include "exec/talk.h"
#include "kernel/tree.h"
#include "kernel/update.h"
#include "sched/program.h"

struct exec;
struct exec_layout;
struct exec_now;
struct exec_shared;
struct exec_topology;

/* In traces: a lane makes its part of a gradient of rows or factors, and uses it. */
#define EXEC_MAKING "gradient and update"

enum { PLANS_MAX = 64, LANES_MAX = 1024 };

/* Plans, one for each extents, in the order of their last use. */
struct plan_list {
    struct plan *of[PLANS_MAX];
    int count;
};

/* EVAL_ROWS samples of an evaluation: their parts as source.h has them. */
struct lane_samples {
    void *x;
    int32_t *x2, *y;
    size_t bytes[SOURCE_PARTS]; /* of a sample, in these */
};

/* One thread of this rank that runs whole shards. */
struct lane {
    struct exec *exec; /* for the files that make and lead lanes; others do not look into it */
    const struct exec_topology *topology;
    const struct exec_layout *layout;
    const struct exec_shared *memory;
    const struct exec_now *now;
    const struct program *program;
    struct sum_worker worker;
    struct lane_clock clock;
    struct lane_tensor tensor;
    int64_t first, count; /* its shards */
    char *arena;          /* of the shard that runs now */
    char *arenas;         /* as many as the pipeline has shards under way; else it is the one */
    size_t arena_bytes;   /* of all of them */
    char *bases[BASE_COUNT];
    const struct plan *plan; /* of the shard that runs now or ran last */
    struct plan_list plans, eval_plans;
    float *gradients; /* its buffers: buffer i at gradients + i * layout->vector */
    int n_buffers;
    int next_task; /* of the program: its synchronization tasks below this are done in this step */
    struct kernel_update_step
        numbers;         /* of this step's updates, scaled when the norm is known */
    uint64_t announced;  /* buckets of this step */
    uint64_t unreleased; /* buckets announced whose memory is not given back yet (release.c) */
    uint32_t summed_when[GRAPH_NODE_IN]; /* these: what summed[b] is when nobody reads it */
    int phase;                           /* of the walk (hold.h) that it began last */
    struct lane_samples samples;
    enum status status;
    char failure[256];
};

/* This lane's plan for them. */
const struct plan *lane_plan(const struct lane *lane, struct extents extents, bool evaluation);

/* A shard that a lane runs now. */
struct lane_shard {
    int64_t v;
    const struct plan *plan; /* NULL: it has no samples */
    struct tree_stack *stack;
    struct kernel_step step;
};

/* Points the lane to the memory of shard v, and puts the shard on the stack. */
struct lane_shard lane_begin_shard(struct lane *lane, int64_t v, struct tree_stack *stack);
/* The shard that the lane is pointed to has no samples: its loss is zero. Once a step, before its
 * tasks. */
void lane_leave_no_loss(const struct lane *lane);
/* The plan of shard v of the step that runs; NULL: it has no samples. */
const struct plan *lane_plan_of(const struct lane *lane, int64_t v);
/* lane.c: runs the lane's tasks among [begin, end) of the program for a shard; `shard` is NULL for
 * those that run once a step. */
MUST_CHECK enum status lane_run_tasks(struct lane *lane, int begin, int end,
                                      const struct lane_shard *shard);
/* Finds the instructions of each task in a plan for training. */
MUST_CHECK enum status lane_find_ranges(const struct program *program,
                                        const struct graph *graph, struct plan *plan);
/* Copies the samples of shard v that are a factor of a gradient to the shard's record. */
void lane_copy_samples(struct lane *lane, int64_t v);
/* sync.c: waits for all that a task waits for. */
MUST_CHECK enum status lane_await(struct lane *lane, const struct task *task);

/* Runs one instruction of a plan. Only one that talks can fail. */
MUST_CHECK enum status lane_run(struct lane *lane, const struct instruction *instruction,
                                const struct kernel_step *step);

/* Runs this lane's synchronization tasks in program order, waiting for what those below `end` wait
 * for; the first of the others that is not ready ends it (sync.c). */
MUST_CHECK enum status lane_sync(struct lane *lane, int end);

#endif /* EXEC_LANE_H */
