/* SPDX-License-Identifier: MIT */
/* verify.c - which graphs are legal. The text of a failure names the node. */
#include <string.h>

#include "base/mem.h"
#include "graph/op.h"

static enum status verify_node(const struct graph *graph, const struct node *node, bool *made)
{
    if (node->n_in < node->op->min_in || node->n_in > node->op->max_in ||
        node->n_out < node->op->min_out || node->n_out > node->op->max_out)
        return FAIL(STATUS_MISMATCH, "%d inputs and %d outputs", node->n_in, node->n_out);
    for (int i = 0; i < node->n_in; i++) {
        const struct value *in = node->in[i];
        if (in->id >= graph_value_count(graph) || graph_value(graph, in->id) != in)
            return FAIL(STATUS_MISMATCH, "input %s is of another graph", in->name);
        if (in->kind == VALUE_RESULT && !made[in->id])
            return FAIL(STATUS_MISMATCH, "input %s is used before it is made", in->name);
        const enum dtype wanted = i < GRAPH_IN ? node->op->in_dtype[i] : DTYPE_F32;
        if (in->dtype != wanted && !node->op->any_dtype)
            return FAIL(STATUS_MISMATCH, "input %s is %s, expected %s", in->name,
                        dtype_name(in->dtype), dtype_name(wanted));
        if (in->form == VALUE_ROWS && node->op->split[0] != SPLIT_WHOLE)
            return FAIL(STATUS_MISMATCH, "input %s has rows, this op takes dense values",
                        in->name);
    }
    for (int i = 0; i < node->n_out; i++) {
        if (node->out[i]->maker != node || made[node->out[i]->id])
            return FAIL(STATUS_MISMATCH, "output %s is made twice", node->out[i]->name);
        made[node->out[i]->id] = true;
    }
    return STATUS_OK;
}

/* Does the op take rows of a table, which lie one after the other? */
static bool reads_rows(const struct op *op)
{
    return op == &op_embedding || op == &op_embedding_mean;
}

/* May its filter have input channels innermost (pass/inward.c)? */
static bool reads_inward(const struct op *op)
{
    return op == &op_conv2d || op == &op_conv2d_stats || op == &op_conv2d_grad_input;
}

static enum status verify_layouts(const struct node *node)
{
    for (int i = 0; i < node->n_in; i++) {
        const struct value *in = node->in[i];
        const bool weight = i > 0 && in->kind == VALUE_PARAM;
        enum layout wanted = in->shape.rank == 4 ? LAYOUT_NHWC : LAYOUT_PLAIN;

        if (node->op == &op_reorder || node->op == &op_reshape || node->op == &op_tp_copy ||
            node->op->moves || node->op->talks || in->kind == VALUE_FLAT)
            continue;
        if (node->op->may_overwrite && node->op != &op_bias)
            wanted = node->in[0]->layout; /* blind to the order, if it is one for all */
        if (weight && in->shape.rank == 4)
            wanted =
                in->layout == LAYOUT_OHWI && reads_inward(node->op) ? LAYOUT_OHWI : LAYOUT_HWIO;
        if (weight && in->shape.rank == 3)
            wanted = LAYOUT_WIO;
        if (weight && in->shape.rank == 2)
            wanted = in->layout == LAYOUT_PLAIN || reads_rows(node->op)
                         ? LAYOUT_PLAIN /* tables are plain */
                         : LAYOUT_IO;
        if (in->layout != wanted)
            return FAIL(STATUS_MISMATCH, "input %s lies %s, expected %s", in->name,
                        layout_name(in->layout), layout_name(wanted));
    }
    for (int i = 0; i < node->n_out; i++) {
        const struct value *out = node->out[i];
        const enum layout wanted = op_output_layout(node, i, &out->shape);
        if (out->layout != wanted)
            return FAIL(STATUS_MISMATCH, "output %s lies %s, expected %s", out->name,
                        layout_name(out->layout), layout_name(wanted));
    }
    if (node->op == &op_reshape && node->in[0]->layout == LAYOUT_NHWC) {
        const struct shape *x = &node->in[0]->shape;
        if (x->dim[1] != 1 && x->dim[2] * x->dim[3] != 1)
            return FAIL(STATUS_MISMATCH, "input %s lies nhwc: reorder it first",
                        node->in[0]->name);
    }
    return STATUS_OK;
}

/* A summand may only be added up: it is no whole value yet. */
static enum status verify_parts(const struct node *node)
{
    const struct value *summand = NULL;
    int count = 0;

    if (node->op->split[0] == SPLIT_WHOLE)
        return STATUS_OK;
    for (int i = 0; i < node->n_in; i++) {
        if (node->in[i]->part == PART_SUM && node->in[i]->kind == VALUE_RESULT) {
            summand = node->in[i];
            count++;
        }
    }
    if (count == 0 || (node->op->keeps_sums && count == node->n_in))
        return STATUS_OK;
    if (node->op->extends && count == 1 && node->n_in > node->op->extends &&
        node->in[node->op->extends] == summand)
        return STATUS_OK;
    return FAIL(STATUS_MISMATCH, "input %s is one shard's summand", summand->name);
}

static enum status verify_flat(const struct graph *graph)
{
    const int n = graph_value_count(graph);

    for (int i = 0; i < n; i++) {
        const struct value *value = graph_value(graph, i);
        if (!value->flat)
            continue;
        const int64_t end = value->offset + shape_count(&value->shape);
        if (value->offset < 0 || end > shape_count(&value->flat->shape))
            return FAIL(STATUS_MISMATCH, "value %s does not fit into %s", value->name,
                        value->flat->name);
        for (int j = 0; j < i; j++) {
            const struct value *other = graph_value(graph, j);
            if (other->flat == value->flat && other->offset < end &&
                value->offset < other->offset + shape_count(&other->shape))
                return FAIL(STATUS_MISMATCH, "values %s and %s overlap in %s", other->name,
                            value->name, value->flat->name);
        }
    }
    return STATUS_OK;
}

/* What an average sees is made by a node that runs, and is as large as the average. */
static enum status verify_averages(const struct graph *graph, const bool *made)
{
    for (int i = 0; i < graph_value_count(graph); i++) {
        const struct value *value = graph_value(graph, i), *seen = value->gradient;
        if (value->kind != VALUE_AVERAGE || !seen)
            continue;
        if (!made[seen->id] || !shape_equal(&seen->shape, &value->shape))
            return FAIL(STATUS_MISMATCH, "graph %s: average %s sees %s, which %s",
                        graph_name(graph), value->name, seen->name,
                        made[seen->id] ? "has another shape" : "no node makes");
    }
    return STATUS_OK;
}

enum status graph_verify(const struct graph *graph)
{
    bool *made;
    struct shape *shapes;

    TRY(graph_status(graph));
    TRY(mem_alloc((size_t)graph_value_count(graph) + 1, sizeof *made, &made));
    enum status status = STATUS_OK;
    for (int n = 0; n < graph_node_count(graph) && status == STATUS_OK; n++) {
        const struct node *node = graph_node(graph, n);
        status = verify_node(graph, node, made);
        if (status == STATUS_OK)
            status = verify_layouts(node);
        if (status == STATUS_OK)
            status = verify_parts(node);
        if (status != STATUS_OK)
            status = FAIL(status, "graph %s: node %s (%s): %s", graph_name(graph), node->name,
                          node->op->name, status_message());
    }
    if (status == STATUS_OK)
        status = verify_averages(graph, made);
    mem_free(made);
    TRY(status);
    TRY(verify_flat(graph));

    /* The shapes written in the values are those that the rules give. */
    TRY(mem_alloc((size_t)graph_value_count(graph) + 1, sizeof *shapes, &shapes));
    status = graph_infer(graph, graph_extents(graph), shapes);
    for (int n = 0; n < graph_node_count(graph) && status == STATUS_OK; n++) {
        const struct node *node = graph_node(graph, n);
        for (int i = 0; i < node->n_out; i++) {
            if (!shape_equal(&shapes[node->out[i]->id], &node->out[i]->shape))
                status =
                    FAIL(STATUS_MISMATCH,
                         "graph %s: node %s (%s): output %s has a shape that "
                         "its rule does not give",
                         graph_name(graph), node->name, node->op->name, node->out[i]->name);
        }
    }
    mem_free(shapes);
    return status;
}
