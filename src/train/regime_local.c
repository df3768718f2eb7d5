/* SPDX-License-Identifier: MIT */
/* regime_local.c - local SGD: workers with private executors take the mean of all every H steps
 * (local.h).
 *
 * Flags that depend on time or signals are exchanged when workers average, so stops and checkpoints
 * wait for that. An evaluation is of the mean, whenever it is due. With --local-after the run
 * begins with regime_step.
 */
#include "train/regime_local.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "train/on_device.h"

static bool is_for(const struct job *job, uint64_t step)
{
    return job->axes.sync == SYNC_LOCAL && step >= (uint64_t)job->settings.local_after;
}

/* Start ---------------------------------------------------------------------------------- */

static enum status make_worker(struct rank *rank)
{
    struct local_worker *worker;

    TRY(mem_alloc(1, sizeof *worker, &worker));
    rank->own = worker;
    return private_comm_create(&worker->comm);
}

void local_describe(const struct job *job, int rank, struct exec_config *config)
{
    const int64_t shards = job->settings.shards, ranks = job->settings.ranks;

    config->part.first = rank * shards / ranks;
    config->part.count = (rank + 1) * shards / ranks - config->part.first;
    config->workers = (struct exec_workers){ .count = (int)ranks,
                                             .index = rank,
                                             .nodes = job->settings.flat ? (int)ranks : 1 };
}

/* The private executor, for this rank's shards. */
static enum status make_exec(struct rank *rank)
{
    struct local_worker *worker = rank->own;
    const struct settings *s = &rank->job->settings;
    const int64_t ranks = comm_size(rank->comm);
    struct exec_config config = rank_exec_config(rank);

    config.comm = worker->comm.comm;
    local_describe(rank->job, comm_rank(rank->comm), &config);
    config.workers.nodes = transport_nodes(rank->transport);
    config.workers.comm = rank->comm;
    config.evaluators = ranks > 1 ? rank->comm : NULL;
    TRY(exec_create(&config, &rank->exec));
    const struct local_config local = { .axes = &rank->job->axes,
                                        .comm = rank->comm,
                                        .exec = rank->exec,
                                        .shards = s->shards,
                                        .outer_lr = s->outer_lr,
                                        .outer_momentum = s->outer_momentum };
    TRY(local_create(&local, &worker->local));
    TRY(mem_alloc((size_t)ranks, sizeof(double), &worker->waited_for));
    TRY(mem_alloc((size_t)ranks, sizeof(double), &worker->waited_before));
    return rank->is_first
               ? mem_alloc(exec_vector_length(rank->exec), sizeof(float), &worker->vector)
               : STATUS_OK;
}

enum status local_worker_create(struct rank *rank)
{
    TRY(rank_make_comm(rank));
    TRY(make_worker(rank));
    TRY(make_exec(rank));
    return watch_create(rank->transport, exec_lanes(rank->exec), &rank->watch);
}

void local_worker_resume(struct rank *rank, uint64_t step)
{
    struct local_worker *worker = rank->own;

    if (!rank->is_first)
        rank->epoch = (struct tally){ 0 }; /* rank 0 has that of all */
    local_resume(worker->local, step);
    worker->met.interval = local_interval(worker->local)->now;
}

static enum status begin(struct rank *rank)
{
    const struct run *run = rank->run;
    struct local *local = ((struct local_worker *)rank->own)->local;

    if (run->checkpoint) {
        TRY(weights_load_worker(rank->exec, checkpoint_optimizer(run->checkpoint),
                                comm_rank(rank->comm), local_momentum(local)));
        TRY(local_read(local, checkpoint_state(run->checkpoint)));
    }
    local_worker_resume(rank, run->first_step);
    return STATUS_OK;
}

/* Broadcasts parameters and state of the executor of all ranks to every private one. */
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

/* The loader goes on as it began: samples that the device held for the executor before are held
 * for this one. */
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

static enum status take_over(struct rank *rank)
{
    TRY(exec_collect(rank->exec));
    TRY(make_worker(rank));
    struct local_worker *worker = rank->own;
    worker->together = rank->exec;
    rank->exec = NULL;
    TRY(make_exec(rank));
    worker->times_before = exec_times(worker->together);
    exec_waited_for(worker->together, worker->waited_before);
    TRY(hand_over(rank, worker->together));
    TRY(exec_settle(worker->together)); /* no rank reads its memory any more */
    exec_destroy(worker->together);
    worker->together = NULL;
    TRY(exec_publish(rank->exec));
    TRY(keep_again(rank));
    if (rank->is_first)
        log_line(LOG_INFO, "step %llu: workers train alone from here on",
                 (unsigned long long)rank->step);
    local_worker_resume(rank, rank->step);
    return rank_make_copy(rank);
}

void local_worker_destroy(struct rank *rank)
{
    struct local_worker *worker = rank->own;

    if (!worker)
        return;
    local_destroy(worker->local);
    exec_destroy(worker->together);
    private_comm_destroy(&worker->comm);
    mem_free(worker->waited_for);
    mem_free(worker->waited_before);
    mem_free(worker->vector);
    mem_free(worker);
}

/* Steps ---------------------------------------------------------------------------------- */

enum status local_worker_step(struct rank *rank, const struct batch *batch,
                              struct exec_result *out)
{
    transport_note(rank->transport, rank->step, "a step of its own");
    TRY(exec_step(rank->exec, batch, out));
    rank_count_batch(rank, batch);
    return STATUS_OK;
}

/* All workers tell of an interval together, after a step (average). */
enum status local_late_result(struct rank *rank, const struct exec_result *result,
                              double seconds)
{
    struct local_worker *worker = rank->own;

    local_add(worker->local, result, seconds);
    rank->counts.in_flight -= result->samples;
    return rank_add_result(rank, result);
}

enum status local_after_step(struct rank *rank, const struct batch *batch,
                             struct exec_result *result)
{
    struct local_worker *worker = rank->own;

    (void)batch;
    if (!result->is_late)
        local_add(worker->local, result, 0);
    return STATUS_OK;
}

static enum status average_now(struct rank *rank)
{
    struct local_worker *worker = rank->own;
    struct local_met *met = &worker->met;

    TRY(rank_take_late(rank, true));
    const double lr = schedule_lr(&rank->job->optim.schedule, rank->step);
    const double begin = clock_seconds();
    TRY(local_meet(worker->local, rank->step + 1, lr, rank_wishes(rank), met));
    rank_spend(rank, clock_seconds() - begin);
    rank->heard = met->heard;
    if (rank->is_first && met->is_new)
        rank_note_interval(rank, "averages", met->interval, met->comm_s, met->variance);
    return STATUS_OK;
}

/* Averages when it is time, and at the end. */
static enum status average(struct rank *rank, double seconds)
{
    struct local_worker *worker = rank->own;
    const uint64_t number = rank->step + 1;

    rank->save.is_allowed =
        local_step(worker->local, number, seconds) || (int64_t)number == rank->job->total_steps;
    rank->heard = 0;
    if (rank->save.is_allowed)
        TRY(average_now(rank));
    const bool tells = number % (uint64_t)rank->job->settings.log_every == 0;
    return tells ? rank_take_late(rank, true) : STATUS_OK;
}

/* Metrics -------------------------------------------------------------------------------- */

/* A worker knows its own samples alone until the interval is told. */
double local_rate(const struct rank *rank, const struct tally *recent)
{
    return rank_rate(rank, recent) *
           ((double)rank->job->settings.shards / (double)exec_shard_count(rank->exec));
}

/* With those of the executor of all ranks, and of averages. */
struct exec_times local_worker_times(const struct rank *rank)
{
    const struct local_worker *worker = rank->own;
    const struct exec_times *before = &worker->times_before;
    const struct local_times met = local_times(worker->local);
    struct exec_times t = exec_times(rank->exec);

    t.compute += before->compute;
    t.comm += before->comm + met.comm * exec_lanes(rank->exec);
    t.wait += before->wait + met.wait * exec_lanes(rank->exec);
    t.evaluate += before->evaluate;
    t.hidden += before->hidden;
    t.wire += before->wire;
    t.wire_hidden += before->wire_hidden;
    t.bytes += before->bytes + met.bytes;
    return t;
}

enum status local_collect_times(struct rank *rank)
{
    const struct local_worker *worker = rank->own;
    const struct exec_times now = local_worker_times(rank);
    const struct local_times met = local_times(worker->local);

    for (int r = 0; r < comm_size(rank->comm); r++)
        worker->waited_for[r] =
            worker->waited_before[r] + met.waited_for[r] * exec_lanes(rank->exec);
    return watch_bring(rank->watch, &now, worker->waited_for, rank->load);
}

enum status local_worker_sum(const struct rank *rank, struct tally *tally)
{
    return local_sum(((const struct local_worker *)rank->own)->local, tally);
}

static void add_metrics(struct rank *rank, struct metrics *m)
{
    const struct local_worker *worker = rank->own;

    rank_add_watched(rank, m);
    m->sync_interval = (double)worker->met.interval;
    m->param_variance = worker->met.variance;
}

static enum status hash(struct rank *rank, char out[65])
{
    return rank_hash_copies(rank, true, out);
}

/* Evaluations and checkpoints ------------------------------------------------------------- */

/* Of the mean of all workers' parameters. */
static enum status evaluate(struct rank *rank)
{
    struct local_worker *worker = rank->own;

    TRY(local_lend_mean(worker->local));
    TRY(rank_evaluate(rank));
    local_give_back(worker->local);
    return STATUS_OK;
}

enum status local_gather_states(struct rank *rank)
{
    struct local_worker *worker = rank->own;
    const size_t bytes = exec_vector_length(rank->exec) * sizeof(float);

    for (int w = 1; w < comm_size(rank->comm); w++) {
        for (int k = 0; k < exec_own_states(rank->exec); k++) {
            if (comm_rank(rank->comm) == w)
                TRY(comm_send(rank->comm, 0, exec_vector(rank->exec, k), bytes));
            if (!rank->is_first)
                continue;
            TRY(comm_receive(rank->comm, w, worker->vector, bytes));
            weights_copy_take_state(rank->save.copy, rank->exec, w, k, worker->vector);
        }
    }
    return STATUS_OK;
}

/* Parameters are equal: workers have just averaged. */
static enum status gather(struct rank *rank, struct tally *epoch)
{
    struct local_worker *worker = rank->own;
    const float *outer = local_momentum(worker->local);

    rank_take_copy(rank);
    TRY(local_sum(worker->local, epoch));
    if (rank->is_first && outer)
        weights_copy_take_outer(rank->save.copy, rank->exec, outer);
    return local_gather_states(rank);
}

static void extra(const struct rank *rank, struct weights_extra *out)
{
    out->workers = comm_size(rank->comm);
    out->has_outer = local_momentum(((const struct local_worker *)rank->own)->local) != NULL;
}

void local_print_state(const struct rank *rank, struct strbuf *out)
{
    local_print(((const struct local_worker *)rank->own)->local, out);
}

const struct regime regime_local = {
    .is_for = is_for,
    .is_private = true,
    .describe = local_describe,
    .create = local_worker_create,
    .begin = begin,
    .take_over = take_over,
    .step = local_worker_step,
    .late_result = local_late_result,
    .after_step = local_after_step,
    .average = average,
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
