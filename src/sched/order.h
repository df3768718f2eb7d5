/* SPDX-License-Identifier: MIT */
/* order.h - which tasks of a program are known to be done before another starts. Private to sched/.
 *
 * Tasks are taken in program order: those of step 0, then those of what follows it: another shard,
 * or step 1 (order_begin).
 *
 *   order_begin_task(&order, program, b);                 what its place alone orders, and its waits
 *   order_is_full(&order, a)                              is task a of step 0 done by all members?
 *   order_add_wait(&order, program, b, &wait)             one wait more
 */
#ifndef SCHED_ORDER_H
#define SCHED_ORDER_H

#include "sched/program.h"

/* A task is looked at with those before it: of its own step, and of its own shard; of the shard
 * before; of the step before. */
enum unrolled { SAME, LAST_USE, LAST_STEP, UNROLLED };

enum conflict {
    CONFLICT_NONE,
    CONFLICT_OWN, /* each member must have done the earlier task itself */
    CONFLICT_ALL  /* all members must have done it */
};

/* Do two tasks touch the same memory, and one of them writes it? `a` is the earlier one; with
 * LAST_STEP it is of the step before. */
enum conflict task_conflict(const struct task *a, const struct task *b, enum unrolled unrolled);
/* Does a task of the same bucket as `other`, which sends its memory, end after these sends? */
bool task_needs_sends(const struct task *task, const struct task *other);
/* Do two tasks, or the members of one, take turns with memory that one of them writes? */
bool tasks_take_turns(const struct task *a, const struct task *b);
/* `task` reads memory that `other` wrote so many steps before; 0: it does not. */
int task_lag(const struct task *task, const struct task *other);
/* Does a task get from a server what `other` gave it in the step before? */
bool task_pulls_pushed(const struct task *task, const struct task *other);

struct order {
    int n_tasks;
    enum unrolled unrolled;
    int step, task; /* the task that is looked at */
    size_t words;   /* of a set: 64 tasks each, of two steps */
    uint64_t *done; /* sets of each task of each step */
    uint64_t *full;
};

MUST_CHECK enum status order_create(int n_tasks, struct order *out);
void order_destroy(struct order *order);
/* Says which step or shard follows step 0 from now on. */
void order_begin(struct order *order, enum unrolled unrolled);
void order_begin_task(struct order *order, const struct program *program, int task);
void order_add_wait(struct order *order, const struct program *program, int task,
                    const struct wait *wait);
/* Is the task run once a shard, or once a use, so that a shard before has run it as well? */
bool task_is_repeated(const struct task *task);
/* Of the task that was begun last: has every member, or the same member, done task a of step 0? */
bool order_is_full(const struct order *order, int a);
bool order_was_done(const struct order *order, int a);
/* Of the tasks before `end`, the latest that task b conflicts with and is not ordered after; -1:
 * none. Task b was begun last. */
int order_next_race(const struct order *order, const struct program *program, int b, int end,
                    enum conflict *out);
/* Has a member done task `from` when it has done `to`, both of step 0? */
bool order_is_done(const struct order *order, int from, int to);

#endif /* SCHED_ORDER_H */
