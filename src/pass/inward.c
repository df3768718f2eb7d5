/* SPDX-License-Identifier: MIT */
/* inward.c - filters lie with their input channels innermost, where a device's library takes them so.
 *
 * With pass_config.inward. A filter of plain convolutions alone, whose gradient one node makes, whose channels come in eights and
 * which is no product of pixels and a matrix, has LAYOUT_OHWI from here on, and so has its gradient: what lies in flat ranges lies so,
 * files and hashes do not know of it. A kernel that does not take it so has it turned (exec/plan_types.c). Before: backward is there,
 * nothing lies in buckets yet. After: the same nodes.
 */
#include "graph/op.h"
#include "pass/pass.h"

enum { EIGHTS = 8 };

/* A product of all pixels and a matrix: its filter lies as products take it. */
static bool is_product(const struct node *conv, const struct shape *filter)
{
    return filter->dim[2] * filter->dim[3] == 1 && conv->attrs.stride[0] <= 1 &&
           conv->attrs.stride[1] <= 1;
}

/* Does the node read the filter as a library's convolution would? */
static bool takes_inward(const struct node *node, const struct value *filter)
{
    return (node->op == &op_conv2d || node->op == &op_conv2d_stats ||
            node->op == &op_conv2d_grad_input) &&
           node->in[1] == filter && node->attrs.groups <= 1 &&
           !is_product(node, &filter->shape);
}

static bool reads(const struct node *node, const struct value *value)
{
    for (int i = 0; i < node->n_in; i++) {
        if (node->in[i] == value)
            return true;
    }
    return false;
}

static bool is_inward(const struct graph *graph, const struct value *filter)
{
    const struct value *gradient = filter->gradient;

    if (filter->kind != VALUE_PARAM || filter->shape.rank != 4 ||
        filter->shape.dim[0] % EIGHTS || filter->shape.dim[1] % EIGHTS || !gradient ||
        !gradient->maker || gradient->maker->op != &op_conv2d_grad_weight)
        return false;
    for (int n = 0; n < graph_node_count(graph); n++) {
        const struct node *node = graph_node(graph, n);
        if (reads(node, gradient) || (reads(node, filter) && !takes_inward(node, filter)))
            return false;
    }
    return true;
}

static enum status run_inward(struct graph *graph, const struct pass_config *config)
{
    for (int i = 0; config->inward && i < graph_value_count(graph); i++) {
        struct value *value = graph_value(graph, i);
        if (!is_inward(graph, value))
            continue;
        value->layout = value->gradient->layout = LAYOUT_OHWI;
        value->gradient->maker->attrs.layout = LAYOUT_OHWI;
    }
    return STATUS_OK;
}

const struct pass pass_inward = {
    .name = "inward",
    .summary = "lay filters as a device's library takes them",
    .run = run_inward,
};
