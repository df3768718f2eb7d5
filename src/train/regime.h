/* SPDX-License-Identifier: MIT */
/* regime.h - when and how the ranks of a job agree on parameters. Private to train/.
 *
 *   regime_step     all ranks run one executor: every step is synchronous
 *   regime_local    local SGD: private executors, averaged every H steps
 *   regime_gossip   decentralized SGD: private executors, averaged with neighbors after every step
 *   regime_elastic  elastic averaging: private executors, pulled to a center on parameter servers
 *   regime_served   parameter servers update: synchronous, bounded staleness (ssp) or asynchronous
 *
 * A regime is a table of functions, in a file of its own. The loop (loop.c), metrics and
 * evaluations (tell.c), checkpoints (save.c) and a rank's life (rank.c) call through the table and
 * know no regime.
 *
 * "Collective" is a call that every rank makes after the same step; "optional" is a slot that may
 * be NULL. A regime keeps its state of a rank behind rank->own.
 */
#ifndef TRAIN_REGIME_H
#define TRAIN_REGIME_H

#include "train/rank.h"

struct regime {
    /* Does the job train this way from this step on? */
    bool (*is_for)(const struct job *job, uint64_t step);
    /* Every rank has parameters of its own, so every rank loads them. */
    bool is_private;

    /* Start. join is optional: the first call of every rank of the job, servers included. It
     * allocates rank->own, takes the tags and groups that all ranks take, and sets
     * rank->role.is_server. */
    enum status (*join)(struct rank *rank);
    /* Optional. What the executor of a rank is told beside job_exec_config and the grid: its part of
     * the shards, and that servers get its sums. No rank is asked, and config->remote may be
     * pretended (job_lower). */
    void (*describe)(const struct job *job, int rank, struct exec_config *config);
    /* Collective: makes rank->exec, and the communicator, grid and watch that the regime needs.
     * Sets rank->role.leads and rank->role.evaluates where not every rank does. */
    enum status (*create)(struct rank *rank);
    /* Optional. rank->exec has its first parameters and state: restores the regime's own state
     * from the checkpoint, if there is one. May change rank->begins, and set
     * rank->role.is_unneeded. */
    enum status (*begin)(struct rank *rank);
    /* Optional, collective: replaces the executor of the regime before, between two steps of a
     * run. */
    enum status (*take_over)(struct rank *rank);

    /* A step. before_step is optional: before the clock of the step starts. */
    enum status (*before_step)(struct rank *rank);
    /* Runs the step and counts its samples, if they are counted by batches. */
    enum status (*step)(struct rank *rank, const struct batch *batch, struct exec_result *out);
    /* A result that a device owed is known, after the loop waited `seconds` for it alone. */
    enum status (*late_result)(struct rank *rank, const struct exec_result *result,
                               double seconds);
    /* Optional. The step was run; its loss is finite unless result->is_late. Exchanges flags and
     * counts with other ranks: may replace *result by that of all workers, rank->heard by all
     * ranks' flags, and rank->next. */
    enum status (*after_step)(struct rank *rank, const struct batch *batch,
                              struct exec_result *result);
    /* Optional, collective. The step is counted, it took `seconds`: averages if that is due.
     * Sets rank->save.is_allowed. */
    enum status (*average)(struct rank *rank, double seconds);

    /* Optional: after the last step of the session, before what is due then. Every worker waits
     * for all here. */
    enum status (*end)(struct rank *rank);
    /* Optional: says goodbye to servers; rank->exec is still there. More than once does no harm. */
    void (*leave)(struct rank *rank);
    /* Optional: releases rank->own, after rank->exec was destroyed. rank->own may be NULL. */
    void (*destroy)(struct rank *rank);

    /* Metrics. Samples or tokens a second of all ranks, for the progress line; recent: the tally
     * of the interval and the one before. */
    double (*rate)(const struct rank *rank, const struct tally *recent);
    /* Optional: exec_times of the rank, with what the regime spent beside rank->exec. */
    struct exec_times (*times)(const struct rank *rank);
    /* Optional, collective: rank 0 learns what all ranks' time went to. */
    enum status (*collect_times)(struct rank *rank);
    /* Optional, collective: a rank's tally becomes that of all ranks; seconds stay. NULL: it is
     * already. */
    enum status (*sum)(const struct rank *rank, struct tally *tally);
    /* Rank 0: adds members to a line of metrics, the interval is rank->line.tally. */
    void (*add_metrics)(struct rank *rank, struct metrics *m);
    /* Optional: rank 0 adds members to summary.json. */
    void (*print_summary)(const struct rank *rank, struct strbuf *out);
    /* Optional, collective: times of every rank to rank 0; `times` are this rank's, NULL if it
     * is unneeded. NULL: an all-gather. */
    enum status (*gather_times)(struct rank *rank, struct rank_times *times,
                                struct rank_times *all);
    /* SHA-256 of the weights on rank 0; copies that should be equal are compared. */
    enum status (*hash)(struct rank *rank, char out[65]);

    /* Parameters. Ranks with rank->role.evaluates: rank_evaluate, with the parameters that are
     * evaluated in place. */
    enum status (*evaluate)(struct rank *rank);
    /* Ranks with rank->role.leads, on a collected executor (settled, where checkpoints stream):
     * rank_take_copy, with the parameters that are saved in place; *epoch becomes that of all
     * ranks. */
    enum status (*gather)(struct rank *rank, struct tally *epoch);
    /* Optional: what checkpoints have beside rank 0's parameters and state; members of
     * state.json. */
    void (*extra)(const struct rank *rank, struct weights_extra *extra);
    void (*print_state)(const struct rank *rank, struct strbuf *out);
};

extern const struct regime regime_step, regime_local, regime_gossip, regime_elastic,
    regime_served;

/* The regime of a job at a step. */
const struct regime *regime_at(const struct job *job, uint64_t step);

#endif /* TRAIN_REGIME_H */
