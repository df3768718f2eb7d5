/* SPDX-License-Identifier: MIT */
/* forecast_cut.c - where a pipeline is cut by measured times: as names of layers, so that every rank, config.json and whoever
 * goes on with the run have the same. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "train/planner.h"
#include "transport/launch.h"

/* The names of the layers that pieces begin with, but the first. */
static enum status name_layers(const struct graph *graph, char out[SETTINGS_TEXT])
{
    size_t at = 0;

    *out = '\0';
    for (int n = 1; n < graph_node_count(graph); n++) {
        const struct node *node = graph_node(graph, n);
        if (node->stage == graph_node(graph, n - 1)->stage)
            continue;
        at += (size_t)snprintf(out + at, SETTINGS_TEXT - at, "%s%s", at ? "," : "", node->name);
        if (at >= SETTINGS_TEXT)
            return FAIL(STATUS_UNSUPPORTED, "--cut measured: the layers' names are too long");
    }
    return STATUS_OK;
}

static enum status cut_by(const struct job *job, const struct cost_work *work,
                          const double *costs, char out[SETTINGS_TEXT])
{
    static const struct pass *const passes[] = { &pass_fuse, &pass_cut, NULL };
    const struct pass_config config = {
        .batch = job->settings.batch,
        .shards = job->settings.shards,
        .ranks = 1,
        .optim = job->optim,
        .pipeline = { .stages = job->axes.pp, .chunks = job->axes.chunks, .costs = costs }
    };
    struct graph *graph;

    TRY(model_build(job->model, &job->model_config, &graph));
    enum status status = pass_run(graph, passes, &config, NULL);
    BUG_ON(status == STATUS_OK && graph_node_count(graph) != work->n_layers);
    if (status == STATUS_OK)
        status = name_layers(graph, out);
    graph_destroy(graph);
    return status;
}

static enum status measure_and_cut(struct planner *p, char out[SETTINGS_TEXT])
{
    const struct settings *s = &p->job->settings;
    struct planner_work *w;
    double *costs;

    TRY(planner_work(p, s->shards, (int)s->threads, false, &w));
    TRY(mem_alloc((size_t)w->work.n_layers, sizeof *costs, &costs));
    for (int l = 0; l < w->work.n_layers; l++)
        costs[l] = w->work.layers[l].forward + w->work.layers[l].backward;
    enum status status = cut_by(p->job, &w->work, costs, out);
    mem_free(costs);
    return status;
}

enum status forecast_cut(const struct job *job, char out[SETTINGS_TEXT])
{
    static const struct forecast_options options;
    const struct settings *s = &job->settings;
    struct forecast plan = { .ranks = (int)s->ranks, .threads = (int)s->threads };
    struct planner p = { .job = job, .options = &options, .plan = &plan, .lanes = 1 };
    int rank, size;

    if (launch_world(&rank, &size) || *s->hosts)
        return FAIL(STATUS_USAGE,
                    "--cut measured: ranks of several machines would measure different times: "
                    "give layers");
    if (job->axes.tp > 1)
        return FAIL(STATUS_USAGE,
                    "--cut measured: layers that ranks share cannot be timed by one: give "
                    "layers");
    enum status status = measure_and_cut(&p, out);
    planner_release(&p);
    return status;
}
