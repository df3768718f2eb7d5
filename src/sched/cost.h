/* SPDX-License-Identifier: MIT */
/* cost.h - what a step costs on machines that are described, not asked: time, memory, bytes,
 * bubble.
 *
 * Three things go in: the work of a model's step (struct cost_work, read from the graph of a shard
 * and the seconds of its nodes), machines and links (struct cost_cluster), and a way to distribute
 * (struct cost_choice). The seconds are measured (exec/profile.h) or guessed from floating-point
 * operations and bytes (cost_guess).
 *
 * A prediction is of a step like those that bench train measures: samples are in place. Steps are
 * walked (walk.h); what is here are formulas, at their functions in cost*.c. Nothing here measures
 * anything. / */
#ifndef SCHED_COST_H
#define SCHED_COST_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "graph/graph.h"
#include "pass/schedule.h"

/* Work ----------------------------------------------------------------------------------- */

/* A node of forward with what autodiff made of it. Bytes and seconds are of a shard. */
struct cost_layer {
    const char *name;         /* borrowed from the graph */
    double forward, backward; /* seconds */
    double made;     /* seconds, when all shards are there: gradients of rows or factors */
    double params;   /* bytes that it is the first to read */
    double sums;     /* bytes of rows or factors; 0: the gradient is added as it is */
    double kept;     /* bytes that backward reads */
    double crossing; /* bytes that forward makes here or before and reads after it */
    double out;      /* bytes that it makes */
};

struct cost_work {
    struct cost_layer *layers; /* in running order */
    int n_layers, n_buckets, n_states;
    int64_t shards; /* of a step */
    double dense;   /* bytes of parameters whose gradients are added as they are */
    double meeting; /* seconds of a step that lanes wait beside sums; below 0: steps overlap */
    double add, update; /* seconds of a core for a byte: of a gradient, of parameters */
    double transient;   /* bytes of a lane's arena beside what is kept */
};

/* Reads layers from a graph after the passes of a strategy without cuts; node_seconds[i] is node
 * i's in running order. The rest of *out is zero, but for shards, n_buckets and n_states. */
MUST_CHECK enum status cost_read(const struct graph *graph, const double *node_seconds,
                                 int64_t shards, int n_states, struct cost_work *out);
void cost_release(struct cost_work *work);
/* The layer of each node of forward and backward, by its place; -1: none. */
MUST_CHECK enum status cost_layers(const struct graph *graph, int *layer_of);
/* Seconds of nodes by their floating-point operations and bytes, for a core of so many of each a
 * second. */
struct cost_rates {
    double flops, bytes;
};
extern const struct cost_rates cost_usual_rates;
void cost_guess(const struct graph *graph, const struct cost_rates *rates,
                double *node_seconds);
/* Adds updates of what is made from factors or rows of all shards to the nodes that make it. */
void cost_guess_updates(const struct graph *graph, const struct cost_rates *rates,
                        int64_t shards, int n_states, double *node_seconds);
/* The same guess for what struct cost_work has beside layers. */
void cost_guess_rest(struct cost_work *work, const struct cost_rates *rates);

double
cost_shard_seconds(const struct cost_work *work); /* with what is made when all are there */
double cost_params(const struct cost_work *work); /* bytes */

/* Machines ------------------------------------------------------------------------------- */

struct cost_link {
    double latency;   /* seconds until a message is there, */
    double message;   /* that each further one takes, */
    double bandwidth; /* bytes a second */
    double cpu;       /* share of the time that a core is busy with it */
};

struct cost_cluster {
    int nodes, ranks; /* ranks of a node */
    bool
        shares; /* ranks of a node have one copy of the parameters in memory that all of them map */
    double
        crowding;  /* threads for each core, where there are more threads than cores; else 1 */
    double speed;  /* of a rank, in those that the work was measured on */
    double memory; /* bytes that a rank may have; 0: not known */
    double
        pages; /* seconds that a byte costs which is given back and written again; 0: as usual */
    struct cost_link within, between;
};

/* Bytes of gradients or parameters under way at a time, where they are held in parts. */
extern const double cost_window;
/* Seconds that a byte costs which is given back to the system and written again. */
double cost_page_seconds(const struct cost_cluster *cluster);

/* Choices -------------------------------------------------------------------------------- */

/* A tensor split: one rank's share of work and parameters. */
struct cost_sharing {
    double forward, backward, params;
};

struct cost_choice {
    int dp, tp, pp, zero;
    int servers;      /* ranks behind the workers' */
    bool waits;       /* with servers: for every worker, every step */
    int64_t interval; /* steps that workers make alone; 1: they meet in each */
    int neighbors;    /* that a worker averages with after each step; 0: it does not */
    int lanes;        /* of a rank: shards that run side by side */
    double team; /* how many times as fast a lane's threads do a shard together as one does */
    struct cost_sharing sharing;
    enum pipe_kind pipeline;
    int chunks;
    const int *
        begins; /* first layer of each piece, and their number; NULL: balanced here (cost_cut) */
};

/* Shards that stage s of a copy's pipeline has under way at most, of so many. */
double cost_open_shards(const struct cost_choice *choice, int s, double shards);

struct cost_estimate {
    double seconds; /* of a step */
    double compute; /* of these a rank computes so long, sums and update included */
    double bubble;  /* share of a pipeline's time */
    double bytes;   /* that a rank sends in a step, or reads from others */
    double memory;  /* of the rank that has most */
    double params, gradients, state, activations; /* which are these, */
    double copy; /* and what rank 0 writes checkpoints from, where it does not stream them */
};

/* A grid of ranks, tp x pp > 1, by its layers: memory, and roughly what a step takes (walk.h has
 * predictions). STATUS_USAGE says why there is no such way, in words for people. */
MUST_CHECK enum status cost_grid(const struct cost_work *work,
                                 const struct cost_cluster *cluster,
                                 const struct cost_choice *choice, struct cost_estimate *out);

/* Between ranks of a grid that are `apart` from each other in the job's order. */
const struct cost_link *cost_link_over(const struct cost_cluster *cluster, int apart);

/* Bytes of a rank where all have the whole model: fills memory and what it consists of. */
void cost_memory(const struct cost_work *work, const struct cost_cluster *cluster,
                 const struct cost_choice *choice, struct cost_estimate *out);

/* Workers that train alone: adds to out->seconds of their own step the exchange with servers, with
 * neighbors or with all workers, by its bytes and the interval; sets out->bytes. Nothing of an
 * exchange is hidden, as its tasks run between steps; servers' tasks are not walked. */
void cost_exchange(const struct cost_work *work, const struct cost_cluster *cluster,
                   const struct cost_choice *choice, struct cost_estimate *out);

/* Cuts layers into pieces whose slowest is as fast as can be: piece i has layers [begins[i],
 * begins[i + 1]). Each has one at least. */
MUST_CHECK enum status cost_cut(const struct cost_work *work, int pieces, int *begins);

#endif /* SCHED_COST_H */
