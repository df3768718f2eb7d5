/* SPDX-License-Identifier: MIT */
/* remote.c - gives sums of gradients to servers, and waits for the parameters that they make of
 * them.
 *
 * An executor's lanes hold partial sums along the tree, as many as their rows make. What goes to
 * servers are the sums that the whole row makes, which are fewer:
 *
 *   V = 8, shards [2, 6) on lanes of two   hold [2,4) | [4,6)   and give [2,4) [4,6)
 *   V = 8, shards [0, 4) on lanes of two   hold [0,2) | [2,4)   and give [0,4)
 *
 * In the first case lanes' sums go as they lie, when the last lane has announced the bucket. In the
 * second every lane adds a part of the bucket, as it does before an update (reduce.c), and the last
 * to be ready gives it. Rows of tables are put together likewise (rows.c).
 */
#include <stdatomic.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/trace.h"
#include "exec/account.h"
#include "exec/exec.h"
#include "exec/layout.h"
#include "exec/remote.h"
#include "exec/shared.h"
#include "exec/sums.h"
#include "exec/topology.h"

/* The nodes of the tree that a row of shards makes. */
static int nodes_of(const struct exec_topology *topology, int64_t first, int64_t count,
                    struct tree_node out[2 * TREE_DEPTH])
{
    struct tree_stack stack;

    tree_stack_init(&stack, topology->tree_shards);
    for (int64_t v = first; v < first + count; v++) {
        tree_stack_push(&stack, topology->tree_first + v);
        while (tree_stack_can_add(&stack))
            tree_stack_add(&stack);
    }
    memcpy(out, stack.node, (size_t)stack.count * sizeof *out);
    return stack.count;
}

enum status remote_create(const struct sums *sums, struct remote **out)
{
    const struct exec_topology *topology = sums->topology;
    const struct exec_layout *layout = sums->layout;
    struct tree_node nodes[2 * TREE_DEPTH];
    int64_t first, count;
    int n_parts = 0;

    if (layout->gathers.count > 0)
        return FAIL(
            STATUS_USAGE,
            "--sync-batch-norm: workers with servers do not meet in the middle of a step");
    TRY(mem_alloc(1, sizeof **out, out));
    struct remote *remote = *out;
    for (int i = 0; i < topology->n_lanes; i++) {
        topology_lane_row(topology, topology->rank * topology->n_lanes + i, &first, &count);
        n_parts += nodes_of(topology, first, count, nodes);
    }
    remote->n_sums = nodes_of(topology, 0, topology->shards, nodes);
    for (int i = 0; i < remote->n_sums; i++)
        remote->sums[i].node = nodes[i];
    remote->is_direct = n_parts == remote->n_sums;
    for (int b = 0; b < layout->buckets.count; b++) {
        if (bucket_is_table(layout, b))
            TRY(mem_alloc((size_t)(remote->n_sums * rows_threads(sums)),
                          sizeof *remote->ranges[b], &remote->ranges[b]));
    }
    return STATUS_OK;
}

void remote_destroy(struct remote *remote)
{
    for (int b = 0; remote && b < GRAPH_NODE_IN; b++)
        mem_free(remote->ranges[b]);
    mem_free(remote);
}

void remote_start(struct remote *remote, const struct tree_part *parts)
{
    for (int i = 0; i < remote->n_sums; i++)
        remote->sums[i].data = remote->is_direct ? parts[i].data : remote->data[i];
}

void remote_sum(const struct sums *sums, size_t at, size_t count, float *scratch)
{
    const struct remote *remote = sums->remote;

    for (int i = 0; i < remote->n_sums; i++) {
        const float *sum = tree_combine_node(sums->memory->parts, sums->memory->n_parts,
                                             sums->topology->tree_shards, remote->sums[i].node,
                                             at, count, scratch);
        memcpy(remote->data[i] + at, sum, count * sizeof *sum);
    }
}

static enum status give_rows(const struct sums *sums, int b)
{
    const struct exec_remote *to = sums->config->remote;
    const struct remote *remote = sums->remote;
    struct exec_rows lists[2 * TREE_DEPTH];

    for (int i = 0; i < remote->n_sums; i++)
        lists[i] = rows_join(sums, b, i);
    return to->give_rows(to->arg, b, lists, remote->n_sums);
}

static enum status give(const struct sums *sums, int b)
{
    const struct exec_remote *to = sums->config->remote;

    return bucket_is_table(sums->layout, b) ? give_rows(sums, b) : to->give(to->arg, b);
}

enum status remote_arrive(const struct sums *sums, struct lane_clock *clock, int b)
{
    const uint32_t lanes = (uint32_t)sums->topology->all_lanes;
    const uint32_t came =
        atomic_fetch_add_explicit(&sums->remote->arrived[b], 1, memory_order_acq_rel) + 1;

    if (came % lanes != 0)
        return STATUS_OK;
    account_meet(clock->account, "give");
    const struct span span = clock_begin_comm(clock);
    const enum status status = give(sums, b);
    clock_end_comm(clock, span, "push", clock->account->bucket_names[b]);
    return status;
}

enum status remote_await(const struct exec_remote *from, struct lane_clock *clock, int b)
{
    struct exec_account *account = clock->account;

    account_meet(account, "await");
    const int64_t traced = trace_begin(clock->trace), begin = clock_ns();
    if (clock->computes)
        overlap_leave(&account->overlap, begin);
    const enum status status = from->await(from->arg, b);
    const int64_t end = clock_ns();
    if (clock->computes)
        overlap_enter(&account->overlap, end);
    clock->times.wait += end - begin;
    trace_end(clock->trace, traced, TRACE_WAIT, "pull", account->bucket_names[b]);
    return status;
}
