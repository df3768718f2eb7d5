/* SPDX-License-Identifier: MIT */
/* print.h - what the pictures of a graph share. Private to graph/. */
#ifndef GRAPH_PRINT_H
#define GRAPH_PRINT_H

#include "graph/graph.h"

/* Calls fn with what flows into a user of `value`: with the value itself if a node makes it; if it
 * is flat, with every value in it that a node makes. Returns how many; 0: it is given. */
int graph_each_made(const struct graph *graph, const struct value *value,
                    void (*fn)(void *arg, const struct value *made), void *arg);

/* The attributes of a node that are not zero, each after a space: " stride=1x1 pad=1x1". */
void graph_print_attrs(const struct node *node, struct strbuf *out);

#endif /* GRAPH_PRINT_H */
