/* layout.h - where the boxes and edges of a drawn graph go. Private to graph/.
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
 * (samples, parameters, state) is a pill beside each of its users instead of an edge.
 */
#ifndef GRAPH_LAYOUT_H
#define GRAPH_LAYOUT_H

#include "graph/graph.h"

/* Lengths are pixels. Text of size s is taken to be 0.6 s wide a character. */
enum {
    LAYOUT_BOX_HEIGHT = 56,
    LAYOUT_PILL_HEIGHT = 16,
    LAYOUT_MARGIN = 20,
    LAYOUT_TEXT_MAX = 34, /* characters of a line that are shown */
    LAYOUT_PILL_TEXT_MAX = 22,
};

struct layout_point {
    double x, y;
};

struct layout_pill {
    const struct value *value;
    double x, y, width;
};

struct layout_box {
    const struct node *node;
    double x, y, width, height;
    struct layout_pill pills[GRAPH_IN + 1];
    int n_pills;
};

/* Cubic curves end to end: points[0], then three a curve. */
struct layout_edge {
    const struct value *value; /* what flows; the first of several */
    int from, to;              /* boxes */
    bool is_saved;             /* kept by forward for backward */
    struct layout_point *points;
    int n_points;
};

struct layout {
    double width, height;
    struct layout_box *boxes; /* in running order */
    int n_boxes;
    struct layout_edge *edges;
    int n_edges;
    struct arena *arena; /* owns all of it */
};

MUST_CHECK enum status layout_create(const struct graph *graph, struct layout **out);
void layout_destroy(struct layout *layout); /* NULL is allowed */

/* Makers of a value: the node that makes it, or of a flat value those of all that lies in it.
 * Calls fn with each, and with the value it makes. */
void layout_each_maker(const struct graph *graph, const struct value *value,
                       void (*fn)(void *arg, const struct value *made), void *arg);

#endif /* GRAPH_LAYOUT_H */
