/* SPDX-License-Identifier: MIT */
/* average.c - workers that train alone: what they do to their parameters between steps.
 *
 * Before: a training step for one device, which every worker runs by itself. For every bucket
 *
 *   update   becomes   update -> worker_mean   (pass_average) or   update -> center_pull   (pass_elastic)
 *
 * The new nodes run when workers meet, every so many steps; in between they hand their input on. When that
 * is is the trainer's business, not the graph's (train/local.c).
 */
#include <stdio.h>

#include "graph/op.h"
#include "pass/pass.h"

static enum status add_meetings(struct graph *graph, const struct pass_config *config,
                                const struct op *op)
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
        const struct attrs attrs = { .bucket = node->attrs.bucket };
        char name[96];
        snprintf(name, sizeof name, "%s.met", node->out[0]->name);
        graph_set_phase(graph, PHASE_UPDATE);
        order[count++] = graph_add(graph, op, name, &node->out[0], 1, &attrs);
        TRY(graph_status(graph));
    }
    return graph_set_order(graph, order, count);
}

static enum status run_average(struct graph *graph, const struct pass_config *config)
{
    return add_meetings(graph, config, &op_worker_mean);
}

const struct pass pass_average = {
    .name = "average",
    .summary = "let workers take the mean of all now and then",
    .run = run_average,
};

static enum status run_elastic(struct graph *graph, const struct pass_config *config)
{
    return add_meetings(graph, config, &op_center_pull);
}

const struct pass pass_elastic = {
    .name = "elastic",
    .summary = "let workers and a center pull at each other now and then",
    .run = run_elastic,
};
