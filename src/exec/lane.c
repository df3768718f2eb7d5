/* SPDX-License-Identifier: MIT */
/* lane.c - runs the PLACE_LANE tasks of a step program (sched/program.h): forward, backward and
 * what comes between.
 *
 * A lane runs them in program order, for one shard after the other. A task starts when its waits
 * are over. A kind of task is a row of `rows`; nothing here knows a strategy. After a bucket of the
 * last shard is final, synchronization tasks that can run do so (sync.c).
 *
 * A shard without samples runs the same tasks: its gradients, records, tables and losses are zero.
 */
#include <string.h>

#include "base/mem.h"
#include "exec/exec.h"
#include "exec/hold.h"
#include "exec/lane.h"
#include "exec/layout.h"
#include "exec/now.h"
#include "exec/pipe.h"
#include "exec/release.h"
#include "exec/remote.h"
#include "exec/shared.h"
#include "exec/sums.h"
#include "graph/op.h"

struct lane_row {
    enum status (*run)(struct lane *lane, int task, const struct lane_shard *shard);
    /* After the task has ended, for the trace too; NULL: nothing. */
    enum status (*then)(struct lane *lane, const struct lane_shard *shard);
};

static bool is_last(const struct lane *lane, const struct lane_shard *shard)
{
    return shard->v == lane->first + lane->count - 1;
}

/* Computations ------------------------------------------------------------------------------- */

/* Buckets (bits) whose gradients, or records, a task is the first to write. */
static uint64_t written_by(const struct task *task)
{
    uint64_t buckets = 0;

    for (int i = 0; i < task->n_accesses; i++) {
        const struct access *a = &task->accesses[i];
        if (a->is_write && (a->memory == MEMORY_GRADIENT || a->memory == MEMORY_RECORD))
            buckets |= UINT64_C(1) << a->index;
    }
    return buckets;
}

/* Gradients that nobody reads any more give their memory back: those of the last step before they
 * are written, those of this one when others need their room in the window. */
static void release_touched(struct lane *lane, const struct task *task)
{
    for (int i = 0; i < task->n_accesses; i++) {
        const enum memory_kind memory = task->accesses[i].memory;
        if (memory == MEMORY_PARAM || memory == MEMORY_GRADIENT || memory == MEMORY_ROOM)
            release_bucket(lane, task->accesses[i].index);
    }
}

static void write_zeros(const struct lane *lane, uint64_t buckets)
{
    BUG_ON(lane->layout->buckets.pass); /* a step has samples */
    for (; buckets; buckets &= buckets - 1) {
        const int b = __builtin_ctzll(buckets);
        const int64_t begin = lane->layout->buckets.begin[b],
                      end = lane->layout->buckets.begin[b + 1];
        if (bucket_is_table(lane->layout, b))
            rows_leave_empty(lane->layout, b, lane->bases[BASE_FACTOR]);
        else if (!bucket_is_factored(lane->layout, b))
            memset((float *)lane->bases[BASE_GRAD] + begin, 0,
                   (size_t)(end - begin) * sizeof(float));
    }
}

static enum status run_nodes(struct lane *lane, int number, const struct lane_shard *shard)
{
    const struct task *task = &lane->program->tasks[number];

    const uint64_t written = written_by(task);

    if (lane->layout->releases)
        release_touched(lane, task);
    if (!shard->plan) {
        write_zeros(lane, written);
        return STATUS_OK;
    }
    const struct plan_range range = shard->plan->ranges[number];
    for (int i = range.begin; i < range.end; i++) {
        const struct instruction *next = &shard->plan->instructions[i];
        TRY(next->node->op->moves ? pipe_move(lane, next) : lane_run(lane, next, &shard->step));
    }
    return STATUS_OK;
}

/* Once a step -------------------------------------------------------------------------------- */

static enum status run_copy(struct lane *lane, int number, const struct lane_shard *shard)
{
    (void)shard;
    for (int64_t v = lane->first; v < lane->first + lane->count; v++)
        lane_copy_samples(lane, v);
    if (lane->program->tasks[number].signal >= 0) {
        account_meet(lane->clock.account, "gathered");
        clock_signal(&lane->clock, number);
    }
    return STATUS_OK;
}

static enum status run_columns(struct lane *lane, int number, const struct lane_shard *shard)
{
    (void)shard;
    columns_compute(&lane->worker, lane->program->tasks[number].bucket, lane->clock.trace);
    if (lane->program->tasks[number].signal >= 0) {
        account_meet(lane->clock.account, "joined");
        clock_signal(&lane->clock, number);
    }
    return STATUS_OK;
}

/* Once a shard ------------------------------------------------------------------------------- */

static enum status run_pull(struct lane *lane, int number, const struct lane_shard *shard)
{
    (void)shard;
    return remote_await(lane->worker.sums->config->remote, &lane->clock,
                        lane->program->tasks[number].bucket);
}

static enum status run_gather(struct lane *lane, int number, const struct lane_shard *shard)
{
    if (!shard->plan)
        gather_write_zeros(lane->layout, lane->memory->tables,
                           lane->program->tasks[number].gather, lane->first);
    account_meet(lane->clock.account, "met");
    clock_signal(&lane->clock, number);
    return STATUS_OK;
}

static enum status run_clip(struct lane *lane, int number, const struct lane_shard *shard)
{
    (void)number;
    if (shard->plan)
        privacy_clip(lane->layout, (float *)lane->bases[BASE_GRAD],
                     lane->worker.sums->config->privacy->clip * (double)shard->step.inv_batch);
    return STATUS_OK;
}

/* The shard's gradient of a bucket is final: adds what the tree adds. */
static void add_along_tree(struct lane *lane, const struct tree_stack *stack, int b)
{
    const size_t at = (size_t)lane->layout->buckets.begin[b];
    const size_t count = (size_t)lane->layout->buckets.begin[b + 1] - at;
    struct tree_stack sums = *stack;

    if (!tree_stack_can_add(&sums) || bucket_is_gathered(lane->layout, b) ||
        bucket_is_served(lane->layout, b))
        return; /* or it has no gradient of its own */
    const int64_t begin = trace_begin(lane->clock.trace);
    while (tree_stack_can_add(&sums)) {
        float *left = lane->gradients + (size_t)(sums.count - 2) * lane->layout->vector;
        kernel_add(left + at, left + at, left + at + lane->layout->vector, count);
        tree_stack_add(&sums);
    }
    trace_end(lane->clock.trace, begin, TRACE_COMPUTE, "add to the lane's sum",
              lane->clock.account->bucket_names[b]);
}

/* This lane has read a bucket in partitions for this use. */
static enum status run_is_read(struct lane *lane, int number, const struct lane_shard *shard)
{
    (void)shard;
    clock_signal(&lane->clock, number);
    return STATUS_OK;
}

static enum status run_accumulate(struct lane *lane, int number, const struct lane_shard *shard)
{
    const struct task *task = &lane->program->tasks[number];

    add_along_tree(lane, shard->stack, task->bucket);
    if (!is_last(lane, shard))
        return STATUS_OK;
    lane->announced |= UINT64_C(1) << task->bucket;
    account_meet(lane->clock.account, "ready");
    clock_signal(&lane->clock, number);
    release_announced(lane, task->bucket);
    return task->does >> TASK_PUSH & 1
               ? remote_arrive(lane->worker.sums, &lane->clock, task->bucket)
               : STATUS_OK;
}

/* A bucket more is announced: sums and updates whose waits are over run before the lane goes on. */
static enum status sync_announced(struct lane *lane, const struct lane_shard *shard)
{
    if (!is_last(lane, shard))
        return STATUS_OK;
    TRY(lane_sync(lane, 0));
    release_summed(lane);
    return STATUS_OK;
}

/* The table ---------------------------------------------------------------------------------- */

static const struct lane_row rows[TASK_KINDS] = {
    [TASK_COMPUTE] = { .run = run_nodes },
    [TASK_SEND] = { .run = run_nodes },
    [TASK_RECEIVE] = { .run = run_nodes },
    [TASK_TENSOR] = { .run = run_nodes },
    [TASK_COPY] = { .run = run_copy },
    [TASK_COLUMNS] = { .run = run_columns },
    [TASK_PULL] = { .run = run_pull },
    [TASK_ALL_GATHER] = { .run = run_gather },
    [TASK_CLIP] = { .run = run_clip },
    [TASK_ACCUMULATE] = { .run = run_accumulate, .then = sync_announced },
    [TASK_BARRIER] = { .run = run_is_read },
};

static bool is_of_lanes(const struct task *task)
{
    return task->place == PLACE_LANE && !task->is_on_demand;
}

enum status lane_run_tasks(struct lane *lane, int begin, int end,
                           const struct lane_shard *shard)
{
    const struct program *program = lane->program;

    for (int t = begin; t < end; t++) {
        const struct task *task = &program->tasks[t];
        if (!is_of_lanes(task))
            continue;
        BUG_ON(!rows[task->kind].run);
        TRY(lane_await(lane, task));
        const int64_t began = trace_begin(lane->clock.trace);
        TRY(rows[task->kind].run(lane, t, shard));
        account_trace_task(lane->clock.account, lane->clock.trace, began, t);
        if (rows[task->kind].then)
            TRY(rows[task->kind].then(lane, shard));
    }
    return STATUS_OK;
}

/* Plans --------------------------------------------------------------------------------------- */

static int first_from(const struct plan *plan, const int *number_of, int node)
{
    int i = 0;

    while (i < plan->n_instructions && number_of[i] < node)
        i++;
    return i;
}

/* The places of a plan's nodes in the graph, which has them in the same order. */
static enum status number_nodes(const struct graph *graph, const struct plan *plan, int *out)
{
    int n = 0;

    for (int i = 0; i < plan->n_instructions; i++, n++) {
        while (n < graph_node_count(graph) &&
               graph_node(graph, n) != plan->instructions[i].node)
            n++;
        if (n == graph_node_count(graph))
            return FAIL(STATUS_MISMATCH, "node %s stands elsewhere in the plan",
                        plan->instructions[i].node->name);
        out[i] = n;
    }
    return STATUS_OK;
}

enum status lane_find_ranges(const struct program *program, const struct graph *graph,
                             struct plan *plan)
{
    int *number_of;

    TRY(mem_alloc((size_t)plan->n_instructions + 1, sizeof *number_of, &number_of));
    enum status status =
        mem_alloc((size_t)program->n_tasks + 1, sizeof *plan->ranges, &plan->ranges);
    if (status == STATUS_OK)
        status = number_nodes(graph, plan, number_of);
    for (int t = 0; t < program->n_tasks && status == STATUS_OK; t++) {
        const struct task *task = &program->tasks[t];
        if (is_of_lanes(task))
            plan->ranges[t] =
                (struct plan_range){ first_from(plan, number_of, task->first_node),
                                     first_from(plan, number_of, task->end_node) };
    }
    mem_free(number_of);
    return status;
}
