/* SPDX-License-Identifier: MIT */
/* sync.c - runs the synchronization tasks of a lane: sums, norms and updates, in program order.
 *
 * Between the computations of its last shard, and after it, a lane looks at the next such task of the
 * step program. If what the task waits for is done the lane does its part and increments the task's
 * counter. The program says which tasks there are; nothing here knows a strategy. A kind of task is
 * a row of `rows`.
 */
#include "exec/state.h"

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

static enum status run_sum(struct lane *lane, const struct task *task)
{
    const enum reduce_what what = does(task, TASK_PUSH)     ? SUM_AND_GIVE
                                  : does(task, TASK_UPDATE) ? SUM_AND_UPDATE
                                                            : SUM_AND_KEEP;

    reduce_bucket(lane, task->bucket, what, &lane->numbers);
    if (lane == lane->exec->lanes)
        lane->times.bytes += reduce_bytes(lane->exec, task->bucket);
    return STATUS_OK;
}

/* The norm of all gradients is known: updates are scaled by it. */
static enum status scale_numbers(struct lane *lane)
{
    struct exec *exec = lane->exec;

    return exec->layout.clips ? reduce_clip_scale(exec, exec->now.steps, &lane->numbers.scale)
                              : STATUS_OK;
}

static enum status run_direction(struct lane *lane, const struct task *task)
{
    TRY(scale_numbers(lane));
    reduce_bucket(lane, task->bucket, DIRECT, &lane->numbers);
    return STATUS_OK;
}

static enum status run_update(struct lane *lane, const struct task *task)
{
    TRY(scale_numbers(lane));
    reduce_bucket(lane, task->bucket, UPDATE, &lane->numbers);
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
    const struct task *task = &lane->exec->program->tasks[number];

    TRY(row->run(lane, task));
    if (task->signal < 0)
        return STATUS_OK;
    if (does(task, TASK_UPDATE))
        exec_meet(lane->exec, "done");
    else if (number == lane->exec->program->direction_norm)
        exec_meet(lane->exec, "directed");
    else if (row->point)
        exec_meet(lane->exec, row->point);
    lane_signal(lane, number);
    return STATUS_OK;
}

static enum status run_task(struct lane *lane, int number)
{
    struct exec *exec = lane->exec;
    const struct task *task = &exec->program->tasks[number];
    const struct sync_row *row = &rows[task->kind];
    const char *bucket = task->bucket < 0 ? NULL : exec->account.bucket_names[task->bucket];
    const char *name = task->kind == TASK_REDUCE_SCATTER && does(task, TASK_UPDATE)
                           ? "sum and update"
                           : row->name;

    BUG_ON(!row->run);
    if (!name)
        return do_work(lane, number, row);
    if (is_making(task)) {
        const int64_t begin = trace_begin(lane->trace);
        TRY(do_work(lane, number, row));
        trace_end(lane->trace, begin, TRACE_COMPUTE, name, bucket);
    } else {
        const struct span span = lane_begin_comm(lane);
        const enum status status = do_work(lane, number, row);
        lane_end_comm(lane, span, name, bucket);
        TRY(status);
    }
    return does(task, TASK_PUSH) ? remote_arrive(lane, task->bucket) : STATUS_OK;
}

/* What a lane that waits for a task is told to wait for. */
static const char *name_of_wait(const struct exec *exec, const struct task *task,
                                bool is_last_step)
{
    if (task->gather >= 0)
        return "shard_gather of batch statistics";
    if (task->kind == TASK_COPY)
        return "all_gather of samples";
    if (task->kind == TASK_COLUMNS)
        return "all_gather of a layer's columns";
    if (is_last_step && task->bucket >= 0)
        return "all_gather of parameters";
    if (task->kind == TASK_NORM)
        return task->note ? "all_reduce of directions' norms"
                          : "all_reduce of the gradient's norm";
    return task->bucket < 0 ? "a barrier of lanes" : exec->account.reduce_names[task->bucket];
}

/* What a computation waits for in its own step may be this lane's to do as well: first comes that. */
static enum status run_awaited(struct lane *lane, const struct task *task,
                               const struct wait *wait)
{
    const struct task *awaited = &lane->exec->program->tasks[wait->task];

    if (wait->is_last_step || task->place != PLACE_LANE || awaited->place != PLACE_LANE_SYNC)
        return STATUS_OK;
    return lane_sync(lane, wait->task + 1);
}

/* Waits for what a task waits for; without `must` says whether it is there. */
static enum status await_task(struct lane *lane, const struct task *task, bool must,
                              bool *ready)
{
    struct exec *exec = lane->exec;

    *ready = false;
    for (int i = 0; i < task->n_waits; i++) {
        const struct wait *wait = &exec->program->waits[task->first_wait + i];
        const uint32_t step = exec->now.steps - (wait->is_last_step ? 1 : 0);
        if (wait->by_use) { /* a computation's, for its parameters */
            const struct task *unshard = &exec->program->tasks[wait->task];
            TRY(hold_await(lane, unshard->bucket, unshard->segment > 0));
            continue;
        }
        if (wait->is_local || wait->by_medium || exec_task_is_done(exec, wait->task, step))
            continue;
        if (!must)
            return STATUS_OK;
        TRY(run_awaited(lane, task, wait));
        exec_meet(exec, "wait");
        TRY(exec_wait_until(
            exec, lane, wait->task, exec_target(exec, wait->task, step),
            name_of_wait(exec, &exec->program->tasks[wait->task], wait->is_last_step)));
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
    const struct program *program = lane->exec->program;
    bool is_ready;

    for (; lane->next_task < program->n_tasks; lane->next_task++) {
        const struct task *task = &program->tasks[lane->next_task];
        if (task->place != PLACE_LANE_SYNC)
            continue;
        TRY(await_task(lane, task, lane->next_task < end, &is_ready));
        if (!is_ready)
            return STATUS_OK;
        const int64_t begin = trace_begin(lane->trace);
        TRY(run_task(lane, lane->next_task));
        exec_trace_task(lane->exec, lane->trace, begin, lane->next_task);
    }
    return STATUS_OK;
}
