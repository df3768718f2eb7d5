/* SPDX-License-Identifier: MIT */
/* split_batch.c - cuts the step's samples into logical shards.
 *
 * After it the graph describes one shard up to the shard_sum nodes: extents along the batch are
 * batch / shards, and what is a summand (gradients, loss) goes through shard_sum before anything
 * else may use it. What need not be made as a shard's gradient is taken out: factor_sum and row_sum
 * make the sum from less. Each op's split rule says which of its outputs are rows and which summands.
 */
#include <stdio.h>

#include "base/mem.h"
#include "graph/op.h"
#include "pass/pass.h"

/* An op that looks across samples has its split too: what it sees is a shard, which is the unit of
 * arithmetic. */
static enum status set_parts(struct graph *graph)
{
    static const enum value_part part_of[] = {
        [SPLIT_NONE] = PART_WHOLE,  [SPLIT_ROWS] = PART_ROWS,   [SPLIT_SUM] = PART_SUM,
        [SPLIT_WHOLE] = PART_WHOLE, [SPLIT_SHARD] = PART_SHARD, [SPLIT_SAME] = PART_WHOLE
    };

    for (int n = 0; n < graph_node_count(graph); n++) {
        struct node *node = graph_node(graph, n);
        const bool is_sum = node->op->keeps_sums && node->in[0]->part == PART_SUM;
        for (int i = 0; i < node->n_out; i++) {
            node->out[i]->part = node->op->moves ? node->in[0]->part
                                 : is_sum        ? PART_SUM
                                                 : part_of[node->op->split[i]];
            if (node->out[i]->flat)
                node->out[i]->flat->part = node->out[i]->part;
        }
    }
    return STATUS_OK;
}

static enum status set_shapes(struct graph *graph, int64_t rows)
{
    struct extents extents = graph_extents(graph);
    const int n_values = graph_value_count(graph);
    struct shape *shapes = graph_alloc(graph, (size_t)n_values + 1, sizeof *shapes);

    extents.rows = rows;
    TRY(graph_status(graph));
    TRY(graph_infer(graph, extents, shapes));
    for (int i = 0; i < n_values; i++)
        graph_value(graph, i)->shape = shapes[i];
    return STATUS_OK;
}

static struct value *add_sum(struct graph *graph, struct value *value, int bucket)
{
    const struct attrs attrs = { .bucket = bucket };
    char name[64];

    if (!value)
        return NULL;
    snprintf(name, sizeof name, "%s.sum", value->name);
    struct node *node = graph_add(graph, &op_shard_sum, name, &value, 1, &attrs);
    return node ? node->out[0] : NULL;
}

/* The node that makes all gradients of a bucket, if `is_so` says so of it. */
static struct node *find_maker(const struct graph *graph, const struct value *grad,
                               bool (*is_so)(const struct node *gradient,
                                             const struct pass_config *config),
                               const struct pass_config *config)
{
    for (int n = 0; n < graph_node_count(graph); n++) {
        struct node *node = graph_node(graph, n);
        if (node->out[0] && node->out[0]->flat == grad && is_so(node, config))
            return node;
    }
    return NULL;
}

/* Puts `by`, or nothing, in the place of a node, and `last` at the end. Both are there already. */
static enum status replace_node(struct graph *graph, const struct node *old, struct node *by,
                                struct node *last)
{
    const int n_before = graph_node_count(graph);
    struct node **order = graph_alloc(graph, (size_t)n_before + 1, sizeof(struct node *));
    int count = 0;

    TRY(graph_status(graph));
    for (int n = 0; n < n_before; n++) {
        struct node *node = graph_node(graph, n);
        if (node == old && by)
            order[count++] = by;
        else if (node != old && node != by && node != last)
            order[count++] = node;
    }
    order[count++] = last;
    return graph_set_order(graph, order, count);
}

/* The bucket's sum, made from the factors instead of from the shards' gradients; the node that
 * would have made those is taken out. */
static enum status add_factor_sum(struct graph *graph, struct node *gradient,
                                  struct value *grad, int bucket)
{
    const struct attrs attrs = { .bucket = bucket, .sample = grad->shape };
    char name[64];

    snprintf(name, sizeof name, "%s.sum", grad->name);
    struct node *sum = graph_add(graph, &op_factor_sum, name, gradient->in, 2, &attrs);
    return replace_node(graph, gradient, NULL, sum);
}

/* The bucket's sum, made of the rows that occur: a shard sorts its ids instead of making a gradient of
 * all rows. */
static enum status add_row_sum(struct graph *graph, struct node *gradient, struct value *grad,
                               int bucket)
{
    struct value *dy = gradient->in[0];
    const struct attrs sort_attrs = { .rows = gradient->attrs.rows,
                                      .by_sample = dy->shape.rank == 2 };
    const struct attrs attrs = { .bucket = bucket,
                                 .sample = grad->shape,
                                 .rows = gradient->attrs.rows,
                                 .served = gradient->attrs.served };
    char name[96];

    graph_set_phase(graph, PHASE_BACKWARD);
    graph_set_stage(graph, gradient->stage);
    snprintf(name, sizeof name, "%s.order", grad->name);
    struct node *sort = graph_add(graph, &op_rows_sort, name, &gradient->in[1], 1, &sort_attrs);
    graph_set_phase(graph, PHASE_REDUCE);
    graph_set_stage(graph, -1);
    TRY(graph_status(graph));
    struct value *const in[] = { sort->out[0], sort->out[1], dy };
    sort->out[0]->part = sort->out[1]->part = PART_SHARD;
    snprintf(name, sizeof name, "%s.sum", grad->name);
    struct node *sum = graph_add(graph, &op_row_sum, name, in, 3, &attrs);
    TRY(replace_node(graph, gradient, sort, sum));
    grad->form = sum->out[0]->form = VALUE_ROWS;
    return STATUS_OK;
}

static enum status run_split_batch(struct graph *graph, const struct pass_config *config)
{
    struct graph_roles *roles = graph_roles(graph);

    if (config->shards < 1 || config->batch % config->shards)
        return FAIL(STATUS_USAGE, "batch of %lld samples is not divisible into %lld shards",
                    (long long)config->batch, (long long)config->shards);
    TRY(set_shapes(graph, config->batch / config->shards));
    TRY(set_parts(graph));
    graph_set_phase(graph, PHASE_REDUCE);
    for (int b = 0; b < pass_bucket_count(graph); b++) {
        struct value *grad = pass_bucket_value(graph, b, "grad");
        struct node *factored = find_maker(graph, grad, pass_is_factored, config);
        struct node *with_rows = find_maker(graph, grad, pass_has_rows, config);
        if (factored)
            TRY(add_factor_sum(graph, factored, grad, b));
        else if (with_rows)
            TRY(add_row_sum(graph, with_rows, grad, b));
        else
            add_sum(graph, grad, b);
    }
    roles->loss = add_sum(graph, roles->loss, 0);
    roles->correct = add_sum(graph, roles->correct, 0);
    return graph_status(graph);
}

const struct pass pass_split_batch = {
    .name = "split_batch",
    .summary = "cut the samples into logical shards, sum what they give",
    .run = run_split_batch,
};
