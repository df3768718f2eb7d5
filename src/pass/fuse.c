/* SPDX-License-Identifier: MIT */
/* fuse.c - joins what would be bound by memory: bias, activation and pooling into the op before.
 *
 *   linear -> bias [-> relu]                        becomes  linear with bias and activation
 *   conv2d [-> bias] [-> relu]                      becomes  conv2d with bias and activation;
 *   likewise conv2d_transpose
 *   conv2d [-> bias] -> relu -> max_pool (stride = window, no padding)  becomes  conv2d_pool
 *
 * only where the value in between is used once. Before: a forward graph. After: the same
 * function with fewer nodes; parameters untouched.
 */
#include "graph/op.h"
#include "pass/pass.h"

/* The node that alone uses `value`, as its first input, if it is one of `op`. */
static struct node *only_user(const struct graph *graph, const struct value *value,
                              const struct op *op)
{
    if (graph_uses(graph, value) != 1)
        return NULL;
    for (int n = 0; n < graph_node_count(graph); n++) {
        struct node *node = graph_node(graph, n);
        if (node->op == op && node->in[0] == value)
            return node;
    }
    return NULL;
}

static bool is_plain_pool(const struct node *pool)
{
    const struct attrs *a = &pool->attrs;
    return a->stride[0] == a->window[0] && a->stride[1] == a->window[1] && a->pad[0] == 0 &&
           a->pad[1] == 0;
}

/* What can be joined to one node, in order. */
struct chain {
    struct node *bias, *relu, *pool;
    struct node *last;
};

static struct chain chain_of(const struct graph *graph, struct node *node)
{
    struct chain chain = { .last = node };

    if (node->n_in == 2 && (chain.bias = only_user(graph, chain.last->out[0], &op_bias)))
        chain.last = chain.bias;
    if ((chain.relu = only_user(graph, chain.last->out[0], &op_relu)))
        chain.last = chain.relu;
    if (node->op == &op_conv2d && node->attrs.groups <= 1 && chain.relu &&
        (chain.pool = only_user(graph, chain.last->out[0], &op_max_pool))) {
        if (is_plain_pool(chain.pool))
            chain.last = chain.pool;
        else
            chain.pool = NULL;
    }
    return chain;
}

static struct node *fused(struct graph *graph, struct node *node, const struct chain *chain)
{
    struct value *const in[] = { node->in[0], node->in[1],
                                 chain->bias      ? chain->bias->in[1]
                                 : node->n_in > 2 ? node->in[2]
                                                  : NULL };
    struct attrs attrs = node->attrs;
    const struct op *op = node->op;

    if (chain->relu)
        attrs.activation = ACTIVATION_RELU;
    if (chain->pool) {
        op = &op_conv2d_pool;
        attrs.window[0] = chain->pool->attrs.window[0];
        attrs.window[1] = chain->pool->attrs.window[1];
    }
    graph_set_phase(graph, PHASE_FORWARD);
    struct node *made = graph_add(graph, op, node->name, in, 3, &attrs);
    if (!made)
        return NULL;
    graph_replace(graph, chain->last->out[0], made->out[0]);
    return made;
}

static enum status run_fuse(struct graph *graph, const struct pass_config *config)
{
    const int n_before = graph_node_count(graph);
    struct node **order = graph_alloc(graph, (size_t)n_before + 1, sizeof(struct node *));
    bool *gone = graph_alloc(graph, (size_t)n_before + 1, sizeof(bool));
    int count = 0;

    (void)config;
    TRY(graph_status(graph));
    for (int n = 0; n < n_before; n++) {
        struct node *node = graph_node(graph, n);
        if (gone[n])
            continue;
        struct chain chain = { .last = node };
        if (node->op == &op_linear || node->op == &op_conv2d ||
            node->op == &op_conv2d_transpose)
            chain = chain_of(graph, node);
        if (chain.last != node) {
            for (int i = n; i < n_before; i++) {
                const struct node *other = graph_node(graph, i);
                gone[i] |= other == chain.bias || other == chain.relu || other == chain.pool;
            }
            node = fused(graph, node, &chain);
            TRY(graph_status(graph));
        }
        order[count++] = node;
    }
    return graph_set_order(graph, order, count);
}

const struct pass pass_fuse = {
    .name = "fuse",
    .summary = "join bias, activation and pooling to the op before",
    .run = run_fuse,
};
