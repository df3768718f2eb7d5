/* SPDX-License-Identifier: MIT */
/* regime_step.c - synchronous training: all ranks run one executor, every step together. */
#include "train/regime.h"

static bool is_for(const struct job *job, uint64_t step)
{
    (void)job;
    (void)step;
    return true;
}

static enum status create(struct rank *rank)
{
    struct exec_config config;

    TRY(rank_make_comm(rank));
    config = rank_exec_config(rank);
    if (rank->job->sync_graph)
        config.train = rank->job->sync_graph;
    grid_configure(rank->grid, &config);
    TRY(exec_create(&config, &rank->exec));
    return watch_create(rank->transport, exec_lanes(rank->exec), &rank->watch);
}

static enum status step(struct rank *rank, const struct batch *batch, struct exec_result *out)
{
    exec_say(rank->exec, rank_wishes(rank));
    TRY(exec_step(rank->exec, batch, out));
    rank_count_batch(rank, batch);
    return STATUS_OK;
}

/* The interval is told as soon as the result of its last step is known: no device is waited for. */
static enum status late_result(struct rank *rank, const struct exec_result *result,
                               double seconds)
{
    (void)seconds;
    rank->counts.in_flight -= result->samples;
    TRY(rank_add_result(rank, result));
    return rank_tell_if_due(rank);
}

static enum status collect_times(struct rank *rank)
{
    return grid_collect_times(rank->grid, rank->watch, rank->exec, rank->load);
}

/* The ranks of a machine share one copy. */
static enum status hash(struct rank *rank, char out[65])
{
    const int own = transport_rank(rank->transport);
    const int node = transport_node_of(rank->transport, own);

    return rank->grid ? grid_hash(rank->grid, rank->exec, out)
                      : rank_hash_copies(
                            rank, transport_node_first(rank->transport, node) == own, out);
}

static enum status gather(struct rank *rank, struct tally *epoch)
{
    (void)epoch;
    rank_take_copy(rank);
    return STATUS_OK;
}

const struct regime regime_step = {
    .is_for = is_for,
    .create = create,
    .step = step,
    .late_result = late_result,
    .rate = rank_rate,
    .collect_times = collect_times,
    .add_metrics = rank_add_watched,
    .hash = hash,
    .evaluate = rank_evaluate,
    .gather = gather,
};
