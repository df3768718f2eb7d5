/* SPDX-License-Identifier: MIT */
/* cut.c - cuts the forward graph into the pieces of a pipeline.
 *
 * Pieces are contiguous in running order, and cut between layers, nodes in a row that share a name. Piece
 * g belongs to rank g % stages. By default they are balanced: dynamic programming finds the cut whose most costly
 * piece is cheapest, then, among cuts that cost hardly more, the one where fewest bytes cross. Where memory is known, a
 * piece that a rank has no room for is none, unless there is no cut without. A parameter
 * belongs to the piece of its first reader, and every piece has one at least: a rank without parameters has nothing to train.
 *
 *   conv1 | conv2 | fc1 fc2 loss     of costs 4, 5, 1 1 0, into 3 pieces: 5 at most
 *
 * Before: a forward graph. After: node->stage of every node, value->stage of parameters and averages. A graph for evaluation
 * gets the pieces of the graph of the step, by the names of nodes and parameters.
 */
#include <stdio.h>
#include <string.h>

#include "base/suggest.h"
#include "graph/op.h"
#include "pass/pass.h"

/* Where costs are not given: about what a core does in a second, forward once and backward twice. */
static const double FLOPS = 3e10, BYTES = 1e10, WIRE = 2e9, TIMES = 3;
/* How much longer the longest piece may take so that less crosses. */
static const double SLACK = 1.05;
static const double NEVER = 1e300;

struct cutter {
    struct graph *graph;
    const struct pass_pipeline *pipeline;
    int n_nodes, pieces;
    double *seconds; /* of nodes [0, n) */
    double *
        crossing; /* seconds of what crosses a cut before node n; NEVER and more: none may be there */
    int *owned;                       /* parameters whose first reader is among nodes [0, n) */
    const struct pass_memory *memory; /* NULL: pieces may be of any size */
    double *held, *kept;              /* bytes of nodes [0, n), if it is not */
    int *begin;                       /* the node that each piece begins with */
};

static double bytes_of(const struct value *value)
{
    return (double)shape_count(&value->shape) * (double)dtype_size(value->dtype);
}

static double node_seconds(const struct node *node)
{
    double bytes = 0;

    if (node->op->is_view)
        return 0;
    for (int i = 0; i < node->n_in; i++)
        bytes += bytes_of(node->in[i]);
    for (int i = 0; i < node->n_out; i++)
        bytes += bytes_of(node->out[i]);
    return TIMES * (graph_node_flops(node) / FLOPS + bytes / BYTES);
}

static bool is_saved(const struct value *value)
{
    return value->kind == VALUE_PARAM || value->kind == VALUE_AVERAGE;
}

static bool reads(const struct node *node, const struct value *value)
{
    for (int i = 0; i < node->n_in; i++) {
        if (node->in[i] == value)
            return true;
    }
    return false;
}

/* First and last place where a value is made or read; first -1: nowhere. */
static void find_life(const struct cutter *c, const struct value *value, int *first, int *last)
{
    *first = *last = -1;
    for (int n = 0; n < c->n_nodes; n++) {
        const struct node *node = graph_node(c->graph, n);
        if (value->maker != node && !reads(node, value))
            continue;
        *first = *first < 0 ? n : *first;
        *last = n;
    }
}

static bool begins_layer(const struct cutter *c, int n)
{
    return n > 0 && n < c->n_nodes &&
           strcmp(graph_node(c->graph, n)->name, graph_node(c->graph, n - 1)->name) != 0;
}

/* Is it of a shard alone, as statistics are that a batch norm's two convolutions hand on? It stays in a piece, so that the
 * norm's parameters and averages do, which evaluation has together. */
static bool must_stay(const struct value *value)
{
    const struct node *maker = value->maker;

    for (int i = 0; maker && i < maker->n_out; i++) {
        if (maker->out[i] == value)
            return maker->op->split[i] == SPLIT_SHARD;
    }
    return false;
}

/* What the choice depends on, in sums over places. */
static enum status measure(struct cutter *c)
{
    const size_t n = (size_t)c->n_nodes + 2;

    c->seconds = graph_alloc(c->graph, n, sizeof(double));
    c->crossing = graph_alloc(c->graph, n, sizeof(double));
    c->owned = graph_alloc(c->graph, n, sizeof(int));
    c->begin = graph_alloc(c->graph, (size_t)c->pieces + 1, sizeof(int));
    TRY(graph_status(c->graph));
    for (int v = 0; v < graph_value_count(c->graph); v++) {
        const struct value *value = graph_value(c->graph, v);
        int first, last;
        if (value->kind == VALUE_INPUT)
            continue; /* every rank reads its samples */
        find_life(c, value, &first, &last);
        if (value->kind == VALUE_PARAM && first >= 0)
            c->owned[first + 1]++;
        for (int at = first + 1; at <= last; at++)
            c->crossing[at] += must_stay(value)
                                   ? NEVER
                                   : 2 * bytes_of(value) / WIRE; /* its gradient comes back */
    }
    for (int i = 0; i < c->n_nodes; i++) {
        const double own =
            c->pipeline->costs ? c->pipeline->costs[i] : node_seconds(graph_node(c->graph, i));
        c->seconds[i + 1] = c->seconds[i] + own;
        c->owned[i + 1] += c->owned[i];
        if (i > 0 && !begins_layer(c, i))
            c->crossing[i] = NEVER;
    }
    return STATUS_OK;
}

static enum status measure_memory(struct cutter *c)
{
    const struct pass_memory *memory = c->pipeline->memory;
    const size_t n = (size_t)c->n_nodes + 1;

    if (!memory)
        return STATUS_OK;
    c->held = graph_alloc(c->graph, n, sizeof(double));
    c->kept = graph_alloc(c->graph, n, sizeof(double));
    TRY(graph_status(c->graph));
    for (int i = 0; i < c->n_nodes; i++) {
        c->held[i + 1] = c->held[i] + memory->held[i];
        c->kept[i + 1] = c->kept[i] + memory->kept[i];
    }
    c->memory = memory;
    return STATUS_OK;
}

/* By dynamic programming ------------------------------------------------------------------- */

/* Of nodes [0, end) in so many pieces: the least that can be had, and where the last piece begins. */
struct best {
    double value;
    int begin;
};

static double larger(double a, double b)
{
    return a > b ? a : b;
}

/* Has a rank room for it beside its other pieces, of which each gets as much? */
static bool has_room(const struct cutter *c, int piece, int begin, int end)
{
    const struct pass_memory *memory = c->memory;

    if (!memory)
        return true;
    const double open = memory->open[piece % c->pipeline->stages];
    return c->held[end] - c->held[begin] + open * (c->kept[end] - c->kept[begin]) <=
           memory->most / c->pipeline->chunks;
}

/* What piece number `piece` costs, if it is [begin, end); NEVER: it is none. */
static double piece_seconds(const struct cutter *c, int piece, int begin, int end)
{
    if (c->owned[end] == c->owned[begin] || (begin > 0 && c->crossing[begin] >= NEVER) ||
        !has_room(c, piece, begin, end))
        return NEVER;
    return c->seconds[end] - c->seconds[begin];
}

/* Fills best[k * (n + 1) + end]. limit NEVER: the least of the longest piece; else the least bytes that cross where none
 * is longer. */
static void fill(const struct cutter *c, double limit, struct best *best)
{
    const int n = c->n_nodes;

    for (int k = 1; k <= c->pieces; k++) {
        for (int end = 0; end <= n; end++) {
            struct best *out = &best[k * (n + 1) + end];
            *out = (struct best){ NEVER, 0 };
            for (int begin = 0; begin < end; begin++) {
                const double before =
                    k == 1 ? (begin == 0 ? 0 : NEVER) : best[(k - 1) * (n + 1) + begin].value;
                const double own = piece_seconds(c, k - 1, begin, end);
                if (before >= NEVER || own >= NEVER || own > limit)
                    continue;
                const double value = limit >= NEVER ? larger(before, own)
                                     : k == 1       ? 0
                                                    : before + c->crossing[begin];
                if (value < out->value)
                    *out = (struct best){ value, begin };
            }
        }
    }
}

static enum status balance(struct cutter *c)
{
    const int n = c->n_nodes;
    struct best *best =
        graph_alloc(c->graph, ((size_t)c->pieces + 1) * ((size_t)n + 1), sizeof *best);

    TRY(graph_status(c->graph));
    fill(c, NEVER, best);
    if (best[c->pieces * (n + 1) + n].value >= NEVER && c->memory) {
        c->memory = NULL; /* what has no room is refused by who knows all of it */
        fill(c, NEVER, best);
    }
    const double least = best[c->pieces * (n + 1) + n].value;
    if (least >= NEVER)
        return FAIL(STATUS_USAGE,
                    "%d pieces of a pipeline (%d stages x %d) are more than the layers of %s "
                    "that have parameters",
                    c->pieces, c->pipeline->stages, c->pipeline->chunks, graph_name(c->graph));
    fill(c, least * SLACK, best);
    for (int k = c->pieces, end = n; k > 0; k--) {
        end = best[k * (n + 1) + end].begin;
        c->begin[k - 1] = end;
    }
    return STATUS_OK;
}

/* By hand ---------------------------------------------------------------------------------- */

/* Is it the layer "h.2", or a part of it, "h.2.attn"? */
static bool is_layer(const char *node, const char *name, size_t length)
{
    return strncmp(node, name, length) == 0 && (node[length] == '\0' || node[length] == '.');
}

static bool is_named(const struct cutter *c, const char *node, const char *name)
{
    return c->pipeline->names_nodes ? strcmp(node, name) == 0
                                    : is_layer(node, name, strlen(name));
}

static enum status unknown_layer(const struct cutter *c, const char *name)
{
    const char **names = graph_alloc(c->graph, (size_t)c->n_nodes + 1, sizeof *names);

    TRY(graph_status(c->graph));
    for (int n = 0; n < c->n_nodes; n++)
        names[n] = graph_node(c->graph, n)->name;
    const char *near = suggest_nearest(name, names);
    return near ? FAIL(STATUS_USAGE, "--cut: %s has no layer %s: did you mean %s?",
                       graph_name(c->graph), name, near)
                : FAIL(STATUS_USAGE, "--cut: %s has no layer %s: tutti models %s lists them",
                       graph_name(c->graph), name, graph_name(c->graph));
}

/* Piece k begins with the layer at *text, which moves behind it. */
static enum status read_layer(struct cutter *c, int k, const char **text)
{
    const size_t length = strcspn(*text, ",");
    char name[128];
    int n = 0;

    snprintf(name, sizeof name, "%.*s", (int)length, *text);
    while (n < c->n_nodes && !is_named(c, graph_node(c->graph, n)->name, name))
        n++;
    if (n == c->n_nodes || !*name)
        return unknown_layer(c, name);
    if (n > 0 && c->crossing[n] >= NEVER)
        return FAIL(STATUS_USAGE,
                    "--cut: layer %s has the statistics of the batch norm before it, which is "
                    "joined to it: take a layer before or after",
                    name);
    if (n <= c->begin[k - 1])
        return FAIL(STATUS_USAGE, "--cut: layer %s does not come after the one before it",
                    name);
    c->begin[k] = n;
    *text += length + ((*text)[length] == ',');
    return STATUS_OK;
}

static enum status cut_by_hand(struct cutter *c)
{
    const char *rest = c->pipeline->cut;
    int k = 1;

    for (; *rest && k < c->pieces; k++)
        TRY(read_layer(c, k, &rest));
    if (*rest || k < c->pieces)
        return FAIL(STATUS_USAGE,
                    "--cut %s: %d pieces (%d stages x %d) need the first layers of all but the "
                    "first: %d",
                    c->pipeline->cut, c->pieces, c->pipeline->stages, c->pipeline->chunks,
                    c->pieces - 1);
    for (k = 0; k < c->pieces; k++) {
        const int end = k + 1 < c->pieces ? c->begin[k + 1] : c->n_nodes;
        if (c->owned[end] == c->owned[c->begin[k]])
            return FAIL(STATUS_USAGE, "--cut %s: the piece from layer %s on has no parameters",
                        c->pipeline->cut, graph_node(c->graph, c->begin[k])->name);
    }
    return STATUS_OK;
}

/* What follows from it ----------------------------------------------------------------------- */

/* A parameter belongs to its first reader, an average to who sees what is averaged. */
static void give_values(const struct graph *graph)
{
    for (int v = 0; v < graph_value_count(graph); v++) {
        struct value *value = graph_value(graph, v);
        if (value->kind == VALUE_AVERAGE && value->gradient) {
            value->stage = value->gradient->maker->stage;
            continue;
        }
        for (int n = 0; is_saved(value) && n < graph_node_count(graph); n++) {
            if (reads(graph_node(graph, n), value)) {
                value->stage = graph_node(graph, n)->stage;
                break;
            }
        }
    }
}

/* The piece of the graph of the step that has a node of this name; -1: none. */
static int stage_like(const struct graph *like, const char *name)
{
    for (int n = 0; n < graph_node_count(like); n++) {
        const struct node *node = graph_node(like, n);
        if (node->phase == PHASE_FORWARD && strcmp(node->name, name) == 0)
            return node->stage;
    }
    return -1;
}

static void cut_like(const struct graph *graph, const struct graph *like)
{
    int stage = 0;

    for (int n = 0; n < graph_node_count(graph); n++) {
        const int there = stage_like(like, graph_node(graph, n)->name);
        stage = there > stage ? there : stage;
        graph_node(graph, n)->stage = stage;
    }
    for (int v = 0; v < graph_value_count(graph); v++) {
        struct value *value = graph_value(graph, v);
        if (is_saved(value))
            value->stage = graph_find_value(like, value->name)->stage;
    }
}

static enum status run_cut(struct graph *graph, const struct pass_config *config)
{
    const struct pass_pipeline *pipeline = &config->pipeline;
    struct cutter c = { .graph = graph,
                        .pipeline = pipeline,
                        .n_nodes = graph_node_count(graph),
                        .pieces = pipeline->stages * pipeline->chunks };

    if (pipeline->stages < 2)
        return STATUS_OK;
    if (pipeline->like) {
        cut_like(graph, pipeline->like);
        return STATUS_OK;
    }
    TRY(measure(&c));
    TRY(measure_memory(&c));
    TRY(pipeline->cut && *pipeline->cut ? cut_by_hand(&c) : balance(&c));
    for (int n = 0, k = 0; n < c.n_nodes; n++) {
        while (k + 1 < c.pieces && n >= c.begin[k + 1])
            k++;
        graph_node(graph, n)->stage = k;
    }
    give_values(graph);
    return STATUS_OK;
}

const struct pass pass_cut = {
    .name = "cut",
    .summary = "give layers to the stages of a pipeline, balanced or as --cut says",
    .run = run_cut,
};
