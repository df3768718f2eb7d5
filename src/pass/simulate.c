/* SPDX-License-Identifier: MIT */
/* simulate.c - list scheduling of what stages do.
 *
 * Each stage has a fixed order of forwards and backwards (Huang et al. 2019; Narayanan et al. 2021), so nothing has to
 * be searched: again and again the stage whose next thing can begin first does it. With 2 stages and 2 shards, 1F1B:
 *
 *   stage 0   F0 F1 .. B0 .. B1
 *   stage 1   .. F0 B0 F1 B1
 */
#include "pass/simulate.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"

const char *const simulate_order_names[SIMULATE_ORDERS] = { "gpipe", "1f1b", "interleaved" };

struct item {
    bool is_backward;
    int chunk;
    int64_t shard;
};

/* What a stage has done so far. */
struct stage {
    int64_t forwards, backwards; /* of its chunks * shards each */
    double free, busy;
    double summed; /* the last sum has ended */
    double update;
};

struct simulation {
    const struct simulate_config *config;
    struct stage *stages;
    double *forward_at,
        *backward_at; /* [part * shards + shard]: when the result is there; NaN: not yet */
    double *cores;    /* [at_once] when each is free */
    struct simulate_result *out;
};

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Forwards that stage s does before its first backward. */
static int64_t warm_up(const struct simulate_config *config, int s)
{
    const int64_t p = config->stages, v = config->chunks, all = v * config->shards;

    switch (config->order) {
    case SIMULATE_1F1B:
        return least(p - 1 - s, all);
    case SIMULATE_INTERLEAVED:
        return least(2 * (p - 1 - s) + (v - 1) * p, all);
    case SIMULATE_GPIPE:
    case SIMULATE_ORDERS:
        break;
    }
    return all;
}

/* Chunk and shard number k of a stage's forwards, or of its backwards: groups of `stages` shards go through all
 * chunks. */
static struct item item_at(const struct simulate_config *config, int64_t k, bool is_backward)
{
    const int64_t group = config->stages * (int64_t)config->chunks, at = k % group;
    const int chunk = (int)(at / config->stages);

    if (config->chunks == 1)
        return (struct item){ is_backward, 0, k };
    return (struct item){ is_backward, is_backward ? config->chunks - 1 - chunk : chunk,
                          k / group * config->stages + at % config->stages };
}

/* The next thing of stage s; false: it has done all. */
static bool next_item(const struct simulation *sim, int s, struct item *out)
{
    const struct simulate_config *config = sim->config;
    const struct stage *stage = &sim->stages[s];
    const int64_t all = config->chunks * config->shards;

    if (stage->backwards == all)
        return false;
    const bool is_forward =
        stage->forwards < all && stage->forwards - stage->backwards <= warm_up(config, s);
    *out = item_at(config, is_forward ? stage->forwards : stage->backwards, !is_forward);
    return true;
}

/* When what it needs is there; NaN: what makes that has not been done yet. */
static double ready_at(const struct simulation *sim, int s, const struct item *item)
{
    const struct simulate_config *config = sim->config;
    const int part = item->chunk * config->stages + s;
    const int parts = config->stages * config->chunks;
    const size_t shards = (size_t)config->shards, at = (size_t)item->shard;

    if (!item->is_backward)
        return part == 0 ? 0 : sim->forward_at[(size_t)(part - 1) * shards + at];
    if (part == parts - 1)
        return sim->forward_at[(size_t)part * shards + at];
    const double own = sim->forward_at[(size_t)part * shards + at];
    return isnan(own) ? own : sim->backward_at[(size_t)(part + 1) * shards + at];
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

/* The sum of a part's gradients begins when its last shard has made them; what of it cannot be hidden stops
 * the stage. */
static void begin_sum(struct simulation *sim, int s, int part, double when)
{
    const struct simulate_part *p = &sim->config->parts[part];
    struct stage *stage = &sim->stages[s];
    const double begin = fmax(stage->summed, when);

    if (p->sum > 0)
        note(sim, (struct simulate_event){ begin, begin + p->sum, -1, s, part, true });
    stage->summed = begin + p->sum;
    stage->free += (1 - p->hidden) * p->sum;
    stage->update += p->update;
}

static void do_item(struct simulation *sim, int s, const struct item *item, double begin)
{
    const struct simulate_config *config = sim->config;
    const int part = item->chunk * config->stages + s;
    const struct simulate_part *p = &config->parts[part];
    struct stage *stage = &sim->stages[s];
    const double seconds = item->is_backward ? p->backward : p->forward, end = begin + seconds;
    const size_t at = (size_t)part * (size_t)config->shards + (size_t)item->shard;
    double *core = first_core(sim);

    if (core)
        *core = end;
    stage->free = end;
    stage->busy += seconds;
    note(sim, (struct simulate_event){ begin, end, item->shard, s, part, item->is_backward });
    if (!item->is_backward) {
        sim->forward_at[at] = end + (part + 1 < config->stages * config->chunks ? p->out : 0);
        stage->forwards++;
        if (s == 0) {
            const int64_t open = stage->forwards - stage->backwards;
            sim->out->in_flight = open > sim->out->in_flight ? open : sim->out->in_flight;
        }
        return;
    }
    sim->backward_at[at] = end + (part > 0 ? config->parts[part - 1].out : 0);
    stage->backwards++;
    if (item->shard == config->shards - 1)
        begin_sum(sim, s, part, end);
}

/* The stage whose next thing can begin first; -1: none. */
static int first_stage(const struct simulation *sim, struct item *out, double *begin)
{
    const double *core = first_core(sim);
    int first = -1;

    for (int s = 0; s < sim->config->stages; s++) {
        struct item item;
        if (!next_item(sim, s, &item))
            continue;
        const double ready = ready_at(sim, s, &item);
        if (isnan(ready))
            continue;
        const double when = fmax(fmax(ready, sim->stages[s].free), core ? *core : 0);
        if (first < 0 || when < *begin) {
            first = s;
            *begin = when;
            *out = item;
        }
    }
    return first;
}

static void sum_up(struct simulation *sim)
{
    struct simulate_result *out = sim->out;
    double busy = 0;

    for (int s = 0; s < sim->config->stages; s++) {
        const struct stage *stage = &sim->stages[s];
        const double end = fmax(stage->free, stage->summed) + stage->update;
        if (stage->update > 0)
            note(sim, (struct simulate_event){ end - stage->update, end, -2, s, s, true });
        busy += stage->busy;
        out->busiest = fmax(out->busiest, stage->busy);
        out->pipeline = fmax(out->pipeline, stage->free);
        out->seconds = fmax(out->seconds, end);
    }
    out->bubble = out->pipeline > 0 ? 1 - busy / sim->config->stages / out->pipeline : 0;
}

static enum status go_through(struct simulation *sim)
{
    const struct simulate_config *config = sim->config;
    int64_t left = 2 * config->shards * config->stages * config->chunks;

    for (; left > 0; left--) {
        struct item item;
        double begin = 0;
        const int s = first_stage(sim, &item, &begin);
        if (s < 0)
            return FAIL(STATUS_USAGE,
                        "schedule %s of %d stages, %d chunks and %lld shards stops in the "
                        "middle",
                        simulate_order_names[config->order], config->stages, config->chunks,
                        (long long)config->shards);
        do_item(sim, s, &item, begin);
    }
    sum_up(sim);
    return STATUS_OK;
}

static enum status check(const struct simulate_config *config)
{
    if (config->stages < 1 || config->stages > SIMULATE_STAGES || config->chunks < 1 ||
        config->shards < 1)
        return FAIL(STATUS_USAGE, "%d stages of %d chunks, %lld shards: from 1 to %d stages",
                    config->stages, config->chunks, (long long)config->shards, SIMULATE_STAGES);
    if (config->chunks > 1 && config->order != SIMULATE_INTERLEAVED)
        return FAIL(STATUS_USAGE, "schedule %s has one chunk a stage, not %d",
                    simulate_order_names[config->order], config->chunks);
    if (config->chunks > 1 && config->shards % config->stages)
        return FAIL(STATUS_USAGE, "interleaved: %lld shards are no multiple of %d stages",
                    (long long)config->shards, config->stages);
    return STATUS_OK;
}

enum status simulate_run(const struct simulate_config *config, bool wants_events,
                         struct simulate_result *out)
{
    struct simulate_result result = { 0 };
    struct simulation sim = { .config = config, .out = &result };

    TRY(check(config));
    const size_t parts = (size_t)config->stages * (size_t)config->chunks;
    const size_t count = parts * (size_t)config->shards;
    enum status status = mem_alloc((size_t)config->stages, sizeof *sim.stages, &sim.stages);
    if (status == STATUS_OK)
        status = mem_alloc(count, sizeof *sim.forward_at, &sim.forward_at);
    if (status == STATUS_OK)
        status = mem_alloc(count, sizeof *sim.backward_at, &sim.backward_at);
    if (status == STATUS_OK)
        status = mem_alloc((size_t)config->at_once + 1, sizeof *sim.cores, &sim.cores);
    if (status == STATUS_OK && wants_events)
        status = mem_alloc(2 * count + parts + (size_t)config->stages, sizeof *result.events,
                           &result.events);
    if (status == STATUS_OK) {
        for (size_t i = 0; i < count; i++)
            sim.forward_at[i] = sim.backward_at[i] = NAN;
        status = go_through(&sim);
    }
    mem_free(sim.stages);
    mem_free(sim.forward_at);
    mem_free(sim.backward_at);
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

double simulate_bubble(int stages, int chunks, int64_t shards)
{
    return (stages - 1) / ((double)chunks * (double)shards + stages - 1);
}
