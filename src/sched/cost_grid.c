/* SPDX-License-Identifier: MIT */
/* cost_grid.c - a grid of ranks (tp x pp > 1) by its layers: memory, and how long a step takes,
 * roughly.
 *
 * A stage has the layers of its pieces, as a rank of tp has them. With m shards, p stages and v
 * chunks of each, the stage with most to do does that m times, and waits for each other stage's
 * chunk once:
 *
 *   m (f + b) + (p - 1) (f + b) / v    if all have as much to do
 *
 * Messages and sums are added as if nothing hid them. Predictions walk programs (walk.h); this
 * tells which of many grids are worth a walk. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "sched/cost_link.h"

/* Bytes that a lane gives back in a step and touches again: gradients, and of parameters in parts
 * what other machines own, after forward and after backward. Tables whose gradients are rows stay.
 */
static double released_bytes(const struct cost_choice *choice, int nodes, double params)
{
    if (choice->zero < 2)
        return 0;
    return params + (choice->zero == 3 ? 2 * params * (nodes - 1) / nodes : 0);
}

static double release_seconds(const struct cost_cluster *cluster, double bytes)
{
    return bytes * cost_page_seconds(cluster) * cluster->crowding / cluster->speed;
}

const struct cost_link *cost_link_over(const struct cost_cluster *cluster, int apart)
{
    return cluster->shares && apart <= cluster->ranks ? &cluster->within : &cluster->between;
}

struct piece_sum {
    double forward, backward, made, params, kept;
    double dense; /* bytes of parameters whose gradients are added as they are */
};

/* A piece's layers as one rank of tp has them. */
static struct piece_sum sum_piece(const struct cost_work *work, int begin, int end,
                                  const struct cost_choice *choice)
{
    static const struct cost_sharing alone = { .forward = 1, .backward = 1, .params = 1 };
    const struct cost_sharing *sharing = choice->tp > 1 ? &choice->sharing : &alone;
    struct piece_sum sum = { 0 };

    for (int l = begin; l < end; l++) {
        const struct cost_layer *layer = &work->layers[l];
        sum.forward += sharing->forward * layer->forward;
        sum.backward += sharing->backward * layer->backward;
        sum.made += sharing->params * layer->made;
        sum.params += sharing->params * layer->params;
        sum.dense += layer->sums > 0 ? 0 : sharing->params * layer->params;
        sum.kept += sharing->forward * layer->kept;
    }
    return sum;
}

/* Those of its warm-up, and one. */
double cost_open_shards(const struct cost_choice *choice, int s, double shards)
{
    const double p = choice->pp, v = choice->chunks;
    const double warm = choice->pipeline == PIPE_GPIPE ? shards
                        : choice->pipeline == PIPE_1F1B
                            ? p - s
                            : (2 * (p - 1 - s) + (v - 1) * p + 1) / v;

    return fmin(warm, shards);
}

/* The pipeline that each of dp copies is. */
static struct pipe_config pipe_of(const struct cost_work *work,
                                  const struct cost_choice *choice)
{
    return (struct pipe_config){ .kind = choice->pipeline,
                                 .stages = choice->pp,
                                 .chunks = choice->chunks,
                                 .shards = work->shards / choice->dp };
}

static enum status check_grid(const struct cost_work *work, const struct cost_choice *choice)
{
    BUG_ON(choice->tp > 1 && choice->sharing.forward <= 0);
    if (choice->pp * choice->chunks > work->n_layers)
        return FAIL(STATUS_USAGE, "%d pieces of %d layers: a stage needs one at least",
                    choice->pp * choice->chunks, work->n_layers);
    if (work->shards < choice->dp)
        return FAIL(STATUS_USAGE, "%lld shards for %d copies", (long long)work->shards,
                    choice->dp);
    const struct pipe_config pipe = pipe_of(work, choice);
    return choice->pp > 1 ? pipe_check(&pipe) : STATUS_OK;
}

struct grid {
    const struct cost_work *work;
    const struct cost_cluster *cluster;
    const struct cost_choice *choice;
    int *begins;
};

/* How often a piece's parameters cross between copies in a step: as sums and as results; in parts
 * they come for each shard, forward and backward, unless they fit the window and stay (decision
 * 44). */
static double times_sent(const struct cost_choice *choice, double params, double shards)
{
    if (choice->zero < 3)
        return 2;
    return params > cost_window ? 1 + 2 * shards : 3;
}

/* The actions of a stage in a step. */
struct stage_sum {
    double shard; /* seconds of a shard, forward and backward */
    double rest;  /* seconds of sums and updates, when all shards are there */
    double sent;  /* bytes */
};

static void add_piece(const struct grid *grid, int piece, struct stage_sum *out)
{
    const struct cost_work *work = grid->work;
    const struct cost_choice *choice = grid->choice;
    const struct cost_cluster *cluster = grid->cluster;
    const int end = grid->begins[piece + 1];
    const struct piece_sum sum = sum_piece(work, grid->begins[piece], end, choice);
    const struct cost_link *dp_link = cost_link_over(cluster, choice->tp * choice->dp);
    const double slow = cluster->crowding / (cluster->speed * choice->team);
    const double shards = (double)work->shards / choice->dp;
    const double sums = times_sent(choice, sum.params, shards) * sum.params;
    const int buckets = 1 + work->n_buckets / (choice->pp * choice->chunks);

    out->shard += (sum.forward + sum.backward) * slow;
    out->rest += cost_link_exchange(dp_link, choice->dp, sums, 2.0 * buckets) +
                 sum.dense * (work->add + work->update) / choice->dp * slow +
                 sum.made * shards * slow +
                 release_seconds(cluster, released_bytes(choice, choice->dp, sum.params));
    out->sent +=
        2 * shards * work->layers[end - 1].crossing + (sums - sum.params) * (choice->dp > 1);
}

static struct stage_sum sum_stage(const struct grid *grid, int s)
{
    const struct cost_choice *choice = grid->choice;
    struct stage_sum sum = { 0 };

    for (int piece = s; piece < choice->pp * choice->chunks; piece += choice->pp)
        add_piece(grid, piece, &sum);
    return sum;
}

static void set_seconds(const struct grid *grid, struct cost_estimate *out)
{
    const struct cost_choice *choice = grid->choice;
    const struct cost_link *link = cost_link_over(grid->cluster, choice->tp * choice->dp * 2);
    const double shards = (double)grid->work->shards / choice->dp;
    double all = 0, most = 0, rest = 0, ways = 0;

    for (int s = 0; s < choice->pp; s++) {
        const struct stage_sum sum = sum_stage(grid, s);
        all += sum.shard;
        most = fmax(most, sum.shard);
        rest = fmax(rest, sum.rest);
        out->bytes = fmax(out->bytes, sum.sent);
    }
    for (int piece = 1; piece < choice->pp * choice->chunks; piece++)
        ways += 2 * cost_link_send(link, grid->work->layers[grid->begins[piece] - 1].crossing);
    const double pipeline = shards * most + (all - most) / choice->chunks + ways;
    out->compute = shards * most + rest;
    out->bubble = 1 - shards * all / choice->pp / pipeline;
    out->seconds = pipeline + rest;
}

/* The memory of the stage that needs most. */
static void set_grid_memory(const struct grid *grid, struct cost_estimate *out)
{
    const struct cost_work *work = grid->work;
    const struct cost_choice *choice = grid->choice;
    const double shards = (double)work->shards / choice->dp;

    for (int s = 0; s < choice->pp; s++) {
        struct cost_estimate now = { 0 };
        double kept = 0, params = 0;
        for (int piece = s; piece < choice->pp * choice->chunks; piece += choice->pp) {
            const struct piece_sum sum =
                sum_piece(work, grid->begins[piece], grid->begins[piece + 1], choice);
            kept += sum.kept;
            params += sum.params;
        }
        const double window = fmin(params, cost_window);
        now.params =
            choice->zero == 3 ? params / choice->dp + fmin(2 * window, params) : params;
        /* Those of earlier shards wait for later ones; sums of other copies are there beside them,
         * with zero a few. */
        now.gradients = params + (choice->dp == 1 ? 0 : choice->zero >= 2 ? window : params);
        now.state = work->n_states * params / choice->dp;
        /* Each shard that is under way has an arena of its own. */
        now.activations = (kept + work->transient / (choice->tp * choice->pp)) *
                          cost_open_shards(choice, s, shards);
        now.memory = now.params + now.gradients + now.state + now.activations;
        if (now.memory <= out->memory)
            continue;
        out->memory = now.memory;
        out->params = now.params;
        out->gradients = now.gradients;
        out->state = now.state;
        out->activations = now.activations;
    }
}

static enum status read_grid(struct grid *grid, struct cost_estimate *out)
{
    const struct cost_choice *choice = grid->choice;
    const int pieces = choice->pp * choice->chunks;

    if (choice->begins)
        memcpy(grid->begins, choice->begins, ((size_t)pieces + 1) * sizeof *grid->begins);
    else
        TRY(cost_cut(grid->work, pieces, grid->begins));
    set_seconds(grid, out);
    set_grid_memory(grid, out);
    return STATUS_OK;
}

enum status cost_grid(const struct cost_work *work, const struct cost_cluster *cluster,
                      const struct cost_choice *choice, struct cost_estimate *out)
{
    const size_t pieces = (size_t)choice->pp * (size_t)choice->chunks;
    struct grid grid = { .work = work, .cluster = cluster, .choice = choice };
    struct cost_estimate estimate = { 0 };

    TRY(check_grid(work, choice));
    TRY(mem_alloc(pieces + 1, sizeof *grid.begins, &grid.begins));
    const enum status status = read_grid(&grid, &estimate);
    mem_free(grid.begins);
    TRY(status);
    *out = estimate;
    return STATUS_OK;
}
