/* SPDX-License-Identifier: MIT */
/* rank.h - a rank of a run while it trains: what it has, and what it does with that. Private to
 * train/.
 *
 * rank.c starts and ends it, loop.c runs its steps, step.c is one of them, tell.c writes
 * metrics and evaluations, save.c checkpoints. How ranks agree on parameters is the regime's
 * (regime.h).
 */
#ifndef TRAIN_RANK_H
#define TRAIN_RANK_H

#include "exec/exec.h"
#include "report/progress.h"
#include "train/checkpoint.h"
#include "train/folder.h"
#include "train/grid.h"
#include "train/slow.h"
#include "train/trace_file.h"
#include "train/watch.h"
#include "train/weights.h"

/* Flags that ranks exchange with a step. */
enum { STOP = 1, SAVE = 2, BY_HAND = 4 }; /* BY_HAND: with STOP, as SIGINT asks for it */

/* Memory that supervisor and rank 0 share, made before they part. */
struct shared {
    struct train_result result;
    int stopped;        /* by a signal: SIGINT, or SIGTERM for all others; 0: not */
    int64_t saved_step; /* of the newest checkpoint; -1: there is none */
};

/* What a run knows before it starts, the same on every rank. */
struct run {
    struct job *job;
    const struct train_hooks *hooks;
    struct shared *shared;
    struct checkpoint *checkpoint; /* to go on from, or NULL */
    struct safetensors *init;      /* initial weights, or NULL */
    uint64_t first_step;
    struct tally epoch;    /* what the checkpoint had of the running epoch */
    double seconds_before; /* of earlier sessions of this run */
    int64_t samples_before;
    int lock; /* of the folder; -1: another process has it */
    int pid;  /* of the process that looks after it */
};

/* The communicator of a private executor, with no rank but its own. */
struct private_comm {
    struct transport *transport;
    struct comm *comm;
};
MUST_CHECK enum status private_comm_create(struct private_comm *out);
void private_comm_destroy(struct private_comm *comm); /* zeroed is allowed */

/* With --trace; all NULL without. */
struct rank_tracing {
    struct trace *trace;
    struct trace_row *row; /* of the loop */
    struct trace_window window;
};

/* Parts that only some ranks of a job with servers play. */
struct rank_role {
    bool is_server;
    bool is_unneeded; /* a spare that replaced no worker */
    bool leads;       /* takes part in what is told and saved */
    bool evaluates;   /* takes part in evaluations */
};

struct rank_counts {
    int64_t samples;   /* trained in the whole run */
    int64_t in_flight; /* of these, samples of steps whose results are not known */
    int64_t tokens;    /* labels that counted, of this session */
};

/* The line of metrics that comes next, and what sums were at the last one. */
struct rank_line {
    struct tally tally;      /* since the last line */
    struct tally before;     /* that of the last line */
    uint64_t told;           /* rank->known at the last line */
    double load;             /* rank->load */
    double watched_at;       /* clock */
    struct exec_times times; /* rank_times */
};

/* Checkpoints. */
struct rank_save {
    struct weights_copy *copy; /* rank 0 */
    double at;                 /* clock: when the last was made */
    bool is_allowed;           /* parameters are equal on all ranks, or on servers */
    bool is_owed;              /* one is due, as soon as it is allowed */
};

/* What a rank has while it runs. */
struct rank {
    const struct run *run;
    struct job *job;
    const struct regime *regime; /* regime.h */
    void *own;                   /* the regime's state */
    struct transport *transport;
    struct comm *comm;         /* of all ranks; NULL with servers */
    struct grid *grid;         /* where ranks hold different parameters; else NULL */
    struct exec_device device; /* that the executor runs on; zero: none */
    size_t kept_bytes;         /* of images that it holds; 0: they are read here */
    struct exec *exec;
    struct loader *loader;
    struct watch *watch;
    struct progress progress;
    bool is_first;
    struct rank_role role;
    uint64_t begins; /* its first step */
    uint64_t step;   /* the step that runs */
    uint64_t next;   /* that this rank takes part in */
    uint64_t known;  /* the first step whose results are not known */
    uint32_t heard;  /* flags of all ranks, with the last step: STOP, SAVE, BY_HAND */
    struct rank_counts counts;
    struct rank_line line;
    struct rank_save save;
    struct tally epoch;
    double began; /* clock */
    double load;  /* seconds that the loop waited for samples */
    struct rank_tracing tracing;
    struct slow_steps slow_steps; /* with --slow */
    struct train_result result;
};

/* run.c: what is saved, and how to go on, in one line: "step 120 of 400 is saved: continue with
 * ...". */
void run_print_saved(const struct run *run, char *out, size_t bytes);
/* The process that trains as rank 0 and looks after the run says that where a second signal ends
 * it. */
void run_note_saved(const struct run *run);

/* rank.c: a rank's whole life; arg is the struct run. */
enum status rank_body(struct transport *transport, void *arg);
/* This rank's flags for all others: STOP, SAVE, BY_HAND. */
uint32_t rank_wishes(const struct rank *rank);
/* Traces the step that begins, if it is in the window. */
void rank_switch_trace(struct rank *rank);
/* Collective: SHA-256 of the weights, on rank 0 at least. Ranks that have a copy of their own hash
 * it, and all must agree. out is zeroed before. */
MUST_CHECK enum status rank_hash_copies(struct rank *rank, bool has_copy, char out[65]);
/* For regimes: the communicator of all ranks, the grid, and what ranks measure together before
 * they make executors. */
MUST_CHECK enum status rank_make_comm(struct rank *rank);
/* Of an executor of all ranks. */
struct exec_config rank_exec_config(const struct rank *rank);

/* loop.c: all steps, and what is due after each. */
MUST_CHECK enum status rank_run_steps(struct rank *rank);

/* step.c: one step, or none, if the others did it without this rank; rank->step is its number. */
MUST_CHECK enum status rank_one_step(struct rank *rank);
/* Seconds of the run so far, earlier sessions included. */
double rank_seconds(const struct rank *rank);
double rank_mean_loss(const struct tally *tally);
double rank_mean_accuracy(const struct rank *rank, const struct tally *tally);
/* Samples a second, or tokens. */
double rank_rate(const struct rank *rank, const struct tally *tally);
/* exec_times of this rank, with what its regime spent beside the executor. */
struct exec_times rank_times(const struct rank *rank);
/* The loop spent these seconds. */
void rank_spend(struct rank *rank, double seconds);
/* The samples of a batch, of all ranks, were trained. */
void rank_count_batch(struct rank *rank, const struct batch *batch);
MUST_CHECK enum status rank_check_loss(const struct rank *rank,
                                       const struct exec_result *result);
/* Adds the result of a step to the interval and the epoch. */
MUST_CHECK enum status rank_add_result(struct rank *rank, const struct exec_result *result);
/* Takes results that a device owes: those that must be taken now, or all. The time that a device
 * takes for steps is spent here. */
MUST_CHECK enum status rank_take_late(struct rank *rank, bool all);

/* tell.c: the progress line. */
void rank_show_progress(struct rank *rank);
/* "averages are 20 steps apart now: one takes 1.20 ms, the variance of parameters is 3.1e-07" */
void rank_note_interval(struct rank *rank, const char *what, int64_t interval, double seconds,
                        double variance);
/* Adds all ranks' work since the last line (watch.h); warns of a straggler. */
void rank_add_watched(struct rank *rank, struct metrics *m);
/* Collective with rank->role.leads: rank 0 writes a line of metrics, if the result of an interval's
 * last step is known. No device is waited for, but in fp16, for its loss scale. */
MUST_CHECK enum status rank_tell_if_due(struct rank *rank);
/* Collective with rank->role.evaluates: evaluates the executor's parameters; rank 0 writes the
 * line. */
MUST_CHECK enum status rank_evaluate(struct rank *rank);

/* save.c: Where machines hold state in parts no rank has room for a copy of all: checkpoints are
 * written while parts come, and everybody waits for it. */
static inline bool rank_streams(const struct rank *rank)
{
    return (rank->job->axes.zero > 0 && !rank->device.face) || rank->grid;
}

/* On rank 0, room for what checkpoints hold. */
MUST_CHECK enum status rank_make_copy(struct rank *rank);
/* Rank 0: copies the executor's parameters and state, unless they stream. */
void rank_take_copy(struct rank *rank);
/* Collective with rank->role.leads: a checkpoint. */
MUST_CHECK enum status rank_save(struct rank *rank);

#endif /* TRAIN_RANK_H */
