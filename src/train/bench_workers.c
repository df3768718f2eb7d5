/* SPDX-License-Identifier: MIT */
/* bench_workers.c - measures steps of workers that have parameters of their own: with parameter
 * servers, local SGD, elastic averaging, gossip.
 *
 * Steps run through the regime's table (regime.h), as the loop of a run calls it, but on one
 * made-up batch. Rank 0 says how many steps a window has. Workers that do not wait for each other
 * differ in speed, so each tells rank 0 its own rate; the job's is their sum.
 */
#include <math.h>

#include "base/clock.h"
#include "base/mem.h"
#include "train/bench.h"
#include "train/made_up.h"
#include "train/memory.h"
#include "train/on_device.h"
#include "train/regime.h"
#include "train/served.h"

struct worker_bench {
    struct bench *bench;
    struct rank rank;
    struct batch batch;
    uint32_t tag; /* of what rank 0 and workers tell each other */
    double *times;
};

/* A worker to rank 0. */
struct worker_report {
    double samples_per_s, comm_share, wait_share;
    double bytes; /* a step */
    int64_t peak_bytes;
};

static int workers_of(const struct worker_bench *w)
{
    return (int)w->rank.job->settings.ranks;
}

/* Steps ---------------------------------------------------------------------------------- */

/* As rank_one_step; the loss of a made-up batch may be anything. */
static enum status one_step(struct rank *rank, const struct batch *batch)
{
    const struct regime *regime = rank->regime;
    struct exec_result result;

    if (regime->before_step)
        TRY(regime->before_step(rank));
    const double begin = clock_seconds();
    rank_switch_trace(rank);
    TRY(regime->step(rank, batch, &result));
    rank->heard = result.heard;
    rank->next = rank->known = rank->step + 1;
    if (regime->after_step)
        TRY(regime->after_step(rank, batch, &result));
    return regime->average ? regime->average(rank, clock_seconds() - begin) : STATUS_OK;
}

static enum status run_window(struct worker_bench *w, int64_t steps, double *out_seconds)
{
    struct rank *rank = &w->rank;
    const double begin = clock_seconds();

    for (int64_t i = 0; i < steps; i++, w->batch.step++) {
        rank->step = w->batch.step;
        TRY(one_step(rank, &w->batch));
    }
    TRY(rank_take_late(rank, true));
    TRY(exec_settle(rank->exec));
    *out_seconds = (clock_seconds() - begin) / (double)steps;
    return STATUS_OK;
}

/* Rank 0's number goes to all workers. */
static enum status share_number(const struct worker_bench *w, int64_t *number)
{
    struct transport *transport = w->rank.transport;

    if (!w->rank.is_first)
        return transport_receive(transport, 0, w->tag, number, sizeof *number);
    for (int r = 1; r < workers_of(w); r++)
        TRY(transport_send(transport, r, w->tag, number, sizeof *number));
    return STATUS_OK;
}

/* Results ---------------------------------------------------------------------------------- */

/* Shares of the time of this worker since `then`. */
static struct worker_report report_of(struct worker_bench *w, const struct exec_times *then,
                                      double seconds, int64_t steps)
{
    struct rank *rank = &w->rank;
    const struct exec_times now = rank_times(rank);
    const double span = seconds * exec_lanes(rank->exec);
    const double samples = (double)w->batch.rows;
    struct metrics m = { .bytes_sent = now.bytes - then->bytes };

    m.wait_share = watch_share(now.wait - then->wait, span);
    rank->line.tally.seconds = seconds;
    if (!rank->watch) /* what a client of servers did beside the executor */
        rank->regime->add_metrics(rank, &m);
    return (struct worker_report){
        .samples_per_s = samples / bench_median(w->times, w->bench->windows),
        .comm_share = watch_share(now.comm - then->comm, span),
        .wait_share = m.wait_share,
        .bytes = m.bytes_sent / (double)steps,
        .peak_bytes = memory_peak(),
    };
}

static void add_report(struct bench *bench, int worker, const struct worker_report *report)
{
    const double workers = (double)bench->job->settings.ranks;

    /* The ranks of a copy of the model train the same samples. */
    bench->samples_per_s += report->samples_per_s * bench->job->axes.dp / workers;
    bench->bytes += report->bytes / workers;
    bench->peak_bytes =
        report->peak_bytes > bench->peak_bytes ? report->peak_bytes : bench->peak_bytes;
    if (worker < BENCH_RANKS)
        bench->rank_wait[worker] = report->wait_share;
    if (worker > 0)
        return;
    bench->comm_share = report->comm_share;
    bench->wait_share = report->wait_share;
}

static enum status gather_reports(struct worker_bench *w, const struct worker_report *own)
{
    struct transport *transport = w->rank.transport;
    struct bench *bench = w->bench;
    struct worker_report report;

    if (!w->rank.is_first)
        return transport_send(transport, 0, w->tag, own, sizeof *own);
    bench->hidden_share = NAN;
    bench->bytes_optimum = bench_optimal_bytes(bench->job, transport_nodes(transport));
    add_report(bench, 0, own);
    for (int r = 1; r < workers_of(w); r++) {
        TRY(transport_receive(transport, r, w->tag, &report, sizeof report));
        add_report(bench, r, &report);
    }
    return STATUS_OK;
}

static enum status measure(struct worker_bench *w)
{
    struct rank *rank = &w->rank;
    struct bench *bench = w->bench;
    int64_t steps = 0;
    double seconds;

    TRY(run_window(w, 2, &seconds));
    TRY(run_window(w, 3, &seconds));
    if (rank->is_first)
        steps = bench_steps_for(seconds);
    TRY(share_number(w, &steps));
    TRY(run_window(w, steps, &seconds)); /* warm */
    const struct exec_times then = rank_times(rank);
    const double begin = clock_seconds();
    for (int i = 0; i < bench->windows; i++) {
        TRY(run_window(w, steps, &w->times[i]));
        if (rank->is_first)
            bench->times[i] = w->times[i];
    }
    const struct worker_report own =
        report_of(w, &then, clock_seconds() - begin, steps * bench->windows);
    return gather_reports(w, &own);
}

/* A rank's life ------------------------------------------------------------------------------ */

static enum status start_trace(struct rank *rank)
{
    const struct settings *s = &rank->job->settings;

    if (!s->trace)
        return STATUS_OK;
    TRY(trace_window_read(s->trace_steps, 0, UINT64_MAX, &rank->tracing.window));
    TRY(trace_create(&rank->tracing.trace));
    return trace_add_row(rank->tracing.trace, "loop", 0, &rank->tracing.row);
}

static enum status run_worker(struct worker_bench *w)
{
    struct rank *rank = &w->rank;
    const struct regime *regime = rank->regime;

    TRY(on_device_open(rank->job, rank->transport, false, &rank->device));
    TRY(regime->create(rank));
    TRY(exec_init_params(rank->exec));
    if (regime->begin)
        TRY(regime->begin(rank));
    TRY(bench_make_batch(rank->job, rank->exec, &w->batch));
    TRY(mem_alloc((size_t)w->bench->windows, sizeof *w->times, &w->times));
    TRY(measure(w));
    if (regime->end)
        TRY(regime->end(rank));
    if (regime->leave) /* servers write their traces when all workers have left */
        regime->leave(rank);
    return STATUS_OK;
}

static enum status run_server(struct rank *rank)
{
    const struct rank_tracing *tracing = &rank->tracing;
    const struct ps_trace trace = { tracing->trace, tracing->window.begin,
                                    tracing->window.end };

    return served_serve(rank->job, rank->transport, &trace, 0);
}

static enum status run_rank(struct worker_bench *w)
{
    struct rank *rank = &w->rank;

    w->tag = transport_new_tags(rank->transport, 1);
    if (rank->regime->join)
        TRY(rank->regime->join(rank));
    TRY(job_check_nodes(rank->job, rank->transport));
    TRY(start_trace(rank));
    TRY(rank->role.is_server ? run_server(rank) : run_worker(w));
    return bench_write_trace(rank->job, rank->tracing.trace, rank->transport);
}

enum status bench_worker_body(struct transport *transport, struct bench *bench)
{
    const struct train_hooks hooks = { 0 };
    struct run run = { .job = bench->job, .hooks = &hooks };
    struct worker_bench w = {
        .bench = bench,
        .rank = { .run = &run,
                  .job = bench->job,
                  .transport = transport,
                  .regime = regime_at(bench->job, 0),
                  .is_first = transport_rank(transport) == 0,
                  .role = { .leads = true, .evaluates = true },
                  .save = { .is_allowed = true } },
    };
    struct rank *rank = &w.rank;

    const enum status status = run_rank(&w);
    made_up_release(&w.batch);
    mem_free(w.times);
    if (rank->regime->leave)
        rank->regime->leave(rank);
    exec_destroy(rank->exec);
    on_device_close(&rank->device);
    if (rank->regime->destroy)
        rank->regime->destroy(rank);
    grid_destroy(rank->grid);
    watch_destroy(rank->watch);
    trace_destroy(rank->tracing.trace);
    comm_destroy(rank->comm);
    return status;
}
