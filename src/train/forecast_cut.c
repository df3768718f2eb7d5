/* SPDX-License-Identifier: MIT */
/* forecast_cut.c - where a pipeline is cut by measured times: as names of layers, so that every rank has the same.
 *
 * By default each kernel of a shard is timed by itself, which takes some steps of one shard and no memory worth naming; --cut
 * measured runs whole steps, side by side as stages will. A cut knows memory, too: no stage gets more than a rank has room for. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "train/forecast_measure.h"
#include "train/on_device.h"
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

/* Arrays by layer, and what a rank may have. */
struct layers {
    double *costs, *held, *kept;
    double open[PIPE_STAGES];
    struct pass_memory memory;
};

/* Shards that a stage has under way at most, by its schedule. */
static enum status count_open(const struct job *job, double open[PIPE_STAGES])
{
    const struct pipe_config pipe = { .kind = job->axes.pipeline,
                                      .stages = job->axes.pp,
                                      .chunks = job->axes.chunks,
                                      .shards = job->settings.shards / job->axes.dp };
    struct pipe_action *actions;

    TRY(pipe_check(&pipe));
    const int64_t count = pipe_count(&pipe);
    TRY(mem_alloc((size_t)count, sizeof *actions, &actions));
    for (int s = 0; s < pipe.stages; s++) {
        pipe_schedule(&pipe, s, actions);
        open[s] = (double)pipe_in_flight(actions, count, pipe.chunks, false);
    }
    mem_free(actions);
    return STATUS_OK;
}

static enum status fill_layers(const struct job *job, const struct cost_work *work,
                               struct layers *out)
{
    /* Parameters, gradients, which other copies' sums are beside, and what of the state is its own. */
    const double times = 2 + (job->axes.dp > 1) + (double)work->n_states / job->axes.dp;

    for (int l = 0; l < work->n_layers; l++) {
        const struct cost_layer *layer = &work->layers[l];
        out->costs[l] = layer->forward + layer->backward;
        out->held[l] = times * layer->params;
        out->kept[l] = layer->kept;
    }
    out->memory = (struct pass_memory){ .held = out->held,
                                        .kept = out->kept,
                                        .open = out->open,
                                        .most = machine_memory((int)job->settings.ranks,
                                                               (double)job->settings.memory) };
    return count_open(job, out->open);
}

static enum status cut_by(const struct job *job, const struct cost_work *work,
                          const struct layers *layers, char out[SETTINGS_TEXT])
{
    static const struct pass *const passes[] = { &pass_fuse, &pass_cut, NULL };
    const struct pass_config config = { .batch = job->settings.batch,
                                        .shards = job->settings.shards,
                                        .ranks = 1,
                                        .optim = job->optim,
                                        .norms_apart = !kernel_joins_norms(),
                                        .pipeline = { .stages = job->axes.pp,
                                                      .chunks = job->axes.chunks,
                                                      .costs = layers->costs,
                                                      .memory = &layers->memory } };
    struct graph *graph;

    TRY(model_build(job->model, &job->model_config, &graph));
    enum status status = pass_run(graph, passes, &config, NULL);
    BUG_ON(status == STATUS_OK && graph_node_count(graph) != work->n_layers);
    if (status == STATUS_OK)
        status = name_layers(graph, out);
    graph_destroy(graph);
    return status;
}

static enum status cut_work(const struct job *job, const struct cost_work *work,
                            char out[SETTINGS_TEXT])
{
    const size_t n = (size_t)work->n_layers;
    struct layers layers = { 0 };

    enum status status = mem_alloc(n, sizeof(double), &layers.costs);
    if (status == STATUS_OK)
        status = mem_alloc(n, sizeof(double), &layers.held);
    if (status == STATUS_OK)
        status = mem_alloc(n, sizeof(double), &layers.kept);
    if (status == STATUS_OK)
        status = fill_layers(job, work, &layers);
    if (status == STATUS_OK)
        status = cut_by(job, work, &layers, out);
    mem_free(layers.costs);
    mem_free(layers.held);
    mem_free(layers.kept);
    return status;
}

static enum status measure_and_cut(struct planner *p, char out[SETTINGS_TEXT])
{
    const struct settings *s = &p->job->settings;
    struct planner_work *w;

    TRY(planner_work(p, s->shards, (int)s->threads, false, false, &w));
    return cut_work(p->job, &w->work, out);
}

/* Do ranks of this program's own have one machine, and layers that one rank can time? */
static bool are_ranks_here(const struct job *job)
{
    int rank, size;

    return !launch_world(&rank, &size) && !*job->settings.hosts;
}

enum status forecast_cut(const struct job *job, char out[SETTINGS_TEXT])
{
    static const struct forecast_options options;
    const struct settings *s = &job->settings;
    struct forecast plan = { .ranks = (int)s->ranks, .threads = (int)s->threads };
    struct planner p = { .job = job, .options = &options, .plan = &plan, .lanes = 1 };

    if (on_device(job))
        return FAIL(STATUS_USAGE,
                    "--cut measured: what it measures is the cpu: name layers instead");
    if (!are_ranks_here(job))
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

static enum status time_and_cut(const struct job *job, const struct graph *graph,
                                char out[SETTINGS_TEXT])
{
    struct measured *kernels;
    struct cost_work work;

    TRY(measured_make(job, graph, (struct measure_config){ .threads = 1 }, &kernels));
    enum status status = cost_read(graph, kernels->nodes, job->settings.shards,
                                   optim_states(&job->optim), &work);
    measured_free(kernels, graph);
    TRY(status);
    status = cut_work(job, &work, out);
    cost_release(&work);
    return status;
}

/* Have parameters and gradients room, if every stage had an equal part of them? */
static bool stages_have_room(const struct job *job)
{
    const struct settings *s = &job->settings;
    const double bytes = 2.0 * sizeof(float) * (double)graph_param_count(job->graph);

    return bytes / job->axes.pp < machine_memory((int)s->ranks, (double)s->memory);
}

enum status forecast_balance(const struct job *job, char out[SETTINGS_TEXT])
{
    struct graph *graph;

    *out = '\0';
    if (!are_ranks_here(job) || job->axes.tp > 1 || on_device(job))
        return STATUS_OK;
    if (!stages_have_room(job)) /* layers of that size take minutes, and the run is refused */
        return STATUS_OK;
    TRY(job_make_graph(job, job->settings.shards, false, &graph));
    /* What cannot be timed, for want of memory perhaps, is cut by rule; what cannot be cut is refused there. */
    if (time_and_cut(job, graph, out) != STATUS_OK)
        *out = '\0';
    graph_destroy(graph);
    return STATUS_OK;
}
