/* SPDX-License-Identifier: MIT */
/* bench.c - measuring training steps.
 *
 * Steps run on one made-up batch that is already in place, as the peers' benchmark does it, in
 * windows of about a quarter of a second; medians over windows are told.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "exec/exec.h"
#include "train/bench.h"
#include "train/folder.h"
#include "train/forecast.h"
#include "train/grid.h"
#include "train/job.h"
#include "train/made_up.h"
#include "train/on_device.h"
#include "train/trace_file.h"
#include "train/watch.h"
#include "transport/launch.h"

/* What a rank has while it measures. */
struct measurer {
    struct bench *bench;
    struct transport *transport;
    struct comm *comm;
    struct exec_device device; /* zero: none */
    struct grid *grid;         /* or NULL */
    struct exec *exec;
    struct batch batch;
    struct trace *trace; /* or NULL */
    struct trace_window window;
    int64_t steps_per_window; /* rank 0 decides */
};

static int compare_doubles(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double bench_median(double *times, int count)
{
    qsort(times, (size_t)count, sizeof *times, compare_doubles);
    return times[count / 2];
}

int64_t bench_steps_for(double step_seconds)
{
    return 0.25 / step_seconds < 1 ? 1 : (int64_t)(0.25 / step_seconds);
}

enum status bench_make_batch(const struct job *job, const struct exec *exec, struct batch *out)
{
    const struct settings *s = &job->settings;
    const int64_t first = sampler_shard_begin(s->batch, s->shards, exec_first_shard(exec));
    const int64_t end = sampler_shard_begin(s->batch, s->shards,
                                            exec_first_shard(exec) + exec_shard_count(exec));

    return made_up_batch(job, s->batch, first, end - first, out);
}

static enum status run_window(struct measurer *m, int64_t steps, double *out_seconds)
{
    struct batch *batch = &m->batch;
    struct exec_result result;
    const double begin = clock_seconds();

    for (int64_t i = 0; i < steps; i++) {
        trace_switch(m->trace, batch->step >= m->window.begin && batch->step < m->window.end);
        TRY(exec_step(m->exec, batch, &result));
        batch->step++;
    }
    TRY(exec_settle(m->exec));
    *out_seconds = (clock_seconds() - begin) / (double)steps;
    return STATUS_OK;
}

double bench_optimal_bytes(const struct job *job, int nodes)
{
    const double ranks = (double)job->settings.ranks, parts = nodes > 1 ? nodes : ranks;
    const double bytes = 4 * (double)graph_param_count(job->graph);

    return ranks > 1 ? 2 * (parts - 1) * bytes / ranks : NAN;
}

/* Rank 0 tells what the ranks did in `seconds`. */
static void tell_ranks(struct bench *bench, int nodes, struct watch *watch, double seconds,
                       int64_t steps)
{
    const int ranks = (int)bench->job->settings.ranks;
    const struct watch_interval all = watch_next(watch, seconds);
    const struct watch_rank mine = watch_rank(watch, 0);

    bench->comm_share = watch_share(mine.comm, seconds);
    bench->wait_share = watch_share(mine.wait, seconds);
    bench->hidden_share = ranks > 1 ? all.hidden_share : NAN;
    bench->bytes = all.bytes / (double)steps / ranks;
    bench->bytes_optimum = bench_optimal_bytes(bench->job, nodes);
    for (int r = 0; r < ranks; r++) {
        const struct watch_rank rank = watch_rank(watch, r);
        bench->rank_wait[r] = watch_share(rank.wait, seconds);
        bench->rank_made_wait[r] =
            ranks > 1 ? watch_share(rank.made_wait, seconds * (ranks - 1)) : 0;
    }
}

static enum status measure_windows(struct measurer *m, struct watch *watch)
{
    struct bench *bench = m->bench;
    const int rank = transport_rank(m->transport);
    double seconds;

    exec_reset_times(m->exec);
    const uint64_t first = m->batch.step;
    const double begin = clock_seconds();
    for (int i = 0; i < bench->windows; i++) {
        TRY(run_window(m, m->steps_per_window, &seconds));
        if (rank == 0)
            bench->times[i] = seconds;
    }
    TRY(grid_collect_times(m->grid, watch, m->exec, 0));
    if (rank == 0)
        tell_ranks(bench, transport_nodes(m->transport), watch, clock_seconds() - begin,
                   (int64_t)(m->batch.step - first));
    return STATUS_OK;
}

/* On a device: what the executor has there. */
static int64_t device_bytes(const struct measurer *m)
{
    const struct exec_memory memory = exec_memory(m->exec);

    return (int64_t)(memory.params + memory.gradients + memory.state + memory.activations +
                     memory.other);
}

/* Of the rank that has taken most. */
static enum status measure_memory(struct measurer *m)
{
    struct rusage usage;
    int64_t bytes = getrusage(RUSAGE_SELF, &usage) == 0 ? (int64_t)usage.ru_maxrss * 1024 : 0;

    if (on_device(m->bench->job))
        bytes = device_bytes(m);

    TRY(comm_all_reduce(m->comm, &bytes, 1, DTYPE_I64, COMM_OP_MAX));
    if (transport_rank(m->transport) == 0)
        m->bench->peak_bytes = bytes;
    return exec_settle(m->exec);
}

static enum status measure(struct measurer *m)
{
    struct watch *watch;
    double seconds;

    TRY(run_window(m, 2, &seconds));
    TRY(run_window(m, 3, &seconds));
    m->steps_per_window = bench_steps_for(seconds);
    TRY(comm_broadcast(m->comm, &m->steps_per_window, 1, DTYPE_I64, 0));
    TRY(run_window(m, m->steps_per_window, &seconds)); /* warm */
    TRY(watch_create(m->transport, exec_lanes(m->exec), &watch));
    const enum status status = measure_windows(m, watch);
    watch_destroy(watch);
    TRY(status);
    return measure_memory(m);
}

enum status bench_write_trace(const struct job *job, struct trace *trace,
                              struct transport *transport)
{
    const struct settings *s = &job->settings;
    char *path;

    if (!trace)
        return STATUS_OK;
    if (*s->out && transport_rank(transport) == 0)
        TRY(file_make_folder(s->out));
    TRY(file_join(*s->out ? s->out : ".", FOLDER_TRACE, &path));
    enum status status = trace_file_write(trace, transport, path);
    mem_free(path);
    return status;
}

static enum status start_measurer(struct measurer *m)
{
    struct job *job = m->bench->job;
    const struct settings *s = &job->settings;
    struct exec_config config = {
        .train = job->graph,
        .comm = m->comm,
        .threads = (int)s->threads,
        .shards = s->shards,
        .batch = s->batch,
        .seed = s->seed,
        .choices = job->choices,
        .optim = job->optim,
        .compress = job->compress,
        .compress_after = (uint64_t)s->compress_after,
        .zero = job->axes.zero,
        .stall_timeout = s->stall_timeout,
    };

    TRY(job_check_nodes(job, m->transport));
    TRY(grid_create(job, m->transport, &m->grid));
    if (!m->grid)
        TRY(parallax_measure(job, m->comm));
    TRY(balance_measure(job, m->comm));
    config.train = job->graph;
    TRY(rails_choose(s->rails, job->graph, m->comm, &job->rails));
    config.leaders = job->rails.count == 1;
    config.rows = job->balance.is_used ? job->balance.rows : NULL;
    if (s->trace) {
        TRY(trace_window_read(s->trace_steps, 0, UINT64_MAX, &m->window));
        TRY(trace_create(&m->trace));
    }
    config.trace = m->trace;
    TRY(on_device_open(job, m->transport, true, &m->device));
    config.device = on_device_of(&m->device);
    grid_configure(m->grid, &config);
    TRY(exec_create(&config, &m->exec));
    TRY(exec_init_params(m->exec));
    return bench_make_batch(job, m->exec, &m->batch);
}

static enum status bench_body(struct transport *transport, void *arg)
{
    struct measurer m = { .bench = arg, .transport = transport };

    if (axes_are_private(&m.bench->job->axes))
        return bench_worker_body(transport, m.bench);
    enum status status = comm_create(transport, NULL, &m.comm);
    if (status == STATUS_OK)
        status = start_measurer(&m);
    if (status == STATUS_OK)
        status = measure(&m);
    if (status == STATUS_OK)
        status = bench_write_trace(m.bench->job, m.trace, transport);
    made_up_release(&m.batch);
    exec_destroy(m.exec);
    on_device_close(&m.device);
    grid_destroy(m.grid);
    trace_destroy(m.trace);
    comm_destroy(m.comm);
    return status;
}

enum status train_bench(struct job *job, int windows, struct bench_result *out)
{
    const struct launch_config config = { .size = (int)job->settings.ranks + job->axes.servers,
                                          .flat = job->settings.flat,
                                          .message_bytes = job_message_bytes(job),
                                          .stuck_ms = (int)(1000 * job->settings.lost_after) };
    TRY(forecast_check_memory(job));
    struct bench *bench =
        mmap(NULL, sizeof *bench, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (bench == MAP_FAILED)
        return FAIL(STATUS_NO_MEMORY, "shared memory is refused");
    bench->job = job;
    bench->windows = windows < BENCH_WINDOWS ? windows : BENCH_WINDOWS;
    enum status status = launch_ranks(&config, bench_body, bench);
    if (status == STATUS_OK) {
        const int n = bench->windows;
        const double median = bench_median(bench->times, n);
        const double rate = bench->samples_per_s;
        *out = (struct bench_result){
            .samples_per_s = rate > 0 ? rate : (double)job->settings.batch / median,
            .step_ms = 1e3 * median,
            .step_ms_p10 = 1e3 * bench->times[n / 10],
            .step_ms_p90 = 1e3 * bench->times[n - 1 - n / 10],
            .flops = graph_flops(job->graph, job->settings.batch / job->settings.shards) *
                     (double)job->settings.shards * job->axes.tp,
            .comm_share = bench->comm_share,
            .wait_share = bench->wait_share,
            .hidden_share = bench->hidden_share,
            .bytes_per_step = bench->bytes,
            .bytes_optimum = bench->bytes_optimum,
            .peak_bytes = bench->peak_bytes,
        };
        memcpy(out->rank_wait, bench->rank_wait, sizeof out->rank_wait);
        memcpy(out->rank_made_wait, bench->rank_made_wait, sizeof out->rank_made_wait);
    }
    munmap(bench, sizeof *bench);
    return status;
}
