/* SPDX-License-Identifier: MIT */
/* program.h - a step program: what the ranks of one node do in a training step, or a parameter
 * server in a clock, as tasks with dependencies.
 *
 * Lowering (lower.h) makes it from the graph of a step, after the strategy's passes, and from the
 * topology of the job; a server's from its slices. The executor and the servers' loop run it;
 * `tutti graph --after lower` prints it.
 *
 * Tasks. A task has a kind, the bucket or table it is about, the memory that it reads and writes, a
 * medium and a place. All members of a place run the task, each on its own part:
 *
 *   place            members
 *   PLACE_LANE       every lane of the node, in program order: tasks with `is_once` once, then the
 *                    others for each of its shards; a pipeline's stage for each action of its
 *                    schedule those of one segment
 *   PLACE_LANE_SYNC  every lane of the node, in program order, as soon as dependencies allow:
 *                    between computations of its last shard, or after it
 *   PLACE_NET        the inter-node threads of the node's rails, in any order that dependencies allow
 *   PLACE_HOST       the thread that calls the executor, in program order, between two steps, when
 *                    the trainer asks (exec_average, exec_push, exec_pull). Lanes are idle then, so
 *                    such a task waits for no other task of the program
 *   PLACE_SERVER     a parameter server. A task has a member for each worker, or one. The server
 *                    runs tasks in any order that dependencies allow, and a slice may be a clock
 *                    ahead of another
 *
 * Dependencies. A task starts when the tasks in `waits` are done by all of their members; of a wait
 * with `is_last_step`, those of the step before. The first step waits for nothing of that kind. A
 * task that is waited for is a signal: every member increments a counter in the node's shared
 * memory once a step, so that the counter's target in step s (from 0) is (s + 1) x members.
 *
 * A wait with `is_local` is for what the same member has done.
 *
 * Servers have three more forms of waits. With `but` K all members but K are enough (backup
 * workers). With `earlier` K it is for K steps before the last one (bounded staleness). With
 * `is_apart` the other task must not be under way, but may run before or after (async updates).
 *
 * A task that writes MEMORY_SENDS is done while its sends are still under way. Whoever reads that
 * memory waits for the task to start, and `at_end` for its sends to end.
 *
 * A wait with `by_medium` needs no counter, as the medium keeps the order itself:
 *
 *   TASK_PULL      a server answers when it has what the tasks TASK_PUSH of the last step gave
 *   TASK_RECEIVE   of a stage's activation: the message comes when the other stage has sent it; what
 *                  is sent lies in a box, which the lane writes again when its own sends out of it are
 *                  over (exec/pipe.c). That send is a task of another program, so no program lists
 *                  the wait; verify_pipe.c finds the other end and goes through the schedules
 *   TASK_TENSOR    ranks that share a layer have programs of their own. Each takes what the others
 *                  give in the order in which they give it: a message has the lane's tag, in shared
 *                  memory blocks are counted (exec/talk*.c). So all must run the same of these tasks
 *                  in the same order, which verify_tensor.c checks
 *
 * Uses. Where nodes hold partitions of a bucket's parameters (ZeRO-3), each phase of a shard that
 * reads it is a use: forward, backward, in a pipeline those of each chunk. Uses of a bucket come
 * one after the other, in the order in which lanes come to them; lanes that run several shards come
 * together to those of each round. A use has tasks `by_use`:
 *
 *   unshard -> computations that read the bucket -> barrier of lanes "is read" -> reshard
 *
 * The uses of a bucket share a counter, of unshards one and of barriers one. An unshard also waits
 * for the reshard of the use before. Which use may be requested ahead, and whether partitions stay
 * from one use to the next, is the engine's choice (exec/hold.h): it delays an unshard, or leaves
 * the freeing out.
 *
 * Fusion. A task may do the work of several: `does` has a bit for each kind.
 *
 * Threads: a program does not change after lowering; any number of threads may read it.
 */
#ifndef SCHED_PROGRAM_H
#define SCHED_PROGRAM_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "base/strbuf.h"
#include "graph/graph.h"
#include "pass/schedule.h"

enum task_kind {
    TASK_COMPUTE, /* nodes [first_node, end_node) of the graph, for each of a lane's shards */
    TASK_COPY,    /* samples that are a factor of a gradient go to the shards' records */
    TASK_COLUMNS, /* a lane's columns of a first layer, for the samples of all shards */
    TASK_SEND,    /* an activation, or its gradient, goes to another stage of a pipeline */
    TASK_RECEIVE, /* and comes from one */
    TASK_TENSOR,  /* ranks that share a layer exchange activations */
    TASK_CLIP,    /* DP-SGD: a sample's gradient is clipped as a whole */
    TASK_ACCUMULATE, /* adds a shard's gradients to the lane's partial sums, along the tree */
    TASK_REDUCE_SCATTER, /* sums the partial sums of all lanes; each member keeps its part */
    TASK_SUM_FACTORS,    /* makes the sum of x^T dy over all shards, each member some rows */
    TASK_SUM_ROWS,       /* sums sparse gradients of a table, each member a range of rows */
    TASK_ALL_REDUCE,     /* losses and flags; compressed gradients */
    TASK_NORM,           /* all_reduce of sums of squares: every member adds all of them */
    TASK_DIRECTION,      /* LAMB: makes Adam's directions of summed gradients */
    TASK_UPDATE,         /* the optimizer, on each member's part */
    TASK_ALL_GATHER,     /* every member has the parts of all */
    TASK_ANSWER,  /* ZeRO-3: the own partition of parameters goes to nodes that request it */
    TASK_UNSHARD, /* the other nodes' partitions come, before forward or backward reads them */
    TASK_RESHARD, /* and are freed after it */
    TASK_PUSH,    /* sums go to their owners: servers, or nodes that own rows */
    TASK_PULL,    /* updated parameters come from their owners */
    TASK_AVERAGE, /* workers with private parameters take the mean of several workers; a center on
                     servers and a worker move towards each other */
    TASK_REPLICATE, /* an updated slice goes to the server that has its second replica */
    TASK_BARRIER,   /* no work: members meet between steps, or before a joint layer */
    TASK_KINDS
};

enum task_medium { MEDIUM_NONE, MEDIUM_SHARED, MEDIUM_MESSAGES, MEDIUM_SERVER, MEDIUMS };
enum task_place { PLACE_LANE, PLACE_LANE_SYNC, PLACE_NET, PLACE_HOST, PLACE_SERVER, PLACES };

/* Memory that tasks read and write. Servers: indices are slices, gradients are workers' pushes. */
enum memory_kind {
    MEMORY_PARAM,    /* bucket: parameters */
    MEMORY_WHOLE,    /* bucket: other nodes' partitions of its parameters (ZeRO-3) */
    MEMORY_STATE,    /* bucket: the optimizer's state */
    MEMORY_GRADIENT, /* bucket: partial sums of lanes */
    MEMORY_SUM,      /* bucket: the summed gradient, or a direction, where it is kept */
    MEMORY_RECORD,   /* bucket: factors, or ids and dy, of all shards */
    MEMORY_TABLE,    /* gather: batch statistics of all shards */
    MEMORY_SQUARES, /* sums of squares of gradients and parameters; index 1: of directions; index 2:
                        of sparse rows that lanes sum in a job of several nodes; parts are buckets.
                        Servers: index 1 is the scale; parts are slices, and other servers */
    MEMORY_SENDS, /* bucket: messages with partial sums that are under way */
    MEMORY_ROOM, /* bucket: its place in the window of gradients (ZeRO-2), given back when it is
                     summed; who begins another bucket reads those that must be free before */
    MEMORY_LOSS, /* losses of all shards, flags of all ranks; alternates between two steps */
    MEMORY_CLOCK, /* clocks that workers have ticked */
    MEMORY_KINDS
};

/* How the members of a place share what they touch. */
enum reach {
    REACH_OWN, /* each member a part that no other member touches in this task */
    REACH_ALL  /* each member everything */
};

/* Who has which part, where a task reaches its own: two tasks of one partition give a member the
 * same part. */
enum partition {
    PARTITION_LANE,  /* what this lane's shards made */
    PARTITION_BLOCK, /* blocks of the bucket, rows or columns: one range a lane of the node */
    PARTITION_RAIL,  /* blocks that travel through a rail: its own, and those of other nodes */
    PARTITION_WORKER /* what a worker pushes to a server, or gets from it */
};

/* A program has thousands: small. */
struct access {
    int index;
    int part; /* of that memory: two that differ do not overlap; -1: all of it */
    int lag;  /* it reads what was written so many steps before; 0: in order, as usual */
    enum memory_kind memory : 8;
    enum reach reach : 4;
    enum partition partition : 4; /* of REACH_OWN */
    bool is_write : 1;
    bool in_turn : 1; /* one at a time with others in turn, in any order */
};

/* A stage of a pipeline may read and write every bucket in one task. */
enum { TASK_ACCESSES = 3 * GRAPH_NODE_IN + 2 * GRAPH_IN + 8 };

/* TASK_AVERAGE with some workers: from[i] sends its parameters here, to[i] gets those of this
 * worker. */
struct task_peers {
    int count; /* 0: all workers */
    int from[ATTR_OFFSETS], to[ATTR_OFFSETS];
};

struct task {
    enum task_kind kind;
    uint32_t does; /* kinds that it does, `kind` among them: bits */
    enum task_medium medium;
    enum task_place place;
    int bucket;         /* -1: of no bucket */
    int slice;          /* PLACE_SERVER: number of the slice; -1: of none */
    int peer;           /* PLACE_SERVER: the other server; -1: none */
    int but;            /* PLACE_SERVER: of the workers so many may be missing */
    bool is_of_workers; /* PLACE_SERVER: each worker is a member; else there is one */
    int gather;         /* -1: of no table of batch statistics */
    /* Who runs it: lanes 0, stride, ... of the node, or its rails; `rail` >= 0: that one alone. */
    int stride, rail;
    int members;              /* that is so many */
    int increment;            /* of the counter, by each */
    int first_node, end_node; /* of the graph: what PLACE_LANE tasks run of it; else 0 */
    int segment; /* of a pipeline: forward of chunk 0, 1, ..., then backward of the last, ..., 0; of
                    tasks by_use so without a pipeline, too: 0 forward, 1 backward */
    bool by_use;             /* once a use of its bucket */
    bool is_once;            /* PLACE_LANE: once a step, before the shards; else once a shard */
    int first_wait, n_waits; /* in program->waits */
    int signal;              /* number of its counter; -1: nobody waits for it */
    bool is_on_demand;       /* no part of a step: members run it when they are asked to */
    struct task_peers peers; /* of TASK_AVERAGE */
    const char *note;        /* what it is about, where kind and bucket do not say; or NULL */
    int bound; /* TASK_PULL: the slowest worker is at most so many steps behind; 0: not stated */
    int n_accesses;
    struct access accesses[TASK_ACCESSES];
};

struct wait {
    int task;
    bool is_last_step;
    bool is_local; /* done by this member is enough: no counter is looked at */
    bool at_end;   /* sends under way must be over before the task ends, not before it starts */
    bool by_use; /* what was done for the same use of a bucket; or, with is_last_use, for the */
    bool is_last_use; /* use before, by an earlier shard */
    bool by_medium;   /* the medium sees to it: a server answers when it has what was pushed */
    bool is_apart;    /* the other task is not under way: nothing is said of which is first */
    int but;          /* so many members may be missing */
    int earlier;      /* of a wait for the last step: so many steps before that */
};

/* Does a wait order all members of two tasks, of this step or the next? */
static inline bool wait_orders(const struct wait *wait)
{
    return !wait->is_apart && wait->but == 0 && wait->earlier == 0;
}

/* Meetings of lanes that are no part of a step's data flow. */
enum program_barrier {
    BARRIER_SETTLE,   /* ranks, between steps */
    BARRIER_EVALUATE, /* ranks, after an evaluation */
    BARRIER_HOSTS,    /* ranks, whose devices have steps to run */
    BARRIERS
};

/* Where a rank stands among those that run copies of this graph. */
struct lower_topology {
    int nodes;      /* machines that share no memory */
    int node_ranks; /* ranks of this rank's node */
    int lanes;      /* of a rank */
    int rails;      /* ranks of a node that talk to other nodes: its first ones */
};

/* Workers of a job that train alone and average parameters; count 0: the graph's ranks are none. */
struct lower_workers {
    int count, index; /* index: of this one */
    int nodes;        /* that they are on */
};

struct program {
    struct lower_topology topology; /* that it was lowered for */
    struct lower_workers workers;
    int server; /* number of the parameter server; -1: ranks that run a graph */
    int n_tasks, n_waits, n_signals;
    struct task
        *tasks; /* in program order: a task follows the tasks of its step that it waits for */
    struct wait *waits;
    int n_buckets, n_gathers;
    /* PLACE_LANE tasks: [0, once_end) have is_once; those of segment s are [segment[s], segment[s +
     * 1]). Without a pipeline there is one segment. */
    int once_end, n_segments, segment[2 * PIPE_CHUNKS + 1];
    /* Tasks by what they mean to others; -1: there is none. */
    int announced[GRAPH_NODE_IN]; /* TASK_ACCUMULATE: this node's lanes are through with it */
    int ready[GRAPH_NODE_IN];     /* likewise; records of other nodes are here, too */
    int fresh[GRAPH_NODE_IN];     /* parameters of the step are there for all lanes */
    int summed[GRAPH_NODE_IN];    /* nobody reads the bucket's gradients any more */
    int unshard[GRAPH_NODE_IN];   /* the first TASK_UNSHARD; the others share its counter */
    int is_read[GRAPH_NODE_IN];   /* likewise: lanes have read it in a use */
    int *made;                /* of each gather: this node's lanes have written its tables */
    int *gathered;            /* of each gather: the tables of all nodes are there */
    int norm, direction_norm; /* squares of gradients, and of directions, are there */
    int losses;               /* all nodes' losses are there */
    int barrier[BARRIERS];
};

void program_destroy(struct program *program); /* NULL is allowed */
/* Finds dependencies, from what tasks read and write, and signals: connect.c. Lowering calls it
 * last. */
MUST_CHECK enum status program_connect(struct program *program);

/* The task that raises a bucket's or a step's counter; NULL for -1. */
static inline const struct task *program_task(const struct program *program, int number)
{
    return number < 0 ? NULL : &program->tasks[number];
}

/* What the counter of a task is when the task is done in step `steps`, counted from 0. */
static inline uint32_t program_target(const struct task *task, uint32_t steps)
{
    return (steps + 1) * (uint32_t)(task->members * task->increment);
}

/* Is it printed and traced? All that steps consist of, and what workers do between them. */
static inline bool task_is_listed(const struct task *task)
{
    return !task->is_on_demand || task->place == PLACE_HOST;
}

const char *task_kind_name(enum task_kind kind);
const char *task_medium_name(enum task_medium medium);
const char *task_place_name(enum task_place place);
const char *memory_name(enum memory_kind kind);
/* "reduce_scatter+update+all_gather": the kinds of work that a task does. */
void task_print_kinds(const struct task *task, struct strbuf *out);
/* "reduce_scatter+update+all_gather bucket 3": what a task does and about what. */
void task_print_name(const struct task *task, struct strbuf *out);
/* A task a line: number, place, medium, name, waits, what it reads and writes. */
void program_print_text(const struct program *program, struct strbuf *out);
/* draw.c: {"tasks": [...]}, a task a line, with the bytes of works[i] (work.h); a picture. */
struct task_work;
void program_print_json(const struct program *program, const struct task_work *works,
                        struct strbuf *out);
void program_print_svg(const struct program *program, const char *title, struct strbuf *out);

#endif /* SCHED_PROGRAM_H */
