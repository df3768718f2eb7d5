/* SPDX-License-Identifier: MIT */
/* exec.h - runs the graph a strategy made, on one rank.
 *
 * A rank runs its shards on its threads: one whole shard a thread where there are at least as many
 * shards as threads ("lanes"), else all threads share each op. Parameters, optimizer state and
 * every lane's gradients lie in memory that all ranks of the machine see. As soon as a lane's
 * gradients of a bucket are final it says so; when all lanes of all ranks have, each sums its
 * part of the bucket over all of them along the tree of shards and updates that part, mostly
 * while backward still runs. The next step's forward waits only for the buckets it is about
 * to read. After the first step of a shape nothing is allocated.
 *
 * Threads: one thread a rank calls; every rank makes the same calls.
 * Errors:  STATUS_PEER_LOST as transport.h has it; then only exec_destroy is valid.
 */
#ifndef EXEC_EXEC_H
#define EXEC_EXEC_H

#include <stdbool.h>
#include <stdint.h>

#include "base/sha256.h"
#include "base/status.h"
#include "base/trace.h"
#include "comm/codec.h"
#include "comm/comm.h"
#include "data/loader.h"
#include "data/source.h"
#include "graph/graph.h"
#include "kernel/device.h"
#include "kernel/tree.h"
#include "optim/optim.h"
#include "pass/schedule.h"

struct exec;
struct program; /* sched/program.h */

/* Of a job's shards those that a private executor runs: one of a single rank inside a rank of the
 * job, with parameters and steps of its own. All else that depends on samples is as in the job:
 * which there are, the rows of a shard, random numbers. */
struct exec_part {
    int64_t first, count; /* shards; count 0: all of them */
    /* Alone (false): the part is a step of its own. Its shards have a tree of their own, and
     * gradients and losses are means over its samples; a step in which it has none changes nothing.
     * With others: partial sums are those of the tree over all shards, and means are over the whole
     * step; somebody else adds what the other parts have. */
    bool with_others;
};

/* Who keeps the parameters, if it is not the executor itself: servers (pass/serve.c). A private
 * executor gives them the sums of its gradients, bucket by bucket while backward runs, and reads a
 * bucket's parameters when they have come, while forward runs. Whoever is behind these functions
 * has exec_vector's memory in between: of a bucket that was given, the sums and the parameters are
 * theirs until `await` has returned. */
struct exec_rows {
    struct tree_node node; /* of the tree over shards, whose sum it is */
    const int32_t *ids;    /* ascending */
    const float *rows;     /* as wide as the table's */
    int64_t count;
};
struct exec_remote {
    void *arg;
    /* By exec_create, once: memory for what is given, zeroed, aligned to 64, as long as the
     * executor lives. */
    MUST_CHECK enum status (*memory)(void *arg, size_t bytes, void **out);
    /* The sums of a bucket's gradients are final (exec_sums). By the lane that came last; returns
     * soon. */
    MUST_CHECK enum status (*give)(void *arg, int bucket);
    /* The same of a table (vectors.h): of each of the sums, the rows that occur. The lists are read
     * before it returns. */
    MUST_CHECK enum status (*give_rows)(void *arg, int bucket, const struct exec_rows *lists,
                                        int n_lists);
    /* Waits until the parameters are those for the next step. By every lane, and again when they
     * are there; also before anything was given, when they are the caller's. */
    MUST_CHECK enum status (*await)(void *arg, int bucket);
};

/* A device that steps and evaluations run on, whole: threads are not used. Parameters and state lie
 * there; functions that read them here say what brings them. Ranks of one machine may have one
 * device or several, of the same name; those of several machines have one each. */
struct exec_device {
    const struct device_face *face;
    struct device *device; /* borrowed */
    int number;            /* its own, of which it was opened */
    enum dtype precision;  /* f32, bf16 or f16: what kernels compute with; parameters are f32 */
    bool draws;            /* of bf16: updates leave parameters in it, rounded by chance */
    bool rounds;           /* of f32: products and convolutions may round operands, to TF32 */
    bool same_batch;       /* every step has the samples of the first: for measurements */
    size_t group_bytes;    /* of gradients that ranks sum at once; 0: 32 MiB */
    bool sends;            /* ranks send messages though they could read each other's memory */
};

/* Privacy of samples: with a shard for each sample of a batch, the gradient of each is clipped
 * before it is added to others, and the sum gets noise before an update sees it. For one rank;
 * models without batch norm. */
struct exec_privacy {
    double clip; /* norm of a sample's gradient, not divided by the step's weight */
    void *arg;
    /* Adds noise to elements [at, at + count) of the sum, which is divided by `weight` already. By
     * any lane, in any order: what is added may depend on step and `at` alone. */
    void (*add)(void *arg, uint64_t step, int64_t weight, size_t at, float *sum, size_t count);
};

/* A pipeline whose stages hold different parameters (pass/stage.c); stages below 2: none. The
 * executor's ranks, those of `comm`, are then the ones that have the same stage. */
struct exec_pipeline {
    int stages, own; /* this rank's number */
    enum pipe_kind kind;
    int chunks;
    struct transport *transport; /* joins the stages, in order; borrowed */
    bool
        ordered; /* one stage alone goes by its schedule, too: so shards of a pipeline are timed */
};

/* Workers that train alone, each with a private executor. They average their parameters every so
 * many steps, as the graph's nodes worker_mean say (pass/average.c). */
struct exec_workers {
    int count, index;  /* index: of this one; count 0: it averages with nobody */
    int nodes;         /* that they are on */
    struct comm *comm; /* joins them, in their order; borrowed. NULL: exec_lower */
};

/* All ranks that work on the same samples as this one: of other stages, too. They tell each other
 * how a step went. */
struct exec_beside {
    struct transport *transport; /* borrowed; NULL: there is none but this rank */
    int teller;                  /* the one of them that knows losses and outputs */
};

struct exec_config {
    const struct graph *train; /* after a strategy's passes; borrowed while exec lives */
    const struct graph *eval;  /* after pass_evaluation, or NULL */
    struct comm *comm;         /* borrowed */
    int threads;
    int64_t shards, batch; /* of the whole job; batch 0: evaluations alone, no steps */
    /* Rank r has shards [rows[r], rows[r + 1]), one at least; borrowed while exec lives. NULL: all
     * ranks have as many, or one more than others. Bits do not depend on it. */
    const int64_t *rows;
    struct exec_part part;            /* for one rank, without sync_norm's gathers */
    const struct exec_remote *remote; /* borrowed; for one rank; NULL: none */
    /* Of parts: joins executors with the same parameters that share the work of an evaluation,
     * which is collective then. Borrowed; NULL: this one does it all. */
    struct comm *evaluators;
    /* For parts: workers that average their parameters between steps (exec_average). */
    struct exec_workers workers;
    const struct exec_privacy *privacy; /* borrowed; NULL: none */
    /* Joins the ranks that share layers with this one, by their tp nodes (pass/tensor.c): its rank
     * is the slice that this one has. Each of them has an executor of its own, over ranks that have
     * the same slices, with as many lanes and the same shards. Borrowed; NULL: none. */
    struct transport *tensor;
    /* Where these share memory: exec_tensor_bytes of it for each of them, in their order, zeroed,
     * aligned to a page. Borrowed; NULL: they send messages. */
    void *tensor_memory;
    struct exec_pipeline pipeline;
    struct exec_beside beside;
    uint64_t seed;
    const struct exec_device *device;     /* NULL: this processor */
    const struct kernel_choices *choices; /* borrowed */
    struct optim_config optim;
    struct codec_config compress; /* of gradients between machines; codec NULL: none */
    uint64_t compress_after;      /* gradients of steps below it go as they are */
    /* From 1 on checkpoints go by groups (exec_collect_group); from 2 on memory of gradients is
     * given back as soon as they are summed. That parameters are held in parts, zero=3, the graph
     * says. */
    int zero;
    size_t window; /* bytes of gradients or parameters that are under way then; 0 picks */
    bool leaders;  /* one rank of each machine talks to others, though all could */
    size_t
        flying_bytes; /* of buckets that machines send at once, but for one message; 0: 4 MiB */
    struct trace *trace; /* each lane has a row in it; borrowed; NULL: none */
    double
        stall_timeout; /* seconds that a wait may take before who is missing is named; 0: any */
    /* For tests of faults: called with a name at every point where ranks meet. NULL: none. */
    void (*at_meeting)(void *arg, const char *point);
    void *at_meeting_arg;
};

/* Collective. Parameters are zero: follow with exec_init_params or exec_set_*. */
MUST_CHECK enum status exec_create(const struct exec_config *config, struct exec **out);
/* The step program that this rank's executor would run; the caller owns it. Not collective: the end
 * `transport` says who is where, and config->comm is not used. Groups and memory of the
 * configuration may be pretended. */
MUST_CHECK enum status exec_lower(const struct exec_config *config, struct transport *transport,
                                  struct program **out);
/* The program that it runs. */
const struct program *exec_program(const struct exec *exec);
void exec_destroy(struct exec *exec); /* NULL is allowed */

struct exec_result {
    double loss,
        correct; /* of the whole step (a part alone: its own) or data set: mean loss; labels met */
    int64_t samples;
    int64_t weight; /* labels that count: one a sample, or those of tokens */
    uint32_t heard; /* exec_step: what ranks said */
    int64_t top5;   /* exec_evaluate: samples whose label has one of the five largest logits */
    bool is_late; /* exec_step: loss and correct are not known yet; exec_take_result has them */
};

/* Collective: one training step on this rank's part of the samples. */
MUST_CHECK enum status exec_step(struct exec *exec, const struct batch *batch,
                                 struct exec_result *out);
/* On a device steps are not waited for. Takes the results of the oldest step that were not taken,
 * if there are any: of every step with `all`, else only where the next exec_step would have to wait
 * for it, and lose them. */
MUST_CHECK enum status exec_take_result(struct exec *exec, bool all, struct exec_result *out,
                                        bool *out_taken);
/* From now on the device holds these samples: steps may be given picks of them (loader.h), and
 * evaluations of them read nothing here. For an executor with a device, twice at most; the source
 * is borrowed as long as it lives. STATUS_NO_MEMORY: as it was. */
MUST_CHECK enum status exec_keep(struct exec *exec, const struct source *source);
/* What that takes there; 0: such samples cannot be kept. */
size_t exec_keep_bytes(const struct source *source);
/* Collective: forward over a data set. */
MUST_CHECK enum status exec_evaluate(struct exec *exec, const struct source *source,
                                     struct exec_result *out);
/* From now on exec_evaluate also writes each sample's output, in plain row-major order, to `out`;
 * NULL ends it. For a job of one rank: a rank writes those it has computed. */
void exec_keep_outputs(struct exec *exec, float *out);
/* Classes of the last exec_evaluate: 0 before the first, and where the model is no classifier. */
int exec_classes(const struct exec *exec);
/* Its answer for a sample, the first of the largest logits, and how sure it was: of two classes the
 * logit of class 1 less that of class 0, of more the softmax of the answer's. */
int32_t exec_answer(const struct exec *exec, int64_t sample, float *out_score);

/* The output of some samples in plain row-major order, `count` at most EXEC_PREDICT. Not
 * collective: on a settled exec, while no rank trains. */
enum { EXEC_PREDICT = 128 };
MUST_CHECK enum status exec_predict(struct exec *exec, const struct source *source,
                                    const int64_t *index, int64_t count, float *out);

/* Collective: waits until every update so far is visible here. */
MUST_CHECK enum status exec_settle(struct exec *exec);

/* What this rank tells all others with its next step; exec_result.heard has what all said, added
 * bit by bit. 0 unless set again for each step. */
void exec_say(struct exec *exec, uint32_t bits);

/* This rank's shards, in a row, as the job numbers them. */
int64_t exec_first_shard(const struct exec *exec);
int64_t exec_shard_count(const struct exec *exec);
/* A part that is alone goes on with as many other shards of the job, the first of which is given.
 * Between steps. */
void exec_move_part(struct exec *exec, int64_t first);
int exec_lanes(const struct exec *exec);
/* For exec_config.tensor_memory: of a rank of so many lanes. */
size_t exec_tensor_bytes(int lanes);
/* Lanes that a rank would have. */
int exec_lanes_of(int64_t shards, int ranks, int threads);

/* Parameters and state ----------------------------------------------------------------- */

/* What is saved: parameters and running averages, in the model's order. */
int exec_param_count(const struct exec *exec);
const struct value *exec_param(const struct exec *exec, int i);
/* Its number in the whole model, of which a stage of a pipeline has a part. */
int exec_param_number(const struct exec *exec, int i);
int exec_state_count(const struct exec *exec,
                     int param); /* state vectors; an average has none */
enum { EXEC_STATE_NAME = 32 };
void exec_state_name(const struct exec *exec, int state, char out[EXEC_STATE_NAME]);
/* The optimizer's, which come first. Behind them, where gradients are compressed, comes what is
 * kept for that: "compress_basis", and an error for each node: "compress_error_0"... */
int exec_own_states(const struct exec *exec);

/* Collective: initial values from the seed. */
MUST_CHECK enum status exec_init_params(struct exec *exec);
/* Initial numbers of a VALUE_UNUSED, the one numbered `index` of its graph, as files have them. */
void exec_draw_unused(uint64_t seed, int index, const struct value *value, float *out);
/* Collective: exec_settle; and parameters and state that rank 0 has set are on every machine. */
MUST_CHECK enum status exec_publish(struct exec *exec);
/* Collective: exec_settle; and rank 0 sees all state, and all parameters. */
MUST_CHECK enum status exec_collect(struct exec *exec);
/* The same of one group of parameters after the other, for who has no room for all of them at once:
 * on a settled exec, and exec_settle afterwards. What a machine does not keep is forgotten on rank
 * 0 by publish, and by exec_forget_group, which is not collective. */
int exec_group_count(const struct exec *exec);
int exec_group_of(const struct exec *exec, int param);
MUST_CHECK enum status exec_publish_group(struct exec *exec, int group);
enum { EXEC_PARAMS = 1, EXEC_STATES = 2 };
MUST_CHECK enum status exec_collect_group(struct exec *exec, int group, int what);
void exec_forget_group(struct exec *exec, int group);
/* Does each machine keep a part of the parameters alone (zero=3)? Then this is collective: rank 0
 * has all of them until exec_make_parts, for exec_predict and others who read them there. Else
 * nothing happens. */
bool exec_is_in_parts(const struct exec *exec);
MUST_CHECK enum status exec_make_whole(struct exec *exec);
MUST_CHECK enum status exec_make_parts(struct exec *exec);
/* Copies between plain row-major memory and the parameter (state -1) or its state. Get after
 * exec_collect on rank 0; set there, then exec_publish on all. */
void exec_get(const struct exec *exec, int param, int state, float *out);
void exec_set(struct exec *exec, int param, int state, const float *plain);
/* The flat vector of parameters (state -1) or of a state of the optimizer, as vectors.h has it. */
float *exec_vector(struct exec *exec, int state);
/* On a device these are copies. Of an executor of one rank: exec_settle, and the parameters that
 * steps have made are there; what the caller has written there since is what the next step or
 * evaluation begins with. */
MUST_CHECK enum status exec_fetch_params(struct exec *exec);
void exec_wrote_params(struct exec *exec);
/* Collective over config.workers, between steps: writes the average that the graph asks for to
 * `out`, a vector like exec_vector's. The executor keeps its own parameters. In a mean of all
 * workers each one's parameters count `weight` times, and `out` is fastest in memory of comm_share. */
MUST_CHECK enum status exec_average(struct exec *exec, float weight, float *out);
/* Elastic averaging, for a graph with nodes center_pull. Before a step exec_push calls `push` for
 * each bucket, whose parameters are `count` elements of exec_vector from `at` on. After the step
 * exec_pull calls `pull` for each bucket, which may change them. */
struct exec_center {
    void *arg;
    MUST_CHECK enum status (*push)(void *arg, int bucket, size_t at, size_t count);
    MUST_CHECK enum status (*pull)(void *arg, int bucket, size_t at, size_t count);
};
MUST_CHECK enum status exec_push(struct exec *exec, const struct exec_center *center);
MUST_CHECK enum status exec_pull(struct exec *exec, const struct exec_center *center);
/* Its elements; what no parameter has is zero. A parameter's are in a row, from exec_place on. */
size_t exec_vector_length(const struct exec *exec);
size_t exec_place(const struct exec *exec, int param);
/* As exec_get and exec_set, of a vector that is laid out like these. */
void exec_get_from(const struct exec *exec, int param, const float *vector, float *out);
void exec_set_in(const struct exec *exec, int param, float *vector, const float *plain);
/* Of a graph after pass_anchor: the flat vectors that updates are drawn to and shifted by. Written
 * between steps; NULL: it has none. */
float *exec_anchor(struct exec *exec);
float *exec_shift(struct exec *exec);
/* From now on a step also writes the sum of its gradients to `out`, a flat vector; NULL ends it.
 * For a graph without factors and rows. */
void exec_keep_gradient(struct exec *exec, float *out);
/* The steps that follow are those of another training: its seed, a constant rate, and state as in
 * the beginning. Numbers of steps begin again with 0. On a settled exec of one rank, whose
 * gradients are not compressed and go to no server. */
void exec_begin_again(struct exec *exec, uint64_t seed, double lr);
/* What is given to servers: how many sums, in the order of shards, and flat vectors of them; what
 * these have of tables means nothing. 0 without exec_remote. */
int exec_sums(const struct exec *exec, const struct tree_part **out);
/* Leaves of the tree that these are of. */
int64_t exec_tree_shards(const struct exec *exec);
/* SHA-256 over names, shapes and plain contents of all parameters, as 64 digits. Collective, on a
 * settled exec, where parameters are in parts; else of this rank's machine. */
MUST_CHECK enum status exec_hash(struct exec *exec, char out[65]);
/* Adds one parameter to such a hash: name, shape and plain contents. */
void exec_hash_add(struct sha256 *hash, const struct value *value, const float *plain);

/* Measurements ------------------------------------------------------------------------- */

/* Seconds of this rank's lanes, added up, since the last call of exec_reset_times. */
struct exec_times {
    double compute, comm, wait, evaluate;
    double hidden;            /* part of comm while a lane of this rank computed */
    double wire, wire_hidden; /* the same of its inter-node thread: not of a lane */
    double bubble;            /* part of wait: for other stages of a pipeline */
    double bytes; /* that this rank sent to others, or read from what others have written */
};
struct exec_times exec_times(const struct exec *exec);
/* Part of the wait by the rank that came last: out[r] seconds for rank r, as many as there are
 * ranks. */
void exec_waited_for(const struct exec *exec, double *out);
void exec_reset_times(struct exec *exec);

/* Of a stage of a pipeline: what it did in its last steps but the first, which warms up, one action
 * after the other. Seconds are those of clock_seconds; from `begin` on it had what it needs. */
struct exec_action {
    double begin, end;
    double given; /* when others have had what they need of it: its end, or before */
    int64_t shard;
    int32_t chunk, is_backward;
};
/* Borrowed until the next step. */
struct exec_actions {
    const struct exec_action *of; /* `steps` times `count` */
    int64_t count;                /* of a step; 0: it is no stage, or has done nothing */
    int steps;
    int last; /* the step that was last */
};
enum { EXEC_ACTION_STEPS = 9 };
struct exec_actions exec_actions(const struct exec *exec);

/* How losses are scaled; all zero but where a device computes in f16. Every rank has the same. Read
 * after exec_settle; set between steps, for a run that goes on. */
MUST_CHECK enum status exec_scaling(const struct exec *exec, struct device_scaling *out);
MUST_CHECK enum status exec_set_scaling(struct exec *exec,
                                        const struct device_scaling *scaling);

/* Bytes. */
struct exec_memory {
    size_t arena,
        shared; /* activations of one lane; addresses that all ranks of this machine share */
    /* What will be resident of this rank at most while it trains (memory.c). */
    size_t params, gradients, state, activations, other;
    /* What comes to rank 0 by exec_collect, and by exec_make_whole, that was not there. */
    size_t collected, joined;
};
struct exec_memory exec_memory(const struct exec *exec);
/* Which kernel runs each node of a shard of `rows`, one line a node. */
MUST_CHECK enum status exec_print_plan(struct exec *exec, int64_t rows, struct strbuf *out);

#endif /* EXEC_EXEC_H */
