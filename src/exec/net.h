/* SPDX-License-Identifier: MIT */
/* net.h - what a net keeps (net.c says what it is). Private to the files of its name. */
#ifndef EXEC_WIRE_H
#define EXEC_WIRE_H

#include <pthread.h>

#include "comm/codec.h"
#include "exec/state.h"

enum item_kind {
    ITEM_LOSSES,
    ITEM_TABLE,
    ITEM_BUCKET,
    ITEM_RECORDS,
    ITEM_SERVED,
    ITEM_NORMS,
    ITEM_MOVES,
    ITEM_HOLD,
    ITEM_KINDS
};
enum { CHANNELS = 8 }; /* rows of the trace: transfers that overlap stand in different ones */
enum stage { WAITING, RECEIVING, KEPT, DIRECTED, SHARING, FINISHED };

/* Transfers under way. */
struct transfers {
    struct transport_request *request;
    bool *is_done;
    int count, left;
    bool *is_counted; /* sends of buckets */
    int held;         /* those from here on have not begun */
    int last;         /* peer of the one that was over last; -1: none */
};

struct item {
    enum item_kind kind;
    int number; /* of the bucket or gather */
    enum stage stage;
    uint32_t tag;            /* and the next one */
    struct transfers needed; /* what must come before the item moves on */
    struct transfers others; /* what must be over at its end */
    struct transfers params; /* likewise: others' updated parts of a bucket */
    int n_sums;              /* the first of `others` send sums of gradients */
    bool is_summed;          /* nobody reads the bucket's gradients any more, and all know */
    int channel;             /* row of the trace; CHANNELS: none */
    int64_t traced;
};

/* Elements of a flat vector. */
struct slice {
    size_t at, count;
};

struct net_holding;

struct net {
    struct exec *exec;
    int rail, rails;
    struct lane lane; /* for sums and updates: no shards of its own */
    struct item *items;
    int n_items;
    struct transport_request *requests; /* of all items */
    bool *is_done;

    /* Partial sums: this node's parts are exec->parts[own_parts.. + n_own_parts). */
    int own_parts, n_own_parts;
    struct tree_node own[2 * TREE_DEPTH]; /* of this node's row */
    int n_own;
    int *n_of;                 /* partial sums of each node */
    struct tree_node *part_of; /* what they are the sums over, of all nodes in their order */
    int *first_of;             /* where they begin in exec->parts */
    float *
        sums; /* own partial sums of what others own, and others' of what this rail owns: flat vectors, of
                       which what is not needed is never touched */
    size_t sums_bytes;
    float *scratch;
    float *
        states; /* rank 0: net_states vectors, for checkpoints; never touched unless one is made */
    size_t states_bytes;
    struct net_codec **codecs;      /* one a bucket; NULL: none, or another rail's */
    struct net_rows **served;       /* one a bucket; NULL: not served; the first rail's alone */
    struct net_holding *holdings;   /* one a bucket; NULL: no parameters are held in parts */
    struct shape *shapes;           /* of the step's values, for the size of records */
    struct extents extents, wanted; /* what shapes are of; the step's */

    /* The step to do, given by the rank's own thread */
    pthread_t thread;
    bool is_started;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool is_given, is_running,
        ends; /* guarded by lock; running: a step was given and is not over */
    struct extents given_extents;
    struct hold_walk given_walk;
    uint64_t given_number;
    struct kernel_update_step given_numbers;

    /* The step, or evaluation, that is being done */
    uint32_t steps;
    uint64_t walks; /* steps and evaluations */
    struct hold_walk walk;
    uint64_t number;
    struct kernel_update_step numbers;
    bool is_scaled; /* these, by the norm of all gradients */
    struct trace_row *rows[CHANNELS];
    bool is_taken[CHANNELS];
    /* Transfers are under way since then; 0: none. How long lanes had computed by then. */
    int64_t busy_since, computed;
    size_t flying;      /* bytes of sends of buckets that are under way */
    size_t flying_most; /* others are begun only if they are no more together */
    bool holds;         /* some wait for that */
    struct times known,
        forgotten; /* of steps that are over, since net_start and net_forget_times; by lock */
};

/* Arrays of norms.c that are exchanged: of gradients, parameters and directions. */
enum { SQUARES = 3 };

int net_peer(const struct net *net, int node);
/* The stretches of bucket b that rail `rail` of a node owns, and the elements they are. */
void net_stretches(const struct net *net, int b, int node, int rail, int64_t *begin,
                   int64_t *end);
struct slice net_slice(const struct net *net, int b, int node, int rail);
/* This node's partial sum p of a slice, made if it does not lie there already; returns its vector. */
float *net_make_sum(struct net *net, int p, struct slice slice);
/* Begins a transfer, which joins the list. Not so a send that is held back (net.c says why). */
MUST_CHECK enum status net_transfer(struct net *net, struct transfers *list, bool sends,
                                    int peer, uint32_t tag, void *data, size_t bytes);
/* Are they? Moves on those that are not. */
MUST_CHECK enum status net_are_over(struct net *net, struct transfers *list, bool *over);
/* The item begins anew. */
void net_forget_transfers(struct item *item);
/* A row of the trace for an item, from its first transfer to its last. */
void net_take_channel(struct net *net, struct item *item);
void net_leave_channel(struct net *net, struct item *item);
/* Waits until no step is under way. */
MUST_CHECK enum status net_rest(struct net *net);
/* The thread's function: arg is the net. */
void *net_run(void *arg);

/* net_gather.c: what every node gets of every other ----------------------------------------- */

/* The item's parts of this node are there: they go to all nodes, and theirs come. Records, tables, losses and norms alone. */
MUST_CHECK enum status net_gather_begin(struct net *net, struct item *item);

/* net_codec.c: buckets whose gradients are compressed ------------------------------------- */

/* Is bucket b compressed by this rail? */
bool net_has_codec(const struct net *net, int b);
/* The rail that has a compressed bucket. */
int net_codec_rail(const struct exec *exec, int b);
/* NULL: not this rail's. */
struct codec_state *net_codec_state(const struct net *net, int b);
MUST_CHECK enum status net_codecs_create(struct net *net);
void net_codecs_destroy(struct net *net);
/* All lanes announced the bucket: its first payload is on its way. */
MUST_CHECK enum status net_codec_begin(struct net *net, struct item *item);
/* All payloads of a round are there: decodes; says whether that was the last round. */
MUST_CHECK enum status net_codec_arrived(struct net *net, struct item *item, bool *is_last);

/* net_unshard.c: parameters that are held in parts -------------------------------------------- */

MUST_CHECK enum status net_unshard_create(struct net *net);
void net_unshard_destroy(struct net *net);
/* The walk begins; an item of its moves on; nothing will. */
MUST_CHECK enum status net_unshard_begin(struct net *net);
MUST_CHECK enum status net_unshard_move(struct net *net, struct item *item, bool *moved);
void net_unshard_give_up(struct net *net);
/* Is nothing of bucket b asked for or given any more in this step? */
bool net_unshard_is_over(const struct net *net, int b);

/* net_rows.c: tables whose rows belong to nodes -------------------------------------------- */

MUST_CHECK enum status net_rows_create(struct net *net);
void net_rows_destroy(struct net *net);
/* All lanes announced the table: what others own of it is on its way. */
MUST_CHECK enum status net_rows_begin(struct net *net, struct item *item);
/* All messages of a round are there; says whether that was the last round, or whether sums are kept until norms are known:
 * then net_rows_update goes on. */
MUST_CHECK enum status net_rows_arrived(struct net *net, struct item *item, bool *is_kept,
                                        bool *is_last);
MUST_CHECK enum status net_rows_update(struct net *net, struct item *item);
/* The squares of what a node has summed of a table. */
struct exact_sum *net_row_squares(const struct exec *exec, int b, int node);
/* Collective: the state of the rows that a node owns goes from its first rank to rank 0. */
MUST_CHECK enum status net_rows_collect(struct exec *exec, int b, int node, int from);

#endif /* EXEC_WIRE_H */
