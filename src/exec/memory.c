/* SPDX-License-Identifier: MIT */
/* memory.c - what a rank will have resident while it trains, worked out before the first step.
 *
 * Of V bytes of parameters, N nodes of W rails, n lanes a rank with k buffers each, and s states:
 *
 *                 parameters             gradients                               state
 *   one node      V                      n k V, and its share of other ranks'    s V / ranks
 *   zero=0, 1     V                      n k V, and sums that come and go: V     s V / (N W)
 *   zero=2        V                      n (window + those being written)        s V / (N W)
 *   zero=3        V / N, those that are  as zero=2                               s V / (N W)
 *                 read, and the window
 *
 * On one node vectors are shared: what is counted is what this process touches. Tables whose
 * gradients have rows, and averages, are whole on every node. Activations are the arena of the plan
 * made at the start. What kernels keep inside libraries is not known here.
 */
#include "exec/device_side.h"
#include "exec/net.h"
#include "exec/state.h"

static size_t bytes_of(const struct exec *exec, int b)
{
    return (size_t)(exec->layout.buckets.begin[b + 1] - exec->layout.buckets.begin[b]) *
           sizeof(float);
}

static size_t part_of(const struct exec *exec, int b, int node, int rail)
{
    return net_slice(exec->net, b, node, rail).count * sizeof(float);
}

/* What this node owns of a bucket. */
static size_t own_of(const struct exec *exec, int b)
{
    size_t bytes = 0;

    for (int rail = 0; rail < exec->net->rails; rail++)
        bytes += part_of(exec, b, exec->topology.node, rail);
    return bytes;
}

/* The most of other nodes' parts that are here at once in a phase: of what lanes read while they
 * are at one place of its queue, and of what comes meanwhile. */
static size_t most_foreign(const struct exec *exec, const struct hold_order *order)
{
    size_t most = 0;

    for (int k = 0; k < order->count; k++) {
        size_t foreign = 0, ahead = 0;
        for (int i = 0; i < order->count; i++) {
            const int b = order->bucket[i];
            bool is_here = i <= k && k < order->until[b];
            if (i > k) {
                ahead += bytes_of(exec, b);
                is_here = i == k + 1 || ahead <= exec->layout.window;
            }
            foreign += is_here ? bytes_of(exec, b) - own_of(exec, b) : 0;
        }
        most = foreign > most ? foreign : most;
    }
    return most;
}

static size_t predict_params(const struct exec *exec)
{
    size_t own = 0, most = 0;

    for (int b = 0; b < exec->layout.buckets.count; b++)
        own += bucket_is_held(&exec->hold, b) ? own_of(exec, b) : bytes_of(exec, b);
    for (int kind = 0; kind < exec->hold.n_kinds; kind++) {
        const size_t foreign = most_foreign(exec, &exec->hold.orders[kind]);
        most = foreign > most ? foreign : most;
    }
    return own + most;
}

/* Of a plan: the most bytes of buckets whose gradients are being written at once. */
static size_t most_written(const struct exec *exec, const struct plan *plan)
{
    uint64_t open = 0;
    size_t most = 0;

    for (int n = 0; n < plan->n_instructions; n++) {
        size_t bytes = 0;
        open |= plan->instructions[n].begins;
        for (uint64_t left = open; left; left &= left - 1)
            bytes += bytes_of(exec, __builtin_ctzll(left));
        most = bytes > most ? bytes : most;
        open &= ~plan->instructions[n].after;
    }
    return most;
}

/* Sums that a net receives, and those it makes for others; with `share` of all buckets at once. */
static size_t predict_sums(const struct exec *exec, double share)
{
    const struct net *net = exec->net;
    const struct net_sums *sums = &net->sums;
    const bool makes = sums->n_own_parts != sums->n_own;
    size_t bytes = 0;

    for (int b = 0; b < exec->layout.buckets.count; b++) {
        if (bucket_is_gathered(&exec->layout, b))
            continue;
        for (int node = 0; node < exec->topology.nodes; node++) {
            if (node == exec->topology.node)
                continue;
            bytes +=
                (size_t)sums->n_of[node] * part_of(exec, b, exec->topology.node, net->rail);
            bytes += makes ? (size_t)sums->n_own * part_of(exec, b, node, net->rail) : 0;
        }
    }
    return (size_t)((double)bytes * share);
}

static bool carries(const struct exec *exec)
{
    return exec->net && exec->net->handoff.is_started;
}

static size_t predict_gradients(const struct exec *exec)
{
    const size_t all = exec->layout.vector * sizeof(float);
    const int ranks = transport_node_size(exec->transport, exec->topology.node);
    size_t own = 0, sums = 0, resident = all;

    if (exec->layout.buckets.pass)
        return 0; /* they are in the arena */
    if (exec->layout.releases && exec->topology.job_lanes == exec->topology.shards &&
        exec->lanes[0].plans.count > 0) {
        resident = exec->layout.window + most_written(exec, exec->lanes[0].plans.of[0]);
        resident = resident < all ? resident : all;
    }
    for (int i = 0; i < exec->topology.n_lanes; i++)
        own += (size_t)exec->lanes[i].n_buffers * resident;
    const double share = exec->layout.releases ? (double)resident / (double)all : 1;
    if (carries(exec))
        sums = predict_sums(exec, share < 1 ? share : 1);
    else if (exec->topology.nodes == 1)
        sums = own * (size_t)(ranks - 1) / (size_t)ranks; /* others', which this one reads */
    for (int b = 0; b < exec->layout.buckets.count && exec->memory.sum;
         b++) /* kept until norms are known */
        sums += carries(exec) ? part_of(exec, b, exec->topology.node, exec->net->rail)
                              : bytes_of(exec, b) / (size_t)ranks;
    return own + sums;
}

static size_t predict_state(const struct exec *exec)
{
    const size_t ranks = (size_t)transport_node_size(exec->transport, exec->topology.node);
    size_t bytes = 0;

    for (int b = 0; b < exec->layout.buckets.count; b++) {
        const bool in_parts = exec->topology.nodes > 1 &&
                              !bucket_is_gathered(&exec->layout, b) &&
                              !bucket_is_compressed(&exec->layout, b);
        if (exec->layout.updates[b].is_average)
            continue;
        if (!in_parts)
            bytes += bytes_of(exec, b) / ranks;
        else if (carries(exec))
            bytes += part_of(exec, b, exec->topology.node, exec->net->rail);
    }
    return (size_t)exec->layout.n_states * bytes;
}

/* What rank 0 gets of other nodes: of parameters, and of all. */
static void predict_collected(const struct exec *exec, struct exec_memory *out)
{
    for (int b = 0; b < exec->layout.buckets.count && exec->net; b++) {
        const size_t others = bytes_of(exec, b) - own_of(exec, b);
        const bool has_state =
            !bucket_is_gathered(&exec->layout, b) && !exec->layout.updates[b].is_average;
        out->joined += bucket_is_held(&exec->hold, b) ? others : 0;
        out->collected += has_state ? (size_t)exec->layout.n_states * others : 0;
    }
    out->collected += out->joined;
}

/* Of the device's memory. */
static struct exec_memory memory_there(const struct exec *exec)
{
    const struct device_side *side = exec->device;
    const size_t window = parts_window(exec) * sizeof(float);
    struct exec_memory memory = { .arena = exec->arena_bytes,
                                  .shared = exec->memory.bytes,
                                  .activations =
                                      (size_t)pipe_arenas(exec) * exec->arena_bytes };

    memory.params = window + (side->half ? window / 2 : 0) + parts_own(side) * sizeof(float);
    memory.gradients = (size_t)side->n_buffers * parts_gradients(exec) * sizeof(float);
    if (side->part_sums)
        memory.gradients += side->state_count * sizeof(float);
    memory.state = (size_t)exec->layout.n_states * side->state_count * sizeof(float);
    memory.other = side->memory_bytes - memory.params - memory.gradients - memory.state +
                   device_pipe_bytes(side);
    for (int i = 0; i < side->n_kept; i++)
        memory.other += side->kept[i].bytes;
    return memory;
}

struct exec_memory exec_memory(const struct exec *exec)
{
    if (exec->device)
        return memory_there(exec);
    struct exec_memory memory = { .arena = exec->arena_bytes, .shared = exec->memory.bytes };
    const size_t ranks = (size_t)transport_node_size(exec->transport, exec->topology.node);

    memory.params = predict_params(exec);
    memory.gradients = predict_gradients(exec);
    memory.state = predict_state(exec);
    memory.activations =
        (size_t)exec->topology.n_lanes * (size_t)pipe_arenas(exec) * exec->arena_bytes;
    memory.other =
        (size_t)exec->topology.shards * exec->layout.record / ranks + exec->layout.tables_bytes;
    memory.other += pipe_bytes(exec);
    predict_collected(exec, &memory);
    return memory;
}
