/* SPDX-License-Identifier: MIT */
/* parallax.c - picks for every table of embeddings the cheapest way of its gradient between machines.
 *
 * Before: a graph with backward, not yet laid out in buckets. After: each embedding_grad whose gradient has rows
 * says whether its rows are served by the nodes that own them (attrs.served), or it has all rows after all
 * (attrs.densified); else what it is made from goes to every node. Dense gradients are not touched: they are
 * reduced in parts by all.
 *
 * Of a table of R rows of w floats, of which a step looks up u different rows on a node, U on all N, a node
 * receives, and works through in memory,
 *
 *   dense    2 (N-1)/N R w              floats: sums, then parameters           R w, several times; own p rows
 *   gather   (N-1) (2 p + d w)          p ids with places, d rows of dy         all nodes' p rows, U updates
 *   serve    (N-1)/N (u + U) (w + 2)    sums, then new rows, with ids           own p rows; u packed, sent, received, added;
 *                                                                               U/N updates, packed; U received, put in place
 *
 * A message is written, copied and read; an update reads and writes a row and its state. Where d rows are few they are added from
 * a cache.
 *
 * The dense form is offered only where it gives the same weights: where a row without gradient stays as it is, and
 * no norm of it is needed, which is summed row by row.
 */
#include <stdio.h>
#include <string.h>

#include "graph/op.h"
#include "pass/pass.h"

/* Bytes a second that sums and updates of rows go through on a core, as measured on several; only its order
 * of magnitude matters, beside a network. */
static const double MEMORY = 5e9;
static const double CACHE = 1e6; /* bytes of dy that are read many times and stay */

const char *const pass_way_names[PASS_WAYS] = { "dense", "gather", "serve" };

struct volume {
    double messages, bytes, memory;
};

/* What a step has of a table. */
struct counts {
    double rows, width;           /* of the table */
    double places, gradient_rows; /* on one node: ids, and rows of dy */
    double on_node, on_all;       /* different ids */
};

/* Bytes of memory that adding the rows of dy at a node's places is worth. */
static double added_bytes(const struct counts *c)
{
    const double row = 4 * c->width;

    return c->places * row * (c->gradient_rows * row <= CACHE ? 0.25 : 1);
}

static struct volume volume_of(enum pass_way way, const struct counts *c, int nodes,
                               int64_t shards)
{
    const double n = nodes, row = 4 * c->width, share = (n - 1) / n;

    switch (way) {
    case PASS_DENSE:
        return (struct volume){ 2 * (n - 1), 2 * share * c->rows * row,
                                (3 + 4 / n) * c->rows * row + added_bytes(c) };
    case PASS_GATHER:
        return (struct volume){ 3 * share * (double)shards,
                                (n - 1) * (8 * c->places + row * c->gradient_rows),
                                n * added_bytes(c) + 6 * c->on_all * row };
    case PASS_SERVE:
        return (struct volume){ 6 * (n - 1), share * (c->on_node + c->on_all) * (row + 8),
                                added_bytes(c) +
                                    (6 * c->on_node + (4 + 8 / n) * c->on_all) * row };
    case PASS_WAYS:
        break;
    }
    return (struct volume){ 0 };
}

/* A row that no sample looks up stays as it is in the dense form, too; and nobody asks for norms. */
static bool may_be_dense(const struct pass_config *config)
{
    const struct attrs *attrs = &config->optim.attrs;

    return config->optim.optimizer->op == &op_sgd_update && attrs->momentum == 0 &&
           attrs->weight_decay == 0 && attrs->max_norm == 0;
}

/* The parameter whose gradient a node makes. */
static const struct value *table_of(const struct graph *graph, const struct node *gradient)
{
    for (int i = 0; i < graph_value_count(graph); i++) {
        const struct value *value = graph_value(graph, i);
        if (value->kind == VALUE_PARAM && value->gradient == gradient->out[0])
            return value;
    }
    return NULL;
}

static struct counts counts_of(const struct value *table, const struct node *gradient,
                               const struct pass_config *config)
{
    const struct shape *dy = &gradient->in[0]->shape, *ids = &gradient->in[1]->shape;
    const double nodes = config->network.nodes;
    struct counts c = { .rows = (double)gradient->attrs.rows,
                        .width = (double)dy->dim[dy->rank - 1],
                        .places = (double)shape_count(ids) / nodes };

    c.gradient_rows = (double)shape_count(dy) / c.width / nodes;
    c.on_node = c.places < c.rows ? c.places : c.rows;
    c.on_all = c.places * nodes < c.rows ? c.places * nodes : c.rows;
    for (int i = 0; i < config->n_tables; i++) {
        const struct pass_table *known = &config->tables[i];
        if (strcmp(known->name, table->name) != 0)
            continue;
        c.gradient_rows *= known->places / (c.places * nodes);
        c.places = known->places / nodes;
        c.on_node = known->on_node;
        c.on_all = known->on_all;
    }
    return c;
}

static enum pass_way pick(const struct counts *counts, const struct pass_config *config,
                          double seconds[PASS_WAYS])
{
    enum pass_way best = PASS_GATHER;

    for (int way = 0; way < PASS_WAYS; way++) {
        const struct volume v =
            volume_of((enum pass_way)way, counts, config->network.nodes, config->shards);
        seconds[way] = v.messages * config->network.latency +
                       v.bytes / config->network.bandwidth + v.memory / MEMORY;
    }
    for (int way = 0; way < PASS_WAYS; way++) {
        if (seconds[way] < seconds[best] && (way != PASS_DENSE || may_be_dense(config)))
            best = (enum pass_way)way;
    }
    return best;
}

static enum status run_parallax(struct graph *graph, const struct pass_config *config)
{
    struct pass_choices *out = config->choices;

    if (config->network.nodes < 2) /* all share memory: nothing travels */
        return STATUS_OK;
    for (int n = 0; n < graph_node_count(graph); n++) {
        struct node *node = graph_node(graph, n);
        struct pass_choice choice = { 0 };

        if (!pass_has_rows(node, config))
            continue;
        const struct value *table = table_of(graph, node);
        if (!table)
            continue;
        const struct counts counts = counts_of(table, node, config);
        choice.way = pick(&counts, config, choice.seconds);
        if (config->way != PASS_WAYS)
            choice.way = config->way;
        if (choice.way == PASS_DENSE && config->optim.attrs.max_norm > 0)
            return FAIL(
                STATUS_USAGE,
                "table %s: --tables dense gives other weights with --clip than rows do: "
                "norms are summed in another order; use --dense for that",
                table->name);
        if (choice.way == PASS_DENSE && !may_be_dense(config))
            return FAIL(STATUS_USAGE,
                        "table %s: --tables dense gives other weights with %s than rows do: a "
                        "row that does not occur moves, too; use --dense for that",
                        table->name, config->optim.optimizer->name);
        node->attrs.served = choice.way == PASS_SERVE;
        node->attrs.densified = choice.way == PASS_DENSE;
        if (out && out->count < PASS_CHOICES) {
            snprintf(choice.name, sizeof choice.name, "%s", table->name);
            choice.rows = counts.rows;
            choice.on_node = counts.on_node;
            choice.on_all = counts.on_all;
            out->item[out->count++] = choice;
        }
    }
    return STATUS_OK;
}

const struct pass pass_parallax = {
    .name = "parallax",
    .summary = "pick for each table the cheapest way between machines",
    .run = run_parallax,
};
