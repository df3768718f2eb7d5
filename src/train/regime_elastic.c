/* SPDX-License-Identifier: MIT */
/* regime_elastic.c - elastic averaging: workers train alone, and exchange with a center on
 * parameter servers every T steps (elastic.h).
 *
 * Flags and counts of all workers are heard with an exchange. The center is evaluated and saved, by
 * worker 0 alone.
 */
#include "train/regime_served.h"

static bool is_for(const struct job *job, uint64_t step)
{
    (void)step;
    return job->axes.sync == SYNC_ELASTIC;
}

static struct served *served_of(const struct rank *rank)
{
    return ((const struct worker *)rank->own)->served;
}

static enum status create(struct rank *rank)
{
    struct exec_config config;

    TRY(worker_create(rank, &config));
    return exec_create(&config, &rank->exec);
}

/* An exchange tells of the steps before it, so their results must be known. */
static enum status before_step(struct rank *rank)
{
    return served_is_due(served_of(rank), rank->step) ? rank_take_late(rank, true) : STATUS_OK;
}

static enum status step(struct rank *rank, const struct batch *batch, struct exec_result *out)
{
    TRY(served_before(served_of(rank), rank->step, rank_wishes(rank) & (STOP | BY_HAND)));
    return worker_step(rank, batch, out);
}

static enum status late_result(struct rank *rank, const struct exec_result *result,
                               double seconds)
{
    served_add(served_of(rank), result, seconds);
    return rank_check_loss(rank, result);
}

static enum status after_step(struct rank *rank, const struct batch *batch,
                              struct exec_result *result)
{
    struct served *served = served_of(rank);

    if (!result->is_late)
        served_add(served, result, 0);
    TRY(worker_tick(rank, batch, result, rank_wishes(rank)));
    const struct elastic_seen *seen = served_seen(served);
    if (seen->is_new && rank->is_first)
        rank_note_interval(rank, "exchanges", seen->interval, seen->comm_s, seen->distance);
    return STATUS_OK;
}

/* Workers tell rank 0 of their steps since the last exchange. One that is lost does not, and
 * what it trained since then is not counted. */
static enum status count_rest(struct rank *rank)
{
    const struct worker *worker = rank->own;
    struct served_count theirs = served_untold(worker->served);

    if (!rank->is_first)
        return transport_send(rank->transport, 0, worker->tag, &theirs, sizeof theirs);
    rank->samples += theirs.samples;
    rank->tokens += theirs.weight;
    for (int w = 1; w < rank->job->axes.dp; w++) {
        if (!served_hears_from(worker->served, w))
            continue;
        const enum status status =
            transport_receive(rank->transport, w, worker->tag, &theirs, sizeof theirs);
        if (status == STATUS_PEER_LOST && transport_lost(rank->transport, w, NULL))
            continue;
        TRY(status);
        rank->samples += theirs.samples;
        rank->tokens += theirs.weight;
    }
    return STATUS_OK;
}

static enum status end(struct rank *rank)
{
    TRY(worker_meet(rank));
    TRY(count_rest(rank));
    return rank->is_first ? served_collect(served_of(rank)) : STATUS_OK;
}

static void add_metrics(struct rank *rank, struct metrics *m)
{
    const struct elastic_seen *seen = served_seen(served_of(rank));

    worker_add_metrics(rank, m);
    m->sync_interval = (double)seen->interval;
    m->param_variance = seen->distance;
}

static enum status evaluate(struct rank *rank)
{
    TRY(served_lend_center(served_of(rank)));
    TRY(rank_evaluate(rank));
    served_give_back(served_of(rank));
    return STATUS_OK;
}

static enum status gather(struct rank *rank, struct tally *epoch)
{
    (void)epoch;
    TRY(served_lend_center(served_of(rank)));
    rank_take_copy(rank);
    served_give_back(served_of(rank));
    return STATUS_OK;
}

const struct regime regime_elastic = {
    .is_for = is_for,
    .is_private = true,
    .join = worker_join,
    .create = create,
    .begin = worker_begin,
    .before_step = before_step,
    .step = step,
    .late_result = late_result,
    .after_step = after_step,
    .end = end,
    .leave = worker_leave,
    .destroy = worker_destroy,
    .rate = worker_rate,
    .add_metrics = add_metrics,
    .print_summary = worker_print_summary,
    .gather_times = worker_gather_times,
    .hash = worker_hash,
    .evaluate = evaluate,
    .gather = gather,
};
