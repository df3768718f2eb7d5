/* SPDX-License-Identifier: MIT */
/* tensor.h - which layers ranks share, and how. Private to pass/. */
#ifndef PASS_TENSOR_H
#define PASS_TENSOR_H

#include "graph/op.h"
#include "pass/pass.h"

/* How a value is held by the ranks that share layers: whole, or cut along features or places. */
struct tensor_layout {
    enum op_axis axis; /* AXIS_NONE, AXIS_FEATURES or AXIS_PLACES */
    int parts;         /* of the axis, each of which is cut; 1 for AXIS_NONE */
};

struct tensor_state {
    struct graph *graph;
    int count, index;
    bool sequence;
    struct tensor_layout *layout; /* by value id; of what nodes so far have made */
    bool *wanted;                 /* by value id: a gradient flows back through it */
};

/* The way in which a node's work is shared, given the layouts of its inputs; NULL: each rank does all of
 * it. Fails where a parameter is cut already in a way that the node cannot have. out_parts: of the
 * features that it opens. */
MUST_CHECK enum status tensor_choose(const struct tensor_state *state, const struct node *node,
                                     const struct op_way **out, int *out_parts);
/* Should summands that a node makes become slices of places? Then all that use them can have those. */
bool tensor_wants_places(const struct tensor_state *state, const struct value *sum);

#endif /* PASS_TENSOR_H */
