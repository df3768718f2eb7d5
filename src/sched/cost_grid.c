/* SPDX-License-Identifier: MIT */
/* cost_grid.c - a step of a grid of ranks (tp x pp > 1), simulated (pass/simulate.h).
 *
 * A stage's seconds are those of its layers, as a rank of tp has them; sums over tp are added to
 * the layers, those over dp begin when a stage's last shard is through. / */
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

/* Between ranks that are `apart` from each other in the job's order. */
static const struct cost_link *link_over(const struct cost_cluster *cluster, int apart)
{
    return cluster->shares && apart <= cluster->ranks ? &cluster->within : &cluster->between;
}

struct piece_sum {
    double forward, backward, made, params, kept;
    double dense; /* bytes of parameters whose gradients are added as they are */
    double reduced, n_reductions; /* bytes and exchanges of a shard, forward and backward */
};

/* A piece's layers as one rank of tp has them. */
static struct piece_sum sum_piece(const struct cost_work *work, int begin, int end,
                                  const struct cost_choice *choice)
{
    static const struct cost_sharing alone = { .forward = 1, .backward = 1, .params = 1 };
    const struct cost_sharing *sharing = choice->tp > 1 ? &choice->sharing : &alone;
    const double layers = (double)(end - begin) / work->n_layers;
    struct piece_sum sum = { .n_reductions = sharing->sums * layers,
                             .reduced = sharing->bytes * layers };

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
    struct simulate_piece *pieces;
};

/* Stages that have a core at a time, where there are more threads than cores; 0: all. */
static int at_once(const struct grid *grid)
{
    const double crowding = grid->cluster->crowding;
    const int stages = (int)(grid->choice->pp / crowding);

    return crowding > 1 ? (stages > 1 ? stages : 1) : 0;
}

/* How much longer a stage takes beside that: the ranks of a stage share cores among themselves. */
static double crowding_of(const struct grid *grid)
{
    return at_once(grid) ? grid->cluster->crowding * at_once(grid) / grid->choice->pp : 1;
}

/* How often a piece's parameters cross between copies in a step: as sums and as results; in parts
 * they come for each shard, forward and backward, unless they fit the window and stay (decision
 * 44). */
static double times_sent(const struct cost_choice *choice, double params, double shards)
{
    if (choice->zero < 3)
        return 2;
    return params > cost_window ? 1 + 2 * shards : 3;
}

static void fill_piece(const struct grid *grid, int piece, struct cost_estimate *out)
{
    const struct cost_work *work = grid->work;
    const struct cost_choice *choice = grid->choice;
    const struct cost_cluster *cluster = grid->cluster;
    const int parts = choice->pp * choice->chunks;
    const int end = grid->begins[piece + 1];
    const struct piece_sum sum = sum_piece(work, grid->begins[piece], end, choice);
    const struct cost_link *tp_link = link_over(cluster, choice->tp);
    const struct cost_link *dp_link = link_over(cluster, choice->tp * choice->dp);
    const struct cost_link *pp_link = link_over(cluster, choice->tp * choice->dp * 2);
    const double slow = crowding_of(grid) / (cluster->speed * choice->team);
    const double reduce =
        cost_link_exchange(tp_link, choice->tp, sum.reduced, sum.n_reductions) / 2;
    const double crossing = end < work->n_layers ? work->layers[end - 1].crossing : 0;
    const double shards = (double)work->shards / choice->dp;
    const double sums = times_sent(choice, sum.params, shards) * sum.params;
    const int buckets = 1 + work->n_buckets / parts;
    struct simulate_piece *p = &grid->pieces[piece];

    p->forward = sum.forward * slow + reduce;
    p->backward = sum.backward * slow + reduce;
    p->out = piece + 1 < parts ? cost_link_send(pp_link, crossing) : 0;
    p->copied = pp_link->cpu;
    p->sum = cost_link_exchange(dp_link, choice->dp, sums, 2.0 * buckets);
    p->hidden = 1 - dp_link->cpu;
    p->update = sum.dense * (work->add + work->update) / choice->dp * slow +
                sum.made * shards * slow +
                release_seconds(cluster, released_bytes(choice, choice->dp, sum.params));
    out->bytes =
        fmax(out->bytes, 2 * shards * crossing + (sums - sum.params) * (choice->dp > 1) +
                             shards * sum.reduced * (choice->tp - 1) / choice->tp);
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

static enum status run_grid(struct grid *grid, struct cost_estimate *out,
                            struct simulate_result *events)
{
    const struct cost_choice *choice = grid->choice;
    struct simulate_result result;

    const struct simulate_config config = {
        .pipe = pipe_of(grid->work, choice),
        .at_once = at_once(grid),
        .pieces = grid->pieces,
    };
    const int pieces = choice->pp * choice->chunks;
    if (choice->begins)
        memcpy(grid->begins, choice->begins, ((size_t)pieces + 1) * sizeof *grid->begins);
    else
        TRY(cost_cut(grid->work, pieces, grid->begins));
    for (int piece = 0; piece < pieces; piece++)
        fill_piece(grid, piece, out);
    TRY(simulate_run(&config, events != NULL, &result));
    out->seconds = result.seconds;
    out->compute = result.busiest;
    out->bubble = result.bubble;
    set_grid_memory(grid, out);
    if (events)
        *events = result;
    return STATUS_OK;
}

static enum status run(const struct cost_work *work, const struct cost_cluster *cluster,
                       const struct cost_choice *choice, struct cost_estimate *out,
                       struct simulate_result *events)
{
    struct grid grid = { .work = work, .cluster = cluster, .choice = choice };
    const size_t parts = (size_t)choice->pp * (size_t)choice->chunks;

    TRY(check_grid(work, choice));
    enum status status = mem_alloc(parts + 1, sizeof *grid.begins, &grid.begins);
    if (status == STATUS_OK)
        status = mem_alloc(parts, sizeof *grid.pieces, &grid.pieces);
    if (status == STATUS_OK)
        status = run_grid(&grid, out, events);
    mem_free(grid.begins);
    mem_free(grid.pieces);
    return status;
}

enum status cost_predict_grid(const struct cost_work *work, const struct cost_cluster *cluster,
                              const struct cost_choice *choice, struct cost_estimate *out,
                              struct simulate_result *events)
{
    struct cost_estimate estimate = { 0 };

    if (events)
        *events = (struct simulate_result){ 0 };
    TRY(run(work, cluster, choice, &estimate, events));
    *out = estimate;
    return STATUS_OK;
}
