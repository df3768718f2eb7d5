/* SPDX-License-Identifier: MIT */
/* recompute.c - less memory for more arithmetic: what forward made is made again for backward.
 *
 * Forward is cut into segments. What one segment hands to another is kept; all else that backward
 * needs of a segment is dropped and made again, by copies of the segment's nodes, just before
 * backward comes to it. The last segment is left as it is: backward begins there. A copy of a node
 * gives the bits of the node, dropout and batch statistics included. What all shards meet in happens
 * once a step: it has no copy, and what goes in and comes out is kept. So is what goes from stage to stage.
 *
 * Kept are then about n boundaries and the inside of one segment; the number of segments is the
 * one for which that is least. Before: a forward and a backward graph. After: the same function,
 * at most one more forward's work.
 */
#include <stdio.h>
#include <string.h>

#include "graph/op.h"
#include "pass/pass.h"

enum { MOST_SEGMENTS = 64, NOWHERE = -1 };

struct plan {
    struct graph *graph;
    int n_forward, n_nodes;
    int n_segments;
    int *segment;     /* of a forward node, by its place */
    int *home;        /* of a value: segment of the forward node that makes it, or NOWHERE */
    bool *is_crossed; /* of a value: another segment's forward uses it, or the run does */
    bool *is_needed;  /* of a value: backward uses it */
    int64_t *bytes;   /* of a value; a view has none */
};

static enum status make_plan(struct graph *graph, struct plan *plan)
{
    const size_t n_values = (size_t)graph_value_count(graph) + 1;

    *plan = (struct plan){ .graph = graph, .n_nodes = graph_node_count(graph) };
    plan->segment = graph_alloc(graph, (size_t)plan->n_nodes + 1, sizeof *plan->segment);
    plan->home = graph_alloc(graph, n_values, sizeof *plan->home);
    plan->is_crossed = graph_alloc(graph, n_values, sizeof *plan->is_crossed);
    plan->is_needed = graph_alloc(graph, n_values, sizeof *plan->is_needed);
    plan->bytes = graph_alloc(graph, n_values, sizeof *plan->bytes);
    TRY(graph_status(graph));
    while (plan->n_forward < plan->n_nodes &&
           graph_node(graph, plan->n_forward)->phase == PHASE_FORWARD)
        plan->n_forward++;
    for (int n = plan->n_forward; n < plan->n_nodes; n++) {
        const struct node *node = graph_node(graph, n);
        for (int i = 0; i < node->n_in; i++)
            plan->is_needed[node->in[i]->id] = true;
    }
    for (int i = 0; i < graph_value_count(graph); i++) {
        const struct value *value = graph_value(graph, i);
        const bool is_view = value->maker && value->maker->op->is_view;
        plan->bytes[i] =
            is_view ? 0 : shape_count(&value->shape) * (int64_t)dtype_size(value->dtype);
    }
    return STATUS_OK;
}

/* Cuts forward into segments of about as many bytes for backward each. */
static void cut(struct plan *plan, int n_segments)
{
    const struct graph *graph = plan->graph;
    const struct graph_roles *roles = graph_roles(plan->graph);
    int64_t total = 0, before = 0;

    plan->n_segments = n_segments;
    for (int i = 0; i < graph_value_count(graph); i++) {
        plan->home[i] = NOWHERE;
        plan->is_crossed[i] = false;
    }
    for (int n = 0; n < plan->n_forward; n++) {
        for (int i = 0; i < graph_node(graph, n)->n_out; i++)
            total += plan->bytes[graph_node(graph, n)->out[i]->id];
    }
    for (int n = 0; n < plan->n_forward; n++) {
        const struct node *node = graph_node(graph, n);
        plan->segment[n] = (int)(before * n_segments / (total > 0 ? total : 1));
        for (int i = 0; i < node->n_out; i++) {
            const struct value *out = node->out[i];
            plan->home[out->id] = plan->segment[n];
            plan->is_crossed[out->id] =
                out == roles->output || out == roles->loss || out == roles->correct;
            plan->is_crossed[out->id] |= node->op->meets;
            before += plan->bytes[out->id];
        }
        for (int i = 0; i < node->n_in; i++) {
            const int id = node->in[i]->id;
            const struct node *maker = node->in[i]->maker;
            plan->is_crossed[id] |= plan->home[id] != plan->segment[n] || node->op->meets ||
                                    (maker && maker->stage != node->stage);
        }
    }
}

/* Is this value dropped after forward, and made again? */
static bool is_dropped(const struct plan *plan, const struct value *value)
{
    const int home = plan->home[value->id];
    return home != NOWHERE && home < plan->n_segments - 1 && !plan->is_crossed[value->id];
}

/* About the most bytes of forward's values that backward has at a time. */
static int64_t peak(const struct plan *plan)
{
    int64_t inside[MOST_SEGMENTS] = { 0 }, kept = 0, most = 0;

    for (int i = 0; i < graph_value_count(plan->graph); i++) {
        const struct value *value = graph_value(plan->graph, i);
        if (plan->home[i] == NOWHERE || !plan->is_needed[i])
            continue;
        if (plan->is_crossed[i])
            kept += plan->bytes[i];
        else
            inside[plan->home[value->id]] += plan->bytes[i];
    }
    for (int s = 0; s < plan->n_segments; s++)
        most = inside[s] > most ? inside[s] : most;
    return kept + most;
}

static int best_cut(struct plan *plan)
{
    int best = 1;
    int64_t least;

    cut(plan, 1);
    least = peak(plan);
    for (int n = 2; n <= MOST_SEGMENTS && n <= plan->n_forward; n++) {
        cut(plan, n);
        if (peak(plan) < least) {
            least = peak(plan);
            best = n;
        }
    }
    return best;
}

/* The copies of one segment's nodes, made at the end of the order; again[id] is what stands for a
 * value. Gives how many. */
static int copy_segment(struct plan *plan, int s, struct value **again, struct node **copies)
{
    struct graph *graph = plan->graph;
    bool *wanted = graph_alloc(graph, (size_t)plan->n_forward + 1, sizeof *wanted);
    int count = 0;

    for (int n = plan->n_forward - 1; n >= 0 && graph_status(graph) == STATUS_OK; n--) {
        const struct node *node = graph_node(graph, n);
        if (plan->segment[n] != s)
            continue;
        for (int i = 0; i < node->n_out; i++)
            wanted[n] |= is_dropped(plan, node->out[i]) && plan->is_needed[node->out[i]->id];
        /* What a copy reads must be there, too. */
        for (int i = 0; i < node->n_in && wanted[n]; i++) {
            if (is_dropped(plan, node->in[i]))
                plan->is_needed[node->in[i]->id] = true;
        }
    }
    for (int n = 0; n < plan->n_forward && graph_status(graph) == STATUS_OK; n++) {
        const struct node *node = graph_node(graph, n);
        struct value *in[GRAPH_IN];
        char name[96];

        if (!wanted[n])
            continue;
        for (int i = 0; i < node->n_in; i++)
            in[i] = again[node->in[i]->id] ? again[node->in[i]->id] : node->in[i];
        snprintf(name, sizeof name, "%s.again", node->name);
        graph_set_stage(graph, node->stage);
        struct node *copy = graph_add(graph, node->op, name, in, node->n_in, &node->attrs);
        for (int i = 0; copy && i < node->n_out; i++) {
            if (is_dropped(plan, node->out[i]))
                again[node->out[i]->id] = copy->out[i];
        }
        copies[count++] = copy;
    }
    graph_set_stage(graph, -1);
    return count;
}

/* Does the node read something of segment s that is dropped? */
static bool reads_segment(const struct plan *plan, const struct node *node, int s)
{
    for (int i = 0; i < node->n_in; i++) {
        if (plan->home[node->in[i]->id] == s && is_dropped(plan, node->in[i]))
            return true;
    }
    return false;
}

static enum status insert_copies(struct plan *plan)
{
    struct graph *graph = plan->graph;
    const size_t n_values = (size_t)graph_value_count(graph) + 1;
    struct node **order =
        graph_alloc(graph, (size_t)(plan->n_nodes + plan->n_forward) + 1, sizeof *order);
    struct node **backward = graph_alloc(graph, (size_t)plan->n_nodes + 1, sizeof *backward);
    struct value **again = graph_alloc(graph, n_values, sizeof *again);
    bool copied[MOST_SEGMENTS] = { false };
    int count = plan->n_forward;

    TRY(graph_status(graph));
    for (int n = 0; n < plan->n_nodes; n++)
        *(n < plan->n_forward ? &order[n] : &backward[n]) = graph_node(graph, n);
    graph_set_phase(graph, PHASE_BACKWARD);
    for (int n = plan->n_forward; n < plan->n_nodes; n++) {
        struct node *node = backward[n];
        for (int s = plan->n_segments - 2; s >= 0; s--) {
            if (copied[s] || !reads_segment(plan, node, s))
                continue;
            copied[s] = true;
            count += copy_segment(plan, s, again, order + count);
            TRY(graph_status(graph));
        }
        for (int i = 0; i < node->n_in; i++) {
            const int id = node->in[i]->id;
            if (id < (int)n_values && again[id])
                node->in[i] = again[id];
        }
        order[count++] = node;
    }
    return graph_set_order(graph, order, count);
}

static enum status run_recompute(struct graph *graph, const struct pass_config *config)
{
    struct plan plan;

    if (!config->recompute)
        return STATUS_OK;
    TRY(make_plan(graph, &plan));
    cut(&plan, best_cut(&plan));
    return plan.n_segments > 1 ? insert_copies(&plan) : STATUS_OK;
}

const struct pass pass_recompute = {
    .name = "recompute",
    .summary = "with --recompute, make again for backward what forward need not keep",
    .run = run_recompute,
};
