/* SPDX-License-Identifier: MIT */
/* synchrony.c - degrees of synchrony of workers with parameter servers, one pass each.
 *
 * Before: a step that pass serve made. After, every push says when servers apply it, and every pull
 * when they answer it (attrs.when):
 *
 *              push      pull
 *   step       step      step        all workers' pushes of a step make one update
 *   async      at_once   at_once     each push is an update; nobody waits
 *   bounded    at_once   bounded:K   likewise, but no worker is more than K steps ahead
 *
 * Workers and servers take their policy from these nodes (train/served.c); lowering notes it on the
 * pull. bounded:0 is `step`, since it sums whole steps (strategy_passes).
 */
#include "graph/op.h"
#include "pass/pass.h"

static void state(struct graph *graph, enum attr_when applied, enum attr_when answered,
                  int bound)
{
    for (int n = 0; n < graph_node_count(graph); n++) {
        struct node *node = graph_node(graph, n);
        if (node->op == &op_push)
            node->attrs.when = applied;
        if (node->op != &op_pull)
            continue;
        node->attrs.when = answered;
        node->attrs.bound = bound;
    }
}

static enum status run_step(struct graph *graph, const struct pass_config *config)
{
    (void)config;
    state(graph, WHEN_STEP, WHEN_STEP, 0);
    return STATUS_OK;
}

static enum status run_async(struct graph *graph, const struct pass_config *config)
{
    (void)config;
    state(graph, WHEN_AT_ONCE, WHEN_AT_ONCE, 0);
    return STATUS_OK;
}

static enum status run_bounded(struct graph *graph, const struct pass_config *config)
{
    if (config->bound < 1)
        return FAIL(STATUS_USAGE, "bounded:%d: a bound of 1 step is the least", config->bound);
    state(graph, WHEN_AT_ONCE, WHEN_BOUNDED, config->bound);
    return STATUS_OK;
}

const struct pass pass_step = {
    .name = "step",
    .summary = "servers apply all workers' pushes of a step together",
    .run = run_step,
};

const struct pass pass_async = {
    .name = "async",
    .summary = "servers apply a push and answer a pull at once",
    .run = run_async,
};

const struct pass pass_bounded = {
    .name = "bounded",
    .summary = "servers answer a pull when the slowest worker is at most K steps behind",
    .run = run_bounded,
};
