/* SPDX-License-Identifier: MIT */
/* regime_elastic.c - elastic averaging: workers train alone, and exchange with a center on
 * parameter servers every T steps (elastic.h).
 *
 * Flags and counts of all workers are heard with an exchange. The center is evaluated and saved, by
 * worker 0 alone.
 */
#include "base/clock.h"
#include "base/mem.h"
#include "train/elastic.h"
#include "train/regime_served.h"

struct exchange {
    struct ps_client *client;
    struct elastic *elastic;
    struct ps_heard heard; /* from the exchange before this step */
    bool is_heard;         /* there was one */
    double step_began;
};

static bool is_for(const struct job *job, uint64_t step)
{
    (void)step;
    return job->axes.sync == SYNC_ELASTIC;
}

static struct exchange *exchange_of(const struct rank *rank)
{
    return ((const struct worker *)rank->own)->exchange;
}

/* Start ---------------------------------------------------------------------------------- */

static enum status create(struct rank *rank)
{
    return worker_create(rank, false);
}

static enum status begin(struct rank *rank)
{
    struct worker *worker = rank->own;
    struct elastic_config config = { .axes = &rank->job->axes,
                                     .exec = rank->exec,
                                     .buckets = served_buckets(worker->served),
                                     .is_first = rank->is_first };

    TRY(mem_alloc(1, sizeof *worker->exchange, &worker->exchange));
    TRY(served_join(worker->served, rank->exec, elastic_room(rank->exec), &config.client));
    worker->exchange->client = config.client;
    return elastic_create(&config, rank->run->first_step, &worker->exchange->elastic);
}

static void leave(struct rank *rank)
{
    struct worker *worker = rank->own;

    if (worker && worker->exchange) {
        elastic_destroy(worker->exchange->elastic);
        mem_free(worker->exchange);
        worker->exchange = NULL;
    }
    worker_leave(rank);
}

/* Steps ---------------------------------------------------------------------------------- */

/* An exchange tells of the steps before it, so their results must be known. */
static enum status before_step(struct rank *rank)
{
    return elastic_is_due(exchange_of(rank)->elastic, rank->step) ? rank_take_late(rank, true)
                                                                  : STATUS_OK;
}

static enum status step(struct rank *rank, const struct batch *batch, struct exec_result *out)
{
    const struct worker *worker = rank->own;
    struct exchange *exchange = worker->exchange;
    const uint32_t says = rank_wishes(rank) & (STOP | BY_HAND);
    const double begin = clock_seconds();

    TRY(elastic_before(exchange->elastic, rank->step, says, &exchange->is_heard,
                       &exchange->heard));
    exchange->step_began = clock_seconds();
    served_add_wait(worker->served, exchange->step_began - begin);
    return worker_step(rank, batch, out);
}

static enum status late_result(struct rank *rank, const struct exec_result *result,
                               double seconds)
{
    elastic_add(exchange_of(rank)->elastic, result, seconds);
    return rank_check_loss(rank, result);
}

/* What the exchange before the step told, if there was one. Clocks of a center count exchanges. */
static struct served_heard hear(const struct rank *rank)
{
    const struct worker *worker = rank->own;
    const struct exchange *exchange = worker->exchange;
    struct served_heard heard = { 0 };

    if (exchange->is_heard) {
        const uint64_t apart = (uint64_t)elastic_seen(exchange->elastic).interval;
        served_hear(worker->served, &exchange->heard, &heard);
        heard.low *= apart;
        heard.high *= apart;
    }
    heard.next = rank->step + 1;
    return heard;
}

static enum status after_step(struct rank *rank, const struct batch *batch,
                              struct exec_result *result)
{
    const struct worker *worker = rank->own;
    const struct exchange *exchange = worker->exchange;
    const double lr = schedule_lr(&rank->job->optim.schedule, batch->step);

    if (!result->is_late)
        elastic_add(exchange->elastic, result, 0);
    const double begin = clock_seconds();
    TRY(elastic_after(exchange->elastic, begin - exchange->step_began, lr));
    served_add_wait(worker->served, clock_seconds() - begin);
    const struct served_heard heard = hear(rank);
    worker_hear(rank, &heard, rank_wishes(rank), result);
    const struct elastic_seen seen = elastic_seen(exchange->elastic);
    if (seen.is_new && rank->is_first)
        rank_note_interval(rank, "exchanges", seen.interval, seen.comm_s, seen.distance);
    return STATUS_OK;
}

/* Workers tell rank 0 of their steps since the last exchange. One that is lost does not, and
 * what it trained since then is not counted. */
static enum status count_rest(struct rank *rank)
{
    const struct worker *worker = rank->own;
    struct served_count rest;

    elastic_untold(worker->exchange->elastic, &rest.samples, &rest.weight);
    if (!rank->is_first)
        return transport_send(rank->transport, 0, worker->tag, &rest, sizeof rest);
    rank->counts.samples += rest.samples;
    rank->counts.tokens += rest.weight;
    for (int w = 1; w < rank->job->axes.dp; w++) {
        if (!served_hears_from(worker->served, w))
            continue;
        const enum status status =
            transport_receive(rank->transport, w, worker->tag, &rest, sizeof rest);
        if (status == STATUS_PEER_LOST && transport_lost(rank->transport, w, NULL))
            continue;
        TRY(status);
        rank->counts.samples += rest.samples;
        rank->counts.tokens += rest.weight;
    }
    return STATUS_OK;
}

/* The center is the result. */
static enum status end(struct rank *rank)
{
    TRY(worker_meet(rank));
    TRY(count_rest(rank));
    if (!rank->is_first)
        return STATUS_OK;
    TRY(ps_get(exchange_of(rank)->client, -1, exec_vector(rank->exec, -1)));
    exec_wrote_params(rank->exec);
    return STATUS_OK;
}

/* Metrics, evaluations, checkpoints ------------------------------------------------------- */

static void add_metrics(struct rank *rank, struct metrics *m)
{
    const struct elastic_seen seen = elastic_seen(exchange_of(rank)->elastic);

    worker_add_metrics(rank, m);
    m->sync_interval = (double)seen.interval;
    m->param_variance = seen.distance;
}

static enum status evaluate(struct rank *rank)
{
    struct elastic *elastic = exchange_of(rank)->elastic;

    TRY(elastic_lend_center(elastic));
    TRY(rank_evaluate(rank));
    elastic_give_back(elastic);
    return STATUS_OK;
}

static enum status gather(struct rank *rank, struct tally *epoch)
{
    struct elastic *elastic = exchange_of(rank)->elastic;

    (void)epoch;
    TRY(elastic_lend_center(elastic));
    rank_take_copy(rank);
    elastic_give_back(elastic);
    return STATUS_OK;
}

const struct regime regime_elastic = {
    .is_for = is_for,
    .is_private = true,
    .join = worker_join,
    .describe = worker_describe,
    .create = create,
    .begin = begin,
    .before_step = before_step,
    .step = step,
    .late_result = late_result,
    .after_step = after_step,
    .end = end,
    .leave = leave,
    .destroy = worker_destroy,
    .rate = rank_rate,
    .add_metrics = add_metrics,
    .print_summary = worker_print_summary,
    .gather_times = worker_gather_times,
    .hash = worker_hash,
    .evaluate = evaluate,
    .gather = gather,
};
