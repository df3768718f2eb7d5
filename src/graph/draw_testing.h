/* SPDX-License-Identifier: MIT */
/* draw_testing.h - what must hold of every drawn graph, for the tests of this folder and of those
 * above it, which have passes and models to draw. */
#ifndef GRAPH_DRAW_TESTING_H
#define GRAPH_DRAW_TESTING_H

#include "graph/graph.h"

/* Draws the graph and checks that the text is well-formed XML of characters that XML allows, that
 * every node has one box, that boxes, pills and the legend lie apart and inside the picture, that
 * no edge runs through one of them or out of the picture, and that every class and id is the
 * picture's own. Returns how many edges there are. */
int draw_testing_check(const struct graph *graph);

#endif /* GRAPH_DRAW_TESTING_H */
