/* SPDX-License-Identifier: MIT */
/* layers.c - layers of a forward graph. */
#include "graph/layers.h"

#include <string.h>

#include "base/mem.h"
#include "graph/op.h"

/* Marks the nodes that the output is made by: values are made before they are used, so one walk
 * from the end finds them. needed[node's place in the order]. */
static void mark_needed(const struct graph *graph, bool *needed, bool *wanted)
{
    const struct value *output = graph_roles((struct graph *)graph)->output;

    wanted[output->id] = true;
    for (int n = graph_node_count(graph) - 1; n >= 0; n--) {
        const struct node *node = graph_node(graph, n);
        for (int i = 0; i < node->n_out; i++)
            needed[n] = needed[n] || wanted[node->out[i]->id];
        for (int i = 0; i < node->n_in && needed[n]; i++)
            wanted[node->in[i]->id] = true;
    }
}

/* What a layer is called for: not for how its input lies, nor for its bias. */
static bool is_main(const struct op *op)
{
    return op != &op_reorder && op != &op_reshape && op != &op_bias;
}

static void add_source(struct graph_layer *layer, int source)
{
    int at = layer->n_sources;

    for (int i = 0; i < layer->n_sources; i++) {
        if (layer->sources[i] == source)
            return;
    }
    if (layer->n_sources == GRAPH_NODE_IN)
        return;
    for (; at > 0 && layer->sources[at - 1] > source; at--)
        layer->sources[at] = layer->sources[at - 1];
    layer->sources[at] = source;
    layer->n_sources++;
}

/* of_value[id]: the layer that made a value, or -1. */
static void add_node(struct graph_layers *layers, const struct node *node, int *of_value)
{
    const int number = layers->count - 1;
    struct graph_layer *layer = &layers->layer[number];
    const struct shape *out = &node->out[0]->shape;

    if (is_main(node->op) || !layer->op)
        layer->op = node->op->name;
    layer->output = shape_of(out->rank - 1, out->dim + 1);
    layer->flops += graph_node_flops(node);
    for (int i = 0; i < node->n_in; i++) {
        const struct value *in = node->in[i];
        if (in->kind == VALUE_PARAM)
            layer->parameters += shape_count(&in->shape);
        else if (of_value[in->id] >= 0 && of_value[in->id] != number)
            add_source(layer, of_value[in->id]);
    }
    for (int i = 0; i < node->n_out; i++)
        of_value[node->out[i]->id] = number;
}

static void gather(const struct graph *graph, struct graph_layers *layers, const bool *needed,
                   int *of_value)
{
    const struct value *input = graph_roles((struct graph *)graph)->input;

    for (int i = 0; i < graph_value_count(graph); i++)
        of_value[i] = -1;
    layers->layer[0] =
        (struct graph_layer){ .name = input->name,
                              .op = "",
                              .output = shape_of(input->shape.rank - 1, input->shape.dim + 1) };
    of_value[input->id] = 0;
    layers->count = 1;
    for (int n = 0; n < graph_node_count(graph); n++) {
        const struct node *node = graph_node(graph, n);
        if (!needed[n])
            continue;
        if (strcmp(layers->layer[layers->count - 1].name, node->name) != 0 ||
            layers->count == 1)
            layers->layer[layers->count++] = (struct graph_layer){ .name = node->name };
        add_node(layers, node, of_value);
    }
}

enum status graph_layers_make(const struct graph *graph, struct graph_layers *out)
{
    const size_t n_nodes = (size_t)graph_node_count(graph) + 1,
                 n_values = (size_t)graph_value_count(graph);
    struct graph_layers layers = { 0 };
    bool *needed = NULL, *wanted = NULL;
    int *of_value = NULL;

    enum status status = mem_alloc(n_nodes, sizeof *layers.layer, &layers.layer);
    if (status == STATUS_OK)
        status = mem_alloc(n_nodes, sizeof *needed, &needed);
    if (status == STATUS_OK)
        status = mem_alloc(n_values, sizeof *wanted, &wanted);
    if (status == STATUS_OK)
        status = mem_alloc(n_values, sizeof *of_value, &of_value);
    if (status == STATUS_OK) {
        mark_needed(graph, needed, wanted);
        gather(graph, &layers, needed, of_value);
        *out = layers;
    } else {
        graph_layers_release(&layers);
    }
    mem_free(needed);
    mem_free(wanted);
    mem_free(of_value);
    return status;
}

void graph_layers_release(struct graph_layers *layers)
{
    mem_free(layers->layer);
    *layers = (struct graph_layers){ 0 };
}
