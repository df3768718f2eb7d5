/* SPDX-License-Identifier: MIT */
/* served.h - a rank of a job with parameter servers: what it is to the servers, or they to it.
 * Private to train/.
 *
 * Workers are the first ranks of the job, then come spare ones, servers are its last. A worker has
 * an executor of its own for its shards, which gives gradients to a client of ps/ and gets
 * parameters from it (exec_remote); this joins the two. Everything that a worker hears of others
 * comes with a tick, once a step.
 *
 * In a grid those that hold the same parameters, and differ in dp alone, are workers to the
 * servers; each place has servers of its own, so to say: every server is one for each place, by a
 * thread and a group of ranks for each. A worker knows its place's.
 *
 * Threads: one, but for what the executor's lanes call. Errors:  as ps.h has them. A lost server's
 * text also says what to resume from.
 */
#ifndef TRAIN_SERVED_H
#define TRAIN_SERVED_H

#include "exec/exec.h"
#include "ps/ps.h"
#include "train/job.h"

struct served;

/* Finds out what ps_check refuses, before anything starts. */
MUST_CHECK enum status served_check(const struct job *job);

/* Is this rank of the job a server? */
bool served_is_server(const struct job *job, const struct transport *transport);
/* A server's whole life. The steps of `trace` are the job's; a run begins with `first`. */
MUST_CHECK enum status served_serve(const struct job *job, struct transport *transport,
                                    const struct ps_trace *trace, uint64_t first);
/* The program of server 0, 1, ...; `transport` says who is where. STATUS_USAGE in a grid, where a
 * server has a program for each place. */
MUST_CHECK enum status served_lower(const struct job *job, int server,
                                    struct transport *transport, struct program **out);

/* Are all workers at the same step when one is evaluated, with the same parameters? Then they
 * share the work. */
bool served_evaluates_together(const struct job *job);

/* A worker. Job, hooks and transport are borrowed. It joins the others when exec_create asks for
 * memory. */
MUST_CHECK enum status served_create(const struct job *job, const struct train_hooks *hooks,
                                     struct transport *transport, struct served **out);
/* Calls hooks->at_meeting, if it is there. */
void served_note_meeting(const struct served *served, const char *point);
/* Says goodbye to the servers. Before exec_destroy. NULL is allowed. */
void served_destroy(struct served *served);
/* For the executor that the worker makes: who it gives gradients to, and its shards. */
const struct exec_remote *served_remote(const struct served *served);
/* On the first worker: servers receive what the worker's program pushes, and answer its pulls. */
MUST_CHECK enum status served_verify(const struct served *served,
                                     const struct program *program);
struct exec_part served_part_of(const struct job *job, int worker);
struct exec_part served_part(const struct served *served);

/* The executor has its first parameters, the same on every worker: training begins with `step`.
 * A spare waits here until it is needed, and begins with *out_step, which else is `step`. */
MUST_CHECK enum status served_begin(struct served *served, struct exec *exec, uint64_t step,
                                    uint64_t *out_step);
/* Whose part of the work this worker does: its own or, a spare, that of one who was lost; -1: it
 * was not needed, and the others have come to their end. After served_begin. */
int served_place(const struct served *served);

/* In place of served_begin, for a worker that updates by itself and exchanges with a center
 * (elastic.h): joins the servers, which see `room` bytes of its memory. served_buckets: how many
 * buckets they exchange. */
MUST_CHECK enum status served_join(struct served *served, struct exec *exec, size_t room,
                                   struct ps_client **out);
int served_buckets(const struct served *served);

struct served_count {
    int64_t samples, weight; /* weight: labels that count */
};

/* What a worker hears when it ends a step. */
struct served_heard {
    /* Loss, labels and weight: of all workers in this step, or, where they do not wait for each
     * other, what was heard since the last tick. */
    struct exec_result result;
    uint64_t next;             /* step to go on with: this and 1, or more if it came too late */
    uint64_t low, high;        /* steps done by the slowest and by the fastest worker */
    struct served_count count; /* trained by all workers and heard of since the last tick */
};
/* Ends a step of which the executor says `own`; says: bits that all workers hear. */
MUST_CHECK enum status served_tick(struct served *served, const struct batch *batch,
                                   const struct exec_result *own, uint32_t says,
                                   struct served_heard *out);

/* The same of an exchange, which showed `heard`. */
void served_hear(struct served *served, const struct ps_heard *heard, struct served_heard *out);
/* The loop waited for others at an exchange. */
void served_add_wait(struct served *served, double seconds);

/* Brings the servers' parameters and state into the executor: for checkpoints, on worker 0.
 * Between steps. */
MUST_CHECK enum status served_collect(struct served *served);
/* All workers come here after their last step; then nothing changes any more. */
MUST_CHECK enum status served_meet(struct served *served);

/* Worker 0, after served_meet: what all workers trained and told, less what ticks heard of. */
struct served_count served_rest(const struct served *served);

/* Seconds and bytes so far. */
struct served_times {
    double wait;  /* the loop waited for others, at ticks and exchanges */
    double move;  /* the client's thread moved gradients and values */
    double bytes; /* of these */
};
struct served_times served_times(const struct served *served);
/* Is worker w, or a spare, not lost? As known after served_meet. */
bool served_hears_from(const struct served *served, int w);
/* What servers and workers did, as members of summary.json (docs/formats.md); worker 0, after
 * served_meet. */
void served_print(const struct served *served, struct strbuf *out);

#endif /* TRAIN_SERVED_H */
