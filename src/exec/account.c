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
 */
#include <stdio.h>

#include "base/clock.h"
#include "base/mem.h"
#include "exec/state.h"

/* One an arrival of a lane at a counter; the lane alone writes it. */
struct arrival {
    _Atomic int64_t at;     /* clock_ns */
    _Atomic uint32_t times; /* so far */
};

enum {
    SINGLES =
        7 /* reduced, evaluated, settled, gathered, joined, exchanged, directed: in a row */
};

size_t account_bytes(const struct exec *exec)
{
    const size_t counters =
        2 * (size_t)exec->buckets.count + (size_t)exec->gathers.count + SINGLES;
    return counters * (size_t)exec->all_lanes * sizeof(struct arrival);
}

/* Number of a counter among all, in the order ready, done, met, the single ones. */
static size_t number_of(const struct exec *exec, const struct transport_counter *counter)
{
    const struct {
        const struct transport_counter *first;
        int count;
    } rows[] = {
        { exec->ready, exec->buckets.count },
        { exec->done, exec->buckets.count },
        { exec->met, exec->gathers.count },
        { exec->reduced, SINGLES },
    };
    size_t before = 0;

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (counter >= rows[i].first && counter < rows[i].first + rows[i].count)
            return before + (size_t)(counter - rows[i].first);
        before += (size_t)rows[i].count;
    }
    BUG_ON(true);
    return 0;
}

/* Of all lanes, in the order of their numbers. */
static struct arrival *arrivals_at(const struct exec *exec,
                                   const struct transport_counter *counter)
{
    return (struct arrival *)exec->arrivals +
           number_of(exec, counter) * (size_t)exec->all_lanes;
}

void lane_raise(struct lane *lane, struct transport_counter *counter, uint32_t by)
{
    struct arrival *mine = arrivals_at(lane->exec, counter) + lane->number;
    const uint32_t times = atomic_load_explicit(&mine->times, memory_order_relaxed);

    atomic_store_explicit(&mine->at, clock_ns(), memory_order_relaxed);
    atomic_store_explicit(&mine->times, times + 1, memory_order_relaxed);
    transport_raise(counter, by);
}

/* Names ---------------------------------------------------------------------------------- */

/* "bucket 3 (fc1.weight and 1 more)" */
static void name_bucket(const struct exec *exec, int b, char out[ACCOUNT_NAME])
{
    const char *first = NULL;
    int count = 0;

    for (int i = 0; i < exec->n_params; i++) {
        if (plan_bucket_of(exec->params[i]->flat) != b)
            continue;
        first = first ? first : exec->params[i]->name;
        count++;
    }
    if (count > 1)
        (void)snprintf(out, ACCOUNT_NAME, "bucket %d (%.48s and %d more)", b, first, count - 1);
    else
        (void)snprintf(out, ACCOUNT_NAME, "bucket %d (%.48s)", b, first ? first : "empty");
}

enum status account_create(struct exec *exec)
{
    TRY(mem_alloc((size_t)exec->buckets.count + 1, sizeof *exec->bucket_names,
                  &exec->bucket_names));
    TRY(mem_alloc((size_t)exec->ranks, sizeof *exec->rank_names, &exec->rank_names));
    TRY(mem_alloc((size_t)exec->buckets.count + 1, sizeof *exec->reduce_names,
                  &exec->reduce_names));
    for (int b = 0; b < exec->buckets.count; b++) {
        name_bucket(exec, b, exec->bucket_names[b]);
        (void)snprintf(exec->reduce_names[b], ACCOUNT_NAME, "reduce_scatter of %.76s",
                       exec->bucket_names[b]);
    }
    for (int r = 0; r < exec->ranks; r++)
        (void)snprintf(exec->rank_names[r], sizeof *exec->rank_names, "rank %d", r);
    for (int i = 0; i < exec->n_lanes; i++) {
        char name[32];
        (void)snprintf(name, sizeof name, "lane %d", i);
        TRY(mem_alloc((size_t)exec->ranks, sizeof *exec->lanes[i].waited_for,
                      &exec->lanes[i].waited_for));
        TRY(trace_add_row(exec->config.trace, name, 0, &exec->lanes[i].trace));
    }
    return STATUS_OK;
}

void account_destroy(struct exec *exec)
{
    for (int i = 0; exec->lanes && i < exec->n_lanes; i++)
        mem_free(exec->lanes[i].waited_for);
    mem_free(exec->bucket_names);
    mem_free(exec->reduce_names);
    mem_free(exec->rank_names);
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
    overlap_enter(&lane->exec->overlap, lane->step_began);
    if (lane->trace)
        lane->trace->step = lane->exec->step;
}

void lane_end_step(struct lane *lane)
{
    const struct times *before = &lane->step_times;
    const int64_t now = clock_ns();

    lane->computes = false;
    overlap_leave(&lane->exec->overlap, now);
    const int64_t other = lane->times.comm - before->comm + (lane->times.wait - before->wait);
    lane->times.compute += now - lane->step_began - other;
}

struct span lane_begin_comm(struct lane *lane)
{
    struct overlap *overlap = &lane->exec->overlap;
    const int64_t now = clock_ns();

    overlap_leave(overlap, now);
    return (struct span){ now, overlap_computed(overlap, now), trace_begin(lane->trace) };
}

void lane_end_comm(struct lane *lane, struct span span, const char *name, const char *of)
{
    struct overlap *overlap = &lane->exec->overlap;
    const int64_t now = clock_ns();

    lane->times.comm += now - span.begin;
    lane->times.hidden += overlap_computed(overlap, now) - span.computed;
    overlap_enter(overlap, now);
    trace_end(lane->trace, span.traced, TRACE_COMM, name, of);
}

/* Waiting ---------------------------------------------------------------------------------- */

/* The rank whose lane came last to the counter. */
static int last_at(const struct exec *exec, const struct transport_counter *counter)
{
    struct arrival *all = arrivals_at(exec, counter);
    int64_t latest = INT64_MIN;
    int last = 0;

    for (int lane = 0; lane < exec->all_lanes; lane++) {
        const int64_t at = atomic_load_explicit(&all[lane].at, memory_order_relaxed);
        if (at > latest) {
            latest = at;
            last = lane;
        }
    }
    return (exec->first_lane + last) / exec->n_lanes;
}

/* The bucket whose update a counter is about, or NULL. */
static const char *updated_bucket(const struct exec *exec,
                                  const struct transport_counter *counter)
{
    const bool is_done = counter >= exec->done && counter < exec->done + exec->buckets.count;

    return is_done ? exec->bucket_names[counter - exec->done] : NULL;
}

static bool has_come(const struct arrival *lane, const struct arrival *self)
{
    const uint32_t theirs = atomic_load_explicit(&lane->times, memory_order_relaxed);
    const uint32_t ours = atomic_load_explicit(&self->times, memory_order_relaxed);
    return (int32_t)(theirs - ours) >= 0;
}

/* Ends the job with the name of the first rank that has not come. A rank's first lane comes for all of
 * them to an evaluation's end and a barrier, and to all else as every other does. */
static enum status name_missing(struct exec *exec, const struct lane *lane,
                                const struct transport_counter *counter, const char *what)
{
    const struct arrival *all = arrivals_at(exec, counter);
    const int stride =
        counter == exec->settled || counter == exec->evaluated ? exec->n_lanes : 1;
    const char *bucket = updated_bucket(exec, counter);
    int missing = -1, ranks = 0;
    char more[48] = "", text[400];

    for (int l = 0, last = -1; l < exec->all_lanes; l += stride) {
        const int rank = (exec->first_lane + l) / exec->n_lanes;
        if (has_come(&all[l], &all[lane->number]) || rank == last)
            continue;
        missing = missing < 0 ? rank : missing;
        last = rank;
        ranks++;
    }
    if (ranks > 1)
        (void)snprintf(more, sizeof more, " and %d more", ranks - 1);
    if (missing < 0) /* it came just now, too late for this wait but not for the next */
        missing = last_at(exec, counter);
    (void)snprintf(
        text, sizeof text,
        "rank %d%s has not come to %s%s%s at step %llu: the others waited for %.15g s "
        "(--stall-timeout)",
        missing, more, what, bucket ? ", " : "", bucket ? bucket : "",
        (unsigned long long)exec->step, exec->config.stall_timeout);
    transport_abort(exec->transport, text);
    return transport_check(exec->transport);
}

static enum status wait_or_name(struct exec *exec, const struct lane *lane,
                                struct transport_counter *counter, uint32_t target,
                                const char *what)
{
    const double timeout = exec->config.stall_timeout;
    bool reached;

    if (!(timeout > 0))
        return transport_wait(exec->transport, counter, target, what);
    TRY(transport_wait_within(exec->transport, counter, target, (int64_t)(timeout * 1e9), what,
                              &reached));
    return reached ? STATUS_OK : name_missing(exec, lane, counter, what);
}

enum status exec_wait(struct exec *exec, struct lane *lane, struct transport_counter *counter,
                      uint32_t target, const char *what)
{
    if (transport_reached(counter, target))
        return STATUS_OK;
    if (lane->number % exec->n_lanes == 0)
        transport_note(exec->transport, exec->step, what);
    const int64_t traced = trace_begin(lane->trace), begin = clock_ns();
    if (lane->computes)
        overlap_leave(&exec->overlap, begin);
    const enum status status = wait_or_name(exec, lane, counter, target, what);
    const int64_t end = clock_ns();
    if (lane->computes)
        overlap_enter(&exec->overlap, end);
    lane->times.wait += end - begin;
    if (status != STATUS_OK)
        return status;
    const int last = last_at(exec, counter);
    lane->waited_for[last] += end - begin;
    trace_end(lane->trace, traced, TRACE_WAIT, what, exec->rank_names[last]);
    return STATUS_OK;
}

/* Measurements ------------------------------------------------------------------------- */

struct exec_times exec_times(const struct exec *exec)
{
    const struct times wire = wire_times(exec);
    struct exec_times total = { .comm = (double)wire.comm * 1e-9,
                                .hidden = (double)wire.hidden * 1e-9,
                                .bytes = (double)wire.bytes };

    for (int i = 0; i < exec->n_lanes; i++) {
        const struct times *times = &exec->lanes[i].times;
        total.compute += (double)times->compute * 1e-9;
        total.comm += (double)times->comm * 1e-9;
        total.hidden += (double)times->hidden * 1e-9;
        total.wait += (double)times->wait * 1e-9;
        total.evaluate += (double)times->evaluate * 1e-9;
        total.bytes += (double)times->bytes;
    }
    return total;
}

void exec_waited_for(const struct exec *exec, double *out)
{
    for (int r = 0; r < exec->ranks; r++) {
        out[r] = 0;
        for (int i = 0; i < exec->n_lanes; i++)
            out[r] += (double)exec->lanes[i].waited_for[r] * 1e-9;
    }
}

void exec_reset_times(struct exec *exec)
{
    wire_forget_times(exec);
    for (int i = 0; i < exec->n_lanes; i++) {
        exec->lanes[i].times = (struct times){ 0 };
        for (int r = 0; r < exec->ranks; r++)
            exec->lanes[i].waited_for[r] = 0;
    }
}
