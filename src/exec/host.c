/* SPDX-License-Identifier: MIT */
/* host.c - runs the PLACE_HOST tasks of a step program, between steps: workers that train alone
 * average their parameters, or exchange them with a center on servers.
 *
 * All tasks of an average begin before the first is waited for, so that buckets travel together. A
 * row of `rows` is a kind of task on a medium; nothing here knows a strategy.
 *
 * With neighbors in shared memory each worker has two slots of a whole vector, used in turn. It
 * writes the slot of average t (from 1) once its readers are through with average t - 2, which they
 * have shown by writing that of t - 1; no other worker is waited for.
 */
#include <string.h>

#include "base/mem.h"
#include "exec/lane.h"
#include "exec/state.h"

/* A worker's slots in shared memory. `written` counts averages, one counter a bucket. */
struct slots {
    struct transport_counter *written;
    float *of[2];
};

struct average {
    struct transport *transport; /* of all workers */
    uint32_t count;              /* averages, with the one that runs now */
    uint32_t tag;                /* the first of one a bucket */
    struct slots *slots;         /* of each worker; NULL: there are none */
    float *arrived;              /* vectors of neighbors that come by messages; NULL: none */
    struct transport_request *requests; /* of each task: as many receives as sends */
    float weight;
    float *out;
};

/* A bucket's range of a flat vector. */
struct range {
    size_t at, count;
};

static struct range range_of(const struct exec *exec, const struct task *task)
{
    const int64_t *begin = exec->layout.buckets.begin;
    const int b = task->bucket;

    return (struct range){ (size_t)begin[b], (size_t)(begin[b + 1] - begin[b]) };
}

/* out = (own + others[0] + others[1] + ...) / their number. */
static void take_mean(const float *own, const float *const *others, int n, struct range range,
                      float *out)
{
    const float part = 1 / (float)(n + 1);

    for (size_t i = range.at; i < range.at + range.count; i++)
        out[i] = own[i];
    for (int k = 0; k < n; k++) {
        const float *other = others[k];
        for (size_t i = range.at; i < range.at + range.count; i++)
            out[i] += other[i];
    }
    for (size_t i = range.at; i < range.at + range.count; i++)
        out[i] *= part;
}

/* Parameters of all neighbors came here. */
static void count_bytes(struct exec *exec, const struct task *task, struct range range)
{
    exec->lanes[0].clock.times.bytes +=
        (int64_t)((size_t)task->peers.count * range.count * sizeof(float));
}

/* All workers: comm/ sums in place, along the tree over workers -------------------------------- */

static enum status begin_all(struct exec *exec, int number)
{
    const struct range range = range_of(exec, &exec->program->tasks[number]);
    const struct average *average = exec->average;

    memcpy(average->out + range.at, exec->memory.param + range.at, range.count * sizeof(float));
    for (size_t i = range.at; average->weight != 1 && i < range.at + range.count; i++)
        average->out[i] *= average->weight;
    return STATUS_OK;
}

static enum status end_all(struct exec *exec, int number)
{
    const struct range range = range_of(exec, &exec->program->tasks[number]);
    const struct exec_workers *workers = &exec->config.workers;
    float *out = exec->average->out;
    const float inverse = 1 / (float)workers->count;

    TRY(comm_all_reduce(workers->comm, out + range.at, range.count, DTYPE_F32, COMM_OP_SUM));
    for (size_t i = range.at; i < range.at + range.count; i++)
        out[i] *= inverse;
    return STATUS_OK;
}

/* Neighbors in shared memory -------------------------------------------------------------------- */

/* Until a worker has written its slot so many times; no longer than --stall-timeout. */
static enum status await_worker(struct exec *exec, int worker, int bucket, uint32_t times)
{
    const struct average *average = exec->average;
    struct transport_counter *written = &average->slots[worker].written[bucket];
    const double most = exec->config.stall_timeout;
    bool reached;

    if (most == 0)
        return transport_wait_rank(average->transport, written, times, worker,
                                   "an average of workers");
    TRY(transport_wait_within(average->transport, written, times, (int64_t)(most * 1e9),
                              "an average of workers", &reached));
    if (reached)
        return STATUS_OK;
    const enum status status = FAIL(STATUS_PEER_LOST,
                                    "rank %d has not come to the average of step %llu: the "
                                    "others waited for %.15g s (--stall-timeout)",
                                    worker, (unsigned long long)exec->now.step, most);
    transport_abort(average->transport, status_message());
    return status;
}

static enum status begin_shared(struct exec *exec, int number)
{
    const struct task *task = &exec->program->tasks[number];
    const struct range range = range_of(exec, task);
    const struct average *average = exec->average;
    const struct slots *own = &average->slots[exec->config.workers.index];

    for (int i = 0; i < task->peers.count; i++)
        TRY(await_worker(exec, task->peers.to[i], task->bucket, average->count - 1));
    memcpy(own->of[average->count % 2] + range.at, exec->memory.param + range.at,
           range.count * sizeof(float));
    exec_meet(exec, "average");
    transport_raise(&own->written[task->bucket], 1);
    return STATUS_OK;
}

static enum status end_shared(struct exec *exec, int number)
{
    const struct task *task = &exec->program->tasks[number];
    const struct average *average = exec->average;
    const float *others[ATTR_OFFSETS];

    for (int i = 0; i < task->peers.count; i++) {
        TRY(await_worker(exec, task->peers.from[i], task->bucket, average->count));
        others[i] = average->slots[task->peers.from[i]].of[average->count % 2];
    }
    take_mean(exec->memory.param, others, task->peers.count, range_of(exec, task),
              average->out);
    count_bytes(exec, task, range_of(exec, task));
    return STATUS_OK;
}

/* Neighbors on other machines ------------------------------------------------------------------- */

/* Request i of a task: the first peers.count receive, as many behind them send. */
static struct transport_request *request_of(const struct exec *exec, int number, int i)
{
    const int before = exec->program->tasks[number].bucket * 2 * ATTR_OFFSETS;

    return &exec->average->requests[before + i];
}

static float *arrived_from(const struct exec *exec, int i)
{
    return exec->average->arrived + (size_t)i * exec->layout.vector;
}

static enum status begin_messages(struct exec *exec, int number)
{
    const struct task *task = &exec->program->tasks[number];
    const struct task_peers *peers = &task->peers;
    const struct range range = range_of(exec, task);
    const size_t bytes = range.count * sizeof(float);
    struct average *average = exec->average;
    const uint32_t tag = average->tag + (uint32_t)task->bucket;

    for (int i = 0; i < peers->count; i++)
        TRY(transport_start_receive(average->transport, peers->from[i], tag,
                                    arrived_from(exec, i) + range.at, bytes,
                                    request_of(exec, number, i)));
    exec_meet(exec, "average");
    for (int i = 0; i < peers->count; i++)
        TRY(transport_start_send(average->transport, peers->to[i], tag,
                                 exec->memory.param + range.at, bytes,
                                 request_of(exec, number, peers->count + i)));
    return STATUS_OK;
}

static enum status end_messages(struct exec *exec, int number)
{
    const struct task *task = &exec->program->tasks[number];
    const float *others[ATTR_OFFSETS];

    for (int i = 0; i < 2 * task->peers.count; i++)
        TRY(transport_wait_for(exec->average->transport, request_of(exec, number, i),
                               "an average of workers"));
    for (int i = 0; i < task->peers.count; i++)
        others[i] = arrived_from(exec, i);
    take_mean(exec->memory.param, others, task->peers.count, range_of(exec, task),
              exec->average->out);
    count_bytes(exec, task, range_of(exec, task));
    return STATUS_OK;
}

/* All of them ------------------------------------------------------------------------------------ */

struct host_row {
    enum task_kind kind;
    enum task_medium medium;
    enum status (*begin)(struct exec *exec, int number);
    enum status (*end)(struct exec *exec, int number);
};

static const struct host_row rows[] = {
    { TASK_ALL_REDUCE, MEDIUM_SHARED, begin_all, end_all },
    { TASK_ALL_REDUCE, MEDIUM_MESSAGES, begin_all, end_all },
    { TASK_AVERAGE, MEDIUM_SHARED, begin_shared, end_shared },
    { TASK_AVERAGE, MEDIUM_MESSAGES, begin_messages, end_messages },
};

static const struct host_row *row_of(const struct task *task)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (rows[i].kind == task->kind && rows[i].medium == task->medium)
            return &rows[i];
    }
    BUG_ON(true);
    return NULL;
}

/* The next PLACE_HOST task from `number` on that does this kind; n_tasks: there is none. */
static int next_of(const struct program *program, enum task_kind kind, int number)
{
    while (number < program->n_tasks && (program->tasks[number].place != PLACE_HOST ||
                                         !(program->tasks[number].does >> kind & 1)))
        number++;
    return number;
}

static int next_average(const struct program *program, int number)
{
    return next_of(program, TASK_AVERAGE, number);
}

enum status exec_average(struct exec *exec, float weight, float *out)
{
    const struct program *program = exec->program;
    struct average *average = exec->average;
    struct trace_row *trace = exec->lanes[0].clock.trace;
    const int64_t begin = trace_begin(trace);

    TRY(exec_fetch_params(exec));
    if (!average) { /* the mean of one worker */
        memcpy(out, exec->memory.param, exec->layout.vector * sizeof(float));
        return STATUS_OK;
    }
    average->count++;
    average->weight = weight;
    average->out = out;
    transport_note(average->transport, exec->now.step, "an average of workers");
    for (int t = next_average(program, 0); t < program->n_tasks;
         t = next_average(program, t + 1))
        TRY(row_of(&program->tasks[t])->begin(exec, t));
    for (int t = next_average(program, 0); t < program->n_tasks;
         t = next_average(program, t + 1)) {
        TRY(row_of(&program->tasks[t])->end(exec, t));
        account_trace_task(&exec->account, trace, begin, t);
    }
    return STATUS_OK;
}

static enum status
run_center(struct exec *exec, enum task_kind kind,
           enum status (*run)(void *arg, int bucket, size_t at, size_t count), void *arg)
{
    const struct program *program = exec->program;
    struct trace_row *trace = exec->lanes[0].clock.trace;

    TRY(exec_fetch_params(exec));
    for (int t = next_of(program, kind, 0); t < program->n_tasks;
         t = next_of(program, kind, t + 1)) {
        const int64_t begin = trace_begin(trace);
        const struct range range = range_of(exec, &program->tasks[t]);
        TRY(run(arg, program->tasks[t].bucket, range.at, range.count));
        account_trace_task(&exec->account, trace, begin, t);
    }
    return STATUS_OK;
}

enum status exec_push(struct exec *exec, const struct exec_center *center)
{
    return run_center(exec, TASK_PUSH, center->push, center->arg);
}

enum status exec_pull(struct exec *exec, const struct exec_center *center)
{
    TRY(run_center(exec, TASK_PULL, center->pull, center->arg));
    exec_wrote_params(exec);
    return STATUS_OK;
}

/* Memory ------------------------------------------------------------------------------------------ */

/* Neighbors that a worker has at most, over all buckets; 0: averages are of all workers. */
static int most_peers(const struct program *program)
{
    int most = 0;

    for (int t = next_average(program, 0); t < program->n_tasks;
         t = next_average(program, t + 1)) {
        const int count = program->tasks[t].peers.count;
        most = count > most ? count : most;
    }
    return most;
}

/* Collective. Worker w's part of the block begins w * `each` bytes from that of worker 0. */
static enum status make_slots(struct exec *exec)
{
    const struct exec_workers *workers = &exec->config.workers;
    struct average *average = exec->average;
    const size_t page = 4096;
    const size_t counters =
        (size_t)exec->layout.buckets.count * sizeof(struct transport_counter);
    const size_t vector = exec->layout.vector * sizeof(float);
    const size_t each = (counters + 2 * vector + page - 1) / page * page;
    void *own;

    TRY(comm_share(workers->comm, each, &own));
    TRY(mem_alloc((size_t)workers->count, sizeof *average->slots, &average->slots));
    for (int w = 0; w < workers->count; w++) {
        char *block = (char *)own + (w - workers->index) * (ptrdiff_t)each;
        average->slots[w] = (struct slots){
            .written = (struct transport_counter *)block,
            .of = { (float *)(block + counters), (float *)(block + counters + vector) },
        };
    }
    return STATUS_OK;
}

static enum status make_messages(struct exec *exec, int peers)
{
    struct average *average = exec->average;
    const size_t buckets = (size_t)exec->layout.buckets.count;

    average->tag = transport_new_tags(average->transport, (uint32_t)buckets);
    TRY(mem_alloc((size_t)peers * exec->layout.vector, sizeof(float), &average->arrived));
    return mem_alloc(buckets * 2 * ATTR_OFFSETS, sizeof *average->requests, &average->requests);
}

enum status average_create(struct exec *exec)
{
    const int first = next_average(exec->program, 0);
    const int peers = most_peers(exec->program);

    if (first == exec->program->n_tasks)
        return STATUS_OK;
    TRY(mem_alloc(1, sizeof *exec->average, &exec->average));
    exec->average->transport = comm_transport(exec->config.workers.comm);
    if (peers == 0)
        return STATUS_OK;
    return exec->program->tasks[first].medium == MEDIUM_SHARED ? make_slots(exec)
                                                               : make_messages(exec, peers);
}

void average_destroy(struct exec *exec)
{
    struct average *average = exec->average;

    if (!average)
        return;
    for (int i = 0; average->requests && i < exec->layout.buckets.count * 2 * ATTR_OFFSETS; i++)
        transport_cancel(average->transport, &average->requests[i]);
    mem_free(average->requests);
    mem_free(average->arrived);
    mem_free(average->slots);
    mem_free(average);
}
