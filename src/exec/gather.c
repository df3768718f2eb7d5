/* SPDX-License-Identifier: MIT */
/* gather.c - where shards meet in the middle of a step: shard_gather.
 *
 * A gather has a table a shard in memory that all ranks see, one after the other: together they are
 * its output, so nothing is copied. The instruction that makes a shard's table writes it there; an
 * all_gather task of the step program follows it, and the computation that first reads all tables
 * waits for that task of all lanes.
 *
 * A lane cannot do so in the middle of one of several shards, as the others' tables would come only
 * after its own: so each lane has one shard. One without samples writes zeros.
 *
 * A table of step s is not written again while a lane still reads it: the program orders the write
 * of step s + 1 after the reads of step s, as it does for any memory.
 *
 * Why there is no deadlock: lanes come to gathers in program order, which all share, and all lanes
 * reach an all_gather without any later one.
 */
#include <string.h>

#include "base/mem.h"
#include "exec/exec.h"
#include "exec/layout.h"
#include "exec/topology.h"
#include "graph/op.h"

enum { LINE = 64 };

enum status gathers_find(const struct exec_config *config, const struct exec_topology *topology,
                         struct exec_layout *layout)
{
    const struct graph *graph = config->train;
    struct plan_gathers *gathers = &layout->gathers;

    if (config->batch == 0) /* no step, so no meeting */
        return STATUS_OK;
    TRY(mem_alloc((size_t)graph_node_count(graph) + 1, sizeof *gathers->item, &gathers->item));
    for (int n = 0; n < graph_node_count(graph); n++) {
        const struct node *node = graph_node(graph, n);
        if (!node->op->meets)
            continue;
        const struct value *own = node->in[0];
        const size_t bytes = (size_t)shape_count(&own->shape) * dtype_size(own->dtype);
        const size_t all = (size_t)topology->shards * bytes;
        if (node->attrs.shards != topology->shards)
            return FAIL(STATUS_MISMATCH, "node %s gathers %lld shards, there are %lld",
                        node->name, (long long)node->attrs.shards, (long long)topology->shards);
        gathers->item[gathers->count++] = (struct plan_gather){ .node = node,
                                                                .offset = layout->tables_bytes,
                                                                .bytes = bytes };
        layout->tables_bytes += (all + LINE - 1) / LINE * LINE;
    }
    return STATUS_OK;
}

enum status gathers_check(const struct exec_config *config,
                          const struct exec_topology *topology,
                          const struct exec_layout *layout)
{
    if (layout->gathers.count == 0 || topology->job_lanes == topology->shards)
        return STATUS_OK;
    return FAIL(
        STATUS_USAGE,
        "--sync-batch-norm needs one shard a thread: %lld shards on %d x %d threads: use "
        "--shards %d",
        (long long)topology->shards, topology->ranks, config->threads,
        topology->ranks * config->threads);
}

void gather_write_zeros(const struct exec_layout *layout, char *tables, int g, int64_t shard)
{
    const struct plan_gather *gather = &layout->gathers.item[g];

    memset(tables + gather->offset + (size_t)shard * gather->bytes, 0, gather->bytes);
}
