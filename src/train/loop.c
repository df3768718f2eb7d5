/* SPDX-License-Identifier: MIT */
/* loop.c - what every rank does from the first step to the last.
 *
 * All ranks walk through the same steps and take the same decisions. Those that depend on time or
 * on signals are said before a step and heard by all after it (exec_say). Rank 0 alone writes files.
 *
 * Workers that average now and then (local.h) have an executor each. They hear each other when they meet, so
 * stops and checkpoints wait for that; what is evaluated is the mean of them, whenever it is due.
 *
 * With parameter servers (served.h) a rank is a server, which only serves, or a worker with an executor of its own:
 * worker 0 alone tells and saves what the servers have, and all meet at the end. Workers that wait for each other share
 * evaluations; else worker 0 evaluates. In a grid the ranks of the first copy of the model do all that together, and what
 * a rank says goes to its own copy's before it goes to servers.
 */
#include <math.h>
#include <signal.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"
#include "train/rank.h"
#include "train/stop.h"

enum { CHECKPOINT_SECONDS = 60 };

/* What is to be done after this step, by this rank's knowledge: any may be told to stop. */
static uint32_t wishes(const struct rank *rank)
{
    const int asked = stop_asked();
    const bool is_due = rank->is_first && !rank->job->settings.checkpoint_every &&
                        clock_seconds() - rank->saved_at > CHECKPOINT_SECONDS;

    return (asked ? STOP : 0) | (asked == SIGINT ? BY_HAND : 0) | (is_due ? SAVE : 0);
}

static void switch_trace(struct rank *rank)
{
    if (!rank->row)
        return;
    rank->row->step = rank->step;
    trace_switch(rank->trace,
                 rank->step >= rank->window.begin && rank->step < rank->window.end);
}

/* "averages are 20 steps apart now: one takes 1.20 ms, the variance of parameters is 3.1e-07" */
static void tell_new_interval(struct rank *rank, const char *what, int64_t interval,
                              double seconds, double variance)
{
    char text[200];

    snprintf(text, sizeof text,
             "step %llu: %s are %lld steps apart now: one takes %.2f ms, the variance of "
             "parameters is %.2g",
             (unsigned long long)rank->step + 1, what, (long long)interval, 1e3 * seconds,
             variance);
    if (rank->run->hooks->progress)
        progress_note(&rank->progress, text);
    else
        log_line(LOG_INFO, "%s", text);
}

/* The step, and with --slow a rank's sleep after it. */
static enum status run_step(struct rank *rank, const struct batch *batch,
                            struct exec_result *out)
{
    const struct slow *slow = &rank->job->slow;
    const int own = transport_rank(rank->transport);
    const bool sleeps = slow_is(slow, own);
    const double before = sleeps ? exec_times(rank->exec).compute : 0;

    if (rank->own.served)
        TRY(served_before(rank->own.served, rank->step, wishes(rank) & (STOP | BY_HAND)));
    if (rank->own.local || rank->own.served)
        transport_note(rank->transport, rank->step, "a step of its own");
    if (rank->grid || !(rank->own.local || rank->own.served))
        exec_say(rank->exec, wishes(rank));
    TRY(exec_step(rank->exec, batch, out));
    if (sleeps)
        slow_down(slow, own, (exec_times(rank->exec).compute - before) / exec_lanes(rank->exec),
                  &rank->slow_steps);
    return STATUS_OK;
}

/* With servers: ends a step. The loss of all workers comes in the place of this one's, as far as it was heard.
 * That it is time for a checkpoint worker 0 tells nobody. */
static enum status tick(struct rank *rank, const struct batch *batch,
                        struct exec_result *result)
{
    const uint32_t wish = rank->grid ? result->heard : wishes(rank);
    struct served_heard heard;

    rank->next = rank->step + 1;
    if (!rank->own.served)
        return STATUS_OK;
    TRY(served_tick(rank->own.served, batch, result, wish & (STOP | BY_HAND), &heard));
    *result = heard.result;
    rank->samples += heard.count.samples;
    rank->tokens += heard.count.weight;
    rank->heard = heard.result.heard | (wish & SAVE);
    rank->own.spread = (double)(heard.high - heard.low);
    const struct elastic_seen *seen = served_seen(rank->own.served);
    if (seen && seen->is_new && rank->is_first)
        tell_new_interval(rank, "exchanges", seen->interval, seen->comm_s, seen->distance);
    rank->next = heard.next;
    return STATUS_OK;
}

static enum status check_loss(const struct rank *rank, const struct exec_result *result)
{
    return isfinite(result->loss)
               ? STATUS_OK
               : FAIL(STATUS_MISMATCH,
                      "the loss is not a finite number at step %llu: lower --lr, or "
                      "use --clip 1 or --warmup",
                      (unsigned long long)rank->known);
}

static void spend(struct rank *rank, double seconds)
{
    rank->interval.seconds += seconds;
    rank->epoch.seconds += seconds;
}

/* What a step gave, once it is known; with servers, what was heard of it. */
static enum status add_result(struct rank *rank, const struct exec_result *result)
{
    TRY(check_loss(rank, result));
    rank->known++;
    rank_add(&rank->interval, result);
    rank_add(&rank->epoch, result);
    return STATUS_OK;
}

/* Tells of an interval as soon as the results of its last step are known; a device is not waited for, but in fp16, for its
 * scale of losses. */
static enum status tell_if_due(struct rank *rank)
{
    const bool is_last = (int64_t)rank->known == rank->job->total_steps;
    const bool ends = rank->known % (uint64_t)rank->job->settings.log_every == 0;

    if (!rank_leads(rank) || rank->told == rank->known || !(ends || is_last))
        return STATUS_OK;
    rank->told = rank->known;
    rank->before = rank->interval;
    return rank_tell_interval(rank);
}

/* What a worker that trains alone tells the others of its own step when they meet. */
static void add_own(struct rank *rank, const struct exec_result *result, double seconds)
{
    if (rank->own.local)
        local_add(rank->own.local, result, seconds);
    if (rank->own.served)
        served_add(rank->own.served, result, seconds);
}

/* Of steps that a device was still at: those that must be taken now, or all. What a device takes for steps is the time
 * that is spent here. Workers that average tell of an interval together, after a step; those with a center count what they
 * hear of all. */
static enum status add_late_results(struct rank *rank, bool all)
{
    struct exec_result result;
    bool taken = true;

    while (taken) {
        const double begin = clock_seconds();
        TRY(exec_take_result(rank->exec, all, &result, &taken));
        const double seconds = clock_seconds() - begin;
        spend(rank, seconds);
        if (!taken)
            break;
        add_own(rank, &result, seconds);
        if (rank->own.served) {
            TRY(check_loss(rank, &result));
            continue;
        }
        rank->in_flight -= result.samples;
        TRY(add_result(rank, &result));
        if (!rank->own.local)
            TRY(tell_if_due(rank));
    }
    return STATUS_OK;
}

/* Workers with executors of their own meet when it is time, and at the end. */
static enum status meet_if_due(struct rank *rank, double step_seconds)
{
    struct local *local = rank->own.local;
    const uint64_t number = rank->step + 1;

    if (!local)
        return STATUS_OK;
    rank->meets =
        local_step(local, number, step_seconds) || (int64_t)number == rank->job->total_steps;
    rank->heard = 0;
    if (!rank->meets)
        return STATUS_OK;
    TRY(add_late_results(rank, true));
    const double lr = schedule_lr(&rank->job->optim.schedule, rank->step);
    const double begin = clock_seconds();
    TRY(local_meet(local, number, lr, wishes(rank), &rank->own.met));
    spend(rank, clock_seconds() - begin);
    rank->heard = rank->own.met.heard;
    if (rank->is_first && rank->own.met.is_new)
        tell_new_interval(rank, "averages", rank->own.met.interval, rank->own.met.comm_s,
                          rank->own.met.variance);
    return STATUS_OK;
}

static enum status one_step(struct rank *rank)
{
    const struct batch *batch;
    struct exec_result result;

    if (rank->own.served && served_is_due(rank->own.served, rank->step))
        TRY(add_late_results(rank, true)); /* the exchange tells of them */
    const double begin = clock_seconds();
    switch_trace(rank);
    const int64_t traced = trace_begin(rank->row);
    TRY(loader_next(rank->loader, &batch));
    trace_end(rank->row, traced, TRACE_WAIT, "wait for a batch", NULL);
    rank->load += clock_seconds() - begin;
    const int64_t step_traced = trace_begin(rank->row);
    TRY(run_step(rank, batch, &result));
    trace_end(rank->row, step_traced, TRACE_STEP, "step", NULL);
    rank->heard = result.heard;
    if (!rank->own.served) { /* else what servers have heard of counts */
        rank->samples += batch->samples;
        rank->tokens += batch->weight;
    }
    if (!result.is_late) {
        TRY(add_late_results(rank, true)); /* of a step before one without samples */
        rank->known = rank->step;
        TRY(check_loss(rank, &result)); /* before anybody hears of it */
        add_own(rank, &result, 0);
    }
    TRY(tick(rank, batch, &result));
    loader_done(rank->loader, batch);
    const double seconds = clock_seconds() - begin;
    spend(rank, seconds);
    if (result.is_late)
        rank->in_flight += result.samples;
    else
        TRY(add_result(rank, &result));
    return meet_if_due(rank, seconds);
}

/* A step that the others did without this worker, which came too late: it leaves its samples out. */
static enum status skip_step(struct rank *rank)
{
    const struct batch *batch;

    TRY(loader_next(rank->loader, &batch));
    rank->known = rank->step + 1; /* as much as ever will be */
    loader_done(rank->loader, batch);
    return STATUS_OK;
}

/* Rank 0 counts what all workers trained that it has not heard of. With a center those that hold
 * the same parameters as rank 0 tell it of their steps since the last exchange. One that is lost
 * does not, and what it trained since is not counted. */
static enum status count_rest(struct rank *rank)
{
    const struct axes *axes = &rank->job->axes;
    struct axes_place place = axes_place_of(axes, transport_rank(rank->transport));
    struct served_count count = served_untold(rank->own.served);
    struct served_count theirs;

    if (axes->sync == SYNC_ELASTIC && place.tp == 0 && place.pp == 0 && place.dp > 0)
        return transport_send(rank->transport, 0, rank->own.tag, &count, sizeof count);
    if (!rank->is_first)
        return STATUS_OK;
    for (place.dp = 1; axes->sync == SYNC_ELASTIC && place.dp < axes->dp; place.dp++) {
        const int w = axes_rank_at(axes, place);
        if (!served_hears_from(rank->own.served, w))
            continue;
        const enum status status =
            transport_receive(rank->transport, w, rank->own.tag, &theirs, sizeof theirs);
        if (status == STATUS_PEER_LOST && transport_lost(rank->transport, w, NULL))
            continue;
        TRY(status);
        count.samples += theirs.samples;
        count.weight += theirs.weight;
    }
    theirs = served_rest(rank->own.served);
    rank->samples += count.samples + theirs.samples;
    rank->tokens += count.weight + theirs.weight;
    return STATUS_OK;
}

/* The last step of a worker with servers is done: when all have come, what the servers have is the result. */
static enum status meet_at_servers(struct rank *rank)
{
    TRY(served_meet(rank->own.served));
    TRY(count_rest(rank));
    return rank_leads(rank) ? served_collect(rank->own.served) : STATUS_OK;
}

/* What the progress line shows: all ranks' samples or tokens a second in this interval, or the last
 * if it has just begun. What servers tell comes late and in lumps: of them the last two intervals
 * are shown. */
static double shown_rate(const struct rank *rank, const struct tally *known)
{
    struct tally both = rank->interval;

    if (!rank->own.served)
        return rank_rate(rank, known) * rank_copies(rank);
    both.samples += rank->before.samples;
    both.weight += rank->before.weight;
    both.seconds += rank->before.seconds;
    return rank_rate(rank, &both);
}

/* What is due after a step, the same on every rank; with servers it is worker 0's, but for evaluations that workers
 * share. */
static enum status after_step(struct rank *rank, bool *stop)
{
    const struct settings *s = &rank->job->settings;
    const uint64_t number = rank->step + 1;
    const bool is_last = (int64_t)number == rank->job->total_steps;
    const bool ends_epoch = number % (uint64_t)rank->job->steps_per_epoch == 0;
    const int64_t epoch = (int64_t)number / rank->job->steps_per_epoch;

    const bool evaluates =
        is_last || (ends_epoch && s->eval_every && epoch % s->eval_every == 0);
    const bool saves = s->checkpoint_every ? number % (uint64_t)s->checkpoint_every == 0
                                           : ends_epoch || (rank->heard & SAVE);

    const bool tells = rank->own.local && number % (uint64_t)s->log_every == 0;

    *stop = (rank->heard & STOP) && !is_last; /* which is an end anyhow */
    TRY(add_late_results(rank, ends_epoch || saves || is_last || *stop || tells));
    if (rank->own.served && (is_last || *stop))
        TRY(meet_at_servers(rank));
    if (!rank_leads(rank))
        return evaluates && rank->own.evaluators ? rank_evaluate(rank) : STATUS_OK;
    if (rank->is_first) {
        const struct tally *known = rank->interval.weight ? &rank->interval : &rank->before;
        if (rank->run->hooks->progress)
            progress_update(&rank->progress, number,
                            (double)number / (double)rank->job->steps_per_epoch,
                            rank_mean_loss(known), rank_mean_accuracy(rank, known),
                            shown_rate(rank, known));
        if (number == rank->run->first_step + 1)
            rank->result.first_step_s = clock_seconds() - rank->job->began;
    }
    TRY(tell_if_due(rank));
    rank->result.train_loss = rank_mean_loss(&rank->epoch);
    rank->result.train_accuracy = rank_mean_accuracy(rank, &rank->epoch);
    const struct tally epoch_so_far = rank->epoch;
    if (evaluates && !*stop)
        TRY(rank_evaluate(rank));
    if (ends_epoch && !is_last) /* who ends the run later evaluates once more, and tells it */
        rank->epoch = (struct tally){ 0 };
    rank->is_owed |= saves;
    if ((rank->is_owed && (rank->meets || !rank->own.local)) || is_last || *stop)
        TRY(rank_save(rank));
    if (!evaluates || !*stop)
        return STATUS_OK;
    rank->epoch = epoch_so_far; /* who goes on does not come here again, and all is saved */
    return rank_evaluate(rank);
}

/* All steps were done in a session that ended before the run was over: what after_step does of the
 * last one but for saving. */
static enum status end_again(struct rank *rank)
{
    rank->step = rank->begins - 1;
    if (rank->own.served)
        TRY(meet_at_servers(rank));
    if (rank_leads(rank) || rank->own.evaluators)
        TRY(rank_evaluate(rank));
    rank->step = rank->begins;
    return exec_settle(rank->exec);
}

enum status rank_run_steps(struct rank *rank)
{
    bool stop = false;

    if ((int64_t)rank->begins == rank->job->total_steps)
        return end_again(rank);

    rank->known = rank->told = rank->begins;
    for (rank->step = rank->begins; (int64_t)rank->step < rank->job->total_steps && !stop;
         rank->step++) {
        if (!rank->own.local && !rank_is_together(rank->job, rank->step)) {
            TRY(add_late_results(rank, true));
            TRY(rank_part(rank));
        }
        if (rank->step < rank->next)
            TRY(skip_step(rank));
        else
            TRY(one_step(rank));
        TRY(after_step(rank, &stop));
    }
    if (stop && rank->is_first)
        rank->run->shared->stopped = rank->heard & BY_HAND ? SIGINT : SIGTERM;
    return exec_settle(rank->exec);
}
