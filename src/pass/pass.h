/* SPDX-License-Identifier: MIT */
/* pass.h - functions that rewrite a graph; a strategy is a list of them.
 *
 * A model's forward graph becomes what a rank runs by the passes of its strategy, in the
 * order in which strategy.c lists them. The graph is verified after each. A pass never runs
 * another pass, and none of them talks to other ranks: what ranks do together are nodes.
 */
#ifndef PASS_PASS_H
#define PASS_PASS_H

#include <stdint.h>

#include "base/status.h"
#include "graph/graph.h"
#include "optim/optim.h"

enum { PASS_BUCKETS = GRAPH_NODE_IN };

/* Neighbors of a worker of gossip: those before and behind it, in a ring; or those 1, 2, 4, ...
 * behind it (Ying et al. 2021), so that n workers have mixed after log2(n) steps. */
enum pass_neighbors { NEIGHBORS_RING, NEIGHBORS_EXPONENTIAL, NEIGHBORS_KINDS };
extern const char *const pass_neighbors_names[NEIGHBORS_KINDS];
/* Which workers worker w of so many averages with: w + out[i]. Gives how many. */
int pass_neighbors_of(enum pass_neighbors kind, int workers, int out[ATTR_OFFSETS]);

/* Ways of a table's gradient between machines: all rows, summed in parts; or what the rows that
 * occur are made from, to all; or these rows, to the machines that own them. */
enum pass_way { PASS_DENSE, PASS_GATHER, PASS_SERVE, PASS_WAYS };
extern const char *const pass_way_names[PASS_WAYS];

/* What is known of a table: ids that a step looks up in it, on average, and different ones among
 * them. */
struct pass_table {
    char name[64]; /* of the parameter */
    double places, on_node, on_all;
};

/* What parallax picked, for people. */
struct pass_choice {
    char name[64];
    enum pass_way way;
    double seconds[PASS_WAYS]; /* that each would take a step */
    double rows, on_node, on_all;
};
enum { PASS_CHOICES = 16 };
struct pass_choices {
    struct pass_choice item[PASS_CHOICES];
    int count;
};

struct pass_network {
    int nodes;                 /* machines */
    double latency, bandwidth; /* of a message in seconds, bytes a second */
};

/* Ranks that share the work of layers, each with its slices of their parameters. */
struct pass_tensor {
    int count, index; /* count 0 or 1: each rank has whole layers */
    bool sequence;    /* what is done to each place of a sequence is shared, too */
};

/* A pipeline, and this rank's place in it. Of all zeros: none. */
/* What the nodes of forward need of a rank's memory; their places as in costs. */
struct pass_memory {
    const double *
        held; /* bytes of parameters that each is the first to read, with gradients and state */
    const double *kept; /* bytes that backward reads of each, of a shard */
    const double *open; /* shards that each stage has under way at most */
    double most;        /* bytes that a rank may have for both */
};

struct pass_pipeline {
    int stages, chunks; /* ranks in a row; pieces of the graph of each */
    int own;            /* this rank's number */
    const char *cut;  /* layers that pieces after the first begin with, "a,b"; NULL: balanced */
    bool names_nodes; /* cut has the names of nodes, "h.2.attn", where people may say "h.2" */
    const double
        *costs; /* seconds of each forward node after fuse, backward included; NULL: by rule */
    const struct pass_memory
        *memory;              /* no piece may need more than its part; NULL: not known */
    const struct graph *like; /* of a graph for evaluation: that of the step, after cut */
};

/* Is this rank the one of that piece of the graph (-1: it is everybody's)? */
static inline bool pass_is_local(const struct pass_pipeline *pipeline, int piece)
{
    return piece < 0 || pipeline->stages < 2 || piece % pipeline->stages == pipeline->own;
}

struct pass_config {
    int64_t batch, shards; /* samples a step; logical shards of the whole job */
    int ranks;
    int64_t bucket_bytes; /* a bucket is closed before it grows past this; 0 picks */
    bool factors;         /* exchange factors instead of gradients where they are smaller */
    bool dense; /* gradients of embeddings have all rows, not those alone that occur */
    bool
        apart; /* poolings and most batch norms stay apart from conv2d, which a device's library has alone */
    bool norms_apart; /* batch norms alone: no kernel has both */
    bool
        epilogues; /* linear layers end with gelu or a sum, their gradients with an activation's */
    bool inward;    /* filters lie with input channels innermost */
    bool recompute; /* make activations again for backward instead of keeping them */
    bool sync_norm; /* batch statistics of the whole step, not of each shard */
    int zero;       /* 3: parameters are held in parts */
    struct pass_tensor tensor;
    bool anchored; /* updates see sum + mu (param - anchor) + shift */
    float mu;
    struct optim_config optim;
    enum pass_neighbors neighbors; /* of gossip */
    int bound;                     /* of pass bounded: steps, from 1 on */

    struct pass_pipeline pipeline;

    /* For parallax */
    struct pass_network network;
    const struct pass_table *tables; /* where nothing is known, every id is another */
    int n_tables;
    enum pass_way way;            /* of all tables; PASS_WAYS: the cheapest */
    struct pass_choices *choices; /* added to, or NULL */
};

struct pass {
    const char *name, *summary;
    /* Before and after: see each pass's file. */
    MUST_CHECK enum status (*run)(struct graph *graph, const struct pass_config *config);
};

extern const struct pass pass_tensor, pass_fuse, pass_sync_norm, pass_autodiff, pass_join,
    pass_inward, pass_delay, pass_recompute, pass_bucket, pass_split_batch, pass_update,
    pass_mirror, pass_central, pass_zero, pass_hierarchy, pass_serve, pass_step, pass_async,
    pass_bounded, pass_average, pass_gossip, pass_elastic, pass_parallax, pass_cut, pass_stage,
    pass_anchor;

/* Runs `passes` (ended by NULL) in order, verifying after each; stops after the pass named `last`
 * unless that is NULL. */
MUST_CHECK enum status pass_run(struct graph *graph, const struct pass *const *passes,
                                const struct pass_config *config, const char *last);

/* What evaluation runs: the forward graph alone. */
extern const struct pass *const pass_evaluation[];

/* A shard of so many rows has no factored gradients: other kernels are quicker, with other bits. */
enum { PASS_MANY_ROWS = 256 };
/* Is this weight gradient x^T dy made from its factors after the ranks exchanged those? The
 * gradient of a linear layer of k inputs and n outputs has k n numbers, its factors have batch (k +
 * n). */
bool pass_is_factored(const struct node *gradient, const struct pass_config *config);

/* Is this gradient of a table of embeddings held as the rows that occur? If only one node reads the
 * table: then the sum of the rows of dy is all of it. */
bool pass_has_rows(const struct node *gradient, const struct pass_config *config);

/* The flat values of bucket b, by what they hold: "param", "grad" or a state's name. */
struct value *pass_bucket_value(const struct graph *graph, int bucket, const char *what);
int pass_bucket_count(const struct graph *graph);
/* Does the bucket hold running averages? */
bool pass_bucket_is_average(const struct graph *graph, int bucket);

#endif /* PASS_PASS_H */
