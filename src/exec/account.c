/* SPDX-License-Identifier: MIT */
/* account.c - where the time of lanes goes, and because of whom.
 *
 * Before a lane raises a counter it notes in shared memory when it came and how often it has been
 * there. Who had to wait looks at these notes afterwards: the lane that came last was waited for,
 * and its rank is charged with the whole wait. While the notes of a meeting are read nobody can
 * write the next ones of step counters (ARCHITECTURE.md, "Who waits for what"); a barrier's may be
 * a round ahead, which can charge the wrong rank with a microsecond and no more.
 *
 * A wait that takes longer than the stall timeout ends the job: the lanes that have been there less
 * often than this one have not come, and their rank is named.
 *
 * Hidden is communication that ran while a lane of this rank computed. `struct overlap` keeps how
 * long at least one lane has computed, C(t); a span of communication [a, b] was hidden for C(b) -
 * C(a).
 *
 * Of several nodes each has counters of its own. What comes from other nodes is announced by a
 * rank's inter-node thread, which has an arrival of its own and charges the rank whose message came
 * last: on a node of several ranks the one that carried it, who may have waited for another there.
 */
#include <stdio.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/strbuf.h"
#include "base/trace.h"
#include "exec/account.h"
#include "exec/exec.h"
#include "exec/layout.h"
#include "exec/now.h"
#include "exec/shared.h"
#include "exec/topology.h"
#include "sched/program.h"

/* One an arrival of a lane, or of an inter-node thread, at a counter; that thread alone writes it. */
struct arrival {
    _Atomic int64_t at;     /* clock_ns */
    _Atomic uint32_t times; /* so far */
    _Atomic int32_t awaits; /* of such a thread that has not come: the rank it waits for */
    _Atomic int32_t rank;   /* that is charged: the lane's own; whose message came last */
};

enum { LATER_NS = 200 * 1000 * 1000 };

/* Arrivals at a counter: of this node's lanes, then of its ranks' inter-node threads. */
static size_t slots(const struct exec_account *account)
{
    return (size_t)(account->topology->all_lanes +
                    transport_node_size(account->transport, account->topology->node));
}

size_t account_bytes(const struct exec_account *account)
{
    return (size_t)account->program->n_signals * slots(account) * sizeof(struct arrival);
}

static struct arrival *arrivals_at(const struct exec_account *account, int task)
{
    return (struct arrival *)account->arrivals +
           (size_t)account->program->tasks[task].signal * slots(account);
}

static void note_arrival(struct arrival *arrival, int rank)
{
    const uint32_t times = atomic_load_explicit(&arrival->times, memory_order_relaxed);

    atomic_store_explicit(&arrival->at, clock_ns(), memory_order_relaxed);
    atomic_store_explicit(&arrival->rank, rank, memory_order_relaxed);
    atomic_store_explicit(&arrival->times, times + 1, memory_order_relaxed);
}

static void increment(const struct exec_account *account, int task)
{
    transport_raise(account_counter(account, task),
                    (uint32_t)account->program->tasks[task].increment);
}

void clock_signal(struct lane_clock *clock, int task)
{
    const struct exec_account *account = clock->account;

    note_arrival(arrivals_at(account, task) + clock->lane, account->topology->rank);
    increment(account, task);
}

static struct arrival *arrival_of_wire(const struct exec_account *account, int task)
{
    const int first = transport_node_first(account->transport, account->topology->node);
    return arrivals_at(account, task) + account->topology->all_lanes +
           (account->topology->rank - first);
}

void net_signal(const struct exec_account *account, int task, int rank)
{
    note_arrival(arrival_of_wire(account, task), rank);
    increment(account, task);
}

void net_expects(const struct exec_account *account, int task, int rank)
{
    if (account->program->tasks[task].signal >= 0)
        atomic_store_explicit(&arrival_of_wire(account, task)->awaits, rank,
                              memory_order_relaxed);
}

/* Names ---------------------------------------------------------------------------------- */

/* "bucket 3 (fc1.weight and 1 more)" */
static void name_bucket(const struct exec_model *model, int b, char out[ACCOUNT_NAME])
{
    const char *first = NULL;
    int count = 0;

    for (int i = 0; i < model->count; i++) {
        if (plan_bucket_of(model->params[i]->flat) != b)
            continue;
        first = first ? first : model->params[i]->name;
        count++;
    }
    if (count > 1)
        (void)snprintf(out, ACCOUNT_NAME, "bucket %d (%.48s and %d more)", b, first, count - 1);
    else
        (void)snprintf(out, ACCOUNT_NAME, "bucket %d (%.48s)", b, first ? first : "empty");
}

enum status account_create(struct exec_account *account, const struct exec_model *model,
                           const struct exec_layout *layout)
{
    const size_t buckets = (size_t)layout->buckets.count + 1;
    const int ranks = account->topology->ranks;

    TRY(mem_alloc(buckets, sizeof *account->bucket_names, &account->bucket_names));
    TRY(mem_alloc((size_t)ranks, sizeof *account->rank_names, &account->rank_names));
    TRY(mem_alloc(buckets, sizeof *account->reduce_names, &account->reduce_names));
    for (int b = 0; b < layout->buckets.count; b++) {
        name_bucket(model, b, account->bucket_names[b]);
        (void)snprintf(account->reduce_names[b], ACCOUNT_NAME, "reduce_scatter of %.76s",
                       account->bucket_names[b]);
    }
    for (int r = 0; r < ranks; r++)
        (void)snprintf(account->rank_names[r], sizeof *account->rank_names, "rank %d",
                       transport_job_rank(account->transport, r));
    return STATUS_OK;
}

enum status account_name_tasks(struct exec_account *account)
{
    const struct program *program = account->program;
    struct strbuf name;

    if (!account->config->trace)
        return STATUS_OK;
    TRY(mem_alloc((size_t)program->n_tasks + 1, sizeof *account->task_names,
                  &account->task_names));
    for (int t = 0; t < program->n_tasks; t++) {
        struct task_name *out = &account->task_names[t];
        strbuf_init(&name, 256);
        task_print_name(&program->tasks[t], &name);
        (void)snprintf(out->text, sizeof out->text, "%s", name.text);
        (void)snprintf(out->number, sizeof out->number, "%d", t);
        strbuf_release(&name);
    }
    return STATUS_OK;
}

void account_trace_task(const struct exec_account *account, struct trace_row *row,
                        int64_t begin, int task)
{
    if (begin)
        trace_record(row, begin, TRACE_TASK, account->task_names[task].text,
                     account->task_names[task].number);
}

void account_destroy(struct exec_account *account)
{
    mem_free(account->task_names);
    mem_free(account->bucket_names);
    mem_free(account->reduce_names);
    mem_free(account->rank_names);
}

void account_meet(const struct exec_account *account, const char *point)
{
    if (account->config->at_meeting)
        account->config->at_meeting(account->config->at_meeting_arg, point);
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

void clock_begin_step(struct lane_clock *clock)
{
    clock->step_began = clock_ns();
    clock->step_times = clock->times;
    clock->computes = true;
    overlap_enter(&clock->account->overlap, clock->step_began);
    if (clock->trace)
        clock->trace->step = clock->account->now->step;
}

void clock_end_step(struct lane_clock *clock)
{
    const struct times *before = &clock->step_times;
    const int64_t now = clock_ns();

    clock->computes = false;
    overlap_leave(&clock->account->overlap, now);
    const int64_t other = clock->times.comm - before->comm + (clock->times.wait - before->wait);
    clock->times.compute += now - clock->step_began - other;
}

struct span clock_begin_comm(struct lane_clock *clock)
{
    struct overlap *overlap = &clock->account->overlap;
    const int64_t now = clock_ns();

    overlap_leave(overlap, now);
    return (struct span){ now, overlap_computed(overlap, now), trace_begin(clock->trace) };
}

void clock_end_comm(struct lane_clock *clock, struct span span, const char *name,
                    const char *of)
{
    struct overlap *overlap = &clock->account->overlap;
    const int64_t now = clock_ns();

    clock->times.comm += now - span.begin;
    clock->times.hidden += overlap_computed(overlap, now) - span.computed;
    overlap_enter(overlap, now);
    trace_end(clock->trace, span.traced, TRACE_COMM, name, of);
}

/* Waiting ---------------------------------------------------------------------------------- */

/* The rank to charge: that of the thread that came last. */
static int last_at(const struct exec_account *account, int task)
{
    struct arrival *all = arrivals_at(account, task);
    int64_t latest = 0;
    int last = account->topology->rank;

    for (size_t i = 0; i < slots(account); i++) {
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

static struct missing find_missing(const struct exec_account *account, int number,
                                   uint32_t target)
{
    const struct task *task = &account->program->tasks[number];
    const uint32_t rounds = target / (uint32_t)(task->members * task->increment);
    struct arrival *all = arrivals_at(account, number);
    struct missing missing = { 0 };
    int last = -1;

    for (int l = 0; task->place != PLACE_NET && l < account->topology->all_lanes;
         l += task->stride) {
        const int rank = (account->topology->first_lane + l) / account->topology->n_lanes;
        if (!has_come(&all[l], rounds) && rank != last)
            add_missing(&missing, last = rank, false);
    }
    const int first = task->rail < 0 ? 0 : task->rail;
    for (int w = 0; task->place == PLACE_NET && w < task->members && missing.count == 0; w++) {
        const struct arrival *wire = &all[account->topology->all_lanes + first + w];
        const int rank = atomic_load_explicit(&wire->awaits, memory_order_relaxed);
        if (!has_come(wire, rounds))
            add_missing(&missing, rank, true);
    }
    return missing;
}

/* Ranks that a task of a step waits for, directly or through the tasks before it. */
static struct missing find_behind(const struct exec_account *account, int number, uint32_t step)
{
    const struct task *task = &account->program->tasks[number];
    struct missing missing = { 0 };

    for (int i = 0; i < task->n_waits && missing.count == 0; i++) {
        const struct wait *wait = &account->program->waits[task->first_wait + i];
        /* An unshard waits for what was done for the use before. */
        const uint32_t at =
            account->program->tasks[wait->task].kind == TASK_RESHARD ? step - 1 : step;
        if (wait->is_last_step || wait->by_medium)
            continue;
        if (account->program->tasks[wait->task].signal >= 0) {
            missing =
                find_missing(account, wait->task, account_target(account, wait->task, at));
            if (missing.count == 0 || missing.first >= 0)
                continue; /* it is done, or somebody is found */
        }
        missing = find_behind(account, wait->task, at);
    }
    return missing;
}

/* The same, looking behind an inter-node thread that waits for its own node. */
static struct missing find_cause(const struct exec_account *account, int task, uint32_t target)
{
    const struct missing missing = find_missing(account, task, target);
    const struct task *of = &account->program->tasks[task];
    const uint32_t step = target / (uint32_t)(of->members * of->increment) - 1;

    return missing.count == 0 || missing.first >= 0 ? missing
                                                    : find_behind(account, task, step);
}

static bool is_unshard_of(const struct program *program, int task, int b)
{
    return program->tasks[task].kind == TASK_UNSHARD && program->tasks[task].bucket == b;
}

/* The bucket whose parameters a task brings, or NULL. Losses of other nodes come after buckets, so
 * it is the first whose parameters are not there. */
static const char *updated_bucket(const struct exec_account *account, int task)
{
    const struct program *program = account->program;

    for (int b = 0; b < program->n_buckets; b++) {
        if (task == program->fresh[b] || is_unshard_of(program, task, b) ||
            (task == program->losses &&
             !account_task_is_done(account, program->fresh[b], account->now->steps)))
            return account->bucket_names[b];
    }
    return NULL;
}

/* Ends the job with the name of the rank that has not come. */
static enum status name_missing(const struct exec_account *account, int task,
                                struct missing missing, const char *what)
{
    const char *bucket = updated_bucket(account, task);
    char more[48] = "", text[400];

    if (missing.count > 1)
        (void)snprintf(more, sizeof more, " and %d more", missing.count - 1);
    (void)snprintf(text, sizeof text,
                   "rank %d%s has not come to %s%s%s at step %llu: the others waited for %.15g "
                   "s (--stall-timeout)",
                   transport_job_rank(account->transport, missing.first), more, what,
                   bucket ? ", " : "", bucket ? bucket : "",
                   (unsigned long long)account->now->step, account->config->stall_timeout);
    transport_abort(account->transport, text);
    return transport_check(account->transport);
}

/* Who is on another node is named a while later: who waits there may know better which of its ranks
 * it is. */
static enum status wait_or_name(const struct exec_account *account, int task, uint32_t target,
                                const char *what)
{
    struct transport_counter *counter = account_counter(account, task);
    const int64_t timeout_ns = (int64_t)(account->config->stall_timeout * 1e9);
    bool reached;

    if (timeout_ns <= 0)
        return transport_wait(account->transport, counter, target, what);
    TRY(transport_wait_within(account->transport, counter, target, timeout_ns, what, &reached));
    if (reached)
        return STATUS_OK;
    struct missing missing = find_cause(account, task, target);
    if (missing.count == 0 || missing.far) {
        TRY(transport_wait_within(account->transport, counter, target,
                                  timeout_ns / 4 + LATER_NS, what, &reached));
        if (reached)
            return STATUS_OK;
        missing = find_cause(account, task, target);
    }
    if (missing.count == 0 || missing.first < 0)
        return transport_wait(account->transport, counter, target, what);
    return name_missing(account, task, missing, what);
}

enum status clock_wait_until(struct lane_clock *clock, int task, uint32_t target,
                             const char *what)
{
    struct exec_account *account = clock->account;

    if (transport_reached(account_counter(account, task), target))
        return STATUS_OK;
    if (clock->is_first)
        transport_note(account->transport, account->now->step, what);
    const int64_t traced = trace_begin(clock->trace), begin = clock_ns();
    if (clock->computes)
        overlap_leave(&account->overlap, begin);
    const enum status status = wait_or_name(account, task, target, what);
    const int64_t end = clock_ns();
    if (clock->computes)
        overlap_enter(&account->overlap, end);
    clock->times.wait += end - begin;
    if (status != STATUS_OK)
        return status;
    const int last = last_at(account, task);
    clock->waited_for[last] += end - begin;
    trace_end(clock->trace, traced, TRACE_WAIT, what, account->rank_names[last]);
    return STATUS_OK;
}

enum status clock_wait(struct lane_clock *clock, int task, const char *what)
{
    const struct exec_account *account = clock->account;

    return clock_wait_until(clock, task, account_target(account, task, account->now->steps),
                            what);
}

enum status clock_wait_last(struct lane_clock *clock, int task, const char *what)
{
    const struct exec_account *account = clock->account;

    if (task < 0) /* an executor without steps has no such task */
        return STATUS_OK;
    return clock_wait_until(clock, task, account_target(account, task, account->now->steps - 1),
                            what);
}

enum status clock_wait_for_stage(struct lane_clock *clock, struct transport_request *request,
                                 const char *stage)
{
    struct exec_account *account = clock->account;
    struct transport *transport = account->config->pipeline.transport;
    bool done;

    TRY(transport_test(transport, request, &done));
    if (done)
        return STATUS_OK;
    const int64_t traced = trace_begin(clock->trace), begin = clock_ns();
    if (clock->computes)
        overlap_leave(&account->overlap, begin);
    const enum status status = transport_wait_for(transport, request, "the pipeline");
    const int64_t end = clock_ns();
    if (clock->computes)
        overlap_enter(&account->overlap, end);
    clock->times.wait += end - begin;
    clock->times.bubble += end - begin;
    trace_end(clock->trace, traced, TRACE_WAIT, "bubble", stage);
    return status;
}
