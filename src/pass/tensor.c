/* SPDX-License-Identifier: MIT */
/* tensor.c - ranks share the work of layers, each with its slices of the parameters.
 *
 * Before: a forward graph as a model makes it. After: the graph of one of `count` ranks: parameters are
 * slices (value->slice says which), and nodes between ranks stand where a value must be held in
 * another way. For two layers of a perceptron:
 *
 *   x -> linear -> bias -> relu -> linear -> bias                                     becomes
 *   x -> tp_copy -> linear -> bias -> relu -> linear -> tp_sum -> bias
 *
 * It runs first, before fuse and autodiff. Before fuse, because then ops are simple: each has few ways, a
 * bias stands after the sum that it must come after, and fuse joins what may be joined of the result. Before
 * autodiff, because the nodes it inserts have gradients, which are what must happen backward.
 *
 * What is random is drawn by slices as it is by the whole; what is whole is the same on all ranks. So parameters
 * that all of them have stay equal.
 */
#include "pass/tensor.h"

/* Values that a value has been turned into, for all who need it so. */
struct converted {
    struct value *copy, *gathered, *summed_back, *features, *places;
};

struct maker {
    struct tensor_state state;
    struct converted *made; /* by value id */
    struct node **order;
    int n_order;
};

static void put(struct maker *maker, struct node *node)
{
    maker->order[maker->n_order++] = node;
}

/* Values may be cut along an axis of which the length is known, or along places, of which it is not. */
static struct shape_slice slice_of(const struct maker *maker, const struct value *value,
                                   struct tensor_layout layout)
{
    const int axis = op_axis_of(layout.axis, &value->shape);
    struct shape_slice slice = { .count = maker->state.count,
                                 .index = maker->state.index,
                                 .axis = axis,
                                 .parts = layout.parts };

    if (layout.axis != AXIS_PLACES)
        slice.whole = slice_whole(&value->slice, value->shape.dim[axis]);
    return slice;
}

/* Adds a node between ranks; what it makes of `from` is held in `layout`. */
static struct value *add(struct maker *maker, const struct op *op, struct value *from,
                         const struct attrs *attrs, struct tensor_layout layout)
{
    struct graph *graph = maker->state.graph;
    struct node *node = graph_add(graph, op, from->name, &from, 1, attrs);

    if (!node)
        return NULL;
    put(maker, node);
    maker->state.layout[node->out[0]->id] = layout;
    maker->state.wanted[node->out[0]->id] = maker->state.wanted[from->id];
    if (layout.axis != AXIS_NONE)
        node->out[0]->slice = attrs->slice;
    return node->out[0];
}

static const struct tensor_layout whole = { AXIS_NONE, 1 };

/* A value that is held in some way, whole, for a node of which each rank does all, or a part (`shares`): then
 * ranks have summands of its gradient. */
static struct value *as_whole(struct maker *maker, struct value *value, bool shares)
{
    const struct tensor_layout layout = maker->state.layout[value->id];
    struct converted *made = &maker->made[value->id];
    const bool sums = shares && maker->state.wanted[value->id];

    if (layout.axis == AXIS_NONE) {
        if (!sums)
            return value;
        if (!made->copy)
            made->copy = add(maker, &op_tp_copy, value, NULL, whole);
        return made->copy;
    }
    struct value **slot = sums ? &made->summed_back : &made->gathered;
    if (!*slot) {
        const struct attrs attrs = { .slice = slice_of(maker, value, layout), .sums = sums };
        *slot = add(maker, &op_tp_gather, value, &attrs, whole);
    }
    return *slot;
}

static struct value *as_cut(struct maker *maker, struct value *value,
                            struct tensor_layout wanted)
{
    const struct tensor_layout layout = maker->state.layout[value->id];
    struct converted *made = &maker->made[value->id];
    struct value **slot = wanted.axis == AXIS_PLACES ? &made->places : &made->features;

    if (layout.axis == wanted.axis && layout.parts == wanted.parts)
        return value;
    if (!*slot) {
        struct value *from = as_whole(maker, value, false);
        if (!from)
            return NULL;
        const struct attrs attrs = { .slice = slice_of(maker, from, wanted) };
        *slot = add(maker, &op_tp_slice, from, &attrs, wanted);
    }
    return *slot;
}

/* What is kept between steps becomes this rank's slice; its extents change when all nodes stand. */
static void cut_kept(struct maker *maker, struct value *value, enum op_axis axis, int parts)
{
    const struct tensor_layout layout = { axis, parts };

    if (axis == AXIS_NONE)
        value->sums_gradient = value->kind == VALUE_PARAM;
    else if (value->slice.count == 0)
        value->slice = slice_of(maker, value, layout);
}

/* The numbers of rows as this rank counts its own. */
static struct value *own_ids(struct maker *maker, struct value *ids, const struct value *table)
{
    const struct attrs attrs = { .slice = table->slice };

    return add(maker, &op_tp_ids, ids, &attrs, whole);
}

static bool is_kept(const struct value *value)
{
    return value->kind == VALUE_PARAM || value->kind == VALUE_AVERAGE;
}

/* Inputs of a node whose work is shared; parts: of its features that are cut. */
static void convert_inputs(struct maker *maker, struct node *node, const struct op_way *way,
                           int parts)
{
    for (int i = 0; i < node->n_in; i++) {
        const struct tensor_layout wanted = { way->in[i],
                                              way->in[i] == AXIS_FEATURES ? parts : 1 };
        if (is_kept(node->in[i]))
            cut_kept(maker, node->in[i], way->in[i], parts);
        else if (wanted.axis == AXIS_NONE)
            node->in[i] = as_whole(maker, node->in[i], true);
        else
            node->in[i] = as_cut(maker, node->in[i], wanted);
    }
    if (node->op == &op_embedding && way->out[0] == AXIS_SUM)
        node->in[0] = own_ids(maker, node->in[0], node->in[1]);
}

/* Parts of the features that a node takes or gives in slices. */
static int parts_of(const struct maker *maker, const struct node *node,
                    const struct op_way *way, int opened)
{
    if (way->parts > 0)
        return way->parts;
    for (int i = 0; i < node->n_in; i++) {
        const struct tensor_layout layout = maker->state.layout[node->in[i]->id];
        if (way->in[i] == AXIS_FEATURES && layout.axis == AXIS_FEATURES)
            return layout.parts;
    }
    return opened > 0 ? opened : 1;
}

/* Averages of what a node sees are those of its channels. */
static void cut_averages(struct maker *maker, const struct node *node, const struct op_way *way,
                         int parts)
{
    for (int v = 0; v < graph_value_count(maker->state.graph); v++) {
        struct value *value = graph_value(maker->state.graph, v);
        for (int i = 0; i < node->n_out && value->kind == VALUE_AVERAGE; i++) {
            if (value->gradient == node->out[i])
                cut_kept(maker, value, way->out[i], parts);
        }
    }
}

/* Summands become a whole value, or slices of it, for all who use them. */
static void add_sum(struct maker *maker, struct value *summand)
{
    const struct tensor_layout places = { AXIS_PLACES, 1 };
    const bool cuts = tensor_wants_places(&maker->state, summand);
    const struct attrs attrs = {
        .slice = cuts ? slice_of(maker, summand, places) : (struct shape_slice){ 0 },
    };
    struct value *sum = add(maker, cuts ? &op_tp_sum_slice : &op_tp_sum, summand, &attrs,
                            cuts ? places : whole);

    if (!sum)
        return;
    graph_replace(maker->state.graph, summand, sum);
    sum->maker->in[0] = summand;
}

/* The loss, or what is counted, over slices of the classes. */
static void add_token_op(struct maker *maker, struct node *node)
{
    struct graph *graph = maker->state.graph;
    const bool is_loss = node->op == &op_token_cross_entropy;
    struct value *logits = node->in[0], *labels = node->in[1];
    struct value *const loss_in[] = { logits, node->out[1], labels };
    struct value *const count_in[] = { logits, labels };
    const struct tensor_layout classes = { AXIS_FEATURES, 1 };

    node->attrs.slice = slice_of(maker, logits, classes);
    struct node *joint =
        is_loss
            ? graph_add(graph, &op_tp_token_loss, node->name, loss_in, 3, &node->attrs)
            : graph_add(graph, &op_tp_token_accuracy, node->name, count_in, 2, &node->attrs);
    if (!joint)
        return;
    if (is_loss)
        put(maker, node);
    put(maker, joint);
    graph_replace(graph, node->out[0], joint->out[0]);
    for (int i = 0; i < joint->n_out; i++)
        maker->state.layout[joint->out[i]->id] = whole;
}

static void share(struct maker *maker, struct node *node, const struct op_way *way, int opened)
{
    const int parts = parts_of(maker, node, way, opened);
    const struct value *cut = way->in[0] == AXIS_NONE ? node->out[0] : node->in[0];
    const enum op_axis axis = way->in[0] == AXIS_NONE ? way->out[0] : way->in[0];

    if (way->cut) {
        const struct shape_slice slice =
            slice_of(maker, cut, (struct tensor_layout){ axis, parts });
        way->cut(&node->attrs, &slice);
    }
    convert_inputs(maker, node, way, parts);
    if (graph_status(maker->state.graph) != STATUS_OK)
        return;
    if (node->op == &op_token_cross_entropy || node->op == &op_token_accuracy) {
        add_token_op(maker, node);
        return;
    }
    put(maker, node);
    cut_averages(maker, node, way, parts);
    for (int i = 0; i < node->n_out; i++) {
        const bool is_cut = way->out[i] == AXIS_FEATURES || way->out[i] == AXIS_PLACES;
        maker->state.layout[node->out[i]->id] =
            is_cut ? (struct tensor_layout){ way->out[i], way->parts > 1 ? 1 : parts } : whole;
    }
    if (way->out[0] == AXIS_SUM)
        add_sum(maker, node->out[0]);
}

static void keep_whole(struct maker *maker, struct node *node)
{
    for (int i = 0; i < node->n_in; i++) {
        if (!is_kept(node->in[i]))
            node->in[i] = as_whole(maker, node->in[i], false);
    }
    put(maker, node);
    for (int i = 0; i < node->n_out; i++)
        maker->state.layout[node->out[i]->id] = whole;
}

/* Does any path lead from a parameter to this value? */
static void mark_wanted(struct tensor_state *state)
{
    for (int i = 0; i < graph_value_count(state->graph); i++)
        state->wanted[i] = graph_value(state->graph, i)->kind == VALUE_PARAM;
    for (int n = 0; n < graph_node_count(state->graph); n++) {
        const struct node *node = graph_node(state->graph, n);
        bool any = false;
        for (int i = 0; i < node->n_in; i++)
            any |= state->wanted[node->in[i]->id];
        for (int i = 0; i < node->n_out; i++)
            state->wanted[node->out[i]->id] = any;
    }
}

/* Values become as large as their slices. */
static enum status set_shapes(struct maker *maker)
{
    struct graph *graph = maker->state.graph;
    const int n_values = graph_value_count(graph);
    struct shape *shapes = graph_alloc(graph, (size_t)n_values + 1, sizeof *shapes);

    TRY(graph_status(graph));
    for (int i = 0; i < n_values; i++) {
        struct value *value = graph_value(graph, i);
        const struct tensor_layout layout = maker->state.layout[i];
        if (is_kept(value))
            value->shape = slice_shape(&value->slice, &value->shape);
        else if (layout.axis != AXIS_NONE && value->slice.count == 0)
            value->slice = slice_of(maker, value, layout);
    }
    TRY(graph_infer(graph, graph_extents(graph), shapes));
    for (int i = 0; i < n_values; i++) {
        struct value *value = graph_value(graph, i);
        value->shape = shapes[i];
        if (value->maker)
            for (int o = 0; o < value->maker->n_out; o++)
                if (value->maker->out[o] == value)
                    value->layout = op_output_layout(value->maker, o, &value->shape);
    }
    return STATUS_OK;
}

static enum status check_heads(const struct graph *graph, int count)
{
    for (int n = 0; n < graph_node_count(graph); n++) {
        const struct node *node = graph_node(graph, n);
        if (node->op == &op_attention && node->attrs.heads % count != 0)
            return FAIL(
                STATUS_USAGE,
                "%s has %d heads, which %d ranks cannot share: tp must divide the heads",
                node->name, node->attrs.heads, count);
    }
    return STATUS_OK;
}

static enum status make_maker(struct graph *graph, const struct pass_config *config,
                              struct maker *maker)
{
    /* A node gets at most one more for each input and two for its outputs. */
    const size_t n_nodes = (size_t)graph_node_count(graph) * (GRAPH_IN + 2) + 2;
    const size_t n_values = (size_t)graph_value_count(graph) + n_nodes * 2;

    *maker = (struct maker){ .state = { .graph = graph,
                                        .count = config->tensor.count,
                                        .index = config->tensor.index,
                                        .sequence = config->tensor.sequence } };
    maker->state.layout = graph_alloc(graph, n_values, sizeof *maker->state.layout);
    maker->state.wanted = graph_alloc(graph, n_values, sizeof *maker->state.wanted);
    maker->made = graph_alloc(graph, n_values, sizeof *maker->made);
    maker->order = graph_alloc(graph, n_nodes, sizeof(struct node *));
    return graph_status(graph);
}

static enum status run_tensor(struct graph *graph, const struct pass_config *config)
{
    const int n_nodes = graph_node_count(graph);
    struct graph_roles *roles = graph_roles(graph);
    struct maker maker;

    if (config->tensor.count <= 1)
        return STATUS_OK;
    TRY(check_heads(graph, config->tensor.count));
    TRY(make_maker(graph, config, &maker));
    mark_wanted(&maker.state);
    for (int i = 0; i < graph_value_count(graph); i++)
        maker.state.layout[i] = whole;
    graph_set_phase(graph, PHASE_FORWARD);
    for (int n = 0; n < n_nodes; n++) {
        struct node *node = graph_node(graph, n);
        const struct op_way *way;
        int opened;
        TRY(tensor_choose(&maker.state, node, &way, &opened));
        if (way)
            share(&maker, node, way, opened);
        else
            keep_whole(&maker, node);
        TRY(graph_status(graph));
    }
    if (roles->output && roles->output->shape.rank == 2)
        roles->output = as_whole(&maker, roles->output, false);
    TRY(graph_status(graph));
    TRY(graph_set_order(graph, maker.order, maker.n_order));
    return set_shapes(&maker);
}

const struct pass pass_tensor = {
    .name = "tensor",
    .summary = "share layers among ranks, which hold slices of the parameters",
    .run = run_tensor,
};
