/* SPDX-License-Identifier: MIT */
/* bench_bucket.c - how long a step of training takes to sum, update and spread one bucket.
 *
 * The model is one table of embeddings, so its gradient is one bucket: a step reads a row, and
 * writes all of the gradient. It has the strategy's passes, is lowered and run like any other;
 * what is timed are tasks of its step program, by the events that lanes and the inter-node thread
 * record of them.
 *
 * The time of an op in a step is from when the last rank has done all that the op's tasks wait for,
 * to when the last rank has done the op's tasks. So what a rank waits for others before does not
 * count, and the times of ops that follow each other add up.
 *
 * Ranks of several machines have clocks of their own: rank 0 asks for them (trace_file.h).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "exec/exec.h"
#include "graph/build.h"
#include "sched/work.h"
#include "train/job.h"
#include "train/made_up.h"
#include "train/trace_file.h"

enum { LEAST = 5, MOST = 400, WARM_UPS = 3, WIDEST = 1024, EVENTS_A_SHARD = 32 };

static const double usual_seconds = 0.4, warm_up_seconds = 0.02;

/* The model ---------------------------------------------------------------------------------- */

enum { OPTION_ROWS, OPTION_WIDTH };

static void build_bucket(struct graph *graph, const struct model_config *config,
                         struct value *input, struct value *target)
{
    const int64_t rows = (int64_t)config->options[OPTION_ROWS];
    const int64_t width = (int64_t)config->options[OPTION_WIDTH];

    build_classifier_loss(graph, build_embedding_mean(graph, "bucket", input, rows, width),
                          target);
}

static const struct model bucket_model = {
    .name = "bucket",
    .summary = "one table of embeddings",
    .task = MODEL_TEXT_CLASSES,
    .vocab = { 1 },
    .length = { 1 },
    .classes = 1,
    .options = { [OPTION_ROWS] = { .name = "rows",
                                   .summary = "of the table",
                                   .value = 1,
                                   .minimum = 1,
                                   .maximum = 1e12,
                                   .is_whole = true },
                 [OPTION_WIDTH] = { .name = "width",
                                    .summary = "of a row",
                                    .value = 1,
                                    .minimum = 1,
                                    .maximum = WIDEST,
                                    .is_whole = true } },
    .build = build_bucket,
};

/* The most columns that a table of so many numbers can have: whole rows are cleared at once. */
static size_t width_of(size_t count)
{
    size_t width = WIDEST;

    while (count % width)
        width--;
    return width;
}

/* A shard of one sample for each thread, or several if settings say so. */
static enum status make_job(const struct settings *settings, size_t bytes, struct job **out)
{
    const size_t count = bytes / sizeof(float), width = width_of(count), rows = count / width;
    struct settings s = *settings;

    s.threads = s.threads ? s.threads : 1;
    s.dense = true; /* a gradient of the whole table */
    s.vocab = 0;
    s.length = 0;
    s.options[OPTION_ROWS] = (double)rows;
    s.options[OPTION_WIDTH] = (double)width;
    s.batch = s.shards ? s.shards : s.ranks * s.threads * (s.accumulate ? s.accumulate : 1);
    snprintf(s.model, sizeof s.model, "%s", bucket_model.name);
    return job_create(&s, &bucket_model, JOB_GRAPH, out);
}

static enum status check_job(const struct job *job)
{
    const struct axes *axes = &job->axes;
    const char *why = axes_are_private(axes)        ? "its workers make steps alone"
                      : axes_are_a_grid(axes)       ? "its ranks have different buckets"
                      : axes->meet == MEET_PARALLAX ? "it is for tables that are not dense"
                                                    : NULL;

    if (strcmp(job->settings.device, "cpu") != 0)
        return FAIL(STATUS_USAGE,
                    "bench comm --device %s: times are of ranks that compute on the cpu",
                    job->settings.device);
    return why ? FAIL(STATUS_USAGE, "bench comm --strategy %s: %s", job->strategy->name, why)
               : STATUS_OK;
}

enum status train_check_bucket(const struct settings *settings, bool *out_flat)
{
    struct job *job;

    TRY(make_job(settings, sizeof(float), &job));
    const enum status status = check_job(job);
    *out_flat = job->settings.flat;
    job_destroy(job);
    return status;
}

/* Ops ---------------------------------------------------------------------------------------- */

const char *const bench_bucket_ops[] = { "all_reduce", "reduce_scatter", "update", "all_gather",
                                         NULL };

static const uint32_t kinds_of_ops[BENCH_BUCKET_OPS] = {
    1U << TASK_ALL_REDUCE | 1U << TASK_REDUCE_SCATTER | 1U << TASK_NORM | 1U << TASK_DIRECTION |
        1U << TASK_UPDATE | 1U << TASK_ALL_GATHER,
    1U << TASK_REDUCE_SCATTER,
    1U << TASK_UPDATE,
    1U << TASK_ALL_GATHER,
};

/* When an op begins and ends in a step, on some rank; 0: not known. */
struct span {
    int64_t begin, end;
};

/* A measurement on a rank. */
struct timer {
    const struct bench_bucket *bench;
    struct transport *transport;
    struct job *job;
    struct comm *comm;
    struct program *program;
    struct exec *exec;
    struct trace *trace;
    struct batch batch;
    uint64_t first;                       /* step that is timed */
    int64_t steps;                        /* that are */
    int64_t ahead;                        /* nanoseconds, of this clock before rank 0's */
    struct span *spans[BENCH_BUCKET_OPS]; /* [steps] */
};

/* Losses are another op's: they are of no bucket. */
static bool is_of_op(const struct task *task, int op)
{
    const bool is_sync = task->place == PLACE_LANE_SYNC || task->place == PLACE_NET;
    const bool is_about_it = task->bucket >= 0 || task->kind == TASK_NORM;

    return is_sync && is_about_it && (task->does & kinds_of_ops[op]);
}

/* Does a task of the op wait for this one, which is none of them? */
static bool is_before_op(const struct program *program, int number, int op)
{
    bool is_awaited = false;

    for (int t = 0; t < program->n_tasks; t++) {
        const struct task *task = &program->tasks[t];
        for (int i = 0; i < task->n_waits && is_of_op(task, op); i++) {
            const struct wait *wait = &program->waits[task->first_wait + i];
            is_awaited |= wait->task == number && !wait->is_last_step;
        }
    }
    return is_awaited && !is_of_op(&program->tasks[number], op);
}

static void print_kinds(const struct task *task, struct strbuf *out)
{
    task_print_kinds(task, out);
    if (task->note)
        strbuf_printf(out, " (%s)", task->note);
}

/* "messages: reduce_scatter+update, all_gather" */
static enum status name_tasks(const struct program *program, int op, char *out, size_t room)
{
    enum task_medium medium = MEDIUM_NONE;
    struct strbuf names;
    int n = 0;

    strbuf_init(&names, 4096);
    for (int t = 0; t < program->n_tasks; t++) {
        const struct task *task = &program->tasks[t];
        if (!is_of_op(task, op))
            continue;
        medium = medium == MEDIUM_NONE ? task->medium : medium;
        strbuf_add(&names, n++ ? ", " : "");
        print_kinds(task, &names);
    }
    const enum status status = strbuf_status(&names);
    *out = '\0';
    if (status == STATUS_OK && n > 0)
        snprintf(out, room, "%s: %s", task_medium_name(medium), names.text);
    strbuf_release(&names);
    return status;
}

/* Parts of the bucket that cross between ranks: each but the own one, once or twice. */
static double optimum_of(const struct timer *timer, int op)
{
    const double ranks = transport_size(timer->transport);
    double times = 0;

    for (int t = 0; t < timer->program->n_tasks; t++) {
        const uint32_t does = timer->program->tasks[t].does;
        if (is_of_op(&timer->program->tasks[t], op))
            times += (does >> TASK_REDUCE_SCATTER & 1) + (does >> TASK_ALL_GATHER & 1) +
                     2 * (does >> TASK_ALL_REDUCE & 1);
    }
    times = times > 2 ? 2 : times; /* what is summed compressed needs no all_gather */
    return times * (double)timer->bench->bytes * (ranks - 1) / ranks;
}

/* By the rank whose node sends most. */
static enum status count_bytes(const struct timer *timer, double sent[BENCH_BUCKET_OPS])
{
    const int node = transport_node_of(timer->transport, transport_rank(timer->transport));
    const int ranks = transport_node_size(timer->transport, node);
    struct task_work *works;

    TRY(mem_alloc((size_t)timer->program->n_tasks, sizeof *works, &works));
    const enum status status = job_task_work(timer->job, timer->program, works);
    for (int op = 0; op < BENCH_BUCKET_OPS; op++) {
        sent[op] = 0;
        for (int t = 0; t < timer->program->n_tasks && status == STATUS_OK; t++)
            sent[op] += is_of_op(&timer->program->tasks[t], op) ? task_bytes(&works[t]) : 0;
        sent[op] /= ranks;
    }
    mem_free(works);
    TRY(status);
    return comm_all_reduce(timer->comm, sent, BENCH_BUCKET_OPS, DTYPE_F64, COMM_OP_MAX);
}

/* Steps -------------------------------------------------------------------------------------- */

static enum status start(struct timer *timer)
{
    struct job *job = timer->job;

    TRY(job_check_nodes(job, timer->transport));
    TRY(comm_create(timer->transport, NULL, &timer->comm));
    TRY(rails_choose(job->settings.rails, job->graph, timer->comm, &job->rails));
    TRY(trace_create(&timer->trace));
    struct exec_config config = job_exec_config(job);
    config.comm = timer->comm;
    config.trace = timer->trace;
    config.at_meeting = timer->bench->at_meeting;
    config.at_meeting_arg = timer->bench->at_meeting_arg;
    TRY(exec_lower(&config, timer->transport, &timer->program));
    TRY(exec_create(&config, &timer->exec));
    const int64_t first = exec_first_shard(timer->exec); /* shards of one sample */
    return made_up_batch(job, job->settings.batch, first, exec_shard_count(timer->exec),
                         &timer->batch);
}

static enum status run_steps(struct timer *timer, int64_t steps, double *out_seconds)
{
    const double began = clock_seconds();
    struct exec_result result;

    for (int64_t i = 0; i < steps; i++) {
        TRY(exec_step(timer->exec, &timer->batch, &result));
        timer->batch.step++;
    }
    TRY(exec_settle(timer->exec));
    *out_seconds = clock_seconds() - began;
    return STATUS_OK;
}

/* Until some time has passed; then rank 0 says how many steps are timed. */
static enum status warm_up(struct timer *timer)
{
    const double wanted = timer->bench->seconds > 0 ? timer->bench->seconds : usual_seconds;
    const int64_t shards = exec_shard_count(timer->exec) / exec_lanes(timer->exec) + 2;
    const int64_t room = TRACE_CAPACITY / (EVENTS_A_SHARD * shards);
    double total = 0, seconds;
    int64_t steps;

    TRY(run_steps(timer, 1, &seconds)); /* touches the memory */
    do {
        TRY(run_steps(timer, WARM_UPS, &seconds));
        total += seconds;
        steps = total < warm_up_seconds ? 0 : (int64_t)(wanted / seconds * WARM_UPS);
        steps = steps > MOST ? MOST : steps;
        steps = steps > room ? room : steps;
        steps = total >= warm_up_seconds && steps < LEAST ? LEAST : steps;
        TRY(comm_broadcast(timer->comm, &steps, 1, DTYPE_I64, 0));
    } while (steps == 0);
    timer->steps = steps;
    return STATUS_OK;
}

static void note_event(void *arg, const struct trace_event *event)
{
    struct timer *timer = arg;
    const int64_t end = event->end - timer->ahead;
    const uint64_t step = event->step - timer->first;

    if (event->kind != TRACE_TASK || step >= (uint64_t)timer->steps)
        return;
    const int task = (int)strtol(event->detail, NULL, 10);
    for (int op = 0; op < BENCH_BUCKET_OPS; op++) {
        struct span *span = &timer->spans[op][step];
        if (is_of_op(&timer->program->tasks[task], op))
            span->end = end > span->end ? end : span->end;
        else if (is_before_op(timer->program, task, op))
            span->begin = end > span->begin ? end : span->begin;
    }
}

/* By how much this clock is ahead of rank 0's; what it is on one machine is 0. */
static enum status compare_clocks(struct timer *timer)
{
    struct transport *transport = timer->transport;
    const uint32_t tag = transport_new_tags(transport, 1);
    const int rank = transport_rank(transport);

    if (transport_is_one_machine(transport))
        return STATUS_OK;
    if (rank != 0) {
        TRY(trace_tell_time(transport, tag, clock_ns));
        return transport_receive(transport, 0, tag, &timer->ahead, sizeof timer->ahead);
    }
    for (int peer = 1; peer < transport_size(transport); peer++) {
        int64_t ahead = 0;
        TRY(trace_ask_time(transport, peer, tag, clock_ns, &ahead));
        TRY(transport_send(transport, peer, tag, &ahead, sizeof ahead));
    }
    return STATUS_OK;
}

static enum status record_steps(struct timer *timer)
{
    double seconds;

    timer->first = timer->batch.step;
    trace_switch(timer->trace, true);
    TRY(run_steps(timer, timer->steps, &seconds));
    trace_switch(timer->trace, false);
    TRY(compare_clocks(timer));
    for (int op = 0; op < BENCH_BUCKET_OPS; op++)
        TRY(mem_alloc((size_t)timer->steps, sizeof *timer->spans[op], &timer->spans[op]));
    trace_each(timer->trace, note_event, timer);
    for (int op = 0; op < BENCH_BUCKET_OPS; op++) /* the last rank's */
        TRY(comm_all_reduce(timer->comm, timer->spans[op], 2 * (size_t)timer->steps, DTYPE_I64,
                            COMM_OP_MAX));
    return STATUS_OK;
}

static int compare_doubles(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static void take_median(const struct timer *timer, int op, struct bench_op *out)
{
    double us[MOST];
    int n = 0;

    for (int64_t i = 0; i < timer->steps; i++) {
        const struct span *span = &timer->spans[op][i];
        if (span->begin && span->end) /* clocks that differ by what they could not tell */
            us[n++] = span->end > span->begin ? (double)(span->end - span->begin) * 1e-3 : 0;
    }
    qsort(us, (size_t)n, sizeof *us, compare_doubles);
    out->steps = n;
    out->us = n ? us[n / 2] : 0;
    out->us_p90 = n ? us[n * 9 / 10] : 0;
}

static enum status time_ops(struct timer *timer, struct bench_op out[BENCH_BUCKET_OPS])
{
    double sent[BENCH_BUCKET_OPS];

    TRY(start(timer));
    TRY(warm_up(timer));
    TRY(record_steps(timer));
    TRY(count_bytes(timer, sent));
    for (int op = 0; op < BENCH_BUCKET_OPS; op++) {
        out[op] = (struct bench_op){ .sent = sent[op], .optimum = optimum_of(timer, op) };
        TRY(name_tasks(timer->program, op, out[op].tasks, sizeof out[op].tasks));
        take_median(timer, op, &out[op]);
    }
    return STATUS_OK;
}

enum status train_time_bucket(const struct bench_bucket *bench, struct transport *transport,
                              struct bench_op out[BENCH_BUCKET_OPS])
{
    struct timer timer = { .bench = bench, .transport = transport };

    TRY(make_job(bench->settings, bench->bytes, &timer.job));
    const enum status status = time_ops(&timer, out);
    for (int op = 0; op < BENCH_BUCKET_OPS; op++)
        mem_free(timer.spans[op]);
    made_up_release(&timer.batch);
    exec_destroy(timer.exec);
    program_destroy(timer.program);
    trace_destroy(timer.trace);
    comm_destroy(timer.comm);
    job_destroy(timer.job);
    return status;
}
