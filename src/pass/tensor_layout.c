/* SPDX-License-Identifier: MIT */
/* tensor_layout.c - chooses how ranks share the work of each node.
 *
 * Nodes are taken in the graph's order. A layer of which the input is whole may give its output in slices
 * ("columns"); what follows passes slices on ("features"); a layer of which the input is in slices gives
 * summands ("rows"), which are added at once. So a pair of layers needs one sum forward and one backward,
 * as in Megatron-LM:
 *
 *   x -> linear columns -> bias -> gelu -> linear rows -> sum -> bias
 *
 * A layer is opened so if all that use its output can go on with slices until something closes them. Else it is
 * opened if what it saves is worth the bytes of putting slices together. Tables of embeddings are
 * cut by rows. Nothing here depends on the rank, so all of them choose the same.
 */
#include "pass/tensor.h"

/* Tables of fewer rows stay whole, unless the head shares them. Floating-point operations that take as long
 * as one byte between ranks. */
enum { ROWS_WORTH = 512, FLOPS_A_BYTE = 25, BYTES = 4, PASSES = 3 };

/* Is it kept between steps? */
static bool is_kept(const struct value *value)
{
    return value->kind == VALUE_PARAM || value->kind == VALUE_AVERAGE;
}

static int64_t extent_of(const struct value *value, enum op_axis axis)
{
    const int number = op_axis_of(axis, &value->shape);
    return number < 0 ? 0 : slice_whole(&value->slice, value->shape.dim[number]);
}

/* Can what is kept be cut so, and is it not cut in another way? */
static bool can_cut(const struct tensor_state *state, const struct value *value,
                    enum op_axis axis)
{
    if (value->slice.count > 0)
        return axis != AXIS_NONE && value->slice.axis == op_axis_of(axis, &value->shape);
    return axis == AXIS_NONE || extent_of(value, axis) >= state->count;
}

/* May the node's work be shared in this way at all? */
static bool is_possible(const struct tensor_state *state, const struct node *node,
                        const struct op_way *way)
{
    if (way->can && !way->can(node, state->count))
        return false;
    for (int i = 0; i < node->n_in; i++) {
        if (is_kept(node->in[i]) ? !can_cut(state, node->in[i], way->in[i])
                                 : way->in[i] == AXIS_PLACES && node->in[i]->shape.rank != 3)
            return false;
    }
    return true;
}

static bool closes(const struct op_way *way)
{
    return way->out[0] == AXIS_SUM;
}

/* The way in which a node can take input i in slices of features, or NULL. */
static const struct op_way *way_with(const struct tensor_state *state, const struct node *node,
                                     int i, enum op_axis axis)
{
    for (const struct op_way *way = node->op->ways; way && way->name; way++) {
        if (way->in[i] == axis && is_possible(state, node, way))
            return way;
    }
    return NULL;
}

/* Are all inputs that a way takes in slices parameters, or in slices already, but for input i? */
static bool others_are_cut(const struct tensor_state *state, const struct node *node,
                           const struct op_way *way, int i)
{
    for (int j = 0; j < node->n_in; j++) {
        if (j != i && way->in[j] == AXIS_FEATURES && node->in[j] != node->in[i] &&
            state->layout[node->in[j]->id].axis != AXIS_FEATURES)
            return false;
    }
    return true;
}

static bool find_parts(const struct tensor_state *state, const struct value *value, int *parts);

/* Can node go on with slices of its input i? *parts: 0, or what earlier ones ask for. */
static bool goes_on(const struct tensor_state *state, const struct node *node, int i,
                    int *parts)
{
    const struct op_way *way = way_with(state, node, i, AXIS_FEATURES);
    int after = 0;

    if (!way || !others_are_cut(state, node, way, i))
        return false;
    if (way->parts > 0) {
        if (*parts > 0 && *parts != way->parts)
            return false;
        *parts = way->parts;
    }
    if (closes(way))
        return true;
    /* What has parts of its own hands on plain slices. */
    if (way->parts > 0)
        return find_parts(state, node->out[0], &after) && after <= 1;
    return find_parts(state, node->out[0], parts);
}

/* Can all that use a value go on with slices of it? Then *parts, if any of them cares. */
static bool find_parts(const struct tensor_state *state, const struct value *value, int *parts)
{
    const struct graph_roles *roles = graph_roles(state->graph);
    bool is_used = false;

    if (value == roles->output && value->shape.rank == 2)
        return false; /* who asks for it wants all of it */
    for (int n = 0; n < graph_node_count(state->graph); n++) {
        const struct node *node = graph_node(state->graph, n);
        for (int i = 0; i < node->n_in; i++) {
            if (node->in[i] != value)
                continue;
            if (!goes_on(state, node, i, parts))
                return false;
            is_used = true;
        }
    }
    return is_used;
}

/* Do all other nodes that use the parameter have a way with the same cut? */
static bool users_agree(const struct tensor_state *state, const struct node *self,
                        const struct value *param, enum op_axis axis)
{
    for (int n = 0; n < graph_node_count(state->graph); n++) {
        const struct node *node = graph_node(state->graph, n);
        for (int i = 0; i < node->n_in; i++) {
            if (node->in[i] == param && node != self && !way_with(state, node, i, axis))
                return false;
        }
    }
    return true;
}

static bool is_shared(const struct tensor_state *state, const struct value *param)
{
    return graph_uses(state->graph, param) > 1;
}

/* Does it save more time than the gradients of x and the slices of y take, if they must be put together? */
static bool is_worth_its_bytes(const struct tensor_state *state, const struct node *node)
{
    const double saved = PASSES * graph_node_flops(node) * (state->count - 1) / state->count;
    double bytes = BYTES * (double)shape_count(&node->out[0]->shape);

    if (state->wanted[node->in[0]->id])
        bytes += 2.0 * BYTES * (double)shape_count(&node->in[0]->shape);
    return saved > FLOPS_A_BYTE * bytes;
}

/* Should a node whose inputs are whole be shared in this way? */
static bool opens(const struct tensor_state *state, const struct node *node,
                  const struct op_way *way, int *parts)
{
    for (int i = 0; i < node->n_in; i++) {
        if (way->in[i] == AXIS_FEATURES || way->in[i] == AXIS_PLACES)
            return false;
        if (node->in[i]->kind == VALUE_PARAM && way->in[i] != AXIS_NONE &&
            !users_agree(state, node, node->in[i], way->in[i]))
            return false;
    }
    if (closes(way)) /* rows of a table */
        return is_shared(state, node->in[1]) || extent_of(node->in[1], AXIS_0) >= ROWS_WORTH;
    if (find_parts(state, node->out[0], parts))
        return true;
    *parts = 0;
    return is_worth_its_bytes(state, node);
}

/* The node's input that is cut so, or -1. */
static int input_with(const struct tensor_state *state, const struct node *node,
                      enum op_axis axis)
{
    for (int i = 0; i < node->n_in; i++) {
        if (!is_kept(node->in[i]) && state->layout[node->in[i]->id].axis == axis)
            return i;
    }
    return -1;
}

/* The node's parameter that is cut already, or -1. */
static int cut_param(const struct node *node)
{
    for (int i = 0; i < node->n_in; i++) {
        if (node->in[i]->kind == VALUE_PARAM && node->in[i]->slice.count > 0)
            return i;
    }
    return -1;
}

/* What another node has decided for a parameter that both use. */
static enum status choose_as_decided(const struct tensor_state *state, const struct node *node,
                                     int param, const struct op_way **out)
{
    for (const struct op_way *way = node->op->ways; way && way->name; way++) {
        if (is_possible(state, node, way)) {
            *out = way;
            return STATUS_OK;
        }
    }
    return FAIL(STATUS_UNSUPPORTED, "node %s: parameter %s is shared by layers in another way",
                node->name, node->in[param]->name);
}

enum status tensor_choose(const struct tensor_state *state, const struct node *node,
                          const struct op_way **out, int *out_parts)
{
    const int shared = cut_param(node), cut = input_with(state, node, AXIS_FEATURES);
    const int places = input_with(state, node, AXIS_PLACES);

    *out = NULL;
    *out_parts = 0;
    if (shared >= 0)
        return choose_as_decided(state, node, shared, out);
    if (cut >= 0) {
        const struct op_way *way = way_with(state, node, cut, AXIS_FEATURES);
        const int parts = state->layout[node->in[cut]->id].parts;
        if (way && (way->parts == 0 || way->parts == parts))
            *out = way;
    } else if (places >= 0) {
        *out = way_with(state, node, places, AXIS_PLACES);
    }
    for (const struct op_way *way = node->op->ways; !*out && cut < 0 && way && way->name;
         way++) {
        if (is_possible(state, node, way) && opens(state, node, way, out_parts))
            *out = way;
    }
    return STATUS_OK;
}

bool tensor_wants_places(const struct tensor_state *state, const struct value *sum)
{
    if (!state->sequence || sum->shape.rank != 3)
        return false;
    for (int n = 0; n < graph_node_count(state->graph); n++) {
        const struct node *node = graph_node(state->graph, n);
        for (int i = 0; i < node->n_in; i++) {
            if (node->in[i] == sum && !way_with(state, node, i, AXIS_PLACES))
                return false;
        }
    }
    return true;
}
