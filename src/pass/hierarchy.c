/* SPDX-License-Identifier: MIT */
/* hierarchy.c - collectives of ranks on several nodes have two levels: within a node, then between.
 *
 * Before: a step whose collectives are among ranks of one node (mirror.c, zero.c, sync_norm.c).
 * After, these have attrs.between_nodes:
 *
 *   reduce_scatter   ranks of a node add what they have; nodes exchange parts of the sums
 *   all_gather       of updated parts, of parameters with zero=3, and of factors or sparse rows
 *   all_reduce       of losses
 *   shard_gather     of batch statistics
 *
 * The all_gather after an update stays within a node where every node has made the whole sum, from
 * factors or sparse rows of all nodes. push and pull of rows with owners (attrs.served) are between
 * nodes already.
 *
 * Lowering makes exchanges between nodes from these attributes alone, and refuses to lower a step
 * without them for several nodes.
 */
#include "graph/op.h"
#include "pass/pass.h"

/* Buckets (bits) whose sums every node makes whole. */
static uint64_t find_made_whole(const struct graph *graph)
{
    uint64_t whole = 0;

    for (int n = 0; n < graph_node_count(graph); n++) {
        const struct node *node = graph_node(graph, n);
        if (node->op == &op_factor_sum || (node->op == &op_row_sum && !node->attrs.served))
            whole |= UINT64_C(1) << node->attrs.bucket;
    }
    return whole;
}

static bool crosses_nodes(const struct node *node, uint64_t made_whole)
{
    if (node->op == &op_all_gather)
        return node->phase != PHASE_UPDATE || !(made_whole >> node->attrs.bucket & 1);
    return node->op == &op_reduce_scatter || node->op == &op_all_reduce || node->op->meets;
}

static enum status run_hierarchy(struct graph *graph, const struct pass_config *config)
{
    const uint64_t made_whole = find_made_whole(graph);

    (void)config;
    for (int n = 0; n < graph_node_count(graph); n++) {
        struct node *node = graph_node(graph, n);
        node->attrs.between_nodes = crosses_nodes(node, made_whole);
    }
    return STATUS_OK;
}

const struct pass pass_hierarchy = {
    .name = "hierarchy",
    .summary = "give collectives two levels: within a node, then between nodes",
    .run = run_hierarchy,
};
