/* SPDX-License-Identifier: MIT */
/* rank.h - a rank of a run while it trains: what it has, and what it does with that. Private to train/.
 *
 * rank.c starts and ends it, loop.c runs its steps, own.c makes executors that are a rank's own, tell.c has what
 * rank 0 writes on the way.
 */
#ifndef TRAIN_RANK_H
#define TRAIN_RANK_H

#include "exec/exec.h"
#include "report/progress.h"
#include "train/checkpoint.h"
#include "train/folder.h"
#include "train/grid.h"
#include "train/local.h"
#include "train/memory.h"
#include "train/served.h"
#include "train/slow.h"
#include "train/trace_file.h"
#include "train/watch.h"
#include "train/weights.h"

/* What ranks say to each other with a step. */
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

/* What a rank has beside that as a worker with an executor of its own. */
struct own {
    struct local *local;  /* NULL: it has none, or not yet */
    struct local_met met; /* the last meeting */
    struct transport *transport;
    struct comm *comm;
    struct exec *together;          /* all ranks' executor until then, or NULL */
    struct exec_times times_before; /* of that */
    double *waited_for;             /* of each rank: what is told, and what that had */
    double *waited_before;
    float *vector;                    /* rank 0: of another worker */
    struct served *served;            /* with servers; else NULL */
    struct served_times served_times; /* at the last line of metrics */
    double spread; /* with servers: steps between the fastest and the slowest worker */
    uint32_t tag;  /* for what workers tell worker 0 at the end */
    struct transport *group; /* with servers: the workers, or the servers; else NULL */
    struct comm *evaluators; /* workers that share evaluations; NULL: each evaluates alone */
};

/* What a rank has while it runs. */
struct rank {
    const struct run *run;
    struct job *job;
    struct transport *transport;
    struct comm *comm;         /* of all ranks; NULL with servers */
    struct grid *grid;         /* where ranks hold different parameters; else NULL */
    struct exec_device device; /* that the executor runs on; zero: none */
    size_t kept_bytes;         /* of images that it holds; 0: they are read here */
    struct exec *exec;
    struct own own; /* exec is a private one, if local or served is there */
    struct loader *loader;
    struct weights_copy *copy; /* rank 0 */
    struct watch *watch;
    struct trace *trace; /* NULL: none */
    struct trace_row *row;
    struct trace_window window;
    struct progress progress;
    bool is_first;
    uint64_t begins;   /* its first step */
    uint64_t step;     /* the step that runs */
    uint64_t next;     /* that this rank takes part in */
    uint64_t known;    /* the first step whose results are not known */
    uint64_t told;     /* what that was when an interval was told of */
    int64_t samples;   /* seen in the whole run */
    int64_t in_flight; /* of these, samples of steps whose results are not known */
    int64_t tokens;    /* labels that counted, of this session */
    struct tally interval, epoch;
    struct tally before; /* the interval that was told of last */
    double began, load, saved_at;
    struct exec_times interval_times;
    double watched_at;            /* clock: when the watch was last asked */
    struct slow_steps slow_steps; /* with --slow */
    double interval_load;
    uint32_t heard; /* with the last step: STOP, SAVE, BY_HAND */
    bool meets;     /* workers with executors of their own have met after this step */
    bool is_owed;   /* a checkpoint, as soon as they do */
    struct memory_mark memory;
    int64_t predicted_bytes;
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

/* loop.c: all steps, and what is due after each. */
MUST_CHECK enum status rank_run_steps(struct rank *rank);

/* own.c: Is this a step before workers train alone? */
bool rank_is_together(const struct job *job, uint64_t step);
/* The executor of all ranks. */
MUST_CHECK enum status rank_make_together(struct rank *rank);
/* One of its own for this rank's shards: averaged with others now and then, or with servers. */
MUST_CHECK enum status rank_make_own(struct rank *rank);
MUST_CHECK enum status rank_make_served(struct rank *rank);
/* With servers, on all ranks: joins the workers, if they share evaluations. */
MUST_CHECK enum status rank_join_workers(struct rank *rank);
void rank_release_own(struct own *own);
/* Room for what checkpoints have of that executor. */
MUST_CHECK enum status rank_make_copy(struct rank *rank);
/* Workers part: from this step on each has an executor of its own. */
MUST_CHECK enum status rank_part(struct rank *rank);

/* Where machines hold state in parts no rank has room for a copy of all: checkpoints are written while parts
 * come, and everybody waits for it. */
static inline bool rank_streams(const struct rank *rank)
{
    return (rank->job->axes.zero > 0 && !rank->device.face) || rank->grid;
}

/* Does this rank take part in what is told, evaluated and saved? With servers the first worker does. */
static inline bool rank_leads(const struct rank *rank)
{
    return !rank->own.served || (rank->grid ? grid_leads(rank->grid) : rank->is_first);
}

/* tell.c: seconds of the run so far, earlier sessions included. */
double rank_seconds(const struct rank *rank);
void rank_add(struct tally *tally, const struct exec_result *result);
double rank_mean_loss(const struct tally *tally);
double rank_mean_accuracy(const struct rank *rank, const struct tally *tally);
/* What progress shows: samples a second, or tokens. */
double rank_rate(const struct rank *rank, const struct tally *tally);
/* By how much all ranks' rate is more than what this rank counts: workers that train alone hear of
 * each other late. */
double rank_copies(const struct rank *rank);
/* Sums of this rank's lanes so far, what they had before they parted from others and meetings included. */
struct exec_times rank_times(const struct rank *rank);
/* Collective, but with servers, as are all below: rank 0 learns what all ranks' time went to. */
MUST_CHECK enum status rank_collect_times(struct rank *rank);
/* Rank 0 writes a line of metrics, an evaluation, a checkpoint. */
MUST_CHECK enum status rank_tell_interval(struct rank *rank);
MUST_CHECK enum status rank_evaluate(struct rank *rank);
MUST_CHECK enum status rank_save(struct rank *rank);

#endif /* TRAIN_RANK_H */
