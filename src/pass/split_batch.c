/* SPDX-License-Identifier: MIT */
/* split_batch.c - cuts the step's samples into logical shards.
 *
 * After it the graph describes one shard up to the shard_sum nodes: extents along the batch are
 * batch / shards, and what is a summand (gradients, loss) goes through shard_sum before anything
 * else may use it. Each op's split rule says which of its outputs are rows and which summands.
 */
#include <stdio.h>

#include "base/mem.h"
#include "graph/op.h"
#include "pass/pass.h"

static enum status set_parts(struct graph *graph)
{
    for (int n = 0; n < graph_node_count(graph); n++) {
        struct node *node = graph_node(graph, n);
        if (node->op->across_samples)
            continue; /* statistics per shard: the shard is the unit of arithmetic */
        for (int i = 0; i < node->n_out; i++) {
            node->out[i]->part = node->op->split[i] == SPLIT_ROWS  ? PART_ROWS
                                 : node->op->split[i] == SPLIT_SUM ? PART_SUM
                                                                   : PART_WHOLE;
            if (node->out[i]->flat)
                node->out[i]->flat->part = node->out[i]->part;
        }
    }
    return STATUS_OK;
}

static enum status set_shapes(struct graph *graph, int64_t rows)
{
    const int n_values = graph_value_count(graph);
    struct shape *shapes = graph_alloc(graph, (size_t)n_values + 1, sizeof *shapes);

    TRY(graph_status(graph));
    TRY(graph_infer(graph, rows, shapes));
    for (int i = 0; i < n_values; i++)
        graph_value(graph, i)->shape = shapes[i];
    return STATUS_OK;
}

static struct value *add_sum(struct graph *graph, struct value *value, int bucket)
{
    const struct attrs attrs = { .bucket = bucket };
    char name[64];

    if (!value)
        return NULL;
    snprintf(name, sizeof name, "%s.sum", value->name);
    struct node *node = graph_add(graph, &op_shard_sum, name, &value, 1, &attrs);
    return node ? node->out[0] : NULL;
}

static enum status run_split_batch(struct graph *graph, const struct pass_config *config)
{
    struct graph_roles *roles = graph_roles(graph);

    if (config->shards < 1 || config->batch % config->shards)
        return FAIL(STATUS_USAGE, "batch of %lld samples is not divisible into %lld shards",
                    (long long)config->batch, (long long)config->shards);
    TRY(set_shapes(graph, config->batch / config->shards));
    TRY(set_parts(graph));
    graph_set_phase(graph, PHASE_REDUCE);
    for (int b = 0; b < pass_bucket_count(graph); b++)
        add_sum(graph, pass_bucket_value(graph, b, "grad"), b);
    roles->loss = add_sum(graph, roles->loss, 0);
    roles->correct = add_sum(graph, roles->correct, 0);
    return graph_status(graph);
}

const struct pass pass_split_batch = {
    .name = "split_batch",
    .summary = "cut the samples into logical shards, sum what they give",
    .run = run_split_batch,
};
