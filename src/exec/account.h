/* SPDX-License-Identifier: MIT */
/* account.h - where time goes, and because of which rank: counters, arrivals, names. Private to
 * exec/.
 *
 * A lane or the inter-node thread increments the counter of a task when it has done its part. Any
 * thread may compare counters.
 */
#ifndef EXEC_ACCOUNT_H
#define EXEC_ACCOUNT_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "exec/shared.h"
#include "sched/program.h"
#include "transport/transport.h"

struct exec_config;
struct exec_layout;
struct exec_model;
struct exec_now;
struct exec_topology;
struct trace_row;

enum { ACCOUNT_NAME = 96 };

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

struct task_name {
    char text[112], number[12]; /* "reduce_scatter bucket 3", "17" */
};

/* Counters of tasks, and the names of what is waited for (account.c). */
struct exec_account {
    const struct exec_config *config;
    const struct exec_topology *topology;
    const struct exec_shared *memory;
    const struct exec_now *now;
    const struct program *program; /* when it is lowered */
    struct transport *transport;
    void *arrivals; /* in shared memory */
    struct overlap overlap;
    char (*bucket_names)[ACCOUNT_NAME]; /* "bucket 3 (fc1.weight and 1 more)" */
    char (*reduce_names)[ACCOUNT_NAME]; /* "reduce_scatter of " and that */
    char (*rank_names)[16];
    struct task_name
        *task_names; /* of the program's tasks, for the trace; NULL: there is none */
};

/* Where the time of a lane goes. */
struct lane_clock {
    struct exec_account *account;
    int lane;      /* among all lanes of this node */
    bool is_first; /* of this rank: it notes what the rank waits for */
    struct times times;
    int64_t *waited_for;     /* nanoseconds of times.wait by the rank that came last */
    struct trace_row *trace; /* NULL: not traced */
    bool computes;           /* in a step, and neither waits nor communicates */
    int64_t step_began;
    struct times step_times; /* as they were then */
};

/* Bytes of shared memory for the lanes' arrivals. */
size_t account_bytes(const struct exec_account *account);
MUST_CHECK enum status account_create(struct exec_account *account,
                                      const struct exec_model *model,
                                      const struct exec_layout *layout);
void account_destroy(struct exec_account *account);
/* When the program is known: names of its tasks, for traces. */
MUST_CHECK enum status account_name_tasks(struct exec_account *account);
/* An event for a task of the program that this thread ran from `begin` until now; 0: none. */
void account_trace_task(const struct exec_account *account, struct trace_row *row,
                        int64_t begin, int task);

/* Tasks are given by their numbers in the program, which are not negative. The counter of one; what
 * it is when the task is done in a step, counted since creation. */
static inline struct transport_counter *account_counter(const struct exec_account *account,
                                                        int task)
{
    BUG_ON(task < 0 || account->program->tasks[task].signal < 0);
    return &account->memory->counters[account->program->tasks[task].signal];
}
static inline uint32_t account_target(const struct exec_account *account, int task,
                                      uint32_t step)
{
    return program_target(&account->program->tasks[task], step);
}
static inline bool account_task_is_done(const struct exec_account *account, int task,
                                        uint32_t step)
{
    return transport_reached(account_counter(account, task),
                             account_target(account, task, step));
}

/* For tests of faults. */
void account_meet(const struct exec_account *account, const char *point);

/* This rank's inter-node thread has done the task: what came from `rank` came last. */
void net_signal(const struct exec_account *account, int task, int rank);
/* The inter-node thread waits for something from `rank` before the task is done; -1: for lanes of
 * this node. */
void net_expects(const struct exec_account *account, int task, int rank);

/* This lane has done the task: increments its counter, and notes when. */
void clock_signal(struct lane_clock *clock, int task);
/* Waits until the task's counter comes to a value, counting the time and for whom; `what` lives
 * until the trace is printed. clock_wait: until the task is done in the step that runs;
 * clock_wait_last: in the step before; -1 is no task. */
MUST_CHECK enum status clock_wait_until(struct lane_clock *clock, int task, uint32_t target,
                                        const char *what);
MUST_CHECK enum status clock_wait(struct lane_clock *clock, int task, const char *what);
MUST_CHECK enum status clock_wait_last(struct lane_clock *clock, int task, const char *what);
/* Waits for a message from another stage, or until one has gone there: time in which a pipeline is
 * empty. */
MUST_CHECK enum status clock_wait_for_stage(struct lane_clock *clock,
                                            struct transport_request *request,
                                            const char *stage);
/* A lane computes from begin to end of a step but where it waits or communicates. */
void clock_begin_step(struct lane_clock *clock);
void clock_end_step(struct lane_clock *clock);
/* Communication within a step; name and `of` as trace.h has them. */
struct span clock_begin_comm(struct lane_clock *clock);
void clock_end_comm(struct lane_clock *clock, struct span span, const char *name,
                    const char *of);

/* A thread that communicates beside the lanes asks how long lanes had computed when it began, and
 * when it ended: the difference was hidden. Enter and leave are for lanes. */
int64_t overlap_computed(struct overlap *overlap, int64_t now);
void overlap_enter(struct overlap *overlap, int64_t now);
void overlap_leave(struct overlap *overlap, int64_t now);

#endif /* EXEC_ACCOUNT_H */
