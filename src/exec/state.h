/* SPDX-License-Identifier: MIT */
/* state.h - what an executor keeps. Private to exec/.
 *
 * Shared memory of the job, the same on every rank:
 *
 *   counters      one of each task of the step program that another thread waits for (sched/program.h)
 *   arrivals      of every lane at every counter: when, and how often (account.c)
 *   losses        two steps' worth (even, odd) of one loss and one count a shard
 *   parameters    one flat vector: bucket 0, bucket 1, ...
 *   state         one such vector a state of the optimizer
 *   gradients     of every lane of every rank: one such vector a partial sum it may hold; none if there
 *                 is one shard and no clipping: buckets pass through the lane's arena then (plan.h)
 *   tables        of every gather: what each shard gives to all in the middle of a step (gather.c)
 *   records       of every shard: the factors of gradients that are not summed but made from them, and the
 *                 ids and dy of tables
 *   sum, squares  with clipping, LARS and LAMB: the summed gradient, of tables the rows that occur, and sums of
 *                 squares (norms.c)
 *
 * A layer whose columns belong to lanes (columns.c) has its weight, and the weight's state, with
 * the lanes from the first step after a settle until the next; the flat vectors are then stale.
 *
 * Of a job on several machines (nodes) each has such a block: parameters and state whole, gradients
 * of its own lanes, records and tables of all shards. Inter-node threads (net.c) bring what the others have.
 *
 * Who may write what, and after what, the step program says. Counters only grow; a task of step s is
 * awaited as (s + 1) times the members that raise its counter.
 */
#ifndef EXEC_STATE_H
#define EXEC_STATE_H

#include <pthread.h>

#include "base/pool.h"
#include "exec/exec.h"
#include "exec/hold.h"
#include "exec/packet.h"
#include "exec/pipe.h"
#include "exec/plan.h"
#include "exec/talk.h"
#include "exec/vectors.h"
#include "kernel/exact.h"
#include "kernel/tree.h"
#include "sched/lower.h"
#include "transport/transport.h"

/* In traces: a lane makes its part of a gradient of rows or factors, and uses it. */
#define EXEC_MAKING "gradient and update"

enum { ACCOUNT_NAME = 96, PLANS_MAX = 64, EVAL_ROWS = EXEC_PREDICT, LANES_MAX = 1024 };

struct times {
    int64_t compute, comm, wait, evaluate; /* nanoseconds */
    int64_t bubble;                        /* part of wait: for other stages */
    int64_t hidden;                        /* part of comm */
    int64_t bytes;                         /* from and to other ranks */
};

/* For how long at least one lane of this rank has computed. Any thread. */
struct overlap {
    pthread_mutex_t lock; /* a leaf; guards all below */
    int computing;        /* lanes */
    int64_t since;        /* the first of them began */
    int64_t computed;     /* nanoseconds, until there was none last */
};

/* Communication that goes on. */
struct span {
    int64_t begin, computed, traced;
};

/* A bucket that holds one linear layer, whose gradient is made from factors. */
struct factored {
    bool is_used;
    int64_t k, n;               /* of the weight; its bias, if any, follows at `bias` */
    int64_t bias;               /* elements from the beginning of the bucket; 0: none */
    size_t x, dy;               /* bytes, in a shard's record */
    const struct node *forward; /* if its columns belong to lanes: the layer (columns.c) */
    size_t y;                   /* then its output, in a shard's record */
};

/* A bucket that holds a table of which a step touches some rows (rows.c). */
struct row_sum {
    bool is_used;
    bool is_served;          /* by the nodes that own its rows (net_rows.c) */
    int64_t rows, width;     /* of the table */
    int64_t most;            /* ids of a shard, at most */
    bool is_near;            /* dy of all shards is small enough to stay in L2 */
    size_t order, begin, dy; /* bytes, in a shard's record */
};

/* What of the rows that occur one thread has put together for servers. */
struct row_range {
    int64_t at, count; /* rows, from the sum's first */
};

/* What goes to servers. */
struct remote {
    int n_sums;
    struct tree_part sums[2 * TREE_DEPTH];
    bool is_direct;              /* the sums are the lanes' partial sums themselves */
    float *data[2 * TREE_DEPTH]; /* else: where they are put together */
    int32_t *ids[GRAPH_NODE_IN]; /* of each table: of each shard its most, and their rows */
    float *rows[GRAPH_NODE_IN];
    struct row_range *ranges[GRAPH_NODE_IN]; /* of each sum, of each thread */
    _Atomic uint32_t arrived[GRAPH_NODE_IN]; /* lanes, since creation */
};

/* A lane's columns of such a layer's weight: k rows, `stride` apart, in memory that no other lane
 * touches. What a row has beyond its columns means nothing. */
struct columns {
    int64_t first, count, stride;
    float *param;
    float *state[KERNEL_STATES];
};

/* What a parameter has of a stretch (norms.c). */
struct piece {
    int param;
    int64_t stretch;  /* of all buckets */
    size_t at, count; /* of the flat vector */
};

/* By how much gradients of a step are scaled, worked out by the first that asks. */
struct clip {
    pthread_mutex_t lock; /* before the transport's; guards all below */
    uint32_t steps;       /* since creation, that one included */
    float scale;
};

/* Sums of squares before an update; what there is of them, clips, adapts and directs say. */
struct norms {
    struct piece *pieces; /* in the order of the flat vector */
    int64_t count;
    int64_t *of_stretch;          /* the first piece of each; one more: the end */
    int64_t *of_param;            /* the first piece of each that is trained */
    double *of_model, *of_others; /* squares of all parameters of the model, of ranks beside */
    /* Shared memory, one number a piece: of the summed gradient, of the parameter, of LAMB's directions. */
    double *gradients, *params, *moves;
    /* Likewise, norms_row_sums a bucket: of a table's rows, as each thread has summed them; if it is served, each
     * node. */
    struct exact_sum *rows;
};

/* What a classifier says of a sample. */
struct answer {
    int32_t class; /* the first of the largest logits */
    int32_t place; /* of the label: how many logits come before its own */
    float score;   /* see exec_answer */
};

/* One thread of this rank that runs whole shards. */
struct lane {
    struct exec *exec;
    int number;           /* among all lanes of this node */
    int64_t first, count; /* its shards */
    char *arena;          /* of the shard that runs now */
    char *arenas;         /* as many as the pipeline has shards under way; else it is the one */
    size_t arena_bytes;   /* of all of them */
    char *bases[BASE_COUNT];
    const struct plan *plan;       /* of the shard that runs now or ran last */
    struct plan *plans[PLANS_MAX]; /* for training, one for each extents */
    int n_plans;
    struct plan *eval_plans[PLANS_MAX];
    int n_eval_plans;
    struct columns *columns; /* one a bucket */
    float *gradients;        /* its buffers: buffer i at gradients + i * exec->layout.vector */
    int n_buffers;
    struct pool *pool; /* threads that share each op's work, or NULL */
    float *scratch;    /* reduce_scratch bytes for each of its threads */
    int next_task; /* of the program: its synchronization tasks below this are done in this step */
    struct kernel_update_step
        numbers;         /* of this step's updates, scaled when the norm is known */
    uint64_t announced;  /* buckets of this step */
    uint64_t unreleased; /* buckets announced whose memory is not given back yet (release.c) */
    int phase;           /* of the walk (hold.h) that it began last */
    uint32_t said;       /* blocks, to ranks that share layers (talk_shared.c) */
    uint32_t summed_when[GRAPH_NODE_IN]; /* these: what summed[b] is when nobody reads it */
    void *eval_x; /* EVAL_ROWS samples: their parts as source.h has them */
    int32_t *eval_x2, *eval_y;
    size_t eval_bytes[SOURCE_PARTS]; /* of a sample, in these */
    struct times times;
    int64_t *waited_for;     /* nanoseconds of times.wait by the rank that came last */
    struct trace_row *trace; /* NULL: not traced */
    bool computes;           /* in a step, and neither waits nor communicates */
    int64_t step_began;
    struct times step_times; /* as they were then */
    enum status status;
    char failure[256];
};

/* The ranks, lanes and shards of the job, and this rank's place among them. Constant after creation. */
struct exec_topology {
    int rank, ranks;                 /* of the job */
    int node, nodes;                 /* machines */
    int64_t shards;                  /* that these ranks run, numbered from 0 */
    int64_t first_shard;             /* what the job calls the first of them */
    int64_t tree_first, tree_shards; /* the tree calls it so, and has so many */
    int n_lanes, all_lanes;          /* of this rank, of all ranks of this node */
    int first_lane,
        job_lanes; /* this node's first lane among those of the job, and how many these are */
};

/* Parameters that this rank has, in the order of the model. */
struct exec_model {
    int count;
    const struct value **params;
    int *numbers; /* of each in the whole model */
    int total;    /* parameters and averages of that */
};

/* What the graph says of the memory of a step. Constant after creation. */
struct exec_layout {
    struct plan_buckets buckets;
    size_t vector;                        /* elements of a flat vector, all buckets */
    struct bucket updates[GRAPH_NODE_IN]; /* one a bucket */
    int n_states;
    bool clips;   /* the norm of all gradients is needed */
    bool adapts;  /* and so are those of each parameter (LARS, LAMB) */
    bool directs; /* which is moved along a direction, not the gradient (LAMB) */
    bool anchors; /* updates see sum + mu (param - anchor) + shift */
    float mu;
    struct factored factored[GRAPH_NODE_IN]; /* one a bucket */
    struct row_sum row_sums[GRAPH_NODE_IN];  /* one a bucket */
    struct plan_factors factors;
    struct shape *largest; /* of every value of the training graph, by id: the most in a step */
    size_t record;         /* bytes of a shard's factors */
    struct plan_gathers gathers;
    size_t tables_bytes; /* of all gathers */
    bool has_columns;    /* some layer's columns belong to lanes */
};

/* Memory that the ranks of this node share. */
struct exec_shared {
    void *block;
    size_t bytes;
    struct transport_counter *counters; /* one a signal of the program */
    uint32_t *flags;          /* [2][ranks]: what ranks say to each other with a step */
    float *losses, *corrects; /* [2][shards] */
    float *param;
    float *state[KERNEL_STATES];
    float *anchor, *shift; /* written between steps; NULL: the graph has none */
    float *kept;           /* exec_keep_gradient, or NULL */
    char *records;         /* every shard's factors */
    char *tables;          /* of every gather, every shard's */
    float *sum;
    struct tree_part *parts; /* of all lanes, in the order of shards, and of other nodes */
    int n_parts, own_parts;  /* own: of this rank's lanes */
};

/* An evaluation that runs now, and memory for its results. */
struct exec_evaluation {
    float *losses, *corrects; /* one a batch; shared, made when first needed */
    struct answer *answers;   /* likewise, one a sample; NULL: the model has no classes */
    int64_t capacity;
    const struct source *data;
    int64_t begin, end;           /* batches that are evaluated now */
    struct extents extents;       /* of the last one prepared */
    float *outputs;               /* exec_keep_outputs, or NULL */
    const int64_t *predict_index; /* samples that exec_predict is about, and their outputs */
    int64_t predict_count;
    float *predict_out;
    int classes; /* of the last evaluation: logits a sample; 0: no classifier */
    uint32_t count;
};

/* Waiting times, and the names of what is waited for (account.c). */
struct exec_account {
    void *arrivals;
    struct overlap overlap;
    char (*bucket_names)[ACCOUNT_NAME]; /* "bucket 3 (fc1.weight and 1 more)" */
    char (*reduce_names)[ACCOUNT_NAME]; /* "reduce_scatter of " and that */
    char (*rank_names)[16];
    struct task_name
        *task_names; /* of the program's tasks, for the trace; NULL: there is none */
};

/* The step that runs now. */
struct exec_now {
    const struct batch *batch; /* NULL between steps: the caller's again */
    uint64_t step;             /* its number, which stays for messages */
    struct kernel_update_step numbers;
    uint32_t steps; /* done since creation: what counters are compared with */
};

struct exec {
    struct exec_config config;
    struct transport *transport;
    struct exec_topology topology;
    struct exec_model model;
    struct exec_layout layout;
    struct exec_shared memory;
    struct exec_evaluation eval;
    struct exec_account account;
    struct exec_now now;
    struct norms norms;
    struct clip clip;
    struct hold hold;           /* parameters that are held in parts */
    struct program *program;    /* what this node's lanes and inter-node threads do in a step */
    struct net *net;            /* to other nodes, or NULL */
    struct remote *remote;      /* what goes to servers, or NULL */
    struct average *average;    /* with other workers, or NULL */
    struct pipe *pipe;          /* to other stages, or NULL */
    struct device_side *device; /* what is on a device, if it runs there; else NULL */
    struct lane *lanes;
    struct pool *lanes_pool; /* runs the lanes, if there are several */
    size_t arena_bytes;      /* of a lane's arena as it is now */
    uint32_t tensor_tags;    /* of config.tensor: one a lane */
    uint32_t beside_tag;     /* of what is told; the next is of what is added */
    bool releases;           /* gradients give their memory back (release.c) */
    size_t window;      /* bytes of gradients, or of parameters, that are under way at once */
    bool columns_taken; /* the lanes' columns are newer than the flat vectors */
    uint32_t settles;
    uint32_t says; /* exec_say */
};

/* Accounts -------------------------------------------------------------------------------- */

/* Of shared memory, for the lanes' arrivals. */
size_t account_bytes(const struct exec *exec);
MUST_CHECK enum status account_create(struct exec *exec);
void account_destroy(struct exec *exec);
/* Tasks are given by their numbers in the program, which are not negative. The counter of one; what
 * it is when the task is done in a step, counted since creation. */
static inline struct transport_counter *exec_counter(const struct exec *exec, int task)
{
    BUG_ON(task < 0 || exec->program->tasks[task].signal < 0);
    return &exec->memory.counters[exec->program->tasks[task].signal];
}
static inline uint32_t exec_target(const struct exec *exec, int task, uint32_t step)
{
    return program_target(&exec->program->tasks[task], step);
}
static inline bool exec_task_is_done(const struct exec *exec, int task, uint32_t step)
{
    return transport_reached(exec_counter(exec, task), exec_target(exec, task, step));
}
/* This lane has done the task: increments its counter, and notes when. */
void lane_signal(struct lane *lane, int task);
/* The same for this rank's inter-node thread: what came from `rank` came last. */
void net_signal(struct exec *exec, int task, int rank);
/* The inter-node thread waits for something from `rank` before the task is done; -1: for lanes of this node. */
void net_expects(struct exec *exec, int task, int rank);
/* Waits until the task's counter comes to a value, counting the time and for whom; `what` lives until
 * the trace is printed. exec_wait: until the task is done in the step that runs; exec_wait_last: in the
 * step before; -1 is no task. */
MUST_CHECK enum status exec_wait_until(struct exec *exec, struct lane *lane, int task,
                                       uint32_t target, const char *what);
MUST_CHECK enum status exec_wait(struct exec *exec, struct lane *lane, int task,
                                 const char *what);
MUST_CHECK enum status exec_wait_last(struct exec *exec, struct lane *lane, int task,
                                      const char *what);
/* A lane computes from begin to end of a step but where it waits or communicates. */
void lane_begin_step(struct lane *lane);
void lane_end_step(struct lane *lane);
/* Communication within a step; name and `of` as trace.h has them. */
struct span lane_begin_comm(struct lane *lane);
void lane_end_comm(struct lane *lane, struct span span, const char *name, const char *of);
/* A thread that communicates beside the lanes asks how long lanes had computed when it began, and
 * when it ended: the difference was hidden. Enter and leave are for lanes. */
int64_t overlap_computed(struct overlap *overlap, int64_t now);
void overlap_enter(struct overlap *overlap, int64_t now);
void overlap_leave(struct overlap *overlap, int64_t now);

/* What this rank says with its step, before it meets others; and what all have said with it, afterwards. */
void exec_tell(struct exec *exec);
uint32_t exec_heard(const struct exec *exec);

/* For tests of faults. */
void exec_meet(struct exec *exec, const char *point);
/* Runs a function on every lane and gives the first failure. */
MUST_CHECK enum status exec_on_lanes(struct exec *exec, void (*fn)(struct lane *lane));

/* The plan for a shard's extents, made if it is not there yet. Not for use inside a lane. */
MUST_CHECK enum status exec_prepare(struct exec *exec, struct extents extents, bool evaluation);
/* This lane's plan for them. */
const struct plan *lane_plan(const struct lane *lane, struct extents extents, bool evaluation);

/* Waits for a message from another stage, or until one has gone there: time in which a pipeline is empty. */
MUST_CHECK enum status exec_wait_for_stage(struct lane *lane, struct transport_request *request,
                                           int stage);

/* A shard that a lane runs now. */
struct lane_shard {
    int64_t v;
    const struct plan *plan; /* NULL: it has no samples */
    struct tree_stack *stack;
    struct kernel_step step;
};
/* Points the lane to the memory of shard v, and puts the shard on the stack. */
struct lane_shard lane_begin_shard(struct lane *lane, int64_t v, struct tree_stack *stack);
/* The shard that the lane is pointed to has no samples: its loss is zero. Once a step, before its tasks. */
void lane_leave_no_loss(const struct lane *lane);
/* The plan of shard v of the step that runs; NULL: it has no samples. */
const struct plan *lane_plan_of(const struct lane *lane, int64_t v);
/* lane.c: runs the lane's tasks among [begin, end) of the program for a shard; `shard` is NULL for
 * those that run once a step. */
MUST_CHECK enum status lane_run_tasks(struct lane *lane, int begin, int end,
                                      const struct lane_shard *shard);
/* Finds the instructions of each task in a plan for training. */
MUST_CHECK enum status lane_find_ranges(const struct exec *exec, struct plan *plan);
/* Copies the samples of shard v that are a factor of a gradient to the shard's record. */
void lane_copy_samples(struct lane *lane, int64_t v);
/* sync.c: waits for all that a task waits for. */
MUST_CHECK enum status lane_await(struct lane *lane, const struct task *task);

/* Runs one instruction of a plan. Only one that talks can fail. */
MUST_CHECK enum status lane_run(struct lane *lane, const struct instruction *instruction,
                                const struct kernel_step *step);

/* Layers whose columns belong to lanes ------------------------------------------------------ */

/* Finds the layer of a factored bucket, if its columns can belong to lanes. */
MUST_CHECK enum status columns_find(struct exec *exec, int bucket);
MUST_CHECK enum status columns_create(struct lane *lane);
void columns_destroy(struct lane *lane);
/* Bytes of scratch that a lane needs for columns_compute. */
size_t columns_scratch(const struct exec *exec);
/* Computes this lane's columns of the layer of bucket b for all shards. */
void columns_compute(struct lane *lane, int b);
/* Puts the lanes' columns of this rank back to the flat vectors. */
void columns_return(struct exec *exec);

/* The samples of shard v: how many, where in the step that runs they begin. */
struct samples {
    int64_t begin, rows;
};
struct samples exec_samples(const struct exec *exec, int64_t v);

/* Shards [first, first + count) of a lane of the job, and of a node. */
void exec_lane_row(const struct exec *exec, int lane, int64_t *first, int64_t *count);
void exec_node_row(const struct exec *exec, int node, int64_t *first, int64_t *count);

/* Gives a place in every shard's record to a value; one that serves several buckets has one. */
MUST_CHECK enum status exec_place_factor(struct exec *exec, const struct value *value,
                                         int bucket, size_t *out_offset);
/* The value whose memory this one is, before any ranks gather it. */
const struct value *exec_source_of(const struct value *value);

/* Tables of which a step touches some rows ------------------------------------------------- */

/* Reads a row_sum node. */
MUST_CHECK enum status rows_find(struct exec *exec, const struct node *node);
/* The shard that the lane is about has no samples, so gives nothing to bucket b. */
void rows_leave_empty(const struct lane *lane, int b);
/* Bytes of scratch that a thread needs for rows_update. */
size_t rows_scratch(const struct exec *exec);
/* How many rows of a shard's ids there are in bucket b, those that occur twice counted twice. */
int64_t rows_entries(const struct exec *exec, int b, int64_t shard);
/* Sums and updates this lane's range of the rows of bucket b that occur, or, where norms are needed before, keeps the
 * sums with their squares, and updates by what was kept. */
void rows_update(struct lane *lane, int b, const struct kernel_update_step *numbers);
void rows_keep(struct lane *lane, int b);
void rows_update_kept(struct lane *lane, int b, const struct kernel_update_step *numbers);
/* Sums them into exec->remote; when every lane has, rows_join closes the gaps of a sum's list. */
void rows_give(struct lane *lane, int b);
struct exec_rows rows_join(struct exec *exec, int b, int sum);
/* Threads of all lanes that put rows together. */
int rows_threads(const struct exec *exec);

/* The sums over some shards, all in memory, of the rows of bucket b that occur, added to the packet of their
 * owner: id modulo owners. */
void rows_merge(struct lane *lane, int b, struct tree_node shards, int owners,
                struct rows_packet *out);
/* Adds packets of all shards along the tree and updates the table by that; gives the new rows. */
void rows_update_packets(struct lane *lane, int b, const struct rows_packet *packets, int count,
                         const struct kernel_update_step *numbers, struct rows_packet *out);
/* The same in two, where norms are needed between: gives the sums, with their squares; then, of these, the new rows. */
void rows_sum_packets(struct lane *lane, int b, const struct rows_packet *packets, int count,
                      struct rows_packet *out, struct exact_sum *squares);
void rows_update_packet(struct lane *lane, int b, const struct kernel_update_step *numbers,
                        struct rows_packet *packet);

/* Meetings in the middle of a step --------------------------------------------------------- */

/* Finds the graph's gathers and gives them their places. */
MUST_CHECK enum status gathers_find(struct exec *exec);
/* Refuses lanes that have several shards if there are gathers. */
MUST_CHECK enum status gathers_check(const struct exec *exec);
/* The lane's shard has no samples: its table of gather g is zero. */
void gather_write_zeros(struct lane *lane, int g);

/* Norms -------------------------------------------------------------------------------------- */

/* A stretch of a bucket. */
struct stretch {
    int bucket;
    int64_t number;   /* in the bucket */
    size_t at, count; /* of the flat vector */
};
struct piece_range {
    int64_t begin, end;
};

/* Are losses scaled, as a device computes in f16? */
static inline bool exec_scales(const struct exec *exec)
{
    return exec->config.device && exec->config.device->precision == DTYPE_F16;
}

/* Must the norm of all gradients be known, or that it is finite, before anything is updated? */
static inline bool exec_needs_norm(const struct exec *exec)
{
    return exec->layout.clips || exec_scales(exec);
}

static inline bool norms_are_used(const struct exec *exec)
{
    return exec_needs_norm(exec) || exec->layout.adapts;
}
/* Are a parameter's squares this rank's to count? Of ranks that share layers all have what is not cut: the first one's count. */
bool norms_count(const struct exec *exec, const struct value *value);
MUST_CHECK enum status norms_create(struct exec *exec);

/* privacy.c: what config.privacy asks for. */
MUST_CHECK enum status privacy_check(const struct exec *exec);
/* Scales the gradients of the shard that ran last. */
void privacy_clip(struct lane *lane, float inv_batch);
/* A copy of elements [at, at + count) of the sum with noise, in `out`, which is returned. */
const float *privacy_noise(const struct exec *exec, int bucket, const float *sum, size_t at,
                           size_t count, float *out);
/* What means of the step that runs are divided by. */
int64_t exec_step_weight(const struct exec *exec);

void norms_destroy(struct exec *exec);
/* Sums of squares of rows that there are of each bucket. */
size_t norms_row_sums(const struct exec *exec);
/* Where the arrays of squares have stretches [first, end) of bucket b. */
struct piece_range norms_pieces(const struct exec *exec, int b, int64_t first, int64_t end);

/* The first phase: keeps a stretch's summed gradient, or its direction, and the squares. */
void norms_keep(struct exec *exec, const struct stretch *stretch, const float *sum,
                const struct kernel_update_step *numbers);
/* LAMB with clipping, between the two: makes directions of what was kept. */
void norms_direct(struct exec *exec, const struct stretch *stretch,
                  const struct kernel_update_step *numbers);
/* When all squares of gradients are there: the norm of all together. */
MUST_CHECK enum status norms_of_all(struct exec *exec, double *out);
/* The last trust ratio that was worked out: param -1 at first. */
struct trusted {
    int param;
    float ratio;
};
/* The last phase of what adapts: updates a stretch, each parameter with its own ratio. */
void norms_update(struct exec *exec, const struct stretch *stretch, struct trusted *trusted,
                  const struct kernel_update_step *numbers);

/* Reduction ------------------------------------------------------------------------------- */

/* Runs this lane's synchronization tasks in program order, waiting for what those below `end` wait for;
 * the first of the others that is not ready ends it (sync.c). */
MUST_CHECK enum status lane_sync(struct lane *lane, int end);

/* Bytes of scratch that a thread needs for reduce_bucket. */
size_t reduce_scratch(const struct lane *lane);

enum reduce_what { SUM_AND_UPDATE, SUM_AND_KEEP, SUM_AND_GIVE, DIRECT, UPDATE };
/* Works on this lane's part of a bucket. */
void reduce_bucket(struct lane *lane, int b, enum reduce_what what,
                   const struct kernel_update_step *numbers);
/* What this rank reads in a step of bucket b that other ranks have written. */
int64_t reduce_bytes(const struct exec *exec, int b);
/* Stretches of bucket b. */
int64_t reduce_stretches(const struct exec *exec, int b);
/* Works on stretches [begin, end) of a bucket that has a gradient. sum: the bucket's, if it is made
 * already; else NULL. */
void reduce_stretches_of(struct lane *lane, int b, int64_t begin, int64_t end,
                         enum reduce_what what, const float *sum,
                         const struct kernel_update_step *numbers);
/* Makes what lies between the gradients of a bucket zero. */
void reduce_clear_gaps(const struct exec *exec, int b, float *gradients);
/* The factor by which gradients of this step (since creation) are scaled so that their norm is not over the limit; all
 * squares are there. Lanes and the inter-node thread may ask; where there are ranks beside it waits for them, once a
 * step. */
MUST_CHECK enum status reduce_clip_scale(struct exec *exec, uint32_t step, float *out);

/* Memory of gradients (release.c) ---------------------------------------------------------- */

/* This lane has announced bucket b. */
void release_announced(struct lane *lane, int b);
/* Gives back the gradients of b that were announced last, if that has not been done: all have summed them. */
void release_bucket(struct lane *lane, int b);
/* The same of every bucket that is summed by now. */
void release_summed(struct lane *lane);

/* Servers --------------------------------------------------------------------------------- */

/* Makes what is needed to give sums to servers, when lanes have their rows. */
MUST_CHECK enum status remote_create(struct exec *exec);
void remote_destroy(struct exec *exec);
/* The parts that lanes hold have their places. */
void remote_start(struct exec *exec);
/* Puts the sums of [at, at + count) together. */
void remote_sum(struct exec *exec, size_t at, size_t count, float *scratch);
/* This lane has done what it does for bucket b; the last one gives it. */
MUST_CHECK enum status remote_arrive(struct lane *lane, int b);
/* Waits for the bucket's parameters. */
MUST_CHECK enum status remote_await(struct lane *lane, int b);

/* Other workers --------------------------------------------------------------------------- */

/* Collective over config.workers: what the PLACE_HOST tasks of the program need. */
MUST_CHECK enum status average_create(struct exec *exec);
void average_destroy(struct exec *exec);

/* Other nodes ----------------------------------------------------------------------------- */

/* Ranks of a node that talk to other nodes: its first ones. */
int net_rails(const struct exec *exec);

struct task_name {
    char text[112], number[12]; /* "reduce_scatter bucket 3", "17" */
};
/* lower.c: lowers the graph to this rank's program, and verifies it against those of all nodes. */
MUST_CHECK enum status exec_make_program(struct exec *exec);
void exec_destroy_program(struct exec *exec);
/* An event for a task of the program that this thread ran from `begin` until now; 0: none. */
void exec_trace_task(const struct exec *exec, struct trace_row *row, int64_t begin, int task);
/* Is bucket b made of what every shard gives, not of gradients that are summed? */
static inline bool bucket_is_gathered(const struct exec *exec, int b)
{
    return exec->layout.factored[b].is_used ||
           (exec->layout.row_sums[b].is_used && !exec->layout.row_sums[b].is_served);
}
/* Is bucket b a table whose rows go to the nodes that own them? */
static inline bool bucket_is_served(const struct exec *exec, int b)
{
    return exec->layout.row_sums[b].is_served;
}
/* Does a node hold its part of the parameters alone, but while they are read? */
static inline bool bucket_is_held(const struct exec *exec, int b)
{
    return exec->hold.buckets >> b & 1;
}
/* Does its gradient go to other nodes compressed? Then all nodes update all of it. */
bool bucket_is_compressed(const struct exec *exec, int b);
/* Makes what a rank needs to talk to other nodes, before the shared memory is laid out; net_start begins
 * to. */
MUST_CHECK enum status net_create(struct exec *exec);
MUST_CHECK enum status net_start(struct exec *exec);
void net_destroy(struct exec *exec);
/* The step that exec is about begins. */
MUST_CHECK enum status net_begin(struct exec *exec, struct extents extents);
/* Communication of the inter-node thread, and what of it was hidden, since the last net_forget_times. */
struct times net_times(const struct exec *exec);
void net_forget_times(struct exec *exec);
/* What is kept for compression, as states behind the optimizer's: one vector each, on rank 0. */
enum { NET_BASIS /* the first; errors of nodes follow */ };
int net_states(const struct exec *exec);
float *net_state(const struct exec *exec, int state);
/* Collective: returns when every node has called it. */
MUST_CHECK enum status net_barrier(struct exec *exec);
/* Collective, on a settled exec: node 0's parameters and state of bucket b go to all, and what others own
 * comes to node 0. */
MUST_CHECK enum status net_publish(struct exec *exec, int b, int what);
MUST_CHECK enum status net_collect(struct exec *exec, int b, int what);
/* Node 0 forgets what of bucket b others own. */
void net_forget(struct exec *exec, int b);
/* Likewise: what is kept for compression. */
MUST_CHECK enum status net_move_vectors(struct exec *exec, bool publishes);
/* Called by the first rank of each node: it gets the entries of `array` that other nodes have made. `maker`
 * tells which node made which. */
MUST_CHECK enum status net_merge(struct exec *exec, void *array, size_t count, size_t bytes,
                                 int (*maker)(const struct exec *exec, size_t entry));

#endif /* EXEC_STATE_H */
