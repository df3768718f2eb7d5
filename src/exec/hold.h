/* SPDX-License-Identifier: MIT */
/* hold.h - which parameters are here when, where a node keeps its part alone (zero=3). Private to
 * exec/.
 *
 * The graph says which buckets are held in parts: pass zero gathers them before forward and before
 * backward. Between nodes that is so; on one node, where parameters are there once for all, it
 * means nothing.
 *
 * The step program has tasks for each use of such a bucket and their order (sched/program.h,
 * "Uses"). Here is what those tasks count, and what is the engine's choice: which use may be
 * requested ahead of the lanes, and which partitions stay from one use to the next. A choice can
 * delay an unshard or leave the freeing out; it never lets a read go before its unshard.
 *
 * A *walk* is a step or a part of an evaluation. It has *rounds*: a lane runs one shard, or one
 * batch, in each. A round of a step has two *phases*, forward and backward, one of an evaluation
 * one. A step of a pipeline is one round, whose phases are the actions of its schedule; one of its
 * evaluations is a group of batches. All uses of a walk in the order of first readers are a queue;
 * inter-node threads bring what the lane that is furthest needs, and a window of what follows.
 *
 * Evaluations are not lowered: lanes go through the instructions of a plan, and do by hold_take and
 * hold_leave what the tasks of forward's uses would do, with the same counters.
 */
#ifndef EXEC_HOLD_H
#define EXEC_HOLD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "graph/graph.h"
#include "pass/schedule.h"
#include "transport/transport.h"

struct exec;
struct lane;

/* What a phase runs: forward of each chunk, backward of the last to the first, as segments of plans
 * have it; then forward of each chunk in evaluations. Without a pipeline there is one chunk:
 * forward, backward, evaluation. */
enum { HOLD_KINDS = 3 * PIPE_CHUNKS };

/* The buckets that a phase uses, in the order of first readers. */
struct hold_order {
    int count;
    int bucket[GRAPH_NODE_IN];
    int at[GRAPH_NODE_IN];    /* of a bucket in that order; -1: not used */
    int until[GRAPH_NODE_IN]; /* it is read until a lane comes to this place */
};

/* The phases of a round. */
struct hold_sequence {
    int count;
    uint8_t *kinds;
    int64_t *first; /* entries of the queue before each phase; one more: of a round */
};

struct hold_walk {
    bool is_evaluation;
    int64_t begin, end; /* batches of an evaluation */
};

struct hold {
    uint64_t buckets; /* held in parts; 0: none, and nothing below is used */
    int n_kinds;
    struct hold_order orders[HOLD_KINDS];
    /* The last that a phase leaves and the first that it takes, a window of each: what is among the
     * last of one and the first of the next is not released between. */
    uint64_t last[HOLD_KINDS], first[HOLD_KINDS];
    struct hold_sequence *steps;     /* of each node */
    struct hold_sequence evaluation; /* of all */
    uint32_t before[GRAPH_NODE_IN];  /* uses of a bucket in walks that are over */
    uint64_t walks;                  /* that are over */
    struct hold_walk walk;
    bool is_walking;
    /* Shared memory of the node: the place in the queue that a lane has come to. */
    _Atomic uint64_t *furthest;
};

/* Does a node hold its part of the bucket's parameters alone, but while they are read? */
static inline bool bucket_is_held(const struct hold *hold, int b)
{
    return hold->buckets >> b & 1;
}

/* Works out orders; buckets are known, and the schedule of a pipeline. */
MUST_CHECK enum status hold_create(struct exec *exec);
void hold_destroy(struct exec *exec);

/* Phases that a node has in a walk; rounds in which it has no lanes are left out. */
int hold_phases(const struct exec *exec, const struct hold_walk *walk, int node);
/* Its lanes that take part in one. */
int hold_lanes(const struct exec *exec, const struct hold_walk *walk, int node, int phase);
/* Does phase p read the bucket? Does it stay there from the phase before? */
bool hold_is_used(const struct exec *exec, const struct hold_walk *walk, int node, int phase,
                  int b);
bool hold_is_kept(const struct exec *exec, const struct hold_walk *walk, int node, int phase,
                  int b);
/* Of this node: how often tasks of uses of a segment (struct task) run for bucket b; the phase in
 * which they do so for the i-th time, from 0; uses of a bucket in phases before one. */
int hold_times(const struct exec *exec, const struct hold_walk *walk, int segment, int b);
int hold_phase_of(const struct exec *exec, const struct hold_walk *walk, int segment, int time);
uint32_t hold_uses(const struct exec *exec, const struct hold_walk *walk, int phase, int b);
/* Of this node: the place in the queue of a bucket that is used in phase p; the bucket at a place. */
int64_t hold_place(const struct exec *exec, const struct hold_walk *walk, int phase, int b);
int hold_at(const struct exec *exec, const struct hold_walk *walk, int64_t place);
/* How far the lanes of this node are in walk number `number`: the place of the last use that one
 * came to; -1: none. */
int64_t hold_furthest(const struct hold *hold, uint64_t number);

/* Collective, by the rank's own thread: a walk begins, and is over. */
void hold_begin(struct exec *exec, const struct hold_walk *walk);
void hold_end(struct exec *exec);
/* The lane runs its shard or batch number `raw` of the walk now. */
void hold_enter_round(struct lane *lane, int64_t raw);
/* A stage of a pipeline does action number `phase` of the walk now. */
void hold_enter_action(struct lane *lane, int64_t phase);
/* Waits until bucket b is whole for the use that the lane comes to. Without a pipeline a round goes
 * on with backward. */
MUST_CHECK enum status hold_await(struct lane *lane, int b, bool is_backward);
/* In an evaluation, before and after instructions: a lane takes these buckets, and leaves them. */
MUST_CHECK enum status hold_take(struct lane *lane, uint64_t buckets);
void hold_leave(struct lane *lane, uint64_t buckets);
/* In an evaluation: the lane has nothing to run in this action. */
MUST_CHECK enum status hold_pass(struct lane *lane);

#endif /* EXEC_HOLD_H */
