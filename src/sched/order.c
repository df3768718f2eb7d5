/* SPDX-License-Identifier: MIT */
/* order.c - sets of tasks that come before others; connect.c says what they are. */
#include "sched/order.h"

#include <string.h>

#include "base/mem.h"

static uint64_t *set_of(const struct order *order, uint64_t *sets, int task, int step)
{
    return sets + (size_t)(step * order->n_tasks + task) * order->words;
}

static void include(const struct order *order, uint64_t *set, int task, int step)
{
    const size_t bit = (size_t)(step * order->n_tasks + task);

    set[bit / 64] |= UINT64_C(1) << bit % 64;
}

static bool has(const struct order *order, const uint64_t *set, int task, int step)
{
    const size_t bit = (size_t)(step * order->n_tasks + task);

    return set[bit / 64] >> bit % 64 & 1;
}

static void join(const struct order *order, uint64_t *set, const uint64_t *more)
{
    for (size_t i = 0; i < order->words; i++)
        set[i] |= more[i];
}

enum status order_create(int n_tasks, struct order *out)
{
    *out = (struct order){ .n_tasks = n_tasks, .words = (2 * (size_t)n_tasks + 63) / 64 + 1 };
    const size_t words = 2 * (size_t)n_tasks * out->words;
    TRY(mem_alloc(words + 1, sizeof *out->done, &out->done));
    return mem_alloc(words + 1, sizeof *out->full, &out->full);
}

void order_destroy(struct order *order)
{
    mem_free(order->done);
    mem_free(order->full);
}

/* Members of these places run tasks in any order. */
static bool has_no_order(const struct task *task)
{
    return task->place == PLACE_NET || task->place == PLACE_SERVER;
}

/* Is every member of `task` a member of `all`, too? */
static bool has_members(const struct task *all, const struct task *task)
{
    if (has_no_order(all) != has_no_order(task) || all->stride != task->stride)
        return false;
    if (all->place == PLACE_SERVER)
        return all->members == task->members;
    return all->rail < 0 || all->rail == task->rail;
}

bool task_is_repeated(const struct task *task)
{
    return task->by_use || (task->place == PLACE_LANE && !task->is_once && !task->is_on_demand);
}

/* A member that has done `a` goes on to `b`, which stands later in program order, or comes with the
 * next shard, or in the next step. Lanes compute in order and synchronize in order; the inter-node
 * thread keeps no order in a step, but runs one task for one use after the other. A server keeps
 * none at all. */
static bool runs_before(const struct task *a, const struct task *b, enum unrolled unrolled)
{
    if (a->is_on_demand || b->is_on_demand || a->place == PLACE_SERVER || !has_members(a, b))
        return false;
    if (unrolled == LAST_USE && (!task_is_repeated(a) || !task_is_repeated(b)))
        return false;
    return unrolled == LAST_STEP || (!has_no_order(a) && a->place == b->place) ||
           (unrolled == LAST_USE && a == b);
}

static void follow(struct order *order, int task, int step)
{
    uint64_t *done = set_of(order, order->done, order->task, order->step);
    uint64_t *full = set_of(order, order->full, order->task, order->step);

    include(order, done, task, step);
    join(order, done, set_of(order, order->done, task, step));
    join(order, full, set_of(order, order->full, task, step));
}

/* Those members that have a part in `task` have done it, and what it follows. The others know
 * nothing of what these waited for; of tasks that are none of theirs there is nothing to be done. */
static void follow_part(struct order *order, const struct program *program, int task, int step)
{
    uint64_t *done = set_of(order, order->done, order->task, order->step);
    const uint64_t *its = set_of(order, order->done, task, step);

    include(order, done, task, step);
    for (int s = 0; s <= step; s++) {
        for (int t = 0; t < order->n_tasks; t++) {
            if (has(order, its, t, s) && has_members(&program->tasks[task], &program->tasks[t]))
                include(order, done, t, s);
        }
    }
}

/* All members of `task` are through with it, so with all that these did before, and what that
 * waited for is done. */
static void follow_all(struct order *order, const struct program *program, int task, int step)
{
    uint64_t *full = set_of(order, order->full, order->task, order->step);
    const uint64_t *done = set_of(order, order->done, task, step);

    include(order, full, task, step);
    join(order, full, set_of(order, order->full, task, step));
    for (int s = 0; s <= step; s++) {
        for (int t = 0; t < order->n_tasks; t++) {
            if (!has(order, done, t, s) ||
                !has_members(&program->tasks[task], &program->tasks[t]))
                continue;
            include(order, full, t, s);
            join(order, full, set_of(order, order->full, t, s));
        }
    }
}

/* The step, as sets are numbered, in which a wait of the task is for what was done; -1: none of
 * them. */
static int step_of_wait(const struct order *order, const struct program *program,
                        const struct wait *wait)
{
    const bool is_back = wait->is_last_use ? order->unrolled == LAST_USE : wait->is_last_step;

    if (order->step == 0)
        return wait->is_last_step || wait->is_last_use ? -1 : 0;
    if (wait->is_last_use && !is_back)
        return -1;
    if (order->unrolled == LAST_USE && wait->is_last_step)
        return -1;
    if (order->unrolled == LAST_USE && !task_is_repeated(&program->tasks[wait->task]))
        return 0; /* once a step */
    return is_back ? 0 : 1;
}

void order_add_wait(struct order *order, const struct program *program, int task,
                    const struct wait *wait)
{
    const int step = step_of_wait(order, program, wait);

    BUG_ON(task != order->task);
    if (step < 0 || !wait_orders(wait))
        return;
    const bool all_wait = has_members(&program->tasks[wait->task], &program->tasks[task]);
    if (wait->is_local && all_wait)
        follow(order, wait->task, step);
    else if (wait->is_local)
        follow_part(order, program, wait->task, step);
    else
        follow_all(order, program, wait->task, step);
}

void order_begin(struct order *order, enum unrolled unrolled)
{
    const size_t second = (size_t)order->n_tasks * order->words;

    order->unrolled = unrolled;
    order->step = unrolled != SAME;
    memset(order->done + second, 0, second * sizeof *order->done);
    memset(order->full + second, 0, second * sizeof *order->full);
}

void order_begin_task(struct order *order, const struct program *program, int task)
{
    const struct task *begun = &program->tasks[task];

    order->task = task;
    for (int a = 0; a < program->n_tasks && order->unrolled != SAME; a++) {
        if (runs_before(&program->tasks[a], begun, order->unrolled))
            follow(order, a, 0);
    }
    for (int a = 0; a < task; a++) {
        if (runs_before(&program->tasks[a], begun, SAME))
            follow(order, a, order->step);
    }
    for (int w = 0; w < begun->n_waits; w++)
        order_add_wait(order, program, task, &program->waits[begun->first_wait + w]);
}

bool order_is_full(const struct order *order, int a)
{
    return has(order, set_of(order, order->full, order->task, order->step), a, 0);
}

bool order_was_done(const struct order *order, int a)
{
    return has(order, set_of(order, order->done, order->task, order->step), a, 0);
}

bool order_is_done(const struct order *order, int from, int to)
{
    return has(order, set_of(order, order->done, to, 0), from, 0);
}

/* Conflicts -------------------------------------------------------------------------------- */

static enum conflict access_conflict(const struct task *a, const struct access *x,
                                     const struct task *b, const struct access *y)
{
    if (x->memory != y->memory || x->index != y->index || !(x->is_write || y->is_write))
        return CONFLICT_NONE;
    if (x->part >= 0 && y->part >= 0 && x->part != y->part)
        return CONFLICT_NONE;
    if ((x->in_turn && y->in_turn) || x->lag > 0 || y->lag > 0)
        return CONFLICT_NONE; /* tasks_take_turns, task_lag */
    const bool is_one = a->members == 1 && b->members == 1 && has_no_order(a) &&
                        has_no_order(b) && a->rail == b->rail;
    const bool is_same_part = x->reach == REACH_OWN && y->reach == REACH_OWN &&
                              x->partition == y->partition &&
                              has_no_order(a) == has_no_order(b) &&
                              (a->rail == b->rail || a->rail < 0 || b->rail < 0);
    return is_one || is_same_part ? CONFLICT_OWN : CONFLICT_ALL;
}

enum conflict task_conflict(const struct task *a, const struct task *b, enum unrolled unrolled)
{
    enum conflict worst = CONFLICT_NONE;

    for (int i = 0; i < a->n_accesses; i++) {
        for (int j = 0; j < b->n_accesses; j++) {
            if (unrolled == LAST_STEP && a->accesses[i].memory == MEMORY_LOSS)
                continue; /* two steps have two */
            const enum conflict found = access_conflict(a, &a->accesses[i], b, &b->accesses[j]);
            worst = found > worst ? found : worst;
        }
    }
    return worst;
}

/* A task with `but` reads the pushes of those workers alone that have pushed. So it comes after
 * these pushes, and after tasks that the same workers have done before them. */
static bool follows_most(const struct order *order, const struct program *program,
                         const struct task *task, int a)
{
    const bool is_back = order->unrolled != SAME;

    for (int i = 0; i < task->n_waits; i++) {
        const struct wait *wait = &program->waits[task->first_wait + i];
        if (wait->but == 0)
            continue;
        if (wait->task == a && !is_back)
            return true;
        if (program->tasks[a].members == program->tasks[wait->task].members &&
            has(order, set_of(order, order->done, wait->task, order->step), a,
                order->step - is_back))
            return true;
    }
    return false;
}

/* Tasks of two shards conflict only by uses of partitions: whatever else lanes share, they share
 * once a step. */
static bool may_meet(const struct task *a, const struct task *b, enum unrolled unrolled)
{
    if (a->is_on_demand || b->is_on_demand)
        return false;
    return unrolled != LAST_USE ||
           (task_is_repeated(a) && task_is_repeated(b) && (a->by_use || b->by_use));
}

int order_next_race(const struct order *order, const struct program *program, int b, int end,
                    enum conflict *out)
{
    const struct task *task = &program->tasks[b];

    for (int a = end - 1; a >= 0 && !task->is_on_demand; a--) {
        if (!may_meet(&program->tasks[a], task, order->unrolled))
            continue;
        *out = task_conflict(&program->tasks[a], task, order->unrolled);
        if (*out == CONFLICT_NONE || order_is_full(order, a))
            continue;
        if (*out == CONFLICT_OWN && order_was_done(order, a))
            continue;
        if (follows_most(order, program, task, a))
            continue;
        return a;
    }
    return -1;
}

static bool touches_sends(const struct task *task, int bucket, bool is_write)
{
    for (int i = 0; i < task->n_accesses; i++) {
        const struct access *a = &task->accesses[i];
        if (a->memory == MEMORY_SENDS && a->index == bucket && a->is_write == is_write)
            return true;
    }
    return false;
}

bool task_needs_sends(const struct task *task, const struct task *other)
{
    return touches_sends(task, task->bucket, false) && touches_sends(other, task->bucket, true);
}

bool tasks_take_turns(const struct task *a, const struct task *b)
{
    for (int i = 0; i < a->n_accesses && (a != b || a->members > 1); i++) {
        for (int j = 0; j < b->n_accesses; j++) {
            const struct access *x = &a->accesses[i], *y = &b->accesses[j];
            if (x->memory == y->memory && x->index == y->index && x->in_turn && y->in_turn &&
                (x->is_write || y->is_write))
                return true;
        }
    }
    return false;
}

int task_lag(const struct task *task, const struct task *other)
{
    for (int i = 0; i < task->n_accesses; i++) {
        const struct access *x = &task->accesses[i];
        for (int j = 0; j < other->n_accesses && x->lag > 0; j++) {
            const struct access *y = &other->accesses[j];
            if (x->memory == y->memory && x->index == y->index && y->is_write)
                return x->lag;
        }
    }
    return 0;
}

bool task_pulls_pushed(const struct task *task, const struct task *other)
{
    return task->kind == TASK_PULL && task->medium == MEDIUM_SERVER && !task->is_on_demand &&
           (other->does >> TASK_PUSH & 1) && other->bucket == task->bucket;
}
