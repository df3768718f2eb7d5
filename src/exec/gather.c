/* SPDX-License-Identifier: MIT */
/* gather.c - where shards meet in the middle of a step: shard_gather.
 *
 * A gather has a table a shard in memory that all ranks see, one after the other: together they are its
 * output, so nothing is copied. The instruction that makes a shard's table writes it there; then
 * the lane raises met[g], and before the first instruction that reads all tables it waits until
 * every lane has:
 *
 *   make own table | met[g] += 1 | what else there is to do | met[g] = (s + 1) L | read all tables
 *
 * A lane cannot do so in the middle of one of several shards, as the others' tables would come only
 * after its own: so each lane has one shard. One without samples gives tables of zeros and waits for
 * nothing.
 *
 * Why a table of step s is not written over while somebody still reads it: a lane begins step s + 1
 * after lane_reduce has seen ready[b] of step s of all lanes for every bucket b. What reads tables makes
 * statistics or a gradient that end in some bucket (plan.c makes sure of it), so a lane raises that
 * bucket's ready after its last look at any table. Raising is a release and waiting an acquire, so
 * the look comes before the write.
 *
 * Why there is no deadlock: gathers are met in the order of the graph, which all lanes share; a lane
 * raises met[g] after it has waited for gathers before g and for updates of the step before alone,
 * and all lanes finish those without any gather of this step.
 */
#include <string.h>

#include "base/mem.h"
#include "exec/state.h"
#include "graph/op.h"

enum { LINE = 64 };

enum status gathers_find(struct exec *exec)
{
    const struct graph *graph = exec->config.train;
    struct plan_gathers *gathers = &exec->gathers;

    if (exec->config.batch == 0) /* no step, so no meeting */
        return STATUS_OK;
    TRY(mem_alloc((size_t)graph_node_count(graph) + 1, sizeof *gathers->item, &gathers->item));
    for (int n = 0; n < graph_node_count(graph); n++) {
        const struct node *node = graph_node(graph, n);
        if (!node->op->meets)
            continue;
        const struct value *own = node->in[0];
        const size_t bytes = (size_t)shape_count(&own->shape) * dtype_size(own->dtype);
        const size_t all = (size_t)exec->shards * bytes;
        if (node->attrs.shards != exec->shards)
            return FAIL(STATUS_MISMATCH, "node %s gathers %lld shards, there are %lld",
                        node->name, (long long)node->attrs.shards, (long long)exec->shards);
        gathers->item[gathers->count++] =
            (struct plan_gather){ .node = node, .offset = exec->tables_bytes, .bytes = bytes };
        exec->tables_bytes += (all + LINE - 1) / LINE * LINE;
    }
    return STATUS_OK;
}

enum status gathers_check(const struct exec *exec)
{
    if (exec->gathers.count == 0 || exec->job_lanes == exec->shards)
        return STATUS_OK;
    return FAIL(
        STATUS_USAGE,
        "--sync-batch-norm needs one shard a thread: %lld shards on %d x %d threads: use "
        "--shards %d",
        (long long)exec->shards, exec->ranks, exec->config.threads,
        exec->ranks * exec->config.threads);
}

void lane_give_table(struct lane *lane, int g)
{
    struct exec *exec = lane->exec;

    exec_meet(exec, "met");
    lane_signal(lane, exec->program->made[g]);
}

void lane_give_empty_tables(struct lane *lane)
{
    const struct exec *exec = lane->exec;

    for (int g = 0; g < exec->gathers.count; g++) {
        const struct plan_gather *gather = &exec->gathers.item[g];
        memset(exec->tables + gather->offset + (size_t)lane->first * gather->bytes, 0,
               gather->bytes);
        lane_give_table(lane, g);
    }
}

enum status lane_await_tables(struct lane *lane, int end)
{
    struct exec *exec = lane->exec;

    for (; lane->next_gather < end; lane->next_gather++)
        TRY(exec_wait(exec, lane, exec->program->gathered[lane->next_gather],
                      "shard_gather of batch statistics"));
    return STATUS_OK;
}
