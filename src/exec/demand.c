/* SPDX-License-Identifier: MIT */
/* demand.c - what a graph asks of a device: floating-point operations, and bytes to and from memory.
 *
 *   linear x (64, 784), w (250, 784), b (250) to y (64, 250) in bf16    2 (64*784 + 250*784 + 250 + 64*250) bytes
 *   sgd_update of n parameters with momentum                            4 (3n read + 2n written) + 2n
 */
#include "exec/demand.h"

#include <math.h>

#include "base/mem.h"
#include "exec/plan.h"
#include "graph/op.h"
#include "kernel/precision.h"

static bool is_one_of(const struct node *node, const struct op *const *ops)
{
    for (; *ops; ops++) {
        if (node->op == *ops)
            return true;
    }
    return false;
}

/* Sums over shards or ranks, and what goes from one to another as it is. */
static bool is_between(const struct node *node)
{
    static const struct op *const ops[] = {
        &op_shard_sum,   &op_all_reduce,  &op_reduce_scatter,
        &op_all_gather,  &op_push,        &op_pull,
        &op_worker_mean, &op_center_pull, NULL
    };

    return node->op->meets || node->op->talks || node->op->moves || is_one_of(node, ops);
}

static double count_of(const struct value *value)
{
    return (double)shape_count(&value->shape);
}

static bool is_repeated(const struct node *node, int i)
{
    for (int j = 0; j < i; j++) {
        if (node->in[j] == node->in[i])
            return true;
    }
    return false;
}

/* What share of a table the rows are that n ids pick. */
static double picked(double ids, double rows)
{
    return fmin(ids, rows) / rows;
}

/* The gradient's share of a bucket: all of it, unless it has rows of a table. */
static double share_of(const struct value *gradient)
{
    const struct node *maker = gradient->maker;

    while (maker && is_between(maker))
        maker = maker->in[0]->maker;
    return maker && maker->op == &op_row_sum
               ? picked(count_of(maker->in[0]) / 2, (double)maker->attrs.rows)
               : 1;
}

/* Shares of input i and of output 0 that a node touches, where it looks rows up. */
static double share_of_input(const struct node *node, int i)
{
    const struct value *ids = node->in[node->op == &op_embedding_grad ? 1 : 0];

    if ((node->op == &op_embedding || node->op == &op_embedding_mean) && i == 1)
        return picked(count_of(ids), (double)node->in[1]->shape.dim[0]);
    return node->op == &op_embedding_grad && i == 2
               ? picked(count_of(ids), (double)node->attrs.rows)
               : 1;
}

static double share_of_output(const struct node *node)
{
    /* What a gradient is added to stays where it lies. */
    return node->op == &op_embedding_grad && node->n_in > 2 ? share_of_input(node, 2)
           : node->op == &op_row_sum                        ? share_of(node->out[0])
                                                            : 1;
}

static double bytes_of(const struct kernel_tensor *tensor)
{
    return (double)shape_count(&tensor->shape) * (double)dtype_size(tensor->dtype);
}

/* Of forward and backward, and of sums that are made of rows or factors. */
static double node_bytes(const struct node *node, const struct shape *shapes,
                         enum dtype precision)
{
    struct kernel_problem problem = { 0 };
    double bytes = 0;

    plan_problem(node, shapes, &problem);
    if (kernel_is_half(precision))
        kernel_narrow(&problem, precision);
    for (int i = 0; i < node->n_in; i++) {
        if (!is_repeated(node, i))
            bytes += bytes_of(&problem.in[i]) * share_of_input(node, i);
    }
    for (int i = 0; i < node->n_out; i++)
        bytes += bytes_of(&problem.out[i]) * (i == 0 ? share_of_output(node) : 1);
    return bytes;
}

/* Inputs: parameters or averages, gradients, then state, which is changed where it lies, and factors. */
static double update_bytes(const struct node *node, enum dtype precision)
{
    static const struct op *const with_state[] = { &op_sgd_update, &op_adam_update,
                                                   &op_lars_update, &op_lamb_direction, NULL };
    static const struct op *const of_params[] = { &op_sgd_update, &op_adam_update,
                                                  &op_lars_update, &op_lamb_update, NULL };
    double words = count_of(node->out[0]), halves = 0;

    for (int i = 0; i < node->n_in; i++)
        words += count_of(node->in[i]);
    for (int i = 2; i < node->n_in && is_one_of(node, with_state); i++)
        words += node->in[i]->kind == VALUE_FLAT ? count_of(node->in[i]) : 0;
    if (is_one_of(node, of_params) && kernel_is_half(precision))
        halves = count_of(node->out[0]);
    return words * (double)dtype_size(DTYPE_F32) + halves * (double)dtype_size(precision);
}

enum status demand_read(const struct graph *graph, enum dtype precision, struct demand *out)
{
    struct demand sum = { 0 };
    struct shape *shapes;

    TRY(mem_alloc((size_t)graph_value_count(graph) + 1, sizeof *shapes, &shapes));
    for (int i = 0; i < graph_value_count(graph); i++)
        shapes[i] = graph_value(graph, i)->shape;
    for (int n = 0; n < graph_node_count(graph); n++) {
        const struct node *node = graph_node(graph, n);
        const bool updates = node->phase == PHASE_UPDATE;
        if (node->op->is_view || is_between(node))
            continue;
        const double share = updates && node->op != &op_clip_norm ? share_of(node->in[1]) : 1;
        sum.flops += graph_node_flops(node) * share;
        sum.bytes += updates ? update_bytes(node, precision) * share
                             : node_bytes(node, shapes, precision);
    }
    mem_free(shapes);
    *out = sum;
    return STATUS_OK;
}
