/* SPDX-License-Identifier: MIT */
/* account.c - where the time of lanes goes, and because of whom.
 *
 * Before a lane raises a counter it notes in shared memory when it came and how often it has been
 * there. Who had to wait looks at these notes afterwards: the lane that came last was waited for, and
 * its rank is charged with the whole wait. While the notes of a meeting are read nobody can write the next
 * ones of step counters (ARCHITECTURE.md, "Who waits for what"); a barrier's may be a round ahead, which
 * can charge the wrong rank with a microsecond and no more.
 *
 * A wait that takes longer than the stall timeout ends the job: the lanes that have been there less
 * often than this one have not come, and their rank is named.
 *
 * Hidden is communication that ran while a lane of this rank computed. `struct overlap` keeps how
 * long at least one lane has computed, C(t); a span of communication [a, b] was hidden for
 * C(b) - C(a).
 *
 * Of several nodes each has counters of its own. What comes from other nodes is announced by a rank's
 * inter-node thread, which has an arrival of its own and charges the rank whose message came last: on a node of
 * several ranks the one that carried it, who may have waited for another there.
 */
#include <stdio.h>

#include "base/clock.h"
#include "base/mem.h"
#include "exec/state.h"

/* One an arrival of a lane, or of an inter-node thread, at a counter; that thread alone writes it. */
struct arrival {
    _Atomic int64_t at;     /* clock_ns */
    _Atomic uint32_t times; /* so far */
    _Atomic int32_t awaits; /* of such a thread that has not come: the rank it waits for */
    _Atomic int32_t rank;   /* that is charged: the lane's own; whose message came last */
};

enum { LATER_NS = 200 * 1000 * 1000 };

/* Arrivals at a counter: of this node's lanes, then of its ranks' inter-node threads. */
static size_t slots(const struct exec *exec)
{
    return (size_t)(exec->topology.all_lanes +
                    transport_node_size(exec->transport, exec->topology.node));
}

size_t account_bytes(const struct exec *exec)
{
    return (size_t)exec->program->n_signals * slots(exec) * sizeof(struct arrival);
}

static struct arrival *arrivals_at(const struct exec *exec, int task)
{
    return (struct arrival *)exec->account.arrivals +
           (size_t)exec->program->tasks[task].signal * slots(exec);
}

static void note_arrival(struct arrival *arrival, int rank)
{
    const uint32_t times = atomic_load_explicit(&arrival->times, memory_order_relaxed);

    atomic_store_explicit(&arrival->at, clock_ns(), memory_order_relaxed);
    atomic_store_explicit(&arrival->rank, rank, memory_order_relaxed);
    atomic_store_explicit(&arrival->times, times + 1, memory_order_relaxed);
}

static void increment(struct exec *exec, int task)
{
    transport_raise(exec_counter(exec, task), (uint32_t)exec->program->tasks[task].increment);
}

void lane_signal(struct lane *lane, int task)
{
    note_arrival(arrivals_at(lane->exec, task) + lane->number, lane->exec->topology.rank);
    increment(lane->exec, task);
}

static struct arrival *arrival_of_wire(const struct exec *exec, int task)
{
    const int first = transport_node_first(exec->transport, exec->topology.node);
    return arrivals_at(exec, task) + exec->topology.all_lanes + (exec->topology.rank - first);
}

void net_signal(struct exec *exec, int task, int rank)
{
    note_arrival(arrival_of_wire(exec, task), rank);
    increment(exec, task);
}

void net_expects(struct exec *exec, int task, int rank)
{
    if (exec->program->tasks[task].signal >= 0)
        atomic_store_explicit(&arrival_of_wire(exec, task)->awaits, rank, memory_order_relaxed);
}

/* Names ---------------------------------------------------------------------------------- */

/* "bucket 3 (fc1.weight and 1 more)" */
static void name_bucket(const struct exec *exec, int b, char out[ACCOUNT_NAME])
{
    const char *first = NULL;
    int count = 0;

    for (int i = 0; i < exec->model.count; i++) {
        if (plan_bucket_of(exec->model.params[i]->flat) != b)
            continue;
        first = first ? first : exec->model.params[i]->name;
        count++;
    }
    if (count > 1)
        (void)snprintf(out, ACCOUNT_NAME, "bucket %d (%.48s and %d more)", b, first, count - 1);
    else
        (void)snprintf(out, ACCOUNT_NAME, "bucket %d (%.48s)", b, first ? first : "empty");
}

enum status account_create(struct exec *exec)
{
    TRY(mem_alloc((size_t)exec->layout.buckets.count + 1, sizeof *exec->account.bucket_names,
                  &exec->account.bucket_names));
    TRY(mem_alloc((size_t)exec->topology.ranks, sizeof *exec->account.rank_names,
                  &exec->account.rank_names));
    TRY(mem_alloc((size_t)exec->layout.buckets.count + 1, sizeof *exec->account.reduce_names,
                  &exec->account.reduce_names));
    for (int b = 0; b < exec->layout.buckets.count; b++) {
        name_bucket(exec, b, exec->account.bucket_names[b]);
        (void)snprintf(exec->account.reduce_names[b], ACCOUNT_NAME, "reduce_scatter of %.76s",
                       exec->account.bucket_names[b]);
    }
    for (int r = 0; r < exec->topology.ranks; r++)
        (void)snprintf(exec->account.rank_names[r], sizeof *exec->account.rank_names, "rank %d",
                       transport_job_rank(exec->transport, r));
    for (int i = 0; i < exec->topology.n_lanes; i++) {
        char name[32];
        (void)snprintf(name, sizeof name, "lane %d", i);
        TRY(mem_alloc((size_t)exec->topology.ranks, sizeof *exec->lanes[i].waited_for,
                      &exec->lanes[i].waited_for));
        TRY(trace_add_row(exec->config.trace, name, 0, &exec->lanes[i].trace));
    }
    return STATUS_OK;
}

void account_destroy(struct exec *exec)
{
    for (int i = 0; exec->lanes && i < exec->topology.n_lanes; i++)
        mem_free(exec->lanes[i].waited_for);
    mem_free(exec->account.bucket_names);
    mem_free(exec->account.reduce_names);
    mem_free(exec->account.rank_names);
}

/* Communication that is hidden ------------------------------------------------------------ */

void overlap_enter(struct overlap *overlap, int64_t now)
{
    pthread_mutex_lock(&overlap->lock);
    if (overlap->computing++ == 0)
        overlap->since = now;
    pthread_mutex_unlock(&overlap->lock);
}

void overlap_leave(struct overlap *overlap, int64_t now)
{
    pthread_mutex_lock(&overlap->lock);
    if (--overlap->computing == 0 && now > overlap->since)
        overlap->computed += now - overlap->since;
    pthread_mutex_unlock(&overlap->lock);
}

int64_t overlap_computed(struct overlap *overlap, int64_t now)
{
    pthread_mutex_lock(&overlap->lock);
    const int64_t running =
        overlap->computing > 0 && now > overlap->since ? now - overlap->since : 0;
    const int64_t computed = overlap->computed + running;
    pthread_mutex_unlock(&overlap->lock);
    return computed;
}

void lane_begin_step(struct lane *lane)
{
    lane->step_began = clock_ns();
    lane->step_times = lane->times;
    lane->computes = true;
    overlap_enter(&lane->exec->account.overlap, lane->step_began);
    if (lane->trace)
        lane->trace->step = lane->exec->now.step;
}

void lane_end_step(struct lane *lane)
{
    const struct times *before = &lane->step_times;
    const int64_t now = clock_ns();

    lane->computes = false;
    overlap_leave(&lane->exec->account.overlap, now);
    const int64_t other = lane->times.comm - before->comm + (lane->times.wait - before->wait);
    lane->times.compute += now - lane->step_began - other;
}

struct span lane_begin_comm(struct lane *lane)
{
    struct overlap *overlap = &lane->exec->account.overlap;
    const int64_t now = clock_ns();

    overlap_leave(overlap, now);
    return (struct span){ now, overlap_computed(overlap, now), trace_begin(lane->trace) };
}

void lane_end_comm(struct lane *lane, struct span span, const char *name, const char *of)
{
    struct overlap *overlap = &lane->exec->account.overlap;
    const int64_t now = clock_ns();

    lane->times.comm += now - span.begin;
    lane->times.hidden += overlap_computed(overlap, now) - span.computed;
    overlap_enter(overlap, now);
    trace_end(lane->trace, span.traced, TRACE_COMM, name, of);
}

/* Waiting ---------------------------------------------------------------------------------- */

/* The rank to charge: that of the thread that came last. */
static int last_at(const struct exec *exec, int task)
{
    struct arrival *all = arrivals_at(exec, task);
    int64_t latest = 0;
    int last = exec->topology.rank;

    for (size_t i = 0; i < slots(exec); i++) {
        const int64_t at = atomic_load_explicit(&all[i].at, memory_order_relaxed);
        if (at > latest) {
            latest = at;
            last = atomic_load_explicit(&all[i].rank, memory_order_relaxed);
        }
    }
    return last;
}

static bool has_come(const struct arrival *arrival, uint32_t rounds)
{
    const uint32_t times = atomic_load_explicit(&arrival->times, memory_order_relaxed);
    return (int32_t)(times - rounds) >= 0;
}

/* Ranks that have not come to a counter for the round that ends with target. */
struct missing {
    int first, count; /* the lowest of them; 0: none */
    bool far;         /* it is on another node, so that its own may know better */
};

static void add_missing(struct missing *missing, int rank, bool far)
{
    if (missing->count > 0 && missing->first == rank)
        return;
    if (missing->count++ == 0) {
        missing->first = rank;
        missing->far = far;
    }
}

static struct missing find_missing(const struct exec *exec, int number, uint32_t target)
{
    const struct task *task = &exec->program->tasks[number];
    const uint32_t rounds = target / (uint32_t)(task->members * task->increment);
    struct arrival *all = arrivals_at(exec, number);
    struct missing missing = { 0 };
    int last = -1;

    for (int l = 0; task->place != PLACE_NET && l < exec->topology.all_lanes;
         l += task->stride) {
        const int rank = (exec->topology.first_lane + l) / exec->topology.n_lanes;
        if (!has_come(&all[l], rounds) && rank != last)
            add_missing(&missing, last = rank, false);
    }
    const int first = task->rail < 0 ? 0 : task->rail;
    for (int w = 0; task->place == PLACE_NET && w < task->members && missing.count == 0; w++) {
        const struct arrival *wire = &all[exec->topology.all_lanes + first + w];
        const int rank = atomic_load_explicit(&wire->awaits, memory_order_relaxed);
        if (!has_come(wire, rounds))
            add_missing(&missing, rank, true);
    }
    return missing;
}

/* Ranks that a task of a step waits for, directly or through the tasks before it. */
static struct missing find_behind(const struct exec *exec, int number, uint32_t step)
{
    const struct task *task = &exec->program->tasks[number];
    struct missing missing = { 0 };

    for (int i = 0; i < task->n_waits && missing.count == 0; i++) {
        const struct wait *wait = &exec->program->waits[task->first_wait + i];
        /* An unshard waits for what was done for the use before. */
        const uint32_t at =
            exec->program->tasks[wait->task].kind == TASK_RESHARD ? step - 1 : step;
        if (wait->is_last_step || wait->by_medium)
            continue;
        if (exec->program->tasks[wait->task].signal >= 0) {
            missing = find_missing(exec, wait->task, exec_target(exec, wait->task, at));
            if (missing.count == 0 || missing.first >= 0)
                continue; /* it is done, or somebody is found */
        }
        missing = find_behind(exec, wait->task, at);
    }
    return missing;
}

/* The same, looking behind an inter-node thread that waits for its own node. */
static struct missing find_cause(const struct exec *exec, int task, uint32_t target)
{
    const struct missing missing = find_missing(exec, task, target);
    const struct task *of = &exec->program->tasks[task];
    const uint32_t step = target / (uint32_t)(of->members * of->increment) - 1;

    return missing.count == 0 || missing.first >= 0 ? missing : find_behind(exec, task, step);
}

static bool is_unshard_of(const struct program *program, int task, int b)
{
    return program->tasks[task].kind == TASK_UNSHARD && program->tasks[task].bucket == b;
}

/* The bucket whose parameters a task brings, or NULL. Losses of other nodes come after buckets, so it is
 * the first whose parameters are not there. */
static const char *updated_bucket(const struct exec *exec, int task)
{
    const struct program *program = exec->program;

    for (int b = 0; b < program->n_buckets; b++) {
        if (task == program->fresh[b] || is_unshard_of(program, task, b) ||
            (task == program->losses &&
             !exec_task_is_done(exec, program->fresh[b], exec->now.steps)))
            return exec->account.bucket_names[b];
    }
    return NULL;
}

/* Ends the job with the name of the rank that has not come. */
static enum status name_missing(struct exec *exec, int task, struct missing missing,
                                const char *what)
{
    const char *bucket = updated_bucket(exec, task);
    char more[48] = "", text[400];

    if (missing.count > 1)
        (void)snprintf(more, sizeof more, " and %d more", missing.count - 1);
    (void)snprintf(text, sizeof text,
                   "rank %d%s has not come to %s%s%s at step %llu: the others waited for %.15g "
                   "s (--stall-timeout)",
                   transport_job_rank(exec->transport, missing.first), more, what,
                   bucket ? ", " : "", bucket ? bucket : "", (unsigned long long)exec->now.step,
                   exec->config.stall_timeout);
    transport_abort(exec->transport, text);
    return transport_check(exec->transport);
}

/* Who is on another node is named a while later: who waits there may know better which of its ranks it
 * is. */
static enum status wait_or_name(struct exec *exec, int task, uint32_t target, const char *what)
{
    struct transport_counter *counter = exec_counter(exec, task);
    const int64_t timeout_ns = (int64_t)(exec->config.stall_timeout * 1e9);
    bool reached;

    if (timeout_ns <= 0)
        return transport_wait(exec->transport, counter, target, what);
    TRY(transport_wait_within(exec->transport, counter, target, timeout_ns, what, &reached));
    if (reached)
        return STATUS_OK;
    struct missing missing = find_cause(exec, task, target);
    if (missing.count == 0 || missing.far) {
        TRY(transport_wait_within(exec->transport, counter, target, timeout_ns / 4 + LATER_NS,
                                  what, &reached));
        if (reached)
            return STATUS_OK;
        missing = find_cause(exec, task, target);
    }
    if (missing.count == 0 || missing.first < 0)
        return transport_wait(exec->transport, counter, target, what);
    return name_missing(exec, task, missing, what);
}

enum status exec_wait_until(struct exec *exec, struct lane *lane, int task, uint32_t target,
                            const char *what)
{
    if (transport_reached(exec_counter(exec, task), target))
        return STATUS_OK;
    if (lane == exec->lanes)
        transport_note(exec->transport, exec->now.step, what);
    const int64_t traced = trace_begin(lane->trace), begin = clock_ns();
    if (lane->computes)
        overlap_leave(&exec->account.overlap, begin);
    const enum status status = wait_or_name(exec, task, target, what);
    const int64_t end = clock_ns();
    if (lane->computes)
        overlap_enter(&exec->account.overlap, end);
    lane->times.wait += end - begin;
    if (status != STATUS_OK)
        return status;
    const int last = last_at(exec, task);
    lane->waited_for[last] += end - begin;
    trace_end(lane->trace, traced, TRACE_WAIT, what, exec->account.rank_names[last]);
    return STATUS_OK;
}

enum status exec_wait(struct exec *exec, struct lane *lane, int task, const char *what)
{
    return exec_wait_until(exec, lane, task, exec_target(exec, task, exec->now.steps), what);
}

enum status exec_wait_last(struct exec *exec, struct lane *lane, int task, const char *what)
{
    if (task < 0) /* an executor without steps has no such task */
        return STATUS_OK;
    return exec_wait_until(exec, lane, task, exec_target(exec, task, exec->now.steps - 1),
                           what);
}

enum status exec_wait_for_stage(struct lane *lane, struct transport_request *request, int stage)
{
    struct exec *exec = lane->exec;
    struct transport *transport = exec->config.pipeline.transport;
    bool done;

    TRY(transport_test(transport, request, &done));
    if (done)
        return STATUS_OK;
    const int64_t traced = trace_begin(lane->trace), begin = clock_ns();
    if (lane->computes)
        overlap_leave(&exec->account.overlap, begin);
    const enum status status = transport_wait_for(transport, request, "the pipeline");
    const int64_t end = clock_ns();
    if (lane->computes)
        overlap_enter(&exec->account.overlap, end);
    lane->times.wait += end - begin;
    lane->times.bubble += end - begin;
    trace_end(lane->trace, traced, TRACE_WAIT, "bubble", pipe_stage_name(exec, stage));
    return status;
}

/* Measurements ------------------------------------------------------------------------- */

struct exec_times exec_times(const struct exec *exec)
{
    const struct times wire = net_times(exec);
    struct exec_times total = { .wire = (double)wire.comm * 1e-9,
                                .wire_hidden = (double)wire.hidden * 1e-9,
                                .bytes = (double)wire.bytes };

    for (int i = 0; i < exec->topology.n_lanes; i++) {
        const struct times *times = &exec->lanes[i].times;
        total.compute += (double)times->compute * 1e-9;
        total.comm += (double)times->comm * 1e-9;
        total.hidden += (double)times->hidden * 1e-9;
        total.wait += (double)times->wait * 1e-9;
        total.bubble += (double)times->bubble * 1e-9;
        total.evaluate += (double)times->evaluate * 1e-9;
        total.bytes += (double)times->bytes;
    }
    return total;
}

void exec_waited_for(const struct exec *exec, double *out)
{
    for (int r = 0; r < exec->topology.ranks; r++) {
        out[r] = 0;
        for (int i = 0; i < exec->topology.n_lanes; i++)
            out[r] += (double)exec->lanes[i].waited_for[r] * 1e-9;
    }
}

void exec_reset_times(struct exec *exec)
{
    net_forget_times(exec);
    for (int i = 0; i < exec->topology.n_lanes; i++) {
        exec->lanes[i].times = (struct times){ 0 };
        for (int r = 0; r < exec->topology.ranks; r++)
            exec->lanes[i].waited_for[r] = 0;
    }
}
