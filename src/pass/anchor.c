/* SPDX-License-Identifier: MIT */
/* anchor.c - local steps that are drawn to where they began, or whose drift is taken out (FedProx, SCAFFOLD).
 *
 * Before: a training step for one device. If asked, for every bucket that is trained
 *
 *   sum -> update   becomes   sum, param, anchor, shift -> anchor -> update
 *
 * with `anchor` and `shift` flat ranges that the executor's caller fills: the update sees
 * sum + mu (param - anchor) + shift.
 */
#include <stdio.h>

#include "graph/op.h"
#include "pass/pass.h"

static enum status check(const struct pass_config *config)
{
    if (config->optim.attrs.max_norm > 0 || optim_adapts(config->optim.optimizer))
        return FAIL(STATUS_USAGE,
                    "--optimizer %s with norms of gradients: local steps that are drawn to an "
                    "anchor have none: use sgd, adam or adamw without --clip",
                    config->optim.optimizer->name);
    return STATUS_OK;
}

/* The node before an update; its output is what the update reads instead of the sum. */
static struct node *add_anchor(struct graph *graph, const struct node *update, float mu)
{
    const int b = update->attrs.bucket;
    const struct attrs attrs = { .bucket = b, .weight_decay = mu };
    const int64_t count = shape_count(&update->in[0]->shape);
    char anchor[64], shift[64], name[64];

    snprintf(anchor, sizeof anchor, "bucket%d.anchor", b);
    snprintf(shift, sizeof shift, "bucket%d.shift", b);
    snprintf(name, sizeof name, "bucket%d.anchored", b);
    struct value *const in[] = { update->in[1], update->in[0], graph_flat(graph, anchor, count),
                                 graph_flat(graph, shift, count) };
    return graph_add(graph, &op_anchor, name, in, 4, &attrs);
}

static enum status run_anchor(struct graph *graph, const struct pass_config *config)
{
    const int n_before = graph_node_count(graph);
    struct node **order = graph_alloc(graph, 2 * (size_t)n_before + 1, sizeof(struct node *));
    int count = 0;

    TRY(graph_status(graph));
    if (!config->anchored)
        return STATUS_OK;
    TRY(check(config));
    graph_set_phase(graph, PHASE_UPDATE);
    for (int n = 0; n < n_before; n++) {
        struct node *node = graph_node(graph, n);
        if (node->op == config->optim.optimizer->op) {
            struct node *anchor = add_anchor(graph, node, config->mu);
            TRY(graph_status(graph));
            node->in[1] = anchor->out[0];
            order[count++] = anchor;
        }
        order[count++] = node;
    }
    return graph_set_order(graph, order, count);
}

const struct pass pass_anchor = {
    .name = "anchor",
    .summary = "draw local steps to where they began, if asked",
    .run = run_anchor,
};
