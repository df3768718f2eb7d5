/* SPDX-License-Identifier: MIT */
/* zero.c - parameters that no machine holds whole (zero=3): they come just before they are read.
 *
 * Before: a step that pass mirror made. For every bucket whose gradient is reduced and scattered
 *
 *   forward .. backward .. reduce_scatter -> update -> all_gather   becomes
 *   all_gather -> forward .. all_gather -> backward .. reduce_scatter -> update
 *
 * Owners keep their part of the updated parameters to themselves. A bucket's all_gather stands before the
 * first node of forward that reads one of its parameters, and another before the first of backward;
 * nobody holds the others' parts from the last reader of forward to there. Twice the bytes of one
 * all_gather are sent for parameters; a bucket that is read again at once need not go and come.
 *
 * In a pipeline that happens for every shard, before each piece of work that reads a bucket. A parameter that other stages
 * read, too, is whole there all the step, and so is its bucket where it belongs.
 *
 * Running averages, tables whose gradients have rows, and layers whose gradients are made from
 * factors stay as they are: every machine has them whole. zero=1 and zero=2 change no graph: a part is
 * updated by its owner alone in any case, and when memory of gradients is given back is the executor's
 * business.
 */
#include <stdio.h>

#include "graph/op.h"
#include "pass/pass.h"

/* The buckets (bits) whose parameters a node reads. */
static uint64_t find_read(const struct graph *graph, const struct node *node, int n_buckets)
{
    uint64_t read = 0;

    for (int i = 0; i < node->n_in; i++) {
        const struct value *in = node->in[i];
        while (in->maker && in->maker->op->is_view)
            in = in->maker->in[0];
        for (int b = 0; b < n_buckets && in->kind == VALUE_PARAM; b++) {
            if (in->flat == pass_bucket_value(graph, b, "param"))
                read |= UINT64_C(1) << b;
        }
    }
    return read;
}

/* The buckets whose gradients are scattered, but for averages and what other stages have a copy of. */
static uint64_t find_scattered(const struct graph *graph)
{
    const int n_buckets = pass_bucket_count(graph);
    uint64_t scattered = 0, sent = 0;

    for (int n = 0; n < graph_node_count(graph); n++) {
        const struct node *node = graph_node(graph, n);
        if (node->op == &op_reduce_scatter &&
            !pass_bucket_is_average(graph, node->attrs.bucket))
            scattered |= UINT64_C(1) << node->attrs.bucket;
        if (node->op == &op_send && node->attrs.once)
            sent |= find_read(graph, node, n_buckets);
    }
    return scattered & ~sent;
}

static struct node *make_gather(struct graph *graph, int bucket, enum phase phase)
{
    const struct attrs attrs = { .bucket = bucket };
    struct value *params = pass_bucket_value(graph, bucket, "param");
    char name[64];

    graph_set_phase(graph, phase);
    snprintf(name, sizeof name, "bucket%d.param.%s", bucket, phase_name(phase));
    return graph_add(graph, &op_all_gather, name, &params, 1, &attrs);
}

/* Does the node give the updated part of one of these buckets to every rank? */
static bool shares_update(const struct node *node, uint64_t buckets)
{
    return node->op == &op_all_gather && node->phase == PHASE_UPDATE &&
           (buckets >> node->attrs.bucket & 1);
}

static enum status run_zero(struct graph *graph, const struct pass_config *config)
{
    const int n_before = graph_node_count(graph), n_buckets = pass_bucket_count(graph);
    const uint64_t scattered = config->zero >= 3 ? find_scattered(graph) : 0;
    uint64_t there = 0; /* gathered for this phase */
    enum phase phase = PHASE_FORWARD;
    int count = 0;

    if (!scattered)
        return STATUS_OK;
    struct node **order =
        graph_alloc(graph, (size_t)(n_before + 2 * n_buckets) + 1, sizeof(struct node *));
    TRY(graph_status(graph));
    for (int n = 0; n < n_before; n++) {
        struct node *node = graph_node(graph, n);

        if (phase == PHASE_FORWARD && node->phase != PHASE_FORWARD) {
            phase = PHASE_BACKWARD;
            there = 0;
        }
        const bool is_shards = node->phase == PHASE_FORWARD || node->phase == PHASE_BACKWARD;
        uint64_t wanted =
            is_shards ? find_read(graph, node, n_buckets) & scattered & ~there : 0;
        for (there |= wanted; wanted; wanted &= wanted - 1) {
            order[count] = make_gather(graph, __builtin_ctzll(wanted), phase);
            if (!order[count++])
                return graph_status(graph);
        }
        if (!shares_update(node, scattered))
            order[count++] = node;
    }
    return graph_set_order(graph, order, count);
}

const struct pass pass_zero = {
    .name = "zero",
    .summary = "with zero=3: gather parameters before they are read, twice a step",
    .run = run_zero,
};
