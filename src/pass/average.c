/* SPDX-License-Identifier: MIT */
/* average.c - workers that train alone: what they do to their parameters between steps.
 *
 * Before: a training step for one device, which every worker runs by itself. For every bucket
 *
 *   update   becomes   update -> worker_mean   (pass_average, pass_gossip)
 *                 or   update -> center_pull   (pass_elastic)
 *
 * The new nodes run between steps, every so many of them; in between they hand their input on. The
 * trainer decides when (train/local.c). Offsets of worker_mean name the neighbors that a worker
 * averages with; without offsets it averages with all.
 */
#include <stdio.h>

#include "graph/op.h"
#include "pass/pass.h"

static enum status add_meetings(struct graph *graph, const struct pass_config *config,
                                const struct op *op, const struct attrs *like)
{
    const int n_before = graph_node_count(graph);
    struct node **order = graph_alloc(graph, 2 * (size_t)n_before + 1, sizeof(struct node *));
    int count = 0;

    TRY(graph_status(graph));
    for (int n = 0; n < n_before; n++) {
        struct node *node = graph_node(graph, n);

        order[count++] = node;
        if (node->op != config->optim.optimizer->op && node->op != &op_average_update)
            continue;
        struct attrs attrs = *like;
        char name[96];
        attrs.bucket = node->attrs.bucket;
        snprintf(name, sizeof name, "%s.met", node->out[0]->name);
        graph_set_phase(graph, PHASE_UPDATE);
        order[count++] = graph_add(graph, op, name, &node->out[0], 1, &attrs);
        TRY(graph_status(graph));
    }
    return graph_set_order(graph, order, count);
}

static enum status run_average(struct graph *graph, const struct pass_config *config)
{
    return add_meetings(graph, config, &op_worker_mean, &(struct attrs){ 0 });
}

const struct pass pass_average = {
    .name = "average",
    .summary = "let workers take the mean of all now and then",
    .run = run_average,
};

const char *const pass_neighbors_names[NEIGHBORS_KINDS] = {
    [NEIGHBORS_RING] = "ring",
    [NEIGHBORS_EXPONENTIAL] = "exponential",
};

int pass_neighbors_of(enum pass_neighbors kind, int workers, int out[ATTR_OFFSETS])
{
    int count = 0;

    if (kind == NEIGHBORS_EXPONENTIAL) {
        for (int offset = 1; offset < workers; offset *= 2) {
            BUG_ON(count == ATTR_OFFSETS); /* 2^16 workers */
            out[count++] = offset;
        }
        return count;
    }
    if (workers > 1)
        out[count++] = 1;
    if (workers > 2)
        out[count++] = workers - 1;
    return count;
}

static enum status run_gossip(struct graph *graph, const struct pass_config *config)
{
    struct attrs attrs = { 0 };

    attrs.n_offsets = pass_neighbors_of(config->neighbors, config->ranks, attrs.offset);
    return config->ranks > 1 ? add_meetings(graph, config, &op_worker_mean, &attrs) : STATUS_OK;
}

const struct pass pass_gossip = {
    .name = "gossip",
    .summary = "let workers take the mean of their own parameters and their neighbors'",
    .run = run_gossip,
};

static enum status run_elastic(struct graph *graph, const struct pass_config *config)
{
    return add_meetings(graph, config, &op_center_pull, &(struct attrs){ 0 });
}

const struct pass pass_elastic = {
    .name = "elastic",
    .summary = "let workers and a center pull at each other now and then",
    .run = run_elastic,
};
