/* SPDX-License-Identifier: MIT */
/* lowering.h - a lowering under way. Private to lower*.c. */
#ifndef SCHED_LOWERING_H
#define SCHED_LOWERING_H

#include "sched/facts.h"
#include "sched/lower.h"

/* The nodes of a phase that read a bucket: the first and the last; -1: none. */
struct phase_use {
    int first, last;
};

/* Which nodes use a bucket. */
struct bucket_use {
    bool copies_input; /* samples are a factor of its gradient */
    int first, last;   /* nodes that touch it, of those that shards run; -1: none */
    int first_write;   /* of its gradient, or of its records */
    size_t bytes;
    struct phase_use
        phases[2 * PIPE_CHUNKS]; /* by segment; without a pipeline forward, backward */
};

/* A lowering under way. */
struct lowering {
    const struct graph *graph;
    const struct lower_config *config;
    struct program *program;
    int capacity;
    int *bucket_of; /* of each value that is flat; -1: of none */
    struct step_facts facts;
    struct bucket_use uses[GRAPH_NODE_IN];
    int first_backward; /* node that shards run */
    bool has_computed;  /* there is a computation already */
    /* Buckets whose gradients are in the window, in the order in which they were announced. */
    int in_window[GRAPH_NODE_IN], window_begin, window_end;
    int *gather_of;   /* of each node that gathers tables: its number; -1: it is none */
    int *table_of;    /* of each node that makes a table: the gather's number; else -1 */
    bool *makes_loss; /* of each node: a loss, or a count of labels met */
};

/* Adds a task whose members are all lanes of the node; the caller changes that where it is not so. */
struct task *lower_add(struct lowering *l, enum task_kind kind, enum task_medium medium,
                       enum task_place place, int bucket);
int lower_number(const struct lowering *l, const struct task *task);
/* One rail alone runs it. */
void lower_give_to_rail(struct task *task, int rail);
/* Adds memory that a task reads or writes; an access that is there already is not added again. */
void lower_add_access(struct task *task, struct access access);
void lower_touch(struct task *task, enum memory_kind memory, int index, enum reach reach,
                 enum partition partition, bool is_write);
void lower_reads_all(struct task *task, enum memory_kind memory, int index);
void lower_reads_own(struct task *task, enum memory_kind memory, int index, enum partition by);
void lower_writes_own(struct task *task, enum memory_kind memory, int index, enum partition by);
/* Is the bucket's sum made from records of all shards? Do nodes hold its parameters in partitions? */
bool lower_is_gathered(const struct lowering *l, int b);
bool lower_is_held(const struct lowering *l, int b);

/* lower_read.c: fills what the graph says. */
MUST_CHECK enum status lower_read(struct lowering *l);
/* The graph's pull of a bucket from servers; NULL: there is none. */
const struct node *lower_pull_of(const struct graph *graph, int bucket);
/* Is the node one that this rank's shards run? */
bool lower_is_of_shards(const struct lowering *l, const struct node *node);
/* Which segment of a pipeline a node belongs to; 0 without one. */
int lower_segment(const struct lowering *l, const struct node *node);
/* The same of node n, but without a pipeline 0 in forward and 1 in backward; how many there are. */
int lower_phase(const struct lowering *l, int n);
int lower_phases(const struct lowering *l);

/* lower.c: what is done with the gradient of a bucket once the lanes have announced it. */
void lower_bucket(struct lowering *l, int b);
/* lower_lane.c: forward and backward. */
void lower_lanes(struct lowering *l);

#endif /* SCHED_LOWERING_H */
