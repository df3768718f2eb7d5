/* SPDX-License-Identifier: MIT */
/* sync_norm.c - batch normalization by the statistics of the whole step instead of the shard's.
 *
 *   x -> batch_norm -> y, saved, seen
 *
 * becomes, with the activation and the residual that were joined to it,
 *
 *   x -> batch_norm_stats -> shard_gather -> batch_norm_join -> saved, seen
 *   x, saved -> batch_norm_normalize -> y
 *
 * Before: a forward graph, fused if it will be. After: the same function of a step that is one shard; of
 * a step of several, that of the step as one shard. Without pass_config.sync_norm nothing changes.
 */
#include <stdio.h>

#include "graph/op.h"
#include "pass/pass.h"

enum { STATS, GATHER, JOIN, NORMALIZE, PARTS };

static struct node *add_part(struct graph *graph, const struct op *op, const struct node *node,
                             const char *what, struct value *const *in, int n_in,
                             const struct attrs *attrs)
{
    char name[96];

    snprintf(name, sizeof name, "%s%s", node->name, what);
    return graph_add(graph, op, name, in, n_in, attrs);
}

/* The nodes that stand for a batch norm. */
static enum status make_parts(struct graph *graph, const struct node *node, int64_t shards,
                              struct node *parts[PARTS])
{
    const struct attrs gather = { .shards = shards };
    const struct attrs join = { .epsilon = node->attrs.epsilon };
    struct attrs normalize = node->attrs;

    normalize.shards = shards;
    parts[STATS] = add_part(graph, &op_batch_norm_stats, node, ".stats", &node->in[0], 1, NULL);
    TRY(graph_status(graph));
    struct value *own = parts[STATS]->out[0];
    parts[GATHER] = add_part(graph, &op_shard_gather, node, ".gather", &own, 1, &gather);
    TRY(graph_status(graph));
    struct value *const all[] = { parts[GATHER]->out[0], own };
    parts[JOIN] = add_part(graph, &op_batch_norm_join, node, ".join", all, 2, &join);
    TRY(graph_status(graph));
    struct value *const in[] = { node->in[0], node->in[1], node->in[2], parts[JOIN]->out[0],
                                 node->n_in > 3 ? node->in[3] : NULL };
    parts[NORMALIZE] = add_part(graph, &op_batch_norm_normalize, node, "", in, 5, &normalize);
    return graph_status(graph);
}

static enum status run_sync_norm(struct graph *graph, const struct pass_config *config)
{
    const int n_before = graph_node_count(graph);
    struct node **order =
        graph_alloc(graph, (size_t)n_before * PARTS + 1, sizeof(struct node *));
    int count = 0;

    TRY(graph_status(graph));
    if (!config->sync_norm)
        return STATUS_OK;
    graph_set_phase(graph, PHASE_FORWARD);
    for (int n = 0; n < n_before; n++) {
        struct node *node = graph_node(graph, n), *parts[PARTS];
        if (node->op != &op_batch_norm) {
            order[count++] = node;
            continue;
        }
        TRY(make_parts(graph, node, config->shards, parts));
        graph_replace(graph, node->out[0], parts[NORMALIZE]->out[0]);
        for (int i = 1; i < node->n_out; i++) /* saved, seen mean, seen variance */
            graph_replace(graph, node->out[i], parts[JOIN]->out[i - 1]);
        for (int i = 0; i < PARTS; i++)
            order[count++] = parts[i];
    }
    return graph_set_order(graph, order, count);
}

const struct pass pass_sync_norm = {
    .name = "sync_norm",
    .summary = "with --sync-batch-norm, batch statistics of all shards together",
    .run = run_sync_norm,
};
