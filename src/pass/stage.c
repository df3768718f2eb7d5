/* SPDX-License-Identifier: MIT */
/* stage.c - what goes from stage to stage of a pipeline.
 *
 * Before: forward and backward nodes belong to pieces (cut.c). After: a node reads nothing that another rank has made. Where it
 * did, in the graph of all ranks,
 *
 *   maker -> reader   becomes   maker -> send -> receive -> reader
 *
 * once for each rank that reads the value: activations forward, their gradients backward, what skips stages straight to who
 * reads it. A parameter that another piece reads, too (a table that is also the last layer's weight), is sent once a
 * step; its readers' shares of the gradient come back shard by shard, as values like all others, and are
 * added where they would have been.
 *
 * Nodes stand in the order of segments: forward of piece 0, 1, ..., backward of ..., 1, 0. A segment begins with what
 * it receives; what is sent goes as soon as it is made. Parameters come before all.
 */
#include <stdio.h>

#include "graph/op.h"
#include "pass/pass.h"

/* A value on its way to a rank. */
struct move {
    const struct value *value;
    int to;
    struct node *send, *receive;
    struct move *next; /* of the same value */
};

struct mover {
    struct graph *graph;
    const struct pass_pipeline *pipeline;
    int segments, pieces;
    int n_nodes;
    struct node **nodes; /* in the order of segments */
    struct move **moves; /* by value */
    struct move **all;   /* in the order in which they were found */
    int n_moves;
};

static int rank_of(const struct mover *m, int piece)
{
    return piece % m->pipeline->stages;
}

static int segment_of(const struct mover *m, const struct node *node)
{
    return node->phase == PHASE_FORWARD ? node->stage : 2 * m->pieces - 1 - node->stage;
}

/* The piece that has made a value, or keeps it; -1: every rank has it. */
static int home_of(const struct value *value)
{
    if (value->kind == VALUE_RESULT)
        return value->maker->stage;
    return value->kind == VALUE_PARAM || value->kind == VALUE_AVERAGE ? value->stage : -1;
}

static enum status sort_nodes(struct mover *m)
{
    int count = 0;

    m->nodes = graph_alloc(m->graph, (size_t)m->n_nodes + 1, sizeof *m->nodes);
    TRY(graph_status(m->graph));
    for (int s = 0; s < m->segments; s++) {
        for (int n = 0; n < m->n_nodes; n++) {
            if (segment_of(m, graph_node(m->graph, n)) == s)
                m->nodes[count++] = graph_node(m->graph, n);
        }
    }
    BUG_ON(count != m->n_nodes);
    return STATUS_OK;
}

/* The pair of nodes that take a value to a reader's rank. */
static struct move *add_move(struct mover *m, struct value *value, const struct node *reader)
{
    struct graph *graph = m->graph;
    const int to = rank_of(m, reader->stage), home = home_of(value);
    const bool once = value->kind != VALUE_RESULT;
    const struct attrs send = { .peer = to, .slot = m->n_moves, .once = once };
    const struct attrs receive = { .peer = rank_of(m, home), .slot = m->n_moves, .once = once };
    struct move *move = graph_alloc(graph, 1, sizeof *move);
    const char *name = value->name;
    char text[160];

    /* Of what flows backward the name says so already. */
    if (value->kind == VALUE_RESULT && value->maker->phase == PHASE_BACKWARD &&
        name[0] == 'd' && name[1] == '.')
        name += 2;
    snprintf(text, sizeof text, "%s.to%d", name, to);
    graph_set_phase(graph, once ? PHASE_FORWARD : value->maker->phase);
    graph_set_stage(graph, home);
    struct node *sends = graph_add(graph, &op_send, text, &value, 1, &send);
    snprintf(text, sizeof text, "%s.at%d", name, to);
    graph_set_phase(graph, once ? PHASE_FORWARD : reader->phase);
    graph_set_stage(graph, reader->stage);
    struct node *receives =
        sends ? graph_add(graph, &op_receive, text, sends->out, 1, &receive) : NULL;
    graph_set_stage(graph, -1);
    if (!move || !receives)
        return NULL;
    *move = (struct move){ value, to, sends, receives, m->moves[value->id] };
    m->moves[value->id] = move;
    m->all[m->n_moves++] = move;
    return move;
}

static struct move *find_move(const struct mover *m, const struct value *value, int to)
{
    struct move *move = m->moves[value->id];

    while (move && move->to != to)
        move = move->next;
    return move;
}

static enum status find_moves(struct mover *m)
{
    for (int n = 0; n < m->n_nodes; n++) {
        struct node *node = m->nodes[n];
        const int rank = rank_of(m, node->stage);
        for (int i = 0; i < node->n_in; i++) {
            struct value *in = node->in[i];
            const int home = home_of(in);
            if (home < 0 || rank_of(m, home) == rank)
                continue;
            struct move *move = find_move(m, in, rank);
            move = move ? move : add_move(m, in, node);
            if (!move)
                return graph_status(m->graph);
            node->in[i] = move->receive->out[0];
        }
    }
    return STATUS_OK;
}

/* Parameters first; then of each segment what it receives, and its nodes with what is sent after each. */
static enum status set_order(struct mover *m)
{
    struct node **order =
        graph_alloc(m->graph, (size_t)(m->n_nodes + 2 * m->n_moves) + 1, sizeof *order);
    int count = 0, segment = -1;

    TRY(graph_status(m->graph));
    for (int i = 0; i < m->n_moves; i++) {
        if (m->all[i]->send->attrs.once) {
            order[count++] = m->all[i]->send;
            order[count++] = m->all[i]->receive;
        }
    }
    for (int n = 0; n < m->n_nodes; n++) {
        struct node *node = m->nodes[n];
        if (segment_of(m, node) != segment) {
            segment = segment_of(m, node);
            for (int i = 0; i < m->n_moves; i++) {
                const struct move *move = m->all[i];
                if (!move->send->attrs.once && segment_of(m, move->receive) == segment)
                    order[count++] = move->receive;
            }
        }
        order[count++] = node;
        for (int i = 0; i < m->n_moves; i++) {
            const struct move *move = m->all[i];
            if (!move->send->attrs.once && move->value->maker == node)
                order[count++] = move->send;
        }
    }
    return graph_set_order(m->graph, order, count);
}

static enum status run_stage(struct graph *graph, const struct pass_config *config)
{
    const struct pass_pipeline *pipeline = &config->pipeline;
    struct mover m = { .graph = graph,
                       .pipeline = pipeline,
                       .pieces = pipeline->stages * pipeline->chunks,
                       .n_nodes = graph_node_count(graph) };
    size_t inputs = 0;

    if (pipeline->stages < 2)
        return STATUS_OK;
    m.segments = 2 * m.pieces;
    for (int n = 0; n < m.n_nodes; n++)
        inputs += (size_t)graph_node(graph, n)->n_in;
    m.moves = graph_alloc(graph, (size_t)graph_value_count(graph) + 1, sizeof *m.moves);
    m.all = graph_alloc(graph, inputs + 1, sizeof *m.all);
    TRY(graph_status(graph));
    TRY(sort_nodes(&m));
    TRY(find_moves(&m));
    return set_order(&m);
}

const struct pass pass_stage = {
    .name = "stage",
    .summary = "send what goes from stage to stage of a pipeline",
    .run = run_stage,
};
