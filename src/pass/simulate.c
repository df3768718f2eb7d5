/* SPDX-License-Identifier: MIT */
/* simulate.c - list scheduling of what stages do.
 *
 * Each stage has a fixed order of forwards and backwards, so nothing has to be searched: again and again a stage whose
 * next action can begin does it. Where stages share cores, it is the one that can begin first. With 2 stages and
 * 2 shards, 1F1B:
 *
 *   stage 0   F0 F1 .. B0 .. B1 sum
 *   stage 1   .. F0 B0 F1 B1 sum
 */
#include "pass/simulate.h"

#include <math.h>

#include "base/mem.h"

/* What a stage has done so far. */
struct stage {
    const struct pipe_action *actions;
    int64_t next;
    double free, busy;
    double summed; /* the last sum has ended */
    double update; /* seconds that it has to do */
};

struct simulation {
    const struct simulate_config *config;
    int64_t count; /* actions of a stage */
    struct stage *stages;
    struct pipe_action *actions;
    double *there
        [2]; /* forward, backward: when a piece's result of a shard is where it is needed; NaN: not yet */
    double *cores; /* [at_once] when each is free */
    struct simulate_result *out;
};

static int pieces_of(const struct simulate_config *config)
{
    return config->pipe.stages * config->pipe.chunks;
}

static double *there_at(const struct simulation *sim, bool is_backward, int piece,
                        int64_t shard)
{
    return &sim->there[is_backward][piece * sim->config->pipe.shards + shard];
}

/* When what an action needs is there; NaN: what makes that has not been done yet. */
static double ready_at(const struct simulation *sim, int s, const struct pipe_action *action)
{
    const int piece = action->chunk * sim->config->pipe.stages + s;

    if (!action->is_backward)
        return piece == 0 ? 0 : *there_at(sim, false, piece - 1, action->shard);
    if (piece == pieces_of(sim->config) - 1)
        return *there_at(sim, false, piece, action->shard);
    return *there_at(sim, true, piece + 1, action->shard);
}

/* The core that is free first; NULL: there are enough. */
static double *first_core(const struct simulation *sim)
{
    double *first = sim->cores;

    for (int i = 1; i < sim->config->at_once; i++)
        first = sim->cores[i] < *first ? &sim->cores[i] : first;
    return sim->config->at_once ? first : NULL;
}

static void note(struct simulation *sim, struct simulate_event event)
{
    if (sim->out->events)
        sim->out->events[sim->out->n_events++] = event;
}

/* The sum of a piece's gradients begins when its last shard has made them; what of it cannot be hidden stops
 * the stage. */
static void begin_sum(struct simulation *sim, int s, int piece)
{
    const struct simulate_piece *p = &sim->config->pieces[piece];
    struct stage *stage = &sim->stages[s];
    const double begin = fmax(stage->summed, stage->free);

    if (p->sum > 0)
        note(sim,
             (struct simulate_event){ begin, begin + p->sum, SIMULATE_SUM, s, piece, true });
    stage->summed = begin + p->sum;
    stage->free += (1 - p->hidden) * p->sum;
    stage->update += p->update;
}

/* What of a way between pieces a core at one of its ends is busy with. */
static double copying(const struct simulate_piece *from)
{
    return from->copied * from->out / 2;
}

static void act(struct simulation *sim, int s, double begin)
{
    const struct simulate_config *config = sim->config;
    struct stage *stage = &sim->stages[s];
    const struct pipe_action *action = &stage->actions[stage->next++];
    const int piece = action->chunk * config->pipe.stages + s;
    const struct simulate_piece *p = &config->pieces[piece];
    /* The pieces that a way to the next one begins at: before this one, and this one. */
    const struct simulate_piece *before = piece > 0 ? p - 1 : NULL;
    const struct simulate_piece *after = piece + 1 < pieces_of(config) ? p : NULL;
    const struct simulate_piece *way = action->is_backward ? before : after;
    const double seconds = (action->is_backward ? p->backward : p->forward) +
                           (before ? copying(before) : 0) + (after ? copying(after) : 0);
    const double end = begin + seconds;
    double *core = first_core(sim);

    if (core)
        *core = end;
    stage->free = end;
    stage->busy += seconds;
    note(sim,
         (struct simulate_event){ begin, end, action->shard, s, piece, action->is_backward });
    *there_at(sim, action->is_backward, piece, action->shard) =
        end + (way ? (1 - way->copied) * way->out : 0);
    if (action->is_backward && action->shard == config->pipe.shards - 1)
        begin_sum(sim, s, piece);
}

/* When the stage's next action can begin; NaN: not yet, or it has done all. */
static double can_begin(const struct simulation *sim, int s)
{
    const struct stage *stage = &sim->stages[s];
    const double *core = first_core(sim);

    if (stage->next == sim->count)
        return NAN;
    const double ready = ready_at(sim, s, &stage->actions[stage->next]);
    return isnan(ready) ? ready : fmax(fmax(ready, stage->free), core ? *core : 0);
}

/* The stage whose next action can begin first does it; false: none can. */
static bool act_in_turn(struct simulation *sim)
{
    double begin = NAN;
    int first = -1;

    for (int s = 0; s < sim->config->pipe.stages; s++) {
        const double when = can_begin(sim, s);
        if (!isnan(when) && (first < 0 || when < begin)) {
            first = s;
            begin = when;
        }
    }
    if (first >= 0)
        act(sim, first, begin);
    return first >= 0;
}

/* Every stage does what it can; false: nothing. */
static bool act_all(struct simulation *sim)
{
    bool any = false;

    for (int s = 0; s < sim->config->pipe.stages; s++) {
        for (double when; !isnan(when = can_begin(sim, s)); any = true)
            act(sim, s, when);
    }
    return any;
}

static void sum_up(struct simulation *sim)
{
    struct simulate_result *out = sim->out;
    double busy = 0;

    for (int s = 0; s < sim->config->pipe.stages; s++) {
        const struct stage *stage = &sim->stages[s];
        const double begin = fmax(stage->free, stage->summed), end = begin + stage->update;
        if (stage->update > 0)
            note(sim, (struct simulate_event){ begin, end, SIMULATE_UPDATE, s, s, true });
        busy += stage->busy;
        out->busiest = fmax(out->busiest, stage->busy + stage->update);
        out->pipeline = fmax(out->pipeline, stage->free);
        out->seconds = fmax(out->seconds, end);
    }
    out->bubble = out->pipeline > 0 ? 1 - busy / sim->config->pipe.stages / out->pipeline : 0;
}

static void go_through(struct simulation *sim)
{
    for (int s = 0; s < sim->config->pipe.stages; s++) {
        sim->stages[s].actions = sim->actions + s * sim->count;
        pipe_schedule(&sim->config->pipe, s, sim->actions + s * sim->count);
    }
    while (sim->config->at_once ? act_in_turn(sim) : act_all(sim))
        continue;
    for (int s = 0; s < sim->config->pipe.stages; s++)
        BUG_ON(sim->stages[s].next != sim->count); /* schedule_test.c shows that none stops */
    sum_up(sim);
}

enum status simulate_run(const struct simulate_config *config, bool wants_events,
                         struct simulate_result *out)
{
    struct simulate_result result = { 0 };
    struct simulation sim = { .config = config, .out = &result };

    TRY(pipe_check(&config->pipe));
    sim.count = pipe_count(&config->pipe);
    const size_t stages = (size_t)config->pipe.stages, all = stages * (size_t)sim.count;
    enum status status = mem_alloc(stages, sizeof *sim.stages, &sim.stages);
    if (status == STATUS_OK)
        status = mem_alloc(all, sizeof *sim.actions, &sim.actions);
    for (int i = 0; i < 2 && status == STATUS_OK; i++)
        status = mem_alloc(all / 2, sizeof(double), &sim.there[i]);
    if (status == STATUS_OK)
        status = mem_alloc((size_t)config->at_once + 1, sizeof *sim.cores, &sim.cores);
    if (status == STATUS_OK && wants_events)
        status = mem_alloc(all + (size_t)pieces_of(config) + stages, sizeof *result.events,
                           &result.events);
    if (status == STATUS_OK) {
        for (size_t i = 0; i < all / 2; i++)
            sim.there[0][i] = sim.there[1][i] = NAN;
        go_through(&sim);
    }
    mem_free(sim.stages);
    mem_free(sim.actions);
    mem_free(sim.there[0]);
    mem_free(sim.there[1]);
    mem_free(sim.cores);
    if (status != STATUS_OK) {
        simulate_release(&result);
        return status;
    }
    *out = result;
    return STATUS_OK;
}

void simulate_release(struct simulate_result *result)
{
    mem_free(result->events);
    result->events = NULL;
    result->n_events = 0;
}
