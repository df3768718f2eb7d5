/* SPDX-License-Identifier: MIT */
/* state.h - what an executor keeps. Private to exec/.
 *
 * Shared memory of the job, the same on every rank:
 *
 *   counters      ready[b], done[b] of each bucket, met[g] of each gather, reduced, evaluated
 *   losses        two steps' worth (even, odd) of one loss and one count a shard
 *   parameters    one flat vector: bucket 0, bucket 1, ...
 *   state         one such vector a state of the optimizer
 *   gradients     of every lane of every rank: one such vector a partial sum it may hold; none if there
 *                 is one shard and no clipping: buckets pass through the lane's arena then (plan.h)
 *   tables        of every gather: what each shard gives to all in the middle of a step (gather.c)
 *   records       of every shard: the factors of gradients that are not summed but made from them, and the
 *                 ids and dy of tables
 *   sum, squares  with clipping: the summed gradient, and a sum of squares a stretch
 *
 * A layer whose columns belong to lanes (columns.c) has its weight, and the weight's state, with
 * the lanes from the first step after a settle until the next; the flat vectors are then stale.
 *
 * Who may write what: a lane its own gradients until it raises ready[b]; after all lanes have, each
 * lane its own part of bucket b's parameters, state and sum, until it raises done[b]. Counters
 * only grow; step s is awaited as s times the number of lanes.
 */
#ifndef EXEC_STATE_H
#define EXEC_STATE_H

#include "base/pool.h"
#include "exec/exec.h"
#include "exec/plan.h"
#include "exec/tree.h"
#include "transport/transport.h"

enum { PLANS_MAX = 64, EVAL_ROWS = EXEC_PREDICT, LANES_MAX = 1024 };

struct times {
    int64_t compute, comm, wait, evaluate; /* nanoseconds */
};

/* How a bucket is updated. */
struct update {
    const struct kernel_update *kernel;
    struct attrs attrs;
    bool is_average; /* not trained: has no state and no part in the gradient's norm */
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
    int64_t rows, width;     /* of the table */
    size_t order, begin, dy; /* bytes, in a shard's record */
};

/* A lane's columns of such a layer's weight: k rows, `stride` apart, in memory that no other lane
 * touches. What a row has beyond its columns means nothing. */
struct columns {
    int64_t first, count, stride;
    float *param;
    float *state[KERNEL_STATES];
};

/* What a classifier says of a sample. */
struct answer {
    int32_t class; /* the first of the largest logits */
    int32_t place; /* of the label: how many logits come before its own */
};

/* One thread of this rank that runs whole shards. */
struct lane {
    struct exec *exec;
    int number;           /* among all lanes of all ranks */
    int64_t first, count; /* its shards */
    char *arena;
    size_t arena_bytes;
    char *bases[BASE_COUNT];
    const struct plan *plan;       /* of the shard that runs now or ran last */
    struct plan *plans[PLANS_MAX]; /* for training, one for each extents */
    int n_plans;
    struct plan *eval_plans[PLANS_MAX];
    int n_eval_plans;
    struct columns *columns; /* one a bucket */
    float *gradients;        /* its buffers: buffer i at gradients + i * exec->vector */
    struct pool *pool;       /* threads that share each op's work, or NULL */
    float *scratch;          /* reduce_scratch bytes for each of its threads */
    int next_bucket;         /* buckets below this are summed and updated in this step */
    int next_gather;         /* gathers below this have met in this step */
    void *eval_x;            /* EVAL_ROWS samples: their parts as source.h has them */
    int32_t *eval_x2, *eval_y;
    size_t eval_bytes[SOURCE_PARTS]; /* of a sample, in these */
    struct times times;
    enum status status;
    char failure[256];
};

struct exec {
    struct exec_config config;
    struct transport *transport;
    int rank, ranks;
    int n_lanes, all_lanes;  /* of this rank, of all ranks */
    struct pool *lanes_pool; /* runs the lanes, if there are several */
    struct plan_buckets buckets;
    size_t vector;                        /* elements of a flat vector, all buckets */
    struct update updates[GRAPH_NODE_IN]; /* one a bucket */
    bool clips;
    struct factored factored[GRAPH_NODE_IN]; /* one a bucket */
    struct row_sum row_sums[GRAPH_NODE_IN];  /* one a bucket */
    struct plan_factors factors;
    struct shape
        *largest;  /* of every value of the training graph, by id: the most that a step may
                              have */
    size_t record; /* bytes of a shard's factors */
    struct plan_gathers gathers;
    size_t tables_bytes; /* of all gathers */
    int n_states;

    int n_params;
    const struct value **params;

    /* Shared memory */
    void *shared;
    size_t shared_bytes;
    struct transport_counter *met; /* one a gather */
    struct transport_counter *ready, *done, *reduced, *evaluated, *settled, *gathered, *joined;
    float *losses, *corrects; /* [2][shards] */
    float *param;
    float *state[KERNEL_STATES];
    char *records; /* every shard's factors */
    char *tables;  /* of every gather, every shard's */
    float *sum;
    double *squares; /* one a stretch of the flat vector */
    float *eval_losses,
        *eval_corrects;          /* one an evaluation batch; shared, made when first needed */
    struct answer *eval_answers; /* likewise, one a sample; NULL: the model has no classes */
    int64_t eval_capacity;
    struct tree_part *parts; /* of all lanes; same addresses everywhere */
    int n_parts;

    struct lane *lanes;
    size_t arena_bytes; /* of a lane's arena as it is now */
    uint32_t steps;     /* done since creation: what counters are compared with */
    uint32_t evaluations, settles;
    bool has_columns;   /* some layer's columns belong to lanes */
    bool columns_taken; /* the lanes' columns are newer than the flat vectors */

    /* The step that runs now */
    const struct batch *batch; /* NULL between steps: the caller's again */
    uint64_t step;             /* its number, which stays for messages */
    struct kernel_update_step numbers;
    const struct source *eval_data;
    int64_t eval_begin, eval_end; /* batches that are evaluated now */
    struct extents eval_extents;  /* of the last one prepared */
    float *eval_outputs;          /* exec_keep_outputs, or NULL */
    const int64_t *predict_index; /* samples that exec_predict is about, and their outputs */
    int64_t predict_count;
    float *predict_out;

    int64_t *confusion; /* of the last evaluation, classes x classes */
    int classes;        /* logits a sample; 0: no classifier */
};

/* Waits, counting the time; `what` must be a literal (see transport_note). */
MUST_CHECK enum status exec_wait(struct exec *exec, struct lane *lane,
                                 struct transport_counter *counter, uint32_t target,
                                 const char *what);
/* For tests of faults. */
void exec_meet(struct exec *exec, const char *point);
/* Runs a function on every lane and gives the first failure. */
MUST_CHECK enum status exec_on_lanes(struct exec *exec, void (*fn)(struct lane *lane));

/* The plan for a shard's extents, made if it is not there yet. Not for use inside a lane. */
MUST_CHECK enum status exec_prepare(struct exec *exec, struct extents extents, bool evaluation);
/* This lane's plan for them. */
const struct plan *lane_plan(const struct lane *lane, struct extents extents, bool evaluation);

/* Runs one instruction of a plan. */
void lane_run(struct lane *lane, const struct instruction *instruction,
              const struct kernel_step *step);

/* Layers whose columns belong to lanes ------------------------------------------------------ */

/* Finds the layer of a factored bucket, if its columns can belong to lanes. */
MUST_CHECK enum status columns_find(struct exec *exec, int bucket);
MUST_CHECK enum status columns_create(struct lane *lane);
void columns_destroy(struct lane *lane);
/* Bytes of scratch that a lane needs for lane_join. */
size_t columns_scratch(const struct exec *exec);
/* Begins a step: all lanes together compute these layers for all shards. */
MUST_CHECK enum status lane_join(struct lane *lane);
/* Puts the lanes' columns of this rank back to the flat vectors. */
void columns_return(struct exec *exec);

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
/* Sums and updates this lane's range of the rows of bucket b that occur. */
void rows_update(struct lane *lane, int b, const struct kernel_update_step *numbers);

/* Meetings in the middle of a step --------------------------------------------------------- */

/* Finds the graph's gathers and gives them their places. */
MUST_CHECK enum status gathers_find(struct exec *exec);
/* Refuses lanes that have several shards if there are gathers. */
MUST_CHECK enum status gathers_check(const struct exec *exec);
/* This lane's table of gather g is made. */
void lane_give_table(struct lane *lane, int g);
/* Gives tables of zeros: the shard has no samples. */
void lane_give_empty_tables(struct lane *lane);
/* Waits until every lane has given its tables of the gathers below `end`. */
MUST_CHECK enum status lane_await_tables(struct lane *lane, int end);

/* Reduction ------------------------------------------------------------------------------- */

/* Bytes of scratch that a thread needs for lane_reduce. */
size_t reduce_scratch(const struct lane *lane);
/* Sums and updates this lane's part of the buckets, in order, as far as they are ready; with
 * `all` it waits for those that are not. */
MUST_CHECK enum status lane_reduce(struct lane *lane, bool all);

#endif /* EXEC_STATE_H */
