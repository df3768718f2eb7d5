/* SPDX-License-Identifier: MIT */
/* picture.h - where the boxes and edges of a drawn graph go. Private to graph/.
 *
 *   forward   backward   weights   reduce and update
 *   +-----+    +-----+   +-----+
 *   | a   |    | d.a |<  | d.w |-->| sum |-->| update |
 *   +--+--+    +--^--+ \ +-----+
 *      v          |     \
 *   +-----+    +-----+
 *   | loss|....| d.l |
 *   +-----+    +-----+
 *
 * Forward nodes go down on the left. Backward nodes go up beside them, each on the row of the
 * forward node whose gradient it makes. Those that end in a parameter's gradient stand to their
 * right, and what sums and updates follows from left to right, a bucket a line. What is given
 * (samples, parameters, state) is a pill beside each of its users instead of an edge. Branches have
 * columns of their own within a lane, shortcuts pass beside the boxes. A long model that is drawn
 * alone goes on beside itself.
 */
#ifndef GRAPH_PICTURE_PICTURE_H
#define GRAPH_PICTURE_PICTURE_H

#include "graph/graph.h"

/* Lengths are pixels. Text of size s is taken to be 0.6 s wide a character. */
enum {
    PICTURE_BOX_HEIGHT = 56,
    PICTURE_PILL_HEIGHT = 16,
    PICTURE_MARGIN = 20,
    PICTURE_TOP = 92,      /* where the boxes begin: below title and legend */
    PICTURE_TEXT_MAX = 34, /* characters of a line that are shown */
    PICTURE_PILL_TEXT_MAX = 22,
};

struct picture_point {
    double x, y;
};

struct picture_pill {
    const struct value *value;
    double x, y, width;
};

struct picture_box {
    const struct node *node;
    double x, y, width, height;
    struct picture_pill pills[GRAPH_IN + 1];
    int n_pills;
};

/* Cubic curves end to end: points[0], then three a curve. */
struct picture_edge {
    const struct value *value; /* what flows; the first of several */
    int from, to;              /* boxes */
    bool is_saved;             /* kept by forward for backward */
    struct picture_point *points;
    int n_points;
};

struct picture {
    double width, height;
    struct picture_box *boxes; /* in running order */
    int n_boxes;
    struct picture_edge *edges;
    int n_edges;
    struct arena *arena; /* owns all of it */
};

MUST_CHECK enum status picture_create(const struct graph *graph, struct picture **out);
void picture_destroy(struct picture *picture); /* NULL is allowed */

#endif /* GRAPH_PICTURE_PICTURE_H */
