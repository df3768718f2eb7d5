/* SPDX-License-Identifier: MIT */
/* own.c - a rank's executor: the one of all ranks, or one of its own. */
#include "base/log.h"
#include "base/mem.h"
#include "train/on_device.h"
#include "train/rank.h"

bool rank_is_together(const struct job *job, uint64_t step)
{
    return job->axes.sync != SYNC_LOCAL || step < (uint64_t)job->settings.local_after;
}

static struct exec_config exec_config_of(const struct rank *rank)
{
    const struct job *job = rank->job;
    const struct settings *s = &job->settings;

    return (struct exec_config){
        .train = job->sync_graph ? job->sync_graph : job->graph,
        .eval = job->eval_graph,
        .comm = rank->comm,
        .threads = (int)s->threads,
        .shards = s->shards,
        .batch = s->batch,
        .rows = job->balance.is_used ? job->balance.rows : NULL,
        .seed = s->seed,
        .device = on_device_of(&rank->device),
        .choices = job->choices,
        .optim = job->optim,
        .compress = job->compress,
        .compress_after = (uint64_t)s->compress_after,
        .zero = job->axes.zero,
        .leaders = job->rails.count == 1,
        .trace = rank->trace,
        .stall_timeout = s->stall_timeout,
    };
}

enum status rank_make_together(struct rank *rank)
{
    struct exec_config config = exec_config_of(rank);

    grid_configure(rank->grid, &config);
    return exec_create(&config, &rank->exec);
}

/* An executor of its own for this rank's shards, and what it averages by. */
enum status rank_make_own(struct rank *rank)
{
    struct own *own = &rank->own;
    const struct settings *s = &rank->job->settings;
    const int64_t ranks = comm_size(rank->comm), number = comm_rank(rank->comm);
    struct exec_config config = exec_config_of(rank);

    TRY(transport_inproc_create(1, &own->transport));
    TRY(comm_create(own->transport, NULL, &own->comm));
    config.train = rank->job->graph;
    config.comm = own->comm;
    config.part.first = number * s->shards / ranks;
    config.part.count = (number + 1) * s->shards / ranks - config.part.first;
    config.evaluators = ranks > 1 ? rank->comm : NULL;
    TRY(exec_create(&config, &rank->exec));
    const struct local_config local = { .axes = &rank->job->axes,
                                        .comm = rank->comm,
                                        .exec = rank->exec,
                                        .shards = s->shards,
                                        .outer_lr = s->outer_lr,
                                        .outer_momentum = s->outer_momentum };
    TRY(local_create(&local, &own->local));
    TRY(mem_alloc((size_t)ranks, sizeof(double), &own->waited_for));
    TRY(mem_alloc((size_t)ranks, sizeof(double), &own->waited_before));
    return rank->is_first
               ? mem_alloc(exec_vector_length(rank->exec), sizeof(float), &own->vector)
               : STATUS_OK;
}

/* Groups take tags of the job, so servers make one, too. */
enum status rank_join_workers(struct rank *rank)
{
    struct own *own = &rank->own;
    const int workers = (int)rank->job->settings.ranks;
    const bool serves = served_is_server(rank->job, rank->transport);
    const int first = serves ? workers : 0;
    const int count = serves ? rank->job->axes.servers : workers;
    int members[PS_WORKERS];

    if (!served_evaluates_together(rank->job))
        return STATUS_OK;
    for (int i = 0; i < count; i++)
        members[i] = first + i;
    TRY(transport_group_create(rank->transport, members, count, &own->group));
    return serves ? STATUS_OK : comm_create(own->group, NULL, &own->evaluators);
}

/* An executor of its own that gives its sums to servers. */
enum status rank_make_served(struct rank *rank)
{
    struct own *own = &rank->own;
    struct exec_config config = exec_config_of(rank);

    TRY(transport_inproc_create(1, &own->transport));
    TRY(comm_create(own->transport, NULL, &own->comm));
    TRY(served_create(rank->job, rank->run->hooks, rank->transport, &own->served));
    TRY(grid_create(rank->job, rank->transport, &rank->grid));
    grid_configure(rank->grid, &config);
    config.comm = own->comm;
    config.rows = NULL;
    config.part = served_part(own->served);
    config.remote = served_remote(own->served);
    config.evaluators = own->evaluators;
    return exec_create(&config, &rank->exec);
}

void rank_release_own(struct own *own)
{
    local_destroy(own->local);
    exec_destroy(own->together);
    comm_destroy(own->evaluators);
    transport_group_destroy(own->group);
    comm_destroy(own->comm);
    if (own->transport)
        transport_inproc_destroy(&own->transport, 1);
    mem_free(own->waited_for);
    mem_free(own->waited_before);
    mem_free(own->vector);
}

enum status rank_make_copy(struct rank *rank)
{
    const struct run *run = rank->run;
    const struct weights_extra extra = {
        .workers = rank->own.local ? comm_size(rank->comm) : 1,
        .has_outer = rank->own.local && local_momentum(rank->own.local),
        .streams = rank_streams(rank),
        .grid = rank->grid,
        .graph = rank->job->graph,
        .file = run->checkpoint ? checkpoint_weights(run->checkpoint) : run->init,
        .seed = rank->job->settings.seed,
    };

    weights_copy_destroy(rank->copy);
    rank->copy = NULL;
    return rank->is_first ? weights_copy_create(rank->exec, extra, &rank->copy) : STATUS_OK;
}

/* Parameters and state of an executor of all ranks go to every worker's own. */
static enum status hand_over(struct rank *rank, struct exec *from)
{
    enum status status = STATUS_OK;

    for (int i = 0; i < exec_param_count(from) && status == STATUS_OK; i++) {
        const size_t count = (size_t)shape_count(&exec_param(from, i)->shape);
        float *plain;
        TRY(mem_alloc(count, sizeof *plain, &plain));
        for (int k = -1; k < exec_state_count(from, i) && status == STATUS_OK; k++) {
            if (rank->is_first)
                exec_get(from, i, k, plain);
            status = comm_broadcast(rank->comm, plain, count, DTYPE_F32, 0);
            if (status == STATUS_OK)
                exec_set(rank->exec, i, k, plain);
        }
        mem_free(plain);
    }
    return status;
}

/* The loader goes on as it began: what the device of the executor before has held, this one's holds. */
static enum status keep_again(struct rank *rank)
{
    const size_t before = rank->kept_bytes;

    if (!before)
        return STATUS_OK;
    TRY(on_device_keep(rank->job, &rank->device, rank->exec, &rank->kept_bytes));
    return rank->kept_bytes
               ? STATUS_OK
               : FAIL(
                     STATUS_NO_MEMORY,
                     "%zu MB of samples have no room on device %s any more: use --data-on host",
                     before / 1000000, rank->job->settings.device);
}

/* Workers part: from this step on each has an executor of its own. */
enum status rank_part(struct rank *rank)
{
    struct own *own = &rank->own;

    TRY(exec_collect(rank->exec));
    own->together = rank->exec;
    rank->exec = NULL;
    TRY(rank_make_own(rank));
    own->times_before = exec_times(own->together);
    exec_waited_for(own->together, own->waited_before);
    TRY(hand_over(rank, own->together));
    TRY(exec_settle(own->together)); /* nobody looks at its memory any more */
    exec_destroy(own->together);
    own->together = NULL;
    TRY(exec_publish(rank->exec));
    TRY(keep_again(rank));
    local_resume(own->local, rank->step);
    own->met.interval = local_interval(own->local)->now;
    if (rank->is_first)
        log_line(LOG_INFO, "step %llu: workers train alone from here on",
                 (unsigned long long)rank->step);
    else
        rank->epoch = (struct tally){ 0 }; /* what all did is counted by rank 0 */
    return rank_make_copy(rank);
}
