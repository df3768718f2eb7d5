/* SPDX-License-Identifier: MIT */
/* layers.h - a model's forward graph as people see it: a table of layers, and lines between them.
 *
 * A layer is the nodes in a row that share a name: a convolution and its bias. What only serves the loss
 * is no layer. The input is the first.
 */
#ifndef GRAPH_LAYERS_H
#define GRAPH_LAYERS_H

#include "graph/graph.h"

struct graph_layer {
    const char *name, *op;
    struct shape output; /* of one sample */
    int64_t parameters;
    double flops; /* of one sample */
    int n_sources;
    int sources[GRAPH_NODE_IN]; /* layers that it reads, ascending */
};

struct graph_layers {
    int count;
    struct graph_layer *layer;
};

/* Of a graph as model_build makes it for a batch of one. Release it with graph_layers_release. */
MUST_CHECK enum status graph_layers_make(const struct graph *graph, struct graph_layers *out);
void graph_layers_release(struct graph_layers *layers);

/* Lines at the left of a table with a row a layer:
 *
 *   ●─╮  relu1       read by the next layer and by the one that the line leads to
 *   ● │  conv2
 *   ●─╯  add
 *
 * A connection that skips layers has a column, at most GRAPH_RAILS at a time. */
enum { GRAPH_RAILS = 10 };

struct graph_rails {
    const struct graph_layers *layers; /* borrowed */
    int *column; /* of what leaves layer i and skips layers; -1: nothing */
    int *end;    /* the last layer it leads to */
    int columns;
    int left_out; /* connections for which there was no column */
};

MUST_CHECK enum status graph_rails_make(const struct graph_layers *layers,
                                        struct graph_rails *out);
void graph_rails_release(struct graph_rails *rails);
/* Does layer i not read the one before it? Then a line without a layer stands between them. */
bool graph_rails_has_gap(const struct graph_rails *rails, int i);
/* The line of layer i, or the gap above it; always as wide. utf8: else plain characters. */
void graph_rails_print(const struct graph_rails *rails, int i, bool gap, bool utf8,
                       struct strbuf *out);

#endif /* GRAPH_LAYERS_H */
