/* SPDX-License-Identifier: MIT */
/* sync.c - runs the synchronization tasks of a lane: sums, norms and updates, in program order.
 *
 * Between the computations of its last shard, and after it, a lane looks at the next such task of
 * the step program. If what the task waits for is done the lane does its part and increments the
 * task's counter. The program says which tasks there are; nothing here knows a strategy. A kind of
 * task is a row of `rows`.
 */
#include "exec/exec.h"
#include "exec/hold.h"
#include "exec/lane.h"
#include "exec/layout.h"
#include "exec/now.h"
#include "exec/release.h"
#include "exec/remote.h"
#include "exec/sums.h"

/* What a lane does for a kind of task, and what a trace calls it. */
struct sync_row {
    enum status (*run)(struct lane *lane, const struct task *task);
    const char *point; /* of tests of faults, before the counter is incremented; NULL: none */
    const char *name;  /* in traces */
};

static bool does(const struct task *task, enum task_kind kind)
{
    return task->does >> kind & 1;
}

/* One shard alone: a bucket's gradients pass through the arena. */
static float *passing_gradients(const struct lane *lane, int b)
{
    return lane->layout->buckets.pass ? (float *)(lane->arena + lane->plan->gradients[b])
                                      : NULL;
}

static enum status run_sum(struct lane *lane, const struct task *task)
{
    const enum reduce_what what = does(task, TASK_PUSH)     ? SUM_AND_GIVE
                                  : does(task, TASK_UPDATE) ? SUM_AND_UPDATE
                                                            : SUM_AND_KEEP;

    reduce_bucket(&lane->worker, task->bucket, what, passing_gradients(lane, task->bucket),
                  &lane->numbers);
    if (lane->clock.is_first)
        lane->clock.times.bytes += reduce_bytes(lane->worker.sums, task->bucket);
    return STATUS_OK;
}

/* The norm of all gradients is known: updates are scaled by it. */
static enum status scale_numbers(struct lane *lane)
{
    return lane->layout->facts.rule.clips
               ? reduce_clip_scale(lane->worker.sums, lane->now->steps, &lane->numbers.scale)
               : STATUS_OK;
}

static enum status run_direction(struct lane *lane, const struct task *task)
{
    TRY(scale_numbers(lane));
    reduce_bucket(&lane->worker, task->bucket, DIRECT, NULL, &lane->numbers);
    return STATUS_OK;
}

static enum status run_update(struct lane *lane, const struct task *task)
{
    TRY(scale_numbers(lane));
    reduce_bucket(&lane->worker, task->bucket, UPDATE, NULL, &lane->numbers);
    return STATUS_OK;
}

/* This lane's squares are written: its counter says so, and there is nothing else to do. */
static enum status run_nothing(struct lane *lane, const struct task *task)
{
    (void)lane;
    (void)task;
    return STATUS_OK;
}

static const struct sync_row rows[TASK_KINDS] = {
    [TASK_REDUCE_SCATTER] = { run_sum, "sum", "sum" },
    [TASK_SUM_FACTORS] = { run_sum, "sum", EXEC_MAKING },
    [TASK_SUM_ROWS] = { run_sum, "sum", EXEC_MAKING },
    [TASK_NORM] = { run_nothing, "reduced", NULL },
    [TASK_BARRIER] = { run_nothing, "reduced", NULL },
    [TASK_DIRECTION] = { run_direction, NULL, "directions" },
    [TASK_UPDATE] = { run_update, NULL, "update by norms" },
};

/* Making a gradient of what other lanes have is no communication. */
static bool is_making(const struct task *task)
{
    return task->kind == TASK_SUM_FACTORS || task->kind == TASK_SUM_ROWS;
}

static enum status do_work(struct lane *lane, int number, const struct sync_row *row)
{
    const struct task *task = &lane->program->tasks[number];

    TRY(row->run(lane, task));
    if (task->signal < 0)
        return STATUS_OK;
    if (does(task, TASK_UPDATE))
        account_meet(lane->clock.account, "done");
    else if (number == lane->program->direction_norm)
        account_meet(lane->clock.account, "directed");
    else if (row->point)
        account_meet(lane->clock.account, row->point);
    clock_signal(&lane->clock, number);
    return STATUS_OK;
}

static enum status run_task(struct lane *lane, int number)
{
    const struct task *task = &lane->program->tasks[number];
    const struct sync_row *row = &rows[task->kind];
    const char *bucket =
        task->bucket < 0 ? NULL : lane->clock.account->bucket_names[task->bucket];
    const char *name = task->kind == TASK_REDUCE_SCATTER && does(task, TASK_UPDATE)
                           ? "sum and update"
                           : row->name;

    BUG_ON(!row->run);
    if (!name)
        return do_work(lane, number, row);
    if (is_making(task)) {
        const int64_t begin = trace_begin(lane->clock.trace);
        TRY(do_work(lane, number, row));
        trace_end(lane->clock.trace, begin, TRACE_COMPUTE, name, bucket);
    } else {
        const struct span span = clock_begin_comm(&lane->clock);
        const enum status status = do_work(lane, number, row);
        clock_end_comm(&lane->clock, span, name, bucket);
        TRY(status);
    }
    return does(task, TASK_PUSH) ? remote_arrive(lane->worker.sums, &lane->clock, task->bucket)
                                 : STATUS_OK;
}

/* What a lane that waits for a task is told to wait for. */
static const char *name_of_wait(const struct exec_account *account, const struct task *task,
                                bool is_last_step)
{
    if (task->gather >= 0)
        return "shard_gather of batch statistics";
    if (task->kind == TASK_COPY)
        return "all_gather of samples";
    if (task->kind == TASK_COLUMNS)
        return "all_gather of a layer's columns";
    if (is_last_step && task->bucket >= 0) /* all read one copy, or get the parts of others */
        return task->place == PLACE_LANE_SYNC && !does(task, TASK_ALL_GATHER)
                   ? "update of parameters"
                   : "all_gather of parameters";
    if (task->kind == TASK_NORM)
        return task->note ? "all_reduce of directions' norms"
                          : "all_reduce of the gradient's norm";
    return task->bucket < 0 ? "a barrier of lanes" : account->reduce_names[task->bucket];
}

/* A computation may wait for a task of its own step in which this lane has a part: that runs first. */
static enum status run_awaited(struct lane *lane, const struct task *task,
                               const struct wait *wait)
{
    const struct task *awaited = &lane->program->tasks[wait->task];

    if (wait->is_last_step || task->place != PLACE_LANE || awaited->place != PLACE_LANE_SYNC)
        return STATUS_OK;
    return lane_sync(lane, wait->task + 1);
}

/* Waits for what a task waits for; without `must` says whether it is there. */
static enum status await_task(struct lane *lane, const struct task *task, bool must,
                              bool *ready)
{
    struct exec_account *account = lane->clock.account;
    const struct program *program = lane->program;

    *ready = false;
    for (int i = 0; i < task->n_waits; i++) {
        const struct wait *wait = &program->waits[task->first_wait + i];
        const uint32_t step = lane->now->steps - (wait->is_last_step ? 1 : 0);
        if (wait->by_use) { /* a computation's, for its parameters */
            const struct task *unshard = &program->tasks[wait->task];
            TRY(hold_await(lane, unshard->bucket, unshard->segment > 0));
            continue;
        }
        if (wait->is_local || wait->by_medium ||
            account_task_is_done(account, wait->task, step))
            continue;
        if (!must)
            return STATUS_OK;
        TRY(run_awaited(lane, task, wait));
        account_meet(account, "wait");
        TRY(clock_wait_until(
            &lane->clock, wait->task, account_target(account, wait->task, step),
            name_of_wait(account, &program->tasks[wait->task], wait->is_last_step)));
    }
    *ready = true;
    return STATUS_OK;
}

enum status lane_await(struct lane *lane, const struct task *task)
{
    bool is_ready;

    return await_task(lane, task, true, &is_ready);
}

enum status lane_sync(struct lane *lane, int end)
{
    const struct program *program = lane->program;
    bool is_ready;

    for (; lane->next_task < program->n_tasks; lane->next_task++) {
        const struct task *task = &program->tasks[lane->next_task];
        if (task->place != PLACE_LANE_SYNC)
            continue;
        TRY(await_task(lane, task, lane->next_task < end, &is_ready));
        if (!is_ready)
            return STATUS_OK;
        const int64_t begin = trace_begin(lane->clock.trace);
        TRY(run_task(lane, lane->next_task));
        account_trace_task(lane->clock.account, lane->clock.trace, begin, lane->next_task);
    }
    return STATUS_OK;
}
