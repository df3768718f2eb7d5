/* SPDX-License-Identifier: MIT */
/* serve.c - parameter servers: what a worker has summed goes to them, and they update.
 *
 * Before: a training step for one device. For every bucket
 *
 *   shard_sum -> update   becomes   shard_sum -> push -> update -> pull
 *
 * and likewise with row_sum. What lies between push and pull runs on the servers, each of which has
 * slices of every bucket's parameters and state; whether it waits for all workers' pushes or takes
 * each by itself a pass after this one states (synchrony.c). The loss is the worker's own.
 *
 * clip_norm reads what was pushed: servers tell each other the squares of what they have summed
 * (ps/clip.c). Norms of whole parameters no server has, so what needs them is refused; factors of
 * gradients go to no server (pass_config.factors).
 */
#include <stdio.h>

#include "graph/op.h"
#include "pass/pass.h"

/* A node of `op` behind `value`, which all readers of the value read from now on. */
static struct node *put_behind(struct graph *graph, const struct op *op, struct value *value,
                               const char *suffix, int bucket)
{
    const struct attrs attrs = { .bucket = bucket };
    char name[96];

    snprintf(name, sizeof name, "%s.%s", value->name, suffix);
    struct node *node = graph_add(graph, op, name, &value, 1, &attrs);
    if (!node)
        return NULL;
    node->out[0]->form = value->form;
    graph_replace(graph, value, node->out[0]);
    node->in[0] = value;
    return node;
}

static enum status check(const struct pass_config *config)
{
    if (optim_adapts(config->optim.optimizer))
        return FAIL(STATUS_USAGE,
                    "--optimizer %s: no server knows the norms of whole parameters: use sgd, "
                    "adam or adamw, or let ranks meet by --meet allreduce",
                    config->optim.optimizer->name);
    return STATUS_OK;
}

static bool is_bucket_sum(const struct node *node)
{
    return node->op == &op_row_sum ||
           (node->op == &op_shard_sum && node->in[0]->kind == VALUE_FLAT);
}

static enum status run_serve(struct graph *graph, const struct pass_config *config)
{
    const int n_before = graph_node_count(graph);
    struct node **order = graph_alloc(graph, 2 * (size_t)n_before + 1, sizeof(struct node *));
    int count = 0;

    TRY(graph_status(graph));
    TRY(check(config));
    for (int n = 0; n < n_before; n++) {
        struct node *node = graph_node(graph, n);
        struct node *more = NULL;

        BUG_ON(node->op == &op_factor_sum);
        order[count++] = node;
        if (is_bucket_sum(node)) {
            graph_set_phase(graph, PHASE_REDUCE);
            more = put_behind(graph, &op_push, node->out[0], "push", node->attrs.bucket);
        } else if (node->op == config->optim.optimizer->op || node->op == &op_average_update) {
            graph_set_phase(graph, PHASE_UPDATE);
            more = put_behind(graph, &op_pull, node->out[0], "pull", node->attrs.bucket);
        }
        TRY(graph_status(graph));
        if (more)
            order[count++] = more;
    }
    return graph_set_order(graph, order, count);
}

const struct pass pass_serve = {
    .name = "serve",
    .summary = "give the update to servers: sums are pushed to them, parameters pulled",
    .run = run_serve,
};
