/* SPDX-License-Identifier: MIT */
/* net_bucket.c - gradients and parameters of a bucket between nodes: reduce_scatter, update,
 * all_gather.
 *
 * A rail owns some stretches of each bucket. It sends the node's partial sums of what other nodes
 * own, receives theirs of its own stretches, adds all along the tree and updates. Then its part of
 * the parameters goes to all nodes. The optimizer's state is touched by its owner alone.
 *
 * Cost of a bucket of n bytes, N nodes of W rails: a rail sends and receives 2 n (N-1) / (N W), if
 * rows of shards are subtrees; 2 (N-1) messages each way.
 */
#include <string.h>

#include "exec/layout.h"
#include "exec/net.h"
#include "exec/pages.h"
#include "exec/shared.h"
#include "exec/sums.h"
#include "exec/topology.h"

static bool is_dense(const struct net *net, const struct task *task)
{
    return task->bucket >= 0 && !bucket_is_gathered(net->layout, task->bucket) &&
           !bucket_is_served(net->layout, task->bucket);
}

static struct net_most most_sums(const struct net *net, const struct task *task)
{
    int receives = 0;

    (void)task;
    for (int node = 0; node < net->topology->nodes; node++)
        receives += net->sums.n_of[node];
    return (struct net_most){ receives, net->sums.n_own * net->topology->nodes };
}

float *net_make_sum(struct net *net, int p, struct slice slice)
{
    const struct net_sums *sums = &net->sums;
    const struct tree_part *parts = &net->memory->parts[sums->own_parts];

    if (sums->n_own_parts == sums->n_own) /* the lanes' own */
        return (float *)parts[p].data;
    float *sum = sums->vectors + (size_t)p * net->layout->vector;
    for (size_t done = 0; done < slice.count; done += TREE_STRETCH) {
        const size_t left = slice.count - done;
        const size_t count = left < TREE_STRETCH ? left : TREE_STRETCH;
        const float *from =
            tree_combine_node(parts, sums->n_own_parts, net->worker.sums->config->shards,
                              sums->own[p], slice.at + done, count, sums->scratch);
        memcpy(sum + slice.at + done, from, count * sizeof *sum);
    }
    return sum;
}

/* Which part of a bucket each node owns, of this rail. */
static void find_members(struct net *net, int b)
{
    for (int node = 0; node < net->topology->nodes; node++) {
        const struct slice slice = net_slice(net, b, node, net->rail);
        net->exchange.members[node].at = slice.at;
        net->exchange.members[node].count = slice.count;
    }
}

/* Another node's partial sums of what this rail owns come, or this node's of what another owns go. */
static enum status start_transfer(struct net *net, struct net_task *t,
                                  const struct exchange_transfer *x)
{
    const int peer = net_peer(net, x->member);
    const size_t bytes = x->count * sizeof(float);
    const int part = net->sums.first_of[x->member] + x->sum;

    if (x->is_send) {
        const float *sum = net_make_sum(net, x->sum, (struct slice){ x->at, x->count });
        return net_send_counted(net, t, peer, t->tag, sum + x->at, bytes);
    }
    return net_receive(net, t, peer, t->tag, (float *)net->memory->parts[part].data + x->at,
                       bytes);
}

static enum status start_sum(struct net *net, struct net_task *t)
{
    find_members(net, t->task->bucket);
    const int n = exchange_reduce_scatter(net->exchange.members, net->topology->nodes,
                                          net->topology->node, net->exchange.transfers);
    for (int i = 0; i < n; i++)
        TRY(start_transfer(net, t, &net->exchange.transfers[i]));
    return STATUS_OK;
}

static enum status finish_sum(struct net *net, struct net_task *t)
{
    const bool updates = t->task->does >> TASK_UPDATE & 1;

    net_work_on_own(net, t, updates ? SUM_AND_UPDATE : SUM_AND_KEEP);
    return STATUS_OK;
}

const struct net_row net_reduce_scatter = {
    .kind = TASK_REDUCE_SCATTER,
    .medium = MEDIUM_MESSAGES,
    .name = "reduce_scatter",
    .point = "net",
    .most = most_sums,
    .start = start_sum,
    .finish = finish_sum,
};

/* Updates ---------------------------------------------------------------------------------- */

static enum status finish_update(struct net *net, struct net_task *t)
{
    TRY(net_scale(net));
    net_work_on_own(net, t, UPDATE);
    return STATUS_OK;
}

const struct net_row net_update = {
    .kind = TASK_UPDATE,
    .medium = MEDIUM_NONE,
    .name = "update",
    .can_run = is_dense,
    .finish = finish_update,
};

static enum status finish_direction(struct net *net, struct net_task *t)
{
    TRY(net_scale(net));
    net_work_on_own(net, t, DIRECT);
    return STATUS_OK;
}

const struct net_row net_direction = {
    .kind = TASK_DIRECTION,
    .medium = MEDIUM_NONE,
    .name = "direction",
    .can_run = is_dense,
    .finish = finish_direction,
};

/* Parameters ------------------------------------------------------------------------------- */

static struct net_most most_params(const struct net *net, const struct task *task)
{
    (void)task;
    return (struct net_most){ net->topology->nodes, net->topology->nodes };
}

/* Do parts go to all nodes? All have updated what is compressed, and ask for what is partitioned. */
static bool has_bytes(const struct net *net, int b)
{
    return !bucket_is_compressed(net->layout, b) && !bucket_is_held(net->hold, b);
}

static int list_params(struct net *net, int b)
{
    if (!has_bytes(net, b))
        return 0;
    find_members(net, b);
    return exchange_all_gather(net->exchange.members, net->topology->nodes, net->topology->node,
                               net->exchange.transfers);
}

/* Another node sends its part when it has this node's partial sums, so the lanes are done with it. */
static enum status receive_params(struct net *net, struct net_task *t)
{
    const int n = list_params(net, t->task->bucket);

    for (int i = 0; i < n; i++) {
        const struct exchange_transfer *x = &net->exchange.transfers[i];
        if (!x->is_send)
            TRY(net_receive(net, t, net_peer(net, x->member), t->tag,
                            net->memory->param + x->at, x->count * sizeof(float)));
    }
    return STATUS_OK;
}

static enum status send_params(struct net *net, struct net_task *t)
{
    const int n = list_params(net, t->task->bucket);

    for (int i = 0; i < n; i++) {
        const struct exchange_transfer *x = &net->exchange.transfers[i];
        if (x->is_send)
            TRY(net_send_counted(net, t, net_peer(net, x->member), t->tag,
                                 net->memory->param + x->at, x->count * sizeof(float)));
    }
    return STATUS_OK;
}

const struct net_row net_all_gather = {
    .kind = TASK_ALL_GATHER,
    .medium = MEDIUM_MESSAGES,
    .name = "all_gather",
    .can_run = is_dense,
    .most = most_params,
    .prepare = receive_params,
    .start = send_params,
};

/* Gradients that are given back ------------------------------------------------------------- */

static void release_slice(float *vector, struct slice slice)
{
    pages_release(vector + slice.at, slice.count * sizeof *vector);
}

/* The memory of partial sums of a bucket: those computed here for others, and those received. */
static enum status release_sums(struct net *net, struct net_task *t)
{
    const struct net_sums *sums = &net->sums;
    const bool makes = sums->n_own_parts != sums->n_own;
    const int b = t->task->bucket;

    for (int node = 0; node < net->topology->nodes && !bucket_is_served(net->layout, b);
         node++) {
        if (node == net->topology->node)
            continue;
        for (int p = 0; p < sums->n_own && makes; p++)
            release_slice(sums->vectors + (size_t)p * net->layout->vector,
                          net_slice(net, b, node, net->rail));
        for (int p = 0; p < sums->n_of[node]; p++)
            release_slice((float *)net->memory->parts[sums->first_of[node] + p].data,
                          net_slice(net, b, net->topology->node, net->rail));
    }
    return STATUS_OK;
}

const struct net_row net_drain = {
    .kind = TASK_BARRIER,
    .medium = MEDIUM_MESSAGES,
    .name = "gradients are sent",
    .finish = release_sums,
};
