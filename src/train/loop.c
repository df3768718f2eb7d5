/* SPDX-License-Identifier: MIT */
/* loop.c - the steps of a rank, and what is due after each.
 *
 * All ranks walk through the same steps and take the same decisions. Those that depend on time or
 * on signals are exchanged as flags with a step (rank->heard). Rank 0 alone writes files. How ranks
 * exchange flags, gradients and parameters is the regime's (regime.h).
 */
#include <signal.h>

#include "train/regime.h"

/* The same on every rank with rank->role.leads; the others share evaluations at most. */
static enum status do_due(struct rank *rank, bool *stop)
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

    *stop = (rank->heard & STOP) && !is_last; /* which is an end anyhow */
    TRY(rank_take_late(rank, ends_epoch || saves || is_last || *stop));
    if (rank->regime->end && (is_last || *stop))
        TRY(rank->regime->end(rank));
    if (!rank->role.leads)
        return evaluates && rank->role.evaluates ? rank->regime->evaluate(rank) : STATUS_OK;
    rank_show_progress(rank);
    TRY(rank_tell_if_due(rank));
    rank->result.train_loss = rank_mean_loss(&rank->epoch);
    rank->result.train_accuracy = rank_mean_accuracy(rank, &rank->epoch);
    const struct tally epoch_so_far = rank->epoch;
    if (evaluates && !*stop)
        TRY(rank->regime->evaluate(rank));
    /* A run that ends later evaluates once more, and tells this epoch. */
    if (ends_epoch && !is_last)
        rank->epoch = (struct tally){ 0 };
    rank->save.is_owed |= saves;
    if ((rank->save.is_owed && rank->save.is_allowed) || is_last || *stop)
        TRY(rank_save(rank));
    if (!evaluates || !*stop)
        return STATUS_OK;
    /* A run that goes on does not come here again, and all is saved. */
    rank->epoch = epoch_so_far;
    return rank->regime->evaluate(rank);
}

/* All steps were done in a session that ended before the run was over: what do_due does after
 * the last one, but for saving. */
static enum status end_again(struct rank *rank)
{
    rank->step = rank->begins - 1;
    if (rank->regime->end)
        TRY(rank->regime->end(rank));
    if (rank->role.evaluates)
        TRY(rank->regime->evaluate(rank));
    rank->step = rank->begins;
    return exec_settle(rank->exec);
}

static enum status change_regime(struct rank *rank, const struct regime *regime)
{
    TRY(rank_take_late(rank, true));
    rank->regime = regime;
    return regime->take_over(rank);
}

enum status rank_run_steps(struct rank *rank)
{
    bool stop = false;

    if ((int64_t)rank->begins == rank->job->total_steps)
        return end_again(rank);

    rank->known = rank->line.told = rank->begins;
    for (rank->step = rank->begins; (int64_t)rank->step < rank->job->total_steps && !stop;
         rank->step++) {
        const struct regime *regime = regime_at(rank->job, rank->step);
        if (regime != rank->regime)
            TRY(change_regime(rank, regime));
        TRY(rank_one_step(rank));
        TRY(do_due(rank, &stop));
    }
    if (stop && rank->is_first)
        rank->run->shared->stopped = rank->heard & BY_HAND ? SIGINT : SIGTERM;
    return exec_settle(rank->exec);
}
