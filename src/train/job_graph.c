/* SPDX-License-Identifier: MIT */
/* job_graph.c - a job's graphs: of a step after the strategy's passes, at a place of a grid or on
 * one rank, and of evaluations. */
#include <string.h>

#include "graph/op.h"
#include "model/model.h"
#include "train/job.h"
#include "train/on_device.h"

static enum status check_has_norm(const struct job *job)
{
    for (int n = 0; n < graph_node_count(job->graph); n++) {
        if (graph_node(job->graph, n)->op == &op_batch_norm)
            return STATUS_OK;
    }
    return FAIL(STATUS_USAGE, "--sync-batch-norm: %s has no batch norm", job->settings.model);
}

static struct pass_pipeline pipeline_of(const struct job *job)
{
    const bool is_own = !*job->settings.cut && *job->cut;
    const char *cut = is_own ? job->cut : job->settings.cut;

    return (struct pass_pipeline){ .stages = job->axes.pp,
                                   .chunks = job->axes.chunks,
                                   .own = job->place.pp,
                                   .cut = *cut ? cut : NULL,
                                   .names_nodes = is_own };
}

static struct pass_tensor tensor_of(const struct job *job)
{
    return (struct pass_tensor){ .count = job->axes.tp,
                                 .index = job->place.tp,
                                 .sequence = job->settings.sequence_parallel };
}

bool job_has_factors(const struct job *job)
{
    /* Servers take gradients alone, and layers made from factors would be whole on every machine;
     * in a grid all are messages. They save what ranks read of each other, which is nothing on a
     * device. */
    return job->settings.factors && job->axes.meet != MEET_PS && job->axes.zero == 0 &&
           !axes_are_a_grid(&job->axes) && !job->settings.anchored && !on_device(job);
}

size_t job_message_bytes(const struct job *job)
{
    size_t most = 0;

    for (int n = 0; n < graph_node_count(job->graph); n++) {
        const struct node *node = graph_node(job->graph, n);
        if (node->op != &op_send || node->attrs.once)
            continue;
        const size_t bytes =
            (size_t)shape_count(&node->in[0]->shape) * dtype_size(node->in[0]->dtype);
        most = bytes > most ? bytes : most;
    }
    return most;
}

const struct pass *const *job_passes(const struct job *job)
{
    return strategy_passes(job->strategy, &job->axes, job->settings.flat);
}

/* Runs passes on a graph of a step, up to one if it is named. */
static enum status run_passes(struct job *job, struct graph *graph,
                              const struct pass *const *passes, const char *after)
{
    const struct settings *s = &job->settings;
    const struct pass_config config = {
        .batch = s->batch,
        .shards = s->shards,
        .ranks = job->axes.dp,
        .pipeline = pipeline_of(job),
        .tensor = tensor_of(job),
        .bucket_bytes = (int64_t)(s->bucket_mib * 1048576),
        .factors = job_has_factors(job),
        .dense = s->dense || s->anchored,
        .apart = on_device(job),
        .epilogues = on_device(job),
        .inward = on_device_rounds(job),
        .norms_apart = !kernel_joins_norms(),
        .anchored = s->anchored,
        .mu = (float)s->mu,
        .recompute = s->recompute,
        .sync_norm = s->sync_batch_norm,
        .zero = job->axes.zero,
        .optim = job->optim,
        .neighbors = job->axes.neighbors,
        .bound = job->axes.bound,
        .network = job->axes.meet == MEET_PARALLAX ? job->parallax.network
                                                   : (struct pass_network){ .nodes = 1 },
        .tables = job->parallax.tables,
        .n_tables = job->parallax.n_tables,
        .way = job->parallax.way,
        .choices = &job->parallax.chosen,
    };

    job->parallax.chosen.count = 0;
    return pass_run(graph, passes, &config, after);
}

/* Forward alone; of a pipeline, with the layers of each stage where they are in the graph of the
 * step. */
static enum status make_eval_graph(struct job *job)
{
    struct pass_config whole = { .batch = 1,
                                 .shards = 1,
                                 .ranks = 1,
                                 .apart = on_device(job),
                                 .epilogues = on_device(job),
                                 .norms_apart = !kernel_joins_norms() };
    struct model_config config = job->model_config;

    whole.tensor = tensor_of(job);
    whole.pipeline = pipeline_of(job);
    whole.pipeline.like = job->graph;
    config.batch = 1;
    config.training = false;
    TRY(model_build(job->model, &config, &job->eval_graph));
    return pass_run(job->eval_graph, pass_evaluation, &whole, NULL);
}

static bool is_saved(const struct value *value)
{
    return value->kind == VALUE_PARAM || value->kind == VALUE_AVERAGE;
}

/* A function of a user's may make another model when it is called again; parameters of that would
 * have no values. */
static enum status check_same_parameters(const struct job *job)
{
    struct model_config config = job->model_config;
    enum status status = STATUS_OK;
    struct graph *other;

    config.batch = 1;
    config.training = false;
    TRY(model_build(job->model, &config, &other));
    for (int i = 0; i < graph_value_count(other) && status == STATUS_OK; i++) {
        const struct value *value = graph_value(other, i);
        if (!is_saved(value))
            continue;
        const struct value *trained = graph_find_value(job->graph, value->name);
        if (!trained || !shape_equal(&trained->shape, &value->shape))
            status =
                FAIL(STATUS_USAGE,
                     "model %s: parameter %s is not the same in training and in evaluation: "
                     "a model's function adds the same layers whenever it is called",
                     job->model->name, value->name);
    }
    graph_destroy(other);
    return status;
}

enum status job_make_graphs(struct job *job, const char *after)
{
    if (job->settings.sync_batch_norm)
        TRY(check_has_norm(job));
    if (after && strcmp(after, "model") == 0)
        return STATUS_OK;
    TRY(check_same_parameters(job));
    if (job->settings.local_after &&
        !after) { /* before that step the job is as multiworker has it */
        TRY(model_build(job->model, &job->model_config, &job->sync_graph));
        TRY(run_passes(job, job->sync_graph, strategy_find("multiworker")->passes, NULL));
    }
    TRY(run_passes(job, job->graph, job_passes(job), after));
    return make_eval_graph(job);
}

/* After all passes, or up to one. */
static enum status remake(struct job *job, const char *after)
{
    graph_destroy(job->graph);
    job->graph = NULL;
    TRY(model_build(job->model, &job->model_config, &job->graph));
    return run_passes(job, job->graph, job_passes(job), after);
}

enum status job_remake_graph(struct job *job)
{
    return remake(job, NULL);
}

enum status job_take_place(struct job *job, struct axes_place place)
{
    job->place = place;
    graph_destroy(job->eval_graph);
    job->eval_graph = NULL;
    TRY(remake(job, NULL));
    return make_eval_graph(job);
}

enum status job_be_rank(struct job *job, int64_t rank, const char *after)
{
    if (rank < 0 || rank >= job->settings.ranks)
        return FAIL(STATUS_USAGE, "--rank %lld: there are ranks 0 to %lld", (long long)rank,
                    (long long)job->settings.ranks - 1);
    if (!axes_are_a_grid(&job->axes) || (after && strcmp(after, "model") == 0))
        return STATUS_OK; /* all have the same */
    job->place = axes_place_of(&job->axes, (int)rank);
    return remake(job, after);
}

enum status job_graph_at(const struct job *job, struct axes_place place, struct graph **out)
{
    struct job copy = *job; /* passes note what they chose */
    struct graph *graph;

    copy.place = place;
    TRY(model_build(job->model, &job->model_config, &graph));
    const enum status status = run_passes(&copy, graph, job_passes(job), NULL);
    if (status != STATUS_OK) {
        graph_destroy(graph);
        return status;
    }
    *out = graph;
    return STATUS_OK;
}

enum status job_make_graph(const struct job *job, int64_t shards, bool factors,
                           struct graph **out)
{
    struct job copy = *job; /* passes note what they chose */
    struct graph *graph;

    copy.settings.shards = shards;
    copy.settings.factors = factors;
    copy.axes.meet = MEET_NONE;
    copy.axes.dp = copy.axes.tp = copy.axes.pp = copy.axes.chunks = 1;
    copy.axes.zero = 0;
    copy.place = (struct axes_place){ 0 };
    TRY(model_build(job->model, &job->model_config, &graph));
    enum status status = run_passes(&copy, graph, strategy_find("single")->passes, NULL);
    if (status != STATUS_OK) {
        graph_destroy(graph);
        return status;
    }
    *out = graph;
    return STATUS_OK;
}

enum status job_make_step_graph(const struct job *job, const struct strategy *strategy,
                                const struct axes *axes, struct axes_place place,
                                const struct pass_network *network, int64_t rows,
                                int64_t shards, struct graph **out)
{
    struct job copy = *job; /* passes note what they chose */
    struct graph *graph;

    copy.strategy = strategy;
    copy.axes = *axes;
    copy.settings.batch = copy.model_config.batch = rows * shards;
    copy.settings.shards = shards;
    copy.parallax.network = *network;
    copy.place = place;
    TRY(model_build(job->model, &copy.model_config, &graph));
    const struct pass *const *passes = strategy_passes(strategy, axes, network->nodes > 1);
    enum status status = run_passes(&copy, graph, passes, NULL);
    if (status != STATUS_OK) {
        graph_destroy(graph);
        return status;
    }
    *out = graph;
    return STATUS_OK;
}
