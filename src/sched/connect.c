/* SPDX-License-Identifier: MIT */
/* connect.c - dependencies of a step program, from what its tasks read and write.
 *
 * Two tasks conflict if they touch the same memory and one of them writes it. The earlier one must
 * be done first: by the same member, where both reach the same part of their own; else by all
 * members. What is ordered already gets no wait: the order that a member runs its tasks in, and
 * waits of tasks before, are followed.
 *
 *   done(B)  what a member has done itself before it starts B
 *   full(B)  what all members have done before any member starts B:
 *            of each counter that B waits for: the task W itself, full(W), and done(W) of all members;
 *            of what the member itself did before: full of that
 *
 * A step is unrolled: step 0 gives the waits within a step. After it comes once another shard,
 * whose uses of parameters in partitions wait for those before, and once step 1, for waits for the
 * step before.
 *
 * Cost: n^2 pairs of tasks and n sets of 2n bits: about 600 tasks, 10 ms.
 */
#include <string.h>

#include "base/mem.h"
#include "sched/order.h"
#include "sched/program.h"

struct connecting {
    struct program *program;
    struct order order;
    int wait_capacity;
};

static bool is_lane(const struct task *task)
{
    return task->place != PLACE_NET && task->place != PLACE_SERVER;
}

/* Does it give a bucket's room in the window of gradients back? Lanes wait for that. */
static bool gives_room(const struct task *task)
{
    for (int i = 0; i < task->n_accesses; i++) {
        if (task->accesses[i].memory == MEMORY_ROOM && task->accesses[i].is_write)
            return true;
    }
    return false;
}

/* Does somebody count how often it is done? Computations are counted by the task that follows them,
 * sums that are kept by the norm. */
static bool can_signal(const struct task *task)
{
    const uint32_t sums = 1U << TASK_REDUCE_SCATTER | 1U << TASK_SUM_FACTORS |
                          1U << TASK_SUM_ROWS | 1U << TASK_PUSH;
    const uint32_t update = 1U << TASK_UPDATE;
    const bool is_kept_sum = (task->does & sums) && !(task->does & update);
    const bool is_kept_reduce =
        task->kind == TASK_ALL_REDUCE && task->bucket >= 0 && !(task->does & update);

    const uint32_t uncounted = 1U << TASK_COMPUTE | 1U << TASK_SEND | 1U << TASK_RECEIVE |
                               1U << TASK_TENSOR | 1U << TASK_CLIP | 1U << TASK_DIRECTION;

    if (task->place == PLACE_SERVER)
        return true;
    return !(uncounted >> task->kind & 1) && !task->is_on_demand &&
           (gives_room(task) || (!is_kept_sum && !is_kept_reduce));
}

static enum status add_wait(struct connecting *c, int task, struct wait wait)
{
    struct program *program = c->program;
    struct task *waiting = &program->tasks[task];

    /* Waits of a task stand in a row: those of later tasks move. */
    if (program->n_waits == c->wait_capacity) {
        struct wait *more;
        TRY(mem_alloc(2 * (size_t)c->wait_capacity, sizeof *more, &more));
        memcpy(more, program->waits, (size_t)program->n_waits * sizeof *more);
        mem_free(program->waits);
        program->waits = more;
        c->wait_capacity *= 2;
    }
    const int at = waiting->first_wait + waiting->n_waits;
    memmove(&program->waits[at + 1], &program->waits[at],
            (size_t)(program->n_waits - at) * sizeof *program->waits);
    program->waits[at] = wait;
    program->n_waits++;
    waiting->n_waits++;
    for (int t = task + 1; t < program->n_tasks; t++)
        program->tasks[t].first_wait++;
    return STATUS_OK;
}

/* Lanes count an accumulation at the end of their last shard: what a shard runs in the same step
 * cannot wait for it. */
static bool is_too_late(const struct task *counted, const struct task *waiting,
                        enum unrolled unrolled)
{
    return counted->kind == TASK_ACCUMULATE && waiting->place == PLACE_LANE &&
           unrolled != LAST_STEP;
}

/* The first task that is counted, from `from` on, after which all members have done `from`. */
static int signal_after(const struct connecting *c, int from, int waiting,
                        enum unrolled unrolled)
{
    const struct program *program = c->program;
    const int end = unrolled != SAME ? program->n_tasks : waiting;

    for (int s = from; s < end; s++) {
        const struct task *task = &program->tasks[s];
        if (!can_signal(task) || (task->by_use && !program->tasks[from].by_use) ||
            is_lane(task) != is_lane(&program->tasks[from]) ||
            is_too_late(task, &program->tasks[waiting], unrolled))
            continue;
        if (s == from || order_is_done(&c->order, from, s))
            return s;
    }
    return -1;
}

/* Task b of the step that runs must come after task a, of this step or the last. */
static enum status put_after(struct connecting *c, int a, int b, enum unrolled unrolled,
                             bool is_local)
{
    const struct program *program = c->program;
    const bool may_miss = unrolled == SAME && !is_local && program->tasks[a].is_of_workers;
    struct wait wait = { .task = a,
                         .is_last_step = unrolled == LAST_STEP,
                         .is_last_use = unrolled == LAST_USE,
                         .is_local = is_local,
                         .but = may_miss ? program->tasks[b].but : 0 };

    if (!is_local)
        wait.task = signal_after(c, a, b, unrolled);
    if (wait.task < 0) {
        struct strbuf first, second;
        strbuf_init(&first, 128);
        strbuf_init(&second, 128);
        task_print_name(&program->tasks[a], &first);
        task_print_name(&program->tasks[b], &second);
        const enum status status =
            FAIL(STATUS_MISMATCH, "%s must wait for %s, which nothing counts", second.text,
                 first.text);
        strbuf_release(&first);
        strbuf_release(&second);
        return status;
    }
    wait.by_use = program->tasks[wait.task].by_use && task_is_repeated(&program->tasks[b]);
    TRY(add_wait(c, b, wait));
    order_add_wait(&c->order, program, b, &wait);
    return STATUS_OK;
}

static enum status connect_task(struct connecting *c, int b, enum unrolled unrolled)
{
    const struct program *program = c->program;
    enum conflict conflict;
    int a = unrolled != SAME ? program->n_tasks : b;

    order_begin_task(&c->order, program, b);
    /* From the latest on: what that has waited for is ordered by it. */
    while ((a = order_next_race(&c->order, program, b, a, &conflict)) >= 0)
        TRY(put_after(c, a, b, unrolled,
                      conflict == CONFLICT_OWN && !is_lane(&program->tasks[b])));
    return STATUS_OK;
}

/* Servers: tasks that take turns, and bounded staleness. */
static enum status connect_turns(struct connecting *c)
{
    const struct program *program = c->program;

    for (int b = 0; b < program->n_tasks; b++) {
        for (int a = 0; a < program->n_tasks; a++) {
            const int lag = task_lag(&program->tasks[b], &program->tasks[a]);
            if (tasks_take_turns(&program->tasks[a], &program->tasks[b]))
                TRY(add_wait(c, b, (struct wait){ .task = a, .is_apart = true }));
            if (lag > 0)
                TRY(add_wait(
                    c, b,
                    (struct wait){ .task = a, .is_last_step = true, .earlier = lag - 1 }));
        }
    }
    return STATUS_OK;
}

/* Servers answer a pull when they have what the last step has pushed. */
static enum status connect_pulls(struct connecting *c)
{
    const struct program *program = c->program;

    for (int b = 0; b < program->n_tasks; b++) {
        for (int a = 0; a < program->n_tasks; a++) {
            const struct wait wait = { .task = a, .is_last_step = true, .by_medium = true };
            if (task_pulls_pushed(&program->tasks[b], &program->tasks[a]))
                TRY(add_wait(c, b, wait));
        }
    }
    return STATUS_OK;
}

/* Whoever reads a bucket's sends ends after they have ended. */
static enum status connect_sends(struct connecting *c)
{
    const struct program *program = c->program;

    for (int b = 0; b < program->n_tasks; b++) {
        for (int a = 0; a < b; a++) {
            const struct wait wait = { .task = a, .is_local = true, .at_end = true };
            if (task_needs_sends(&program->tasks[b], &program->tasks[a]))
                TRY(add_wait(c, b, wait));
        }
    }
    return STATUS_OK;
}

/* Counters --------------------------------------------------------------------------------- */

static void need_signal(struct program *program, int task)
{
    if (task >= 0)
        program->tasks[task].signal = 0;
}

/* An earlier task of the kind for another use of the bucket, whose counter is this task's as well;
 * -1: none. */
static int counter_of_uses(const struct program *program, int task)
{
    const struct task *of = &program->tasks[task];

    for (int t = 0; t < task && of->by_use; t++) {
        const struct task *other = &program->tasks[t];
        if (other->by_use && other->kind == of->kind && other->bucket == of->bucket)
            return t;
    }
    return -1;
}

static enum status number_signals(struct program *program)
{
    for (int i = 0; i < program->n_waits; i++) {
        if (!program->waits[i].is_local && !program->waits[i].by_medium &&
            !program->waits[i].is_apart)
            need_signal(program, program->waits[i].task);
    }
    for (int b = 0; b < program->n_buckets; b++) {
        need_signal(program, program->announced[b]);
        need_signal(program, program->ready[b]);
        need_signal(program, program->fresh[b]);
        need_signal(program, program->summed[b]);
    }
    for (int g = 0; g < program->n_gathers; g++) {
        need_signal(program, program->made[g]);
        need_signal(program, program->gathered[g]);
    }
    need_signal(program, program->norm);
    need_signal(program, program->direction_norm);
    need_signal(program, program->losses);
    for (int i = 0; i < BARRIERS; i++)
        need_signal(program, program->barrier[i]);
    for (int t = 0; t < program->n_tasks; t++) {
        struct task *task = &program->tasks[t];
        const int shared = counter_of_uses(program, t);
        if (shared >= 0)
            task->signal = program->tasks[shared].signal;
        else if (task->signal >= 0)
            task->signal = program->n_signals++;
    }
    return STATUS_OK;
}

enum status program_connect(struct program *program)
{
    struct connecting c = { .program = program, .wait_capacity = 64 };

    TRY(mem_alloc((size_t)c.wait_capacity, sizeof *program->waits, &program->waits));
    enum status status = order_create(program->n_tasks, &c.order);
    if (status == STATUS_OK)
        status = connect_pulls(&c);
    for (int unrolled = SAME; unrolled < UNROLLED && status == STATUS_OK; unrolled++) {
        order_begin(&c.order, (enum unrolled)unrolled);
        for (int b = 0; b < program->n_tasks && status == STATUS_OK; b++)
            status = connect_task(&c, b, (enum unrolled)unrolled);
    }
    if (status == STATUS_OK)
        status = connect_sends(&c);
    if (status == STATUS_OK)
        status = connect_turns(&c);
    order_destroy(&c.order);
    return status == STATUS_OK ? number_signals(program) : status;
}
