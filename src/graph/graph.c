/* SPDX-License-Identifier: MIT */
/* graph.c - building and walking graphs. */
#include "graph/graph.h"

#include <string.h>

#include "base/arena.h"
#include "base/mem.h"
#include "graph/op.h"

struct graph {
    struct arena *arena;
    const char *name;
    enum status status; /* the first failure */
    char *failure;      /* its text, as it may be asked for later */
    struct value **values;
    int n_values, max_values;
    struct node **nodes;
    int n_nodes, max_nodes, next_node_id;
    enum phase phase;
    int stage;
    struct graph_roles roles;
};

enum status graph_create(const char *name, struct graph **out)
{
    struct graph *graph;

    TRY(mem_alloc(1, sizeof *graph, &graph));
    graph->stage = -1;
    enum status status = arena_create(&graph->arena);
    if (status == STATUS_OK && !(graph->name = arena_strdup(graph->arena, name)))
        status = STATUS_NO_MEMORY;
    if (status != STATUS_OK) {
        graph_destroy(graph);
        return status;
    }
    *out = graph;
    return STATUS_OK;
}

void graph_destroy(struct graph *graph)
{
    if (!graph)
        return;
    arena_destroy(graph->arena);
    mem_free(graph->values);
    mem_free(graph->nodes);
    mem_free(graph->failure);
    mem_free(graph);
}

enum status graph_fail(struct graph *graph, enum status status)
{
    if (graph->status == STATUS_OK) {
        graph->status = status;
        if (mem_strdup(status_message(), &graph->failure) != STATUS_OK)
            graph->failure = NULL;
    }
    return status;
}

enum status graph_status(const struct graph *graph)
{
    if (graph->status != STATUS_OK && graph->failure)
        return status_set(graph->status, graph->failure);
    return graph->status;
}

const char *graph_name(const struct graph *graph)
{
    return graph->name;
}

void *graph_alloc(struct graph *graph, size_t count, size_t size)
{
    if (graph->status != STATUS_OK)
        return NULL;
    void *block = arena_alloc(graph->arena, count, size);
    if (!block)
        graph_fail(graph, STATUS_NO_MEMORY);
    return block;
}

/* Room for one more pointer in a growing list. */
static enum status make_room(struct graph *graph, void *list, int count, int *max)
{
    if (count < *max)
        return STATUS_OK;
    const int more = *max ? *max * 2 : 64;
    enum status status = mem_grow(list, (size_t)*max, (size_t)more, sizeof(void *));
    if (status != STATUS_OK)
        return graph_fail(graph, status);
    *max = more;
    return STATUS_OK;
}

/* Values ------------------------------------------------------------------------------- */

static struct value *add_value(struct graph *graph, const char *name, enum value_kind kind,
                               enum dtype dtype, struct shape shape)
{
    int64_t count;

    if (graph->status != STATUS_OK)
        return NULL;
    if (shape_checked_count(&shape, &count) != STATUS_OK) {
        graph_fail(graph, FAIL(STATUS_USAGE, "%s: %s", name, status_message()));
        return NULL;
    }
    if (make_room(graph, &graph->values, graph->n_values, &graph->max_values) != STATUS_OK)
        return NULL;
    struct value *value = graph_alloc(graph, 1, sizeof *value);
    char *copy = value ? arena_strdup(graph->arena, name) : NULL;
    if (!copy) {
        graph_fail(graph, STATUS_NO_MEMORY);
        return NULL;
    }
    value->id = graph->n_values;
    value->stage = -1;
    value->name = copy;
    value->kind = kind;
    value->dtype = dtype;
    value->shape = shape;
    value->layout = shape.rank == 4 ? LAYOUT_NHWC : LAYOUT_PLAIN;
    graph->values[graph->n_values++] = value;
    return value;
}

struct value *graph_input(struct graph *graph, const char *name, enum dtype dtype,
                          struct shape shape)
{
    struct value *value = add_value(graph, name, VALUE_INPUT, dtype, shape);
    if (value) {
        value->batched = true;
        value->part = PART_ROWS;
    }
    return value;
}

struct value *graph_sequence(struct graph *graph, const char *name, enum dtype dtype,
                             struct shape shape, int which)
{
    struct value *value = graph_input(graph, name, dtype, shape);
    if (value)
        value->sequence = which + 1;
    return value;
}

/* A value that is saved under its name. */
static struct value *add_saved(struct graph *graph, const char *name, enum value_kind kind,
                               struct shape shape, float initial)
{
    if (graph->status == STATUS_OK && graph_find_value(graph, name)) {
        graph_fail(graph, FAIL(STATUS_USAGE, "two parameters are named %s", name));
        return NULL;
    }
    struct value *value = add_value(graph, name, kind, DTYPE_F32, shape);
    if (value) {
        value->initial = initial;
        value->layout = shape.rank == 4   ? LAYOUT_HWIO
                        : shape.rank == 3 ? LAYOUT_WIO
                        : shape.rank == 2 ? LAYOUT_IO
                                          : LAYOUT_PLAIN;
    }
    return value;
}

struct value *graph_param(struct graph *graph, const char *name, struct shape shape,
                          float bound)
{
    struct value *value = add_saved(graph, name, VALUE_PARAM, shape, 0);
    if (value)
        value->init_bound = bound;
    return value;
}

struct value *graph_param_constant(struct graph *graph, const char *name, struct shape shape,
                                   float initial)
{
    return add_saved(graph, name, VALUE_PARAM, shape, initial);
}

struct value *graph_param_table(struct graph *graph, const char *name, struct shape shape,
                                float deviation)
{
    struct value *value = add_saved(graph, name, VALUE_PARAM, shape, 0);
    if (value) {
        value->layout = LAYOUT_PLAIN;
        value->init_deviation = deviation;
    }
    return value;
}

struct shape graph_saved_shape(const struct value *value)
{
    const struct shape *s = &value->shape;
    return value->is_turned ? shape_2(s->dim[1], s->dim[0]) : *s;
}

struct shape_slice graph_saved_slice(const struct value *value)
{
    struct shape_slice slice = value->slice;

    if (value->is_turned)
        slice.axis = 1 - slice.axis;
    return slice;
}

struct shape graph_whole_shape(const struct value *value)
{
    const struct shape saved = graph_saved_shape(value);
    const struct shape_slice slice = graph_saved_slice(value);

    return slice_whole_shape(&slice, &saved);
}

struct value *graph_average(struct graph *graph, const char *name, struct shape shape,
                            float initial)
{
    struct value *value = add_saved(graph, name, VALUE_AVERAGE, shape, initial);
    if (value)
        value->layout = LAYOUT_PLAIN;
    return value;
}

struct value *graph_state(struct graph *graph, const char *name, struct shape shape)
{
    return add_value(graph, name, VALUE_STATE, DTYPE_F32, shape);
}

struct value *graph_flat(struct graph *graph, const char *name, int64_t count)
{
    return add_value(graph, name, VALUE_FLAT, DTYPE_F32, shape_1(count));
}

int graph_value_count(const struct graph *graph)
{
    return graph->n_values;
}

struct value *graph_value(const struct graph *graph, int id)
{
    return graph->values[id];
}

struct value *graph_find_value(const struct graph *graph, const char *name)
{
    for (int i = 0; i < graph->n_values; i++) {
        if (strcmp(graph->values[i]->name, name) == 0)
            return graph->values[i];
    }
    return NULL;
}

struct graph_roles *graph_roles(struct graph *graph)
{
    return &graph->roles;
}

/* Nodes -------------------------------------------------------------------------------- */

/* How an output lies in memory; the rules stand in tensor/shape.h and kernel/kernel.h. */
enum layout op_output_layout(const struct node *node, int i, const struct shape *shape)
{
    if (node->op == &op_reorder)
        return node->attrs.layout;
    if (node->op->moves || node->op->talks || node->op == &op_tp_copy)
        return node->in[0]->layout;
    if (node->op->may_overwrite && i == node->op->overwrites)
        return node->in[0]->layout;
    if (node->op == &op_linear_grad_weight && i == 0)
        return node->attrs.is_plain ? LAYOUT_PLAIN : LAYOUT_IO;
    if (node->op == &op_conv2d_grad_weight && i == 0)
        return node->attrs.layout == LAYOUT_OHWI ? LAYOUT_OHWI : LAYOUT_HWIO;
    if ((node->op == &op_conv2d_pool_grad_weight ||
         node->op == &op_conv2d_transpose_grad_weight) &&
        i == 0)
        return LAYOUT_HWIO;
    if ((node->op == &op_conv2d_stats_grad || node->op == &op_norm_conv2d_grad ||
         node->op == &op_norm_conv2d_stats_grad) &&
        i == 1)
        return LAYOUT_HWIO;
    if ((node->op == &op_conv1d_grad_weight || node->op == &op_conv1d_max_grad_weight) &&
        i == 0)
        return LAYOUT_WIO;
    if (shape->rank != 4)
        return LAYOUT_PLAIN;
    /* One channel or one pixel: both orders are the same. */
    const bool same = shape->dim[1] == 1 || shape->dim[2] * shape->dim[3] == 1;
    return node->op == &op_reshape && !same ? LAYOUT_PLAIN : LAYOUT_NHWC;
}

static enum status infer_node(const struct node *node, const struct shape *const *in,
                              struct op_shapes *out)
{
    for (int i = 0; i < GRAPH_IN; i++)
        out->in[i] = i < node->n_in ? in[i] : NULL;
    for (int i = 0; i < GRAPH_OUT; i++)
        out->dtype[i] = DTYPE_F32;
    return node->op->infer(node, out);
}

static enum status add_outputs(struct graph *graph, struct node *node)
{
    struct op_shapes shapes;
    const struct shape *in[GRAPH_IN] = { NULL };

    for (int i = 0; i < node->n_in && i < GRAPH_IN; i++)
        in[i] = &node->in[i]->shape;
    TRY(infer_node(node, in, &shapes));

    for (int i = 0; i < node->n_out; i++) {
        const char *name =
            i == 0 ? node->name : arena_printf(graph->arena, "%s.%d", node->name, i);
        const enum dtype dtype = node->op->any_dtype ? node->in[0]->dtype : shapes.dtype[i];
        struct value *value =
            name ? add_value(graph, name, VALUE_RESULT, dtype, shapes.out[i]) : NULL;
        if (!value)
            return graph->status == STATUS_OK ? STATUS_NO_MEMORY : graph->status;
        value->layout = op_output_layout(node, i, &value->shape);
        value->maker = node;
        value->form = VALUE_DENSE;
        node->out[i] = value;
    }
    return STATUS_OK;
}

struct node *graph_add(struct graph *graph, const struct op *op, const char *name,
                       struct value *const *in, int n_in, const struct attrs *attrs)
{
    static const struct attrs no_attrs;

    if (graph->status != STATUS_OK)
        return NULL;
    while (n_in > 0 && !in[n_in - 1])
        n_in--;
    for (int i = 0; i < n_in; i++) {
        if (!in[i])
            n_in = -1; /* a hole in the list is as wrong as too few */
    }
    if (n_in < op->min_in || n_in > op->max_in) {
        graph_fail(graph, FAIL(STATUS_USAGE, "node %s: %s takes %d to %d inputs", name,
                               op->name, op->min_in, op->max_in));
        return NULL;
    }
    struct node *node = graph_alloc(graph, 1, sizeof *node);
    /* One more than now, as autodiff may add what the node extends. */
    struct value **inputs = graph_alloc(graph, (size_t)n_in + 1, sizeof(struct value *));
    /* What flows backward is named after what it is the gradient of. */
    char *copy =
        arena_printf(graph->arena, "%s%s", graph->phase == PHASE_BACKWARD ? "d." : "", name);
    if (!node || !inputs || !copy ||
        make_room(graph, &graph->nodes, graph->n_nodes, &graph->max_nodes) != STATUS_OK) {
        graph_fail(graph, STATUS_NO_MEMORY);
        return NULL;
    }
    for (int i = 0; i < n_in; i++)
        inputs[i] = in[i];
    node->id = graph->next_node_id++;
    node->name = copy;
    node->op = op;
    node->attrs = attrs ? *attrs : no_attrs;
    node->phase = graph->phase;
    node->stage = graph->stage;
    node->n_in = n_in;
    node->in = inputs;
    node->n_out =
        op->max_out > op->min_out &&
                (node->attrs.with_bias || node->attrs.with_residual || node->attrs.with_state)
            ? op->max_out
            : op->min_out;
    enum status status = add_outputs(graph, node);
    if (status != STATUS_OK) {
        graph_fail(graph, FAIL(status, "node %s (%s): %s", name, op->name, status_message()));
        return NULL;
    }
    graph->nodes[graph->n_nodes++] = node;
    return node;
}

struct value *graph_apply(struct graph *graph, const char *op, const char *name,
                          struct value *a, struct value *b, struct value *c,
                          const struct attrs *attrs)
{
    struct value *const in[] = { a, b, c };
    const struct op *found = graph_find_op(op);

    BUG_ON(!found);
    struct node *node = graph_add(graph, found, name, in, 3, attrs);
    return node ? node->out[0] : NULL;
}

void graph_set_phase(struct graph *graph, enum phase phase)
{
    graph->phase = phase;
}

void graph_set_stage(struct graph *graph, int stage)
{
    graph->stage = stage;
}

void graph_replace(struct graph *graph, const struct value *old, struct value *by)
{
    struct graph_roles *roles = &graph->roles;
    struct value **const named[] = { &roles->input,  &roles->second, &roles->target,
                                     &roles->output, &roles->loss,   &roles->correct };

    for (int n = 0; n < graph->n_nodes; n++) {
        for (int i = 0; i < graph->nodes[n]->n_in; i++) {
            if (graph->nodes[n]->in[i] == old)
                graph->nodes[n]->in[i] = by;
        }
    }
    for (size_t i = 0; i < sizeof named / sizeof *named; i++) {
        if (*named[i] == old)
            *named[i] = by;
    }
    for (int i = 0; i < graph->n_values; i++) {
        if (graph->values[i]->kind == VALUE_AVERAGE && graph->values[i]->gradient == old)
            graph->values[i]->gradient = by;
    }
}

int graph_uses(const struct graph *graph, const struct value *value)
{
    const struct graph_roles *roles = &graph->roles;
    int uses = value == roles->output || value == roles->loss || value == roles->correct;

    for (int n = 0; n < graph->n_nodes; n++) {
        for (int i = 0; i < graph->nodes[n]->n_in; i++)
            uses += graph->nodes[n]->in[i] == value;
    }
    for (int i = 0; i < graph->n_values; i++)
        uses += graph->values[i]->kind == VALUE_AVERAGE && graph->values[i]->gradient == value;
    return uses;
}

/* Marks the values that others need that are marked, as nodes are in the order of use. */
static void mark_needed(const struct graph *graph, bool *needed)
{
    for (int n = graph->n_nodes - 1; n >= 0; n--) {
        const struct node *node = graph->nodes[n];
        bool any = false;
        for (int i = 0; i < node->n_out; i++)
            any |= needed[node->out[i]->id];
        for (int i = 0; any && i < node->n_in; i++)
            needed[node->in[i]->id] = true;
    }
}

static bool makes_needed(const struct node *node, const bool *needed)
{
    for (int i = 0; i < node->n_out; i++) {
        if (needed[node->out[i]->id])
            return true;
    }
    return false;
}

/* A parameter is needed by who reads it, an average also by who makes what it sees. */
static bool is_unused(const struct value *value, const bool *needed)
{
    const struct value *seen = value->gradient;

    if (value->kind != VALUE_PARAM && value->kind != VALUE_AVERAGE)
        return false;
    return !needed[value->id] && !(seen && seen->maker && makes_needed(seen->maker, needed));
}

static void take_out(struct graph *graph, const bool *needed)
{
    bool any = false;
    int kept = 0;

    for (int i = 0; i < graph->n_values; i++)
        any |= graph->values[i]->kind == VALUE_PARAM && is_unused(graph->values[i], needed);
    for (int i = 0; i < graph->n_values && any; i++) {
        struct value *value = graph->values[i];
        if (!is_unused(value, needed))
            continue;
        value->kind = VALUE_UNUSED;
        value->gradient = NULL;
    }
    for (int n = 0; n < graph->n_nodes && any; n++) {
        struct node *node = graph->nodes[n];
        if (makes_needed(node, needed))
            graph->nodes[kept++] = node;
    }
    graph->n_nodes = any ? kept : graph->n_nodes;
}

enum status graph_take_out_unused(struct graph *graph)
{
    const struct graph_roles *roles = &graph->roles;
    const struct value *const roots[] = { roles->loss, roles->output, roles->correct };
    bool *needed;

    TRY(graph_status(graph));
    TRY(mem_alloc((size_t)graph->n_values + 1, sizeof *needed, &needed));
    for (size_t i = 0; i < sizeof roots / sizeof *roots; i++) {
        if (roots[i])
            needed[roots[i]->id] = true;
    }
    mark_needed(graph, needed);
    take_out(graph, needed);
    mem_free(needed);
    return STATUS_OK;
}

int graph_node_count(const struct graph *graph)
{
    return graph->n_nodes;
}

struct node *graph_node(const struct graph *graph, int i)
{
    return graph->nodes[i];
}

enum status graph_set_order(struct graph *graph, struct node *const *nodes, int count)
{
    TRY(graph_status(graph));
    while (graph->max_nodes < count)
        TRY(make_room(graph, &graph->nodes, graph->max_nodes, &graph->max_nodes));
    for (int i = 0; i < count; i++)
        graph->nodes[i] = nodes[i];
    graph->n_nodes = count;
    return STATUS_OK;
}

/* Shapes and totals -------------------------------------------------------------------- */

struct extents graph_extents(const struct graph *graph)
{
    struct extents extents = { .rows = 1 };

    for (int i = 0; i < graph->n_values; i++) {
        const struct value *value = graph->values[i];
        if (value->batched)
            extents.rows = value->shape.dim[0];
        if (value->sequence)
            extents.length[value->sequence - 1] = value->shape.dim[1];
    }
    return extents;
}

enum status graph_infer(const struct graph *graph, struct extents extents, struct shape *shapes)
{
    for (int i = 0; i < graph->n_values; i++) {
        const struct value *value = graph->values[i];
        shapes[i] = value->shape;
        if (value->batched)
            shapes[i].dim[0] = extents.rows;
        if (value->sequence)
            shapes[i].dim[1] = extents.length[value->sequence - 1];
    }
    for (int n = 0; n < graph->n_nodes; n++) {
        const struct node *node = graph->nodes[n];
        const struct shape *in[GRAPH_IN] = { NULL };
        struct op_shapes result;

        for (int i = 0; i < node->n_in && i < GRAPH_IN; i++)
            in[i] = &shapes[node->in[i]->id];
        if (infer_node(node, in, &result) != STATUS_OK)
            return FAIL(STATUS_MISMATCH, "node %s (%s): %s", node->name, node->op->name,
                        status_message());
        for (int i = 0; i < node->n_out; i++)
            shapes[node->out[i]->id] = result.out[i];
    }
    return STATUS_OK;
}

double graph_node_flops(const struct node *node)
{
    const struct shape *in[GRAPH_IN] = { NULL };
    struct shape out[GRAPH_OUT] = { 0 };

    for (int i = 0; i < node->n_in && i < GRAPH_IN; i++)
        in[i] = &node->in[i]->shape;
    for (int i = 0; i < node->n_out; i++)
        out[i] = node->out[i]->shape;
    return node->op->flops ? node->op->flops(node, in, out) : (double)shape_count(&out[0]);
}

double graph_flops(const struct graph *graph, int64_t rows)
{
    struct extents extents = graph_extents(graph);
    struct shape *shapes;
    double total = 0;

    extents.rows = rows;
    if (mem_alloc((size_t)graph->n_values, sizeof *shapes, &shapes) != STATUS_OK)
        return 0;
    if (graph_infer(graph, extents, shapes) == STATUS_OK) {
        for (int n = 0; n < graph->n_nodes; n++) {
            const struct node *node = graph->nodes[n];
            const struct shape *in[GRAPH_IN] = { NULL };
            struct shape out[GRAPH_OUT] = { 0 };

            for (int i = 0; i < node->n_in && i < GRAPH_IN; i++)
                in[i] = &shapes[node->in[i]->id];
            for (int i = 0; i < node->n_out; i++)
                out[i] = shapes[node->out[i]->id];
            total +=
                node->op->flops ? node->op->flops(node, in, out) : (double)shape_count(&out[0]);
        }
    }
    mem_free(shapes);
    return total;
}

int64_t graph_param_count(const struct graph *graph)
{
    int64_t count = 0;

    for (int i = 0; i < graph->n_values; i++) {
        const struct shape whole = graph_whole_shape(graph->values[i]);
        if (graph->values[i]->kind == VALUE_PARAM)
            count += shape_count(&whole);
    }
    return count;
}

const char *phase_name(enum phase phase)
{
    static const char *const names[] = { "forward", "backward", "reduce", "update" };
    return names[phase];
}
