/* SPDX-License-Identifier: MIT */
/* file.h - a forward graph as JSON, and back: what one machine may tell another about a model.
 *
 * A file is data, never code, and may be hostile. It holds inputs, parameters with how they begin,
 * running averages, and nodes of the ops of a table, each with the attributes that the table allows it;
 * no numbers of ids or labels beyond `below`, no size beyond the limits here. What was read passed
 * graph_verify. Values have the numbers that they have in the graph that was written, so that
 * parameters begin with the same bits and dropout draws from the same streams.
 *
 * The file holds the graph of training. The graph of evaluation is made from it: without dropout, batch
 * norms with what they have learnt.
 */
#ifndef GRAPH_FILE_H
#define GRAPH_FILE_H

#include "base/json.h"
#include "graph/graph.h"

enum { GRAPH_FILE_ITEMS = 1 << 14 };           /* values and nodes */
#define GRAPH_FILE_ELEMENTS ((int64_t)1 << 31) /* of one sample's value; of all parameters */

struct graph_file_config {
    struct extents extents; /* of the graph that is made; lengths 0: those in the file */
    bool training;
    /* Numbers in the inputs that hold ids or labels are less than these; 0: it holds none. */
    int64_t below_input, below_second, below_target;
};

/* Adds the graph as one JSON object. It has not seen a pass, and its ops are in the table. */
MUST_CHECK enum status graph_file_print(struct graph *graph, struct strbuf *out);

/* Makes the graph that the object says. Failure: STATUS_CORRUPT with the item and the reason. */
MUST_CHECK enum status graph_file_build(const struct json_value *object,
                                        const struct graph_file_config *config,
                                        struct graph **out);

#endif /* GRAPH_FILE_H */
