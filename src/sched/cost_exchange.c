/* SPDX-License-Identifier: MIT */
/* cost_exchange.c - what workers with parameters of their own pay for their exchange, with servers
 * or each other. Their steps are walked without it. */
#include <math.h>

#include "sched/cost_link.h"

/* Bytes that a worker pushes: of tables the rows that its shards look up; all of it, where
 * parameters go. */
static double pushed_bytes(const struct cost_work *work, const struct cost_choice *choice)
{
    const double shards = ceil((double)work->shards / choice->dp);
    double bytes = 0;

    for (int l = 0; l < work->n_layers; l++) {
        const struct cost_layer *layer = &work->layers[l];
        const bool has_rows = layer->sums > 0 && choice->interval == 1;
        bytes += has_rows ? fmin(layer->params, shards * layer->sums) : layer->params;
    }
    return bytes;
}

/* Seconds to copy a byte within a machine. Sums of few bytes are mostly waits, so theirs say
 * little. */
static double copy_seconds(const struct cost_work *work)
{
    return fmin(work->add, 16 / cost_usual_rates.bytes);
}

/* Servers add and update what workers push; workers pull it. */
static void add_servers(const struct cost_work *work, const struct cost_cluster *cluster,
                        const struct cost_choice *choice, struct cost_estimate *out)
{
    const double params = pushed_bytes(work, choice), n = choice->dp;
    const double per_server = params / choice->servers, copy = copy_seconds(work);
    const double update = work->add > 0 ? work->update * copy / work->add : 0;
    const struct cost_link *link =
        cluster->shares && cluster->nodes == 1 ? &cluster->within : &cluster->between;
    const bool is_here = link == &cluster->within;
    /* A worker reads or receives the new values; a server adds what all have given, or what one
     * has. */
    const double moved = 2 * (is_here ? params * copy : cost_link_send(link, params));
    const double served = per_server * (copy * n + update) / cluster->speed +
                          (is_here ? 0 : n * 2 * per_server / link->bandwidth);
    const double one = per_server * (copy + update) / cluster->speed +
                       (is_here ? 0 : 2 * per_server / link->bandwidth);
    const double each = out->seconds + moved * cluster->crowding;

    out->bytes = 2 * params / (double)choice->interval;
    if (choice->interval > 1)
        out->seconds += (moved + one) / (double)choice->interval;
    else if (choice->waits)
        out->seconds = each + served * cluster->crowding;
    else /* the rate at which servers take pushes of all, if workers are faster */
        out->seconds = fmax(each + one, n * one);
}

/* Workers take the mean of all now and then. */
static void add_mean(const struct cost_work *work, const struct cost_cluster *cluster,
                     const struct cost_choice *choice, struct cost_estimate *out)
{
    const double params = cost_params(work), n = choice->dp;
    const struct cost_link *link =
        cluster->nodes > 1 || !cluster->shares ? &cluster->between : &cluster->within;

    out->bytes = 2 * (n - 1) / n * params / (double)choice->interval;
    out->seconds += cost_link_exchange(link, choice->dp, 2 * params, 2) * cluster->crowding /
                    (double)choice->interval;
}

/* Workers average with neighbors: on one machine through a copy of each worker's parameters. */
static void add_neighbors(const struct cost_work *work, const struct cost_cluster *cluster,
                          const struct cost_choice *choice, struct cost_estimate *out)
{
    const double params = cost_params(work), n = choice->neighbors;
    const bool is_here = cluster->shares && cluster->nodes == 1;
    const double moved = is_here ? (1 + n) * params * copy_seconds(work)
                                 : n * cost_link_send(&cluster->between, params);

    out->bytes = n * params;
    out->seconds += moved * cluster->crowding;
}

void cost_exchange(const struct cost_work *work, const struct cost_cluster *cluster,
                   const struct cost_choice *choice, struct cost_estimate *out)
{
    if (choice->servers > 0)
        add_servers(work, cluster, choice, out);
    else if (choice->neighbors > 0)
        add_neighbors(work, cluster, choice, out);
    else
        add_mean(work, cluster, choice, out);
}
