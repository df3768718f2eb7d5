/* SPDX-License-Identifier: MIT */
/* regime_gossip.c - decentralized SGD (D-PSGD, Lian et al. 2017): after every step each worker takes
 * the mean of its own parameters and its neighbors'. Which these are the pass gossip says.
 *
 * No worker waits for all: flags that depend on time or signals are exchanged every
 * LOCAL_GOSSIP_STEPS steps (local.h). The mean of all workers is what is evaluated, saved and, at
 * the end, the result. Checkpoints have every worker's own parameters beside it, so that a run goes
 * on with the same bits.
 */
#include <math.h>

#include "base/clock.h"
#include "train/regime_local.h"

static bool is_for(const struct job *job, uint64_t step)
{
    (void)step;
    return job->axes.sync == SYNC_GOSSIP;
}

static struct local *local_of(const struct rank *rank)
{
    return ((const struct local_worker *)rank->own)->local;
}

static enum status begin(struct rank *rank)
{
    const struct run *run = rank->run;
    struct local_worker *worker = rank->own;

    worker->variance = NAN;
    if (run->checkpoint) {
        const struct safetensors *optimizer = checkpoint_optimizer(run->checkpoint);
        const int number = comm_rank(rank->comm);
        TRY(weights_load_worker(rank->exec, optimizer, number, NULL));
        TRY(weights_load_own(rank->exec, optimizer, number));
        TRY(exec_publish(rank->exec));
        TRY(local_read(worker->local, checkpoint_state(run->checkpoint)));
    }
    local_worker_resume(rank, run->first_step);
    return STATUS_OK;
}

/* Steps ---------------------------------------------------------------------------------- */

static enum status meet(struct rank *rank)
{
    struct local_worker *worker = rank->own;
    const double lr = schedule_lr(&rank->job->optim.schedule, rank->step);

    TRY(rank_take_late(rank, true));
    const double begin = clock_seconds();
    TRY(local_meet(worker->local, rank->step + 1, lr, rank_wishes(rank), &worker->met));
    rank_spend(rank, clock_seconds() - begin);
    rank->heard = worker->met.heard;
    return STATUS_OK;
}

static enum status average(struct rank *rank, double seconds)
{
    const uint64_t number = rank->step + 1;
    const double begin = clock_seconds();

    TRY(local_mix(local_of(rank)));
    rank_spend(rank, clock_seconds() - begin);
    rank->save.is_allowed = true; /* all workers' parameters are saved */
    rank->heard = 0;
    if (local_step(local_of(rank), number, seconds) ||
        (int64_t)number == rank->job->total_steps)
        TRY(meet(rank));
    const bool tells = number % (uint64_t)rank->job->settings.log_every == 0;
    return tells ? rank_take_late(rank, true) : STATUS_OK;
}

/* The mean of all workers is the result; each worker's own parameters are kept beside it. */
static enum status end(struct rank *rank)
{
    struct local_worker *worker = rank->own;

    TRY(local_lend_mean(worker->local));
    worker->has_ended = true;
    return STATUS_OK;
}

static void give_back(struct rank *rank)
{
    const struct local_worker *worker = rank->own;

    if (!worker->has_ended)
        local_give_back(worker->local);
}

/* Metrics -------------------------------------------------------------------------------- */

static void add_metrics(struct rank *rank, struct metrics *m)
{
    const struct local_worker *worker = rank->own;

    rank_add_watched(rank, m);
    m->sync_interval = 1;
    m->param_variance = worker->variance;
}

static enum status hash(struct rank *rank, char out[65])
{
    TRY(local_lend_mean(local_of(rank)));
    TRY(rank_hash_copies(rank, true, out));
    give_back(rank);
    return STATUS_OK;
}

/* Evaluations and checkpoints ------------------------------------------------------------- */

static enum status evaluate(struct rank *rank)
{
    struct local_worker *worker = rank->own;

    TRY(local_lend_mean(worker->local));
    TRY(local_variance(worker->local, &worker->variance));
    TRY(rank_evaluate(rank));
    give_back(rank);
    return STATUS_OK;
}

/* Every other worker's own parameters come to rank 0. */
static enum status gather_own(struct rank *rank)
{
    const struct local_worker *worker = rank->own;
    const size_t bytes = exec_vector_length(rank->exec) * sizeof(float);
    const float *own = local_own(worker->local);

    if (rank->is_first)
        weights_copy_take_own(rank->save.copy, rank->exec, 0, own);
    for (int w = 1; w < comm_size(rank->comm); w++) {
        if (comm_rank(rank->comm) == w)
            TRY(comm_send(rank->comm, 0, own, bytes));
        if (!rank->is_first)
            continue;
        TRY(comm_receive(rank->comm, w, worker->vector, bytes));
        weights_copy_take_own(rank->save.copy, rank->exec, w, worker->vector);
    }
    return STATUS_OK;
}

static enum status gather(struct rank *rank, struct tally *epoch)
{
    struct local *local = local_of(rank);

    TRY(local_lend_mean(local));
    rank_take_copy(rank);
    TRY(local_sum(local, epoch));
    TRY(gather_own(rank));
    TRY(local_gather_states(rank));
    give_back(rank);
    return STATUS_OK;
}

static void extra(const struct rank *rank, struct weights_extra *out)
{
    out->workers = comm_size(rank->comm);
    out->has_own = true;
}

const struct regime regime_gossip = {
    .is_for = is_for,
    .is_private = true,
    .describe = local_describe,
    .create = local_worker_create,
    .begin = begin,
    .step = local_worker_step,
    .late_result = local_late_result,
    .after_step = local_after_step,
    .average = average,
    .end = end,
    .destroy = local_worker_destroy,
    .rate = local_rate,
    .times = local_worker_times,
    .collect_times = local_collect_times,
    .sum = local_worker_sum,
    .add_metrics = add_metrics,
    .hash = hash,
    .evaluate = evaluate,
    .gather = gather,
    .extra = extra,
    .print_state = local_print_state,
};
