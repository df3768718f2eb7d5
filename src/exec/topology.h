/* SPDX-License-Identifier: MIT */
/* topology.h - which ranks, lanes and shards the job has, and which are this rank's. Private to
 * exec/.
 *
 * Constant after creation: any thread reads it.
 */
#ifndef EXEC_TOPOLOGY_H
#define EXEC_TOPOLOGY_H

#include <stdbool.h>
#include <stdint.h>

#include "graph/graph.h"

struct transport;

/* The ranks, lanes and shards of the job, and this rank's place among them. Constant after
 * creation. */
struct exec_topology {
    int rank, ranks;                 /* of the job */
    int node, nodes;                 /* machines */
    int64_t shards;                  /* that these ranks run, numbered from 0 */
    int64_t first_shard;             /* what the job calls the first of them */
    int64_t tree_first, tree_shards; /* the tree calls it so, and has so many */
    int n_lanes, all_lanes;          /* of this rank, of all ranks of this node */
    int first_lane;                  /* this node's first lane among those of the job */
    int job_lanes;
    int64_t job_shards; /* of all parts of the job */
    int64_t *begins;    /* the first shard of each rank; one more: the end */
};

/* Parameters that this rank has, in the order of the model. */
struct exec_model {
    int count;
    const struct value **params;
    int *numbers; /* of each in the whole model */
    int total;    /* parameters and averages of that */
};

/* Shards [first, first + count) of a lane of the job, and of a node. */
void topology_lane_row(const struct exec_topology *topology, int lane, int64_t *first,
                       int64_t *count);
void topology_node_row(const struct exec_topology *topology, const struct transport *transport,
                       int node, int64_t *first, int64_t *count);
/* The first shard of this rank, as the job numbers it, and the end. */
int64_t topology_own_first(const struct exec_topology *topology);
int64_t topology_own_end(const struct exec_topology *topology);

#endif /* EXEC_TOPOLOGY_H */
