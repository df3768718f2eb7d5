/* SPDX-License-Identifier: MIT */
/* job_lower.c - the step program of a rank, without the other ranks. */
#include <string.h>

#include "base/mem.h"
#include "sched/cost.h"
#include "sched/work.h"
#include "train/grid.h"
#include "train/job.h"
#include "train/on_device.h"
#include "train/regime.h"
#include "train/served.h"

struct exec_config job_exec_config(const struct job *job)
{
    const struct settings *s = &job->settings;

    return (struct exec_config){
        .train = job->graph,
        .eval = job->eval_graph,
        .threads = (int)s->threads,
        .shards = s->shards,
        .batch = s->batch,
        .rows = job->balance.is_used ? job->balance.rows : NULL,
        .seed = s->seed,
        .choices = job->choices,
        .optim = job->optim,
        .compress = job->compress,
        .compress_after = (uint64_t)s->compress_after,
        .zero = job->axes.zero,
        .leaders = job->rails.count == 1,
        .stall_timeout = s->stall_timeout,
    };
}

/* Ends that know who is where. Nothing is sent through them. */
struct ends {
    int ranks;
    struct transport **of_ranks; /* of the job */
    struct transport *alone;     /* of a rank with an executor of its own */
    struct grid *grid;
};

static void destroy_ends(struct ends *ends)
{
    grid_destroy(ends->grid);
    if (ends->of_ranks && ends->of_ranks[0])
        transport_inproc_destroy(ends->of_ranks, ends->ranks);
    if (ends->alone)
        transport_inproc_destroy(&ends->alone, 1);
    mem_free(ends->of_ranks);
}

static enum status make_ends(struct job *job, int rank, struct ends *ends)
{
    const int ranks = ends->ranks, nodes = job->settings.flat ? ranks : 1;

    TRY(mem_alloc((size_t)ranks, sizeof(struct transport *), &ends->of_ranks));
    TRY(transport_inproc_create_nodes(ranks, nodes, ends->of_ranks));
    TRY(transport_inproc_create(1, &ends->alone));
    job->parallax.network.nodes = nodes;
    return grid_pretend(job, ends->of_ranks[rank], &ends->grid);
}

static enum status lower(struct job *job, int rank, struct ends *ends, struct program **out)
{
    const struct regime *regime = regime_at(job, 0);

    TRY(make_ends(job, rank, ends));
    if (!ends->grid)
        TRY(job_remake_graph(job));
    struct exec_config config = job_exec_config(job);
    if (regime == &regime_step && job->sync_graph)
        config.train = job->sync_graph;
    grid_configure(ends->grid, &config);
    config.comm = NULL;
    if (!regime->describe)
        return exec_lower(&config, ends->grid ? grid_same(ends->grid) : ends->of_ranks[rank],
                          out);
    regime->describe(job, rank, &config);
    return exec_lower(&config, ends->alone, out);
}

/* Ranks of the job: workers, spare ones, servers. */
static int64_t all_ranks(const struct job *job)
{
    return job->settings.ranks + job->settings.spares + job->axes.servers;
}

static enum status lower_server(struct job *job, int server, struct program **out)
{
    const int ranks = (int)all_ranks(job), nodes = job->settings.flat ? ranks : 1;
    struct transport **ends;

    TRY(mem_alloc((size_t)ranks, sizeof(struct transport *), &ends));
    enum status status = transport_inproc_create_nodes(ranks, nodes, ends);
    if (status == STATUS_OK)
        status = served_lower(job, server, ends[0], out);
    if (ends[0])
        transport_inproc_destroy(ends, ranks);
    mem_free(ends);
    return status;
}

enum status job_lower(struct job *job, int64_t rank, struct program **out)
{
    struct ends ends = { .ranks = (int)job->settings.ranks };
    const int64_t first_server = all_ranks(job) - job->axes.servers;

    if (rank < 0 || rank >= all_ranks(job))
        return FAIL(STATUS_USAGE, "--rank %lld: there are ranks 0 to %lld", (long long)rank,
                    (long long)all_ranks(job) - 1);
    if (rank >= first_server)
        return lower_server(job, (int)(rank - first_server), out);
    if (on_device(job))
        return FAIL(STATUS_USAGE,
                    "--after lower: the steps of a device are not lowered yet: leave --device "
                    "%s out",
                    job->settings.device);
    const enum status status = lower(job, (int)rank, &ends, out);
    destroy_ends(&ends);
    return status;
}

enum status job_compressed_share(const struct job *job, double *out)
{
    enum { COUNT = 1 << 16 };
    struct codec_state *state;
    double bytes = 0;

    *out = 1;
    if (!job->compress.codec)
        return STATUS_OK;
    TRY(codec_create(&job->compress, NULL, COUNT, &state));
    for (int round = 0; round < codec_rounds(state); round++)
        bytes += (double)codec_max_bytes(state, round);
    codec_destroy(state);
    *out = bytes / (COUNT * sizeof(float));
    return STATUS_OK;
}

enum status job_task_work(const struct job *job, const struct program *program,
                          struct task_work *out)
{
    const bool begins_in_step = regime_at(job, 0) == &regime_step && job->sync_graph;
    const struct graph *graph = begins_in_step ? job->sync_graph : job->graph;
    const struct settings *s = &job->settings;
    const int64_t parts = axes_are_private(&job->axes) && !begins_in_step ? job->axes.dp : 1;
    struct work_config config = { .shards = s->shards / parts,
                                  .window = cost_window,
                                  .tensor = job->axes.tp };

    TRY(job_compressed_share(job, &config.compressed));
    return program_work(program, graph, &config, out);
}
