/* SPDX-License-Identifier: MIT */
/* mirror.c - synchronous data parallelism: the ranks' sums meet before the update.
 *
 * Before: a training step for one device whose shards lie on several ranks. For every bucket
 *
 *   shard_sum -> update   becomes   shard_sum -> reduce_scatter -> update -> all_gather
 *
 * A rank receives the whole sum of its part of a bucket, updates that part, and the updated parts
 * go to every rank: the same bytes on a wire as all_reduce and then an update of everything on
 * every rank, with a p-th of the update's work. The loss goes through all_reduce.
 *
 * A gradient that is made from its factors is not reduced at all: the factors go to every rank, and
 * each makes the whole sum of its part: all_gather, all_gather -> factor_sum -> update ->
 * all_gather. So do the sorted ids and dy of a gradient that has rows, to row_sum; or else, where
 * the rows are served (parallax.c), each rank's sum goes to those who own the rows: row_sum -> push
 * -> update -> pull.
 *
 * Pass central is for ranks of one machine that read one copy of the parameters in place. Updated
 * parts stay where they are, so there is no last all_gather: readers wait for the update itself.
 */
#include <stdio.h>

#include "graph/op.h"
#include "pass/pass.h"

/* A node of `op` on `value`, made at the end of the order and placed by the caller. */
static struct node *make(struct graph *graph, const struct op *op, struct value *value,
                         const char *suffix, int bucket)
{
    const struct attrs attrs = { .bucket = bucket };
    char name[96];

    snprintf(name, sizeof name, "%s.%s", value->name, suffix);
    return graph_add(graph, op, name, &value, 1, &attrs);
}

/* Does an update see what was pushed? */
static bool is_pushed(const struct node *update)
{
    for (int i = 0; i < update->n_in; i++) {
        if (update->in[i]->maker && update->in[i]->maker->op == &op_push)
            return true;
    }
    return false;
}

/* The updated part of a bucket goes to every rank; rows go to those who asked their owners. */
static struct node *share(struct graph *graph, const struct node *update)
{
    const int b = update->attrs.bucket;

    graph_set_phase(graph, PHASE_UPDATE);
    return is_pushed(update) ? make(graph, &op_pull, update->out[0], "pull", b)
                             : make(graph, &op_all_gather, update->out[0], "all", b);
}

/* has_copies: each rank has a copy of the parameters, so that updated parts go to all. */
static enum status meet(struct graph *graph, const struct pass_config *config, bool has_copies)
{
    const int n_before = graph_node_count(graph);
    struct node **order = graph_alloc(graph, 4 * (size_t)n_before + 1, sizeof(struct node *));
    int count = 0;

    TRY(graph_status(graph));
    if (config->shards % config->ranks != 0 && config->shards < config->ranks)
        return FAIL(STATUS_USAGE, "%lld shards are fewer than %d ranks",
                    (long long)config->shards, config->ranks);
    for (int n = 0; n < n_before; n++) {
        struct node *node = graph_node(graph, n);
        struct node *more = NULL;

        if (node->op == &op_factor_sum || (node->op == &op_row_sum && !node->attrs.served)) {
            /* What it is made from goes to every rank, and each makes its part. */
            graph_set_phase(graph, PHASE_REDUCE);
            for (int i = 0; i < node->n_in; i++) {
                struct node *gather =
                    make(graph, &op_all_gather, node->in[i], "all", node->attrs.bucket);
                if (!gather)
                    return graph_status(graph);
                order[count++] = gather;
                node->in[i] = gather->out[0];
            }
        }
        order[count++] = node;
        if (node->op == &op_shard_sum) {
            const bool is_bucket = node->in[0]->kind == VALUE_FLAT;
            struct value *sum = node->out[0];
            graph_set_phase(graph, PHASE_REDUCE);
            more = make(graph, is_bucket ? &op_reduce_scatter : &op_all_reduce, sum,
                        is_bucket ? "part" : "all", node->attrs.bucket);
            if (!more)
                return graph_status(graph);
            graph_replace(graph, sum, more->out[0]);
            more->in[0] = sum;
        } else if (node->op == &op_row_sum && node->attrs.served) {
            struct value *sum = node->out[0];
            graph_set_phase(graph, PHASE_REDUCE);
            more = make(graph, &op_push, sum, "push", node->attrs.bucket);
            if (!more)
                return graph_status(graph);
            more->out[0]->form = sum->form;
            graph_replace(graph, sum, more->out[0]);
            more->in[0] = sum;
        } else if (node->op == config->optim.optimizer->op || node->op == &op_average_update) {
            more = has_copies ? share(graph, node) : NULL;
        }
        TRY(graph_status(graph));
        if (more)
            order[count++] = more;
    }
    return graph_set_order(graph, order, count);
}

static enum status run_mirror(struct graph *graph, const struct pass_config *config)
{
    return meet(graph, config, true);
}

static enum status run_central(struct graph *graph, const struct pass_config *config)
{
    return meet(graph, config, false);
}

const struct pass pass_mirror = {
    .name = "mirror",
    .summary = "let the ranks' sums meet, update in parts, share the parts",
    .run = run_mirror,
};

const struct pass pass_central = {
    .name = "central",
    .summary = "let the ranks' sums meet, update in parts the one copy that all read",
    .run = run_central,
};
