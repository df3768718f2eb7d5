/* SPDX-License-Identifier: MIT */
/* demand.h - what a graph asks of a device: floating-point operations, and bytes to and from memory.
 *
 * Bytes are the least that kernels can move which keep nothing between nodes: every node reads each of its inputs once and
 * writes each of its outputs once, in the types in which plans have them (kernel/precision.h). An update reads
 * parameters, gradients and state, and writes parameters and state, in 16 bits beside f32 the former as well. Of a table whose
 * rows are picked by ids, rows count that may have been picked: one an id, or all if those are fewer. Not counted are
 * sums over shards and ranks, which one shard has none of, copies of another type, and what a kernel keeps
 * for itself. A cache that holds values from one node to the next saves some of these bytes.
 *
 * Of a graph after the passes of a strategy this is one shard's forward and backward, and the update.
 */
#ifndef EXEC_DEMAND_H
#define EXEC_DEMAND_H

#include "graph/graph.h"

struct demand {
    double flops, bytes;
};

/* For the rows that the graph has now. precision: f32, or what a device computes in instead. */
MUST_CHECK enum status demand_read(const struct graph *graph, enum dtype precision,
                                   struct demand *out);

#endif /* EXEC_DEMAND_H */
