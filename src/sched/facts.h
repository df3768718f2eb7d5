/* SPDX-License-Identifier: MIT */
/* facts.h - the facts of a step: what the graph says of each bucket and of the update rule.
 *
 * facts_read is the one place that recognizes the nodes that run once a step. Lowering makes tasks
 * of these facts, and the executor lays out memory by them. Pure functions of the graph: any thread
 * may call them, and may read facts while the graph lives.
 *
 *   TRY(facts_read(graph, &(struct facts_job){ .nodes = 2, .ranks = 4 }, &facts));
 *   TRY(facts_check(graph, &(struct facts_job){ .nodes = 2, .ranks = 4 }, &facts));
 */
#ifndef SCHED_FACTS_H
#define SCHED_FACTS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "graph/graph.h"

/* The source of a bucket's summed gradient. */
enum bucket_kind {
    BUCKET_DENSE,   /* partial sums of all lanes */
    BUCKET_FACTORS, /* records of all shards: x^T dy of one linear layer */
    BUCKET_ROWS,    /* records of all shards: rows of a table that occur */
    BUCKET_SERVED   /* the same rows, each summed by the node that owns it */
};

struct bucket_facts {
    enum bucket_kind kind;
    bool is_average; /* running averages: not trained, mean instead of a gradient */
    bool is_held;    /* ZeRO-3: parameters are gathered before they are read */
    bool crosses;    /* nodes exchange parts of its sum, or rows with their owners */
    bool returns; /* its updated parts go to all who read them: all_gather after the update */
    const struct node *sum;    /* of kinds with records: the node that sums these; else NULL */
    const struct node *update; /* the optimizer's node; NULL: there is none */
    /* BUCKET_FACTORS on one node: the layer whose columns belong to lanes, or NULL. */
    const struct node *columns;
};

/* How summed gradients become new parameters. */
struct update_rule {
    bool clips;   /* the norm of all gradients is needed */
    bool adapts;  /* the norms of each parameter and its gradient are needed (LARS, LAMB) */
    bool directs; /* parameters move along a direction, not along the gradient (LAMB) */
    bool anchors; /* updates see sum + mu (param - anchor) + shift */
    float mu;
};

struct step_facts {
    int n_buckets;
    struct bucket_facts buckets[GRAPH_NODE_IN];
    struct update_rule rule;
    bool is_joint;  /* some node combines data of several ranks */
    bool is_pushed; /* sums go to servers */
};

/* The job that is to run the graph. */
struct facts_job {
    int nodes, ranks;
    bool has_servers; /* they clip gradients */
    bool has_steps;
};

/* Refuses forms of a graph that no task runs. */
MUST_CHECK enum status facts_read(const struct graph *graph, const struct facts_job *job,
                                  struct step_facts *out);
/* Refuses a graph that was made for another job: for one rank, or with servers where there are
 * none. */
MUST_CHECK enum status facts_check(const struct graph *graph, const struct facts_job *job,
                                   const struct step_facts *facts);

/* Is the bucket's sum made from records of all shards? */
static inline bool facts_is_gathered(const struct step_facts *facts, int b)
{
    return facts->buckets[b].kind == BUCKET_FACTORS || facts->buckets[b].kind == BUCKET_ROWS;
}

/* The value behind views, and behind all_gather of several ranks' values. */
const struct value *facts_source(const struct value *value);
/* The linear layer of a factored bucket whose columns can belong to lanes: it reads the samples, so
 * its input needs no gradient, and nothing else reads its weight. NULL: there is none. */
const struct node *facts_column_layer(const struct graph *graph, int bucket);

#endif /* SCHED_FACTS_H */
