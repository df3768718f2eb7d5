/* SPDX-License-Identifier: MIT */
/* topology.c - which shards belong to a rank, a lane and a node. */
#include "exec/topology.h"

#include "exec/now.h"
#include "transport/transport.h"

void topology_lane_row(const struct exec_topology *topology, int lane, int64_t *first,
                       int64_t *count)
{
    const int rank = lane / topology->n_lanes, number = lane % topology->n_lanes;
    const int64_t begin = topology->begins[rank];
    const int64_t mine = topology->begins[rank + 1] - begin;

    *first = begin + number * mine / topology->n_lanes;
    *count = begin + (number + 1) * mine / topology->n_lanes - *first;
}

void topology_node_row(const struct exec_topology *topology, const struct transport *transport,
                       int node, int64_t *first, int64_t *count)
{
    const int rank = transport_node_first(transport, node);
    const int end = rank + transport_node_size(transport, node);

    *first = topology->begins[rank];
    *count = topology->begins[end] - *first;
}

int64_t topology_own_first(const struct exec_topology *topology)
{
    return topology->first_shard + topology->begins[topology->rank];
}

int64_t topology_own_end(const struct exec_topology *topology)
{
    return topology->first_shard + topology->begins[topology->rank + 1];
}

struct samples now_samples(const struct exec_now *now, const struct exec_topology *topology,
                           int64_t v)
{
    const int64_t count = now->batch->samples, shards = topology->job_shards;
    const int64_t first = topology->first_shard + v;
    const int64_t begin = sampler_shard_begin(count, shards, first);

    return (struct samples){ begin, sampler_shard_begin(count, shards, first + 1) - begin };
}
