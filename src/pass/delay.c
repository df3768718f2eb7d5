/* SPDX-License-Identifier: MIT */
/* delay.c - what waits to be added to is made late.
 *
 * The gradient of a table that is also the last layer's weight begins at the loss and is complete with the
 * first layer's share: it would live all through backward. If it is larger than what it is made from, its
 * node moves to just before the one that adds to it. Before and after: forward and backward nodes, the
 * same but for their order.
 */
#include "graph/op.h"
#include "pass/pass.h"

/* The only node after place n that uses what the node there makes, if it adds to it, and bytes are
 * saved by making it no sooner; else NULL. */
static const struct node *delays(const struct graph *graph, int n, int64_t shards)
{
    const struct node *node = graph_node(graph, n);
    int64_t given = 0;

    if (node->n_out != 1 || graph_uses(graph, node->out[0]) != 1)
        return NULL;
    for (int i = 0; i < node->n_in; i++)
        if (node->in[i]->kind == VALUE_RESULT) /* has a shard's rows then */
            given += shape_count(&node->in[i]->shape) / shards;
    if (given >= shape_count(&node->out[0]->shape))
        return NULL;
    for (int m = n + 1; m < graph_node_count(graph); m++) {
        const struct node *user = graph_node(graph, m);
        const int last = user->op->extends;
        if (last > 0 && user->n_in > last && user->in[last] == node->out[0])
            return user;
    }
    return NULL;
}

/* Puts node n into the new order, before it what waits for it. */
static int put(const struct graph *graph, const struct node *const *user, int n,
               struct node **order, int count)
{
    for (int m = 0; m < n; m++) {
        if (user[m] == graph_node(graph, n))
            count = put(graph, user, m, order, count);
    }
    order[count] = graph_node(graph, n);
    return count + 1;
}

static enum status run_delay(struct graph *graph, const struct pass_config *config)
{
    const int n_nodes = graph_node_count(graph);
    struct node **order = graph_alloc(graph, (size_t)n_nodes + 1, sizeof *order);
    const struct node **user = graph_alloc(graph, (size_t)n_nodes + 1, sizeof *user);
    int count = 0;

    TRY(graph_status(graph));
    for (int n = 0; n < n_nodes; n++)
        user[n] = delays(graph, n, config->shards);
    for (int n = 0; n < n_nodes; n++) {
        if (!user[n])
            count = put(graph, user, n, order, count);
    }
    return graph_set_order(graph, order, count);
}

const struct pass pass_delay = {
    .name = "delay",
    .summary = "make late what is large and waits to be added to",
    .run = run_delay,
};
