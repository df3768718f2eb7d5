/* SPDX-License-Identifier: MIT */
/* step.c - a step of a rank, and its result, added up as soon as it is known. */
#include <math.h>

#include "base/clock.h"
#include "train/regime.h"

double rank_seconds(const struct rank *rank)
{
    return rank->run->seconds_before + clock_seconds() - rank->began;
}

double rank_mean_loss(const struct tally *t)
{
    return t->weight ? t->loss / (double)t->weight : NAN;
}

double rank_mean_accuracy(const struct rank *rank, const struct tally *t)
{
    const bool counts = graph_roles(rank->job->graph)->correct != NULL;
    return counts && t->weight ? t->correct / (double)t->weight : NAN;
}

double rank_rate(const struct rank *rank, const struct tally *t)
{
    const int64_t count = job_predicts_tokens(rank->job) ? t->weight : t->samples;
    return t->seconds > 0 ? (double)count / t->seconds : NAN;
}

struct exec_times rank_times(const struct rank *rank)
{
    return rank->regime->times ? rank->regime->times(rank) : exec_times(rank->exec);
}

void rank_spend(struct rank *rank, double seconds)
{
    rank->line.tally.seconds += seconds;
    rank->epoch.seconds += seconds;
}

void rank_count_batch(struct rank *rank, const struct batch *batch)
{
    rank->counts.samples += batch->samples;
    rank->counts.tokens += batch->weight;
}

enum status rank_check_loss(const struct rank *rank, const struct exec_result *result)
{
    if (isfinite(result->loss))
        return STATUS_OK;
    if (rank->known == 0) /* nothing was learnt yet: the learning rate has no part in it */
        return FAIL(STATUS_MISMATCH,
                    "the loss of the first step is not a finite number: look for numbers that "
                    "are too large in the data%s%s",
                    *rank->job->settings.init ? " and in " : "", rank->job->settings.init);
    return FAIL(STATUS_MISMATCH,
                "the loss is not a finite number at step %llu: lower --lr, or use --clip 1 or "
                "--warmup",
                (unsigned long long)rank->known);
}

static void add(struct tally *tally, const struct exec_result *result)
{
    tally->loss += result->loss * (double)result->weight;
    tally->correct += result->correct;
    tally->samples += result->samples;
    tally->weight += result->weight;
}

enum status rank_add_result(struct rank *rank, const struct exec_result *result)
{
    TRY(rank_check_loss(rank, result));
    rank->known++;
    add(&rank->line.tally, result);
    add(&rank->epoch, result);
    return STATUS_OK;
}

enum status rank_take_late(struct rank *rank, bool all)
{
    struct exec_result result;
    bool taken = true;

    while (taken) {
        const double begin = clock_seconds();
        TRY(exec_take_result(rank->exec, all, &result, &taken));
        const double seconds = clock_seconds() - begin;
        rank_spend(rank, seconds);
        if (taken)
            TRY(rank->regime->late_result(rank, &result, seconds));
    }
    return STATUS_OK;
}

/* Steps ---------------------------------------------------------------------------------- */

void rank_switch_trace(struct rank *rank)
{
    if (!rank->tracing.row)
        return;
    rank->tracing.row->step = rank->step;
    trace_switch(rank->tracing.trace, rank->step >= rank->tracing.window.begin &&
                                          rank->step < rank->tracing.window.end);
}

static enum status next_batch(struct rank *rank, const struct batch **out)
{
    const double begin = clock_seconds();
    const int64_t traced = trace_begin(rank->tracing.row);

    TRY(loader_next(rank->loader, out));
    trace_end(rank->tracing.row, traced, TRACE_WAIT, "wait for a batch", NULL);
    rank->load += clock_seconds() - begin;
    return STATUS_OK;
}

/* The step, and with --slow a rank's sleep after it. */
static enum status run_step(struct rank *rank, const struct batch *batch,
                            struct exec_result *out)
{
    const struct slow *slow = &rank->job->slow;
    const int own = transport_rank(rank->transport);
    const bool sleeps = slow_is(slow, own);
    const double before = sleeps ? exec_times(rank->exec).compute : 0;
    const int64_t traced = trace_begin(rank->tracing.row);

    TRY(rank->regime->step(rank, batch, out));
    if (sleeps)
        slow_down(slow, own, (exec_times(rank->exec).compute - before) / exec_lanes(rank->exec),
                  &rank->slow_steps);
    trace_end(rank->tracing.row, traced, TRACE_STEP, "step", NULL);
    return STATUS_OK;
}

/* The other workers did this step without this one, which came too late: it leaves its samples
 * out. */
static enum status skip_step(struct rank *rank)
{
    const struct batch *batch;

    TRY(loader_next(rank->loader, &batch));
    rank->known = rank->step + 1; /* as much as ever will be */
    loader_done(rank->loader, batch);
    return STATUS_OK;
}

enum status rank_one_step(struct rank *rank)
{
    const struct regime *regime = rank->regime;
    const struct batch *batch;
    struct exec_result result;

    if (rank->step < rank->next)
        return skip_step(rank);
    if (regime->before_step)
        TRY(regime->before_step(rank));
    const double begin = clock_seconds();
    rank_switch_trace(rank);
    TRY(next_batch(rank, &batch));
    TRY(run_step(rank, batch, &result));
    rank->heard = result.heard;
    rank->next = rank->step + 1;
    if (!result.is_late) {
        TRY(rank_take_late(rank, true)); /* of a step before one without samples */
        rank->known = rank->step;
        TRY(rank_check_loss(rank, &result)); /* before other ranks learn of it */
    }
    if (regime->after_step)
        TRY(regime->after_step(rank, batch, &result));
    loader_done(rank->loader, batch);
    const double seconds = clock_seconds() - begin;
    rank_spend(rank, seconds);
    if (result.is_late)
        rank->counts.in_flight += result.samples;
    else
        TRY(rank_add_result(rank, &result));
    return regime->average ? regime->average(rank, seconds) : STATUS_OK;
}
