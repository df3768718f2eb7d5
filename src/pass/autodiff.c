/* SPDX-License-Identifier: MIT */
/* autodiff.c - adds the backward nodes.
 *
 * Walks the forward nodes from last to first; each op's rule turns the gradients of its outputs
 * into those of its inputs. Gradients of a value that is used several times are added in the
 * order in which they arise. A backward node belongs to the stage of what it differentiates. Before: a forward graph with a loss. After: every parameter has a
 * gradient, in its layout.
 */
#include "graph/op.h"
#include "pass/pass.h"

/* Does any path lead from a parameter to this value? Then its gradient is wanted. */
static void mark_wanted(const struct graph *graph, bool *wanted)
{
    for (int i = 0; i < graph_value_count(graph); i++)
        wanted[i] = graph_value(graph, i)->kind == VALUE_PARAM;
    for (int n = 0; n < graph_node_count(graph); n++) {
        const struct node *node = graph_node(graph, n);
        bool any = false;
        for (int i = 0; i < node->n_in; i++)
            any |= wanted[node->in[i]->id];
        for (int i = 0; i < node->n_out; i++)
            wanted[node->out[i]->id] = any;
    }
}

/* Is it one of the nodes from place `first` on? */
static bool is_new(const struct graph *graph, const struct node *node, int first)
{
    for (int n = first; n < graph_node_count(graph); n++) {
        if (graph_node(graph, n) == node)
            return true;
    }
    return false;
}

/* Can `more` be made by adding to what is there? Then its maker gets that as one more input. Nodes before `first`, which are
 * of other rules, cannot: what they make has readers, as a rule may hand on what it was given. */
static bool extends(const struct graph *graph, struct value *more, struct value *there,
                    int first)
{
    struct node *maker = more->maker;

    if (!maker || more != maker->out[0] || maker->op->extends == 0 ||
        maker->n_in != maker->op->extends || !is_new(graph, maker, first) ||
        is_new(graph, there->maker, first))
        return false;
    maker->in[maker->n_in++] = there; /* a node has room for one more */
    return true;
}

static void add_gradient(struct graph *graph, struct value **slot, struct value *more,
                         const char *name, int first)
{
    if (!*slot || extends(graph, more, *slot, first)) {
        *slot = more;
    } else {
        struct value *const in[] = { *slot, more };
        struct node *sum = graph_add(graph, &op_add, name, in, 2, NULL);
        *slot = sum ? sum->out[0] : NULL;
    }
}

static enum status differentiate(struct graph *graph, const struct node *node,
                                 const bool *wanted, struct value **gradient)
{
    struct value *dout[GRAPH_OUT] = { NULL }, *din[GRAPH_IN] = { NULL };
    bool want[GRAPH_IN] = { false }, any = false, flows = false;
    const bool is_loss = node->out[0] == graph_roles(graph)->loss;

    for (int i = 0; i < node->n_out; i++) {
        dout[i] = gradient[node->out[i]->id];
        flows |= dout[i] != NULL;
    }
    for (int i = 0; i < node->n_in && i < GRAPH_IN; i++) {
        want[i] = wanted[node->in[i]->id];
        any |= want[i];
    }
    if (!any || (!flows && !is_loss))
        return STATUS_OK;
    graph_set_stage(graph, node->stage);
    if (!node->op->gradient)
        return FAIL(STATUS_USAGE, "node %s: %s cannot be differentiated", node->name,
                    node->op->name);
    const int first = graph_node_count(graph);
    node->op->gradient(graph, node, dout, want, din);
    TRY(graph_status(graph));
    for (int i = 0; i < node->n_in && i < GRAPH_IN; i++) {
        if (want[i] && din[i])
            add_gradient(graph, &gradient[node->in[i]->id], din[i], node->in[i]->name, first);
    }
    return graph_status(graph);
}

static enum status run_autodiff(struct graph *graph, const struct pass_config *config)
{
    const int n_values = graph_value_count(graph), n_nodes = graph_node_count(graph);
    struct value **gradient = graph_alloc(graph, (size_t)n_values + 1, sizeof(struct value *));
    bool *wanted = graph_alloc(graph, (size_t)n_values + 1, sizeof(bool));

    (void)config;
    TRY(graph_status(graph));
    if (!graph_roles(graph)->loss)
        return FAIL(STATUS_USAGE, "graph %s has no loss", graph_name(graph));
    mark_wanted(graph, wanted);
    graph_set_phase(graph, PHASE_BACKWARD);
    for (int n = n_nodes - 1; n >= 0; n--)
        TRY(differentiate(graph, graph_node(graph, n), wanted, gradient));
    graph_set_stage(graph, -1);

    for (int i = 0; i < n_values; i++) {
        struct value *value = graph_value(graph, i);
        if (value->kind != VALUE_PARAM)
            continue;
        if (!gradient[i])
            return FAIL(STATUS_USAGE, "parameter %s has no influence on the loss", value->name);
        if (value->sums_gradient) { /* ranks that share the layer have summands (tensor.c) */
            struct node *sum = graph_add(graph, &op_tp_sum, value->name, &gradient[i], 1, NULL);
            TRY(graph_status(graph));
            gradient[i] = sum->out[0];
        }
        value->gradient = gradient[i];
    }
    return STATUS_OK;
}

const struct pass pass_autodiff = {
    .name = "autodiff",
    .summary = "add the backward nodes",
    .run = run_autodiff,
};
