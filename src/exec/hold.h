/* SPDX-License-Identifier: MIT */
/* hold.h - which parameters are here when, where a node keeps its part alone (zero=3). Private to exec/.
 *
 * The graph says which buckets are held in parts: pass zero gathers them before forward and before
 * backward. Between nodes that is so; on one node, where parameters are there once for all, it
 * means nothing.
 *
 * A *walk* is a step or a part of an evaluation. It has *rounds*: a lane runs one shard, or one batch,
 * in each that it takes part in. A round of a step has two *phases*, forward and backward, one of an
 * evaluation one. In a phase each bucket is used from the first to the last instruction that reads it: a
 * lane takes it, which waits until the wires have brought it (held[b]), and leaves it (left[b]); when all
 * lanes have, the other nodes' parts are released (wire_hold.c). All uses of a walk in the order of
 * first readers are a queue; wires bring what the lane that is furthest needs, and a window of
 * what follows.
 */
#ifndef EXEC_HOLD_H
#define EXEC_HOLD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "graph/graph.h"
#include "transport/transport.h"

struct exec;
struct lane;

enum hold_kind { HOLD_FORWARD, HOLD_BACKWARD, HOLD_EVALUATION, HOLD_KINDS };

/* The buckets that a phase uses, in the order of first readers. */
struct hold_order {
    int count;
    int bucket[GRAPH_NODE_IN];
    int at[GRAPH_NODE_IN];    /* of a bucket in that order; -1: not used */
    int until[GRAPH_NODE_IN]; /* it is read until a lane comes to this place */
};

struct hold_walk {
    bool is_evaluation;
    int64_t samples;    /* of a step */
    int64_t begin, end; /* batches of an evaluation */
};

struct hold {
    uint64_t buckets; /* held in parts; 0: none, and nothing below is used */
    struct hold_order orders[HOLD_KINDS];
    /* Not released between forward and backward, and between backward and the next round's forward. */
    uint64_t kept_for_backward, kept_for_forward;
    uint32_t before[GRAPH_NODE_IN]; /* uses of a bucket in walks that are over */
    uint64_t walks;                 /* that are over */
    struct hold_walk walk;
    bool is_walking;
    /* Shared memory of the node: one a bucket; the place in the queue that a lane has come to. */
    struct transport_counter *held, *left;
    _Atomic uint64_t *furthest;
};

/* Works out orders; buckets are known. */
void hold_find(struct exec *exec);

/* Lanes of a node that take part in a round; rounds with none are left out, and the others numbered in a
 * row: of round `round` of these the lanes, 0 behind the last. */
int hold_lanes(const struct exec *exec, const struct hold_walk *walk, int node, int round);
int hold_rounds(const struct exec *exec, const struct hold_walk *walk, int node);

/* Phases of a round; which kind phase p is of. */
int hold_phases(const struct hold_walk *walk);
enum hold_kind hold_kind_of(const struct hold_walk *walk, int phase);
/* How often a bucket is used in phases before p. */
uint32_t hold_uses(const struct hold *hold, const struct hold_walk *walk, int phase, int b);
/* The place in the queue of a bucket that is used in phase p; the bucket at a place. */
int64_t hold_place(const struct hold *hold, const struct hold_walk *walk, int phase, int b);
int hold_at(const struct hold *hold, const struct hold_walk *walk, int64_t place);
/* Does the bucket stay from the phase before p into p? */
bool hold_is_kept(const struct hold *hold, const struct hold_walk *walk, int phase, int b);
/* How far the lanes of this node are in walk number `number`: the place of the last use that one came to; -1:
 * none. */
int64_t hold_furthest(const struct hold *hold, uint64_t number);

/* Collective, by the rank's own thread: a walk begins, and is over. */
void hold_begin(struct exec *exec, const struct hold_walk *walk);
void hold_end(struct exec *exec);
/* The lane runs its shard or batch number `raw` of the walk now. */
void hold_enter_round(struct lane *lane, int64_t raw);
/* Before and after instructions: these buckets are used from here on, and no longer, in this phase. */
MUST_CHECK enum status hold_take(struct lane *lane, uint64_t buckets, bool is_backward);
void hold_leave(struct lane *lane, uint64_t buckets);

#endif /* EXEC_HOLD_H */
