/* SPDX-License-Identifier: MIT */
/* net.h - the inter-node thread of a rank, and how it runs tasks. Private to exec/net*.c and
 * memory.c.
 *
 * The thread runs the PLACE_NET tasks of the step program (sched/program.h). A kind of task on a
 * medium is a row: struct net_row. The thread itself (net.c) knows waits, transfers and signals,
 * and no kind:
 *
 *   waiting --its waits are over--> started --its receives and sends are over--> finished
 *
 *   prepare   may post receives as soon as the tasks that it follows have started
 *   start     when its waits are over: begins transfers
 *   arrived   all receives that were begun are over; may begin another round
 *   finish    works on what came; then the task's counter is incremented
 *
 * A task that writes MEMORY_SENDS is finished while its sends are under way: a wait with `at_end`
 * is for these.
 */
#ifndef EXEC_NET_H
#define EXEC_NET_H

#include <pthread.h>

#include "comm/codec.h"
#include "comm/exchange.h"
#include "exec/account.h"
#include "exec/exec.h"
#include "exec/hold.h"
#include "exec/sum_worker.h"
#include "exec/sums.h"

enum { CHANNELS = 8 }; /* rows of the trace: tasks that overlap stand in different ones */
enum net_stage { NET_WAITING, NET_STARTED, NET_FINISHED };

/* Transfers of a task, in the order in which they were begun. */
struct transfers {
    struct transport_request *request;
    bool *is_done;
    bool *is_counted; /* sends of buckets: few bytes of them are under way at once */
    int most, count, left;
    int held; /* those counted from here on have not begun */
    int last; /* peer of the one that was over last; -1: none */
};

struct net;
struct net_row;

struct net_task {
    const struct task *task;
    int number; /* in the program */
    const struct net_row *row;
    enum net_stage stage;
    bool is_prepared;
    bool awaits_round; /* `arrived` is not called for the last time yet */
    int time, times;   /* that it runs now, from 0, and in all: once, or once a use (hold.h) */
    bool is_busy;      /* of a row with `run`: there are transfers under way */
    uint32_t tag;      /* and the next one */
    struct transfers receives, sends;
    int channel; /* row of the trace; CHANNELS: none */
    int64_t traced;
    int64_t began; /* for the trace */
    int awaits;    /* the peer that it waited for when that was looked at last; -1: none */
};

struct net_most {
    int receives, sends;
};

struct net_row {
    enum task_kind kind;
    enum task_medium medium;
    const char *name;  /* in traces */
    const char *point; /* of tests of faults, where it starts; NULL: none */
    /* Does the row run this task of its kind and medium? NULL: yes. */
    bool (*can_run)(const struct net *net, const struct task *task);
    /* Most transfers of one step; NULL: none. */
    struct net_most (*most)(const struct net *net, const struct task *task);
    enum status (*prepare)(struct net *net, struct net_task *t); /* each may be NULL */
    enum status (*start)(struct net *net, struct net_task *t);
    enum status (*arrived)(struct net *net, struct net_task *t, bool *again);
    enum status (*finish)(struct net *net, struct net_task *t);
    /* May it start, when its waits are over? NULL: yes. */
    bool (*is_due)(const struct net *net, const struct net_task *t);
    /* In place of all these: begins a step; moves the task on, and sets its stage itself. */
    enum status (*begin)(struct net *net, struct net_task *t);
    enum status (*run)(struct net *net, struct net_task *t, bool *moved);
};

/* Elements of a flat vector. */
struct slice {
    size_t at, count;
};

/* Partial sums of gradients, of this node and of others. */
struct net_sums {
    int own_parts, n_own_parts;           /* memory->parts[own_parts..) are this node's */
    struct tree_node own[2 * TREE_DEPTH]; /* of this node's row of shards */
    int n_own;
    int *n_of;                 /* partial sums of each node */
    struct tree_node *part_of; /* what they are the sums over, of all nodes in their order */
    int *first_of;             /* where they begin in memory->parts */
    /* Flat vectors: own partial sums of what others own, and others' of what this rail owns. Pages
     * that nobody needs are never touched. */
    float *vectors;
    size_t bytes;
    float *scratch;
};

/* A step, or a part of an evaluation, as the rank's own thread hands it over. */
struct net_step {
    struct extents extents;
    struct hold_walk walk;
    uint64_t number;
    struct kernel_update_step numbers;
};

/* Between the rank's own thread and this one: `lock` guards all. */
struct net_handoff {
    pthread_t thread;
    bool is_started;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool is_given;   /* a step that is not begun yet */
    bool is_running; /* a step was given and is not over */
    bool ends;
    struct net_step step;
    struct times known,
        forgotten; /* of steps that are over, since net_start and net_forget_times */
};

/* What is under way. */
struct net_traffic {
    struct trace_row *rows[CHANNELS];
    bool is_taken[CHANNELS];
    int64_t busy_since,
        computed;       /* transfers since then, 0: none; how long lanes had computed */
    size_t flying;      /* bytes of counted sends that are under way */
    size_t flying_most; /* others begin only if they are no more together */
    bool holds;         /* some sends wait for that */
};

/* Rank 0's, for checkpoints: as many vectors as net_states says. */
struct net_states {
    float *vectors;
    size_t bytes;
};

/* Shapes of the step's values, for the size of records. */
struct net_shapes {
    struct shape *of;
    struct extents extents; /* that they are for */
};

/* The exchange that begins now. */
struct net_exchange {
    struct exchange_member *members; /* one a node */
    struct exchange_transfer *transfers;
};

/* Memory for the transfers of all tasks. */
struct net_room {
    struct transport_request *requests;
    bool *flags; /* is_done, is_counted */
};

struct net_codec;
struct net_rows;
struct unshard;

struct net {
    struct exec
        *exec; /* for hold.c; net*.c do not look into it, but net_make.c and net_between.c */
    const struct exec_topology *topology;
    const struct exec_layout *layout;
    const struct exec_shared *memory;
    const struct program *program;
    const struct hold *hold;
    struct exec_account *account;
    struct transport *transport;
    int rail, rails;
    struct sum_worker worker; /* it sums and updates what its tasks name */
    struct times times;
    struct net_task *tasks;
    int n_tasks;
    uint32_t tags;
    int *task_at; /* of each task of the program: its index; -1: another rail's, or a lane's */
    struct net_room room;
    struct net_sums sums;
    struct net_exchange exchange;
    struct net_states states;
    struct net_codec **codecs; /* one a bucket; NULL: not compressed, or another rail's */
    struct net_rows **served;  /* one a bucket; NULL: not served; the first rail's alone */
    struct unshard *unshards;  /* one a bucket; NULL: parameters are not partitioned */
    struct net_shapes shapes;
    struct net_handoff handoff;
    struct net_step step; /* that is being done */
    uint32_t steps;
    uint64_t walks; /* steps and evaluations */
    bool is_scaled; /* step.numbers are, by the norm of all gradients */
    struct net_traffic traffic;
};

/* Arrays of norms.c that are exchanged: of gradients, parameters and directions. */
enum { SQUARES = 3 };

int net_peer(const struct net *net, int node);
/* The stretches of bucket b that rail `rail` of a node owns, and the elements they are. */
void net_stretches(const struct net *net, int b, int node, int rail, int64_t *begin,
                   int64_t *end);
struct slice net_slice(const struct net *net, int b, int node, int rail);
/* This node's partial sum p of a slice, computed if it is not in memory; returns its vector. */
float *net_make_sum(struct net *net, int p, struct slice slice);
/* Begins a transfer of a task. */
MUST_CHECK enum status net_receive(struct net *net, struct net_task *t, int peer, uint32_t tag,
                                   void *data, size_t bytes);
MUST_CHECK enum status net_send(struct net *net, struct net_task *t, int peer, uint32_t tag,
                                const void *data, size_t bytes);
/* A send of a bucket: it begins when few bytes are under way. */
MUST_CHECK enum status net_send_counted(struct net *net, struct net_task *t, int peer,
                                        uint32_t tag, const void *data, size_t bytes);
/* Tests transfers that are under way. */
MUST_CHECK enum status net_are_over(struct net *net, struct transfers *list, bool *over);
/* Empties the list. */
void net_clear(struct transfers *list);
/* A row of the trace for a task, from its first transfer to its last. */
void net_take_channel(struct net *net, struct net_task *t);
void net_leave_channel(struct net *net, struct net_task *t);
/* Waits until no step is under way. */
MUST_CHECK enum status net_rest(struct net *net);
/* The thread's function: arg is the net. */
void *net_run(void *arg);
/* The row that runs a task. */
const struct net_row *net_row_of(const struct net *net, const struct task *task);
/* Updates are scaled by the norm of all gradients, which is known. */
MUST_CHECK enum status net_scale(struct net *net);

/* Rows ------------------------------------------------------------------------------------- */

extern const struct net_row net_reduce_scatter, net_all_gather, net_drain; /* net_bucket.c */
extern const struct net_row net_update, net_direction;
extern const struct net_row net_records, net_tables, net_losses, net_norm; /* net_gather.c */
extern const struct net_row net_compressed;                                /* net_codec.c */
extern const struct net_row net_push_rows, net_update_rows, net_pull_rows; /* net_rows.c */
extern const struct net_row net_answer, net_unshard, net_reshard;          /* net_unshard.c */

/* Works on this rail's part of a bucket, or on all of one that is compressed. */
void net_work_on_own(struct net *net, struct net_task *t, enum reduce_what what);

/* net_codec.c: of a node's rails the one that has a compressed bucket. */
int net_codec_rail(int rails, int b);
/* NULL: not this rail's. */
struct codec_state *net_codec_state(const struct net *net, int b);
MUST_CHECK enum status net_codecs_create(struct net *net);
void net_codecs_destroy(struct net *net);

/* net_unshard.c: parameters that nodes hold in partitions. How often a task of uses runs in this
 * walk; is what it waits for done, of its use or the one before? */
int net_runs(const struct net *net, const struct net_task *t);
bool net_is_use_over(const struct net *net, const struct net_task *t, const struct wait *wait);
MUST_CHECK enum status net_unshards_create(struct net *net);
void net_unshards_destroy(struct net *net);
void net_unshards_cancel(struct net *net);

/* net_rows.c: tables whose rows belong to nodes. */
MUST_CHECK enum status net_rows_create(struct net *net);
void net_rows_destroy(struct net *net);
/* The squares of what a node has summed of a table. */
struct exact_sum *net_row_squares(const struct net *net, int b, int node);
/* Collective: the state of the rows that a node owns goes from its first rank to rank 0. */
MUST_CHECK enum status net_rows_collect(const struct net *net, int b, int node, int from);

#endif /* EXEC_NET_H */
